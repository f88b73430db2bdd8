//! One setting: its key, its meaning, how it is read, written and checked.

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

/// When a changed value takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// On SIGHUP.
    Running,
    /// At the next start.
    Restart,
}

/// A setting of a `T`.
pub(super) struct Setting<T> {
    pub(super) key: &'static str,
    pub(super) when: When,
    pub(super) help: &'static str,
    /// None if it is not set.
    pub(super) get: fn(&T) -> Option<toml::Value>,
    pub(super) set: fn(&mut T, Spanned<DeValue<'_>>) -> Result<(), String>,
    /// Whether the value is allowed; an error continues "`key` must be ...".
    pub(super) check: fn(&T) -> Result<(), String>,
}

pub(super) fn read<T: DeserializeOwned>(value: Spanned<DeValue<'_>>) -> Result<T, String> {
    T::deserialize(ValueDeserializer::from(value)).map_err(|e| format!("cannot be read: {}", e.message()))
}

/// The word for a value.
pub(super) fn word_of<T: Copy + PartialEq>(words: &[(&str, T)], value: T) -> Option<toml::Value> {
    words.iter().find(|(_, known)| *known == value).map(|(word, _)| toml::Value::from(*word))
}

/// What a word stands for.
pub(super) fn named<T: Copy>(words: &[(&str, T)], value: Spanned<DeValue<'_>>) -> Result<T, String> {
    let text: String = read(value)?;
    let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
    found.ok_or_else(|| one_of(words.iter().map(|(word, _)| *word)))
}

/// A number, or none where the value is this word instead. Another word is an error: the value must be `number` or this one.
pub(super) fn number_or(word: &str, number: &str, value: Spanned<DeValue<'_>>) -> Result<Option<f64>, String> {
    match value.get_ref() {
        DeValue::String(text) if text.as_ref() == word => Ok(None),
        DeValue::String(_) => Err(format!("must be {number} or \"{word}\"")),
        _ => read(value).map(Some),
    }
}

pub(super) fn written(value: &impl Serialize) -> Option<toml::Value> {
    toml::Value::try_from(value).ok()
}

pub(super) fn one_of<'a>(words: impl Iterator<Item = &'a str>) -> String {
    format!("must be one of {}", words.collect::<Vec<_>>().join(", "))
}

pub(super) fn expect(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("must be {what}")) }
}
