//! What a peer may be allowed to do.

use serde::{Deserialize, Serialize};
use std::fmt;

criticd_learner::named! {
    /// Something that a peer may be allowed to do.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Right {
        /// Send what is learned: push on ingest, `append`, `suggest` and `report` on control.
        Append = "append",
        /// See what was learned: `value`, `snapshot`, `status` on control, publications, the dashboard.
        Query = "query",
        /// Make the daemon do something: `refit`, `rebuild`, `remove`, `checkpoint`.
        Administer = "administer",
    }
}

impl Right {
    fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of rights. None of them implies another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<Right>", into = "Vec<Right>")]
pub struct Rights(u8);

impl Rights {
    /// No right at all.
    pub const NONE: Self = Self(0);
    /// Every right.
    pub const ALL: Self = Self(0b111);

    /// Whether `right` is among them.
    pub fn has(self, right: Right) -> bool {
        self.0 & right.bit() != 0
    }

    /// Whether one of `rights` is among them.
    pub fn has_any(self, rights: &[Right]) -> bool {
        rights.iter().any(|&right| self.has(right))
    }

    /// As a byte, for [`Rights::from_byte`].
    pub fn to_byte(self) -> u8 {
        self.0
    }

    /// From such a byte; bits that stand for no right are ignored.
    pub fn from_byte(byte: u8) -> Self {
        Self(byte & Self::ALL.0)
    }
}

impl From<Vec<Right>> for Rights {
    fn from(rights: Vec<Right>) -> Self {
        Self(rights.into_iter().fold(0, |bits, right| bits | right.bit()))
    }
}

impl From<Rights> for Vec<Right> {
    fn from(rights: Rights) -> Self {
        Right::ALL.into_iter().filter(|&right| rights.has(right)).collect()
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = Vec::from(*self).into_iter().map(Right::name).collect();
        f.write_str(if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }.as_str())
    }
}
