//! Heads of `criticd fit`: reading them, and one kernel for them and the critic.

use super::{Failure, Fit, Fitted, finish};
use crate::commands::dictionary::Chosen;
use crate::commands::output::{columns, in_file, number};
use criticd::learner::batch::Given;
use criticd::learner::heads::{self, Columns, Head};
use criticd::learner::model::Model;
use criticd::learner::refit::{self, RefitError};
use criticd::learner::{Lambda, SelectionKind, Settings};
use criticd::math::returns::chains;
use criticd::snapshot::Snapshot;
use criticd::telemetry::ProcessorTime;
use criticd::transition::Rows;
use criticd::wire::{self, heads_from_str};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Heads that are shown in words.
const SHOWN: usize = 10;

#[derive(Debug, clap::Args)]
pub(super) struct HeadOptions {
    /// Learn these predictions as well: JSON, a list of heads, or TOML with [[heads]]. A head has a name, a cumulant, a
    /// discount or timescale, and what proto/README.md, "Heads", says. They share kernel and dictionary with the value;
    /// each has its own noise and scale
    #[arg(long, value_name = "FILE")]
    heads: Option<PathBuf>,
}

impl HeadOptions {
    /// The heads of the file, which the rows of `table` can answer; none if there is no file.
    pub(super) fn read(&self, rows: &Rows, discount: f64, table: &Path) -> Result<Vec<Head>, Failure> {
        let Some(path) = &self.heads else { return Ok(Vec::new()) };
        let text = std::fs::read_to_string(path).map_err(|e| in_file(path, e))?;
        let heads = heads_from_str(&text, discount).map_err(|e| in_file(path, e))?;
        if heads.is_empty() {
            return Err(in_file(path, "no head in it"));
        }
        let columns = Columns { states: rows.dim, rewards: rows.rewards_per_row, actions: rows.actions_per_row };
        heads::check(&heads, columns).map_err(|e| in_file(path, e))?;
        check_rows(&heads, rows).map_err(|e| in_file(table, e))?;
        Ok(heads)
    }
}

/// Whether every row has what the heads ask of it, and times never fall within a chain where they count.
fn check_rows(heads: &[Head], rows: &Rows) -> Result<(), String> {
    for i in 0..rows.len() {
        heads::check_row(heads, rows, i).map_err(|e| format!("transition {i}, {e}"))?;
    }
    if !heads.iter().any(Head::needs_time) {
        return Ok(());
    }
    for (i, next) in chains(rows).into_iter().enumerate() {
        if let Some(next) = next.filter(|&next| rows.times[next] < rows.times[i]) {
            let (before, after) = (rows.times[i], rows.times[next]);
            return Err(format!("transition {next}, time: {after} is before {before}, the time of the one it follows"));
        }
    }
    Ok(())
}

/// Select one kernel for the critic's rewards and its heads, then noise and scale of each.
pub(super) fn select(
    fit: &Fit,
    rows: &Rows,
    settings: Settings,
    names: Option<Vec<String>>,
) -> Result<Fitted, Failure> {
    let lambda = match fit.lambda {
        Some(Lambda::Fixed(lambda)) => lambda,
        _ => 1.0,
    };
    let defaults = Settings::default();
    let settings = Settings {
        kernel: fit.kernel.as_ref().map_or(defaults.kernel, super::KernelChoice::kind),
        tolerance: fit.dictionary.tolerance.unwrap_or(defaults.tolerance),
        estimate_scale: true,
        lambda: Lambda::Fixed(lambda),
        selection: SelectionKind::Evidence,
        noise_floor: fit.noise_floor,
        evidence_rows: fit.evidence_rows,
        seed: fit.seed,
        ..settings
    };
    let budget = Duration::try_from_secs_f64(fit.budget).unwrap_or(Duration::MAX);
    let threads = fit.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let pool = (threads > 1).then(|| rayon::ThreadPoolBuilder::new().num_threads(threads).build()).transpose()?;
    let time = ProcessorTime::start(pool.as_ref());
    let run = || refit::heads::select(&settings, rows, names.clone(), &|| true, &|| time.spent() < budget);
    let selected = pool.as_ref().map_or_else(run, |pool| pool.install(run)).map_err(|e| match e {
        RefitError::NotEnough(what) => {
            in_file(&fit.table.table, format!("nothing to select a model by: {}", wire::lack(what)))
        }
        other => in_file(&fit.table.table, wire::refit_error(&other)),
    })?;
    let (inputs, hyperparameters) = (&selected.inputs, &selected.hyperparameters);
    let given = Given { settings: &settings, rows, inputs, hyperparameters, lambda, first: 0 };
    let chosen = fit.dictionary.choose(&given)?;
    let mut model = given.model(chosen.dictionary.clone(), &|| true)?;
    model.tune_heads().map_err(|e| in_file(&fit.table.table, e))?;
    finish(&mut model, rows);
    let Chosen { selected: by_icd, compared, .. } = chosen;
    Ok(Fitted { model, selected: by_icd, report: None, compared, chosen_by_heads: Some(selected), change: None })
}

/// Add what `--json` says of heads: noise, scale and log evidence of each by name, and how their kernel was found.
pub(super) fn add_to(document: &mut Value, fitted: &Fitted, snapshot: &Snapshot) -> Result<(), Failure> {
    if let Some(selected) = &fitted.chosen_by_heads {
        document["search"] = json!({
            "structure": selected.structure,
            "log_evidence": selected.log_evidence,
            "evaluations": selected.evaluations,
            "evidence_rows": selected.rows,
            "heads": selected.heads,
        });
    }
    if let Some(heads) = &snapshot.heads {
        let evidence = fitted.model.head_evidence()?;
        let of = |(h, head): (usize, &Head)| {
            let noise = heads.noise_variance(h);
            let said = json!({"noise_variance": noise, "signal": heads.signals[h], "log_evidence": evidence[h]});
            (head.name.clone(), said)
        };
        document["heads"] = Value::Object(heads.heads.iter().enumerate().map(of).collect::<Map<_, _>>());
    }
    Ok(())
}

/// The heads in words: the first few with their noise.
pub(super) fn text(model: &Model, snapshot: &Snapshot) -> Result<String, Failure> {
    let Some(heads) = &snapshot.heads else { return Ok(String::new()) };
    let evidence = model.head_evidence()?;
    let row = |(h, head): (usize, &Head)| {
        vec![
            head.name.clone(),
            number(heads.noise_variance(h).sqrt()),
            number((heads.signals[h] * snapshot.hyperparameters.kernel.diagonal()).sqrt()),
            number(evidence[h]),
        ]
    };
    let rows: Vec<Vec<String>> = heads.heads.iter().enumerate().take(SHOWN).map(row).collect();
    let more = heads.heads.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("and {more} more heads\n") } else { String::new() };
    Ok(format!("{}{more}\n", columns(&["head", "sd of noise", "sd before any row", "log evidence"], &rows)))
}
