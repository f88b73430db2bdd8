//! Reading MessagePack value by value, within the bytes that are there.

use super::{ErrorCode, WireError};
use rmp::Marker;

/// Deepest nesting of a value, known or skipped.
const DEPTH_MAX: usize = 16;

/// The beginning of a value: all of it, except for arrays and maps, whose contents follow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Head<'a> {
    /// Nothing.
    Nil,
    /// A boolean.
    Bool(bool),
    /// An integer from 0 on, of any width.
    Uint(u64),
    /// A negative integer, of any width.
    Int(i64),
    /// A number of either precision.
    Float(f64),
    /// Text, not checked to be UTF-8.
    Str(&'a [u8]),
    /// Bytes.
    Bin(&'a [u8]),
    /// An extension type, which is passed over.
    Ext,
    /// This number of values follows; there are no fewer bytes.
    Array(usize),
    /// This number of pairs follows; there are at least two bytes for each.
    Map(usize),
}

impl Head<'_> {
    /// For messages: the type found.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Nil => "nil",
            Self::Bool(_) => "a boolean",
            Self::Uint(_) | Self::Int(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Str(_) => "a string",
            Self::Bin(_) => "binary data",
            Self::Ext => "an extension type",
            Self::Array(_) => "an array",
            Self::Map(_) => "a map",
        }
    }
}

/// A cursor over encoded values.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A cursor at the beginning of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes not yet read.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let (head, rest) =
            self.rest.split_at_checked(len).ok_or_else(|| WireError::malformed("it ends in the middle of a value"))?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        Ok(self.take(N)?.try_into().expect("as long as asked"))
    }

    /// A length of `N` bytes.
    fn length<const N: usize>(&mut self) -> Result<usize, WireError> {
        let big_endian = self.array::<N>()?.iter().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte));
        Ok(usize::try_from(big_endian).unwrap_or(usize::MAX))
    }

    /// `len` values of at least `each` bytes must still fit.
    fn container(&self, len: usize, each: usize) -> Result<usize, WireError> {
        if len.checked_mul(each).is_none_or(|bytes| bytes > self.rest.len()) {
            return Err(WireError::malformed("an array or map claims more elements than there are bytes"));
        }
        Ok(len)
    }

    /// The next value's beginning.
    ///
    /// # Errors
    /// Where the bytes end within it, or a length says more than there are.
    pub fn head(&mut self) -> Result<Head<'a>, WireError> {
        let signed = |v: i64| if v < 0 { Head::Int(v) } else { Head::Uint(v as u64) };
        let [byte] = self.array::<1>()?;
        let ext = |reader: &mut Self, len: usize| reader.take(len.saturating_add(1)).map(|_| Head::Ext);
        Ok(match Marker::from_u8(byte) {
            Marker::Null => Head::Nil,
            Marker::True => Head::Bool(true),
            Marker::False => Head::Bool(false),
            Marker::FixPos(v) => Head::Uint(u64::from(v)),
            Marker::U8 => Head::Uint(u64::from(u8::from_be_bytes(self.array()?))),
            Marker::U16 => Head::Uint(u64::from(u16::from_be_bytes(self.array()?))),
            Marker::U32 => Head::Uint(u64::from(u32::from_be_bytes(self.array()?))),
            Marker::U64 => Head::Uint(u64::from_be_bytes(self.array()?)),
            Marker::FixNeg(v) => Head::Int(i64::from(v)),
            Marker::I8 => signed(i64::from(i8::from_be_bytes(self.array()?))),
            Marker::I16 => signed(i64::from(i16::from_be_bytes(self.array()?))),
            Marker::I32 => signed(i64::from(i32::from_be_bytes(self.array()?))),
            Marker::I64 => signed(i64::from_be_bytes(self.array()?)),
            Marker::F32 => Head::Float(f64::from(f32::from_be_bytes(self.array()?))),
            Marker::F64 => Head::Float(f64::from_be_bytes(self.array()?)),
            Marker::FixStr(len) => Head::Str(self.take(usize::from(len))?),
            Marker::Str8 => Head::Str(self.length::<1>().and_then(|len| self.take(len))?),
            Marker::Str16 => Head::Str(self.length::<2>().and_then(|len| self.take(len))?),
            Marker::Str32 => Head::Str(self.length::<4>().and_then(|len| self.take(len))?),
            Marker::Bin8 => Head::Bin(self.length::<1>().and_then(|len| self.take(len))?),
            Marker::Bin16 => Head::Bin(self.length::<2>().and_then(|len| self.take(len))?),
            Marker::Bin32 => Head::Bin(self.length::<4>().and_then(|len| self.take(len))?),
            Marker::FixArray(len) => Head::Array(self.container(usize::from(len), 1)?),
            Marker::Array16 => Head::Array(self.length::<2>().and_then(|len| self.container(len, 1))?),
            Marker::Array32 => Head::Array(self.length::<4>().and_then(|len| self.container(len, 1))?),
            Marker::FixMap(len) => Head::Map(self.container(usize::from(len), 2)?),
            Marker::Map16 => Head::Map(self.length::<2>().and_then(|len| self.container(len, 2))?),
            Marker::Map32 => Head::Map(self.length::<4>().and_then(|len| self.container(len, 2))?),
            Marker::FixExt1 => ext(self, 1)?,
            Marker::FixExt2 => ext(self, 2)?,
            Marker::FixExt4 => ext(self, 4)?,
            Marker::FixExt8 => ext(self, 8)?,
            Marker::FixExt16 => ext(self, 16)?,
            Marker::Ext8 => self.length::<1>().and_then(|len| ext(self, len))?,
            Marker::Ext16 => self.length::<2>().and_then(|len| ext(self, len))?,
            Marker::Ext32 => self.length::<4>().and_then(|len| ext(self, len))?,
            Marker::Reserved => return Err(WireError::malformed("0xc1 starts no value")),
        })
    }

    /// The bytes of the next value, whatever it is; nothing is allocated.
    pub(super) fn value(&mut self) -> Result<&'a [u8], WireError> {
        let before = self.rest;
        self.skip(DEPTH_MAX)?;
        Ok(&before[..before.len() - self.rest.len()])
    }

    /// Past the next value; false where there is none whole.
    pub(super) fn pass(&mut self) -> bool {
        self.skip(DEPTH_MAX).is_ok()
    }

    fn skip(&mut self, depth: usize) -> Result<(), WireError> {
        let values = match self.head()? {
            Head::Array(len) => len,
            Head::Map(len) => 2 * len,
            _ => 0,
        };
        if values > 0 && depth == 0 {
            return Err(WireError::malformed(format!("values are nested deeper than {DEPTH_MAX}")));
        }
        let mut left = values;
        while left > 0 {
            // Values of one byte are the most that fit into a message: a run of them is passed over at once.
            let run = self.rest.iter().take(left).take_while(|&&byte| is_whole(byte)).count();
            self.rest = &self.rest[run..];
            left -= run;
            if left > 0 {
                self.skip(depth - 1)?;
                left -= 1;
            }
        }
        Ok(())
    }

    /// Take the small integers that come next, at most `most` of them, as the bytes that they are.
    pub(super) fn small_integers(&mut self, most: usize) -> &'a [u8] {
        let run = self.rest.iter().take(most).take_while(|&byte| !(0x80..0xe0).contains(byte)).count();
        let (run, rest) = self.rest.split_at(run);
        self.rest = rest;
        run
    }
}

