//! Files that are there whole or not at all: the files of a data directory ([`write()`]), and the files that commands make
//! ([`OutputFile`]).

use rustix::fs::OFlags;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Links that are followed one after the other, at most.
const LINKS: usize = 40;
/// Folders within a folder that are looked through for an input.
const DEPTH: usize = 3;

/// Write `bytes` to the file `path` of a data directory by way of `part`, a name beside it: whoever opens `path` finds the file
/// before or this one, also after a power cut. `mode` is the file's mode, less the mask of the process. A link in the place of
/// one of the two is replaced; what it leads to stays as it is.
///
/// # Errors
/// If the directory or the disk refuses; the file before is still there.
pub fn write(path: &Path, part: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    // What an interrupted attempt has left, or what somebody has put there.
    match fs::remove_file(part) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    fill_new(part, mode, bytes)?;
    fs::rename(part, path)?;
    sync_parent(path)
}

/// Whether nothing can be written there now, though it may be later: the disk is full, or may only be read.
pub fn forbids_writing(error: &io::Error) -> bool {
    use ErrorKind as Kind;
    let kinds =
        [Kind::StorageFull, Kind::QuotaExceeded, Kind::FileTooLarge, Kind::ReadOnlyFilesystem, Kind::PermissionDenied];
    kinds.contains(&error.kind())
}

/// Open nothing through a link: in a directory that others may write to it could lead anywhere.
pub fn not_through_links(options: &mut OpenOptions) -> &mut OpenOptions {
    options.custom_flags(OFlags::NOFOLLOW.bits() as i32)
}

/// The file `name` of `directory` by a path without links, for SQLite, which follows none. The directory may be reached through
/// some.
pub fn without_links(directory: &Path, name: &str) -> PathBuf {
    directory.canonicalize().unwrap_or_else(|_| directory.to_owned()).join(name)
}

/// Device and number of a file that is open.
pub fn identity(file: &File) -> Option<(u64, u64)> {
    file.metadata().ok().map(|found| number(&found))
}

/// Device and number of the file to which a path leads; none if there is none.
pub fn identity_at(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|found| number(&found))
}

fn number(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

fn fill_new(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn sync_parent(path: &Path) -> io::Result<()> {
    File::open(parent(path))?.sync_all()
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Where a command writes its result.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    target: Target,
}

#[derive(Debug, PartialEq)]
enum Target {
    /// A file, which is replaced if it is there; links have been followed.
    File(PathBuf),
    /// A device, a pipe or a socket, which stays what it is: the result goes through it.
    Through,
    /// The same, of the process's own standard output: opened again it would begin anew.
    Standard,
}

impl OutputFile {
    /// The place that `path` names. Nothing is changed yet.
    ///
    /// # Errors
    /// If it is one of `inputs` or in one of them, or nothing can be written there. Every error of an output names its path.
    pub fn to(path: &Path, inputs: &[&Path]) -> io::Result<Self> {
        let target = match fs::metadata(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => followed(path).map(Target::File),
            found => found.and_then(|found| Target::of(path, &found)),
        };
        let output = Self { path: path.to_owned(), target: target.map_err(|e| refused(path, e))? };
        output.check_place().map_err(|e| refused(path, e))?;
        output.refuse(inputs)?;
        Ok(output)
    }

    /// Refuse to be one of `inputs`.
    ///
    /// # Errors
    /// If it is.
    pub fn refuse(&self, inputs: &[&Path]) -> io::Result<()> {
        let Target::File(file) = &self.target else { return Ok(()) };
        let Some(own) = identity_at(file) else { return Ok(()) };
        match inputs.iter().find(|input| holds(input, own, DEPTH)) {
            Some(input) => {
                let why = format!("that is {}, which the command reads; name another file", input.display());
                Err(refused(&self.path, io::Error::new(ErrorKind::InvalidInput, why)))
            }
            None => Ok(()),
        }
    }

    /// Whether the two are one file.
    pub fn is(&self, other: &Self) -> bool {
        let place = |target: &Target| match target {
            Target::File(file) => Some((parent(file).canonicalize().ok()?, file.file_name()?.to_owned())),
            _ => None,
        };
        place(&self.target).is_some_and(|own| place(&other.target) == Some(own))
    }

    /// Whether the result goes to the process's standard output, where nothing else may go then.
    pub fn is_standard(&self) -> bool {
        self.target == Target::Standard
    }

    /// The file that the result becomes, links followed; none where it goes through a device or a pipe.
    pub fn file(&self) -> Option<&Path> {
        match &self.target {
            Target::File(file) => Some(file),
            _ => None,
        }
    }

    /// Write the result: all of it, or a file stays as it was.
    ///
    /// # Errors
    /// If that is refused.
    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        match &self.target {
            Target::File(_) => self.make(|part| fill_new(part, 0o666, bytes).map_err(|e| refused(&self.path, e))),
            _ => self.through(&mut { bytes }).map_err(|e| refused(&self.path, e)),
        }
    }

    /// Let `make` write the result to another file whose name has the same ending, and put that in its place.
    ///
    /// # Errors
    /// The errors of `make`, and if the file cannot be put there.
    pub fn make<T, E: From<io::Error>>(&self, make: impl FnOnce(&Path) -> Result<T, E>) -> Result<T, E> {
        let beside = match &self.target {
            Target::File(file) => parent(file).to_owned(),
            _ => std::env::temp_dir(),
        };
        let scratch = OwnDirectory::within(&beside).map_err(|e| refused(&self.path, e))?;
        let part = scratch.path().join(self.path.file_name().unwrap_or("out".as_ref()));
        let made = make(&part)?;
        let put = match &self.target {
            Target::File(file) => replace(&part, file),
            _ => File::open(&part).and_then(|mut part| self.through(&mut part)),
        };
        put.map_err(|e| refused(&self.path, e))?;
        Ok(made)
    }

    /// What stands in the way, found before the work begins.
    fn check_place(&self) -> io::Result<()> {
        let Target::File(file) = &self.target else { return Ok(()) };
        if file.file_name().is_none() || !parent(file).is_dir() {
            let why = format!("there is no directory {}", parent(file).display());
            return Err(io::Error::new(ErrorKind::NotFound, why));
        }
        match OpenOptions::new().write(true).open(file) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
            _ => OwnDirectory::within(parent(file)).map(drop),
        }
    }

    fn through(&self, bytes: &mut impl io::Read) -> io::Result<()> {
        if self.is_standard() {
            let mut out = io::stdout().lock();
            return io::copy(bytes, &mut out).and_then(|_| out.flush());
        }
        let mut out = OpenOptions::new().write(true).truncate(true).open(&self.path)?;
        io::copy(bytes, &mut out).map(drop)
    }
}

