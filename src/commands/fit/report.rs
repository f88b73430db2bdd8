//! What `criticd fit` says of the model that it has written.

use super::{Fit, Fitted, loo, with_heads};
use crate::commands::actions::OfActions;
use crate::commands::dictionary::{compared_to_json, compared_to_text};
use crate::commands::held_out::HeldOut;
use crate::commands::inspect::{describe, names};
use crate::commands::output::{facts, number, percent};
use crate::commands::{Failure, given, score};
use crate::learner::batch::LeaveOneOut;
use crate::learner::hidden::Sign;
use crate::learner::improve::Improved;
use crate::learner::refit::{AscentReport, RefitReport, SelectionReport};
use crate::math::evidence::Evidence;
use crate::math::sensitivity::{UNNOTICED, total_indices};
use crate::snapshot::{Ask, Evaluator, Snapshot};
use crate::transition::Rows;
use crate::wire::{self, hyperparameters_to_json, refit_report_to_json};
use serde_json::{Map, Value, json};

/// States at which the shares of the variables are estimated.
const SAMPLES: usize = 2000;
/// Trace gap, in nats, from which a dictionary is coarse for its table.
const TRACE_GAP: f64 = 5.0;
/// Share of the variance of V below which a variable is tried to be left out.
pub(super) const IDLE: f64 = 0.005;
/// Factor on the deviations of returns from which on the state may hide something: without it 8 of 10 returns were in their 90 % intervals.
const WIDENED_MUCH: f64 = 1.28;
/// Ends of episodes that do the same, from which on that is strange.
const ENDS_MIN: usize = 10;
/// Variables that are named with their shares.
const SHOWN: usize = 12;

/// A model that has been written, and how it came about.
pub(super) struct Report<'a> {
    pub(super) fit: &'a Fit,
    pub(super) fitted: &'a Fitted,
    /// The rows that it has learned.
    pub(super) rows: &'a Rows,
    pub(super) snapshot: &'a Snapshot,
    pub(super) evidence: Evidence,
    /// Whether that is the exact one.
    pub(super) exact: bool,
    pub(super) held_out: Option<HeldOut>,
    /// State variables without which held-out episodes are predicted as well.
    pub(super) spared: Vec<usize>,
    /// Share of the variance of V that each state variable explains (D,).
    pub(super) shares: Vec<f64>,
    /// Where it is the value of actions.
    pub(super) of_actions: Option<&'a OfActions>,
    pub(super) improved: Option<&'a Improved>,
    /// Errors of rows by models that lack them, where these are exact.
    pub(super) left_out: Option<LeaveOneOut>,
    /// How far values of single rewards and values of whole returns are apart.
    pub(super) hidden: Option<Sign>,
    /// From the table to the model.
    pub(super) seconds: f64,
}

