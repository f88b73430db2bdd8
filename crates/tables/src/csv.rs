//! CSV: the first line names the columns.

use super::build::Builder;
use super::cell::Cell;
use super::header::Header;
use super::job::Job;
use super::roles::{Source, assign};
use super::{Fault, TableError, text};
use criticd_learner::transition::Batch;
use std::fs::File;
use std::path::{Path, PathBuf};

pub(super) fn read(path: &Path, job: &mut Job<'_>) -> Result<Builder, Fault> {
    let file = File::open(path).map_err(Fault::Io)?;
    let bytes = file.metadata().map_err(Fault::Io)?.len().max(1);
    let (text, dialect) = text::open(file)?;
    // Rows of other lengths are looked at here, to say why.
    let mut reader = ::csv::ReaderBuilder::new();
    let reader = reader.trim(::csv::Trim::All).flexible(true).buffer_capacity(1 << 16).delimiter(dialect.separator);
    let mut reader = reader.from_reader(text);
    let sources = sources(reader.headers().map_err(fault)?);
    if sources.is_empty() {
        return Err(Fault::Empty);
    }
    text::check_header(&sources, job)?;
    let roles = assign(job, &sources).map_err(|fault| beside(fault, &dialect))?;
    let (columns, places) = roles.columns(&sources, job.format)?;
    let mut builder = Builder::new(Header::new(job, columns, roles)?, false);
    let (mut record, mut plain) = (::csv::StringRecord::new(), ::csv::StringRecord::new());
    let (mut units, mut remarks, mut headers) = (dialect.units.is_some(), Passed::default(), Passed::default());
    while reader.read_record(&mut record).map_err(fault)? {
        let line = record.position().map_or(0, ::csv::Position::line) + dialect.skipped;
        let first = record.get(0).unwrap_or_default();
        match () {
            // A line of blanks.
            () if record.len() == 1 && first.is_empty() => continue,
            () if first.starts_with('#')
                && (dialect.comments == text::Comments::All || record.len() != sources.len()) =>
            {
                remarks.pass(line);
                continue;
            }
            () if std::mem::take(&mut units) => continue,
            () if is_header(&record, &sources) => {
                headers.pass(line);
                builder.break_off();
                continue;
            }
            () => {}
        }
        let zeros = has_zeros(&record);
        let names = usize::from(dialect.row_names && record.len() == sources.len() + 1);
        if record.len() == sources.len() + 1 && names == 0 && record.iter().next_back() == Some("") {
            // A separator behind the last cell.
            record.truncate(sources.len());
        } else if record.len() + 1 == sources.len() && sources.last().is_some_and(|source| source.name.is_empty()) {
            record.push_field("");
        }
        if record.len() != sources.len() + names || zeros {
            let short = record.len() < sources.len();
            let last = (short || zeros) && !reader.read_record(&mut plain).unwrap_or(true);
            if last && text::breaks_off(path) {
                builder.tell(format!("line {line} is the last, is cut off, and is left out"));
                break;
            }
            let message =
                if zeros { text::ZEROS.to_owned() } else { text::of_other_length(&record, sources.len(), last) };
            return Err(Fault::Line { line, message });
        }
        if dialect.decimal_commas || dialect.thousands {
            plain.clear();
            record.iter().for_each(|cell| plain.push_field(&dialect.plain(cell)));
            std::mem::swap(&mut record, &mut plain);
        }
        let cell = |k: usize| match &record[places[k].0 + names] {
            // As it was before.
            cell if dialect.decimal_commas && text::in_thousands(&plain[places[k].0 + names]) => Cell::Ambiguous(cell),
            cell => Cell::Written(cell),
        };
        builder.push(line, cell)?;
        builder.advance(job, (reader.position().byte() as f64 / bytes as f64).min(1.0))?;
    }
    dialect.told.into_iter().for_each(|told| builder.tell(told));
    remarks.say("begins with #", "begin with #").into_iter().for_each(|said| builder.tell(said));
    headers.say("repeats the header", "repeat the header").into_iter().for_each(|said| builder.tell(said));
    Ok(builder)
}

/// Lines that are no rows.
#[derive(Default)]
struct Passed {
    count: usize,
    first: u64,
}

impl Passed {
    fn pass(&mut self, line: u64) {
        self.first = if self.count == 0 { line } else { self.first };
        self.count += 1;
    }

    fn say(&self, one: &str, more: &str) -> Option<String> {
        let (what, are) = if self.count == 1 { (one, "is") } else { (more, "are") };
        let first = if self.count == 1 { String::new() } else { "the first: ".to_owned() };
        let lines = text::lines_in_words(self.count);
        (self.count > 0).then(|| format!("{lines} {what}, and {are} left out; {first}line {}", self.first))
    }
}

/// Whether a line names the columns again, as where several files were put together.
fn is_header(record: &::csv::StringRecord, sources: &[Source]) -> bool {
    let same =
        |(cell, source): (&str, &Source)| cell.trim_start_matches('\u{feff}').trim_start_matches("# ") == source.name;
    record.len() == sources.len() && record.iter().zip(sources).all(same) && record.iter().any(|cell| !cell.is_empty())
}

