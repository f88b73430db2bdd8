//! Texts of state variables and of actions: each has a code, in the order in which the texts come, or in the one that the user or a model says.

use super::cell::{Cell, is_blank, is_bracketed, is_currency, is_missing, number};
use super::columns::Categories;
use super::gaps::REMEDY;
use super::names::nearest;
use criticd_learner::transition::MAGNITUDE_MAX;
use std::collections::HashMap;

/// Texts of one variable that become categories by themselves.
const TEXTS_MAX: usize = 256;
/// Texts that a message lists.
const LISTED: usize = 12;

/// What to do about lists in cells that have room for one value.
pub(super) const LIST: &str = "each number needs a column of its own. In Python, with the names of the file: \
    df = pandas.read_csv(\"OLD.csv\"); lists = df.pop(\"state\").str.findall(r\"[-+.\\w]+\").tolist(); \
    df.join(pandas.DataFrame(lists).add_prefix(\"state_\")).to_csv(\"NEW.csv\", index=False)";

/// Whether a text is a list of numbers, as pandas writes lists and arrays: \[0.1, 2\] or \[0.1 2.\].
pub(super) fn is_list(text: &str) -> bool {
    let inner = text.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inner.is_some_and(|inner| {
        let mut numbers = inner.split([',', ' ', '\n', '\t']).filter(|part| !part.is_empty()).peekable();
        numbers.peek().is_some() && numbers.all(|part| part.parse::<f64>().is_ok())
    })
}

/// What a variable holds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Holds {
    /// Nothing has come yet.
    Unknown,
    Numbers,
    Texts,
}

/// Reads state variables (D,) and the numbers of an action behind them, of which some may hold texts.
#[derive(Debug)]
pub(super) struct Coder {
    /// Variables whose texts are known beforehand, all of them.
    given: usize,
    /// State variables D.
    states: usize,
    /// Whether new ones may come.
    learns: Learns,
    holds: Vec<Holds>,
    codes: Vec<HashMap<String, usize>>,
    pub(super) categories: Categories,
}

/// Whether texts that are not known beforehand become categories.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Learns {
    Yes,
    /// There is no model of them.
    No,
    /// The rows go where others send theirs, and the codes must be the same.
    Agreed,
}

impl Coder {
    /// Of `states` state variables, and `numbers` numbers of an action; `given`: of each its texts, of the state or of both, or
    /// nothing at all.
    pub(super) fn new(given: &Categories, (states, numbers): (usize, usize), learns: Learns) -> Self {
        let dim = states + numbers;
        let of = |d: usize| given.of(d).iter().cloned().enumerate().map(|(code, text)| (text, code)).collect();
        let holds = |d: usize| match () {
            () if d >= given.0.len() => Holds::Unknown,
            () if given.of(d).is_empty() => Holds::Numbers,
            () => Holds::Texts,
        };
        Self {
            given: given.0.len(),
            states,
            learns,
            holds: (0..dim).map(holds).collect(),
            codes: (0..dim).map(of).collect(),
            categories: given.clone(),
        }
    }

    /// The number that variable d has in a cell, or the code of its text; none where the cell is blank. `gaps`: whether a number may
    /// be missing, so that words for that are blank.
    ///
    /// # Errors
    /// What the cell is instead.
    pub(super) fn read(&mut self, d: usize, cell: Cell<'_>, gaps: bool) -> Result<Option<f64>, String> {
        let text = match cell {
            Cell::Written(text) | Cell::Ambiguous(text) | Cell::Text(text) => Some(text),
            _ => None,
        };
        if text == Some("") {
            return Ok(None);
        }
        if self.holds[d] == Holds::Texts {
            return self.code(d, cell, gaps);
        }
        if gaps && is_missing(cell) {
            return Ok(None);
        }
        let limit = if d < self.states { MAGNITUDE_MAX } else { f64::MAX };
        let number = number(cell, limit);
        let Some(text) = text.filter(|_| number.is_err() && !is_blank(cell)) else {
            if matches!(number, Ok(Some(_))) {
                self.holds[d] = Holds::Numbers;
            }
            return number;
        };
        if d < self.states && is_list(text) {
            return Err(format!(
                "{cell} is a text that holds a list: {LIST}; or, if it is a name, list the texts in a file for --columns: {}",
                example(d, text)
            ));
        }
        // What is a number that is wrong, or stands behind numbers, is no category.
        let learns = self.learns != Learns::No && (d < self.states || self.holds.len() == self.states + 1);
        if self.holds[d] == Holds::Numbers || !learns || text.parse::<f64>().is_ok() || is_bracketed(text) {
            let is_of_action = d >= self.states && text.starts_with(char::is_alphabetic);
            return number
                .map_err(|m| if is_of_action { format!("{m}; give each action a number, from 0") } else { m });
        }
        if matches!(cell, Cell::Ambiguous(_)) || begins_with_number(text) {
            let message = format!(
                "{cell} is not a number: remove the text around the number, such as a unit; or, if it is a name, list the texts in a \
                 file for --columns: {}",
                example(d, text)
            );
            return Err(message);
        }
        if self.learns == Learns::Agreed {
            let message = format!(
                "{cell} is a text: its code must be the one that all who send rows use. List the texts in the order of their codes, in \
                 a file for --columns: {}. criticd fit TABLE --dry-run prints the texts",
                example(d, text)
            );
            return Err(message);
        }
        self.holds[d] = Holds::Texts;
        self.code(d, cell, gaps)
    }

