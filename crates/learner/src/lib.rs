//! Learns a value function, with its uncertainty, from transitions: Gaussian-process temporal-difference learning whose
//! hyperparameters, relevances and dictionary come from the data.
//!
//! This crate is mathematics and one pure state machine: no clock, thread, socket, file, log or entropy. Whatever decides a
//! result is a function of rows, their offsets and settings, so that the same rows and the same candidates give the same
//! model, bit for bit on one machine. The daemon `criticd` is one loop around it; a program of one's own can be another.
//!
//! # The loop
//!
//! Rows are checked once, as a [`transition::Batch`], and put into a [`window::Window`]. [`Learner::step`] learns what has
//! arrived since its last call. [`Learner::snapshot`] gives what evaluates V at any state:
//!
//! ```
//! use criticd_learner::snapshot::Ask;
//! use criticd_learner::transition::{Batch, BatchParts};
//! use criticd_learner::window::Window;
//! use criticd_learner::{Learner, Settings};
//!
//! // A corridor of 20 steps. Each costs 1, and at its end nothing more is to be paid.
//! let x = |i: usize| i as f64 / 20.0;
//! let batch = Batch::new(BatchParts {
//!     stream: "corridor".into(),
//!     dim: 1,
//!     rewards_per_row: 1,
//!     states: (0..20).map(x).collect(),
//!     next_states: Some((1..21).map(x).collect()),
//!     rewards: vec![-1.0; 20],
//!     terminated: Some((0..20).map(|i| i == 19).collect()),
//!     ..BatchParts::default()
//! })?;
//! let mut window = Window::new(1, 1, 10_000);
//! for _ in 0..30 {
//!     (0..batch.len()).for_each(|row| window.push(0, row == 0, &batch, row)); // the first row starts a chain
//! }
//! let mut learner = Learner::new(Settings { discount: 1.0, ..Settings::default() }, None);
//! learner.step(&window);
//!
//! let value = learner.snapshot(true)?.evaluate(&[0.5], Ask::VARIANCE)?;
//! assert!((value.mean[0] + 10.0).abs() < 1.0, "ten steps remain: {:?}", value.mean);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Model selection is a function of its own, so that it can run in another thread: [`Learner::refit_due`] says that it is
//! wanted, [`Learner::refit_job`] hands out the rows and settings, [`refit::run`] makes a [`refit::Candidate`], and
//! [`Learner::try_adopt`] judges and adopts it between two steps.
//!
//! # Where to read on
//!
//! [`model`] is what one step does to one model. [`math`] holds the recursions, which know nothing of streams:
//! [`math::dictionary`] (online incomplete Cholesky), [`math::statistics`], [`math::posterior`], [`math::evidence`].

/// An enum of words: each variant with its word in settings, files and messages.
#[doc(hidden)]
#[macro_export]
macro_rules! named {
    ($(#[$about:meta])* pub enum $kind:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $kind {
            $($(#[$doc])* $variant,)*
        }

        impl $kind {
            /// All of them.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// Its word in settings, files and messages.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The one with that [`name`](Self::name).
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|of| of.name() == name)
            }
        }
    };
}

/// Conversions for `#[serde(into = "String", try_from = "String")]` of a type that is written by `Display` and read by `FromStr`.
#[doc(hidden)]
#[macro_export]
macro_rules! stored_as_text {
    ($kind:ty) => {
        impl From<$kind> for String {
            fn from(what: $kind) -> Self {
                what.to_string()
            }
        }

        impl TryFrom<String> for $kind {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }
    };
}

pub mod act;
pub mod action;
pub mod allowance;
pub mod batch;
mod contest;
pub mod diagnostics;
pub mod expression;
pub mod heads;
pub mod hidden;
pub mod improve;
pub mod influence;
pub mod joint;
pub mod labels;
mod learner;
pub mod level;
pub mod marginal;
pub mod math;
pub mod mean;
pub mod merge;
pub mod model;
pub mod off_policy;
mod offsets;
pub mod period;
pub mod random;
pub mod refit;
pub mod removal;
mod settings;
pub mod snapshot;
pub mod suggest;
pub mod tracking;
pub mod transition;
pub mod verification;
pub mod warning;
mod watch;
pub mod window;
pub mod world;

pub use learner::*;
pub use settings::*;
pub use warning::{Warning, WarningSettings};
pub use watch::{Alarm, DriftSensitivity, Moved, watch_bytes, watch_bytes_per_stream};
