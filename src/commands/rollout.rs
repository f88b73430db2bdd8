//! `criticd rollout`.

use super::Failure;
use super::client::{Connection, daemon_named, endpoint, with_critic};
use super::given::{self, TABLES, TableOptions, plural, read_states_as, unit_of, without_unit};
use super::inspect::read_model;
use super::output::{Spinner, columns, facts, in_file, note, number, output, print, print_json};
use super::policy;
use super::world::{AskedOptions, LIVE_PATIENCE, Modelled, TableRows, expression, live_facts, texts};
use crate::learner::act::{Actor, Exploration, Question};
use crate::learner::action::{ActionSpace, Column};
use crate::learner::off_policy::Policy;
use crate::picture::{Axis, Curves, Figure, Line, Panel};
use crate::snapshot::Evaluator;
use crate::table::Columns;
use crate::whole_file::OutputFile;
use crate::wire::course_to_json;
use crate::world::{Acting as Acted, Expression, Led, Names, Reach, WorldError, split};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Variables that are shown unless some are named.
const SHOWN: usize = 6;
/// Rows of the printed table, about.
const PRINTED: usize = 20;

/// Predict the course of chosen variables: where will the robot be in fifty steps, and how far ahead can that be believed?
///
/// From the rows of a table the command learns where they lead, under the policy that acted or under another one. Beside each
/// prediction stands how far such predictions missed held-out rows.
#[derive(Debug, clap::Args)]
#[command(
    after_help = format!(
        "Examples:\n  criticd rollout log.csv --steps 50                                  the policy that acted goes on\n  criticd rollout log.csv --show x,battery --from now.csv --out course.png\n  criticd rollout log.csv --show 'abs(angle)' --actions box --policy q.model    what a plan would do\n  criticd rollout log.csv --actions discrete:3 --policy probs.csv --json\n\nThe course is the mean over the states where episodes begin, or over the states of --from. Where rows terminate, it is the mean of what has not ended, and the share of that is shown. within is the magnitude that 90 % of the errors of predictions for single held-out rows stay below, that number of steps ahead. A variable is within reach as long as the error of such predictions is at most half of the spread of what came.\n\n{TABLES}"
    )
)]
pub(crate) struct Rollout {
    #[command(flatten)]
    table: TableOptions,
    /// Steps to look ahead
    #[arg(long, value_name = "T", default_value_t = 20, value_parser = given::at_least_one)]
    steps: usize,
    /// What to predict: state variables, or expressions of them, separated by commas [default: the first six variables]
    #[arg(long, value_name = "EXPRESSIONS", allow_hyphen_values = true)]
    show: Option<String>,
    /// Where to begin: a table of states [default: where episodes begin]
    #[arg(long, value_name = "STATES")]
    from: Option<PathBuf>,
    /// What acts: a model of action values (it takes the best action), a table with one row for each transition as for `evaluate`,
    /// or the endpoint of a server [default: the policy that acted]
    #[arg(long, value_name = "MODEL|FILE|ENDPOINT")]
    policy: Option<PathBuf>,
    /// Seconds that the policy's server may take for 4096 states
    #[arg(long, value_name = "S", default_value_t = 30, requires = "policy", value_parser = clap::value_parser!(u64).range(1..=86400))]
    policy_timeout: u64,
    /// Draw the course: .png or .svg
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    asked: AskedOptions,
}

/// Who acts from now on.
enum RolloutActor {
    /// The policy that acted.
    Same,
    /// The best action of a model.
    Model(Box<Actor>, PathBuf),
    /// A table of answers for the rows.
    File(PathBuf),
    /// A server.
    Server(PathBuf),
}

/// A course, and how predictions like it did.
struct FoundCourse {
    shown: Vec<Expression>,
    led: Led,
    reach: Reach,
    starts: usize,
}

