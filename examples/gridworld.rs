//! Section 6.2 of Jung and Stone 2009: which of two coordinates matters, decided by evidence alone.
//!
//! Prints the paper's table beside ours and draws figures 5 and 6.
//!
//! Run with: `cargo run --release --example gridworld`

mod paper;

use clap::Parser;
use criticd::picture::{Axis, Colours, Curves, Figure, Heatmap, Line, Panel, Scale};
use criticd::sim::gridworld::SIZE;
use paper::gridworld::{Model, Run, covariances, relevance, run, truth, value};
use paper::show::{Options, Table, holds, over_seeds};

/// Isotropic starts can stick 250 nats below the best.
const RANDOM_STARTS: usize = 6;
const NAMES: [&str; 3] = ["(I)", "(II)", "(II) without y"];
/// The same names, with what each kernel is.
const LONG_NAMES: [&str; 3] = ["isotropic (I)", "per coordinate (II)", "per coordinate (II), without y"];
/// Eigenvalues that are drawn, at most.
const EIGENVALUES: usize = 150;

fn main() {
    let options = Options::parse();
    options.out.prepare();
    let runs = options.for_each_seed(|seed| run(seed, RANDOM_STARTS));
    print_table(&runs);
    print_orderings(&runs);
    options.out.write("gridworld-value.png", &values(&runs[0]), 3);
    options.out.write("gridworld-spectra.png", &spectra(&runs[0]), 2);
}

fn print_table(runs: &[Run]) {
    let seeds = runs.len();
    println!("Gridworld (section 6.2): median (least to greatest) over {seeds} seeds, beside the paper's numbers\n");
    let mut head = vec![""];
    for name in NAMES {
        head.extend([name, "paper"]);
    }
    let mut table = Table::new(&head);
    let mut row = |label: &str, paper: [&str; 3], ours: &dyn Fn(&Model) -> f64| {
        let mut cells = vec![label.to_owned()];
        for (k, paper) in paper.into_iter().enumerate() {
            cells.extend([over_seeds(runs.iter().map(|r| ours(&r.models[k])).collect()), paper.to_owned()]);
        }
        table.row(cells);
    };
    row("a_1 (h)", ["2.89", "3.53", "3.53"], &|m| relevance(m)[0]);
    row("a_2 (h)", ["2.89", "1e-5", "0"], &|m| relevance(m)[1]);
    row("complexity", ["-2378.2", "-2772.7", "-2790.7"], &|m| m.selected.evidence.complexity);
    row("data fit", ["54.78", "13.84", "13.84"], &|m| m.selected.evidence.fit);
    row("L, smaller is better", ["-2323.4", "-2758.8", "-2776.8"], &|m| m.selected.loss());
    row("MSE on the states", ["0.030", "0.019", ""], &|m| m.on_states);
    row("MSE on visited states", ["", "", ""], &|m| m.on_visited);
    row("MSE, ten times finer grid", ["", "", ""], &|m| m.between);
    row("v0", ["", "", ""], &|m| m.selected.hyper.kernel.signal_variance);
    row("b", ["", "", ""], &|m| m.selected.hyper.kernel.bias_variance);
    row("sigma0^2", ["", "", ""], &|m| m.selected.hyper.noise_variance);
    table.print();
    println!();
}

fn print_orderings(runs: &[Run]) {
    let all = |f: &dyn Fn(&[Model; 3]) -> bool| runs.iter().map(|r| f(&r.models)).collect::<Vec<_>>();
    let lines = [
        holds(
            "L(without y) < L(II) < L(I)",
            all(&|[i, ii, w]| w.selected.loss() < ii.selected.loss() && ii.selected.loss() < i.selected.loss()),
        ),
        holds("a_2 / a_1 < 1e-5", all(&|[_, ii, _]| relevance(ii)[1] / relevance(ii)[0] < 1e-5)),
        holds("MSE(II) < MSE(I) on the states", all(&|[i, ii, _]| ii.on_states < i.on_states)),
        holds("MSE(II) < MSE(I) on a ten times finer grid", all(&|[i, ii, _]| ii.between < i.between)),
    ];
    lines.iter().for_each(|line| println!("{line}"));
    println!();
}

