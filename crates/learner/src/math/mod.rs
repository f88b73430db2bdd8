//! Numbers in, numbers out: Gaussian-process temporal-difference learning with model selection.
//!
//! Nothing here reads a clock, starts a thread, opens a file or logs; results depend on the arguments alone. Called in a pool
//! of threads, the evidence and its optimisation share their work out to it, in pieces that do not depend on its size.
//!
//! `docs/mathematics.md` derives what is computed here, with numbered equations that comments refer to.
//!
//! # Sources
//! - \[JS09\] T. Jung, P. Stone, *Feature Selection for Value Function Approximation Using Bayesian Model Selection*,
//!   ECML PKDD 2009: the estimator, its evidence and the three covariances.
//! - \[EMM05\] Y. Engel, S. Mannor, R. Meir, *Reinforcement Learning with Gaussian Processes*, ICML 2005: GPTD.
//! - \[FS01\] S. Fine, K. Scheinberg, *Efficient SVM Training Using Low-Rank Kernel Representations*, JMLR 2, 2001:
//!   incomplete Cholesky decomposition (ICD).
//! - \[T09\] M. Titsias, *Variational Learning of Inducing Variables in Sparse Gaussian Processes*, AISTATS 2009: the
//!   bound used as sparse evidence.
//!
//! # Notation
//! ```text
//! x, x'       state, next state (D,)            K_mm = L L'   Gram matrix of the dictionary and its factor
//! r, gamma    reward (H,), discount             phi(x) = L^-1 k_m(x)   features; prior of their weights u is N(0, I)
//! lambda      how far returns are followed      rho    importance ratio of a row, 1 unless it carries probabilities
//! y           targets at lambda = 1: discounted returns, closed by the value of the last successor where a chain is cut
//! S           sum of rho phi phi'               z      trace: z <- gamma lambda rho z + rho phi along a chain
//! p           sum of z r (m, H)                 B      sum over cuts of gamma z phi(x_cut)', and what lambda < 1 adds
//! q           sum of squared targets (H,)       A, M   S + sigma0^2 I, S - B + sigma0^2 I
//! delta       TD error                          ridge  sigma0^2 / v0
//! ```
//!
//! # Conditioning
//! In the basis phi the matrix A = S + sigma0^2 I has a condition number of at most (n (v0 + b) + sigma0^2) / sigma0^2
//! (ratios of 1) whatever the conditioning of K_mm. M = A - B has no such bound. Pivots are checked in [`dense`] and
//! nowhere else. Of inverses only M^-1 is kept, for at most 256 rows after a full solution (`docs/mathematics.md`, (P8)).

pub mod backfill;
pub mod columns;
pub mod dense;
pub mod dictionary;
pub mod drift;
pub mod embedding;
pub mod evidence;
pub mod exact;
pub mod exp;
pub mod forgetting;
pub mod form;
pub(crate) mod golden;
pub mod head_sums;
pub mod hull;
pub mod inflation;
pub mod kernel;
mod lanes;
pub(crate) mod level;
pub mod mixture;
pub mod optimise;
pub(crate) mod parts;
pub mod posterior;
pub mod pursuit;
pub(crate) mod raw;
pub mod returns;
pub mod sensitivity;
pub mod spread;
pub mod statistics;
pub mod tracking;
pub(crate) mod transient;
pub mod vector;
