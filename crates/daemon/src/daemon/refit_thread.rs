//! The thread that selects models: one task at a time, and models that are dropped elsewhere than on the core's thread.

use super::core::RefitDone;
use crate::learner::allowance::Allowance;
use crate::learner::model::Model;
use crate::learner::refit::{Candidate, RefitJob};
use crate::learner::window::Window;
use crate::refit_work::{self, RefitWork};
use crate::telemetry::Restarts;
use crossbeam_channel::{Receiver, Sender, select};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Work of the refit thread.
pub(super) enum Task {
    Run { critic: usize, job: Box<RefitJob>, spent: Arc<OnceLock<Allowance>> },
    CatchUp { critic: usize, candidate: Box<Candidate>, window: Window },
}

impl Task {
    /// Whether something has been selected for the critic before: until then its values are a guess.
    fn selects_again(&self) -> bool {
        matches!(self, Self::Run { job, .. } if job.current.generation > 1)
    }
}

/// From here on learning and answering go before what this thread and the pool do. Without that things are only slower.
fn stand_back(pool: Option<&ThreadPool>) {
    let lower = || {
        if let Err(e) = rustix::process::nice(5) {
            log::debug!("event=priority_unchanged why={e}");
        }
    };
    lower();
    pool.iter().for_each(|pool| drop(pool.broadcast(|_| lower())));
}

/// The thread that selects models.
pub(super) struct Refits {
    pub(super) tasks: Receiver<Task>,
    pub(super) garbage: Receiver<Box<Model>>,
    pub(super) done: Sender<RefitDone>,
    pub(super) stop: Arc<AtomicBool>,
    /// Threads that a model is selected on.
    pub(super) threads: usize,
    pub(super) restarts: Restarts,
}

impl Refits {
    /// Until the core has ended. A panic that no task has caught costs what was under way, and is counted.
    pub(super) fn run(self) {
        let stands_back = AtomicBool::new(false);
        self.restarts.keep("refit", || !self.stop.load(Ordering::Relaxed), || self.work(&stands_back));
    }

    fn work(&self, stands_back: &AtomicBool) {
        let pool = self.pool();
        loop {
            select! {
                recv(self.tasks) -> task => match task {
                    Ok(task) => {
                        if task.selects_again() && !stands_back.swap(true, Ordering::Relaxed) {
                            stand_back(pool.as_ref());
                        }
                        self.dispatch(task, pool.as_ref());
                    }
                    Err(_) => break,
                },
                recv(self.garbage) -> model => match model {
                    Ok(model) => drop(model),
                    Err(_) => break,
                },
            }
        }
    }

    /// The threads of model selection, if they are several. They inherit this thread's priority.
    fn pool(&self) -> Option<ThreadPool> {
        let threads = ThreadPoolBuilder::new().num_threads(self.threads).thread_name(|_| "refit".into());
        let pool = (self.threads > 1).then(|| threads.build()).transpose();
        pool.unwrap_or_else(|e| {
            log::warn!("event=refit_threads_missing why=\"{e}\"");
            None
        })
    }

    fn dispatch(&self, task: Task, pool: Option<&ThreadPool>) {
        let started = Instant::now();
        let critic = match &task {
            Task::Run { critic, .. } | Task::CatchUp { critic, .. } => *critic,
        };
        let result = match task {
            Task::Run { job, spent, .. } => refit_work::perform(RefitWork::Run(&job, &spent), pool, &self.stop),
            Task::CatchUp { candidate, window, .. } => {
                refit_work::perform(RefitWork::CatchUp(candidate, &window), pool, &self.stop)
            }
        };
        let seconds = started.elapsed().as_secs_f64();
        drop(self.done.send(RefitDone { critic, result, seconds }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::daemon::core::{Core, Now};
    use crate::learner::refit;
    use crate::wire;
    use criticd_sim::{self as sim, Step, pendulum::Pendulum};
    use crossbeam_channel::{bounded, never};
    use std::time::Duration;

    #[test]
    fn a_panic_of_the_refit_thread_costs_nothing_but_a_count() {
        let (tasks, queue) = bounded(1);
        let (done, results) = bounded(1);
        let restarts = Restarts::default();
        let (stop, threads) = (Arc::default(), 2);
        let refits = Refits { tasks: queue, garbage: never(), done, stop, threads, restarts: restarts.clone() };
        let thread = std::thread::spawn(move || refits.run());
        // A window without the rows that a refit needs: whatever becomes of it, it is answered, and the thread goes on.
        for _ in 0..2 {
            let snapshot = {
                let mut core = Core::new(Arc::new(Config::default()));
                let mut pendulum = Pendulum::new(1, 0.3);
                let steps: Vec<Step> = (0..100).map(|_| pendulum.step()).collect();
                let now = Now { uptime: 1.0, unix: 1e9 };
                sim::batches("p", "", &steps).iter().for_each(|batch| core.ingest(&wire::encode_ingest(batch), now));
                core.step(now);
                core.refresh(now, &|| now);
                (*core.board().get(0).unwrap()).clone()
            };
            let job = RefitJob {
                settings: crate::learner::Settings { refit_budget_s: -1.0, ..crate::learner::Settings::default() },
                window: Window::new(2, 1, 10),
                current: snapshot,
                present: None,
                second: None,
                names: None,
                endings: crate::transition::Rows::default(),
                about: None,
                trigger: refit::RefitTrigger::Requested,
                dictionary_share: 1.0,
                from: 0,
                world_from: 0,
                seed: 0,
            };
            tasks.send(Task::Run { critic: 0, job: Box::new(job), spent: Arc::default() }).unwrap();
            let done = results.recv_timeout(Duration::from_secs(60)).unwrap();
            // A negative budget is a bug of the caller: it panics.
            assert!(done.result.unwrap_err().contains("panicked"));
        }
        drop(tasks);
        thread.join().unwrap();
        assert_eq!(restarts.get(), 0, "a task's panic is caught with the task");
    }
}
