//! The file `endpoints.json`, by which clients find the daemon: it appears when all is ready, and is there while the daemon runs.

use super::StartError;
use crate::whole_file::{self, forbids_writing, identity_at};
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};

pub(super) struct EndpointsFile {
    path: PathBuf,
    /// Device and number of the directory: another one in its place may be another daemon's.
    directory: Option<(u64, u64)>,
    announced: Mutex<Option<Announced>>,
}

struct Announced {
    text: String,
    is_written: bool,
}

impl EndpointsFile {
    /// The file of a data directory, for later.
    pub(super) fn new(directory: &Path) -> Self {
        let (path, directory) = (directory.join("endpoints.json"), identity_at(directory));
        Self { path, directory, announced: Mutex::default() }
    }

    /// Remove the file of a daemon that was killed: clients take it for a sign that all is ready.
    pub(super) fn clear(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound && !forbids_writing(&e) => Err(e),
            _ => Ok(()),
        }
    }

    /// Write the file. Where nothing can be written now, [`EndpointsFile::keep`] does so later.
    pub(super) fn announce(&self, text: String) -> Result<(), StartError> {
        let written = self.write(&text);
        *self.announced.lock() = Some(Announced { text, is_written: written.is_ok() });
        match written {
            Err(source) if !forbids_writing(&source) => Err(StartError::DataDir { path: self.path.clone(), source }),
            Err(e) => {
                log::warn!("event=endpoints_not_written file={:?} why={:?}", self.path.display(), e.to_string());
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Write the file if it is not there, because that failed or because somebody has deleted it.
    pub(super) fn keep(&self) {
        let mut announced = self.announced.lock();
        let Some(Announced { text, is_written }) = announced.as_mut() else { return };
        let in_place = self.path.parent().and_then(identity_at) == self.directory;
        if !in_place || (*is_written && self.path.exists()) || self.write(text).is_err() {
            return;
        }
        let file = self.path.display();
        if std::mem::replace(is_written, true) {
            log::warn!("event=endpoints_put_back file={file:?} why=\"it was deleted\"");
        } else {
            log::info!("event=endpoints_written file={file:?}");
        }
    }

    /// The daemon has ended.
    pub(super) fn remove(&self) {
        drop(std::fs::remove_file(&self.path));
    }

    /// Whole or not at all: clients wait for this file to appear.
    fn write(&self, text: &str) -> io::Result<()> {
        whole_file::write(&self.path, &self.path.with_extension("json.new"), 0o666, text.as_bytes())
    }
}
