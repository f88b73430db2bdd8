//! Models as data: reading snapshots (messages and MODEL files) and hyperparameter files.

use super::actions::actions;
use super::checks::{check_count, finite_vector, names, nested, number, out_of_range, positive, rows, share, weights};
use super::heads;
use super::reader::{Field, Fields};
use super::status::{InputsStatus, KernelStatus, NoiseStatus, Relevance};
use super::tensor::Shape;
use super::v1::check_version;
use super::{ErrorCode, WireError, excerpt};
use criticd_learner::math::columns::GivenColumn;
use criticd_learner::math::embedding::StateKind;
use criticd_learner::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel, Profile};
use criticd_learner::mean::MEANS_MAX;
use criticd_learner::snapshot::{Actions, Inputs, ReturnSpread, Snapshot, Tracked};
use nalgebra::DMatrix;
use serde_json::{Value, json};
use std::sync::Arc;

const SNAPSHOT_KEYS: [&str; 28] = [
    "v",
    "type",
    "critic",
    "generation",
    "revision",
    "offset",
    "transitions",
    "time",
    "discount",
    "noise",
    "kernel",
    "inputs",
    "dictionary",
    "weights",
    "variance",
    "log_evidence",
    "score",
    "lambda",
    "returns",
    "tracked",
    "provisional",
    "level",
    "mean",
    "actions",
    "heads",
    "branch",
    "reward_names",
    "table",
];
const WEIGHTS_KEYS: [&str; 21] = [
    "v",
    "type",
    "critic",
    "generation",
    "revision",
    "offset",
    "transitions",
    "time",
    "noise",
    "kernel",
    "dictionary_start",
    "dictionary",
    "weights",
    "variance",
    "log_evidence",
    "score",
    "lambda",
    "returns",
    "tracked",
    "provisional",
    "level",
];
const BRANCH_KEYS: [&str; 5] = ["branch.noise", "branch.kernel", "branch.inputs", "branch.dictionary", "branch.heads"];
const MEAN_KEYS: [&str; 7] =
    ["mean.discount", "mean.kernel", "mean.inputs", "mean.dictionary", "mean.weights", "mean.level", "mean.mean"];
const RETURNS_KEYS: [&str; 6] =
    ["returns.level", "returns.weights", "returns.floor", "returns.factor", "returns.pairs", "returns.coverage"];
const TRACKED_KEYS: [&str; 3] = ["tracked.base", "tracked.gate", "tracked.half_life"];
const FILE_KEYS: [&str; 5] = ["noise", "kernel", "inputs", "lambda", "level"];
const NOISE_KEYS: [&str; 2] = ["noise.model", "noise.variance"];
const KERNEL_KEYS: [&str; 9] = [
    "kernel.kind",
    "kernel.profile",
    "kernel.kinds",
    "kernel.signal_variance",
    "kernel.bias_variance",
    "kernel.relevance",
    "kernel.factors",
    "kernel.columns",
    "kernel.column_variances",
];
const INPUTS_KEYS: [&str; 4] = ["inputs.dim", "inputs.shift", "inputs.scale", "inputs.names"];

/// What a hyperparameter file says.
#[derive(Clone, Debug, PartialEq)]
pub struct HyperparameterFile {
    /// Kernel and noise.
    pub hyperparameters: Hyperparameters,
    /// Normalisation that they refer to; none means raw coordinates.
    pub inputs: Option<Inputs>,
    /// lambda in \[0, 1\], if the file has one.
    pub lambda: Option<f64>,
    /// Whether values are learned about the level of their rows: where the file has a `level`.
    pub centred: bool,
}