impl Report<'_> {
    /// As one JSON document, which is also a hyperparameter file.
    pub(super) fn document(&self) -> Result<Value, Failure> {
        let mut document = self.selected();
        document["explained"] = json!(self.shares);
        document["spared"] = json!(self.spared);
        document["text"] = json!(self.answer());
        if let Some(held_out) = &self.held_out {
            document["held_out"] = held_out.document();
        }
        loo::add_to(&mut document, self.left_out, self.fitted.nearest.as_ref());
        if let Some(Sign { ratio, chains }) = self.hidden {
            document["hidden_state"] = json!({"ratio": ratio, "chains": chains});
        }
        if let Some(actions) = self.of_actions {
            actions.describe(&mut document);
        }
        if let Some(improved) = self.improved {
            document["improvement"] = improvement(improved);
        }
        with_heads::add_to(&mut document, self.fitted, self.snapshot)?;
        Ok(document)
    }

    /// For people.
    pub(super) fn text(&self) -> Result<String, Failure> {
        let improved = self.improved.map(improvement_text).unwrap_or_default();
        let heads = with_heads::text(self.fit, self.fitted, self.snapshot)?;
        Ok(improved + &self.answer() + &heads + &self.details())
    }

    /// How well it predicts, what matters, and what to do next.
    fn answer(&self) -> String {
        let Self { fitted, snapshot, shares, held_out, .. } = self;
        let names = names(snapshot);
        let mut text = match held_out {
            Some(held_out) => held_out.text(&snapshot.reward_names),
            None if self.fit.hold_out == Some(0.0) || (self.fit.no_optimise && self.fit.hold_out.is_none()) => {
                String::new()
            }
            None => "prediction error unknown: there are too few episodes to hold one out\n".to_owned(),
        };
        if fitted.change.is_some() {
            let (first, rows) = (fitted.first() as u64, snapshot.offset);
            let since = rows - first;
            text = format!(
                "the world changes about row {first} of {rows}: the model has learned the {since} rows since, which predict \
                 returns better without those before\n{text}"
            );
        }
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.sort_by(|&a, &b| shares[b].total_cmp(&shares[a]));
        let share = |&d: &usize| format!("{} {}", names[d], percent(shares[d]));
        let shown: Vec<String> = order.iter().take(SHOWN).map(share).collect();
        let more =
            if order.len() > SHOWN { format!(", and {} others less", order.len() - SHOWN) } else { String::new() };
        text += &match shares.iter().all(|share| *share == 0.0) {
            true => "value depends on no variable: it is the same in every state\n".to_owned(),
            false => format!("value depends on: {}{more}\n", shown.join(", ")),
        };
        let states = names.len() - snapshot.actions.as_ref().map_or(0, |actions| actions.space.width());
        text += &loo::text(self.left_out, fitted.nearest.as_ref());
        for line in self.advice(&names, states) {
            text += &format!("advice: {line}\n");
        }
        text + "\n"
    }

    /// What to do next; the first `states` of the inputs called `names` are state variables.
    fn advice(&self, names: &[String], states: usize) -> Vec<String> {
        let Self { fitted, snapshot, held_out, .. } = self;
        let idle: Vec<&str> = self.spared.iter().filter(|&&d| d < states).map(|&d| names[d].as_str()).collect();
        let mut advice = Vec::new();
        if fitted.change.is_some() {
            advice.push(
                "if the table holds several policies one after the other, name them in a column policy; --drift-sensitivity off \
                 learns from all rows",
            );
        }
        if let Some(head) = held_out.as_ref().and_then(|held_out| held_out.heads.first()) {
            if snapshot.returns.as_ref().is_some_and(|returns| returns.factor > WIDENED_MUCH) {
                advice.push(
                    "the intervals had to be widened much: the state may hide something; add what is missing, or --variance clustered",
                );
            }
            if head.correlation < 0.5 || head.error >= head.spread {
                advice
                    .push("the model predicts little: check reward, --discount and --dry-run, or add state variables");
            }
        }
        let full = snapshot.dictionary.nrows() >= self.fit.dictionary.dictionary_max
            && self.fit.dictionary.dictionary.is_none();
        let gap = self.trace_gap().filter(|gap| *gap > TRACE_GAP);
        let coarse = gap.filter(|_| full || fitted.model.settings().improves()).map(|gap| {
            let what = if full { "the dictionary is full and" } else { "the dictionary" };
            let remedy =
                if full { "a larger --dictionary-max may predict better" } else { "a smaller --tolerance closes it" };
            format!("{what} leaves a trace gap of {} nats, which no deviation covers: {remedy}", number(gap))
        });
        if fitted.report.as_ref().is_some_and(|report| report.out_of_time) {
            advice.push("the budget ended the search: a larger --budget may find a better model");
        }
        let idle = (!idle.is_empty()).then(|| {
            format!("{} could be removed: held-out episodes are predicted as well without", given::listed(&idle))
        });
        let hidden = self.hidden.filter(Sign::is_hidden).map(|sign| {
            format!(
                "{}; add what is missing to the state, such as a speed or the variables of the row before, or believe whole returns \
                 (--lambda 1 --variance clustered)",
                wire::hidden_state(sign.ratio)
            )
        });
        let ends = if snapshot.discount > 0.0 { strange_ends(self.rows) } else { Vec::new() };
        advice.into_iter().map(str::to_owned).chain(ends).chain(hidden).chain(coarse).chain(idle).collect()
    }

    /// The model, its evidence and how it was selected.
    fn selected(&self) -> Value {
        let Self { fitted, snapshot, evidence, .. } = self;
        let mut out = hyperparameters_to_json(&snapshot.hyperparameters, Some(&snapshot.inputs));
        out["evidence"] = json!(score::name(self.exact));
        out["log_evidence"] = json!(evidence.value);
        out["complexity"] = json!(evidence.complexity);
        out["fit"] = json!(evidence.fit);
        out["trace_gap"] = json!(self.trace_gap());
        out["transitions"] = json!(snapshot.transitions);
        out["discount"] = json!(snapshot.discount);
        out["lambda"] = json!(snapshot.lambda);
        out["level"] = json!(snapshot.level);
        if let Some(mean) = &self.fit.mean {
            out["mean"] = json!(mean.form());
        }
        let statistics = fitted.model.statistics();
        if statistics.forgets() {
            out["forgetting"] = json!((-1.0 / self.fit.forgetting).exp2());
            out["rows_effective"] = json!(statistics.effective_rows());
        }
        if let Some(openings) = fitted.model.openings() {
            // MODEL has the base alone: what tracks a stream is right at its end, and a table's reader asks about all of it.
            out["gate"] = json!(openings.iter().map(|opening| opening.gate).fold(0.0, f64::max));
        }
        out["dictionary_size"] = json!(snapshot.dictionary.nrows());
        out["seconds"] = json!(self.seconds);
        if fitted.change.is_some() {
            out["changed_at"] = json!(fitted.first());
        }
        if !fitted.compared.is_empty() {
            out["dictionaries"] = compared_to_json(&fitted.compared);
        }
        if let Some((selection, tolerance)) = &fitted.selected {
            out["tolerance"] = json!(tolerance);
            out["pivots"] = json!(selection.pivots);
            out["residuals"] = json!(selection.residuals);
            out["capped"] = json!(selection.capped);
        }
        if let Some(report) = &fitted.report {
            out["tolerance"] = json!(report.tolerance);
            let mut search = refit_report_to_json(report);
            search.insert("log_evidence".into(), json!(report.evidence_after));
            search.insert("starts".into(), starts(report));
            out["relevance_report"] = search.remove("relevance_report").unwrap_or_default();
            out["search"] = Value::Object(search);
        }
        out
    }

    /// Of the model as it is written, whichever evidence is reported.
    fn trace_gap(&self) -> Option<f64> {
        let posterior = self.fitted.model.solve().ok()?;
        Some(posterior.trace_gap(self.fitted.model.statistics()) * self.fitted.model.settings().rewards.len() as f64)
    }

    /// What to do about a trace gap.
    fn remedy(&self, gap: f64, size: usize) -> &'static str {
        if gap <= TRACE_GAP {
            ""
        } else if self.fit.dictionary.dictionary.is_some() {
            ": the dictionary given is small for this table"
        } else if size < self.fit.dictionary.dictionary_max {
            ": the dictionary is coarse for this table, a smaller --tolerance refines it"
        } else {
            ": the dictionary is small for this table, see --dictionary-max"
        }
    }

    /// Squared error of later returns, over their variance, of each rule for the dictionary that was tried.
    fn compared(&self) -> Option<(String, String)> {
        let compared = &self.fitted.compared;
        (!compared.is_empty()).then(|| ("error of later returns".to_owned(), compared_to_text(compared)))
    }

    /// How the model was selected, at length with --verbose.
    fn details(&self) -> String {
        let Self { fitted, rows, snapshot, evidence, exact, seconds, .. } = self;
        let nats = |value: f64| format!("{} nats", number(value));
        let path = self.fit.out().display();
        let next = format!(
            "Next: criticd value {path} STATES.csv evaluates the model, criticd plot {path} --out value.png draws it"
        );
        if !self.fit.verbose {
            let mut lines = vec![("table".to_owned(), given::extent(rows))];
            for bound in fitted.report.iter().flat_map(|report| &report.active_bounds).map(wire::held_bound) {
                lines.push(("bound".to_owned(), format!("{bound} is active: the data call for a value beyond it")));
            }
            lines.extend(self.compared());
            lines.push(("written".to_owned(), format!("{path} in {seconds:.1} s")));
            return format!("{}\n{next}, --verbose shows how the model was selected.\n", facts(&lines));
        }
        let mut lines = vec![
            ("table".to_owned(), given::extent(rows)),
            (format!("{} evidence", score::name(*exact)), nats(evidence.value)),
            ("complexity".to_owned(), nats(evidence.complexity)),
            ("fit".to_owned(), format!("{}, {} of n / 2", nats(evidence.fit), number(evidence.fit_ratio()))),
        ];
        let statistics = fitted.model.statistics();
        if statistics.forgets() {
            let (rows, half) = (statistics.effective_rows(), self.fit.forgetting);
            let text = format!("half-life {} rows, {} effective transitions", number(half), number(rows));
            lines.push(("forgetting".to_owned(), text));
        }
        if let Some(gap) = self.trace_gap() {
            lines.push(("trace gap".to_owned(), nats(gap) + self.remedy(gap, snapshot.dictionary.nrows())));
        }
        if let Some(report) = &fitted.report {
            lines.extend(search_lines(report, snapshot.lambda));
        }
        lines.extend(self.compared());
        lines.push(("written".to_owned(), format!("{path} in {seconds:.1} s")));
        format!("{}\n{}\n{next}, criticd inspect {path} shows this again.\n", facts(&lines), describe(snapshot))
    }
}

