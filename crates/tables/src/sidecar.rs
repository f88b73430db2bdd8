//! Columns on their way into a file: CSV, JSONL, NPZ or Parquet, by the ending of its name. However many rows there are, only
//! one piece of them is in memory.

use super::{Fault, Format, TableError};
use serde_json::Value;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// One column, or a piece of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// NaN stands for what is not known.
    Numbers(Vec<f64>),
    /// Whole numbers.
    Whole(Vec<i64>),
    /// Whole numbers from 0 up.
    Counts(Vec<u64>),
    /// True or false.
    Flags(Vec<bool>),
    /// Texts.
    Texts(Vec<String>),
}

impl Values {
    fn len(&self) -> usize {
        match self {
            Self::Numbers(values) => values.len(),
            Self::Whole(values) => values.len(),
            Self::Counts(values) => values.len(),
            Self::Flags(values) => values.len(),
            Self::Texts(values) => values.len(),
        }
    }

    /// Those at these places.
    #[must_use]
    pub fn taken(&self, places: &[usize]) -> Self {
        fn of<T: Clone>(values: &[T], places: &[usize]) -> Vec<T> {
            places.iter().map(|&place| values[place].clone()).collect()
        }
        match self {
            Self::Numbers(values) => Self::Numbers(of(values, places)),
            Self::Whole(values) => Self::Whole(of(values, places)),
            Self::Counts(values) => Self::Counts(of(values, places)),
            Self::Flags(values) => Self::Flags(of(values, places)),
            Self::Texts(values) => Self::Texts(of(values, places)),
        }
    }

    pub(super) fn clear(&mut self) {
        match self {
            Self::Numbers(values) => values.clear(),
            Self::Whole(values) => values.clear(),
            Self::Counts(values) => values.clear(),
            Self::Flags(values) => values.clear(),
            Self::Texts(values) => values.clear(),
        }
    }
}

/// Write columns, equally long, with their names: all of the file or nothing. In Parquet the file says `about` itself what these keys and
/// texts say; other formats have no place for it.
///
/// # Errors
/// If the name ends in none of `.csv`, `.jsonl`, `.npz`, `.parquet`, or writing fails.
///
/// # Panics
/// If columns are of different lengths.
pub fn write_columns(path: &Path, columns: &[(String, Values)], about: &[(String, String)]) -> Result<(), TableError> {
    let (names, values): (Vec<_>, Vec<_>) = columns.iter().cloned().unzip();
    let shapes = names.into_iter().map(|name| (name, None)).collect();
    let mut writer = ColumnsWriter::create(path, shapes)?;
    #[cfg(feature = "parquet")]
    if let Sink::Parquet(sink) = &mut writer.sink {
        sink.about = about.to_vec();
    }
    #[cfg(not(feature = "parquet"))]
    let _ = about;
    writer.write(&values)?;
    writer.finish().map(drop)
}

/// A file that grows by pieces of columns. It has its name once it is whole: what is not finished is removed.
pub(super) struct ColumnsWriter {
    path: PathBuf,
    part: PathBuf,
    /// Name of each column, and how many numbers its rows have if those are lists.
    columns: Vec<(String, Option<usize>)>,
    sink: Sink,
    rows: u64,
    finished: bool,
}

enum Sink {
    Csv(Box<::csv::Writer<File>>),
    Jsonl(BufWriter<File>),
    Npz(Vec<Spool>),
    #[cfg(feature = "parquet")]
    Parquet(Box<parquet::Sink>),
}

