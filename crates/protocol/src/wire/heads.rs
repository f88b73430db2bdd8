//! Heads as files, messages and configurations write them.

use super::bodies::{InputsBody, KernelBody, NoiseBody};
use super::checks::{check_count, finite_vector, nested, rows};
use super::reader::{Field, Head as Kind};
use super::tensor::WrittenTensor;
use super::{ArrayForm, ErrorCode, WireError};
use criticd_learner::LabelPart;
use criticd_learner::heads::{
    Continuation, Cumulant, Expression, Head, HeadBasis, HeadEvaluation, HeadVerdict, HeadsSnapshot, NAME_MAX, Rate,
    Verified,
};
use criticd_learner::snapshot::Snapshot;
use nalgebra::DMatrix;
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Number of a set of labels of which a head says the name alone.
pub const UNKNOWN_LABELS: u64 = u64::MAX;
/// Bytes of a head in a message.
const HEAD_BYTES_MAX: usize = 16_384;
const HEADS_KEYS: [&str; 10] = [
    "heads.heads",
    "heads.weights",
    "heads.signals",
    "heads.ratios",
    "heads.weightings",
    "heads.level",
    "heads.bases",
    "heads.factors",
    "heads.pairs",
    "heads.coverage",
];
const LABELS_KEYS: [&str; 4] = ["labels.name", "labels.from", "labels.offsets", "labels.values"];
const BASIS_KEYS: [&str; 2] = ["heads.bases.vectors", "heads.bases.values"];

/// A cumulant as it is written: `{"kind": "reward", "index": 0}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum CumulantForm {
    Reward {
        index: usize,
    },
    State {
        index: usize,
    },
    NextState {
        index: usize,
    },
    Action {
        index: usize,
    },
    Constant {
        value: f64,
    },
    Event {
        index: usize,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        above: Option<f64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        below: Option<f64>,
    },
    Expression {
        text: Expression,
    },
    Label {
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<u64>,
    },
    Column {
        file: String,
        column: String,
    },
}

/// A continuation as it is written; instead of a constant there may be a number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum ContinuationForm {
    Constant {
        value: f64,
    },
    Inside {
        index: usize,
        low: f64,
        high: f64,
        #[serde(default)]
        outside: f64,
    },
    Reward {
        index: usize,
    },
    Expression {
        text: Expression,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WeightForm {
    index: usize,
}

/// A head as it is written, `proto/README.md`, "Heads".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadForm {
    name: String,
    cumulant: CumulantForm,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    discount: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timescale: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    terminal_reward: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "continuation")]
    continuation: Option<ContinuationForm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weight: Option<WeightForm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    noise_variance: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signal: Option<f64>,
}

fn continuation<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ContinuationForm>, D::Error> {
    let written = Value::deserialize(from)?;
    match written.as_f64() {
        Some(value) => Ok(Some(ContinuationForm::Constant { value })),
        None => Option::deserialize(written).map_err(D::Error::custom),
    }
}