/// Whether a byte is a value by itself: a small integer, nil, or a boolean.
fn is_whole(byte: u8) -> bool {
    matches!(byte, 0x00..=0x7f | 0xc0 | 0xc2 | 0xc3 | 0xe0..=0xff)
}

/// The value of one known key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a> {
    /// Name on the wire.
    pub(super) name: &'static str,
    bytes: &'a [u8],
}

impl<'a> Field<'a> {
    /// `bytes` are one whole value.
    pub(super) fn new(name: &'static str, bytes: &'a [u8]) -> Self {
        Self { name, bytes }
    }

    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn reader(&self) -> Reader<'a> {
        Reader::new(self.bytes)
    }

    pub(super) fn head(&self) -> Result<Head<'a>, WireError> {
        self.reader().head()
    }

    pub(super) fn wrong_type(&self, wanted: &str, found: &Head<'_>) -> WireError {
        WireError::of(ErrorCode::WrongType, self.name, format!("must be {wanted}, is {}", found.kind()))
    }

    pub(super) fn string(&self) -> Result<&'a str, WireError> {
        match self.head()? {
            Head::Str(bytes) => std::str::from_utf8(bytes)
                .map_err(|_| WireError::of(ErrorCode::WrongType, self.name, "must be UTF-8, is not")),
            other => Err(self.wrong_type("a string", &other)),
        }
    }
}

/// Where the values of known keys lie in a map. `names` are those on the wire, behind a common `prefix` that errors
/// show (`kernel.`) and the map does not have.
pub(super) struct Fields<'a, const N: usize> {
    names: &'static [&'static str; N],
    prefix: &'static str,
    values: [Option<&'a [u8]>; N],
}

