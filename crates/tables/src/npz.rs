//! NPZ: a zip archive of NumPy arrays.

use super::Fault;
use super::arrays::{self, Array, Budget, Element, Kind, Piece};
use super::build::Builder;
use super::job::{Column, Job, Want};
use super::roles::assign;
use super::schema::Schema;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use zip::ZipArchive;

/// Headers of arrays are a line of text; arrays of numbers and texts never have longer ones.
const HEADER_MAX: usize = 4096;
/// Arrays in one file, at most.
const ARRAYS_MAX: usize = 1024;
/// Bytes read at a time.
const BLOCK: usize = 1 << 20;

pub(super) fn read(path: &Path, job: &mut Job<'_>) -> Result<Builder, Fault> {
    let file = File::open(path).map_err(Fault::Io)?;
    let bytes = file.metadata().map_err(Fault::Io)?.len();
    let damaged = |e: zip::result::ZipError| Fault::Content(format!("not an NPZ file that can be read: {e}"));
    let mut archive = ZipArchive::new(BufReader::with_capacity(1 << 16, file)).map_err(damaged)?;
    if archive.len() > ARRAYS_MAX {
        return Err(Fault::Content(format!("{} arrays; a table has at most {ARRAYS_MAX}", archive.len())));
    }
    let parts = archive.len();
    let mut shapes = Vec::with_capacity(parts);
    for index in 0..parts {
        let mut entry = archive.by_index(index).map_err(damaged)?;
        let file_name = String::from_utf8_lossy(entry.name_raw()).into_owned();
        let name = file_name.strip_suffix(".npy").unwrap_or(&file_name);
        // What is wrong with an array counts only if it is needed.
        shapes.push((name.to_owned(), NpyHeader::read(&mut entry).ok().map(|header| header.shape)));
    }
    let sources = arrays::sources(&shapes, job);
    let roles = assign(job, &sources)?;
    let mut budget = Budget::of_file(bytes);
    let mut found = Vec::new();
    for (index, used) in roles.of.iter().enumerate().filter(|(_, used)| !used.is_empty()) {
        job.report(super::Progress { rows: 0, fraction: 0.5 * index as f64 / parts as f64 })?;
        let name = &sources[index].name;
        if job.want == Want::States && !used.iter().any(|role| matches!(role.column, Column::State(_))) {
            return Err(Fault::column(name, "a table of states has the array states alone; drop this one"));
        }
        let mut entry = archive.by_index(index).map_err(damaged)?;
        let array = array(name, &mut entry, &mut budget).map_err(|message| Fault::column(name, message))?;
        found.push((used.clone(), array));
    }
    let piece = Piece::new(found, None, "", job.format)?;
    let mut builder = Builder::new(Schema::new(job, piece.layout(), roles)?, true);
    piece.push(&mut builder, job, (0.5, 1.0))?;
    Ok(builder)
}

/// An array in the format of NumPy's `save`, versions 1 to 3.
fn array(name: &str, source: &mut impl Read, budget: &mut Budget) -> Result<Array, String> {
    let NpyHeader { element, fortran, shape } = NpyHeader::read(source)?;
    let expected = budget.take(&shape, element)?;
    // Memory grows with the bytes that are there, not with those that are claimed.
    let mut bytes = Vec::new();
    let mut rest = source.take(expected as u64);
    while rest.by_ref().take(BLOCK as u64).read_to_end(&mut bytes).map_err(cut)? > 0 {}
    if bytes.len() < expected {
        return Err(format!("ends after {} of {expected} bytes", bytes.len()));
    }
    let more = source.read(&mut [0]).map_err(cut)?;
    if more > 0 {
        return Err(format!("is longer than the {expected} bytes of its shape {shape:?}"));
    }
    if fortran && shape.len() > 2 {
        return Err(format!("has shape {shape:?}, must hold rows of numbers; flatten what has more axes"));
    }
    let array = Array::decode(name, shape, element, &bytes)?;
    Ok(if fortran { array.into_c_order() } else { array })
}

fn cut(e: std::io::Error) -> String {
    format!("cannot be read: {e}")
}

/// What stands before the numbers: the text of a Python dictionary with three keys, always.
#[derive(Debug, PartialEq)]
struct NpyHeader {
    element: Element,
    fortran: bool,
    shape: Vec<usize>,
}

