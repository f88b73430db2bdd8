//! What a refit found, in numbers and in words.

use super::diagnostics::Diagnostic;
use super::referee::SelectionReport;
use super::refit::RefitTrigger;
use super::search::Structure;
use crate::math::dense::{Matrix, Op, product};
use crate::math::embedding::StateKind;
use crate::math::evidence::parameter_names;
use crate::math::kernel::{Direction, Hyperparameters, Metric};
use crate::math::optimise::Ascent;
use crate::snapshot::Inputs;
use crate::transition::Rows;

/// Evidence drop, in nats, from which a state variable matters: odds of more than twenty thousand to one. log D is added, since
/// the luckiest of D irrelevant variables gains about that much.
const MATTERS: f64 = 10.0;
/// Evidence drop, in nats, from which a variable may matter. Returns share their noise, which inflates the evidence.
const MATTERS_LITTLE: f64 = 4.0;
/// Trace gap above which a dictionary is too small to select a model with, nats (docs/mathematics.md (E9)).
const GAP_TOO_LARGE: f64 = 5.0;
/// Exact evidence given up for a dictionary that is full, above which it is too small, nats.
const GIVEN_UP_TOO_MUCH: f64 = 20.0;
/// 1/2 y' Q^-1 y below this share of n / 2 says that a floor is active (docs/mathematics.md (E4)).
const FIT_LOW: f64 = 0.8;
/// Returns further out than this from their median, in robust standard deviations, are outliers.
const OUTLYING_RETURN: f64 = 100.0;
/// They are few if they are further out than this in standard deviations of all returns: rewards that are seen rarely decay through
/// the returns before them, and are no fault.
const FEW_OUTLIERS: f64 = 8.0;
/// Standard deviation that a hundredth of the rows has made so much larger than that of the others is not a scale.
const OUTLYING_STATES: f64 = 20.0;
/// Standard deviation of a state variable below which it has no scale: slopes of V would be beyond what numbers can be.
const SMALLEST_SCALE: f64 = 1e-290;
/// Correlation of two state variables above which the evidence can hardly tell them apart.
const CORRELATED: f64 = 0.99;
/// State variables that differ by less, in standard deviations, are copies: 32-bit numbers agree to that.
const COPY: f64 = 1e-5;
/// Rows that correlations and quantiles are taken from.
const SAMPLE: usize = 4096;

/// Which evidence a model was selected by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvidenceKind {
    /// The exact one, on at most `evidence_rows` rows.
    Exact,
    /// The variational bound through a dictionary, on all rows.
    Sparse,
}

impl EvidenceKind {
    /// The word used on the wire and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Sparse => "sparse",
        }
    }
}

/// What a refit found, for people and for judging.
#[derive(Clone, Debug, PartialEq)]
pub struct RefitReport {
    /// Why it was started.
    pub trigger: RefitTrigger,
    /// Rows that it looked at: those of the window, or the last of them where rows are forgotten.
    pub rows: u64,
    /// Effective number of rows of the rebuilt model, where rows are forgotten.
    pub rows_effective: Option<f64>,
    /// What the hyperparameters were selected by in the end.
    pub evidence: EvidenceKind,
    /// Rows that this evidence was computed on.
    pub evidence_rows: usize,
    /// Name of the structure selected, as in `structures`.
    pub structure: String,
    /// Log evidence of the present hyperparameters on those rows, nats; none if they fail there.
    pub evidence_before: Option<f64>,
    /// Log evidence of the hyperparameters found, on the same rows and targets, nats.
    pub evidence_after: Option<f64>,
    /// Exact evidence given up, on `evidence_rows` of the settings, for what the dictionary can carry, nats: what the exact search
    /// reached less what the model selected by the bound has. None if the bound was not used.
    pub evidence_loss: Option<f64>,
    /// 1/2 y' Q^-1 y over n / 2: 1 at an optimum that no bound holds.
    pub fit_ratio: Option<f64>,
    /// Evaluations of the evidence with gradient.
    pub evaluations: usize,
    /// Bounds that hold the optimum, in words; empty if none.
    pub active_bounds: Vec<String>,
    /// Whether the time budget ended the search.
    pub out_of_time: bool,
    /// Dictionary size of the rebuilt model.
    pub dictionary_size: usize,
    /// Variational trace gap of the rebuilt model, nats (above 5: the dictionary is too small to select with).
    pub trace_gap: f64,
    /// ICD tolerance of the rebuilt model relative to v0 + b.
    pub tolerance: f64,
    /// Rows that it never learned, because the stream was faster than it could be caught up.
    pub rows_left_out: u64,
    /// The structures that were compared, in the order in which they were tried.
    pub structures: Vec<StructureReport>,
    /// What each state variable means to the value (D,).
    pub variables: Vec<VariableReport>,
    /// Directions of a factor model, the strongest first; empty for others.
    pub directions: Vec<Direction>,
    /// Which evidence the support of the variables is of; none if it could not be computed.
    pub evidence_drop_by: Option<EvidenceKind>,
    /// What the refit has noticed.
    pub findings: Vec<Diagnostic>,
    /// Every ascent, those on few rows first, later rounds last; within a stage the best first.
    pub ascents: Vec<AscentReport>,
    /// How kernel, lambda and ridge were chosen by held-out returns; none if the evidence chose. Evidence has only proposed
    /// relevances then, and what is said of it above is none.
    pub selection: Option<SelectionReport>,
}

