//! Files that are there whole or not at all.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Write `bytes` to the file `path` by way of `part`, a name in the same directory: whoever opens `path` finds the file before
/// or this one, also after a power cut. `mode` is that of a file that is not there yet, less the mask of the process.
///
/// # Errors
/// If the directory or the disk refuses; the file before is still there.
pub fn write(path: &Path, part: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(part)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(part, path)?;
    match path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        Some(directory) => File::open(directory)?.sync_all(),
        None => File::open(".")?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_file_is_replaced_whole_or_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (path, part) = (directory.path().join("a"), directory.path().join("a.new"));
        write(&path, &part, 0o600, b"one, and longer").unwrap();
        write(&path, &part, 0o600, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!part.exists());
        // What cannot be written leaves the file before.
        std::fs::create_dir(&part).unwrap();
        assert!(write(&path, &part, 0o600, b"three").is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
    }
}
