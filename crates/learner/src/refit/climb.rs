//! The search under way: from structure to structure, and from the evidence of few rows to the evidence of all.

use super::error::{DeadEnd, RefitError};
use super::search::{EvidenceKind, Found, JITTER, PARAMETER_WORTH, Search, Structure, StructureReport, without};
use crate::allowance::{self, Allowance};
use crate::math::evidence::{
    Evaluator, Evidence, EvidenceError, KeepGoing, Problem, Sparse, Through, from_parameters, sparse, to_parameters,
};
use crate::math::kernel::{Hyperparameters, Metric};
use crate::math::optimise::{Ascent, Bounds, Budget, Outcome, maximise, starts};
use crate::settings::KernelKind;
use parking_lot::Mutex;

/// Evaluations of one ascent on the bound: between them the dictionary stays.
const BOUND_EVALUATIONS: usize = 40;
/// Most ascents on the bound. Each uses a dictionary selected at the result of the previous one.
const BOUND_ASCENTS: usize = 4;
/// The ascents on the bound stop when one gains less than this, nats.
const BOUND_GAIN: f64 = 0.5;
/// Directions of a factor model that are tried while evidence rises.
const DIRECTIONS_MAX: usize = 4;
/// The same where models without any are compared with them by more than evidence.
const DIRECTIONS_BESIDE: usize = 2;

/// A search under way.
pub(super) struct Climb<'a> {
    pub(super) search: &'a Search,
    pub(super) present: &'a Hyperparameters,
    /// Further starts, in the same coordinates.
    pub(super) also: &'a [Hyperparameters],
    /// What it climbs by at the moment.
    pub(super) by: EvidenceKind,
    /// Called with every ascent and the number of its rows.
    pub(super) note: &'a mut dyn FnMut(&Structure, usize, &[Ascent]),
    pub(super) keep_going: KeepGoing<'a>,
    pub(super) allowance: &'a Allowance,
}

