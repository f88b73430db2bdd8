//! How a text is written: encoding, separator, decimal commas. And texts that are no tables as they are: no header, a cut end.

use super::Fault;
use super::cell::{Cell, is_apart, is_grouped, is_missing, truth};
use super::job::Job;
use super::moment::time;
use super::roles::Source;
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};
use encoding_rs_io::DecodeReaderBytesBuilder;
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes of a file that are looked at before it is read.
const HEAD: u64 = 1 << 16;
/// Lines of it that say how numbers are written, and lines that may stand before the header.
const LINES: usize = 100;
const FRONT: usize = 32;
/// What separates columns, and what it is called; the usual one first.
const SEPARATORS: [(u8, &str); 4] = [(b',', "commas"), (b';', "semicolons"), (b'\t', "tabs"), (b'|', "bars")];

/// What some programs put before UTF-8.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// Of text that is in another encoding.
pub(super) const NOT_UTF_8: &str = "not UTF-8; if it is in the encoding of Western Windows (or Latin-1), convert it: iconv -f \
                                    WINDOWS-1252 -t UTF-8 OLD > NEW";

/// Of markup.
const PAGE: &str = "a page of HTML; in Python: pandas.read_html(\"OLD\")[0].to_csv(\"NEW.csv\", index=False)";

/// How files begin that are no tables, and what to do about them. Markup may begin with blanks, and in any case.
const OTHERS: [(&[u8], &str); 20] = [
    (b"PK\x03\x04", "a zip archive, such as a spreadsheet; save it as \"CSV UTF-8\", or unpack it"),
    (b"\xd0\xcf\x11\xe0", "an old spreadsheet; save it as \"CSV UTF-8\""),
    (b"\x1f\x8b", "compressed with gzip; unpack it: gunzip"),
    (b"\x28\xb5\x2f\xfd", "compressed with Zstandard; unpack it: unzstd"),
    (b"BZh", "compressed with bzip2; unpack it: bunzip2"),
    (b"\xfd7zXZ", "compressed with xz; unpack it: unxz"),
    (b"PAR1", "a Parquet file; its name must end in .parquet"),
    (b"\x89HDF", "an HDF5 file; its name must end in .hdf5"),
    (b"ARROW1", "an Arrow file; in Python: pandas.read_feather(\"OLD\").to_parquet(\"NEW.parquet\")"),
    (b"SQLite format 3", "a database of SQLite; sqlite3 -header -csv OLD \"select * from TABLE\" > NEW.csv"),
    (
        b"MATLAB 5.0",
        "a file of MATLAB; in Python: numpy.savez(\"NEW.npz\", **scipy.io.loadmat(\"OLD\", squeeze_me=True))",
    ),
    (b"\x89MCAP0", "a recording of MCAP; criticd.tables.read_mcap makes a table of it, in Python"),
    (b"#ROSBAG", "a recording of ROS; criticd.tables.read_rosbag makes a table of it, in Python"),
    (b"\x80\x04", "an object of Python (pickle); in Python: pandas.read_pickle(\"OLD\").to_parquet(\"NEW.parquet\")"),
    (b"\x80\x05", "an object of Python (pickle); in Python: pandas.read_pickle(\"OLD\").to_parquet(\"NEW.parquet\")"),
    (
        b"BEGIN TRANSACTION",
        "a dump of SQL; sqlite3 NEW.db < OLD, then sqlite3 -header -csv NEW.db \"select * from TABLE\" > NEW.csv",
    ),
    (b"<!doctype html", PAGE),
    (b"<html", PAGE),
    (b"<table", PAGE),
    (
        b"<?xml",
        "XML; in Python, with the name of the elements that are rows: pandas.read_xml(\"OLD\", xpath=\"//ROW\").to_csv(\"NEW.csv\", index=False)",
    ),
];

/// What a file that begins so is, if it is no table, and what to do about it.
fn other(start: &[u8]) -> Option<&'static str> {
    let start = start.strip_prefix(b"PRAGMA foreign_keys=OFF;\n").unwrap_or(start);
    let text = start.strip_prefix(BOM).unwrap_or(start).trim_ascii_start();
    let begins = |mark: &[u8]| {
        let markup = mark[0] == b'<' && text.get(..mark.len()).is_some_and(|text| text.eq_ignore_ascii_case(mark));
        markup || start.starts_with(mark)
    };
    OTHERS.iter().find(|(mark, _)| begins(mark)).map(|(_, what)| *what)
}

