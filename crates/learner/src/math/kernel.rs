//! The covariance functions of \[JS09, eq. 18\] and the hyperparameters of a model.
//!
//! `docs/mathematics.md`, (K1) to (K6).

use super::columns::{GivenColumn, GivenFunction};
use super::dense::{Matrix, ViewMut, symmetric_eigen};
use super::embedding::{Embedding, StateKind, on_circle};
use super::exp::{Lanes, Shape, covariances, of_squares, scaled_exp};
use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;

/// The metric Omega of the kernel, in the coordinates that the kernel is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Metric {
    /// Omega = h I: every coordinate alike. One inverse squared lengthscale, positive.
    Isotropic(f64),
    /// Omega = diag(a): one relevance per coordinate (D,), nonnegative; 0 removes the coordinate.
    Ard(Vec<f64>),
    /// Omega = diag(a) + sum_j f_j f_j': relevances (D,) and `factors`, k directions of length D.
    Factor {
        /// Relevance of each coordinate (D,), nonnegative.
        relevance: Vec<f64>,
        /// k directions f_j, each (D,).
        factors: Vec<Vec<f64>>,
    },
}

named! {
    /// How covariance falls with r^2 = (x - x')' Omega (x - x'): 1 at zero, a positive definite function in any dimension.
    #[derive(Default, Serialize, Deserialize)]
    pub enum Profile {
        /// exp(-r^2 / 2): value functions are smooth in all their derivatives.                        \[JS09, eq. 18\]
        #[default]
        Gaussian = "gaussian",
        /// (1 + a + a^2 / 3) exp(-a) with a = sqrt(5) r: they have two, and may bend where a Gaussian would ring.
        Matern52 = "matern52",
    }
}

impl Profile {
    /// Whether -2 d/dr^2 of the profile is the profile.
    pub(super) fn is_its_slope(self) -> bool {
        self == Self::Gaussian
    }

    fn shape(self) -> Shape {
        match self {
            Self::Gaussian => Shape::Gaussian,
            Self::Matern52 => Shape::Matern52,
        }
    }

    /// The profile at r^2.
    fn at(self, squared: f64) -> f64 {
        match self {
            Self::Gaussian => (-0.5 * squared).exp(),
            Self::Matern52 => {
                let a = (5.0 * squared).sqrt();
                // Beyond, the exponential is zero, and the square might overflow.
                if a > 1e3 { 0.0 } else { (1.0 + a * (1.0 + a / 3.0)) * (-a).exp() }
            }
        }
    }

    /// -2 d/dr^2 of the profile at r^2: what gradients of the evidence are made of. A Gaussian is its own.
    fn slope_at(self, squared: f64) -> f64 {
        match self {
            Self::Gaussian => self.at(squared),
            Self::Matern52 => {
                let a = (5.0 * squared).sqrt();
                if a > 1e3 { 0.0 } else { 5.0 / 3.0 * (1.0 + a) * (-a).exp() }
            }
        }
    }
}

/// k(x, x') = v0 profile((x - x')' Omega (x - x')) + b + sum_j s_j f_j(x) f_j(x')              \[JS09, eq. 18\], (K6)
///
/// The first two terms are what a dictionary spans ([`Kernel::eval`], [`Kernel::block`], [`Kernel::diagonal`]). The sum is over
/// the [columns](super::columns), which are exact and need no dictionary; [`Kernel::covariance`] and [`Kernel::prior`] have it too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// v0, positive, value^2.
    pub signal_variance: f64,
    /// b, nonnegative, value^2.
    pub bias_variance: f64,
    /// Omega.
    pub metric: Metric,
    /// How covariance falls with distance.
    #[serde(default)]
    pub profile: Profile,
    /// What each state variable is (D,); empty if all are real, which [`Kernel::with_kinds`] sees to. Differences x - x' are
    /// taken in the [embedding](super::embedding), each variable with its one relevance; directions of a factor model go along
    /// lines, bent or not, alone: what they say of others is not read.
    #[serde(default)]
    pub kinds: Vec<StateKind>,
    /// Explicit columns; where there are any, b is 0 and the constant is one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<GivenColumn>,
}

named! {
    /// Correlation of the reward noise along a chain.
    #[derive(Default, Serialize, Deserialize)]
    pub enum NoiseModel {
        /// Sigma = sigma0^2 H H': the noise is on the returns. Right for stochastic transitions.
        #[default]
        Correlated = "correlated",
        /// Sigma = sigma0^2 I: the noise is on single rewards. Right only where transitions are deterministic.
        White = "white",
    }
}