impl HeadForm {
    /// The head that it describes; one that names neither discount nor timescale has `discount`.
    ///
    /// # Errors
    /// If it names both.
    pub fn head(self, discount: f64) -> Result<Head, String> {
        let rate = match (self.discount, self.timescale) {
            (Some(_), Some(_)) => return Err("timescale: a head has this or a discount, not both".to_owned()),
            (None, Some(seconds)) => Rate::Timescale(seconds),
            (own, None) => Rate::Discount(own.unwrap_or(discount)),
        };
        let cumulant = match self.cumulant {
            CumulantForm::Reward { index } => Cumulant::Reward(index),
            CumulantForm::State { index } => Cumulant::State(index),
            CumulantForm::NextState { index } => Cumulant::NextState(index),
            CumulantForm::Action { index } => Cumulant::Action(index),
            CumulantForm::Constant { value } => Cumulant::Constant(value),
            CumulantForm::Event { index, above: Some(above), below: None } => Cumulant::Event { index, above },
            CumulantForm::Event { index, above: None, below: Some(below) } => Cumulant::EventBelow { index, below },
            CumulantForm::Event { .. } => {
                return Err("cumulant.above: an event has this or cumulant.below, one of them".to_owned());
            }
            CumulantForm::Expression { text } => Cumulant::Expression(text),
            CumulantForm::Label { name, id } => Cumulant::Label { name, id: id.unwrap_or(UNKNOWN_LABELS) },
            CumulantForm::Column { file, column } => {
                return Err(format!(
                    "cumulant.kind: a column of a file ({column} of {file}) is for `criticd fit --heads` and `criticd heads add`, which \
                     sends its values as labels"
                ));
            }
        };
        let continuation = match self.continuation {
            None => Continuation::Constant(1.0),
            Some(ContinuationForm::Constant { value }) => Continuation::Constant(value),
            Some(ContinuationForm::Inside { index, low, high, outside }) => {
                Continuation::Inside { index, low, high, outside }
            }
            Some(ContinuationForm::Reward { index }) => Continuation::Reward(index),
            Some(ContinuationForm::Expression { text }) => Continuation::Expression(text),
        };
        Ok(Head {
            continuation,
            terminal_reward: self.terminal_reward.unwrap_or(0.0),
            weight: self.weight.map(|weight| weight.index),
            noise_variance: self.noise_variance,
            signal: self.signal,
            ..Head::new(self.name, cumulant, rate)
        })
    }
}

impl From<&Head> for HeadForm {
    fn from(head: &Head) -> Self {
        let (discount, timescale) = match head.rate {
            Rate::Discount(discount) => (Some(discount), None),
            Rate::Timescale(seconds) => (None, Some(seconds)),
        };
        Self {
            name: head.name.clone(),
            cumulant: match head.cumulant.clone() {
                Cumulant::Reward(index) => CumulantForm::Reward { index },
                Cumulant::State(index) => CumulantForm::State { index },
                Cumulant::NextState(index) => CumulantForm::NextState { index },
                Cumulant::Action(index) => CumulantForm::Action { index },
                Cumulant::Constant(value) => CumulantForm::Constant { value },
                Cumulant::Event { index, above } => CumulantForm::Event { index, above: Some(above), below: None },
                Cumulant::EventBelow { index, below } => CumulantForm::Event { index, above: None, below: Some(below) },
                Cumulant::Expression(text) => CumulantForm::Expression { text },
                Cumulant::Label { name, id } => CumulantForm::Label { name, id: Some(id) },
            },
            discount,
            timescale,
            terminal_reward: (head.terminal_reward != 0.0).then_some(head.terminal_reward),
            continuation: match head.continuation.clone() {
                Continuation::Constant(1.0) => None,
                Continuation::Constant(value) => Some(ContinuationForm::Constant { value }),
                Continuation::Inside { index, low, high, outside } => {
                    Some(ContinuationForm::Inside { index, low, high, outside })
                }
                Continuation::Reward(index) => Some(ContinuationForm::Reward { index }),
                Continuation::Expression(text) => Some(ContinuationForm::Expression { text }),
            },
            weight: head.weight.map(|index| WeightForm { index }),
            noise_variance: head.noise_variance,
            signal: head.signal,
        }
    }
}

/// Read a file of heads: JSON, a list of them or an object with one under `heads`, or TOML with `[[heads]]`. Heads that name neither
/// discount nor timescale have `discount`.
///
/// # Errors
/// The head and the field at fault, and the reason.
pub fn heads_from_str(text: &str, discount: f64) -> Result<Vec<Head>, String> {
    heads_from_list(head_list_from_str(text)?, discount)
}

/// The list of heads in such a file, as it is written there.
///
/// # Errors
/// If it is neither JSON nor TOML, or has no such list.
pub fn head_list_from_str(text: &str) -> Result<Value, String> {
    // Editors of Windows put a mark before the text.
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let looks_like_json = match text.strip_prefix('[') {
        Some(list) => list.trim_start().starts_with(['{', ']']),
        None => text.starts_with('{'),
    };
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(e) if looks_like_json => return Err(e.to_string()),
        Err(_) => toml::from_str(text).map_err(|e| e.to_string())?,
    };
    match value {
        Value::Object(mut keys) => keys.remove("heads").ok_or("heads: missing; a list of heads is needed".to_owned()),
        list => Ok(list),
    }
}

