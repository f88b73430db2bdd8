//! Trackers at work: they learn each row, predict the next ones, and are weighed by the returns that came.
//!
//! [`math::tracking`](crate::math::tracking) has the mathematics. Here start rows are followed from what the base, every tracker and
//! the mixture predicted to the return, as [`verification`](crate::verification) does it for the interval of returns:
//! ```text
//! g_h <- g_h + weight r_h        weight <- weight gamma        y_h = g_h + weight V_h(x_end)        docs/mathematics.md (L5)
//! ```
//! x_end is the state three horizons later, half a horizon where the stream goes on, and V_h(x_end) the answer that is given there. A chain that terminates before closes
//! with nothing; one that is cut before counts where what is missing weighs less than a twentieth.
//!
//! What starts, ends and counts is decided by the order of rows, discounts and flags alone: no clock, no batch.

use crate::math::dense::{Matrix, dot};
use crate::math::inflation::horizon;
use crate::math::raw;
use crate::math::tracking::{
    Gate, HORIZON_UNKNOWN, Losses, Plan, Sums, Swift, Trackers, Units, Work, bytes_max, swift,
};
use crate::verification::{Verified, gather, scrambled};
use serde::{Deserialize, Serialize};

/// Horizons that a start row is followed for; fewer where a stream goes on, whose changes are to be known soon; and rows at most.
const HORIZONS: f64 = 3.0;
const HORIZONS_OF_ONE_CHAIN: f64 = 0.5;
const ROWS_MAX: f64 = 2000.0;
/// Start rows in a horizon.
const STARTS: f64 = 16.0;
/// Weight below which a cut leaves so little open that the return counts.
const WEIGHT_OPEN: f64 = 0.05;
/// Weight at which, and rows after which, a chain counts from 1 again.
const WEIGHT_LEAST: f64 = 1e-3;
const REFERRED: u64 = 1024;
/// Start rows that are followed at once; of one chain there are at most 49.
const TRIALS_MAX: usize = 128;
/// Rows that errors of predictions are remembered for: a part of the refit's rows, and at least the horizons below.
const REMEMBERED: f64 = 0.25;
const REMEMBERED_HORIZONS: f64 = 20.0;
/// Part of a half-life that a tracker at discount 0 goes without a new solution, at least a row.
const RENEWED: f64 = 1.0 / 16.0;

/// Bytes of what tracks a critic of H `rewards` with m `features` over states (`dim`,) at most, and of each stream.
pub fn tracking_bytes(features: usize, dim: usize, rewards: usize) -> (usize, usize) {
    bytes_max(features, 1 + dim, rewards, TRIALS_MAX)
}

/// What is known of one chain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Place {
    /// Whether its last row waits for what it leads to.
    waits: bool,
    discount: f64,
    /// z (q,) of that row.
    #[serde(with = "raw")]
    trace: Vec<f64>,
    /// phi (m,).
    #[serde(with = "raw")]
    features: Vec<f64>,
    /// (H,).
    #[serde(with = "raw")]
    rewards: Vec<f64>,
    /// Start rows of it that are followed, and row of the chain with which the return of the first of them is known.
    followed: u64,
    known_with: u64,
    /// Rows of it, the product W of their discounts and the sum (H,) of their rewards, each with W before it, since the last [`Place::refer`].
    row: u64,
    weight: f64,
    #[serde(with = "raw")]
    gathered: Vec<f64>,
}

impl Place {
    /// Follow its rows from here on, for H returns.
    fn begin(&mut self, returns: usize) {
        (self.row, self.weight, self.known_with) = (0, 1.0, u64::MAX);
        self.gathered.clear();
        self.gathered.resize(returns, 0.0);
    }

    /// W = 1 here, and nothing gathered: of many rows W would be too small a number, and the sum too large a one, to tell what came since
    /// a start. `starts` are this chain's, which are brought along.
    fn refer<'a>(&mut self, starts: impl Iterator<Item = &'a mut Start>) {
        for start in starts {
            start
                .gathered
                .iter_mut()
                .zip(&self.gathered)
                .for_each(|(start, here)| *start = (*start - here) / self.weight);
            start.weight /= self.weight;
        }
        self.weight = 1.0;
        self.gathered.fill(0.0);
    }
}

