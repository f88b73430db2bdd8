//! Discounted returns of rows that may interleave in many streams, closed by values where a chain is cut.
//!
//! ```text
//! y_i = r_i + gamma_i y_next(i)          where the next row of the stream continues the chain
//! y_i = r_i                              where row i terminates
//! y_i = r_i + gamma_i V(x'_i)            where the chain is cut behind row i, "now" included  docs/mathematics.md (M4)
//! ```
//! The returns are linear in the values at the cuts, and that is how [`Returns`] keeps them.

use super::dense::Matrix;
use super::evidence::Difference;
use super::statistics::carry;
use crate::transition::Rows;
use std::collections::HashMap;

/// For each row (n,), the row that continues its chain: the next one of its stream, unless the row terminates, is
/// truncated, or that next row starts a chain of its own.
pub fn chains(rows: &Rows) -> Vec<Option<usize>> {
    let mut successor = vec![None; rows.len()];
    let mut last: HashMap<u32, usize> = HashMap::new();
    for (j, &stream) in rows.streams.iter().enumerate() {
        if let Some(i) = last.insert(stream, j)
            && !rows.starts_chain[j]
            && !rows.terminated[i]
            && !rows.truncated[i]
        {
            successor[i] = Some(j);
        }
    }
    successor
}

/// How many chains end among the rows: by a flag, by a transition of discount 0, or since the next row of their stream starts another.
/// `discount` is the critic's own.
pub fn ends(rows: &Rows, discount: f64) -> u64 {
    let mut last: HashMap<u32, bool> = HashMap::new();
    let mut count = 0;
    for (i, &stream) in rows.streams.iter().enumerate() {
        let ended = rows.truncated[i] || rows.follows(i, discount) == 0.0;
        let left = last.insert(stream, ended) == Some(false) && rows.starts_chain[i];
        count += u64::from(ended) + u64::from(left);
    }
    count
}

/// Rows behind which a chain is cut, ascending: nothing continues them and they do not terminate. `successor` is what
/// [`chains`] gave.
pub fn cuts(rows: &Rows, successor: &[Option<usize>]) -> Vec<usize> {
    (0..rows.len()).filter(|&i| successor[i].is_none() && !rows.terminated[i]).collect()
}

/// The targets y (n, H') of reward columns `columns` (H' of them), given `cut_values` (C, H'), the value of the
/// successor of each row in [`cuts`]. `discount` is the critic's own.
///
/// # Panics
/// If `cut_values` has other dimensions.
pub fn targets(rows: &Rows, columns: &[usize], discount: f64, cut_values: &Matrix) -> Matrix {
    Returns::new(rows, columns, discount).targets(cut_values)
}

/// The returns of rows as a linear function of the values at the cuts: y_i = open_i + weight_i V(x_cut(i)).
#[derive(Clone, Debug)]
pub struct Returns {
    /// Rows behind which a chain is cut (C,), ascending.
    pub cuts: Vec<usize>,
    /// For each row (n,), the position in `cuts` of the cut that its chain runs into; none if it terminates.
    pub cut_of: Vec<Option<usize>>,
    /// For each row (n,), the product of the discounts up to its cut; 0 if its chain terminates.
    pub weight: Vec<f64>,
    /// Discounted rewards up to the end of the chain (n, H'), reward unit.
    pub open: Matrix,
}

impl Returns {
    /// One backward sweep over `rows`, for reward columns `columns` (H' of them); `discount` is the critic's own.
    ///
    /// # Panics
    /// If a column is out of range.
    pub fn new(rows: &Rows, columns: &[usize], discount: f64) -> Self {
        let n = rows.len();
        let successor = chains(rows);
        let cuts = cuts(rows, &successor);
        let mut cut_of = vec![None; n];
        let mut weight = vec![0.0; n];
        for (position, &i) in cuts.iter().enumerate() {
            cut_of[i] = Some(position);
            weight[i] = rows.discount(i, discount);
        }
        let mut open = Matrix::zeros(n, columns.len());
        for i in (0..n).rev() {
            let gamma = rows.discount(i, discount);
            if let Some(next) = successor[i] {
                cut_of[i] = cut_of[next];
                weight[i] = gamma * weight[next];
            }
            for (h, &column) in columns.iter().enumerate() {
                let later = successor[i].map_or(0.0, |next| gamma * open.at(next, h));
                *open.at_mut(i, h) = rows.reward(i)[column] + later;
            }
        }
        Self { cuts, cut_of, weight, open }
    }

