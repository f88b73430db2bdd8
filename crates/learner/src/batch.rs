//! Rows that are all at hand, under hyperparameters that are given: dictionary, posterior, evidence.
//!
//! Refits rebuild their model with this, and the commands that work on tables are little else.

mod leave_one_out;

pub use leave_one_out::{LeaveOneOut, LeftOut, Nearest, leave_one_out};

use super::Settings;
use super::level::about_level;
use super::model::Model;
use crate::math::dense::{Matrix, axpy, dot, solve_lower};
use crate::math::dictionary::{self, Dictionary, StoppingRule};
use crate::math::evidence::{self, Evidence, EvidenceError, KeepGoing, Problem, Sparse, Through};
use crate::math::exact::exact_fixed_point;
use crate::math::kernel::{Hyperparameters, NoiseModel};
use crate::math::mixture::{Mixtures, is_mixture};
use crate::math::posterior::SolveError;
use crate::math::returns::{FollowedBy, Returns, chains, differences};
use crate::snapshot::Inputs;
use crate::transition::Rows;

/// States that a dictionary is chosen from: of more nodes, evenly spaced ones.
pub const CANDIDATES: usize = 20_000;
/// Rows between two looks at the stop flag while rows are learned.
const REBUILD_ROWS: usize = 512;

/// Why something could not be computed.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The stop flag went up.
    #[error("stopped")]
    Stopped,
    /// No posterior.
    #[error(transparent)]
    Solve(#[from] SolveError),
    /// No evidence.
    #[error(transparent)]
    Evidence(EvidenceError),
}

impl From<EvidenceError> for BatchError {
    fn from(e: EvidenceError) -> Self {
        if e == EvidenceError::Stopped { Self::Stopped } else { Self::Evidence(e) }
    }
}

/// What pivoted incomplete Cholesky chose from the nodes.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The elements; it is full, so that learning adds none.
    pub dictionary: Dictionary,
    /// Index of each among the [`nodes`], in the order of choice.
    pub pivots: Vec<usize>,
    /// Residual of each at the moment it was chosen, value^2.
    pub residuals: Vec<f64>,
    /// Whether states above the tolerance were left when the cap was reached.
    pub capped: bool,
}

/// The states (N, D), row-major, in the unit of the rows, at which V enters what was observed: the state of each row in
/// their order, and right behind the last row of a chain that is cut, its successor, unless that is a distribution over the
/// `choices` discrete actions there are.
pub fn nodes(rows: &Rows, choices: usize) -> Vec<f64> {
    let successor = chains(rows);
    let mut out = Vec::with_capacity(rows.states.len());
    for (i, next) in successor.iter().enumerate() {
        out.extend_from_slice(rows.state(i));
        if next.is_none() && !rows.terminated[i] && !is_mixture(rows.next_state(i), choices) {
            out.extend_from_slice(rows.next_state(i));
        }
    }
    out
}

/// Rows, and the model that they are seen under.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// What is learned and how; hyperparameters take precedence over its kernel and noise model.
    pub settings: &'a Settings,
    /// The rows.
    pub rows: &'a Rows,
    /// Normalisation that the hyperparameters refer to.
    pub inputs: &'a Inputs,
    /// Kernel and noise.
    pub hyperparameters: &'a Hyperparameters,
    /// lambda in \[0, 1\].
    pub lambda: f64,
    /// Offset of the first row.
    pub first: u64,
}

