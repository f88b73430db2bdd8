//! Coordinators of fleets: `criticd.fleet` is their face.

use crate::arrays::{fault, refused};
use criticd_daemon::fleet::{Epoch, Gathered, SUMS, decode_message};
use criticd_daemon::learner::merge::MessageVerdict;
use criticd_daemon::local::{LEARNER, part_of_model};
use criticd_daemon::snapshot::Snapshot;
use criticd_daemon::wire::{self, ArrayForm, ErrorCode, WireError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::BTreeMap;

/// Incarnation, removals and offset.
type Version = (u64, u64, u64);
/// A message that is held: worker, version, rows, and where its streams stand.
type Held = (u32, Version, u64, BTreeMap<String, u64>);

fn version(of: criticd_daemon::learner::merge::Version) -> Version {
    (of.incarnation, of.removals, of.offset)
}

/// The epoch of `bytes`.
pub(crate) fn epoch(py: Python<'_>, bytes: &[u8]) -> PyResult<Epoch> {
    Epoch::read(bytes).map_err(|why| fault(py, Some("epoch"), &why, None))
}

fn unsolved(py: Python<'_>, why: impl std::fmt::Display) -> PyErr {
    refused(py, &WireError::new(ErrorCode::Internal, why.to_string()))
}

/// The newest message of each worker, and the model of all of them.
#[pyclass(name = "Gathered", module = "criticd._learner")]
pub(crate) struct PyGathered(Gathered);

#[pymethods]
impl PyGathered {
    #[new]
    fn new(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        Ok(Self(Gathered::new(epoch(py, bytes)?)))
    }

    /// What `written` wrote.
    #[staticmethod]
    fn read(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        Gathered::read(bytes).map(Self).map_err(|why| fault(py, Some("coordinator"), &why, None))
    }

    fn written<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.written())
    }

    /// The number of the epoch.
    #[getter]
    fn epoch(&self) -> u64 {
        self.0.held().epoch()
    }

    /// Take a message: the verdict, and the version that is held of its worker.
    fn take(&mut self, py: Python<'_>, message: &[u8]) -> PyResult<(&'static str, Option<Version>)> {
        let message = decode_message(message).map_err(|why| fault(py, Some("message"), &why, None))?;
        let worker = message.worker;
        let verdict = self.0.take(message).map_err(|why| fault(py, Some("message"), &why.to_string(), None))?;
        let name = match verdict {
            MessageVerdict::Accepted => "accepted",
            MessageVerdict::WrongEpoch { .. } => "wrong epoch",
            MessageVerdict::NotNewer { .. } => "not newer",
        };
        Ok((name, self.0.held().version(worker).map(version)))
    }

    /// What is held.
    fn held(&self) -> Vec<Held> {
        let of = self.0.held().held();
        of.map(|(worker, at, told)| (worker, version(at), told.rows(), told.streams.clone())).collect()
    }

    /// Forget what a worker has said; whether it had said something.
    fn dismiss(&mut self, worker: u32) -> bool {
        self.0.dismiss(worker)
    }

    /// The bytes of a MODEL file of all rows, with their sums if `sums`.
    fn snapshot<'py>(
        &self,
        py: Python<'py>,
        generation: u64,
        revision: u64,
        time: f64,
        sums: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let gathered = &self.0;
        let made = py.detach(|| {
            let model = gathered.merged().map_err(|e| e.to_string())?;
            let offset = gathered.held().sums().map(|told| told.rows()).sum();
            let snapshot = model.snapshot(true).map_err(|e| e.to_string())?;
            let snapshot = Snapshot { generation, revision, offset, time, ..snapshot };
            let bytes = wire::encode_snapshot(&snapshot, ArrayForm::Tensor, true);
            if !sums {
                return Ok(bytes);
            }
            let streams = gathered.held().sums().flat_map(|told| told.streams.clone()).collect();
            let told = criticd_daemon::fleet::Told { streams, sums: model.sums() };
            let part = criticd_daemon::fleet::FleetPart { epoch: gathered.epoch().clone(), told };
            Ok(wire::with_bytes(bytes, SUMS, &part.written()))
        });
        made.map(|bytes| PyBytes::new(py, &bytes)).map_err(|why: String| unsolved(py, why))
    }
}

/// The epoch of a MODEL file that has its sums, or a whole learner.
#[pyfunction]
pub(crate) fn epoch_of_model<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let part = part_of_model(bytes).map_err(|why| fault(py, Some("model"), &why, None))?;
    let none = || fault(py, Some("model"), &format!("has neither `{SUMS}` nor `{LEARNER}`"), None);
    Ok(PyBytes::new(py, &part.ok_or_else(none)?.epoch.written()))
}
