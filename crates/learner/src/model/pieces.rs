//! Pieces of chains, looked at after a refit: what they say of the variance of V that the scores of single rows do not
//! (`math/inflation.rs`).

use super::Model;
use crate::math::dense::{Matrix, Op, Singular, axpy, dot, multiply, product, solve_general};
use crate::math::inflation::{
    Inflation, LEVEL_HORIZONS, LEVEL_PIECES, PIECE_HORIZONS, excess_level, horizon, ratio_of_pieces,
};
use crate::math::kernel::NoiseModel;
use crate::math::posterior::{Posterior, SolveError};
use crate::math::returns::chains;
use crate::math::statistics::carry;
use crate::transition::Rows;
use std::ops::Range;

/// Rows whose features are there at once.
pub(super) const BLOCK: usize = 256;
/// Most rows from which R is found: the last ones.
pub(super) const ROWS_MAX: usize = 40_000;

impl Model {
    /// Look at pieces of the chains of `rows`, those that the model has been made of, the first of which has offset `first`: from
    /// here on the deviation of V that it publishes is as wide as they say.
    ///
    /// # Errors
    /// If a system cannot be solved; then nothing changes.
    pub fn look_at_pieces(&mut self, rows: &Rows, first: u64) -> Result<(), SolveError> {
        self.inflation = self.inflation_by_pieces(rows, first)?;
        self.renew_value_covariance();
        let held_out = self.held_out_returns(rows, first)?;
        self.returns.verification.begin(held_out);
        Ok(())
    }

    /// None where V has the variance that the model states, or successors are no states.
    fn inflation_by_pieces(&self, rows: &Rows, first: u64) -> Result<Option<Inflation>, SolveError> {
        let successors_are_states = !self.settings.leaves_chain() && !self.basis.mixes();
        let scattered = self.noise == NoiseModel::Correlated && self.errors.scatter.sum.is_some();
        if !(scattered && successors_are_states)
            || self.settings.heads_alone
            || rows.is_empty()
            || self.basis.len() == 0
        {
            return Ok(None);
        }
        let running = self.running();
        let posterior = Posterior::solve(&self.statistics, &running, self.weights.scale)?;
        let carried = |i: usize| rows.follows(i, self.settings.discount);
        let count = self.statistics.effective_rows().max(1.0);
        let discount = (0..rows.len()).map(carried).sum::<f64>() / rows.len() as f64;
        let horizon = horizon(discount, count).min(count);
        let system = posterior.whole_system(&self.statistics, &running);
        let levels = count / horizon <= LEVEL_HORIZONS;
        let from = if levels { 0 } else { rows.len().saturating_sub(ROWS_MAX) };
        let walk = Walk { model: self, rows, first, weights: posterior.feature_weights() };
        let mut look = Look::new(walk, from, system, levels.then_some(horizon))?;
        look.pass(PIECE_HORIZONS * horizon);
        let ratio = if self.errors.scatter.clusters() { 1.0 } else { ratio_of_pieces(&look.whole, &look.single) };
        let scatter = self.errors.scatter.with_running(&posterior, &running, &self.streams);
        let level = match scatter.filter(|_| levels) {
            Some(scatter) => look.level(scatter)?,
            None => 0.0,
        };
        let found = Inflation { ratio, level, rows: count, horizon };
        Ok(Some(found).filter(Inflation::is_consistent))
    }
}

/// Number of the piece of row `k` of `len` in a chain that is cut into equal pieces of about `rows` rows, and how many there are.
pub(super) fn piece(k: usize, len: usize, rows: f64) -> (usize, usize) {
    let count = ((len as f64 / rows).round() as usize).max(1).min(len);
    (k * count / len, count)
}

/// Rows that a model has been made of, walked along their chains.
#[derive(Clone, Copy)]
pub(super) struct Walk<'a> {
    pub(super) model: &'a Model,
    pub(super) rows: &'a Rows,
    /// Offset of the first row.
    pub(super) first: u64,
    /// u (m, H).
    pub(super) weights: &'a Matrix,
}

