//! Reference cases of tests/golden-remove-merge, and what the learner makes of them: `answer` reads what a case gives, and never what it
//! expects.

use crate::golden_heads::half_life;
use crate::{TESTS, numbers, with_kernel};
use criticd_learner::math::dense::Matrix;
use criticd_learner::math::statistics::{BootstrapTerms, Running, Statistics};
use criticd_learner::merge::{Coordinator, Message, Version};
use criticd_learner::model::{Model, Sums};
use criticd_learner::removal::{Offsets, Placed, RowPlace, Selector, Touched, resolve};
use criticd_learner::snapshot::Ask;
use criticd_learner::transition::Rows;
use criticd_learner::{Lambda, Settings, VarianceKind};
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// The cases that are here.
pub const CASES: [&str; 6] = ["session_21", "offsets_22", "forgetting_23", "heads_24", "merge_25", "messages_26"];

pub fn read(name: &str) -> Value {
    let path = format!("{TESTS}/golden-remove-merge/{name}.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The items of a list; none of what is not there.
fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}

fn name(head: &Value) -> String {
    text(&head["name"])
}

/// The rows of a case, with the names of their streams by number.
pub struct CaseRows {
    pub placed: Placed,
    pub names: Vec<String>,
}

pub fn stream(case: &Value) -> CaseRows {
    let all = items(&case["rows"]);
    let width = |key: &str| all.first().map_or(1, |row| numbers(&row[key]).len());
    let mut rows = Rows::new(width("x"), width("reward"));
    let (mut names, mut offsets) = (Vec::new(), Vec::new());
    let mut sessions = HashMap::new();
    let flag = |row: &Value, key: &str| row[key].as_bool().unwrap_or(false);
    for row in all {
        let stream = text(&row["stream"]);
        let number = names.iter().position(|name| *name == stream).unwrap_or_else(|| {
            names.push(stream);
            names.len() - 1
        });
        let session = text(&row["session"]);
        let another = sessions.insert(number, session.clone()).is_some_and(|before| before != session);
        rows.states.extend(numbers(&row["x"]));
        rows.next_states.extend(numbers(&row["x_next"]));
        rows.rewards.extend(numbers(&row["reward"]));
        rows.discounts.push(f64::NAN);
        rows.ratios.push(match (row["target_prob"].as_f64(), row["behavior_prob"].as_f64()) {
            (Some(target), Some(behavior)) => target / behavior,
            _ => 1.0,
        });
        rows.streams.push(number as u32);
        rows.terminated.push(flag(row, "terminated"));
        rows.truncated.push(flag(row, "truncated"));
        rows.starts_chain.push(flag(row, "starts_chain") || another);
        offsets.push(row["offset"].as_u64().unwrap());
    }
    CaseRows { placed: Placed { rows, offsets }, names }
}

/// One range `[from, to]` or several.
fn ranges(value: &Value) -> Vec<[&Value; 2]> {
    match items(value) {
        [] => Vec::new(),
        [from, to] if !from.is_array() => vec![[from, to]],
        several => several.iter().map(|range| [&range[0], &range[1]]).collect(),
    }
}

/// The selectors of a case.
pub fn selectors(case: &Value) -> Vec<Selector> {
    let remove = &case["remove"];
    let offsets = |[first, last]: [&Value; 2]| first.as_u64().unwrap()..last.as_u64().unwrap() + 1;
    let times = |[from, to]: [&Value; 2]| from.as_f64().unwrap()..to.as_f64().unwrap();
    let streams = items(&remove["streams"]).iter().map(|name| Selector::Stream(text(name)));
    let session = |of: &Value| Selector::Session { stream: text(&of[0]), session: text(&of[1]) };
    streams
        .chain(items(&remove["sessions"]).iter().map(session))
        .chain(ranges(&remove["offsets"]).into_iter().map(|range| Selector::Offsets(offsets(range))))
        .chain(ranges(&remove["time"]).into_iter().map(|range| Selector::Times(times(range))))
        .collect()
}

/// Offsets of the rows that the case removes.
pub fn removed(case: &Value) -> Offsets {
    let names: Vec<[String; 2]> =
        items(&case["rows"]).iter().map(|row| [text(&row["stream"]), text(&row["session"])]).collect();
    let places = items(&case["rows"]).iter().zip(&names).map(|(row, [stream, session])| RowPlace {
        offset: row["offset"].as_u64().unwrap(),
        stream,
        session,
        time: row["time"].as_f64(),
    });
    resolve(&selectors(case), places).offsets
}

/// A model of one head of the case that has learned nothing.
pub fn empty(case: &Value, head: &Value) -> Model {
    let settings = Settings {
        rewards: vec![head["reward"].as_u64().unwrap_or(0) as usize],
        discount: head["discount"].as_f64().unwrap(),
        lambda: Lambda::Fixed(case["lambda"].as_f64().unwrap()),
        rho_max: case["rho_max"].as_f64(),
        forgetting: half_life(case),
        variance: VarianceKind::Rows,
        estimate_scale: false,
        ..Settings::default()
    };
    let mut model = with_kernel(case, settings);
    model.keep_targets();
    model
}

pub fn learn(model: &mut Model, of: &Placed) {
    of.pieces().for_each(|(rows, range, offset)| model.learn(rows, range, offset));
    model.refresh();
}

fn rows_of(matrix: &Matrix, scale: f64) -> Value {
    let row = |i: usize| (0..matrix.cols()).map(|j| matrix.at(i, j) / scale).collect::<Vec<f64>>();
    json!((0..matrix.rows()).map(row).collect::<Vec<_>>())
}

/// A symmetric matrix whose lower triangle is known.
fn whole(lower: &Matrix, scale: f64) -> Value {
    let mut matrix = lower.clone();
    matrix.mirror_lower();
    rows_of(&matrix, scale)
}

fn scaled(numbers: &[f64], scale: f64) -> Value {
    json!(numbers.iter().map(|number| number / scale).collect::<Vec<f64>>())
}

/// V at the query (n,).
pub fn mean(case: &Value, model: &Model) -> Vec<f64> {
    let found = model.snapshot(false).unwrap().evaluate(&numbers(&case["query"]), Ask::default()).unwrap();
    found.mean.as_slice().to_vec()
}

/// What is known of a model whose scatter is its weights'.
pub fn found(case: &Value, model: &Model) -> Value {
    let (closed, solved) = (model.sums().closed(), model.solve().unwrap());
    let (unit, u) = (closed.unit(), solved.feature_weights());
    let (q, _) = closed.closed_targets(&Running::default(), u, 0);
    let variance = model.snapshot(true).unwrap().evaluate(&numbers(&case["query"]), Ask::VARIANCE).unwrap().variance;
    json!({
        "S": whole(&closed.gram, unit),
        "B": rows_of(&closed.coupling(), unit),
        "p": scaled(closed.response.col(0), unit),
        "q_closed": q / unit,
        "u": u.col(0),
        "mean": mean(case, model),
        "scatter": whole(&model.scatter().unwrap(), unit * unit),
        "variance": variance.unwrap(),
    })
}

/// A value for each head, by its name.
fn by_head(case: &Value, of: impl FnMut(&Value) -> Value) -> Value {
    let heads = items(&case["heads"]);
    Value::Object(heads.iter().map(name).zip(heads.iter().map(of)).collect::<Map<String, Value>>())
}

/// Rows are taken out.
fn removal(case: &Value) -> Map<String, Value> {
    let (rows, removed) = (stream(case).placed, removed(case));
    let (touched, rest) = (Touched::new(&rows, &removed), rows.without(&removed));
    let mut chains: Vec<Vec<u64>> = Vec::new();
    for (chain, &offset) in rest.chains().into_iter().zip(&rest.offsets) {
        chains.resize(chains.len().max(chain + 1), Vec::new());
        chains[chain].push(offset);
    }
    let mut effective_rows = 0.0;
    let mut before = Map::new();
    let after = by_head(case, |head| {
        let mut model = empty(case, head);
        learn(&mut model, &rows);
        before.insert(name(head), json!(mean(case, &model)));
        let done = model.remove(&rows, &removed).unwrap();
        assert_eq!((done.subtracted, done.put_back), (touched.rows_subtracted(), touched.rows_put_back()));
        model.revisit(rest.pieces());
        effective_rows = model.statistics().effective_rows();
        found(case, &model)
    });
    let offsets: Vec<u64> = removed.ranges().iter().flat_map(|range| range.clone()).collect();
    Map::from_iter([
        ("removed_offsets".to_string(), json!(offsets)),
        ("rows_subtracted".to_string(), json!(touched.rows_subtracted())),
        ("rows_put_back".to_string(), json!(touched.rows_put_back())),
        ("chains".to_string(), json!(chains)),
        ("effective_rows".to_string(), json!(effective_rows)),
        ("before".to_string(), Value::Object(before)),
        ("after".to_string(), after),
    ])
}

/// Sums of one worker, of each head: over rows, and what closing running chains adds.
fn sums(of: &[Sums]) -> [Value; 2] {
    let (m, first) = (of[0].statistics.features(), &of[0].statistics);
    let list = |value: &dyn Fn(&Sums) -> Value| Value::Array(of.iter().map(value).collect());
    let terms = |of: &BootstrapTerms| [whole(&of.energy, 1.0), json!(of.response.col(0))];
    let rows = json!({
        "S": whole(&first.gram, 1.0),
        "B": list(&|of| rows_of(&of.statistics.coupling(), 1.0)),
        "E": list(&|of| terms(&of.statistics.closed)[0].clone()),
        "p": list(&|of| json!(of.statistics.response.col(0))),
        "h": list(&|of| terms(&of.statistics.closed)[1].clone()),
        "q": list(&|of| json!(of.statistics.energy[0])),
        "n": first.rows as f64,
    });
    let closing = json!({
        "S": rows_of(&Matrix::zeros(m, m), 1.0),
        "B": list(&|of| rows_of(&of.closings.coupling, 1.0)),
        "E": list(&|of| terms(&of.closings)[0].clone()),
        "p": list(&|_| json!(vec![0.0; m])),
        "h": list(&|of| terms(&of.closings)[1].clone()),
        "q": list(&|_| json!(0.0)),
        "n": 0.0,
    });
    [rows, closing]
}

/// The rows of each worker.
pub fn shards(case: &Value) -> Vec<Placed> {
    let CaseRows { placed, names } = stream(case);
    let worker = |stream: u32| case["worker_of_stream"][&names[stream as usize]].as_u64().unwrap();
    let count = (0..names.len() as u32).map(|stream| worker(stream) + 1).max().unwrap_or(0);
    let of = |number: u64| {
        let others = (0..placed.len()).filter(|&i| worker(placed.rows.streams[i]) != number);
        placed.without(&others.map(|i| placed.offsets[i]..placed.offsets[i] + 1).collect())
    };
    (0..count).map(of).collect()
}

/// Workers learn the rows of their streams, and a coordinator adds up what they say.
fn merge(case: &Value) -> Map<String, Value> {
    let (shards, heads) = (shards(case), items(&case["heads"]));
    let learned = |rows: &Placed| -> Vec<Model> {
        heads
            .iter()
            .map(|head| {
                let mut model = empty(case, head);
                learn(&mut model, rows);
                model
            })
            .collect()
    };
    let workers: Vec<Vec<Model>> = shards.iter().map(learned).collect();
    let mut coordinators: Vec<Coordinator<Sums>> =
        heads.iter().map(|head| Coordinator::new(empty(case, head).epoch())).collect();
    for (worker, models) in workers.iter().enumerate() {
        for (coordinator, model) in coordinators.iter_mut().zip(models) {
            let offset = shards[worker].offsets.last().map_or(0, |last| last + 1);
            let version = Version { offset, ..Version::default() };
            coordinator.take(Message { epoch: model.epoch(), worker: worker as u32, version, sums: model.sums() });
        }
    }
    let mut merged: Vec<Model> =
        heads.iter().zip(&coordinators).map(|(head, all)| empty(case, head).merged(all.sums()).unwrap()).collect();
    let scatters: Vec<Vec<Matrix>> = workers
        .iter()
        .zip(&shards)
        .map(|(models, rows)| {
            let of = |(model, all): (&Model, &Model)| model.scatter_of(all, rows.pieces()).unwrap();
            models.iter().zip(&merged).map(of).collect()
        })
        .collect();
    for (h, model) in merged.iter_mut().enumerate() {
        model.set_scatter(scatters.iter().map(|of| &of[h]));
    }
    let worker = |(k, models): (usize, &Vec<Model>)| {
        let [sums, closing] = sums(&models.iter().map(Model::sums).collect::<Vec<_>>());
        let mut scatter = scatters[k].iter();
        json!({
            "offset": shards[k].offsets.last(),
            "rows": shards[k].len(),
            "sums": sums,
            "closing": closing,
            "scatter": by_head(case, |_| whole(scatter.next().unwrap(), 1.0)),
        })
    };
    let mut models = merged.iter();
    Map::from_iter([
        ("workers".to_string(), Value::Array(workers.iter().enumerate().map(worker).collect())),
        ("merged".to_string(), by_head(case, |_| found(case, models.next().unwrap()))),
    ])
}

/// Sums of head number `h` as a message has them.
fn told(sums: &Value, h: usize) -> Sums {
    let m = items(&sums["S"]).len();
    let square = |of: &Value| Matrix::from_rows(m, m, &numbers(of));
    let column = |of: &Value| Matrix::from_columns(m, 1, numbers(of));
    let mut statistics = Statistics::new(m, 1, m);
    let closings = statistics.closed.clone();
    statistics.follow_rows();
    statistics.rows = sums["n"].as_f64().unwrap() as u64;
    statistics.gram = square(&sums["S"]);
    statistics.response = column(&sums["p"][h]);
    statistics.energy = numbers(&sums["q"][h]);
    statistics.closed.coupling = square(&sums["B"][h]);
    statistics.closed.energy = square(&sums["E"][h]);
    statistics.closed.response = column(&sums["h"][h]);
    // Sums do not say how many chains were closed; that there are some is enough.
    statistics.closed.chains = 1;
    Sums { statistics, closings, scatter: None, heads: None, branch: None }
}

/// A coordinator takes messages as they come.
fn messages(case: &Value) -> Map<String, Value> {
    let heads = items(&case["heads"]);
    let mut coordinator = Coordinator::new(1);
    let mut after_each = Vec::new();
    for message in items(&case["messages"]) {
        let number = |key: &str| message[key].as_u64().unwrap_or(0);
        let version =
            Version { incarnation: number("incarnation"), removals: number("removals"), offset: number("offset") };
        let sums: Vec<Sums> = (0..heads.len()).map(|h| told(&message["sums"], h)).collect();
        let (epoch, worker) = (number("epoch"), number("worker") as u32);
        let verdict = coordinator.take(Message { epoch, worker, version, sums });
        let mut h = 0..;
        let mean = by_head(case, |head| {
            let h = h.next().unwrap();
            json!(mean(case, &empty(case, head).merged(coordinator.sums().map(|of: &Vec<Sums>| &of[h])).unwrap()))
        });
        let rows: u64 = coordinator.sums().map(|of| of[0].statistics.rows).sum();
        after_each.push(json!({ "verdict": verdict.to_string(), "rows": rows, "mean": mean }));
    }
    Map::from_iter([("after_each".to_string(), Value::Array(after_each))])
}

/// What the learner makes of what a case gives, with the keys of what it expects.
pub fn answer(case: &Value) -> Value {
    let mut answer = Map::new();
    if case["remove"].is_object() {
        answer.extend(removal(case));
    }
    if case["messages"].is_array() {
        answer.extend(messages(case));
    } else if case["worker_of_stream"].is_object() {
        answer.extend(merge(case));
    }
    Value::Object(answer)
}
