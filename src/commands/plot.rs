//! `criticd plot`: a model file in pictures.

use super::Failure;
use super::given::{plural, without_unit};
use super::inspect::{lengthscales, names, read_model};
use super::output::{Progress, in_file, note, number};
use criticd::learner::marginal::marginal;
use criticd::math::sensitivity::total_indices;
use criticd::picture::{Axis, Bar, Bars, Colours, Curves, Fade, Figure, Heatmap, Line, Marker, Panel, Points, Scale};
use criticd::snapshot::{Ask, Evaluator, Snapshot};
use std::path::{Path, PathBuf};

/// Cells of a map, and points of a curve.
const COLUMNS: usize = 175;
const ROWS: usize = 150;
const CURVE: usize = 300;
/// The same of an average, whose cells are dear, and states that it goes over; of those, the ones that variances are taken at.
const COLUMNS_AVERAGED: usize = 70;
const ROWS_AVERAGED: usize = 60;
const CURVE_AVERAGED: usize = 120;
const AVERAGED: usize = 64;
const AVERAGED_VARIANCES: usize = 12;
/// Variables that have a bar.
const BARS: usize = 12;
/// Letters of a title, about.
const TITLE: usize = 46;
/// States at which the shares of the variables are estimated.
const SAMPLES: usize = 1000;
const VALUE_LABEL: &str = "discounted sum of rewards";

/// Draw a model: value, standard deviation, dictionary and relevances
///
/// Over two state variables: heat maps, hatched where the value is not known. Over one: a curve with a band of two standard
/// deviations. The other variables are fixed at the medians of the dictionary, or by --at; the title names them. With --marginal
/// the value is averaged over them. --against shows the difference from another model.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd plot model.msgpack --out value.png\n  criticd plot model.msgpack --out value.svg --x angle --y speed --range speed=-8:8 --at load=0.5\n  criticd plot model.msgpack --out curve.svg --x angle --curve\n  criticd plot model.msgpack --out change.png --against yesterday.msgpack --marginal"
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
    /// Average over the other variables as the states of the dictionary have them, in place of fixing them
    #[arg(long, conflicts_with = "at")]
    marginal: bool,
    /// Another value function of the same states, drawn beside the first, with the first minus this one
    #[arg(long, value_name = "MODEL")]
    against: Option<PathBuf>,
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
    marginal: bool,
}

