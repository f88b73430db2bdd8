//! Names that people and programs cannot tell apart: `1` and `1.0`, `run` and `run ` with a blank behind it, one in two forms of Unicode.

use super::composed::composed;
use std::collections::HashMap;

/// The names of a column so far, as they were first written.
#[derive(Debug, Default)]
pub(super) struct Alike {
    known: HashMap<(u32, String), String>,
    /// Names that another one is like, and the first of them: its line, itself, and the other.
    count: usize,
    first: Option<(u64, String, String)>,
}

impl Alike {
    /// Take in a new name, which counts within `of` alone.
    pub(super) fn see(&mut self, of: u32, name: &str, line: u64) {
        let other = self.known.entry((of, plain(&composed(name)).to_owned())).or_insert_with(|| name.to_owned());
        if other != name {
            self.count += 1;
            self.first.get_or_insert_with(|| (line, name.to_owned(), other.clone()));
        }
    }

    /// Line of the first name that is like another, and what there is to say of it.
    pub(super) fn said(&self) -> Option<(u64, String)> {
        let (line, name, other) = self.first.as_ref()?;
        let (count, are) = (self.count, if self.count == 1 { "name is" } else { "names are" });
        Some((
            *line,
            format!(
                "{count} {are} written as another one but for blanks, zeros or forms of Unicode; the first: {name:?} beside {other:?}"
            ),
        ))
    }
}

/// What is left of a name without the blanks around it, and of a whole number without needless zeros.
fn plain(name: &str) -> &str {
    let unseen = |c: char| c.is_whitespace() || matches!(c, '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}');
    let name = name.trim_matches(unseen);
    let zeros = |text: &str| text.bytes().all(|byte| byte == b'0');
    let whole = name.split_once('.').filter(|(_, rest)| zeros(rest)).map_or(name, |(whole, _)| whole);
    if whole.is_empty() || !whole.bytes().all(|byte| byte.is_ascii_digit()) {
        return name;
    }
    if zeros(whole) { "0" } else { whole.trim_start_matches('0') }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_alike_but_for_blanks_and_zeros() {
        for [name, expected] in [
            ["1", "1"],
            ["1.0", "1"],
            ["1.", "1"],
            ["007", "7"],
            ["00.00", "0"],
            [" run\u{a0}", "run"],
            ["\u{feff}run", "run"],
            ["1.5", "1.5"],
            ["a1.0", "a1.0"],
            [".0", ".0"],
            ["-1", "-1"],
            ["", ""],
        ] {
            assert_eq!(plain(name), expected, "{name:?}");
        }
        let mut alike = Alike::default();
        for (line, name) in [(2, "run"), (3, "1"), (4, "Run"), (5, "1.0"), (6, "run ")] {
            alike.see(0, name, line);
        }
        alike.see(1, "01", 7);
        let words = "2 names are written as another one but for blanks, zeros or forms of Unicode; the first: \"1.0\" beside \"1\"";
        assert_eq!(alike.said(), Some((5, words.to_owned())));
        alike.see(0, "caf\u{e9}", 8);
        alike.see(0, "cafe\u{301}", 9);
        assert!(alike.said().unwrap().1.starts_with("3 names"));
    }
}
