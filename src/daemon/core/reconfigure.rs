//! Settings at a start: what they contradict, what is recorded of them, and models that do not go on under them.

use crate::config::Config;
use crate::journal::checkpoint::Checkpoints;
use crate::learner::Settings;
use crate::learner::heads::{self, Columns, Demands};
use crate::state::record::Configured;
use crate::state::{State, goes_on, missing_reward};
use crate::transition::ACTION_NUMBERS_MAX;
use crate::wire::{self, ArrayForm};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Settings of the critics as they are recorded; `from` is the offset of the first row that new critics learn.
pub(super) fn configured(config: &Config, from: u64) -> Configured {
    Configured { critics: config.critics.clone(), names: config.state_names.clone(), from }
}

/// What the settings say that rows of states (D,) and rewards (H,) in the journal contradict, and what to do, if they do.
pub(super) fn contradiction(config: &Config, (dim, rewards): (usize, usize)) -> Option<String> {
    let remedy = "Nothing has been changed. Correct the setting, or choose another data_dir for other rows";
    let wrong_dim = config.expected_dim().filter(|&(expected, _)| expected != dim).map(|(expected, key)| {
        format!("{key} is for {expected} state variables, but the journal holds states of {dim} numbers. {remedy}")
    });
    let unasked = || {
        let columns = Columns { states: dim, rewards, actions: ACTION_NUMBERS_MAX };
        let check =
            |critic: &Settings| heads::check(&critic.heads, columns).err().map(|what| (critic.name.clone(), what));
        let (critic, what) = config.critics.iter().find_map(check)?;
        Some(format!("critic {critic:?}, {what} in the journal. {remedy}"))
    };
    let missing = || config.critics.iter().find_map(|settings| missing_reward(settings, rewards));
    wrong_dim.or_else(|| missing().map(|why| format!("rewards: {why} in the journal. {remedy}"))).or_else(unasked)
}

/// The field that heads of the settings need and a retained row lacks, with a remedy; none if no row lacks one.
pub(super) fn lacking_columns(config: &Config, state: &State) -> Option<String> {
    let demands = Demands::of(config.critics.iter().flat_map(|critic| &critic.heads));
    let what = super::heads::lacking(state.window(), &demands)?;
    Some(format!(
        "{what}, which `heads` ask for. Nothing has been changed. Take these heads out, or choose another data_dir for other rows"
    ))
}

/// The actions of a critic, in words.
fn actions(settings: &Settings) -> String {
    settings.action_value.as_ref().map_or_else(|| "none".into(), |of| format!("{:?}", of.space))
}

/// Whose action follows a row, and how much of a trace flows into it, in words.
fn successor(settings: &Settings) -> String {
    settings.action_value.as_ref().map_or_else(|| "none".into(), |of| format!("{:?}, {:?}", of.successor, of.trace))
}

/// Which settings of a critic keep it from going on with what it has learned, and how they differ.
fn change(old: &Settings, new: &Settings) -> String {
    let number = |value: Option<f64>, none: &str| value.map_or_else(|| none.to_owned(), |value| value.to_string());
    let pairs = [
        ("discount", old.discount.to_string(), new.discount.to_string()),
        ("rewards", format!("{:?}", old.rewards), format!("{:?}", new.rewards)),
        ("noise", format!("{:?}", old.noise), format!("{:?}", new.noise)),
        ("variance", format!("{:?}", old.variance), format!("{:?}", new.variance)),
        ("lambda", format!("{:?}", old.lambda), format!("{:?}", new.lambda)),
        ("rho_max", number(old.rho_max, "inf"), number(new.rho_max, "inf")),
        ("forgetting", number(old.forgetting, "off"), number(new.forgetting, "off")),
        ("state_kinds", format!("{:?}", old.state_kinds), format!("{:?}", new.state_kinds)),
        ("actions", actions(old), actions(new)),
        ("successor", successor(old), successor(new)),
    ];
    let changed = pairs.into_iter().filter(|(_, old, new)| old != new);
    changed.map(|(name, old, new)| format!("{name} was {old}, is {new}")).collect::<Vec<_>>().join("; ")
}

/// Keep the models of critics that do not go on with the settings `wanted`, before these hold: a sentence about each.
pub(super) fn set_aside(state: &State, wanted: &Configured, checkpoints: &dyn Checkpoints) -> Vec<String> {
    let mut kept = Vec::new();
    for (index, learner) in state.critics().iter().enumerate() {
        let old = learner.settings();
        let new = wanted.critics.iter().find(|settings| settings.name == old.name);
        if state.is_halted(index) || new.is_some_and(|new| goes_on(old, new)) {
            continue;
        }
        let Ok(Ok(snapshot)) = catch_unwind(AssertUnwindSafe(|| learner.snapshot(true))) else { continue };
        let change = new.map_or_else(|| "the critic is no longer in the settings".to_owned(), |new| change(old, new));
        let bytes = wire::encode_snapshot(&snapshot, ArrayForm::Tensor, true);
        let (name, generation, rows) = (&old.name, learner.generation(), learner.learned());
        match checkpoints.set_aside(name, rows, &bytes) {
            Ok(file) => {
                log::warn!(
                    "event=model_set_aside critic={name} generation={generation} offset={rows} change={change:?} \
                     file={file:?} hint=\"a new model is learned from the journal; the old one answers `criticd value`\""
                );
                kept.push(format!("critic {name}, generation {generation}, in {file}: {change}"));
            }
            Err(e) => log::warn!("event=model_not_kept critic={name} change={change:?} why={:?}", e.to_string()),
        }
    }
    kept
}
