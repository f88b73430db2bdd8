//! The evidence, its gradient and the dense posterior agree with an independent implementation.

use crate::support::{GO, error};
use criticd_learner::math::dense::Matrix;
use criticd_learner::math::embedding::StateKind;
use criticd_learner::math::evidence::{self, Problem, Sparse, Through};
use criticd_learner::math::exact::{ExactPosterior, exact_fixed_point};
use criticd_learner::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel, Points, Profile};
use criticd_learner::math::returns::{Returns, differences};
use criticd_learner::transition::Rows;
use criticd_reference::{TESTS, numbers};
use serde_json::Value;

fn read(name: &str) -> Value {
    let path = format!("{TESTS}/golden/{name}.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// What the file calls M is (D, k), row by row; our factors are its columns, one after the other.
fn reorder(theta: Vec<f64>, kernel: &Value) -> Vec<f64> {
    let dim = kernel["D"].as_u64().unwrap() as usize;
    let Some(rank) = kernel["rank"].as_u64() else { return theta };
    let (head, m) = theta.split_at(3 + dim);
    let mut out = head.to_vec();
    for j in 0..rank as usize {
        out.extend((0..dim).map(|i| m[i * rank as usize + j]));
    }
    out
}

fn hyper(case: &Value) -> Hyperparameters {
    let kernel = &case["kernel"];
    let dim = kernel["D"].as_u64().unwrap() as usize;
    let metric = match kernel["kind"].as_str().unwrap() {
        "iso" => Metric::Isotropic(1.0),
        "ard" => Metric::Ard(vec![1.0; dim]),
        _ => {
            let rank = kernel["rank"].as_u64().unwrap() as usize;
            Metric::Factor { relevance: vec![1.0; dim], factors: vec![vec![0.0; dim]; rank] }
        }
    };
    let noise = if case["noise"] == "td" { NoiseModel::White } else { NoiseModel::Correlated };
    let profile = kernel["profile"].as_str().map_or(Profile::Gaussian, |word| Profile::from_name(word).unwrap());
    let kinds = kernel["kinds"].as_array().into_iter().flatten();
    let kinds: Vec<StateKind> = kinds.map(|kind| kind.as_str().unwrap().parse().unwrap()).collect();
    let like = Hyperparameters {
        kernel: Kernel::gaussian(1.0, 1.0, metric).with_profile(profile).with_kinds(&kinds),
        noise,
        noise_variance: 1.0,
    };
    evidence::from_parameters(&like, &reorder(numbers(&case["theta"]), kernel))
}

fn rows(case: &Value) -> Rows {
    let mut rows = Rows::new(case["kernel"]["D"].as_u64().unwrap() as usize, 1);
    let mut running = std::collections::HashMap::new();
    for t in case["transitions"].as_array().unwrap() {
        let flag = |name: &str| t[name].as_bool().unwrap();
        let stream = t["stream"].as_u64().unwrap() as u32;
        rows.states.extend(numbers(&t["x"]));
        rows.next_states.extend(numbers(&t["x_next"]));
        rows.rewards.push(t["r"].as_f64().unwrap());
        rows.discounts.push(f64::NAN);
        rows.ratios.push(1.0);
        rows.streams.push(stream);
        rows.terminated.push(flag("terminated"));
        rows.truncated.push(flag("truncated"));
        let continues = running.insert(stream, !flag("terminated") && !flag("truncated")).unwrap_or(false);
        rows.starts_chain.push(!continues);
    }
    rows
}

fn close(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    let error = error(found, expected);
    assert!(error <= tolerance, "{what}: error {error:e}, found {found:?}, expected {expected:?}");
}

const CORRELATED: [&str; 10] = [
    "multi_ard_mc",
    "open_iso_mc",
    "term_ard_mc",
    "term_fa_mc",
    "term_iso_mc",
    "tiny_one_terminated",
    "tiny_one_transition",
    "trunc_ard_mc",
    "trunc_fa_mc",
    "trunc_iso_mc",
];
const WHITE: [&str; 3] = ["multi_fa_td", "term_ard_td", "trunc_ard_td"];

/// Value, gradient (each entry against the largest) and, for the sparse ones, the value alone.
fn check_evidences(name: &str, case: &Value, problem: &Problem, hyper: &Hyperparameters) {
    let (expected, kernel) = (&case["expected"], &case["kernel"]);
    let gradient = |value: &Value| reorder(numbers(value), kernel);
    if expected["exact"].is_object() {
        let e = &expected["exact"];
        let found = evidence::exact(problem, hyper, GO).unwrap();
        close(name, &[found.value], &[e["log_evidence"].as_f64().unwrap()], 1e-10);
        close(name, &[found.complexity], &[e["complexity"].as_f64().unwrap()], 1e-10);
        close(name, &[found.fit], &[e["fit"].as_f64().unwrap()], 1e-10);
        close(name, &found.gradient, &gradient(&e["grad"]), 1e-9);
        assert_eq!(evidence::exact_value(problem, hyper, GO).unwrap().value, found.value);
    }
    for (kind, key, field) in [(Sparse::Dtc, "dtc", "log_evidence"), (Sparse::Vfe, "vfe", "bound")] {
        let e = &expected["sr"][key];
        if e.is_object() {
            let dictionary = numbers(&expected["sr"]["dictionary"]);
            let found =
                evidence::sparse(problem, hyper, Through { dictionary: &dictionary, kind, jitter: 0.0 }, GO).unwrap();
            close(name, &[found.value], &[e[field].as_f64().unwrap()], 1e-9);
            close(name, &found.gradient, &gradient(&e["grad"]), 1e-8);
            if let Some(trace) = e["trace"].as_f64() {
                assert!((found.trace_gap * 2.0 * hyper.noise_variance - trace).abs() < 1e-11, "{name}: trace");
            }
            let value =
                evidence::sparse_value(problem, hyper, Through { dictionary: &dictionary, kind, jitter: 0.0 }, GO)
                    .unwrap();
            assert_eq!(value.value, found.value);
        }
    }
}

#[test]
fn white_noise() {
    for name in WHITE {
        let case = read(name);
        let (rows, hyper) = (rows(&case), hyper(&case));
        let (nodes, differences) = differences(&rows, case["gamma"].as_f64().unwrap());
        assert_eq!(nodes.len() / rows.dim, case["expected"]["nodes"].as_array().unwrap().len());
        let rewards = Matrix::from_rows(rows.len(), 1, &rows.rewards);
        let problem = Problem::white(rows.dim, nodes, differences, rewards);
        check_evidences(name, &case, &problem, &hyper);
        let exact = &case["expected"]["exact"];
        let (posterior, query) = (ExactPosterior::new(&problem, &hyper, GO).unwrap(), numbers(&case["query"]));
        close(name, posterior.mean(&query).col(0), &numbers(&exact["mean"]), 1e-10);
        close(name, &posterior.variance(&query), &numbers(&exact["var"]), 1e-10);
    }
}

#[test]
fn correlated_noise_with_its_cuts_closed() {
    for name in CORRELATED {
        let case = read(name);
        let (rows, hyper) = (rows(&case), hyper(&case));
        let returns = Returns::new(&rows, &[0], case["gamma"].as_f64().unwrap());
        let cut_states = returns.cut_states(&rows);
        let fixed = exact_fixed_point(rows.dim, rows.states.clone(), &cut_states, &returns, &hyper, GO).unwrap();
        let boot = &case["expected"]["bootstrap"];
        close(name, fixed.targets.col(0), &numbers(&boot["exact"]["targets"]), 1e-9);
        let mut problem = Problem::correlated(rows.dim, rows.states.clone(), fixed.targets);
        let (posterior, query) = (ExactPosterior::new(&problem, &hyper, GO).unwrap(), numbers(&case["query"]));
        close(name, posterior.mean(&query).col(0), &numbers(&boot["exact"]["mean"]), 1e-9);
        close(name, &posterior.variance(&query), &numbers(&boot["exact"]["var"]), 1e-9);
        if !returns.cuts.is_empty() {
            close(name, posterior.mean(&cut_states).col(0), fixed.cut_values.col(0), 1e-10);
        }
        let found = evidence::exact(&problem, &hyper, GO).unwrap();
        close(name, &[found.value], &[boot["exact"]["log_evidence"].as_f64().unwrap()], 1e-8);
        let expected = reorder(numbers(&boot["exact"]["grad_targets_fixed"]), &case["kernel"]);
        close(name, &found.gradient, &expected, 1e-8);
        if returns.cuts.is_empty() {
            check_evidences(name, &case, &problem, &hyper);
        }

        // The sparse evidences at the sparse fixed point, whose targets are given.
        let targets = numbers(&boot["sr"]["targets"]);
        problem.set_observed(Matrix::from_columns(targets.len(), 1, targets));
        let dictionary = numbers(&case["expected"]["sr"]["dictionary"]);
        for (kind, key) in [(Sparse::Dtc, "log_evidence_dtc"), (Sparse::Vfe, "log_evidence_vfe")] {
            let found =
                evidence::sparse(&problem, &hyper, Through { dictionary: &dictionary, kind, jitter: 0.0 }, GO).unwrap();
            close(name, &[found.value], &[boot["sr"][key].as_f64().unwrap()], 1e-8);
        }
    }
}

const PROFILES: [&str; 9] = [
    "matern52_iso_mc",
    "matern52_ard_td",
    "matern52_fa_mc",
    "matern52_fa_td",
    "periodic_ard_mc",
    "periodic_iso_td",
    "category_ard_mc",
    "category_iso_mc",
    "category_fa_td",
];

#[test]
fn profiles_and_kinds_of_state_variables() {
    for name in PROFILES {
        let case = read(name);
        let (rows, hyper, gamma) = (rows(&case), hyper(&case), case["gamma"].as_f64().unwrap());
        let (kernel, given) = (&hyper.kernel, &case["expected"]["kernel"]);
        let (px, pz) =
            (kernel.project(rows.dim, &numbers(&given["X"])), kernel.project(rows.dim, &numbers(&given["Z"])));
        let width = kernel.projected_dim(rows.dim);
        let mut found = Matrix::zeros(px.len() / width, pz.len() / width);
        kernel.block(&Points::new(width, &px), &pz, &mut found.view_mut());
        let expected = Matrix::from_rows(found.rows(), found.cols(), &numbers(&given["K"]));
        (0..found.cols()).for_each(|j| close(name, found.col(j), expected.col(j), 1e-13));
        let problem = match hyper.noise {
            NoiseModel::White => {
                let (nodes, differences) = differences(&rows, gamma);
                Problem::white(rows.dim, nodes, differences, Matrix::from_rows(rows.len(), 1, &rows.rewards))
            }
            NoiseModel::Correlated => {
                let returns = Returns::new(&rows, &[0], gamma);
                assert!(returns.cuts.is_empty(), "{name}: all chains end");
                Problem::correlated(rows.dim, rows.states.clone(), returns.targets(&Matrix::zeros(0, 1)))
            }
        };
        check_evidences(name, &case, &problem, &hyper);
        let exact = &case["expected"]["exact"];
        let (posterior, query) = (ExactPosterior::new(&problem, &hyper, GO).unwrap(), numbers(&case["query"]));
        close(name, posterior.mean(&query).col(0), &numbers(&exact["mean"]), 1e-10);
        close(name, &posterior.variance(&query), &numbers(&exact["var"]), 1e-10);
    }
}

/// The kernel's values; and its derivatives, as they enter the gradient of the evidence of two observations.
#[test]
fn kernel_values_and_derivatives() {
    for case in read("kernels")["cases"].as_array().unwrap() {
        let hyper = hyper(case);
        let kernel = &hyper.kernel;
        let dim = case["kernel"]["D"].as_u64().unwrap() as usize;
        let (x, z) = (numbers(&case["X"]), numbers(&case["Z"]));
        let (px, pz) = (kernel.project(dim, &x), kernel.project(dim, &z));
        let mut found = Matrix::zeros(x.len() / dim, z.len() / dim);
        kernel.block(&Points::new(kernel.projected_dim(dim), &px), &pz, &mut found.view_mut());
        let expected = Matrix::from_rows(found.rows(), found.cols(), &numbers(&case["K"]));
        for j in 0..found.cols() {
            close("kernel", found.col(j), expected.col(j), 1e-14);
            for i in 0..found.rows() {
                let derivative = reorder(numbers(&case["dK_dtheta"][i][j]), &case["kernel"]);
                let pair = [&x[i * dim..(i + 1) * dim], &z[j * dim..(j + 1) * dim]].concat();
                let y = [1.0, -0.5];
                let problem = Problem::correlated(dim, pair, Matrix::from_columns(2, 1, y.to_vec()));
                let gradient = evidence::exact(&problem, &hyper, GO).unwrap().gradient;
                // P = alpha alpha' - Q^-1 for Q = ((q, k), (k, q)).
                let (k, q) = (expected.at(i, j), kernel.diagonal() + hyper.noise_variance);
                let determinant = q * q - k * k;
                let alpha = [(q * y[0] - k * y[1]) / determinant, (q * y[1] - k * y[0]) / determinant];
                let trace = alpha[0] * alpha[0] + alpha[1] * alpha[1] - 2.0 * q / determinant;
                let off = alpha[0] * alpha[1] + k / determinant;
                let diagonal = [kernel.signal_variance, kernel.bias_variance, hyper.noise_variance];
                let contracted: Vec<f64> = (0..gradient.len())
                    .map(|t| off * derivative[t] + 0.5 * trace * diagonal.get(t).copied().unwrap_or(0.0))
                    .collect();
                close("derivative", &gradient, &contracted, 1e-12);
            }
        }
    }
}
