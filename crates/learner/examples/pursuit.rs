//! Which features orthogonal matching pursuit recovers: `cargo run --release -p criticd-learner --example pursuit`.
//!
//! Five states in a row have one feature each, and the value lies in the second, third and fourth alone. Pursuit of the Bellman
//! residual (OMP-BRM) finds these under every discount; pursuit of the fixed point (OMP-TD) takes the first one too where the reward
//! there is largest. Beside them stands the exact recovery coefficient of OMP-BRM's columns: below 1 it promises the recovery.

use criticd_learner::math::dense::Matrix;
use criticd_learner::math::pursuit::{Candidates, by_fixed_point, by_residual, recovery_coefficient};

const STATES: usize = 5;
/// States whose features the value has, numbered from 0.
const SOUGHT: [usize; 3] = [1, 2, 3];
const DISCOUNTS: [f64; 6] = [0.5, 0.54, 0.55, 0.65, 0.8, 0.9];

fn main() {
    println!("discount  OMP-TD        OMP-BRM       recovery coefficient");
    for discount in DISCOUNTS {
        let mut now = Matrix::zeros(STATES, STATES);
        let (mut next, mut differences) = (now.clone(), now.clone());
        for i in 0..STATES {
            (*now.at_mut(i, i), *differences.at_mut(i, i)) = (1.0, 1.0);
            if i + 1 < STATES {
                (*next.at_mut(i, i + 1), *differences.at_mut(i, i + 1)) = (discount, -discount);
            }
        }
        let first = -(discount + discount.powi(2) + discount.powi(3));
        let rewards = Matrix::from_columns(STATES, 1, vec![first, 1.0, 1.0, 1.0, 0.0]);
        let of = Candidates { now: &now, next: &next, rewards: &rewards, ridge: 0.0, enough: 1e-12 };
        let chosen = [by_fixed_point, by_residual].map(|pursuit| {
            let chosen = pursuit(&of, STATES, &|| true).expect("columns are independent").expect("nothing stops it");
            let mut states: Vec<String> = chosen.iter().map(|j| (j + 1).to_string()).collect();
            states.sort();
            format!("{{{}}}", states.join(", "))
        });
        let coefficient = recovery_coefficient(differences.view(), &SOUGHT).expect("columns are independent");
        println!("{discount:<9} {:<13} {:<13} {coefficient:.3}", chosen[0], chosen[1]);
    }
}
