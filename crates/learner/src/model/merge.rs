//! What a model has summed up, apart from the model: to be added to what others have, in rows of other streams.

use super::Model;
use crate::math::dense::{Matrix, axpy};
use crate::math::head_sums::HeadStatistics;
use crate::math::posterior::Posterior;
use crate::math::statistics::{BootstrapTerms, Cut, Statistics};
use crate::transition::Rows;
use crate::watch::DriftSensitivity;
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;
use std::fmt::{self, Write};
use std::hash::Hasher;
use std::ops::Range;

/// Sums of a model's rows. Sums of models of one epoch ([`Model::epoch`]) add, where their rows are of different streams.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    /// The critic's, without the chains that run.
    pub statistics: Statistics,
    /// What closing these where they stand adds.
    pub closings: BootstrapTerms,
    /// W (m, m), lower triangle, each score with the weights of when its row was learned; none where V has the variance that the model
    /// states.
    pub scatter: Option<Matrix>,
    /// The sums of its heads, if it has some.
    pub heads: Option<HeadSums>,
    /// The sums of the heads that have a kernel of their own.
    pub branch: Option<Box<Sums>>,
}

/// Sums of heads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeadSums {
    /// Without the chains that run.
    pub statistics: HeadStatistics,
    /// What closing these adds to each group.
    pub closings: Vec<BootstrapTerms>,
}

impl Sums {
    /// The critic's with the running chains closed where they stand.
    pub fn closed(&self) -> Statistics {
        let mut closed = self.statistics.clone();
        closed.closed.merge(&self.closings, 1.0);
        closed
    }
}

/// Why sums cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// They are of another number of elements, rewards or heads.
    #[error("sums of another dictionary, or of other rewards or heads")]
    Unlike,
    /// Rows are forgotten by their age, and age is counted in offsets of one journal.
    #[error("rows are forgotten by their age in one journal: set `forgetting` to none to merge")]
    Forgets,
}

/// Text that is hashed as it is written.
struct Hashed(SipHasher13);

impl Write for Hashed {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

impl Model {
    /// A fingerprint of all that sums must have in common to be added: kernel, dictionary in its order, normalisation, lambda, largest
    /// ratio, traces, rewards, heads, kind of variance and forgetting. Programs of one version agree on it.
    pub fn epoch(&self) -> u64 {
        let mut hashed = Hashed(SipHasher13::new());
        self.describe(&mut hashed).expect("hashing does not fail");
        hashed.0.finish()
    }

    fn describe(&self, to: &mut impl Write) -> fmt::Result {
        self.traits().into_iter().try_for_each(|(_, text)| to.write_str(&text))?;
        self.branch.as_ref().map_or(Ok(()), |branch| branch.describe(to))
    }

    /// The parts of a model that must be equal before its sums can be added to another one, by name. Text shows every bit of a number.
    fn traits(&self) -> [(&'static str, String); 14] {
        let (basis, settings) = (&self.basis, &self.settings);
        [
            ("noise", format!("{:?}", self.noise)),
            ("kernel", format!("{:?}", basis.kernel())),
            ("dictionary", format!("{:?}", basis.dictionary.elements())),
            ("normalisation of states", format!("{:?}", basis.inputs)),
            ("lambda", format!("{:?}", self.lambda)),
            ("level", format!("{:?}", self.level.about)),
            ("mean function", settings.mean.as_ref().map_or_else(String::new, |mean| format!("{mean:?}"))),
            ("ridge", format!("{:?}", self.weights.scale.ratio)),
            ("largest ratio", format!("{:?}", settings.ratio_max())),
            ("actions", format!("{:?}", settings.action_value)),
            ("rewards and discount", format!("{:?}{:?}", settings.rewards, settings.discount)),
            ("variance", format!("{:?}", settings.variance)),
            ("forgetting", format!("{:?}", settings.forgetting)),
            ("heads", format!("{:?}", self.heads.as_ref().map(|heads| heads.heads()))),
        ]
    }

    /// What the epochs of this model and of `other` differ in first, by name; none where they are one.
    pub fn epoch_differs(&self, other: &Self) -> Option<&'static str> {
        let both = self.traits().into_iter().zip(other.traits());
        let own = both.into_iter().find_map(|((name, here), (_, there))| (here != there).then_some(name));
        own.or_else(|| match (&self.branch, &other.branch) {
            (None, None) => None,
            (Some(here), Some(there)) => here.epoch_differs(there),
            _ => Some("heads with a kernel of their own"),
        })
    }

    /// What every learner of its epoch begins with: no rows, a dictionary and a ridge that stay as they are, nothing that watches or
    /// tracks the stream, which only a learner of all rows could.
    #[must_use]
    pub fn of_epoch(&self) -> Self {
        let mut empty = self.emptied();
        empty.stay();
        empty
    }

