//! The setting `heads` of a critic: predictions that it learns besides its values, as files and messages write them.

use crate::learner::Settings;
use crate::learner::heads::{self, Columns, Rate};
use crate::math::kernel::NoiseModel;
use crate::transition::ACTION_NUMBERS_MAX;
use crate::wire::{HeadForm, heads_from_list};
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

/// Most heads of one critic.
pub(crate) const HEADS_MAX: usize = 65_536;
/// Columns that a row may have at most, where the settings do not say how many it has.
const COLUMNS_MAX: usize = 4096;

/// Discount of a head that names none, until all settings are known.
const OF_THE_CRITIC: f64 = f64::NAN;

/// The list as the file writes it.
pub(super) fn written(settings: &Settings) -> Option<toml::Value> {
    let forms: Vec<HeadForm> = settings.heads.iter().map(HeadForm::from).collect();
    toml::Value::try_from(forms).ok()
}

/// The heads of a list in the file.
pub(super) fn read(value: Spanned<DeValue<'_>>) -> Result<Vec<heads::Head>, String> {
    use serde::Deserialize;
    let list = toml::Value::deserialize(ValueDeserializer::from(value));
    let list = list.map_err(|e| format!("cannot be read: {}", e.message()))?;
    let list = serde_json::to_value(list).map_err(|e| format!("cannot be read: {e}"))?;
    heads_from_list(list, OF_THE_CRITIC)
}

/// Give heads that name neither discount nor timescale the discount of their critic.
pub(super) fn settle(settings: &mut Settings) {
    for head in &mut settings.heads {
        if matches!(head.rate, Rate::Discount(discount) if discount.is_nan()) {
            head.rate = Rate::Discount(settings.discount);
        }
    }
}

/// Whether a critic with states (`dim`,), where that is known, can learn the heads of its settings.
pub(super) fn check(settings: &Settings, dim: Option<usize>) -> Result<(), String> {
    let heads = &settings.heads;
    if heads.is_empty() {
        return Ok(());
    }
    if heads.len() > HEADS_MAX {
        return Err(format!("lists at most {HEADS_MAX} heads, this one has {}", heads.len()));
    }
    if settings.action_value.is_some() {
        return Err("is for inputs = \"state\": give the heads to a critic of their own".to_owned());
    }
    if settings.noise == NoiseModel::White {
        return Err("is for noise = \"correlated\": white noise has no returns".to_owned());
    }
    heads::check(
        heads,
        Columns { states: dim.unwrap_or(COLUMNS_MAX), rewards: COLUMNS_MAX, actions: ACTION_NUMBERS_MAX },
    )
}
