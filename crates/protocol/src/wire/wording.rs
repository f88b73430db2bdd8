//! Diagnostics and reports of refits in words, for events, the status, `fit` and the page.

use criticd_learner::diagnostics::Diagnostic;
use criticd_learner::refit::{DeadEnd, HeldBound, Lack, RefitError, RefitReport, VariableReport, Verdict};
use criticd_learner::{DictionaryBy, KindsMismatch};

/// Directions weaker than this, relative to the strongest, are not told.
const WEAK_DIRECTION: f64 = 0.01;

/// Why a refit has no candidate.
pub fn refit_error(of: &RefitError) -> String {
    match of {
        RefitError::Stopped => "stopped".into(),
        RefitError::NotEnough(what) => format!("not enough information, keeping the current model: {}", lack(*what)),
        RefitError::Settings(e) => format!("the settings do not fit the rows: {}", kinds_mismatch(*e)),
        RefitError::NoAscent(DeadEnd::Evidence(e)) => format!("no hyperparameters found: {e}"),
        RefitError::NoAscent(DeadEnd::Starts) => "no hyperparameters found: the evidence fails at every start".into(),
        RefitError::NoAscent(DeadEnd::Kernels) => "no hyperparameters found: no kernel gives numbers".into(),
        RefitError::NoAscent(DeadEnd::Rows(rows)) => {
            format!("no hyperparameters found: only {rows} rows weigh something")
        }
        RefitError::Solve(e) => format!("the rebuilt model fails: {e}"),
        RefitError::Wild { value, bound } => {
            format!("the rebuilt model predicts {value:.3e} where rewards allow {bound:.3e}")
        }
        other => other.to_string(),
    }
}

/// A bound of the search that holds the optimum.
pub fn held_bound(of: &HeldBound) -> String {
    format!("{} at its {} bound", of.parameter, if of.upper { "upper" } else { "lower" })
}

/// What rows lack for a selection.
pub fn lack(of: Lack) -> String {
    match of {
        Lack::Rows { rows, least } => format!("{rows} rows, at least {least} are needed"),
        Lack::States => "all rows start in the same state".into(),
        Lack::PositiveRatios { positive, rows, least } => {
            format!("{positive} of {rows} rows have a target_prob above 0, at least {least} are needed")
        }
        Lack::FiniteReturns => "the returns are not finite".into(),
        Lack::DifferentReturns => "all returns are the same: every state is worth the same".into(),
        Lack::DifferentHeads => "every head is the same in every state".into(),
        other => format!("{other:?}"),
    }
}

/// Kinds of state variables that do not fit the states.
pub fn kinds_mismatch(of: KindsMismatch) -> String {
    format!("state_kinds is for {} state variables, states have {}", of.kinds, of.dim)
}

/// Variables that the kernel sees bent.
fn bent(variables: &[String]) -> String {
    let names = variables.join(", ");
    format!("the kernel bends what is far from normal: {names}; state_kinds = [\"real\", ...] keeps lines straight")
}

/// What came of a period that the settings leave open.
fn period(variable: &str, found: Option<f64>, kept: Option<f64>) -> String {
    match (found, kept) {
        (Some(found), _) => format!("{variable} comes back to the same after {}, which the returns tell", short(found)),
        (None, Some(kept)) => {
            format!("the returns of these rows show no period of {variable}, which keeps {} from before", short(kept))
        }
        (None, None) => format!(
            "the returns show no period of {variable} yet, which they must go through one and a half times or more: it enters as real"
        ),
    }
}

/// A sign of hidden state of this ratio, in words.
pub fn hidden_state(ratio: f64) -> String {
    format!(
        "what follows depends on more than the state: values learned from single rewards and from whole returns differ by {ratio:.1} times \
         what chance explains"
    )
}

