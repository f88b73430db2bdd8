//! Requests to advisors: checked here, stored with the group, carried out and answered when the group is applied.

use super::Core;
use super::caller::Caller;
use super::ports::Output;
use crate::learner::suggest::{Advisor, SuggestError, check_cost};
use crate::state::advisors::{Advised, NotAdvised};
use crate::state::record::{Advice, AdviceRequest};
use crate::wire::status::AdvisorStatus;
use crate::wire::{self, ErrorCode, WireError};

/// Requests that wait to be stored, and their callers: the core answers them when the requests have been applied.
#[derive(Debug, Default)]
pub(super) struct WaitingAdvice {
    pub(super) requests: Vec<Advice>,
    pub(super) callers: Vec<Caller>,
    /// Multiplications that the requests take when they are applied, about.
    pub(super) work: u64,
    /// Advisors that learn a cost first: their next decision has a system to solve.
    learning: Vec<String>,
}

impl WaitingAdvice {
    pub(super) fn put(&mut self, advice: Advice, advisor: &Advisor, caller: Caller) {
        let place = self.learning.iter().position(|name| *name == advice.advisor);
        match (&advice.request, place) {
            (AdviceRequest::Suggest { .. }, None) => self.work += advisor.work_of_suggest(advisor.is_solved()),
            (AdviceRequest::Suggest { .. }, Some(place)) => {
                self.work += advisor.work_of_suggest(false);
                self.learning.swap_remove(place);
            }
            (AdviceRequest::Report { .. }, place) => {
                self.work += advisor.work_of_report();
                if place.is_none() {
                    self.learning.push(advice.advisor.clone());
                }
            }
        }
        self.requests.push(advice);
        self.callers.push(caller);
    }

    /// The requests, for their group; the callers stay.
    pub(super) fn take(&mut self) -> std::vec::Drain<'_, Advice> {
        self.work = 0;
        self.learning.clear();
        self.requests.drain(..)
    }
}

/// What `status` says of an advisor.
pub(super) fn status(advisor: &Advisor) -> AdvisorStatus {
    let settings = advisor.settings();
    AdvisorStatus {
        name: settings.name.clone(),
        context_names: settings.context_names.clone(),
        output_names: settings.outputs.iter().map(|output| output.name.clone()).collect(),
        decisions: advisor.decisions(),
        waiting: advisor.waiting() as u64,
        waiting_max: settings.waiting_max as u64,
        learned: advisor.learned(),
        ridges: advisor.ridges(),
        dictionary_size: advisor.elements() as u64,
        dictionary_max: settings.dictionary_max as u64,
        bytes: advisor.bytes() as u64,
    }
}

/// The refusal of an advisor, with the field at fault.
fn refusal(error: &SuggestError) -> WireError {
    let message = error.to_string();
    let (code, field) = match error {
        SuggestError::Context { given, wanted } if given != wanted => (ErrorCode::WrongDimension, "context"),
        SuggestError::Context { .. } => (ErrorCode::OutOfRange, "context"),
        SuggestError::Unknown(_) => (ErrorCode::OutOfRange, "decision_id"),
        SuggestError::Cost(_) => (ErrorCode::OutOfRange, "cost"),
        _ => return WireError::new(ErrorCode::Internal, message),
    };
    // The field stands in front already.
    WireError::of(code, field, message.strip_prefix(&format!("{field}: ")).unwrap_or(&message))
}

impl Core {
    /// Take a request to an advisor in; the first advisor is meant if none is named. The caller gets the answer when the request has
    /// been stored and applied.
    pub(super) fn advise(
        &mut self,
        advisor: Option<&str>,
        request: AdviceRequest,
        caller: &Caller,
    ) -> Result<(), WireError> {
        self.check_writable()?;
        let advisors = self.state.advisors();
        let found = advisors.iter().find(|known| advisor.is_none_or(|name| known.settings().name == name));
        let Some(found) = found else {
            let known: Vec<&str> = advisors.iter().map(|known| known.settings().name.as_str()).collect();
            let known = if known.is_empty() {
                "the settings have none".into()
            } else {
                format!("there is {}", known.join(", "))
            };
            let message = format!("there is no advisor \"{}\"; {known}", advisor.unwrap_or("default"));
            return Err(WireError::of(ErrorCode::OutOfRange, "advisor", message));
        };
        let fits = match &request {
            AdviceRequest::Suggest { context } => found.check_context(context),
            AdviceRequest::Report { decision_id, .. } if !found.waits_for(*decision_id) => {
                Err(SuggestError::Unknown(*decision_id))
            }
            AdviceRequest::Report { cost, .. } => check_cost(*cost),
        };
        fits.map_err(|error| refusal(&error))?;
        let advice = Advice { advisor: found.settings().name.clone(), request };
        self.intake.advise(advice, found, caller.clone());
        Ok(())
    }

    /// Answer the requests to advisors that have just been applied. After a failed write their callers have an answer already.
    pub(super) fn answer_advised(&mut self, advised: Vec<Result<Advised, NotAdvised>>) {
        let callers = std::mem::take(&mut self.advised);
        let replies = callers.into_iter().zip(advised).map(|(caller, advised)| match advised {
            Ok(Advised::Suggested { suggestion, learned }) => {
                caller.reply(&wire::Reply::Suggest { suggestion: &suggestion, learned })
            }
            Ok(Advised::Learned { learned }) => caller.reply(&wire::Reply::Report { learned }),
            Err(NotAdvised::Refused(error)) => caller.refuse(&refusal(&error)),
            Err(failed) => {
                log::error!("event=advisor_failed why={:?}", failed.to_string());
                caller.refuse(&WireError::new(ErrorCode::Internal, failed.to_string()))
            }
        });
        self.out.extend(replies.map(Output::Reply));
    }
}
