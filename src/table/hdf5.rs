//! HDF5, in the two forms in which recorded experience is published: Minari (a group for each episode) and D4RL (arrays
//! of all steps).

use super::Fault;
use super::arrays::{Array, Budget, Element, Kind, Piece};
use super::build::{Builder, Column, Header, Job, Want};
use hdf5_reader::error::Error;
use hdf5_reader::group::Group;
use hdf5_reader::{ByteOrder, Dataset, Datatype, FileStorage, Hdf5File, OpenOptions};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// What is read of D4RL, by the names of its datasets, and of those who write like it.
const D4RL: [(&str, Column); 9] = [
    ("observations", Column::State(0)),
    ("next_observations", Column::NextState(0)),
    ("actions", Column::Action(0)),
    ("rewards", Column::Reward(0)),
    ("terminals", Column::Terminated),
    ("timeouts", Column::Truncated),
    ("done", Column::Done),
    ("dones", Column::Done),
    ("discounts", Column::Discount),
];

/// What is read of an episode of Minari.
const MINARI: [(&str, Column); 5] = [
    ("observations", Column::State(0)),
    ("actions", Column::Action(0)),
    ("rewards", Column::Reward(0)),
    ("terminations", Column::Terminated),
    ("truncations", Column::Truncated),
];

fn damaged(e: Error) -> Fault {
    Fault::Content(format!("not an HDF5 file that can be read: {e}"))
}

pub(super) fn read(path: &Path, job: &mut Job<'_>) -> Result<Builder, Fault> {
    let file = File::open(path).map_err(Fault::Io)?;
    // Not a memory map: a file that somebody shortens meanwhile would end the program.
    let storage = FileStorage::from_file(file).map_err(damaged)?;
    let bytes = hdf5_reader::Storage::len(&storage);
    let options = OpenOptions::default();
    let file = Hdf5File::from_storage_with_options(Arc::new(storage), options).map_err(damaged)?;
    let root = file.root_group().map_err(damaged)?;
    let (groups, datasets) = root.member_names().map_err(damaged)?;
    let mut budget = Budget::of_file(bytes);
    if groups.iter().any(|name| name.starts_with("episode_")) {
        return minari(&root, &groups, &mut budget, job);
    }
    if let Some(spaces) = groups.iter().find(|name| *name == "observations") {
        return Err(Fault::column(spaces, SPACES));
    }
    if !datasets.iter().any(|name| name == "observations") {
        let message =
            "neither Minari (groups episode_0, episode_1, ...) nor D4RL (arrays observations, rewards, terminals)";
        return Err(Fault::Content(message.to_owned()));
    }
    let piece = piece(&root, &datasets, &D4RL, "", &mut budget, job, None)?;
    let has = |column| piece.arrays.iter().any(|(c, _)| *c == column);
    if job.want != Want::States && !has(Column::Truncated) && !has(Column::NextState(0)) && !has(Column::Done) {
        let message = "missing, and so is next_observations: where an episode was cut off, its first state would pass for \
                       a successor; add one of them";
        return Err(Fault::column("timeouts", message));
    }
    let mut builder = Builder::new(Header::new(job, piece.layout("")?)?, true);
    piece.push(&mut builder, job, (0.5, 1.0))?;
    Ok(builder)
}

const SPACES: &str = "a Dict or Tuple space: the states of criticd are vectors; flatten the observations (Gymnasium's \
                      FlattenObservation) and record them so";

