//! A critic of action values that learns where actions lead from the rows as they come.

use criticd_learner::action::{ActionSpace, ActionValue, Successor, Trace};
use criticd_learner::allowance::Allowance;
use criticd_learner::heads::Cumulant;
use criticd_learner::random::{mix, uniform};
use criticd_learner::refit::{self, RefitJob};
use criticd_learner::transition::{Batch, BatchParts};
use criticd_learner::window::Window;
use criticd_learner::world::{Transitions, Wanted, World, WorldError};
use criticd_learner::{DriftSensitivity, Learner, Settings, Verdict};

/// A state, the number of an action, and the state that it led to.
type Row = (f64, usize, f64);

/// A walk on a line from -1 to 1 by steps of 0.2 to the left or the right, with some noise; a chain has 20 steps.
struct Walk {
    learner: Learner,
    window: Window,
    at: f64,
    rows: u64,
    /// What the actions do: 1, or -1 where they are exchanged; and what is added to rewards.
    sense: f64,
    more: f64,
    seen: Vec<Row>,
}

impl Walk {
    fn new(settings: Settings) -> Self {
        let space = ActionSpace::Discrete(2);
        let action_value = Some(ActionValue { space, successor: Successor::Sarsa, trace: Trace::OnPolicy });
        let settings = Settings {
            action_value,
            world: true,
            discount: 0.9,
            warmup_rows: 50,
            refit_first_rows: 400,
            dictionary_max: 40,
            refit_budget_s: 2.0,
            ..settings
        };
        let learner = Learner::new(settings, None);
        Self { learner, window: Window::new(1, 1, 10_000), at: 0.0, rows: 0, sense: 1.0, more: 0.0, seen: Vec::new() }
    }

    fn draw(&self, what: u64) -> f64 {
        uniform(mix(&[self.rows, what]))
    }

    /// `count` more rows, in groups of `group`.
    fn feed(&mut self, count: u64, group: u64) {
        for _ in 0..count / group {
            let (mut states, mut next, mut actions, mut rewards, mut starts) = (vec![], vec![], vec![], vec![], vec![]);
            let first = self.rows;
            for _ in 0..group {
                let begins = self.rows.is_multiple_of(20);
                if begins {
                    self.at = 2.0 * self.draw(0) - 1.0;
                }
                let action = usize::from(self.draw(1) < 0.5);
                let step = self.sense * if action == 1 { 0.2 } else { -0.2 };
                let to = (self.at + step + 0.02 * (self.draw(2) - 0.5)).clamp(-1.0, 1.0);
                states.push(self.at);
                next.push(to);
                actions.push(action as f64);
                rewards.push(self.more - self.at.abs());
                starts.push(begins);
                self.seen.push((self.at, action, to));
                self.at = to;
                self.rows += 1;
            }
            let truncated = (first..self.rows).map(|row| row % 20 == 19).collect();
            let batch = Batch::new(BatchParts {
                stream: "walk".into(),
                dim: 1,
                rewards_per_row: 1,
                states,
                next_states: Some(next),
                rewards,
                actions: Some(actions),
                truncated: Some(truncated),
                ..BatchParts::default()
            })
            .unwrap();
            self.window.extend_from_batch(0, &starts, &batch);
            self.learner.take(0, &starts, &batch, first);
            drop(self.learner.step(&self.window));
        }
    }

    fn refit(&mut self) {
        self.learner.request_refit();
        let job = self.learner.refit_job(&self.window, self.learner.refit_due().unwrap()).unwrap();
        let mut candidate = refit::run(&job, &|| true).unwrap();
        loop {
            match self.learner.try_adopt(candidate, &self.window) {
                Verdict::Behind(behind) => {
                    candidate = behind;
                    candidate.catch_up(self.learner.rows(&self.window), &|| true).unwrap();
                }
                Verdict::Adopted { .. } => return,
                Verdict::Rejected { why, .. } => panic!("{why:?}"),
            }
        }
    }

