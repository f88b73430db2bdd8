//! The referee: select kernel, lambda and ridge together by cross-validation over folds of chains.
//!
//! Evidence of lambda-returns proposes kernels, a ladder of isotropic ones guards against what it cannot see, and all of them
//! are compared out of fold, under every lambda and ridge, against one reference (`jury.rs`). The present model is one of them,
//! unless the settings have other linear columns than it, and stays unless another is better by more than the standard error of the
//! difference, and by more than rounding.

mod change;
mod folds;
mod jury;
mod pieces;
mod proposals;
mod report;
#[cfg(test)]
mod tests;

use super::error::{DeadEnd, RefitError};
use super::search::{Found, Search, Structure, StructureReport};
use crate::allowance::{self, Allowance};
use crate::math::dictionary::{Dictionary, StoppingRule, pivoted_cholesky};
use crate::math::embedding::StateKind;
use crate::math::evidence::KeepGoing;
use crate::math::kernel::{Hyperparameters, Kernel, Metric, Profile};
use crate::math::optimise::Ascent;
use crate::settings::{CONSTANT_SHARE, KernelKind, Settings};
use crate::snapshot::Inputs;
use crate::transition::Rows;
pub(super) use change::Change;
use folds::each;
use jury::{Candidate, Contender, Jury, JuryVerdict};
use pieces::{FOLDS, Pieces, Source};
use proposals::{Evidence, FittedRelevances, Proposal, Round};
pub use report::{CandidateReport, LambdaReport, SelectionReport};

/// Lambdas that are compared if none is given.
const LAMBDAS: [f64; 5] = [0.0, 0.5, 0.8, 0.95, 1.0];
/// Lambdas of the reference, which are always computed.
const LAMBDAS_OF_REFERENCE: [f64; 3] = [0.5, 0.8, 0.95];
/// Ridges sigma0^2 / v0 that are compared.
const RATIOS: [f64; 6] = [3e-4, 3e-3, 0.03, 0.3, 3.0, 30.0];
/// The level of V varies this much more than V about it: b / v0.
pub(super) const BIAS: f64 = 10.0;
/// The variance of linear columns over v0, c, in normalised coordinates.
const LINEAR: f64 = 1.0;
/// The ladder's kernels that the pool begins with: a long lengthscale and a short one, and the long one beside linear columns. What is
/// linear needs no short one: the columns have it.
const BEGIN: [(f64, bool); 3] = [(0.3, false), (3.0, false), (0.3, true)];
/// Rounds of reference, search and proposals.
const SEARCH_ROUNDS: usize = 2;
/// Kernels that join the pool in a round.
const JOINING: usize = 2;
/// A kind of model other than the present one must score lower by this share, and by a standard error.
const OF_ANOTHER_KIND: f64 = 0.01;
/// A gain of less than this share of the present score, or of less than this score, a 300th of the deviation of returns, is rounding.
const UNNOTICED_SHARE: f64 = 1e-3;
const UNNOTICED: f64 = 1e-5;
/// Lambda of the targets by which a round's reference follows the best candidates.
const FOLLOWING: f64 = 0.95;
/// Lambda of the targets of the evidence.
const FITTED: f64 = 0.8;
/// Lambdas of the deciding targets: short targets follow the reference's errors, long ones are noisy.
const DECIDING: [f64; 3] = [0.8, 0.95, 1.0];
/// Most elements of a dictionary of the comparison.
const ELEMENTS: usize = 300;
/// Rows for each element at least, unless that leaves fewer than the least below: solving for more would take most of the time
/// of a first selection.
const ROWS_PER_ELEMENT: usize = 4;
const ELEMENTS_OF_FEW: usize = 50;
/// States that it is chosen from.
const CANDIDATES: usize = 3000;
/// What it may leave out of V at any of them, relative to v0.
const TOLERANCE: f64 = 1e-5;
/// Most rows compared, divided by the number of rewards.
const ROWS_MAX: usize = 40_000;
/// Rows compared at least, however many rewards there are.
const ROWS_OF_MANY_REWARDS: usize = 10_000;

