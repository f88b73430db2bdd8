//! What files of labels say of themselves, and the scores of a LeRobot dataset: rows by `index`, `episode_index` and `frame_index`,
//! and signals that the file describes (format `lerobot.frame_signals`, version 1).

use super::super::Failure;
use super::super::given::TableOptions;
use super::super::output::in_file;
use crate::table::{Info, Table, Values};
use serde_json::{Map, Value, json};

/// Version of the columns and keys of a file of labels.
const VERSION: u32 = 1;
const RESERVED: [&str; 3] = ["index", "episode_index", "frame_index"];

/// The columns of a file, and its keys.
type Contents = (Vec<(String, Values)>, Vec<(String, String)>);

/// The keys of a Parquet file of labels; `provenance` says what they were made of.
pub(super) fn about(provenance: &Value) -> Vec<(String, String)> {
    let key = |name: &str, value: String| (format!("criticd.labels.{name}"), value);
    vec![key("schema_version", VERSION.to_string()), key("provenance", provenance.to_string())]
}

/// Columns and keys as LeRobot has the scores of its datasets. `columns` begin with episode and frame.
pub(super) fn of_dataset(
    options: &TableOptions,
    info: &Info,
    table: &Table,
    columns: Vec<(String, Values)>,
    provenance: &Value,
) -> Result<Contents, Failure> {
    let index = if info.has("index") {
        options.columns_of(table, &["index".to_owned()])?.pop().map(|(_, values)| values)
    } else {
        Some(Values::Whole((0..table.rows().len()).map(|i| table.place(i) as i64).collect()))
    };
    let Some(Values::Whole(index)) = index else {
        return Err(in_file(&options.table, "column index: must be whole numbers; let LeRobot repair the dataset"));
    };
    let mut order: Vec<usize> = (0..index.len()).collect();
    order.sort_by_key(|&i| index[i]);
    let mut sorted = vec![("index".to_owned(), Values::Whole(index).taken(&order))];
    let mut descriptors = Map::new();
    for (name, values) in columns {
        let name = match name.as_str() {
            "episode" => "episode_index".to_owned(),
            "frame" => "frame_index".to_owned(),
            kept if RESERVED.contains(&kept) => continue,
            _ => name,
        };
        if !RESERVED.contains(&name.as_str()) {
            let empty = matches!(&values, Values::Numbers(numbers) if numbers.iter().any(|number| number.is_nan()));
            descriptors.insert(name.clone(), descriptor(&name, empty));
        }
        sorted.push((name, values.taken(&order)));
    }
    let provenance = json!({
        "dataset": {"total_episodes": info.total_episodes, "total_frames": info.total_frames},
        "scoring": provenance,
    });
    let key = |name: &str, value: String| (format!("lerobot.scores.{name}"), value);
    let mut about = about(&provenance["scoring"]);
    about.extend([
        key("format", "lerobot.frame_signals".to_owned()),
        key("schema_version", "1".to_owned()),
        key("provenance", provenance.to_string()),
        key("descriptors", Value::Object(descriptors).to_string()),
    ]);
    Ok((sorted, about))
}

/// How a signal is to be read.
fn descriptor(name: &str, empty: bool) -> Value {
    let (description, direction, unit) = match name {
        "value" => ("Value of the state, by a model that has not learned from its episode.", "higher", None),
        "std" => ("Standard deviation of the value.", "lower", None),
        "advantage" => ("Return minus value.", "higher", None),
        "return" => ("Discounted sum of rewards up to the end of the episode.", "higher", None),
        "td_error" => ("Reward plus discounted value of the next state, minus value.", "none", None),
        "known" => ("Share of the prior variance of the value that the data removed.", "higher", None),
        "remaining_time_s" => ("Predicted seconds until the episode ends.", "lower", Some("s")),
        _ => ("A column of the dataset, or a label of one of several rewards.", "none", None),
    };
    let bounds = (name == "known").then_some([0.0, 1.0]);
    json!({"description": description, "direction": direction, "bounds": bounds, "unit": unit, "allow_nan": empty})
}
