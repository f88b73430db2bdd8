//! The highest point of a weighted sum of kernel values over the actions of a box, docs/mathematics.md (A7).

use crate::math::columns::GivenColumn;
use crate::math::dense::{ViewMut, dot};
use crate::math::kernel::{Kernel, Points, Profile};
use crate::snapshot::{Inputs, Snapshot};
use nalgebra::{DMatrix, DVector};

/// Newton steps in a box, and the candidates that they start from.
pub(super) const STEPS: usize = 6;
pub(super) const STARTS: usize = 3;
/// Times a step is halved before it is given up.
const HALVINGS: usize = 8;
/// A step that is expected to gain less than this share of the height changes it by its rounding.
const ROUNDING: f64 = 1e-14;

/// h(x, a) = sum_j w_j v0 f(|z - d_j|^2) + sum of w_j s_j z_d over the actions a of a box, for projected elements d_j, columns that are
/// linear in a number of the action, and any weights w (m,).
#[derive(Clone, Debug)]
pub(super) struct Hill {
    /// Without the bias and the columns that no action changes.
    kernel: Kernel,
    /// Weights that stand before the elements' weights.
    columns: usize,
    /// Of each column of a number of the action: its own number, the input's, and s.
    linear: Vec<(usize, usize, f64)>,
    /// Elements, projected: in lanes for values, row by row (m, width) for derivatives.
    points: Points,
    elements: Vec<f64>,
    /// J (width, A): what a projected input gains by one of each number of an action.
    along: DMatrix<f64>,
    /// J'J (A, A).
    metric: DMatrix<f64>,
    /// J'd_j (m, A), row by row.
    slides: Vec<f64>,
}

/// A point of the hill.
struct HillPoint {
    /// The input (D,).
    input: Vec<f64>,
    /// h there.
    height: f64,
}

impl Hill {
    /// Of a snapshot whose inputs end with the `width` numbers of an action.
    pub(super) fn new(snapshot: &Snapshot, width: usize) -> Self {
        let dim = snapshot.dim();
        let of = &snapshot.hyperparameters.kernel;
        let kernel = Kernel { bias_variance: 0.0, columns: Vec::new(), ..of.clone() };
        let changed = |(j, column): (usize, &GivenColumn)| {
            let variable = column.function.variable().filter(|&d| d >= dim - width);
            variable.map(|d| (j, d, column.variance))
        };
        let linear = of.columns.iter().enumerate().filter_map(changed).collect();
        let elements = kernel.project(dim, snapshot.dictionary.transpose().as_slice());
        let mut input = vec![0.0; dim];
        let origin = kernel.project(dim, &input);
        let mut along = DMatrix::zeros(origin.len(), width);
        // Numbers of an action are real: a projected input is an affine function of them.
        for d in dim - width..dim {
            input[d] = 1.0;
            let moved = kernel.project(dim, &input);
            for (i, (to, from)) in moved.iter().zip(&origin).enumerate() {
                along[(i, d + width - dim)] = (to - from) / snapshot.inputs.scale[d];
            }
            input[d] = 0.0;
        }
        let slide = |element: &[f64], d: usize| dot(element, along.column(d).as_slice());
        let slides = elements.chunks_exact(origin.len()).flat_map(|e| (0..width).map(move |d| slide(e, d))).collect();
        Self {
            columns: of.columns(),
            linear,
            points: Points::new(origin.len(), &elements),
            metric: along.tr_mul(&along),
            kernel,
            elements,
            along,
            slides,
        }
    }

    /// h (k,) at inputs (k, D), row-major, under these weights (m,).
    pub(super) fn heights(&self, snapshot: &Snapshot, inputs: &[f64], weights: &[f64]) -> Vec<f64> {
        let dim = snapshot.dim();
        let mut values = vec![0.0; self.points.len()];
        inputs.chunks_exact(dim).map(|input| self.height(snapshot, input, weights, &mut values)).collect()
    }

    fn point(&self, snapshot: &Snapshot, input: &[f64]) -> Vec<f64> {
        self.kernel.project(snapshot.dim(), &snapshot.inputs.normalise(input))
    }

    /// h at an input (D,); `values` (elements,) is overwritten.
    fn height(&self, snapshot: &Snapshot, input: &[f64], weights: &[f64], values: &mut [f64]) -> f64 {
        self.kernel.block(&self.points, &self.point(snapshot, input), &mut ViewMut::column(values));
        let height = dot(values, &weights[self.columns..]);
        let Inputs { shift, scale, .. } = &snapshot.inputs;
        self.linear.iter().fold(height, |sum, &(j, d, s)| sum + weights[j] * s * (input[d] - shift[d]) / scale[d])
    }

