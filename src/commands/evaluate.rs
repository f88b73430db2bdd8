//! `criticd evaluate`.

mod live;
mod model;

use super::Failure;
use super::actions::{ActionKind, action_kind, input_names};
use super::client::endpoint;
use super::dictionary::DictionaryOptions;
use super::fit::Fit;
use super::given::{self, TABLES, TableOptions, plural};
use super::held_out::Like;
use super::label::FitAlone;
use super::output::{Spinner, columns, facts, in_file, number, print, print_json};
use super::policy;
use super::world::WorldOptions;
use crate::learner::action::{ActionSpace, ActionValue, Successor, Trace};
use crate::learner::batch::Given;
use crate::learner::off_policy::{ELEMENTS_MAX, ESS_MIN, Fitted, Judged, LearnedQ, Taught, learn};
use crate::learner::{Lambda, Settings};
use crate::table::Table;
use crate::transition::Rows;
use crate::wire;
use clap::Parser as _;
use serde_json::Value;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Estimates in the order in which they are shown.
const ESTIMATES: [&str; 6] = ["is", "wis", "pdis", "dr", "fqe", "model"];

/// Judge another policy by the transitions of the one that acted
///
/// What it would earn from the states where episodes began: by importance sampling where the table has the probabilities of
/// both policies, and by a fitted Q (and both together, doubly robust) where --actions says what the actions are.
#[derive(Debug, clap::Args)]
#[command(
    after_help = format!(
        "Examples:\n  criticd evaluate log.csv                                    columns behavior_prob and target_prob\n  criticd evaluate log.csv --actions discrete:3 --policy probs.csv\n  criticd evaluate log.csv --actions discrete:3 --policy tcp://127.0.0.1:5760    ask its server\n  criticd evaluate arm.parquet --actions box --policy actions.csv --json\n  criticd evaluate log.csv --actions discrete:3 --policy probs.csv --by both    a second opinion\n  criticd evaluate tcp://127.0.0.1:5751 --policy tcp://127.0.0.1:5760    by a daemon's rows\n  criticd evaluate tcp://127.0.0.1:5751 --states states.csv     the states of its last 10000 rows\n  criticd evaluate tcp://127.0.0.1:5751 --policy probs.csv --from 0\n\nbehavior_prob may be called action_prob or action_logp (RLlib), pscore or propensity_score (obp) or probability (VW).\n\nThe file of --policy has one row for each transition of the table: prob_0, prob_1, ... (the policy's probabilities of the discrete actions in that state), or action, or action_0, ... (the action it takes there). A server answers with the same numbers: `python -m criticd.policies net.onnx` is one for a network, at tcp://127.0.0.1:5760, and criticd.policies.PolicyServer one for any function. proto/README.md has the messages (\"Policies that answer\").\n\nis, wis and pdis are importance sampling, weighted and per decision; fqe is fitted Q evaluation, dr doubly robust: fqe of models that have not seen an episode, corrected by what happened in it; model (--by) a model of where actions lead, from the same rows. ess is the number of episodes that the weighted ones are worth. No interval is given where ess is below --ess-min, or where weights have another mean than 1; of the fitted Q, where its dictionary is too coarse, rows are few, or the policy does what was not done. Then a sentence says why.\n\nInstead of a TABLE there may be the control endpoint of a running daemon. It judges the policy by rows of its journal, with discount, kernel and dictionary_max of a critic of action values. A server of --policy is asked in the states of these rows. For a file, --states writes them; it has the policy's answers in them, one row for each, from the offset --from on.\n\n{TABLES}"
    )
)]
pub(crate) struct Evaluate {
    #[command(flatten)]
    table: TableOptions,
    /// What the policy does in the state of each transition: a table beside TABLE, or the endpoint of a server that is asked,
    /// see below [default: the column target_prob of TABLE, without a fitted Q]
    #[arg(long, value_name = "FILE|ENDPOINT")]
    policy: Option<PathBuf>,
    /// Seconds that the policy's server may take for 4096 states
    #[arg(long, value_name = "S", default_value_t = 30, requires = "policy", value_parser = clap::value_parser!(u64).range(1..=86400))]
    policy_timeout: u64,
    /// The actions there are, discrete:N or box: with it a Q is fitted
    #[arg(long, value_name = "KIND", value_parser = action_kind)]
    actions: Option<ActionKind>,
    /// With --actions: judge by a fitted Q (and doubly robust), by a model of the transition in its place, or by both. The model is a
    /// second opinion: it knows where actions lead, and has other errors
    #[arg(long, value_name = "WHAT", default_value = "fitted")]
    by: By,
    /// Discount of transitions that carry none
    #[arg(long, value_name = "G", default_value_t = Settings::default().discount, value_parser = given::discount)]
    discount: f64,
    /// Largest importance ratio of a transition: a lower one makes estimates surer, and biased
    #[arg(long, value_name = "R", default_value = "inf", value_parser = given::limit)]
    rho_max: f64,
    /// Effective episodes below which there is no interval
    #[arg(long, value_name = "N", default_value_t = ESS_MIN, value_parser = given::positive)]
    ess_min: f64,
    /// Groups of episodes for dr: each is judged by a Q that has learned from the others
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = given::at_least_one)]
    folds: usize,
    #[command(flatten)]
    dictionary: DictionaryOptions,
    /// Elements to which the dictionary of the fitted Q grows at most, beyond --dictionary-max, until its trace gap is 5 nats;
    /// 0 not to let it grow. With --dictionary it does not
    #[arg(long, value_name = "M", default_value_t = ELEMENTS_MAX)]
    grow_max: usize,
    #[command(flatten)]
    world: WorldOptions,
    #[command(flatten)]
    live: live::LiveOptions,
    /// Seed of everything random
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Most work that choosing a kernel may take: what one core does in about these seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = given::positive)]
    budget: f64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What --actions judges by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum By {
    /// A fitted Q
    Fitted,
    /// A model of the transition
    Model,
    /// Both
    Both,
}

