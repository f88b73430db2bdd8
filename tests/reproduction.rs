//! What the example `gridworld` shows, on one seed: the orderings of the paper's section 6.2.

#[path = "../examples/paper/mod.rs"]
mod paper;

use paper::gridworld::{relevance, run};

#[test]
fn evidence_finds_the_coordinate_that_does_not_matter() {
    let [isotropic, ard, without_y] = run(0, 2).models;
    let [x, y] = relevance(&ard);
    assert!(y / x < 1e-5, "y has relevance {y}, x {x}");
    let losses = [&without_y, &ard, &isotropic].map(|m| m.selected.loss());
    assert!(losses.is_sorted() && losses[1] < losses[2] - 300.0, "{losses:?}, where the paper has -2777, -2759, -2323");
    assert!((losses[1] + 2771.0).abs() < 10.0 && (losses[2] + 2323.4).abs() < 60.0, "{losses:?}");
    assert!(ard.on_states < isotropic.on_states, "{} against {}", ard.on_states, isotropic.on_states);
    assert!(ard.between < isotropic.between, "{} against {}", ard.between, isotropic.between);
}
