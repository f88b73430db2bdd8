//! What was, in bounded memory: every second for ten minutes, then every ten seconds, then every minute for half a day.

use crate::monitor::number;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::VecDeque;

/// Points that a level keeps, and how many of the level before it stand for one of its own.
const LEVELS: [(usize, u64); 3] = [(600, 1), (600, 10), (720, 6)];
/// Numbers that are kept in a file at most; with hundreds of critics the oldest rows are left out.
const KEPT_NUMBERS: usize = 2 << 20;
/// Seconds behind the last row at which a gap begins.
const GAP_S: f64 = 1e-3;

/// Rows of numbers over time, all of one width; the older the sparser.
#[derive(Debug)]
pub(super) struct History {
    /// Names of the columns, in their order; the first is the time.
    columns: Vec<String>,
    levels: [VecDeque<Vec<f64>>; LEVELS.len()],
    pushed: u64,
}

/// A [`History`] as the file holds it. A picture needs no more than seven digits, a time does.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeptHistory {
    /// Names of the numbers of a row, without the time.
    columns: Vec<String>,
    levels: Vec<Vec<(f64, Vec<f32>)>>,
    pushed: u64,
}

impl History {
    pub(super) fn new(columns: Vec<String>) -> Self {
        Self { columns, levels: Default::default(), pushed: 0 }
    }

    /// Names of the numbers of a row.
    pub(super) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// A row, as wide as there are columns; NaN where there is no number.
    pub(super) fn push(&mut self, row: &[f64]) {
        assert_eq!(row.len(), self.columns.len(), "a row has a number for each column");
        let mut every = 1;
        for (level, (most, thinning)) in self.levels.iter_mut().zip(LEVELS) {
            every *= thinning;
            if self.pushed.is_multiple_of(every) {
                if level.len() == most {
                    level.pop_front();
                }
                level.push_back(row.to_vec());
            }
        }
        self.pushed += 1;
    }

    /// The part that the next run shows.
    pub(super) fn keep(&self) -> KeptHistory {
        let most = KEPT_NUMBERS / (LEVELS.len() * self.columns.len());
        let row = |row: &Vec<f64>| (row[0], row[1..].iter().map(|v| *v as f32).collect());
        let level = |rows: &VecDeque<Vec<f64>>| rows.iter().skip(rows.len().saturating_sub(most)).map(row).collect();
        KeptHistory {
            columns: self.columns[1..].to_vec(),
            levels: self.levels.iter().map(level).collect(),
            pushed: self.pushed,
        }
    }

    /// Begin with the rows of an earlier run, those from before `now`, in Unix seconds. A row of gaps follows, so that no line is
    /// drawn across the time in between; columns in `through` have none.
    pub(super) fn resume(&mut self, kept: &KeptHistory, now: f64, through: &[&str]) {
        let place = |name: &String| kept.columns.iter().position(|known| known == name);
        let places: Vec<Option<usize>> = self.columns[1..].iter().map(place).collect();
        let wide = |(time, row): &&(f64, Vec<f32>)| row.len() == kept.columns.len() && *time < now;
        let number = |row: &[f32], place: &Option<usize>| place.map_or(f64::NAN, |k| f64::from(row[k]));
        for ((level, (most, _)), rows) in self.levels.iter_mut().zip(LEVELS).zip(&kept.levels) {
            let rows = rows.iter().filter(wide);
            let rows = rows.map(|(time, row)| {
                std::iter::once(*time).chain(places.iter().map(|place| number(row, place))).collect::<Vec<f64>>()
            });
            *level = rows.collect();
            level.drain(..(level.len() + 1).saturating_sub(most));
        }
        self.pushed = kept.pushed;
        let Some(last) = self.levels[0].back() else { return };
        let gap = self.columns.iter().zip(last).map(|(name, value)| match name {
            _ if through.contains(&name.as_str()) => *value,
            _ => f64::NAN,
        });
        let mut gap: Vec<f64> = gap.collect();
        gap[0] = last[0] + GAP_S;
        self.levels.iter_mut().for_each(|level| level.push_back(gap.clone()));
    }

