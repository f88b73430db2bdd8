//! What a change of policy makes of a model.

use super::Model;
use crate::heads::Head;
use crate::settings::POLICY_ROWS;

/// A change of policy that a running refit has still to go through.
#[derive(Clone, Debug)]
pub struct PolicyChange {
    /// Offset of the first row under the policy.
    pub offset: u64,
    /// What it makes of the rows so far; none if the model of another policy has taken over.
    pub makes: Option<Made>,
}

/// Changes of policy, in the order of their offsets, and how many of them a candidate has gone through.
#[derive(Clone, Debug, Default)]
pub struct PolicyChanges {
    /// All of them.
    pub list: Vec<PolicyChange>,
    /// Those that it has gone through.
    pub(crate) done: usize,
}

impl PolicyChanges {
    /// The next one.
    pub(crate) fn next(&self) -> Option<&PolicyChange> {
        self.list.get(self.done)
    }
}

/// What a change of policy makes of a model.
#[derive(Clone, Debug)]
pub enum Made {
    /// One that has learned nothing, with these heads.
    Empty(Vec<Head>),
    /// One whose rows count less.
    Discounted(Option<f64>),
}

impl Made {
    /// What becomes of `model`.
    pub fn of(&self, model: &mut Box<Model>) {
        match self {
            Self::Empty(heads) => **model = emptied(model, heads),
            Self::Discounted(factor) => {
                let rows = model.statistics().effective_rows();
                model.discount(factor.unwrap_or(if rows > POLICY_ROWS { POLICY_ROWS / rows } else { 1.0 }));
            }
        }
    }
}

/// [`Model::emptied`], with all heads that are wanted.
fn emptied(model: &Model, heads: &[Head]) -> Model {
    let mut empty = model.emptied();
    empty.want_heads(heads);
    empty
}