/// Called with every ascent: the round from 1, its structure, and the number of its rows.
pub(super) type Note<'a> = &'a mut dyn FnMut(usize, &Structure, usize, &[Ascent]);

/// What is asked.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) settings: &'a Settings,
    pub(super) rows: &'a Rows,
    /// Normalisation of the states that hyperparameters refer to.
    pub(super) inputs: &'a Inputs,
    /// What each of them is; empty if all are real.
    pub(super) kinds: &'a [StateKind],
    /// The same with variables bent that are far from normal, which is compared as well; none if no variable is.
    pub(super) bent: Option<&'a [StateKind]>,
    /// State variables that cannot matter beside the others.
    pub(super) left_out: &'a [usize],
    /// The present model's hyperparameters, in the coordinates of `inputs`, and its lambda.
    pub(super) present: Option<(&'a Hyperparameters, f64)>,
    /// The kernel that heads have chosen: lambda, ridge and columns are then chosen for it, and other kernels only help to judge.
    pub(super) kernel: Option<&'a Metric>,
    /// The lambda that is wanted; none to have it chosen.
    pub(super) lambda: Option<f64>,
    /// Most elements of a dictionary.
    pub(super) room: usize,
    pub(super) seed: u64,
}

/// What is answered.
pub(super) struct Choice {
    /// The signal variance is 1, so that the noise variance is the ridge itself; scale is for the caller.
    pub(super) hyperparameters: Hyperparameters,
    pub(super) lambda: f64,
    pub(super) report: SelectionReport,
    /// The last search for relevances, and what it found; none if nothing was left for it, or nothing to climb. Its targets are in their
    /// standard deviations.
    pub(super) found: Option<(Search, Found)>,
    /// Structures that the first search has tried.
    pub(super) structures: Vec<StructureReport>,
}

impl Question<'_> {
    /// Isotropic relevances of the ladder: 2 c / D for all that are not left out.
    fn isotropic(&self, c: f64) -> Metric {
        let dim = self.inputs.dim();
        let relevance = 2.0 * c / (dim - self.left_out.len().min(dim - 1)) as f64;
        if self.settings.kernel == KernelKind::Isotropic {
            return Metric::Isotropic(relevance);
        }
        Metric::Ard((0..dim).map(|d| if self.left_out.contains(&d) { 0.0 } else { relevance }).collect())
    }

    /// The kernel of a candidate.
    fn kernel(&self, shape: &KernelShape) -> Kernel {
        let dim = self.inputs.dim();
        let bias = if self.settings.leaves_constant_to_mean() { CONSTANT_SHARE } else { BIAS };
        let kernel =
            Kernel::gaussian(1.0, bias, shape.metric.clone()).with_profile(shape.profile).with_kinds(&shape.kinds);
        if shape.linear { kernel.with_linear_columns(dim, LINEAR, self.settings.line()) } else { kernel }
    }

    /// A metric with the profile of the settings.
    fn shape(&self, metric: Metric, linear: bool) -> KernelShape {
        KernelShape { metric, profile: self.settings.profile, linear, kinds: self.kinds.to_vec() }
    }

    /// The same question with variables bent, if some are to be.
    fn bent(&self) -> Option<Self> {
        self.bent.map(|kinds| Self { kinds, bent: None, ..*self })
    }

    /// Whether kernels of other kinds than the settings' are compared. They pay where values are learned; whether
    /// they pay for values of actions was not measured.
    fn has_other_kinds(&self) -> bool {
        self.settings.action_value.is_none()
    }

    /// Whether kernels without linear columns are compared, and those with them.
    fn compared(&self) -> &'static [bool] {
        self.settings.linear_columns.compared(self.settings.improves() || self.settings.about_mean)
    }

    /// The shape of the present kernel, with columns only where such kernels are compared, and whether its columns are the functions that
    /// they were: else the present model is none of the candidates.
    fn beside_present(&self, present: &Kernel) -> (KernelShape, bool) {
        let (linear, compared) = (present.linear_share() > 0.0, self.compared());
        let linear = if compared.contains(&linear) { linear } else { !linear };
        let kinds = present.kinds.clone();
        let shape = KernelShape { metric: present.metric.clone(), profile: present.profile, linear, kinds };
        let stays = self.kernel(&shape).lines().eq(present.lines());
        (shape, stays)
    }

    /// Whether a metric is of the kind that was asked for. Directions that were are given; the ladder then only helps to judge.
    fn may_be_chosen(&self, metric: &Metric) -> bool {
        if let Some(kernel) = self.kernel {
            return metric == kernel;
        }
        !matches!(self.settings.kernel, KernelKind::Factor(_)) || !metric.factors().is_empty()
    }

    /// Where the search for relevances begins, for targets of unit variance.
    fn start(&self) -> Hyperparameters {
        let metric = match self.present {
            Some((present, _)) => present.kernel.metric.clone(),
            None => self.isotropic(2.0),
        };
        let kernel = Kernel { bias_variance: 1.0, ..self.kernel(&self.shape(metric, false)) };
        Hyperparameters { kernel, noise: self.settings.noise, noise_variance: 0.1 }
    }

    /// Lambdas that are solved for: the ones that may be chosen, and the reference's.
    fn lambdas(&self) -> Vec<f64> {
        match self.lambda {
            None => LAMBDAS.to_vec(),
            Some(fixed) => {
                let others = LAMBDAS_OF_REFERENCE.into_iter().filter(|&lambda| lambda != fixed);
                std::iter::once(fixed).chain(others).collect()
            }
        }
    }
}