/// Everything that model selection chooses.
#[derive(Clone, Debug, PartialEq)]
pub struct Hyperparameters {
    /// Prior covariance of the value function.
    pub kernel: Kernel,
    /// Structure of the noise.
    pub noise: NoiseModel,
    /// sigma0^2, positive, reward^2.
    pub noise_variance: f64,
}

impl Metric {
    /// The word used on the wire and in files.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Isotropic(_) => "isotropic",
            Self::Ard(_) => "ard",
            Self::Factor { .. } => "factor",
        }
    }

    /// diag part of Omega for states of dimension `dim`.
    pub fn relevance(&self, dim: usize) -> Vec<f64> {
        match self {
            Self::Isotropic(h) => vec![*h; dim],
            Self::Ard(a) => a.clone(),
            Self::Factor { relevance, .. } => relevance.clone(),
        }
    }

    /// The same for states (`dim`,) without these coordinates: their relevances are 0, and no direction goes along them.
    pub fn without(&self, coordinates: &[usize], dim: usize) -> Self {
        let clear = |mut of: Vec<f64>| {
            coordinates.iter().for_each(|&d| of[d] = 0.0);
            of
        };
        let relevance = clear(self.relevance(dim));
        match self {
            Self::Isotropic(_) | Self::Ard(_) => Self::Ard(relevance),
            Self::Factor { factors, .. } => {
                Self::Factor { relevance, factors: factors.iter().cloned().map(clear).collect() }
            }
        }
    }

    /// Diagonal part of Omega at coordinate `d`.
    fn relevance_of(&self, d: usize) -> f64 {
        match self {
            Self::Isotropic(h) => *h,
            Self::Ard(relevance) | Self::Factor { relevance, .. } => relevance[d],
        }
    }

    /// The directions f_j; none unless the metric is a factor model.
    pub fn factors(&self) -> &[Vec<f64>] {
        match self {
            Self::Factor { factors, .. } => factors,
            _ => &[],
        }
    }

    /// Omega (D, D) for states of dimension `dim`.
    pub fn matrix(&self, dim: usize) -> Matrix {
        let mut omega = Matrix::zeros(dim, dim);
        for (d, relevance) in self.relevance(dim).into_iter().enumerate() {
            *omega.at_mut(d, d) = relevance;
        }
        for factor in self.factors() {
            for (j, along) in factor.iter().enumerate() {
                super::dense::axpy(omega.col_mut(j), *along, factor);
            }
        }
        omega
    }

    /// The eigenvectors of Omega, the strongest first, each a unit vector (D,) whose largest entry is positive: the directions
    /// that the value function varies along, as \[JS09, section 6\] reports a factor model. Empty if Omega is not finite.
    pub fn directions(&self, dim: usize) -> Vec<Direction> {
        let Ok((strengths, vectors)) = symmetric_eigen(&self.matrix(dim)) else { return Vec::new() };
        let direction = |j: usize| {
            let mut vector = vectors.col(j).to_vec();
            let largest = vector.iter().copied().fold(0.0f64, |a, v| if v.abs() > a.abs() + 1e-9 { v } else { a });
            if largest < 0.0 {
                vector.iter_mut().for_each(|v| *v = -*v);
            }
            // Omega is positive semidefinite: what is below zero is rounding.
            Direction { strength: strengths[j].max(0.0), vector }
        };
        (0..dim).rev().map(direction).collect()
    }
}

/// An eigenvector of Omega.
#[derive(Clone, Debug, PartialEq)]
pub struct Direction {
    /// Eigenvalue: the inverse squared lengthscale along the direction, not negative.
    pub strength: f64,
    /// Unit vector (D,), in the coordinates of the kernel.
    pub vector: Vec<f64>,
}

impl Kernel {
    /// The kernel of the paper: a Gaussian profile, real state variables.
    pub fn gaussian(signal_variance: f64, bias_variance: f64, metric: Metric) -> Self {
        let (profile, kinds, columns) = (Profile::Gaussian, Vec::new(), Vec::new());
        Self { signal_variance, bias_variance, metric, profile, kinds, columns }
    }

    /// The same with another profile.
    pub fn with_profile(self, profile: Profile) -> Self {
        Self { profile, ..self }
    }

