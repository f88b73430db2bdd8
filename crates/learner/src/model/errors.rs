//! What is made of TD errors: the scatter of scores, from which the variance of V comes, and the watch for drift.

use super::streams::{Slot, Streams, stream_of};
use super::weights::value;
use crate::math::backfill::BackfillBuffer;
use crate::math::dense::{Matrix, Op, axpy, dot, rank_k};
use crate::math::kernel::NoiseModel;
use crate::math::posterior::{Posterior, add_scores};
use crate::math::spread::Spreading;
use crate::math::statistics::{Boundaries, CLOSED_TOGETHER, Running, WAITING_MAX};
use crate::settings::VarianceKind;
use crate::watch::{Watch, Watched};

/// What the rows of a block come to besides S and p, gathered as columns so that each is one product.
#[derive(Clone, Debug, Default)]
pub(super) struct Gathered {
    /// What they add to B, where rows are followed.
    pub(super) boundaries: Boundaries,
    /// Traces times TD errors, averaged over rewards (m, count): one column for each row whose successor is known.
    scores: Matrix,
    scored: usize,
    /// Sum of prior variances of what they observe.
    pub(super) prior_trace: f64,
    /// What a pass over all rows gathers for the spread of returns.
    pub(super) spreading: Option<Spreading>,
    /// Offset of the row that is looked at.
    pub(super) offset: u64,
    /// Whether the rows have been learned already, and only their errors are looked at.
    pub(super) revisits: bool,
}

impl Gathered {
    /// Nothing yet, with room for `count` columns of m numbers.
    pub(super) fn clear(&mut self, m: usize, count: usize, boundaries: bool, scores: bool) {
        self.boundaries.clear(m, if boundaries { count } else { 0 });
        self.scores.renew(m, if scores { count } else { 0 });
        self.scored = 0;
        self.prior_trace = 0.0;
    }

    /// Gather a score; its TD error, averaged over rewards.
    fn score(&mut self, trace: &[f64], errors: &[f64]) -> f64 {
        let square = errors.iter().map(|e| e * e).sum::<f64>() / errors.len() as f64;
        let size = square.sqrt();
        for (to, z) in self.scores.col_mut(self.scored).iter_mut().zip(trace) {
            *to = size * z;
        }
        self.scored += 1;
        size
    }

    pub(super) fn bytes(&self) -> usize {
        self.boundaries.bytes() + self.scores.bytes()
    }
}

/// W: the scatter of scores, of single rows or of clusters of them, docs/mathematics.md (V4), (V5).
#[derive(Clone, Debug)]
pub(super) struct Scatter {
    /// (m, m), lower triangle; none where V has the variance that the model states.
    pub(super) sum: Option<Matrix>,
    /// Scores that the sum lacks yet (m, count): many at once cost less.
    pub(super) waiting: Matrix,
    kind: VarianceKind,
}

impl Scatter {
    /// Of no rows, for m features.
    pub(super) fn new(kind: VarianceKind, noise: NoiseModel, m: usize) -> Self {
        let scattered = kind != VarianceKind::Model && noise == NoiseModel::Correlated;
        Self::of(kind, scattered.then(|| Matrix::zeros(m, m)), Matrix::default())
    }

    /// With these sums.
    pub(super) fn of(kind: VarianceKind, sum: Option<Matrix>, waiting: Matrix) -> Self {
        Self { sum, waiting, kind }
    }

    /// Whether scores are summed over clusters of rows before they are squared.
    pub(super) fn clusters(&self) -> bool {
        self.sum.is_some() && self.kind == VarianceKind::Clustered
    }

    /// Whether scores are of single rows.
    pub(super) fn takes_rows(&self) -> bool {
        self.sum.is_some() && self.kind == VarianceKind::Rows
    }

    /// The scores so far go.
    pub(super) fn clear(&mut self, m: usize) {
        self.sum = self.sum.take().map(|_| Matrix::zeros(m, m));
        self.waiting.resize(0, 0);
    }

