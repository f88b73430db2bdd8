//! How a text is written: encoding, separator, decimal commas. And texts that are no tables as they are: no header, a cut end.

use super::Fault;
use super::cell::Cell;
use super::job::{Job, Want};
use super::moment::time;
use super::roles::Source;
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};
use encoding_rs_io::DecodeReaderBytesBuilder;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};

/// Bytes of a file that are looked at before it is read.
const HEAD: u64 = 1 << 16;
/// Lines of it that say how numbers are written.
const LINES: usize = 100;
/// What separates columns, and what it is called; the usual one first.
const SEPARATORS: [(u8, &str); 4] = [(b',', "commas"), (b';', "semicolons"), (b'\t', "tabs"), (b'|', "bars")];

/// Of text that is in another encoding.
pub(super) const NOT_UTF_8: &str = "not UTF-8; if it is in the encoding of Western Windows (or Latin-1), convert it: iconv -f \
                                    WINDOWS-1252 -t UTF-8 OLD > NEW";

/// How files begin that are no text, and what to do about them.
const OTHERS: [(&[u8], &str); 8] = [
    (b"PK\x03\x04", "a zip archive, such as a spreadsheet; save it as \"CSV UTF-8\", or unpack it"),
    (b"\xd0\xcf\x11\xe0", "an old spreadsheet; save it as \"CSV UTF-8\""),
    (b"\x1f\x8b", "compressed with gzip; unpack it: gunzip"),
    (b"\x28\xb5\x2f\xfd", "compressed with Zstandard; unpack it: unzstd"),
    (b"BZh", "compressed with bzip2; unpack it: bunzip2"),
    (b"\xfd7zXZ", "compressed with xz; unpack it: unxz"),
    (b"PAR1", "a Parquet file; its name must end in .parquet"),
    (b"\x89HDF", "an HDF5 file; its name must end in .hdf5"),
];

/// How a text with columns is written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Dialect {
    pub(super) separator: u8,
    /// Whether decimals have commas.
    pub(super) decimal_commas: bool,
    /// Lines before the header.
    pub(super) skipped: u64,
    /// What is not as usual, in words; none if all is.
    pub(super) told: Option<String>,
}

/// The beginning of a text, as bytes.
///
/// # Errors
/// If it is no text at all.
fn beginning(file: &mut File) -> Result<(Vec<u8>, &'static Encoding), Fault> {
    let mut head = Vec::new();
    file.take(HEAD).read_to_end(&mut head).map_err(Fault::Io)?;
    if let Some((_, what)) = OTHERS.iter().find(|(start, _)| head.starts_with(start)) {
        return Err(Fault::Content(format!("no text, but {what}")));
    }
    let encoding = match head[..] {
        [0xff, 0xfe, ..] => UTF_16LE,
        [0xfe, 0xff, ..] => UTF_16BE,
        // Every second byte of plain letters is zero.
        [0, 1..=255, 0, 1..=255, ..] => UTF_16BE,
        [1..=255, 0, 1..=255, 0, ..] => UTF_16LE,
        _ => match std::str::from_utf8(&head) {
            // A letter may be cut in two at the end of what is looked at.
            Err(wrong) if wrong.error_len().is_some() => WINDOWS_1252,
            _ => UTF_8,
        },
    };
    Ok((head, encoding))
}

/// The beginning of a text that must be UTF-8.
///
/// # Errors
/// If it is in UTF-16, or no text at all.
pub(super) fn head(file: &mut File) -> Result<Vec<u8>, Fault> {
    match beginning(file)? {
        (_, encoding) if encoding == UTF_16LE || encoding == UTF_16BE => {
            let message = "in UTF-16; convert it: iconv -f UTF-16 -t UTF-8 OLD > NEW";
            Err(Fault::Content(message.to_owned()))
        }
        (head, _) => Ok(head),
    }
}

/// A text with columns, from its header on, in UTF-8, and how it is written.
///
/// # Errors
/// If it cannot be read, or is no text.
pub(super) fn open(mut file: File) -> Result<(Box<dyn Read>, Dialect), Fault> {
    let (head, encoding) = beginning(&mut file)?;
    let (text, ..) = encoding.decode(&head);
    let dialect = Dialect::of(&text, encoding);
    let whole = std::io::Cursor::new(head).chain(file);
    if encoding == UTF_8 && dialect.skipped == 0 {
        return Ok((Box::new(whole), dialect));
    }
    let decoder = DecodeReaderBytesBuilder::new().encoding((encoding != UTF_8).then_some(encoding)).build(whole);
    let mut reader = BufReader::new(decoder);
    for _ in 0..dialect.skipped {
        reader.read_until(b'\n', &mut Vec::new()).map_err(Fault::Io)?;
    }
    Ok((Box::new(reader), dialect))
}