impl Rollout {
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        if let Some(endpoint) = daemon_named(&self.table.table) {
            return self.live(&endpoint);
        }
        self.asked.check_no_daemon()?;
        if self.policy.is_some() != self.asked.actions.is_some() {
            return Err(Failure::usage("--policy and --actions go together: who acts, and which actions there are"));
        }
        // A course has no reward.
        self.table.set_reward("0");
        if self.table.dry(self.asked.json)? {
            return Ok(());
        }
        let out = self.out()?;
        let acting = self.acting()?;
        let table = match &acting {
            RolloutActor::Model(actor, path) => self.table.read_like(actor.snapshot(), path)?,
            _ => self.table.read()?,
        };
        let path = &self.table.table;
        let given = TableRows::of(&self.table, table, self.asked.actions, None)?;
        let shown = self.shown(&given)?;
        let progress = Spinner::start("learning where rows lead");
        let acted = self.asked.actions.is_some();
        let of = self.asked.world.learn(path, given, (acted, acted), self.asked.seed)?;
        let found = self.found(&of, shown, &acting)?;
        drop(progress);
        let shown: Vec<String> = found.shown.iter().map(|show| show.text.clone()).collect();
        let mut document = course_to_json(&found.led, Some(&found.reach), &shown, found.starts);
        document["model"] = of.document();
        let labels = shown.iter().map(|text| label(&of.table.names, text)).collect();
        self.tell(&ToldCourse { facts: of.facts(), labels, document, ends: of.ends(), checked: "held-out" }, out)
    }

    /// Print and draw a course.
    fn tell(&self, told: &ToldCourse, out: Option<(OutputFile, bool)>) -> Result<(), Failure> {
        if let Some((out, is_png)) = out {
            let figure = told.figure();
            out.write(&if is_png { figure.png_in_rows(2) } else { figure.svg_in_rows(2).into_bytes() })?;
        }
        texts(&told.document["warnings"]).iter().for_each(|doubt| note(doubt));
        if self.asked.json { print_json(&told.document) } else { print(&told.text()) }
    }

    /// Ask a daemon.
    fn live(&self, endpoint: &str) -> Result<(), Failure> {
        self.asked.check_no_table(self.table.dry_run)?;
        let out = self.out()?;
        let mut fields = json!({"steps": self.steps});
        match self.policy.as_ref().map(|policy| policy.to_string_lossy()) {
            None => {}
            Some(named) if named == "acted" || named == "best" => fields["policy"] = json!(named),
            Some(other) => {
                return Err(Failure::usage(format!(
                    "--policy {other}: a daemon knows acted (the policy that acted) and best (the best action), or plans for --reward"
                )));
            }
        }
        if let Some(reward) = self.table.reward() {
            fields["reward"] = json!(reward);
        }
        if let Some(show) = &self.show {
            fields["show"] = json!(split(show));
        }
        let (connection, critic) = (Connection::to(endpoint), self.asked.critic.as_deref());
        let mut requester = connection.connect()?;
        let hello = requester.ask("hello", json!({}), connection.timeout())?;
        if let (Some(file), Some(dim)) = (&self.from, hello["state_dim"].as_u64()) {
            let dim = dim as usize;
            let states = read_states_as(file, &Columns::default(), dim, "daemon's models")?;
            fields["states"] = json!(states.chunks_exact(dim).collect::<Vec<_>>());
        }
        let document = requester.ask("rollout", with_critic(fields, critic), LIVE_PATIENCE)?;
        let (names, shown) = (texts(&hello["state_names"]), document["variables"].as_array().into_iter().flatten());
        let labels = shown.filter_map(|of| of["name"].as_str()).map(|text| label(&names, text)).collect();
        let mut facts = live_facts(&document);
        let value = &document["value"];
        if let Some(mean) = value["mean"].as_f64() {
            let error = value["error"].as_f64().map_or_else(String::new, |error| format!(" +- {}", number(error)));
            let reward = value["reward"].as_str().unwrap_or_default();
            let text = format!("{}{error} of {reward}, discount {}", number(mean), value["discount"]);
            facts.push(("value at the starts".to_owned(), text));
        }
        let ends = document["alive"].as_array().is_some_and(|alive| alive.iter().any(|share| share != 1.0));
        self.tell(&ToldCourse { facts, labels, document, ends, checked: "later" }, out)
    }

    /// Where the picture goes, and whether it is a PNG.
    fn out(&self) -> Result<Option<(OutputFile, bool)>, Failure> {
        let Some(path) = &self.out else { return Ok(None) };
        let is = |end: &str| path.extension().is_some_and(|of| of.eq_ignore_ascii_case(end));
        if !is("png") && !is("svg") {
            return Err(Failure::usage(format!("--out {}: must end in .png or .svg", path.display())));
        }
        let inputs: Vec<&Path> = self.table.files().chain(self.from.as_deref()).chain(self.policy.as_deref()).collect();
        Ok(Some((output(path, &inputs)?, is("png"))))
    }

    fn acting(&self) -> Result<RolloutActor, Failure> {
        let Some(path) = &self.policy else { return Ok(RolloutActor::Same) };
        let table = ["csv", "jsonl", "npz", "parquet", "onnx"];
        let acting = match path {
            path if endpoint(path).is_some() => RolloutActor::Server(path.clone()),
            path if path.extension().is_some_and(|of| table.iter().any(|end| of.eq_ignore_ascii_case(end))) => {
                RolloutActor::File(path.clone())
            }
            path => {
                let actor = Actor::new(Evaluator::new(read_model(path)?)).map_err(|e| in_file(path, e))?;
                RolloutActor::Model(Box::new(actor), path.clone())
            }
        };
        if let (RolloutActor::File(path), Some(_)) = (&acting, &self.from) {
            let message =
                format!("--from: {} has the policy's answers in the states of the table alone", path.display());
            return Err(Failure::usage(message));
        }
        Ok(acting)
    }

    /// What is predicted.
    fn shown(&self, given: &TableRows) -> Result<Vec<Expression>, Failure> {
        let names: Vec<&str> = given.names.iter().map(|name| without_unit(name)).collect();
        // Codes of texts have no mean.
        let numbers: Vec<usize> = (0..names.len()).filter(|&d| given.categories.of(d).is_empty()).take(SHOWN).collect();
        let texts = match &self.show {
            Some(text) => split(text),
            None => numbers.iter().map(|&d| names[d].to_owned()).collect(),
        };
        if texts.is_empty() || texts.len() > SHOWN {
            return Err(Failure::usage(format!("--show: name 1 to {SHOWN} variables or expressions")));
        }
        let one = |(k, text): (usize, &String)| {
            let d = names.iter().position(|name| name == text);
            if let Some((code, last)) = d.and_then(|d| given.categories.of(d).iter().enumerate().next_back()) {
                return Err(Failure::usage(format!(
                    "--show {text}: holds texts, of which there is no mean; (abs({text}-{code})<0.5) is the share of {last}"
                )));
            }
            // Names of variables need not be of the grammar.
            let named = self.show.is_none().then(|| format!("state[{}]", numbers[k]));
            let known = Names { states: &given.names, space: None, actions: &[] };
            let found = expression("--show", named.as_deref().unwrap_or(text), &known)?;
            let found = found.map(|shown| shown.called(text));
            found.ok_or_else(|| {
                Failure::usage(format!(
                    "--show {text}: names no state variable; there are {}",
                    given::listed(&given.names)
                ))
            })
        };
        texts.iter().enumerate().map(one).collect()
    }

    fn found(&self, of: &Modelled, shown: Vec<Expression>, acting: &RolloutActor) -> Result<FoundCourse, Failure> {
        let path = &self.table.table;
        let fault = |e: WorldError| in_file(path, e);
        let functions = |state: &[f64]| shown.iter().map(|show| show.value(state)).collect::<Vec<f64>>();
        let begin = of.starts();
        let from = match &self.from {
            None => None,
            Some(file) => {
                let names = of.table.names.iter().map(|name| without_unit(name).to_owned()).collect();
                let columns = Columns { names, categories: of.table.categories.clone(), ..Columns::default() };
                Some(read_states_as(file, &columns, of.table.rows.dim, "table")?)
            }
        };
        let starts = from.as_ref().map_or(begin.len(), |states| states.len() / of.table.rows.dim);
        let (model, at) = self.tables(of, acting, from, &begin)?;
        let motion = model.motion().map_err(fault)?;
        let led = of.dynamics.led(&motion, &at, &functions, (self.steps, of.ends())).map_err(fault)?;
        let reach = of.reach(path, &functions, (shown.len(), self.steps))?;
        Ok(FoundCourse { shown, led, reach, starts })
    }

    /// The model at C and at the starts, each with the shares of the actions there.
    fn tables(
        &self,
        of: &Modelled,
        acting: &RolloutActor,
        from: Option<Vec<f64>>,
        begin: &[usize],
    ) -> Result<(Acted, Acted), Failure> {
        let fault = |e: WorldError| in_file(&self.table.table, e);
        let at_c = of.dynamics.after().states();
        let at = |states: &[f64], policy: &Policy, places: &[usize]| {
            let entries = policy.entries(places, states, &of.table.space)?;
            of.dynamics.acting(entries.inputs, entries.actions, entries.shares).map_err(fault)
        };
        if let RolloutActor::File(file) = acting {
            let policy = policy::read(
                file,
                (of.table.columns.actions.width, of.table.categories.of(of.table.rows.dim)),
                self.asked.actions,
            )?;
            policy.check(of.table.rows.len(), &of.table.space).map_err(|fault| in_file(file, fault))?;
            return Ok((at(&at_c, &policy, &of.answered())?, at(&of.states_of(begin), &policy, begin)?));
        }
        let each = |states: &[f64]| {
            let policy = self.answers(acting, states, of)?;
            at(states, &policy, &(0..policy.len()).collect::<Vec<_>>())
        };
        Ok((each(&at_c)?, each(&from.unwrap_or_else(|| of.states_of(begin)))?))
    }

    /// What acts in these states.
    fn answers(&self, acting: &RolloutActor, states: &[f64], of: &Modelled) -> Result<Policy, Failure> {
        let dim = of.table.rows.dim;
        let discrete = of.table.space.choices() > 0;
        match acting {
            RolloutActor::Same | RolloutActor::File(_) => {
                let values = vec![0.0; states.len() / dim];
                Ok(Policy::Actions { taken: Column { width: 1, values }, discrete: false })
            }
            RolloutActor::Server(path) => {
                let patience = Duration::from_secs(self.policy_timeout);
                policy::ask(path, (states, dim), of.table.columns.actions.width, self.asked.actions, patience)
            }
            RolloutActor::Model(actor, path) => {
                let same = |a: &ActionSpace, b: &ActionSpace| (a.choices(), a.numbers()) == (b.choices(), b.numbers());
                if !same(actor.space(), &of.table.space) {
                    return Err(in_file(path, "its actions are others than --actions says"));
                }
                let mut taken = Column { width: of.table.space.numbers(), values: Vec::new() };
                for state in states.chunks_exact(dim) {
                    let exploration = Exploration::Greedy;
                    let question = Question {
                        state,
                        exploration,
                        seed: 0,
                        episode: 0,
                        step: 0,
                        candidates: None,
                        unknown_above: None,
                    };
                    taken.values.extend(actor.act(&question).map_err(|e| in_file(path, e))?.action);
                }
                Ok(Policy::Actions { taken, discrete })
            }
        }
    }
}

