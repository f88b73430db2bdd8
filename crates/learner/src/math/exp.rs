//! The exponential function over slices, written so that the compiler keeps it in vector registers.

use super::lanes::{ARCH, add_product};
use pulp::{Simd, WithSimd};
use std::marker::PhantomData;

/// values\[i\] <- scale exp(values\[i\]), for arguments that are not NaN.
///
/// exp is within 2 units in the last place for arguments in \[-708, 709\]. Below -708 it is zero (the true value is
/// under 4e-308), above 709 it is exp 709. The width of the registers is chosen at run time, and products and sums are
/// fused where the processor does that: last bits depend on the machine, but not on where an entry stands in the slice.
pub fn scaled_exp(values: &mut [f64], scale: f64) {
    ARCH.dispatch(ScaledExp { values, scale });
}

/// A function of the squared distance |x - y|^2, 1 or a little more at zero and falling from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// exp(-1/2 r^2). It is its own slope: -2 d/dr^2 gives it back.
    Gaussian,
    /// (1 + a + a^2 / 3) exp(-a) with a = sqrt(5) r.
    Matern52,
    /// 5/3 (1 + a) exp(-a): -2 d/dr^2 of the one before.
    Matern52Slope,
}

/// values\[i\] <- scale shape(values\[i\]) + level for squared distances, which are not negative. Bits depend on the machine,
/// but not on where an entry stands in the slice.
pub fn of_squares(values: &mut [f64], shape: Shape, scale: f64, level: f64) {
    match shape {
        Shape::Gaussian => ARCH.dispatch(OfSquares::<Gaussian>::new(values, scale, level)),
        Shape::Matern52 => ARCH.dispatch(OfSquares::<Matern52>::new(values, scale, level)),
        Shape::Matern52Slope => ARCH.dispatch(OfSquares::<Matern52Slope>::new(values, scale, level)),
    }
}

/// Points, coordinate by coordinate: point i has coordinate w at `columns[w * stride + i]`, so that one coordinate of many
/// points lies in a row.
#[derive(Clone, Copy, Debug)]
pub struct Lanes<'a> {
    /// The coordinates.
    pub columns: &'a [f64],
    /// From one coordinate of a point to the next.
    pub stride: usize,
    /// The point that is compared first.
    pub first: usize,
    /// How many pairs of coordinates at the end are not coordinates but a category and what it adds to the squared distance
    /// where it is another one.
    pub categories: usize,
}

/// out\[i\] <- scale shape(|x_i - y|^2) + level for the points i = `first`.. of `points`.
///
/// `y` holds one number for each coordinate. Bits depend on the machine and on nothing else, as for [`scaled_exp`].
///
/// # Panics
/// If there are fewer points than `first + out.len()`.
pub fn covariances(out: &mut [f64], points: Lanes<'_>, y: &[f64], shape: Shape, scale: f64, level: f64) {
    match shape {
        Shape::Gaussian => ARCH.dispatch(Covariances::<Gaussian>::new(out, points, y, scale, level)),
        Shape::Matern52 => ARCH.dispatch(Covariances::<Matern52>::new(out, points, y, scale, level)),
        Shape::Matern52Slope => ARCH.dispatch(Covariances::<Matern52Slope>::new(out, points, y, scale, level)),
    }
}

/// A [`Shape`], known when the code is compiled.
trait Correlation {
    /// scale shape(square) + level, without a branch or a call: one entry is one lane.
    fn value<S: Simd>(square: f64, scale: f64, level: f64) -> f64;
}

struct Gaussian;
struct Matern52;
struct Matern52Slope;

impl Correlation for Gaussian {
    #[inline(always)]
    fn value<S: Simd>(square: f64, scale: f64, level: f64) -> f64 {
        add_product::<S>(scale, power_of_two::<S>(-0.5 * std::f64::consts::LOG2_E * square), level)
    }
}

impl Correlation for Matern52 {
    #[inline(always)]
    fn value<S: Simd>(square: f64, scale: f64, level: f64) -> f64 {
        let a = matern_distance(square);
        let factor = add_product::<S>(a, add_product::<S>(a, 1.0 / 3.0, 1.0), 1.0);
        add_product::<S>(scale * factor, power_of_two::<S>(-std::f64::consts::LOG2_E * a), level)
    }
}

impl Correlation for Matern52Slope {
    #[inline(always)]
    fn value<S: Simd>(square: f64, scale: f64, level: f64) -> f64 {
        let a = matern_distance(square);
        let factor = add_product::<S>(a, 5.0 / 3.0, 5.0 / 3.0);
        add_product::<S>(scale * factor, power_of_two::<S>(-std::f64::consts::LOG2_E * a), level)
    }
}

