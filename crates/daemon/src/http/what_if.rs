//! Questions of the page to models of the transition: what the robot would do for a reward, and where it will be. The core hands them to the
//! thread that answers such questions of peers. One of all pages is under way at a time, and the last answers stay.

use super::query_budget::Refusal;
use super::what_if_query::Asking;
use crate::snapshot::Snapshot;
use crate::wire::{self, ErrorCode, Op, WireError};
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A page that has not asked for its answer for this long has left.
const LEFT: Duration = Duration::from_secs(3);
/// Answers that stay.
pub(super) const ANSWERS: usize = 4;

/// What a page asks the core.
#[derive(Debug)]
pub struct PageQuestion {
    /// `plan` or `rollout`, as a peer asks for it.
    pub op: Op,
    /// Who asks.
    pub page: WaitingPage,
}

/// A page that waits for an answer.
#[derive(Debug)]
pub struct WaitingPage {
    /// When it asked last.
    asked: Arc<Mutex<Instant>>,
    answer: Sender<Result<WhatIfFound, WireError>>,
}

/// What is found: what a peer is answered, and of a plan the values of actions.
#[derive(Clone, Debug)]
pub struct WhatIfFound {
    /// As `plan` and `rollout` have it.
    pub document: Value,
    /// None of a course.
    pub model: Option<Arc<Snapshot>>,
}

impl WaitingPage {
    /// Whether it is still there.
    pub fn is_waiting(&self) -> bool {
        self.asked.lock().elapsed() < LEFT
    }

    /// Answer it.
    pub fn answer(self, found: Result<WhatIfFound, WireError>) {
        // The watcher may have ended.
        drop(self.answer.send(found));
    }
}

/// What a page hears in place of an answer.
fn refusal(error: &WireError) -> Refusal {
    let of = error.field.map(|field| format!("{field}: ")).unwrap_or_default();
    Refusal::Invalid(format!("{of}{}", error.message))
}

/// An answer, and the generation and the rows of the model when it was asked for.
#[derive(Debug)]
struct KnownAnswer {
    asking: Asking,
    at: (u64, u64),
    answer: Result<WhatIfFound, Refusal>,
    known_at: Instant,
}

impl KnownAnswer {
    /// Whether the critic is about what it was then: a young model learns much with every row. A refusal may be over sooner.
    fn is_fresh(&self, (generation, learned): (u64, u64)) -> bool {
        let stands = self.answer.is_ok() || self.known_at.elapsed() < LEFT;
        stands && self.at.0 == generation && 4 * learned <= 5 * self.at.1
    }
}

/// What has been put to the core.
#[derive(Debug)]
struct AskingUnderWay {
    asking: Asking,
    at: (u64, u64),
    asked: Arc<Mutex<Instant>>,
    answer: Receiver<Result<WhatIfFound, WireError>>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct WhatIf {
    core: Sender<PageQuestion>,
    limits: wire::Limits,
    /// Oldest first.
    known: VecDeque<KnownAnswer>,
    running: Option<AskingUnderWay>,
    /// What is asked next, of which generation and rows, and when it was asked last.
    wanted: Option<(Asking, (u64, u64), Instant)>,
}

impl WhatIf {
    pub(super) fn new(core: Sender<PageQuestion>, limits: wire::Limits) -> Self {
        Self { core, limits, known: VecDeque::new(), running: None, wanted: None }
    }