/// What kernels of the pool differ in.
#[derive(Clone, Debug, PartialEq)]
struct KernelShape {
    metric: Metric,
    profile: Profile,
    /// Whether constant and linear columns stand beside what the dictionary spans.
    linear: bool,
    /// What each state variable is; empty if all are real.
    kinds: Vec<StateKind>,
}

/// What one shape may have in common with another, whatever its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Kind {
    directed: bool,
    profile: Profile,
    linear: bool,
    bent: bool,
}

impl Kind {
    fn differences(self, other: Self) -> usize {
        [
            self.directed != other.directed,
            self.profile != other.profile,
            self.linear != other.linear,
            self.bent != other.bent,
        ]
        .map(usize::from)
        .iter()
        .sum()
    }
}

impl KernelShape {
    fn kind(&self) -> Kind {
        let (directed, bent) = (!self.metric.factors().is_empty(), self.kinds.iter().any(StateKind::is_bent));
        Kind { directed, profile: self.profile, linear: self.linear, bent }
    }

    /// `name` is the metric's.
    fn name(&self, name: &str) -> String {
        let bent = if self.kind().bent { "bent " } else { "" };
        format!("{bent}{name}{}", if self.linear { " + linear" } else { "" })
    }
}

/// A kernel of the pool.
struct Member {
    name: String,
    shape: KernelShape,
    elements: usize,
}

/// The kernels that are compared, and what they are compared on.
struct Pool<'a> {
    question: &'a Question<'a>,
    pieces: Pieces,
    lambdas: Vec<f64>,
    /// Normalised states (c, D) that dictionaries are chosen from.
    states: Vec<f64>,
    members: Vec<Member>,
    /// Whether the first of them is the present model's.
    has_present: bool,
    contenders: Vec<Contender>,
    /// Whether the budget has sufficed for all of them.
    all_there: bool,
    keep_going: KeepGoing<'a>,
    allowance: &'a Allowance,
}

/// Choose. Called in a pool of threads it uses them, and gives the same bits with any number of them.
///
/// `keep_going` is the stop flag, asked between blocks of rows. Once `allowance`, asked between kernels, is used up, the choice is among
/// those that are there: one at least.
///
/// # Errors
/// Stopped; nothing to be learned from the rows; no kernel gives numbers.
pub(super) fn choose(
    question: &Question<'_>,
    note: Note<'_>,
    keep_going: KeepGoing<'_>,
    allowance: &Allowance,
) -> Result<Choice, RefitError> {
    choose_with_pool(question, note, keep_going, allowance).map(|(choice, _)| choice)
}

