//! The learner of criticd as a module of Python, `criticd._learner`. `criticd.Learner` is its face: it makes arrays of what it is
//! given, and says what comes back.

mod arrays;
mod fleet;

use arrays::{ArrayColumns, fault};
use criticd_daemon::config::{Config, ConfigError};
use criticd_daemon::fleet::{Epoch, encode_message};
use criticd_daemon::learner::merge::{Message, Version};
use criticd_daemon::local::{Critic, RefitEnd};
use criticd_daemon::snapshot::{Ask, Evaluation, EvaluationScratch};
use criticd_daemon::transition::Batch;
use criticd_daemon::wire::{self, ArrayForm};
use numpy::{PyArray1, PyReadonlyArrayDyn};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::time::Duration;

type Vector<'py> = Bound<'py, PyArray1<f64>>;

/// Settings beside a critic's own that a learner without a daemon takes.
const GENERAL: [&str; 7] =
    ["state_dim", "state_names", "reward_names", "window_rows", "refit_threads", "streams_max", "streams_idle_rows"];
/// How long signals wait at most while a refit is waited for.
const SIGNALS: Duration = Duration::from_millis(50);

/// The settings in `text`, a JSON object of keys as the daemon's configuration has them.
fn configuration(py: Python<'_>, text: &str) -> PyResult<Config> {
    let invalid = |field: &str, why: String| fault(py, Some(field), &why, None);
    let given: toml::Table = serde_json::from_str(text).map_err(|e| invalid("settings", e.to_string()))?;
    let (mut general, critic): (toml::Table, toml::Table) =
        given.into_iter().partition(|(key, _)| GENERAL.contains(&key.as_str()));
    general.insert("critic".into(), toml::Value::Array(vec![critic.into()]));
    Config::from_toml(&general.to_string()).map_err(|error| {
        let plain = |text: &str| text.replace("critic.", "");
        match error {
            ConfigError::Invalid { key, message, .. } => invalid(&plain(&key), plain(&message)),
            ConfigError::UnknownKey { key, suggestion, .. } => {
                let nearest = suggestion.map(|other| format!(", did you mean {other}?"));
                invalid(&plain(&key), format!("is no setting{}", nearest.unwrap_or_default()))
            }
            other => invalid("settings", other.to_string()),
        }
    })
}

/// A critic, and memory that its evaluations work in.
#[pyclass(name = "Critic", module = "criticd._learner")]
struct PyCritic {
    critic: Critic,
    scratch: EvaluationScratch,
    found: Evaluation,
}

impl PyCritic {
    fn of(critic: Critic) -> Self {
        Self { critic, scratch: EvaluationScratch::default(), found: Evaluation::default() }
    }
}

#[pymethods]
impl PyCritic {
    #[new]
    fn new(py: Python<'_>, settings: &str) -> PyResult<Self> {
        Ok(Self::of(Critic::new(configuration(py, settings)?)))
    }

    /// The critic that `written` wrote.
    #[staticmethod]
    fn read(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        Critic::read(bytes).map(Self::of).map_err(|why| fault(py, Some("learner"), &why, None))
    }