    /// The same over state variables of these kinds (D,); none for all real.
    pub fn with_kinds(self, kinds: &[StateKind]) -> Self {
        let real = kinds.iter().all(|kind| *kind == StateKind::Real);
        Self { kinds: if real { Vec::new() } else { kinds.to_vec() }, ..self }
    }

    /// The same with a constant and linear columns over states (`dim`,) beside it: the constant has the variance b, which the rest
    /// then lacks, each other, as `line` has it, `variance`, not negative. With variance 0 it is the kernel as it is.
    pub fn with_linear_columns(self, dim: usize, variance: f64, line: fn(usize) -> GivenFunction) -> Self {
        if variance == 0.0 {
            return self;
        }
        let columns = GivenColumn::constant_and_linear(self.bias_variance, variance, line, &self.kinds, dim);
        Self { bias_variance: 0.0, columns, ..self }
    }

    /// c: the variance of the linear columns over v0; 0 without such columns.
    pub fn linear_share(&self) -> f64 {
        self.columns
            .iter()
            .find(|column| column.function.is_linear())
            .map_or(0.0, |c| c.variance / self.signal_variance)
    }

    /// The functions of its columns that go with a variable.
    pub fn lines(&self) -> impl Iterator<Item = GivenFunction> {
        self.columns.iter().map(|column| column.function).filter(|function| function.is_linear())
    }

    /// Prior variance of the constant, wherever it stands.
    pub fn constant_variance(&self) -> f64 {
        let columns = self.columns.iter().filter(|column| column.function.is_constant());
        columns.fold(self.bias_variance, |sum, column| sum + column.variance)
    }

    /// All covariances `by` times as large.
    pub fn scaled(&self, by: f64) -> Self {
        Self {
            signal_variance: by * self.signal_variance,
            bias_variance: by * self.bias_variance,
            columns: self.columns.iter().map(|c| GivenColumn { variance: by * c.variance, ..*c }).collect(),
            ..self.clone()
        }
    }

    /// What state variable `d` is.
    pub fn kind_of(&self, d: usize) -> StateKind {
        self.kinds.get(d).copied().unwrap_or_default()
    }

    /// How far variable `d` of states (`dim`,) must go, all others where they are, for r^2 to reach 1, in the unit of the
    /// coordinate: infinite if it does not matter, along the circle if it is periodic, as it goes about 0 if it is bent, none for a
    /// category.
    pub fn lengthscale(&self, d: usize, dim: usize) -> Option<f64> {
        match self.kind_of(d) {
            kind @ (StateKind::Real | StateKind::Bent(_)) => {
                Some(kind.unit() / self.metric.matrix(dim).at(d, d).sqrt())
            }
            StateKind::Periodic(period) => Some(period / (TAU * self.metric.relevance_of(d).sqrt())),
            StateKind::Category => None,
        }
    }

    /// Whether metric and kinds fit states (`dim`,).
    pub(crate) fn is_of(&self, dim: usize) -> bool {
        self.metric.relevance(dim).len() == dim
            && self.metric.factors().iter().all(|factor| factor.len() == dim)
            && (self.kinds.is_empty() || self.kinds.len() == dim)
            && self.columns.iter().all(|column| column.is_of(dim, &self.kinds))
    }

    pub(super) fn embedding(&self, dim: usize) -> Embedding {
        Embedding::new(&self.kinds, dim)
    }

    fn count(&self, test: fn(&StateKind) -> bool) -> usize {
        self.kinds.iter().filter(|kind| test(kind)).count()
    }

    /// Pairs at the end of a projected state that hold a category, and what it adds to r^2 where it is another.
    fn categories(&self) -> usize {
        self.count(|kind| *kind == StateKind::Category)
    }

    /// v0 + b: k(x, x) without columns, the same for every x.
    pub fn diagonal(&self) -> f64 {
        self.signal_variance + self.bias_variance
    }

    /// k(x, x) of a state whose coordinates are about as large as a normalised state's: where a grid of ridges begins.
    pub fn typical(&self) -> f64 {
        self.columns.iter().fold(self.diagonal(), |sum, column| sum + column.variance)
    }

    /// Number of columns q.
    pub fn columns(&self) -> usize {
        self.columns.len()
    }

    /// Length of a projected state: one for each line, two for each other variable, plus one per factor and per column.
    pub fn projected_dim(&self, dim: usize) -> usize {
        dim + self.count(|kind| !kind.is_line()) + self.metric.factors().len() + self.columns.len()
    }

