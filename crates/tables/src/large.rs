//! Tables that do not fit into memory.

use super::columns::Columns;
use super::job::{Job, Pieces, Want};
use super::{Fault, Format, Progress, Reading, Table, TableError, lerobot, locate};
use criticd_learner::transition::Batch;
use std::path::{Path, PathBuf};

/// A table that is read from its file whenever it is needed and never kept, however large it is. Rows wait in memory only
/// for their successors: the rows between two rows of one stream. The arrays of NPZ and D4RL are read whole.
#[derive(Clone, Debug)]
pub struct LargeTable {
    path: PathBuf,
    reading: Reading,
    columns: Columns,
    rows: u64,
    dim: usize,
    rewards_per_row: usize,
    streams: Vec<String>,
    /// Rows of each stream in the file, those without a successor among them.
    totals: Vec<u64>,
    /// What there is to tell of the order of the rows.
    told: Vec<String>,
}

impl LargeTable {
    /// Read a file once from its beginning to its end, and check every row; formats and `progress` as in [`Table::read`].
    ///
    /// # Errors
    /// The first fault found, with its row and column and what to do about it.
    pub fn check(path: &Path, reading: Reading, progress: &mut dyn FnMut(Progress)) -> Result<Self, TableError> {
        let progress = &mut |done| {
            progress(done);
            true
        };
        Self::check_as(path, reading, &Columns::default(), progress)
    }

    /// As [`LargeTable::check`], for a table whose columns have other names. Its rows must be in the order of their
    /// episodes. `progress` says whether to go on.
    ///
    /// # Errors
    /// As there; among them a column that is named and not in the file.
    pub fn check_as(
        path: &Path,
        reading: Reading,
        columns: &Columns,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Self, TableError> {
        let (path, columns) = (locate(path), columns.clone());
        let (streams, totals) = (Vec::new(), Vec::new());
        let told = Vec::new();
        let table = Self { path, reading, columns, rows: 0, dim: 0, rewards_per_row: 0, streams, totals, told };
        let mut found = table.clone();
        let read = table.read(None, progress, &mut |piece| {
            found.rows += piece.rows.len() as u64;
            (found.dim, found.rewards_per_row) = (piece.dim(), piece.rewards_per_row());
            found.streams.extend_from_slice(&piece.streams[found.streams.len()..]);
            Ok(())
        });
        (found.totals, found.told) = read.map_err(|fault| found.fault(fault))?;
        if found.rows == 0 { Err(found.fault(Fault::Empty)) } else { Ok(found) }
    }

    /// What is odd about the order of the rows, and what was done about it: a sentence each.
    pub fn told(&self) -> &[String] {
        &self.told
    }

    /// Number of transitions n, at least 1.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// State dimension D.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Rewards per row H.
    pub fn rewards_per_row(&self) -> usize {
        self.rewards_per_row
    }

    /// Names of the streams, in order of appearance.
    pub fn streams(&self) -> &[String] {
        &self.streams
    }

    /// Read it again, and hand its transitions over in the order of the file, as [`Table::batches`] has them; streams are
    /// called what `name` makes of their names. `take` returns whether it wants more.
    ///
    /// # Errors
    /// If the file is not what it was when it was checked.
    ///
    /// # Panics
    /// If `rows_max` is 0, or `session` or a stream's new name is longer than 256 bytes.
    pub fn for_each_batch(
        &self,
        name: &dyn Fn(&str) -> String,
        session: &str,
        rows_max: usize,
        take: &mut dyn FnMut(Batch) -> bool,
    ) -> Result<(), TableError> {
        let changed = || Fault::Content("the file has changed since it was checked; start again".to_owned());
        let (mut rows, mut enough) = (0, false);
        let read = self.read(Some(&self.totals), &mut |_| true, &mut |piece| {
            rows += piece.rows.len() as u64;
            if rows > self.rows || (piece.dim(), piece.rewards_per_row()) != (self.dim, self.rewards_per_row) {
                return Err(changed());
            }
            let first = rows == piece.rows.len() as u64;
            let mut unnamed = |(k, mut batch): (usize, Batch)| {
                // Names stand in the first batch of a table.
                if !first && k == 0 {
                    drop(batch.take_names());
                }
                take(batch)
            };
            enough = !piece.batches_named(name, session, rows_max).enumerate().all(&mut unnamed);
            if enough { Err(Fault::Empty) } else { Ok(()) }
        });
        match read {
            _ if enough => Ok(()),
            Ok(_) if rows == self.rows => Ok(()),
            Ok(_) => Err(self.fault(changed())),
            Err(fault) => Err(self.fault(fault)),
        }
    }

    fn read(
        &self,
        totals: Option<&[u64]>,
        progress: &mut dyn FnMut(Progress) -> bool,
        take: &mut dyn FnMut(&Table) -> Result<(), Fault>,
    ) -> Result<(Vec<u64>, Vec<String>), Fault> {
        let format = Format::to_read(&self.path, self.columns.format.as_deref())?;
        let pieces = Some(Pieces { totals, take });
        let want = Want::Transitions(self.reading);
        let columns = &lerobot::understood(&self.path, &self.columns, want)?;
        let mut job = Job { format, want, columns, progress, pieces };
        let builder = format.read(&self.path, &mut job)?;
        builder.finish(job.pieces.expect("put there above"))
    }

    fn fault(&self, fault: Fault) -> TableError {
        TableError { path: self.path.clone(), fault }
    }
}
