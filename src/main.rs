//! The program: arguments in, exit code out.

use criticd::commands;
use std::process::ExitCode;

fn main() -> ExitCode {
    commands::run(commands::arguments())
}
