//! The value along the newest rows of a stream, and what then came.

use super::came::Came;
use super::{PictureLabels, ends};
use crate::commands::Failure;
use crate::commands::given::{plural, without_unit};
use crate::hindsight::{Along, Single, Stretch};
use crate::picture::{Axis, Curves, Figure, Line, Marker, Panel, Points, Scale};
use crate::snapshot::{Ask, Evaluator};
use std::fmt::Write as _;
use std::path::Path;

/// Rows of one stream, oldest first; the last one is its newest.
pub(super) struct Trajectory {
    stream: String,
    /// Their numbers, and what these are called.
    numbers: Vec<u64>,
    number_label: &'static str,
    found: Along,
    reward: Vec<f64>,
    terminated: Vec<bool>,
    truncated: Vec<bool>,
    /// Whether a row does not continue the one before it.
    starts: Vec<bool>,
}

impl Trajectory {
    /// The newest `most` rows of a stream, with the value of reward `head`.
    pub(super) fn of(
        path: &Path,
        came: &Came,
        (stream, most): (Option<&str>, usize),
        model: &Evaluator,
        head: usize,
    ) -> Result<Self, Failure> {
        let (rows, rewards) = (&came.rows, &came.rewards);
        let number = came.stream_number(path, stream)?;
        let column = rewards.column(head).map_err(Failure::usage)?;
        let mut own: Vec<usize> = (0..rows.len()).filter(|&i| rows.streams[i] == number).collect();
        own.drain(..own.len().saturating_sub(most));
        let single = Single::of(rows, model.snapshot(), rewards, column);
        let stretches: Vec<Stretch> = own.iter().map(|&i| single.row(i)).collect();
        let each: Vec<&Stretch> = stretches.iter().collect();
        let found = Along::of(&each, (model, Ask::ALL), rewards, head).map_err(Failure::usage)?;
        let ended = |k: usize| k > 0 && (rows.terminated[own[k - 1]] || rows.truncated[own[k - 1]]);
        Ok(Self {
            stream: came.stream(own[0]).to_owned(),
            numbers: own.iter().map(|&i| came.number(i)).collect(),
            number_label: came.number_label(),
            found,
            reward: own.iter().map(|&i| rows.reward(i)[column]).collect(),
            terminated: own.iter().map(|&i| rows.terminated[i]).collect(),
            truncated: own.iter().map(|&i| rows.truncated[i] && !rows.terminated[i]).collect(),
            starts: (0..own.len()).map(|k| rows.starts_chain[own[k]] || ended(k)).collect(),
        })
    }

    fn len(&self) -> usize {
        self.reward.len()
    }

    /// "400 rows of stream arm, 380 returns known".
    pub(super) fn told(&self) -> String {
        let known = self.found.realised.iter().filter(|v| v.is_finite()).count();
        format!("{} of stream {}, {} known", plural(self.len(), "row"), self.stream, plural(known, "return"))
    }

    /// The value above the rewards.
    pub(super) fn figure(&self, labels: &PictureLabels) -> Figure {
        let Along { value, deviation, realised, .. } = &self.found;
        let known = deviation.iter().all(|v| v.is_finite());
        let label = if known { "value, ± two standard deviations" } else { "value" };
        let lines = vec![
            Line {
                label: label.into(),
                mean: self.broken(value),
                deviation: known.then(|| self.broken(deviation)),
                dashed: false,
            },
            Line { label: "return that came".into(), mean: self.broken(realised), deviation: None, dashed: true },
        ];
        let title = format!("{} along the last {} of stream {}", labels.title, plural(self.len(), "row"), self.stream);
        let values = self.curves(title, labels.value.clone(), lines);
        let reward = Line { label: "reward".into(), mean: self.broken(&self.reward), deviation: None, dashed: false };
        let title = without_unit(&labels.reward).to_owned();
        let rewards = self.curves(title, labels.reward.clone(), vec![reward]);
        Figure { panels: vec![Panel::Curves(values), Panel::Curves(rewards)] }
    }

    /// With a gap wherever a row does not continue the one before it.
    fn broken(&self, values: &[f64]) -> Vec<f64> {
        let with_gap = |(value, starts): (&f64, &bool)| if *starts { vec![f64::NAN, *value] } else { vec![*value] };
        values.iter().zip(&self.starts).flat_map(with_gap).collect()
    }

    /// Where row `k` stands: rows before the newest.
    fn place(&self, k: usize) -> f64 {
        k as f64 + 1.0 - self.len() as f64
    }

