//! The answer to `hello`.

use super::{ID_BYTES_MAX, Limits, PAGE_BYTES, VERSION};
use serde::Serialize;

/// What a client has to know of a daemon before it uses it.
#[derive(Clone, Debug, PartialEq)]
pub struct Greeting<'a> {
    /// The program's version.
    pub version: &'a str,
    /// What it can do beyond the first version of the protocol as it was written down, by name.
    pub features: &'a [&'a str],
    /// How much one message may hold.
    pub limits: Limits,
    /// Names of the critics; the first one is meant where a request names none.
    pub critics: Vec<&'a str>,
    /// Numbers in a state, if that is settled.
    pub state_dim: Option<usize>,
    /// Rewards of a row, once rows have come.
    pub rewards: Option<usize>,
    /// (D,), what the state variables are called; empty if that is not known.
    pub state_names: Vec<String>,
    /// (H,), what the rewards are called; empty if that is not known.
    pub reward_names: Vec<String>,
    /// What the discrete actions, or the numbers of an action, are called; empty if that is not known.
    pub action_names: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct HelloBody<'a> {
    protocol: ProtocolBody,
    version: &'a str,
    features: &'a [&'a str],
    limits: LimitsBody,
    critics: &'a [&'a str],
    #[serde(skip_serializing_if = "Option::is_none")]
    state_dim: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rewards: Option<usize>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    state_names: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    reward_names: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    action_names: &'a [String],
}

#[derive(Serialize)]
struct ProtocolBody {
    min: u64,
    max: u64,
}

#[derive(Serialize)]
struct LimitsBody {
    message_bytes: usize,
    rows_per_batch: usize,
    rows_per_query: usize,
    page_bytes: usize,
    id_bytes: usize,
}

impl<'a> From<&'a Greeting<'a>> for HelloBody<'a> {
    fn from(greeting: &'a Greeting<'a>) -> Self {
        let Limits { message_bytes_max, rows_per_batch_max, query_rows_max } = greeting.limits;
        Self {
            protocol: ProtocolBody { min: VERSION, max: VERSION },
            version: greeting.version,
            features: greeting.features,
            limits: LimitsBody {
                message_bytes: message_bytes_max,
                rows_per_batch: rows_per_batch_max,
                rows_per_query: query_rows_max,
                page_bytes: PAGE_BYTES,
                id_bytes: ID_BYTES_MAX,
            },
            critics: &greeting.critics,
            state_dim: greeting.state_dim,
            rewards: greeting.rewards,
            state_names: &greeting.state_names,
            reward_names: &greeting.reward_names,
            action_names: &greeting.action_names,
        }
    }
}
