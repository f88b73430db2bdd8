//! Rows of a journal on their way into a table, under the names by which [`Table`](super::Table) reads them back.

use super::sidecar::{ColumnsWriter, Values};
use super::{Fault, Format, TableError};
use criticd_learner::transition::Batch;
use std::path::Path;

/// Rows of one piece of a file.
const PIECE_ROWS: usize = 1 << 15;

/// What the columns of a table are about, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Stream,
    Session,
    Seq,
    Time,
    Offset,
    Received,
    Policy,
    State,
    NextState,
    Action,
    Reward,
    Terminated,
    Truncated,
    StartsChain,
    Discount,
    BehaviorProb,
    TargetProb,
    NextAction,
    NextActionProbs,
}

/// Which columns a table needs, after all of its rows were seen once. The states of a journal have one dimension.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowColumns {
    /// Numbers of a state, a reward, an action, a next action, and probabilities of next actions; 0: no such column.
    widths: [usize; 5],
    sessions: bool,
    seqs: bool,
    /// Whether some rows have no `seq`.
    seqs_missing: bool,
    times: bool,
    policies: bool,
    discounts: bool,
    behavior_probs: bool,
    target_probs: bool,
}

/// Where a row is from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placed {
    /// Its position in the journal.
    pub offset: u64,
    /// Unix seconds when it was stored.
    pub received: f64,
    /// Whether it does not continue the row before it in its stream.
    pub starts_chain: bool,
}

impl RowColumns {
    /// Provide for the rows of `batch`.
    ///
    /// # Errors
    /// If its actions or probabilities have another number of numbers than in rows before: one table cannot hold both.
    pub fn include(&mut self, batch: &Batch) -> Result<(), String> {
        let length = |row: Option<&[f64]>| row.map_or(0, <[f64]>::len);
        let found = [
            batch.dim(),
            batch.rewards_per_row(),
            length(batch.action(0)),
            length(batch.next_action(0)),
            length(batch.next_action_probs(0)),
        ];
        let names = ["states", "rewards", "actions", "next actions", "probabilities of next actions"];
        for ((width, found), name) in self.widths.iter_mut().zip(found).zip(names) {
            match *width {
                _ if found == 0 => {}
                0 => *width = found,
                before if before != found => {
                    return Err(format!(
                        "{name} have {before} numbers in some rows and {found} in others; choose rows by stream or offset"
                    ));
                }
                _ => {}
            }
        }
        self.sessions |= !batch.session().is_empty();
        self.seqs |= batch.seq().is_some();
        self.seqs_missing |= batch.seq().is_none();
        self.times |= batch.time(0).is_some();
        self.policies |= batch.policy().is_some();
        self.discounts |= batch.discount(0).is_some();
        self.behavior_probs |= batch.behavior_prob(0).is_some();
        self.target_probs |= batch.target_prob(0).is_some();
        Ok(())
    }

    fn fields(&self) -> Vec<Field> {
        use Field as F;
        let [state, reward, action, next_action, next_action_probs] = self.widths.map(|width| width > 0);
        let all = [
            (F::Stream, true),
            (F::Session, self.sessions),
            (F::Seq, self.seqs),
            (F::Time, self.times),
            (F::Offset, true),
            (F::Received, true),
            (F::Policy, self.policies),
            (F::State, state),
            (F::NextState, state),
            (F::Action, action),
            (F::Reward, reward),
            (F::Terminated, true),
            (F::Truncated, true),
            (F::StartsChain, true),
            (F::Discount, self.discounts),
            (F::BehaviorProb, self.behavior_probs),
            (F::TargetProb, self.target_probs),
            (F::NextAction, next_action),
            (F::NextActionProbs, next_action_probs),
        ];
        all.into_iter().filter(|(_, there)| *there).map(|(field, _)| field).collect()
    }

