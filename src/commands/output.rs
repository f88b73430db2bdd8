//! What commands print: aligned text for people, one JSON document for programs, progress on standard error.

use super::Failure;
use crate::whole_file::OutputFile;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Work that is done sooner shows no progress.
const PATIENCE: Duration = Duration::from_secs(1);
/// Interval of changes to a spinner.
const TICK: Duration = Duration::from_millis(100);
/// Steps of a bar that goes by a part of the whole.
const STEPS: u64 = 1000;

/// Six significant digits.
pub(super) fn number(value: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    if !(1e-4..1e7).contains(&magnitude) {
        return format!("{value:.5e}");
    }
    let decimals = (5 - magnitude.log10().floor() as i32).max(0) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A number with four digits.
pub(super) fn digits(value: f64) -> String {
    number(format!("{value:.3e}").parse().unwrap_or(value))
}

/// A share in per cent, such as one of the variance of the value.
pub(super) fn percent(share: f64) -> String {
    if share < 0.01 { "< 1 %".to_owned() } else { format!("{:.0} %", 100.0 * share) }
}

/// A time in Unix seconds, for people.
pub(super) fn moment(unix: f64) -> String {
    let seconds = unix.clamp(0.0, Timestamp::MAX.as_second() as f64) as i64;
    let moment = Timestamp::from_second(seconds).unwrap_or_default();
    moment.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// Lines of a label and what it says, aligned; an empty label goes on with the one before.
pub(super) fn facts(lines: &[(String, String)]) -> String {
    let width = lines.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    lines.iter().map(|(label, text)| format!("{label:width$}  {}\n", on_one_line(text))).collect()
}

/// Columns under their heads, each right-aligned but the first of text.
pub(super) fn columns(heads: &[&str], rows: &[Vec<String>]) -> String {
    let shown = |row: &Vec<String>| row.iter().map(|text| on_one_line(text).into_owned()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(shown).collect();
    let width = |k: usize| {
        let cells = rows.iter().map(|row| row[k].chars().count());
        cells.chain(std::iter::once(heads[k].chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    // A first column of names reads better from the left.
    let named = rows.iter().any(|row| row[0].starts_with(|c: char| c.is_alphabetic()));
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let cell = |(k, text): (usize, &str)| {
            let width = widths[k];
            if k == 0 && named { format!("{text:width$}") } else { format!("{text:>width$}") }
        };
        cells.enumerate().map(cell).collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let mut out = line(&mut heads.iter().copied());
    for row in &rows {
        out += &line(&mut row.iter().map(String::as_str));
    }
    out
}

/// A text as it may go to a terminal: names come from peers, and must not move its cursor, colour it, or turn its letters around.
/// Such characters become escapes as JSON has them, so that a document stays the same.
pub(super) fn visible(text: &str) -> Cow<'_, str> {
    let hidden = |c: char| {
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        turns || (c.is_control() && c != '\n' && c != '\t')
    };
    if !text.contains(hidden) {
        return Cow::Borrowed(text);
    }
    let escape = |c: char| if hidden(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    Cow::Owned(text.chars().map(escape).collect())
}

/// The same on one line: a name must not look like a line of ours.
fn on_one_line(text: &str) -> Cow<'_, str> {
    match visible(text) {
        plain if !plain.contains(['\n', '\t']) => plain,
        shown => Cow::Owned(shown.replace('\n', "\\n").replace('\t', "\\t")),
    }
}

/// Say something on standard error, as [`visible`] has it.
pub(super) fn note(text: &str) {
    say(&format!("criticd: {text}"));
}

/// Write a line to standard error, as [`visible`] has it. Where that is closed nobody is there to hear it.
pub(super) fn say(line: &str) {
    drop(writeln!(io::stderr(), "{}", visible(line)));
}

/// Whether standard output is the file that a command writes.
static IS_FILE: AtomicBool = AtomicBool::new(false);

/// Where a command writes the file `path`, which must be none of those that it reads.
pub(super) fn output(path: &Path, inputs: &[&Path]) -> Result<OutputFile, Failure> {
    let output = OutputFile::to(path, inputs).map_err(Failure::usage)?;
    IS_FILE.fetch_or(output.is_standard(), Ordering::Relaxed);
    Ok(output)
}

/// Write a file, which must be none of those that the command reads.
pub(super) fn write_file(path: &Path, inputs: &[&Path], bytes: &[u8]) -> Result<(), Failure> {
    Ok(output(path, inputs)?.write(bytes)?)
}

/// Whether what was printed last went to a closed pipe.
static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether nobody reads what is printed any more: what prints without end then ends.
pub(super) fn is_closed() -> bool {
    IS_CLOSED.load(Ordering::Relaxed)
}

/// Print a result, as [`visible`] has it. A closed pipe is no error.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    let text = visible(text);
    let printed = match IS_FILE.load(Ordering::Relaxed) {
        true => io::stderr().lock().write_all(text.as_bytes()),
        false => {
            let mut out = io::stdout().lock();
            // A question does not end its line.
            out.write_all(text.as_bytes()).and_then(|()| out.flush())
        }
    };
    let closed = printed.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::BrokenPipe);
    IS_CLOSED.fetch_or(closed, Ordering::Relaxed);
    if closed { Ok(()) } else { Ok(printed?) }
}

/// Print a result as one JSON document.
pub(super) fn print_json(document: &Value) -> Result<(), Failure> {
    print(&format!("{document:#}\n"))
}

/// A fault in a file, with its name.
pub(super) fn in_file(path: &Path, fault: impl std::fmt::Display) -> Failure {
    Failure::new(format!("{}: {fault}", path.display()))
}

/// How long something takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lasts {
    /// Who knows.
    Unknown,
    /// Until this count, of the work that --budget allows, is full, at most.
    Counts(&'static AtomicU64, u64),
    /// About so long.
    About(Duration),
}

/// What is being done, and since when.
#[derive(Debug)]
struct OutputStage {
    what: String,
    began: Instant,
    lasts: Lasts,
}

impl OutputStage {
    fn new(what: String, lasts: Lasts) -> Self {
        Self { what, began: Instant::now(), lasts }
    }

    /// It, with its share and the time that is left at this pace as far as these are known, after `took`.
    fn text(&self, took: Duration) -> String {
        let (what, took) = (&self.what, took.as_secs_f64());
        let (share, of, most) = match self.lasts {
            Lasts::Unknown => return what.clone(),
            Lasts::Counts(done, of) => (done.load(Ordering::Relaxed) as f64 / of as f64, " of --budget", "at most "),
            Lasts::About(of) => (took / of.as_secs_f64(), "", ""),
        };
        if share < 0.01 {
            what.clone()
        } else if share < 1.0 {
            let left = (took / share - took).round().max(1.0);
            format!("{what}: {:.0} %{of}, {most}about {left} s left", (100.0 * share).floor())
        } else {
            format!("{what}: nearly done")
        }
    }
}

/// A spinner on standard error while something takes its time, with the share that is done if that is known; gone when dropped.
/// None shows up where standard error is no terminal.
pub(super) struct Spinner {
    running: Option<(Sender<()>, JoinHandle<()>)>,
    /// Parts of a hundred that are done; more if that is not known.
    share: Arc<AtomicU64>,
    stage: Arc<Mutex<OutputStage>>,
}

impl Spinner {
    pub(super) fn start(message: &str) -> Self {
        let share = Arc::new(AtomicU64::new(u64::MAX));
        let stage = Arc::new(Mutex::new(OutputStage::new(message.to_owned(), Lasts::Unknown)));
        if !io::stderr().is_terminal() {
            return Self { running: None, share, stage };
        }
        let (sender, done) = channel();
        let (shown, known) = (Arc::clone(&stage), Arc::clone(&share));
        let text = move || {
            let stage = shown.lock();
            let text = stage.text(stage.began.elapsed());
            match known.load(Ordering::Relaxed) {
                share @ ..=100 => format!("{text} {share} %"),
                _ => text,
            }
        };
        let show = move || {
            if done.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
                let bar = ProgressBar::new_spinner().with_message(text()).with_elapsed(PATIENCE);
                bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
                bar.enable_steady_tick(TICK);
                // The sender never sends: this ends when it is dropped.
                while done.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                    bar.set_message(text());
                }
                bar.finish_and_clear();
            }
        };
        // No progress is no reason to fail.
        let running = std::thread::Builder::new().name("progress".into()).spawn(show).ok();
        Self { running: running.map(|thread| (sender, thread)), share, stage }
    }

    /// From now on stage `k` of `of` runs. How long the one before took.
    pub(super) fn stage(&self, (k, of): (usize, usize), what: &str, lasts: Lasts) -> Duration {
        let next = OutputStage::new(format!("{k} of {of}, {what}"), lasts);
        std::mem::replace(&mut *self.stage.lock(), next).began.elapsed()
    }

    /// So much is done, of `of`.
    pub(super) fn advance(&self, done: u64, of: u64) {
        self.share.store(100 * done.min(of) / of.max(1), Ordering::Relaxed);
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.running.take() {
            drop(sender);
            drop(thread.join());
        }
    }
}

/// How far a file is read, on standard error: a bar if that is a terminal, else one line at the end; nothing if it takes
/// less than a second.
pub(super) struct ReadProgress<'a> {
    path: &'a Path,
    started: Instant,
    bar: Option<ProgressBar>,
}