impl ColumnsWriter {
    /// Begin a file with columns of these names, and numbers per row of those that hold lists: in NPZ and JSONL only.
    ///
    /// # Errors
    /// If the ending of the name is none of those above, or the file cannot be made.
    pub(super) fn create(path: &Path, columns: Vec<(String, Option<usize>)>) -> Result<Self, TableError> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".part");
        let part = path.with_file_name(name);
        let sink = Sink::create(path, &part, &columns);
        let sink = sink.map_err(|fault| TableError { path: path.to_owned(), fault })?;
        Ok(Self { path: path.to_owned(), part, columns, sink, rows: 0, finished: false })
    }

    /// Numbers in each row of column k.
    pub(super) fn width(&self, k: usize) -> usize {
        self.columns[k].1.unwrap_or(1)
    }

    /// Append a piece: values of every column in the order of their names, equally many rows.
    ///
    /// # Errors
    /// If writing fails.
    ///
    /// # Panics
    /// If columns are of different lengths.
    pub(super) fn write(&mut self, piece: &[Values]) -> Result<(), TableError> {
        let rows = self.columns.first().map_or(0, |(_, width)| piece[0].len() / width.unwrap_or(1));
        let fits =
            |((_, width), values): (&(String, Option<usize>), &Values)| values.len() == rows * width.unwrap_or(1);
        assert!(self.columns.len() == piece.len() && self.columns.iter().zip(piece).all(fits), "equally long columns");
        self.rows += rows as u64;
        let written = match &mut self.sink {
            Sink::Csv(writer) => csv_rows(writer, piece, rows),
            Sink::Jsonl(writer) => jsonl_rows(writer, &self.columns, piece, rows),
            Sink::Npz(spools) => spools.iter_mut().zip(piece).try_for_each(|(spool, values)| spool.write(values)),
            #[cfg(feature = "parquet")]
            Sink::Parquet(sink) => sink.write(piece),
        };
        written.map_err(|fault| TableError { path: self.path.clone(), fault })
    }

    /// Complete the file, on the disk as well. Returns its rows.
    ///
    /// # Errors
    /// If writing fails.
    pub(super) fn finish(mut self) -> Result<u64, TableError> {
        let rows = self.rows;
        let completed = match &mut self.sink {
            Sink::Csv(writer) => writer.flush().and_then(|()| writer.get_ref().sync_all()).map_err(Fault::Io),
            Sink::Jsonl(writer) => writer.flush().and_then(|()| writer.get_ref().sync_all()).map_err(Fault::Io),
            Sink::Npz(spools) => npz_archive(&self.part, &self.columns, spools, rows),
            #[cfg(feature = "parquet")]
            Sink::Parquet(sink) => sink.finish(),
        };
        let renamed = completed.and_then(|()| std::fs::rename(&self.part, &self.path).map_err(Fault::Io));
        renamed.map_err(|fault| TableError { path: self.path.clone(), fault })?;
        self.finished = true;
        Ok(rows)
    }
}

impl Drop for ColumnsWriter {
    fn drop(&mut self) {
        // What cannot be removed is named as a part, and is overwritten by the next attempt.
        if !self.finished {
            drop(std::fs::remove_file(&self.part));
        }
        if let Sink::Npz(spools) = &self.sink {
            spools.iter().for_each(|spool| drop(std::fs::remove_file(&spool.path)));
        }
    }
}

impl Sink {
    fn create(path: &Path, part: &Path, columns: &[(String, Option<usize>)]) -> Result<Self, Fault> {
        let flat = || assert!(columns.iter().all(|(_, width)| width.is_none()), "one column for each number");
        match Format::of(path) {
            Some(Format::Csv) => {
                flat();
                let mut writer = ::csv::Writer::from_path(part)?;
                writer.write_record(columns.iter().map(|(name, _)| name))?;
                Ok(Self::Csv(Box::new(writer)))
            }
            Some(Format::Jsonl) => Ok(Self::Jsonl(BufWriter::new(File::create(part).map_err(Fault::Io)?))),
            Some(Format::Npz) => {
                let spool = |k| Spool::create(part.with_extension(format!("part{k}")));
                Ok(Self::Npz((0..columns.len()).map(spool).collect::<Result<_, _>>()?))
            }
            #[cfg(feature = "parquet")]
            Some(Format::Parquet) => {
                flat();
                parquet::Sink::create(part, columns).map(Box::new).map(Self::Parquet)
            }
            #[cfg(not(feature = "parquet"))]
            Some(Format::Parquet) => Err(super::not_built("Parquet", "parquet")),
            _ => Err(Fault::Content("its name must end in .csv, .jsonl, .npz or .parquet".to_owned())),
        }
    }
}

