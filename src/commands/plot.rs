//! `criticd plot`: a model file in pictures.

mod came;
mod errors;
mod reach;
mod states;
mod trajectory;

use super::Failure;
use super::given::{at_least_one, categories, mapping, plain_unit, plural, read_columns, sum, unit_of, without_unit};
use super::inspect::{Then, head_called, lengthscales, names, read_model};
use super::output::{Spinner, in_file, note, number, output, percent, print};
use crate::learner::heads::Cumulant;
use crate::learner::marginal::marginal;
use crate::math::sensitivity::{UNNOTICED, total_indices};
use crate::picture::{Axis, Bar, Bars, Colours, Curves, Fade, Figure, Heatmap, Line, Marker, Panel, Points, Scale};
use crate::snapshot::{Ask, Evaluator, Snapshot};
use crate::table::{Categories, Columns, Mapping};
use crate::whole_file::OutputFile;
use came::Came;
use errors::PlotErrors;
use states::States;
use std::path::{Path, PathBuf};
use trajectory::Trajectory;

/// Cells of a map, and points of a curve.
const COLUMNS: usize = 175;
const CELLS_DOWN: usize = 150;
const CURVE: usize = 300;
/// The same of an average, whose cells are dear, and states that it goes over; of those, the ones that variances are taken at.
const COLUMNS_AVERAGED: usize = 70;
const ROWS_AVERAGED: usize = 60;
const CURVE_AVERAGED: usize = 120;
const AVERAGED: usize = 64;
const AVERAGED_VARIANCES: usize = 12;
/// Visited states below a curve.
const RUG: usize = 300;
/// Variables that have a bar.
const BARS: usize = 12;
/// Variables that a title names; where the others stand would be lost among them.
const NAMED: usize = 12;
/// Rows of a trajectory.
const ROWS_ALONG: usize = 400;
/// States at which the shares of the variables are estimated.
const SAMPLES: usize = 1000;

