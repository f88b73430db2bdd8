//! A value function as an ONNX graph, for runtimes that know nothing of `criticd`.
//!
//! The input is `states` (n, D), 64-bit floats in the units of the rows; the graph normalises them. The outputs are `mean`,
//! and `std`, `known` and `return_std` where the snapshot has them: value, its standard deviation, the share of the signal's variance
//! that rows have removed, and the standard deviation of a single return. Each is (n,), or (n, H) with several rewards, but `std` and
//! `known` are always (n,). The answers of heads are the outputs
//! `heads`, `heads_std` and
//! `heads_return_std`, a column for each, in the order of their names in the metadata. The Python client's `Snapshot.to_onnx` has this file written.

mod graph;
mod proto;

use crate::learner::heads::{HeadBasis, HeadsSnapshot};
use crate::math::columns::{BOUND, GivenFunction};
use crate::math::embedding::{Bend, StateKind};
use crate::math::kernel::{Kernel, Profile};
use crate::snapshot::Snapshot;
use crate::wire;
use graph::{Array, Graph};
use nalgebra::DMatrix;
use proto::ProtoMessage;
use std::f64::consts::TAU;

/// Version of the operators: of 2021, which has all that is needed.
const OPSET: i64 = 17;
/// Version of the file format: of 2022, which runtimes of today and most on devices read.
const IR_VERSION: i64 = 8;
/// Scaled distances are cut off here: exp(-r) is 0 long before, and 0 times infinity is no number.
const DISTANCE_MAX: f64 = 1e3;

/// The bytes of an ONNX file that evaluates `snapshot`: the mean of (P9), and the deviations of (V1) and (T4) in
/// `docs/mathematics.md`, for heads (H8).
pub fn encode(snapshot: &Snapshot) -> Vec<u8> {
    let mut graph = Graph::default();
    let k = kernel_rows_of_states(&mut graph, snapshot);
    values(&mut graph, snapshot, &k);
    heads(&mut graph, snapshot, &k);
    let graph = graph.finish("value", "states", snapshot.dim());
    let operators = ProtoMessage::default().text(1, "").int(2, OPSET);
    let fact = |(key, value): (&str, String)| ProtoMessage::default().text(1, key).text(2, &value);
    let names: Vec<&str> = snapshot.all_heads().map(|head| head.name.as_str()).collect();
    let heads = (!names.is_empty()).then(|| ("heads", serde_json::json!(names).to_string()));
    // Their coordinates stand behind the state's in the input.
    let actions = snapshot.actions.as_ref().map(|of| ("actions", wire::action_space_to_json(&of.space).to_string()));
    let facts: Vec<ProtoMessage> = facts(snapshot).into_iter().chain(heads).chain(actions).map(fact).collect();
    // A `ModelProto`.
    let model = ProtoMessage::default().int(1, IR_VERSION).text(2, "criticd").text(3, env!("CARGO_PKG_VERSION"));
    let model = model.text(6, "Value function learned by criticd: expected discounted sum of rewards from a state on.");
    model.message(7, &graph).message(8, &operators).messages(14, &facts).into_bytes()
}

