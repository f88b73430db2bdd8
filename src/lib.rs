//! A daemon that learns a value function, with its uncertainty, from a live stream of transitions.
pub mod config;
pub mod learner;
pub mod math;
pub mod snapshot;
pub mod transition;
pub mod wire;
