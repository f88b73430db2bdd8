//! Heads at run time: their list, their changes, and the progress of those that came late.
//!
//! A change holds once it is recorded. A rebuild of the critic learns the new heads and takes the critic's place when it has learned
//! the retained rows. Without a journal a refit learns them.

use super::Core;
use super::caller::Caller;
use super::ports::Output;
use crate::board::LearningHeads;
use crate::config::HEADS_MAX;
use crate::learner::heads::{self, Bank, Columns, Demands, Head};
use crate::learner::window::Window;
use crate::learner::{HeadsChange, Learner};
use crate::math::kernel::NoiseModel;
use crate::state::State;
use crate::state::record::Record;
use crate::transition::ACTION_NUMBERS_MAX;
use crate::transport::Reply;
use crate::wire::status::{HeadsStatus, VerifiedHead};
use crate::wire::{self, ErrorCode, HEADS_PER_PAGE, HeadForm, ListedHead, VerdictForm, WireError};
use std::collections::{HashMap, HashSet};

/// Heads that `status` names.
const WORST: usize = 10;

/// What `status` says of the heads of a critic; none if there are none.
pub(super) fn status(learner: &Learner) -> Option<HeadsStatus> {
    let count = learner.settings().heads.len() as u64;
    let bank = learner.model().and_then(|model| model.heads());
    (count > 0).then(|| HeadsStatus {
        count,
        added: learner.added_heads().len() as u64,
        learning: learner.missing_heads() as u64,
        groups: bank.map_or(0, |bank| bank.groups() as u64),
        bytes: bank.map_or(0, |bank| bank.bytes() as u64),
        ..bank.map(verified).unwrap_or_default()
    })
}

/// How well the returns of heads are predicted: how many were verified enough, and those whose intervals are worst.
fn verified(bank: &Bank) -> HeadsStatus {
    let coverage = bank.coverage();
    let mut known: Vec<(usize, f64)> =
        coverage.iter().enumerate().filter_map(|(h, share)| Some((h, (share.as_ref()? - 0.9).abs()))).collect();
    let verified = known.len() as u64;
    known.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let of = |&(h, _): &(usize, f64)| {
        let verdict = bank.verdict(h)?;
        Some(VerifiedHead {
            name: bank.heads()[h].name.clone(),
            pairs: verdict.pairs as u64,
            coverage: verdict.coverage,
            bias: verdict.bias,
            unexplained: verdict.unexplained,
            factor: verdict.factor,
        })
    };
    HeadsStatus { verified, worst: known.iter().take(WORST).filter_map(of).collect(), ..HeadsStatus::default() }
}

/// The first retained row that lacks a field that heads need, in words; none if all rows have them.
pub(super) fn lacking(window: Option<&Window>, demands: &Demands) -> Option<String> {
    let window = window?;
    window.since(window.start()).find_map(|(rows, range, offset)| {
        let (i, what) = demands.lacking(rows, range.clone())?;
        Some(format!("row {}, which is retained, has no {what}", offset + (i - range.start) as u64))
    })
}

/// The demands of the heads of all critics on a row.
pub(super) fn demands(state: &State) -> Demands {
    Demands::of(state.critics().iter().flat_map(|learner| &learner.settings().heads))
}

impl Core {
    /// The heads of a critic: those that are named, or one page of all.
    pub(super) fn list_heads(
        &self,
        critic: Option<&str>,
        names: Option<&[String]>,
        from: u64,
        caller: &Caller,
    ) -> Result<Reply, WireError> {
        let index = self.publisher.board().critic(critic)?;
        let learner = &self.state.critics()[index];
        let missing: HashSet<String> = learner.names_of_missing_heads().into_iter().collect();
        let added: HashSet<&str> = learner.added_heads().iter().map(String::as_str).collect();
        let share = self.rebuilds.share(&learner.settings().name);
        let bank = learner.model().and_then(|model| model.heads());
        let numbers: HashMap<&str, usize> =
            bank.iter().flat_map(|bank| bank.heads()).map(|head| head.name.as_str()).zip(0..).collect();
        let verdict = |head: &Head| bank?.verdict(*numbers.get(head.name.as_str())?);
        let listed = |head: &Head| ListedHead {
            form: HeadForm::from(head),
            added: added.contains(head.name.as_str()),
            learning: missing.contains(&head.name).then_some(share),
            verified: verdict(head).map(VerdictForm::from),
        };
        let all = &learner.settings().heads;
        let (heads, next): (Vec<ListedHead>, Option<u64>) = match names {
            Some(names) => {
                let names: HashSet<&str> = names.iter().map(String::as_str).collect();
                (all.iter().filter(|head| names.contains(head.name.as_str())).map(listed).collect(), None)
            }
            None => {
                let first = usize::try_from(from).unwrap_or(usize::MAX).min(all.len());
                let end = all.len().min(first + HEADS_PER_PAGE);
                (all[first..end].iter().map(listed).collect(), (end < all.len()).then_some(end as u64))
            }
        };
        Ok(caller.reply(&wire::Reply::Heads { heads: &heads, next }))
    }