/// What flows from part to part of a chain.
pub(super) struct Flow {
    /// e (m,).
    trace: Vec<f64>,
    /// Discount of the last row, and the sum of the weights in the trace.
    discount: f64,
    reach: f64,
}

impl Flow {
    /// The flow of a chain before its first row, for m features.
    pub(super) fn new(m: usize) -> Self {
        Self { trace: vec![0.0; m], discount: 0.0, reach: 0.0 }
    }
}

/// A pass over chains.
struct Look<'a> {
    walk: Walk<'a>,
    chains: Vec<Vec<usize>>,
    /// M (m, m), and Q of (I4).
    system: Matrix,
    form: Matrix,
    /// Rows of a piece of the level, and how many pieces there are, where the level is looked at.
    levels: Option<(f64, usize)>,
    /// Sum of rho w phi (m,), and of rho w.
    sum: Vec<f64>,
    weight: f64,
    /// q_j and r_j.
    whole: Vec<f64>,
    single: Vec<f64>,
    /// Number of the piece of the level that is gathered, its A_j and b_j (m, H), and what those before it took from u (m, H each).
    gathered: usize,
    left: Matrix,
    right: Matrix,
    changes: Vec<Matrix>,
}

/// Some rows of one chain.
pub(super) struct ChainPiece {
    /// e, phi and phi - gamma phi' (m, n).
    pub(super) traces: Matrix,
    pub(super) features: Matrix,
    pub(super) differences: Matrix,
    /// delta (n, H).
    pub(super) errors: Matrix,
    /// rho w of each.
    shares: Vec<f64>,
    /// phi (m,) of the state behind the last row.
    pub(super) last: Vec<f64>,
}

impl<'a> Look<'a> {
    fn new(walk: Walk<'a>, from: usize, system: Matrix, horizon: Option<f64>) -> Result<Self, SolveError> {
        let (m, heads) = (walk.weights.rows(), walk.weights.cols());
        let mut moment = walk.model.statistics.gram.clone();
        moment.mirror_lower();
        // M^-T S M^-1; its scale cancels.
        let right = solve_general(&system.transpose(), &moment)?.transpose();
        let form = solve_general(&system.transpose(), &right)?;
        let chains = chains_from(walk.rows, from);
        let pieces = |rows: f64| chains.iter().map(|chain| piece(0, chain.len(), rows).1).sum::<usize>();
        Ok(Self {
            levels: horizon.map(|rows| (rows, pieces(rows))),
            walk,
            chains,
            system,
            form,
            sum: vec![0.0; m],
            weight: 0.0,
            whole: Vec::new(),
            single: Vec::new(),
            gathered: 0,
            left: Matrix::zeros(m, m),
            right: Matrix::zeros(m, heads),
            changes: Vec::new(),
        })
    }

    /// Over all chains, with pieces of `length` rows for R.
    fn pass(&mut self, length: f64) {
        let (m, heads) = (self.sum.len(), self.right.cols());
        let chains = std::mem::take(&mut self.chains);
        let mut before = 0;
        for chain in &chains {
            let mut flow = Flow::new(m);
            // b_j and Q b_j.
            let (mut score, mut image, mut single, mut now) =
                (Matrix::zeros(m, heads), Matrix::zeros(m, heads), 0.0, 0);
            for start in (0..chain.len()).step_by(BLOCK) {
                let range = start..chain.len().min(start + BLOCK);
                let part = self.walk.part(chain, range.clone(), &mut flow);
                let images = product(self.form.view(), Op::Plain, part.traces.view(), Op::Plain);
                for (k, at) in range.clone().enumerate() {
                    let number = piece(at, chain.len(), length).0;
                    if number != now {
                        self.end_piece(&mut score, &mut image, &mut single);
                        now = number;
                    }
                    let (e, q) = (part.traces.col(k), images.col(k));
                    let mut square = 0.0;
                    for h in 0..heads {
                        let delta = part.errors.at(k, h);
                        axpy(score.col_mut(h), delta, e);
                        axpy(image.col_mut(h), delta, q);
                        square += delta * delta / heads as f64;
                    }
                    single += square * dot(e, q);
                    axpy(&mut self.sum, part.shares[k], part.features.col(k));
                    self.weight += part.shares[k];
                }
                self.gather_level(&part, range, chain.len(), before);
            }
            self.end_piece(&mut score, &mut image, &mut single);
            before += self.levels.map_or(0, |(rows, _)| piece(0, chain.len(), rows).1);
        }
        self.end_level();
    }

