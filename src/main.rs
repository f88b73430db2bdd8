//! The program: arguments in, exit code out.

mod commands;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    commands::run(commands::Arguments::parse())
}
