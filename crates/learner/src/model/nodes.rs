//! The states of one block whose features are needed, and these features.

use super::basis::Basis;
use super::streams::Streams;
use crate::heads::RowNodes;
use crate::math::dense::{Matrix, SINGLY, axpy};
use crate::math::mixture::Mixtures;
use crate::math::statistics::Running;
use crate::transition::Rows;
use std::ops::Range;

/// Nodes of a block, kept between blocks so that learning does not allocate.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    /// Normalised, then projected, row-major.
    pub(super) states: Vec<f64>,
    pub(super) points: Vec<f64>,
    /// D, and coordinates of a point.
    dim: usize,
    width: usize,
    /// Row of the block that each node belongs to.
    pub(super) owners: Vec<usize>,
    /// (m, nodes).
    pub(super) features: Matrix,
    /// What each state's features leave of its prior variance.
    pub(super) residuals: Vec<f64>,
    /// Where the states of each row are.
    pub(super) of_rows: Vec<RowNodes>,
    /// Whether what the block's rows observe stands in `observed`, and not in `features`.
    observed_apart: bool,
    observed: Matrix,
    /// Last row of each slot in the block; `u32::MAX` where it has none.
    last_row: Vec<u32>,
    /// Scratch of features, and of a new coordinate.
    pub(super) covariances: Matrix,
    pub(super) mixtures: Mixtures,
    pub(super) coordinate: Vec<f64>,
}

/// What decides which states are needed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Collected<'a> {
    pub(super) basis: &'a Basis,
    /// Whether every row observes a difference of its own.
    pub(super) white: bool,
    /// Whether each row adds to B.
    pub(super) follows_rows: bool,
    /// Whether scores are summed over clusters of rows.
    pub(super) clusters: bool,
    /// H.
    pub(super) rewards: usize,
}

impl Nodes {
    /// Number of nodes.
    pub(super) fn len(&self) -> usize {
        self.owners.len()
    }

    /// Normalised state of a node (D,).
    pub(super) fn state(&self, node: usize) -> &[f64] {
        &self.states[node * self.dim..(node + 1) * self.dim]
    }

    /// The same, projected.
    pub(super) fn point(&self, node: usize) -> &[f64] {
        &self.points[node * self.width..(node + 1) * self.width]
    }

    /// Features of what the block's rows observe (m, rows).
    pub(super) fn observed(&self) -> &Matrix {
        if self.observed_apart { &self.observed } else { &self.features }
    }

    /// The same, to be weighted.
    pub(super) fn observed_mut(&mut self) -> &mut Matrix {
        if self.observed_apart { &mut self.observed } else { &mut self.features }
    }

    /// Bytes held, for reports of memory.
    pub(super) fn bytes(&self) -> usize {
        self.features.bytes() + self.covariances.bytes() + self.mixtures.bytes() + self.observed.bytes()
    }

    /// Collect the states of the block whose features are needed, in arrival order.
    pub(super) fn collect(&mut self, by: Collected<'_>, streams: &mut Streams, rows: &Rows, block: Range<usize>) {
        let Collected { basis, white, follows_rows, clusters, rewards } = by;
        (self.dim, self.width) = (basis.dim(), basis.width());
        self.states.clear();
        self.owners.clear();
        self.of_rows.clear();
        self.last_row.clear();
        self.last_row.resize(streams.len(), u32::MAX);
        for (k, i) in block.clone().enumerate() {
            let slot = streams.slot(rows.streams[i], basis.len(), rewards, clusters);
            if self.last_row.len() <= slot {
                self.last_row.resize(slot + 1, u32::MAX);
            }
            // The row before it in its stream, if that left a chain running: in this block, or earlier.
            let led_from = match self.last_row[slot] {
                u32::MAX => (streams.chains[slot].rows > 0).then_some(None),
                last => {
                    Some(block.start + last as usize).filter(|&j| !rows.terminated[j] && !rows.truncated[j]).map(Some)
                }
            };
            let (starts, mut gap, mut before) = (rows.starts_chain[i], None, None);
            if let Some(last) = led_from.filter(|_| !white) {
                let known = &streams.slots[slot].next_state;
                if starts || (follows_rows && !self.begins_there(basis, rows, i, known, last)) {
                    match last {
                        None => self.states.extend_from_slice(known),
                        Some(j) => basis.inputs.normalise_into(rows.next_state(j), &mut self.states),
                    }
                    let node = Some(self.add(k));
                    if starts { gap = node } else { before = node }
                }
            }
            self.last_row[slot] = k as u32;
            basis.inputs.normalise_into(rows.state(i), &mut self.states);
            let state = self.add(k);
            let needs_next = if white { !rows.terminated[i] } else { rows.truncated[i] && !rows.terminated[i] };
            let next = needs_next.then(|| {
                basis.inputs.normalise_into(rows.next_state(i), &mut self.states);
                self.add(k)
            });
            self.of_rows.push(RowNodes { slot, gap, before, state, next });
        }
        debug_assert_eq!(self.states.len(), self.len() * self.dim);
    }

