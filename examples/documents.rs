//! The figures and worked examples of three documents: an article on kernel ridge regression and CrKR, one on Gaussian processes and
//! Bayesian TD learning (T. Chen, 2021), and notes on OMP-TD and OMP-BRM (of Painter-Wakefield and Parr, 2012).
//!
//! Prints what the documents say beside what comes out here, and draws their figures.
//!
//! Run with: `cargo run --release --example documents`

mod paper;

use clap::Parser;
use criticd::picture::{Axis, Curves, Figure, Line, Marker, Panel, Points, Scale};
use paper::processes::{self, Posterior, Processes, wave};
use paper::pursuits::{Outcome, World, turning};
use paper::regression::{self, Prediction, Regressions, Sample};
use paper::show::{Out, Table, short};
use std::f64::consts::TAU;

/// Random chains of each sparsity.
const CHAINS: u64 = 1000;
/// Discount of the notes.
const DISCOUNT: f64 = 0.65;
/// Decoys, at most.
const DECOYS: usize = 10;

fn main() {
    let out = Out::parse();
    out.prepare();
    let regressions = regression::run();
    print_regressions(&regressions);
    out.write("documents-regression.png", &draw_regressions(&regressions), 3);
    let found = processes::run();
    print_processes(&found);
    out.write("documents-processes.png", &draw_processes(&found), 2);
    print_notes();
    print_chains();
    out.write("documents-pursuits.png", &draw_pursuits(), 2);
}

