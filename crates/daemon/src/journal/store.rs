//! Where groups are kept: one SQLite database in the data directory, which people may read with other tools.
//!
//! The database is a write-ahead log (`journal.sqlite-wal`) that a thread of its own copies into `journal.sqlite` from time
//! to time, so that no append waits for it. SQLite ends a log silently at the first page that is damaged.
//! A small file beside it, `journal.mark`, therefore says how far the journal is known to be durable: it is written after
//! each group that was synced, never before, and a journal that ends before its mark is refused. It is not synced itself
//! each time: after a power cut it may be older, which is no harm but that damage behind it goes unnoticed.

use super::StoredGroup;
use super::copier::{BUSY, Copier};
pub use super::mark::MARK;
use super::mark::MarkFile;
use super::thresholds::{Thresholds, thresholds};
pub use crate::state::record::Mark;
use crate::whole_file::{forbids_writing, identity_at, without_links};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// File name of the database.
pub const DATABASE: &str = "journal.sqlite";

/// Version of the tables. What is in the groups has its own ([`super::VERSION`]).
const SCHEMA: u32 = 1;
/// Marks the database as ours among SQLite files ("crit").
const APPLICATION_ID: i64 = 0x6372_6974;
const PAGE_BYTES: u64 = 8192;
/// Between two attempts to copy a log that another process copies.
const PAUSE: Duration = Duration::from_millis(10);
/// Groups that one commit drops at most, so that forgetting is spread evenly.
const DROPPED_AT_ONCE: u64 = 8;

/// Why a storage operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The database said no.
    #[error("{DATABASE}: {0}")]
    Database(#[from] rusqlite::Error),
    /// A file could not be read, written or synced.
    #[error("{path}: {source}")]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The database was made by a newer version of the program.
    #[error("it has format version {version}, and this program knows versions up to {SCHEMA}")]
    Newer {
        /// Version of its format.
        version: u32,
    },
    /// The file is no journal.
    #[error("{path} is no journal of criticd")]
    Foreign {
        /// Which one.
        path: PathBuf,
    },
    /// The journal was closed after an error, and is not open yet.
    #[error("the journal is closed after an error")]
    Closed,
    /// Another process uses the journal.
    #[error("another process uses the journal")]
    Busy,
    /// Groups that were acknowledged are missing.
    #[error(
        "groups that were acknowledged are missing. Save the models with `criticd snapshot` before you stop the \
         daemon; then `criticd repair` says what is left"
    )]
    AcknowledgedMissing,
    /// A file of the journal was deleted or replaced while the journal was open.
    #[error(
        "{path} was deleted or replaced while the daemon was running. Do not stop the daemon: it has the last copy of \
         the rows. Put the file back, or save rows and models first (docs/operations.md, \"Deleted files\")"
    )]
    Displaced {
        /// Which one.
        path: PathBuf,
    },
    /// The good part of the journal could not be copied as a whole.
    #[error("the good part of the journal could not be copied as a whole")]
    IncompleteCopy,
    /// A fault made on purpose, by [`super::memory`].
    #[error("{0}")]
    Injected(&'static str),
}

impl StoreError {
    /// Whether writing failed where reading may still be possible: the disk is full, or may only be read.
    fn forbids_writing(&self) -> bool {
        use rusqlite::ErrorCode as Code;
        match self {
            Self::Database(rusqlite::Error::SqliteFailure(error, _)) => matches!(
                error.code,
                Code::DiskFull | Code::ReadOnly | Code::CannotOpen | Code::SystemIoFailure | Code::PermissionDenied
            ),
            Self::File { source, .. } => forbids_writing(source),
            _ => false,
        }
    }
}

/// A group without its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// Its number.
    pub id: u64,
    /// Offset of its first row.
    pub first_offset: u64,
    /// Rows in it.
    pub rows: u64,
    /// Which kinds of records are in it.
    pub kinds: u32,
    /// Bytes of its body.
    pub bytes: u64,
}

impl GroupHeader {
    /// Offset behind its last row.
    pub fn end(&self) -> u64 {
        self.first_offset + self.rows
    }
}