/// The heads of a list of maps. Heads that name neither discount nor timescale have `discount`.
///
/// # Errors
/// The head and the field at fault, and the reason.
pub fn heads_from_list(list: Value, discount: f64) -> Result<Vec<Head>, String> {
    let head = |(i, form): (usize, HeadForm)| {
        let name = form.name.clone();
        let head = match &form.cumulant {
            CumulantForm::Label { name, .. } => Err(format!(
                "cumulant.kind: the labels {name} belong to a running daemon; `change_heads` adds heads that learn from them"
            )),
            _ => form.head(discount),
        };
        head.map_err(|what| format!("heads[{i}] ({name}): {what}"))
    };
    forms_from_list(list)?.into_iter().enumerate().map(head).collect()
}

/// The heads in the field of a message. They are read one by one: what is no head takes little memory before it is refused.
pub(super) fn head_forms(field: Field<'_>) -> Result<Vec<HeadForm>, WireError> {
    let fault = |code, what: String| WireError::of(code, field.name, what);
    let mut reader = field.reader();
    let Kind::Array(count) = reader.head()? else {
        return Err(fault(ErrorCode::OutOfRange, "heads: not a list".to_owned()));
    };
    let form = |i| {
        let bytes = reader.value()?;
        if bytes.len() > HEAD_BYTES_MAX {
            let what = format!("heads[{i}]: a head has at most {HEAD_BYTES_MAX} bytes, this one {}", bytes.len());
            return Err(fault(ErrorCode::TooLarge, what));
        }
        let form = form_from_value(i, super::to_json(bytes)?).map_err(|what| fault(ErrorCode::OutOfRange, what))?;
        if form.name.len() > NAME_MAX {
            let what = format!("heads[{i}]: name: has at most {NAME_MAX} bytes, this one {}", form.name.len());
            return Err(fault(ErrorCode::TooLarge, what));
        }
        Ok(form)
    };
    (0..count).map(form).collect()
}

/// A piece of labels in the field of a message.
pub(super) fn label_part(field: Field<'_>, most: usize) -> Result<LabelPart, WireError> {
    let map = nested(field, &LABELS_KEYS, "labels.")?;
    let name = map.require("labels.name")?.string()?;
    if name.is_empty() || name.len() > NAME_MAX {
        let what = format!("has 1 to {NAME_MAX} bytes, this one {}", name.len());
        return Err(WireError::of(ErrorCode::OutOfRange, "labels.name", what));
    }
    let offsets = finite_vector(map.require("labels.offsets")?)?;
    if offsets.len() > most {
        let what = format!("at most {most} labels go into a message, these are {}", offsets.len());
        return Err(WireError::of(ErrorCode::TooLarge, "labels.offsets", what));
    }
    // Offsets above are not exact as floating point numbers, and no journal gets there.
    let whole = |offset: &f64| (0.0..9_007_199_254_740_992.0).contains(offset) && offset.fract() == 0.0;
    if let Some(i) = offsets.iter().position(|offset| !whole(offset)) {
        return Err(WireError::of(ErrorCode::OutOfRange, "labels.offsets", "must be whole numbers from 0").at(i));
    }
    Ok(LabelPart {
        name: name.to_owned(),
        from: map.get("labels.from").map_or(Ok(0), |field| field.uint())?,
        offsets: offsets.into_iter().map(|offset| offset as u64).collect(),
        values: finite_vector(map.require("labels.values")?)?,
    })
}

fn forms_from_list(list: Value) -> Result<Vec<HeadForm>, String> {
    let Value::Array(list) = list else { return Err("heads: not a list".to_owned()) };
    list.into_iter().enumerate().map(|(i, value)| form_from_value(i, value)).collect()
}