/// A start row that is followed to its return.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Start {
    slot: u64,
    /// Row of its chain, W before it and what was gathered before it (H,), as the chain's [`Place`] counts.
    row: u64,
    weight: f64,
    #[serde(with = "raw")]
    gathered: Vec<f64>,
    /// Of each reward what base and trackers (K + 1,) and the mixture predicted.
    #[serde(with = "raw")]
    predicted: Vec<f64>,
}

/// A row as trackers see it.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Chain, rewards (H,), discount (0 where the transition terminates) and importance ratio.
    pub row: Verified<'a>,
    /// phi (m,).
    pub features: &'a [f64],
    /// The base's trace (m,), with this row in it.
    pub trace: &'a [f64],
    /// How often the newest row counts in that trace: 1 where nothing is forgotten.
    pub unit: f64,
    /// Features (m,) of what the row before in the chain led to. Not read where this one starts it.
    pub successor: &'a [f64],
    /// The base's weights u (at most m, H); none before it has any.
    pub weights: Option<&'a Matrix>,
}

impl Seen<'_> {
    fn base(&self, h: usize) -> f64 {
        value(self.weights, self.features, h)
    }
}

/// V_h of the base at phi (m,): features admitted since the weights were made weigh nothing.
fn value(weights: Option<&Matrix>, features: &[f64], h: usize) -> f64 {
    weights.map_or(0.0, |weights| {
        let u = weights.col(h);
        dot(&features[..u.len()], u)
    })
}

/// How far the gate of one reward is open, and what the mixture is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Opening {
    /// G, in [0, 1]: the answer is base + G (mixture - base); 0 where the answer is the base's.
    pub gate: f64,
    /// Weight of the base in the mixture, in [0, 1].
    pub base: f64,
    /// Half-lives, rows, ascending, with the weight in \[0, 1\] of the trackers that have them.
    pub half_lives: Vec<(f64, f64)>,
}

impl Opening {
    /// Half-life, rows, below which half of the trackers' weight lies; none where the gate is shut.
    pub fn half_life(&self) -> Option<f64> {
        let total: f64 = self.half_lives.iter().map(|(_, weight)| weight).sum();
        let mut below = 0.0;
        let mut past_half = |(_, weight): &&(f64, f64)| {
            below += weight;
            2.0 * below >= total
        };
        let found = self.half_lives.iter().find(|of| past_half(of));
        found.filter(|_| self.gate > 0.0).map(|(half_life, _)| *half_life)
    }
}

/// Trackers of all rewards with what they have learned. Written and read back they go on bit for bit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tracking {
    discount: f64,
    /// Rows seen, and the row from which on returns are followed.
    rows: u64,
    from: u64,
    /// Rows at which the last return became known.
    known_at: u64,
    /// Ridge of the base, of the last refresh.
    ridge: f64,
    sums: Sums,
    /// Of each reward.
    trackers: Vec<Trackers>,
    losses: Vec<Losses>,
    gates: Vec<Gate>,
    /// What steps along temporal differences: of each reward one for each lambda; none where the stream has ends.
    #[serde(default)]
    steps: Vec<Swift>,
    /// Of each slot.
    places: Vec<Place>,
    /// Start rows that are followed, the longest ago first.
    starts: Vec<Start>,
    #[serde(skip)]
    scratch: Scratch,
}

/// Memory kept between rows.
#[derive(Clone, Debug, Default)]
struct Scratch {
    spare: Vec<Start>,
    errors: Vec<f64>,
    work: Work,
}

impl Scratch {
    /// Memory for a start row beside those that are there: of all that there may be at once, since how many there are goes up and down.
    fn take_spare(&mut self, there: usize, returns: usize, each: usize) -> Start {
        if self.spare.is_empty() {
            let room = |_| Start {
                gathered: Vec::with_capacity(returns),
                predicted: Vec::with_capacity(returns * each),
                ..Start::default()
            };
            self.spare.reserve_exact(TRIALS_MAX);
            self.spare.extend((there..TRIALS_MAX).map(room));
        }
        self.spare.pop().unwrap_or_default()
    }
}

