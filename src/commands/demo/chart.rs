//! The kernel as people see it: lengthscales in the units of the environment, beside what of the value hangs on each variable.

use super::world::World;
use crate::commands::output::{number, percent};
use crate::snapshot::Snapshot;

/// The kernel in the environment's units.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    pub(super) amplitude: f64,
    pub(super) bias: f64,
    /// sigma0^2, in the square of the reward's unit.
    pub(super) noise_variance: f64,
    pub(super) variables: Vec<VariableScale>,
}

/// What the kernel says about one state variable.
#[derive(Clone, Debug)]
pub(super) struct VariableScale {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    /// In normalised coordinates.
    pub(super) relevance: f64,
    /// In the variable's unit; infinite if it is left out.
    pub(super) lengthscale: f64,
}

impl Kernel {
    pub(super) fn new(world: World, snapshot: &Snapshot) -> Self {
        let kernel = &snapshot.hyperparameters.kernel;
        let relevance = kernel.metric.relevance(snapshot.dim());
        let variables = world.variables().into_iter().enumerate().map(|(i, variable)| VariableScale {
            name: variable.name,
            unit: variable.unit,
            relevance: relevance[i],
            lengthscale: kernel
                .lengthscale(i, snapshot.dim())
                .map_or(f64::NAN, |length| snapshot.inputs.scale[i] * length),
        });
        Self {
            amplitude: kernel.signal_variance.sqrt(),
            bias: kernel.bias_variance.sqrt(),
            noise_variance: snapshot.hyperparameters.noise_variance,
            variables: variables.collect(),
        }
    }

    /// Variable `i`: a bar of its share of the variance of the value, which is as wide as `width` for all of it, the share, and the
    /// lengthscale. `shares` are the daemon's, which its page shows; empty before they are known.
    pub(super) fn row(&self, i: usize, shares: &[Option<f64>], width: usize) -> String {
        let VariableScale { lengthscale: length, unit, .. } = &self.variables[i];
        let share = shares.get(i).copied().flatten();
        let (bar, words) = (bar(share.unwrap_or(0.0), width), share.map_or("-".to_owned(), percent));
        format!("{bar:<width$} {words:>5} (lengthscale {} {unit})", lengthscale(*length))
    }
}

/// A bar for a share of `width`.
pub(super) fn bar(share: f64, width: usize) -> String {
    "█".repeat((share.clamp(0.0, 1.0) * width as f64).round() as usize)
}

/// An error with two digits.
pub(super) fn two_digits(value: f64) -> String {
    match format!("{value:.1e}") {
        small if 0.0 < value && value < 1e-3 => small,
        rounded => number(rounded.parse().unwrap_or(value)),
    }
}

/// A lengthscale as people read it.
pub(super) fn lengthscale(value: f64) -> String {
    match value {
        v if !v.is_finite() || v >= 1e5 => "∞".into(),
        v if v >= 100.0 => format!("{v:.0}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengthscales_are_short() {
        assert_eq!([0.5, 123.4, 1e7, f64::INFINITY].map(lengthscale), ["0.50", "123", "∞", "∞"]);
    }

    #[test]
    fn small_errors_are_not_nought() {
        assert_eq!([0.0, 0.000_346, 0.0346, 3.46].map(two_digits), ["0", "3.5e-4", "0.035", "3.5"]);
    }

    #[test]
    fn bars_are_the_shares_that_the_daemon_has_found() {
        let variable = |name, length| VariableScale { name, unit: "m", relevance: 1.0, lengthscale: length };
        let variables = vec![variable("x", 2.0), variable("y", 0.5)];
        let kernel = Kernel { amplitude: 1.0, bias: 0.0, noise_variance: 0.1, variables };
        let shares = [Some(0.75), Some(0.004)];
        assert_eq!(kernel.row(0, &shares, 4), "███   75 % (lengthscale 2.00 m)");
        assert_eq!(kernel.row(1, &shares, 4), "     < 1 % (lengthscale 0.50 m)");
        assert_eq!(kernel.row(1, &[], 4), "         - (lengthscale 0.50 m)");
    }
}