    /// Map states (n, D), row-major, to points whose Euclidean distance is the metric's:
    /// (sqrt(a_1) x_1, ..., sqrt(a_D) x_D, f_1' x, ..., f_k' x).
    ///
    /// A bent variable has its bent coordinate instead of x, in directions too. A periodic variable has two places, for its point of the circle. Then come categories, two places for each: its value,
    /// and what two different ones add to the squared distance, 2 a. Last come the values of the columns, which are no
    /// coordinates. [`Kernel::eval`] and the others know.
    ///
    /// # Panics
    /// If `states` is not a whole number of rows, or the kernel is of another dimension.
    pub fn project(&self, dim: usize, states: &[f64]) -> Vec<f64> {
        let mut out = Vec::with_capacity(states.len() / dim * self.projected_dim(dim));
        self.project_into(dim, states, &mut out);
        out
    }

    /// [`Kernel::project`], appending to `out`.
    ///
    /// # Panics
    /// If `states` is not a whole number of rows, or the kernel is of another dimension.
    pub fn project_into(&self, dim: usize, states: &[f64], out: &mut Vec<f64>) {
        assert!(dim > 0 && states.len().is_multiple_of(dim), "states are not whole rows");
        if !self.kinds.is_empty() {
            self.project_kinds_into(dim, states, out);
            return;
        }
        let factors = match &self.metric {
            Metric::Isotropic(h) if self.columns.is_empty() => {
                let root = h.sqrt();
                out.extend(states.iter().map(|v| v * root));
                return;
            }
            Metric::Isotropic(_) => &[],
            Metric::Ard(relevance) | Metric::Factor { relevance, .. } => {
                assert_eq!(relevance.len(), dim, "the metric is of another dimension");
                self.metric.factors()
            }
        };
        let (first, width) = (out.len(), dim + factors.len() + self.columns.len());
        out.resize(first + states.len() / dim * width, 0.0);
        // Coordinate by coordinate: a root is not cheap.
        for d in 0..dim {
            let root = self.metric.relevance_of(d).sqrt();
            for (out, x) in out[first..].chunks_exact_mut(width).zip(states.chunks_exact(dim)) {
                out[d] = x[d] * root;
            }
        }
        for (k, factor) in factors.iter().enumerate() {
            for (out, x) in out[first..].chunks_exact_mut(width).zip(states.chunks_exact(dim)) {
                out[dim + k] = factor.iter().zip(x).map(|(a, b)| a * b).sum();
            }
        }
        for (k, column) in self.columns.iter().enumerate() {
            for (out, x) in out[first..].chunks_exact_mut(width).zip(states.chunks_exact(dim)) {
                out[dim + factors.len() + k] = column.value(x, &[]);
            }
        }
    }

    /// [`Kernel::project_into`] where some state variable is not real.
    fn project_kinds_into(&self, dim: usize, states: &[f64], out: &mut Vec<f64>) {
        assert!(self.is_of(dim), "the kernel is of another dimension");
        let mut lines = vec![0.0; dim];
        for x in states.chunks_exact(dim) {
            for (d, (&x, kind)) in x.iter().zip(&self.kinds).enumerate() {
                let root = self.metric.relevance_of(d).sqrt();
                match *kind {
                    StateKind::Real | StateKind::Bent(_) => {
                        lines[d] = kind.on_line(x).expect("a line");
                        out.push(root * lines[d]);
                    }
                    StateKind::Periodic(period) => out.extend(on_circle(x, period).map(|coordinate| root * coordinate)),
                    StateKind::Category => {}
                }
            }
            for factor in self.metric.factors() {
                out.push(factor.iter().zip(&lines).map(|(f, x)| f * x).sum());
            }
            for (d, (&x, kind)) in x.iter().zip(&self.kinds).enumerate() {
                if *kind == StateKind::Category {
                    out.extend([x, 2.0 * self.metric.relevance_of(d)]);
                }
            }
            out.extend(self.columns.iter().map(|column| column.value(x, &self.kinds)));
        }
    }

