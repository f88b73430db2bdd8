//! The parts of messages that carry a model.

use super::ArrayForm;
use super::tensor::WrittenTensor;
use criticd_learner::math::columns::GivenFunction;
use criticd_learner::math::embedding::StateKind;
use criticd_learner::math::kernel::{Hyperparameters, Metric, Profile};
use criticd_learner::snapshot::{Inputs, Snapshot, Tracked};
use serde::Serialize;

/// The beginning of a message that carries a model: which one it is.
#[derive(Serialize)]
pub(super) struct HeadBody<'a> {
    r#type: &'static str,
    critic: &'a str,
    generation: u64,
    revision: u64,
    offset: u64,
    transitions: u64,
    time: f64,
}

impl<'a> HeadBody<'a> {
    pub(super) fn new(kind: &'static str, snapshot: &'a Snapshot) -> Self {
        Self {
            r#type: kind,
            critic: &snapshot.critic,
            generation: snapshot.generation,
            revision: snapshot.revision,
            offset: snapshot.offset,
            transitions: snapshot.transitions,
            time: snapshot.time,
        }
    }
}

/// Noise and kernel, of a snapshot or of changed weights.
#[derive(Serialize)]
pub(super) struct ModelBody<'a> {
    noise: NoiseBody,
    kernel: KernelBody<'a>,
}

impl<'a> ModelBody<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, form: ArrayForm) -> Self {
        let Snapshot { hyperparameters, .. } = snapshot;
        Self { noise: NoiseBody::from(hyperparameters), kernel: KernelBody::new(hyperparameters, snapshot.dim(), form) }
    }
}

/// What rows change in a model of one generation.
#[derive(Serialize)]
pub(super) struct PosteriorBody<'a> {
    dictionary: WrittenTensor<'a>,
    weights: WrittenTensor<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    variance: Option<WrittenTensor<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_evidence: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
    #[serde(skip_serializing_if = "is_one")]
    lambda: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    returns: Option<ReturnsBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracked: Option<TrackedBody<'a>>,
    #[serde(skip_serializing_if = "is_false")]
    provisional: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<WrittenTensor<'a>>,
}

impl<'a> PosteriorBody<'a> {
    /// With the rows of the dictionary from `known_rows` on.
    pub(super) fn new(snapshot: &'a Snapshot, known_rows: usize, form: ArrayForm, variance: bool) -> Self {
        Self {
            dictionary: WrittenTensor::matrix(&snapshot.dictionary, known_rows, form),
            weights: WrittenTensor::columns(&snapshot.weights, form),
            variance: snapshot.variance.as_ref().filter(|_| variance).map(|c| WrittenTensor::matrix(c, 0, form)),
            log_evidence: snapshot.log_evidence,
            score: snapshot.score,
            lambda: snapshot.lambda,
            returns: ReturnsBody::new(snapshot, form),
            tracked: TrackedBody::new(snapshot, form),
            provisional: snapshot.provisional,
            level: (!snapshot.level.is_empty()).then(|| WrittenTensor::vector(&snapshot.level, form)),
        }
    }
}

/// The function that values were learned about.
#[derive(Serialize)]
pub(super) struct MeanBody<'a> {
    discount: f64,
    kernel: KernelBody<'a>,
    inputs: InputsBody<'a>,
    dictionary: WrittenTensor<'a>,
    weights: WrittenTensor<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<WrittenTensor<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mean: Option<Box<MeanBody<'a>>>,
}

impl<'a> MeanBody<'a> {
    pub(super) fn new(mean: &'a Snapshot, form: ArrayForm) -> Self {
        Self {
            discount: mean.discount,
            kernel: KernelBody::new(&mean.hyperparameters, mean.dim(), form),
            inputs: InputsBody::new(&mean.inputs, form),
            dictionary: WrittenTensor::matrix(&mean.dictionary, 0, form),
            weights: WrittenTensor::columns(&mean.weights, form),
            level: (!mean.level.is_empty()).then(|| WrittenTensor::vector(&mean.level, form)),
            mean: mean.mean.as_deref().map(|behind| Box::new(Self::new(behind, form))),
        }
    }
}

/// How returns scatter about V, where a model says so.
#[derive(Serialize)]
struct ReturnsBody<'a> {
    level: WrittenTensor<'a>,
    weights: WrittenTensor<'a>,
    floor: WrittenTensor<'a>,
    factor: f64,
    pairs: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    coverage: Option<f64>,
}

