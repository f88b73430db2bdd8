//! The mean function: what values are said to be before a row has been seen, such as what a simulator or a network says of a state.
//!
//! ```text
//! V(x) = m(x) + V'(x),     r' = r - (m(x) - gamma m(x')),   r - m(x) where a row terminates        docs/mathematics.md (B7)
//! ```
//! V' obeys the equations of V with r' for r, whatever m is, so that all that is learned is how V differs from m. It has the mean 0 a
//! priori: far from all rows V is m. Of one constant this is (B1). A mean function is a published value function of which only the value
//! counts, so that whoever evaluates snapshots evaluates it.

use crate::math::columns::{GivenColumn, GivenFunction};
use crate::math::embedding::StateKind;
use crate::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use crate::math::level::about_both;
use crate::snapshot::{Ask, Evaluator, Inputs, Snapshot};
use crate::transition::Rows;
use nalgebra::DMatrix;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Mean functions, each the mean of the one before, at most: a model that was learned about a mean may be one itself.
pub const MEANS_MAX: usize = 8;
/// Elements of the dictionaries of all of them together, at most: as many as a critic may have.
pub const ELEMENTS_MAX: usize = 20_000;

/// A mean function as settings write it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MeanForm {
    /// The same everywhere.
    Constant(f64),
    /// A MODEL file, by its path.
    Model(String),
    /// `constant` + `weights`' x.
    Linear(Linear),
}

/// A linear function of the state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Its value at 0, reward unit.
    #[serde(default)]
    pub constant: f64,
    /// (D,), reward unit per unit of the state.
    pub weights: Vec<f64>,
}

/// A mean function, with all that it takes to evaluate it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "WrittenMean", into = "WrittenMean")]
pub struct Mean {
    form: MeanForm,
    /// What it says of states; none for a constant, and where the file of a model was not there.
    model: Option<Arc<Evaluator>>,
}

impl PartialEq for Mean {
    /// Whether they say the same of all states, wherever they were read.
    fn eq(&self, other: &Self) -> bool {
        match (&self.model, &other.model) {
            (Some(own), Some(theirs)) => own.snapshot() == theirs.snapshot(),
            (None, None) => self.form == other.form,
            _ => false,
        }
    }
}

impl fmt::Debug for Mean {
    /// What it says of states, to the last bit, and not where it was read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.model {
            Some(model) => model.snapshot().fmt(f),
            None => self.form.fmt(f),
        }
    }
}

/// Whether a constant or a weight may be this: what is left of rewards stays a number.
fn is_in_range(number: f64) -> bool {
    number.abs() <= 1e9
}

impl Mean {
    /// Whether its model, or one that this stands on, sees a variable bent.
    pub fn is_bent(&self) -> bool {
        let first = self.model.as_ref().map(|model| &**model.snapshot());
        let mut all = std::iter::successors(first, |of| of.mean.as_deref());
        all.any(|of| of.hyperparameters.kernel.kinds.iter().any(StateKind::is_bent))
    }

    /// The function that is written like this. That of a MODEL file is not known yet: [`Mean::of_model`].
    ///
    /// # Errors
    /// A number that is not finite, or no weight: what it must be.
    pub fn of(form: MeanForm) -> Result<Self, String> {
        let model = match &form {
            MeanForm::Constant(constant) if !is_in_range(*constant) => return Err("from -1e9 to 1e9".into()),
            MeanForm::Linear(Linear { constant, weights }) => {
                if weights.is_empty() || !weights.iter().chain([constant]).all(|number| is_in_range(*number)) {
                    return Err("of numbers from -1e9 to 1e9, with one weight for each state variable".into());
                }
                Some(Arc::new(Evaluator::new(linear(*constant, weights))))
            }
            MeanForm::Constant(_) | MeanForm::Model(_) => None,
        };
        Ok(Self { form, model })
    }

