//! Sums of columns, written as text.
//!
//! ```text
//! sum     = ["+" | "-"] product {("+" | "-") product}
//! product = factor {"*" factor | "/" number}
//! factor  = number | column | column "[" k "]"
//! ```
//! At most one factor of a product is a column; `k` counts the numbers of a list from 0. A column is written as it is
//! called in the file: where several names fit, the longest is meant, so that `total-cost` is the column of that name if
//! there is one, and else a difference.

use std::fmt;

/// A column, or one number of a column that holds lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Name of the column.
    pub name: String,
    /// Which number of its list, from 0; none for the column itself.
    pub only: Option<usize>,
}

/// constant + sum over terms of factor * variable.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sum {
    /// What is added whatever the columns hold.
    pub constant: f64,
    /// Factor and column of each product.
    pub terms: Vec<(f64, Variable)>,
}

/// Why a text is no sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotASum {
    /// It names a column that is not there.
    Unknown(String),
    /// It is not of the grammar, in words.
    Grammar(String),
}

impl fmt::Display for NotASum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "there is no {name}"),
            Self::Grammar(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for NotASum {}

impl From<String> for NotASum {
    fn from(what: String) -> Self {
        Self::Grammar(what)
    }
}

impl From<&str> for NotASum {
    fn from(what: &str) -> Self {
        Self::Grammar(what.to_owned())
    }
}

impl Sum {
    /// The sum that `text` says, over columns called `names`.
    ///
    /// # Errors
    /// Where it is not of the grammar, or names a column that is not there.
    pub fn parse(text: &str, names: &[&str]) -> Result<Self, NotASum> {
        let mut parser = Parser { rest: text.trim_start(), names };
        let mut sum = Self::default();
        let mut sign = if parser.take('-') {
            -1.0
        } else {
            parser.take('+');
            1.0
        };
        loop {
            let (factor, variable) = parser.product()?;
            match variable {
                Some(variable) => sum.terms.push((sign * factor, variable)),
                None => sum.constant += sign * factor,
            }
            sign = match () {
                () if parser.rest.is_empty() => return Ok(sum),
                () if parser.take('+') => 1.0,
                () if parser.take('-') => -1.0,
                () => {
                    let rest = parser.rest;
                    let what = format!("{rest:?} cannot continue a sum; write + or -, or * and / with numbers");
                    return Err(NotASum::Grammar(what));
                }
            };
        }
    }
}

struct Parser<'a> {
    /// Without space at its beginning.
    rest: &'a str,
    names: &'a [&'a str],
}

impl<'a> Parser<'a> {
    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest[bytes..].trim_start();
    }

    fn take(&mut self, sign: char) -> bool {
        let found = self.rest.starts_with(sign);
        if found {
            self.skip(sign.len_utf8());
        }
        found
    }

    fn product(&mut self) -> Result<(f64, Option<Variable>), NotASum> {
        let (mut factor, mut variable) = (1.0, None);
        loop {
            match self.number() {
                Some(number) => factor *= number,
                None if variable.is_some() => {
                    return Err("a product has one column at most; write the product into a column of its own".into());
                }
                None => variable = Some(self.column()?),
            }
            while self.take('/') {
                factor /= self.number().filter(|v| *v != 0.0).ok_or("only a number other than 0 can divide")?;
            }
            if !self.take('*') {
                return if factor.is_finite() {
                    Ok((factor, variable))
                } else {
                    Err("its factor is not finite".into())
                };
            }
        }
    }

    /// The name of a column that the rest begins with: the longest one.
    fn known(&self) -> Option<&'a str> {
        let ends = |name: &str| {
            let after = self.rest[name.len()..].chars().next();
            !after.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '.'))
        };
        let fits = self.names.iter().filter(|name| !name.is_empty() && self.rest.starts_with(**name) && ends(name));
        fits.max_by_key(|name| name.len()).copied()
    }

    fn number(&mut self) -> Option<f64> {
        if self.known().is_some() {
            return None;
        }
        let digits = |text: &str| text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        let mut length = digits(self.rest);
        if length == 0 {
            return None;
        }
        // An exponent, if one follows.
        if let Some(exponent) = self.rest[length..].strip_prefix(['e', 'E']) {
            let sign = usize::from(exponent.starts_with(['+', '-']));
            let count = exponent[sign..].bytes().take_while(u8::is_ascii_digit).count();
            length += if count > 0 { 1 + sign + count } else { 0 };
        }
        let number = self.rest[..length].parse().ok()?;
        self.skip(length);
        Some(number)
    }

    fn column(&mut self) -> Result<Variable, NotASum> {
        let Some(name) = self.known() else {
            let end =
                self.rest.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.'))).unwrap_or(self.rest.len());
            let word = &self.rest[..end];
            return Err(match word {
                "" if self.rest.is_empty() => "ends where a column or a number is missing".into(),
                "" => format!("{:?} is neither a column nor a number", self.rest).into(),
                _ => NotASum::Unknown(word.to_owned()),
            });
        };
        self.skip(name.len());
        let only = match self.rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            None => None,
            Some((k, _)) => {
                let number =
                    k.trim().parse().map_err(|_| format!("[{k}]: the numbers of a list are counted from 0"))?;
                self.skip(k.len() + 2);
                Some(number)
            }
        };
        Ok(Variable { name: name.to_owned(), only })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 7] = ["cost", "energy", "total-cost", "total", "next.reward", "motor current", "2nd"];

    fn parse(text: &str) -> Result<Sum, NotASum> {
        Sum::parse(text, &NAMES)
    }

    fn sum(constant: f64, terms: &[(f64, &str)]) -> Sum {
        let variable = |name: &str| Variable { name: name.to_owned(), only: None };
        Sum { constant, terms: terms.iter().map(|(factor, name)| (*factor, variable(name))).collect() }
    }

    #[test]
    fn sums_of_columns_are_read() {
        for (text, expected) in [
            ("cost", sum(0.0, &[(1.0, "cost")])),
            ("-cost", sum(0.0, &[(-1.0, "cost")])),
            (" - cost + 1 ", sum(1.0, &[(-1.0, "cost")])),
            ("next.reward - 0.1*energy", sum(0.0, &[(1.0, "next.reward"), (-0.1, "energy")])),
            ("2 * cost * 3 / 4 - 1e-3 * energy/10", sum(0.0, &[(1.5, "cost"), (-1e-4, "energy")])),
            ("total-cost", sum(0.0, &[(1.0, "total-cost")])),
            ("total - cost", sum(0.0, &[(1.0, "total"), (-1.0, "cost")])),
            ("1-motor current*2", sum(1.0, &[(-2.0, "motor current")])),
            ("2nd", sum(0.0, &[(1.0, "2nd")])),
            ("-1", sum(-1.0, &[])),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
        assert_eq!(parse("-cost[2]").unwrap().terms[0].1.only, Some(2));
    }

    #[test]
    fn what_is_no_sum_is_refused_in_words() {
        for (text, words) in [
            ("", "ends where"),
            ("cost +", "ends where"),
            ("cost energy", "cannot continue a sum"),
            ("cost * energy", "one column at most"),
            ("cost / energy", "only a number"),
            ("cost / 0", "only a number"),
            ("costs", "there is no costs"),
            ("(cost)", "neither a column nor a number"),
            ("cost[x]", "counted from 0"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(words), "{text}: {message}");
        }
    }
}
