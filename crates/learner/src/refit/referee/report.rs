//! What the referee has compared, in numbers and in words.

use super::jury::Jury;
use super::pieces::Pieces;
use super::{Candidate, Pool};
use crate::diagnostics::Diagnostic;
use serde::Serialize;

/// Standard errors by which the best candidate with lambda 0 must lose against the best of all for a warning about hidden state.
/// None of 19 streams with a full state reached 2.4; all of five with hidden state had 3.5 or more.
const TOLD_APART: f64 = 3.0;
/// The same loss must exceed this share of the targets' variance: smaller losses come from the dictionary.
const MATTERS: f64 = 0.005;
/// Mean importance ratio above which the report warns: ratios of two policies average 1.
const TOO_MUCH: f64 = 1.1;
/// Effective share of weighted rows below which the report warns.
const WORTH_LITTLE: f64 = 0.1;

/// How kernel, lambda and ridge were chosen. A score is the mean square error against the targets of the reference, with the row's
/// fold left out, in units of their variance: less is better, and noise is part of it.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectionReport {
    /// Rows compared.
    pub rows: usize,
    /// Chains, or pieces of long ones, that they stand in.
    pub pieces: usize,
    /// Score of what was chosen.
    pub score: f64,
    /// Score of the present model; none if it is no candidate, or if it gives no numbers.
    pub present_score: Option<f64>,
    /// How much better the best of all is than the present model.
    pub gain: Option<f64>,
    /// Standard error of that over the pieces.
    pub standard_error: Option<f64>,
    /// Whether the present model stays, because nothing is better by more than the standard error.
    pub present_stays: bool,
    /// The best of each kernel, the best first.
    pub candidates: Vec<CandidateReport>,
    /// For each lambda the best that the chosen kernel makes of it.
    pub lambdas: Vec<LambdaReport>,
    /// Whether the budget ended before all kernels were tried.
    pub out_of_time: bool,
    /// What the comparison has noticed.
    pub findings: Vec<Diagnostic>,
}

/// A kernel at its best.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CandidateReport {
    /// Where it comes from: "present", "present metric" beside other columns, "isotropic 0.3", "ard 1 x 3.00" (first fit, relevances times three).
    pub name: String,
    /// Its best lambda.
    pub lambda: f64,
    /// Its best ridge, sigma0^2 / v0.
    pub ridge: f64,
    /// What they score.
    pub score: f64,
    /// Dictionary elements.
    pub elements: usize,
}

/// A lambda with the chosen kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LambdaReport {
    /// Lambda.
    pub lambda: f64,
    /// Its best ridge, sigma0^2 / v0.
    pub ridge: f64,
    /// Score over the best lambda's score: 1 for the best.
    pub score: f64,
}

/// What a report is made from.
pub(super) struct About<'a> {
    pub(super) jury: &'a Jury<'a>,
    /// Of all candidates.
    pub(super) scores: &'a [f64],
    /// Places of those that might have been chosen.
    pub(super) among: &'a [usize],
    pub(super) chosen: usize,
    pub(super) best: usize,
    /// Place of the present model, how much better the best is, and the standard error of that.
    pub(super) present: Option<(usize, f64, f64)>,
    pub(super) stays: bool,
    /// How much worse the best with lambda 0 is than the best of all, and the standard error of that.
    pub(super) one_step: Option<(f64, f64)>,
}

impl About<'_> {
    pub(super) fn report(&self, pool: &Pool<'_>) -> SelectionReport {
        let candidates = self.jury.candidates();
        let best_of = |test: &dyn Fn(Candidate) -> bool| {
            let of = self.among.iter().copied().filter(|&k| test(candidates[k]));
            of.min_by(|&a, &b| self.scores[a].total_cmp(&self.scores[b]))
        };
        let ratio = |c: Candidate| pool.contenders[c.kernel].ratios[c.ratio];
        let of_kernel = |kernel: usize| {
            let k = best_of(&|c| c.kernel == kernel)?;
            let member = &pool.members[kernel];
            Some(CandidateReport {
                name: member.name.clone(),
                lambda: pool.lambdas[candidates[k].lambda],
                ridge: ratio(candidates[k]),
                score: self.scores[k],
                elements: member.elements,
            })
        };
        let mut kernels: Vec<CandidateReport> = (0..pool.members.len()).filter_map(of_kernel).collect();
        kernels.sort_by(|a, b| a.score.total_cmp(&b.score));
        let kernel = candidates[self.chosen].kernel;
        let of_lambda = |l: usize| {
            let k = best_of(&|c| c.kernel == kernel && c.lambda == l)?;
            Some(LambdaReport { lambda: pool.lambdas[l], ridge: ratio(candidates[k]), score: self.scores[k] })
        };
        let mut lambdas: Vec<LambdaReport> = (0..pool.lambdas.len()).filter_map(of_lambda).collect();
        let least = lambdas.iter().map(|l| l.score).fold(f64::INFINITY, f64::min).max(f64::MIN_POSITIVE);
        lambdas.iter_mut().for_each(|l| l.score /= least);
        let Pieces { rows, pieces, .. } = &pool.pieces;
        SelectionReport {
            rows: *rows,
            pieces: pieces.len(),
            score: self.scores[self.chosen],
            present_score: self.present.map(|(place, ..)| self.scores[place]),
            gain: self.present.map(|(_, gain, _)| gain),
            standard_error: self.present.map(|(.., error)| error),
            present_stays: self.stays,
            candidates: kernels,
            lambdas,
            out_of_time: false,
            findings: self.diagnostics(),
        }
    }

    fn diagnostics(&self) -> Vec<Diagnostic> {
        let mut out = Vec::new();
        if self.stays && self.best != self.chosen {
            out.push(Diagnostic::PresentStays);
        }
        let Pieces { weight, rows, .. } = self.jury.pieces;
        let (sum, squares) = weight.iter().fold((0.0, 0.0), |(sum, squares), w| (sum + w, squares + w * w));
        // This number of rows of equal weight would leave the same noise.
        let effective = sum * sum / squares.max(f64::MIN_POSITIVE);
        if effective < WORTH_LITTLE * *rows as f64 {
            out.push(Diagnostic::UnequalRatios { rows: *rows, effective });
        }
        if let Some((mean, error)) = self.jury.pieces.mean_ratio()
            && mean - TOLD_APART * error > TOO_MUCH
        {
            out.push(Diagnostic::LargeRatios { mean });
        }
        if let Some((loss, error)) = self.one_step
            && loss > (TOLD_APART * error).max(MATTERS)
        {
            out.push(Diagnostic::HiddenState { loss });
        }
        out
    }
}
