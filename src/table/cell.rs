//! One value of a row, and what the columns make of it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// One value of a row, as its format gives it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cell<'a> {
    /// Nothing, or null.
    Empty,
    /// A text of which the column says how to read it (CSV).
    Written(&'a str),
    /// The same where decimals have commas, of points that may set thousands apart or be decimal: `1.234`.
    Ambiguous(&'a str),
    /// A text in a format that tells texts from numbers.
    Text(&'a str),
    Number(f64),
    /// Wide enough for integers with a sign and without.
    Whole(i128),
    Flag(bool),
}

impl std::fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Cell::Empty => f.write_str("nothing"),
            Cell::Written(text) | Cell::Ambiguous(text) | Cell::Text(text) => {
                write!(f, "{:?}", text.chars().take(40).collect::<String>())
            }
            Cell::Number(value) => write!(f, "{value}"),
            Cell::Whole(value) => write!(f, "{value}"),
            Cell::Flag(value) => write!(f, "{value}"),
        }
    }
}

impl Cell<'_> {
    /// A hash of what it holds.
    pub(super) fn print(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        match self {
            Cell::Written(text) | Cell::Ambiguous(text) | Cell::Text(text) => text.hash(&mut hasher),
            other => other.to_string().hash(&mut hasher),
        }
        hasher.finish()
    }
}

/// A finite number of bounded magnitude; none where the cell is blank.
pub(super) fn number(cell: Cell<'_>, limit: f64) -> Result<Option<f64>, String> {
    let value = match cell {
        Cell::Empty | Cell::Written("") => return Ok(None),
        Cell::Written(text) => text.parse().map_err(|_| format!("{cell} is not a number"))?,
        Cell::Number(value) => value,
        Cell::Whole(value) => value as f64,
        Cell::Ambiguous(text) => {
            let (one, other) = (text.replace('.', ""), text.replacen('.', ",", 1));
            return Err(format!(
                "decimals have commas in this file: is {text} meant to be {one} or {other}? Write it so"
            ));
        }
        Cell::Text(_) => return Err(format!("{cell} is text; a number is needed here")),
        Cell::Flag(_) => return Err(format!("{cell} is a flag; a number is needed here")),
    };
    if !value.is_finite() {
        return Err(format!("{value} is not a finite number; drop the row or repair it"));
    }
    if value.abs() > limit {
        return Err(format!("{value:e} is beyond {limit:e} in magnitude; rescale the column"));
    }
    Ok(Some(value))
}

/// Whether a cell says that a number is missing, as programs write that: nothing, NaN, NA and the like; an infinite number is none.
pub(super) fn is_missing(cell: Cell<'_>) -> bool {
    const WORDS: [&str; 7] = ["nan", "na", "n/a", "#n/a", "null", "none", "-"];
    match cell {
        Cell::Written(text) | Cell::Text(text) => {
            WORDS.iter().any(|word| text.eq_ignore_ascii_case(word)) || text.parse().is_ok_and(|v: f64| !v.is_finite())
        }
        Cell::Number(value) => !value.is_finite(),
        Cell::Empty => true,
        Cell::Ambiguous(_) | Cell::Whole(_) | Cell::Flag(_) => false,
    }
}

/// The same of a state or an action, which may be a flag: true is 1.
pub(super) fn coordinate(cell: Cell<'_>, limit: f64) -> Result<Option<f64>, String> {
    match cell {
        Cell::Flag(flag) => Ok(Some(f64::from(u8::from(flag)))),
        cell => number(cell, limit),
    }
}

/// True or false; false where the cell is blank.
pub(super) fn flag(cell: Cell<'_>) -> Result<bool, String> {
    match cell {
        Cell::Empty | Cell::Written("" | "0") | Cell::Flag(false) | Cell::Whole(0) => Ok(false),
        Cell::Written("1") | Cell::Flag(true) | Cell::Whole(1) => Ok(true),
        Cell::Written(text) if text.eq_ignore_ascii_case("false") => Ok(false),
        Cell::Written(text) if text.eq_ignore_ascii_case("true") => Ok(true),
        // Floats of pandas and numpy.savetxt.
        Cell::Written(text) if matches!(text.parse(), Ok(0.0 | 1.0)) => Ok(text.parse() == Ok(1.0)),
        Cell::Number(value) if value == 0.0 || value == 1.0 => Ok(value == 1.0),
        _ => Err(format!(
            "{cell} is not a flag; write true, false, 1 or 0, or name a condition, such as 'outcome == arrived'"
        )),
    }
}

/// A whole number from 0 up.
pub(super) fn position(cell: Cell<'_>) -> Result<u64, String> {
    let value = match cell {
        Cell::Written(text) | Cell::Ambiguous(text) => text.parse().ok(),
        Cell::Whole(value) => u64::try_from(value).ok(),
        // Beyond 2^53 a double cannot represent every integer.
        Cell::Number(value) if value.fract() == 0.0 && (0.0..9e15).contains(&value) => Some(value as u64),
        _ => None,
    };
    match value {
        Some(u64::MAX) => Err(format!("{} is too large", u64::MAX)),
        Some(value) => Ok(value),
        None => Err(format!("{cell} is not a whole number from 0 up")),
    }
}

/// A stream's name: numbers are names as well.
pub(super) fn stream(cell: Cell<'_>, name: &mut String) -> Result<(), String> {
    self::name(cell, "stream's", name)
}

/// The name of a policy, empty where the cell is blank.
pub(super) fn policy(cell: Cell<'_>, name: &mut String) -> Result<(), String> {
    name.clear();
    match cell {
        Cell::Empty | Cell::Written("") | Cell::Text("") => Ok(()),
        _ => self::name(cell, "policy's", name),
    }
}

/// The name of a producer's run, which may be empty.
pub(super) fn session(cell: Cell<'_>, name: &mut String) -> Result<(), String> {
    policy(cell, name).map_err(|message| message.replace("policy's", "session's"))
}

fn name(cell: Cell<'_>, whose: &str, name: &mut String) -> Result<(), String> {
    name.clear();
    match cell {
        Cell::Written(text) | Cell::Ambiguous(text) | Cell::Text(text) => name.push_str(text),
        Cell::Whole(value) => name.push_str(&value.to_string()),
        Cell::Empty => {}
        Cell::Number(_) | Cell::Flag(_) => return Err(format!("{cell} is no name; a text or a whole number is")),
    }
    match name.len() {
        1..=256 => Ok(()),
        length => Err(format!("a {whose} name has 1 to 256 bytes, this one has {length}")),
    }
}