    fn world(&self) -> World {
        self.learner.transitions().expect("a refit has ended").world().clone()
    }

    /// The complete rows among those with these numbers: the last of a chain that was cut has no next action.
    fn batch_world(&self, rows: std::ops::Range<usize>, half_life: Option<f64>) -> World {
        let of = self.world();
        let complete: Vec<usize> = rows.clone().filter(|i| i % 20 != 19 && i + 1 < rows.end).collect();
        let seen = |f: &dyn Fn(&Row) -> Vec<f64>| complete.iter().flat_map(|&i| f(&self.seen[i])).collect();
        let inputs: Vec<f64> = seen(&|&(x, a, _)| vec![x, f64::from(u8::from(a == 0)), f64::from(u8::from(a == 1))]);
        let (successors, rewards): (Vec<f64>, Vec<f64>) = (seen(&|row| vec![row.2]), seen(&|row| vec![-row.0.abs()]));
        let terminated = vec![false; complete.len()];
        let mut world = World::new(of.before().clone(), of.after().clone(), 1).unwrap();
        let rows = Transitions { inputs: &inputs, successors: &successors, rewards: &rewards, terminated: &terminated };
        let n = complete.len() as f64;
        let weights: Option<Vec<f64>> =
            half_life.map(|half_life| (0..complete.len()).map(|k| ((k as f64 - n) / half_life).exp2()).collect());
        world.learn_weighted(&rows, weights.as_deref()).unwrap();
        world
    }
}

/// Largest difference of the sums, over the largest sum.
fn apart(a: &World, b: &World) -> f64 {
    let pairs = [
        (a.gram(), b.gram()),
        (a.coupling().clone(), b.coupling().clone()),
        (a.outcomes().clone(), b.outcomes().clone()),
    ];
    let (mut apart, mut largest) = (0.0f64, 0.0f64);
    for (a, b) in &pairs {
        for j in 0..a.cols() {
            for (x, y) in a.col(j).iter().zip(b.col(j)) {
                (apart, largest) = (apart.max((x - y).abs()), largest.max(x.abs()));
            }
        }
    }
    apart / largest
}

#[test]
fn sums_are_those_of_all_complete_rows_however_they_came() {
    let mut walk = Walk::new(Settings { drift_sensitivity: DriftSensitivity::Off, ..Settings::default() });
    walk.feed(400, 20);
    assert!(walk.learner.transitions().is_none(), "no refit has ended");
    walk.refit();
    walk.feed(300, 50);
    walk.feed(60, 1);
    let (world, expected) = (walk.world(), walk.batch_world(0..760, None));
    assert_eq!((world.rows(), expected.rows()), (722.0, 722.0));
    assert!(apart(&world, &expected) < 1e-12, "{}", apart(&world, &expected));
    assert!((world.lost().unwrap() - expected.lost().unwrap()).abs() < 1e-9);
}

#[test]
fn a_refit_begins_it_anew_with_rows_that_came_meanwhile() {
    let mut walk = Walk::new(Settings { drift_sensitivity: DriftSensitivity::Off, ..Settings::default() });
    walk.feed(400, 20);
    walk.learner.request_refit();
    let job = walk.learner.refit_job(&walk.window, walk.learner.refit_due().unwrap()).unwrap();
    walk.feed(200, 20);
    let mut candidate = refit::run(&job, &|| true).unwrap();
    candidate.catch_up(walk.learner.rows(&walk.window), &|| true).unwrap();
    walk.feed(40, 20);
    while let Verdict::Behind(behind) = walk.learner.try_adopt(candidate.clone(), &walk.window) {
        candidate = behind;
        candidate.catch_up(walk.learner.rows(&walk.window), &|| true).unwrap();
    }
    walk.feed(20, 20);
    assert!(apart(&walk.world(), &walk.batch_world(0..660, None)) < 1e-12);
}