    /// The coordinates of a projected point, and the values of the columns there (q,).
    fn parts<'a>(&self, point: &'a [f64]) -> (&'a [f64], &'a [f64]) {
        point.split_at(point.len() - self.columns.len())
    }

    /// r^2 between two projected points.
    pub(crate) fn squared_distance(&self, a: &[f64], b: &[f64]) -> f64 {
        let ((a, _), (b, _)) = (self.parts(a), self.parts(b));
        let (a, own) = a.split_at(a.len() - 2 * self.categories());
        let (b, other) = b.split_at(a.len());
        let squared = a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum::<f64>();
        own.chunks_exact(2)
            .zip(other.chunks_exact(2))
            .filter(|(x, y)| x[0] != y[0])
            .fold(squared, |sum, (x, _)| sum + x[1])
    }

    /// sum_j s_j f_j(a) f_j(b) of two projected points: what the columns add to k.
    pub fn of_columns(&self, a: &[f64], b: &[f64]) -> f64 {
        let values = self.parts(a).1.iter().zip(self.parts(b).1);
        self.columns.iter().zip(values).map(|(column, (a, b))| column.variance * a * b).sum()
    }

    /// out\[i, j\] += what the columns add to k(a_i, b_j), for projected points (n, width) and (k, width).
    ///
    /// # Panics
    /// If `out` is not (n, k).
    pub fn add_columns(&self, a: &[f64], b: &[f64], out: &mut Matrix) {
        let (Some(width), false) = (a.len().checked_div(out.rows()), self.columns.is_empty()) else { return };
        assert!(a.len() == out.rows() * width && b.len() == out.cols() * width, "points that do not fit");
        for (j, y) in b.chunks_exact(width).enumerate() {
            for (value, x) in out.col_mut(j).iter_mut().zip(a.chunks_exact(width)) {
                *value += self.of_columns(x, y);
            }
        }
    }

    /// k between two projected points, columns and all.
    pub fn covariance(&self, a: &[f64], b: &[f64]) -> f64 {
        let spanned = self.eval(a, b);
        if self.columns.is_empty() { spanned } else { spanned + self.of_columns(a, b) }
    }

    /// k(x, x) at a projected point, columns and all.
    pub fn prior(&self, point: &[f64]) -> f64 {
        let spanned = self.diagonal();
        if self.columns.is_empty() { spanned } else { spanned + self.of_columns(point, point) }
    }

    /// k between two projected points, but for the columns.
    pub fn eval(&self, a: &[f64], b: &[f64]) -> f64 {
        self.signal_variance * self.profile.at(self.squared_distance(a, b)) + self.bias_variance
    }

    /// v0 times the [slope](Profile::slope_at) of the profile between two projected points.
    pub(crate) fn slope(&self, a: &[f64], b: &[f64]) -> f64 {
        self.signal_variance * self.profile.slope_at(self.squared_distance(a, b))
    }

    /// out\[i, j\] = k(a_i, b_j), but for the columns of the kernel, for the points `a` (rows of out) and `b` (columns), projected,
    /// row-major.
    ///
    /// # Panics
    /// If `out` has other dimensions.
    pub fn block(&self, a: &Points, b: &[f64], out: &mut ViewMut<'_>) {
        assert_eq!(out.rows(), a.len(), "as many rows as points");
        assert_eq!(out.cols() * a.width, b.len(), "as many columns as points");
        for (j, y) in b.chunks_exact(a.width).enumerate() {
            a.covariances(self, 0, y, self.bias_variance, out.col_mut(j));
        }
    }

    /// The kernel row k_m(x) of each of the projected points `b`: what V there has in common with the coefficients of the columns,
    /// s_j f_j(x), and with V at the `elements` of a dictionary, k(d_i, x) but for the columns.
    ///
    /// # Panics
    /// If `out` is not (q + m, n).
    pub fn rows(&self, elements: &Points, b: &[f64], out: &mut ViewMut<'_>) {
        assert_eq!(out.rows(), self.columns() + elements.len(), "a row for each column and element");
        assert_eq!(out.cols() * elements.width, b.len(), "as many columns as points");
        for (j, y) in b.chunks_exact(elements.width).enumerate() {
            self.row(elements, y, out.col_mut(j));
        }
    }

    fn row(&self, elements: &Points, y: &[f64], out: &mut [f64]) {
        let (given, spanned) = out.split_at_mut(self.columns.len());
        for ((out, column), value) in given.iter_mut().zip(&self.columns).zip(self.parts(y).1) {
            *out = column.variance * value;
        }
        elements.covariances(self, 0, y, self.bias_variance, spanned);
    }

    /// [`Kernel::rows`] that begin `stride` numbers apart; what is left between them becomes zero.
    ///
    /// # Panics
    /// If the rows do not fit `out`.
    pub fn rows_apart(&self, elements: &Points, b: &[f64], stride: usize, out: &mut [f64]) {
        let len = self.columns() + elements.len();
        assert!(len <= stride && b.len() * stride == out.len() * elements.width, "columns that do not fit");
        if stride == 0 {
            return;
        }
        for (y, row) in b.chunks_exact(elements.width).zip(out.chunks_exact_mut(stride)) {
            let (row, between) = row.split_at_mut(len);
            self.row(elements, y, row);
            between.fill(0.0);
        }
    }

    /// out\[i\] = k(x_i, y) for projected points `x`, row-major, and one `y`. For points that stand together only once: it is
    /// slower than [`Kernel::block`].
    ///
    /// # Panics
    /// If `out` is of another length.
    pub fn column(&self, x: &[f64], y: &[f64], out: &mut [f64]) {
        assert_eq!(out.len() * y.len(), x.len(), "one value for each point");
        for (value, x) in out.iter_mut().zip(x.chunks_exact(y.len())) {
            *value = self.squared_distance(x, y);
        }
        if self.profile == Profile::Gaussian {
            out.iter_mut().for_each(|value| *value *= -0.5);
            scaled_exp(out, self.signal_variance);
            out.iter_mut().for_each(|value| *value += self.bias_variance);
        } else {
            of_squares(out, self.profile.shape(), self.signal_variance, self.bias_variance);
        }
    }
}