/// A fault of a column, with what the line under the header has to do with it.
fn beside(fault: Fault, dialect: &text::Dialect) -> Fault {
    match (fault, &dialect.units) {
        (Fault::Column { column, message }, Some(units))
            if units.split(", ").any(|cell| message.contains(&format!("there is no {cell} "))) =>
        {
            let message = format!(
                "{message}; the line under the header holds {units}: if that names the columns, delete the line above it"
            );
            Fault::Column { column, message }
        }
        (fault, _) => fault,
    }
}

fn has_zeros(record: &::csv::StringRecord) -> bool {
    record.iter().any(|cell| cell.contains('\0'))
}

/// The columns that the first line names.
fn sources(header: &::csv::StringRecord) -> Vec<Source> {
    let name = |(k, name): (usize, &str)| {
        let name = name.trim_start_matches('\u{feff}');
        // numpy.savetxt puts this before the names.
        let name = name.strip_prefix("# ").filter(|_| k == 0).unwrap_or(name);
        Source::new(name.trim(), None)
    };
    header.iter().enumerate().map(name).collect()
}

/// What the library says, in words of ours where those are better.
fn fault(error: ::csv::Error) -> Fault {
    match error.kind() {
        ::csv::ErrorKind::Utf8 { pos, .. } => {
            let line = pos.as_ref().map_or(1, ::csv::Position::line);
            Fault::Line { line, message: text::NOT_UTF_8.to_owned() }
        }
        _ => Fault::Csv(error),
    }
}

/// Writes a table that [`Table::read`](super::Table::read) reads back to the same rows. The session of a batch is not
/// written.
pub struct TableWriter {
    path: PathBuf,
    writer: ::csv::Writer<File>,
    /// Names of the columns, those of the first batch.
    columns: Option<Vec<String>>,
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
        Ok(Self { path: path.to_owned(), writer: ::csv::Writer::from_writer(file), columns: None })
    }

    /// Append the rows of a batch; the first one decides the columns.
    ///
    /// # Errors
    /// If writing fails.
    ///
    /// # Panics
    /// If the batch has other columns than the first one.
    pub fn append(&mut self, batch: &Batch) -> Result<(), TableError> {
        let columns = columns(batch);
        let written = match &self.columns {
            None => self.writer.write_record(&columns),
            Some(first) => {
                assert_eq!(*first, columns, "every batch of a table has the same columns");
                Ok(())
            }
        };
        self.columns = Some(columns);
        written.and_then(|()| self.append_rows(batch)).map_err(|e| self.fault(Fault::Csv(e)))
    }

    fn append_rows(&mut self, batch: &Batch) -> ::csv::Result<()> {
        for i in 0..batch.len() {
            self.writer.write_field(batch.stream())?;
            if let Some(policy) = batch.policy() {
                self.writer.write_field(policy)?;
            }
            let numbers = batch.state(i).iter().chain(batch.next_state(i));
            for value in numbers.chain(batch.action(i).unwrap_or(&[])).chain(batch.reward(i)) {
                self.writer.write_field(value.to_string())?;
            }
            self.writer.write_field(batch.terminated(i).to_string())?;
            self.writer.write_field(batch.truncated(i).to_string())?;
            let one = [batch.discount(i), batch.behavior_prob(i), batch.target_prob(i)].into_iter().flatten();
            let many = [batch.next_action(i), batch.next_action_probs(i)].into_iter().flatten();
            for value in one.chain(many.flatten().copied()) {
                self.writer.write_field(value.to_string())?;
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

/// Names of the columns of a batch, in the order in which its cells are written.
fn columns(batch: &Batch) -> Vec<String> {
    let (d, h, a) = (batch.dim(), batch.rewards_per_row(), batch.action(0).map_or(0, <[f64]>::len));
    let group = |name: &'static str, n: usize, bare: bool| {
        (0..n).map(move |k| if bare && n == 1 { name.to_owned() } else { format!("{name}_{k}") })
    };
    let mut names = vec!["stream".to_owned()];
    names.extend(batch.policy().map(|_| "policy".to_owned()));
    names.extend(group("state", d, false).chain(group("next_state", d, false)));
    names.extend(group("action", a, true).chain(group("reward", h, true)));
    names.extend(["terminated", "truncated"].map(str::to_owned));
    let one = [
        ("discount", batch.discount(0)),
        ("behavior_prob", batch.behavior_prob(0)),
        ("target_prob", batch.target_prob(0)),
    ];
    names.extend(one.into_iter().filter(|(_, value)| value.is_some()).map(|(name, _)| name.to_owned()));
    names.extend(group("next_action", batch.next_action(0).map_or(0, <[f64]>::len), true));
    names.extend(group("next_action_probs", batch.next_action_probs(0).map_or(0, <[f64]>::len), false));
    names.extend(batch.seq().map(|_| "seq".to_owned()));
    names
}
