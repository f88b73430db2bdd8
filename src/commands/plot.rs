//! `criticd plot`: a model file in pictures.

use super::Failure;
use super::given::{plural, without_unit};
use super::inspect::{lengthscales, names, read_model};
use super::output::{Progress, in_file, note, number};
use criticd::math::sensitivity::total_indices;
use criticd::picture::{Axis, Bar, Bars, Colours, Curves, Fade, Figure, Heatmap, Line, Marker, Panel, Points, Scale};
use criticd::snapshot::{Ask, Evaluator, Snapshot};
use std::path::PathBuf;

/// Cells of a map, and points of a curve.
const COLUMNS: usize = 175;
const ROWS: usize = 150;
const CURVE: usize = 300;
/// Variables that have a bar.
const BARS: usize = 12;
/// Letters of a title, about.
const TITLE: usize = 46;
/// States at which the shares of the variables are estimated, and the seed of what is random.
const SAMPLES: usize = 1000;
const SEED: u64 = 0;

/// Draw a model: value, standard deviation, dictionary and relevances
///
/// Over two state variables: heat maps, pale where the value is unknown. Over one: a curve with a band of two standard
/// deviations. The other variables are fixed at the medians of the dictionary, or by --at; the title names them.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd plot model.msgpack --out value.png\n  criticd plot model.msgpack --out value.svg --x angle --y speed --range speed=-8:8 --at load=0.5\n  criticd plot model.msgpack --out curve.svg --x angle --curve"
)]
pub(crate) struct Plot {
    /// A value function, as `fit` and `snapshot` write it
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Output file: .png or .svg
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// State variable on the horizontal axis, by name or number from 0 [default: one of the two most relevant]
    #[arg(long, value_name = "VARIABLE")]
    x: Option<String>,
    /// State variable on the vertical axis [default: the other one]
    #[arg(long, value_name = "VARIABLE", conflicts_with = "curve")]
    y: Option<String>,
    /// Draw curves over one variable
    #[arg(long)]
    curve: bool,
    /// Range of a drawn variable: NAME=FROM:TO [default: that of the dictionary]
    #[arg(long, value_name = "NAME=FROM:TO", allow_hyphen_values = true)]
    range: Vec<String>,
    /// Value of a variable that is not drawn: NAME=VALUE [default: the median of the dictionary]
    #[arg(long, value_name = "NAME=VALUE", allow_hyphen_values = true)]
    at: Vec<String>,
    /// Reward whose value function is drawn, counted from 0
    #[arg(long, value_name = "K", default_value_t = 0)]
    reward: usize,
}

/// What of a model is drawn.
struct View {
    names: Vec<String>,
    /// (m, D) rows of the dictionary, unit of the states.
    dictionary: Vec<Vec<f64>>,
    /// (D,).
    ranges: Vec<[f64; 2]>,
    /// (D,): where variables stand that are not drawn.
    at: Vec<f64>,
    /// (D,): shares of the variance of the value.
    shares: Vec<f64>,
    x: usize,
    y: Option<usize>,
    reward: usize,
}