/// A structure of the covariance that model selection has tried.
#[derive(Clone, Debug, PartialEq)]
pub struct StructureReport {
    /// In words: "isotropic", "ard", "ard without 1, 4" (state variables left out), "factor with 2 directions".
    pub name: String,
    /// Best log evidence found, nats, on the rows that all structures were compared on.
    pub log_evidence: f64,
    /// Free hyperparameters.
    pub parameters: usize,
}

/// One ascent of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct AscentReport {
    /// Round of targets, from 1.
    pub round: usize,
    /// Name of its structure.
    pub structure: String,
    /// Names of its parameters.
    pub names: Vec<String>,
    /// Rows that its evidence was computed on.
    pub rows: usize,
    /// Where it went.
    pub ascent: Ascent,
}

impl AscentReport {
    /// Those of one structure in one round, on so many rows.
    pub(super) fn of<'a>(
        round: usize,
        structure: &'a Structure,
        dim: usize,
        rows: usize,
        found: &'a [Ascent],
    ) -> impl Iterator<Item = Self> + 'a {
        let names = parameter_names(&structure.like.kernel.metric, dim);
        found.iter().map(move |ascent| Self {
            round,
            structure: structure.name.clone(),
            names: names.clone(),
            rows,
            ascent: ascent.clone(),
        })
    }
}

/// What one state variable means to the value.
#[derive(Clone, Debug, PartialEq)]
pub struct VariableReport {
    /// Its name; `state_0`, `state_1`, ... by default.
    pub name: String,
    /// Entry of Omega on the diagonal, in normalised coordinates: 0 if it is left out.
    pub relevance: f64,
    /// Distance in its own unit over which the value changes, all else fixed; none if it is left out.
    pub lengthscale: Option<f64>,
    /// The same in its standard deviations.
    pub lengthscale_in_deviations: Option<f64>,
    /// Evidence lost if it and its copies were left out and all else stayed, nats.
    pub evidence_drop: Option<f64>,
    /// The short of it.
    pub verdict: Verdict,
}

/// Whether a state variable matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Leaving it out would cost much evidence.
    Matters,
    /// Leaving it out would cost some.
    MattersLittle,
    /// Leaving it out would cost nothing worth mentioning.
    DoesNotMatter,
    /// It has been left out: the evidence did not fall.
    Removed,
    /// It has the same value in all rows.
    Constant,
    /// It is a copy of the state variable of this index, which stands for both.
    CopyOf(usize),
}

impl Verdict {
    /// The word used on the wire and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Matters => "matters",
            Self::MattersLittle => "matters_little",
            Self::DoesNotMatter => "does_not_matter",
            Self::Removed => "removed",
            Self::Constant => "constant",
            Self::CopyOf(_) => "copy",
        }
    }
}

/// Dependence of the state variables on each other in the rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Dependence {
    constant: Vec<usize>,
    /// Each copy with what it is a copy of, possibly in another unit or of the other sign.
    copies: Vec<(usize, usize)>,
    /// Those that vary by less than [`SMALLEST_SCALE`].
    tiny: Vec<usize>,
    /// Pairs that move together, with their correlation.
    correlated: Vec<(usize, usize, f64)>,
    /// State variables with values far outside of all others.
    outlying: Vec<usize>,
}

