//! `criticd status`: what a running daemon knows about itself, once or as a view that follows it.

mod foretold;
mod memory;
mod missing;
mod removed;
mod then;
use super::client::Connection;
use super::given::common_unit;
use super::inspect::{PROVISIONAL, UNSCALED, verified};
use super::output::{columns, digits, facts, is_closed, percent, visible};
use super::{Failure, as_of, print};
use crate::daemon::as_of::Moment;
use crate::math::embedding::StateKind;
use crate::transition::name_of_state;
use crate::wire;
use crate::wire::status::{
    AdvisorStatus, CriticStatus, DriftAlarm, DriftStatus, HeadsStatus, LambdaFound, LastRefit, ModelStatus,
    RebuildStatus, RefitFound, RefitStatus, ReturnsStatus, SelectionFound, TrackingStatus, TrialFound, TrustReason,
    TrustStatus,
};
use console::Term;
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Numbers of a sparkline.
const PAST: usize = 60;
/// Interval of the check for Ctrl-C.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Columns of a narrow terminal.
const WIDTH: usize = 80;
/// Streams that are shown.
const STREAMS: usize = 8;
/// Lines of the overview that many critics on a low screen go without, those that say least first.
const SPARED: [&str; 4] = ["memory", "window", "missing", "data"];
/// Lines of a table of critics: a gap, the head, a few of them, and how many there are besides.
const TABLE: usize = 6;
/// The same with one of them.
const TABLE_LEAST: usize = 4;
/// Levels of trust.
const WORST_FIRST: [&str; 5] = ["bad", "warn", "never", "wait", "good"];

/// Show the state of a running daemon
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd status\n  criticd status --watch\n  criticd status --watch > log.txt        a line a second\n  criticd status --as-of 120000           the models when 120000 rows had been stored\n  criticd status --json | jq '.critics[0].dictionary_size'"
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
    /// The models of all critics as they were when this number of rows had been stored, or at a time: @ and Unix seconds. They
    /// are learned again from the data directory, whether the daemon runs or not; by the daemon itself where -d is an endpoint
    #[arg(long, value_name = "OFFSET|@TIME", value_parser = as_of::moment, conflicts_with = "watch")]
    as_of: Option<Moment>,
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|s| (0.1..=86_400.0).contains(s));
    seconds.ok_or_else(|| "must be from 0.1 to 86400".into())
}

impl Status {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if let Some(moment) = self.as_of {
            return then::print(&self.connection.place(), moment, self.connection.given_timeout(), self.json);
        }
        if let Some(starting) = self.connection.starting() {
            return Err(starting);
        }
        if self.watch {
            return self.follow();
        }
        let status = self.connection.ask("status", json!({}))?;
        if self.json {
            // All of it, with keys that this program does not know.
            return print(&format!("{status:#}\n"));
        }
        print(&summary(&wire::Status::from_json(&status)?, &self.connection.control(), Room::ALL))
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
        let mut past = StatusPast::default();
        let mut next = Instant::now();
        while !over.load(Ordering::Relaxed) && !is_closed() {
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
            if self.json {
                print(&format!("{status}\n"))?;
            } else {
                let status = wire::Status::from_json(&status)?;
                past.push(&status);
                match &mut screen {
                    Some(screen) => {
                        let text = view(&status, &self.connection.control(), &past, screen.lines());
                        screen.show(&text)?;
                    }
                    None => print(&line(&status))?,
                }
            }
            pause(&mut next, self.interval, &over);
        }
        Ok(())
    }
}

/// How much is said of a model: everything, or what fits on a screen whatever the dimension is.
#[derive(Clone, Copy)]
struct Room {
    variables: usize,
    findings: usize,
    streams: usize,
}

impl Room {
    const ALL: Self = Self { variables: usize::MAX, findings: usize::MAX, streams: STREAMS };

    /// On a screen of `lines` lines.
    fn of_screen(lines: usize) -> Self {
        let share = |of: usize, least: usize, most: usize| (lines / of).clamp(least, most);
        Self { variables: share(6, 3, 8), findings: share(16, 1, 3), streams: share(8, 2, STREAMS) }
    }
}

/// A status and its past on a screen of `lines` lines: the last lines are always the past; a line counts the critics without
/// room above.
fn view(status: &wire::Status, endpoint: &str, past: &StatusPast, lines: usize) -> String {
    let room = Room::of_screen(lines);
    let foot = past.lines(status.critics.len() == 1) + "\nCtrl-C ends this\n";
    let above = lines.saturating_sub(foot.lines().count());
    let streams = streams(status, room.streams);
    let mut out = overview(status, endpoint, 0) + &streams;
    match &status.critics[..] {
        // Whether to believe the values comes first: a low screen cuts what comes last.
        [critic] => {
            out = trust(critic, room.findings) + "\n" + &out + &format!("\ncritic {}\n", critic.name);
            out += &learned(critic, room);
        }
        critics => {
            let told = warning(critics);
            let gap = usize::from(!told.is_empty());
            let excess = (told.lines().count() + gap + out.lines().count() + TABLE).saturating_sub(above);
            out = overview(status, endpoint, excess) + &streams;
            // On a low screen the table gives way first, then these words.
            let most = above.saturating_sub(gap + out.lines().count() + TABLE_LEAST);
            let told = beginning(&told, most.max(2));
            out = if told.is_empty() { out } else { told + "\n" + &out };
            out += &table(critics, past, above.saturating_sub(out.lines().count()));
        }
    }
    let count = out.lines().count();
    if count > above {
        let kept = above.saturating_sub(1);
        out = out.lines().take(kept).map(|line| format!("{line}\n")).collect();
        writeln!(out, "and {} more lines: criticd status", count - kept).expect("a string takes everything");
    }
    out + &foot
}

