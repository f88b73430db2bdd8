//! What is to be read of a file: its columns, and who takes the rows.

use super::columns::{Columns, Missing};
use super::{Fault, Format, Progress, Reading, Table};

/// What one column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Column {
    Stream,
    State(usize),
    NextState(usize),
    Action(usize),
    Reward(usize),
    Terminated,
    Truncated,
    /// The end of an episode, of which the reader must say what it means.
    Done,
    Discount,
    Time,
    /// The run of a producer: `seq` counts within it, and no chain goes from one to the next.
    Session,
    Seq,
    BehaviorProb,
    /// Its logarithm.
    BehaviorLogProb,
    TargetProb,
    NextAction(usize),
    NextActionProb(usize),
    StartsChain,
    /// Name of the policy that acted.
    Policy,
    /// Where it changes, another episode begins.
    Episode,
    /// Rises within an episode; rows are put into this order.
    Order,
    /// Counts the rows of an episode.
    Frame,
    /// The state is terminal: the row gives only its state, and the row that leads there terminates.
    Absorbing,
    /// The row is the last of its episode and gives only its state.
    Last,
    /// The end of an episode, by itself unless the row is truncated.
    EndedItself,
    /// The end of an episode, from outside unless the row is terminated.
    EndedOtherwise,
    /// Part of a reward that is a sum.
    Term(usize),
    /// What nothing needs, looked at for whether it tells episodes apart.
    Watched(usize),
    /// What is wanted as it lies.
    Kept(usize),
    /// Rows at which trajectories begin, but for the first one: for an array that has no entry for each row.
    Cuts,
    Skipped,
}

impl Column {
    /// The column called `name` in a format that has one column for each number.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let numbered = |prefix: &str| {
            let digits = name.strip_prefix(prefix)?;
            // No sign, no leading zeros: `state_00` next to `state_0` would be a trap.
            let k: usize = digits.parse().ok()?;
            (k.to_string() == digits).then_some(k)
        };
        Some(match name {
            "stream" => Self::Stream,
            "action" => Self::Action(0),
            "reward" => Self::Reward(0),
            "terminated" => Self::Terminated,
            "truncated" => Self::Truncated,
            "done" => Self::Done,
            "discount" => Self::Discount,
            "time" => Self::Time,
            "session" => Self::Session,
            "seq" => Self::Seq,
            // Of `criticd export`: where the journal has the row, and when it came.
            "offset" | "received" => Self::Skipped,
            // RLlib's, obp's and VW's names of it are ours, too.
            "behavior_prob" | "action_prob" | "pscore" | "propensity_score" | "probability" => Self::BehaviorProb,
            "behavior_logp" | "action_logp" => Self::BehaviorLogProb,
            "target_prob" => Self::TargetProb,
            "next_action" => Self::NextAction(0),
            "starts_chain" => Self::StartsChain,
            "policy" => Self::Policy,
            _ if skipped(name) => Self::Skipped,
            _ => numbered("state_")
                .map(Self::State)
                .or_else(|| numbered("next_state_").map(Self::NextState))
                .or_else(|| numbered("action_").map(Self::Action))
                .or_else(|| numbered("next_action_").map(Self::NextAction))
                .or_else(|| numbered("next_action_probs_").map(Self::NextActionProb))
                .or_else(|| numbered("reward_").map(Self::Reward))?,
        })
    }

    /// The column that is k numbers further, in one that may be several.
    pub(super) fn from(self, k: usize) -> Option<Self> {
        match self {
            Self::State(first) => Some(Self::State(first + k)),
            Self::NextState(first) => Some(Self::NextState(first + k)),
            Self::Action(first) => Some(Self::Action(first + k)),
            Self::Reward(first) => Some(Self::Reward(first + k)),
            Self::NextAction(first) => Some(Self::NextAction(first + k)),
            Self::NextActionProb(first) => Some(Self::NextActionProb(first + k)),
            Self::Kept(first) => Some(Self::Kept(first + k)),
            _ => None,
        }
    }

    /// Whether NaN in an array stands for nothing here: a state is needed, and a flag is no number.
    pub(super) fn may_be_blank(self) -> bool {
        !matches!(
            self,
            Self::State(_)
                | Self::Terminated
                | Self::Truncated
                | Self::Done
                | Self::EndedItself
                | Self::EndedOtherwise
                | Self::Absorbing
                | Self::Last
                | Self::StartsChain
        )
    }

    /// Whether it is a reward, or a number that one is reckoned from.
    pub(super) fn is_of_reward(self) -> bool {
        matches!(self, Self::Reward(_) | Self::Term(_))
    }

    /// Whether it says that an episode ends.
    pub(super) fn is_end(self) -> bool {
        use Column::{Done, EndedItself, EndedOtherwise, Terminated, Truncated};
        matches!(self, Terminated | Truncated | Done | EndedItself | EndedOtherwise)
    }

    /// Which of several it is, from 0.
    pub(super) fn number(self) -> usize {
        match self {
            Self::State(k)
            | Self::NextState(k)
            | Self::Action(k)
            | Self::Reward(k)
            | Self::NextAction(k)
            | Self::NextActionProb(k) => k,
            _ => 0,
        }
    }
}

/// Names that are there for somebody else.
pub(super) fn skipped(name: &str) -> bool {
    name.starts_with('_') || name.starts_with("info_")
}

/// What is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    Transitions(Reading),
    /// What each column holds.
    Look,
    /// States alone.
    States,
    /// The columns that the state names, whatever they hold.
    Keep,
}

/// One file to be read.
pub(super) struct Job<'a> {
    pub(super) format: Format,
    pub(super) want: Want,
    pub(super) columns: &'a Columns,
    /// Told now and then how far it is; says whether to go on.
    pub(super) progress: &'a mut dyn FnMut(Progress) -> bool,
    /// Who takes the table piece by piece; none: all of it is kept.
    pub(super) pieces: Option<Pieces<'a>>,
}

impl Job<'_> {
    /// What to do with rows that lack a number; where these are no transitions, they are refused.
    pub(super) fn missing(&self) -> Missing {
        if let Want::Transitions(_) = self.want { self.columns.missing } else { Missing::Refuse }
    }

    /// # Errors
    /// If the callback stops the reading.
    pub(super) fn report(&mut self, progress: Progress) -> Result<(), Fault> {
        if (self.progress)(progress) { Ok(()) } else { Err(Fault::Stopped) }
    }
}

/// Takes a table piece by piece, so that no more of it is in memory than rows that wait for their successors.
pub(super) struct Pieces<'a> {
    /// Rows of each stream in the file. Where that is known, pieces come in the order of the file; else rows that wait are
    /// passed by.
    pub(super) totals: Option<&'a [u64]>,
    /// Gets each piece; in its rows `starts_chain` means nothing.
    pub(super) take: &'a mut dyn FnMut(&Table) -> Result<(), Fault>,
}