/// Keeps groups in the order of their numbers.
///
/// After an error of [`Storage::append`] or [`Storage::sync`] nothing that was not synced before may be relied on until
/// [`Storage::reopen`] has succeeded: the group may be there or not, and what the operating system shows need not be what the
/// disk has.
pub trait Storage: Send + fmt::Debug {
    /// Numbers of the first and of the last group; none if there are no groups.
    ///
    /// # Errors
    /// If they cannot be read.
    fn bounds(&mut self) -> Result<Option<(u64, u64)>, StoreError>;

    /// Groups from number `from` on: at least one if there is one, no more than fit into about `bytes`.
    ///
    /// # Errors
    /// If they cannot be read.
    fn read(&mut self, from: u64, bytes: u64) -> Result<Vec<StoredGroup>, StoreError>;

    /// At most `count` groups from number `from` on, without their records.
    ///
    /// # Errors
    /// If they cannot be read.
    fn headers(&mut self, from: u64, count: usize) -> Result<Vec<GroupHeader>, StoreError>;

    /// Add a group behind the others, and drop some of those numbered below `truncate_before`. With `sync` it is durable when this
    /// returns.
    ///
    /// # Errors
    /// If it cannot be written or synced.
    fn append(&mut self, group: &StoredGroup, truncate_before: u64, sync: bool) -> Result<(), StoreError>;

    /// Make everything that has been appended durable.
    ///
    /// # Errors
    /// If it cannot be synced.
    fn sync(&mut self) -> Result<(), StoreError>;

    /// Remember that everything up to `mark` is durable.
    ///
    /// # Errors
    /// If it cannot be written.
    fn set_mark(&mut self, mark: Mark) -> Result<(), StoreError>;

    /// What was remembered last; none if nothing ever was.
    ///
    /// # Errors
    /// If it cannot be read, or none of its copies is whole.
    fn mark(&mut self) -> Result<Option<Mark>, StoreError>;

    /// After an error: close everything, open it again, and write what can be read to the disk once more.
    ///
    /// # Errors
    /// If that fails too.
    fn reopen(&mut self) -> Result<(), StoreError>;

    /// Drop the groups from number `from` on.
    ///
    /// # Errors
    /// If they cannot be dropped.
    fn truncate(&mut self, from: u64) -> Result<(), StoreError>;

    /// Whether the files that are open are those in the directory: what is written to others is lost when they are closed.
    ///
    /// # Errors
    /// [`StoreError::Displaced`], if one was deleted or replaced.
    fn check_in_place(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Bytes of unfinished commits that [`Storage::reopen`] has found and cut off so far.
    fn torn_bytes(&self) -> u64 {
        0
    }
}

/// Read group after group from number `from` to the last, in bounded pieces. `visit` may end it with an error.
///
/// # Errors
/// Of the storage, or of `visit`.
pub fn for_each_group<E: From<StoreError>>(
    storage: &mut dyn Storage,
    from: u64,
    mut visit: impl FnMut(StoredGroup) -> Result<(), E>,
) -> Result<(), E> {
    let mut next = from;
    loop {
        let groups = storage.read(next, thresholds().piece_bytes)?;
        let Some(last) = groups.last() else { return Ok(()) };
        next = last.id + 1;
        groups.into_iter().try_for_each(&mut visit)?;
    }
}

/// The journal in a directory.
#[derive(Debug)]
pub struct SqliteStorage {
    directory: PathBuf,
    /// It ends before the database is closed: fields are dropped in this order.
    copier: Copier,
    database: Option<Connection>,
    /// Whether commits are synced one by one just now.
    synchronous: bool,
    mark: Option<MarkFile>,
    torn_bytes: u64,
    /// Bytes appended since the log was last copied.
    log_bytes: u64,
    thresholds: Thresholds,
    /// Device and number of the files that are open: the database, and its log once it is there.
    files: [Option<(u64, u64)>; 2],
}

impl SqliteStorage {
    /// Open the journal in `directory`, or make an empty one. If it can only be read, it is open for that; writing then fails
    /// until [`Storage::reopen`] succeeds.
    ///
    /// # Errors
    /// If it cannot be opened, is none, or is newer than this program.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        let mut storage = Self::closed(directory);
        match storage.connect() {
            Err(e) if e.forbids_writing() => storage.connect_to_read().map_err(|_| e)?,
            connected => connected?,
        }
        Ok(storage)
    }

