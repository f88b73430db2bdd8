//! An alarm before it fails: "the return from here will fall below x", with a stated share of false alarms.
//!
//! The score of a row is how far its value lies above x, in deviations of the return as it is stated:
//! ```text
//! score = (V(x_t) - x) / sqrt(Var V(x_t) + M(x_t))                                                             (Q8)
//! ```
//! The alarm of a stream is raised by a row whose score lies below `raise`, and ends with the next row whose score is at least
//! `clear`, or with the chain. What the two are is learned: start rows are followed from their score to their return, as
//! [`crate::verification`] follows them, and of the last returns that stayed at or above x the scores are remembered. Of k of them
//! ```text
//! beta  = alpha e^a                                                alpha: the stated share of false alarms
//! raise = the quantile of the scores at rank beta (k + 1), clear = that at rank 2 beta (k + 1)                    (Q9)
//! a    <- a + G (alpha - [the alarm was on at the start row])      for each return that stayed, a at most A       (Q10)
//! ```
//! Below rank 1 there is no alarm, so that none is raised before 1 / alpha returns are known; from a = -A down there is none either. (Q9)
//! alone keeps the share while the rows are exchangeable. (Q10) keeps it in any other order: of n returns that stayed, the alarm was on
//! at no more than alpha n start rows, but for 2 A / G + 1 of them and what is still under way.
//!
//! What a stream began that is silent now counts for nothing: its alarm ends.
//!
//! **Verdicts.** The row that raises an alarm is followed too: the alarm is a *hit* if the return from that row fell below x, else
//! *false*. A return is *in* at the row after which the rewards gathered since its start, discounted, lie below x for good; where they
//! were never above (x above 0), at the row with which it ends. The *lead* of a hit is the number of rows between the row that raised
//! it and that one. A return below x is *missed* if no alarm was on from its start to the row at which it was in.
//!
//! All of it is a function of rows, values and offsets: no clock, no batch.

use crate::math::raw;
use crate::verification::{LENGTHS_MAX, ROWS_MAX, WEIGHT_END, expected_length, gather, spaced};
use serde::{Deserialize, Serialize};

/// G: what a false alarm at a start row moves the logarithm of beta / alpha by ...
const GAIN: f64 = 0.1;
/// A: ... how far it may rise, and how far it has fallen where there is no alarm any more.
const MOVED_MAX: f64 = 3.0;
/// A warner remembers the last SCORES / alpha scores, at least SCORES_MIN and at most SCORES_MAX.
const SCORES: f64 = 8.0;
const SCORES_MIN: usize = 250;
const SCORES_MAX: usize = 4000;
/// No score counts for more, however small its deviation: differences of scores stay finite.
const SCORE_MAX: f64 = 1e9;
/// Start rows in each return's length, and how many are followed at once.
const STARTS: f64 = 16.0;
const FOLLOWED_MAX: usize = 24;
/// Rows that raised an alarm that are followed at once.
const RAISED_MAX: usize = 16;
/// A stream is silent when the others have brought the rows of this many returns' lengths, at least SILENT_ROWS, since its last
/// row.
const SILENT_LENGTHS: f64 = 16.0;
const SILENT_ROWS: f64 = 1000.0;
/// Most alarms of a critic: each is asked at every row.
const WARNERS_MAX: usize = 16;

/// Which alarm is wanted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarningSettings {
    /// Name of the head whose return it is about; none for the critic's first reward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// x: what the return is not to fall below, unit of the return.
    pub below: f64,
    /// alpha: share of the rows whose return stays at or above x at which the alarm may be on, 0.001 to 0.5.
    #[serde(default = "one_percent")]
    pub false_alarms: f64,
}

fn one_percent() -> f64 {
    0.01
}

impl WarningSettings {
    fn check(&self) -> Result<(), String> {
        let Self { below, false_alarms, .. } = *self;
        if !below.is_finite() {
            return Err(format!("below must be a finite number, is {below}"));
        }
        if !(0.001..=0.5).contains(&false_alarms) {
            return Err(format!("false_alarms must be a share from 0.001 to 0.5, is {false_alarms}"));
        }
        Ok(())
    }

