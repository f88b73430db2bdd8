//! Settings of advisors: decisions for a context, learned from their costs.

use super::ConfigError;
use super::setting::{Setting, When, expect, read, written};
use super::tables::{is_name, setting};
use super::{ConfigParts, Lines};
use crate::learner::suggest::{AdvisorSettings, SuggestError};

/// Most advisors of one daemon.
const ADVISORS_MAX: usize = 64;

/// The settings themselves are checked together: [`check`].
fn anything<T>(_: &T) -> Result<(), String> {
    Ok(())
}

pub(super) static ADVISOR: [Setting<AdvisorSettings>; 9] = [
    setting!(
        name,
        Restart,
        |name: &String| expect(is_name(name), "1 to 64 of A-Z a-z 0-9 _ -"),
        "Name of the advisor in requests: 1 to 64 of A-Z a-z 0-9 _ -, distinct."
    ),
    setting!(
        lengthscales,
        Restart,
        anything,
        "Distance in each variable of a context over which good decisions change, in the unit of the variable: 1 to 256 numbers."
    ),
    setting!(context_names, Restart, anything, "Names of these variables, for people; none, or one for each."),
    setting!(
        outputs,
        Restart,
        anything,
        "Numbers of a decision, 1 to 256: [{ name = \"speed [m/s]\", mean = 6.0, deviation = 1.5, low = 0.0, high = 15.0 }]. mean is the \
         decision before anything is learned, deviation the width of its exploration. name, low and high may be left out."
    ),
    setting!(
        ridge,
        Restart,
        anything,
        "Weight of the untrained policy beside a decision of cost 1, 1e-9 to 1e9. A small one narrows exploration after few \
         decisions. Without it the evidence of the decisions chooses one for each number of a decision, from 2 on."
    ),
    setting!(
        cost_floor,
        Restart,
        anything,
        "Cost below which decisions need not become better, 1e-9 to 1e9: a decision of cost c has the weight 1 / max(c, cost_floor)."
    ),
    setting!(dictionary_max, Restart, anything, "Most contexts in the dictionary, 1 to 2000."),
    setting!(
        waiting_max,
        Restart,
        anything,
        "Decisions that may wait for their cost, 1 to 1000000. The oldest is given up for a further one."
    ),
    setting!(seed, Restart, anything, "Seed of the exploration, from 0."),
];

/// How errors name the advisor that stands at `index` in the file.
pub(super) fn prefix(index: usize) -> String {
    format!("advisor[{index}].")
}

/// Print all advisors as tables.
pub(super) fn print(out: &mut String, advisors: &[AdvisorSettings]) {
    out.push_str(if advisors.is_empty() {
        NONE
    } else {
        "# Decisions for a context, learned from their costs: one table like this for each advisor.\n"
    });
    for advisor in advisors {
        out.push_str("[[advisor]]\n\n");
        super::print_settings(out, ADVISOR.iter(), advisor);
    }
}

/// What is printed where there are no advisors.
const NONE: &str = "\
# Advisors suggest decisions for a context and learn from their costs (docs/advisors.md): one table like this for each.
# [[advisor]]
# name = \"throw\"
# lengthscales = [1.4]
# outputs = [{ name = \"speed [m/s]\", mean = 6.0, deviation = 1.5 }]
";

/// Check all advisors.
pub(super) fn check(parts: &ConfigParts, lines: &Lines) -> Result<(), ConfigError> {
    let fault = |key: String, message: &str| Err(ConfigError::invalid(&key, lines.of(&key), message));
    if parts.advisors.len() > ADVISORS_MAX {
        return fault("advisor".into(), &format!("must list at most {ADVISORS_MAX} advisors"));
    }
    for (i, advisor) in parts.advisors.iter().enumerate() {
        let prefix = prefix(i);
        if let Some(fault) = super::check_table(&ADVISOR, &prefix, advisor, lines).into_iter().next() {
            return Err(fault);
        }
        if parts.advisors[..i].iter().any(|other| other.name == advisor.name) {
            return fault(format!("{prefix}name"), "must differ from the other advisors' names");
        }
        match advisor.check() {
            Ok(()) => {}
            Err(SuggestError::Setting(key, why)) => return fault(format!("{prefix}{key}"), &why),
            Err(other) => return fault(prefix.trim_end_matches('.').into(), &other.to_string()),
        }
    }
    Ok(())
}
