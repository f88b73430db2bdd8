//! Folders of LeRobot datasets, of version 2 or 3: Parquet files under `data`, and what `meta/info.json` says of their columns.

use super::columns::Columns;
use super::job::{Column, Want};
use super::roles::alias;
use super::{Fault, TableError};
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(super) const INFO: &str = "meta/info.json";
/// The features that hold the numbers of the state and of the action.
const STATE: &str = "observation.state";
const ACTION: &str = "action";
const TIME: &str = "timestamp";
const SUCCESS: &str = "next.success";
/// Features that say that an episode ends.
pub const ENDS: [&str; 4] = ["next.done", SUCCESS, "next.terminated", "next.truncated"];
/// Folders within one another that are looked through for data, at most.
const DEPTH: usize = 4;

/// What a dataset says of itself.
#[derive(Clone, Debug, Deserialize)]
pub struct Info {
    /// Rows in a second.
    pub fps: Option<f64>,
    /// Of all episodes.
    pub total_frames: Option<u64>,
    /// How many there are.
    pub total_episodes: Option<u64>,
    features: BTreeMap<String, Feature>,
}

#[derive(Clone, Debug, Deserialize)]
struct Feature {
    #[serde(default)]
    shape: Vec<usize>,
    /// Names of its numbers: a list, or lists under the names of groups.
    #[serde(default)]
    names: Value,
}

impl Feature {
    /// The names of its numbers, if it names all of them.
    fn names(&self) -> Option<Vec<String>> {
        let text = |name: &Value| name.as_str().map(str::to_owned);
        let list = |names: &Value| names.as_array()?.iter().map(text).collect::<Option<Vec<String>>>();
        let names = match &self.names {
            Value::Object(groups) => groups.values().map(list).collect::<Option<Vec<_>>>()?.concat(),
            names => list(names)?,
        };
        matches!(self.shape[..], [width] if width == names.len()).then_some(names)
    }
}

impl Info {
    /// What the dataset in a folder says of itself; none if it is no such folder.
    ///
    /// # Errors
    /// If that cannot be read.
    pub fn read(folder: &Path) -> Result<Option<Self>, TableError> {
        let path = folder.join(INFO);
        if !path.is_file() {
            return Ok(None);
        }
        let fault = |fault| TableError { path: path.clone(), fault };
        let text = std::fs::read_to_string(&path).map_err(|e| fault(Fault::Io(e)))?;
        let read = serde_json::from_str(&text);
        read.map(Some).map_err(|e| fault(Fault::Content(format!("not what LeRobot writes there: {e}"))))
    }

    /// Whether it has a feature.
    pub fn has(&self, feature: &str) -> bool {
        self.features.contains_key(feature)
    }

    /// A number of a feature by what the dataset calls it: `observation.state[0]` of its first joint.
    fn numbered(&self, feature: &str, name: &str) -> Option<String> {
        let k = self.features.get(feature)?.names()?.iter().position(|known| known == name)?;
        Some(format!("{feature}[{k}]"))
    }

    /// Each of these columns of the state and what to call it, lists number by number. None if that is not known of one of them.
    fn variables(&self, columns: &[String]) -> Option<Vec<(String, String)>> {
        let mut found = Vec::new();
        for column in columns {
            let of_list = column.strip_suffix(']').and_then(|rest| rest.rsplit_once('['));
            if let Some(feature) = self.features.get(column) {
                match (feature.names(), &feature.shape[..]) {
                    (Some(names), _) => {
                        found.extend(names.into_iter().enumerate().map(|(k, name)| (format!("{column}[{k}]"), name)));
                    }
                    (None, [] | [1]) => found.push((column.clone(), column.clone())),
                    _ => return None,
                }
            } else if let Some((feature, k)) = of_list {
                let named = self.features.get(feature).and_then(Feature::names);
                let name = named.and_then(|names| names.get(k.parse::<usize>().ok()?).cloned());
                found.push((column.clone(), name.unwrap_or_else(|| column.clone())));
            } else {
                found.push((self.numbered(STATE, column)?, column.clone()));
            }
        }
        let twice = |k: usize| found[..k].iter().any(|(_, name)| *name == found[k].1);
        if (0..found.len()).any(twice) { None } else { Some(found) }
    }

    /// The columns as the dataset means them, where nobody says otherwise.
    fn columns(&self, given: &Columns, want: Want) -> Result<Columns, Fault> {
        let mut columns = given.clone();
        let known = |feature: &str, name: &String| self.numbered(feature, name).unwrap_or_else(|| name.clone());
        columns.action.iter_mut().for_each(|name| *name = known(ACTION, name));
        let Want::Transitions(reading) = want else {
            if columns.state.is_empty() {
                // A model names the variables that it wants.
                let found: Option<Vec<String>> = columns.names.iter().map(|name| self.numbered(STATE, name)).collect();
                columns.state = found.unwrap_or_default();
            }
            columns.state.iter_mut().for_each(|name| *name = known(STATE, name));
            return Ok(columns);
        };
        let whole = [STATE.to_owned()];
        match self.variables(if columns.state.is_empty() { &whole } else { &columns.state }) {
            Some(found) => {
                let (states, names): (Vec<String>, Vec<String>) = found.into_iter().unzip();
                if columns.names.is_empty() {
                    columns.names = names;
                }
                if !columns.state.is_empty() {
                    columns.state = states;
                }
            }
            None => columns.state.iter_mut().for_each(|name| *name = known(STATE, name)),
        }
        // Without names of its own a feature keeps its column's.
        if columns.state.is_empty() && self.features.get(STATE).is_none_or(|state| state.names().is_none()) {
            columns.names.clone_from(&given.names);
        }
        if columns.time.is_none() && self.has(TIME) && !reading.independent {
            columns.time = Some(TIME.to_owned());
        }
        let reward = |feature: &String| matches!(alias(feature, true), Some(Column::Reward(_)));
        if columns.reward.is_empty() && !self.features.keys().any(reward) {
            let message = "missing: the dataset holds no reward. If every episode is a demonstration that reaches its goal, say \
                           --remaining-time to `fit` or `label`: the value is then minus the seconds until the end. Else name a \
                           reward, such as --reward=-0.1 for each row";
            return Err(Fault::column("next.reward", message));
        }
        let said = columns.terminated.is_some() || columns.truncated.is_some() || columns.done.is_some();
        let assumed = reading.done.is_some() || reading.assume_terminated.is_some() || reading.independent;
        if self.has(SUCCESS) && !said && !assumed {
            columns.terminated = Some(SUCCESS.to_owned());
        }
        Ok(columns)
    }
}

