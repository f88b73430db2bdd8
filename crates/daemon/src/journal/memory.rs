//! Storage in memory that fails on demand, for tests and for simulations of disks.

use super::StoredGroup;
use super::checkpoint::{Checkpoints, KEPT};
use super::store::{GroupHeader, Mark, Storage, StoreError};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// What a disk holds, and what it is about to do wrong. It outlives the storage that writes to it, as a disk does.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// Groups in their order.
    pub groups: Vec<StoredGroup>,
    /// How many of them are durable; the others are lost by a crash, or some of them.
    pub synced: usize,
    /// Groups from here on were given up by a sync that failed: no later sync makes them durable.
    pub lost_from: Option<usize>,
    /// The mark.
    pub mark: Option<Mark>,
    /// Writes and syncs so far.
    pub operations: u64,
    /// Which of them fail: the first one's number, and how many.
    pub failing: Option<(u64, u64)>,
}

impl Disk {
    /// Power is lost: of what was not synced, `kept` groups happen to be there.
    pub fn crash(&mut self, kept: usize) {
        let durable = self.synced.min(self.groups.len());
        let possible = self.lost_from.unwrap_or(self.groups.len()).max(durable);
        self.groups.truncate(possible.min(durable.saturating_add(kept)));
        self.synced = self.groups.len();
        self.lost_from = None;
        self.failing = None;
    }

    fn operation(&mut self) -> bool {
        let now = self.operations;
        self.operations += 1;
        self.failing.is_none_or(|(first, count)| now < first || now - first >= count)
    }
}

/// Storage on a [`Disk`].
#[derive(Clone, Debug, Default)]
pub struct MemoryStorage {
    disk: Arc<Mutex<Disk>>,
    failed: bool,
}

impl MemoryStorage {
    /// Storage on this disk.
    pub fn on(disk: Arc<Mutex<Disk>>) -> Self {
        Self { disk, failed: false }
    }
}

impl Storage for MemoryStorage {
    fn bounds(&mut self) -> Result<Option<(u64, u64)>, StoreError> {
        let disk = self.disk.lock();
        Ok(disk.groups.first().map(|group| group.id).zip(disk.groups.last().map(|group| group.id)))
    }

    fn read(&mut self, from: u64, bytes: u64) -> Result<Vec<StoredGroup>, StoreError> {
        let disk = self.disk.lock();
        let mut held = 0;
        let first = disk.groups.partition_point(|group| group.id < from);
        let fits = |group: &&StoredGroup| {
            let before = held;
            held += group.body.len() as u64;
            before < bytes
        };
        Ok(disk.groups[first..].iter().take_while(fits).cloned().collect())
    }

    fn headers(&mut self, from: u64, count: usize) -> Result<Vec<GroupHeader>, StoreError> {
        let disk = self.disk.lock();
        let head = |group: &StoredGroup| GroupHeader {
            id: group.id,
            first_offset: group.first_offset,
            rows: group.rows,
            kinds: group.kinds,
            bytes: group.body.len() as u64,
        };
        Ok(disk.groups.iter().filter(|group| group.id >= from).take(count).map(head).collect())
    }

    fn append(&mut self, group: &StoredGroup, truncate_before: u64, sync: bool) -> Result<(), StoreError> {
        if self.failed {
            return Err(StoreError::Injected("not reopened after an error"));
        }
        let mut disk = self.disk.lock();
        if !disk.operation() {
            self.failed = true;
            return Err(StoreError::Injected("a write failed"));
        }
        let dropped = disk.groups.iter().take(8).filter(|group| group.id < truncate_before).count();
        disk.groups.drain(..dropped);
        disk.synced -= dropped.min(disk.synced);
        disk.groups.push(group.clone());
        drop(disk);
        if sync { self.sync() } else { Ok(()) }
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        if self.failed {
            return Err(StoreError::Injected("not reopened after an error"));
        }
        let mut disk = self.disk.lock();
        if !disk.operation() {
            self.failed = true;
            let synced = disk.synced;
            disk.lost_from.get_or_insert(synced);
            return Err(StoreError::Injected("a sync failed"));
        }
        disk.synced = disk.lost_from.unwrap_or(disk.groups.len());
        Ok(())
    }

    fn set_mark(&mut self, mark: Mark) -> Result<(), StoreError> {
        self.disk.lock().mark = Some(mark);
        Ok(())
    }

    fn mark(&mut self) -> Result<Option<Mark>, StoreError> {
        Ok(self.disk.lock().mark)
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        let mut disk = self.disk.lock();
        if !disk.operation() {
            return Err(StoreError::Injected("a write failed"));
        }
        // What is read is written once more.
        disk.lost_from = None;
        disk.synced = disk.groups.len();
        self.failed = false;
        Ok(())
    }

    fn truncate(&mut self, from: u64) -> Result<(), StoreError> {
        let mut disk = self.disk.lock();
        disk.groups.retain(|group| group.id < from);
        disk.synced = disk.groups.len();
        Ok(())
    }
}

/// Checkpoints in memory, by group; clones share them.
#[derive(Clone, Debug, Default)]
pub struct MemoryCheckpoints {
    files: Arc<Mutex<BTreeMap<u64, Vec<u8>>>>,
    aside: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
}

impl MemoryCheckpoints {
    /// The files, to be looked at and damaged.
    pub fn files(&self) -> Arc<Mutex<BTreeMap<u64, Vec<u8>>>> {
        Arc::clone(&self.files)
    }

    /// The models that were set aside, by name.
    pub fn aside(&self) -> BTreeMap<String, Vec<u8>> {
        self.aside.lock().clone()
    }
}

impl Checkpoints for MemoryCheckpoints {
    fn list(&self) -> io::Result<Vec<u64>> {
        Ok(self.files.lock().keys().rev().copied().collect())
    }

    fn read(&self, group: u64) -> io::Result<Vec<u8>> {
        self.files.lock().get(&group).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn write(&self, group: u64, bytes: &[u8]) -> io::Result<()> {
        let mut files = self.files.lock();
        files.insert(group, bytes.to_vec());
        while files.len() > KEPT {
            files.pop_first();
        }
        Ok(())
    }

    fn set_aside(&self, critic: &str, offset: u64, snapshot: &[u8]) -> io::Result<String> {
        let name = format!("{critic}-{offset}");
        self.aside.lock().insert(name.clone(), snapshot.to_vec());
        Ok(name)
    }
}
