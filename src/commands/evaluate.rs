//! `criticd evaluate`.

use super::Failure;
use super::actions::{ActionKind, action_kind};
use super::dictionary::DictionaryOptions;
use super::given::{self, TABLES, TableOptions, plural};
use super::held_out::{self, Like};
use super::label::FitAlone;
use super::output::{Progress, columns, facts, in_file, number, print, print_json};
use super::policy::Policy;
use clap::Parser as _;
use criticd::learner::action::{ActionColumns, ActionSpace, ActionValue, Successor, Trace};
use criticd::learner::batch::Given;
use criticd::learner::judge::{ESS_MIN, Episode, Estimate, Judgement, Refusal, TRACE_GAP_MAX, judge};
use criticd::learner::{Lambda, Settings};
use criticd::math::kernel::Kernel;
use criticd::snapshot::{Ask, Snapshot};
use criticd::table::Table;
use criticd::transition::Rows;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::PathBuf;

/// Inputs of starts at most that the deviation of their mean value is worked out from.
const STARTS_MAX: usize = 400;

/// Judge another policy by the transitions of the one that acted
///
/// What it would earn from the states where episodes began: by importance sampling where the table has the probabilities of
/// both policies, and by a fitted Q (and both together, doubly robust) where --actions says what the actions are.
#[derive(Debug, clap::Args)]
#[command(
    after_help = format!(
        "Examples:\n  criticd evaluate log.csv                                    columns behavior_prob and target_prob\n  criticd evaluate log.csv --actions discrete:3 --policy probs.csv\n  criticd evaluate arm.parquet --actions box --policy actions.csv --json\n\nbehavior_prob may be called action_prob or action_logp (RLlib), pscore or propensity_score (obp) or probability (VW).\nThe file of --policy has one row for each transition of the table: prob_0, prob_1, ... (the policy's probabilities of the\ndiscrete actions in that state), or action, or action_0, ... (the action it takes there).\n\nis, wis and pdis are importance sampling, weighted and per decision; fqe is fitted Q evaluation, dr doubly robust: fqe of\nmodels that have not seen an episode, corrected by what happened in it. ess is the number of episodes that the weighted\nones are worth. No interval is given where ess is below --ess-min, where weights have another mean than 1, or where the\ndictionary of the fitted Q is too coarse; then a sentence says why.\n\n{TABLES}"
    )
)]
pub(crate) struct Evaluate {
    #[command(flatten)]
    table: TableOptions,
    /// What the policy does in the state of each transition: a table beside TABLE, see below [default: the columns
    /// target_prob, next_action and next_action_probs_0.. of TABLE]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The actions there are, discrete:N or box: with it a Q is fitted
    #[arg(long, value_name = "KIND", value_parser = action_kind)]
    actions: Option<ActionKind>,
    /// Discount of transitions that carry none
    #[arg(long, value_name = "G", default_value_t = Settings::default().discount, value_parser = given::discount)]
    discount: f64,
    /// Largest importance ratio of a transition: a lower one makes estimates surer, and biased
    #[arg(long, value_name = "R", default_value = "inf", value_parser = given::limit)]
    rho_max: f64,
    /// Effective episodes below which there is no interval
    #[arg(long, value_name = "N", default_value_t = ESS_MIN, value_parser = given::positive)]
    ess_min: f64,
    /// Groups of episodes for dr: each is judged by a Q that has learned from the others
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = given::at_least_one)]
    folds: usize,
    #[command(flatten)]
    dictionary: DictionaryOptions,
    /// Seed of everything random
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Most processor time, on each thread, that choosing a kernel may take
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = given::positive)]
    budget: f64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Transitions, episodes and the two policies.
struct Judged {
    rows: Rows,
    /// (n,)
    episodes: Vec<u32>,
    columns: ActionColumns,
    policy: Option<Policy>,
}

/// What a fitted Q says.
struct Fitted {
    /// Of the states where episodes began.
    estimate: Estimate,
    trace_gap: f64,
    /// (n,) V at the states and Q at the states and actions, by models that have not seen the episode; none with one episode.
    unseen: Option<(Vec<f64>, Vec<f64>)>,
}

