//! `criticd erase`.

use super::client::DaemonPlace;
use super::compact::{refuse_unfinished, stopped};
use super::output::{Spinner, in_file, print};
use super::{Failure, given::plural};
use crate::daemon::erase::{self, Erased};
use crate::daemon::survey;
use std::fmt::Write as _;

/// Erase the bytes of rows that were taken back from the files of a stopped daemon
///
/// `criticd remove --yes --wait` takes rows back; this command then writes the journal anew without them. Models that the journal
/// recorded, earlier checkpoints, models that were set aside, refused messages, and the past that the dashboard shows are deleted, since they were
/// made of those rows. The daemon must be stopped. An interruption is no harm: run the command again. It cannot reach backups,
/// exported tables and models, and what was published. The row before a hole keeps its next state, which is the first state that was
/// erased: take back whole episodes to leave none. `tombstones.json` keeps the offsets: where a backup of before takes the place of the
/// data, the next start takes these rows back again.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd remove --stream walker --yes --wait && criticd stop && criticd erase && criticd serve\n  criticd erase /var/lib/criticd"
)]
pub(crate) struct Erase {
    #[command(flatten)]
    place: DaemonPlace,
    /// Call streams that were taken back whole by numbers, too
    ///
    /// Their names, the names of their sessions and policies, and who asked for removals and why are then in no file either. A producer that
    /// sends under the old name again begins a new stream: rows that were taken back come back if it sends them.
    #[arg(long)]
    forget_names: bool,
}

impl Erase {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let directory = &self.place.directory()?;
        if !directory.is_dir() {
            return Err(in_file(directory, "there is no such directory"));
        }
        let _lock = stopped(directory)?;
        let swept = erase::sweep(directory).map_err(|e| in_file(directory, e))?;
        refuse_unfinished(directory)?;
        if !survey::holds_journal(directory) {
            return Err(in_file(directory, "a directory without a journal"));
        }
        let progress = Spinner::start("erasing");
        let erased = erase::erase(directory, self.forget_names, &mut |done, of| progress.advance(done, of));
        drop(progress);
        let Erased { rows, models, names } = erased.map_err(|e| in_file(directory, e))?;
        let mut out = match (rows, swept) {
            (0, _) if names > 0 => format!("{} forgotten\n", plural(names as usize, "name")),
            (0, true) => "what an interrupted erasure had set aside is deleted\n".to_owned(),
            (0, false) => "no row that was taken back is in the journal\n".to_owned(),
            _ => format!(
                "{} erased; the journal has {} less{}\n",
                plural(rows as usize, "row"),
                plural(models as usize, "recorded model"),
                if names > 0 { format!("; {} forgotten", plural(names as usize, "name")) } else { String::new() }
            ),
        };
        for other in erase::others(directory) {
            writeln!(out, "{} was set aside earlier, and may hold the rows: delete it", other.display())
                .expect("a string takes everything");
        }
        print(&format!("{}: {out}", directory.display()))
    }
}