/// One diagnostic as a sentence.
pub fn diagnostic(of: &Diagnostic) -> String {
    match of {
        Diagnostic::SelectedByEvidence { used, rows, without_bound } => selected_by_evidence(*used, *rows, *without_bound),
        Diagnostic::SelectedByBound { rows } => format!("selected by the variational bound of all {rows} rows"),
        Diagnostic::SelectedByReturns { rows, pieces, kernels } => {
            format!("selected by held-out returns of {rows} rows in {pieces} pieces, among {kernels} kernels")
        }
        Diagnostic::SelectedByHeads { heads, rows } => {
            format!("kernel selected by the evidence of {heads} heads, rewards among them, on {rows} rows")
        }
        Diagnostic::HeadsApart { heads, gain } => {
            let heads = if *heads == 1 { "1 head has".to_owned() } else { format!("{heads} heads have") };
            format!("{heads} a kernel of their own, which gains {gain:.2} nats for each row and head")
        }
        Diagnostic::DictionaryBy { by, error, icd } => dictionary_by(*by, *error, *icd),
        Diagnostic::ChangeIgnored { since, other_streams: true } => {
            format!("the errors changed about row {since}, where other streams begin: all rows were learned")
        }
        Diagnostic::ChangeIgnored { since, other_streams: false } => format!(
            "the errors changed about row {since}, but returns since are predicted no better without the rows before: all rows \
             were learned"
        ),
        Diagnostic::BudgetEnded => "the budget ended the search: the best result by then won".into(),
        Diagnostic::EvidenceLost { elements, nats } => format!(
            "the dictionary is full: its {elements} elements cannot represent what the data support ({nats:.0} nats of exact \
             evidence lost); raise dictionary_max"
        ),
        Diagnostic::TraceGap { elements, nats, full: true } => {
            format!("the dictionary is full: its {elements} elements miss {nats:.0} nats; raise dictionary_max")
        }
        Diagnostic::TraceGap { elements, nats, full: false } => {
            format!("the dictionary's {elements} elements miss {nats:.0} nats")
        }
        Diagnostic::EvidenceCollapses => {
            "the evidence collapses: without the floors of noise and lengthscale it would interpolate single returns; trust \
             the predictive score, and lower noise_floor only if transitions are deterministic"
                .into()
        }
        Diagnostic::NoiseAtFloor => {
            "the noise estimate is at its floor; if your system is deterministic, lower noise_floor".into()
        }
        Diagnostic::FewerDirections { asked, given } => {
            format!("directions asked for: {asked}, given: {given}; the rows support no more within the budget")
        }
        Diagnostic::Correlated { variables, correlation } => together(variables, *correlation),
        Diagnostic::Bent { variables } => bent(variables),
        Diagnostic::Period { variable, found, kept } => period(variable, *found, *kept),
        Diagnostic::TinyStates { variable, limit } => {
            format!("{variable} varies by less than {limit:e} and counts as a constant: use a larger unit")
        }
        Diagnostic::OutlyingStates { variable } => {
            format!("{variable} has outliers: the middle 98 % of its values set its scale")
        }
        Diagnostic::OutlyingReturns { deviations } => format!(
            "returns have outliers, up to {} times their usual deviation, which dominate noise and scale; check the rewards",
            short(*deviations)
        ),
        Diagnostic::CopiesCountedTwice => {
            "some state variables are copies of others, and one lengthscale for all counts them twice".into()
        }
        Diagnostic::PresentStays => {
            "another kernel, lambda or ridge predicts better, but by no more than the standard error, or than rounding: the \
             current ones stay"
                .into()
        }
        Diagnostic::UnequalRatios { rows, effective } => format!(
            "importance ratios differ so much that {rows} rows are worth {effective:.0}: a lower rho_max lowers the variance \
             of values, and adds bias"
        ),
        Diagnostic::LargeRatios { mean } => format!(
            "importance ratios average {mean:.3e}, but ratios of two policies average 1: check behavior_prob and target_prob"
        ),
        Diagnostic::HiddenState { loss } => format!(
            "one-step values (lambda 0) miss {:.1} % of the variance of returns: the state may hide something that matters, \
             and intervals are then too narrow",
            100.0 * loss
        ),
    }
}

