//! What a model knows of its heads: statistics, scales, and how rows change them.

mod changed;
mod pieces;
mod rule;
mod scales;
mod warned;

pub(crate) use scales::tuning_is_due;

use super::ring::{CutChains, Parted, Ring};
use super::verified::{HeadVerdict, HeadVerification, Start, in_single_precision};
use super::{Columns, Cumulant, Head, SharedHeads, Verified, Weighting};
use crate::math::backfill::BackfillBuffer;
use crate::math::dense::{Accuracy, Matrix, Singular, axpy};
use crate::math::forgetting::Forgetting;
use crate::math::head_sums::{Gram, Group, HeadStatistics, Observed, Spectrum, Targets};
use crate::math::kernel::Kernel;
use crate::math::posterior::{Scale, SolveError};
use crate::math::statistics::Running;
use crate::transition::Rows;
use crate::warning::{Stated, Warnings};
use rule::{Rule, RuleColumn};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ops::Range;
use warned::{Warned, seen};

/// Rows from which on scales are chosen.
pub(crate) const TUNED_FROM: u64 = 64;
/// What is known of the chain in one slot besides its sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Clock {
    /// Time of the last row, seconds.
    time: f64,
    running: bool,
}

/// The heads of one model and what it has learned for them. Written and read back it goes on bit for bit as it would have.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bank {
    heads: SharedHeads,
    /// The different cumulants.
    signals: Vec<Cumulant>,
    /// The different weightings; none: every row counts once.
    weightings: Vec<Option<Weighting>>,
    rules: Vec<Rule>,
    statistics: HeadStatistics,
    forgetting: Option<Forgetting>,
    clocks: Vec<Clock>,
    /// Scale of each head, relative to the base kernel.
    scales: Vec<Scale>,
    /// Rows when scales were chosen last.
    tuned_at: u64,
    /// Recent rows, while the dictionary may grow.
    ring: Option<Ring>,
    #[serde(default)]
    verified: HeadVerification,
    #[serde(skip)]
    work: BankScratch,
}

/// Scratch of one block.
#[derive(Clone, Debug, Default)]
struct BankScratch {
    /// Cumulants (K, n).
    signals: Matrix,
    /// Rewards of one group (H, n).
    rewards: Matrix,
    /// Traces of one group (m, n), then features times the root of their weight.
    traces: Matrix,
    /// e of one group (n,).
    weight_sums: Vec<f64>,
    /// Seconds since the row before in the chain (n,); none where the row starts one.
    steps: Vec<Option<f64>>,
    /// Where the alarms about heads are.
    warned: Vec<(usize, usize, usize)>,
}

/// Where a row's states stand among the nodes of its block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RowNodes {
    pub(crate) slot: usize,
    /// Successor of the chain that a gap before this row cuts.
    pub(crate) gap: Option<usize>,
    /// What the row before it in its chain led to, where rows are followed and that is another state than its own.
    pub(crate) before: Option<usize>,
    pub(crate) state: usize,
    /// Next state, where it is needed: white noise, or a chain cut after this row.
    pub(crate) next: Option<usize>,
}

/// A block of rows as the model sees it.
#[derive(Clone, Debug)]
pub(crate) struct Block<'a> {
    pub(crate) rows: &'a Rows,
    pub(crate) range: Range<usize>,
    /// Offset of the first row.
    pub(crate) offset: u64,
    pub(crate) nodes: &'a [RowNodes],
    /// (m, nodes).
    pub(crate) features: &'a Matrix,
    /// The base kernel.
    pub(crate) kernel: &'a Kernel,
    /// The model's ring before these rows: number of its first row, and cuts.
    pub(crate) ring: (u64, usize),
}

/// Weights of all heads at one moment, and what their variances are made of.
#[derive(Clone, Debug)]
pub struct Solution {
    /// Of each weighting.
    pub(super) spectra: Vec<Spectrum>,
    /// Of each group (m, H).
    pub(super) weights: Vec<Matrix>,
    running: Vec<Running>,
}

impl Solution {
    /// u (m, H) of group number `g`.
    pub fn weights(&self, g: usize) -> &Matrix {
        &self.weights[g]
    }
}

