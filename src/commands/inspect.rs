//! `criticd inspect`.

use super::Failure;
use super::as_of;
use super::client::{daemon_named, model_of};
use super::compact::refuse_unfinished;
use super::given::{common_unit, plural, sum};
use super::output::{columns, facts, in_file, moment, number, print, print_json};
use crate::daemon::as_of::Moment;
use crate::daemon::recovery::NEWER_REMEDY;
use crate::daemon::survey::{Survey, holds_journal, survey};
use crate::daemon::{self, StartError};
use crate::journal::store::StoreError;
use crate::learner::heads::HeadsSnapshot;
use crate::math::embedding::StateKind;
use crate::math::kernel::{Kernel, Metric};
use crate::snapshot::Snapshot;
use crate::transition::state_name;
use crate::wire::{decode_snapshot, hyperparameters_to_json};
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Describe a model file, or the data directory of a stopped daemon
///
/// A lengthscale is in the unit of its state variable: over this distance, other variables fixed, the correlation of values
/// falls to about a half.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd inspect walk.model\n  criticd inspect walk.model --json\n  criticd inspect /var/lib/criticd\n  criticd inspect /var/lib/criticd --as-of 120000      the model that answered when 120000 rows had been stored"
)]
pub(crate) struct Inspect {
    /// A value function, as `fit` writes it; or a data directory
    #[arg(value_name = "MODEL|DATA_DIR")]
    model: PathBuf,
    #[command(flatten)]
    then: Then,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if self.model.is_dir() && !self.then.is_asked() {
            return self.directory();
        }
        let snapshot = self.then.read(&self.model, None)?;
        if self.json {
            return print_json(&document(&snapshot));
        }
        let path = self.model.display();
        print(&format!("{}\nNext: criticd value {path} STATES.csv evaluates it.\n", describe(&snapshot)))
    }
}

impl Inspect {
    fn directory(&self) -> Result<(), Failure> {
        let directory = &self.model;
        if !holds_journal(directory) {
            refuse_unfinished(directory)?;
            let what = "a directory without a journal; give a data directory, or the model file that `criticd fit --out` wrote";
            return Err(in_file(directory, what));
        }
        let _lock = match daemon::lock(directory) {
            Err(StartError::Locked { .. }) => {
                let data_dir = directory.display();
                return Err(in_file(
                    directory,
                    format!("a daemon runs here; ask `criticd status --data-dir {data_dir}`"),
                ));
            }
            // Where nothing can be written no daemon runs: a copy, or a read-only mount.
            Err(StartError::DataDir { source, .. })
                if matches!(source.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied) =>
            {
                None
            }
            other => Some(other?),
        };
        let found = survey_directory(directory)?;
        if self.json {
            return print_json(&directory_document(&found));
        }
        let next = match &found.fault {
            None => "Next: criticd serve continues from here.".to_owned(),
            Some(_) if found.newer => format!("{NEWER_REMEDY}."),
            Some(_) => {
                format!("Next: criticd repair {} shows the ways to mend it, and what each loses.", directory.display())
            }
        };
        print(&format!("{}\n{next}\n", describe_directory(&found)))
    }
}

/// What is in a data directory.
pub(super) fn survey_directory(directory: &Path) -> Result<Survey, Failure> {
    survey(directory).map_err(|e| match e {
        StoreError::Newer { .. } => in_file(directory, format!("{e}. {NEWER_REMEDY}")),
        e => in_file(directory, e),
    })
}

/// A data directory in words.
pub(super) fn describe_directory(found: &Survey) -> String {
    let rows = found.offsets.1 - found.offsets.0;
    let mut lines = vec![
        ("journal".to_owned(), format!("{rows} rows in {} groups, {} bytes", found.groups, found.bytes)),
        ("offsets".to_owned(), format!("{} to {}", found.offsets.0, found.offsets.1)),
        ("adoptions".to_owned(), found.adopted.to_string()),
    ];
    if let Some((first, last)) = found.times {
        lines.push(("times".to_owned(), format!("{} to {}", moment(first), moment(last))));
    }
    if found.skipped > 0 {
        lines.push(("left out".to_owned(), plural(found.skipped as usize, "batch")));
    }
    for checkpoint in &found.checkpoints {
        let what = match &checkpoint.fault {
            None => format!("at offset {}, {} bytes", checkpoint.offset, checkpoint.bytes),
            Some(fault) => format!("behind group {}, {} bytes: {fault}", checkpoint.group, checkpoint.bytes),
        };
        lines.push(("checkpoint".to_owned(), what));
    }
    lines.push(("state".to_owned(), found.fault.clone().unwrap_or_else(|| "good".to_owned())));
    facts(&lines)
}