impl Evaluate {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if self.table.dry(self.json)? {
            return Ok(());
        }
        let table = self.table.read()?;
        let names = given::names(&table);
        let judged = self.judged(table)?;
        let progress = Progress::start("judging");
        let fitted = match self.actions {
            Some(kind) => Some(self.fitted(&judged, kind.space(&judged.columns)?, names)?),
            None => None,
        };
        let judgement = self.judgement(&judged, fitted.as_ref())?;
        drop(progress);
        if fitted.is_none() && judgement.is_none() {
            let message = "the table has not both behavior_prob and target_prob, and --actions says not what a Q is to be \
                           fitted for: there is nothing to judge by";
            return Err(in_file(&self.table.table, message));
        }
        if self.json {
            return print_json(&self.document(&judged, judgement.as_ref(), fitted.as_ref()));
        }
        print(&self.text(&judged, judgement.as_ref(), fitted.as_ref()))
    }

    fn judged(&self, table: Table) -> Result<Judged, Failure> {
        let (episodes, mut columns) = (table.episodes().to_vec(), table.action_columns());
        let rows = table.into_rows();
        if rows.rewards_per_row > 1 {
            return Err(in_file(
                &self.table.table,
                "a policy is judged by one reward, the table has several: see --reward",
            ));
        }
        let policy = match &self.policy {
            Some(path) => {
                let policy = Policy::read(path, rows.len(), columns.actions.width, self.actions)?;
                policy.fill(&rows, &mut columns).map_err(|message| in_file(path, message))?;
                Some(policy)
            }
            None => None,
        };
        Ok(Judged { rows, episodes, columns, policy })
    }

    /// By importance sampling, and doubly robust where there is a fitted Q. None where a row lacks a probability.
    fn judgement(&self, judged: &Judged, fitted: Option<&Fitted>) -> Result<Option<Judgement>, Failure> {
        let (rows, columns) = (&judged.rows, &judged.columns);
        let both = |i: usize| columns.behavior_probs.number(i).zip(columns.target_probs.number(i));
        if (0..rows.len()).any(|i| both(i).is_none()) {
            return Ok(None);
        }
        let ratio = |i: usize| both(i).map_or(1.0, |(behavior, target)| (target / behavior).min(self.rho_max));
        let unseen = fitted.and_then(|fitted| fitted.unseen.as_ref());
        let count = held_out::count(&judged.episodes);
        let mut of_episode: Vec<Vec<usize>> = vec![Vec::new(); count];
        judged.episodes.iter().enumerate().for_each(|(i, &episode)| of_episode[episode as usize].push(i));
        of_episode.retain(|places| !places.is_empty());
        let take = |of: &dyn Fn(usize) -> f64| -> Vec<Vec<f64>> {
            of_episode.iter().map(|places| places.iter().map(|&i| of(i)).collect()).collect()
        };
        let (rewards, ratios) = (take(&|i| rows.rewards[i]), take(&ratio));
        let discounts = take(&|i| rows.discount(i, self.discount));
        let models = unseen.map(|(v, q)| (take(&|i| v[i]), take(&|i| q[i])));
        let episodes: Vec<Episode<'_>> = (0..of_episode.len())
            .map(|k| Episode {
                rewards: &rewards[k],
                discounts: &discounts[k],
                ratios: &ratios[k],
                model: models.as_ref().map(|(v, q)| (&v[k][..], &q[k][..])),
            })
            .collect();
        Ok(Some(judge(&episodes, self.ess_min)))
    }

    /// Fit Q of the policy that is judged, on all episodes and on all but each group of them.
    fn fitted(&self, judged: &Judged, space: ActionSpace, names: Option<Vec<String>>) -> Result<Fitted, Failure> {
        let policy = judged.policy.as_ref().ok_or_else(|| {
            Failure::usage(
                "--actions: a fitted Q needs what the policy does in the first state of each episode: --policy",
            )
        })?;
        let successor = if policy.is_stochastic() { Successor::Expected } else { Successor::NextAction };
        let of = ActionValue { space, successor, trace: Trace::Retrace };
        let between = |of: &ActionValue| {
            of.rows(&judged.rows, &judged.columns, given::most(self.rho_max)).map_err(|e| in_file(&self.table.table, e))
        };
        let (acted, learned) = (between(&of.on_policy())?.rows, between(&of)?);
        let like = self.like(&acted, &of, names)?;
        let (whole, trace_gap) = self.fit(&like, &learned.rows)?;
        let starts = starts(&judged.episodes);
        let estimate = start_value(&whole, judged, &of, policy, &starts)?;
        let count = held_out::count(&judged.episodes);
        let unseen = if count < 2 { None } else { Some(self.unseen(judged, &like, &of, policy, &learned, count)?) };
        Ok(Fitted { estimate, trace_gap, unseen })
    }

    /// Kernel and noise by the returns of the policy that acted.
    fn like(&self, acted: &Rows, of: &ActionValue, names: Option<Vec<String>>) -> Result<Like, Failure> {
        let word = |text: String| OsString::from(text);
        let mut words = vec!["fit".into(), self.table.table.clone().into_os_string(), "--out".into(), "unused".into()];
        for (option, value) in [
            ("--seed", self.seed.to_string()),
            ("--budget", self.budget.to_string()),
            ("--dictionary-max", self.dictionary.dictionary_max.to_string()),
            ("--discount", self.discount.to_string()),
        ] {
            words.extend([word(option.into()), word(value)]);
        }
        let fit = FitAlone::try_parse_from(words)?.fit;
        let settings = Settings { action_value: Some(of.on_policy()), ..fit.settings(acted)? };
        let names = super::actions::input_names(names, acted.dim - of.space.width(), &of.space);
        let like = Like::of(&fit.search(acted, settings, names)?.model);
        let settings = Settings {
            action_value: Some(of.clone()),
            lambda: Lambda::Fixed(0.0),
            estimate_scale: false,
            rho_max: given::most(self.rho_max),
            ..like.settings
        };
        Ok(Like { settings, lambda: 0.0, ..like })
    }

    /// Q of `rows` by kernel and noise of `like`, and the trace gap of its dictionary in nats.
    fn fit(&self, like: &Like, rows: &Rows) -> Result<(Snapshot, f64), Failure> {
        let Like { settings, inputs, hyperparameters, lambda } = like;
        let given = Given { settings, rows, first: 0, inputs, hyperparameters, lambda: *lambda };
        let mut model = given.model(self.dictionary.choose(&given)?.dictionary, &|| true)?;
        model.revisit(std::iter::once((rows, 0..rows.len(), 0)));
        let gap = model.solve()?.trace_gap(model.statistics());
        Ok((model.snapshot(true)?, gap))
    }

    /// V and Q (n,) at each row by a model that has learned other episodes.
    fn unseen(
        &self,
        judged: &Judged,
        like: &Like,
        of: &ActionValue,
        policy: &Policy,
        learned: &criticd::learner::action::StateActionRows,
        count: usize,
    ) -> Result<(Vec<f64>, Vec<f64>), Failure> {
        let n = judged.rows.len();
        let folds = self.folds.clamp(2, count);
        let group = held_out::folds(&judged.episodes, folds, self.seed);
        let (mut v, mut q) = (vec![0.0; n], vec![0.0; n]);
        for fold in 0..folds {
            let others = held_out::part(&learned.rows, |k| group[learned.kept[k]] != fold);
            let (model, _) = self.fit(like, &others)?;
            let places: Vec<usize> = (0..n).filter(|&i| group[i] == fold).collect();
            let (values, acted) = values(&model, judged, of, policy, &places)?;
            for (k, &i) in places.iter().enumerate() {
                (v[i], q[i]) = (values[k], acted[k]);
            }
        }
        Ok((v, q))
    }

    /// Estimates by name, each with why it has no interval, if that is so.
    fn estimates(
        &self,
        judgement: Option<&Judgement>,
        fitted: Option<&Fitted>,
    ) -> Vec<(&'static str, Estimate, Vec<Refusal>)> {
        let mut out = Vec::new();
        if let Some(found) = judgement {
            let each = [("is", Some(found.is)), ("wis", Some(found.wis)), ("pdis", Some(found.pdis)), ("dr", found.dr)];
            out.extend(each.into_iter().filter_map(|(name, e)| Some((name, e?, found.refusals.clone()))));
        }
        if let Some(fitted) = fitted {
            let gap = fitted.trace_gap;
            let refused = (gap > TRACE_GAP_MAX).then_some(Refusal::TraceGap { gap });
            out.push(("fqe", fitted.estimate, refused.into_iter().collect()));
        }
        out
    }

    fn document(&self, judged: &Judged, judgement: Option<&Judgement>, fitted: Option<&Fitted>) -> Value {
        let mut estimates = serde_json::Map::new();
        let mut refused = Vec::new();
        for (name, estimate, refusals) in self.estimates(judgement, fitted) {
            let interval = refusals.is_empty().then(|| estimate.interval());
            estimates.insert(
                name.to_owned(),
                json!({"value": estimate.value, "error": estimate.error, "interval": interval}),
            );
            refused.extend(
                refusals.iter().map(ToString::to_string).filter(|said| !refused.contains(said)).collect::<Vec<_>>(),
            );
        }
        let mut out = json!({
            "transitions": judged.rows.len(),
            "episodes": held_out::count(&judged.episodes),
            "discount": self.discount,
            "estimates": estimates,
            "refused": refused,
            "warnings": judgement.map(|found| found.warnings.clone()).unwrap_or_default(),
        });
        if let Some(found) = judgement {
            let support = &found.support;
            out["weights"] = json!({
                "ess": support.ess,
                "ess_earned": support.ess_earned,
                "largest": support.largest,
                "mean": support.mean.value,
                "mean_error": support.mean.error,
                "zero_share": support.zero_share,
                "rho_max": self.rho_max.is_finite().then_some(self.rho_max),
            });
        }
        if let Some(fitted) = fitted {
            out["trace_gap"] = json!(fitted.trace_gap);
        }
        out
    }

    fn text(&self, judged: &Judged, judgement: Option<&Judgement>, fitted: Option<&Fitted>) -> String {
        let episodes = plural(held_out::count(&judged.episodes), "episode");
        let mut lines =
            vec![("judged by".to_owned(), format!("{episodes}, {}", plural(judged.rows.len(), "transition")))];
        if let Some(found) = judgement {
            let support = &found.support;
            let mean = format!("{} +- {}, 1 is expected", number(support.mean.value), number(support.mean.error));
            lines.extend([
                ("worth to this policy".to_owned(), format!("{:.1} episodes (ess)", support.ess)),
                ("of what was earned".to_owned(), format!("{:.1} episodes", support.ess_earned)),
                ("largest weight".to_owned(), number(support.largest)),
                ("mean weight".to_owned(), mean),
                ("without support".to_owned(), format!("{:.1} % of the episodes", 100.0 * support.zero_share)),
            ]);
        } else {
            lines.push((
                "weights".to_owned(),
                "none: not every transition has both behavior_prob and target_prob".into(),
            ));
        }
        let mut rows = Vec::new();
        let mut said: Vec<String> = Vec::new();
        for (name, estimate, refusals) in self.estimates(judgement, fitted) {
            let [low, high] = estimate.interval();
            let interval =
                if refusals.is_empty() { format!("{} to {}", number(low), number(high)) } else { "-".into() };
            rows.push(vec![name.to_owned(), number(estimate.value), number(estimate.error), interval]);
            for sentence in refusals.iter().map(ToString::to_string) {
                if !said.contains(&sentence) {
                    said.push(sentence);
                }
            }
        }
        said.extend(judgement.into_iter().flat_map(|found| found.warnings.clone()));
        let table = columns(&["estimate", "value", "error", "90 % interval"], &rows);
        let said: String = said.into_iter().map(|sentence| format!("{sentence}\n")).collect();
        format!("{}\n{table}{said}", facts(&lines))
    }
}