    /// Whether a critic can have these alarms.
    ///
    /// # Errors
    /// What cannot be, in words that name the field.
    pub fn check_all(of: &[Self]) -> Result<(), String> {
        if of.len() > WARNERS_MAX {
            return Err(format!("has at most {WARNERS_MAX} entries, this one has {}", of.len()));
        }
        for (i, alarm) in of.iter().enumerate() {
            alarm.check().map_err(|what| format!("entry {i}: {what}"))?;
            if of[..i].iter().any(|other| other.head == alarm.head) {
                let whose = alarm.head.as_ref().map_or("the value".to_owned(), |head| format!("head {head:?}"));
                return Err(format!("entry {i}: {whose} has an alarm already"));
            }
        }
        Ok(())
    }
}

/// What has come of the alarms so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WarningRecord {
    /// Alarms raised.
    pub raised: u64,
    /// Alarms whose return fell below x.
    pub hits: u64,
    /// Alarms whose return did not.
    pub mistaken: u64,
    /// Followed returns that stayed at or above x, and how many of them began while the alarm was on.
    pub stayed: u64,
    /// Of these.
    pub stayed_warned: u64,
    /// Followed returns that fell below x.
    pub fell: u64,
    /// The ones that no alarm foretold.
    pub missed: u64,
    /// Mean lead of the hits, rows.
    pub lead_rows: f64,
    /// The same in seconds, of those whose rows have times, and how many these are.
    pub lead_s: f64,
    /// Of these.
    pub timed: u64,
}

impl WarningRecord {
    /// Share of the returns that stayed at whose start the alarm was on; none before the first of them.
    pub fn false_share(&self) -> Option<f64> {
        (self.stayed > 0).then(|| self.stayed_warned as f64 / self.stayed as f64)
    }

    fn is_consistent(&self) -> bool {
        self.stayed_warned <= self.stayed
            && self.missed <= self.fell
            && self.timed <= self.hits
            && self.hits + self.mistaken <= self.raised
            && self.lead_rows.is_finite()
            && self.lead_s.is_finite()
    }
}

/// An alarm is raised, or ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Warning {
    /// Name of the head whose return it is; none for the critic's first reward.
    pub head: Option<String>,
    /// Number of the stream.
    pub stream: u32,
    /// Offset of the row that raises or ends it.
    pub offset: u64,
    /// Offset of the row that raised it.
    pub since: u64,
    /// Whether it is raised; else it ends.
    pub raised: bool,
    /// V at the row; none where the chain has ended.
    pub value: Option<f64>,
    /// x.
    pub below: f64,
}

/// A row as an alarm sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenRow {
    pub(crate) stream: u32,
    pub(crate) offset: u64,
    /// Seconds; NaN where the row has none.
    pub(crate) time: f64,
    /// Discount between the row before it in its chain and this one, as far as that row did not say.
    pub(crate) decay: f64,
    pub(crate) reward: f64,
    /// What follows counts so much of what it counted; 0 where the row terminates.
    pub(crate) discount: f64,
    /// Importance ratio.
    pub(crate) ratio: f64,
}

/// What is stated of the return from the state of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stated {
    pub(crate) mean: f64,
    /// Of the return, positive.
    pub(crate) deviation: f64,
}

/// A return that is followed from a row on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Trial {
    stream: u32,
    /// Number of the row, and its time.
    start: u64,
    time: f64,
    /// Rows of the stream since, that one included.
    rows: u64,
    weight: f64,
    gathered: f64,
    score: f64,
    /// Whether the alarm was on at its row.
    on: bool,
    /// Number, among its rows, of the first one at which an alarm was on.
    warned: Option<u64>,
    /// Number and time of the row since which what was gathered lies below x, where it was above before.
    crossed: Option<(u64, f64)>,
    /// Whether its row raised an alarm; else it is a sample of all rows.
    raised: bool,
    /// Number of the last row of its stream.
    #[serde(default)]
    last: u64,
}

/// An alarm that is on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct On {
    stream: u32,
    since: u64,
    /// Number of the last row of its stream.
    #[serde(default)]
    last: u64,
}

