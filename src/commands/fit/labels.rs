//! Cumulants that a file holds: a value for each stream and `seq`, which becomes a reward column of the table.

use crate::commands::Failure;
use crate::commands::label_file::{self, InFile};
use crate::commands::output::{in_file, note};
use criticd::math::returns::chains;
use criticd::table::Table;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// A column that has been read, and where it stands in the table.
struct Known {
    path: PathBuf,
    column: String,
    /// Number of its reward column.
    values: usize,
    /// Of each row 1 if it has a value, else 0.
    present: Vec<f64>,
}

/// Put the columns of files that `list`, the heads of the file `of`, names as cumulants into `table`; the heads then name reward
/// columns.
/// Heads without discount and timescale have `discount`.
pub(super) fn resolve(list: &mut Value, of: &Path, table: &mut Table, discount: f64) -> Result<(), Failure> {
    let mut known: Vec<Known> = Vec::new();
    for (i, head) in list.as_array_mut().into_iter().flatten().enumerate() {
        let Some(wanted) = InFile::of(head, i, of)? else { continue };
        let name = head["name"].as_str().unwrap_or_default().to_owned();
        let path = wanted.path(of);
        let at = match known.iter().position(|known| known.path == path && known.column == wanted.column) {
            Some(at) => at,
            None => {
                known.push(read(path, wanted.column.clone(), table)?);
                known.len() - 1
            }
        };
        let Known { values, present, .. } = &known[at];
        head["cumulant"] = json!({"kind": "reward", "index": values});
        let missing = present.iter().filter(|present| **present == 0.0).count();
        if missing == 0 {
            continue;
        }
        let sums = !head["timescale"].is_null() || head["discount"].as_f64().unwrap_or(discount) != 0.0;
        if let Some(row) = sums.then(|| torn(table, present)).flatten() {
            let (seq, stream) = (table.seq(row), &table.streams()[table.rows().streams[row] as usize]);
            let what = format!(
                "seq {seq} of stream {stream} has no value for {}, other rows of its chain have one, and head {name} sums them: give \
                 all rows of a chain a value or none, or the head discount 0",
                wanted.column
            );
            return Err(in_file(&known[at].path, what));
        }
        note(&format!(
            "head {name}: {} of {} rows have a value, the others do not count",
            present.len() - missing,
            present.len()
        ));
        let weights = match head["weight"]["index"].as_u64() {
            None => present.clone(),
            Some(column) => {
                let column = column as usize;
                if column >= table.rewards_per_row() {
                    continue; // Refused with the other faults of heads.
                }
                present.iter().enumerate().map(|(row, present)| present * table.rows().reward(row)[column]).collect()
            }
        };
        head["weight"] = json!({"index": table.add_reward(&weights)});
    }
    Ok(())
}

/// The first row without a value that follows, or is followed by, one with a value in its chain.
fn torn(table: &Table, present: &[f64]) -> Option<usize> {
    let next = chains(table.rows());
    let torn = |i: usize| next[i].filter(|&next| present[i] != present[next]).map(|next| (i, next));
    (0..next.len()).find_map(torn).map(|(i, next)| if present[i] == 0.0 { i } else { next })
}

/// The values of a column, as a reward of `table`.
fn read(path: PathBuf, column: String, table: &mut Table) -> Result<Known, Failure> {
    let values = label_file::read(&path, &column)?;
    let rows = table.rows();
    let key = |i: usize| (table.streams()[rows.streams[i] as usize].clone(), table.seq(i));
    let mut named = HashSet::with_capacity(rows.len());
    if let Some(i) = (0..rows.len()).find(|&i| values.contains_key(&key(i)) && !named.insert(key(i))) {
        let (stream, seq) = key(i);
        return Err(in_file(&path, format!("seq {seq} of stream {stream} names more than one row of the table")));
    }
    let of_rows: Vec<Option<f64>> = (0..rows.len()).map(|i| values.get(&key(i)).copied()).collect();
    let kept: Vec<bool> = of_rows.iter().map(Option::is_some).collect();
    if !kept.contains(&true) {
        let what = "no stream and seq in it is one of the table: a row has `stream`, `seq` and the value";
        return Err(in_file(&path, what));
    }
    let numbers: Vec<f64> = of_rows.into_iter().map(|value| value.unwrap_or(0.0)).collect();
    let values = table.add_reward(&numbers);
    Ok(Known { path, column, values, present: kept.into_iter().map(|kept| f64::from(u8::from(kept))).collect() })
}
