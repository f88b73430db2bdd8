//! Cumulants that a file holds: a value for each stream and `seq`, which becomes a reward column of the table.

use crate::commands::Failure;
use crate::commands::output::{in_file, note};
use criticd::table::{Columns, Reading, Table};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// A cumulant of this kind.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InFile {
    #[serde(rename = "kind")]
    _kind: String,
    file: PathBuf,
    column: String,
}

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
pub(super) fn resolve(list: &mut Value, of: &Path, table: &mut Table) -> Result<(), Failure> {
    let mut known: Vec<Known> = Vec::new();
    for (i, head) in list.as_array_mut().into_iter().flatten().enumerate() {
        if head["cumulant"]["kind"] != "column" {
            continue;
        }
        let name = head["name"].as_str().unwrap_or_default().to_owned();
        let wanted: InFile = serde_json::from_value(head["cumulant"].clone())
            .map_err(|e| in_file(of, format!("heads[{i}] ({name}): cumulant: {e}")))?;
        let path = of.parent().unwrap_or(Path::new("")).join(&wanted.file);
        let at = match known.iter().position(|known| known.path == path && known.column == wanted.column) {
            Some(at) => at,
            None => {
                known.push(read(path, wanted.column, table)?);
                known.len() - 1
            }
        };
        let Known { values, present, .. } = &known[at];
        head["cumulant"] = json!({"kind": "reward", "index": values});
        let missing = present.iter().filter(|present| **present == 0.0).count();
        if missing == 0 {
            continue;
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

/// The values of a column, as a reward of `table`. Chains are cut where values begin and end.
fn read(path: PathBuf, column: String, table: &mut Table) -> Result<Known, Failure> {
    let columns = Columns { state: vec![column.clone()], reward: vec![column.clone()], ..Columns::default() };
    let reading = Reading { independent: true, ..Reading::default() };
    let found = Table::read_as(&path, reading, &columns, &mut |_| {})?;
    let mut values = HashMap::with_capacity(found.rows().len());
    for i in 0..found.rows().len() {
        let stream = found.streams()[found.rows().streams[i] as usize].as_str();
        if values.insert((stream, found.seq(i)), found.rows().reward(i)[0]).is_some() {
            return Err(in_file(&path, format!("seq {} of stream {stream} occurs twice", found.seq(i))));
        }
    }
    let rows = table.rows();
    let key = |i: usize| (table.streams()[rows.streams[i] as usize].as_str(), table.seq(i));
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
    table.cut_between(&kept);
    Ok(Known { path, column, values, present: kept.into_iter().map(|kept| f64::from(u8::from(kept))).collect() })
}
