//! Rows that came: from a table, or the newest of a data directory.

use crate::commands::Failure;
use crate::commands::given::{NO_CODES, refuse_texts};
use crate::commands::output::in_file;
use crate::daemon::archive;
use crate::daemon::survey::holds_journal;
use crate::hindsight::Rewards;
use crate::snapshot::Snapshot;
use crate::table::{Mapping, Table};
use crate::transition::Rows;
use std::path::Path;

/// Rows of a journal that are looked at, the newest.
pub(super) const JOURNAL_ROWS_MAX: u64 = 20_000;

/// Rows, and what the model's values are sums of.
pub(super) struct Came {
    /// Oldest first.
    pub(super) rows: Rows,
    /// Names of the streams, by number.
    streams: Vec<String>,
    /// Of a journal: the offset of its first row here.
    first: Option<u64>,
    /// What the returns of the model's values are made of.
    pub(super) rewards: Rewards,
}

impl Came {
    /// The rows that the option `option` names, if they are of the model's states and rewards.
    pub(super) fn read(option: &str, path: &Path, mapping: &Mapping, snapshot: &Snapshot) -> Result<Self, Failure> {
        if snapshot.actions.is_some() {
            return Err(Failure::usage(format!(
                "{option} takes values of states, and this model has values of actions"
            )));
        }
        let heads = snapshot.weights.ncols();
        let all = |rows: &Rows| (rows.rewards_per_row == heads).then(|| (0..heads).collect());
        let (what, rows, streams, first, of_model): (_, _, _, _, Option<Vec<usize>>) =
            if path.is_dir() && holds_journal(path) {
                let found = archive::newest(path, JOURNAL_ROWS_MAX).map_err(|e| in_file(path, e))?;
                let critic = found.critics.into_iter().find(|critic| critic.name == snapshot.critic);
                let fits = |columns: &Vec<usize>| {
                    columns.len() == heads && columns.iter().all(|&column| column < found.rows.rewards_per_row)
                };
                let of_critic = critic.map(|critic| critic.rewards).filter(fits);
                let columns = of_critic.or_else(|| all(&found.rows));
                ("journal", found.rows, found.streams, Some(found.first), columns)
            } else {
                let table = Table::read_as(path, mapping.reading, &mapping.columns, &mut |_| {});
                let table = table.map_err(|e| in_file(path, e))?;
                if mapping.columns.categories.is_empty() {
                    refuse_texts(path, &table, NO_CODES)?;
                }
                let streams = table.streams().to_vec();
                let rows = table.into_rows();
                let columns = all(&rows);
                ("table", rows, streams, None, columns)
            };
        let (needs, has) = (snapshot.state_dim(), rows.dim);
        if rows.is_empty() {
            return Err(in_file(path, "there is no row"));
        }
        if needs != has {
            return Err(in_file(path, format!("{option} takes states of {needs} numbers, this {what} has {has}")));
        }
        let has = rows.rewards_per_row;
        let columns = of_model.ok_or_else(|| {
            in_file(path, format!("the model has values of {heads} rewards, the {what}'s rows have {has}"))
        })?;
        let rewards = Rewards { discount: snapshot.discount, columns, successor: None };
        Ok(Self { rows, streams, first, rewards })
    }

    /// Name of the stream of row `i`.
    pub(super) fn stream(&self, i: usize) -> &str {
        &self.streams[self.rows.streams[i] as usize]
    }

    /// Number of row `i`: its offset in a journal, its place in a table.
    pub(super) fn number(&self, i: usize) -> u64 {
        self.first.unwrap_or(0) + i as u64
    }

    /// What that number is called.
    pub(super) fn number_label(&self) -> &'static str {
        if self.first.is_some() { "offset" } else { "row" }
    }

    /// The number of the stream called `name`; without a name, the newest row's.
    pub(super) fn stream_number(&self, path: &Path, name: Option<&str>) -> Result<u32, Failure> {
        let newest = self.rows.streams[self.rows.len() - 1];
        let Some(name) = name else { return Ok(newest) };
        let found = self.streams.iter().position(|known| known == name);
        let unknown = || {
            let known = self.streams.iter().take(STREAMS).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if self.streams.len() > STREAMS { ", ..." } else { "" };
            in_file(path, format!("--stream {name}: no row is of it; there is {known}{more}"))
        };
        found.map(|number| number as u32).ok_or_else(unknown)
    }
}

/// Streams that are named where none is called as wanted.
const STREAMS: usize = 10;
