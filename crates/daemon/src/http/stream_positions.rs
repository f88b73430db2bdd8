//! Where each stream is now.

use super::row_buffer::Recent;
use crate::monitor::number;
use serde::Deserialize;
use serde_json::{Value, json};

/// Which critic's states, and which of their variables, as the page asks for them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct NewestQuery {
    /// Name of the critic; the first if left out.
    pub(super) critic: Option<String>,
    pub(super) x: usize,
    pub(super) y: Option<usize>,
}

/// The answer: a JSON list of the streams with a tail, by name, each with its newest state on these axes and whether it is silent.
/// `dim` is the state dimension.
///
/// # Errors
/// A sentence that names what is wrong.
pub(super) fn newest(query: &NewestQuery, recent: &Recent, dim: usize) -> Result<String, String> {
    let axes: Vec<usize> = std::iter::once(query.x).chain(query.y).collect();
    if axes.iter().any(|&axis| axis >= dim) {
        return Err(format!("x and y must be two of the {dim} state variables, counted from 0"));
    }
    let tails = recent.tails();
    let named = tails.named().into_iter().filter(|(_, tail)| tail.newest.len() == dim);
    let one = |(name, tail): (&str, &super::trajectories::Tail)| {
        let at: Vec<Value> = axes.iter().map(|&axis| number(tail.newest[axis])).collect();
        json!({"stream": name, "at": at, "silent": tails.is_silent(tail)})
    };
    Ok(Value::Array(named.map(one).collect()).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learner::window::Window;
    use crate::monitor::testing::{Row, push};

    #[test]
    fn each_stream_has_its_newest_state() {
        let (mut recent, mut window) = (Recent::default(), Window::new(1, 1, 100));
        let row = |stream, state| Row { stream, starts: true, state, reward: 0.0, terminated: false };
        for (stream, state) in [(0, 0.25), (1, 0.5), (0, 0.75)] {
            push(&mut window, &row(stream, state));
        }
        recent.take(&window, &[(0, "b".into()), (1, "a".into())], 0.0);
        push(&mut window, &row(0, 1.0));
        recent.take(&window, &[], 20.0);
        let found: Value = serde_json::from_str(&newest(&NewestQuery::default(), &recent, 1).unwrap()).unwrap();
        let expected = json!([
            {"stream": "a", "at": [0.5], "silent": true},
            {"stream": "b", "at": [1.0], "silent": false},
        ]);
        assert_eq!(found, expected);
        assert!(newest(&NewestQuery { y: Some(1), ..NewestQuery::default() }, &recent, 1).is_err());
    }
}
