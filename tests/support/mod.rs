//! A directory of files, and the program run in it as a user runs it.
#![allow(dead_code, unreachable_pub)] // each test program uses its own part

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A directory of files, and the program run in it.
pub struct Bench {
    directory: TempDir,
}

impl Bench {
    /// An empty directory.
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Write a file.
    pub fn file(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Run the program with arguments separated by blanks.
    pub fn run(&self, arguments: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_criticd"))
            .args(arguments.split_whitespace())
            .current_dir(self.directory())
            .output()
            .unwrap()
    }

    /// The result on standard output, of a run that succeeds.
    pub fn text(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{arguments}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The one JSON document of a run with --json that succeeds.
    pub fn json(&self, arguments: &str) -> Value {
        let text = self.text(&format!("{arguments} --json"));
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{arguments}: {e} in {text}"))
    }

    /// Exit status and message of a run that fails.
    pub fn failure(&self, arguments: &str) -> (i32, String) {
        let output = self.run(arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{arguments}: this should fail");
        assert!(!message.contains("panicked"), "{arguments}: {message}");
        assert!(output.stdout.is_empty(), "{arguments}: a failure prints no result");
        (output.status.code().unwrap(), message)
    }
}
