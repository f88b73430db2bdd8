//! What a peer by hand says over a plain stream: the frames of ZMTP 3.0.

/// Flags of a frame.
pub(crate) const MORE: u8 = 1;
pub(crate) const LONG: u8 = 2;
pub(crate) const COMMAND: u8 = 4;

/// The greeting of a peer of version 3.0 without a mechanism.
pub(crate) fn greeting() -> [u8; 64] {
    let mut bytes = [0; 64];
    (bytes[0], bytes[9], bytes[10]) = (0xff, 0x7f, 3);
    bytes[12..16].copy_from_slice(b"NULL");
    bytes
}

pub(crate) fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    match u8::try_from(body.len()) {
        Ok(len) => [&[flags, len], body].concat(),
        Err(_) => [&[flags | LONG][..], &(body.len() as u64).to_be_bytes(), body].concat(),
    }
}
