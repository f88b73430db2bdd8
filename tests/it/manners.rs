//! The command line's manners: help, completions, manual, environment, exit statuses. The real program throughout.

use crate::support::program::{Process, any_ports, criticd, patient};
use crate::support::{until, wait};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The program in `directory`, where nothing of the user's is found.
fn program(directory: &Path) -> Command {
    let mut command = criticd();
    for variable in ["XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "XDG_STATE_HOME", "HOME"] {
        command.env(variable, directory.join(variable));
    }
    for variable in ["CRITICD_CONFIG", "CRITICD_DATA_DIR", "RUST_LOG"] {
        command.env_remove(variable);
    }
    command.current_dir(directory).stdin(Stdio::null());
    command
}

fn run(directory: &Path, arguments: &str) -> Output {
    program(directory).args(patient(arguments)).output().unwrap()
}

fn text(directory: &Path, arguments: &str) -> String {
    let Output { status, stdout, stderr } = run(directory, arguments);
    assert!(status.success(), "{arguments}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// The commands, as the program lists them.
fn commands(directory: &Path) -> Vec<String> {
    let help = text(directory, "--help");
    let list = help.split("Usage:").nth(1).unwrap().split("Options:").next().unwrap();
    let first =
        |line: &str| line.strip_prefix("  ")?.split(' ').next().filter(|word| !word.is_empty()).map(str::to_owned);
    list.lines().filter_map(first).filter(|name| name != "help").collect()
}

#[test]
fn every_command_has_examples_and_a_page() {
    let directory = tempfile::tempdir().unwrap();
    let commands = commands(directory.path());
    assert!(commands.len() >= 17 && commands.contains(&"check-config".to_owned()), "{commands:?}");
    let script = text(directory.path(), "completions bash");
    text(directory.path(), "man --out pages/man1");
    let main = text(directory.path(), "man");
    assert!(main.starts_with(".ie") && main.contains(".SH NAME\ncriticd"));
    assert!(main.contains("2 wrong usage"), "exit statuses are in the manual: {main}");
    for command in &commands {
        let help = text(directory.path(), &format!("{command} --help"));
        let examples = help.split("Examples:").nth(1).unwrap_or_else(|| panic!("{command} has no examples"));
        assert!(examples.contains(&format!("criticd {command}")), "{examples}");
        let page = std::fs::read_to_string(directory.path().join(format!("pages/man1/criticd-{command}.1"))).unwrap();
        assert!(page.contains("Examples:") && page.contains(env!("CARGO_PKG_VERSION")), "{command}");
        assert_eq!(page, text(directory.path(), &format!("man {command}")));
        assert!(main.contains(&format!("criticd\\-{}", command.replace('-', "\\-"))), "{command}");
        assert!(script.contains(command));
    }
    assert!(directory.path().join("pages/man1/criticd-quarantine-list.1").exists());
    let serve = text(directory.path(), "serve --help");
    for words in ["CRITICD_DATA_DIR", "--warm-start", "Exit status: 0", "Possible values:"] {
        assert!(serve.contains(words), "{words}");
    }
}

#[test]
fn the_shell_completes_commands_and_options() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("criticd.bash"), text(directory.path(), "completions bash")).unwrap();
    let complete = |words: &str| {
        let last = words.split(' ').next_back().unwrap();
        let count = words.split(' ').count() - 1;
        let script = format!(
            "source criticd.bash; COMP_WORDS=({words}); COMP_CWORD={count}; _criticd criticd '{last}' x; echo \"${{COMPREPLY[*]}}\""
        );
        let output =
            Command::new("bash").args(["--norc", "-c", &script]).current_dir(directory.path()).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(complete("criticd ser"), "serve");
    assert_eq!(complete("criticd serve --warm"), "--warm-start");
    assert_eq!(complete("criticd completions fi"), "fish");
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        assert!(text(directory.path(), &format!("completions {shell}")).contains("check-config"), "{shell}");
    }
}

