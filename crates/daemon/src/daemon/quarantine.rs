//! The last messages that were refused, on ingest and as appends. Ingest has no replies, so people look at them here.
//!
//! They stand in a database of their own in the data directory, which may be read while the daemon runs. Nothing depends
//! on them: they are written once a second at most, without waiting for the disk, and at most some of them.

use super::core::Refused;
use crate::whole_file::{not_through_links, without_links};
use rusqlite::{Connection, OpenFlags, params};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// File name of the database.
pub const DATABASE: &str = "quarantine.sqlite";

/// A refused message as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptMessage {
    /// Unix seconds.
    pub time: f64,
    /// Name of the error code; "learner_failed" for rows that were taken in and could not be learned.
    pub code: String,
    /// Field at fault.
    pub field: Option<String>,
    /// Row at fault.
    pub index: Option<u64>,
    /// A sentence for people.
    pub message: String,
    /// The beginning of the message.
    pub payload: Vec<u8>,
}

/// The quarantine of a daemon.
#[derive(Debug)]
pub struct Quarantine {
    directory: PathBuf,
    max: u64,
    database: Option<Connection>,
}

impl Quarantine {
    /// A quarantine in `directory` that keeps the last `max` messages. It is made when there is a first one.
    pub fn new(directory: &Path, max: u64) -> Self {
        Self { directory: directory.to_owned(), max, database: None }
    }

    /// Add messages, and forget the oldest beyond the limit. Where that fails they are lost, and the log says so.
    pub fn keep(&mut self, refused: &[Refused]) {
        if refused.is_empty() || self.max == 0 {
            return;
        }
        if let Err(e) = self.try_keep(refused) {
            log::warn!("event=quarantine_failed messages={} why={:?}", refused.len(), e.to_string());
            self.database = None;
        }
    }

    fn try_keep(&mut self, refused: &[Refused]) -> rusqlite::Result<()> {
        if self.database.is_none() {
            // Made here, for its owner alone: messages of producers are in it. One that cannot be made SQLite complains of.
            let mut make = OpenOptions::new();
            drop(not_through_links(make.append(true).create(true).mode(0o600)).open(self.directory.join(DATABASE)));
            let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_NOFOLLOW;
            let database = Connection::open_with_flags(without_links(&self.directory, DATABASE), flags)?;
            database.busy_timeout(Duration::from_millis(100))?;
            database.pragma_update(None, "synchronous", "OFF")?;
            database.execute_batch(
                "CREATE TABLE IF NOT EXISTS refused (
                     id INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, code TEXT NOT NULL, field TEXT,
                     row INTEGER, message TEXT NOT NULL, payload BLOB NOT NULL
                 )",
            )?;
            self.database = Some(database);
        }
        let Some(database) = &mut self.database else { return Ok(()) };
        let transaction = database.transaction()?;
        {
            let sql = "INSERT INTO refused (time, code, field, row, message, payload) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            let mut insert = transaction.prepare_cached(sql)?;
            for Refused { time, code, field, index, message, payload } in refused {
                insert.execute(params![time, code, field, index.map(|i| i as u64), message, payload])?;
            }
        }
        let sql = "DELETE FROM refused WHERE id <= (SELECT max(id) FROM refused) - ?1";
        transaction.execute(sql, params![self.max])?;
        transaction.commit()
    }
}

/// What is kept in `directory`, the oldest first; nothing if there never was anything.
///
/// # Errors
/// If it cannot be read.
pub fn read(directory: &Path) -> rusqlite::Result<Vec<KeptMessage>> {
    let path = directory.join(DATABASE);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let database = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    database.busy_timeout(Duration::from_secs(2))?;
    let mut statement = database.prepare("SELECT time, code, field, row, message, payload FROM refused ORDER BY id")?;
    let kept = statement.query_map([], |row| {
        Ok(KeptMessage {
            time: row.get(0)?,
            code: row.get(1)?,
            field: row.get(2)?,
            index: row.get(3)?,
            message: row.get(4)?,
            payload: row.get(5)?,
        })
    })?;
    kept.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn refused(k: usize) -> Refused {
        let (field, message) = (Some("state"), format!("number {k}"));
        Refused { time: k as f64, code: "not_finite", field, index: Some(k), message, payload: vec![k as u8; 3] }
    }

    #[test]
    fn the_last_ones_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read(directory.path()).unwrap(), []);
        let mut quarantine = Quarantine::new(directory.path(), 5);
        quarantine.keep(&(0..4).map(refused).collect::<Vec<_>>());
        quarantine.keep(&[]);
        let mode = std::fs::metadata(directory.path().join(DATABASE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "for its owner alone");
        quarantine.keep(&(4..8).map(refused).collect::<Vec<_>>());
        let kept = read(directory.path()).unwrap();
        assert_eq!(kept.iter().map(|kept| kept.index.unwrap()).collect::<Vec<_>>(), [3, 4, 5, 6, 7]);
        assert_eq!((kept[0].code.as_str(), kept[0].field.as_deref()), ("not_finite", Some("state")));
        assert_eq!((kept[0].message.as_str(), &kept[0].payload[..]), ("number 3", &[3, 3, 3][..]));
    }
}
