//! HDF5, in the forms in which recorded experience is published: Minari and robomimic (a group for each episode), d3rlpy
//! (numbered arrays for each) and D4RL (arrays of all steps).

use super::Fault;
use super::arrays::{self, Array, Budget, Element, Kind, Piece};
use super::build::Builder;
use super::job::{Column, Job, Want};
use super::roles::{Roles, assign, may_be_state};
use super::schema::Schema;
use hdf5_reader::error::Error;
use hdf5_reader::group::Group;
use hdf5_reader::{ByteOrder, Dataset, Datatype, ExternalLinkResolver, FileStorage, Hdf5File, OpenOptions};
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, OnceLock};

fn damaged(e: Error) -> Fault {
    Fault::Content(format!("not an HDF5 file that can be read: {e}"))
}

pub(super) fn read(path: &Path, job: &mut Job<'_>) -> Result<Builder, Fault> {
    let file = File::open(path).map_err(Fault::Io)?;
    // Not a memory map: if another program shortened the file, this one would crash.
    let storage = FileStorage::from_file(file).map_err(damaged)?;
    let bytes = hdf5_reader::Storage::len(&storage);
    let links = Arc::new(Links::default());
    let resolver: Arc<dyn ExternalLinkResolver> = links.clone();
    let options = OpenOptions::default().with_external_link_resolver(resolver);
    let file = Hdf5File::from_storage_with_options(Arc::new(storage), options).map_err(damaged)?;
    let root = file.root_group().map_err(damaged)?;
    by_form(&root, Budget::of_file(bytes), job).map_err(|fault| links.beside(fault))
}

/// Links into other files. They are not followed: a file does not decide what else is read.
#[derive(Default)]
struct Links {
    /// Where the first of them goes.
    first: OnceLock<String>,
}

impl ExternalLinkResolver for Links {
    fn resolve_external_link(&self, file: &str) -> Result<Option<Hdf5File>, Error> {
        self.first.get_or_init(|| file.to_owned());
        Ok(None)
    }
}

impl Links {
    /// A fault with what the links have to do with it.
    fn beside(&self, fault: Fault) -> Fault {
        let Some(file) = self.first.get() else { return fault };
        let linked = format!(
            "; a part of the file is a link into {file}, which is not read. To copy all into one file, in Python: with \
             h5py.File(\"OLD\") as old, h5py.File(\"NEW\", \"w\") as new: [old.copy(name, new, expand_external=True) for name \
             in old]"
        );
        match fault {
            Fault::Content(message) => Fault::Content(message + &linked),
            Fault::Column { column, message } => Fault::Column { column, message: message + &linked },
            other => other,
        }
    }
}

fn by_form(root: &Group, mut budget: Budget, job: &mut Job<'_>) -> Result<Builder, Fault> {
    let (groups, datasets) = root.member_names().map_err(damaged)?;
    if is_episodes(&groups) {
        return episodes(root, &groups, &mut budget, job);
    }
    // robomimic puts its episodes into a group of their own.
    if groups.iter().any(|name| name == "data") {
        let data = root.group("data").map_err(damaged)?;
        let (inner, _) = data.member_names().map_err(damaged)?;
        if is_episodes(&inner) {
            return episodes(&data, &inner, &mut budget, job);
        }
    }
    if datasets.iter().any(|name| name == "observations_0") {
        return d3rlpy(root, &datasets, &mut budget, job);
    }
    // tianshou's buffers have room for more steps than they hold.
    if groups.iter().any(|name| name == "_meta") {
        let meta = root.group("_meta").map_err(damaged)?;
        let size = root.attribute("_size").and_then(|size| size.read_as_f64()).map_err(damaged)?;
        let (inner, _) = meta.member_names().map_err(damaged)?;
        return flat(&meta, &inner, Some(size as usize), &mut budget, job);
    }
    flat(root, &groups, None, &mut budget, job)
}

const SPACES: &str = "a Dict or Tuple space: the states of criticd are vectors; say which arrays they are (--state \
                      observations/position,observations/speed), or flatten the observations (Gymnasium's \
                      FlattenObservation) and record them so";

