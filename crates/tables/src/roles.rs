//! Which column of a file holds what: by the user's word, by our own names, or by those that other programs write.

use super::columns::{Columns, Understood};
use super::composed::composed;
use super::condition::Condition;
use super::job::{Column, Job, Want, skipped};
use super::jumps::WATCHED_MAX;
use super::names::{self, missing, nearest};
use super::{Done, Fault, Format};
use criticd_learner::expression::{NotASum, Sum, Variable};

/// A column, array or key before it is known what it holds.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) name: String,
    /// Numbers in each row, if it holds lists.
    pub(super) width: Option<usize>,
    /// What it says of trajectories, if it has no entry for each row.
    pub(super) of_trajectories: Option<Column>,
}

/// What a source is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Role {
    /// Its first number, if it is one of several.
    pub(super) column: Column,
    /// Of a list this number alone.
    pub(super) only: Option<usize>,
    /// Which of the conditions it must meet, where it is a flag by one.
    condition: Option<usize>,
}

/// What all sources of a file are used for.
#[derive(Clone, Debug, Default)]
pub(super) struct Roles {
    /// Of each source; none where it is left alone.
    pub(super) of: Vec<Vec<Role>>,
    /// Rewards that are sums: as they were written, and their parts as numbers of [`Column::Term`].
    pub(super) sums: Vec<Reckoned>,
    /// Conditions that make flags of columns.
    pub(super) conditions: Vec<Condition>,
    /// Names of the columns that are watched ([`Column::Watched`]).
    pub(super) watched: Vec<String>,
    /// Whether rows have their places in a journal.
    pub(super) placed: bool,
    pub(super) understood: Understood,
}

/// constant + sum over terms of factor * term.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reckoned {
    pub(super) text: String,
    pub(super) constant: f64,
    pub(super) terms: Vec<(f64, usize)>,
}

/// Numbers in a row, at most: more are a damaged file's.
const NUMBERS_MAX: usize = 1 << 20;