/// What is strange about the ends of episodes: time limits that rows call terminations, and states behind resets as next states.
fn strange_ends(rows: &Rows) -> Vec<String> {
    let streams = rows.streams.iter().max().map_or(0, |&last| last as usize + 1);
    let (mut lengths, mut before) = (vec![0usize; streams], vec![None; streams]);
    let (mut longest, mut terminated, mut cuts, mut resets) = (0usize, Vec::new(), 0, 0);
    for i in 0..rows.len() {
        let stream = rows.streams[i] as usize;
        if let Some(end) = before[stream].take() {
            cuts += 1;
            resets += usize::from(rows.next_state(end) == rows.state(i));
        }
        lengths[stream] = if rows.starts_chain[i] { 1 } else { lengths[stream] + 1 };
        longest = longest.max(lengths[stream]);
        if rows.terminated[i] {
            terminated.push(lengths[stream]);
        } else if rows.truncated[i] {
            before[stream] = Some(i);
        }
        if rows.terminated[i] || rows.truncated[i] {
            lengths[stream] = 0;
        }
    }
    let limited = terminated.iter().filter(|&&length| length == longest).count();
    let mut said = Vec::new();
    if longest > 1 && limited >= ENDS_MIN && 2 * limited > terminated.len() {
        said.push(format!(
            "{limited} of {} episodes terminate after exactly {longest} rows, and none is longer: if a time limit ended them, give their flag \
             as --truncated, since their last states keep a value",
            terminated.len()
        ));
    }
    if resets >= ENDS_MIN && 2 * resets > cuts {
        said.push(format!(
            "after {resets} of {cuts} truncated rows the next state is the one in which the next episode begins: it lies behind the reset; \
             give the one before (Gymnasium: info[\"final_obs\"])"
        ));
    }
    said
}