/// What a reader sees of a course, whichever command found it.
struct ToldCourse {
    facts: Vec<(String, String)>,
    /// What is shown, with its unit.
    labels: Vec<String>,
    /// As [`course_to_json`] has it.
    document: Value,
    /// Whether any row ends.
    ends: bool,
    /// The rows that predictions are compared with.
    checked: &'static str,
}

impl ToldCourse {
    fn steps(&self) -> usize {
        self.document["alive"].as_array().map_or(0, Vec::len)
    }

    /// Numbers of what is shown as number k, after 1, 2, .. steps; none where too few rows say one.
    fn numbers(&self, k: usize, key: &str) -> Vec<Option<f64>> {
        let of = self.document["variables"][k][key].as_array();
        of.map(|of| of.iter().map(Value::as_f64).collect()).unwrap_or_default()
    }

    fn reach(&self, k: usize) -> String {
        let of = &self.document["variables"][k];
        let (steps, checked) = (of["reach"].as_u64().unwrap_or(0) as usize, self.checked);
        match (steps, of["reach_known"] == true) {
            (0, true) => "not even one step".to_owned(),
            (0, false) => format!("not known: too few {checked} rows"),
            (steps, true) if steps == self.steps() => format!("all {}", plural(steps, "step")),
            (steps, true) => plural(steps, "step"),
            (steps, false) => format!("at least {}: no {checked} chains are longer", plural(steps, "step")),
        }
    }

