//! Heads of `criticd fit`: reading them, and one kernel for them and the critic.

use super::choices::SelectionChoice;
use super::{Failure, Fit, Fitted, finish, labels};
use crate::commands::dictionary::Chosen;
use crate::commands::given::plural;
use crate::commands::output::{columns, in_file, number, output, write_file};
use crate::learner::allowance::Allowance;
use crate::learner::batch::Given;
use crate::learner::heads::{self, Columns, Head};
use crate::learner::model::Model;
use crate::learner::refit::head_kernel::HeadSelection;
use crate::learner::refit::split::{Attempt, Split};
use crate::learner::refit::{self, RefitError};
use crate::learner::{Lambda, SelectionKind, Settings};
use crate::math::returns::chains;
use crate::snapshot::Snapshot;
use crate::table::Table;
use crate::transition::Rows;
use crate::whole_file::OutputFile;
use crate::wire::{self, ArrayForm, encode_snapshot, head_list_from_str, heads_from_list};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Heads that are shown in words.
const SHOWN: usize = 10;

#[derive(Debug, clap::Args)]
pub(super) struct HeadOptions {
    /// Learn these predictions as well: JSON, a list of heads, or TOML with [[heads]]. A head has a name, a cumulant, a
    /// discount or timescale, and what proto/README.md, "Heads", says. They share kernel and dictionary with the value;
    /// each has its own noise and scale. The evidence of both selects, and lambda is 1 unless given
    #[arg(long, value_name = "FILE")]
    heads: Option<PathBuf>,
    /// Where two kernels gain at least 0.02 nats for each row and head, learn the heads that want another kernel than the value under
    /// one of their own, and write that model to this file
    #[arg(long, value_name = "FILE", requires = "heads", conflicts_with = "no_optimise")]
    split: Option<PathBuf>,
    /// The heads of the file.
    #[arg(skip)]
    list: Vec<Head>,
    /// Rewards of a row of the table, without those that heads have brought.
    #[arg(skip)]
    own: Option<usize>,
}

impl HeadOptions {
    /// The file of heads.
    pub(super) fn file(&self) -> Option<&Path> {
        self.heads.as_deref()
    }

    /// Whether the second model, if one is asked for, has a place that is none of `inputs`.
    pub(super) fn check_output(&self, inputs: &[&Path], model: &OutputFile) -> Result<(), Failure> {
        let Some(path) = &self.split else { return Ok(()) };
        match output(path, inputs)?.is(model) {
            true => Err(Failure::usage(format!(
                "--split {}: that is where --out writes the model; name another file",
                path.display()
            ))),
            false => Ok(()),
        }
    }

    /// Read the file, if there is one; cumulants that files hold become rewards of `table`, or labels of its rows. A head without discount and
    /// timescale has `discount`. Returns the files that it names.
    pub(super) fn read(&mut self, table: &mut Table, discount: f64) -> Result<Vec<PathBuf>, Failure> {
        let Some(path) = &self.heads else { return Ok(Vec::new()) };
        let text = std::fs::read_to_string(path).map_err(|e| in_file(path, e))?;
        let mut list = head_list_from_str(&text).map_err(|e| in_file(path, e))?;
        self.own = Some(table.rewards_per_row());
        let (labelled, files) = labels::resolve(&mut list, path, table)?;
        self.list = heads_from_list(list, discount).map_err(|e| in_file(path, e))?;
        labelled.into_iter().for_each(|(head, cumulant)| self.list[head].cumulant = cumulant);
        if self.list.is_empty() {
            return Err(in_file(path, "no head in it"));
        }
        Ok(files)
    }

    /// The heads, which `rows`, read from the file `table`, can answer.
    pub(super) fn checked(&self, rows: &Rows, table: &Path) -> Result<Vec<Head>, Failure> {
        let Some(path) = &self.heads else { return Ok(Vec::new()) };
        let columns = Columns { states: rows.dim, rewards: rows.rewards_per_row, actions: rows.actions_per_row };
        heads::check(&self.list, columns).map_err(|e| in_file(path, e))?;
        check_rows(&self.list, rows).map_err(|e| in_file(table, e))?;
        Ok(self.list.clone())
    }