/// First row of each episode.
fn starts(episodes: &[u32]) -> Vec<usize> {
    let mut seen = vec![false; held_out::count(episodes)];
    let first = |&i: &usize| !std::mem::replace(&mut seen[episodes[i] as usize], true);
    (0..episodes.len()).filter(first).collect()
}

/// V of the policy at the states of rows `places`, and Q at their states and actions.
fn values(
    model: &Snapshot,
    judged: &Judged,
    of: &ActionValue,
    policy: &Policy,
    places: &[usize],
) -> Result<(Vec<f64>, Vec<f64>), Failure> {
    let (mut inputs, mut shares) = (Vec::new(), Vec::new());
    for (k, &i) in places.iter().enumerate() {
        policy.inputs(i, judged.rows.state(i), &of.space, &mut |input, share| {
            inputs.extend_from_slice(input);
            shares.push((k, share));
        })?;
    }
    let mut v = vec![0.0; places.len()];
    let found = model.evaluate(&inputs, Ask::MEAN)?.mean;
    shares.iter().zip(found.column(0).iter()).for_each(|(&(k, share), value)| v[k] += share * value);
    let mut acted = Vec::new();
    for &i in places {
        acted.extend_from_slice(judged.rows.state(i));
        let action = judged.columns.actions.row(i).unwrap_or_default();
        of.space.append(action, &mut acted).map_err(Failure::new)?;
    }
    let q = model.evaluate(&acted, Ask::MEAN)?.mean.column(0).iter().copied().collect();
    Ok((v, q))
}

