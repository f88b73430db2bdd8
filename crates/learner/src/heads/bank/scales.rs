//! Noise and scale of each head, chosen by its evidence on a grid, docs/mathematics.md (H5) to (H7).

use super::{Bank, Solution, TUNED_FROM, has_solution, in_single_precision, unsolved};
use crate::heads::Head;
use crate::math::dense::{Accuracy, Matrix};
use crate::math::head_sums::{Group, Named, Observed, Spectrum};
use crate::math::posterior::{Scale, SolveError};
use crate::math::statistics::Running;
use std::collections::HashMap;

/// Steps between two ratios of the grid: a factor of the square root of 2.
const STEP: f64 = 0.5;
/// Steps of the grid to both sides of the variance of the kernel.
const STEPS: i32 = 40;
/// Nats that another ratio has to gain before a head moves to it.
const MOVES_AT: f64 = 1.0;
/// Rounds in which ratios and the values that close chains are brought together.
const SCALE_ROUNDS: usize = 6;

/// Rows from which on scales, which then move by a few per cent, are chosen at four times the rows and no longer at twice.
const SETTLED_FROM: u64 = 1024;

/// Whether scales that were chosen at `before` rows, 0 if never, are to be chosen again at `rows`: at twice `before`, and at four
/// times `before` once they have settled. Where a row counts half after `half_life` others, one half-life does as well, and
/// then two: as large a part of all weight is new.
pub(crate) fn tuning_is_due(before: u64, rows: u64, half_life: Option<f64>) -> bool {
    let halvings: u32 = if before < SETTLED_FROM { 1 } else { 2 };
    let before = before.max(TUNED_FROM / 2);
    let more = before * ((1 << halvings) - 1);
    let turnover = half_life.map_or(u64::MAX, |rows| ((f64::from(halvings) * rows) as u64).max(TUNED_FROM));
    rows >= before + more.min(turnover)
}

impl Bank {
    /// [`Bank::choose_scales`], and let the weights at these predict what is verified.
    ///
    /// # Errors
    /// The same; nothing is then verified until the next success.
    pub(crate) fn tune(&mut self, running: &Running, diagonal: f64, floor: f64, rows: u64) -> Result<(), SolveError> {
        let (mut weights, mut group) = (self.verified.take_weights(), 0..);
        let take = |u: &Matrix| in_single_precision(u, group.next().unwrap_or_default(), &mut weights);
        let spectra = self.choose_scales(running, diagonal, floor, rows, take);
        self.verify_with(spectra, weights, rows)
    }

    /// Choose noise and scale of each head, as far as it does not name them, by its evidence on a grid of ratios: the spectra that they
    /// were chosen by. `take` gets the weights (m, H) at these, group by group, so that the weights of all heads need not be
    /// there at once.
    /// `diagonal` is k(x, x) of the base kernel, `floor` the least noise variance relative to the targets' variance, `rows` how
    /// many have been learned. A head that cannot be solved for keeps its scale.
    ///
    /// # Errors
    /// As [`Bank::solve`]; the scales are then as they were.
    pub(crate) fn choose_scales(
        &mut self,
        running: &Running,
        diagonal: f64,
        floor: f64,
        rows: u64,
        mut take: impl FnMut(&Matrix),
    ) -> Result<Vec<Spectrum>, SolveError> {
        self.tuned_at = rows;
        self.statistics.groups.iter_mut().for_each(Group::settle);
        let solution = self.decompose(running)?;
        let ratios: Vec<f64> = (-STEPS..=STEPS).map(|k| diagonal * (STEP * f64::from(k)).exp2()).collect();
        let mut is_solved = false;
        for g in 0..self.rules.len() {
            let weights = self.tune_group(g, &solution, &ratios, floor);
            is_solved |= has_solution(&weights);
            take(&weights);
        }
        if is_solved { Ok(solution.spectra) } else { Err(unsolved(self.features())) }
    }

