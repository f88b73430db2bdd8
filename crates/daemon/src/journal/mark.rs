//! The file that says how far the journal is known to be durable. It has two copies, which are overwritten in turns.

use crate::state::record::Mark;
use crate::whole_file::{identity, identity_at, not_through_links};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// File name of the mark.
pub const MARK: &str = "journal.mark";
/// Between the two copies: never in one sector.
const SLOT: u64 = 4096;
const BYTES: usize = 40;

/// The mark of a journal that is open.
#[derive(Debug)]
pub(super) struct MarkFile {
    path: PathBuf,
    file: File,
    /// Counts writings; the copies take turns.
    turn: u64,
    /// Whether the file could not be put back.
    is_lost: bool,
}

impl MarkFile {
    /// Open the mark of `directory`, or make one.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        let path = directory.join(MARK);
        let mut open = OpenOptions::new();
        let file =
            not_through_links(open.read(true).write(true).create(true).truncate(false).mode(0o600)).open(&path)?;
        let mut mark = Self { path, file, turn: 0, is_lost: false };
        // Turns go on from the copies that are there; whether they are whole is asked when the mark is needed.
        drop(mark.newest());
        Ok(mark)
    }

    /// Open the mark of `directory` where nothing can be written; none if there is none.
    pub(super) fn open_to_read(directory: &Path) -> io::Result<Option<Self>> {
        let path = directory.join(MARK);
        match File::open(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            opened => Ok(Some(Self { path, file: opened?, turn: 0, is_lost: false })),
        }
    }

    pub(super) fn set(&mut self, mark: Mark) -> io::Result<()> {
        self.turn += 1;
        self.file.write_all_at(&encode(self.turn, mark), (self.turn % 2) * SLOT)?;
        // Once both copies are on the disk they are overwritten where they are, one at a time: after a power cut one is whole, if
        // not the newest.
        if self.turn <= 2 { self.file.sync_all() } else { Ok(()) }
    }

    /// What was remembered last; none if nothing ever was.
    pub(super) fn newest(&mut self) -> io::Result<Option<Mark>> {
        let found = newest(&self.file)?;
        Ok(found.map(|(turn, mark)| {
            self.turn = turn;
            mark
        }))
    }

    /// Put the file back if it was deleted or replaced: without it a journal that is cut short would not be noticed.
    pub(super) fn keep_in_place(&mut self) {
        if identity_at(&self.path) == identity(&self.file) {
            return;
        }
        let path = self.path.clone();
        let path = path.display();
        match self.put_back() {
            Ok(()) => log::warn!("event=mark_put_back path={path:?} why=\"it was deleted or replaced\""),
            Err(e) if !self.is_lost => {
                log::warn!("event=mark_failed why={:?}", format!("{path}: {e}"));
                self.is_lost = true;
            }
            Err(_) => {}
        }
    }

    fn put_back(&mut self) -> io::Result<()> {
        let known = self.newest()?;
        let mut fresh = Self::open(self.path.parent().unwrap_or(Path::new(".")))?;
        // Both copies: the file that is there now may have others.
        known.iter().chain(&known).try_for_each(|mark| fresh.set(*mark))?;
        fresh.file.sync_all()?;
        *self = fresh;
        Ok(())
    }
}

/// The newer of the two copies, with its turn; none if nothing was ever written.
fn newest(file: &File) -> io::Result<Option<(u64, Mark)>> {
    if file.metadata()?.len() == 0 {
        return Ok(None);
    }
    let copies = [0, SLOT].into_iter().filter_map(|at| {
        let mut slot = [0; BYTES];
        file.read_exact_at(&mut slot, at).ok()?;
        decode(&slot)
    });
    let newest = copies.max_by_key(|(turn, _)| *turn);
    newest.map(Some).ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "both of its copies are damaged"))
}

fn encode(turn: u64, mark: Mark) -> [u8; BYTES] {
    let mut slot = [0; BYTES];
    for (k, number) in [turn, mark.id, mark.offset, u64::from(mark.crc)].into_iter().enumerate() {
        slot[8 * k..8 * k + 8].copy_from_slice(&number.to_le_bytes());
    }
    let crc = crc32fast::hash(&slot[..32]);
    slot[32..36].copy_from_slice(&crc.to_le_bytes());
    slot
}

fn decode(slot: &[u8; BYTES]) -> Option<(u64, Mark)> {
    let number = |k: usize| u64::from_le_bytes(slot[8 * k..8 * k + 8].try_into().expect("eight bytes"));
    let crc = u32::from_le_bytes(slot[32..36].try_into().expect("four bytes"));
    let mark = Mark { id: number(1), offset: number(2), crc: u32::try_from(number(3)).ok()? };
    (crc == crc32fast::hash(&slot[..32])).then_some((number(0), mark))
}
