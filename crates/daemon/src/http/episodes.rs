//! Returns of whole episodes, as rows come.

use crate::learner::window::Window;
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};

/// Episodes kept.
const KEPT: usize = 1000;
/// Streams whose running episodes are followed; where there are more, those under way are forgotten.
const RUNNING_MAX: usize = 4096;

/// An episode that has ended.
#[derive(Clone, Debug, PartialEq)]
struct Ended {
    /// Offset behind its last row.
    offset: u64,
    rows: u64,
    /// Sum of each reward (H,), not discounted.
    totals: Vec<f64>,
}

/// The last episodes, in the order in which they ended.
#[derive(Debug, Default)]
pub(super) struct Episodes {
    ended: VecDeque<Ended>,
    /// How many of the last ones have not been passed on yet.
    new: usize,
    /// By stream: rows and rewards so far of an episode whose first row was seen.
    running: HashMap<u32, (u64, Vec<f64>)>,
    /// Offset behind the last row that was looked at.
    seen: u64,
}

impl Episodes {
    /// Follow the new rows of `window`.
    pub(super) fn take(&mut self, window: &Window) {
        if window.start() > self.seen {
            // Rows are missing.
            self.running.clear();
        }
        let from = self.seen.max(window.start());
        for (rows, range, first) in window.since(from) {
            for (k, i) in range.enumerate() {
                let stream = rows.streams[i];
                if rows.starts_chain[i] {
                    if self.running.len() >= RUNNING_MAX {
                        self.running.clear();
                    }
                    self.running.insert(stream, (0, vec![0.0; rows.rewards_per_row]));
                }
                let Some((count, totals)) = self.running.get_mut(&stream) else { continue };
                *count += 1;
                totals.iter_mut().zip(rows.reward(i)).for_each(|(total, reward)| *total += reward);
                if rows.terminated[i] || rows.truncated[i] {
                    let (rows, totals) = (*count, std::mem::take(totals));
                    let zeros = vec![0.0; totals.len()];
                    self.end(Ended { offset: first + k as u64 + 1, rows, totals });
                    // The next row of the stream begins another.
                    self.running.insert(stream, (0, zeros));
                }
            }
        }
        self.seen = window.end();
    }

    fn end(&mut self, episode: Ended) {
        if self.ended.len() == KEPT {
            self.ended.pop_front();
        }
        self.ended.push_back(episode);
        self.new = (self.new + 1).min(KEPT);
    }

    /// Each as offset behind it, rows, and the sum of each reward.
    pub(super) fn all(&self) -> Value {
        self.ended.iter().map(written).collect()
    }

    /// Those that have ended since this was asked last.
    pub(super) fn news(&mut self) -> Value {
        let new = std::mem::take(&mut self.new);
        self.ended.iter().skip(self.ended.len() - new).map(written).collect()
    }
}

fn written(episode: &Ended) -> Value {
    json!([episode.offset, episode.rows, episode.totals])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transition::{Batch, BatchParts};

    #[test]
    fn an_episode_is_told_once_with_the_sum_of_its_rewards() {
        let mut window = Window::new(1, 1, 1000);
        let push = |window: &mut Window, stream: u32, starts: &[bool], ends: &[bool]| {
            let n = starts.len();
            let parts = BatchParts {
                stream: "s".into(),
                dim: 1,
                rewards_per_row: 1,
                states: vec![0.0; n],
                next_states: Some(vec![0.0; n]),
                rewards: (1..=n).map(|r| r as f64).collect(),
                truncated: Some(ends.to_vec()),
                ..BatchParts::default()
            };
            window.extend_from_batch(stream, starts, &Batch::new(parts).unwrap());
        };
        let mut episodes = Episodes::default();
        // The end of an episode whose beginning was not seen is none.
        push(&mut window, 0, &[false, false, true, false], &[false, true, false, false]);
        episodes.take(&window);
        assert_eq!(episodes.news(), json!([]));
        push(&mut window, 1, &[true, true], &[true, false]);
        push(&mut window, 0, &[false, false, false], &[true, false, true]);
        episodes.take(&window);
        assert_eq!(episodes.all(), json!([[5, 1, [1.0]], [7, 3, [8.0]], [9, 2, [5.0]]]));
        assert_eq!((episodes.news(), episodes.news()), (episodes.all(), json!([])));
        episodes.take(&window);
        assert_eq!(episodes.news(), json!([]), "rows are looked at once");
    }
}
