//! Rows of a regression that count more or less than others.

use super::{Failure, Fit};
use crate::commands::given::TableOptions;
use crate::commands::output::in_file;
use crate::table::Table;

/// Weights and costs lie between this and one over it.
const LEAST: f64 = 1e-9;

#[derive(Debug, clap::Args)]
pub(super) struct WeightOptions {
    /// With --target: how often each row counts, above 0. The variance of its noise is the model's (the ridge) divided by its
    /// weight; the evidence of the weighted rows selects kernel and ridge
    #[arg(long, value_name = "COLUMN", requires = "target", conflicts_with_all = [
        "cost", "heads", "inputs", "actions", "noise", "rho_max", "drift_sensitivity", "dictionary_by"
    ])]
    weight: Option<String>,
    /// With --target: what each row has cost, above 0. A row counts 1 / cost times, as with --weight: cost-regularised kernel
    /// regression (CrKR)
    #[arg(long, value_name = "COLUMN", requires = "target", conflicts_with_all = [
        "heads", "inputs", "actions", "noise", "rho_max", "drift_sensitivity", "dictionary_by"
    ])]
    cost: Option<String>,
}

impl WeightOptions {
    /// The column.
    pub(super) fn column(&self) -> Option<&str> {
        self.weight.as_deref().or(self.cost.as_deref())
    }

    /// Take the column, which was read behind the target, as the weights of the rows: ratios that they count with.
    fn weigh(&self, options: &mut TableOptions, table: &mut Table) -> Result<(), Failure> {
        let Some(column) = self.column() else { return Ok(()) };
        if table.rows().ratios.iter().any(|&ratio| ratio != 1.0) {
            let message = "behavior_prob and target_prob weight the rows already: ignore one of them, or leave out the other weight";
            return Err(in_file(&options.table, message));
        }
        let mut given = table.take_last_reward();
        if let Some(i) = given.iter().position(|value| !(LEAST..=1.0 / LEAST).contains(value)) {
            let what = if self.cost.is_some() { "cost" } else { "weight" };
            let message = format!(
                "line or row {}, column {column}: is {}; a {what} lies above 0, from 1e-9 to 1e9",
                table.place(i),
                given[i]
            );
            return Err(in_file(&options.table, message));
        }
        if self.cost.is_some() {
            given.iter_mut().for_each(|cost| *cost = cost.recip());
        }
        table.set_ratios(given);
        options.leave_beside_target(column);
        Ok(())
    }
}

impl Fit {
    /// The table, its rows weighted as the options say.
    pub(super) fn weighted(&mut self, mut table: Table) -> Result<Table, Failure> {
        self.weights.weigh(&mut self.table, &mut table)?;
        Ok(table)
    }
}
