//! Acting by a snapshot of Q: no round trip, and the same decision wherever the same snapshot is asked the same.
//!
//! What is random is a hash of seed, episode and step ([`crate::random`]). A discrete action is looked for among all of them, or
//! those that the caller gives. In a box the best three of some candidates are improved by Newton steps (docs/mathematics.md
//! (A7)).

mod hill;

use crate::action::{ActionSpace, first_largest};
use crate::random::{mix, uniform};
use crate::snapshot::{Ask, Evaluation, EvaluationScratch, Evaluator, Snapshot};
use crate::transition::{Invalid, InvalidCode};
use hill::{Hill, STARTS, STEPS};
use nalgebra::DMatrix;
use std::sync::Arc;

/// How an action is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Exploration {
    /// The one of the largest Q.
    Greedy,
    /// A random one with this probability, in \[0, 1\], else the greedy one. In a box the random one is uniform.
    EpsilonGreedy(f64),
    /// Each candidate with a probability proportional to exp(Q / temperature), positive, in the unit of a return.
    Softmax(f64),
    /// The one of the largest Q + beta times its deviation.
    Ucb(f64),
    /// The one that one randomised copy of Q prefers: the same copy for a whole episode.
    Thompson,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// State (D,), without the coordinates of an action.
    pub state: &'a [f64],
    /// How to choose.
    pub exploration: Exploration,
    /// Seed of the run.
    pub seed: u64,
    /// Number of the episode, and of the step in it.
    pub episode: u64,
    /// Number of the step in the episode.
    pub step: u64,
    /// The actions to choose among (k, A), row-major; all of them without.
    pub candidates: Option<&'a [f64]>,
    /// Deviation of Q above which the state counts as unknown.
    pub unknown_above: Option<f64>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The action (A,): of discrete ones its number.
    pub action: Vec<f64>,
    /// Q of it.
    pub mean: f64,
    /// Deviation of Q there; none without a variance.
    pub deviation: Option<f64>,
    /// Probability with which the step's own randomness takes this action, which is what `behavior_prob` asks for: 1 where
    /// the step draws nothing. None in a box that is explored uniformly, whose greedy action has a probability and whose others
    /// have a density.
    pub probability: Option<f64>,
    /// The randomised copy that has chosen, of how many.
    pub copy: Option<(usize, usize)>,
    /// Whether the deviation is above the limit: the caller's own action is the safer one.
    pub unknown: bool,
    /// Model that has chosen.
    pub generation: u64,
    /// Number of this decision: a hash of seed, episode, step and model.
    pub id: u64,
}

/// A snapshot of Q, laid out for decisions.
#[derive(Clone, Debug)]
pub struct Actor {
    evaluator: Arc<Evaluator>,
    space: ActionSpace,
    copies: DMatrix<f64>,
    /// Coordinates (C, width) of the actions that are always looked at.
    candidates: Vec<f64>,
    hill: Hill,
    /// Hash of the critic's name.
    name: u64,
}

/// What candidates are ranked by.
struct Ranked {
    /// Inputs (k, D) of the candidates.
    inputs: Vec<f64>,
    mean: Vec<f64>,
    /// Mean, or what is maximised in its place.
    score: Vec<f64>,
}

impl Actor {
    /// Of a snapshot of Q.
    ///
    /// # Errors
    /// If it is the value of states.
    pub fn new(evaluator: impl Into<Arc<Evaluator>>) -> Result<Self, Invalid> {
        let evaluator = evaluator.into();
        let snapshot = evaluator.snapshot();
        let Some(actions) = &snapshot.actions else {
            return Err(Invalid::new(
                InvalidCode::MissingField,
                "actions",
                "the model is the value of states, not of actions",
            ));
        };
        let (space, copies) = (actions.space.clone(), actions.copies.clone());
        let hill = Hill::new(snapshot, space.width());
        let name = mix(&snapshot.critic.bytes().map(u64::from).collect::<Vec<u64>>());
        Ok(Self { candidates: space.candidates(), space, copies, hill, name, evaluator })
    }

    /// The actions there are.
    pub fn space(&self) -> &ActionSpace {
        &self.space
    }

