//! A model as checkpoints keep it: one map, whose keys are older than the parts that hold them now.

use super::basis::Basis;
use super::errors::{Errors, Scatter};
use super::late::History;
use super::learned::Learned;
use super::level::Level;
use super::returns::Returns;
use super::scoring::Prequential;
use super::streams::{Slot, Streams};
use super::warned::Hearers;
use super::weights::{Tuned, Weights, unknown_arrivals};
use super::{Counts, Model, Score};
use crate::heads::Bank;
use crate::math::backfill::BackfillBuffer;
use crate::math::dense::{Matrix, tight};
use crate::math::dictionary::Dictionary;
use crate::math::inflation::Inflation;
use crate::math::kernel::NoiseModel;
use crate::math::posterior::{Arrivals, Posterior, Scale};
use crate::math::spread::Spread;
use crate::math::statistics::{Chain, Statistics};
use crate::settings::Settings;
use crate::snapshot::Inputs;
use crate::tracking::Tracking;
use crate::verification::Verification;
use crate::watch::Watch;
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;

/// The keys of the file, in their order; what files from before a key lack is as it was then.
#[derive(Serialize, Deserialize)]
pub(super) struct Written<'a> {
    settings: Cow<'a, Settings>,
    inputs: Cow<'a, Inputs>,
    noise: NoiseModel,
    scale: Scale,
    dictionary: Cow<'a, Dictionary>,
    statistics: Cow<'a, Statistics>,
    recent: Cow<'a, BackfillBuffer>,
    chains: Cow<'a, [Chain]>,
    slots: Cow<'a, [Slot]>,
    slot_of_stream: Cow<'a, [u32]>,
    scatter: Cow<'a, Option<Matrix>>,
    #[serde(default, serialize_with = "tight")]
    waiting_scores: Cow<'a, Matrix>,
    #[serde(default = "one")]
    lambda: f64,
    #[serde(default, skip_serializing_if = "<[f64]>::is_empty")]
    level: Cow<'a, [f64]>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unscaled: bool,
    #[serde(default)]
    td_square: f64,
    #[serde(default)]
    spread: Cow<'a, Option<Spread>>,
    #[serde(default)]
    value_covariance: Cow<'a, Option<Matrix>>,
    #[serde(default)]
    verification: Cow<'a, Verification>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inflation: Option<Inflation>,
    posterior: Cow<'a, Option<Posterior>>,
    #[serde(default = "unknown")]
    arrivals: Cow<'a, Arrivals>,
    rows_since_refresh: u64,
    rows_at_tuning: u64,
    features_at_tuning: usize,
    #[serde(default)]
    steady_tunings: u32,
    score: Score,
    counts: Counts,
    #[serde(default, skip_serializing_if = "is_none")]
    heads: Cow<'a, Option<Box<Bank>>>,
    #[serde(default, skip_serializing_if = "is_unknown")]
    history: Cow<'a, Option<History>>,
    #[serde(default, skip_serializing_if = "is_not_known")]
    learned: Cow<'a, Option<Learned>>,
    #[serde(default)]
    watch: Cow<'a, Option<Box<Watch>>>,
    #[serde(default, skip_serializing_if = "is_whole")]
    branch: Cow<'a, Option<Box<Model>>>,
    #[serde(default, skip_serializing_if = "is_still")]
    tracking: Cow<'a, Option<Box<Tracking>>>,
}

fn one() -> f64 {
    1.0
}

fn unknown<'a>() -> Cow<'a, Arrivals> {
    Cow::Owned(unknown_arrivals())
}

fn is_none(heads: &Option<Box<Bank>>) -> bool {
    heads.is_none()
}

fn is_whole(branch: &Option<Box<Model>>) -> bool {
    branch.is_none()
}

fn is_still(tracking: &Option<Box<Tracking>>) -> bool {
    tracking.is_none()
}

fn is_not_known(learned: &Option<Learned>) -> bool {
    learned.is_none()
}

fn is_unknown(history: &Option<History>) -> bool {
    history.is_none()
}

impl Serialize for Model {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Written {
            settings: Cow::Borrowed(&self.settings),
            inputs: Cow::Borrowed(&self.basis.inputs),
            noise: self.noise,
            scale: self.weights.scale,
            dictionary: Cow::Borrowed(&self.basis.dictionary),
            statistics: Cow::Borrowed(&self.statistics),
            recent: Cow::Borrowed(&self.recent),
            chains: Cow::Borrowed(&self.streams.chains),
            slots: Cow::Borrowed(&self.streams.slots),
            slot_of_stream: Cow::Borrowed(&self.streams.slot_of),
            scatter: Cow::Borrowed(&self.errors.scatter.sum),
            waiting_scores: Cow::Borrowed(&self.errors.scatter.waiting),
            lambda: self.lambda,
            level: Cow::Borrowed(&self.level.about),
            unscaled: self.level.unscaled,
            td_square: self.prequential.td_square,
            spread: Cow::Borrowed(&self.returns.spread),
            value_covariance: Cow::Borrowed(&self.returns.value_covariance),
            verification: Cow::Borrowed(&self.returns.verification),
            inflation: self.inflation,
            posterior: Cow::Borrowed(&self.weights.posterior),
            arrivals: Cow::Borrowed(&self.weights.arrivals),
            rows_since_refresh: self.weights.rows_since_refresh,
            rows_at_tuning: self.weights.tuned.rows,
            features_at_tuning: self.weights.tuned.features,
            steady_tunings: self.weights.tuned.steady,
            score: self.prequential.score,
            counts: self.counts,
            heads: Cow::Borrowed(&self.heads),
            history: Cow::Borrowed(&self.history),
            learned: Cow::Borrowed(&self.basis.learned),
            branch: Cow::Borrowed(&self.branch),
            tracking: Cow::Borrowed(&self.tracking),
            watch: Cow::Borrowed(&self.errors.watch),
        }
        .serialize(serializer)
    }
}

impl From<Written<'_>> for Model {
    fn from(of: Written<'_>) -> Self {
        let settings = of.settings.into_owned();
        let scatter = Scatter::of(settings.variance, of.scatter.into_owned(), of.waiting_scores.into_owned());
        let tuned = Tuned { rows: of.rows_at_tuning, features: of.features_at_tuning, steady: of.steady_tunings };
        Self {
            noise: of.noise,
            lambda: of.lambda,
            level: Level { about: of.level.into_owned(), unscaled: of.unscaled },
            basis: Basis::new(of.inputs.into_owned(), of.dictionary.into_owned(), &settings)
                .knowing(of.learned.into_owned()),
            settings,
            statistics: of.statistics.into_owned(),
            recent: of.recent.into_owned(),
            streams: Streams {
                chains: of.chains.into_owned(),
                slots: of.slots.into_owned(),
                slot_of: of.slot_of_stream.into_owned(),
            },
            weights: Weights {
                scale: of.scale,
                posterior: of.posterior.into_owned(),
                arrivals: of.arrivals.into_owned(),
                rows_since_refresh: of.rows_since_refresh,
                tuned,
            },
            errors: Errors { scatter, watch: of.watch.into_owned() },
            returns: Returns {
                spread: of.spread.into_owned(),
                value_covariance: of.value_covariance.into_owned(),
                verification: of.verification.into_owned(),
            },
            inflation: of.inflation,
            prequential: Prequential { score: of.score, td_square: of.td_square },
            counts: of.counts,
            heads: of.heads.into_owned(),
            history: of.history.into_owned(),
            branch: of.branch.into_owned(),
            tracking: of.tracking.into_owned(),
            hearers: Hearers::default(),
            work: None,
        }
    }
}