impl Evaluate {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if let (By::Fitted, Some(option)) = (self.by, self.world.first_given()) {
            return Err(Failure::usage(format!(
                "{option} is of the model of the transition: add --by model or --by both"
            )));
        }
        self.world.rule(self.seed)?;
        if endpoint(&self.table.table).is_some() {
            if self.by != By::Fitted {
                return Err(Failure::usage(
                    "--by: a daemon judges by a fitted Q; `criticd export` writes its rows for a model",
                ));
            }
            return live::run(&self.table.table.to_string_lossy(), &self);
        }
        self.live.refuse_without_daemon()?;
        if self.table.dry(self.json)? {
            return Ok(());
        }
        let table = self.table.read()?;
        let table = if self.actions.is_some() { self.table.with_actions(table)? } else { table };
        let (names, categories) = (table.names_with_units(), table.categories().clone());
        let search = self.search(&table)?;
        let (dim, judged) = (table.dim(), self.judged(table)?);
        let texts = categories.of(dim);
        let progress = Spinner::start("judging");
        let space = self.actions.map(|kind| kind.space(&judged.columns, texts)).transpose()?;
        let fitted = match &space {
            Some(space) if self.by != By::Model => {
                let names = input_names(names.clone(), dim, space, texts);
                Some(self.fitted(&judged, space.clone(), (&search, names))?)
            }
            _ => None,
        };
        let findings = judged.findings(fitted, self.ess_min);
        let mut document = wire::findings_to_json(&findings);
        let modelled = match space {
            Some(space) if self.by != By::Fitted => {
                model::add(&self, &judged, space, (names, categories), &mut document)?;
                true
            }
            None if self.by != By::Fitted => return Err(Failure::usage("--by model needs --actions and --policy")),
            _ => false,
        };
        drop(progress);
        if findings.fitted.is_none() && findings.judgement.is_none() && !modelled {
            let message = "there is nothing to judge by: the table lacks behavior_prob or target_prob, and without --actions no Q can \
                           be fitted";
            return Err(in_file(&self.table.table, message));
        }
        self.print(&document)
    }

    /// How long the policy's server may take for one piece of the states.
    fn patience(&self) -> Duration {
        Duration::from_secs(self.policy_timeout)
    }

    fn print(&self, found: &Value) -> Result<(), Failure> {
        if self.json { print_json(found) } else { print(&text(found)) }
    }

    fn judged(&self, table: Table) -> Result<Judged, Failure> {
        let (episodes, mut columns) = (table.episodes().to_vec(), table.action_columns());
        let texts = table.action_texts().to_vec();
        let rows = table.into_rows();
        if rows.rewards_per_row > 1 {
            return Err(in_file(
                &self.table.table,
                "a policy is judged by one reward, the table has several: see --reward",
            ));
        }
        let policy = match &self.policy {
            Some(path) => {
                let width = columns.actions.width;
                if let Some(kind) = self.actions {
                    kind.space(&columns, &texts)?;
                }
                let policy = if endpoint(path).is_some() {
                    policy::ask(path, (&rows.states, rows.dim), width, self.actions, self.patience())?
                } else {
                    policy::read(path, (width, &texts), self.actions)?
                };
                if policy.len() != rows.len() {
                    let message = format!("has {} rows, the table has {} transitions", policy.len(), rows.len());
                    return Err(in_file(path, message));
                }
                policy.fill(&rows, &mut columns).map_err(|fault| in_file(path, fault))?;
                Some(policy)
            }
            None => None,
        };
        let rho_max = given::most(self.rho_max);
        Ok(Judged { rows, episodes, columns, policy, discount: self.discount, rho_max })
    }

    /// Fit Q of the policy that is judged, on all episodes and on all but each group of them.
    fn fitted(
        &self,
        judged: &Judged,
        space: ActionSpace,
        (search, names): (&Fit, Option<Vec<String>>),
    ) -> Result<Fitted, Failure> {
        if judged.policy.is_none() {
            return Err(Failure::usage(
                "--actions: a fitted Q needs what the policy does in the first state of each episode: --policy",
            ));
        }
        let of = ActionValue { space: space.clone(), successor: Successor::Sarsa, trace: Trace::OnPolicy };
        let acted = of.rows(&judged.rows, &judged.columns, judged.rho_max);
        // Kernel and noise by the returns of the policy that acted.
        let acted = acted.map_err(|e| in_file(&self.table.table, e))?.rows;
        let settings = Settings { action_value: Some(of.clone()), ..search.settings(&acted)? };
        let like = Like::of(&search.search(&acted, settings, names)?.model);
        judged.fitted(
            space,
            (self.folds, self.seed),
            &mut |of, rows, taught| self.fit(&like, of, rows, taught),
            &mut |_| {},
        )
    }

    /// The search of `fit`, for values of actions of a table.
    fn search(&self, table: &Table) -> Result<Fit, Failure> {
        let word = |text: String| OsString::from(text);
        let mut words = vec!["fit".into(), self.table.table.clone().into_os_string(), "--out".into(), "unused".into()];
        for (option, value) in [
            ("--inputs", "state_action".to_owned()),
            ("--seed", self.seed.to_string()),
            ("--budget", self.budget.to_string()),
            ("--dictionary-max", self.dictionary.dictionary_max.to_string()),
            ("--discount", self.discount.to_string()),
        ] {
            words.extend([word(option.into()), word(value)]);
        }
        let mut fit = FitAlone::try_parse_from(words)?.fit;
        fit.take_categories(table)?;
        Ok(fit)
    }

    /// Q of `rows` by kernel and noise of `like`.
    fn fit(&self, like: &Like, of: &ActionValue, rows: &Rows, taught: Taught) -> Result<LearnedQ, Failure> {
        let Like { settings, inputs, hyperparameters, .. } = like;
        let settings = Settings {
            action_value: Some(of.clone()),
            lambda: Lambda::Fixed(0.0),
            estimate_scale: false,
            rho_max: given::most(self.rho_max),
            ..settings.clone()
        };
        let given = Given { settings: &settings, rows, first: 0, inputs, hyperparameters, lambda: 0.0 };
        let grows = taught == Taught::All && self.dictionary.dictionary.is_none();
        let most = if grows { self.grow_max } else { 0 };
        Ok(learn(&given, self.dictionary.choose(&given)?.dictionary, most, &|| true)?)
    }
}