/// Read a whole snapshot: a publication, a reply to `snapshot`, or a MODEL file. Tensors may be in either form.
///
/// # Errors
/// The first fault found: `malformed`, `unsupported_version`, or what is wrong with which field. Every number but
/// `log_evidence` and `score` must be finite.
pub fn decode_snapshot(bytes: &[u8]) -> Result<Snapshot, WireError> {
    let mut map = Fields::new(&SNAPSHOT_KEYS, "");
    map.read_message(bytes)?;
    check_version(map.get("v"))?;
    let kind = map.require("type")?.string()?;
    if kind != "snapshot" {
        let message = format!("must be \"snapshot\", is {}", excerpt(kind));
        return Err(WireError::of(ErrorCode::OutOfRange, "type", message));
    }
    let inputs = inputs(map.require("inputs")?)?;
    let dim = inputs.dim();
    let hyperparameters = hyperparameters(map.require("kernel")?, map.require("noise")?, Some(dim))?;
    let (elements, dictionary) = rows(map.require("dictionary")?, dim)?;
    let size = hyperparameters.kernel.columns() + elements;
    let weights = weights(map.require("weights")?, size)?;
    let (weights, returns) = with_returns(weights, map.get("returns"))?;
    let variance = match map.get("variance") {
        None => None,
        Some(field) => {
            let (found, variance) = rows(field, size)?;
            check_count(field.name, found, size)?;
            Some(variance)
        }
    };
    let tracked = map.get("tracked").map(|field| tracked(field, size, weights.ncols())).transpose()?;
    let level = level(map.get("level"), &weights)?;
    let mean = map.get("mean").map(|field| mean(field, dim, MEANS_MAX)).transpose()?.map(Arc::new);
    if let Some(mean) = mean.as_ref().filter(|mean| mean.weights.ncols() != weights.ncols()) {
        let message = format!("must have {} numbers per row, has {}", weights.ncols(), mean.weights.ncols());
        return Err(WireError::of(ErrorCode::WrongShape, "mean.weights", message));
    }
    let actions = map.get("actions").map(|field| actions(field, size, dim)).transpose()?;
    let reward_names = map.get("reward_names").map(names).transpose()?.unwrap_or_default();
    // Lists of no rows do not tell H.
    if size > 0 && !reward_names.is_empty() {
        check_count("reward_names", reward_names.len(), weights.ncols())?;
    }
    let discount = share(map.require("discount")?)?;
    let values = Snapshot {
        inputs,
        variance,
        returns,
        actions,
        heads: map.get("heads").map(|field| heads::heads(field, size)).transpose()?,
        tracked,
        level,
        mean,
        reward_names,
        table: map.get("table").map(|field| field.string().map(str::to_owned)).transpose()?,
        ..Snapshot::of(discount, hyperparameters, dictionary, weights)
    };
    let values = with_numbers(&map, values)?;
    let branch = map.get("branch").map(|field| branch(field, &values)).transpose()?.map(Box::new);
    Ok(Snapshot { branch, ..values })
}

/// `values` with what a publication says of its model in numbers and words.
fn with_numbers<const N: usize>(map: &Fields<'_, N>, values: Snapshot) -> Result<Snapshot, WireError> {
    let uint = |name| map.require(name)?.uint();
    Ok(Snapshot {
        critic: map.require("critic")?.string()?.to_owned(),
        generation: uint("generation")?,
        revision: uint("revision")?,
        offset: uint("offset")?,
        transitions: uint("transitions")?,
        time: number(map.require("time")?)?,
        log_evidence: map.get("log_evidence").map(|f| f.scalar()).transpose()?,
        score: map.get("score").map(|f| f.scalar()).transpose()?,
        lambda: lambda(map.get("lambda"))?,
        provisional: map.get("provisional").map_or(Ok(false), |f| f.scalar())?,
        ..values
    })
}

