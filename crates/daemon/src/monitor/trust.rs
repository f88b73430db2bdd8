//! Whether to believe the values of one reward of a critic: a level, a sentence, and the reasons with what to do about each.
//!
//! | level | meaning |
//! | --- | --- |
//! | good | the returns agree with the model, and nothing below applies |
//! | wait | too few returns are known, or no refit has chosen the model yet |
//! | never | no return says: the values are of another policy, or their returns are not compared |
//! | warn | a reason for care |
//! | bad | the critic has stopped learning, or nothing can be stored |
//!
//! Page and `criticd status` show what is found here, so that they cannot disagree.

use super::calibration::CUT;
use super::pairs::ModelEvidence;
use super::refused::Cause;
use crate::wire::status::{CriticStatus, DriftAlarm, RemovalStatus, TrustReason, TrustStatus};
use crate::wire::{Status, hidden_state};
use serde::{Deserialize, Serialize};

/// Pairs below which nothing is concluded from them.
const PAIRS_MIN: usize = 30;
/// Share of returns that an interval should hold, and by how much fewer are no reason for care in any case.
const COVERAGE: f64 = 0.9;
const COVERAGE_SLACK: f64 = 0.05;
/// Standard deviations of chance that are allowed for in coverage and in bias, and the bias as a share of the error that is allowed.
const COVERAGE_REACH: f64 = 3.0;
const BIAS_REACH: f64 = 3.0;
const BIAS_SHARE: f64 = 0.4;
/// Deviations over errors from which on deviations are wider than needed, if they are also more than this share of how returns
/// differ.
const WIDE: f64 = 2.0;
const WIDE_SHARE: f64 = 0.05;
/// Seconds for which a change of single streams is a reason for care.
const STREAM_DRIFT_S: f64 = 600.0;
/// Seconds for which the page names a drift that the model in use has followed.
const FOLLOWED_S: f64 = 600.0;
/// Seconds without rows from which on nothing is said of drift.
const NO_ROWS_S: f64 = 600.0;

/// A change of the world that a critic has noticed, and when, in Unix seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct DatedAlarm {
    #[serde(default)]
    pub(super) time: f64,
    #[serde(flatten)]
    pub(super) alarm: DriftAlarm,
}

/// The returns that came, as far as they say something of the model in use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Came {
    Enough(ModelEvidence),
    /// Too few: their number.
    TooFew(usize),
    /// They are not compared: a critic has too many rewards.
    NotCompared,
}

/// What a judgement is made from.
#[derive(Debug)]
pub(super) struct TrustCase<'a> {
    pub(super) status: &'a Status,
    pub(super) critic: &'a CriticStatus,
    /// Number of the reward among the critic's.
    pub(super) reward: usize,
    pub(super) came: Came,
    /// Rows of the longest of the newest returns, where all of them were cut too early to be compared.
    pub(super) cut_after: Option<u32>,
    /// Messages refused in the last ten minutes, and why, where that is known.
    pub(super) refused: u64,
    pub(super) cause: Option<&'a Cause>,
    /// The alarm that no model has answered yet.
    pub(super) alarm: Option<&'a DatedAlarm>,
    /// Unix time of the last change of the world, if there was one.
    pub(super) drifted: Option<f64>,
    /// Unix time at which the model in use was adopted, and at which the last row since the start came.
    pub(super) adopted: Option<f64>,
    pub(super) last_row: Option<f64>,
}