    /// Remove heads of a critic and add others. The caller gets the answer when the change is stored.
    pub(super) fn change_heads(
        &mut self,
        critic: Option<&str>,
        add: Vec<HeadForm>,
        remove: Vec<String>,
        caller: &Caller,
    ) -> Result<(), WireError> {
        self.check_writable()?;
        let index = self.publisher.board().critic(critic)?;
        let settings = self.state.critics()[index].settings();
        let discount = settings.discount;
        let add = add.into_iter().enumerate().map(|(i, form)| {
            form.head(discount)
                .map_err(|what| WireError::of(ErrorCode::OutOfRange, "add", format!("heads[{i}]: {what}")))
        });
        let add = add.collect::<Result<Vec<Head>, WireError>>()?;
        let change = HeadsChange { critic: settings.name.clone(), remove, add };
        if self.intake.is_stored_since(&change) && is_in_force(&self.state.critics()[index], &change) {
            let offset = self.state.end().offset;
            self.out.push(Output::Reply(caller.reply(&wire::Reply::ChangeHeads { offset })));
            return Ok(());
        }
        self.check_change(index, &change.add, &change.remove)?;
        let HeadsChange { critic, remove, add } = change;
        let demands = Demands::of(&add);
        if let Some(what) = lacking(self.state.window(), &demands).or_else(|| self.intake.lacking(&demands)) {
            let message = format!("{what}, which these heads ask for");
            return Err(WireError::of(ErrorCode::OutOfRange, "add", message));
        }
        log::info!("event=heads_changed critic={critic} added={} removed={}", add.len(), remove.len());
        // A client that hears of the change may ask for them at once.
        let mut learning = (*self.publisher.board().learning(index)).clone();
        learning.names.extend(add.iter().map(|head| head.name.clone()));
        self.publisher.board().set_learning(index, learning);
        self.intake.demand(&demands);
        self.intake.change_heads(HeadsChange { critic, remove, add }, caller.clone());
        Ok(())
    }

    /// Whether a critic may change its heads so.
    fn check_change(&self, index: usize, add: &[Head], remove: &[String]) -> Result<(), WireError> {
        let learner = &self.state.critics()[index];
        let settings = learner.settings();
        let fault = |field, message: String| Err(WireError::of(ErrorCode::OutOfRange, field, message));
        if settings.action_value.is_some() {
            return fault("add", "heads are for inputs = \"state\": give them to a critic of their own".to_owned());
        }
        if settings.noise == NoiseModel::White {
            return fault("add", "heads are for noise = \"correlated\": white noise has no returns".to_owned());
        }
        let mut names: HashSet<String> = settings.heads.iter().map(|head| head.name.clone()).collect();
        let mut added: HashSet<String> = learner.added_heads().iter().cloned().collect();
        for change in self.intake.changes_of_heads(&settings.name) {
            for name in &change.remove {
                names.remove(name);
                added.remove(name);
            }
            names.extend(change.add.iter().map(|head| head.name.clone()));
            added.extend(change.add.iter().map(|head| head.name.clone()));
        }
        for (i, name) in remove.iter().enumerate() {
            let critic = &settings.name;
            if !names.remove(name) {
                return Err(WireError::of(
                    ErrorCode::OutOfRange,
                    "remove",
                    format!("critic \"{critic}\" has no head \"{name}\""),
                )
                .at(i));
            }
            if !added.contains(name) {
                let message = format!("head \"{name}\" is one of the configuration: take it out there and start again");
                return Err(WireError::of(ErrorCode::OutOfRange, "remove", message).at(i));
            }
        }
        if names.len() + add.len() > HEADS_MAX {
            return fault("add", format!("a critic has at most {HEADS_MAX} heads"));
        }
        let expected = || self.config.expected_dim().map(|(dim, _)| dim);
        let (states, rewards) = match self.intake.shape() {
            Some(shape) => shape,
            // The rows to come have at least these.
            None => {
                let columns = self.config.critics.iter().flat_map(|critic| &critic.rewards);
                (expected().unwrap_or(1), columns.max().map_or(1, |last| last + 1))
            }
        };
        let actions = match self.state.window().map_or(0, Window::actions_per_row) {
            0 => ACTION_NUMBERS_MAX,
            known => known,
        };
        if let Err(what) = heads::check(add, Columns { states, rewards, actions }) {
            return fault("add", what);
        }
        match add.iter().position(|head| names.contains(&head.name)) {
            Some(i) => fault("add", format!("heads[{i}]: name: another head is called {} already", add[i].name)),
            None => Ok(()),
        }
    }

