//! The largest memory that heads take, from their number and their definitions.

use super::verified::PAIRS_MAX;
use super::{Bank, Continuation, Head, Rate, Weighting};
use crate::math::head_sums::{CUTS_TOGETHER, TOGETHER};
use crate::math::statistics::{Chain, TRACE_STEP};

const NUMBER: usize = size_of::<f64>();
/// Copies of the definitions of heads: of the settings, of the model and of its publication.
const COPIES: usize = 12;

/// Counts of the parts of a set of heads.
struct Counts {
    heads: usize,
    /// Different cumulants, weightings, and discount sequences under a weighting.
    signals: usize,
    weightings: usize,
    groups: usize,
}

impl Counts {
    /// Under `kernels` kernels, heads divided between them as needs the most.
    fn of(heads: &[Head], kernels: usize) -> Self {
        let (mut signals, mut weightings) = (Vec::new(), Vec::new());
        let mut groups: Vec<(Rate, Continuation, Option<Weighting>)> = Vec::new();
        for head in heads {
            super::bank::position(&mut signals, head.cumulant.clone());
            super::bank::position(&mut weightings, head.weighting());
            super::bank::position(&mut groups, (head.rate, head.continuation.clone(), head.weighting()));
        }
        let [signals, weightings, groups] =
            [signals.len(), weightings.len(), groups.len()].map(|parts| kernels * parts);
        Self { heads: heads.len(), signals, weightings, groups }
    }
}

/// Bytes of all heads under one or two `kernels` with a dictionary of at most m elements each, while recent `rows` of
/// `row_bytes` each are kept for new elements and `block` rows are learned at once; chains left out. The first is of the model,
/// the second of the snapshots that answer.
pub fn bytes_max(
    heads: &[Head],
    kernels: usize,
    m: usize,
    rows: usize,
    block: usize,
    row_bytes: usize,
) -> (usize, usize) {
    if heads.is_empty() {
        return (0, 0);
    }
    let Counts { heads: count, signals, weightings, groups } = Counts::of(heads, kernels);
    // Matrices of a dictionary that grows have room for up to twice as much.
    let room = 2 * m;
    let sums = 2 * room * count + 2 * count + groups * (2 * room * room + room) + weightings * room * room;
    // Of each row a discount in every group; of each cut a chain in every group, and its features.
    let ring = rows * (groups + 2) + rows * (groups * room + count + room);
    // Rows that wait for others have traces in every group and rewards of every head; cuts have features too.
    let waiting = TOGETHER * (count + groups * room) + CUTS_TOGETHER * (count + groups * 2 * room);
    let scratch = block * (signals + count + 2 * room) + waiting;
    let names: usize = heads.iter().map(Head::heap_bytes).sum();
    // What verifies: weights in single precision with the spectra and a solution while they are made, and of each head two starts
    // and its pairs.
    let verified = m * count / 2 + m * count + weightings * (m * m + m) + 10 * count + count * PAIRS_MAX / NUMBER;
    let described = COPIES * (count * size_of::<Head>() + names);
    let chains = rows * groups * size_of::<Chain>();
    let learned = NUMBER * (sums + ring + scratch + verified) + kernels * rows * row_bytes + chains + described;
    // Weights once while they are solved for and twice for publication, with the bases of their variances.
    let published = 3 * (m * count + weightings * (m * m + m)) + 8 * count;
    (learned, NUMBER * published)
}

/// Bytes of all heads for each stream.
pub fn bytes_per_stream(heads: &[Head], kernels: usize, m: usize) -> usize {
    if heads.is_empty() {
        return 0;
    }
    let Counts { heads: count, groups, .. } = Counts::of(heads, kernels);
    // The chain, how it continues, and its time.
    groups * (NUMBER * (m + TRACE_STEP + 1) + 2 * size_of::<Chain>()) + NUMBER * (count + 4)
}

impl Bank {
    /// Different discount sequences among the heads.
    pub fn groups(&self) -> usize {
        self.statistics().groups.len()
    }
}
