//! Registers of several numbers: what the processor has, and the one operation on them that is not the same everywhere.

use pulp::{Arch, Simd};
use std::sync::LazyLock;

/// What the processor can do, asked once.
pub(super) static ARCH: LazyLock<Arch> = LazyLock::new(Arch::new);

/// a b + c, fused where the registers belong to a processor that fuses: elsewhere that would be a call for each entry.
#[inline(always)]
pub(super) fn add_product<S: Simd>(a: f64, b: f64, c: f64) -> f64 {
    if S::IS_SCALAR { a * b + c } else { a.mul_add(b, c) }
}
