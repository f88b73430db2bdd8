//! Bounds of the daemon's queues, which keep to them and which [`super::memory`] adds up, and of what its threads take at a time.

use crate::transport::turns::Share;
use std::time::Duration;

/// Between two status publications.
pub(super) const TICK: Duration = Duration::from_secs(1);
/// Most that the core goes without looking at its clock.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// At a stop, messages already taken are learned for at most a second.
pub(super) const DRAIN: Duration = Duration::from_secs(1);

/// Requests that may wait for the core.
pub(super) const CALLS: Share = Share { peer_bytes: 8 << 20, total_bytes: 64 << 20 };
/// Queries that may wait for rows to be learned, in bytes as they came.
pub(super) const WAITING: Share = Share { peer_bytes: 4 << 20, total_bytes: 32 << 20 };
/// Queries of many states that may be under way at a time, one of each peer.
pub(super) const LARGE_QUERIES: usize = 8;
/// Encoded snapshots kept for clients that fetch them page by page.
pub(super) const PAGED_MAX: usize = 4;
/// Bytes that are written to the journal at a time, at most, unless one message has more.
pub(super) const GROUP_BYTES: usize = 4 << 20;
/// Pages of rows that may wait, and evaluations of another policy.
pub(super) const EVALUATIONS: usize = 16;
/// Bytes of the journal that they read at once.
pub(super) const JOURNAL_PIECE: u64 = 4 << 20;
/// Bytes of the numbers of the rows that one evaluation takes.
pub(super) const EVALUATED_BYTES: usize = 16 << 20;
/// Elements that the dictionary of its Q grows to at most.
pub(super) const EVALUATED_ELEMENTS: usize = 1000;
/// Questions to models of the transition that wait or are answered.
pub(super) const QUESTIONS: usize = 3;
/// Bytes of the largest critic that is recorded when it has been rebuilt: the database takes values of less than a gigabyte.
pub(super) const RECORD_BYTES_MAX: usize = 768 << 20;
