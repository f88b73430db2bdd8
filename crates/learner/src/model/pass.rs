//! One block of rows on its way into the sums: traces, boundaries, errors, and the ends of chains.

use super::basis::Basis;
use super::errors::{Errors, Gathered, Settled};
use super::nodes::Nodes;
use super::returns::{Answers, Returns};
use super::rule::Rule;
use super::scoring::{Prequential, Scored, Unlearned};
use super::streams::Streams;
use super::weights::{Weights, value};
use crate::contest::Foretold;
use crate::heads::{Bank, Block};
use crate::math::backfill::{BackfillBuffer, Crossing, Observed};
use crate::math::dense::{Op, View, ViewMut, dot, multiply};
use crate::math::kernel::NoiseModel;
use crate::math::posterior::{Posterior, SolveWork};
use crate::math::statistics::{Followed, Running, Statistics};
use crate::settings::Settings;
use crate::tracking::{Seen, Tracking};
use crate::transition::Rows;
use crate::verification::Verified;
use crate::warning::Warnings;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Events counted since the model was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// States above the tolerance that found the dictionary full.
    pub novel_when_full: u64,
    /// Refreshes of the weights.
    pub refreshes: u64,
    /// Refreshes that had no solution: the weights before them stayed.
    pub failed_refreshes: u64,
    /// Chains cut by a time limit, a gap or a new session.
    pub cuts: u64,
    /// Chains that reached a terminal state.
    pub terminations: u64,
}

/// Scratch of one block, kept between blocks so that learning does not allocate.
#[derive(Clone, Debug, Default)]
pub(super) struct PassScratch {
    pub(super) nodes: Nodes,
    pub(super) rewards: Vec<f64>,
    pub(super) scored: Scored,
    pub(super) gathered: Gathered,
    /// The running chains at the last refresh, and their last successors.
    pub(super) running: Running,
    pub(super) running_states: Vec<f64>,
    pub(super) solve: SolveWork,
    /// The posterior before the present one, whose memory the next one takes.
    pub(super) spare: Posterior,
}

/// The parts of a model that rows change.
pub(super) struct Pass<'a> {
    pub(super) rule: Rule<'a>,
    pub(super) basis: &'a mut Basis,
    pub(super) statistics: &'a mut Statistics,
    pub(super) recent: &'a mut BackfillBuffer,
    pub(super) streams: &'a mut Streams,
    pub(super) weights: &'a mut Weights,
    pub(super) errors: &'a mut Errors,
    pub(super) returns: &'a mut Returns,
    pub(super) prequential: &'a mut Prequential,
    pub(super) counts: &'a mut Counts,
    pub(super) heads: Option<&'a mut Bank>,
    pub(super) tracking: Option<&'a mut Tracking>,
    pub(super) foretold: Option<&'a mut Foretold>,
    pub(super) warnings: Option<&'a mut Warnings>,
}

/// A state at which a chain ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChainEnd<'a> {
    /// (D,), normalised; then projected.
    pub(super) state: &'a [f64],
    pub(super) point: &'a [f64],
    /// (m,).
    pub(super) features: &'a [f64],
}

impl<'a> ChainEnd<'a> {
    /// A node.
    fn of(nodes: &'a Nodes, node: usize) -> Self {
        Self { state: nodes.state(node), point: nodes.point(node), features: nodes.features.col(node) }
    }
}

/// A row that is being absorbed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival<'a> {
    pub(super) rows: &'a Rows,
    /// Its number there, and in its block.
    pub(super) i: usize,
    pub(super) k: usize,
    /// (H,).
    pub(super) rewards: &'a [f64],
    /// Whether the row before it in its chain waits for it.
    settles: bool,
    /// Whether its own TD error is asked for.
    asks: bool,
    /// Rows that the next solution may gain.
    gains: usize,
}