impl Bank {
    /// `heads` that have learned nothing, for m features, all at this scale unless they name their own. Where the dictionary
    /// `grows`, recent rows are kept for new elements.
    pub fn new(heads: Vec<Head>, m: usize, half_life: Option<f64>, scale: Scale, grows: bool) -> Self {
        let (mut signals, mut weightings, mut rules) = (Vec::new(), Vec::new(), Vec::<Rule>::new());
        for (number, head) in heads.iter().enumerate() {
            let signal = position(&mut signals, head.cumulant.clone());
            let gram = position(&mut weightings, head.weighting());
            let Head { terminal_reward, level, .. } = *head;
            let column = RuleColumn { signal, terminal_reward, head: number, level };
            let same =
                |rule: &&mut Rule| (rule.rate, &rule.continuation, rule.gram) == (head.rate, &head.continuation, gram);
            match rules.iter_mut().find(same) {
                Some(rule) => rule.columns.push(column),
                None => {
                    let (rate, continuation) = (head.rate, head.continuation.clone());
                    rules.push(Rule { rate, continuation, gram, columns: vec![column], kept: Vec::new() });
                }
            }
        }
        let own = |head: &Head| {
            let signal = head.signal.unwrap_or(scale.signal);
            Scale { signal, ratio: head.noise_variance.unwrap_or(scale.noise_variance()) / signal }
        };
        Self {
            statistics: HeadStatistics {
                grams: weightings.iter().map(|_| Gram::new(m)).collect(),
                groups: rules.iter().map(|rule| Group::new(m, rule.columns.len())).collect(),
            },
            forgetting: half_life.map(Forgetting::new),
            clocks: Vec::new(),
            scales: heads.iter().map(own).collect(),
            signals,
            weightings,
            rules,
            heads: heads.into(),
            tuned_at: 0,
            ring: grows.then(Ring::default),
            verified: HeadVerification::default(),
            work: BankScratch::default(),
        }
    }

    /// The heads, in the order in which they were declared.
    pub fn heads(&self) -> &[Head] {
        &self.heads
    }

    /// The same, as snapshots have them.
    pub(super) fn shared_heads(&self) -> SharedHeads {
        self.heads.clone()
    }

    /// The statistics: sums by weighting and by group.
    pub fn statistics(&self) -> &HeadStatistics {
        &self.statistics
    }

    /// Add what another piece of stream has taught the same heads on the same dictionary (`sign` 1), or take it out again (-1).
    pub fn combine(&mut self, other: &Self, sign: f64) {
        self.statistics.combine(&other.statistics, sign);
    }

    /// Of head number `head` its group and its column there.
    ///
    /// # Panics
    /// If there is no such head.
    pub fn place(&self, head: usize) -> (usize, usize) {
        let column = |rule: &Rule| rule.columns.iter().position(|column| column.head == head);
        let found = self.rules.iter().enumerate().find_map(|(g, rule)| Some((g, column(rule)?)));
        found.expect("every head has a column")
    }

    /// Of each head its group and its column there (H,).
    pub fn places(&self) -> Vec<(usize, usize)> {
        let mut out = vec![(0, 0); self.heads.len()];
        for (g, rule) in self.rules.iter().enumerate() {
            rule.columns.iter().enumerate().for_each(|(c, column)| out[column.head] = (g, c));
        }
        out
    }

    /// Numbers of the heads of group number `g`, in the order of their columns.
    pub(super) fn heads_of(&self, g: usize) -> impl Iterator<Item = usize> {
        self.rules[g].columns.iter().map(|column| column.head)
    }

    /// Weighting of group number `g`.
    pub(super) fn weighting_of(&self, g: usize) -> usize {
        self.rules[g].gram
    }

    /// Scale of each head, relative to the base kernel.
    pub fn scales(&self) -> &[Scale] {
        &self.scales
    }

    /// Take noise and scale of each head from `other`, where that has the same head.
    pub(crate) fn take_scales(&mut self, other: &Self) {
        let known: HashMap<&str, usize> =
            other.heads.iter().enumerate().map(|(h, head)| (head.name.as_str(), h)).collect();
        for (scale, head) in self.scales.iter_mut().zip(&self.heads) {
            if let Some(&h) = known.get(head.name.as_str()).filter(|&&h| other.heads[h] == *head) {
                *scale = other.scales[h];
            }
        }
    }