/// The mean of V over the rows `starts`. Its error has two parts: how V varies between starts, and what the rows leave open of
/// the mean itself:
/// ```text
/// Var = s^2 / n + sum w_i w_j k(z_i, z_j) - k' C k        k = sum w_i k_m(z_i), over inputs z_i of weight w_i
/// ```
fn start_value(
    model: &Snapshot,
    judged: &Judged,
    of: &ActionValue,
    policy: &Policy,
    starts: &[usize],
) -> Result<Estimate, Failure> {
    let (v, _) = values(model, judged, of, policy, starts)?;
    let n = v.len() as f64;
    let value = v.iter().sum::<f64>() / n;
    let between = v.iter().map(|v| (v - value) * (v - value)).sum::<f64>() / (n - 1.0).max(1.0) / n;
    let some: Vec<usize> = starts.iter().copied().step_by(starts.len().div_ceil(STARTS_MAX / 4)).collect();
    let (mut inputs, mut shares) = (Vec::new(), Vec::new());
    for &i in &some {
        policy.inputs(i, judged.rows.state(i), &of.space, &mut |input, share| {
            inputs.extend_from_slice(input);
            shares.push(share / some.len() as f64);
        })?;
    }
    let open = variance_of_mean(model, &inputs, &shares);
    Ok(Estimate { value, error: (between + open).sqrt() })
}

/// Variance of sum shares_i V(z_i) for inputs z (k, D).
fn variance_of_mean(model: &Snapshot, inputs: &[f64], shares: &[f64]) -> f64 {
    let kernel: &Kernel = &model.hyperparameters.kernel;
    let dim = model.dim();
    let width = kernel.projected_dim(dim);
    let points = kernel.project(dim, &model.inputs.normalise(inputs));
    let basis = kernel.project(dim, model.dictionary.transpose().as_slice());
    let weighted = |at: &[f64]| -> f64 {
        points.chunks_exact(width).zip(shares).map(|(z, share)| share * kernel.eval(z, at)).sum()
    };
    let prior: f64 = points.chunks_exact(width).zip(shares).map(|(z, share)| share * weighted(z)).sum();
    let k = nalgebra::DVector::from_iterator(model.dictionary.nrows(), basis.chunks_exact(width).map(weighted));
    let learned = model.variance.as_ref().map_or(0.0, |c| k.dot(&(c * &k)));
    (prior - learned).max(0.0)
}
