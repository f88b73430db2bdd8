//! Greedy selections of features: orthogonal least squares on returns, OMP-TD and OMP-BRM.

use criticd_learner::math::dense::{Matrix, Op, dot, product, solve_general};
use criticd_learner::math::dictionary::Dictionary;
use criticd_learner::math::kernel::{Kernel, Metric};
use criticd_learner::math::pursuit::{
    Candidates, Regression, by_fixed_point, by_residual, by_returns, recovery_coefficient,
};

/// Five states in a row, one feature for each, whose value lies in the second, third and fourth alone.
fn chain(gamma: f64) -> (Matrix, Matrix, Matrix) {
    let mut now = Matrix::zeros(5, 5);
    let mut next = now.clone();
    for i in 0..5 {
        *now.at_mut(i, i) = 1.0;
        if i < 4 {
            *next.at_mut(i, i + 1) = gamma;
        }
    }
    let rewards = vec![-gamma - gamma.powi(2) - gamma.powi(3), 1.0, 1.0, 1.0, 0.0];
    (now, next, Matrix::from_columns(5, 1, rewards))
}

fn candidates<'a>((now, next, rewards): &'a (Matrix, Matrix, Matrix)) -> Candidates<'a> {
    Candidates { now, next, rewards, ridge: 0.0, enough: 1e-12 }
}

/// States numbered from 1, in order of number.
fn sorted(chosen: Vec<usize>) -> Vec<usize> {
    let mut states: Vec<usize> = chosen.into_iter().map(|j| j + 1).collect();
    states.sort_unstable();
    states
}

#[test]
fn fixed_points_may_take_a_feature_that_the_value_does_not_have() {
    for (gamma, expected) in
        [(0.5, vec![2, 3, 4]), (0.54, vec![2, 3, 4]), (0.55, vec![1, 2, 3, 4]), (0.9, vec![1, 2, 3, 4])]
    {
        let chain = chain(gamma);
        let chosen = by_fixed_point(&candidates(&chain), 5, &|| true).unwrap().unwrap();
        assert_eq!(chosen[0] == 0, gamma >= 0.55, "the first state is wanted first where its reward is largest");
        assert_eq!(sorted(chosen), expected, "{gamma}");
    }
}

#[test]
fn residuals_recover_what_the_value_has() {
    for (gamma, coefficient) in [(0.5, 0.824), (0.55, 0.933), (0.65, 1.143), (0.9, 1.473)] {
        let chain = chain(gamma);
        let of = candidates(&chain);
        let chosen = by_residual(&of, 5, &|| true).unwrap().unwrap();
        assert_eq!(sorted(chosen), [2, 3, 4], "{gamma}");
        let mut columns = of.now.clone();
        for j in 0..5 {
            columns.col_mut(j).iter_mut().zip(of.next.col(j)).for_each(|(now, next)| *now -= next);
        }
        let found = recovery_coefficient(columns.view(), &[1, 2, 3]).unwrap();
        assert!((found - coefficient).abs() < 5e-4, "{gamma}: {found}");
    }
}

fn states(n: usize) -> Vec<f64> {
    (0..2 * n).map(|k| 4.0 * ((k as f64 + 1.0) * 0.618_033_988_749_895).fract() - 2.0).collect()
}

/// The part of y that ridge regression on these elements leaves: y'(I - Phi (Phi'Phi + ratio I)^-1 Phi')y, summed over heads.
fn left_over(of: &Regression<'_>, elements: &[f64]) -> f64 {
    let dictionary = Dictionary::from_elements(of.kernel.clone(), 2, elements).unwrap();
    let phi = dictionary.features(&of.kernel.project(2, of.states));
    let mut system = product(phi.view(), Op::Plain, phi.view(), Op::Transposed);
    (0..system.rows()).for_each(|i| *system.at_mut(i, i) += of.ratio);
    let response = product(phi.view(), Op::Plain, of.targets.view(), Op::Plain);
    let weights = solve_general(&system, &response).unwrap();
    let y = of.targets;
    (0..y.cols()).map(|h| dot(y.col(h), y.col(h)) - dot(response.col(h), weights.col(h))).sum()
}

#[test]
fn each_choice_leaves_the_least_that_any_candidate_could() {
    let kernel = Kernel::gaussian(1.3, 0.2, Metric::Ard(vec![1.1, 0.4]));
    let x = states(70);
    let y = |i: usize| [(2.0 * x[2 * i]).sin(), x[2 * i + 1] - 0.3 * x[2 * i]];
    let columns = (0..2).flat_map(|h| (0..70).map(move |i| (h, i))).map(|(h, i)| y(i)[h]).collect();
    let targets = Matrix::from_columns(70, 2, columns);
    let of = Regression { kernel: &kernel, dim: 2, states: &x, targets: &targets, ratio: 0.3 };
    let candidates = &x[..24];
    let element = |j: usize| &candidates[2 * j..2 * j + 2];
    let chosen = by_returns(&of, candidates, &[5], 6, &|| true).unwrap();
    assert_eq!((chosen[0], chosen.len()), (5, 6));
    for k in 1..6 {
        let before: Vec<f64> = chosen[..k].iter().flat_map(|&j| element(j)).copied().collect();
        let with = |j: usize| left_over(&of, &[&before, element(j)].concat());
        let others = (0..12).filter(|j| !chosen[..k].contains(j)).map(with);
        let least = others.fold(f64::INFINITY, f64::min);
        assert!(with(chosen[k]) <= least + 1e-9, "choice {k} of {chosen:?}");
    }
    // Copies are never chosen twice, whatever is asked for.
    let twice = [candidates, candidates].concat();
    let all = by_returns(&of, &twice, &[], 24, &|| true).unwrap();
    assert!(all.len() <= 12, "{all:?}");
    assert!(by_returns(&of, candidates, &[], 6, &|| false).is_none());
}
