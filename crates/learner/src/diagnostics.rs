//! Diagnostics of a refit, as data: the programs around the learner put them into words.

use crate::settings::DictionaryBy;

/// What a refit has noticed about rows, settings or its own search.
#[derive(Clone, Debug, PartialEq)]
pub enum Diagnostic {
    /// The exact evidence of `used` of `rows` rows selected.
    SelectedByEvidence {
        /// Rows of the exact evidence.
        used: u64,
        /// Rows of the window.
        rows: u64,
        /// Whether the budget ended before the bound of all rows was computed.
        without_bound: bool,
    },
    /// The variational bound of all rows selected.
    SelectedByBound {
        /// Rows of the bound.
        rows: u64,
    },
    /// Held-out returns selected.
    SelectedByReturns {
        /// Rows compared.
        rows: usize,
        /// Chains, or pieces of long ones, that hold them.
        pieces: usize,
        /// Kernels compared.
        kernels: usize,
    },
    /// The summed evidence of heads and rewards selected the kernel.
    SelectedByHeads {
        /// How many they are.
        heads: usize,
        /// Rows that they were judged by.
        rows: usize,
    },
    /// Some of the heads have a kernel of their own.
    HeadsApart {
        /// How many.
        heads: usize,
        /// What that gains, nats for each row and head.
        gain: f64,
    },
    /// The budget ended the search: the best result by then won.
    BudgetEnded,
    /// Another rule than ICD chose the dictionary. Errors are of later returns, squared, over the variance of these.
    DictionaryBy {
        /// The rule.
        by: DictionaryBy,
        /// Its error.
        error: f64,
        /// The error with ICD.
        icd: f64,
    },
    /// The errors changed among the rows, and the model has learned those before the change all the same.
    ChangeIgnored {
        /// Offset at which they probably changed.
        since: u64,
        /// Whether most rows since are of streams that had none before; else returns are predicted no better without the rows
        /// before.
        other_streams: bool,
    },
    /// A full dictionary cost more evidence than it should.
    EvidenceLost {
        /// Elements of the dictionary.
        elements: usize,
        /// Exact evidence lost, nats.
        nats: f64,
    },
    /// The trace gap is large.
    TraceGap {
        /// Elements of the dictionary.
        elements: usize,
        /// The trace gap, nats.
        nats: f64,
        /// Whether the dictionary is full, so that only a larger `dictionary_max` helps.
        full: bool,
    },
    /// Only the floors of noise and lengthscale keep the evidence from interpolating single returns.
    EvidenceCollapses,
    /// The noise is at its floor.
    NoiseAtFloor,
    /// The rows support fewer directions than were asked for.
    FewerDirections {
        /// Directions asked for.
        asked: usize,
        /// Directions of the model.
        given: usize,
    },
    /// State variables are strongly correlated, each with at least one of the others.
    Correlated {
        /// Names of the two or more.
        variables: Vec<String>,
        /// Correlation of two, in [-1, 1]; of more the least in size among the pairs that are strongly correlated.
        correlation: f64,
    },
    /// The kernel sees state variables bent, since they are far from normal.
    Bent {
        /// Names of the one or more.
        variables: Vec<String>,
    },
    /// The settings leave the period of a state variable open.
    Period {
        /// Its name.
        variable: String,
        /// The period that the returns show, in its unit; none if they show none.
        found: Option<f64>,
        /// The period of the kernel before; none if it took the variable for real.
        kept: Option<f64>,
    },
    /// A state variable varies too little to be scaled, and counts as a constant.
    TinyStates {
        /// Its name.
        variable: String,
        /// Smallest variation that is scaled, in its own unit.
        limit: f64,
    },
    /// A state variable has outliers.
    OutlyingStates {
        /// Its name.
        variable: String,
    },
    /// Returns have outliers.
    OutlyingReturns {
        /// Distance of the furthest return from the median, in robust standard deviations.
        deviations: f64,
    },
    /// One lengthscale for all counts copies of a state variable twice.
    CopiesCountedTwice,
    /// The best candidate is better than the present model by no more than the standard error.
    PresentStays,
    /// Importance ratios leave few effective rows.
    UnequalRatios {
        /// Rows compared.
        rows: usize,
        /// Effective number of rows, (sum w)^2 / sum w^2.
        effective: f64,
    },
    /// Importance ratios do not average 1, as the ratios of two policies do.
    LargeRatios {
        /// Their mean.
        mean: f64,
    },
    /// Candidates with lambda 0 lose against others: the state may hide something.
    HiddenState {
        /// Their loss, as a share of the targets' variance.
        loss: f64,
    },
}