fn csv_rows(writer: &mut ::csv::Writer<File>, piece: &[Values], rows: usize) -> Result<(), Fault> {
    for i in 0..rows {
        for values in piece {
            match values {
                Values::Numbers(values) if values[i].is_nan() => writer.write_field("")?,
                Values::Numbers(values) => writer.write_field(values[i].to_string())?,
                Values::Whole(values) => writer.write_field(values[i].to_string())?,
                Values::Counts(values) => writer.write_field(values[i].to_string())?,
                Values::Flags(values) => writer.write_field(values[i].to_string())?,
                Values::Texts(values) => writer.write_field(&values[i])?,
            }
        }
        writer.write_record(None::<&[u8]>)?;
    }
    Ok(())
}

/// One object on each line. What is not known is left out.
fn jsonl_rows(
    writer: &mut BufWriter<File>,
    columns: &[(String, Option<usize>)],
    piece: &[Values],
    rows: usize,
) -> Result<(), Fault> {
    for i in 0..rows {
        let mut between = '{';
        for ((name, width), values) in columns.iter().zip(piece) {
            let value = match (values, width) {
                (Values::Numbers(values), Some(width)) => {
                    let row = &values[i * width..(i + 1) * width];
                    if row.iter().any(|value| value.is_nan()) { Value::Null } else { Value::from(row) }
                }
                // NaN becomes null.
                (Values::Numbers(values), None) => Value::from(values[i]),
                (Values::Whole(values), _) => Value::from(values[i]),
                (Values::Counts(values), _) => Value::from(values[i]),
                (Values::Flags(values), _) => Value::from(values[i]),
                (Values::Texts(values), _) if values[i].is_empty() => Value::Null,
                (Values::Texts(values), _) => Value::from(values[i].as_str()),
            };
            if !value.is_null() {
                write!(writer, "{between}{}:{value}", Value::from(name.as_str())).map_err(Fault::Io)?;
                between = ',';
            }
        }
        let end = if between == '{' { "{}\n" } else { "}\n" };
        writer.write_all(end.as_bytes()).map_err(Fault::Io)?;
    }
    Ok(())
}

/// The numbers of one array of NPZ, whose length only the end tells.
struct Spool {
    path: PathBuf,
    file: BufWriter<File>,
    /// NumPy's name of the type, or none of texts; those are written with their lengths.
    element: Option<&'static str>,
    /// Letters of the longest text.
    letters: usize,
}

impl Spool {
    fn create(path: PathBuf) -> Result<Self, Fault> {
        let file = BufWriter::new(File::create(&path).map_err(Fault::Io)?);
        Ok(Self { path, file, element: None, letters: 1 })
    }

    fn write(&mut self, values: &Values) -> Result<(), Fault> {
        let file = &mut self.file;
        let (element, written) = match values {
            Values::Numbers(values) => {
                (Some("<f8"), values.iter().try_for_each(|value| file.write_all(&value.to_le_bytes())))
            }
            Values::Whole(values) => {
                (Some("<i8"), values.iter().try_for_each(|value| file.write_all(&value.to_le_bytes())))
            }
            Values::Counts(values) => {
                (Some("<u8"), values.iter().try_for_each(|value| file.write_all(&value.to_le_bytes())))
            }
            Values::Flags(values) => {
                (Some("|b1"), values.iter().try_for_each(|&value| file.write_all(&[u8::from(value)])))
            }
            Values::Texts(values) => (
                None,
                values.iter().try_for_each(|text| {
                    self.letters = self.letters.max(text.chars().count());
                    file.write_all(&(text.len() as u32).to_le_bytes())?;
                    file.write_all(text.as_bytes())
                }),
            ),
        };
        self.element = element;
        written.map_err(Fault::Io)
    }

