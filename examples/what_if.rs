//! How well a model of the transition plans, beside Q fitted to the same rows: `cargo run --release --example what_if -- [swingup |
//! mountain_car | cart_pole | quadrocopter] [--seeds 3] [--rows 4000] [--elements 300] [--states 150] [--noise 0.01] [--widths 1]
//! [--action-widths 1] [--discount D] [--candidates 0] [--lossy 0]`. Widths multiply the lengthscales.
//!
//! Rows are of random actions in chains of ten steps that begin anywhere. Kernels are the same for both and chosen by hand. One line for
//! each seed: the mean return (a car's are steps, negative) from 20 starts by fitted Q, by the plan for the reward that rows tell, by the
//! plan for the reward as an expression, and by the projected model; how often an action was preferred that rows do not support; the
//! mean value of a controller (the pendulum's damps, the car's pushes where it goes, the others' do what is to be done) by the model and
//! in the task; and the time in milliseconds of sums and solution, of the table, of the plan and of fitted Q.
//!
//! `cargo run --release --example what_if -- paper [TASK] [--runs 10]` repeats the experiments of *Compressed Conditional Mean Embeddings
//! for Model-Based Reinforcement Learning* (AAAI 2016) on mountain car, cart-pole and a quadrocopter, as far as they are known: tables,
//! and a picture of the return by the number of rows.

mod paper;

use clap::{Args, Parser, Subcommand};
use criticd::learner::action::ActionSpace;
use criticd::learner::random::{mix, uniform};
use criticd::math::dense::Matrix;
use criticd::math::pursuit::Pursuit;
use criticd::picture::{Axis, Curves, Figure, Line, Panel, Scale};
use criticd::snapshot::Inputs;
use criticd::world::{
    Basis, Dynamics, LOST_MAX, Plan, Planning, Pursuing, Table, UNSUPPORTED_ABOVE, World, WorldError,
};
use paper::embeddings::{Chosen, ITERATIONS, Iteration, Method, run};
use paper::planning::{Fitted, STARTS, Seen, Setting, by_pivots, numbers, preferred, settings, successors_by_pivots};
use paper::show::{self, Out};
use std::error::Error;
use std::time::Instant;

/// Steps after which nothing is left of a discounted reward.
const HORIZON: i32 = 2000;

#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    paper: Option<Mode>,
    /// Task, all without it
    task: Option<String>,
    #[command(flatten)]
    size: Size,
    /// How many seeds, from 0
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// What the lengthscales of the state are multiplied by
    #[arg(long, default_value_t = 1.0)]
    widths: f64,
    /// And of the action
    #[arg(long, default_value_t = 1.0)]
    action_widths: f64,
    /// Other than the task's own
    #[arg(long)]
    discount: Option<f64>,
}

#[derive(Clone, Copy, Args)]
struct Size {
    /// Rows of random actions
    #[arg(long, default_value_t = 4000)]
    rows: usize,
    /// Elements of D at most
    #[arg(long, default_value_t = 300)]
    elements: usize,
    /// Elements of C at most
    #[arg(long, default_value_t = 150)]
    states: usize,
    /// Noise variance, over the signal variance
    #[arg(long, default_value_t = 1e-2)]
    noise: f64,
    /// Choose D by matching pursuit among this number of rows; 0 for pivots
    #[arg(long, default_value_t = 0)]
    candidates: usize,
    /// Choose C as the lossy set of this squared distance; 0 for pivots
    #[arg(long, default_value_t = 0.0)]
    lossy: f64,
}

#[derive(Subcommand)]
enum Mode {
    /// The experiments of the paper
    Paper(Protocol),
}

#[derive(Args)]
struct Protocol {
    /// Task, all three without it
    task: Option<String>,
    /// How many runs
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(2..))]
    runs: u64,
    /// Rows in the last iteration, at most
    #[arg(long, default_value_t = 2000)]
    rows: usize,
    /// Elements of D in a compressed model and for fitted Q, at most
    #[arg(long, default_value_t = 200)]
    elements: usize,
    /// Distance from the hull of C up to which a successor does not join it
    #[arg(long, default_value_t = 0.2)]
    radius: f64,
    /// Noise variance, over the signal variance
    #[arg(long, default_value_t = 0.1)]
    noise: f64,
    /// What the lengthscales of the state are multiplied by
    #[arg(long, default_value_t = 1.0)]
    widths: f64,
    #[command(flatten)]
    out: Out,
}

