//! Formats that keep whole arrays (NPZ, HDF5): numbers out of bytes, and rows out of arrays.

use super::Fault;
use super::build::{Builder, Cell, Column, Job};

/// Decoded arrays of one file may take this many bytes, whatever its size ...
const BYTES_MIN: u64 = 1 << 30;
/// ... or this many for each byte of the file: more is no compression of measurements but a file made to fill memory.
const BYTES_PER_BYTE: u64 = 64;

/// What one element of an array is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Float,
    Signed,
    Unsigned,
    Flag,
    /// Bytes up to the first NUL.
    Bytes,
    /// UTF-32 up to the first NUL.
    Unicode,
}

/// Type of the elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) kind: Kind,
    /// Bytes of one element.
    pub(super) size: usize,
    pub(super) big_endian: bool,
}

#[derive(Debug)]
enum Values {
    Numbers(Vec<f64>),
    Whole(Vec<i64>),
    Flags(Vec<bool>),
    Texts(Vec<String>),
}

/// An array of a file, in C order.
#[derive(Debug)]
pub(super) struct Array {
    name: String,
    shape: Vec<usize>,
    values: Values,
}

impl Array {
    /// # Errors
    /// What is wrong with the type or the number of bytes.
    pub(super) fn decode(name: &str, shape: Vec<usize>, element: Element, bytes: &[u8]) -> Result<Self, String> {
        let values = Values::decode(element, bytes)?;
        let found = match &values {
            Values::Numbers(v) => v.len(),
            Values::Whole(v) => v.len(),
            Values::Flags(v) => v.len(),
            Values::Texts(v) => v.len(),
        };
        if product(&shape) != Some(found as u64) {
            return Err(format!("has {found} elements, its shape {shape:?} says otherwise"));
        }
        Ok(Self { name: name.to_owned(), shape, values })
    }

    /// The array whose elements were read in Fortran order, in C order.
    pub(super) fn into_c_order(mut self) -> Self {
        if let [rows, width] = self.shape[..] {
            fn transposed<T: Clone>(values: &mut Vec<T>, rows: usize, width: usize) {
                let old = std::mem::take(values);
                values.extend((0..rows).flat_map(|i| (0..width).map(move |k| k * rows + i)).map(|at| old[at].clone()));
            }
            match &mut self.values {
                Values::Numbers(v) => transposed(v, rows, width),
                Values::Whole(v) => transposed(v, rows, width),
                Values::Flags(v) => transposed(v, rows, width),
                Values::Texts(v) => transposed(v, rows, width),
            }
        }
        self
    }

    /// Length of the first axis.
    fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(0)
    }

    /// Numbers in a row.
    fn width(&self) -> usize {
        self.shape.get(1).copied().unwrap_or(1)
    }

    fn cell(&self, row: usize, k: usize) -> Cell<'_> {
        let at = row * self.width() + k;
        match &self.values {
            Values::Numbers(v) => Cell::Number(v[at]),
            Values::Whole(v) => Cell::Whole(v[at]),
            Values::Flags(v) => Cell::Flag(v[at]),
            Values::Texts(v) => Cell::Text(&v[at]),
        }
    }
}

/// Number of elements of an array, if it can be counted.
pub(super) fn product(shape: &[usize]) -> Option<u64> {
    shape.iter().try_fold(1_u64, |n, &axis| n.checked_mul(axis as u64))
}

