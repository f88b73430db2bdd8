//! Columns as they lie in a file, for whoever wants them beside what was made of its rows.

use super::cell::{Cell, is_missing};
use super::job::Column;
use super::sidecar::Values;
use super::{Columns, Fault, Format, Progress, TableError, Want};
use std::path::Path;

/// The columns called `names` at the rows that stand at these `places` of a file, lists number by number. `columns` says its
/// format, where its name does not.
///
/// # Errors
/// If the file cannot be read, has no such column, or holds arrays.
pub fn columns_at(
    path: &Path,
    columns: &Columns,
    names: &[String],
    places: &[u64],
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<(String, Values)>, TableError> {
    let wanted = Columns { state: names.to_vec(), format: columns.format.clone(), ..Columns::default() };
    let mut read = || {
        if Format::to_read(path, columns.format.as_deref())?.has_arrays() {
            let message = "columns can be kept of CSV, JSONL, Parquet and LeRobot datasets; put arrays beside the labels by episode and frame";
            return Err(Fault::Content(message.to_owned()));
        }
        let mut kept = super::read(path, Want::Keep, &wanted, progress)?.judge.kept;
        // As they were asked for, not as they stand in the file.
        kept.columns.sort_by_key(|column| column.number);
        let changed = || Fault::Content("the file has changed while it was read; start again".to_owned());
        let rows: Option<Vec<usize>> = places.iter().map(|place| kept.places.binary_search(place).ok()).collect();
        let rows = rows.ok_or_else(changed)?;
        let named = kept.columns.len() == names.len();
        let column = |(k, column): (usize, &KeptColumn)| {
            // A joint is called as it was asked for.
            let name = if named { &names[k] } else { &column.name };
            (name.clone(), values(&rows.iter().map(|&row| &column.cells[row]).collect::<Vec<_>>()))
        };
        Ok(kept.columns.iter().enumerate().map(column).collect())
    };
    read().map_err(|fault| TableError { path: path.to_owned(), fault })
}

/// Cells of some columns, in the order of the file.
#[derive(Debug, Default)]
pub(super) struct KeptColumns {
    places: Vec<u64>,
    columns: Vec<KeptColumn>,
}

#[derive(Debug)]
struct KeptColumn {
    /// Which of those that were asked for it is.
    number: usize,
    name: String,
    cells: Vec<Kept>,
}

/// What a cell held.
#[derive(Clone, Debug, PartialEq)]
enum Kept {
    Nothing,
    Flag(bool),
    Whole(i64),
    Number(f64),
    /// Of a format that does not tell texts from numbers.
    Written(String),
    Text(String),
}

impl KeptColumns {
    /// None yet of the columns that are to be kept, with their names.
    pub(super) fn new(columns: &[Column], names: &[String]) -> Self {
        let kept = |(column, name): (&Column, &String)| match column {
            Column::Kept(number) => Some(KeptColumn { number: *number, name: name.clone(), cells: Vec::new() }),
            _ => None,
        };
        Self { places: Vec::new(), columns: columns.iter().zip(names).filter_map(kept).collect() }
    }

    pub(super) fn push<'c>(&mut self, place: u64, cell: impl Fn(usize) -> Cell<'c>) {
        if self.columns.is_empty() {
            return;
        }
        self.places.push(place);
        for (k, column) in self.columns.iter_mut().enumerate() {
            column.cells.push(match cell(k) {
                Cell::Empty | Cell::Written("") => Kept::Nothing,
                Cell::Written(text) | Cell::Ambiguous(text) => Kept::Written(text.to_owned()),
                Cell::Text(text) => Kept::Text(text.to_owned()),
                Cell::Number(value) => Kept::Number(value),
                Cell::Whole(value) => i64::try_from(value).map_or(Kept::Number(value as f64), Kept::Whole),
                Cell::Flag(value) => Kept::Flag(value),
            });
        }
    }
}

/// Cells as a column of the narrowest kind that holds all of them.
fn values(cells: &[&Kept]) -> Values {
    let flag = |cell: &&Kept| match cell {
        Kept::Flag(value) => Some(*value),
        Kept::Written(text) => text.to_ascii_lowercase().parse().ok(),
        _ => None,
    };
    let whole = |cell: &&Kept| match cell {
        Kept::Whole(value) => Some(*value),
        Kept::Written(text) => text.parse().ok(),
        _ => None,
    };
    let number = |cell: &&Kept| match cell {
        Kept::Nothing => Some(f64::NAN),
        Kept::Whole(value) => Some(*value as f64),
        Kept::Number(value) => Some(*value),
        Kept::Written(text) if is_missing(Cell::Written(text)) => Some(f64::NAN),
        Kept::Written(text) => text.parse().ok(),
        _ => None,
    };
    let text = |cell: &&Kept| match cell {
        Kept::Nothing => String::new(),
        Kept::Flag(value) => value.to_string(),
        Kept::Whole(value) => value.to_string(),
        Kept::Number(value) => value.to_string(),
        Kept::Written(text) | Kept::Text(text) => text.clone(),
    };
    let all = || cells.iter();
    let flags = || all().map(flag).collect::<Option<_>>().map(Values::Flags);
    let wholes = || all().map(whole).collect::<Option<_>>().map(Values::Whole);
    let numbers = || all().map(number).collect::<Option<_>>().map(Values::Numbers);
    flags().or_else(wholes).or_else(numbers).unwrap_or_else(|| Values::Texts(all().map(text).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_kept_as_they_lie() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.csv");
        std::fs::write(&path, "x,ok,k,who,gap\n0.5,true,1,a,\n1.5,False,-2,1,na\n2,TRUE,3,,7\n").unwrap();
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let of = |wanted: &[&str], places: &[u64]| {
            columns_at(&path, &Columns::default(), &names(wanted), places, &mut |_| {})
        };
        let found = of(&["who", "k", "ok", "x", "gap"], &[4, 2]).unwrap();
        assert_eq!(found[0], ("who".to_owned(), Values::Texts(vec![String::new(), "a".into()])));
        assert_eq!(found[1].1, Values::Whole(vec![3, 1]));
        assert_eq!(found[2].1, Values::Flags(vec![true, true]));
        assert_eq!(found[3].1, Values::Numbers(vec![2.0, 0.5]));
        assert!(matches!(&found[4].1, Values::Numbers(gap) if gap[0] == 7.0 && gap[1].is_nan()));
        assert!(of(&["whom"], &[2]).unwrap_err().to_string().contains("who"));
        assert!(of(&["x"], &[9]).unwrap_err().to_string().contains("changed"));
    }
}
