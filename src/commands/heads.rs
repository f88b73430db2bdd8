//! `criticd heads`: predictions that a running daemon learns besides its values.

use super::Failure;
use super::client::{Connection, with_critic};
use super::label_file;
use super::output::{columns, number, print, print_json};
use crate::wire::head_list_from_str;
use clap::Subcommand;
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// Keys of a listed head that are no part of its description: where it comes from, whether it has the second kernel or no answer, how
/// far it has learned and from which row on, and how well its returns were predicted.
const FOUND: [&str; 10] =
    ["added", "apart", "unsolved", "learning", "first_row", "pairs", "coverage", "bias", "unexplained", "factor"];

/// List, add and remove the heads of a running daemon: predictions that it learns besides its values
///
/// A head predicts the discounted sum of a signal of the stream: a reward, a number of the state or the action, a constant, or the
/// event that a variable crosses a value. Discount 0 predicts the signal of the row itself, which is regression. All heads of a
/// critic learn its rows, under its kernel and dictionary or, where a refit finds that better, under a second kernel. A head that is
/// added now learns the rows that the critic's model has learned, as if it had always been there; until then answers say which share
/// of the rows it has learned.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd heads list\n  criticd heads add heads.json\n  criticd heads add --critic main heads.toml\n  criticd heads remove contact energy\n  criticd value tcp://127.0.0.1:5751 states.csv --head contact    ask one\n\nFILE holds a JSON list, or TOML with [[heads]]. Energy over the next 5 s, and whether variable 3 rises above 0.5 within 2 s or so:\n\n  [[heads]]\n  name = \"energy\"\n  cumulant = { kind = \"reward\", index = 1 }\n  timescale = 5.0\n\n  [[heads]]\n  name = \"contact\"\n  cumulant = { kind = \"event\", index = 3, above = 0.5 }\n  timescale = 2.0\n\nA cumulant is of kind reward, state, next_state or action (with index), constant (with value), event (with index and above or\nbelow), or expression (with text, such as \"reward - 0.1*action[0]^2\"), or column (with file and\ncolumn): the values that a table has for rows by stream and seq. Rows without one do not count.\nA head has a discount per row (0 to 1) or a timescale in seconds, for which rows need times; without either it has the\ncritic's discount. terminal_reward, continuation, weight, noise_variance and signal are optional: docs/heads.md.\n\nHeads of the configuration (`heads` under [[critic]]) are there from the start, and can only be removed there."
)]
pub(crate) struct Heads {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the heads of a critic
    List(ListHeads),
    /// Add the heads of a file
    Add(Add),
    /// Remove heads that were added
    Remove(Remove),
}