    /// Take in what a block has gathered, where refreshes are frequent some rows later: many at once cost less, and where there are
    /// blocks of many rows these need not wait.
    pub(super) fn absorb(&mut self, gathered: &Gathered, wait: bool) {
        if wait {
            let (m, from) = (gathered.scores.rows(), self.waiting.cols());
            self.waiting.resize(m, from + gathered.scored);
            for k in 0..gathered.scored {
                self.waiting.col_mut(from + k).copy_from_slice(gathered.scores.col(k));
            }
        }
        if !wait || self.waiting.cols() >= WAITING_MAX {
            self.flush();
        }
        if let Some(sum) = &mut self.sum
            && !wait
            && gathered.scored > 0
        {
            let scores = gathered.scores.block(0, 0, gathered.scores.rows(), gathered.scored);
            rank_k(sum.view_mut(), 1.0, scores, Op::Plain);
        }
    }

    /// Scores that wait go into the sum.
    pub(super) fn flush(&mut self) {
        if self.waiting.cols() > 0 {
            if let Some(sum) = &mut self.sum {
                rank_k(sum.view_mut(), 1.0, self.waiting.view(), Op::Plain);
            }
            self.waiting.resize(0, 0);
        }
    }

    /// Scale scores by `factor`: the sum of their squares by its square, sums of clusters by itself.
    pub(super) fn scale(&mut self, factor: f64, slots: &mut [Slot]) {
        let scale = |matrix: &mut Matrix, factor: f64| {
            (0..matrix.cols()).for_each(|j| matrix.col_mut(j).iter_mut().for_each(|v| *v *= factor));
        };
        self.flush();
        if let Some(sum) = &mut self.sum {
            scale(sum, factor * factor);
        }
        slots.iter_mut().for_each(|slot| scale(&mut slot.cluster.scores, factor));
    }

    /// Square the scores of a cluster of rows.
    fn flush_cluster(&mut self, slot: &mut Slot) {
        let cluster = &mut slot.cluster;
        if let Some(sum) = &mut self.sum
            && cluster.rows > 0
        {
            add_scores(sum, &cluster.scores);
            cluster.scores.fill(0.0);
            cluster.rows = 0;
        }
    }

    /// The scatter of the scores so far and of those that wait for their successors, valued as `posterior` does.
    pub(super) fn with_running(&self, posterior: &Posterior, running: &Running, streams: &Streams) -> Option<Matrix> {
        let mut scatter = self.sum.clone()?;
        if self.waiting.cols() > 0 {
            rank_k(scatter.view_mut(), 1.0, self.waiting.view(), Op::Plain);
        }
        let (m, u) = (scatter.rows(), posterior.feature_weights());
        // Many at once cost less than one after the other.
        let mut scores = Matrix::zeros(m, CLOSED_TOGETHER.max(u.cols()));
        let (mut used, alpha) = (0, 1.0 / u.cols() as f64);
        for (k, (slot, chain)) in streams.running().enumerate() {
            let slot = &streams.slots[slot];
            if used + u.cols() > scores.cols() {
                rank_k(scatter.view_mut(), alpha, scores.block(0, 0, m, used), Op::Plain);
                used = 0;
            }
            for h in 0..u.cols() {
                let score = scores.col_mut(used);
                if self.clusters() {
                    score.copy_from_slice(slot.cluster.scores.col(h));
                } else {
                    score.fill(0.0);
                }
                if let Some(pending) = slot.pending.get(h) {
                    let error = pending + chain.discount * dot(running.features.col(k), u.col(h));
                    axpy(score, error, &chain.trace);
                }
                used += 1;
            }
        }
        if used > 0 {
            rank_k(scatter.view_mut(), alpha, scores.block(0, 0, m, used), Op::Plain);
        }
        Some(scatter)
    }
}