impl Dependence {
    /// Of the states of `rows`, normalised by `inputs`. Only variables of one kind can be copies of each other, and only real ones
    /// have outliers or move together.
    pub(super) fn new(rows: &Rows, inputs: &Inputs, kinds: &[StateKind]) -> Self {
        let (dim, n) = (rows.dim, rows.len());
        let kind = |d: usize| kinds.get(d).copied().unwrap_or_default();
        let mut out = Self::default();
        for d in 0..dim {
            if (1..n).all(|i| rows.state(i)[d] == rows.state(0)[d]) {
                out.constant.push(d);
            } else if (1..n).all(|i| (rows.state(i)[d] - rows.state(0)[d]).abs() < SMALLEST_SCALE) {
                out.tiny.push(d);
            } else if kind(d) == StateKind::Real && scale_of(rows, d).2 {
                out.outlying.push(d);
            }
        }
        let sample: Vec<f64> = sampled(n).flat_map(|i| inputs.normalise(rows.state(i))).collect();
        let mut z = Matrix::from_rows(sample.len() / dim, dim, &sample);
        for d in 0..dim {
            let column = z.col_mut(d);
            let mean = column.iter().sum::<f64>() / column.len() as f64;
            column.iter_mut().for_each(|v| *v -= mean);
            let norm = column.iter().map(|v| v * v).sum::<f64>().sqrt();
            column.iter_mut().for_each(|v| *v /= norm.max(f64::MIN_POSITIVE));
        }
        let correlation = product(z.view(), Op::Transposed, z.view(), Op::Plain);
        let state = |i: usize, d: usize| (rows.state(i)[d] - inputs.shift[d]) / inputs.scale[d];
        for d in 0..dim {
            for e in 0..d {
                let (c, gone) = (correlation.at(d, e), |k| out.copies.iter().any(|&(copy, _)| copy == k));
                if c.abs() < CORRELATED || gone(d) || gone(e) || kind(d) != kind(e) {
                    continue;
                }
                let sign = c.signum();
                if (0..n).all(|i| (state(i, d) - sign * state(i, e)).abs() <= COPY * (1.0 + state(i, e).abs())) {
                    out.copies.push((d, e));
                } else if kind(d) == StateKind::Real {
                    out.correlated.push((e, d, c));
                }
            }
        }
        out
    }

    /// State variable `d` with its copies, or what it is a copy of and the other copies of that.
    pub(super) fn duplicates_of(&self, d: usize) -> Vec<usize> {
        let first = self.copies.iter().find(|&&(copy, _)| copy == d).map_or(d, |&(_, of)| of);
        std::iter::once(first)
            .chain(self.copies.iter().filter(|&&(_, of)| of == first).map(|&(copy, _)| copy))
            .collect()
    }

    /// Diagnostics of the state variables.
    fn diagnostics(&self, inputs: &Inputs) -> Vec<Diagnostic> {
        let correlated = self.correlated.iter().map(|&(a, b, correlation)| Diagnostic::Correlated {
            variables: [name(inputs, a), name(inputs, b)],
            correlation,
        });
        let outlying = self.outlying.iter().map(|&d| Diagnostic::OutlyingStates { variable: name(inputs, d) });
        let tiny =
            self.tiny.iter().map(|&d| Diagnostic::TinyStates { variable: name(inputs, d), limit: SMALLEST_SCALE });
        correlated.chain(tiny).chain(outlying).collect()
    }

    /// Whether one lengthscale for all counts copies twice.
    fn counted_twice(&self, hyperparameters: &Hyperparameters) -> Option<Diagnostic> {
        let isotropic = matches!(hyperparameters.kernel.metric, Metric::Isotropic(_));
        (isotropic && !self.copies.is_empty()).then_some(Diagnostic::CopiesCountedTwice)
    }

    /// State variables that can say nothing beside the others.
    pub(super) fn left_out(&self) -> Vec<usize> {
        let still = self.constant.iter().chain(&self.tiny).copied();
        let mut out: Vec<usize> = still.chain(self.copies.iter().map(|&(d, _)| d)).collect();
        out.sort_unstable();
        out
    }
}

