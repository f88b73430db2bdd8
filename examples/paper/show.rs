//! Medians over seeds, beside the paper's numbers; progress; where pictures go.

use clap::Parser;
use criticd::picture::Figure;
use std::path::PathBuf;
use std::time::Instant;

/// Where pictures go.
#[derive(Parser)]
pub(crate) struct Out {
    /// Directory for the pictures
    #[arg(long, value_name = "DIR", default_value = "target/figures")]
    out: PathBuf,
}

/// The options of the examples that draw samples.
#[derive(Parser)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) out: Out,
    /// How many seeds, from 0
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seeds: u64,
}

impl Out {
    /// Make the directory for the pictures, or say why not and end.
    pub(crate) fn prepare(&self) {
        if let Err(error) = std::fs::create_dir_all(&self.out) {
            eprintln!("cannot make {}: {error}", self.out.display());
            std::process::exit(1);
        }
    }

    /// Write one picture, or say why not and end.
    pub(crate) fn write(&self, name: &str, figure: &Figure, columns: usize) {
        let path = self.out.join(name);
        if let Err(error) = figure.write_png_in_rows(&path, columns) {
            eprintln!("{error}");
            std::process::exit(1);
        }
        eprintln!("wrote {}", path.display());
    }
}

impl Options {
    /// Apply `work` to each seed on a thread for each processor; results in the order of the seeds.
    pub(crate) fn for_each_seed<T: Send>(&self, work: impl Fn(u64) -> T + Sync) -> Vec<T> {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64).min(self.seeds);
        let started = Instant::now();
        let (work, seeds) = (&work, self.seeds);
        let mut found: Vec<(u64, T)> = std::thread::scope(|scope| {
            let share = |thread: u64| {
                let mut out = Vec::new();
                for seed in (thread..seeds).step_by(threads as usize) {
                    out.push((seed, work(seed)));
                    eprintln!("seed {seed} done after {:.0} s", started.elapsed().as_secs_f64());
                }
                out
            };
            let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || share(thread))).collect();
            running.into_iter().flat_map(|t| t.join().expect("a seed failed, as said above")).collect()
        });
        found.sort_by_key(|(seed, _)| *seed);
        found.into_iter().map(|(_, result)| result).collect()
    }
}

/// A number with at least three significant digits.
pub(crate) fn short(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-3..1e5).contains(&size) {
        return format!("{value:.1e}");
    }
    let decimals = match size {
        s if s.fract() == 0.0 => 0,
        s if s >= 9.995 => 1,
        s if s >= 0.09995 => 2,
        s if s >= 0.009995 => 3,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

/// Median and range over the seeds.
pub(crate) fn over_seeds(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    let median = 0.5 * (values[(n - 1) / 2] + values[n / 2]);
    if values[0] == values[n - 1] {
        return short(median);
    }
    format!("{} ({} to {})", short(median), short(values[0]), short(values[n - 1]))
}

/// Lines of a table as text: one row per quantity, pairs of columns of paper and ours.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|s| (*s).to_owned()).collect()] }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.rows[0].len(), "every row has as many cells as the head");
        self.rows.push(cells);
    }

    /// Print it the way Markdown writes tables.
    pub(crate) fn print(&self) {
        let width = |c: usize| self.rows.iter().map(|row| row[c].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.rows[0].len()).map(width).collect();
        for (k, row) in self.rows.iter().enumerate() {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell}{}", " ".repeat(width - cell.chars().count())))
                .collect();
            println!("| {} |", cells.join(" | "));
            if k == 0 {
                println!("|{}|", widths.iter().map(|w| "-".repeat(w + 2)).collect::<Vec<_>>().join("|"));
            }
        }
    }
}

/// "5 of 5 seeds", or with the exceptions.
pub(crate) fn holds(claim: &str, on: impl IntoIterator<Item = bool>) -> String {
    let on: Vec<bool> = on.into_iter().collect();
    let missed: Vec<String> = (0..on.len()).filter(|&k| !on[k]).map(|k| k.to_string()).collect();
    let count = on.len() - missed.len();
    if missed.is_empty() {
        format!("{claim}: {count} of {count} seeds")
    } else {
        format!("{claim}: {count} of {} seeds, not seed {}", on.len(), missed.join(", "))
    }
}