    /// Copy it behind its header: an array (n,) or (n, width) in the format of NumPy's `save`, version 1.
    fn copy(&mut self, width: Option<usize>, rows: u64, out: &mut impl io::Write) -> io::Result<()> {
        self.file.flush()?;
        let letters = self.letters;
        let kind = self.element.map_or_else(|| format!("<U{letters}"), str::to_owned);
        let shape = width.map_or_else(|| format!("({rows},)"), |width| format!("({rows}, {width})"));
        let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
        while !(10 + header.len() + 1).is_multiple_of(64) {
            header.push(' ');
        }
        header.push('\n');
        out.write_all(b"\x93NUMPY\x01\x00")?;
        out.write_all(&(header.len() as u16).to_le_bytes())?;
        out.write_all(header.as_bytes())?;
        let mut file = BufReader::new(File::open(&self.path)?);
        if self.element.is_some() {
            return io::copy(&mut file, out).map(drop);
        }
        for _ in 0..rows {
            let mut length = [0; 4];
            file.read_exact(&mut length)?;
            let mut text = vec![0; u32::from_le_bytes(length) as usize];
            file.read_exact(&mut text)?;
            let text = String::from_utf8(text).map_err(io::Error::other)?;
            // UTF-32, filled up to the longest.
            let padded = text.chars().map(u32::from).chain(std::iter::repeat(0)).take(letters);
            let bytes: Vec<u8> = padded.flat_map(u32::to_le_bytes).collect();
            out.write_all(&bytes)?;
        }
        Ok(())
    }
}

fn npz_archive(path: &Path, columns: &[(String, Option<usize>)], spools: &mut [Spool], rows: u64) -> Result<(), Fault> {
    let mut archive = ZipWriter::new(File::create(path).map_err(Fault::Io)?);
    let damaged = |e: zip::result::ZipError| Fault::Io(e.into());
    for ((name, width), spool) in columns.iter().zip(spools) {
        // The name of a part is no array's: sizes beyond 4 GiB need longer fields.
        let options = SimpleFileOptions::default().large_file(true);
        archive.start_file(format!("{name}.npy"), options).map_err(damaged)?;
        spool.copy(*width, rows, &mut archive).map_err(Fault::Io)?;
    }
    archive.finish().map_err(damaged)?.sync_all().map_err(Fault::Io)
}

#[cfg(feature = "parquet")]
mod parquet {
    use super::{Fault, Values};
    use ::parquet::basic::{ConvertedType, Repetition, Type as Kind};
    use ::parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
    use ::parquet::errors::ParquetError;
    use ::parquet::file::metadata::KeyValue;
    use ::parquet::file::properties::WriterProperties;
    use ::parquet::file::writer::SerializedFileWriter;
    use ::parquet::schema::types::Type;
    use std::fs::File;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    fn damaged(e: ParquetError) -> Fault {
        Fault::Content(format!("cannot be written: {e}"))
    }

    /// A Parquet file; each piece is a row group. The first piece tells the types.
    pub(super) struct Sink {
        path: PathBuf,
        names: Vec<String>,
        pub(super) about: Vec<(String, String)>,
        writer: Option<SerializedFileWriter<File>>,
    }

    impl Sink {
        pub(super) fn create(path: &Path, columns: &[(String, Option<usize>)]) -> Result<Self, Fault> {
            File::create(path).map_err(Fault::Io)?;
            let names = columns.iter().map(|(name, _)| name.clone()).collect();
            Ok(Self { path: path.to_owned(), names, about: Vec::new(), writer: None })
        }