impl Target {
    /// What is there already.
    fn of(path: &Path, found: &Metadata) -> io::Result<Self> {
        if found.is_dir() {
            return Err(io::Error::new(ErrorKind::IsADirectory, "a directory; name a file in it"));
        }
        if !found.file_type().is_char_device() && is_standard(found) {
            return Ok(Self::Standard);
        }
        let file = followed(path)?;
        // A link of /proc to a file that is gone leads nowhere else.
        let replaceable = found.is_file() && identity_at(&file) == Some(number(found));
        Ok(if replaceable { Self::File(file) } else { Self::Through })
    }
}

fn refused(path: &Path, why: io::Error) -> io::Error {
    io::Error::new(why.kind(), format!("cannot write {}: {why}", path.display()))
}

fn is_standard(found: &Metadata) -> bool {
    let standard = io::stdout().as_fd().try_clone_to_owned().map(File::from);
    standard.is_ok_and(|standard| identity(&standard) == Some(number(found)))
}

/// Where the links at `path` lead, whether there is something or not.
fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        match fs::read_link(&path) {
            Ok(to) => path = parent(&path).join(to),
            Err(e) if matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::NotFound) => return Ok(path),
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::other("too many links"))
}

/// Whether the file of this device and number is `input`, or one of the files in it.
fn holds(input: &Path, own: (u64, u64), depth: usize) -> bool {
    let Ok(found) = fs::metadata(input) else { return false };
    let mut within = fs::read_dir(input).into_iter().flatten().flatten();
    number(&found) == own || (found.is_dir() && depth > 0 && within.any(|entry| holds(&entry.path(), own, depth - 1)))
}

/// Put `part` in the place of `file`, with the mode of what was there.
fn replace(part: &Path, file: &Path) -> io::Result<()> {
    if let Ok(before) = fs::metadata(file) {
        // Others may own it: only root can give it back to them.
        drop(std::os::unix::fs::chown(part, Some(before.uid()), Some(before.gid())));
        fs::set_permissions(part, before.permissions())?;
    }
    match fs::rename(part, file) {
        // One that is mounted by itself stays where it is.
        Err(e) if e.kind() == ErrorKind::ResourceBusy => fs::copy(part, file).map(drop),
        renamed => renamed.and_then(|()| sync_parent(file)),
    }
}

/// A new directory for the process's own files. It is removed, with all that is in it, when this is dropped.
#[derive(Debug)]
pub struct OwnDirectory(PathBuf);