impl Given<'_> {
    /// Choose a dictionary of at most `max` elements by pivoted ICD over the nodes, until there is `enough` of it.
    ///
    /// # Errors
    /// Stopped.
    pub fn select(&self, enough: StoppingRule, max: usize, keep_going: KeepGoing<'_>) -> Result<Selection, BatchError> {
        let (nodes, dim) = (nodes(self.rows, self.settings.choices()), self.inputs.dim());
        let stride = (nodes.len() / dim).div_ceil(CANDIDATES).max(1);
        let candidates: Vec<f64> =
            if stride == 1 { nodes } else { nodes.chunks_exact(dim).step_by(stride).flatten().copied().collect() };
        let kernel = &self.hyperparameters.kernel;
        // The candidates stand for all nodes.
        let enough = StoppingRule { trace: enough.trace / stride as f64, ..enough };
        let states = self.inputs.normalise(&candidates);
        let (mut dictionary, pivots) =
            dictionary::pivoted_cholesky(kernel, dim, &states, enough, max.max(1), keep_going)
                .ok_or(BatchError::Stopped)?;
        dictionary.close();
        Ok(Selection {
            dictionary,
            pivots: pivots.indices.into_iter().map(|i| i * stride).collect(),
            residuals: pivots.residuals,
            capped: pivots.capped,
        })
    }

    /// A model with this dictionary that has learned all rows.
    ///
    /// # Errors
    /// Stopped.
    pub fn model(&self, dictionary: Dictionary, keep_going: KeepGoing<'_>) -> Result<Model, BatchError> {
        let level = self.settings.level_of(self.rows);
        let mut model = self.about(&level, |given| given.learned(given.empty(dictionary), keep_going))?;
        model.set_level(level, self.settings, self.rows.rewards_per_row);
        Ok(model)
    }

    /// What `of` makes of values about this level (H,), none for 0.
    pub(crate) fn about<T>(&self, level: &[f64], of: impl FnOnce(&Given<'_>) -> T) -> T {
        match about_level(self.settings, self.rows, level) {
            Some((settings, rows)) => of(&Given { settings: &settings, rows: &rows, ..*self }),
            None => of(self),
        }
    }

    /// The same, with what will track the stream behind these rows.
    pub(crate) fn tracked_model(&self, dictionary: Dictionary, keep_going: KeepGoing<'_>) -> Result<Model, BatchError> {
        let mut model = self.empty(dictionary);
        model.track(self.rows);
        self.learned(model, keep_going)
    }

    fn empty(&self, dictionary: Dictionary) -> Model {
        let (settings, inputs) = (self.settings.clone(), self.inputs.clone());
        let mut model = Model::with_dictionary(settings, inputs, self.hyperparameters, dictionary);
        model.set_lambda(self.lambda);
        model
    }

    fn learned(&self, mut model: Model, keep_going: KeepGoing<'_>) -> Result<Model, BatchError> {
        for start in (0..self.rows.len()).step_by(REBUILD_ROWS) {
            if !keep_going() {
                return Err(BatchError::Stopped);
            }
            let offset = self.first + start as u64;
            model.learn(self.rows, start..(start + REBUILD_ROWS).min(self.rows.len()), offset);
        }
        model.refresh();
        Ok(model)
    }

    /// The exact log evidence with its gradient, targets of cut chains at their exact fixed point and held there. O(n^3).
    ///
    /// # Errors
    /// Stopped; no fixed point; no evidence.
    pub fn exact_evidence(&self, keep_going: KeepGoing<'_>) -> Result<Evidence, BatchError> {
        self.about(&self.settings.level_of(self.rows), |given| given.exact_evidence_about(keep_going))
    }

    fn exact_evidence_about(&self, keep_going: KeepGoing<'_>) -> Result<Evidence, BatchError> {
        let (rows, h) = (self.rows, self.hyperparameters);
        let problem = if h.noise == NoiseModel::White {
            self.differences()
        } else {
            let returns = Returns::new(rows, &self.settings.rewards, self.settings.discount);
            let states = self.inputs.normalise(&rows.states);
            let cut_states = self.inputs.normalise(&returns.cut_states(rows));
            let fixed = exact_fixed_point(rows.dim, states.clone(), &cut_states, &returns, h, keep_going)?;
            Problem::correlated(rows.dim, states, fixed.targets)
        };
        Ok(evidence::exact(&problem, h, keep_going)?)
    }

    /// The variational bound with its gradient under the dictionary, noise and scale of `model`, which has learned the
    /// rows; targets of cut chains are what that model makes of them, and held there. O(n m^2). Where rows are followed or
    /// forgotten, each with its weight and without the gradient.
    ///
    /// # Errors
    /// Stopped; no fixed point; no evidence.
    pub fn sparse_evidence(&self, model: &Model, keep_going: KeepGoing<'_>) -> Result<Evidence, BatchError> {
        self.about(model.level(), |given| given.sparse_evidence_about(model, keep_going))
    }

    fn sparse_evidence_about(&self, model: &Model, keep_going: KeepGoing<'_>) -> Result<Evidence, BatchError> {
        let (rows, h) = (self.rows, model.hyperparameters());
        let basis = model.dictionary();
        if model.statistics().follows_rows {
            return self.followed_evidence(model, keep_going);
        }
        if model.statistics().forgets() {
            return forgetting_evidence(model);
        }
        let problem = if h.noise == NoiseModel::White {
            self.differences()
        } else {
            let returns = Returns::new(rows, &self.settings.rewards, self.settings.discount);
            let posterior = model.solve()?;
            let u = posterior.feature_weights();
            let cut_states = self.inputs.normalise(&returns.cut_states(rows));
            let features = basis.features(&basis.kernel().project(rows.dim, &cut_states));
            let mut values = Matrix::zeros(features.cols(), u.cols());
            for k in 0..u.cols() {
                for (i, value) in values.col_mut(k).iter_mut().enumerate() {
                    *value = dot(features.col(i), u.col(k));
                }
            }
            Problem::correlated(rows.dim, self.inputs.normalise(&rows.states), returns.targets(&values))
        };
        let through = Through { dictionary: basis.elements(), kind: Sparse::Vfe, jitter: 0.0 };
        Ok(evidence::sparse(&problem, &h, through, keep_going)?)
    }

    /// The evidence of the lambda-returns that `model` makes of the rows, without a gradient:
    /// ```text
    /// y_t = r_t + gamma_t [psi_t'u + c_(t+1) (y_(t+1) - phi_(t+1)'u)]               docs/mathematics.md (M6), (E14)
    /// ```
    fn followed_evidence(&self, model: &Model, keep_going: KeepGoing<'_>) -> Result<Evidence, BatchError> {
        let (rows, statistics, posterior) = (self.rows, model.statistics(), model.solve()?);
        let (basis, u) = (model.dictionary(), posterior.feature_weights());
        let (m, heads) = (u.rows(), u.cols());
        let signal = posterior.scale().signal;
        let mut mixtures = Mixtures::default();
        let mut features = |states: &[f64]| {
            let states = self.inputs.normalise(states);
            if !self.settings.mixes_successors() {
                return basis.features(&basis.kernel().project(rows.dim, &states));
            }
            let mut out = Matrix::zeros(m, states.len() / rows.dim);
            mixtures.features_into(basis, self.settings.choices(), &states, out.view_mut());
            out
        };
        let mut values = Matrix::zeros(rows.len(), heads);
        let mut next = Matrix::zeros(rows.len(), heads);
        for start in (0..rows.len()).step_by(REBUILD_ROWS) {
            if !keep_going() {
                return Err(BatchError::Stopped);
            }
            let range = start * rows.dim..(start + REBUILD_ROWS).min(rows.len()) * rows.dim;
            for (states, out) in [(&rows.states, &mut values), (&rows.next_states, &mut next)] {
                let phi = features(&states[range.clone()]);
                for h in 0..heads {
                    (0..phi.cols()).for_each(|k| *out.at_mut(start + k, h) = dot(phi.col(k), u.col(h)));
                }
            }
        }
        let unit = statistics.unit();
        let ratio = |i: usize| rows.ratio(i, self.settings.ratio_max());
        let weight = |i: usize| statistics.weight_at(self.first + i as u64) / unit;
        let by =
            FollowedBy { lambda: model.lambda(), rho_max: self.settings.ratio_max(), discount: self.settings.discount };
        let targets = by.targets(rows, &self.settings.rewards, &values, &next);
        let mut response = Matrix::zeros(m, heads);
        let mut energy = 0.0;
        for start in (0..rows.len()).step_by(REBUILD_ROWS) {
            if !keep_going() {
                return Err(BatchError::Stopped);
            }
            let end = (start + REBUILD_ROWS).min(rows.len());
            let phi = features(&rows.states[start * rows.dim..end * rows.dim]);
            for h in 0..heads {
                for i in start..end {
                    let y = targets.at(i, h);
                    energy += weight(i) * ratio(i) * y * y;
                    axpy(response.col_mut(h), weight(i) * ratio(i) * y, phi.col(i - start));
                }
            }
        }
        let (n, columns) = (statistics.effective_rows(), heads as f64);
        let weights: f64 = (0..rows.len()).filter(|&i| ratio(i) > 0.0).map(|i| weight(i) * ratio(i).ln()).sum();
        let noise_ratio = posterior.scale().ratio;
        let system = posterior.factor(statistics)?;
        solve_lower(system.factor().view(), response.view_mut());
        // The factor is of statistics as they are kept, `unit` times as large.
        let explained = unit * (0..heads).map(|h| dot(response.col(h), response.col(h))).sum::<f64>();
        let log_determinant = system.log_determinant() - m as f64 * unit.ln();
        let complexity =
            0.5 * columns * (n * signal.ln() + (n - m as f64) * noise_ratio.ln() + log_determinant - weights);
        let fit = 0.5 * (energy - explained) / (signal * noise_ratio);
        let trace_gap = columns * posterior.trace_gap(statistics);
        let constant = 0.5 * n * columns * (2.0 * std::f64::consts::PI).ln();
        Ok(Evidence {
            value: -complexity - fit - constant - trace_gap,
            complexity,
            fit,
            trace_gap,
            observations: (n * columns) as usize,
            gradient: Vec::new(),
        })
    }

    /// What white noise observes.
    fn differences(&self) -> Problem {
        let (rows, columns) = (self.rows, &self.settings.rewards);
        let (nodes, pairs) = differences(rows, self.settings.discount);
        let rewards: Vec<f64> = (0..rows.len()).flat_map(|i| columns.iter().map(move |&h| rows.reward(i)[h])).collect();
        let rewards = Matrix::from_rows(rows.len(), columns.len(), &rewards);
        Problem::white(rows.dim, self.inputs.normalise(&nodes), pairs, rewards)
    }
}

/// The evidence of a model that forgets rows and does not follow them, from its statistics alone.
fn forgetting_evidence(model: &Model) -> Result<Evidence, BatchError> {
    let (statistics, posterior) = (model.statistics(), model.solve()?);
    let (log_evidence, fit) = posterior.log_evidence().zip(posterior.misfit()).expect("rows are not followed");
    let columns = statistics.rewards() as f64;
    let trace_gap = columns * posterior.trace_gap(statistics);
    let constant = 0.5 * statistics.effective_rows() * columns * (2.0 * std::f64::consts::PI).ln();
    Ok(Evidence {
        value: log_evidence - trace_gap,
        complexity: -log_evidence - fit - constant,
        fit,
        trace_gap,
        observations: (statistics.effective_rows() * columns) as usize,
        gradient: Vec::new(),
    })
}
