//! MessagePack of our own types, out of files and of records of the journal.
//!
//! `rmp_serde` writes them, structures as maps. Its reader asks a type for whatever the bytes may be, so that all of it is compiled once
//! more for each of several hundred types: a tenth of the program's library. This one asks for what the type has said that it is; single values
//! are read as in messages ([`wire::reader`]).

use crate::wire::{self, reader::Head};
use serde::de::value::BorrowedStrDeserializer;
use serde::de::{self, Deserialize, DeserializeSeed, Error as _, Expected, Unexpected, Visitor};
use std::str;

/// Why bytes are no value of a type.
pub type Error = de::value::Error;

/// How deep values may lie within each other.
const DEPTH_MAX: usize = 512;

/// The value of which `bytes` are.
///
/// # Errors
/// What is wrong with them.
pub fn read<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, Error> {
    T::deserialize(&mut Reader { bytes: wire::reader::Reader::new(bytes), depth: 0 })
}

struct Reader<'de> {
    bytes: wire::reader::Reader<'de>,
    depth: usize,
}

#[cold]
fn refused(found: Head<'_>, expected: &dyn Expected) -> Error {
    let found = match found {
        Head::Nil => Unexpected::Unit,
        Head::Bool(value) => Unexpected::Bool(value),
        Head::Uint(value) => Unexpected::Unsigned(value),
        Head::Int(value) => Unexpected::Signed(value),
        Head::Float(value) => Unexpected::Float(value),
        Head::Str(text) => str::from_utf8(text).map_or(Unexpected::Other("a text that is not UTF-8"), Unexpected::Str),
        Head::Bin(bytes) => Unexpected::Bytes(bytes),
        Head::Ext => Unexpected::Other("a value of no kind that is written"),
        Head::Array(_) => Unexpected::Seq,
        Head::Map(_) => Unexpected::Map,
    };
    Error::invalid_type(found, expected)
}

fn utf8(text: &[u8]) -> Result<&str, Error> {
    str::from_utf8(text).map_err(|_| Error::custom("a text is not UTF-8"))
}

impl<'de> Reader<'de> {
    fn head(&mut self) -> Result<Head<'de>, Error> {
        self.bytes.head().map_err(|fault| Error::custom(fault.message))
    }

    fn skip(&mut self) -> Result<(), Error> {
        let mut left = 1_usize;
        while left > 0 {
            left = left - 1
                + match self.head()? {
                    Head::Array(count) => count,
                    Head::Map(count) => 2 * count,
                    _ => 0,
                };
        }
        Ok(())
    }

    fn enter(&mut self) -> Result<(), Error> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err(Error::custom("values lie too deep within each other")) } else { Ok(()) }
    }

    fn leave(&mut self, left: usize, count: usize) -> Result<(), Error> {
        self.depth -= 1;
        if left > 0 { Err(Error::invalid_length(count, &"fewer items")) } else { Ok(()) }
    }

    fn sequence<V: Visitor<'de>>(&mut self, count: usize, visitor: V) -> Result<V::Value, Error> {
        self.enter()?;
        let mut items = Items { reader: self, left: count };
        let value = visitor.visit_seq(&mut items)?;
        let left = items.left;
        self.leave(left, count)?;
        Ok(value)
    }

    fn mapping<V: Visitor<'de>>(&mut self, count: usize, visitor: V) -> Result<V::Value, Error> {
        self.enter()?;
        let mut items = Items { reader: self, left: count };
        let value = visitor.visit_map(&mut items)?;
        let left = items.left;
        self.leave(left, count)?;
        Ok(value)
    }
}

/// Methods that ask a type for one thing: NAME PATTERN => CALL, any other value being refused.
macro_rules! reads {
    ($($method:ident($($unused:ty),*) $pattern:pat => |$reader:ident, $visitor:ident| $call:expr;)*) => {$(
        fn $method<V: Visitor<'de>>(self, $(_: $unused,)* $visitor: V) -> Result<V::Value, Error> {
            let $reader = self;
            match $reader.head()? {
                $pattern => $call,
                other => Err(refused(other, &$visitor)),
            }
        }
    )*};
}

/// Methods for numbers without a fraction, which are written as short as they can be. The type says where one is too large for it.
macro_rules! reads_whole {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.head()? {
                Head::Uint(value) => visitor.visit_u64(value),
                Head::Int(value) => visitor.visit_i64(value),
                other => Err(refused(other, &visitor)),
            }
        }
    )*};
}

