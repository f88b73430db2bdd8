//! The colour bar beside a heat map.

use super::ticks::Ticks;
use super::{Align, Canvas, CanvasFrame, Heatmap, INK, LABEL_SIZE, Plot, Side, TICK, TICK_SIZE, grown, sharp};

impl Heatmap {
    /// The colour bar.
    pub(super) fn draw_bar(
        &self,
        canvas: &mut Canvas,
        bar: CanvasFrame,
        panel: CanvasFrame,
        (range, bar_ticks): ([f64; 2], &Ticks),
    ) {
        canvas.shade(bar, |_, up| self.colours.at(up));
        canvas.outline(grown(bar));
        let bar_plot = Plot { frame: grown(bar), x: Side::linear([0.0, 1.0]), y: Side::linear(range) };
        for (value, text) in &bar_ticks.0 {
            let at = sharp(bar_plot.y(*value));
            canvas.line((bar.right, at), (bar.right + TICK, at), 1.0, INK);
            canvas.text(text, TICK_SIZE, (bar.right + TICK + 5.0, at + 0.36 * TICK_SIZE), Align::Left, false);
        }
        canvas.text(&self.value_label, LABEL_SIZE, (panel.right - 20.0, bar.middle().1), Align::Middle, true);
    }
}