    fn end_piece(&mut self, score: &mut Matrix, image: &mut Matrix, single: &mut f64) {
        let heads = score.cols();
        self.whole.push((0..heads).map(|h| dot(score.col(h), image.col(h))).sum::<f64>() / heads as f64);
        self.single.push(std::mem::take(single));
        score.fill(0.0);
        image.fill(0.0);
    }

    /// Rows `range` of a chain of `len` go into their pieces of the level; `before` pieces are of earlier chains.
    fn gather_level(&mut self, part: &ChainPiece, range: Range<usize>, len: usize, before: usize) {
        let Some((rows, all)) = self.levels else { return };
        let number = |at: usize| {
            let number = before + piece(at, len, rows).0;
            if all > LEVEL_PIECES { number * LEVEL_PIECES / all } else { number }
        };
        let mut from = range.start;
        while from < range.end {
            let this = number(from);
            let until = (from..range.end).find(|&at| number(at) != this).unwrap_or(range.end);
            if this != self.gathered {
                self.end_level();
                self.gathered = this;
            }
            let (m, columns) = (self.sum.len(), from - range.start..until - range.start);
            let (first, count) = (columns.start, columns.len());
            let (e, d) = (part.traces.block(0, first, m, count), part.differences.block(0, first, m, count));
            multiply(self.left.view_mut(), true, 1.0, e, Op::Plain, d, Op::Transposed);
            for (k, at) in columns.enumerate() {
                for h in 0..self.right.cols() {
                    axpy(self.right.col_mut(h), part.errors.at(at, h), e.col(k));
                }
            }
            from = until;
        }
    }

    /// (M - A_j)^-1 b_j of the piece that has been gathered.
    fn end_level(&mut self) {
        if self.levels.is_none() {
            return;
        }
        let mut rest = self.system.clone();
        for j in 0..rest.cols() {
            axpy(rest.col_mut(j), -1.0, self.left.col(j));
        }
        // A piece without which there is no solution has no say.
        self.changes.extend(solve_general(&rest, &self.right).ok());
        self.left.fill(0.0);
        self.right.fill(0.0);
    }

    /// E of (I3), with the scatter W (m, m), lower triangle.
    fn level(mut self, mut scatter: Matrix) -> Result<f64, Singular> {
        scatter.mirror_lower();
        let weight = self.weight.max(f64::MIN_POSITIVE);
        self.sum.iter_mut().for_each(|phi| *phi /= weight);
        // M^-T f.
        let mean = Matrix::from_columns(self.sum.len(), 1, self.sum.clone());
        let along = solve_general(&self.system.transpose(), &mean)?;
        let image = product(scatter.view(), Op::Plain, along.view(), Op::Plain);
        let known = dot(along.col(0), image.col(0));
        let heads = self.right.cols();
        let of = |h: usize| {
            let changes: Vec<f64> = self.changes.iter().map(|change| -dot(&self.sum, change.col(h))).collect();
            excess_level(&changes, 0.0)
        };
        let scatter = (0..heads).map(of).sum::<f64>() / heads as f64;
        Ok((scatter - known).max(0.0))
    }
}

