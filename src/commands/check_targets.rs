//! `criticd check-targets`.

use super::Failure;
use super::given::{self, TableOptions};
use super::output::{facts, in_file, number, print, print_json};
use crate::hindsight::targets::{Behind, Checked, KindEnds, check};
use crate::learner::Settings;
use crate::table::Table;
use serde_json::{Value, json};

/// Check somebody's returns or advantages: which rows bootstrap wrongly where episodes end, and by how much
///
/// Behind a row that terminates nothing follows. Where an episode is cut, by a time limit or the end of a rollout, the value of the next
/// state follows. Many programs mix the two up, and every row before the end learns from it. The command finds the lambda of the
/// targets, the rows whose target does not follow from the rewards, and what stands behind each kind of end. It fails if
/// something is wrong.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd check-targets rollout.parquet --state obs --returns returns --values values --discount 0.99\n  criticd check-targets ppo.csv --state x,v --reward r --episode episode --done-column done --done truncated \\\n      --advantages advantages --values values\n\nWithout --values the targets must be whole returns (lambda 1), and what stands behind cuts is judged by its size.\nAdvantages must not be normalised yet."
)]
pub(crate) struct CheckTargets {
    #[command(flatten)]
    table: TableOptions,
    /// The returns, or value targets: a column, or a sum of columns
    #[arg(
        long,
        value_name = "SUM",
        allow_hyphen_values = true,
        required_unless_present = "advantages",
        conflicts_with = "advantages"
    )]
    returns: Option<String>,
    /// The advantages; --values names what they are over
    #[arg(long, value_name = "SUM", allow_hyphen_values = true, requires = "values")]
    advantages: Option<String>,
    /// The values of the rows' states that the targets were made with
    #[arg(long, value_name = "SUM", allow_hyphen_values = true)]
    values: Option<String>,
    /// Discount of transitions without one of their own
    #[arg(long, value_name = "G", default_value_t = Settings::default().discount, value_parser = given::discount)]
    discount: f64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl CheckTargets {
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        let file = self.table.table.clone();
        let targets = self.returns.iter().chain(&self.advantages).chain(&self.values).map(String::as_str);
        self.table.beside_reward(&targets.map(str::to_owned).collect::<Vec<_>>())?;
        if self.table.dry(self.json)? {
            return Ok(());
        }
        let table = self.table.read()?;
        let rows = table.rows();
        let column = |h: usize| (0..rows.len()).map(|i| rows.reward(i)[h]).collect::<Vec<f64>>();
        let values = self.values.as_ref().map(|_| column(2));
        let mut targets = column(1);
        if self.advantages.is_some() {
            targets.iter_mut().zip(values.iter().flatten()).for_each(|(target, value)| *target += value);
        }
        let Some(found) = check(rows, &targets, values.as_deref(), self.discount) else {
            return Err(in_file(&file, "the targets of all rows are the same: nothing can be checked"));
        };
        if self.json {
            print_json(&document(&found, &table))?
        } else {
            print(&self.text(&found, &table))?
        }
        let wrong =
            found.broken > 0 || [&found.terminated, &found.cut].into_iter().flatten().any(|ends| ends.off.is_some());
        if wrong { Err(in_file(&file, "targets are wrong, as said above")) } else { Ok(()) }
    }

    fn text(&self, found: &Checked, table: &Table) -> String {
        let of = if self.advantages.is_some() { "advantages" } else { "returns" };
        let led = match found.broken {
            _ if found.inside == 0 => "no row has a successor in its episode".to_owned(),
            0 => format!("all {} rows inside episodes follow", found.inside),
            broken => {
                format!("{broken} of {} rows inside episodes do not follow{}", found.inside, self.why(found, table))
            }
        };
        let kind = format!("{of} of discount {}, lambda {}: {led}", self.discount, number(found.lambda));
        let mut lines = vec![("targets".to_owned(), kind)];
        // Of targets that most rows do not follow nothing can be said at ends.
        let kinds = [("terminated", &found.terminated, true), ("cut", &found.cut, false)];
        for (what, ends, terminated) in kinds.into_iter().filter(|_| found.broken * 2 <= found.inside) {
            let said = ends.as_ref().map_or_else(|| "no episode ends so".to_owned(), |ends| said(ends, terminated));
            lines.push((what.to_owned(), said));
        }
        facts(&lines)
    }

    /// Where targets do not follow, and what the reason may be.
    fn why(&self, found: &Checked, table: &Table) -> String {
        let Some((row, error)) = found.worst else { return String::new() };
        let place = format!("; the largest error is {} at line or row {}", number(error), table.place(row));
        let guess = match () {
            () if found.broken * 2 < found.inside => "",
            () if self.values.is_none() => {
                ". If they are lambda-returns, name the values that they were made with: --values"
            }
            () if self.advantages.is_some() => ". If they were normalised, take those from before",
            () => ". Are --discount and the reward those that they were made with?",
        };
        place + guess
    }
}

