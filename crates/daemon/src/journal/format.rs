//! Which version of the format can say what is written. Programs of older versions would read such content without what they do not
//! know.

use crate::learner::heads::Head;
use crate::learner::mean::Mean;
use crate::learner::model::Model;
use crate::learner::{KindSetting, Learner, Settings};
use crate::math::columns::GivenFunction;
use crate::math::embedding::StateKind;

/// Newest version of the format of groups and checkpoints. Older ones are read, newer ones refused. What is written has the oldest
/// one that can say what is in it: 1, or 2 where rows say something about policies, or 3 where those have names, or 4 where a critic
/// was rebuilt or has failed, or 5 where there are values of actions, heads or advisors, or 6 where there are labels for heads, heads
/// with a kernel of their own, or with functions and falls, or models that track a stream, or 7 where rows were taken back, or 8 where
/// values are learned about a mean function, where a column is bounded, or a stream that goes on is followed step by step, or 9 where
/// refits learn a period, or 10 where a kernel sees a variable bent.
pub const VERSION: u32 = 10;

/// Whether a head is said by version 6 and later alone.
pub(super) fn needs_version_6(head: &Head) -> bool {
    head.label().is_some() || head.has_functions()
}

/// Of settings of critics.
pub(super) fn of_settings<'a>(critics: impl IntoIterator<Item = &'a Settings>) -> u32 {
    let of_one = |settings: &Settings| {
        let bent = settings.state_kinds.iter().any(|kind| kind.kind().is_bent());
        if bent || settings.mean.as_ref().is_some_and(Mean::is_bent) {
            10
        } else if settings.state_kinds.contains(&KindSetting::Periodic) {
            9
        } else if settings.mean.is_some() {
            8
        } else if settings.heads.iter().any(needs_version_6) {
            6
        } else if settings.action_value.is_some() || !settings.heads.is_empty() {
            5
        } else {
            1
        }
    };
    critics.into_iter().map(of_one).max().unwrap_or(1)
}

/// Whether version 8 and later alone know its columns.
fn has_bounded_columns(model: &Model) -> bool {
    model.dictionary().kernel().columns.iter().any(|column| matches!(column.function, GivenFunction::Bounded(_)))
}

/// Of models.
pub(super) fn of_models<'a>(models: impl IntoIterator<Item = &'a Model>) -> u32 {
    let of_one = |model: &Model| {
        let kernel = model.dictionary().kernel();
        if kernel.kinds.iter().any(StateKind::is_bent) || model.settings().mean.as_ref().is_some_and(Mean::is_bent) {
            10
        } else if model.settings().mean.is_some() || model.goes_on() || has_bounded_columns(model) {
            8
        } else if model.has_branch() || model.is_tracked() {
            6
        } else {
            1
        }
    };
    models.into_iter().map(of_one).max().unwrap_or(1)
}

/// Of a critic.
pub(super) fn of_critic(critic: &Learner) -> u32 {
    let of_policies = if critic.knows_policies() { 3 } else { 1 };
    of_settings([critic.settings()]).max(of_models(critic.models())).max(of_policies)
}