/// What a file is, and what to do about it, where its name says nothing that can be read.
pub(super) fn otherwise(path: &Path) -> Option<String> {
    if path.is_dir() {
        let names =
            std::fs::read_dir(path).ok()?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let names: Vec<String> = names.collect();
        let parts = |ending: &str| names.iter().any(|name| name.starts_with("part-") && name.contains(ending));
        return match () {
            () if parts(".parquet") => Some(
                "a directory of parts of one table; make one file of them. In Python: \
                 pandas.read_parquet(\"OLD\").to_parquet(\"NEW.parquet\")"
                    .to_owned(),
            ),
            () if parts("") => {
                Some("a directory of parts of one table; make one file of them: cat OLD/part-* > NEW.csv".to_owned())
            }
            () => None,
        };
    }
    if !path.is_file() {
        // A pipe would wait, and what is read of it would be gone.
        return None;
    }
    let mut start = Vec::new();
    File::open(path).ok()?.take(HEAD).read_to_end(&mut start).ok()?;
    other(&start).map(str::to_owned)
}

/// How a text with columns is written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Dialect {
    encoding: &'static Encoding,
    pub(super) separator: u8,
    /// Whether blanks separate columns: they are read as one tab.
    blanks: bool,
    /// What ends a line: a carriage return where no line feed does.
    end: u8,
    /// Whether decimals have commas.
    pub(super) decimal_commas: bool,
    /// Whether commas set thousands apart.
    pub(super) thousands: bool,
    /// Lines before the header.
    pub(super) skipped: u64,
    comments: Comments,
    /// Cells of a row.
    width: usize,
    /// Whether a cell that no column names stands before the others in each row, as R writes the names of rows.
    pub(super) row_names: bool,
    /// Whether blank lines set blocks of rows apart, as gnuplot has them: they do not where one stands behind every row.
    pub(super) blocks: bool,
    /// The line under the header, if it holds units or the like.
    pub(super) units: Option<String>,
    /// What is not as usual, in words.
    pub(super) told: Vec<String>,
}

/// Which lines behind the header are comments: a line that begins with # may also be a row, whose name is #12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comments {
    /// Lines that begin with # and have fewer or more cells than a row.
    Unknown,
    /// Also lines with a blank behind the #.
    Apart,
    /// All lines that begin with #, since rows begin with numbers.
    All,
}

impl Comments {
    /// Whether a line is a comment, however many cells it has.
    fn hold(self, line: &[u8]) -> bool {
        let Some(rest) = after_sign(line) else { return false };
        match self {
            Self::Unknown => false,
            Self::Apart => rest.first().is_none_or(u8::is_ascii_whitespace),
            Self::All => true,
        }
    }
}

/// What stands behind the sign of comments, where a line begins with it.
fn after_sign(line: &[u8]) -> Option<&[u8]> {
    line.trim_ascii_start().strip_prefix(b"#")
}