/// How a search chose its model, `lambda` among the rest, as headings and sentences.
fn search_lines(report: &RefitReport, lambda: f64) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    if let Some(selection) = &report.selection {
        lines.push(("lambda".to_owned(), lambdas(lambda, selection)));
        for c in &selection.candidates {
            let text = format!(
                "held-out error {} at lambda {}, ridge {}, {} elements",
                number(c.score),
                c.lambda,
                number(c.ridge),
                c.elements
            );
            lines.push((c.name.clone(), text));
        }
    }
    let text = format!(
        "{} evaluations on {} transitions, {} ascents{}",
        report.evaluations,
        report.evidence_rows,
        report.ascents.len(),
        if report.out_of_time { ", stopped by --budget" } else { "" }
    );
    lines.push(("search".to_owned(), text));
    lines.push(("structure".to_owned(), report.structure.clone()));
    if report.structures.len() > 1 {
        for s in &report.structures {
            let text = format!("{:.1} nats, {} parameters", s.log_evidence, s.parameters);
            lines.push((s.name.clone(), text));
        }
    }
    let told = |heading: &str, sentences: Vec<String>| {
        let rest = std::iter::repeat(String::new());
        std::iter::once(heading.to_owned()).chain(rest).zip(sentences).collect::<Vec<_>>()
    };
    lines.extend(told("variables", wire::relevance(report)));
    lines.extend(told("findings", report.findings.iter().map(wire::diagnostic).collect()));
    for bound in report.active_bounds.iter().map(wire::held_bound) {
        lines.push(("bound".to_owned(), format!("{bound} is active: the data call for a value beyond it")));
    }
    lines
}