impl Plot {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let write = match self.out.extension().and_then(|ending| ending.to_str()) {
            Some("png") => Figure::write_png,
            Some("svg") => Figure::write_svg,
            _ => return Err(Failure::usage(format!("{}: must end in .png or .svg", self.out.display()))),
        };
        let snapshot = read_model(&self.model)?;
        if snapshot.dictionary.nrows() == 0 {
            return Err(in_file(&self.model, "this model has an empty dictionary: there is nothing to draw"));
        }
        let view = self.view(&snapshot).map_err(Failure::usage)?;
        let progress = Progress::start("drawing");
        let figure = view.figure(&snapshot)?;
        let written = write(&figure, &self.out);
        drop(progress);
        written.map_err(|e| Failure::usage(format!("cannot write {}: {e}", self.out.display())))?;
        let drawn = plural(snapshot.dictionary.nrows(), "state");
        let over: Vec<&str> = std::iter::once(view.x).chain(view.y).map(|d| view.names[d].as_str()).collect();
        note(&format!("{}: over {}, {drawn} in the dictionary", self.out.display(), over.join(" and ")));
        Ok(())
    }

    fn view(&self, snapshot: &Snapshot) -> Result<View, String> {
        let (dim, inputs) = (snapshot.dim(), &snapshot.inputs);
        let names = names(snapshot);
        let find = |name: &str| -> Result<usize, String> {
            let numbered = || name.parse().ok().filter(|d| *d < dim);
            let unknown = || format!("there is no state variable {name}; there is {}", names.join(", "));
            let is = |known: &String| known == name || without_unit(known) == name;
            names.iter().position(is).or_else(numbered).ok_or_else(unknown)
        };
        let raw =
            |i: usize| (0..dim).map(|d| inputs.shift[d] + inputs.scale[d] * snapshot.dictionary[(i, d)]).collect();
        let dictionary: Vec<Vec<f64>> = (0..snapshot.dictionary.nrows()).map(raw).collect();
        let column = |d: usize| {
            let mut values: Vec<f64> = dictionary.iter().map(|state| state[d]).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let (mut ranges, mut at) = (Vec::new(), Vec::new());
        for d in 0..dim {
            let values = column(d);
            let (low, high) = (values[0], values[values.len() - 1]);
            // Some room at the edges; around a single place, a standard deviation of the inputs.
            let room = if low < high { 0.04 * (high - low) } else { inputs.scale[d] };
            ranges.push([low - room, high + room]);
            at.push(values[values.len() / 2]);
        }
        for text in &self.range {
            let form = || format!("--range {text}: must have the form NAME=FROM:TO, from below to");
            let (name, ends) = text.split_once('=').ok_or_else(form)?;
            let ends = ends.split_once(':').and_then(|(low, high)| Some([finite(low)?, finite(high)?]));
            ranges[find(name)?] = ends.filter(|[low, high]| low < high).ok_or_else(form)?;
        }
        for text in &self.at {
            let form = || format!("--at {text}: must have the form NAME=VALUE");
            let (name, value) = text.split_once('=').ok_or_else(form)?;
            at[find(name)?] = finite(value).ok_or_else(form)?;
        }
        let shares = shares(snapshot, &dictionary, self.reward);
        let mut ranked: Vec<usize> = (0..dim).collect();
        ranked.sort_by(|&a, &b| shares[b].total_cmp(&shares[a]));
        let chosen = [&self.x, &self.y].map(|name| name.as_deref().map(find).transpose());
        let [x, y] = chosen;
        let (x, y) = (x?, y?);
        let mut free = ranked.into_iter().take(2).filter(|d| Some(*d) != x && Some(*d) != y).collect::<Vec<_>>();
        if x.is_none() {
            // In the order of the state, like everything else.
            free.sort_unstable();
        }
        let mut free = free.into_iter();
        let x = x.or_else(|| free.next()).unwrap_or(0);
        let y = if self.curve { None } else { y.or_else(|| free.next()) };
        if y == Some(x) {
            return Err(format!("--x and --y are both {}", names[x]));
        }
        if self.reward >= snapshot.weights.ncols() {
            return Err(format!("--reward must be below {}", snapshot.weights.ncols()));
        }
        Ok(View { names, dictionary, ranges, at, shares, x, y, reward: self.reward })
    }
}

fn finite(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|v: &f64| v.is_finite())
}

impl View {
    fn figure(&self, snapshot: &Snapshot) -> Result<Figure, Failure> {
        let mut panels = match self.y {
            Some(y) => self.maps(snapshot, y)?,
            None => vec![Panel::Curves(self.curve(snapshot)?)],
        };
        if self.names.len() > 1 {
            panels.push(Panel::Bars(self.bars(snapshot)));
        }
        Ok(Figure { panels })
    }

    fn axis(&self, d: usize) -> Axis {
        let [low, high] = self.ranges[d];
        Axis::new(self.names[d].clone(), low, high)
    }

    /// A title that names where the variables stand that are not drawn, those with the largest shares first.
    fn titled(&self, what: &str) -> String {
        let mut others: Vec<usize> = (0..self.names.len()).filter(|&d| d != self.x && Some(d) != self.y).collect();
        others.sort_by(|&a, &b| self.shares[b].total_cmp(&self.shares[a]));
        let mut title = what.to_owned();
        for (k, &d) in others.iter().enumerate() {
            let word = format!("{} = {}", without_unit(&self.names[d]), number(round(self.at[d])));
            let left = others.len() - k;
            if k > 0 && title.len() + word.len() > TITLE {
                return format!("{title} and {left} more");
            }
            title += if k == 0 { " at " } else { ", " };
            title += &word;
        }
        title
    }

    /// Value and, if the model has a variance, standard deviation at places on the axes.
    fn evaluate(&self, snapshot: &Snapshot, places: &[Vec<f64>]) -> Result<(Vec<f64>, Option<Vec<f64>>), Failure> {
        let states: Vec<f64> = places
            .iter()
            .flat_map(|place| {
                let mut state = self.at.clone();
                state[self.x] = place[0];
                if let Some(y) = self.y {
                    state[y] = place[1];
                }
                state
            })
            .collect();
        let found = snapshot.evaluate(&states, Ask::VARIANCE).map_err(Failure::usage)?;
        let deviation = found.variance.map(|variance| variance.into_iter().map(f64::sqrt).collect());
        Ok((found.mean.column(self.reward).iter().copied().collect(), deviation))
    }

