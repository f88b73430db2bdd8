//! `criticd replay`.

use super::client::Connection;
use super::given::{TABLES, TableOptions};
use super::{Failure, print};
use criticd::client::{ClientError, Requester, Sender};
use criticd::config::ConfigParts;
use criticd::transition::{Batch, BatchParts};
use criticd::wire;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::{HashMap, VecDeque};
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
/// How often a batch is sent again before this gives up.
const ATTEMPTS: u32 = 100;

/// Send a table of transitions to a running daemon
///
/// Each replay is a new session, so the daemon learns the rows again. Without --ack the rows go to the ingest socket, as fast
/// as it reads them. With --ack they go to the control socket, and the daemon acknowledges each message.
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
    /// Target: the ingest endpoint, or with --ack the control endpoint [default: those of the running daemon]
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
        let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        let session = self.session.clone().unwrap_or_else(|| format!("replay-{nanoseconds}"));
        let rows_max = self.rate.map_or(BATCH, |rate| ((rate / MESSAGES_HZ) as usize).clamp(1, BATCH));
        if session.len() > 256 || table.streams().iter().any(|s| self.stream_prefix.len() + s.len() > 256) {
            return Err(Failure::usage("names of streams and sessions have at most 256 bytes"));
        }
        let batches = renumbered(table.batches(&session, rows_max).collect(), &self.stream_prefix);
        let rows = batches.iter().map(|batch| batch.len() as u64).sum::<u64>();
        let bar = ProgressBar::new(rows);
        let style =
            ProgressStyle::with_template("{bar:40.cyan/dim} {human_pos} of {human_len} rows · {per_sec} · {eta} left");
        bar.set_style(style.expect("the template is sound").progress_chars("━━╌"));
        let pace = Pace { bar, rate: self.rate, started: Instant::now(), offered: 0, done: 0 };
        let started = Instant::now();
        let said = if self.ack { self.append(&batches, pace)? } else { self.push(&batches, pace)? };
        let seconds = started.elapsed().as_secs_f64();
        print(&format!("{said} as session {session}, {:.0} rows/s\n", rows as f64 / seconds.max(1e-9)))
    }

    fn push(&self, batches: &[Batch], mut pace: Pace) -> Result<String, Failure> {
        let default = || self.connection.endpoint("ingest", ConfigParts::default().ingest);
        let sender = Sender::connect(&self.to.clone().unwrap_or_else(default), self.connection.timeout())?;
        for batch in batches {
            pace.wait(batch);
            sender.send(wire::encode_ingest(batch))?;
            pace.step(batch);
        }
        sender.close(PATIENCE)?;
        pace.bar.finish_and_clear();
        Ok(format!("{} rows sent", pace.done))
    }

    /// Send with a window of open requests. A batch that found no room stops the window; what comes after it is refused
    /// or known, so everything from there is sent again.
    fn append(&self, batches: &[Batch], mut pace: Pace) -> Result<String, Failure> {
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

/// Progress, and waiting for the next message's turn.
struct Pace {
    bar: ProgressBar,
    rate: Option<f64>,
    started: Instant,
    /// Rows whose turn has come, and rows that have arrived as far as this side knows.
    offered: u64,
    done: u64,
}

impl Pace {
    fn wait(&mut self, batch: &Batch) {
        self.offered += batch.len() as u64;
        if let Some(rate) = self.rate {
            let due = Duration::from_secs_f64(self.offered as f64 / rate);
            std::thread::sleep(due.saturating_sub(self.started.elapsed()));
        }
    }

    fn step(&mut self, batch: &Batch) {
        self.done += batch.len() as u64;
        self.bar.set_position(self.done);
    }
}

/// The batches with `prefix` before their streams' names and rows numbered from 0 in each stream, since a session has no
/// gaps. Where the table has one, the row before it is truncated instead: that ends the chain just as well.
fn renumbered(batches: Vec<Batch>, prefix: &str) -> Vec<Batch> {
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
        parts.push(copy(batch, prefix, number));
    }
    parts.into_iter().map(|parts| Batch::new(parts).expect("its rows were checked before")).collect()
}

fn copy(batch: &Batch, prefix: &str, seq: u64) -> BatchParts {
    let rows = 0..batch.len();
    let wide = |column: fn(&Batch, usize) -> Option<&[f64]>| {
        rows.clone().map(|i| column(batch, i).map(<[f64]>::to_vec)).collect::<Option<Vec<_>>>().map(|a| a.concat())
    };
    BatchParts {
        stream: format!("{prefix}{}", batch.stream()),
        session: batch.session().to_owned(),
        seq: Some(seq),
        dim: batch.dim(),
        rewards_per_row: batch.rewards_per_row(),
        states: rows.clone().flat_map(|i| batch.state(i).iter().copied()).collect(),
        next_states: Some(rows.clone().flat_map(|i| batch.next_state(i).iter().copied()).collect()),
        rewards: rows.clone().flat_map(|i| batch.reward(i).iter().copied()).collect(),
        terminated: Some(rows.clone().map(|i| batch.terminated(i)).collect()),
        truncated: Some(rows.clone().map(|i| batch.truncated(i)).collect()),
        discounts: rows.clone().map(|i| batch.discount(i)).collect(),
        actions: wide(Batch::action),
        behavior_probs: rows.clone().map(|i| batch.behavior_prob(i)).collect(),
        target_probs: rows.clone().map(|i| batch.target_prob(i)).collect(),
        next_actions: wide(Batch::next_action),
        next_action_probs: wide(Batch::next_action_probs),
        ..BatchParts::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use criticd::sim::{batches, walk::Walk};

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
            ..BatchParts::default()
        });
        let batch = batch.unwrap();
        let sent = renumbered(vec![batch.clone()], "");
        assert!((0..2).all(|i| sent[0].fingerprint(i) == batch.fingerprint(i)));
    }

    #[test]
    fn gaps_become_truncations_and_numbers_start_at_zero() {
        let mut walk = Walk::new(3, None, 0.1);
        let steps: Vec<_> = (0..200).map(|_| walk.step()).skip(20).collect();
        let before = batches("w", "s", &steps);
        let after = renumbered(before.clone(), "old/");
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
