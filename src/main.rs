//! The program: arguments in, exit code out.

mod commands;

use std::process::ExitCode;

fn main() -> ExitCode {
    commands::run(commands::arguments())
}