/// One head of a list.
fn form_from_value(i: usize, value: Value) -> Result<HeadForm, String> {
    let name = value.get("name").and_then(Value::as_str).map(|name| format!(" ({name})")).unwrap_or_default();
    let form: Result<HeadForm, _> = serde_path_to_error::deserialize(value);
    form.map_err(|e| {
        let path = e.path().to_string();
        let place = if path == "." { String::new() } else { format!("{path}: ") };
        format!("heads[{i}]{name}: {place}{}", e.inner())
    })
}

/// A head as `heads` lists it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListedHead {
    /// Its definition.
    #[serde(flatten)]
    pub form: HeadForm,
    /// Whether it was added at run time and is not in the configuration.
    pub added: bool,
    /// Whether it has not the kernel of the values but the second one; only written where it has.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
    /// Whether it has learned its rows and still has no answer, since it cannot be solved for; only written where that is so.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unsolved: bool,
    /// Share of the rows that it has learned, while it is not ready yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learning: Option<f64>,
    /// Offset of the first row that it has learned, or that it learns first while it is not ready; none where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_row: Option<u64>,
    /// What has been verified of it, once that is enough.
    #[serde(flatten)]
    pub verified: Option<VerdictForm>,
}

/// What has been verified of a head, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct VerdictForm {
    pairs: usize,
    coverage: f64,
    bias: f64,
    unexplained: Option<f64>,
    factor: f64,
}

impl From<HeadVerdict> for VerdictForm {
    fn from(verdict: HeadVerdict) -> Self {
        let HeadVerdict { pairs, coverage, bias, unexplained, factor } = verdict;
        Self { pairs, coverage, bias, unexplained, factor }
    }
}

/// The answers of heads for the states of a `value` request.
#[derive(Clone, Debug)]
pub struct HeadAnswers<'a> {
    /// Their names, in the order of the columns.
    pub names: Vec<&'a str>,
    /// Their answers.
    pub evaluation: &'a HeadEvaluation,
    /// Whether its variance is asked for.
    pub variance: bool,
    /// Variance of a single return (n, H), where that is asked for.
    pub return_variance: Option<DMatrix<f64>>,
    /// What has been verified of the returns of each (H,), where `return_variance` is there.
    pub verified: Option<Vec<Verified>>,
    /// Those that are not ready yet, with the share of the rows that they have learned.
    pub learning: Vec<(&'a str, f64)>,
}

/// [`HeadAnswers`] as they are written.
#[derive(Serialize)]
pub(super) struct HeadAnswersBody<'a> {
    names: &'a [&'a str],
    mean: WrittenTensor<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    variance: Option<WrittenTensor<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    return_variance: Option<WrittenTensor<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pairs: Option<Vec<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    coverage: Option<WrittenTensor<'a>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    learning: BTreeMap<&'a str, f64>,
}

impl<'a> HeadAnswersBody<'a> {
    pub(super) fn new(answers: &'a HeadAnswers<'a>, form: ArrayForm) -> Self {
        let HeadEvaluation { mean, variance } = answers.evaluation;
        let matrix = |values: &'a DMatrix<f64>| WrittenTensor::matrix(values, 0, form);
        Self {
            names: &answers.names,
            mean: matrix(mean),
            variance: variance.as_ref().filter(|_| answers.variance).map(matrix),
            return_variance: answers.return_variance.as_ref().map(matrix),
            pairs: answers.verified.as_deref().map(pairs),
            coverage: answers.verified.as_deref().map(|of| coverage(of, form)),
            learning: answers.learning.iter().copied().collect(),
        }
    }
}

/// Verified pairs of each head.
fn pairs(verified: &[Verified]) -> Vec<u64> {
    verified.iter().map(|of| of.pairs).collect()
}

/// Coverage of each head, NaN where nothing is known.
fn coverage(verified: &[Verified], form: ArrayForm) -> WrittenTensor<'_> {
    WrittenTensor::of(verified.len(), 1, |h, _| verified[h].coverage.unwrap_or(f64::NAN), form).flat()
}

/// The heads of a snapshot, as it is written.
#[derive(Serialize)]
pub(super) struct HeadsBody<'a> {
    heads: Vec<HeadForm>,
    weights: WrittenTensor<'a>,
    signals: WrittenTensor<'a>,
    ratios: WrittenTensor<'a>,
    weightings: &'a [usize],
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<WrittenTensor<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bases: Vec<BasisBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    factors: Option<WrittenTensor<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pairs: Option<Vec<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    coverage: Option<WrittenTensor<'a>>,
}