/// The model and what its plans are made of.
struct Planner<'a> {
    of: &'a Setting,
    space: &'a ActionSpace,
    dynamics: &'a Dynamics,
    candidates: Vec<f64>,
}

impl Planner<'_> {
    /// Probabilities (n, A) of the policy to be judged at states (n, D), of the two candidates that its action lies between.
    fn judged(&self, states: &[f64]) -> Vec<f64> {
        let actions = numbers(self.space);
        let gap = actions[1] - actions[0];
        let of = |x: &[f64]| -> Vec<f64> {
            let action = (self.of.policy)(x);
            actions.iter().map(|a| (1.0 - (a - action).abs() / gap).max(0.0)).collect()
        };
        states.chunks_exact(self.of.lengths.len()).flat_map(of).collect()
    }

    /// Mean discounted return of the policy to be judged from the starts: by the model, and in the task.
    /// Not a number where the model refuses.
    fn judge(&self, at_c: &Table) -> Result<(f64, f64), Box<dyn Error>> {
        let mut all = self.of.starts();
        let states: Vec<f64> = all.iter().flat_map(|(_, state)| state.clone()).collect();
        let at = self.dynamics.table(&states, &self.candidates)?;
        let policy = self.judged(&self.dynamics.after().states());
        let value = match at_c.evaluate(&policy, at_c.rewards(), self.of.discount) {
            Ok(found) => {
                let q = found.action_values(&at, at.rewards())?;
                q.col(0).iter().zip(self.judged(&states)).map(|(q, p)| q * p).sum()
            }
            Err(WorldError::Unstable { .. }) => f64::NAN,
            Err(error) => return Err(error.into()),
        };
        let mut earned = 0.0;
        for (task, state) in &mut all {
            for step in 0..HORIZON {
                let found = task.step(&[(self.of.policy)(state)]);
                earned += self.of.discount.powi(step) * found.reward;
                *state = found.state;
                if found.terminated {
                    break;
                }
            }
        }
        Ok((value / STARTS as f64, earned / STARTS as f64))
    }

    /// Plan on the table of C: the return, the share of unsupported actions that were preferred, and the milliseconds.
    fn run(&self, at_c: &Table, known: bool, hull: Option<&Matrix>) -> Result<(f64, f64, f64), Box<dyn Error>> {
        let states = self.dynamics.after().states();
        let rewards = if known { self.of.known(self.space, &states) } else { at_c.rewards().col(0).to_vec() };
        let planning = Planning {
            rewards: &rewards,
            discount: self.of.discount,
            bounds: None,
            unsupported_above: Some(UNSUPPORTED_ABOVE),
        };
        let began = Instant::now();
        let plan = at_c.plan(&planning)?;
        let took = began.elapsed().as_secs_f64() * 1e3;
        let (mut far, mut all) = (0.0, 0.0);
        let earned = self.of.returns(&mut |states| {
            let at = self.dynamics.table(states, &self.candidates).expect("states of the task");
            let at = hull.map_or_else(|| at.clone(), |hull| at.projected(hull));
            let rewards = if known { self.of.known(self.space, states) } else { at.rewards().col(0).to_vec() };
            let q = plan.action_values(&at, &rewards).expect("as many rewards as entries");
            far += at.unsupported_share(UNSUPPORTED_ABOVE, Some(&Plan::policy(at.actions(), &q)));
            all += 1.0;
            preferred(self.space, &q)
        });
        Ok((earned, far / all, took))
    }
}

