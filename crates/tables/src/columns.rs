//! The meaning of a table's columns.

use criticd_learner::math::embedding::StateKind;
use criticd_learner::transition::state_name;
use serde::{Deserialize, Serialize};
use std::hash::{Hash, Hasher};

/// Letters of a reward's name, as in the settings of the daemon.
const NAME_MAX: usize = 64;

/// What to do with a row that lacks a number which is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missing {
    /// Refuse the table.
    #[default]
    Refuse,
    /// Leave the row out: chains are cut there.
    Drop,
    /// Repeat the last number of the state variable in the episode; leave the row out where there is none, or where the reward is missing.
    Hold,
}

/// Which columns hold what, where their names do not say. What is empty is looked for under its own name and the names that
/// other programs give it. A column is named as it is in the file; `name[k]` is one number of a column that holds lists,
/// counted from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Columns {
    /// The state variables, in order. If any is named, columns that nothing needs are left alone.
    pub state: Vec<String>,
    /// The successor's variables, one for each of the state's; empty: see `next_prefix`.
    pub next_state: Vec<String>,
    /// What stands before a state variable's name in its successor's name. None: `next_`, if the table has such columns.
    pub next_prefix: Option<String>,
    /// The numbers of the action, in order.
    pub action: Vec<String>,
    /// Rewards: columns, or sums of them such as `-cost` or `reward - 0.1*energy`.
    pub reward: Vec<String>,
    /// Where it changes, another episode begins.
    pub episode: Option<String>,
    /// Rising within an episode: numbers, or times as ISO 8601 writes them.
    pub time: Option<String>,
    /// Flag: the successor is absorbing. A condition may stand in the place of a flag: `outcome == arrived`, `soc < 5`.
    pub terminated: Option<String>,
    /// Flag or condition: the episode was cut off from outside.
    pub truncated: Option<String>,
    /// Flag or condition: the episode ended, in one of the two ways.
    pub done: Option<String>,
    /// Discount of each row, in \[0, 1\].
    pub discount: Option<String>,
    /// Columns to leave alone, whatever they are called.
    pub ignore: Vec<String>,
    /// What to call the state variables; empty: as their columns, if those were named.
    pub names: Vec<String>,
    /// Their units.
    pub units: Vec<String>,
    /// What to do with rows that lack a number.
    pub missing: Missing,
    /// The format, where the name of the file does not tell it: csv, jsonl, npz, parquet or hdf5.
    pub format: Option<String>,
    /// The texts of the state variables that hold texts, and behind them the action's.
    #[serde(skip_serializing_if = "Categories::is_empty")]
    pub categories: Categories,
}

/// Of each state variable (D,) the texts that are its categories, in the order of their codes 0, 1, ...; nothing of one that holds
/// numbers. Where actions are texts, a list of these stands behind. Empty where no variable holds texts, or they are taken as they come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Categories(pub Vec<Vec<String>>);

impl Hash for Categories {
    /// Nothing, where there are none: what was told apart before they came is told apart as it was.
    fn hash<H: Hasher>(&self, state: &mut H) {
        if !self.is_empty() {
            self.0.hash(state);
        }
    }
}

impl Categories {
    /// Whether no variable holds texts.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The texts of variable d in the order of their codes; none if it holds numbers.
    pub fn of(&self, d: usize) -> &[String] {
        self.0.get(d).map_or(&[], Vec::as_slice)
    }

    /// The text that variable d has where its number is `code`; none if it holds numbers.
    pub fn text(&self, d: usize, code: f64) -> Option<&str> {
        let at = (0..self.of(d).len()).find(|&k| k as f64 == code)?;
        Some(&self.of(d)[at])
    }

    /// The code of a text of variable d.
    ///
    /// # Errors
    /// Which texts there are, if it is none of them.
    pub fn code(&self, d: usize, text: &str) -> Result<f64, String> {
        let at = self.of(d).iter().position(|known| known == text);
        at.map(|at| at as f64).ok_or_else(|| self.unknown(d, text))
    }

    /// What `dim` variables are, as far as texts say; nothing where none holds texts.
    pub fn kinds(&self, dim: usize) -> Vec<StateKind> {
        let mut kinds = Vec::new();
        for d in (0..dim).filter(|&d| !self.of(d).is_empty()) {
            kinds.resize(dim, StateKind::Real);
            kinds[d] = StateKind::Category;
        }
        kinds
    }

    /// The texts of `dim` variables, where the further ones hold numbers.
    pub fn widened(&self, dim: usize) -> Self {
        let mut wide = self.clone();
        if !self.is_empty() {
            wide.0.resize(dim, Vec::new());
        }
        wide
    }

    /// Of each variable these texts, and where there are none, the ones that `other` has.
    fn or(mut self, other: Self) -> Self {
        self.0.resize(self.0.len().max(other.0.len()), Vec::new());
        for (ours, theirs) in self.0.iter_mut().zip(other.0).filter(|(ours, _)| ours.is_empty()) {
            *ours = theirs;
        }
        self
    }

