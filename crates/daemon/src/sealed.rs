//! Files with a header that shows damage: which kind of file it is, the version of its format, length and checksum.
//!
//! ```text
//! file     kind, version u32, length of the body u64, CRC-32 of version and body u32, body        (numbers little endian)
//! ```

const NUMBERS: usize = 4 + 8 + 4;

/// A kind of file.
#[derive(Clone, Copy, Debug)]
pub struct Seal {
    /// First bytes of such a file.
    pub kind: &'static [u8],
    /// Version of the format that is written. Older ones are opened, newer ones refused.
    pub version: u32,
}

/// Why a file cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// It is not whole, or its checksum is wrong.
    #[error("{0}")]
    Damaged(&'static str),
    /// A newer version of the program wrote it.
    #[error("it has format version {version}, and this program knows versions up to {known}")]
    Newer {
        /// Version of its format.
        version: u32,
        /// The newest that can be read.
        known: u32,
    },
}

impl Seal {
    /// The bytes of a file whose body `write` appends.
    pub fn close(&self, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let header = self.kind.len() + NUMBERS;
        let mut out = vec![0; header];
        write(&mut out);
        let length = (out.len() - header) as u64;
        let crc = checksum(self.version, &out[header..]);
        out[..self.kind.len()].copy_from_slice(self.kind);
        let mut at = self.kind.len();
        for field in [&self.version.to_le_bytes()[..], &length.to_le_bytes(), &crc.to_le_bytes()] {
            out[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        }
        out
    }

    /// The body of a file.
    ///
    /// # Errors
    /// If the file is of another kind, damaged, or of a newer version.
    pub fn open<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], SealError> {
        let header = bytes.split_at_checked(self.kind.len() + NUMBERS);
        let Some((header, body)) = header.filter(|(header, _)| header.starts_with(self.kind)) else {
            return Err(SealError::Damaged("it has no header"));
        };
        let numbers = &header[self.kind.len()..];
        let word = |at: usize| u32::from_le_bytes(numbers[at..at + 4].try_into().expect("four bytes"));
        let version = word(0);
        if u64::from_le_bytes(numbers[4..12].try_into().expect("eight bytes")) != body.len() as u64 {
            return Err(SealError::Damaged("its length differs from its header"));
        }
        if checksum(version, body) != word(12) {
            return Err(SealError::Damaged("its checksum is wrong"));
        }
        if version > self.version {
            return Err(SealError::Newer { version, known: self.version });
        }
        Ok(body)
    }
}

fn checksum(version: u32, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&version.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_a_cut_and_another_kind_are_noticed_and_newer_files_told_from_damage() {
        let seal = Seal { kind: b"kind\n", version: 2 };
        let bytes = seal.close(|out| out.extend(b"body"));
        assert_eq!(seal.open(&bytes), Ok(&b"body"[..]));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 4;
            assert!(matches!(seal.open(&changed), Err(SealError::Damaged(_))), "byte {at}");
            assert!(matches!(seal.open(&bytes[..at]), Err(SealError::Damaged(_))), "cut at {at}");
        }
        assert!(seal.open(&[&bytes[..], b"x"].concat()).is_err());
        let older = Seal { version: 1, ..seal };
        assert_eq!(older.open(&bytes), Err(SealError::Newer { version: 2, known: 1 }));
        assert_eq!(seal.open(&older.close(|_| {})), Ok(&[][..]));
        assert!(Seal { kind: b"other", ..seal }.open(&bytes).is_err());
    }
}
