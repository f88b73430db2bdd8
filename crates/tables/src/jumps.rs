//! A column that names episodes, and that nobody has named: where its value changes the state jumps.

/// Columns that are watched, at most.
pub(super) const WATCHED_MAX: usize = 64;
/// Numbers of steps that are kept, at most.
const NUMBERS_MAX: usize = 1 << 20;
/// Fewer steps say nothing.
const STEPS_MIN: usize = 30;
/// Rows of an episode in the mean, at least.
const ROWS_MIN: usize = 3;
/// A jump is longer than the usual step by this factor, ...
const JUMP: f64 = 5.0;
/// ... or, where no column says why, by this one, in every variable, at enough rows.
const ALONE: f64 = 20.0;
const ALONE_MIN: usize = 3;

/// Steps from a row to the next one of its stream, and which of the columns that are left alone change there.
#[derive(Debug, Default)]
pub(super) struct Jumps {
    columns: Vec<String>,
    dim: usize,
    /// Of each stream the row before: its state, what the columns held, and whether its episode ended.
    before: Vec<Option<Row>>,
    /// (steps, D)
    steps: Vec<f64>,
    /// Of each step a bit for each column: whether it changes.
    changes: Vec<u64>,
    lines: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Row {
    state: Vec<f64>,
    held: Vec<u64>,
    ended: bool,
}

impl Jumps {
    /// Watch these columns of rows whose states have `dim` numbers.
    pub(super) fn new(columns: Vec<String>, dim: usize) -> Self {
        Self { columns, dim, ..Self::default() }
    }

    /// Whether no more steps are kept.
    pub(super) fn is_full(&self) -> bool {
        self.steps.len() + self.dim > NUMBERS_MAX
    }

    /// Take in the row at `line`, what the columns hold there, as hashes, and whether a chain begins or ends with it.
    pub(super) fn take(&mut self, stream: usize, line: u64, state: &[f64], held: &[u64], (opens, ended): (bool, bool)) {
        if self.before.len() <= stream {
            self.before.resize(stream + 1, None);
        }
        match &mut self.before[stream] {
            Some(before) => {
                if !before.ended && !opens {
                    self.steps.extend(before.state.iter().zip(state).map(|(from, to)| (to - from).abs()));
                    let bit = |(k, (one, other)): (usize, (&u64, &u64))| u64::from(one != other) << k;
                    self.changes.push(before.held.iter().zip(held).enumerate().map(bit).sum());
                    self.lines.push(line);
                }
                before.state.copy_from_slice(state);
                before.held.copy_from_slice(held);
                before.ended = ended;
            }
            none => *none = Some(Row { state: state.to_vec(), held: held.to_vec(), ended }),
        }
    }

    /// What there is to tell; `row` is what a row is called.
    pub(super) fn say(&self, row: &str) -> Option<String> {
        let count = self.changes.len();
        if count < STEPS_MIN {
            return None;
        }
        let usual: Vec<f64> = (0..self.dim).map(|d| median((0..count).map(|i| self.steps[i * self.dim + d]))).collect();
        let mean = |d: usize| (0..count).map(|i| self.steps[i * self.dim + d]).sum::<f64>() / count as f64;
        // Of a variable that stays for most of the time the mean.
        let usual: Vec<f64> =
            usual.iter().enumerate().map(|(d, &step)| if step > 0.0 { step } else { mean(d) }).collect();
        let moving: Vec<usize> = (0..self.dim).filter(|&d| usual[d] > 0.0).collect();
        let lengths: Vec<f64> = (0..count)
            .map(|i| moving.iter().map(|&d| (self.steps[i * self.dim + d] / usual[d]).powi(2)).sum::<f64>())
            .map(|sum| (sum / moving.len().max(1) as f64).sqrt())
            .collect();
        if moving.is_empty() {
            return None;
        }
        self.by_column(&lengths).or_else(|| self.alone(&moving, &usual, row))
    }

