//! `criticd value` of the critics of a running daemon.

use super::HeadValues;
use crate::client::Requester;
use crate::commands::Failure;
use crate::commands::answers::table;
use crate::commands::client::{Connection, with_critic};
use crate::commands::given::read_states_as;
use crate::commands::output::{columns, print, print_json};
use crate::snapshot::Evaluation;
use crate::table::{Categories, Columns};
use crate::transition::state_name;
use nalgebra::DMatrix;
use serde_json::{Map, Value as Json, json};
use std::path::Path;

/// Keys of an answer that a model's document has too.
const ANSWERS: [&str; 5] = ["mean", "variance", "return_variance", "known", "extrapolates"];
/// Values that one request asks for, which all fit into one message.
const VALUES_PER_REQUEST: usize = 8192;
/// Heads that one request asks for.
const HEADS_PER_REQUEST: usize = 1024;

/// Evaluate the critics of a daemon (without names, its first one) at the states of a file, and print the answers.
pub(super) fn run(endpoint: &str, path: &Path, said: Columns, critics: &[String], json: bool) -> Result<(), Failure> {
    let connection = Connection::to(endpoint);
    let mut requester = connection.connect()?;
    let hello = requester.ask("hello", json!({}), connection.timeout())?;
    let Some(dim) = hello["state_dim"].as_u64() else {
        return Err(Failure::usage(format!(
            "{endpoint} has no model yet, and its settings do not say what states are"
        )));
    };
    let strings =
        |list: &Json| list.as_array().into_iter().flatten().filter_map(Json::as_str).map(String::from).collect();
    let known: Vec<String> = strings(&hello["critics"]);
    let critics = if critics.is_empty() { &known[..known.len().min(1)] } else { critics };
    let features: Vec<String> = strings(&hello["features"]);
    if critics.len() > 1 && !features.iter().any(|feature| feature == "critics") {
        return Err(Failure::usage(format!("the daemon at {endpoint} answers for one critic at a time")));
    }
    let dim = usize::try_from(dim).unwrap_or(usize::MAX);
    let states = read_states_as(path, &said, dim, "daemon's models")?;
    let mut answers = ask(&mut requester, &connection, critics, &states, dim)?;
    if json {
        if features.iter().any(|feature| feature == "heads") {
            for (critic, answer) in critics.iter().zip(&mut answers) {
                let mut asked =
                    HeadQuestions { requester: &mut requester, connection: &connection, critic: Some(critic) };
                let names = asked.names()?;
                let (heads, learning) = asked.heads(&names, &states, dim)?;
                if !names.is_empty() {
                    answer["heads"] = heads.iter().map(|head| (head.name.clone(), head.document())).collect();
                }
                if !learning.is_empty() {
                    answer["learning"] = Json::Object(learning);
                }
            }
        }
        return print_json(&if critics.len() == 1 { answers[0].clone() } else { by_name(critics, answers) });
    }
    let names = if said.state.is_empty() { (0..dim).map(state_name).collect() } else { said.state };
    let (mut titles, mut rows) = (names.clone(), states.chunks_exact(dim).map(|_| Vec::new()).collect::<Vec<_>>());
    for (i, (critic, answer)) in critics.iter().zip(&answers).enumerate() {
        let (found_titles, found_rows) = table(&names, &states, &evaluation(answer));
        // The states stand before the answer of the first critic alone.
        let skipped = if i == 0 { 0 } else { dim };
        let title = |title: &String| {
            if critics.len() == 1 || title.is_empty() { title.clone() } else { format!("{critic} {title}") }
        };
        titles.extend(found_titles[dim..].iter().map(title));
        rows.iter_mut().zip(&found_rows).for_each(|(row, found)| row.extend_from_slice(&found[skipped..]));
    }
    print(&columns(&titles.iter().map(String::as_str).collect::<Vec<_>>(), &rows))
}

/// Evaluate one head of a critic of a daemon at the states of a file, and print what it says.
pub(super) fn run_head(
    endpoint: &str,
    path: &Path,
    said: Columns,
    critics: &[String],
    head: &str,
    json: bool,
) -> Result<(), Failure> {
    if critics.len() > 1 {
        return Err(Failure::usage("--head is one of a single critic: name one with --critic".to_owned()));
    }
    let connection = Connection::to(endpoint);
    let mut requester = connection.connect()?;
    let hello = requester.ask("hello", json!({}), connection.timeout())?;
    let Some(dim) = hello["state_dim"].as_u64().and_then(|dim| usize::try_from(dim).ok()) else {
        return Err(Failure::usage(format!("{endpoint} has no model yet")));
    };
    let states = read_states_as(path, &said, dim, "daemon's models")?;
    let critic = critics.first().map(String::as_str);
    let mut asked = HeadQuestions { requester: &mut requester, connection: &connection, critic };
    let (mut heads, learning) = asked.heads(&[head.to_owned()], &states, dim)?;
    if let Some(share) = learning.get(head).and_then(Json::as_f64) {
        let message = format!("head {head} has learned {:.0} % of the rows so far; ask again later", 100.0 * share);
        return Err(Failure::new(message));
    }
    let Some(values) = heads.pop() else { return Err(Failure::new(format!("no answer for head {head}"))) };
    let names = if said.state.is_empty() { (0..dim).map(state_name).collect() } else { said.state };
    values.print(&names, &states, &Categories::default(), json)
}