/// sqrt(5 r^2), but where the exponential is zero anyway not so large that its square overflows. What is not a number stays so.
#[inline(always)]
fn matern_distance(square: f64) -> f64 {
    const FAR: f64 = 800.0;
    let a = (5.0 * square).sqrt();
    if a > FAR { FAR } else { a }
}

struct Covariances<'a, C> {
    out: &'a mut [f64],
    points: Lanes<'a>,
    y: &'a [f64],
    scale: f64,
    level: f64,
    shape: PhantomData<C>,
}

impl<'a, C> Covariances<'a, C> {
    fn new(out: &'a mut [f64], points: Lanes<'a>, y: &'a [f64], scale: f64, level: f64) -> Self {
        Self { out, points, y, scale, level, shape: PhantomData }
    }
}

/// Registers whose exponentials are taken together, so that none waits for another, and half of them.
const MANY: usize = 8;
const HALF: usize = MANY / 2;
/// Entries of a short slice that are taken together, which the widest register holds.
const FEW: usize = 8;

impl<C: Correlation> WithSimd for Covariances<'_, C> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // The entries that MANY and HALF registers hold, and registers that hold FEW.
        match S::F64_LANES {
            8 => self.in_registers::<S, 64, 32, 1>(simd),
            4 => self.in_registers::<S, 32, 16, 2>(simd),
            2 => self.in_registers::<S, 16, 8, 4>(simd),
            _ => self.in_registers::<S, MANY, HALF, FEW>(simd),
        }
    }
}

impl<C: Correlation> Covariances<'_, C> {
    #[inline(always)]
    fn in_registers<S: Simd, const N: usize, const H: usize, const W: usize>(self, simd: S) {
        let Self { out, points: Lanes { columns, stride, first, categories }, y, scale, level, .. } = self;
        let from = |at: usize| move |w: usize| &columns[w * stride + first + at..];
        let y = y.split_at(y.len() - 2 * categories);
        let points = out.len();
        // Where they do not come out even the last ones are taken with some before them, which get the same bits again.
        let mut at = 0;
        while at + H < points && points >= N {
            at = at.min(points - N);
            let many = out[at..].first_chunk_mut().expect("as many as that");
            several::<S, C, N, MANY>(simd, many, y, scale, level, from(at));
            at += N;
        }
        while at < points && points >= H {
            at = at.min(points - H);
            let half = out[at..].first_chunk_mut().expect("as many as that");
            several::<S, C, H, HALF>(simd, half, y, scale, level, from(at));
            at += H;
        }
        while at < points && points >= FEW {
            at = at.min(points - FEW);
            let few = out[at..].first_chunk_mut().expect("as many as that");
            several::<S, C, FEW, W>(simd, few, y, scale, level, from(at));
            at += FEW;
        }
        if at < points {
            let mut block = [0.0; FEW];
            for (w, y) in y.0.iter().enumerate() {
                for (square, x) in block.iter_mut().zip(&from(0)(w)[..points]) {
                    let step = x - y;
                    *square = step.mul_add(step, *square);
                }
            }
            add_where_different(&mut block[..points], y, from(0));
            apply::<S, C, FEW>(&mut block, scale, level);
            out.copy_from_slice(&block[..points]);
        }
    }
}

/// Covariances with the points that `V` registers hold; `columns` gives a coordinate of them and of what follows; `y` are
/// coordinates and categories.
#[inline(always)]
fn several<'a, S: Simd, C: Correlation, const N: usize, const V: usize>(
    simd: S,
    out: &mut [f64; N],
    y: (&[f64], &[f64]),
    scale: f64,
    level: f64,
    columns: impl Fn(usize) -> &'a [f64],
) {
    let mut squares = [simd.splat_f64s(0.0); V];
    for (w, y) in y.0.iter().enumerate() {
        add_squares(simd, &mut squares, &columns(w)[..N], *y);
    }
    S::as_mut_simd_f64s(out).0.copy_from_slice(&squares);
    add_where_different(out, y, columns);
    apply::<S, C, N>(out, scale, level);
}

/// squares <- squares + (x - y)^2 for the points x of a block.
#[inline(always)]
fn add_squares<S: Simd, const V: usize>(simd: S, squares: &mut [S::f64s; V], xs: &[f64], y: f64) {
    let y = simd.splat_f64s(y);
    for (square, x) in squares.iter_mut().zip(S::as_simd_f64s(xs).0) {
        let step = simd.sub_f64s(*x, y);
        *square = simd.mul_add_f64s(step, step, *square);
    }
}

