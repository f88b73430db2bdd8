//! `criticd init`.

use super::Failure;
use super::output::{ReadProgress, facts, is_closed, note, output, print};
use crate::table::{Columns, Guess, Look, Looked, guess, look};
use std::io::{IsTerminal, stdin};
use std::path::PathBuf;

/// Names of columns in a line, at most.
const SHOWN: usize = 40;

/// Say which columns of a table are what, once, in a file that every command takes
///
/// The command looks at the names and the values of the columns, asks for each part (an empty answer takes what it proposes), and writes the
/// answers to a file for `--columns`. With --yes it asks nothing. It does not guess where episodes terminate unless a flag is called so.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd init missions.csv                        asks, and writes missions.toml\n  criticd init missions.csv --yes --out rover.toml\n  criticd fit missions.csv --columns missions.toml --dry-run"
)]
pub(crate) struct Init {
    /// A table, as `criticd fit` reads it
    #[arg(value_name = "TABLE")]
    table: PathBuf,
    /// Ask nothing: take what the names and values of the columns propose
    #[arg(long)]
    yes: bool,
    /// Format of a table whose name does not tell it: csv, jsonl, npz, parquet or hdf5
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,
    /// Where to write [default: TABLE with the ending .toml]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Init {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut shown = ReadProgress::start(&self.table);
        let looked = look(&self.table, self.format.as_deref(), &mut |progress| shown.show(progress))?;
        shown.finish(looked.rows);
        let path = self.out.clone().unwrap_or_else(|| self.table.with_extension("toml"));
        let out = output(&path, &[&self.table])?;
        if self.out.is_none() && path.exists() {
            return Err(Failure::usage(format!(
                "{} is there: to write it anew say --out {}, or name another file",
                path.display(),
                path.display()
            )));
        }
        looked.told.iter().for_each(|told| note(&format!("{}: {told}", self.table.display())));
        print(&seen(&looked))?;
        let mut guess = guess(&looked.columns);
        guess.columns.format.clone_from(&self.format);
        if !self.yes {
            if !stdin().is_terminal() {
                return Err(Failure::usage("there is nobody to ask: add --yes, or answer on a terminal"));
            }
            ask(&mut guess, &looked.columns)?;
        }
        let text = written(&guess, &looked);
        out.write(text.as_bytes())?;
        print(&format!(
            "\n{text}\nWritten to {}.\nNext: criticd fit {} --columns {} --dry-run\n",
            path.display(),
            self.table.display(),
            path.display()
        ))
    }
}

/// What each column holds, a line each.
fn seen(looked: &Looked) -> String {
    let lines = looked.columns.iter().take(SHOWN).map(|look| (look.name.clone(), holds(look)));
    let mut text = facts(&lines.collect::<Vec<_>>());
    if looked.columns.len() > SHOWN {
        text += &format!("and {} columns more\n", looked.columns.len() - SHOWN);
    }
    if !looked.lists.is_empty() {
        text += &format!("lists: {}\n", looked.lists.join(", "));
    }
    text
}

fn holds(look: &Look) -> String {
    let what = match () {
        () if look.blank == look.rows => return "empty".to_owned(),
        () if look.distinct == 1 => "always",
        () if look.is_flag() => "flags",
        () if look.is_number() => "numbers",
        () if look.dates > 0 => "times",
        () => "texts",
    };
    let mut values: Vec<&str> = look.values.iter().take(4).map(String::as_str).collect();
    if look.distinct > values.len() {
        values.push("...");
    }
    let gaps = match look.blank {
        0 => String::new(),
        blank => format!("; {blank} of {} rows are empty", look.rows),
    };
    format!("{what}: {}{gaps}", values.join(", "))
}

/// Ask for each part; an empty answer takes what is proposed, `-` takes nothing.
fn ask(guess: &mut Guess, looks: &[Look]) -> Result<(), Failure> {
    let columns = &mut guess.columns;
    if let (None, None, Some((name, values))) = (&columns.terminated, &columns.done, guess.outcomes.first()) {
        print(&format!(
            "\n{name} holds {}: a condition may say what ends an episode, such as {name} == {}\n",
            values.join(", "),
            values[0]
        ))?;
    }
    let known = |name: &str| looks.iter().any(|look| look.name == name);
    let proposed = columns.state.clone();
    many("State variables, separated by commas", &mut columns.state, &known)?;
    if columns.state != proposed {
        // They belonged to the variables proposed.
        columns.next_state.clear();
    }
    many("Action", &mut columns.action, &known)?;
    many("Reward: a column or a sum, such as -cost or reward - 0.1*energy", &mut columns.reward, &|_| true)?;
    one("Episode: what tells one from the next", &mut columns.episode, &known)?;
    one("Time within an episode", &mut columns.time, &known)?;
    let any = |_: &str| true;
    one("Terminated: a flag, or a condition such as outcome == arrived", &mut columns.terminated, &any)?;
    one("Truncated: cut off from outside, a flag or a condition", &mut columns.truncated, &any)
}