#[test]
fn rows_are_forgotten_as_values_forget_them() {
    for (half_life, group) in [(100.0, 20), (1.0, 2000)] {
        let forgetting = Some(half_life);
        let mut walk =
            Walk::new(Settings { forgetting, drift_sensitivity: DriftSensitivity::Off, ..Settings::default() });
        walk.feed(400, 20);
        walk.refit();
        // More halvings than one unit of the sums has.
        walk.feed(4000, group);
        let learned = walk.learner.transitions().unwrap();
        let (world, expected) = (learned.world(), walk.batch_world(0..4400, forgetting));
        assert!(apart(world, &expected) < 1e-9, "{half_life}: {}", apart(world, &expected));
        assert!((learned.count() - expected.rows()).abs() < 1e-6 * expected.rows());
        let facts = walk.learner.world().unwrap();
        assert!((facts.count - expected.rows()).abs() < 1e-6 * expected.rows());
    }
}

#[test]
fn rows_of_all_policies_count_alike() {
    let mut walk = Walk::new(Settings { drift_sensitivity: DriftSensitivity::Off, ..Settings::default() });
    walk.feed(1000, 20);
    walk.refit();
    walk.learner.new_policy(1000, Some("another"));
    walk.feed(400, 20);
    walk.refit();
    walk.feed(20, 20);
    assert!(apart(&walk.world(), &walk.batch_world(0..1420, None)) < 1e-12, "{}", walk.world().rows());
}

#[test]
fn written_and_read_back_it_goes_on_bit_for_bit() {
    let mut walk = Walk::new(Settings { forgetting: Some(300.0), ..Settings::default() });
    walk.feed(400, 20);
    walk.refit();
    walk.feed(2200, 20);
    let bytes = rmp_serde::to_vec_named(&walk.learner).unwrap();
    let read: Learner = rmp_serde::from_slice(&bytes).unwrap();
    assert!(read.is_consistent() && read.transitions().is_some());
    let mut again = Walk { learner: read, window: walk.window.clone(), seen: Vec::new(), ..walk };
    let rows = again.rows;
    let mut first = Walk { learner: walk.learner, window: walk.window, seen: Vec::new(), ..again };
    (first.rows, again.rows) = (rows, rows);
    first.feed(1200, 40);
    again.feed(1200, 40);
    assert!(rmp_serde::to_vec_named(&first.learner).unwrap() == rmp_serde::to_vec_named(&again.learner).unwrap());
}

