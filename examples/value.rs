//! Evaluate a value function in a program of your own: no daemon, no Python.
//!
//! ```text
//! cargo run --release --example value -- walk.model 0.5 1.0
//! mean 1.234567 std 0.123456 known 98.7 %
//! ```
//! The file is what `criticd fit` or `criticd snapshot` writes.

use criticd::snapshot::{Ask, Evaluator};
use criticd::wire::decode_snapshot;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let path = words.next().ok_or("usage: value MODEL NUMBER...")?;
    let state = words.map(|word| word.parse()).collect::<Result<Vec<f64>, _>>()?;
    // Laid out once; a program then asks it as often as it likes, from several threads.
    let model = Evaluator::new(decode_snapshot(&std::fs::read(path)?)?);
    let found = model.evaluate(&state, Ask::ALL)?;
    for i in 0..found.mean.nrows() {
        print!("mean {:.9}", found.mean[(i, 0)]);
        if let (Some(variance), Some(known)) = (&found.variance, &found.known) {
            print!(" std {:.9} known {:.1} %", variance[i].sqrt(), 100.0 * known[i]);
        }
        println!();
    }
    Ok(())
}