/// The heads of `values` that have a kernel of their own.
fn branch(field: Field<'_>, values: &Snapshot) -> Result<Snapshot, WireError> {
    let map = nested(field, &BRANCH_KEYS, "branch.")?;
    let inputs_field = map.require("branch.inputs")?;
    let inputs = inputs(inputs_field)?;
    if inputs.dim() != values.dim() {
        let message = format!("must have {} state variables, has {}", values.dim(), inputs.dim());
        return Err(WireError::of(ErrorCode::WrongShape, inputs_field.name, message));
    }
    let dim = Some(inputs.dim());
    let hyperparameters = hyperparameters(map.require("branch.kernel")?, map.require("branch.noise")?, dim)?;
    let (elements, dictionary) = rows(map.require("branch.dictionary")?, inputs.dim())?;
    let size = hyperparameters.kernel.columns() + elements;
    Ok(Snapshot {
        critic: values.critic.clone(),
        hyperparameters,
        inputs,
        dictionary,
        weights: DMatrix::zeros(size, 0),
        variance: None,
        log_evidence: None,
        score: None,
        returns: None,
        actions: None,
        heads: Some(heads::heads(map.require("branch.heads")?, size)?),
        branch: None,
        tracked: None,
        level: Vec::new(),
        mean: None,
        reward_names: Vec::new(),
        table: None,
        ..*values
    })
}

/// The function that values of states (`dim`,) were learned about, which may have `most - 1` more behind it.
fn mean(field: Field<'_>, dim: usize, most: usize) -> Result<Snapshot, WireError> {
    if most == 0 {
        return Err(out_of_range("mean.mean", format!("at most {MEANS_MAX} means may stand one behind the other")));
    }
    let map = nested(field, &MEAN_KEYS, "mean.")?;
    let inputs_field = map.require("mean.inputs")?;
    let inputs = inputs(inputs_field)?;
    if inputs.dim() != dim {
        let message = format!("must have {dim} state variables, has {}", inputs.dim());
        return Err(WireError::of(ErrorCode::WrongShape, inputs_field.name, message));
    }
    let kernel = kernel(map.require("mean.kernel")?, Some(dim))?;
    let (elements, dictionary) = rows(map.require("mean.dictionary")?, dim)?;
    let weights = weights(map.require("mean.weights")?, kernel.columns() + elements)?;
    let level = level(map.get("mean.level"), &weights)?;
    let discount = share(map.require("mean.discount")?)?;
    let behind = map.get("mean.mean").map(|field| mean(field, dim, most - 1)).transpose()?;
    if let Some(behind) = behind.as_ref().filter(|behind| behind.weights.ncols() != weights.ncols()) {
        let message = format!("must have {} numbers per row, has {}", weights.ncols(), behind.weights.ncols());
        return Err(WireError::of(ErrorCode::WrongShape, "mean.weights", message));
    }
    Ok(Snapshot {
        inputs,
        level,
        mean: behind.map(Arc::new),
        ..Snapshot::of_value(discount, kernel, dictionary, weights)
    })
}

/// What `before` becomes by a `weights` publication; `None` if it does not follow on it: another generation, or a
/// revision has been missed.
///
/// A variance that the publication leaves out stays, but for the scale of the kernel, which it follows.
///
/// # Errors
/// As [`decode_snapshot`].
pub fn decode_weights(bytes: &[u8], before: &Snapshot) -> Result<Option<Snapshot>, WireError> {
    let mut map = Fields::new(&WEIGHTS_KEYS, "");
    map.read_message(bytes)?;
    check_version(map.get("v"))?;
    let kind = map.require("type")?.string()?;
    if kind != "weights" {
        return Err(out_of_range("type", format!("must be \"weights\", is {}", excerpt(kind))));
    }
    let uint = |name| map.require(name)?.uint();
    let (critic, generation, revision) = (map.require("critic")?.string()?, uint("generation")?, uint("revision")?);
    if (critic, generation, revision) != (before.critic.as_str(), before.generation, before.revision + 1) {
        return Ok(None);
    }
    let dim = before.dim();
    let hyperparameters = hyperparameters(map.require("kernel")?, map.require("noise")?, Some(dim))?;
    let start = usize::try_from(uint("dictionary_start")?).unwrap_or(usize::MAX);
    if start > before.dictionary.nrows() {
        return Err(out_of_range("dictionary_start", format!("there are only {} rows", before.dictionary.nrows())));
    }
    let (new, rows_new) = rows(map.require("dictionary")?, dim)?;
    let mut dictionary = before.dictionary.clone().resize_vertically(start + new, 0.0);
    dictionary.rows_mut(start, new).copy_from(&rows_new);
    let size = hyperparameters.kernel.columns() + start + new;
    let weights = weights(map.require("weights")?, size)?;
    let (weights, returns) = with_returns(weights, map.get("returns"))?;
    let tracked = map.get("tracked").map(|field| tracked(field, size, weights.ncols())).transpose()?;
    let variance = match map.get("variance") {
        Some(field) => {
            let (found, variance) = rows(field, size)?;
            check_count(field.name, found, size)?;
            Some(variance)
        }
        // k' C k is in the unit of k, so C scales inversely to it.
        None => before
            .variance
            .as_ref()
            .filter(|c| c.nrows() == size)
            .map(|c| c * (before.hyperparameters.kernel.signal_variance / hyperparameters.kernel.signal_variance)),
    };
    let level = level(map.get("level"), &weights)?;
    let values = Snapshot {
        inputs: before.inputs.clone(),
        variance,
        returns,
        // Copies are of weights that are no more.
        actions: before
            .actions
            .as_ref()
            .map(|actions| Actions { prior_mean: actions.prior_mean, ..Actions::of(actions.space.clone()) }),
        tracked,
        level,
        mean: before.mean.clone(),
        reward_names: before.reward_names.clone(),
        table: before.table.clone(),
        ..Snapshot::of(before.discount, hyperparameters, dictionary, weights)
    };
    with_numbers(&map, values).map(Some)
}