/// The alarm about one return, on all streams. Written and read back it goes on bit for bit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Warner {
    settings: WarningSettings,
    trials: Vec<Trial>,
    on: Vec<On>,
    rows: u64,
    /// Rows before the next start.
    wait: u64,
    starts: u64,
    /// Mean rows, of all streams, until a return is known, and of how many that is (up to [`LENGTHS_MAX`]).
    length: f64,
    lengths: u64,
    /// Of the last returns that stayed, a ring.
    #[serde(with = "raw")]
    scores: Vec<f64>,
    /// Score that the next one replaces, where the ring is full.
    oldest: u64,
    /// a.
    moved: f64,
    raise: f64,
    clear: f64,
    record: WarningRecord,
    #[serde(skip)]
    events: Vec<Warning>,
    /// The scores in their order; empty where they are still to be sorted.
    #[serde(skip)]
    sorted: Vec<f64>,
}

impl Warner {
    fn new(settings: WarningSettings, discount: f64) -> Self {
        let ring = capacity(settings.false_alarms);
        Self {
            settings,
            trials: Vec::with_capacity(FOLLOWED_MAX + RAISED_MAX),
            on: Vec::with_capacity(RAISED_MAX),
            rows: 0,
            wait: 0,
            starts: 0,
            length: expected_length(discount),
            lengths: 0,
            scores: Vec::with_capacity(ring),
            oldest: 0,
            moved: 0.0,
            raise: f64::NEG_INFINITY,
            clear: f64::NEG_INFINITY,
            record: WarningRecord::default(),
            events: Vec::new(),
            sorted: Vec::with_capacity(ring),
        }
    }

    /// What is asked.
    pub fn settings(&self) -> &WarningSettings {
        &self.settings
    }

    /// What has come of it.
    pub fn record(&self) -> WarningRecord {
        self.record
    }

    /// Numbers of the streams whose alarm is on.
    pub fn streams(&self) -> impl ExactSizeIterator<Item = u32> {
        self.on.iter().map(|on| on.stream)
    }

    /// Returns that are still to stay above x before an alarm is possible.
    pub fn missing(&self) -> u64 {
        ((1.0 / self.settings.false_alarms).ceil() as u64).saturating_sub(1 + self.scores.len() as u64)
    }

    /// A row has arrived. Nothing is `stated` of it where the model cannot: returns that are valued there are given up.
    pub(crate) fn see(&mut self, row: &SeenRow, stated: Option<Stated>) {
        self.rows += 1;
        let stated = stated.filter(|of| of.mean.is_finite() && of.deviation.is_finite() && of.deviation > 0.0);
        self.arrive(row, stated.map(|of| of.mean));
        let score = stated.map(|of| ((of.mean - self.settings.below) / of.deviation).clamp(-SCORE_MAX, SCORE_MAX));
        let raised = self.judge(row, stated, score);
        self.begin(row, score, raised);
        self.take(row);
    }

    /// The chain of a stream is cut at a state of this value: what has not been followed far enough does not count.
    pub(crate) fn cut(&mut self, stream: u32, offset: u64, decay: f64, value: Option<f64>) {
        let row = SeenRow { stream, offset, time: f64::NAN, decay, reward: 0.0, discount: 1.0, ratio: 1.0 };
        self.arrive(&row, value);
        self.trials.retain(|trial| trial.stream != stream);
        self.end(stream, offset, None);
    }

    /// What streams have begun that are silent now keeps no place: their alarms end, their returns do not count.
    fn give_up_silent(&mut self, offset: u64) {
        let patience = (SILENT_LENGTHS * self.length).max(SILENT_ROWS);
        let rows = self.rows;
        let silent = |last: u64| (rows - last) as f64 > patience;
        self.trials.retain(|trial| !silent(trial.last));
        while let Some(stream) = self.on.iter().find(|on| silent(on.last)).map(|on| on.stream) {
            self.end(stream, offset, None);
        }
    }

    /// Rows of all streams are missing: nothing that was under way can be finished.
    fn cut_all(&mut self, offset: u64) {
        self.trials.clear();
        while let Some(on) = self.on.last() {
            self.end(on.stream, offset, None);
        }
    }