fn measure(of: &Setting, size: Size, seed: u64) -> Result<(), Box<dyn Error>> {
    let space = of.space();
    let mut seen = Seen::default();
    seen.gather(of, size.rows, seed, None);
    let (states, inputs) = (of.lengths.len(), of.lengths.len() + space.width());
    let (over_states, over_inputs) = of.kernels(space.width(), 1.0);
    let after = match size.lossy {
        0.0 => successors_by_pivots(&seen.successors, states, &over_states, size.states),
        distance => Basis::lossy(&Inputs::identity(states), &over_states, &seen.successors, (distance, size.states))?.0,
    };
    let before = match size.candidates {
        0 => by_pivots(&seen, &over_inputs, size.elements),
        candidates => {
            let pursuing = Pursuing { by: Pursuit::Orthogonal, candidates, enough: 0.0, seed };
            Basis::pursued(&Inputs::identity(inputs), &over_inputs, (&seen.rows(), &after), &pursuing, size.elements)?
        }
    };
    let q = Fitted::of(of, &seen, &before, size.noise)?;
    let fitted = of.returns(&mut |states| preferred(&space, &q.values(states)));
    let began = Instant::now();
    let mut world = World::new(before, after, 1)?;
    world.learn(&seen.rows())?;
    let dynamics = world.solve(size.noise, LOST_MAX)?;
    let learning = began.elapsed().as_secs_f64() * 1e3;
    let candidates = space.candidates();
    let began = Instant::now();
    let at_c = dynamics.table(&dynamics.after().states(), &candidates)?;
    let tabled = began.elapsed().as_secs_f64() * 1e3;
    let planner = Planner { of, space: &space, dynamics: &dynamics, candidates };
    let (observed, far, took) = planner.run(&at_c, false, None)?;
    let (known, ..) = planner.run(&at_c, true, None)?;
    let hull = dynamics.hull();
    let (projected, ..) = planner.run(&at_c.projected(&hull), false, Some(&hull))?;
    let (judged, truth) = planner.judge(&at_c)?;
    let (d, m) = (dynamics.before().len(), dynamics.after().len());
    println!(
        "{:12} {seed:4} {d:4} {m:4} {:6.3} {fitted:8.1} {observed:8.1} {known:8.1} {projected:8.1} {:5.1} % {judged:7.2} {truth:7.2} {learning:7.0} {tabled:6.0} {took:6.1} {:7.0}",
        of.name,
        world.lost().unwrap_or(0.0),
        100.0 * far,
        q.took,
    );
    Ok(())
}

/// All runs of a task: for each method (3,), each run and each iteration.
type Runs = Vec<Vec<Vec<Iteration>>>;

/// What a table says of an iteration of all runs of a method; none where there was no such iteration.
type Told<'a> = &'a dyn Fn(&[Vec<Iteration>], usize) -> Option<String>;

/// Mean over runs, and its standard error.
fn over_runs(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    (mean, (squares / (n - 1.0) / n).sqrt())
}

/// Of an iteration of a method, `what` of each run; none where the method had no such iteration.
fn each(runs: &[Vec<Iteration>], iteration: usize, what: &dyn Fn(&Iteration) -> f64) -> Option<Vec<f64>> {
    runs.iter().map(|run| run.get(iteration).map(what)).collect()
}

fn repeat(of: &Setting, protocol: &Protocol) -> Result<Runs, Box<dyn Error>> {
    let began = Instant::now();
    let mut out = Runs::new();
    for method in Method::ALL {
        let Protocol { rows, elements, radius, noise, .. } = *protocol;
        let by = Chosen { rows, elements, radius, noise };
        out.push((0..protocol.runs).map(|seed| run(of, method, by, seed)).collect::<Result<_, _>>()?);
        eprintln!("{}, {} done after {:.0} s", of.name, method.name(), began.elapsed().as_secs_f64());
    }
    Ok(out)
}

