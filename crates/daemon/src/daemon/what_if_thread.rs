//! The thread that answers questions to models of the transition, one after the other, of each peer one at a time.

use super::core::Asker;
use super::what_if::{Answer, UnderWay, WhatIfJob};
use crate::http::WhatIfFound;
use crate::panics;
use crate::transport::{Outbox, Reply};
use crate::wire::{self, ArrayForm, ErrorCode, WireError, encode_snapshot};
use crossbeam_channel::Receiver;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A question, and who asks it.
pub(super) type Task = (Asker, Box<WhatIfJob>);

/// The thread.
pub(super) struct WhatIf {
    /// The core hands out no more than have a place.
    pub(super) tasks: Receiver<Task>,
    /// Who has one.
    pub(super) under_way: UnderWay,
    pub(super) replies: Outbox<Reply>,
}

impl WhatIf {
    /// Answer until the core has ended. Somebody waits for each answer, which takes some hundredths of a second: refits stand back for it,
    /// and learning does not.
    pub(super) fn run(self) {
        for (asker, mut job) in &self.tasks {
            let connection = asker.connection();
            if !self.under_way.is_waiting(connection) || !asker.is_there() {
                self.under_way.end(connection);
                continue;
            }
            // A bug costs this answer, not the daemon.
            let answer = catch_unwind(AssertUnwindSafe(|| job.answer())).unwrap_or_else(|panic| {
                let message = format!("the model of the transition panicked: {}", panics::message(&*panic));
                Err(WireError::new(ErrorCode::Internal, message))
            });
            let caller = match asker {
                Asker::Peer(caller) => caller,
                Asker::Page(page) => {
                    self.under_way.end(connection);
                    page.answer(answer.map(found));
                    continue;
                }
            };
            let reply = match &answer {
                Ok(Answer::Plan(found, model)) => {
                    let model = &encode_snapshot(model, ArrayForm::Tensor, true);
                    caller.reply(&wire::Reply::Plan { found, model })
                }
                Ok(Answer::Rollout(found)) => caller.reply(&wire::Reply::Rollout(found)),
                Err(error) => caller.refuse(error),
            };
            self.under_way.end(connection);
            // A transport that has ended has no use for it.
            drop(self.replies.send(reply));
        }
    }
}

/// What a page gets.
fn found(answer: Answer) -> WhatIfFound {
    match answer {
        Answer::Plan(document, model) => WhatIfFound { document, model: Some(Arc::from(model)) },
        Answer::Rollout(document) => WhatIfFound { document, model: None },
    }
}
