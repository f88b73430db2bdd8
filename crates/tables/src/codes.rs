//! Numbers that some programs write where they have none: -999, 9999, 32767, 1e20.

use super::header::Header;
use super::job::Column;
use criticd_learner::transition::Rows;

/// Rows that hold such a number, at least.
const ROWS: usize = 2;
/// How far it lies from the others, in ranges of those.
const FAR: f64 = 3.0;

/// What there is to tell of the state variables in which a number may say that there is none.
pub(super) fn told(header: &Header, rows: &Rows) -> Vec<String> {
    let numbers = |d: usize| rows.states.iter().skip(d).step_by(rows.dim).copied();
    (0..rows.dim).filter_map(|d| say(&header.name_of(Column::State(d)), numbers(d))).collect()
}

fn say(name: &str, numbers: impl Iterator<Item = f64> + Clone) -> Option<String> {
    [1.0, -1.0].into_iter().find_map(|sign| {
        let (mut code, mut rows, mut nearest, mut farthest) = (f64::INFINITY, 0, f64::INFINITY, f64::NEG_INFINITY);
        for number in numbers.clone().map(|number| sign * number) {
            farthest = farthest.max(number);
            if number < code {
                (code, rows, nearest) = (number, 1, code);
            } else if number == code {
                rows += 1;
            } else {
                nearest = nearest.min(number);
            }
        }
        let far = farthest > nearest && nearest - code > FAR * (farthest - nearest);
        (is_code(code) && rows >= ROWS && far).then(|| {
            let code = sign * code;
            let (least, most) = if sign > 0.0 { (nearest, farthest) } else { (-farthest, -nearest) };
            format!(
                "{name} is {code} in {rows} rows, and else between {least} and {most}: if that says that the number is missing, empty these \
                 cells, and say what to do about them (--missing). In Python: pandas.read_csv(\"OLD.csv\", \
                 na_values=[{code}]).to_csv(\"NEW.csv\", index=False)"
            )
        })
    })
}

fn is_code(number: f64) -> bool {
    let size = number.abs();
    let nines = (2..10).any(|digits| size == 10_f64.powi(digits) - 1.0);
    nines || size >= 1e20 || [32767.0, 32768.0, 65535.0, 2_147_483_647.0, 2_147_483_648.0].contains(&size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_told_and_other_numbers_are_not() {
        let said = |numbers: &[f64]| say("x", numbers.iter().copied());
        let low = said(&[0.5, -999.0, 5.25, 2.0, -999.0]).unwrap();
        assert!(low.starts_with("x is -999 in 2 rows, and else between 0.5 and 5.25: if"), "{low}");
        let high = said(&[32767.0, -3.0, 32767.0, 32767.0, 8.0]).unwrap();
        assert!(high.starts_with("x is 32767 in 3 rows, and else between -3 and 8: if"), "{high}");
        assert!(high.contains("na_values=[32767]"), "{high}");
        assert!(said(&[1e30, 1e30, 2.0, 3.0]).is_some());
        // Once is an accident, others of its size are near, -700 is no code, and of two numbers one is not the odd one.
        for numbers in [
            &[-999.0, 0.5, 1.0][..],
            &[-999.0, -999.0, -800.0, -500.0],
            &[-700.0, -700.0, 0.5, 1.0],
            &[99.0, 99.0, 0.0, 0.0],
            &[f64::NAN, 1.0],
            &[],
        ] {
            assert_eq!(said(numbers), None, "{numbers:?}");
        }
    }
}
