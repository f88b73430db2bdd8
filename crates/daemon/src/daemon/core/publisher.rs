//! Snapshots: when they are taken, what queries are answered from, and what subscribers get.

use super::ports::{Now, Output};
use crate::board::Board;
use crate::config::Config;
use crate::learner::Learner;
use crate::learner::heads::Head;
use crate::panics;
use crate::snapshot::Snapshot;
use crate::state::State;
use crate::transport::Publication;
use crate::wire::status::ReturnsStatus;
use crate::wire::{self, ArrayForm};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Share of the learner's time that refreshing the answering snapshot may take while rows wait.
pub const REFRESH_SHARE: f64 = 0.1;
/// Offsets that are remembered as waited for.
const WANTED_MAX: usize = 1024;
/// Heads whose topics are published at most, of all critics: the first in the order of their topics.
const HEAD_TOPICS_MAX: usize = 16;
/// Least time between two `weights` publications, seconds.
const WEIGHTS_INTERVAL_S: f64 = 0.1;

/// What `status` says of the snapshot on the board.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) lambda: f64,
    pub(super) provisional: bool,
    /// How well deviations of returns were verified, where the spread of returns is known.
    pub(super) returns: Option<ReturnsStatus>,
}

impl Shown {
    fn of(snapshot: &Snapshot) -> Self {
        let returns = snapshot.returns.as_ref().map(|spread| ReturnsStatus {
            factor: spread.factor,
            pairs: spread.pairs,
            coverage_before_factor: spread.coverage,
        });
        Self { lambda: snapshot.lambda, provisional: snapshot.provisional, returns }
    }
}

/// What has been published of one critic.
#[derive(Debug, Default)]
struct Published {
    revision: u64,
    /// Generation and dictionary sizes of the last publication.
    last: Option<(u64, Sizes)>,
    /// Uptime of the last one; none before the first.
    at: Option<f64>,
    /// Uptime of the last whole snapshot.
    whole_at: Option<f64>,
    /// Rows that it had learned.
    whole_offset: u64,
    /// The board is newer than the last publication.
    unpublished: bool,
    shown: Option<Shown>,
    failed_snapshots: u64,
    /// Heads that the newest snapshot lacks, since they cannot be solved for.
    unsolved: usize,
    /// Heads of which the last publication had the value function, by topic: how each was defined, and whether it had the second
    /// kernel. One that was removed and has come back otherwise is another.
    heads: BTreeMap<String, (Head, bool)>,
}

/// What came of a refresh of one critic.
#[derive(Debug, PartialEq)]
pub(super) enum Refreshed {
    /// There is nothing to show.
    Nothing,
    /// Answers come from this generation.
    Answers {
        /// Number of the generation.
        generation: u64,
    },
    /// It panicked.
    Panicked(String),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Publisher {
    /// Tells the runs of the daemon apart: revisions and generations are of one run.
    pub(super) run: u64,
    board: Arc<Board>,
    critics: Vec<Published>,
    /// Topics of heads that subscribers ask for.
    asked: Vec<String>,
    /// Offsets that waiting queries need a snapshot to have learned.
    wanted: BTreeSet<u64>,
    /// A model has been adopted: the next refresh does not wait.
    at_once: bool,
    /// Uptime from which on the next refresh is due.
    next: f64,
    /// Rows that the answering snapshots have learned.
    offset: u64,
}

impl Publisher {
    /// Nothing has been published of the critics of these names.
    pub(super) fn new(names: impl Iterator<Item = String>) -> Self {
        let names: Vec<String> = names.collect();
        let critics = names.iter().map(|_| Published::default()).collect();
        let asked = Vec::new();
        let board = Arc::new(Board::new(names.into_iter()));
        Self { run: 0, board, critics, asked, wanted: BTreeSet::new(), at_once: false, next: 0.0, offset: 0 }
    }

    /// Where queries are answered from.
    pub(super) fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Publish the shape of rows, once it is known, and what their numbers are called.
    pub(super) fn settle(&self, shape: Option<(usize, usize)>, names: [&[String]; 3]) {
        shape.into_iter().for_each(|shape| self.board.settle(shape));
        self.board.set_names(names);
    }

    /// Rows that the answering snapshots have learned.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Revision, snapshots that could not be taken, and what is on the board of a critic.
    pub(super) fn published(&self, critic: usize) -> (u64, u64, Option<Shown>) {
        let Published { revision, failed_snapshots, shown, .. } = self.critics[critic];
        (revision, failed_snapshots, shown)
    }

    /// A query waits for a snapshot that has learned `offset` rows. At most 1024 are remembered, the nearest.
    pub(super) fn want(&mut self, offset: u64) {
        self.wanted.insert(offset);
        if self.wanted.len() > WANTED_MAX {
            self.wanted.pop_last();
        }
    }