/// Figure 5: the true value, (I), and (II) without y; below, how far each model is from the truth. A cell for each state: there is
/// nothing between them.
fn values(run: &Run) -> Figure {
    let axis = |name: &str| Axis::new(name, 0.5, f64::from(SIZE) + 0.5);
    let states = SIZE as usize;
    // Whole numbers, which the middle of a cell is only up to rounding.
    let places: Vec<[f64; 2]> =
        Heatmap::centres(&axis("x"), &axis("y"), states, states).into_iter().map(|at| at.map(f64::round)).collect();
    let true_values = truth(&places);
    let learned: Vec<Vec<f64>> = run.models.iter().map(|m| value(&m.selected, &run.scaling, &places)).collect();
    let error = |of: &Vec<f64>| of.iter().zip(&true_values).map(|(a, b)| a - b).collect::<Vec<f64>>();
    let errors: Vec<Vec<f64>> = learned.iter().map(error).collect();
    let most = errors.iter().flatten().fold(0.0f64, |a, b| a.max(b.abs()));
    let [value_range, error_range] = [[-5.0, 0.0], [-most, most]];
    // One bar for each row, at its right end: its maps have one range.
    let map = |(k, (title, values)): (usize, (String, Vec<f64>))| {
        let (label, range, colours) = if k < 3 {
            ("value", value_range, Colours::Value)
        } else {
            ("learned value − true value", error_range, Colours::Difference)
        };
        let map = Heatmap::new(title, axis("x"), axis("y"), states, values, label);
        Panel::Heatmap(Heatmap { value_range: Some(range), bar: k % 3 == 2, colours, smooth: false, ..map })
    };
    let shown = [
        ("True value".to_owned(), true_values.clone()),
        (format!("Value, {}", LONG_NAMES[0]), learned[0].clone()),
        (format!("Value, {}", LONG_NAMES[2]), learned[2].clone()),
    ];
    let below = errors.iter().zip(LONG_NAMES).map(|(error, name)| (format!("Error, {name}"), error.clone()));
    Figure { panels: shown.into_iter().chain(below).enumerate().map(map).collect() }
}

/// Figure 6: eigenvalues of K and of Q.
fn spectra(run: &Run) -> Figure {
    let found: Vec<[Vec<f64>; 2]> = run
        .models
        .iter()
        .map(|m| covariances(&run.data, &m.selected.hyper).map(|matrix| paper::spectrum(&matrix)))
        .collect();
    let panel = |title: &str, which: usize, low: f64| {
        // Where the last curve has left the picture, the axis ends too.
        let last = found.iter().map(|of| of[which].iter().take_while(|v| **v > low).count()).max().unwrap_or(0);
        let shown = (last + 1).min(EIGENVALUES);
        let line = |k: usize| Line {
            label: LONG_NAMES[k].into(),
            mean: found[k][which][..shown].to_vec(),
            deviation: None,
            dashed: false,
        };
        Panel::Curves(Curves {
            title: title.into(),
            x: Axis::new("number of the eigenvalue", 1.0, shown as f64),
            y_label: "eigenvalue".into(),
            y_scale: Scale::Log,
            y_range: Some([low, 1e4]),
            at: (1..=shown).map(|k| k as f64).collect(),
            lines: (0..3).map(line).collect(),
            fade: None,
            points: Vec::new(),
        })
    };
    Figure { panels: vec![panel("Eigenvalues of K", 0, 1e-10), panel("Eigenvalues of Q", 1, 1e-6)] }
}

#[cfg(test)]
mod tests {
    use super::{relevance, run};

    /// The orderings of the paper's section 6.2, on one seed.
    #[test]
    fn evidence_finds_the_coordinate_that_does_not_matter() {
        let [isotropic, ard, without_y] = run(0, 2).models;
        let [x, y] = relevance(&ard);
        assert!(y / x < 1e-5, "y has relevance {y}, x {x}");
        let losses = [&without_y, &ard, &isotropic].map(|m| m.selected.loss());
        assert!(
            losses.is_sorted() && losses[1] < losses[2] - 300.0,
            "{losses:?}, where the paper has -2777, -2759, -2323"
        );
        assert!((losses[1] + 2771.0).abs() < 10.0 && (losses[2] + 2323.4).abs() < 60.0, "{losses:?}");
        assert!(ard.on_states < isotropic.on_states, "{} against {}", ard.on_states, isotropic.on_states);
        assert!(ard.between < isotropic.between, "{} against {}", ard.between, isotropic.between);
    }
}
