//! Numbers, flags and arrays of them, in both forms: nested arrays and the map of Python's `msgpack-numpy`.

use super::reader::{Field, Fields, Head, Reader};
use super::{ArrayForm, ErrorCode, WireError};
use nalgebra::DMatrix;
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

/// Axes of a decoded tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Scalar,
    Vector(usize),
    Matrix(usize, usize),
}

impl Shape {
    /// Length of the leading axis and numbers along the others; a scalar has one row of one.
    pub(super) fn rows_and_width(self) -> (usize, usize) {
        match self {
            Self::Scalar => (1, 1),
            Self::Vector(rows) => (rows, 1),
            Self::Matrix(rows, width) => (rows, width),
        }
    }

    fn len(self) -> Option<usize> {
        let (rows, width) = self.rows_and_width();
        rows.checked_mul(width)
    }

    fn words(self) -> &'static str {
        match self {
            Self::Scalar => "a single value",
            Self::Vector(_) => "one axis",
            Self::Matrix(..) => "two axes",
        }
    }
}

/// A decoded tensor, row-major.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tensor<T> {
    pub(super) values: Vec<T>,
    pub(super) shape: Shape,
}

/// What tensors are made of.
pub(super) trait Element: Copy {
    /// For messages.
    const WANTED: &'static str;
    /// From a plain MessagePack value.
    fn from_head(head: &Head<'_>) -> Option<Self>;
    /// Append those that small integers stand for, if they stand for any.
    fn extend_from_integers(bytes: &[u8], out: &mut Vec<Self>) -> bool;
    /// Append the elements of a numpy array, little endian; the outer error says that the type does not fit, the inner one
    /// which element's bytes do not.
    fn extend(dtype: Dtype, bytes: &[u8], out: &mut Vec<Self>) -> Result<Result<(), usize>, ()>;
}

/// Append one element of `N` bytes after the other: a copy at the speed of memory, wherever the bytes begin.
fn extend_from<const N: usize, T>(bytes: &[u8], out: &mut Vec<T>, element: impl Fn([u8; N]) -> T) {
    let (elements, _) = bytes.as_chunks::<N>();
    out.extend(elements.iter().map(|&bytes| element(bytes)));
}

/// Append booleans, each a byte of 0 or 1.
fn extend_from_flags<T>(bytes: &[u8], out: &mut Vec<T>, element: impl Fn(bool) -> T) -> Result<(), usize> {
    if let Some(at) = bytes.iter().position(|&byte| byte > 1) {
        return Err(at);
    }
    out.extend(bytes.iter().map(|&byte| element(byte == 1)));
    Ok(())
}

impl Element for f64 {
    const WANTED: &'static str = "numbers";

    fn from_head(head: &Head<'_>) -> Option<Self> {
        match *head {
            Head::Float(v) => Some(v),
            Head::Uint(v) => Some(v as f64),
            Head::Int(v) => Some(v as f64),
            _ => None,
        }
    }

    fn extend_from_integers(bytes: &[u8], out: &mut Vec<Self>) -> bool {
        out.extend(bytes.iter().map(|&byte| Self::from(byte as i8)));
        true
    }

    fn extend(dtype: Dtype, bytes: &[u8], out: &mut Vec<Self>) -> Result<Result<(), usize>, ()> {
        match dtype {
            Dtype::F8 => extend_from(bytes, out, Self::from_le_bytes),
            Dtype::F4 => extend_from(bytes, out, |b| Self::from(f32::from_le_bytes(b))),
            Dtype::I8 => extend_from(bytes, out, |b| i64::from_le_bytes(b) as Self),
            Dtype::I4 => extend_from(bytes, out, |b| Self::from(i32::from_le_bytes(b))),
            Dtype::B1 => return Ok(extend_from_flags(bytes, out, Self::from)),
        }
        Ok(Ok(()))
    }
}

impl Element for bool {
    const WANTED: &'static str = "booleans";

