//! The mean function that a table is learned about.

use super::Fit;
use crate::commands::Failure;
use crate::commands::given::categories;
use crate::commands::inspect::read_model;
use crate::commands::output::{in_file, note, number};
use crate::learner::mean::{Mean, MeanForm};
use crate::math::kernel::NoiseModel;
use crate::snapshot::Snapshot;
use crate::transition::Rows;
use std::path::{Path, PathBuf};

impl Fit {
    /// The MODEL file that is the mean.
    pub(super) fn mean_file(&self) -> Option<&Path> {
        match self.mean.as_ref()?.form() {
            MeanForm::Model(file) => Some(Path::new(file)),
            _ => None,
        }
    }

    /// That model and where it is, if texts have codes in it.
    pub(super) fn coded_mean(&self) -> Result<Option<(Snapshot, PathBuf)>, Failure> {
        let Some(path) = self.mean_file() else { return Ok(None) };
        let model = read_model(path)?;
        let coded = !categories(&model, path)?.is_empty();
        Ok(coded.then(|| (model, path.to_owned())))
    }

    /// Refuse a mean that no critic could have, and say what is wrong with one that it can have.
    pub(super) fn check_mean(&self) -> Result<(), Failure> {
        let Some(mean) = &self.mean else { return Ok(()) };
        if self.action.values_actions() {
            return Err(Failure::usage("--mean: is of states, leave it out: values of actions have --prior-mean"));
        }
        if self.noise == Some(NoiseModel::White) {
            return Err(Failure::usage("--mean: is for correlated noise, leave out --noise white"));
        }
        if let Some(of) = mean.discount().filter(|&of| of != self.discount) {
            note(&format!(
                "--mean: its values are under the discount {}, these under {}: far from all rows they are those of the former",
                number(of),
                number(self.discount)
            ));
        }
        Ok(())
    }

    /// The mean of these rows, with `rewards` rewards of their own.
    pub(super) fn mean_of(&self, rows: &Rows, rewards: usize) -> Result<Option<Mean>, Failure> {
        let Some(mean) = &self.mean else { return Ok(None) };
        if rewards != 1 {
            return Err(Failure::usage(format!(
                "--mean: is for one reward, the table has {rewards}: name one, --reward"
            )));
        }
        if let Some(dim) = mean.dim().filter(|&dim| dim != rows.dim) {
            let message = format!("has {} state variables, --mean is of {dim}", rows.dim);
            return Err(in_file(&self.table.table, message));
        }
        Ok(Some(mean.clone()))
    }
}
