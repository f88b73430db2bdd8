//! More chains run than the dictionary has states: they are closed together, and count as if each had been closed alone.

use criticd_learner::heads::{Cumulant, Head, Rate};
use criticd_learner::math::dictionary::Dictionary;
use criticd_learner::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use criticd_learner::math::statistics::{BootstrapTerms, Chain, Cut, Statistics};
use criticd_learner::model::Model;
use criticd_learner::snapshot::{Inputs, Snapshot};
use criticd_learner::transition::Rows;
use criticd_learner::{Lambda, Settings, VarianceKind};
use criticd_reference::{distance, wander};

const STREAMS: u32 = 700;

/// A well-spread number in \[-1/2, 1/2).
fn spread(k: usize) -> f64 {
    ((k as f64 + 1.0) * 0.618_033_988_749_895).fract() - 0.5
}

fn close(found: &[f64], expected: &[f64], what: &str) {
    let off = distance(found, expected);
    assert!(off < 1e-9, "{what} off by {off:e}");
}

#[test]
fn chains_closed_together_add_what_each_adds_alone() {
    let (m, rewards) = (37, 2);
    for count in [1, 255, 256, 257, 600] {
        let chain = |k: usize| Chain {
            trace: (0..m).map(|i| spread(m * k + i)).collect(),
            weighted_target: (0..rewards).map(|h| spread(7 * k + h)).collect(),
            weight_energy: 1.5 + spread(k),
            weight_sum: 2.0 + spread(3 * k),
            discount: 0.5 + spread(5 * k),
            rows: 1,
            reach: 0.0,
            value_trace: Vec::new(),
        };
        let chains: Vec<Chain> = (0..count).map(chain).collect();
        let features: Vec<Vec<f64>> = (0..count).map(|k| (0..m).map(|i| spread(11 * k + i)).collect()).collect();
        let cuts = || chains.iter().zip(&features).map(|(chain, features)| Cut { chain, features });
        let nothing = || Statistics::new(m, rewards, 64).closed;
        let (mut alone, mut together, mut coupling_alone) = (nothing(), nothing(), nothing());
        cuts().for_each(|cut| alone.add(cut));
        together.add_all(cuts(), true);
        coupling_alone.add_all(cuts(), false);
        let coupling = |of: &BootstrapTerms| of.coupling.to_nalgebra();
        close(coupling(&together).as_slice(), coupling(&alone).as_slice(), "B");
        close(together.response.to_nalgebra().as_slice(), alone.response.to_nalgebra().as_slice(), "h");
        close(together.energy.to_nalgebra().as_slice(), alone.energy.to_nalgebra().as_slice(), "E");
        close(&together.sum, &alone.sum, "a");
        assert_eq!((together.chains, alone.chains), (count as u64, count as u64));
        // Where targets are not asked for nothing but B is made.
        assert_eq!((&coupling_alone.coupling, coupling_alone.chains), (&together.coupling, count as u64));
        let rest = BootstrapTerms { coupling: together.coupling.clone(), chains: count as u64, ..nothing() };
        assert_eq!(coupling_alone, rest);
    }
}

/// The same rows with the last one of each stream cut off behind it, so that no chain runs.
fn cut_off(rows: &Rows) -> Rows {
    let (mut cut, mut seen) = (rows.clone(), std::collections::HashSet::new());
    for i in (0..rows.len()).rev() {
        cut.truncated[i] |= seen.insert(rows.streams[i]);
    }
    cut
}

fn learned(rows: &Rows, settings: &Settings) -> Model {
    let kernel = Kernel::gaussian(3.0, 1.0, Metric::Ard(vec![4.0, 2.0]));
    // Nothing is admitted: truncated rows would show it states that others do not.
    let elements: Vec<f64> = (0..60).map(|k| ((k * k) as f64 * 0.7).sin()).collect();
    let basis = Dictionary::from_elements(kernel.clone(), 2, &elements).unwrap();
    let hyperparameters = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 0.2 };
    let mut model = Model::with_dictionary(settings.clone(), Inputs::identity(2), &hyperparameters, basis);
    model.learn(rows, 0..rows.len(), 0);
    model
}

#[test]
fn a_model_of_many_running_chains_is_that_of_chains_cut_where_they_stand() {
    let rows = wander(3000, STREAMS, 2, 8);
    let discounted = |name: &str, reward, discount| Head::new(name, Cumulant::Reward(reward), Rate::Discount(discount));
    let heads = vec![discounted("near", 0, 0.5), discounted("far", 1, 0.9), discounted("farther", 0, 0.9)];
    let paper = Settings {
        rewards: vec![1, 0],
        discount: 0.9,
        estimate_scale: false,
        // One refresh at the most, behind all rows: a settled score is that of the weights before it.
        refresh_rows: 3000,
        tolerance: 0.5,
        heads,
        ..Settings::paper()
    };
    let defaults = Settings::default();
    let followed = Settings {
        lambda: Lambda::Fixed(0.8),
        variance: VarianceKind::Rows,
        selection: defaults.selection,
        ..paper.clone()
    };
    let clustered = Settings { variance: VarianceKind::Clustered, ..followed.clone() };
    for (name, settings) in [("lambda 1", paper), ("lambda 0.8", followed), ("clustered", clustered)] {
        let (running, cut) = (learned(&rows, &settings), learned(&cut_off(&rows), &settings));
        let chains = running.running_chains();
        assert!(chains > 2 * 256 && cut.running_chains() == 0, "{chains} chains run");
        let mut ended = running.clone();
        ended.cut_running_chains();
        assert_eq!(ended.running_chains(), 0);
        assert_eq!(ended.counts().cuts, cut.counts().cuts);
        let expected = cut.snapshot(true).unwrap();
        // Rows that were cut off at once have the errors of weights that knew nothing yet, where errors count.
        let scattered = settings.variance != VarianceKind::Model;
        let other = if scattered { ended.snapshot(true).unwrap() } else { expected.clone() };
        let variance = |of: &Snapshot| of.variance.as_ref().unwrap().as_slice().to_vec();
        close(&variance(&running.snapshot(true).unwrap()), &variance(&other), &format!("{name}: variance"));
        for (how, model) in [("running", &running), ("ended", &ended)] {
            let (what, found) = (format!("{name}, {how}"), model.snapshot(true).unwrap());
            let numbers = |of: &Snapshot| of.weights.as_slice().to_vec();
            close(&numbers(&found), &numbers(&expected), &format!("{what}: weights"));
            let evidence = |of: &Snapshot| of.log_evidence.into_iter().collect::<Vec<f64>>();
            close(&evidence(&found), &evidence(&expected), &format!("{what}: evidence"));
            let weights = |of: &Snapshot| of.heads.as_ref().unwrap().weights.as_slice().to_vec();
            close(&weights(&found), &weights(&expected), &format!("{what}: heads"));
            let evidence = |of: &Model| of.head_evidence().unwrap();
            close(&evidence(model), &evidence(&cut), &format!("{what}: evidence of heads"));
        }
    }
}