    /// How often the newest row counts in what is kept.
    pub(super) fn unit(&self) -> f64 {
        self.forgetting.map_or(1.0, |forgetting| forgetting.unit())
    }

    /// Learn a block of rows, of which the alarms among `warnings` hear that are about its heads.
    pub(crate) fn learn(&mut self, block: &Block<'_>, warnings: Option<&mut Warnings>) {
        let Range { start, end } = block.range;
        if start == end {
            return;
        }
        self.age(block.offset + (end - start) as u64 - 1);
        self.verified.settle(self.rules.iter().map(|rule| rule.columns.len()));
        let mut work = std::mem::take(&mut self.work);
        let mut warned = self.warned(warnings, std::mem::take(&mut work.warned));
        work.signals.renew(self.signals.len(), end - start);
        for (k, i) in (start..end).enumerate() {
            Cumulant::all_of(&self.signals, block.rows, i, work.signals.col_mut(k));
        }
        self.measure(block, &mut work);
        let places = self.remember(block);
        let first_cut = self.ring.as_ref().map_or(0, Ring::cuts);
        for g in 0..self.rules.len() {
            self.learn_group(g, block, (&places, first_cut), &mut work, &mut warned);
        }
        for g in 0..self.weightings.len() {
            self.learn_gram(g, block, &mut work);
        }
        work.warned = warned.places;
        self.work = work;
    }

    /// Time from row to row.
    fn measure(&mut self, block: &Block<'_>, work: &mut BankScratch) {
        work.steps.clear();
        let time = |i: usize| block.rows.times.get(i).copied().unwrap_or(f64::NAN);
        for (nodes, i) in block.nodes.iter().zip(block.range.clone()) {
            if self.clocks.len() <= nodes.slot {
                self.clocks.resize(nodes.slot + 1, Clock::default());
            }
            let clock = &mut self.clocks[nodes.slot];
            let continues = clock.running && nodes.gap.is_none();
            // A clock that was set back says that no time has passed.
            work.steps.push(continues.then(|| (time(i) - clock.time).max(0.0)));
            *clock = Clock { time: time(i), running: !block.rows.terminated[i] && nodes.next.is_none() };
        }
    }

    /// How often row i of the stream, at this offset, counts for weighting number `gram`, and how often it is remembered.
    fn weight(&self, gram: usize, rows: &Rows, i: usize, offset: u64) -> (f64, f64) {
        let remembered = self.forgetting.map_or(1.0, |forgetting| forgetting.weight(offset));
        let weight = self.weightings[gram].map_or(1.0, |weighting| weighting.of(rows, i));
        (weight, remembered)
    }

    /// Whether row i has no label where weighting number `gram` asks for one.
    fn lacks_label(&self, gram: usize, rows: &Rows, i: usize) -> bool {
        self.weightings[gram].is_some_and(|weighting| weighting.lacks_label(rows, i))
    }

    /// End the chain in `slot` of group number `g`, and of no other, before a row that does not count for it and whose state has
    /// these features, as a cut would: its return goes on with the value there. The row has this place in the ring.
    fn part(&mut self, g: usize, slot: usize, features: &[f64], place: Option<usize>) {
        let chain = &self.statistics.groups[g].chains()[slot];
        if chain.weight_sum == 0.0 || chain.discount == 0.0 {
            return;
        }
        let decay = chain.discount;
        if let (Some(ring), Some(place)) = (&mut self.ring, place) {
            let row = ring.first + (place / self.rules.len()) as u64;
            ring.parted.push(Parted { group: g, row, slot, chain: chain.clone(), features: features.to_vec() });
        }
        self.verified.cut(g, slot, decay, features);
        self.statistics.groups[g].cut(slot, features);
    }

    /// Put the rows into the ring: where the discounts of each stand there. Empty if there is none.
    fn remember(&mut self, block: &Block<'_>) -> Vec<usize> {
        let groups = self.rules.len();
        let Some(ring) = &mut self.ring else { return Vec::new() };
        ring.prune(block.ring.0, block.ring.1, groups);
        let rows = block.nodes.iter().zip(block.range.clone()).enumerate();
        rows.map(|(k, (nodes, i))| {
            ring.push(block.rows, i, block.offset + k as u64, nodes.slot);
            ring.push_decays(groups)
        })
        .collect()
    }

