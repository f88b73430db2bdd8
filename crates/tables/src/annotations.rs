//! What belongs to rows beside their numbers, on its way into a [`Table`]; and where chains begin.

use super::Table;
use super::extras::Extras;
use super::order::FilePlace;
use criticd_learner::transition::Rows;

/// What belongs to rows beside [`Rows`].
pub(super) struct Annotations {
    pub(super) extras: Extras,
    pub(super) seqs: Vec<u64>,
    pub(super) places: Vec<FilePlace>,
    pub(super) episodes: Vec<u32>,
    pub(super) frames: Vec<u64>,
}

impl Annotations {
    pub(super) fn into_table(self, table: &mut Table) {
        (table.extras, table.seqs, table.places) = (self.extras, self.seqs, self.places);
        (table.episodes, table.frames) = (self.episodes, self.frames);
    }
}

/// Mark the rows that do not continue the one before them in their stream.
pub(super) fn mark_chains(rows: &mut Rows, seqs: &[u64], streams: usize) {
    let mut last: Vec<Option<usize>> = vec![None; streams];
    for i in 0..rows.len() {
        let before = last[rows.streams[i] as usize].replace(i);
        rows.starts_chain[i] = !before.is_some_and(|b| {
            !rows.terminated[b] && !rows.truncated[b] && seqs[b] + 1 == seqs[i] && rows.next_state(b) == rows.state(i)
        });
    }
}