impl Pass<'_> {
    /// Learn a block of rows, none of which is followed by a refresh but the last.
    pub(super) fn learn(&mut self, rows: &Rows, block: Range<usize>, offset: u64, work: &mut PassScratch) {
        let rule = self.rule;
        let weighted = |i: usize| rule.ratio(rows, i) != 1.0 || rule.carry(rows, i) != rule.lambda;
        if !self.statistics.follows_rows && block.clone().any(weighted) {
            self.follow_rows();
            self.basis.learned.iter_mut().for_each(|learned| learned.follow_from(offset));
        }
        self.age(offset);
        self.collect(rows, block.clone(), work);
        self.admit_novel(offset, &mut work.nodes);
        self.observe(rows, block.clone(), &mut work.nodes);
        if let Some(posterior) = &self.weights.posterior {
            let (basis, follows_rows) = (&*self.basis, self.statistics.follows_rows);
            let unlearned = Unlearned { basis, rule, follows_rows, rows, block: block.clone(), offset };
            self.prequential.score_rows(posterior, &unlearned, &mut work.nodes, &mut work.scored);
        }
        if let Some(heads) = &mut self.heads {
            let (nodes, features) = (&work.nodes.of_rows, &work.nodes.features);
            let ring = (self.recent.span().start, self.recent.cuts().count());
            let kernel = self.basis.kernel();
            let block = Block { rows, range: block.clone(), offset, nodes, features, kernel, ring };
            heads.learn(&block, self.warnings.as_deref_mut());
        }
        self.absorb(rows, block, offset, work);
        if self.basis.dictionary.is_full() && !self.recent.is_settled() {
            // From here on the rows since the last refresh are of use, where its factor may gain them, and no others.
            let few = Posterior::max_incremental_rows(self.basis.len());
            let gains =
                !self.statistics.follows_rows && !self.statistics.forgets() && rule.settings.refresh_rows <= few;
            self.recent.freeze_dictionary(if gains { few } else { 0 });
            if let Some(heads) = &mut self.heads {
                heads.settle();
            }
        }
    }

    /// Look at a block of rows again that have been learned: at their errors alone, where `work` says so.
    pub(super) fn learn_again(&mut self, rows: &Rows, block: Range<usize>, offset: u64, work: &mut PassScratch) {
        self.collect(rows, block.clone(), work);
        self.observe(rows, block.clone(), &mut work.nodes);
        self.absorb(rows, block, offset, work);
    }

    /// From here on every row adds to B.
    pub(super) fn follow_rows(&mut self) {
        self.statistics.follow_rows();
        self.recent.follow_rows(self.basis.dictionary.max());
    }

    /// Rows up to which a solution gains those since the last one, where rows are followed; 0 where refreshes are too rare, and
    /// where rows are forgotten, since each then moves all of M.
    pub(super) fn gains(&self) -> usize {
        let most = Posterior::max_incremental_rows(self.basis.len());
        let followed = self.statistics.follows_rows && !self.statistics.forgets();
        let interval = refresh_interval(self.rule.settings, self.streams.len());
        if followed && interval <= most as u64 { most } else { 0 }
    }

    /// The row at `offset` is about to be learned: where that brings the statistics to another unit, bring all that is made of
    /// weights along.
    pub(super) fn age(&mut self, offset: u64) {
        let Some(factor) = self.statistics.advance(offset) else { return };
        self.errors.scatter.scale(factor, &mut self.streams.slots);
        self.streams.chains.iter_mut().for_each(|chain| chain.scale(factor));
        self.recent.scale(factor);
    }

    /// The states of the block whose features are needed, with these.
    fn collect(&mut self, rows: &Rows, block: Range<usize>, work: &mut PassScratch) {
        let PassScratch { nodes, running, running_states, .. } = work;
        let by = self.rule.collected(self.basis, self.statistics, self.errors);
        nodes.collect(by, self.streams, rows, block);
        nodes.compute_features(self.basis, self.rule.settings.refresh_rows, running, running_states);
    }

    fn observe(&self, rows: &Rows, block: Range<usize>, nodes: &mut Nodes) {
        let discount = |k: usize| rows.discount(block.start + k, self.rule.settings.discount);
        let by = self.rule.collected(self.basis, self.statistics, self.errors);
        nodes.observe(by, self.rule.settings.refresh_rows, discount);
    }

    /// Admit the block's novel states in arrival order; each gives every other node, the recent rows and the running chains
    /// their new coordinate.
    fn admit_novel(&mut self, offset: u64, nodes: &mut Nodes) {
        for node in 0..nodes.len() {
            let (dictionary, tolerance) = (&self.basis.dictionary, self.basis.dictionary.tolerance());
            // Backfill knows no successor that is a distribution: with these a dictionary is chosen from all rows at once.
            if self.basis.mixes() || nodes.residuals[node] <= tolerance {
                continue;
            }
            if dictionary.is_full() {
                self.counts.novel_when_full += 1;
                continue;
            }
            if dictionary.residual(nodes.features.col(node)) <= tolerance {
                continue; // the running residual had lost its last digits
            }
            self.admit(node, offset, nodes);
        }
    }

    /// Admit the state of a node of the block whose first row has this offset.
    fn admit(&mut self, node: usize, offset: u64, nodes: &mut Nodes) {
        let m = self.basis.len();
        let admitted = self.basis.dictionary.admit(nodes.state(node), nodes.features.col(node));
        self.statistics.grow();
        self.weights.arrivals.miss();
        let scatter = &mut self.errors.scatter;
        scatter.flush();
        let row = self.recent.end() + nodes.owners[node] as u64;
        let from = row.saturating_sub(self.recent.keep()).max(self.recent.span().start);
        if let Some(learned) = &mut self.basis.learned {
            learned.admit(offset + nodes.owners[node] as u64, row - from);
        }
        if let Some(scatter) = &mut scatter.sum {
            scatter.resize(m + 1, m + 1);
        }
        let (statistics, chains) = (&mut *self.statistics, &mut self.streams.chains);
        self.recent.backfill(from, &admitted, &self.basis.dictionary, statistics, chains, scatter.sum.as_mut());
        if let Some(heads) = &mut self.heads {
            heads.grow(from, self.recent);
        }
        if let Some(tracking) = &mut self.tracking {
            tracking.grow();
        }
        let clusters = scatter.clusters();
        if let Some(scatter) = scatter.sum.as_mut().filter(|_| clusters) {
            // The scores so far lack the coordinate: it gets what independent noise would have given it.
            for j in 0..=m {
                *scatter.at_mut(m, j) =
                    self.weights.scale.noise_variance() * self.statistics.unit() * self.statistics.gram.at(m, j);
            }
            for slot in &mut self.streams.slots {
                slot.cluster.scores.resize(m + 1, self.rule.settings.rewards.len());
            }
        }
        if let Some(spread) = &mut self.returns.spread {
            spread.grow();
        }
        let count = nodes.len();
        let Nodes { points, features, residuals, owners, coordinate, .. } = nodes;
        coordinate.clear();
        coordinate.resize(count, 0.0);
        self.basis.kernel().column(points, &admitted.point, coordinate);
        let (out, l) = (ViewMut::column(coordinate), View::column(&admitted.features));
        multiply(out, true, -1.0, features.view(), Op::Transposed, l, Op::Plain);
        features.resize(m + 1, count);
        for (k, value) in coordinate.iter().enumerate() {
            let value = value / admitted.delta;
            residuals[k] = (residuals[k] - value * value).max(0.0);
            // Rows of this block that are older than the backfill reaches keep the zero, as they would elsewhere.
            let reached = self.recent.end() + owners[k] as u64 >= from;
            *features.at_mut(m, k) = if reached { value } else { 0.0 };
        }
        residuals[node] = 0.0;
    }

    /// Take in the rows of a block whose nodes have their features.
    fn absorb(&mut self, rows: &Rows, block: Range<usize>, offset: u64, work: &mut PassScratch) {
        let PassScratch { nodes, rewards, gathered, .. } = work;
        // A row may end the chain before it, continue one and be the last of its own.
        let (follows, scatters) = (self.statistics.follows_rows, self.errors.scatter.takes_rows());
        gathered.clear(self.basis.len(), 2 * block.len(), follows, scatters);
        let asks = self.rule.noise == NoiseModel::Correlated && self.errors.are_wanted(gathered);
        // At lambda = 1, with the variance of the model, nothing waits for a row's successor.
        let (settles, gains) = (asks || follows, self.gains());
        for (k, i) in block.clone().enumerate() {
            gathered.offset = offset + k as u64;
            rewards.clear();
            rewards.extend((0..self.rule.settings.rewards.len()).map(|h| self.rule.reward(rows, i, h)));
            let row = Arrival { rows, i, k, rewards, settles, asks, gains };
            self.absorb_row(row, nodes, gathered);
            self.end_row(row, nodes, gathered);
        }
        self.absorb_gathered(gathered);
        if !gathered.revisits && !self.rule.settings.heads_alone {
            if follows || self.statistics.forgets() {
                self.weigh_observed(rows, block, offset, nodes);
            }
            self.statistics.absorb_gram(nodes.observed().view(), gathered.prior_trace);
        }
    }

    /// Learn one row, but for S, which gains the whole block at once.
    fn absorb_row(&mut self, row: Arrival<'_>, nodes: &Nodes, gathered: &mut Gathered) {
        let Arrival { rows, i, k, rewards, .. } = row;
        let here = nodes.of_rows[k];
        let (slot, features) = (here.slot, nodes.features.col(here.state));
        if let Some(watch) = &mut self.errors.watch {
            watch.visit(nodes.state(here.state), gathered.offset);
        }
        if let Some(node) = here.gap {
            self.close_chain(slot, self.recent.end(), ChainEnd::of(nodes, node), gathered);
        }
        let discount = rows.discount(i, self.rule.settings.discount);
        let (ratio, decay) = (self.rule.ratio(rows, i), self.streams.chains[slot].discount);
        let carry = self.streams.chains[slot].carry(self.rule.carry(rows, i), ratio);
        let weight = self.statistics.weight_at(gathered.offset);
        let continues = self.streams.chains[slot].rows > 0;
        let successor = nodes.features.col(here.before.unwrap_or(here.state));
        if continues && row.settles {
            self.settle_row(slot, Some(successor), gathered);
        }
        let crossing = if self.statistics.follows_rows {
            let followed = Followed { features, successor, rewards, ratio, weight, carry, discount };
            let chain = &mut self.streams.chains[slot];
            self.statistics.follow(chain, followed, &mut gathered.boundaries);
            if !gathered.revisits {
                self.weights.arrivals.push(slot, &chain.trace, followed, row.gains);
            }
            let boundary = gathered.boundaries.last().filter(|_| continues);
            Some(Crossing { carry, boundary, successor: here.before.map(|node| nodes.point(node)) })
        } else {
            let (chain, observed) = (&mut self.streams.chains[slot], nodes.observed().col(k));
            self.statistics.absorb(chain, observed, rewards, discount, weight);
            None
        };
        self.compare(row, nodes, ratio, gathered);
        if !gathered.revisits {
            self.track(row, nodes, ratio, successor, weight);
        }
        if let Some(spreading) = &mut gathered.spreading {
            let decay = if continues { decay } else { 0.0 };
            spreading.arrive(slot, features, decay, carry, ratio * weight / self.statistics.unit());
        }
        let (white, diagonal) = (self.rule.noise == NoiseModel::White, self.basis.kernel().diagonal());
        let mut observed = Observed {
            features: nodes.observed().col(k),
            point: nodes.point(here.state),
            next_point: &[],
            weight: 0.0,
            rewards,
            slot,
            decay,
            discount: if white || rows.terminated[i] { 0.0 } else { discount },
            share: ratio * weight,
            crossing,
        };
        let given = &observed.features[..self.basis.dictionary.columns()];
        gathered.prior_trace += ratio * weight * (diagonal + dot(given, given));
        if white && let Some(next) = here.next {
            observed.next_point = nodes.point(next);
            observed.weight = discount;
            let covariance = self.basis.kernel().eval(observed.point, observed.next_point);
            gathered.prior_trace += weight * (discount * discount * diagonal - 2.0 * discount * covariance);
        }
        if !gathered.revisits {
            self.recent.push(observed);
        }
    }

    /// What the weights of the last refresh say of a row: its TD error, which lacks the value of its successor yet, what is stated
    /// before it is learned, and what its return is predicted to be.
    fn compare(&mut self, arrival: Arrival<'_>, nodes: &Nodes, ratio: f64, gathered: &Gathered) {
        let Arrival { rows, i, k, rewards, asks, .. } = arrival;
        let here = nodes.of_rows[k];
        let (slot, features) = (here.slot, nodes.features.col(here.state));
        let posterior = self.weights.posterior.as_ref();
        if asks {
            let slot = &mut self.streams.slots[slot];
            slot.row = self.recent.end();
            slot.pending.clear();
            slot.pending.extend(rewards.iter().enumerate().map(|(h, r)| r - value(posterior, features, h)));
        }
        // Where the next row may have taken another action than the policy that is judged, that was said before the block.
        if let Some(foretold) = self.foretold.as_deref_mut().filter(|_| !self.rule.settings.leaves_chain()) {
            let cut = here.next.filter(|_| rows.truncated[i]);
            // A base that the trackers have left behind says little of what is answered.
            let tracking = self.tracking.as_deref().filter(|tracking| tracking.goes_on());
            let answers = Answers { posterior, tracking };
            let rule = self.rule;
            let about = |h, state| rule.about(h, state);
            let next =
                |h| cut.map_or(0.0, |node| about(h, rows.next_state(i)) + answers.value(nodes.features.col(node), h));
            foretold
                .values
                .extend((0..rewards.len()).map(|h| [about(h, rows.state(i)) + answers.value(features, h), next(h)]));
        }
        // Returns are there for the policy that acted, and for no other.
        if !gathered.revisits && !self.rule.settings.leaves_chain() {
            let discount = rows.follows(i, self.rule.settings.discount);
            let row = Verified { slot, rewards, discount, ratio };
            let at = (nodes.state(here.state), features);
            let answers = Answers { posterior, tracking: self.tracking.as_deref() };
            self.returns.verify(row, at, answers, self.rule.settings.discount, self.basis.kernel());
            self.warn(arrival, nodes, ratio, gathered.offset);
        }
    }

    /// What tracks the stream sees a row, which is in the trace of its chain already; `successor` (m,) is what the row before led to.
    fn track(&mut self, row: Arrival<'_>, nodes: &Nodes, ratio: f64, successor: &[f64], unit: f64) {
        let Some(tracking) = &mut self.tracking else { return };
        let Arrival { rows, i, k, rewards, .. } = row;
        let here = nodes.of_rows[k];
        let discount = rows.follows(i, self.rule.settings.discount);
        tracking.see(&Seen {
            row: Verified { slot: here.slot, rewards, discount, ratio },
            features: nodes.features.col(here.state),
            trace: &self.streams.chains[here.slot].trace,
            unit,
            successor,
            weights: self.weights.posterior.as_ref().map(Posterior::feature_weights),
        });
    }

    /// A row has been learned: its chain ends, is cut, or goes on.
    fn end_row(&mut self, row: Arrival<'_>, nodes: &Nodes, gathered: &mut Gathered) {
        let Arrival { rows, i, k, rewards, .. } = row;
        let here = nodes.of_rows[k];
        let slot = here.slot;
        if self.rule.noise == NoiseModel::White {
            let threshold = self.rule.settings.drift_sensitivity.threshold();
            let posterior = self.weights.posterior.as_ref();
            let settled = Settled { slot, successor: None, posterior, threshold };
            let features = nodes.observed().col(k);
            self.errors.take_difference(settled, features, rewards, gathered.offset, self.streams);
            // Every row is a chain of its own.
            self.streams.chains[slot].reset();
            self.counts.terminations += u64::from(rows.terminated[i]);
            self.counts.cuts += u64::from(rows.truncated[i] && !rows.terminated[i]);
        } else if rows.terminated[i] {
            self.counts.terminations += 1;
            self.settle_row(slot, None, gathered);
            self.streams.chains[slot].reset();
            self.errors.end_chain(slot, self.streams, gathered);
        } else if let Some(node) = here.next {
            let number = self.recent.end() - u64::from(!gathered.revisits);
            self.close_chain(slot, number, ChainEnd::of(nodes, node), gathered);
        } else {
            let next_state = &mut self.streams.slots[slot].next_state;
            next_state.clear();
            self.basis.inputs.normalise_into(rows.next_state(i), next_state);
        }
    }

    /// phi sqrt(w rho) instead of phi, where weights and ratios are not one.
    fn weigh_observed(&self, rows: &Rows, block: Range<usize>, offset: u64, nodes: &mut Nodes) {
        for (k, i) in block.enumerate() {
            let share = self.rule.ratio(rows, i) * self.statistics.weight_at(offset + k as u64);
            if share != 1.0 {
                nodes.observed_mut().col_mut(k).iter_mut().for_each(|phi| *phi *= share.sqrt());
            }
        }
    }

    /// End the chain in `slot`, cut behind or (by a gap) before row number `row`, with the value at `place`.
    fn close_chain(&mut self, slot: usize, row: u64, place: ChainEnd<'_>, gathered: &mut Gathered) {
        self.leave_chain(slot, row, place, gathered);
        if gathered.revisits || self.statistics.follows_rows {
            self.streams.chains[slot].reset();
        } else {
            self.statistics.cut(&mut self.streams.chains[slot], place.features);
        }
    }

    /// The same but for the chain itself, and for what it adds to B and to targets where rows are not followed: that is left to the
    /// caller.
    pub(super) fn leave_chain(&mut self, slot: usize, row: u64, place: ChainEnd<'_>, gathered: &mut Gathered) {
        let ChainEnd { features, point, .. } = place;
        self.counts.cuts += 1;
        self.settle_row(slot, Some(features), gathered);
        self.errors.end_chain(slot, self.streams, gathered);
        if gathered.revisits {
            return;
        }
        self.cut_warned(slot, place, gathered.offset);
        let posterior = self.weights.posterior.as_ref();
        let answers = Answers { posterior, tracking: self.tracking.as_deref() };
        self.returns.cut(slot, features, answers, self.rule.settings.discount);
        if let Some(tracking) = &mut self.tracking {
            tracking.cut(slot, features, posterior.map(Posterior::feature_weights));
        }
        self.recent.push_cut(slot, row, &self.streams.chains[slot], features, point);
        if self.statistics.follows_rows {
            gathered.boundaries.close(&self.streams.chains[slot], features);
            self.statistics.close_targets(&self.streams.chains[slot], features);
            self.statistics.closed.chains += 1;
        }
    }

    /// What a block has gathered goes into B and into the scatter of scores.
    pub(super) fn absorb_gathered(&mut self, gathered: &Gathered) {
        let wait = self.gains() > 0 || self.statistics.forgets();
        if !gathered.revisits {
            self.statistics.absorb_boundaries(&gathered.boundaries, wait);
        }
        self.errors.scatter.absorb(gathered, wait);
    }

    /// The last row of `slot` is known to have led to a state of features `successor` (m,), or to have terminated (none).
    fn settle_row(&mut self, slot: usize, successor: Option<&[f64]>, gathered: &mut Gathered) {
        if !gathered.revisits {
            self.weights.arrivals.settle(slot, successor);
        }
        let threshold = self.rule.settings.drift_sensitivity.threshold();
        let posterior = self.weights.posterior.as_ref();
        let settled = Settled { slot, successor, posterior, threshold };
        self.errors.settle(settled, self.streams, self.recent, gathered);
    }
}

/// Rows between refreshes: a refresh evaluates every running chain's successor, so with many streams it is rarer.
pub(super) fn refresh_interval(settings: &Settings, streams: usize) -> u64 {
    (settings.refresh_rows as u64).max(streams as u64)
}
