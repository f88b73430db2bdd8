//! The model of the transition of a critic of action values: it learns the critic's rows as they come.
//!
//! Kernels, ridge and dictionaries are chosen by a refit, from the rows of its window; the sums then gain each row, so that nothing is
//! left to do when somebody asks. Two copies of the sums as they were some rows ago are kept. What the older one predicts of the rows
//! since is compared with what came: so far ahead the model can be believed.

use super::elements::ElementRule;
use super::part::Part;
use super::{Chained, Choice, Choosing, Dynamics, Known, LOST_MAX, Normal, Reach, Transitions, World, WorldError};
use crate::action::ActionSpace;
use crate::allowance::Allowance;
use crate::heads::Operand;
use crate::math::evidence::KeepGoing;
use crate::math::returns::chains;
use crate::settings::Settings;
use crate::transition::Rows;
use crate::window::Window;
use serde::{Deserialize, Serialize};

/// Elements of C at most, and of D.
pub const SUCCESSORS_MAX: usize = 150;
const ELEMENTS_MAX: usize = 1000;
/// Fewer complete rows than this say nothing about where they lead.
const ROWS_MIN: usize = 16;
/// Rows between two copies of the sums. Predictions are compared with as many of the last rows, or twice as many.
const COPIED_ROWS: u64 = 1024;
/// Last rows that are handed out with the model.
const ROWS_OUT: u64 = 2 * COPIED_ROWS;
/// Rows whose errors tell how sure an answer is, at most.
const ERROR_ROWS: usize = 512;
/// Share of the rows of a refit that its first copy has not learned, if that is fewer rows.
const LATER_SHARE: f64 = 0.25;
/// Halvings of weight between the first and the last row of sums that forget, before all of them are brought to another unit.
const HALVINGS_MAX: f64 = 32.0;
/// Pieces of the rows that choose kernels; the last of each group of `GROUPS` is held out.
const PIECES: usize = 20;
const GROUPS: usize = 5;
/// States where episodes begin, at most, and starts of predicted chains.
const STARTS_MAX: usize = 64;
const CHAINS_MAX: usize = 64;

/// Bytes of a model of the transition with the largest dictionaries, its copies, and one that is handed out: for inputs of `dim` numbers
/// and rows of so many rewards.
pub fn world_bytes(settings: &Settings, dim: usize, rewards_per_row: usize) -> usize {
    let (d, m) = elements(settings);
    // Factors of both dictionaries, S, X, P, and the elements as they are and as the kernel takes them.
    let one = 2 * d * d + m * m + d * (m + rewards_per_row + 1) + 3 * dim * (d + m);
    let rows = ROWS_OUT as usize * (2 * dim + rewards_per_row + 3);
    // It and its copies, while they are handed to a refit as well, and what is handed out, of which two wait and one is answered.
    size_of::<f64>() * (6 * one + 3 * (2 * one + 2 * rows)) + answer_bytes(settings)
}

/// Bytes that an answer takes: tables of all actions at C and some hundred states, three times while they are made.
fn answer_bytes(settings: &Settings) -> usize {
    let (d, m) = elements(settings);
    let choices = settings.action_value.as_ref().map_or(1, |of| of.space.candidate_count());
    3 * size_of::<f64>() * 2 * m.max(120) * choices * (d + m)
}

/// Elements of D and of C, at most.
fn elements(settings: &Settings) -> (usize, usize) {
    let most = settings.dictionary_max.min(ELEMENTS_MAX);
    (most, most.min(SUCCESSORS_MAX))
}

/// A world that learns rows as they come.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Live {
    world: World,
    /// Noise variance, in the unit of the kernel.
    ridge: f64,
    /// Mean squared error of predictions for held-out rows, over the variance of what came, when kernels were chosen.
    loss: f64,
    /// Offset of the first row that it has learned, and behind the last, as complete rows count.
    first: u64,
    end: u64,
    /// Offset of the row that counts once in the sums, where rows are forgotten.
    unit_at: u64,
    /// The sums as they were, the older first, with the offset behind their last row.
    before: Vec<(u64, World)>,
    /// Whether a row had a discount of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    own_discounts: bool,
    #[serde(skip)]
    rows: Part,
    #[serde(skip)]
    weights: Vec<f64>,
}