    /// The targets y (n, H') given the values at the cuts (C, H').
    ///
    /// # Panics
    /// If `cut_values` has other dimensions.
    pub fn targets(&self, cut_values: &Matrix) -> Matrix {
        let expected = (self.cuts.len(), self.open.cols());
        assert_eq!((cut_values.rows(), cut_values.cols()), expected, "one value for each cut and reward");
        let mut y = self.open.clone();
        for h in 0..y.cols() {
            let values = cut_values.col(h);
            for (i, target) in y.col_mut(h).iter_mut().enumerate() {
                if let Some(cut) = self.cut_of[i] {
                    *target += self.weight[i] * values[cut];
                }
            }
        }
        y
    }

    /// States at the cuts (C, D), row-major: the successors of the rows in `cuts`.
    pub fn cut_states(&self, rows: &Rows) -> Vec<f64> {
        self.cuts.iter().flat_map(|&i| rows.next_state(i).iter().copied()).collect()
    }
}

/// How returns are followed: with lambda and importance ratios.
#[derive(Clone, Copy, Debug)]
pub struct FollowedBy {
    /// lambda in \[0, 1\].
    pub lambda: f64,
    /// Largest ratio; none for no limit.
    pub rho_max: Option<f64>,
    /// Discount of rows that carry none.
    pub discount: f64,
}

impl FollowedBy {
    /// lambda-returns (n, H') of reward columns `columns`, given V at the rows' states and at their successors (n, H'):
    /// ```text
    /// y_t = r_t + gamma_t [V(x'_t) + lambda rho_(t+1) (y_(t+1) - V(x_(t+1)))]        where row t + 1 continues the chain
    /// y_t = r_t + gamma_t V(x'_t)   where it is cut behind row t,   y_t = r_t   where row t terminates
    /// ```
    /// This is docs/mathematics.md (M6).
    ///
    /// # Panics
    /// If matrices have other dimensions, or a column is out of range.
    pub fn targets(&self, rows: &Rows, columns: &[usize], values: &Matrix, next_values: &Matrix) -> Matrix {
        let shape = (rows.len(), columns.len());
        let given = [values, next_values].map(|matrix| (matrix.rows(), matrix.cols()));
        assert_eq!(given, [shape; 2], "one value for each row and reward");
        let successor = chains(rows);
        let carries = self.carries(rows, &successor);
        let mut y = Matrix::zeros(shape.0, shape.1);
        for i in (0..rows.len()).rev() {
            let gamma = rows.follows(i, self.discount);
            for (h, &column) in columns.iter().enumerate() {
                let beyond = successor[i].map_or(0.0, |next| carries[next] * (y.at(next, h) - values.at(next, h)));
                *y.at_mut(i, h) = rows.reward(i)[column] + gamma * (next_values.at(i, h) + beyond);
            }
        }
        y
    }

    /// How much of a trace flows into each row (n,); `successor` is what [`chains`] gave.
    fn carries(&self, rows: &Rows, successor: &[Option<usize>]) -> Vec<f64> {
        let (mut out, mut flowing) = (vec![0.0; rows.len()], vec![0.0; rows.len()]);
        for (i, next) in successor.iter().enumerate() {
            let ratio = rows.ratio(i, self.rho_max);
            out[i] = carry(self.lambda * rows.carry(i, self.rho_max), ratio, flowing[i]);
            if let Some(next) = *next {
                flowing[next] = rows.discount(i, self.discount) * (flowing[i] * out[i] + ratio);
            }
        }
        out
    }
}