    fn from_head(head: &Head<'_>) -> Option<Self> {
        match *head {
            Head::Bool(v) => Some(v),
            _ => None,
        }
    }

    fn extend_from_integers(_: &[u8], _: &mut Vec<Self>) -> bool {
        false
    }

    fn extend(dtype: Dtype, bytes: &[u8], out: &mut Vec<Self>) -> Result<Result<(), usize>, ()> {
        if dtype == Dtype::B1 { Ok(extend_from_flags(bytes, out, |flag| flag)) } else { Err(()) }
    }
}

/// Element types of numpy arrays that are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dtype {
    F8,
    F4,
    I8,
    I4,
    B1,
}

impl Dtype {
    fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"<f8" => Self::F8,
            b"<f4" => Self::F4,
            b"<i8" => Self::I8,
            b"<i4" => Self::I4,
            b"|b1" => Self::B1,
            _ => return None,
        })
    }

    fn size(self) -> usize {
        match self {
            Self::F8 | Self::I8 => 8,
            Self::F4 | Self::I4 => 4,
            Self::B1 => 1,
        }
    }
}

/// `kind` is not among the keys: it is ignored.
const NUMPY_KEYS: [&str; 4] = ["nd", "type", "shape", "data"];

struct Numpy<'a> {
    dtype: Dtype,
    shape: Shape,
    data: &'a [u8],
}

impl<'a> Numpy<'a> {
    /// Read the pairs of a numpy map that is the value of `field` or part of it.
    fn read(field: &Field<'a>, reader: &mut Reader<'a>, pairs: usize) -> Result<Self, WireError> {
        let wrong = |message: &str| WireError::of(ErrorCode::WrongType, field.name, message);
        let mut map = Fields::new(&NUMPY_KEYS, "");
        map.read_pairs(reader, pairs, true).map_err(|e| WireError { field: Some(field.name), ..e })?;
        let head = |key: &str| {
            let value = map.get(key).ok_or_else(|| wrong(&format!("a map here is a numpy array with `{key}`")))?;
            value.head()
        };
        let Head::Bool(is_array) = head("nd")? else { return Err(wrong("`nd` of a numpy array is a boolean")) };
        let (Head::Str(name) | Head::Bin(name)) = head("type")? else {
            return Err(wrong("`type` of a numpy array is a string"));
        };
        let Some(dtype) = Dtype::named(name) else {
            let name = super::excerpt(&String::from_utf8_lossy(name));
            return Err(wrong(&format!("numpy arrays here are of type <f8, <f4, <i8, <i4 or |b1, not {name}")));
        };
        let Head::Bin(data) = head("data")? else { return Err(wrong("`data` of a numpy array is binary")) };
        let shape = if is_array {
            let Head::Array(axes) = head("shape")? else { return Err(wrong("`shape` of a numpy array is an array")) };
            let mut reader = map.get("shape").expect("its head was read").reader();
            reader.head()?;
            if axes > 2 {
                let message = format!("has {axes} axes, at most two make sense");
                return Err(WireError::of(ErrorCode::WrongShape, field.name, message));
            }
            let mut lengths = [0usize; 2];
            for length in &mut lengths[..axes] {
                let Head::Uint(value) = reader.head()? else {
                    return Err(wrong("`shape` of a numpy array holds integers from 0"));
                };
                *length = usize::try_from(value).unwrap_or(usize::MAX);
            }
            match axes {
                0 => Shape::Scalar,
                1 => Shape::Vector(lengths[0]),
                _ => Shape::Matrix(lengths[0], lengths[1]),
            }
        } else {
            Shape::Scalar
        };
        let bytes = shape.len().and_then(|len| len.checked_mul(dtype.size()));
        if bytes != Some(data.len()) {
            let message = format!("the shape of the numpy array does not fit its {} bytes of data", data.len());
            return Err(WireError::of(ErrorCode::WrongShape, field.name, message));
        }
        Ok(Self { dtype, shape, data })
    }

