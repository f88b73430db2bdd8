//! What a refit found, in numbers.

use super::referee::SelectionReport;
use super::screening::{Dependence, name, sampled};
use super::search::{EvidenceKind, Found, Structure, StructureReport};
use crate::diagnostics::Diagnostic;
use crate::hidden::Sign;
use crate::math::dense::Matrix;
use crate::math::evidence::parameter_names;
use crate::math::kernel::{Direction, Hyperparameters};
use crate::math::optimise::Ascent;
use crate::settings::DictionaryBy;
use crate::snapshot::Inputs;
use crate::world::{Choice, WorldError};

/// Trace gap above which a dictionary is too small to select a model with, nats (docs/mathematics.md (E9)).
pub(super) const GAP_TOO_LARGE: f64 = 5.0;
/// Exact evidence given up for a dictionary that is full, above which it is too small, nats.
const GIVEN_UP_TOO_MUCH: f64 = 20.0;
/// Returns further out than this from their median, in robust standard deviations, are outliers.
const OUTLYING_RETURN: f64 = 100.0;
/// They are few if they are further out than this in standard deviations of all returns: rewards that are seen rarely decay through
/// the returns before them, and are no fault.
const FEW_OUTLIERS: f64 = 8.0;

named! {
    /// Why a refit was started.
    pub enum RefitTrigger {
        /// Enough rows since the last one.
        Rows = "rows",
        /// Incoming rewards are predicted worse than they were.
        ScoreDrop = "score_drop",
        /// Novel states find the dictionary full.
        DictionaryFull = "dictionary_full",
        /// A request.
        Requested = "requested",
        /// Enough rows since the last sweeps: actions are improved under the present kernel.
        Improvement = "improvement",
    }
}

/// What a refit found, for people and for judging.
#[derive(Clone, Debug, PartialEq)]
pub struct RefitReport {
    /// Why it was started.
    pub trigger: RefitTrigger,
    /// Rows that it looked at: the window's, or the last of them where rows are forgotten.
    pub rows: u64,
    /// Effective number of rows of the rebuilt model, where rows are forgotten.
    pub rows_effective: Option<f64>,
    /// What the hyperparameters were selected by in the end.
    pub evidence: EvidenceKind,
    /// Rows that this evidence was computed on.
    pub evidence_rows: usize,
    /// Name of the structure selected, as in `structures`.
    pub structure: String,
    /// Log evidence of the present hyperparameters on those rows, nats; none if they fail there. Where two kernels are in force, this
    /// and the next are sums of heads under their own kernels; two kernels count less by [`super::split::STAYS`] for each row and head.
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
    /// Bounds that hold the optimum; empty if none.
    pub active_bounds: Vec<HeldBound>,
    /// Whether the budget ended the search.
    pub out_of_time: bool,
    /// Dictionary size of the rebuilt model.
    pub dictionary_size: usize,
    /// The rule that chose its dictionary; none where ICD had no rival.
    pub dictionary: Option<DictionaryReport>,
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
    /// Heads whose summed evidence chose the kernel, rewards among them; none if rewards alone chose. The evidences above are then
    /// these sums, and held-out returns have chosen lambda and ridge alone.
    pub heads: Option<usize>,
    /// Whether two kernels are better than one for all heads; none where that was not tried.
    pub split: Option<SplitReport>,
    /// How kernel, lambda and ridge were chosen by held-out returns; none if the evidence chose. Evidence has only proposed
    /// relevances then, and what is said of it above is none.
    pub selection: Option<SelectionReport>,
    /// A sign of hidden state, or none of it; none where values of single rewards and of whole returns could not be compared.
    pub hidden: Option<Sign>,
    /// How the new model did against the present one on rows that chose neither; none where there was nothing to compare it with.
    pub trial: Option<TrialReport>,
    /// How the sweeps of an improvement ended; none without one.
    pub improvement: Option<ImprovementReport>,
    /// How the kernels of the model of the transition were chosen, or why there is none: the one before, if there is one, stays. None
    /// where the critic does not learn where actions lead.
    pub world: Option<Result<Choice, WorldError>>,
}

/// How a rule did on later returns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// The rule.
    pub by: DictionaryBy,
    /// Elements that it chose.
    pub elements: usize,
    /// Squared error of later returns over their variance, averaged over heads; none where no return was complete.
    pub error: Option<f64>,
    /// Standard error of the difference of that from the error of ICD, over stretches of the rows; none where one of them is not known.
    pub standard_error: Option<f64>,
}

impl Compared {
    /// The rule that predicted later returns best, the first of equals: ICD unless another erred less by more than the standard error of
    /// the difference. The first where no error is known; none of no rules.
    pub fn best(compared: &[Self]) -> Option<DictionaryBy> {
        let error = |of: &Self| of.error.unwrap_or(f64::INFINITY);
        let icd = compared.iter().find(|of| of.by == DictionaryBy::Icd);
        let clear = |of: &&Self| icd.is_none_or(|icd| error(icd) - error(of) > of.standard_error.unwrap_or(0.0));
        let best = compared.iter().filter(clear).min_by(|a, b| error(a).total_cmp(&error(b)));
        best.or(icd).map(|best| best.by)
    }
}

