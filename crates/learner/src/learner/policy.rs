//! Announced changes of policy, and the models of policies that do not act at present.
//!
//! A change holds from an offset on and is a function of offsets and settings, so that learning again does it at the same row.
//! It closes all chains, as a cut does. What it makes of what has been learned is a setting ([`OnNewPolicy`]).
//!
//! Where policies change often, no policy has rows enough for all that is made of them. So a model that has lost its rows answers once it
//! has learned the rows of a warm-up, and the one before answers until then. A refit that runs while a policy changes goes
//! through the change as the model does: what it selected serves the next policy. And where settings let former rows count less
//! in common ([`crate::settings::Settings::carries_policies`]), a refit looks at the newest rows, though they be of several
//! policies.

use super::{Event, Learner, Rejection};
use crate::model::{Made, Model, PolicyChange};
use crate::refit::Candidate;
use crate::settings::OnNewPolicy;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Rows that a selection is made of where policies change often, for each that a first one needs.
const NEWEST: u64 = 4;

/// A change that has been announced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Announced {
    /// Offset of the first row under the policy.
    offset: u64,
    /// Its name, if it has one.
    policy: Option<String>,
    /// Whether rows say so, and no request does: the first name that comes with rows changes nothing.
    by_rows: bool,
}

/// The model of a policy that does not act at present.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Kept {
    policy: String,
    model: Box<Model>,
    /// Whether hyperparameters had been selected for it.
    selected: bool,
}

/// The model that answers until the one of the acting policy has learned the rows of a warm-up.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Before {
    model: Box<Model>,
    /// Its generation.
    generation: u64,
}

/// Since when the policy acts, and how the world was then.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Since {
    /// Offset of the first row under the policy.
    offset: u64,
    /// Offset of the first row of the world, as far as was known then.
    world: u64,
}

/// Which policy acts, which will, and which have acted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Policies {
    /// Name of the one that acts, if it has one.
    present: Option<String>,
    /// In the order of their offsets.
    announced: VecDeque<Announced>,
    /// The one that has not acted for longest first.
    kept: VecDeque<Kept>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<Before>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<Since>,
}

impl Policies {
    /// The change that is due before the row at `end` is learned, earliest first.
    fn next(&mut self, end: u64) -> Option<Announced> {
        self.announced.front().filter(|next| next.offset <= end)?;
        self.announced.pop_front()
    }

    /// Whether anything was announced or has acted.
    pub(super) fn is_empty(&self) -> bool {
        self.present.is_none() && self.announced.is_empty() && self.kept.is_empty()
    }

    /// Name of the one that acts, if it has one.
    pub(super) fn present(&self) -> Option<&str> {
        self.present.as_deref()
    }

    /// The models of those that do not act.
    pub(super) fn models(&self) -> impl Iterator<Item = &Model> {
        self.kept.iter().map(|kept| &*kept.model).chain(self.before.as_ref().map(|before| &*before.model))
    }

    /// The model that answers in place of the present one.
    pub(super) fn before_mut(&mut self) -> Option<&mut Box<Model>> {
        self.before.as_mut().map(|before| &mut before.model)
    }

    /// Drop the models that do not stay.
    pub(super) fn drop_models(&mut self, stays: impl Fn(&Model) -> bool) {
        self.kept.retain(|kept| stays(&kept.model));
        self.before.take_if(|before| !stays(&before.model));
    }

    /// Whether what was read from a file is of one piece.
    pub(super) fn is_consistent(&self) -> bool {
        self.models().all(Model::is_consistent)
    }
}

impl Learner {
    /// From the row at `offset` on another policy acts, `policy` by name if it has one; if that row has been learned, from the
    /// next one on. Nothing changes if that is the name of the one that acts already, so that saying it twice does no harm.
    pub fn new_policy(&mut self, offset: u64, policy: Option<&str>) {
        self.announce(offset, policy, None);
    }

    /// The rows of stream number `stream` from that at `offset` on say that they are of `policy`, and those before them did not.
    /// As [`Learner::new_policy`], but where no policy had a name this one just gets it.
    pub fn policy_of_rows(&mut self, offset: u64, stream: u32, policy: &str) {
        self.announce(offset, Some(policy), Some(stream));
    }

