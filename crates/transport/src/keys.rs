//! Keys of CURVE in files: made, read, listed. The format is that of ZeroMQ's certificates, which pyzmq reads and writes.
//!
//! A pair is two files: `NAME.key_secret` with both keys, readable by its owner only (0600), and `NAME.key` with the public
//! one. Nothing here ever says what is in the first.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Length of a key in bytes.
const KEY_BYTES: usize = 32;

/// Longest file that is read, in bytes: a certificate may carry metadata.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Digits of Z85, ZeroMQ's way to write bytes as text: four bytes in five digits (RFC 32).
const DIGITS: &[u8; 85] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

/// A key in Z85 as bytes; none if the text is not 40 digits whose groups of five are below 2^32.
pub fn decode(text: &str) -> Option<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    if text.len() != KEY_BYTES / 4 * 5 {
        return None;
    }
    for (digits, bytes) in text.as_bytes().chunks(5).zip(key.chunks_mut(4)) {
        let digit = |c: &u8| DIGITS.iter().position(|d| d == c).map(|value| value as u64);
        let value = digits.iter().try_fold(0, |value, c| Some(85 * value + digit(c)?))?;
        bytes.copy_from_slice(&u32::try_from(value).ok()?.to_be_bytes());
    }
    Some(key)
}

/// A secret key. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey([u8; KEY_BYTES]);

impl SecretKey {
    /// For the library that encrypts.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

/// Two keys that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPair {
    /// In Z85, for the other side.
    pub public: String,
    /// Kept by its owner.
    pub secret: SecretKey,
}

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file cannot be read or written.
    #[error("cannot use the key file {path}: {source}")]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others may read the file.
    #[error("{path} holds a secret key and others may read it ({mode:04o}): chmod 600 {path}")]
    Open {
        /// Which one.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// There is no such key in the file.
    #[error("{path} holds no line {key} = \"(40 characters)\": is it a key file?")]
    Missing {
        /// Which one.
        path: PathBuf,
        /// What was looked for.
        key: &'static str,
    },
    /// There is such a file already.
    #[error("{path} exists already, and is left as it is")]
    Exists {
        /// Which one.
        path: PathBuf,
    },
    /// This program was built without what makes keys, or that failed.
    #[error("{0}")]
    Maker(String),
}

/// The files of the pair `name` in `directory`: that of the secret key, that of the public one.
pub fn files(directory: &Path, name: &str) -> (PathBuf, PathBuf) {
    (directory.join(format!("{name}.key_secret")), directory.join(format!("{name}.key")))
}

/// The text of the file at `path`; one that is for its owner alone if it is `private`.
fn read(path: &Path, private: bool) -> Result<String, KeyError> {
    let failed = |source| KeyError::File { path: path.to_owned(), source };
    let metadata = fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "that is no key file")));
    }
    let mode = metadata.permissions().mode() & 0o777;
    if private && mode & 0o077 != 0 {
        return Err(KeyError::Open { path: path.to_owned(), mode });
    }
    fs::read_to_string(path).map_err(failed)
}

/// The value of a key's line.
fn find(text: &str, path: &Path, key: &'static str) -> Result<String, KeyError> {
    let value = text.lines().find_map(|line| {
        let value = line.trim().strip_prefix(key)?.trim_start().strip_prefix('=')?.trim();
        let value = value.strip_prefix('"')?.strip_suffix('"')?;
        decode(value).map(|_| value.to_owned())
    });
    value.ok_or_else(|| KeyError::Missing { path: path.to_owned(), key })
}

impl KeyPair {
    /// Read both keys from the file of the secret one.
    ///
    /// # Errors
    /// If the file cannot be read, others may read it, or it holds no keys. What it holds is never told.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let text = read(path, true)?;
        let secret = find(&text, path, "secret-key")?;
        let secret = SecretKey(decode(&secret).expect("it was found by its form"));
        Ok(Self { public: find(&text, path, "public-key")?, secret })
    }
}

/// The public key in either file of a pair.
///
/// # Errors
/// If the file cannot be read or holds none.
pub fn public_key(path: &Path) -> Result<String, KeyError> {
    find(&read(path, false)?, path, "public-key")
}

