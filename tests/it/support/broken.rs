//! Ways in which the daemon, or its disk, could be wrong.

use criticd::journal::checkpoint::{Checkpoint, Checkpoints};
use criticd::journal::memory::{Disk, MemoryCheckpoints, MemoryStorage};
use criticd::journal::store::{GroupHeader, Mark, Storage, StoreError};
use criticd::journal::{GroupWriter, NewPolicy, Record, StoredGroup, TakenRows};
use criticd::learner::Learner;
use criticd::state::streams::Streams;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;

/// Ways in which the daemon or what it stands on could be wrong: the test of this test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Acknowledged before it is synced.
    AcknowledgedBeforeSync,
    /// A sync that failed is repeated without writing again: it succeeds, and the data are gone.
    SyncRepeated,
    /// A write that failed is taken for done.
    WriteErrorIgnored,
    /// The mark is set before the group is durable.
    MarkTooEarly,
    /// Old groups are dropped whether or not a checkpoint needs them.
    ForgetsTooMuch,
    /// Checkpoints forget where the streams stand.
    StreamsNotKept,
    /// Checkpoints hold the learners of the one before.
    StaleLearners,
    /// Checkpoints do not survive a crash, and the journal has forgotten what they covered.
    RenameLost,
    /// A checkpoint says that it stands behind one group more than it does.
    OffByOne,
    /// Refits that end are recorded for another critic.
    WrongCritic,
    /// Rows of a group change their order on the way to the disk.
    RowsSwapped,
    /// Adopted models are recorded as if the refit had found nothing.
    SwapNotRecorded,
    /// A critic that was learned again is recorded as if a refit had found nothing.
    RebuildNotRecorded,
    /// A change of policy is recorded without the policy's name.
    PolicyUnnamed,
    /// Rows are recorded as if each began a chain.
    ChainsForgotten,
}

pub(crate) const BROKEN: [Broken; 15] = [
    Broken::AcknowledgedBeforeSync,
    Broken::SyncRepeated,
    Broken::WriteErrorIgnored,
    Broken::MarkTooEarly,
    Broken::ForgetsTooMuch,
    Broken::StreamsNotKept,
    Broken::StaleLearners,
    Broken::RenameLost,
    Broken::OffByOne,
    Broken::WrongCritic,
    Broken::RowsSwapped,
    Broken::SwapNotRecorded,
    Broken::RebuildNotRecorded,
    Broken::PolicyUnnamed,
    Broken::ChainsForgotten,
];

/// Storage with a fault in it. What it changes of a group it changes behind a checksum that is right, as a bug would.
#[derive(Debug)]
pub(crate) struct Faulty {
    pub inner: MemoryStorage,
    pub disk: Arc<Mutex<Disk>>,
    pub broken: Option<Broken>,
}

fn crc_of(disk: &Mutex<Disk>, id: u64) -> Option<u32> {
    disk.lock().groups.iter().find(|group| group.id == id).map(|group| group.crc)
}

impl Faulty {
    fn rewrites(&self) -> bool {
        use Broken::{ChainsForgotten, PolicyUnnamed, RebuildNotRecorded, RowsSwapped, SwapNotRecorded, WrongCritic};
        let rewriting = [SwapNotRecorded, WrongCritic, RowsSwapped, RebuildNotRecorded, PolicyUnnamed, ChainsForgotten];
        self.broken.is_some_and(|broken| rewriting.contains(&broken))
    }

    fn changed(&self, group: &StoredGroup) -> Option<StoredGroup> {
        let (time, records) = group.decode().ok()?;
        let mut writer = GroupWriter::default();
        match (self.broken, records.as_slice()) {
            (Some(Broken::SwapNotRecorded), [Record::Adopted { critic, .. }]) => writer.refit_ended(critic),
            (Some(Broken::WrongCritic), [Record::RefitEnded { .. }]) => writer.refit_ended("second"),
            (Some(Broken::RowsSwapped), [Record::Rows(a), Record::Rows(b)]) if a.stream != b.stream => {
                writer.take(b);
                writer.take(a);
            }
            (Some(Broken::RebuildNotRecorded | Broken::PolicyUnnamed | Broken::ChainsForgotten), records) => {
                records.iter().for_each(|record| self.rewrite(record, &mut writer));
            }
            _ => return None,
        }
        Some(writer.finish(group.id, group.first_offset, group.previous_crc, time))
    }

