//! Recent rows with their features, from which a new dictionary element learns what it missed.
//!
//! A coordinate that starts at zero sees past data only through the older elements: the mean then moves away from the
//! batch estimate (`tests/it/learning.rs` prints how far). Backfilling the coordinate over the rows kept here makes it
//! exact for them. Rows that have left keep the zero, and each lacks at most the root of the tolerance. With every row
//! kept, growth is exact. These are equations (G1) to (G9) of `docs/mathematics.md`.

use super::dense::{Matrix, Op, View, ViewMut, axpy, dot, multiply};
use super::dictionary::{Admitted, Dictionary};
use super::posterior::RowUpdate;
use super::raw;
use super::statistics::{Chain, Statistics};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// What is observed in one row: V(state) - `weight` V(next), with `weight` 0 under correlated noise.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// Features of the observed difference (m,).
    pub features: &'a [f64],
    /// Projected state.
    pub point: &'a [f64],
    /// Projected next state; not read where `weight` is 0.
    pub next_point: &'a [f64],
    /// Coefficient of the next state's value.
    pub weight: f64,
    /// Rewards (H,).
    pub rewards: &'a [f64],
    /// Number of the chain's slot.
    pub slot: usize,
    /// Discount of the transition before it in its chain; 0 where it starts one.
    pub decay: f64,
    /// Discount of the transition; 0 at a terminal state, and where every row is a chain of its own.
    pub discount: f64,
    /// How often it counts, importance ratio included; 1 unless it has one or rows are forgotten.
    pub share: f64,
    /// How it continues its chain, where rows are followed ([`Statistics::follows_rows`]).
    pub crossing: Option<Crossing<'a>>,
}

/// What a row that is followed adds to B, and what its trace is made of.
#[derive(Clone, Copy, Debug)]
pub struct Crossing<'a> {
    /// c.
    pub carry: f64,
    /// gamma z before the row, and psi - c phi (m,); none where it starts a chain.
    pub boundary: Option<(&'a [f64], &'a [f64])>,
    /// Projected state that psi belongs to, where that is not the row's own.
    pub successor: Option<&'a [f64]>,
}

/// [`Crossing`] of the rows in a ring, column by column.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Crossings {
    /// gamma z (m, slots).
    traces: Matrix,
    /// psi - c phi (m, slots).
    brackets: Matrix,
    /// How often each row counts.
    #[serde(with = "raw")]
    ratios: Vec<f64>,
    #[serde(with = "raw")]
    carries: Vec<f64>,
    /// Whether psi belongs to a state of its own, which stands among the next points.
    apart: Vec<bool>,
}

impl Crossings {
    fn new(m: usize, capacity: usize, slots: usize) -> Self {
        let matrix = || {
            let mut matrix = Matrix::with_capacity(capacity.max(m), slots);
            matrix.resize(m, slots);
            matrix
        };
        let (traces, brackets) = (matrix(), matrix());
        Self { traces, brackets, ratios: vec![1.0; slots], carries: vec![1.0; slots], apart: vec![false; slots] }
    }

    fn note(&mut self, k: usize, share: f64, crossing: Crossing<'_>) {
        (self.ratios[k], self.carries[k], self.apart[k]) = (share, crossing.carry, crossing.successor.is_some());
        match crossing.boundary {
            Some((trace, bracket)) => {
                self.traces.col_mut(k).copy_from_slice(trace);
                self.brackets.col_mut(k).copy_from_slice(bracket);
            }
            None => {
                self.traces.col_mut(k).fill(0.0);
                self.brackets.col_mut(k).fill(0.0);
            }
        }
    }

    fn resize(&mut self, m: usize) {
        let slots = self.ratios.len();
        self.traces.resize(m, slots);
        self.brackets.resize(m, slots);
    }

    fn bytes(&self) -> usize {
        self.traces.bytes() + self.brackets.bytes()
    }
}