fn choose_with_pool<'a>(
    question: &'a Question<'a>,
    note: Note<'_>,
    keep_going: KeepGoing<'a>,
    allowance: &'a Allowance,
) -> Result<(Choice, Pool<'a>), RefitError> {
    let mut pool = Pool::new(question, keep_going, allowance);
    pool.add_known()?;
    // Kernels beside columns join when all others are there, which are then the same whether columns are compared or not.
    let compared = question.compared();
    let (mut beside, mut best_beside, both) = (Vec::new(), Vec::new(), compared.len() > 1);
    for (c, linear) in BEGIN {
        let linear = linear || compared == [true];
        let (name, shape) = (format!("isotropic {c}"), question.shape(question.isotropic(c), linear));
        let name = shape.name(&name);
        if linear && both {
            beside.push((name, shape));
        } else if compared.contains(&linear) {
            pool.join(name, shape)?;
        }
    }
    let evidence = Evidence::new(question, &pool.pieces);
    let (mut found, mut structures): (Option<FittedRelevances>, _) = (None, Vec::new());
    let rounds = if question.kernel.is_some() { 0 } else { SEARCH_ROUNDS };
    for number in 1..=rounds {
        if !pool.goes_on() {
            break;
        }
        let returns = pool.returns()?;
        let mut round = Round { number, note: &mut *note, structures: &mut structures, keep_going, allowance };
        let (proposals, next) = evidence.proposals(&returns, pool.pieces.columns(), found.take(), &mut round)?;
        found = next;
        if !pool.goes_on() {
            break;
        }
        let (aside, plain): (Vec<_>, Vec<_>) =
            proposals.into_iter().partition(|proposal| both && proposal.shape.linear);
        if !aside.is_empty() {
            best_beside = best_of_each(aside).map(|proposal| (proposal.name, proposal.shape)).collect();
        }
        for proposal in joining(plain) {
            pool.join(proposal.name, proposal.shape)?;
        }
    }
    let bent = question.bent().filter(|_| rounds > 0 && pool.goes_on());
    let found_bent = bent.map(|bent| pool.add_bent(&bent, &mut best_beside, note)).transpose()?.flatten();
    let may_be_smooth = question.has_other_kinds() && question.settings.profile == Profile::Matern52;
    if rounds > 0
        && may_be_smooth
        && pool.goes_on()
        && let Some((name, shape)) = pool.smooth(&evidence)?
    {
        pool.add(name, shape, None)?;
    }
    for (name, shape) in beside.into_iter().chain(best_beside) {
        pool.join(name, shape)?;
    }
    let (hyperparameters, lambda, mut report) = pool.decide()?;
    report.out_of_time = !pool.all_there;
    let kernel = &hyperparameters.kernel;
    let found = if kernel.kinds.iter().any(StateKind::is_bent) { found_bent.or(found) } else { found };
    let found = found.map(|fitted| fitted.like(&kernel.metric));
    Ok((Choice { hyperparameters, lambda, report, found, structures }, pool))
}

/// The proposals, the best first, that join the pool: where some have directions and some have none, the best of both.
fn joining(proposals: Vec<Proposal>) -> impl Iterator<Item = Proposal> {
    let (directed, plain): (Vec<_>, Vec<_>) = proposals.into_iter().partition(|found| found.shape.kind().directed);
    let count = if directed.is_empty() || plain.is_empty() { JOINING } else { JOINING / 2 };
    plain.into_iter().take(count).chain(directed.into_iter().take(count))
}

/// The best of the proposals without directions, and that with some.
fn best_of_each(proposals: Vec<Proposal>) -> impl Iterator<Item = Proposal> {
    let (directed, plain): (Vec<_>, Vec<_>) = proposals.into_iter().partition(|found| found.shape.kind().directed);
    plain.into_iter().take(1).chain(directed.into_iter().take(1))
}