/// The beginning of a text, as bytes.
///
/// # Errors
/// If it is no text at all.
fn beginning(file: &mut File) -> Result<(Vec<u8>, &'static Encoding), Fault> {
    let mut head = Vec::new();
    file.take(HEAD).read_to_end(&mut head).map_err(Fault::Io)?;
    if let Some(what) = other(&head) {
        return Err(Fault::Content(format!("no table, but {what}")));
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
pub(super) fn open(mut file: File) -> Result<(impl Read, Dialect), Fault> {
    let (head, encoding) = beginning(&mut file)?;
    let (text, ..) = encoding.decode(&head);
    let dialect = Dialect::of(&text, encoding);
    let whole = std::io::Cursor::new(head).chain(file);
    let decoder = DecodeReaderBytesBuilder::new()
        .encoding((encoding != UTF_8).then_some(encoding))
        .utf8_passthru(true)
        .build(whole);
    let mut inner = BufReader::with_capacity(1 << 16, decoder);
    for _ in 0..dialect.skipped {
        inner.read_until(dialect.end, &mut Vec::new()).map_err(Fault::Io)?;
    }
    let Dialect { separator, blanks, end, comments, width, .. } = dialect;
    let (header, line) = (Vec::new(), Vec::new());
    Ok((Lines { inner, separator, blanks, end, comments, width, header, quoted: false, line, at: 0 }, dialect))
}

/// A text from its header on, line by line: each ends with a line feed, so that the reader of cells counts them as the file has them.
/// Runs of blanks outside quotes are a tab, where those separate columns. A line without anything is a blank, which that reader does not pass
/// by, and in the place of a comment stands a line that has too many cells for a row ([`is_comment`]).
struct Lines<R> {
    inner: R,
    separator: u8,
    blanks: bool,
    end: u8,
    comments: Comments,
    width: usize,
    /// Empty: it is still to come.
    header: Vec<u8>,
    /// Whether the next line begins inside a cell.
    quoted: bool,
    line: Vec<u8>,
    at: usize,
}

/// Whether a record stands in the place of a comment, in a table with `names` columns.
pub(super) fn is_comment(record: &::csv::StringRecord, names: usize) -> bool {
    record.get(0) == Some("#") && record.len() > names + 1
}

impl<R: BufRead> Lines<R> {
    /// What stands in the place of a line.
    fn of(&mut self, line: &[u8]) -> Vec<u8> {
        let ends = line.last() == Some(&self.end);
        let mut line = &line[..line.iter().rposition(|byte| !b"\r\n".contains(byte)).map_or(0, |last| last + 1)];
        if self.header.is_empty() {
            line = line.strip_prefix(BOM).unwrap_or(line);
            self.header = line.trim_ascii().to_vec();
        }
        let header = line.trim_ascii() == self.header;
        let open = self.leaves_open(line);
        let mut line = match () {
            () if self.quoted => line.to_vec(),
            () if self.header.is_empty() => Vec::new(),
            () if line.trim_ascii().is_empty() => b" ".to_vec(),
            () if !header && self.is_remark(line, open) => {
                let cells = vec![self.separator; self.width + 1];
                return [b"#", &cells[..], b"\n"].concat();
            }
            () if self.blanks => tabbed(line, header),
            () => line.to_vec(),
        };
        self.quoted = open;
        line.extend(ends.then_some(b'\n'));
        line
    }

    /// Whether the next line goes on in a cell of this one.
    fn leaves_open(&self, line: &[u8]) -> bool {
        let mut quoted = self.quoted;
        if !quoted && !line.contains(&b'"') {
            return false;
        }
        // A quote in the midst of a cell without quotes is a character, 5" for instance.
        let mut begins = true;
        for &byte in line {
            quoted ^= byte == b'"' && (quoted || begins);
            begins = byte == self.separator || self.blanks && byte.is_ascii_whitespace() || byte == b'"' && !quoted;
        }
        quoted
    }

    /// Whether a line is a comment; `open`: whether the next one would go on in a cell of it.
    fn is_remark(&self, line: &[u8], open: bool) -> bool {
        let fits = || {
            let line = if self.blanks { tabbed(line, false) } else { line.to_vec() };
            cells(&String::from_utf8_lossy(&line), self.separator).len() == self.width
        };
        self.comments.hold(line) || (after_sign(line).is_some() && !open && !fits())
    }
}

impl<R: BufRead> Read for Lines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            if self.at == self.line.len() {
                let mut line = std::mem::take(&mut self.line);
                self.at = 0;
                line.clear();
                if self.inner.read_until(self.end, &mut line)? == 0 {
                    break;
                }
                self.line = self.of(&line);
            }
            let read = (&self.line[self.at..]).read(&mut buffer[filled..])?;
            self.at += read;
            filled += read;
        }
        Ok(filled)
    }
}

/// A line with a tab for each run of blanks outside quotes; a header without the sign that numpy.savetxt puts before names.
fn tabbed(line: &[u8], header: bool) -> Vec<u8> {
    let line = line.trim_ascii();
    let line = line.strip_prefix(b"# ").filter(|_| header).unwrap_or(line).trim_ascii();
    let (mut out, mut quoted) = (Vec::with_capacity(line.len() + 1), false);
    for &byte in line {
        quoted ^= byte == b'"';
        match byte.is_ascii_whitespace() && !quoted {
            true if out.last() == Some(&b'\t') => {}
            true => out.push(b'\t'),
            false => out.push(byte),
        }
    }
    out
}

