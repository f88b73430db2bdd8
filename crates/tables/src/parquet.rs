//! Parquet: columns with the names of CSV's, of numbers or of lists that are equally long.

use super::Fault;
use super::build::Builder;
use super::cell::Cell;
use super::job::Job;
use super::lerobot;
use super::roles::{Roles, Source, assign};
use super::schema::Schema;
use ::parquet::basic::{Compression, ConvertedType, LogicalType, Type};
use ::parquet::column::reader::ColumnReader;
use ::parquet::errors::ParquetError;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::schema::types::{ColumnDescriptor, SchemaDescPtr, SchemaDescriptor};
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Rows decoded at a time.
const BLOCK: usize = 8192;

pub(super) fn read(path: &Path, job: &mut Job<'_>) -> Result<Builder, Fault> {
    let files = lerobot::files(path)?;
    let mut reading = None;
    for (k, file) in files.iter().enumerate() {
        let opened = File::open(file).map_err(Fault::Io);
        let part = (k as f64 / files.len() as f64, 1.0 / files.len() as f64);
        // The library panics at some damaged files: 13 of 4500 with one to three bits turned.
        let mut take = |file| catch_unwind(AssertUnwindSafe(|| take(&mut reading, file, job, part)));
        let taken = opened.and_then(|file| take(file).unwrap_or_else(|_| Err(Fault::Content(DAMAGED.to_owned()))));
        taken.map_err(|fault| if file == path { fault } else { lerobot::within(path, file, fault) })?;
    }
    reading.map(|reading: Reading| reading.builder).ok_or(Fault::Empty)
}

const DAMAGED: &str = "the Parquet file is damaged";

fn damaged(e: ParquetError) -> Fault {
    Fault::Content(format!("not a Parquet file that can be read: {e}"))
}

/// A table on its way in, from one file or several with the same columns.
struct Reading {
    schema: SchemaDescPtr,
    sources: Vec<Source>,
    /// Of each source whether anything needs it.
    used: Vec<bool>,
    /// Where the columns are that the builder wants: source, and number of the row.
    at: Vec<(usize, usize)>,
    builder: Builder,
    /// Rows so far.
    row: u64,
}

/// Take in a file, the first one with what its columns are; it is the `part` of the work that begins there and is so long.
fn take(reading: &mut Option<Reading>, file: File, job: &mut Job<'_>, part: (f64, f64)) -> Result<(), Fault> {
    let reader = SerializedFileReader::new(file).map_err(damaged)?;
    check_compression(&reader)?;
    match reading {
        None => reading.insert(Reading::new(&reader, job)?),
        Some(reading) => reading.check_same(&reader).map(|()| reading)?,
    }
    .take(&reader, job, part)
}

impl Reading {
    fn new(reader: &SerializedFileReader<File>, job: &Job<'_>) -> Result<Self, Fault> {
        let schema = reader.metadata().file_metadata().schema_descr_ptr();
        if schema.num_columns() == 0 {
            return Err(Fault::Empty);
        }
        let mut sources = Vec::new();
        for (k, description) in schema.columns().iter().enumerate() {
            let list = description.max_rep_level() == 1;
            let name = if list { description.path().parts()[0].clone() } else { description.path().string() };
            let width = if list { Some(width(reader, k).map_err(damaged)?) } else { None };
            sources.push(Source::new(&name, width));
        }
        let mut roles = assign(job, &sources)?;
        roles.look_away(|k| unreadable(&schema.column(k)).is_some());
        check_readable(&schema, &sources, &roles)?;
        let (columns, at) = roles.columns(&sources, job.format)?;
        let used: Vec<bool> = roles.of.iter().map(|roles| !roles.is_empty()).collect();
        let builder = Builder::new(Schema::new(job, columns, roles)?, false);
        Ok(Self { schema, sources, used, at, builder, row: 0 })
    }

    /// Whether a further file has the columns of the first one, in their order.
    fn check_same(&self, reader: &SerializedFileReader<File>) -> Result<(), Fault> {
        let schema = reader.metadata().file_metadata().schema_descr_ptr();
        let kind = |column: &ColumnDescriptor| {
            (column.path().string(), column.physical_type(), column.max_def_level(), column.max_rep_level())
        };
        let (first, other) = (self.schema.columns().iter(), schema.columns().iter());
        if first.map(|column| kind(column)).eq(other.map(|column| kind(column))) {
            return Ok(());
        }
        Err(Fault::Content("has other columns than the first file of the folder".to_owned()))
    }

