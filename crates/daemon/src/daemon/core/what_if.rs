//! Questions to models of the transition: the core hands out what answers them.

use super::Core;
use super::caller::Caller;
use super::ports::{Now, Output};
use crate::daemon::what_if::{Asked, UnderWay, WhatIfJob, enter};
use crate::wire::{ErrorCode, WireError};

impl Core {
    /// Those who ask already, for whoever starts the thread that answers.
    pub(in crate::daemon) fn asking(&self) -> &UnderWay {
        &self.asking
    }

    /// Hand out the model that a question is about. It is answered elsewhere.
    pub(super) fn ask_model(&mut self, asked: Asked, caller: &Caller, now: Now) -> Result<(), WireError> {
        let index = self.publisher.board().critic(asked.critic())?;
        let learner = &self.state.critics()[index];
        let settings = learner.settings();
        if settings.action_value.is_none() {
            let message =
                "this critic learns values of states: where actions lead is learned with inputs = \"state_action\"";
            return Err(WireError::of(ErrorCode::OutOfRange, "critic", message));
        }
        if !settings.world {
            let message = "this critic does not learn where actions lead: set `world = true` in its settings";
            return Err(WireError::of(ErrorCode::OutOfRange, "critic", message));
        }
        let learned = if self.state.is_halted(index) { None } else { learner.transitions() };
        let Some(learned) = learned else {
            let message = "where actions lead is known once a refit has ended: `criticd refit` starts one";
            return Err(WireError::new(ErrorCode::NotReady, message));
        };
        enter(&self.asking, caller)?;
        let board = self.publisher.board();
        let [state_names, reward_names, _] = board.names();
        self.out.push(Output::WhatIf(Box::new(WhatIfJob {
            caller: caller.clone(),
            asked,
            settings: settings.clone(),
            actor: board.actor(index),
            state_names,
            reward_names,
            at: (learner.generation(), learner.learned(), now.unix),
            learned: Box::new(learned),
        })));
        Ok(())
    }
}
