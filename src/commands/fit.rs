//! `criticd fit`.

mod choices;
mod labels;
mod like;
mod loo;
mod mean;
mod report;
mod search;
mod stages;
mod weights;
mod with_heads;

use super::Failure;
use super::actions::{ActionOptions, LearnedTable, OfActions};
use super::dictionary::{Chosen, DictionaryOptions};
use super::given::{self, Countdown, TABLES, TableOptions};
use super::held_out::{self, HeldOut, Like};
use super::output::{in_file, note, number, output, print, print_json};
use crate::config::mean_of_option;
use crate::learner::KindSetting;
use crate::learner::action::{ActionValue, Successor};
use crate::learner::allowance::Allowance;
use crate::learner::batch::{Given, Nearest, Selection};
use crate::learner::hidden;
use crate::learner::improve::{COPIES, Improved, Improvement};
use crate::learner::mean::Mean;
use crate::learner::model::Model;
use crate::learner::period::period;
use crate::learner::refit::{Compared, RefitReport};
use crate::learner::{Alarm, DriftSensitivity, KernelKind, Lambda, LinearColumns, SelectBy, Settings, VarianceKind};
use crate::math::embedding::StateKind;
use crate::math::evidence::{Evidence, KeepGoing};
use crate::math::kernel::{Metric, NoiseModel, Profile};
use crate::snapshot::Snapshot;
use crate::table::Table;
use crate::transition::{Rows, name_of_state};
use crate::whole_file::OutputFile;
use crate::wire;
use choices::{SelectionChoice, kernel};
use report::Report;
use stages::Stages;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Learn a value function from a table of transitions: model selection, then the posterior
///
/// A chain that is cut, or still runs at the end of the table, ends in the value of its last next state. The model is the
/// posterior through a dictionary; with all distinct states in the dictionary it is the exact posterior.
#[derive(Debug, clap::Args)]
#[command(
    after_help = format!(
        "Examples:\n  criticd fit walk.csv --out walk.model\n  criticd fit walk.csv --discount 0.95 --kernel isotropic --out walk.model --json > walk.json\n  criticd fit walk.csv --hyperparameters walk.json --no-optimise --out again.model\n  criticd fit hopper.hdf5 --out hopper.model\n  criticd fit arm.npz --assume-terminated never --out arm.model\n  criticd fit arm.npz --heads heads.toml --out arm.model\n  criticd fit points.csv --state x --target y --out points.model\n  criticd fit throws.csv --state distance --target angle --cost miss --out throws.model\n  criticd fit walk.csv --lambda 1 --variance clustered --dictionary-max 500 --out walk.model\n  criticd fit south.csv --like north.model --out south.model\n  criticd fit robot.csv --mean sim.model --out robot.model\n\n{TABLES}"
    )
)]
pub(crate) struct Fit {
    #[command(flatten)]
    table: TableOptions,
    /// Write the value function here (MessagePack; `value` and `inspect` read it)
    #[arg(long, value_name = "MODEL", required_unless_present = "dry_run")]
    out: Option<PathBuf>,
    /// Kernel: isotropic (one lengthscale), ard (one for each state variable, and directions across them where these predict
    /// better), factor or factor:K (directions, K of them), or auto (whichever of these the data support, without irrelevant variables) [default: ard]
    #[arg(long, value_name = "KERNEL", value_parser = kernel)]
    kernel: Option<KernelKind>,
    /// Decay of the kernel with distance: matern52 (value functions with kinks, or gaussian where that predicts better) or
    /// gaussian (smooth ones)
    /// [default: matern52; with --no-optimise the file's]
    #[arg(long, value_name = "PROFILE", value_parser = profile)]
    kernel_profile: Option<Profile>,
    /// A constant and linear columns beside the kernel: auto (where held-out returns are predicted better with them), never or always
    #[arg(long, value_name = "WHETHER", default_value = "auto", value_parser = linear_columns)]
    linear_columns: LinearColumns,
    /// Kind of each state variable, separated by commas: real, periodic:P (repeats after P, in its own unit), periodic (the period is
    /// learned by evidence), asinh:C:S:W (enters as W asinh((x - C) / S)) or category (equal or different, never near) [default: all real, or
    /// bent where they are far from normal]
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    state_kinds: Vec<KindSetting>,
    /// Independent noise of returns (correlated) or of rewards (white: only for deterministic transitions; it selects by
    /// evidence with lambda 1) [default: correlated]
    #[arg(long, value_name = "NOISE", value_parser = given::word(&NoiseModel::ALL, NoiseModel::name))]
    noise: Option<NoiseModel>,
    #[command(flatten)]
    heads: with_heads::HeadOptions,
    #[command(flatten)]
    sums: like::SumOptions,
    /// Learn what this column is where the state is, and nothing of the future: Gaussian-process regression. Rows need no
    /// order, no end and no successor. Same as reward COLUMN, discount 0, --selection evidence (or loo), --variance model
    #[arg(long, value_name = "COLUMN", conflicts_with_all = ["discount", "lambda", "reward", "remaining_time"])]
    target: Option<String>,
    #[command(flatten)]
    weights: weights::WeightOptions,
    /// Discount of transitions without one of their own
    #[arg(long, value_name = "G", default_value_t = Settings::default().discount, value_parser = given::discount)]
    discount: f64,
    #[command(flatten)]
    countdown: Countdown,
    /// Mean function: what values are far from all rows; what is learned is how they differ from it. A number; '{ constant = C, weights =
    /// [W, ...] }' with a weight for each state variable; or a MODEL of states, such as one that was fitted to simulated rows, or with --target
    /// to what a network says of states
    #[arg(long, value_name = "MEAN", allow_negative_numbers = true, value_parser = mean_of_option, conflicts_with = "like")]
    mean: Option<Mean>,
    /// With --selection evidence, the evidence that selects: exact, of all transitions; sparse, the variational bound of
    /// all transitions through a dictionary; auto, the exact evidence of at most --evidence-rows transitions, then, if there
    /// are more, the bound of all
    #[arg(long, value_name = "WHICH", default_value = "auto", value_parser = given::word(&EVIDENCES, SelectBy::name))]
    evidence: SelectBy,
    /// With --evidence auto: transitions of the exact evidence
    #[arg(long, value_name = "N", default_value_t = Settings::default().evidence_rows, value_parser = given::at_least_one)]
    evidence_rows: usize,
    /// Smallest noise variance, relative to the targets' variance; lower it only for deterministic transitions
    #[arg(long, value_name = "F", default_value_t = Settings::default().noise_floor, value_parser = given::positive)]
    noise_floor: f64,
    #[command(flatten)]
    action: ActionOptions,
    #[command(flatten)]
    dictionary: DictionaryOptions,
    /// lambda of the lambda-returns: 0 (one reward and the value of the next state) to 1 (whole returns), or auto:
    /// selected with the kernel [default: auto; with --no-optimise the file's, else 1]
    #[arg(long, value_name = "L", value_parser = given::lambda)]
    lambda: Option<Lambda>,
    /// Largest importance ratio: a transition has the weight target_prob / behavior_prob, clipped at this limit
    #[arg(long, value_name = "R", default_value = "inf", value_parser = given::limit)]
    rho_max: f64,
    /// Forget: the weight of a transition k rows ago, rows of all streams counted, is F^k, F above 0 and at most 1. The prior
    /// keeps its weight. off, or 1, weights all rows equally. The last 8 half-lives select the model. The reported evidence
    /// counts weighted transitions: it is no probability, and values for different F cannot be compared
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
    #[arg(
        long, value_name = "HOW", conflicts_with = "no_optimise",
        value_parser = given::word(&DriftSensitivity::ALL, DriftSensitivity::name)
    )]
    drift_sensitivity: Option<DriftSensitivity>,
    /// Criterion of model selection: returns (kernel, lambda and ridge together, by their prediction of held-out returns) or
    /// evidence (kernel and noise by the marginal likelihood; lambda is then 1 unless given), or with --target loo (lengthscales and
    /// ridge by the errors of rows by models that lack them, from what the evidence chose on) [default: returns; with --heads or
    /// --target evidence]
    #[arg(long, value_name = "WHICH")]
    selection: Option<SelectionChoice>,
    /// Variance of the value: rows (from the temporal-difference error of each transition), clustered (from pieces of
    /// chains, if the state may hide something) or model (the Gaussian process's own, too small if transitions are
    /// noisy) [default: rows; with --no-optimise model]
    #[arg(long, value_name = "WHICH", value_parser = given::word(&VARIANCES, VarianceKind::name))]
    variance: Option<VarianceKind>,
    /// Seed of the search
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Work of the search: what one core does in about these seconds, counted in operations, so that the result does
    /// not depend on the machine's speed; the best model found by then wins
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = given::positive)]
    budget: f64,
    /// Threads of the search; the result does not depend on their number [default: one for each core]
    #[arg(long, value_name = "N", value_parser = given::threads)]
    threads: Option<usize>,
    /// With --no-optimise: a JSON or TOML file with kernel and noise, in the coordinates of the table unless it has
    /// `inputs`
    #[arg(long, value_name = "FILE", requires = "no_optimise")]
    hyperparameters: Option<PathBuf>,
    /// Use the given hyperparameters without model selection
    #[arg(long, requires = "hyperparameters")]
    no_optimise: bool,
    /// Share of the episodes held out to test the predictions; 0 for none. The figures are of a second model, which the
    /// other episodes alone select and teach. All episodes select and teach the written model, so the search runs twice
    /// [default: 0.1; with --no-optimise 0]
    #[arg(long, value_name = "F", value_parser = given::share)]
    hold_out: Option<f64>,
    /// Also print evidence, search and lengthscales
    #[arg(long)]
    verbose: bool,
    /// Print one JSON document, which is also a hyperparameter file
    #[arg(long)]
    json: bool,
    /// Variables of the table that hold texts, and what they are called.
    #[arg(skip)]
    texts: Vec<(usize, String)>,
    /// Whether the options say what kinds variables are.
    #[arg(skip)]
    says_kinds: bool,
}