        fn open(&self, piece: &[Values]) -> Result<SerializedFileWriter<File>, Fault> {
            let field = |(name, values): (&String, &Values)| {
                let (kind, stands_for) = match values {
                    Values::Numbers(_) => (Kind::DOUBLE, ConvertedType::NONE),
                    Values::Whole(_) => (Kind::INT64, ConvertedType::NONE),
                    Values::Counts(_) => (Kind::INT64, ConvertedType::UINT_64),
                    Values::Flags(_) => (Kind::BOOLEAN, ConvertedType::NONE),
                    Values::Texts(_) => (Kind::BYTE_ARRAY, ConvertedType::UTF8),
                };
                let needed =
                    if matches!(values, Values::Numbers(_)) { Repetition::OPTIONAL } else { Repetition::REQUIRED };
                let field = Type::primitive_type_builder(name, kind).with_repetition(needed);
                field.with_converted_type(stands_for).build().map(Arc::new)
            };
            let fields = self.names.iter().zip(piece).map(field).collect::<Result<_, _>>().map_err(damaged)?;
            let schema = Type::group_type_builder("columns").with_fields(fields).build().map_err(damaged)?;
            let file = File::create(&self.path).map_err(Fault::Io)?;
            let about = self.about.iter().map(|(key, text)| KeyValue::new(key.clone(), text.clone())).collect();
            let properties = WriterProperties::builder().set_key_value_metadata(Some(about)).build();
            SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties)).map_err(damaged)
        }

        pub(super) fn write(&mut self, piece: &[Values]) -> Result<(), Fault> {
            if self.writer.is_none() {
                self.writer = Some(self.open(piece)?);
            }
            let writer = self.writer.as_mut().expect("opened above");
            let mut group = writer.next_row_group().map_err(damaged)?;
            for values in piece {
                let mut column = group.next_column().map_err(damaged)?.expect("as many as the schema has");
                match values {
                    Values::Numbers(values) => {
                        // What is not known is null.
                        let levels: Vec<i16> = values.iter().map(|value| i16::from(!value.is_nan())).collect();
                        let known: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
                        column.typed::<DoubleType>().write_batch(&known, Some(&levels), None)
                    }
                    Values::Whole(values) => column.typed::<Int64Type>().write_batch(values, None, None),
                    Values::Counts(values) => {
                        let signed: Vec<i64> = values.iter().map(|&value| value as i64).collect();
                        column.typed::<Int64Type>().write_batch(&signed, None, None)
                    }
                    Values::Flags(values) => column.typed::<BoolType>().write_batch(values, None, None),
                    Values::Texts(values) => {
                        let texts: Vec<ByteArray> = values.iter().map(|text| ByteArray::from(text.as_str())).collect();
                        column.typed::<ByteArrayType>().write_batch(&texts, None, None)
                    }
                }
                .map_err(damaged)?;
                column.close().map_err(damaged)?;
            }
            group.close().map(drop).map_err(damaged)
        }

        pub(super) fn finish(&mut self) -> Result<(), Fault> {
            if let Some(writer) = self.writer.take() {
                writer.close().map_err(damaged)?;
            }
            File::open(&self.path).and_then(|file| file.sync_all()).map_err(Fault::Io)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Columns, Reading, Table};

    #[test]
    fn what_is_written_is_read_back_from_every_format() {
        let columns = [
            ("state".to_owned(), Values::Numbers(vec![0.5, -1e300, 1.0 / 3.0])),
            ("reward".to_owned(), Values::Whole(vec![1, -2, 1_000_000])),
            ("episode".to_owned(), Values::Texts(vec!["a".into(), "bé, \"c\"".into(), "a".into()])),
        ];
        let directory = tempfile::tempdir().unwrap();
        let named = Columns {
            names: vec!["x".into()],
            state: vec!["reward".into()],
            reward: vec!["state*0 + 1".into()],
            episode: Some("episode".into()),
            next_state: vec!["reward".into()],
            terminated: None,
            ..Columns::default()
        };
        let mut endings = vec!["csv", "jsonl", "npz"];
        endings.extend(cfg!(feature = "parquet").then_some("parquet"));
        for ending in endings {
            let path = directory.path().join(format!("labels.{ending}"));
            write_columns(&path, &columns, &[]).unwrap();
            let reading = Reading { assume_terminated: Some(crate::AssumeTerminated::Never), ..Reading::default() };
            let table = Table::read_as(&path, reading, &named, &mut |_| {}).unwrap();
            assert_eq!(table.rows().states, [1.0, 1e6, -2.0], "{ending}: sorted by episode");
            assert_eq!(table.episode_names(), ["a", "bé, \"c\""], "{ending}");
        }
        let refused = write_columns(&directory.path().join("labels.txt"), &columns, &[]).unwrap_err().to_string();
        assert!(refused.contains(".csv, .jsonl, .npz or .parquet"), "{refused}");
    }
}
