//! Sums of columns, written as text, and formulas: sums that may have functions of sums in the place of columns.
//!
//! ```text
//! sum        = ["+" | "-"] product {("+" | "-") product}
//! product    = factor {"*" factor | "/" number}
//! factor     = number | column | column "[" k "]"
//! ```
//! At most one factor of a product is a column; `k` counts the numbers of a list from 0. A column is written as it is
//! called in the file: where several names fit, the longest is meant, so that `total-cost` is the column of that name if
//! there is one, and else a difference. In a formula a factor may also be one of
//! ```text
//! formula    = sum [("<" | ">") sum]                            1 where that holds, else 0
//! function   = "(" formula ")" | "abs(" formula ")" | ("min(" | "max(") formula {"," formula} ")"
//! square     = (column | function) ("^2" | "**2")               no square has another one inside
//! ```

/// Brackets that may be inside each other.
const DEPTH_MAX: usize = 4;

/// A column, or one number of a column that holds lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Name of the column.
    pub name: String,
    /// Which number of its list, from 0; none for the column itself.
    pub only: Option<usize>,
}

/// constant + sum over terms of factor * variable.
#[derive(Clone, Debug, PartialEq)]
pub struct Sum<Q = Variable> {
    /// What is added whatever the columns hold.
    pub constant: f64,
    /// Factor and column of each product.
    pub terms: Vec<(f64, Q)>,
}

/// A sum that may have functions in it.
pub type Formula = Sum<Quantity>;

/// What a factor of a formula stands for.
#[derive(Clone, Debug, PartialEq)]
pub enum Quantity {
    /// A column.
    Column(Variable),
    /// A function of formulas: of two for a comparison, of one or more for least and greatest, else of one.
    Of(Function, Vec<Formula>),
}

/// A function of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// The number itself.
    Same,
    /// Its square.
    Square,
    /// Its absolute value.
    Abs,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// 1 where the first is less than the second, else 0.
    Less,
    /// 1 where the first is greater than the second, else 0.
    Greater,
}

impl Function {
    /// Those that have names.
    const NAMED: [(&str, Self); 3] = [("abs", Self::Abs), ("min", Self::Min), ("max", Self::Max)];

    /// Its value at these numbers.
    ///
    /// # Panics
    /// If there is none.
    pub fn of(self, mut numbers: impl Iterator<Item = f64>) -> f64 {
        let first = numbers.next().expect("a function is of a number at least");
        match self {
            Self::Same => first,
            Self::Square => first * first,
            Self::Abs => first.abs(),
            Self::Min => numbers.fold(first, f64::min),
            Self::Max => numbers.fold(first, f64::max),
            Self::Less => f64::from(u8::from(numbers.all(|second| first < second))),
            Self::Greater => f64::from(u8::from(numbers.all(|second| first > second))),
        }
    }
}

/// Why a text is no sum.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotASum {
    /// It names a column that is not there.
    #[error("there is no {0}")]
    Unknown(String),
    /// It is not of the grammar, in words.
    #[error("{0}")]
    Grammar(String),
}

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

impl Sum<Variable> {
    /// The sum that `text` says, over columns called `names`.
    ///
    /// # Errors
    /// Where it is not of the grammar, or names a column that is not there.
    pub fn parse(text: &str, names: &[&str]) -> Result<Self, NotASum> {
        Parser { rest: text.trim_start(), names }.sum(&mut Parser::column, "")
    }
}

impl Formula {
    /// The formula that `text` says, over columns called `names`.
    ///
    /// # Errors
    /// Where it is not of the grammar, or names a column that is not there.
    pub fn of(text: &str, names: &[&str]) -> Result<Self, NotASum> {
        let mut parser = Parser { rest: text.trim_start(), names };
        let formula = parser.formula(0)?;
        if parser.rest.is_empty() { Ok(formula) } else { Err(parser.cannot_continue()) }
    }

    /// Its value where each column has the number that `of` says.
    pub fn value(&self, of: &dyn Fn(&Variable) -> f64) -> f64 {
        self.terms.iter().fold(self.constant, |sum, (factor, quantity)| {
            sum + factor
                * match quantity {
                    Quantity::Column(variable) => of(variable),
                    Quantity::Of(function, formulas) => function.of(formulas.iter().map(|formula| formula.value(of))),
                }
        })
    }