#[derive(Serialize)]
struct BasisBody<'a> {
    vectors: WrittenTensor<'a>,
    values: WrittenTensor<'a>,
}

impl<'a> HeadsBody<'a> {
    pub(super) fn new(heads: &'a HeadsSnapshot, form: ArrayForm, variance: bool) -> Self {
        let basis = |basis: &'a HeadBasis| BasisBody {
            vectors: WrittenTensor::matrix(&basis.vectors, 0, form),
            values: WrittenTensor::vector(&basis.values, form),
        };
        let HeadsSnapshot { verified, .. } = heads;
        let factors = || WrittenTensor::of(verified.len(), 1, |h, _| verified[h].factor, form).flat();
        let level = || WrittenTensor::of(verified.len(), 1, |h, _| heads.heads[h].level, form).flat();
        let is_known = verified.iter().any(|of| of.pairs > 0);
        Self {
            heads: heads.heads.iter().map(HeadForm::from).collect(),
            weights: WrittenTensor::matrix(&heads.weights, 0, form),
            signals: WrittenTensor::vector(&heads.signals, form),
            ratios: WrittenTensor::vector(&heads.ratios, form),
            weightings: &heads.weightings,
            level: heads.has_levels().then(level),
            bases: heads.bases.iter().filter(|_| variance).map(basis).collect(),
            factors: verified.iter().any(|of| of.factor != 1.0).then(factors),
            pairs: is_known.then(|| pairs(verified)),
            coverage: is_known.then(|| coverage(verified, form)),
        }
    }
}

/// The heads of a snapshot that have a kernel of their own, as they are written.
#[derive(Serialize)]
pub(super) struct BranchBody<'a> {
    noise: NoiseBody,
    kernel: KernelBody<'a>,
    inputs: InputsBody<'a>,
    dictionary: WrittenTensor<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    heads: Option<HeadsBody<'a>>,
}

impl<'a> BranchBody<'a> {
    pub(super) fn new(branch: &'a Snapshot, form: ArrayForm, variance: bool) -> Self {
        let Snapshot { hyperparameters, inputs, dictionary, heads, .. } = branch;
        Self {
            noise: NoiseBody::from(hyperparameters),
            kernel: KernelBody::new(hyperparameters, branch.dim(), form),
            inputs: InputsBody::new(inputs, form),
            dictionary: WrittenTensor::matrix(dictionary, 0, form),
            heads: heads.as_ref().map(|heads| HeadsBody::new(heads, form, variance)),
        }
    }
}