    /// Open the journal in `directory` to read it while a daemon writes to it. Nothing can be appended.
    ///
    /// # Errors
    /// If it cannot be opened, or is none.
    pub fn open_beside(directory: &Path) -> Result<Self, StoreError> {
        let path = directory.join(DATABASE);
        let flags =
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_EXRESCODE;
        let database = Connection::open_with_flags(&path, flags)?;
        database.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        database.busy_timeout(BUSY)?;
        check_ours(&database, path)?;
        Ok(Self { database: Some(database), ..Self::closed(directory) })
    }

    fn closed(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            copier: Copier::new(without_links(directory, DATABASE)),
            database: None,
            synchronous: true,
            mark: None,
            torn_bytes: 0,
            log_bytes: 0,
            thresholds: thresholds(),
            files: [None; 2],
        }
    }

    /// Bytes of the file, and how many of them hold nothing: new rows use those first.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn size(&self) -> Result<(u64, u64), StoreError> {
        let database = self.database()?;
        let number = |name: &str| database.pragma_query_value(None, name, |row| row.get::<_, u64>(0));
        let page = number("page_size")?;
        Ok((page * number("page_count")?, page * number("freelist_count")?))
    }

    /// Give the bytes that hold nothing back to the file system. Takes as much room as the rows meanwhile.
    ///
    /// # Errors
    /// If there is no room; the journal is then as before.
    pub fn compact(&mut self) -> Result<(), StoreError> {
        self.database()?.execute_batch("VACUUM")?;
        self.empty_log()
    }

    /// Copy the whole log into the database.
    fn empty_log(&self) -> Result<(), StoreError> {
        let started = Instant::now();
        loop {
            let busy: bool = self.database()?.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
            match busy {
                false => return Ok(()),
                // SQLite waits for those who read the log, and not for one who copies it.
                true if started.elapsed() < BUSY => std::thread::sleep(PAUSE),
                true => return Err(StoreError::Busy),
            }
        }
    }

    /// Whether there is a journal in `directory`.
    pub fn exists(directory: &Path) -> bool {
        directory.join(DATABASE).exists()
    }

    fn log_path(&self) -> PathBuf {
        self.directory.join(format!("{DATABASE}-wal"))
    }

    fn connect(&mut self) -> Result<(), StoreError> {
        let path = self.directory.join(DATABASE);
        if path.is_symlink() {
            return Err(StoreError::File {
                path,
                source: io::Error::other("a link, and no file of a data directory is one"),
            });
        }
        // Made here, for its owner alone; the log has the database's mode. One that is there is left to SQLite: closing it here
        // would drop the locks that other connections of this process have.
        if !path.exists() {
            let make = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            drop(make.map_err(|source| StoreError::File { path: path.clone(), source })?);
        }
        let flags =
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_EXRESCODE;
        let flags = flags | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let database = Connection::open_with_flags(without_links(&self.directory, DATABASE), flags)?;
        // Where the log is damaged SQLite would, when it is closed, copy the part before the damage and drop the rest.
        database.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        database.busy_timeout(BUSY)?;
        let tables: i64 = database.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if tables == 0 {
            database.pragma_update(None, "page_size", PAGE_BYTES)?;
            database.pragma_update(None, "application_id", APPLICATION_ID)?;
            database.pragma_update(None, "user_version", SCHEMA)?;
        } else {
            check_ours(&database, path.clone())?;
        }
        let mode: String = database.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        if mode != "wal" {
            return Err(StoreError::Foreign { path });
        }
        database.pragma_update(None, "synchronous", "FULL")?;
        self.synchronous = true;
        database.pragma_update(None, "wal_autocheckpoint", 0)?;
        database.execute_batch(
            "CREATE TABLE IF NOT EXISTS groups (
                 id INTEGER PRIMARY KEY, first_offset INTEGER NOT NULL, rows INTEGER NOT NULL, kinds INTEGER NOT NULL,
                 previous_crc INTEGER NOT NULL, crc INTEGER NOT NULL, version INTEGER NOT NULL, body BLOB NOT NULL
             )",
        )?;
        let path = self.directory.join(MARK);
        // They are made together.
        if tables > 0 && !path.exists() {
            log::warn!(
                "event=mark_missing path={:?} why=\"whether the end of the journal is missing cannot be known\" \
                 hint=\"compare the offset with what producers have sent\"",
                path.display()
            );
        }
        self.mark = Some(MarkFile::open(&self.directory).map_err(|e| self.mark_error(e))?);
        self.database = Some(database);
        self.files = [self.directory.join(DATABASE), self.log_path()].map(|path| identity_at(&path));
        Ok(())
    }

    /// Open what is there to read it where nothing can be written: without locks, which the daemon's own lock makes needless,
    /// and with the index of the log in memory.
    fn connect_to_read(&mut self) -> Result<(), StoreError> {
        let path = self.directory.join(DATABASE);
        let flags =
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_EXRESCODE;
        let database = Connection::open_with_flags_and_vfs(&path, flags, c"unix-none")?;
        database.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        database.query_row("PRAGMA locking_mode = EXCLUSIVE", [], |_| Ok(()))?;
        check_ours(&database, path)?;
        self.mark = MarkFile::open_to_read(&self.directory).map_err(|e| self.mark_error(e))?;
        self.database = Some(database);
        Ok(())
    }

    fn database(&self) -> Result<&Connection, StoreError> {
        self.database.as_ref().ok_or(StoreError::Closed)
    }

    fn mark_error(&self, source: io::Error) -> StoreError {
        StoreError::File { path: self.directory.join(MARK), source }
    }
}