/// The answer of a person to a question with a proposal; none if it is empty.
fn answer(question: &str, proposed: &str) -> Result<Option<String>, Failure> {
    let shown = if proposed.is_empty() { "none" } else { proposed };
    print(&format!("{question} [{shown}]: "))?;
    if is_closed() {
        return Err(Failure::new("standard output is closed, and criticd init cannot show its questions: add --yes"));
    }
    let mut line = String::new();
    let read = stdin().read_line(&mut line).map_err(|e| Failure::new(e.to_string()))?;
    if read == 0 {
        return Err(Failure::new("nothing was written: the answers ended"));
    }
    Ok(Some(line.trim().to_owned()).filter(|line| !line.is_empty()))
}

fn many(question: &str, of: &mut Vec<String>, known: &dyn Fn(&str) -> bool) -> Result<(), Failure> {
    while let Some(said) = answer(question, &of.join(","))? {
        let names: Vec<String> =
            said.split(',').map(|name| name.trim().to_owned()).filter(|name| name != "-").collect();
        match names.iter().find(|name| !known(name)) {
            Some(name) => print(&format!("There is no column {name}.\n"))?,
            None => {
                *of = names;
                break;
            }
        }
    }
    Ok(())
}

fn one(question: &str, of: &mut Option<String>, known: &dyn Fn(&str) -> bool) -> Result<(), Failure> {
    while let Some(said) = answer(question, of.as_deref().unwrap_or_default())? {
        if said == "-" {
            *of = None;
            break;
        }
        if known(&said) {
            *of = Some(said);
            break;
        }
        print(&format!("There is no column {said}.\n"))?;
    }
    Ok(())
}

/// The file: what was found, and as comments what is still to be said.
fn written(guess: &Guess, looked: &Looked) -> String {
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    // What stands in a comment ends with its line.
    let listed = |values: &[String]| values.join(", ").replace(char::is_control, " ");
    let list = |names: &[String]| format!("[{}]", names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", "));
    let Columns { state, next_state, action, reward, episode, time, terminated, truncated, done, format, .. } =
        &guess.columns;
    let mut text = String::new();
    let mut line = |said: bool, key: &str, value: String, why: &str| {
        let (open, why) =
            (if said { "" } else { "# " }, if why.is_empty() { String::new() } else { format!("  # {why}") });
        text += &format!("{open}{key} = {value}{why}\n");
    };
    for (key, names, example) in
        [("state", state, "x"), ("next_state", next_state, ""), ("action", action, ""), ("reward", reward, "-cost")]
    {
        if !names.is_empty() {
            line(true, key, if names.len() == 1 { quoted(&names[0]) } else { list(names) }, "");
        } else if !example.is_empty() {
            line(false, key, quoted(example), "say which it is");
        }
    }
    for (key, name) in
        [("episode", episode), ("time", time), ("truncated", truncated), ("done", done), ("format", format)]
    {
        if let Some(name) = name {
            line(true, key, quoted(name), if key == "done" { "add --done terminated or --done truncated" } else { "" });
        }
    }
    match (terminated, done, guess.outcomes.first()) {
        (Some(name), ..) => line(true, "terminated", quoted(name), ""),
        (None, Some(_), _) => {}
        (None, None, Some((name, values))) => {
            let value = values.first().map_or("arrived", String::as_str);
            line(false, "terminated", quoted(&format!("{name} == {value}")), &format!("of {}", listed(values)));
        }
        (None, None, None) => {
            line(false, "terminated", quoted("arrived"), "a flag or a condition; or --assume-terminated never or last");
        }
    }
    let gaps = |look: &&Look| look.blank > 0 && guess.columns.state.contains(&look.name);
    if let Some(look) = looked.columns.iter().find(gaps) {
        line(false, "missing", quoted("drop"), &format!("{} is empty in {} rows; or \"hold\"", look.name, look.blank));
    }
    let texts = looked.columns.iter().filter(|look| look.is_category() && guess.left.contains(&look.name));
    for look in texts {
        text += &format!("# texts, which may be a category of the state: {} ({})\n", look.name, listed(&look.values));
    }
    if !guess.left.is_empty() {
        text += &format!("# left alone: {}\n", listed(&guess.left));
    }
    text
}