    /// The same, not a number where the cell is blank.
    pub(super) fn number(&mut self, d: usize, cell: Cell<'_>, gaps: bool) -> Result<f64, String> {
        Ok(self.read(d, cell, gaps)?.unwrap_or(f64::NAN))
    }

    fn code(&mut self, d: usize, cell: Cell<'_>, gaps: bool) -> Result<Option<f64>, String> {
        if is_blank(cell) {
            return Ok(None);
        }
        let text = match cell {
            Cell::Written(text) | Cell::Ambiguous(text) | Cell::Text(text) => text.to_owned(),
            other => other.to_string(),
        };
        if let Some(&code) = self.codes[d].get(&text) {
            return Ok(Some(code as f64));
        }
        // Wherever such a word stands it is the same, but where it is listed.
        if gaps && is_missing(cell) {
            return Ok(None);
        }
        let known = self.categories.of(d);
        if d < self.given {
            return Err(self.categories.unknown(d, &text));
        }
        if text.parse::<f64>().is_ok() {
            let gap = match is_missing(Cell::Text(&known[0])) {
                true => {
                    format!("; if {:?} says that there is none, say what to do about such rows: {REMEDY}", known[0])
                }
                false => String::new(),
            };
            let message = format!(
                "{cell} is a number, and {:?} before it is a category: write numbers or names alone, or list all of them in a file for \
                 --columns: {}{gap}",
                known[0],
                example(d, &text)
            );
            return Err(message);
        }
        if known.len() == TEXTS_MAX {
            let message = format!(
                "more than {TEXTS_MAX} different texts, of which each would be a category: is this a name, a time or a note? If not, \
                 list them in a file for --columns: {}",
                example(d, &text)
            );
            return Err(message);
        }
        let code = self.categories.push(d, self.states.max(d + 1), text.clone());
        self.codes[d].insert(text, code);
        Ok(Some(code as f64))
    }
}

/// How a list of the texts of variable d looks.
fn example(d: usize, text: &str) -> String {
    format!(
        "categories = [{}[{:?}, ...], ...], with [] for each variable of numbers",
        "[], ".repeat(d.min(3)),
        short(text)
    )
}