    /// Close the chain in `slot` of group number `g`. The first group's cut begins a record of the ring, later ones add to theirs.
    fn cut_group(&mut self, g: usize, slot: usize, features: &[f64], number: &mut usize) {
        if let Some(ring) = &mut self.ring {
            let chain = self.statistics.groups[g].chains()[slot].clone();
            ring.cut_in_group(g, chain, features, number);
        }
        let decay = self.statistics.groups[g].chains()[slot].discount;
        self.verified.cut(g, slot, decay, features);
        self.statistics.groups[g].cut(slot, features);
    }

    /// m.
    fn features(&self) -> usize {
        self.statistics.grams.first().map_or(0, |gram| gram.matrix().rows())
    }

    /// Number of groups.
    pub(super) fn group_count(&self) -> usize {
        self.rules.len()
    }

    /// Rewards of the heads of group number `g` in row i, into `out` (H,).
    fn rewards_of(&self, g: usize, rows: &Rows, i: usize, out: &mut [f64]) {
        let rule = &self.rules[g];
        let kept = rule.continuation.of(rows, i);
        for (reward, column) in out.iter_mut().zip(&rule.columns) {
            *reward = rule.paid(column, self.signals[column.signal].of(rows, i), kept);
        }
    }

    fn learn_group(
        &mut self,
        g: usize,
        block: &Block<'_>,
        (places, first_cut): (&[usize], usize),
        work: &mut BankScratch,
        warned: &mut Warned<'_>,
    ) {
        let (rows, features, n) = (block.rows, block.features, block.range.len());
        let BankScratch { signals, rewards, traces, weight_sums, steps, .. } = work;
        let plain = self.rules[g].pays_all_signals(signals.rows());
        if !plain {
            rewards.renew(self.rules[g].columns.len(), n);
        }
        traces.renew(features.rows(), n);
        weight_sums.clear();
        let mut cut = first_cut;
        for (k, i) in block.range.clone().enumerate() {
            let nodes = block.nodes[k];
            let (weight, remembered) = self.weight(self.rules[g].gram, rows, i, block.offset + k as u64);
            self.statistics.groups[g].chain_mut(nodes.slot);
            if let Some(node) = nodes.gap {
                self.cut_warned(g, block, (k, i), features.col(node), warned);
                self.cut_group(g, nodes.slot, features.col(node), &mut cut);
            }
            if self.lacks_label(self.rules[g].gram, rows, i) {
                self.cut_warned(g, block, (k, i), features.col(nodes.state), warned);
                self.part(g, nodes.slot, features.col(nodes.state), places.get(k).copied());
            }
            let (rule, group) = (&mut self.rules[g], &mut self.statistics.groups[g]);
            if rule.kept.len() <= nodes.slot {
                rule.kept.resize(nodes.slot + 1, 0.0);
            }
            let kept = rule.continuation.of(rows, i);
            let own = if plain {
                signals.col(k)
            } else {
                let (own, signals) = (rewards.col_mut(k), signals.col(k));
                for (reward, column) in own.iter_mut().zip(&rule.columns) {
                    *reward = rule.paid(column, signals[column.signal], kept);
                }
                own
            };
            let decay = steps[k].map_or(0.0, |dt| rule.kept[nodes.slot] * rule.rate.discount(dt));
            if let (Some(ring), Some(place)) = (&mut self.ring, places.get(k)) {
                ring.set_decay(place + g, decay);
            }
            let (phi, trace) = (features.col(nodes.state), traces.col_mut(k));
            self.verified.arrive(g, nodes.slot, decay, phi);
            let start = Start {
                slot: nodes.slot,
                features: phi,
                kernel: block.kernel,
                weighting: rule.gram,
                weight,
                length: rule.length(),
            };
            self.verified.start(g, start, |column| self.scales[rule.columns[column].head]);
            self.verified.take(g, nodes.slot, own, rows.terminated[i]);
            let earned = |c: usize| rule.columns[c].earned(signals.at(rule.columns[c].signal, k), kept);
            warned.see(g, &seen(block, k, i, decay), earned, |column| {
                let about = self.verified.value(g, column, phi)?;
                let RuleColumn { head, level, .. } = rule.columns[column];
                Some(Stated { mean: about + level, deviation: self.scales[head].noise_variance().sqrt() })
            });
            weight_sums.push(group.absorb(nodes.slot, decay, weight * remembered, phi, own, trace));
            // What it is if the chain is cut here: then the time to the next row is that from the one before.
            group.chain_mut(nodes.slot).discount = kept * rule.rate.discount(steps[k].unwrap_or(1.0));
            rule.kept[nodes.slot] = kept;
            if rows.terminated[i] {
                group.chain_mut(nodes.slot).reset();
            } else if let Some(node) = nodes.next {
                self.cut_warned(g, block, (k, i), features.col(node), warned);
                self.cut_group(g, nodes.slot, features.col(node), &mut cut);
            }
        }
        let paid = if plain { signals } else { rewards };
        self.statistics.groups[g].absorb_response(traces.view(), paid.view(), weight_sums);
    }