    /// Its snapshot.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        self.evaluator.snapshot()
    }

    /// Approximate multiplications of one decision among `candidates`, by default the fixed set. `ucb` asks for
    /// the variance of each of them, the others for the variance of the action they take.
    pub fn work(&self, candidates: Option<usize>, exploration: Exploration) -> usize {
        /// Of a kernel value, beside the multiplications of its coordinates.
        const KERNEL: usize = 32;
        let (m, dim) = (self.snapshot().dictionary.nrows(), self.snapshot().dim());
        let looked_at = candidates.unwrap_or(self.candidates.len() / self.space.width());
        let climbs = if candidates.is_none() && self.space.choices() == 0 { STARTS * STEPS * 3 } else { 0 };
        let (rankings, variances) = match exploration {
            Exploration::Ucb(_) => (1, looked_at.saturating_add(1)),
            // Q and the copy that acts.
            Exploration::Thompson => (2, 1),
            Exploration::Greedy | Exploration::EpsilonGreedy(_) | Exploration::Softmax(_) => (1, 1),
        };
        let kernels = looked_at.saturating_mul(rankings).saturating_add(climbs).saturating_mul(KERNEL + dim);
        m.saturating_mul(kernels.saturating_add(variances.saturating_mul(m)))
    }

    /// Choose an action.
    ///
    /// # Errors
    /// A state or candidate of another size or out of range; a setting of the exploration out of range; Thompson sampling by a
    /// snapshot without copies, `ucb` or `unknown_above` by one without variance.
    pub fn act(&self, question: &Question<'_>) -> Result<Decision, Invalid> {
        self.check(question)?;
        let snapshot = self.evaluator.snapshot();
        let drawn = |what: u64| uniform(mix(&[question.seed, question.episode, question.step, what]));
        let ranked = self.rank(question)?;
        let count = ranked.mean.len();
        let best = first_largest(&ranked.score);
        let listed = question.candidates.is_some() || self.space.choices() > 0;
        let (place, probability) = match question.exploration {
            Exploration::Greedy | Exploration::Ucb(_) | Exploration::Thompson => (Some(best), Some(1.0)),
            Exploration::Softmax(temperature) => {
                let shares = softmax(&ranked.mean, temperature);
                let chosen = draw(&shares, drawn(0));
                (Some(chosen), Some(shares[chosen]))
            }
            Exploration::EpsilonGreedy(epsilon) => {
                let explores = drawn(0) < epsilon;
                if listed {
                    let random = ((drawn(1) * count as f64) as usize).min(count - 1);
                    let chosen = if explores { random } else { best };
                    let greedy = if chosen == best { 1.0 - epsilon } else { 0.0 };
                    (Some(chosen), Some(epsilon / count as f64 + greedy))
                } else {
                    ((!explores).then_some(best), None)
                }
            }
        };
        let (dim, width) = (snapshot.dim(), self.space.width());
        let mut input = match place {
            Some(place) => ranked.inputs[place * dim..(place + 1) * dim].to_vec(),
            None => self.uniform_input(question, &drawn),
        };
        let improves = place == Some(best) && !listed && !matches!(question.exploration, Exploration::Softmax(_));
        if let (true, Some(weights), ActionSpace::Box { low, high }) = (improves, self.maximised(question), &self.space)
        {
            input = self.hill.climb(snapshot, (&ranked.inputs, &ranked.score), weights, (low, high));
        }
        let deviates = snapshot.variance.is_some();
        let found = self.evaluator.evaluate(&input, if deviates { Ask::VARIANCE } else { Ask::MEAN })?;
        let deviation = found.variance.map(|variance| variance[0].sqrt());
        Ok(Decision {
            action: self.space.action_of(&input[dim - width..]),
            mean: found.mean[(0, 0)],
            deviation,
            probability,
            copy: matches!(question.exploration, Exploration::Thompson)
                .then(|| (self.copy(question), self.copies.ncols())),
            unknown: question.unknown_above.zip(deviation).is_some_and(|(limit, deviation)| deviation > limit),
            generation: snapshot.generation,
            id: self.id(question),
        })
    }

    /// Number of the decision: a hash of what it is a function of, but for the exploration.
    fn id(&self, question: &Question<'_>) -> u64 {
        let Question { state, seed, episode, step, .. } = *question;
        let Snapshot { generation, offset, .. } = **self.evaluator.snapshot();
        let state = state.iter().fold(0, |hash, number| mix(&[hash, number.to_bits()]));
        mix(&[seed, episode, step, generation, offset, self.name, state])
    }

    fn check(&self, question: &Question<'_>) -> Result<(), Invalid> {
        let refused = |field, message: String| Err(Invalid::new(InvalidCode::OutOfRange, field, message));
        let snapshot = self.evaluator.snapshot();
        let dim = snapshot.dim() - self.space.width();
        if question.state.len() != dim {
            let message = format!("must have {dim} numbers, has {}", question.state.len());
            return Err(Invalid::new(InvalidCode::WrongDimension, "state", message));
        }
        match question.exploration {
            Exploration::EpsilonGreedy(epsilon) if !(0.0..=1.0).contains(&epsilon) => {
                refused("epsilon", format!("lies in [0, 1], this one is {epsilon}"))
            }
            Exploration::Softmax(temperature) if !(temperature > 0.0 && temperature.is_finite()) => {
                refused("temperature", format!("must be positive, is {temperature}"))
            }
            Exploration::Ucb(beta) if !(beta >= 0.0 && beta.is_finite()) => {
                refused("beta", format!("must not be negative, is {beta}"))
            }
            Exploration::Thompson if self.copies.ncols() == 0 => refused(
                "exploration",
                "the model carries no randomised copies: thompson needs one that was improved".into(),
            ),
            Exploration::Ucb(_) if snapshot.variance.is_none() => {
                refused("exploration", "the model carries no variance, which ucb needs".into())
            }
            _ if question.unknown_above.is_some() && snapshot.variance.is_none() => {
                refused("unknown_above", "the model carries no variance to compare it with".into())
            }
            _ => Ok(()),
        }
    }

    /// The copy that acts in the episode.
    fn copy(&self, question: &Question<'_>) -> usize {
        (mix(&[question.seed, question.episode]) % self.copies.ncols().max(1) as u64) as usize
    }

    /// Weights (m,) of what a box is maximised by; none where that is no sum of kernel values.
    fn maximised(&self, question: &Question<'_>) -> Option<&[f64]> {
        let column = |matrix: &'_ DMatrix<f64>, h: usize| h * matrix.nrows()..(h + 1) * matrix.nrows();
        match question.exploration {
            Exploration::Ucb(_) => None,
            Exploration::Thompson => Some(&self.copies.as_slice()[column(&self.copies, self.copy(question))]),
            _ => {
                let weights = &self.evaluator.snapshot().weights;
                Some(&weights.as_slice()[column(weights, 0)])
            }
        }
    }

    fn rank(&self, question: &Question<'_>) -> Result<Ranked, Invalid> {
        let mut inputs = Vec::new();
        match question.candidates {
            None => {
                for action in self.candidates.chunks_exact(self.space.width()) {
                    inputs.extend_from_slice(question.state);
                    inputs.extend_from_slice(action);
                }
            }
            Some(given) => {
                let numbers = self.space.numbers();
                if given.is_empty() || !given.len().is_multiple_of(numbers) {
                    let message = format!("must have rows of {numbers} numbers, at least one");
                    return Err(Invalid::new(InvalidCode::WrongShape, "candidates", message));
                }
                for (i, action) in given.chunks_exact(numbers).enumerate() {
                    inputs.extend_from_slice(question.state);
                    let appended = self.space.append(action, &mut inputs);
                    appended.map_err(|message| Invalid::at(InvalidCode::OutOfRange, "candidates", i, message))?;
                }
            }
        }
        let beta = if let Exploration::Ucb(beta) = question.exploration { Some(beta) } else { None };
        let (mut scratch, mut found) = (EvaluationScratch::default(), Evaluation::default());
        let ask = if beta.is_some() { Ask::VARIANCE } else { Ask::MEAN };
        self.evaluator.evaluate_into(&inputs, ask, &mut scratch, &mut found)?;
        let mean: Vec<f64> = found.mean.column(0).iter().copied().collect();
        let score = match (beta, found.variance) {
            (Some(beta), Some(variance)) => mean.iter().zip(variance).map(|(m, v)| m + beta * v.sqrt()).collect(),
            _ if question.exploration == Exploration::Thompson => {
                let weights = self.maximised(question).unwrap_or_default();
                self.hill.heights(self.evaluator.snapshot(), &inputs, weights)
            }
            _ => mean.clone(),
        };
        Ok(Ranked { inputs, mean, score })
    }

    /// A uniform action of the box.
    fn uniform_input(&self, question: &Question<'_>, drawn: &dyn Fn(u64) -> f64) -> Vec<f64> {
        let mut input = question.state.to_vec();
        if let ActionSpace::Box { low, high } = &self.space {
            let ends = low.iter().zip(high).enumerate();
            input.extend(ends.map(|(d, (low, high))| low + (high - low) * drawn(1 + d as u64)));
        }
        input
    }
}

/// Probabilities proportional to exp(value / temperature).
fn softmax(values: &[f64], temperature: f64) -> Vec<f64> {
    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = values.iter().map(|v| ((v - largest) / temperature).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.into_iter().map(|w| w / total).collect()
}

/// The place that a uniform number falls on.
fn draw(shares: &[f64], at: f64) -> usize {
    let mut sum = 0.0;
    let found = shares.iter().position(|share| {
        sum += share;
        at < sum
    });
    found.unwrap_or(shares.len() - 1)
}