fn directory_document(found: &Survey) -> Value {
    let checkpoints: Vec<Value> = found
        .checkpoints
        .iter()
        .map(|c| json!({"group": c.group, "offset": c.offset, "bytes": c.bytes, "fault": c.fault}))
        .collect();
    json!({
        "groups": found.groups,
        "rows": found.offsets.1 - found.offsets.0,
        "first_offset": found.offsets.0,
        "offset": found.offsets.1,
        "bytes": found.bytes,
        "times": found.times.map(|(first, last)| [first, last]),
        "adopted": found.adopted,
        "skipped": found.skipped,
        "durable_offset": found.known.map(|known| known.offset),
        "checkpoints": checkpoints,
        "fault": found.fault,
        "rows_lost": found.rows_lost(),
    })
}

/// Which model of a daemon: for commands whose MODEL may be a data directory.
#[derive(Debug, clap::Args)]
pub(super) struct Then {
    /// MODEL is a daemon: take the model as it was when this number of rows had been stored, or at a time: @ and Unix seconds.
    /// It is learned again from the data directory, whether a daemon runs there or not, or by the daemon itself where MODEL is
    /// its endpoint
    #[arg(long, value_name = "OFFSET|@TIME", value_parser = as_of::moment)]
    as_of: Option<Moment>,
}

impl Then {
    /// Whether a moment is asked for.
    pub(super) fn is_asked(&self) -> bool {
        self.as_of.is_some()
    }

    /// The model of a file, or of a daemon as it is or was.
    pub(super) fn read(&self, model: &Path, critic: Option<&str>) -> Result<Snapshot, Failure> {
        match self.as_of {
            Some(moment) => as_of::snapshot(model, critic, moment, None),
            None => read_model(model),
        }
    }
}

/// A model file.
pub(super) fn read_model(path: &Path) -> Result<Snapshot, Failure> {
    if let Some(control) = daemon_named(path) {
        return model_of(&control);
    }
    if path.is_dir() {
        return Err(in_file(
            path,
            "a directory where no daemon runs; give the model file that `criticd fit --out` wrote",
        ));
    }
    let bytes = std::fs::read(path).map_err(|e| in_file(path, e))?;
    let explain = |e| in_file(path, format!("not a model as `criticd fit` writes it: {e}"));
    let snapshot = decode_snapshot(&bytes).map_err(explain)?;
    Ok(snapshot)
}

/// The number of the head called `name` of the model in file `path`.
pub(super) fn head_called(snapshot: &Snapshot, name: &str, path: &Path) -> Result<usize, Failure> {
    let unknown = || {
        let mut known: Vec<&str> = snapshot.all_heads().map(|head| head.name.as_str()).collect();
        if known.is_empty() {
            return in_file(path, "has no heads; `criticd fit --heads` learns some");
        }
        let more = if known.len() > HEADS_LISTED { ", ..." } else { "" };
        known.truncate(HEADS_LISTED);
        in_file(path, format!("no head is called {name}; there are {}{more}", known.join(", ")))
    };
    snapshot.position_of_head(name).ok_or_else(unknown)
}

/// How far each state variable must move, in its own unit, for the squared distance to reach 1; infinite if it counts for
/// nothing, not a number for a category, which has no lengths.
pub(super) fn lengthscales(snapshot: &Snapshot) -> Vec<f64> {
    let (kernel, dim) = (&snapshot.hyperparameters.kernel, snapshot.dim());
    let scale = snapshot.inputs.scale.iter().enumerate();
    scale.map(|(d, scale)| kernel.lengthscale(d, dim).map_or(f64::NAN, |length| length * scale)).collect()
}

