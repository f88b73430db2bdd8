//! What is measured with: a stream of transitions as messages, settings for one critic, a directory that goes away.

use super::Failure;
use crate::commands::output::note;
use crate::config::{Config, ConfigParts};
use crate::journal::retention::SyncMode;
use crate::learner::Settings;
use crate::transition::{Batch, BatchParts, Rows};
use crate::wire;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Rows of the stream; it is sent again and again.
pub(super) const STREAM_ROWS: usize = 1 << 14;
/// Steps of one episode.
const EPISODE: usize = 200;
/// Seconds from one row to the next, where times count: ten rows a second.
pub(super) const STEP_S: f64 = 0.1;
/// What model selection may take where it is asked for.
const REFIT_BUDGET_S: f64 = 2.0;
/// How far a state falls back, and how far it is pushed at each step: the states fill a cloud of D dimensions.
const DECAY: f64 = 0.9;
const PUSH: f64 = 1.0;

/// One measurement's circumstances.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// State dimension D.
    pub(super) dim: usize,
    /// Largest dictionary m, which the stream fills.
    pub(super) size: usize,
    /// When rows are made durable.
    pub(super) sync: SyncMode,
}

impl Case {
    /// Settings of a daemon that keeps its data in `directory` and selects no models by itself.
    pub(super) fn config(&self, directory: &Path) -> Result<Config, Failure> {
        let any_port = || "tcp://127.0.0.1:0".to_owned();
        let critic = Settings {
            discount: 0.95,
            dictionary_max: self.size,
            tolerance: 1e-6,
            refit_first_rows: 0,
            refit_score_drop: 0.0,
            refit_budget_s: REFIT_BUDGET_S,
            ..Settings::default()
        };
        let parts = ConfigParts {
            data_dir: directory.to_owned(),
            ingest: any_port(),
            control: any_port(),
            publish: any_port(),
            http: "off".into(),
            sync: self.sync,
            critics: vec![critic],
            ..ConfigParts::default()
        };
        Ok(Config::new(parts)?)
    }

    /// [`STREAM_ROWS`] rows in messages of `rows` rows each, arrays as numpy's, or each row as a message of its own, as a producer
    /// sends every step as soon as it is made.
    pub(super) fn messages(&self, rows: Option<usize>) -> Vec<Vec<u8>> {
        let batches = self.batches(rows.unwrap_or(EPISODE));
        match rows {
            Some(_) => batches.iter().map(wire::encode_ingest).collect(),
            None => batches.iter().flat_map(|batch| (0..batch.len()).map(|i| step(batch, i))).collect(),
        }
    }

    fn batches(&self, rows: usize) -> Vec<Batch> {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut state = vec![0.0_f64; self.dim];
        let mut row = 0;
        let mut batches = Vec::new();
        while row < STREAM_ROWS {
            let count = rows.min(STREAM_ROWS - row);
            let (mut states, mut next_states, mut rewards, mut truncated) = (vec![], vec![], vec![], vec![]);
            for _ in 0..count {
                states.extend_from_slice(&state);
                rewards.push(state[0].sin() + 0.5 * state[self.dim - 1] + 0.1 * rng.random::<f64>());
                for x in &mut state {
                    *x = DECAY * *x + PUSH * (rng.random::<f64>() - 0.5);
                }
                next_states.extend_from_slice(&state);
                row += 1;
                truncated.push(row % EPISODE == 0);
            }
            let parts = BatchParts {
                stream: "bench".into(),
                session: "1".into(),
                dim: self.dim,
                rewards_per_row: 1,
                states,
                next_states: Some(next_states),
                rewards,
                truncated: Some(truncated),
                ..BatchParts::default()
            };
            batches.push(Batch::new(parts).expect("a stream of finite numbers"));
        }
        batches
    }

    /// The stream as rows that a model learns, with the times of [`STEP_S`] from one to the next.
    pub(super) fn rows(&self) -> Rows {
        let mut rows = Rows { keeps_times: true, ..Rows::new(self.dim, 1) };
        for batch in self.batches(EPISODE) {
            for i in 0..batch.len() {
                rows.times.push(STEP_S * rows.len() as f64);
                rows.states.extend_from_slice(batch.state(i));
                rows.next_states.extend_from_slice(batch.next_state(i));
                rows.rewards.extend_from_slice(batch.reward(i));
                rows.discounts.push(f64::NAN);
                rows.ratios.push(1.0);
                rows.streams.push(0);
                rows.terminated.push(batch.terminated(i));
                rows.truncated.push(batch.truncated(i));
                rows.starts_chain.push(i == 0);
            }
        }
        rows
    }

    /// `count` states that the stream could have visited, (count, D).
    pub(super) fn states(&self, count: usize) -> Vec<f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        (0..count * self.dim).map(|_| 2.0 * (rng.random::<f64>() - 0.5)).collect()
    }
}

/// One transition as clients in any language send it.
fn step(batch: &Batch, i: usize) -> Vec<u8> {
    #[derive(Serialize)]
    struct Step<'a> {
        v: u64,
        stream: &'a str,
        session: &'a str,
        state: &'a [f64],
        reward: f64,
        next_state: &'a [f64],
        terminated: bool,
        truncated: bool,
    }
    let step = Step {
        v: wire::VERSION,
        stream: batch.stream(),
        session: batch.session(),
        state: batch.state(i),
        reward: batch.reward(i)[0],
        next_state: batch.next_state(i),
        terminated: batch.terminated(i),
        truncated: batch.truncated(i),
    };
    rmp_serde::to_vec_named(&step).expect("plain data into memory")
}

/// A directory that is removed when this is dropped.
pub(super) struct ScratchDirectory(PathBuf);

impl ScratchDirectory {
    /// `criticd-bench-<process>` within `parent`, or on the disk where the daemon keeps its data by default.
    pub(super) fn create(parent: Option<&Path>) -> Result<Self, Failure> {
        let default = ConfigParts::default().data_dir;
        let parent = parent.or(default.parent()).unwrap_or(Path::new("."));
        let path = parent.join(format!("criticd-bench-{}", std::process::id()));
        let refused =
            |e| Failure::new(format!("cannot write to {}: {e}; choose another with --directory", path.display()));
        std::fs::create_dir_all(&path).map_err(refused)?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// A directory within this one, empty.
    pub(super) fn empty(&self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.0.join(name);
        match std::fs::remove_dir_all(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
            _ => {}
        }
        std::fs::create_dir_all(&path)?;
        Ok(path)
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.0) {
            note(&format!("cannot remove {}: {e}", self.0.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_hold_the_same_rows() {
        let case = Case { dim: 3, size: 10, sync: SyncMode::Os };
        let limits = wire::Limits::default();
        let decode = |messages: Vec<Vec<u8>>| -> Vec<Batch> {
            messages.iter().map(|message| wire::decode_ingest(message, &limits).unwrap()).collect()
        };
        let (batches, steps) = (decode(case.messages(Some(256))), decode(case.messages(None)));
        assert_eq!((batches.len(), steps.len()), (STREAM_ROWS / 256, STREAM_ROWS));
        let rows = batches.iter().flat_map(|batch| (0..batch.len()).map(move |i| (batch, i)));
        for ((batch, i), step) in rows.zip(&steps) {
            assert_eq!(
                (batch.state(i), batch.reward(i), batch.next_state(i)),
                (step.state(0), step.reward(0), step.next_state(0))
            );
            assert_eq!((batch.truncated(i), step.len()), (step.truncated(0), 1));
        }
    }
}