/// Whether `database`, the file at `path`, is a journal that this program can read.
fn check_ours(database: &Connection, path: PathBuf) -> Result<(), StoreError> {
    let (application, version): (i64, u32) = (
        database.pragma_query_value(None, "application_id", |row| row.get(0))?,
        database.pragma_query_value(None, "user_version", |row| row.get(0))?,
    );
    if application != APPLICATION_ID {
        return Err(StoreError::Foreign { path });
    }
    if version > SCHEMA { Err(StoreError::Newer { version }) } else { Ok(()) }
}

fn group(row: &rusqlite::Row<'_>) -> rusqlite::Result<StoredGroup> {
    Ok(StoredGroup {
        id: row.get(0)?,
        first_offset: row.get(1)?,
        rows: row.get(2)?,
        kinds: row.get(3)?,
        previous_crc: row.get(4)?,
        crc: row.get(5)?,
        version: row.get(6)?,
        body: row.get(7)?,
    })
}

impl Storage for SqliteStorage {
    fn bounds(&mut self) -> Result<Option<(u64, u64)>, StoreError> {
        let bound = |which| format!("SELECT id FROM groups ORDER BY id {which} LIMIT 1");
        let database = self.database()?;
        let first: Option<u64> = database.query_row(&bound("ASC"), [], |row| row.get(0)).optional()?;
        let last: Option<u64> = database.query_row(&bound("DESC"), [], |row| row.get(0)).optional()?;
        Ok(first.zip(last))
    }

    fn read(&mut self, from: u64, bytes: u64) -> Result<Vec<StoredGroup>, StoreError> {
        let sql = "SELECT id, first_offset, rows, kinds, previous_crc, crc, version, body FROM groups WHERE id >= ?1 \
                   ORDER BY id";
        let mut statement = self.database()?.prepare_cached(sql)?;
        let mut rows = statement.query(params![from])?;
        let (mut groups, mut held) = (Vec::new(), 0);
        while held < bytes
            && let Some(row) = rows.next()?
        {
            let group = group(row)?;
            held += group.body.len() as u64 + 100;
            groups.push(group);
        }
        Ok(groups)
    }