    /// The column at whose changes the state jumps, if there is one: that which changes most often.
    fn by_column(&self, lengths: &[f64]) -> Option<String> {
        let count = lengths.len();
        let of = |k: usize| {
            let at = |i: &usize| self.changes[*i] >> k & 1 == 1;
            let changes = (0..count).filter(at).count();
            if changes == 0 || changes * ROWS_MIN > count {
                return None;
            }
            let there = median((0..count).filter(at).map(|i| lengths[i]));
            let else_where = median((0..count).filter(|i| !at(i)).map(|i| lengths[i]));
            (there > JUMP * else_where.max(f64::MIN_POSITIVE)).then_some((changes, k, there / else_where))
        };
        let (changes, k, factor) =
            (0..self.columns.len()).filter_map(of).max_by_key(|&(changes, k, _)| (changes, usize::MAX - k))?;
        let name = &self.columns[k];
        let times = if changes == 1 { "once".to_owned() } else { format!("{changes} times") };
        let by = if factor.is_finite() {
            format!("{factor:.0} times its usual step")
        } else {
            "and else it rests".to_owned()
        };
        Some(format!(
            "{name} changes {times}, and the state jumps there ({by}, in the median), although no episode ends: if {name} tells episodes \
             apart, say so (--episode {name}), or values lead from one to the next"
        ))
    }

    /// That the state jumps, and nothing says why.
    fn alone(&self, moving: &[usize], usual: &[f64], row: &str) -> Option<String> {
        let far = |i: &usize| moving.iter().all(|&d| self.steps[i * self.dim + d] > ALONE * usual[d]);
        let jumps: Vec<usize> = (0..self.changes.len()).filter(far).collect();
        // A single variable may be an angle that begins again.
        if moving.len() < 2 || jumps.len() < ALONE_MIN || jumps.len() * ROWS_MIN > self.changes.len() {
            return None;
        }
        Some(format!(
            "the whole state jumps by more than {ALONE:.0} times its usual step in {} rows behind which nothing ended, the first before {row} \
             {}: if episodes end there, name the column that tells them apart (--episode) or says so (--terminated, --truncated)",
            jumps.len(),
            self.lines[jumps[0]]
        ))
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    let middle = values.len() / 2;
    if values.is_empty() { 0.0 } else { *values.select_nth_unstable_by(middle, f64::total_cmp).1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use criticd_learner::random::{mix, normal};

    /// Walks in the plane of thirty rows each, each so `far` from the end of the one before. The columns: the number of the walk, a mode that changes inside of walks, and a clock.
    fn walks(count: u64, ended: bool, far: f64) -> Option<String> {
        let mut jumps = Jumps::new(["walk", "mode", "clock"].map(str::to_owned).to_vec(), 2);
        let mut state = [0.0, 0.0];
        for walk in 0..count {
            state = [1, 2].map(|d| state[d as usize - 1] + far * normal(mix(&[d, walk])));
            for t in 0..30 {
                let last = t == 29;
                let line = 2 + 30 * walk + t;
                jumps.take(0, line, &state, &[walk, t / 11, line], (false, ended && last));
                state = [0, 1].map(|d| state[d] + 0.1 * normal(mix(&[3, walk, t, d as u64])));
            }
        }
        jumps.say("line")
    }

    #[test]
    fn the_column_is_named_where_the_state_jumps() {
        let said = walks(20, false, 5.0).unwrap();
        assert!(said.starts_with("walk changes 19 times") && said.contains("--episode walk"), "{said}");
        assert_eq!(walks(20, true, 5.0), None, "ends say where episodes are");
        assert_eq!(walks(20, false, 0.0), None, "nothing jumps");
        assert_eq!(walks(1, false, 5.0), None, "few rows");
    }

    #[test]
    fn jumps_without_a_column_are_told_of_states_of_several_variables() {
        let of = |dim: usize, opens: bool| {
            let mut jumps = Jumps::new(Vec::new(), dim);
            for t in 0..300u64 {
                let place = 1000.0 * (t / 50) as f64;
                let state: Vec<f64> = (0..dim as u64).map(|d| place + normal(mix(&[d, t]))).collect();
                jumps.take(0, 2 + t, &state, &[], (opens && t % 50 == 0, false));
            }
            jumps.say("line")
        };
        let said = of(2, false).unwrap();
        assert!(said.contains("in 5 rows") && said.contains("before line 52"), "{said}");
        assert_eq!((of(1, false), of(2, true)), (None, None));
    }
}