impl<'a> Pool<'a> {
    fn new(question: &'a Question<'a>, keep_going: KeepGoing<'a>, allowance: &'a Allowance) -> Self {
        let columns = &question.settings.rewards;
        let pieces = Pieces::new(&Source {
            rows: question.rows,
            rewards: columns,
            discount: question.settings.discount,
            ratio_max: question.settings.ratio_max(),
            inputs: question.inputs,
            rows_max: (ROWS_MAX / columns.len()).max(ROWS_OF_MANY_REWARDS),
            seed: question.seed,
        });
        let dim = pieces.dim;
        let chosen = pieces.sample(CANDIDATES, question.seed ^ 0xd1c7);
        let states = chosen.iter().flat_map(|&node| &pieces.states[node * dim..(node + 1) * dim]).copied().collect();
        let (members, contenders, lambdas) = (Vec::new(), Vec::new(), question.lambdas());
        Self {
            question,
            pieces,
            lambdas,
            states,
            members,
            has_present: false,
            contenders,
            all_there: true,
            keep_going,
            allowance,
        }
    }

    /// Whether there is no kernel yet, or the budget suffices for another.
    fn goes_on(&mut self) -> bool {
        self.all_there &= self.members.is_empty() || self.allowance.left();
        self.all_there
    }

    fn has_not(&self, name: &str) -> bool {
        self.members.iter().all(|member| member.name != name)
    }

    /// Solve a kernel with each fold left out, for every lambda and ratio, and for `ratio` of its own.
    fn add(&mut self, name: String, shape: KernelShape, ratio: Option<f64>) -> Result<(), RefitError> {
        let kernel = self.question.kernel(&shape);
        let (pieces, lambdas, keep_going) = (&self.pieces, &self.lambdas, self.keep_going);
        let enough = StoppingRule { tolerance: TOLERANCE, trace: 0.0 };
        let affordable = (pieces.rows / ROWS_PER_ELEMENT).clamp(ELEMENTS_OF_FEW, ELEMENTS);
        let room = self.question.room.clamp(1, affordable);
        let (dictionary, _) =
            pivoted_cholesky(&kernel, pieces.dim, &self.states, enough, room, keep_going).ok_or(RefitError::Stopped)?;
        let mut ratios = RATIOS.to_vec();
        if let Some(ratio) = ratio.filter(|&ratio| place(&ratios, ratio).is_none() && ratio.is_finite() && ratio > 0.0)
        {
            ratios.push(ratio);
        }
        let (states, elements) = (self.states.len() / pieces.dim, dictionary.len());
        self.allowance.spend(allowance::pivots(states, elements, pieces.dim));
        self.allowance.spend(folds::products(pieces, elements, lambdas.len(), ratios.len()));
        let values = out_of_fold(pieces, &dictionary, lambdas, &ratios, keep_going).ok_or(RefitError::Stopped)?;
        self.members.push(Member { name, shape, elements: dictionary.elements_len() });
        self.contenders.push(Contender { ratios, values });
        Ok(())
    }

