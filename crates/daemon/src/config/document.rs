//! Reading a TOML document into settings.

use super::advisors::{self, ADVISOR};
use super::error::critic_prefix;
use super::tables::{CRITIC, GENERAL, LIMITS, Setting};
use super::{ConfigError, ConfigParts, actions, suggestion, today};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Where settings were written, for errors that show only when all are known.
#[derive(Default)]
pub(super) struct Lines {
    known: Vec<(String, usize)>,
    /// What is wrong with single settings, which then have their defaults.
    pub(super) faults: Vec<ConfigError>,
}

impl Lines {
    pub(super) fn of(&self, key: &str) -> Option<usize> {
        self.known.iter().rev().find(|(known, _)| known == key).map(|(_, line)| *line)
    }

    /// The setting was overridden: its line has nothing to do with its value any more.
    pub(super) fn forget(&mut self, key: &str) {
        self.known.retain(|(known, _)| known != key);
    }
}

/// Read all tables of a document; what it does not mention stays as it is.
pub(super) fn read_document(text: &str, parts: &mut ConfigParts) -> Result<Lines, ConfigError> {
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let line_of = |at: usize| ends.partition_point(|&end| end < at) + 1;
    let document = DeTable::parse(text).map_err(|e| {
        let line = e.span().map(|span| line_of(span.start));
        ConfigError::Syntax { line, message: e.message().to_owned() }
    })?;
    let mut document = document.into_inner();
    let mut lines = Lines::default();
    let mut sections = [None, None, None];
    for (section, key) in sections.iter_mut().zip(["limits", "critic", "advisor"]) {
        *section = document.remove(key);
    }
    let [limits, critics, advisors] = sections;
    read_table(document, "", &GENERAL, parts, &line_of, &mut lines);
    if let Some(value) = limits {
        let line = line_of(value.span().start);
        let DeValue::Table(table) = value.into_inner() else {
            return Err(ConfigError::invalid("limits", Some(line), "must be a table, [limits]"));
        };
        read_table(table, "limits.", &LIMITS, &mut parts.limits, &line_of, &mut lines);
    }
    if let Some(value) = critics {
        parts.critics = read_list(value, "critic", critic_prefix, &CRITIC, &line_of, &mut lines)?;
    }
    if let Some(value) = advisors {
        parts.advisors = read_list(value, "advisor", |i, _| advisors::prefix(i), &ADVISOR, &line_of, &mut lines)?;
    }
    Ok(lines)
}

/// The tables under `[[key]]`; what one does not mention has its default.
fn read_list<T: Default>(
    value: Spanned<DeValue<'_>>,
    key: &str,
    prefix: fn(usize, usize) -> String,
    settings: &[Setting<T>],
    line_of: &impl Fn(usize) -> usize,
    lines: &mut Lines,
) -> Result<Vec<T>, ConfigError> {
    let line = line_of(value.span().start);
    let DeValue::Array(tables) = value.into_inner() else {
        return Err(ConfigError::invalid(key, Some(line), format!("must be a list of tables, each under [[{key}]]")));
    };
    lines.known.push((key.into(), line));
    let (mut list, count) = (Vec::new(), tables.len());
    for value in tables {
        let line = line_of(value.span().start);
        let DeValue::Table(table) = value.into_inner() else {
            return Err(ConfigError::invalid(key, Some(line), format!("must hold tables, each under [[{key}]]")));
        };
        let mut one = T::default();
        read_table(table, &prefix(list.len(), count), settings, &mut one, line_of, lines);
        list.push(one);
    }
    Ok(list)
}

fn read_table<T>(
    table: DeTable<'_>,
    prefix: &str,
    settings: &[Setting<T>],
    parts: &mut T,
    line_of: &impl Fn(usize) -> usize,
    lines: &mut Lines,
) {
    let mut entries: Vec<_> = table.into_iter().collect();
    entries.sort_by_key(|(key, _)| (actions::LAST.contains(&&**key.get_ref()), key.span().start));
    for (key, value) in entries {
        let line = Some(line_of(key.span().start));
        let name = format!("{prefix}{}", key.get_ref());
        let Some(setting) = settings.iter().find(|setting| setting.key == today(key.get_ref())) else {
            let suggestion = suggestion(key.get_ref(), settings.iter().map(|setting| setting.key), prefix);
            lines.faults.push(ConfigError::UnknownKey { key: name, line, suggestion });
            continue;
        };
        if let Err(message) = (setting.set)(parts, value) {
            lines.faults.push(ConfigError::invalid(&name, line, message));
            continue;
        }
        lines.known.extend(line.map(|line| (format!("{prefix}{}", setting.key), line)));
    }
}