/// What the state variables are called.
pub(super) fn names(snapshot: &Snapshot) -> Vec<String> {
    let numbered = || (0..snapshot.dim()).map(state_name).collect();
    snapshot.inputs.names.clone().unwrap_or_else(numbered)
}

/// Heads that an error names.
const HEADS_LISTED: usize = 10;

/// Heads that are named in words.
const HEADS_NAMED: usize = 5;

/// Why a model has no deviations.
pub(super) const UNSCALED: &str = "all rewards have been 0: nothing tells how large values may be";
/// What `provisional` means.
pub(super) const PROVISIONAL: &str =
    "model selection has not chosen this model yet; deviations are those before any row";

/// What live verification has found about the spread of returns.
pub(super) fn verified(factor: f64, pairs: u64, coverage: Option<f64>) -> String {
    if pairs == 0 {
        return "their spread is known, and not verified yet".to_owned();
    }
    let rounded = number((1e3 * factor).round() / 1e3);
    let before =
        coverage.map(|share| format!("; before that, 90 % intervals held {:.0} % of the returns", 100.0 * share));
    format!(
        "deviations times {rounded}, from {pairs} verified pairs of prediction and return{}",
        before.unwrap_or_default()
    )
}

/// The model in words and columns.
pub(super) fn describe(snapshot: &Snapshot) -> String {
    let of = &snapshot.hyperparameters.kernel;
    let Kernel { signal_variance, metric, profile, .. } = of;
    let kind = match metric {
        Metric::Factor { factors, .. } => format!("factor:{}", factors.len()),
        other => other.kind().to_owned(),
    };
    let linear = of.columns.iter().find(|column| column.function.is_linear());
    let kernel = format!(
        "{kind}, {}, signal variance {}, bias variance {}{}",
        profile.name(),
        number(*signal_variance),
        number(of.constant_variance()),
        linear.map_or_else(String::new, |column| format!(", linear columns of variance {}", number(column.variance)))
    );
    let noise = snapshot.hyperparameters.noise_variance;
    let unit = common_unit(&snapshot.reward_names);
    let noise_words = format!(
        "{}, variance {} (std {}{unit})",
        snapshot.hyperparameters.noise.name(),
        number(noise),
        number(noise.sqrt())
    );
    let rewards = snapshot.weights.ncols();
    let functions = if rewards == 1 { String::new() } else { format!(" for {rewards} rewards") };
    let variance = if snapshot.variance.is_some() { "" } else { ", without variance" };
    let mut lines = vec![
        ("critic".to_owned(), format!("{}, generation {}", snapshot.critic, snapshot.generation)),
        (
            "learned".to_owned(),
            format!(
                "{} transitions, discount {}, lambda {}",
                snapshot.transitions,
                snapshot.discount,
                number(snapshot.lambda)
            ),
        ),
    ];
    if !snapshot.reward_names.is_empty() {
        lines.push((
            "values".to_owned(),
            format!("{}s of {}", sum(snapshot.discount), snapshot.reward_names.join(", ")),
        ));
    }
    lines.extend([
        ("kernel".to_owned(), kernel),
        ("noise".to_owned(), noise_words),
        ("dictionary".to_owned(), plural(snapshot.dictionary.nrows(), "state") + &functions + variance),
        (
            "log evidence".to_owned(),
            match snapshot.log_evidence {
                Some(nats) => format!("{} nats, of the rows through the dictionary", number(nats)),
                None => "none: with lambda below 1, or a ridge selected by held-out returns, the targets contain the model's own values"
                    .into(),
            },
        ),
    ]);
    if let Some(score) = snapshot.score {
        lines.push(("score".to_owned(), format!("{} nats per transition since adoption", number(score))));
    }
    if let Some(spread) = &snapshot.returns {
        lines.push(("returns".to_owned(), verified(spread.factor, spread.pairs, spread.coverage)));
    }
    if let Some(heads) = &snapshot.heads {
        lines.push(("heads".to_owned(), heads_in_words(heads)));
    }
    if !snapshot.level.is_empty() {
        let level: Vec<String> = snapshot.level.iter().map(|mu| number(*mu)).collect();
        lines.push(("level".to_owned(), format!("{}, which values are learned about", level.join(", "))));
    }
    if let Some(mean) = &snapshot.mean {
        let states = plural(mean.dictionary.nrows(), "state");
        lines.push(("mean".to_owned(), format!("a model of {states}, which values are learned about")));
    }
    if snapshot.provisional {
        lines.push(("provisional".to_owned(), PROVISIONAL.to_owned()));
    }
    format!("{}\n{}", facts(&lines), lengths(snapshot))
}

