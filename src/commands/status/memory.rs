//! What is said of memory.

use super::{mib, said};
use crate::wire::status::{MemoryStatus, ModelMemoryStatus};

/// What a daemon may take at most, and what a row, a stream and an element of the dictionary take.
pub(super) fn line(memory: &MemoryStatus) -> (String, String) {
    let kib = |bytes: u64| bytes as f64 / 1024.0;
    let element =
        |model: &ModelMemoryStatus| format!("{:.1} KiB an element of {}", kib(model.element_bytes), model.critic);
    let elements: Vec<String> = memory.models.iter().map(element).collect();
    said(
        "memory",
        format!(
            "{} at most; {} bytes a row, {:.1} KiB a stream, {}",
            mib(memory.kept_bytes_max + memory.queues_bytes_max + memory.rebuild_bytes_max),
            memory.row_bytes,
            kib(memory.stream_bytes),
            elements.join(", ")
        ),
    )
}
