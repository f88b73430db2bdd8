//! When the journal is made durable, and how much of it is kept.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// When a group is made durable, and so what an acknowledgement promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SyncMode {
    /// Before it is acknowledged: it survives a power cut.
    #[default]
    Always,
    /// At most this number of milliseconds later: it survives a crash of the daemon; a power cut costs what was acknowledged
    /// since.
    Interval(u64),
    /// When the operating system likes, and at checkpoints: it survives a crash of the daemon, nothing more.
    Os,
}

impl FromStr for SyncMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let interval = |text: &str| text.strip_prefix("interval:")?.strip_suffix("ms")?.parse().ok();
        match (text, interval(text)) {
            ("always", _) => Ok(Self::Always),
            ("os", _) => Ok(Self::Os),
            (_, Some(milliseconds @ 1..=60_000)) => Ok(Self::Interval(milliseconds)),
            _ => Err(format!("must be \"always\", \"os\", or \"interval:10ms\" with 1 to 60000 ms, is {text:?}")),
        }
    }
}

impl fmt::Display for SyncMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.write_str("always"),
            Self::Interval(milliseconds) => write!(f, "interval:{milliseconds}ms"),
            Self::Os => f.write_str("os"),
        }
    }
}

criticd_learner::stored_as_text!(SyncMode);

/// How the journal is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerSettings {
    /// When groups are made durable.
    pub sync: SyncMode,
    /// Rows that are kept, unless more are needed.
    pub rows_max: u64,
    /// Bytes of records that are kept, unless more are needed.
    pub bytes_max: u64,
    /// Rows between two checkpoints.
    pub checkpoint_rows: u64,
}