/// The columns of a table, where it is the folder of a dataset as that means them.
///
/// # Errors
/// If what the dataset says of itself cannot be read, or it lacks what is wanted.
pub(super) fn understood<'a>(path: &Path, columns: &'a Columns, want: Want) -> Result<Cow<'a, Columns>, Fault> {
    match Info::read(path).map_err(|error| within(path, &error.path, error.fault))? {
        Some(info) if want != Want::Look => info.columns(columns, want).map(Cow::Owned),
        _ => Ok(Cow::Borrowed(columns)),
    }
}

/// A fault of a file in a folder, as one of the folder.
pub(super) fn within(folder: &Path, file: &Path, fault: Fault) -> Fault {
    let name = file.strip_prefix(folder).unwrap_or(file).display();
    match fault {
        Fault::Content(message) => Fault::Content(format!("{name}: {message}")),
        Fault::Io(e) => Fault::Io(std::io::Error::new(e.kind(), format!("{name}: {e}"))),
        fault => fault,
    }
}

/// Whether a folder is a dataset.
pub(super) fn is_dataset(path: &Path) -> bool {
    path.join(INFO).is_file()
}

/// The files that hold the rows of a table, in their order: the files of a dataset, else the file itself.
///
/// # Errors
/// If the folder cannot be read, or holds none.
pub(super) fn files(path: &Path) -> Result<Vec<PathBuf>, Fault> {
    if !is_dataset(path) {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    gather(&path.join("data"), DEPTH, &mut found).map_err(|e| within(path, Path::new("data"), Fault::Io(e)))?;
    found.sort();
    if found.is_empty() {
        return Err(Fault::Content(
            "a LeRobot dataset without Parquet files under data/; is it of version 1? LeRobot converts it".to_owned(),
        ));
    }
    Ok(found)
}

fn gather(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && depth > 0 {
            gather(&path, depth - 1, found)?;
        } else if path.extension().is_some_and(|ending| ending == "parquet") && path.is_file() {
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Reading;
    use super::*;

    fn info() -> Info {
        let text = r#"{"codebase_version": "v3.0", "fps": 20, "total_frames": 9, "features": {
            "observation.state": {"dtype": "float32", "shape": [2], "names": ["shoulder", "elbow"]},
            "observation.force": {"dtype": "float32", "shape": [3], "names": null},
            "observation.images.top": {"dtype": "video", "shape": [3, 4, 4], "names": ["channel", "height", "width"]},
            "action": {"dtype": "float32", "shape": [2], "names": {"motors": ["shoulder", "elbow"]}},
            "next.reward": {"dtype": "float32", "shape": [1], "names": null},
            "timestamp": {"dtype": "float32", "shape": [1], "names": null}}}"#;
        serde_json::from_str(text).unwrap()
    }

    fn list(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn joints_are_columns() {
        let want = Want::Transitions(Reading::default());
        let of = |state: &[&str]| {
            let given = Columns { state: list(state), action: list(&["elbow"]), ..Columns::default() };
            info().columns(&given, want).unwrap()
        };
        let whole = of(&[]);
        assert_eq!((whole.state, whole.names), (list(&[]), list(&["shoulder", "elbow"])));
        assert_eq!((whole.action, whole.time.as_deref()), (list(&["action[1]"]), Some("timestamp")));
        let one = of(&["elbow", "observation.force[2]"]);
        assert_eq!(one.state, list(&["observation.state[1]", "observation.force[2]"]));
        assert_eq!(one.names, list(&["elbow", "observation.force[2]"]));
        // What is known of no name keeps its own.
        let other = of(&["shoulder", "observation.force"]);
        assert_eq!((other.state, other.names), (list(&["observation.state[0]", "observation.force"]), list(&[])));
        let named = Columns { names: list(&["elbow"]), ..Columns::default() };
        assert_eq!(info().columns(&named, Want::States).unwrap().state, list(&["observation.state[1]"]));
    }

    #[test]
    fn a_dataset_says_how_it_ends_or_is_asked() {
        let (mut info, want) = (info(), Want::Transitions(Reading::default()));
        assert_eq!(info.columns(&Columns::default(), want).unwrap().terminated, None);
        let flag = info.features["next.reward"].clone();
        info.features.insert(SUCCESS.to_owned(), flag);
        assert_eq!(info.columns(&Columns::default(), want).unwrap().terminated.as_deref(), Some(SUCCESS));
        let own = Columns { truncated: Some("late".to_owned()), ..Columns::default() };
        assert_eq!(info.columns(&own, want).unwrap().terminated, None);
        info.features.remove("next.reward");
        let said = info.columns(&Columns::default(), want).unwrap_err();
        assert!(matches!(said, Fault::Column { message, .. } if message.contains("--remaining-time")));
    }
}
