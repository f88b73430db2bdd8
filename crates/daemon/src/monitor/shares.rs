//! How much of the value hangs on each state variable: shares of the variance of V over visited states.

use super::number;
use crate::hindsight::{At, here, inputs};
use crate::learner::influence::influence;
use crate::math::sensitivity::{UNNOTICED, total_indices};
use crate::snapshot::{Ask, Evaluator};

/// Samples of a share, and products for all of them, about. A visited state may serve for several.
const SAMPLES: usize = 8000;
const SAMPLES_MIN: usize = 100;
const PRODUCTS: usize = 80_000_000;
/// Variables examined: of more than these, the ones along which the value is steepest over the visited states. Each costs an
/// evaluation of all states.
const EXAMINED: usize = 40;
const STEEP: usize = 200;
const STEEP_MIN: usize = 20;

/// Shares of the variance of one value.
#[derive(Debug)]
pub(crate) struct Shares {
    /// Visited states that it was taken over.
    pub(crate) states: usize,
    /// Total Sobol index of each state variable; none where a variable was not examined. Values of actions have one more, of the action.
    pub(crate) shares: Vec<Option<f64>>,
}

/// Shares of value function `head` over visited states, and of values of actions over the actions that were taken there.
///
/// # Errors
/// A sentence, if there is no such value function.
pub(crate) fn shares(head: usize, places: &[At], model: &Evaluator) -> Result<Shares, String> {
    let snapshot = model.snapshot();
    let (dim, heads) = (snapshot.state_dim(), snapshot.weights.ncols());
    if head >= heads {
        return Err(format!("head must be below {heads}"));
    }
    let examined = examined(head, places, model);
    // An action is one variable, however many coordinates it has: the number of the place where it was taken.
    let width = examined.len() + usize::from(snapshot.actions.is_some());
    let m = snapshot.dictionary.nrows().max(1);
    let most = (PRODUCTS / ((width + 1) * m * snapshot.dim())).clamp(SAMPLES_MIN, SAMPLES);
    let n = places.len().min(most);
    let samples = if n == 0 { 0 } else { most };
    let chosen: Vec<At> = (0..n).map(|s| places[s * places.len() / n]).collect();
    let reduced = chosen.iter().enumerate().flat_map(|(k, place)| {
        let own = examined.iter().map(|&d| place.state[d]);
        own.chain(snapshot.actions.iter().map(move |_| k as f64)).collect::<Vec<f64>>()
    });
    let reduced: Vec<f64> = reduced.collect();
    // State s with its examined variables replaced: the others stay as in the s-th visited state.
    let mut value = |numbers: &[f64]| -> Vec<f64> {
        let moved: Vec<(Vec<f64>, Option<&[f64]>)> = numbers
            .chunks_exact(width)
            .zip(chosen.iter().cycle())
            .map(|(numbers, place)| {
                let mut whole = place.state.to_vec();
                examined.iter().zip(numbers).for_each(|(&d, v)| whole[d] = *v);
                (whole, numbers.get(examined.len()).and_then(|&k| chosen[k as usize].action))
            })
            .collect();
        let moved: Vec<At> = moved.iter().map(|(state, action)| At { state, action: *action }).collect();
        match here(model, &moved, Ask::MEAN) {
            Ok(found) => found.mean.column(head).iter().copied().collect(),
            // Each number was one of a state that has been learned from.
            Err(_) => vec![0.0; samples],
        }
    };
    let indices =
        total_indices(&reduced, width, (samples, UNNOTICED * snapshot.hyperparameters.noise_variance), &mut value);
    let rounded = |share: &f64| number(*share).as_f64();
    let mut shares = vec![None; dim];
    examined.iter().zip(&indices).for_each(|(&d, share)| shares[d] = rounded(share));
    shares.extend(indices.get(examined.len()).map(rounded));
    Ok(Shares { states: n, shares })
}

/// The state variables that are worth a closer look.
fn examined(head: usize, places: &[At], model: &Evaluator) -> Vec<usize> {
    let snapshot = model.snapshot();
    let mut all: Vec<usize> = (0..snapshot.state_dim()).collect();
    if all.len() <= EXAMINED {
        return all;
    }
    let most = PRODUCTS / (snapshot.dictionary.nrows().max(1) * snapshot.dim());
    let count = places.len().min(most.clamp(STEEP_MIN, STEEP));
    let some: Vec<At> = (0..count).map(|s| places[s * places.len() / count]).collect();
    // Without states nothing is known of any.
    let steep = inputs(model, &some).map_or_else(|_| Vec::new(), |inputs| influence(snapshot, head, &inputs));
    let steepness = |d: usize| steep.get(d).copied().filter(|s| !s.is_nan()).unwrap_or(0.0);
    all.sort_by(|&a, &b| steepness(b).total_cmp(&steepness(a)).then(a.cmp(&b)));
    all.truncate(EXAMINED);
    all
}