    fn written<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.critic.written())
    }

    /// Learn rows. With `single` each array holds one row, without the axis of rows.
    #[pyo3(signature = (stream, single, columns))]
    fn learn(&mut self, py: Python<'_>, stream: &str, single: bool, columns: ArrayColumns<'_>) -> PyResult<()> {
        let parts = columns.fill(py, self.critic.memory(), stream, single)?;
        let batch = Batch::new(parts).map_err(|e| fault(py, Some(e.field), &e.message, e.index))?;
        self.critic.learn(batch).map_err(|e| arrays::refused(py, &e))
    }

    /// Whether rows could be learned, as `learn` takes them; nothing changes.
    fn check(&mut self, py: Python<'_>, stream: &str, columns: ArrayColumns<'_>) -> PyResult<()> {
        let parts = columns.fill(py, self.critic.memory(), stream, false)?;
        let batch = Batch::new(parts).map_err(|e| fault(py, Some(e.field), &e.message, e.index))?;
        self.critic.check_rows(&batch).map_err(|e| arrays::refused(py, &e))
    }

    /// Values (n, H), in the order of columns, and variances (n,) or None, of states (n, D).
    fn value<'py>(
        &mut self,
        py: Python<'py>,
        states: PyReadonlyArrayDyn<'py, f64>,
        variance: bool,
    ) -> PyResult<(Vector<'py>, Option<Vector<'py>>)> {
        let Self { critic, scratch, found } = self;
        let evaluator = critic.evaluator(variance).map_err(|e| arrays::refused(py, &e))?;
        let dim = states.as_array().shape().last().copied().unwrap_or(0);
        let expected = evaluator.snapshot().dim();
        if dim != expected {
            let why = format!("states have {expected} numbers here, these have {dim}");
            return Err(fault(py, Some("states"), &why, None));
        }
        let ask = if variance { Ask::VARIANCE } else { Ask::default() };
        let states = arrays::contiguous(&states);
        evaluator
            .evaluate_into(&states, ask, scratch, found)
            .map_err(|e| fault(py, Some("states"), &e.message, e.index))?;
        let variance = found.variance.as_ref().map(|variance| PyArray1::from_slice(py, variance));
        Ok((PyArray1::from_slice(py, found.mean.as_slice()), variance))
    }

    /// The bytes of a MODEL file.
    fn snapshot<'py>(&mut self, py: Python<'py>, variance: bool) -> PyResult<Bound<'py, PyBytes>> {
        let snapshot = self.critic.snapshot(variance).map_err(|e| arrays::refused(py, &e))?;
        Ok(PyBytes::new(py, &wire::encode_snapshot(snapshot, ArrayForm::Tensor, variance)))
    }

    /// Learn in the epoch of `bytes` from the first row on.
    fn begin(&mut self, py: Python<'_>, bytes: &[u8], generation: u64) -> PyResult<()> {
        let epoch = fleet::epoch(py, bytes)?;
        self.critic.begin(&epoch, generation).map_err(|why| fault(py, Some("epoch"), &why, None))
    }

    /// The epoch that its model is of.
    fn epoch<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let model = self.critic.learner().model().ok_or_else(|| none_yet(py))?;
        Ok(PyBytes::new(py, &Epoch::of(model).written()))
    }

    /// What it has summed up, as a message of a worker to its coordinator.
    fn message<'py>(
        &self,
        py: Python<'py>,
        worker: u32,
        incarnation: u64,
        removals: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let learner = self.critic.learner();
        let (model, told) = learner.model().zip(self.critic.told()).ok_or_else(|| none_yet(py))?;
        let version = Version { incarnation, removals, offset: learner.learned() };
        let message = Message { epoch: model.epoch(), worker, version, sums: told };
        Ok(PyBytes::new(py, &py.detach(|| encode_message(&message))))
    }

    fn request_refit(&mut self, py: Python<'_>) -> PyResult<()> {
        self.critic.request_refit().map_err(|e| arrays::refused(py, &e))
    }

    /// Adopt the model of a refit that has ended.
    fn settle(&mut self) {
        self.critic.settle();
    }

    /// Wait until no refit runs. Other threads may use the critic meanwhile.
    fn wait(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        loop {
            let end = {
                let mut this = slf.try_borrow_mut()?;
                this.critic.settle();
                this.critic.refit_end()
            };
            let Some(end) = end else { return Ok(()) };
            // Nothing is ever sent: it has ended, or time is up.
            let _ended = py.detach(|| end.recv_timeout(SIGNALS));
            py.check_signals()?;
        }
    }

    /// How the last refit ended: its outcome, the generation, and why it was rejected.
    fn outcome(&self) -> Option<(&'static str, u64, Option<String>)> {
        let generation = self.critic.learner().generation();
        self.critic.outcome().map(|outcome| match outcome {
            RefitEnd::Adopted { generation } => ("adopted", *generation, None),
            RefitEnd::Rejected { why } => ("rejected", generation, Some(why.clone())),
        })
    }

    #[getter]
    fn refitting(&self) -> bool {
        self.critic.is_refitting()
    }

    #[getter]
    fn learned(&self) -> u64 {
        self.critic.learner().learned()
    }

    #[getter]
    fn generation(&self) -> u64 {
        self.critic.learner().generation()
    }

    /// Let the refit that runs, if one does, end without a model.
    fn close(&mut self, py: Python<'_>) {
        let critic = &mut self.critic;
        py.detach(|| critic.close());
    }
}

fn none_yet(py: Python<'_>) -> PyErr {
    fault(py, Some("learner"), "has no model yet", None)
}

/// The module.
#[pymodule]
fn _learner(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyCritic>()?;
    module.add_class::<fleet::PyGathered>()?;
    module.add_function(wrap_pyfunction!(fleet::epoch_of_model, module)?)
}