/// The rule for a dictionary, and how it did on later returns.
#[derive(Clone, Debug, PartialEq)]
pub struct DictionaryReport {
    /// The rule.
    pub by: DictionaryBy,
    /// The rules that were compared; empty where the settings name the rule.
    pub compared: Vec<Compared>,
}

impl DictionaryReport {
    /// Error of later returns under a rule, over their variance; none where it is not known.
    pub fn error(&self, by: DictionaryBy) -> Option<f64> {
        self.compared.iter().find(|compared| compared.by == by)?.error
    }
}

/// How much nearer a new model was than the present one to returns that chose neither.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialReport {
    /// Rows compared.
    pub rows: usize,
    /// Mean square error of the present model on them, less the new one's, in units of the variance of the targets.
    pub gain: f64,
    /// Standard error of that over parts of the rows.
    pub standard_error: f64,
}

/// What a second kernel gains for heads that one kernel does not suit (docs/mathematics.md (H14)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitReport {
    /// Over one kernel for all, nats for each row and head.
    pub gain: f64,
    /// Heads that the second kernel was given; 0 where one for all stays.
    pub heads: usize,
}

/// How the sweeps of an improvement ended (docs/mathematics.md (A4)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImprovementReport {
    /// Sweeps made.
    pub sweeps: usize,
    /// Whether the last one hardly changed any value.
    pub settled: bool,
    /// Mean change of the maxima in the last one, in parts of their range.
    pub change: f64,
    /// Share of the rows whose successor's value was clipped in it, from 0 to 1.
    pub clipped: f64,
}

/// A bound of the search that holds the optimum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBound {
    /// Name of the parameter.
    pub parameter: String,
    /// Whether it is the upper one.
    pub upper: bool,
}

impl HeldBound {
    /// Those that hold a point of `dim` state variables.
    pub(super) fn of(found: &Found, dim: usize) -> Vec<Self> {
        let names = parameter_names(&found.structure.like.kernel.metric, dim);
        let active = found.ascent.active.iter();
        active.map(|b| Self { parameter: names[b.parameter].clone(), upper: b.upper }).collect()
    }
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
    /// The reports of one structure in one round, on `rows` rows.
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
    /// Evidence lost if it and its copies were left out and all else stayed, nats; none if it could not be computed, or if the
    /// budget ended before it.
    pub evidence_drop: Option<f64>,
    /// What has become of it.
    pub verdict: Verdict,
}

/// Whether a state variable is in the kernel. How much of the value hangs on one that is, the kernel does not say: shares of the
/// variance do ([`crate::math::sensitivity`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is in the kernel.
    Kept,
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
            Self::Kept => "kept",
            Self::Removed => "removed",
            Self::Constant => "constant",
            Self::CopyOf(_) => "copy",
        }
    }
}

/// Median and robust standard deviation (from the quartiles) of some numbers.
fn median_and_deviation(values: &mut [f64]) -> (f64, f64) {
    values.sort_unstable_by(f64::total_cmp);
    let at = |q: f64| values[((values.len() - 1) as f64 * q).round() as usize];
    // The quartiles of a normal distribution are 1.349 standard deviations apart.
    (at(0.5), (at(0.75) - at(0.25)) / 1.349)
}

/// The state variables under the hyperparameters found, in normalised coordinates.
pub(super) fn variables(
    hyperparameters: &Hyperparameters,
    inputs: &Inputs,
    dependence: &Dependence,
    support: Option<&[Option<f64>]>,
) -> Vec<VariableReport> {
    let dim = inputs.dim();
    let omega = hyperparameters.kernel.metric.matrix(dim);
    (0..dim)
        .map(|d| {
            let relevance = omega.at(d, d);
            let linear = hyperparameters.kernel.columns.iter().any(|column| column.function.variable() == Some(d));
            let kept = relevance > 0.0 || linear;
            let support = support.and_then(|s| s[d]).filter(|_| kept);
            let kernel = &hyperparameters.kernel;
            let length = kernel.lengthscale(d, dim).filter(|_| relevance > 0.0);
            // A bent variable has its deviation where it is bent.
            let deviations = kernel.kind_of(d).is_line().then(|| 1.0 / relevance.sqrt());
            let copied = dependence.copies.iter().find(|&&(copy, _)| copy == d).map(|&(_, of)| of);
            let verdict = match copied {
                _ if dependence.constant.contains(&d) => Verdict::Constant,
                _ if kept => Verdict::Kept,
                Some(of) => Verdict::CopyOf(of),
                None => Verdict::Removed,
            };
            VariableReport {
                name: name(inputs, d),
                relevance,
                lengthscale: length.map(|l| l * inputs.scale[d]),
                lengthscale_in_deviations: deviations.filter(|_| relevance > 0.0),
                evidence_drop: support,
                verdict,
            }
        })
        .collect()
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
    out.extend(report.dictionary.as_ref().and_then(by_another_rule));
    let gap = report.trace_gap;
    let full = elements * 10 >= about.dictionary_max * 9;
    // The optimum of all rows differs from a subset's, so some evidence is always lost.
    match report.evidence_loss.filter(|&nats| full && nats > GIVEN_UP_TOO_MUCH) {
        Some(nats) => out.push(Diagnostic::EvidenceLost { elements, nats }),
        None if gap <= GAP_TOO_LARGE => {}
        None => out.push(Diagnostic::TraceGap { elements, nats: gap, full }),
    }
    if about.noise_at_floor && about.finest {
        out.push(Diagnostic::EvidenceCollapses);
    } else if about.noise_at_floor {
        out.push(Diagnostic::NoiseAtFloor);
    }
    let (asked, given) = (about.directions_asked, about.hyperparameters.kernel.metric.factors().len());
    if given < asked {
        out.push(Diagnostic::FewerDirections { asked, given });
    }
    let Circumstances { inputs, dependence, .. } = *about;
    out.extend(dependence.diagnostics(inputs));
    out.extend((0..about.targets.cols()).filter_map(|h| outlying_returns(about.targets.col(h))));
    out.extend(dependence.counted_twice(about.hyperparameters));
    out
}

