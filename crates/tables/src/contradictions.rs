//! Where a table contradicts itself: rows that come twice, episodes that go on after their end, clocks that step back.
//!
//! Rows are looked at one after the other, in the order in which they are learned. Each is compared with the one before it in
//! its stream: in that order, rows of one episode and time are neighbours.

use super::Fault;
use super::moment::Moment;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Rows that are remembered to find runs that come again, at most: some 75 MB.
const REMEMBERED: usize = 1 << 22;
/// Times from here on, seconds from 1970 or parts of them, come once; smaller ones may count from the start of each run.
const ABSOLUTE: i64 = 100_000_000;

/// How a row ends its episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Terminated,
    Truncated,
}

impl End {
    pub(super) fn of(terminated: bool, truncated: bool) -> Option<Self> {
        match (terminated, truncated) {
            (true, _) => Some(Self::Terminated),
            (false, true) => Some(Self::Truncated),
            (false, false) => None,
        }
    }
}

/// What there is to see of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    /// Line or row of the file.
    pub(super) line: u64,
    /// Number of its episode; 0 where none is named.
    pub(super) episode: u32,
    /// What tells it apart from the others of its episode.
    pub(super) moment: Moment,
    /// A hash of all that is learned from it.
    pub(super) print: u64,
    pub(super) end: Option<End>,
    /// Whether it gives its state alone, so that it is no step.
    pub(super) bare: bool,
    /// Whether it says itself that it does not continue the row before it.
    pub(super) opens: bool,
}

/// The last row of a stream.
#[derive(Clone, Copy, Debug)]
struct Last {
    row: Sight,
    /// Whether it is the first of its episode as well.
    alone: bool,
}

/// Rows that have something in common: how many, of how many episodes, and the first of them in the file, with the row
/// before it.
#[derive(Debug, Default)]
struct Tally {
    rows: u64,
    episodes: u64,
    episode: Option<u32>,
    first: Option<(Sight, Sight)>,
}

impl Tally {
    fn add(&mut self, row: &Sight, before: &Sight) {
        self.rows += 1;
        self.episodes += u64::from(self.episode.replace(row.episode) != Some(row.episode));
        if self.first.is_none_or(|(first, _)| row.line < first.line) {
            self.first = Some((*row, *before));
        }
    }
}

/// Rows that were read, of a table where nothing names episodes, and the run that each stream is in.
#[derive(Debug, Default)]
struct Remembered {
    /// Hashes of stream, time and all that is learned.
    rows: HashSet<u64>,
    runs: Vec<Option<Run>>,
    latest: Vec<Option<Moment>>,
}

/// Rows from an end, or from a time that steps back, to the next one.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: Sight,
    rows: u64,
    /// How many of them were there before, time and all.
    again: u64,
}

impl Remembered {
    /// Take in a row; whether it was there before, and whether its clock has stepped back since.
    fn take(&mut self, stream: u32, row: &Sight) -> (bool, bool) {
        let mut hasher = DefaultHasher::new();
        (stream, row.moment, row.print).hash(&mut hasher);
        let hash = hasher.finish();
        let known = self.rows.contains(&hash);
        if !known && self.rows.len() < REMEMBERED {
            self.rows.insert(hash);
        }
        let latest = place(&mut self.latest, stream);
        let back = latest.is_some_and(|latest| row.moment < latest);
        if !back {
            self.latest[stream as usize] = Some(row.moment);
        }
        (known, back)
    }

    /// Let a row go on in its run, or begin one; the run that has ended, if all of it was there before.
    fn follow(&mut self, stream: u32, row: &Sight, known: bool, begins: bool) -> Option<Run> {
        let before = place(&mut self.runs, stream).filter(|_| begins);
        let run = self.runs[stream as usize].filter(|_| !begins);
        let Run { first, rows, again } = run.unwrap_or(Run { first: *row, rows: 0, again: 0 });
        self.runs[stream as usize] = Some(Run { first, rows: rows + 1, again: again + u64::from(known) });
        before.filter(Run::is_again)
    }
}

impl Run {
    /// Runs of one row say too little.
    fn is_again(&self) -> bool {
        self.rows > 1 && self.again == self.rows
    }
}

