//! Cumulants that a file holds: a value for each stream and `seq`. Where each row of the table has one they become a reward column. Where
//! some rows lack one they become labels, as `criticd heads add` gives them to a daemon: chains end before a row without one.

use crate::commands::Failure;
use crate::commands::label_file::{self, InFile};
use crate::commands::output::{in_file, note};
use crate::learner::heads::Cumulant;
use crate::learner::labels::Labels;
use crate::table::Table;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// A column that has been read.
struct Known {
    path: PathBuf,
    column: String,
    /// What heads sum that name it.
    cumulant: Cumulant,
    /// Rows that have a value.
    count: usize,
}

/// A head's number in the list, and its cumulant.
type Numbered = (usize, Cumulant);

/// Put the columns of files that `list`, the heads of the file `of`, names as cumulants into `table`. Heads whose column has a value
/// for each row then name reward columns. The numbers of the others are returned with their cumulants, which take the place of what the
/// list says of them: a list cannot name labels. The files are returned, too.
pub(super) fn resolve(
    list: &mut Value,
    of: &Path,
    table: &mut Table,
) -> Result<(Vec<Numbered>, Vec<PathBuf>), Failure> {
    let (mut known, mut labelled): (Vec<Known>, Vec<Numbered>) = (Vec::new(), Vec::new());
    for (i, head) in list.as_array_mut().into_iter().flatten().enumerate() {
        let Some(wanted) = InFile::of(head, i, of)? else { continue };
        let path = wanted.path(of);
        let at = match known.iter().position(|known| known.path == path && known.column == wanted.column) {
            Some(at) => at,
            None => {
                known.push(read(path, wanted.column.clone(), table)?);
                known.len() - 1
            }
        };
        let Known { cumulant, count, .. } = &known[at];
        if let Cumulant::Reward(index) = cumulant {
            head["cumulant"] = json!({"kind": "reward", "index": index});
            continue;
        }
        head["cumulant"] = json!({"kind": "constant", "value": 0.0});
        labelled.push((i, cumulant.clone()));
        note(&format!(
            "head {}: {count} of {} rows have a value, the others do not count, and chains end before them",
            head["name"].as_str().unwrap_or_default(),
            table.rows().len()
        ));
    }
    Ok((labelled, known.into_iter().map(|known| known.path).collect()))
}

/// The values of a column, as a reward of `table` or as labels of its rows.
fn read(path: PathBuf, column: String, table: &mut Table) -> Result<Known, Failure> {
    let values = label_file::read(&path, &column)?;
    let rows = table.rows();
    let all = rows.len();
    let key = |i: usize| (table.streams()[rows.streams[i] as usize].clone(), table.seq(i));
    let mut named = HashSet::with_capacity(all);
    if let Some(i) = (0..all).find(|&i| values.contains_key(&key(i)) && !named.insert(key(i))) {
        let (stream, seq) = key(i);
        return Err(in_file(&path, format!("seq {seq} of stream {stream} names more than one row of the table")));
    }
    let of_row = |i: usize| Some((i as u64, *values.get(&key(i))?));
    let (offsets, numbers): (Vec<u64>, Vec<f64>) = (0..all).filter_map(of_row).unzip();
    let count = numbers.len();
    if count == 0 {
        let what = "no stream and seq in it is one of the table: a row has `stream`, `seq` and the value";
        return Err(in_file(&path, what));
    }
    let cumulant = if count == all {
        Cumulant::Reward(table.add_reward(&numbers))
    } else {
        let mut labels = Labels::default();
        let taken = labels.extend(&offsets, &numbers);
        taken.map_err(|_| in_file(&path, format!("{column}: a value is not a number between -1e9 and 1e9")))?;
        table.add_labels(&labels);
        Cumulant::Label { name: label_file::stem(&path, &column), id: labels.id() }
    };
    Ok(Known { path, column, cumulant, count })
}
