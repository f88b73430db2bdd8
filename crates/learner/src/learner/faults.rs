//! Faults made on purpose, for tests of those who call.

use std::cell::Cell;

thread_local! {
    /// A learner with this seed that has learned this number of rows panics at its next step; with `u64::MAX` rows it does so
    /// at every step.
    pub static FAULT: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
    /// A learner with this seed panics as it takes the row at this offset in.
    pub static FAULT_TAKING: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
}
