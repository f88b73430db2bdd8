//! Alarms before failures, in a line.

use super::{digits, said};
use crate::wire::status::AlarmStatus;

/// What an alarm about returns says, and what has come of those before.
pub(super) fn line(alarm: &AlarmStatus) -> (String, String) {
    let AlarmStatus { head, below, missing, on, raised, hits, mistaken, fell, missed, .. } = alarm;
    let whose = head.as_ref().map(|head| format!(" of {head}")).unwrap_or_default();
    let what = format!("return{whose} below {}", digits(*below));
    if alarm.unknown {
        return said(
            "alarm",
            format!("{what}: there is no head of this name; declare it, or mend `alarm` in the settings"),
        );
    }
    if *missing > 0 {
        let fallen = if *fell > 0 { format!("; {fell} of {} fell below", fell + alarm.stayed) } else { String::new() };
        return said("alarm", format!("{what}: not before {missing} more returns at or above it are known{fallen}"));
    }
    let mut words = match (on, alarm.streams.join(", ")) {
        (0, _) => format!("{what}: off"),
        (_, names) => format!("{what}: ON, {names}"),
    };
    words += &format!("; {raised} raised, of which {hits} were right and {mistaken} false");
    if let Some(lead) = alarm.lead_rows {
        let seconds = alarm.lead_s.map(|seconds| format!(", {} s", digits(seconds))).unwrap_or_default();
        words += &format!(", {} rows{seconds} ahead", digits(lead));
    }
    words += &format!("; {missed} of {fell} low returns missed");
    if let Some(share) = alarm.false_share {
        let stated = 100.0 * alarm.false_alarms;
        words += &format!("; on at {} % of the others ({} % asked for)", digits(100.0 * share), digits(stated));
    }
    said("alarm", words)
}