    fn text(&self) -> String {
        let mut lines = self.facts.clone();
        let starts = self.document["starts"].as_u64().unwrap_or(0) as usize;
        lines.push(("begins in".to_owned(), plural(starts, "state")));
        if let Some(share) = self.document["unsupported"].as_f64() {
            lines.push(("without support".to_owned(), format!("{:.1} % of what follows", 100.0 * share)));
        }
        for (k, label) in self.labels.iter().enumerate() {
            lines.push((format!("reach of {label}"), self.reach(k)));
        }
        let mut titles = vec!["step".to_owned()];
        self.labels.iter().for_each(|label| titles.extend([label.clone(), "within".to_owned()]));
        titles.extend(self.ends.then(|| "not ended".to_owned()));
        let steps = self.steps();
        let each = steps.div_ceil(PRINTED).max(1);
        let of: Vec<[Vec<Option<f64>>; 2]> =
            (0..self.labels.len()).map(|k| ["mean", "within"].map(|key| self.numbers(k, key))).collect();
        let row = |step: usize| {
            let cell = |of: &[Option<f64>]| of[step].map_or_else(|| "-".to_owned(), number);
            let mut row = vec![(step + 1).to_string()];
            of.iter().for_each(|[mean, within]| row.extend([cell(mean), cell(within)]));
            let alive = self.document["alive"][step].as_f64().unwrap_or(1.0);
            row.extend(self.ends.then(|| format!("{:.0} %", 100.0 * alive)));
            row
        };
        let rows: Vec<Vec<String>> = (0..steps).filter(|step| step % each == 0 || step + 1 == steps).map(row).collect();
        format!("{}\n{}", facts(&lines), columns(&titles.iter().map(String::as_str).collect::<Vec<_>>(), &rows))
    }

