//! What came of it: the table at the end.

use super::audience::AudienceView;
use super::chart::{Kernel, two_digits};
use super::world::{Accuracy, Truth, World};
use crate::snapshot::Snapshot;
use crate::wire::Status;
use crate::wire::status::RefitStatus;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// 1234567 as `1 234 567`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// What was done.
pub(super) struct Scene {
    pub(super) world: World,
    pub(super) copies: u64,
    pub(super) seconds: f64,
    pub(super) sent: u64,
}

/// Everything that the table says.
pub(super) struct DemoReport {
    world: World,
    copies: u64,
    seconds: f64,
    discount: f64,
    sent: u64,
    learned: u64,
    generation: u64,
    refit: RefitStatus,
    pause_ms: [Option<f64>; 2],
    log_evidence: Option<f64>,
    transitions: u64,
    kernel: Kernel,
    shares: Vec<Option<f64>>,
    dictionary: usize,
    dictionary_max: u64,
    models: u64,
    before: Option<f64>,
    after: Option<f64>,
    accuracy: Accuracy,
    truth: [f64; 2],
}

impl DemoReport {
    pub(super) fn new(scene: &Scene, snapshot: &Snapshot, status: &Status, truth: &Truth, view: &AudienceView) -> Self {
        let critic = status.critics.first().cloned().unwrap_or_default();
        let bound = |f: fn(f64, f64) -> f64, start| truth.values.iter().copied().fold(start, f);
        Self {
            world: scene.world,
            copies: scene.copies,
            seconds: scene.seconds,
            sent: scene.sent,
            discount: snapshot.discount,
            learned: snapshot.offset,
            generation: snapshot.generation,
            pause_ms: [critic.adoption_pause_ms.p50, critic.adoption_pause_ms.p99],
            refit: critic.refit,
            log_evidence: snapshot.log_evidence,
            transitions: snapshot.transitions,
            kernel: Kernel::new(scene.world, snapshot),
            shares: critic.shares,
            dictionary: snapshot.dictionary.nrows(),
            dictionary_max: critic.dictionary_max,
            models: view.models,
            before: view.before_first_refit,
            after: view.after_first_refit,
            accuracy: truth.compare(snapshot),
            truth: [bound(f64::min, f64::INFINITY), bound(f64::max, f64::NEG_INFINITY)],
        }
    }

    pub(super) fn json(&self) -> Value {
        let of_all = self.kernel.variables.iter().enumerate().map(|(i, v)| {
            let share = self.shares.get(i).copied().flatten();
            json!({"name": v.name, "unit": v.unit, "relevance": v.relevance, "lengthscale": v.lengthscale, "share": share})
        });
        let variables: Vec<Value> = of_all.collect();
        json!({
            "world": self.world.name(),
            "copies": self.copies,
            "seconds": self.seconds,
            "discount": self.discount,
            "rows": {"streamed": self.sent, "learned": self.learned},
            "generation": self.generation,
            "refits": {"adopted": self.refit.adopted, "rejected": self.refit.rejected},
            "adoption_pause_ms": {"p50": self.pause_ms[0], "p99": self.pause_ms[1]},
            "log_evidence": self.log_evidence,
            "transitions": self.transitions,
            "kernel": {"amplitude": self.kernel.amplitude, "bias": self.kernel.bias, "variables": variables},
            "noise_variance": self.kernel.noise_variance,
            "dictionary": {"size": self.dictionary, "max": self.dictionary_max},
            "models_received": self.models,
            "rms_error": {"before_first_refit": self.before, "after_first_refit": self.after, "final": self.accuracy.rms},
            "true_values": self.truth,
            "correlation": self.accuracy.correlation,
            "coverage_90": self.accuracy.coverage,
        })
    }

    /// What was shown, in one sentence.
    pub(super) fn sentence(&self) -> String {
        let fell = match self.before {
            Some(before) if self.after.is_some() && before > self.accuracy.rms => {
                format!("; before its first model selection it erred by {}", two_digits(before))
            }
            _ => String::new(),
        };
        format!(
            "From {} rows criticd learned the value of every state to within {} (rms), where values lie between {:.2} and {:.2}{fell}.",
            grouped(self.learned),
            two_digits(self.accuracy.rms),
            self.truth[0],
            self.truth[1]
        )
    }

    /// The table, for people.
    pub(super) fn text(&self) -> String {
        let ms = |v: Option<f64>| v.map_or("-".into(), |v| format!("{v:.1} ms"));
        let plural = |n: u64, word: &str| if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") };
        let mut out = format!(
            "\n{}: {} for {:.1} s, discount {}\n\n",
            self.world.name(),
            if self.copies == 1 { "1 copy".into() } else { format!("{} copies", self.copies) },
            self.seconds,
            self.discount
        );
        let mut row = |label: &str, text: String| {
            // Writing into memory does not fail.
            let _ = writeln!(out, "  {label:<14}{text}");
        };
        row("rows", format!("{} streamed, {} learned", grouped(self.sent), grouped(self.learned)));
        let rejections = plural(self.refit.rejected, "candidate");
        row("model", format!("generation {}, {} adopted, {rejections} rejected", self.generation, self.refit.adopted));
        row(
            "pauses",
            format!(
                "learning stood still for {} (p50), {} (p99) at an adoption",
                ms(self.pause_ms[0]),
                ms(self.pause_ms[1])
            ),
        );
        if let Some(nats) = self.log_evidence {
            row("evidence", format!("{nats:.1} nats on {} rows", grouped(self.transitions)));
        }
        row("kernel", format!("amplitude {:.3}, bias {:.3}", self.kernel.amplitude, self.kernel.bias));
        for (i, v) in self.kernel.variables.iter().enumerate() {
            row(&format!("  {}", v.name), self.kernel.row(i, &self.shares, 16));
        }
        row("dictionary", format!("{} states of at most {}", self.dictionary, self.dictionary_max));
        let error = |v: Option<f64>| v.map_or("-".into(), two_digits);
        row(
            "RMS error",
            format!(
                "{} before the first refit, {} after it, {} now",
                error(self.before),
                error(self.after),
                two_digits(self.accuracy.rms)
            ),
        );
        row(
            "",
            format!(
                "against {}; true values lie between {:.2} and {:.2}",
                self.world.reference(),
                self.truth[0],
                self.truth[1]
            ),
        );
        row("correlation", format!("{:.4}", self.accuracy.correlation));
        if let Some(coverage) = self.accuracy.coverage {
            row("coverage", format!("{:.1} % of single returns lie within their 90 % interval", 100.0 * coverage));
        }
        row("subscriber", format!("{} received and evaluated", plural(self.models, "model")));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1 000", "1 234 567"]);
    }
}
