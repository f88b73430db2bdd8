//! What a search finds that its budget ends: a function of rows, settings, seed and budget, whatever the clock and the threads do.

use criticd_learner::allowance::Allowance;
use criticd_learner::heads::{Cumulant, Head, Rate};
use criticd_learner::refit::{self, Candidate, RefitJob, RefitTrigger};
use criticd_learner::window::Window;
use criticd_learner::{DriftSensitivity, KernelKind, Learner, Settings};
use criticd_reference::wander;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const COLUMNS: usize = 4;

fn job(settings: Settings) -> RefitJob {
    job_of(500, settings)
}

fn job_of(count: usize, settings: Settings) -> RefitJob {
    let settings = Settings { refit_first_rows: 0, drift_sensitivity: DriftSensitivity::Off, ..settings };
    let (mut learner, mut window) = (Learner::new(settings, None), Window::new(2, COLUMNS, count));
    let rows = wander(count, 3, COLUMNS, 11);
    window.extend(&rows, 0..rows.len());
    learner.step(&window);
    learner.request_refit();
    learner.refit_job(&window, learner.refit_due().unwrap()).unwrap()
}

/// Everything of a candidate.
fn told(found: &Candidate) -> (Vec<u8>, String) {
    (rmp_serde::to_vec_named(&*found.model).unwrap(), format!("{:?}", found.report))
}

#[test]
fn a_refit_of_few_rows_has_less_time_unless_somebody_asked_for_it() {
    let seconds = |seconds: f64| format!("{:?}", Allowance::of_seconds(refit::SEARCH_SHARE * seconds));
    let allowed = |job: &RefitJob| format!("{:?}", job.allowance());
    let asked_for = job(Settings::default());
    assert_eq!(allowed(&asked_for), seconds(20.0));
    let due = |job| RefitJob { trigger: RefitTrigger::Rows, ..job };
    assert_eq!(allowed(&due(asked_for)), seconds(1.0));
    let many = due(job_of(2560, Settings::default()));
    assert_eq!(allowed(&many), seconds(5.0));
    assert_eq!(allowed(&RefitJob { from: 2048, ..many }), seconds(1.0), "rows that are left out buy none");
    let heads = vec![Head::new("h", Cumulant::Reward(1), Rate::Discount(0.5))];
    assert_eq!(allowed(&due(job(Settings { heads, ..Settings::default() }))), seconds(20.0));
    assert_eq!(allowed(&due(job(Settings { refit_budget_s: 0.3, ..Settings::default() }))), seconds(0.3));
    assert_eq!(allowed(&due(job(Settings { refit_budget_s: 3.0, ..Settings::paper() }))), seconds(3.0));
}

#[test]
fn neither_threads_nor_the_clock_decide_where_a_budget_ends_a_search() {
    let heads = (1..COLUMNS)
        .map(|k| Head::new(format!("h{k}"), Cumulant::Reward(k), Rate::Discount(0.2 * k as f64)))
        .collect::<Vec<_>>();
    let small = Settings { dictionary_max: 60, search_starts: 6, evidence_rows: 100, ..Settings::default() };
    let by_evidence = Settings { kernel: KernelKind::Auto, ..Settings::paper() };
    let all = [
        ("returns", small.clone()),
        ("evidence", Settings { dictionary_max: 60, search_starts: 6, evidence_rows: 100, ..by_evidence }),
        ("heads", Settings { heads, ..small }),
    ];
    for (what, settings) in all {
        let job = job(settings);
        let whole = Allowance::unlimited();
        let best = told(&refit::run_within(&job, &|| true, &whole).unwrap());
        assert!(!whole.has_ended());
        let mut differ = 0;
        for share in [1, 30, 70] {
            let within = |keep_going: &(dyn Fn() -> bool + Sync)| {
                let allowance = Allowance::of_products(share * whole.spent() / 100);
                let found = refit::run_within(&job, keep_going, &allowance).unwrap();
                assert!(found.report.out_of_time || share == 70, "{what}: {share} % are not enough");
                (told(&found), allowance.spent())
            };
            let alone = within(&|| true);
            differ += usize::from(alone.0 != best);
            for threads in [1, 2] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                assert!(pool.install(|| within(&|| true)) == alone, "{what}, {share} %, {threads} threads");
            }
            // A machine that is slow now and then.
            let asked = AtomicU64::new(0);
            let slowly = || {
                if asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(64) {
                    std::thread::sleep(Duration::from_millis(3));
                }
                true
            };
            assert!(within(&slowly) == alone, "{what}, {share} %: slowly");
        }
        assert!(differ >= 2, "{what}: the budget has ended {differ} searches");
    }
}