/// What stands behind ends, whether that is right, and who does it so.
fn said(ends: &KindEnds, terminated: bool) -> String {
    let KindEnds { count, behind, alike, mean, off, reach } = ends;
    let what = match (behind, terminated) {
        (Behind::Nothing, true) => "nothing follows, which is right",
        (Behind::Nothing, false) => {
            "nothing follows, as if they terminated: one flag `done` stands for both, as in CleanRL's PPO. Keep terminated and \
             truncated apart, and add the value of the next state"
        }
        (Behind::NextTarget, _) => {
            "the target of the next episode follows: nothing ends there. Is the flag a row too late, or not used, as by skrl without \
             time_limit_bootstrap?"
        }
        (Behind::NextValue, _) => {
            "the value of the next episode's first state follows: the next state is that behind the reset. Take the final observation \
             (Gymnasium: info[\"final_obs\"])"
        }
        (Behind::OwnValue, true) => "the value of the row's own state follows; nothing should",
        (Behind::OwnValue, false) => {
            "the value of the row's own state follows, in the place of the next one's, as rsl_rl does with time_outs. It is off by what \
             one step changes"
        }
        (Behind::InReward, _) => {
            "nothing follows, and the rewards hold the discounted value already, as Stable-Baselines3 stores them: right. rsl_rl \
             stores rewards that hold the value of the row's own state: to see that, give the rewards of the environment"
        }
        (Behind::Other, true) => "something follows; nothing should. Success is bootstrapped",
        (Behind::Other, false) => {
            "something follows that may be the value of the next state: right, as far as can be seen"
        }
    };
    let amount = match off {
        Some(off) => format!(
            ". The targets of these rows are off by {}, and the targets of up to {reach} rows before each of them by more than a twentieth of \
             their deviation",
            number(*off)
        ),
        None => String::new(),
    };
    let behind = if *mean == 0.0 { String::new() } else { format!(" (mean {})", number(*mean)) };
    format!("{count} ends; of {alike}: {what}{behind}{amount}")
}

fn document(found: &Checked, table: &Table) -> Value {
    let name = |behind: Behind| match behind {
        Behind::Nothing => "nothing",
        Behind::NextTarget => "next_target",
        Behind::NextValue => "next_value",
        Behind::OwnValue => "own_value",
        Behind::InReward => "in_reward",
        Behind::Other => "other",
    };
    let ends = |ends: &Option<KindEnds>| {
        ends.as_ref().map(|ends| {
            json!({
                "count": ends.count,
                "behind": name(ends.behind),
                "alike": ends.alike,
                "mean": ends.mean,
                "right": ends.off.is_none(),
                "off": ends.off,
                "reach": ends.reach,
            })
        })
    };
    json!({
        "rows": table.rows().len(),
        "inside": found.inside,
        "broken": found.broken,
        "worst": found.worst.map(|(row, error)| json!({"place": table.place(row), "error": error})),
        "lambda": found.lambda,
        "spread": found.spread,
        "terminated": ends(&found.terminated),
        "cut": ends(&found.cut),
    })
}
