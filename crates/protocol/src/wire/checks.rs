//! Fields of models, read with the checks that several kinds of models share.

use super::reader::{Field, Fields, Head};
use super::tensor::Shape;
use super::{ErrorCode, WireError};
use nalgebra::DMatrix;

pub(super) fn out_of_range(field: &'static str, message: impl Into<String>) -> WireError {
    WireError::of(ErrorCode::OutOfRange, field, message)
}

/// The map that is the value of `field`.
pub(super) fn nested<'a, const N: usize>(
    field: Field<'a>,
    names: &'static [&'static str; N],
    prefix: &'static str,
) -> Result<Fields<'a, N>, WireError> {
    let mut reader = field.reader();
    match reader.head()? {
        Head::Map(pairs) => {
            let mut map = Fields::new(names, prefix);
            map.read_pairs(&mut reader, pairs, false)?;
            Ok(map)
        }
        other => Err(field.wrong_type("a map", &other)),
    }
}

fn check_finite(field: &'static str, values: &[f64], width: usize) -> Result<(), WireError> {
    match values.iter().position(|v| !v.is_finite()) {
        Some(k) => {
            let message = format!("{} is not a finite number", values[k]);
            Err(WireError::of(ErrorCode::NotFinite, field, message).at(k / width))
        }
        None => Ok(()),
    }
}

pub(super) fn check_count(field: &'static str, found: usize, wanted: usize) -> Result<(), WireError> {
    if found != wanted {
        return Err(WireError::of(ErrorCode::WrongShape, field, format!("must have {wanted} rows, has {found}")));
    }
    Ok(())
}

pub(super) fn number(field: Field<'_>) -> Result<f64, WireError> {
    let value: f64 = field.scalar()?;
    if !value.is_finite() {
        return Err(WireError::of(ErrorCode::NotFinite, field.name, format!("{value} is not a finite number")));
    }
    Ok(value)
}

/// A number in [0, 1].
pub(super) fn share(field: Field<'_>) -> Result<f64, WireError> {
    let value = number(field)?;
    if (0.0..=1.0).contains(&value) {
        return Ok(value);
    }
    Err(out_of_range(field.name, format!("must lie in [0, 1], is {value}")))
}

pub(super) fn positive(field: Field<'_>) -> Result<f64, WireError> {
    let value = number(field)?;
    if value > 0.0 { Ok(value) } else { Err(out_of_range(field.name, format!("must be positive, is {value}"))) }
}

pub(super) fn finite_vector(field: Field<'_>) -> Result<Vec<f64>, WireError> {
    let values = field.vector(Vec::new())?;
    check_finite(field.name, &values, 1)?;
    Ok(values)
}

/// (n, width); an empty list will do for no rows.
pub(super) fn rows(field: Field<'_>, width: usize) -> Result<(usize, DMatrix<f64>), WireError> {
    let (rows, found, values) = field.matrix(Vec::new())?;
    if rows > 0 && found != width {
        let message = format!("must have {width} numbers per row, has {found}");
        return Err(WireError::of(ErrorCode::WrongShape, field.name, message));
    }
    check_finite(field.name, &values, width.max(1))?;
    Ok((rows, DMatrix::from_row_slice(rows, width, &values)))
}

/// (m,) or (m, H).
pub(super) fn weights(field: Field<'_>, size: usize) -> Result<DMatrix<f64>, WireError> {
    let tensor = field.tensor(Vec::new())?;
    let (rows, width) = tensor.shape.rows_and_width();
    if tensor.shape == Shape::Scalar || width == 0 {
        let message = "must have one number or array per row of the dictionary";
        return Err(WireError::of(ErrorCode::WrongShape, field.name, message));
    }
    check_count(field.name, rows, size)?;
    check_finite(field.name, &tensor.values, width)?;
    Ok(DMatrix::from_row_slice(rows, width, &tensor.values))
}

pub(super) fn names(field: Field<'_>) -> Result<Vec<String>, WireError> {
    let mut reader = field.reader();
    match reader.head()? {
        Head::Array(len) => (0..len)
            .map(|i| Field::new(field.name, reader.value()?).string().map(str::to_owned).map_err(|e| e.at(i)))
            .collect(),
        other => Err(field.wrong_type("an array of strings", &other)),
    }
}
