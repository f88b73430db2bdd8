//! Which rows count for which head. Rows count alike for most heads; labels and weights leave rows out, or count them more or less.

use super::{Head, Weighting};
use crate::transition::Rows;

/// Heads that count the same rows equally often, and these rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Numbers of the heads, rising.
    pub(crate) heads: Vec<usize>,
    /// Numbers of the rows that count, rising.
    pub(crate) rows: Vec<usize>,
}

impl Weighting {
    /// Whether row i has no label where this asks for one.
    pub(crate) fn lacks_label(self, rows: &Rows, i: usize) -> bool {
        matches!(self, Self::Labelled { label, .. } if rows.labels.get(label, i).is_none())
    }

    /// How often row i counts.
    pub(crate) fn of(self, rows: &Rows, i: usize) -> f64 {
        match self {
            _ if self.lacks_label(rows, i) => 0.0,
            Self::Column(column) | Self::Labelled { column: Some(column), .. } => rows.reward(i)[column],
            Self::Labelled { column: None, .. } => 1.0,
        }
    }
}

impl Head {
    /// Whether row i has no label where the head learns from labels.
    pub(crate) fn lacks_label(&self, rows: &Rows, i: usize) -> bool {
        self.weighting().is_some_and(|weighting| weighting.lacks_label(rows, i))
    }

    /// How often row i counts for it.
    pub(crate) fn count(&self, rows: &Rows, i: usize) -> f64 {
        self.weighting().map_or(1.0, |weighting| weighting.of(rows, i))
    }
}

/// The heads for which every row counts once, and all rows.
pub(crate) fn counting_all(heads: &[Head], rows: &Rows) -> Counted {
    let mut known: Vec<(Weighting, bool)> = Vec::new();
    let mut counts_all = |head: &Head| {
        let Some(weighting) = head.weighting() else { return true };
        if let Some((_, found)) = known.iter().find(|(of, _)| *of == weighting) {
            return *found;
        }
        let found = (0..rows.len()).all(|i| weighting.of(rows, i) == 1.0);
        known.push((weighting, found));
        found
    };
    let heads = (0..heads.len()).filter(|&h| counts_all(&heads[h])).collect();
    Counted { heads, rows: (0..rows.len()).collect() }
}

/// Of the other heads those for which most rows count, the first of equals, and the rows that count for them; none where no row counts for
/// any.
pub(crate) fn counting_most(heads: &[Head], rows: &Rows) -> Option<Counted> {
    let mut known: Vec<(Weighting, Counted)> = Vec::new();
    for (h, head) in heads.iter().enumerate() {
        let Some(weighting) = head.weighting() else { continue };
        match known.iter_mut().find(|(of, _)| *of == weighting) {
            Some((_, counted)) => counted.heads.push(h),
            None => {
                let counting = (0..rows.len()).filter(|&i| weighting.of(rows, i) > 0.0).collect();
                known.push((weighting, Counted { heads: vec![h], rows: counting }));
            }
        }
    }
    let all_once = |(weighting, _): &(Weighting, Counted)| (0..rows.len()).all(|i| weighting.of(rows, i) == 1.0);
    let others = known.into_iter().rev().filter(|of| !of.1.rows.is_empty() && !all_once(of));
    others.map(|(_, counted)| counted).max_by_key(|counted| counted.rows.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heads::{Cumulant, Rate};
    use crate::labels::Labels;
    use std::sync::Arc;

    fn weighted(column: usize) -> Head {
        Head { weight: Some(column), ..Head::new("weighted", Cumulant::Constant(1.0), Rate::Discount(0.5)) }
    }

    #[test]
    fn labels_and_weights_say_which_rows_count() {
        let mut labels = Labels::default();
        labels.extend(&[1, 2, 3], &[5.0, 0.0, 7.0]).unwrap();
        let mut rows = Rows::new(1, 2);
        // The first column counts every row once, the second leaves out the last two.
        for weight in [2.0, 1.0, 0.0, 0.0] {
            rows.states.push(0.0);
            rows.rewards.extend([1.0, weight]);
            rows.streams.push(0);
        }
        let id = labels.id();
        rows.labels.set(&[Arc::new(labels)], &(0..4).into(), 4);
        let labelled = Head::new("labelled", Cumulant::Label { name: "l".into(), id }, Rate::Discount(0.5));
        let both = Head { weight: Some(1), ..labelled.clone() };
        let plain = Head::new("plain", Cumulant::State(0), Rate::Discount(0.5));
        let heads = [both.clone(), weighted(1), plain, labelled.clone(), weighted(0), labelled.clone()];
        assert_eq!(counting_all(&heads, &rows).heads, [2, 4]);
        assert_eq!(counting_most(&heads, &rows).unwrap(), Counted { heads: vec![3, 5], rows: vec![1, 2, 3] });
        assert_eq!(counting_most(&heads[..3], &rows).unwrap(), Counted { heads: vec![1], rows: vec![0, 1] });
        assert_eq!(counting_most(&heads[2..3], &rows), None);
        assert_eq!((0..4).map(|i| both.count(&rows, i)).collect::<Vec<_>>(), [0.0, 1.0, 0.0, 0.0]);
        assert!(
            labelled.lacks_label(&rows, 0) && !labelled.lacks_label(&rows, 2) && !weighted(1).lacks_label(&rows, 0)
        );
    }
}
