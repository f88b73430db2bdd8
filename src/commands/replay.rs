//! `criticd replay`.

use super::client::Connection;
use super::given::{TABLES, TableOptions};
use super::output::note;
use super::{Failure, print};
use crate::client::{ClientError, Requester, Sender, Subscriber};
use crate::config::ConfigParts;
use crate::table::Table;
use crate::transition::{Batch, BatchParts};
use crate::wire::events::RejectedStream;
use crate::wire::{self, DatedEvent, Event, Status};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Rows of one message, at most.
const BATCH: usize = 256;
/// Messages per second at a low rate.
const MESSAGES_HZ: f64 = 20.0;
/// Appends that may be open at a time.
const WINDOW: usize = 32;
/// How long the daemon may take to answer one, or to take the rest at the end.
const PATIENCE: Duration = Duration::from_secs(60);
/// An overloaded daemon that does not say how long to wait.
const RETRY: Duration = Duration::from_millis(50);
/// Interval of the questions how many rows are learned.
const ASK_INTERVAL: Duration = Duration::from_millis(50);
/// Rows that have not been learned this long after the one before, while none waits, were refused. The daemon announces refusals
/// and counts what waits once a second.
const SETTLED: Duration = Duration::from_secs(3);
/// How often a batch is sent again before this gives up.
const ATTEMPTS: u32 = 100;

/// Send a table of transitions to a running daemon
///
/// Each replay is a new session, so the daemon learns the rows again. Without --ack the rows go to the ingest socket, as fast
/// as it reads them; the command ends when the daemon has learned them, with exit status 1 if it has refused some. With --ack
/// they go to the control socket, and the daemon acknowledges each message. A table without a column `stream` becomes a stream
/// with the name of its file, without the ending.
#[derive(Debug, clap::Args)]
#[command(
    after_help = format!(
        "Examples:\n  criticd replay runs.csv\n  criticd replay hopper.hdf5\n  criticd replay runs.csv --ack --rate 100\n  criticd replay runs.csv --to tcp://127.0.0.1:6000 --stream-prefix old/\n\n{TABLES}"
    )
)]
pub(crate) struct Replay {
    #[command(flatten)]
    table: TableOptions,
    #[command(flatten)]
    connection: Connection,
    /// Target: the ingest endpoint, or with --ack the control endpoint [default: the running daemon's]
    #[arg(long, value_name = "ENDPOINT")]
    to: Option<String>,
    /// Rows per second [default: as fast as the daemon reads them]
    #[arg(long, value_name = "HZ")]
    rate: Option<f64>,
    /// Wait for acknowledgements, and resend messages that the daemon had no room for
    #[arg(long)]
    ack: bool,
    /// Prefix for the name of every stream
    #[arg(long, value_name = "TEXT", default_value = "")]
    stream_prefix: String,
    /// Name of the session [default: replay-<TIME>]
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
}