fn print_runs(of: &Setting, runs: &Runs) {
    let mut hand = |states: &[f64]| -> Vec<f64> { states.chunks_exact(of.lengths.len()).map(of.policy).collect() };
    let (space, mut draws) = (of.space(), 0);
    let mut random = |states: &[f64]| -> Vec<f64> {
        let actions = numbers(&space);
        let mut draw = |_: &[f64]| {
            draws += 1;
            actions[(uniform(mix(&[7, draws])) * actions.len() as f64) as usize]
        };
        states.chunks_exact(of.lengths.len()).map(&mut draw).collect()
    };
    let (random, hand) = (of.returns(&mut random), of.returns(&mut hand));
    println!("{}: return of random actions {random:.1}, of the policy by hand {hand:.1}\n", of.name);
    let names = Method::ALL.map(Method::name);
    let head: Vec<&str> = std::iter::once("rows").chain(names).collect();
    let kinds: [(&str, Told<'_>); 4] = [
        ("return, with its standard error", &|runs, k| {
            let (mean, error) = over_runs(&each(runs, k, &|of| of.earned)?);
            Some(format!("{mean:.1} ± {error:.1}"))
        }),
        ("planning, ms (learning)", &|runs, k| {
            let of = |what: &dyn Fn(&Iteration) -> f64| Some(over_runs(&each(runs, k, what)?).0);
            Some(format!("{:.0} ({:.0})", of(&|of| of.planning)?, of(&|of| of.learning)?))
        }),
        ("elements of D, of C", &|runs, k| {
            let of = |what: &dyn Fn(&Iteration) -> f64| Some(over_runs(&each(runs, k, what)?).0);
            Some(format!("{:.0}, {:.0}", of(&|of| of.elements.0 as f64)?, of(&|of| of.elements.1 as f64)?))
        }),
        ("bandwidth (least to greatest)", &|runs, k| Some(show::over_seeds(each(runs, k, &|of| of.bandwidth)?))),
    ];
    for (what, cell) in kinds {
        println!("{what}\n");
        let mut table = show::Table::new(&head);
        for (k, rows) in ITERATIONS.iter().enumerate() {
            let cells = runs.iter().map(|runs| cell(runs, k).unwrap_or_default());
            table.row(std::iter::once(rows.to_string()).chain(cells));
        }
        table.print();
        println!();
    }
}

/// Return by rows, with a band of two standard errors.
fn draw(of: &Setting, runs: &Runs) -> Panel {
    let line = |(method, runs): (Method, &Vec<Vec<Iteration>>)| {
        let found = |k: usize| each(runs, k, &|of| of.earned).map_or((f64::NAN, f64::NAN), |all| over_runs(&all));
        let (mean, deviation) = (0..ITERATIONS.len()).map(found).unzip();
        Line { label: method.name().into(), mean, deviation: Some(deviation), dashed: method == Method::Fitted }
    };
    Panel::Curves(Curves {
        title: of.name.replace('_', " "),
        x: Axis::new("rows", 0.0, ITERATIONS[ITERATIONS.len() - 1] as f64),
        y_label: "return".into(),
        y_scale: Scale::Linear,
        y_range: None,
        at: ITERATIONS.map(|rows| rows as f64).to_vec(),
        lines: Method::ALL.into_iter().zip(runs).map(line).collect(),
        fade: None,
        points: Vec::new(),
    })
}

fn chosen(task: Option<&String>, among: &[&str]) -> Result<Vec<Setting>, String> {
    if let Some(task) = task.filter(|task| !among.contains(&task.as_str())) {
        return Err(format!("there is no task {task}, but {}", among.join(", ")));
    }
    let wanted = |of: &Setting| among.contains(&of.name) && task.is_none_or(|task| task == of.name);
    Ok(settings().into_iter().filter(wanted).collect())
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    if let Some(Mode::Paper(protocol)) = &options.paper {
        protocol.out.prepare();
        let mut panels = Vec::new();
        for mut of in chosen(protocol.task.as_ref(), &["mountain_car", "cart_pole", "quadrocopter"])? {
            of.lengths.iter_mut().for_each(|length| *length *= protocol.widths);
            let runs = repeat(&of, protocol)?;
            print_runs(&of, &runs);
            panels.push(draw(&of, &runs));
        }
        let columns = panels.len();
        protocol.out.write("embeddings.png", &Figure { panels }, columns);
        return Ok(());
    }
    println!(
        "task         seed    d    m   lost   fitted     plan    known  project    far   value    true     fit  table   plan  fitted"
    );
    for mut of in chosen(options.task.as_ref(), &["swingup", "mountain_car", "cart_pole", "quadrocopter"])? {
        of.lengths.iter_mut().for_each(|length| *length *= options.widths);
        of.action_length *= options.action_widths;
        of.discount = options.discount.unwrap_or(of.discount);
        for seed in 0..options.seeds {
            measure(&of, options.size, seed)?;
        }
    }
    Ok(())
}
