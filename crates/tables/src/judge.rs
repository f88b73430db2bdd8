//! The one check of a table's order, for all formats: rows as they are read, and what is then said of the whole.

use super::alike::Alike;
use super::breaks::Breaks;
use super::cell::Cell;
use super::contradictions::{Contradictions, Sight, Words};
use super::gaps::Gaps;
use super::job::{Column, Want};
use super::jumps::Jumps;
use super::kept::KeptColumns;
use super::look::{Look, Looked};
use super::one_hot::OneHot;
use super::order::Order;
use super::runs::{Number, Runs};
use super::schema::Schema;
use super::{Fault, Reading};

/// Looks at the rows of a table, and judges them.
#[derive(Debug)]
pub(super) struct Judge {
    /// Whether every row is kept, whatever it contradicts.
    keeps_all: bool,
    /// Whether rows have to do with each other at all: rows of a regression may be equal, and so may states.
    judges: bool,
    contradictions: Contradictions,
    runs: Runs,
    streams: Alike,
    /// Whether times are written as dates.
    pub(super) calendar: bool,
    /// Numbers that are missing.
    pub(super) gaps: Gaps,
    pub(super) breaks: Breaks,
    /// Where states jump, in a table whose rows lead to the next ones and whose episodes have no names.
    jumps: Option<Jumps>,
    /// What columns hold, where that is wanted.
    pub(super) looks: Vec<Look>,
    pub(super) one_hot: OneHot,
    /// What pandas.read_csv needs to be told to read the file.
    pub(super) arguments: String,
    pub(super) kept: KeptColumns,
    /// What the reader of the file has to tell.
    pub(super) told: Vec<String>,
}

impl Judge {
    pub(super) fn new(schema: &Schema) -> Self {
        let named = schema.columns.contains(&Column::Episode);
        let (judges, keeps_all) = match schema.want {
            Want::Transitions(Reading { independent, keep_all, .. }) => (!independent, keep_all),
            Want::States | Want::Look | Want::Keep => (false, true),
        };
        let watches = judges && !keeps_all && !named && !schema.has_next;
        Self {
            looks: if schema.want == Want::Look {
                schema.watched.iter().map(|name| Look::new(name)).collect()
            } else {
                Vec::new()
            },
            one_hot: if schema.want == Want::Look { OneHot::new(&schema.watched) } else { OneHot::default() },
            arguments: String::new(),
            kept: KeptColumns::new(&schema.columns, &schema.names),
            gaps: Gaps::new(schema.missing),
            breaks: Breaks::default(),
            jumps: watches.then(|| Jumps::new(schema.watched.clone(), schema.dim)),
            keeps_all,
            judges,
            contradictions: Contradictions::new(named, keeps_all, schema.numbered),
            runs: Runs::new(schema.in_pieces),
            streams: Alike::default(),
            calendar: false,
            told: Vec::new(),
        }
    }

    /// What the columns hold beside these `lists`, in `rows` rows, and what there is to say.
    pub(super) fn into_looked(mut self, lists: Vec<String>, rows: u64) -> Looked {
        self.one_hot.found().into_iter().enumerate().for_each(|(k, at)| self.looks[at].one_hot = Some(k));
        let mut looked = Looked::of(self.looks, lists, rows, self.told);
        let (plain, fitting) = ("read_csv(\"OLD.csv\"", format!("read_csv(\"OLD.csv\"{}", self.arguments));
        looked.told.iter_mut().for_each(|told| *told = told.replace(plain, &fitting));
        looked
    }