    fn jury(&self) -> Jury<'_> {
        Jury::new(&self.pieces, &self.lambdas, &self.contenders)
    }

    /// Where the reference begins.
    fn start(&self, jury: &Jury<'_>) -> Result<Vec<f64>, RefitError> {
        jury.median().ok_or(RefitError::NoAscent(DeadEnd::Kernels))
    }

    /// What the candidates score against the first of the references.
    fn verdict(&self, jury: &Jury<'_>) -> Result<JuryVerdict, RefitError> {
        let start = self.start(jury)?;
        self.allowance.spend(jury.products());
        let spread = jury.spread(&jury.targets(FOLLOWING, &start));
        Ok(jury.judge(FOLLOWING, &start, &spread))
    }

    /// Lambda-returns (N, H) of a reference that the pool has made, for the evidence.
    fn returns(&self) -> Result<Vec<f64>, RefitError> {
        let jury = self.jury();
        Ok(jury.targets(FITTED, &self.verdict(&jury)?.reference))
    }

    /// The kernel that heads have chosen, and the present model's.
    fn add_known(&mut self) -> Result<(), RefitError> {
        let question = self.question;
        if let Some(metric) = question.kernel {
            for &linear in question.compared() {
                let shape = question.shape(metric.clone(), linear);
                self.add(shape.name("heads"), shape, None)?;
            }
        }
        let Some((present, _)) = question.present else { return Ok(()) };
        let ratio = present.noise_variance / present.kernel.signal_variance;
        let (shape, stays) = question.beside_present(&present.kernel);
        self.has_present = stays;
        self.add(if stays { "present".to_owned() } else { shape.name("present metric") }, shape, Some(ratio))
    }

    /// Add a kernel that is not there, if the budget suffices.
    fn join(&mut self, name: String, shape: KernelShape) -> Result<(), RefitError> {
        if self.has_not(&name) && self.goes_on() { self.add(name, shape, None) } else { Ok(()) }
    }

    /// Let kernels over bent variables join, the best of them with linear columns `beside`, where such kernels are compared beside others;
    /// and what their search has found.
    fn add_bent(
        &mut self,
        question: &Question<'_>,
        beside: &mut Vec<(String, KernelShape)>,
        note: Note<'_>,
    ) -> Result<Option<FittedRelevances>, RefitError> {
        let (keep_going, allowance, returns) = (self.keep_going, self.allowance, self.returns()?);
        let mut round = Round { number: 1, note, structures: &mut Vec::new(), keep_going, allowance };
        let evidence = Evidence::new(question, &self.pieces);
        let (proposals, found) = evidence.proposals(&returns, self.pieces.columns(), None, &mut round)?;
        let both = question.compared().len() > 1;
        let (aside, plain): (Vec<_>, Vec<_>) =
            proposals.into_iter().partition(|proposal| both && proposal.shape.linear);
        for proposal in joining(plain) {
            self.join(proposal.name, proposal.shape)?;
        }
        beside.extend(aside.into_iter().next().map(|proposal| (proposal.name, proposal.shape)));
        Ok(found)
    }

    /// The Gaussian beside the best of the kernels with the profile of the settings, and its name; none where the evidence speaks against
    /// it.
    fn smooth(&self, evidence: &Evidence<'_>) -> Result<Option<(String, KernelShape)>, RefitError> {
        let jury = self.jury();
        let verdict = self.verdict(&jury)?;
        let profile = |c: Candidate| self.members[c.kernel].shape.profile;
        let asked = |c: Candidate| self.may_be_chosen(c) && profile(c) == self.question.settings.profile;
        let candidates = jury.candidates().iter().zip(&verdict.scores).filter(|(c, _)| asked(**c));
        let best = candidates.min_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(candidate, _)| candidate.kernel);
        let Member { name, shape, .. } = &self.members[best];
        let returns = jury.targets(FITTED, &verdict.reference);
        let smooth = evidence.smooth(shape, &returns, self.pieces.columns(), self.keep_going, self.allowance)?;
        Ok(smooth.map(|smooth| (format!("{name} gaussian"), smooth)))
    }

    /// Whether a candidate is one of those that were asked for.
    fn may_be_chosen(&self, candidate: Candidate) -> bool {
        let KernelShape { metric, profile, .. } = &self.members[candidate.kernel].shape;
        let wanted = self.question.settings.profile;
        // The Gaussian stands beside Matern, and not the other way round.
        let is_wanted = *profile == wanted || wanted == Profile::Matern52;
        is_wanted && self.question.may_be_chosen(metric) && (self.question.lambda.is_none() || candidate.lambda == 0)
    }

    /// The place of the present model among the candidates: its own kernel, its ridge, and the nearest lambda.
    fn present(&self, jury: &Jury<'_>) -> Option<Candidate> {
        let (present, lambda) = self.question.present.filter(|_| self.has_present)?;
        let lambda = if self.question.lambda.is_some() { 0 } else { nearest(&self.lambdas, lambda) };
        let ratio = present.noise_variance / present.kernel.signal_variance;
        let ratio = nearest(&self.contenders[0].ratios.iter().map(|r| r.ln()).collect::<Vec<f64>>(), ratio.ln());
        let candidate = Candidate { kernel: 0, lambda, ratio };
        (jury.candidates().contains(&candidate) && self.may_be_chosen(candidate)).then_some(candidate)
    }

    /// The candidate with the smallest lambda that chance does not tell from the best: places among `among`, the `scores` of all.
    ///
    /// Values vary less from sample to sample the smaller lambda is, and scores see little of that where returns are noisy. A state that
    /// hides something makes small lambdas worse by more than a standard error.
    fn steadiest(
        &self,
        jury: &Jury<'_>,
        best: usize,
        among: &[usize],
        scores: &[f64],
        verdicts: &[&JuryVerdict],
        spread: &[f64],
    ) -> usize {
        let candidates = jury.candidates();
        let lambda = |k: usize| self.lambdas[candidates[k].lambda];
        let of_each = self.lambdas.iter().filter(|&&l| l < lambda(best)).filter_map(|&l| {
            let of = among.iter().copied().filter(|&k| lambda(k) == l);
            of.min_by(|&a, &b| scores[a].total_cmp(&scores[b]))
        });
        let as_good = |&k: &usize| {
            let (loss, error) = jury.difference(candidates[k], candidates[best], verdicts, spread);
            loss <= error
        };
        of_each.filter(as_good).min_by(|&a, &b| lambda(a).total_cmp(&lambda(b))).unwrap_or(best)
    }

    /// The best of `among`, and the others of its kind. It is of the kind of the present model, or the plain one, unless
    /// another is better by more than chance: first it is decided whether there are linear columns, then, by
    /// [`OF_ANOTHER_KIND`], on the rest; what is more unlike must be so much better than what is less.
    fn of_one_kind(
        &self,
        jury: &Jury<'_>,
        among: &[usize],
        scores: &[f64],
        verdicts: &[&JuryVerdict],
        spread: &[f64],
    ) -> (usize, Vec<usize>) {
        let candidates = jury.candidates();
        let kind = |k: usize| self.members[candidates[k].kernel].shape.kind();
        let linear = self.question.compared() == [true];
        let plain = self.question.shape(Metric::Isotropic(1.0), linear).kind();
        let usual = self.question.present.map_or(plain, |_| self.members[0].shape.kind());
        let mut order = among.to_vec();
        order.sort_by(|&a, &b| scores[a].total_cmp(&scores[b]));
        let mut kinds: Vec<usize> = Vec::new();
        for k in order {
            if kinds.iter().all(|&best| kind(best) != kind(k)) {
                kinds.push(k);
            }
        }
        kinds.sort_by_key(|&k| kind(k).differences(usual));
        let better = |share: f64| {
            move |before: usize, k: usize| {
                let (gain, error) = jury.difference(candidates[before], candidates[k], verdicts, spread);
                let clearly = scores[k] < (1.0 - share) * scores[before] && gain > error;
                if clearly { k } else { before }
            }
        };
        // Columns first, and for good: they are what a trend is. Other kinds may fit the window better, and not what comes behind it.
        // They are no other search, whose luck a percent stands for.
        let like_usual = kinds.iter().copied().filter(|&k| Kind { linear: usual.linear, ..kind(k) } == usual);
        if let Some(best) = like_usual.reduce(better(0.0)) {
            kinds.retain(|&k| kind(k).linear == kind(best).linear);
        }
        let best = kinds.into_iter().reduce(better(OF_ANOTHER_KIND)).expect("the reference is of candidates");
        (best, among.iter().copied().filter(|&k| kind(k) == kind(best)).collect())
    }

    /// The smallest sum of scores, but for what chance may explain: then the smallest lambda, or the present model.
    fn decide(&self) -> Result<(Hyperparameters, f64, SelectionReport), RefitError> {
        let jury = self.jury();
        let start = self.start(&jury)?;
        self.allowance.spend(DECIDING.len() as f64 * jury.products());
        let spread = jury.spread(&jury.targets(1.0, &start));
        let verdicts: Vec<JuryVerdict> = DECIDING.iter().map(|&l| jury.judge(l, &start, &spread)).collect();
        let candidates = jury.candidates();
        let score = |k: usize| verdicts.iter().map(|v| v.scores[k]).sum::<f64>() / DECIDING.len() as f64;
        let scores: Vec<f64> = (0..candidates.len()).map(score).collect();
        let asked: Vec<usize> = (0..candidates.len()).filter(|&k| self.may_be_chosen(candidates[k])).collect();
        let among = if asked.is_empty() { (0..candidates.len()).collect() } else { asked };
        let (all, count): (Vec<&JuryVerdict>, f64) = (verdicts.iter().collect(), DECIDING.len() as f64);
        let (best, alike) = self.of_one_kind(&jury, &among, &scores, &all, &spread);
        let steadiest = self.steadiest(&jury, best, &alike, &scores, &all, &spread);
        let present = self.present(&jury).map(|present| {
            let (gain, error) = jury.difference(present, candidates[best], &all, &spread);
            (candidates.iter().position(|&c| c == present).expect("it is among them"), gain / count, error / count)
        });
        // What is no better than chance, or than anybody would notice, stays as it is: a model that changes has its price.
        let (stays, chosen) = match present {
            Some((place, gain, error)) if place == best || gain <= error.max(unnoticed(scores[place])) => (true, place),
            _ => (false, steadiest),
        };
        let Candidate { kernel, lambda, ratio } = candidates[chosen];
        let one_step = candidates.iter().enumerate().filter(|(_, c)| self.lambdas[c.lambda] == 0.0).map(|(k, _)| k);
        let one_step = one_step.min_by(|&a, &b| scores[a].total_cmp(&scores[b])).map(|one_step| {
            let (loss, error) = jury.difference(candidates[one_step], candidates[best], &all, &spread);
            (loss / count, error / count)
        });
        let about =
            report::About { jury: &jury, scores: &scores, among: &among, chosen, best, present, stays, one_step };
        let report = about.report(self);
        let hyperparameters = Hyperparameters {
            kernel: self.question.kernel(&self.members[kernel].shape),
            noise: self.question.settings.noise,
            noise_variance: self.contenders[kernel].ratios[ratio],
        };
        // The present lambda may lie between those that are compared.
        let lambda = match self.question.present {
            Some((_, present)) if stays && self.question.lambda.is_none() => present,
            _ => self.lambdas[lambda],
        };
        Ok((hyperparameters, lambda, report))
    }
}