/// Scores of the rows in a ring: trace times TD error, once that is known.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Scores {
    /// (m, slots).
    columns: Matrix,
    /// Size of each row's TD error (slots,); 0 while it is not known.
    #[serde(with = "raw")]
    sizes: Vec<f64>,
}

/// A new element of the dictionary, and its coordinate in each row from number `from` on.
struct Newest<'a> {
    from: u64,
    values: Vec<f64>,
    /// Of psi - c phi, where rows are followed.
    brackets: Vec<f64>,
    admitted: &'a Admitted,
    dictionary: &'a Dictionary,
}

/// A chain that was closed by a bootstrapped value, as it stood then.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct ClosedChain {
    /// Rows absorbed when it was closed.
    position: u64,
    /// Row that closed it: the last one absorbed, or after a gap the one about to be.
    row: u64,
    slot: usize,
    chain: Chain,
    #[serde(with = "raw")]
    features: Vec<f64>,
    #[serde(with = "raw")]
    point: Vec<f64>,
}

/// A ring of the last rows absorbed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BackfillBuffer {
    keep: u64,
    slots: usize,
    width: usize,
    rewards_per_row: usize,
    /// Rows ever pushed; row i stands in column i % slots.
    end: u64,
    start: u64,
    /// Whether nothing will be backfilled any more.
    #[serde(default)]
    settled: bool,
    features: Matrix,
    #[serde(with = "raw")]
    points: Vec<f64>,
    #[serde(with = "raw")]
    next_points: Vec<f64>,
    #[serde(with = "raw")]
    weights: Vec<f64>,
    #[serde(with = "raw")]
    rewards: Vec<f64>,
    chain_slots: Vec<u32>,
    #[serde(with = "raw")]
    decays: Vec<f64>,
    /// Empty, with other vectors of a settled ring, where it was read from a file of before they were kept.
    #[serde(default, with = "raw")]
    discounts: Vec<f64>,
    cuts: VecDeque<ClosedChain>,
    #[serde(skip)]
    spare: Vec<ClosedChain>,
    #[serde(default)]
    crossings: Option<Crossings>,
    #[serde(default)]
    scores: Option<Scores>,
    /// How often each row counts (slots,), where rows are forgotten and not followed; empty elsewhere.
    #[serde(default, with = "raw")]
    shares: Vec<f64>,
}

impl BackfillBuffer {
    /// Keep the last `keep` rows before whichever row is being learned, in blocks of at most `block`. `features` is the
    /// largest number of features, `width` the length of projected states.
    pub fn new(keep: usize, block: usize, features: usize, width: usize, rewards_per_row: usize) -> Self {
        let slots = keep + block;
        let mut ring = Matrix::with_capacity(features, slots);
        ring.resize(0, slots);
        Self {
            keep: keep as u64,
            slots,
            width,
            rewards_per_row,
            end: 0,
            start: 0,
            settled: false,
            features: ring,
            points: vec![0.0; slots * width],
            next_points: vec![0.0; slots * width],
            weights: vec![0.0; slots],
            rewards: vec![0.0; slots * rewards_per_row],
            chain_slots: vec![0; slots],
            decays: vec![0.0; slots],
            discounts: vec![0.0; slots],
            cuts: VecDeque::new(),
            spare: Vec::new(),
            crossings: None,
            scores: None,
            shares: Vec::new(),
        }
    }

    /// Rows are forgotten: keep how often each counts.
    pub fn forget(&mut self) {
        self.shares = vec![1.0; self.slots];
    }

    /// Let every row so far count `factor` times as often; rows that come count once.
    pub fn discount(&mut self, factor: f64) {
        if !self.settled && self.crossings.is_none() && self.shares.is_empty() {
            self.forget();
        }
        self.scale(factor);
    }

    /// Let every row so far count `factor` times as much.
    pub fn scale(&mut self, factor: f64) {
        let scale = |numbers: &mut [f64]| numbers.iter_mut().for_each(|v| *v *= factor);
        scale(&mut self.shares);
        if let Some(crossings) = &mut self.crossings {
            scale(&mut crossings.ratios);
            (0..self.slots).for_each(|k| scale(crossings.traces.col_mut(k)));
        }
        if let Some(scores) = &mut self.scores {
            (0..self.slots).for_each(|k| scale(scores.columns.col_mut(k)));
        }
        self.cuts.iter_mut().for_each(|cut| cut.chain.scale(factor));
    }