/// Read a hyperparameter file, JSON or TOML: `{"kernel": {...}, "noise": {...}, "inputs"?: {...}}`. The relevance of
/// an isotropic kernel may be one number. Other keys are ignored, so that what `fit --json` prints is such a file.
///
/// # Errors
/// `malformed` with the place if the text is neither; else what is wrong with which field.
pub fn hyperparameters_from_str(text: &str) -> Result<HyperparameterFile, WireError> {
    let malformed = |e: &dyn std::fmt::Display| WireError::new(ErrorCode::Malformed, e.to_string());
    let value: Value = if text.trim_start().starts_with('{') {
        serde_json::from_str(text).map_err(|e| malformed(&e))?
    } else {
        toml::from_str(text).map_err(|e| malformed(&e))?
    };
    // One decoder for files and messages: the same checks, the same names in errors.
    let bytes = rmp_serde::to_vec(&value).expect("plain data into memory");
    let mut map = Fields::new(&FILE_KEYS, "");
    map.read_message(&bytes)?;
    let inputs = map.get("inputs").map(inputs).transpose()?;
    let dim = inputs.as_ref().map(Inputs::dim);
    let hyperparameters = hyperparameters(map.require("kernel")?, map.require("noise")?, dim)?;
    let lambda = map.get("lambda").map(number).transpose()?;
    if let Some(lambda) = lambda.filter(|lambda| !(0.0..=1.0).contains(lambda)) {
        return Err(out_of_range("lambda", format!("lambda lies in [0, 1], this one is {lambda}")));
    }
    let centred = map.get("level").map(finite_vector).transpose()?.is_some_and(|level| !level.is_empty());
    Ok(HyperparameterFile { hyperparameters, inputs, lambda, centred })
}

/// The content of a hyperparameter file, as JSON.
pub fn hyperparameters_to_json(hyperparameters: &Hyperparameters, inputs: Option<&Inputs>) -> Value {
    let (kernel, noise) = (KernelStatus::from(&hyperparameters.kernel), NoiseStatus::from(hyperparameters));
    let mut file = json!({"kernel": kernel, "noise": noise});
    if let Some(inputs) = inputs {
        file["inputs"] = json!(InputsStatus::from(inputs));
    }
    file
}

