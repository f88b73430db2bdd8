//! Tests of the daemon and its commands from outside, in one program, so that it is linked once and what several need exists once
//! (`support`). `tests/memory.rs` is apart: it replaces the global allocator.

mod access;
mod action_critics;
mod action_values;
mod advisors;
mod cli;
mod core;
mod crash;
mod crash_heads;
mod daemon;
mod foreign_tables;
mod format;
mod heads;
mod hidden;
mod http;
mod judged_tables;
mod kinds_of_heads;
mod labelled_heads;
mod limits;
mod live_heads;
mod logs;
mod manners;
mod operation;
mod outlook;
mod own_table;
mod plans;
mod recovery;
mod settings;
mod simulation;
mod split_heads;
mod support;
mod tables;
mod targets;
mod transport;
mod warm_start;
mod windows;