    /// The codes of the texts, in words: of `dim` state variables with these names, if they have any, and of the action behind them.
    pub(super) fn said(&self, names: Option<&[String]>, dim: usize) -> Option<String> {
        let name = |d: usize| match names.and_then(|names| names.get(d)) {
            Some(name) => name.clone(),
            None if d < dim => state_name(d),
            None => "action".to_owned(),
        };
        let of = |d: usize| {
            let codes: Vec<String> =
                self.of(d).iter().enumerate().map(|(code, text)| format!("{text} {code}")).collect();
            (!codes.is_empty()).then(|| format!("{}: {}", name(d), codes.join(", ")))
        };
        let said: Vec<String> = (0..self.0.len()).filter_map(of).collect();
        (!said.is_empty()).then(|| said.join("; "))
    }

    /// A further text of variable d of at least `dim`; its code.
    pub(super) fn push(&mut self, d: usize, dim: usize, text: String) -> usize {
        self.0.resize(dim.max(self.0.len()), Vec::new());
        self.0[d].push(text);
        self.0[d].len() - 1
    }
}

impl Columns {
    /// A file in TOML with these keys; one name may stand for a list of one.
    ///
    /// # Errors
    /// Where the text is not such a file.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        let mut file: toml::Table = text.parse().map_err(|e: toml::de::Error| e.to_string())?;
        for key in ["state", "next_state", "action", "reward", "ignore", "names", "units"] {
            if let Some(value) = file.get_mut(key).filter(|value| value.is_str()) {
                *value = toml::Value::Array(vec![value.clone()]);
            }
        }
        file.try_into().map_err(|e: toml::de::Error| e.to_string().trim_end().to_owned())
    }

    /// These, where they say something, and else what `other` says.
    pub fn or(self, other: Self) -> Self {
        let list = |ours: Vec<String>, others| if ours.is_empty() { others } else { ours };
        Self {
            state: list(self.state, other.state),
            next_state: list(self.next_state, other.next_state),
            next_prefix: self.next_prefix.or(other.next_prefix),
            action: list(self.action, other.action),
            reward: list(self.reward, other.reward),
            episode: self.episode.or(other.episode),
            time: self.time.or(other.time),
            terminated: self.terminated.or(other.terminated),
            truncated: self.truncated.or(other.truncated),
            done: self.done.or(other.done),
            discount: self.discount.or(other.discount),
            ignore: list(self.ignore, other.ignore),
            names: list(self.names, other.names),
            units: list(self.units, other.units),
            missing: if self.missing == Missing::Refuse { other.missing } else { self.missing },
            format: self.format.or(other.format),
            categories: self.categories.or(other.categories),
        }
    }

    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a column is named that lies in a group.
    #[cfg(feature = "hdf5")]
    pub(super) fn names_within(&self) -> bool {
        let lists = [&self.state, &self.next_state, &self.action, &self.reward];
        let one = [&self.episode, &self.time, &self.terminated, &self.truncated, &self.done, &self.discount];
        lists.into_iter().flatten().chain(one.into_iter().flatten()).any(|name| name.contains('/'))
    }

    /// What the rewards are called: the columns or sums that name them; none where those say no more than "reward", or are no names.
    pub fn reward_names(&self) -> Option<Vec<String>> {
        let names: Vec<String> = self.reward.iter().map(|text| text.trim().to_owned()).collect();
        let says = |(k, name): (usize, &String)| {
            let fits = (1..=NAME_MAX).contains(&name.chars().count());
            fits && !matches!(name.as_str(), "reward" | "rewards") && !names[..k].contains(name)
        };
        (!names.is_empty() && names.iter().enumerate().all(says)).then_some(names)
    }

    /// What the numbers of an action are called: the columns that name them, where those are several and no parts of lists.
    pub(super) fn action_names(&self) -> Option<Vec<String>> {
        (self.action.len() > 1 && !self.action.iter().any(|name| name.contains('['))).then(|| self.action.clone())
    }

    /// Whether a column is named: what is not needed is left alone then.
    pub(super) fn names_any(&self) -> bool {
        let Self { names, units, missing, format, categories, .. } = self.clone();
        *self != Self { names, units, missing, format, categories, ..Self::default() }
    }
}

/// What was understood of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Understood {
    /// What there is, and which columns hold it: ("state", "x, y, battery") and the like.
    pub roles: Vec<(&'static str, String)>,
    /// Columns that were left alone.
    pub ignored: Vec<String>,
    /// Whether names of other programs, or of the user, were understood: it is worth saying then what was.
    pub foreign: bool,
    /// What the state variables are called (D,), if that is known.
    pub names: Option<Vec<String>>,
    /// Their units (D,), if they are known.
    pub units: Option<Vec<String>>,
    /// What the rewards are called (H,), where they were named and that says more than "reward".
    pub reward_names: Option<Vec<String>>,
    /// The columns that were named as the numbers of an action (A,), if they are several.
    pub action_names: Option<Vec<String>>,
}

/// What is in a table, for people to check.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Rows of the file.
    pub rows: usize,
    /// The rows that are exact copies of others, and are left out.
    pub copies: usize,
    /// Those that lack a number, and are left out.
    pub dropped: usize,
    /// Transitions; the other rows give only their states, as successors of the rows before them.
    pub transitions: usize,
    /// Episodes, or where the table has none, chains of transitions.
    pub episodes: usize,
    /// How episodes end: terminated, truncated, cut (neither: the table goes on elsewhere or ends).
    pub ends: [usize; 3],
    /// From where to where each state variable goes (D,).
    pub states: Vec<[f64; 2]>,
    /// The same of each reward (H,).
    pub rewards: Vec<[f64; 2]>,
    /// The same of each number of the action (A,).
    pub actions: Vec<[f64; 2]>,
}
