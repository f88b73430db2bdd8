//! What `status` says.

use super::ports::Now;
use super::publisher::Shown;
use crate::daemon::recovery::Recovered;
use crate::learner::Learner;
use crate::learner::window::Window;
use crate::math::posterior::Scale;
use crate::state::State;
use crate::wire::Status;
use crate::wire::status::{
    CountsStatus, CriticStatus, DriftStatus, InputsStatus, KernelStatus, ModelStatus, NoiseStatus, QueuesStatus,
    RecoveredStatus, WarmStartStatus, WindowStatus,
};
use std::collections::BTreeMap;
use std::path::Path;

/// Streams that `status` lists by name.
pub(super) const STREAMS_LISTED: usize = 32;
/// Memory of the rate of rows, seconds.
const RATE_S: f64 = 3.0;

/// Figures that no other part keeps.
#[derive(Debug)]
pub(super) struct Figures {
    /// What the start found; none without a journal.
    pub(super) recovered: Option<RecoveredStatus>,
    /// Rows that critics leave out since the start.
    pub(super) skipped_rows: u64,
    /// Rows that were left out on ingest since the start, by their numbers.
    missing_rows: u64,
    pub(super) refit_restarts: u64,
    pub(super) http_restarts: u64,
    pub(super) queues: QueuesStatus,
    /// Connections of producers that broke, by how.
    pub(super) connections_broken: BTreeMap<String, u64>,
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
    /// With `rows` rows at the start.
    pub(super) fn new(recovered: Option<RecoveredStatus>, rows: u64) -> Self {
        Self {
            recovered,
            skipped_rows: 0,
            missing_rows: 0,
            refit_restarts: 0,
            http_restarts: 0,
            queues: QueuesStatus::default(),
            connections_broken: BTreeMap::new(),
            warm_start: None,
            rate: Rate { rows, ..Rate::default() },
        }
    }

    /// `rows` rows were left out before some that came on ingest.
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

    /// Enter them into `status`.
    pub(super) fn enter(&self, status: &mut Status, now: Now) {
        status.version = env!("CARGO_PKG_VERSION").to_owned();
        (status.uptime_s, status.time) = (now.uptime, now.unix);
        status.recovered = self.recovered.clone();
        status.warm_start = self.warm_start.map(|(rows, of)| WarmStartStatus { rows, of });
        (status.skipped_rows, status.missing_rows) = (self.skipped_rows, self.missing_rows);
        (status.refit_restarts, status.http_restarts) = (self.refit_restarts, self.http_restarts);
        status.rows_per_second = self.rate.per_second;
        status.queues = self.queues.clone();
        status.connections_broken = self.connections_broken.clone();
    }
}

/// The data directory as other programs can find it.
pub(super) fn absolute(directory: &Path) -> Option<String> {
    std::path::absolute(directory).ok().map(|path| path.to_string_lossy().into_owned())
}

/// What a start has found.
pub(super) fn recovered(recovered: &Recovered, torn_bytes: u64) -> RecoveredStatus {
    RecoveredStatus {
        offset: recovered.state.end().offset,
        from_checkpoint: recovered.from_checkpoint,
        rows_replayed: recovered.rows_replayed,
        groups_read: recovered.groups_read,
        torn_bytes,
        faults: recovered.faults.clone(),
        set_aside: Vec::new(),
    }
}

/// Enter rows and streams into `status`.
pub(super) fn enter_state(status: &mut Status, state: &State, window_rows: usize) {
    let window = state.window();
    status.offset = state.end().offset;
    status.streams = state.streams().len() as u64;
    status.recent_streams = state.streams().recent(STREAMS_LISTED);
    status.state_dim = window.map(|window| window.dim() as u64);
    status.rewards_per_row = window.map(|window| window.rewards_per_row() as u64);
    status.window = WindowStatus {
        rows: window.map_or(0, Window::len) as u64,
        rows_max: window_rows as u64,
        bytes: window.map_or(0, Window::bytes) as u64,
        bytes_per_row: window.map(|window| window.bytes_per_row() as u64),
    };
}

/// A critic, its model and its refits left out.
pub(super) fn of_learner(
    learner: &Learner,
    revision: u64,
    failed_snapshots: u64,
    no_world: Option<&str>,
) -> CriticStatus {
    let (settings, counts) = (learner.settings(), learner.counts());
    CriticStatus {
        name: settings.name.clone(),
        generation: learner.generation(),
        revision,
        learned: learner.learned(),
        discount: settings.discount,
        rewards: settings.rewards.iter().map(|&column| column as u64).collect(),
        dictionary_max: settings.dictionary_max as u64,
        warmup_rows: settings.warmup_rows as u64,
        counts: CountsStatus {
            novel_when_full: counts.novel_when_full,
            refreshes: counts.refreshes,
            failed_refreshes: counts.failed_refreshes,
            failed_snapshots,
            cuts: counts.cuts,
            terminations: counts.terminations,
        },
        actions: super::actions::status(learner, no_world),
        ..CriticStatus::default()
    }
}

/// A critic's model, once there is one, and not what answers before; `shown` is of its snapshot on the board.
pub(super) fn of_model(learner: &Learner, shown: Option<Shown>, drift: DriftStatus) -> Option<ModelStatus> {
    let model = learner.model().filter(|_| learner.generation() > 0)?;
    let (hyper, score, statistics) = (model.hyperparameters(), model.score(), model.statistics());
    let tolerance = model.dictionary().tolerance() / model.dictionary().kernel().diagonal();
    let scale = |Scale { signal, .. }: Scale| signal;
    Some(ModelStatus {
        dictionary_size: model.dictionary().len() as u64,
        tolerance,
        tolerance_to_noise: tolerance * hyper.kernel.diagonal() / hyper.noise_variance,
        running_chains: model.running_chains() as u64,
        transitions: statistics.rows,
        rows_effective: statistics.forgets().then(|| statistics.effective_rows()),
        bytes: learner.bytes() as u64,
        policy: learner.policy().map(str::to_owned),
        policies_kept: learner.kept_policies().map(str::to_owned).collect(),
        score: score.mean(),
        score_recent: (score.rows > 0).then_some(score.recent),
        log_evidence: model.posterior().and_then(|posterior| posterior.log_evidence()),
        scale_since_adoption: model.posterior().map(|posterior| scale(posterior.scale())),
        lambda: shown.map(|shown| shown.lambda),
        provisional: shown.map(|shown| shown.provisional),
        returns: shown.and_then(|shown| shown.returns),
        drift,
        kernel: KernelStatus { unscaled: model.lacks_scale(), ..KernelStatus::from(&hyper.kernel) },
        noise: NoiseStatus::from(&hyper),
        inputs: InputsStatus::from(model.inputs()),
    })
}
