//! Statistics of the explicit columns at several half-lives.

use crate::math::dense::{Matrix, Op, View, dot, multiply, tight};
use crate::math::raw;
use serde::{Deserialize, Serialize};

/// Rows that wait before they go into M at the latest: many at once cost less than one after the other.
pub(super) const WAITING_MAX: usize = 64;

/// M_h, p_h and what follows from them, of J half-lives, docs/mathematics.md (L1), (L2):
/// ```text
/// M_h <- f M_h + z (phi - gamma phi')'        p_h <- f p_h + z r        f = 2^(-1 / h)        M (q, m), p (q, H)
/// A_h = M_h[:, :q]                            v_h = p_h - M_h u
/// ```
/// z are the first q numbers of the base's trace; phi' = 0 where the transition terminates. A, p and v are sums over all rows
/// so far. M lacks the rows that wait, which only a change of u asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    #[serde(with = "raw")]
    half_lives: Vec<f64>,
    /// f of each.
    #[serde(with = "raw")]
    decays: Vec<f64>,
    /// M' (m, J q): column j q + i is row i of half-life j.
    transitions: Matrix,
    /// A (q, J q): column j q + l is column l of half-life j.
    #[serde(serialize_with = "tight")]
    corner: Matrix,
    /// p (J q, H).
    #[serde(serialize_with = "tight")]
    response: Matrix,
    /// v (J q, H).
    #[serde(serialize_with = "tight")]
    residual: Matrix,
    /// z (q, count) of the rows that wait.
    #[serde(with = "raw")]
    traces: Vec<f64>,
    /// phi - gamma phi' (m, count) of the same.
    #[serde(with = "raw")]
    differences: Vec<f64>,
    /// Scratch: z of each half-life with the weight of its row (J q, count).
    #[serde(skip)]
    weighted: Matrix,
}

impl Sums {
    /// Nothing yet, for these half-lives, q `columns`, m features (room for `capacity`) and H rewards.
    pub fn new(half_lives: &[f64], columns: usize, m: usize, capacity: usize, rewards: usize) -> Self {
        let rows = half_lives.len() * columns;
        let mut transitions = Matrix::with_capacity(capacity.max(m), rows);
        transitions.resize(m, rows);
        Self {
            half_lives: half_lives.to_vec(),
            decays: half_lives.iter().map(|h| (-1.0 / h).exp2()).collect(),
            transitions,
            corner: Matrix::zeros(columns, rows),
            response: Matrix::zeros(rows, rewards),
            residual: Matrix::zeros(rows, rewards),
            traces: Vec::with_capacity(columns * WAITING_MAX),
            differences: Vec::with_capacity(m * WAITING_MAX),
            weighted: Matrix::default(),
        }
    }

    /// Half-lives, rows.
    pub fn half_lives(&self) -> &[f64] {
        &self.half_lives
    }

    /// Number of columns q.
    pub fn columns(&self) -> usize {
        self.corner.rows()
    }

    /// Column `l` of A of half-life number `j` (q,).
    pub(super) fn corner(&self, j: usize, l: usize) -> &[f64] {
        self.corner.col(j * self.columns() + l)
    }

    /// p of half-life number `j` and reward number `h` (q,).
    pub(super) fn response(&self, j: usize, h: usize) -> &[f64] {
        &self.response.col(h)[j * self.columns()..(j + 1) * self.columns()]
    }

    /// v of the same (q,), at the weights of the last [`Sums::take_weights`].
    pub(super) fn residual(&self, j: usize, h: usize) -> &[f64] {
        &self.residual.col(h)[j * self.columns()..(j + 1) * self.columns()]
    }

    /// Number of features m.
    fn features(&self) -> usize {
        self.transitions.rows()
    }

