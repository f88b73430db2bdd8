//! What is shown while the demo runs: a live view on a terminal, plain lines elsewhere. All of it on standard error.

use super::audience::{Audience, AudienceView};
use super::chart::{bar, lengthscale, two_digits};
use super::report::grouped;
use super::world::World;
use crate::commands::output::say;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

const FRAME: Duration = Duration::from_millis(100);
const PLAIN: Duration = Duration::from_secs(1);

/// The live view.
pub(super) struct Show {
    world: World,
    /// None where standard error is no terminal.
    bar: Option<ProgressBar>,
}

impl Show {
    /// `page` is where the dashboard is.
    pub(super) fn new(world: World, duration: Duration, page: Option<&str>) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(duration.as_millis() as u64), ProgressDrawTarget::stderr());
            let template = "{prefix:.bold} {bar:30.cyan/dim} {msg}";
            let style = ProgressStyle::with_template(template).expect("the template is sound");
            bar.set_style(style.progress_chars("━━╌"));
            bar.set_prefix(world.name());
            bar
        });
        if bar.is_none() {
            say(&format!("criticd demo: {}, for {} s", world.name(), duration.as_secs()));
        }
        let show = Self { world, bar };
        if let Some(page) = page {
            show.say(&format!("Watch it learn at {page}"));
        }
        show
    }

    /// A line above what moves.
    pub(super) fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => say(line),
        }
    }

    /// Time between two updates.
    pub(super) fn interval(&self) -> Duration {
        if self.bar.is_some() { FRAME } else { PLAIN }
    }

    pub(super) fn update(&mut self, audience: &Audience, sent: u64, elapsed: Duration) {
        let view = self.news(audience);
        match &self.bar {
            Some(bar) => {
                bar.set_position(elapsed.as_millis() as u64);
                bar.set_message(self.live(&view, sent, elapsed));
            }
            None => say(&plain(&view, sent, elapsed)),
        }
    }

    /// Say what is going on now, after the streaming.
    pub(super) fn message(&self, what: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(what.to_owned()),
            None => say(&format!("          {what}")),
        }
    }

    /// The last news; nothing is shown afterwards.
    pub(super) fn finish(&mut self, audience: &Audience) {
        self.news(audience);
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn news(&self, audience: &Audience) -> AudienceView {
        let mut view = audience.view();
        for line in std::mem::take(&mut view.news) {
            self.say(&line);
        }
        view.clone()
    }

    fn live(&self, view: &AudienceView, sent: u64, elapsed: Duration) -> String {
        let seconds = elapsed.as_secs_f64();
        let mut out = format!("{seconds:.0} s · {} rows", grouped(sent));
        if view.rows_per_second > 0.0 {
            out += &format!(" · {} rows/s", grouped(view.rows_per_second.round() as u64));
        }
        let (Some(kernel), Some(accuracy)) = (&view.kernel, &view.accuracy) else {
            return out + "\n  waiting for the first model";
        };
        let refit = selection(view, sent as f64 / seconds);
        out += &format!(
            "\n  model {}      {} states in the dictionary · lambda {}{refit}",
            view.generation.unwrap_or(0),
            view.dictionary,
            view.lambda
        );
        let first = view.before_first_refit.unwrap_or(accuracy.rms);
        out += &format!(
            "\n  RMS error    {:<20} {} against {}",
            bar(accuracy.rms / first.max(accuracy.rms), 20),
            two_digits(accuracy.rms),
            self.world.reference()
        );
        for (i, v) in kernel.variables.iter().enumerate() {
            out += &format!("\n  {:<12} {}", v.name, kernel.row(i, &view.shares, 20));
        }
        out
    }
}

/// Whether a model is being selected, or when one will be at `pace` rows per second.
fn selection(view: &AudienceView, pace: f64) -> String {
    if view.refitting {
        return " · selecting a model …".into();
    }
    let Some(rows) = view.next_refit_at.map(|at| at.saturating_sub(view.offset)) else { return String::new() };
    match (rows as f64 / pace).ceil() {
        seconds if seconds.is_finite() && seconds < 3600.0 => format!(" · next selection in about {seconds:.0} s"),
        _ => String::new(),
    }
}

fn plain(view: &AudienceView, sent: u64, elapsed: Duration) -> String {
    let mut out = format!("{:6.1} s  {:>10} rows", elapsed.as_secs_f64(), grouped(sent));
    if let (Some(kernel), Some(accuracy)) = (&view.kernel, &view.accuracy) {
        let scales: Vec<String> =
            kernel.variables.iter().map(|v| format!("{} {}", v.name, lengthscale(v.lengthscale))).collect();
        out += &format!(
            "  {:>6} rows/s  model {:>2}  dictionary {:>3}  lambda {:<4}  lengthscales {}  RMS error {}",
            grouped(view.rows_per_second.round() as u64),
            view.generation.unwrap_or(0),
            view.dictionary,
            view.lambda,
            scales.join(", "),
            two_digits(accuracy.rms)
        );
        out += &selection(view, sent as f64 / elapsed.as_secs_f64());
    }
    out
}
