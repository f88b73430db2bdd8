//! Titles of panels: a line, and smaller ones below it.

use super::{Align, Canvas, CanvasFrame, PANEL_WIDTH, TICK_SIZE};

const TITLE_SIZE: f32 = 21.0;
/// Lines below the first one of a title: how high and how wide they are, and how many there are at most.
pub(super) const SUBTITLE_ROW: f32 = 22.0;
pub(super) const SUBTITLE_WIDTH: f32 = PANEL_WIDTH - 40.0;
pub(super) const SUBTITLE_ROWS: usize = 8;

impl Canvas {
    /// A title over the middle of a plot, its last line on this base line.
    pub(super) fn title(&mut self, title: &str, panel: CanvasFrame, (x, base): (f32, f32)) {
        let (below, below_size) = self.subtitle(title);
        let first = title.split_once('\n').map_or(title, |(first, _)| first);
        // A long line is written in smaller letters.
        let room = 2.0 * (x - panel.left).min(panel.right - x) - 12.0;
        let size = TITLE_SIZE * (room / self.width(first, TITLE_SIZE).max(1.0)).min(1.0);
        self.text(first, size, (x, base - SUBTITLE_ROW * below.len() as f32), Align::Middle, false);
        for (line, above) in below.iter().rev().zip(0_u8..) {
            // Over the middle as far as the panel has room there.
            let half = 0.5 * self.width(line, below_size);
            let x = x.min(panel.right - 10.0 - half).max(panel.left + 10.0 + half);
            self.text(line, below_size, (x, base - SUBTITLE_ROW * f32::from(above)), Align::Middle, false);
        }
    }

    /// What stands below the first line of a title, broken into lines that fit the panel, and the size of its letters: smaller
    /// ones where there would be too many lines, or where a word is too wide.
    pub(super) fn subtitle(&self, title: &str) -> (Vec<String>, f32) {
        let Some((_, below)) = title.split_once('\n') else { return (Vec::new(), TICK_SIZE) };
        let mut size = TICK_SIZE;
        loop {
            let mut lines = self.wrapped(below, size);
            let fits = lines.iter().all(|line| self.width(line, size) <= SUBTITLE_WIDTH);
            // Letters of less than a few pixels say nothing: then the last lines are missing.
            if size < 5.0 || (fits && lines.len() <= SUBTITLE_ROWS) {
                lines.truncate(SUBTITLE_ROWS);
                return (lines, size);
            }
            size *= 0.9;
        }
    }

    /// Lines of whole words that fit below a title; a word that is too wide has a line of its own.
    fn wrapped(&self, text: &str, size: f32) -> Vec<String> {
        let mut lines = Vec::new();
        for given in text.split('\n') {
            let mut line = String::new();
            for word in given.split(' ') {
                let longer = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
                if line.is_empty() || self.width(&longer, size) <= SUBTITLE_WIDTH {
                    line = longer;
                } else {
                    lines.push(std::mem::replace(&mut line, word.to_owned()));
                }
            }
            lines.push(line);
        }
        lines
    }
}