    /// What `snapshot` says of states; `file` is where it was read.
    ///
    /// # Errors
    /// It is no value of states, of several rewards, or learned about too many means one behind the other: what it must be.
    pub fn of_model(file: String, snapshot: &Snapshot) -> Result<Self, String> {
        if snapshot.actions.is_some() {
            return Err("a model of values of states: this one is of actions".into());
        }
        if snapshot.weights.ncols() != 1 {
            return Err(format!("a model of one reward: this one has {}", snapshot.weights.ncols()));
        }
        if means(snapshot) >= MEANS_MAX {
            return Err(format!("learned about less than {MEANS_MAX} means, each the mean of the one before"));
        }
        let elements: usize = behind(snapshot).map(|of| of.dictionary.nrows()).sum();
        if elements > ELEMENTS_MAX {
            return Err(format!(
                "of at most {ELEMENTS_MAX} elements, its own means among them: this one has {elements}"
            ));
        }
        let model = Some(Arc::new(Evaluator::new(value_alone(snapshot))));
        Ok(Self { form: MeanForm::Model(file), model })
    }

    /// As settings write it.
    pub fn form(&self) -> &MeanForm {
        &self.form
    }

    /// The path of the MODEL file, where it has not been read.
    pub fn missing(&self) -> Option<&str> {
        match &self.form {
            MeanForm::Model(file) if self.model.is_none() => Some(file),
            _ => None,
        }
    }

    /// State dimension D; none for a constant, which is of any.
    pub fn dim(&self) -> Option<usize> {
        self.model.as_ref().map(|model| model.snapshot().dim())
    }

    /// Numbers that it is made of: elements, weights and inputs of all means, one behind the other.
    pub fn numbers(&self) -> usize {
        let of = |snapshot: &Snapshot| {
            let (kernel, dim) = (&snapshot.hyperparameters.kernel, snapshot.dim());
            // Laid out, an element is what the kernel projects it on.
            let width = dim.max(kernel.projected_dim(dim));
            snapshot.features() * (width + 2) + 4 * width + 64
        };
        self.model.as_ref().map_or(1, |model| behind(model.snapshot()).map(of).sum())
    }

    /// The discount that a model was learned with.
    pub fn discount(&self) -> Option<f64> {
        let model = self.model.as_ref().filter(|_| matches!(self.form, MeanForm::Model(_)))?;
        Some(model.snapshot().discount)
    }

    /// m at states (n, D), row-major.
    ///
    /// # Panics
    /// If they are no states of its dimension, or the file of the model was not read.
    pub fn values(&self, states: &[f64], dim: usize) -> Vec<f64> {
        match (&self.form, &self.model) {
            (MeanForm::Constant(constant), _) => vec![*constant; states.len() / dim],
            (_, Some(model)) => {
                let found = model.evaluate(states, Ask::MEAN).expect("states that were taken in");
                found.mean.data.into()
            }
            (_, None) => panic!("the mean function was not read"),
        }
    }

    /// m at one state.
    pub(crate) fn at(&self, state: &[f64]) -> f64 {
        self.values(state, state.len())[0]
    }

    /// Reward number `column` of each of the rows `range` of `rows`, about this mean; `discount` is of rows that carry none.
    pub(crate) fn rewards(&self, rows: &Rows, range: Range<usize>, column: usize, discount: f64) -> Vec<f64> {
        let of = |states: &[f64]| self.values(&states[range.start * rows.dim..range.end * rows.dim], rows.dim);
        let (here, next) = (of(&rows.states), of(&rows.next_states));
        let about = |(i, (here, next)): (usize, (f64, f64))| {
            about_both(rows.reward(i)[column], here, rows.follows(i, discount) * next)
        };
        range.zip(here.into_iter().zip(next)).map(about).collect()
    }

    /// Let values about this mean be values: `snapshot` says from here on what it has learned and the mean.
    pub fn add_to(&self, snapshot: &mut Snapshot) {
        match (&self.form, &self.model) {
            (MeanForm::Constant(constant), _) => snapshot.level = vec![*constant; snapshot.weights.ncols()],
            (_, model) => snapshot.mean = model.as_ref().map(|model| Arc::clone(model.snapshot())),
        }
    }
}

/// How many means stand behind a snapshot, each the mean of the one before.
fn means(snapshot: &Snapshot) -> usize {
    behind(snapshot).count() - 1
}

/// A snapshot and the means behind it.
fn behind(snapshot: &Snapshot) -> impl Iterator<Item = &Snapshot> {
    std::iter::successors(Some(snapshot), |snapshot| snapshot.mean.as_deref())
}