/// What some columns are called in words, and which they are.
type Kind = (&'static str, fn(Column) -> bool);

/// Names that other programs give to what we read; where rows have one column for each number, `_0`, `.0` or `[0]` follows.
const ALIASES: [(Column, &[&str]); 13] = [
    (Column::State(0), &["obs", "observation", "observations", "observation.state", "states", "state"]),
    (
        Column::NextState(0),
        &[
            "next_obs",
            "next_observation",
            "next_observations",
            "obs_next",
            "new_obs",
            "next.observation.state",
            "next_states",
            "next_state",
        ],
    ),
    (Column::Action(0), &["action", "actions", "act", "acts"]),
    (Column::Reward(0), &["reward", "rewards", "rew", "rews", "next.reward"]),
    (
        Column::Terminated,
        &[
            "terminated",
            "terminateds",
            "terminal",
            "terminals",
            "termination",
            "terminations",
            "next.terminated",
            "absorbing",
        ],
    ),
    (
        Column::Truncated,
        &["truncated", "truncateds", "truncation", "truncations", "timeout", "timeouts", "next.truncated"],
    ),
    (Column::Done, &["done", "dones", "next.done", "episode_terminals"]),
    (Column::Absorbing, &["is_terminal"]),
    (Column::Last, &["is_last"]),
    (Column::StartsChain, &["is_first", "episode_starts"]),
    (
        Column::Episode,
        &["episode", "episodes", "episode_id", "episode_ids", "episode_index", "eps_id", "traj_id", "trajectory_id"],
    ),
    (Column::Frame, &["frame_index"]),
    (Column::Discount, &["discount", "discounts"]),
];

/// Names of ends that a misspelt one could be meant for.
const ENDS: [&str; 12] = [
    "terminated",
    "terminal",
    "terminals",
    "terminations",
    "truncated",
    "truncations",
    "timeout",
    "timeouts",
    "done",
    "dones",
    "is_terminal",
    "is_last",
];

impl Role {
    fn whole(column: Column) -> Self {
        Self::part(column, None)
    }

    fn part(column: Column, only: Option<usize>) -> Self {
        Self { column, only, condition: None }
    }
}

impl Source {
    /// One with an entry for each row.
    pub(super) fn new(name: &str, width: Option<usize>) -> Self {
        Self { name: name.to_owned(), width, of_trajectories: None }
    }

    /// Columns that a role spreads over: what each is called, what it is, and which number of the row.
    ///
    /// # Errors
    /// If one value is needed and this is a list, or the other way round.
    pub(super) fn spread(&self, role: Role, format: Format) -> Result<Vec<(String, Column, usize)>, Fault> {
        let wrong = |message: String| Err(Fault::column(&self.name, message));
        let name = |k: usize| {
            if format.has_arrays() { format!("{}[:, {k}]", self.name) } else { format!("{}[{k}]", self.name) }
        };
        match (self.width, role.only, role.column.from(0)) {
            (None, None, _) => Ok(vec![(self.name.clone(), role.column, 0)]),
            (None, Some(_), _) => wrong("holds one number in each row, not a list".to_owned()),
            (Some(width), Some(k), _) if k >= width => {
                wrong(format!("its rows have {width} numbers, counted from 0: there is no [{k}]"))
            }
            (Some(_), Some(k), _) => Ok(vec![(name(k), role.column, k)]),
            (Some(width), None, Some(_)) if width > NUMBERS_MAX => wrong(format!(
                "its rows have {width} numbers, more than the {NUMBERS_MAX} that are read; is the file damaged?"
            )),
            (Some(width), None, Some(_)) => {
                let column = |k| role.column.from(k).expect("as above");
                Ok((0..width).map(|k| (name(k), column(k), k)).collect())
            }
            (Some(1), None, None) => Ok(vec![(self.name.clone(), role.column, 0)]),
            (Some(width), None, None) if format.has_arrays() => {
                wrong(format!("has {width} values for each row, must hold one value for each row"))
            }
            (Some(_), None, None) => wrong("a list; one value is needed here".to_owned()),
        }
    }

    fn numbers(&self, role: Role) -> usize {
        if role.only.is_some() { 1 } else { self.width.unwrap_or(1) }
    }
}

impl Roles {
    /// Every source that has one value for each row is watched; lists are only named.
    fn to_look(sources: &[Source]) -> Self {
        let mut roles = Self::default();
        for source in sources {
            if let Some(width) = source.width {
                roles.understood.ignored.push(format!("{} ({width} numbers)", source.name));
                roles.of.push(Vec::new());
            } else {
                roles.of.push(vec![Role::whole(Column::Watched(roles.watched.len()))]);
                roles.watched.push(source.name.clone());
            }
        }
        roles
    }

    /// Do not watch the sources that cannot be read.
    #[cfg(feature = "parquet")]
    pub(super) fn look_away(&mut self, unread: impl Fn(usize) -> bool) {
        let watched = |role: &Role| matches!(role.column, Column::Watched(_));
        self.of
            .iter_mut()
            .enumerate()
            .filter(|(k, _)| unread(*k))
            .for_each(|(_, roles)| roles.retain(|role| !watched(role)));
    }

    /// All columns of these sources with their names, and where each is: source, and number of the row.
    ///
    /// # Errors
    /// As [`Source::spread`].
    #[expect(clippy::type_complexity, reason = "two lists of pairs")]
    pub(super) fn columns(
        &self,
        sources: &[Source],
        format: Format,
    ) -> Result<(Vec<(String, Column)>, Vec<(usize, usize)>), Fault> {
        let (mut columns, mut places) = (Vec::new(), Vec::new());
        for (at, (source, roles)) in sources.iter().zip(&self.of).enumerate() {
            for role in roles {
                for (name, column, k) in source.spread(*role, format)? {
                    // A condition is named as it was written.
                    let name = role.condition.map_or(name, |k| self.conditions[k].text.clone());
                    columns.push((name, column));
                    places.push((at, k));
                }
            }
        }
        Ok((columns, places))
    }
}

/// What names other programs give stand for; `list`: whether rows hold lists under it.
pub(super) fn alias(name: &str, list: bool) -> Option<Column> {
    let known = |name: &str| ALIASES.iter().find(|(_, names)| names.contains(&name)).map(|(column, _)| *column);
    if let Some(column) = known(name) {
        return Some(column);
    }
    if list {
        return None;
    }
    let trimmed = name.trim_end_matches(']');
    let (base, digits) = trimmed.split_at(trimmed.trim_end_matches(|c: char| c.is_ascii_digit()).len());
    let base = base.strip_suffix(['_', '.', '['])?.trim_end_matches(['_', '.', '[']);
    let k: usize = digits.parse().ok().filter(|k: &usize| k.to_string() == digits)?;
    known(base)?.from(k)
}

/// Whether an array of this name is one of states.
pub(super) fn may_be_state(name: &str, job: &Job<'_>) -> bool {
    let named = |state: &String| state == name || state.starts_with(&format!("{name}["));
    match job.columns.state.is_empty() {
        true => alias(name, true) == Some(Column::State(0)),
        false => job.columns.state.iter().any(named),
    }
}

/// The role that our own names give; None where the name is none of ours.
fn own(format: Format, name: &str) -> Option<Column> {
    match format {
        Format::Csv | Format::Parquet => Column::parse(name),
        Format::Jsonl => match name {
            "state" => Some(Column::State(0)),
            "next_state" => Some(Column::NextState(0)),
            "next_action_probs" => Some(Column::NextActionProb(0)),
            // Of the wire's messages.
            "v" => Some(Column::Skipped),
            _ => Column::parse(name),
        },
        Format::Npz => {
            if skipped(name) {
                Some(Column::Skipped)
            } else {
                names::array(name)
            }
        }
        Format::Hdf5 => None,
    }
}

/// What the sources of a file are used for.
///
/// # Errors
/// If a column that was named is missing, or one that was not is not known and may be of importance.
pub(super) fn assign(job: &Job<'_>, sources: &[Source]) -> Result<Roles, Fault> {
    let (format, want, columns) = (job.format, job.want, job.columns);
    if want == Want::Look {
        return Ok(Roles::to_look(sources));
    }
    let of = vec![Vec::new(); sources.len()];
    let mut find = Finder { format, want, sources, columns, of, terms: Vec::new(), conditions: Vec::new() };
    if want == Want::Keep {
        find.list("keep", &columns.state, Column::Kept(0))?;
        return Ok(Roles { of: find.of, ..Roles::default() });
    }
    let by_model = job.want == Want::States
        && job.columns.state.is_empty()
        && !job.columns.names.is_empty()
        && job.columns.names.iter().all(|name| find.locate(name).is_some());
    let state = if by_model { &job.columns.names } else { &job.columns.state };
    let variables = find.list("state", state, Column::State(0))?;
    if job.want == Want::States && (by_model || job.columns.names_any()) {
        if variables.is_empty() {
            find.implied();
        }
        return find.finish(Vec::new(), true);
    }
    let own_states = sources.iter().any(|s| matches!(own(job.format, &s.name), Some(Column::State(_))));
    let foreign = job.columns.names_any() || (!own_states && find.has_states()) || job.format == Format::Hdf5;
    let sums = find.named(&variables)?;
    find.rest(foreign, !variables.is_empty())?;
    find.finish(sums, foreign)
}

struct Finder<'a> {
    format: Format,
    want: Want,
    sources: &'a [Source],
    columns: &'a Columns,
    of: Vec<Vec<Role>>,
    terms: Vec<Variable>,
    conditions: Vec<Condition>,
}