impl PartialEq for Scratch {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Rows of a return of a stream that goes on, or has ends.
fn length(discount: f64, goes_on: bool) -> u64 {
    let horizons = if goes_on { HORIZONS_OF_ONE_CHAIN } else { HORIZONS };
    (horizons * horizon(discount, HORIZON_UNKNOWN)).ceil().min(ROWS_MAX) as u64
}

/// What steps in these units, of each of H `rewards` one for each lambda.
fn steps(units: &Units, rewards: usize) -> Vec<Swift> {
    let of = |h: usize| swift::LAMBDAS.map(|lambda| Swift::new(lambda, &units.columns, units.rewards[h]));
    (0..rewards).flat_map(of).collect()
}

impl Tracking {
    /// Trackers that have seen nothing, of a critic with this `discount`, H `rewards` and m `features` (room for `capacity`), whose
    /// base has this `ridge`, positive. A refit over `rows` rows is about to be learned from its first row: returns are followed from its
    /// first quarter on, when the trackers with the shorter half-lives have settled. None where nothing can be tracked.
    pub fn new(
        plan: &Plan,
        discount: f64,
        rows: u64,
        rewards: usize,
        features: (usize, usize),
        ridge: f64,
    ) -> Option<Self> {
        if plan.is_empty() {
            return None;
        }
        let of = horizon(discount, HORIZON_UNKNOWN);
        let half_life = (REMEMBERED * rows as f64).max(REMEMBERED_HORIZONS * of);
        let (m, capacity) = features;
        let goes_on = plan.units.is_some();
        // Errors of returns that overlap are alike: as many count once.
        let alike = if goes_on { of.min(length(discount, goes_on) as f64) } else { of };
        Some(Self {
            discount,
            rows: 0,
            from: (REMEMBERED * rows as f64) as u64,
            known_at: 0,
            ridge,
            sums: Sums::new(&plan.half_lives, plan.columns, m, capacity, rewards),
            trackers: vec![Trackers::new(plan); rewards],
            losses: vec![Losses::new(plan.trackers(), half_life, alike); rewards],
            gates: vec![Gate::new(half_life, of, goes_on); rewards],
            steps: plan.units.as_ref().map_or_else(Vec::new, |units| steps(units, rewards)),
            places: Vec::new(),
            starts: Vec::new(),
            scratch: Scratch::default(),
        })
    }

    /// A row has arrived: what it says of the rows before, then what is predicted of it, then it is learned itself.
    pub fn see(&mut self, seen: &Seen<'_>) {
        let Verified { slot, discount, ratio, .. } = seen.row;
        if self.places.len() <= slot {
            self.places.resize_with(slot + 1, Place::default);
        }
        self.settle(slot, Some(seen.successor), seen.weights);
        self.rows += 1;
        while self.places[slot].followed > 0 && self.places[slot].row >= self.places[slot].known_with {
            let first = self.first_of(slot);
            self.conclude(first, Some((seen.features, seen.weights)));
        }
        // While a refit's rows are learned, a base without weights says nothing yet: its zeros are no predictions that can lose.
        let of_refit = self.rows as f64 <= self.from as f64 / REMEMBERED;
        if (seen.weights.is_some() || !of_refit) && self.is_due(ratio) {
            self.start(seen);
        }
        if self.places[slot].followed > 0 {
            self.gather(seen.row);
        }
        if ratio != 1.0 {
            self.release_all(slot);
        } else if discount == 0.0 {
            while self.places[slot].followed > 0 {
                let first = self.first_of(slot);
                self.conclude(first, None);
            }
        }
        self.learn(seen);
    }

    /// The chain of `slot` is cut at a state with these features (m,).
    pub fn cut(&mut self, slot: usize, features: &[f64], weights: Option<&Matrix>) {
        self.settle(slot, Some(features), weights);
        self.steps.iter_mut().for_each(|step| step.end(slot));
        while self.places.get(slot).is_some_and(|place| place.followed > 0) {
            let first = self.first_of(slot);
            if self.places[slot].weight / self.starts[first].weight < WEIGHT_OPEN {
                self.conclude(first, Some((features, weights)));
            } else {
                self.release(first);
            }
        }
    }