    /// `stream` is the one whose rows say so, if rows do.
    fn announce(&mut self, offset: u64, policy: Option<&str>, stream: Option<u32>) {
        let complete = self.complete_offset(offset).max(self.learned);
        let announced = &mut self.policies.announced;
        let at = announced.partition_point(|other| other.offset <= complete);
        let before = at.checked_sub(1).map_or(&self.policies.present, |last| &announced[last].policy);
        // The action behind a row that waits is another policy's: in all streams if the acting policy changes, and in a stream
        // that is the last one to change to it.
        let ends = match stream {
            None if policy.is_none() || before.as_deref() != policy => Some(None),
            None => None,
            Some(_) if before.is_none() => None,
            Some(_) if before.as_deref() != policy => Some(None),
            Some(stream) => Some(Some(stream)),
        };
        let by_rows = stream.is_some();
        announced.insert(at, Announced { offset: complete, policy: policy.map(str::to_owned), by_rows });
        if let Some(stream) = ends {
            self.policy_from(offset, stream);
        }
    }

    /// Multiplications that a change of the acting policy takes, about.
    pub fn work_of_new_policy(&self) -> u64 {
        /// What a model without rows, or a discounted one, takes for each m^2 beside its solution.
        const SQUARES: u64 = 20;
        let Some(model) = self.model.as_ref().filter(|_| !self.settings.leaves_chain()) else { return 0 };
        let (m, heads) = (model.dictionary().len() as u64, self.settings.heads.len() as u64);
        let solves = self.settings.on_new_policy == OnNewPolicy::Discount;
        m * (m * (SQUARES + heads) + if solves { m * m } else { 0 })
    }

    /// Name of the policy that acts, if it has one.
    pub fn policy(&self) -> Option<&str> {
        self.policies.present()
    }

    /// Bytes of the models that are kept for policies that do not act, for reports of memory.
    pub fn kept_bytes(&self) -> usize {
        self.policies.models().map(Model::bytes).sum()
    }

    /// Names of the policies whose models are kept, the one that has not acted for longest first.
    pub fn kept_policies(&self) -> impl Iterator<Item = &str> {
        self.policies.kept.iter().map(|kept| kept.policy.as_str())
    }

    /// Learn what has arrived up to the row at `end`, changes of policy at the rows that they hold from.
    pub(super) fn learn_up_to(&mut self, window: &super::Window, end: u64, events: &mut Vec<Event>) {
        while let Some(change) = self.policies.next(end) {
            // Rows may have been skipped meanwhile.
            let change = Announced { offset: change.offset.max(self.learned).min(end), ..change };
            self.learn_rows(window, change.offset, events);
            self.change_policy(change, events);
        }
        self.learn_rows(window, end, events);
        if !self.lacks_rows_of_policy() {
            self.policies.before = None;
        }
    }

    /// Whether the model has learned fewer rows than a warm-up.
    fn lacks_rows_of_policy(&self) -> bool {
        let least = self.settings.warmup_rows as u64;
        self.model.as_ref().is_some_and(|model| model.statistics().rows < least)
    }

    /// The model that answers, and its generation.
    pub(super) fn answering(&self) -> Option<(&Model, u64)> {
        let before = self.policies.before.as_ref().filter(|_| self.lacks_rows_of_policy());
        let before = before.map(|before| (&*before.model, before.generation));
        before.or_else(|| self.model().map(|model| (model, self.generation)))
    }

    /// Offset of the first row of the world as it is, whichever policy acted.
    pub(super) fn world_since(&self) -> u64 {
        let changed_at = self.following.changed_at();
        self.policies.since.filter(|since| since.offset == changed_at).map_or(changed_at, |since| since.world)
    }

    /// Offset of the first row that a refit of the rows before offset `end` looks at.
    pub(super) fn selects_from(&self, end: u64) -> u64 {
        let changed_at = self.following.changed_at();
        if !self.settings.carries_policies() {
            return changed_at;
        }
        changed_at.min(end.saturating_sub(NEWEST * self.settings.refit_first_rows).max(self.world_since()))
    }

    /// Whether it is of another world than the present one, or of a policy whose model has left.
    pub(super) fn outdated(&self, candidate: &Candidate) -> Option<Rejection> {
        if let Some(change) = self.asked.policies.iter().rfind(|change| change.makes.is_none()) {
            let policy = self.policies.present().map(str::to_owned);
            return Some(Rejection::OtherPolicy { changed_at: change.offset, policy });
        }
        let went_through = self.asked.policies.last().is_some_and(|last| last.offset == self.following.changed_at());
        let carries = went_through || self.settings.carries_policies();
        let changed_at = if carries { self.world_since() } else { self.following.changed_at() };
        let from = candidate.from;
        (from < changed_at).then_some(Rejection::Outdated { from, changed_at })
    }

