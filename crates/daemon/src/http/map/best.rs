//! The best action at each place of a map, by a value of actions.

use super::{AVERAGE_PRODUCTS, Grid, PRODUCTS, Surface};
use crate::learner::action::ActionSpace;
use crate::learner::marginal::spread_out;
use crate::snapshot::{Ask, Evaluator};
use crate::transition::Invalid;

/// Inputs that are evaluated at once.
const INPUTS_AT_ONCE: usize = 4096;

/// What is best at some places.
struct Best {
    /// (n, D + A) inputs of Q with the action that has the largest.
    inputs: Vec<f64>,
    /// (n,) that Q.
    mean: Vec<f32>,
    /// (n,) number of the action, or of an action of a box the first coordinate.
    chosen: Vec<f32>,
}

impl Grid {
    /// The largest Q over the candidates among all actions, where the other variables stand; its deviation, and the action.
    pub(super) fn best(&self, model: &Evaluator, space: &ActionSpace) -> Result<Surface, Invalid> {
        let (all, candidates) = (self.size(), space.candidates());
        let m = model.snapshot().dictionary.nrows().max(1);
        let cells = (all.0 * all.1) as f64;
        let choices = candidates.len() / space.width();
        let size = self.coarse(all, AVERAGE_PRODUCTS as f64 / (m * choices) as f64 / cells);
        let coarse = self.coarse(size, PRODUCTS as f64 / (m * m * size.0 * size.1) as f64);
        let best = self.look(model, space, &candidates, size)?;
        let inputs = if coarse == size { best.inputs } else { self.look(model, space, &candidates, coarse)?.inputs };
        let found = model.evaluate(&inputs, Ask { returns: false, ..Ask::ALL })?;
        let surface = self.surface((best.mean, size), &found, coarse);
        Ok(Surface { chosen: best.chosen, ..surface })
    }

    fn look(
        &self,
        model: &Evaluator,
        space: &ActionSpace,
        candidates: &[f64],
        size: (usize, usize),
    ) -> Result<Best, Invalid> {
        let width = space.width();
        let (dim, choices) = (self.at.len(), candidates.len() / width);
        let states = spread_out(dim, &self.axes(), &self.places(size), &self.at);
        let mut best = Best { inputs: Vec::new(), mean: Vec::new(), chosen: Vec::new() };
        let mut inputs = Vec::new();
        for some in states.chunks((INPUTS_AT_ONCE / choices).max(1) * dim) {
            inputs.clear();
            for state in some.chunks_exact(dim) {
                for action in candidates.chunks_exact(width) {
                    inputs.extend_from_slice(state);
                    inputs.extend_from_slice(action);
                }
            }
            let found = model.evaluate(&inputs, Ask::MEAN)?.mean;
            for (k, values) in found.column(self.head).as_slice().chunks_exact(choices).enumerate() {
                let first = (1..choices).fold(0, |best, c| if values[c] > values[best] { c } else { best });
                let input = &inputs[(k * choices + first) * (dim + width)..][..dim + width];
                best.inputs.extend_from_slice(input);
                best.mean.push(values[first] as f32);
                best.chosen.push(space.action_of(&input[dim..])[0] as f32);
            }
        }
        Ok(best)
    }
}

#[cfg(test)]
mod tests {
    use super::super::View;
    use super::super::tests::{model, parts};
    use super::*;
    use crate::snapshot::{Actions, Snapshot};
    use nalgebra::DMatrix;
    use serde_json::json;

    #[test]
    fn a_map_of_action_values_has_the_largest_and_its_action() {
        let of = |space: ActionSpace| {
            let weights = DMatrix::from_fn(10, 1, |i, _| ((3 * i) as f64).sin());
            Snapshot { weights, actions: Some(Actions::of(space)), ..model(10) }
        };
        let view = View { x: 0, range: "-2,2".into(), ..View::default() };
        let discrete = of(ActionSpace::Discrete(2));
        let (head, numbers) =
            parts(&view.grid(1, 1).unwrap().draw(&Evaluator::new(discrete.clone()), &[&[0.5]]).unwrap());
        let count = head["columns"].as_u64().unwrap() as usize;
        assert_eq!((&head["chosen"], &head["recent"], numbers.len()), (&json!(true), &json!([[0.5]]), 3 * count));
        for k in [0, 50, count - 1] {
            let x = -2.0 + 4.0 * (k as f64 + 0.5) / count as f64;
            let q = discrete.evaluate(&[x, 1.0, 0.0, x, 0.0, 1.0], Ask::VARIANCE).unwrap();
            let best = usize::from(q.mean[1] > q.mean[0]);
            assert!((f64::from(numbers[k]) - q.mean[best]).abs() < 1e-5 && numbers[2 * count + k] == best as f32);
            assert!((f64::from(numbers[count + k]) - q.variance.unwrap()[best].sqrt()).abs() < 1e-5);
        }
        let action = &numbers[2 * count..];
        assert!(action.contains(&0.0) && action.contains(&1.0), "each is best somewhere");
        let boxed = of(ActionSpace::Box { low: vec![-1.0], high: vec![3.0] });
        let flat = View { x: 0, y: Some(1), range: "-2,2,-1,1".into(), ..View::default() };
        let (head, numbers) = parts(&flat.grid(2, 1).unwrap().draw(&Evaluator::new(boxed), &[]).unwrap());
        let side = |name: &str| head[name].as_u64().unwrap() as usize;
        let cells = side("columns") * side("rows");
        assert_eq!(numbers.len(), 2 * cells + side("deviation_columns") * side("deviation_rows"));
        assert!(numbers[numbers.len() - cells..].iter().all(|a| (-1.0..=3.0).contains(a)));
    }
}