impl TrustCase<'_> {
    /// Level, sentence and reasons.
    pub(super) fn judge(&self) -> TrustStatus {
        let mut reasons = self.of_daemon();
        let world = self.of_world();
        let drifts = world.is_some();
        reasons.extend(world);
        reasons.extend(self.of_state());
        let never = self.never();
        let evidence = match self.came {
            Came::Enough(evidence) if never.is_none() => Some(evidence),
            _ => None,
        };
        let Some(model) = &self.critic.model else {
            let reasons = self.of_daemon();
            return self.said(
                if reasons.is_empty() { "wait" } else { "warn" },
                "There is no model yet.".into(),
                reasons,
            );
        };
        reasons.extend(evidence.iter().flat_map(|evidence| self.of_returns(evidence)));
        let mut words = vec![match (&never, evidence, self.came) {
            (Some(why), ..) => format!("Not verified: {why}"),
            (_, Some(ModelEvidence { verdict, cut, .. }), _) => format!(
                "Returns{} were predicted to within {} (rms); {:.0} % of them fell in their 90 % interval{}",
                self.named(),
                self.in_unit(verdict.error),
                100.0 * verdict.coverage,
                cut_returns(cut, verdict.count)
            ),
            _ => {
                let count = if let Came::TooFew(count) = self.came { count } else { 0 };
                // The title of a model without a reason for care says that it has not been verified.
                let not = if reasons.is_empty() { "" } else { "Not verified yet: " };
                format!("{not}{count} of {PAIRS_MIN} separate returns{} are known", self.named())
            }
        }];
        let provisional = model.provisional == Some(true);
        if provisional {
            words.push("no refit has chosen this model yet, so that its deviations are rough".into());
        }
        if model.kernel.unscaled {
            words.push(
                "all rewards have been 0, so that nothing tells how large values may be, and they have no deviations"
                    .into(),
            );
        }
        if !drifts {
            words.push(self.quiet());
        }
        let level = match () {
            () if reasons.iter().any(|reason| reason.level == "bad") => "bad",
            () if !reasons.is_empty() => "warn",
            () if never.is_some() => "never",
            () if evidence.is_some() && !provisional => "good",
            () => "wait",
        };
        self.said(level, format!("{}.", words.join("; ")), reasons)
    }

    fn said(&self, level: &str, sentence: String, reasons: Vec<TrustReason>) -> TrustStatus {
        let (sign, title) = match level {
            "good" => ("●", "The values can be believed"),
            "wait" => ("○", "The values have not been verified yet"),
            "never" => ("○", "No return says whether to believe the values"),
            "warn" => ("▲", "Believe the values with care"),
            _ => ("■", "Do not believe the values"),
        };
        let found = match self.came {
            Came::Enough(ModelEvidence { verdict, .. }) if self.never().is_none() => Some(verdict),
            _ => None,
        };
        TrustStatus {
            level: level.into(),
            sign: sign.into(),
            title: title.into(),
            sentence,
            reasons,
            returns: found.map(|of| of.count as u64),
            error: found.map(|of| of.error),
            bias: found.map(|of| of.bias),
            coverage: found.map(|of| of.coverage),
        }
    }

    /// Why the values are not compared with the returns that come; none where they are.
    fn never(&self) -> Option<String> {
        let successor = self.critic.actions.as_ref().map(|of| of.successor.as_str());
        match (successor, self.came) {
            (Some("improve"), _) => Some(
                "these are values of the best actions, and the returns that come follow the policy that acts".into(),
            ),
            (Some(other), _) if other != "sarsa" => {
                Some("these are values of another policy than the one that acts, whose returns do not come".into())
            }
            (_, Came::TooFew(_)) => self.cut_after.map(|rows| self.cut_too_early(rows)),
            (_, Came::NotCompared) => Some("only returns of a critic's first rewards are compared".into()),
            _ => None,
        }
    }

    /// Why no return is known of episodes that are cut after `rows` rows, and what to do.
    fn cut_too_early(&self, rows: u32) -> String {
        let discount = self.critic.discount;
        if discount >= 1.0 {
            return format!(
                "at discount 1 only episodes that terminate have a return, and these are cut after about {rows} rows; let some of \
                 them end, or set discount below 1"
            );
        }
        let needed = (CUT.ln() / discount.ln()).ceil();
        format!(
            "episodes are cut after about {rows} rows, and at discount {discount} a return needs {needed:.0}; let episodes run longer, or \
             lower discount"
        )
    }

    /// " of energy": which reward it is, where that needs saying.
    fn named(&self) -> String {
        match self.critic.reward_names.get(self.reward) {
            Some(name) => format!(" of {}", split(name).0),
            None if self.critic.rewards.len() > 1 => format!(" of reward {}", self.reward),
            None => String::new(),
        }
    }

    /// A number of the reward with two digits and its unit.
    fn in_unit(&self, value: f64) -> String {
        let unit = self.critic.reward_names.get(self.reward).and_then(|name| split(name).1);
        unit.map_or_else(|| two_digits(value), |unit| format!("{} {unit}", two_digits(value)))
    }

    /// Whether the returns contradict the model: the error that few pairs make by chance is allowed for.
    fn of_returns(&self, ModelEvidence { verdict, scatter, spread, useless, .. }: &ModelEvidence) -> Vec<TrustReason> {
        let mut out = Vec::new();
        let n = verdict.count as f64;
        let reach = COVERAGE_REACH * (COVERAGE * (1.0 - COVERAGE) / n).sqrt();
        if verdict.coverage < COVERAGE - reach.max(COVERAGE_SLACK) {
            out.push(warning(
                format!(
                    "only {:.0} % of the last {} returns fell in their 90 % interval",
                    100.0 * verdict.coverage,
                    verdict.count
                ),
                "Read the deviations as too small. A refit (criticd refit) or a larger dictionary_max may mend it.",
            ));
        }
        if *useless {
            out.push(warning(
                format!(
                    "values tell no more of returns than their mean would: returns differ by {}, and missed by {}",
                    self.in_unit(*spread),
                    self.in_unit(verdict.error)
                ),
                "Do not choose between states by these values. A refit (criticd refit), more rows or other state variables may mend it.",
            ));
        }
        if verdict.coverage >= COVERAGE && *scatter > WIDE * verdict.error && *scatter > WIDE_SHARE * spread {
            out.push(warning(
                format!(
                    "the intervals are wider than needed: a deviation of {} on average, where returns missed by {}",
                    self.in_unit(*scatter),
                    self.in_unit(verdict.error)
                ),
                "Read the deviations as upper bounds. More rows and the next refit narrow them.",
            ));
        }
        let bias = verdict.bias.abs();
        if bias > BIAS_REACH * scatter / n.sqrt() && bias > BIAS_SHARE * verdict.error {
            let side = if verdict.bias < 0.0 { "high" } else { "low" };
            out.push(warning(
                format!("values are too {side} by {} on average", self.in_unit(bias)),
                "See the worst states on the page. If the policy has changed, send its name (policy) or set forgetting.",
            ));
        }
        out
    }

    /// Reasons that the daemon itself gives.
    fn of_daemon(&self) -> Vec<TrustReason> {
        let mut out = Vec::new();
        if let Some(why) = &self.critic.failed {
            let text = format!("this critic has stopped learning: {why}");
            out.push(TrustReason { level: "bad".into(), ..warning(text, "See the log.") });
        }
        if let Some(why) = self.critic.rebuild.as_ref().and_then(|rebuild| rebuild.failed.as_ref()) {
            out.push(warning(
                format!("this critic could not be learned again: {why}"),
                "The log says more. criticd rebuild tries again.",
            ));
        }
        if let Some(why) = &self.status.read_only {
            let (what, remedy) = parts_of_read_only(why);
            let reason = of_all(format!("nothing can be stored: {what}"), remedy);
            out.push(TrustReason { level: "bad".into(), ..reason });
        }
        let failing = self.status.journal.as_ref().and_then(|journal| journal.checkpoint_failure.as_ref());
        if let Some(why) = failing.filter(|_| self.status.read_only.is_none()) {
            out.push(of_all(
                format!("no checkpoint can be written: {why}"),
                "Rows are stored, and a restart would learn them again. Mend the cause; the next checkpoint comes with more rows, or at \
                 the stop.",
            ));
        }
        out.extend(self.refusals());
        out.extend(self.removal());
        out
    }

    /// Rows were taken back of which the critic still has something.
    fn removal(&self) -> Option<TrustReason> {
        let of_critic = |removal: &RemovalStatus| {
            let own =
                removal.critics.iter().find(|own| own.critic == self.critic.name && own.free_generation.is_none())?;
            Some((removal.rows, removal.by.clone(), removal.offset, own.subtracted))
        };
        let (rows, by, offset, subtracted) = self.status.removals.iter().find_map(of_critic)?;
        let by = by.map_or(String::new(), |by| format!(" by {by}"));
        let (level, what) = match subtracted {
            true => ("warn", "its values are without them, its kernel and dictionary were chosen with them"),
            false => ("bad", "its values have them still"),
        };
        let text = format!("{} rows were taken back at offset {offset}{by}: {what}", grouped(rows as f64));
        let remedy = "It is being learned again from the rows that stay, and takes over when that is done.";
        Some(TrustReason { level: level.into(), ..warning(text, remedy) })
    }

    fn refusals(&self) -> Option<TrustReason> {
        let messages = match self.refused {
            0 => return None,
            1 => "1 message was".to_owned(),
            count => format!("{} messages were", grouped(count as f64)),
        };
        let Some(Cause { code, streams, more, others }) = self.cause else {
            // Alarms of an earlier run have no cause.
            return Some(of_all(format!("{messages} refused in the last 10 minutes"), QUARANTINE));
        };
        let more = if *more > 0 { format!(" and {more} more") } else { String::new() };
        let (named, who) = match streams.join(", ") {
            _ if streams.is_empty() => (String::new(), "the sender".to_owned()),
            names => (format!(" from {names}{more}"), format!("the sender of {names}{more}")),
        };
        let mostly = if *others { "most: " } else { "" };
        let remedy = match code.as_str() {
            "wrong_dimension" => format!(
                "Correct {who}: its states have another length. If all states have it from now on, criticd reset starts over."
            ),
            "fenced" => "Two programs send under one stream name. Give each its own.".into(),
            _ => QUARANTINE.into(),
        };
        Some(of_all(format!("{messages} refused in the last 10 minutes ({mostly}{code}{named})"), remedy))
    }

    /// A change that no model has answered. A change of single streams is never answered, and stops counting.
    fn of_world(&self) -> Option<TrustReason> {
        let DatedAlarm { time, alarm } = self.alarm?;
        if !alarm.streams.is_empty() && self.status.time - time > STREAM_DRIFT_S {
            return None;
        }
        let remedy = if alarm.streams.is_empty() {
            "A second model is learning the new rows and takes over once it predicts better."
        } else {
            "Look at those streams: a sensor may be broken."
        };
        Some(warning(unlike(alarm), remedy))
    }

    /// The last refit has found that the state hides something, whether or not its model was adopted.
    fn of_state(&self) -> Option<TrustReason> {
        let found = self.critic.refit.last.as_ref()?.found.as_ref()?.hidden_state.as_ref()?;
        found.hidden.then(|| {
            warning(
                hidden_state(found.ratio),
                "Send what is missing with the state, such as a speed or the variables of the row before, or set lambda = 1 and variance = \
                 \"clustered\".",
            )
        })
    }

    /// For how long nothing has drifted, if that is watched: since the start, the adoption of the model in use, or the last change.
    fn quiet(&self) -> String {
        let Some(model) = &self.critic.model else { return "drift is not watched yet".into() };
        if model.drift.sensitivity == "off" {
            return "drift is not watched".into();
        }
        let idle = self.last_row.map_or(self.status.uptime_s, |time| self.status.time - time);
        if idle > NO_ROWS_S {
            return format!("no rows have come for {}", lasting(idle));
        }
        if model.drift.level.is_none() {
            return "drift is not watched yet".into();
        }
        let watched =
            self.adopted.map_or(self.status.uptime_s, |time| (self.status.time - time).min(self.status.uptime_s));
        let (what, seconds) = match self.drifted.map(|time| self.status.time - time) {
            Some(seconds) if seconds < watched => ("no further drift", seconds),
            Some(seconds) if seconds < FOLLOWED_S => {
                return format!(
                    "a drift {} ago was followed: the model was made of newer rows since",
                    lasting(seconds)
                );
            }
            // "In the last 5 s" would read as if nothing else had been looked at.
            _ if watched < 60.0 && watched < self.status.uptime_s => {
                return "nothing has drifted since the last adoption".into();
            }
            _ if watched < 60.0 => return "nothing has drifted since the start".into(),
            _ => ("nothing has drifted", watched),
        };
        format!("{what} in the last {}", lasting(seconds))
    }
}

