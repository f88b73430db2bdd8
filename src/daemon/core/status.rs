//! What `status` says.

use super::ports::{Now, Queues, map};
use super::publisher::Shown;
use crate::daemon::recovery::Recovered;
use crate::learner::Learner;
use crate::learner::window::Window;
use crate::math::posterior::Scale;
use crate::state::State;
use crate::transition::Rows;
use crate::wire;
use serde_json::{Map, Value, json};

/// Streams that `status` lists by name.
const STREAMS_LISTED: usize = 32;
/// Memory of the rate of rows, seconds.
const RATE_S: f64 = 3.0;

/// Figures that no other part keeps.
#[derive(Debug)]
pub(super) struct Figures {
    /// What the start found.
    pub(super) recovered: Value,
    /// Rows that critics leave out since the start.
    pub(super) quarantined_rows: u64,
    /// Rows that were left out on ingest since the start, by their numbers.
    missing_rows: u64,
    pub(super) refit_restarts: u64,
    pub(super) http_restarts: u64,
    pub(super) queues: Queues,
    /// Rows taken in and rows there are of a table that is learned first.
    pub(super) warm_start: Option<(u64, u64)>,
    rate: Rate,
}

/// Rows per second, averaged over a few seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    at: f64,
    rows: u64,
    per_second: f64,
}

impl Figures {
    /// With so many rows at the start.
    pub(super) fn new(recovered: Value, rows: u64) -> Self {
        Self {
            recovered,
            quarantined_rows: 0,
            missing_rows: 0,
            refit_restarts: 0,
            http_restarts: 0,
            queues: Queues::default(),
            warm_start: None,
            rate: Rate { rows, ..Rate::default() },
        }
    }

    /// So many rows were left out before some that came on ingest.
    pub(super) fn note_missing(&mut self, rows: u64) {
        if rows > 0 {
            self.missing_rows = self.missing_rows.saturating_add(rows);
            log::debug!("event=rows_missing rows={rows} total={}", self.missing_rows);
        }
    }

    /// There are `rows` rows by now.
    pub(super) fn note_rows(&mut self, rows: u64, now: Now) {
        let elapsed = now.uptime - self.rate.at;
        if elapsed >= 0.5 {
            let latest = (rows - self.rate.rows) as f64 / elapsed;
            let weight = 1.0 - (-elapsed / RATE_S).exp();
            let per_second = self.rate.per_second + weight * (latest - self.rate.per_second);
            self.rate = Rate { at: now.uptime, rows, per_second };
        }
    }

    /// As `status` has them.
    pub(super) fn status(&self, now: Now) -> Map<String, Value> {
        let queue = |[waiting, most]: [usize; 2]| json!({"waiting": waiting, "max": most});
        map(json!({
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_s": now.uptime,
            "time": now.unix,
            "recovered": self.recovered,
            "warm_start": self.warm_start.map(|(rows, of)| json!({"rows": rows, "of": of})),
            "quarantined_rows": self.quarantined_rows,
            "missing_rows": self.missing_rows,
            "refit_restarts": self.refit_restarts,
            "http_restarts": self.http_restarts,
            "rows_per_second": self.rate.per_second,
            "queues": {
                "ingest": queue(self.queues.ingest),
                "calls": queue(self.queues.calls),
                "publish": queue(self.queues.publish),
            },
        }))
    }
}

/// What a start has found.
pub(super) fn recovered(recovered: &Recovered, torn_bytes: u64) -> Value {
    json!({
        "offset": recovered.state.end().offset,
        "from_checkpoint": recovered.from_checkpoint,
        "rows_replayed": recovered.rows_replayed,
        "groups_read": recovered.groups_read,
        "torn_bytes": torn_bytes,
        "faults": recovered.faults,
    })
}

/// Rows and streams.
pub(super) fn of_state(state: &State, window_rows: usize) -> Map<String, Value> {
    let window = state.window();
    map(json!({
        "offset": state.end().offset,
        "streams": state.streams().len(),
        "recent_streams": state.streams().recent(STREAMS_LISTED),
        "state_dim": window.map(Window::dim),
        "rewards_per_row": window.map(Window::rewards_per_row),
        "window": {
            "rows": window.map_or(0, Window::len),
            "rows_max": window_rows,
            "bytes": window.map_or(0, Window::bytes),
            "bytes_per_row": window.map(|w| Rows::bytes_per_row(w.dim(), w.rewards_per_row())),
        },
    }))
}

/// A critic, its model left out.
pub(super) fn of_learner(learner: &Learner, revision: u64, failed_snapshots: u64) -> Map<String, Value> {
    let (settings, counts) = (learner.settings(), learner.counts());
    map(json!({
        "name": settings.name,
        "generation": learner.generation(),
        "revision": revision,
        "learned": learner.learned(),
        "discount": settings.discount,
        "dictionary_max": settings.dictionary_max,
        "warmup_rows": settings.warmup_rows,
        "counts": {
            "novel_when_full": counts.novel_when_full,
            "refreshes": counts.refreshes,
            "failed_refreshes": counts.failed_refreshes,
            "failed_snapshots": failed_snapshots,
            "cuts": counts.cuts,
            "terminations": counts.terminations,
        },
    }))
}

/// A critic's model, once there is one; `shown` is of its snapshot on the board.
pub(super) fn of_model(learner: &Learner, shown: Option<Shown>) -> Map<String, Value> {
    let Some(model) = learner.model() else { return Map::new() };
    let (hyper, score) = (model.hyperparameters(), model.score());
    let tolerance = model.dictionary().tolerance() / model.dictionary().kernel().diagonal();
    let mut status = map(json!({
        "dictionary_size": model.dictionary().len(),
        "tolerance": tolerance,
        "tolerance_to_noise": tolerance * hyper.kernel.diagonal() / hyper.noise_variance,
        "running_chains": model.running_chains(),
        "transitions": model.statistics().rows,
        "rows_effective": model.statistics().forgets().then(|| model.statistics().effective_rows()),
        "bytes": model.bytes() + learner.kept_bytes() + learner.bytes_beside_model(),
        "policy": learner.policy(),
        "policies_kept": learner.kept_policies().collect::<Vec<_>>(),
        "score": score.mean(),
        "score_recent": (score.rows > 0).then_some(score.recent),
    }));
    if let Some(Shown { lambda, provisional, returns }) = shown {
        let returns =
            returns.map(|(factor, pairs, coverage)| json!({"factor": factor, "pairs": pairs, "coverage": coverage}));
        status.extend(map(json!({"lambda": lambda, "provisional": provisional, "returns": returns})));
    }
    status.extend(map(wire::hyperparameters_to_json(&hyper, Some(model.inputs()))));
    if let Some(posterior) = model.posterior() {
        status.insert("log_evidence".into(), posterior.log_evidence().into());
        let Scale { signal, .. } = posterior.scale();
        status.insert("scale_since_adoption".into(), signal.into());
    }
    status
}
