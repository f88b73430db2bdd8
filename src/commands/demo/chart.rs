//! The kernel as people see it: lengthscales in the units of the environment, and a bar for each.

use super::world::World;
use crate::snapshot::Snapshot;

/// The kernel in the environment's units.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    pub(super) amplitude: f64,
    pub(super) bias: f64,
    pub(super) variables: Vec<VariableScale>,
}

/// What the kernel says about one state variable.
#[derive(Clone, Debug)]
pub(super) struct VariableScale {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    /// In normalised coordinates.
    pub(super) relevance: f64,
    /// In the variable's unit; infinite if it is irrelevant.
    pub(super) lengthscale: f64,
    /// The same relative to the variable's range.
    pub(super) relative: f64,
}

impl Kernel {
    pub(super) fn new(world: World, snapshot: &Snapshot) -> Self {
        let kernel = &snapshot.hyperparameters.kernel;
        let relevance = kernel.metric.relevance(snapshot.dim());
        let variables = world.variables().into_iter().enumerate().map(|(i, variable)| {
            let lengthscale = snapshot.inputs.scale[i] / relevance[i].sqrt();
            let relative = lengthscale / (variable.range[1] - variable.range[0]);
            VariableScale { name: variable.name, unit: variable.unit, relevance: relevance[i], lengthscale, relative }
        });
        Self {
            amplitude: kernel.signal_variance.sqrt(),
            bias: kernel.bias_variance.sqrt(),
            variables: variables.collect(),
        }
    }

    /// A bar for each variable, together at most `width` wide at the most relevant one.
    pub(super) fn bar(&self, i: usize, width: usize) -> String {
        let short = |v: &VariableScale| 1.0 / v.lengthscale.max(f64::MIN_POSITIVE) * (v.lengthscale / v.relative);
        let most = self.variables.iter().map(short).fold(0.0, f64::max);
        let eighths = (short(&self.variables[i]) / most * (8 * width) as f64).round() as usize;
        let part = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
        format!("{}{part}", "█".repeat(eighths / 8))
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
}
