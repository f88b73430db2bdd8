//! Inputs of Q that improvement must tell apart, whatever the returns of the policies that acted say of them.

use crate::math::embedding::StateKind;
use crate::math::kernel::{Kernel, Metric};
use crate::settings::Settings;

/// Largest relevance of a category: two of them then have nothing in common, exp(-25) at most.
pub(super) const APART: f64 = 25.0;
/// Least relevance of a discrete action: two of them correlate by 0.98 at most.
const CHOICE_RELEVANCE_MIN: f64 = 0.02;

/// Raise the relevances of `kernel`, of inputs (`dim`,), to the least that improvement needs (docs/mathematics.md (A9)):
/// - of categories to [`APART`]. Rows of the visited ones alone would say what the others are worth, and the agent would not go
///   there;
/// - of discrete actions to the same where a state is nothing but categories, else to 0.02. Returns of policies that prefer one
///   action say little about the others, and actions that are all alike cannot be chosen among.
pub(super) fn tell_apart(kernel: &mut Kernel, settings: &Settings, dim: usize) {
    if !settings.improves() {
        return;
    }
    let (kinds, choices, state) = (settings.kinds(dim), settings.choices(), dim - settings.action_width());
    let is_category = |d: usize| kinds.get(d) == Some(&StateKind::Category);
    let choice = if is_table(settings, dim) { APART } else { CHOICE_RELEVANCE_MIN };
    let least = |d: usize| match d {
        _ if d < state && is_category(d) => APART,
        _ if d >= dim - choices => choice,
        _ => 0.0,
    };
    if let Metric::Isotropic(h) = kernel.metric
        && (0..dim).any(|d| least(d) > h)
    {
        kernel.metric = Metric::Ard(vec![h; dim]);
    }
    if let Metric::Ard(relevance) | Metric::Factor { relevance, .. } = &mut kernel.metric {
        relevance.iter_mut().enumerate().for_each(|(d, each)| *each = each.max(least(d)));
    }
}

/// Whether inputs (`dim`,) are cells of a table: a state of nothing but categories, and discrete actions.
pub(super) fn is_table(settings: &Settings, dim: usize) -> bool {
    let (kinds, state) = (settings.kinds(dim), dim - settings.action_width());
    settings.choices() > 0 && (0..state).all(|d| kinds.get(d) == Some(&StateKind::Category))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{ActionSpace, ActionValue, Successor, Trace};
    use crate::settings::KindSetting;

    fn settings(kinds: Vec<StateKind>, successor: Successor) -> Settings {
        let of = ActionValue { space: ActionSpace::Discrete(2), successor, trace: Trace::OnPolicy };
        Settings { action_value: Some(of), state_kinds: KindSetting::known(&kinds), ..Settings::default() }
    }

    fn relevances(metric: Metric, settings: &Settings) -> Vec<f64> {
        let kinds = settings.kinds(4);
        let mut kernel = Kernel::gaussian(1.0, 0.0, metric).with_kinds(&kinds);
        tell_apart(&mut kernel, settings, 4);
        kernel.metric.relevance(4)
    }

    #[test]
    fn categories_share_nothing_and_actions_are_kept_apart() {
        let alike = || Metric::Ard(vec![0.0, 3.0, 0.0, 1.0]);
        let (real, category) = (StateKind::Real, StateKind::Category);
        let found = |kinds, successor| relevances(alike(), &settings(kinds, successor));
        assert_eq!(found(vec![], Successor::Improve), [0.0, 3.0, 0.02, 1.0]);
        assert_eq!(found(vec![real, category], Successor::Improve), [0.0, 25.0, 0.02, 1.0]);
        assert_eq!(found(vec![category, category], Successor::Improve), [25.0; 4]);
        assert_eq!(found(vec![category, category], Successor::Sarsa), [0.0, 3.0, 0.0, 1.0], "it follows who acts");
        let one = relevances(Metric::Isotropic(0.01), &settings(vec![real, category], Successor::Improve));
        assert_eq!(one, [0.01, 25.0, 0.02, 0.02], "one lengthscale cannot tell them apart");
    }
}
