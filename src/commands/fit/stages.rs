//! What `criticd fit` is at while it takes its time.

use super::Fit;
use crate::commands::output::{Lasts, Spinner};
use crate::learner::allowance::{Allowance, PRODUCTS_PER_SECOND};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Share of the episodes that is held out unless another is named.
const HOLD_OUT: f64 = 0.1;

/// What the search that runs has spent of its budget, in products.
static SPENT: AtomicU64 = AtomicU64::new(0);

/// Let a search go on, and note what it has spent.
pub(super) fn noted(allowance: &Allowance) -> bool {
    SPENT.store(allowance.spent(), Ordering::Relaxed);
    true
}

impl Fit {
    /// Share of the episodes that is held out.
    pub(super) fn share_held_out(&self) -> f64 {
        self.hold_out.unwrap_or(if self.selects() { HOLD_OUT } else { 0.0 })
    }

    /// Whether kernel, noise and lambda are selected, and not given.
    pub(super) fn selects(&self) -> bool {
        !self.no_optimise && self.sums.like().is_none()
    }

    /// Threads of the search.
    pub(super) fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
    }
}

/// The stages of a fit, on a terminal; gone when dropped.
pub(super) struct Stages {
    progress: Spinner,
    /// How many there are.
    of: usize,
    /// Whether a model is selected, and not given.
    selects: bool,
    /// How long that took.
    selected_in: Duration,
}

impl Stages {
    /// The first one begins: to select a model, or to solve for the one that is given.
    pub(super) fn start(fit: &Fit) -> Self {
        let (of, selects) = (if fit.share_held_out() > 0.0 { 4 } else { 2 }, fit.selects());
        let progress = Spinner::start("learning");
        // Heads search more than once.
        let lasts = match fit.heads.file() {
            None if selects => Lasts::Counts(&SPENT, (PRODUCTS_PER_SECOND * fit.budget) as u64),
            _ => Lasts::Unknown,
        };
        progress.stage((1, of), if selects { "selecting a model" } else { "solving" }, lasts);
        Self { progress, of, selects, selected_in: Duration::ZERO }
    }

    pub(super) fn evidence(&mut self) {
        self.selected_in = self.progress.stage((2, self.of), "computing the evidence", Lasts::Unknown);
    }

    /// The same search again, but for the rows that are held out.
    pub(super) fn held_out(&self) {
        if self.of > 2 {
            let lasts = if self.selects { Lasts::About(self.selected_in) } else { Lasts::Unknown };
            self.progress.stage((3, self.of), "predicting held-out episodes", lasts);
        }
    }

    pub(super) fn spared(&self) {
        if self.of > 2 {
            self.progress.stage((4, self.of), "trying to leave variables out", Lasts::Unknown);
        }
    }
}
