//! The heads that a `value` request asks for, and their answers, slice by slice.

use crate::board::LearningHeads;
use crate::learner::heads::{Head, HeadEvaluation};
use crate::snapshot::{Ask, Snapshot};
use crate::wire::{ErrorCode, HeadAnswers, HeadNames, WireError};
use nalgebra::DMatrix;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Heads of one model, and their answers so far for the states of a request.
pub(super) struct HeadQuery {
    which: Vec<usize>,
    ask: Ask,
    variance: bool,
    found: HeadEvaluation,
    /// Those that are not ready, by their numbers there.
    late: Vec<usize>,
    learning: Arc<LearningHeads>,
}

impl HeadQuery {
    /// Of the heads of `snapshot` that are named, at `rows` states, of which a request may ask for `most` values.
    ///
    /// # Errors
    /// If there is no such head, or there are too many values.
    pub(super) fn new(
        snapshot: &Snapshot,
        learning: Arc<LearningHeads>,
        names: &HeadNames,
        rows: usize,
        ask: Ask,
        most: usize,
    ) -> Result<Self, WireError> {
        let count = snapshot.all_heads().count();
        let (mut which, mut late) = (Vec::new(), Vec::new());
        match names {
            // Mostly none is late, and names need not be looked up.
            HeadNames::All if learning.names.is_empty() => which.extend(0..count),
            HeadNames::All => {
                which.extend(0..count);
                // The list is a moment older than a model that has just learned them.
                let ready = Places::of(snapshot, &learning).ready;
                let missing = |&place: &usize| !ready.contains_key(learning.names[place].as_str());
                late.extend((0..learning.names.len()).filter(missing));
            }
            HeadNames::These(names) => {
                let places = Places::of(snapshot, &learning);
                for (index, name) in names.iter().enumerate() {
                    if let Some(&place) = places.ready.get(name.as_str()) {
                        which.push(place);
                    } else if let Some(&place) = places.late.get(name.as_str()) {
                        late.push(place);
                    } else {
                        return Err(unknown(snapshot, name).at(index));
                    }
                }
            }
        }
        if rows.saturating_mul(which.len()) > most {
            let text = format!(
                "a request asks for at most {most} values of heads, this one for {} heads at {rows} states",
                which.len()
            );
            return Err(WireError::of(ErrorCode::TooLarge, "heads", text));
        }
        let variance = (ask.variance || ask.returns) && snapshot.has_head_variances();
        let zeros = || DMatrix::zeros(rows, which.len());
        let found = HeadEvaluation { mean: zeros(), variance: variance.then(zeros) };
        Ok(Self { which, ask, variance, found, late, learning })
    }

    /// Multiplications that a state takes, about.
    pub(super) fn work(&self, snapshot: &Snapshot) -> usize {
        let part = |of: &Snapshot| {
            let (m, bases) = (of.dictionary.nrows(), of.heads.as_ref().map_or(0, |heads| heads.bases.len()));
            let spreads = if self.variance { m * (bases * m + 3 * self.which.len()) } else { 0 };
            m * (32 + of.dim() + self.which.len()) + spreads
        };
        part(snapshot) + snapshot.branch.as_deref().map_or(0, part)
    }

    /// Evaluate the states (n, D) numbered `range`, where the model has heads.
    ///
    /// # Errors
    /// If a number is not finite or too large.
    pub(super) fn advance(
        &mut self,
        snapshot: &Snapshot,
        states: &[f64],
        range: Range<usize>,
    ) -> Result<(), WireError> {
        if self.which.is_empty() {
            return Ok(());
        }
        let part = snapshot.evaluate_heads(states, &self.which, self.variance)?;
        let put = |to: &mut DMatrix<f64>, from: &DMatrix<f64>| to.rows_mut(range.start, range.len()).copy_from(from);
        put(&mut self.found.mean, &part.mean);
        if let (Some(to), Some(from)) = (&mut self.found.variance, &part.variance) {
            put(to, from);
        }
        Ok(())
    }

    /// The answers so far, for the reply.
    pub(super) fn answers<'a>(&'a self, snapshot: &'a Snapshot) -> HeadAnswers<'a> {
        let all: Vec<&Head> = snapshot.all_heads().collect();
        let name = |&head: &usize| all[head].name.as_str();
        let LearningHeads { names, share } = &*self.learning;
        let learning = self.late.iter().map(|&place| (names[place].as_str(), *share)).collect();
        let carried = self.found.variance.as_ref().filter(|_| self.ask.returns);
        let (return_variance, verified) = carried
            .map(|variance| {
                let places: Vec<_> = self.which.iter().map(|&head| snapshot.place_of_head(head)).collect();
                let of = |i: usize, c: usize| places[c].1.return_variance(places[c].2, variance[(i, c)]);
                let verified = places.iter().map(|&(_, heads, h)| heads.verified[h]).collect();
                (DMatrix::from_fn(variance.nrows(), variance.ncols(), of), verified)
            })
            .unzip();
        let names = self.which.iter().map(name).collect();
        let variance = self.ask.variance;
        HeadAnswers { names, evaluation: &self.found, variance, return_variance, verified, learning }
    }
}