/// How many of the returns were cut, in words.
fn cut_returns(cut: usize, count: usize) -> String {
    match cut {
        0 => String::new(),
        cut if cut == count => "; all of them were cut, and end with the model's value there".into(),
        cut => format!("; {cut} of {count} were cut, and end with the model's value there"),
    }
}

/// What to do about refused messages in general.
const QUARANTINE: &str = "The log names the stream and the field: criticd quarantine list.";

/// Why nothing can be stored, and what to do. Where the daemon has the last copy of the rows, the cause itself says what.
pub(crate) fn parts_of_read_only(why: &str) -> (&str, String) {
    let last = why.contains("deleted or replaced") || why.contains("are missing");
    let remedy = match why.split_once(". ") {
        Some((what, advice)) if last => return (what, format!("{}.", advice.trim_end_matches('.'))),
        _ if last => "Do not stop or restart it: docs/operations.md, \"Deleted files\".",
        _ => "Mend the cause, such as a full disk. The daemon tries again every second; it needs no restart.",
    };
    (why, remedy.to_owned())
}

/// A reason for care about one critic.
fn warning(text: String, remedy: impl Into<String>) -> TrustReason {
    TrustReason { level: "warn".into(), of: "critic".into(), text, remedy: remedy.into() }
}

/// A reason for care about all critics.
fn of_all(text: String, remedy: impl Into<String>) -> TrustReason {
    TrustReason { of: "daemon".into(), ..warning(text, remedy) }
}

