//! Columns of rows as arrays, and faults as exceptions.

use criticd_daemon::transition::BatchParts;
use criticd_daemon::wire::WireError;
use numpy::{PyReadonlyArrayDyn, PyUntypedArrayMethods as _};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::IntoPyDict as _;
use std::borrow::Cow;

type Numbers<'py> = PyReadonlyArrayDyn<'py, f64>;
type Flags<'py> = PyReadonlyArrayDyn<'py, bool>;

/// `criticd.Invalid` with these arguments.
pub(crate) fn fault(py: Python<'_>, field: Option<&str>, message: &str, index: Option<usize>) -> PyErr {
    raised(py, "Invalid", (field.unwrap_or("rows"), message, index))
}

/// What the daemon would answer: `criticd.Invalid` where a field is at fault, else `criticd.Refused`.
pub(crate) fn refused(py: Python<'_>, error: &WireError) -> PyErr {
    match error.field {
        Some(field) => fault(py, Some(field), &error.message, error.index),
        None => match [("code", error.code.name()), ("message", &error.message)].into_py_dict(py) {
            Ok(reply) => raised(py, "Refused", (reply,)),
            Err(error) => error,
        },
    }
}

fn raised<'py>(py: Python<'py>, class: &str, arguments: impl pyo3::call::PyCallArgs<'py>) -> PyErr {
    static PROTOCOL: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = PROTOCOL.get_or_try_init(py, || py.import("criticd._protocol").map(Bound::unbind));
    let made = module.and_then(|module| module.bind(py).getattr(class)?.call1(arguments));
    made.map_or_else(|error| error, PyErr::from_value)
}

/// The numbers of an array, row by row: as they lie, where they lie so.
pub(crate) fn contiguous<'a>(array: &'a Numbers<'_>) -> Cow<'a, [f64]> {
    match array.as_slice() {
        Ok(slice) if array.is_c_contiguous() => Cow::Borrowed(slice),
        _ => Cow::Owned(array.as_array().iter().copied().collect()),
    }
}

/// The columns of rows, by their names in `criticd.Learner.learn`; those that are missing are None.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ArrayColumns<'py> {
    states: Numbers<'py>,
    rewards: Numbers<'py>,
    next_states: Option<Numbers<'py>>,
    terminated: Option<Flags<'py>>,
    truncated: Option<Flags<'py>>,
    actions: Option<Numbers<'py>>,
    discounts: Option<Numbers<'py>>,
    times: Option<Numbers<'py>>,
    behavior_probs: Option<Numbers<'py>>,
    target_probs: Option<Numbers<'py>>,
    next_actions: Option<Numbers<'py>>,
    next_action_probs: Option<Numbers<'py>>,
    policy: Option<String>,
}

/// Of which columns a row has several numbers.
#[derive(Clone, Copy, PartialEq)]
enum Width {
    /// Always.
    Many,
    /// It may be one, without an axis.
    Any,
    /// Never.
    One,
}

/// The shape that arrays must have.
struct ArrayShape<'py> {
    py: Python<'py>,
    /// Rows, where that is known.
    rows: Option<usize>,
    single: bool,
}