/// What is said of the least trusted of many critics, with the first reason and what to do; nothing before one of them is judged.
fn warning(critics: &[CriticStatus]) -> String {
    let judged = critics.iter().filter_map(|critic| Some((critic, least_trusted(critic)?)));
    let Some((critic, trust)) = judged.min_by_key(|&(_, trust)| trust_rank(Some(trust))) else { return String::new() };
    let TrustStatus { sign, title, sentence, reasons, .. } = trust;
    let mut out = wrapped(&format!("{sign} "), &format!("{}, the least trusted: {title}. {sentence}", critic.name));
    for TrustReason { text, remedy, .. } in reasons.iter().take(1) {
        out += &wrapped("  – ", &format!("{text}. {remedy}"));
    }
    out
}

/// The first lines of a text, at most `most`; the last one shows where there are more.
fn beginning(text: &str, most: usize) -> String {
    let cut = text.lines().count() > most;
    let mut out = text.lines().take(most).collect::<Vec<_>>().join("\n");
    out += if cut { " …" } else { "" };
    if out.is_empty() { out } else { out + "\n" }
}

/// A row for each of many critics, those that need attention first, in `lines` lines.
fn table(critics: &[CriticStatus], past: &StatusPast, lines: usize) -> String {
    let score = |critic: &CriticStatus| critic.model.as_ref().and_then(|model| model.score_recent);
    let fallen = |critic: &CriticStatus| {
        let since = critic.model.as_ref().and_then(|model| model.score);
        score(critic).zip(since).map_or(0.0, |(recent, since)| recent - since)
    };
    // Not to be believed, to be believed with care, and the others.
    let care = |critic: &CriticStatus| trust_rank(least_trusted(critic)).min(2);
    // Those that have failed, those without a model, those that need care, then those whose predictions have become worse.
    let rank = |critic: &CriticStatus| (critic.failed.is_none(), critic.model.is_some(), care(critic));
    let mut sorted: Vec<&CriticStatus> = critics.iter().collect();
    sorted.sort_by(|a, b| rank(a).cmp(&rank(b)).then(fallen(a).total_cmp(&fallen(b))));
    // A gap, the head, and a line for those that have no room.
    let most = lines.saturating_sub(3);
    let row = |critic: &&CriticStatus| {
        let state = match (&critic.failed, critic.refit.running, &critic.model) {
            (Some(_), ..) => "FAILED".to_owned(),
            (_, true, _) => "refit runs".to_owned(),
            (.., None) => "no model yet".to_owned(),
            _ => format!("{} since start", critic.refit.adopted),
        };
        let size = critic.model.as_ref().map_or(0, |model| model.dictionary_size);
        let known = past.critics.iter().find(|of| of.name == critic.name);
        let line = known.map(|of| sparkline(&of.errors.iter().rev().take(20).rev().copied().collect()));
        let first = critic.trust.first();
        let covered =
            first.and_then(|trust| trust.coverage).map_or("–".into(), |share| format!("{:.0} %", 100.0 * share));
        let [generation, size, error] =
            [critic.generation.to_string(), size.to_string(), short(first.and_then(|trust| trust.error))];
        let trust = least_trusted(critic).map_or("○", |trust| &trust.sign).to_owned();
        vec![critic.name.clone(), trust, generation, size, error, covered, state, line.unwrap_or_default()]
    };
    let rows: Vec<Vec<String>> = sorted.iter().take(most).map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = ["critic", "trust", "generation", "states", "error", "in 90 %", "adopted", "error before"];
    let out = format!("\n{}", columns(&head, &rows));
    match critics.len() - rows.len() {
        0 => out,
        more => format!("{out}and {more} more critics\n"),
    }
}