    fn change_policy(&mut self, Announced { offset, policy, by_rows }: Announced, events: &mut Vec<Event>) {
        let before = self.policies.present.clone();
        if policy.is_some() && before == policy {
            return;
        }
        self.policies.present = policy.clone();
        // The value of another policy does not change with the acting one.
        if (by_rows && before.is_none()) || self.settings.leaves_chain() {
            return;
        }
        match self.model.take() {
            // Too few rows for a model: rows of the new policy make the first one, or all of them where each policy may have
            // too few.
            None if self.settings.carries_policies() => {}
            None => (self.first_row, self.early) = (self.first_row.max(offset), None),
            Some(model) => {
                let (mut model, makes) = self.after_change(model, before);
                if self.refit_running() {
                    self.asked.policies.push(PolicyChange { offset, makes });
                }
                // What its errors were under another policy says nothing of what they will be.
                model.stop_watch();
                self.model = Some(model);
                self.drop_removed();
            }
        }
        let (world, due) = (self.world_since(), self.next_refit);
        self.policies.since = Some(Since { offset, world });
        self.following.restart_at(offset);
        self.refit_ended_at = offset;
        self.no_room_before = self.counts().novel_when_full;
        // The dictionary stays, but where the model of another policy takes over.
        self.full_reported &= self.settings.on_new_policy != OnNewPolicy::Keep;
        self.asked.restart_score();
        self.schedule();
        if self.settings.carries_policies() && self.next_refit != u64::MAX {
            // The kernel of the policies before serves this one too, and an announcement puts off no selection.
            self.next_refit = due.min(offset + NEWEST * self.settings.refit_first_rows);
        }
        events.push(Event::NewPolicy { offset, policy });
    }

    /// The model for the policy that acts now, from the model of the policy `before`, and what the change made of it; nothing
    /// where it is another policy's.
    fn after_change(&mut self, mut model: Box<Model>, before: Option<String>) -> (Box<Model>, Option<Made>) {
        match self.settings.on_new_policy {
            OnNewPolicy::Restart => {
                let made = Made::Empty(self.settings.heads.clone());
                let mut next = model.clone();
                made.of(&mut next);
                self.answer_meanwhile(model);
                (next, Some(made))
            }
            OnNewPolicy::Discount => {
                let made = Made::Discounted(self.settings.policy_discount);
                made.of(&mut model);
                (model, Some(made))
            }
            OnNewPolicy::Keep => self.keep_and_take(model, before),
        }
    }

    /// Keep the model of the policy `before`, and take the model of the policy that acts now, if it has one.
    fn keep_and_take(&mut self, mut model: Box<Model>, before: Option<String>) -> (Box<Model>, Option<Made>) {
        let selected = self.generation_adopted() > 1;
        let kept = &mut self.policies.kept;
        let known = kept.iter().position(|kept| Some(&kept.policy) == self.policies.present.as_ref());
        let next = match known.and_then(|index| kept.remove(index)) {
            // A kernel that was a stopgap then is not taken back for one that was selected since.
            Some(Kept { mut model, selected: theirs, .. }) if theirs || !selected => {
                model.set_settings(&self.settings);
                model.reset_score();
                // Its dictionary may be another one.
                self.generation += u64::from(selected);
                self.policies.before = None;
                (model, None)
            }
            _ => {
                let (made, mut next) = (Made::Empty(self.settings.heads.clone()), model.clone());
                made.of(&mut next);
                self.answer_meanwhile(model.clone());
                (next, Some(made))
            }
        };
        if let Some(policy) = before {
            model.cut_running_chains();
            let kept = &mut self.policies.kept;
            kept.push_back(Kept { policy, model, selected });
            while kept.len() > self.settings.policies_kept {
                kept.pop_front();
            }
        }
        next
    }

    /// Let `model` answer until the next one has learned the rows of a warm-up. One that had not itself leaves that to the one before.
    fn answer_meanwhile(&mut self, mut model: Box<Model>) {
        if self.policies.before.is_none() || model.statistics().rows >= self.settings.warmup_rows as u64 {
            model.cut_running_chains();
            self.policies.before = Some(Before { model, generation: self.generation });
        }
    }
}