/// Values of --evidence and --variance, in the order of the help.
const EVIDENCES: [SelectBy; 3] = [SelectBy::Exact, SelectBy::Sparse, SelectBy::Auto];
const VARIANCES: [VarianceKind; 3] = [VarianceKind::Rows, VarianceKind::Clustered, VarianceKind::Model];

fn profile(text: &str) -> Result<Profile, String> {
    Profile::from_name(text).ok_or_else(|| "gaussian or matern52".into())
}

fn linear_columns(text: &str) -> Result<LinearColumns, String> {
    LinearColumns::from_name(text).ok_or_else(|| "auto, never or always".into())
}

/// Why a lambda below 1 is refused beside white noise.
const WHITE_LAMBDA: &str = "--lambda: white noise has no use for it, leave it out";

/// A model, and how it came about.
pub(super) struct Fitted {
    pub(super) model: Model,
    selected: Option<(Selection, f64)>,
    report: Option<RefitReport>,
    /// How rules for the dictionary compare, where there was a choice.
    compared: Vec<Compared>,
    /// How the kernel was chosen, where heads have chosen it.
    chosen_by_heads: Option<with_heads::ByHeads>,
    /// The change of the world whose rows before it were left out.
    change: Option<Alarm>,
    /// How leave-one-out errors have chosen, where they have.
    nearest: Option<Nearest>,
}