/// The heads of a snapshot whose dictionary has `size` elements.
pub(super) fn heads(field: Field<'_>, size: usize) -> Result<HeadsSnapshot, WireError> {
    let map = nested(field, &HEADS_KEYS, "heads.")?;
    let list = map.require("heads.heads")?;
    let forms: Vec<HeadForm> = rmp_serde::from_slice(list.bytes())
        .map_err(|e| WireError::of(ErrorCode::WrongType, list.name, e.to_string()))?;
    let read = |form: HeadForm| form.head(1.0).map_err(|e| WireError::of(ErrorCode::OutOfRange, list.name, e));
    let mut heads = forms.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let count = heads.len();
    if let Some(field) = map.get("heads.level") {
        let levels = finite_vector(field)?;
        check_count("heads.level", levels.len(), count)?;
        heads.iter_mut().zip(levels).for_each(|(head, level)| head.level = level);
    }
    let (found, weights) = rows(map.require("heads.weights")?, count)?;
    check_count("heads.weights", found, size)?;
    let positive = |field: Field<'_>| -> Result<Vec<f64>, WireError> {
        let (name, values) = (field.name, finite_vector(field)?);
        check_count(name, values.len(), count)?;
        match values.iter().position(|&v| v <= 0.0) {
            Some(h) => Err(WireError::of(ErrorCode::OutOfRange, name, "must be positive").at(h)),
            None => Ok(values),
        }
    };
    let bases = match map.get("heads.bases") {
        None => Vec::new(),
        Some(field) => {
            let mut reader = field.reader();
            let Kind::Array(length) = reader.head()? else {
                return Err(WireError::of(ErrorCode::WrongType, field.name, "must be an array of bases"));
            };
            (0..length).map(|_| basis(Field::new(field.name, reader.value()?), size)).collect::<Result<Vec<_>, _>>()?
        }
    };
    let weightings = finite_vector(map.require("heads.weightings")?)?;
    check_count("heads.weightings", weightings.len(), count)?;
    let known = |&w: &f64| w >= 0.0 && w.fract() == 0.0 && (bases.is_empty() || (w as usize) < bases.len());
    if let Some(h) = weightings.iter().position(|w| !known(w)) {
        return Err(WireError::of(ErrorCode::OutOfRange, "heads.weightings", "must be the number of a basis").at(h));
    }
    let factors = map.get("heads.factors").map_or_else(|| Ok(vec![1.0; count]), positive)?;
    let verified = verified(factors, map.get("heads.pairs"), map.get("heads.coverage"))?;
    Ok(HeadsSnapshot {
        heads: heads.into(),
        weights,
        signals: positive(map.require("heads.signals")?)?,
        ratios: positive(map.require("heads.ratios")?)?,
        weightings: weightings.into_iter().map(|w| w as usize).collect(),
        bases,
        verified,
    })
}

/// What `heads.pairs` and `heads.coverage` say of the heads, in the order of these factors.
fn verified(
    factors: Vec<f64>,
    pairs: Option<Field<'_>>,
    coverage: Option<Field<'_>>,
) -> Result<Vec<Verified>, WireError> {
    let count = factors.len();
    let numbers = |field: Option<Field<'_>>, none: f64, fits: fn(f64) -> bool, what: &str| match field {
        None => Ok(vec![none; count]),
        Some(field) => {
            let values: Vec<f64> = field.vector(Vec::new())?;
            check_count(field.name, values.len(), count)?;
            match values.iter().position(|&v| !fits(v)) {
                Some(h) => Err(WireError::of(ErrorCode::OutOfRange, field.name, what).at(h)),
                None => Ok(values),
            }
        }
    };
    let pairs = numbers(pairs, 0.0, |v| v >= 0.0 && v.fract() == 0.0, "must be a count")?;
    let share = |v: f64| v.is_nan() || (0.0..=1.0).contains(&v);
    let coverage = numbers(coverage, f64::NAN, share, "must lie in [0, 1], or be NaN where nothing is known")?;
    let of = |h: usize| Verified {
        factor: factors[h],
        pairs: pairs[h] as u64,
        coverage: Some(coverage[h]).filter(|share| !share.is_nan()),
    };
    Ok((0..count).map(of).collect())
}

