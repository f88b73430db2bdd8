//! The value along rows that follow each other, and what then came.

use super::following::{At, action, has_returns, here, next_rows, values};
use super::returns::{Followed, Rewards, followed};
use crate::learner::action::ActionSpace;
use crate::snapshot::{Ask, Evaluator, Snapshot};
use crate::transition::Rows;

/// A row, or some rows that follow each other.
#[derive(Clone, Debug)]
pub struct Stretch<'a> {
    /// Of its first row.
    pub state: &'a [f64],
    /// Successor of its last row.
    pub next: &'a [f64],
    /// Its rewards, discounted.
    pub gathered: f64,
    /// The weight of what follows.
    pub weight: f64,
    /// What followed it, as far as that is looked at.
    pub followed: Option<Followed>,
    /// Successor of the row that `followed` ends with.
    pub tail: &'a [f64],
    /// Of values of actions: the actions at `state`, at `next` and at `tail`, as far as they are known.
    pub actions: [Option<&'a [f64]>; 3],
}

/// Rows as stretches of one row each.
pub struct Single<'a> {
    rows: &'a Rows,
    /// Column of the reward, and discount of rows that carry none.
    column: usize,
    discount: f64,
    space: Option<&'a ActionSpace>,
    followed: Vec<Followed>,
    next: Vec<Option<usize>>,
}

impl<'a> Single<'a> {
    /// Rows of the states of `model`, with the reward in column `column`.
    pub fn of(rows: &'a Rows, model: &'a Snapshot, rewards: &Rewards, column: usize) -> Self {
        Self {
            rows,
            column,
            discount: rewards.discount,
            space: model.actions.as_ref().map(|of| &of.space),
            followed: followed(rows, column, rewards.discount),
            next: next_rows(rows),
        }
    }

    /// Whether values of row `i` can be asked for: of values of actions, whether its action is known.
    pub fn is_known(&self, i: usize) -> bool {
        self.space.is_none() || self.taken(i).is_some()
    }

    /// Whether the return of row `i` is known, but for a little that is left at its end.
    pub fn has_return(&self, i: usize) -> bool {
        self.followed[i].known(|_| 0.0).is_some()
    }

    fn taken(&self, i: usize) -> Option<&'a [f64]> {
        action(self.space?, self.rows, i)
    }

    /// Row `i`.
    pub fn row(&self, i: usize) -> Stretch<'a> {
        let rows = self.rows;
        let after = |i: usize| self.next[i].and_then(|j| self.taken(j));
        let tail = self.followed[i].tail().unwrap_or(i);
        Stretch {
            state: rows.state(i),
            next: rows.next_state(i),
            gathered: rows.reward(i)[self.column],
            weight: rows.follows(i, self.discount),
            followed: Some(self.followed[i]),
            tail: rows.next_state(tail),
            // Little is left of a return at its end: where its next action is not known, the last one stands for it.
            actions: [self.taken(i), after(i), after(tail).or_else(|| self.taken(tail))],
        }
    }
}

/// What a model says of stretches, and what came: a number for each, which is not finite where it is not known.
#[derive(Clone, Debug)]
pub struct Along {
    /// Value.
    pub value: Vec<f64>,
    /// Standard deviation of the value.
    pub deviation: Vec<f64>,
    /// Standard deviation of a return.
    pub return_deviation: Vec<f64>,
    /// The return that came.
    pub realised: Vec<f64>,
    /// TD error: rewards plus discounted value of what follows, minus the value.
    pub difference: Vec<f64>,
}

impl Along {
    /// What value function `head` of `model` says; deviations if `ask` has them.
    ///
    /// # Errors
    /// A sentence that names what is wrong.
    pub fn of(
        stretches: &[&Stretch],
        (model, ask): (&Evaluator, Ask),
        rewards: &Rewards,
        head: usize,
    ) -> Result<Self, String> {
        let states: Vec<At> = stretches.iter().map(|of| At { state: of.state, action: of.actions[0] }).collect();
        let nexts: Vec<At> = stretches.iter().map(|of| At { state: of.next, action: of.actions[1] }).collect();
        let tails: Vec<At> = stretches.iter().map(|of| At { state: of.tail, action: of.actions[2] }).collect();
        let here = here(model, &states, ask)?;
        let there = values(model, &nexts, rewards.successor)?;
        let end = values(model, &tails, rewards.successor)?;
        let returns = has_returns(rewards.successor);
        let realised = |k: usize| stretches[k].followed.filter(|_| returns)?.known(|_| end[(k, head)]);
        let difference = |k: usize| {
            let Stretch { gathered, weight, .. } = *stretches[k];
            let rest = if weight == 0.0 { 0.0 } else { weight * there[(k, head)] };
            gathered + rest - here.mean[(k, head)]
        };
        let list = |f: &dyn Fn(usize) -> f64| (0..stretches.len()).map(f).collect::<Vec<f64>>();
        let root = |variance: Option<f64>| variance.map_or(f64::NAN, f64::sqrt);
        Ok(Self {
            value: list(&|k| here.mean[(k, head)]),
            deviation: list(&|k| root(here.variance.as_ref().map(|v| v[k]))),
            return_deviation: list(&|k| root(here.return_variance.as_ref().map(|v| v[(k, head)]))),
            realised: list(&|k| realised(k).unwrap_or(f64::NAN)),
            difference: list(&difference),
        })
    }
}