    /// What was followed up to here ends with its value, if it has far enough.
    fn arrive(&mut self, row: &SeenRow, value: Option<f64>) {
        let mut from = 0;
        while let Some(k) = self.next_of(row.stream, from) {
            let trial = &mut self.trials[k];
            trial.weight *= row.decay;
            let ends = trial.weight < WEIGHT_END || trial.weight.is_nan();
            if ends {
                let trial = self.trials.swap_remove(k);
                value.into_iter().for_each(|value| self.conclude(&trial, trial.weight * value));
            }
            from = k + usize::from(!ends);
        }
    }

    /// Place of the first trial of a stream from place `from` on.
    fn next_of(&self, stream: u32, from: usize) -> Option<usize> {
        (from..self.trials.len()).find(|&k| self.trials[k].stream == stream)
    }

    /// Whether the row raises the alarm of its stream, or ends it. Returns whether it has been raised.
    fn judge(&mut self, row: &SeenRow, stated: Option<Stated>, score: Option<f64>) -> bool {
        let (Some(score), Some(Stated { mean, .. })) = (score, stated) else { return false };
        match self.on.iter().any(|on| on.stream == row.stream) {
            true if score >= self.clear => self.end(row.stream, row.offset, Some(mean)),
            false if score < self.raise => {
                self.on.push(On { stream: row.stream, since: row.offset, last: self.rows });
                self.record.raised += 1;
                self.tell(row.stream, row.offset, row.offset, true, Some(mean));
                return true;
            }
            _ => {}
        }
        false
    }

    fn end(&mut self, stream: u32, offset: u64, value: Option<f64>) {
        if let Some(k) = self.on.iter().position(|on| on.stream == stream) {
            let on = self.on.swap_remove(k);
            self.tell(stream, offset, on.since, false, value);
        }
    }

    fn tell(&mut self, stream: u32, offset: u64, since: u64, raised: bool, value: Option<f64>) {
        let WarningSettings { ref head, below, .. } = self.settings;
        self.events.push(Warning { head: head.clone(), stream, offset, since, raised, value, below });
    }

    /// Follow the row if a start is due, or if it has raised an alarm.
    fn begin(&mut self, row: &SeenRow, score: Option<f64>, raised: bool) {
        let due = self.wait == 0 && row.ratio == 1.0;
        self.wait = self.wait.saturating_sub(1);
        if due {
            self.give_up_silent(row.offset);
        }
        let Some(score) = score else { return };
        let followed = |raised: bool| self.trials.iter().filter(|trial| trial.raised == raised).count();
        let (sampled, of_alarm) = (due && followed(false) < FOLLOWED_MAX, raised && followed(true) < RAISED_MAX);
        if due {
            self.starts += 1;
            self.wait = spaced((self.length / STARTS).ceil().max(1.0) as u64, self.starts) - 1;
        }
        let on = self.on.iter().any(|on| on.stream == row.stream);
        for raised in [sampled.then_some(false), of_alarm.then_some(true)].into_iter().flatten() {
            self.trials.push(Trial {
                stream: row.stream,
                start: self.rows,
                time: row.time,
                rows: 0,
                weight: 1.0,
                gathered: 0.0,
                score,
                on,
                warned: None,
                crossed: None,
                raised,
                last: self.rows,
            });
        }
    }

    /// The reward of the row goes into what is followed.
    fn take(&mut self, row: &SeenRow) {
        let below = self.settings.below;
        let now = self.on.iter_mut().find(|on| on.stream == row.stream);
        let on = now.is_some();
        now.into_iter().for_each(|on| on.last = self.rows);
        let mut from = 0;
        while let Some(k) = self.next_of(row.stream, from) {
            from = k;
            let trial = &mut self.trials[k];
            if row.ratio != 1.0 || trial.rows == ROWS_MAX {
                self.trials.swap_remove(k);
                continue;
            }
            trial.last = self.rows;
            let before = trial.gathered;
            gather(std::iter::once((&mut trial.gathered, row.reward)), &mut trial.weight, row.discount);
            trial.crossed = match (before < below, trial.gathered < below) {
                (_, false) => None,
                (false, true) => Some((trial.rows, row.time)),
                (true, true) => trial.crossed,
            };
            if on && trial.warned.is_none() {
                trial.warned = Some(trial.rows);
            }
            trial.rows += 1;
            if trial.weight == 0.0 {
                let trial = self.trials.swap_remove(k);
                self.conclude_at(&trial, 0.0, row.time);
            } else {
                from += 1;
            }
        }
        if row.discount == 0.0 {
            self.end(row.stream, row.offset, None);
        }
    }