impl<'a> ReturnsBody<'a> {
    fn new(snapshot: &'a Snapshot, form: ArrayForm) -> Option<Self> {
        snapshot.returns.as_ref().map(|spread| Self {
            level: WrittenTensor::vector(&spread.level, form),
            weights: WrittenTensor::columns(&spread.weights, form),
            floor: WrittenTensor::vector(&spread.floor, form),
            factor: spread.factor,
            pairs: spread.pairs,
            coverage: spread.coverage,
        })
    }
}

/// What a mixture is made of, where a model answers with one.
#[derive(Serialize)]
struct TrackedBody<'a> {
    base: WrittenTensor<'a>,
    gate: WrittenTensor<'a>,
    half_life: WrittenTensor<'a>,
}

impl<'a> TrackedBody<'a> {
    fn new(snapshot: &'a Snapshot, form: ArrayForm) -> Option<Self> {
        snapshot.tracked.as_ref().map(|Tracked { base, gate, half_life }| Self {
            base: WrittenTensor::columns(base, form),
            gate: WrittenTensor::vector(gate, form),
            half_life: WrittenTensor::vector(half_life, form),
        })
    }
}

/// What a reader takes where lambda is left out.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over references")]
pub(super) fn is_one(value: &f64) -> bool {
    *value == 1.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over references")]
pub(super) fn is_false(flag: &bool) -> bool {
    !flag
}

#[derive(Serialize)]
pub(super) struct NoiseBody {
    model: &'static str,
    variance: f64,
}

impl From<&Hyperparameters> for NoiseBody {
    fn from(hyperparameters: &Hyperparameters) -> Self {
        Self { model: hyperparameters.noise.name(), variance: hyperparameters.noise_variance }
    }
}

#[derive(Serialize)]
pub(super) struct KernelBody<'a> {
    kind: &'static str,
    signal_variance: f64,
    bias_variance: f64,
    relevance: WrittenTensor<'a>,
    /// Left out where it is what readers take it for.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<&'static str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    kinds: &'a [StateKind],
    #[serde(skip_serializing_if = "Option::is_none")]
    factors: Option<WrittenTensor<'a>>,
    /// Eigenvectors and eigenvalues of Omega: what a reader would otherwise have to compute.
    #[serde(skip_serializing_if = "Option::is_none")]
    directions: Option<WrittenTensor<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strengths: Option<WrittenTensor<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    columns: Vec<GivenFunction>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column_variances: Option<WrittenTensor<'a>>,
}

impl<'a> KernelBody<'a> {
    pub(super) fn new(hyperparameters: &'a Hyperparameters, dim: usize, form: ArrayForm) -> Self {
        let kernel = &hyperparameters.kernel;
        let relevance = kernel.metric.relevance(dim);
        let (factors, directions, strengths) = match &kernel.metric {
            Metric::Factor { factors, .. } => {
                let found = kernel.metric.directions(dim);
                let strengths: Vec<f64> = found.iter().map(|d| d.strength).collect();
                (
                    Some(WrittenTensor::rows(factors, dim, form)),
                    Some(WrittenTensor::of(found.len(), dim, move |i, j| found[i].vector[j], form)),
                    Some(WrittenTensor::of(strengths.len(), 1, move |i, _| strengths[i], form).flat()),
                )
            }
            Metric::Isotropic(_) | Metric::Ard(_) => (None, None, None),
        };
        Self {
            kind: kernel.metric.kind(),
            profile: (kernel.profile != Profile::Gaussian).then(|| kernel.profile.name()),
            kinds: &kernel.kinds,
            signal_variance: kernel.signal_variance,
            bias_variance: kernel.bias_variance,
            relevance: WrittenTensor::of(dim, 1, move |i, _| relevance[i], form).flat(),
            factors,
            directions,
            strengths,
            columns: kernel.columns.iter().map(|column| column.function).collect(),
            column_variances: (!kernel.columns.is_empty())
                .then(|| WrittenTensor::of(kernel.columns(), 1, |j, _| kernel.columns[j].variance, form).flat()),
        }
    }
}

#[derive(Serialize)]
pub(super) struct InputsBody<'a> {
    dim: usize,
    shift: WrittenTensor<'a>,
    scale: WrittenTensor<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    names: Option<&'a [String]>,
}

impl<'a> InputsBody<'a> {
    pub(super) fn new(inputs: &'a Inputs, form: ArrayForm) -> Self {
        Self {
            dim: inputs.dim(),
            shift: WrittenTensor::vector(&inputs.shift, form),
            scale: WrittenTensor::vector(&inputs.scale, form),
            names: inputs.names.as_deref(),
        }
    }
}