/// What a snapshot says of values, and nothing else of it.
fn value_alone(snapshot: &Snapshot) -> Snapshot {
    let kernel = snapshot.hyperparameters.kernel.clone();
    Snapshot {
        inputs: Inputs { names: None, ..snapshot.inputs.clone() },
        level: snapshot.level.clone(),
        mean: snapshot.mean.clone(),
        ..Snapshot::of_value(snapshot.discount, kernel, snapshot.dictionary.clone(), snapshot.weights.clone())
    }
}

/// A linear function as a value function without a dictionary: each column of the kernel has the prior variance 1.
fn linear(constant: f64, weights: &[f64]) -> Snapshot {
    let dim = weights.len();
    let columns = GivenColumn::constant_and_linear(1.0, 1.0, GivenFunction::Linear, &[], dim);
    let kernel = Kernel { columns, ..Kernel::gaussian(1.0, 0.0, Metric::Isotropic(1.0)) };
    let all = std::iter::once(constant).chain(weights.iter().copied());
    Snapshot {
        inputs: Inputs::identity(dim),
        ..Snapshot::of_value(1.0, kernel, DMatrix::zeros(0, dim), DMatrix::from_iterator(1 + dim, 1, all))
    }
}

impl Snapshot {
    /// A value function that says nothing but values, as [`Snapshot::of`] takes it.
    pub fn of_value(discount: f64, kernel: Kernel, dictionary: DMatrix<f64>, weights: DMatrix<f64>) -> Self {
        let hyperparameters = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 1.0 };
        Self::of(discount, hyperparameters, dictionary, weights)
    }
}

/// A mean function as files have it: with its model, so that nobody needs the file that it was read from.
#[derive(Clone, Serialize, Deserialize)]
struct WrittenMean {
    form: MeanForm,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<WrittenModel>,
}

#[derive(Clone, Serialize, Deserialize)]
struct WrittenModel {
    discount: f64,
    kernel: Kernel,
    inputs: Inputs,
    /// (m - q, D), row-major.
    #[serde(with = "crate::math::raw")]
    dictionary: Vec<f64>,
    /// (m,).
    #[serde(with = "crate::math::raw")]
    weights: Vec<f64>,
    #[serde(with = "crate::math::raw")]
    level: Vec<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mean: Option<Box<WrittenModel>>,
}

impl WrittenModel {
    fn of(snapshot: &Snapshot) -> Self {
        Self {
            discount: snapshot.discount,
            kernel: snapshot.hyperparameters.kernel.clone(),
            inputs: snapshot.inputs.clone(),
            dictionary: snapshot.dictionary.transpose().as_slice().to_vec(),
            weights: snapshot.weights.as_slice().to_vec(),
            level: snapshot.level.clone(),
            mean: snapshot.mean.as_ref().map(|mean| Box::new(Self::of(mean))),
        }
    }

    fn snapshot(self) -> Result<Snapshot, &'static str> {
        let Self { discount, kernel, inputs, dictionary, weights, level, mean } = self;
        let (dim, q) = (inputs.dim(), kernel.columns());
        let elements = dictionary.len().checked_div(dim).ok_or("a mean function of no state variable")?;
        let sizes = inputs.scale.len() == dim
            && dictionary.len() == elements * dim
            && weights.len() == q + elements
            && kernel.metric.relevance(dim).len() == dim
            && kernel.columns.iter().all(|column| column.is_of(dim, &kernel.kinds));
        if !sizes {
            return Err("a mean function whose parts have several sizes");
        }
        let (dictionary, weights) =
            (DMatrix::from_row_slice(elements, dim, &dictionary), DMatrix::from_vec(q + elements, 1, weights));
        let mean = mean.map(|mean| mean.snapshot().map(Arc::new)).transpose()?;
        Ok(Snapshot { inputs, level, mean, ..Snapshot::of_value(discount, kernel, dictionary, weights) })
    }
}

impl From<Mean> for WrittenMean {
    fn from(Mean { form, model }: Mean) -> Self {
        let of_file = model.filter(|_| matches!(form, MeanForm::Model(_)));
        Self { model: of_file.map(|model| WrittenModel::of(model.snapshot())), form }
    }
}

impl TryFrom<WrittenMean> for Mean {
    type Error = String;

    fn try_from(WrittenMean { form, model }: WrittenMean) -> Result<Self, String> {
        match model {
            None => Self::of(form),
            Some(model) => Ok(Self { form, model: Some(Arc::new(Evaluator::new(model.snapshot()?))) }),
        }
    }
}