impl Dialect {
    /// That of a text that begins like this.
    fn of(head: &str, encoding: &'static Encoding) -> Self {
        let mut lines = head.trim_start_matches('\u{feff}').lines().peekable();
        let said = lines.peek().and_then(|line| line.trim().trim_matches('"').strip_prefix("sep=")).map(str::to_owned);
        let skipped = u64::from(said.is_some());
        let mut lines = lines.skip(skipped as usize).filter(|line| !line.trim().is_empty());
        let (header, rows) = (lines.next().unwrap_or_default(), lines.take(LINES).collect::<Vec<_>>());
        let separator =
            said.and_then(|said| said.bytes().next()).unwrap_or_else(|| separator(header, rows.first().copied()));
        let cells = || rows.iter().flat_map(|row| cells(row, separator));
        // The last line may be cut by the end of what is looked at.
        let decimal_commas =
            separator != b',' && cells().any(|cell| pointed(&cell).is_some()) && !cells().any(|cell| is_pointed(&cell));
        let mut told = Vec::new();
        if encoding != UTF_8 {
            told.push(format!("the text is in {}", encoding.name()));
        }
        if let Some((_, what)) = SEPARATORS[1..].iter().find(|(known, _)| *known == separator) {
            told.push(format!("columns are separated by {what}"));
        }
        if decimal_commas {
            told.push("decimals have commas".to_owned());
        }
        let told = (!told.is_empty()).then(|| format!("written in another way: {}", told.join(", ")));
        Self { separator, decimal_commas, skipped, told }
    }
}

/// Cells of a line.
fn cells(line: &str, separator: u8) -> Vec<String> {
    let mut reader = ::csv::ReaderBuilder::new();
    let reader = reader.has_headers(false).delimiter(separator).trim(::csv::Trim::All).from_reader(line.as_bytes());
    let record = reader.into_records().next().and_then(Result::ok).unwrap_or_default();
    record.iter().map(str::to_owned).collect()
}

/// What separates the columns: what makes as many cells of the first row as of the header, and the most of them.
fn separator(header: &str, row: Option<&str>) -> u8 {
    let columns = |&(separator, _): &(u8, &str)| {
        let count = cells(header, separator).len();
        let fits = row.is_none_or(|row| cells(row, separator).len() == count);
        (count > 1).then_some((fits, count))
    };
    let best = SEPARATORS.iter().rev().max_by_key(|each| columns(each)).expect("some are known");
    if columns(best).is_some() { best.0 } else { b',' }
}

/// Whether a cell is a number with a decimal point and nothing that could set thousands apart.
fn is_pointed(cell: &str) -> bool {
    cell.contains('.') && is_number(cell) && !in_thousands(cell)
}

/// Whether a cell may be a whole number whose thousands are set apart by points, or one with a decimal point.
pub(super) fn in_thousands(cell: &str) -> bool {
    let mut groups = cell.trim_start_matches(['-', '+']).split('.');
    let digits = |group: &str| !group.is_empty() && group.bytes().all(|byte| byte.is_ascii_digit());
    let first = groups.next().is_some_and(|first| first.len() <= 3 && digits(first));
    let mut rest = groups.peekable();
    first && rest.peek().is_some() && rest.all(|group| group.len() == 3 && digits(group))
}

/// A number with a decimal comma, `-1,5` or `1.234,5`, with a point; none where the cell is something else.
pub(super) fn pointed(cell: &str) -> Option<String> {
    let (whole, decimals) = cell.split_once(',')?;
    let plain = !whole.contains('.') || in_thousands(whole);
    let number = format!("{}.{decimals}", whole.replace('.', ""));
    (plain && is_number(&number) && !decimals.contains(',')).then_some(number)
}

/// Whether the first line of a CSV file names columns.
///
/// # Errors
/// What it is instead.
pub(super) fn check_header(sources: &[Source], job: &Job<'_>) -> Result<(), Fault> {
    let (first, blanks) = (&sources[0].name, job.want != Want::States);
    if sources.len() == 1 && blanks && first.contains(' ') {
        let message = "columns are separated by blanks; they must be separated by commas, semicolons, tabs or bars. In Python: \
                       pandas.read_csv(\"OLD\", sep=\"\\s+\").to_csv(\"NEW\", index=False)";
        return Err(Fault::Content(message.to_owned()));
    }
    let mut names = job.columns.state.iter().chain(&job.columns.names);
    let mut named = || names.any(|name| sources.iter().any(|source| source.name == *name));
    let values = sources.iter().filter(|source| is_value(&source.name)).count();
    if values == sources.len() && sources.iter().any(|source| is_number(&source.name)) && !named() {
        let message = "no header: the first line holds numbers only, or flags and times beside them. Put a line before it that \
                       names the columns, such as x,speed,reward";
        return Err(Fault::Content(message.to_owned()));
    }
    Ok(())
}

fn is_number(text: &str) -> bool {
    text.parse::<f64>().is_ok()
}

/// Whether a text is what cells hold, and hardly what columns are called.
fn is_value(text: &str) -> bool {
    let flag = ["true", "false"].iter().any(|flag| text.eq_ignore_ascii_case(flag));
    text.is_empty() || flag || time(Cell::Written(text)).is_ok() || is_number(text)
}

/// What is wrong with a line of another length than the first one; `last`: whether nothing follows.
pub(super) fn of_other_length(record: &::csv::StringRecord, names: usize, last: bool) -> String {
    let cells = record.len();
    match () {
        () if record.iter().any(|cell| cell.contains('\0')) => ZEROS.to_owned(),
        () if last && cells < names => {
            format!("cut off: it is the last line, and has {cells} of {names} cells; delete it")
        }
        () => format!(
            "has {cells} cells, the first line has {names}; a text with a separator in it must stand in quotes, and decimals in a \
             file of commas need points"
        ),
    }
}

/// Of text with zero bytes, as a writer leaves them that lost its power.
pub(super) const ZEROS: &str =
    "holds zero bytes, as files do whose writer was cut off; take them out: tr -d '\\000' < OLD > NEW";