/// squares <- squares + what a category adds, for the points whose category is another.
#[inline(always)]
fn add_where_different<'a>(
    squares: &mut [f64],
    (coordinates, categories): (&[f64], &[f64]),
    columns: impl Fn(usize) -> &'a [f64],
) {
    for (c, pair) in categories.chunks_exact(2).enumerate() {
        let xs = &columns(coordinates.len() + 2 * c)[..squares.len()];
        for (square, x) in squares.iter_mut().zip(xs) {
            *square += if *x == pair[0] { 0.0 } else { pair[1] };
        }
    }
}

/// block\[i\] <- scale shape(block\[i\]) + level.
#[inline(always)]
fn apply<S: Simd, C: Correlation, const N: usize>(block: &mut [f64; N], scale: f64, level: f64) {
    for value in block {
        *value = C::value::<S>(*value, scale, level);
    }
}

/// 2^t for t <= 0, zero where t < -1021: 2^k 2^f with k = round(t) and 2^f = 1 + f g(f), where g is the polynomial of degree 10
/// through Chebyshev's points of \[-1/2, 1/2\] (error of 2^f under 2e-17). Cheaper than [`exp`], since there is nothing to be
/// taken off t but a whole number; the rounding of t itself is one of many in a squared distance.
#[inline(always)]
fn power_of_two<S: Simd>(t: f64) -> f64 {
    // Adding 1.5 * 2^52 rounds to the nearest integer and leaves that integer in the low bits of the sum, here with the bias
    // of exponents.
    const ROUND: f64 = 6_755_399_441_055_744.0 + 1023.0;
    let sum = t + ROUND;
    let f = t - (sum - ROUND);
    const G: [f64; 11] = [
        4.454_960_598_186_518_6e-10,
        7.072_585_949_269_223e-9,
        1.017_806_244_584_577_4e-7,
        1.321_544_258_792_169e-6,
        1.525_273_382_983_612e-5,
        1.540_353_044_173_605e-4,
        1.333_355_814_641_693_6e-3,
        9.618_129_107_606_888e-3,
        5.550_410_866_482_16e-2,
        0.240_226_506_959_100_97,
        std::f64::consts::LN_2,
    ];
    let value = add_product::<S>(polynomial::<S, _>(f, G), f, 1.0);
    // 2^k, moved to the exponent's place; what lies above is dropped.
    let power = f64::from_bits(sum.to_bits() << 52);
    if t < -1021.0 { 0.0 } else { value * power }
}

/// Entries whose exponentials are taken together.
const CHUNK: usize = 32;

struct OfSquares<'a, C> {
    values: &'a mut [f64],
    scale: f64,
    level: f64,
    shape: PhantomData<C>,
}

impl<'a, C> OfSquares<'a, C> {
    fn new(values: &'a mut [f64], scale: f64, level: f64) -> Self {
        Self { values, scale, level, shape: PhantomData }
    }
}

impl<C: Correlation> WithSimd for OfSquares<'_, C> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { values, scale, level, .. } = self;
        let (whole, rest) = values.as_chunks_mut::<CHUNK>();
        for block in whole {
            apply::<S, C, CHUNK>(block, scale, level);
        }
        let mut block = [0.0; CHUNK];
        block[..rest.len()].copy_from_slice(rest);
        apply::<S, C, CHUNK>(&mut block, scale, level);
        rest.copy_from_slice(&block[..rest.len()]);
    }
}

struct ScaledExp<'a> {
    values: &'a mut [f64],
    scale: f64,
}

impl WithSimd for ScaledExp<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let scale = self.scale;
        let (whole, rest) = self.values.as_chunks_mut::<CHUNK>();
        for block in whole {
            for value in block {
                *value = scale * exp::<S>(*value);
            }
        }
        let mut block = [0.0; CHUNK];
        block[..rest.len()].copy_from_slice(rest);
        for value in &mut block {
            *value = scale * exp::<S>(*value);
        }
        rest.copy_from_slice(&block[..rest.len()]);
    }
}