impl From<&Kernel> for KernelStatus {
    fn from(kernel: &Kernel) -> Self {
        let Kernel { signal_variance, bias_variance, metric, profile, kinds, columns } = kernel;
        let relevance = match metric {
            Metric::Isotropic(relevance) => Relevance::Common(*relevance),
            Metric::Ard(relevance) | Metric::Factor { relevance, .. } => Relevance::Each(relevance.clone()),
        };
        let mut status = Self {
            kind: metric.kind().to_owned(),
            profile: profile.name().to_owned(),
            signal_variance: *signal_variance,
            bias_variance: *bias_variance,
            kinds: kinds.clone(),
            columns: columns.iter().map(|column| column.function).collect(),
            column_variances: columns.iter().map(|column| column.variance).collect(),
            relevance,
            ..Self::default()
        };
        if let Metric::Factor { relevance, factors } = metric {
            let directions = metric.directions(relevance.len());
            status.factors = Some(factors.clone());
            status.strengths = Some(directions.iter().map(|direction| direction.strength).collect());
            status.directions = Some(directions.into_iter().map(|direction| direction.vector).collect());
        }
        status
    }
}

impl From<&Hyperparameters> for NoiseStatus {
    fn from(hyperparameters: &Hyperparameters) -> Self {
        Self { model: hyperparameters.noise.name().to_owned(), variance: hyperparameters.noise_variance }
    }
}

impl From<&Inputs> for InputsStatus {
    fn from(inputs: &Inputs) -> Self {
        let Inputs { shift, scale, names } = inputs;
        Self { dim: inputs.dim() as u64, shift: shift.clone(), scale: scale.clone(), names: names.clone() }
    }
}

/// Models of programs that did not know of lambda were learned with 1.
fn lambda(field: Option<Field<'_>>) -> Result<f64, WireError> {
    field.map_or(Ok(1.0), share)
}

/// What is added to k_m' weights (H,); 0 if it is left out.
fn level(field: Option<Field<'_>>, weights: &DMatrix<f64>) -> Result<Vec<f64>, WireError> {
    let Some(field) = field else { return Ok(Vec::new()) };
    let level = finite_vector(field)?;
    // Lists of no rows do not tell H.
    if weights.nrows() > 0 {
        check_count(field.name, level.len(), weights.ncols())?;
    }
    Ok(level)
}

/// Weights (m, H) and the spread of returns that goes with them. Lists of no rows do not tell H: there the spread does.
fn with_returns(
    weights: DMatrix<f64>,
    field: Option<Field<'_>>,
) -> Result<(DMatrix<f64>, Option<ReturnSpread>), WireError> {
    let Some(field) = field else { return Ok((weights, None)) };
    let map = nested(field, &RETURNS_KEYS, "returns.")?;
    let (size, level_field) = (weights.nrows(), map.require("returns.level")?);
    let level = finite_vector(level_field)?;
    let weights = if size == 0 && !level.is_empty() { DMatrix::zeros(0, level.len()) } else { weights };
    let heads = weights.ncols();
    check_count(level_field.name, level.len(), heads)?;
    let floor = finite_vector(map.require("returns.floor")?)?;
    check_count("returns.floor", floor.len(), heads)?;
    if let Some(h) = floor.iter().position(|&v| v <= 0.0) {
        return Err(out_of_range("returns.floor", format!("must be positive, is {}", floor[h])).at(h));
    }
    let weights_field = map.require("returns.weights")?;
    let spread = self::weights(weights_field, size)?;
    if size > 0 && spread.ncols() != heads {
        let message = format!("must have {heads} numbers per row, has {}", spread.ncols());
        return Err(WireError::of(ErrorCode::WrongShape, weights_field.name, message));
    }
    let spread = if size > 0 { spread } else { DMatrix::zeros(0, heads) };
    let factor = positive(map.require("returns.factor")?)?;
    let pairs = map.require("returns.pairs")?.uint()?;
    let coverage = map.get("returns.coverage").map(share).transpose()?;
    Ok((weights, Some(ReturnSpread { level, weights: spread, floor, factor, pairs, coverage })))
}