    /// The columns that it names, one as often as it does.
    pub fn variables(&self) -> Vec<&Variable> {
        fn of((_, quantity): &(f64, Quantity)) -> Vec<&Variable> {
            match quantity {
                Quantity::Column(variable) => vec![variable],
                Quantity::Of(_, formulas) => formulas.iter().flat_map(Formula::variables).collect(),
            }
        }
        self.terms.iter().flat_map(of).collect()
    }

    fn just(quantity: Quantity) -> Self {
        Self { constant: 0.0, terms: vec![(1.0, quantity)] }
    }

    fn has_square(&self) -> bool {
        self.terms.iter().any(|(_, quantity)| quantity.has_square())
    }
}

impl Quantity {
    fn has_square(&self) -> bool {
        match self {
            Self::Column(_) => false,
            Self::Of(function, of) => *function == Function::Square || of.iter().any(Formula::has_square),
        }
    }
}

/// What reads a factor that is no number.
type Read<'a, 'r, Q> = &'r mut dyn FnMut(&mut Parser<'a>) -> Result<Q, NotASum>;

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

    fn cannot_continue(&self) -> NotASum {
        let rest = self.rest;
        NotASum::Grammar(format!("{rest:?} cannot continue a sum; write + or -, or * and / with numbers"))
    }

    /// A sum up to one of the characters that may `end` it, or the end of the text.
    fn sum<Q>(&mut self, read: Read<'a, '_, Q>, end: &str) -> Result<Sum<Q>, NotASum> {
        let mut sum = Sum { constant: 0.0, terms: Vec::new() };
        let mut sign = if self.take('-') {
            -1.0
        } else {
            self.take('+');
            1.0
        };
        loop {
            let (factor, quantity) = self.product(read)?;
            match quantity {
                Some(quantity) => sum.terms.push((sign * factor, quantity)),
                None => sum.constant += sign * factor,
            }
            sign = match () {
                () if self.rest.is_empty() || self.rest.starts_with(|next: char| end.contains(next)) => return Ok(sum),
                () if self.take('+') => 1.0,
                () if self.take('-') => -1.0,
                () => return Err(self.cannot_continue()),
            };
        }
    }

    /// A formula inside `depth` brackets.
    fn formula(&mut self, depth: usize) -> Result<Formula, NotASum> {
        let read = &mut |parser: &mut Self| parser.quantity(depth);
        let left = self.sum(read, "<>,)")?;
        let function = match () {
            () if self.take('<') => Function::Less,
            () if self.take('>') => Function::Greater,
            () => return Ok(left),
        };
        let right = self.sum(read, ",)")?;
        Ok(Formula::just(Quantity::Of(function, vec![left, right])))
    }

    /// A column or a function inside `depth` brackets, or the square of one.
    fn quantity(&mut self, depth: usize) -> Result<Quantity, NotASum> {
        let quantity = match self.function() {
            Some(function) => self.call(function, depth + 1)?,
            None => Quantity::Column(self.column()?),
        };
        if !self.rest.starts_with("**") && !self.rest.starts_with('^') {
            return Ok(quantity);
        }
        self.skip(if self.rest.starts_with('^') { 1 } else { 2 });
        match self.number() {
            Some(2.0) if quantity.has_square() => Err("a square has no other square inside".into()),
            Some(2.0) => Ok(Quantity::Of(Function::Square, vec![Formula::just(quantity)])),
            _ => Err("the only power is the square: write ^2 or **2".into()),
        }
    }

    /// The function that begins here, up to its bracket.
    fn function(&mut self) -> Option<Function> {
        let named = Function::NAMED.into_iter().chain([("", Function::Same)]);
        for (name, function) in named {
            let Some(rest) = self.rest.strip_prefix(name) else { continue };
            if let Some(arguments) = rest.trim_start().strip_prefix('(') {
                self.rest = arguments.trim_start();
                return Some(function);
            }
        }
        None
    }

    /// The arguments of a function, and the bracket behind them.
    fn call(&mut self, function: Function, depth: usize) -> Result<Quantity, NotASum> {
        if depth > DEPTH_MAX {
            return Err(format!("at most {DEPTH_MAX} brackets may be inside each other").into());
        }
        let mut arguments = vec![self.formula(depth)?];
        while matches!(function, Function::Min | Function::Max) && self.take(',') {
            arguments.push(self.formula(depth)?);
        }
        match () {
            () if self.take(')') => Ok(Quantity::Of(function, arguments)),
            () if self.rest.starts_with(',') => Err("only min and max are of several numbers".into()),
            () if self.rest.is_empty() => Err("a bracket is not closed".into()),
            () => Err(self.cannot_continue()),
        }
    }

    fn product<Q>(&mut self, read: Read<'a, '_, Q>) -> Result<(f64, Option<Q>), NotASum> {
        let (mut factor, mut quantity) = (1.0, None);
        loop {
            match self.number() {
                Some(number) => factor *= number,
                None if quantity.is_some() => {
                    return Err("a product has one column at most; write the product into a column of its own".into());
                }
                None => quantity = Some(read(self)?),
            }
            while self.take('/') {
                factor /= self.number().filter(|v| *v != 0.0).ok_or("only a number other than 0 can divide")?;
            }
            if !self.take('*') {
                return if factor.is_finite() {
                    Ok((factor, quantity))
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

    #[test]
    fn formulas_have_functions_of_sums() {
        let of = |text: &str| Formula::of(text, &NAMES);
        let column = |name: &str| Quantity::Column(Variable { name: name.to_owned(), only: None });
        let formula = |constant: f64, terms: &[(f64, Quantity)]| Formula { constant, terms: terms.to_vec() };
        let just = |quantity: Quantity| formula(0.0, &[(1.0, quantity)]);
        let cost = || just(column("cost"));
        let square = |of: Formula| Quantity::Of(Function::Square, vec![of]);
        let limit = |value: f64| formula(value, &[]);
        for (text, expected) in [
            ("cost - 2", formula(-2.0, &[(1.0, column("cost"))])),
            ("3*cost^2 + 1", formula(1.0, &[(3.0, square(cost()))])),
            ("cost ** 2 * 3", formula(0.0, &[(3.0, square(cost()))])),
            ("-abs( cost )/2", formula(0.0, &[(-0.5, Quantity::Of(Function::Abs, vec![cost()]))])),
            (
                "max(cost, 0, 2*energy)",
                just(Quantity::Of(Function::Max, vec![cost(), limit(0.0), formula(0.0, &[(2.0, column("energy"))])])),
            ),
            ("cost > 0.5", just(Quantity::Of(Function::Greater, vec![cost(), limit(0.5)]))),
            (
                "1 - 2*(cost < energy)",
                formula(
                    1.0,
                    &[(
                        -2.0,
                        Quantity::Of(
                            Function::Same,
                            vec![just(Quantity::Of(Function::Less, vec![cost(), just(column("energy"))]))],
                        ),
                    )],
                ),
            ),
            (
                "(total-cost + 1)^2",
                just(square(just(Quantity::Of(Function::Same, vec![formula(1.0, &[(1.0, column("total-cost"))])])))),
            ),
        ] {
            assert_eq!(of(text), Ok(expected), "{text}");
        }
        for (text, words) in [
            ("cost^3", "only power is the square"),
            ("cost^", "only power is the square"),
            ("abs(cost^2)^2", "no other square inside"),
            ("(cost", "not closed"),
            ("cost)", "cannot continue"),
            ("abs(cost, 1)", "only min and max"),
            ("cost < 1 < 2", "cannot continue"),
            ("cost <= 1", "neither a column nor a number"),
            ("min(cost, )", "neither a column nor a number"),
            ("(((((cost)))))", "at most 4 brackets"),
            ("abs", "there is no abs"),
            ("cost * abs(energy)", "one column at most"),
        ] {
            let message = of(text).unwrap_err().to_string();
            assert!(message.contains(words), "{text}: {message}");
        }
        assert!(of(&"(".repeat(100_000)).unwrap_err().to_string().contains("at most 4"));
    }
}
