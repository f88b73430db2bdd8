//! Replacing the files of a data directory. What was there is moved into a directory beside it and never deleted, and what is
//! new takes its place. An interruption at any moment is no harm: the file [`PLAN`] says what is under way, no daemon starts
//! while it is there, and [`finish`] completes it.

use crate::whole_file;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// File name of the plan.
pub const PLAN: &str = "pending.json";
/// Directory of the files that a restore, or a repair, makes before it has a plan.
pub const RESTORED: &str = "restored.new";
/// The same of a repair.
pub const REPAIRED: &str = "repaired.new";

/// What is to be moved. Names are of entries of the data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moves {
    /// Directory for what was there.
    pub aside: String,
    /// What is moved there.
    pub set_aside: Vec<String>,
    /// Directory whose files take their place, if there are such.
    pub fresh: Option<String>,
    /// Whether everything has been set aside.
    #[serde(default)]
    pub installing: bool,
}

/// The plan that was interrupted in `directory`, if there is one.
///
/// # Errors
/// If it cannot be read.
pub fn pending(directory: &Path) -> io::Result<Option<Moves>> {
    match fs::read(directory.join(PLAN)) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// What was interrupted in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    /// A plan, which [`finish`] completes.
    Plan,
    /// A restore before it had a plan: only a part of a copy is there.
    Restore,
    /// The same of a repair; the old files are as they were.
    Repair,
}

/// What was interrupted in `directory`, if anything was.
///
/// # Errors
/// If that cannot be found out.
pub fn interrupted(directory: &Path) -> io::Result<Option<Interrupted>> {
    if pending(directory)?.is_some() {
        return Ok(Some(Interrupted::Plan));
    }
    let staged = [(RESTORED, Interrupted::Restore), (REPAIRED, Interrupted::Repair)];
    Ok(staged.into_iter().find_map(|(name, what)| directory.join(name).exists().then_some(what)))
}

/// Delete what a restore or a repair has left that was interrupted before it had a plan. Returns what it was.
///
/// # Errors
/// If that cannot be deleted.
pub fn discard(directory: &Path) -> io::Result<Option<Interrupted>> {
    let found = interrupted(directory)?;
    match found {
        Some(Interrupted::Restore) => fs::remove_dir_all(directory.join(RESTORED))?,
        Some(Interrupted::Repair) => fs::remove_dir_all(directory.join(REPAIRED))?,
        _ => return Ok(None),
    }
    sync(directory)?;
    Ok(found)
}

/// Carry a plan out. Returns the directory in which the old files are.
///
/// # Errors
/// If files cannot be moved; [`finish`] goes on with it.
pub fn carry_out(directory: &Path, plan: &Moves) -> io::Result<PathBuf> {
    note(directory, plan)?;
    finish(directory)?;
    Ok(directory.join(&plan.aside))
}

/// Complete the plan that was interrupted in `directory`, if there is one.
///
/// # Errors
/// If files cannot be moved.
pub fn finish(directory: &Path) -> io::Result<Option<Moves>> {
    let Some(mut plan) = pending(directory)? else { return Ok(None) };
    if !plan.installing {
        let aside = directory.join(&plan.aside);
        if !plan.set_aside.is_empty() {
            DirBuilder::new().recursive(true).mode(0o700).create(&aside)?;
            plan.set_aside.iter().try_for_each(|name| move_if_there(&directory.join(name), &aside.join(name)))?;
            sync(&aside)?;
        }
        plan.installing = true;
        sync(directory)?;
        note(directory, &plan)?;
    }
    if let Some(fresh) = plan.fresh.as_ref().map(|fresh| directory.join(fresh)).filter(|fresh| fresh.exists()) {
        for entry in fs::read_dir(&fresh)? {
            let name = entry?.file_name();
            move_if_there(&fresh.join(&name), &directory.join(&name))?;
        }
        fs::remove_dir(&fresh)?;
    }
    sync(directory)?;
    fs::remove_file(directory.join(PLAN))?;
    sync(directory)?;
    Ok(Some(plan))
}

/// An empty directory for new files in `directory`, called `name`; what an interrupted attempt has left there is removed.
///
/// # Errors
/// If it cannot be made.
pub fn stage(directory: &Path, name: &str) -> io::Result<PathBuf> {
    let fresh = directory.join(name);
    match fs::remove_dir_all(&fresh) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    DirBuilder::new().mode(0o700).create(&fresh)?;
    Ok(fresh)
}

/// Write a directory's entries to the disk.
///
/// # Errors
/// If the disk refuses.
pub fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn note(directory: &Path, plan: &Moves) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(plan)?;
    whole_file::write(&directory.join(PLAN), &directory.join("pending.new"), 0o600, &text)
}

fn move_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with two old files, one of which is to be replaced, and a plan for that.
    fn prepared() -> (tempfile::TempDir, Moves) {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("a"), "old").unwrap();
        fs::write(at("b"), "stays").unwrap();
        let fresh = stage(directory.path(), "fresh.new").unwrap();
        fs::write(fresh.join("a"), "new").unwrap();
        let plan = Moves {
            aside: "damaged-1".into(),
            set_aside: vec!["a".into(), "absent".into()],
            fresh: Some("fresh.new".into()),
            installing: false,
        };
        (directory, plan)
    }

    fn check(directory: &Path) {
        let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
        assert_eq!((read("a"), read("b"), read("damaged-1/a")), ("new".into(), "stays".into(), "old".into()));
        assert!(!directory.join("fresh.new").exists() && pending(directory).unwrap().is_none());
    }

    #[test]
    fn an_interrupted_plan_is_finished_from_wherever_it_stopped() {
        let (directory, plan) = prepared();
        assert_eq!(carry_out(directory.path(), &plan).unwrap(), directory.path().join("damaged-1"));
        check(directory.path());
        // After each of its moves.
        for moves in 0..4 {
            let (directory, mut plan) = prepared();
            let at = |name: &str| directory.path().join(name);
            note(directory.path(), &plan).unwrap();
            if moves > 0 {
                fs::create_dir(at("damaged-1")).unwrap();
                fs::rename(at("a"), at("damaged-1/a")).unwrap();
            }
            if moves > 1 {
                plan.installing = true;
                note(directory.path(), &plan).unwrap();
            }
            if moves > 2 {
                fs::rename(at("fresh.new/a"), at("a")).unwrap();
            }
            assert!(finish(directory.path()).unwrap().is_some(), "{moves}");
            check(directory.path());
            assert_eq!(finish(directory.path()).unwrap(), None, "{moves}");
        }
    }
}