/// What an alarm says: what differs, since when, in which streams, and which state variables moved.
pub(super) fn unlike(alarm: &DriftAlarm) -> String {
    let what = match alarm.statistic.as_str() {
        "higher" => "rewards and values are higher than predicted",
        "lower" => "rewards and values are lower than predicted",
        "wider" => "prediction errors scatter more",
        "" => "the rows are unlike those before",
        other => other,
    };
    let streams = &alarm.streams;
    let places = if streams.is_empty() { String::new() } else { format!(" in {}", streams.join(", ")) };
    let moved: Vec<&str> = alarm.variables.iter().map(|variable| variable.name.as_str()).collect();
    let moved = if moved.is_empty() { String::new() } else { format!("; moved: {}", moved.join(", ")) };
    format!("{what}{places}, probably since row {}{moved}", grouped(alarm.since as f64))
}

/// A name and its unit, which stands in brackets behind it.
pub(crate) fn split(name: &str) -> (&str, Option<&str>) {
    let parts = name.strip_suffix(']').and_then(|rest| rest.rsplit_once('['));
    parts.map_or((name, None), |(name, unit)| (name.trim_end(), Some(unit)))
}

/// A number that is not negative with two digits: 0.041, 7.3, 12 000.
fn two_digits(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        v if (10.0..1e6).contains(&v) => grouped(v),
        v if (1e-3..10.0).contains(&v) => {
            format!("{v:.1e}").parse::<f64>().map_or_else(|_| v.to_string(), |rounded| rounded.to_string())
        }
        v => format!("{v:.1e}"),
    }
}