/// Questions about heads of a critic, of the first one without a name.
struct HeadQuestions<'a> {
    requester: &'a mut Requester,
    connection: &'a Connection,
    critic: Option<&'a str>,
}

impl HeadQuestions<'_> {
    fn ask(&mut self, op: &str, fields: Json) -> Result<Json, Failure> {
        Ok(self.requester.ask(op, with_critic(fields, self.critic), self.connection.timeout())?)
    }

    /// Names of all heads.
    fn names(&mut self) -> Result<Vec<String>, Failure> {
        let (mut names, mut from) = (Vec::new(), Some(0));
        while let Some(first) = from {
            let page = self.ask("heads", json!({"from": first}))?;
            let heads = page["heads"].as_array().into_iter().flatten();
            names.extend(heads.filter_map(|head| head["name"].as_str()).map(String::from));
            from = page["next"].as_u64();
        }
        Ok(names)
    }

    /// The answers of these heads at states (n, D), of those that are ready, and the share of the rows that each other has learned.
    fn heads(
        &mut self,
        names: &[String],
        states: &[f64],
        dim: usize,
    ) -> Result<(Vec<HeadValues>, Map<String, Json>), Failure> {
        let (mut answers, mut learning) = (Vec::new(), Map::new());
        for names in names.chunks(HEADS_PER_REQUEST) {
            let mut found: Vec<HeadValues> = Vec::new();
            for part in states.chunks((VALUES_PER_REQUEST / names.len()).max(1) * dim) {
                let rows: Vec<&[f64]> = part.chunks_exact(dim).collect();
                let fields =
                    json!({"states": rows, "variance": true, "returns": true, "heads": names, "arrays": "list"});
                let reply = &mut self.ask("value", fields)?["heads"];
                if let Json::Object(shares) = reply["learning"].take() {
                    learning.extend(shares);
                }
                let ready: Vec<&str> =
                    reply["names"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
                for (c, name) in ready.into_iter().enumerate() {
                    // One row for each state, with a column for each head.
                    let column = |key: &str| -> Option<Vec<f64>> {
                        reply[key].as_array().map(|rows| rows.iter().filter_map(|row| row.get(c)?.as_f64()).collect())
                    };
                    let place = found.iter().position(|head| head.name == name).unwrap_or_else(|| {
                        found.push(HeadValues::of(name));
                        found.len() - 1
                    });
                    found[place].extend(
                        column("mean").unwrap_or_default(),
                        column("variance"),
                        column("return_variance"),
                    );
                }
            }
            answers.append(&mut found);
        }
        // A head that became ready in between lacks states.
        answers.retain(|head| head.mean.len() * dim == states.len());
        Ok((answers, learning))
    }
}

fn by_name(critics: &[String], answers: Vec<Json>) -> Json {
    Json::Object(critics.iter().cloned().zip(answers).collect())
}

/// The answers of the critics, in their order: the keys of a model's document.
fn ask(
    requester: &mut Requester,
    connection: &Connection,
    critics: &[String],
    states: &[f64],
    dim: usize,
) -> Result<Vec<Json>, Failure> {
    let mut answers = vec![Map::new(); critics.len()];
    for part in states.chunks((VALUES_PER_REQUEST / critics.len()).max(1) * dim) {
        let rows: Vec<&[f64]> = part.chunks_exact(dim).collect();
        let mut fields = json!({"states": rows, "variance": true, "returns": true, "known": true, "arrays": "list"});
        match critics {
            [critic] => fields["critic"] = json!(critic),
            _ => fields["critics"] = json!(critics),
        }
        let reply = requester.ask("value", fields, connection.timeout())?;
        for (critic, whole) in critics.iter().zip(&mut answers) {
            let answer = if critics.len() == 1 { &reply } else { &reply["critics"][critic] };
            for key in ANSWERS {
                let Some(values) = answer[key].as_array() else { continue };
                let place = whole.entry(key).or_insert_with(|| json!([]));
                place.as_array_mut().into_iter().for_each(|place| place.extend_from_slice(values));
            }
        }
    }
    Ok(answers.into_iter().map(Json::Object).collect())
}

/// An answer as numbers.
fn evaluation(answer: &Json) -> Evaluation {
    let rows = |key: &str| answer[key].as_array().map(Vec::as_slice);
    let numbers = |value: &Json| match value {
        Json::Array(row) => row.iter().filter_map(Json::as_f64).collect::<Vec<_>>(),
        one => one.as_f64().into_iter().collect(),
    };
    let matrix = |rows: &[Json]| {
        let width = rows.first().map_or(1, |row| numbers(row).len());
        DMatrix::from_row_iterator(rows.len(), width, rows.iter().flat_map(numbers))
    };
    let vector = |rows: &[Json]| rows.iter().filter_map(Json::as_f64).collect();
    Evaluation {
        mean: matrix(rows("mean").unwrap_or_default()),
        variance: rows("variance").map(vector),
        return_variance: rows("return_variance").map(matrix),
        known: rows("known").map(vector),
        extrapolates: rows("extrapolates").map(|flags| flags.iter().map(|flag| flag == &json!(true)).collect()),
    }
}
