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
const LONG: [&str; 11] =
    ["fit", "plan", "rollout", "label", "evaluate", "plot", "replay", "score", "check-targets", "init", "serve"];

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
                arg.hide_short_help(!common)
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
    use super::*;

    #[test]
    fn each_command_is_in_one_group() {
        let program = Arguments::command();
        for command in program.get_subcommands().map(Command::get_name) {
            let groups = GROUPS.iter().filter(|(_, names)| names.contains(&command)).count();
            assert_eq!(groups, 1, "groups of {command:?}");
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
