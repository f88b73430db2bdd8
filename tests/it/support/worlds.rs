//! Worlds that follow from a seed each, run on as many threads as there are processors.

use parking_lot::Mutex;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Run the worlds of these seeds. Gives what `run` gives for each that ends, and the first seed whose world has failed.
pub(crate) fn worlds<T: Send>(
    seeds: impl IntoIterator<Item = u64>,
    run: impl Fn(u64) -> T + Sync,
) -> (Vec<T>, Option<u64>) {
    let seeds: Vec<u64> = seeds.into_iter().collect();
    let (next, failed, found) = (AtomicUsize::new(0), AtomicUsize::new(seeds.len()), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            // All before one that has failed are run, so that which one is named does not depend on the threads.
            if turn >= failed.load(Ordering::Relaxed) {
                return;
            }
            match catch_unwind(AssertUnwindSafe(|| run(seeds[turn]))) {
                Ok(result) => found.lock().push(result),
                Err(_) => drop(failed.fetch_min(turn, Ordering::Relaxed)),
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let failed = seeds.get(failed.into_inner()).copied();
    (found.into_inner(), failed)
}

thread_local! {
    /// Whether panics of this thread are expected.
    static EXPECTS_PANICS: Cell<bool> = const { Cell::new(false) };
}

/// Call `work`, whose panics in this thread are expected: they say nothing. What panics in other threads meanwhile, as other
/// tests do that fail, says so as ever.
pub(crate) fn in_silence<T>(work: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !EXPECTS_PANICS.get() {
                before(panic);
            }
        }));
    });
    /// Ends the silence also where `work` panics.
    struct Silence;
    impl Drop for Silence {
        fn drop(&mut self) {
            EXPECTS_PANICS.set(false);
        }
    }
    EXPECTS_PANICS.set(true);
    let _silence = Silence;
    work()
}