#[test]
fn it_plans_for_a_reward_that_no_row_had_and_its_reach_is_measured_by_rows_that_came() {
    let mut walk = Walk::new(Settings { drift_sensitivity: DriftSensitivity::Off, ..Settings::default() });
    walk.feed(400, 20);
    walk.refit();
    walk.feed(2400, 1200);
    let learned = walk.learner.transitions().unwrap();
    let dynamics = learned.solve().unwrap();
    let known = learned.known(&dynamics);
    // Be at 0.6; the rows were rewarded for 0.
    let reward = |numbers: &[f64]| -(numbers[0] - 0.6).abs();
    let planned = known.plan(Wanted::Known(&reward), 0.9, &learned.starts()).unwrap();
    for (x, best) in [(-0.8, 1), (0.0, 1), (0.3, 1), (0.95, 0)] {
        let q = planned.snapshot.evaluate(&[x, 1.0, 0.0, x, 0.0, 1.0], criticd_learner::snapshot::Ask::MEAN).unwrap();
        assert_eq!(usize::from(q.mean[1] > q.mean[0]), best, "at {x}: {:?}", q.mean);
    }
    assert!(planned.unsupported.unwrap() < 0.05 && planned.error.unwrap() > 0.0, "{planned:?}");
    // On the hull of C mass spreads, so that values are others; what is preferred is worth nearly as much by the model as it is.
    let on_hull = known.plan_on_hull(Wanted::Known(&reward), 0.9, &learned.starts()).unwrap();
    let (most, value) = (planned.value.unwrap(), on_hull.value.unwrap());
    assert!((value - most).abs() < 0.1 * most.abs() && on_hull.error.unwrap() > 0.0, "{value} {most}");
    assert!(on_hull.plan.settled() && on_hull.plan.values != planned.plan.values);
    // The policy that acted stays where it is, in the mean.
    let (elements, from) = (known.dynamics.after().states(), vec![0.1]);
    let (model, at) = (known.acted(&elements).unwrap(), known.acted(&from).unwrap());
    assert_eq!((model.shares.len(), at.shares.len()), (2 * elements.len(), 2), "each action once");
    assert!(model.shares.chunks_exact(2).all(|of| (of[0] + of[1] - 1.0).abs() < 1e-12 && of[0].min(of[1]) > 0.2));
    let led = dynamics.led(&model.motion().unwrap(), &at, &|state| state.to_vec(), (5, learned.ends())).unwrap();
    assert!((led.course[0].means[0] - 0.1).abs() < 0.1, "{:?}", led.course);
    // Along the actions that were taken a few steps are nearly certain.
    let reach = learned.reach(&|state| state.to_vec(), 1, 5).unwrap().expect("rows have come since");
    let error = reach.error(0, 0).unwrap();
    assert!(error.pairs > 50 && error.error < 0.1 * error.spread, "{error:?}");
    assert!(reach.steps(0).0 >= 3, "{reach:?}");
    // A policy by its answers: always to the right.
    let right = |_: usize| (vec![0.0, 1.0], vec![1.0]);
    let model = known.answered(&[0.0], &right, &elements).unwrap();
    let at = known.answered(&[0.0], &right, &from).unwrap();
    let valued = known.value(Wanted::Known(&reward), (0.9, 1.0), &model.motion().unwrap(), &at).unwrap();
    // From 0.1 it passes 0.6 and stays at 1, 0.4 away.
    let truth: f64 = (0..200).map(|t| 0.9f64.powi(t) * reward(&[(0.1 + 0.2 * f64::from(t)).min(1.0)])).sum();
    assert!((valued.value - truth).abs() < 0.15 * truth.abs(), "{valued:?}, {truth}");
}

#[test]
fn another_world_is_learned_from_its_own_rows() {
    // Whether the change, the alarm and the fork that takes over are in one group or in many.
    for (group, forgetting) in [(20, None), (6000, None), (6000, Some(2000.0))] {
        let mut walk =
            Walk::new(Settings { drift_sensitivity: DriftSensitivity::High, forgetting, ..Settings::default() });
        walk.feed(1000, 20);
        walk.refit();
        walk.feed(8000, 20);
        let changed_at = walk.learner.changed_at();
        (walk.sense, walk.more) = (-1.0, 1.0);
        walk.feed(6000, group);
        assert!(walk.learner.changed_at() > changed_at, "a fork has become the model");
        let dynamics = walk.learner.transitions().unwrap().solve().unwrap();
        let table = dynamics.table(&[0.0], &[1.0, 0.0]).unwrap();
        let to: f64 = (0..table.mass().rows()).map(|c| table.mass().at(c, 0) * dynamics.after().states()[c]).sum();
        assert!(to > 0.1, "the action that led to the left leads to the right: {to}");
    }
}

