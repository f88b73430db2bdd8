//! Numbers as they stand in memory: vectors of f64 are written as little-endian bytes, so that what is read back is the
//! same bit for bit, and as fast to write as to copy. For fields marked `#[serde(with = "raw")]`.

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserializer, Serializer};
use std::fmt;

/// Write `numbers` as bytes.
pub(crate) fn serialize<S: Serializer>(numbers: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    let mut bytes = Vec::with_capacity(size_of_val(numbers));
    for number in numbers {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    serializer.serialize_bytes(&bytes)
}

/// Read what [`serialize`] wrote.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    deserializer.deserialize_bytes(Numbers)
}

struct Numbers;

impl<'de> Visitor<'de> for Numbers {
    type Value = Vec<f64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("numbers of 8 bytes each")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        let numbers = bytes.chunks_exact(8);
        if !numbers.remainder().is_empty() {
            return Err(E::invalid_length(bytes.len(), &self));
        }
        Ok(numbers.map(|chunk| f64::from_le_bytes(chunk.try_into().expect("eight bytes"))).collect())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Self::Value, A::Error> {
        Err(A::Error::custom("numbers must be written as bytes"))
    }
}