/// The base of a mixture, of a dictionary of this size and `rewards` rewards, and how far the mixture is let in.
fn tracked(field: Field<'_>, size: usize, rewards: usize) -> Result<Tracked, WireError> {
    let map = nested(field, &TRACKED_KEYS, "tracked.")?;
    let base_field = map.require("tracked.base")?;
    let base = weights(base_field, size)?;
    // Lists of no rows do not tell H.
    if size > 0 && base.ncols() != rewards {
        let message = format!("must have {rewards} numbers per row, has {}", base.ncols());
        return Err(WireError::of(ErrorCode::WrongShape, base_field.name, message));
    }
    let base = if size > 0 { base } else { DMatrix::zeros(0, rewards) };
    let within = |name: &'static str, most: f64| {
        let field = map.require(name)?;
        let values = finite_vector(field)?;
        check_count(field.name, values.len(), rewards)?;
        match values.iter().position(|v| !(0.0..=most).contains(v)) {
            Some(h) => Err(out_of_range(field.name, format!("must lie in [0, {most}], is {}", values[h])).at(h)),
            None => Ok(values),
        }
    };
    Ok(Tracked { base, gate: within("tracked.gate", 1.0)?, half_life: within("tracked.half_life", f64::MAX)? })
}

fn inputs(field: Field<'_>) -> Result<Inputs, WireError> {
    let map = nested(field, &INPUTS_KEYS, "inputs.")?;
    let shift = finite_vector(map.require("inputs.shift")?)?;
    let scale = finite_vector(map.require("inputs.scale")?)?;
    let dim = shift.len();
    if dim == 0 {
        return Err(WireError::of(ErrorCode::WrongShape, "inputs.shift", "a state has at least one number"));
    }
    check_count("inputs.scale", scale.len(), dim)?;
    if let Some(i) = scale.iter().position(|&s| s <= 0.0) {
        return Err(out_of_range("inputs.scale", format!("must be positive, is {}", scale[i])).at(i));
    }
    if let Some(field) = map.get("inputs.dim")
        && field.uint()? != dim as u64
    {
        return Err(WireError::of(ErrorCode::WrongShape, "inputs.dim", format!("must be the length of shift, {dim}")));
    }
    let names = map.get("inputs.names").map(names).transpose()?;
    if let Some(names) = &names {
        check_count("inputs.names", names.len(), dim)?;
    }
    Ok(Inputs { shift, scale, names })
}

fn hyperparameters(kernel: Field<'_>, noise: Field<'_>, dim: Option<usize>) -> Result<Hyperparameters, WireError> {
    let noise = nested(noise, &NOISE_KEYS, "noise.")?;
    let word = noise.require("noise.model")?.string()?;
    let model = NoiseModel::from_name(word).ok_or_else(|| {
        out_of_range("noise.model", format!("must be \"correlated\" or \"white\", is {}", excerpt(word)))
    })?;
    let noise_variance = positive(noise.require("noise.variance")?)?;
    Ok(Hyperparameters { kernel: self::kernel(kernel, dim)?, noise: model, noise_variance })
}

