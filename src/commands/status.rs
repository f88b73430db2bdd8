//! `criticd status`: what a running daemon knows about itself, once or as a view that follows it.

use super::client::Connection;
use super::inspect::{PROVISIONAL, verified};
use super::output::{columns, facts, number};
use super::{Failure, print};
use console::Term;
use criticd::math::embedding::StateKind;
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Numbers of a sparkline.
const PAST: usize = 60;
/// Interval of the check for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);
/// Streams that are shown.
const STREAMS: usize = 8;

/// Show the state of a running daemon
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd status\n  criticd status --watch\n  criticd status --watch > log.txt        a line a second\n  criticd status --json | jq '.critics[0].dictionary_size'"
)]
pub(crate) struct Status {
    #[command(flatten)]
    connection: Connection,
    /// Update until Ctrl-C: a view on a terminal, otherwise one line each time
    #[arg(long, short)]
    watch: bool,
    /// Seconds between two updates
    #[arg(long, value_name = "S", default_value_t = 1.0, requires = "watch", value_parser = interval)]
    interval: f64,
    /// Print the whole status as JSON; with --watch, one document per line
    #[arg(long)]
    json: bool,
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|s| (0.1..=86_400.0).contains(s));
    seconds.ok_or_else(|| "must be from 0.1 to 86400".into())
}

impl Status {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if self.watch {
            return self.follow();
        }
        let status = self.connection.ask("status", json!({}))?;
        if self.json { print(&format!("{status:#}\n")) } else { print(&summary(&status, &self.connection.control())) }
    }

    fn follow(&self) -> Result<(), Failure> {
        let over = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The second one ends the process.
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&over))?;
            signal_hook::flag::register(signal, Arc::clone(&over))?;
        }
        let mut requester = self.connection.connect()?;
        let mut screen = (!self.json && Term::stdout().is_term()).then(Screen::open).transpose()?;
        let mut past = Past::default();
        let mut next = Instant::now();
        while !over.load(Ordering::Relaxed) {
            let status = match requester.ask("status", json!({}), self.connection.timeout()) {
                Ok(mut status) => {
                    for key in ["v", "id", "ok"] {
                        status.as_object_mut().map(|reply| reply.remove(key));
                    }
                    status
                }
                Err(e) if screen.is_some() => {
                    // It may come back: the view stays, and says that it is old.
                    drop(screen.as_mut().map(|screen| screen.show(&format!("no answer: {e}\n"))));
                    pause(&mut next, self.interval, &over);
                    if let Ok(again) = self.connection.connect() {
                        requester = again;
                    }
                    continue;
                }
                Err(e) => return Err(e.into()),
            };
            past.push(&status);
            match &mut screen {
                Some(screen) => {
                    screen.show(
                        &(summary(&status, &self.connection.control()) + &past.lines() + "\nCtrl-C ends this\n"),
                    )?;
                }
                None if self.json => print(&format!("{status}\n"))?,
                None => print(&line(&status))?,
            }
            pause(&mut next, self.interval, &over);
        }
        Ok(())
    }
}

/// Wait until the next update is due, or until Ctrl-C.
fn pause(next: &mut Instant, interval: f64, over: &AtomicBool) {
    *next = (*next + Duration::from_secs_f64(interval)).max(Instant::now());
    while Instant::now() < *next && !over.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK.min(next.saturating_duration_since(Instant::now())));
    }
}

/// A terminal that is drawn over and over, and as it was when this is dropped.
struct Screen {
    terminal: Term,
}

impl Screen {
    fn open() -> Result<Self, Failure> {
        let terminal = Term::buffered_stdout();
        // The alternate screen: what was there before comes back.
        terminal.write_str("\x1b[?1049h")?;
        terminal.hide_cursor()?;
        terminal.flush()?;
        Ok(Self { terminal })
    }

    /// Replace what is shown, in one go. What does not fit is left out.
    fn show(&mut self, text: &str) -> Result<(), Failure> {
        let (height, width) = self.terminal.size();
        self.terminal.write_str("\x1b[H")?;
        for line in text.lines().take(usize::from(height).saturating_sub(1)) {
            let line: String = line.chars().take(usize::from(width)).collect();
            // Each line clears what is behind it.
            self.terminal.write_str(&format!("{line}\x1b[K\r\n"))?;
        }
        self.terminal.write_str("\x1b[J")?;
        Ok(self.terminal.flush()?)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs no tidying.
        drop(self.terminal.show_cursor());
        drop(self.terminal.write_str("\x1b[?1049l"));
        drop(self.terminal.flush());
    }
}

