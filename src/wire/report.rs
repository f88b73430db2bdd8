//! What a refit found, as a map for events, the status and `fit --json`.

use super::wording::{diagnostic, relevance};
use crate::learner::refit::{RefitReport, SelectionReport};
use serde_json::{Map, Value, json};

/// The keys of `adopted` and `refit_rejected` events that tell how the model was found (`proto/README.md`).
pub fn refit_report_to_json(report: &RefitReport) -> Map<String, Value> {
    let structures: Vec<Value> = report
        .structures
        .iter()
        .map(|s| json!({"name": s.name, "log_evidence": s.log_evidence, "parameters": s.parameters}))
        .collect();
    let variables: Vec<Value> = report
        .variables
        .iter()
        .map(|v| {
            json!({
                "name": v.name,
                "verdict": v.verdict.name(),
                "relevance": v.relevance,
                "lengthscale": v.lengthscale,
                "lengthscale_in_deviations": v.lengthscale_in_deviations,
                "evidence_drop": v.evidence_drop,
            })
        })
        .collect();
    let directions: Vec<Value> =
        report.directions.iter().map(|d| json!({"strength": d.strength, "direction": d.vector})).collect();
    let support: Vec<Option<f64>> = report.variables.iter().map(|v| v.evidence_drop).collect();
    let map = json!({
        "trigger": report.trigger.name(),
        "rows": report.rows,
        "rows_effective": report.rows_effective,
        "evidence": report.evidence.name(),
        "evidence_rows": report.evidence_rows,
        "evidence_before": report.evidence_before,
        "evidence_after": report.evidence_after,
        "evidence_loss": report.evidence_loss,
        "fit_ratio": report.fit_ratio,
        "evaluations": report.evaluations,
        "active_bounds": report.active_bounds,
        "out_of_time": report.out_of_time,
        "dictionary_size": report.dictionary_size,
        "trace_gap": report.trace_gap,
        "tolerance": report.tolerance,
        "rows_left_out": report.rows_left_out,
        "structure": report.structure,
        "structures": structures,
        "variables": variables,
        "directions": directions,
        "evidence_drop": support,
        "evidence_drop_by": report.evidence_drop_by.map(|by| by.name()),
        "relevance_report": relevance(report),
        "findings": report.findings.iter().map(diagnostic).collect::<Vec<_>>(),
        "selection": report.selection.as_ref().map(selection),
    });
    match map {
        Value::Object(map) => map,
        other => unreachable!("not a map: {other}"),
    }
}

fn selection(report: &SelectionReport) -> Value {
    json!({
        "rows": report.rows,
        "pieces": report.pieces,
        "score": report.score,
        "present_score": report.present_score,
        "gain": report.gain,
        "standard_error": report.standard_error,
        "present_stays": report.present_stays,
        "candidates": report.candidates,
        "lambdas": report.lambdas,
        "out_of_time": report.out_of_time,
        "findings": report.findings.iter().map(diagnostic).collect::<Vec<_>>(),
    })
}
