//! The part of `criticd export` that writes a value function as an ONNX graph.

use super::Failure;
use super::inspect::Then;
use super::output::write_file;
use crate::onnx::encode;
use std::path::Path;

/// Write a model as ONNX to `out`, all of it or nothing.
pub(super) fn export(model: &Path, then: &Then, out: &Path) -> Result<(), Failure> {
    write_file(out, &[model], &encode(&then.read(model, None)?))
}