    fn learn_gram(&mut self, g: usize, block: &Block<'_>, work: &mut BankScratch) {
        let weighted = &mut work.traces;
        weighted.renew(block.features.rows(), block.range.len());
        for (k, i) in block.range.clone().enumerate() {
            let (weight, remembered) = self.weight(g, block.rows, i, block.offset + k as u64);
            let root = (weight * remembered).sqrt();
            let phi = block.features.col(block.nodes[k].state);
            weighted.col_mut(k).iter_mut().zip(phi).for_each(|(to, phi)| *to = root * phi);
            self.statistics.grams[g].count(weight, remembered);
        }
        self.statistics.grams[g].absorb(weighted.view());
    }

    /// Cut the chain in `slot` with the value of its last successor, whose features are (m,).
    pub(crate) fn cut(&mut self, slot: usize, features: &[f64]) {
        if let Some(clock) = self.clocks.get_mut(slot).filter(|clock| clock.running) {
            clock.running = false;
            let first = self.ring.as_ref().map_or(0, Ring::cuts);
            (0..self.rules.len()).for_each(|g| self.cut_group(g, slot, features, &mut { first }));
        }
    }

    /// Give the newest element its rows and columns in all sums: its coordinate of recent rows, and all that is made of these, as
    /// [`BackfillBuffer::backfill`] has it for the critic, docs/mathematics.md (G2), (G4). `recent` has its coordinate of each row
    /// and cut already; rows from number `from` on count. O(rows (m + H) + cuts m) for each group.
    pub(crate) fn grow(&mut self, from: u64, recent: &BackfillBuffer) {
        let Some(mut ring) = self.ring.take() else { return };
        let span = recent.span();
        let from = from.clamp(span.start, span.end).max(ring.first);
        ring.prune(span.start, recent.cuts().count(), self.group_count());
        for g in 0..self.statistics.grams.len() {
            let mut cross = vec![0.0; recent.features_of_newest() + 1];
            for row in from..span.end {
                let k = (row - ring.first) as usize;
                let (weight, remembered) = self.weight(g, &ring.rows, k, ring.offsets[k]);
                let phi = recent.features_of(row);
                axpy(&mut cross, weight * remembered * ring.shares[k] * phi[phi.len() - 1], phi);
            }
            self.statistics.grams[g].grow(&cross);
        }
        for g in 0..self.group_count() {
            self.grow_group(g, from, recent, &mut ring);
        }
        ring.grow_parted(recent);
        for (cut, (_, _, _, value)) in ring.cuts.iter_mut().zip(recent.cuts()) {
            cut.features.push(value);
        }
        self.ring = Some(ring);
    }

