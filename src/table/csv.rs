//! CSV: the first line names the columns.

use super::build::{Builder, Cell, Column, Header, Job, hint};
use super::{Fault, TableError};
use crate::transition::Batch;
use std::fs::File;
use std::path::{Path, PathBuf};

pub(super) fn read(path: &Path, job: &mut Job<'_>) -> Result<Builder, Fault> {
    let file = File::open(path).map_err(Fault::Io)?;
    let bytes = file.metadata().map_err(Fault::Io)?.len().max(1);
    let mut reader = ::csv::ReaderBuilder::new().trim(::csv::Trim::All).buffer_capacity(1 << 16).from_reader(file);
    let mut columns = Vec::new();
    for name in reader.headers()? {
        let name = name.trim_start_matches('\u{feff}');
        let column = Column::parse(name).ok_or_else(|| Fault::column(name, hint(name)))?;
        columns.push((name.to_owned(), column));
    }
    if columns.is_empty() {
        return Err(Fault::Empty);
    }
    let mut builder = Builder::new(Header::new(job, columns)?, false);
    let mut record = ::csv::StringRecord::new();
    while reader.read_record(&mut record)? {
        let line = record.position().map_or(0, ::csv::Position::line);
        builder.push(line, |k| Cell::Written(&record[k]))?;
        builder.advance(job, reader.position().byte() as f64 / bytes as f64)?;
    }
    Ok(builder)
}

/// Writes a table that [`Table::read`](super::Table::read) reads back to the same rows. The session of a batch is not
/// written.
pub struct TableWriter {
    path: PathBuf,
    writer: ::csv::Writer<File>,
    /// Of the first batch: D, H, A, whether there are discounts, whether there are sequence numbers.
    shape: Option<(usize, usize, usize, bool, bool)>,
}

impl TableWriter {
    /// Create the file, or empty it.
    ///
    /// # Errors
    /// If the name does not end in `.csv` or the file cannot be created.
    pub fn create(path: &Path) -> Result<Self, TableError> {
        let wrong = |fault| TableError { path: path.to_owned(), fault };
        if !path.extension().is_some_and(|e| e.eq_ignore_ascii_case("csv")) {
            return Err(wrong(Fault::Extension));
        }
        let file = File::create(path).map_err(|e| wrong(Fault::Io(e)))?;
        Ok(Self { path: path.to_owned(), writer: ::csv::Writer::from_writer(file), shape: None })
    }

    /// Append the rows of a batch; the first one decides the columns.
    ///
    /// # Errors
    /// If writing fails.
    ///
    /// # Panics
    /// If the batch has other columns than the first one.
    pub fn append(&mut self, batch: &Batch) -> Result<(), TableError> {
        let actions = batch.action(0).map_or(0, <[f64]>::len);
        let shape = (batch.dim(), batch.rewards_per_row(), actions, batch.discount(0).is_some(), batch.seq().is_some());
        let written = match self.shape.replace(shape) {
            None => self.writer.write_record(columns(shape)),
            Some(first) => {
                assert_eq!(first, shape, "every batch of a table has the same columns");
                Ok(())
            }
        };
        written.and_then(|()| self.append_rows(batch)).map_err(|e| self.fault(Fault::Csv(e)))
    }

    fn append_rows(&mut self, batch: &Batch) -> ::csv::Result<()> {
        for i in 0..batch.len() {
            self.writer.write_field(batch.stream())?;
            let numbers = batch.state(i).iter().chain(batch.next_state(i));
            for value in numbers.chain(batch.action(i).unwrap_or(&[])).chain(batch.reward(i)) {
                self.writer.write_field(value.to_string())?;
            }
            self.writer.write_field(batch.terminated(i).to_string())?;
            self.writer.write_field(batch.truncated(i).to_string())?;
            if let Some(discount) = batch.discount(i) {
                self.writer.write_field(discount.to_string())?;
            }
            if let Some(seq) = batch.seq() {
                self.writer.write_field((seq + i as u64).to_string())?;
            }
            self.writer.write_record(None::<&[u8]>)?;
        }
        Ok(())
    }

    /// Write what is still buffered.
    ///
    /// # Errors
    /// If writing fails.
    pub fn finish(mut self) -> Result<(), TableError> {
        self.writer.flush().map_err(|e| self.fault(Fault::Io(e)))
    }

    fn fault(&self, fault: Fault) -> TableError {
        TableError { path: self.path.clone(), fault }
    }
}

fn columns((d, h, a, discount, seq): (usize, usize, usize, bool, bool)) -> Vec<String> {
    let group = |name: &'static str, n: usize, bare: bool| {
        (0..n).map(move |k| if bare && n == 1 { name.to_owned() } else { format!("{name}_{k}") })
    };
    let mut names = vec!["stream".to_owned()];
    names.extend(group("state", d, false).chain(group("next_state", d, false)));
    names.extend(group("action", a, true).chain(group("reward", h, true)));
    names.extend(["terminated", "truncated"].map(str::to_owned));
    names.extend(discount.then(|| "discount".to_owned()));
    names.extend(seq.then(|| "seq".to_owned()));
    names
}
