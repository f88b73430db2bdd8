//! Solves with lower triangular matrices: of few columns one by one, of many by panels.

use super::PANEL;
use super::matrix::{Matrix, View, ViewMut};
use crate::math::vector;
use faer::linalg::{matmul, triangular_solve};
use faer::{Accum, Par};

/// Columns up to which a triangular solve goes column by column, so that one has the same bits whatever the others are.
pub const SINGLY: usize = 4;
/// Columns from which it is worth doing by products with the inverses of diagonal blocks.
pub(super) const WIDE: usize = 48;
/// rhs <- l^-1 rhs for a lower triangular l. Its upper triangle is not read. Many columns again and again are for
/// [`PanelInverses`].
pub fn solve_lower(l: View<'_>, mut rhs: ViewMut<'_>) {
    if rhs.cols() <= SINGLY {
        (0..rhs.cols()).for_each(|j| vector::solve_lower(l, rhs.col_mut(j)));
    } else {
        triangular_solve::solve_lower_triangular_in_place(l.faer(), rhs.faer(), Par::Seq);
    }
}

/// Inverses of the diagonal blocks of a lower triangular matrix that grows row by row and is solved with again and again.
#[derive(Clone, Debug, Default)]
pub struct PanelInverses {
    /// Rows of the triangular matrix.
    size: usize,
    /// (PANEL, PANEL) each, the last of which may be incomplete; zero where nothing is known.
    blocks: Vec<Matrix>,
}

impl PanelInverses {
    /// The inverses of the panels of l (m, m).
    pub fn of(l: &Matrix) -> Self {
        let mut out = Self::default();
        (0..l.rows()).for_each(|_| out.grow(l));
        out
    }

    /// Take in one more row of l. O(PANEL^2).
    pub fn grow(&mut self, l: &Matrix) {
        let (row, at) = (self.size, self.size % PANEL);
        if at == 0 {
            self.blocks.push(Matrix::zeros(PANEL, PANEL));
        }
        let inverse = self.blocks.last_mut().expect("pushed with its first row");
        let pivot = 1.0 / l.at(row, row);
        for j in 0..at {
            let known: f64 = (j..at).map(|k| l.at(row, row - at + k) * inverse.at(k, j)).sum();
            *inverse.at_mut(at, j) = -known * pivot;
        }
        *inverse.at_mut(at, at) = pivot;
        self.size += 1;
    }

    /// Whether [`PanelInverses::solve_lower`] is the faster way for `cols` columns.
    pub fn are_worth_it(&self, cols: usize) -> bool {
        cols >= WIDE && self.size > PANEL / 2
    }

    /// out <- l^-1 rhs for the l whose rows were taken in. `rhs` is clobbered.
    ///
    /// # Panics
    /// If sizes differ.
    pub fn solve_lower(&self, l: View<'_>, rhs: ViewMut<'_>, out: ViewMut<'_>) {
        assert!(l.rows() == self.size && (rhs.rows(), rhs.cols()) == (out.rows(), out.cols()), "sizes differ");
        let (l, mut rhs, mut out) = (l.faer(), rhs.faer(), out.faer());
        for (k, inverse) in self.blocks.iter().enumerate() {
            let (start, len) = (k * PANEL, PANEL.min(self.size - k * PANEL));
            let (solved, rest) = out.as_mut().split_at_row_mut(start);
            let mut panel = rhs.as_mut().subrows_mut(start, len);
            if start > 0 {
                let coupling = l.submatrix(start, 0, len, start);
                matmul::matmul(panel.as_mut(), Accum::Add, coupling, solved.as_ref(), -1.0, Par::Seq);
            }
            let inverse = inverse.block(0, 0, len, len).faer();
            matmul::matmul(rest.subrows_mut(0, len), Accum::Replace, inverse, panel.as_ref(), 1.0, Par::Seq);
        }
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(Matrix::bytes).sum()
    }
}

/// rhs <- l^-T rhs for a lower triangular l. Its upper triangle is not read.
pub fn solve_lower_transposed(l: View<'_>, rhs: ViewMut<'_>) {
    if rhs.cols() <= SINGLY {
        let mut rhs = rhs;
        (0..rhs.cols()).for_each(|j| vector::solve_lower_transposed(l, rhs.col_mut(j)));
        return;
    }
    triangular_solve::solve_upper_triangular_in_place(l.faer().transpose(), rhs.faer(), Par::Seq);
}