/// Projected points, coordinate by coordinate, so that the distances of many points to one are computed in lanes.
#[derive(Clone, Debug, Default)]
pub struct Points {
    width: usize,
    len: usize,
    /// Coordinate w of point i at w * room + i.
    columns: Vec<f64>,
    room: usize,
}

impl Points {
    /// The points of `rows`, row-major, of length `width`.
    pub fn new(width: usize, rows: &[f64]) -> Self {
        let mut out = Self { width, ..Self::default() };
        out.replace(rows);
        out
    }

    /// Hold these points instead, in the memory that is there.
    pub fn replace(&mut self, rows: &[f64]) {
        self.len = 0;
        self.reserve(rows.len() / self.width.max(1));
        rows.chunks_exact(self.width.max(1)).for_each(|row| self.push(row));
    }

    /// One point more.
    pub fn push(&mut self, row: &[f64]) {
        assert_eq!(row.len(), self.width, "a point of another length");
        if self.len == self.room {
            self.reserve(2 * self.len.max(8));
        }
        for (w, value) in row.iter().enumerate() {
            self.columns[w * self.room + self.len] = *value;
        }
        self.len += 1;
    }

    fn reserve(&mut self, room: usize) {
        if room <= self.room {
            return;
        }
        let mut columns = vec![0.0; room * self.width];
        for w in 0..self.width {
            columns[w * room..][..self.len].copy_from_slice(&self.columns[w * self.room..][..self.len]);
        }
        (self.columns, self.room) = (columns, room);
    }