impl<'a> ReadProgress<'a> {
    pub(super) fn start(path: &'a Path) -> Self {
        Self { path, started: Instant::now(), bar: None }
    }

    pub(super) fn show(&mut self, progress: crate::table::Progress) {
        let elapsed = self.started.elapsed();
        if elapsed < PATIENCE || !io::stderr().is_terminal() {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("{bar:40.cyan/dim} {msg}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(STEPS).with_style(style.progress_chars("━━╌"))
        });
        let fraction = progress.fraction.clamp(1e-9, 1.0);
        // By what was done from the start: the bar appears too late to know its own pace.
        let left = elapsed.as_secs_f64() * (1.0 - fraction) / fraction;
        bar.set_message(format!("{} · {left:.0} s left", Self::rate(progress.rows, elapsed)));
        bar.set_position((fraction * STEPS as f64) as u64);
    }

    /// It is read, and has `rows` rows.
    pub(super) fn finish(self, rows: u64) {
        let elapsed = self.started.elapsed();
        match self.bar {
            Some(bar) => bar.finish_and_clear(),
            None if elapsed >= PATIENCE && !io::stderr().is_terminal() => {
                let (path, seconds) = (self.path.display(), elapsed.as_secs_f64());
                note(&format!("{path}: read {} in {seconds:.1} s", Self::rate(rows, elapsed)));
            }
            None => {}
        }
    }

