//! Column-major matrices that grow in place, and the blocked operations on them.
//!
//! This is the one door to the library that does the heavy arithmetic: nothing else in the crate names it. Every
//! factorisation checks its pivots here and says where it failed ([`NotPositiveDefinite`], [`Singular`]).
//! Everything runs on the calling thread, so results depend on the input alone.

use super::vector;
pub use super::vector::{Sides, add_outer, axpy, dot, sum, turn_and_multiply};
use faer::dyn_stack::{MemBuffer, MemStack, StackReq};
use faer::linalg::matmul::triangular::BlockStructure;
use faer::linalg::{
    cholesky::llt, evd, householder, lu::partial_pivoting as plu, matmul, qr::no_pivoting as qr, triangular_inverse,
    triangular_solve,
};
use faer::perm::PermRef;
use faer::{Accum, Conj, MatMut, MatRef, Par};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A symmetric matrix had a pivot that was not positive: it is not positive definite to working precision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NotPositiveDefinite {
    /// Row of the offending pivot.
    pub index: usize,
    /// Size of the matrix.
    pub size: usize,
}

impl fmt::Display for NotPositiveDefinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {0} x {0} matrix is not positive definite: pivot {1} is not positive", self.size, self.index)
    }
}

impl std::error::Error for NotPositiveDefinite {}

/// A general matrix was singular, or a solve with it gave a value that is not finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Singular {
    /// Size of the matrix.
    pub size: usize,
}

impl fmt::Display for Singular {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {0} x {0} system is singular", self.size)
    }
}

impl std::error::Error for Singular {}

/// Room to grow that a matrix from a file gets, in numbers, unless a quarter of it is in use: that of a dictionary of 4096.
const ROOM_MAX: usize = 1 << 24;

/// A column-major matrix whose columns stand `stride` apart, so that rows can be added without moving data.
#[derive(Clone, Default, PartialEq)]
pub struct Matrix {
    data: Vec<f64>,
    rows: usize,
    cols: usize,
    stride: usize,
}

/// A read-only rectangle of a [`Matrix`].
#[derive(Clone, Copy)]
pub struct View<'a> {
    data: &'a [f64],
    rows: usize,
    cols: usize,
    stride: usize,
}

/// A writable rectangle of a [`Matrix`].
pub struct ViewMut<'a> {
    data: &'a mut [f64],
    rows: usize,
    cols: usize,
    stride: usize,
}

fn span(rows: usize, cols: usize, stride: usize) -> usize {
    if rows == 0 || cols == 0 { 0 } else { (cols - 1) * stride + rows }
}

impl Matrix {
    /// A matrix of zeros.
    pub fn zeros(rows: usize, cols: usize) -> Self {
        Self { data: vec![0.0; rows * cols], rows, cols, stride: rows }
    }

    /// An empty matrix (0, 0) that can grow to (rows, cols) without allocating.
    pub fn with_capacity(rows: usize, cols: usize) -> Self {
        Self { data: vec![0.0; rows * cols], rows: 0, cols: 0, stride: rows }
    }

    /// The identity.
    pub fn identity(size: usize) -> Self {
        let mut out = Self::zeros(size, size);
        for i in 0..size {
            *out.at_mut(i, i) = 1.0;
        }
        out
    }

    /// A matrix from its columns laid end to end.
    ///
    /// # Panics
    /// If `data` does not hold `rows * cols` numbers.
    pub fn from_columns(rows: usize, cols: usize, data: Vec<f64>) -> Self {
        assert_eq!(data.len(), rows * cols, "column-major data of the wrong length");
        Self { data, rows, cols, stride: rows }
    }

    /// A matrix from its rows laid end to end.
    ///
    /// # Panics
    /// If `data` does not hold `rows * cols` numbers.
    pub fn from_rows(rows: usize, cols: usize, data: &[f64]) -> Self {
        assert_eq!(data.len(), rows * cols, "row-major data of the wrong length");
        let mut out = Self::zeros(rows, cols);
        for j in 0..cols {
            for (i, value) in out.col_mut(j).iter_mut().enumerate() {
                *value = data[i * cols + j];
            }
        }
        out
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Entry (i, j).
    #[inline]
    pub fn at(&self, i: usize, j: usize) -> f64 {
        debug_assert!(i < self.rows && j < self.cols);
        self.data[j * self.stride + i]
    }

    /// Entry (i, j), to be written.
    #[inline]
    pub fn at_mut(&mut self, i: usize, j: usize) -> &mut f64 {
        debug_assert!(i < self.rows && j < self.cols);
        &mut self.data[j * self.stride + i]
    }

    /// Column j.
    #[inline]
    pub fn col(&self, j: usize) -> &[f64] {
        assert!(j < self.cols, "column out of range");
        &self.data[j * self.stride..j * self.stride + self.rows]
    }

    /// Column j, to be written.
    #[inline]
    pub fn col_mut(&mut self, j: usize) -> &mut [f64] {
        assert!(j < self.cols, "column out of range");
        &mut self.data[j * self.stride..j * self.stride + self.rows]
    }

    /// Two different columns, to be written.
    ///
    /// # Panics
    /// If they are one.
    pub fn two_columns_mut(&mut self, j: usize, k: usize) -> (&mut [f64], &mut [f64]) {
        assert!(j != k && j < self.cols && k < self.cols, "two columns of the matrix");
        let (low, high) = self.data.split_at_mut(j.max(k) * self.stride);
        let (low, high) = (&mut low[j.min(k) * self.stride..][..self.rows], &mut high[..self.rows]);
        if j < k { (low, high) } else { (high, low) }
    }

    /// The whole matrix, to be read.
    pub fn view(&self) -> View<'_> {
        self.block(0, 0, self.rows, self.cols)
    }