    fn conclude(&mut self, trial: &Trial, rest: f64) {
        self.conclude_at(trial, rest, f64::NAN);
    }

    /// A return is known: what was gathered and `rest`. `time` is its last row's.
    fn conclude_at(&mut self, trial: &Trial, rest: f64, time: f64) {
        let found = trial.gathered + rest;
        if !found.is_finite() {
            return;
        }
        let fell = found < self.settings.below;
        let (at, time) = trial.crossed.unwrap_or((trial.rows.saturating_sub(1), time));
        if trial.raised {
            self.conclude_alarm(fell, at as f64, time - trial.time);
            return;
        }
        self.lengths = LENGTHS_MAX.min(self.lengths + 1);
        self.length += ((self.rows - trial.start) as f64 - self.length) / self.lengths as f64;
        let record = &mut self.record;
        if fell {
            record.fell += 1;
            record.missed += u64::from(trial.warned.is_none_or(|warned| warned > at));
        } else {
            record.stayed += 1;
            record.stayed_warned += u64::from(trial.on);
            self.stayed(trial.score, trial.on);
        }
    }

    fn conclude_alarm(&mut self, fell: bool, lead: f64, seconds: f64) {
        let record = &mut self.record;
        if !fell {
            record.mistaken += 1;
            return;
        }
        record.hits += 1;
        record.lead_rows += (lead - record.lead_rows) / record.hits as f64;
        if seconds.is_finite() {
            record.timed += 1;
            record.lead_s += (seconds - record.lead_s) / record.timed as f64;
        }
    }

    /// A return that stayed had this score at its start, where the alarm was on or not: (Q9), (Q10).
    fn stayed(&mut self, score: f64, on: bool) {
        self.sort();
        let alpha = self.settings.false_alarms;
        let place = self.oldest as usize;
        if self.scores.len() < capacity(alpha) {
            self.scores.push(score);
        } else {
            let old = std::mem::replace(&mut self.scores[place], score);
            let at = self.sorted.partition_point(|&other| other.total_cmp(&old).is_lt());
            self.sorted.remove(at);
        }
        self.oldest = (self.oldest + 1) % capacity(alpha) as u64;
        let at = self.sorted.partition_point(|&other| other.total_cmp(&score).is_lt());
        self.sorted.insert(at, score);
        let step = GAIN * (alpha - f64::from(u8::from(on)));
        self.moved = (self.moved + step).min(MOVED_MAX);
        let share = alpha * self.moved.exp();
        (self.raise, self.clear) = (quantile(&self.sorted, share), quantile(&self.sorted, 2.0 * share));
        if self.moved <= -MOVED_MAX {
            // Where scores fall without end, no quantile of those that were is low enough.
            (self.raise, self.clear) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
        }
    }

    /// Sort the scores that were read from a file.
    fn sort(&mut self) {
        if self.sorted.len() != self.scores.len() {
            self.sorted.clone_from(&self.scores);
            self.sorted.sort_unstable_by(f64::total_cmp);
        }
    }

    fn is_consistent(&self) -> bool {
        let ring = capacity(self.settings.false_alarms);
        let trial = |trial: &Trial| {
            trial.start.max(trial.last) <= self.rows && trial.rows <= ROWS_MAX && trial.score.abs() <= SCORE_MAX
        };
        let next = if self.scores.len() < ring { self.scores.len() } else { self.oldest as usize };
        self.settings.check().is_ok()
            && self.trials.len() <= FOLLOWED_MAX + RAISED_MAX
            && self.trials.iter().all(trial)
            && self.on.iter().all(|on| on.last <= self.rows)
            && self.length.is_finite()
            && self.length >= 0.0
            && self.lengths <= LENGTHS_MAX
            && self.scores.len() <= ring
            && self.scores.iter().all(|score| score.abs() <= SCORE_MAX)
            && self.oldest < ring as u64
            && self.oldest as usize == next % ring
            && self.moved <= MOVED_MAX
            && self.moved.is_finite()
            && !self.raise.is_nan()
            && !self.clear.is_nan()
            && self.record.is_consistent()
    }
}