impl Replay {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if self.rate.is_some_and(|rate| !(rate > 0.0 && rate.is_finite())) {
            return Err(Failure::usage("--rate must be positive"));
        }
        let as_usage = |failure: Failure| Failure { usage: true, ..failure };
        if self.table.dry(false).map_err(as_usage)? {
            return Ok(());
        }
        let table = self.table.read().map_err(as_usage)?;
        let agreed = format!(
            "their codes must be the ones that all who send rows use. Say them in a file for --columns, such as categories = {}",
            serde_json::to_string(&table.categories().0).unwrap_or_default()
        );
        self.table.refuse_new_texts(&table, &agreed).map_err(as_usage)?;
        let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        let session = self.session.clone().unwrap_or_else(|| format!("replay-{nanoseconds}"));
        let rows_max = self.rate.map_or(BATCH, |rate| ((rate / MESSAGES_HZ) as usize).clamp(1, BATCH));
        if session.len() > 256 || table.streams().iter().any(|s| self.stream(&table, s).len() > 256) {
            return Err(Failure::usage("names of streams and sessions have at most 256 bytes"));
        }
        let batches = renumbered(table.batches(&session, rows_max).collect(), &|name| self.stream(&table, name));
        let rows = batches.iter().map(|batch| batch.len() as u64).sum::<u64>();
        let bar = ProgressBar::new(rows);
        let style =
            ProgressStyle::with_template("{bar:40.cyan/dim} {human_pos} of {human_len} rows · {per_sec} · {eta} left");
        bar.set_style(style.expect("the template is sound").progress_chars("━━╌"));
        let pace = ReplayPace { bar, rate: self.rate, started: Instant::now(), offered: 0, done: 0 };
        let started = Instant::now();
        let said = if self.ack { self.append(&batches, pace)? } else { self.push(&batches, pace)? };
        let seconds = started.elapsed().as_secs_f64();
        print(&format!("{said} as session {session}, {:.0} rows/s\n", rows as f64 / seconds.max(1e-9)))
    }

    /// What a stream of the table is called on the wire: the one of a table that names none, after its file.
    fn stream(&self, table: &Table, name: &str) -> String {
        let named = table.understood().roles.iter().any(|(what, _)| *what == "stream");
        let path = &self.table.table;
        let stem = if path.is_dir() { path.file_name() } else { path.file_stem() };
        let stem = stem.map(|stem| stem.to_string_lossy()).filter(|stem| !stem.is_empty());
        match stem {
            Some(stem) if !named && name == "default" => format!("{}{stem}", self.stream_prefix),
            _ => format!("{}{name}", self.stream_prefix),
        }
    }

    fn push(&self, batches: &[Batch], mut pace: ReplayPace) -> Result<String, Failure> {
        let default = || self.connection.endpoint("ingest", ConfigParts::default().ingest);
        let ingest = self.to.clone().unwrap_or_else(default);
        let control = self.connection.control_beside(self.to.as_deref());
        let mut arrivals = control.map(|control| Arrivals::expect(&control, &self.connection, batches)).transpose()?;
        let sender = Sender::connect(&ingest, self.connection.timeout())?;
        for batch in batches {
            pace.wait(batch);
            sender.send(wire::encode_ingest(batch))?;
            pace.offer(batch);
        }
        sender.close(PATIENCE)?;
        let rows = pace.offered;
        let learned =
            arrivals.as_mut().map(|arrivals| arrivals.wait(rows, &mut |done| pace.reach(done))).transpose()?;
        pace.bar.finish_and_clear();
        match learned {
            Some(learned) if learned >= rows => Ok(format!("{rows} rows learned")),
            Some(learned) => {
                let reasons = arrivals.map(|mut arrivals| arrivals.reasons()).transpose()?.unwrap_or_default();
                Err(Failure::new(format!("{rows} rows were sent and {learned} learned; {reasons}")))
            }
            None => {
                note("--control says where to ask whether the rows are learned");
                Ok(format!("{rows} rows sent"))
            }
        }
    }

    /// Send with a window of open requests. A batch that found no room stops the window; what comes after it is refused
    /// or known, so everything from there is sent again.
    fn append(&self, batches: &[Batch], mut pace: ReplayPace) -> Result<String, Failure> {
        let endpoint = self.to.clone().unwrap_or_else(|| self.connection.control());
        let mut requester = Requester::connect(&endpoint, self.connection.timeout())?;
        let mut open: VecDeque<(u64, usize)> = VecDeque::new();
        let (mut next, mut attempts) = (0, 0);
        while next < batches.len() || !open.is_empty() {
            if next < batches.len() && open.len() < WINDOW {
                pace.wait(&batches[next]);
                open.push_back((requester.post_append(&batches[next])?, next));
                next += 1;
                continue;
            }
            let (id, index) = open.pop_front().expect("the window is full or the table at its end");
            match requester.reply(id, PATIENCE) {
                Ok(_) => {
                    attempts = 0;
                    pace.step(&batches[index]);
                }
                Err(ClientError::Refused(refusal)) if refusal.code == "overloaded" && attempts < ATTEMPTS => {
                    attempts += 1;
                    for (id, _) in open.drain(..) {
                        // They are sent again whatever became of them.
                        let _ = requester.reply(id, PATIENCE);
                    }
                    std::thread::sleep(refusal.retry_after_ms.map_or(RETRY, Duration::from_millis));
                    next = index;
                }
                Err(error) => return Err(error.into()),
            }
        }
        pace.bar.finish_and_clear();
        Ok(format!("{} rows acknowledged", pace.done))
    }
}

