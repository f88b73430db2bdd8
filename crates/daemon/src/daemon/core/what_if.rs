//! Questions to models of the transition: the core hands out what answers them.

use super::Core;
use super::caller::Caller;
use super::ports::{Now, Output};
use crate::daemon::bounds::QUESTIONS;
use crate::daemon::what_if::{Asked, UnderWay, WhatIfJob};
use crate::wire::{ErrorCode, PlanRequest, RolloutRequest, WireError};

/// Retry time that a peer gets whose question has no place, milliseconds.
const RETRY_MS: u64 = 100;

impl Core {
    /// Those who ask, for the thread that answers.
    pub(in crate::daemon) fn asking(&self) -> UnderWay {
        self.rebuilds.questions.clone()
    }

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
        let mut asking = self.rebuilds.questions.lock();
        if asking.contains(&caller.peer.connection) || asking.len() >= QUESTIONS {
            return Err(WireError::overloaded(RETRY_MS));
        }
        let learned = if self.state.is_halted(index) { None } else { learner.transitions() };
        let Some(learned) = learned else {
            let message = match &self.given_up[index] {
                Some(why) => format!("this critic has failed: {why}"),
                None => "where actions lead is known once a refit has ended that found enough rows for it, and states that it can express: \
                         `criticd refit` starts one"
                    .to_owned(),
            };
            return Err(WireError::new(ErrorCode::NotReady, message));
        };
        asking.insert(caller.peer.connection);
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