/// How many scores a warner with this share of false alarms remembers.
fn capacity(share: f64) -> usize {
    ((SCORES / share).ceil() as usize).clamp(SCORES_MIN, SCORES_MAX)
}

/// Quantile of `sorted` numbers (k,) at rank share (k + 1), between two of them by a straight line; below rank 1 beneath them all, above
/// rank k the largest.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = share * (sorted.len() + 1) as f64;
    if rank < 1.0 {
        return f64::NEG_INFINITY;
    }
    let below = (rank as usize).min(sorted.len()) - 1;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * (rank - rank.floor())
}

/// The alarms of one critic.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Warnings {
    of: Vec<Warner>,
}

impl Warnings {
    /// Let those go that do not stay, and end their alarms at `offset`: what they foretold is wanted no more, or is another return now.
    /// Returns what has happened.
    pub(crate) fn keep(&mut self, offset: u64, stays: impl Fn(&WarningSettings) -> bool) -> Vec<Warning> {
        let leaving = self.of.iter_mut().filter(|warner| !stays(&warner.settings));
        leaving.for_each(|warner| warner.cut_all(offset));
        let events = self.take_events();
        self.of.retain(|warner| stays(&warner.settings));
        events
    }

    /// Those that are `wanted`, each as it was among those `before` if it was there; none if none is. `discount` is the critic's: it says how
    /// long returns are until some have ended.
    pub(crate) fn settle(before: Option<Box<Self>>, wanted: &[WarningSettings], discount: f64) -> Option<Box<Self>> {
        if wanted.is_empty() {
            return None;
        }
        let mut known = before.map(|before| before.of).unwrap_or_default();
        let of = wanted.iter().map(|wanted| match known.iter().position(|warner| warner.settings == *wanted) {
            Some(k) => known.swap_remove(k),
            None => Warner::new(wanted.clone(), discount),
        });
        Some(Box::new(Self { of: of.collect() }))
    }

    /// In the order of the settings.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Warner> {
        self.of.iter()
    }

    /// The warner of the critic's first reward.
    pub(crate) fn of_values(&mut self) -> Option<&mut Warner> {
        self.of.iter_mut().find(|warner| warner.settings.head.is_none())
    }

    /// Of each one about a head its number and the name of the head.
    pub(crate) fn heads(&self) -> impl Iterator<Item = (usize, &str)> {
        self.of.iter().enumerate().filter_map(|(k, warner)| Some((k, warner.settings.head.as_deref()?)))
    }

    /// The warner of this number.
    pub(crate) fn at(&mut self, number: usize) -> &mut Warner {
        &mut self.of[number]
    }

    /// Rows of all streams before that at `offset` are missing, or are another policy's.
    pub(crate) fn cut_all(&mut self, offset: u64) {
        self.of.iter_mut().for_each(|warner| warner.cut_all(offset));
    }

    /// What has happened since this was last asked for, by offset, so that batches do not change the order.
    pub(crate) fn take_events(&mut self) -> Vec<Warning> {
        let mut events: Vec<Warning> = self.of.iter_mut().flat_map(|warner| warner.events.drain(..)).collect();
        events.sort_by_key(|event| event.offset);
        events
    }

    /// Bytes held, for reports of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.of.iter().map(|warner| warner_bytes(&warner.settings)).sum()
    }

    /// Whether everything has the size that everything else expects.
    pub(crate) fn is_consistent(&self) -> bool {
        self.of.iter().all(Warner::is_consistent)
    }
}

