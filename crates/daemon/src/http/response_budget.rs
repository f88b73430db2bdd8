//! Answers that wait for browsers, bounded in bytes.

use super::connection_slots::PLACES;
use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a request's head.
pub(super) const HEAD_BYTES: usize = 16 << 10;
/// Bytes up to which an answer is not counted: each connection may have one.
const SHORT_BYTES: usize = 64 << 10;
/// Bytes of longer answers, all together: of those to open pages, and of metrics; one of each may exceed it.
const BYTES_MAX: usize = 4 << 20;
/// The longest answers there are take about so much: the past of a critic, and the state of a hundred.
const LONGEST: usize = 2 << 20;

/// Bytes that wait at most: of each connection the head of a request, what the server writes at a time, and a short answer; the longer
/// ones, with those that exceed their bound; and the one that is being made.
pub(super) const WAITING_BYTES: usize = PLACES * (2 * HEAD_BYTES + SHORT_BYTES) + 2 * (BYTES_MAX + LONGEST) + LONGEST;

/// The server is busy.
pub(super) fn busy(what: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], format!("{what}\n")).into_response()
}

/// Long answers that wait now.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitingAnswers(Arc<AtomicUsize>);

impl WaitingAnswers {
    /// Nothing yet, of what will be counted here.
    pub(super) fn begin(&self) -> CountedAnswer {
        CountedAnswer { all: self.clone(), bytes: 0 }
    }
}

/// What counts among what waits, until this is dropped.
#[derive(Debug)]
pub(super) struct CountedAnswer {
    all: WaitingAnswers,
    bytes: usize,
}

impl CountedAnswer {
    /// Let it be `bytes`, if there is room for them; nothing is counted else.
    pub(super) fn set(&mut self, bytes: usize) -> bool {
        let others = self.all.0.fetch_sub(self.bytes, Ordering::Relaxed) - self.bytes;
        let fits = others == 0 || others + bytes <= BYTES_MAX;
        self.bytes = if fits && bytes > SHORT_BYTES { bytes } else { 0 };
        self.all.0.fetch_add(self.bytes, Ordering::Relaxed);
        fits || bytes <= SHORT_BYTES
    }

    /// These bytes, which count until they have been taken.
    pub(super) fn of(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(BudgetedAnswer { bytes, _counted: self })
    }
}

impl Drop for CountedAnswer {
    fn drop(&mut self) {
        self.all.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// An answer that counts until it has been taken.
struct BudgetedAnswer {
    bytes: Bytes,
    _counted: CountedAnswer,
}

impl AsRef<[u8]> for BudgetedAnswer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Count an answer, or answer that there is no room for it.
pub(super) async fn count(State(waiting): State<WaitingAnswers>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    // Events that go on and on have no length. They count for themselves.
    let Some(length) = response.body().size_hint().exact() else { return response };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length <= SHORT_BYTES {
        return response;
    }
    let mut counted = waiting.begin();
    if !counted.set(length) {
        return busy("too many answers wait for browsers that do not take them");
    }
    let (parts, body) = response.into_parts();
    match to_bytes(body, length).await {
        Ok(bytes) => Response::from_parts(parts, Body::from(counted.of(bytes))),
        Err(_) => busy("the answer could not be made"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_answers_have_room_until_others_take_it() {
        let all = WaitingAnswers::default();
        let (mut one, mut other) = (all.begin(), all.begin());
        assert!(one.set(BYTES_MAX + 1), "one may be longer than all may be");
        assert!(!other.set(SHORT_BYTES + 1) && other.set(SHORT_BYTES), "a short one has its place");
        assert!(one.set(SHORT_BYTES + 1) && other.set(BYTES_MAX - SHORT_BYTES - 1));
        let answer = one.of(Bytes::from_static(b"some of it"));
        assert!(answer.slice(1..) == b"ome of it"[..] && all.0.load(Ordering::Relaxed) == BYTES_MAX);
        drop(answer);
        assert_eq!(all.0.load(Ordering::Relaxed), BYTES_MAX - SHORT_BYTES - 1);
        drop(other);
        assert_eq!(all.0.load(Ordering::Relaxed), 0);
    }
}