/// Draw a model: value, standard deviation, dictionary, and which variables the value depends on
///
/// Over two state variables: heat maps, hatched where the value is not known. Over one: a curve with a band of two standard
/// deviations, on hatched ground where the value is not known. The other variables are fixed at the medians of the dictionary, or
/// by --at; the title names them, of more than twelve the twelve it depends on most. With --marginal the value is averaged over them. A
/// model file has no states but its dictionary's: --visited gives others. --against shows the difference from another model.
/// --errors shows where it is wrong, and prints the ten worst states. --trajectory shows the value along the newest rows of a stream.
/// --head draws a head in place of the value.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("tables").multiple(true),
    after_help = "Examples:\n  criticd plot arm.model --out value.png\n  criticd plot arm.model --out value.svg --x angle --y speed --range speed=-8:8 --at load=0.5\n  criticd plot arm.model --out curve.svg --x angle --curve\n  criticd plot arm.model --out change.png --against yesterday.model --marginal\n  criticd plot arm.model --out average.png --marginal --visited /var/lib/criticd\n  criticd plot arm.model --out errors.png --errors tomorrow.csv\n  criticd plot arm.model --out arm.svg --trajectory /var/lib/criticd --stream arm --rows 800\n  criticd plot arm.model --out arm.csv --trajectory /var/lib/criticd --stream arm    the same as a table\n  criticd plot arm.model --out contact.png --head contact"
)]
pub(crate) struct Plot {
    /// A value function, as `fit` and `snapshot` write it
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    #[command(flatten)]
    then: Then,
    /// Output file: .png or .svg; of --trajectory also .csv
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// State variable on the horizontal axis, by name or number from 0 [default: one of the two that the value depends on most]
    #[arg(long, value_name = "VARIABLE")]
    x: Option<String>,
    /// State variable on the vertical axis [default: the other one]
    #[arg(long, value_name = "VARIABLE", conflicts_with = "curve")]
    y: Option<String>,
    /// Draw curves over one variable
    #[arg(long)]
    curve: bool,
    /// Range of a drawn variable: NAME=FROM:TO [default: the dictionary's]
    #[arg(long, value_name = "NAME=FROM:TO", allow_hyphen_values = true)]
    range: Vec<String>,
    /// Value of a variable that is not drawn: NAME=VALUE [default: the median of the dictionary]
    #[arg(long, value_name = "NAME=VALUE", allow_hyphen_values = true)]
    at: Vec<String>,
    /// Average over the other variables as visited states have them, in place of fixing them; without --visited as the states
    /// of the dictionary
    #[arg(long, conflicts_with = "at")]
    marginal: bool,
    /// States that were visited: a table of states, or a data directory, of whose journal the newest rows are taken. Averages,
    /// medians and shares are theirs in place of the dictionary's, and curves show where they are
    #[arg(long, value_name = "TABLE|DATA_DIR", group = "tables")]
    visited: Option<PathBuf>,
    /// Another value function of the same states, drawn beside the first, with the first minus this one
    #[arg(long, value_name = "MODEL")]
    against: Option<PathBuf>,
    /// A table of rows, or a data directory, of whose journal the newest rows are taken: draw the value, and in cells the mean of return
    /// minus value and of the TD error. Above zero the values are too low. The ten worst states are marked and printed: each is the
    /// mean over a state and its neighbours, ranked by what two standard errors leave of it
    #[arg(long, value_name = "TABLE|DATA_DIR", group = "tables", conflicts_with_all = ["against", "marginal"])]
    errors: Option<PathBuf>,
    /// A table of rows, or a data directory: draw the value along the newest rows of a stream, with two standard deviations, the
    /// returns that came as far as they are known, the rewards, and where episodes ended
    #[arg(long, value_name = "TABLE|DATA_DIR", group = "tables", conflicts_with_all = ["against", "marginal", "errors", "visited", "x", "y", "curve", "range", "at"])]
    trajectory: Option<PathBuf>,
    /// The stream of --trajectory [default: the newest row's]
    #[arg(long, value_name = "NAME", requires = "trajectory")]
    stream: Option<String>,
    /// Rows of --trajectory, at most; of a journal the newest 20000 of all streams are looked at
    #[arg(long, value_name = "N", requires = "trajectory", default_value_t = ROWS_ALONG, value_parser = at_least_one)]
    rows: usize,
    /// What the columns of these tables are: as for `fit` [default: as in the table that the model was fitted to]
    #[arg(long, value_name = "FILE", requires = "tables")]
    columns: Option<PathBuf>,
    /// Reward whose value function is drawn, counted from 0
    #[arg(long, value_name = "K", default_value_t = 0)]
    reward: usize,
    /// On the map of the value also draw how far the kernel reaches: the states around the middle at which it has half of its height, or
    /// a larger share where that is outside. It is an ellipse, for variables that are numbers on a line
    #[arg(long, conflicts_with_all = ["curve", "against", "errors", "trajectory"])]
    kernel: bool,
    /// The head called this in place of the value
    #[arg(long, value_name = "NAME", conflicts_with_all = ["reward", "errors", "trajectory"])]
    head: Option<String>,
}

/// A file that a picture is written to.
#[derive(Clone, Copy, PartialEq)]
enum Format {
    Png,
    Svg,
    Csv,
}

impl Format {
    /// A figure as the bytes of a picture.
    fn drawn(self, figure: &Figure, columns: usize) -> Vec<u8> {
        if self == Self::Png { figure.png_in_rows(columns) } else { figure.svg_in_rows(columns).into_bytes() }
    }
}

/// What the parts of a picture of a value are called.
struct PictureLabels {
    /// "Value of energy".
    title: String,
    /// "discounted sum of energy [J]"; a sum at discount 1.
    value: String,
    /// "energy [J]".
    reward: String,
}

/// What of a model is drawn.
struct ModelView {
    names: Vec<String>,
    /// (m, D) rows of the dictionary, unit of the states.
    dictionary: Vec<Vec<f64>>,
    /// What averages, medians and shares are taken over.
    states: States,
    /// (D,).
    ranges: Vec<[f64; 2]>,
    /// (D,): where variables stand that are not drawn.
    at: Vec<f64>,
    /// (D,): shares of the variance of the value.
    shares: Vec<f64>,
    x: usize,
    y: Option<usize>,
    reward: usize,
    labels: PictureLabels,
    marginal: bool,
    /// Whether to show how far the kernel reaches.
    kernel: bool,
    categories: Categories,
}

/// A value function on the axes of a picture, at (n,) places.
struct Drawn {
    mean: Vec<f64>,
    deviation: Option<Vec<f64>>,
    /// (n,): the deviation as a share of the prior's signal, sqrt(v0); none without deviations, or while they are the prior's.
    unknown: Option<Vec<f64>>,
}

