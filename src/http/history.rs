//! What was, in bounded memory: every second for ten minutes, then every ten seconds, then every minute for half a day.

use serde_json::{Value, json};
use std::collections::VecDeque;

/// Points that a level keeps, and how many of the level before it stand for one of its own.
const LEVELS: [(usize, u64); 3] = [(600, 1), (600, 10), (720, 6)];

/// Rows of numbers over time, all of one width; the older the sparser.
#[derive(Debug)]
pub(super) struct History {
    /// Names of the columns, in their order; the first is the time.
    columns: Vec<String>,
    levels: [VecDeque<Vec<f64>>; LEVELS.len()],
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

    /// The rows there are, oldest first: of each level those from before the next finer one begins.
    fn rows(&self) -> impl Iterator<Item = &Vec<f64>> {
        let begins = |level: usize| self.levels[level].front().map_or(f64::INFINITY, |row| row[0]);
        (0..LEVELS.len()).rev().flat_map(move |level| {
            let until = if level == 0 { f64::INFINITY } else { begins(level - 1) };
            self.levels[level].iter().take_while(move |row| row[0] < until)
        })
    }

    /// A list for each column, by name.
    pub(super) fn to_json(&self) -> Value {
        let column = |k: usize| self.rows().map(|row| number(row[k])).collect::<Vec<Value>>();
        self.columns.iter().enumerate().map(|(k, name)| (name.clone(), json!(column(k)))).collect()
    }
}

/// A number with seven significant digits, enough for a picture; null if it is not finite. Times keep milliseconds.
pub(super) fn number(value: f64) -> Value {
    if !value.is_finite() {
        return Value::Null;
    }
    if value.abs() > 1e9 {
        return ((value * 1000.0).round() / 1000.0).into();
    }
    format!("{value:.6e}").parse::<f64>().unwrap_or(value).into()
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
        let json = history.to_json();
        assert_eq!(json["square"].as_array().unwrap().len(), times.len());
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(0.1 + 0.2).to_string(), "0.3");
        assert_eq!(number(1_700_000_000.123_456).to_string(), "1700000000.123");
        assert_eq!(number(f64::NAN), Value::Null);
    }
}