/// Finds the contradictions of a table.
#[derive(Debug)]
pub(super) struct Contradictions {
    /// Whether there is a column that names episodes; else one ends where a row says so.
    named: bool,
    /// Whether every row is kept.
    keep: bool,
    /// Whether rows have numbers.
    numbered: bool,
    /// Of each stream.
    last: Vec<Option<Last>>,
    copies: Tally,
    /// Rows that are equal to the one before them, where nothing says when they were.
    repeats: Tally,
    differing: Tally,
    beyond: Tally,
    /// Rows before the one before them, in the order of the file; of each episode or stream the last row there, and of each
    /// stream the episode of its last row.
    back: Tally,
    /// Rows that have one before them there.
    followed: u64,
    newest: Vec<Option<Sight>>,
    current: Vec<Option<u32>>,
    /// Episodes that come again behind others, where nothing says in which order their rows are.
    again: Tally,
    remembered: Remembered,
    /// Runs of which every row was there before, at times that may count from the start of each.
    repeated: Tally,
}

/// What things are called in the file.
#[derive(Debug)]
pub(super) struct Words<'a> {
    /// A line, or a row.
    pub(super) row: &'static str,
    /// The columns of episodes and times; empty where there is none.
    pub(super) episode: String,
    pub(super) time: String,
    /// Whether times are dates, and whether rows are put into their order.
    pub(super) calendar: bool,
    pub(super) sorts: bool,
    /// Whether a time says which row is the next one.
    pub(super) leads: bool,
    /// Names of the episodes.
    pub(super) episodes: &'a [String],
}

impl Words<'_> {
    /// "mission 0, t 3"; one of the two, if there is only one.
    fn which(&self, row: &Sight) -> String {
        let name = self.episodes.get(row.episode as usize).map(|name| format!("{} {name}", self.episode));
        let time = (!row.moment.is_none()).then(|| format!("{} {}", self.time, row.moment.said(self.calendar)));
        name.into_iter().chain(time).collect::<Vec<_>>().join(", ")
    }

    /// The same, with the line before it.
    fn place(&self, row: &Sight) -> String {
        let line = format!("{} {}", self.row, row.line);
        match self.which(row) {
            which if which.is_empty() => line,
            which => format!("{line}, {which}"),
        }
    }
}

/// "1 row has" and "3 rows have" and the like.
fn count(n: u64, one: &str, many: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {many}") }
}

fn place<T: Copy>(of: &mut Vec<Option<T>>, at: u32) -> Option<T> {
    if of.len() <= at as usize {
        of.resize(at as usize + 1, None);
    }
    of[at as usize]
}

impl Contradictions {
    pub(super) fn new(named: bool, keep: bool, numbered: bool) -> Self {
        Self {
            named,
            keep,
            numbered,
            last: Vec::new(),
            copies: Tally::default(),
            repeats: Tally::default(),
            differing: Tally::default(),
            beyond: Tally::default(),
            back: Tally::default(),
            followed: 0,
            newest: Vec::new(),
            current: Vec::new(),
            again: Tally::default(),
            remembered: Remembered::default(),
            repeated: Tally::default(),
        }
    }

    /// Look at the next row of the file, with times that are dates or not; whether it is a copy to be left out.
    pub(super) fn read(&mut self, stream: u32, row: &Sight, calendar: bool) -> bool {
        if self.named || row.moment.is_none() {
            self.look_back(stream, row);
            return self.see(stream, row);
        }
        let (known, back) = self.remembered.take(stream, row);
        if known && back && (calendar || row.moment.is_absolute(ABSOLUTE)) {
            return self.copied(row);
        }
        let before = self.last.get(stream as usize).copied().flatten().map(|last| last.row);
        self.look_back(stream, row);
        if self.see(stream, row) {
            return true;
        }
        let begins = before.is_some_and(|before| before.end.is_some() || row.opens || row.moment < before.moment);
        let ended = self.remembered.follow(stream, row, known, begins);
        ended.iter().for_each(|run| self.repeated.add(&run.first, &run.first));
        false
    }