impl Plot {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let (format, out) = (self.format()?, self.output()?);
        let snapshot = self.read()?;
        if let Some(path) = &self.trajectory {
            return self.along(path, snapshot, format, &out);
        }
        let categories = categories(&snapshot, &self.model)?;
        let view = self.view(&snapshot, self.states(&snapshot)?, categories).map_err(Failure::usage)?;
        let came = self.errors.as_ref().map(|path| self.came("--errors", path, &snapshot)).transpose()?;
        let other = self.against.as_ref().map(|path| self.other(path, &snapshot)).transpose()?;
        let progress = Spinner::start("drawing");
        let evaluator = Evaluator::new(snapshot.clone());
        let errors = self.errors.as_ref().zip(came.as_ref());
        let errors = errors.map(|(path, came)| PlotErrors::of(path, came, &evaluator, &view)).transpose()?;
        let figure = match (other, &errors) {
            (Some(other), _) => view.comparison(snapshot.clone(), other)?,
            (None, Some(errors)) => view.beside_errors(&snapshot, errors)?,
            (None, None) => view.figure(&snapshot)?,
        };
        out.write(&format.drawn(&figure, figure.panels.len()))?;
        drop(progress);
        if let (Some(errors), Some(came)) = (&errors, &came) {
            print(&errors.table(&view, came.number_label()))?;
        }
        let drawn = plural(snapshot.dictionary.nrows(), "state");
        let over: Vec<&str> = std::iter::once(view.x).chain(view.y).map(|d| view.names[d].as_str()).collect();
        let seen = errors.map_or(String::new(), |errors| format!(", {}", errors.count()));
        let averaged =
            if view.marginal { format!(", averaged over {}", view.states.counted(AVERAGED)) } else { String::new() };
        note(&format!(
            "{}: {} over {}, {drawn} in the dictionary{averaged}{seen}",
            self.out.display(),
            view.labels.value,
            over.join(" and ")
        ));
        Ok(())
    }

    /// What the output file is to be.
    fn format(&self) -> Result<Format, Failure> {
        let wrong = |words: &str| Err(Failure::usage(format!("--out {}: must end in {words}", self.out.display())));
        match self.out.extension().and_then(|ending| ending.to_str()) {
            Some("png") => Ok(Format::Png),
            Some("svg") => Ok(Format::Svg),
            Some("csv") if self.trajectory.is_some() => Ok(Format::Csv),
            _ if self.trajectory.is_some() => wrong(".png, .svg or .csv"),
            _ => wrong(".png or .svg"),
        }
    }

    /// The model, or the head of it that is drawn.
    fn read(&self) -> Result<Snapshot, Failure> {
        let snapshot = self.part(self.then.read(&self.model, None)?, &self.model)?;
        if snapshot.dictionary.nrows() == 0 {
            return Err(in_file(&self.model, "this model has an empty dictionary: there is nothing to draw"));
        }
        if self.reward >= snapshot.weights.ncols() {
            return Err(Failure::usage(format!("--reward must be below {}", snapshot.weights.ncols())));
        }
        Ok(snapshot)
    }

    /// A model, or the head of it that is drawn, which is called by its name and the unit of what it sums.
    fn part(&self, snapshot: Snapshot, path: &Path) -> Result<Snapshot, Failure> {
        let Some(name) = &self.head else { return Ok(snapshot) };
        let h = head_called(&snapshot, name, path)?;
        let unit = snapshot.all_heads().nth(h).map_or("", |head| match head.cumulant {
            Cumulant::Reward(column) => snapshot.reward_names.get(column).map_or("", |name| unit_of(name)),
            Cumulant::State(d) | Cumulant::NextState(d) => {
                snapshot.inputs.names.as_ref().and_then(|names| names.get(d)).map_or("", |name| unit_of(name))
            }
            _ => "",
        });
        Ok(Snapshot { reward_names: vec![format!("{name}{unit}")], ..snapshot.head_alone(h, true) })
    }

    /// Where the picture goes: to no file that is read for it.
    fn output(&self) -> Result<OutputFile, Failure> {
        let others = [&self.visited, &self.against, &self.errors, &self.trajectory, &self.columns];
        let inputs: Vec<&Path> = others.into_iter().flatten().chain([&self.model]).map(PathBuf::as_path).collect();
        output(&self.out, &inputs)
    }

    /// The rows that an option names.
    fn came(&self, option: &str, path: &Path, snapshot: &Snapshot) -> Result<Came, Failure> {
        Came::read(option, path, &self.mapping(snapshot)?, snapshot)
    }

    /// The value along a trajectory.
    fn along(&self, path: &Path, snapshot: Snapshot, format: Format, out: &OutputFile) -> Result<(), Failure> {
        let came = self.came("--trajectory", path, &snapshot)?;
        let labels = self.labels(&snapshot);
        let model = Evaluator::new(snapshot);
        let wanted = (self.stream.as_deref(), self.rows);
        let trajectory = Trajectory::of(path, &came, wanted, &model, self.reward)?;
        let bytes = match format {
            Format::Csv => trajectory.csv().into_bytes(),
            drawn => drawn.drawn(&trajectory.figure(&labels), 1),
        };
        out.write(&bytes)?;
        note(&format!("{}: {} along {}", self.out.display(), labels.value, trajectory.told()));
        Ok(())
    }

    /// What the value is called.
    fn labels(&self, snapshot: &Snapshot) -> PictureLabels {
        let name = snapshot.reward_names.get(self.reward);
        let reward = name.cloned().unwrap_or_else(|| "rewards".into());
        if self.head.is_some() {
            return PictureLabels {
                title: format!("Head {}", without_unit(&reward)),
                value: format!("head {reward}"),
                reward,
            };
        }
        let title = name.map_or("Value".into(), |name| format!("Value of {}", without_unit(name)));
        PictureLabels { title, value: format!("{} of {reward}", sum(snapshot.discount)), reward }
    }

    /// How tables are read: as the option says, or as the one of the model was.
    fn mapping(&self, snapshot: &Snapshot) -> Result<Mapping, Failure> {
        let known = mapping(snapshot, &self.model)?.unwrap_or_default();
        let said = self.columns.as_deref().map(read_columns).transpose()?;
        let categories = known.columns.categories.clone();
        let columns = said.map_or(known.columns, |said| Columns { categories, ..Columns::default() }.or(said));
        Ok(Mapping { columns, reading: known.reading })
    }

    /// The visited states, if they are given.
    fn states(&self, snapshot: &Snapshot) -> Result<Option<States>, Failure> {
        let read = |path: &PathBuf| States::read(path, &self.mapping(snapshot)?.columns, snapshot);
        self.visited.as_ref().map(read).transpose()
    }

    /// The model to compare with.
    fn other(&self, path: &Path, snapshot: &Snapshot) -> Result<Snapshot, Failure> {
        let other = self.part(read_model(path)?, path)?;
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

    fn view(&self, snapshot: &Snapshot, visited: Option<States>, categories: Categories) -> Result<ModelView, String> {
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
        let states = visited.unwrap_or_else(|| States::of_dictionary(&dictionary));
        let column = |states: &[Vec<f64>], d: usize| {
            let mut values: Vec<f64> = states.iter().map(|state| state[d]).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let (mut ranges, mut at) = (Vec::new(), Vec::new());
        for d in 0..dim {
            let values = column(&dictionary, d);
            let (low, high) = (values[0], values[values.len() - 1]);
            // Some room at the edges; around a single place, a standard deviation of the inputs.
            let room = if low < high { 0.04 * (high - low) } else { inputs.scale[d] };
            ranges.push([low - room, high + room]);
            let values = column(states.all(), d);
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
            let d = find(name)?;
            at[d] = match categories.of(d) {
                [] => finite(value).ok_or_else(form)?,
                _ => categories.code(d, value.trim()).map_err(|what| format!("--at {text}: {what}"))?,
            };
        }
        let shares = shares(snapshot, states.all(), self.reward);
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
        let (reward, marginal, kernel, labels) = (self.reward, self.marginal, self.kernel, self.labels(snapshot));
        Ok(ModelView {
            names,
            dictionary,
            states,
            ranges,
            at,
            shares,
            x,
            y,
            reward,
            labels,
            marginal,
            kernel,
            categories,
        })
    }
}

fn finite(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|v: &f64| v.is_finite())
}

