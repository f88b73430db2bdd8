//! Heads at run time: their list, their changes, and the progress of those that came late.
//!
//! A change holds once it is recorded. A rebuild learns the new heads, which join the critic when they have learned its rows. Without
//! a journal a refit learns them.

use super::Core;
use super::caller::Caller;
use super::ports::Output;
use crate::board::LearningHeads;
use crate::config::HEADS_MAX;
use crate::learner::heads::{self, Bank, Columns, Cumulant, Demands, Head};
use crate::learner::labels::Unfit;
use crate::learner::model::Model;
use crate::learner::window::Window;
use crate::learner::{HeadsChange, LabelPart, Learner};
use crate::math::kernel::NoiseModel;
use crate::snapshot::Snapshot;
use crate::state::State;
use crate::state::labels::NotTaken;
use crate::state::record::Record;
use crate::transition::ACTION_NUMBERS_MAX;
use crate::transport::Reply;
use crate::wire::status::{ApartStatus, HeadsStatus, VerifiedHead};
use crate::wire::{self, ErrorCode, HEADS_PER_PAGE, HeadForm, ListedHead, UNKNOWN_LABELS, VerdictForm, WireError};
use std::collections::{HashMap, HashSet};

/// Retry time of labels, or of heads that learn from some, while others wait to be stored, milliseconds.
const LABELS_RETRY_MS: u64 = 20;
/// Heads that `status` names.
const WORST: usize = 10;

/// What `status` says of the heads of a critic whose newest snapshot is `shown`; none if there are none.
pub(super) fn status(learner: &Learner, shown: Option<&Snapshot>) -> Option<HeadsStatus> {
    let count = learner.settings().heads.len() as u64;
    let banks: Vec<&Bank> = learner.model().into_iter().flat_map(Model::banks).collect();
    let sum = |of: fn(&Bank) -> usize| banks.iter().map(|bank| of(bank) as u64).sum::<u64>();
    let answering = shown.map_or(0, |shown| shown.all_heads().count() as u64);
    (count > 0).then(|| HeadsStatus {
        count,
        added: learner.added_heads().len() as u64,
        learning: learner.missing_heads() as u64,
        unsolved: sum(|bank| bank.heads().len()).saturating_sub(answering),
        groups: sum(Bank::groups),
        bytes: sum(Bank::bytes),
        apart: learner.model().and_then(Model::branch).map(|branch| ApartStatus {
            count: branch.all_heads().count() as u64,
            dictionary_size: branch.dictionary().len() as u64,
            bytes: branch.bytes() as u64,
        }),
        ..verified(&banks)
    })
}