#[test]
fn settings_come_from_options_the_environment_and_files_in_this_order() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("XDG_CONFIG_HOME/criticd/criticd.toml");
    std::fs::create_dir_all(config.parent().unwrap()).unwrap();
    std::fs::write(&config, "state_dim = 1\nwindow_rows = 1001\nstreams_max = 1002\n[limits]\nparts_max = 4\n")
        .unwrap();
    let printed = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = program(directory.path());
        command.args(["serve", "--print-config"]).args(arguments).envs(variables.iter().copied());
        let Output { status, stdout, stderr } = command.output().unwrap();
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    };
    let variables = [("CRITICD_STATE_DIM", "2"), ("CRITICD_WINDOW_ROWS", "2001"), ("CRITICD_LIMITS_PARTS_MAX", "5")];
    let text = printed(&["--set", "state_dim=3"], &variables);
    for line in ["state_dim = 3", "window_rows = 2001", "streams_max = 1002", "parts_max = 5", "inbox_messages = 1024"]
    {
        assert!(text.lines().any(|found| found == line), "{line}");
    }
    let state = directory.path().join("XDG_STATE_HOME/criticd");
    assert!(text.contains(&format!("data_dir = \"{}\"", state.display())));
    // A file that is named is the only one that is read, by an option or a variable.
    std::fs::write(directory.path().join("other.toml"), "streams_max = 7\n").unwrap();
    assert!(printed(&["--config", "other.toml"], &[]).contains("window_rows = 200000\n"));
    assert!(printed(&[], &[("CRITICD_CONFIG", "other.toml")]).contains("streams_max = 7\n"));
    assert!(printed(&["--config", "/dev/null"], &[]).contains("streams_max = 8192\n"));
    // What is wrong is told with the variable.
    let wrong = program(directory.path()).arg("serve").env("CRITICD_CRITIC_DISCOUNT", "2").output().unwrap();
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert_eq!(
        (wrong.status.code(), said.contains("`CRITICD_CRITIC_DISCOUNT` must be from 0 to 1, is 2")),
        (Some(2), true)
    );
    // So is an error in the file that was found.
    let sound = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, "\nnonsense = 1\n").unwrap();
    let wrong = run(directory.path(), "serve");
    let said = String::from_utf8(wrong.stderr).unwrap();
    let expected = format!("{}: line 2: there is no setting `nonsense`", config.display());
    assert!(wrong.status.code() == Some(2) && said.contains(&expected), "{said}");
    std::fs::write(&config, sound).unwrap();
    // Without a name the file that would be found is checked, and where there is none that is said.
    let checked = run(directory.path(), "check-config");
    assert!(String::from_utf8(checked.stdout).unwrap().starts_with(&format!("{} is sound", config.display())));
    std::fs::remove_file(config).unwrap();
    let none = run(directory.path(), "check-config");
    let said = String::from_utf8(none.stderr).unwrap();
    assert_eq!((none.status.code(), said.contains("criticd serve --print-config >")), (Some(1), true), "{said}");
}

/// `criticd serve` in the usual data directory, on any ports.
fn serve(directory: &Path) -> Process {
    let mut command = program(directory);
    command.args(["serve", "--http", "off", "--log", "warn", "--set", "critic.warmup_rows=20"]);
    command.args(["--set", "critic.refit_first_rows=0"]);
    command.args(any_ports());
    Process::start(command, &directory.join("XDG_STATE_HOME/criticd"))
}

/// A pipe that nobody reads.
fn closed_pipe() -> Stdio {
    let (_, writer) = std::io::pipe().unwrap();
    writer.into()
}

#[test]
fn a_closed_pipe_ends_what_is_printed_into_it() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = serve(directory.path());
    let printed = |arguments: &str, errors: Stdio| {
        let mut command = program(directory.path());
        command.args(patient(arguments)).stdin(Stdio::null()).stdout(closed_pipe()).stderr(errors);
        let Output { status, stderr, .. } = command.output().unwrap();
        assert_eq!(status.code(), Some(0), "{arguments}: {}", String::from_utf8_lossy(&stderr));
    };
    for arguments in
        ["serve --print-config", "status", "status --watch", "status --watch --json", "check-config --help"]
    {
        printed(arguments, Stdio::piped());
    }
    printed("demo gridworld --seconds 1 --rate 5000 --out demo.png", closed_pipe());
    drop(daemon);
}

