//! The TD errors of a model, watched: has the world changed, since when, by how much, in which variables, on which streams?
//!
//! Of every row whose successor is known, the error of each reward column goes into a [`Series`] of all streams together, and
//! into a [`BlockSeries`] of its own stream where there is more than one. The state variables are watched beside them: they raise no
//! alarm, but tell what moved. All of it belongs to the model, and is a function of rows and settings alone.

use crate::math::drift::{BlockSeries, Finding, Series};
use serde::{Deserialize, Serialize};

/// Part of the threshold above which a variable is named beside an alarm.
const NAMED: f64 = 0.5;
/// Streams that sent at most this share of the rows are few: what has changed about them is not the world.
const FEW: f64 = 0.4;
/// Most variables and most streams that an alarm names, the most changed first.
const NAMED_MAX: usize = 8;
/// Alarms that wait to be taken at most.
const WAITING_MAX: usize = 16;

named! {
    /// How readily a change is called one.
    #[derive(Default, Serialize, Deserialize)]
    pub enum DriftSensitivity {
        /// Nothing is watched.
        Off = "off",
        /// Rarer alarms, later: a threshold of 20.
        Low = "low",
        /// A threshold of 15.
        #[default]
        Normal = "normal",
        /// Earlier alarms, more of them false: a threshold of 12.
        High = "high",
    }
}

impl DriftSensitivity {
    /// What c has to exceed for an alarm, with one quantity watched; none where nothing is.
    pub fn threshold(self) -> Option<f64> {
        match self {
            Self::Off => None,
            Self::Low => Some(20.0),
            Self::Normal => Some(15.0),
            Self::High => Some(12.0),
        }
    }
}

/// A state variable that has moved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Moved {
    /// Which, counted from 0.
    pub variable: usize,
    /// How; in the unit of normalised states.
    pub finding: Finding,
}

/// The errors are no longer what they were.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alarm {
    /// Row that raised it.
    pub offset: u64,
    /// Place of its reward column among the critic's.
    pub reward: usize,
    /// What changed about the errors, since when, how much.
    pub finding: Finding,
    /// State variables that moved, the most changed first.
    pub variables: Vec<Moved>,
    /// Numbers of the streams that it is a matter of; empty if it is one of the stream as a whole.
    pub streams: Vec<u32>,
}

impl Alarm {
    /// Whether it concerns the stream as a whole, and not a few streams among many.
    pub fn is_general(&self) -> bool {
        self.streams.is_empty()
    }
}

/// What is watched of one stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct StreamWatch {
    /// Of each reward.
    parts: Vec<BlockSeries>,
    rows: u64,
    /// Whether the present rise has raised an alarm of its own.
    alarmed: bool,
}

/// Rows that are watched, and what they were like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Watch {
    /// Rows that still pass before anything is watched: a model that has only begun to learn gets better.
    wait: u64,
    /// Errors are multiplied by it: errors of rows that the weights were fitted to are too small.
    inflation: f64,
    /// Errors of each reward.
    rewards: Vec<Series>,
    variables: Vec<Series>,
    /// By slot of the model.
    streams: Vec<StreamWatch>,
    rows: u64,
    alarms: Vec<Alarm>,
    /// The watch as it was when the last alarm came, less what had risen.
    healthy: Option<Box<Watch>>,
}

/// A row as it is watched.
pub(super) struct Watched<'a> {
    /// Place of its stream among the model's.
    pub slot: usize,
    /// Its TD errors (H,).
    pub errors: &'a [f64],
    /// Offset of the row that made them known.
    pub offset: u64,
    /// c of an alarm with one quantity watched.
    pub threshold: f64,
}

impl Watch {
    /// Watch H rewards and D variables after `wait` rows.
    pub(super) fn new(rewards: usize, variables: usize, wait: u64) -> Self {
        Self {
            wait,
            inflation: 1.0,
            rewards: vec![Series::of_errors(); rewards],
            variables: vec![Series::of_values(); variables],
            streams: Vec::new(),
            rows: 0,
            alarms: Vec::new(),
            healthy: None,
        }
    }

    /// Multiply errors by `inflation` from here on.
    pub(super) fn inflate(&mut self, inflation: f64) {
        self.inflation = inflation;
    }

    /// A row has arrived in this state (D,), normalised.
    pub(super) fn visit(&mut self, state: &[f64], offset: u64) {
        if self.wait > 0 {
            self.wait -= 1;
            return;
        }
        for (series, &x) in self.variables.iter_mut().zip(state) {
            series.push(x, offset);
        }
    }

