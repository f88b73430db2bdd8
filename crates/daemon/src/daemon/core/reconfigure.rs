//! Settings at a start: what they contradict, what is recorded of them, and models that do not go on under them.

use crate::config::{Config, mean_in_words};
use crate::journal::checkpoint::Checkpoints;
use crate::learner::KindSetting;
use crate::learner::Settings;
use crate::learner::action::{ActionSpace, ActionValue};
use crate::learner::heads::{self, Columns, Demands};
use crate::learner::mean::Mean;
use crate::learner::window::Window;
use crate::state::record::Configured;
use crate::state::{State, goes_on, missing_reward};
use crate::transition::{ACTION_NUMBERS_MAX, Names};
use crate::wire::{self, ArrayForm};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Settings of critics and advisors as they are recorded; `from` is the offset of the first row that new critics learn. Where the settings
/// name no state variables, rewards or actions, these keep the names that are `known`.
pub(super) fn configured(config: &Config, from: u64, known: &Names) -> Configured {
    let (mut critics, advisors) = (config.critics.clone(), config.advisors.clone());
    let names = config.state_names.as_ref().or(known.states.as_ref()).cloned();
    let rewards = config.names_of_rewards(known.rewards.as_deref());
    let reward_names = (!rewards.is_empty()).then(|| rewards.to_vec());
    let action_names = known.actions.clone();
    critics.iter_mut().for_each(|critic| critic.call_actions(action_names.as_deref().unwrap_or_default()));
    Configured { critics, names, reward_names, action_names, from, advisors }
}

/// The settings with all mean functions: those whose files are not there as the critics of `state` have them.
pub(super) fn with_recorded_means(config: &Arc<Config>, state: &State) -> Result<Arc<Config>, String> {
    let known = state.configured().map_or(&[][..], |known| &known.critics);
    let config = Config::clone(config).with_means_of(known).map_err(|e| e.to_string())?;
    for critic in &config.critics {
        let of_model = critic.mean.as_ref().and_then(Mean::discount).filter(|&discount| discount != critic.discount);
        if let Some(discount) = of_model {
            let (name, own) = (&critic.name, critic.discount);
            log::warn!(
                "event=mean_of_other_discount critic={name} discount={own} of_mean={discount} hint=\"values far from rows are under \
                 the discount of the model in mean: learn that with the critic's\""
            );
        }
    }
    Ok(Arc::new(config))
}

/// What states, rewards and actions are called: as the settings or the rows have said until now.
pub(super) fn known_names(state: &State, config: &Config) -> Names {
    let names = state.configured().map_or_else(Names::default, |known| Names {
        states: known.names.clone(),
        rewards: known.reward_names.clone(),
        actions: known.action_names.clone(),
    });
    fitting(names, config)
}

/// These, without names of other actions than critics learn of: there were others once, or who sends them knows of others.
pub(super) fn fitting(names: Names, config: &Config) -> Names {
    let mut widths =
        config.critics.iter().filter(|critic| critic.action_value.is_some()).map(Settings::action_width).peekable();
    let none = widths.peek().is_none();
    let actions = names.actions.filter(|names| none || widths.any(|width| width == names.len()));
    Names { actions, ..names }
}

/// Log which advisors lose what they have learned when the settings `wanted` hold.
pub(super) fn log_advisors(state: &State, wanted: &Configured) {
    for advisor in state.advisors() {
        let (old, learned) = (advisor.settings(), advisor.learned());
        let name = &old.name;
        match wanted.advisors.iter().find(|new| new.name == *name) {
            Some(new) if new.goes_on_from(old) => {}
            Some(_) => log::warn!(
                "event=advisor_begins_again advisor={name} costs_learned={learned} why=\"its settings have changed\""
            ),
            None => log::warn!(
                "event=advisor_removed advisor={name} costs_learned={learned} why=\"it is no longer in the settings\""
            ),
        }
    }
}

/// What the settings say that rows of states (D,) and rewards (H,) in the journal contradict, and what to do, if they do.
pub(in crate::daemon) fn contradiction(config: &Config, (dim, rewards): (usize, usize)) -> Option<String> {
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
    let what = super::head_changes::lacking(state.window(), &demands)?;
    Some(format!(
        "{what}, which `heads` ask for. Nothing has been changed. Take these heads out, or choose another data_dir for other rows"
    ))
}

/// A critic that would begin to learn action values although no retained row has an action for it, in words with a remedy; none if
/// there is none. Those rows can never teach it, and the model of that name, if there is one, would go for nothing.
pub(super) fn lacking_actions(config: &Config, state: &State) -> Option<String> {
    let window = state.window().filter(|window| !window.is_empty())?;
    let has_begun = |settings: &Settings, of: &ActionValue| {
        let same = |old: &Settings| {
            old.name == settings.name && old.action_value.as_ref().map(|old| &old.space) == Some(&of.space)
        };
        state.critics().iter().any(|learner| same(learner.settings()))
    };
    let lacks = |settings: &&Settings| {
        let of = settings.action_value.as_ref();
        of.is_some_and(|of| !has_begun(settings, of) && !has_action(window, &of.space))
    };
    let name = &config.critics.iter().find(lacks)?.name;
    Some(format!(
        "critic {name:?} has inputs = \"state_action\", but none of the {} rows that are retained for learning has an action that it \
         knows. Nothing has been changed. Take this critic out until rows with their actions have come, or choose another data_dir",
        window.len()
    ))
}