/// What the file says of its model, besides the graph.
fn facts(snapshot: &Snapshot) -> [(&'static str, String); 10] {
    [
        ("critic", snapshot.critic.clone()),
        ("generation", snapshot.generation.to_string()),
        ("revision", snapshot.revision.to_string()),
        ("offset", snapshot.offset.to_string()),
        ("transitions", snapshot.transitions.to_string()),
        ("time", format!("{:?}", snapshot.time)),
        ("discount", format!("{:?}", snapshot.discount)),
        ("lambda", format!("{:?}", snapshot.lambda)),
        ("provisional", snapshot.provisional.to_string()),
        ("state_names", snapshot.inputs.names.as_deref().unwrap_or_default().join(",")),
    ]
}

/// k_m(z) (n, m), from the input `states`.
fn kernel_rows_of_states(graph: &mut Graph, snapshot: &Snapshot) -> String {
    let shift = graph.constant(Array::row(&snapshot.inputs.shift));
    let scale = graph.constant(Array::row(&snapshot.inputs.scale));
    let moved = graph.node("Sub", &["states", &shift]);
    let normalised = graph.node("Div", &[&moved, &scale]);
    kernel_rows(graph, &snapshot.hyperparameters.kernel, &normalised, snapshot)
}

/// The outputs of the rewards, from the kernel rows k (n, m).
fn values(graph: &mut Graph, snapshot: &Snapshot, k: &str) {
    let (kernel, rewards) = (&snapshot.hyperparameters.kernel, snapshot.weights.ncols());
    let last = graph.constant(Array::indices(&[1]));
    let each = |graph: &mut Graph, name: &str, source: &str| {
        if rewards == 1 {
            let flat = graph.node("Squeeze", &[source, &last]);
            graph.output(name, &flat, None);
        } else {
            graph.output(name, source, Some(rewards));
        }
    };
    let mean = mean(graph, snapshot, k);
    each(graph, "mean", &mean);
    let Some(covariance) = &snapshot.variance else { return };
    let covariance = graph.constant(Array::matrix(covariance));
    let half = graph.node("MatMul", &[k, &covariance]);
    let product = graph.node("Mul", &[&half, k]);
    let explained = graph.sum(&product, &last, true);
    let (prior, zero) = (prior(graph, kernel, k), graph.number(0.0));
    let left = graph.node("Sub", &[&prior, &explained]);
    let variance = graph.node("Max", &[&left, &zero]);
    let deviation = graph.node("Sqrt", &[&variance]);
    let deviation = graph.node("Squeeze", &[&deviation, &last]);
    graph.output("std", &deviation, None);
    let (signal, one) = (graph.number(kernel.signal_variance), graph.number(1.0));
    let share = graph.node("Div", &[&variance, &signal]);
    let known = graph.node("Sub", &[&one, &share]);
    let known = graph.node("Max", &[&known, &zero]);
    let known = graph.node("Squeeze", &[&known, &last]);
    graph.output("known", &known, None);
    let Some(spread) = &snapshot.returns else { return };
    let weights = graph.constant(Array::matrix(&spread.weights));
    let (level, floor) = (graph.constant(Array::row(&spread.level)), graph.constant(Array::row(&spread.floor)));
    let factor = graph.number(spread.factor);
    let scatter = graph.node("MatMul", &[k, &weights]);
    let scatter = graph.node("Add", &[&scatter, &level]);
    let scatter = graph.node("Max", &[&scatter, &floor]);
    let whole = graph.node("Add", &[&scatter, &variance]);
    let deviation = graph.node("Sqrt", &[&whole]);
    let deviation = graph.node("Mul", &[&deviation, &factor]);
    each(graph, "return_std", &deviation);
}

/// The values (n, H), from the kernel rows k (n, m).
fn mean(graph: &mut Graph, snapshot: &Snapshot, k: &str) -> String {
    let weights = graph.constant(Array::matrix(&snapshot.weights));
    let mut mean = graph.node("MatMul", &[k, &weights]);
    if let Some(prior_mean) = snapshot.actions.as_ref().map(|of| of.prior_mean).filter(|mean| *mean != 0.0) {
        let prior_mean = graph.number(prior_mean);
        mean = graph.node("Add", &[&mean, &prior_mean]);
    }
    if !snapshot.level.is_empty() {
        let level = graph.constant(Array::row(&snapshot.level));
        mean = graph.node("Add", &[&mean, &level]);
    }
    if let Some(of) = snapshot.mean.as_deref() {
        let k = kernel_rows_of_states(graph, of);
        let about = self::mean(graph, of, &k);
        mean = graph.node("Add", &[&mean, &about]);
    }
    mean
}

/// The outputs of all H heads, each (n, H); k (n, m) are the kernel rows of `snapshot`.
fn heads(graph: &mut Graph, snapshot: &Snapshot, k: &str) {
    let kernel = |of: &Snapshot| of.hyperparameters.kernel.clone();
    let mut parts: Vec<AnswersOfHeads> =
        snapshot.heads.iter().map(|of| heads_of_kernel(graph, of, k, &kernel(snapshot))).collect();
    if let Some(branch) = snapshot.branch.as_deref() {
        let k = kernel_rows_of_states(graph, branch);
        parts.extend(branch.heads.iter().map(|of| heads_of_kernel(graph, of, &k, &kernel(branch))));
    }
    let count = Some(snapshot.all_heads().count());
    let beside = |graph: &mut Graph, name: &str, parts: Vec<String>| match &parts[..] {
        [] => {}
        [part] => graph.output(name, part, count),
        _ => {
            let all = graph.concat(&parts);
            graph.output(name, &all, count);
        }
    };
    beside(graph, "heads", parts.iter().map(|part| part.mean.clone()).collect());
    if let Some(deviations) = parts.into_iter().map(|part| part.deviations).collect::<Option<Vec<_>>>() {
        let (of_values, of_returns) = deviations.into_iter().map(|[value, of_return]| (value, of_return)).unzip();
        beside(graph, "heads_std", of_values);
        beside(graph, "heads_return_std", of_returns);
    }
}

/// Names of what heads with one kernel say, each (n, H).
struct AnswersOfHeads {
    mean: String,
    /// Of the value and of a single return, where the snapshot has variances.
    deviations: Option<[String; 2]>,
}

/// What heads with this kernel say, from its rows k (n, m): variances share the products of a weighting, docs/mathematics.md (H8).
fn heads_of_kernel(graph: &mut Graph, of: &HeadsSnapshot, k: &str, kernel: &Kernel) -> AnswersOfHeads {
    let count = of.heads.len();
    let weights = graph.constant(Array::matrix(&of.weights));
    let mut mean = graph.node("MatMul", &[k, &weights]);
    if of.has_levels() {
        let levels = graph.constant(Array::row(&of.levels()));
        mean = graph.node("Add", &[&mean, &levels]);
    }
    let mut explained: Option<String> = None;
    for (number, HeadBasis { vectors, values }) in of.bases.iter().enumerate() {
        let share = |j: usize, h: usize| {
            if of.weightings[h] == number { values[j] / (values[j] + of.ratios[h]) } else { 0.0 }
        };
        let shares = graph.constant(Array::matrix(&DMatrix::from_fn(values.len(), count, share)));
        let vectors = graph.constant(Array::matrix(vectors));
        let images = graph.node("MatMul", &[k, &vectors]);
        let squares = graph.node("Mul", &[&images, &images]);
        let part = graph.node("MatMul", &[&squares, &shares]);
        explained = Some(match explained {
            Some(others) => graph.node("Add", &[&others, &part]),
            None => part,
        });
    }
    let Some(explained) = explained else { return AnswersOfHeads { mean, deviations: None } };
    let (prior, zero) = (prior(graph, kernel, k), graph.number(0.0));
    let left = graph.node("Sub", &[&prior, &explained]);
    let left = graph.node("Max", &[&left, &zero]);
    let noise: Vec<f64> = (0..count).map(|h| of.noise_variance(h)).collect();
    let factors: Vec<f64> = of.verified.iter().map(|verified| verified.factor).collect();
    let [signals, noise, factors] = [&of.signals, &noise, &factors].map(|row| graph.constant(Array::row(row)));
    let variance = graph.node("Mul", &[&left, &signals]);
    let deviation = graph.node("Sqrt", &[&variance]);
    let whole = graph.node("Add", &[&variance, &noise]);
    let whole = graph.node("Sqrt", &[&whole]);
    let whole = graph.node("Mul", &[&whole, &factors]);
    AnswersOfHeads { mean, deviations: Some([deviation, whole]) }
}

/// k_m(z) (n, m). Differences are squared one by one, as the daemon does: no cancellation.
fn kernel_rows(graph: &mut Graph, kernel: &Kernel, normalised: &str, snapshot: &Snapshot) -> String {
    let (dim, m) = (snapshot.dim(), snapshot.dictionary.nrows());
    let (middle, last) = (graph.constant(Array::indices(&[1])), graph.constant(Array::indices(&[2])));
    let categories: Vec<usize> = (0..dim).filter(|&d| kernel.kind_of(d) == StateKind::Category).collect();
    let (points, width) = projected(graph, kernel, normalised, dim);
    // What the kernel itself makes of the dictionary, without the categories, which stand last.
    let whole = kernel.project(dim, snapshot.dictionary.transpose().as_slice());
    let points_of_basis = whole.chunks_exact(kernel.projected_dim(dim));
    let basis = if width == 0 {
        Array::new([1, m, 1], std::iter::repeat_n(0.0, m))
    } else {
        Array::new([1, m, width], points_of_basis.flat_map(|point| &point[..width]).copied())
    };
    let basis = graph.constant(basis);
    let points = graph.node("Unsqueeze", &[&points, &middle]);
    let apart = graph.node("Sub", &[&points, &basis]);
    let squares = graph.node("Mul", &[&apart, &apart]);
    let mut squared = graph.sum(&squares, &last, false);
    if !categories.is_empty() {
        let chosen = graph.columns(normalised, &categories);
        let chosen = graph.node("Unsqueeze", &[&chosen, &middle]);
        let known = snapshot.dictionary.row_iter().flat_map(|row| categories.iter().map(move |&d| row[d]));
        let known = graph.constant(Array::new([1, m, categories.len()], known));
        let same = graph.node("Equal", &[&chosen, &known]);
        let differ = graph.node("Not", &[&same]);
        let differ = graph.cast(&differ);
        let relevance = kernel.metric.relevance(dim);
        let doubled: Vec<f64> = categories.iter().map(|&d| 2.0 * relevance[d]).collect();
        let doubled = graph.constant(Array::row(&doubled));
        let weighted = graph.node("Mul", &[&differ, &doubled]);
        let between = graph.sum(&weighted, &last, false);
        squared = graph.node("Add", &[&squared, &between]);
    }
    let shape = match kernel.profile {
        Profile::Gaussian => {
            let half = graph.number(-0.5);
            let exponent = graph.node("Mul", &[&squared, &half]);
            graph.node("Exp", &[&exponent])
        }
        Profile::Matern52 => matern52(graph, &squared),
    };
    let (signal, bias) = (graph.number(kernel.signal_variance), graph.number(kernel.bias_variance));
    let scaled = graph.node("Mul", &[&shape, &signal]);
    let spanned = graph.node("Add", &[&scaled, &bias]);
    if kernel.columns.is_empty() {
        return spanned;
    }
    let mut parts = given(graph, kernel, normalised);
    parts.push(spanned);
    graph.concat(&parts)
}

/// k(z, z), (n, 1) or one number, from the kernel rows k (n, m), which begin with s f(z) of each column.
fn prior(graph: &mut Graph, kernel: &Kernel, k: &str) -> String {
    let diagonal = graph.number(kernel.diagonal());
    if kernel.columns.is_empty() {
        return diagonal;
    }
    let given = graph.columns(k, &(0..kernel.columns()).collect::<Vec<usize>>());
    let variances: Vec<f64> = kernel.columns.iter().map(|column| column.variance).collect();
    let (variances, last) = (graph.constant(Array::row(&variances)), graph.constant(Array::indices(&[1])));
    let squares = graph.node("Mul", &[&given, &given]);
    let squares = graph.node("Div", &[&squares, &variances]);
    let of_columns = graph.sum(&squares, &last, true);
    graph.node("Add", &[&of_columns, &diagonal])
}

/// s f(z) (n, 1) of each column.
fn given(graph: &mut Graph, kernel: &Kernel, normalised: &str) -> Vec<String> {
    let mut out = Vec::with_capacity(kernel.columns() + 1);
    for column in &kernel.columns {
        let (x, variance) =
            (graph.columns(normalised, &[column.function.variable().unwrap_or(0)]), graph.number(column.variance));
        let value = match column.function {
            GivenFunction::Constant => {
                let zero = graph.number(0.0);
                let nothing = graph.node("Mul", &[&x, &zero]);
                out.push(graph.node("Add", &[&nothing, &variance]));
                continue;
            }
            GivenFunction::Linear(_) => x,
            GivenFunction::Bounded(_) => {
                let (least, most) = (graph.number(-BOUND), graph.number(BOUND));
                let least = graph.node("Max", &[&x, &least]);
                graph.node("Min", &[&least, &most])
            }
            GivenFunction::Cosine(d) | GivenFunction::Sine(d) => {
                let StateKind::Periodic(period) = kernel.kind_of(d) else {
                    unreachable!("a kernel whose columns are of its kinds")
                };
                let angle = angle(graph, &x, period);
                let is_cosine = matches!(column.function, GivenFunction::Cosine(_));
                graph.node(if is_cosine { "Cos" } else { "Sin" }, &[&angle])
            }
        };
        out.push(graph.node("Mul", &[&value, &variance]));
    }
    out
}

/// 2 pi x / P without the whole turns.
fn angle(graph: &mut Graph, x: &str, period: f64) -> String {
    let (period, turn) = (graph.number(period), graph.number(TAU));
    let turns = graph.node("Div", &[x, &period]);
    let whole = graph.node("Round", &[&turns]);
    let rest = graph.node("Sub", &[&turns, &whole]);
    graph.node("Mul", &[&rest, &turn])
}

/// (1 + a + a^2 / 3) exp(-a), a = sqrt(5 r^2).
fn matern52(graph: &mut Graph, squared: &str) -> String {
    let [five, most, three, one] = [5.0, DISTANCE_MAX, 3.0, 1.0].map(|number| graph.number(number));
    let a = graph.node("Mul", &[squared, &five]);
    let a = graph.node("Sqrt", &[&a]);
    let a = graph.node("Min", &[&a, &most]);
    let square = graph.node("Mul", &[&a, &a]);
    let third = graph.node("Div", &[&square, &three]);
    let polynomial = graph.node("Add", &[&a, &third]);
    let polynomial = graph.node("Add", &[&polynomial, &one]);
    let exponent = graph.node("Neg", &[&a]);
    let decay = graph.node("Exp", &[&exponent]);
    graph.node("Mul", &[&polynomial, &decay])
}

/// The states with the coordinates of bent variables. Runtimes have no Asinh of double precision: its logarithm stands for it.
fn bent(graph: &mut Graph, kernel: &Kernel, normalised: &str) -> String {
    if !kernel.kinds.iter().any(StateKind::is_bent) {
        return normalised.to_owned();
    }
    let mut parts = Vec::with_capacity(kernel.kinds.len());
    for (d, kind) in kernel.kinds.iter().enumerate() {
        let x = graph.columns(normalised, &[d]);
        let StateKind::Bent(Bend { centre, scale, width }) = *kind else {
            parts.push(x);
            continue;
        };
        let [centre, scale, width, one] = [centre, scale, width, 1.0].map(|number| graph.number(number));
        let moved = graph.node("Sub", &[&x, &centre]);
        let z = graph.node("Div", &[&moved, &scale]);
        let (size, sign) = (graph.node("Abs", &[&z]), graph.node("Sign", &[&z]));
        let square = graph.node("Mul", &[&z, &z]);
        let square = graph.node("Add", &[&square, &one]);
        let root = graph.node("Sqrt", &[&square]);
        let sum = graph.node("Add", &[&size, &root]);
        let log = graph.node("Log", &[&sum]);
        let signed = graph.node("Mul", &[&log, &sign]);
        parts.push(graph.node("Mul", &[&signed, &width]));
    }
    graph.concat(&parts)
}

/// `Kernel::project` as a graph, without categories: the points, and the number of their coordinates. If that is 0, the points
/// are a column of zeros.
fn projected(graph: &mut Graph, kernel: &Kernel, normalised: &str, dim: usize) -> (String, usize) {
    let normalised = &bent(graph, kernel, normalised);
    let roots: Vec<f64> = kernel.metric.relevance(dim).iter().map(|a| a.sqrt()).collect();
    let (mut parts, mut width) = (Vec::new(), 0);
    if kernel.kinds.is_empty() {
        let roots = graph.constant(Array::row(&roots));
        parts.push(graph.node("Mul", &[normalised, &roots]));
        width = dim;
    }
    for (d, kind) in kernel.kinds.iter().enumerate() {
        let period = match *kind {
            StateKind::Category => continue,
            StateKind::Real | StateKind::Bent(_) => None,
            StateKind::Periodic(period) => Some(period),
        };
        let (x, root) = (graph.columns(normalised, &[d]), graph.number(roots[d]));
        let Some(period) = period else {
            parts.push(graph.node("Mul", &[&x, &root]));
            width += 1;
            continue;
        };
        let angle = angle(graph, &x, period);
        for side in ["Cos", "Sin"] {
            let coordinate = graph.node(side, &[&angle]);
            parts.push(graph.node("Mul", &[&coordinate, &root]));
        }
        width += 2;
    }
    let factors = kernel.metric.factors();
    if !factors.is_empty() {
        let along = |d: usize, k: usize| if kernel.kind_of(d).is_line() { factors[k][d] } else { 0.0 };
        let matrix = graph.constant(Array::matrix(&DMatrix::from_fn(dim, factors.len(), along)));
        parts.push(graph.node("MatMul", &[normalised, &matrix]));
        width += factors.len();
    }
    match &parts[..] {
        // Categories alone: all points are one, 0, and what keeps them apart is added later.
        [] => {
            let nothing = graph.constant(Array::matrix(&DMatrix::zeros(dim, 1)));
            (graph.node("MatMul", &[normalised, &nothing]), 0)
        }
        [part] => (part.clone(), width),
        _ => (graph.concat(&parts), width),
    }
}