    /// The whole matrix, to be written.
    pub fn view_mut(&mut self) -> ViewMut<'_> {
        self.block_mut(0, 0, self.rows, self.cols)
    }

    /// The rectangle of `rows` x `cols` whose first entry is (i, j).
    ///
    /// # Panics
    /// If it does not lie inside the matrix.
    pub fn block(&self, i: usize, j: usize, rows: usize, cols: usize) -> View<'_> {
        assert!(i + rows <= self.rows && j + cols <= self.cols, "block out of range");
        let (start, len) = (j * self.stride + i, span(rows, cols, self.stride));
        // Without rows or columns there is nothing to stride over.
        let (data, stride) = if len == 0 { (&[][..], 0) } else { (&self.data[start..start + len], self.stride) };
        View { data, rows, cols, stride }
    }

    /// The same rectangle, to be written.
    ///
    /// # Panics
    /// If it does not lie inside the matrix.
    pub fn block_mut(&mut self, i: usize, j: usize, rows: usize, cols: usize) -> ViewMut<'_> {
        assert!(i + rows <= self.rows && j + cols <= self.cols, "block out of range");
        let (start, len) = (j * self.stride + i, span(rows, cols, self.stride));
        let (data, stride) =
            if len == 0 { (&mut [][..], 0) } else { (&mut self.data[start..start + len], self.stride) };
        ViewMut { data, rows, cols, stride }
    }

    /// Change the size; entries that stay keep their value, new ones are zero. Allocates only beyond the capacity.
    pub fn resize(&mut self, rows: usize, cols: usize) {
        if rows > self.stride || cols * self.stride > self.data.len() {
            let stride = if rows > self.stride { rows.max(self.stride * 2) } else { self.stride };
            let room = cols.max(if cols > self.cols { self.cols * 2 } else { self.cols });
            let mut data = vec![0.0; stride * room];
            for j in 0..self.cols.min(cols) {
                let kept = self.rows.min(rows);
                data[j * stride..j * stride + kept]
                    .copy_from_slice(&self.data[j * self.stride..j * self.stride + kept]);
            }
            self.data = data;
            self.stride = stride;
        } else {
            for j in 0..cols {
                let from = if j < self.cols { self.rows.min(rows) } else { 0 };
                self.data[j * self.stride + from..j * self.stride + rows].fill(0.0);
            }
        }
        self.rows = rows;
        self.cols = cols;
    }

    /// Resize, reusing the allocation when it is large enough. The entries are unspecified.
    pub fn renew(&mut self, rows: usize, cols: usize) {
        if self.data.len() < rows * cols {
            self.data = vec![0.0; rows * cols];
        }
        (self.rows, self.cols, self.stride) = (rows, cols, rows);
    }

    /// Become a copy of `other`, in the memory that is there if it is enough.
    pub fn assign(&mut self, other: &Self) {
        if other.rows > self.stride || other.cols * self.stride > self.data.len() {
            *self = Self { data: vec![0.0; other.stride * other.cols], rows: 0, cols: 0, stride: other.stride };
        }
        (self.rows, self.cols) = (other.rows, other.cols);
        for j in 0..other.cols {
            self.col_mut(j).copy_from_slice(other.col(j));
        }
    }

    /// Set every entry to `value`.
    pub fn fill(&mut self, value: f64) {
        for j in 0..self.cols {
            self.col_mut(j).fill(value);
        }
    }

    /// The transpose, as a new matrix.
    pub fn transpose(&self) -> Self {
        let mut out = Self::zeros(self.cols, self.rows);
        for j in 0..self.cols {
            for (i, &value) in self.col(j).iter().enumerate() {
                *out.at_mut(j, i) = value;
            }
        }
        out
    }

    /// Copy the lower triangle over the upper one.
    pub fn mirror_lower(&mut self) {
        for j in 0..self.cols {
            for i in j + 1..self.rows {
                *self.at_mut(j, i) = self.at(i, j);
            }
        }
    }

    /// Whether every entry is finite.
    pub fn is_finite(&self) -> bool {
        (0..self.cols).all(|j| self.col(j).iter().all(|v| v.is_finite()))
    }

    /// The same numbers as a matrix of the public interface.
    pub fn to_nalgebra(&self) -> nalgebra::DMatrix<f64> {
        nalgebra::DMatrix::from_fn(self.rows, self.cols, |i, j| self.at(i, j))
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        self.data.len() * size_of::<f64>()
    }
}

/// A matrix as it is written: its shape, the room it has, and its entries column by column.
#[derive(Serialize, Deserialize)]
struct Written {
    rows: usize,
    cols: usize,
    stride: usize,
    room: usize,
    #[serde(with = "super::raw")]
    entries: Vec<f64>,
}

impl Serialize for Matrix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let room = self.data.len().checked_div(self.stride).unwrap_or(0);
        Written::of(self, self.stride, room).serialize(serializer)
    }
}

/// Serialise without spare capacity, which depends on the allocation's history: equal matrices must give equal bytes.
pub(crate) fn tight<S: Serializer>(matrix: &Matrix, serializer: S) -> Result<S::Ok, S::Error> {
    Written::of(matrix, matrix.rows, matrix.cols).serialize(serializer)
}

impl Written {
    fn of(matrix: &Matrix, stride: usize, room: usize) -> Self {
        let entries = (0..matrix.cols).flat_map(|j| matrix.col(j).iter().copied()).collect();
        Self { rows: matrix.rows, cols: matrix.cols, stride, room, entries }
    }
}