impl Walk<'_> {
    /// Rows `range` of a chain; `flow` runs from part to part.
    pub(super) fn part(&self, chain: &[usize], range: Range<usize>, flow: &mut Flow) -> ChainPiece {
        let (rows, model, m) = (self.rows, self.model, self.weights.rows());
        let part = &chain[range];
        let count = part.len();
        let mut states = Vec::with_capacity((count + 1) * rows.dim);
        part.iter().for_each(|&i| model.basis.inputs.normalise_into(rows.state(i), &mut states));
        // Where the state behind a row is: the state of the next one, or one of its own.
        let (mut behind, mut nodes) = (Vec::with_capacity(count), count);
        for (k, &i) in part.iter().enumerate() {
            let goes_on = part.get(k + 1).is_some_and(|&next| rows.state(next) == rows.next_state(i));
            behind.push(if goes_on { k + 1 } else { nodes });
            if !goes_on {
                model.basis.inputs.normalise_into(rows.next_state(i), &mut states);
                nodes += 1;
            }
        }
        let features = model.basis.features(&states);
        let heads = model.settings.rewards.len();
        let rule = model.rule();
        let (mut traces, mut differences) = (Matrix::zeros(m, count), Matrix::zeros(m, count));
        let (mut errors, mut shares) = (Matrix::zeros(count, heads), Vec::with_capacity(count));
        for (k, &i) in part.iter().enumerate() {
            let discount = self.discount(i);
            let ratio = rule.ratio(rows, i);
            let share = ratio * model.statistics.weight_at(self.first + i as u64);
            let carried = carry(rule.carry(rows, i), ratio, flow.discount * flow.reach);
            let decay = flow.discount * carried;
            for (e, phi) in flow.trace.iter_mut().zip(features.col(k)) {
                *e = decay * *e + share * phi;
            }
            (flow.discount, flow.reach) = (discount, decay * flow.reach + ratio);
            traces.col_mut(k).copy_from_slice(&flow.trace);
            let difference = differences.col_mut(k);
            difference.copy_from_slice(features.col(k));
            axpy(difference, -discount, features.col(behind[k]));
            for h in 0..heads {
                *errors.at_mut(k, h) = rule.reward(rows, i, h) - dot(difference, self.weights.col(h));
            }
            shares.push(share);
        }
        let last = behind.last().map_or_else(Vec::new, |&node| features.col(node).to_vec());
        ChainPiece { traces, features, differences, errors, shares, last }
    }

    /// Discount of a row, 0 where it terminates.
    pub(super) fn discount(&self, i: usize) -> f64 {
        self.rows.follows(i, self.model.settings.discount)
    }
}