impl ModelView {
    /// The value, and its deviation beside a map.
    fn values(&self, snapshot: &Snapshot) -> Result<Vec<Panel>, Failure> {
        match self.y {
            Some(y) => self.maps(snapshot, y),
            None => Ok(vec![Panel::Curves(self.curve(snapshot)?)]),
        }
    }

    fn figure(&self, snapshot: &Snapshot) -> Result<Figure, Failure> {
        let mut panels = self.values(snapshot)?;
        if self.names.len() > 1 {
            panels.push(Panel::Bars(self.bars(snapshot)));
        }
        Ok(Figure { panels })
    }

    /// The unit of values as it stands behind their name.
    fn unit(&self) -> &str {
        unit_of(&self.labels.reward)
    }

    /// The value, and where it is wrong.
    fn beside_errors(&self, snapshot: &Snapshot, errors: &PlotErrors) -> Result<Figure, Failure> {
        let mut panels = self.values(snapshot)?;
        panels.truncate(1);
        if let (Some(Panel::Heatmap(value)), Some(y)) = (panels.first_mut(), self.y) {
            value.points = vec![errors.marks(self, y)];
        }
        panels.extend(errors.panels(self));
        Ok(Figure { panels })
    }

    fn axis(&self, d: usize) -> Axis {
        let [low, high] = self.ranges[d];
        Axis::new(self.names[d].clone(), low, high)
    }

