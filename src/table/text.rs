//! Texts that are no tables as they are, and what to do about them: other encodings, other separators, no header, a cut end.

use super::Fault;
use super::cell::Cell;
use super::job::{Job, Want};
use super::moment::time;
use super::roles::Source;
use std::fs::File;
use std::io::Read as _;

/// Bytes of a file that are looked at before it is read.
const HEAD: u64 = 1 << 16;
/// What separates columns in other files: what it is called, and how Python writes it.
const SEPARATORS: [(char, &str, &str); 4] =
    [(';', "semicolons", ";"), ('\t', "tabs", "\\t"), ('|', "bars", "|"), (' ', "blanks", "\\s+")];

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

/// The beginning of a text.
///
/// # Errors
/// If it is in UTF-16, or no text at all.
pub(super) fn head(file: &mut File) -> Result<Vec<u8>, Fault> {
    let mut head = Vec::new();
    file.take(HEAD).read_to_end(&mut head).map_err(Fault::Io)?;
    if let Some((_, what)) = OTHERS.iter().find(|(start, _)| head.starts_with(start)) {
        return Err(Fault::Content(format!("no text, but {what}")));
    }
    let marked = head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff");
    // Every second byte of plain letters is zero.
    let unmarked = matches!(head[..], [0, 1..=255, 0, 1..=255, ..] | [1..=255, 0, 1..=255, 0, ..]);
    if marked || unmarked {
        let message = "in UTF-16; save it as \"CSV UTF-8\", or convert it: iconv -f UTF-16 -t UTF-8 OLD > NEW";
        return Err(Fault::Content(message.to_owned()));
    }
    Ok(head)
}

/// Whether the first line of a CSV file names columns that are separated by commas.
///
/// # Errors
/// What it is instead.
pub(super) fn check_header(sources: &[Source], head: &[u8], job: &Job<'_>) -> Result<(), Fault> {
    let first = &sources[0].name;
    if let (1 | 2, Some(separator)) = (sources.len(), first.strip_prefix("sep=")) {
        return Err(Fault::Content(separated_by(separator.chars().next().unwrap_or(','), head)));
    }
    let blanks = job.want != Want::States;
    let other =
        SEPARATORS.iter().map(|(separator, ..)| *separator).find(|&c| first.contains(c) && (c != ' ' || blanks));
    if let (1, Some(separator)) = (sources.len(), other) {
        return Err(Fault::Content(separated_by(separator, head)));
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

/// That columns are separated by something else, and how to change that.
fn separated_by(separator: char, head: &[u8]) -> String {
    let lines: Vec<&[u8]> = head.split(|&byte| byte == b'\n').collect();
    let number = |three: &[u8]| three[0].is_ascii_digit() && three[1] == b',' && three[2].is_ascii_digit();
    let decimal = separator != ',' && lines.iter().skip(1).any(|line| line.windows(3).any(number));
    let found = SEPARATORS.iter().find(|(known, ..)| *known == separator);
    let (what, python) = found.map_or(("commas", ","), |(_, what, python)| (what, python));
    let (commas, option) = if decimal { (", and decimals by commas", ", decimal=\",\"") } else { ("", "") };
    let skip =
        if lines.first().is_some_and(|line| line.windows(4).any(|four| four == b"sep=")) { ", skiprows=1" } else { "" };
    let must = if separator == ',' { "the first line must name them" } else { "they must be separated by commas" };
    format!(
        "columns are separated by {what}{commas}; {must}. In Python: pandas.read_csv(\"OLD\", sep=\"{python}\"{option}{skip})\
         .to_csv(\"NEW\", index=False)"
    )
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
            "has {cells} cells, the first line has {names}; a text with a comma in it must stand in quotes, and decimals need \
             points"
        ),
    }
}

/// Of text with zero bytes, as a writer leaves them that lost its power.
pub(super) const ZEROS: &str =
    "holds zero bytes, as files do whose writer was cut off; take them out: tr -d '\\000' < OLD > NEW";