    /// The errors of a row are known. `streams` gives the number of a slot's stream.
    pub(super) fn observe(&mut self, row: &Watched<'_>, stream: impl Fn(usize) -> u32) {
        if self.wait > 0 {
            return;
        }
        let (mut ended, mut ended_alone) = (false, false);
        self.rows += 1;
        if row.slot >= self.streams.len() {
            self.streams.resize(row.slot + 1, StreamWatch::default());
        }
        let several = self.streams.len() > 1;
        let of_stream = &mut self.streams[row.slot];
        of_stream.rows += 1;
        if several && of_stream.parts.is_empty() {
            of_stream.parts = vec![BlockSeries::default(); row.errors.len()];
        }
        for (h, (series, &error)) in self.rewards.iter_mut().zip(row.errors).enumerate() {
            let error = self.inflation * error;
            ended |= series.push(error, row.offset);
            if several && series.spread() > 0.0 {
                ended_alone |= of_stream.parts[h].push(series.told(error), row.offset);
            }
        }
        let watched = (row.errors.len() as f64).ln();
        if ended {
            let loudest = loudest(self.rewards.iter().map(Series::finding));
            if let Some((reward, finding)) = loudest.filter(|(_, found)| found.level > row.threshold + watched) {
                let variables = self.moved(row.threshold);
                let streams = self.carriers(reward, &finding, row.offset, stream);
                self.raise(Alarm { offset: row.offset, reward, finding, variables, streams });
                self.begin_again();
                return;
            }
        }
        if ended_alone {
            let threshold = row.threshold + watched + (self.streams.len() as f64).ln();
            let found = self.loudest_of(row.slot);
            let alarmed = std::mem::replace(&mut self.streams[row.slot].alarmed, false);
            match found {
                Some((reward, finding)) if finding.level > threshold && !alarmed => {
                    let streams = vec![stream(row.slot)];
                    self.raise(Alarm { offset: row.offset, reward, finding, variables: Vec::new(), streams });
                    self.streams[row.slot].alarmed = true;
                }
                // One alarm for each rise.
                found => self.streams[row.slot].alarmed = alarmed && found.is_some(),
            }
        }
    }

    fn raise(&mut self, alarm: Alarm) {
        if self.alarms.len() < WAITING_MAX {
            self.alarms.push(alarm);
        }
    }

    /// The variables that have moved.
    fn moved(&self, threshold: f64) -> Vec<Moved> {
        let level = NAMED * (threshold + (self.variables.len().max(1) as f64).ln());
        let finding = |(variable, series): (usize, &Series)| {
            series.finding().filter(|found| found.level > level).map(|finding| Moved { variable, finding })
        };
        let mut moved: Vec<Moved> = self.variables.iter().enumerate().filter_map(finding).collect();
        moved.sort_by(|a, b| b.finding.level.total_cmp(&a.finding.level));
        moved.truncate(NAMED_MAX);
        moved
    }

    /// The streams that an alarm of all of them is a matter of: few that have sent at most [`FEW`] of the rows, and at least
    /// half of what is too much. None where there are no such few.
    fn carriers(&self, reward: usize, alarm: &Finding, offset: u64, stream: impl Fn(usize) -> u32) -> Vec<u32> {
        let total = alarm.size * (offset + 1 - alarm.since) as f64;
        let share = |of: &StreamWatch| of.parts.get(reward).map_or(0.0, |part| part.excess(alarm.statistic) / total);
        let shares = self.streams.iter().map(share).enumerate();
        let mut carriers: Vec<(usize, f64)> = shares.filter(|(_, share)| *share > 0.0).collect();
        carriers.sort_by(|a, b| b.1.total_cmp(&a.1));
        let (mut named, mut carried, mut rows) = (Vec::new(), 0.0, 0);
        for (slot, share) in carriers {
            named.push(stream(slot));
            (carried, rows) = (carried + share, rows + self.streams[slot].rows);
            if carried >= 0.5 {
                let few = rows as f64 <= FEW * self.rows as f64;
                named.truncate(if few { NAMED_MAX } else { 0 });
                return named;
            }
        }
        Vec::new()
    }

    fn loudest_of(&self, slot: usize) -> Option<(usize, Finding)> {
        let parts = self.streams[slot].parts.iter().zip(&self.rewards);
        loudest(parts.map(|(part, series)| part.finding(series.spread())))
    }

    /// Everything from the beginning, but that the model has learned already; what it was like is kept.
    fn begin_again(&mut self) {
        let mut healthy = Self::new(self.rewards.len(), self.variables.len(), 0);
        std::mem::swap(self, &mut healthy);
        std::mem::swap(&mut self.alarms, &mut healthy.alarms);
        self.inflation = healthy.inflation;
        healthy.reset();
        self.healthy = Some(Box::new(healthy));
    }