    /// A title and, in lines below it, where the variables stand that are not drawn, those with the largest shares first; of an
    /// average how many states it goes over, of which there are at most `most`.
    fn titled(&self, what: &str, most: usize) -> String {
        let mut others: Vec<usize> = (0..self.names.len()).filter(|&d| d != self.x && Some(d) != self.y).collect();
        others.sort_by(|&a, &b| self.shares[b].total_cmp(&self.shares[a]));
        if others.is_empty() {
            return what.to_owned();
        }
        if self.marginal {
            return format!("{what}\naveraged over {}", self.states.counted(most));
        }
        // No line breaks between a name and its number.
        let word = |&d: &usize| self.place(d, self.at[d]).replace(char::is_whitespace, "\u{a0}");
        let words: Vec<String> = others.iter().take(NAMED).map(word).collect();
        let more = others.len() - words.len();
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{what}\nat {}{rest}", words.join(", "))
    }

    /// "battery = 45 %": where a variable stands.
    fn place(&self, d: usize, value: f64) -> String {
        let name = &self.names[d];
        if let Some(text) = self.categories.text(d, value) {
            return format!("{} = {text}", without_unit(name));
        }
        format!("{} = {}{}", without_unit(name), number(round(value)), plain_unit(unit_of(name)))
    }

    /// The states (s, D), at most `most` of them, whose other variables the picture takes: the one slice, or, for an
    /// average, visited ones.
    fn others(&self, most: usize) -> Vec<f64> {
        if self.marginal { self.states.some(most).flatten().copied().collect() } else { self.at.clone() }
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
        // Before a refit has selected the model, its deviations are the prior's and say nothing about places.
        let unknown = deviation.as_ref().filter(|_| !model.snapshot().provisional).map(share);
        Ok(Drawn { mean: mean.column(self.reward).iter().copied().collect(), deviation, unknown })
    }

    /// Cells of a map.
    fn cells(&self) -> (usize, usize) {
        if self.marginal { (COLUMNS_AVERAGED, ROWS_AVERAGED) } else { (COLUMNS, CELLS_DOWN) }
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
        let mut map = Heatmap::new(title, horizontal, vertical, self.cells().0, values, self.labels.value.clone());
        map.fade = unknown.map(not_known);
        map
    }

    fn maps(&self, snapshot: &Snapshot, y: usize) -> Result<Vec<Panel>, Failure> {
        let Drawn { mean, deviation, unknown } = self.surface(&Evaluator::new(snapshot.clone()), y)?;
        let at = self.dictionary.iter().map(|state| [state[self.x], state[y]]).collect();
        let points = vec![Points { label: "dictionary".into(), at, marker: Marker::Ring }];
        let [low, high] = ends(mean.iter());
        let mut value = self.map(y, self.titled(&self.labels.title, AVERAGED), mean, unknown);
        if self.kernel {
            let ellipse = reach::ellipse(snapshot, [self.x, y], [self.x, y].map(|d| self.ranges[d]));
            if ellipse.is_none() {
                note("--kernel: the kernel is longer than this map, or one of its variables is no number on a line");
            }
            value.points.extend(ellipse);
        }
        let Some(deviation) = deviation else {
            value.points.extend(points);
            return Ok(vec![Panel::Heatmap(value)]);
        };
        let greatest = ends(deviation.iter())[1];
        let mut spread = self.map(y, self.titled("Standard deviation", AVERAGED_VARIANCES), deviation, None);
        spread.value_label = format!("standard deviation of the value{}", self.unit());
        spread.colours = Colours::Deviation;
        // In proportion to the values: a small deviation should look small.
        spread.value_range = Some([0.0, greatest.max(high - low)]).filter(|[low, high]| low < high);
        spread.points = points;
        Ok(vec![Panel::Heatmap(value), Panel::Heatmap(spread)])
    }