#[derive(Debug, clap::Args)]
struct ListHeads {
    #[command(flatten)]
    connection: Connection,
    /// Which critic [default: the first]
    #[arg(long, value_name = "NAME")]
    critic: Option<String>,
    /// Only heads with this in their names
    #[arg(value_name = "TEXT")]
    containing: Option<String>,
    /// Print one JSON document, which `heads add` reads
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Add {
    #[command(flatten)]
    connection: Connection,
    /// Which critic [default: the first]
    #[arg(long, value_name = "NAME")]
    critic: Option<String>,
    /// JSON or TOML, see `criticd heads --help`
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Remove {
    #[command(flatten)]
    connection: Connection,
    /// Which critic [default: the first]
    #[arg(long, value_name = "NAME")]
    critic: Option<String>,
    /// Their names
    #[arg(value_name = "HEAD", required = true)]
    names: Vec<String>,
}

impl Heads {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.action {
            Action::List(list) => list.run(),
            Action::Add(add) => add.run(),
            Action::Remove(remove) => remove.run(),
        }
    }
}

impl ListHeads {
    fn run(self) -> Result<(), Failure> {
        let mut requester = self.connection.connect()?;
        let (mut heads, mut from) = (Vec::new(), Some(0));
        while let Some(first) = from {
            let fields = with_critic(json!({"from": first}), self.critic.as_deref());
            let mut reply = requester.ask("heads", fields, self.connection.timeout())?;
            if let Value::Array(page) = reply["heads"].take() {
                heads.extend(page);
            }
            from = reply["next"].as_u64();
        }
        let name = |head: &Value| head["name"].as_str().unwrap_or_default().to_owned();
        heads.retain(|head| self.containing.as_ref().is_none_or(|text| name(head).contains(text.as_str())));
        if self.json {
            // The list alone is a file of heads; what was found of them stands beside it.
            let mut found = Map::new();
            for head in heads.iter_mut().filter_map(Value::as_object_mut) {
                let of_head: Map<String, Value> =
                    FOUND.iter().filter_map(|&key| Some((key.to_owned(), head.remove(key)?))).collect();
                found.insert(head["name"].as_str().unwrap_or_default().to_owned(), Value::Object(of_head));
            }
            return print_json(&json!({"heads": heads, "found": found}));
        }
        if heads.is_empty() {
            return print("no heads\n");
        }
        let rows: Vec<Vec<String>> = heads.iter().map(row).collect();
        print(&columns(
            &[
                "head",
                "cumulant",
                "looks ahead",
                "origin",
                "from row",
                "kernel",
                "coverage",
                "bias",
                "unexplained",
                "factor",
                "",
            ],
            &rows,
        ))
    }
}

/// One head as a row of the table.
fn row(head: &Value) -> Vec<String> {
    let cumulant = &head["cumulant"];
    let index = cumulant["index"].as_u64().map(|index| format!(" {index}")).unwrap_or_default();
    let crossed = |key: &str| cumulant[key].as_f64().map(|value| format!(" {key} {}", number(value)));
    let crossed = crossed("above").or_else(|| crossed("below")).unwrap_or_default();
    let value = cumulant["value"].as_f64().map(|value| format!(" {}", number(value))).unwrap_or_default();
    let text = cumulant["text"].as_str().or_else(|| cumulant["name"].as_str());
    let text = text.map(|text| format!(" {text}")).unwrap_or_default();
    let ahead = match (head["timescale"].as_f64(), head["discount"].as_f64()) {
        (Some(seconds), _) => format!("{} s", number(seconds)),
        (None, discount) => format!("discount {}", number(discount.unwrap_or(1.0))),
    };
    let place = if head["added"] == json!(true) { "added" } else { "configuration" };
    let figure = |key: &str| head[key].as_f64().map(|value| format!("{value:.2}")).unwrap_or_default();
    let state = head["learning"].as_f64().map(|share| format!("learning, {:.0} %", 100.0 * share));
    let unsolved = (head["unsolved"] == json!(true)).then(|| "without an answer".to_owned());
    vec![
        head["name"].as_str().unwrap_or_default().to_owned(),
        format!("{}{index}{crossed}{value}{text}", cumulant["kind"].as_str().unwrap_or_default()),
        ahead,
        place.to_owned(),
        head["first_row"].as_u64().map(|row| row.to_string()).unwrap_or_default(),
        if head["apart"] == json!(true) { "2" } else { "1" }.to_owned(),
        figure("coverage"),
        head["bias"].as_f64().map(number).unwrap_or_default(),
        figure("unexplained"),
        figure("factor"),
        state.or(unsolved).unwrap_or_default(),
    ]
}

impl Add {
    fn run(self) -> Result<(), Failure> {
        let path = &self.file;
        let fault = |e: &dyn std::fmt::Display| Failure::new(format!("{}: {e}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| fault(&e))?;
        let list = head_list_from_str(&text).map_err(|e| fault(&e))?;
        let Value::Array(mut list) = list else { return Err(fault(&"heads: not a list")) };
        let count = list.len();
        if count == 0 {
            return Err(fault(&"it holds no heads"));
        }
        label_file::send(&mut list, path, &self.connection, self.critic.as_deref())?;
        let fields = with_critic(json!({"add": list}), self.critic.as_deref());
        let reply = label_file::ask(&mut self.connection.connect()?, &fields, self.connection.timeout())?;
        let heads = if count == 1 { "1 head".to_owned() } else { format!("{count} heads") };
        print(&format!("added {heads} at row {}; `criticd heads list` says how far they are\n", reply["offset"]))
    }
}

impl Remove {
    fn run(self) -> Result<(), Failure> {
        let fields = with_critic(json!({"remove": self.names}), self.critic.as_deref());
        let reply = self.connection.ask("change_heads", fields)?;
        print(&format!("removed at row {}\n", reply["offset"]))
    }
}