impl OwnDirectory {
    /// One within the directory `parent`.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn within(parent: &Path) -> io::Result<Self> {
        let mut number = 0;
        loop {
            let path = parent.join(format!(".criticd-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                // Of a process that was killed, or of another thread.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => number += 1,
                made => return made.map(|()| Self(path)),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for OwnDirectory {
    fn drop(&mut self) {
        // What cannot be removed is named after us.
        drop(fs::remove_dir_all(&self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_file_is_replaced_whole_or_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (path, part) = (directory.path().join("a"), directory.path().join("a.new"));
        write(&path, &part, 0o600, b"one, and longer").unwrap();
        // What an interrupted attempt has left is no harm.
        fs::write(&part, "rest").unwrap();
        write(&path, &part, 0o600, b"two").unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"two".to_vec(), 0o600));
        assert!(!part.exists());
        // What cannot be written leaves the file before.
        fs::create_dir(&part).unwrap();
        assert!(write(&path, &part, 0o600, b"three").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"two");
    }

    #[test]
    fn what_links_in_a_data_directory_lead_to_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("others"), "theirs").unwrap();
        for (name, part) in [("path", "part.new"), ("path2", "part2.new")] {
            symlink(at("others"), at(if name == "path" { name } else { part })).unwrap();
            write(&at(name), &at(part), 0o600, b"ours").unwrap();
            assert_eq!(fs::read(at("others")).unwrap(), b"theirs");
            assert!(fs::symlink_metadata(at(name)).unwrap().is_file() && fs::read(at(name)).unwrap() == b"ours");
        }
        symlink(at("others"), at("link")).unwrap();
        let mut open = OpenOptions::new();
        assert!(not_through_links(open.write(true).truncate(true)).open(at("link")).is_err());
        assert_eq!(fs::read(at("others")).unwrap(), b"theirs");
    }

    #[test]
    fn an_output_is_no_input_by_whatever_name() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir_all(at("set/data")).unwrap();
        for name in ["table.csv", "set/data/main.hdf5", "other"] {
            fs::write(at(name), "input").unwrap();
        }
        symlink(at("table.csv"), at("link")).unwrap();
        fs::hard_link(at("table.csv"), at("twin")).unwrap();
        let (table, set) = (at("table.csv"), at("set"));
        let inputs = [table.as_path(), &set, Path::new("tcp://127.0.0.1:5751")];
        for name in ["table.csv", "set/../table.csv", "link", "twin", "set/data/main.hdf5"] {
            let refused = OutputFile::to(&at(name), &inputs).unwrap_err().to_string();
            assert!(refused.contains("which the command reads"), "{name}: {refused}");
        }
        for name in ["other", "new"] {
            OutputFile::to(&at(name), &inputs).unwrap().write(b"output").unwrap();
            assert_eq!(fs::read(at(name)).unwrap(), b"output");
        }
        assert!(inputs[..1].iter().all(|input| fs::read(input).unwrap() == b"input"));
    }

    #[test]
    fn an_output_follows_links_and_keeps_modes() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("far")).unwrap();
        symlink("far/model", at("link")).unwrap();
        for text in ["first", "second, and longer", "third"] {
            OutputFile::to(&at("link"), &[]).unwrap().write(text.as_bytes()).unwrap();
            assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
            assert_eq!(fs::read_to_string(at("far/model")).unwrap(), text);
            fs::set_permissions(at("far/model"), fs::Permissions::from_mode(0o640)).unwrap();
        }
        let output = OutputFile::to(&at("link"), &[]).unwrap();
        output.make(|part| fs::write(part, "made")).unwrap();
        assert_eq!((fs::read_to_string(at("link")).unwrap(), mode(&at("far/model"))), ("made".into(), 0o640));
        let failed = output.make(|part| fs::write(part, "half").and(Err::<(), _>(io::Error::other("no"))));
        assert_eq!((failed.is_err(), fs::read_to_string(at("link")).unwrap()), (true, "made".into()));
        let (here, far) = (fs::read_dir(directory.path()).unwrap().count(), fs::read_dir(at("far")).unwrap().count());
        assert_eq!((here, far), (2, 1), "nothing is left behind");
        for (name, why) in [("far", "a directory"), ("absent/model", "there is no directory")] {
            let refused = OutputFile::to(&at(name), &[]).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
        symlink("round", at("round")).unwrap();
        assert!(OutputFile::to(&at("round"), &[]).is_err());
    }

    #[test]
    fn an_output_goes_through_what_is_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe.csv");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        for through in [false, true] {
            let (path, output) = (pipe.clone(), OutputFile::to(&pipe, &[&pipe]).unwrap());
            let reader = std::thread::spawn(move || fs::read(path).unwrap());
            if through {
                output.make(|part| fs::write(part, "rows")).unwrap();
            } else {
                output.write(b"rows").unwrap();
            }
            assert_eq!(reader.join().unwrap(), b"rows");
            assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
        }
        OutputFile::to(Path::new("/dev/null"), &[]).unwrap().write(b"all").unwrap();
        assert!(OutputFile::to(Path::new("/dev/full"), &[]).unwrap().write(b"all").is_err());
        for device in ["/dev/null", "/dev/full"] {
            assert!(fs::metadata(device).unwrap().file_type().is_char_device());
        }
    }

    #[test]
    fn a_directory_of_our_own_is_new_and_goes() {
        let parent = tempfile::tempdir().unwrap();
        let scratches = [(); 2].map(|()| OwnDirectory::within(parent.path()).unwrap());
        assert!(scratches[0].path() != scratches[1].path() && mode(scratches[0].path()) == 0o700);
        fs::write(scratches[0].path().join("file"), "text").unwrap();
        drop(scratches);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