    /// The answer, of a model that has about the rows of the present one (`at`: its generation and its rows); an older one while a new
    /// one is worked out.
    ///
    /// # Errors
    /// [`Refusal::Later`] while there is none; `Invalid` where it is refused.
    pub(super) fn ask(&mut self, asking: Asking, at: (u64, u64)) -> Result<WhatIfFound, Refusal> {
        asking.read(&self.limits).map_err(|error| refusal(&error))?;
        self.settle();
        // What is read again stays longest.
        if let Some(place) = self.known.iter().position(|known| known.asking == asking) {
            let known = self.known.remove(place).expect("it was found there");
            self.known.push_back(known);
        }
        let known = self.known.back().filter(|known| known.asking == asking);
        if let Some(fresh) = known.filter(|known| known.is_fresh(at)) {
            let answer = fresh.answer.clone();
            self.begin();
            return answer;
        }
        let older = known.and_then(|known| known.answer.clone().ok());
        // A page that waits for its turn keeps it as long as it asks; the others ask again.
        let waits = |(of, _, asked): &(Asking, (u64, u64), Instant)| *of != asking && asked.elapsed() < LEFT;
        match &self.running {
            Some(running) if running.asking == asking => *running.asked.lock() = Instant::now(),
            _ if self.wanted.as_ref().is_some_and(waits) => {}
            _ => self.wanted = Some((asking.clone(), at, Instant::now())),
        }
        self.begin();
        let under_way = self.running.as_ref().is_some_and(|running| running.asking == asking);
        let words = if under_way { "being worked out" } else { "questions of others are answered first" };
        older.ok_or_else(|| Refusal::Later(words.to_owned()))
    }

    /// Take in what has been answered.
    fn settle(&mut self) {
        let answer = match self.running.as_ref().map(|running| running.answer.try_recv()) {
            None | Some(Err(TryRecvError::Empty)) => return,
            Some(Ok(answer)) => Some(answer),
            // The thread dropped the question, since the page that asked had left.
            Some(Err(TryRecvError::Disconnected)) => None,
        };
        let (Some(AskingUnderWay { asking, at, .. }), Some(answer)) = (self.running.take(), answer) else { return };
        if answer.as_ref().is_err_and(|error| error.code == ErrorCode::Overloaded) {
            // Peers have all places: who asks again has another try.
            return;
        }
        self.known.retain(|known| known.asking != asking);
        let answer = answer.map_err(|error| refusal(&error));
        self.known.push_back(KnownAnswer { asking, at, answer, known_at: Instant::now() });
        while self.known.len() > ANSWERS {
            self.known.pop_front();
        }
    }