/// Whether groups are episodes, as Minari and robomimic write them.
fn is_episodes(groups: &[String]) -> bool {
    groups.iter().any(|name| name.starts_with("episode_") || name.starts_with("demo_"))
}

/// Arrays of all steps, as D4RL has them; `limit` of them, if they have room for more.
fn flat(
    root: &Group,
    groups: &[String],
    limit: Option<usize>,
    budget: &mut Budget,
    job: &mut Job<'_>,
) -> Result<Builder, Fault> {
    if let Some(spaces) = groups.iter().find(|name| *name == "observations" && job.columns.state.is_empty()) {
        return Err(Fault::column(spaces, SPACES));
    }
    let found = Found { limit, ..Found::new(root, job)? };
    if job.want != Want::Look
        && job.columns.state.is_empty()
        && !found.shapes.iter().any(|(name, _)| may_be_state(name, job))
    {
        let message = "neither Minari (groups episode_0, episode_1, ...) nor D4RL (arrays observations, rewards, terminals); \
             --state says which arrays are the state";
        return Err(Fault::Content(message.to_owned()));
    }
    let (piece, roles) = found.piece("", budget, job, None)?;
    let layout = piece.layout();
    let linked = |column: &Column| {
        matches!(
            column,
            Column::Truncated
                | Column::NextState(_)
                | Column::Done
                | Column::EndedItself
                | Column::EndedOtherwise
                | Column::Last
                | Column::StartsChain
                | Column::Episode
        )
    };
    if matches!(job.want, Want::Transitions(_)) && !layout.iter().any(|(_, column)| linked(column)) {
        let message = "missing, and so is next_observations: where an episode was cut off, its first state would pass for \
                       a successor; add one of them";
        return Err(Fault::column("timeouts", message));
    }
    let mut builder = Builder::new(Schema::new(job, layout, roles)?, true);
    piece.push(&mut builder, job, (0.5, 1.0))?;
    Ok(builder)
}

/// Episodes in the order of their attribute `id`, or else of their number: names of groups sort episode_10 before
/// episode_2.
fn episodes(root: &Group, names: &[String], budget: &mut Budget, job: &mut Job<'_>) -> Result<Builder, Fault> {
    let (mut episodes, mut empty) = (Vec::new(), Vec::new());
    for name in names.iter().filter(|name| name.starts_with("episode_") || name.starts_with("demo_")) {
        let group = root.group(name).map_err(damaged)?;
        // A recorder that is killed leaves one without a step.
        if !has_steps(&group)? {
            empty.push(name);
            continue;
        }
        let id = match group.attribute("id").and_then(|id| id.read_as_f64()) {
            Ok(id) => id,
            Err(_) => {
                let number = name.trim_start_matches("episode_").trim_start_matches("demo_").parse();
                number.map_err(|_| Fault::column(name, "has no attribute id, and its name ends in no number"))?
            }
        };
        episodes.push((id, name, group));
    }
    episodes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut together = Together::default();
    let count = episodes.len();
    for (index, (_, name, group)) in episodes.iter().enumerate() {
        let (groups, _) = group.member_names().map_err(damaged)?;
        if job.columns.state.is_empty() && groups.iter().any(|name| name == "observations" || name == "obs") {
            return Err(Fault::column(format!("{name}/observations"), SPACES));
        }
        let prefix = format!("{name}/");
        let (piece, roles) = Found::new(group, job)?.piece(&prefix, budget, job, Some(together.rows))?;
        let layout = piece.layout();
        let linked = piece.trails() || layout.iter().any(|(_, column)| matches!(column, Column::NextState(_)));
        if matches!(job.want, Want::Transitions(_)) && !linked && name.starts_with("episode_") {
            let message = "must have one row more than there are rewards: the state that each step leads to";
            return Err(Fault::column(format!("{prefix}observations"), message));
        }
        let part = |k: usize| k as f64 / count as f64;
        together.push(&piece, roles, name, prefix, job, (part(index), part(index + 1)))?;
    }
    let (mut builder, _) = together.builder.ok_or(Fault::Empty)?;
    match empty[..] {
        [] => {}
        [name] => builder.tell(format!("{name} has no step and is left out")),
        [first, ..] => {
            builder.tell(format!("{} episodes have no step and are left out; the first: {first}", empty.len()))
        }
    }
    Ok(builder)
}

