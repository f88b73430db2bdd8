//! Kernels that the evidence of lambda-returns asks for: relevances fitted to them, and multiples of these beside a ladder of
//! lengthscales that are the same for all state variables, compared at the same rows.

use super::super::climb::Climb;
use super::super::error::{DeadEnd, RefitError};
use super::super::search::{Data, Effort, EvidenceKind, Found, Search, Structure, StructureReport};
use super::folds::each;
use super::pieces::Pieces;
use super::{KernelShape, LINEAR, Question};
use crate::allowance::{self, Allowance};
use crate::math::dense::{Matrix, Tridiagonal};
use crate::math::evidence::KeepGoing;
use crate::math::kernel::{Kernel, Metric, NoiseModel, Points, Profile};
use crate::math::optimise::Ascent;
use crate::settings::{KernelKind, KindSetting, SelectBy, Settings};
use crate::transition::Rows;

/// Squared lengthscales of the ladder: c makes every relevance 2 c / D, in normalised coordinates.
const LADDER: [f64; 6] = [0.1, 0.3, 1.0, 3.0, 10.0, 30.0];
/// A longer one, for which linear columns are needed: alone it would be a poor way to be linear.
const LONG: f64 = 0.03;
/// Multiples of the relevances found that are tried beside them: rows that are left out by a subset ask for finer ones.
const MULTIPLES: [f64; 4] = [1.0 / 3.0, 1.0, 3.0, 10.0];
/// The same for the Gaussian kernel beside another: at 5/3 it bends as much as Matern's.
const SMOOTH: [f64; 4] = [1.0 / 3.0, 0.75, 5.0 / 3.0, 4.0];
/// Ridges that an evidence is the largest over, relative to the signal variance.
const RIDGES: [f64; 8] = [3e-3, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];
/// Rows of the evidence that compares kernels and fits relevances.
const EVIDENCE_ROWS: usize = 600;
/// The same with many state variables.
const ROWS_OF_MANY: usize = 1000;
/// Number of state variables from which they are many.
const MANY: usize = 8;
/// Rows of positive weight that a search needs at least.
const ROWS_MIN: usize = 16;
/// Evaluations of one ascent: relevances that are multiplied afterwards need not be found to the last digit.
const EVALUATIONS: usize = 30;
/// Number of state variables on a line from which directions through several of them are searched for.
const DIRECTED: usize = 3;

/// A search for relevances, and what it has found.
pub(super) struct FittedRelevances {
    search: Search,
    /// Relevances, or what else the settings ask for.
    found: Found,
    /// Directions beside them, where they are worth their parameters.
    directed: Option<Found>,
}

impl FittedRelevances {
    /// The search, and what it has found of the kind of a metric.
    pub(super) fn like(self, metric: &Metric) -> (Search, Found) {
        let directed = self.directed.filter(|_| !metric.factors().is_empty());
        (self.search, directed.unwrap_or(self.found))
    }
}

/// A kernel that the evidence speaks for.
pub(super) struct Proposal {
    pub(super) name: String,
    pub(super) shape: KernelShape,
    /// Largest log evidence over signal variance and ridge, nats.
    evidence: f64,
}

/// The rows that the evidence is of, and their lambda-returns: of every reward about its mean, in its standard deviations.
pub(super) struct Evidence<'a> {
    question: &'a Question<'a>,
    rows: Rows,
    nodes: Vec<usize>,
    states: Vec<f64>,
}

impl<'a> Evidence<'a> {
    pub(super) fn new(question: &'a Question<'a>, pieces: &Pieces) -> Self {
        let dim = pieces.dim;
        let nodes =
            pieces.weighted_sample(if dim < MANY { EVIDENCE_ROWS } else { ROWS_OF_MANY }, question.seed ^ 0xe71d);
        let mut rows = Rows::new(dim, question.rows.rewards_per_row);
        let mut states = Vec::with_capacity(nodes.len() * dim);
        for &node in &nodes {
            let row = pieces.row[node].expect("only rows are sampled");
            rows.extend(question.rows, row..row + 1);
            states.extend_from_slice(&pieces.states[node * dim..(node + 1) * dim]);
        }
        Self { question, rows, nodes, states }
    }

    /// `returns` (N, H) at all nodes, as (k, H) at the rows looked at.
    fn targets(&self, returns: &[f64], columns: usize) -> Matrix {
        let (all, count) = (returns.len() / columns, self.nodes.len());
        let mut out = Matrix::zeros(count, columns);
        for (h, returns) in returns.chunks_exact(all).enumerate() {
            let column = out.col_mut(h);
            column.iter_mut().zip(&self.nodes).for_each(|(y, &node)| *y = returns[node]);
            let mean = column.iter().sum::<f64>() / count as f64;
            column.iter_mut().for_each(|y| *y -= mean);
            let deviation = (column.iter().map(|y| y * y).sum::<f64>() / count as f64).sqrt();
            if deviation > 1e-10 * mean.abs() {
                column.iter_mut().for_each(|y| *y /= deviation);
            }
        }
        out
    }