    /// The heads of these critics have changed.
    pub(super) fn heads_changed(&mut self, critics: &[String]) {
        for critic in critics {
            self.publisher.hurry();
            let found = self.state.critics().iter().position(|learner| learner.settings().name == *critic);
            found.into_iter().for_each(|index| self.want_missing_heads(index));
        }
        if !critics.is_empty() {
            // Nothing waits in the intake now: what heads ask that have gone is asked no more.
            self.intake.set_demands(demands(&self.state));
            self.show_learning_heads();
        }
    }

    /// Ask for a rebuild or a refit if the model of a critic lacks heads.
    pub(super) fn want_missing_heads(&mut self, index: usize) {
        let learner = &self.state.critics()[index];
        if learner.missing_heads() == 0 || self.state.is_halted(index) {
            return;
        }
        if self.ledger.is_some() {
            self.rebuilds.want_heads(learner);
        } else {
            self.state.request_refit(index);
        }
    }

    /// Publish on the board which heads of each critic are not ready: the snapshot there cannot answer for them.
    pub(super) fn show_learning_heads(&self) {
        for (index, learner) in self.state.critics().iter().enumerate() {
            let shown = self.publisher.board().get(index);
            let shown = shown.as_ref().and_then(|snapshot| snapshot.heads.as_ref()).map_or(&[][..], |of| &of.heads);
            let names = names_beside(&learner.settings().heads, shown);
            let share = match learner.missing_heads() {
                _ if names.is_empty() => 0.0,
                0 => 1.0,
                _ => self.rebuilds.share(&learner.settings().name),
            };
            self.publisher.board().set_learning(index, LearningHeads { names, share });
        }
    }
}

/// Names of the `wanted` heads that are not among those `shown`.
fn names_beside(wanted: &[Head], shown: &[Head]) -> Vec<String> {
    if wanted == shown {
        return Vec::new();
    }
    let shown: HashSet<&str> = shown.iter().map(|head| head.name.as_str()).collect();
    let missing = wanted.iter().filter(|head| !shown.contains(head.name.as_str()));
    missing.map(|head| head.name.clone()).collect()
}

/// Whether the heads of a critic are as after this change of them.
fn is_in_force(learner: &Learner, change: &HeadsChange) -> bool {
    let heads: HashMap<&str, &Head> = learner.settings().heads.iter().map(|head| (head.name.as_str(), head)).collect();
    let added: HashMap<&str, &Head> = change.add.iter().map(|head| (head.name.as_str(), head)).collect();
    added.iter().all(|(name, head)| heads.get(name) == Some(head))
        && change.remove.iter().all(|name| added.contains_key(name.as_str()) || !heads.contains_key(name.as_str()))
}

/// The critics whose heads records change.
pub(super) fn changed_by(records: &[Record]) -> Vec<String> {
    let critic = |record: &Record| if let Record::Heads(change) = record { Some(change.critic.clone()) } else { None };
    records.iter().filter_map(critic).collect()
}