impl NpyHeader {
    /// The header of an array; numbers follow in `source`.
    fn read(source: &mut impl Read) -> Result<Self, String> {
        let mut start = [0; 8];
        source.read_exact(&mut start).map_err(cut)?;
        if start[..6] != *b"\x93NUMPY" {
            return Err("not an array of NumPy".to_owned());
        }
        let mut length = [0; 4];
        let width = if start[6] == 1 { 2 } else { 4 };
        source.read_exact(&mut length[..width]).map_err(cut)?;
        let length = u32::from_le_bytes(length) as usize;
        if !(1..=3).contains(&start[6]) || length > HEADER_MAX {
            return Err("has a header of a kind that is not known".to_owned());
        }
        let mut text = vec![0; length];
        source.read_exact(&mut text).map_err(cut)?;
        let text = String::from_utf8(text).map_err(|_| "has a header that is not text".to_owned())?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("has a header that cannot be read: {}", text.trim().chars().take(80).collect::<String>());
        let after = |key: &str| {
            let (_, rest) = text.split_once(&format!("'{key}'"))?;
            Some(rest.trim_start().strip_prefix(':')?.trim_start())
        };
        let descr = after("descr").ok_or_else(wrong)?;
        let Some((descr, _)) = descr.strip_prefix('\'').and_then(|rest| rest.split_once('\'')) else {
            return Err("has fields (a structured array); write one array of numbers for each".to_owned());
        };
        let order = after("fortran_order").ok_or_else(wrong)?;
        let fortran = match order {
            _ if order.starts_with("False") => false,
            _ if order.starts_with("True") => true,
            _ => return Err(wrong()),
        };
        let shape = after("shape").and_then(|rest| rest.strip_prefix('(')).and_then(|rest| rest.split_once(')'));
        let (axes, _) = shape.ok_or_else(wrong)?;
        let axes = axes.split(',').map(str::trim).filter(|axis| !axis.is_empty());
        let shape = axes.map(str::parse).collect::<Result<Vec<usize>, _>>().map_err(|_| wrong())?;
        if shape.len() > 32 {
            return Err(wrong());
        }
        Ok(Self { element: element(descr)?, fortran, shape })
    }
}

/// A type as NumPy writes it: byte order, kind, bytes (for Unicode: letters).
fn element(descr: &str) -> Result<Element, String> {
    let wrong = || match descr {
        "|O" => "holds Python objects; convert it with astype to f8, or to a text".to_owned(),
        _ => format!("numbers of type {descr:?} cannot be read; write f4, f8, i4, i8 or bool"),
    };
    let mut letters = descr.chars();
    let big_endian = match letters.next() {
        Some('<' | '|') => false,
        Some('>') => true,
        _ => return Err(wrong()),
    };
    let kind = match letters.next() {
        Some('f') => Kind::Float,
        Some('i') => Kind::Signed,
        Some('u') => Kind::Unsigned,
        Some('b') => Kind::Flag,
        Some('S') => Kind::Bytes,
        Some('U') => Kind::Unicode,
        _ => return Err(wrong()),
    };
    let size: usize = letters.as_str().parse().map_err(|_| wrong())?;
    let size = if kind == Kind::Unicode { size.saturating_mul(4) } else { size };
    let sound = match kind {
        Kind::Float => matches!(size, 4 | 8),
        Kind::Signed | Kind::Unsigned => matches!(size, 1 | 2 | 4 | 8),
        Kind::Flag => size == 1,
        Kind::Bytes | Kind::Unicode => size > 0,
    };
    if sound { Ok(Element { kind, size, big_endian }) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_numpy_writes_them() {
        let parse = |text: &str| NpyHeader::parse(text);
        let header = parse("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2), }            \n").unwrap();
        let element = Element { kind: Kind::Float, size: 8, big_endian: false };
        assert_eq!(header, NpyHeader { element, fortran: false, shape: vec![3, 2] });
        let header = parse("{'descr': '>i4', 'fortran_order': True, 'shape': (5,), }").unwrap();
        let element = Element { kind: Kind::Signed, size: 4, big_endian: true };
        assert_eq!(header, NpyHeader { element, fortran: true, shape: vec![5] });
        assert_eq!(parse("{'descr': '|b1', 'fortran_order': False, 'shape': (), }").unwrap().shape, [0_usize; 0]);
        assert_eq!(parse("{'descr': '<U7', 'fortran_order': False, 'shape': (1,), }").unwrap().element.size, 28);
        for (text, words) in [
            ("{'descr': [('x', '<f8')], 'fortran_order': False, 'shape': (1,), }", "structured array"),
            ("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "Python objects"),
            ("{'descr': '<f2', 'fortran_order': False, 'shape': (1,), }", "\"<f2\""),
            ("{'descr': '<c16', 'fortran_order': False, 'shape': (1,), }", "\"<c16\""),
            ("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }", "cannot be read"),
            ("{'descr': '<f8', 'fortran_order': Maybe, 'shape': (1,), }", "cannot be read"),
            ("{'descr': '<f8', 'fortran_order': False, 'shape': (1", "cannot be read"),
            ("", "cannot be read"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(words), "{text}: {message}");
        }
    }
}
