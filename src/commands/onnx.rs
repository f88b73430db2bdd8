//! The part of `criticd export` that writes a value function as an ONNX graph.

use super::Failure;
use super::inspect::read_model;
use super::output::in_file;
use criticd::onnx::encode;
use criticd::whole_file;
use std::path::Path;

/// Write the model of a file as ONNX to `out`, all of it or nothing.
pub(super) fn export(model: &Path, out: &Path) -> Result<(), Failure> {
    let bytes = encode(&read_model(model)?);
    let mut name = out.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = out.with_file_name(name);
    whole_file::write(out, &part, 0o666, &bytes).map_err(|e| in_file(out, e))
}