/// What white noise observes: the distinct points (N, D), row-major, and for each row (n,) the difference
/// V(x_i) - gamma_i V(x'_i) in terms of them.
///
/// A successor shares the point of the row that continues its chain where the two states are the same numbers.
pub fn differences(rows: &Rows, discount: f64) -> (Vec<f64>, Vec<Difference>) {
    let successor = chains(rows);
    let mut nodes = rows.states.clone();
    let mut out = Vec::with_capacity(rows.len());
    for (i, next) in successor.iter().enumerate() {
        let gamma = rows.discount(i, discount);
        let successor = if rows.terminated[i] {
            None
        } else if let Some(j) = next.filter(|&j| rows.state(j) == rows.next_state(i)) {
            Some((j, gamma))
        } else {
            nodes.extend_from_slice(rows.next_state(i));
            Some((nodes.len() / rows.dim - 1, gamma))
        };
        out.push(Difference { node: i, factor: 1.0, successor });
    }
    (nodes, out)
}

/// Weight of each row of a `weighted` regression, in which nothing follows any row: a row is an observation of V in its state, and its
/// ratio says how often that counts.
pub fn regression_weights(rows: &Rows, weighted: bool) -> Option<&[f64]> {
    weighted.then_some(&rows.ratios[..])
}

/// The greatest of these weights, 1 without: a dictionary must suit the row whose noise is least.
pub fn greatest_weight(rows: &Rows, weighted: bool) -> f64 {
    let greatest = |weights: &[f64]| weights.iter().copied().fold(0.0, f64::max);
    regression_weights(rows, weighted).map(greatest).filter(|greatest| *greatest > 0.0).unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two streams, interleaved: stream 0 terminates, then runs on; stream 1 is truncated, then loses a row.
    fn rows() -> Rows {
        let flags = [
            (0, true, false, false),
            (1, true, false, false),
            (0, false, true, false),
            (1, false, false, true),
            (0, true, false, false),
            (1, true, false, false),
            (1, true, false, false),
        ];
        let mut rows = Rows::new(1, 2);
        for (i, (stream, starts, terminated, truncated)) in flags.into_iter().enumerate() {
            rows.states.push(i as f64);
            rows.next_states.push(i as f64 + 0.5);
            rows.rewards.extend([1.0, i as f64]);
            rows.discounts.push(if i == 1 { 0.25 } else { f64::NAN });
            rows.ratios.push(1.0);
            rows.streams.push(stream);
            rows.terminated.push(terminated);
            rows.truncated.push(truncated);
            rows.starts_chain.push(starts);
        }
        rows
    }

    #[test]
    fn chains_interleave_and_cuts_bootstrap() {
        let rows = rows();
        let successor = chains(&rows);
        assert_eq!(successor, [Some(2), Some(3), None, None, None, None, None]);
        assert_eq!(cuts(&rows, &successor), [3, 4, 5, 6]);
        let values = Matrix::from_rows(4, 2, &[10.0, 0.0, 20.0, 0.0, 30.0, 0.0, 40.0, 0.0]);
        let y = targets(&rows, &[0, 1], 0.5, &values);
        assert_eq!(y.col(0), [1.5, 1.0 + 0.25 * 6.0, 1.0, 6.0, 11.0, 16.0, 21.0]);
        assert_eq!(y.col(1), [1.0, 1.0 + 0.25 * 3.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(targets(&rows, &[1], 0.5, &Matrix::zeros(4, 1)).col(0), y.col(1));
    }

    #[test]
    fn chains_end_by_flags_by_discounts_of_0_and_where_others_begin() {
        let mut rows = rows();
        assert_eq!(ends(&rows, 0.5), 3, "a termination, a truncation, a lost row");
        rows.discounts[1] = 0.0;
        assert_eq!(ends(&rows, 0.5), 4);
        rows.starts_chain[6] = false;
        assert_eq!(ends(&rows, 0.5), 3);
    }

    #[test]
    fn differences_share_a_point_only_with_the_same_state() {
        let mut rows = rows();
        rows.next_states[0] = rows.states[2];
        let (nodes, differences) = differences(&rows, 0.5);
        assert_eq!(differences[0].successor, Some((2, 0.5)));
        assert_eq!(differences[1].successor, Some((7, 0.25)));
        assert_eq!(differences[2].successor, None);
        assert_eq!(nodes.len(), 7 + 5);
        assert_eq!(nodes[7], rows.next_states[1]);
    }
}