/// What was, for sparklines.
#[derive(Default)]
struct Past {
    rows: VecDeque<f64>,
    /// Of each critic: name, recent score, dictionary.
    critics: Vec<(String, VecDeque<f64>, VecDeque<f64>)>,
}

impl Past {
    fn push(&mut self, status: &Value) {
        let keep = |past: &mut VecDeque<f64>, value: &Value| {
            if past.len() == PAST {
                past.pop_front();
            }
            past.push_back(value.as_f64().unwrap_or(f64::NAN));
        };
        keep(&mut self.rows, &status["rows_per_second"]);
        for critic in status["critics"].as_array().into_iter().flatten() {
            let name = critic["name"].as_str().unwrap_or("?");
            if !self.critics.iter().any(|(known, ..)| known == name) {
                self.critics.push((name.to_owned(), VecDeque::new(), VecDeque::new()));
            }
            let known =
                self.critics.iter_mut().find(|(known, ..)| known == name).expect("it has just been made sure of");
            keep(&mut known.1, &critic["score_recent"]);
            keep(&mut known.2, &critic["dictionary_size"]);
        }
    }

    fn lines(&self) -> String {
        let mut out = format!("\nrows per second  {}\n", sparkline(&self.rows));
        for (name, score, dictionary) in &self.critics {
            let of = if self.critics.len() > 1 { format!(" of {name}") } else { String::new() };
            writeln!(out, "log score{of}        {}", sparkline(score)).expect("a string takes everything");
            writeln!(out, "dictionary{of}       {}", sparkline(dictionary)).expect("a string takes everything");
        }
        out
    }
}

/// Numbers as bars of eight heights, from the least to the greatest of them.
fn sparkline(values: &VecDeque<f64>) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let finite = || values.iter().copied().filter(|v| v.is_finite());
    let (low, high) = finite().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
    let bar = |value: &f64| match value.is_finite() {
        false => ' ',
        true if high > low => BARS[((value - low) / (high - low) * 7.0).round() as usize],
        true => BARS[3],
    };
    values.iter().map(bar).collect()
}