fn dictionary_by(by: DictionaryBy, error: f64, icd: f64) -> String {
    let (by, error, icd) = (by.name(), short(error), short(icd));
    format!(
        "dictionary by {by}, which is full: the squared error of later returns is {error} of their variance, {icd} by icd"
    )
}

fn selected_by_evidence(used: u64, rows: u64, without_bound: bool) -> String {
    let of = if used == rows { format!("all {rows}") } else { format!("{used} of {rows}") };
    let mut sentence = format!("selected by the exact evidence of {of} rows");
    if without_bound && used != rows {
        sentence += ": the budget ended before the bound of all rows; raise the budget, or use fewer rows";
    }
    sentence
}

/// State variables that move together.
fn together(variables: &[String], correlation: f64) -> String {
    /// Names in a sentence.
    const NAMED: usize = 8;
    let named = &variables[..variables.len().min(NAMED)];
    let (first, last) = match variables.len() - named.len() {
        0 => (&named[..named.len() - 1], named[named.len() - 1].clone()),
        more => (named, format!("{more} more")),
    };
    let how = if variables.len() == 2 { "correlation" } else { "correlations of at least" };
    let names = first.join(", ");
    format!("{names} and {last} move together ({how} {correlation:.3}): the data cannot separate their effects")
}

/// One of these state variables in words.
fn variable(of: &VariableReport, all: &[VariableReport]) -> String {
    let name = &of.name;
    match of.verdict {
        Verdict::Kept => {}
        Verdict::Removed => return format!("{name} is removed: the evidence does not drop without it"),
        Verdict::Constant => return format!("{name} never changes: its effect cannot be learned"),
        Verdict::CopyOf(k) => return format!("{name} is removed: it is a copy of {}", all[k].name),
    }
    let length = match (of.lengthscale, of.lengthscale_in_deviations) {
        (Some(length), Some(deviations)) => {
            format!("lengthscale {} ({} of its standard deviations)", short(length), short(deviations))
        }
        (Some(length), None) => format!("lengthscale {}", short(length)),
        _ => "no lengthscale".into(),
    };
    let without = match of.evidence_drop {
        Some(drop) if drop >= 0.05 => format!("; without it the evidence drops by {drop:.1} nats"),
        Some(_) => "; without it the evidence does not drop".into(),
        None => String::new(),
    };
    format!("{name}: {length}{without}")
}

/// State variables and directions in words, the most important first.
pub fn relevance(report: &RefitReport) -> Vec<String> {
    let variables = &report.variables;
    let mut order: Vec<usize> = (0..variables.len()).collect();
    let weight = |v: &VariableReport| v.evidence_drop.unwrap_or(v.relevance);
    order.sort_by(|&a, &b| weight(&variables[b]).total_cmp(&weight(&variables[a])));
    let mut out: Vec<String> = order.into_iter().map(|i| variable(&variables[i], variables)).collect();
    let strongest = report.directions.first().map_or(0.0, |d| d.strength);
    let strong = report.directions.iter().filter(|d| d.strength > WEAK_DIRECTION * strongest);
    for (k, direction) in strong.enumerate() {
        out.push(format!(
            "direction {}: {}, strength {} (lengthscale {} standard deviations)",
            k + 1,
            combination(report, &direction.vector),
            short(direction.strength),
            short(1.0 / direction.strength.sqrt())
        ));
    }
    out
}

/// "0.71 angle - 0.70 speed": the larger terms of a unit vector in normalised coordinates.
fn combination(report: &RefitReport, vector: &[f64]) -> String {
    let mut order: Vec<usize> = (0..vector.len()).filter(|&d| vector[d].abs() >= 0.1).collect();
    order.sort_by(|&a, &b| vector[b].abs().total_cmp(&vector[a].abs()));
    let mut out = String::new();
    for (k, &d) in order.iter().enumerate() {
        let sign = match (k, vector[d] < 0.0) {
            (0, false) => "",
            (0, true) => "-",
            (_, false) => " + ",
            (_, true) => " - ",
        };
        out += &format!("{sign}{:.2} {}", vector[d].abs(), report.variables[d].name);
    }
    out
}