#[test]
fn status_states_one_bound_of_memory() {
    let directory = tempfile::tempdir().unwrap();
    let _daemon = serve(directory.path());
    std::fs::write(directory.path().join("t.csv"), "state_0,next_state_0,reward,terminated\n0,1,1,0\n").unwrap();
    text(directory.path(), "replay t.csv --ack");
    let memory = serde_json::from_str::<Value>(&text(directory.path(), "status --json")).unwrap()["memory"].clone();
    let parts = ["kept_bytes_max", "queues_bytes_max", "rebuild_bytes_max"];
    let bytes: f64 = parts.iter().map(|part| memory[part].as_f64().unwrap()).sum();
    let said = text(directory.path(), "status");
    assert!(said.contains(&format!("{:.1} MiB at most", bytes / f64::from(1 << 20))), "{said}");
}

/// Settings that cannot be read at once, or at all, keep the daemon from nothing: it hears the next signal.
#[test]
fn settings_are_read_again_while_signals_are_heard() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("sound.toml"), "snapshot_interval_ms = 1000\n").unwrap();
    std::fs::write(at("other.toml"), "snapshot_interval_ms = 2000\n").unwrap();
    std::fs::write(at("huge.toml"), "# a comment\n".repeat(100_000)).unwrap();
    assert!(Command::new("mkfifo").arg(at("pipe.toml")).status().unwrap().success());
    std::os::unix::fs::symlink("sound.toml", at("criticd.toml")).unwrap();
    let log = at("log");
    let mut command = program(directory.path());
    command.args(["serve", "--http", "off", "--config", "criticd.toml"]).args(any_ports());
    command.stderr(std::fs::File::create(&log).unwrap());
    let mut daemon = Process::start(command, &at("XDG_STATE_HOME/criticd"));
    let signal = |signal: &str| {
        let number = daemon.child.id().to_string();
        assert!(Command::new("kill").args([signal, &number]).status().unwrap().success());
    };
    let said = |words: &str| std::fs::read_to_string(&log).unwrap().contains(words);
    for (name, words) in [
        ("pipe.toml", "a pipe, which cannot be read again"),
        ("huge.toml", "more than 1 MiB"),
        ("absent.toml", "No such file"),
        ("other.toml", "event=reloaded changed=[\"snapshot_interval_ms\"]"),
        // A device that has nothing to read yet.
        ("/dev/ptmx", ""),
    ] {
        std::fs::remove_file(at("criticd.toml")).unwrap();
        std::os::unix::fs::symlink(name, at("criticd.toml")).unwrap();
        signal("-HUP");
        until(name, || said(words));
    }
    signal("-TERM");
    assert_eq!(wait("its end", || daemon.child.try_wait().unwrap()).code(), Some(0));
}

/// Without encryption the daemon needs no files but its own.
#[test]
fn a_daemon_starts_where_there_is_no_place_for_temporary_files() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = program(directory.path());
    command.args(["serve", "--http", "off"]).args(any_ports()).env("TMPDIR", directory.path().join("nowhere"));
    let mut daemon = Process::start(command, &directory.path().join("XDG_STATE_HOME/criticd"));
    assert!(Command::new("kill").args(["-TERM", &daemon.child.id().to_string()]).status().unwrap().success());
    assert_eq!(wait("its end", || daemon.child.try_wait().unwrap()).code(), Some(0));
}

