//! A daemon that learns a value function, with its uncertainty, from a live stream of transitions.
pub mod board;
pub mod clock;
pub mod config;
pub mod daemon;
pub mod fleet;
pub mod hindsight;
pub mod http;
pub mod journal;
pub mod local;
pub mod onnx;
pub mod packed;
pub mod panics;
pub mod picture;
mod refit_work;
pub mod sealed;
pub mod state;
pub mod telemetry;
pub mod whole_file;

pub use criticd_learner as learner;
pub use criticd_learner::{math, sim, snapshot, transition, world};
pub use criticd_protocol::{client, policy, wire};
pub use criticd_tables as table;
pub use criticd_transport::{self as transport, access, keys};