    /// Number of points.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        self.columns.len() * size_of::<f64>()
    }

    /// out\[i\] = v0 profile(|x - y|^2) + level for the points x from number `first` on and one projected `y`.
    pub(super) fn covariances(&self, kernel: &Kernel, first: usize, y: &[f64], level: f64, out: &mut [f64]) {
        self.compare(kernel, kernel.profile.shape(), first, y, level, out);
    }

    /// out\[i\] = v0 times the profile's -2 d/dr^2 at |x - y|^2, for the same points.
    pub(super) fn slopes(&self, kernel: &Kernel, first: usize, y: &[f64], out: &mut [f64]) {
        let shape = match kernel.profile {
            Profile::Gaussian => Shape::Gaussian,
            Profile::Matern52 => Shape::Matern52Slope,
        };
        self.compare(kernel, shape, first, y, 0.0, out);
    }

    fn compare(&self, kernel: &Kernel, shape: Shape, first: usize, y: &[f64], level: f64, out: &mut [f64]) {
        assert!(first + out.len() <= self.len && y.len() == self.width, "points that are not there");
        let y = kernel.parts(y).0;
        let points = Lanes { columns: &self.columns, stride: self.room, first, categories: kernel.categories() };
        covariances(out, points, y, shape, kernel.signal_variance, level);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::embedding::Bend;

    #[test]
    fn directions_are_those_of_the_metric() {
        let factors = vec![vec![3.0, -4.0, 0.0]];
        let metric = Metric::Factor { relevance: vec![0.25, 0.25, 2.0], factors };
        let found = metric.directions(3);
        let expected = [(25.25, [-0.6, 0.8, 0.0]), (2.0, [0.0, 0.0, 1.0]), (0.25, [0.8, 0.6, 0.0])];
        for (found, (strength, vector)) in found.iter().zip(expected) {
            assert!((found.strength - strength).abs() < 1e-12, "{found:?}");
            assert!(found.vector.iter().zip(vector).all(|(a, b)| (a - b).abs() < 1e-12), "{found:?}");
        }
        assert_eq!(Metric::Isotropic(0.5).directions(2).len(), 2);
        assert!(Metric::Ard(vec![f64::NAN]).directions(1).is_empty());
    }

    #[test]
    fn projection_gives_the_metrics_distance() {
        let kernel =
            Kernel::gaussian(2.0, 0.5, Metric::Factor { relevance: vec![1.0, 0.25], factors: vec![vec![0.3, -0.7]] });
        let (x, y) = ([0.2, -1.0], [1.1, 0.4]);
        let d = [x[0] - y[0], x[1] - y[1]];
        let along: f64 = 0.3 * d[0] - 0.7 * d[1];
        let squared: f64 = d[0] * d[0] + 0.25 * d[1] * d[1] + along * along;
        let expected = 2.0 * (-0.5 * squared).exp() + 0.5;
        let width = kernel.projected_dim(2);
        let (px, py) = (kernel.project(2, &x), kernel.project(2, &y));
        let mut out = Matrix::zeros(1, 1);
        kernel.block(&Points::new(width, &px), &py, &mut out.view_mut());
        assert!((out.at(0, 0) - expected).abs() < 1e-15);
        let mut column = [0.0];
        kernel.column(&px, &py, &mut column);
        assert!((column[0] - expected).abs() < 1e-15);
        assert!((kernel.eval(&px, &px) - kernel.diagonal()).abs() < 1e-15);
    }

    #[test]
    fn every_way_to_a_covariance_is_the_profile_of_the_distance() {
        let metric = Metric::Factor { relevance: vec![1.0, 0.25], factors: vec![vec![0.3, -0.7]] };
        let x: Vec<f64> = (0..2 * 70).map(|k| (f64::from(k) * 0.618).fract() * 8.0 - 4.0).chain([1e3, -1e3]).collect();
        for profile in [Profile::Gaussian, Profile::Matern52] {
            let kernel = Kernel::gaussian(2.0, 0.5, metric.clone()).with_profile(profile);
            let projected = kernel.project(2, &x);
            let rows: Vec<&[f64]> = projected.chunks_exact(3).collect();
            let points = Points::new(3, &projected);
            let n = points.len();
            let (mut block, mut apart) = (Matrix::zeros(n, n), vec![f64::NAN; n * (n + 5)]);
            kernel.block(&points, &projected, &mut block.view_mut());
            kernel.rows_apart(&points, &projected, n + 5, &mut apart);
            let (mut column, mut slopes) = (vec![0.0; n], vec![0.0; n]);
            for j in 0..n {
                kernel.column(&projected, rows[j], &mut column);
                points.slopes(&kernel, 0, rows[j], &mut slopes);
                for i in 0..n {
                    let squared: f64 = rows[i].iter().zip(rows[j]).map(|(a, b)| (a - b) * (a - b)).sum();
                    let a = (5.0 * squared).sqrt();
                    let (value, slope) = match profile {
                        Profile::Gaussian => ((-0.5 * squared).exp(), (-0.5 * squared).exp()),
                        Profile::Matern52 => ((1.0 + a + a * a / 3.0) * (-a).exp(), 5.0 / 3.0 * (1.0 + a) * (-a).exp()),
                    };
                    let near = |found: f64, expected: f64| (found - expected).abs() < 1e-14;
                    let expected = 2.0 * value + 0.5;
                    assert!(near(block.at(i, j), expected) && near(apart[j * (n + 5) + i], expected));
                    assert!(near(column[i], expected) && near(kernel.eval(rows[i], rows[j]), expected));
                    assert!(near(slopes[i], 2.0 * slope) && near(kernel.slope(rows[i], rows[j]), 2.0 * slope));
                    assert_eq!(block.at(i, j), block.at(j, i));
                }
                assert_eq!(block.at(j, j), kernel.diagonal());
                assert_eq!(kernel.eval(rows[j], rows[j]), kernel.diagonal());
            }
            let (strengths, _) = symmetric_eigen(&block).unwrap();
            assert!(strengths.iter().all(|s| *s > -1e-12), "{profile:?} is not positive semidefinite");
            // What is infinitely far apart has the bias in common.
            assert_eq!(kernel.eval(&[1e200, 0.0, 0.0], &[-1e200, 0.0, 0.0]), 0.5);
        }
    }

    #[test]
    fn angles_and_categories_are_as_far_apart_as_their_embedding() {
        use StateKind::{Bent, Category, Periodic, Real};
        let bend = Bend { centre: 0.5, scale: 0.2, width: 0.6 };
        let metrics = [
            Metric::Isotropic(0.7),
            Metric::Ard(vec![0.5, 2.0, 0.8, 0.3]),
            // What a direction says of variables that are no lines is not read.
            Metric::Factor { relevance: vec![0.5, 2.0, 0.8, 0.3], factors: vec![vec![0.6, 9.0, 9.0, -0.4]] },
        ];
        let kinds = [Real, Periodic(3.0), Category, Bent(bend)];
        let x: Vec<f64> = (0..4 * 40).map(|k| (f64::from(k) * 0.618).fract() * 8.0 - 4.0).collect();
        let x: Vec<f64> = x.iter().enumerate().map(|(k, x)| if k % 4 == 2 { x.round() } else { *x }).collect();
        for (metric, profile) in metrics.iter().flat_map(|m| [Profile::Gaussian, Profile::Matern52].map(|p| (m, p))) {
            let kernel = Kernel::gaussian(2.0, 0.5, metric.clone()).with_profile(profile).with_kinds(&kinds);
            assert!(kernel.is_of(4) && !kernel.is_of(3));
            let (width, projected) = (kernel.projected_dim(4), kernel.project(4, &x));
            let points = Points::new(width, &projected);
            let mut block = Matrix::zeros(40, 40);
            kernel.block(&points, &projected, &mut block.view_mut());
            let mut column = vec![0.0; 40];
            for (j, b) in x.chunks_exact(4).enumerate() {
                kernel.column(&projected, &projected[j * width..][..width], &mut column);
                for (i, a) in x.chunks_exact(4).enumerate() {
                    let relevance = metric.relevance(4);
                    let angle = (std::f64::consts::PI * (a[1] - b[1]) / 3.0).sin();
                    let bent = 0.6 * (((a[3] - 0.5) / 0.2).asinh() - ((b[3] - 0.5) / 0.2).asinh());
                    let along: f64 = metric.factors().iter().map(|f| f[0] * (a[0] - b[0]) + f[3] * bent).sum();
                    let squared = relevance[0] * (a[0] - b[0]).powi(2)
                        + relevance[1] * 4.0 * angle * angle
                        + relevance[2] * if a[2] == b[2] { 0.0 } else { 2.0 }
                        + relevance[3] * bent.powi(2)
                        + along * along;
                    let expected = 2.0 * profile.at(squared) + 0.5;
                    assert!((block.at(i, j) - expected).abs() < 1e-13, "{i} {j}");
                    assert!((column[i] - expected).abs() < 1e-13, "{i} {j}");
                    let eval = kernel.eval(&projected[i * width..][..width], &projected[j * width..][..width]);
                    assert!((eval - expected).abs() < 1e-13, "{i} {j}");
                }
            }
            let (strengths, _) = symmetric_eigen(&block).unwrap();
            assert!(strengths.iter().all(|s| *s > -1e-12), "{profile:?} is not positive semidefinite");
        }
        let real = Kernel::gaussian(1.0, 0.0, Metric::Isotropic(1.0)).with_kinds(&[Real, Real]);
        assert_eq!(real.kinds, []);
    }

    #[test]
    fn kernels_stored_before_profiles_are_gaussian() {
        let old = r#"{"signal_variance": 2.0, "bias_variance": 0.5, "metric": {"Isotropic": 1.0}}"#;
        let kernel: Kernel = serde_json::from_str(old).unwrap();
        assert_eq!(kernel, Kernel::gaussian(2.0, 0.5, Metric::Isotropic(1.0)));
        let matern = kernel.with_profile(Profile::Matern52);
        let stored = rmp_serde::to_vec_named(&matern).unwrap();
        assert_eq!(rmp_serde::from_slice::<Kernel>(&stored).unwrap(), matern);
        for profile in [Profile::Gaussian, Profile::Matern52] {
            assert_eq!(Profile::from_name(profile.name()), Some(profile));
        }
        assert_eq!(Profile::from_name("matern"), None);
    }
}