/// Values (N, L R H) at all nodes, with the fold of each left out; none if stopped.
fn out_of_fold(
    pieces: &Pieces,
    dictionary: &Dictionary,
    lambdas: &[f64],
    ratios: &[f64],
    keep_going: KeepGoing<'_>,
) -> Option<Vec<f32>> {
    let sums = each(FOLDS, |fold| folds::sums(pieces, pieces.folds[fold].clone(), dictionary, lambdas, keep_going));
    let sums = sums.into_iter().collect::<Option<Vec<_>>>()?;
    let weights = each(FOLDS, |fold| keep_going().then(|| folds::weights(&sums, fold, ratios)));
    let weights = weights.into_iter().collect::<Option<Vec<_>>>()?;
    drop(sums);
    let values =
        each(FOLDS, |fold| folds::values(pieces, pieces.folds[fold].clone(), dictionary, &weights[fold], keep_going));
    let values = values.into_iter().collect::<Option<Vec<_>>>()?;
    let columns = lambdas.len() * ratios.len() * pieces.columns();
    let mut out = Vec::with_capacity(pieces.nodes() * columns);
    for c in 0..columns {
        for (fold, values) in pieces.folds.iter().zip(&values) {
            out.extend_from_slice(&values[c * fold.len()..(c + 1) * fold.len()]);
        }
    }
    Some(out)
}

/// The gain over a score that nobody would notice.
fn unnoticed(score: f64) -> f64 {
    (UNNOTICED_SHARE * score).max(UNNOTICED)
}

/// Where a number stands in a list, to a percent.
fn place(of: &[f64], value: f64) -> Option<usize> {
    of.iter().position(|&other| (other / value - 1.0).abs() < 0.01)
}

/// Place of the number nearest to `value`.
fn nearest(of: &[f64], value: f64) -> usize {
    let distance = |k: &usize| (of[*k] - value).abs();
    (0..of.len()).min_by(|a, b| distance(a).total_cmp(&distance(b))).expect("a list that is not empty")
}