/// Whether an episode has rewards, unless other names are used for them.
fn has_steps(episode: &Group) -> Result<bool, Fault> {
    let (groups, arrays) = episode.member_names().map_err(damaged)?;
    if arrays.iter().any(|name| name == "rewards") {
        let rewards = episode.dataset("rewards").map_err(damaged)?;
        return Ok(rewards.shape().first() != Some(&0));
    }
    Ok(!groups.is_empty() || !arrays.is_empty())
}

/// Pieces that are episodes, read one after the other into one builder.
#[derive(Default)]
struct Together {
    builder: Option<(Builder, Vec<Column>)>,
    /// Number of the next row: one is left out behind each episode, so that nothing continues it.
    rows: u64,
}

impl Together {
    fn push(
        &mut self,
        piece: &Piece,
        roles: Roles,
        name: &str,
        prefix: String,
        job: &mut Job<'_>,
        part: (f64, f64),
    ) -> Result<(), Fault> {
        let layout = piece.layout();
        let columns: Vec<Column> = layout.iter().map(|(_, column)| *column).collect();
        let (builder, before) = match &mut self.builder {
            Some(known) => known,
            None => self.builder.insert((Builder::new(Schema::new(job, layout, roles)?, false), columns.clone())),
        };
        if *before != columns {
            let message = "has other arrays, or rows of another length, than the episodes before it";
            return Err(Fault::column(name, message));
        }
        builder.prefix = prefix;
        piece.push(builder, job, part)?;
        self.rows += piece.rows() as u64 + 1;
        Ok(())
    }
}

/// What d3rlpy's datasets hold: `observations_0`, `actions_0`, `rewards_0` and one flag `terminated_0` for each episode.
fn d3rlpy(root: &Group, datasets: &[String], budget: &mut Budget, job: &mut Job<'_>) -> Result<Builder, Fault> {
    let count = (0..).take_while(|i| datasets.contains(&format!("observations_{i}"))).count();
    let mut together = Together::default();
    for index in 0..count {
        let suffix = format!("_{index}");
        let mut found = Found { group: root.clone(), names: Vec::new(), shapes: Vec::new(), flag: None, limit: None };
        for name in ["observations", "actions", "rewards", "terminated"] {
            let full = format!("{name}{suffix}");
            if !datasets.contains(&full) {
                return Err(Fault::column(full, "missing, beside the other arrays of its episode"));
            }
            let dataset = root.dataset(&full).map_err(damaged)?;
            if name == "terminated" {
                let flag = Unread::new(dataset, budget).and_then(|flag| flag.read(&full)).and_then(|flag| flag.flag());
                found.flag = Some(flag.map_err(|message| Fault::column(&full, message))?);
            } else {
                found.shapes.push((name.to_owned(), Some(shape(&dataset))));
                found.names.push(full);
            }
        }
        // An episode that did not terminate was cut off: its last row has no successor.
        let steps = found.shapes.iter().find(|(name, _)| name == "rewards").and_then(|(_, shape)| shape.clone());
        let steps = steps.and_then(|shape| shape.first().copied()).unwrap_or(0);
        for name in ["terminated", "truncated"] {
            found.shapes.push((name.to_owned(), Some(vec![steps])));
            found.names.push(String::new());
        }
        let (piece, roles) = found.piece("", budget, job, Some(together.rows))?;
        let part = |k: usize| k as f64 / count as f64;
        together.push(&piece, roles, &suffix, String::new(), job, (part(index), part(index + 1)))?;
    }
    together.builder.map(|(builder, _)| builder).ok_or(Fault::Empty)
}