    /// The newest number of a column.
    pub(super) fn last(&self, column: &str) -> Option<f64> {
        let k = self.columns.iter().position(|name| name == column)?;
        Some(self.levels[0].back()?[k])
    }

    /// The rows there are, oldest first: of each level those from before the next finer one begins.
    fn rows(&self) -> impl Iterator<Item = &Vec<f64>> {
        let begins = |level: usize| self.levels[level].front().map_or(f64::INFINITY, |row| row[0]);
        (0..LEVELS.len()).rev().flat_map(move |level| {
            let until = if level == 0 { f64::INFINITY } else { begins(level - 1) };
            self.levels[level].iter().take_while(move |row| row[0] < until)
        })
    }

    /// A list for each of these columns, by name.
    pub(super) fn to_json(&self, columns: impl Iterator<Item = usize>) -> Value {
        let column = |k: usize| -> (String, Value) {
            let all: Vec<Value> = self.rows().map(|row| number(row[k])).collect();
            (self.columns[k].clone(), json!(all))
        };
        columns.map(column).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_past_is_kept_in_bounded_memory_and_gets_sparser() {
        let mut history = History::new(vec!["time".into(), "square".into()]);
        let last = 50_000;
        for t in 0..=last {
            history.push(&[f64::from(t), f64::from(t) * f64::from(t)]);
        }
        assert!(history.levels.iter().map(VecDeque::len).sum::<usize>() <= 1920);
        let times: Vec<f64> = history.rows().map(|row| row[0]).collect();
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "in order, none twice");
        assert_eq!(*times.last().unwrap(), f64::from(last));
        let seconds = times.iter().rev().zip(0..).take_while(|(time, k)| **time == f64::from(last - k)).count();
        assert!((600..=601).contains(&seconds), "every second of the last ten minutes: {seconds}");
        // 12 hours and what the finer levels cover.
        assert!(times[0] <= f64::from(last) - 43_000.0, "{}", times[0]);
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
        assert!(gaps <= 60.0, "{gaps}");
        let json = history.to_json(0..2);
        assert_eq!(json["square"].as_array().unwrap().len(), times.len());
    }

    #[test]
    fn another_run_begins_with_the_past_and_a_gap() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
        let mut before = History::new(names(&["time", "refused", "gone", "rate"]));
        (0..5000).for_each(|t| before.push(&[1e9 + f64::from(t), f64::from(t), 1.0, 0.5]));
        let mut history = History::new(names(&["time", "rate", "refused", "new"]));
        history.resume(&before.keep(), 1e9 + 4990.0, &["refused"]);
        assert_eq!((history.last("refused"), history.last("time")), (Some(4989.0), Some(1e9 + 4989.001)));
        for t in 0..4000 {
            history.push(&[1e9 + 6000.0 + f64::from(t), 0.25, 4989.0, 1.0]);
        }
        let rows: Vec<&Vec<f64>> = history.rows().collect();
        assert!(rows.windows(2).all(|pair| pair[0][0] < pair[1][0]), "in order, none twice");
        assert!(rows[0][0] < 1e9 + 100.0 && rows[0][1] == 0.5 && rows[0][3].is_nan());
        let gaps: Vec<&&Vec<f64>> = rows.iter().filter(|row| row[1].is_nan()).collect();
        assert_eq!((gaps.len(), gaps[0][2]), (1, 4989.0));
        assert!(history.levels.iter().zip(LEVELS).all(|(level, (most, _))| level.len() <= most));
        // Of many columns less is kept.
        let mut wide = History::new((0..10_000).map(|k| k.to_string()).collect());
        (0..600).for_each(|t| wide.push(&vec![f64::from(t); 10_000]));
        let kept = wide.keep();
        assert!(kept.levels[0].len() < 100 && kept.levels[0].last().unwrap().0 == 599.0);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(0.1 + 0.2).to_string(), "0.3");
        assert_eq!(number(1_700_000_000.123_456).to_string(), "1700000000.123");
        assert_eq!(number(f64::NAN), Value::Null);
    }
}
