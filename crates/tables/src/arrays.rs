//! Formats that keep whole arrays (NPZ, HDF5): numbers out of bytes, and rows out of arrays.

use super::build::Builder;
use super::cell::{Cell, flag, position};
use super::job::{Column, Job};
use super::roles::{self, Role, Source};
use super::{Fault, Format};

/// Bytes that the decoded arrays of one file may always take.
const BYTES_MIN: u64 = 1 << 30;
/// Larger arrays may take this many bytes for each byte of the file: compressed measurements stay below it, a file made to fill
/// memory does not.
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
    Counts(Vec<u64>),
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
            Values::Counts(v) => v.len(),
            Values::Flags(v) => v.len(),
            Values::Texts(v) => v.len(),
        };
        if product(&shape) != Some(found as u64) {
            return Err(format!("has {found} elements, which does not match its shape {shape:?}"));
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
                Values::Counts(v) => transposed(v, rows, width),
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
            Values::Whole(v) => Cell::Whole(v[at].into()),
            Values::Counts(v) => Cell::Whole(v[at].into()),
            Values::Flags(v) => Cell::Flag(v[at]),
            Values::Texts(v) => Cell::Text(&v[at]),
        }
    }
}

/// What datasets of episodes need.
#[cfg(feature = "hdf5")]
impl Array {
    /// Flags that are `flag` in the last row alone, and else false.
    pub(super) fn last(name: &str, rows: usize, flag: bool) -> Self {
        let mut flags = vec![false; rows];
        flags.last_mut().into_iter().for_each(|last| *last = flag);
        Self { name: name.to_owned(), shape: vec![rows], values: Values::Flags(flags) }
    }

    /// The one flag that it holds.
    ///
    /// # Errors
    /// If it holds something else.
    pub(super) fn flag(&self) -> Result<bool, String> {
        match &self.values {
            Values::Flags(flags) if flags.len() == 1 => Ok(flags[0]),
            Values::Whole(values) if matches!(values[..], [0 | 1]) => Ok(values[0] == 1),
            Values::Counts(values) if matches!(values[..], [0 | 1]) => Ok(values[0] == 1),
            _ => Err("must be one flag".to_owned()),
        }
    }

