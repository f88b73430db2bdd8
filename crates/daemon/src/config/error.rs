//! What is wrong with settings, and where.

use std::fmt::{self, Display};
use std::path::PathBuf;

/// How errors name the critic that stands at `index` in the file, of `count`.
pub(super) fn critic_prefix(index: usize, count: usize) -> String {
    if count == 1 { "critic.".into() } else { format!("critic[{index}].") }
}

/// Why there is no [`Config`](super::Config). Lines count from 1; there is none for what came from the command line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A setting of the file is wrong.
    InFile {
        /// Which file.
        path: PathBuf,
        /// What is wrong there.
        fault: Box<Self>,
    },
    /// The text is not TOML.
    Syntax {
        /// Where.
        line: Option<usize>,
        /// What is wrong.
        message: String,
    },
    /// There is no such setting.
    UnknownKey {
        /// As it was written, with the table it stands in.
        key: String,
        /// Where.
        line: Option<usize>,
        /// The setting that was probably meant, in backquotes, and where it belongs.
        suggestion: Option<String>,
    },
    /// A variable of the environment is not UTF-8.
    Environment {
        /// Which one.
        variable: String,
    },
    /// Several settings are wrong.
    Several(Vec<Self>),
    /// A setting has a value that it may not have.
    Invalid {
        /// With the table it stands in.
        key: String,
        /// Where.
        line: Option<usize>,
        /// What it may be.
        message: String,
    },
}

impl ConfigError {
    pub(super) fn invalid(key: impl Into<String>, line: Option<usize>, message: impl Into<String>) -> Self {
        Self::Invalid { key: key.into(), line, message: message.into() }
    }

    /// All that is wrong, in the order of the file; what stands in no file comes last.
    pub(super) fn of_all(mut faults: Vec<Self>) -> Result<(), Self> {
        faults.sort_by_key(|fault| fault.line().unwrap_or(usize::MAX));
        match faults.len() {
            0 => Ok(()),
            1 => Err(faults.remove(0)),
            _ => Err(Self::Several(faults)),
        }
    }
}

impl ConfigError {
    /// Where the fault stands in the file, if it stands there.
    pub(super) fn line(&self) -> Option<usize> {
        match self {
            Self::Syntax { line, .. } | Self::UnknownKey { line, .. } | Self::Invalid { line, .. } => *line,
            Self::InFile { fault, .. } => fault.line(),
            Self::Several(faults) => faults.first().and_then(Self::line),
            Self::Read { .. } | Self::Environment { .. } => None,
        }
    }
}

impl Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line().filter(|_| !matches!(self, Self::InFile { .. } | Self::Several(_))) {
            write!(f, "line {line}: ")?;
        }
        match self {
            Self::InFile { path, fault } => write!(f, "{}: {fault}", path.display()),
            Self::Several(faults) => {
                write!(f, "{} settings are wrong", faults.len())?;
                faults.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
            }
            Self::Read { path, source } => write!(f, "cannot read {}: {source}", path.display()),
            Self::Syntax { message, .. } => f.write_str(message.trim_end()),
            Self::Environment { variable } => write!(f, "the environment variable {variable} is not UTF-8"),
            Self::UnknownKey { key, suggestion: None, .. } => write!(f, "there is no setting `{key}`"),
            Self::UnknownKey { key, suggestion: Some(other), .. } => {
                write!(f, "there is no setting `{key}`, did you mean {other}?")
            }
            Self::Invalid { key, message, .. } => write!(f, "`{key}` {message}"),
        }
    }
}