    /// Number of the node, of row k of the block, whose state has just been appended.
    fn add(&mut self, k: usize) -> usize {
        self.owners.push(k);
        self.owners.len() - 1
    }

    /// Whether row i begins in the state that the row before it in its chain led to: the state of row `last`, or `known`,
    /// normalised, of an earlier block.
    fn begins_there(&mut self, basis: &Basis, rows: &Rows, i: usize, known: &[f64], last: Option<usize>) -> bool {
        if let Some(last) = last {
            return rows.next_state(last) == rows.state(i);
        }
        let from = self.states.len();
        basis.inputs.normalise_into(rows.state(i), &mut self.states);
        let same = self.states[from..] == *known;
        self.states.truncate(from);
        same
    }

    /// Work the features out. `running`, the running chains at the last refresh, and their successors `running_states` may know
    /// some already.
    pub(super) fn compute_features(
        &mut self,
        basis: &Basis,
        block_max: usize,
        running: &Running,
        running_states: &[f64],
    ) {
        self.points.clear();
        basis.kernel().project_into(self.dim, &self.states, &mut self.points);
        if self.features.rows() == 0 && self.features.cols() == 0 {
            self.features = Matrix::with_capacity(basis.dictionary.max(), 2 * block_max);
        }
        let nodes = self.len();
        self.features.resize(basis.len(), nodes);
        if !self.recall_features(running, running_states) {
            let Self { states, points, covariances, mixtures, features, .. } = self;
            basis.features_into(states, points, covariances, mixtures, features.view_mut());
        }
        self.residuals.clear();
        let features = &self.features;
        self.residuals.extend((0..features.cols()).map(|k| basis.dictionary.residual(features.col(k))));
    }

    /// Take the features of a few nodes from the last refresh, if it has looked at all of them: a row begins where the one before
    /// it in its stream has ended. They are the same bits, as columns so few are worked out one by one.
    fn recall_features(&mut self, running: &Running, running_states: &[f64]) -> bool {
        let Self { states, features, dim, .. } = self;
        if features.cols() > SINGLY || running.chains() > SINGLY || running.features.rows() != features.rows() {
            return false;
        }
        let mut states = states.chunks_exact(*dim).enumerate();
        states.all(|(node, state)| {
            let known = running_states.chunks_exact(*dim).position(|known| known == state);
            known.inspect(|&k| features.col_mut(node).copy_from_slice(running.features.col(k))).is_some()
        })
    }

    /// Features of what each row observes: phi(x), or phi(x) - gamma phi(x') under white noise, gamma of row i as `discount` has it.
    /// Where the block's nodes are its rows' states and nothing else they are that already.
    pub(super) fn observe(&mut self, by: Collected<'_>, block_max: usize, discount: impl Fn(usize) -> f64) {
        let Collected { basis, white, .. } = by;
        let rows = self.of_rows.len();
        self.observed_apart = white || self.len() != rows;
        if !self.observed_apart {
            return;
        }
        if self.observed.rows() == 0 && self.observed.cols() == 0 {
            self.observed = Matrix::with_capacity(basis.dictionary.max(), block_max);
        }
        self.observed.resize(basis.len(), rows);
        for (k, nodes) in self.of_rows.iter().enumerate() {
            self.observed.col_mut(k).copy_from_slice(self.features.col(nodes.state));
            if let Some(next) = nodes.next.filter(|_| white) {
                axpy(self.observed.col_mut(k), -discount(k), self.features.col(next));
            }
        }
    }
}
