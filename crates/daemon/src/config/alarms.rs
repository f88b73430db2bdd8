//! The setting `alarm` of a critic: one table, or a list of them.

use super::setting::{read as read_value, written as write_value};
use crate::learner::{Settings, WarningSettings};
use crate::math::kernel::NoiseModel;
use toml::Spanned;
use toml::de::DeValue;

/// As the file writes it; none where there is no alarm.
pub(super) fn written(settings: &Settings) -> Option<toml::Value> {
    match &settings.alarms[..] {
        [] => None,
        [one] => write_value(one),
        several => write_value(&several),
    }
}

/// The alarms in the file.
pub(super) fn read(value: Spanned<DeValue<'_>>) -> Result<Vec<WarningSettings>, String> {
    match value.get_ref() {
        DeValue::Table(_) => read_value(value).map(|one| vec![one]),
        DeValue::Array(_) => read_value(value),
        _ => Err("must be a table, { below = -10.0, false_alarms = 0.01 }, or a list of them".to_owned()),
    }
}

/// Whether a critic can have its alarms.
pub(super) fn check(settings: &Settings) -> Result<(), String> {
    if settings.alarms.is_empty() {
        return Ok(());
    }
    if settings.action_value.is_some() {
        return Err("is for inputs = \"state\": give it to a critic of its own".to_owned());
    }
    if settings.noise == NoiseModel::White {
        return Err("is for noise = \"correlated\": white noise has no returns".to_owned());
    }
    WarningSettings::check_all(&settings.alarms)
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    fn of(alarm: &str) -> Result<Config, String> {
        Config::from_toml(&format!("[[critic]]\nname = \"main\"\n{alarm}\n")).map_err(|e| e.to_string())
    }

    #[test]
    fn an_alarm_is_a_table_or_a_list_of_them() {
        let one = of("alarm = { below = -10 }").unwrap();
        let [alarm] = &one.critics[0].alarms[..] else { panic!("one alarm") };
        assert_eq!((alarm.head.as_deref(), alarm.below, alarm.false_alarms), (None, -10.0, 0.01));
        let two = of("alarm = [{ below = 1.5 }, { head = \"energy\", below = 3.0, false_alarms = 0.05 }]").unwrap();
        assert_eq!(two.critics[0].alarms[1].head.as_deref(), Some("energy"));
        for config in [one, two, of("alarm = []").unwrap()] {
            assert_eq!(Config::from_toml(&config.print()).unwrap(), config);
        }
    }

    #[test]
    fn what_cannot_be_an_alarm_is_refused_with_the_field() {
        for (alarm, words) in [
            ("alarm = 3.0", "`critic.alarm` must be a table"),
            ("alarm = { false_alarms = 0.1 }", "below"),
            ("alarm = { below = 1.0, above = 2.0 }", "above"),
            ("alarm = { below = inf }", "entry 0: below must be a finite number"),
            (
                "alarm = { below = 1.0, false_alarms = 0.0 }",
                "entry 0: false_alarms must be a share from 0.001 to 0.5, is 0",
            ),
            ("alarm = [{ below = 1.0 }, { below = 2.0 }]", "entry 1: the value has an alarm already"),
            ("alarm = { below = 1.0 }\nnoise = \"white\"", "white noise has no returns"),
            ("alarm = { below = 1.0 }\ninputs = \"state_action\"\nactions = 2", "critic of its own"),
        ] {
            let found = of(alarm).unwrap_err();
            assert!(found.contains(words), "{alarm}: {found}");
        }
    }
}