/// What the daemon says about the rows that are under way to its ingest, which sends no answers.
struct Arrivals {
    requester: Requester,
    /// Names of the streams, and rows that the daemon had learned from them before.
    streams: Vec<String>,
    before: u64,
    /// Messages that it had refused before, by code.
    refused: BTreeMap<String, u64>,
    /// What it publishes about those that it refuses.
    events: Option<Subscriber>,
    session: String,
}

impl Arrivals {
    /// How many names one request has.
    const NAMES: usize = 1024;

    fn expect(control: &str, connection: &Connection, batches: &[Batch]) -> Result<Self, Failure> {
        let requester = Requester::connect(control, connection.timeout())?;
        let names: BTreeSet<&str> = batches.iter().map(Batch::stream).collect();
        // Without it only the codes of refusals are known.
        let publish = connection.endpoint("publish", ConfigParts::default().publish);
        let events = Subscriber::connect(&publish, &["event.rejected"], connection.timeout()).ok();
        let session = batches.first().map_or(String::new(), |batch| batch.session().to_owned());
        let streams = names.into_iter().map(str::to_owned).collect();
        let mut arrivals = Self { requester, streams, before: 0, refused: BTreeMap::new(), events, session };
        arrivals.refused = arrivals.status()?.rejected;
        arrivals.before = arrivals.learned()?;
        Ok(arrivals)
    }

    /// The daemon's status; an empty one without the right to ask for it.
    fn status(&mut self) -> Result<Status, Failure> {
        match self.requester.status(PATIENCE) {
            Err(ClientError::Refused(_)) => Ok(Status::default()),
            status => Ok(status?),
        }
    }

    /// Rows learned from the streams.
    fn learned(&mut self) -> Result<u64, Failure> {
        let mut rows = 0;
        for names in self.streams.chunks(Self::NAMES) {
            let reply = self.requester.ask("streams", json!({"names": names}), PATIENCE)?;
            let positions = reply["streams"].as_object().into_iter().flatten();
            rows += positions.filter_map(|(_, position)| position["rows"].as_u64()).sum::<u64>();
        }
        Ok(rows.saturating_sub(self.before))
    }

    /// Wait until `rows` rows are learned, or nothing more comes. Returns how many are.
    fn wait(&mut self, rows: u64, progress: &mut dyn FnMut(u64)) -> Result<u64, Failure> {
        let (mut most, mut since) = (0, Instant::now());
        loop {
            let learned = self.learned()?;
            progress(learned);
            if learned >= rows {
                return Ok(learned);
            }
            if learned > most {
                (most, since) = (learned, Instant::now());
            }
            // The number of waiting messages is as of the last second.
            if since.elapsed() > SETTLED && self.status()?.queues.ingest.waiting == 0 {
                return Ok(learned);
            }
            std::thread::sleep(ASK_INTERVAL);
        }
    }

    /// Why rows were refused, as far as the daemon says.
    fn reasons(&mut self) -> Result<String, Failure> {
        let now = self.status()?.rejected;
        let mut reasons: Vec<String> = Vec::new();
        for (code, count) in now {
            let count = count - self.refused.get(&code).copied().unwrap_or(0).min(count);
            if count > 0 {
                reasons.push(format!("{count} messages refused as {code}"));
            }
        }
        let mut messages = BTreeSet::new();
        while let Some((_, payload)) =
            self.events.as_ref().and_then(|events| events.receive(ASK_INTERVAL).ok().flatten())
        {
            let Event::Rejected(rejected) = DatedEvent::from_json(&wire::to_json(&payload)?)?.event else { continue };
            let is_ours = |refused: &RejectedStream| refused.session.as_deref() == Some(self.session.as_str());
            messages.extend(rejected.streams.into_iter().filter(is_ours).map(|refused| refused.message));
        }
        reasons.extend(messages);
        if reasons.is_empty() {
            reasons.push("the daemon does not say why the others are missing".to_owned());
        }
        reasons.push("`criticd quarantine list` shows what was refused".to_owned());
        Ok(reasons.join("; "))
    }
}

/// Progress, and waiting for the next message's turn.
struct ReplayPace {
    bar: ProgressBar,
    rate: Option<f64>,
    started: Instant,
    /// Rows whose turn has come, and rows that have arrived as far as this side knows.
    offered: u64,
    done: u64,
}