    fn tensor<T: Element>(&self, field: &Field<'_>, mut values: Vec<T>) -> Result<Tensor<T>, WireError> {
        match T::extend(self.dtype, self.data, &mut values) {
            Ok(Ok(())) => Ok(Tensor { values, shape: self.shape }),
            Ok(Err(at)) => {
                let width = self.shape.rows_and_width().1.max(1);
                Err(WireError::of(ErrorCode::OutOfRange, field.name, "bytes of a |b1 array are 0 or 1").at(at / width))
            }
            Err(()) => {
                let message = format!("must be {}, is a numpy array of another type", T::WANTED);
                Err(WireError::of(ErrorCode::WrongType, field.name, message))
            }
        }
    }
}

/// Append the small integers that come next, at most `most`; how many those were.
fn take_integers<T: Element>(reader: &mut Reader<'_>, most: usize, out: &mut Vec<T>) -> usize {
    let before = *reader;
    let run = reader.small_integers(most);
    if run.is_empty() || T::extend_from_integers(run, out) {
        return run.len();
    }
    *reader = before;
    0
}

impl<'a> Field<'a> {
    /// Rows, and numbers per row by the first of them alone, if it is an array; none where this is no array.
    pub(super) fn claims(&self) -> Option<(usize, Option<usize>)> {
        let mut reader = self.reader();
        match reader.head().ok()? {
            Head::Array(rows) => match reader.head() {
                Ok(Head::Array(width)) if rows > 0 => Some((rows, Some(width))),
                _ => Some((rows, None)),
            },
            Head::Map(pairs) => match Numpy::read(self, &mut reader, pairs).ok()?.shape {
                Shape::Matrix(rows, width) => Some((rows, Some(width))),
                Shape::Vector(rows) => Some((rows, None)),
                Shape::Scalar => None,
            },
            _ => None,
        }
    }

    /// One element: a plain value or a numpy scalar.
    fn element<T: Element>(&self, reader: &mut Reader<'a>) -> Result<T, WireError> {
        let head = reader.head()?;
        self.element_from(head, reader)
    }

    /// The same where its head has been read.
    fn element_from<T: Element>(&self, head: Head<'a>, reader: &mut Reader<'a>) -> Result<T, WireError> {
        if let Some(value) = T::from_head(&head) {
            return Ok(value);
        }
        let Head::Map(pairs) = head else {
            let message = format!("must be {}, holds {}", T::WANTED, head.kind());
            return Err(WireError::of(ErrorCode::WrongType, self.name, message));
        };
        let numpy = Numpy::read(self, reader, pairs)?;
        if numpy.shape != Shape::Scalar {
            let message = format!("has {} inside another", numpy.shape.words());
            return Err(WireError::of(ErrorCode::WrongShape, self.name, message));
        }
        Ok(numpy.tensor::<T>(self, Vec::new())?.values[0])
    }

    /// A tensor of any of the shapes, in either form; its numbers go into the memory of `spare`, straight from the message.
    pub(super) fn tensor<T: Element>(&self, mut spare: Vec<T>) -> Result<Tensor<T>, WireError> {
        spare.clear();
        let mut reader = self.reader();
        match reader.head()? {
            Head::Array(rows) => self.nested(&mut reader, rows, spare),
            Head::Map(pairs) => Numpy::read(self, &mut reader, pairs)?.tensor(self, spare),
            _ => {
                spare.push(self.element(&mut self.reader())?);
                Ok(Tensor { values: spare, shape: Shape::Scalar })
            }
        }
    }

