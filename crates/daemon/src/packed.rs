//! MessagePack of our own types, out of files and of records of the journal.
//!
//! `rmp_serde` writes them, structures as maps. Its reader asks a type for whatever the bytes may be, so that all of it is compiled once
//! more for each of several hundred types: a tenth of the library. This one asks for what the type has said that it is.

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
    T::deserialize(&mut Reader { rest: bytes, depth: 0 })
}

struct Reader<'de> {
    rest: &'de [u8],
    depth: usize,
}

/// A value, or the head of one with so many items.
#[derive(Clone, Copy)]
enum Token<'de> {
    Nil,
    Bool(bool),
    Int(i128),
    F32(f32),
    F64(f64),
    Str(&'de str),
    Bytes(&'de [u8]),
    Array(usize),
    Map(usize),
}

impl Token<'_> {
    #[cold]
    fn refused(self, expected: &dyn Expected) -> Error {
        let found = match self {
            Self::Nil => Unexpected::Unit,
            Self::Bool(value) => Unexpected::Bool(value),
            Self::Int(value) => match u64::try_from(value) {
                Ok(value) => Unexpected::Unsigned(value),
                // MessagePack has none below.
                Err(_) => Unexpected::Signed(value as i64),
            },
            Self::F32(value) => Unexpected::Float(value.into()),
            Self::F64(value) => Unexpected::Float(value),
            Self::Str(text) => Unexpected::Str(text),
            Self::Bytes(bytes) => Unexpected::Bytes(bytes),
            Self::Array(_) => Unexpected::Seq,
            Self::Map(_) => Unexpected::Map,
        };
        Error::invalid_type(found, expected)
    }
}

impl<'de> Reader<'de> {
    fn take(&mut self, count: usize) -> Result<&'de [u8], Error> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(|| Error::custom("it ends within a value"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// An unsigned number of `count` bytes, at most eight.
    fn number(&mut self, count: usize) -> Result<u64, Error> {
        Ok(self.take(count)?.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn text(&mut self, length: u64) -> Result<Token<'de>, Error> {
        let text = str::from_utf8(self.take(length as usize)?).map_err(|_| Error::custom("a text is not UTF-8"))?;
        Ok(Token::Str(text))
    }

    /// So many items, `each` of which takes at least so many bytes.
    fn items(&self, count: u64, each: u64) -> Result<usize, Error> {
        if count.saturating_mul(each) > self.rest.len() as u64 {
            return Err(Error::custom("it ends within a value"));
        }
        Ok(count as usize)
    }

    fn token(&mut self) -> Result<Token<'de>, Error> {
        let head = self.number(1)? as u8;
        Ok(match head {
            0x00..=0x7f => Token::Int(head.into()),
            0x80..=0x8f => Token::Map(self.items(u64::from(head & 0x0f), 2)?),
            0x90..=0x9f => Token::Array(self.items(u64::from(head & 0x0f), 1)?),
            0xa0..=0xbf => self.text(u64::from(head & 0x1f))?,
            0xc0 => Token::Nil,
            0xc2 | 0xc3 => Token::Bool(head == 0xc3),
            0xc4..=0xc6 => {
                let length = self.number(1 << (head - 0xc4))?;
                Token::Bytes(self.take(length as usize)?)
            }
            0xca => Token::F32(f32::from_bits(self.number(4)? as u32)),
            0xcb => Token::F64(f64::from_bits(self.number(8)?)),
            0xcc..=0xcf => Token::Int(self.number(1 << (head - 0xcc))?.into()),
            0xd0 => Token::Int((self.number(1)? as i8).into()),
            0xd1 => Token::Int((self.number(2)? as i16).into()),
            0xd2 => Token::Int((self.number(4)? as i32).into()),
            0xd3 => Token::Int((self.number(8)? as i64).into()),
            0xd9..=0xdb => {
                let length = self.number(1 << (head - 0xd9))?;
                self.text(length)?
            }
            0xdc | 0xdd => {
                let count = self.number(2 << (head - 0xdc))?;
                Token::Array(self.items(count, 1)?)
            }
            0xde | 0xdf => {
                let count = self.number(2 << (head - 0xde))?;
                Token::Map(self.items(count, 2)?)
            }
            0xe0.. => Token::Int((head as i8).into()),
            0xc1 | 0xc7..=0xc9 | 0xd4..=0xd8 => return Err(Error::custom("a value of no kind that is written")),
        })
    }