impl Dialect {
    /// The dialect of a text that begins like this.
    fn of(head: &str, encoding: &'static Encoding) -> Self {
        let end = if head.contains('\r') && !head.contains('\n') { '\r' } else { '\n' };
        let lines: Vec<&str> = head.trim_start_matches('\u{feff}').split(end).take(LINES + FRONT).collect();
        let said = lines.first().and_then(|line| line.trim().trim_matches('"').strip_prefix("sep=")).map(str::to_owned);
        let first = usize::from(said.is_some());
        let lines: Vec<(usize, &str)> =
            lines.into_iter().enumerate().skip(first).filter(|(_, line)| !line.trim().is_empty()).collect();
        let texts: Vec<&str> = lines.iter().map(|(_, line)| *line).collect();
        let (at, commented) = header_of(&texts);
        let header = texts.get(at).copied().unwrap_or_default();
        let behind = |no: Comments| texts.iter().skip(at + 1).filter(move |line| !no.hold(line.as_bytes())).copied();
        let mut rows: Vec<&str> = behind(Comments::All).collect();
        if rows.is_empty() {
            rows = behind(Comments::Apart).collect();
        }
        let mut separator =
            said.and_then(|said| said.bytes().next()).unwrap_or_else(|| separator(header, rows.first().copied()));
        let blanks = cells(header, separator).len() == 1 && is_of_blanks(header, &rows);
        let tabs = |line: &str| String::from_utf8_lossy(&tabbed(line.as_bytes(), true)).into_owned();
        let of_row =
            |line: &&str| cells(&if blanks { tabs(line) } else { (*line).to_owned() }, separator_of(blanks, separator));
        let (names, rows): (Vec<String>, Vec<Vec<String>>) = (of_row(&header), rows.iter().map(of_row).collect());
        separator = separator_of(blanks, separator);
        let all = || rows.iter().flatten();
        // Among commas a decimal one stands in quotes, as one between thousands does, and as the comma of a place such as "3,7".
        let decimal = |k: usize| {
            let mut decimal = column(&rows, k).filter(|cell| pointed(cell).is_some());
            if separator != b',' {
                return decimal.next().is_some();
            }
            decimal.any(|cell| !is_grouped(cell)) && column(&rows, k).all(|cell| is_decimal(cell))
        };
        let decimal_commas = (0..names.len() + 1).any(decimal) && !all().any(|cell| is_pointed(cell));
        let clear = |cell: &String| is_grouped(cell) && (cell.contains('.') || cell.matches(',').count() > 1);
        let thousands = !decimal_commas && all().any(clear);
        let quoted = header.starts_with('"') && texts.get(at + 1).is_some_and(|row| row.starts_with('"'));
        // The last line may be cut by the end of what is looked at.
        let whole = &rows[..rows.len().min(rows.len().max(2) - 1)];
        let row_names = quoted && !whole.is_empty() && whole.iter().all(|row| row.len() == names.len() + 1);
        let units =
            rows.split_first().filter(|(first, rows)| are_units(first, rows)).map(|(first, _)| first.join(", "));
        let counts = |cell: &String| is_value(cell) || pointed(cell).is_some() || is_missing(Cell::Written(cell));
        let begins = |row: &Vec<String>| row.first().is_some_and(counts);
        let comments = match whole.iter().skip(usize::from(units.is_some())).all(begins) {
            _ if !commented => Comments::Unknown,
            true => Comments::All,
            false => Comments::Apart,
        };
        let filled: Vec<usize> =
            lines.iter().skip(at + 1).filter(|(_, line)| !is_bare(line)).map(|each| each.0).collect();
        let mut dialect = Self {
            encoding,
            separator,
            blanks,
            end: end as u8,
            decimal_commas,
            thousands,
            skipped: lines.get(at).map_or(first, |(line, _)| *line) as u64,
            comments,
            width: names.len() + usize::from(row_names),
            row_names,
            blocks: filled.windows(2).any(|pair| pair[0] + 1 == pair[1]),
            units,
            told: Vec::new(),
        };
        dialect.told = dialect.say(at);
        dialect
    }

    /// What pandas.read_csv needs to be told of it beside the name of the file.
    pub(super) fn arguments(&self) -> String {
        let sep = match self.blanks {
            true => r#"r"\s+""#.to_owned(),
            false => format!("\"{}\"", char::from(self.separator).escape_default()),
        };
        let under = (self.skipped + 1).to_string();
        let said = [
            (self.separator != b',').then(|| format!("sep={sep}")),
            self.decimal_commas.then(|| "decimal=\",\"".to_owned()),
            self.thousands.then(|| "thousands=\",\"".to_owned()),
            (self.skipped > 0 && self.units.is_none()).then(|| format!("skiprows={}", self.skipped)),
            self.units.is_some().then(|| format!("skiprows=[*range({}), {under}]", self.skipped)),
            (self.encoding != UTF_8).then(|| format!("encoding=\"{}\"", self.encoding.name().to_lowercase())),
        ];
        said.into_iter().flatten().map(|argument| format!(", {argument}")).collect()
    }