    /// The base has new weights u (at most m, H) at this ridge: corrections are of what these leave.
    pub fn take_weights(&mut self, u: &Matrix, ridge: f64) {
        self.ridge = ridge;
        self.sums.take_weights(u);
        for j in 0..self.sums.half_lives().len() {
            self.solve(j);
        }
        self.blend();
    }

    /// The base has one more feature, which the rows so far count as 0.
    pub fn grow(&mut self) {
        self.sums.grow();
        for place in self.places.iter_mut().filter(|place| place.waits) {
            place.features.push(0.0);
        }
    }

    /// The same trackers that have seen nothing, and follow returns from the first row on: for a world that has just begun.
    pub fn emptied(&self, m: usize, capacity: usize) -> Self {
        let (half_lives, columns) = (self.sums.half_lives().to_vec(), self.sums.columns());
        let units = self.steps.first().map(|first| Units {
            columns: first.scales().to_vec(),
            rewards: self.steps.chunks(swift::LAMBDAS.len()).map(|of| of[0].unit()).collect(),
        });
        let plan = Plan { half_lives, columns, goes_on: units.is_some(), units };
        let rewards = self.gates.len();
        let mut empty =
            Self::new(&plan, self.discount, 0, rewards, (m, capacity), self.ridge).expect("a plan that was there");
        // A stream that goes on is to be followed soon: its first errors are remembered for the horizons of a world that begins.
        if !self.goes_on() {
            (empty.losses, empty.gates) = (self.losses.clone(), self.gates.clone());
            empty.losses.iter_mut().for_each(Losses::forget);
            empty.gates.iter_mut().for_each(Gate::forget);
        }
        empty
    }

    /// Step on from where `before`, which has followed the stream so far, has come to.
    pub fn step_on_from(&mut self, before: &Self) {
        if self.steps.len() != before.steps.len() {
            return;
        }
        self.steps = before.steps.iter().map(Swift::between_chains).collect();
        self.follow_steps();
    }

    /// The answer of reward number `h` at a state with these features (m,), where the base says `base`; that, bit for bit, where the
    /// gate is shut.
    pub fn answer(&self, h: usize, features: &[f64], base: f64) -> f64 {
        let opening = self.gates[h].opening();
        if opening > 0.0 { base + opening * self.trackers[h].addition(features, base) } else { base }
    }

    /// What the answer of reward number `h` at a state with these features (m,) differs by from model to model of the mixture, value^2,
    /// (L9); 0 where the gate is shut. `base` is what the base says.
    pub fn scatter(&self, h: usize, features: &[f64], base: f64) -> f64 {
        match self.gates[h].opening() {
            opening if opening > 0.0 => {
                opening * opening * self.trackers[h].scatter(self.losses[h].weights(), features, base)
            }
            _ => 0.0,
        }
    }

    /// The weights (m, H) of all answers, where the base's are u (m, H) at this `ridge`, of the last refresh or newer: all
    /// trackers are solved for at them. With them the form (m, m) of [`Tracking::scatter`], its mean over rewards. None where all gates
    /// are shut. O(J q (m + q^2) + m^2).
    pub fn answering_weights(&self, u: &Matrix, ridge: f64) -> Option<(Matrix, Matrix)> {
        if self.gates.iter().all(|gate| gate.opening() == 0.0) {
            return None;
        }
        let (mut sums, mut out, mut work) = (self.sums.clone(), u.clone(), Work::default());
        let mut scatter = Matrix::zeros(u.rows(), u.rows());
        sums.take_weights(u);
        for (h, gate) in self.gates.iter().enumerate().filter(|(_, gate)| gate.opening() > 0.0) {
            let (mut trackers, weights) = (self.trackers[h].clone(), self.losses[h].weights());
            (0..sums.half_lives().len()).for_each(|j| trackers.solve(&sums, j, h, ridge, &mut work));
            trackers.blend(weights);
            trackers.add_scatter(weights, u.col(h), gate.opening().powi(2) / u.cols() as f64, &mut scatter);
            trackers.admit(gate.opening(), out.col_mut(h));
        }
        Some((out, scatter))
    }