    /// Search for relevances, and then the kernels of ladder and multiples, those with the most evidence first; none of these once the
    /// budget is used up. `before` is what the
    /// search of the round before has found; `name` says which round this is.
    pub(super) fn proposals(
        &self,
        returns: &[f64],
        columns: usize,
        before: Option<FittedRelevances>,
        round: &mut Round<'_>,
    ) -> Result<(Vec<Proposal>, Option<FittedRelevances>), RefitError> {
        let targets = self.targets(returns, columns);
        let found = match self.search(&targets, before, round) {
            // The ladder stands without it.
            Err(RefitError::NoAscent(_)) => None,
            found => Some(found?),
        };
        if !round.allowance.left() {
            // None of them could be compared any more.
            return Ok((Vec::new(), found));
        }
        let compared = self.question.compared();
        let mut shapes: Vec<(String, KernelShape)> = Vec::new();
        let mut add = |name: String, metric: Metric, linear: bool| {
            let shape = self.question.shape(metric, linear);
            shapes.push((shape.name(&name), shape));
        };
        for &linear in compared {
            for c in LADDER.into_iter().chain(linear.then_some(LONG)) {
                add(format!("isotropic {c}"), self.question.isotropic(c), linear);
            }
        }
        for found in
            found.iter().flat_map(|FittedRelevances { found, directed, .. }| std::iter::once(found).chain(directed))
        {
            let metric = found.hyperparameters().kernel.metric;
            let name = format!("{} {}", found.structure.name, round.number);
            for (&linear, q) in compared.iter().flat_map(|linear| MULTIPLES.map(|q| (linear, q))) {
                match q {
                    1.0 => add(name.clone(), metric.clone(), linear),
                    _ => add(format!("{name} x {q:.2}"), multiplied(&metric, q), linear),
                }
            }
        }
        shapes.retain(|(_, shape)| self.question.may_be_chosen(&shape.metric));
        let evidence =
            self.of_each(&targets, shapes.iter().map(|(_, shape)| shape), round.keep_going, round.allowance)?;
        let named = shapes.into_iter().zip(evidence);
        let mut out: Vec<_> = named.map(|((name, shape), evidence)| Proposal { name, shape, evidence }).collect();
        out.sort_by(|a, b| b.evidence.total_cmp(&a.evidence));
        Ok((out, found))
    }

    /// The Gaussian kernel beside one of these: with the multiple of its metric that has the most evidence; none where that kernel itself
    /// has more.
    pub(super) fn smooth(
        &self,
        shape: &KernelShape,
        returns: &[f64],
        columns: usize,
        keep_going: KeepGoing<'_>,
        allowance: &Allowance,
    ) -> Result<Option<KernelShape>, RefitError> {
        let with =
            |q: f64| KernelShape { metric: multiplied(&shape.metric, q), profile: Profile::Gaussian, ..shape.clone() };
        let shapes: Vec<KernelShape> = std::iter::once(shape.clone()).chain(SMOOTH.map(with)).collect();
        let evidence = self.of_each(&self.targets(returns, columns), shapes.iter(), keep_going, allowance)?;
        let best = (0..shapes.len()).max_by(|&a, &b| evidence[a].total_cmp(&evidence[b])).expect("some shapes");
        Ok((best > 0).then(|| shapes[best].clone()))
    }