    /// What is not as usual, in words; `before` lines stand before the header.
    fn say(&self, before: usize) -> Vec<String> {
        let mut told = Vec::new();
        if self.encoding != UTF_8 {
            told.push(format!("the text is in {}", self.encoding.name()));
        }
        if self.blanks {
            told.push("columns are separated by blanks".to_owned());
        } else if let Some((_, what)) = SEPARATORS[1..].iter().find(|(known, _)| *known == self.separator) {
            told.push(format!("columns are separated by {what}"));
        }
        if self.decimal_commas {
            told.push("decimals have commas".to_owned());
        }
        if self.thousands {
            told.push("commas set thousands apart".to_owned());
        }
        if self.row_names {
            told.push("a name stands before each row, which no column names".to_owned());
        }
        let mut told =
            if told.is_empty() { Vec::new() } else { vec![format!("written in another way: {}", told.join(", "))] };
        if before > 0 {
            let are = if before == 1 { "is" } else { "are" };
            told.push(format!("{} before the header {are} left out", lines_in_words(before)));
        }
        if let Some(units) = &self.units {
            told.push(format!("the line under the header is no row, and is left out: {units}"));
        }
        told
    }
}

impl Dialect {
    /// A cell with a decimal point and without marks between thousands, where it is such a number.
    pub(super) fn plain<'a>(&self, cell: &'a str) -> Cow<'a, str> {
        match () {
            () if self.decimal_commas => pointed(cell).map_or(Cow::Borrowed(cell), Cow::Owned),
            () if is_grouped(cell) => Cow::Owned(cell.replace(',', "")),
            () => Cow::Borrowed(cell),
        }
    }
}

/// "1 line", "2 lines".
pub(super) fn lines_in_words(count: usize) -> String {
    if count == 1 { "1 line".to_owned() } else { format!("{count} lines") }
}

fn separator_of(blanks: bool, separator: u8) -> u8 {
    if blanks { b'\t' } else { separator }
}

/// Which of these lines is the header, and whether lines that begin with # lead up to it.
fn header_of(lines: &[&str]) -> (usize, bool) {
    let holds_value = |line: &str| {
        let separated = cells(line, separator(line, None));
        let words = line.split_whitespace().map(str::to_owned);
        separated.into_iter().chain(words).any(|cell| !cell.is_empty() && is_value(&cell))
    };
    let remarks = lines.iter().take_while(|line| line.starts_with('#')).count();
    if remarks > 0 && remarks < lines.len() {
        // numpy.savetxt puts the sign before the names.
        return (remarks - usize::from(holds_value(lines[remarks])), true);
    }
    // Where the first line is of another length than all rows, some line behind it may name the columns of those.
    let [.., before, last] = lines else { return (0, false) };
    let separator = separator(before, Some(last));
    let count = |line: &str| cells(line, separator).len();
    // A title of a spreadsheet has separators for all columns behind it.
    let filled = |line: &str| cells(line, separator).iter().filter(|cell| !cell.is_empty()).count();
    let (width, first) = (count(before), lines.first().map_or(0, |line| filled(line)));
    let fits = |at: &usize| {
        let names = cells(lines[*at], separator);
        width > 1
            && names.len() == width
            && lines[*at..lines.len() - 1].iter().all(|line| count(line) == width || line.starts_with('#'))
            && names.iter().all(|name| !is_value(name) || name.is_empty())
            && filled(lines[*at]) > first.max(1)
    };
    if first + 1 >= width {
        return (0, false);
    }
    ((1..lines.len().min(FRONT)).find(fits).unwrap_or(0), false)
}

/// Whether a line holds nothing, or separators alone, as spreadsheets write a blank one.
fn is_bare(line: &str) -> bool {
    let nothing = |c: char| c.is_whitespace() || c == '"' || SEPARATORS.iter().any(|each| char::from(each.0) == c);
    line.chars().all(nothing)
}

