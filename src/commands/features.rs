//! `criticd features`: which features the value needs, by OMP-TD and OMP-BRM.

use super::Failure;
use super::dictionary::beta;
use super::given::{self, TABLES, TableOptions, listed, plural, without_unit};
use super::output::{columns, facts, in_file, note, number, print, print_json};
use crate::learner::{DictionaryBy, Settings};
use crate::math::dense::Matrix;
use crate::math::kernel::{Kernel, Metric, Points};
use crate::math::pursuit::{
    Candidates, ChosenFeatures, Equation, PursuitStep, differences, pursue, recovery_coefficient, to_unit_norm,
};
use crate::snapshot::Inputs;
use crate::transition::{Rows, state_name};
use serde_json::{Value, json};

/// Which features does the value need? Orthogonal matching pursuit by the rewards (OMP-TD and OMP-BRM)
///
/// The features are the state variables of the table, and kernel functions of several widths where --widths names some. One after the
/// other joins, the one that correlates most with what is left of the reward, and a weighted sum of those chosen is the value. The
/// report says whether a theorem promises that no other features would have done.
#[derive(Debug, clap::Args)]
#[command(
    after_help = format!(
        "Examples:\n  criticd features log.csv --state f1,f2,f3 --discount 0.9\n  criticd features log.csv --by omp-brm --beta 0.01 --unit-norm\n  criticd features log.csv --state x,y --no-variables --widths 0.3,1,3 --features-max 30 --json\n\nA model of the chosen variables: criticd fit log.csv --state ... --linear-columns always.\n\n{TABLES}"
    )
)]
pub(crate) struct Features {
    #[command(flatten)]
    table: TableOptions,
    /// OMP-TD looks for the fixed point of the chosen features, OMP-BRM for the least Bellman residual
    #[arg(long, value_name = "WHICH", default_value = "both")]
    by: PursuitBy,
    /// Discount of transitions without one of their own
    #[arg(long, value_name = "G", default_value_t = Settings::default().discount, value_parser = given::discount)]
    discount: f64,
    /// Choose no further feature where none correlates more than this with what is left of the reward; with --unit-norm in the unit
    /// of the reward. What rounding leaves is never chosen
    #[arg(long, value_name = "B", default_value_t = 0.0, value_parser = beta)]
    beta: f64,
    /// Most features
    #[arg(long, value_name = "M", default_value_t = 20, value_parser = given::at_least_one)]
    features_max: usize,
    /// Divide each feature by its root mean square over the transitions, so that none is chosen for its unit
    #[arg(long)]
    unit_norm: bool,
    /// Add the constant 1 to the features
    #[arg(long)]
    constant: bool,
    /// Add Gaussian kernel functions of these widths, in standard deviations of the state variables, around states of the table
    #[arg(long, value_name = "WIDTHS", value_delimiter = ',', value_parser = given::positive)]
    widths: Vec<f64>,
    /// States that kernel functions are around, at most: evenly spaced ones
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = given::at_least_one, requires = "widths")]
    centres: usize,
    /// With --widths: state variables are no features themselves
    #[arg(long, requires = "widths")]
    no_variables: bool,
    /// Added to the diagonal of the equations of the weights: the prior's part, 0 for none
    #[arg(long, value_name = "R", default_value_t = 0.0, value_parser = beta)]
    ridge: f64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PursuitBy {
    OmpTd,
    OmpBrm,
    Both,
}

impl PursuitBy {
    fn equations(self) -> &'static [Equation] {
        match self {
            Self::OmpTd => &[Equation::FixedPoint],
            Self::OmpBrm => &[Equation::Residual],
            Self::Both => &[Equation::FixedPoint, Equation::Residual],
        }
    }
}

/// Correlations below this part of the first reward's are rounding.
const ROUNDING: f64 = 1e-10;

/// Features of the rows and of their successors.
struct Phi {
    names: Vec<String>,
    /// (n, c), and discounted, 0 where a row terminates.
    now: Matrix,
    next: Matrix,
    /// What they were divided by (c,).
    norms: Vec<f64>,
}

