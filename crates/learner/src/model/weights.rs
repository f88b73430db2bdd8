//! The weights that score incoming rows, and the scale that they are solved for at.

use crate::math::backfill::BackfillBuffer;
use crate::math::dense::dot;
use crate::math::kernel::Kernel;
use crate::math::posterior::{Arrivals, Posterior, Scale, SolveWork};
use crate::math::statistics::{Running, Statistics};

/// Rows below which noise and scale are left alone.
const TUNE_ROWS_MIN: u64 = 64;
/// Relative change of noise and scale below which a tuning has found what was there.
const TUNE_STEADY: f64 = 0.05;
/// Such tunings in a row that count: rows grow by 1/2^this from one to the next at first, and twice as much after each of them.
const TUNE_STEADY_MAX: u32 = 3;

/// The last time that noise and scale were tuned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tuned {
    pub(super) rows: u64,
    pub(super) features: usize,
    /// Tunings in a row that moved noise and scale by less than [`TUNE_STEADY`].
    pub(super) steady: u32,
}

impl Tuned {
    pub(super) fn is_consistent(self) -> bool {
        self.steady <= TUNE_STEADY_MAX
    }
}

/// How scales are tuned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tuning<'a> {
    /// Whether they are.
    pub(super) wanted: bool,
    /// Least noise variance relative to the targets' variance.
    pub(super) noise_floor: f64,
    /// The base kernel.
    pub(super) kernel: &'a Kernel,
}

/// The posterior of the last refresh, and the rows since.
#[derive(Clone, Debug)]
pub(super) struct Weights {
    /// The model's kernel is `scale.signal` times the dictionary's.
    pub(super) scale: Scale,
    pub(super) posterior: Option<Posterior>,
    /// Rows since then that the posterior may gain, where rows are followed.
    pub(super) arrivals: Arrivals,
    pub(super) rows_since_refresh: u64,
    pub(super) tuned: Tuned,
}

impl Weights {
    /// None yet.
    pub(super) fn new(scale: Scale) -> Self {
        let (arrivals, tuned) = (unknown_arrivals(), Tuned::default());
        Self { scale, posterior: None, arrivals, rows_since_refresh: 0, tuned }
    }

    /// The posterior of all rows in `statistics`, the running chains closed as in `running`: made from the one before and the last
    /// rows where these are few, else solved for. Noise and scale are tuned where that is due. Whether every system that was to be
    /// solved could be; if none could, the weights before stay. `spare` is memory.
    pub(super) fn resolve(
        &mut self,
        statistics: &Statistics,
        recent: &BackfillBuffer,
        running: &Running,
        tuning: Tuning<'_>,
        solve: &mut SolveWork,
        spare: &mut Posterior,
    ) -> bool {
        let tunes = tuning.wanted && self.is_due(statistics);
        // Few new rows: update incrementally. Otherwise solve afresh. Tuning may fail and updating consumes the old posterior, so
        // tuning never updates.
        let (scale, arrivals) = (self.scale, &mut self.arrivals);
        arrivals.settle_running(running);
        let gained = self.posterior.as_mut().filter(|_| !tunes).is_some_and(|before| {
            if before.can_update_followed(arrivals, statistics, scale) {
                return spare.update_followed(before, arrivals, statistics, solve).is_ok();
            }
            let can = !statistics.follows_rows && before.can_update(statistics, scale);
            let rows = can.then(|| recent.last(statistics.rows - before.rows())).flatten();
            rows.is_some_and(|rows| spare.update(before, rows, statistics, running, solve).is_ok())
        });
        // After a failed update only a full solution helps.
        if !gained {
            arrivals.miss();
        }
        if !gained && spare.solve_again(statistics, running, scale, solve).is_err() {
            return false;
        }
        let mut sound = true;
        if tunes {
            sound = self.tune(statistics, running, tuning, solve, spare);
            if !sound && spare.solve_again(statistics, running, self.scale, solve).is_err() {
                return false;
            }
            (self.tuned.rows, self.tuned.features) = (statistics.rows, statistics.features());
        }
        self.arrivals.clear();
        std::mem::swap(self.posterior.get_or_insert_default(), spare);
        sound
    }

    /// Whether the dictionary has grown since the last tuning, or rows have enough.
    fn is_due(&self, statistics: &Statistics) -> bool {
        // Rows that are forgotten are replaced by others long before rows in all have grown by their share.
        let known = self.tuned.rows.min(statistics.effective_rows() as u64);
        let due = self.tuned.rows.saturating_add(known >> (TUNE_STEADY_MAX - self.tuned.steady));
        let rows = statistics.rows;
        rows >= TUNE_ROWS_MIN && (rows > due || statistics.features() > self.tuned.features)
    }

    /// Noise and scale that `found`, the posterior at the present ones, asks for, and the posterior at those. Whether that could
    /// be solved for; else the scale is as it was.
    fn tune(
        &mut self,
        statistics: &Statistics,
        running: &Running,
        tuning: Tuning<'_>,
        solve: &mut SolveWork,
        found: &mut Posterior,
    ) -> bool {
        let before = self.scale;
        self.scale = if statistics.follows_rows {
            found.matched_scale(statistics, tuning.kernel)
        } else {
            found.tuned_scale(statistics, tuning.noise_floor)
        };
        let near = |a: f64, b: f64| (a - b).abs() <= TUNE_STEADY * b;
        // Where there was nothing to estimate from nothing has been found.
        let steady = self.scale != before
            && statistics.features() == self.tuned.features
            && near(self.scale.signal, before.signal)
            && near(self.scale.noise_variance(), before.noise_variance());
        self.tuned.steady = if steady { TUNE_STEADY_MAX.min(self.tuned.steady + 1) } else { 0 };
        if found.solve_again(statistics, running, self.scale, solve).is_err() {
            (self.scale, self.tuned.steady) = (before, 0);
            return false;
        }
        true
    }

    /// m - ratio tr(A^-1): parameters that the data of the last refresh determine. None if there is no posterior.
    pub(super) fn effective_parameters(&self, statistics: &Statistics) -> Option<f64> {
        let m = statistics.features();
        let inverse = self.posterior.as_ref()?.factor(statistics).ok()?.inverse_lower();
        Some(m as f64 - self.scale.ratio * (0..m).map(|i| inverse.at(i, i)).sum::<f64>())
    }

    /// Bytes held, for reports of memory.
    pub(super) fn bytes(&self) -> usize {
        self.posterior.as_ref().map_or(0, Posterior::bytes) + self.arrivals.bytes()
    }
}

/// Arrivals of a model that has no solution yet, or whose file does not tell.
pub(super) fn unknown_arrivals() -> Arrivals {
    let mut arrivals = Arrivals::default();
    arrivals.miss();
    arrivals
}

/// Value under the weights of the last refresh; features admitted since weigh nothing.
pub(super) fn value(posterior: Option<&Posterior>, features: &[f64], h: usize) -> f64 {
    posterior.map_or(0.0, |posterior| {
        let u = posterior.feature_weights().col(h);
        dot(&features[..u.len()], u)
    })
}