/// How well the returns of heads are predicted: how many were verified enough, and those whose intervals are worst.
fn verified(banks: &[&Bank]) -> HeadsStatus {
    let mut known: Vec<((usize, usize), f64)> = Vec::new();
    let mut inside = 0.0;
    for (b, bank) in banks.iter().enumerate() {
        for (h, share) in bank.coverage().into_iter().enumerate() {
            let Some(share) = share else { continue };
            known.push(((b, h), (share - 0.9).abs()));
            inside += share;
        }
    }
    let verified = known.len() as u64;
    let coverage_before_factor = (verified > 0).then(|| inside / verified as f64);
    let unexplained_max = banks.iter().flat_map(|bank| bank.unexplained()).flatten().max_by(f64::total_cmp);
    known.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let of = |&((b, h), _): &((usize, usize), f64)| {
        let verdict = banks[b].verdict(h)?;
        Some(VerifiedHead {
            name: banks[b].heads()[h].name.clone(),
            pairs: verdict.pairs as u64,
            coverage_before_factor: verdict.coverage,
            bias: verdict.bias,
            unexplained: verdict.unexplained,
            factor: verdict.factor,
        })
    };
    let worst = known.iter().take(WORST).filter_map(of).collect();
    HeadsStatus { verified, coverage_before_factor, unexplained_max, worst, ..HeadsStatus::default() }
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
        let first_row = learner.model().and_then(Model::first_row);
        let of_late = learner.model().and_then(|model| model.first_row_of_late_heads(learner.learned()));
        let mut places: HashMap<&str, (&Bank, (usize, usize))> = HashMap::new();
        for bank in learner.model().into_iter().flat_map(Model::banks) {
            let of_bank = bank.heads().iter().zip(bank.places());
            places.extend(of_bank.map(|(head, place)| (head.name.as_str(), (bank, place))));
        }
        let branch = learner.model().and_then(Model::branch).and_then(Model::heads);
        let shown = self.publisher.board().get(index);
        let answering: HashSet<&str> =
            shown.iter().flat_map(|shown| shown.all_heads()).map(|head| head.name.as_str()).collect();
        let listed = |head: &Head| {
            let place = places.get(head.name.as_str()).copied();
            let is_late = missing.contains(&head.name);
            ListedHead {
                form: HeadForm::from(head),
                added: added.contains(head.name.as_str()),
                apart: place.zip(branch).is_some_and(|((bank, _), branch)| std::ptr::eq(bank, branch)),
                unsolved: place.is_some() && !answering.contains(head.name.as_str()),
                learning: is_late.then_some(share),
                first_row: if is_late { of_late } else { first_row },
                verified: place.and_then(|(bank, place)| bank.verdict_at(place)).map(VerdictForm::from),
            }
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

    /// Remove heads of a critic and add others, or keep labels for heads to come. The caller gets the answer when the change is stored.
    pub(super) fn change_heads(
        &mut self,
        critic: Option<&str>,
        (add, remove, labels): (Vec<HeadForm>, Vec<String>, Option<LabelPart>),
        caller: &Caller,
    ) -> Result<(), WireError> {
        self.check_writable()?;
        let index = self.publisher.board().critic(critic)?;
        let settings = self.state.critics()[index].settings();
        let discount = settings.discount;
        if labels.is_some() && !(add.is_empty() && remove.is_empty()) {
            let message = "go in a message of their own, before the heads that learn from them";
            return Err(WireError::of(ErrorCode::OutOfRange, "labels", message));
        }
        let add = add.into_iter().enumerate().map(|(i, form)| {
            let head = form.head(discount).and_then(|head| self.with_labels(head));
            head.map_err(|what| WireError::of(ErrorCode::OutOfRange, "add", format!("heads[{i}]: {what}")))
        });
        let add = add.collect::<Result<Vec<Head>, WireError>>()?;
        let change = HeadsChange { critic: settings.name.clone(), remove, add, labels };
        if self.intake.is_stored_since(&change) && self.is_in_force(index, &change) {
            let offset = self.state.end().offset;
            self.out.push(Output::Reply(caller.reply(&wire::Reply::ChangeHeads { offset })));
            return Ok(());
        }
        self.check_labels(&change)?;
        // Labels are of all critics, whichever is named.
        if change.labels.is_none() {
            self.check_change(index, &change.add, &change.remove)?;
        }
        let demands = Demands::of(&change.add);
        if let Some(what) = lacking(self.state.window(), &demands).or_else(|| self.intake.lacking(&demands)) {
            let message = format!("{what}, which these heads ask for");
            return Err(WireError::of(ErrorCode::OutOfRange, "add", message));
        }
        let HeadsChange { critic, remove, add, labels } = &change;
        match labels {
            Some(part) => {
                log::debug!("event=labels name={:?} from={} count={}", part.name, part.from, part.offsets.len())
            }
            None => log::info!("event=heads_changed critic={critic} added={} removed={}", add.len(), remove.len()),
        }
        self.intake.demand(&demands);
        self.intake.change_heads(change, caller.clone());
        Ok(())
    }

    /// A head that names its labels with the number of those that are here.
    fn with_labels(&self, mut head: Head) -> Result<Head, String> {
        if let Cumulant::Label { name, id } = &mut head.cumulant {
            let Some(labels) = self.state.labels().get(name).filter(|labels| !labels.is_empty()) else {
                return Err(format!("cumulant.name: there are no labels \"{name}\"; send them first, with `labels`"));
            };
            if *id != UNKNOWN_LABELS && *id != labels.id() {
                return Err(format!("cumulant.id: the labels \"{name}\" are others, their id is {}", labels.id()));
            }
            *id = labels.id();
        }
        Ok(head)
    }

    /// Whether labels can be taken, and heads learn from those that are stored.
    fn check_labels(&self, change: &HeadsChange) -> Result<(), WireError> {
        let learns = change.add.iter().any(|head| head.label().is_some());
        if (learns || change.labels.is_some()) && self.intake.may_change_labels() {
            return Err(WireError::overloaded(LABELS_RETRY_MS));
        }
        let Some(part) = &change.labels else { return Ok(()) };
        let fault = |code, field, message: String| Err(WireError::of(code, field, message));
        let end = self.state.end().offset;
        if let Some(i) = part.offsets.iter().position(|&offset| offset >= end) {
            let message = format!("row {} has not come yet: there are {end}", part.offsets[i]);
            return fault(ErrorCode::OutOfRange, "labels.offsets", message).map_err(|error| error.at(i));
        }
        self.state.labels().check(part).or_else(|why| match why {
            NotTaken::Used | NotTaken::Elsewhere(_) => fault(ErrorCode::Conflict, "labels", why.to_string()),
            NotTaken::Bytes | NotTaken::Sets => fault(ErrorCode::TooLarge, "labels", why.to_string()),
            NotTaken::Unfit(Unfit::Order(i)) => {
                fault(ErrorCode::OutOfRange, "labels.offsets", why.to_string()).map_err(|error| error.at(i))
            }
            NotTaken::Unfit(Unfit::Value(i)) => {
                fault(ErrorCode::OutOfRange, "labels.values", why.to_string()).map_err(|error| error.at(i))
            }
            NotTaken::Unfit(Unfit::Lengths(..)) => fault(ErrorCode::WrongShape, "labels.values", why.to_string()),
        })
    }

    /// Whether a change of the heads of a critic, or of labels, has been carried out.
    fn is_in_force(&self, index: usize, change: &HeadsChange) -> bool {
        let has = |part: &LabelPart| {
            let labels = self.state.labels().get(&part.name);
            labels.is_some_and(|labels| labels.len() as u64 == part.from + part.offsets.len() as u64)
        };
        change.labels.as_ref().is_none_or(has) && is_in_force(&self.state.critics()[index], change)
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
            self.publisher.request_refresh();
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
            let names = names_beside(&learner.settings().heads, shown.as_deref());
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
pub(in crate::daemon) fn names_beside(wanted: &[Head], shown: Option<&Snapshot>) -> Vec<String> {
    let shown = || shown.into_iter().flat_map(Snapshot::all_heads);
    if wanted.iter().eq(shown()) {
        return Vec::new();
    }
    let shown: HashSet<&str> = shown().map(|head| head.name.as_str()).collect();
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
