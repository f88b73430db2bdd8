//! `criticd export`.

use super::client::DaemonPlace;
use super::inspect::Then;
use super::output::{Spinner, in_file, output, print};
use super::{Failure, label::named, onnx};
use crate::daemon::archive::{self, ArchiveError, ChosenRows};
use crate::daemon::survey::holds_journal;
use std::path::{Path, PathBuf};

/// Write the rows of a journal to a table, or a value function as ONNX
///
/// Rows: the daemon may run meanwhile. The table has the columns that `criticd replay` and `criticd fit` read, and stream, session,
/// seq, time (of the row), offset (its position in the journal) and received (when the daemon stored it, Unix seconds).
/// Rows are in the order in which the daemon learned them. A damaged journal is read up to its damage; the exit status is then
/// 1, and the table has what could be read. With --from behind the damage, the rows behind it are read.
///
/// With --onnx: the model of a file that `fit` or `snapshot` wrote. The graph has one input, states (n, D) as 64-bit floats in the units
/// of the table, and the outputs mean, std (standard deviation of the value), return_std (of a single return) and known (share of
/// the signal's variance that the rows have removed), as far as the model has them. Its metadata name the critic, its discount, the state variables and the heads, whose answers
/// are the outputs heads, heads_std and heads_return_std, with a column for each.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd export --out runs.parquet\n  criticd export /var/lib/criticd --out runs.csv --stream walker --stream arm\n  criticd export tcp://127.0.0.1:5751 --out late.npz --from 100000 --to 200000\n  criticd replay runs.parquet --data-dir /var/lib/other      learn them again elsewhere\n  criticd export walk.model --onnx --out walk.onnx\n  criticd export /var/lib/criticd --onnx --as-of 120000 --out then.onnx"
)]
pub(crate) struct Export {
    #[command(flatten)]
    place: DaemonPlace,
    /// Write the value function of a model file, which takes the place of the data directory, as an ONNX graph
    #[arg(long, conflicts_with_all = ["stream", "from", "to"])]
    onnx: bool,
    #[command(flatten)]
    then: Then,
    /// Output file: .parquet, .csv, .jsonl or .npz; .onnx with --onnx
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Only rows of this stream; may be repeated [default: of all]
    #[arg(long, value_name = "NAME")]
    stream: Vec<String>,
    /// From this offset on
    #[arg(long, value_name = "OFFSET", default_value_t = 0)]
    from: u64,
    /// Before this offset [default: to the end]
    #[arg(long, value_name = "OFFSET", default_value_t = u64::MAX, hide_default_value = true)]
    to: u64,
}

impl Export {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let Self { place, onnx, then, out, stream, from, to } = self;
        if onnx {
            let model = place
                .given()
                .ok_or_else(|| Failure::usage("--onnx wants a model file: criticd export MODEL --onnx --out FILE"))?;
            return onnx::export(Path::new(model), &then, &out);
        }
        if then.is_asked() {
            return Err(Failure::usage("--as-of is for a model: give --onnx, or --to OFFSET for the rows until then"));
        }
        if from >= to {
            return Err(Failure::usage("--from must lie before --to"));
        }
        let directory = place.directory()?;
        if !holds_journal(&directory) {
            return Err(in_file(&directory, "a directory without a journal"));
        }
        let chosen = ChosenRows { streams: stream, from, to };
        let place = output(&out, &[&directory])?;
        let progress = Spinner::start("exporting");
        let mut advance = |done, of| progress.advance(done, of);
        let exported = place.make(|part| match archive::export(&directory, &chosen, part, &mut advance) {
            Err(ArchiveError::Table(fault)) => Err(named(fault, &out)),
            exported => exported.map_err(|e| in_file(&directory, e)),
        })?;
        drop(progress);
        let (first, end) = exported.journal;
        print(&format!("{}: {} rows; offsets {first} to {end} were read\n", out.display(), exported.rows))?;
        let Some(fault) = exported.fault else { return Ok(()) };
        let missing = match exported.missing {
            0 => "As far as known, no row lies behind it".to_owned(),
            rows => format!("{rows} acknowledged rows lie behind it, or are lost"),
        };
        Err(in_file(
            &directory,
            format!(
                "the journal is good up to offset {end}: {fault}. {missing}; `criticd repair` shows what can be done"
            ),
        ))
    }
}
