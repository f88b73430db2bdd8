//! Models as they were.

use super::Failure;
use super::client::{Connection, endpoint};
use super::output::{Spinner, in_file};
use crate::client::{ClientError, Requester};
use crate::config::Config;
use crate::daemon::as_of::{Moment, as_of, model_then};
use crate::daemon::survey::holds_journal;
use crate::journal::checkpoint::Directory;
use crate::journal::store::SqliteStorage;
use crate::snapshot::Snapshot;
use crate::state::State;
use crate::wire;
use serde_json::json;
use std::path::Path;
use std::time::Duration;

/// A critic's model of then, or why there is none.
pub(super) type Told = Result<Snapshot, String>;

/// Longest wait for a daemon that learns again.
const PATIENCE: Duration = Duration::from_secs(3600);

/// A moment, as it is written.
pub(super) fn moment(text: &str) -> Result<Moment, String> {
    let wrong = || format!("{text} is neither an offset nor @ and Unix seconds, such as @1700000000");
    match text.strip_prefix('@') {
        Some(time) => time.parse().ok().filter(|time: &f64| time.is_finite()).map(Moment::Time),
        None => text.parse().ok().map(Moment::Offset),
    }
    .ok_or_else(wrong)
}

/// What a daemon, which may run, had learned, learned again in this process from its files.
fn state(directory: &Path, moment: Moment) -> Result<State, Failure> {
    if !holds_journal(directory) {
        return Err(in_file(directory, "no data directory with a journal, from which --as-of learns again"));
    }
    let mut storage = SqliteStorage::open_beside(directory)?;
    let progress = Spinner::start("learning again");
    let window_rows = Config::default().window_rows;
    let found = as_of(&mut storage, &Directory::new(directory), window_rows, moment, &mut |done, of| {
        progress.advance(done, of);
        true
    });
    drop(progress);
    found.map_err(|e| in_file(directory, e))
}

/// The model of a critic as it was. A daemon that is named by its endpoint learns it again, within `patience`; one that is named by its
/// data directory need not run.
pub(super) fn snapshot(
    place: &Path,
    critic: Option<&str>,
    moment: Moment,
    patience: Option<Duration>,
) -> Result<Snapshot, Failure> {
    if let Some(endpoint) = endpoint(place) {
        let patience = patience.unwrap_or(PATIENCE);
        return Ok(requester(&endpoint)?.snapshot_as_of(critic, moment, patience)?);
    }
    let state = state(place, moment)?;
    let names = || state.critics().iter().map(|learner| learner.settings().name.as_str());
    let index = critic.map_or(Some(0), |name| names().position(|known| known == name));
    let index = index.filter(|&index| index < state.critics().len()).ok_or_else(|| {
        let known: Vec<&str> = names().collect();
        Failure::new(format!("there was no such critic then; there was {}", known.join(", ")))
    })?;
    model_then(&state, index).map_err(Failure::new)
}

/// The models of all critics as they were, or why there is none, and the offset that they are of. As [`snapshot`].
pub(super) fn all(place: &Path, moment: Moment, patience: Option<Duration>) -> Result<(u64, Vec<Told>), Failure> {
    let Some(endpoint) = endpoint(place) else {
        let state = state(place, moment)?;
        let told = (0..state.critics().len()).map(|critic| model_then(&state, critic));
        return Ok((state.end().offset, told.collect()));
    };
    let (mut requester, patience) = (requester(&endpoint)?, patience.unwrap_or(PATIENCE));
    let status = wire::Status::from_json(&requester.ask("status", json!({}), patience)?)?;
    let (mut all, mut offset, mut refused) = (Vec::new(), None, None);
    for critic in status.critics {
        match requester.snapshot_as_of(Some(&critic.name), moment, patience) {
            Ok(model) => {
                offset = Some(model.offset);
                all.push(Ok(model));
            }
            Err(ClientError::Refused(why)) => {
                all.push(Err(why.message.clone()));
                refused = refused.or(Some(ClientError::Refused(why)));
            }
            Err(e) => return Err(e.into()),
        }
    }
    // Where no critic had a model the moment itself may be what cannot be told.
    match (offset, refused) {
        (Some(offset), _) => Ok((offset, all)),
        (None, Some(refused)) => Err(refused.into()),
        (None, None) => Err(Failure::new("the daemon has no critic")),
    }
}

/// A connection to the daemon at `endpoint`, which can tell of the past.
fn requester(endpoint: &str) -> Result<Requester, Failure> {
    let connection = Connection::to(endpoint);
    let mut requester = connection.connect()?;
    let hello = requester.ask("hello", json!({}), connection.timeout())?;
    if !hello["features"].as_array().is_some_and(|features| features.contains(&json!("as_of"))) {
        return Err(Failure::new(format!(
            "the daemon at {endpoint} has no journal, or is too old to tell of the past"
        )));
    }
    Ok(requester)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_offsets_or_times() {
        assert_eq!(moment("1200"), Ok(Moment::Offset(1200)));
        assert_eq!(moment("@1.5e9"), Ok(Moment::Time(1.5e9)));
        for wrong in ["@", "-3", "now", "@inf", "1.5"] {
            assert!(moment(wrong).unwrap_err().contains("Unix seconds"), "{wrong}");
        }
    }
}