fn largest(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// The power of ten above a difference that is mere rounding.
fn below(difference: f64) -> String {
    format!("less than 1e{}", difference.max(1e-15).log10().floor() as i32 + 1)
}

/// A number, and 0 for what rounding has left of it.
fn rounded(value: f64) -> String {
    short(if value.abs() < 1e-9 { 0.0 } else { value })
}

fn print_regressions(found: &Regressions) {
    println!("Kernel ridge regression and CrKR: the document's program in NumPy, and ours\n");
    let mut table = Table::new(&["x", "KRR, document", "ours", "CrKR, document", "ours", "std, document", "ours"]);
    let Regressions { krr, crkr, .. } = found;
    for i in [0, 25, 50, 75, 100] {
        let at = [&krr[0].mean, &krr[1].mean, &crkr[0].mean, &crkr[1].mean, &crkr[0].std, &crkr[1].std];
        let cells = at.iter().map(|of| format!("{:.6}", of[i]));
        table.row(std::iter::once(short(found.cosine.x[i])).chain(cells));
    }
    table.print();
    println!();
    println!("KRR differs by {}", below(largest(&krr[0].mean, &krr[1].mean)));
    let both = |a: &Prediction, b: &Prediction| largest(&a.mean, &b.mean).max(largest(&a.std, &b.std));
    println!("CrKR, mean and std, by {}", below(both(&crkr[0], &crkr[1])));
    let (by_sums, elements) = &found.by_sums;
    println!("CrKR by sums over rows, {elements} elements, by {}", below(both(&crkr[0], by_sums)));
    let error = |of: &[f64]| {
        let square = found.cosine.x.iter().zip(of).map(|(x, y)| ((TAU * x).cos() - y).powi(2)).sum::<f64>();
        (square / of.len() as f64).sqrt()
    };
    println!("root mean square error of KRR to the latent function: {}\n", short(error(&krr[1].mean)));
}

fn line(label: &str, mean: &[f64], deviation: Option<&[f64]>, dashed: bool) -> Line {
    Line { label: label.into(), mean: mean.to_vec(), deviation: deviation.map(<[f64]>::to_vec), dashed }
}

fn points(label: &str, marker: Marker, x: &[f64], y: &[f64]) -> Points {
    Points { label: label.into(), at: x.iter().zip(y).map(|(&x, &y)| [x, y]).collect(), marker }
}

/// Functions on [0, 1].
fn curves(title: &str, at: &[f64], lines: Vec<Line>, points: Vec<Points>) -> Panel {
    Panel::Curves(Curves {
        title: title.into(),
        x: Axis::new("x", 0.0, 1.0),
        y_label: "y".into(),
        y_scale: Scale::Linear,
        y_range: None,
        at: at.to_vec(),
        lines,
        fade: None,
        points,
    })
}

fn draw_regressions(found: &Regressions) -> Figure {
    let Regressions { cosine: Sample { x, y, .. }, weighted, krr, crkr, unweighted, .. } = found;
    let latent: Vec<f64> = x.iter().map(|x| (TAU * x).cos()).collect();
    let of_weight = |label: &str, marker: Marker, weight: f64| {
        let counts = |i: &usize| weighted.weights[*i] == weight;
        let chosen: Vec<usize> = (0..weighted.x.len()).filter(counts).collect();
        let pick = |of: &[f64]| chosen.iter().map(|&i| of[i]).collect::<Vec<_>>();
        points(label, marker, &pick(&weighted.x), &pick(&weighted.y))
    };
    let dots = || vec![of_weight("weight 0.1", Marker::Dot, 0.1), of_weight("weight 1", Marker::Ring, 1.0)];
    let ridge = line("kernel ridge regression", &krr[1].mean, None, false);
    let panels = vec![
        curves(
            "Kernel ridge regression",
            x,
            vec![line("latent function", &latent, None, true), ridge],
            vec![points("samples", Marker::Dot, x, y)],
        ),
        curves(
            "KRR and CrKR",
            x,
            vec![
                line("kernel ridge regression", &unweighted.mean, None, true),
                line("CrKR", &crkr[1].mean, None, false),
            ],
            dots(),
        ),
        curves(
            "CrKR with two standard deviations",
            x,
            vec![line("CrKR", &crkr[1].mean, Some(&crkr[1].std), false)],
            dots(),
        ),
    ];
    Figure { panels }
}

fn print_processes(found: &Processes) {
    let Processes { exact, noisy, td, evidence, selected, periodic, .. } = found;
    println!("Gaussian processes and Bayesian TD: the document's formulas in dense algebra, and ours\n");
    for (what, of) in [("posterior without noise", exact), ("posterior with noise", noisy), ("posterior of TD", td)] {
        println!("{what}, mean and variance, differ by {}", below(of.differs));
    }
    println!("log p(y) up to its constant: {:.6} by the formula, {:.6} here", evidence[0], evidence[1]);
    let [given, best] = selected.map(|of| of.map(short).join(", "));
    println!("tau, sigma^2 and log p: {given} as given, {best} at the maximum");
    let middle = |of: &Posterior, x: f64| {
        let i = found.at.iter().position(|at| *at >= x).expect("a place of the picture");
        format!("{} +- {} (true {})", short(of.mean[i]), short(of.std[i]), short(wave(found.at[i])))
    };
    println!("V at 0.25 and at 0.75: {} and {}", middle(td, 0.25), middle(td, 0.75));
    let [printed, squared, ours, apart] = periodic;
    println!("smallest eigenvalue of the periodic kernel of 20 places: {} as printed", short(*printed));
    println!(
        "with its sine squared {}, ours {}; these two differ by {}\n",
        rounded(*squared),
        rounded(*ours),
        below(*apart)
    );
}

fn draw_processes(found: &Processes) -> Figure {
    let Processes { at, drawn, exact, noisy, td, .. } = found;
    let truth: Vec<f64> = at.iter().map(|&x| wave(x)).collect();
    let of = |title: &str, of: &Posterior, label: &str, observed: Points| {
        let lines = vec![line("true function", &truth, None, true), line(label, &of.mean, Some(&of.std), false)];
        curves(title, at, lines, vec![observed])
    };
    let samples =
        drawn.iter().enumerate().map(|(k, drawn)| line(&format!("sample {}", k + 1), drawn, None, false)).collect();
    let seen = |of: &Posterior| points("observed", Marker::Ring, &of.x, &of.y);
    let visited: Vec<f64> = td.x.iter().map(|&x| wave(x)).collect();
    let panels = vec![
        curves("Samples of the prior", at, samples, Vec::new()),
        of("Posterior without noise", exact, "mean, two standard deviations", seen(exact)),
        of("Posterior with noise", noisy, "mean, two standard deviations", seen(noisy)),
        of(
            "Posterior of V from rewards",
            td,
            "mean, two standard deviations",
            points("visited", Marker::Dot, &td.x, &visited),
        ),
    ];
    Figure { panels }
}

/// Numbers of features as the notes count them, from 1.
fn numbered(chosen: &[usize]) -> String {
    chosen.iter().map(|j| (j + 1).to_string()).collect::<Vec<_>>().join(", ")
}

fn print_notes() {
    let world = World::notes(DISCOUNT, 1);
    let (value, [td, brm]) = (world.value(), world.first_correlations());
    println!("OMP-TD and OMP-BRM: the notes' five states at gamma = {DISCOUNT}\n");
    let mut table = Table::new(&["state", "reward", "V*, notes", "V*", "|Phi'R|", "|X'R|"]);
    // As the notes have been transcribed.
    let said = ["0", "gamma - gamma^2", "gamma", "1", "0"];
    for i in 0..5 {
        let cells = [short(world.rewards.at(i, 0)), said[i].to_owned(), rounded(value[i]), short(td[i]), short(brm[i])];
        table.row(std::iter::once((i + 1).to_string()).chain(cells));
    }
    table.print();
    let Outcome { coefficient, by_td, by_brm } = world.pursue();
    println!(
        "\nOMP-TD chooses {}; OMP-BRM {}; V* consists of {}",
        numbered(&by_td),
        numbered(&by_brm),
        numbered(&world.needed)
    );
    println!("the coefficient of Tropp's condition is {}", short(coefficient));
    let first = turning(|discount| World::notes(discount, 1).pursue().by_td.first() == Some(&0));
    let fails = turning(|discount| World::notes(discount, 1).coefficient() >= 1.0);
    println!(
        "OMP-TD chooses the first state first from gamma = {first:.4} on; the condition fails from {fails:.4} on\n"
    );
}

/// How many of the chains of a sparsity meet the condition, and of those and the others how many each pursuit solves in as many steps.
fn solved(sparsity: usize) -> [[usize; 3]; 2] {
    let mut out = [[0; 3]; 2];
    for seed in 0..CHAINS {
        let world = World::random(sparsity, seed);
        let Outcome { coefficient, by_td, by_brm } = world.pursue();
        let count = &mut out[usize::from(coefficient >= 1.0)];
        count[0] += 1;
        count[1] += usize::from(Outcome::finds(&by_brm, &world.needed));
        count[2] += usize::from(Outcome::finds(&by_td, &world.needed));
    }
    out
}

fn print_chains() {
    println!("{CHAINS} random chains of each sparsity: 30 states, 20 features, gamma 0.9\n");
    let mut table = Table::new(&["features needed", "condition", "chains", "OMP-BRM finds them", "OMP-TD finds them"]);
    for sparsity in 1..=5 {
        for (condition, [chains, brm, td]) in ["holds", "fails"].into_iter().zip(solved(sparsity)) {
            table.row([
                sparsity.to_string(),
                condition.to_owned(),
                chains.to_string(),
                brm.to_string(),
                td.to_string(),
            ]);
        }
    }
    table.print();
    println!();
}

fn draw_pursuits() -> Figure {
    let counts = |title: &str, x: Axis, at: Vec<f64>, worlds: Vec<World>, coefficient: bool| {
        let found: Vec<Outcome> = worlds.iter().map(World::pursue).collect();
        let of = |f: &dyn Fn(&Outcome) -> f64| found.iter().map(f).collect::<Vec<f64>>();
        let mut lines = vec![
            line("features that OMP-TD chooses", &of(&|o| o.by_td.len() as f64), None, false),
            line("features that OMP-BRM chooses", &of(&|o| o.by_brm.len() as f64), None, true),
        ];
        if coefficient {
            lines.push(line("coefficient of Tropp's condition", &of(&|o| o.coefficient), None, false));
        }
        Panel::Curves(Curves {
            title: title.into(),
            x,
            y_label: "number".into(),
            y_scale: Scale::Linear,
            y_range: None,
            at,
            lines,
            fade: None,
            points: Vec::new(),
        })
    };
    let discounts: Vec<f64> = (5..=95).map(|i| f64::from(i) / 100.0).collect();
    let decoys: Vec<f64> = (1..=DECOYS).map(|n| n as f64).collect();
    let notes = discounts.iter().map(|&discount| World::notes(discount, 1)).collect();
    let with_decoys = (1..=DECOYS).map(|n| World::notes(DISCOUNT, n)).collect();
    let panels = vec![
        counts("Five states, three features needed", Axis::new("discount", 0.05, 0.95), discounts, notes, true),
        counts("Decoys before the same chain", Axis::new("decoys", 1.0, DECOYS as f64), decoys, with_decoys, false),
    ];
    Figure { panels }
}

#[cfg(test)]
mod tests {
    use super::{CHAINS, Outcome, World, largest, processes, regression, solved};

    #[test]
    fn predictions_are_those_of_the_documents() {
        let found = regression::run();
        assert!(largest(&found.krr[0].mean, &found.krr[1].mean) < 1e-9);
        for ours in [&found.crkr[1], &found.by_sums.0] {
            assert!(largest(&found.crkr[0].mean, &ours.mean) < 1e-8 && largest(&found.crkr[0].std, &ours.std) < 1e-8);
        }
        let found = processes::run();
        assert!([&found.exact, &found.noisy, &found.td].iter().all(|of| of.differs < 1e-8));
        assert!((found.evidence[0] - found.evidence[1]).abs() < 1e-9 && found.selected[1][2] >= found.selected[0][2]);
        assert!(found.periodic[0] < -0.1 && found.periodic[2] > -1e-12 && found.periodic[3] < 1e-12);
    }

    #[test]
    fn residuals_recover_what_a_condition_promises_and_fixed_points_take_decoys() {
        for decoys in 1..5 {
            let world = World::notes(0.65, decoys);
            let Outcome { by_td, by_brm, .. } = world.pursue();
            assert!(Outcome::finds(&by_brm, &world.needed) && by_td.len() == decoys + 3, "{decoys}");
        }
        let [[held, brm, td], [others, ..]] = solved(3);
        assert_eq!((held, held + others), (brm, CHAINS as usize));
        assert!(held > 100 && td < held, "{held} {td}");
    }
}