    /// Subscribers ask for these topics of heads. At most 16 are published.
    pub(super) fn asked(&mut self, mut topics: Vec<String>) {
        topics.truncate(HEAD_TOPICS_MAX);
        self.asked = topics;
    }

    /// The next refresh does not wait.
    pub(super) fn request_refresh(&mut self) {
        self.at_once = true;
    }

    /// Whether to rebuild the query snapshots: immediately after an adoption or for a waiting query; otherwise limited to a fixed
    /// share of learning time; plus one trailing rebuild when the stream goes idle.
    pub(super) fn due(&self, state: &State, interval: f64, now: Now) -> bool {
        let learned = state.end().offset;
        let awaited = self.wanted.first().is_some_and(|&wanted| wanted <= learned);
        let stale = learned > self.offset;
        let in_time = now.uptime >= self.next;
        self.at_once
            || (stale && (awaited || in_time || self.first_due(state)))
            || (in_time && self.publication_due(state, interval, now))
    }

    /// Whether a critic has a model and no snapshot of it: `value` would answer `not_ready`, or as before the first model, although
    /// `status` counts the rows.
    pub(super) fn first_due(&self, state: &State) -> bool {
        // A snapshot that has failed is tried again in its turn.
        self.learning(state).any(|(critic, learner)| {
            let lacks = critic.last.is_none_or(|(generation, _)| generation == 0 && learner.generation() > 0);
            lacks && critic.failed_snapshots == 0
        })
    }

    /// The critics that have a model and learn.
    fn learning<'a>(&'a self, state: &'a State) -> impl Iterator<Item = (&'a Published, &'a Learner)> {
        let all = self.critics.iter().zip(state.critics()).enumerate();
        let learns = |(index, (_, learner)): &(usize, (&Published, &Learner))| {
            !state.is_halted(*index) && learner.model().is_some()
        };
        all.filter(learns).map(|(_, both)| both)
    }

    /// Whether a publication is due although no rows arrive: the weights after the last rows, then a whole snapshot. Otherwise
    /// a pause of the stream would withhold them.
    fn publication_due(&self, state: &State, interval: f64, now: Now) -> bool {
        self.learning(state).any(|(critic, learner)| {
            let whole = learner.learned() > critic.whole_offset;
            (critic.unpublished && critic.since(critic.at, now) >= WEIGHTS_INTERVAL_S)
                || (whole && critic.since(critic.whole_at, now) >= interval)
        })
    }

    /// Every critic has been refreshed. `spent` is how long that took, seconds.
    pub(super) fn refreshed(&mut self, state: &State, spent: f64, now: Now) {
        self.offset = state.end().offset;
        self.wanted = self.wanted.split_off(&(self.offset + 1));
        self.at_once = false;
        self.next = now.uptime + spent / REFRESH_SHARE;
    }

    /// Take a snapshot of a critic for the board, and publish what is due; a whole one in any case if `last`.
    pub(super) fn refresh(
        &mut self,
        index: usize,
        learner: &Learner,
        config: &Config,
        last: bool,
        now: Now,
        out: &mut Vec<Output>,
    ) -> Refreshed {
        let critic = &mut self.critics[index];
        critic.unpublished = false;
        if learner.model().is_none() {
            return Refreshed::Nothing;
        }
        let snapshot = match catch_unwind(AssertUnwindSafe(|| learner.snapshot(true))) {
            Ok(Ok(snapshot)) => snapshot,
            Ok(Err(e)) => {
                // The last good snapshot stays.
                if critic.failed_snapshots.is_power_of_two() || critic.failed_snapshots == 0 {
                    log::warn!("event=snapshot_failed critic={} why={e}", learner.settings().name);
                }
                critic.failed_snapshots += 1;
                // Tried again an interval later, not at once.
                critic.whole_at = Some(now.uptime);
                return Refreshed::Answers { generation: learner.generation() };
            }
            Err(panic) => return Refreshed::Panicked(panics::message(&*panic)),
        };
        let learned = learner.model().map_or(0, |model| model.all_heads().count());
        let unsolved = learned - snapshot.all_heads().count();
        if unsolved != critic.unsolved {
            let shown: HashSet<&str> = snapshot.all_heads().map(|head| head.name.as_str()).collect();
            let mut names =
                learner.model().into_iter().flat_map(|model| model.all_heads()).map(|head| head.name.as_str());
            let first = names.find(|&name| !shown.contains(name)).unwrap_or_default();
            log::warn!("event=heads_unsolved critic={} heads={unsolved} first={first:?}", learner.settings().name);
            critic.unsolved = unsolved;
        }
        let reward_names = self.board.reward_names(learner.settings());
        let snapshot = Snapshot { time: now.unix, reward_names, ..snapshot };
        let due = Due { config, last, run: self.run, now };
        let (snapshot, part) = critic.publish(snapshot, &due);
        if let Some(part) = part {
            let name = &learner.settings().name;
            out.push(Output::Publish(part.publication(&snapshot, name, &due)));
            let heads = critic.publish_heads(&snapshot, part, &self.asked, name, &due);
            out.extend(heads.into_iter().map(Output::Publish));
        }
        critic.shown = Some(Shown::of(&snapshot));
        let generation = snapshot.generation;
        self.board.set(index, snapshot);
        Refreshed::Answers { generation }
    }
}