/// Make a pair and write its files, which must not exist; gives the public key.
///
/// # Errors
/// If one of them exists or cannot be written, or keys cannot be made here; nothing stays behind.
#[cfg(feature = "curve")]
pub fn make(directory: &Path, name: &str) -> Result<String, KeyError> {
    let failed = |e: &dyn fmt::Display| KeyError::Maker(format!("no keys could be made: {e}"));
    let pair = zmq::CurveKeyPair::new().map_err(|e| failed(&e))?;
    let text = |key: &[u8]| zmq::z85_encode(key).map_err(|e| failed(&e));
    let (public, secret) = (text(&pair.public_key)?, text(&pair.secret_key)?);
    let (secret_file, public_file) = files(directory, name);
    // The private file first: if the other is there already, this one goes again.
    let head = format!("# {name}: a key of CURVE, made by criticd keys make.\n");
    let keys = format!("{head}metadata\ncurve\n    public-key = \"{public}\"\n    secret-key = \"{secret}\"\n");
    write_new(&secret_file, 0o600, &keys)?;
    let keys = format!("{head}metadata\ncurve\n    public-key = \"{public}\"\n");
    if let Err(error) = write_new(&public_file, 0o644, &keys) {
        let _ = fs::remove_file(&secret_file);
        return Err(error);
    }
    Ok(public)
}

/// Make a pair: not in this build.
///
/// # Errors
/// Always.
#[cfg(not(feature = "curve"))]
pub fn make(_: &Path, _: &str) -> Result<String, KeyError> {
    Err(KeyError::Maker("this criticd was built without CURVE: build it with --features curve".to_owned()))
}

#[cfg_attr(not(feature = "curve"), allow(dead_code))]
fn write_new(path: &Path, mode: u32, text: &str) -> Result<(), KeyError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => KeyError::Exists { path: path.to_owned() },
        _ => KeyError::File { path: path.to_owned(), source },
    };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(|source| {
        let _ = fs::remove_file(path);
        failed(source)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pair that everybody knows from the documentation of ZeroMQ.
    const PUBLIC: &str = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID";
    const SECRET: &str = "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs";

    #[test]
    fn keys_have_forty_digits() {
        let key = decode(PUBLIC).unwrap();
        assert_eq!((key[0], key[1], key[31]), (0xbb, 0x88, 0x18), "as RFC 32's reference decodes it");
        for bad in ["", &PUBLIC[1..], &format!("{}~", &PUBLIC[1..]), &"#".repeat(40), &format!("{PUBLIC}{PUBLIC}")] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_secret_is_read_from_a_private_file_and_never_told() {
        let directory = tempfile::tempdir().unwrap();
        let (path, _) = files(directory.path(), "arm");
        let text = format!("# c\nmetadata\ncurve\n    public-key = \"{PUBLIC}\"\n    secret-key = \"{SECRET}\"\n");
        write_new(&path, 0o600, &text).unwrap();
        let pair = KeyPair::load(&path).unwrap();
        assert_eq!((pair.public.as_str(), pair.secret.bytes()), (PUBLIC, &decode(SECRET).unwrap()[..]));
        assert_eq!(format!("{pair:?}"), format!("KeyPair {{ public: {PUBLIC:?}, secret: SecretKey(..) }}"));
        assert!(matches!(write_new(&path, 0o600, "x"), Err(KeyError::Exists { .. })));

        let refused = |expected: &str| {
            let message = KeyPair::load(&path).unwrap_err().to_string();
            assert!(message.contains(expected) && !message.contains(&SECRET[..10]), "{message}");
        };
        for mode in [0o640, 0o604, 0o660] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            refused("chmod 600");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, format!("secret-key = \"{}\"", &SECRET[1..])).unwrap();
        refused("holds no line secret-key");
        fs::write(&path, SECRET).unwrap();
        refused("holds no line secret-key");
        fs::remove_file(&path).unwrap();
        refused("cannot use the key file");
    }

    #[test]
    #[cfg(feature = "curve")]
    fn a_pair_is_made_once() {
        let directory = tempfile::tempdir().unwrap();
        let public = make(directory.path(), "arm").unwrap();
        let (secret_file, public_file) = files(directory.path(), "arm");
        assert_eq!(KeyPair::load(&secret_file).unwrap().public, public);
        assert_eq!((public_key(&public_file).unwrap(), public_key(&secret_file).unwrap()), (public.clone(), public));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&secret_file), mode(&public_file) & 0o700), (0o600, 0o600));
        let before = fs::read(&secret_file).unwrap();
        assert!(matches!(make(directory.path(), "arm"), Err(KeyError::Exists { .. })));
        fs::remove_file(&secret_file).unwrap();
        assert!(matches!(make(directory.path(), "arm"), Err(KeyError::Exists { path }) if path == public_file));
        assert!(!secret_file.exists(), "nothing stays behind");
        fs::remove_file(&public_file).unwrap();
        make(directory.path(), "arm").unwrap();
        assert_ne!(fs::read(&secret_file).unwrap(), before, "another pair");
    }
}