    fn nested<T: Element>(
        &self,
        reader: &mut Reader<'a>,
        rows: usize,
        mut values: Vec<T>,
    ) -> Result<Tensor<T>, WireError> {
        let wrong_shape = |message: String| WireError::of(ErrorCode::WrongShape, self.name, message);
        let width_of = |reader: &mut Reader<'a>| match reader.head()? {
            Head::Array(width) => Ok(Some(width)),
            _ => Ok::<_, WireError>(None),
        };
        let first = if rows == 0 { None } else { width_of(&mut { *reader })? };
        let Some(width) = first else {
            values.reserve(rows);
            let mut k = 0;
            while k < rows {
                k += take_integers(reader, rows - k, &mut values);
                if k == rows {
                    break;
                }
                let head = reader.head()?;
                if let Head::Array(_) = head {
                    return Err(wrong_shape("mixes single values and arrays".into()).at(k));
                }
                values.push(self.element_from(head, reader).map_err(|e| e.at(k))?);
                k += 1;
            }
            return Ok(Tensor { values, shape: Shape::Vector(rows) });
        };
        // Every element takes a byte at least, so this never exceeds what a well-formed message fills.
        values.reserve(rows.saturating_mul(width).min(reader.rest().len()));
        for k in 0..rows {
            match width_of(reader)? {
                Some(w) if w == width => {}
                Some(w) => return Err(wrong_shape(format!("has {w} numbers where row 0 has {width}")).at(k)),
                None => return Err(wrong_shape("mixes arrays and single values".into()).at(k)),
            }
            let mut left = width;
            while left > 0 {
                left -= take_integers(reader, left, &mut values);
                if left == 0 {
                    break;
                }
                let head = reader.head()?;
                if let Head::Array(_) = head {
                    return Err(wrong_shape("has more than two axes".into()).at(k));
                }
                values.push(self.element_from(head, reader).map_err(|e| e.at(k))?);
                left -= 1;
            }
        }
        Ok(Tensor { values, shape: Shape::Matrix(rows, width) })
    }

    fn misshapen(&self, wanted: &str, shape: Shape) -> WireError {
        WireError::of(ErrorCode::WrongShape, self.name, format!("must be {wanted}, has {}", shape.words()))
    }

    /// One number or flag.
    pub(super) fn scalar<T: Element>(&self) -> Result<T, WireError> {
        if let Some(value) = T::from_head(&self.head()?) {
            return Ok(value);
        }
        match self.tensor(Vec::<T>::new())? {
            Tensor { values, shape: Shape::Scalar } => Ok(values[0]),
            Tensor { shape, .. } => Err(self.misshapen("a single value", shape)),
        }
    }

    /// (n,), in the memory of `spare`.
    pub(super) fn vector<T: Element>(&self, spare: Vec<T>) -> Result<Vec<T>, WireError> {
        match self.tensor(spare)? {
            Tensor { values, shape: Shape::Vector(_) } => Ok(values),
            Tensor { shape, .. } => Err(self.misshapen("an array with one axis", shape)),
        }
    }

    /// (n, width): rows, width and numbers, in the memory of `spare`. An empty list has no second axis and counts as (0, 0).
    pub(super) fn matrix(&self, spare: Vec<f64>) -> Result<(usize, usize, Vec<f64>), WireError> {
        match self.tensor(spare)? {
            Tensor { values, shape: Shape::Matrix(rows, width) } => Ok((rows, width, values)),
            Tensor { values, shape: Shape::Vector(0) } => Ok((0, 0, values)),
            Tensor { shape, .. } => Err(self.misshapen("an array with two axes", shape)),
        }
    }

    /// An integer from 0: plain or as a numpy scalar.
    pub(super) fn uint(&self) -> Result<u64, WireError> {
        let mut reader = self.reader();
        let negative = || WireError::of(ErrorCode::OutOfRange, self.name, "must not be negative");
        match reader.head()? {
            Head::Uint(value) => Ok(value),
            Head::Int(_) => Err(negative()),
            Head::Map(pairs) => match Numpy::read(self, &mut reader, pairs)? {
                Numpy { shape: Shape::Scalar, dtype: Dtype::I8, data } => {
                    let value = i64::from_le_bytes(data.try_into().expect("as long as its type"));
                    u64::try_from(value).map_err(|_| negative())
                }
                Numpy { shape: Shape::Scalar, dtype: Dtype::I4, data } => {
                    let value = i32::from_le_bytes(data.try_into().expect("as long as its type"));
                    u64::try_from(value).map_err(|_| negative())
                }
                _ => Err(WireError::of(ErrorCode::WrongType, self.name, "must be an integer, is another numpy type")),
            },
            other => Err(self.wrong_type("an integer", &other)),
        }
    }
}

