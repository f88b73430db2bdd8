//! Protobuf, as far as writing an ONNX file takes it: numbers, texts and messages within messages.
//!
//! Written by hand, since that is all there is to the format when nothing is read: a generator of code would bring more into
//! the build than it saves here.

/// Wire type of whole numbers.
const VARINT: u64 = 0;
/// Wire type of texts, bytes and messages.
const LENGTH_DELIMITED: u64 = 2;

/// A message that grows field by field. The numbers of fields are as in `onnx.proto`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ProtoMessage(Vec<u8>);

impl ProtoMessage {
    /// With a whole number in field `field`, as `int64` and `int32` are written.
    pub(super) fn int(mut self, field: u64, value: i64) -> Self {
        self.varint(field << 3 | VARINT);
        // Two's complement: a negative number takes ten bytes.
        self.varint(value as u64);
        self
    }

    /// With a text.
    pub(super) fn text(self, field: u64, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }

    /// With bytes.
    pub(super) fn bytes(mut self, field: u64, value: &[u8]) -> Self {
        self.varint(field << 3 | LENGTH_DELIMITED);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// With a message.
    pub(super) fn message(self, field: u64, value: &ProtoMessage) -> Self {
        self.bytes(field, &value.0)
    }

    /// With a message for each of `values`: a repeated field.
    pub(super) fn messages<'a>(self, field: u64, values: impl IntoIterator<Item = &'a ProtoMessage>) -> Self {
        values.into_iter().fold(self, |message, value| message.message(field, value))
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Seven bits at a time, the lowest first; the eighth says that more follow.
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_the_specification_of_protobuf() {
        assert_eq!(ProtoMessage::default().int(1, 150).into_bytes(), [0x08, 0x96, 0x01]);
        assert_eq!(ProtoMessage::default().text(2, "testing").into_bytes(), *b"\x12\x07testing");
        let inner = ProtoMessage::default().int(1, 150);
        assert_eq!(ProtoMessage::default().message(3, &inner).into_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        assert_eq!(ProtoMessage::default().messages(3, [&inner, &ProtoMessage::default()]).into_bytes().len(), 7);
        let negative = ProtoMessage::default().int(20, -1).into_bytes();
        assert_eq!((negative.len(), &negative[..2], negative[11]), (12, &[0xa0, 0x01][..], 0x01));
    }
}