    /// Put what is wanted to the core, unless something is under way, or who asked has left.
    fn begin(&mut self) {
        if self.running.is_some() {
            return;
        }
        let wanted = self.wanted.take().filter(|(.., asked)| asked.elapsed() < LEFT);
        let Some((asking, at, asked)) = wanted else { return };
        let Ok(op) = asking.read(&self.limits) else { return };
        let ((sender, answer), asked) = (bounded(1), Arc::new(Mutex::new(asked)));
        let page = WaitingPage { asked: Arc::clone(&asked), answer: sender };
        // A core that has ended answers nothing: the page hears that the daemon is away.
        if self.core.try_send(PageQuestion { op, page }).is_ok() {
            self.running = Some(AskingUnderWay { asking, at, asked, answer });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::map::tests::model;
    use super::super::what_if_query::PlanQuery;
    use super::*;
    use crate::wire::PlanRequest;
    use serde_json::json;

    fn plan(reward: &str) -> Asking {
        PlanQuery { reward: Some(reward.to_owned()), ..PlanQuery::default() }.asking("q")
    }

    fn found(rows: u64) -> WhatIfFound {
        WhatIfFound { document: json!({ "offset": rows }), model: Some(Arc::new(model(2))) }
    }

    fn desk() -> (WhatIf, Receiver<PageQuestion>) {
        let (core, asked) = bounded(1);
        (WhatIf::new(core, wire::Limits::default()), asked)
    }

    fn reward(question: &PageQuestion) -> &str {
        match &question.op {
            Op::Plan(PlanRequest { reward: Some(reward), .. }) => reward,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn pages_are_answered_in_turn_and_by_what_is_known() {
        let (mut desk, core) = desk();
        let later = |answer: Result<WhatIfFound, Refusal>| matches!(answer, Err(Refusal::Later(_)));
        assert!(later(desk.ask(plan("a"), (1, 100))) && later(desk.ask(plan("b"), (1, 100))));
        let first = core.try_recv().unwrap();
        assert!(reward(&first) == "a" && core.is_empty(), "one at a time");
        first.page.answer(Ok(found(100)));
        assert_eq!(desk.ask(plan("a"), (1, 125)).unwrap().document["offset"], 100);
        // What others have asked since has begun.
        let second = core.try_recv().unwrap();
        assert_eq!(reward(&second), "b");
        second.page.answer(Err(WireError::of(ErrorCode::OutOfRange, "reward", "b is unknown")));
        assert_eq!(desk.ask(plan("b"), (1, 125)).unwrap_err(), Refusal::Invalid("reward: b is unknown".to_owned()));
        // Another generation, or a quarter more rows: the older answer while there is none of these.
        for (at, rows) in [((1, 126), 126), ((2, 126), 127)] {
            assert!(desk.ask(plan("a"), at).is_ok());
            core.try_recv().unwrap().page.answer(Ok(found(rows)));
            assert_eq!(desk.ask(plan("a"), at).unwrap().document["offset"], rows);
        }
        assert!(later(desk.ask(plan("b"), (2, 126))), "a refusal is not repeated of another model");
    }

    #[test]
    fn who_has_left_is_not_waited_for() {
        let (mut desk, core) = desk();
        assert!(desk.ask(plan("a"), (1, 1)).is_err() && desk.ask(plan("b"), (1, 1)).is_err());
        let first = core.try_recv().unwrap();
        assert!(first.page.is_waiting());
        *desk.running.as_ref().unwrap().asked.lock() -= 2 * LEFT;
        assert!(!first.page.is_waiting());
        // The thread drops the question of a page that has left.
        drop(first);
        desk.wanted.as_mut().unwrap().2 -= 2 * LEFT;
        assert!(desk.ask(plan("c"), (1, 1)).is_err());
        assert_eq!(reward(&core.try_recv().unwrap()), "c", "b has left too");
    }

    #[test]
    fn who_waits_keeps_the_turn_and_what_is_read_stays() {
        let (mut desk, core) = desk();
        for reward in ["a", "b", "c"] {
            assert!(desk.ask(plan(reward), (1, 1)).is_err());
        }
        core.try_recv().unwrap().page.answer(Ok(found(1)));
        assert!(desk.ask(plan("a"), (1, 1)).is_ok());
        let second = core.try_recv().unwrap();
        assert_eq!(reward(&second), "b", "c has come later");
        second.page.answer(Ok(found(2)));
        for reward in ["c", "d", "e"] {
            assert!(desk.ask(plan(reward), (1, 1)).is_err());
            core.try_recv().unwrap().page.answer(Ok(found(3)));
            // All the while somebody reads a.
            assert!(desk.ask(plan(reward), (1, 1)).is_ok() && desk.ask(plan("a"), (1, 1)).is_ok());
        }
        assert!(desk.ask(plan("b"), (1, 1)).is_err(), "four later answers have taken its place");
    }

    #[test]
    fn a_full_daemon_is_asked_again_and_what_is_wrong_is_not_asked() {
        let (mut desk, core) = desk();
        assert!(desk.ask(plan("a"), (1, 1)).is_err());
        core.try_recv().unwrap().page.answer(Err(WireError::overloaded(1)));
        assert!(matches!(desk.ask(plan("a"), (1, 1)), Err(Refusal::Later(_))));
        assert_eq!(reward(&core.try_recv().unwrap()), "a");
        let wrong = PlanQuery { discount: Some(1.0), ..PlanQuery::default() }.asking("q");
        assert!(
            matches!(desk.ask(wrong, (1, 1)), Err(Refusal::Invalid(why)) if why.starts_with("discount: lies from 0"))
        );
        assert!(core.is_empty());
    }
}
