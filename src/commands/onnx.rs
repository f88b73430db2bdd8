//! The part of `criticd export` that writes a value function as an ONNX graph.

use super::Failure;
use super::inspect::read_model;
use super::output::write_file;
use criticd::onnx::encode;
use std::path::Path;

/// Write the model of a file as ONNX to `out`, all of it or nothing.
pub(super) fn export(model: &Path, out: &Path) -> Result<(), Failure> {
    write_file(out, &[model], &encode(&read_model(model)?))
}
