//! Rewards as sums of columns.
//!
//! ```text
//! sum     = ["+" | "-"] product {("+" | "-") product}
//! product = factor {"*" factor | "/" number}
//! factor  = number | column | column "[" k "]"
//! ```
//! At most one factor of a product is a column; `k` counts the numbers of a list from 0. A column is written as it is
//! called in the file: where several names fit, the longest is meant, so that `total-cost` is the column of that name if
//! there is one, and else a difference.

/// A column of the file, or one number of a column that holds lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) only: Option<usize>,
}

/// constant + sum over terms of factor * variable.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sum {
    pub(super) constant: f64,
    pub(super) terms: Vec<(f64, Variable)>,
}

impl Sum {
    /// The sum that `text` says, over columns called `names`.
    ///
    /// # Errors
    /// Where it is not of the grammar, or names a column that is not there.
    pub(super) fn parse(text: &str, names: &[&str]) -> Result<Self, String> {
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
                    return Err(format!(
                        "{:?} cannot continue a sum; write + or -, or * and / with numbers",
                        parser.rest
                    ));
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

    fn product(&mut self) -> Result<(f64, Option<Variable>), String> {
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

    fn column(&mut self) -> Result<Variable, String> {
        let Some(name) = self.known() else {
            let end =
                self.rest.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.'))).unwrap_or(self.rest.len());
            let word = &self.rest[..end];
            return Err(match word {
                "" if self.rest.is_empty() => "ends where a column or a number is missing".into(),
                "" => format!("{:?} is neither a column nor a number", self.rest),
                _ => super::names::missing(word, self.names),
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

    fn parse(text: &str) -> Result<Sum, String> {
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
            ("costs", "did you mean cost"),
            ("(cost)", "neither a column nor a number"),
            ("cost[x]", "counted from 0"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(words), "{text}: {message}");
        }
    }
}