/// exp x = 2^k exp r with k = round(x / ln 2) and |r| <= ln 2 / 2; exp r = 1 + r + r^2 g(r), where g is the polynomial of degree
/// 9 through Chebyshev's points of that interval (error of exp r under 2e-17). No branch, no call: one entry is one lane.
#[inline(always)]
fn exp<S: Simd>(x: f64) -> f64 {
    // Adding 1.5 * 2^52 rounds to the nearest integer and leaves that integer in the low bits of the sum.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    // ln 2 in two parts; the first has 32 significant bits, so that its product with k is exact.
    const LN2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
    const LN2_LOW: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);
    let clamped = x.clamp(-708.0, 709.0);
    let sum = add_product::<S>(clamped, std::f64::consts::LOG2_E, ROUND);
    let k = sum - ROUND;
    let r = add_product::<S>(-k, LN2_LOW, add_product::<S>(-k, LN2_HIGH, clamped));
    const G: [f64; 10] = [
        2.510037583256132e-8,
        2.762007587998348e-7,
        2.755_726_848_031_002_4e-6,
        2.480_152_132_236_869_2e-5,
        1.984_126_986_304_054_5e-4,
        1.388_888_891_719_671_9e-3,
        8.333_333_333_330_065e-3,
        4.166_666_666_662_416_4e-2,
        0.166_666_666_666_666_69,
        0.500_000_000_000_000_1,
    ];
    // The large term last, so that it is rounded once.
    let value = 1.0 + add_product::<S>(r * r, polynomial::<S, _>(r, G), r);
    // 2^k: the low bits of `sum` hold k, in -1021..=1023; moved to the exponent's place they drop what lies above.
    let power = f64::from_bits(sum.to_bits().wrapping_add(1023) << 52);
    if x < -708.0 { 0.0 } else { value * power }
}

