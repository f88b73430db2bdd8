//! The work of one refit, on the threads that it is given.

use crate::learner::allowance::Allowance;
use crate::learner::refit::{self, Candidate, RefitJob};
use crate::learner::window::Window;
use crate::panics;
use crate::wire;
use rayon::ThreadPool;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is to be done.
pub(crate) enum RefitWork<'a> {
    /// Select a model; what the search may spend is put here once it begins.
    Run(&'a RefitJob, &'a OnceLock<Allowance>),
    /// Let the selected model learn the rows of the window that came meanwhile.
    CatchUp(Box<Candidate>, &'a Window),
}

/// Threads that models are selected on: what the settings say, else all cores but one, which learns.
pub(crate) fn threads(setting: Option<usize>) -> usize {
    setting.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |cores| cores.get() - 1).max(1))
}

/// Do it, on the threads of `pool` if there is one, until `stop` is set.
///
/// # Errors
/// Why there is no candidate. A bug in model selection costs this candidate, not the program.
pub(crate) fn perform(work: RefitWork<'_>, pool: Option<&ThreadPool>, stop: &AtomicBool) -> Result<Candidate, String> {
    let keep_going = || !stop.load(Ordering::Relaxed);
    let result = catch_unwind(AssertUnwindSafe(|| {
        let run = || match work {
            RefitWork::Run(job, spent) => refit::run_within(job, &keep_going, spent.get_or_init(|| job.allowance())),
            RefitWork::CatchUp(mut candidate, window) => candidate.catch_up(window, &keep_going).map(|()| *candidate),
        };
        let result = match pool {
            Some(pool) => pool.install(run),
            None => run(),
        };
        result.map_err(|e| wire::refit_error(&e))
    }));
    result.unwrap_or_else(|panic| Err(format!("the refit panicked: {}", panics::message(&*panic))))
}
