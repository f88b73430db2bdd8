//! What every format has in common: which columns there are, what their cells may hold, and how rows of cells become
//! a [`Table`]. The formats themselves only name their columns and hand over one row after the other.

use super::annotations::{Annotations, mark_chains};
use super::category::{Coder, Learns};
use super::cell::{Cell, flag, is_missing, number, policy, position, session, stream};
use super::codes;
use super::contradictions::{End, Sight};
use super::extras::{Extras, Wide};
use super::gaps::{RowPosition, Standing};
use super::job::{Column, Job, Pieces, Want};
use super::judge::Judge;
use super::look::Looked;
use super::moment::{self, Moment};
use super::order::{self, FilePlace, Order};
use super::row::{OneRow, Said};
use super::schema::Schema;
use super::{AssumeTerminated, Fault, Progress, Reading, Table};
use criticd_learner::transition::{MAGNITUDE_MAX, Rows, probability};
use std::collections::HashMap;

/// Rows between two reports of progress.
const REPORT_ROWS: u64 = 4096;
/// Rows that are gathered before a piece is handed over.
const PIECE_ROWS: usize = 8192;

/// Which rows are resolved: given their successors and handed out.
#[derive(Clone, Copy)]
enum ResolvedRows<'a> {
    /// All: there are no more.
    All,
    /// The rows before the first one that may yet get a successor, of streams with these numbers of rows in the file.
    First(&'a [u64]),
    /// Those that no later row can change, in whatever order.
    Settled,
}

/// Takes rows of cells, checks them, and makes a table of them.
pub(super) struct Builder {
    schema: Schema,
    /// Whether NaN stands for a number that is left out: arrays have nothing else to say so.
    nan_is_blank: bool,
    /// Before the names of columns in faults: the part of the file that they come from.
    pub(super) prefix: String,
    rows: Rows,
    extras: Extras,
    seqs: Vec<u64>,
    /// Where each row is in the file, in its own way of counting.
    places: Vec<FilePlace>,
    streams: Vec<String>,
    policies: Vec<String>,
    ids: HashMap<String, u32>,
    last_seq: Vec<Option<u64>>,
    /// Of each stream the run that its last row is of, where a column names runs, and whether that row ends its chain.
    sessions: Vec<(String, bool)>,
    /// Of each stream how many numbers were left out before rows that start a chain: that says it to whoever reads the rows.
    left_out: Vec<u64>,
    /// Rows seen so far, and of each stream.
    seen: u64,
    seen_of: Vec<u64>,
    /// Rows kept at which a piece is handed over.
    enough: usize,
    row: OneRow,
    /// Of each row what it is.
    standings: Vec<Standing>,
    order: Order,
    pub(super) judge: Judge,
}

impl Builder {
    pub(super) fn new(schema: Schema, nan_is_blank: bool) -> Self {
        let (d, h) = (schema.dim, schema.rewards_per_row);
        let (extras, mut extra) = (schema.extras.clone(), schema.extras.clone());
        let (terms, in_pieces) = (schema.terms, schema.in_pieces);
        let named = schema.columns.contains(&Column::Episode);
        let judge = Judge::new(&schema);
        let watched = schema.watched.len();
        let learns = match schema.want {
            Want::States => Learns::No,
            _ if schema.in_pieces => Learns::Agreed,
            _ => Learns::Yes,
        };
        let coder = Coder::new(&schema.categories, (d, schema.action_numbers()), learns);
        extra.columns_mut().into_iter().for_each(|column| column.values = vec![f64::NAN; column.width]);
        Self {
            schema,
            nan_is_blank,
            prefix: String::new(),
            rows: Rows::new(d, h),
            extras,
            seqs: Vec::new(),
            places: Vec::new(),
            streams: Vec::new(),
            policies: Vec::new(),
            ids: HashMap::new(),
            last_seq: Vec::new(),
            sessions: Vec::new(),
            left_out: Vec::new(),
            seen: 0,
            seen_of: Vec::new(),
            enough: PIECE_ROWS,
            row: OneRow {
                state: vec![0.0; d],
                next: vec![0.0; d],
                reward: vec![0.0; h],
                extra,
                terms: vec![f64::NAN; terms],
                watched: vec![0; watched],
                name: String::new(),
                policy: String::new(),
                session: String::new(),
                coder,
            },
            standings: Vec::new(),
            order: Order::new(named, in_pieces),
            judge,
        }
    }