fn uint(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// A number with four digits, or a dash.
fn short(value: &Value) -> String {
    value.as_f64().map_or("–".to_owned(), |v| number(format!("{v:.3e}").parse().unwrap_or(v)))
}

/// One line, for logs.
fn line(status: &Value) -> String {
    let mut out = format!(
        "{} rows, {:.0} per second, {} streams",
        uint(&status["offset"]),
        status["rows_per_second"].as_f64().unwrap_or(0.0),
        uint(&status["streams"])
    );
    for critic in status["critics"].as_array().into_iter().flatten() {
        write!(
            out,
            "; {}: generation {}, dictionary {}, {}, score {}",
            critic["name"].as_str().unwrap_or("?"),
            uint(&critic["generation"]),
            uint(&critic["dictionary_size"]),
            match critic["log_evidence"].as_f64() {
                Some(_) => format!("evidence {}", short(&critic["log_evidence"])),
                None => format!("held-out error {}", short(&critic["held_out_error"])),
            },
            short(&critic["score_recent"])
        )
        .expect("a string takes everything");
    }
    out + "\n"
}

/// A status, for people.
fn summary(status: &Value, endpoint: &str) -> String {
    let rejected: Vec<String> = status["rejected"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(code, count)| format!("{} {code}", uint(count)))
        .collect();
    let mib = |bytes: &Value| format!("{:.1} MiB", uint(bytes) as f64 / f64::from(1 << 20));
    let kib = |bytes: &Value| uint(bytes) as f64 / 1024.0;
    let queue = |name: &str| {
        let queue = &status["queues"][name];
        format!("{} of {} {name}", uint(&queue["waiting"]), uint(&queue["max"]))
    };
    let said = |label: &str, text: String| (label.to_owned(), text);
    let mut lines = vec![
        said("up", duration(status["uptime_s"].as_f64().unwrap_or(0.0))),
        said(
            "rows",
            format!(
                "{} taken in, {:.0} per second, {} duplicates",
                uint(&status["offset"]),
                status["rows_per_second"].as_f64().unwrap_or(0.0),
                uint(&status["duplicates"])
            ),
        ),
        said("refused", if rejected.is_empty() { "none".into() } else { rejected.join(", ") }),
        said(
            "window",
            format!(
                "{} of {} rows, {}",
                uint(&status["window"]["rows"]),
                uint(&status["window"]["rows_max"]),
                mib(&status["window"]["bytes"])
            ),
        ),
    ];
    let memory = &status["memory"];
    if memory.is_object() {
        let elements: Vec<String> = memory["models"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|model| {
                format!(
                    "{:.1} KiB an element of {}",
                    kib(&model["element_bytes"]),
                    model["critic"].as_str().unwrap_or("?")
                )
            })
            .collect();
        lines.push(said(
            "memory",
            format!(
                "{} at most; {} bytes a row, {:.1} KiB a stream, {}",
                mib(&memory["kept_bytes_max"]),
                uint(&memory["row_bytes"]),
                kib(&memory["stream_bytes"]),
                elements.join(", ")
            ),
        ));
    }
    if status["queues"].is_object() {
        lines.push(said("waiting", ["ingest", "calls", "publish"].map(queue).join(", ")));
    }
    let mut out = format!("criticd {} at {endpoint}\n{}", status["version"].as_str().unwrap_or("?"), facts(&lines));
    for critic in status["critics"].as_array().into_iter().flatten() {
        out += &describe(critic, &mib);
    }
    let streams: Vec<(&String, &Value)> =
        status["recent_streams"].as_object().into_iter().flatten().take(STREAMS).collect();
    if !streams.is_empty() {
        let now = status["time"].as_f64().unwrap_or(0.0);
        let rows: Vec<Vec<String>> = streams
            .iter()
            .map(|(name, position)| {
                let seen = (now - position["last_seen"].as_f64().unwrap_or(now)).max(0.0);
                let cells = [uint(&position["next_seq"]).saturating_sub(1), uint(&position["rows"])];
                let [seq, rows] = cells.map(|cell| cell.to_string());
                let seen = if seen < 2.0 { "now".to_owned() } else { format!("{} ago", duration(seen)) };
                vec![(*name).clone(), seq, rows, seen]
            })
            .collect();
        out += &format!("\n{}", columns(&["stream", "last seq", "rows", "seen"], &rows));
        let more = uint(&status["streams"]).saturating_sub(streams.len() as u64);
        if more > 0 {
            out += &format!("and {more} more\n");
        }
    }
    out
}

/// The part about a critic.
fn describe(critic: &Value, mib: &dyn Fn(&Value) -> String) -> String {
    let said = |label: &str, text: String| (label.to_owned(), text);
    let mut out = format!("\ncritic {}\n", critic["name"].as_str().unwrap_or("?"));
    let mut lines = Vec::new();
    if let Some(why) = critic["failed"].as_str() {
        lines.push(said("failed", why.to_owned()));
    }
    let refit = &critic["refit"];
    let next = match (refit["running"].as_bool(), refit["next_at"].as_u64()) {
        (Some(true), _) => "one is running".to_owned(),
        (_, Some(at)) => format!("next at row {at}"),
        _ => "on request only".to_owned(),
    };
    let counts = [&refit["adopted"], &refit["rejected"], &refit["failed"]].map(uint);
    let [adopted, rejected, failed] = counts;
    lines.push(said("refits", format!("{adopted} adopted, {rejected} rejected, {failed} failed; {next}")));
    if let Some(outcome) = refit["last"]["outcome"].as_str() {
        let gain = match (refit["last"]["evidence_before"].as_f64(), refit["last"]["evidence_after"].as_f64()) {
            (Some(before), Some(after)) => format!(", evidence {:+.1} nats", after - before),
            _ => String::new(),
        };
        let why = refit["last"]["reason"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
        lines.push(said("last refit", format!("{outcome}{gain}{why}")));
    }
    if critic["kernel"].is_null() {
        lines.push(said("model", "none yet: too few rows have arrived".into()));
        return out + &facts(&lines);
    }
    let kernel = &critic["kernel"];
    let noise = critic["noise"]["variance"].as_f64().unwrap_or(f64::NAN);
    lines.extend([
        said(
            "model",
            format!(
                "generation {}, {} of at most {} states, {} rows, {}",
                uint(&critic["generation"]),
                uint(&critic["dictionary_size"]),
                uint(&critic["dictionary_max"]),
                uint(&critic["transitions"]),
                mib(&critic["bytes"])
            ),
        ),
        match (critic["log_evidence"].as_f64(), critic["held_out_error"].as_f64()) {
            (Some(_), _) => said("evidence", format!("{} nats", short(&critic["log_evidence"]))),
            (None, Some(_)) => {
                said("held-out error", format!("{}; 1 is that of a constant", short(&critic["held_out_error"])))
            }
            (None, None) => said("held-out error", "none: no refit has selected a model since the start".into()),
        },
        said("score", format!("{} nats per row, recently {}", short(&critic["score"]), short(&critic["score_recent"]))),
        said("discount", discount(critic)),
        said(
            "noise",
            format!(
                "{}, variance {} (sd {})",
                critic["noise"]["model"].as_str().unwrap_or("?"),
                short(&critic["noise"]["variance"]),
                short(&noise.sqrt().into())
            ),
        ),
        said(
            "kernel",
            format!(
                "{}, {}, signal variance {}, bias variance {}",
                kernel["kind"].as_str().unwrap_or("?"),
                kernel["profile"].as_str().unwrap_or("gaussian"),
                short(&kernel["signal_variance"]),
                short(&kernel["bias_variance"])
            ),
        ),
    ]);
    let returns = &critic["returns"];
    if let Some(factor) = returns["factor"].as_f64() {
        lines.push(said("returns", verified(factor, uint(&returns["pairs"]), returns["coverage"].as_f64())));
    }
    if critic["provisional"] == true {
        lines.push(said("provisional", PROVISIONAL.to_owned()));
    }
    let pause = &critic["adoption_pause_ms"];
    if uint(&pause["count"]) > 0 {
        let [median, most] = ["p50", "max"].map(|key| short(&pause[key]));
        lines.push(said("pauses", format!("{median} ms (median), {most} ms (longest) at an adoption")));
    }
    // Those of a candidate that was rejected are not those of the model in use.
    let report = Some(&refit["last"]).filter(|last| last["outcome"] == "adopted").unwrap_or(&Value::Null);
    lines.extend(selected(&report["selection"]));
    let findings = ["relevance_report", "findings"].into_iter().filter_map(|key| report[key].as_array()).flatten();
    lines.extend(findings.filter_map(Value::as_str).map(|words| said("finding", words.to_owned())));
    out += &facts(&lines);
    out + &variables(critic)
}

/// How held-out returns chose the model: what the other lambdas lose, the kernels compared, and why the present one stayed or went.
fn selected(selection: &Value) -> Vec<(String, String)> {
    if selection.is_null() {
        return Vec::new();
    }
    let said = |label: &str, text: String| (label.to_owned(), text);
    let each = |key: &str| selection[key].as_array().into_iter().flatten();
    let of_lambda = |l: &Value| {
        let loss = 100.0 * (l["score"].as_f64().unwrap_or(f64::NAN) - 1.0);
        format!("{} {}", short(&l["lambda"]), if loss == 0.0 { "best".to_owned() } else { format!("{loss:+.1} %") })
    };
    let over = format!("{} rows in {} pieces", uint(&selection["rows"]), uint(&selection["pieces"]));
    let mut lines = vec![
        said("selected", format!("by held-out returns of {over}")),
        said("lambda", each("lambdas").map(of_lambda).collect::<Vec<String>>().join(", ")),
    ];
    lines.extend(each("candidates").map(|candidate| {
        let [score, lambda, ridge] = ["score", "lambda", "ridge"].map(|key| short(&candidate[key]));
        let name = candidate["name"].as_str().unwrap_or("?");
        let elements = uint(&candidate["elements"]);
        said("compared", format!("{name}: error {score} at lambda {lambda}, ridge {ridge}, {elements} states"))
    }));
    if selection["gain"].is_number() {
        let [gain, error] = ["gain", "standard_error"].map(|key| short(&selection[key]));
        let stays = selection["present_stays"] == true;
        let outcome = if stays { "stays" } else { "is replaced" };
        let text = format!("{outcome}: the best errs less by {gain}, with a standard error of {error}");
        lines.push(said("present model", text));
    }
    lines
}

/// Discount and, where the daemon says it, lambda.
fn discount(critic: &Value) -> String {
    let lambda = critic["lambda"].as_f64().map(|_| format!(", lambda {}", short(&critic["lambda"])));
    short(&critic["discount"]) + &lambda.unwrap_or_default()
}

/// Relevance and lengthscale of each state variable, and what its removal would cost.
fn variables(critic: &Value) -> String {
    let (kernel, inputs) = (&critic["kernel"], &critic["inputs"]);
    let last = &critic["refit"]["last"];
    let support = if last["outcome"] == "adopted" { &last["evidence_drop"] } else { &Value::Null };
    let factors = kernel["factors"].as_array();
    let rows: Vec<Vec<String>> = inputs["scale"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
        .map(|(i, scale)| {
            let own = kernel["relevance"].as_f64().or_else(|| kernel["relevance"][i].as_f64()).unwrap_or(0.0);
            let directions: f64 = factors.into_iter().flatten().filter_map(|f| f[i].as_f64()).map(|f| f * f).sum();
            let kind = kernel["kinds"][i].as_str().and_then(|kind| kind.parse().ok()).unwrap_or_default();
            let unit = match kind {
                StateKind::Real => scale.as_f64().unwrap_or(1.0),
                // Along the circle.
                StateKind::Periodic(period) => period / std::f64::consts::TAU,
                StateKind::Category => f64::NAN,
            };
            let lengthscale = unit / (own + directions).sqrt();
            let name = inputs["names"][i].as_str().map_or_else(|| format!("state_{i}"), str::to_owned);
            let length = match lengthscale {
                length if length.is_finite() => short(&length.into()),
                _ if own > 0.0 => "category".into(),
                _ => "not used".into(),
            };
            vec![name, short(&(own + directions).into()), length, short(&support[i])]
        })
        .collect();
    if rows.is_empty() {
        String::new()
    } else {
        columns(&["variable", "relevance", "lengthscale", "evidence drop, nats"], &rows)
    }
}

fn duration(seconds: f64) -> String {
    let whole = seconds as u64;
    match (whole / 86_400, whole / 3600 % 24, whole / 60 % 60) {
        (0, 0, 0) => format!("{seconds:.1} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", whole % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_parts() {
        assert_eq!([3.21, 75.0, 7260.0, 90_061.0].map(duration), ["3.2 s", "1 min 15 s", "2 h 1 min", "1 d 1 h"]);
    }

    #[test]
    fn a_summary_shows_what_is_there() {
        let status = json!({"version": "1", "offset": 5, "rejected": {"not_finite": 2}, "time": 10.0, "streams": 3,
        "recent_streams": {"arm": {"next_seq": 5, "rows": 5, "last_seen": 6.5}},
        "critics": [
            {"name": "a", "kernel": {"kind": "ard", "relevance": [4.0], "signal_variance": 1.0, "bias_variance": 0.0},
             "inputs": {"scale": [2.0], "names": ["angle"]}, "generation": 3,
             "refit": {"last": {"outcome": "rejected", "reason": "too late", "evidence_drop": [99.5]}}},
            {"name": "b"},
            {"name": "c", "kernel": {"kind": "ard", "relevance": [4.0], "signal_variance": 1.0, "bias_variance": 0.0},
             "inputs": {"scale": [2.0]}, "refit": {"last": {"outcome": "adopted", "evidence_drop": [12.5]}}},
            {"name": "d", "kernel": {"kind": "ard", "profile": "matern52", "relevance": [4.0], "signal_variance": 1.0,
             "bias_variance": 0.0}, "held_out_error": 0.381, "log_evidence": null,
             "returns": {"factor": 1.25, "pairs": 431, "coverage": 0.82},
             "refit": {"last": {"outcome": "adopted", "selection": {"rows": 900, "pieces": 12, "score": 0.381,
              "gain": 0.002, "standard_error": 0.003, "present_stays": true,
              "lambdas": [{"lambda": 0.5, "score": 1.0}, {"lambda": 1.0, "score": 1.121}],
              "candidates": [{"name": "ard 1", "lambda": 0.5, "ridge": 0.3, "score": 0.379, "elements": 270}]}}}},
        ]});
        let text = summary(&status, "tcp://h:1");
        for words in [
            // What was found of a model that was rejected is not said of the one that stays.
            "angle             4            1              –",
            "state_0           4            1           12.5",
            "refused  2 not_finite",
            "rejected: too late",
            "held-out error  none: no refit has selected a model since the start",
            "held-out error  0.381; 1 is that of a constant",
            "lambda          0.5 best, 1 +12.1 %",
            "ard 1: error 0.379 at lambda 0.5, ridge 0.3, 270 states",
            "stays: the best errs less by 0.002, with a standard error of 0.003",
            "ard, matern52, signal variance 1",
            "90 % intervals held 82 % of the returns",
            "critic b\n",
            "none yet",
            "arm            4     5  3.5 s ago",
            "and 2 more",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert_eq!(line(&status).lines().count(), 1);
        assert!(line(&status).starts_with("5 rows, 0 per second, 3 streams; a: generation 3, "));
        assert!(line(&status).contains("dictionary 0, held-out error 0.381, score –"), "{}", line(&status));
    }

    #[test]
    fn sparklines_span_what_they_show() {
        assert_eq!(sparkline(&[0.0, 3.5, 7.0, f64::NAN].into()), "▁▅█ ");
        assert_eq!(sparkline(&[2.0, 2.0].into()), "▄▄");
        let mut past = Past::default();
        (0..100)
            .for_each(|k| past.push(&json!({"rows_per_second": k, "critics": [{"name": "a", "score_recent": null}]})));
        assert_eq!((past.rows.len(), past.rows[0], past.critics.len()), (PAST, 40.0, 1));
    }
}