    /// How far the gate of reward number `h` is open.
    pub fn opening(&self, h: usize) -> Opening {
        let weights = self.losses[h].weights();
        let (half_lives, steps) = (self.sums.half_lives(), self.steps_of(h));
        let summed = weights.len() - 1 - steps.len();
        let each = summed / half_lives.len();
        let of = |(j, &half_life): (usize, &f64)| (half_life, weights[1 + j * each..][..each].iter().sum());
        let mut half_lives: Vec<(f64, f64)> = half_lives.iter().enumerate().map(of).collect();
        let of_steps = steps.iter().zip(&weights[1 + summed..]);
        half_lives.extend(of_steps.filter_map(|(step, &weight)| Some((step.half_life(self.discount)?, weight))));
        half_lives.sort_by(|a, b| a.0.total_cmp(&b.0));
        Opening { gate: self.gates[h].opening(), base: weights[0], half_lives }
    }

    /// Whether the stream goes on, so that there are trackers that step.
    pub fn goes_on(&self) -> bool {
        !self.steps.is_empty()
    }

    /// What base and trackers have lost, of each reward.
    pub fn losses(&self) -> &[Losses] {
        &self.losses
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        let starts = self.starts.iter().chain(&self.scratch.spare);
        let numbers = starts.map(|start| start.gathered.capacity() + start.predicted.capacity()).sum::<usize>()
            + self.places.iter().map(|place| place.features.capacity() + place.trace.capacity()).sum::<usize>();
        self.sums.bytes()
            + self.trackers.iter().map(Trackers::bytes).sum::<usize>()
            + self.losses.iter().map(Losses::bytes).sum::<usize>()
            + self.steps.iter().map(Swift::bytes).sum::<usize>()
            + numbers * size_of::<f64>()
    }

    /// Whether its parts fit m features, H rewards and this many slots.
    pub(crate) fn is_consistent(&self, m: usize, rewards: usize, slots: usize) -> bool {
        let (q, count) = (self.sums.columns(), self.trackers.first().map_or(0, Trackers::len));
        let lengths = [self.trackers.len(), self.losses.len(), self.gates.len()];
        (0.0..=1.0).contains(&self.discount)
            && self.ridge > 0.0
            && self.known_at <= self.rows
            && (q == 1 || q <= m)
            && q > 0
            && count > 0
            && !self.sums.half_lives().is_empty()
            && (self.steps.is_empty() || self.steps.len() == rewards * swift::LAMBDAS.len())
            && self.steps.iter().all(|step| step.is_consistent(q))
            && count
                .checked_sub(self.steps_of(0).len())
                .is_some_and(|of| of.is_multiple_of(self.sums.half_lives().len()))
            && self.sums.is_consistent(q, m, rewards)
            && lengths == [rewards; 3]
            && self.trackers.iter().all(|trackers| trackers.is_consistent(q, count, self.steps_of(0).len()))
            && self.losses.iter().all(|losses| losses.is_consistent(count))
            && self.gates.iter().all(|gate| gate.is_consistent(self.goes_on()))
            && self.places.len() <= slots
            && self.places.iter().enumerate().all(|(slot, place)| {
                let sizes = (place.trace.len(), place.features.len(), place.rewards.len());
                let followed = self.starts.iter().filter(|start| start.slot == slot as u64).count() as u64;
                (!place.waits || sizes == (q, m, rewards))
                    && place.followed == followed
                    && (followed == 0 || (place.gathered.len() == rewards && place.weight > 0.0))
            })
            && self.starts.len() <= TRIALS_MAX
            && self.starts.iter().all(|start| {
                let sizes = (start.gathered.len(), start.predicted.len());
                (start.slot as usize) < self.places.len()
                    && sizes == (rewards, (count + 2) * rewards)
                    && start.weight > 0.0
            })
    }

