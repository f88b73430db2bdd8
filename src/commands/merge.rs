//! `criticd merge`.

use super::Failure;
use super::given::{listed, plural};
use super::output::{in_file, note, output, print, print_json};
use crate::daemon::archive::ArchiveError;
use crate::daemon::survey::holds_journal;
use crate::daemon::union::{United, unite};
use crate::fleet::{self, SUMS, Unmergeable};
use crate::local::part_of_model;
use crate::snapshot::Snapshot;
use crate::wire::{ArrayForm, decode_snapshot, encode_snapshot, with_bytes};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Put learners of different streams together: one model of all their rows, or one data directory
///
/// Models: their sums are added, so that the result is the model of one learner that has learned all rows, to rounding. They must be of
/// one epoch: kernel, dictionary, normalisation, lambda and ridge are the same. `criticd fit --sums` writes a model with its sums, and
/// `fit --like MODEL` another one of its epoch; files of `Learner.save` have them, too. The order of the files changes no bit. The
/// result answers and can be merged again. It takes no rows, and none can be taken out of it. Deviations are those that each learner
/// saw while it learned.
///
/// Data directories: their rows are put into a new one, which has the settings of the first. A daemon that starts there learns them all
/// again. Where every row has a time they stand in the order of their times, else in the order of the directories.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd fit north.csv --sums --out north.model\n  criticd fit south.csv --like north.model --out south.model\n  criticd merge north.model south.model --out both.model\n  criticd merge /var/lib/criticd-a /var/lib/criticd-b --out /var/lib/criticd-both"
)]
pub(crate) struct Merge {
    /// Model files that have sums, or data directories
    #[arg(value_name = "MODEL|DATA_DIR", required = true, num_args = 2..)]
    inputs: Vec<PathBuf>,
    /// Model file to write, or data directory to make
    #[arg(short, long, value_name = "OUT")]
    out: PathBuf,
    /// Put the name of its file or directory before the name of each stream, as in north/rover
    #[arg(long)]
    rename_streams: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Merge {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let directories = self.inputs.iter().filter(|input| input.is_dir()).count();
        match directories {
            0 => self.models(),
            all if all == self.inputs.len() => self.directories(),
            _ => Err(Failure::usage(
                "some of these are model files and some data directories: `criticd fit` learns the rows of a directory that \
                 `criticd export` has written, with --like and a model",
            )),
        }
    }

    /// What is put before the names of the streams of an input.
    fn prefix(&self, input: &Path) -> String {
        let stem = if input.is_dir() { input.file_name() } else { input.file_stem() };
        match stem.filter(|_| self.rename_streams) {
            Some(stem) => format!("{}/", stem.to_string_lossy()),
            None => String::new(),
        }
    }

    fn models(&self) -> Result<(), Failure> {
        let inputs: Vec<&Path> = self.inputs.iter().map(PathBuf::as_path).collect();
        let out = output(&self.out, &inputs)?;
        let (mut parts, mut snapshots) = (Vec::new(), Vec::new());
        for path in &inputs {
            let bytes = std::fs::read(path).map_err(|e| in_file(path, e))?;
            let explain = |e| in_file(path, format!("not a model as `criticd fit` writes it: {e}"));
            snapshots.push(decode_snapshot(&bytes).map_err(explain)?);
            let part = part_of_model(&bytes).map_err(|e| in_file(path, format!("its sums cannot be used: {e}")))?;
            let mut part = part.ok_or_else(|| {
                in_file(path, "has a value function and no sums to add: `criticd fit --sums` and, in Python, Learner.save write them")
            })?;
            let prefix = self.prefix(path);
            part.told.streams =
                part.told.streams.into_iter().map(|(name, next)| (format!("{prefix}{name}"), next)).collect();
            parts.push(part);
        }
        let (merged, model) = fleet::merge(&parts).map_err(|e| explained(&e, &inputs))?;
        let first = snapshots.iter().find(|snapshot| !snapshot.reward_names.is_empty());
        let snapshot = model.snapshot(true).map_err(|e| Failure::new(format!("the sum cannot be solved: {e}")))?;
        let snapshot = Snapshot {
            critic: snapshots[0].critic.clone(),
            generation: 1,
            offset: merged.told.rows(),
            // No moment of its own: the same files give the same bytes.
            time: snapshots.iter().map(|snapshot| snapshot.time).fold(0.0, f64::max),
            reward_names: first.map_or_else(Vec::new, |snapshot| snapshot.reward_names.clone()),
            ..snapshot
        };
        let bytes = with_bytes(encode_snapshot(&snapshot, ArrayForm::Tensor, true), SUMS, &merged.written());
        out.write(&bytes)?;
        let (rows, streams, place) = (merged.told.rows(), merged.told.streams.len(), self.out.display());
        if self.json {
            return print_json(&json!({ "rows": rows, "streams": streams, "models": inputs.len() }));
        }
        print(&format!(
            "{place}: {rows} rows of {} in {} models\nNext: criticd value {place} STATES.csv evaluates it.\n",
            plural(streams, "stream"),
            inputs.len()
        ))
    }

    fn directories(&self) -> Result<(), Failure> {
        for directory in &self.inputs {
            if !holds_journal(directory) {
                return Err(in_file(directory, "a directory without a journal"));
            }
        }
        let prefixes: Vec<String> = self.inputs.iter().map(|input| self.prefix(input)).collect();
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let united = unite(&self.inputs, &prefixes, &self.out, unix).map_err(|e| match e {
            ArchiveError::Occupied(_) => Failure::new(e),
            e => Failure::new(format!("nothing was merged: {e}")),
        })?;
        let United { rows, streams, by_time, settings_differ, left_out } = united;
        if settings_differ {
            note(&format!(
                "the directories have different settings: the settings of {} were taken; a daemon that starts with others goes by them",
                self.inputs[0].display()
            ));
        }
        if left_out > 0 {
            note(&format!(
                "{left_out} requests that named a policy, changed heads or asked an advisor were left out: repeat those that still count"
            ));
        }
        if self.json {
            return print_json(&json!({
                "rows": rows, "streams": streams, "directories": self.inputs.len(), "by_time": by_time,
                "settings_differ": settings_differ, "left_out": left_out
            }));
        }
        let order = if by_time { "in the order of their times" } else { "directory by directory: rows lack times" };
        let out = self.out.display();
        print(&format!(
            "{out}: {rows} rows of {}, {order}\nNext: criticd serve --data-dir {out} learns them and goes on.\n",
            plural(streams, "stream")
        ))
    }
}

/// Why models cannot be merged, and what to do.
fn explained(why: &Unmergeable, inputs: &[&Path]) -> Failure {
    let name = |k: &usize| inputs[*k].display().to_string();
    match why {
        Unmergeable::Epochs { parts: (first, second), what } => Failure::new(format!(
            "{} and {} are of different epochs, they differ in their {what}, and sums of different epochs do not add: \
             `criticd fit TABLE --like {}` learns the rows of a table in the epoch of a model; or merge the data directories, whose rows are learned again",
            name(first),
            name(second),
            name(first)
        )),
        Unmergeable::Stream { name: stream, parts: (first, second) } => Failure::new(format!(
            "stream {stream:?} is in {}, so that its rows might count twice; where they are others, --rename-streams puts the \
             name of its file before the name of each stream",
            listed(&[name(first), name(second)])
        )),
        other => Failure::new(other),
    }
}