    /// Whether there are enough rows to choose scales again: two for each head at least, as in [`Bank::foresight_is_due`].
    pub(crate) fn tuning_is_due(&self, rows: u64) -> bool {
        let least = 2 * self.heads.len() as u64;
        let half_life = self.forgetting.map(|forgetting| forgetting.half_life().max(least as f64));
        tuning_is_due(self.tuned_at, rows, half_life)
    }

    /// Choose the scales of one group: its weights (m, H) at these. A head that stays where it is stays there while others move.
    fn tune_group(&mut self, g: usize, solution: &Solution, ratios: &[f64], floor: f64) -> Matrix {
        let all = self.columns_of(g);
        let mut weights = self.solve_columns(g, solution, &all, Accuracy::Plain);
        let (mut which, mut found) = (all, None);
        for _ in 0..SCALE_ROUNDS {
            which = self.move_ratios(g, solution, (&which, found.as_ref().unwrap_or(&weights)), ratios, floor);
            if which.is_empty() {
                break;
            }
            let u = self.solve_columns(g, solution, &which, Accuracy::Plain);
            for (k, &column) in which.iter().enumerate() {
                weights.col_mut(column).copy_from_slice(u.col(k));
            }
            found = Some(u);
        }
        weights
    }

    /// Let the heads in the columns `which` (n,) of one group move to better scales, targets closed by their weights u (m, n): the
    /// columns of those that are at another ratio then, and so have other weights.
    fn move_ratios(
        &mut self,
        g: usize,
        solution: &Solution,
        (which, u): (&[usize], &Matrix),
        ratios: &[f64],
        floor: f64,
    ) -> Vec<usize> {
        let (targets, images) = self.targets(g, solution, (which, u));
        let rule = &self.rules[g];
        let observed = Observed::new(&self.statistics.grams[rule.gram], &solution.spectra[rule.gram], self.unit());
        if observed.rows() < 1.0 {
            return Vec::new();
        }
        let named: Vec<Named> = which.iter().map(|&number| named(&self.heads[rule.columns[number].head])).collect();
        let mut determinants = HashMap::new();
        let present = |(k, &number): (usize, &usize)| {
            let scale = self.scales[rule.columns[number].head];
            let determinant = determinants.entry(scale.ratio.to_bits());
            let determinant = *determinant.or_insert_with(|| observed.log_determinant(scale.ratio));
            observed.log_evidence(targets[k], images.col(k), scale, determinant)
        };
        // Before the images are squared.
        let present: Vec<f64> = which.iter().enumerate().map(present).collect();
        let (values, signals) = observed.profile(&targets, images, ratios, floor, &named);
        let mut moved = Vec::new();
        for (k, &number) in which.iter().enumerate() {
            let column = rule.columns[number];
            let head = &self.heads[column.head];
            if head.noise_variance.is_some() && head.signal.is_some() {
                continue;
            }
            let scale = self.scales[column.head];
            let best = (0..ratios.len()).max_by(|&a, &b| values.at(a, k).total_cmp(&values.at(b, k)));
            let best = best.expect("a grid of ratios");
            let gain = values.at(best, k) - present[k];
            // A gain over no evidence at all is no number, and wanted.
            if values.at(best, k) > f64::NEG_INFINITY && (gain >= MOVES_AT || gain.is_nan()) {
                self.scales[column.head] = Scale { signal: signals.at(best, k), ratio: ratios[best] };
                if scale.ratio != ratios[best] {
                    moved.push(number);
                }
            }
        }
        moved
    }
}

/// What `head` says of its scale, where it leaves the rest to its evidence.
fn named(head: &Head) -> Named {
    match (head.noise_variance, head.signal) {
        (Some(variance), _) => Named::Noise(variance),
        (None, Some(signal)) => Named::Signal(signal),
        (None, None) => Named::Nothing,
    }
}