/// Chains of rows from number `from` on, in the order of their first rows.
pub(super) fn chains_from(rows: &Rows, from: usize) -> Vec<Vec<usize>> {
    let successor = chains(rows);
    let mut follows = vec![false; rows.len()];
    successor[from..].iter().flatten().for_each(|&next| follows[next] = true);
    let firsts = (from..rows.len()).filter(|&i| !follows[i]);
    firsts.map(|first| std::iter::successors(Some(first), |&i| successor[i]).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::dictionary::Dictionary;
    use crate::math::kernel::{Hyperparameters, Kernel, Metric};
    use crate::settings::Settings;
    use crate::snapshot::{Ask, Inputs};
    use crate::verification::HeldOut;
    use serde_json::Value;

    /// What `tests/golden/make_intervals.py` has found, row by row and matrix by matrix.
    fn golden() -> Value {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/intervals.json");
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    fn numbers(of: &Value) -> Vec<f64> {
        of.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
    }

    fn flags(of: &Value) -> Vec<bool> {
        numbers(of).iter().map(|&x| x == 1.0).collect()
    }

    fn rows(case: &Value) -> Rows {
        let mut rows = Rows::new(1, 1);
        rows.states = numbers(&case["states"]);
        rows.next_states = numbers(&case["next_states"]);
        rows.rewards = numbers(&case["rewards"]);
        (rows.terminated, rows.truncated) = (flags(&case["terminated"]), flags(&case["truncated"]));
        let n = rows.rewards.len();
        (rows.discounts, rows.ratios, rows.streams) = (vec![f64::NAN; n], vec![1.0; n], vec![0; n]);
        rows.starts_chain = (0..n).map(|i| i == 0 || rows.terminated[i - 1] || rows.truncated[i - 1]).collect();
        rows
    }

    fn learned(whole: &Value, case: &Value, rows: &Rows) -> Model {
        let number = |key: &str| whole[key].as_f64().unwrap();
        let kernel = Kernel::gaussian(1.0, number("bias"), Metric::Isotropic(number("relevance")));
        let mut dictionary = Dictionary::from_elements(kernel.clone(), 1, &numbers(&whole["dictionary"])).unwrap();
        dictionary.set_max(dictionary.len());
        let hyper = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: number("ridge") };
        let settings = Settings {
            discount: case["discount"].as_f64().unwrap(),
            estimate_scale: false,
            dictionary_max: dictionary.len(),
            ..Settings::default()
        };
        let mut model = Model::with_dictionary(settings, Inputs::identity(1), &hyper, dictionary);
        model.set_lambda(case["lam"].as_f64().unwrap());
        model.learn(rows, 0..rows.len(), 0);
        model.refresh();
        model.revisit(std::iter::once((rows, 0..rows.len(), 0)));
        model
    }

    fn close(found: f64, expected: &Value, what: &str) {
        let expected = expected.as_f64().unwrap();
        assert!((found - expected).abs() < 1e-7 * (1.0 + expected.abs()), "{what}: {found} and not {expected}");
    }

    #[test]
    fn pieces_and_rows_held_out_say_what_the_formulas_do() {
        let whole = golden();
        for case in whole["cases"].as_array().unwrap() {
            let (name, rows) = (case["name"].as_str().unwrap(), rows(case));
            let mut model = learned(&whole, case, &rows);
            let before = model.snapshot(true).unwrap();
            model.look_at_pieces(&rows, 0).unwrap();
            let Inflation { ratio, level, horizon, .. } = model.inflation.unwrap();
            close(horizon, &case["horizon"], name);
            close(ratio, &case["ratio"], &format!("{name}: ratio"));
            close(level, &case["level"], &format!("{name}: level"));
            let HeldOut { factor, normal, coverage, pairs } = model.returns.verification.held_out();
            let held_out = &case["held_out"];
            close(coverage.unwrap(), &held_out["coverage"], &format!("{name}: coverage"));
            close(pairs, &held_out["pairs"], &format!("{name}: pairs"));
            close(normal, &held_out["normal"], &format!("{name}: normal"));
            // t, by which deviations are scaled, is known to five digits.
            let factors = (factor, held_out["factor"].as_f64().unwrap());
            assert!((factors.0 - factors.1).abs() < 1e-4, "{name}: {factors:?}");
            let snapshot = model.snapshot(true).unwrap();
            assert_eq!((&before.weights, before.returns.unwrap().factor), (&snapshot.weights, 1.0));
            assert_eq!(snapshot.returns.as_ref().unwrap().factor, factor);
            let found = snapshot.evaluate(&numbers(&case["states_asked"]), Ask::VARIANCE).unwrap();
            for (found, expected) in found.variance.unwrap().iter().zip(numbers(&case["variance"])) {
                assert!((found - expected).abs() < 1e-4 * expected, "{name}: variance {found} and not {expected}");
            }
        }
    }

    #[test]
    fn short_chains_share_pieces_and_what_has_no_pieces_has_no_inflation() {
        assert_eq!([0, 9, 10, 29].map(|k| piece(k, 30, 10.0)), [(0, 3), (0, 3), (1, 3), (2, 3)]);
        assert_eq!((piece(0, 4, 10.0), piece(2, 3, 0.1)), ((0, 1), (2, 3)));
        let whole = golden();
        let case = &whole["cases"][0];
        let mut rows = rows(case);
        // Every row is a chain of its own.
        (rows.truncated, rows.starts_chain) = (vec![true; rows.len()], vec![true; rows.len()]);
        let mut model = learned(&whole, case, &rows);
        model.look_at_pieces(&rows, 0).unwrap();
        assert!(model.inflation.unwrap().is_consistent());
        let mut empty = model.emptied();
        assert_eq!(
            empty.inflation,
            Some(Inflation::of_horizon(10.0)).map(|of| Inflation { horizon: model.inflation.unwrap().horizon, ..of })
        );
        empty.look_at_pieces(&Rows::new(1, 1), 0).unwrap();
        assert_eq!(empty.inflation, None);
    }
}
