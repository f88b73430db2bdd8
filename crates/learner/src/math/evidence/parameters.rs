//! Hyperparameters as one vector.

use crate::math::kernel::{Hyperparameters, Kernel, Metric};

/// Names of the parameters, in the order in which gradients and vectors of parameters hold them.
pub fn parameter_names(metric: &Metric, dim: usize) -> Vec<String> {
    let mut names: Vec<String> =
        ["log_signal_variance", "log_bias_variance", "log_noise_variance"].map(String::from).to_vec();
    match metric {
        Metric::Isotropic(_) => names.push("log_relevance".into()),
        Metric::Ard(_) | Metric::Factor { .. } => names.extend((0..dim).map(|i| format!("log_relevance[{i}]"))),
    }
    for j in 0..metric.factors().len() {
        names.extend((0..dim).map(|i| format!("factors[{j}][{i}]")));
    }
    names
}

/// The parameters of `hyper` as one vector, in the order of [`parameter_names`]. A variance or relevance of exactly 0
/// becomes negative infinity, and [`from_parameters`] takes it back.
pub fn to_parameters(hyper: &Hyperparameters) -> Vec<f64> {
    let kernel = &hyper.kernel;
    let mut out = vec![kernel.signal_variance.ln(), kernel.bias_variance.ln(), hyper.noise_variance.ln()];
    match &kernel.metric {
        Metric::Isotropic(h) => out.push(h.ln()),
        Metric::Ard(a) => out.extend(a.iter().map(|a| a.ln())),
        Metric::Factor { relevance, factors } => {
            out.extend(relevance.iter().map(|a| a.ln()));
            out.extend(factors.iter().flatten());
        }
    }
    out
}

/// Hyperparameters of the structure of `like` (kind and size of the metric, noise model) with these `parameters`.
///
/// # Panics
/// If there is another number of parameters.
pub fn from_parameters(like: &Hyperparameters, parameters: &[f64]) -> Hyperparameters {
    let exp = |slice: &[f64]| slice.iter().map(|v| v.exp()).collect::<Vec<f64>>();
    let shape = &parameters[3..];
    let metric = match &like.kernel.metric {
        Metric::Isotropic(_) => {
            assert_eq!(shape.len(), 1, "one relevance");
            Metric::Isotropic(shape[0].exp())
        }
        Metric::Ard(a) => {
            assert_eq!(shape.len(), a.len(), "one relevance for each coordinate");
            Metric::Ard(exp(shape))
        }
        Metric::Factor { relevance, factors } => {
            let dim = relevance.len();
            assert_eq!(shape.len(), dim * (1 + factors.len()), "relevances and factors of the same dimension");
            let factors = shape[dim..].chunks_exact(dim).map(<[f64]>::to_vec).collect();
            Metric::Factor { relevance: exp(&shape[..dim]), factors }
        }
    };
    let (signal_variance, bias_variance) = (parameters[0].exp(), parameters[1].exp());
    // The variances of columns go with the signal's.
    let columns = like.kernel.scaled(signal_variance / like.kernel.signal_variance).columns;
    let kernel = Kernel { signal_variance, bias_variance, metric, columns, ..like.kernel.clone() };
    Hyperparameters { kernel, noise: like.noise, noise_variance: parameters[2].exp() }
}