    fn skip(&mut self) -> Result<(), Error> {
        let mut left = 1_usize;
        while left > 0 {
            left = left - 1
                + match self.token()? {
                    Token::Array(count) => count,
                    Token::Map(count) => 2 * count,
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

/// Methods that ask a type for one thing: NAME PATTERN => CALL, any other token being refused.
macro_rules! reads {
    ($($method:ident($($unused:ty),*) $pattern:pat => |$reader:ident, $visitor:ident| $call:expr;)*) => {$(
        fn $method<V: Visitor<'de>>(self, $(_: $unused,)* $visitor: V) -> Result<V::Value, Error> {
            let $reader = self;
            match $reader.token()? {
                $pattern => $call,
                other => Err(other.refused(&$visitor)),
            }
        }
    )*};
}

/// Methods for numbers without a fraction, which are written as short as they can be.
macro_rules! reads_whole {
    ($($method:ident $kind:ty, $visit:ident;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let token = self.token()?;
            match token {
                Token::Int(value) => match <$kind>::try_from(value) {
                    Ok(value) => visitor.$visit(value),
                    Err(_) => Err(token.refused(&visitor)),
                },
                other => Err(other.refused(&visitor)),
            }
        }
    )*};
}

impl<'de> de::Deserializer<'de> for &mut Reader<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.token()? {
            Token::Nil => visitor.visit_unit(),
            Token::Bool(value) => visitor.visit_bool(value),
            Token::Int(value) => match u64::try_from(value) {
                Ok(value) => visitor.visit_u64(value),
                Err(_) => visitor.visit_i64(value as i64),
            },
            Token::F32(value) => visitor.visit_f32(value),
            Token::F64(value) => visitor.visit_f64(value),
            Token::Str(text) => visitor.visit_borrowed_str(text),
            Token::Bytes(bytes) => visitor.visit_borrowed_bytes(bytes),
            Token::Array(count) => self.sequence(count, visitor),
            Token::Map(count) => self.mapping(count, visitor),
        }
    }

    reads! {
        deserialize_bool() Token::Bool(value) => |reader, visitor| visitor.visit_bool(value);
        deserialize_char() Token::Str(text) => |reader, visitor| visitor.visit_borrowed_str(text);
        deserialize_str() Token::Str(text) => |reader, visitor| visitor.visit_borrowed_str(text);
        deserialize_string() Token::Str(text) => |reader, visitor| visitor.visit_borrowed_str(text);
        deserialize_identifier() Token::Str(text) => |reader, visitor| visitor.visit_borrowed_str(text);
        deserialize_bytes() Token::Bytes(bytes) => |reader, visitor| visitor.visit_borrowed_bytes(bytes);
        deserialize_byte_buf() Token::Bytes(bytes) => |reader, visitor| visitor.visit_borrowed_bytes(bytes);
        deserialize_unit() Token::Nil => |reader, visitor| visitor.visit_unit();
        deserialize_unit_struct(&'static str) Token::Nil | Token::Array(0) => |reader, visitor| visitor.visit_unit();
        deserialize_seq() Token::Array(count) => |reader, visitor| reader.sequence(count, visitor);
        deserialize_tuple(usize) Token::Array(count) => |reader, visitor| reader.sequence(count, visitor);
        deserialize_tuple_struct(&'static str, usize) Token::Array(count) => |reader, visitor| reader.sequence(count, visitor);
        deserialize_map() Token::Map(count) => |reader, visitor| reader.mapping(count, visitor);
        deserialize_struct(&'static str, &'static [&'static str]) Token::Map(count)
            => |reader, visitor| reader.mapping(count, visitor);
    }

    reads_whole! {
        deserialize_i8 i64, visit_i64;
        deserialize_i16 i64, visit_i64;
        deserialize_i32 i64, visit_i64;
        deserialize_i64 i64, visit_i64;
        deserialize_u8 u64, visit_u64;
        deserialize_u16 u64, visit_u64;
        deserialize_u32 u64, visit_u64;
        deserialize_u64 u64, visit_u64;
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.token()? {
            Token::F64(value) => visitor.visit_f64(value),
            Token::F32(value) => visitor.visit_f32(value),
            Token::Int(value) => visitor.visit_f64(value as f64),
            other => Err(other.refused(&visitor)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.rest.strip_prefix(&[0xc0]) {
            Some(rest) => {
                self.rest = rest;
                visitor.visit_none()
            }
            None => visitor.visit_some(self),
        }
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
        match self.token()? {
            Token::Str(name) => visitor.visit_enum(BorrowedStrDeserializer::new(name)),
            Token::Map(1) => {
                self.enter()?;
                let value = visitor.visit_enum(&mut *self)?;
                self.leave(0, 1)?;
                Ok(value)
            }
            other => Err(other.refused(&visitor)),
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
            assert!(why.contains("ends within a value"), "{cut}: {why}");
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
        assert_eq!(refused(&written(serde_json::json!({"count": -2}))), "invalid type: integer `-2`, expected u32");
        assert!(refused(&written(serde_json::json!({"count": 1_u64 << 40}))).starts_with("invalid value: integer"));
        assert_eq!(refused(&written(serde_json::json!([1]))), "invalid type: sequence, expected struct Less");
        assert!(read::<(u8, u8)>(&written(serde_json::json!([1, 2, 3]))).is_err(), "an item too many");
        assert!(refused(&[0x81, 0xa5, b'c', b'o', b'u', 0xff, b't', 1]).contains("UTF-8"));
        assert!(refused(&[0xc1]).contains("no kind"));
        let deep = [vec![0x91; 100_000], vec![1]].concat();
        assert!(read::<serde_json::Value>(&deep).unwrap_err().to_string().contains("too deep"));
        assert!(read::<Vec<u8>>(&[0xdd, 0xff, 0xff, 0xff, 0xff, 1]).unwrap_err().to_string().contains("ends within"));
    }
}