    fn grow_group(&mut self, g: usize, from: u64, recent: &BackfillBuffer, ring: &mut Ring) {
        let groups = self.group_count();
        self.statistics.groups[g].grow();
        let slots = ring.slots.iter().copied().max().map_or(0, |slot| slot as usize + 1);
        let mut traces = vec![0.0; slots.max(self.statistics.groups[g].chains().len())];
        let mut sums = vec![0.0; self.statistics.groups[g].heads()];
        let mut rewards = vec![0.0; sums.len()];
        let mut pending = recent.cuts().zip(0..).peekable();
        for row in from..=recent.span().end {
            let due = |cut: &((u64, u64, usize, f64), usize)| cut.0.0 <= row || row == recent.span().end;
            while let Some(((_, at, slot, value), number)) = pending.next_if(due) {
                let CutChains { chains, features } = &mut ring.cuts[number];
                if let Some(chain) = chains.get_mut(g) {
                    if at >= from {
                        self.statistics.groups[g].close_newest(chain, features, value, traces[slot]);
                    }
                    chain.trace.push(traces[slot]);
                }
                traces[slot] = 0.0;
            }
            if row == recent.span().end {
                break;
            }
            let k = (row - ring.first) as usize;
            let slot = ring.slots[k] as usize;
            let phi = recent.features_of(row);
            if let Some(parted) = ring.parted.iter_mut().find(|of| (of.group, of.row) == (g, row)) {
                let Parted { chain, features, .. } = parted;
                self.statistics.groups[g].close_newest(chain, features, phi[phi.len() - 1], traces[slot]);
                chain.trace.push(traces[slot]);
                traces[slot] = 0.0;
            }
            let (weight, remembered) = self.weight(self.weighting_of(g), &ring.rows, k, ring.offsets[k]);
            let share = weight * remembered * ring.shares[k];
            traces[slot] = ring.decays[k * groups + g] * traces[slot] + share * phi[phi.len() - 1];
            self.rewards_of(g, &ring.rows, k, &mut rewards);
            axpy(&mut sums, traces[slot], &rewards);
        }
        self.statistics.groups[g].finish_newest(&sums, &traces);
    }

    /// Rows that come from here on have this many rewards, the first of those so far.
    pub(crate) fn keep_rewards(&mut self, count: usize) {
        self.ring.iter_mut().for_each(|ring| ring.keep_rewards(count));
    }

    /// The dictionary will not grow any more.
    pub(crate) fn settle(&mut self) {
        self.ring = None;
    }

    /// Give up all chains, which have ended.
    pub(crate) fn drop_chains(&mut self) {
        self.clocks.clear();
        self.ring = self.ring.take().map(|_| Ring::default());
        self.statistics.groups.iter_mut().for_each(Group::drop_chains);
        self.rules.iter_mut().for_each(|rule| rule.kept.clear());
        self.verified.drop_trials();
    }

    /// Let every row so far count `factor` times as often.
    pub(crate) fn discount(&mut self, factor: f64) {
        self.statistics.scale(factor);
        self.ring.iter_mut().for_each(|ring| ring.discount(factor));
        self.verified.forget();
    }

    /// Weights of all heads at their scales, NaN for a head that cannot be solved for. `running` are the model's running chains.
    ///
    /// # Errors
    /// If no head can be solved for.
    pub fn solve(&self, running: &Running) -> Result<Solution, SolveError> {
        let mut solution = self.decompose(running)?;
        for g in 0..self.group_count() {
            let weights = self.solve_group(g, &solution);
            solution.weights.push(weights);
        }
        if solution.weights.iter().any(has_solution) { Ok(solution) } else { Err(unsolved(self.features())) }
    }

    /// A solution that lacks the weights.
    pub(super) fn decompose(&self, running: &Running) -> Result<Solution, SolveError> {
        let HeadStatistics { grams, groups } = &self.statistics;
        let spectra = grams.iter().map(Gram::spectrum).collect::<Result<Vec<_>, _>>()?;
        let running: Vec<Running> = groups.iter().map(|group| group.running(running)).collect();
        Ok(Solution { spectra, weights: Vec::with_capacity(groups.len()), running })
    }

    /// u (m, H) of the heads of group number `g` at their scales.
    pub(super) fn solve_group(&self, g: usize, solution: &Solution) -> Matrix {
        self.solve_columns(g, solution, &self.columns_of(g), Accuracy::Refined)
    }

    fn columns_of(&self, g: usize) -> Vec<usize> {
        (0..self.rules[g].columns.len()).collect()
    }

    /// u (m, n) of the heads in the columns `which` (n,) of group number `g`.
    fn solve_columns(&self, g: usize, solution: &Solution, which: &[usize], accuracy: Accuracy) -> Matrix {
        let (rule, unit) = (&self.rules[g], self.unit());
        let ridges: Vec<f64> = which.iter().map(|&c| unit * self.scales[rule.columns[c].head].ratio).collect();
        let (gram, spectrum) = (&self.statistics.grams[rule.gram], &solution.spectra[rule.gram]);
        self.statistics.groups[g].solve(gram, spectrum, &solution.running[g], &ridges, which, accuracy)
    }

