//! What the columns of a table hold, and what each of them may be: for somebody who has still to say it.

use super::category::{LIST, is_list};
use super::cell::{BRACKETS, Cell, is_bracketed, is_currency, is_grouped, is_missing, number, yes_or_no};
use super::columns::Columns;
use super::job::Column;
use super::moment;
use super::one_hot::is_whole;
use std::collections::{BTreeMap, HashSet};

/// Rows that are looked at, at most.
const LOOKED_ROWS_MAX: u64 = 100_000;
/// Different values that are counted, and those that are named.
const DISTINCT: usize = 10_000;
const NAMED: usize = 8;
/// Rows of an episode in the mean, at least.
const EPISODE: f64 = 4.0;

/// A column as its cells have it.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Its name.
    pub name: String,
    /// Rows looked at, and those without a value.
    pub rows: u64,
    /// Of these.
    pub blank: u64,
    /// Rows with a number (finite), with a flag (true, false), and with a time that is written as a date.
    pub numbers: u64,
    /// Of these.
    pub flags: u64,
    /// Of these.
    pub dates: u64,
    /// Rows at which it is another one than in the row before, and those at which it is higher.
    pub changes: u64,
    /// Of these.
    pub rises: u64,
    /// How many different values there are, up to ten thousand.
    pub distinct: usize,
    /// The first of them.
    pub values: Vec<String>,
    /// Its place among columns that say together which action was taken: each row has a 1 in one of them, and 0 in the others.
    pub one_hot: Option<usize>,
    /// What the last row holds, if it is 0 or 1 or a flag.
    pub(super) bit: Option<bool>,
    seen: HashSet<u64>,
    last: Option<(u64, f64)>,
}

/// A table that was looked at.
#[derive(Clone, Debug, Default)]
pub struct Looked {
    /// The columns with one value for each row.
    pub columns: Vec<Look>,
    /// Those that hold lists, each with how many numbers.
    pub lists: Vec<String>,
    /// Rows of the file.
    pub rows: u64,
    /// What is odd about the file: a sentence each.
    pub told: Vec<String>,
}

impl Looked {
    pub(super) fn of(columns: Vec<Look>, lists: Vec<String>, rows: u64, mut told: Vec<String>) -> Self {
        for (name, count) in counts(&columns) {
            if count > 1 && !name.is_empty() {
                told.push(format!(
                    "column {name}: {count} columns have this name, of which none can be used; rename them"
                ));
            }
        }
        for column in columns.iter().filter(|column| !column.values.is_empty()) {
            let (name, all) = (&column.name, |is: fn(&str) -> bool| column.values.iter().all(|value| is(value)));
            if all(is_list) {
                told.push(format!("column {name}: texts that hold lists; {LIST}"));
            }
            if all(has_unit) {
                // Where no comma has been seen it may separate thousands or decimals: such a cell is left empty.
                let grouped = column.values.iter().any(|value| value.contains(','));
                let commas = if grouped { ".str.replace(\",\", \"\")" } else { "" };
                told.push(format!(
                    "column {name}: numbers with a text beside them. In Python: df = pandas.read_csv(\"OLD.csv\"); df[{name:?}] = \
                     df[{name:?}]{commas}.str.extract(r\"^[^\\d,.+-]*([-+]?[\\d.]+)[^\\d,]*$\").astype(float); df.to_csv(\"NEW.csv\", \
                     index=False)"
                ));
            }
            if column.values.iter().any(|value| is_bracketed(value)) {
                told.push(format!("column {name}: numbers in brackets; {BRACKETS}"));
            }
            if name.len() > 1 && name.starts_with('"') && name.ends_with('"') {
                told.push(format!(
                    "column {name}: quotes behind a blank belong to the text. In Python: pandas.read_csv(\"OLD.csv\", \
                     skipinitialspace=True).to_csv(\"NEW.csv\", index=False)"
                ));
            }
        }
        told.extend(say_long(&columns));
        let (parts, whole) = one_hot(&columns);
        if !parts.is_empty() && whole.is_none() {
            told.push(format!(
                "columns {}: in each row one of them is 1 and the others are 0, as of a discrete action. They are taken for {} numbers of an \
                 action; for one of --actions discrete:{} make one column of them. In Python: df = pandas.read_csv(\"OLD.csv\"); \
                 parts = {parts:?}; df[\"action\"] = df[parts].to_numpy().argmax(axis=1); \
                 df.drop(columns=parts).to_csv(\"NEW.csv\", index=False)",
                parts.join(", "),
                parts.len(),
                parts.len()
            ));
        }
        Self { columns, lists, rows, told }
    }
}