    fn stay(&mut self) {
        self.basis.dictionary.close();
        self.tracking = None;
        self.errors.watch = None;
        self.settings.estimate_scale = false;
        self.settings.drift_sensitivity = DriftSensitivity::Off;
        self.settings.alarms.clear();
        self.branch.iter_mut().for_each(|branch| branch.stay());
    }

    /// What it has summed up.
    pub fn sums(&self) -> Sums {
        let running = self.running();
        let (m, rewards) = (self.basis.len(), self.settings.rewards.len());
        let mut closings = BootstrapTerms::new(m, rewards, m);
        for (k, (_, chain)) in self.streams.running().enumerate() {
            closings.add(Cut { chain, features: running.features.col(k) });
        }
        let heads = self.heads.as_ref().map(|heads| {
            let (statistics, closings) = heads.sums(&running);
            HeadSums { statistics, closings }
        });
        let mut statistics = self.statistics.clone();
        statistics.flush();
        let scatter =
            self.errors.scatter.with_running(self.posterior().unwrap_or(&self.unsolved()), &running, &self.streams);
        let branch = self.branch.as_ref().map(|branch| Box::new(branch.sums()));
        Sums { statistics, closings, scatter, heads, branch }
    }

    /// Weights of 0.
    fn unsolved(&self) -> Posterior {
        Posterior::of_weights(Matrix::zeros(self.basis.len(), self.settings.rewards.len()), self.weights.scale)
    }

    /// A model of this epoch that has learned the rows of all these sums, added up in this order, and no others. No chain of it runs.
    ///
    /// # Errors
    /// If sums are of another shape, or rows are forgotten.
    pub fn merged<'a>(&self, sums: impl IntoIterator<Item = &'a Sums>) -> Result<Self, MergeError> {
        let mut merged = self.emptied();
        merged.basis.learned = None;
        for of in sums {
            merged.add(of)?;
        }
        merged.refresh();
        Ok(merged)
    }

    fn add(&mut self, sums: &Sums) -> Result<(), MergeError> {
        if self.statistics.forgets() || sums.statistics.forgets() {
            return Err(MergeError::Forgets);
        }
        let (m, rewards) = (self.basis.len(), self.settings.rewards.len());
        let fits = sums.statistics.is_consistent(m, rewards) && sums.closings.is_consistent(m, rewards);
        let scatter = sums.scatter.as_ref().is_none_or(|of| (of.rows(), of.cols()) == (m, m));
        let parts = (self.heads.is_some(), self.branch.is_some()) == (sums.heads.is_some(), sums.branch.is_some());
        if !(fits && scatter && parts) {
            return Err(MergeError::Unlike);
        }
        if let (Some(heads), Some(HeadSums { statistics, closings })) = (&mut self.heads, &sums.heads)
            && !heads.add(statistics, closings)
        {
            return Err(MergeError::Unlike);
        }
        let mut more = sums.closed();
        if self.statistics.follows_rows || more.follows_rows {
            self.pass().follow_rows();
            more.follow_rows();
        }
        self.statistics.merge(&more);
        if let Some(scatter) = &sums.scatter {
            self.add_scatter(scatter);
        }
        match (&mut self.branch, &sums.branch) {
            (Some(branch), Some(sums)) => branch.add(sums),
            _ => Ok(()),
        }
    }

    /// W (m, m), lower triangle, of `rows`, each with the offset of its first row, under the weights of `solved`, a model of this epoch:
    /// the W of rows learned by several adds, docs/mathematics.md (V4). None where V has the variance that the model states.
    pub fn scatter_of<'a>(
        &self,
        solved: &Self,
        rows: impl Iterator<Item = (&'a Rows, Range<usize>, u64)>,
    ) -> Option<Matrix> {
        let weights = solved.posterior()?.feature_weights().clone();
        let mut looking = self.clone().without_heads();
        looking.weights.posterior = Some(Posterior::of_weights(weights, self.weights.scale));
        looking.revisit(rows);
        looking.scatter()
    }

    /// W (m, m), lower triangle, of the rows so far, those that wait for their successors closed by the weights of the last refresh.
    pub fn scatter(&self) -> Option<Matrix> {
        self.errors.scatter.with_running(self.posterior()?, &self.running(), &self.streams)
    }

    /// Take the sum of these W (m, m), lower triangles, added up in this order, in the place of W so far.
    ///
    /// # Panics
    /// If one is of another size.
    pub fn set_scatter<'a>(&mut self, parts: impl Iterator<Item = &'a Matrix>) {
        self.errors.scatter.clear(self.basis.len());
        parts.for_each(|part| self.add_scatter(part));
    }

    fn add_scatter(&mut self, part: &Matrix) {
        if let Some(sum) = &mut self.errors.scatter.sum {
            assert_eq!((part.rows(), part.cols()), (sum.rows(), sum.cols()), "scores of the same features");
            (0..sum.cols()).for_each(|j| axpy(sum.col_mut(j), 1.0, part.col(j)));
        }
    }
}