impl ArrayShape<'_> {
    /// Rows and numbers of a row of an array of this shape.
    fn of(&self, name: &'static str, shape: &[usize], width: Width) -> PyResult<(usize, usize)> {
        let (rows, rest) = match (self.single, shape) {
            (true, rest) => (1, rest),
            (false, [rows, rest @ ..]) => (*rows, rest),
            (false, []) => (usize::MAX, shape),
        };
        let numbers = match (rest, width) {
            ([], Width::Any | Width::One) => Some(1),
            ([numbers], Width::Any | Width::Many) => Some(*numbers),
            _ => None,
        };
        let fits = self.rows.is_none_or(|known| known == rows) && rows != usize::MAX;
        numbers.filter(|_| fits).map(|numbers| (rows, numbers)).ok_or_else(|| {
            let n = self.rows.map_or("n".to_owned(), |rows| rows.to_string());
            let wanted = match (self.single, width) {
                (true, Width::Many) => "(K,)".to_owned(),
                (true, Width::Any) => "one number or (K,)".to_owned(),
                (true, Width::One) => "one".to_owned(),
                (false, Width::Many) => format!("({n}, K)"),
                (false, Width::Any) => format!("({n},) or ({n}, K)"),
                (false, Width::One) => format!("({n},)"),
            };
            fault(self.py, Some(name), &format!("must be {wanted}, is {shape:?}"), None)
        })
    }

    fn fill(
        &self,
        name: &'static str,
        array: &Numbers<'_>,
        width: Width,
        out: &mut Vec<f64>,
    ) -> PyResult<(usize, usize)> {
        let found = self.of(name, array.shape(), width)?;
        out.clear();
        out.extend_from_slice(&contiguous(array));
        Ok(found)
    }

    fn optional(
        &self,
        name: &'static str,
        array: Option<&Numbers<'_>>,
        width: Width,
        out: &mut Option<Vec<f64>>,
    ) -> PyResult<()> {
        match array {
            None => *out = None,
            Some(array) => drop(self.fill(name, array, width, out.get_or_insert_default())?),
        }
        Ok(())
    }

    fn flags(&self, name: &'static str, array: Option<&Flags<'_>>, out: &mut Option<Vec<bool>>) -> PyResult<()> {
        let Some(array) = array else {
            *out = None;
            return Ok(());
        };
        self.of(name, array.shape(), Width::One)?;
        let out = out.get_or_insert_default();
        out.clear();
        out.extend(array.as_array().iter().copied());
        Ok(())
    }
}

impl ArrayColumns<'_> {
    /// Rows of `stream` in the memory of `parts`.
    pub(crate) fn fill(
        &self,
        py: Python<'_>,
        mut parts: BatchParts,
        stream: &str,
        single: bool,
    ) -> PyResult<BatchParts> {
        let any = ArrayShape { py, rows: None, single };
        let (rows, rewards) = any.fill("rewards", &self.rewards, Width::Any, &mut parts.rewards)?;
        let shape = ArrayShape { rows: Some(rows), ..any };
        // Without their successors the states of a trajectory are one more.
        let states = if self.next_states.is_some() { rows } else { rows + 1 };
        let of_states = ArrayShape { py, rows: Some(states), single: single && self.next_states.is_some() };
        let (_, dim) = of_states.fill("states", &self.states, Width::Many, &mut parts.states)?;
        shape.optional("next_states", self.next_states.as_ref(), Width::Many, &mut parts.next_states)?;
        shape.flags("terminated", self.terminated.as_ref(), &mut parts.terminated)?;
        shape.flags("truncated", self.truncated.as_ref(), &mut parts.truncated)?;
        shape.optional("actions", self.actions.as_ref(), Width::Any, &mut parts.actions)?;
        shape.optional("discounts", self.discounts.as_ref(), Width::One, &mut parts.discounts)?;
        shape.optional("times", self.times.as_ref(), Width::One, &mut parts.times)?;
        shape.optional("behavior_probs", self.behavior_probs.as_ref(), Width::One, &mut parts.behavior_probs)?;
        shape.optional("target_probs", self.target_probs.as_ref(), Width::One, &mut parts.target_probs)?;
        shape.optional("next_actions", self.next_actions.as_ref(), Width::Any, &mut parts.next_actions)?;
        shape.optional(
            "next_action_probs",
            self.next_action_probs.as_ref(),
            Width::Many,
            &mut parts.next_action_probs,
        )?;
        parts.stream.clear();
        parts.stream.push_str(stream);
        parts.session.clear();
        parts.policy.clone_from(&self.policy);
        Ok(BatchParts { seq: None, dim, rewards_per_row: rewards, single: false, ..parts })
    }
}