    /// Whether the weights whose predictions are verified are to be renewed: there are an eighth more rows than when they were
    /// made, and two for each head, since a solution takes about as long as to learn one row for each.
    pub(crate) fn foresight_is_due(&self, rows: u64) -> bool {
        let remembered = self.forgetting.map_or(rows, |forgetting| rows.min(forgetting.half_life() as u64));
        let apart = (remembered / 8).max(2 * self.heads.len() as u64);
        rows >= self.verified.forecast_at().map_or(TUNED_FROM, |before| before + apart)
    }

    /// Verify what the weights of now predict. `rows` is how many have been learned. New weights take the memory of those before, so
    /// that they exist once.
    ///
    /// # Errors
    /// As [`Bank::solve`]; nothing is then verified until the next success.
    pub(crate) fn renew_forecast(&mut self, running: &Running, rows: u64) -> Result<(), SolveError> {
        let mut weights = self.verified.take_weights();
        let mut foreseen = || -> Result<Vec<Spectrum>, SolveError> {
            let (solution, mut is_solved) = (self.decompose(running)?, false);
            for g in 0..self.group_count() {
                // Refinement would be lost in single precision.
                let u = self.solve_columns(g, &solution, &self.columns_of(g), Accuracy::Plain);
                is_solved |= has_solution(&u);
                in_single_precision(&u, g, &mut weights);
            }
            if is_solved { Ok(solution.spectra) } else { Err(unsolved(self.features())) }
        };
        let spectra = foreseen();
        self.verify_with(spectra, weights, rows)
    }

    /// Verify what these weights predict, or nothing where there are none.
    fn verify_with(
        &mut self,
        spectra: Result<Vec<Spectrum>, SolveError>,
        mut weights: Vec<Vec<f32>>,
        rows: u64,
    ) -> Result<(), SolveError> {
        weights.truncate(self.rules.len());
        let spectra = spectra.inspect_err(|_| self.verified.give_up())?;
        self.verified.set_forecast(rows, self.unit(), spectra, weights);
        Ok(())
    }

    /// What has been verified of each head (H,), the default below 40 pairs.
    pub(super) fn verified(&self) -> Vec<Verified> {
        let mut out = vec![Verified::default(); self.heads.len()];
        for (g, rule) in self.rules.iter().enumerate() {
            for (c, column) in rule.columns.iter().enumerate() {
                out[column.head] = self.verified.verdict(g, c).map_or_else(Verified::default, Verified::from);
            }
        }
        out
    }

    /// Of each head the share of its verified returns in the 90 % interval as it was predicted (H,); none below 40 pairs.
    pub fn coverage(&self) -> Vec<Option<f64>> {
        let mut out = vec![None; self.heads.len()];
        for (g, rule) in self.rules.iter().enumerate() {
            rule.columns.iter().zip(self.verified.coverage(g)).for_each(|(column, share)| out[column.head] = share);
        }
        out
    }

    /// Of each head the variance of verified returns less predictions over the variance of the returns (H,); none below 40
    /// pairs, and where returns do not vary.
    pub fn unexplained(&self) -> Vec<Option<f64>> {
        let mut out = self.coverage();
        for (g, rule) in self.rules.iter().enumerate() {
            for (column, share) in rule.columns.iter().zip(self.verified.unexplained(g)) {
                out[column.head] = out[column.head].and(share);
            }
        }
        out
    }

    /// What has been verified of head number `head`; none below 40 pairs.
    ///
    /// # Panics
    /// If there is no such head.
    pub fn verdict(&self, head: usize) -> Option<HeadVerdict> {
        self.verdict_at(self.place(head))
    }

    /// What has been verified of the head in this place, one of [`Bank::places`]; none below 40 pairs.
    ///
    /// # Panics
    /// If there is no such group.
    pub fn verdict_at(&self, (g, column): (usize, usize)) -> Option<HeadVerdict> {
        self.verified.verdict(g, column)
    }

