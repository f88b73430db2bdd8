//! Tests of the learner from outside, in one program, so that it is linked once. `tests/allocations.rs` is apart: it replaces
//! the global allocator.

mod act;
mod action_values;
mod columns;
mod counted_heads;
mod dictionary_rule;
mod drift;
mod equivalence;
mod exploration;
mod golden;
mod golden_heads;
mod golden_q;
mod golden_world;
mod heads;
mod judged;
mod kinds;
mod late_heads;
mod learner;
mod learning;
mod level;
mod many_streams;
mod model_selection;
mod properties;
mod pursuit;
mod regression;
mod relevance;
mod robustness;
mod round_trip;
mod split_heads;
mod structure;
mod support;
mod tracking;
mod verification;
mod verified_heads;
mod warning;
mod world;
