//! Long work that a request starts: a refit, a rebuild.

use super::Core;
use super::caller::Caller;
use crate::learner::window::Window;
use crate::transport::Reply;
use crate::wire::{self, ErrorCode, RefitOutcome, WireError};

impl Core {
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
        if learner.model().is_none() {
            let needed = learner.settings().warmup_rows;
            let message = format!("no model yet: {} of {needed} rows have arrived", learner.learned());
            return Err(WireError::new(ErrorCode::NotReady, message));
        }
        if wait {
            self.refits.wait(critic, caller.clone())?;
        }
        self.state.request_refit(critic);
        Ok((!wait).then(|| caller.reply(&wire::Reply::Refit(&RefitOutcome::Started))))
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
}