    /// Numbers in a row, if the field has several.
    fn width(&self, field: Field) -> Option<usize> {
        let [state, reward, action, next_action, next_action_probs] = self.widths;
        match field {
            Field::State | Field::NextState => Some(state),
            Field::Reward => Some(reward),
            Field::Action => Some(action),
            Field::NextAction => Some(next_action),
            Field::NextActionProbs => Some(next_action_probs),
            _ => None,
        }
    }

    fn empty(&self, field: Field) -> Values {
        match field {
            Field::Stream | Field::Session | Field::Policy => Values::Texts(Vec::new()),
            Field::Seq if !self.seqs_missing => Values::Counts(Vec::new()),
            Field::Offset => Values::Counts(Vec::new()),
            Field::Terminated | Field::Truncated | Field::StartsChain => Values::Flags(Vec::new()),
            _ => Values::Numbers(Vec::new()),
        }
    }
}

impl Field {
    /// Its name in CSV, JSONL and Parquet, and the array's name in NPZ.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Stream => ("stream", "streams"),
            Self::Session => ("session", "sessions"),
            Self::Seq => ("seq", "seqs"),
            Self::Time => ("time", "times"),
            Self::Offset => ("offset", "offsets"),
            Self::Received => ("received", "received"),
            Self::Policy => ("policy", "policies"),
            Self::State => ("state", "states"),
            Self::NextState => ("next_state", "next_states"),
            Self::Action => ("action", "actions"),
            Self::Reward => ("reward", "rewards"),
            Self::Terminated => ("terminated", "terminated"),
            Self::Truncated => ("truncated", "truncated"),
            Self::StartsChain => ("starts_chain", "starts_chain"),
            Self::Discount => ("discount", "discounts"),
            Self::BehaviorProb => ("behavior_prob", "behavior_probs"),
            Self::TargetProb => ("target_prob", "target_probs"),
            Self::NextAction => ("next_action", "next_actions"),
            Self::NextActionProbs => ("next_action_probs", "next_action_probs"),
        }
    }

    /// The numbers of row i; none where it has none.
    fn numbers(self, batch: &Batch, i: usize) -> Option<&[f64]> {
        match self {
            Self::State => Some(batch.state(i)),
            Self::NextState => Some(batch.next_state(i)),
            Self::Reward => Some(batch.reward(i)),
            Self::Action => batch.action(i),
            Self::NextAction => batch.next_action(i),
            Self::NextActionProbs => batch.next_action_probs(i),
            _ => None,
        }
    }

    /// Its number in row i; NaN where it has none.
    fn number(self, batch: &Batch, i: usize, placed: &Placed) -> f64 {
        let number = match self {
            Self::Seq => batch.seq().map(|seq| (seq + i as u64) as f64),
            Self::Time => batch.time(i),
            Self::Received => Some(placed.received),
            Self::Discount => batch.discount(i),
            Self::BehaviorProb => batch.behavior_prob(i),
            Self::TargetProb => batch.target_prob(i),
            _ => None,
        };
        number.unwrap_or(f64::NAN)
    }
}

/// Writes rows into a table: CSV, JSONL, NPZ or Parquet, by the ending of its name. The file has its name once it is whole.
pub struct RowWriter {
    writer: ColumnsWriter,
    /// Each field with the number of its first column.
    fields: Vec<(Field, usize)>,
    piece: Vec<Values>,
    rows: usize,
    /// Whether fields of several numbers have one column for each of them.
    spread: bool,
}