impl<'de> Deserialize<'de> for Matrix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Written { rows, cols, stride, room, entries } = Written::deserialize(deserializer)?;
        let whole = rows.checked_mul(cols) == Some(entries.len());
        if !whole || rows > stride || (cols > room && !entries.is_empty()) {
            return Err(D::Error::custom("a matrix whose entries do not fit its shape"));
        }
        // Beyond reason the claim is not believed: the matrix grows when it has to.
        let numbers = stride.checked_mul(room).filter(|&n| n <= ROOM_MAX.max(entries.len().saturating_mul(4)));
        let stride = if numbers.is_some() { stride } else { rows };
        let mut data = vec![0.0; numbers.unwrap_or(entries.len())];
        if !entries.is_empty() {
            for (column, entries) in data.chunks_exact_mut(stride).zip(entries.chunks_exact(rows)) {
                column[..rows].copy_from_slice(entries);
            }
        }
        Ok(Self { data, rows, cols, stride })
    }
}

impl From<&nalgebra::DMatrix<f64>> for Matrix {
    fn from(m: &nalgebra::DMatrix<f64>) -> Self {
        Self::from_columns(m.nrows(), m.ncols(), m.as_slice().to_vec())
    }
}

impl fmt::Debug for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Matrix {} x {}", self.rows, self.cols)?;
        for i in 0..self.rows.min(8) {
            writeln!(f, "  {:?}", (0..self.cols.min(8)).map(|j| self.at(i, j)).collect::<Vec<_>>())?;
        }
        Ok(())
    }
}

impl<'a> View<'a> {
    /// A single column.
    pub fn column(data: &'a [f64]) -> Self {
        Self { rows: data.len(), cols: 1, stride: data.len().max(1), data }
    }

    /// Columns of length `rows` laid end to end.
    ///
    /// # Panics
    /// If `data` does not hold `rows * cols` numbers.
    pub fn from_columns(rows: usize, cols: usize, data: &'a [f64]) -> Self {
        assert_eq!(data.len(), rows * cols, "column-major data of the wrong length");
        Self { data, rows, cols, stride: rows.max(1) }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Column j.
    #[inline]
    pub fn col(&self, j: usize) -> &'a [f64] {
        assert!(j < self.cols, "column out of range");
        &self.data[j * self.stride..j * self.stride + self.rows]
    }

    fn faer(self) -> MatRef<'a, f64> {
        MatRef::from_column_major_slice_with_stride(self.data, self.rows, self.cols, self.stride.max(self.rows))
    }
}

impl<'a> ViewMut<'a> {
    /// A single column.
    pub fn column(data: &'a mut [f64]) -> Self {
        Self { rows: data.len(), cols: 1, stride: data.len().max(1), data }
    }

    /// Columns of length `rows` laid end to end.
    ///
    /// # Panics
    /// If `data` does not hold `rows * cols` numbers.
    pub fn from_columns(rows: usize, cols: usize, data: &'a mut [f64]) -> Self {
        assert_eq!(data.len(), rows * cols, "column-major data of the wrong length");
        Self { data, rows, cols, stride: rows.max(1) }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The same rectangle, for a shorter time.
    pub fn reborrow(&mut self) -> ViewMut<'_> {
        ViewMut { data: self.data, rows: self.rows, cols: self.cols, stride: self.stride }
    }

    /// Column j, to be written.
    #[inline]
    pub fn col_mut(&mut self, j: usize) -> &mut [f64] {
        assert!(j < self.cols, "column out of range");
        &mut self.data[j * self.stride..j * self.stride + self.rows]
    }

    /// The columns from number `first` on, to be written beside each other.
    pub(super) fn columns_mut(&mut self, first: usize) -> impl Iterator<Item = &mut [f64]> {
        let (rows, stride) = (self.rows, self.stride.max(1));
        let start = (first * stride).min(self.data.len());
        self.data[start..].chunks_mut(stride).take(self.cols - first).map(move |column| &mut column[..rows])
    }

    fn faer(self) -> MatMut<'a, f64> {
        MatMut::from_column_major_slice_with_stride_mut(self.data, self.rows, self.cols, self.stride.max(self.rows))
    }
}

/// Whether a factor enters a product as it stands or transposed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// As it stands.
    Plain,
    /// Transposed.
    Transposed,
}

impl Op {
    fn apply<'a>(self, a: View<'a>) -> MatRef<'a, f64> {
        match self {
            Op::Plain => a.faer(),
            Op::Transposed => a.faer().transpose(),
        }
    }
}

/// out <- keep * out + alpha op(a) op(b), where `keep` is 0 or 1.
pub fn multiply(out: ViewMut<'_>, keep: bool, alpha: f64, a: View<'_>, op_a: Op, b: View<'_>, op_b: Op) {
    let accum = if keep { Accum::Add } else { Accum::Replace };
    matmul::matmul(out.faer(), accum, op_a.apply(a), op_b.apply(b), alpha, Par::Seq);
}

/// A new matrix op(a) op(b).
pub fn product(a: View<'_>, op_a: Op, b: View<'_>, op_b: Op) -> Matrix {
    let rows = if op_a == Op::Plain { a.rows } else { a.cols };
    let cols = if op_b == Op::Plain { b.cols } else { b.rows };
    let mut out = Matrix::zeros(rows, cols);
    multiply(out.view_mut(), false, 1.0, a, op_a, b, op_b);
    out
}

/// Rows below which a product with the transpose goes by panels of one kernel's rows, and from which by two: measured.
const NARROW_PANELS_BELOW: usize = 250;

