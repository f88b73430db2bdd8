//! The program as a user runs it: a command in a directory of files, and a daemon as a process of its own.

use super::{PATIENCE, PATIENCE_MS, wait};
use criticd::client::Requester;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// The program.
pub(crate) fn criticd() -> Command {
    Command::new(env!("CARGO_BIN_EXE_criticd"))
}

/// Options that give each socket any port.
pub(crate) fn any_ports() -> impl Iterator<Item = &'static str> {
    ["--ingest", "--control", "--publish"].into_iter().flat_map(|socket| [socket, "tcp://127.0.0.1:0"])
}

/// Commands that ask a daemon, or wait for its end.
const ASKING: [&str; 7] = ["checkpoint", "refit", "remove", "replay", "snapshot", "status", "stop"];

/// Arguments separated by blanks, of which a command that waits for a daemon gets the patience of the tests: by itself it has that of
/// seconds.
pub(crate) fn patient(arguments: &str) -> Vec<String> {
    let mut all: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
    let asks = all.first().is_some_and(|command| ASKING.contains(&command.as_str()));
    if asks && !all.iter().any(|argument| argument == "--timeout") {
        all.extend(["--timeout".to_owned(), PATIENCE.as_secs().to_string()]);
    }
    all
}

/// A directory of files, and the program run in it.
pub(crate) struct Bench {
    directory: TempDir,
}

impl Bench {
    /// An empty directory.
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Write a file.
    pub(crate) fn file(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Run the program with arguments separated by blanks.
    pub(crate) fn run(&self, arguments: &str) -> Output {
        criticd().args(patient(arguments)).current_dir(self.directory()).output().unwrap()
    }

    /// The result on standard output, of a run that succeeds.
    pub(crate) fn text(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{arguments}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The one JSON document of a run with --json that succeeds.
    pub(crate) fn json(&self, arguments: &str) -> Value {
        let text = self.text(&format!("{arguments} --json"));
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{arguments}: {e} in {text}"))
    }

    /// Exit status and message of a run that fails.
    pub(crate) fn failure(&self, arguments: &str) -> (i32, String) {
        let output = self.run(arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{arguments}: this should fail");
        assert!(!message.contains("panicked"), "{arguments}: {message}");
        assert!(output.stdout.is_empty(), "{arguments}: a failure prints no result");
        (output.status.code().unwrap(), message)
    }
}

/// A daemon that is a process of its own, which does not outlive a test that fails.
pub(crate) struct Process {
    pub(crate) child: Child,
    /// What it has written to `endpoints.json`.
    pub(crate) endpoints: Value,
}

impl Process {
    /// Start `command`, which serves this data directory, and wait until it is ready. It gives up no peer because the machine stands
    /// still.
    pub(crate) fn start(mut command: Command, directory: &Path) -> Self {
        let file = directory.join("endpoints.json");
        // That of a daemon which was killed is still there.
        drop(std::fs::remove_file(&file));
        for limit in ["HANDSHAKE", "STALL", "SATURATED"] {
            command.env(format!("CRITICD_LIMITS_{limit}_TIMEOUT_MS"), PATIENCE_MS.to_string());
        }
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        let mut process = Self { child, endpoints: Value::Null };
        process.endpoints = wait("the daemon to be ready", || {
            assert!(process.child.try_wait().unwrap().is_none(), "the daemon did not start");
            serde_json::from_str(&std::fs::read_to_string(&file).ok()?).ok()
        });
        process
    }

    /// Endpoint of the socket of this name.
    pub(crate) fn endpoint(&self, name: &str) -> &str {
        self.endpoints[name].as_str().unwrap()
    }

    pub(crate) fn requester(&self) -> Requester {
        Requester::connect(self.endpoint("control"), PATIENCE).unwrap()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended is not there any more.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