    fn maps(&self, snapshot: &Snapshot, y: usize) -> Result<Vec<Panel>, Failure> {
        let axes = || (self.axis(self.x), self.axis(y));
        let (horizontal, vertical) = axes();
        let centres = Heatmap::centres(&horizontal, &vertical, COLUMNS, ROWS);
        let places: Vec<Vec<f64>> = centres.iter().map(|place| place.to_vec()).collect();
        let (mean, deviation) = self.evaluate(snapshot, &places)?;
        let at = self.dictionary.iter().map(|state| [state[self.x], state[y]]).collect();
        let points = vec![Points { label: "dictionary".into(), at, marker: Marker::Ring }];
        let mut value =
            Heatmap::new(self.titled("Value"), horizontal, vertical, COLUMNS, mean, "discounted sum of rewards");
        let Some(deviation) = deviation else {
            value.points = points;
            return Ok(vec![Panel::Heatmap(value)]);
        };
        let prior = snapshot.hyperparameters.kernel.signal_variance.sqrt();
        let amount = deviation.iter().map(|s| (s / prior).min(1.0)).collect();
        value.fade = Some(Fade { label: "pale: not known".into(), amount });
        let (horizontal, vertical) = axes();
        let label = "standard deviation of the value";
        let mut spread = Heatmap::new("Standard deviation", horizontal, vertical, COLUMNS, deviation, label);
        spread.colours = Colours::Deviation;
        spread.points = points;
        Ok(vec![Panel::Heatmap(value), Panel::Heatmap(spread)])
    }

    fn curve(&self, snapshot: &Snapshot) -> Result<Curves, Failure> {
        let [low, high] = self.ranges[self.x];
        let at: Vec<f64> = (0..CURVE).map(|k| low + (high - low) * k as f64 / (CURVE - 1) as f64).collect();
        let places: Vec<Vec<f64>> = at.iter().map(|place| vec![*place]).collect();
        let (mean, deviation) = self.evaluate(snapshot, &places)?;
        // The dictionary lies below the curve: where its states are, and nothing of their values.
        let reach = |k: usize| 2.0 * deviation.as_ref().map_or(0.0, |deviation| deviation[k]);
        let ends = |sign: f64| (0..CURVE).map(move |k| (k, sign)).map(|(k, sign)| mean[k] + sign * reach(k));
        let (lowest, highest) = (ends(-1.0).fold(f64::INFINITY, f64::min), ends(1.0).fold(f64::NEG_INFINITY, f64::max));
        let bottom = lowest - 0.04 * (highest - lowest);
        let points = self.dictionary.iter().map(|state| [state[self.x], bottom]).collect();
        let label = if deviation.is_some() { "value, ± two standard deviations" } else { "value" };
        Ok(Curves {
            title: self.titled("Value"),
            x: self.axis(self.x),
            y_label: "discounted sum of rewards".into(),
            y_scale: Scale::Linear,
            y_range: None,
            at,
            lines: vec![Line { label: label.into(), mean, deviation }],
            points: vec![Points { label: "dictionary".into(), at: points, marker: Marker::Ring }],
        })
    }

    fn bars(&self, snapshot: &Snapshot) -> Bars {
        let scales = lengthscales(snapshot);
        let mut shown: Vec<usize> = (0..self.names.len()).collect();
        shown.sort_by(|&a, &b| self.shares[b].total_cmp(&self.shares[a]));
        shown.truncate(BARS);
        shown.sort_unstable();
        let text = |d: usize| {
            let scale = if scales[d].is_finite() {
                format!(", lengthscale {}", number(round(scales[d])))
            } else {
                String::new()
            };
            format!("{:.0} %{scale}", 100.0 * self.shares[d])
        };
        let bar = |d: usize| Bar { name: self.names[d].clone(), value: self.shares[d], text: text(d) };
        Bars {
            title: "Relevance".into(),
            label: "share of the variance of the value".into(),
            bars: shown.into_iter().map(bar).collect(),
        }
    }
}

/// Share of the variance of the value of reward `reward` that each state variable explains (D,), over the dictionary's states.
fn shares(snapshot: &Snapshot, dictionary: &[Vec<f64>], reward: usize) -> Vec<f64> {
    let states: Vec<f64> = dictionary.iter().flatten().copied().collect();
    let evaluator = Evaluator::new(snapshot.clone());
    let mut value = |states: &[f64]| match evaluator.evaluate(states, Ask::MEAN) {
        Ok(found) if reward < found.mean.ncols() => found.mean.column(reward).iter().copied().collect(),
        _ => vec![0.0; states.len() / snapshot.dim()],
    };
    total_indices(&states, snapshot.dim(), SAMPLES, SEED, &mut value)
}

/// Three significant digits.
fn round(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}