    /// Keep the scores that [`BackfillBuffer::note_score`] gets. `features` is the largest number of features.
    pub fn keep_scores(&mut self, features: usize) {
        let mut columns = Matrix::with_capacity(features, self.slots);
        columns.resize(self.features.rows(), self.slots);
        self.scores = Some(Scores { columns, sizes: vec![0.0; self.slots] });
    }

    /// Row number `row` turned out to have a TD error of this size; `trace` (m,) is that after the row. Rows that are not kept
    /// are passed over.
    pub fn note_score(&mut self, row: u64, trace: &[f64], size: f64) {
        if let Some(scores) = &mut self.scores
            && (self.start..self.end).contains(&row)
        {
            let k = (row % self.slots as u64) as usize;
            scores.sizes[k] = size;
            for (to, z) in scores.columns.col_mut(k).iter_mut().zip(trace) {
                *to = size * z;
            }
        }
    }

    /// Rows are followed from here on: those before had nothing to add to B but their cuts. `features` is the largest number
    /// of features.
    pub fn follow_rows(&mut self, features: usize) {
        if !self.settled && self.crossings.is_none() {
            let mut crossings = Crossings::new(self.features.rows(), features, self.slots);
            if !self.shares.is_empty() {
                crossings.ratios = std::mem::take(&mut self.shares);
            }
            self.crossings = Some(crossings);
        }
    }

    /// Whether its parts are of sizes that fit m features, projected states (`width`,), H rewards and `chains` chains.
    pub(crate) fn is_consistent(&self, m: usize, width: usize, rewards: usize, chains: usize) -> bool {
        let slots = self.slots;
        let points = if self.settled { 0 } else { slots };
        slots as u64 >= self.keep
            && (slots > 0 || self.settled)
            && (self.width, self.rewards_per_row) == (width, rewards)
            && self.end.checked_sub(self.start).is_some_and(|rows| rows <= slots as u64)
            && self.features.cols() == slots
            && (self.features.rows() == m || (self.end == 0 && !self.settled && self.features.rows() <= m))
            && (self.points.len(), self.next_points.len()) == (points * width, points * width)
            && (self.weights.len(), self.decays.len()) == (points, points)
            && (self.discounts.len() == slots || self.discounts.is_empty())
            && ((self.chain_slots.len(), self.rewards.len()) == (slots, slots * rewards)
                || (self.settled && self.chain_slots.is_empty() && self.rewards.is_empty()))
            && self.crossings.as_ref().is_none_or(|crossings| {
                let shape = |matrix: &Matrix| (matrix.rows(), matrix.cols()) == (self.features.rows(), slots);
                !self.settled
                    && shape(&crossings.traces)
                    && shape(&crossings.brackets)
                    && (crossings.ratios.len(), crossings.carries.len()) == (slots, slots)
                    && crossings.apart.len() == slots
            })
            && self.scores.as_ref().is_none_or(|scores| {
                let shape = (scores.columns.rows(), scores.columns.cols()) == (self.features.rows(), slots);
                !self.settled && shape && scores.sizes.len() == slots
            })
            && [0, slots].contains(&self.shares.len())
            && self.chain_slots.iter().all(|&slot| (slot as usize) < chains || self.end == 0)
            && self.cuts.iter().all(|cut| {
                let chain = (cut.chain.trace.len(), cut.chain.weighted_target.len()) == (m, rewards);
                chain && cut.slot < chains && cut.features.len() == m && cut.point.len() == width
            })
    }

    /// How many rows before a new element still gain its coordinate.
    pub fn keep(&self) -> u64 {
        self.keep
    }