impl Live {
    /// Kernels, ridge and dictionaries that predict held-out rows of `window` best, none before offset `from`, and the sums of all of them.
    /// The comparison ends when `allowance` is used up.
    ///
    /// # Errors
    /// Too few rows, or as [`Choosing::choose`]; stopped where `keep_going` says so.
    pub(crate) fn chosen(
        window: &Window,
        from: u64,
        settings: &Settings,
        (keep_going, allowance): (KeepGoing<'_>, &Allowance),
    ) -> Result<(Self, Choice), WorldError> {
        let space = &settings.action_value.as_ref().ok_or(WorldError::Empty)?.space;
        let (dim, from) = (window.dim() - space.width(), from.max(window.start()));
        let kept = window.flatten_since(from);
        let (n, mut rows) = (kept.len(), Part::default());
        if n < ROWS_MIN {
            return Err(WorldError::Few { rows: n, least: ROWS_MIN });
        }
        put(&kept, 0..n, settings, &mut rows);
        let kinds = settings.kinds(dim);
        let normal = Normal::of(&rows.inputs, dim, space, &kinds);
        let follows = chains(&kept);
        let piece = n.div_ceil(PIECES).max(1);
        let held: Vec<bool> = (0..n).map(|i| i / piece % GROUPS == GROUPS - 1).collect();
        let of = Chained { rows: rows.rows(), follows: &follows };
        let (elements, seed) = (&ElementRule::pivots(elements(settings)), settings.seed);
        let choice = Choosing { of, held: &held, space, elements, seed, keep_going, allowance }.choose(&normal)?;
        let (world, _) = choice.widths.begin(&normal, &rows.rows(), elements, &|_| true)?;
        let mut live = Self {
            world,
            ridge: choice.widths.ridge,
            loss: choice.loss,
            first: from,
            end: from,
            unit_at: from,
            before: Vec::new(),
            own_discounts: false,
            rows: Part::default(),
            weights: Vec::new(),
        };
        let later = ((LATER_SHARE * n as f64) as u64).min(COPIED_ROWS);
        let copied = window.behind(from, n as u64 - later);
        live.learn_up_to(window, copied, settings);
        live.before.push((live.end, live.world.clone()));
        live.learn_up_to(window, window.end(), settings);
        // Memory for as many rows is needed no more.
        live.rows = Part::default();
        Ok((live, choice))
    }

    /// Learn the rows of `window` that have come since, as far as it still has them.
    pub(crate) fn learn(&mut self, window: &Window, settings: &Settings) {
        self.end = self.end.max(window.start());
        while self.end < window.end() {
            let due = self.before.last().map_or(0, |(end, _)| end + COPIED_ROWS).max(self.end + 1);
            self.learn_up_to(window, due.min(window.end()), settings);
            if self.end == due {
                if self.before.len() > 1 {
                    self.before.remove(0);
                }
                self.before.push((due, self.world.clone()));
            }
        }
    }

    fn learn_up_to(&mut self, window: &Window, end: u64, settings: &Settings) {
        self.end = self.end.max(window.start());
        // Within so many rows weights stay far from overflow.
        let most = settings.forgetting.map_or(u64::MAX, |half_life| ((HALVINGS_MAX * half_life) as u64).max(1));
        while self.end < end {
            self.learn_some(window, end.min(self.end.saturating_add(most)), settings);
            if self.halvings(settings) >= HALVINGS_MAX {
                let factor = (-self.halvings(settings)).exp2();
                self.world.forget(factor);
                self.before.iter_mut().for_each(|(_, world)| world.forget(factor));
                self.unit_at = self.end;
            }
        }
    }

    fn learn_some(&mut self, window: &Window, end: u64, settings: &Settings) {
        let mut rows = std::mem::take(&mut self.rows);
        rows.clear();
        self.weights.clear();
        for (of, range, offset) in window.since(self.end) {
            let range = range.start..range.end.min(range.start + end.saturating_sub(offset) as usize);
            if let Some(half_life) = settings.forgetting {
                let age = |k: usize| (offset + k as u64) as f64 - self.unit_at as f64;
                self.weights.extend((0..range.len()).map(|k| (age(k) / half_life).exp2()));
            }
            let own = |i: usize| !of.discounts[i].is_nan() && of.discounts[i] != settings.discount;
            self.own_discounts |= range.clone().any(own);
            put(of, range, settings, &mut rows);
        }
        let weights = settings.forgetting.map(|_| &self.weights[..]);
        // Rows of a critic have the columns that its dictionaries were chosen from.
        self.world.learn_weighted(&rows.rows(), weights).expect("rows of this critic");
        (self.rows, self.end) = (rows, end);
    }

    /// How often the weight of a row has doubled from the one that counts once to the next one.
    fn halvings(&self, settings: &Settings) -> f64 {
        settings.forgetting.map_or(0.0, |half_life| (self.end - self.unit_at) as f64 / half_life)
    }

    /// Rows of another world are learned from: begin with those from offset `from` on.
    pub(crate) fn restart(&mut self, from: u64) {
        self.world = self.world.emptied();
        self.before.clear();
        (self.first, self.end, self.unit_at, self.own_discounts) = (from, from, from, false);
    }

    /// Offset of the first row that it has learned.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Whether the parts agree, for inputs of `dim` numbers of which the last `width` are an action's, and as many rewards in a row if
    /// that is known, which a file may contradict.
    pub(crate) fn is_consistent(&self, dim: usize, width: usize, rewards: Option<usize>) -> bool {
        let rewards = rewards.unwrap_or(self.world.rewards());
        let sound = |world: &World| world.is_consistent((dim, dim - width)) && world.rewards() == rewards;
        dim > width
            && self.first <= self.end
            && self.ridge.is_finite()
            && self.ridge > 0.0
            && self.unit_at <= self.end
            && sound(&self.world)
            && self.before.iter().all(|(end, world)| *end <= self.end && sound(world))
    }

    /// What is to be known of it.
    pub(crate) fn facts(&self, settings: &Settings) -> LiveFacts<'_> {
        let count = self.world.rows() / self.halvings(settings).exp2();
        LiveFacts { world: &self.world, loss: self.loss, count }
    }

