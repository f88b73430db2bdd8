//! `criticd fit`.

mod heads;

use super::actions::{ActionOptions, Learned, OfActions};
use super::given::{self, DictionaryOptions, TABLES, TableOptions};
use super::held_out::{self, HeldOut, Like};
use super::inspect::{describe, names};
use super::output::{Progress, facts, in_file, number, print, print_json};
use super::{Failure, score};
use criticd::learner::action::{ActionValue, Successor};
use criticd::learner::batch::{Given, Selection};
use criticd::learner::heads::HeadSelection;
use criticd::learner::improve::{Improved, Improvement};
use criticd::learner::model::Model;
use criticd::learner::refit::{self, RefitError, RefitReport, RefitTrigger, SelectionReport};
use criticd::learner::window::Window;
use criticd::learner::{
    Alarm, DriftSensitivity, KernelKind, Lambda, Learner, SelectBy, SelectionKind, Settings, VarianceKind,
};
use criticd::math::embedding::StateKind;
use criticd::math::evidence::Evidence;
use criticd::math::kernel::{Metric, NoiseModel, Profile};
use criticd::math::sensitivity::total_indices;
use criticd::snapshot::{Ask, Evaluator, Snapshot};
use criticd::table::Table;
use criticd::telemetry::ProcessorTime;
use criticd::transition::Rows;
use criticd::wire::{self, ArrayForm, encode_snapshot, hyperparameters_to_json, refit_report_to_json};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Share of the episodes that is held out unless another is named.
const HOLD_OUT: f64 = 0.1;
/// States at which the shares of the variables are estimated.
const SAMPLES: usize = 2000;
/// Trace gap, in nats, from which a dictionary is coarse for its table.
const TRACE_GAP: f64 = 5.0;
/// Randomised copies of an improved Q, by which Thompson sampling acts.
const COPIES: usize = 8;
/// Variables that are named with their shares.
const SHOWN: usize = 12;