/// A row of which the state that it led to is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settled<'a> {
    pub(super) slot: usize,
    /// Features of that state (m,); none if it has terminated.
    pub(super) successor: Option<&'a [f64]>,
    /// Weights of the last refresh.
    pub(super) posterior: Option<&'a Posterior>,
    /// [`Watched::threshold`], where drift is looked for.
    pub(super) threshold: Option<f64>,
}

/// What becomes of TD errors.
#[derive(Clone, Debug)]
pub(super) struct Errors {
    pub(super) scatter: Scatter,
    /// Detector of drift in them; none if drift detection is off.
    pub(super) watch: Option<Box<Watch>>,
}

impl Errors {
    /// Whether anything is made of them: a scatter, a watch, or the spread of returns.
    pub(super) fn are_wanted(&self, gathered: &Gathered) -> bool {
        self.scatter.sum.is_some() || gathered.spreading.is_some() || self.watch.is_some()
    }

    /// The score of a settled row is the trace times its TD error under the weights of the last refresh.
    pub(super) fn settle(
        &mut self,
        row: Settled<'_>,
        streams: &mut Streams,
        recent: &mut BackfillBuffer,
        gathered: &mut Gathered,
    ) {
        let Settled { slot, successor, posterior, threshold } = row;
        let (chain, known) = (&streams.chains[slot], &mut streams.slots[slot]);
        if known.pending.is_empty() || !self.are_wanted(gathered) {
            return;
        }
        let discount = if successor.is_some() { chain.discount } else { 0.0 };
        let Slot { pending: errors, cluster, row, .. } = known;
        if let Some(successor) = successor {
            errors.iter_mut().enumerate().for_each(|(h, e)| *e += discount * value(posterior, successor, h));
        }
        if let (Some(watch), Some(threshold)) = (&mut self.watch, threshold) {
            let row = Watched { slot, errors, offset: gathered.offset, threshold };
            watch.observe(&row, |slot| stream_of(&streams.slot_of, slot));
        }
        let clusters = self.scatter.clusters();
        if self.scatter.takes_rows() {
            let size = gathered.score(&chain.trace, errors);
            if !gathered.revisits {
                recent.note_score(*row, &chain.trace, size);
            }
        } else if clusters {
            errors.iter().enumerate().for_each(|(h, &e)| axpy(cluster.scores.col_mut(h), e, &chain.trace));
            cluster.rows += 1;
        }
        if let Some(spreading) = &mut gathered.spreading {
            spreading.settle(slot, successor, discount, errors);
        }
        let full = cluster.rows >= cluster_rows(discount);
        errors.clear();
        if clusters && full {
            self.scatter.flush_cluster(known);
        }
    }

    /// The error of a row under white noise, whose `features` (m,) are its difference's.
    pub(super) fn take_difference(
        &mut self,
        row: Settled<'_>,
        features: &[f64],
        rewards: &[f64],
        offset: u64,
        streams: &mut Streams,
    ) {
        let Settled { slot, posterior, threshold, .. } = row;
        let (Some(watch), Some(threshold)) = (&mut self.watch, threshold) else { return };
        let errors = &mut streams.slots[slot].pending;
        errors.clear();
        errors.extend(rewards.iter().enumerate().map(|(h, r)| r - value(posterior, features, h)));
        let row = Watched { slot, errors, offset, threshold };
        watch.observe(&row, |slot| stream_of(&streams.slot_of, slot));
        errors.clear();
    }

    /// The chain of `slot` has ended.
    pub(super) fn end_chain(&mut self, slot: usize, streams: &mut Streams, gathered: &mut Gathered) {
        if let Some(spreading) = &mut gathered.spreading {
            spreading.end(slot);
        }
        if self.scatter.clusters() {
            self.scatter.flush_cluster(&mut streams.slots[slot]);
        }
    }
}

/// Rows of one cluster: a few effective horizons, beyond which returns hardly share noise.
fn cluster_rows(discount: f64) -> u64 {
    if discount < 1.0 { (4.0 / (1.0 - discount)).clamp(8.0, 10_000.0) as u64 } else { 1000 }
}
