//! The pure state machine: rows in, a model out; no clock, thread, socket, file, log or entropy.

pub mod model;

use crate::math::kernel::NoiseModel;

/// Which covariance a critic's model selection uses \[JS09, section 5.2\].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum KernelKind {
    /// One lengthscale for all state variables.
    Isotropic,
    /// One relevance per state variable.
    #[default]
    Ard,
}

/// Whose variance of V is published (`MATHS` notation in [`crate::math`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum VarianceKind {
    /// As the model states it: the noise of the returns within one chain is independent.
    #[default]
    Model,
    /// Chain-clustered sandwich: returns of one chain share their noise.
    Clustered,
}

/// What one critic learns and how. Plain data; `config` fills it in and checks it.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Name of the critic, 1..=64 bytes of `[A-Za-z0-9_-]`.
    pub name: String,
    /// Discount in [0, 1] of rows that carry none.
    pub discount: f64,
    /// Reward columns that it learns (one value function each, one kernel for all), distinct, at least one.
    pub rewards: Vec<usize>,
    /// Covariance.
    pub kernel: KernelKind,
    /// Noise model.
    pub noise: NoiseModel,
    /// Published variance.
    pub variance: VarianceKind,
    /// ICD tolerance on the squared residual, relative to v0 + b, in (0, 1).
    pub tolerance: f64,
    /// Largest dictionary, at least 1.
    pub dictionary_max: usize,
    /// Recent rows kept with their features, from which a new dictionary element is backfilled.
    pub backfill_rows: usize,
    /// Rows between two refreshes of the weights that score incoming rows; also the largest block learned at once.
    pub refresh_rows: usize,
    /// Re-estimate noise and scale from the statistics at refreshes.
    pub tune_noise: bool,
    /// Smallest noise variance relative to the variance of the targets; lower only for deterministic streams.
    pub noise_floor: f64,
    /// Rows before there is a first, data-driven model.
    pub warmup_rows: usize,
    /// Rows at which the first refit is due; 0 switches refits by row count off.
    pub refit_first_rows: u64,
    /// Factor by which the rows grow from one refit to the next, at least 1.
    pub refit_growth: f64,
    /// Most rows between two refits.
    pub refit_rows_max: u64,
    /// Drop of the prequential score, nats per transition, against its best since adoption, that asks for a refit;
    /// 0 switches this off.
    pub refit_score_drop: f64,
    /// Rows that the exact evidence is computed on.
    pub evidence_rows: usize,
    /// Starts of the optimiser.
    pub starts: usize,
    /// Most seconds that the ascents of one refit may take.
    pub refit_budget_s: f64,
    /// Seed of everything random in refits.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: "default".into(),
            discount: 0.99,
            rewards: vec![0],
            kernel: KernelKind::default(),
            noise: NoiseModel::default(),
            variance: VarianceKind::default(),
            tolerance: 1e-3,
            dictionary_max: 300,
            backfill_rows: 1024,
            refresh_rows: 256,
            tune_noise: true,
            noise_floor: 1e-3,
            warmup_rows: 32,
            refit_first_rows: 512,
            refit_growth: 2.0,
            refit_rows_max: 50_000,
            refit_score_drop: 1.0,
            evidence_rows: 1000,
            starts: 4,
            refit_budget_s: 20.0,
            seed: 0,
        }
    }
}