fn short(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Whether a text is a number with something behind it, such as a unit, or the sign of a currency before it.
fn begins_with_number(text: &str) -> bool {
    let text = text.trim_start_matches(|c| "-+.".contains(c) || is_currency(c));
    text.starts_with(|c: char| c.is_ascii_digit())
}

impl Categories {
    /// Why a text of variable d has no code.
    pub(super) fn unknown(&self, d: usize, text: &str) -> String {
        let known: Vec<&str> = self.of(d).iter().map(String::as_str).collect();
        let near = nearest(text, &known).map_or_else(|| ".".to_owned(), |near| format!("; did you mean {near}?"));
        let shown = known[..known.len().min(LISTED)].join(", ");
        let more = if known.len() > LISTED { ", ..." } else { "" };
        format!(
            "{:?} is none of the categories that are known: {shown}{more}{near} Correct it, leave these rows out, or fit again with \
             rows that have it (a file for --columns: it stands in the list of categories)",
            short(text)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(coder: &mut Coder, texts: &[&str]) -> Vec<Result<Option<f64>, String>> {
        texts.iter().map(|text| coder.read(0, Cell::Written(text), false)).collect()
    }

    #[test]
    fn texts_have_codes_in_the_order_in_which_they_come() {
        let mut coder = Coder::new(&Categories::default(), (2, 0), Learns::Yes);
        let found = read(&mut coder, &["idle", "drive", "", "idle", "none"]);
        assert_eq!(found, [Ok(Some(0.0)), Ok(Some(1.0)), Ok(None), Ok(Some(0.0)), Ok(Some(2.0))]);
        assert_eq!(coder.categories.0, [vec!["idle".to_owned(), "drive".into(), "none".into()], Vec::new()]);
        // What says that something is missing is no category, with gaps or without.
        assert_eq!(read(&mut coder, &["NA", "<NA>", "null"]), [Ok(None), Ok(None), Ok(None)]);
        let wrong = coder.read(0, Cell::Written("3"), false).unwrap_err();
        assert!(wrong.contains("\"3\" is a number, and \"idle\" before it is a category"), "{wrong}");
        let mut gappy = Coder::new(&Categories::default(), (1, 0), Learns::Yes);
        let wrong = read(&mut gappy, &["unavailable", "3"]).remove(1).unwrap_err();
        assert!(wrong.contains("if \"unavailable\" says that there is none") && !wrong.contains("idle"), "{wrong}");
        // With gaps other words say so too, before the first category and behind it, unless they are listed.
        let mut gappy = Coder::new(&Categories::default(), (1, 0), Learns::Yes);
        let found = ["none", "idle", "none"].map(|text| gappy.read(0, Cell::Written(text), true));
        assert_eq!(found, [Ok(None), Ok(Some(0.0)), Ok(None)]);
        let listed = Categories(vec![vec!["idle".into(), "none".into()]]);
        let found = Coder::new(&listed, (1, 0), Learns::Yes).read(0, Cell::Written("none"), true);
        assert_eq!(found, Ok(Some(1.0)));
        // Numbers stay numbers, and what stands behind them is read as before.
        assert_eq!(coder.read(1, Cell::Written("True"), false), Ok(Some(1.0)));
        assert!(coder.read(1, Cell::Written("ERR"), false).unwrap_err().contains("\"ERR\" is not a number"));
    }

    #[test]
    fn codes_that_are_given_are_kept() {
        let given = Categories(vec![vec!["dock".into(), "3".into(), "idle".into()], Vec::new()]);
        for learns in [Learns::Yes, Learns::No, Learns::Agreed] {
            let mut coder = Coder::new(&given, (2, 0), learns);
            let found = read(&mut coder, &["idle", "3", "dock"]);
            assert_eq!(found, [Ok(Some(2.0)), Ok(Some(1.0)), Ok(Some(0.0))]);
            assert_eq!(coder.read(0, Cell::Whole(3), false), Ok(Some(1.0)));
            let wrong = read(&mut coder, &["idl"]).remove(0).unwrap_err();
            assert!(wrong.contains("\"idl\" is none of") && wrong.contains("did you mean idle?"), "{wrong}");
            assert!(coder.read(1, Cell::Written("idle"), false).is_err());
        }
    }

    #[test]
    fn the_action_behind_the_state_is_one_too() {
        let mut coder = Coder::new(&Categories::default(), (2, 1), Learns::Yes);
        let found = ["left", "", "right", "left"].map(|text| coder.read(2, Cell::Written(text), false));
        assert_eq!(found, [Ok(Some(0.0)), Ok(None), Ok(Some(1.0)), Ok(Some(0.0))]);
        assert_eq!(coder.categories.0, [Vec::new(), Vec::new(), vec!["left".to_owned(), "right".into()]]);
        // Lists of the state alone leave it open, as do texts of the state; its numbers have no limit, and several are no text.
        let given = Categories(vec![vec!["dock".into()]]);
        let mut coder = Coder::new(&given, (1, 1), Learns::Yes);
        assert!(coder.read(0, Cell::Written("idle"), false).is_err());
        assert_eq!(coder.read(0, Cell::Written("dock"), false), Ok(Some(0.0)));
        assert_eq!((coder.read(1, Cell::Number(1e300), false), &coder.categories), (Ok(Some(1e300)), &given));
        let mut coder = Coder::new(&given, (1, 2), Learns::Yes);
        assert!(coder.read(1, Cell::Written("left"), false).unwrap_err().contains("\"left\" is not a number"));
    }

    #[test]
    fn what_is_no_category_is_refused() {
        let read = |text: &str, learns| {
            let mut coder = Coder::new(&Categories::default(), (1, 0), learns);
            coder.read(0, Cell::Written(text), false).unwrap_err()
        };
        assert!(read("0.512 m", Learns::Yes).contains("remove the text around the number, such as a unit"));
        for list in ["[0.0344, -1e-05]", "[0.5]", "[ 0.03 -0.1\n 2.  nan]"] {
            assert!(read(list, Learns::Yes).contains("a text that holds a list: each number needs a column"), "{list}");
        }
        for text in ["[idle]", "[]", "[0.1, ..., 0.2]", "(0, 1)"] {
            let mut coder = Coder::new(&Categories::default(), (1, 0), Learns::Yes);
            assert_eq!(coder.read(0, Cell::Written(text), false), Ok(Some(0.0)), "{text}");
        }
        assert!(read("nan", Learns::Yes).contains("not a finite number"));
        assert!(read("$ -1.5", Learns::Yes).contains("remove the text around the number, such as a unit"));
        assert!(read("(0.856)", Learns::Yes).contains("if brackets stand for a minus, write that: sed -E"));
        assert!(read("idle", Learns::No).contains("\"idle\" is not a number"));
        assert!(read("idle", Learns::Agreed).contains("categories = [[\"idle\", ...], ...]"));
        let mut coder = Coder::new(&Categories::default(), (1, 0), Learns::Yes);
        let names = (0..=TEXTS_MAX).map(|k| coder.read(0, Cell::Written(&format!("name {k}")), false));
        assert!(names.last().unwrap().unwrap_err().contains("more than 256 different texts"));
    }
}