/// That each row holds one variable alone, which a column names, if it looks so: PLCs, databases of times and homes log like that.
fn say_long(columns: &[Look]) -> Option<String> {
    let is_text = |look: &Look| look.numbers + look.dates + look.flags == 0 && look.distinct > 1;
    let names = columns.iter().find(|look| {
        look.named(&VARIABLES) && is_text(look) && look.changes > 0 && look.rows >= 3 * look.distinct as u64
    })?;
    let clock = |look: &Look| look.is_clock() || look.is_slow_clock() || look.named(&TIMES);
    let mut numbers =
        columns.iter().filter(|look| look.numbers > 0 && !look.is_flag() && look.distinct > 1 && !clock(look));
    let (value, None) = (numbers.next().filter(|look| look.named(&VALUES))?, numbers.next()) else { return None };
    let time = columns.iter().find(|look| clock(look)).or_else(|| columns.iter().find(|look| look.dates > 0));
    let time = time.map_or("time", |look| &look.name);
    let (names, value) = (&names.name, &value.name);
    Some(format!(
        "column {names}: names of variables, of which each row has one, in {value}. Each needs a column of its own. In Python: \
         pandas.read_csv(\"OLD.csv\").pivot_table(index={time:?}, columns={names:?}, values={value:?}, aggfunc=\"last\").ffill().reset_index()\
         .to_csv(\"NEW.csv\", index=False)"
    ))
}

/// The columns that say together which action was taken, in their order; and the one that says it alone, so that they are needless.
fn one_hot(looks: &[Look]) -> (Vec<&str>, Option<&str>) {
    let of = |k| looks.iter().find(|look| look.one_hot == Some(k)).map(|look| look.name.as_str());
    let parts: Vec<&str> = (0..).map_while(of).collect();
    let whole = parts.first().and_then(|part| looks.iter().find(|look| is_whole(&look.name, part)));
    (parts, whole.map(|look| look.name.as_str()))
}

/// Which column is what, as far as names and values tell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Guess {
    /// What was found.
    pub columns: Columns,
    /// Columns of texts that say how episodes end, perhaps, each with some of its values.
    pub outcomes: Vec<(String, Vec<String>)>,
    /// What is left: neither a number that varies nor anything else of use.
    pub left: Vec<String>,
}

impl Look {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    pub(super) fn take(&mut self, cell: Cell<'_>) {
        if self.rows == LOOKED_ROWS_MAX {
            return;
        }
        self.rows += 1;
        let text = match cell {
            cell if is_missing(cell) => {
                self.blank += 1;
                String::new()
            }
            Cell::Written(text) | Cell::Ambiguous(text) | Cell::Text(text) => text.to_owned(),
            other => other.to_string(),
        };
        let number = match cell {
            Cell::Flag(_) => None,
            Cell::Written(text) if yes_or_no(text).is_some() => None,
            cell => number(cell, f64::MAX).ok().flatten(),
        };
        let date = if number.is_none() { moment::time(cell).ok().map(|time| time.seconds) } else { None };
        let flag = if let Cell::Flag(flag) = cell { Some(flag) } else { yes_or_no(&text) };
        self.bit = flag.or_else(|| number.filter(|v| matches!(v, 0.0 | 1.0)).map(|v| v == 1.0));
        self.numbers += u64::from(number.is_some_and(f64::is_finite));
        self.dates += u64::from(date.is_some());
        self.flags += u64::from(flag.is_some());
        let (print, size) = (cell.print(), number.or(date).unwrap_or(f64::NAN));
        if let Some((before, size_before)) = self.last.replace((print, size)) {
            self.changes += u64::from(before != print);
            self.rises += u64::from(size > size_before);
        }
        if self.seen.len() < DISTINCT && self.seen.insert(print) {
            self.distinct = self.seen.len();
            if self.values.len() < NAMED && !text.is_empty() {
                self.values.push(text);
            }
        }
    }