impl<'a, const N: usize> Fields<'a, N> {
    pub(super) fn new(names: &'static [&'static str; N], prefix: &'static str) -> Self {
        Self { names, prefix, values: [None; N] }
    }

    /// Read a whole message: one map and nothing behind it. What was found before a fault stays readable.
    pub(super) fn read_message(&mut self, bytes: &'a [u8]) -> Result<(), WireError> {
        let mut reader = Reader::new(bytes);
        match reader.head()? {
            Head::Map(pairs) => self.read_pairs(&mut reader, pairs, false)?,
            other => return Err(WireError::malformed(format!("a message is a map, this is {}", other.kind()))),
        }
        match reader.rest().len() {
            0 => Ok(()),
            n => Err(WireError::malformed(format!("{n} bytes follow the message"))),
        }
    }

    /// Read the pairs of a map; `binary_keys` says whether keys may be binary data.
    pub(super) fn read_pairs(
        &mut self,
        reader: &mut Reader<'a>,
        pairs: usize,
        binary_keys: bool,
    ) -> Result<(), WireError> {
        // A program writes the keys of its messages in one order: mostly the next key comes next.
        let mut expected = 0;
        for _ in 0..pairs {
            let key = match reader.head()? {
                Head::Str(key) => key,
                Head::Bin(key) if binary_keys => key,
                other => return Err(WireError::malformed(format!("keys are strings, one is {}", other.kind()))),
            };
            let Ok(key) = std::str::from_utf8(key) else {
                return Err(WireError::malformed("a key is not UTF-8"));
            };
            let value = reader.value()?;
            let is_key = |&i: &usize| &self.names[i][self.prefix.len()..] == key;
            let Some(i) = (expected..N).chain(0..expected).find(is_key) else { continue };
            expected = i + 1;
            if self.values[i].replace(value).is_some() {
                return Err(WireError::of(ErrorCode::Malformed, self.names[i], "the key occurs twice"));
            }
        }
        Ok(())
    }

    /// The value of the key with this place among the names.
    pub(super) fn at(&self, i: usize) -> Option<Field<'a>> {
        self.values[i].map(|bytes| Field::new(self.names[i], bytes))
    }

    /// # Panics
    /// If `name` is not one of those given to `new`.
    pub(super) fn get(&self, name: &str) -> Option<Field<'a>> {
        self.at(self.names.iter().position(|known| *known == name).expect("a key that was asked for"))
    }

    /// # Panics
    /// As `get`.
    pub(super) fn require(&self, name: &'static str) -> Result<Field<'a>, WireError> {
        self.get(name).ok_or_else(|| WireError::missing(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_checked_against_what_is_there() {
        for bytes in [
            &[0xdd, 0xff, 0xff, 0xff, 0xff][..], // array of 2^32 - 1
            &[0xdf, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0],
            &[0xdb, 0xff, 0xff, 0xff, 0xff, b'x'],
            &[0xc6, 0, 0, 1, 0, b'x'],
            &[0xc9, 0xff, 0xff, 0xff, 0xff, 0],
            &[0x82, 0xa1, b'a', 0xa1],
            &[0xc1],
            &[],
        ] {
            assert_eq!(Reader::new(bytes).value().unwrap_err().code, ErrorCode::Malformed, "{bytes:x?}");
        }
    }

    #[test]
    fn nesting_is_limited() {
        let nested = |depth: usize| [vec![0x91; depth], vec![0xc0]].concat();
        assert!(Reader::new(&nested(DEPTH_MAX)).value().is_ok());
        assert!(Reader::new(&nested(DEPTH_MAX + 1)).value().is_err());
        assert!(Reader::new(&nested(1 << 20)).value().is_err());
    }

    #[test]
    fn runs_of_small_values_end_where_the_array_does() {
        let array = [&[0xdc, 0, 6][..], &[1, 0xff, 0xc0, 0xcd, 1, 2, 0xc3, 7]].concat();
        let bytes = [&array[..], &[8, 9]].concat();
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.value().unwrap(), &array[..]);
        assert_eq!(reader.small_integers(1), [8]);
        assert_eq!(reader.small_integers(5), [9]);
        let mut reader = Reader::new(&array[..5]);
        assert!(!reader.pass(), "an array that ends too early");
        assert_eq!(Reader::new(&[0xe0, 0x7f, 0xc0]).small_integers(3), [0xe0, 0x7f]);
    }

    #[test]
    fn a_value_ends_where_the_next_begins() {
        // {"a": [1, -1, nil], "b": ext} and then 7
        let bytes = [0x82, 0xa1, b'a', 0x93, 1, 0xff, 0xc0, 0xa1, b'b', 0xd4, 9, 9, 7];
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.value().unwrap(), &bytes[..12]);
        assert_eq!(reader.head().unwrap(), Head::Uint(7));
    }
}
