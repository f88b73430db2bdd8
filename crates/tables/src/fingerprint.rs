//! Which table a file holds, told by its bytes.

use super::{AssumeTerminated, Columns, Done, Fault, Reading, TableError, lerobot, locate};
use siphasher::sip128::{Hasher128 as _, SipHasher13};
use std::fs::File;
use std::hash::{Hash as _, Hasher as _};
use std::io::Read as _;
use std::path::Path;

/// A fingerprint of all bytes of a table and of what is made of it: 32 hexadecimal digits. Equal ones are of equal tables.
///
/// # Errors
/// If the file cannot be read.
pub fn fingerprint(path: &Path, reading: Reading) -> Result<String, TableError> {
    fingerprint_as(path, reading, &Columns::default(), &mut || true)
}

/// As [`fingerprint`], of columns with other names; `keep_going` is asked now and then.
///
/// # Errors
/// If the file cannot be read, or `keep_going` says no.
pub fn fingerprint_as(
    path: &Path,
    reading: Reading,
    columns: &Columns,
    keep_going: &mut dyn FnMut() -> bool,
) -> Result<String, TableError> {
    let path = locate(path);
    let mut hasher = SipHasher13::new();
    let mut hash = |hasher: &mut SipHasher13| {
        let mut block = vec![0; 1 << 20];
        // What a dataset says of its columns decides which numbers are read.
        let described = lerobot::is_dataset(&path).then(|| path.join(lerobot::INFO));
        for file in described.into_iter().chain(lerobot::files(&path)?) {
            let mut file = File::open(file).map_err(Fault::Io)?;
            loop {
                match file.read(&mut block).map_err(Fault::Io)? {
                    _ if !keep_going() => return Err(Fault::Stopped),
                    0 => break,
                    length => hasher.write(&block[..length]),
                }
            }
        }
        Ok(())
    };
    hash(&mut hasher).map_err(|fault| TableError { path: path.clone(), fault })?;
    // What a table says is not the same under another reading.
    let assumed = match reading.assume_terminated {
        None => 0,
        Some(AssumeTerminated::Never) => 1,
        Some(AssumeTerminated::Last) => 2,
    };
    let done = match reading.done {
        None => 0,
        Some(Done::Terminated) => 1,
        Some(Done::Truncated) => 2,
    };
    hasher.write(&[assumed, done]);
    // Nothing, where it is as it always was.
    if reading.keep_all {
        hasher.write(&[1]);
    }
    if !columns.is_empty() {
        columns.hash(&mut hasher);
    }
    Ok(format!("{:032x}", hasher.finish128().as_u128()))
}