impl Fitted {
    /// A model of which nothing else is to be said.
    fn of(model: Model) -> Self {
        let compared = Vec::new();
        Self { model, selected: None, report: None, compared, chosen_by_heads: None, change: None, nearest: None }
    }

    /// Number of the first row of the table that it has learned.
    fn first(&self) -> usize {
        self.change.as_ref().map_or(0, |change| change.finding.since as usize)
    }
}

impl Fit {
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        self.regress()?;
        self.discount = self.countdown.apply(&mut self.table)?.unwrap_or(self.discount);
        if self.table.dry(self.json)? {
            return Ok(());
        }
        let out = self.check()?;
        let started = Instant::now();
        let table = like::read(&mut self)?;
        let table = self.weighted(table)?;
        let mut table = self.of_policy(table)?;
        let labels = self.heads.read(&mut table, self.discount)?;
        let labels: Vec<&Path> = labels.iter().map(PathBuf::as_path).collect();
        out.refuse(&labels)?;
        self.heads.check_output(&labels, &out)?;
        self.sums.note(&table);
        let learned = LearnedTable::of(&self.action, &self.table, table, given::most(self.rho_max))?;
        let LearnedTable { mut rows, episodes, names, mut of_actions } = learned;
        let about = self.with_periods(&rows, names.as_deref())?;
        about.take_prior_mean(&mut rows);
        of_actions.iter_mut().flat_map(|of| &mut of.acted).for_each(|acted| about.take_prior_mean(acted));
        let of_actions = of_actions.as_ref();
        let asked = self.lambda;
        if let Some(actions) = of_actions {
            self.lambda = self.action.lambda(&actions.of, &actions.columns, asked)?;
        }
        let (exact, settings) = (self.is_exact(&rows)?, self.settings_of(&rows, of_actions)?);
        let mut stages = Stages::start(&self);
        if self.selects() {
            mention_constants(&rows, names.as_deref());
        }
        let mut fitted = self.learn(&rows, settings.clone(), names, of_actions, asked)?;
        let improved = match of_actions {
            Some(actions) if actions.of.successor == Successor::Improve => {
                let improved = self.improve(&mut fitted, &rows, &actions.of)?;
                rows.clone_from(&improved.rows);
                Some(improved)
            }
            _ => None,
        };
        let (offset, first) = (rows.len() as u64, fitted.first());
        let (rows, episodes) = if first > 0 { since(&rows, &episodes, first) } else { (rows, episodes) };
        let exact = exact && !fitted.model.statistics().follows_rows && !fitted.model.statistics().forgets();
        stages.evidence();
        let evidence = self.evidence_of(&fitted, &rows, exact)?;
        let mut snapshot = self.snapshot(&fitted.model, offset)?;
        improved.iter().for_each(|improved| improved.act_by(&mut snapshot));
        // Returns are there for the policy that acted, and for no other.
        let acted = of_actions.is_none_or(|actions| actions.acted.is_none());
        stages.held_out();
        let held_out = if acted { self.held_out(&fitted.model, &rows, &episodes, &settings) } else { None };
        // An interval that held-out episodes refute is not written.
        if let (Some(held_out), Some(returns)) = (&held_out, &mut snapshot.returns) {
            returns.factor *= held_out.factor;
        }
        let shares = report::shares(&snapshot, &rows.states);
        stages.spared();
        let spares = held_out.is_some() && of_actions.is_none();
        let spared = if spares { self.spared(&fitted.model, &shares, &rows, &episodes)? } else { Vec::new() };
        out.write(&self.sums.file(&snapshot, &fitted.model, &rows))?;
        fitted.chosen_by_heads.iter().try_for_each(|by| by.write(&self, offset))?;
        drop(stages);
        let report = Report {
            fit: &self,
            left_out: self.leave_one_out(&fitted, &rows)?,
            hidden: self.hidden(&fitted, &rows),
            fitted: &fitted,
            rows: &rows,
            snapshot: &snapshot,
            evidence,
            exact,
            held_out,
            spared,
            shares,
            of_actions,
            improved: improved.as_ref(),
            seconds: started.elapsed().as_secs_f64(),
        };
        if self.json { print_json(&report.document()?) } else { print(&report.text()?) }
    }

    /// Take the texts of the table as categories.
    pub(super) fn take_categories(&mut self, table: &Table) -> Result<(), Failure> {
        self.table.take_categories(table.categories());
        (self.texts, self.says_kinds) = (given::texts(table), !self.state_kinds.is_empty());
        if self.sums.like().is_none() {
            choices::take_categories(&mut self.state_kinds, table)?;
        }
        Ok(())
    }

    /// Take --target as the options that it stands for.
    fn regress(&mut self) -> Result<(), Failure> {
        let Some(target) = &self.target else {
            return match self.selection {
                Some(SelectionChoice::Loo) => Err(Failure::usage(loo::WITHOUT_TARGET)),
                _ => Ok(()),
            };
        };
        self.table.regress_on(target, self.weights.column());
        self.discount = 0.0;
        match *self.selection.get_or_insert(SelectionChoice::Evidence) {
            SelectionChoice::Returns => return Err(Failure::usage(loo::RETURNS)),
            SelectionChoice::Loo if self.heads.file().is_some() => return Err(Failure::usage(loo::HEADS)),
            _ => {}
        }
        self.variance = self.variance.or(Some(VarianceKind::Model));
        Ok(())
    }

    /// Whether the exact evidence is asked for. An error if it is too much for the rows.
    fn is_exact(&self, rows: &Rows) -> Result<bool, Failure> {
        let exact = match self.evidence {
            SelectBy::Exact => true,
            SelectBy::Sparse => false,
            SelectBy::Auto => rows.len() <= self.evidence_rows,
        };
        if exact {
            given::check_exact(rows)?;
        }
        Ok(exact)
    }

    /// What is learned and how: with actions and heads, where the options name some.
    fn settings_of(&self, rows: &Rows, of_actions: Option<&OfActions>) -> Result<Settings, Failure> {
        let mut settings = self.settings(rows)?;
        settings.action_value = of_actions.map(|actions| actions.of.clone());
        settings.heads = self.heads.checked(rows, &self.table.table)?;
        self.check_heads(&settings)?;
        Ok(settings)
    }

    /// The model: of the hyperparameters given, or selected. `asked` is the lambda of the options, which selects a model for
    /// actions; the one in force may be another.
    fn learn(
        &mut self,
        rows: &Rows,
        mut settings: Settings,
        names: Option<Vec<String>>,
        of_actions: Option<&OfActions>,
        asked: Option<Lambda>,
    ) -> Result<Fitted, Failure> {
        if let Some(path) = self.sums.like() {
            return like::learn(self, path, rows);
        }
        if let Some(path) = &self.hyperparameters {
            return self.take(path, rows, &settings, names);
        }
        match of_actions {
            Some(OfActions { of, acted: Some(acted), .. }) => {
                let forced = std::mem::replace(&mut self.lambda, asked);
                settings.action_value = Some(of.on_policy());
                let selected = self.search(acted, settings, names)?;
                self.relearn(selected, rows, of, forced)
            }
            _ => self.select(rows, settings, names),
        }
    }

    /// The model that these rows select; by heads, if there are any.
    fn select(&self, rows: &Rows, settings: Settings, names: Option<Vec<String>>) -> Result<Fitted, Failure> {
        if settings.heads.is_empty() {
            self.search(rows, settings, names)
        } else {
            with_heads::select(self, rows, settings, names)
        }
    }

    /// The evidence of the rows that the model has learned, under its hyperparameters.
    fn evidence_of(&self, fitted: &Fitted, rows: &Rows, exact: bool) -> Result<Evidence, Failure> {
        let model = &fitted.model;
        let hyperparameters = model.hyperparameters();
        let given = Given {
            settings: model.settings(),
            rows,
            inputs: model.inputs(),
            hyperparameters: &hyperparameters,
            lambda: model.lambda(),
            first: fitted.first() as u64,
        };
        let evidence = if exact { given.exact_evidence(&|| true) } else { given.sparse_evidence(model, &|| true) };
        evidence.map_err(|e| in_file(&self.table.table, e))
    }

    /// The model as it is written.
    fn snapshot(&self, model: &Model, offset: u64) -> Result<Snapshot, Failure> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        let mut snapshot = model.snapshot(true).map_err(|e| in_file(&self.table.table, e))?;
        // The model has learned rows about the prior mean.
        snapshot.actions.iter_mut().for_each(|actions| actions.prior_mean = self.action.prior_mean);
        // Heads may have added columns of their own.
        let reward_names = self.table.reward_names()?;
        if reward_names.len() == snapshot.weights.ncols() {
            snapshot.reward_names = reward_names;
        }
        Ok(Snapshot { generation: 1, offset, time, table: self.table.mapping()?.to_text(), ..snapshot })
    }

    fn kinds(&self) -> Vec<StateKind> {
        self.state_kinds.iter().map(|choice| choice.kind()).collect()
    }

    /// The settings, once the periods that are not known have been learned.
    fn with_periods(&mut self, rows: &Rows, names: Option<&[String]>) -> Result<Settings, Failure> {
        let open = |kind: &KindSetting| *kind == KindSetting::Periodic;
        while let Some(d) = self.state_kinds.iter().position(open).filter(|&d| d < rows.dim) {
            let name = name_of_state(names, d);
            let within: (KeepGoing<'_>, _) = (&|| true, &Allowance::unlimited());
            let Some(found) = period(rows, d, &self.settings(rows)?, None, within) else {
                let message = format!(
                    "--state-kinds periodic: the returns show no period of {name}, which they must go through one and a half times or \
                     more; name it, periodic:P"
                );
                return Err(in_file(&self.table.table, message));
            };
            note(&format!("{name} comes back to the same after {}", number(found)));
            self.state_kinds[d] = KindSetting::Known(StateKind::Periodic(found));
        }
        self.settings(rows)
    }

    /// Whether the state hides something of what follows: as the selection has found, or by the values of the table.
    fn hidden(&self, fitted: &Fitted, rows: &Rows) -> Option<hidden::Sign> {
        match &fitted.report {
            Some(found) if fitted.model.settings().action_value.is_none() => found.hidden,
            _ => hidden::sign(&fitted.model, rows, self.seed),
        }
    }

    /// What heads rule out.
    fn check_heads(&self, settings: &Settings) -> Result<(), Failure> {
        if settings.heads.is_empty() {
            return Ok(());
        }
        if self.noise == Some(NoiseModel::White) {
            return Err(Failure::usage("--heads: white noise knows no returns, heads want correlated noise"));
        }
        if settings.action_value.is_some() {
            return Err(Failure::usage(
                "--heads: heads are of states, they cannot be learned beside values of actions",
            ));
        }
        Ok(())
    }

    /// The rows of the table that are learned: all of them, or one policy's.
    fn of_policy(&self, mut table: Table) -> Result<Table, Failure> {
        if self.policy.is_none() && self.action.leaves_chain() {
            // What another policy would do does not change with the one that acted.
            return Ok(table);
        }
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
            note(&format!(
                "the value is of policy {}: its {count} rows of {} are learned (--policy names another)",
                names[wanted],
                acted.len()
            ));
            table.keep(|i| acted[i] == wanted);
        }
        Ok(table)
    }

    /// What is learned and how, before anything is selected.
    pub(super) fn settings(&self, rows: &Rows) -> Result<Settings, Failure> {
        let own = given::settings(rows, self.discount);
        // Behind them stand columns that belong to heads.
        let rewards = self.heads.own_rewards(rows);
        let settings = Settings {
            rewards: own.rewards[..rewards].to_vec(),
            dictionary_max: self.dictionary.dictionary_max,
            dictionary_beta: self.dictionary.dictionary_beta,
            dictionary_unit_norm: self.dictionary.dictionary_unit_norm,
            variance: self.variance.unwrap_or(if self.no_optimise { VarianceKind::Model } else { VarianceKind::Rows }),
            rho_max: given::most(self.rho_max),
            prior_mean: self.action.prior_mean,
            mean: self.mean_of(rows, rewards)?,
            forgetting: given::most(self.forgetting),
            weighted: self.weights.column().is_some(),
            profile: self.kernel_profile.unwrap_or(Settings::default().profile),
            linear_columns: self.linear_columns,
            state_kinds: KindSetting::known(&self.action.kinds(&self.kinds(), rows.dim)),
            ..own
        };
        settings
            .check_dim(rows.dim)
            .map_err(|e| Failure::usage(format!("--state-kinds: {}", wire::kinds_mismatch(e))))?;
        Ok(settings)
    }

    /// Where the model goes; asked for only where one is made.
    fn out(&self) -> &Path {
        self.out.as_deref().unwrap_or(Path::new(""))
    }

    /// State variables that explain hardly any of the value, if held-out episodes are predicted as well without them.
    fn spared(&self, model: &Model, shares: &[f64], rows: &Rows, episodes: &[u32]) -> Result<Vec<usize>, Failure> {
        let idle: Vec<usize> = (0..shares.len()).filter(|&d| shares[d] < report::IDLE).collect();
        if idle.is_empty() || idle.len() == shares.len() {
            return Ok(Vec::new());
        }
        let held = (self.share_held_out(), self.seed);
        let can = held_out::can_spare(&Like::of(model), &idle, rows, episodes, held, &self.dictionary)?;
        Ok(if can { idle } else { Vec::new() })
    }

    /// How well held-out episodes are predicted, where that was asked for and there are enough.
    fn held_out(&self, model: &Model, rows: &Rows, episodes: &[u32], settings: &Settings) -> Option<HeldOut> {
        let share = self.share_held_out();
        if share == 0.0 {
            return None;
        }
        let learn = |learned: &Rows| match &self.hyperparameters {
            Some(_) => held_out::relearn(&Like::of(model), learned, &self.dictionary),
            // A search that has seen the held-out episodes would flatter the figures.
            None => Ok(self.select(learned, settings.clone(), model.inputs().names.clone())?.model.snapshot(true)?),
        };
        match held_out::hold_out(rows, episodes, (share, self.seed, settings.weighted), learn) {
            Ok(found) => found,
            // The model is there all the same.
            Err(failure) => {
                note(&format!("held-out episodes: {}", failure.message));
                None
            }
        }
    }

    /// The files of the command line that are read.
    fn inputs(&self) -> Vec<&Path> {
        let more = self.hyperparameters.iter().chain(&self.dictionary.dictionary).map(PathBuf::as_path);
        self.table
            .files()
            .chain(more)
            .chain(self.mean_file())
            .chain(self.heads.file())
            .chain(self.sums.like())
            .collect()
    }

    /// Where the model goes, if nothing was asked for that cannot be: better now than after an hour's search.
    fn check(&self) -> Result<OutputFile, Failure> {
        if self.dictionary.dictionary.is_some() && self.dictionary.tolerance.is_some() {
            return Err(Failure::usage("--tolerance is for selecting a dictionary, --dictionary gives one"));
        }
        self.check_mean()?;
        let out = output(self.out(), &self.inputs())?;
        self.heads.check_output(&self.inputs(), &out)?;
        Ok(out)
    }

    /// The posterior of the hyperparameters in the file.
    fn take(
        &self,
        path: &Path,
        rows: &Rows,
        settings: &Settings,
        names: Option<Vec<String>>,
    ) -> Result<Fitted, Failure> {
        let (hyperparameters, mut inputs, written, centred) = given::read_hyperparameters(path, rows.dim, &self.texts)?;
        let settings = &Settings { centred, ..settings.clone() };
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
        let same_kernel = match self.kernel {
            None | Some(KernelKind::Auto) => true,
            Some(KernelKind::Isotropic) => matches!(metric, Metric::Isotropic(_)),
            Some(KernelKind::Ard) => matches!(metric, Metric::Ard(_)),
            Some(KernelKind::Factor(k)) => {
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
        let kinds = self.action.kinds(&self.kinds(), rows.dim);
        if self.says_kinds && kinds.iter().enumerate().any(|(d, kind)| *kind != kernel.kind_of(d)) {
            let message = format!("--state-kinds contradicts {}: omit it", path.display());
            return Err(Failure::usage(message));
        }
        if self.noise.is_some_and(|noise| noise != hyperparameters.noise) {
            return Err(Failure::usage(format!("--noise contradicts {}: omit it", path.display())));
        }
        let given = Given { settings, rows, inputs: &inputs, hyperparameters: &hyperparameters, lambda, first: 0 };
        let chosen = self.dictionary.choose(&given)?;
        let mut model = given.model(chosen.dictionary.clone(), &|| true)?;
        // Nothing but what was given and these rows decides: deviations are the posterior's, as they stand.
        look_back(&mut model, rows);
        let Chosen { selected, compared, .. } = chosen;
        Ok(Fitted { selected, compared, ..Fitted::of(model) })
    }

    /// The value of another policy, or of a better one, under the kernel that was selected by the returns of the one that acted.
    fn relearn(
        &self,
        selected: Fitted,
        rows: &Rows,
        of: &ActionValue,
        lambda: Option<Lambda>,
    ) -> Result<Fitted, Failure> {
        let (inputs, mut hyperparameters) = (selected.model.inputs(), selected.model.hyperparameters());
        selected.model.settings().leave_constant_to_prior_mean(&mut hyperparameters.kernel);
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
                "--successor improve: an action is the best for one reward, the table has several",
            ));
        }
        if self.forgetting.is_finite() {
            return Err(Failure::usage("--successor improve learns from all rows alike: leave out --forgetting"));
        }
        let model = &fitted.model;
        let about = &model.about_level(rows);
        let improvement =
            Improvement { model, rows: about, space: &of.space, before: None, copies: COPIES, seed: self.seed };
        let mut improved = improvement.run(&|| true)?;
        improved.rows.rewards.clone_from(&rows.rewards);
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
}

/// State variables that have one value in all rows.
fn constants(rows: &Rows) -> Vec<usize> {
    let varies = |d: usize| (1..rows.len()).any(|i| rows.state(i)[d] != rows.state(0)[d]);
    (0..rows.dim).filter(|&d| !varies(d)).collect()
}

/// Name the state variables whose effect no search can find.
pub(super) fn mention_constants(rows: &Rows, names: Option<&[String]>) {
    let name = |d: usize| name_of_state(names, d);
    let constant: Vec<String> = constants(rows).into_iter().map(name).collect();
    if (1..rows.dim).contains(&constant.len()) {
        note(&format!("{} never changes: its effect cannot be learned", given::listed(&constant)));
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
fn look_back(model: &mut Model, rows: &Rows) {
    model.revisit(std::iter::once((rows, 0..rows.len(), 0)));
    model.reset_score();
}

/// The same, with deviations and an interval of returns as wide as pieces of the chains say.
fn finish(model: &mut Model, rows: &Rows) {
    look_back(model, rows);
    // Where a system has no solution deviations come from single rows.
    let _ = model.look_at_pieces(rows, 0);
}
