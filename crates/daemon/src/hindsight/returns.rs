//! Returns that followed rows, as far as they are known.
//!
//! ```text
//! G_i = r_i + gamma_i G_(i+1)        known once what is left weighs less than REST: then G_i = g_i + w_i V(x_end)
//! ```
//! A row whose chain is cut before has no return: closed by the model's value it would compare the model with itself.

use crate::learner::action::Successor;
use crate::transition::Rows;
use std::collections::HashMap;

/// A return is known when what is still to come counts for less than this.
pub(super) const REST: f64 = 0.01;

/// What the returns of a critic are made of.
#[derive(Clone, Debug)]
pub struct Rewards {
    /// Of rows that carry none.
    pub discount: f64,
    /// Column of the reward of each value function.
    pub columns: Vec<usize>,
    /// Of values of actions: whose action follows.
    pub successor: Option<Successor>,
}

impl Rewards {
    /// The column of value function `head`.
    ///
    /// # Errors
    /// If there is none.
    pub fn column(&self, head: usize) -> Result<usize, String> {
        self.columns.get(head).copied().ok_or_else(|| format!("head must be below {}", self.columns.len()))
    }
}

/// Weight of what follows row i under a critic whose discount is `discount`: infinite where its importance ratio is not 1, since the
/// return then follows another policy.
pub fn weight(rows: &Rows, i: usize, discount: f64) -> f64 {
    match rows.ratios[i] {
        1.0 if rows.terminated[i] => 0.0,
        1.0 => rows.discount(i, discount),
        _ => f64::INFINITY,
    }
}

/// What followed a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Followed {
    /// Rewards, discounted.
    gathered: f64,
    /// Weight of what is still to come; infinite or not a number where an importance ratio other than 1 follows.
    rest: f64,
    /// Row whose next state stands for it.
    tail: usize,
}

impl Followed {
    /// What follows row `tail`, behind which nothing is known: its reward, and the weight of the rest.
    pub fn new(gathered: f64, rest: f64, tail: usize) -> Self {
        Self { gathered, rest, tail }
    }

    /// The same as it follows the row before, of this reward, behind which it has this weight.
    pub fn behind(self, reward: f64, weight: f64) -> Self {
        if weight == 0.0 {
            return Self { gathered: reward, rest: 0.0, tail: self.tail };
        }
        Self { gathered: reward + weight * self.gathered, rest: weight * self.rest, tail: self.tail }
    }

    /// The return, once it is known. `value` gives V of the next state of a row.
    pub fn known(self, value: impl FnOnce(usize) -> f64) -> Option<f64> {
        if self.rest == 0.0 {
            return Some(self.gathered);
        }
        (self.rest < REST).then(|| self.gathered + self.rest * value(self.tail))
    }

    /// The row at whose next state V is needed for the return.
    pub fn tail(self) -> Option<usize> {
        (self.rest > 0.0 && self.rest < REST).then_some(self.tail)
    }
}

/// What followed each row (n,) of reward column `column` under `discount`.
pub fn followed(rows: &Rows, column: usize, discount: f64) -> Vec<Followed> {
    let mut next: HashMap<u32, Followed> = HashMap::new();
    let mut out = Vec::with_capacity(rows.len());
    for i in (0..rows.len()).rev() {
        let (stream, reward) = (rows.streams[i], rows.reward(i)[column]);
        let weight = weight(rows, i, discount);
        let later = next.get(&stream).filter(|_| !rows.truncated[i] && !rows.terminated[i]);
        let followed = match later {
            Some(later) => later.behind(reward, weight),
            None => Followed::new(reward, weight, i),
        };
        if rows.starts_chain[i] {
            next.remove(&stream);
        } else {
            next.insert(stream, followed);
        }
        out.push(followed);
    }
    out.reverse();
    out
}