/// Whether an action of a retained row is one of `space`, as far as actions are kept.
fn has_action(window: &Window, space: &ActionSpace) -> bool {
    let (numbers, mut scratch) = (space.numbers(), Vec::new());
    window.since(window.start()).any(|(rows, mut range, _)| {
        range.any(|i| {
            let kept = rows.action(i);
            let action = &kept[..kept.iter().position(|number| !number.is_finite()).unwrap_or(kept.len())];
            scratch.clear();
            let is_cut = action.len() == ACTION_NUMBERS_MAX && numbers > ACTION_NUMBERS_MAX;
            is_cut || space.append(action, &mut scratch).is_ok()
        })
    })
}

/// The actions of a critic, in words.
fn actions(settings: &Settings) -> String {
    settings.action_value.as_ref().map_or_else(|| "none".into(), |of| format!("{:?}", of.space))
}

/// Whose action follows a row, and how much of a trace flows into it, in words.
fn successor(settings: &Settings) -> String {
    settings.action_value.as_ref().map_or_else(|| "none".into(), |of| format!("{:?}, {:?}", of.successor, of.trace))
}

fn kinds(settings: &Settings) -> String {
    let words: Vec<String> = settings.state_kinds.iter().map(KindSetting::to_string).collect();
    format!("[{}]", words.join(", "))
}

/// Which settings of a critic keep it from going on with what it has learned, and how they differ.
pub(in crate::daemon) fn change(old: &Settings, new: &Settings) -> String {
    let number = |value: Option<f64>, none: &str| value.map_or_else(|| none.to_owned(), |value| value.to_string());
    let pairs = [
        ("discount", old.discount.to_string(), new.discount.to_string()),
        ("rewards", format!("{:?}", old.rewards), format!("{:?}", new.rewards)),
        ("noise", format!("{:?}", old.noise), format!("{:?}", new.noise)),
        ("variance", format!("{:?}", old.variance), format!("{:?}", new.variance)),
        ("lambda", format!("{:?}", old.lambda), format!("{:?}", new.lambda)),
        ("rho_max", number(old.rho_max, "inf"), number(new.rho_max, "inf")),
        ("forgetting", number(old.forgetting, "off"), number(new.forgetting, "off")),
        ("state_kinds", kinds(old), kinds(new)),
        ("actions", actions(old), actions(new)),
        ("successor", successor(old), successor(new)),
        ("mean", mean_in_words(old.mean.as_ref()), mean_in_words(new.mean.as_ref())),
        ("prior_mean", old.prior_mean.to_string(), new.prior_mean.to_string()),
    ];
    let changed = pairs.into_iter().filter(|(_, old, new)| old != new);
    changed.map(|(name, old, new)| format!("{name} was {old}, is {new}")).collect::<Vec<_>>().join("; ")
}

/// Keep the models of critics that do not go on with the settings `wanted`, before these hold: a sentence about each.
///
/// # Errors
/// Why a model cannot be kept, with what to do: it would be lost.
pub(super) fn set_aside(
    state: &State,
    wanted: &[Settings],
    checkpoints: &dyn Checkpoints,
) -> Result<Vec<String>, String> {
    let mut kept = Vec::new();
    for (index, learner) in state.critics().iter().enumerate() {
        let old = learner.settings();
        let new = wanted.iter().find(|settings| settings.name == old.name);
        if state.is_halted(index) || new.is_some_and(|new| goes_on(old, new)) {
            continue;
        }
        let Ok(Ok(snapshot)) = catch_unwind(AssertUnwindSafe(|| learner.snapshot(true))) else { continue };
        let change = new.map_or_else(|| "the critic is no longer in the settings".to_owned(), |new| change(old, new));
        let bytes = wire::encode_snapshot(&snapshot, ArrayForm::Tensor, true);
        let (name, generation, rows) = (&old.name, learner.generation(), learner.learned());
        let file = checkpoints.set_aside(name, rows, &bytes).map_err(|e| {
            format!(
                "critic {name:?} cannot go on with its model ({change}), and the model cannot be set aside: {e}. Nothing has been \
                 changed. Let the daemon write to data_dir, or take the setting back"
            )
        })?;
        log::warn!(
            "event=model_set_aside critic={name} generation={generation} offset={rows} change={change:?} \
             file={file:?} hint=\"a new model is learned from the journal; the old one answers `criticd value`\""
        );
        kept.push(format!("critic {name}, generation {generation}, in {file}: {change}"));
    }
    Ok(kept)
}