impl Finder<'_> {
    fn names(&self) -> Vec<&str> {
        self.sources.iter().map(|s| s.name.as_str()).collect()
    }

    /// What the user says that `done` means.
    fn done(&self) -> Option<Done> {
        match self.want {
            Want::Transitions(reading) => reading.done,
            Want::States | Want::Look | Want::Keep => None,
        }
    }

    fn place(&self, name: &str) -> Option<usize> {
        let name = composed(name);
        self.sources.iter().position(|s| composed(&s.name) == name)
    }

    /// The source that the user names, and which of its numbers.
    fn variable(&self, option: &str, name: &str) -> Result<(usize, Option<usize>), Fault> {
        let Some((at, only)) = self.locate(name) else {
            return Err(Fault::column(name, format!("{option}: {}", missing(name, &self.names()))));
        };
        self.only_one(at).map(|()| (at, only))
    }

    /// The first source of this name, and which of its numbers.
    fn locate(&self, name: &str) -> Option<(usize, Option<usize>)> {
        if let Some(at) = self.place(name) {
            return Some((at, None));
        }
        let (base, k) = name.strip_suffix(']')?.rsplit_once('[')?;
        Some((self.place(base)?, Some(k.parse().ok()?)))
    }

    /// Whether no other source has the name of this one.
    fn only_one(&self, at: usize) -> Result<(), Fault> {
        let name = &self.sources[at].name;
        let alike = |source: &Source| composed(&source.name) == composed(name);
        match self.sources.iter().skip(at + 1).position(alike) {
            None => Ok(()),
            Some(further) => {
                let (one, other) = (at + 1, at + further + 2);
                let forms = if self.sources[other - 1].name == *name { "" } else { " in two forms of Unicode" };
                let message =
                    format!("two columns have this name{forms}, number {one} and number {other}; rename one of them");
                Err(Fault::column(name, message))
            }
        }
    }

    /// Give several sources the numbers of one vector, in their order; where they are.
    fn list(&mut self, option: &str, names: &[String], first: Column) -> Result<Vec<(usize, Option<usize>)>, Fault> {
        let (mut found, mut count) = (Vec::new(), 0);
        for name in names {
            let (at, only) = self.variable(option, name)?;
            if found.contains(&(at, only)) {
                return Err(Fault::column(name, format!("{option} names it twice")));
            }
            let role = Role::part(first.from(count).unwrap_or(first), only);
            count += self.sources[at].numbers(role);
            self.of[at].push(role);
            found.push((at, only));
        }
        Ok(found)
    }

    /// Whether some column is a state by the name that others give it.
    fn has_states(&self) -> bool {
        let state = |s: &Source| matches!(alias(&s.name, s.width.is_some()), Some(Column::State(_)));
        self.sources.iter().any(|s| state(s) && !self.unnumbered(s))
    }

    /// A column `state` that holds one number, in a format with one column for each: our own name lacks its number.
    fn unnumbered(&self, source: &Source) -> bool {
        source.width.is_none()
            && matches!(self.format, Format::Csv | Format::Parquet)
            && matches!(source.name.as_str(), "state" | "next_state" | "states" | "next_states")
    }

    /// Columns that the user names, but for the state; the rewards that are sums.
    fn named(&mut self, variables: &[(usize, Option<usize>)]) -> Result<Vec<Reckoned>, Fault> {
        let columns = self.columns;
        self.successors(variables)?;
        self.list("action", &columns.action, Column::Action(0))?;
        let one = [
            ("episode", &columns.episode, Column::Episode),
            ("time", &columns.time, Column::Order),
            ("terminated", &columns.terminated, Column::Terminated),
            ("truncated", &columns.truncated, Column::Truncated),
            ("done", &columns.done, Column::Done),
            ("discount", &columns.discount, Column::Discount),
        ];
        for (option, name, column) in one {
            if let Some(name) = name {
                let condition = self.condition(option, name, column)?;
                let named = condition.map_or(name, |k| &self.conditions[k].column).clone();
                let (at, only) = self.variable(option, &named)?;
                self.of[at].push(Role { column, only, condition });
            }
        }
        let mut sums = Vec::new();
        for (k, text) in columns.reward.iter().enumerate() {
            if columns.reward[..k].contains(text) {
                return Err(Fault::column(text, "reward names it twice"));
            }
            let names = self.names();
            let sum = Sum::parse(text, &names).map_err(|why| {
                let what = match why {
                    NotASum::Unknown(name) => missing(&name, &names),
                    NotASum::Grammar(what) => what,
                };
                Fault::Column { column: text.clone(), message: format!("reward: {what}") }
            })?;
            let mut reckoned = Reckoned { text: text.clone(), constant: sum.constant, terms: Vec::new() };
            for (factor, variable) in sum.terms {
                reckoned.terms.push((factor, self.term(variable)?));
            }
            sums.push(reckoned);
        }
        Ok(sums)
    }

    /// Number of the condition that a text is, where an end is wanted and no column is called so.
    fn condition(&mut self, option: &str, text: &str, column: Column) -> Result<Option<usize>, Fault> {
        if !column.is_end() || self.locate(text).is_some() {
            return Ok(None);
        }
        let Some(condition) = Condition::parse(text) else { return Ok(None) };
        let condition = condition.map_err(|what| Fault::column(text, format!("{option}: {what}")))?;
        if self.format.has_arrays() {
            return Err(Fault::column(text, format!("{option}: conditions are for columns; make an array of flags")));
        }
        self.conditions.push(condition);
        Ok(Some(self.conditions.len() - 1))
    }

    /// Number of a part of a reward.
    fn term(&mut self, variable: Variable) -> Result<usize, Fault> {
        if let Some(known) = self.terms.iter().position(|term| *term == variable) {
            return Ok(known);
        }
        let at = self.place(&variable.name).expect("the sum was read over these names");
        self.only_one(at)?;
        let only = variable.only;
        if self.sources[at].width.is_some_and(|width| width != 1) && only.is_none() {
            let message = format!("reward: a list; name one of its numbers: {}[0]", variable.name);
            return Err(Fault::Column { column: variable.name, message });
        }
        self.of[at].push(Role::part(Column::Term(self.terms.len()), only));
        self.terms.push(variable);
        Ok(self.terms.len() - 1)
    }

    /// The successors of states that the user names: by name, by prefix, or beside arrays of states the arrays of successors.
    fn successors(&mut self, variables: &[(usize, Option<usize>)]) -> Result<(), Fault> {
        let columns = self.columns;
        if !columns.next_state.is_empty() {
            return self.list("next_state", &columns.next_state, Column::NextState(0)).map(drop);
        }
        let states: Vec<(usize, Option<usize>)> = if variables.is_empty() {
            let is_state = |s: &Source| match own(self.format, &s.name).or(alias(&s.name, s.width.is_some())) {
                Some(Column::State(k)) => Some(k),
                _ => None,
            };
            let mut states: Vec<(usize, usize)> =
                self.sources.iter().enumerate().filter_map(|(at, s)| Some((is_state(s)?, at))).collect();
            states.sort_unstable();
            states.into_iter().map(|(_, at)| (at, None)).collect()
        } else {
            variables.to_vec()
        };
        let prefix = match &columns.next_prefix {
            Some(prefix) => prefix.as_str(),
            None if variables.is_empty() => return Ok(()),
            None => "next_",
        };
        let name = |&(at, only): &(usize, Option<usize>)| {
            let name = format!("{prefix}{}", self.sources[at].name);
            only.map_or(name.clone(), |k| format!("{name}[{k}]"))
        };
        let names: Vec<String> = states.iter().map(name).collect();
        let there = |name: &String| self.locate(name).is_some();
        if columns.next_prefix.is_some() || names.iter().any(there) {
            return self.list("next_prefix", &names, Column::NextState(0)).map(drop);
        }
        // Numbers of one array of states: the same ones of the array of successors.
        let &(first, _) = &states[0];
        let arrays = self.sources[first].width.is_some() && states.iter().all(|(at, _)| *at == first);
        let is_next = |s: &Source| s.width.is_some() && alias(&s.name, true) == Some(Column::NextState(0));
        if let Some(at) = self.sources.iter().position(is_next).filter(|_| arrays) {
            let mut count = 0;
            for (_, only) in states {
                let role = Role::part(Column::NextState(count), only);
                count += self.sources[at].numbers(role);
                self.of[at].push(role);
            }
        }
        Ok(())
    }

    /// States by name.
    fn implied(&mut self) {
        for (source, roles) in self.sources.iter().zip(&mut self.of) {
            let column = own(self.format, &source.name).or_else(|| alias(&source.name, source.width.is_some()));
            if let Some(column @ Column::State(_)) = column.filter(|_| !self.columns.ignore.contains(&source.name)) {
                roles.push(Role::whole(column));
            }
        }
    }

    /// Sources that the user has not named. `foreign`: what is not known is left alone.
    fn rest(&mut self, foreign: bool, states_named: bool) -> Result<(), Fault> {
        let columns = self.columns;
        let said = |column: Column| match column {
            Column::State(_) => states_named,
            Column::NextState(_) => states_named || !columns.next_state.is_empty() || columns.next_prefix.is_some(),
            Column::Action(_) => !columns.action.is_empty(),
            Column::Reward(_) => !columns.reward.is_empty(),
            Column::Episode => columns.episode.is_some(),
            Column::Terminated | Column::Truncated | Column::Done | Column::Absorbing => {
                columns.terminated.is_some() || columns.truncated.is_some() || columns.done.is_some()
            }
            Column::Discount => columns.discount.is_some(),
            _ => false,
        };
        let mut unknown = Vec::new();
        for at in 0..self.sources.len() {
            let source = &self.sources[at];
            if !self.of[at].is_empty() || columns.ignore.contains(&source.name) {
                continue;
            }
            let list = source.width.is_some();
            let named = own(self.format, &source.name);
            let other = |column: &Column| foreign || !self.shadowed(source, *column);
            let column = source.of_trajectories.or(named).or_else(|| alias(&source.name, list).filter(other));
            match column {
                Some(column) if foreign && said(column) => {}
                Some(column) => self.of[at].push(Role::whole(column)),
                None => unknown.push(at),
            }
        }
        self.check_unknown(&unknown, foreign)?;
        self.settle_ends(foreign);
        Ok(())
    }

    /// Whether our own names are used, and this alias of one of them is a slip or says something twice.
    fn shadowed(&self, source: &Source, column: Column) -> bool {
        let same = |other: Column| std::mem::discriminant(&other) == std::mem::discriminant(&column);
        matches!(source.name.as_str(), "states" | "next_states" | "rewards" | "actions" | "discounts")
            || self.unnumbered(source)
            || self.sources.iter().any(|s| own(self.format, &s.name).is_some_and(same))
    }

    fn check_unknown(&self, unknown: &[usize], foreign: bool) -> Result<(), Fault> {
        let format = self.format;
        for &at in unknown {
            let name = &self.sources[at].name;
            if foreign {
                let lower = name.to_lowercase();
                let reach = if lower.len() >= 8 { 2 } else { usize::from(lower.len() >= 4) };
                let ends_named = self.columns.terminated.is_some() || self.columns.done.is_some();
                if let Some(end) =
                    ENDS.iter().find(|end| strsim::levenshtein(&lower, end) <= reach).filter(|_| !ends_named)
                {
                    let message = format!("not known; did you mean {end}? If not, ignore it: --ignore {name}");
                    return Err(Fault::column(name, message));
                }
                continue;
            }
            let told = if format == Format::Npz { names::array_hint(name) } else { names::hint(name) };
            let states = self.of.iter().flatten().any(|role| matches!(role.column, Column::State(_)));
            let plain = told.starts_with("not known; put an underscore");
            if plain && !states && self.want != Want::States {
                let others: Vec<&str> = unknown.iter().map(|&at| self.sources[at].name.as_str()).collect();
                let missing = if matches!(format, Format::Csv | Format::Parquet) {
                    "state_0"
                } else {
                    format.name(Column::State(0))
                };
                let message = format!(
                    "missing; say which columns are the state, such as --state {}, and what the reward is, such as \
                     --reward=-cost (not known are {})",
                    others.iter().take(2).copied().collect::<Vec<_>>().join(","),
                    others.iter().take(24).copied().collect::<Vec<_>>().join(", ")
                );
                return Err(Fault::column(missing, message));
            }
            let known: Vec<&str> = ALIASES.iter().flat_map(|(_, names)| names.iter().copied()).collect();
            let near = nearest(name, &known).filter(|_| plain).map(|near| format!("; did you mean {near}?"));
            return Err(Fault::column(name, told + &near.unwrap_or_default()));
        }
        Ok(())
    }

    /// Where several columns say how episodes end, what each of them means.
    fn settle_ends(&mut self, foreign: bool) {
        let has = |finder: &Self, column: Column| finder.of.iter().flatten().any(|role| role.column == column);
        let recorded = has(self, Column::Last) || has(self, Column::Absorbing);
        let next = has(self, Column::NextState(0));
        let (terminated, truncated) = (has(self, Column::Terminated), has(self, Column::Truncated));
        let done = self.done();
        let discount_named = self.columns.discount.is_some();
        let episodes = has(self, Column::Episode);
        for role in self.of.iter_mut().flatten() {
            role.column = match role.column {
                // With successors of its own a row that is terminal is one that leads there.
                Column::Absorbing if next => Column::Terminated,
                Column::Last if next => Column::Skipped,
                // RLDS' discount is 0 or 1, and is multiplied by the learner's own.
                Column::Discount if recorded && !discount_named => Column::Skipped,
                // The three together: `done` is either of the others.
                Column::Done if foreign && terminated && truncated && done.is_none() => Column::Skipped,
                Column::Done if foreign && terminated && done.is_none() => Column::EndedOtherwise,
                Column::Done if !terminated && truncated && done.is_none() => Column::EndedItself,
                Column::Done if recorded && done.is_none() => Column::Skipped,
                Column::Frame if !episodes => Column::Skipped,
                column => column,
            };
        }
    }

    fn finish(mut self, sums: Vec<Reckoned>, foreign: bool) -> Result<Roles, Fault> {
        let columns = self.columns;
        let states_alone = self.want == Want::States && foreign;
        for roles in &mut self.of {
            roles.retain(|role| match role.column {
                Column::Skipped => false,
                Column::State(_) => true,
                _ => !states_alone,
            });
        }
        let ignored = (0..self.of.len()).filter(|&at| self.of[at].is_empty());
        let ignored = ignored.map(|at| self.sources[at].name.clone());
        let ignored: Vec<String> = ignored.filter(|name| !name.is_empty()).collect();
        let mut variables: Vec<(usize, String)> = Vec::new();
        for (source, roles) in self.sources.iter().zip(&self.of) {
            for role in roles.iter().filter(|role| matches!(role.column, Column::State(_))) {
                for (name, column, _) in source.spread(*role, self.format)? {
                    if let Column::State(k) = column {
                        variables.push((k, name));
                    }
                }
            }
        }
        variables.sort();
        let dim = variables.len();
        for (what, given) in [("names", &columns.names), ("units", &columns.units)] {
            let of_model = what == "names" && self.want == Want::States;
            if !given.is_empty() && given.len() != dim && !of_model {
                let message = format!("there are {}, and {dim} state variables; give one for each", given.len());
                return Err(Fault::column(what, message));
            }
        }
        let mut given = columns.names.iter().enumerate();
        if let Some((_, twice)) =
            given.find(|(k, name)| columns.names[..*k].iter().any(|other| composed(other) == composed(name)))
        {
            return Err(Fault::column(
                "names",
                format!("two variables are called {twice}; give each a name of its own"),
            ));
        }
        let names = match () {
            () if !columns.names.is_empty() => Some(columns.names.clone()),
            () if !columns.state.is_empty() => {
                Some(variables.into_iter().map(|(_, name)| name.replace("[:, ", "[")).collect())
            }
            () => None,
        };
        let units = (!columns.units.is_empty()).then(|| columns.units.clone());
        let roles = self.say(&sums);
        let watched = self.watch();
        let (reward_names, action_names) = (columns.reward_names(), columns.action_names());
        let understood = Understood { roles, ignored, foreign, names, units, reward_names, action_names };
        let placed = self.sources.iter().any(|s| matches!(s.name.as_str(), "offset" | "offsets"));
        Ok(Roles { of: self.of, sums, conditions: self.conditions, watched, placed, understood })
    }

    /// Look at the columns that nothing needs, where rows lead to the next ones and no column tells episodes apart. Their names.
    fn watch(&mut self) -> Vec<String> {
        let has = |of: &[Vec<Role>], fits: fn(Column) -> bool| of.iter().flatten().any(|role| fits(role.column));
        let follows = matches!(self.want, Want::Transitions(reading) if !reading.independent && !reading.keep_all)
            && !has(&self.of, |c| {
                matches!(c, Column::NextState(_) | Column::Episode | Column::StartsChain | Column::Session)
            });
        let mut watched = Vec::new();
        if !follows || self.format.has_arrays() {
            return watched;
        }
        for (source, roles) in self.sources.iter().zip(&mut self.of) {
            let said = self.columns.ignore.contains(&source.name) || source.name.is_empty();
            if roles.is_empty() && source.width.is_none() && !said && watched.len() < WATCHED_MAX {
                roles.push(Role::whole(Column::Watched(watched.len())));
                watched.push(source.name.clone());
            }
        }
        watched
    }

    /// What is where, in words.
    fn say(&self, sums: &[Reckoned]) -> Vec<(&'static str, String)> {
        let done = self.done();
        let mut said: Vec<(&'static str, String)> = Vec::new();
        let kinds: [Kind; 16] = [
            ("stream", |c| c == Column::Stream),
            ("policy", |c| c == Column::Policy),
            ("episode", |c| c == Column::Episode),
            ("trajectories", |c| c == Column::Cuts),
            ("time", |c| c == Column::Order),
            ("state", |c| matches!(c, Column::State(_))),
            ("next state", |c| matches!(c, Column::NextState(_))),
            ("action", |c| matches!(c, Column::Action(_))),
            ("reward", |c| matches!(c, Column::Reward(_))),
            ("terminated", |c| c == Column::Terminated),
            ("truncated", |c| c == Column::Truncated),
            ("done", |c| matches!(c, Column::Done | Column::EndedItself | Column::EndedOtherwise)),
            ("terminal state", |c| c == Column::Absorbing),
            ("last of its episode", |c| c == Column::Last),
            ("first of its episode", |c| c == Column::StartsChain),
            ("discount", |c| c == Column::Discount),
        ];
        for (what, fits) in kinds {
            let mut found: Vec<(usize, usize)> = Vec::new();
            for (at, roles) in self.of.iter().enumerate() {
                found.extend(roles.iter().filter(|role| fits(role.column)).map(|role| (role.column.number(), at)));
            }
            found.sort_unstable();
            let name = |&(k, at): &(usize, usize)| {
                let source = &self.sources[at];
                let role = self.of[at].iter().find(|role| fits(role.column) && role.column.number() == k);
                if let Some(k) = role.and_then(|role| role.condition) {
                    return self.conditions[k].text.clone();
                }
                match (source.width, role.and_then(|role| role.only)) {
                    (Some(_), Some(k)) => format!("{}[{k}]", source.name),
                    (Some(width), None) => format!("{} ({width} numbers)", source.name),
                    (None, _) => source.name.clone(),
                }
            };
            let mut text = found.iter().map(name).collect::<Vec<_>>().join(", ");
            if what == "reward" && !sums.is_empty() {
                text = sums.iter().map(|sum| sum.text.as_str()).collect::<Vec<_>>().join(", ");
            }
            let cut = self.of.iter().flatten().any(|role| role.column == Column::Cuts);
            if what == "next state" && cut {
                text = "the state behind it: each trajectory has one more than rows".into();
            }
            if what == "next state" && text.is_empty() && self.want != Want::States {
                text =
                    "the state of the next row; the last row of an episode gives only its state, unless it terminated"
                        .into();
            }
            if what == "done" && !text.is_empty() {
                let all = || self.of.iter().flatten();
                text += match done {
                    _ if all().any(|role| role.column == Column::EndedItself) => ": terminated, unless truncated",
                    _ if all().any(|role| role.column == Column::EndedOtherwise) => ": truncated, unless terminated",
                    Some(Done::Terminated) => ": terminated, as --done says",
                    Some(Done::Truncated) => ": truncated, as --done says",
                    None => "",
                };
            }
            if !text.is_empty() {
                said.push((what, text));
            }
        }
        said
    }
}
