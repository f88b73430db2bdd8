//! Functions of one variable: curves with their bands, on hatched ground where next to nothing is known.

use super::{Canvas, CanvasFrame, Curves, Fade, GRID, LINES, Plot, Scale, Side, TICK, extent, grown, sharp};
use crate::colour::{GROUND, HATCHED, PALE, is_hatch};
use tiny_skia::PathBuilder;

impl Curves {
    /// As for a heat map.
    pub(super) fn draw(&self, canvas: &mut Canvas, panel: CanvasFrame) -> CanvasFrame {
        let n = self.at.len();
        for line in &self.lines {
            assert_eq!(line.mean.len(), n, "a curve has a value for each place");
            assert!(line.deviation.as_ref().is_none_or(|d| d.len() == n), "a band has a width for each place");
        }
        assert!(self.lines.len() <= LINES.len(), "more curves than colours that can be told apart");
        let y = self.y_range.unwrap_or_else(|| self.natural_range());
        let y_ticks = self.y_scale.ticks(y, 6);
        let left = (panel.left + 40.0 + canvas.widest(&y_ticks) + TICK + 8.0).ceil();
        // The text of a tick at the right end reaches beyond it.
        let beyond = 0.5 * canvas.widest(&self.x.ticks(6)) + 12.0;
        let frame = CanvasFrame { left, right: (panel.right - beyond.max(24.0)).floor(), ..panel };
        let x_ticks = canvas.ticks_across(&self.x, frame.right - frame.left);
        let plot = Plot { frame: grown(frame), x: Side::of(&self.x), y: Side { range: y, scale: self.y_scale } };
        self.hatch(canvas, &plot, frame);
        for (value, _) in &x_ticks.0 {
            let at = sharp(plot.x(*value));
            canvas.line((at, frame.top), (at, frame.bottom), 1.0, GRID);
        }
        for (value, _) in &y_ticks.0 {
            let at = sharp(plot.y(*value));
            canvas.line((frame.left, at), (frame.right, at), 1.0, GRID);
        }
        let clip = canvas.surface.clip(frame);
        for (line, colour) in self.lines.iter().zip(LINES) {
            let place = |k: usize, height: f64| (plot.x(self.at[k]), plot.y(height));
            if let Some(deviation) = &line.deviation {
                for run in runs(&line.mean, |v| v.is_finite()) {
                    let upper = run.clone().map(|k| place(k, line.mean[k] + 2.0 * deviation[k]));
                    let lower = run.rev().map(|k| place(k, line.mean[k] - 2.0 * deviation[k]));
                    let mut band = polyline(upper.chain(lower));
                    band.close();
                    canvas.fill(band, colour, 0.22, Some(&clip));
                }
            }
            let curve = polyline((0..n).map(|k| place(k, line.mean[k])));
            if line.dashed {
                canvas.stroke_dashed(curve, 2.4, colour, Some(&clip));
            } else {
                canvas.stroke(curve, 2.4, colour, Some(&clip));
            }
        }
        canvas.points(&plot, &self.points);
        canvas.axes(&plot, panel, &self.title, (&self.x.label, &x_ticks), (&self.y_label, &y_ticks));
        frame
    }

    /// Hatch the ground where next to nothing is known: from the middle between two places to that between others.
    fn hatch(&self, canvas: &mut Canvas, plot: &Plot, frame: CanvasFrame) {
        let Some(Fade { amount, .. }) = &self.fade else { return };
        assert_eq!(amount.len(), self.at.len(), "fade has an amount for each place");
        let n = self.at.len();
        let edge = |k: usize| match k {
            0 => frame.left,
            k if k == n => frame.right,
            k => plot.x(0.5 * (self.at[k - 1] + self.at[k])).clamp(frame.left, frame.right).round(),
        };
        for run in runs(amount, |amount| *amount >= HATCHED) {
            let part = CanvasFrame { left: edge(run.start), right: edge(run.end), ..frame };
            if part.right - part.left < 1.0 {
                continue;
            }
            let (width, height) = (f64::from(part.right - part.left), f64::from(part.bottom - part.top));
            // Places of the panel: runs side by side have one hatching.
            let start = f64::from(part.left - frame.left);
            canvas.shade(part, |across, up| if is_hatch(start + across * width, up * height) { GROUND } else { PALE });
        }
    }

    /// The range of all heights, with some room below and above.
    pub(super) fn natural_range(&self) -> [f64; 2] {
        if self.y_scale == Scale::Log {
            let [low, high] = extent(self.heights().filter(|&h| h > 0.0).map(f64::log10));
            let margin = 0.05 * (high - low);
            return [low - margin, high + margin].map(|exponent| 10f64.powf(exponent));
        }
        let [low, high] = extent(self.heights());
        let margin = 0.05 * (high - low);
        [low - margin, high + margin]
    }

    /// Every height that the picture should hold.
    fn heights(&self) -> impl Iterator<Item = f64> + '_ {
        let inside = |x: f64| (self.x.range[0]..=self.x.range[1]).contains(&x);
        let curves = self.lines.iter().flat_map(move |line| {
            (0..self.at.len()).filter(move |&k| inside(self.at[k])).flat_map(move |k| {
                let half = 2.0 * line.deviation.as_ref().map_or(0.0, |d| d[k]);
                [line.mean[k] - half, line.mean[k] + half]
            })
        });
        let points = self.points.iter().flat_map(|set| &set.at);
        curves.chain(points.filter(move |at| inside(at[0])).map(|at| at[1]))
    }
}

/// The longest ranges of neighbours for which `is` is true.
pub(super) fn runs<'a, T>(
    values: &'a [T],
    is: impl Fn(&T) -> bool + 'a,
) -> impl Iterator<Item = std::ops::Range<usize>> + 'a {
    let mut k = 0;
    std::iter::from_fn(move || {
        let start = k + values[k..].iter().position(&is)?;
        let end = values[start..].iter().position(|value| !is(value)).map_or(values.len(), |length| start + length);
        k = end;
        Some(start..end)
    })
}

/// A path through points, interrupted where one is not finite.
fn polyline(points: impl Iterator<Item = (f32, f32)>) -> PathBuilder {
    let mut path = PathBuilder::new();
    let mut running = false;
    for (x, y) in points {
        let shown = x.is_finite() && y.is_finite();
        if shown && running {
            path.line_to(x, y);
        } else if shown {
            path.move_to(x, y);
        }
        running = shown;
    }
    path
}