    fn headers(&mut self, from: u64, count: usize) -> Result<Vec<GroupHeader>, StoreError> {
        let sql = "SELECT id, first_offset, rows, kinds, length(body) FROM groups WHERE id >= ?1 ORDER BY id LIMIT ?2";
        let mut statement = self.database()?.prepare_cached(sql)?;
        let headers = statement.query_map(params![from, count as u64], |row| {
            Ok(GroupHeader {
                id: row.get(0)?,
                first_offset: row.get(1)?,
                rows: row.get(2)?,
                kinds: row.get(3)?,
                bytes: row.get(4)?,
            })
        })?;
        Ok(headers.collect::<Result<_, _>>()?)
    }

    fn append(&mut self, group: &StoredGroup, truncate_before: u64, sync: bool) -> Result<(), StoreError> {
        if let Some(why) = self.copier.failure() {
            // It may have been a sync: nothing is to be trusted until all has been opened again.
            return Err(StoreError::Database(why));
        }
        self.log_bytes += group.body.len() as u64 + PAGE_BYTES;
        if self.log_bytes > self.thresholds.log_bytes {
            self.log_bytes = 0;
            self.copier.start();
        }
        if sync != self.synchronous {
            self.database()?.pragma_update(None, "synchronous", if sync { "FULL" } else { "NORMAL" })?;
            self.synchronous = sync;
        }
        let database = self.database()?;
        // One statement is its own transaction.
        let dropping = truncate_before > 1
            && database
                .prepare_cached("SELECT id < ?1 FROM groups ORDER BY id LIMIT 1")?
                .query_row(params![truncate_before], |row| row.get::<_, bool>(0))
                .optional()?
                .unwrap_or(false);
        let transaction = if dropping { Some(database.unchecked_transaction()?) } else { None };
        let sql = "INSERT INTO groups (id, first_offset, rows, kinds, previous_crc, crc, version, body) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        let StoredGroup { id, first_offset, rows, kinds, previous_crc, crc, version, body } = group;
        database.prepare_cached(sql)?.execute(params![
            id,
            first_offset,
            rows,
            kinds,
            previous_crc,
            crc,
            version,
            body
        ])?;
        if let Some(transaction) = transaction {
            let sql = "DELETE FROM groups WHERE id < min(?1, (SELECT id FROM groups ORDER BY id LIMIT 1) + ?2)";
            database.prepare_cached(sql)?.execute(params![truncate_before, DROPPED_AT_ONCE])?;
            transaction.commit()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        // The log is SQLite's, but a sync of a file covers everything written to it.
        let path = self.log_path();
        match File::open(&path).and_then(|file| file.sync_data()) {
            Ok(()) => Ok(()),
            // Nothing has been written yet.
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            Err(source) => Err(StoreError::File { path, source }),
        }
    }

    fn set_mark(&mut self, mark: Mark) -> Result<(), StoreError> {
        let written = self.mark.as_mut().ok_or(StoreError::Closed)?.set(mark);
        written.map_err(|e| self.mark_error(e))
    }

    fn mark(&mut self) -> Result<Option<Mark>, StoreError> {
        let found = match &mut self.mark {
            Some(mark) => mark.newest(),
            // The journal can only be read, and there is no mark.
            None if self.database.is_some() => Ok(None),
            None => return Err(StoreError::Closed),
        };
        found.map_err(|e| self.mark_error(e))
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        // While it copies the log nobody else can.
        self.copier.finish();
        drop(self.copier.failure());
        self.database = None;
        self.mark = None;
        self.log_bytes = 0;
        let written = log_bytes(&self.log_path());
        if let Err(e) = self.connect() {
            // What is there can perhaps still be read.
            drop(self.connect_to_read());
            return Err(e);
        }
        let database = self.database()?;
        let pages: i64 = database.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(1))?;
        // Another process that copies the log keeps them from being counted.
        let whole = u64::try_from(pages).map_or(written, |pages| pages * (PAGE_BYTES + 24));
        self.torn_bytes += written.saturating_sub(whole);
        // A sync that failed may have thrown changes away that reading still shows, and the next sync would not tell. What is
        // read is therefore written once more, to another file, which is synced.
        self.empty_log()
    }