impl Features {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if self.table.dry(self.json)? {
            return Ok(());
        }
        let table = self.table.read()?;
        let texts = given::texts(&table);
        if let Some((_, name)) = texts.first() {
            return Err(Failure::usage(format!("--state {name}: holds texts, a feature is a number")));
        }
        let names = table.names_with_units();
        let rows = table.into_rows();
        if rows.ratios.iter().any(|&ratio| ratio != 1.0) {
            let message = "behavior_prob and target_prob weight the rows, and pursuits count each once; put an underscore before the \
                           name of one of the two to have it skipped";
            return Err(in_file(&self.table.table, message));
        }
        let names = names.unwrap_or_else(|| (0..rows.dim).map(state_name).collect());
        let phi = self.features(&rows, &names);
        let found: Vec<FoundFeatures> =
            self.by.equations().iter().map(|&by| self.pursue(&rows, &phi, by)).collect::<Result<_, _>>()?;
        found.iter().flat_map(|found| &found.doubts).for_each(|doubt| note(doubt));
        if self.json {
            return print_json(&json!({
                "transitions": rows.len(),
                "candidates": phi.names.len(),
                "discount": self.discount,
                "beta": self.beta,
                "unit_norm": self.unit_norm,
                "pursuits": found.iter().map(|found| found.document(&phi)).collect::<Vec<_>>(),
            }));
        }
        let head = format!("{} of {}\n\n", plural(phi.names.len(), "feature"), plural(rows.len(), "transition"));
        print(&(head + &found.iter().map(|found| found.text(&phi)).collect::<Vec<_>>().join("\n")))
    }

    fn features(&self, rows: &Rows, names: &[String]) -> Phi {
        let (n, dim) = (rows.len(), rows.dim);
        let mut out = Vec::new();
        let (mut now, mut next) = (Vec::new(), Vec::new());
        if !self.no_variables {
            for (d, name) in names.iter().enumerate() {
                out.push(without_unit(name).to_owned());
                now.extend((0..n).map(|i| rows.state(i)[d]));
                next.extend((0..n).map(|i| rows.next_state(i)[d]));
            }
        }
        if self.constant {
            out.push("1".to_owned());
            [&mut now, &mut next].into_iter().for_each(|to| to.extend(std::iter::repeat_n(1.0, n)));
        }
        if !self.widths.is_empty() {
            let inputs = Inputs::standard(&rows.states, dim, dim);
            let places: Vec<usize> = (0..n).step_by(n.div_ceil(self.centres).max(1)).collect();
            let centres: Vec<f64> = places.iter().flat_map(|&i| inputs.normalise(rows.state(i))).collect();
            for width in &self.widths {
                let kernel = Kernel::gaussian(1.0, 0.0, Metric::Isotropic(width.powi(-2)));
                let elements = kernel.project(dim, &centres);
                for (states, to) in [(&rows.states, &mut now), (&rows.next_states, &mut next)] {
                    let projected = kernel.project(dim, &inputs.normalise(states));
                    let mut block = Matrix::zeros(n, places.len());
                    let points = Points::new(kernel.projected_dim(dim), &projected);
                    kernel.block(&points, &elements, &mut block.view_mut());
                    (0..places.len()).for_each(|j| to.extend_from_slice(block.col(j)));
                }
                out.extend(places.iter().map(|i| format!("width {} around row {}", number(*width), i + 1)));
            }
        }
        let (mut now, mut next) = (Matrix::from_columns(n, out.len(), now), Matrix::from_columns(n, out.len(), next));
        let discount = |i: usize| rows.follows(i, self.discount);
        for j in 0..out.len() {
            next.col_mut(j).iter_mut().enumerate().for_each(|(i, value)| *value *= discount(i));
        }
        let norms = if self.unit_norm { to_unit_norm(&mut now, &mut next) } else { vec![1.0; out.len()] };
        Phi { names: out, now, next, norms }
    }

    fn pursue(&self, rows: &Rows, phi: &Phi, by: Equation) -> Result<FoundFeatures, Failure> {
        let n = rows.len();
        let rewards = Matrix::from_columns(n, 1, (0..n).map(|i| rows.reward(i)[0]).collect());
        let square = (rewards.col(0).iter().map(|r| r * r).sum::<f64>() / n.max(1) as f64).sqrt();
        let enough = self.beta.max(ROUNDING * square);
        let Phi { now, next, .. } = phi;
        let of = Candidates { now, next, rewards: &rewards, ridge: self.ridge, enough };
        let dependent = || {
            let message = "the equations of the chosen features have no solution: features that depend on one another; leave some out, \
                           or give --ridge";
            in_file(&self.table.table, message)
        };
        let chosen = pursue(&of, by, self.features_max, &|| true).map_err(|_| dependent())?.unwrap_or_default();
        let numbers: Vec<usize> = chosen.steps.iter().map(|step| step.feature).collect();
        let columns = differences(&of);
        let recovery = if by == Equation::Residual && !numbers.is_empty() {
            recovery_coefficient(columns.view(), &numbers).ok()
        } else {
            None
        };
        let left = if by == Equation::Residual { &columns } else { now };
        let norm = |j: usize| (left.col(j).iter().map(|x| x * x).sum::<f64>() / n as f64).sqrt();
        // The cosine of the angle between the feature and what was left.
        let cosine = |step: &PursuitStep| step.correlation / (norm(step.feature) * step.error);
        let cosines: Vec<f64> = chosen.steps.iter().map(cosine).collect();
        let discount = (0..n).map(|i| rows.discount(i, self.discount)).fold(0.0, f64::max);
        let bound = (discount < 1.0).then(|| chosen.error / (1.0 - discount));
        let mut doubts = Vec::new();
        if chosen.steps.len() == self.features_max && chosen.left > enough {
            doubts.push(format!(
                "{}: --features-max ended the choice; another feature correlates by {} with what is left",
                name(by),
                number(chosen.left)
            ));
        }
        Ok(FoundFeatures { by, chosen, cosines, recovery, bound, discount, doubts })
    }
}