/// That a rule has beaten ICD, and by how much.
fn by_another_rule(found: &DictionaryReport) -> Option<Diagnostic> {
    let by = Some(found.by).filter(|by| *by != DictionaryBy::Icd)?;
    Some(Diagnostic::DictionaryBy { by, error: found.error(by)?, icd: found.error(DictionaryBy::Icd)? })
}

/// Diagnostics of a selection by heads or by held-out returns, and of the model that was rebuilt.
pub(super) fn rebuilt_diagnostics(
    report: &RefitReport,
    hyperparameters: &Hyperparameters,
    inputs: &Inputs,
    dependence: &Dependence,
    dictionary_max: usize,
) -> Vec<Diagnostic> {
    let by_heads = report.heads.map(|heads| Diagnostic::SelectedByHeads { heads, rows: report.evidence_rows });
    let by_returns = || {
        report.selection.as_ref().map(|selection| Diagnostic::SelectedByReturns {
            rows: selection.rows,
            pieces: selection.pieces,
            kernels: selection.candidates.len(),
        })
    };
    let mut out: Vec<Diagnostic> = by_heads.or_else(by_returns).into_iter().collect();
    let apart = report.split.filter(|split| split.heads > 0);
    out.extend(apart.map(|SplitReport { gain, heads }| Diagnostic::HeadsApart { heads, gain }));
    out.extend(report.selection.iter().flat_map(|selection| selection.findings.iter().cloned()));
    if report.out_of_time {
        out.push(Diagnostic::BudgetEnded);
    }
    out.extend(report.dictionary.as_ref().and_then(by_another_rule));
    let (nats, elements) = (report.trace_gap, report.dictionary_size);
    if nats > GAP_TOO_LARGE && elements * 10 >= dictionary_max * 9 {
        out.push(Diagnostic::TraceGap { elements, nats, full: true });
    }
    out.extend(dependence.diagnostics(inputs));
    out.extend(dependence.counted_twice(hyperparameters));
    let kernel = &hyperparameters.kernel;
    let matters = |d: usize| kernel.lengthscale(d, inputs.dim()).is_some_and(f64::is_finite);
    let bent = (0..inputs.dim()).filter(|&d| kernel.kind_of(d).is_bent() && matters(d)).map(|d| name(inputs, d));
    let bent: Vec<String> = if report.selection.is_some() { bent.collect() } else { Vec::new() };
    out.extend((!bent.is_empty()).then_some(Diagnostic::Bent { variables: bent }));
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

    #[test]
    fn another_rule_must_err_less_than_icd_by_more_than_chance() {
        let of = |by, error, standard_error| Compared { by, elements: 1, error, standard_error };
        let icd = of(DictionaryBy::Icd, Some(0.5), Some(0.0));
        let returns = |error, chance| of(DictionaryBy::Returns, Some(error), Some(chance));
        let best = |compared: &[Compared]| Compared::best(compared);
        assert_eq!(best(&[icd, returns(0.4, 0.2)]), Some(DictionaryBy::Icd));
        assert_eq!(best(&[icd, returns(0.4, 0.05)]), Some(DictionaryBy::Returns));
        // What errs least may do so by chance, where another does not.
        let noisy = of(DictionaryBy::OmpTd, Some(0.3), Some(0.3));
        assert_eq!(best(&[icd, returns(0.4, 0.05), noisy]), Some(DictionaryBy::Returns));
        assert_eq!(best(&[icd, returns(0.6, 0.01)]), Some(DictionaryBy::Icd));
        // Any error is less than one that is not known.
        let unknown = of(DictionaryBy::Icd, None, None);
        assert_eq!(best(&[unknown, of(DictionaryBy::Returns, Some(0.9), None)]), Some(DictionaryBy::Returns));
        assert_eq!(best(&[unknown, of(DictionaryBy::Returns, None, None)]), Some(DictionaryBy::Icd));
        assert_eq!(best(&[]), None);
    }
}
