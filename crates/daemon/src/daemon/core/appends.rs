//! Appends: answered when their rows are stored, or at once with the reason why they are refused.

use super::Core;
use super::caller::Caller;
use super::ports::{Now, Output, RefusedAppend};
use crate::transition::Batch;
use crate::wire::{self, Origin, WireError};

impl Core {
    /// The newest session of a stream, if the stream is known.
    pub fn session(&self, stream: &str) -> Option<&str> {
        self.state.streams().session(stream)
    }

    /// Take an append in that has waited as it came.
    pub fn append(&mut self, caller: &Caller, payload: &[u8], now: Now) {
        let memory = self.intake.memory();
        let batch = wire::decode_append_into(payload, &self.config.limits.wire(), memory);
        if let Err(error) = batch.and_then(|batch| self.take_append(batch, caller, now)) {
            self.refusals.refuse_append(&error, || wire::origin(payload), payload, now);
            self.out.push(Output::Reply(caller.refuse(&error)));
        }
    }

    /// Count and answer an append that was refused before it came here.
    pub fn refuse_append(&mut self, caller: &Caller, refused: RefusedAppend, now: Now) {
        let RefusedAppend { error, origin, start } = refused;
        self.refusals.refuse_append(&error, || origin, &start, now);
        self.out.push(Output::Reply(caller.refuse(&error)));
    }

    /// Take an append in that has been read. The caller is answered elsewhere if it is refused.
    pub(super) fn append_batch(&mut self, batch: Batch, caller: &Caller, now: Now) -> Result<(), WireError> {
        let (stream, session) = (Some(batch.stream().to_owned()), Some(batch.session().to_owned()));
        let origin = Origin { stream, session, seq: batch.seq(), rows: Some(batch.len()) };
        let taken = self.take_append(batch, caller, now);
        taken.inspect_err(|error| self.refusals.refuse_append(error, || origin, b"", now))
    }

    /// An append is answered when its rows, or those that they repeat, are stored.
    fn take_append(&mut self, batch: Batch, caller: &Caller, now: Now) -> Result<(), WireError> {
        let admitted = self.take(batch, true, now)?;
        self.intake.answer_when_stored(caller.clone(), admitted);
        Ok(())
    }
}
