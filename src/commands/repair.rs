//! `criticd repair`.

use super::Failure;
use super::client::DaemonPlace;
use super::compact::stopped;
use super::inspect::{describe_directory, survey_directory};
use super::output::{in_file, print};
use crate::daemon::recovery::NEWER_REMEDY;
use crate::daemon::replace::{self, Interrupted};
use crate::daemon::survey::{self, Mend, Survey};
use crate::journal::checkpoint::Directory;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Mend a data directory in which no daemon starts
///
/// Without --yes the command only prints the ways that are open, and what each loses. With --yes it moves the old files to a
/// directory beside the new ones; it deletes nothing. A repair that was interrupted is finished by running the command again.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd repair /var/lib/criticd                            what can be done\n  criticd repair --truncate /var/lib/criticd --yes           keep the rows before the damage\n  criticd repair --skip 164 /var/lib/criticd --yes           keep the rows behind group 164, and the models\n  criticd repair --from-checkpoint /var/lib/criticd --yes    keep the models, without rows"
)]
pub(crate) struct Repair {
    #[command(flatten)]
    place: DaemonPlace,
    /// Truncate the journal after its last good group
    #[arg(long, group = "way")]
    truncate: bool,
    /// Leave out this group and those before it, which a checkpoint has seen
    #[arg(long, value_name = "GROUP", group = "way")]
    skip: Option<u64>,
    /// Continue from the newest checkpoint, without the rows of the journal
    #[arg(long, group = "way")]
    from_checkpoint: bool,
    /// Do it
    #[arg(long)]
    yes: bool,
}

impl Repair {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let directory = &self.place.directory()?;
        if !survey::holds_journal(directory) && replace::interrupted(directory).ok().flatten().is_none() {
            return Err(in_file(directory, "a directory without a journal"));
        }
        let _lock = stopped(directory)?;
        if let Some(plan) = replace::finish(directory).map_err(|e| in_file(directory, e))? {
            let aside = match plan.aside.as_str() {
                "" => String::new(),
                name => format!(" The old files are in {}.", directory.join(name).display()),
            };
            print(&format!("What was interrupted here is finished.{aside}\n"))?;
        }
        if replace::discard(directory).map_err(|e| in_file(directory, e))? == Some(Interrupted::Restore) {
            let shown = directory.display();
            print(&format!(
                "A restore was interrupted here before any of it was in place. Its part of a copy is deleted.\n\
                 Next: criticd restore BACKUP {shown}, or criticd serve --data-dir {shown} to start without data.\n"
            ))?;
        }
        if !survey::holds_journal(directory) {
            return Ok(());
        }
        let found = survey_directory(directory)?;
        if found.fault.is_none() {
            return print(&format!("{}\nThere is nothing to repair.\n", describe_directory(&found)));
        }
        if found.newer {
            return Err(in_file(directory, format!("{}. {NEWER_REMEDY}", found.fault.unwrap_or_default())));
        }
        let Some(how) = self.way() else {
            return print(&format!("{}\n{}", describe_directory(&found), ways(directory, &found)));
        };
        let loss = loss(&found, how).map_err(|why| in_file(directory, why))?;
        if !self.yes {
            return print(&format!("{}\n{loss}\nNext: run the same command with --yes.\n", describe_directory(&found)));
        }
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let aside = survey::mend(directory, &found, how, unix).map_err(|e| in_file(directory, e))?;
        let next = match survey_directory(directory)?.fault {
            None => "Next: criticd serve continues from here.".to_owned(),
            Some(fault) => format!("There is more: {fault}\nNext: criticd repair {}", directory.display()),
        };
        print(&format!("Done. {loss}\nThe old files are in {}.\n{next}\n", aside.display()))
    }

    fn way(&self) -> Option<Mend> {
        match self.skip {
            Some(group) => Some(Mend::Skip(group)),
            None if self.from_checkpoint => Some(Mend::FromCheckpoint),
            None => self.truncate.then_some(Mend::Cut),
        }
    }
}

/// What is lost on one way, in words; or why it is not open.
fn loss(found: &Survey, how: Mend) -> Result<String, String> {
    let (end, groups) = (found.end, found.groups);
    match how {
        Mend::Cut if found.headless => Err(
            "truncating it changes nothing: its rows are good, and their beginning is missing; without --truncate the command \
             shows what can be done"
                .to_owned(),
        ),
        Mend::Cut => {
            let good = format!("The journal is good up to offset {} (group {})", end.offset, end.id);
            Ok(match found.rows_lost() {
                0 => format!("{good}. As far as known, truncating it there loses no row."),
                lost => format!("{good}. Truncating it there loses {lost} acknowledged rows."),
            })
        }
        Mend::Skip(group) => match found.checkpoint_behind(group) {
            _ if found.damaged != Some(group) => Err(match found.damaged {
                Some(damaged) => format!("group {group} is not the damaged one; that is group {damaged}"),
                None => "no single group is damaged".to_owned(),
            }),
            None => Err(format!(
                "no checkpoint has seen group {group}, so what was learned from it is lost with it; --truncate keeps what lies \
                 before, and `criticd export --from` reads the rows behind it"
            )),
            Some(checkpoint) => Ok(format!(
                "The checkpoint at offset {} has seen group {group}: the models lose nothing. The journal loses {groups} good \
                 groups before it ({} rows) and the damaged one; they cannot be exported or learned again.",
                checkpoint.offset,
                end.offset - found.offsets.0
            )),
        },
        Mend::FromCheckpoint => match found.newest_checkpoint() {
            None => Err("there is no checkpoint that can be read".to_owned()),
            Some(checkpoint) => {
                let later = found.rows_known().saturating_sub(checkpoint.offset);
                // The journal ends before it, and says nothing of it.
                let unknown = match !checkpoint.proven {
                    true => format!(
                        " Nothing shows that {} belongs to this journal: if it was copied here, move it away first.",
                        Directory::name(checkpoint.group)
                    ),
                    false => String::new(),
                };
                Ok(format!(
                    "The models continue as of offset {}; what they learned from {later} later acknowledged rows is lost. The \
                     journal loses all of its rows: refits begin with those that come.{unknown}",
                    checkpoint.offset
                ))
            }
        },
    }
}

/// The ways that are open, each with what it loses and its command.
fn ways(directory: &Path, found: &Survey) -> String {
    let shown = directory.display();
    let all = [Some(Mend::Cut), found.damaged.map(Mend::Skip), Some(Mend::FromCheckpoint)];
    let mut out = String::new();
    for how in all.into_iter().flatten() {
        let Ok(loss) = loss(found, how) else { continue };
        let option = match how {
            Mend::Cut => "--truncate".to_owned(),
            Mend::Skip(group) => format!("--skip {group}"),
            Mend::FromCheckpoint => "--from-checkpoint".to_owned(),
        };
        out += &format!("{loss}\n  criticd repair {option} {shown} --yes\n");
    }
    if found.groups > 0 {
        out += &format!(
            "Learning the good rows again loses the models, and nothing else of offsets {} to {}.\n  criticd export {shown} \
             --out rows.csv; criticd reset {shown}; criticd serve --data-dir {shown} --warm-start rows.csv\n",
            found.offsets.0, found.offsets.1
        );
    }
    out += &format!("Starting without data loses everything, and sets it aside.\n  criticd reset {shown}\n");
    out
}