/// Lower triangle of out <- out + alpha op(a) op(a)'. The upper triangle is left alone.
///
/// # Panics
/// If sizes differ.
pub fn rank_k(out: ViewMut<'_>, alpha: f64, a: View<'_>, op: Op) {
    if alpha == 1.0 && op == Op::Plain && a.cols == 1 {
        return vector::add_square(out, a.col(0));
    }
    let (mut out, a) = (out.faer(), op.apply(a));
    let size = a.nrows();
    assert!((out.nrows(), out.ncols()) == (size, size), "sizes differ");
    // Panels from top to bottom, and not halves of halves, whose sizes suit no kernel.
    let panel = if size < NARROW_PANELS_BELOW { PANEL } else { 2 * PANEL };
    for start in (0..size).step_by(panel) {
        let len = panel.min(size - start);
        let (here, below) = (a.subrows(start, len), a.subrows(start + len, size - start - len));
        let (block, whole) = (BlockStructure::TriangularLower, BlockStructure::Rectangular);
        let corner = out.as_mut().submatrix_mut(start, start, len, len);
        let right = here.transpose();
        matmul::triangular::matmul(corner, block, Accum::Add, here, whole, right, whole, alpha, Par::Seq);
        if below.nrows() > 0 {
            let out = out.as_mut().submatrix_mut(start + len, start, below.nrows(), len);
            matmul::matmul(out, Accum::Add, below, right, alpha, Par::Seq);
        }
    }
}

/// Columns up to which a triangular solve goes column by column, so that one has the same bits whatever the others are.
pub const SINGLY: usize = 4;
/// Columns from which it is worth doing by products with the inverses of diagonal blocks.
const WIDE: usize = 48;
/// Rows of a panel: what the kernel of a matrix product takes at once where registers are widest, so that none works on less
/// than it could. With 32, 64 and 96 a block of 256 rows took up to 8 % longer.
const PANEL: usize = 48;

/// rhs <- l^-1 rhs for a lower triangular l. Its upper triangle is not read. Many columns again and again are for
/// [`PanelInverses`].
pub fn solve_lower(l: View<'_>, mut rhs: ViewMut<'_>) {
    if rhs.cols <= SINGLY {
        (0..rhs.cols).for_each(|j| vector::solve_lower(l, rhs.col_mut(j)));
    } else {
        triangular_solve::solve_lower_triangular_in_place(l.faer(), rhs.faer(), Par::Seq);
    }
}

/// Inverses of the diagonal blocks of a lower triangular matrix that grows row by row and is solved with again and again.
#[derive(Clone, Debug, Default)]
pub struct PanelInverses {
    /// Rows of the triangular matrix.
    size: usize,
    /// (PANEL, PANEL) each, the last of which may be incomplete; zero where nothing is known.
    blocks: Vec<Matrix>,
}

impl PanelInverses {
    /// Those of l (m, m).
    pub fn of(l: &Matrix) -> Self {
        let mut out = Self::default();
        (0..l.rows()).for_each(|_| out.grow(l));
        out
    }

    /// Take in one more row of l. O(PANEL^2).
    pub fn grow(&mut self, l: &Matrix) {
        let (row, at) = (self.size, self.size % PANEL);
        if at == 0 {
            self.blocks.push(Matrix::zeros(PANEL, PANEL));
        }
        let inverse = self.blocks.last_mut().expect("pushed with its first row");
        let pivot = 1.0 / l.at(row, row);
        for j in 0..at {
            let known: f64 = (j..at).map(|k| l.at(row, row - at + k) * inverse.at(k, j)).sum();
            *inverse.at_mut(at, j) = -known * pivot;
        }
        *inverse.at_mut(at, at) = pivot;
        self.size += 1;
    }

    /// Whether [`PanelInverses::solve_lower`] is the faster way for so many columns.
    pub fn are_worth_it(&self, cols: usize) -> bool {
        cols >= WIDE && self.size > PANEL / 2
    }

    /// out <- l^-1 rhs for the l whose rows were taken in. `rhs` is clobbered.
    ///
    /// # Panics
    /// If sizes differ.
    pub fn solve_lower(&self, l: View<'_>, rhs: ViewMut<'_>, out: ViewMut<'_>) {
        assert!(l.rows == self.size && (rhs.rows, rhs.cols) == (out.rows, out.cols), "sizes differ");
        let (l, mut rhs, mut out) = (l.faer(), rhs.faer(), out.faer());
        for (k, inverse) in self.blocks.iter().enumerate() {
            let (start, len) = (k * PANEL, PANEL.min(self.size - k * PANEL));
            let (solved, rest) = out.as_mut().split_at_row_mut(start);
            let mut panel = rhs.as_mut().subrows_mut(start, len);
            if start > 0 {
                let coupling = l.submatrix(start, 0, len, start);
                matmul::matmul(panel.as_mut(), Accum::Add, coupling, solved.as_ref(), -1.0, Par::Seq);
            }
            let inverse = inverse.block(0, 0, len, len).faer();
            matmul::matmul(rest.subrows_mut(0, len), Accum::Replace, inverse, panel.as_ref(), 1.0, Par::Seq);
        }
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(Matrix::bytes).sum()
    }
}

/// rhs <- l^-T rhs for a lower triangular l. Its upper triangle is not read.
pub fn solve_lower_transposed(l: View<'_>, rhs: ViewMut<'_>) {
    if rhs.cols <= SINGLY {
        let mut rhs = rhs;
        (0..rhs.cols).for_each(|j| vector::solve_lower_transposed(l, rhs.col_mut(j)));
        return;
    }
    triangular_solve::solve_upper_triangular_in_place(l.faer().transpose(), rhs.faer(), Par::Seq);
}

/// Memory for factorisations while they run, kept so that one after the other allocates nothing.
#[derive(Default)]
pub struct Scratch {
    memory: Option<(StackReq, MemBuffer)>,
    lu: Matrix,
    residual: Matrix,
    forward: Vec<usize>,
    inverse: Vec<usize>,
}