impl ReplayPace {
    fn wait(&mut self, batch: &Batch) {
        self.offered += batch.len() as u64;
        if let Some(rate) = self.rate {
            let due = Duration::from_secs_f64(self.offered as f64 / rate);
            std::thread::sleep(due.saturating_sub(self.started.elapsed()));
        }
    }

    /// A batch is acknowledged.
    fn step(&mut self, batch: &Batch) {
        self.reach(self.done + batch.len() as u64);
    }

    /// A batch is sent; half of the way, as far as the bar goes.
    fn offer(&mut self, batch: &Batch) {
        self.done += batch.len() as u64;
        self.bar.set_position(self.done / 2);
    }

    /// Note how many rows have arrived.
    fn reach(&mut self, rows: u64) {
        self.done = rows;
        self.bar.set_position(rows);
    }
}

/// The batches with their streams called what `name` says, and rows numbered from 0 in each stream, since a session has no
/// gaps. Where the table has one, the row before it is truncated instead: that ends the chain just as well.
fn renumbered(batches: Vec<Batch>, name: &dyn Fn(&str) -> String) -> Vec<Batch> {
    let mut parts: Vec<BatchParts> = Vec::with_capacity(batches.len());
    // Of each stream: its last batch, the number that should follow in the table, the next number here.
    let mut streams: HashMap<String, (usize, u64, u64)> = HashMap::new();
    for batch in &batches {
        let (len, first) = (batch.len() as u64, batch.seq().unwrap_or(0));
        let number = match streams.get(batch.stream()) {
            None => 0,
            Some(&(last, expected, number)) => {
                if expected != first {
                    let before: &mut BatchParts = &mut parts[last];
                    let ended = before.terminated.as_ref().and_then(|t| t.last()) == Some(&true);
                    if let Some(flag) = before.truncated.as_mut().and_then(|t| t.last_mut()).filter(|_| !ended) {
                        *flag = true;
                    }
                }
                number
            }
        };
        streams.insert(batch.stream().to_owned(), (parts.len(), first + len, number + len));
        let mut copy = BatchParts { stream: name(batch.stream()), seq: Some(number), ..batch.clone().into_parts() };
        copy.truncated.get_or_insert_with(|| vec![false; batch.len()]);
        parts.push(copy);
    }
    parts.into_iter().map(|parts| Batch::new(parts).expect("its rows were checked before")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{batches, walk::Walk};

    #[test]
    fn what_rows_say_about_policies_is_sent() {
        let batch = Batch::new(BatchParts {
            stream: "s".into(),
            seq: Some(3),
            dim: 1,
            rewards_per_row: 1,
            states: vec![0.0, 1.0, 2.0],
            rewards: vec![1.0, 2.0],
            behavior_probs: Some(vec![0.5, 0.25]),
            target_probs: Some(vec![0.75, 0.0]),
            next_actions: Some(vec![1.0, 2.0]),
            next_action_probs: Some(vec![0.5, 0.5, 1.0, 0.0]),
            policy: Some("step-1".into()),
            times: Some(vec![1.5, 2.5]),
            ..BatchParts::default()
        });
        let batch = batch.unwrap();
        let sent = renumbered(vec![batch.clone()], &str::to_owned);
        assert!((0..2).all(|i| sent[0].fingerprint(i) == batch.fingerprint(i)));
        assert_eq!((sent[0].policy(), sent[0].time(1)), (Some("step-1"), Some(2.5)));
    }

    #[test]
    fn gaps_become_truncations_and_numbers_start_at_zero() {
        let mut walk = Walk::new(3, None, 0.1);
        let steps: Vec<_> = (0..200).map(|_| walk.step()).skip(20).collect();
        let before = batches("w", "s", &steps);
        let after = renumbered(before.clone(), &|name| format!("old/{name}"));
        let mut seq = 0;
        for (i, (b, a)) in before.iter().zip(&after).enumerate() {
            assert_eq!((a.stream(), a.session(), a.seq(), a.len()), ("old/w", "s", Some(seq), b.len()));
            assert_eq!(a.truncated(a.len() - 1), i + 1 < before.len(), "the last row of batch {i}");
            assert_eq!((a.state(0), a.action(0), a.reward(0)), (b.state(0), b.action(0), b.reward(0)));
            seq += a.len() as u64;
        }
        assert!(before.len() > 5 && seq == 180);
    }
}
