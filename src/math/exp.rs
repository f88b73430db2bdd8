//! The exponential function over slices, written so that the compiler keeps it in vector registers.

use super::vector::ARCH;
use pulp::{Simd, WithSimd};

/// values\[i\] <- scale exp(values\[i\]), for arguments that are not NaN.
///
/// exp is within 2 units in the last place for arguments in \[-708, 709\]. Below -708 it is zero (the true value is
/// under 4e-308), above 709 it is that of 709. The width of the registers is chosen at run time, and products and sums are
/// fused where the processor does that: last bits depend on the machine, but not on where an entry stands in the slice.
pub fn scaled_exp(values: &mut [f64], scale: f64) {
    ARCH.dispatch(ScaledExp { values, scale });
}

/// out\[i\] <- scale exp(-1/2 |x_i - y|^2) + level for the points i = `first`.. of `columns`.
///
/// Point i has coordinate w at `columns[w * stride + i]`, so that one coordinate of many points lies in a row; `y` holds one
/// number for each coordinate. Bits depend on the machine and on nothing else, as for [`scaled_exp`].
///
/// # Panics
/// If there are fewer points than `first + out.len()`.
pub fn gaussian(out: &mut [f64], columns: &[f64], stride: usize, first: usize, y: &[f64], scale: f64, level: f64) {
    ARCH.dispatch(Gaussian { out, columns, stride, first, y, scale, level });
}

struct Gaussian<'a> {
    out: &'a mut [f64],
    columns: &'a [f64],
    stride: usize,
    first: usize,
    y: &'a [f64],
    scale: f64,
    level: f64,
}

/// Entries whose exponentials are taken together; what is left of a slice is filled up to as many.
const LANES: usize = 32;

impl WithSimd for Gaussian<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // As many registers as hold the squares of LANES distances.
        match S::F64_LANES {
            8 => self.in_registers::<S, 4>(simd),
            4 => self.in_registers::<S, 8>(simd),
            2 => self.in_registers::<S, 16>(simd),
            _ => self.in_registers::<S, LANES>(simd),
        }
    }
}

impl Gaussian<'_> {
    #[inline(always)]
    fn in_registers<S: Simd, const V: usize>(self, simd: S) {
        let Self { out, columns, stride, first, y, scale, level } = self;
        let points = out.len();
        let (whole, rest) = out.as_chunks_mut::<LANES>();
        for (k, out) in whole.iter_mut().enumerate() {
            let mut squares = [simd.splat_f64s(0.0); V];
            for (w, y) in y.iter().enumerate() {
                add_squares(simd, &mut squares, &columns[w * stride + first + k * LANES..][..LANES], *y);
            }
            S::as_mut_simd_f64s(out).0.copy_from_slice(&squares);
            covariances::<S>(out, scale, level);
        }
        if !rest.is_empty() {
            let mut squares = [simd.splat_f64s(0.0); V];
            for (w, y) in y.iter().enumerate() {
                let mut xs = [0.0; LANES];
                xs[..rest.len()].copy_from_slice(&columns[w * stride + first..][points - rest.len()..points]);
                add_squares(simd, &mut squares, &xs, *y);
            }
            let mut block = [0.0; LANES];
            S::as_mut_simd_f64s(&mut block).0.copy_from_slice(&squares);
            covariances::<S>(&mut block, scale, level);
            rest.copy_from_slice(&block[..rest.len()]);
        }
    }
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

/// block\[i\] <- scale exp(-1/2 block\[i\]) + level.
#[inline(always)]
fn covariances<S: Simd>(block: &mut [f64; LANES], scale: f64, level: f64) {
    for value in block {
        *value = add_product::<S>(scale, exp::<S>(-0.5 * *value), level);
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
        let (whole, rest) = self.values.as_chunks_mut::<LANES>();
        for block in whole {
            for value in block {
                *value = scale * exp::<S>(*value);
            }
        }
        let mut block = [0.0; LANES];
        block[..rest.len()].copy_from_slice(rest);
        for value in &mut block {
            *value = scale * exp::<S>(*value);
        }
        rest.copy_from_slice(&block[..rest.len()]);
    }
}

/// exp x = 2^k exp r with k = round(x / ln 2) and |r| <= ln 2 / 2, exp r by its Taylor polynomial of degree 13
/// (truncation error under 1e-17). No branch, no call: one entry is one lane.
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
    let mut poly = 1.0 / 6_227_020_800.0;
    poly = add_product::<S>(poly, r, 1.0 / 479_001_600.0);
    poly = add_product::<S>(poly, r, 1.0 / 39_916_800.0);
    poly = add_product::<S>(poly, r, 1.0 / 3_628_800.0);
    poly = add_product::<S>(poly, r, 1.0 / 362_880.0);
    poly = add_product::<S>(poly, r, 1.0 / 40_320.0);
    poly = add_product::<S>(poly, r, 1.0 / 5_040.0);
    poly = add_product::<S>(poly, r, 1.0 / 720.0);
    poly = add_product::<S>(poly, r, 1.0 / 120.0);
    poly = add_product::<S>(poly, r, 1.0 / 24.0);
    poly = add_product::<S>(poly, r, 1.0 / 6.0);
    poly = add_product::<S>(poly, r, 0.5);
    // The large term last, so that it is rounded once.
    let value = 1.0 + add_product::<S>(r * r, poly, r);
    // 2^k: the low bits of `sum` hold k, in -1021..=1023; moved to the exponent's place they drop what lies above.
    let power = f64::from_bits(sum.to_bits().wrapping_add(1023) << 52);
    if x < -708.0 { 0.0 } else { value * power }
}

/// a b + c, fused where the registers are those of a processor that fuses: elsewhere that would be a call for each entry.
#[inline(always)]
pub(super) fn add_product<S: Simd>(a: f64, b: f64, c: f64) -> f64 {
    if S::IS_SCALAR { a * b + c } else { a.mul_add(b, c) }
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

    #[test]
    fn covariances_are_the_same_bits_wherever_a_point_stands() {
        let (points, width) = (77, 3);
        let columns: Vec<f64> = (0..points * width).map(|k| (k as f64 * 0.618).fract() * 4.0 - 2.0).collect();
        let y = [0.3, -1.1, 0.8];
        let mut all = vec![0.0; points];
        gaussian(&mut all, &columns, points, 0, &y, 2.5, 0.4);
        for i in 0..points {
            let mut one = [0.0];
            gaussian(&mut one, &columns, points, i, &y, 2.5, 0.4);
            assert_eq!(one[0], all[i]);
            let squared: f64 = (0..width).map(|w| (columns[w * points + i] - y[w]).powi(2)).sum();
            assert!((all[i] - (2.5 * (-0.5 * squared).exp() + 0.4)).abs() < 1e-14);
        }
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
