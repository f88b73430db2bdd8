//! Columns about the rows of a table, in a file beside it: CSV, NPZ or Parquet, by the ending of its name.

use super::{Fault, Format, TableError};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// One column.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// NaN stands for what is not known.
    Numbers(Vec<f64>),
    /// Whole numbers.
    Whole(Vec<i64>),
    /// Texts.
    Texts(Vec<String>),
}

/// Write columns, equally long, with their names: all of the file or nothing.
///
/// # Errors
/// If the name ends in none of `.csv`, `.npz`, `.parquet`, or writing fails.
///
/// # Panics
/// If columns are of different lengths.
pub fn write_columns(path: &Path, columns: &[(String, Values)]) -> Result<(), TableError> {
    let rows = columns.first().map_or(0, |(_, values)| values.len());
    assert!(columns.iter().all(|(_, values)| values.len() == rows), "columns are equally long");
    let wrong = |fault| TableError { path: path.to_owned(), fault };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = path.with_file_name(name);
    let written = match Format::of(path) {
        Some(Format::Csv) => write_csv(&part, columns, rows),
        Some(Format::Npz) => write_npz(&part, columns, rows),
        #[cfg(feature = "parquet")]
        Some(Format::Parquet) => write_parquet(&part, columns),
        #[cfg(not(feature = "parquet"))]
        Some(Format::Parquet) => Err(super::not_built("Parquet", "parquet")),
        _ => return Err(wrong(Fault::Content("its name must end in .csv, .npz or .parquet".to_owned()))),
    };
    written.and_then(|()| std::fs::rename(&part, path).map_err(Fault::Io)).map_err(wrong)
}

impl Values {
    fn len(&self) -> usize {
        match self {
            Self::Numbers(values) => values.len(),
            Self::Whole(values) => values.len(),
            Self::Texts(values) => values.len(),
        }
    }
}

fn write_csv(path: &Path, columns: &[(String, Values)], rows: usize) -> Result<(), Fault> {
    let mut writer = ::csv::Writer::from_path(path)?;
    writer.write_record(columns.iter().map(|(name, _)| name))?;
    for i in 0..rows {
        for (_, values) in columns {
            match values {
                Values::Numbers(values) if values[i].is_nan() => writer.write_field("")?,
                Values::Numbers(values) => writer.write_field(values[i].to_string())?,
                Values::Whole(values) => writer.write_field(values[i].to_string())?,
                Values::Texts(values) => writer.write_field(&values[i])?,
            }
        }
        writer.write_record(None::<&[u8]>)?;
    }
    writer.flush().map_err(Fault::Io)
}

fn write_npz(path: &Path, columns: &[(String, Values)], rows: usize) -> Result<(), Fault> {
    let mut archive = ZipWriter::new(File::create(path).map_err(Fault::Io)?);
    let damaged = |e: zip::result::ZipError| Fault::Io(e.into());
    for (name, values) in columns {
        archive.start_file(format!("{name}.npy"), SimpleFileOptions::default()).map_err(damaged)?;
        archive.write_all(&npy(values, rows)).map_err(Fault::Io)?;
    }
    archive.finish().map_err(damaged)?.sync_all().map_err(Fault::Io)
}

/// An array (n,) in the format of NumPy's `save`, version 1.
fn npy(values: &Values, rows: usize) -> Vec<u8> {
    let mut data = Vec::new();
    let kind = match values {
        Values::Numbers(values) => {
            data.extend(values.iter().flat_map(|v| v.to_le_bytes()));
            "<f8".to_owned()
        }
        Values::Whole(values) => {
            data.extend(values.iter().flat_map(|v| v.to_le_bytes()));
            "<i8".to_owned()
        }
        Values::Texts(values) => {
            // UTF-32, filled up to the longest.
            let letters = values.iter().map(|text| text.chars().count()).max().unwrap_or(0).max(1);
            for text in values {
                let padded = text.chars().map(u32::from).chain(std::iter::repeat(0)).take(letters);
                data.extend(padded.flat_map(u32::to_le_bytes));
            }
            format!("<U{letters}")
        }
    };
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({rows},), }}");
    while !(10 + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

#[cfg(feature = "parquet")]
fn write_parquet(path: &Path, columns: &[(String, Values)]) -> Result<(), Fault> {
    use ::parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
    use ::parquet::errors::ParquetError;
    use ::parquet::file::writer::SerializedFileWriter;
    use ::parquet::schema::parser::parse_message_type;
    use std::sync::Arc;

    let damaged = |e: ParquetError| Fault::Content(format!("cannot be written: {e}"));
    let field = |(name, values): &(String, Values)| match values {
        Values::Numbers(_) => format!("required double {name};"),
        Values::Whole(_) => format!("required int64 {name};"),
        Values::Texts(_) => format!("required binary {name} (UTF8);"),
    };
    let fields: Vec<String> = columns.iter().map(field).collect();
    let schema = parse_message_type(&format!("message columns {{ {} }}", fields.join(" "))).map_err(damaged)?;
    let file = File::create(path).map_err(Fault::Io)?;
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::default()).map_err(damaged)?;
    let mut group = writer.next_row_group().map_err(damaged)?;
    for (_, values) in columns {
        let mut column = group.next_column().map_err(damaged)?.expect("as many as the schema has");
        match values {
            Values::Numbers(values) => column.typed::<DoubleType>().write_batch(values, None, None),
            Values::Whole(values) => column.typed::<Int64Type>().write_batch(values, None, None),
            Values::Texts(values) => {
                let texts: Vec<ByteArray> = values.iter().map(|text| ByteArray::from(text.as_str())).collect();
                column.typed::<ByteArrayType>().write_batch(&texts, None, None)
            }
        }
        .map_err(damaged)?;
        column.close().map_err(damaged)?;
    }
    group.close().map_err(damaged)?;
    writer.close().map_err(damaged).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Columns, Reading, Table};

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
        let mut endings = vec!["csv", "npz"];
        endings.extend(cfg!(feature = "parquet").then_some("parquet"));
        for ending in endings {
            let path = directory.path().join(format!("labels.{ending}"));
            write_columns(&path, &columns).unwrap();
            let reading =
                Reading { assume_terminated: Some(crate::table::AssumeTerminated::Never), ..Reading::default() };
            let table = Table::read_as(&path, reading, &named, &mut |_| {}).unwrap();
            assert_eq!(table.rows().states, [1.0, 1e6, -2.0], "{ending}: sorted by episode");
            assert_eq!(table.episode_names(), ["a", "bé, \"c\""], "{ending}");
        }
        let refused = write_columns(&directory.path().join("labels.txt"), &columns).unwrap_err().to_string();
        assert!(refused.contains(".csv, .npz or .parquet"), "{refused}");
    }
}