/// A whole number in groups of three.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::from(if value < -0.5 { "−" } else { "" });
    for (k, digit) in digits.chars().enumerate() {
        if k > 0 && (digits.len() - k).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// Seconds in one unit.
fn lasting(seconds: f64) -> String {
    match seconds.max(0.0) {
        s if s < 60.0 => format!("{s:.0} s"),
        s if s < 3600.0 => format!("{:.0} min", (s / 60.0).floor()),
        s if s < 172_800.0 => format!("{:.0} h", (s / 3600.0).floor()),
        s => format!("{:.0} days", (s / 86_400.0).floor()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::calibration::Calibration;
    use super::super::pairs::PairsVerdict;
    use super::super::testing::{Row, model, push};
    use super::*;
    use crate::learner::Settings;
    use crate::learner::window::Window;
    use crate::wire::status::{
        ActionsStatus, DriftStatus, HiddenFound, InfluenceStatus, JournalStatus, LastRefit, ModelStatus, MovedVariable,
        RebuildStatus, RefitFound,
    };
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

    fn evidence(count: usize, error: f64, bias: f64, coverage: f64) -> Came {
        let verdict = PairsVerdict { count, error, bias, coverage, ..PairsVerdict::default() };
        Came::Enough(ModelEvidence { verdict, scatter: 0.4, spread: 2.0, cut: 0, useless: false })
    }

    /// Returns that tell against the values as such, by so large an error.
    fn useless(error: f64) -> Came {
        let Came::Enough(found) = evidence(100, error, 0.0, 0.91) else { unreachable!("evidence is enough") };
        Came::Enough(ModelEvidence { useless: true, ..found })
    }

    fn case<'a>(status: &'a Status, critic: &'a CriticStatus, came: Came) -> TrustCase<'a> {
        let (refused, cause, alarm) = (0, None, None);
        let (drifted, adopted, last_row) = (None, None, Some(status.time));
        TrustCase {
            status,
            critic,
            reward: 0,
            came,
            cut_after: None,
            refused,
            cause,
            alarm,
            drifted,
            adopted,
            last_row,
        }
    }

    /// The level, the sentence, and the reasons one after the other.
    fn found(status: &Status, critic: &CriticStatus, came: Came, refused: u64) -> (String, String, String) {
        let case = TrustCase { refused, ..case(status, critic, came) };
        let TrustStatus { level, sentence, reasons, .. } = case.judge();
        let reasons: Vec<String> = reasons.into_iter().map(|reason| reason.text).collect();
        (level, sentence, reasons.join("; "))
    }

    fn critic() -> CriticStatus {
        CriticStatus { name: "c".into(), rewards: vec![0], model: Some(watched()), ..CriticStatus::default() }
    }

    /// A model whose errors are watched.
    fn watched() -> ModelStatus {
        ModelStatus { drift: DriftStatus { level: Some(0.5), ..DriftStatus::default() }, ..ModelStatus::default() }
    }

    fn drifted(statistic: &str, streams: &[&str]) -> DriftAlarm {
        let streams = streams.iter().map(|&stream| stream.to_owned()).collect();
        DriftAlarm { since: 5, statistic: statistic.to_owned(), streams, ..DriftAlarm::default() }
    }

    fn status() -> Status {
        Status { time: 10_000.0, uptime_s: 7300.0, ..Status::default() }
    }

    #[test]
    fn the_sentence_says_error_coverage_and_drift_and_the_level_follows_the_returns() {
        let (status, critic) = (status(), critic());
        let cases = [
            (evidence(100, 0.4, 0.02, 0.91), "good", ""),
            // Of a hundred returns 80 % are too few, 82 % may be chance; so may 77 % of forty.
            (evidence(100, 0.4, 0.02, 0.82), "good", ""),
            (evidence(40, 0.4, 0.02, 0.77), "good", ""),
            (evidence(100, 0.4, 0.02, 0.80), "warn", "only 80 % of the last 100 returns fell in their 90 % interval"),
            (evidence(100, 0.4, 0.3, 0.91), "warn", "values are too low by 0.3 on average"),
            (evidence(100, 0.4, -0.3, 0.91), "warn", "values are too high by 0.3 on average"),
            // A bias that is small beside the error, and one that is chance, are none.
            (evidence(100, 4.0, 0.3, 0.91), "good", ""),
            (evidence(30, 0.4, 0.2, 0.91), "good", ""),
            (Came::TooFew(12), "wait", ""),
            (Came::NotCompared, "never", ""),
        ];
        for (came, level, reasons) in cases {
            let found = found(&status, &critic, came, 0);
            assert_eq!((found.0.as_str(), found.2.as_str()), (level, reasons), "{came:?}");
        }
        let numbers = |came| {
            let TrustStatus { returns, error, bias, coverage, .. } = case(&status, &critic, came).judge();
            (returns, error, bias, coverage)
        };
        assert_eq!(numbers(evidence(100, 0.4, 0.02, 0.91)), (Some(100), Some(0.4), Some(0.02), Some(0.91)));
        assert_eq!(numbers(Came::TooFew(12)), (None, None, None, None));
        let sentence = |came| found(&status, &critic, came, 0).1;
        assert_eq!(
            sentence(evidence(100, 0.4, 0.0, 0.91)),
            "Returns were predicted to within 0.4 (rms); 91 % of them fell in their 90 % interval; nothing has drifted in the last 2 h."
        );
        assert_eq!(
            sentence(Came::TooFew(12)),
            "12 of 30 separate returns are known; nothing has drifted in the last 2 h."
        );
        assert_eq!(
            found(&status, &critic, Came::TooFew(12), 1).1,
            "Not verified yet: 12 of 30 separate returns are known; nothing has drifted in the last 2 h."
        );
    }

    #[test]
    fn what_the_state_hides_is_a_reason_until_a_refit_finds_nothing() {
        let judge = |hidden| {
            let sign = HiddenFound { ratio: 7.5, chains: 120, hidden };
            let last = RefitFound { hidden_state: Some(sign), ..RefitFound::default() };
            let mut critic = critic();
            critic.refit.last = Some(LastRefit { found: Some(last), ..LastRefit::default() });
            case(&status(), &critic, evidence(100, 0.4, 0.0, 0.91)).judge()
        };
        assert_eq!((judge(false).level.as_str(), judge(true).level.as_str()), ("good", "warn"));
        let reason = judge(true).reasons.remove(0);
        assert!(reason.text.contains("more than the state") && reason.text.contains("by 7.5 times"), "{}", reason.text);
        assert!(reason.remedy.starts_with("Send what is missing with the state"), "{}", reason.remedy);
    }

    #[test]
    fn reasons_of_daemon_and_world_have_remedies_and_the_worst_decides() {
        let good = evidence(100, 0.4, 0.0, 0.91);
        let (level, _, reasons) = found(&status(), &critic(), good, 2);
        assert_eq!((level.as_str(), reasons.as_str()), ("warn", "2 messages were refused in the last 10 minutes"));
        assert_eq!(found(&status(), &critic(), good, 0).0, "good", "they have not come lately");
        let failing = JournalStatus { checkpoint_failure: Some("no space".into()), ..JournalStatus::default() };
        let failing = Status { journal: Some(failing), ..status() };
        assert_eq!(found(&failing, &critic(), good, 0).2, "no checkpoint can be written: no space");
        let full = Status { read_only: Some("no space".into()), ..failing };
        assert_eq!(found(&full, &critic(), good, 1).0, "bad");
        // What to do is said once.
        let why = "x was deleted or replaced. Do not stop the daemon: see \"Deleted files\"";
        let deleted = Status { read_only: Some(why.into()), ..status() };
        let reason = case(&deleted, &critic(), good).judge().reasons.remove(0);
        assert_eq!(reason.text, "nothing can be stored: x was deleted or replaced");
        assert_eq!(reason.remedy, "Do not stop the daemon: see \"Deleted files\".");
        let stopped = CriticStatus { failed: Some("it panicked".into()), model: None, ..critic() };
        assert!(found(&status(), &stopped, good, 0).2.contains("has stopped learning: it panicked"));
        let rebuild = RebuildStatus { failed: Some("no rows".into()), ..RebuildStatus::default() };
        let rebuilt = CriticStatus { rebuild: Some(rebuild), ..critic() };
        let (level, _, reasons) = found(&status(), &rebuilt, good, 0);
        assert_eq!((level.as_str(), reasons.as_str()), ("warn", "this critic could not be learned again: no rows"));
        let removed = |change: &dyn Fn(&mut InfluenceStatus)| {
            let mut removal = taken_back(true);
            change(&mut removal.critics[0]);
            found(&Status { removals: vec![removal], ..status() }, &critic(), good, 0)
        };
        let (level, _, reasons) = removed(&|_| {});
        assert!(level == "warn" && reasons.contains("rows were taken back at offset 5000 by we"), "{reasons}");
        assert_eq!(removed(&|influence| influence.subtracted = false).0, "bad");
        assert_eq!(removed(&|influence| influence.free_generation = Some(7)).0, "good");
        let best = ActionsStatus { successor: "improve".into(), ..ActionsStatus::default() };
        let best = CriticStatus { actions: Some(best), ..critic() };
        let (level, sentence, _) = found(&status(), &best, Came::TooFew(0), 0);
        assert!(level == "never" && sentence.starts_with("Not verified: these are values of the best actions"));
        let provisional = Some(ModelStatus { provisional: Some(true), ..ModelStatus::default() });
        assert_eq!(found(&status(), &CriticStatus { model: provisional, ..critic() }, good, 0).0, "wait");

        let variables = vec![MovedVariable { name: "x".into(), ..MovedVariable::default() }];
        let alarm = DriftAlarm { variables, ..drifted("lower", &[]) };
        let mut alarm = DatedAlarm { time: 9000.0, alarm: DriftAlarm { since: 12_345, ..alarm } };
        let judge = |alarm: &DatedAlarm| {
            let (status, critic) = (&status(), &critic());
            TrustCase { alarm: Some(alarm), drifted: Some(9000.0), ..case(status, critic, good) }.judge()
        };
        let reason = judge(&alarm).reasons.remove(0);
        assert_eq!(
            reason.text,
            "rewards and values are lower than predicted, probably since row 12\u{202f}345; moved: x"
        );
        assert!(reason.remedy.starts_with("A second model"));
        alarm.alarm.streams = vec!["arm".into()];
        let quiet = judge(&alarm);
        assert_eq!(quiet.level, "good", "no model follows a single stream: its change stops to count");
        assert!(quiet.sentence.ends_with("no further drift in the last 16 min."), "{}", quiet.sentence);
        alarm.time = 9900.0;
        assert!(judge(&alarm).reasons[0].text.contains("than predicted in arm, probably"));
    }

    #[test]
    fn refusals_have_the_cause_and_the_remedy_of_the_last_minutes() {
        // Since the start most were of another kind.
        let status = Status { rejected: [("wrong_dimension".into(), 5000), ("fenced".into(), 2)].into(), ..status() };
        let critic = critic();
        let judge = |cause: &Cause| {
            let case = case(&status, &critic, evidence(100, 0.4, 0.0, 0.91));
            let reason = TrustCase { refused: 2, cause: Some(cause), ..case }.judge().reasons.remove(0);
            (reason.text, reason.remedy)
        };
        let mut cause = Cause { code: "fenced".into(), streams: vec!["arm".into()], ..Cause::default() };
        let (text, remedy) = judge(&cause);
        assert_eq!(text, "2 messages were refused in the last 10 minutes (fenced from arm)");
        assert!(remedy.starts_with("Two programs send under one stream name"), "{remedy}");
        cause = Cause { code: "wrong_dimension".into(), more: 2, others: true, ..cause };
        let (text, remedy) = judge(&cause);
        assert_eq!(text, "2 messages were refused in the last 10 minutes (most: wrong_dimension from arm and 2 more)");
        assert!(
            remedy.starts_with("Correct the sender of arm and 2 more: its states have another length."),
            "{remedy}"
        );
    }

    #[test]
    fn intervals_that_are_wider_than_needed_are_a_reason_for_care() {
        let (status, critic) = (status(), critic());
        let of = |scatter: f64, spread: f64| {
            let verdict = PairsVerdict { count: 100, error: 0.4, coverage: 1.0, ..PairsVerdict::default() };
            found(&status, &critic, Came::Enough(ModelEvidence { verdict, scatter, spread, cut: 0, useless: false }), 0)
        };
        let (level, _, reasons) = of(1.0, 2.0);
        assert_eq!(level, "warn");
        assert!(
            reasons.contains("wider than needed: a deviation of 1 on average, where returns missed by 0.4"),
            "{reasons}"
        );
        assert_eq!(
            (of(0.7, 2.0).0.as_str(), of(1.0, 30.0).0.as_str()),
            ("good", "good"),
            "close, or small beside returns"
        );
    }

    #[test]
    fn returns_that_were_cut_are_told_and_so_is_that_none_can_be_known() {
        let (status, critic) = (status(), CriticStatus { discount: 0.99, ..critic() });
        let of = |cut: usize| {
            let verdict = PairsVerdict { count: 60, error: 0.4, coverage: 0.9, ..PairsVerdict::default() };
            found(
                &status,
                &critic,
                Came::Enough(ModelEvidence { verdict, scatter: 0.4, spread: 2.0, cut, useless: false }),
                0,
            )
            .1
        };
        assert!(!of(0).contains("cut"), "{}", of(0));
        assert!(of(12).contains("; 12 of 60 were cut, and end with the model's value there"), "{}", of(12));
        assert!(of(60).contains("; all of them were cut"), "{}", of(60));
        let of = |cut_after, discount: f64| {
            let critic = CriticStatus { discount, ..critic.clone() };
            let TrustStatus { level, sentence, .. } =
                TrustCase { cut_after, ..case(&status, &critic, Came::TooFew(3)) }.judge();
            (level, sentence)
        };
        let (level, sentence) = of(Some(50), 0.99);
        assert_eq!(level, "never");
        assert!(sentence.contains("cut after about 50 rows, and at discount 0.99 a return needs 120;"), "{sentence}");
        assert!(sentence.contains("or lower discount"), "{sentence}");
        assert!(of(Some(50), 1.0).1.contains("let some of them end, or set discount below 1"));
        assert!(of(None, 0.99).1.starts_with("3 of 30"));
    }

    #[test]
    fn nothing_is_said_of_drift_without_evidence() {
        let (status, critic) = (status(), critic());
        let quiet = |model: ModelStatus, adopted, drifted, last_row| {
            let critic = CriticStatus { model: Some(model), ..critic.clone() };
            TrustCase { adopted, drifted, last_row, ..case(&status, &critic, Came::TooFew(0)) }.quiet()
        };
        assert_eq!(quiet(ModelStatus::default(), None, None, Some(9990.0)), "drift is not watched yet");
        assert_eq!(quiet(watched(), None, None, None), "no rows have come for 2 h", "since the start");
        assert_eq!(quiet(watched(), None, None, Some(9990.0)), "nothing has drifted in the last 2 h");
        assert_eq!(quiet(watched(), Some(9700.0), None, Some(9990.0)), "nothing has drifted in the last 5 min");
        assert_eq!(quiet(watched(), Some(9990.0), None, Some(9990.0)), "nothing has drifted since the last adoption");
        let (started, with_model) =
            (Status { uptime_s: 20.0, ..status.clone() }, CriticStatus { model: Some(watched()), ..critic.clone() });
        for adopted in [None, Some(9000.0)] {
            let case = TrustCase { adopted, last_row: Some(9990.0), ..case(&started, &with_model, Came::TooFew(0)) };
            assert_eq!(case.quiet(), "nothing has drifted since the start");
        }
        assert_eq!(quiet(watched(), Some(9700.0), Some(9000.0), Some(9990.0)), "nothing has drifted in the last 5 min");
        assert_eq!(quiet(watched(), Some(9000.0), Some(9700.0), Some(9990.0)), "no further drift in the last 5 min");
        let followed = quiet(watched(), Some(9900.0), Some(9700.0), Some(9990.0));
        assert_eq!(followed, "a drift 5 min ago was followed: the model was made of newer rows since");
        assert_eq!(quiet(watched(), Some(9000.0), None, Some(2000.0)), "no rows have come for 2 h");
        let off = DriftStatus { sensitivity: "off".into(), ..DriftStatus::default() };
        assert_eq!(quiet(ModelStatus { drift: off, ..watched() }, None, None, Some(0.0)), "drift is not watched");
    }

    /// Levels of each second of a stream whose return has a standard deviation of 2, as the model says, and whose mean rises by `bias`
    /// after `before` seconds.
    fn levels((discount, per_second): (f64, usize), seconds: usize, before: usize, bias: f64) -> Vec<String> {
        let settings = Settings { discount, ..Settings::default() };
        let mut calibration = Calibration::new(&settings);
        let (status, critic) = (status(), CriticStatus { generation: 1, ..critic() });
        let mut window = Window::new(1, 1, 4 * per_second.max(1000));
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let noise = 2.0 * (1.0 - discount * discount).sqrt();
        calibration.take(&window, Some(model(0)));
        let second = |second| {
            let mean = (1.0 - discount) * (10.0 + if second < before { 0.0 } else { bias });
            for _ in 0..per_second {
                // Box and Muller.
                let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
                let normal = radius * (std::f64::consts::TAU * rng.random::<f64>()).cos();
                let starts = window.end() == 0;
                push(
                    &mut window,
                    &Row { stream: 0, starts, state: 0.0, reward: mean + noise * normal, terminated: false },
                );
            }
            calibration.take(&window, Some(model(window.end())));
            let came = calibration.evidence(1).next().unwrap().map_or_else(Came::TooFew, Came::Enough);
            found(&status, &critic, came, 0).0
        };
        (0..seconds).map(second).collect()
    }

    /// With --nocapture it prints what docs/dashboard.md says of false alarms. All times are the stream's.
    #[test]
    fn a_model_that_is_right_is_seldom_doubted_and_one_that_is_wrong_soon() {
        const DAY: usize = 86_400;
        for (discount, per_second) in [(0.5, 10), (0.9, 10), (0.9, 100), (0.99, 100), (0.99, 1000)] {
            let seconds = if per_second > 100 { 3000 } else { DAY / 4 };
            let all = levels((discount, per_second), seconds, seconds, 0.0);
            let amber = all.iter().filter(|level| *level == "warn").count() as f64 / all.len() as f64;
            let begins = all.windows(2).filter(|two| two[0] != "warn" && two[1] == "warn").count();
            let biased = levels((discount, per_second), 900, 600, 4.0);
            let delay = biased[600..].iter().position(|level| level == "warn");
            println!(
                "discount {discount}, {per_second} rows/s: amber {amber:.4} of {seconds} s in {begins} spells; a bias of two deviations \
                 after {delay:?} s"
            );
            assert!(amber < 0.01 && delay.is_some_and(|delay| delay < 120), "discount {discount}, {per_second} rows/s");
        }
    }

    /// What a case is made of.
    struct Planted {
        status: Status,
        critic: CriticStatus,
        came: Came,
        refused: u64,
        alarm: Option<DatedAlarm>,
    }

    impl Planted {
        fn model(&mut self) -> &mut ModelStatus {
            self.critic.model.as_mut().unwrap()
        }

        fn successor(&mut self, of: &str) {
            self.critic.actions = Some(ActionsStatus { successor: of.into(), ..ActionsStatus::default() });
        }

        fn alarm(&mut self, statistic: &str, streams: &[&str]) {
            self.alarm = Some(DatedAlarm { time: 9900.0, alarm: drifted(statistic, streams) });
        }

        fn checkpoint_failure(&mut self, why: &str) {
            self.status.journal =
                Some(JournalStatus { checkpoint_failure: Some(why.into()), ..JournalStatus::default() });
        }
    }

    /// Everything that is said where a good model has this planted.
    fn said(plant: &dyn Fn(&mut Planted)) -> String {
        let (status, critic, came) = (status(), critic(), evidence(100, 0.4, 0.0, 0.91));
        let mut of = Planted { status, critic, came, refused: 0, alarm: None };
        plant(&mut of);
        let case = TrustCase { alarm: of.alarm.as_ref(), refused: of.refused, ..case(&of.status, &of.critic, of.came) };
        let TrustStatus { title, sentence, reasons, .. } = case.judge();
        let all = format!("{title}. {sentence}");
        reasons.into_iter().fold(all, |all, TrustReason { text, remedy, .. }| format!("{all} {text}. {remedy}"))
    }

    #[test]
    fn each_sentence_has_its_truth_and_is_kept_back_without_it() {
        type Plant<'a> = &'a dyn Fn(&mut Planted);
        let failed = |why: &str| Some(RebuildStatus { failed: Some(why.into()), ..RebuildStatus::default() });
        let rebuilt: Plant<'_> = &|of| of.critic.rebuild = failed("no rows");
        let truths: [(&str, Plant<'_>); 29] = [
            ("There is no model yet.", &|of| of.critic.model = None),
            ("The values have not been verified yet", &|of| of.came = Came::TooFew(3)),
            ("No return says whether to believe the values", &|of| of.came = Came::NotCompared),
            ("only returns of a critic's first rewards are compared", &|of| of.came = Came::NotCompared),
            ("Believe the values with care", rebuilt),
            ("The log says more. criticd rebuild tries again.", rebuilt),
            ("Do not believe the values", &|of| of.critic.failed = Some("it panicked".into())),
            ("this critic has stopped learning: it panicked. See the log.", &|of| {
                of.critic.failed = Some("it panicked".into());
            }),
            ("no refit has chosen this model yet, so that its deviations are rough", &|of| {
                of.model().provisional = Some(true);
            }),
            (
                "all rewards have been 0, so that nothing tells how large values may be, and they have no deviations",
                &|of| {
                    of.model().kernel.unscaled = true;
                },
            ),
            ("these are values of the best actions, and the returns that come follow the policy that acts", &|of| {
                of.successor("improve");
            }),
            ("these are values of another policy than the one that acts, whose returns do not come", &|of| {
                of.successor("expected");
            }),
            ("Read the deviations as too small. A refit", &|of| of.came = evidence(100, 0.4, 0.0, 0.7)),
            ("Read the deviations as upper bounds. More rows and the next refit", &|of| {
                of.came = evidence(100, 0.1, 0.0, 0.99);
            }),
            (
                "values tell no more of returns than their mean would: returns differ by 2, and missed by 2.1. Do not",
                &|of| {
                    of.came = useless(2.1);
                },
            ),
            ("A refit (criticd refit), more rows or other state variables may mend it.", &|of| of.came = useless(2.1)),
            ("See the worst states on the page.", &|of| of.came = evidence(100, 0.4, 0.3, 0.91)),
            ("its values are without them, its kernel and dictionary were chosen with them", &|of| {
                of.status.removals = vec![taken_back(true)];
            }),
            ("its values have them still. It is being learned again from the rows that stay", &|of| {
                of.status.removals = vec![taken_back(false)];
            }),
            ("rewards and values are higher than predicted, probably since row 5", &|of| of.alarm("higher", &[])),
            ("rewards and values are lower than predicted", &|of| of.alarm("lower", &[])),
            ("the rows are unlike those before", &|of| of.alarm("", &[])),
            ("A second model is learning the new rows and takes over once it predicts better.", &|of| {
                of.alarm("wider", &[]);
            }),
            ("prediction errors scatter more in arm", &|of| of.alarm("wider", &["arm"])),
            ("Look at those streams: a sensor may be broken.", &|of| of.alarm("wider", &["arm"])),
            ("Rows are stored, and a restart would learn them again.", &|of| of.checkpoint_failure("no space")),
            ("Mend the cause, such as a full disk.", &|of| of.status.read_only = Some("no space".into())),
            ("Do not stop or restart it: docs/operations.md", &|of| {
                of.status.read_only = Some("rows are missing".into());
            }),
            ("The log names the stream and the field: criticd quarantine list.", &|of| of.refused = 2),
        ];
        let plain = said(&|_| {});
        assert!(plain.starts_with("The values can be believed. Returns were predicted"), "{plain}");
        for (words, plant) in truths {
            let found = said(plant);
            assert!(found.contains(words) && !plain.contains(words), "{words}: {found}; without: {plain}");
        }
    }

    /// A removal that the critic still has something of.
    fn taken_back(subtracted: bool) -> RemovalStatus {
        let influence = InfluenceStatus { critic: critic().name, subtracted, ..InfluenceStatus::default() };
        RemovalStatus {
            rows: 1200,
            offset: 5000,
            by: Some("we".into()),
            critics: vec![influence],
            ..RemovalStatus::default()
        }
    }

    #[test]
    fn the_reward_is_named_with_its_unit() {
        let critic = CriticStatus { rewards: vec![0, 2], ..critic() };
        let status = status();
        let judge = |critic: &CriticStatus, reward, error| {
            let came = evidence(100, error, 0.9 * error, 0.91);
            TrustCase { reward, ..case(&status, critic, came) }.judge()
        };
        assert!(judge(&critic, 1, 4.0).sentence.starts_with("Returns of reward 1 were predicted to within 4 (rms);"));
        let named = CriticStatus { reward_names: vec!["energy [J]".into(), "comfort".into()], ..critic };
        assert!(
            judge(&named, 0, 0.0412).sentence.starts_with("Returns of energy were predicted to within 0.041 J (rms);")
        );
        assert_eq!(judge(&named, 0, 12_345.0).reasons[0].text, "values are too low by 11\u{202f}110 J on average");
        assert!(judge(&named, 1, 2.0).sentence.starts_with("Returns of comfort were predicted to within 2 (rms);"));
    }
}