    /// A row: z (q,), phi (m,), the discount and phi' (m,), none where the row leads to nothing, and the rewards (H,). u (at most m, H)
    /// are the base's weights, none before it has any. O(J q (q + H) + m H), no allocation.
    ///
    /// # Panics
    /// If there are not m features.
    pub fn absorb(
        &mut self,
        z: &[f64],
        phi: &[f64],
        (discount, next): (f64, Option<&[f64]>),
        rewards: &[f64],
        u: Option<&Matrix>,
    ) {
        let (q, m) = (self.columns(), self.features());
        assert_eq!(phi.len(), m, "as many features as the base has");
        self.traces.extend_from_slice(z);
        let from = self.differences.len();
        match next {
            Some(next) => self.differences.extend(phi.iter().zip(next).map(|(phi, next)| phi - discount * next)),
            None => self.differences.extend_from_slice(phi),
        }
        let difference = &self.differences[from..];
        for (h, reward) in rewards.iter().enumerate() {
            let said = u.map_or(0.0, |u| {
                let u = u.col(h);
                dot(&difference[..u.len()], u)
            });
            let (response, residual) = (self.response.col_mut(h), self.residual.col_mut(h));
            for (j, &f) in self.decays.iter().enumerate() {
                gain(&mut response[j * q..(j + 1) * q], f, *reward, z);
                gain(&mut residual[j * q..(j + 1) * q], f, reward - said, z);
            }
        }
        for (j, &f) in self.decays.iter().enumerate() {
            for (l, d) in difference[..q].iter().enumerate() {
                gain(self.corner.col_mut(j * q + l), f, *d, z);
            }
        }
        if self.differences.len() == m * WAITING_MAX {
            self.flush();
        }
    }

    /// What waits goes into M.
    fn flush(&mut self) {
        let (q, m) = (self.columns(), self.features());
        let count = self.traces.len() / q.max(1);
        if count == 0 {
            return;
        }
        self.weighted.renew(self.half_lives.len() * q, count);
        for (j, &f) in self.decays.iter().enumerate() {
            let mut weight = 1.0;
            for (c, z) in self.traces.chunks_exact(q).enumerate().rev() {
                let to = &mut self.weighted.col_mut(c)[j * q..(j + 1) * q];
                to.iter_mut().zip(z).for_each(|(to, z)| *to = weight * z);
                weight *= f;
            }
            for i in j * q..(j + 1) * q {
                self.transitions.col_mut(i).iter_mut().for_each(|v| *v *= weight);
            }
        }
        let differences = View::from_columns(m, count, &self.differences);
        let weighted = self.weighted.view();
        multiply(self.transitions.view_mut(), true, 1.0, differences, Op::Plain, weighted, Op::Transposed);
        self.traces.clear();
        self.differences.clear();
    }

    /// The base's weights are u (at most m, H) from here on; features beyond them weigh nothing. O(J q m).
    pub fn take_weights(&mut self, u: &Matrix) {
        self.flush();
        for h in 0..self.residual.cols() {
            let u = u.col(h);
            for i in 0..self.residual.rows() {
                let known = &self.transitions.col(i)[..u.len()];
                *self.residual.at_mut(i, h) = self.response.at(i, h) - dot(known, u);
            }
        }
    }

    /// One more feature, which rows so far count as 0: those that went into M are not there any more. Their weights halve with every
    /// half-life, and a refit absorbs its rows again under all of its features.
    pub fn grow(&mut self) {
        self.flush();
        self.transitions.resize(self.features() + 1, self.transitions.cols());
    }

    /// Whether its parts fit q columns, m features and H rewards.
    pub(crate) fn is_consistent(&self, columns: usize, m: usize, rewards: usize) -> bool {
        let rows = self.half_lives.len() * columns;
        let shape = |matrix: &Matrix, rows, cols| (matrix.rows(), matrix.cols()) == (rows, cols);
        self.half_lives.iter().all(|h| h.is_finite() && *h > 0.0)
            && shape(&self.transitions, m, rows)
            && shape(&self.corner, columns, rows)
            && shape(&self.response, rows, rewards)
            && shape(&self.residual, rows, rewards)
            && self.decays.len() == self.half_lives.len()
            && columns > 0
            && self.traces.len().is_multiple_of(columns)
            && self.traces.len() / columns < WAITING_MAX
            && self.differences.len() == self.traces.len() / columns * m
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        let waiting = self.traces.capacity() + self.differences.capacity();
        self.transitions.bytes() + self.weighted.bytes() + waiting * size_of::<f64>()
    }
}

/// to <- f to + alpha x, of a few numbers.
fn gain(to: &mut [f64], f: f64, alpha: f64, x: &[f64]) {
    to.iter_mut().zip(x).for_each(|(to, x)| *to = f * *to + alpha * x);
}