/// Wait until the next update is due, or until Ctrl-C.
fn pause(next: &mut Instant, interval: f64, over: &AtomicBool) {
    *next = (*next + Duration::from_secs_f64(interval)).max(Instant::now());
    while Instant::now() < *next && !over.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK_INTERVAL.min(next.saturating_duration_since(Instant::now())));
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

    /// Lines that there is room for.
    fn lines(&self) -> usize {
        usize::from(self.terminal.size().0).saturating_sub(1)
    }

    /// Replace what is shown, in one go. What does not fit is left out.
    fn show(&mut self, text: &str) -> Result<(), Failure> {
        let width = self.terminal.size().1;
        self.terminal.write_str("\x1b[H")?;
        for line in visible(text).lines().take(self.lines()) {
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
struct StatusPast {
    rows: VecDeque<f64>,
    critics: Vec<PastOfCritic>,
}

/// What was of a critic's first reward.
#[derive(Default)]
struct PastOfCritic {
    name: String,
    /// Errors of its predictions, and shares of returns in their 90 % interval.
    errors: VecDeque<f64>,
    covered: VecDeque<f64>,
}

impl StatusPast {
    fn push(&mut self, status: &wire::Status) {
        let keep = |past: &mut VecDeque<f64>, value: Option<f64>| {
            if past.len() == PAST {
                past.pop_front();
            }
            past.push_back(value.unwrap_or(f64::NAN));
        };
        keep(&mut self.rows, Some(status.rows_per_second));
        for critic in &status.critics {
            if !self.critics.iter().any(|known| known.name == critic.name) {
                self.critics.push(PastOfCritic { name: critic.name.clone(), ..PastOfCritic::default() });
            }
            let known = self.critics.iter_mut().find(|known| known.name == critic.name);
            let known = known.expect("it has just been made sure of");
            let trust = critic.trust.first();
            keep(&mut known.errors, trust.and_then(|trust| trust.error));
            keep(&mut known.covered, trust.and_then(|trust| trust.coverage));
        }
    }

    /// The rate of rows and, if `whole`, the only critic.
    fn lines(&self, whole: bool) -> String {
        let mut out = format!("\nrows per second  {}\n", sparkline(&self.rows));
        let newest = |of: &VecDeque<f64>| of.back().copied().filter(|v| v.is_finite());
        for of in self.critics.iter().filter(|_| whole) {
            let covered = newest(&of.covered).map_or("–".into(), |share| format!("{:.0} %", 100.0 * share));
            for (name, values, now) in
                [("error", &of.errors, short(newest(&of.errors))), ("in 90 % interval", &of.covered, covered)]
            {
                writeln!(out, "{name:<17}{} {now}", sparkline(values)).expect("a string takes everything");
            }
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

/// The same, or a dash.
fn short(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map_or("–".to_owned(), digits)
}

fn said(label: &str, text: impl Into<String>) -> (String, String) {
    (label.to_owned(), text.into())
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// One line, for logs.
fn line(status: &wire::Status) -> String {
    let mut out =
        format!("{} rows, {:.0} per second, {} streams", status.offset, status.rows_per_second, status.streams);
    if let Some(why) = &status.read_only {
        write!(out, ", READ-ONLY: {why}").expect("a string takes everything");
    }
    for critic in &status.critics {
        let model = critic.model.as_ref();
        let selected = match model.and_then(|model| model.log_evidence) {
            Some(evidence) => format!("evidence {}", digits(evidence)),
            None => format!("held-out error {}", short(critic.held_out_error)),
        };
        let (size, score) = (model.map_or(0, |m| m.dictionary_size), short(model.and_then(|m| m.score_recent)));
        let (name, generation) = (&critic.name, critic.generation);
        let trust = least_trusted(critic).map_or(String::new(), |trust| format!(", trust {}", trust.level));
        write!(out, "; {name}: generation {generation}, dictionary {size}, {selected}, score {score}{trust}")
            .expect("a string takes everything");
    }
    out + "\n"
}

/// A status, for people.
fn summary(status: &wire::Status, endpoint: &str, room: Room) -> String {
    // Streams before the critics: there may be many of those.
    let mut out = overview(status, endpoint, 0) + &streams(status, room.streams);
    status.critics.iter().for_each(|critic| out += &describe(critic, room));
    out
}

/// Lines about the daemon, without its `spared` least important ones.
fn overview(status: &wire::Status, endpoint: &str, spared: usize) -> String {
    let rejected: Vec<String> = status.rejected.iter().map(|(code, count)| format!("{count} {code}")).collect();
    let window = &status.window;
    let mut lines = vec![
        said("up", duration(status.uptime_s) + &status.pid.map(|pid| format!(", process {pid}")).unwrap_or_default()),
        said(
            "rows",
            format!(
                "{} taken in, {:.0} per second, {} duplicates",
                status.offset, status.rows_per_second, status.duplicates
            ),
        ),
        said("refused", if rejected.is_empty() { "none".into() } else { rejected.join(", ") }),
        said("missing", missing::line(status)),
        said("window", format!("{} of {} rows, {}", window.rows, window.rows_max, mib(window.bytes))),
    ];
    if let Some(directory) = &status.data_dir {
        lines.push(said("data", directory));
        let connection = Connection::of_data_dir(Some(directory.into()));
        lines.extend(connection.written("http").map(|address| said("dashboard", format!("http://{address}/"))));
    }
    lines.extend(status.memory.as_ref().map(memory::line));
    let advisor = |of: &AdvisorStatus| {
        let AdvisorStatus { name, decisions, waiting, learned, .. } = of;
        said(
            "advisor",
            format!("{name}: {decisions} decisions, {learned} costs learned, {waiting} decisions wait for their cost"),
        )
    };
    lines.extend(status.advisors.iter().map(advisor).chain(removed::lines(status)));
    lines.extend(status.read_only.iter().map(|why| said("read-only", format!("no row is taken: {why}"))));
    let failing = status.journal.as_ref().and_then(|journal| journal.checkpoint_failure.as_ref());
    lines.extend(failing.map(|why| said("checkpoint", format!("could not be written: {why}"))));
    let set_aside = status.recovered.iter().flat_map(|recovered| &recovered.set_aside);
    lines.extend(set_aside.map(|model| said("set aside", model)));
    let waiting = status.queues.named().map(|(name, queue)| format!("{} of {} {name}", queue.waiting, queue.max));
    lines.push(said("waiting", waiting.join(", ")));
    let there = |label: &&str| lines.iter().any(|(of, _)| of == *label);
    let spared: Vec<&str> = SPARED.into_iter().filter(there).take(spared).collect();
    lines.retain(|(label, _)| !spared.contains(&label.as_str()));
    format!("criticd {} at {endpoint}\n{}", status.version, facts(&lines))
}

/// The streams that sent something last; nothing before the first.
fn streams(status: &wire::Status, most: usize) -> String {
    let seen = |at: f64| match (status.time - at).max(0.0) {
        seconds if seconds < 2.0 => "now".to_owned(),
        seconds => format!("{} ago", duration(seconds)),
    };
    let rows: Vec<Vec<String>> = status
        .recent_streams
        .iter()
        .take(most)
        .map(|(name, position)| {
            let last = position.next_seq.saturating_sub(1).to_string();
            vec![name.clone(), last, position.rows.to_string(), seen(position.last_seen)]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let table = columns(&["stream", "last seq", "rows", "seen"], &rows);
    match status.streams.saturating_sub(rows.len() as u64) {
        0 => format!("\n{table}"),
        more => format!("\n{table}and {more} more\n"),
    }
}

/// The part about a critic.
fn describe(critic: &CriticStatus, room: Room) -> String {
    format!("\ncritic {}\n", critic.name) + &trust(critic, room.findings) + &learned(critic, room)
}

/// What a critic has learned, and how.
fn learned(critic: &CriticStatus, room: Room) -> String {
    let mut lines: Vec<_> = critic.failed.iter().map(|why| said("failed", why)).collect();
    lines.extend(critic.rebuild.as_ref().map(rebuild));
    lines.extend(refits(&critic.refit));
    let heads = critic.heads.as_ref().map(of_heads);
    let Some(model) = &critic.model else {
        lines.extend(heads);
        lines.push(said("model", "none yet: too few rows have arrived"));
        return facts(&lines);
    };
    lines.extend(of_model(critic, model));
    lines.extend(heads);
    let pause = &critic.adoption_pause_ms;
    if pause.count > 0 {
        let [median, most] = [pause.p50, pause.max].map(short);
        lines.push(said("pauses", format!("{median} ms (median), {most} ms (longest) at an adoption")));
    }
    // What holds for a candidate that was rejected does not hold for the model in use.
    let found = critic.refit.last.as_ref().and_then(LastRefit::adopted);
    if let Some(found) = found {
        lines.extend(found.selection.iter().flat_map(|selection| selected(selection, found.heads)));
        lines.extend(found.trial.iter().map(tried));
        let findings = || found.findings.iter().chain(&found.relevance_report);
        lines.extend(findings().take(room.findings).map(|words| said("finding", words)));
        let more = findings().count().saturating_sub(room.findings);
        lines.extend((more > 0).then(|| said("finding", format!("and {more} more: criticd status"))));
    }
    facts(&lines) + &variables(model, (&critic.shares, found), room.variables)
}

/// Whether to believe the values of each reward, as the page says it, and at most `most` reasons of each with what to do.
fn trust(critic: &CriticStatus, most: usize) -> String {
    if critic.trust.is_empty() {
        let why = "Nothing says yet whether to believe the values. The daemon compares them with the returns that come: it or this \
                   model has just begun.";
        return wrapped("○ ", why);
    }
    let mut out = String::new();
    for TrustStatus { sign, title, sentence, reasons, .. } in &critic.trust {
        out += &wrapped(&format!("{sign} "), &format!("{title}. {sentence}"));
        for TrustReason { text, remedy, .. } in reasons.iter().take(most) {
            out += &wrapped("  – ", &format!("{text}. {remedy}"));
        }
        if reasons.len() > most {
            out += &wrapped("  – ", &format!("and {} more: criticd status", reasons.len() - most));
        }
    }
    out
}

/// Words in lines of a narrow terminal: the first begins with `lead`, and the others are as far in.
fn wrapped(lead: &str, words: &str) -> String {
    let indent = " ".repeat(lead.chars().count());
    let (mut out, mut line) = (String::new(), lead.to_owned());
    for word in words.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > WIDTH && line.len() > lead.len() {
            out += line.trim_end();
            out.push('\n');
            line.clone_from(&indent);
        }
        line += word;
        line.push(' ');
    }
    out + line.trim_end() + "\n"
}

/// What is said of the least trusted of a critic's rewards; none before that is judged.
fn least_trusted(critic: &CriticStatus) -> Option<&TrustStatus> {
    WORST_FIRST.iter().find_map(|level| critic.trust.iter().find(|trust| trust.level == *level))
}

/// Place among the levels of trust, the worst first; behind all of them where nothing is said.
fn trust_rank(trust: Option<&TrustStatus>) -> usize {
    let place = trust.and_then(|trust| WORST_FIRST.iter().position(|level| trust.level == *level));
    place.unwrap_or(WORST_FIRST.len())
}

fn rebuild(rebuild: &RebuildStatus) -> (String, String) {
    let RebuildStatus { rows, of, failed } = rebuild;
    let words = match failed {
        Some(why) => format!("failed: {why}; `criticd rebuild` tries again"),
        None if *of == 0 => "waits, or selects a model".to_owned(),
        None => format!("{rows} of {of} rows learned again from the journal"),
    };
    said("rebuild", words)
}

fn refits(refit: &RefitStatus) -> Vec<(String, String)> {
    let next = match (refit.spent, refit.next_at) {
        (Some(spent), _) => format!("one is running, {} of its budget spent", percent(spent)),
        _ if refit.running => "one is running".to_owned(),
        (_, Some(at)) => format!("next at row {at}"),
        _ => "on request only".to_owned(),
    };
    let RefitStatus { adopted, rejected, failed, .. } = refit;
    let counts = format!("since the start {adopted} adopted, {rejected} rejected, {failed} failed; {next}");
    let mut lines = vec![said("refits", counts)];
    if let Some(LastRefit { outcome, reason, found, .. }) = &refit.last {
        let evidence = found.as_ref().and_then(|found| found.evidence_before.zip(found.evidence_after));
        let gain = evidence.map(|(before, after)| format!(", evidence {:+.1} nats", after - before));
        let why = reason.as_ref().map(|why| format!(": {why}"));
        lines.push(said("last refit", format!("{outcome}{}{}", gain.unwrap_or_default(), why.unwrap_or_default())));
    }
    lines
}

fn of_model(critic: &CriticStatus, model: &ModelStatus) -> Vec<(String, String)> {
    let ModelStatus { kernel, noise, .. } = model;
    let mut lines = vec![
        said(
            "model",
            format!(
                "generation {}, {} of at most {} states, {} rows, {}",
                critic.generation,
                model.dictionary_size,
                critic.dictionary_max,
                model.transitions,
                mib(model.bytes)
            ),
        ),
        match (model.log_evidence, critic.held_out_error) {
            (Some(evidence), _) => said("evidence", format!("{} nats", digits(evidence))),
            (None, Some(error)) => said("held-out error", format!("{}; a constant has 1", digits(error))),
            (None, None) if critic.refit.adopted > 0 => {
                said("held-out error", "none: the last refit that was adopted compared no held-out returns")
            }
            (None, None) => said("held-out error", "none: no refit has selected a model since the start"),
        },
        said("score", format!("{} nats per row, recently {}", short(model.score), short(model.score_recent))),
        said("discount", discount(critic.discount, model.lambda)),
        said(
            "noise",
            format!(
                "{}, variance {} (std {}{})",
                noise.model,
                digits(noise.variance),
                digits(noise.variance.sqrt()),
                common_unit(&critic.reward_names)
            ),
        ),
        said(
            "kernel",
            format!(
                "{}, {}, signal variance {}, bias variance {}",
                kernel.kind,
                kernel.profile,
                digits(kernel.signal_variance),
                digits(kernel.bias_variance)
            ),
        ),
    ];
    if let Some(ReturnsStatus { factor, pairs, coverage_before_factor }) = model.returns {
        lines.push(said("returns", verified(factor, pairs, coverage_before_factor)));
    }
    if let Some((gate, half_life)) = model.drift.tracking.as_ref().and_then(TrackingStatus::widest) {
        let followed = format!("rows with a half-life of {}, its gate {:.0} % open", digits(half_life), 100.0 * gate);
        lines.push(said("follows", followed));
    }
    lines.extend(model.drift.last.as_ref().map(|alarm| changed(alarm, &model.drift)));
    lines.extend(critic.alarms.iter().map(foretold::line));
    lines.extend((model.provisional == Some(true)).then(|| said("provisional", PROVISIONAL)));
    lines.extend(model.kernel.unscaled.then(|| said("no deviations", UNSCALED)));
    lines
}

/// The heads in one line, however many there are.
fn of_heads(heads: &HeadsStatus) -> (String, String) {
    let mut words = heads.count.to_string();
    for (count, what) in [(heads.learning, "learning retained rows"), (heads.unsolved, "without an answer")] {
        words += &if count > 0 { format!(", {count} {what}") } else { String::new() };
    }
    if let Some(coverage) = heads.coverage_before_factor {
        words += &format!("; 90 % intervals of {} held {:.0} % of the returns", heads.verified, 100.0 * coverage);
    }
    if let Some(worst) = heads.worst.first() {
        words += &format!(", of {} {:.0} %", worst.name, 100.0 * worst.coverage_before_factor);
    }
    if let Some(unexplained) = heads.unexplained_max {
        words += &format!("; unexplained variance at most {}", digits(unexplained));
    }
    said("heads", words)
}

/// The last alarm of a change, and what came of it.
fn changed(alarm: &DriftAlarm, drift: &DriftStatus) -> (String, String) {
    let outcome = if drift.forked {
        "a second model learns the rows since then"
    } else if drift.changed_at >= alarm.since && drift.changed_at > 0 {
        "the model has learned the rows since then"
    } else {
        "the model stays"
    };
    let (since, statistic, size) = (alarm.since, &alarm.statistic, digits(alarm.size));
    said("change", format!("errors {statistic} by {size} since about row {since}: {outcome}"))
}

/// How held-out returns chose the model: what the other lambdas lose, the kernels compared, and why the present one stayed or went.
/// Where a number of `heads` chose the kernel, the rest of it.
fn selected(selection: &SelectionFound, heads: Option<u64>) -> Vec<(String, String)> {
    let of_lambda = |l: &LambdaFound| {
        let loss = 100.0 * (l.score - 1.0);
        format!("{} {}", digits(l.lambda), if loss == 0.0 { "best".to_owned() } else { format!("{loss:+.1} %") })
    };
    let by = heads.map_or_else(String::new, |heads| format!("by the evidence of {heads} heads, lambda and ridge "));
    let SelectionFound { rows, pieces, .. } = selection;
    let mut lines = vec![
        said("selected", format!("{by}by held-out returns of {rows} rows in {pieces} pieces")),
        said("lambda", selection.lambdas.iter().map(of_lambda).collect::<Vec<String>>().join(", ")),
    ];
    lines.extend(selection.candidates.iter().map(|candidate| {
        let [score, lambda, ridge] = [candidate.score, candidate.lambda, candidate.ridge].map(digits);
        let (name, elements) = (&candidate.name, candidate.elements);
        said("compared", format!("{name}: held-out error {score} at lambda {lambda}, ridge {ridge}, {elements} states"))
    }));
    if let Some(gain) = selection.gain {
        let (gain, error) = (digits(gain), short(selection.standard_error));
        let outcome = if selection.present_stays { "stay" } else { "were beaten" };
        let text = format!(
            "kernel, lambda and ridge {outcome}: the best errs less by {gain}, with a standard error of {error}"
        );
        lines.push(said("present ones", text));
    }
    lines
}

/// How the new model did against the present one.
fn tried(TrialFound { rows, gain, standard_error }: &TrialFound) -> (String, String) {
    let [gain, error] = [*gain, *standard_error].map(digits);
    said(
        "new model",
        format!("errs less by {gain} on {rows} rows that chose neither, with a standard error of {error}"),
    )
}

/// Discount and, where the daemon says it, lambda.
fn discount(discount: f64, lambda: Option<f64>) -> String {
    digits(discount) + &lambda.map(|lambda| format!(", lambda {}", digits(lambda))).unwrap_or_default()
}

/// Lengthscale of each state variable, in its unit and in its standard deviations, and its share of the variance of the value; where no
/// shares are known, what its removal would cost. A row for each state variable, those with the largest shares first, or for the `most` of
/// them; without shares for those with the shortest lengthscales in deviations.
fn variables(model: &ModelStatus, (shares, found): (&[Option<f64>], Option<&RefitFound>), most: usize) -> String {
    let ModelStatus { kernel, inputs, .. } = model;
    let factors = || kernel.factors.iter().flatten();
    let directions = |i: usize| -> f64 { factors().filter_map(|factor| factor.get(i)).map(|f| f * f).sum() };
    let precision = |i: usize| kernel.relevance.of(i) + directions(i);
    let row = |(i, &scale): (usize, &f64)| {
        let (own, directions) = (kernel.relevance.of(i), directions(i));
        let kind = kernel.kinds.get(i).copied().unwrap_or_default();
        let unit = match kind {
            StateKind::Real | StateKind::Bent(_) => Some(scale * kind.unit()),
            StateKind::Periodic(period) => Some(period / std::f64::consts::TAU),
            StateKind::Category => None,
        };
        let in_deviations = match kind.unit() / (own + directions).sqrt() {
            length if length.is_finite() => digits(length),
            _ => "–".into(),
        };
        let name = name_of_state(inputs.names.as_deref(), i);
        let length = match unit.map(|unit| unit / (own + directions).sqrt()) {
            Some(length) if length.is_finite() => digits(length),
            _ if own > 0.0 => "category".into(),
            _ => "not used".into(),
        };
        let share = |share: &f64| percent(*share);
        let support = match shares {
            [] => short(found.and_then(|found| found.evidence_drop.get(i).copied().flatten())),
            shares => shares.get(i).and_then(Option::as_ref).map_or("–".into(), share),
        };
        vec![name, length, in_deviations, support]
    };
    let dim = inputs.scale.len();
    let mut shown: Vec<usize> = (0..dim).collect();
    if !shares.is_empty() {
        let share = |i: usize| shares.get(i).copied().flatten().unwrap_or(-1.0);
        shown.sort_by(|&a, &b| {
            share(b).total_cmp(&share(a)).then(precision(b).total_cmp(&precision(a))).then(a.cmp(&b))
        });
        shown.truncate(most);
    } else if dim > most {
        shown.sort_by(|&a, &b| precision(b).total_cmp(&precision(a)).then(a.cmp(&b)));
        shown.truncate(most);
        shown.sort_unstable();
    }
    let rows: Vec<Vec<String>> = shown.into_iter().map(|i| row((i, &inputs.scale[i]))).collect();
    if rows.is_empty() {
        return String::new();
    }
    let last = if shares.is_empty() { "evidence drop, nats" } else { "share of the variance" };
    let table = columns(&["variable", "lengthscale", "in deviations", last], &rows);
    if dim > most { format!("{table}and {} more variables: criticd status\n", dim - most) } else { table }
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

    fn of(status: serde_json::Value) -> wire::Status {
        wire::Status::from_json(&status).unwrap()
    }

    #[test]
    fn durations_have_two_parts() {
        assert_eq!([3.21, 75.0, 7260.0, 90_061.0].map(duration), ["3.2 s", "1 min 15 s", "2 h 1 min", "1 d 1 h"]);
    }

    #[test]
    fn trust_is_said_in_the_words_of_the_page_on_a_narrow_screen() {
        let reason = json!({"level": "warn", "text": "values are too low by 0.3 on average", "remedy": "See the worst states on the page. Do it."});
        let trust = json!([
            {"level": "warn", "sign": "▲", "title": "Believe the values with care", "sentence": "Returns of energy were predicted to within 0.4 J (rms).",
             "reasons": [reason, reason]},
            {"level": "good", "sign": "●", "title": "The values can be believed", "sentence": "Returns of comfort were predicted to within 2 (rms)."},
        ]);
        let status = of(json!({"critics": [{"name": "a", "trust": trust}, {"name": "b"}]}));
        let text = summary(&status, "tcp://h:1", Room::ALL);
        let told = "critic a\n\
                    ▲ Believe the values with care. Returns of energy were predicted to within 0.4\n  \
                      J (rms).\n  \
                      – values are too low by 0.3 on average. See the worst states on the page. Do\n    \
                        it.\n";
        assert!(text.contains(told), "{text}");
        let good = "● The values can be believed. Returns of comfort were predicted to within 2\n  (rms).\n";
        assert!(text.contains(good), "{text}");
        assert!(text.contains("critic b\n○ Nothing says yet whether to believe the values."), "{text}");
        let short = summary(&status, "tcp://h:1", Room::of_screen(24));
        assert!(short.contains("Do\n    it.\n  – and 1 more: criticd status\n● The"), "{short}");
        assert!(line(&status).contains("score –, trust warn; b: ") && !line(&status).ends_with("trust"));
        let table = table(&status.critics, &StatusPast::default(), 10);
        let [a, b] = ["a ", "b "].map(|name| table.lines().find(|line| line.starts_with(name)).unwrap());
        assert!(a.contains("▲") && b.contains("○"), "{table}");
    }

    #[test]
    fn a_summary_shows_what_is_there() {
        let chosen = json!({"name": "d", "dictionary_size": 7, "kernel": {"kind": "ard", "profile": "matern52", "relevance": [4.0], "signal_variance": 1.0,
            "bias_variance": 0.0}, "held_out_error": 0.381, "log_evidence": null,
            "returns": {"factor": 1.25, "pairs": 431, "coverage": 0.82},
            "drift": {"changed_at": 4000, "alarms": 1, "last": {"since": 4000, "statistic": "lower", "size": 2.0}},
            "refit": {"last": {"outcome": "adopted", "trigger": "rows", "selection": {"rows": 900, "pieces": 12, "score": 0.381,
             "gain": 0.002, "standard_error": 0.003, "present_stays": true,
             "lambdas": [{"lambda": 0.5, "score": 1.0}, {"lambda": 1.0, "score": 1.121}],
             "candidates": [{"name": "ard 1", "lambda": 0.5, "ridge": 0.3, "score": 0.379, "elements": 270}]}}}});
        let status = of(json!({"version": "1", "offset": 5, "rejected": {"not_finite": 2}, "time": 10.0, "streams": 3,
        "read_only": "no space left", "journal": {"checkpoint_failure": "over quota"},
        "recent_streams": {"arm": {"next_seq": 5, "rows": 5, "last_seen": 6.5}},
        "critics": [
            {"name": "a", "dictionary_size": 0, "kernel": {"kind": "ard", "relevance": [4.0], "signal_variance": 1.0, "bias_variance": 0.0},
             "inputs": {"scale": [2.0], "names": ["angle"]}, "generation": 3,
             "refit": {"last": {"outcome": "rejected", "reason": "too late", "trigger": "rows", "evidence_drop": [99.5]}}},
            {"name": "b"},
            {"name": "c", "dictionary_size": 7, "kernel": {"kind": "ard", "relevance": [4.0], "signal_variance": 1.0, "bias_variance": 0.0},
             "inputs": {"scale": [2.0]}, "refit": {"last": {"outcome": "adopted", "trigger": "rows", "evidence_drop": [12.5]}}},
            chosen,
        ]}));
        let text = summary(&status, "tcp://h:1", Room::ALL);
        for words in [
            // What was found of a model that was rejected is not said of the one that stays.
            "angle               1            0.5                    –",
            "state_0             1            0.5                 12.5",
            "refused     2 not_finite",
            "read-only   no row is taken: no space left",
            "checkpoint  could not be written: over quota",
            "rejected: too late",
            "held-out error  none: no refit has selected a model since the start",
            "held-out error  0.381; a constant has 1",
            "lambda          0.5 best, 1 +12.1 %",
            "ard 1: held-out error 0.379 at lambda 0.5, ridge 0.3, 270 states",
            "kernel, lambda and ridge stay: the best errs less by 0.002, with a standard error of 0.003",
            "ard, matern52, signal variance 1",
            "90 % intervals held 82 % of the returns",
            "change          errors lower by 2 since about row 4000: the model has learned the rows since then",
            "critic b\n",
            "none yet",
            "arm            4     5  3.5 s ago",
            "and 2 more",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert_eq!(line(&status).lines().count(), 1);
        let start = "5 rows, 0 per second, 3 streams, READ-ONLY: no space left; a: generation 3, ";
        assert!(line(&status).starts_with(start), "{}", line(&status));
        assert!(line(&status).contains("dictionary 7, held-out error 0.381, score –"), "{}", line(&status));
    }

    #[test]
    fn heads_take_one_line_however_many_there_are() {
        let line = |heads: serde_json::Value| {
            let text = summary(&of(json!({"critics": [{"name": "a", "heads": heads}]})), "tcp://h:1", Room::ALL);
            text.lines().find_map(|line| line.strip_prefix("heads ")).expect("a line").trim_start().to_owned()
        };
        let worst = json!([{"name": "knee", "coverage": 0.35}, {"name": "hip", "coverage": 0.5}]);
        let heads = json!({"count": 600, "learning": 2, "unsolved": 1, "verified": 500, "coverage": 0.875,
            "unexplained_max": 1.25, "worst": worst});
        let words = "600, 2 learning retained rows, 1 without an answer; 90 % intervals of 500 held 88 % of the returns, \
                     of knee 35 %; unexplained variance at most 1.25";
        assert_eq!((line(heads), line(json!({"count": 3}))), (words.to_owned(), "3".to_owned()));
    }

    #[test]
    fn a_screen_has_room_for_any_dimension() {
        let relevance: Vec<f64> = (0..300).map(|d| f64::from(d * 7 % 300)).collect();
        let status = of(json!({"recent_streams": {"arm": {"next_seq": 5, "rows": 5, "last_seen": 6.5}}, "critics": [
            {"name": "a", "dictionary_size": 7, "inputs": {"scale": vec![1.0; 300]},
             "kernel": {"kind": "ard", "relevance": relevance, "signal_variance": 1.0, "bias_variance": 0.0},
             "refit": {"last": {"outcome": "adopted", "trigger": "rows", "relevance_report": vec!["one"; 300]}}}]}));
        let lines = |room| summary(&status, "tcp://h:1", room).lines().count();
        let screen = Room::of_screen(50);
        assert!(lines(screen) < 50 && lines(Room::ALL) > 600, "{} {}", lines(screen), lines(Room::ALL));
        let text = summary(&status, "tcp://h:1", screen);
        for words in ["and 292 more variables", "and 297 more: criticd status", "state_257", "arm "] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert!(!text.contains("state_3 "), "{text}");

        // Where shares are known they choose, as on the page.
        let mut shares = vec![Some(0.0); 300];
        (shares[3], shares[257], shares[8]) = (Some(0.75), Some(0.25), None);
        let mut status = status;
        status.critics[0].shares = shares;
        let text = summary(&status, "tcp://h:1", screen);
        let place = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words}\n{text}"));
        assert!(
            place("share of the variance") < place("state_3 ") && place("state_3 ") < place("state_257 "),
            "{text}"
        );
        assert!(
            text.contains("75 %") && text.contains("and 292 more variables") && !text.contains("state_8 "),
            "{text}"
        );
    }

    #[test]
    fn a_view_has_as_many_lines_as_the_screen_at_most() {
        let kernel = json!({"kind": "ard", "relevance": vec![1.0; 348], "signal_variance": 1.0, "bias_variance": 0.0});
        let model = |name: &str, recent: f64| {
            json!({"name": name, "dictionary_size": 7, "inputs": {"scale": vec![1.0; 348]}, "kernel": kernel,
             "score": 1.0, "score_recent": recent})
        };
        let streams = json!({"arm": {"next_seq": 5, "rows": 5, "last_seen": 6.5}});
        let one = of(json!({"recent_streams": streams, "critics": [model("main", 1.0)]}));
        let mut critics: Vec<_> = (0..100).map(|k| model(&format!("c{k}"), if k == 57 { -3.0 } else { 1.0 })).collect();
        critics[80]["failed"] = json!("a reason");
        let many = of(json!({"recent_streams": streams, "critics": critics}));
        for status in [&one, &many] {
            let mut past = StatusPast::default();
            past.push(status);
            for lines in [10, 24, 50, 200] {
                let text = view(status, "tcp://h:1", &past, lines);
                assert!(text.lines().count() <= lines, "{lines}\n{text}");
                assert!(text.ends_with("\nCtrl-C ends this\n") && text.contains("rows per second"), "{text}");
                assert!(lines < 24 || text.contains("arm "), "{text}");
            }
        }
        let mut past = StatusPast::default();
        past.push(&many);
        let text = view(&many, "tcp://h:1", &past, 24);
        let place = |name: &str| text.find(&format!("\n{name} ")).unwrap_or_else(|| panic!("{name}\n{text}"));
        assert!(place("c80") < place("c57") && place("c57") < place("c0"), "the worst first\n{text}");
        assert!(text.contains("FAILED") && text.contains(" more critics\n"), "{text}");
        assert!(view(&many, "tcp://h:1", &past, 200).contains("c99"));
    }

    #[test]
    fn a_view_of_many_critics_says_why_the_least_trusted_is_not_to_be_believed() {
        let trust = |level: &str, sign: &str, words: &str| {
            let reason = json!({"level": level, "text": format!("values of {words} are too low by 0.3 on average"),
             "remedy": "See the worst states on the page, and add what tells them apart to the state."});
            let reasons = if level == "good" { json!([]) } else { json!([reason, reason]) };
            json!([{"level": level, "sign": sign, "title": "A title", "sentence": format!("A sentence of {words}."),
             "reasons": reasons}])
        };
        let mut critics: Vec<_> = (0..20).map(|k| json!({"name": format!("c{k}")})).collect();
        critics[3]["trust"] = trust("good", "●", "comfort");
        critics[5]["trust"] = trust("warn", "▲", "energy");
        critics[7]["trust"] = trust("bad", "■", "wear");
        let told = |critics: &[serde_json::Value], lines: usize| {
            let streams = json!({"arm": {"next_seq": 5, "rows": 5, "last_seen": 6.5}});
            let status = of(json!({"recent_streams": streams, "critics": critics}));
            let mut past = StatusPast::default();
            past.push(&status);
            view(&status, "tcp://h:1", &past, lines)
        };
        for lines in [10, 16, 20, 23, 50] {
            let text = told(&critics, lines);
            assert!(text.starts_with("■ c7, the least trusted: A title. A sentence of wear.\n"), "{lines}\n{text}");
            assert!(text.lines().count() <= lines && text.ends_with("\nCtrl-C ends this\n"), "{lines}\n{text}");
            assert!(lines < 20 || (text.contains("\nc7 ") && text.contains("arm ")), "{lines}\n{text}");
            assert!(!(20..50).contains(&lines) || text.contains(" more critics\n"), "{lines}\n{text}");
        }
        let text = told(&critics, 50);
        let reason = "  – values of wear are too low by 0.3 on average. See the worst states on the\n    page, and add";
        assert!(text.contains(reason) && text.matches("\n  – ").count() == 1 && text.contains("window"), "{text}");
        let place = |name: &str| text.find(&format!("\n{name} ")).unwrap_or_else(|| panic!("{name}\n{text}"));
        assert!(place("c7") < place("c5") && place("c5") < place("c0"), "the worst first\n{text}");
        assert!(told(&critics[..6], 50).starts_with("▲ c5, the least trusted: "));
        assert!(told(&critics[..5], 50).starts_with("● c3, the least trusted: "));
        assert!(told(&critics[..3], 50).starts_with("criticd "), "nothing is said of these");
        assert_eq!(
            (beginning("a\nb\nc\n", 2), beginning("a\n", 2), beginning("", 2)),
            ("a\nb …\n".into(), "a\n".into(), String::new())
        );
    }

    #[test]
    fn sparklines_span_what_they_show() {
        assert_eq!(sparkline(&[0.0, 3.5, 7.0, f64::NAN].into()), "▁▅█ ");
        assert_eq!(sparkline(&[2.0, 2.0].into()), "▄▄");
        let mut past = StatusPast::default();
        (0..100).for_each(|k| {
            past.push(&of(json!({"rows_per_second": k, "critics": [{"name": "a", "score_recent": null}]})))
        });
        assert_eq!((past.rows.len(), past.rows[0], past.critics.len()), (PAST, 40.0, 1));
        let mut past = StatusPast::default();
        for error in [0.5, 1.0] {
            past.push(&of(json!({"critics": [{"name": "a", "trust": [{"error": error, "coverage": 0.91}]}]})));
        }
        let lines = past.lines(true);
        assert!(lines.contains("error            ▁█ 1\n") && lines.contains("in 90 % interval ▄▄ 91 %\n"), "{lines}");
    }
}
