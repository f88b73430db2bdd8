//! Column-major matrices that grow in place, rectangles of them, and how they are written.

use faer::{MatMut, MatRef};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Room to grow that a matrix from a file gets, in numbers, unless a quarter of it is in use: the room for a dictionary of 4096.
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

    /// Largest magnitude of an entry; 0 without entries. What is not a number does not count.
    pub fn largest(&self) -> f64 {
        (0..self.cols).flat_map(|j| self.col(j)).fold(0.0, |most, x| f64::max(most, x.abs()))
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
struct WrittenMatrix {
    rows: usize,
    cols: usize,
    stride: usize,
    room: usize,
    #[serde(with = "crate::math::raw")]
    entries: Vec<f64>,
}

impl Serialize for Matrix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let room = self.data.len().checked_div(self.stride).unwrap_or(0);
        WrittenMatrix::of(self, self.stride, room).serialize(serializer)
    }
}

/// Serialise without spare capacity, which depends on the allocation's history: equal matrices must give equal bytes.
pub(crate) fn tight<S: Serializer>(matrix: &Matrix, serializer: S) -> Result<S::Ok, S::Error> {
    WrittenMatrix::of(matrix, matrix.rows, matrix.cols).serialize(serializer)
}

impl WrittenMatrix {
    fn of(matrix: &Matrix, stride: usize, room: usize) -> Self {
        let entries = (0..matrix.cols).flat_map(|j| matrix.col(j).iter().copied()).collect();
        Self { rows: matrix.rows, cols: matrix.cols, stride, room, entries }
    }
}

impl<'de> Deserialize<'de> for Matrix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let WrittenMatrix { rows, cols, stride, room, entries } = WrittenMatrix::deserialize(deserializer)?;
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

    /// As the library sees it.
    pub(super) fn faer(self) -> MatRef<'a, f64> {
        MatRef::from_column_major_slice_with_stride(self.data, self.rows, self.cols, self.stride.max(self.rows))
    }
}

impl<'a> ViewMut<'a> {
    /// A single column.
    pub fn column(data: &'a mut [f64]) -> Self {
        Self { rows: data.len(), cols: 1, stride: data.len().max(1), data }
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

    /// `count` columns from number `first` on.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn columns(&mut self, first: usize, count: usize) -> ViewMut<'_> {
        assert!(first + count <= self.cols, "columns out of range");
        let (start, len) = (first * self.stride, span(self.rows, count, self.stride));
        let data = if len == 0 { &mut [][..] } else { &mut self.data[start..start + len] };
        ViewMut { data, rows: self.rows, cols: count, stride: self.stride }
    }

    /// To be read, for a shorter time.
    pub fn as_view(&self) -> View<'_> {
        View { data: self.data, rows: self.rows, cols: self.cols, stride: self.stride }
    }

    /// The columns from number `first` on, to be written beside each other.
    pub(in crate::math) fn columns_mut(&mut self, first: usize) -> impl Iterator<Item = &mut [f64]> {
        let (rows, stride) = (self.rows, self.stride.max(1));
        let start = (first * stride).min(self.data.len());
        self.data[start..].chunks_mut(stride).take(self.cols - first).map(move |column| &mut column[..rows])
    }

    /// As the library sees it.
    pub(super) fn faer(self) -> MatMut<'a, f64> {
        MatMut::from_column_major_slice_with_stride_mut(self.data, self.rows, self.cols, self.stride.max(self.rows))
    }
}
