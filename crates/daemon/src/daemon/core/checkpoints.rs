//! Checkpoints: who waits for one, and when one is handed out.

use super::caller::{Caller, check_room};
use super::ports::{Now, Output, event};
use crate::daemon::ledger::{CheckpointDone, Ledger};
use crate::journal::checkpoint::Checkpoint;
use crate::state::State;
use crate::wire::{self, ErrorCode, Event, WireError};
use std::collections::HashSet;

/// Requests for a checkpoint that may wait.
const WAITERS_MAX: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct CheckpointDesk {
    /// Those who have asked since the last turn.
    asked: Vec<Caller>,
    /// Those who wait for the checkpoint that is being written.
    waiting: Vec<Caller>,
    /// Those who wait for the one after it.
    waiting_for_next: Vec<Caller>,
}

impl CheckpointDesk {
    /// Let `caller` wait for a checkpoint that covers what was received before.
    ///
    /// # Errors
    /// Why there will be none.
    pub(super) fn ask(&mut self, ledger: Option<&Ledger>, caller: Caller) -> Result<(), WireError> {
        let Some(ledger) = ledger else {
            let message = "there is no journal, and so no checkpoint: `journal` is off in the settings";
            return Err(WireError::new(ErrorCode::NotReady, message));
        };
        if ledger.failure().is_some() {
            return Err(not_storable());
        }
        let waiting = self.asked.iter().chain(&self.waiting).chain(&self.waiting_for_next);
        check_room(&caller, WAITERS_MAX, waiting)?;
        self.asked.push(caller);
        Ok(())
    }

    /// Peers have left: they wait no more.
    pub(super) fn forget(&mut self, gone: &HashSet<u64>) {
        for waiting in [&mut self.asked, &mut self.waiting, &mut self.waiting_for_next] {
            waiting.retain(|caller| !gone.contains(&caller.peer.connection));
        }
    }

    /// What was received before those who have just asked cannot be stored.
    pub(super) fn refuse(&mut self, out: &mut Vec<Output>) {
        out.extend(self.asked.drain(..).map(|caller| Output::Reply(caller.refuse(&not_storable()))));
    }

    /// Answer those for whom the newest checkpoint will do, and hand out one if it is due or waited for. Copying is what this
    /// costs here; encoding and writing is done elsewhere. Nothing is handed out while a critic is `unsettled`: it has failed,
    /// and is about to be rebuilt or given up.
    pub(super) fn act(&mut self, ledger: &mut Ledger, state: &State, unsettled: bool, now: Now, out: &mut Vec<Output>) {
        let asked = std::mem::take(&mut self.asked);
        if let Some(offset) = ledger.checkpoint_is_fresh() {
            let reply = wire::Reply::Checkpoint { offset };
            out.extend(asked.iter().map(|caller| Output::Reply(caller.reply(&reply))));
        } else if ledger.checkpoint_running() {
            // One that is being written does not cover what came since it was begun.
            self.waiting_for_next.extend(asked);
        } else {
            self.waiting.extend(asked);
        }
        let wanted = ledger.checkpoint_due() || (!self.waiting.is_empty() && !ledger.checkpoint_running());
        // A checkpoint must never know more than the journal does.
        if wanted && !unsettled && ledger.sync(now, &|| now.uptime) {
            ledger.checkpoint_started();
            out.push(Output::Checkpoint(Box::new(Checkpoint::of(state, now.unix))));
        }
    }

    /// The checkpoint that was handed out has been written, or has not.
    pub(super) fn written(&mut self, done: &CheckpointDone, now: Now, out: &mut Vec<Output>) {
        let CheckpointDone { offset, seconds, .. } = *done;
        for caller in std::mem::take(&mut self.waiting) {
            out.push(Output::Reply(match &done.result {
                Ok(_) => caller.reply(&wire::Reply::Checkpoint { offset }),
                Err(why) => {
                    let message = format!("the checkpoint could not be written: {why}");
                    caller.refuse(&WireError::new(ErrorCode::Internal, message))
                }
            }));
        }
        if let Ok(bytes) = done.result {
            out.push(event(Event::Checkpoint { offset, bytes, seconds }, now));
        }
        self.waiting = std::mem::take(&mut self.waiting_for_next);
    }
}

fn not_storable() -> WireError {
    WireError::new(ErrorCode::ReadOnly, "nothing can be stored just now")
}