fn kernel(field: Field<'_>, dim: Option<usize>) -> Result<Kernel, WireError> {
    let map = nested(field, &KERNEL_KEYS, "kernel.")?;
    let signal_variance = positive(map.require("kernel.signal_variance")?)?;
    let bias_variance = number(map.require("kernel.bias_variance")?)?;
    if bias_variance < 0.0 {
        return Err(out_of_range("kernel.bias_variance", format!("must not be negative, is {bias_variance}")));
    }
    let relevance_field = map.require("kernel.relevance")?;
    let metric = match map.require("kernel.kind")?.string()? {
        "isotropic" => Metric::Isotropic(isotropic(relevance_field, dim)?),
        "ard" => Metric::Ard(relevance(relevance_field, dim)?),
        "factor" => {
            let relevance = relevance(relevance_field, dim)?;
            let (_, factors) = rows(map.require("kernel.factors")?, relevance.len())?;
            let factors = factors.row_iter().map(|row| row.iter().copied().collect()).collect();
            Metric::Factor { relevance, factors }
        }
        other => {
            let message = format!("must be \"isotropic\", \"ard\" or \"factor\", is {}", excerpt(other));
            return Err(out_of_range("kernel.kind", message));
        }
    };
    let profile = match map.get("kernel.profile") {
        None => Profile::Gaussian,
        Some(field) => {
            let word = field.string()?;
            Profile::from_name(word).ok_or_else(|| {
                out_of_range(field.name, format!("must be \"gaussian\" or \"matern52\", is {}", excerpt(word)))
            })?
        }
    };
    let kinds = map.get("kernel.kinds").map(kinds).transpose()?.unwrap_or_default();
    // Only the relevance of an isotropic kernel does not say how many state variables there are.
    let dim = dim.or_else(|| (metric.kind() != "isotropic").then(|| metric.relevance(0).len()));
    if let Some(dim) = dim.filter(|_| !kinds.is_empty()) {
        check_count("kernel.kinds", kinds.len(), dim)?;
    }
    let kernel = Kernel::gaussian(signal_variance, bias_variance, metric).with_profile(profile).with_kinds(&kinds);
    let columns = columns(map.get("kernel.columns"), map.get("kernel.column_variances"), dim, &kernel.kinds)?;
    Ok(Kernel { columns, ..kernel })
}

/// The explicit columns (q,) of states (`dim`,) of these kinds; none where they are left out.
fn columns(
    functions: Option<Field<'_>>,
    variances: Option<Field<'_>>,
    dim: Option<usize>,
    kinds: &[StateKind],
) -> Result<Vec<GivenColumn>, WireError> {
    let Some(field) = functions else { return Ok(Vec::new()) };
    let words = names(field)?;
    let variances = match variances {
        Some(field) => finite_vector(field)?,
        None => Vec::new(),
    };
    check_count("kernel.column_variances", variances.len(), words.len())?;
    let dim = dim.unwrap_or(usize::MAX);
    let column = |(i, (word, variance)): (usize, (String, f64))| {
        let function = word.parse().map_err(|e: String| out_of_range(field.name, e).at(i))?;
        let column = GivenColumn { function, variance };
        if variance <= 0.0 {
            let message = format!("must be positive, is {variance}");
            return Err(out_of_range("kernel.column_variances", message).at(i));
        }
        if !column.is_of(dim, kinds) {
            let message = format!(
                "no state variable for {}: linear and bounded are of a real or bent one, cosine and sine of a periodic one",
                excerpt(&word)
            );
            return Err(out_of_range(field.name, message).at(i));
        }
        Ok(column)
    };
    words.into_iter().zip(variances).enumerate().map(column).collect()
}

/// (D,); an empty list stands for all real.
fn kinds(field: Field<'_>) -> Result<Vec<StateKind>, WireError> {
    let kind = |(i, word): (usize, String)| word.parse().map_err(|e: String| out_of_range(field.name, e).at(i));
    names(field)?.into_iter().enumerate().map(kind).collect()
}

fn relevance(field: Field<'_>, dim: Option<usize>) -> Result<Vec<f64>, WireError> {
    let values = finite_vector(field)?;
    check_count(field.name, values.len(), dim.unwrap_or(values.len().max(1)))?;
    match values.iter().position(|&a| a < 0.0) {
        Some(i) => Err(out_of_range(field.name, format!("must not be negative, is {}", values[i])).at(i)),
        None => Ok(values),
    }
}

/// One number, or the same one for every coordinate.
fn isotropic(field: Field<'_>, dim: Option<usize>) -> Result<f64, WireError> {
    if field.tensor::<f64>(Vec::new())?.shape == Shape::Scalar {
        return positive(field);
    }
    let values = relevance(field, dim)?;
    if values[0] <= 0.0 {
        return Err(out_of_range(field.name, "must be positive, is 0").at(0));
    }
    match values.iter().position(|&a| a != values[0]) {
        Some(i) => Err(out_of_range(field.name, "an isotropic kernel has one relevance for all coordinates").at(i)),
        None => Ok(values[0]),
    }
}