    /// Take in a row of which nothing is asked but what its columns hold.
    pub(super) fn regard<'c>(&mut self, place: u64, columns: &[Column], cell: impl Fn(usize) -> Cell<'c>) {
        for (k, column) in columns.iter().enumerate() {
            if let Column::Watched(i) = *column
                && let Some(look) = self.looks.get_mut(i)
            {
                look.take(cell(k));
            }
        }
        self.one_hot.take(|at| self.looks[at].bit);
        self.kept.push(place, cell);
    }

    /// Whether rows that contradict each other are refused.
    pub(super) fn refuses(&self) -> bool {
        self.judges && !self.keeps_all
    }

    /// Take in the next row of the file, with its run and its number there, if it has one; whether it is a copy to be left out.
    ///
    /// # Errors
    /// If another row of the run has the number.
    pub(super) fn read(
        &mut self,
        stream: u32,
        row: &Sight,
        session: &str,
        seq: Option<u64>,
        schema: &Schema,
    ) -> Result<bool, Fault> {
        if !self.judges {
            return Ok(false);
        }
        let number = seq.map_or(Number::New, |seq| self.runs.take(stream, session, seq, row.print));
        match (number, seq) {
            (Number::Copied, _) if self.contradictions.copied(row) => Ok(true),
            // Without a name a run may begin again, which is seen elsewhere.
            (Number::Taken, Some(seq)) if !session.is_empty() => {
                let message = format!(
                    "session {session} has had {seq} before; leave out rows that come twice, or give another run another session"
                );
                Err(Fault::Cell { row: row.line, column: schema.name_of(Column::Seq), message })
            }
            (Number::Copied, _) => Ok(false),
            _ => Ok(self.contradictions.read(stream, row, self.calendar)),
        }
    }

    /// Take in the name of a new stream.
    pub(super) fn see_stream(&mut self, name: &str, line: u64) {
        self.streams.see(0, name, line);
    }

    /// Whether steps are looked at, and not enough of them yet.
    pub(super) fn watches(&self) -> bool {
        self.jumps.as_ref().is_some_and(|jumps| !jumps.is_full())
    }

    /// Look at a step from a row to the next one of its stream: the state (D,) at `line`, what the columns that nothing needs hold, and
    /// whether a chain begins or ends with the row.
    pub(super) fn watch(&mut self, stream: u32, line: u64, state: &[f64], held: &[u64], chain: (bool, bool)) {
        if let Some(jumps) = self.jumps.as_mut().filter(|jumps| !jumps.is_full()) {
            jumps.take(stream as usize, line, state, held, chain);
        }
    }

    /// Begin again, with rows in the order in which they are learned.
    pub(super) fn restart(&mut self) {
        self.contradictions.restart();
    }

    /// Look at a row in that order; whether it is a copy to be left out.
    pub(super) fn see(&mut self, stream: u32, row: &Sight) -> bool {
        self.contradictions.see(stream, row)
    }

    /// Look at a row that is kept, in the order of the file.
    pub(super) fn look_back(&mut self, stream: u32, row: &Sight) {
        self.contradictions.look_back(stream, row);
    }

    /// Copies that were left out.
    pub(super) fn left_out(&self) -> usize {
        self.contradictions.left_out()
    }

    /// What there is to tell of the file and the order of its rows.
    ///
    /// # Errors
    /// What the table is refused for.
    pub(super) fn judge(&self, schema: &Schema, order: &Order) -> Result<Vec<String>, Fault> {
        let mut told = self.told.clone();
        for (alike, column, what) in
            [(&self.streams, Column::Stream, "streams"), (&order.alike, Column::Episode, "episodes")]
        {
            let Some((row, said)) = alike.said() else { continue };
            let column = schema.name_of(column);
            if !self.keeps_all {
                let message =
                    format!("{said}. Write each name in one way, or take them for different {what}: --order keep");
                return Err(Fault::Cell { row, column, message });
            }
            told.push(format!("{column}: {said}"));
        }
        let named = |column| Some(schema.name_of(column)).filter(|name| !name.is_empty());
        let sorts = named(Column::Order).or_else(|| named(Column::Frame));
        told.extend(self.contradictions.judge(&Words {
            row: schema.format.words().0,
            episode: schema.name_of(Column::Episode),
            sorts: sorts.is_some(),
            leads: sorts.is_some() && !schema.has_next,
            time: sorts.or_else(|| named(Column::Time)).unwrap_or_default(),
            calendar: self.calendar,
            episodes: &order.names,
        })?);
        let row = schema.format.words().0;
        told.extend(self.breaks.say(row));
        told.extend(self.gaps.say(row));
        told.extend(self.jumps.as_ref().and_then(|jumps| jumps.say(row)));
        Ok(told)
    }
}
