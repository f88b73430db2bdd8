//! Parquet: flat columns with the names of CSV's.

use super::Fault;
use super::build::{Builder, Cell, Column, Header, Job, hint};
use ::parquet::basic::{ConvertedType, Type};
use ::parquet::column::reader::ColumnReader;
use ::parquet::errors::ParquetError;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Rows decoded at a time.
const BLOCK: usize = 8192;

pub(super) fn read(path: &Path, job: &mut Job<'_>) -> Result<Builder, Fault> {
    let file = File::open(path).map_err(Fault::Io)?;
    // The library panics at some damaged files: 13 of 4500 with one to three bits turned.
    let read = catch_unwind(AssertUnwindSafe(|| read_file(file, job)));
    read.unwrap_or_else(|_| Err(Fault::Content("the Parquet file is damaged".to_owned())))
}

fn read_file(file: File, job: &mut Job<'_>) -> Result<Builder, Fault> {
    let damaged = |e: ParquetError| Fault::Content(format!("not a Parquet file that can be read: {e}"));
    let reader = SerializedFileReader::new(file).map_err(damaged)?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let mut columns = Vec::new();
    for description in schema.columns() {
        let name = description.path().string();
        let column = match Column::parse(&name) {
            Some(column) => column,
            None if description.max_rep_level() > 0 || description.path().parts().len() > 1 => {
                let top = &description.path().parts()[0];
                let message =
                    format!("a list or a group; write its numbers as columns of their own: {top}_0, {top}_1, ...");
                return Err(Fault::column(top, message));
            }
            None => return Err(Fault::column(&name, hint(&name))),
        };
        let numbers = matches!(description.physical_type(), Type::INT32 | Type::INT64);
        let scaled = description.converted_type() == ConvertedType::DECIMAL;
        let readable = match description.physical_type() {
            Type::BOOLEAN | Type::FLOAT | Type::DOUBLE | Type::BYTE_ARRAY => !scaled,
            Type::INT32 | Type::INT64 => numbers && !scaled,
            Type::INT96 | Type::FIXED_LEN_BYTE_ARRAY => false,
        };
        if column != Column::Skipped && (!readable || description.max_rep_level() > 0) {
            let message = format!(
                "holds {} ({}); write it as a double, an integer, a flag or a text",
                description.physical_type(),
                description.converted_type()
            );
            return Err(Fault::column(&name, message));
        }
        columns.push((name, column));
    }
    if columns.is_empty() {
        return Err(Fault::Empty);
    }
    let kinds: Vec<Column> = columns.iter().map(|(_, column)| *column).collect();
    let names: Vec<String> = columns.iter().map(|(name, _)| name.clone()).collect();
    let mut builder = Builder::new(Header::new(job, columns)?, false);
    let total = reader.metadata().file_metadata().num_rows().max(1) as f64;
    let mut row = 0;
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group).map_err(damaged)?;
        let mut readers = Vec::new();
        for (k, kind) in kinds.iter().enumerate() {
            let optional = schema.column(k).max_def_level() > 0;
            let reader =
                if *kind == Column::Skipped { None } else { Some(group.get_column_reader(k).map_err(damaged)?) };
            readers.push(reader.map(|reader| (reader, optional)));
        }
        loop {
            let mut blocks = Vec::with_capacity(readers.len());
            let mut length = None;
            for (k, reader) in readers.iter_mut().enumerate() {
                let block = match reader {
                    Some((reader, optional)) => Some(Block::read(reader, *optional).map_err(damaged)?),
                    None => None,
                };
                if let Some(found) = block.as_ref().map(Block::len)
                    && *length.get_or_insert(found) != found
                {
                    return Err(Fault::column(&names[k], "has another number of rows than the columns before it"));
                }
                blocks.push(block);
            }
            let length = length.unwrap_or(0);
            for i in 0..length {
                builder.push(row, |k| blocks[k].as_ref().map_or(Cell::Empty, |block| block.cell(i)))?;
                row += 1;
                builder.advance(job, row as f64 / total)?;
            }
            if length == 0 {
                break;
            }
        }
    }
    Ok(builder)
}

/// Some rows of one column.
struct Block {
    /// Place of each row's value among the values; none where it is null.
    places: Vec<Option<usize>>,
    values: Values,
}

enum Values {
    Flags(Vec<bool>),
    Short(Vec<i32>),
    Long(Vec<i64>),
    Single(Vec<f32>),
    Double(Vec<f64>),
    Texts(Vec<String>),
}

impl Block {
    fn read(reader: &mut ColumnReader, optional: bool) -> Result<Self, ParquetError> {
        let mut levels: Vec<i16> = Vec::new();
        macro_rules! values {
            ($reader:expr) => {{
                let mut values = Vec::new();
                let levels = if optional { Some(&mut levels) } else { None };
                let (rows, ..) = $reader.read_records(BLOCK, levels, None, &mut values)?;
                (rows, values)
            }};
        }
        let (rows, values) = match reader {
            ColumnReader::BoolColumnReader(reader) => {
                let (rows, values) = values!(reader);
                (rows, Values::Flags(values))
            }
            ColumnReader::Int32ColumnReader(reader) => {
                let (rows, values) = values!(reader);
                (rows, Values::Short(values))
            }
            ColumnReader::Int64ColumnReader(reader) => {
                let (rows, values) = values!(reader);
                (rows, Values::Long(values))
            }
            ColumnReader::FloatColumnReader(reader) => {
                let (rows, values) = values!(reader);
                (rows, Values::Single(values))
            }
            ColumnReader::DoubleColumnReader(reader) => {
                let (rows, values) = values!(reader);
                (rows, Values::Double(values))
            }
            ColumnReader::ByteArrayColumnReader(reader) => {
                let (rows, values) = values!(reader);
                let text = |bytes: &::parquet::data_type::ByteArray| String::from_utf8_lossy(bytes.data()).into_owned();
                (rows, Values::Texts(values.iter().map(text).collect()))
            }
            _ => return Err(ParquetError::NYI("values of this type".to_owned())),
        };
        let places = if optional {
            let mut next = 0;
            let place = |level: &i16| {
                (*level > 0).then(|| {
                    next += 1;
                    next - 1
                })
            };
            levels.iter().map(place).collect()
        } else {
            (0..rows).map(Some).collect()
        };
        Ok(Self { places, values })
    }

    fn len(&self) -> usize {
        self.places.len()
    }

    fn cell(&self, row: usize) -> Cell<'_> {
        let Some(at) = self.places[row] else { return Cell::Empty };
        match &self.values {
            Values::Flags(v) => Cell::Flag(v[at]),
            Values::Short(v) => Cell::Whole(i64::from(v[at])),
            Values::Long(v) => Cell::Whole(v[at]),
            Values::Single(v) => Cell::Number(f64::from(v[at])),
            Values::Double(v) => Cell::Number(v[at]),
            Values::Texts(v) => Cell::Text(&v[at]),
        }
    }
}
