//! A daemon that learns a value function, with its uncertainty, from a live stream of transitions.
pub mod access;
pub mod client;
pub mod config;
pub mod daemon;
pub mod http;
pub mod journal;
pub mod keys;
pub mod learner;
pub mod math;
pub mod picture;
pub mod sim;
pub mod snapshot;
pub mod table;
pub mod transition;
pub mod transport;
pub mod wire;