    /// Keep what is normal, and nothing of what has happened: for a model that is set aside.
    fn reset(&mut self) {
        self.rewards.iter_mut().chain(&mut self.variables).for_each(Series::reset);
        self.streams.clear();
        (self.rows, self.inflation, self.healthy) = (0, 1.0, None);
    }

    /// The alarms since they were last asked for, oldest first.
    pub(super) fn take_alarms(&mut self) -> Vec<Alarm> {
        std::mem::take(&mut self.alarms)
    }

    /// Take the newest alarm that is `wanted`, and drop those before it.
    pub(super) fn take_alarm(&mut self, wanted: impl Fn(&Alarm) -> bool) -> Option<Alarm> {
        let last = self.alarms.iter().rposition(wanted)?;
        self.alarms.drain(..=last).next_back()
    }

    /// The watch before the last alarm.
    pub(super) fn healthy(&self) -> Option<&Watch> {
        self.healthy.as_deref()
    }

    /// What is normal for the model: as it was before the last alarm, or as it is now, where it is known.
    pub(super) fn into_healthy(mut self) -> Option<Box<Watch>> {
        let healthy = self.healthy.take();
        self.reset();
        self.alarms.clear();
        healthy.or_else(|| self.speaks().then(|| Box::new(self)))
    }

    /// How far errors of some rows, for each of H rewards, are from what was normal, in standard deviations; the largest of all
    /// rewards. None where that is not known.
    pub(super) fn strangeness(&self, errors: &[Vec<f64>]) -> Option<f64> {
        let of = |(series, errors): (&Series, &Vec<f64>)| series.strangeness(errors.iter().copied());
        self.rewards.iter().zip(errors).map(of).try_fold(0.0, |worst: f64, z| Some(worst.max(z?)))
    }

    /// Spread of the errors of each reward; 0 while it is not known.
    pub(super) fn spreads(&self) -> Vec<f64> {
        self.rewards.iter().map(Series::spread).collect()
    }

    /// What the errors have to say at present, if that is anything, and of which reward.
    pub(super) fn finding(&self) -> Option<(usize, Finding)> {
        loudest(self.rewards.iter().map(Series::finding))
    }

    /// Whether an alarm is possible by now.
    pub(super) fn speaks(&self) -> bool {
        self.rewards.iter().any(Series::speaks)
    }

    /// Whether an alarm may come within some thousand rows.
    pub(super) fn has_begun(&self) -> bool {
        self.rewards.iter().any(|series| series.spread() > 0.0)
    }

    /// Bytes held, for reports of memory.
    pub(super) fn bytes(&self) -> usize {
        let series = self.rewards.len() + self.variables.len();
        let parts: usize = self.streams.iter().map(|stream| stream.parts.capacity()).sum();
        size_of::<Self>()
            + series * size_of::<Series>()
            + self.streams.capacity() * size_of::<StreamWatch>()
            + parts * size_of::<BlockSeries>()
            + self.healthy.as_ref().map_or(0, |healthy| healthy.bytes())
    }

    /// Whether its parts fit H rewards, D variables and `slots` slots.
    pub(super) fn is_consistent(&self, rewards: usize, variables: usize, slots: usize) -> bool {
        let of_stream = |stream: &StreamWatch| {
            [0, rewards].contains(&stream.parts.len()) && stream.parts.iter().all(BlockSeries::is_consistent)
        };
        (self.rewards.len(), self.variables.len()) == (rewards, variables)
            && self.inflation.is_finite()
            && self.rewards.iter().chain(&self.variables).all(Series::is_consistent)
            && self.streams.len() <= slots
            && self.streams.iter().all(of_stream)
            && self.alarms.len() <= WAITING_MAX
            && self.healthy.as_ref().is_none_or(|healthy| healthy.is_consistent(rewards, variables, 0))
    }
}

/// Bytes of a watch over `rewards` rewards and `variables` variables, with what was normal before its last alarm.
pub fn watch_bytes(rewards: usize, variables: usize) -> usize {
    2 * (size_of::<Watch>() + (rewards + variables) * size_of::<Series>())
}

/// Bytes that one more stream takes in the watch of a model, and of its fork's contest.
pub fn watch_bytes_per_stream(rewards: usize) -> usize {
    size_of::<StreamWatch>() + rewards * (size_of::<BlockSeries>() + 4 * size_of::<f64>())
}

/// The most risen of some findings, and its place.
fn loudest(findings: impl Iterator<Item = Option<Finding>>) -> Option<(usize, Finding)> {
    let known = findings.enumerate().filter_map(|(k, found)| found.map(|found| (k, found)));
    known.reduce(|a, b| if b.1.level > a.1.level { b } else { a })
}