/// Whether the columns are separated by runs of blanks.
fn is_of_blanks(header: &str, rows: &[&str]) -> bool {
    let words = |line: &str| tabbed(line.as_bytes(), true).split(|byte| *byte == b'\t').count();
    let names = words(header);
    let row_names = header.starts_with('"');
    let fits = |row: &&str| words(row) == names || (row_names && words(row) == names + 1);
    names > 1 && !rows.is_empty() && rows.iter().take(rows.len().max(2) - 1).all(fits)
}

/// Whether the first row holds no number in columns that hold numbers alone below it, and some word there: units, or a second header. Or it is
/// a line under the header, as databases draw it.
fn are_units(first: &[String], rows: &[Vec<String>]) -> bool {
    if first.iter().any(|cell| cell.len() > 1) && first.iter().all(|cell| cell.chars().all(|c| "-=:+".contains(c))) {
        return true;
    }
    let numbers = |k: &usize| column(rows, *k).next().is_some() && column(rows, *k).all(|cell| is_decimal(cell));
    let columns: Vec<usize> = (0..first.len()).filter(numbers).collect();
    let word = |cell: &String| !is_decimal(cell) && !is_missing(Cell::Written(cell));
    columns.iter().all(|&k| !is_decimal(&first[k])) && columns.iter().any(|&k| word(&first[k]))
}

/// What column k holds in these rows, blank cells left out.
fn column(rows: &[Vec<String>], k: usize) -> impl Iterator<Item = &String> {
    rows.iter().filter_map(move |row| row.get(k)).filter(|cell| !cell.is_empty())
}

/// Whether a cell is a number, with a decimal point or a decimal comma.
fn is_decimal(cell: &str) -> bool {
    is_number(cell) || pointed(cell).is_some()
}

/// Cells of a line.
fn cells(line: &str, separator: u8) -> Vec<String> {
    let mut reader = ::csv::ReaderBuilder::new();
    let reader = reader.has_headers(false).delimiter(separator).trim(::csv::Trim::All).from_reader(line.as_bytes());
    let record = reader.into_records().next().and_then(Result::ok).unwrap_or_default();
    record.iter().map(str::to_owned).collect()
}

/// What separates the columns: what makes equally many cells of the first row and of the header, and the most of them.
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
    let first = groups.next().is_some_and(|first| first.len() <= 3 && digits(first) && !first.starts_with('0'));
    let mut rest = groups.peekable();
    first && rest.peek().is_some() && rest.all(|group| group.len() == 3 && digits(group))
}

/// A number with a decimal comma, `-1,5`, `1.234,5` or `1 234,5`, with a point; none where the cell is something else.
pub(super) fn pointed(cell: &str) -> Option<String> {
    let (whole, decimals) = cell.split_once(',')?;
    let whole = whole.replace(is_apart, ".");
    let plain = !whole.contains('.') || in_thousands(&whole);
    let number = format!("{}.{decimals}", whole.replace('.', ""));
    (plain && is_number(&number) && !decimals.contains(',')).then_some(number)
}

/// Whether the first line of a CSV file names columns.
///
/// # Errors
/// What it is instead.
pub(super) fn check_header(sources: &[Source], job: &Job<'_>) -> Result<(), Fault> {
    if sources[0].name.starts_with("{\"") {
        let message = "no columns, but lines of JSON; its name must end in .jsonl, or say what it is: --format jsonl";
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
    text.is_empty() || truth(text).is_some() || time(Cell::Written(text)).is_ok() || is_number(text)
}

/// What is wrong with a line of another length than the first one; `last`: whether nothing follows.
pub(super) fn of_other_length(record: &::csv::StringRecord, names: usize, last: bool) -> String {
    let cells = record.len();
    match last && cells < names {
        true => format!("cut off: it is the last line, and has {cells} of {names} cells; delete it"),
        false => format!(
            "has {cells} cells, the first line has {names}; a text with a separator in it must stand in quotes, and decimals in a \
             file of commas need points"
        ),
    }
}

/// Whether a file ends amid a line, as where its writer was cut off.
pub(super) fn breaks_off(path: &Path) -> bool {
    if !path.is_file() {
        // Of a pipe the end is gone.
        return false;
    }
    let mut end = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::End(-2))?;
        file.read_to_end(&mut end)
    });
    read.is_ok() && !end.contains(&b'\n') && !end.contains(&b'\r')
}

/// Of text with zero bytes, as a writer leaves them that lost its power.
pub(super) const ZEROS: &str =
    "holds zero bytes, as files do whose writer was cut off; take them out: tr -d '\\000' < OLD > NEW";
