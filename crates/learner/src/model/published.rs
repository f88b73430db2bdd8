//! The snapshots of a model.

use super::Model;
use crate::heads::HeadsSnapshot;
use crate::math::dense::Matrix;
use crate::math::posterior::SolveError;
use crate::math::statistics::Running;
use crate::snapshot::Snapshot;

impl Model {
    /// The value function, the base's, and the heads for evaluation by others. `generation`, `revision`, `offset` and `time`
    /// are the caller's.
    ///
    /// # Errors
    /// If a system cannot be solved or the weights are not finite, a head's weights among them.
    pub fn snapshot(&self, variance: bool) -> Result<Snapshot, SolveError> {
        let running = self.running();
        let mut snapshot = self.closed_snapshot(&running, variance, false)?;
        snapshot.heads = self.published_heads(&running, variance).transpose()?;
        snapshot.branch = self.published_branch(variance, &snapshot).transpose()?;
        if snapshot.all_heads().count() < self.all_heads().count() {
            return Err(crate::math::dense::Singular { size: self.basis.len() }.into());
        }
        Ok(snapshot)
    }

    /// As [`Model::snapshot`], without the heads that cannot be solved.
    ///
    /// # Errors
    /// The same, but for heads.
    pub(crate) fn sound_snapshot(&self, variance: bool) -> Result<Snapshot, SolveError> {
        self.sound(variance, false)
    }

    /// The same, with what tracks the stream mixed in.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn following_snapshot(&self, variance: bool) -> Result<Snapshot, SolveError> {
        self.sound(variance, true)
    }

    fn sound(&self, variance: bool, follows: bool) -> Result<Snapshot, SolveError> {
        let running = self.running();
        let mut snapshot = self.closed_snapshot(&running, variance, follows)?;
        snapshot.heads =
            self.published_heads(&running, variance).and_then(Result::ok).filter(|of| !of.heads.is_empty());
        let branch = self.published_branch(variance, &snapshot).and_then(Result::ok);
        snapshot.branch = branch.filter(|of| of.all_heads().next().is_some());
        Ok(snapshot)
    }

    pub(super) fn published_heads(
        &self,
        running: &Running,
        variance: bool,
    ) -> Option<Result<HeadsSnapshot, SolveError>> {
        let (dictionary, signal) = (&self.basis.dictionary, self.weights.scale.signal);
        self.heads.as_ref().map(|heads| HeadsSnapshot::of(heads, running, dictionary, signal, variance))
    }

    /// As [`Model::snapshot`], without the heads.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn value_snapshot(&self, variance: bool) -> Result<Snapshot, SolveError> {
        self.closed_snapshot(&self.running(), variance, false)
    }

    /// Weights w (m, H) of kernel values for weights u (m, H) of features.
    pub(super) fn in_kernel_values(&self, u: &Matrix) -> Matrix {
        let mut weights = self.basis.dictionary.kernel_weights(u);
        for h in 0..weights.cols() {
            // V = k_m' w in units of the model's kernel s k_1.
            weights.col_mut(h).iter_mut().for_each(|w| *w /= self.weights.scale.signal);
        }
        weights
    }
}
