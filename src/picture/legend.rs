//! The legend of a panel: its entries in rows, each with a key.

use super::{Align, Canvas, CanvasFrame, LEGEND_ROW, Marker, PANEL_WIDTH, TICK_SIZE, grown};
use crate::colour::{Colours, GROUND, HATCH, HATCHED, PALE, is_hatch};
use tiny_skia::PathBuilder;

/// What stands before a text of a legend.
#[derive(Clone, Copy)]
pub(super) enum Key {
    Marker(Marker),
    Fade(Colours),
    /// With a band, or without one.
    Line([u8; 3], bool),
    Dashes([u8; 3], bool),
    /// The ground of curves where next to nothing is known.
    Hatch,
}

impl Key {
    fn width(self) -> f32 {
        match self {
            Self::Marker(_) => 12.0,
            Self::Fade(_) => 44.0,
            Self::Hatch => 30.0,
            Self::Line(..) | Self::Dashes(..) => 30.0,
        }
    }
}

/// Space between a key and its text, and between an entry and the next.
const KEY_GAP: f32 = 8.0;
const ENTRY_GAP: f32 = 26.0;

/// The entries of a legend, broken into rows that fit the panel; with their widths.
fn layout<'a>(canvas: &Canvas, entries: &[(Key, &'a str)]) -> Vec<Vec<(Key, &'a str, f32)>> {
    let mut rows: Vec<Vec<(Key, &str, f32)>> = Vec::new();
    let mut used = f32::INFINITY;
    for &(key, text) in entries {
        let width = key.width() + KEY_GAP + canvas.width(text, TICK_SIZE);
        if used + ENTRY_GAP + width > PANEL_WIDTH - 40.0 {
            rows.push(Vec::new());
            used = -ENTRY_GAP;
        }
        used += ENTRY_GAP + width;
        rows.last_mut().expect("the first entry opens a row").push((key, text, width));
    }
    rows
}

/// How many rows a legend takes.
pub(super) fn rows(canvas: &Canvas, entries: &[(Key, &str)]) -> usize {
    layout(canvas, entries).len()
}

/// Draw a legend below the middle of `plot`, as far as `panel` has room there.
pub(super) fn draw(canvas: &mut Canvas, panel: CanvasFrame, plot: CanvasFrame, entries: &[(Key, &str)]) {
    for (k, row) in layout(canvas, entries).into_iter().enumerate() {
        let total: f32 = row.iter().map(|entry| entry.2).sum::<f32>() + ENTRY_GAP * (row.len() - 1) as f32;
        let room = panel.left + 20.0..=panel.right - 20.0 - total;
        let mut x = (plot.middle().0 - 0.5 * total).min(*room.end()).max(*room.start()).round();
        let y = panel.bottom + 76.0 + LEGEND_ROW * k as f32;
        for (key, text, width) in row {
            match key {
                Key::Marker(marker) => canvas.marker(marker, x + 6.0, y),
                Key::Fade(colours) => {
                    let swatch = CanvasFrame { left: x, top: y - 7.0, right: x + 44.0, bottom: y + 7.0 };
                    canvas.shade(swatch, |across, up| {
                        let hatched = across >= HATCHED && is_hatch(44.0 * across, 14.0 * up);
                        if hatched { HATCH } else { colours.at(0.6).towards(PALE, across) }
                    });
                    canvas.outline(grown(swatch));
                }
                Key::Hatch => {
                    let swatch = CanvasFrame { left: x, top: y - 7.0, right: x + 30.0, bottom: y + 7.0 };
                    canvas.shade(swatch, |across, up| if is_hatch(30.0 * across, 14.0 * up) { GROUND } else { PALE });
                    canvas.outline(grown(swatch));
                }
                Key::Line(colour, band) => {
                    draw_band(canvas, (x, y), colour, band);
                    canvas.line((x, y), (x + 30.0, y), 2.4, colour);
                }
                Key::Dashes(colour, band) => {
                    draw_band(canvas, (x, y), colour, band);
                    let mut path = PathBuilder::new();
                    path.move_to(x, y);
                    path.line_to(x + 30.0, y);
                    canvas.stroke_dashed(path, 2.4, colour, None);
                }
            }
            canvas.text(text, TICK_SIZE, (x + key.width() + KEY_GAP, y + 0.36 * TICK_SIZE), Align::Left, false);
            x += width + ENTRY_GAP;
        }
    }
}

/// The band behind the key of a curve that has one.
fn draw_band(canvas: &mut Canvas, (x, y): (f32, f32), colour: [u8; 3], band: bool) {
    if band {
        let mut path = PathBuilder::new();
        path.push_rect(CanvasFrame { left: x, top: y - 7.0, right: x + 30.0, bottom: y + 7.0 }.rect());
        canvas.fill(path, colour, 0.22, None);
    }
}