/// Bytes of an alarm.
pub fn warner_bytes(settings: &WarningSettings) -> usize {
    size_of::<Warner>()
        + (FOLLOWED_MAX + RAISED_MAX) * size_of::<Trial>()
        + 2 * capacity(settings.false_alarms) * size_of::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{mix, normal};

    const QUIET: WarningSettings = WarningSettings { head: None, below: -3.0, false_alarms: 0.05 };

    fn row(time: u64, reward: f64, discount: f64) -> SeenRow {
        SeenRow { stream: 0, offset: time, time: 0.1 * time as f64, decay: 1.0, reward, discount, ratio: 1.0 }
    }

    fn says(mean: f64) -> Option<Stated> {
        Some(Stated { mean, deviation: 1.0 })
    }

    /// Rows whose values are wrong by a bias that drifts and by noise that grows; each reward is a return.
    fn drifting(warner: &mut Warner, rows: std::ops::Range<u64>) {
        for t in rows {
            let drawn = |what| normal(mix(&[what, t]));
            let (phase, value) = (t as f64 / 20_000.0, normal(mix(&[1, t / 25])));
            let stated = value + 2.0 * (2.0 * phase).sin() + (0.3 + phase / 2.0) * drawn(2);
            warner.see(&row(t, value - 2.0 + 0.5 * drawn(3), 0.0), says(stated));
        }
    }

    #[test]
    fn the_share_of_false_alarms_is_kept_while_values_drift() {
        let mut warner = Warner::new(QUIET, 0.0);
        let mut before = WarningRecord::default();
        for part in 1..=4 {
            drifting(&mut warner, (part - 1) * 20_000..part * 20_000);
            let record = warner.record();
            let share = (record.stayed_warned - before.stayed_warned) as f64 / (record.stayed - before.stayed) as f64;
            assert!((0.8..1.2).contains(&(share / 0.05)), "part {part}: {share}");
            before = record;
        }
        let hits = before.hits as f64 / (before.hits + before.mistaken) as f64;
        assert!(before.raised > 1000 && hits > 0.3, "{before:?}");
        assert!(warner.is_consistent());
    }

    #[test]
    fn written_and_read_back_it_goes_on() {
        let bytes = |warner: &Warner| rmp_serde::to_vec_named(warner).unwrap();
        let mut one = Warner::new(QUIET, 0.0);
        drifting(&mut one, 0..3000);
        let mut other: Warner = rmp_serde::from_slice(&bytes(&one)).unwrap();
        one.events.clear();
        for warner in [&mut one, &mut other] {
            drifting(warner, 3000..12_000);
        }
        assert!(bytes(&one) == bytes(&other) && one.events == other.events && !one.events.is_empty());
        assert!(other.is_consistent());
        other.raise = f64::NAN;
        assert!(!other.is_consistent());
    }

    /// An episode of ten rows. The value falls at the fourth where `foretold`; where it `fails` the eighth costs ten.
    fn episode(warner: &mut Warner, from: u64, foretold: bool, fails: bool) {
        for k in 0..10 {
            let value = if foretold && (4..8).contains(&k) { -6.0 } else { 4.0 + normal(mix(&[from, k])) };
            let reward = if fails && k == 8 { -10.0 } else { 0.1 };
            warner.see(&row(from + k, reward, if k == 9 { 0.0 } else { 1.0 }), says(value));
        }
    }

    #[test]
    fn verdicts_and_lead_are_as_defined() {
        let settings = WarningSettings { below: -3.0, false_alarms: 0.01, head: None };
        let mut warner = Warner::new(settings, 1.0);
        let mut at = 0;
        let mut run = |warner: &mut Warner, count: u64, foretold, fails| {
            for _ in 0..count {
                episode(warner, at, foretold, fails);
                at += 10;
            }
        };
        assert_eq!(warner.missing(), 99);
        run(&mut warner, 2000, false, false);
        assert_eq!((warner.missing(), warner.record().fell), (0, 0));
        // Values of calm episodes scatter, so that some alarms are false: the stated share.
        let calm = warner.record();
        let share = calm.false_share().unwrap();
        assert!((0.5..1.5).contains(&(share / 0.01)) && calm.hits == 0 && calm.mistaken > 0, "{calm:?}");
        warner.events.clear();
        run(&mut warner, 200, true, true);
        let foretold = warner.record();
        let (hits, raised) = (foretold.hits - calm.hits, foretold.raised - calm.raised);
        assert!(raised - hits <= 3 && hits >= 190, "{foretold:?}");
        assert!((foretold.lead_rows - 4.0).abs() < 0.3 && (foretold.lead_s - 0.4).abs() < 0.03, "{foretold:?}");
        assert_eq!(foretold.timed, foretold.hits);
        // The alarm ends with the value that rises again, behind the failure.
        let [raised, ended] = &warner.events[..2] else { panic!("two events") };
        assert_eq!((raised.raised, ended.raised, ended.since), (true, false, raised.offset));
        assert_eq!((raised.value, ended.offset - raised.offset), (Some(-6.0), 4));
        let before = warner.record();
        run(&mut warner, 200, false, true);
        let missed = warner.record();
        // Chance alone raises an alarm before some of them.
        assert!(4 * (missed.missed - before.missed) > 3 * (missed.fell - before.fell), "{before:?}, {missed:?}");
    }

    #[test]
    fn a_stream_that_falls_silent_keeps_no_place() {
        let mut warner = Warner::new(QUIET, 0.9);
        let see = |warner: &mut Warner, stream: u32, rows: std::ops::Range<u64>, value: f64| {
            for t in rows {
                let seen = SeenRow { stream, ..row(t, 0.0, 0.9) };
                warner.see(&seen, says(value + normal(mix(&[u64::from(stream), t]))));
            }
        };
        see(&mut warner, 0, 0..2000, 0.0);
        see(&mut warner, 1, 2000..2001, -50.0);
        assert!(warner.streams().any(|stream| stream == 1));
        warner.events.clear();
        see(&mut warner, 0, 2001..2500, 0.0);
        assert!(warner.streams().any(|stream| stream == 1), "it may go on yet");
        see(&mut warner, 0, 2500..4000, 0.0);
        assert!(warner.streams().all(|stream| stream != 1) && warner.trials.iter().all(|trial| trial.stream == 0));
        let ended = warner.events.iter().find(|event| event.stream == 1).unwrap();
        assert_eq!((ended.raised, ended.since, ended.value), (false, 2000, None));
    }

    #[test]
    fn the_share_is_kept_where_scores_fall_without_end() {
        let wide = WarningSettings { false_alarms: 0.3, ..QUIET };
        let mut warner = Warner::new(wide, 0.0);
        for t in 0..40_000 {
            // Each value is lower than all before it, and every return stays.
            warner.see(&row(t, 0.0, 0.0), says(-0.01 * t as f64));
        }
        let share = warner.record().false_share().unwrap();
        assert!((0.25..0.35).contains(&share), "{share}");
    }

    #[test]
    fn a_cut_ends_alarms_and_gives_up_what_is_under_way() {
        let mut warner = Warner::new(WarningSettings { false_alarms: 0.5, ..QUIET }, 0.9);
        for t in 0..2000 {
            let value = normal(mix(&[t]));
            warner.see(&row(t, 0.0, 0.9), says(value));
        }
        assert!(warner.missing() == 0 && !warner.trials.is_empty());
        warner.see(&row(2000, 0.0, 0.9), says(-100.0));
        assert_eq!(warner.streams().collect::<Vec<_>>(), [0]);
        let known = warner.record();
        warner.cut(0, 2001, 1.0, Some(0.0));
        assert!(warner.trials.is_empty() && warner.streams().len() == 0);
        let now = warner.record();
        assert_eq!((now.hits, now.mistaken, now.fell), (known.hits, known.mistaken, known.fell));
        // What cannot be stated is not judged.
        warner.see(&row(2001, 0.0, 0.9), None);
        warner.see(&row(2002, 0.0, 0.9), says(f64::NAN));
        assert!(warner.trials.is_empty());
        assert!(WarningSettings::check_all(&[QUIET, QUIET]).unwrap_err().contains("entry 1: the value has"));
        let many = WarningSettings { false_alarms: 0.9, ..QUIET };
        assert!(WarningSettings::check_all(&[many]).unwrap_err().contains("false_alarms"));
    }
}