/// About [`SAMPLE`] row numbers, evenly spaced.
fn sampled(rows: usize) -> impl Iterator<Item = usize> {
    (0..rows).step_by(rows.div_ceil(SAMPLE).max(1))
}

/// Median and robust standard deviation (from the quartiles) of some numbers.
fn median_and_deviation(values: &mut [f64]) -> (f64, f64) {
    values.sort_unstable_by(f64::total_cmp);
    let at = |q: f64| values[((values.len() - 1) as f64 * q).round() as usize];
    // The quartiles of a normal distribution are 1.349 standard deviations apart.
    (at(0.5), (at(0.75) - at(0.25)) / 1.349)
}

/// Median of some numbers, and a standard deviation from those left without the lowest and the highest hundredth: without two at
/// either end at least, if so many are few.
fn median_and_inner_deviation(values: &mut [f64]) -> (f64, f64) {
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len() - 1;
    let out = ((0.01 * last as f64).ceil() as usize).max(2).min(last / 4);
    // The quantiles at 1 % and 99 % of a normal distribution are 4.653 standard deviations apart.
    (values[last / 2], (values[last - out] - values[out]) / 4.653)
}

/// The power of two next to a magnitude, 1 for 0.
fn power_of_two(magnitude: f64) -> f64 {
    if magnitude > 0.0 { 2f64.powi((magnitude.log2().round() as i32).max(f64::MIN_EXP)) } else { 1.0 }
}

/// Shift and scale of state variable `d`, and whether outliers decided how they were taken: mean and standard deviation over the
/// rows, or, where the outermost hundredth has blown those up, median and the spread of the others. What stands still most of the
/// time and then moves has no outliers: its quartiles may coincide, and its standard deviation is the scale of the movement. A
/// constant keeps its unit, and so does what varies by less than [`SMALLEST_SCALE`].
pub(super) fn scale_of(rows: &Rows, d: usize) -> (f64, f64, bool) {
    let n = rows.len().max(1) as f64;
    let column = || rows.states.iter().skip(d).step_by(rows.dim);
    let mean = column().sum::<f64>() / n;
    // Squares of small numbers would be 0: they are taken in a unit of their own, a power of two, which rounds nothing off.
    let unit = power_of_two(column().fold(0.0, |most: f64, x| most.max((x - mean).abs())));
    let square = |x: &f64| ((x - mean) / unit) * ((x - mean) / unit);
    let deviation = unit * (column().map(square).sum::<f64>() / n).sqrt();
    // What is left of a constant after subtracting its mean is rounding, not a scale.
    if deviation <= (1e-12 * mean.abs()).max(SMALLEST_SCALE) {
        return (mean, 1.0, false);
    }
    let mut sample: Vec<f64> = sampled(rows.len()).map(|i| rows.state(i)[d]).collect();
    let (median, inner) = median_and_inner_deviation(&mut sample);
    if inner > 1e-12 * median.abs() && deviation > OUTLYING_STATES * inner {
        (median, inner, true)
    } else {
        (mean, deviation, false)
    }
}

/// The state variables under the hyperparameters found, in normalised coordinates.
pub(super) fn variables(
    hyperparameters: &Hyperparameters,
    inputs: &Inputs,
    dependence: &Dependence,
    support: Option<&[f64]>,
) -> Vec<VariableReport> {
    let dim = inputs.dim();
    let omega = hyperparameters.kernel.metric.matrix(dim);
    let luck = (dim as f64).ln();
    (0..dim)
        .map(|d| {
            let relevance = omega.at(d, d);
            let kept = relevance > 0.0;
            let support = support.map(|s| s[d]).filter(|_| kept);
            let kernel = &hyperparameters.kernel;
            let length = kernel.lengthscale(d, dim).filter(|_| kept);
            let real = kernel.kind_of(d) == StateKind::Real;
            let copied = dependence.copies.iter().find(|&&(copy, _)| copy == d).map(|&(_, of)| of);
            let verdict = match (copied, support) {
                _ if dependence.constant.contains(&d) => Verdict::Constant,
                (Some(of), _) if !kept => Verdict::CopyOf(of),
                _ if !kept => Verdict::Removed,
                (_, Some(support)) if support >= MATTERS + luck => Verdict::Matters,
                (_, Some(support)) if support >= MATTERS_LITTLE + luck => Verdict::MattersLittle,
                (_, Some(_)) => Verdict::DoesNotMatter,
                // Without support the lengthscale has to say it: over ten standard deviations hardly anything changes.
                (_, None) if relevance >= 0.1 => Verdict::Matters,
                (_, None) if relevance >= 0.01 => Verdict::MattersLittle,
                (_, None) => Verdict::DoesNotMatter,
            };
            VariableReport {
                name: name(inputs, d),
                relevance,
                lengthscale: length.map(|l| l * inputs.scale[d]),
                lengthscale_in_deviations: length.filter(|_| real),
                evidence_drop: support,
                verdict,
            }
        })
        .collect()
}

