//! The daemon of criticd: its settings, journal, state, threads and page. What a critic computes is `criticd-learner`.
pub mod board;
pub mod clock;
pub mod colour;
pub mod config;
pub mod daemon;
pub mod fleet;
pub mod hindsight;
pub mod http;
pub mod journal;
pub mod local;
pub mod monitor;
pub mod packed;
pub mod panics;
mod refit_work;
pub mod sealed;
pub mod state;
pub mod telemetry;
pub mod whole_file;

pub use criticd_learner as learner;
pub use criticd_learner::{math, snapshot, transition, world};
pub use criticd_protocol::{client, wire};
pub use criticd_tables as table;
pub use criticd_transport::{self as transport, access, keys};