    /// Rewards of a row that the critic learns: the table's own.
    pub(super) fn own_rewards(&self, rows: &Rows) -> usize {
        self.own.unwrap_or(rows.rewards_per_row)
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

/// How heads have chosen.
pub(super) struct ByHeads {
    selection: HeadSelection,
    /// What two kernels gain, nats for each row and head, where that was asked for.
    gain: Option<f64>,
    /// The model of the heads that have a kernel of their own.
    pub(super) second: Option<Model>,
}

impl ByHeads {
    /// Write the model of the second group, if there is one, to the file of the options.
    pub(super) fn write(&self, fit: &Fit, offset: u64) -> Result<(), Failure> {
        let (Some(second), Some(path)) = (&self.second, &fit.heads.split) else { return Ok(()) };
        write_file(path, &fit.inputs(), &encode_snapshot(&fit.snapshot(second, offset)?, ArrayForm::Tensor, true))
    }
}

/// Select one kernel for the critic's rewards and its heads, or two, then noise and scale of each.
pub(super) fn select(
    fit: &Fit,
    rows: &Rows,
    settings: Settings,
    names: Option<Vec<String>>,
) -> Result<Fitted, Failure> {
    if fit.selection == Some(SelectionChoice::Returns) {
        return Err(Failure::usage(
            "--selection returns: with --heads the evidence of value and heads selects, leave it out",
        ));
    }
    let lambda = match fit.lambda {
        Some(Lambda::Fixed(lambda)) => lambda,
        Some(Lambda::Auto) => {
            return Err(Failure::usage(
                "--lambda auto: with --heads nothing selects lambda, name it; it is 1 if left out",
            ));
        }
        None => 1.0,
    };
    let defaults = Settings::default();
    let settings = Settings {
        kernel: fit.kernel.unwrap_or(defaults.kernel),
        tolerance: fit.dictionary.tolerance.unwrap_or(defaults.tolerance),
        estimate_scale: true,
        centred: true,
        lambda: Lambda::Fixed(lambda),
        selection: SelectionKind::Evidence,
        noise_floor: fit.noise_floor,
        evidence_rows: fit.evidence_rows,
        seed: fit.seed,
        ..settings
    };
    let allowance = &Allowance::of_seconds(fit.budget);
    let threads = fit.threads();
    let pool = (threads > 1).then(|| rayon::ThreadPoolBuilder::new().num_threads(threads).build()).transpose()?;
    let run = || refit::head_kernel::select(&settings, rows, names.clone(), &|| true, allowance);
    let selected = pool.as_ref().map_or_else(run, |pool| pool.install(run)).map_err(|e| match e {
        RefitError::NotEnough(what) => {
            in_file(&fit.table.table, format!("nothing to select a model by: {}", wire::lack(what)))
        }
        other => in_file(&fit.table.table, wire::refit_error(&other)),
    })?;
    let learned = |settings: &Settings, selection: &HeadSelection| -> Result<(Model, Chosen), Failure> {
        let HeadSelection { inputs, hyperparameters, .. } = selection;
        let given = Given { settings, rows, inputs, hyperparameters, lambda, first: 0 };
        let chosen = if allowance.left() { fit.dictionary.choose_best(&given) } else { fit.dictionary.choose(&given) }?;
        let mut model = given.model(chosen.dictionary.clone(), &|| true)?;
        model.tune_heads().map_err(|e| in_file(&fit.table.table, e))?;
        finish(&mut model, rows);
        Ok((model, chosen))
    };
    let (mut settings, mut by) = (settings, ByHeads { selection: selected, gain: None, second: None });
    if fit.heads.split.is_some() {
        let beside = &Allowance::of_seconds(2.0 * fit.budget);
        let run = || refit::split::split(&settings, rows, &by.selection, &|| true, beside);
        let attempt = pool.as_ref().map_or_else(run, |pool| pool.install(run));
        match attempt.map_err(|e| in_file(&fit.table.table, wire::refit_error(&e)))? {
            Attempt::Together(gain) => by.gain = Some(gain),
            Attempt::Split(found) => {
                let Split { kernels: [first, other], second, gain, .. } = *found;
                let (own, others): (Vec<_>, Vec<_>) =
                    settings.heads.iter().cloned().enumerate().partition(|(h, _)| second.contains(h));
                let heads = |list: Vec<(usize, Head)>| list.into_iter().map(|(_, head)| head).collect();
                let (model, _) = learned(&Settings { heads: heads(own), ..settings.clone() }, &other)?;
                settings.heads = heads(others);
                by = ByHeads { selection: first, gain: Some(gain), second: Some(model) };
            }
        }
    }
    let (model, chosen) = learned(&settings, &by.selection)?;
    let Chosen { selected: by_icd, compared, .. } = chosen;
    Ok(Fitted { selected: by_icd, compared, chosen_by_heads: Some(by), ..Fitted::of(model) })
}

/// What `--split` has found; nothing without it.
fn split_in_words(fit: &Fit, by: &ByHeads) -> String {
    let (Some(path), Some(gain)) = (&fit.heads.split, by.gain) else { return String::new() };
    match &by.second {
        None => format!("two kernels would gain {} nats for each row and head: all heads share one\n\n", number(gain)),
        Some(model) => format!(
            "two kernels gain {} nats for each row and head: {} went to {}\n\n",
            number(gain),
            plural(model.settings().heads.len(), "head"),
            path.display()
        ),
    }
}

/// Add what `--json` says of heads: noise, scale and log evidence of each by name, and how their kernel was found.
pub(super) fn add_to(document: &mut Value, fitted: &Fitted, snapshot: &Snapshot) -> Result<(), Failure> {
    if let Some(by @ ByHeads { selection: selected, .. }) = &fitted.chosen_by_heads {
        document["search"] = json!({
            "structure": selected.structure,
            "log_evidence": selected.log_evidence,
            "evaluations": selected.evaluations,
            "evidence_rows": selected.rows,
            "heads": selected.heads,
        });
        if let Some(gain) = by.gain {
            let second = by.second.iter().flat_map(|model| &model.settings().heads);
            let names: Vec<&str> = second.map(|head| head.name.as_str()).collect();
            document["split"] = json!({"gain": gain, "heads": names});
        }
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
pub(super) fn text(fit: &Fit, fitted: &Fitted, snapshot: &Snapshot) -> Result<String, Failure> {
    let model = &fitted.model;
    let split = fitted.chosen_by_heads.as_ref().map(|by| split_in_words(fit, by)).unwrap_or_default();
    let Some(heads) = &snapshot.heads else { return Ok(split) };
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
    Ok(format!("{}{more}\n{split}", columns(&["head", "std of noise", "std before any row", "log evidence"], &rows)))
}