/// The arrays of a group.
struct Found {
    group: Group,
    /// Where each is.
    names: Vec<String>,
    shapes: Vec<(String, Option<Vec<usize>>)>,
    /// Whether the episode terminated, where one flag says so.
    flag: Option<bool>,
    /// Rows to take of each array, if they have room for more.
    limit: Option<usize>,
}

impl Found {
    /// Arrays of groups within are called GROUP/NAME; they are looked for where the user names one.
    fn new(group: &Group, job: &Job<'_>) -> Result<Self, Fault> {
        let (groups, mut names) = group.member_names().map_err(damaged)?;
        if job.columns.names_within() {
            for within in groups {
                let (_, arrays) = group.group(&within).map_err(damaged)?.member_names().map_err(damaged)?;
                names.extend(arrays.iter().map(|name| format!("{within}/{name}")));
            }
        }
        let mut shapes = Vec::with_capacity(names.len());
        for name in &names {
            let shape = dataset(group, name).ok().map(|dataset| shape(&dataset));
            shapes.push((name.clone(), shape));
        }
        Ok(Self { group: group.clone(), names, shapes, flag: None, limit: None })
    }

    /// Those that are needed, read; `prefix` is the part of the file.
    fn piece(
        &self,
        prefix: &str,
        budget: &mut Budget,
        job: &mut Job<'_>,
        first: Option<u64>,
    ) -> Result<(Piece, Roles), Fault> {
        let sources = arrays::sources(&self.shapes, job);
        let located = |fault| match fault {
            Fault::Column { column, message } => Fault::Column { column: format!("{prefix}{column}"), message },
            other => other,
        };
        let roles = assign(job, &sources).map_err(located)?;
        let needed = || roles.of.iter().enumerate().filter(|(_, used)| !used.is_empty());
        let faulty = |at: usize, message: String| Fault::column(format!("{prefix}{}", sources[at].name), message);
        // The memory of all of them is taken before any is read: a file that holds too much fails at once.
        let mut unread = Vec::new();
        for (at, _) in needed() {
            // Made from the flag.
            if self.flag.is_some() && self.names[at].is_empty() {
                unread.push(None);
                continue;
            }
            let found = dataset(&self.group, &self.names[at]).map_err(|e| format!("cannot be read: {e}"));
            let taken = found.and_then(|dataset| Unread::new(dataset, budget));
            unread.push(Some(taken.map_err(|message| faulty(at, message))?));
        }
        let mut arrays = Vec::new();
        for ((at, used), unread) in needed().zip(unread) {
            let name = &sources[at].name;
            let steps = self.shapes[at].1.as_ref().and_then(|shape| shape.first().copied()).unwrap_or(0);
            let mut array = match unread {
                Some(unread) => unread.read(name).map_err(|message| faulty(at, message))?,
                None => Array::last(name, steps, self.flag == Some(name == "terminated")),
            };
            array.truncate(self.limit.unwrap_or(usize::MAX));
            arrays.push((used.clone(), array));
        }
        let first = first.filter(|_| job.want != Want::States);
        Ok((Piece::new(arrays, first, prefix, job.format)?, roles))
    }
}

fn dataset(group: &Group, name: &str) -> Result<Dataset, Error> {
    match name.split_once('/') {
        Some((within, name)) => group.group(within)?.dataset(name),
        None => group.dataset(name),
    }
}

fn shape(dataset: &Dataset) -> Vec<usize> {
    dataset.shape().iter().map(|&axis| usize::try_from(axis).unwrap_or(usize::MAX)).collect()
}

/// An array that has not been read, and whose memory is taken of the budget.
struct Unread {
    dataset: Dataset,
    shape: Vec<usize>,
    element: Element,
}

impl Unread {
    fn new(dataset: Dataset, budget: &mut Budget) -> Result<Self, String> {
        let (element, shape) = (element(dataset.dtype())?, shape(&dataset));
        budget.take(&shape, element)?;
        Ok(Self { dataset, shape, element })
    }

    fn read(self, name: &str) -> Result<Array, String> {
        let bytes = self.dataset.read_raw_bytes().map_err(|e| format!("cannot be read: {e}"))?;
        Array::decode(name, self.shape, self.element, &bytes)
    }
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
