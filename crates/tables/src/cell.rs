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
        Cell::Written(text) => match written(text) {
            Some(value) => value,
            None if is_grouped(text) => {
                let (one, other) = (text.replace(',', ""), text.replacen(',', ".", 1));
                return Err(format!("is {text} meant to be {one} or {other}? Write it so"));
            }
            None if is_bracketed(text) => return Err(format!("{cell} is not a number; {BRACKETS}")),
            None => return Err(format!("{cell} is not a number")),
        },
        Cell::Number(value) => value,
        Cell::Whole(value) => value as f64,
        Cell::Ambiguous(text) => {
            let (one, other) = (text.replace('.', ""), text.replacen('.', ",", 1));
            return Err(format!(
                "decimals have commas in this file: is {text} meant to be {one} or {other}? Write it so"
            ));
        }
        Cell::Text(_) => return Err(format!("{cell} is text; a number is needed here")),
        Cell::Flag(flag) => f64::from(u8::from(flag)),
    };
    if !value.is_finite() {
        return Err(format!("{value} is not a finite number; drop the row or repair it"));
    }
    if value.abs() > limit {
        return Err(format!("{value:e} is beyond {limit:e} in magnitude; rescale the column"));
    }
    Ok(Some(value))
}

/// The number of a text: as programs write it, or as people do, with a long minus, or thousands set apart where that is clear. True is 1.
fn written(text: &str) -> Option<f64> {
    let plain = || {
        let text = text.replace('\u{2212}', "-");
        let grouped = is_grouped(&text) && (text.contains('.') || text.matches(',').count() > 1);
        let text = if grouped { text.replace(',', "") } else { text };
        let thousands = text.contains(is_apart) && is_grouped(&text.replace(is_apart, ","));
        if thousands { text.replace(is_apart, "") } else { text }.parse().ok()
    };
    text.parse().ok().or_else(plain).or_else(|| truth(text).map(|flag| f64::from(u8::from(flag))))
}

/// Whether a letter sets thousands apart, and nothing else: an apostrophe or a blank.
pub(super) fn is_apart(c: char) -> bool {
    matches!(c, '\'' | '\u{2019}' | ' ' | '\u{a0}' | '\u{202f}' | '\u{2009}')
}

/// Whether a letter may stand before an amount of money.
pub(super) fn is_currency(c: char) -> bool {
    matches!(c, '$' | '\u{20ac}' | '\u{a3}' | '\u{a5}' | ' ')
}

/// What to do about numbers that have brackets for a minus. The first line is the header's.
pub(super) const BRACKETS: &str =
    "if brackets stand for a minus, write that: sed -E '2,$ s/[(]([0-9][0-9.,]*)[)]/-\\1/g' OLD > NEW";

/// Whether a number stands in brackets, as accountants write what is below 0: `(0.856)`.
pub(super) fn is_bracketed(text: &str) -> bool {
    let inner = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or_default();
    inner.starts_with(|c: char| c.is_ascii_digit()) && inner.chars().all(|c| c.is_ascii_digit() || ".,".contains(c))
}

/// Whether thousands are set apart by commas: groups of three digits behind the first, and perhaps decimals.
pub(super) fn is_grouped(text: &str) -> bool {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |group: &str| group.bytes().all(|byte| byte.is_ascii_digit());
    let mut groups = whole.trim_start_matches(['-', '+']).split(',');
    let first = groups.next().is_some_and(|first| (1..=3).contains(&first.len()) && digits(first));
    let rest: Vec<&str> = groups.collect();
    first && !rest.is_empty() && rest.iter().all(|group| group.len() == 3 && digits(group)) && digits(decimals)
}

/// What a word for true or false says, as programs write it in several languages.
pub(super) fn truth(text: &str) -> Option<bool> {
    which(text, &["true", "wahr", "vrai", "verdadero", "verdadeiro", "vero"], &["false", "falsch", "faux", "falso"])
}

/// The same of a flag, which may also be said as people say it.
pub(super) fn yes_or_no(text: &str) -> Option<bool> {
    which(text, &["yes", "y", "t", "on", "ja", "oui"], &["no", "n", "f", "off", "nein", "non"]).or_else(|| truth(text))
}

/// Whether the text is one of `yes` or one of `no`, in capitals or not.
fn which(text: &str, yes: &[&str], no: &[&str]) -> Option<bool> {
    let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is(yes) { Some(true) } else { is(no).then_some(false) }
}

/// Whether a cell says nothing, or says in a word that no category is called by that something is missing.
pub(super) fn is_blank(cell: Cell<'_>) -> bool {
    const WORDS: [&str; 7] = ["nan", "na", "n/a", "#n/a", "null", "<na>", "\\n"];
    match cell {
        Cell::Written(text) | Cell::Text(text) => {
            text.is_empty() || WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
        }
        Cell::Number(value) => value.is_nan(),
        Cell::Empty => true,
        Cell::Ambiguous(_) | Cell::Whole(_) | Cell::Flag(_) => false,
    }
}

/// Whether a cell says that a number is missing, as programs write that: nothing, NaN, NA and the like; an infinite number is none.
pub(super) fn is_missing(cell: Cell<'_>) -> bool {
    const WORDS: [&str; 17] = [
        "none",
        "nil",
        "-",
        "--",
        "---",
        ".",
        "?",
        "*",
        "n.a.",
        "n/d",
        "nat",
        "(null)",
        "missing",
        "undefined",
        "no data",
        "unavailable",
        "unknown",
    ];
    match cell {
        _ if is_blank(cell) => true,
        // Spreadsheets write errors so: #DIV/0!, #REF!, #NAME?.
        Cell::Written(text) | Cell::Text(text) => {
            let error = text.starts_with('#') && text.ends_with(['!', '?']);
            // Programs for Windows write NaN so: -1.#IND, 1.#QNAN, -nan(ind).
            let error = error || text.trim_start_matches('-').starts_with("1.#") || text.ends_with("nan(ind)");
            error
                || WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
                || text.parse().is_ok_and(|v: f64| !v.is_finite())
        }
        Cell::Number(value) => !value.is_finite(),
        Cell::Empty => true,
        Cell::Ambiguous(_) | Cell::Whole(_) | Cell::Flag(_) => false,
    }
}

/// True or false; false where the cell is blank.
pub(super) fn flag(cell: Cell<'_>) -> Result<bool, String> {
    match cell {
        Cell::Empty | Cell::Written("" | "0") | Cell::Flag(false) | Cell::Whole(0) => Ok(false),
        Cell::Written("1") | Cell::Flag(true) | Cell::Whole(1) => Ok(true),
        // Floats of pandas and numpy.savetxt.
        Cell::Written(text) if matches!(text.parse(), Ok(0.0 | 1.0)) => Ok(text.parse() == Ok(1.0)),
        Cell::Number(value) if value == 0.0 || value == 1.0 => Ok(value == 1.0),
        Cell::Written(text) if yes_or_no(text).is_some() => Ok(yes_or_no(text) == Some(true)),
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