    /// Bytes held, for reports of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.world.bytes() + self.before.iter().map(|(_, world)| world.bytes()).sum::<usize>()
    }

    /// A copy of the model, with the last rows of `window`: what answers a question needs both.
    pub(crate) fn handed_out(&self, window: &Window, settings: &Settings) -> Option<Learned> {
        let space = settings.action_value.as_ref()?.space.clone();
        let from = self.end.saturating_sub(ROWS_OUT).max(window.start()).max(self.first).min(self.end);
        let kept: Rows = window.flatten_since(from);
        let mut rows = Part::default();
        put(&kept, 0..kept.len(), settings, &mut rows);
        let spread: Vec<usize> = (0..kept.len()).step_by(kept.len().div_ceil(ERROR_ROWS).max(1)).collect();
        let older = self.before.iter().find(|(end, _)| (from..self.end).contains(end));
        // The last row of each counts once.
        let counted = |end: u64, world: &World| {
            let mut world = world.clone();
            if let Some(half_life) = settings.forgetting {
                world.forget((-(end as f64 - self.unit_at as f64) / half_life).exp2());
            }
            world
        };
        Some(Learned {
            world: counted(self.end, &self.world),
            ridge: self.ridge,
            loss: self.loss,
            came: older.map(|(end, _)| window.count(from..*end) as usize),
            before: older.map(|(end, world)| counted(*end, world)),
            own_discounts: self.own_discounts,
            follows: chains(&kept),
            begins: kept.starts_chain,
            some: Part::of(&rows.rows(), &spread),
            rows,
            space,
            has_more: false,
        })
    }
}

/// What is to be known of a model of the transition that learns.
#[derive(Clone, Copy, Debug)]
pub struct LiveFacts<'a> {
    /// The sums.
    pub world: &'a World,
    /// See [`Learned::loss`].
    pub loss: f64,
    /// Rows learned, as far as they count.
    pub count: f64,
}

/// Complete rows of a critic, with rewards as they came.
fn put(rows: &Rows, range: std::ops::Range<usize>, settings: &Settings, to: &mut Part) {
    let (dim, width, each) = (rows.dim, settings.action_width(), rows.rewards_per_row);
    to.inputs.extend_from_slice(&rows.states[range.start * dim..range.end * dim]);
    let successors = rows.next_states[range.start * dim..range.end * dim].chunks_exact(dim);
    successors.for_each(|successor| to.successors.extend_from_slice(&successor[..dim - width]));
    let first = to.rewards.len();
    to.rewards.extend_from_slice(&rows.rewards[range.start * each..range.end * each]);
    to.terminated.extend_from_slice(&rows.terminated[range.clone()]);
    if settings.prior_mean != 0.0 {
        for (k, i) in range.enumerate() {
            let promised = settings.about_prior_mean(0.0, rows.discount(i, settings.discount), rows.terminated[i]);
            settings.rewards.iter().for_each(|column| to.rewards[first + k * each + column] -= promised);
        }
    }
}

/// The numbers of a row.
pub type Numbers<'a> = &'a dyn Fn(Operand) -> f64;

/// A model of the transition as it was when it was asked for, with the last rows that it has learned.
#[derive(Clone, Debug)]
pub struct Learned {
    world: World,
    ridge: f64,
    loss: f64,
    /// The sums as they were before the last rows, and the number of the first row that came later.
    before: Option<World>,
    came: Option<usize>,
    own_discounts: bool,
    rows: Part,
    /// Every fourth row or so.
    some: Part,
    follows: Vec<Option<usize>>,
    begins: Vec<bool>,
    space: ActionSpace,
    /// Whether the last reward of each kept row is one that the sums have not learned.
    has_more: bool,
}