    fn curve(&self, snapshot: &Snapshot) -> Result<Curves, Failure> {
        let (line, unknown) = self.line(&Evaluator::new(snapshot.clone()), "value")?;
        Ok(self.curves(vec![line], unknown))
    }

    fn places(&self) -> Vec<f64> {
        let ([low, high], count) = (self.ranges[self.x], if self.marginal { CURVE_AVERAGED } else { CURVE });
        (0..count).map(|k| low + (high - low) * k as f64 / (count - 1) as f64).collect()
    }

    /// The model over one variable, and how little of it is known.
    fn line(&self, model: &Evaluator, label: &str) -> Result<(Line, Option<Vec<f64>>), Failure> {
        let Drawn { mean, deviation, unknown } = self.evaluate(model, &self.places())?;
        let label = if deviation.is_some() { format!("{label}, ± two standard deviations") } else { label.to_owned() };
        Ok((Line { label, mean, deviation, dashed: false }, unknown))
    }

    fn curves(&self, lines: Vec<Line>, unknown: Option<Vec<f64>>) -> Curves {
        // Visited states and the dictionary lie below the curves: the places of states, without their values.
        let reach = |line: &Line, k: usize| 2.0 * line.deviation.as_ref().map_or(0.0, |deviation| deviation[k]);
        let of = |line: &Line, k: usize| [line.mean[k] - reach(line, k), line.mean[k] + reach(line, k)];
        let all: Vec<f64> = lines.iter().flat_map(|line| (0..line.mean.len()).flat_map(move |k| of(line, k))).collect();
        let [lowest, highest] = ends(all.iter());
        let below = |share: f64| lowest - share * (highest - lowest);
        let set = |label: &str, at: Vec<f64>, share: f64, marker: Marker| {
            let at = at.into_iter().map(|x| [x, below(share)]).collect();
            Points { label: label.into(), at, marker }
        };
        let dictionary = self.dictionary.iter().map(|state| state[self.x]).collect();
        let mut points = vec![set("dictionary", dictionary, 0.04, Marker::Ring)];
        if self.states.visited {
            let states = self.states.some(RUG).map(|state| state[self.x]).collect();
            points.push(set("visited states", states, 0.08, Marker::Dot));
        }
        Curves {
            title: self.titled(&self.labels.title, AVERAGED),
            x: self.axis(self.x),
            y_label: self.labels.value.clone(),
            y_scale: Scale::Linear,
            y_range: None,
            at: self.places(),
            lines,
            fade: unknown.map(not_known),
            points,
        }
    }

    /// Two models side by side on one scale, and the first minus the second.
    fn comparison(&self, one: Snapshot, other: Snapshot) -> Result<Figure, Failure> {
        let name = |snapshot: &Snapshot| format!("{}, generation {}", snapshot.critic, snapshot.generation);
        let names = [name(&one), name(&other)];
        let models = [Evaluator::new(one), Evaluator::new(other)];
        let Some(y) = self.y else {
            let [first, second] = [self.line(&models[0], &names[0])?, self.line(&models[1], &names[1])?];
            // Told apart in grey print too, as on the page.
            let lines = vec![first.0, Line { dashed: true, ..second.0 }];
            let curves = self.curves(lines, less_known(first.1, second.1));
            return Ok(Figure { panels: vec![Panel::Curves(curves)] });
        };
        let [first, second] = [self.surface(&models[0], y)?, self.surface(&models[1], y)?];
        let range = Some(ends(first.mean.iter().chain(&second.mean))).filter(|[low, high]| low < high);
        let values: Vec<f64> = first.mean.iter().zip(&second.mean).map(|(a, b)| a - b).collect();
        let reach = values.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
        let unknown = less_known(first.unknown.clone(), second.unknown.clone());
        let title = self.titled("Difference: the first minus the second", AVERAGED);
        let mut difference = self.map(y, title, values, unknown);
        difference.colours = Colours::Difference;
        difference.value_range = Some([-reach, reach]).filter(|_| reach > 0.0);
        let value = |name: &str, drawn: Drawn, bar: bool| {
            let map = self.map(y, self.titled(name, AVERAGED), drawn.mean, drawn.unknown);
            Panel::Heatmap(Heatmap { value_range: range, bar, ..map })
        };
        let [a, b] = names;
        // One bar for both: they have one scale.
        Ok(Figure { panels: vec![value(&a, first, false), value(&b, second, true), Panel::Heatmap(difference)] })
    }

