//! What a model said of rows, and what then came: returns, values along a trajectory, and where the model errs most. And what others made
//! of rows: their targets.
//!
//! The page and `criticd plot` show the same, computed here.

mod along;
mod following;
mod returns;
mod scattered;
pub mod targets;
mod worst;

pub use along::{Along, Single, Stretch};
pub use following::{At, action, action_of, has_returns, here, inputs, next_rows, values};
pub use returns::{Followed, Rewards, followed, weight};
pub use scattered::scattered;
pub use worst::{Kind, Neighbours, SAMPLES, Sample, WORST, Worst, affordable, samples, spacing};
