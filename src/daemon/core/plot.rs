//! `plot.<critic>`: a few numbers of the newest row, as flat JSON, for programs that draw curves while the daemon runs.

use super::ports::Now;
use crate::config::Config;
use crate::learner::Settings;
use crate::learner::window::Window;
use crate::snapshot::{Ask, Evaluation, Evaluator, Scratch};
use crate::transition::Rows;
use crate::transport::Publication;
use serde_json::{Map, Value};

/// When each critic's numbers were published, and memory to compute them in.
#[derive(Debug, Default)]
pub(super) struct Plots {
    /// Uptime of the last publication of each critic.
    at: Vec<Option<f64>>,
    scratch: Scratch,
    found: Evaluation,
}

impl Plots {
    /// The publication of critic `index`, if the settings want it and the last one is long enough ago. `window` ends with the
    /// newest row, which the model has learned.
    pub(super) fn publish(
        &mut self,
        index: usize,
        model: &Evaluator,
        window: &Window,
        config: &Config,
        now: Now,
    ) -> Option<Publication> {
        let interval = config.plot_interval_ms? as f64 / 1000.0;
        self.at.resize(self.at.len().max(index + 1), None);
        // Rows of the window have no actions.
        if model.snapshot().actions.is_some()
            || window.is_empty()
            || self.at[index].is_some_and(|at| now.uptime - at < interval)
        {
            return None;
        }
        let (rows, range, _) = window.since(window.end() - 1).last()?;
        let (row, settings) = (range.end - 1, &config.critics[index]);
        let states = [rows.state(row), rows.next_state(row)].concat();
        // A row that the model cannot evaluate leaves no point on the curve.
        model.evaluate_into(&states, Ask::ALL, &mut self.scratch, &mut self.found).ok()?;
        self.at[index] = Some(now.uptime);
        let mut curves = Curves::new(&settings.name, now.unix);
        curves.enter_row(rows, row, config.state_names.as_deref());
        curves.enter_values(&self.found, rows, row, settings);
        let snapshot = model.snapshot();
        curves.put("offset", snapshot.offset as f64);
        curves.put("generation", snapshot.generation as f64);
        curves.put("dictionary", snapshot.dictionary.nrows() as f64);
        let payload = serde_json::to_vec(&curves.numbers).expect("numbers can be written");
        Some(Publication { topic: format!("plot.{}", settings.name), payload: payload.into() })
    }
}

/// Numbers by name; all names but `timestamp` begin with the critic's, since a plotting program puts all topics together.
struct Curves<'a> {
    critic: &'a str,
    numbers: Map<String, Value>,
}

impl<'a> Curves<'a> {
    fn new(critic: &'a str, time: f64) -> Self {
        Self { critic, numbers: Map::from_iter([("timestamp".to_owned(), Value::from(time))]) }
    }

    /// A number; one that is not finite is left out.
    fn put(&mut self, name: &str, number: f64) {
        if number.is_finite() {
            self.numbers.insert(format!("{}/{name}", self.critic), Value::from(number));
        }
    }

    /// The newest state and its rewards.
    fn enter_row(&mut self, rows: &Rows, row: usize, names: Option<&[String]>) {
        for (i, &number) in rows.next_state(row).iter().enumerate() {
            match names.and_then(|names| names.get(i)) {
                Some(name) => self.put(&format!("state/{name}"), number),
                None => self.put(&format!("state/{i}"), number),
            }
        }
    }

    /// What the model says of the newest state, the second of `found`, and the temporal-difference error of the row,
    /// r + gamma V(x') - V(x), where gamma is 0 if the row terminated.
    fn enter_values(&mut self, found: &Evaluation, rows: &Rows, row: usize, settings: &Settings) {
        let discount = if rows.terminated[row] { 0.0 } else { rows.discount(row, settings.discount) };
        let each =
            |what: &str, h: usize| if settings.rewards.len() == 1 { what.to_owned() } else { format!("{what}/{h}") };
        for (h, &column) in settings.rewards.iter().enumerate() {
            let reward = rows.reward(row)[column];
            self.put(&each("reward", h), reward);
            self.put(&each("value", h), found.mean[(1, h)]);
            self.put(&each("td_error", h), reward + discount * found.mean[(1, h)] - found.mean[(0, h)]);
            if let Some(variance) = &found.return_variance {
                self.put(&each("return_sd", h), variance[(1, h)].sqrt());
            }
        }
        if let Some(variance) = &found.variance {
            self.put("value_sd", variance[1].sqrt());
        }
        if let Some(known) = &found.known {
            self.put("known", known[1]);
        }
    }
}