    /// Rows pushed so far.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The last `count` rows, oldest first, as a posterior gains them; none if fewer are kept.
    pub fn last(&self, count: u64) -> Option<impl Iterator<Item = RowUpdate<'_>>> {
        let from = self.end.checked_sub(count).filter(|&from| from >= self.start && self.notes_all())?;
        Some((from..self.end).map(|row| {
            let k = (row % self.slots as u64) as usize;
            RowUpdate {
                features: self.features.col(k),
                rewards: &self.rewards[k * self.rewards_per_row..(k + 1) * self.rewards_per_row],
                slot: self.chain_slots[k],
                discount: self.discounts[k],
            }
        }))
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        let numbers = self.points.len()
            + self.next_points.len()
            + self.rewards.len()
            + 2 * self.weights.len()
            + self.discounts.len();
        let cut = self.features.rows() * 2 + self.width + self.rewards_per_row;
        let crossings = self.crossings.as_ref().map_or(0, Crossings::bytes)
            + self.scores.as_ref().map_or(0, |scores| scores.columns.bytes());
        self.features.bytes() + crossings + size_of::<f64>() * (numbers + cut * (self.cuts.len() + self.spare.len()))
    }

    /// The dictionary is full: drop the states and features needed for backfill and keep only what [`BackfillBuffer::last`]
    /// returns, for `slots` rows.
    pub fn freeze_dictionary(&mut self, slots: usize) {
        if self.settled {
            return;
        }
        let kept = (self.end - self.start).min(slots as u64);
        let mut settled = Self {
            start: self.end - kept,
            end: self.end - kept,
            settled: true,
            slots,
            features: Matrix::zeros(self.features.rows(), slots),
            rewards: vec![0.0; slots * self.rewards_per_row],
            chain_slots: vec![0; slots],
            discounts: vec![0.0; slots],
            ..Self::new(0, 0, 0, self.width, self.rewards_per_row)
        };
        self.last(kept).into_iter().flatten().for_each(|row| settled.note(row));
        *self = settled;
    }

    /// Whether it has room for all that [`BackfillBuffer::last`] tells.
    fn notes_all(&self) -> bool {
        (self.chain_slots.len(), self.discounts.len()) == (self.slots, self.slots)
    }

    /// Write down what [`BackfillBuffer::last`] tells of a row, in the column of the oldest.
    fn note(&mut self, row: RowUpdate<'_>) {
        if !self.notes_all() {
            // Old files lack these columns. The zeros for earlier rows are never read: a posterior from such a file has no
            // cached solves and updates its factor only.
            self.rewards.resize(self.slots * self.rewards_per_row, 0.0);
            self.chain_slots.resize(self.slots, 0);
            self.discounts.resize(self.slots, 0.0);
        }
        if let Some(k) = self.end.checked_rem(self.slots as u64) {
            let k = k as usize;
            self.features.col_mut(k).copy_from_slice(row.features);
            self.rewards[k * self.rewards_per_row..(k + 1) * self.rewards_per_row].copy_from_slice(row.rewards);
            self.chain_slots[k] = row.slot;
            self.discounts[k] = row.discount;
        }
        self.end += 1;
        self.start = self.start.max(self.end.saturating_sub(self.slots as u64));
    }

    /// Numbers of the rows that it holds.
    pub(crate) fn span(&self) -> std::ops::Range<u64> {
        self.start..self.end
    }

    /// Features (m,) of row number `row`, one of those that it holds.
    pub(crate) fn features_of(&self, row: u64) -> &[f64] {
        self.features.col((row % self.slots as u64) as usize)
    }

    /// Place of the newest element's coordinate in features.
    pub(crate) fn features_of_newest(&self) -> usize {
        self.features.rows() - 1
    }

    /// Cuts, the oldest first: how many rows came before, number of the row that cut, slot, coordinate of the newest element in
    /// what closed the chain.
    pub(crate) fn cuts(&self) -> impl Iterator<Item = (u64, u64, usize, f64)> {
        self.cuts.iter().map(|cut| (cut.position, cut.row, cut.slot, cut.features.last().copied().unwrap_or(0.0)))
    }

    /// Whether nothing will be backfilled any more.
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    /// Remember a row that has just been absorbed; the oldest makes room.
    pub fn push(&mut self, row: Observed<'_>) {
        let gained =
            RowUpdate { features: row.features, rewards: row.rewards, slot: row.slot as u32, discount: row.discount };
        if self.settled {
            return self.note(gained);
        }
        if self.features.rows() < row.features.len() {
            self.features.resize(row.features.len(), self.slots);
            if let Some(crossings) = &mut self.crossings {
                crossings.resize(row.features.len());
            }
            if let Some(scores) = &mut self.scores {
                scores.columns.resize(row.features.len(), self.slots);
            }
        }
        let k = (self.end % self.slots as u64) as usize;
        self.points[k * self.width..(k + 1) * self.width].copy_from_slice(row.point);
        if row.weight != 0.0 {
            self.next_points[k * self.width..(k + 1) * self.width].copy_from_slice(row.next_point);
        }
        self.weights[k] = row.weight;
        self.decays[k] = row.decay;
        if let Some(share) = self.shares.get_mut(k) {
            *share = row.share;
        }
        if let Some(scores) = &mut self.scores {
            scores.sizes[k] = 0.0;
            scores.columns.col_mut(k).fill(0.0);
        }
        if let (Some(crossings), Some(crossing)) = (&mut self.crossings, row.crossing) {
            crossings.note(k, row.share, crossing);
            if let Some(point) = crossing.successor {
                self.next_points[k * self.width..(k + 1) * self.width].copy_from_slice(point);
            }
        }
        self.note(gained);
        while self.cuts.front().is_some_and(|cut| cut.position <= self.start) {
            self.spare.extend(self.cuts.pop_front());
        }
    }

    /// Remember that the chain in `slot` is about to be closed, by row number `row`, with the value at `point`, whose
    /// features are `features`.
    pub fn push_cut(&mut self, slot: usize, row: u64, chain: &Chain, features: &[f64], point: &[f64]) {
        if self.settled {
            return;
        }
        let mut record = self.spare.pop().unwrap_or_default();
        record.position = self.end;
        record.row = row;
        record.slot = slot;
        record.chain.clone_from(chain);
        record.features.clear();
        record.features.extend_from_slice(features);
        record.point.clear();
        record.point.extend_from_slice(point);
        self.cuts.push_back(record);
    }

    /// Give the newest element its rows and columns in the statistics, which [`Statistics::grow`] has made room for, and its
    /// coordinate in the traces of running chains. Only rows from number `from` on count. O(m rows + cuts m).
    ///
    /// `chains` are all slots; `dictionary` already holds the element, and so does `scatter`, which gains the scores of these
    /// rows in it.
    pub fn backfill(
        &mut self,
        from: u64,
        admitted: &Admitted,
        dictionary: &Dictionary,
        statistics: &mut Statistics,
        chains: &mut [Chain],
        scatter: Option<&mut Matrix>,
    ) {
        let from = from.max(self.start).min(self.end);
        let values = self.coordinates(from, admitted, dictionary);
        let brackets = self.brackets(from, &values, admitted, dictionary);
        let newest = Newest { from, values, brackets, admitted, dictionary };
        let rows = statistics.features();
        self.features.resize(rows, self.slots);
        if let Some(crossings) = &mut self.crossings {
            crossings.resize(rows);
        }
        if let Some(scores) = &mut self.scores {
            scores.columns.resize(rows, self.slots);
        }
        self.backfill_gram(&newest, statistics);
        let mut traces = vec![0.0; chains.len()];
        self.backfill_traces(&newest, statistics, &mut traces, scatter);
        for (chain, trace) in chains.iter_mut().zip(traces) {
            // A slot whose last chain has ended holds a stale trace; its chain starts anew.
            chain.extend(if chain.rows > 0 { trace } else { 0.0 });
        }
    }

    /// The coordinate of each row, and the new row of S.
    fn backfill_gram(&mut self, newest: &Newest<'_>, statistics: &mut Statistics) {
        let m = statistics.features() - 1;
        let mut cross = vec![0.0; m + 1];
        let mut sum = 0.0;
        for (k, &value) in (newest.from..self.end).zip(&newest.values) {
            let column = (k % self.slots as u64) as usize;
            *self.features.at_mut(m, column) = value;
            let weighted = share(self.crossings.as_ref(), &self.shares, column) * value;
            axpy(&mut cross, weighted, self.features.col(column));
            sum += weighted;
        }
        for (j, &value) in cross.iter().enumerate() {
            *statistics.gram.at_mut(m, j) = value;
        }
        if statistics.follows_rows {
            statistics.feature_sum[m] = sum;
        }
    }

    /// The traces of the coordinate along the chains, and all that is made of them: the new row of p, of B and of the
    /// scatter, and their new columns. `traces` (slots,), zero, become the traces of the running chains.
    fn backfill_traces(
        &mut self,
        newest: &Newest<'_>,
        statistics: &mut Statistics,
        traces: &mut [f64],
        scatter: Option<&mut Matrix>,
    ) {
        let Newest { from, values, brackets, admitted, dictionary } = newest;
        let (m, from) = (statistics.features() - 1, *from);
        let mut scores = self.scores.as_mut().zip(scatter);
        // New rows of B and of the scatter, gathered side by side: in the matrices their entries lie far apart.
        let (mut coupling, mut scattered) = (vec![0.0; m], vec![0.0; m + 1]);
        let mut cuts = std::mem::take(&mut self.cuts);
        let mut pending = cuts.iter_mut().peekable();
        for (i, (row, &value)) in (from..self.end).zip(values).enumerate() {
            while let Some(cut) = pending.next_if(|cut| cut.position <= row) {
                let counts = cut.row >= from;
                close(cut, counts, traces[cut.slot], admitted, dictionary, statistics);
                traces[cut.slot] = 0.0;
            }
            let k = (row % self.slots as u64) as usize;
            let slot = self.chain_slots[k] as usize;
            let trace = self.decays[k] * traces[slot];
            let share = share(self.crossings.as_ref(), &self.shares, k);
            traces[slot] = match &mut self.crossings {
                None => trace + share * value,
                Some(crossings) => {
                    // The new row and column of what the row added to B; its coordinate in the ring.
                    *crossings.traces.at_mut(m, k) = trace;
                    *crossings.brackets.at_mut(m, k) = brackets[i];
                    axpy(statistics.closed.coupling.col_mut(m), brackets[i], crossings.traces.col(k));
                    axpy(&mut coupling, trace, &crossings.brackets.col(k)[..m]);
                    crossings.carries[k] * trace + share * value
                }
            };
            if let Some((scores, _)) = &mut scores
                && scores.sizes[k] != 0.0
            {
                let score = scores.sizes[k] * traces[slot];
                *scores.columns.at_mut(m, k) = score;
                axpy(&mut scattered, score, scores.columns.col(k));
            }
            for h in 0..self.rewards_per_row {
                *statistics.response.at_mut(m, h) += traces[slot] * self.rewards[k * self.rewards_per_row + h];
            }
        }
        for cut in pending {
            let counts = cut.row >= from;
            close(cut, counts, traces[cut.slot], admitted, dictionary, statistics);
            traces[cut.slot] = 0.0;
        }
        self.cuts = cuts;
        for (j, value) in coupling.into_iter().enumerate() {
            *statistics.closed.coupling.at_mut(m, j) += value;
        }
        if let Some((_, scatter)) = scores {
            for (j, value) in scattered.into_iter().enumerate() {
                *scatter.at_mut(m, j) += value;
            }
        }
    }

    /// The new coordinate of psi - c phi in rows `from..end`, where rows are followed; 0 for rows that start a chain.
    /// docs/mathematics.md (G3).
    fn brackets(&self, from: u64, values: &[f64], admitted: &Admitted, dictionary: &Dictionary) -> Vec<f64> {
        let Some(crossings) = &self.crossings else { return Vec::new() };
        let bracket = |(row, &value): (u64, &f64)| {
            let k = (row % self.slots as u64) as usize;
            let carry = crossings.carries[k];
            if self.decays[k] == 0.0 {
                return 0.0;
            }
            if !crossings.apart[k] {
                return value - carry * value;
            }
            let covariance =
                dictionary.kernel().eval(&self.next_points[k * self.width..(k + 1) * self.width], &admitted.point);
            let known = dot(crossings.brackets.col(k), &admitted.features)
                + carry * dot(self.features.col(k), &admitted.features);
            (covariance - known) / admitted.delta - carry * value
        };
        (from..self.end).zip(values).map(bracket).collect()
    }

    /// The new coordinate of rows `from..end`, docs/mathematics.md (D3), (D4).
    fn coordinates(&self, from: u64, admitted: &Admitted, dictionary: &Dictionary) -> Vec<f64> {
        let kernel = dictionary.kernel();
        let mut values = vec![0.0; (self.end - from) as usize];
        let mut done = 0;
        while done < values.len() {
            let first = ((from + done as u64) % self.slots as u64) as usize;
            let count = (self.slots - first).min(values.len() - done);
            let part = &mut values[done..done + count];
            let span = first * self.width..(first + count) * self.width;
            kernel.column(&self.points[span.clone()], &admitted.point, part);
            for (k, value) in part.iter_mut().enumerate() {
                let weight = self.weights[first + k];
                if weight != 0.0 {
                    let next = &self.next_points[(first + k) * self.width..(first + k + 1) * self.width];
                    *value -= weight * kernel.eval(next, &admitted.point);
                }
            }
            let known = self.features.block(0, first, admitted.features.len(), count);
            let l = View::column(&admitted.features);
            multiply(ViewMut::column(part), true, -1.0, known, Op::Transposed, l, Op::Plain);
            part.iter_mut().for_each(|value| *value /= admitted.delta);
            done += count;
        }
        values
    }
}

