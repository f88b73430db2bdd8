//! A daemon that learns a value function, with its uncertainty, from a live stream of transitions.
pub mod access;
pub mod board;
pub mod clock;
pub mod config;
pub mod daemon;
pub mod fleet;
pub mod hindsight;
pub mod http;
pub mod journal;
pub mod keys;
pub mod local;
pub mod onnx;
pub mod panics;
pub mod picture;
mod refit_work;
pub mod sealed;
pub mod state;
pub mod table;
pub mod telemetry;
pub mod transport;
pub mod whole_file;

pub use criticd_learner as learner;
pub use criticd_learner::{math, sim, snapshot, transition, world};
pub use criticd_protocol::{client, policy, wire};
