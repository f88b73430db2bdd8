//! What a model of the transition says of a reference case: `cargo run --example golden_world -- FILE`.
//!
//! Reads the given part of a case of tests/golden-world and prints, as JSON, what its `expected` has, by the public functions of the
//! learner. What stands under `expected` is not looked at.

use serde_json::Value;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("golden_world FILE")?;
    let mut case: Value = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    case.as_object_mut().ok_or("a case is an object")?.remove("expected");
    println!("{}", criticd_reference::golden_world::answers(&case));
    Ok(())
}