/// Each command, as it succeeds, as it fails, and as it is used wrongly.
#[test]
fn exit_statuses_are_as_documented() {
    let directory = tempfile::tempdir().unwrap();
    let rows: String =
        (0..64).map(|i| format!("{0},{1},{0},0\n", f64::from(i).sin(), f64::from(i + 1).sin())).collect();
    std::fs::write(directory.path().join("t.csv"), format!("state_0,next_state_0,reward,terminated\n{rows}")).unwrap();
    std::fs::write(directory.path().join("s.csv"), "state_0\n0\n0.5\n").unwrap();
    std::fs::write(directory.path().join("c.toml"), "state_dim = 1\n").unwrap();
    std::fs::write(
        directory.path().join("h.json"),
        r#"{"kernel": {"kind": "isotropic", "signal_variance": 1, "bias_variance": 1, "relevance": 1},
            "noise": {"model": "correlated", "variance": 0.1}}"#,
    )
    .unwrap();
    let check = |arguments: &str, expected: i32, words: &str| {
        let Output { status, stderr, .. } = run(directory.path(), arguments);
        let said = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(expected), "{arguments}: {said}");
        assert!(said.contains(words) && !said.contains("panicked"), "{arguments}: {said}");
    };
    let fit = "fit t.csv --hyperparameters h.json --no-optimise --out m.model";
    for arguments in [
        "serve --print-config",
        fit,
        "completions zsh",
        "man fit",
        "score t.csv --hyperparameters h.json",
        "value m.model s.csv",
        "inspect m.model",
        "plot m.model --out m.svg",
        "check-config c.toml",
        "quarantine list",
        "--version",
        "help serve",
    ] {
        check(arguments, 0, "");
    }
    // Nobody is there: it is said where they were looked for, and what to do.
    for command in ["status", "snapshot --json", "refit", "checkpoint", "replay t.csv"] {
        check(&format!("{command} --timeout 1"), 1, "criticd serve");
    }
    for (arguments, words) in [
        ("serve --data-dir /dev/null/here", "choose another with --data-dir"),
        ("demo pendulum --seconds 1 --out absent/x.png --rate 1", "too few"),
        ("fit absent.csv --out x.model", "absent.csv"),
        ("score absent.csv --hyperparameters h.json", "absent.csv"),
        ("value absent.model s.csv", "absent.model"),
        ("inspect absent", "absent"),
        ("plot t.csv --out x.svg", "not a model"),
        ("repair --truncate absent", "absent"),
        ("check-config absent.toml", "absent.toml"),
        ("man --out t.csv/x", "t.csv/x"),
    ] {
        let status = if arguments.starts_with("demo") { 2 } else { 1 };
        check(arguments, status, words);
    }
    for command in commands(directory.path()) {
        check(&format!("{command} --frobnicate"), 2, "--frobnicate");
    }
    check("completions tcsh", 2, "bash");
    check("man frobnicate", 2, "check-config");
    check("serve --set frobnicate=1", 2, "frobnicate");
    check("", 2, "Tables and models:");

    let mut daemon = serve(directory.path());
    check("replay t.csv --ack", 0, "");
    for arguments in ["status --json", "snapshot --out live.model", "refit", "checkpoint", "quarantine list --json"] {
        check(arguments, 0, "");
    }
    check("serve", 1, "uses");
    check("snapshot --critic nobody --json", 1, "nobody");
    // SIGTERM is the way to end it.
    assert!(Command::new("kill").arg(daemon.child.id().to_string()).status().unwrap().success());
    assert_eq!(daemon.child.wait().unwrap().code(), Some(0));
    check("inspect XDG_STATE_HOME/criticd", 0, "");
    check("repair --truncate XDG_STATE_HOME/criticd", 0, "");
}

#[test]
fn commands_are_in_groups_and_the_short_help_is_short() {
    let directory = tempfile::tempdir().unwrap();
    let help = text(directory.path(), "--help");
    let groups = ["Try:", "Tables and models:", "Daemon:", "Data of a daemon:", "Settings and shell:"];
    let places: Vec<usize> =
        groups.iter().map(|group| help.find(&format!("\n{group}\n")).unwrap_or_else(|| panic!("{help}"))).collect();
    assert!(places.is_sorted(), "{help}");
    let (short, long) = (text(directory.path(), "fit -h"), text(directory.path(), "fit --help"));
    assert!(short.lines().count() * 3 < long.lines().count(), "{short}");
    assert!(
        short.contains("--reward") && !short.contains("--noise-floor") && long.contains("--noise-floor"),
        "{short}"
    );
    assert!(short.contains("criticd fit --help"), "{short}");
}

#[test]
fn a_daemon_is_named_alike_in_all_commands() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut command = program(directory.path());
    command.args(["serve", "-d"]).arg(&data).args(["--http", "127.0.0.1:0"]).args(any_ports()).stderr(Stdio::null());
    let daemon = Process::start(command, &data);
    let (at, control) = (data.display().to_string(), daemon.endpoint("control").to_owned());
    for place in [&at, &control] {
        assert!(text(directory.path(), &format!("status -d {place}")).contains("offset") || !place.is_empty());
        text(directory.path(), &format!("checkpoint -d {place}"));
        text(directory.path(), &format!("backup -d {place} --out copy-{}", place.len()));
        let said = String::from_utf8(run(directory.path(), &format!("value {place} absent.csv")).stderr).unwrap();
        assert!(said.contains("no model yet"), "{said}");
    }
    text(directory.path(), &format!("stop -d {at}"));
}