/// The polynomial with these coefficients, from the highest power down.
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(x: f64, coefficients: [f64; N]) -> f64 {
    let mut sum = coefficients[0];
    for next in &coefficients[1..] {
        sum = add_product::<S>(sum, x, *next);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distance in units in the last place.
    fn ulps(a: f64, b: f64) -> u64 {
        a.to_bits().abs_diff(b.to_bits())
    }

    #[test]
    fn within_two_units_of_the_standard_library() {
        let arguments: Vec<f64> = (0..400_000)
            .map(|i| {
                // Dense near zero, where kernels live, and out to both ends of the range.
                let spread = (f64::from(i) * 0.618_033_988_749_895).fract();
                match i % 4 {
                    0 => -spread,
                    1 => -40.0 * spread,
                    2 => -708.0 * spread,
                    _ => 709.0 * spread,
                }
            })
            .collect();
        let mut values = arguments.clone();
        scaled_exp(&mut values, 1.0);
        let worst = arguments.iter().zip(&values).map(|(x, v)| ulps(x.exp(), *v)).max();
        assert!(worst <= Some(2), "{worst:?} units in the last place");
    }

    fn lanes(columns: &[f64], stride: usize, first: usize) -> Lanes<'_> {
        Lanes { columns, stride, first, categories: 0 }
    }

    /// The shapes as they are written on paper.
    fn plain(shape: Shape, square: f64) -> f64 {
        let a = (5.0 * square).sqrt();
        match shape {
            Shape::Gaussian => (-0.5 * square).exp(),
            Shape::Matern52 => (1.0 + a + a * a / 3.0) * (-a).exp(),
            Shape::Matern52Slope => 5.0 / 3.0 * (1.0 + a) * (-a).exp(),
        }
    }

    const SHAPES: [Shape; 3] = [Shape::Gaussian, Shape::Matern52, Shape::Matern52Slope];

    #[test]
    fn covariances_are_the_same_bits_wherever_a_point_stands() {
        let width = 3;
        for (points, shape) in (0..=200).flat_map(|points| SHAPES.map(|shape| (points, shape))) {
            let columns: Vec<f64> = (0..points * width).map(|k| (k as f64 * 0.618).fract() * 4.0 - 2.0).collect();
            let y = [0.3, -1.1, 0.8];
            let mut all = vec![0.0; points];
            covariances(&mut all, lanes(&columns, points, 0), &y, shape, 2.5, 0.4);
            for i in 0..points {
                let mut one = [0.0];
                covariances(&mut one, lanes(&columns, points, i), &y, shape, 2.5, 0.4);
                assert_eq!(one[0], all[i], "{i} of {points}");
                let squared: f64 = (0..width).map(|w| (columns[w * points + i] - y[w]).powi(2)).sum();
                assert!((all[i] - (2.5 * plain(shape, squared) + 0.4)).abs() < 1e-14);
            }
        }
    }

    #[test]
    fn categories_add_where_they_differ() {
        let y = [0.5, 1.0, 0.8, -3.0, 0.3];
        for points in 0..=150 {
            let value = |i: usize, w: usize| match w {
                0 => (i as f64 * 0.618).fract(),
                1 => (i % 3) as f64,
                3 => -((i % 5) as f64),
                w => y[w],
            };
            let columns: Vec<f64> = (0..5).flat_map(|w| (0..points).map(move |i| value(i, w))).collect();
            let mut found = vec![0.0; points];
            let lanes = Lanes { columns: &columns, stride: points, first: 0, categories: 2 };
            covariances(&mut found, lanes, &y, Shape::Matern52, 1.0, 0.0);
            for (i, found) in found.iter().enumerate() {
                let apart = |w: usize| if value(i, w) == y[w] { 0.0 } else { y[w + 1] };
                let expected = plain(Shape::Matern52, (value(i, 0) - 0.5).powi(2) + apart(1) + apart(3));
                assert!((found - expected).abs() < 1e-14);
            }
        }
    }

    #[test]
    fn shapes_are_those_on_paper_from_zero_to_far_away() {
        let far = [1e-300, 1e-16, 1e4, 2e5, 1e300, f64::MAX, f64::INFINITY];
        let squares: Vec<f64> = (0..30_000).map(|i| f64::from(i) * 1e-3).chain(far).collect();
        for shape in SHAPES {
            let mut found = squares.clone();
            of_squares(&mut found, shape, 1.0, 0.0);
            for (square, found) in squares.iter().zip(&found) {
                let expected = if *square >= 1e300 { 0.0 } else { plain(shape, *square) };
                assert!(
                    (found - expected).abs() < 1e-14 * expected.max(1e-3),
                    "{shape:?} {square}: {found} {expected}"
                );
            }
            assert_eq!(found[0], if shape == Shape::Matern52Slope { 5.0 / 3.0 } else { 1.0 });
            let mut nothing = [f64::NAN];
            of_squares(&mut nothing, shape, 1.0, 0.0);
            assert!(nothing[0].is_nan(), "{shape:?}");
        }
    }

    #[test]
    fn registers_of_every_width_agree() {
        fn check<C: Correlation>() {
            let points = 203;
            let columns: Vec<f64> = (0..4 * points).map(|k| (k as f64 * 0.618).fract() * 6.0 - 3.0).collect();
            let with = |run: &dyn Fn(Covariances<'_, C>)| {
                let mut out = vec![0.0; points];
                run(Covariances::new(&mut out, lanes(&columns, points, 0), &[0.3, -1.1, 0.8, 2.0], 2.5, 0.4));
                out
            };
            let narrow = with(&|task| task.with_simd(pulp::Scalar));
            let near = |wide: Vec<f64>| narrow.iter().zip(wide).all(|(a, b)| (a - b).abs() < 4e-15);
            assert!(near(with(&|task| ARCH.dispatch(task))));
            #[cfg(target_arch = "x86_64")]
            {
                if let Some(registers) = pulp::x86::V3::try_new() {
                    assert!(near(with(&|task| Simd::vectorize(registers, task))));
                }
                if let Some(registers) = pulp::x86::V4::try_new() {
                    assert!(near(with(&|task| Simd::vectorize(registers, task))));
                }
            }
        }
        check::<Gaussian>();
        check::<Matern52>();
        check::<Matern52Slope>();
    }

    #[test]
    fn covariances_are_right_from_one_to_nothing() {
        let points: Vec<f64> = (0..40_000).map(|i| f64::from(i) * 1e-3).collect();
        let mut found = vec![0.0; points.len()];
        covariances(&mut found, lanes(&points, points.len(), 0), &[0.0], Shape::Gaussian, 1.5, 0.0);
        for (x, found) in points.iter().zip(found) {
            let exponent = -0.5 * x * x;
            let expected = 1.5 * exponent.exp();
            // Rounding of the exponent shows as a relative error as large as the exponent.
            let near = (found - expected).abs() <= f64::EPSILON * (1.0 - exponent) * expected;
            assert!(
                if exponent < -1021.0 * std::f64::consts::LN_2 { found == 0.0 } else { near },
                "{x}: {found} against {expected}"
            );
        }
        let mut far = [f64::NAN; 3];
        covariances(&mut far, lanes(&[0.0, 1e200, -1e200], 3, 0), &[0.0], Shape::Gaussian, 1.5, 0.25);
        assert_eq!(far, [1.75, 0.25, 0.25]);
    }

    #[test]
    fn ends_of_the_range() {
        let mut values = [0.0, -0.0, -708.0, -708.1, -1e300, f64::NEG_INFINITY, 1.0];
        scaled_exp(&mut values, 3.0);
        assert_eq!(values[..2], [3.0, 3.0]);
        assert!(values[2] > 0.0);
        assert_eq!(values[3..6], [0.0; 3]);
        // An entry's place in the slice does not matter.
        let mut one = [1.0];
        scaled_exp(&mut one, 3.0);
        assert_eq!(values[6], one[0]);
    }
}
