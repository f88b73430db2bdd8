//! CSV: the first line names the columns.

use super::build::Builder;
use super::cell::Cell;
use super::columns::Missing;
use super::job::{Column, Job, Want};
use super::roles::{Source, assign};
use super::schema::Schema;
use super::{Fault, text};
use std::fs::File;
use std::io::Read;
use std::path::Path;

pub(super) fn read(path: &Path, job: &mut Job<'_>) -> Result<Builder, Fault> {
    let file = File::open(path).map_err(Fault::Io)?;
    let bytes = file.metadata().map_err(Fault::Io)?.len().max(1);
    let (text, mut dialect) = text::open(file)?;
    let skipped = dialect.skipped;
    let fault = |error| fault(error, skipped);
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
    // Rows of several streams that stand together go on in the next block.
    dialect.blocks &= columns.iter().all(|(_, column)| *column != Column::Stream);
    let mut builder = Builder::new(Schema::new(job, columns, roles)?, false);
    let (mut record, mut plain) = (::csv::StringRecord::new(), ::csv::StringRecord::new());
    let (mut units, mut remarks, mut headers) = (dialect.units.is_some(), Passed::default(), Passed::default());
    let (mut blocks, mut begun, mut apart) = (Passed::default(), false, false);
    while reader.read_record(&mut record).map_err(fault)? {
        let line = record.position().map_or(0, ::csv::Position::line) + dialect.skipped;
        match () {
            () if is_blank(&record, job) => {
                apart = begun && dialect.blocks;
                continue;
            }
            () if text::is_comment(&record, sources.len()) => {
                remarks.pass(line);
                continue;
            }
            () if std::mem::take(&mut units) => continue,
            () if is_header(&record, &sources) => {
                headers.pass(line);
                builder.break_off();
                continue;
            }
            () => begun = true,
        }
        if std::mem::take(&mut apart) && builder.break_off() {
            blocks.pass(line);
        }
        let zeros = has_zeros(&record);
        let names = usize::from(dialect.row_names && record.len() == sources.len() + 1);
        fit_end(&mut record, &sources, names);
        if record.len() != sources.len() + names || zeros {
            let short = record.len() < sources.len();
            let last = (short || zeros) && is_over(&mut reader, job);
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
    builder.judge.arguments = dialect.arguments();
    let told = dialect.told.into_iter().chain(remarks.say("begins with #", "begin with #"));
    let told = told.chain(headers.say("repeats the header", "repeat the header")).chain(blocks.say_apart());
    told.for_each(|told| builder.tell(told));
    Ok(builder)
}

/// A separator behind the last cell is there or not, as in the header.
fn fit_end(record: &mut ::csv::StringRecord, sources: &[Source], names: usize) {
    if record.len() == sources.len() + 1 && names == 0 && record.iter().next_back() == Some("") {
        record.truncate(sources.len());
    } else if record.len() + 1 == sources.len() && sources.last().is_some_and(|source| source.name.is_empty()) {
        record.push_field("");
    }
}

/// Whether no row follows.
fn is_over(reader: &mut ::csv::Reader<impl Read>, job: &Job<'_>) -> bool {
    let mut next = ::csv::StringRecord::new();
    loop {
        match reader.read_record(&mut next) {
            Ok(true) if is_blank(&next, job) => {}
            more => return !more.unwrap_or(true),
        }
    }
}

/// Whether a line holds nothing, or separators alone. A state is never nothing, and where numbers may be missing such a line is a row.
fn is_blank(record: &::csv::StringRecord, job: &Job<'_>) -> bool {
    let passes = job.want != Want::States && job.missing() == Missing::Refuse;
    record.iter().all(str::is_empty) && (record.len() == 1 || passes)
}

/// Lines that are no rows, or that begin a block of them.
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

    /// Of lines that begin the blocks behind the first one.
    fn say_apart(&self) -> Option<String> {
        (self.count > 0).then(|| {
            format!(
                "blank lines set {} blocks of rows apart, and no episode goes on from one to the next; the second begins in line {}. If \
                 rows do go on, say which column tells episodes apart (--episode), or take the blank lines out: grep -v \
                 '^[[:space:],;|]*$' OLD > NEW",
                self.count + 1,
                self.first
            )
        })
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

/// What the library says, in words of ours where those are better; `skipped`: lines before the header.
fn fault(error: ::csv::Error, skipped: u64) -> Fault {
    match error.kind() {
        ::csv::ErrorKind::Utf8 { pos, .. } => {
            let line = pos.as_ref().map_or(1, ::csv::Position::line) + skipped;
            Fault::Line { line, message: text::NOT_UTF_8.to_owned() }
        }
        _ => Fault::Csv(error),
    }
}

#[cfg(test)]
mod tests {
    use crate::{AssumeTerminated, Categories, Columns, Reading, Table, look, read_states};
    use std::path::PathBuf;

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.csv");
        std::fs::write(&path, text).unwrap();
        (directory, path)
    }

    fn columns(state: &str, reward: &str) -> Columns {
        Columns { state: vec![state.to_owned()], reward: vec![reward.to_owned()], ..Columns::default() }
    }

    fn read(text: &str, columns: &Columns) -> Result<Table, String> {
        let (_directory, path) = file(text);
        let reading = Reading { assume_terminated: Some(AssumeTerminated::Never), ..Reading::default() };
        Table::read_as(&path, reading, columns, &mut |_| {}).map_err(|e| e.to_string())
    }

    /// Of each row its state and where it stands, and where chains begin.
    fn rows(table: &Table) -> Vec<(f64, u64, bool)> {
        let rows = table.rows();
        (0..rows.len()).map(|i| (rows.state(i)[0], table.place(i), rows.starts_chain[i])).collect()
    }

    #[test]
    fn what_only_looks_like_blocks_or_decimal_commas_is_read_as_it_is() {
        let read =
            |text: &str, columns: &Columns| rows(&read(text, columns).unwrap_or_else(|said| panic!("{text}: {said}")));
        // The cell of a grid is no number, and 0.125 is no 125.
        let text = "x,r,cell\n0.125,1.000,\"3,7\"\n0.250,1.000,\"3,8\"\n";
        assert_eq!(read(text, &columns("x", "r")), [(0.125, 2, true)]);
        let text = "x,r,cell\n1.125,1.000,\"3,7\"\n2.250,1.000,\"d,8\"\n";
        assert_eq!(read(text, &columns("x", "r")), [(1.125, 2, true)]);
        // Ticks of two robots.
        let text = "stream,x,r\na,0,1\nb,5,1\n\na,1,1\nb,6,1\n\na,2,1\nb,7,1\n";
        let found = [(0.0, 2, true), (5.0, 3, true), (1.0, 5, false), (6.0, 6, false)];
        assert_eq!(read(text, &columns("x", "r")), found);
        // Where numbers may be missing, a row without any is one that lacks them.
        let text = "x,r\n0,1\n1,1\n,\n9,1\n10,1\n";
        let gappy = Columns { missing: crate::Missing::Drop, ..columns("x", "r") };
        assert_eq!(read(text, &gappy), [(0.0, 2, true), (9.0, 5, true)]);
        let held = Columns { missing: crate::Missing::Hold, ..columns("x", "r") };
        assert_eq!(read(text, &held), [(0.0, 2, true), (1.0, 3, false), (9.0, 5, true)]);
        // A category of signs is no line under the header.
        let (_directory, path) = file("charge\n+\n-\n+\n");
        let signs = Columns { categories: Categories(vec![vec!["+".into(), "-".into()]]), ..columns("charge", "r") };
        assert_eq!(
            crate::read_states_as(&path, &signs, &mut |_| {}).map_err(|e| e.to_string()),
            Ok((vec![0.0, 1.0, 0.0], 1))
        );
    }

    /// Three blocks, as gnuplot has them.
    const BLOCKS: &str = "# x r run\n0 1 a\n1 1 a\n2 1 a\n\n\n10 1 b\n11 1 b\n\n20 1 b\n21 1 b\n22 1 b\n\n";

    #[test]
    fn blank_lines_set_blocks_of_rows_apart() {
        let told = "blank lines set 3 blocks of rows apart, and no episode goes on from one to the next; the second begins in line 7";
        let expected = [(0.0, 2, true), (1.0, 3, false), (10.0, 7, true), (20.0, 10, true), (21.0, 11, false)];
        let with = |separator: &str| BLOCKS.replace(' ', separator).replacen(separator, " ", 1);
        let commas = with(",");
        for text in [
            BLOCKS.to_owned(),
            with("\t"),
            commas.clone(),
            commas.replace('\n', "\r\n"),
            commas.replace('\n', "\r"),
            commas.replace("\n\n", "\n,,\n"),
            commas.replace("b\n\n20", "b\n  \n20"),
        ] {
            let table = read(&text, &columns("x", "r")).unwrap_or_else(|said| panic!("{text:?}: {said}"));
            let said = table.told().last().unwrap();
            assert!(said.starts_with(told), "{text:?}: {:?}", table.told());
            assert_eq!((rows(&table), table.summary().episodes), (expected.to_vec(), 3), "{text:?}");
        }
        // A column that names episodes says more.
        let named = Columns { episode: Some("run".into()), ..columns("x", "r") };
        let table = read(&commas, &named).unwrap();
        assert_eq!((table.summary().episodes, table.rows().len(), table.told().len()), (2, 6, 0), "{:?}", table.told());
        let (_directory, path) = file(&commas);
        assert!(look(&path, None, &mut |_| {}).unwrap().told.iter().any(|said| said.starts_with(told)));
    }

    #[test]
    fn blank_lines_elsewhere_mean_nothing() {
        for (text, places) in [
            // Behind every row, at the end, under the header, and in a cell.
            ("x,r,note\n\n0,1,a\n\n1,1,b\n\n2,1,c\n\n", [3, 5]),
            ("x,r,note\n0,1,a\n1,1,b\n2,1,c\n\n\n", [2, 3]),
            ("x,r,note\n\n\n0,1,a\n1,1,b\n2,1,c\n,,\n", [4, 5]),
            ("x,r,note\n0,1,\"a\n\nb\"\n1,1,b\n2,1,c\n", [2, 5]),
        ] {
            let table = read(text, &columns("x", "r")).unwrap();
            assert_eq!(rows(&table), [(0.0, places[0], true), (1.0, places[1], false)], "{text:?}");
            assert!(table.told().is_empty(), "{text:?}: {:?}", table.told());
        }
        // A state that is nothing is a fault, since each row asks for an answer.
        let (_directory, path) = file("state_0,state_1\n1,2\n,\n3,4\n");
        assert!(read_states(&path, &mut |_| {}).unwrap_err().to_string().contains("line 3, column state_0: empty"));
    }

    #[test]
    fn lines_are_counted_as_the_file_has_them() {
        for text in
            ["x,r\n0,1\n\nz,1\n", "x,r\r\n0,1\r\n\r\nz,1\r\n", "x,r\r0,1\r\rz,1\r", "x,r\r\r\n0,1\r\r\n\r\r\nz,1\r\r\n"]
        {
            let said = read(text, &columns("x", "r")).unwrap_err();
            assert!(said.contains("line 4, column x: \"z\" is not a number"), "{text:?}: {said}");
        }
    }

    #[test]
    fn a_line_with_the_sign_of_comments_is_one_or_a_row() {
        for (text, comments) in [
            (
                "name,x,r\n#1,0,1\n# a remark\n#2,1,1\n#,of,four,cells\n#3,2,1\n",
                "2 lines begin with #, and are left out; the first: line 3",
            ),
            (
                "\"x\"\t\"r\"\n\"#1\"\t0\t1\n\"#2\"\t1\t1\n#3\n\"#3\"\t2\t1\n",
                "1 line begins with #, and is left out; line 4",
            ),
            (
                "# of a log\nname,x,r\n#1,0,1\n# 1,5,1\n\"# 2\",1,1\n#3,2,1\n",
                "1 line begins with #, and is left out; line 4",
            ),
        ] {
            let table = read(text, &columns("x", "r")).unwrap_or_else(|said| panic!("{text:?}: {said}"));
            assert_eq!(table.rows().states, [0.0, 1.0], "{text:?}");
            assert!(table.told().iter().any(|told| told == comments), "{text:?}: {:?}", table.told());
        }
    }

    #[test]
    fn tables_of_spreadsheets_and_databases_are_read_as_they_are() {
        let expected = [(-1234.5, true), (0.5, false)];
        for text in [
            // A title that is as wide as the table, and rows behind the last one.
            "Report,,\nof 2026,,\n,,\nx,r,note\n\"-1,234.50\",1,a\n0.5,1,b\n2,1,c\n,,\n,,\n",
            // Decimal commas in quotes, and blanks between thousands.
            "x,r,note\n\"-1.234,5\",1,a\n\"0,5\",1,b\n2,1,c\n",
            "x;r;note\n-1 234,5;1;a\n0,5;1;b\n2;1;c\n",
            "x;r;note\n-1\u{a0}234,5;1;a\n0,5;1;b\n2;1;c\n",
            // Lines that databases draw.
            "x,r,note\n-,-,----\n-1234.5,1,a\n0.5,1,b\n2,1,c\n",
            "    x    | r | note \n---------+---+------\n -1234.5 | 1 | a \n 0.5 | 1 | b \n 2 | 1 | c \n",
            "| x | r | note |\n|---|:-:|---|\n| -1234.5 | 1 | a |\n| 0.5 | 1 | b |\n| 2 | 1 | c |\n",
            "x        r  note\n-------  -  ----\n-1234.5  1  a\n0.5      1  b\n2        1  c\n",
        ] {
            let table = read(text, &columns("x", "r")).unwrap_or_else(|said| panic!("{text}: {said}"));
            let found: Vec<(f64, bool)> = rows(&table).into_iter().map(|(x, _, starts)| (x, starts)).collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn what_is_told_of_a_file_says_how_python_reads_it() {
        let told = |text: &str| {
            let (_directory, path) = file(text);
            look(&path, None, &mut |_| {}).map_or_else(|e| e.to_string(), |looked| looked.told.join("\n"))
        };
        for (text, words) in [
            (
                "x,price\n1,$5.50\n2,\"$1,128.82\"\n",
                "column price: numbers with a text beside them. In Python: df = pandas.read_csv(\"OLD.csv\");",
            ),
            (
                "a title\nx;y;load\n1,5;2;49 %\n2,5;2;50 %\n",
                "pandas.read_csv(\"OLD.csv\", sep=\";\", decimal=\",\", skiprows=1); df[\"load\"]",
            ),
            (
                "x\tload\nm\tunit\n1\t49 %\n2\t50 %\n",
                "pandas.read_csv(\"OLD.csv\", sep=\"\\t\", skiprows=[*range(0), 1])",
            ),
            ("x,r\n(0.5),1\n1,1\n", "column x: numbers in brackets; if brackets stand for a minus"),
            ("{\"x\": 1, \"reward\": 2}\n{\"x\": 2, \"reward\": 2}\n", "lines of JSON; its name must end in .jsonl"),
        ] {
            let said = told(text);
            assert!(said.contains(words), "{text}: {said}");
        }
    }

    #[test]
    fn what_is_no_number_says_what_to_do() {
        for (text, words) in [
            (
                "x,r\n1,1\n(0.856),1\n",
                "line 3, column x: \"(0.856)\" is not a number; if brackets stand for a minus, write that: sed -E '2,$ s/[(]([0-9][0-9.,]*)[)]/-\\1/g' OLD > NEW",
            ),
            (
                "x,r\n1,1\n2,\"(1,234.50)\"\n",
                "line 3, column r: \"(1,234.50)\" is not a number; if brackets stand for a minus",
            ),
            (
                "x,r\n1,1\nunavailable,1\n",
                "line 3, column x: \"unavailable\" is not a number; if it says that there is none, say what to do about such rows: --missing drop",
            ),
            ("x,r\n1,1\n2,-1.#IND\n", "column r: \"-1.#IND\" is not a number; if it says that there is none"),
            (
                "x,r\n1,1\nnan,1\n",
                "NaN is not a finite number; drop the row or repair it; if it says that there is none",
            ),
            ("x,r\n1,1\n2,\n3,1\n", "say --missing drop to leave such rows out"),
        ] {
            let said = read(text, &columns("x", "r")).unwrap_err();
            assert!(said.contains(words), "{text}: {said}");
            if words.contains("there is none") || words.contains("--missing") {
                let gappy = Columns { missing: crate::Missing::Drop, ..columns("x", "r") };
                assert!(read(&format!("{text}4,1\n5,1\n"), &gappy).is_ok(), "{text}");
            }
        }
    }
}