    /// The row that waits in `slot`, if one does, has led to a state with these features (m,), or to nothing.
    fn settle(&mut self, slot: usize, next: Option<&[f64]>, weights: Option<&Matrix>) {
        let Some(place) = self.places.get_mut(slot).filter(|place| place.waits) else { return };
        place.waits = false;
        self.sums.absorb(&place.trace, &place.features, (place.discount, next), &place.rewards, weights);
        let q = self.sums.columns();
        for (k, step) in self.steps.iter_mut().enumerate() {
            step.settle(slot, place.rewards[k / swift::LAMBDAS.len()], place.discount, next.map(|next| &next[..q]));
        }
        self.follow_steps();
    }

    /// Trackers that step are where their steps have led.
    fn follow_steps(&mut self) {
        let steps = self.steps.chunks(swift::LAMBDAS.len());
        for ((trackers, losses), steps) in self.trackers.iter_mut().zip(&self.losses).zip(steps) {
            trackers.follow(steps, losses.weights());
        }
    }

    /// What steps of reward number `h`.
    fn steps_of(&self, h: usize) -> &[Swift] {
        let count = swift::LAMBDAS.len().min(self.steps.len());
        &self.steps[h * count..(h + 1) * count]
    }

    /// Learn a row: now, if it leads to nothing, else when it is known what to.
    fn learn(&mut self, seen: &Seen<'_>) {
        let (slot, q) = (seen.row.slot, self.sums.columns());
        let place = &mut self.places[slot];
        (place.waits, place.discount) = (true, seen.row.discount);
        place.trace.clear();
        place.trace.extend(seen.trace[..q].iter().map(|z| z / seen.unit));
        place.features.clear();
        place.features.extend_from_slice(seen.features);
        place.rewards.clear();
        place.rewards.extend_from_slice(seen.row.rewards);
        for step in &mut self.steps {
            // They learn of the policy that acts.
            if seen.row.ratio == 1.0 { step.arrive(slot, &seen.features[..q]) } else { step.end(slot) }
        }
        if seen.row.discount == 0.0 {
            self.settle(slot, None, seen.weights);
        }
        if self.discount == 0.0 {
            self.renew();
        }
    }

    /// At discount 0 a row is all that there is to a return: trackers that have seen a good part of their half-life since are solved
    /// for at once.
    fn renew(&mut self) {
        for j in 0..self.sums.half_lives().len() {
            let every = (self.sums.half_lives()[j] * RENEWED).max(1.0) as u64;
            if self.rows.is_multiple_of(every) {
                self.solve(j);
            }
        }
        self.blend();
    }

    fn solve(&mut self, j: usize) {
        for (h, trackers) in self.trackers.iter_mut().enumerate() {
            trackers.solve(&self.sums, j, h, self.ridge, &mut self.scratch.work);
        }
    }

    fn blend(&mut self) {
        for (trackers, losses) in self.trackers.iter_mut().zip(&self.losses) {
            trackers.blend(losses.weights());
        }
    }

    /// Rows from one start to the next.
    fn stride(&self) -> u64 {
        (horizon(self.discount, HORIZON_UNKNOWN) / STARTS).max(1.0) as u64
    }

    /// Whether the row that has just arrived is to be followed: one of each stride, so that starts do not keep step with episodes.
    fn is_due(&self, ratio: f64) -> bool {
        let (stride, row) = (self.stride(), self.rows - 1);
        ratio == 1.0
            && row >= self.from
            && row % stride == scrambled(row / stride) % stride
            && self.starts.len() < TRIALS_MAX
    }

    /// Follow the row that has just arrived.
    fn start(&mut self, seen: &Seen<'_>) {
        let mut start = self.scratch.take_spare(self.starts.len(), self.trackers.len(), self.trackers[0].len() + 2);
        start.predicted.clear();
        for (h, trackers) in self.trackers.iter().enumerate() {
            let (base, from) = (seen.base(h), start.predicted.len());
            start.predicted.push(base);
            start.predicted.resize(from + 1 + trackers.len(), 0.0);
            trackers.predict(seen.features, base, &mut start.predicted[from + 1..]);
            start.predicted.push(base + trackers.addition(seen.features, base));
        }
        let length = self.length();
        let place = &mut self.places[seen.row.slot];
        if place.followed == 0 {
            place.begin(self.trackers.len());
            place.known_with = length;
        }
        place.followed += 1;
        start.gathered.clone_from(&place.gathered);
        (start.slot, start.row, start.weight) = (seen.row.slot as u64, place.row, place.weight);
        self.starts.reserve_exact(TRIALS_MAX - self.starts.len());
        self.starts.push(start);
    }

