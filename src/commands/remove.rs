//! `criticd remove`.

use super::client::Connection;
use super::output::print;
use super::{Failure, given::plural};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Longest wait for the answer: the journal is read.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Longest wait until nothing of the rows is left, and how often that is asked.
const FREE: Duration = Duration::from_secs(86_400);
const ASKED_EVERY: Duration = Duration::from_secs(1);

/// Take rows back from a running daemon: critics go on as if they had never learned them
///
/// Without --yes it says what would be taken: rows, streams, chains, and what each critic would do. With --yes the daemon records that
/// the rows are taken back. Critics subtract them at once; where that is not possible a critic is stale, and answers as before. Then
/// each critic is learned again from the rows that stay, with a new selection, and takes over whatever its score. From that
/// generation on nothing of the rows is left in it; `criticd status` says which one it is. Several options are one union.
/// The row before a hole stays, and its next state is the first state that was taken back, unless --boundary takes that row too.
/// The bytes of the rows stay in the journal until `criticd erase` erases them or they are forgotten there, and in copies that were made of it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd remove --stream walker                     what would be taken\n  criticd remove --stream walker --yes --wait\n  criticd remove --session walker/run-7 --yes --reason \"the sensor lied\"\n  criticd remove --offsets 1000..1200 --time 1700000000..1700000060",
    group = clap::ArgGroup::new("which").required(true).multiple(true).args(["stream", "session", "offsets", "time"])
)]
pub(crate) struct Remove {
    #[command(flatten)]
    connection: Connection,
    /// All rows of this stream; may be repeated
    #[arg(long, value_name = "NAME")]
    stream: Vec<String>,
    /// All rows of one session of a stream; may be repeated
    #[arg(long, value_name = "STREAM/SESSION")]
    session: Vec<String>,
    /// Rows with offsets from A on, before B; may be repeated
    #[arg(long, value_name = "A..B")]
    offsets: Vec<String>,
    /// Rows whose own time, Unix seconds, is T0 or later, and before T1; may be repeated
    #[arg(long, value_name = "T0..T1")]
    time: Vec<String>,
    /// Also each row before them whose next state is the first state that is taken back
    #[arg(long)]
    boundary: bool,
    /// Take them back, in place of saying which these are
    #[arg(long)]
    yes: bool,
    /// Wait until nothing of them is left in any critic
    #[arg(long, requires = "yes")]
    wait: bool,
    /// Why, for the status
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Who, for the status [default: the user's name]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

impl Remove {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut fields = json!({"select": self.select()?, "dry_run": !self.yes, "boundary": self.boundary});
        let by = self.by.clone().or_else(|| std::env::var("USER").ok());
        for (key, words) in [("by", by), ("reason", self.reason.clone())] {
            if let Some(words) = words {
                fields[key] = words.into();
            }
        }
        let mut answer = self.connection.connect()?.ask("remove", fields, PATIENCE)?;
        for key in ["v", "id", "ok"] {
            answer.as_object_mut().map(|answer| answer.remove(key));
        }
        let freed = if self.wait && answer["rows"].as_u64() > Some(0) {
            Some(self.until_free(answer["offset"].as_u64().unwrap_or(u64::MAX))?)
        } else {
            None
        };
        if self.json {
            return print(&format!("{answer:#}\n"));
        }
        print(&(text(&answer) + &freed.unwrap_or_default()))
    }

    fn select(&self) -> Result<Vec<Value>, Failure> {
        let mut select: Vec<Value> = self.stream.iter().map(|stream| json!({"stream": stream})).collect();
        for session in &self.session {
            let named = session.split_once('/');
            let (stream, session) =
                named.ok_or_else(|| Failure::usage(format!("--session {session}: write STREAM/SESSION")))?;
            select.push(json!({"stream": stream, "session": session}));
        }
        for range in &self.offsets {
            let (from, to) = pair::<u64>("--offsets", range)?;
            select.push(json!({"offsets": [from, to]}));
        }
        for range in &self.time {
            let (from, to) = pair::<f64>("--time", range)?;
            select.push(json!({"times": [from, to]}));
        }
        Ok(select)
    }

    /// Wait until the status says that every critic is without the rows that were taken back at `offset`; what it says then.
    fn until_free(&self, offset: u64) -> Result<String, Failure> {
        let begun = Instant::now();
        loop {
            let status = self.connection.ask("status", json!({}))?;
            let removals = status["removals"].as_array().into_iter().flatten();
            // Somebody may have taken further rows back since.
            let asked_for = removals.clone().find(|removal| removal["offset"].as_u64() <= Some(offset));
            let critics = asked_for.and_then(|removal| removal["critics"].as_array()).cloned().unwrap_or_default();
            if critics.iter().all(|critic| critic["free_generation"].is_u64()) {
                let line = |critic: &Value| {
                    let (name, generation) =
                        (critic["critic"].as_str().unwrap_or_default(), &critic["free_generation"]);
                    format!("{name}: without any influence of them from generation {generation} on\n")
                };
                return Ok(critics.iter().map(line).collect());
            }
            let failed = status["critics"].as_array().into_iter().flatten().find_map(|critic| {
                critic["rebuild"]["failed"]
                    .as_str()
                    .map(|why| format!("{}: {why}", critic["name"].as_str().unwrap_or("")))
            });
            if let Some(why) = failed {
                return Err(Failure::new(format!("the rows are taken back, and the rebuild failed: {why}")));
            }
            if begun.elapsed() > FREE {
                return Err(Failure::new("the rows are taken back; the rebuild takes long: see `criticd status`"));
            }
            std::thread::sleep(ASKED_EVERY);
        }
    }
}

/// The two numbers of A..B.
fn pair<T: std::str::FromStr + PartialOrd>(option: &str, range: &str) -> Result<(T, T), Failure> {
    let numbers = range.split_once("..").and_then(|(from, to)| from.parse().ok().zip(to.parse().ok()));
    numbers.filter(|(from, to)| from < to).ok_or_else(|| {
        Failure::usage(format!("{option} {range}: write two numbers as A..B, the second behind the first"))
    })
}

/// What the daemon has answered, for people.
fn text(answer: &Value) -> String {
    let count = |key: &str| answer[key].as_u64().unwrap_or(0);
    let dry_run = answer["dry_run"].as_bool().unwrap_or(true);
    let rows_of = |count: u64| plural(count as usize, "row");
    let rows = rows_of(count("rows"));
    let mut out = match (count("rows"), dry_run) {
        (0, _) => format!("no row before offset {} is selected\n", count("offset")),
        (_, true) => format!("{rows} would be taken back; --yes does it\n"),
        (_, false) => format!("{rows} taken back\n"),
    };
    for (stream, rows) in answer["streams"].as_object().into_iter().flatten() {
        writeln!(out, "  stream {stream}: {}", rows_of(rows.as_u64().unwrap_or(0))).expect("a string takes everything");
    }
    if count("rows") > 0 {
        let (chains, all) = (plural(count("chains") as usize, "chain"), count("rows_of_chains"));
        writeln!(out, "  of {chains} with {}", rows_of(all)).expect("a string takes everything");
        for critic in answer["critics"].as_array().into_iter().flatten() {
            let name = critic["critic"].as_str().unwrap_or_default();
            let what = match (critic["subtracted"].as_bool().unwrap_or(false), dry_run) {
                (true, true) => "would subtract them at once, then be learned again",
                (true, false) => "has subtracted them, and is being learned again",
                (false, true) => "would answer as before until it has been learned again",
                (false, false) => "is stale: it answers as before until it has been learned again",
            };
            writeln!(out, "  critic {name} {what}").expect("a string takes everything");
        }
    }
    if count("boundary") > 0 {
        let stay = match count("boundary") {
            1 => {
                "1 row that stays has the first of these states as its next state: --boundary takes it, too".to_owned()
            }
            rows => format!("{rows} rows that stay have such a state as their next state: --boundary takes them, too"),
        };
        writeln!(out, "  {stay}").expect("a string takes everything");
    }
    if count("without_time") > 0 {
        writeln!(out, "  {} without a time: --time does not match them", rows_of(count("without_time")))
            .expect("a string takes everything");
    }
    if count("forgotten") > 0 {
        let rows = rows_of(count("forgotten"));
        writeln!(
            out,
            "  {rows} of --offsets are no longer in the journal: critics that learned them keep them until a rebuild"
        )
        .expect("a string takes everything");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_two_numbers_that_rise() {
        assert_eq!(pair::<u64>("--offsets", "3..9").unwrap(), (3, 9));
        assert_eq!(pair::<f64>("--time", "1.5..2e9").unwrap(), (1.5, 2e9));
        for wrong in ["3", "9..3", "3..3", "a..b", "..5"] {
            assert!(pair::<u64>("--offsets", wrong).unwrap_err().message.contains("A..B"), "{wrong}");
        }
    }
}
