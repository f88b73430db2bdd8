//! Settings of critics of action values: their actions, and whose action follows a row.

use super::setting::{Setting, When, expect, named, one_of, read, written};
use crate::learner::action::{ActionSpace, ActionValue, CHOICES_MAX, Successor, Trace};
use crate::learner::{DriftSensitivity, Lambda, Settings};
use crate::math::kernel::NoiseModel;
use serde::Deserialize;

/// Settings that are read after all others of their table, since their meaning depends on those.
pub(super) const LAST: [&str; 2] = ["inputs", "trace"];

/// Actions as a file has them.
#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenActions {
    Count(usize),
    Names(Vec<String>),
    Bounds(ActionBounds),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ActionBounds {
    low: Vec<f64>,
    high: Vec<f64>,
}

/// The settings of action values, begun if they are missing: without actions, which the check refuses.
fn of(settings: &mut Settings) -> &mut ActionValue {
    settings.action_value.get_or_insert(ActionValue {
        space: ActionSpace::Discrete(0),
        successor: Successor::Sarsa,
        trace: Trace::OnPolicy,
    })
}

pub(super) const INPUTS: Setting<Settings> = Setting {
    key: "inputs",
    when: When::Restart,
    help: "Input of a value: \"state\", or \"state_action\": the action of each row is then part of the input, and the daemon \
           refuses rows without it. The stream's next row names the action that follows a row (see successor); a row whose \
           next action nothing names is not learned.",
    get: |settings| Some(toml::Value::from(if settings.action_value.is_some() { "state_action" } else { "state" })),
    set: |settings, value| match read::<String>(value)?.as_str() {
        "state_action" => {
            of(settings);
            Ok(())
        }
        "state" if settings.action_value.is_some() => {
            Err("\"state\" contradicts actions, successor or trace, which are of \"state_action\"".into())
        }
        "state" => Ok(()),
        _ => Err(one_of(["state", "state_action"].into_iter())),
    },
    check: |_| Ok(()),
};

pub(super) const ACTIONS: Setting<Settings> = Setting {
    key: "actions",
    when: When::Restart,
    help: "With inputs = \"state_action\": the actions. A number N: discrete ones, numbered from 0, at most 256; a list of \
           names: the same, with names; or { low = [...], high = [...] }: vectors of numbers and their bounds, within \
           which the best is looked for.",
    get: |settings| {
        let numbers = |values: &[f64]| toml::Value::Array(values.iter().copied().map(toml::Value::from).collect());
        Some(match &settings.action_value.as_ref()?.space {
            ActionSpace::Discrete(_) if !settings.action_names.is_empty() => {
                toml::Value::Array(settings.action_names.iter().cloned().map(toml::Value::from).collect())
            }
            ActionSpace::Discrete(count) => toml::Value::from(*count as i64),
            ActionSpace::Box { low, high } => {
                toml::Value::Table([("low".into(), numbers(low)), ("high".into(), numbers(high))].into_iter().collect())
            }
        })
    },
    set: |settings, value| {
        let written = read(value)
            .map_err(|_| "must be a number of actions, a list of names, or { low = [...], high = [...] }".to_owned())?;
        let (space, names) = match written {
            WrittenActions::Count(count) => (ActionSpace::Discrete(count), Vec::new()),
            WrittenActions::Names(names) => (ActionSpace::Discrete(names.len()), names),
            WrittenActions::Bounds(ActionBounds { low, high }) => (ActionSpace::Box { low, high }, Vec::new()),
        };
        of(settings).space = space;
        settings.action_names = names;
        Ok(())
    },
    check: |settings| {
        let names = &settings.action_names;
        let plain = |name: &String| (1..=64).contains(&name.len()) && !name.chars().any(char::is_control);
        let distinct = (1..names.len()).all(|i| !names[..i].contains(&names[i]));
        expect(distinct && names.iter().all(plain), "distinct names of 1 to 64 bytes")?;
        match settings.action_value.as_ref().map(|of| &of.space) {
            Some(ActionSpace::Discrete(0)) => expect(false, "set where inputs = \"state_action\""),
            Some(ActionSpace::Discrete(count)) => {
                expect(*count <= CHOICES_MAX, &format!("at most {CHOICES_MAX} discrete actions, is {count}"))
            }
            Some(space) => expect(space.is_sound(), "as many low bounds as high ones, finite, none above the other"),
            None => Ok(()),
        }
    },
};