    /// Leave out the rows behind the first `rows`.
    pub(super) fn truncate(&mut self, rows: usize) {
        let Some(axis) = self.shape.first_mut() else { return };
        *axis = rows.min(*axis);
        let length = self.shape.iter().product();
        match &mut self.values {
            Values::Numbers(v) => v.truncate(length),
            Values::Whole(v) => v.truncate(length),
            Values::Counts(v) => v.truncate(length),
            Values::Flags(v) => v.truncate(length),
            Values::Texts(v) => v.truncate(length),
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
            (Kind::Unsigned, 8) => Self::Counts(words.collect()),
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

/// The arrays of a file as sources of columns, by their names and shapes; a shape that cannot be told is none.
pub(super) fn sources(shapes: &[(String, Option<Vec<usize>>)], job: &Job<'_>) -> Vec<Source> {
    let copies = shapes
        .iter()
        .any(|(name, shape)| shape.as_ref().is_some_and(|shape| shape.len() == 3) && roles::may_be_state(name, job));
    let rows = if copies { 2 } else { 1 };
    let cut = is_cut(shapes);
    let source = |(name, shape): &(String, Option<Vec<usize>>)| {
        let width = shape.as_ref().filter(|shape| shape.len() == rows + 1).map(|shape| shape[rows]);
        let of_trajectories = match name.as_str() {
            CUTS if cut => Some(Column::Cuts),
            ENDED if cut => Some(Column::Done),
            _ => None,
        };
        Source { of_trajectories, ..Source::new(name, width) }
    };
    shapes.iter().map(source).collect()
}

/// What imitation calls the rows at which trajectories begin, but for the first one, and whether each of them was over.
const CUTS: &str = "indices";
const ENDED: &str = "terminal";

/// Whether arrays are imitation's rollouts.
fn is_cut(shapes: &[(String, Option<Vec<usize>>)]) -> bool {
    let length = |wanted: &str| {
        let (_, shape) = shapes.iter().find(|(name, _)| name == wanted)?;
        shape.as_ref().filter(|shape| shape.len() == 1).map(|shape| shape[0])
    };
    length(CUTS).zip(length(ENDED)).is_some_and(|(cuts, ended)| cuts.checked_add(1) == Some(ended))
}

/// One column of a piece: which array it is in, which number of its rows, and which of its rows belongs to a row of the piece.
#[derive(Debug)]
struct ColumnPlace {
    name: String,
    column: Column,
    array: usize,
    k: usize,
    at: At,
}

/// Which row of an array belongs to a row of its piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Same,
    /// Of states of which each trajectory has one more than rows: the state of the row.
    From,
    /// There: the state that the row leads to.
    To,
    /// Of flags of which each trajectory has one, which says how it ended: its trajectory's flag in the last row, false before it.
    End,
}

/// Where rows belong to trajectories that have one state more than rows each.
#[derive(Debug)]
struct Trajectories {
    /// Of each row the number of its trajectory, rising from 0.
    of: Vec<usize>,
    /// Whether an array says where they begin, so that they are episodes.
    named: bool,
}

impl Trajectories {
    /// Of `rows` rows; `begins`: where trajectories begin, but for the first one, rising.
    fn new(rows: usize, begins: &[usize], named: bool) -> Self {
        let (mut of, mut begins) = (Vec::with_capacity(rows), begins.iter().peekable());
        let mut number = 0;
        for row in 0..rows {
            number += usize::from(begins.next_if_eq(&&row).is_some());
            of.push(number);
        }
        Self { of, named }
    }

    /// Whether the row is the last one of its trajectory.
    fn ends(&self, row: usize) -> bool {
        self.of.get(row + 1) != Some(&self.of[row])
    }
}

/// Arrays that belong together, row by row, each with what it holds.
pub(super) struct Piece {
    arrays: Vec<(Vec<Role>, Array)>,
    columns: Vec<ColumnPlace>,
    /// Number of the first row, if rows are numbered by their place.
    first: Option<u64>,
    /// Copies of an environment that take turns in the rows, each of them a stream.
    copies: usize,
    trajectories: Option<Trajectories>,
}

/// Whether a column says how episodes end.
fn says_end(column: Column) -> bool {
    matches!(
        column,
        Column::Terminated | Column::Truncated | Column::Done | Column::EndedItself | Column::EndedOtherwise
    )
}

impl Piece {
    /// `prefix` is the part of the file. Arrays with three axes are (steps, copies of the environment, numbers), and so are
    /// the others then.
    ///
    /// # Errors
    /// If an array is not of the shape that it must have.
    pub(super) fn new(
        mut arrays: Vec<(Vec<Role>, Array)>,
        first: Option<u64>,
        prefix: &str,
        format: Format,
    ) -> Result<Self, Fault> {
        let is_state = |(roles, _): &&(Vec<Role>, Array)| roles.iter().any(|r| matches!(r.column, Column::State(_)));
        let state = arrays.iter().find(is_state).map(|(_, array)| (array.name.clone(), array.shape.clone()));
        let mut copies = 1;
        if let Some((name, &[steps, found, _])) = state.as_ref().map(|(name, shape)| (name, &shape[..])) {
            copies = found;
            for (_, array) in &mut arrays {
                if array.shape.len() < 2 || array.shape[..2] != [steps, copies] {
                    let message = format!(
                        "has shape {:?}; {name} has three axes, for steps, copies of the environment and numbers, and all \
                         arrays must agree in the first two: {steps} and {copies}",
                        array.shape
                    );
                    return Err(Fault::column(format!("{prefix}{}", array.name), message));
                }
                array.shape.splice(..2, [steps * copies]);
            }
        }
        for (roles, array) in &arrays {
            let wrong = |message: String| Err(Fault::column(format!("{prefix}{}", array.name), message));
            let one = roles.iter().any(|role| role.column.from(0).is_none() && role.only.is_none());
            if array.shape.is_empty() || array.shape.len() > 2 || (one && array.width() != 1) {
                let wanted = if one { "one value for each row" } else { "rows of numbers; flatten what has more axes" };
                return wrong(format!("has shape {:?}, must hold {wanted}", array.shape));
            }
            if array.width() == 0 {
                return wrong("its rows are empty".to_owned());
            }
        }
        let mut piece = Self { arrays, columns: Vec::new(), first, copies, trajectories: None };
        piece.trajectories = piece.trajectories(prefix)?;
        piece.columns = piece.place(format)?;
        Ok(piece)
    }

    /// The trajectories, if they have one state more than rows each.
    ///
    /// # Errors
    /// If the array that says where they begin contradicts itself or the others.
    fn trajectories(&self, prefix: &str) -> Result<Option<Trajectories>, Fault> {
        let (rows, states) = (self.rows(), self.state().map_or(0, Array::rows));
        let next = self.find(|column| matches!(column, Column::NextState(_))).is_some();
        if let Some(cuts) = self.find(|column| column == Column::Cuts) {
            let begins = begins(cuts, rows).map_err(|m| Fault::column(format!("{prefix}{}", cuts.name), m))?;
            let (count, state) = (begins.len() + 1, self.state().map_or("", |array| &array.name));
            if states != rows + count || next {
                let message = format!(
                    "has {states} rows; {} divides {rows} rows into {count} trajectories, which have one state more each: {}",
                    cuts.name,
                    rows + count
                );
                return Err(Fault::column(format!("{prefix}{state}"), message));
            }
            return Ok(Some(Trajectories::new(rows, &begins, true)));
        }
        let more = states.saturating_sub(rows);
        if next || self.copies > 1 || more == 0 {
            return Ok(None);
        }
        let begins = if more == 1 { Vec::new() } else { self.begins() };
        Ok((begins.len() + 1 == more).then(|| Trajectories::new(rows, &begins, false)))
    }

    /// Rows behind the end of an episode, or where another begins.
    fn begins(&self) -> Vec<usize> {
        let rows = self.rows();
        let fit = |fits: fn(Column) -> bool| {
            let says = move |(roles, _): &&(Vec<Role>, Array)| roles.iter().any(|role| fits(role.column));
            self.arrays.iter().filter(says).map(|(_, array)| array).filter(|array| array.rows() == rows).collect()
        };
        let ends: Vec<&Array> = fit(says_end);
        let starts: Vec<&Array> = fit(|column| column == Column::StartsChain);
        let names: Vec<&Array> = fit(|column| matches!(column, Column::Episode | Column::Stream));
        let says = |array: &&Array, row: usize| flag(array.cell(row, 0)) == Ok(true);
        let begins = |row: &usize| {
            ends.iter().any(|array| says(array, row - 1))
                || starts.iter().any(|array| says(array, *row))
                || names.iter().any(|array| array.cell(*row, 0) != array.cell(row - 1, 0))
        };
        (1..rows).filter(begins).collect()
    }

    /// The array of a kind of column.
    fn find(&self, fits: impl Fn(Column) -> bool) -> Option<&Array> {
        self.arrays.iter().find(|(roles, _)| roles.iter().any(|role| fits(role.column))).map(|(_, array)| array)
    }

    fn state(&self) -> Option<&Array> {
        self.find(|column| column == Column::State(0))
    }

    /// Number of rows: transitions, or where only states are read, states.
    pub(super) fn rows(&self) -> usize {
        // Where an array says how trajectories are cut, there may be one end for each of them.
        let cut = self.find(|column| column == Column::Cuts).is_some();
        let other = |column| match column {
            Column::State(_) | Column::Term(_) | Column::Cuts => false,
            column => !(cut && says_end(column)),
        };
        let summed = |(roles, _): &&(Vec<Role>, Array)| roles.iter().all(|r| matches!(r.column, Column::Term(_)));
        let summed = || self.arrays.iter().find(summed).map(|(_, array)| array);
        let found = self.find(|c| c == Column::Reward(0)).or(self.find(other)).or_else(summed).or(self.state());
        found.map_or(0, Array::rows)
    }

    /// Whether there is one state more than transitions, of each trajectory: the successor of its last one.
    pub(super) fn trails(&self) -> bool {
        self.trajectories.is_some()
    }

    fn place(&self, format: Format) -> Result<Vec<ColumnPlace>, Fault> {
        let mut columns = Vec::new();
        for (at, (roles, array)) in self.arrays.iter().enumerate() {
            let width = (array.shape.len() == 2).then(|| array.width());
            let source = Source::new(&array.name, width);
            for role in roles {
                for (name, column, k) in source.spread(*role, format)? {
                    let of = match column {
                        Column::Cuts => continue,
                        Column::State(d) if self.trails() => {
                            let column = Column::NextState(d);
                            columns.push(ColumnPlace { name: name.clone(), column, array: at, k, at: At::To });
                            At::From
                        }
                        column if says_end(column) && self.is_of_trajectories(array) => At::End,
                        // A sum may be over a number of the state.
                        _ if self.is_of_states(array) => At::From,
                        _ => At::Same,
                    };
                    columns.push(ColumnPlace { name, column, array: at, k, at: of });
                }
            }
        }
        Ok(columns)
    }

    /// Whether an array has an entry for each trajectory, and none for each row.
    fn is_of_trajectories(&self, array: &Array) -> bool {
        let count = self.trajectories.as_ref().filter(|found| found.named).and_then(|found| found.of.last());
        array.rows() != self.rows() && count.is_some_and(|last| array.rows() == last + 1)
    }

    /// Whether an array has an entry for each state where there are more of them than rows.
    fn is_of_states(&self, array: &Array) -> bool {
        self.trails() && self.state().is_some_and(|state| state.rows() == array.rows())
    }

    /// Whether trajectories are named by their numbers, since nothing else names them.
    fn numbers_trajectories(&self) -> bool {
        let named = self.find(|column| column == Column::Episode).is_some();
        !named && self.trajectories.as_ref().is_some_and(|found| found.named)
    }

    /// The columns, in the order of the cells that [`Piece::push`] gives.
    pub(super) fn layout(&self) -> Vec<(String, Column)> {
        let mut columns: Vec<_> = self.columns.iter().map(|placed| (placed.name.clone(), placed.column)).collect();
        if self.copies > 1 {
            columns.push(("copy".to_owned(), Column::Stream));
        }
        if self.first.is_some() {
            columns.push(("seq".to_owned(), Column::Seq));
        }
        if self.numbers_trajectories() {
            columns.push(("trajectory".to_owned(), Column::Episode));
        }
        columns
    }

    /// Number k of row i, as [`Piece::layout`] has the columns.
    fn cell(&self, i: usize, k: usize) -> Cell<'_> {
        let trajectory = || self.trajectories.as_ref().map_or(0, |found| found.of[i]);
        let Some(placed) = self.columns.get(k) else {
            return match k - self.columns.len() {
                0 if self.copies > 1 => Cell::Whole((i % self.copies) as i128),
                added if self.first.is_some() && added == usize::from(self.copies > 1) => {
                    Cell::Whole((self.first.unwrap_or(0) + i as u64).into())
                }
                _ => Cell::Whole(trajectory() as i128),
            };
        };
        let row = match placed.at {
            At::Same => i,
            At::From => i + trajectory(),
            At::To => i + trajectory() + 1,
            At::End if self.trajectories.as_ref().is_some_and(|found| found.ends(i)) => trajectory(),
            At::End => return Cell::Flag(false),
        };
        self.arrays[placed.array].1.cell(row, placed.k)
    }

    /// Hand the rows over to a builder whose columns are this piece's. They are `part` of the file, from and to.
    ///
    /// # Errors
    /// The first fault found in a row, or arrays of different lengths.
    pub(super) fn push(&self, builder: &mut Builder, job: &mut Job<'_>, part: (f64, f64)) -> Result<(), Fault> {
        let n = self.rows();
        self.check_lengths(builder)?;
        let of = |i: usize| self.trajectories.as_ref().map(|found| found.of[i]);
        for i in 0..n {
            let streams = builder.streams();
            builder.push(i as u64, |k| self.cell(i, k))?;
            let trails = self.trails();
            let (terminated, truncated) = builder.ended();
            // Behind a row that terminates nothing counts, and so not the state either.
            let within = |i: usize| trails && of(i) == of(i + 1) && (truncated || self.first.is_some());
            if i + 1 < n && (terminated || truncated) && (within(i) || (self.first.is_some() && builder.refuses())) {
                let message = match trails {
                    true => {
                        "ends an episode, only the last row of a trajectory may; give all successors, or one more state for each \
                         trajectory"
                    }
                    false => {
                        "ends the episode, and further rows follow; set the flag in the last row alone, or keep every row as a \
                         step: --order keep"
                    }
                };
                let column = if truncated { Column::Truncated } else { Column::Terminated };
                return Err(self.row_fault(builder, i, column, message));
            }
            if trails && i > 0 && of(i) == of(i - 1) && builder.streams() > streams {
                let message = "is another stream's; a piece with one more state than rewards is one trajectory";
                return Err(self.row_fault(builder, i, Column::Stream, message));
            }
            builder.advance(job, part.0 + (part.1 - part.0) * i as f64 / n as f64)?;
        }
        Ok(())
    }

    /// Whether arrays are as long as they must be.
    fn check_lengths(&self, builder: &Builder) -> Result<(), Fault> {
        let n = self.rows();
        for (roles, array) in &self.arrays {
            let found = array.rows();
            let has = |fits: fn(Column) -> bool| roles.iter().any(|role| fits(role.column));
            let state = has(|column| matches!(column, Column::State(_)));
            let fits = found == n || (self.trails() && state) || (has(says_end) && self.is_of_trajectories(array));
            if fits || has(|column| column == Column::Cuts) {
                continue;
            }
            let all = match found.checked_sub(n) {
                Some(more) if state => format!(
                    ", or there is one row more for each trajectory: {more} trajectories would be needed, and nothing says where \
                     they end"
                ),
                _ if state => ", or one row more for each trajectory".to_owned(),
                _ => String::new(),
            };
            let message = format!("has {found} rows, there are {n} rewards; they must agree{all}");
            return Err(Fault::column(format!("{}{}", builder.prefix, array.name), message));
        }
        Ok(())
    }

    fn row_fault(&self, builder: &Builder, row: usize, column: Column, message: &str) -> Fault {
        let array = self.find(|c| c == column).or(self.find(says_end));
        let column = format!("{}{}", builder.prefix, array.map_or("truncated", |array| &array.name));
        Fault::Cell { row: row as u64, column, message: message.to_owned() }
    }
}

/// Where trajectories begin, but for the first one: the row numbers of an array, among which may be 0 and the number of rows.
fn begins(cuts: &Array, rows: usize) -> Result<Vec<usize>, String> {
    let mut begins = Vec::with_capacity(cuts.rows());
    for k in 0..cuts.rows() {
        let row = position(cuts.cell(k, 0)).map(|row| usize::try_from(row).unwrap_or(usize::MAX))?;
        if row > rows || begins.last().is_some_and(|before| row <= *before) {
            return Err(format!("{row} at place {k}; the rows at which trajectories begin rise, and there are {rows}"));
        }
        begins.push(row);
    }
    begins.retain(|row| (1..rows).contains(row));
    Ok(begins)
}