    fn rate(rows: u64, elapsed: Duration) -> String {
        let per_second = rows as f64 / elapsed.as_secs_f64().max(1e-9);
        format!("{} rows · {} rows/s", HumanCount(rows), HumanCount(per_second as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_six_digits() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (-0.001_234_567_8, "-0.00123457"),
            (123_456.78, "123457"),
            (1_234_567.8, "1234568"),
            (0.1 + 0.2, "0.3"),
            (9.999_999_9, "10"),
            (1e-5, "1.00000e-5"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_stage_says_its_share_and_what_is_left_of_it() {
        static SPENT: AtomicU64 = AtomicU64::new(0);
        let s = Duration::from_secs;
        let text = |lasts, took| OutputStage::new("1 of 4, searching".into(), lasts).text(s(took));
        let search = Lasts::Counts(&SPENT, 1000);
        assert_eq!(text(search, 1), "1 of 4, searching");
        SPENT.store(250, Ordering::Relaxed);
        assert_eq!(text(search, 15), "1 of 4, searching: 25 % of --budget, at most about 45 s left");
        SPENT.store(1200, Ordering::Relaxed);
        assert_eq!(text(search, 60), "1 of 4, searching: nearly done");
        assert_eq!(text(Lasts::About(s(30)), 12), "1 of 4, searching: 40 %, about 18 s left");
        assert_eq!(text(Lasts::About(s(30)), 31), "1 of 4, searching: nearly done");
        assert_eq!(text(Lasts::Unknown, 31), "1 of 4, searching");
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (unix, text) in [
            (0.0, "1970-01-01 00:00:00 UTC"),
            (951_782_399.9, "2000-02-28 23:59:59 UTC"),
            (951_782_400.0, "2000-02-29 00:00:00 UTC"),
            (1_000_000_000.0, "2001-09-09 01:46:40 UTC"),
            (4_107_542_400.0, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(moment(unix), text);
        }
    }

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        assert_eq!(visible("a\tb\u{1b}[31m\u{9b}c\u{202e}é\r\n"), "a\tb\\u001b[31m\\u009bc\\u202eé\\u000d\n");
        assert_eq!(facts(&[("name".into(), "a\nb\tc".into())]), "name  a\\nb\\tc\n");
        assert_eq!(columns(&["name"], &[vec!["a\nb".into()]]), "name\na\\nb\n");
        assert!(matches!(visible("plain, and ⟨€⟩\n"), Cow::Borrowed(_)));
        // A document says the same.
        let said: Value = serde_json::from_str(&visible("{\"name\": \"x\u{85}\u{7f}\"}")).unwrap();
        assert_eq!(said["name"], "x\u{85}\u{7f}");
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".into(), "1".into()], vec!["long".into(), "-2.5".into()]];
        assert_eq!(columns(&["", "value"], &rows), "      value\na         1\nlong   -2.5\n");
        assert_eq!(facts(&[("kernel".into(), "ard".into()), (String::new(), "x".into())]), "kernel  ard\n        x\n");
    }
}