pub(super) const SUCCESSOR: Setting<Settings> = Setting {
    key: "successor",
    when: When::Restart,
    help: "With inputs = \"state_action\": whose action follows a row. \"sarsa\": the action of the stream's next row, for the value \
           of the policy that acts; \"next_action\": the one that the row names as next_action, for another policy; \
           \"expected\": all discrete ones, with the row's next_action_probs; \"improve\": the best one, for the value of acting \
           as well as is known: fitted Q iteration over the critic's last 50000 rows, repeated every improve_rows rows.",
    get: |settings| written(&settings.action_value.as_ref()?.successor),
    set: |settings, value| {
        let successor = named(&Successor::ALL.map(|of| (of.name(), of)), value)?;
        if successor == Successor::Improve && settings.drift_sensitivity == DriftSensitivity::Normal {
            // Values that improve are no change of the world.
            settings.drift_sensitivity = DriftSensitivity::Off;
        }
        let of = of(settings);
        of.successor = successor;
        of.trace = if successor == Successor::Sarsa { Trace::OnPolicy } else { Trace::Retrace };
        Ok(())
    },
    check: check_successor,
};

pub(super) const TRACE: Setting<Settings> = Setting {
    key: "trace",
    when: When::Restart,
    help: "With inputs = \"state_action\": how much of a lambda-return continues after an action. \"on_policy\": all of it; \
           \"retrace\": at most all, by the ratio of target_prob to behavior_prob; \"importance\": that ratio; \"tree\": \
           target_prob. The default is on_policy with successor = \"sarsa\" and else retrace. With another successor than \
           sarsa lambda = \"auto\" is 0.",
    get: |settings| written(&settings.action_value.as_ref()?.trace),
    set: |settings, value| {
        of(settings).trace = named(&Trace::ALL.map(|of| (of.name(), of)), value)?;
        Ok(())
    },
    check: |_| Ok(()),
};

pub(super) const IMPROVE_ROWS: Setting<Settings> = Setting {
    key: "improve_rows",
    when: When::Running,
    help: "With successor = \"improve\": least rows between two improvements, at least 1; a twentieth of all rows if that is \
           more. Each records a model in the journal.",
    get: |settings| Some(toml::Value::from(settings.improve_rows as i64)),
    set: |settings, value| read(value).map(|rows| settings.improve_rows = rows),
    check: |settings| expect(settings.improve_rows >= 1, "at least 1"),
};

pub(super) const PRIOR_MEAN: Setting<Settings> = Setting {
    key: "prior_mean",
    when: When::Restart,
    help: "With inputs = \"state_action\": prior mean of Q, in the unit of a return, from -1e9 to 1e9: Q of actions that no row \
           resembles. Optimistic where it is at least the largest return: the agent then tries what it has not tried. 0, the \
           default, says nothing of them.",
    get: |settings| {
        settings.action_value.as_ref()?;
        Some(toml::Value::from(settings.prior_mean))
    },
    set: |settings, value| read(value).map(|mean| settings.prior_mean = mean),
    check: |settings| {
        let of_actions = settings.action_value.is_some() && settings.rewards.len() == 1;
        expect(of_actions || settings.prior_mean == 0.0, "0 unless a critic learns action values of one reward")?;
        expect(settings.prior_mean.abs() <= 1e9, "from -1e9 to 1e9")
    },
};

pub(super) const WORLD: Setting<Settings> = Setting {
    key: "world",
    when: When::Running,
    help: "With inputs = \"state_action\": whether the critic learns where actions lead, too, from the same rows. Then it plans for \
           rewards that were never observed, and predicts courses (docs/what-if.md): the requests `plan` and `rollout`. A row costs about \
           twice as much. The next refit chooses kernels and elements, at most dictionary_max states with actions.",
    get: |settings| {
        settings.action_value.as_ref()?;
        Some(toml::Value::from(settings.world))
    },
    set: |settings, value| read(value).map(|world| settings.world = world),
    check: |settings| {
        let of_actions = settings.action_value.is_some();
        expect(of_actions || !settings.world, "false unless inputs = \"state_action\"")
    },
};

