//! How a table was read that a model was made of, as the model's file says it: other tables of its kind are then read alike.

use super::{Columns, Reading};
use serde::{Deserialize, Serialize};

/// Which columns held what, and what was made of a table that does not say everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mapping {
    /// What was made of it.
    pub reading: Reading,
    /// Which columns held what.
    pub columns: Columns,
}

impl Mapping {
    /// As text, in TOML; none if it says nothing.
    pub fn to_text(&self) -> Option<String> {
        (*self != Self::default()).then(|| toml::to_string(self).expect("texts and flags can be written"))
    }

    /// From that text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_text(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|e| e.to_string().trim_end().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AssumeTerminated, Done, Missing};
    use super::*;

    #[test]
    fn a_mapping_is_read_as_it_was_written() {
        let columns = Columns {
            state: vec!["x".into(), "battery v".into()],
            reward: vec!["-cost".into()],
            terminated: Some("outcome == arrived".into()),
            missing: Missing::Hold,
            units: vec!["m".into(), "V".into()],
            ..Columns::default()
        };
        let reading = Reading {
            assume_terminated: Some(AssumeTerminated::Last),
            done: Some(Done::Truncated),
            independent: true,
            keep_all: false,
        };
        let mapping = Mapping { reading, columns };
        let text = mapping.to_text().unwrap();
        assert_eq!(Mapping::from_text(&text).unwrap(), mapping, "{text}");
        assert_eq!(Mapping::default().to_text(), None);
        assert!(Mapping::from_text("[columns]\nrewrad = \"x\"\n").unwrap_err().contains("rewrad"));
    }
}
