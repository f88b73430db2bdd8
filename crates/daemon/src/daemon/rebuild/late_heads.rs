//! Heads that came late learn the rows of their critic's model from the journal, while the critic goes on as it is.

use super::{Ended, RebuildJob, RebuildProgress, empty_like, for_each_read};
use crate::daemon::recovery::group_of;
use crate::journal::store::Storage;
use crate::journal::{Record, StoredGroup};
use crate::learner::heads::{Demands, Head};
use crate::learner::model::LateHeads;
use crate::learner::window::Window;
use crate::state::removals::Removals;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Rows that are read before they are learned.
const READ_ROWS: u64 = 4096;

/// Heads that learn what the model of their critic has learned.
#[derive(Debug)]
pub struct RebuiltHeads {
    /// The heads.
    pub heads: LateHeads,
    /// Times that they have followed the journal.
    pub rounds: u32,
    /// Heads that are left out, since a row lacks what they ask for, each with the reason.
    pub unlearnable: Vec<(Head, String)>,
    pub(super) critic: String,
    window: Window,
    /// Number of the group that is read next.
    next: u64,
    /// The demands of the heads on a row.
    demands: Demands,
    removals: Removals,
    progress: Arc<RebuildProgress>,
}

impl RebuiltHeads {
    /// Let `late` learn what `storage` retains; none if that lacks rows that their model has learned.
    ///
    /// # Errors
    /// Stopped: `keep_going`, asked between groups, says so. Or the journal cannot be read.
    pub(super) fn learn(
        job: &RebuildJob,
        late: &LateHeads,
        storage: &mut dyn Storage,
        keep_going: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<Self>, String> {
        let next = group_of(storage, late.first_row()).map_err(|e| e.to_string())?;
        let found = storage.headers(next, 1).map_err(|e| e.to_string())?;
        let from = found.first().map(|head| head.first_offset).filter(|&from| from <= late.first_row());
        let Some(from) = from else { return Ok(None) };
        let (mut late, mut unlearnable) = (late.clone(), Vec::new());
        loop {
            let mut rebuilt = Self {
                critic: job.settings.name.clone(),
                heads: late.clone(),
                rounds: 0,
                unlearnable: unlearnable.clone(),
                window: empty_like(&job.window, from),
                next,
                demands: Demands::of(late.heads()),
                removals: job.removals.clone(),
                progress: Arc::clone(&job.progress),
            };
            match rebuilt.read(storage, keep_going) {
                Ok(()) => return Ok(Some(rebuilt)),
                Err(Ended::Unlearnable { heads, why }) => {
                    late = late.without(&heads);
                    unlearnable.extend(heads.into_iter().map(|head| (head, why.clone())));
                }
                Err(Ended::Incomplete) => return Ok(None),
                Err(Ended::Failed(why)) => return Err(why),
                Err(Ended::Panicked(rows)) => return Err(rows.why),
            }
        }
    }

    /// Learn what has been stored since.
    pub(super) fn follow(
        &mut self,
        storage: &mut dyn Storage,
        keep_going: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), Ended> {
        self.rounds += 1;
        self.read(storage, keep_going)
    }

    /// Read the groups from `next` on to the last one there is.
    fn read(&mut self, storage: &mut dyn Storage, keep_going: &(dyn Fn() -> bool + Sync)) -> Result<(), Ended> {
        self.progress.expect(storage, self.heads.first_row())?;
        for_each_read(storage, self.next, keep_going, &mut |group| self.take(group))?;
        self.learn_window();
        Ok(())
    }

    fn take(&mut self, group: StoredGroup) -> Result<(), Ended> {
        let mut offset = group.first_offset;
        for record in self.removals.clean(group.group()?).records {
            let rows = match &record {
                Record::Rows(taken) => taken.batch.len() as u64,
                Record::Hole(rows) => *rows,
                _ => continue,
            };
            let end = offset + rows;
            if self.window.end() != offset {
                return Err(Ended::Incomplete);
            }
            let Record::Rows(taken) = record else {
                self.window.skip(rows);
                offset = end;
                continue;
            };
            if end > self.heads.first_row() {
                self.demands
                    .check(&taken.batch)
                    .map_err(|fault| Ended::unlearnable(&fault, offset, self.heads.heads(), &taken.batch))?;
            }
            self.window.extend_from_batch(taken.stream, &taken.starts_chain, &taken.batch);
            offset = end;
        }
        self.next = group.id + 1;
        if self.window.end() >= self.heads.learned() + READ_ROWS {
            self.learn_window();
        }
        Ok(())
    }

    fn learn_window(&mut self) {
        if self.window.end() > self.heads.learned() {
            self.heads.learn(&self.window, self.window.end());
        }
        self.window.hold(self.heads.learned());
        let rows = self.heads.learned() - self.heads.first_row();
        self.progress.rows.store(rows, Ordering::Relaxed);
    }
}
