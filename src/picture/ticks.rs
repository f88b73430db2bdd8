//! Ticks of an axis and their labels.

use std::f64::consts::PI;

/// Places and texts of the ticks of one axis, in rising order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ticks(pub(super) Vec<(f64, String)>);

/// About `count` ticks within `range`, at multiples of 1, 2 or 5 times a power of ten.
pub(super) fn decimal([low, high]: [f64; 2], count: usize) -> Ticks {
    let rough = (high - low) / count as f64;
    let power = rough.log10().floor();
    let unit = 10f64.powf(power);
    // The nearest of 1, 2, 5, 10 by ratio.
    let factor = match rough / unit {
        r if r < 2f64.sqrt() => 1.0,
        r if r < 10f64.sqrt() => 2.0,
        r if r < 50f64.sqrt() => 5.0,
        _ => 10.0,
    };
    let step = factor * unit;
    let exponent = step.log10().floor() as i32;
    let largest = low.abs().max(high.abs());
    // Ordinary numbers as such, others as multiples of a common power of ten.
    let scale = if largest >= 1e5 || step < 1e-4 { largest.log10().floor() as i32 } else { 0 };
    let decimals = (scale - exponent).max(0) as usize;
    let places = whole_multiples([low, high], step);
    let label = |k: i64| {
        let number = format!("{:.decimals$}", (k as f64 * step) / 10f64.powi(scale)).replace('-', "−");
        match scale {
            0 => number,
            _ if k == 0 => "0".to_owned(),
            _ => format!("{number}·10{}", superscript(scale)),
        }
    };
    Ticks(places.map(|k| (k as f64 * step, label(k))).collect())
}

/// Ticks at multiples of pi/4, pi/2, pi or 2^k pi: the densest with fewer than six steps in the range.
pub(super) fn in_pi(range: [f64; 2]) -> Ticks {
    let steps = [(1, 4), (1, 2), (1, 1)].into_iter().chain((1..62).map(|k| (1_i64 << k, 1)));
    let (numerator, denominator) = steps
        .into_iter()
        .find(|&(n, d)| (range[1] - range[0]) / (n as f64 / d as f64 * PI) < 6.0)
        .expect("angles stay below 10^18");
    let step = numerator as f64 / denominator as f64 * PI;
    let label = |k: i64| {
        let (mut n, mut d) = (k * numerator, denominator);
        while n % 2 == 0 && d % 2 == 0 {
            (n, d) = (n / 2, d / 2);
        }
        let sign = if n < 0 { "−" } else { "" };
        match (n.abs(), d) {
            (0, _) => "0".to_owned(),
            (1, 1) => format!("{sign}π"),
            (m, 1) => format!("{sign}{m}π"),
            (1, d) => format!("{sign}π/{d}"),
            (m, d) => format!("{sign}{m}π/{d}"),
        }
    };
    Ticks(whole_multiples(range, step).map(|k| (k as f64 * step, label(k))).collect())
}

/// Ticks at powers of ten, every one or every few, so that there are at most about `count`; multiples by 2 and 5 as well
/// where a range holds fewer than two powers.
pub(super) fn powers([low, high]: [f64; 2], count: usize) -> Ticks {
    let (from, to) = ((low.log10() - 1e-9).ceil() as i32, (high.log10() + 1e-9).floor() as i32);
    if to <= from {
        let all = (from - 1..=to + 1).flat_map(|k| [1.0, 2.0, 5.0].map(|f| (f, k)));
        let inside = all.filter(|(f, k)| (low * (1.0 - 1e-9)..=high * (1.0 + 1e-9)).contains(&(f * 10f64.powi(*k))));
        return Ticks(inside.map(|(f, k)| (f * 10f64.powi(k), format!("{f}·10{}", superscript(k)))).collect());
    }
    let every = ((to - from + 1) as f64 / count.max(1) as f64).ceil().max(1.0) as i32;
    let first = from.div_euclid(every) * every;
    let kept = (0..).map(|k| first + k * every).skip_while(|k| *k < from).take_while(|k| *k <= to);
    Ticks(kept.map(|k| (10f64.powi(k), format!("10{}", superscript(k)))).collect())
}

/// All k with k step in the range, whose ends count if they are missed by rounding only.
fn whole_multiples([low, high]: [f64; 2], step: f64) -> std::ops::RangeInclusive<i64> {
    (low / step - 1e-6).ceil() as i64..=(high / step + 1e-6).floor() as i64
}

fn superscript(n: i32) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    n.to_string().chars().map(|c| c.to_digit(10).map_or('⁻', |d| DIGITS[d as usize])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(ticks: Ticks) -> String {
        ticks.0.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn numbers_are_round() {
        assert_eq!(texts(decimal([-8.0, 8.0], 6)), "−8 −6 −4 −2 0 2 4 6 8");
        assert_eq!(texts(decimal([-17.08, 0.0], 6)), "−16 −14 −12 −10 −8 −6 −4 −2 0");
        assert_eq!(texts(decimal([0.013, 0.052], 5)), "0.02 0.03 0.04 0.05");
        assert_eq!(texts(decimal([1.0, 11.0], 5)), "2 4 6 8 10");
        assert_eq!(texts(decimal([0.0, 3.2e6], 4)), "0 1·10⁶ 2·10⁶ 3·10⁶");
        assert_eq!(texts(decimal([0.0, 2.5e-7], 5)), "0 0.5·10⁻⁷ 1.0·10⁻⁷ 1.5·10⁻⁷ 2.0·10⁻⁷ 2.5·10⁻⁷");
    }

    #[test]
    fn there_are_never_too_few_or_too_many() {
        for k in 0..400 {
            let width = 10f64.powf(f64::from(k) / 20.0 - 10.0);
            for low in [0.0, -0.37 * width, 12.3 * width] {
                let ticks = decimal([low, low + width], 6);
                assert!((3..=10).contains(&ticks.0.len()), "{low} {width} {ticks:?}");
                assert!(ticks.0.iter().all(|(v, _)| *v >= low - 1e-5 * width && *v <= low + width * 1.00001));
            }
        }
    }

    #[test]
    fn logarithmic_axes_count_in_powers() {
        assert_eq!(texts(powers([1e-3, 10.0], 6)), "10⁻³ 10⁻² 10⁻¹ 10⁰ 10¹");
        assert_eq!(texts(powers([0.9e-8, 1e4], 6)), "10⁻⁶ 10⁻³ 10⁰ 10³");
        assert_eq!(texts(powers([0.15, 0.7], 6)), "2·10⁻¹ 5·10⁻¹");
    }

    #[test]
    fn angles_count_in_pi() {
        assert_eq!(texts(in_pi([-PI, PI])), "−π −π/2 0 π/2 π");
        assert_eq!(texts(in_pi([0.0, 1.0])), "0 π/4");
        assert_eq!(texts(in_pi([-1.0, 7.0 * PI])), "0 2π 4π 6π");
    }
}