/// Whether the other settings agree with the successor.
fn check_successor(settings: &Settings) -> Result<(), String> {
    let Some(of) = &settings.action_value else { return Ok(()) };
    let refuse = |holds: bool, what: &str| if holds { Ok(()) } else { Err(what.to_owned()) };
    match of.successor {
        Successor::Expected => {
            refuse(of.space.choices() > 0, "\"expected\" is for discrete actions: use \"next_action\"")?;
        }
        Successor::Improve => {
            refuse(settings.rewards.len() == 1, "\"improve\" is for one reward: an action is the best for one")?;
            refuse(settings.forgetting.is_none(), "\"improve\" learns from all rows alike: leave out forgetting")?;
            let zero = matches!(settings.lambda, Lambda::Auto | Lambda::Fixed(0.0));
            refuse(zero, "\"improve\" has lambda = 0: leave out lambda")?;
            let still = settings.drift_sensitivity.threshold().is_none();
            refuse(still, "\"improve\" changes values itself: leave out drift_sensitivity, which is \"off\" then")?;
        }
        Successor::Sarsa | Successor::NextAction => {}
    }
    refuse(settings.noise == NoiseModel::Correlated, "action values need noise = \"correlated\"")
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, ConfigParts};
    use crate::learner::Settings;
    use crate::learner::action::{ActionSpace, Successor, Trace};

    fn critic(text: &str) -> Settings {
        Config::from_toml(&format!("[[critic]]\n{text}")).unwrap().critics[0].clone()
    }

    fn error(text: &str) -> String {
        Config::from_toml(&format!("[[critic]]\n{text}")).unwrap_err().to_string()
    }

    #[test]
    fn actions_are_counted_named_or_bounded_and_printed_as_they_were_read() {
        let plain = critic("inputs = \"state_action\"\nactions = 3");
        assert_eq!((plain.choices(), plain.action_names()), (3, vec!["0".into(), "1".into(), "2".into()]));
        let named = critic("trace = \"on_policy\"\nactions = [\"left\", \"right\"]\nsuccessor = \"improve\"");
        let of = named.action_value.clone().unwrap();
        assert_eq!((of.successor, of.trace), (Successor::Improve, Trace::OnPolicy), "whatever their order");
        assert_eq!(named.input_names(None, 1), ["state_0", "action=left", "action=right"]);
        let boxed =
            critic("inputs = \"state_action\"\nactions = { low = [-2.0], high = [2] }\nsuccessor = \"next_action\"");
        let of = boxed.action_value.clone().unwrap();
        assert_eq!(of.space, ActionSpace::Box { low: vec![-2.0], high: vec![2.0] });
        assert_eq!((of.trace, boxed.first_lambda()), (Trace::Retrace, 0.0));
        for settings in [plain, named, boxed] {
            let parts = ConfigParts { critics: vec![settings], ..ConfigParts::default() };
            let config = Config::new(parts).unwrap();
            assert_eq!(Config::from_toml(&config.print()).unwrap(), config);
        }
    }

    #[test]
    fn what_contradicts_is_refused_by_name() {
        for (text, key, words) in [
            ("inputs = \"state_action\"", "actions", "must be set"),
            ("inputs = \"state\"\nactions = 2", "inputs", "contradicts"),
            ("inputs = \"both\"", "inputs", "one of state, state_action"),
            ("actions = 0.5", "actions", "list of names"),
            ("actions = 300", "actions", "at most 256"),
            ("actions = [\"a\", \"a\"]", "actions", "distinct"),
            ("actions = { low = [1.0], high = [0.0] }", "actions", "none above the other"),
            ("actions = { low = [1.0], high = [2.0] }\nsuccessor = \"expected\"", "successor", "discrete"),
            ("actions = 2\nsuccessor = \"improve\"\nlambda = 0.5", "successor", "lambda"),
            ("actions = 2\nsuccessor = \"improve\"\nrewards = [0, 1]", "successor", "one reward"),
            ("actions = 2\nsuccessor = \"improve\"\ndrift_sensitivity = \"high\"", "successor", "drift_sensitivity"),
            ("actions = 2\nsuccessor = \"best\"", "successor", "one of sarsa"),
            ("actions = 2\ntrace = \"long\"", "trace", "one of on_policy"),
            ("actions = 2\ndictionary_by = \"returns\"", "dictionary_by", "auto or icd"),
            ("noise = \"white\"\ndictionary_by = \"omp-td\"", "dictionary_by", "auto or icd"),
            ("dictionary_by = \"omp\"", "dictionary_by", "one of auto, icd, returns, omp-td, omp-brm"),
        ] {
            let error = error(text);
            assert!(error.contains(&format!("`critic.{key}`")) && error.contains(words), "{text}: {error}");
        }
    }
}
