//! What `-h` and `--help` show: commands in groups; `-h` the options that most people use, and `--help` all of them.

use super::Arguments;
use clap::{Command, CommandFactory as _};
use std::fmt::Write as _;

/// The groups of commands, and the commands of each in the order in which they are needed. One that is not there is left out.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Try", &["demo", "bench"]),
    (
        "Tables and models",
        &[
            "init",
            "fit",
            "value",
            "act",
            "plan",
            "rollout",
            "label",
            "evaluate",
            "plot",
            "inspect",
            "merge",
            "features",
            "score",
            "check-targets",
        ],
    ),
    ("Daemon", &["serve", "status", "stop", "replay", "snapshot", "refit", "new-policy", "heads"]),
    (
        "Data of a daemon",
        &[
            "backup",
            "restore",
            "export",
            "remove",
            "erase",
            "rebuild",
            "checkpoint",
            "compact",
            "repair",
            "reset",
            "quarantine",
        ],
    ),
    ("Settings and shell", &["check-config", "keys", "completions", "man"]),
];

/// Commands with more options than a screen has lines.
const LONG: [&str; 12] = [
    "fit",
    "features",
    "plan",
    "rollout",
    "label",
    "evaluate",
    "plot",
    "replay",
    "score",
    "check-targets",
    "init",
    "serve",
];

/// The options and arguments of those that `-h` shows.
const COMMON: [&str; 30] = [
    "table",
    "model",
    "states",
    "out",
    "state",
    "action",
    "reward",
    "episode",
    "time",
    "terminated",
    "truncated",
    "discount",
    "columns",
    "dry_run",
    "heads",
    "policy",
    "x",
    "y",
    "errors",
    "trajectory",
    "json",
    "data_dir",
    "config",
    "set",
    "warm_start",
    "print_config",
    "http",
    "names",
    "units",
    "to",
];

/// Options of long commands under a heading of their own; no command stands for any. An option that is not here stays under the
/// heading of the options before it.
const SECTIONS: [(Option<&str>, &str, &[&str]); 11] = [
    (Some("plan"), "What is learned", &["discount", "actions", "critic"]),
    (
        Some("features"),
        "Features",
        &["by", "beta", "features_max", "unit_norm", "constant", "widths", "centres", "no_variables", "ridge"],
    ),
    (Some("rollout"), "The course", &["steps", "show", "from", "policy", "policy_timeout", "actions", "critic"]),
    (
        Some("replay"),
        "The daemon",
        &["data_dir", "control", "timeout", "to", "rate", "ack", "stream_prefix", "session"],
    ),
    (Some("check-targets"), "Targets", &["returns", "advantages", "values", "discount"]),
    (
        Some("evaluate"),
        "The policy",
        &["policy", "policy_timeout", "actions", "by", "discount", "rho_max", "ess_min", "grow_max"],
    ),
    (
        None,
        "What is learned",
        &[
            "discount",
            "mean",
            "lambda",
            "policy",
            "rho_max",
            "forgetting",
            "remaining_time",
            "target",
            "weight",
            "cost",
            "heads",
            "split",
            "variance",
        ],
    ),
    (
        None,
        "Kernel and noise",
        &[
            "kernel",
            "kernel_profile",
            "linear_columns",
            "state_kinds",
            "noise",
            "noise_floor",
            "hyperparameters",
            "no_optimise",
        ],
    ),
    (
        None,
        "Dictionary",
        &["dictionary", "tolerance", "dictionary_by", "dictionary_beta", "dictionary_unit_norm", "dictionary_max"],
    ),
    (
        None,
        "Model selection",
        &[
            "selection",
            "evidence",
            "evidence_rows",
            "drift_sensitivity",
            "hold_out",
            "folds",
            "model",
            "like",
            "seed",
            "budget",
            "threads",
        ],
    ),
    (None, "Output", &["out", "sums", "keep", "verbose", "json", "print_config"]),
];

/// The heading of an option of a long command; none where it keeps the one it has.
fn section(command: &str, option: &str) -> Option<&'static str> {
    let fits = |of: &Option<&str>| of.is_none_or(|of| of == command);
    SECTIONS.iter().find(|(of, _, options)| fits(of) && options.contains(&option)).map(|(_, heading, _)| *heading)
}

