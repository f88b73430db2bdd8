//! The thread that answers questions to models of the transition, one after the other, of each peer one at a time.

use super::core::Caller;
use super::what_if::{Answer, UnderWay, WhatIfJob};
use crate::panics;
use crate::transport::{Outbox, Reply};
use crate::wire::{self, ErrorCode, WireError};
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Retry time that a peer gets whose request has no place, milliseconds.
const RETRY_MS: u64 = 100;

/// A question, and who asks it.
type Task = (Caller, Box<WhatIfJob>);

/// Where questions are left.
pub(super) struct Questions {
    tasks: Sender<Task>,
    under_way: UnderWay,
}

/// The thread.
pub(super) struct WhatIf {
    tasks: Receiver<Task>,
    under_way: UnderWay,
    replies: Outbox<Reply>,
}

/// Where at most `most` questions are left, and the thread that sends the answers to `replies`. `under_way` are those who ask.
pub(super) fn what_if(most: usize, replies: Outbox<Reply>, under_way: UnderWay) -> (Questions, WhatIf) {
    let (tasks, queue) = bounded(most);
    (Questions { tasks, under_way: Arc::clone(&under_way) }, WhatIf { tasks: queue, under_way, replies })
}

impl Questions {
    /// Leave a question.
    ///
    /// # Errors
    /// The refusal: too many wait, or its sender has one under way.
    pub(super) fn put(&self, caller: Caller, job: Box<WhatIfJob>) -> Result<(), Reply> {
        if !self.under_way.lock().insert(caller.peer.connection) {
            return Err(caller.refuse(&WireError::overloaded(RETRY_MS)));
        }
        match self.tasks.try_send((caller, job)) {
            Err(TrySendError::Full((caller, _)) | TrySendError::Disconnected((caller, _))) => {
                self.under_way.lock().remove(&caller.peer.connection);
                Err(caller.refuse(&WireError::overloaded(RETRY_MS)))
            }
            Ok(()) => Ok(()),
        }
    }
}

impl WhatIf {
    /// Until nobody can ask any more.
    pub(super) fn run(self) {
        // Learning and answering go before what this thread does. Without that things are only slower.
        if let Err(e) = rustix::process::nice(5) {
            log::debug!("event=priority_unchanged why={e}");
        }
        for (caller, job) in &self.tasks {
            // A bug costs this answer, not the daemon.
            let answer = catch_unwind(AssertUnwindSafe(|| job.answer())).unwrap_or_else(|panic| {
                let message = format!("the model of the transition panicked: {}", panics::message(&*panic));
                Err(WireError::new(ErrorCode::Internal, message))
            });
            let reply = match &answer {
                Ok(Answer::Plan(found, model)) => caller.reply(&wire::Reply::Plan { found, model }),
                Ok(Answer::Rollout(found)) => caller.reply(&wire::Reply::Rollout(found)),
                Err(error) => caller.refuse(error),
            };
            self.under_way.lock().remove(&caller.peer.connection);
            // A transport that has ended has no use for it.
            drop(self.replies.send(reply));
        }
    }
}
