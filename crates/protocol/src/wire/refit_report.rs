//! What a refit found, for events, the status and `fit --json`.

use super::status::{
    CandidateFound, DictionaryFound, DirectionFound, HiddenFound, ImprovementFound, LambdaFound, RefitFound, RuleFound,
    SelectionFound, SplitFound, StructureFound, TrialFound, VariableFound, WorldFound,
};
use super::wording::{diagnostic, relevance};
use criticd_learner::math::kernel::Direction;
use criticd_learner::refit::{
    Compared, DictionaryReport, RefitReport, SelectionReport, StructureReport, VariableReport,
};
use serde_json::{Map, Value};

/// What `fit --json` prints of a refit: the keys of [`RefitFound`].
pub fn refit_report_to_json(report: &RefitReport) -> Map<String, Value> {
    match serde_json::to_value(RefitFound::from(report)).expect("plain data with string keys") {
        Value::Object(map) => map,
        other => unreachable!("not a map: {other}"),
    }
}

/// None of what is no number.
fn finite(number: f64) -> Option<f64> {
    number.is_finite().then_some(number)
}

impl From<&RefitReport> for RefitFound {
    fn from(report: &RefitReport) -> Self {
        let structure = |s: &StructureReport| StructureFound {
            name: s.name.clone(),
            log_evidence: finite(s.log_evidence),
            parameters: s.parameters as u64,
        };
        let direction = |d: &Direction| DirectionFound { strength: d.strength, direction: d.vector.clone() };
        Self {
            trigger: report.trigger.name().to_owned(),
            rows: report.rows,
            rows_effective: report.rows_effective,
            evidence: report.evidence.name().to_owned(),
            evidence_rows: report.evidence_rows as u64,
            evidence_before: report.evidence_before.and_then(finite),
            evidence_after: report.evidence_after.and_then(finite),
            evidence_loss: report.evidence_loss.and_then(finite),
            fit_ratio: report.fit_ratio.and_then(finite),
            evaluations: report.evaluations as u64,
            active_bounds: report.active_bounds.iter().map(super::wording::held_bound).collect(),
            out_of_time: report.out_of_time,
            dictionary_size: report.dictionary_size as u64,
            trace_gap: finite(report.trace_gap),
            tolerance: finite(report.tolerance),
            rows_left_out: report.rows_left_out,
            structure: report.structure.clone(),
            structures: report.structures.iter().map(structure).collect(),
            variables: report.variables.iter().map(VariableFound::from).collect(),
            directions: report.directions.iter().map(direction).collect(),
            evidence_drop: report.variables.iter().map(|v| v.evidence_drop.and_then(finite)).collect(),
            evidence_drop_by: report.evidence_drop_by.map(|by| by.name().to_owned()),
            relevance_report: relevance(report),
            findings: report.findings.iter().map(diagnostic).collect(),
            heads: report.heads.map(|heads| heads as u64),
            split: report.split.map(|found| SplitFound { gain: found.gain, heads: found.heads as u64 }),
            dictionary: report.dictionary.as_ref().map(DictionaryFound::from),
            selection: report.selection.as_ref().map(SelectionFound::from),
            hidden_state: report.hidden.map(|found| HiddenFound {
                ratio: found.ratio,
                chains: found.chains as u64,
                hidden: found.is_hidden(),
            }),
            trial: report.trial.map(|found| TrialFound {
                rows: found.rows as u64,
                gain: found.gain,
                standard_error: found.standard_error,
            }),
            improvement: report.improvement.map(|found| ImprovementFound {
                sweeps: found.sweeps as u64,
                settled: found.settled,
                change: finite(found.change).unwrap_or(f64::MAX),
                clipped: found.clipped,
            }),
            world: report.world.as_ref().map(|found| match found {
                Ok(found) => WorldFound {
                    refused: None,
                    held_out_error: finite(found.loss),
                    radius: finite(found.radius),
                    kernels: found.tried as u64,
                    out_of_time: found.out_of_time,
                },
                Err(why) => WorldFound { refused: Some(why.to_string()), ..WorldFound::default() },
            }),
        }
    }
}

impl From<&DictionaryReport> for DictionaryFound {
    fn from(report: &DictionaryReport) -> Self {
        let compared = |of: &Compared| RuleFound {
            rule: of.by.name().to_owned(),
            elements: of.elements as u64,
            relative_squared_error: of.error.and_then(finite),
            standard_error: of.standard_error.and_then(finite),
        };
        Self { rule: report.by.name().to_owned(), compared: report.compared.iter().map(compared).collect() }
    }
}

impl From<&VariableReport> for VariableFound {
    fn from(variable: &VariableReport) -> Self {
        Self {
            name: variable.name.clone(),
            verdict: variable.verdict.name().to_owned(),
            relevance: variable.relevance,
            lengthscale: variable.lengthscale.and_then(finite),
            lengthscale_in_deviations: variable.lengthscale_in_deviations.and_then(finite),
            evidence_drop: variable.evidence_drop.and_then(finite),
        }
    }
}

impl From<&SelectionReport> for SelectionFound {
    fn from(report: &SelectionReport) -> Self {
        let candidates = report.candidates.iter().map(|candidate| CandidateFound {
            name: candidate.name.clone(),
            lambda: candidate.lambda,
            ridge: candidate.ridge,
            score: candidate.score,
            elements: candidate.elements as u64,
        });
        let lambdas = report.lambdas.iter();
        Self {
            rows: report.rows as u64,
            pieces: report.pieces as u64,
            score: report.score,
            present_score: report.present_score.and_then(finite),
            gain: report.gain.and_then(finite),
            standard_error: report.standard_error.and_then(finite),
            present_stays: report.present_stays,
            candidates: candidates.collect(),
            lambdas: lambdas.map(|l| LambdaFound { lambda: l.lambda, ridge: l.ridge, score: l.score }).collect(),
            out_of_time: report.out_of_time,
            findings: report.findings.iter().map(diagnostic).collect(),
        }
    }
}