    fn truncate(&mut self, from: u64) -> Result<(), StoreError> {
        self.database()?.execute("DELETE FROM groups WHERE id >= ?1", params![from])?;
        Ok(())
    }

    fn check_in_place(&mut self) -> Result<(), StoreError> {
        for (path, known) in [self.directory.join(DATABASE), self.log_path()].into_iter().zip(&mut self.files) {
            let found = identity_at(&path);
            match known {
                // The log comes with the first group.
                None => *known = found,
                Some(_) if *known != found => return Err(StoreError::Displaced { path }),
                Some(_) => {}
            }
        }
        if let Some(mark) = &mut self.mark {
            mark.keep_in_place();
        }
        Ok(())
    }

    fn torn_bytes(&self) -> u64 {
        self.torn_bytes
    }
}

/// How far the journal in `directory` is known to be durable, beside a running daemon too; none if nothing says so.
///
/// # Errors
/// If it cannot be read, or none of its copies is whole.
pub fn read_mark(directory: &Path) -> Result<Option<Mark>, StoreError> {
    let found = MarkFile::open_to_read(directory).and_then(|file| file.map_or(Ok(None), |mut file| file.newest()));
    found.map_err(|source| StoreError::File { path: directory.join(MARK), source })
}

/// Bytes of the log that belong to its present generation, whether or not their commits were finished: its header has two
/// random numbers, which each page of the generation repeats.
fn log_bytes(path: &Path) -> u64 {
    let read = || -> io::Result<u64> {
        let file = File::open(path)?;
        let mut header = [0; 32];
        file.read_exact_at(&mut header, 0)?;
        let page = u64::from(u32::from_be_bytes(header[8..12].try_into().expect("four bytes")));
        let (length, mut at) = (file.metadata()?.len(), 32);
        let mut salt = [0; 8];
        while at + 16 <= length {
            file.read_exact_at(&mut salt, at + 8)?;
            if salt != header[16..24] {
                break;
            }
            at += 24 + page;
        }
        Ok(at.min(length) - 32)
    };
    read().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::GroupWriter;
    use super::super::copier::copy_log;
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn groups(count: u64) -> Vec<StoredGroup> {
        let mut previous = 0;
        (1..=count)
            .map(|id| {
                let mut writer = GroupWriter::default();
                writer.refit_ended(&"x".repeat(id as usize % 50 * 100));
                let group = writer.finish(id, 0, previous, id as f64);
                previous = group.crc;
                group
            })
            .collect()
    }

    fn mark(group: &StoredGroup) -> Mark {
        Mark { id: group.id, offset: group.end(), crc: group.crc }
    }

    #[test]
    fn groups_outlive_the_program() {
        let directory = tempfile::tempdir().unwrap();
        let groups = groups(300);
        {
            let mut storage = SqliteStorage::open(directory.path()).unwrap();
            assert_eq!((storage.bounds().unwrap(), storage.mark().unwrap()), (None, None));
            for group in &groups {
                storage.append(group, 0, group.id % 3 == 0).unwrap();
                storage.set_mark(mark(group)).unwrap();
            }
            storage.sync().unwrap();
        }
        let mut storage = SqliteStorage::open(directory.path()).unwrap();
        assert_eq!(storage.torn_bytes(), 0);
        assert_eq!(storage.bounds().unwrap(), Some((1, 300)));
        assert_eq!(storage.mark().unwrap(), Some(mark(&groups[299])));
        let mut read = Vec::new();
        for_each_group(&mut storage, 1, |group| {
            read.push(group);
            Ok::<(), StoreError>(())
        })
        .unwrap();
        assert!(read == groups);
        assert_eq!(storage.read(10, 1).unwrap().len(), 1);
        let headers = storage.headers(7, 2).unwrap();
        assert_eq!((headers.len(), headers[1].id, headers[1].bytes), (2, 8, groups[7].body.len() as u64));
        storage.reopen().unwrap();
        storage.truncate(200).unwrap();
        assert_eq!(storage.bounds().unwrap(), Some((1, 199)));
    }

    #[test]
    fn a_journal_that_cannot_be_written_can_be_read_to_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let groups = groups(30);
        let mut storage = SqliteStorage::open(directory.path()).unwrap();
        groups.iter().for_each(|group| storage.append(group, 0, true).unwrap());
        storage.set_mark(mark(&groups[29])).unwrap();
        drop(storage);
        // All groups are in the log alone, as after a crash.
        assert!(log_bytes(&directory.path().join(format!("{DATABASE}-wal"))) > 0);
        std::fs::remove_file(directory.path().join(format!("{DATABASE}-shm"))).ok();
        let mut storage = SqliteStorage::open(directory.path()).unwrap();
        (storage.database, storage.mark) = (None, None);
        storage.connect_to_read().unwrap();
        assert!(storage.read(1, u64::MAX).unwrap() == groups);
        assert_eq!(storage.mark().unwrap(), Some(mark(&groups[29])));
        assert!(storage.append(&groups[0], 0, true).is_err());
        storage.reopen().unwrap();
        storage.truncate(30).unwrap();
        assert_eq!(storage.bounds().unwrap(), Some((1, 29)));
    }

    #[test]
    fn a_journal_is_opened_again_while_its_log_is_copied() {
        let directory = tempfile::tempdir().unwrap();
        let mut storage = SqliteStorage::open(directory.path()).unwrap();
        storage.thresholds.log_bytes = 0;
        let groups = groups(100);
        let (own, others) = groups.split_at(60);
        // Its own copier is busy each time.
        for group in own {
            storage.append(group, 0, false).unwrap();
            storage.reopen().unwrap();
        }
        // So is the log of another process, which takes no notice.
        let (path, over) = (directory.path().join(DATABASE), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    copy_log(&path).unwrap();
                    std::thread::yield_now();
                }
            });
            for group in others {
                storage.append(group, 0, false).unwrap();
                storage.reopen().unwrap();
            }
            over.store(true, Ordering::Relaxed);
        });
        assert!(storage.read(1, u64::MAX).unwrap() == groups);
        assert_eq!(storage.torn_bytes(), 0);
    }

    #[test]
    fn a_mark_that_is_deleted_or_replaced_is_put_back() {
        let directory = tempfile::tempdir().unwrap();
        let (path, groups) = (directory.path().join(MARK), groups(3));
        let mut storage = SqliteStorage::open(directory.path()).unwrap();
        let in_place = |storage: &mut SqliteStorage, expected: Option<Mark>| {
            storage.check_in_place().unwrap();
            assert_eq!(read_mark(directory.path()).unwrap(), expected);
        };
        std::fs::remove_file(&path).unwrap();
        in_place(&mut storage, None);
        for group in &groups {
            storage.append(group, 0, true).unwrap();
            storage.set_mark(mark(group)).unwrap();
            std::fs::remove_file(&path).unwrap();
            in_place(&mut storage, Some(mark(group)));
        }
        let other = directory.path().join("other");
        std::fs::write(&other, vec![7; 5000]).unwrap();
        std::fs::rename(&other, &path).unwrap();
        in_place(&mut storage, Some(mark(&groups[2])));
        storage.set_mark(mark(&groups[0])).unwrap();
        in_place(&mut storage, Some(mark(&groups[0])));
        // What cannot be put back is no reason to stop.
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        storage.check_in_place().unwrap();
        std::fs::remove_dir(&path).unwrap();
        in_place(&mut storage, Some(mark(&groups[0])));
    }

    #[test]
    fn no_file_of_a_journal_is_opened_through_a_link() {
        for name in [DATABASE.to_owned(), MARK.to_owned(), format!("{DATABASE}-wal")] {
            let directory = tempfile::tempdir().unwrap();
            let others = directory.path().join("others");
            std::fs::write(&others, "theirs").unwrap();
            let data = directory.path().join("data");
            std::fs::create_dir(&data).unwrap();
            std::os::unix::fs::symlink(&others, data.join(&name)).unwrap();
            let written = SqliteStorage::open(&data).and_then(|mut storage| storage.append(&groups(1)[0], 0, true));
            // SQLite removes the log of a database without pages, and with it the link.
            assert!(written.is_err() || name.ends_with("-wal"), "{name}");
            assert_eq!(std::fs::read(&others).unwrap(), b"theirs", "{name}");
        }
        // The directory itself may be a link.
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("far")).unwrap();
        std::os::unix::fs::symlink("far", directory.path().join("near")).unwrap();
        let mut storage = SqliteStorage::open(&directory.path().join("near")).unwrap();
        storage.append(&groups(1)[0], 0, true).unwrap();
        storage.reopen().unwrap();
    }

    #[test]
    fn files_that_are_deleted_or_replaced_are_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let groups = groups(3);
        let mut storage = SqliteStorage::open(directory.path()).unwrap();
        storage.append(&groups[0], 0, true).unwrap();
        storage.check_in_place().unwrap();
        let log = directory.path().join(format!("{DATABASE}-wal"));
        for path in [directory.path().join(DATABASE), log] {
            let aside = path.with_extension("aside");
            std::fs::rename(&path, &aside).unwrap();
            let displaced = storage.check_in_place().unwrap_err();
            assert!(matches!(&displaced, StoreError::Displaced { path: found } if *found == path), "{displaced}");
            std::fs::copy(&aside, &path).unwrap();
            assert!(storage.check_in_place().is_err(), "a copy is another file");
            std::fs::rename(&aside, &path).unwrap();
            storage.check_in_place().unwrap();
        }
        storage.append(&groups[1], 0, true).unwrap();
        assert_eq!(storage.read(1, u64::MAX).unwrap().len(), 2);
    }

    #[test]
    fn files_belong_to_their_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let mut storage = SqliteStorage::open(directory.path()).unwrap();
        storage.append(&groups(1)[0], 0, true).unwrap();
        for file in [DATABASE.to_owned(), format!("{DATABASE}-wal"), MARK.to_owned()] {
            let mode = std::fs::metadata(directory.path().join(&file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
    }

    #[test]
    fn old_groups_are_dropped_a_few_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let mut storage = SqliteStorage::open(directory.path()).unwrap();
        for group in &groups(100) {
            storage.append(group, 0, false).unwrap();
        }
        let mut more = groups(103);
        let mut append = |id: usize, below| {
            storage.append(&std::mem::replace(&mut more[id - 1], groups(1).remove(0)), below, true).unwrap();
            storage.bounds().unwrap().unwrap()
        };
        assert_eq!(append(101, 12), (9, 101));
        assert_eq!(append(102, 12), (12, 102));
        assert_eq!(append(103, 12), (12, 103));
    }

    #[test]
    fn one_whole_copy_of_the_mark_is_enough() {
        let directory = tempfile::tempdir().unwrap();
        let groups = groups(2);
        let mut storage = SqliteStorage::open(directory.path()).unwrap();
        groups.iter().for_each(|group| storage.set_mark(mark(group)).unwrap());
        drop(storage);
        let path = directory.path().join(MARK);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            std::fs::write(&path, changed).unwrap();
            let found = SqliteStorage::open(directory.path()).unwrap().mark().unwrap().unwrap();
            assert!(groups.iter().any(|group| mark(group) == found), "byte {at}");
        }
        std::fs::write(&path, vec![0; whole.len()]).unwrap();
        assert!(SqliteStorage::open(directory.path()).unwrap().mark().is_err());
    }

    #[test]
    fn what_is_no_journal_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(DATABASE);
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
        assert!(matches!(SqliteStorage::open(directory.path()), Err(StoreError::Foreign { .. })));
        std::fs::write(&path, b"something else, and long enough to be read as a header of a database").unwrap();
        assert!(matches!(SqliteStorage::open(directory.path()), Err(StoreError::Database(_))));
        std::fs::remove_file(&path).unwrap();
        drop(SqliteStorage::open(directory.path()).unwrap());
        Connection::open(&path).unwrap().pragma_update(None, "user_version", 7).unwrap();
        assert!(matches!(SqliteStorage::open(directory.path()), Err(StoreError::Newer { version: 7 })));
    }
}