/// The ascents of the search.
fn starts(report: &RefitReport) -> Value {
    let start = |r: &AscentReport| {
        let parameters = r.names.iter().cloned().zip(r.ascent.parameters.iter().map(|v| json!(v)));
        json!({
            "round": r.round,
            "rows": r.rows,
            "start": r.ascent.start,
            "log_evidence": r.ascent.log_evidence,
            "evaluations": r.ascent.evaluations,
            "outcome": format!("{:?}", r.ascent.outcome),
            "structure": r.structure,
            "parameters": parameters.collect::<Map<String, Value>>(),
        })
    };
    report.ascents.iter().map(start).collect()
}

/// Share of the variance of V that each state variable explains (D,), over the states of a table.
pub(super) fn shares(snapshot: &Snapshot, states: &[f64]) -> Vec<f64> {
    let evaluator = Evaluator::new(snapshot.clone());
    let mut value = |states: &[f64]| match evaluator.evaluate(states, Ask::MEAN) {
        Ok(found) => found.mean.column(0).iter().copied().collect(),
        // States of a table are in range.
        Err(_) => vec![0.0; states.len() / snapshot.dim()],
    };
    total_indices(states, snapshot.dim(), (SAMPLES, UNNOTICED * snapshot.hyperparameters.noise_variance), &mut value)
}

/// "0.5 (0 +3.1 %, 0.8 +0.2 %, ...)": what the other lambdas lose on held-out returns.
fn lambdas(chosen: f64, selection: &SelectionReport) -> String {
    let others: Vec<String> = selection
        .lambdas
        .iter()
        .filter(|other| other.lambda != chosen || other.score > 1.0)
        .map(|other| format!("{} {:+.1} %", other.lambda, 100.0 * (other.score - 1.0)))
        .collect();
    if others.is_empty() { chosen.to_string() } else { format!("{chosen} ({})", others.join(", ")) }
}

/// How improvement went.
fn improvement(improved: &Improved) -> Value {
    json!({
        "sweeps": improved.sweeps,
        "settled": improved.settled(),
        "change": improved.change,
        "clipped": improved.clipped,
    })
}

fn improvement_text(improved: &Improved) -> String {
    let how = if improved.settled() {
        "and values no longer change"
    } else {
        "and values still change: what is written is the mean of the last 5"
    };
    format!("improvement: {} sweeps, {how}\n", improved.sweeps)
}