    fn curves(&self, title: String, y_label: String, lines: Vec<Line>) -> Curves {
        let at = (0..self.len()).flat_map(|k| {
            let gap = self.starts[k].then(|| self.place(k) - 0.5);
            gap.into_iter().chain(std::iter::once(self.place(k)))
        });
        let reach = |line: &Line, k: usize| 2.0 * line.deviation.as_ref().map_or(0.0, |deviation| deviation[k]);
        let heights = lines.iter().flat_map(|line| {
            (0..line.mean.len()).flat_map(move |k| [line.mean[k] - reach(line, k), line.mean[k] + reach(line, k)])
        });
        let heights: Vec<f64> = heights.filter(|v| v.is_finite()).collect();
        let [lowest, highest] = ends(heights.iter());
        // Ends of episodes stand above everything else.
        let top = highest + 0.06 * if lowest < highest { highest - lowest } else { highest.abs().max(1.0) };
        let marks = |label: &str, of: &[bool], marker: Marker| {
            let at: Vec<[f64; 2]> = (0..self.len()).filter(|&k| of[k]).map(|k| [self.place(k), top]).collect();
            (!at.is_empty()).then(|| Points { label: label.into(), at, marker })
        };
        let terminated = marks("terminated", &self.terminated, Marker::Square);
        let truncated = marks("cut off", &self.truncated, Marker::OpenSquare);
        Curves {
            title,
            x: Axis::new("row, counted back from the newest", self.place(0) - 0.5, 0.5),
            y_label,
            y_scale: Scale::Linear,
            y_range: None,
            at: at.collect(),
            lines,
            fade: None,
            points: terminated.into_iter().chain(truncated).collect(),
        }
    }

    /// The same as a table.
    pub(super) fn csv(&self) -> String {
        let mut text = format!("{},value,std,return,td_error,reward,terminated,truncated\n", self.number_label);
        let cell = |value: f64| if value.is_finite() { value.to_string() } else { String::new() };
        let Along { value, deviation, realised, difference, .. } = &self.found;
        for (k, number) in self.numbers.iter().enumerate() {
            let cells = [value[k], deviation[k], realised[k], difference[k], self.reward[k]].map(cell).join(",");
            let (terminated, truncated) = (u8::from(self.terminated[k]), u8::from(self.truncated[k]));
            writeln!(text, "{number},{cells},{terminated},{truncated}").expect("a string takes everything");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trajectory_has_gaps_between_episodes_and_marks_their_ends() {
        let trajectory = Trajectory {
            stream: "arm".into(),
            numbers: vec![7, 9, 12],
            number_label: "offset",
            found: Along {
                value: vec![1.0, 2.0, 3.0],
                deviation: vec![0.5, 0.25, 0.5],
                return_deviation: vec![1.0; 3],
                realised: vec![1.5, 2.5, f64::NAN],
                difference: vec![0.1, 0.2, 0.3],
            },
            reward: vec![0.0, 1.0, -1.0],
            terminated: vec![false, true, false],
            truncated: vec![false, false, true],
            starts: vec![true, false, true],
        };
        assert_eq!(trajectory.told(), "3 rows of stream arm, 2 returns known");
        let labels =
            PictureLabels { title: "Value of energy".into(), value: "sum [J]".into(), reward: "energy [J]".into() };
        let figure = trajectory.figure(&labels);
        let [Panel::Curves(value), Panel::Curves(reward)] = &figure.panels[..] else { panic!("two panels of curves") };
        assert_eq!(value.title, "Value of energy along the last 3 rows of stream arm");
        assert_eq!(value.at, [-2.5, -2.0, -1.0, -0.5, 0.0]);
        let mean = &value.lines[0].mean;
        assert!(mean[0].is_nan() && mean[3].is_nan() && (mean[1], mean[2], mean[4]) == (1.0, 2.0, 3.0), "{mean:?}");
        assert!(value.lines[1].dashed && value.lines[1].mean[4].is_nan());
        let [terminated, truncated] = &value.points[..] else { panic!("two kinds of ends") };
        assert_eq!((terminated.marker, terminated.at[0][0]), (Marker::Square, -1.0));
        assert_eq!((truncated.marker, truncated.at[0][0]), (Marker::OpenSquare, 0.0));
        assert!(terminated.at[0][1] > 4.0, "above the band");
        assert_eq!((reward.title.as_str(), reward.y_label.as_str()), ("energy", "energy [J]"));
        let csv = trajectory.csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines[0], "offset,value,std,return,td_error,reward,terminated,truncated");
        assert_eq!((lines[2], lines[3]), ("9,2,0.25,2.5,0.2,1,1,0", "12,3,0.5,,0.3,-1,0,1"));
    }
}
