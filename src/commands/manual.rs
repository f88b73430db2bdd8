//! `criticd completions` and `criticd man`: what the shell and the manual know of the command line.

use super::output::{in_file, print, write_file};
use super::{Arguments, Failure};
use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;
use std::path::{Path, PathBuf};

/// Print completions for a shell
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd completions bash > ~/.local/share/bash-completion/completions/criticd\n  criticd completions zsh > ~/.zfunc/_criticd          where fpath has ~/.zfunc\n  criticd completions fish > ~/.config/fish/completions/criticd.fish"
)]
pub(crate) struct Completions {
    /// Which shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "criticd", &mut script);
        print(&String::from_utf8_lossy(&script))
    }
}

/// Print the manual page of criticd, or of one of its commands
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd man | man -l -\n  criticd man serve | man -l -\n  criticd man --out ~/.local/share/man/man1      criticd.1, criticd-serve.1 and so on"
)]
pub(crate) struct Manual {
    /// Of this command [default: of criticd]
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    command: Option<String>,
    /// Write all pages to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Manual {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut program = Arguments::command().disable_help_subcommand(true);
        program.build();
        if let Some(directory) = &self.out {
            return write_all(directory, &program);
        }
        let command = match &self.command {
            None => program,
            Some(name) => program.find_subcommand(name).cloned().ok_or_else(|| {
                let known: Vec<&str> = program.get_subcommands().map(clap::Command::get_name).collect();
                Failure::usage(format!("there is no command {name:?}; there is {}", known.join(", ")))
            })?,
        };
        print(&String::from_utf8_lossy(&page(command)?.1))
    }
}

/// Its file name and its text.
fn page(command: clap::Command) -> Result<(String, Vec<u8>), Failure> {
    let man = Man::new(command).source(concat!("criticd ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    man.render(&mut text)?;
    Ok((man.get_filename(), text))
}

fn write_all(directory: &Path, program: &clap::Command) -> Result<(), Failure> {
    std::fs::create_dir_all(directory).map_err(|e| in_file(directory, e))?;
    let mut commands = vec![program.clone()];
    while let Some(command) = commands.pop() {
        commands.extend(command.get_subcommands().cloned());
        let (name, text) = page(command)?;
        let path = directory.join(name);
        write_file(&path, &[], &text)?;
    }
    Ok(())
}