    /// Gradient (A,) and Hessian (A, A) of h by the numbers of the action, at an input (D,).
    fn slopes(&self, snapshot: &Snapshot, input: &[f64], weights: &[f64]) -> (DVector<f64>, DMatrix<f64>) {
        let point = &self.point(snapshot, input)[..];
        let width = self.metric.ncols();
        let here: Vec<f64> = (0..width).map(|d| dot(point, self.along.column(d).as_slice())).collect();
        let (mut gradient, mut hessian) = (vec![0.0; width], DMatrix::zeros(width, width));
        let (mut rise, mut bent) = (vec![0.0; width], 0.0);
        let elements = self.elements.chunks_exact(point.len()).zip(self.slides.chunks_exact(width));
        for ((element, slides), &w) in elements.zip(&weights[self.columns..]) {
            let [first, second] = derivatives(self.kernel.profile, self.kernel.squared_distance(element, point));
            let (first, second) = (2.0 * w * first, 4.0 * w * second);
            for (((rise, here), slide), gradient) in rise.iter_mut().zip(&here).zip(slides).zip(&mut gradient) {
                *rise = here - slide;
                *gradient += first * *rise;
            }
            for (column, &by) in hessian.as_mut_slice().chunks_exact_mut(width).zip(&rise) {
                column.iter_mut().zip(&rise).for_each(|(entry, rise)| *entry += second * by * rise);
            }
            bent += first;
        }
        hessian += &self.metric * bent;
        let v0 = self.kernel.signal_variance;
        let (mut gradient, first) = (DVector::from_vec(gradient) * v0, snapshot.dim() - width);
        for &(j, d, s) in &self.linear {
            gradient[d - first] += weights[j] * s / snapshot.inputs.scale[d];
        }
        (gradient, hessian * v0)
    }

    /// The highest point that Newton steps reach between `low` and `high` from the `STARTS` inputs (k, D) of the largest scores
    /// (k,): an input (D,).
    pub(super) fn climb(
        &self,
        snapshot: &Snapshot,
        (inputs, scores): (&[f64], &[f64]),
        weights: &[f64],
        bounds: (&[f64], &[f64]),
    ) -> Vec<f64> {
        let dim = snapshot.dim();
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        let mut best: Option<HillPoint> = None;
        for &start in order.iter().take(STARTS) {
            let input = inputs[start * dim..(start + 1) * dim].to_vec();
            let height = self.heights(snapshot, &input, weights)[0];
            let mut place = HillPoint { input, height };
            for _ in 0..STEPS {
                match self.step(snapshot, &place, weights, bounds) {
                    Some(next) => place = next,
                    None => break,
                }
            }
            if best.as_ref().is_none_or(|best| place.height > best.height) {
                best = Some(place);
            }
        }
        best.map(|place| place.input).unwrap_or_default()
    }

    /// A damped Newton step uphill, kept between the bounds; none where none goes up by more than its rounding.
    fn step(
        &self,
        snapshot: &Snapshot,
        from: &HillPoint,
        weights: &[f64],
        (low, high): (&[f64], &[f64]),
    ) -> Option<HillPoint> {
        let action = from.input.len() - low.len();
        let (mut gradient, mut hessian) = self.slopes(snapshot, &from.input, weights);
        // A coordinate at a bound whose step leaves the box keeps its value.
        for (d, &at) in from.input[action..].iter().enumerate() {
            if (at <= low[d] && gradient[d] < 0.0) || (at >= high[d] && gradient[d] > 0.0) {
                gradient[d] = 0.0;
                hessian.row_mut(d).fill(0.0);
                hessian.column_mut(d).fill(0.0);
            }
        }
        let eigen = hessian.symmetric_eigen();
        let largest = eigen.eigenvalues.amax();
        let mut turned = eigen.eigenvectors.tr_mul(&gradient);
        for (g, curvature) in turned.iter_mut().zip(eigen.eigenvalues.iter()) {
            let curvature = curvature.abs().max(1e-9 * largest);
            *g = if curvature > 0.0 { *g / curvature } else { 0.0 };
        }
        let mut step = eigen.eigenvectors * turned;
        if gradient.dot(&step) <= ROUNDING * from.height.abs() {
            return None;
        }
        let mut values = vec![0.0; self.points.len()];
        for _ in 0..HALVINGS {
            let mut input = from.input.clone();
            for (d, at) in input[action..].iter_mut().enumerate() {
                *at = (*at + step[d]).clamp(low[d], high[d]);
            }
            let height = self.height(snapshot, &input, weights, &mut values);
            if height > from.height {
                return Some(HillPoint { input, height });
            }
            step *= 0.5;
        }
        None
    }
}

/// First and second derivative of the profile by the squared distance, at squared distance s.
fn derivatives(profile: Profile, s: f64) -> [f64; 2] {
    match profile {
        Profile::Gaussian => {
            let value = (-0.5 * s).exp();
            [-0.5 * value, 0.25 * value]
        }
        Profile::Matern52 => {
            let a = (5.0 * s).sqrt();
            let falls = (-a).exp();
            [-5.0 / 6.0 * (1.0 + a) * falls, 25.0 / 12.0 * falls]
        }
    }
}