impl Scratch {
    fn stack(memory: &mut Option<(StackReq, MemBuffer)>, needed: StackReq) -> &mut MemStack {
        let enough = |(there, _): &&mut (StackReq, MemBuffer)| there.or(needed) == *there;
        if memory.as_mut().filter(enough).is_none() {
            let room = memory.take().map_or(needed, |(there, _)| there.or(needed));
            *memory = Some((room, MemBuffer::new(room)));
        }
        MemStack::new(&mut memory.as_mut().expect("made a line before").1)
    }
}

impl Clone for Scratch {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scratch")
    }
}

/// The lower Cholesky factor of a symmetric positive definite matrix.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Cholesky {
    #[serde(serialize_with = "tight")]
    factor: Matrix,
}

impl Cholesky {
    /// Factor `a`, of which the lower triangle is read.
    ///
    /// # Errors
    /// The first pivot that is not positive (or not a number).
    pub fn new(a: Matrix) -> Result<Self, NotPositiveDefinite> {
        let mut out = Self { factor: a };
        out.factorise(&mut Scratch::default())?;
        Ok(out)
    }

    /// Become the factor of `a` + `ridge` I, of which the lower triangle is read.
    ///
    /// # Errors
    /// As [`Cholesky::new`]; the matrix is then clobbered.
    pub fn renew(&mut self, a: &Matrix, ridge: f64, scratch: &mut Scratch) -> Result<(), NotPositiveDefinite> {
        if (self.factor.rows, self.factor.cols) != (a.rows, a.cols) {
            self.factor.assign(a);
        }
        for j in 0..a.rows {
            self.factor.col_mut(j)[j..].copy_from_slice(&a.col(j)[j..]);
            *self.factor.at_mut(j, j) += ridge;
        }
        self.factorise(scratch)
    }

    /// Become the factor of the matrix plus `x` x', and `x` <- L^-1 `x` with that factor: O(m^2).
    ///
    /// # Errors
    /// If the determinant is not finite (the pivot named is the first that is not, or else the first of all); what is left
    /// then means nothing.
    ///
    /// # Panics
    /// If `x` is of another length.
    pub fn add_rank_one(&mut self, x: &mut [f64]) -> Result<(), NotPositiveDefinite> {
        let size = self.factor.rows;
        // Pivots grow, unless something was not finite.
        if vector::add_rank_one(self.factor.view_mut(), x).is_finite() {
            Ok(())
        } else {
            let index = (0..size).find(|&i| !self.factor.at(i, i).is_finite());
            Err(NotPositiveDefinite { index: index.unwrap_or_default(), size })
        }
    }

    fn factorise(&mut self, scratch: &mut Scratch) -> Result<(), NotPositiveDefinite> {
        factorise(&mut self.factor, scratch)?;
        for j in 1..self.factor.rows {
            self.factor.col_mut(j)[..j].fill(0.0);
        }
        Ok(())
    }

    /// The factor L; its upper triangle is zero.
    pub fn factor(&self) -> &Matrix {
        &self.factor
    }

    /// log |L L'|.
    pub fn log_determinant(&self) -> f64 {
        log_determinant(&self.factor)
    }

    /// rhs <- (L L')^-1 rhs.
    pub fn solve(&self, mut rhs: Matrix) -> Matrix {
        solve_lower(self.factor.view(), rhs.view_mut());
        solve_lower_transposed(self.factor.view(), rhs.view_mut());
        rhs
    }

    /// (L L')^-1, both triangles.
    pub fn inverse(&self) -> Matrix {
        let mut out = self.inverse_lower();
        out.mirror_lower();
        out
    }

    /// The lower triangle of (L L')^-1; the upper triangle is unspecified.
    pub fn inverse_lower(&self) -> Matrix {
        let mut out = self.factor.clone();
        invert(&mut out, &mut Matrix::default());
        out
    }
}

/// Replace `a` by its Cholesky factor, in the lower triangle; the upper triangle is neither read nor meaningful afterwards.
///
/// # Errors
/// The first pivot that is not positive (or not a number); `a` is then clobbered.
pub fn factorise(a: &mut Matrix, scratch: &mut Scratch) -> Result<(), NotPositiveDefinite> {
    assert_eq!(a.rows, a.cols, "only square matrices have a Cholesky factor");
    let size = a.rows;
    if size > 0 {
        let needed = llt::factor::cholesky_in_place_scratch::<f64>(size, Par::Seq, Default::default());
        let stack = Scratch::stack(&mut scratch.memory, needed);
        let faer = a.view_mut().faer();
        llt::factor::cholesky_in_place(faer, Default::default(), Par::Seq, stack, Default::default())
            .map_err(|llt::factor::LltError::NonPositivePivot { index }| NotPositiveDefinite { index, size })?;
    }
    // A NaN slips through comparisons inside the library.
    match (0..size).find(|&i| !(a.at(i, i) > 0.0 && a.at(i, i).is_finite())) {
        Some(index) => Err(NotPositiveDefinite { index, size }),
        None => Ok(()),
    }
}

/// log |L L'| of a lower triangular `factor`.
pub fn log_determinant(factor: &Matrix) -> f64 {
    2.0 * (0..factor.rows).map(|i| factor.at(i, i).ln()).sum::<f64>()
}

/// `factor`, a lower triangular L, becomes the lower triangle of (L L')^-1, and that of `half` L^-1. Upper triangles are not
/// read and mean nothing afterwards.
pub fn invert(factor: &mut Matrix, half: &mut Matrix) {
    half.resize(factor.rows, factor.cols);
    triangular_inverse::invert_lower_triangular(half.view_mut().faer(), factor.view().faer(), Par::Seq);
    let half = half.view().faer();
    matmul::triangular::matmul(
        factor.view_mut().faer(),
        BlockStructure::TriangularLower,
        Accum::Replace,
        half.transpose(),
        BlockStructure::TriangularUpper,
        half,
        BlockStructure::TriangularLower,
        1.0,
        Par::Seq,
    );
}