/// A tensor to be written.
pub(super) struct WrittenTensor<'a> {
    form: ArrayForm,
    rows: usize,
    /// None for a vector.
    width: Option<usize>,
    value: Box<dyn Fn(usize, usize) -> f64 + 'a>,
}

impl<'a> WrittenTensor<'a> {
    /// (rows, width), element by element.
    pub(super) fn of(rows: usize, width: usize, value: impl Fn(usize, usize) -> f64 + 'a, form: ArrayForm) -> Self {
        Self { form, rows, width: Some(width), value: Box::new(value) }
    }

    /// (n, 1) as (n,), anything else as it is.
    pub(super) fn flat(self) -> Self {
        Self { width: self.width.filter(|&width| width != 1), ..self }
    }

    /// (n,).
    pub(super) fn vector(values: &'a [f64], form: ArrayForm) -> Self {
        Self::of(values.len(), 1, |i, _| values[i], form).flat()
    }

    /// (n, width) from the rows `first..` of a matrix.
    pub(super) fn matrix(values: &'a DMatrix<f64>, first: usize, form: ArrayForm) -> Self {
        assert!(first <= values.nrows(), "the matrix has the rows that are left out");
        Self::of(values.nrows() - first, values.ncols(), move |i, j| values[(first + i, j)], form)
    }

    /// (n,) if the matrix has one column, else (n, columns): how values and weights of H rewards are written.
    pub(super) fn columns(values: &'a DMatrix<f64>, form: ArrayForm) -> Self {
        Self::matrix(values, 0, form).flat()
    }

    /// (k, dim) from k rows.
    pub(super) fn rows(values: &'a [Vec<f64>], dim: usize, form: ArrayForm) -> Self {
        Self::of(values.len(), dim, |i, j| values[i][j], form)
    }
}

/// Flags (n,) to be written.
pub(super) struct Flags {
    pub(super) values: Vec<bool>,
    pub(super) form: ArrayForm,
}

impl Serialize for Flags {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.form == ArrayForm::List {
            return self.values.serialize(serializer);
        }
        let data: Vec<u8> = self.values.iter().map(|&flag| u8::from(flag)).collect();
        numpy(serializer, "|b1", &[self.values.len()], &data)
    }
}

/// Byte for byte what `msgpack-numpy` writes: it knows arrays by their binary keys alone.
fn numpy<S: Serializer>(serializer: S, dtype: &str, shape: &[usize], data: &[u8]) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(5))?;
    map.serialize_entry(&Bytes(b"nd"), &true)?;
    map.serialize_entry(&Bytes(b"type"), dtype)?;
    map.serialize_entry(&Bytes(b"kind"), &Bytes(b""))?;
    map.serialize_entry(&Bytes(b"shape"), shape)?;
    map.serialize_entry(&Bytes(b"data"), &Bytes(data))?;
    map.end()
}

struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl Serialize for WrittenTensor<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let row = |i: usize| (0..self.width.unwrap_or(1)).map(move |j| (self.value)(i, j));
        match (self.form, self.width) {
            (ArrayForm::List, None) => serializer.collect_seq((0..self.rows).map(|i| (self.value)(i, 0))),
            (ArrayForm::List, Some(_)) => {
                let mut seq = serializer.serialize_seq(Some(self.rows))?;
                for i in 0..self.rows {
                    seq.serialize_element(&row(i).collect::<Vec<f64>>())?;
                }
                seq.end()
            }
            (ArrayForm::Tensor, width) => {
                let data: Vec<u8> = (0..self.rows).flat_map(row).flat_map(f64::to_le_bytes).collect();
                match width {
                    None => numpy(serializer, "<f8", &[self.rows], &data),
                    Some(width) => numpy(serializer, "<f8", &[self.rows, width], &data),
                }
            }
        }
    }
}
