//! Questions to models of the transition: the core hands out what answers them.

use super::Core;
use super::caller::{Asker, Caller};
use super::ports::{Now, Output};
use crate::daemon::bounds::QUESTIONS;
use crate::daemon::what_if::{Asked, UnderWay, WhatIfJob};
use crate::http::PageQuestion;
use crate::learner::heads::Head;
use crate::wire::{ErrorCode, Op, PlanRequest, RolloutRequest, WireError};

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
        let job = self.job(asked, caller.peer.connection, now)?;
        self.out.push(Output::WhatIf(Asker::Peer(caller.clone()), job));
        Ok(())
    }

    /// The same for a page.
    pub fn ask_for_page(&mut self, PageQuestion { op, page }: PageQuestion, now: Now) {
        let job = match op {
            Op::Plan(request) => self.job(Asked::Plan(request), Asker::PAGES, now),
            Op::Rollout(request) => self.job(Asked::Rollout(request), Asker::PAGES, now),
            _ => Err(WireError::new(ErrorCode::Internal, "a page may not ask for this")),
        };
        match job {
            Ok(job) => self.out.push(Output::WhatIf(Asker::Page(page), job)),
            Err(why) => page.answer(Err(why)),
        }
    }

    /// All that answers a question, which has a place from now on.
    fn job(&mut self, asked: Asked, connection: u64, now: Now) -> Result<Box<WhatIfJob>, WireError> {
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
        let asking = &self.rebuilds.questions;
        if !asking.has_room(connection, QUESTIONS) {
            return Err(WireError::overloaded(RETRY_MS));
        }
        let learned = if self.state.is_halted(index) { None } else { learner.transitions() };
        let Some(learned) = learned else {
            let message = match (&self.given_up[index], self.refits.no_world(index)) {
                (Some(why), _) => format!("this critic has failed: {why}"),
                (None, Some(why)) => format!("the last refit could not learn where actions lead: {why}"),
                (None, None) => "where actions lead is known once a refit has ended that found enough rows for it, and states that it can express: \
                         `criticd refit` starts one"
                    .to_owned(),
            };
            return Err(WireError::new(ErrorCode::NotReady, message));
        };
        let head = asked.reward().map(|text| self.head_called(text)).transpose()?.flatten();
        asking.begin(connection);
        let board = self.publisher.board();
        let [state_names, reward_names, _] = board.names();
        Ok(Box::new(WhatIfJob {
            asked,
            settings: settings.clone(),
            actor: board.actor(index),
            state_names,
            reward_names,
            head,
            at: (learner.generation(), learner.learned(), now.unix),
            learned: Box::new(learned),
        }))
    }

    /// The head of any critic that has this name.
    ///
    /// # Errors
    /// Heads of several critics have it, and they sum different numbers.
    fn head_called(&self, name: &str) -> Result<Option<Head>, WireError> {
        let critics = self.state.critics().iter().map(|learner| learner.settings());
        let mut found = critics.flat_map(|settings| &settings.heads).filter(|head| head.name == name);
        let first = found.next();
        if found.any(|other| first.is_some_and(|first| first.cumulant != other.cumulant)) {
            let message =
                format!("several critics have a head {name}, and they do not sum the same: name an expression");
            return Err(WireError::of(ErrorCode::OutOfRange, "reward", message));
        }
        Ok(first.cloned())
    }
}