    /// Take in the rows of a file.
    fn take(&mut self, reader: &SerializedFileReader<File>, job: &mut Job<'_>, part: (f64, f64)) -> Result<(), Fault> {
        let Self { schema, sources, used, at, builder, row } = self;
        let total = reader.metadata().file_metadata().num_rows().max(1) as f64;
        let first = *row;
        for group in 0..reader.num_row_groups() {
            let group = reader.get_row_group(group).map_err(damaged)?;
            let mut readers = Vec::new();
            for (k, used) in used.iter().enumerate() {
                let reader = if *used { Some(group.get_column_reader(k).map_err(damaged)?) } else { None };
                readers.push(reader);
            }
            loop {
                let mut blocks = Vec::with_capacity(readers.len());
                let mut length = None;
                for (k, reader) in readers.iter_mut().enumerate() {
                    let block = match reader {
                        Some(reader) => {
                            let block =
                                ColumnBlock::read(reader, &schema.column(k), sources[k].width).map_err(damaged)?;
                            let wrong = |(i, found)| Fault::Cell {
                                row: *row + i,
                                column: sources[k].name.clone(),
                                message: format!(
                                    "has {found} numbers, the first row has {}; they must agree",
                                    sources[k].width.unwrap_or(1)
                                ),
                            };
                            Some(block.map_err(wrong)?)
                        }
                        None => None,
                    };
                    if let Some(found) = block.as_ref().map(ColumnBlock::len)
                        && *length.get_or_insert(found) != found
                    {
                        return Err(Fault::column(
                            &sources[k].name,
                            "has another number of rows than the columns before it",
                        ));
                    }
                    blocks.push(block);
                }
                let length = length.unwrap_or(0);
                for i in 0..length {
                    builder.push(*row, |column| {
                        let (source, k) = at[column];
                        blocks[source].as_ref().map_or(Cell::Empty, |block| block.cell(i, k))
                    })?;
                    *row += 1;
                    builder.advance(job, part.0 + part.1 * (*row - first) as f64 / total)?;
                }
                if length == 0 {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Whether the file is compressed in a way that can be read.
fn check_compression(reader: &SerializedFileReader<File>) -> Result<(), Fault> {
    let chunks = reader.metadata().row_groups().iter().flat_map(|group| group.columns());
    let unread =
        |found: &Compression| !matches!(found, Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::ZSTD(_));
    match chunks.map(|chunk| chunk.compression()).find(unread) {
        None => Ok(()),
        Some(found) => Err(Fault::Content(format!(
            "compressed with {}, which this program cannot read; write it with snappy or zstd: \
             pandas.read_parquet(\"OLD\").to_parquet(\"NEW\")",
            found.to_string().to_lowercase().split('(').next().unwrap_or_default()
        ))),
    }
}

/// Whether the columns that are needed hold what can be read.
fn check_readable(schema: &SchemaDescriptor, sources: &[Source], roles: &Roles) -> Result<(), Fault> {
    for (k, description) in schema.columns().iter().enumerate().filter(|(k, _)| !roles.of[*k].is_empty()) {
        let lists = description.max_rep_level() > 1;
        if let Some(what) = unreadable(description).or(lists.then_some("lists of lists")) {
            let name = &sources[k].name;
            let message = format!(
                "holds {what}; write doubles, integers, flags or texts, or lists of them. In Python: table = pandas.read_parquet(\"OLD\"); \
                 table[{name:?}] = table[{name:?}].astype(float); table.to_parquet(\"NEW.parquet\")"
            );
            return Err(Fault::column(&sources[k].name, message));
        }
    }
    Ok(())
}

/// What a column holds, if that cannot be read.
fn unreadable(description: &ColumnDescriptor) -> Option<&'static str> {
    match (description.physical_type(), description.converted_type()) {
        (_, ConvertedType::DECIMAL) => Some("decimals"),
        (Type::INT96, _) => Some("timestamps of 96 bits"),
        (Type::FIXED_LEN_BYTE_ARRAY, _) if description.logical_type_ref() == Some(&LogicalType::Float16) => {
            Some("16-bit floats")
        }
        (Type::FIXED_LEN_BYTE_ARRAY, _) => Some("bytes of a fixed number"),
        _ => None,
    }
}

/// How many numbers the first row of a column of lists has that has any.
fn width(reader: &SerializedFileReader<File>, column: usize) -> Result<usize, ParquetError> {
    let description = reader.metadata().file_metadata().schema_descr().column(column);
    for group in 0..reader.num_row_groups() {
        let mut values = reader.get_row_group(group)?.get_column_reader(column)?;
        let (_, repetitions, _, _) = Levels::read(&mut values, &description, 1)?;
        if !repetitions.is_empty() {
            return Ok(repetitions.len());
        }
    }
    Ok(0)
}

/// Some rows of one column.
struct ColumnBlock {
    /// Numbers in a row.
    width: usize,
    /// Place of each number among the values, row by row; none where it is null.
    places: Vec<Option<usize>>,
    values: ParquetValues,
}

enum ParquetValues {
    Flags(Vec<bool>),
    Short(Vec<i32>),
    Long(Vec<i64>),
    Counts(Vec<u64>),
    Single(Vec<f32>),
    Double(Vec<f64>),
    Texts(Vec<String>),
}

/// What a column says about which of its values are where: definition levels, repetition levels, rows, values.
struct Levels;

impl Levels {
    fn read(
        reader: &mut ColumnReader,
        description: &ColumnDescriptor,
        rows: usize,
    ) -> Result<(Vec<i16>, Vec<i16>, usize, ParquetValues), ParquetError> {
        let (mut levels, mut repetitions): (Vec<i16>, Vec<i16>) = (Vec::new(), Vec::new());
        macro_rules! values {
            ($reader:expr) => {{
                let mut values = Vec::new();
                let levels = if description.max_def_level() > 0 { Some(&mut levels) } else { None };
                let repetitions = if description.max_rep_level() > 0 { Some(&mut repetitions) } else { None };
                let (rows, ..) = $reader.read_records(rows, levels, repetitions, &mut values)?;
                (rows, values)
            }};
        }
        let (rows, values) = match reader {
            ColumnReader::BoolColumnReader(reader) => {
                let (rows, values) = values!(reader);
                (rows, ParquetValues::Flags(values))
            }
            ColumnReader::Int32ColumnReader(reader) => {
                let (rows, values) = values!(reader);
                let unsigned = description.converted_type() == ConvertedType::UINT_32;
                let counts = || values.iter().map(|&value: &i32| u64::from(value as u32)).collect();
                (rows, if unsigned { ParquetValues::Counts(counts()) } else { ParquetValues::Short(values) })
            }
            ColumnReader::Int64ColumnReader(reader) => {
                let (rows, values) = values!(reader);
                let unsigned = description.converted_type() == ConvertedType::UINT_64;
                let counts = || values.iter().map(|&value: &i64| value as u64).collect();
                (rows, if unsigned { ParquetValues::Counts(counts()) } else { ParquetValues::Long(values) })
            }
            ColumnReader::FloatColumnReader(reader) => {
                let (rows, values) = values!(reader);
                (rows, ParquetValues::Single(values))
            }
            ColumnReader::DoubleColumnReader(reader) => {
                let (rows, values) = values!(reader);
                (rows, ParquetValues::Double(values))
            }
            ColumnReader::ByteArrayColumnReader(reader) => {
                let (rows, values) = values!(reader);
                let text = |bytes: &::parquet::data_type::ByteArray| String::from_utf8_lossy(bytes.data()).into_owned();
                (rows, ParquetValues::Texts(values.iter().map(text).collect()))
            }
            // Of what is read no further, only how long its lists are.
            _ => (0, ParquetValues::Flags(Vec::new())),
        };
        Ok((levels, repetitions, rows, values))
    }
}

impl ColumnBlock {
    /// The next rows; or of the first row with another number of numbers than `width`, its place among them and that number.
    fn read(
        reader: &mut ColumnReader,
        description: &ColumnDescriptor,
        width: Option<usize>,
    ) -> Result<Result<Self, (u64, usize)>, ParquetError> {
        let (levels, repetitions, rows, values) = Levels::read(reader, description, BLOCK)?;
        let full = description.max_def_level();
        let places: Vec<Option<usize>> = if full > 0 {
            let mut next = 0;
            let place = |level: &i16| {
                (*level == full).then(|| {
                    next += 1;
                    next - 1
                })
            };
            levels.iter().map(place).collect()
        } else {
            (0..if width.is_some() { repetitions.len() } else { rows }).map(Some).collect()
        };
        let Some(width) = width else { return Ok(Ok(Self { width: 1, places, values })) };
        let starts: Vec<usize> = (0..repetitions.len()).filter(|&i| repetitions[i] == 0).collect();
        let ends = starts.iter().skip(1).copied().chain([repetitions.len()]);
        let mut laid_out = Vec::with_capacity(places.len());
        for (i, (&start, end)) in starts.iter().zip(ends).enumerate() {
            match &places[start..end] {
                // A row that is null as a whole.
                [None] => laid_out.extend(std::iter::repeat_n(None, width)),
                row if row.len() == width => laid_out.extend_from_slice(row),
                row => return Ok(Err((i as u64, row.len()))),
            }
        }
        Ok(Ok(Self { width, places: laid_out, values }))
    }

    fn len(&self) -> usize {
        self.places.len() / self.width.max(1)
    }

    fn cell(&self, row: usize, k: usize) -> Cell<'_> {
        let Some(at) = self.places[row * self.width + k] else { return Cell::Empty };
        match &self.values {
            ParquetValues::Flags(v) => Cell::Flag(v[at]),
            ParquetValues::Short(v) => Cell::Whole(v[at].into()),
            ParquetValues::Long(v) => Cell::Whole(v[at].into()),
            ParquetValues::Counts(v) => Cell::Whole(v[at].into()),
            ParquetValues::Single(v) => Cell::Number(f64::from(v[at])),
            ParquetValues::Double(v) => Cell::Number(v[at]),
            ParquetValues::Texts(v) => Cell::Text(&v[at]),
        }
    }
}