    /// Record something, wrongly if it is what this fault concerns.
    fn rewrite(&self, record: &Record, writer: &mut GroupWriter) {
        match (self.broken, record) {
            (Some(Broken::RebuildNotRecorded), Record::Rebuilt(learner)) => {
                writer.refit_ended(&learner.settings().name);
            }
            (Some(Broken::PolicyUnnamed), Record::NewPolicy(change)) => {
                writer.new_policy(&NewPolicy { policy: None, ..change.clone() });
            }
            (Some(Broken::ChainsForgotten), Record::Rows(taken)) => {
                writer.take(&TakenRows { starts_chain: vec![true; taken.batch.len()], ..taken.clone() });
            }
            _ => writer.record(record),
        }
    }
}

impl Storage for Faulty {
    fn bounds(&mut self) -> Result<Option<(u64, u64)>, StoreError> {
        self.inner.bounds()
    }

    fn read(&mut self, from: u64, bytes: u64) -> Result<Vec<StoredGroup>, StoreError> {
        self.inner.read(from, bytes)
    }

    fn headers(&mut self, from: u64, count: usize) -> Result<Vec<GroupHeader>, StoreError> {
        self.inner.headers(from, count)
    }

    fn append(&mut self, group: &StoredGroup, truncate_before: u64, sync: bool) -> Result<(), StoreError> {
        let rewritten = self.rewrites().then(|| {
            // The chain is whole: this is no damage but a bug.
            let previous_crc = self.disk.lock().groups.last().map_or(0, |last| last.crc);
            let changed = self.changed(group).unwrap_or_else(|| group.clone());
            StoredGroup { previous_crc, ..changed }.sealed()
        });
        let group = rewritten.as_ref().unwrap_or(group);
        let truncate_before = match self.broken {
            Some(Broken::ForgetsTooMuch) => group.id.saturating_sub(2),
            Some(Broken::RenameLost) if truncate_before > 0 => truncate_before.max(group.id.saturating_sub(8)),
            _ => truncate_before,
        };
        let sync = sync && self.broken != Some(Broken::AcknowledgedBeforeSync);
        if self.broken == Some(Broken::MarkTooEarly) {
            self.inner.set_mark(Mark { id: group.id, offset: group.end(), crc: group.crc })?;
        }
        match self.inner.append(group, truncate_before, sync) {
            Err(_) if self.broken == Some(Broken::WriteErrorIgnored) => {
                self.inner.reopen()?;
                Ok(())
            }
            other => other,
        }
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.inner.sync()
    }

    fn set_mark(&mut self, mark: Mark) -> Result<(), StoreError> {
        let crc = if self.rewrites() { crc_of(&self.disk, mark.id).unwrap_or(mark.crc) } else { mark.crc };
        self.inner.set_mark(Mark { crc, ..mark })
    }

    fn mark(&mut self) -> Result<Option<Mark>, StoreError> {
        self.inner.mark()
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        if self.broken == Some(Broken::SyncRepeated) {
            // Open again, but believe what reading shows.
            let lost_from = self.disk.lock().lost_from;
            self.inner.reopen()?;
            let mut disk = self.disk.lock();
            disk.lost_from = lost_from;
            if let Some(lost_from) = lost_from {
                disk.synced = disk.synced.min(lost_from);
            }
            return Ok(());
        }
        self.inner.reopen()
    }

    fn truncate(&mut self, from: u64) -> Result<(), StoreError> {
        self.inner.truncate(from)
    }
}

/// Checkpoints with a fault in them.
#[derive(Debug)]
pub(crate) struct FaultyCheckpoints {
    pub inner: MemoryCheckpoints,
    pub disk: Arc<Mutex<Disk>>,
    pub broken: Option<Broken>,
    pub before: Mutex<Option<Vec<Learner>>>,
}

impl Checkpoints for FaultyCheckpoints {
    fn list(&self) -> io::Result<Vec<u64>> {
        self.inner.list()
    }

    fn read(&self, group: u64) -> io::Result<Vec<u8>> {
        self.inner.read(group)
    }

    fn write(&self, group: u64, bytes: &[u8]) -> io::Result<()> {
        let mut checkpoint = Checkpoint::decode(bytes).unwrap();
        checkpoint.crc = crc_of(&self.disk, group).unwrap_or(checkpoint.crc);
        match self.broken {
            Some(Broken::StreamsNotKept) => checkpoint.streams = Streams::new(),
            Some(Broken::StaleLearners) => {
                let learners = checkpoint.learners.clone();
                if let Some(before) = self.before.lock().replace(learners) {
                    checkpoint.learners = before;
                }
            }
            Some(Broken::OffByOne) if group > 1 => {
                checkpoint.group -= 1;
                checkpoint.crc = crc_of(&self.disk, group - 1).unwrap_or(0);
            }
            _ => {}
        }
        self.inner.write(checkpoint.group, &checkpoint.encode())
    }

    fn set_aside(&self, critic: &str, offset: u64, snapshot: &[u8]) -> io::Result<String> {
        self.inner.set_aside(critic, offset, snapshot)
    }
}