    /// Whether it holds numbers alone, but for gaps.
    pub fn is_number(&self) -> bool {
        self.numbers > 0 && self.numbers + self.blank >= self.rows.saturating_sub(self.rows / 50)
    }

    /// Whether it holds flags, as words or as 0 and 1.
    pub fn is_flag(&self) -> bool {
        let bits = |value: &String| matches!(value.parse(), Ok(0.0 | 1.0));
        let filled = self.rows - self.blank;
        filled > 0
            && (self.flags == filled || (self.numbers == filled && self.distinct <= 3 && self.values.iter().all(bits)))
    }

    /// Whether it holds a few texts, which come again.
    pub fn is_category(&self) -> bool {
        let texts = self.numbers == 0 && self.dates == 0 && self.flags == 0 && self.distinct > 1;
        texts && self.distinct <= NAMED && self.rows - self.blank >= 2 * self.distinct as u64
    }

    /// Whether it rises from row to row for most of the time, and now and then begins again.
    fn is_clock(&self) -> bool {
        (self.dates + self.numbers == self.rows) && self.rows > 2 && self.rises as f64 >= 0.7 * (self.rows - 1) as f64
    }

    /// Whether it is called a time and rises, and stays for several rows, as where robots take turns.
    fn is_slow_clock(&self) -> bool {
        let called = self.named(&TIMES) && self.dates + self.numbers == self.rows;
        called && self.rises > 0 && 4 * (self.changes - self.rises) <= self.rises
    }

    /// Whether its name is one of ours that says all.
    fn says_itself(&self) -> bool {
        use Column::{
            BehaviorLogProb, BehaviorProb, Discount, NextAction, NextActionProb, Policy, Session, StartsChain, Stream,
            TargetProb,
        };
        let of_policies = |column: &Column| {
            matches!(column, BehaviorProb | BehaviorLogProb | TargetProb | NextAction(_) | NextActionProb(_) | Policy)
        };
        let of_rows = |column: &Column| matches!(column, Discount | Session | StartsChain | Stream);
        Column::parse(&self.name).is_some_and(|column| of_policies(&column) || of_rows(&column))
    }

    /// Whether it is called a time, and falls from row to row for most of the time.
    fn runs_backwards(&self) -> bool {
        let called = TIMES.contains(&self.name.to_lowercase().as_str()) && self.dates + self.numbers == self.rows;
        called && self.rows > 2 && (self.changes - self.rises) as f64 >= 0.7 * (self.rows - 1) as f64
    }

    /// Whether it stays for some rows, then changes for good.
    fn tells_runs(&self) -> bool {
        let runs = self.changes + 1;
        self.blank == 0 && self.changes > 0 && self.distinct as u64 == runs && self.rows as f64 / runs as f64 >= EPISODE
    }

    fn named(&self, words: &[&str]) -> bool {
        let name = self.name.to_lowercase();
        let parts: Vec<&str> = name.split(|c: char| !c.is_alphanumeric()).collect();
        words.iter().any(|word| parts.contains(word))
    }
}

const EPISODES: [&str; 12] =
    ["episode", "ep", "mission", "run", "trial", "trip", "traj", "trajectory", "rollout", "lap", "flight", "job"];
const TIMES: [&str; 12] =
    ["time", "t", "timestamp", "stamp", "date", "datetime", "step", "second", "seconds", "sec", "secs", "frame"];
/// The two parts of a time that stands in two columns.
const SECONDS: [&str; 3] = ["sec", "secs", "seconds"];
const FRACTIONS: [&str; 6] = ["nsec", "nsecs", "nanosec", "nanosecs", "nanoseconds", "usec"];
const COSTS: [&str; 5] = ["cost", "costs", "loss", "penalty", "expense"];
const REWARDS: [&str; 4] = ["reward", "rewards", "rew", "r"];
const TERMINATED: [&str; 13] = [
    "terminated",
    "term",
    "terminal",
    "arrived",
    "success",
    "succeeded",
    "failed",
    "failure",
    "fail",
    "crash",
    "crashed",
    "collision",
    "goal",
];
const TRUNCATED: [&str; 6] = ["truncated", "trunc", "truncation", "timeout", "timeouts", "limit"];
const DONES: [&str; 6] = ["done", "dones", "over", "end", "ended", "finished"];
/// Columns that name the variable of a row, and those that have its value.
const VARIABLES: [&str; 10] =
    ["variable", "varname", "tag", "tagname", "signal", "metric", "channel", "parameter", "field", "entity"];