impl RowWriter {
    /// Begin a table at `path`.
    ///
    /// # Errors
    /// If the ending of the name is not known, or the file cannot be made.
    pub fn create(path: &Path, columns: &RowColumns) -> Result<Self, TableError> {
        let fault = |message: &str| TableError { path: path.to_owned(), fault: Fault::Content(message.to_owned()) };
        let format = Format::of(path).ok_or_else(|| fault("its name must end in .csv, .jsonl, .npz or .parquet"))?;
        let spread = matches!(format, Format::Csv | Format::Parquet);
        let (mut fields, mut names, mut piece) = (Vec::new(), Vec::new(), Vec::new());
        for field in columns.fields() {
            fields.push((field, names.len()));
            let (name, array) = field.names();
            let name = if format == Format::Npz { array } else { name };
            match columns.width(field) {
                Some(1) if spread && matches!(field, Field::Action | Field::Reward | Field::NextAction) => {
                    names.push((name.to_owned(), None));
                }
                Some(width) if spread => names.extend((0..width).map(|k| (format!("{name}_{k}"), None))),
                width => names.push((name.to_owned(), width)),
            }
            piece.resize(names.len(), columns.empty(field));
        }
        let writer = ColumnsWriter::create(path, names)?;
        Ok(Self { writer, fields, piece, rows: 0, spread })
    }

    /// Append row i of `batch`.
    ///
    /// # Errors
    /// If writing fails.
    pub fn push(&mut self, batch: &Batch, i: usize, placed: &Placed) -> Result<(), TableError> {
        let ends = self.fields.iter().skip(1).map(|(_, at)| *at).chain([self.piece.len()]);
        let ends: Vec<usize> = ends.collect();
        for (&(field, at), end) in self.fields.iter().zip(ends) {
            match (&mut self.piece[at], field) {
                (Values::Texts(texts), Field::Stream) => texts.push(batch.stream().to_owned()),
                (Values::Texts(texts), Field::Session) => texts.push(batch.session().to_owned()),
                (Values::Texts(texts), _) => texts.push(batch.policy().unwrap_or_default().to_owned()),
                (Values::Counts(numbers), Field::Offset) => numbers.push(placed.offset),
                (Values::Counts(numbers), _) => numbers.push(batch.seq().unwrap_or(0) + i as u64),
                (Values::Flags(flags), Field::Terminated) => flags.push(batch.terminated(i)),
                (Values::Flags(flags), Field::Truncated) => flags.push(batch.truncated(i)),
                (Values::Flags(flags), _) => flags.push(placed.starts_chain),
                (Values::Numbers(_), Field::State | Field::NextState | Field::Reward)
                | (Values::Numbers(_), Field::Action | Field::NextAction | Field::NextActionProbs) => {
                    let row = field.numbers(batch, i);
                    let width = if self.spread { end - at } else { self.writer.width(at) };
                    for k in 0..width {
                        let column = if self.spread { at + k } else { at };
                        let Values::Numbers(numbers) = &mut self.piece[column] else { unreachable!("as the first is") };
                        numbers.push(row.map_or(f64::NAN, |row| row[k]));
                    }
                }
                (Values::Whole(_), _) => unreachable!("what is whole here has no sign"),
                (Values::Numbers(numbers), _) => numbers.push(field.number(batch, i, placed)),
            }
        }
        self.rows += 1;
        if self.rows == PIECE_ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), TableError> {
        self.writer.write(&self.piece)?;
        self.piece.iter_mut().for_each(Values::clear);
        self.rows = 0;
        Ok(())
    }

    /// Complete the file, on the disk as well. Returns its rows.
    ///
    /// # Errors
    /// If writing fails.
    pub fn finish(mut self) -> Result<u64, TableError> {
        if self.rows > 0 {
            self.flush()?;
        }
        self.writer.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Columns, Reading, Table};
    use criticd_learner::transition::BatchParts;

