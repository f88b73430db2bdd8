//! A number for each of a few names.

use super::ticks::Ticks;
use super::{
    Align, Axis, Bar, Bars, Canvas, CanvasFrame, GRID, LINES, PANEL_WIDTH, Plot, Side, TICK_SIZE, grown, sharp,
};
use tiny_skia::PathBuilder;

impl Bars {
    /// As for a heat map.
    pub(super) fn draw(&self, canvas: &mut Canvas, panel: CanvasFrame) -> CanvasFrame {
        let widest = self.bars.iter().map(|bar| canvas.width(&bar.name, TICK_SIZE)).fold(0.0, f32::max);
        let left = (panel.left + 30.0 + widest).min(panel.left + 0.6 * PANEL_WIDTH).ceil();
        let frame = CanvasFrame { left, right: panel.right - 40.0, ..panel };
        let width = frame.right - frame.left;
        // Room for the text behind each bar.
        let reach = |bar: &Bar| {
            let text = canvas.width(&bar.text, TICK_SIZE) + 16.0;
            bar.value / f64::from(1.0 - text / width).clamp(0.2, 1.0 / 1.3)
        };
        let greatest = self.bars.iter().map(reach).fold(0.0, f64::max);
        let axis = Axis::new(self.label.clone(), 0.0, if greatest > 0.0 { greatest } else { 1.0 });
        let ticks = canvas.ticks_across(&axis, width);
        let plot = Plot { frame: grown(frame), x: Side::of(&axis), y: Side::linear([0.0, 1.0]) };
        for (value, _) in &ticks.0 {
            let at = sharp(plot.x(*value));
            canvas.line((at, frame.top), (at, frame.bottom), 1.0, GRID);
        }
        // Few bars are not to look like walls.
        let pitch = ((frame.bottom - frame.top) / self.bars.len() as f32).min(72.0);
        for (k, bar) in self.bars.iter().enumerate() {
            let middle = frame.top + (k as f32 + 0.5) * pitch;
            let end = plot.x(bar.value).max(frame.left + 1.0);
            let body =
                CanvasFrame { left: frame.left, top: middle - 0.3 * pitch, right: end, bottom: middle + 0.3 * pitch };
            let mut path = PathBuilder::new();
            path.push_rect(body.rect());
            canvas.fill(path, LINES[0], 0.85, None);
            let base = middle + 0.36 * TICK_SIZE;
            canvas.text(&bar.name, TICK_SIZE, (frame.left - 10.0, base), Align::Right, false);
            canvas.text(&bar.text, TICK_SIZE, (end + 8.0, base), Align::Left, false);
        }
        canvas.axes(&plot, panel, &self.title, (&self.label, &ticks), ("", &Ticks(Vec::new())));
        frame
    }
}