fn basis(field: Field<'_>, size: usize) -> Result<HeadBasis, WireError> {
    let map = nested(field, &BASIS_KEYS, "heads.bases.")?;
    let (found, vectors) = rows(map.require("heads.bases.vectors")?, size)?;
    check_count("heads.bases.vectors", found, size)?;
    let values = finite_vector(map.require("heads.bases.values")?)?;
    check_count("heads.bases.values", values.len(), size)?;
    match values.iter().position(|&v| v < 0.0) {
        Some(j) => Err(WireError::of(ErrorCode::OutOfRange, "heads.bases.values", "must not be negative").at(j)),
        None => Ok(HeadBasis { vectors, values }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let json = r#"[{"name": "a", "cumulant": {"kind": "reward", "index": 0}, "discount": 0.9},
            {"name": "b", "cumulant": {"kind": "event", "index": 1, "above": 0.5}, "timescale": 2.0,
             "continuation": {"kind": "inside", "index": 0, "low": -1.0, "high": 1.0}, "terminal_reward": 1.5,
             "weight": {"index": 2}, "noise_variance": 0.25, "signal": 2.0},
            {"name": "c", "cumulant": {"kind": "expression", "text": "reward - 0.1*action[1] + state[0]/2"}, "discount": 1,
             "continuation": {"kind": "expression", "text": "1 - next_state[0]"}},
            {"name": "d", "cumulant": {"kind": "state", "index": 0}, "continuation": 0.75},
            {"name": "e", "cumulant": {"kind": "event", "index": 1, "below": -0.5}}]"#;
        let toml = r#"
            [[heads]]
            name = "a"
            cumulant = { kind = "reward", index = 0 }
            discount = 0.9
            [[heads]]
            name = "b"
            cumulant = { kind = "event", index = 1, above = 0.5 }
            timescale = 2.0
            continuation = { kind = "inside", index = 0, low = -1.0, high = 1.0, outside = 0.0 }
            terminal_reward = 1.5
            weight = { index = 2 }
            noise_variance = 0.25
            signal = 2.0
            [[heads]]
            name = "c"
            cumulant = { kind = "expression", text = "reward - 0.1*action[1] + state[0]/2" }
            discount = 1.0
            continuation = { kind = "expression", text = "1 - next_state[0]" }
            [[heads]]
            name = "d"
            cumulant = { kind = "state", index = 0 }
            continuation = { kind = "constant", value = 0.75 }
            [[heads]]
            name = "e"
            cumulant = { kind = "event", index = 1, below = -0.5 }
        "#;
        let heads = heads_from_str(json, 0.5).unwrap();
        assert_eq!(heads, heads_from_str(toml, 0.5).unwrap());
        assert_eq!(heads, heads_from_str(&format!("{{\"heads\": {json}}}"), 0.5).unwrap());
        let written: Vec<HeadForm> = heads.iter().map(HeadForm::from).collect();
        assert_eq!(heads, heads_from_str(&serde_json::to_string(&written).unwrap(), 0.5).unwrap());
        let bare = r#"[{"name": "a", "cumulant": {"kind": "constant", "value": 1}}]"#;
        assert_eq!(heads_from_str(bare, 0.5).unwrap()[0].rate, Rate::Discount(0.5));
    }

    #[test]
    fn faults_name_head_and_field() {
        for (text, words) in [
            ("[{\"name\": \"a\"}]", vec!["heads[0] (a)", "cumulant"]),
            ("[{\"name\": \"a\", \"cumulant\": {\"kind\": \"rewrd\"}}]", vec!["cumulant", "rewrd", "next_state"]),
            ("[{\"name\": \"a\", \"cumulant\": {\"kind\": \"reward\"}}]", vec!["cumulant", "index"]),
            (
                "[{\"name\": \"a\", \"cumulant\": {\"kind\": \"reward\", \"index\": 0}, \"discont\": 1}]",
                vec!["discont", "discount"],
            ),
            (
                "[{\"name\": \"a\", \"cumulant\": {\"kind\": \"reward\", \"index\": 0}, \"discount\": 1, \"timescale\": 1}]",
                vec!["timescale", "not both"],
            ),
            (
                "[{\"name\": \"a\", \"cumulant\": {\"kind\": \"reward\", \"index\": 0}, \"signal\": \"x\"}]",
                vec!["signal", "invalid type"],
            ),
            (
                "[{\"name\": \"a\", \"cumulant\": {\"kind\": \"expression\", \"text\": \"reward + cost\"}}]",
                vec!["heads[0] (a)", "cumulant", "there is no cost"],
            ),
            (
                "[{\"name\": \"a\", \"cumulant\": {\"kind\": \"event\", \"index\": 0}}]",
                vec!["cumulant.above", "one of them"],
            ),
            (
                "[{\"name\": \"a\", \"cumulant\": {\"kind\": \"event\", \"index\": 0, \"above\": 1, \"below\": 1}}]",
                vec!["heads[0] (a)", "cumulant.below"],
            ),
            ("{\"heds\": []}", vec!["heads: missing"]),
            ("3", vec!["not a list"]),
        ] {
            let message = heads_from_str(text, 0.9).unwrap_err();
            words.iter().for_each(|word| assert!(message.contains(word), "{message}"));
        }
    }
}
