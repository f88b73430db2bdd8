//! In which order settings are printed: by who needs them.

use super::setting::Setting;

/// Who needs some settings, and their keys.
pub(super) type Order = [(&'static str, &'static [&'static str])];

/// Of what no list names.
const REST: &str = "Seldom needed: measured defaults";

pub(super) const GENERAL: &Order = &[
    ("Everybody", &["data_dir", "state_dim", "state_names", "reward_names", "http"]),
    (
        "Whose clients are elsewhere",
        &[
            "ingest",
            "control",
            "publish",
            "http_hosts",
            "insecure",
            "allow",
            "curve_ingest",
            "curve_control",
            "curve_publish",
            "curve_secret_key",
            "clients",
        ],
    ),
    (
        "Who operates a daemon",
        &[
            "log",
            "log_format",
            "journal",
            "sync",
            "journal_rows_max",
            "journal_bytes_max",
            "checkpoint_rows",
            "quarantine_max",
            "streams_max",
            "refit_threads",
        ],
    ),
];

pub(super) const LIMITS: &Order = &[("Who operates a daemon", &["connections_max", "connections_per_address_max"])];

pub(super) const CRITIC: &Order = &[
    ("Everybody", &["name", "discount", "rewards", "state_kinds", "heads"]),
    ("Who has a simulator, or knows what values are", &["mean"]),
    (
        "Whose policy or world changes",
        &["on_new_policy", "policy_discount", "policies_kept", "forgetting", "drift_sensitivity", "alarm"],
    ),
    (
        "Who values actions, or another policy",
        &["inputs", "actions", "successor", "trace", "improve_rows", "prior_mean", "rho_max"],
    ),
    (
        "Whose model is too coarse, or whose refits take too long",
        &["kernel", "dictionary_max", "refit_budget_s", "refit_rows_max", "seed"],
    ),
];

/// The settings of `table` by who needs them.
pub(super) fn grouped<'a, T>(table: &'a [Setting<T>], order: &Order) -> Vec<(&'static str, Vec<&'a Setting<T>>)> {
    let of = |keys: &[&str]| keys.iter().filter_map(|key| table.iter().find(|setting| setting.key == *key)).collect();
    let named = |setting: &&Setting<T>| order.iter().any(|(_, keys)| keys.contains(&setting.key));
    let rest: Vec<&Setting<T>> = table.iter().filter(|setting| !named(setting)).collect();
    let mut groups: Vec<(&str, Vec<&Setting<T>>)> = order.iter().map(|(who, keys)| (*who, of(keys))).collect();
    groups.push((REST, rest));
    groups
}

#[cfg(test)]
mod tests {
    use super::super::tables;
    use super::*;

    #[test]
    fn each_setting_is_printed_once_and_each_key_is_one() {
        fn check<T>(table: &[Setting<T>], order: &Order) {
            let keys: Vec<&str> = grouped(table, order).iter().flat_map(|(_, of)| of.iter().map(|s| s.key)).collect();
            assert_eq!(keys.len(), table.len());
            assert!(table.iter().all(|setting| keys.contains(&setting.key)));
            let unknown = |key: &&&str| !table.iter().any(|setting| setting.key == **key);
            assert_eq!(order.iter().flat_map(|(_, keys)| *keys).find(unknown), None);
        }
        check(&tables::GENERAL, GENERAL);
        check(&tables::LIMITS, LIMITS);
        check(&tables::CRITIC, CRITIC);
    }
}