fn name(by: Equation) -> &'static str {
    let rule = match by {
        Equation::FixedPoint => DictionaryBy::OmpTd,
        Equation::Residual => DictionaryBy::OmpBrm,
    };
    rule.name()
}

/// What one pursuit has found.
struct FoundFeatures {
    by: Equation,
    chosen: ChosenFeatures,
    /// Of each choice the cosine of the angle between the feature and what was left, 0 to 1.
    cosines: Vec<f64>,
    /// Exact recovery coefficient of the chosen columns of OMP-BRM, if they do not depend on one another.
    recovery: Option<f64>,
    /// What is left over 1 - the largest discount.
    bound: Option<f64>,
    discount: f64,
    doubts: Vec<String>,
}

impl FoundFeatures {
    /// Weights of the features as the table has them.
    fn weights(&self, phi: &Phi) -> Vec<f64> {
        let of = |(k, step): (usize, &PursuitStep)| self.chosen.weights.at(k, 0) / phi.norms[step.feature];
        self.chosen.steps.iter().enumerate().map(of).collect()
    }

    /// Whether a choice is sure to bring the value nearer to V*, where errors are of states.
    fn improves(&self, k: usize) -> bool {
        self.by == Equation::FixedPoint && self.cosines[k] > self.discount
    }

    fn document(&self, phi: &Phi) -> Value {
        let weights = self.weights(phi);
        let one = |(k, step): (usize, &PursuitStep)| {
            json!({
                "feature": phi.names[step.feature],
                "number": step.feature,
                "correlation": step.correlation,
                "cosine": self.cosines[k],
                "improves": (self.by == Equation::FixedPoint).then(|| self.improves(k)),
                "error": step.error,
                "weight": weights[k],
            })
        };
        json!({
            "rule": name(self.by),
            "features": self.chosen.steps.iter().enumerate().map(one).collect::<Vec<_>>(),
            "left": self.chosen.left,
            "error": self.chosen.error,
            "bound": self.bound,
            "recovery_coefficient": self.recovery,
            "recovers": self.recovery.map(|coefficient| coefficient < 1.0),
        })
    }

    fn text(&self, phi: &Phi) -> String {
        let weights = self.weights(phi);
        let fixed = self.by == Equation::FixedPoint;
        let row = |(k, step): (usize, &PursuitStep)| {
            let mut row = vec![
                (k + 1).to_string(),
                phi.names[step.feature].clone(),
                number(step.correlation),
                number(self.cosines[k]),
                number(step.error),
                number(weights[k]),
            ];
            row.extend(fixed.then(|| if self.improves(k) { "yes" } else { "not proved" }.to_owned()));
            row
        };
        let rows: Vec<Vec<String>> = self.chosen.steps.iter().enumerate().map(row).collect();
        let mut titles = vec![name(self.by), "feature", "correlation", "cosine", "error before", "weight"];
        titles.extend(fixed.then_some("nearer to V*"));
        let mut lines = vec![("error left".to_owned(), format!("{} (root mean square)", number(self.chosen.error)))];
        if let Some(bound) = self.bound {
            let text =
                format!("{} from V*, if the next state is certain and rows are as states are met", number(bound));
            lines.push(("at most".to_owned(), text));
        }
        lines.push(("largest correlation left".to_owned(), number(self.chosen.left)));
        if let Some(coefficient) = self.recovery {
            let text = if coefficient < 1.0 {
                format!(
                    "{}, below 1: if V* needs no other features, OMP-BRM finds these and no others",
                    number(coefficient)
                )
            } else {
                format!("{}, not below 1: no theorem says that these are the only ones needed", number(coefficient))
            };
            lines.push(("exact recovery".to_owned(), text));
        }
        let chosen: Vec<String> = self.chosen.steps.iter().map(|step| phi.names[step.feature].clone()).collect();
        if chosen.is_empty() {
            return format!("{}: no feature correlates with the reward\n{}", name(self.by), facts(&lines));
        }
        lines.insert(0, ("chosen".to_owned(), listed(&chosen)));
        format!("{}\n{}", columns(&titles, &rows), facts(&lines))
    }
}