    /// Targets of the heads in the columns `which` (n,) of one group, closed by their weights u (m, n), and their images.
    fn targets(&self, g: usize, solution: &Solution, (which, u): (&[usize], &Matrix)) -> (Vec<Targets>, Matrix) {
        let (group, running) = (&self.statistics.groups[g], &solution.running[g]);
        let images = group.images(&solution.spectra[self.rules[g].gram], running, u, which);
        (group.targets(running, u, which), images)
    }

    /// Log evidence of each head, nats, of the rows that its statistics hold, targets closed by `solution`. Where rows are forgotten
    /// it is no probability.
    pub fn log_evidence(&self, solution: &Solution) -> Vec<f64> {
        let mut out = vec![0.0; self.heads.len()];
        for (g, rule) in self.rules.iter().enumerate() {
            let (targets, images) = self.targets(g, solution, (&self.columns_of(g), solution.weights(g)));
            let observed = Observed::new(&self.statistics.grams[rule.gram], &solution.spectra[rule.gram], self.unit());
            for (h, column) in rule.columns.iter().enumerate() {
                let scale = self.scales[column.head];
                let determinant = observed.log_determinant(scale.ratio);
                out[column.head] = observed.log_evidence(targets[h], images.col(h), scale, determinant);
            }
        }
        out
    }

    /// Of each head the sum of its squared targets, those that were bootstrapped among them as `solution` has it.
    pub fn closed_energy(&self, solution: &Solution) -> Vec<f64> {
        let mut out = vec![0.0; self.heads.len()];
        for (g, rule) in self.rules.iter().enumerate() {
            let (targets, _) = self.targets(g, solution, (&self.columns_of(g), solution.weights(g)));
            rule.columns.iter().zip(targets).for_each(|(column, of)| out[column.head] = of.energy / self.unit());
        }
        out
    }

    /// Whether everything has the size that everything else expects.
    pub(crate) fn is_consistent(&self, m: usize, slots: usize, dim: usize) -> bool {
        let heads = self.heads.len();
        let columns = Columns { states: dim, rewards: usize::MAX, actions: usize::MAX };
        let HeadStatistics { grams, groups } = &self.statistics;
        super::check(&self.heads, columns).is_ok()
            && self.scales.len() == heads
            && (grams.len(), groups.len()) == (self.weightings.len(), self.rules.len())
            && self.clocks.len() <= slots
            && grams.iter().all(|gram| (gram.matrix().rows(), gram.matrix().cols()) == (m, m))
            && self.rules.iter().zip(groups).all(|(rule, group)| {
                rule.gram < grams.len()
                    && group.is_consistent(m, rule.columns.len())
                    && rule.columns.iter().all(|column| column.signal < self.signals.len() && column.head < heads)
            })
            && self.rules.iter().map(|rule| rule.columns.len()).sum::<usize>() == heads
            && self.forgetting.is_none_or(|forgetting| forgetting.is_consistent())
            && self.verified.is_consistent(&self.sizes(), m, slots, self.weightings.len())
    }

    /// Of each group the number of its heads.
    fn sizes(&self) -> Vec<usize> {
        self.rules.iter().map(|rule| rule.columns.len()).collect()
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        let HeadStatistics { grams, groups } = &self.statistics;
        let work = &self.work;
        grams.iter().map(|gram| gram.matrix().bytes()).sum::<usize>()
            + groups.iter().map(Group::bytes).sum::<usize>()
            + self.ring.as_ref().map_or(0, Ring::bytes)
            + work.signals.bytes()
            + work.rewards.bytes()
            + work.traces.bytes()
            + self.verified.bytes()
            + self.heads.iter().map(|head| size_of::<Head>() + head.name.len()).sum::<usize>()
    }
}

/// Whether some column of u (m, n) is a solution.
fn has_solution(u: &Matrix) -> bool {
    (0..u.cols()).any(|h| u.col(h).iter().all(|u| u.is_finite()))
}

/// No head over `m` features can be solved for.
fn unsolved(m: usize) -> SolveError {
    Singular { size: m }.into()
}

/// Where `value` stands in `list`, at its end if it was not there.
pub(super) fn position<T: PartialEq>(list: &mut Vec<T>, value: T) -> usize {
    list.iter().position(|other| *other == value).unwrap_or_else(|| {
        list.push(value);
        list.len() - 1
    })
}
