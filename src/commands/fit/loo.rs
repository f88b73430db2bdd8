//! Leave-one-out errors of `criticd fit`: how well rows are predicted by models that lack them, and hyperparameters that make these
//! errors small.

use super::choices::SelectionChoice;
use super::{Failure, Fit, Fitted, finish};
use crate::commands::held_out;
use crate::commands::output::{in_file, number};
use crate::learner::Settings;
use crate::learner::allowance::Allowance;
use crate::learner::batch::{Given, LeaveOneOut, Nearest};
use crate::learner::model::Model;
use crate::transition::Rows;
use serde_json::{Value, json};

pub(super) const WITHOUT_TARGET: &str =
    "--selection loo is for a regression (--target): rows of a value function stand in the equations of others";
pub(super) const RETURNS: &str =
    "--selection returns: a regression (--target) has none; evidence and loo select for it";
pub(super) const HEADS: &str =
    "--selection loo chooses for --target alone, and --heads have their evidence: leave out one of them";

impl Fit {
    /// Errors of rows by models that lack them, where one row alone is in one equation.
    pub(super) fn leave_one_out(&self, fitted: &Fitted, rows: &Rows) -> Result<Option<LeaveOneOut>, Failure> {
        let model = &fitted.model;
        if model.settings().action_value.is_some() {
            return Ok(None);
        }
        let hyperparameters = &model.hyperparameters();
        let given = Given {
            settings: model.settings(),
            rows,
            inputs: model.inputs(),
            hyperparameters,
            lambda: model.lambda(),
            first: fitted.first() as u64,
        };
        given.leave_one_out(model.dictionary(), model.level()).map_err(|e| in_file(&self.table.table, e))
    }

    /// Where the options say so, put lengthscales and ridge into `model` that predict rows better which it has not learned. It has learned
    /// the rows of `rows` from number `first` on.
    pub(super) fn by_leave_one_out(
        &self,
        model: &mut Model,
        rows: &Rows,
        (settings, first): (&Settings, u64),
        allowance: &Allowance,
    ) -> Result<Option<Nearest>, Failure> {
        if self.selection != Some(SelectionChoice::Loo) {
            return Ok(None);
        }
        let rows = &held_out::part(rows, |i| i as u64 >= first);
        let fault = |e| in_file(&self.table.table, e);
        let (inputs, hyperparameters, lambda) = (model.inputs().clone(), model.hyperparameters(), model.lambda());
        let given = Given { settings, rows, inputs: &inputs, hyperparameters: &hyperparameters, lambda, first };
        let options = &self.dictionary;
        let enough = |of: &_| options.enough(&Given { hyperparameters: of, ..given });
        let found = given.nearest_by_leave_one_out(enough, options.dictionary_max, (&|| true, allowance));
        let found = found.map_err(fault)?.ok_or_else(|| {
            Failure::usage("--selection loo: rows that are forgotten or followed, or too many of them: take evidence")
        })?;
        // Scale and noise are chosen.
        let settings = &Settings { estimate_scale: false, ..settings.clone() };
        let given = Given { settings, hyperparameters: &found.hyperparameters, ..given };
        let dictionary =
            given.select(options.enough(&given), options.dictionary_max, &|| true).map_err(fault)?.dictionary;
        *model = given.model(dictionary, &|| true).map_err(fault)?;
        finish(model, rows);
        Ok(Some(found))
    }
}

/// For people: of a regression.
pub(super) fn text(left_out: Option<LeaveOneOut>, nearest: Option<&Nearest>) -> String {
    let Some(of) = left_out.filter(|of| of.is_regression) else { return String::new() };
    let chosen = nearest.map_or_else(String::new, |nearest| {
        format!(", chosen among {} kernels and ridges; {} by the evidence", nearest.tried, number(nearest.relative.0))
    });
    format!("leave-one-out error: {}, its square {} of the variance{chosen}\n", number(of.error), number(of.relative))
}

/// For programs.
pub(super) fn add_to(document: &mut Value, left_out: Option<LeaveOneOut>, nearest: Option<&Nearest>) {
    let Some(of) = left_out else { return };
    document["leave_one_out"] = json!({
        "error": of.error,
        "relative_squared_error": of.relative,
        "leverage_max": of.leverage_max,
        "of": if of.is_regression { "target" } else { "reward" },
    });
    if let Some(nearest) = nearest {
        document["leave_one_out"]["selection"] =
            json!({"tried": nearest.tried, "before": nearest.relative.0, "after": nearest.relative.1});
    }
}