const VALUES: [&str; 5] = ["value", "varvalue", "val", "reading", "state"];
/// What counts rows.
const COUNTERS: [&str; 7] = ["index", "idx", "unnamed", "row", "seq", "id", "counter"];
const ACTIONS: [&str; 11] =
    ["u", "action", "actions", "act", "cmd", "command", "throttle", "steering", "torque", "control", "ctrl"];
const OUTCOMES: [&str; 6] = ["outcome", "result", "status", "event", "reason", "verdict"];

/// Whether a text is a number and a unit: 0.5 m/s, 49 %, $1,234.50.
fn has_unit(text: &str) -> bool {
    let bare = text.trim_start_matches(is_currency);
    let unit = bare.trim_start_matches(|c: char| c.is_ascii_digit() || "+-.,".contains(c));
    let number = &bare[..bare.len() - unit.len()];
    let unit = if bare.len() < text.len() { "$" } else { unit };
    (number.parse::<f64>().is_ok() || is_grouped(number))
        && !unit.trim().is_empty()
        && !unit.contains(|c: char| c.is_ascii_digit())
}

/// How many columns have each name.
fn counts(looks: &[Look]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    looks.iter().for_each(|look| *counts.entry(look.name.as_str()).or_default() += 1);
    counts
}

/// What the columns may be. A reward is guessed by its name alone, and so is an end.
pub fn guess(looks: &[Look]) -> Guess {
    let named = counts(looks);
    let in_two = [&SECONDS[..], &FRACTIONS].iter().all(|words| looks.iter().any(|look| look.named(words)));
    // Neither columns of one name nor the parts of a time are of use. What is read by its own name needs no word.
    let of_use =
        |look: &&Look| named[look.name.as_str()] == 1 && !(in_two && (look.named(&SECONDS) || look.named(&FRACTIONS)));
    let (mut free, useless): (Vec<&Look>, Vec<&Look>) =
        looks.iter().filter(|look| !look.name.is_empty() && !look.says_itself()).partition(of_use);
    let mut take = |fits: &dyn Fn(&Look) -> bool| -> Option<String> {
        let at = free.iter().position(|look| fits(look))?;
        Some(free.remove(at).name.clone())
    };
    let mut columns = Columns::default();
    let (parts, whole) = one_hot(looks);
    let parts = parts.into_iter().filter_map(|name| take(&|look| look.name == name)).collect();
    let mut needless = Vec::new();
    *(if whole.is_some() { &mut needless } else { &mut columns.action }) = parts;
    columns.action.extend(whole.and_then(|name| take(&|look| look.name == name)));
    let flag = |words: &'static [&'static str]| move |look: &Look| look.is_flag() && look.named(words);
    columns.terminated = take(&flag(&TERMINATED));
    columns.truncated = take(&flag(&TRUNCATED));
    columns.done = if columns.terminated.is_none() { take(&flag(&DONES)) } else { None };
    let cost = take(&|look| look.is_number() && look.named(&REWARDS))
        .or_else(|| take(&|look| look.is_number() && look.named(&COSTS)).map(|name| format!("-{name}")));
    columns.reward = cost.into_iter().collect();
    columns.episode = take(&|look| look.named(&EPISODES) && look.changes > 0 && !look.is_flag())
        .or_else(|| take(&|look| look.tells_runs() && !look.is_flag()));
    columns.time = take(&|look| look.named(&TIMES) && look.is_clock())
        .or_else(|| take(&Look::is_clock))
        .or_else(|| take(&Look::is_slow_clock))
        .or_else(|| if columns.episode.is_none() { take(&Look::runs_backwards) } else { None });
    while let Some(name) = take(&|look| look.named(&ACTIONS) && look.is_number()) {
        columns.action.push(name);
    }
    if columns.action.is_empty() {
        columns.action.extend(take(&|look| look.named(&ACTIONS) && look.is_category()));
    }
    let mut outcomes = Vec::new();
    while let Some(name) = take(&|look| look.named(&OUTCOMES) && !look.is_number() && !look.values.is_empty()) {
        let look = looks.iter().find(|look| look.name == name);
        let mut values = look.map(|look| look.values.clone()).unwrap_or_default();
        if look.is_some_and(|look| look.blank == 0) {
            // What every episode begins with ends none.
            let first = values.len().min(1);
            values.rotate_left(first);
        }
        outcomes.push((name, values));
    }
    let is_time = |look: &Look| look.is_clock() && (look.named(&TIMES) || look.named(&COUNTERS));
    while let Some(name) = take(&|look| look.is_number() && look.distinct > 1 && !is_time(look)) {
        columns.state.push(name);
    }
    let mut left: Vec<String> = free.iter().chain(&useless).map(|look| look.name.clone()).collect();
    left.append(&mut needless);
    let before = |name: &String| {
        let before =
            ["next_", "_next"].iter().find(|word| name.contains(**word)).map(|word| name.replacen(word, "", 1))?;
        columns.state.iter().position(|state| *state == before)
    };
    let mut next: Vec<(usize, String)> =
        columns.state.iter().filter_map(|name| Some((before(name)?, name.clone()))).collect();
    columns.state.retain(|name| next.iter().all(|(_, next)| next != name));
    next.sort();
    let next = next.into_iter().map(|(_, name)| name);
    // Of some variables alone they are of no use.
    if next.len() == columns.state.len() {
        columns.next_state = next.collect()
    } else {
        left.extend(next)
    }
    Guess { columns, outcomes, left }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(text: &str) -> Vec<Look> {
        let mut lines = text.lines();
        let mut looks: Vec<Look> = lines.next().unwrap().split(',').map(Look::new).collect();
        for line in lines {
            line.split(',').zip(&mut looks).for_each(|(cell, look)| look.take(Cell::Written(cell)));
        }
        looks
    }

    #[test]
    fn columns_are_guessed_by_name_and_by_what_they_hold() {
        let mut text = "stamp,vehicle run,x_m,soc,note,firmware,cmd_v,energy cost,outcome,arrived\n".to_owned();
        for i in 0..40 {
            let (run, t) = (i / 10, i % 10);
            let end = t == 9;
            text += &format!(
                "2026-01-01T00:00:{i:02},R{run},{}.5,{},,v1,0.{t},1.25,{},{}\n",
                (i * 7) % 13,
                90 - t,
                if end { "docked" } else { "" },
                if end { 1 } else { 0 }
            );
        }
        let Guess { columns, outcomes, left } = guess(&looks(&text));
        let text = |name: &str| Some(name.to_owned());
        assert_eq!(
            (columns.episode, columns.time, columns.terminated),
            (text("vehicle run"), text("stamp"), text("arrived"))
        );
        assert_eq!(
            (&columns.state[..], &columns.action[..]),
            (&["x_m".to_owned(), "soc".to_owned()][..], &["cmd_v".to_owned()][..])
        );
        assert_eq!(columns.reward, ["-energy cost"]);
        assert_eq!(outcomes, [("outcome".to_owned(), vec!["docked".to_owned()])]);
        assert_eq!(left, ["note", "firmware"]);
    }

    #[test]
    fn a_column_without_a_name_that_says_it_tells_runs() {
        let rows: String = (0..60).map(|i| format!("{},{},{}\n", 700 + i / 12, i * 37 % 11, i)).collect();
        let found = guess(&looks(&format!("batch,level,k\n{rows}")));
        assert_eq!(found.columns.episode.as_deref(), Some("batch"));
        assert_eq!((found.columns.time.as_deref(), &found.columns.state[..]), (Some("k"), &["level".to_owned()][..]));
        assert_eq!((found.columns.reward.len(), found.columns.terminated), (0, None));
    }

    #[test]
    fn successors_and_parts_of_times_are_no_variables_of_the_state() {
        let rows: String = (0..60)
            .map(|i| {
                let (a, b, end) = (i * 37 % 11, i * 17 % 13, u8::from(i % 20 == 19));
                let state = if end == 1 { "docked" } else { "on its way" };
                format!("{},{}00000000,{a},{b},{},{},{end},0,{state}\n", 100 + i / 10, i % 10, a + 1, b + 1)
            })
            .collect();
        let head = "stamp.sec,stamp.nsec,obs_0,obs_1,obs_next_1,next_obs_0,term,trunc,status\n";
        let Guess { columns, outcomes, left } = guess(&looks(&format!("{head}{rows}")));
        assert_eq!(
            (&columns.state[..], columns.episode, columns.time),
            (&["obs_0", "obs_1"].map(str::to_owned)[..], None, None)
        );
        assert_eq!(columns.next_state, ["next_obs_0", "obs_next_1"]);
        assert_eq!((columns.terminated.as_deref(), columns.truncated.as_deref()), (Some("term"), Some("trunc")));
        assert_eq!(outcomes, [("status".to_owned(), ["docked", "on its way"].map(str::to_owned).to_vec())]);
        assert_eq!(left, ["stamp.sec", "stamp.nsec"]);
        let rows: String =
            (0..60).map(|i| format!("{},{},{}\n", 90 - i, i * 37 % 11, ["left", "right"][i % 2])).collect();
        let found = guess(&looks(&format!("time,x,action\n{rows}"))).columns;
        assert_eq!((found.time.as_deref(), &found.action[..]), (Some("time"), &["action".to_owned()][..]));
        let mut hot = looks("x,a_0,a_1,b\n2,1,0,1\n3,0,1,0\n1,1,0,0\n2,0,1,1\n");
        (hot[1].one_hot, hot[2].one_hot) = (Some(1), Some(0));
        let found = guess(&hot).columns;
        assert_eq!(
            (found.action, found.state),
            (["a_1", "a_0"].map(str::to_owned).to_vec(), ["x", "b"].map(str::to_owned).to_vec())
        );
        hot[3].name = "a".to_owned();
        let found = guess(&hot);
        assert_eq!(
            (&found.columns.action[..], &found.left[..]),
            (&["a".to_owned()][..], &["a_1", "a_0"].map(str::to_owned)[..])
        );
        let some = guess(&looks("x,y,next_x\n2,2,3\n3,4,1\n1,1,2\n2,2,2\n")).columns;
        assert_eq!((&some.state[..], some.next_state.len()), (&["x", "y"].map(str::to_owned)[..], 0));
    }

    #[test]
    fn tables_with_one_variable_in_each_row_are_told() {
        let told = |head: &str, rows: &str| say_long(&looks(&format!("{head}\n{rows}")));
        let rows: String =
            (0..12).map(|i| format!("{},{},{}.5,Good\n", i / 2, ["temp", "fan"][i % 2], i * 7 % 5)).collect();
        let said = told("Time,TagName,Value,Quality", &rows).unwrap();
        assert!(said.contains("pivot_table(index=\"Time\", columns=\"TagName\", values=\"Value\", aggfunc"), "{said}");
        // A mode beside other numbers is none.
        let rows: String =
            (0..12).map(|i| format!("{i},{},{}.5,{}\n", ["a", "b"][i % 2], i * 7 % 5, i * 3 % 7)).collect();
        assert_eq!(told("time,channel,value,speed", &rows), None);
        assert_eq!(told("time,mode,value,_", &rows), None);
    }

    #[test]
    fn counters_and_what_says_itself_are_no_variables_of_the_state() {
        let rows: String =
            (0..60).map(|i| format!("{i},{},{},0.{i},{},{}.5\n", i / 3, i * 37 % 11, i * 7 % 3, i * 5 % 7)).collect();
        let found = guess(&looks(&format!(",timestep_time,x,action_prob,next_action,ctrl\n{rows}")));
        assert_eq!(
            (&found.columns.state[..], found.columns.time.as_deref()),
            (&["x".to_owned()][..], Some("timestep_time"))
        );
        assert_eq!((&found.columns.action[..], found.left.len()), (&["ctrl".to_owned()][..], 0));
        let rows: String = (0..60).map(|i| format!("{i},{i},{}\n", i * 37 % 11)).collect();
        let found = guess(&looks(&format!("time,Unnamed: 0,x\n{rows}")));
        assert_eq!(
            (&found.columns.state[..], &found.left[..]),
            (&["x".to_owned()][..], &["Unnamed: 0".to_owned()][..])
        );
    }
}