fn name(inputs: &Inputs, d: usize) -> String {
    inputs.names.as_ref().and_then(|names| names.get(d).cloned()).unwrap_or_else(|| format!("state_{d}"))
}

/// What the sentences of a report are made from, besides the report itself.
pub(super) struct Circumstances<'a> {
    pub(super) hyperparameters: &'a Hyperparameters,
    pub(super) inputs: &'a Inputs,
    pub(super) dependence: &'a Dependence,
    /// (n, H).
    pub(super) targets: &'a Matrix,
    /// Whether the noise stands at its floor, and a lengthscale at its finest.
    pub(super) noise_at_floor: bool,
    pub(super) finest: bool,
    /// Directions that were asked for.
    pub(super) directions_asked: usize,
    /// Whether the bound of all rows was wanted.
    pub(super) bound_wanted: bool,
    /// An ascent that got nowhere because a covariance became singular.
    pub(super) singular: bool,
    pub(super) dictionary_max: usize,
}

/// Diagnostics of a selection by evidence.
pub(super) fn evidence_diagnostics(report: &RefitReport, about: &Circumstances<'_>) -> Vec<Diagnostic> {
    let mut out = Vec::new();
    let (rows, used, elements) = (report.rows, report.evidence_rows as u64, report.dictionary_size);
    let without_bound =
        report.evidence == EvidenceKind::Exact && used != rows && about.bound_wanted && report.out_of_time;
    out.push(match report.evidence {
        EvidenceKind::Exact => Diagnostic::SelectedByEvidence { used, rows, without_bound },
        EvidenceKind::Sparse => Diagnostic::SelectedByBound { rows: used },
    });
    if report.out_of_time && (report.evidence == EvidenceKind::Sparse || !about.bound_wanted) {
        out.push(Diagnostic::BudgetEnded);
    }
    let gap = report.trace_gap;
    let full = elements * 10 >= about.dictionary_max * 9;
    // The optimum of all rows differs from that of a subset, so some evidence is always lost.
    match report.evidence_loss.filter(|&nats| full && nats > GIVEN_UP_TOO_MUCH) {
        Some(nats) => out.push(Diagnostic::EvidenceLost { elements, nats }),
        None if gap <= GAP_TOO_LARGE => {}
        None => out.push(Diagnostic::TraceGap { elements, nats: gap, full }),
    }
    if about.noise_at_floor && about.finest {
        out.push(Diagnostic::EvidenceCollapses);
    } else if about.noise_at_floor {
        out.push(Diagnostic::NoiseAtFloor);
    } else if let Some(fit_ratio) = report.fit_ratio.filter(|&r| r < FIT_LOW && !report.active_bounds.is_empty()) {
        out.push(Diagnostic::ActiveBound { fit_ratio });
    }
    let (asked, given) = (about.directions_asked, about.hyperparameters.kernel.metric.factors().len());
    if given < asked {
        out.push(Diagnostic::FewerDirections { asked, given });
    }
    if about.singular {
        out.push(Diagnostic::SingularCovariance);
    }
    let Circumstances { inputs, dependence, .. } = *about;
    out.extend(dependence.diagnostics(inputs));
    out.extend((0..about.targets.cols()).filter_map(|h| outlying_returns(about.targets.col(h))));
    out.extend(dependence.counted_twice(about.hyperparameters));
    out
}