/// Episodes in the order of their attribute `id`: the names of groups sort episode_10 before episode_2.
fn minari(root: &Group, names: &[String], budget: &mut Budget, job: &mut Job<'_>) -> Result<Builder, Fault> {
    let mut episodes = Vec::new();
    for name in names.iter().filter(|name| name.starts_with("episode_")) {
        let group = root.group(name).map_err(damaged)?;
        let id = match group.attribute("id").and_then(|id| id.read_as_f64()) {
            Ok(id) => id,
            Err(_) => {
                let number = name.trim_start_matches("episode_").parse();
                number.map_err(|_| Fault::column(name, "has no attribute id, and its name ends in no number"))?
            }
        };
        episodes.push((id, name, group));
    }
    episodes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut builder: Option<(Builder, Vec<Column>)> = None;
    let (count, mut first) = (episodes.len(), 0);
    for (index, (_, name, group)) in episodes.iter().enumerate() {
        let (groups, datasets) = group.member_names().map_err(damaged)?;
        if groups.iter().any(|name| name == "observations") {
            return Err(Fault::column(format!("{name}/observations"), SPACES));
        }
        let prefix = format!("{name}/");
        let piece = piece(group, &datasets, &MINARI, &prefix, budget, job, Some(first))?;
        let layout = piece.layout(&prefix)?;
        let columns: Vec<Column> = layout.iter().map(|(_, column)| *column).collect();
        if job.want != Want::States && !piece.trails() {
            let message = "must have one row more than there are rewards: the state that each step leads to";
            return Err(Fault::column(format!("{prefix}observations"), message));
        }
        let (builder, before) = match &mut builder {
            Some(known) => known,
            None => builder.insert((Builder::new(Header::new(job, layout)?, false), columns.clone())),
        };
        if *before != columns {
            let message = "has other arrays, or rows of another length, than the episodes before it";
            return Err(Fault::column(*name, message));
        }
        builder.prefix = prefix;
        let part = |k: usize| k as f64 / count as f64;
        piece.push(builder, job, (part(index), part(index + 1)))?;
        // A number left out: whatever follows does not continue this episode.
        first += piece.rows() as u64 + 1;
    }
    builder.map(|(builder, _)| builder).ok_or(Fault::Empty)
}

/// The arrays of a group that are known.
fn piece(
    group: &Group,
    datasets: &[String],
    known: &[(&str, Column)],
    prefix: &str,
    budget: &mut Budget,
    job: &mut Job<'_>,
    first: Option<u64>,
) -> Result<Piece, Fault> {
    let mut arrays = Vec::new();
    for (name, column) in known {
        if (job.want == Want::States && *column != Column::State(0)) || !datasets.iter().any(|d| d == name) {
            continue;
        }
        let dataset = group.dataset(name).map_err(damaged)?;
        let wrong = |message: String| Fault::column(format!("{prefix}{name}"), message);
        arrays.push((*column, array(name, &dataset, budget).map_err(wrong)?));
    }
    let first = first.filter(|_| job.want != Want::States);
    Ok(Piece { arrays, first })
}

fn array(name: &str, dataset: &Dataset, budget: &mut Budget) -> Result<Array, String> {
    let element = element(dataset.dtype())?;
    let shape = dataset.shape().iter().map(|&axis| usize::try_from(axis).unwrap_or(usize::MAX)).collect::<Vec<_>>();
    budget.take(&shape, element)?;
    let bytes = dataset.read_raw_bytes().map_err(|e| format!("cannot be read: {e}"))?;
    Array::decode(name, shape, element, &bytes)
}

fn element(datatype: &Datatype) -> Result<Element, String> {
    let (kind, size, order) = match datatype {
        Datatype::FloatingPoint { size, byte_order } => (Kind::Float, *size, *byte_order),
        Datatype::FixedPoint { size, signed, byte_order } => {
            (if *signed { Kind::Signed } else { Kind::Unsigned }, *size, *byte_order)
        }
        // What h5py writes for bool: an enumeration of two.
        Datatype::Enum { base, members } if members.len() == 2 => match **base {
            Datatype::FixedPoint { size: 1, byte_order, .. } => (Kind::Flag, 1, byte_order),
            _ => return Err("holds an enumeration; write it as numbers".to_owned()),
        },
        other => return Err(format!("holds {other:?}; write it as f4, f8, i4, i8 or bool")),
    };
    Ok(Element { kind, size: usize::from(size), big_endian: order == ByteOrder::BigEndian })
}