/// How often the row in column k of a ring counts.
fn share(crossings: Option<&Crossings>, shares: &[f64], k: usize) -> f64 {
    match crossings {
        Some(crossings) => crossings.ratios[k],
        None => shares.get(k).copied().unwrap_or(1.0),
    }
}

/// The new coordinate in what one closed chain added, docs/mathematics.md (G4): the last row and column of B and E, the
/// last entries of h and a.
/// A chain closed by a row before the first that counts keeps the zero, like that row.
fn close(
    cut: &mut ClosedChain,
    counts: bool,
    trace: f64,
    admitted: &Admitted,
    dictionary: &Dictionary,
    statistics: &mut Statistics,
) {
    let m = cut.features.len();
    let covariance = dictionary.kernel().eval(&cut.point, &admitted.point);
    let value = admitted.coordinate(covariance, &cut.features);
    if counts {
        let gamma = cut.chain.discount;
        let closed = &mut statistics.closed;
        let energy = gamma * gamma * cut.chain.weight_energy;
        for j in 0..m {
            *closed.coupling.at_mut(m, j) += gamma * trace * cut.features[j];
            *closed.energy.at_mut(m, j) += energy * value * cut.features[j];
        }
        axpy(&mut closed.coupling.col_mut(m)[..m], gamma * value, &cut.chain.trace);
        *closed.coupling.at_mut(m, m) += gamma * trace * value;
        *closed.energy.at_mut(m, m) += energy * value * value;
        for (h, &c) in cut.chain.weighted_target.iter().enumerate() {
            *closed.response.at_mut(m, h) += gamma * c * value;
        }
        closed.sum[m] += gamma * cut.chain.weight_sum * value;
    }
    cut.features.push(value);
    cut.chain.trace.push(trace);
}

/// Residual prior variance of an observed difference: k(g, g) - g' g, never negative.
pub fn difference_residual(prior: f64, features: &[f64]) -> f64 {
    (prior - dot(features, features)).max(0.0)
}