/// Diagnostics of a selection by held-out returns.
pub(super) fn selection_diagnostics(
    report: &RefitReport,
    hyperparameters: &Hyperparameters,
    inputs: &Inputs,
    dependence: &Dependence,
    dictionary_max: usize,
) -> Vec<Diagnostic> {
    let mut out = Vec::new();
    let Some(selection) = &report.selection else { return out };
    out.push(Diagnostic::SelectedByReturns {
        rows: selection.rows,
        pieces: selection.pieces,
        kernels: selection.candidates.len(),
    });
    out.extend(selection.findings.iter().cloned());
    if report.out_of_time {
        out.push(Diagnostic::BudgetEnded);
    }
    let (nats, elements) = (report.trace_gap, report.dictionary_size);
    if nats > GAP_TOO_LARGE && elements * 10 >= dictionary_max * 9 {
        out.push(Diagnostic::TraceGap { elements, nats, full: true });
    }
    out.extend(dependence.diagnostics(inputs));
    out.extend(dependence.counted_twice(hyperparameters));
    out
}

/// Returns (n,) far outside of all others.
fn outlying_returns(y: &[f64]) -> Option<Diagnostic> {
    let mut sample: Vec<f64> = sampled(y.len()).map(|i| y[i]).collect();
    let (median, deviation) = median_and_deviation(&mut sample);
    let furthest = y.iter().map(|y| (y - median).abs()).fold(0.0, f64::max);
    let all = (y.iter().map(|y| (y - median).powi(2)).sum::<f64>() / y.len().max(1) as f64).sqrt();
    let outlying = deviation > 0.0 && furthest > OUTLYING_RETURN * deviation && furthest > FEW_OUTLIERS * all;
    outlying.then(|| Diagnostic::OutlyingReturns { deviations: furthest / deviation })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(values: impl Iterator<Item = f64>) -> (f64, f64, bool) {
        let mut rows = Rows::new(1, 1);
        rows.states = values.collect();
        rows.streams = vec![0; rows.states.len()];
        scale_of(&rows, 0)
    }

    fn spread(k: u32) -> f64 {
        (f64::from(k) * 0.618_033_988_749_895).fract() - 0.5
    }

    #[test]
    fn what_mostly_stands_still_is_scaled_by_its_standard_deviation() {
        // The cosine of a pendulum that is balanced most of the time.
        let cosine = (0..2000).map(|k| if k % 6 == 0 { 2.0 * spread(k) } else { 1.0 - 1e-4 * spread(k).abs() });
        let (_, deviation, outlying) = scale(cosine);
        assert!(!outlying && deviation > 0.3, "{deviation}");
        // A light that is on in one row of forty.
        let (mean, deviation, outlying) = scale((0..2000).map(|k| f64::from(u32::from(k % 40 == 0))));
        assert!(!outlying && (mean - 0.025).abs() < 1e-12 && (deviation - 0.156).abs() < 1e-3);
    }

    #[test]
    fn a_few_values_far_out_do_not_scale_the_others() {
        for n in [40, 500, 2000, 20_000] {
            let far = |k: u32| if k == 17 || k == n / 2 { 6e6 } else { spread(k) };
            let (median, deviation, outlying) = scale((0..n).map(far));
            assert!(outlying && median.abs() < 0.1 && (0.15..0.35).contains(&deviation), "{n}: {median} {deviation}");
            let (_, deviation, outlying) = scale((0..n).map(spread));
            assert!(!outlying && (deviation - 0.2887).abs() < 0.02, "{n}: {deviation}");
        }
    }

    #[test]
    fn the_unit_of_a_state_does_not_matter() {
        let (mean, deviation, _) = scale((0..2000).map(spread));
        for exponent in [-960, -500, 29] {
            let unit = 2f64.powi(exponent);
            let found = scale((0..2000).map(|k| unit * spread(k)));
            assert_eq!(found, (unit * mean, unit * deviation, false), "2^{exponent}");
        }
    }

    #[test]
    fn few_rows_and_constants_have_a_scale() {
        assert_eq!(scale([3.0; 5].into_iter()), (3.0, 1.0, false));
        assert_eq!(scale([1.0, 3.0].into_iter()), (2.0, 1.0, false));
        assert_eq!(scale([1e-300, 3e-300].into_iter()).1, 1.0, "too small to be a scale");
        assert!(!scale([0.0, 1.0, 2.0, 4.0, 1.0].into_iter()).2);
    }
}