    /// Rows that a start row is followed for.
    fn length(&self) -> u64 {
        length(self.discount, self.goes_on())
    }

    /// A chain of which start rows are followed gains a row.
    fn gather(&mut self, row: Verified<'_>) {
        let place = &mut self.places[row.slot];
        // What ends keeps its weight.
        let discount = if row.discount > 0.0 { row.discount } else { 1.0 };
        gather(place.gathered.iter_mut().zip(row.rewards.iter().copied()), &mut place.weight, discount);
        place.row += 1;
        if row.discount > 0.0 && (place.weight < WEIGHT_LEAST || place.row.is_multiple_of(REFERRED)) {
            place.refer(self.starts.iter_mut().filter(|start| start.slot == row.slot as u64));
        }
    }

    /// Number of the first start row of `slot`.
    fn first_of(&self, slot: usize) -> usize {
        self.starts.iter().position(|start| start.slot == slot as u64).expect("one is followed")
    }

    /// Start row number `k` is followed no more.
    fn release(&mut self, k: usize) {
        let start = self.starts.remove(k);
        let next = self.starts[k..].iter().find(|other| other.slot == start.slot).map(|other| other.row);
        let known_with = next.map_or(u64::MAX, |row| row + self.length());
        let place = &mut self.places[start.slot as usize];
        place.followed -= 1;
        place.known_with = known_with;
        self.scratch.spare.push(start);
    }

    fn release_all(&mut self, slot: usize) {
        while self.places[slot].followed > 0 {
            let first = self.first_of(slot);
            self.release(first);
        }
    }

    /// The return of start row number `k`, the first of its chain, is known but for what the answer at a state with features (m,) stands
    /// for, where the chain goes on.
    fn conclude(&mut self, k: usize, rest: Option<(&[f64], Option<&Matrix>)>) {
        let (stride, age) = (self.stride() as f64, (self.rows - self.known_at) as f64);
        let each = self.trackers[0].len() + 2;
        for h in 0..self.trackers.len() {
            let start = &self.starts[k];
            let place = &self.places[start.slot as usize];
            let mut target = (place.gathered[h] - start.gathered[h]) / start.weight;
            if let Some((features, weights)) = rest {
                target += place.weight / start.weight * self.answer(h, features, value(weights, features, h));
            }
            let errors = &mut self.scratch.errors;
            errors.clear();
            errors.extend(start.predicted[h * each..(h + 1) * each].iter().map(|predicted| predicted - target));
            // Sums of squares that are no numbers would stay.
            if !errors.iter().all(|e| (stride * e * e).is_finite()) {
                continue;
            }
            let mixture = errors.pop().expect("the mixture's is the last");
            self.gates[h].absorb(errors[0] * errors[0] - mixture * mixture, stride);
            if self.losses[h].absorb(errors, stride, age) {
                self.trackers[h].blend(self.losses[h].weights());
            }
        }
        self.known_at = self.rows;
        self.release(k);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There are no steps alone: the sums of all half-lives stand beside them.
    #[test]
    fn steps_beside_no_half_life_are_refused() {
        let units = Units { columns: vec![1.0, 0.3], rewards: vec![1.0] };
        let plan = Plan { half_lives: vec![8.0], columns: 2, goes_on: true, units: Some(units) };
        let whole = Tracking::new(&plan, 0.5, 100, 1, (4, 4), 0.3).unwrap();
        assert!(whole.is_consistent(4, 1, 1));
        let plan = Plan { half_lives: Vec::new(), ..plan };
        let alone = Tracking {
            sums: Sums::new(&[], 2, 4, 4, 1),
            trackers: vec![Trackers::new(&plan)],
            losses: vec![Losses::new(plan.trackers(), 50.0, 1.0)],
            ..whole
        };
        assert!(!alone.is_consistent(4, 1, 1));
    }
}