    /// Look at a row in the order in which it is learned; whether it is a copy to be left out.
    pub(super) fn see(&mut self, stream: u32, row: &Sight) -> bool {
        let before = place(&mut self.last, stream).filter(|last| last.row.episode == row.episode);
        let Some(Last { row: before, alone }) = before else {
            self.last[stream as usize] = Some(Last { row: *row, alone: true });
            return false;
        };
        // Where no column names episodes, an end begins another.
        let goes_on = self.named || before.end.is_none();
        if before.moment == row.moment && before.print == row.print && (goes_on || !alone) {
            self.copies.add(row, &before);
            if !self.keep {
                return true;
            }
        } else if before.moment == row.moment && goes_on && !row.opens {
            self.differing.add(row, &before);
        } else if self.named && before.end.is_some() && !row.opens && !row.bare {
            self.beyond.add(row, &before);
        } else if self.repeats(&before, row) && (goes_on || !alone) && !row.opens {
            self.repeats.add(row, &before);
        }
        let alone = row.opens || !goes_on || row.moment < before.moment;
        self.last[stream as usize] = Some(Last { row: *row, alone });
        false
    }

    /// Whether a row may be a copy of the one before it, or may be of a robot that stands still.
    fn repeats(&self, before: &Sight, row: &Sight) -> bool {
        let timeless = before.moment.is_none() && row.moment.is_none() && !self.numbered;
        timeless && before.print == row.print && before.end == row.end
    }

    /// Take in a row that is a copy of any before it; whether it is to be left out.
    pub(super) fn copied(&mut self, row: &Sight) -> bool {
        self.copies.add(row, row);
        !self.keep
    }

    /// Begin again, in another order than the file's; copies stay counted.
    pub(super) fn restart(&mut self) {
        (self.last, self.differing, self.beyond, self.repeats) = Default::default();
        (self.back, self.followed, self.again, self.newest, self.current) = Default::default();
    }

    /// Look whether the file itself goes back: to an earlier time, or to an episode that was over.
    pub(super) fn look_back(&mut self, stream: u32, row: &Sight) {
        let current = place(&mut self.current, stream);
        self.current[stream as usize] = Some(row.episode);
        let slot = if self.named { row.episode } else { stream };
        let newest = place(&mut self.newest, slot);
        self.newest[slot as usize] = Some(*row);
        let Some(before) = newest else { return };
        self.followed += 1;
        if row.moment < before.moment && (self.named || (before.end.is_none() && !row.opens)) {
            self.back.add(row, &before);
        }
        if row.moment.is_none() && current.is_some_and(|episode| episode != row.episode) {
            self.again.add(row, &before);
        }
    }

    /// Copies that were left out.
    pub(super) fn left_out(&self) -> usize {
        if self.keep { 0 } else { self.copies.rows as usize }
    }

    /// What there is to tell of the table.
    ///
    /// # Errors
    /// What it is refused for.
    pub(super) fn judge(&self, words: &Words<'_>) -> Result<Vec<String>, Fault> {
        let wrong = [
            (&self.differing, &words.time, self.say_differing(words), self.help_differing(words)),
            (&self.beyond, &words.episode, self.say_beyond(words), self.help_beyond(words)),
        ];
        for (tally, column, said, help) in &wrong {
            if let (Some((row, _)), Some(said), false) = (&tally.first, said, self.keep) {
                let message =
                    format!("{said}. {help}, or keep every row as a step, in the order of the file: --order keep");
                return Err(Fault::Cell { row: row.line, column: (*column).clone(), message });
            }
        }
        if let (Some((row, _)), false) = (&self.back.first, self.named || !words.leads)
            && self.back.rows > 2
            && self.back.rows * 10 >= self.followed * 9
        {
            let message = format!(
                "falls in {} of {} rows. If the file ends with what came first, turn it round; in Python: \
                 pandas.read_csv(\"OLD.csv\").iloc[::-1].to_csv(\"NEW.csv\", index=False). If the time counts down to an end, leave it \
                 out (--time)",
                self.back.rows, self.followed
            );
            return Err(Fault::Cell { row: row.line, column: words.time.clone(), message });
        }
        let kept = wrong.into_iter().filter_map(|(_, _, said, _)| said);
        let order = self.say_back(words).into_iter().chain(self.say_again(words));
        let copies = self.say_copies(words).into_iter().chain(self.say_repeats(words)).chain(self.say_repeated(words));
        Ok(kept.chain(copies).chain(order).collect())
    }

