//! `plot.<critic>`: a few numbers of the newest row, as flat JSON, for programs that draw curves while the daemon runs.

use super::ports::Now;
use crate::config::Config;
use crate::learner::Settings;
use crate::learner::window::Window;
use crate::snapshot::{Ask, Evaluation, EvaluationScratch, Evaluator};
use crate::transition::Rows;
use crate::transport::Publication;
use serde_json::{Map, Value};

/// When each critic's numbers were published, and memory to compute them in.
#[derive(Debug, Default)]
pub(super) struct Plots {
    /// Of each critic.
    critics: Vec<Plotted>,
    scratch: EvaluationScratch,
    found: Evaluation,
}

/// What has been published of a critic.
#[derive(Clone, Debug, Default)]
struct Plotted {
    /// Uptime of the last publication.
    at: Option<f64>,
    /// A newer row came too soon after it.
    owed: bool,
}

impl Plots {
    /// Whether the newest row of critic `index` came too soon after a publication, and may be published now.
    pub(super) fn is_owed(&self, index: usize, config: &Config, now: Now) -> bool {
        self.critics.get(index).is_some_and(|critic| critic.owed && critic.may(config, now).unwrap_or(false))
    }

    /// The publication of critic `index`, if the settings want it and the last one is long enough ago; if it is not, the critic
    /// is owed one. `window` ends with the newest row, which the model has learned.
    pub(super) fn publish(
        &mut self,
        index: usize,
        model: &Evaluator,
        window: &Window,
        config: &Config,
        now: Now,
    ) -> Option<Publication> {
        self.critics.resize(self.critics.len().max(index + 1), Plotted::default());
        let may = self.critics[index].may(config, now)?;
        // Rows of the window have no actions.
        if model.snapshot().actions.is_some() || window.is_empty() {
            return None;
        }
        self.critics[index].owed = !may;
        if !may {
            return None;
        }
        let (rows, range, _) = window.since(window.end() - 1).last()?;
        let (row, settings) = (range.end - 1, &config.critics[index]);
        let states = [rows.state(row), rows.next_state(row)].concat();
        // A row that the model cannot evaluate leaves no point on the curve.
        model.evaluate_into(&states, Ask::ALL, &mut self.scratch, &mut self.found).ok()?;
        self.critics[index].at = Some(now.uptime);
        let mut curves = Curves::new(&settings.name, now.unix);
        curves.enter_row(rows, row, model.snapshot().inputs.names.as_deref());
        curves.enter_values(&self.found, rows, row, settings);
        let snapshot = model.snapshot();
        curves.put("offset", snapshot.offset as f64);
        curves.put("generation", snapshot.generation as f64);
        curves.put("dictionary", snapshot.dictionary.nrows() as f64);
        let payload = serde_json::to_vec(&curves.numbers).expect("numbers can be written");
        Some(Publication { topic: format!("plot.{}", settings.name), payload: payload.into() })
    }
}

impl Plotted {
    /// Whether the last publication is long enough ago; none if the settings want none.
    fn may(&self, config: &Config, now: Now) -> Option<bool> {
        let interval = config.plot_interval_ms? as f64 / 1000.0;
        Some(self.at.is_none_or(|at| now.uptime - at >= interval))
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
        let discount = rows.follows(row, settings.discount);
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

#[cfg(test)]
mod tests {
    use super::super::{Core, Now, Output};
    use crate::config::Config;
    use crate::wire;
    use criticd_sim::{self as sim, Step, pendulum::Pendulum};
    use serde_json::Value;
    use std::sync::Arc;

    #[test]
    fn the_newest_row_is_plotted_when_the_interval_is_over_although_none_follows() {
        let config = Config::from_toml("plot_interval_ms = 200\n[[critic]]\nname = \"main\"\n").unwrap();
        let mut core = Core::new(Arc::new(config));
        let mut pendulum = Pendulum::new(1, 0.3);
        let mut learn = |core: &mut Core, rows: usize, uptime: f64| {
            let now = Now { uptime, unix: 1e9 + uptime };
            let steps: Vec<Step> = (0..rows).map(|_| pendulum.step()).collect();
            sim::batches("p", "", &steps).iter().for_each(|batch| core.ingest(&wire::encode_ingest(batch), now));
            core.step(now);
            core.refresh(now, &|| now);
            plots(core, now)
        };
        let later = |core: &mut Core, uptime: f64| {
            let now = Now { uptime, unix: 1e9 + uptime };
            core.publish_owed_plots(now);
            plots(core, now)
        };
        let core = &mut core;
        assert_eq!(learn(core, 100, 1.0), [100]);
        assert_eq!(later(core, 1.3), [0; 0], "the newest row has been plotted");
        assert_eq!(learn(core, 20, 1.31), [120]);
        assert_eq!(learn(core, 20, 1.32), [0; 0], "too soon");
        assert_eq!(later(core, 1.5), [0; 0], "too soon still");
        assert_eq!(later(core, 1.52), [140]);
        assert_eq!(later(core, 1.8), [0; 0], "once");
        // Where rows follow their refresh plots them.
        assert_eq!((learn(core, 20, 1.6), learn(core, 20, 1.73)), (vec![], vec![180]));
        assert_eq!(later(core, 2.0), [0; 0]);
    }

    /// Offsets of the plots among the outputs, which have the time of now.
    fn plots(core: &mut Core, now: Now) -> Vec<u64> {
        let offset = |output| match output {
            Output::Publish(publication) if publication.topic == "plot.main" => {
                let numbers: Value = serde_json::from_slice(&publication.payload).unwrap();
                assert_eq!(numbers["timestamp"].as_f64(), Some(now.unix));
                numbers["main/offset"].as_f64().map(|offset| offset as u64)
            }
            _ => None,
        };
        core.take_outputs().filter_map(offset).collect()
    }
}