/// A line for each variable: how far it goes before V is another, and what directions have of it.
fn lengths(snapshot: &Snapshot) -> String {
    let Kernel { metric, kinds, columns: given, .. } = &snapshot.hyperparameters.kernel;
    let relevance = metric.relevance(snapshot.dim());
    let scales = lengthscales(snapshot);
    let mut heads = vec!["variable".to_owned(), "lengthscale".to_owned(), "in deviations".to_owned()];
    heads.extend((!kinds.is_empty()).then(|| "kind".to_owned()));
    heads.extend((0..metric.factors().len()).map(|j| format!("factor {j}")));
    let rows: Vec<Vec<String>> = names(snapshot)
        .into_iter()
        .enumerate()
        .map(|(d, name)| {
            let scale = match scales[d] {
                scale if scale.is_finite() => number(scale),
                _ if relevance[d] > 0.0 => "category".into(),
                _ if given.iter().any(|column| column.function.variable() == Some(d)) => "linear".into(),
                _ => "not used".into(),
            };
            let bent = kinds.get(d).map_or(1.0, StateKind::unit);
            let in_deviations = match bent / relevance[d].sqrt() {
                length if length.is_finite() => number(length),
                _ => "–".into(),
            };
            let mut row = vec![name, scale, in_deviations];
            row.extend(kinds.get(d).map(StateKind::to_string));
            row.extend(metric.factors().iter().map(|f| number(f[d])));
            row
        })
        .collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    columns(&heads, &rows)
}

/// How many heads there are, the first names, and how far verification has moved their deviations.
fn heads_in_words(heads: &HeadsSnapshot) -> String {
    let names: Vec<&str> = heads.heads.iter().take(HEADS_NAMED).map(|head| head.name.as_str()).collect();
    let more = if heads.heads.len() > HEADS_NAMED { ", ..." } else { "" };
    let factors = heads.verified.iter().map(|verified| verified.factor);
    let spread = factors.clone().reduce(f64::min).zip(factors.reduce(f64::max)).filter(|spread| *spread != (1.0, 1.0));
    let spread = spread.map_or_else(String::new, |(least, most)| {
        format!("; deviations of returns times {} to {}", number(least), number(most))
    });
    format!("{} ({}{more}){spread}", heads.heads.len(), names.join(", "))
}

pub(super) fn document(snapshot: &Snapshot) -> Value {
    let mut out = hyperparameters_to_json(&snapshot.hyperparameters, Some(&snapshot.inputs));
    let facts = json!({
        "critic": snapshot.critic,
        "generation": snapshot.generation,
        "revision": snapshot.revision,
        "offset": snapshot.offset,
        "transitions": snapshot.transitions,
        "time": snapshot.time,
        "discount": snapshot.discount,
        "lambda": snapshot.lambda,
        "provisional": snapshot.provisional,
        "level": snapshot.level,
        "mean": snapshot.mean.as_ref().map(|mean| json!({"dictionary_size": mean.dictionary.nrows()})),
        "returns": snapshot.returns.as_ref().map(|spread| {
            json!({"factor": spread.factor, "pairs": spread.pairs, "coverage": spread.coverage})
        }),
        "dictionary_size": snapshot.dictionary.nrows(),
        "rewards": snapshot.weights.ncols(),
        "heads": snapshot.heads.as_ref().map_or(0, |heads| heads.heads.len()),
        "has_variance": snapshot.variance.is_some(),
        "log_evidence": snapshot.log_evidence,
        "score": snapshot.score,
        "names": names(snapshot),
        "reward_names": snapshot.reward_names,
        // A variable that counts for nothing has none: null.
        "lengthscales": lengthscales(snapshot),
    });
    if let (Some(out), Value::Object(facts)) = (out.as_object_mut(), facts) {
        out.extend(facts);
    }
    out
}
