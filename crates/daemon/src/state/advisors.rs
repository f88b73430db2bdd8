//! The advisors of a state, and how the requests that the journal records change them.

use super::record::{Advice, AdviceRequest};
use crate::learner::suggest::{Advisor, AdvisorSettings, SuggestError, Suggestion};
use crate::panics;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The answer of an advisor.
#[derive(Clone, Debug, PartialEq)]
pub enum Advised {
    /// A decision.
    Suggested {
        /// The decision.
        suggestion: Suggestion,
        /// Costs learned before it.
        learned: u64,
    },
    /// A cost has been learned.
    Learned {
        /// Costs learned so far.
        learned: u64,
    },
}

/// Why an advisor did not do what a request asks.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NotAdvised {
    /// It refused. Nothing has changed.
    #[error("{0}")]
    Refused(SuggestError),
    /// It failed, and has begun again without anything learned.
    #[error("the advisor failed and begins again: {0}")]
    Failed(String),
}

/// Let an advisor do what a request asks.
///
/// # Errors
/// If there is no advisor of that name.
pub(super) fn advise(advisors: &mut [Advisor], advice: Advice) -> Result<Result<Advised, NotAdvised>, String> {
    let Advice { advisor: name, request } = advice;
    let advisor = advisors.iter_mut().find(|advisor| advisor.settings().name == name);
    let advisor = advisor.ok_or_else(|| format!("a request to {name:?}, which is no advisor"))?;
    let answer = || match request {
        AdviceRequest::Suggest { context } => {
            let learned = advisor.learned();
            advisor.suggest(&context).map(|suggestion| Advised::Suggested { suggestion, learned })
        }
        AdviceRequest::Report { decision_id, cost } => {
            advisor.report(decision_id, cost).map(|()| Advised::Learned { learned: advisor.learned() })
        }
    };
    // A panic may have left anything of it, and a start would meet the same record.
    match catch_unwind(AssertUnwindSafe(answer)) {
        Ok(answer) => Ok(answer.map_err(NotAdvised::Refused)),
        Err(panic) => {
            let why = panics::message(&*panic);
            *advisor = Advisor::new(advisor.settings().clone()).map_err(|e| e.to_string())?;
            Ok(Err(NotAdvised::Failed(why)))
        }
    }
}

/// The advisors after a change of settings: those that can go on do, the others begin again.
///
/// # Errors
/// Settings with which no advisor can work.
pub(super) fn configure(old: Vec<Advisor>, settings: &[AdvisorSettings]) -> Result<Vec<Advisor>, String> {
    let mut old = old;
    let next = |settings: &AdvisorSettings| {
        let same =
            |advisor: &Advisor| advisor.settings().name == settings.name && settings.goes_on_from(advisor.settings());
        match old.iter().position(same) {
            Some(index) => {
                let mut advisor = old.swap_remove(index);
                advisor.set_settings(settings.clone());
                Ok(advisor)
            }
            None => Advisor::new(settings.clone()).map_err(|e| format!("advisor {:?}: {e}", settings.name)),
        }
    };
    settings.iter().map(next).collect()
}