impl Values {
    fn decode(element: Element, bytes: &[u8]) -> Result<Self, String> {
        let Element { kind, size, big_endian } = element;
        if size == 0 || !bytes.len().is_multiple_of(size) {
            return Err(format!("{} bytes are no whole elements of {size}", bytes.len()));
        }
        // Every element in the eight lowest bytes, little endian.
        let words = bytes.chunks_exact(size).map(|chunk| {
            let mut word = [0; 8];
            word[..size.min(8)].copy_from_slice(&chunk[..size.min(8)]);
            if big_endian {
                word[..size.min(8)].reverse();
            }
            u64::from_le_bytes(word)
        });
        Ok(match (kind, size) {
            (Kind::Float, 8) => Self::Numbers(words.map(f64::from_bits).collect()),
            (Kind::Float, 4) => Self::Numbers(words.map(|w| f64::from(f32::from_bits(w as u32))).collect()),
            (Kind::Signed, 1 | 2 | 4 | 8) => {
                let shift = 64 - 8 * size as u32;
                Self::Whole(words.map(|w| ((w << shift) as i64) >> shift).collect())
            }
            (Kind::Unsigned, 1 | 2 | 4) => Self::Whole(words.map(|w| w as i64).collect()),
            // Few numbers of this type are beyond the signed ones, and those are too large for everything here.
            (Kind::Unsigned, 8) => Self::Whole(words.map(|w| i64::try_from(w).unwrap_or(i64::MAX)).collect()),
            (Kind::Flag, 1) => Self::Flags(words.map(|w| w != 0).collect()),
            (Kind::Bytes, _) => {
                let text = |chunk: &[u8]| String::from_utf8(chunk.to_vec()).map_err(|_| "holds text that is not UTF-8");
                let trimmed = bytes.chunks_exact(size).map(|c| &c[..c.iter().position(|&b| b == 0).unwrap_or(size)]);
                Self::Texts(trimmed.map(text).collect::<Result<_, _>>()?)
            }
            (Kind::Unicode, _) if size.is_multiple_of(4) => {
                let letter = |c: &[u8]| {
                    let c = [c[0], c[1], c[2], c[3]];
                    if big_endian { u32::from_be_bytes(c) } else { u32::from_le_bytes(c) }
                };
                let text = |chunk: &[u8]| {
                    let letters = chunk.chunks_exact(4).map(letter).take_while(|&c| c != 0);
                    letters.map(char::from_u32).collect::<Option<String>>().ok_or("holds text that is not Unicode")
                };
                Self::Texts(bytes.chunks_exact(size).map(text).collect::<Result<_, _>>()?)
            }
            _ => return Err(format!("numbers of {size} bytes cannot be read; write f4, f8, i4, i8 or bool")),
        })
    }
}

/// How much memory the arrays of a file may still take.
pub(super) struct Budget {
    left: u64,
}

impl Budget {
    pub(super) fn of_file(bytes: u64) -> Self {
        Self { left: BYTES_MIN.saturating_add(bytes.saturating_mul(BYTES_PER_BYTE)) }
    }

    /// Take what an array of this shape needs, before any of it is read.
    ///
    /// # Errors
    /// If it is more than is left.
    pub(super) fn take(&mut self, shape: &[usize], element: Element) -> Result<usize, String> {
        let message = || {
            format!(
                "shape {shape:?} is more than a file of this size can sensibly hold; the file is damaged, or cut it up"
            )
        };
        let elements = product(shape).ok_or_else(message)?;
        let bytes = elements.checked_mul(element.size as u64).ok_or_else(message)?;
        // Numbers are kept as eight bytes each.
        let kept = elements.checked_mul(element.size.max(8) as u64).ok_or_else(message)?;
        self.left = self.left.checked_sub(kept).ok_or_else(message)?;
        usize::try_from(bytes).map_err(|_| message())
    }
}

/// Arrays that belong together, row by row, each with what it holds.
pub(super) struct Piece {
    pub(super) arrays: Vec<(Column, Array)>,
    /// Number of the first row, if rows are numbered by their place.
    pub(super) first: Option<u64>,
}

impl Piece {
    fn find(&self, column: Column) -> Option<&Array> {
        self.arrays.iter().find(|(c, _)| *c == column).map(|(_, array)| array)
    }

    /// Number of rows: transitions, or where only states are read, states.
    pub(super) fn rows(&self) -> usize {
        self.find(Column::Reward(0)).or(self.find(Column::State(0))).map_or(0, Array::rows)
    }

    /// Whether `states` has one row more than there are transitions: the successor of the last one.
    pub(super) fn trails(&self) -> bool {
        let (states, rewards) = (self.find(Column::State(0)), self.find(Column::Reward(0)));
        let next = self.find(Column::NextState(0)).is_some();
        matches!((states, rewards), (Some(s), Some(r)) if !next && s.rows() == r.rows() + 1)
    }