    /// A panel for each variable, with a band that nine of ten rows were within.
    fn figure(&self) -> Figure {
        let steps = self.steps();
        let at: Vec<f64> = (1..=steps).map(|step| step as f64).collect();
        let panel = |(k, label): (usize, &String)| {
            let mean = self.numbers(k, "mean").into_iter().map(|mean| mean.unwrap_or(f64::NAN));
            let within = self.numbers(k, "within");
            let known = within.iter().any(Option::is_some);
            // The band of a line has two deviations.
            let deviation = |within: &Option<f64>| within.unwrap_or(f64::NAN) / 2.0;
            let (told, rest): (Vec<f64>, Vec<f64>) = mean
                .zip(&within)
                .map(|(mean, within)| if within.is_some() { (mean, f64::NAN) } else { (f64::NAN, mean) })
                .unzip();
            let (mut lines, checked) = (Vec::new(), self.checked);
            if known {
                let label = format!("mean; nine of ten {checked} rows were within the band");
                let deviation = within.iter().map(deviation).collect();
                lines.push(Line { label, mean: told, deviation: Some(deviation), dashed: false });
            }
            if rest.iter().any(|mean| mean.is_finite()) {
                let label = format!("mean, checked by no {checked} row");
                lines.push(Line { label, mean: rest, deviation: None, dashed: true });
            }
            Panel::Curves(Curves {
                title: format!("{label}: reach {}", self.reach(k)),
                x: Axis::new("steps ahead", 0.0, steps as f64 + 1.0),
                y_label: label.clone(),
                y_scale: crate::picture::Scale::Linear,
                y_range: None,
                at: at.clone(),
                lines,
                fade: None,
                points: Vec::new(),
            })
        };
        Figure { panels: self.labels.iter().enumerate().map(panel).collect() }
    }
}

/// With its unit, where it is a variable that has one.
fn label(names: &[String], text: &str) -> String {
    let unit = names.iter().find(|name| without_unit(name) == text).map_or("", |name| unit_of(name));
    format!("{text}{unit}")
}