impl Climb<'_> {
    /// The best structure of `kind` by evidence \[JS09, footnote 6 and section 6.2\]. A free parameter has to be worth
    /// [`PARAMETER_WORTH`].
    pub(super) fn select(&mut self, kind: KernelKind, tried: &mut Vec<StructureReport>) -> Result<Found, RefitError> {
        let (mut best, mut evaluations) = (None, 0);
        match self.explore(kind, &mut best, &mut evaluations, tried) {
            // What has been found stands, though a structure beyond it cannot be climbed.
            Err(RefitError::NoAscent(_)) if best.is_some() => {}
            explored => explored?,
        }
        let mut best = best.expect("at least one structure has been tried");
        best.ascent.evaluations = evaluations;
        Ok(best)
    }

    /// One structure after the other; the best so far in `best`.
    fn explore(
        &mut self,
        kind: KernelKind,
        best: &mut Option<Found>,
        evaluations: &mut usize,
        tried: &mut Vec<StructureReport>,
    ) -> Result<(), RefitError> {
        let dim = self.search.problem.dim();
        let left_out = self.search.left_out.clone();
        let mut keep = |found: Found, best: &mut Option<Found>| -> bool {
            tried.push(StructureReport::of(&found));
            *evaluations += found.ascent.evaluations;
            let better = best.as_ref().is_none_or(|best| found.worth() > best.worth());
            if better {
                *best = Some(found);
            }
            better
        };
        if matches!(kind, KernelKind::Isotropic | KernelKind::Auto) {
            let isotropic = self.search.structure(Metric::Isotropic(1.0), &[]);
            keep(self.climb(isotropic, Vec::new())?, best);
        }
        let more = |climb: &Self| climb.allowance.left();
        if kind != KernelKind::Isotropic && (best.is_none() || more(self)) && (kind != KernelKind::Auto || dim > 1) {
            let from = best.iter().map(|isotropic| one_for_each(&isotropic.ascent.parameters, dim)).collect();
            let ard = self.climb(self.search.structure(Metric::Ard(vec![1.0; dim]), &left_out), from)?;
            let (mut last, mut gone) = (ard.clone(), left_out.clone());
            keep(ard.clone(), best);
            if kind == KernelKind::Auto && more(self) {
                let removed = self.irrelevant(&ard)?;
                if removed.len() > left_out.len() && removed.len() < dim {
                    let structure = self.search.structure(Metric::Ard(vec![1.0; dim]), &removed);
                    let from = ard.ascent.parameters.clone();
                    let fewer = self.refine(structure, vec![from])?;
                    // Directions among what matters: the rest would only cost time.
                    if keep(fewer.clone(), best) {
                        (last, gone) = (fewer, removed);
                    }
                }
            }
            let along = (0..dim).filter(|&d| self.search.is_line(d)).count();
            let left = (0..dim).filter(|&d| self.search.is_line(d) && !gone.contains(&d)).count();
            let directions = match kind {
                KernelKind::Factor(Some(k)) if along > 0 => k,
                KernelKind::Factor(None) | KernelKind::Auto => left.saturating_sub(1).min(DIRECTIONS_MAX),
                _ => 0,
            };
            for k in 1..=directions {
                if !more(self) {
                    break;
                }
                let metric = Metric::Factor { relevance: vec![1.0; dim], factors: vec![vec![0.0; dim]; k] };
                let structure = self.search.structure(metric, &gone);
                let from = self.with_direction(&last, k);
                let found = self.climb(structure, from)?;
                last = found.clone();
                // A number of directions that was asked for is what is given.
                let asked = matches!(kind, KernelKind::Factor(Some(_)));
                if asked || kind == KernelKind::Factor(None) && k == 1 {
                    *best = None;
                }
                if !keep(found, best) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Directions beside the relevances of `ard`, one after the other while each is worth its parameters, among the variables that are
    /// worth theirs; none where the first is not.
    pub(super) fn directions(
        &mut self,
        ard: &Found,
        tried: &mut Vec<StructureReport>,
    ) -> Result<Option<Found>, RefitError> {
        let dim = self.search.problem.dim();
        let gone = self.irrelevant(ard)?;
        let left = (0..dim).filter(|d| self.search.is_line(*d) && !gone.contains(d)).count();
        let (mut last, mut best): (Found, Option<Found>) = (ard.clone(), None);
        for k in 1..=left.saturating_sub(1).min(DIRECTIONS_BESIDE) {
            if !self.allowance.left() {
                break;
            }
            let metric = Metric::Factor { relevance: vec![1.0; dim], factors: vec![vec![0.0; dim]; k] };
            let from = self.with_direction(&last, k);
            let found = match self.climb(self.search.structure(metric, &gone), from) {
                // What there is stands, though a structure beyond it cannot be climbed.
                Err(RefitError::NoAscent(_)) => break,
                found => found?,
            };
            tried.push(StructureReport::of(&found));
            if found.worth() <= best.as_ref().unwrap_or(ard).worth() {
                break;
            }
            last = found.clone();
            best = Some(found);
        }
        Ok(best)
    }

    /// If the exact evidence used a subset, continue the ascent on the variational bound of all rows. If variables may be
    /// `removed`, remove those that matter to the subset but not to all rows.
    pub(super) fn refine_on_all_rows(&mut self, found: Found, removable: bool) -> Result<Found, RefitError> {
        if !self.search.has_bound() || found.by == EvidenceKind::Sparse || !self.allowance.left() {
            return Ok(found);
        }
        self.by = EvidenceKind::Sparse;
        let (before, exact) = (found.ascent.evaluations, found.ascent.log_evidence);
        let mut wide = match self.reach(&found.structure, std::slice::from_ref(&found.ascent.parameters)) {
            Ok(Some(wide)) => wide,
            // Nothing left for a single point, or no point that the bound can be computed at: what the exact evidence has found stands.
            Ok(None) | Err(RefitError::NoAscent(_)) => {
                self.by = EvidenceKind::Exact;
                return Ok(found);
            }
            Err(e) => return Err(e),
        };
        let dim = self.search.problem.dim();
        if removable && matches!(wide.structure.like.kernel.metric, Metric::Ard(_)) && self.allowance.left() {
            let removed = self.irrelevant(&wide)?;
            let relevance = wide.hyperparameters().kernel.metric.relevance(dim);
            if removed.len() < dim && removed.iter().any(|&d| relevance[d] > 0.0) {
                let structure = self.search.structure(Metric::Ard(vec![1.0; dim]), &removed);
                let fewer = self.refine(structure, vec![wide.ascent.parameters.clone()])?;
                if fewer.worth() > wide.worth() {
                    wide = Found { ascent: Ascent { evaluations: wide.ascent.evaluations, ..fewer.ascent }, ..fewer };
                }
            }
        }
        wide.ascent.evaluations += before;
        let kept = self.value(EvidenceKind::Exact, &wide.hyperparameters());
        wide.evidence_loss = kept.ok().map(|kept| exact - kept.value);
        Ok(wide)
    }

    /// State variables that are not worth their parameter, the least relevant first, each with those before it removed; those left
    /// out from the beginning among them. If the budget is used up, those found by then.
    fn irrelevant(&self, ard: &Found) -> Result<Vec<usize>, RefitError> {
        let mut hyper = ard.hyperparameters();
        let dim = self.search.problem.dim();
        let relevance = hyper.kernel.metric.relevance(dim);
        let mut order: Vec<usize> = (0..dim).collect();
        order.sort_by(|&a, &b| relevance[a].total_cmp(&relevance[b]));
        let mut evidence = ard.ascent.log_evidence;
        let mut removed = Vec::new();
        for d in order {
            if relevance[d] == 0.0 {
                removed.push(d);
                continue;
            }
            if !self.allowance.left() {
                break;
            }
            let fewer = without(&hyper, &[d], dim);
            match self.value(self.by, &fewer) {
                Ok(Evidence { value, .. }) if value >= evidence - PARAMETER_WORTH => {
                    evidence = value;
                    hyper = fewer;
                    removed.push(d);
                }
                Err(EvidenceError::Stopped) => return Err(RefitError::Stopped),
                _ => break,
            }
        }
        removed.sort_unstable();
        Ok(removed)
    }

    /// Starts for k directions from a model with one less: a new direction along the most relevant coordinates, of either
    /// orientation, that takes over part of their relevance.
    fn with_direction(&self, before: &Found, k: usize) -> Vec<Vec<f64>> {
        let dim = self.search.problem.dim();
        let hyper = before.hyperparameters();
        let relevance = hyper.kernel.metric.relevance(dim);
        let mut order: Vec<usize> = (0..dim).filter(|&d| self.search.is_line(d)).collect();
        order.sort_by(|&a, &b| relevance[b].total_cmp(&relevance[a]));
        // What is left out cannot be part of a direction.
        let live = order.iter().filter(|&&d| relevance[d] > 0.0).count().max(1);
        let (first, second) = (order[0], order[k.min(live - 1)]);
        [1.0, -1.0]
            .iter()
            .map(|sign| {
                let mut x = before.ascent.parameters.clone();
                let mut direction = vec![0.0; dim];
                direction[first] = (0.5 * relevance[first]).sqrt().max(0.1);
                direction[second] = sign * (0.5 * relevance[second].max(0.1 * relevance[first])).sqrt().max(0.1);
                x[3 + first] -= std::f64::consts::LN_2;
                x[3 + second] -= std::f64::consts::LN_2;
                x.extend(direction);
                x
            })
            .collect()
    }

    /// Climb again in the same structure, from where the last climb ended.
    pub(super) fn again(&mut self, found: Found) -> Result<Found, RefitError> {
        Ok(Found { evidence_loss: found.evidence_loss, ..self.refine(found.structure, vec![found.ascent.parameters])? })
    }

    /// All starts and `more` ones on few rows, then the best of them on many.
    fn climb(&mut self, structure: Structure, more: Vec<Vec<f64>>) -> Result<Found, RefitError> {
        // A present model of another structure is no start for this one.
        let metric = &structure.like.kernel.metric;
        let is_like = |of: &Hyperparameters| {
            let other = &of.kernel.metric;
            other.kind() == metric.kind() && other.factors().len() == metric.factors().len()
        };
        let same = is_like(self.present);
        // What is known to be good goes first, in case the budget does not suffice for all.
        let mut from = more;
        let also: Vec<&Hyperparameters> = self.also.iter().filter(|of| is_like(of)).collect();
        let random = self.search.starts.saturating_sub(2 + usize::from(same) + from.len() + also.len());
        from.extend(starts(
            metric,
            self.search.problem.dim(),
            &self.search.targets,
            same.then_some(self.present),
            &structure.bounds,
            random,
            self.search.seed,
        ));
        from.extend(also.into_iter().map(|of| inside(&structure.bounds, &to_parameters(of))));
        let screened = self.ascend(&structure, &self.search.screen, &from);
        let begun = !screened.is_empty();
        (self.note)(&structure, self.search.screen.rows(), &screened);
        let evaluations = screened.iter().map(|a| a.evaluations).sum::<usize>();
        let mut kept: Vec<Vec<f64>> = Vec::new();
        for ascent in screened.into_iter().filter(|a| a.objective.is_finite()) {
            let near = |x: &Vec<f64>| x.iter().zip(&ascent.parameters).all(|(a, b)| a == b || (a - b).abs() < 0.1);
            if kept.len() < self.search.effort.finalists && !kept.iter().any(near) {
                kept.push(ascent.parameters);
            }
        }
        if !(self.keep_going)() {
            return Err(RefitError::Stopped);
        }
        if kept.is_empty() {
            if begun {
                return Err(RefitError::NoAscent(DeadEnd::Starts));
            }
            kept.push(from.swap_remove(0));
        }
        let mut found = self.refine(structure, kept)?;
        found.ascent.evaluations += evaluations;
        Ok(found)
    }

    /// Climb on many rows from each of `from`, by the evidence that counts at the moment. If the budget is used up before that,
    /// the first of them stands, with its evidence on the same rows as all others.
    fn refine(&mut self, structure: Structure, from: Vec<Vec<f64>>) -> Result<Found, RefitError> {
        match self.reach(&structure, &from)? {
            Some(found) => Ok(found),
            None => {
                let ascent = self.unclimbed(&structure, &from[0])?;
                Ok(Found { structure, ascent, by: self.by, evidence_loss: None })
            }
        }
    }

    /// The best that can be climbed to from `from`; none if nothing was left for a single point.
    fn reach(&mut self, structure: &Structure, from: &[Vec<f64>]) -> Result<Option<Found>, RefitError> {
        let by = self.by;
        let mut ascents = match by {
            EvidenceKind::Exact => self.ascend(structure, &self.search.problem, from),
            EvidenceKind::Sparse => self.ascend_bound(structure, from)?,
        };
        (self.note)(structure, self.search.rows(by), &ascents);
        if !(self.keep_going)() {
            return Err(RefitError::Stopped);
        }
        let evaluations = ascents.iter().map(|a| a.evaluations).sum::<usize>();
        ascents.sort_by(|a, b| b.objective.total_cmp(&a.objective));
        if ascents.first().is_some_and(|a| a.objective.is_finite()) {
            let ascent = Ascent { evaluations, ..ascents.swap_remove(0) };
            Ok(Some(Found { structure: structure.clone(), ascent, by, evidence_loss: None }))
        } else if ascents.is_empty() {
            Ok(None)
        } else {
            Err(RefitError::NoAscent(DeadEnd::Starts))
        }
    }

    /// Ascents on the exact evidence, the best first. Where the budget does not suffice for all evaluations of all of them, the first
    /// begin, and the next ones have what these leave.
    fn ascend(&self, structure: &Structure, problem: &Problem, from: &[Vec<f64>]) -> Vec<Ascent> {
        // Ascents may run beside each other: one evaluator for each that does.
        let idle: Mutex<Vec<Evaluator>> = Mutex::default();
        let objective = |x: &[f64]| {
            let hyper = from_parameters(&structure.like, x);
            let mut evaluator = idle.lock().pop().unwrap_or_default();
            let found = evaluator.exact(problem, &hyper, self.keep_going);
            idle.lock().push(evaluator);
            found.map(|e| (e.value, e.gradient))
        };
        let (most, each) = (self.search.effort.evaluations, allowance::exact(problem, true));
        let mut ascents: Vec<Ascent> = Vec::with_capacity(from.len());
        let mut begun = 0;
        while begun < from.len() && (self.keep_going)() {
            let (together, evaluations) = self.allowance.share(from.len() - begun, most, each);
            if together == 0 {
                self.allowance.end();
                break;
            }
            let (starts, budget) = (&from[begun..begun + together], Budget::new(evaluations, self.keep_going));
            let found = maximise(objective, starts, &structure.bounds, &structure.priors, budget);
            self.count(&found, each, evaluations < most);
            ascents.extend(found.into_iter().map(|ascent| Ascent { start: begun + ascent.start, ..ascent }));
            begun += together;
        }
        ascents.sort_by(|a, b| b.objective.total_cmp(&a.objective));
        ascents
    }

    /// Count evaluations, each of `each` products; those that were `cut` short have been ended by the budget.
    fn count(&self, ascents: &[Ascent], each: f64, cut: bool) {
        self.allowance.spend(each * ascents.iter().map(|ascent| ascent.evaluations).sum::<usize>() as f64);
        if cut && ascents.iter().any(|ascent| ascent.outcome == Outcome::OutOfBudget) {
            self.allowance.end();
        }
    }

    fn value(&self, by: EvidenceKind, hyper: &Hyperparameters) -> Result<Evidence, EvidenceError> {
        self.search.value(by, hyper, self.keep_going, self.allowance)
    }

    /// From each start ascents on the bound, each through a dictionary chosen where the one before it ended: a dictionary
    /// is good only for lengthscales about those it was chosen for.
    fn ascend_bound(&self, structure: &Structure, from: &[Vec<f64>]) -> Result<Vec<Ascent>, RefitError> {
        let whole = self.search.whole.as_ref().expect("the bound is climbed only where there are more rows");
        let mut ascents: Vec<Ascent> = Vec::new();
        for start in from {
            let (mut at, mut best) = (start.clone(), f64::NEG_INFINITY);
            for _ in 0..BOUND_ASCENTS {
                if !self.allowance.left() {
                    break;
                }
                let hyper = from_parameters(&structure.like, &at);
                let basis = whole.dictionary(&hyper, self.keep_going, self.allowance).ok_or(RefitError::Stopped)?;
                let each = allowance::bound(&whole.problem, basis.len() / whole.problem.dim(), true);
                let (_, evaluations) = self.allowance.share(1, BOUND_EVALUATIONS, each);
                if evaluations == 0 {
                    self.allowance.end();
                    break;
                }
                let value = |x: &[f64]| {
                    let hyper = from_parameters(&structure.like, x);
                    let found = sparse(
                        &whole.problem,
                        &hyper,
                        Through { dictionary: &basis, kind: Sparse::Vfe, jitter: JITTER },
                        self.keep_going,
                    )?;
                    Ok((found.value, found.gradient))
                };
                // A dictionary is not worth more care: the next one moves the bound by more.
                let budget = Budget::new(evaluations, self.keep_going);
                let budget = Budget { gradient_tolerance: 0.05, gain_tolerance: 0.02, ..budget };
                let found = maximise(value, &[at], &structure.bounds, &structure.priors, budget);
                self.count(&found, each, evaluations < BOUND_EVALUATIONS);
                // None if it was stopped before it began.
                let Some(found) = found.into_iter().next() else { break };
                let gain = found.objective - best;
                at = found.parameters.clone();
                best = best.max(found.objective);
                ascents.push(found);
                if gain.is_nan() || gain < BOUND_GAIN {
                    break;
                }
            }
        }
        Ok(ascents)
    }

    /// A point as it is, with its evidence; if it is outside the structure's box, the nearest one inside.
    fn unclimbed(&self, structure: &Structure, parameters: &[f64]) -> Result<Ascent, RefitError> {
        let parameters = inside(&structure.bounds, parameters);
        let hyper = from_parameters(&structure.like, &parameters);
        let found = self.value(self.by, &hyper).map_err(RefitError::from)?;
        Ok(Ascent {
            start: 0,
            parameters,
            objective: found.value,
            log_evidence: found.value,
            gradient_norm: f64::INFINITY,
            evaluations: 1,
            active: Vec::new(),
            outcome: Outcome::OutOfBudget,
        })
    }
}

/// The nearest point in a box.
fn inside(Bounds { lower, upper }: &Bounds, parameters: &[f64]) -> Vec<f64> {
    parameters.iter().zip(lower).zip(upper).map(|((x, lower), upper)| x.max(*lower).min(*upper)).collect()
}

/// Parameters of an isotropic model as an ARD one's with the same covariance.
fn one_for_each(isotropic: &[f64], dim: usize) -> Vec<f64> {
    let (scales, relevance) = isotropic.split_at(3);
    scales.iter().copied().chain(std::iter::repeat_n(relevance[0], dim)).collect()
}