#[test]
fn a_refit_says_how_the_kernels_were_chosen_and_why_there_is_none() {
    let mut walk = Walk::new(Settings { drift_sensitivity: DriftSensitivity::Off, ..Settings::default() });
    walk.feed(400, 10);
    walk.learner.request_refit();
    let enough = walk.learner.refit_job(&walk.window, walk.learner.refit_due().unwrap()).unwrap();
    let found = refit::run(&enough, &|| true).unwrap();
    let choice = found.report.world.clone().unwrap().unwrap();
    assert!(choice.tried > 10 && !choice.out_of_time && choice.loss < 0.5 && choice.radius > 0.5, "{choice:?}");
    // Rows enough for values, and too few of one world.
    let few = RefitJob { world_from: enough.window.end() - 10, ..enough.clone() };
    let why = refit::run(&few, &|| true).unwrap().report.world.unwrap().unwrap_err();
    assert!(
        matches!(why, WorldError::Few { rows: 10, least: 16 }) && why.to_string().contains("send more rows"),
        "{why}"
    );
    let without = Settings { world: false, ..enough.settings.clone() };
    assert!(refit::run(&RefitJob { settings: without, ..enough }, &|| true).unwrap().report.world.is_none());
}

#[test]
fn choosing_kernels_ends_with_its_own_budget_and_keeps_the_best_so_far() {
    let mut walk = Walk::new(Settings { drift_sensitivity: DriftSensitivity::Off, ..Settings::default() });
    walk.feed(400, 20);
    walk.learner.request_refit();
    let job = walk.learner.refit_job(&walk.window, walk.learner.refit_due().unwrap()).unwrap();
    let chosen = |refit_budget_s: f64| {
        let settings = Settings { refit_budget_s, ..job.settings.clone() };
        let job = RefitJob { settings, ..job.clone() };
        let found = refit::run_within(&job, &|| true, &Allowance::unlimited()).unwrap();
        assert!(found.report.dictionary_size > 0);
        found.report.world.unwrap().unwrap()
    };
    let (none, some, all) = (chosen(1e-9), chosen(0.003), chosen(60.0));
    assert!(none.out_of_time && none.tried == 1, "the first is tried whatever the budget: {none:?}");
    assert!(some.out_of_time && some.tried > 1, "{some:?}");
    assert!(!all.out_of_time && all.tried > some.tried, "{all:?}");
    assert!(all.loss <= some.loss && some.loss <= none.loss && none.loss.is_finite(), "{none:?} {some:?} {all:?}");
    // What ends the search for values ends no choice of these kernels.
    let late = refit::run_within(&job, &|| true, &Allowance::none()).unwrap().report;
    assert!(late.out_of_time && !late.world.unwrap().unwrap().out_of_time);
}

#[test]
fn a_reward_that_the_sums_have_not_learned_is_learned_from_the_kept_rows() {
    let mut walk = Walk::new(Settings { drift_sensitivity: DriftSensitivity::Off, ..Settings::default() });
    walk.feed(400, 20);
    walk.refit();
    walk.feed(1200, 20);
    let mut learned = walk.learner.transitions().unwrap();
    // Where a row leads to: of its rewards the sums know only where it stands.
    let next = Cumulant::NextState(0);
    assert_eq!(learned.add_reward(&|of| next.by(&of).unwrap()), 1);
    let dynamics = learned.solve().unwrap();
    let table = dynamics.table(&[-0.5, 0.3], &[1.0, 0.0, 0.0, 1.0]).unwrap();
    for (entry, expected) in [-0.7, -0.3, 0.1, 0.5].into_iter().enumerate() {
        let (found, own) = (table.rewards().at(entry, 1), table.rewards().at(entry, 0));
        assert!((found - expected).abs() < 0.05, "{entry}: {found} for {expected}");
        assert!((own + [0.5, 0.5, 0.3, 0.3][entry]).abs() < 0.1, "the reward of the rows stays: {own}");
    }
    assert!(table.termination().iter().all(|share| share.abs() < 1e-9));
    let known = learned.known(&dynamics);
    let planned = known.plan(Wanted::Observed(1), 0.9, &learned.starts()).unwrap();
    let q = planned.snapshot.evaluate(&[-0.5, 1.0, 0.0, -0.5, 0.0, 1.0], criticd_learner::snapshot::Ask::MEAN).unwrap();
    assert!(q.mean[1] > q.mean[0] && planned.error.unwrap() > 0.0, "to the right: {:?}", q.mean);
}
