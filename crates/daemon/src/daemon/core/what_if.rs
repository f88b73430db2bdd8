//! Questions to models of the transition: the core hands out what answers them.

use super::Core;
use super::caller::Caller;
use super::ports::{Now, Output};
use crate::daemon::what_if::{Asked, WhatIfJob};
use crate::wire::{ErrorCode, PlanRequest, RolloutRequest, WireError};

impl Core {
    /// Plan for a reward.
    pub(super) fn plan(&mut self, request: PlanRequest, caller: &Caller, now: Now) -> Result<(), WireError> {
        self.ask_model(Asked::Plan(request), caller, now)
    }

    /// Predict a course.
    pub(super) fn rollout(&mut self, request: RolloutRequest, caller: &Caller, now: Now) -> Result<(), WireError> {
        self.ask_model(Asked::Rollout(request), caller, now)
    }

    /// Hand out the model that a question is about. It is answered elsewhere.
    fn ask_model(&mut self, asked: Asked, caller: &Caller, now: Now) -> Result<(), WireError> {
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
        let board = self.publisher.board();
        let [state_names, reward_names, _] = board.names();
        let job = WhatIfJob {
            asked,
            settings: settings.clone(),
            actor: board.actor(index),
            state_names,
            reward_names,
            at: (learner.generation(), learner.learned(), now.unix),
            learned: Box::new(learned),
        };
        self.out.push(Output::WhatIf(caller.clone(), Box::new(job)));
        Ok(())
    }
}