    /// After each row: tell how far the file is read, now and then, and hand over what has been gathered.
    ///
    /// # Errors
    /// What whoever takes the pieces says, or a fault that showed when rows got their successors.
    pub(super) fn advance(&mut self, job: &mut Job<'_>, fraction: f64) -> Result<(), Fault> {
        if self.seen.is_multiple_of(REPORT_ROWS) {
            job.report(Progress { rows: self.seen, fraction })?;
        }
        match &mut job.pieces {
            Some(pieces) if self.rows.len() >= self.enough => {
                self.hand_over(pieces.totals.map_or(ResolvedRows::Settled, ResolvedRows::First), pieces)?;
                // Rows that wait are not looked through again and again.
                self.enough = PIECE_ROWS.max(2 * self.rows.len());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Hand over the last piece; rows of each stream in the file, and what there is to tell of the table.
    ///
    /// # Errors
    /// As [`Builder::advance`]; and what the table is refused for as a whole.
    pub(super) fn finish(mut self, mut pieces: Pieces<'_>) -> Result<(Vec<u64>, Vec<String>), Fault> {
        self.hand_over(ResolvedRows::All, &mut pieces)?;
        let told = self.judge.judge(&self.schema, &self.order)?;
        Ok((self.seen_of, told))
    }

    fn hand_over(&mut self, part: ResolvedRows<'_>, pieces: &mut Pieces<'_>) -> Result<(), Fault> {
        let mut table = self.resolve(part)?;
        // Lent for as long as it takes: there may be many names.
        table.streams = std::mem::take(&mut self.streams);
        table.policies = std::mem::take(&mut self.policies);
        table.understood = std::mem::take(&mut self.schema.understood);
        table.categories = std::mem::take(&mut self.row.coder.categories);
        let taken = (pieces.take)(&table);
        (self.streams, self.policies, self.schema.understood) = (table.streams, table.policies, table.understood);
        self.row.coder.categories = table.categories;
        taken
    }

    /// Tell something of the file beside what its rows say.
    pub(super) fn tell(&mut self, said: String) {
        self.judge.told.push(said);
    }

    /// The file breaks here: where no column tells episodes apart, the rows behind do not continue those before. Whether that is so.
    pub(super) fn break_off(&mut self) -> bool {
        let alone = matches!(self.schema.want, Want::Transitions(Reading { independent: true, .. }));
        let counts = !alone && !self.schema.columns.contains(&Column::Episode);
        self.judge.breaks.add(counts);
        counts
    }

    /// Whether the last row terminated, and whether it was truncated.
    pub(super) fn ended(&self) -> (bool, bool) {
        (self.rows.terminated.last() == Some(&true), self.rows.truncated.last() == Some(&true))
    }

    /// Whether rows that contradict each other are refused.
    pub(super) fn refuses(&self) -> bool {
        self.judge.refuses()
    }

    /// How many streams there are so far.
    pub(super) fn streams(&self) -> usize {
        self.streams.len()
    }

    fn fault(&self, place: u64, name: &str, message: String) -> Fault {
        Fault::Cell { row: place, column: format!("{}{name}", self.prefix), message }
    }

    /// Append the row that is at `place` in the file; `cell` gives its k-th cell.
    pub(super) fn push<'c>(&mut self, place: u64, cell: impl Fn(usize) -> Cell<'c>) -> Result<(), Fault> {
        if matches!(self.schema.want, Want::Look | Want::Keep) {
            self.judge.regard(place, &self.schema.columns, cell);
            self.seen += 1;
            return Ok(());
        }
        let mut said = Said { discount: f64::NAN, ..Said::default() };
        for k in 0..self.schema.columns.len() {
            let column = self.schema.columns[k];
            let cell = if column == Column::Skipped { Cell::Empty } else { cell(k) };
            let taken = match &self.schema.conditions[k] {
                Some(condition) => condition.met(cell).and_then(|met| self.take(column, Cell::Flag(met), &mut said)),
                None => self.take(column, cell, &mut said),
            };
            taken.map_err(|message| {
                let message = self.judge.gaps.beside(self.schema.want, column, cell, message);
                self.fault(place, &self.schema.names[k], message)
            })?;
        }
        if !said.named {
            self.row.name.clear();
            self.row.name.push_str("default");
        }
        let (mut terminated, truncated) = said.ends(self.schema.want);
        self.add_up(place)?;
        let bare = self.row.reward.iter().all(|value| value.is_nan());
        if bare && said.terminated && self.gives_state_alone() {
            (terminated, said.absorbing) = (false, true);
            self.judge.breaks.end_without_reward(place);
        }
        self.check_successor(place, terminated, &mut said)?;
        let ratio = self.check_extras(place)?;
        let id = self.stream_id(place);
        said.starts_chain |= self.judge.breaks.pass(id);
        let row = self.sight(place, id, End::of(terminated, truncated), &said);
        if self.judge.read(id, &row, &self.row.session, said.seq, &self.schema)? {
            self.seen += 1;
            self.seen_of[id as usize] += 1;
            return Ok(());
        }
        let starts_chain = self.order.take(id, &row);
        if self.order.disordered {
            self.check_sortable(place)?;
        }
        let seq = self.number_row(place, id, said.seq, starts_chain)?;
        let schema = &self.schema;
        let standing = match said.absorbing {
            true => Standing::Terminal,
            false => {
                self.judge.gaps.stand(place, said.lacks, || said.lacks.map_or_else(String::new, |c| schema.name_of(c)))
            }
        };
        if standing == Standing::Step && said.lacks.is_none() {
            let (opens, ends) = (said.starts_chain, terminated || truncated);
            self.judge.watch(id, place, &self.row.state, &self.row.watched, (opens, ends));
        }
        self.sessions[id as usize].1 = terminated || truncated;
        self.standings.push(standing);
        self.rows.states.extend_from_slice(&self.row.state);
        if self.schema.has_next {
            self.rows.next_states.extend_from_slice(&self.row.next);
        }
        self.rows.rewards.extend_from_slice(&self.row.reward);
        self.rows.discounts.push(said.discount);
        self.rows.ratios.push(ratio);
        self.rows.streams.push(id);
        self.rows.terminated.push(terminated);
        self.rows.truncated.push(truncated);
        self.rows.starts_chain.push(false);
        self.extras.push_from(&self.row.extra, 0);
        self.seqs.push(seq);
        let own = self.last_seq[id as usize].unwrap_or(seq);
        self.places.push(FilePlace { line: place, seq: own });
        self.seen += 1;
        self.seen_of[id as usize] += 1;
        if self.schema.in_pieces {
            self.hold(self.rows.len() - 1);
        }
        Ok(())
    }

    /// Whether a row that terminates and has no reward only says that the one before it led to the end.
    fn gives_state_alone(&self) -> bool {
        let steps = matches!(self.schema.want, Want::Transitions(Reading { independent: false, .. }));
        steps && !self.schema.has_next && !self.judge.gaps.allowed()
    }

    /// Have the numbers that row i of those kept lacks repeat the ones of the row before it, or leave it out where there are none.
    fn hold(&mut self, i: usize) {
        if self.standings[i] == Standing::Absent {
            return;
        }
        let (d, rows) = (self.schema.dim, &mut self.rows);
        let ended = rows.terminated[i] || rows.truncated[i];
        let (stream, episode, seq) = (rows.streams[i], self.order.episodes.get(i).copied(), self.seqs[i]);
        if !self.judge.gaps.hold(RowPosition { stream, episode, seq, ended }, &mut rows.states[i * d..(i + 1) * d]) {
            self.standings[i] = Standing::Absent;
        }
    }

    /// Take in what one cell says.
    fn take(&mut self, column: Column, mut cell: Cell<'_>, said: &mut Said) -> Result<(), String> {
        if self.nan_is_blank && column.may_be_blank() && matches!(cell, Cell::Number(value) if value.is_nan()) {
            cell = Cell::Empty;
        }
        let gaps = self.judge.gaps.allowed();
        let d = self.schema.dim;
        if gaps && column.is_of_reward() && is_missing(cell) {
            cell = Cell::Empty;
        }
        // NaN stands for a blank cell until it is known whether the row needs it.
        let optional = |limit| number(cell, limit).map(|value| value.unwrap_or(f64::NAN));
        match column {
            Column::Stream => {
                said.named = true;
                stream(cell, &mut self.row.name)?;
            }
            Column::State(i) => {
                let value = self.row.coder.read(i, cell, gaps)?;
                if value.is_none() && !gaps {
                    return Err(self.schema.unstated());
                }
                said.lacks = said.lacks.or_else(|| value.is_none().then_some(column));
                self.row.state[i] = value.unwrap_or(f64::NAN);
            }
            Column::NextState(i) => self.row.next[i] = self.row.coder.number(i, cell, gaps)?,
            Column::Reward(i) => self.row.reward[i] = optional(MAGNITUDE_MAX)?,
            Column::Action(i) => self.row.extra.actions.values[i] = self.row.coder.number(d + i, cell, gaps)?,
            Column::Terminated => said.terminated = flag(cell)?,
            Column::Truncated => said.truncated = flag(cell)?,
            Column::Done => said.done = flag(cell)?,
            Column::Discount => {
                let value = optional(f64::MAX)?;
                if !value.is_nan() && !(0.0..=1.0).contains(&value) {
                    return Err(format!("a discount lies in [0, 1], this one is {value}"));
                }
                said.discount = value;
            }
            Column::Time => {
                let seconds = optional(f64::MAX)?;
                self.row.extra.times.values[0] = seconds;
                self.order.next.clock = if self.schema.numbered { Moment::NONE } else { Moment::of(seconds) };
            }
            Column::Session => session(cell, &mut self.row.session)?,
            Column::Seq if matches!(cell, Cell::Empty | Cell::Written("")) => {}
            Column::Seq => said.seq = Some(position(cell)?),
            Column::BehaviorProb | Column::BehaviorLogProb => {
                let given = optional(f64::MAX)?;
                let value = if column == Column::BehaviorLogProb { given.exp() } else { given };
                if !value.is_nan() {
                    probability::check_behavior(value)?;
                }
                self.row.extra.behavior_probs.values[0] = value;
            }
            Column::TargetProb => self.row.extra.target_probs.values[0] = optional(f64::MAX)?,
            Column::NextAction(i) => {
                self.row.extra.next_actions.values[i] = self.row.coder.number(d + i, cell, gaps)?
            }
            Column::NextActionProb(i) => self.row.extra.next_action_probs.values[i] = optional(f64::MAX)?,
            Column::StartsChain => said.starts_chain = flag(cell)?,
            Column::Policy => {
                policy(cell, &mut self.row.policy)?;
                self.row.extra.policies.values[0] = self.policy_number();
            }
            Column::Episode => order::episode(cell, &mut self.order.next.key)?,
            Column::Order => {
                let time = moment::time(cell)?;
                self.row.extra.times.values[0] = time.seconds;
                (self.order.next.time, self.judge.calendar) = (time.moment, time.calendar);
            }
            Column::Frame => self.order.next.frame = position(cell)? as f64,
            Column::Absorbing => said.absorbing = flag(cell)?,
            Column::Last => said.last = flag(cell)?,
            Column::EndedItself => said.itself = flag(cell)?,
            Column::EndedOtherwise => said.otherwise = flag(cell)?,
            Column::Term(i) => self.row.terms[i] = optional(f64::MAX)?,
            Column::Watched(i) if self.judge.watches() => self.row.watched[i] = cell.print(),
            Column::Watched(_) | Column::Kept(_) | Column::Skipped | Column::Cuts => {}
        }
        Ok(())
    }

    /// What there is to see of the row that stands at `place`.
    fn sight(&mut self, place: u64, stream: u32, end: Option<End>, said: &Said) -> Sight {
        Sight {
            line: place,
            episode: self.order.episode(stream, place),
            moment: self.order.next.moment(),
            print: self.row.print(self.schema.has_next, end, said),
            end: end.or(said.absorbing.then_some(End::Terminated)),
            bare: self.row.reward.iter().all(|value| value.is_nan()),
            opens: said.starts_chain,
        }
    }

    /// Whether the row has the successor that it needs; a terminated one gets its own state as a placeholder.
    fn check_successor(&mut self, place: u64, terminated: bool, said: &mut Said) -> Result<(), Fault> {
        if !self.schema.has_next {
            return Ok(());
        }
        if terminated && self.row.next.iter().all(|v| v.is_nan()) {
            self.row.next.copy_from_slice(&self.row.state);
        }
        match self.row.next.iter().position(|v| v.is_nan()) {
            Some(i) if self.judge.gaps.allowed() => {
                // A successor has no row before it to repeat: the row is left out.
                said.lacks = Some(Column::NextState(i));
                Ok(())
            }
            Some(i) => {
                let name = self.schema.name_of(Column::NextState(i));
                let message = "only terminated rows may omit their whole next state";
                Err(self.fault(place, &name, format!("{}; {message}", self.schema.blank())))
            }
            None => Ok(()),
        }
    }

    /// Check what the row says about policies; the ratio of its probabilities.
    fn check_extras(&self, place: u64) -> Result<f64, Fault> {
        let fault = |column, message| self.fault(place, &self.schema.name_of(column), message);
        let one = |column: &Wide| column.values.first().copied().filter(|value| !value.is_nan());
        let (behavior, target) = (one(&self.row.extra.behavior_probs), one(&self.row.extra.target_probs));
        if let Some(prob) = target {
            probability::check_target(prob, behavior).map_err(|message| fault(Column::TargetProb, message))?;
        }
        // Which of several numbers is missing where others are there.
        let missing = |wide: &Wide| {
            let given = wide.values.iter().any(|value| !value.is_nan());
            wide.values.iter().position(|value| value.is_nan()).filter(|_| given)
        };
        let next_action = missing(&self.row.extra.next_actions).map(Column::NextAction);
        let next_prob = missing(&self.row.extra.next_action_probs).map(Column::NextActionProb);
        if let Some(column) = next_action.or(next_prob) {
            return Err(fault(column, format!("{}; a row has all of these numbers or none", self.schema.blank())));
        }
        let probs = &self.row.extra.next_action_probs.values;
        if probs.first().is_some_and(|value| !value.is_nan()) {
            probability::check_distribution(probs)
                .map_err(|(k, message)| fault(Column::NextActionProb(k.unwrap_or(0)), message))?;
        }
        Ok(probability::ratio(behavior, target))
    }

    /// The row's rewards, where they are sums.
    fn add_up(&mut self, place: u64) -> Result<(), Fault> {
        for (h, sum) in self.schema.sums.iter().enumerate() {
            let value =
                sum.terms.iter().fold(sum.constant, |value, (factor, term)| value + factor * self.row.terms[*term]);
            if value.abs() > MAGNITUDE_MAX || value.is_infinite() {
                let message = format!("{value:e} is beyond {MAGNITUDE_MAX:e} in magnitude; rescale it");
                return Err(self.fault(place, &sum.text, message));
            }
            self.row.reward[h] = value;
        }
        Ok(())
    }

    /// Whether rows that are not in the order of their episodes can be sorted.
    fn check_sortable(&self, place: u64) -> Result<(), Fault> {
        let (episode, numbered) = (self.schema.name_of(Column::Episode), self.schema.columns.contains(&Column::Seq));
        if !self.schema.in_pieces && !numbered {
            return Ok(());
        }
        let message = format!(
            "episode {} is not in one piece, or its times fall; {}",
            self.order.next.key,
            if numbered { "drop seq, so that rows can be sorted" } else { "sort the rows by episode and time" }
        );
        Err(self.fault(place, &episode, message))
    }

    /// Sort rows that are not in the order of their episodes, leave out copies, and number the rows again.
    fn sort(&mut self) {
        let mut order = self.order.sorted();
        self.judge.restart();
        order.retain(|&i| {
            let row = self.sight_of(i);
            !self.judge.see(self.rows.streams[i], &row)
        });
        // Copies do not set the clock back.
        let mut kept = order.clone();
        kept.sort_unstable();
        for i in kept {
            let row = self.sight_of(i);
            self.judge.look_back(self.rows.streams[i], &row);
        }
        let (rows, extras) = (self.rows.clone(), self.extras.clone());
        self.rows = Rows::new(rows.dim, rows.rewards_per_row);
        self.extras = extras.without_rows();
        for &i in &order {
            if self.schema.has_next {
                self.rows.extend(&rows, i..i + 1);
            } else {
                // Successors are not there yet.
                self.rows.states.extend_from_slice(rows.state(i));
                self.rows.rewards.extend_from_slice(rows.reward(i));
                self.rows.discounts.push(rows.discounts[i]);
                self.rows.ratios.push(rows.ratios[i]);
                self.rows.streams.push(rows.streams[i]);
                self.rows.terminated.push(rows.terminated[i]);
                self.rows.truncated.push(rows.truncated[i]);
                self.rows.starts_chain.push(false);
            }
            self.extras.push_from(&extras, i);
        }
        self.places = order.iter().map(|&i| self.places[i]).collect();
        self.standings = order.iter().map(|&i| self.standings[i]).collect();
        self.order.permute(&order);
        let mut last: Vec<Option<(u64, u32)>> = vec![None; self.streams.len()];
        self.seqs.clear();
        for i in 0..order.len() {
            let episode = self.order.episodes[i];
            let last = &mut last[self.rows.streams[i] as usize];
            let seq = match *last {
                None => 0,
                Some((seq, before)) => seq + if before == episode && !self.order.opens[i] { 1 } else { 2 },
            };
            *last = Some((seq, episode));
            self.seqs.push(seq);
        }
    }

    /// What was seen of row i.
    fn sight_of(&self, i: usize) -> Sight {
        let ended = End::of(self.rows.terminated[i] || self.standings[i] == Standing::Terminal, self.rows.truncated[i]);
        let bare = self.rows.reward(i).iter().all(|value| value.is_nan());
        self.order.sight(i, self.places[i].line, ended, bare)
    }

    /// Number of the policy that the row names; NaN if it names none.
    fn policy_number(&mut self) -> f64 {
        if self.row.policy.is_empty() {
            return f64::NAN;
        }
        // Few policies, of which the last one is the likeliest.
        let known = self.policies.iter().rposition(|name| *name == self.row.policy);
        let number = known.unwrap_or_else(|| {
            self.policies.push(self.row.policy.clone());
            self.policies.len() - 1
        });
        number as f64
    }

    /// Number of the stream that the row at `place` names.
    fn stream_id(&mut self, place: u64) -> u32 {
        match self.ids.get(&self.row.name) {
            Some(&id) => id,
            None => {
                let id = u32::try_from(self.streams.len()).expect("fewer than 2^32 streams");
                self.ids.insert(self.row.name.clone(), id);
                self.judge.see_stream(&self.row.name, place);
                self.streams.push(self.row.name.clone());
                self.last_seq.push(None);
                self.sessions.push((String::new(), false));
                self.left_out.push(0);
                self.seen_of.push(0);
                id
            }
        }
    }

    /// The row's number in its stream. Within a run of its producer it is the one that the row has; where rows are left out
    /// before it, or a chain or a run begins, one number more is left out.
    fn number_row(&mut self, place: u64, id: u32, seq: Option<u64>, starts_chain: bool) -> Result<u64, Fault> {
        let last = self.last_seq[id as usize];
        let numbered = self.schema.columns.contains(&Column::Session);
        let (run, ended) = &mut self.sessions[id as usize];
        let begins = self.row.session != *run && last.is_some();
        run.clone_from(&self.row.session);
        // Behind an end the next row starts a chain in any case.
        let marked = starts_chain;
        let starts_chain = starts_chain && !(numbered && *ended && self.schema.has_next && !begins);
        // Numbers may begin again with a run; those that go on are higher than all before.
        let seq = match (last, seq) {
            (Some(last), Some(seq)) if numbered && (begins || (marked && seq <= last)) => {
                let left_out = &mut self.left_out[id as usize];
                *left_out = (*left_out + last + 1).saturating_sub(seq) + u64::from(!starts_chain);
                seq
            }
            (Some(last), Some(seq)) if seq <= last => {
                let message = format!(
                    "must rise within a stream, {seq} follows {last}; give another run another stream name, or drop seq"
                );
                return Err(self.fault(place, &self.schema.name_of(Column::Seq), message));
            }
            (_, Some(seq)) => seq,
            (last, None) => {
                self.left_out[id as usize] += u64::from(begins && !starts_chain);
                last.map_or(0, |last| last + 1)
            }
        };
        self.last_seq[id as usize] = Some(seq);
        let left_out = &mut self.left_out[id as usize];
        *left_out += u64::from(starts_chain && last.is_some());
        match seq.checked_add(*left_out).filter(|&seq| seq < u64::MAX) {
            Some(seq) => Ok(seq),
            None => Err(self.fault(place, &self.schema.name_of(Column::Seq), format!("{seq} is too large"))),
        }
    }

    /// What the columns hold, rows of the file, and what there is to tell.
    pub(super) fn into_looks(self) -> Result<Looked, Fault> {
        let (lists, rows) = (self.schema.understood.ignored, self.seen);
        if rows == 0 { Err(Fault::Empty) } else { Ok(self.judge.into_looked(lists, rows)) }
    }

    /// The states (n, D) and D.
    pub(super) fn into_states(self) -> Result<(Vec<f64>, usize), Fault> {
        if self.rows.is_empty() { Err(Fault::Empty) } else { Ok((self.rows.states, self.schema.dim)) }
    }

    /// The transitions.
    pub(super) fn into_table(mut self) -> Result<Table, Fault> {
        if self.order.disordered {
            self.sort();
        }
        (0..self.rows.len()).for_each(|i| self.hold(i));
        let mut table = self.resolve(ResolvedRows::All)?;
        let told = self.judge.judge(&self.schema, &self.order)?;
        if table.rows.is_empty() {
            return Err(Fault::Empty);
        }
        (table.told, table.copies) = (told, self.judge.left_out());
        table.dropped = self.judge.gaps.dropped();
        (table.streams, table.policies) = (self.streams, self.policies);
        table.read = self.seen as usize;
        table.episode_names = self.order.names;
        mark_chains(&mut table.rows, &table.seqs, table.streams.len());
        if self.order.named {
            let (episode, row) = (self.schema.name_of(Column::Episode), self.schema.format.words().0);
            table.told.extend(table.say_breaks(&episode, row));
        } else {
            table.number_chains();
        }
        table.told.extend(codes::told(&self.schema, &table.rows));
        table.understood = self.schema.understood;
        table.categories = self.row.coder.categories;
        let said = table.categories.said(table.understood.names.as_deref(), table.rows.dim);
        table.understood.roles.extend(said.map(|said| ("categories", said)));
        Ok(table)
    }

    /// Whether rows without an end terminate where their piece ends.
    fn last_terminates(&self) -> bool {
        !self.schema.has_ends()
            && matches!(self.schema.want, Want::Transitions(reading)
                if reading.assume_terminated == Some(AssumeTerminated::Last))
    }

    /// For each row whether it is in `part`.
    fn within(&self, part: ResolvedRows<'_>) -> Vec<bool> {
        let n = self.rows.len();
        let mut within = vec![true; n];
        if matches!(part, ResolvedRows::All) || (self.schema.has_next && !self.last_terminates()) {
            return within;
        }
        let mut followed = vec![false; self.streams.len()];
        for i in (0..n).rev() {
            let stream = self.rows.streams[i] as usize;
            let over = match part {
                ResolvedRows::First(totals) => totals.get(stream) == Some(&self.seen_of[stream]),
                ResolvedRows::All | ResolvedRows::Settled => false,
            };
            within[i] = std::mem::replace(&mut followed[stream], true) || over;
        }
        if let (ResolvedRows::First(_), Some(first)) = (part, within.iter().position(|&w| !w)) {
            within[first..].fill(false);
        }
        within
    }

    /// Give the rows of a part their successors, drop those that have none, and check what the remaining ones need. The
    /// other rows are kept for later. The table has no names of streams yet.
    fn resolve(&mut self, part: ResolvedRows<'_>) -> Result<Table, Fault> {
        let within = self.within(part);
        let last_terminates = self.last_terminates();
        let (h, d) = (self.schema.rewards_per_row, self.schema.dim);
        let (n, has_next) = (self.rows.len(), self.schema.has_next);
        let (mut keep, mut cut) = (vec![true; n], Vec::new());
        let mut rows = std::mem::replace(&mut self.rows, Rows::new(d, h));
        if !has_next {
            rows.next_states.clone_from(&rows.states);
        }
        let mut following: Vec<Option<usize>> = vec![None; self.streams.len()];
        // Backwards, so that the next row of a stream is at hand.
        for i in (0..n).rev() {
            let after = following[rows.streams[i] as usize].replace(i);
            if !within[i] {
                continue;
            }
            let after = after.filter(|&j| self.seqs[i] + 1 == self.seqs[j] && self.standings[j] != Standing::Absent);
            let after = after.filter(|&j| !has_next || rows.next_state(i) == rows.state(j));
            if self.standings[i] != Standing::Step {
                keep[i] = false;
                continue;
            }
            // The next row only says that its state is terminal.
            if after.is_some_and(|j| self.standings[j] == Standing::Terminal) && !rows.truncated[i] {
                rows.terminated[i] = true;
            }
            if last_terminates && after.is_none() && !rows.truncated[i] {
                rows.terminated[i] = true;
            }
            if rows.terminated[i] || has_next {
                continue;
            }
            match after.filter(|_| !rows.truncated[i]) {
                Some(j) => {
                    rows.next_states[i * d..(i + 1) * d].copy_from_slice(&rows.states[j * d..(j + 1) * d]);
                    // A truncated row without a successor hands its flag on to the row that leads to it.
                    if rows.truncated[j] && !rows.terminated[j] {
                        cut.push(i);
                    }
                }
                None => keep[i] = false,
            }
        }
        // Not before: a row has one flag to hand on, its own.
        for i in cut {
            rows.truncated[i] = true;
        }
        let mut out: Vec<bool> = (0..n).map(|i| within[i] && keep[i]).collect();
        if self.judge.gaps.allowed() {
            self.drop_unpaid(&rows, &mut out, &mut keep);
        }
        self.check_needed(&rows, &out)?;
        Ok(self.hand_out(rows, &out, &keep))
    }

    /// Leave out transitions without a reward: they only give their states.
    fn drop_unpaid(&mut self, rows: &Rows, out: &mut [bool], keep: &mut [bool]) {
        for i in 0..out.len() {
            if let Some(k) = rows.reward(i).iter().position(|v| v.is_nan()).filter(|_| out[i]) {
                (out[i], keep[i]) = (false, false);
                self.judge.gaps.drop(self.places[i].line, || self.schema.name_of(Column::Reward(k)));
            }
        }
    }

    /// Whether rows that are transitions have rewards, and whole actions or none.
    fn check_needed(&self, rows: &Rows, out: &[bool]) -> Result<(), Fault> {
        for i in (0..out.len()).filter(|&i| out[i]) {
            let blank = |column: Column| {
                let message = format!(
                    "{}; only a row that gives just its state may omit it, or say --missing drop to leave such rows out",
                    self.schema.blank()
                );
                self.fault(self.places[i].line, &self.schema.name_of(column), message)
            };
            if let Some(k) = rows.reward(i).iter().position(|v| v.is_nan()) {
                return Err(blank(Column::Reward(k)));
            }
            // A stream may have no actions beside others that have some; a part of one is a fault.
            let action = self.extras.actions.row(i);
            if let Some(k) = action.iter().position(|v| v.is_nan()).filter(|_| !action.iter().all(|v| v.is_nan())) {
                return Err(blank(Column::Action(k)));
            }
        }
        Ok(())
    }

    /// The rows that are `out`, as a table; of the others those to `keep` stay.
    fn hand_out(&mut self, rows: Rows, out: &[bool], keep: &[bool]) -> Table {
        let (n, d, h) = (out.len(), rows.dim, rows.rewards_per_row);
        let none = self.extras.without_rows();
        let before = Annotations {
            extras: std::mem::replace(&mut self.extras, none),
            seqs: std::mem::take(&mut self.seqs),
            places: std::mem::take(&mut self.places),
            episodes: std::mem::take(&mut self.order.episodes),
            frames: std::mem::take(&mut self.order.frames),
        };
        let standings = std::mem::take(&mut self.standings);
        let mut table = Table { rows: Rows::new(d, h), ..Table::default() };
        if out.iter().all(|&out| out) {
            table.rows = rows;
            before.into_table(&mut table);
            return table;
        }
        table.extras = self.extras.clone();
        for i in (0..n).filter(|&i| keep[i]) {
            if out[i] {
                table.rows.extend(&rows, i..i + 1);
                table.extras.push_from(&before.extras, i);
                table.seqs.push(before.seqs[i]);
                table.places.push(before.places[i]);
                table.episodes.extend(before.episodes.get(i));
                table.frames.extend(before.frames.get(i));
            } else {
                self.rows.extend(&rows, i..i + 1);
                self.extras.push_from(&before.extras, i);
                self.seqs.push(before.seqs[i]);
                self.places.push(before.places[i]);
                self.standings.push(standings[i]);
                self.order.episodes.extend(before.episodes.get(i));
                self.order.frames.extend(before.frames.get(i));
            }
        }
        if !self.schema.has_next {
            self.rows.next_states.clear();
        }
        table
    }
}
