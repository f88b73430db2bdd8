//! A daemon that learns a value function, with its uncertainty, from a live stream of transitions: its commands, and the whole
//! of it by the names that programs in Rust use.
pub mod commands;
pub mod onnx;
pub mod picture;

pub use criticd_daemon::{
    board, clock, colour, config, daemon, fleet, hindsight, http, journal, local, packed, panics, sealed, state,
    telemetry, whole_file,
};
pub use criticd_learner as learner;
pub use criticd_learner::{math, snapshot, transition, world};
pub use criticd_protocol::{client, policy, wire};
pub use criticd_sim as sim;
pub use criticd_tables as table;
pub use criticd_transport::{self as transport, access, keys};