impl<'de> de::Deserializer<'de> for &mut Reader<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.head()? {
            Head::Nil => visitor.visit_unit(),
            Head::Bool(value) => visitor.visit_bool(value),
            Head::Uint(value) => visitor.visit_u64(value),
            Head::Int(value) => visitor.visit_i64(value),
            Head::Float(value) => visitor.visit_f64(value),
            Head::Str(text) => visitor.visit_borrowed_str(utf8(text)?),
            Head::Bin(bytes) => visitor.visit_borrowed_bytes(bytes),
            Head::Array(count) => self.sequence(count, visitor),
            Head::Map(count) => self.mapping(count, visitor),
            Head::Ext => Err(refused(Head::Ext, &visitor)),
        }
    }

    reads! {
        deserialize_bool() Head::Bool(value) => |reader, visitor| visitor.visit_bool(value);
        deserialize_char() Head::Str(text) => |reader, visitor| visitor.visit_borrowed_str(utf8(text)?);
        deserialize_str() Head::Str(text) => |reader, visitor| visitor.visit_borrowed_str(utf8(text)?);
        deserialize_string() Head::Str(text) => |reader, visitor| visitor.visit_borrowed_str(utf8(text)?);
        deserialize_identifier() Head::Str(text) => |reader, visitor| visitor.visit_borrowed_str(utf8(text)?);
        deserialize_bytes() Head::Bin(bytes) => |reader, visitor| visitor.visit_borrowed_bytes(bytes);
        deserialize_byte_buf() Head::Bin(bytes) => |reader, visitor| visitor.visit_borrowed_bytes(bytes);
        deserialize_unit() Head::Nil => |reader, visitor| visitor.visit_unit();
        deserialize_unit_struct(&'static str) Head::Nil | Head::Array(0) => |reader, visitor| visitor.visit_unit();
        deserialize_seq() Head::Array(count) => |reader, visitor| reader.sequence(count, visitor);
        deserialize_tuple(usize) Head::Array(count) => |reader, visitor| reader.sequence(count, visitor);
        deserialize_tuple_struct(&'static str, usize) Head::Array(count) => |reader, visitor| reader.sequence(count, visitor);
        deserialize_map() Head::Map(count) => |reader, visitor| reader.mapping(count, visitor);
        deserialize_struct(&'static str, &'static [&'static str]) Head::Map(count)
            => |reader, visitor| reader.mapping(count, visitor);
    }

    reads_whole! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.head()? {
            Head::Float(value) => visitor.visit_f64(value),
            Head::Uint(value) => visitor.visit_f64(value as f64),
            Head::Int(value) => visitor.visit_f64(value as f64),
            other => Err(refused(other, &visitor)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let before = self.bytes;
        if self.head()? == Head::Nil {
            return visitor.visit_none();
        }
        self.bytes = before;
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.head()? {
            Head::Str(name) => visitor.visit_enum(BorrowedStrDeserializer::new(utf8(name)?)),
            Head::Map(1) => {
                self.enter()?;
                let value = visitor.visit_enum(&mut *self)?;
                self.leave(0, 1)?;
                Ok(value)
            }
            other => Err(refused(other, &visitor)),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.skip()?;
        visitor.visit_unit()
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// A variant with something in it: a map of its name to that.
impl<'de> de::EnumAccess<'de> for &mut Reader<'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        Ok((seed.deserialize(&mut *self)?, self))
    }
}

impl<'de> de::VariantAccess<'de> for &mut Reader<'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Deserialize::deserialize(self)
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        de::Deserializer::deserialize_tuple(self, len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Error> {
        de::Deserializer::deserialize_struct(self, "", fields, visitor)
    }
}

/// What is left of an array or a map.
struct Items<'a, 'de> {
    reader: &'a mut Reader<'de>,
    left: usize,
}

impl<'de> de::SeqAccess<'de> for Items<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(&mut *self.reader).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> de::MapAccess<'de> for Items<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        de::SeqAccess::next_element_seed(self, seed)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(&mut *self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Deserialize, Serialize};
    use std::collections::BTreeMap;
    use std::net::IpAddr;

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    struct Empty;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Wrapped(f64);

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Kind {
        Plain,
        Wrapped(Option<u64>),
        Pair(i8, f64),
        Named { low: f32, high: Option<String> },
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(f64),
        Text(String),
        List(Vec<i64>),
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Whole {
        whole: Vec<u64>,
        signed: Vec<i64>,
        small: (u8, i8, u16, i16, u32, i32),
        numbers: Vec<f64>,
        single: f32,
        texts: Vec<String>,
        letter: char,
        flag: bool,
        some: Option<Option<bool>>,
        none: Option<u8>,
        kinds: Vec<Kind>,
        either: Vec<Either>,
        map: BTreeMap<u64, Wrapped>,
        array: [u16; 3],
        address: IpAddr,
        any: serde_json::Value,
        empty: Empty,
        unit: (),
    }

    fn whole() -> Whole {
        let whole = (0..64).flat_map(|bit| [1 << bit, (1_u64 << bit) - 1]).chain([u64::MAX]).collect::<Vec<_>>();
        let signed = whole.iter().map(|&n| n as i64).chain(whole.iter().map(|&n| (n as i64).wrapping_neg())).collect();
        Whole {
            signed,
            whole,
            small: (200, -100, 60_000, -30_000, 4_000_000_000, -2_000_000_000),
            numbers: vec![0.0, -0.0, 1.5, f64::MIN_POSITIVE, f64::NEG_INFINITY],
            single: 0.1,
            texts: [0, 1, 31, 32, 255, 256, 70_000].map(|length| "\u{e9}".repeat(length)).to_vec(),
            letter: '\u{e9}',
            flag: true,
            some: Some(Some(false)),
            none: None,
            kinds: vec![
                Kind::Plain,
                Kind::Wrapped(Some(1 << 40)),
                Kind::Wrapped(None),
                Kind::Pair(-3, 2.5),
                Kind::Named { low: 0.5, high: Some("high".into()) },
            ],
            either: vec![Either::Number(2.0), Either::Text("two".into()), Either::List(vec![-1; 70_000])],
            map: (0..20).map(|key| (key * 1000, Wrapped(key as f64))).collect(),
            array: [1, 2, 300],
            address: [127, 0, 0, 1].into(),
            any: serde_json::json!({"list": [1, -2, 3.5, null, true], "map": {"text": ""}}),
            empty: Empty,
            unit: (),
        }
    }

    #[test]
    fn what_is_written_is_read_and_each_cut_is_found() {
        let bytes = rmp_serde::to_vec_named(&whole()).unwrap();
        assert_eq!(read::<Whole>(&bytes).unwrap(), whole());
        for cut in (0..bytes.len()).filter(|cut| cut % 997 == 0 || *cut < 3000 || bytes.len() - cut < 3000) {
            let why = read::<Whole>(&bytes[..cut]).unwrap_err().to_string();
            assert!(
                why.contains("ends in the middle of a value") || why.contains("than there are bytes"),
                "{cut}: {why}"
            );
        }
    }

    #[test]
    fn fields_that_are_unknown_are_left_out() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Less {
            flag: bool,
            array: [u16; 3],
        }
        let bytes = rmp_serde::to_vec_named(&whole()).unwrap();
        assert_eq!(read::<Less>(&bytes).unwrap(), Less { flag: true, array: [1, 2, 300] });
    }

    #[test]
    fn what_a_type_is_not_is_named() {
        let refused = |bytes: &[u8]| read::<Less>(bytes).unwrap_err().to_string();
        #[derive(Debug, Deserialize)]
        struct Less {
            #[expect(dead_code)]
            count: u32,
        }
        let written = |value: serde_json::Value| rmp_serde::to_vec_named(&value).unwrap();
        assert_eq!(refused(&written(serde_json::json!({}))), "missing field `count`");
        assert_eq!(
            refused(&written(serde_json::json!({"count": "two"}))),
            "invalid type: string \"two\", expected u32"
        );
        assert_eq!(refused(&written(serde_json::json!({"count": -2}))), "invalid value: integer `-2`, expected u32");
        assert!(refused(&written(serde_json::json!({"count": 1_u64 << 40}))).starts_with("invalid value: integer"));
        assert_eq!(refused(&written(serde_json::json!([1]))), "invalid type: sequence, expected struct Less");
        assert!(read::<(u8, u8)>(&written(serde_json::json!([1, 2, 3]))).is_err(), "an item too many");
        assert!(refused(&[0x81, 0xa5, b'c', b'o', b'u', 0xff, b't', 1]).contains("UTF-8"));
        assert!(refused(&[0xc1]).contains("0xc1 starts no value"));
        let deep = [vec![0x91; 100_000], vec![1]].concat();
        assert!(read::<serde_json::Value>(&deep).unwrap_err().to_string().contains("too deep"));
        assert!(
            read::<Vec<u8>>(&[0xdd, 0xff, 0xff, 0xff, 0xff, 1])
                .unwrap_err()
                .to_string()
                .contains("than there are bytes")
        );
    }
}