    /// Columns with their names, each with its array, the k in a row, and by how many rows it runs ahead.
    fn columns(&self) -> Vec<(String, Column, usize, usize, usize)> {
        let mut columns = Vec::new();
        for (a, (column, array)) in self.arrays.iter().enumerate() {
            let name = |k: usize| match array.shape.len() {
                2 => format!("{}[:, {k}]", array.name),
                _ => array.name.clone(),
            };
            for k in 0..array.width() {
                columns.push((name(k), column.nth(k).unwrap_or(*column), a, k, 0));
                if let (Column::State(_), true) = (column, self.trails()) {
                    columns.push((name(k), Column::NextState(k), a, k, 1));
                }
            }
        }
        columns
    }

    /// The columns, in the order of the cells that [`Piece::push`] gives. `prefix` is the part of the file.
    ///
    /// # Errors
    /// If an array is not of the shape that it must have.
    pub(super) fn layout(&self, prefix: &str) -> Result<Vec<(String, Column)>, Fault> {
        for (column, array) in &self.arrays {
            let wrong = |message: String| Err(Fault::column(format!("{prefix}{}", array.name), message));
            let one = column.nth(0).is_none();
            if array.shape.is_empty() || array.shape.len() > 2 || (one && array.width() != 1) {
                let wanted = if one { "one value for each row" } else { "rows of numbers; flatten what has more axes" };
                return wrong(format!("has shape {:?}, must hold {wanted}", array.shape));
            }
            if array.width() == 0 {
                return wrong("its rows are empty".to_owned());
            }
        }
        let mut columns: Vec<_> = self.columns().into_iter().map(|(name, column, ..)| (name, column)).collect();
        if self.first.is_some() {
            columns.push(("seq".to_owned(), Column::Seq));
        }
        Ok(columns)
    }

    /// Hand the rows over to a builder whose columns are those of this piece. They are `part` of the file, from and to.
    ///
    /// # Errors
    /// The first fault found in a row, or arrays of different lengths.
    pub(super) fn push(&self, builder: &mut Builder, job: &mut Job<'_>, part: (f64, f64)) -> Result<(), Fault> {
        let n = self.rows();
        let trails = self.trails();
        for (column, array) in &self.arrays {
            let found = array.rows();
            if found != n && !(trails && matches!(column, Column::State(_))) {
                let all = if matches!(column, Column::State(_)) { ", or one row more without successors" } else { "" };
                let message = format!("has {found} rows, there are {n} rewards; they must agree{all}");
                return Err(Fault::column(format!("{}{}", builder.prefix, array.name), message));
            }
        }
        let columns = self.columns();
        let streams = builder.streams();
        for i in 0..n {
            builder.push(i as u64, |k| match columns.get(k) {
                Some(&(_, _, a, k, ahead)) => self.arrays[a].1.cell(i + ahead, k),
                None => Cell::Whole((self.first.unwrap_or(0) + i as u64) as i64),
            })?;
            if trails && i + 1 < n && builder.ended() {
                let message = "ends an episode, only the last row of a piece may; give all successors instead of one \
                               more state";
                return Err(self.row_fault(builder, i, Column::Terminated, message));
            }
            if trails && i > 0 && builder.streams() > streams.max(1) {
                let message = "is another stream's; a piece with one more state than rewards is one trajectory";
                return Err(self.row_fault(builder, i, Column::Stream, message));
            }
            builder.advance(job, part.0 + (part.1 - part.0) * i as f64 / n as f64)?;
        }
        Ok(())
    }

    fn row_fault(&self, builder: &Builder, row: usize, column: Column, message: &str) -> Fault {
        let name = self.find(column).or(self.find(Column::Truncated)).map_or("truncated", |array| &array.name);
        let column = format!("{}{name}", builder.prefix);
        Fault::Cell { row: row as u64, column, message: message.to_owned() }
    }
}