/// Learn a value function from a table of transitions: model selection, then the posterior
///
/// A chain that is cut, or still runs at the end of the table, ends in the value of its last next state. The model is the
/// posterior through a dictionary; with all distinct states in the dictionary it is the exact posterior.
#[derive(Debug, clap::Args)]
#[command(
    after_help = format!(
        "Examples:\n  criticd fit walk.csv --out walk.msgpack\n  criticd fit walk.csv --discount 0.95 --kernel isotropic --out walk.msgpack --json > walk.json\n  criticd fit walk.csv --hyperparameters walk.json --no-optimise --out again.msgpack\n  criticd fit hopper.hdf5 --out hopper.msgpack\n  criticd fit arm.npz --assume-terminated never --out arm.msgpack\n  criticd fit arm.npz --heads heads.toml --out arm.msgpack\n  criticd fit points.csv --state x --target y --out points.msgpack\n  criticd fit walk.csv --lambda 1 --variance clustered --dictionary-max 500 --out walk.msgpack\n\n{TABLES}"
    )
)]
pub(crate) struct Fit {
    #[command(flatten)]
    table: TableOptions,
    /// Write the value function here (MessagePack; `value` and `inspect` read it)
    #[arg(long, value_name = "MODEL", required_unless_present = "dry_run")]
    out: Option<PathBuf>,
    /// Kernel: isotropic (one lengthscale), ard (one for each state variable), factor or factor:K (directions across
    /// them, K of them), or auto (whichever of these the data support, without irrelevant variables) [default: ard]
    #[arg(long, value_name = "KERNEL", value_parser = kernel)]
    kernel: Option<KernelChoice>,
    /// Decay of the kernel with distance: matern52 (value functions with kinks) or gaussian (smooth ones)
    /// [default: matern52; with --no-optimise that of the file]
    #[arg(long, value_name = "PROFILE", value_parser = profile)]
    kernel_profile: Option<Profile>,
    /// Kind of each state variable, separated by commas: real, periodic:P (repeats after P, in its own unit) or category
    /// (equal or different, never near) [default: all real]
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    state_kinds: Vec<StateKind>,
    /// Independent noise of returns (correlated) or of rewards (white: only for deterministic transitions; it selects by
    /// evidence with lambda 1) [default: correlated]
    #[arg(long, value_name = "NOISE")]
    noise: Option<NoiseChoice>,
    #[command(flatten)]
    heads: heads::HeadOptions,
    /// Learn what this column is where the state is, and nothing of the future: Gaussian-process regression. Rows need no
    /// order, no end and no successor. Same as reward COLUMN, discount 0, --selection evidence, --variance model
    #[arg(long, value_name = "COLUMN", conflicts_with_all = ["discount", "selection", "lambda", "reward"])]
    target: Option<String>,
    /// Discount of transitions without one of their own
    #[arg(long, value_name = "G", default_value_t = Settings::default().discount, value_parser = given::discount)]
    discount: f64,
    /// With --selection evidence, the evidence that selects: exact, of all transitions; sparse, the variational bound of
    /// all transitions through a dictionary; auto, the exact evidence of at most --evidence-rows transitions, then, if there
    /// are more, the bound of all
    #[arg(long, value_name = "WHICH", default_value = "auto")]
    evidence: EvidenceChoice,
    /// With --evidence auto: transitions of the exact evidence
    #[arg(long, value_name = "N", default_value_t = Settings::default().evidence_rows, value_parser = given::at_least_one)]
    evidence_rows: usize,
    /// Smallest noise variance, relative to that of the targets; lower it only for deterministic transitions
    #[arg(long, value_name = "F", default_value_t = Settings::default().noise_floor, value_parser = given::positive)]
    noise_floor: f64,
    #[command(flatten)]
    action: ActionOptions,
    #[command(flatten)]
    dictionary: DictionaryOptions,
    /// lambda of the lambda-returns: 0 (one reward and the value of the next state) to 1 (whole returns), or auto:
    /// selected with the kernel [default: auto; with --no-optimise that of the file, else 1]
    #[arg(long, value_name = "L", value_parser = given::lambda)]
    lambda: Option<Lambda>,
    /// Largest importance ratio: a transition has the weight target_prob / behavior_prob, clipped at this limit
    #[arg(long, value_name = "R", default_value = "inf", value_parser = given::limit)]
    rho_max: f64,
    /// Forget: the weight of a transition k rows ago, rows of all streams counted, is F^k, F above 0 and at most 1. The prior
    /// keeps its weight. off, or 1, weights all rows equally. The last 8 half-lives select the model. The reported evidence
    /// is that of weighted transitions: it is no probability, and values for different F cannot be compared
    #[arg(long, value_name = "F", default_value = "off", value_parser = given::forgetting)]
    forgetting: f64,
    /// Learn the value of this policy from its rows alone, by its name in the column `policy` [default: where there is such a
    /// column, the policy of the last row]
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Sensitivity to a change of the world inside the table: off, low, normal or high. If the rows since the last change
    /// predict returns better without the rows before, the model learns them alone, and the output says so. Use off if the
    /// table holds several policies one after the other and you want their mean. Rows of other streams than those before are
    /// no change [default: normal; with --no-optimise, --heads or actions off]
    #[arg(long, value_name = "HOW", conflicts_with = "no_optimise")]
    drift_sensitivity: Option<SensitivityChoice>,
    /// Criterion of model selection: returns (kernel, lambda and ridge together, by their prediction of held-out returns) or
    /// evidence (kernel and noise by the marginal likelihood; lambda is then 1 unless given)
    #[arg(long, value_name = "WHICH", default_value = "returns")]
    selection: SelectionChoice,
    /// Variance of the value: rows (from the temporal-difference error of each transition), clustered (from pieces of
    /// chains, if the state may hide something) or model (that of the Gaussian process, too small if transitions are
    /// noisy) [default: rows; with --no-optimise model]
    #[arg(long, value_name = "WHICH")]
    variance: Option<VarianceChoice>,
    /// Seed of the search
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Processor time of the search on each of its threads; the best model found by then wins
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = given::positive)]
    budget: f64,
    /// Threads of the search; the result does not depend on their number, unless the budget ends
    /// [default: one for each core]
    #[arg(long, value_name = "N", value_parser = given::threads)]
    threads: Option<usize>,
    /// With --no-optimise: a JSON or TOML file with kernel and noise, in the coordinates of the table unless it has
    /// `inputs`
    #[arg(long, value_name = "FILE", requires = "no_optimise")]
    hyperparameters: Option<PathBuf>,
    /// Use the given hyperparameters without model selection
    #[arg(long, requires = "hyperparameters")]
    no_optimise: bool,
    /// Share of the episodes held out to test the predictions; 0 for none. The written model learns from all episodes, and
    /// all episodes select kernel, noise and lambda [default: 0.1; with --no-optimise 0]
    #[arg(long, value_name = "F", value_parser = given::share)]
    hold_out: Option<f64>,
    /// Also print evidence, search and lengthscales
    #[arg(long)]
    verbose: bool,
    /// Print one JSON document, which is also a hyperparameter file
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum KernelChoice {
    Isotropic,
    Ard,
    /// With how many directions, if that was said.
    Factor(Option<usize>),
    Auto,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum NoiseChoice {
    Correlated,
    White,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum EvidenceChoice {
    Exact,
    Sparse,
    Auto,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum VarianceChoice {
    Rows,
    Clustered,
    Model,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum SelectionChoice {
    Returns,
    Evidence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum SensitivityChoice {
    Off,
    Low,
    Normal,
    High,
}

fn kernel(text: &str) -> Result<KernelChoice, String> {
    match text {
        "isotropic" => Ok(KernelChoice::Isotropic),
        "ard" => Ok(KernelChoice::Ard),
        "auto" => Ok(KernelChoice::Auto),
        "factor" => Ok(KernelChoice::Factor(None)),
        _ => match text.strip_prefix("factor:").map(str::parse) {
            Some(Ok(k)) if k > 0 => Ok(KernelChoice::Factor(Some(k))),
            _ => Err("isotropic, ard, factor, factor:K or auto".into()),
        },
    }
}

fn profile(text: &str) -> Result<Profile, String> {
    Profile::from_name(text).ok_or_else(|| "gaussian or matern52".into())
}

/// Why a lambda below 1 is refused beside white noise.
const WHITE_LAMBDA: &str = "--lambda: white noise has no use for it, leave it out";

/// A model, and how it came about.
pub(super) struct Fitted {
    pub(super) model: Model,
    selected: Option<(Selection, f64)>,
    report: Option<RefitReport>,
    /// How the kernel was chosen, where heads have chosen it.
    chosen_by_heads: Option<HeadSelection>,
    /// The change of the world whose rows before it were left out.
    change: Option<Alarm>,
}

impl Fitted {
    /// Number of the first row of the table that it has learned.
    fn first(&self) -> usize {
        self.change.as_ref().map_or(0, |change| change.finding.since as usize)
    }
}

/// What is said of a model in the words of those who have the table.
struct Answer {
    held_out: Option<HeldOut>,
    /// Share of the variance of V that each state variable explains (D,).
    shares: Vec<f64>,
}

impl Fit {
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        if let Some(target) = &self.target {
            self.table.regress_on(target);
            self.discount = 0.0;
            self.selection = SelectionChoice::Evidence;
            self.variance = self.variance.or(Some(VarianceChoice::Model));
        }
        if self.table.dry(self.json)? {
            return Ok(());
        }
        self.check()?;
        let started = Instant::now();
        let learned = Learned::of(&self.action, &self.table.table, self.of_policy(self.table.read()?)?, self.rho_max)?;
        let Learned { mut rows, episodes, names, of_actions } = learned;
        let asked = self.lambda;
        if let Some(actions) = &of_actions {
            self.lambda = self.action.lambda(&actions.of, &actions.columns, asked)?;
        }
        let exact = match self.evidence {
            EvidenceChoice::Exact => true,
            EvidenceChoice::Sparse => false,
            EvidenceChoice::Auto => rows.len() <= self.evidence_rows,
        };
        if exact {
            given::check_exact(&rows)?;
        }
        let mut settings = self.settings(&rows)?;
        settings.action_value = of_actions.as_ref().map(|actions| actions.of.clone());
        settings.heads = self.heads.read(&rows, self.discount, &self.table.table)?;
        self.check_heads(&settings)?;
        let progress = Progress::start(if self.no_optimise { "solving" } else { "selecting a model" });
        let mut fitted = match (&self.hyperparameters, &of_actions) {
            (Some(path), _) => self.take(path, &rows, &settings, names)?,
            (None, Some(OfActions { of, acted: Some(acted), .. })) => {
                let forced = std::mem::replace(&mut self.lambda, asked);
                settings.action_value = Some(of.on_policy());
                let selected = self.search(acted, settings, names)?;
                self.relearn(selected, &rows, of, forced)?
            }
            (None, _) if !settings.heads.is_empty() => heads::select(&self, &rows, settings, names)?,
            (None, _) => self.search(&rows, settings, names)?,
        };
        let improved = match &of_actions {
            Some(actions) if actions.of.successor == Successor::Improve => {
                let improved = self.improve(&mut fitted, &rows, &actions.of)?;
                rows.clone_from(&improved.rows);
                Some(improved)
            }
            _ => None,
        };
        let (offset, first) = (rows.len() as u64, fitted.first());
        let (rows, episodes) = if first > 0 { since(&rows, &episodes, first) } else { (rows, episodes) };
        let model = &fitted.model;
        let hyperparameters = model.hyperparameters();
        let given = Given {
            settings: model.settings(),
            rows: &rows,
            inputs: model.inputs(),
            hyperparameters: &hyperparameters,
            lambda: model.lambda(),
            first: first as u64,
        };
        let exact = exact && !model.statistics().follows_rows && !model.statistics().forgets();
        let evidence = if exact { given.exact_evidence(&|| true) } else { given.sparse_evidence(model, &|| true) };
        let evidence = evidence.map_err(|e| in_file(&self.table.table, e))?;
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        let mut snapshot = Snapshot {
            generation: 1,
            offset,
            time,
            ..model.snapshot(true).map_err(|e| in_file(&self.table.table, e))?
        };
        if let Some(improved) = &improved {
            improved.act_by(&mut snapshot);
        }
        let bytes = encode_snapshot(&snapshot, ArrayForm::Tensor, true);
        write(self.out(), &bytes)?;
        // Returns are there for the policy that acted, and for no other.
        let acted = of_actions.as_ref().is_none_or(|actions| actions.acted.is_none());
        let answer = Answer {
            held_out: if acted { self.held_out(&fitted.model, &rows, &episodes) } else { None },
            shares: shares(&snapshot, &rows.states, self.seed),
        };
        drop(progress);
        let seconds = started.elapsed().as_secs_f64();
        if self.json {
            let mut document = self.document(&fitted, &snapshot, &evidence, exact, seconds);
            document["explained"] = json!(answer.shares);
            if let Some(held_out) = &answer.held_out {
                document["held_out"] = held_out.document();
            }
            if let Some(actions) = &of_actions {
                actions.describe(&mut document);
            }
            if let Some(improved) = &improved {
                document["improvement"] = improvement(improved);
            }
            heads::add_to(&mut document, &fitted, &snapshot)?;
            return print_json(&document);
        }
        let details = self.text(&fitted, &rows, &snapshot, &evidence, exact, seconds);
        let said = improved.as_ref().map(improvement_text).unwrap_or_default();
        let heads = heads::text(&fitted.model, &snapshot)?;
        print(&(said + &self.answer(&answer, &snapshot, &fitted) + &heads + &details))
    }

    /// What heads rule out.
    fn check_heads(&self, settings: &Settings) -> Result<(), Failure> {
        if settings.heads.is_empty() {
            return Ok(());
        }
        if self.noise == Some(NoiseChoice::White) {
            return Err(Failure::usage("--heads: white noise knows no returns, heads want correlated noise"));
        }
        if settings.action_value.is_some() {
            return Err(Failure::usage(
                "--heads: heads are of states, they cannot be learned beside values of actions",
            ));
        }
        Ok(())
    }

    /// The rows of the table that are learned: all of them, or those of one policy.
    fn of_policy(&self, mut table: Table) -> Result<Table, Failure> {
        let (acted, names) = (table.policy_of_rows(), table.policies());
        let Some(&last) = acted.last() else {
            return match &self.policy {
                None => Ok(table),
                Some(name) => Err(Failure::usage(format!("--policy {name}: no row of the table names a policy"))),
            };
        };
        let unknown = |name| Failure::usage(format!("--policy {name}: the table has {}", names.join(", ")));
        let wanted = match &self.policy {
            None => last,
            Some(name) => names.iter().position(|known| known == name).ok_or_else(|| unknown(name))?,
        };
        let count = acted.iter().filter(|&&policy| policy == wanted).count();
        if count < acted.len() {
            eprintln!(
                "criticd: the value is that of policy {}: its {count} rows of {} are learned (--policy names another)",
                names[wanted],
                acted.len()
            );
            table.keep(|i| acted[i] == wanted);
        }
        Ok(table)
    }

    /// What is learned and how, before anything is selected.
    pub(super) fn settings(&self, rows: &Rows) -> Result<Settings, Failure> {
        let settings = Settings {
            dictionary_max: self.dictionary.dictionary_max,
            variance: match self.variance {
                Some(VarianceChoice::Rows) => VarianceKind::Rows,
                Some(VarianceChoice::Clustered) => VarianceKind::Clustered,
                Some(VarianceChoice::Model) => VarianceKind::Model,
                None if self.no_optimise => VarianceKind::Model,
                None => VarianceKind::Rows,
            },
            rho_max: self.rho_max,
            forgetting: self.forgetting,
            profile: self.kernel_profile.unwrap_or(Settings::default().profile),
            state_kinds: self.action.kinds(&self.state_kinds, rows.dim),
            ..given::settings(rows, self.discount)
        };
        settings.check_dim(rows.dim).map_err(|what| Failure::usage(format!("--state-kinds: {what}")))?;
        Ok(settings)
    }

    /// Where the model goes; asked for only where one is made.
    fn out(&self) -> &Path {
        self.out.as_deref().unwrap_or(Path::new(""))
    }

    /// How well held-out episodes are predicted, where that was asked for and there are enough.
    fn held_out(&self, model: &Model, rows: &Rows, episodes: &[u32]) -> Option<HeldOut> {
        let share = self.hold_out.unwrap_or(if self.no_optimise { 0.0 } else { HOLD_OUT });
        if share == 0.0 {
            return None;
        }
        match held_out::hold_out(&Like::of(model), rows, episodes, share, self.seed, &self.dictionary) {
            Ok(found) => found,
            // The model is there all the same.
            Err(failure) => {
                eprintln!("criticd: held-out episodes: {}", failure.message);
                None
            }
        }
    }

    /// How well it predicts, what matters, and what to do next.
    fn answer(&self, answer: &Answer, snapshot: &Snapshot, fitted: &Fitted) -> String {
        let names = names(snapshot);
        let mut text = match &answer.held_out {
            Some(held_out) => held_out.text(),
            None if self.hold_out == Some(0.0) || (self.no_optimise && self.hold_out.is_none()) => String::new(),
            None => "prediction error unknown: there are too few episodes to hold one out\n".to_owned(),
        };
        if fitted.change.is_some() {
            let (first, rows) = (fitted.first() as u64, snapshot.offset);
            let since = rows - first;
            text = format!(
                "the world changes about row {first} of {rows}: the model has learned the {since} rows since, which predict \
                 returns better without those before\n{text}"
            );
        }
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.sort_by(|&a, &b| answer.shares[b].total_cmp(&answer.shares[a]));
        let share = |&d: &usize| format!("{} {:.0} %", names[d], 100.0 * answer.shares[d]);
        let shown: Vec<String> = order.iter().take(SHOWN).map(share).collect();
        let more =
            if order.len() > SHOWN { format!(", and {} others less", order.len() - SHOWN) } else { String::new() };
        text += &format!("value depends on: {}{more}\n", shown.join(", "));
        let states = names.len() - snapshot.actions.as_ref().map_or(0, |actions| actions.space.width());
        let idle: Vec<&str> = (0..states).filter(|&d| answer.shares[d] < 0.005).map(|d| names[d].as_str()).collect();
        let mut advice = Vec::new();
        if fitted.change.is_some() {
            advice.push(
                "if the table holds several policies one after the other, name them in a column policy; --drift-sensitivity off \
                 learns from all rows",
            );
        }
        if let Some(head) = answer.held_out.as_ref().and_then(|held_out| held_out.heads.first()) {
            if head.coverage.is_some_and(|coverage| coverage < 0.8) {
                advice.push(
                    "intervals are too narrow: the state may hide something; add what is missing, or --variance clustered",
                );
            }
            if head.correlation < 0.5 {
                advice
                    .push("the model predicts little: check reward, --discount and --dry-run, or add state variables");
            }
        }
        let full =
            snapshot.dictionary.nrows() >= self.dictionary.dictionary_max && self.dictionary.dictionary.is_none();
        if full && self.trace_gap(fitted).is_some_and(|gap| gap > TRACE_GAP) {
            advice.push("the dictionary is full: a larger --dictionary-max may predict better");
        }
        if fitted.report.as_ref().is_some_and(|report| report.out_of_time) {
            advice.push("the search ran out of time: a larger --budget may find a better model");
        }
        let idle = (!idle.is_empty() && idle.len() < names.len())
            .then(|| format!("{} could be removed: the value does not depend on it", idle.join(", ")));
        for line in advice.into_iter().map(str::to_owned).chain(idle) {
            text += &format!("advice: {line}\n");
        }
        text + "\n"
    }

    /// What cannot be asked for.
    fn check(&self) -> Result<(), Failure> {
        if self.dictionary.dictionary.is_some() && self.dictionary.tolerance.is_some() {
            return Err(Failure::usage("--tolerance is for selecting a dictionary, --dictionary gives one"));
        }
        if self.out().is_dir() {
            return Err(Failure::usage(format!("--out {}: a directory; name a file in it", self.out().display())));
        }
        // Better now than after an hour's search.
        if let Some(parent) = self.out().parent().filter(|p| !p.as_os_str().is_empty() && !p.is_dir()) {
            return Err(Failure::usage(format!("--out: there is no directory {}", parent.display())));
        }
        Ok(())
    }

    /// The posterior of the hyperparameters in the file.
    fn take(
        &self,
        path: &Path,
        rows: &Rows,
        settings: &Settings,
        names: Option<Vec<String>>,
    ) -> Result<Fitted, Failure> {
        let (hyperparameters, mut inputs, written) = given::read_hyperparameters(path, rows.dim)?;
        inputs.names = names.or(inputs.names);
        let lambda = match self.lambda {
            Some(Lambda::Fixed(lambda)) => lambda,
            Some(Lambda::Auto) => {
                return Err(Failure::usage("--lambda auto selects one, which --no-optimise rules out: name it"));
            }
            None => written.unwrap_or(1.0),
        };
        if lambda < 1.0 && hyperparameters.noise == NoiseModel::White {
            return Err(Failure::usage(WHITE_LAMBDA));
        }
        self.check_noise(hyperparameters.noise, rows)?;
        let metric = &hyperparameters.kernel.metric;
        let same_kernel = match &self.kernel {
            None | Some(KernelChoice::Auto) => true,
            Some(KernelChoice::Isotropic) => matches!(metric, Metric::Isotropic(_)),
            Some(KernelChoice::Ard) => matches!(metric, Metric::Ard(_)),
            Some(KernelChoice::Factor(k)) => {
                matches!(metric, Metric::Factor { factors, .. } if k.is_none_or(|k| k == factors.len()))
            }
        };
        if !same_kernel {
            let message = format!("--kernel contradicts {}: omit it", path.display());
            return Err(Failure::usage(message));
        }
        let kernel = &hyperparameters.kernel;
        if self.kernel_profile.is_some_and(|profile| profile != kernel.profile) {
            let message = format!("--kernel-profile contradicts {}: omit it", path.display());
            return Err(Failure::usage(message));
        }
        if !self.state_kinds.is_empty() && (0..rows.dim).any(|d| self.state_kinds[d] != kernel.kind_of(d)) {
            let message = format!("--state-kinds contradicts {}: omit it", path.display());
            return Err(Failure::usage(message));
        }
        if self.noise.is_some_and(|noise| noise.model() != hyperparameters.noise) {
            return Err(Failure::usage(format!("--noise contradicts {}: omit it", path.display())));
        }
        let given = Given { settings, rows, inputs: &inputs, hyperparameters: &hyperparameters, lambda, first: 0 };
        let chosen = self.dictionary.choose(&given)?;
        let mut model = given.model(chosen.dictionary, &|| true)?;
        finish(&mut model, rows);
        Ok(Fitted { model, selected: chosen.selected, report: None, chosen_by_heads: None, change: None })
    }

    /// The value of another policy, or of a better one, under the kernel that was selected by the returns of the one that acted.
    fn relearn(
        &self,
        selected: Fitted,
        rows: &Rows,
        of: &ActionValue,
        lambda: Option<Lambda>,
    ) -> Result<Fitted, Failure> {
        let (inputs, hyperparameters) = (selected.model.inputs(), selected.model.hyperparameters());
        let lambda = match lambda {
            Some(Lambda::Fixed(lambda)) => lambda,
            _ => selected.model.lambda(),
        };
        let settings = Settings {
            action_value: Some(of.clone()),
            lambda: Lambda::Fixed(lambda),
            estimate_scale: false,
            ..selected.model.settings().clone()
        };
        let given = Given { settings: &settings, rows, inputs, hyperparameters: &hyperparameters, lambda, first: 0 };
        let mut model = given.model(self.dictionary.choose(&given)?.dictionary, &|| true)?;
        finish(&mut model, rows);
        Ok(Fitted { model, ..selected })
    }

    /// Sweeps of improvement; the model becomes the one that follows the actions they prefer, which says how sure values are.
    fn improve(&self, fitted: &mut Fitted, rows: &Rows, of: &ActionValue) -> Result<Improved, Failure> {
        if rows.rewards_per_row > 1 {
            return Err(Failure::usage(
                "--successor improve: the best action is that of one reward, the table has several",
            ));
        }
        if self.forgetting.is_finite() {
            return Err(Failure::usage("--successor improve learns from all rows alike: leave out --forgetting"));
        }
        let model = &fitted.model;
        let improvement = Improvement { model, rows, space: &of.space, before: None, copies: COPIES, seed: self.seed };
        let improved = improvement.run(&|| true)?;
        let hyperparameters = model.hyperparameters();
        let given = Given {
            settings: model.settings(),
            rows: &improved.rows,
            inputs: model.inputs(),
            hyperparameters: &hyperparameters,
            lambda: 0.0,
            first: 0,
        };
        let mut better = given.model(model.dictionary().clone(), &|| true)?;
        finish(&mut better, &improved.rows);
        fitted.model = better;
        Ok(improved)
    }

    /// Model selection, by the code that the daemon runs in the background.
    pub(super) fn search(
        &self,
        rows: &Rows,
        settings: Settings,
        names: Option<Vec<String>>,
    ) -> Result<Fitted, Failure> {
        let varies = |d: usize| (1..rows.len()).any(|i| rows.state(i)[d] != rows.state(0)[d]);
        let name = |d: usize| names.as_ref().map_or_else(|| format!("state_{d}"), |names| names[d].clone());
        let constant: Vec<String> = (0..rows.dim).filter(|&d| !varies(d)).map(name).collect();
        if constant.len() == rows.dim {
            let message = "every transition starts in the same state, so values cannot differ";
            return Err(in_file(&self.table.table, message));
        }
        if !constant.is_empty() {
            eprintln!("criticd: {} never changes: its effect cannot be learned", constant.join(", "));
        }
        let noise = self.noise.map_or(NoiseModel::Correlated, NoiseChoice::model);
        self.check_noise(noise, rows)?;
        let defaults = Settings::default();
        // Rows of actions may be copies that follow another policy than the one that acted.
        let drift_sensitivity = match self.drift_sensitivity {
            _ if settings.action_value.is_some() || !settings.heads.is_empty() => DriftSensitivity::Off,
            None => defaults.drift_sensitivity,
            Some(choice) => choice.sensitivity(),
        };
        let settings = Settings {
            kernel: self.kernel.as_ref().map_or(defaults.kernel, KernelChoice::kind),
            noise,
            tolerance: self.dictionary.tolerance.unwrap_or(defaults.tolerance),
            estimate_scale: true,
            lambda: self.lambda.unwrap_or_default(),
            selection: match self.selection {
                SelectionChoice::Returns => SelectionKind::Returns,
                SelectionChoice::Evidence => SelectionKind::Evidence,
            },
            noise_floor: self.noise_floor,
            // The data-driven model that the search starts from is made from all rows.
            warmup_rows: rows.len(),
            refit_first_rows: 0,
            evidence: match self.evidence {
                EvidenceChoice::Exact => SelectBy::Exact,
                EvidenceChoice::Sparse => SelectBy::Sparse,
                EvidenceChoice::Auto => SelectBy::Auto,
            },
            evidence_rows: if self.evidence == EvidenceChoice::Exact { rows.len() } else { self.evidence_rows },
            refit_budget_s: self.budget,
            seed: self.seed,
            drift_sensitivity,
            ..settings
        };
        let mut window = Window::new(rows.dim, rows.rewards_per_row, rows.len());
        window.extend(rows, 0..rows.len());
        let mut learner = Learner::new(settings.clone(), names);
        learner.step(&window);
        let mut job = learner.refit_job(&window, RefitTrigger::Requested).map_err(|e| self.unsolved(rows, e))?;
        job.dictionary_share = 1.0;
        let budget = Duration::try_from_secs_f64(self.budget).unwrap_or(Duration::MAX);
        let threads = self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let pool = (threads > 1).then(|| rayon::ThreadPoolBuilder::new().num_threads(threads).build()).transpose()?;
        let time = ProcessorTime::start(pool.as_ref());
        let run = || refit::run(&job, &|| true, &|| time.spent() < budget);
        let candidate = pool.as_ref().map_or_else(run, |pool| pool.install(run));
        let candidate = candidate.map_err(|e| match e {
            RefitError::NotEnough(what) => in_file(&self.table.table, format!("cannot select a model: {what}")),
            other => self.unsolved(rows, other),
        })?;
        let (mut model, change) = (*candidate.model, candidate.alarm);
        if self.dictionary.dictionary.is_some() {
            let first = change.as_ref().map_or(0, |change| change.finding.since);
            let rows = &held_out::part(rows, |i| i as u64 >= first);
            let (inputs, hyperparameters, lambda) = (model.inputs().clone(), model.hyperparameters(), model.lambda());
            let hyperparameters = &hyperparameters;
            let given = Given { settings: &settings, rows, inputs: &inputs, hyperparameters, lambda, first };
            let chosen = self.dictionary.choose(&given)?;
            model = given.model(chosen.dictionary, &|| true)?;
            finish(&mut model, rows);
        }
        Ok(Fitted { model, selected: None, report: Some(candidate.report), chosen_by_heads: None, change })
    }

    /// A failure to solve for values, and what may be behind it.
    fn unsolved(&self, rows: &Rows, why: impl std::fmt::Display) -> Failure {
        let largest = rows.ratios.iter().copied().fold(0.0, f64::max).min(self.rho_max);
        if largest <= 1.0 {
            return in_file(&self.table.table, why);
        }
        let hint = format!("importance ratios of up to {} may be the reason, --rho-max clips them", number(largest));
        in_file(&self.table.table, format!("{why}; {hint}"))
    }

    /// What white noise cannot make use of.
    fn check_noise(&self, noise: NoiseModel, rows: &Rows) -> Result<(), Failure> {
        if noise != NoiseModel::White {
            return Ok(());
        }
        if matches!(self.lambda, Some(Lambda::Fixed(lambda)) if lambda < 1.0) {
            return Err(Failure::usage(WHITE_LAMBDA));
        }
        if rows.ratios.iter().any(|&ratio| ratio != 1.0) {
            let message = "behavior_prob and target_prob weight the rows, which white noise cannot; put an underscore before \
                           the name of one of the two to have it skipped";
            return Err(in_file(&self.table.table, message));
        }
        Ok(())
    }

    fn document(&self, fitted: &Fitted, snapshot: &Snapshot, evidence: &Evidence, exact: bool, seconds: f64) -> Value {
        let mut out = hyperparameters_to_json(&snapshot.hyperparameters, Some(&snapshot.inputs));
        out["evidence"] = json!(score::name(exact));
        out["log_evidence"] = json!(evidence.value);
        out["complexity"] = json!(evidence.complexity);
        out["fit"] = json!(evidence.fit);
        out["trace_gap"] = json!(self.trace_gap(fitted));
        out["transitions"] = json!(snapshot.transitions);
        out["discount"] = json!(snapshot.discount);
        out["lambda"] = json!(snapshot.lambda);
        let statistics = fitted.model.statistics();
        if statistics.forgets() {
            out["forgetting"] = json!((-1.0 / self.forgetting).exp2());
            out["rows_effective"] = json!(statistics.effective_rows());
        }
        out["dictionary_size"] = json!(snapshot.dictionary.nrows());
        out["seconds"] = json!(seconds);
        if fitted.change.is_some() {
            out["changed_at"] = json!(fitted.first());
        }
        if let Some((selection, tolerance)) = &fitted.selected {
            out["tolerance"] = json!(tolerance);
            out["pivots"] = json!(selection.pivots);
            out["residuals"] = json!(selection.residuals);
            out["capped"] = json!(selection.capped);
        }
        if let Some(report) = &fitted.report {
            out["tolerance"] = json!(report.tolerance);
            let starts: Vec<Value> = report
                .ascents
                .iter()
                .map(|r| {
                    json!({
                        "round": r.round,
                        "rows": r.rows,
                        "start": r.ascent.start,
                        "log_evidence": r.ascent.log_evidence,
                        "evaluations": r.ascent.evaluations,
                        "outcome": format!("{:?}", r.ascent.outcome),
                        "structure": r.structure,
                        "parameters": r.names.iter().cloned().zip(r.ascent.parameters.iter().map(|v| json!(v)))
                            .collect::<serde_json::Map<String, Value>>(),
                    })
                })
                .collect();
            let mut search = refit_report_to_json(report);
            search.insert("log_evidence".into(), json!(report.evidence_after));
            search.insert("starts".into(), json!(starts));
            out["relevance_report"] = search.remove("relevance_report").unwrap_or_default();
            out["search"] = Value::Object(search);
        }
        out
    }

    /// Of the model as it is written, whichever evidence is reported.
    fn trace_gap(&self, fitted: &Fitted) -> Option<f64> {
        let posterior = fitted.model.solve().ok()?;
        Some(posterior.trace_gap(fitted.model.statistics()) * fitted.model.settings().rewards.len() as f64)
    }

    /// What to do about a trace gap.
    fn remedy(&self, gap: f64, size: usize) -> &'static str {
        if gap <= TRACE_GAP {
            ""
        } else if self.dictionary.dictionary.is_some() {
            ": the dictionary given is small for this table"
        } else if size < self.dictionary.dictionary_max {
            ": the dictionary is coarse for this table, a smaller --tolerance refines it"
        } else {
            ": the dictionary is small for this table, see --dictionary-max"
        }
    }

    fn text(
        &self,
        fitted: &Fitted,
        rows: &Rows,
        snapshot: &Snapshot,
        evidence: &Evidence,
        exact: bool,
        seconds: f64,
    ) -> String {
        let nats = |value: f64| format!("{} nats", number(value));
        let path = self.out().display();
        let next = format!(
            "Next: criticd value {path} STATES.csv evaluates the model, criticd plot {path} --out value.png draws it"
        );
        if !self.verbose {
            let mut lines = vec![("table".to_owned(), given::extent(rows))];
            for bound in fitted.report.iter().flat_map(|report| &report.active_bounds) {
                lines.push(("bound".to_owned(), format!("{bound} is active: the data call for a value beyond it")));
            }
            lines.push(("written".to_owned(), format!("{path} in {seconds:.1} s")));
            return format!("{}\n{next}, --verbose shows how the model was selected.\n", facts(&lines));
        }
        let mut lines = vec![
            ("table".to_owned(), given::extent(rows)),
            (format!("{} evidence", score::name(exact)), nats(evidence.value)),
            ("complexity".to_owned(), nats(evidence.complexity)),
            ("fit".to_owned(), format!("{}, {} of n / 2", nats(evidence.fit), number(evidence.fit_ratio()))),
        ];
        let statistics = fitted.model.statistics();
        if statistics.forgets() {
            let (rows, half) = (statistics.effective_rows(), self.forgetting);
            let text = format!("half-life {} rows, {} effective transitions", number(half), number(rows));
            lines.push(("forgetting".to_owned(), text));
        }
        if let Some(gap) = self.trace_gap(fitted) {
            lines.push(("trace gap".to_owned(), nats(gap) + self.remedy(gap, snapshot.dictionary.nrows())));
        }
        if let Some(report) = &fitted.report {
            if let Some(selection) = &report.selection {
                lines.push(("lambda".to_owned(), lambdas(snapshot.lambda, selection)));
                for c in &selection.candidates {
                    let text = format!(
                        "score {} at lambda {}, ridge {}, {} elements",
                        number(c.score),
                        c.lambda,
                        number(c.ridge),
                        c.elements
                    );
                    lines.push((c.name.clone(), text));
                }
            }
            let text = format!(
                "{} evaluations on {} transitions, {} ascents{}",
                report.evaluations,
                report.evidence_rows,
                report.ascents.len(),
                if report.out_of_time { ", stopped by --budget" } else { "" }
            );
            lines.push(("search".to_owned(), text));
            lines.push(("structure".to_owned(), report.structure.clone()));
            if report.structures.len() > 1 {
                for s in &report.structures {
                    let text = format!("{:.1} nats, {} parameters", s.log_evidence, s.parameters);
                    lines.push((s.name.clone(), text));
                }
            }
            let told = |heading: &str, sentences: Vec<String>| {
                let rest = std::iter::repeat(String::new());
                std::iter::once(heading.to_owned()).chain(rest).zip(sentences).collect::<Vec<_>>()
            };
            lines.extend(told("variables", wire::relevance(report)));
            lines.extend(told("findings", report.findings.iter().map(wire::diagnostic).collect()));
            for bound in &report.active_bounds {
                lines.push(("bound".to_owned(), format!("{bound} is active: the data call for a value beyond it")));
            }
        }
        lines.push(("written".to_owned(), format!("{path} in {seconds:.1} s")));
        format!("{}\n{}\n{next}, criticd inspect {path} shows this again.\n", facts(&lines), describe(snapshot))
    }
}

/// Share of the variance of V that each state variable explains (D,), over the states of a table.
fn shares(snapshot: &Snapshot, states: &[f64], seed: u64) -> Vec<f64> {
    let evaluator = Evaluator::new(snapshot.clone());
    let mut value = |states: &[f64]| match evaluator.evaluate(states, Ask::MEAN) {
        Ok(found) => found.mean.column(0).iter().copied().collect(),
        // States of a table are in range.
        Err(_) => vec![0.0; states.len() / snapshot.dim()],
    };
    total_indices(states, snapshot.dim(), SAMPLES, seed, &mut value)
}

/// "0.5 (0 +3.1 %, 0.8 +0.2 %, ...)": what the other lambdas lose on held-out returns.
fn lambdas(chosen: f64, selection: &SelectionReport) -> String {
    let others: Vec<String> = selection
        .lambdas
        .iter()
        .filter(|other| other.lambda != chosen || other.score > 1.0)
        .map(|other| format!("{} {:+.1} %", other.lambda, 100.0 * (other.score - 1.0)))
        .collect();
    if others.is_empty() { chosen.to_string() } else { format!("{chosen} ({})", others.join(", ")) }
}

impl KernelChoice {
    fn kind(&self) -> KernelKind {
        match *self {
            Self::Isotropic => KernelKind::Isotropic,
            Self::Ard => KernelKind::Ard,
            Self::Factor(k) => KernelKind::Factor(k),
            Self::Auto => KernelKind::Auto,
        }
    }
}

impl SensitivityChoice {
    fn sensitivity(self) -> DriftSensitivity {
        match self {
            Self::Off => DriftSensitivity::Off,
            Self::Low => DriftSensitivity::Low,
            Self::Normal => DriftSensitivity::Normal,
            Self::High => DriftSensitivity::High,
        }
    }
}

impl NoiseChoice {
    fn model(self) -> NoiseModel {
        match self {
            Self::Correlated => NoiseModel::Correlated,
            Self::White => NoiseModel::White,
        }
    }
}

/// The rows from number `first` on, and their episodes, numbered from 0.
fn since(rows: &Rows, episodes: &[u32], first: usize) -> (Rows, Vec<u32>) {
    let mut known = HashMap::new();
    let number = |episode: &u32| {
        let next = known.len() as u32;
        *known.entry(*episode).or_insert(next)
    };
    (held_out::part(rows, |i| i >= first), episodes[first..].iter().map(number).collect())
}

/// Variance and spread of returns with the final weights; no score, since no row was predicted before it was learned.
fn finish(model: &mut Model, rows: &Rows) {
    model.revisit(std::iter::once((rows, 0..rows.len(), 0)));
    model.reset_score();
}

/// How improvement went.
fn improvement(improved: &Improved) -> Value {
    json!({
        "sweeps": improved.sweeps,
        "settled": improved.settled(),
        "change": improved.change,
        "clipped": improved.clipped,
    })
}

fn improvement_text(improved: &Improved) -> String {
    let how = if improved.settled() {
        "and values no longer change"
    } else {
        "and values still change: what is written is the mean of the last 5"
    };
    format!("improvement: {} sweeps, {how}\n", improved.sweeps)
}

/// All of the file or nothing.
fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = path.with_file_name(name);
    criticd::whole_file::write(path, &part, 0o666, bytes).map_err(|e| in_file(path, e))
}