/// What decides about a publication.
struct Due<'a> {
    config: &'a Config,
    /// Whether it is the last one before the end.
    last: bool,
    run: u64,
    now: Now,
}

impl Published {
    /// Seconds since `at`; infinite if that has never been.
    fn since(&self, at: Option<f64>, now: Now) -> f64 {
        at.map_or(f64::INFINITY, |at| now.uptime - at)
    }

    /// The snapshot with its revision, and what subscribers get of it, if anything is due.
    fn publish(&mut self, mut snapshot: Snapshot, due: &Due<'_>) -> (Snapshot, Option<PublishedPart>) {
        let Due { config, last, now, .. } = *due;
        let present = (snapshot.generation, Sizes::of(&snapshot));
        // What answers before the first model is another one with each row.
        let same_generation = self.last.is_some_and(|(generation, _)| generation == present.0 && generation > 0);
        let interval = config.snapshot_interval_ms as f64 / 1000.0;
        let whole = last || !same_generation || self.since(self.whole_at, now) >= interval;
        let weights = same_generation && self.since(self.at, now) >= WEIGHTS_INTERVAL_S;
        snapshot.revision = self.revision;
        if !whole && !weights {
            self.unpublished = true;
            return (snapshot, None);
        }
        self.revision += 1;
        snapshot.revision = self.revision;
        let known = self.last.map_or_else(Sizes::default, |(_, sizes)| sizes);
        let part = if whole {
            (self.whole_at, self.whole_offset) = (Some(now.uptime), snapshot.offset);
            PublishedPart::Whole
        } else {
            PublishedPart::Changed { known }
        };
        (self.last, self.at) = (Some(present), Some(now.uptime));
        (snapshot, Some(part))
    }

    /// The value functions of the heads that subscribers ask for: whole where the critic's is, and where the last publication had none
    /// of this head under this kernel.
    fn publish_heads(
        &mut self,
        snapshot: &Snapshot,
        part: PublishedPart,
        asked: &[String],
        name: &str,
        due: &Due<'_>,
    ) -> Vec<Publication> {
        let before = std::mem::take(&mut self.heads);
        let beginning = format!("head.{name}.");
        let mut publications = Vec::new();
        for topic in asked {
            let Some(head) = topic.strip_prefix(&beginning) else { continue };
            let Some(place) = snapshot.position_of_head(head) else { continue };
            let (of, heads, number) = snapshot.place_of_head(place);
            let is_apart = !std::ptr::eq(of, snapshot);
            let present = (heads.heads[number].clone(), is_apart);
            let part = if before.get(topic) == Some(&present) { part } else { PublishedPart::Whole };
            let part = if is_apart { part.of_branch() } else { part };
            let alone = snapshot.head_alone(place, part.has_variance(of, due.config));
            let payload = wire::with_run(wire::with_head(part.encode(&alone, due.config), head), due.run).into();
            publications.push(Publication { topic: topic.clone(), payload });
            self.heads.insert(topic.clone(), present);
        }
        publications
    }
}

/// How much of a snapshot is published.
#[derive(Clone, Copy, Debug)]
enum PublishedPart {
    /// All of it.
    Whole,
    /// What has changed since a publication whose sizes subscribers know.
    Changed { known: Sizes },
}

/// Sizes of the dictionaries of a snapshot.
#[derive(Clone, Copy, Debug, Default)]
struct Sizes {
    own: usize,
    /// Elements of the dictionary of the heads that have a kernel of their own; 0 where there are none.
    branch: usize,
}

impl Sizes {
    fn of(snapshot: &Snapshot) -> Self {
        let branch = snapshot.branch.as_ref().map_or(0, |branch| branch.dictionary.nrows());
        Self { own: snapshot.dictionary.nrows(), branch }
    }
}

impl PublishedPart {
    /// The same of the heads that have a kernel of their own.
    fn of_branch(self) -> Self {
        match self {
            Self::Whole => Self::Whole,
            Self::Changed { known } => Self::Changed { known: Sizes { own: known.branch, branch: 0 } },
        }
    }

