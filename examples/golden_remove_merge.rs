//! Removes rows, merges learners and coordinates them as a case of `tests/golden-remove-merge` says, and prints what comes out as JSON
//! with the keys of what the case expects: `cargo run --release --example golden_remove_merge -- FILE`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(file), None) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: golden_remove_merge FILE");
        return ExitCode::from(2);
    };
    let read = std::fs::read_to_string(&file).map_err(|e| e.to_string());
    match read.and_then(|text| serde_json::from_str(&text).map_err(|e| e.to_string())) {
        Ok(case) => {
            println!("{}", criticd_reference::golden_remove_merge::answer(&case));
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("{file}: {e}");
            ExitCode::FAILURE
        }
    }
}