impl Learned {
    /// The model of these sums.
    ///
    /// # Errors
    /// As [`World::solve`].
    pub fn solve(&self) -> Result<Dynamics, WorldError> {
        let mut dynamics = self.world.solve(self.ridge, LOST_MAX)?;
        if self.has_more {
            let rewards = self.world.rewards() + 1;
            let more: Vec<f64> = self.rows.rewards.iter().skip(rewards - 1).step_by(rewards).copied().collect();
            let weights = dynamics.nearest(&self.rows.inputs, &more, self.ridge)?;
            dynamics.add_reward(&weights);
        }
        Ok(dynamics)
    }

    /// Give the kept rows one more reward, `of` the numbers of each, by which the model is to know it: the sums have never seen it, so that
    /// it is learned from the kept rows alone. Returns its number.
    pub fn add_reward(&mut self, of: &dyn Fn(Numbers<'_>) -> f64) -> usize {
        let (dim, rewards) = (self.world.after().dim(), self.world.rewards());
        for part in [&mut self.rows, &mut self.some] {
            let mut all = Vec::with_capacity(part.terminated.len() * (rewards + 1));
            let rows = part.inputs.chunks_exact(self.world.before().dim()).zip(part.successors.chunks_exact(dim));
            for ((input, successor), own) in rows.zip(part.rewards.chunks_exact(rewards)) {
                let (state, coordinates) = input.split_at(dim);
                let action = self.space.action_of(coordinates);
                let value = of(&|place| match place {
                    Operand::State(index) => state[index],
                    Operand::NextState(index) => successor[index],
                    Operand::Action(index) => action[index],
                    Operand::Reward(column) => own[column],
                });
                all.extend_from_slice(own);
                all.push(value);
            }
            part.rewards = all;
        }
        self.has_more = true;
        rewards
    }

    /// Rows that are kept, of which a reward that the sums have not learned is learned.
    pub fn kept(&self) -> usize {
        self.rows.terminated.len()
    }

    /// The solved model beside the rows.
    pub fn known<'a>(&'a self, dynamics: &'a Dynamics) -> Known<'a> {
        let (rows, some) = (self.rows.rows(), self.some.rows());
        let weight = self.count() / some.terminated.len().max(1) as f64;
        Known { dynamics, space: &self.space, rows, errors: (some, weight) }
    }

    /// The actions there are.
    pub fn space(&self) -> &ActionSpace {
        &self.space
    }

    /// The sums.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Mean squared error of predictions up to eight steps ahead for held-out rows, over the variance of what came, when kernels were
    /// chosen.
    pub fn loss(&self) -> f64 {
        self.loss
    }

    /// Rows learned, as far as they count.
    pub fn count(&self) -> f64 {
        self.world.rows()
    }

    /// Whether a row had a discount of its own: a plan knows one.
    pub fn has_own_discounts(&self) -> bool {
        self.own_discounts
    }

    /// Whether any of the last rows has ended.
    pub fn ends(&self) -> bool {
        self.rows.terminated.contains(&true)
    }

    /// States (k, D) in which chains of the last rows begin, the newest 64; without one, the state of the first row.
    pub fn starts(&self) -> Vec<f64> {
        let (all, dim) = (self.world.before().dim(), self.world.after().dim());
        let mut places: Vec<usize> =
            (0..self.begins.len()).rev().filter(|&i| self.begins[i]).take(STARTS_MAX).collect();
        if places.is_empty() && !self.begins.is_empty() {
            places.push(0);
        }
        places.iter().flat_map(|&i| self.rows.inputs[i * all..i * all + dim].to_vec()).collect()
    }

    /// How predictions of `functions` of the state, `count` numbers, up to `steps` steps ahead did: by the sums as they were, with the
    /// actions that were taken, for rows that came later. None before enough rows have.
    ///
    /// # Errors
    /// As [`World::solve`].
    pub fn reach(
        &self,
        functions: &dyn Fn(&[f64]) -> Vec<f64>,
        count: usize,
        steps: usize,
    ) -> Result<Option<Reach>, WorldError> {
        let (Some(world), Some(came)) = (&self.before, self.came) else { return Ok(None) };
        let dynamics = world.solve(self.ridge, LOST_MAX)?;
        let later = came..self.rows.terminated.len();
        let starts: Vec<usize> = later.clone().step_by(later.len().div_ceil(CHAINS_MAX).max(1)).collect();
        let rows: Transitions<'_> = self.rows.rows();
        let ahead = dynamics.ahead(&Chained { rows, follows: &self.follows }, &starts, functions, steps);
        Ok(Some(Reach::new(ahead, count)))
    }
}