    fn publication(self, snapshot: &Snapshot, name: &str, due: &Due<'_>) -> Publication {
        let kind = if matches!(self, Self::Whole) { "snapshot" } else { "weights" };
        let payload = wire::with_run(self.encode(snapshot, due.config), due.run).into();
        Publication { topic: format!("{kind}.{name}"), payload }
    }

    fn has_variance(self, snapshot: &Snapshot, config: &Config) -> bool {
        // A grown dictionary needs a variance of its own size.
        let needs = if let Self::Changed { known } = self { known.own < snapshot.dictionary.nrows() } else { true };
        needs && config.publish_variance
    }

    fn encode(self, snapshot: &Snapshot, config: &Config) -> Vec<u8> {
        let Self::Changed { known } = self else {
            return encode_bounded(snapshot, config.publish_variance, config.publish_bytes_max);
        };
        let encode = |variance| wire::encode_weights(snapshot, known.own, variance);
        let payload = encode(self.has_variance(snapshot, config));
        if payload.len() > config.publish_bytes_max { encode(false) } else { payload }
    }
}

/// The whole snapshot if it fits, else the announcement of it.
fn encode_bounded(snapshot: &Snapshot, variance: bool, bytes_max: usize) -> Vec<u8> {
    let whole = wire::encode_values(snapshot, ArrayForm::Tensor, variance);
    if whole.len() <= bytes_max {
        return whole;
    }
    let means = if variance { wire::encode_values(snapshot, ArrayForm::Tensor, false) } else { Vec::new() };
    if variance && means.len() <= bytes_max { means } else { wire::encode_announcement(snapshot, whole.len()) }
}

#[cfg(test)]
mod tests {
    use super::super::intake::learned;
    use super::*;

    #[test]
    fn snapshots_are_published_in_time_and_at_once_where_somebody_waits() {
        let (config, state) = learned(200);
        let interval = config.snapshot_interval_ms as f64 / 1000.0;
        let mut publisher = Publisher::new(std::iter::once("default".to_owned()));
        let at = |uptime| Now { uptime, unix: 1e9 + uptime };
        let refresh = |publisher: &mut Publisher, last, now| {
            let mut out = Vec::new();
            let refreshed = publisher.refresh(0, &state.critics()[0], &config, last, now, &mut out);
            assert_eq!(refreshed, Refreshed::Answers { generation: 1 });
            publisher.refreshed(&state, 0.5, now);
            let topic = |output| match output {
                Output::Publish(publication) => publication.topic,
                other => panic!("{other:?}"),
            };
            out.into_iter().map(topic).collect::<Vec<String>>()
        };
        assert!(publisher.due(&state, interval, at(1.0)), "rows have been learned");
        assert_eq!(refresh(&mut publisher, false, at(1.0)), ["snapshot.default"]);
        assert_eq!((publisher.offset(), publisher.board().get(0).unwrap().revision), (200, 1));
        // Half a second was spent: the next five belong to learning. Nothing new has come either.
        assert!(!publisher.due(&state, interval, at(1.05)));
        publisher.request_refresh();
        assert!(publisher.due(&state, interval, at(1.05)), "a model was adopted");
        assert_eq!(refresh(&mut publisher, false, at(1.05)), [""; 0], "too soon after the last publication");
        assert!(!publisher.due(&state, interval, at(6.0)));
        assert!(publisher.due(&state, interval, at(6.1)), "subscribers are owed what the board has");
        assert_eq!(refresh(&mut publisher, true, at(6.1)), ["snapshot.default"]);
        assert_eq!(publisher.published(0).0, 2);
    }

    #[test]
    fn what_somebody_waits_for_is_due_when_it_has_been_learned() {
        let (config, state) = learned(200);
        let mut publisher = Publisher::new(std::iter::once("default".to_owned()));
        let now = Now { uptime: 1.0, unix: 1e9 };
        publisher.next = 100.0;
        assert!(publisher.due(&state, 1.0, now), "there is no snapshot yet");
        publisher.refresh(0, &state.critics()[0], &config, false, now, &mut Vec::new());
        publisher.want(201);
        assert!(!publisher.due(&state, 1.0, now));
        publisher.want(200);
        assert!(publisher.due(&state, 1.0, now));
        publisher.refreshed(&state, 0.0, now);
        assert_eq!(publisher.wanted.iter().copied().collect::<Vec<u64>>(), [201]);
        (0..2 * WANTED_MAX as u64).for_each(|offset| publisher.want(offset));
        assert_eq!(publisher.wanted.len(), WANTED_MAX);
    }
}
