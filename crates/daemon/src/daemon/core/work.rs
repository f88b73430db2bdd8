//! Long work, and who waits for it: refits and rebuilds that a request starts, and a critic that is restored.

use super::Core;
use super::caller::Caller;
use super::ports::Now;
use crate::daemon::recovery;
use crate::learner::Learner;
use crate::learner::window::Window;
use crate::transport::Reply;
use crate::wire::{self, ErrorCode, RefitOutcome, WireError};
use std::collections::HashSet;

/// Rows that the core itself learns again where a critic has failed: a moment's work. More are left to a rebuild.
pub(super) const RESTORE_ROWS_MAX: u64 = 4096;

impl Core {
    /// These connections have ended: nothing that they asked for waits any more.
    pub fn forget(&mut self, gone: &HashSet<u64>) {
        self.refits.forget(gone);
        self.rebuilds.forget(gone);
        self.checkpoints.forget(gone);
        self.rebuilds.removals.forget(gone);
    }

    /// Multiplications that applying what waits takes beside learning its rows, about: for requests, and for changes of policy that
    /// come with the rows.
    pub fn waiting_work(&self) -> (u64, u64) {
        let (by_request, with_rows) = self.intake.policy_changes();
        let change: u64 = self.state.critics().iter().map(Learner::work_of_new_policy).sum();
        (self.intake.advice_work() + self.intake.work_of_heads() + by_request * change, with_rows * change)
    }

    /// Start a refit of a critic; the caller gets the answer at once, or when the refit has ended.
    pub(super) fn refit(
        &mut self,
        critic: Option<&str>,
        wait: bool,
        caller: &Caller,
    ) -> Result<Option<Reply>, WireError> {
        let critic = self.publisher.board().critic(critic)?;
        if let Some(why) = &self.given_up[critic] {
            return Err(WireError::new(ErrorCode::Internal, format!("this critic has failed: {why}")));
        }
        let learner = &self.state.critics()[critic];
        if learner.generation() == 0 {
            let needed = learner.settings().warmup_rows;
            let mut message = format!("no model yet: {} of {needed} rows have arrived", learner.learned());
            if let Some([_, _, unnamed]) = learner.waiting_rows().filter(|_| learner.learned() >= needed as u64) {
                message = format!(
                    "no model yet: of {unnamed} rows it is not known which action followed; send the rows of a stream in their order, or \
                     each with its next_action"
                );
            }
            return Err(WireError::new(ErrorCode::NotReady, message));
        }
        if wait {
            self.refits.wait(critic, caller.clone())?;
        }
        self.state.request_refit(critic);
        Ok((!wait).then(|| caller.reply(&wire::Reply::Refit(&RefitOutcome::Started))))
    }

    /// Judge a refit that has come back, and start one that is due.
    pub(super) fn act_on_refits(&mut self, now: Now) {
        if !self.intake.has_decisions() {
            let decided = self.refits.judge(&self.state, &self.given_up, now, &mut self.out);
            decided.into_iter().for_each(|record| self.intake.decide(record));
        }
        let held = |critic: &str| self.rebuilds.selects(critic);
        let decided = self.refits.start(&mut self.state, &held, now, &mut self.out);
        decided.into_iter().for_each(|record| self.intake.decide(record));
    }

    /// A table has been learned: let a selection see all of it, where refits are not left to those who ask for one. The rows that came
    /// last would otherwise wait until their number has come again.
    pub fn refit_all(&mut self) {
        for critic in 0..self.given_up.len() {
            let learner = &self.state.critics()[critic];
            let refits = learner.settings().refit_first_rows > 0 && learner.generation() > 0;
            if refits && self.given_up[critic].is_none() {
                self.state.request_refit(critic);
            }
        }
    }

    /// Learn a critic again from the journal.
    pub(super) fn rebuild_from_journal(
        &mut self,
        critic: Option<&str>,
        wait: bool,
        caller: &Caller,
    ) -> Result<Option<Reply>, WireError> {
        let index = self.publisher.board().critic(critic)?;
        self.check_writable()?;
        let not_ready = |message| WireError::new(ErrorCode::NotReady, message);
        if self.ledger.is_none() {
            return Err(not_ready("there is no journal to learn from: `journal` is off in the settings"));
        }
        if self.state.window().is_none_or(Window::is_empty) {
            return Err(not_ready("there are no rows yet"));
        }
        self.rebuilds.want(&self.config.critics[index].name, wait.then(|| caller.clone()))?;
        Ok((!wait).then(|| caller.reply(&wire::Reply::Refit(&RefitOutcome::Started))))
    }

    /// Whether a critic has failed that is about to be rebuilt or given up.
    pub(super) fn is_unsettled(&self) -> bool {
        (0..self.given_up.len()).any(|index| self.state.is_halted(index) && self.given_up[index].is_none())
    }

    /// Read a halted critic back from the journal, which says by now what it leaves out. Where that is more than a moment's work
    /// it answers as before until a rebuild has learned it again.
    pub(super) fn rebuild(&mut self, name: &str, now: Now) {
        let critics = self.state.critics();
        let index = critics.iter().position(|learner| learner.settings().name == name);
        let Some(index) = index.filter(|&index| self.state.is_halted(index) && self.given_up[index].is_none()) else {
            return;
        };
        let Some(ledger) = &mut self.ledger else { return };
        let checkpoints = ledger.checkpoints();
        let window_rows = self.config.window_rows;
        let found =
            recovery::recover_critic(ledger.storage(), checkpoints.as_ref(), window_rows, name, RESTORE_ROWS_MAX);
        let restored = match found {
            Ok(Some(learner)) => self.state.replace(learner),
            Ok(None) => {
                self.give_up(index, "it learns the journal again, without the rows on which it failed", now);
                // Without a caller there is always room.
                drop(self.rebuilds.want(name, None));
                return;
            }
            Err(why) => Err(why),
        };
        if let Err(why) = restored {
            self.give_up(index, &format!("it could not be restored: {why}"), now);
        }
    }
}