/// A value function on the axes of a picture, at (n,) places.
struct Drawn {
    mean: Vec<f64>,
    deviation: Option<Vec<f64>>,
    /// (n,): the deviation as a share of the prior's; none without deviations.
    unknown: Option<Vec<f64>>,
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
        let other = self.against.as_ref().map(|path| self.other(path, &snapshot)).transpose()?;
        let progress = Progress::start("drawing");
        let figure = match other {
            Some(other) => view.comparison(snapshot.clone(), other)?,
            None => view.figure(&snapshot)?,
        };
        let written = write(&figure, &self.out);
        drop(progress);
        written.map_err(|e| Failure::usage(format!("cannot write {}: {e}", self.out.display())))?;
        let drawn = plural(snapshot.dictionary.nrows(), "state");
        let over: Vec<&str> = std::iter::once(view.x).chain(view.y).map(|d| view.names[d].as_str()).collect();
        note(&format!("{}: over {}, {drawn} in the dictionary", self.out.display(), over.join(" and ")));
        Ok(())
    }

    /// The model to compare with.
    fn other(&self, path: &Path, snapshot: &Snapshot) -> Result<Snapshot, Failure> {
        let other = read_model(path)?;
        let (rewards, wanted) = (other.weights.ncols(), snapshot.weights.ncols());
        if names(&other) != names(snapshot) {
            let words = format!("its states are {}, not {}", names(&other).join(", "), names(snapshot).join(", "));
            return Err(in_file(path, words));
        }
        if self.reward >= rewards {
            return Err(in_file(path, format!("it has value functions of {rewards} rewards, not of {wanted}")));
        }
        Ok(other)
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
        Ok(View { names, dictionary, ranges, at, shares, x, y, reward: self.reward, marginal: self.marginal })
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
        if self.marginal && !others.is_empty() {
            return format!("{what}, averaged over {}", plural(self.others(AVERAGED).len() / self.at.len(), "state"));
        }
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

    /// The states (s, D), at most `most` of them, whose other variables the picture takes: the one slice, or, for an
    /// average, states of the dictionary.
    fn others(&self, most: usize) -> Vec<f64> {
        if !self.marginal {
            return self.at.clone();
        }
        let count = self.dictionary.len().min(most);
        (0..count).flat_map(|k| self.dictionary[k * self.dictionary.len() / count].iter().copied()).collect()
    }

    /// The model's answers at places (n, A) on the axes.
    fn evaluate(&self, model: &Evaluator, places: &[f64]) -> Result<Drawn, Failure> {
        let axes: Vec<usize> = std::iter::once(self.x).chain(self.y).collect();
        let ask = |most, ask| marginal(model, &axes, places, &self.others(most), ask).map_err(Failure::usage);
        let mean = ask(AVERAGED, Ask::MEAN)?.mean;
        let variance = ask(AVERAGED_VARIANCES, Ask::VARIANCE)?.variance;
        let deviation: Option<Vec<f64>> = variance.map(|variance| variance.into_iter().map(f64::sqrt).collect());
        let prior = model.snapshot().hyperparameters.kernel.signal_variance.sqrt();
        let share = |deviation: &Vec<f64>| deviation.iter().map(|s| (s / prior).min(1.0)).collect();
        let unknown = deviation.as_ref().map(share);
        Ok(Drawn { mean: mean.column(self.reward).iter().copied().collect(), deviation, unknown })
    }

    /// Cells of a map.
    fn cells(&self) -> (usize, usize) {
        if self.marginal { (COLUMNS_AVERAGED, ROWS_AVERAGED) } else { (COLUMNS, ROWS) }
    }

    /// The model over two variables.
    fn surface(&self, model: &Evaluator, y: usize) -> Result<Drawn, Failure> {
        let (columns, rows) = self.cells();
        let places = Heatmap::centres(&self.axis(self.x), &self.axis(y), columns, rows);
        self.evaluate(model, places.as_flattened())
    }

    /// A map of numbers over two variables, hatched where they are not known.
    fn map(&self, y: usize, title: String, values: Vec<f64>, unknown: Option<Vec<f64>>) -> Heatmap {
        let (horizontal, vertical) = (self.axis(self.x), self.axis(y));
        let mut map = Heatmap::new(title, horizontal, vertical, self.cells().0, values, VALUE_LABEL);
        map.fade = unknown.map(|amount| Fade { label: "hatched: not known".into(), amount });
        map
    }

    fn maps(&self, snapshot: &Snapshot, y: usize) -> Result<Vec<Panel>, Failure> {
        let Drawn { mean, deviation, unknown } = self.surface(&Evaluator::new(snapshot.clone()), y)?;
        let at = self.dictionary.iter().map(|state| [state[self.x], state[y]]).collect();
        let points = vec![Points { label: "dictionary".into(), at, marker: Marker::Ring }];
        let [low, high] = ends(mean.iter());
        let mut value = self.map(y, self.titled("Value"), mean, unknown);
        let Some(deviation) = deviation else {
            value.points = points;
            return Ok(vec![Panel::Heatmap(value)]);
        };
        let greatest = ends(deviation.iter())[1];
        let mut spread = self.map(y, "Standard deviation".into(), deviation, None);
        spread.value_label = "standard deviation of the value".into();
        spread.colours = Colours::Deviation;
        // In proportion to the values: a small deviation should look small.
        spread.value_range = Some([0.0, greatest.max(high - low)]).filter(|[low, high]| low < high);
        spread.points = points;
        Ok(vec![Panel::Heatmap(value), Panel::Heatmap(spread)])
    }

    fn curve(&self, snapshot: &Snapshot) -> Result<Curves, Failure> {
        let line = self.line(&Evaluator::new(snapshot.clone()), "value")?;
        Ok(self.curves(vec![line]))
    }

    fn places(&self) -> Vec<f64> {
        let ([low, high], count) = (self.ranges[self.x], if self.marginal { CURVE_AVERAGED } else { CURVE });
        (0..count).map(|k| low + (high - low) * k as f64 / (count - 1) as f64).collect()
    }

    /// The model over one variable.
    fn line(&self, model: &Evaluator, label: &str) -> Result<Line, Failure> {
        let Drawn { mean, deviation, .. } = self.evaluate(model, &self.places())?;
        let label = if deviation.is_some() { format!("{label}, ± two standard deviations") } else { label.to_owned() };
        Ok(Line { label, mean, deviation })
    }

    fn curves(&self, lines: Vec<Line>) -> Curves {
        // The dictionary lies below the curves: the places of its states, without their values.
        let reach = |line: &Line, k: usize| 2.0 * line.deviation.as_ref().map_or(0.0, |deviation| deviation[k]);
        let of = |line: &Line, k: usize| [line.mean[k] - reach(line, k), line.mean[k] + reach(line, k)];
        let all: Vec<f64> = lines.iter().flat_map(|line| (0..line.mean.len()).flat_map(move |k| of(line, k))).collect();
        let [lowest, highest] = ends(all.iter());
        let bottom = lowest - 0.04 * (highest - lowest);
        let points = self.dictionary.iter().map(|state| [state[self.x], bottom]).collect();
        Curves {
            title: self.titled("Value"),
            x: self.axis(self.x),
            y_label: VALUE_LABEL.into(),
            y_scale: Scale::Linear,
            y_range: None,
            at: self.places(),
            lines,
            points: vec![Points { label: "dictionary".into(), at: points, marker: Marker::Ring }],
        }
    }

    /// Two models side by side on one scale, and the first minus the second.
    fn comparison(&self, one: Snapshot, other: Snapshot) -> Result<Figure, Failure> {
        let name = |snapshot: &Snapshot| format!("{}, generation {}", snapshot.critic, snapshot.generation);
        let names = [name(&one), name(&other)];
        let models = [Evaluator::new(one), Evaluator::new(other)];
        let Some(y) = self.y else {
            let line = |k: usize| self.line(&models[k], &names[k]);
            return Ok(Figure { panels: vec![Panel::Curves(self.curves(vec![line(0)?, line(1)?]))] });
        };
        let [first, second] = [self.surface(&models[0], y)?, self.surface(&models[1], y)?];
        let range = Some(ends(first.mean.iter().chain(&second.mean))).filter(|[low, high]| low < high);
        let values: Vec<f64> = first.mean.iter().zip(&second.mean).map(|(a, b)| a - b).collect();
        let reach = values.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
        // A difference is known where both values are.
        let unknown = first.unknown.as_ref().zip(second.unknown.as_ref());
        let unknown = unknown.map(|(a, b)| a.iter().zip(b).map(|(a, b)| a.max(*b)).collect());
        let mut difference = self.map(y, "Difference: the first minus the second".into(), values, unknown);
        difference.colours = Colours::Difference;
        difference.value_range = Some([-reach, reach]).filter(|_| reach > 0.0);
        let value = |name: &str, drawn: Drawn| {
            let map = self.map(y, self.titled(name), drawn.mean, drawn.unknown);
            Panel::Heatmap(Heatmap { value_range: range, ..map })
        };
        let [a, b] = names;
        Ok(Figure { panels: vec![value(&a, first), value(&b, second), Panel::Heatmap(difference)] })
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
    total_indices(&states, snapshot.dim(), SAMPLES, &mut value)
}

/// Least and greatest of some numbers.
fn ends<'a>(values: impl Iterator<Item = &'a f64>) -> [f64; 2] {
    values.fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], v| [low.min(*v), high.max(*v)])
}

/// Three significant digits.
fn round(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}