    fn batches() -> Vec<(Batch, Vec<bool>)> {
        let full = BatchParts {
            stream: "robot, \"two\"".into(),
            session: "morning".into(),
            seq: Some(7),
            dim: 2,
            rewards_per_row: 1,
            states: vec![0.1, -0.0, 1.0 / 3.0, 1e-300, 5.0, 6.0],
            rewards: vec![-1.5, 987_654_321.125],
            discounts: Some(vec![0.5, 1.0]),
            actions: Some(vec![0.25, -3.0]),
            times: Some(vec![1.7e9, 1.7e9 + 0.125]),
            behavior_probs: Some(vec![0.5, 0.25]),
            target_probs: Some(vec![0.75, 0.0]),
            policy: Some("step-1".into()),
            next_actions: Some(vec![1.0, 2.0]),
            next_action_probs: Some(vec![0.5, 0.5, 1.0, 0.0]),
            ..BatchParts::default()
        };
        let bare = BatchParts {
            stream: "default".into(),
            session: String::new(),
            seq: None,
            dim: 2,
            rewards_per_row: 1,
            states: vec![1.0; 4],
            next_states: Some(vec![2.0; 4]),
            rewards: vec![1.0, 2.0],
            terminated: Some(vec![false, true]),
            truncated: Some(vec![true, false]),
            ..BatchParts::default()
        };
        // Another run counts from 0 again.
        let again = BatchParts { session: "noon".into(), seq: Some(0), ..full.clone() };
        let batch = |parts| Batch::new(parts).unwrap();
        vec![(batch(full), vec![true, false]), (batch(bare), vec![true, true]), (batch(again), vec![true, false])]
    }

    #[test]
    fn rows_come_back_from_every_format_bit_for_bit() {
        let directory = tempfile::tempdir().unwrap();
        let batches = batches();
        let mut columns = RowColumns::default();
        batches.iter().for_each(|(batch, _)| columns.include(batch).unwrap());
        let mut endings = vec!["csv", "jsonl", "npz"];
        endings.extend(cfg!(feature = "parquet").then_some("parquet"));
        for ending in endings {
            let path = directory.path().join(format!("rows.{ending}"));
            let mut writer = RowWriter::create(&path, &columns).unwrap();
            let mut offset = 40;
            for (batch, starts) in &batches {
                for (i, &starts_chain) in starts.iter().enumerate() {
                    writer.push(batch, i, &Placed { offset, received: 1e9, starts_chain }).unwrap();
                    offset += 1;
                }
            }
            assert_eq!(writer.finish().unwrap(), 6, "{ending}");
            let table = Table::read_as(&path, Reading::default(), &Columns::default(), &mut |_| {}).unwrap();
            let read: Vec<Batch> = table.batches("again", 10).collect();
            assert_eq!(read.len(), 3, "{ending}");
            for ((batch, _), read) in batches.iter().zip(&read) {
                let mut parts = batch.clone().into_parts();
                (parts.session, parts.seq) = ("again".into(), read.seq());
                parts.next_states = read.clone().into_parts().next_states;
                // A table says of each row whether its chain ended.
                for ends in [&mut parts.terminated, &mut parts.truncated] {
                    ends.get_or_insert(vec![false; read.len()]);
                }
                assert_eq!(Batch::new(parts).unwrap(), *read, "{ending}");
                assert_eq!(batch.next_state(1), read.next_state(1), "{ending}");
            }
            // A gap before the second run, and none within it.
            assert_eq!(table.rows().starts_chain, [true, false, true, true, true, false], "{ending}");
            assert_eq!(read[2].seq(), Some(10), "{ending}");
            let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().flatten().map(|e| e.file_name()).collect();
            assert!(!left.iter().any(|name| name.to_string_lossy().contains("part")), "{ending}: {left:?}");
        }
    }

    #[test]
    fn actions_of_two_lengths_are_refused() {
        let mut columns = RowColumns::default();
        let (first, _) = batches().remove(0);
        columns.include(&first).unwrap();
        let mut parts = first.into_parts();
        (parts.actions, parts.next_actions) = (Some(vec![1.0; 4]), None);
        let refused = columns.include(&Batch::new(parts).unwrap()).unwrap_err();
        assert!(refused.contains("actions have 1 numbers in some rows and 2 in others"), "{refused}");
    }
}
