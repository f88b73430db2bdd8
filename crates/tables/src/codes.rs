//! Numbers that some programs write where they have none: -999, 9999, 32767.

use super::Format;
use super::job::Column;
use super::schema::Schema;
use criticd_learner::transition::Rows;

/// Rows that hold such a number, at least.
const CODE_ROWS_MIN: usize = 2;
/// How far it lies from the others, in ranges of those.
const CODE_DISTANCE_MIN: f64 = 3.0;

/// The lowest of some numbers, how many there are of it, the one above it, and the highest.
#[derive(Clone, Copy)]
struct Ends {
    lowest: f64,
    rows: usize,
    second: f64,
    highest: f64,
}

impl Ends {
    fn take(&mut self, number: f64) {
        self.highest = self.highest.max(number);
        if number < self.lowest {
            (self.lowest, self.rows, self.second) = (number, 1, self.lowest);
        } else if number == self.lowest {
            self.rows += 1;
        } else {
            self.second = self.second.min(number);
        }
    }

    /// Whether the lowest one may say that there is none.
    fn is_code(&self) -> bool {
        let size = self.lowest.abs();
        let known =
            (2..10).any(|digits| size == 10_f64.powi(digits) - 1.0) || [32767.0, 32768.0, 65535.0].contains(&size);
        let (range, distance) = (self.highest - self.second, self.second - self.lowest);
        known && self.rows >= CODE_ROWS_MIN && range > 0.0 && distance > CODE_DISTANCE_MIN * range
    }
}

/// What there is to tell of the state variables in which a number may say that there is none.
pub(super) fn told(schema: &Schema, rows: &Rows) -> Option<String> {
    let none = Ends { lowest: f64::INFINITY, rows: 0, second: f64::INFINITY, highest: f64::NEG_INFINITY };
    let mut ends = vec![[none; 2]; rows.dim];
    for state in rows.states.chunks_exact(rows.dim.max(1)) {
        for (ends, number) in ends.iter_mut().zip(state) {
            ends[0].take(*number);
            ends[1].take(-number);
        }
    }
    let mut found = ends.iter().enumerate().filter_map(|(d, [low, high])| match () {
        () if low.is_code() => Some((d, low.lowest, low.rows, low.second, low.highest)),
        () if high.is_code() => Some((d, -high.lowest, high.rows, -high.highest, -high.second)),
        () => None,
    });
    let (d, code, count, least, most) = found.next()?;
    let name = schema.name_of(Column::State(d));
    let others = match found.count() {
        0 => String::new(),
        1 => "; 1 further variable has such a number".to_owned(),
        more => format!("; {more} further variables have such numbers"),
    };
    let how = match schema.format {
        Format::Csv => format!(
            "leave the cell empty. In Python: pandas.read_csv(\"OLD.csv\", na_values={{{name:?}: [{code}]}}).to_csv(\"NEW.csv\", \
             index=False)"
        ),
        _ => "write NaN there".to_owned(),
    };
    Some(format!(
        "{name} is {code} in {count} rows, and else between {least} and {most}{others}. If that says that the number is missing, say what \
         to do about such rows (--missing), and {how}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_lie_far_from_all_other_numbers() {
        let is_code = |numbers: &[f64]| {
            let mut ends = Ends { lowest: f64::INFINITY, rows: 0, second: f64::INFINITY, highest: f64::NEG_INFINITY };
            numbers.iter().for_each(|number| ends.take(*number));
            ends.is_code()
        };
        assert!(is_code(&[0.5, -999.0, 5.25, 2.0, -999.0]));
        assert!(is_code(&[-32767.0, 3.0, -32767.0, -32767.0, -8.0]));
        // Once is an accident, others of its size are near, -700 is no code, and of two numbers none is the odd one.
        for numbers in [
            &[-999.0, 0.5, 1.0][..],
            &[-999.0, -999.0, -800.0, -500.0],
            &[-700.0, -700.0, 0.5, 1.0],
            &[-99.0, -99.0, 0.0, 0.0],
            &[f64::NAN, 1.0],
            &[],
        ] {
            assert!(!is_code(numbers), "{numbers:?}");
        }
    }
}
