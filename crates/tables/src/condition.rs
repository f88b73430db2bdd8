//! Conditions in the place of flags: `outcome == arrived`, `outcome == arrived|docked`, `soc < 5`.

use super::cell::Cell;

/// Whether a cell of a column is, or is not, one of some values, or how it compares with a number.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Condition {
    /// As the user wrote it.
    pub(super) text: String,
    pub(super) column: String,
    comparison: Comparison,
}

#[derive(Clone, Debug, PartialEq)]
enum Comparison {
    Equal(Vec<String>),
    Unequal(Vec<String>),
    Less(f64),
    AtMost(f64),
    Greater(f64),
    AtLeast(f64),
}

/// Longer ones before those that they begin with.
const SIGNS: [&str; 7] = ["==", "!=", "<=", ">=", "=", "<", ">"];

impl Condition {
    /// Read a text; none if no sign of a comparison is in it.
    ///
    /// # Errors
    /// If it says nothing of a column, or compares sizes with what is no number.
    pub(super) fn parse(text: &str) -> Option<Result<Self, String>> {
        let at = text.find(['=', '!', '<', '>'])?;
        let sign = SIGNS.into_iter().find(|sign| text[at..].starts_with(sign))?;
        let bare = |text: &str| text.trim().trim_matches(['"', '\'']).to_owned();
        let (column, value) = (bare(&text[..at]), text[at + sign.len()..].trim());
        let number = || value.parse::<f64>().map_err(|_| format!("{value:?} is no number; {sign} compares numbers"));
        let values = || value.split('|').map(bare).collect::<Vec<_>>();
        let comparison = match sign {
            _ if column.is_empty() => Err("no column stands before the comparison".to_owned()),
            "==" | "=" => Ok(Comparison::Equal(values())),
            "!=" => Ok(Comparison::Unequal(values())),
            "<=" => number().map(Comparison::AtMost),
            ">=" => number().map(Comparison::AtLeast),
            "<" => number().map(Comparison::Less),
            _ => number().map(Comparison::Greater),
        };
        Some(comparison.map(|comparison| Self { text: text.trim().to_owned(), column, comparison }))
    }

    /// Whether the cell meets it. A blank one meets none.
    ///
    /// # Errors
    /// If it is no number where one is needed.
    pub(super) fn met(&self, cell: Cell<'_>) -> Result<bool, String> {
        if matches!(cell, Cell::Empty | Cell::Written("") | Cell::Text("")) {
            return Ok(false);
        }
        let size = || size(cell).ok_or_else(|| format!("{cell} is not a number, as {} needs", self.text));
        Ok(match &self.comparison {
            Comparison::Equal(values) => values.iter().any(|value| is(cell, value)),
            Comparison::Unequal(values) => !values.iter().any(|value| is(cell, value)),
            Comparison::Less(than) => size()? < *than,
            Comparison::AtMost(than) => size()? <= *than,
            Comparison::Greater(than) => size()? > *than,
            Comparison::AtLeast(than) => size()? >= *than,
        })
    }
}

fn size(cell: Cell<'_>) -> Option<f64> {
    match cell {
        Cell::Written(text) | Cell::Ambiguous(text) => text.parse().ok(),
        Cell::Number(value) => Some(value),
        Cell::Whole(value) => Some(value as f64),
        Cell::Flag(flag) => Some(f64::from(u8::from(flag))),
        Cell::Empty | Cell::Text(_) => None,
    }
}

/// Whether a cell holds this value: as a text, as a number, or as a flag.
fn is(cell: Cell<'_>, value: &str) -> bool {
    let same = |text: &str| text.trim() == value;
    match cell {
        Cell::Written(text) | Cell::Ambiguous(text) | Cell::Text(text) if same(text) => true,
        Cell::Flag(flag) if value.eq_ignore_ascii_case(if flag { "true" } else { "false" }) => true,
        _ => size(cell).is_some_and(|size| value.parse() == Ok(size)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(text: &str, cell: Cell<'_>) -> bool {
        Condition::parse(text).unwrap().unwrap().met(cell).unwrap()
    }

    #[test]
    fn cells_meet_conditions() {
        for (text, cell, expected) in [
            ("outcome == arrived", Cell::Written("arrived"), true),
            ("outcome=arrived", Cell::Text(" arrived"), true),
            ("outcome == 'arrived'", Cell::Written("stranded"), false),
            ("outcome == arrived|docked", Cell::Written("docked"), true),
            ("outcome != arrived|docked", Cell::Written("lost"), true),
            ("outcome != arrived", Cell::Written(""), false),
            ("outcome == 1", Cell::Written("1.0"), true),
            ("ended == true", Cell::Flag(true), true),
            ("soc < 5", Cell::Written("4.9"), true),
            ("soc <= 5", Cell::Whole(5), true),
            ("soc > 5", Cell::Number(5.0), false),
            ("soc >= -5e1", Cell::Written("-50"), true),
            ("soc < 5", Cell::Empty, false),
            ("soc < 5", Cell::Number(f64::NAN), false),
        ] {
            assert_eq!(met(text, cell), expected, "{text}, {cell}");
        }
        let wrong = Condition::parse("soc < 5").unwrap().unwrap().met(Cell::Written("low"));
        assert!(wrong.unwrap_err().contains("\"low\" is not a number, as soc < 5 needs"));
    }

    #[test]
    fn what_is_no_condition_is_told() {
        assert_eq!(Condition::parse("outcome"), None);
        assert!(Condition::parse("soc < low").unwrap().unwrap_err().contains("\"low\" is no number"));
        assert!(Condition::parse("== 3").unwrap().unwrap_err().contains("no column"));
        assert_eq!(Condition::parse("a <= 3").unwrap().unwrap().column, "a");
    }
}