/// Findings as `wire::findings_to_json` has them, for people.
fn text(found: &Value) -> String {
    let count = |key: &str| found[key].as_u64().unwrap_or(0) as usize;
    let shown = |value: &Value| value.as_f64().map_or_else(|| "-".to_owned(), number);
    let mut lines = vec![(
        "judged by".to_owned(),
        format!("{}, {}", plural(count("episodes"), "episode"), plural(count("transitions"), "transition")),
    )];
    let weights = &found["weights"];
    if weights.is_object() {
        let tenths = |key: &str| weights[key].as_f64().map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
        let share = 100.0 * weights["zero_share"].as_f64().unwrap_or(0.0);
        let mean = format!("{} +- {}, 1 is expected", shown(&weights["mean"]), shown(&weights["mean_error"]));
        lines.extend([
            ("worth to this policy".to_owned(), format!("{} episodes (ess)", tenths("ess"))),
            ("of what was earned".to_owned(), format!("{} episodes", tenths("ess_earned"))),
            ("largest weight".to_owned(), shown(&weights["largest"])),
            ("mean weight".to_owned(), mean),
            ("without support".to_owned(), format!("{share:.1} % of the episodes")),
        ]);
    } else {
        lines.push(("weights".to_owned(), "none: not every transition has both behavior_prob and target_prob".into()));
    }
    let mut rows = Vec::new();
    for (name, estimate) in ESTIMATES.iter().filter_map(|name| Some((name, found["estimates"].get(name)?))) {
        let interval = match estimate["interval"].as_array().map(Vec::as_slice) {
            Some([low, high]) => format!("{} to {}", shown(low), shown(high)),
            _ => "-".into(),
        };
        rows.push(vec![(*name).to_owned(), shown(&estimate["value"]), shown(&estimate["error"]), interval]);
    }
    let sentences = |key: &str| found[key].as_array().into_iter().flatten().filter_map(Value::as_str);
    let said: String =
        sentences("refused").chain(sentences("warnings")).map(|sentence| format!("{sentence}\n")).collect();
    format!("{}\n{}{said}", facts(&lines), columns(&["estimate", "value", "error", "90 % interval"], &rows))
}
