//! Sums of heads apart from the chains that run: for pieces of stream that are put together or taken apart.

use super::{Gram, Group, HeadStatistics};
use crate::math::dense::Matrix;
use crate::math::statistics::{BootstrapTerms, Cut, Running};

impl HeadStatistics {
    /// Of the same heads, which have learned nothing.
    pub(crate) fn emptied(&self) -> Self {
        Self {
            grams: self.grams.iter().map(|gram| Gram::new(gram.matrix.rows())).collect(),
            groups: self.groups.iter().map(|group| Group::new(group.response.rows(), group.heads())).collect(),
        }
    }

    /// The same without running chains, and with all in the sums that waits.
    pub(crate) fn settled(&self) -> Self {
        let mut settled = self.clone();
        for group in &mut settled.groups {
            group.settle();
            group.drop_chains();
        }
        settled
    }

    /// What closing the chains that run adds to each group; `model` has the features of their last successors.
    pub(crate) fn closings(&self, model: &Running) -> Vec<BootstrapTerms> {
        self.groups.iter().map(|group| group.closings(model)).collect()
    }

    /// Count these chains among those that were cut.
    ///
    /// # Panics
    /// If there is not one for each group.
    pub(crate) fn close(&mut self, closings: &[BootstrapTerms]) {
        assert_eq!(self.groups.len(), closings.len(), "closings of the same groups");
        self.groups.iter_mut().zip(closings).for_each(|(group, closings)| group.closed.merge(closings, 1.0));
    }

    /// Let sums be 0 that nothing is left of: B, E, h and a without a cut chain, and all if no row is left.
    pub(crate) fn clear_rounding(&mut self, none_is_left: bool) {
        if none_is_left {
            self.grams.iter_mut().for_each(|gram| *gram = Gram::new(gram.matrix.rows()));
        }
        for group in &mut self.groups {
            let (m, heads) = (group.response.rows(), group.heads());
            group.settle();
            if none_is_left {
                group.response = Matrix::zeros(m, heads);
                group.energy.fill(0.0);
                group.target_sum.fill(0.0);
            }
            if group.closed.chains == 0 {
                group.closed = BootstrapTerms::new(m, heads, m);
            }
        }
    }

    /// Whether `other` has sums of the same sizes.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        let sizes = |of: &Self| {
            let groups = of.groups.iter().map(|group| (group.response.rows(), group.heads()));
            (of.grams.iter().map(|gram| gram.matrix.rows()).collect::<Vec<_>>(), groups.collect::<Vec<_>>())
        };
        sizes(self) == sizes(other)
    }
}

impl Group {
    fn closings(&self, model: &Running) -> BootstrapTerms {
        let mut terms = BootstrapTerms::new(self.response.rows(), self.heads(), self.response.rows());
        let chains = model.slots().iter().enumerate().filter_map(|(k, &slot)| {
            let chain = self.chains.get(slot as usize).filter(|chain| chain.rows > 0)?;
            Some(Cut { chain, features: model.features.col(k) })
        });
        terms.add_all(chains, true);
        terms
    }
}