    /// Log evidence of targets at the rows looked at under each of these kernels, nats.
    fn of_each<'s>(
        &self,
        targets: &Matrix,
        shapes: impl Iterator<Item = &'s KernelShape>,
        keep_going: KeepGoing<'_>,
        allowance: &Allowance,
    ) -> Result<Vec<f64>, RefitError> {
        let kernels: Vec<Kernel> = shapes.map(|shape| self.question.kernel(shape)).collect();
        let (states, few) = self.compared(targets);
        allowance.spend(kernels.len() as f64 * allowance::over_ridges(few.rows(), self.rows.dim));
        let of = |k: usize| keep_going().then(|| profiled(&kernels[k], self.rows.dim, &states, &few));
        each(kernels.len(), of).into_iter().collect::<Option<_>>().ok_or(RefitError::Stopped)
    }

    /// States and targets of the rows that kernels are compared at: evenly spaced ones of those that relevances are fitted to.
    fn compared(&self, targets: &Matrix) -> (Vec<f64>, Matrix) {
        let (all, dim) = (targets.rows(), self.rows.dim);
        let count = all.min(EVIDENCE_ROWS);
        let rows: Vec<usize> = (0..count).map(|k| k * all / count).collect();
        let states = rows.iter().flat_map(|&i| &self.states[i * dim..(i + 1) * dim]).copied().collect();
        let mut few = Matrix::zeros(count, targets.cols());
        for h in 0..targets.cols() {
            few.col_mut(h).iter_mut().zip(&rows).for_each(|(y, &i)| *y = targets.at(i, h));
        }
        (states, few)
    }

    fn search(
        &self,
        targets: &Matrix,
        before: Option<FittedRelevances>,
        round: &mut Round<'_>,
    ) -> Result<FittedRelevances, RefitError> {
        let question = self.question;
        if self.nodes.len() < ROWS_MIN {
            return Err(RefitError::NoAscent(DeadEnd::Rows(self.nodes.len())));
        }
        let settings = Settings {
            // Lambda-returns at rows that are far apart are regressed on their states.
            noise: NoiseModel::Correlated,
            evidence: SelectBy::Exact,
            evidence_rows: self.nodes.len().max(1),
            search_starts: 3,
            state_kinds: KindSetting::known(question.kinds),
            ..question.settings.clone()
        };
        let data = Data {
            rows: &self.rows,
            inputs: question.inputs,
            targets,
            left_out: question.left_out,
            room: question.room,
            seed: question.seed,
            profiled: None,
            linear: if question.compared() == [true] { LINEAR } else { 0.0 },
        };
        let mut search = Search::new(&settings, &data)?;
        search.effort = Effort { finalists: 1, evaluations: EVALUATIONS };
        let present = question.start();
        let Round { number, note, .. } = round;
        let mut climb = Climb {
            search: &search,
            present: &present,
            also: &[],
            by: EvidenceKind::Exact,
            note: &mut |structure: &Structure, rows, found: &[Ascent]| note(*number, structure, rows, found),
            keep_going: round.keep_going,
            allowance: round.allowance,
        };
        let (found, directed) = match before {
            Some(FittedRelevances { found, directed, .. }) => {
                let found = climb.again(found)?;
                let directed = match directed.map(|directed| climb.again(directed)).transpose() {
                    Err(RefitError::NoAscent(_)) => None,
                    directed => directed?,
                };
                (found, directed)
            }
            None => {
                let found = climb.select(settings.kernel, round.structures)?;
                let directed = self.is_directed().then(|| climb.directions(&found, round.structures)).transpose()?;
                (found, directed.flatten())
            }
        };
        Ok(FittedRelevances { search, found, directed })
    }

    /// Whether directions are searched for beside the relevances that the settings ask for.
    fn is_directed(&self) -> bool {
        let settings = &self.question.settings;
        let is_line = |d: &usize| self.question.kinds.get(*d).is_none_or(|kind| kind.is_line());
        let lines = (0..self.rows.dim).filter(|d| is_line(d) && !self.question.left_out.contains(d)).count();
        settings.kernel == KernelKind::Ard && self.question.has_other_kinds() && lines >= DIRECTED
    }
}

/// What a round of the search tells, and what may end it.
pub(super) struct Round<'a> {
    /// From 1.
    pub(super) number: usize,
    pub(super) note: super::Note<'a>,
    pub(super) structures: &'a mut Vec<StructureReport>,
    pub(super) keep_going: KeepGoing<'a>,
    pub(super) allowance: &'a Allowance,
}

/// The metric with all inverse squared lengthscales multiplied.
fn multiplied(metric: &Metric, by: f64) -> Metric {
    match metric {
        Metric::Isotropic(h) => Metric::Isotropic(h * by),
        Metric::Ard(a) => Metric::Ard(a.iter().map(|a| a * by).collect()),
        Metric::Factor { relevance, factors } => Metric::Factor {
            relevance: relevance.iter().map(|a| a * by).collect(),
            factors: factors.iter().map(|f| f.iter().map(|f| f * by.sqrt()).collect()).collect(),
        },
    }
}

/// The exact log evidence of `targets` (k, H) at `states` (k, D) under a kernel, nats, up to a constant: at the best signal variance
/// and the best of [`RIDGES`].
/// ```text
/// K = Q T Q',   -1/2 [H log|T + r I| + k H log(sum over H of y'Q (T + r I)^-1 Q'y / (k H))]
/// ```
fn profiled(kernel: &Kernel, dim: usize, states: &[f64], targets: &Matrix) -> f64 {
    let (count, columns) = (targets.rows(), targets.cols() as f64);
    let points = kernel.project(dim, states);
    let mut gram = Matrix::zeros(count, count);
    kernel.block(&Points::new(kernel.projected_dim(dim), &points), &points, &mut gram.view_mut());
    kernel.add_columns(&points, &points, &mut gram);
    let mut turned = targets.clone();
    // A matrix that is not finite says nothing for its kernel.
    let Ok(reduced) = Tridiagonal::reduce(&gram, &mut turned) else { return f64::NEG_INFINITY };
    let observed = count as f64 * columns;
    let at = |&ridge: &f64| {
        let (log_determinant, quadratic) = reduced.with_ridge(ridge, &turned)?;
        Some(-0.5 * (columns * log_determinant + observed * (quadratic / observed).max(f64::MIN_POSITIVE).ln()))
    };
    RIDGES.iter().filter_map(at).fold(f64::NEG_INFINITY, f64::max)
}