/// Numbers of heads, by name.
struct Places<'a> {
    ready: HashMap<&'a str, usize>,
    late: HashMap<&'a str, usize>,
}

impl<'a> Places<'a> {
    fn of(snapshot: &'a Snapshot, learning: &'a LearningHeads) -> Self {
        let ready = snapshot.all_heads().map(|head| head.name.as_str());
        let late = learning.names.iter().map(String::as_str);
        Self { ready: ready.zip(0..).collect(), late: late.zip(0..).collect() }
    }
}

/// Why there is no model of one head: it learns, or there is none of this name.
pub(super) fn no_model(snapshot: &Snapshot, learning: &LearningHeads, name: &str) -> WireError {
    if !learning.names.iter().any(|late| late == name) {
        return WireError { field: Some("head"), ..unknown(snapshot, name) };
    }
    let learned = 100.0 * learning.share;
    let message =
        format!("head \"{name}\" of critic \"{}\" has learned {learned:.0} % of the rows so far", snapshot.critic);
    WireError::of(ErrorCode::NotReady, "head", message)
}

/// Why a head cannot answer.
fn unknown(snapshot: &Snapshot, name: &str) -> WireError {
    /// Heads that are named.
    const NAMED: usize = 10;
    let known: Vec<&str> = snapshot.all_heads().take(NAMED + 1).map(|head| head.name.as_str()).collect();
    let more = if known.len() > NAMED { ", ..." } else { "" };
    let there = if known.is_empty() {
        "it has none".to_owned()
    } else {
        format!("it has {}{more}", known[..known.len().min(NAMED)].join(", "))
    };
    let message = format!("critic \"{}\" has no head \"{name}\"; {there}", snapshot.critic);
    WireError::of(ErrorCode::OutOfRange, "heads", message)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SHARE, control};
    use super::*;
    use crate::access::Rights;
    use crate::clock::Now;
    use crate::config::Config;
    use crate::daemon::core::Core;
    use crate::transport::turns::turns;
    use crate::transport::{self, Outbox, Peer, Request};
    use crate::wire;
    use criticd_sim::{self as sim, Step, walk::Walk};
    use serde_json::{Value, json};
    use std::time::Instant;

    #[test]
    fn the_model_of_a_head_that_learns_is_not_ready() {
        let given = "heads = [{ name = \"given\", cumulant = { kind = \"reward\", index = 0 }, discount = 0.5 }]";
        let text = format!("[[critic]]\nname = \"main\"\nwarmup_rows = 20\nrefit_first_rows = 0\n{given}\n");
        let config = Arc::new(Config::from_toml(&text).unwrap());
        let mut core = Core::new(Arc::clone(&config));
        let mut walk = Walk::new(1, Some(25), 0.0);
        let steps: Vec<Step> = (0..100).map(|_| walk.step()).collect();
        let now = Now { uptime: 1.0, unix: 1e9 };
        sim::batches("walk", "", &steps).iter().for_each(|batch| core.ingest(&wire::encode_ingest(batch), now));
        core.step(now);
        core.refresh(now, &|| now);
        let board = core.board();
        let (replies, mut answers) = Outbox::new(100, 1 << 20);
        let (mut control, _) = control(turns(SHARE).1, replies, Arc::clone(&board), config);
        let mut ask = |op: &str, fields: Value| {
            let payload = wire::encode_request(1, op, fields.as_object().unwrap()).into();
            let peer = Peer { connection: transport::peer_number(1, Rights::ALL), delimiter: false };
            control.handle(Request { peer, payload, since: Instant::now() });
            wire::to_json(&answers.try_recv().expect("an answer").payload).unwrap()
        };
        board.set_learning(0, LearningHeads { names: vec!["late".to_owned()], share: 0.25 });
        let values = ask("value", json!({"states": [[0.5]], "heads": ["given", "late"], "arrays": "list"}));
        assert_eq!(
            (&values["heads"]["names"], &values["heads"]["learning"]["late"]),
            (&json!(["given"]), &json!(0.25))
        );
        let refused = |answer: &Value| {
            let said = |key: &str| answer["error"][key].as_str().unwrap_or_default().to_owned();
            (said("code"), said("field"), said("message"))
        };
        let (code, field, message) = refused(&ask("snapshot", json!({"head": "late"})));
        assert_eq!((code.as_str(), field.as_str()), ("not_ready", "head"));
        assert_eq!(message, "head \"late\" of critic \"main\" has learned 25 % of the rows so far");
        let (code, field, message) = refused(&ask("snapshot", json!({"head": "none"})));
        assert_eq!((code.as_str(), field.as_str()), ("out_of_range", "head"));
        assert!(message.contains("no head \"none\"; it has given"), "{message}");
        assert_eq!(ask("snapshot", json!({"head": "given"}))["head"], "given");
        // The list is a moment older than a model that has just learned it.
        board.set_learning(0, LearningHeads { names: vec!["given".to_owned()], share: 1.0 });
        assert_eq!(ask("snapshot", json!({"head": "given"}))["head"], "given");
    }
}