    /// Runs that came again; those that the table ends with among them.
    fn say_repeated(&self, words: &Words<'_>) -> Option<String> {
        let last = self.remembered.runs.iter().flatten().filter(|run| run.is_again());
        let (mut runs, mut first) = (self.repeated.rows, self.repeated.first.map(|(row, _)| row));
        for run in last {
            runs += 1;
            first = first.filter(|row| row.line < run.first.line).or(Some(run.first));
        }
        let comes = count(runs, "run comes again", "runs come again");
        Some(format!(
            "{comes} with the same {} and the same numbers, and every row is learned; the first: {}. If the file holds an \
             export twice, leave it out once, or say which column tells runs apart (--episode)",
            words.time,
            words.place(&first?)
        ))
    }

    fn say_differing(&self, words: &Words<'_>) -> Option<String> {
        let (row, before) = self.differing.first.as_ref()?;
        let of = match words.episode.is_empty() {
            true => format!("the {} of the row before", words.time),
            false => format!("the {} and {} of another row", words.episode, words.time),
        };
        let has = count(self.differing.rows, "row has", "rows have");
        let which = words.which(row);
        Some(format!(
            "{has} {of} and other numbers; the first is this one: {which}, as in {} {}",
            words.row, before.line
        ))
    }

    fn help_differing(&self, words: &Words<'_>) -> String {
        let names = match words.episode.as_str() {
            "" => "say which column tells runs apart (--episode), or robots (stream)".to_owned(),
            name => format!("give runs of a restarted logger other names in {name}, and robots a column stream"),
        };
        format!("Where rows of several runs or robots are mixed, {names}{}", self.clock(words))
    }

    fn say_beyond(&self, words: &Words<'_>) -> Option<String> {
        let (row, before) = self.beyond.first.as_ref()?;
        let go = if self.beyond.episodes == 1 { "goes" } else { "go" };
        let how = if before.end == Some(End::Terminated) { "terminates" } else { "is truncated" };
        Some(format!(
            "{} of {} episodes {go} on after a row that ended them; the first row that does is {}, behind {} {}, which {how}",
            self.beyond.episodes,
            words.episodes.len(),
            words.which(row),
            words.row,
            before.line
        ))
    }

    fn help_beyond(&self, words: &Words<'_>) -> String {
        let help = "Set the flag in the last row of an episode alone, leave out the rows behind it, or give them another name in";
        format!("{help} {}{}", words.episode, self.clock(words))
    }

    /// What a clock that was set back has to do with it.
    fn clock(&self, words: &Words<'_>) -> String {
        match &self.back.first {
            Some((row, _)) if words.sorts && self.named => {
                format!("; or leave --time out if its clock was set back: it steps back in {} {}", words.row, row.line)
            }
            _ => String::new(),
        }
    }

    fn say_copies(&self, words: &Words<'_>) -> Option<String> {
        let (row, _) = self.copies.first.as_ref()?;
        let what = count(self.copies.rows, "row is an exact copy of another", "rows are exact copies of others");
        let done = match (self.keep, self.copies.rows) {
            (true, _) => "kept",
            (false, 1) => "is left out",
            (false, _) => "are left out",
        };
        Some(format!("{what} and {done}; the first: {}", words.place(row)))
    }

    fn say_repeats(&self, words: &Words<'_>) -> Option<String> {
        let (row, _) = self.repeats.first.as_ref()?;
        let what = count(self.repeats.rows, "row is", "rows are");
        Some(format!(
            "{what} equal to the one before, and every row is learned; the first: {}. No column says when a row was, which would tell copies \
             from a robot that stands still: name one (--time), or leave copies out",
            words.place(row)
        ))
    }

    fn say_back(&self, words: &Words<'_>) -> Option<String> {
        let (row, before) = self.back.first.as_ref()?;
        let times = if self.back.rows == 1 { "once".to_owned() } else { format!("{} times", self.back.rows) };
        let what = match (self.named, words.sorts) {
            (true, true) => " inside episodes, whose rows are put into its order",
            (true, false) => " inside episodes, whose rows stay in the order of the file",
            (false, true) => ", and an episode begins there",
            (false, false) => "",
        };
        let from = before.moment.said(words.calendar);
        Some(format!("{} steps back {times}{what}; the first: {}, after {from}", words.time, words.place(row)))
    }

    fn say_again(&self, words: &Words<'_>) -> Option<String> {
        let (row, _) = self.again.first.as_ref()?;
        let comes = count(self.again.episodes, "episode comes again", "episodes come again");
        let then = "their rows are put together in the order of the file, since no column says when they were (--time)";
        Some(format!("{comes} behind others: {then}; the first: {}", words.place(row)))
    }
}
