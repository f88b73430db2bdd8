//! Models that others can be added to: with their sums, and learned in the epoch of another one.

use super::{Failure, Fit, Fitted, finish};
use crate::commands::inspect::read_model;
use crate::commands::output::in_file;
use crate::fleet::{Epoch, FleetPart, SUMS};
use crate::learner::model::Model;
use crate::local::part_of_model;
use crate::snapshot::Snapshot;
use crate::table::Table;
use crate::transition::Rows;
use crate::wire::{ArrayForm, encode_snapshot, with_bytes};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(super) struct SumOptions {
    /// Learn the table with the kernel, dictionary, normalisation, lambda and ridge of this model, which has its sums, and select
    /// nothing: `criticd merge` then adds the two. Sets --sums
    #[arg(long, value_name = "MODEL", conflicts_with_all = [
        "hyperparameters", "kernel", "kernel_profile", "state_kinds", "noise", "heads", "target", "discount", "rho_max", "forgetting",
        "tolerance", "dictionary", "lambda", "drift_sensitivity", "selection", "variance", "hold_out"
    ])]
    like: Option<PathBuf>,
    /// Write with the model what it has summed up of which streams, for --like and `criticd merge`: 32 bytes for each pair of states of
    /// the dictionary
    #[arg(long)]
    sums: bool,
    /// Names of the streams of the table.
    #[arg(skip)]
    streams: Vec<String>,
}

impl SumOptions {
    /// The model whose epoch is asked for.
    pub(super) fn like(&self) -> Option<&Path> {
        self.like.as_deref()
    }

    /// Remember the streams of the table.
    pub(super) fn note(&mut self, table: &Table) {
        self.streams = table.streams().to_vec();
    }

    /// The bytes of a MODEL file of `snapshot`, with the sums of its `model` if they are asked for.
    pub(super) fn file(&self, snapshot: &Snapshot, model: &Model, rows: &Rows) -> Vec<u8> {
        let file = encode_snapshot(snapshot, ArrayForm::Tensor, true);
        if !self.sums && self.like.is_none() {
            return file;
        }
        let mut streams: BTreeMap<String, u64> = BTreeMap::new();
        for &number in &rows.streams {
            *streams.entry(self.streams[number as usize].clone()).or_default() += 1;
        }
        with_bytes(file, SUMS, &FleetPart::of(model, streams).written())
    }
}

/// The table of `fit`, whose texts have the codes of the model that it is to be like.
pub(super) fn read(fit: &mut Fit) -> Result<Table, Failure> {
    let like = fit.sums.like().map(|path| read_model(path).map(|model| (model, path.to_owned()))).transpose()?;
    // Texts have the codes that they have in the model that values are learned about.
    let table = match like.or(fit.coded_mean()?) {
        Some((model, path)) => fit.table.read_like(&model, &path)?,
        None => fit.table.read()?,
    };
    fit.take_categories(&table)?;
    Ok(table)
}

/// The epoch of the model in a file.
fn epoch(path: &Path) -> Result<Epoch, Failure> {
    let bytes = std::fs::read(path).map_err(|e| in_file(path, e))?;
    let part = part_of_model(&bytes).map_err(|e| in_file(path, format!("its sums cannot be used: {e}")))?;
    let none = "has no sums, which say how it was learned: `criticd fit --sums` writes them, and so does Learner.save in Python";
    Ok(part.ok_or_else(|| in_file(path, none))?.epoch)
}

/// The model of these rows in the epoch of the model in the file `path`.
pub(super) fn learn(fit: &Fit, path: &Path, rows: &Rows) -> Result<Fitted, Failure> {
    let mut model = epoch(path)?.model().clone();
    let (dim, rewards) = (model.inputs().dim(), model.settings().rewards.iter().max().map_or(0, |last| last + 1));
    if model.settings().action_value.is_some() {
        return Err(in_file(path, "has values of actions: --like is for values of states"));
    }
    if dim != rows.dim || rewards > rows.rewards_per_row {
        let message = format!(
            "has {} state variables and {} rewards, the model {} has {dim} and {rewards}",
            rows.dim,
            rows.rewards_per_row,
            path.display()
        );
        return Err(in_file(&fit.table.table, message));
    }
    model.learn(rows, 0..rows.len(), 0);
    model.refresh();
    finish(&mut model, rows);
    Ok(Fitted::of(model))
}