    fn bars(&self, snapshot: &Snapshot) -> Bars {
        let scales = lengthscales(snapshot);
        let mut shown: Vec<usize> = (0..self.names.len()).collect();
        shown.sort_by(|&a, &b| self.shares[b].total_cmp(&self.shares[a]));
        shown.truncate(BARS);
        let text = |d: usize| {
            let scale = if scales[d].is_finite() {
                format!(" (lengthscale {}{})", number(round(scales[d])), plain_unit(unit_of(&self.names[d])))
            } else {
                String::new()
            };
            format!("{}{scale}", percent(self.shares[d]))
        };
        let bar = |d: usize| Bar { name: self.names[d].clone(), value: self.shares[d], text: text(d) };
        Bars {
            title: "What the value depends on".into(),
            label: "share of the variance of the value".into(),
            bars: shown.into_iter().map(bar).collect(),
        }
    }
}

/// Where the deviation is at least half of sqrt(v0): less than three quarters are known.
fn not_known(amount: Vec<f64>) -> Fade {
    Fade { label: "hatched: not known".into(), amount }
}

/// Two values together are known where both are.
fn less_known(one: Option<Vec<f64>>, other: Option<Vec<f64>>) -> Option<Vec<f64>> {
    Some(one?.into_iter().zip(other?).map(|(a, b)| a.max(b)).collect())
}

/// Share of the variance of the value of reward `reward` that each state variable explains (D,), over these states.
fn shares(snapshot: &Snapshot, states: &[Vec<f64>], reward: usize) -> Vec<f64> {
    let states: Vec<f64> = states.iter().flatten().copied().collect();
    let evaluator = Evaluator::new(snapshot.clone());
    let mut value = |states: &[f64]| match evaluator.evaluate(states, Ask::MEAN) {
        Ok(found) if reward < found.mean.ncols() => found.mean.column(reward).iter().copied().collect(),
        _ => vec![0.0; states.len() / snapshot.dim()],
    };
    total_indices(&states, snapshot.dim(), (SAMPLES, UNNOTICED * snapshot.hyperparameters.noise_variance), &mut value)
}

/// Least and greatest of some numbers.
fn ends<'a>(values: impl Iterator<Item = &'a f64>) -> [f64; 2] {
    values.fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], v| [low.min(*v), high.max(*v)])
}

/// Three significant digits.
fn round(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of `count` variables, of which the first two are drawn and the last ones matter most.
    fn view(count: usize) -> ModelView {
        ModelView {
            names: (0..count).map(|d| format!("joint {d} [rad]")).collect(),
            dictionary: Vec::new(),
            states: States::of_dictionary(&[]),
            ranges: vec![[0.0, 1.0]; count],
            at: (0..count).map(|d| d as f64 + 0.123_456).collect(),
            shares: (0..count).map(|d| d as f64).collect(),
            x: 0,
            y: Some(1),
            reward: 0,
            labels: PictureLabels { title: "Value".into(), value: "sum".into(), reward: "energy [J]".into() },
            marginal: false,
            kernel: false,
            categories: Default::default(),
        }
    }

    #[test]
    fn a_title_names_every_variable_that_is_fixed() {
        let title = |count: usize| view(count).titled("Value", AVERAGED).replace('\u{a0}', " ");
        assert_eq!(title(2), "Value");
        assert_eq!(
            title(6),
            "Value\nat joint 5 = 5.12 rad, joint 4 = 4.12 rad, joint 3 = 3.12 rad, joint 2 = 2.12 rad"
        );
        let twelve = title(14);
        assert_eq!((twelve.matches(" = ").count(), twelve.contains("more")), (12, false), "{twelve}");
        let many = title(348);
        assert_eq!(many.matches(" = ").count(), 12, "{many}");
        assert!(many.starts_with("Value\nat joint 347 = 347") && many.ends_with(" and 334 more"), "{many}");
        let average = ModelView { marginal: true, ..view(6) };
        assert_eq!(average.titled("Value", AVERAGED), "Value\naveraged over 0 states of the dictionary");
    }
}