/// Three significant digits.
fn short(value: f64) -> String {
    let magnitude = value.abs().log10();
    if (-2.0..5.0).contains(&magnitude) {
        format!("{value:.*}", (2.0 - magnitude.floor()).max(0.0) as usize)
    } else {
        format!("{value:.2e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(name: &str, verdict: Verdict, evidence_drop: Option<f64>) -> VariableReport {
        let lengthscale = Some(0.5);
        let lengthscale_in_deviations = Some(0.25);
        VariableReport {
            name: name.into(),
            relevance: 1.0,
            lengthscale,
            lengthscale_in_deviations,
            evidence_drop,
            verdict,
        }
    }

    #[test]
    fn variables_say_what_they_do_to_the_value() {
        let words = [
            (
                Verdict::Kept,
                Some(12.3),
                "x: lengthscale 0.500 (0.250 of its standard deviations); without it the evidence drops by 12.3 nats",
            ),
            (
                Verdict::Kept,
                Some(-0.2),
                "x: lengthscale 0.500 (0.250 of its standard deviations); without it the evidence does not drop",
            ),
            (Verdict::Kept, None, "x: lengthscale 0.500 (0.250 of its standard deviations)"),
            (Verdict::Constant, None, "x never changes: its effect cannot be learned"),
        ];
        for (verdict, drop, expected) in words {
            assert_eq!(variable(&report("x", verdict, drop), &[]), expected);
        }
        let linear = VariableReport { lengthscale: None, ..report("x", Verdict::Kept, Some(2.0)) };
        assert_eq!(variable(&linear, &[]), "x: no lengthscale; without it the evidence drops by 2.0 nats");
    }

    #[test]
    fn what_moves_together_is_one_sentence() {
        let of = |count: usize| together(&(0..count).map(|k| format!("s{k}")).collect::<Vec<_>>(), 0.98);
        assert!(of(2).starts_with("s0 and s1 move together (correlation 0.980): "), "{}", of(2));
        assert!(of(3).starts_with("s0, s1 and s2 move together (correlations of at least 0.980): "), "{}", of(3));
        assert!(of(20).starts_with("s0, s1, s2, s3, s4, s5, s6, s7 and 12 more move together"), "{}", of(20));
    }

    #[test]
    fn diagnostics_that_need_action_name_the_setting() {
        let settings = [
            (Diagnostic::TraceGap { elements: 12, nats: 7.4, full: true }, "dictionary_max"),
            (Diagnostic::EvidenceLost { elements: 12, nats: 30.0 }, "dictionary_max"),
            (Diagnostic::NoiseAtFloor, "noise_floor"),
            (Diagnostic::Bent { variables: vec!["price".into(), "size".into()] }, "price, size; state_kinds"),
            (Diagnostic::Period { variable: "angle".into(), found: Some(7.25), kept: Some(6.3) }, "after 7.25"),
            (Diagnostic::Period { variable: "angle".into(), found: None, kept: Some(6.3) }, "keeps 6.30 from before"),
            (Diagnostic::Period { variable: "angle".into(), found: None, kept: None }, "angle yet"),
            (
                Diagnostic::DictionaryBy { by: DictionaryBy::Returns, error: 0.000_051_2, icd: 0.31 },
                "by returns, which is full: the squared error of later returns is 5.12e-5 of their variance, 0.310 by icd",
            ),
            (Diagnostic::UnequalRatios { rows: 1000, effective: 1.2 }, "1000 rows are worth 1: a lower rho_max"),
            (Diagnostic::HiddenState { loss: 0.031 }, "3.1 %"),
        ];
        for (of, words) in settings {
            let said = diagnostic(&of);
            assert!(said.contains(words), "{said}");
        }
        assert!(!diagnostic(&Diagnostic::TraceGap { elements: 12, nats: 7.4, full: false }).contains("raise"));
    }
}