/// The program as its command line is read.
pub(super) fn program() -> Command {
    let mut program = Arguments::command();
    let names: Vec<String> = program.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}{}\n{{options}}{{after-help}}",
        groups(&program),
        heading("Options")
    );
    program = program.help_template(template);
    program = shortened(
        program,
        "Each command has help of its own: criticd COMMAND -h shows what is used most, --help everything.",
    );
    for name in names {
        let long = LONG.contains(&&*name);
        let more = if long { format!("More options: criticd {name} --help") } else { String::new() };
        program = program.mut_subcommand(&name, |command| {
            let command = shortened(command, &more);
            if !long {
                return command;
            }
            command.mut_args(|arg| {
                let common = COMMON.contains(&arg.get_id().as_str());
                // The heading of flattened options goes over to those behind them.
                let strays = arg.get_help_heading().is_some() && !arg.is_positional();
                let section = section(&name, arg.get_id().as_str()).filter(|_| strays);
                let arg = arg.hide_short_help(!common);
                if let Some(section) = section { arg.help_heading(section) } else { arg }
            })
        });
    }
    program
}

/// The command with the first paragraph behind the options, its examples, and `more` in its short help; all paragraphs in the long one.
fn shortened(command: Command, more: &str) -> Command {
    let Some(whole) = command.get_after_help().map(ToString::to_string) else { return command };
    let mut paragraphs = whole.split("\n\n");
    let first =
        paragraphs.find(|paragraph| paragraph.starts_with("Examples:") || paragraph.starts_with("First steps:"));
    let first = first.unwrap_or_default();
    let short = if more.is_empty() { first.to_owned() } else { format!("{first}\n\n{more}") };
    command.after_help(short).after_long_help(whole)
}

/// A list of commands for each group, each with what it does.
fn groups(program: &Command) -> String {
    let known = |name: &&&str| program.find_subcommand(name).is_some();
    let width = GROUPS.iter().flat_map(|(_, names)| names.iter()).filter(known).map(|name| name.len()).max();
    let width = width.unwrap_or_default();
    let mut text = String::new();
    for (group, names) in GROUPS {
        let _ = writeln!(text, "{}", heading(group));
        for &name in names.iter().filter(known) {
            let about = program.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            let _ = writeln!(text, "  \x1b[1m{name:width$}\x1b[0m  {}", about.unwrap_or_default());
        }
        text.push('\n');
    }
    text
}

fn heading(text: &str) -> String {
    format!("\x1b[1m\x1b[4m{text}:\x1b[0m")
}

#[cfg(test)]
mod tests {
    use super::super::given::TableOptions;
    use super::*;
    use clap::{Arg, Args as _};

    #[test]
    fn each_command_is_in_one_group() {
        let program = Arguments::command();
        for command in program.get_subcommands().map(Command::get_name) {
            let groups = GROUPS.iter().filter(|(_, names)| names.contains(&command)).count();
            assert_eq!(groups, 1, "groups of {command:?}");
        }
    }

    /// Options that are not about the table do not stand under its heading, whatever they follow.
    #[test]
    fn options_stand_under_a_heading_of_what_they_are_about() {
        let of_table = TableOptions::augment_args(Command::new("table"));
        let of_table: Vec<_> = of_table.get_arguments().map(|arg| arg.get_id().clone()).collect();
        let program = program();
        for command in LONG.iter().filter_map(|name| program.find_subcommand(name)) {
            let under = |arg: &&Arg| arg.get_help_heading() == Some("Columns of the table");
            for arg in command.get_arguments().filter(under) {
                assert!(of_table.contains(arg.get_id()), "{} --{}", command.get_name(), arg.get_id());
            }
        }
    }

    #[test]
    fn the_short_help_of_each_command_fits_a_screen() {
        let mut program = program();
        program.build();
        for command in program.get_subcommands_mut().filter(|command| command.get_name() != "help") {
            let name = command.get_name().to_owned();
            let (short, long) = (command.render_help().to_string(), command.render_long_help().to_string());
            assert!(short.lines().count() <= 60, "{name}: {} lines", short.lines().count());
            assert!(short.contains("Examples:") || command.has_subcommands(), "{name}: {short}");
            assert!(long.lines().count() >= short.lines().count(), "{name}");
        }
    }
}
