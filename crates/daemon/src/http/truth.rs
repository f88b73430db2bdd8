//! The true value, from a simulator that runs in this process: the page compares the model with it.

use std::sync::OnceLock;

/// What a simulator in this process tells the page.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The true value.
    pub(super) truth: OnceLock<Truth>,
    /// What a demo has shown, once it has ended.
    pub(super) ended: OnceLock<String>,
}

/// The true value over two state variables, on a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Truth {
    columns: usize,
    rows: usize,
    range: [[f64; 2]; 2],
    values: Vec<f64>,
}

impl Truth {
    /// Values (rows, columns) at the centres of cells over `range`, row by row from the lowest second variable on.
    ///
    /// # Panics
    /// If values and cells differ in number, or there are no cells.
    pub fn new(columns: usize, range: [[f64; 2]; 2], values: Vec<f64>) -> Self {
        assert!(columns > 0 && !values.is_empty() && values.len().is_multiple_of(columns), "a value for each cell");
        Self { columns, rows: values.len() / columns, range, values }
    }

    /// Numbers of a state.
    pub(super) fn dim(&self) -> usize {
        self.range.len()
    }

    /// The value at a state (2,): between the centres of cells, and beyond the outermost ones as there.
    pub(super) fn value(&self, state: &[f64]) -> f64 {
        let place = |axis: usize, count: usize| {
            let [low, high] = self.range[axis];
            let at = ((state[axis] - low) / (high - low) * count as f64 - 0.5).clamp(0.0, (count - 1) as f64);
            let below = (at as usize).min(count.saturating_sub(2));
            (below, (below + 1).min(count - 1), at - below as f64)
        };
        let ((i, i_next, s), (j, j_next, t)) = (place(0, self.columns), place(1, self.rows));
        let row = |j: usize| (1.0 - s) * self.values[j * self.columns + i] + s * self.values[j * self.columns + i_next];
        (1.0 - t) * row(j) + t * row(j_next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_cells_and_between_them() {
        let truth = Truth::new(3, [[0.0, 3.0], [0.0, 2.0]], vec![1.0, 2.0, 3.0, 11.0, 12.0, 13.0]);
        assert_eq!(truth.value(&[0.5, 0.5]), 1.0);
        assert_eq!(truth.value(&[2.0, 1.5]), 12.5);
        assert_eq!(truth.value(&[1.5, 1.0]), 7.0);
        // Beyond the outermost centres as there.
        assert_eq!((truth.value(&[-9.0, -9.0]), truth.value(&[9.0, 9.0])), (1.0, 13.0));
    }
}