/// Solve a x = rhs by LU with partial pivoting, once refined.
///
/// # Errors
/// If a pivot vanishes or the solution is not finite.
pub fn solve_general(a: &Matrix, rhs: &Matrix) -> Result<Matrix, Singular> {
    let mut x = Matrix::default();
    solve_general_into(a, rhs, &mut x, &mut Scratch::default())?;
    Ok(x)
}

/// [`solve_general`] into `x`, in memory that is kept.
///
/// # Errors
/// As [`solve_general`]; `x` is then clobbered.
pub fn solve_general_into(a: &Matrix, rhs: &Matrix, x: &mut Matrix, scratch: &mut Scratch) -> Result<(), Singular> {
    solve_and_invert(a, rhs, x, None, scratch)
}

/// [`solve_general_into`] that leaves a^-1, too, where it is asked for.
///
/// # Errors
/// As [`solve_general`]; `x` and `inverse` are then clobbered.
pub fn solve_and_invert(
    a: &Matrix,
    rhs: &Matrix,
    x: &mut Matrix,
    inverse_of_a: Option<&mut Matrix>,
    scratch: &mut Scratch,
) -> Result<(), Singular> {
    assert_eq!(a.rows, a.cols, "only square systems have one solution");
    let size = a.rows;
    x.assign(rhs);
    if size == 0 {
        if let Some(out) = inverse_of_a {
            out.renew(0, 0);
        }
        return Ok(());
    }
    let Scratch { memory, lu, residual, forward, inverse } = scratch;
    lu.assign(a);
    forward.resize(size, 0);
    inverse.resize(size, 0);
    let wide = if inverse_of_a.is_some() { size } else { 0 };
    let stack = Scratch::stack(
        memory,
        StackReq::any_of(&[
            plu::factor::lu_in_place_scratch::<usize, f64>(size, size, Par::Seq, Default::default()),
            plu::solve::solve_in_place_scratch::<usize, f64>(size, rhs.cols.max(wide), Par::Seq),
        ]),
    );
    let (_, permutation): (_, PermRef<'_, usize>) =
        plu::factor::lu_in_place(lu.view_mut().faer(), forward, inverse, Par::Seq, stack, Default::default());
    if (0..size).any(|i| lu.at(i, i) == 0.0 || !lu.at(i, i).is_finite()) {
        return Err(Singular { size });
    }
    let mut solve = |rhs: &mut Matrix| {
        let (lower, upper) = (lu.view().faer(), lu.view().faer());
        plu::solve::solve_in_place(lower, upper, permutation, rhs.view_mut().faer(), Par::Seq, stack);
    };
    solve(x);
    // One step of iterative refinement costs O(m^2) and buys back what pivot growth lost.
    residual.assign(rhs);
    multiply(residual.view_mut(), true, -1.0, a.view(), Op::Plain, x.view(), Op::Plain);
    solve(residual);
    for j in 0..x.cols {
        axpy(x.col_mut(j), 1.0, residual.col(j));
    }
    if let Some(out) = inverse_of_a {
        out.renew(size, size);
        out.fill(0.0);
        (0..size).for_each(|i| *out.at_mut(i, i) = 1.0);
        solve(out);
    }
    if x.is_finite() { Ok(()) } else { Err(Singular { size }) }
}

/// A symmetric tridiagonal matrix T.
#[derive(Clone, Debug)]
pub struct Tridiagonal {
    /// (m,).
    diagonal: Vec<f64>,
    /// Beside the diagonal (m - 1,).
    beside: Vec<f64>,
}

impl Tridiagonal {
    /// T = Q' a Q for an orthogonal Q and a symmetric `a` (lower triangle read); `vectors` (m, k) become Q' vectors.
    /// Two thirds of the operations of an eigen-decomposition without its iteration: enough to solve with a + ridge I for
    /// many ridges. O(m^3).
    ///
    /// # Errors
    /// If the matrix is not finite.
    pub fn reduce(a: &Matrix, vectors: &mut Matrix) -> Result<Self, Singular> {
        assert!(a.rows == a.cols && vectors.rows == a.rows, "a square matrix, and vectors as long");
        let size = a.rows;
        if (0..size).any(|j| a.col(j)[j..].iter().any(|v| !v.is_finite())) {
            return Err(Singular { size });
        }
        let mut work = a.clone();
        if size > 1 {
            let block = qr::factor::recommended_block_size::<f64>(size, size);
            let mut reflectors = Matrix::zeros(block, size - 1);
            let mut memory = MemBuffer::new(StackReq::any_of(&[
                evd::tridiag::tridiag_in_place_scratch::<f64>(size, Par::Seq, Default::default()),
                householder::apply_block_householder_sequence_transpose_on_the_left_in_place_scratch::<f64>(
                    size - 1,
                    block,
                    vectors.cols,
                ),
            ]));
            let stack = MemStack::new(&mut memory);
            let (trid, factors) = (work.view_mut().faer(), reflectors.view_mut().faer());
            evd::tridiag::tridiag_in_place(trid, factors, Par::Seq, stack, Default::default());
            householder::apply_block_householder_sequence_transpose_on_the_left_in_place_with_conj(
                work.block(1, 0, size - 1, size - 1).faer(),
                reflectors.view().faer(),
                Conj::No,
                vectors.block_mut(1, 0, size - 1, vectors.cols).faer(),
                Par::Seq,
                stack,
            );
        }
        let diagonal = (0..size).map(|i| work.at(i, i)).collect();
        let beside = (1..size).map(|i| work.at(i, i - 1)).collect();
        Ok(Self { diagonal, beside })
    }

    /// log|T + ridge I| and the sum over the columns b of `vectors` (m, k) of b' (T + ridge I)^-1 b. None if T + ridge I is not
    /// positive definite. O(m k).
    pub fn with_ridge(&self, ridge: f64, vectors: &Matrix) -> Option<(f64, f64)> {
        let (mut log_determinant, mut quadratic) = (0.0, 0.0);
        let mut pivot = 1.0;
        let mut left = vec![0.0; vectors.cols];
        for (i, d) in self.diagonal.iter().enumerate() {
            let above = if i > 0 { self.beside[i - 1] } else { 0.0 };
            let factor = above / pivot;
            pivot = d + ridge - factor * above;
            if pivot.is_nan() || pivot <= 0.0 {
                return None;
            }
            log_determinant += pivot.ln();
            for (h, left) in left.iter_mut().enumerate() {
                *left = vectors.at(i, h) - factor * *left;
                quadratic += *left * *left / pivot;
            }
        }
        Some((log_determinant, quadratic))
    }
}

/// Eigenvalues (ascending) and, column by column, eigenvectors of a symmetric matrix (lower triangle read).
///
/// # Errors
/// If the iteration does not converge or the matrix is not finite.
pub fn symmetric_eigen(a: &Matrix) -> Result<(Vec<f64>, Matrix), Singular> {
    assert_eq!(a.rows, a.cols, "only square matrices have eigenvalues");
    let size = a.rows;
    let mut values = vec![0.0; size];
    let mut vectors = Matrix::zeros(size, size);
    if size == 0 {
        return Ok((values, vectors));
    }
    // Asked for before the library sees them: it may loop on what is not a number.
    if (0..size).any(|j| a.col(j)[j..].iter().any(|v| !v.is_finite())) {
        return Err(Singular { size });
    }
    let mut memory = MemBuffer::new(evd::self_adjoint_evd_scratch::<f64>(
        size,
        evd::ComputeEigenvectors::Yes,
        Par::Seq,
        Default::default(),
    ));
    evd::self_adjoint_evd(
        a.view().faer(),
        faer::diag::DiagMut::from_slice_mut(&mut values),
        Some(vectors.view_mut().faer()),
        Par::Seq,
        MemStack::new(&mut memory),
        Default::default(),
    )
    .map_err(|_| Singular { size })?;
    Ok((values, vectors))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(rows: usize, cols: usize) -> Matrix {
        // A fixed, well-spread sequence: no generator needed.
        let data = (0..rows * cols).map(|k| ((k as f64 + 1.0) * 0.618_033_988_749_895).fract() - 0.5).collect();
        Matrix::from_columns(rows, cols, data)
    }

    fn gram(size: usize) -> Matrix {
        let a = sample(size, size + 3);
        let mut s = Matrix::identity(size);
        rank_k(s.view_mut(), 1.0, a.view(), Op::Plain);
        s.mirror_lower();
        s
    }

    fn distance(a: &Matrix, b: &Matrix) -> f64 {
        (a.to_nalgebra() - b.to_nalgebra()).amax()
    }

    #[test]
    fn many_columns_are_solved_like_single_ones() {
        for size in [1, 24, 25, 47, 48, 49, 95, 96, 97, 200] {
            let entry = |k: usize| ((k as f64 + 1.0) * 0.618_033_988_749_895).fract() - 0.5;
            let mut l = Matrix::from_columns(size, size, (0..size * size).map(entry).collect());
            (0..size).for_each(|i| *l.at_mut(i, i) += 2.0 + 0.1 * size as f64);
            let rhs = Matrix::from_columns(size, WIDE, (0..size * WIDE).map(entry).collect());
            let mut wide = rhs.clone();
            solve_lower(l.view(), wide.view_mut());
            for j in 0..WIDE {
                let mut one = rhs.col(j).to_vec();
                solve_lower(l.view(), ViewMut::column(&mut one));
                assert!(one.iter().zip(wide.col(j)).all(|(a, b)| (a - b).abs() < 1e-13), "{size}, column {j}");
            }
            let (mut left, mut out) = (rhs.clone(), Matrix::zeros(size, WIDE));
            PanelInverses::of(&l).solve_lower(l.view(), left.view_mut(), out.view_mut());
            assert!(distance(&out, &wide) < 1e-13, "{size}");
        }
    }

    #[test]
    fn a_product_with_the_transpose_is_added_below_the_diagonal() {
        for (size, cols) in [(1, 3), (47, 5), (48, 64), (49, 64), (97, 7), (249, 20), (250, 20), (301, 64)] {
            let entry = |k: usize| ((k as f64 + 1.0) * 0.618_033_988_749_895).fract() - 0.5;
            let a = Matrix::from_columns(size, cols, (0..size * cols).map(entry).collect());
            let before = Matrix::from_columns(size, size, (0..size * size).map(entry).collect());
            let square = product(a.view(), Op::Plain, a.view(), Op::Transposed);
            let turned = a.transpose();
            for (factor, op) in [(&a, Op::Plain), (&turned, Op::Transposed)] {
                let mut found = before.clone();
                rank_k(found.view_mut(), -0.5, factor.view(), op);
                for j in 0..size {
                    assert!((0..j).all(|i| found.at(i, j) == before.at(i, j)), "{size}: above the diagonal");
                    let near = |i: usize| (found.at(i, j) - before.at(i, j) + 0.5 * square.at(i, j)).abs() < 1e-13;
                    assert!((j..size).all(near), "{size}, column {j}");
                }
            }
        }
    }

    #[test]
    fn factor_times_its_transpose_is_the_matrix() {
        for size in [0, 1, 2, 7, 65, 130] {
            let a = gram(size);
            let c = Cholesky::new(a.clone()).unwrap();
            let back = product(c.factor().view(), Op::Plain, c.factor().view(), Op::Transposed);
            assert!(distance(&back, &a) < 1e-12 * (1.0 + size as f64));
            let eye = product(c.inverse().view(), Op::Plain, a.view(), Op::Plain);
            assert!(distance(&eye, &Matrix::identity(size)) < 1e-11);
        }
    }

    #[test]
    fn a_bad_pivot_is_named() {
        let mut a = Matrix::identity(5);
        *a.at_mut(3, 3) = -1.0;
        assert_eq!(Cholesky::new(a.clone()).unwrap_err(), NotPositiveDefinite { index: 3, size: 5 });
        *a.at_mut(3, 3) = f64::NAN;
        assert!(Cholesky::new(a).is_err());
    }

    #[test]
    fn growing_keeps_entries_and_zeroes_the_rest() {
        let mut a = Matrix::with_capacity(4, 4);
        for size in 1..=9 {
            a.resize(size, size);
            for k in 0..size {
                assert_eq!(a.at(size - 1, k), 0.0);
                assert_eq!(a.at(k, size - 1), 0.0);
            }
            *a.at_mut(size - 1, size - 1) = size as f64;
            for k in 0..size {
                *a.at_mut(size - 1, k) = (size * 10 + k) as f64;
            }
        }
        assert_eq!(a.at(8, 3), 93.0);
        assert_eq!(a.at(4, 4), 54.0);
        a.resize(3, 3);
        a.resize(5, 5);
        assert_eq!((a.at(2, 1), a.at(4, 3)), (31.0, 0.0));
    }

    #[test]
    fn general_solve_and_eigenvalues() {
        for size in [1, 3, 40, 90] {
            let mut a = sample(size, size);
            for i in 0..size {
                *a.at_mut(i, i) += 3.0;
            }
            let b = sample(size, 2);
            let x = solve_general(&a, &b).unwrap();
            assert!(distance(&product(a.view(), Op::Plain, x.view(), Op::Plain), &b) < 1e-11);
            let s = gram(size);
            let (values, vectors) = symmetric_eigen(&s).unwrap();
            let mut scaled = vectors.clone();
            for (j, value) in values.iter().enumerate() {
                scaled.col_mut(j).iter_mut().for_each(|v| *v *= value);
            }
            assert!(distance(&product(scaled.view(), Op::Plain, vectors.view(), Op::Transposed), &s) < 1e-11);
        }
        assert!(solve_general(&Matrix::zeros(3, 3), &Matrix::zeros(3, 1)).is_err());
    }

    #[test]
    fn a_tridiagonal_form_answers_for_every_ridge() {
        for size in [1, 2, 7, 40] {
            let s = gram(size);
            let vectors = sample(size, 3);
            let mut turned = vectors.clone();
            let reduced = Tridiagonal::reduce(&s, &mut turned).unwrap();
            for ridge in [0.0, 0.3, 50.0] {
                let mut whole = s.clone();
                (0..size).for_each(|i| *whole.at_mut(i, i) += ridge);
                let whole = Cholesky::new(whole).unwrap();
                let solved = whole.solve(vectors.clone());
                let expected: f64 = (0..3).map(|j| dot(solved.col(j), vectors.col(j))).sum();
                let (log_determinant, quadratic) = reduced.with_ridge(ridge, &turned).unwrap();
                assert!((log_determinant - whole.log_determinant()).abs() < 1e-10, "{size} {ridge}");
                assert!((quadratic - expected).abs() < 1e-10 * expected, "{size} {ridge}");
            }
            assert!(reduced.with_ridge(-1e3, &turned).is_none());
        }
        let mut bad = gram(4);
        *bad.at_mut(2, 1) = f64::NAN;
        assert!(Tridiagonal::reduce(&bad, &mut sample(4, 1)).is_err());
    }

    #[test]
    fn a_factor_is_renewed_in_its_memory() {
        let (mut factor, mut scratch) = (Cholesky::default(), Scratch::default());
        for size in [5, 5, 40, 12, 130, 130, 301, 301] {
            factor.renew(&gram(size), 0.5, &mut scratch).unwrap();
            let mut whole = gram(size);
            (0..size).for_each(|i| *whole.at_mut(i, i) += 0.5);
            assert_eq!(distance(factor.factor(), Cholesky::new(whole).unwrap().factor()), 0.0);
            // The library leaves what it likes above the diagonal.
            assert!((1..size).all(|j| factor.factor().col(j)[..j].iter().all(|&above| above == 0.0)), "{size}");
        }
        assert!(factor.renew(&gram(6), -1e6, &mut scratch).is_err());
    }

    #[test]
    fn blocks_with_a_stride_solve_like_whole_matrices() {
        let mut big = Matrix::with_capacity(50, 50);
        big.resize(20, 20);
        let g = Cholesky::new(gram(20)).unwrap();
        for j in 0..20 {
            big.col_mut(j).copy_from_slice(g.factor().col(j));
        }
        let (mut x, mut y) = (sample(20, 3), sample(20, 3));
        solve_lower(big.view(), x.view_mut());
        solve_lower(g.factor().view(), y.view_mut());
        assert_eq!(x, y);
        let b = [1.0, 2.0, 3.0, 4.0, 5.0];
        assert_eq!(dot(&b, &b), 55.0);
        let c: Vec<f64> = (1..=21).map(f64::from).collect();
        assert_eq!((sum(&b), sum(&c), sum(&[])), (15.0, 231.0, 0.0));
    }
}
