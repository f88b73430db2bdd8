//! Heads are what an independent implementation says of them (tests/golden-heads), and each is a critic of its own.

use criticd_learner::allowance::Allowance;
use criticd_learner::heads::{Bank, Continuation, Cumulant, Expression, Head, Rate, Solution, check, check_row};
use criticd_learner::math::dense::dot;
use criticd_learner::math::dictionary::Dictionary;
use criticd_learner::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use criticd_learner::math::statistics::Running;
use criticd_learner::model::Model;
use criticd_learner::refit::split::{Attempt, WORTH};
use criticd_learner::snapshot::{Ask, Inputs};
use criticd_learner::transition::Rows;
use criticd_learner::{KernelKind, Lambda, SelectionKind, Settings, refit};
use criticd_reference::golden_heads::{half_life, heads as written, read};
use criticd_reference::{distance, numbers};
use serde_json::Value;

const CASES: [&str; 5] = ["discounts_11", "gvf_12", "weights_13", "remove_merge_15", "forgetting_16"];

fn index(value: &Value) -> usize {
    value["index"].as_u64().unwrap() as usize
}

fn head(value: &Value) -> Head {
    let number = |of: &Value, key: &str| of[key].as_f64().unwrap();
    let cumulant = &value["cumulant"];
    let cumulant = match cumulant["kind"].as_str().unwrap() {
        "reward" => Cumulant::Reward(index(cumulant)),
        "state" => Cumulant::State(index(cumulant)),
        "next_state" => Cumulant::NextState(index(cumulant)),
        "action" => Cumulant::Action(index(cumulant)),
        "constant" => Cumulant::Constant(number(cumulant, "value")),
        "event" => Cumulant::Event { index: index(cumulant), above: number(cumulant, "above") },
        other => panic!("a cumulant of kind {other}"),
    };
    let rate = match value["timescale"].as_f64() {
        Some(seconds) => Rate::Timescale(seconds),
        None => Rate::Discount(number(value, "discount")),
    };
    let continuation = match &value["continuation"] {
        Value::Null => Continuation::Constant(1.0),
        of if of["kind"] == "inside" => Continuation::Inside {
            index: index(of),
            low: number(of, "low"),
            high: number(of, "high"),
            outside: number(of, "outside"),
        },
        of => Continuation::Reward(index(of)),
    };
    Head {
        continuation,
        terminal_reward: value["terminal_reward"].as_f64().unwrap_or(0.0),
        weight: value.get("weight").map(index),
        noise_variance: value["noise_variance"].as_f64(),
        signal: Some(value["signal"].as_f64().unwrap_or(1.0)),
        ..Head::new(value["name"].as_str().unwrap(), cumulant, rate)
    }
}

fn heads(case: &Value) -> Vec<Head> {
    written(case).iter().map(head).collect()
}

fn dim(case: &Value) -> usize {
    case["query"][0].as_array().unwrap().len()
}

/// The rows of a case with these numbers, `starts` saying which of them start a chain.
fn some_rows(case: &Value, which: &[usize], starts: impl Fn(usize, bool) -> bool) -> Rows {
    let all = case["rows"].as_array().unwrap();
    let actions_per_row = numbers(&all[0]["action"]).len();
    let mut rows = Rows { actions_per_row, keeps_times: true, ..Rows::new(dim(case), 4) };
    for &i in which {
        let row = &all[i];
        rows.states.extend(numbers(&row["x"]));
        rows.next_states.extend(numbers(&row["x_next"]));
        rows.rewards.extend(numbers(&row["reward"]));
        rows.actions.extend(numbers(&row["action"]));
        rows.times.extend(numbers(&row["time"]));
        rows.discounts.push(f64::NAN);
        rows.ratios.push(1.0);
        rows.streams.push(row["stream"].as_u64().unwrap() as u32);
        rows.terminated.push(row["terminated"].as_bool().unwrap());
        rows.truncated.push(row["truncated"].as_bool().unwrap());
        rows.starts_chain.push(starts(i, row["starts_chain"].as_bool().unwrap()));
    }
    rows
}

fn rows(case: &Value) -> Rows {
    let count = case["rows"].as_array().unwrap().len();
    some_rows(case, &(0..count).collect::<Vec<_>>(), |_, starts| starts)
}

fn settings(case: &Value) -> Settings {
    let forgetting = half_life(case);
    Settings { estimate_scale: false, discount: 0.9, refresh_rows: 16, forgetting, ..Settings::paper() }
}

/// A model with the dictionary of the case that has learned nothing.
fn empty(case: &Value, settings: Settings) -> Model {
    let number = |key: &str| case["kernel"][key].as_f64().unwrap();
    let kernel = Kernel::gaussian(number("v0"), number("b"), Metric::Ard(numbers(&case["kernel"]["a"])));
    let mut dictionary = Dictionary::from_elements(kernel.clone(), dim(case), &numbers(&case["dictionary"])).unwrap();
    dictionary.close();
    let hyperparameters = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 0.3 };
    Model::with_dictionary(settings, Inputs::identity(dim(case)), &hyperparameters, dictionary)
}

fn learn(model: &mut Model, rows: &Rows, piece: usize) {
    for start in (0..rows.len()).step_by(piece) {
        model.learn(rows, start..rows.len().min(start + piece), start as u64);
    }
    model.refresh();
}

fn assert_close(told: &str, found: &[f64], expected: &Value) {
    let error = distance(found, &numbers(expected));
    assert!(error < 1e-9, "{told}: {error:e}");
}

/// The sums and weights of a bank against what is expected of each head.
fn assert_bank(
    told: &str,
    bank: &Bank,
    unit: f64,
    solution: &Solution,
    model: &Model,
    query: &[f64],
    expected: &Value,
) {
    let features = model.dictionary().features(&model.dictionary().kernel().project(model.inputs().dim(), query));
    let (energies, evidence) = (bank.closed_energy(solution), bank.log_evidence(solution));
    for (h, head) in bank.heads().iter().enumerate() {
        let (g, column) = bank.place(h);
        let group = &bank.statistics().groups[g];
        let of = &expected[head.name.as_str()];
        let told = format!("{told}, {}", head.name);
        let p: Vec<f64> = group.response().col(column).iter().map(|p| p / unit).collect();
        assert_close(&format!("{told}: p"), &p, &of["p"]);
        assert_close(&format!("{told}: q"), &[group.energy()[column] / unit], &of["q"]);
        assert_close(&format!("{told}: q closed"), &[energies[h]], &of["q_closed"]);
        let u = solution.weights(g).col(column);
        let mean: Vec<f64> = (0..features.cols()).map(|k| dot(features.col(k), u)).collect();
        assert_close(&format!("{told}: mean"), &mean, &of["mean"]);
        if !of["log_evidence"].is_null() {
            assert_close(&format!("{told}: evidence"), &[evidence[h]], &of["log_evidence"]);
        }
    }
}

#[test]
fn heads_are_the_reference() {
    for name in CASES {
        let case = read(name);
        let expected = if name.starts_with("remove") { &case["expected"]["merged"] } else { &case["expected"] };
        let (rows, query) = (rows(&case), numbers(&case["query"]));
        // Whatever the critic itself does with the rows, in whatever pieces they come.
        let own = Settings { lambda: Lambda::Fixed(0.5), selection: SelectionKind::Returns, ..settings(&case) };
        for (settings, piece) in [(settings(&case), 60), (own, 7)] {
            let told = format!("{name} in pieces of {piece}");
            let mut model = empty(&case, Settings { heads: heads(&case), ..settings });
            learn(&mut model, &rows, piece);
            let unit = model.statistics().unit();
            let snapshot = model.snapshot(true).unwrap();
            let all: Vec<usize> = (0..heads(&case).len()).collect();
            let found = snapshot.evaluate_heads(&query, &all, true).unwrap();
            let variance = found.variance.unwrap();
            for (h, head) in heads(&case).iter().enumerate() {
                let of = &expected[head.name.as_str()];
                let column = |values: &nalgebra::DMatrix<f64>| values.column(h).iter().copied().collect::<Vec<f64>>();
                assert_close(&format!("{told}, {}: mean", head.name), &column(&found.mean), &of["mean"]);
                assert_close(&format!("{told}, {}: variance", head.name), &column(&variance), &of["var"]);
                assert_eq!(snapshot.heads.as_ref().unwrap().position(&head.name), Some(h));
            }
            // With running chains closed by cuts nothing is different, and there is nothing else to add.
            let mut cut = model.clone();
            cut.cut_running_chains();
            let bank = cut.heads().unwrap();
            let solution = bank.solve(&Running::default()).unwrap();
            assert_bank(&told, bank, unit, &solution, &cut, &query, expected);
        }
    }
}

#[test]
fn a_head_is_a_critic_of_its_own() {
    for name in ["discounts_11", "gvf_12", "remove_merge_15"] {
        let case = read(name);
        let expected = if name.starts_with("remove") { &case["expected"]["merged"] } else { &case["expected"] };
        let (rows, query) = (rows(&case), numbers(&case["query"]));
        let mut model = empty(&case, Settings { heads: heads(&case), ..settings(&case) });
        learn(&mut model, &rows, 60);
        let snapshot = model.snapshot(true).unwrap();
        for (h, head) in heads(&case).iter().enumerate() {
            let of = &expected[head.name.as_str()];
            let mut own = Rows::new(dim(&case), 1);
            own.clone_from(&rows);
            (own.rewards_per_row, own.rewards) = (1, numbers(&of["cumulant"]));
            own.discounts = numbers(&of["discount"]);
            let signal = head.signal.unwrap();
            let mut critic = empty(&case, settings(&case));
            let hyperparameters = Hyperparameters {
                kernel: Kernel {
                    signal_variance: signal * critic.dictionary().kernel().signal_variance,
                    bias_variance: signal * critic.dictionary().kernel().bias_variance,
                    ..critic.dictionary().kernel().clone()
                },
                noise_variance: head.noise_variance.unwrap(),
                noise: NoiseModel::Correlated,
            };
            let elements = critic.dictionary().elements().to_vec();
            let mut dictionary =
                Dictionary::from_elements(hyperparameters.kernel.clone(), dim(&case), &elements).unwrap();
            dictionary.close();
            let inputs = Inputs::identity(dim(&case));
            critic = Model::with_dictionary(settings(&case), inputs, &hyperparameters, dictionary);
            learn(&mut critic, &own, 60);
            let its = critic.snapshot(true).unwrap().evaluate(&query, Ask::VARIANCE).unwrap();
            let found = snapshot.evaluate_heads(&query, &[h], true).unwrap();
            let told = format!("{name}, {}", head.name);
            assert!(distance(found.mean.as_slice(), its.mean.as_slice()) < 1e-9, "{told}");
            assert!(distance(found.variance.unwrap().as_slice(), &its.variance.unwrap()) < 1e-9, "{told}");
            let evidence = model.head_evidence().unwrap()[h];
            assert!(distance(&[evidence], &[critic.solve().unwrap().log_evidence().unwrap()]) < 1e-9, "{told}");
        }
    }
}

#[test]
fn chains_can_be_taken_out_and_pieces_put_together() {
    let case = read("remove_merge_15");
    let query = numbers(&case["query"]);
    let learned = |rows: &Rows| {
        let mut model = empty(&case, Settings { heads: heads(&case), ..settings(&case) });
        learn(&mut model, rows, 60);
        model.cut_running_chains();
        model
    };
    let chains: Vec<Vec<usize>> = case["chains"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rows| numbers(rows).iter().map(|&i| i as usize).collect())
        .collect();
    let mut gone: Vec<usize> =
        numbers(&case["remove"]).iter().flat_map(|&chain| chains[chain as usize].clone()).collect();
    gone.sort_unstable();
    let begins = |i: usize, starts: bool| starts || chains.iter().any(|rows| rows[0] == i);
    let whole = learned(&rows(&case));
    let piece = learned(&some_rows(&case, &gone, begins));
    let mut bank = whole.heads().unwrap().clone();
    bank.combine(piece.heads().unwrap(), -1.0);
    let solution = bank.solve(&Running::default()).unwrap();
    assert_bank("removed", &bank, 1.0, &solution, &whole, &query, &case["expected"]["removed"]);

    let workers = numbers(&case["worker_of_stream"]);
    let mut merged: Option<Bank> = None;
    for (worker, expected) in case["expected"]["workers"].as_array().unwrap().iter().enumerate() {
        let stream = |i: usize| case["rows"][i]["stream"].as_u64().unwrap() as usize;
        let its: Vec<usize> = (0..70).filter(|&i| workers[stream(i)] as usize == worker).collect();
        let model = learned(&some_rows(&case, &its, |_, starts| starts));
        let bank = model.heads().unwrap();
        let gram = &bank.statistics().grams[0];
        assert_eq!(gram.rows(), expected["n"].as_f64().unwrap());
        let m = gram.matrix().rows();
        let s: Vec<f64> = (0..m * m).map(|k| gram.matrix().at((k / m).max(k % m), (k / m).min(k % m))).collect();
        assert_close("S of a worker", &s, &expected["S"]);
        match &mut merged {
            Some(all) => all.combine(bank, 1.0),
            None => merged = Some(bank.clone()),
        }
    }
    let merged = merged.unwrap();
    let solution = merged.solve(&Running::default()).unwrap();
    assert_bank("merged", &merged, 1.0, &solution, &whole, &query, &case["expected"]["merged"]);
}

#[test]
fn noise_and_scale_of_each_head_are_those_of_its_evidence() {
    let case = read("discounts_11");
    let mut asked = heads(&case);
    for head in &mut asked {
        (head.noise_variance, head.signal) = (None, None);
    }
    // The same question in another unit has the same answer in that unit.
    let milli = Head { name: "milli".into(), cumulant: Cumulant::Constant(1e-3), ..asked[2].clone() };
    let one = Head { name: "one".into(), cumulant: Cumulant::Constant(1.0), ..asked[2].clone() };
    asked.extend([milli, one]);
    let rows = rows(&case);
    let mut model = empty(&case, Settings { heads: asked.clone(), noise_floor: 1e-9, ..settings(&case) });
    learn(&mut model, &rows, 60);
    let before = model.head_evidence().unwrap();
    model.tune_heads().unwrap();
    let (after, scales) = (model.head_evidence().unwrap(), model.heads().unwrap().scales().to_vec());
    // Heads whose targets are not bootstrapped have an evidence that only the scale moves.
    assert!(after[2] >= before[2]);
    let grid = |k: i32| {
        let mut other = asked[2].clone();
        let ratio = scales[2].ratio * (0.5 * f64::from(k)).exp2();
        (other.noise_variance, other.signal) = (Some(ratio * scales[2].signal), Some(scales[2].signal));
        let mut model = empty(&case, Settings { heads: vec![other], ..settings(&case) });
        learn(&mut model, &rows, 60);
        model.head_evidence().unwrap()[0]
    };
    assert!(grid(0) >= grid(-2).max(grid(2)));
    let (milli, one) = (scales[asked.len() - 2], scales[asked.len() - 1]);
    assert!((milli.ratio / one.ratio - 1.0).abs() < 1e-9, "{milli:?} {one:?}");
    assert!((1e6 * milli.signal / one.signal - 1.0).abs() < 1e-6, "{milli:?} {one:?}");
    // Tuned again, nothing moves.
    model.tune_heads().unwrap();
    assert_eq!(model.heads().unwrap().scales(), scales);
}

#[test]
fn a_head_that_names_a_part_of_its_scale_chooses_the_rest() {
    let case = read("discounts_11");
    // In a unit in which the scale of the critic is far off.
    let plain = Head { cumulant: Cumulant::Constant(100.0), ..heads(&case)[2].clone() };
    let rows = rows(&case);
    let named =
        |name: &str, noise_variance, signal| Head { name: name.into(), noise_variance, signal, ..plain.clone() };
    let asked = vec![named("noise", Some(200.0), None), named("signal", None, Some(4e5)), named("none", None, None)];
    let mut model = empty(&case, Settings { heads: asked, noise_floor: 1e-9, ..settings(&case) });
    let before = model.heads().unwrap().scales().to_vec();
    assert_eq!((before[0].signal, before[1].noise_variance()), (1.0, 0.3));
    learn(&mut model, &rows, 60);
    model.tune_heads().unwrap();
    let after = model.heads().unwrap().scales().to_vec();
    assert!((after[0].noise_variance() / 200.0 - 1.0).abs() < 1e-12 && after[0].signal != 1.0, "{after:?}");
    assert!(after[1].signal == 4e5 && after[1].noise_variance() != 0.3, "{after:?}");
    let evidence = |noise: f64, signal: f64| {
        let mut model = empty(&case, Settings { heads: vec![named("", Some(noise), Some(signal))], ..settings(&case) });
        learn(&mut model, &rows, 60);
        model.head_evidence().unwrap()[0]
    };
    // A head moves where it gains a nat.
    let step = 2f64.sqrt();
    for factor in [1.0 / step, step] {
        let (noise, signal) = (after[1].noise_variance(), after[0].signal);
        assert!(evidence(200.0, signal) + 1.0 >= evidence(200.0, signal * factor));
        assert!(evidence(noise, 4e5) + 1.0 >= evidence(noise * factor, 4e5));
    }
    assert!(model.head_evidence().unwrap()[2] + 1.0 >= model.head_evidence().unwrap()[0]);
}

#[test]
fn scales_that_are_left_out_are_those_of_the_critic_where_nothing_is_estimated() {
    let case = read("discounts_11");
    let (plain, rows) = (heads(&case)[2].clone(), rows(&case));
    let head = Head { noise_variance: None, signal: None, ..plain };
    let scale = |estimate_scale| {
        let mut model = empty(&case, Settings { heads: vec![head.clone()], estimate_scale, ..settings(&case) });
        (0..3).for_each(|turn| model.learn(&rows, 0..rows.len(), (turn * rows.len()) as u64));
        assert!(model.statistics().rows >= 128);
        model.heads().unwrap().scales()[0]
    };
    assert_eq!((scale(false).signal, scale(false).noise_variance()), (1.0, 0.3));
    assert_ne!(scale(true), scale(false));
}

#[test]
fn a_written_model_goes_on_bit_for_bit() {
    let case = read("discounts_11");
    let rows = rows(&case);
    let mut model = empty(&case, Settings { heads: heads(&case), ..settings(&case) });
    model.learn(&rows, 0..31, 0);
    let mut read: Model = rmp_serde::from_slice(&rmp_serde::to_vec_named(&model).unwrap()).unwrap();
    assert!(read.is_consistent());
    for model in [&mut model, &mut read] {
        model.learn(&rows, 31..60, 31);
        model.refresh();
    }
    assert!(rmp_serde::to_vec_named(&model).unwrap() == rmp_serde::to_vec_named(&read).unwrap());
}

#[test]
fn faults_name_head_and_field() {
    let case = read("discounts_11");
    let columns = criticd_learner::heads::Columns { states: 3, rewards: 4, actions: 2 };
    let good = heads(&case);
    check(&good, columns).unwrap();
    let fault = |change: &dyn Fn(&mut Head)| {
        let mut heads = good.clone();
        change(&mut heads[1]);
        check(&heads, columns).unwrap_err()
    };
    type Fault<'a> = (&'a dyn Fn(&mut Head), &'a str);
    let faults: [Fault<'_>; 12] = [
        (&|head| head.name.clear(), "name"),
        (&|head| head.name = "return".into(), "called return already"),
        (&|head| head.cumulant = Cumulant::Reward(4), "cumulant.index"),
        (&|head| head.cumulant = Cumulant::Event { index: 0, above: f64::NAN }, "cumulant.above"),
        (&|head| head.cumulant = Cumulant::EventBelow { index: 0, below: f64::NAN }, "cumulant.below"),
        (&|head| head.cumulant = Cumulant::EventBelow { index: 3, below: 0.0 }, "cumulant.index"),
        (&|head| head.rate = Rate::Discount(1.5), "discount"),
        (&|head| head.rate = Rate::Timescale(0.0), "timescale"),
        (
            &|head| head.continuation = Continuation::Inside { index: 0, low: 1.0, high: 0.0, outside: 0.0 },
            "continuation.low",
        ),
        (&|head| head.weight = Some(9), "weight.index"),
        (&|head| head.noise_variance = Some(0.0), "noise_variance"),
        (&|head| head.terminal_reward = f64::INFINITY, "terminal_reward"),
    ];
    for (change, words) in faults {
        let message = fault(change);
        assert!(message.contains(words) && message.contains("heads[1]"), "{message}");
    }
    let rows = rows(&case);
    check_row(&good, &rows, 0).unwrap();
    let without = Rows { keeps_times: false, times: Vec::new(), ..rows.clone() };
    assert!(check_row(&good, &without, 0).unwrap_err().contains("time"));
    let without = Rows { actions_per_row: 0, actions: Vec::new(), ..rows.clone() };
    assert!(check_row(&good, &without, 0).unwrap_err().contains("action"));
    let heavy = [Head { weight: Some(0), ..good[0].clone() }];
    let negative = (0..rows.len()).find(|&i| rows.reward(i)[0] < 0.0).unwrap();
    assert!(check_row(&heavy, &rows, negative).unwrap_err().contains("weight"));
}

#[test]
fn returns_are_closed_by_the_heads_themselves() {
    for name in ["discounts_11", "gvf_12", "remove_merge_15"] {
        let case = read(name);
        let expected = if name.starts_with("remove") { &case["expected"]["merged"] } else { &case["expected"] };
        let (rows, asked) = (rows(&case), heads(&case));
        let mut model = empty(&case, Settings { heads: asked.clone(), ..settings(&case) });
        learn(&mut model, &rows, 60);
        let found = criticd_learner::refit::head_kernel::targets(&asked, &rows, &model.snapshot(false).unwrap());
        for (h, head) in asked.iter().enumerate() {
            let of = &expected[head.name.as_str()];
            assert_close(&format!("{name}, {}: targets", head.name), found.col(h), &of["targets"]);
        }
    }
}

/// Two heads, each of one variable of three, in units that differ by six decades: the third variable means nothing.
#[test]
fn a_kernel_that_heads_choose_has_the_union_of_what_matters() {
    let mut rows = Rows::new(3, 1);
    let number = |i: u64| {
        let mut x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x ^= x >> 29;
        x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((x >> 11) as f64) / (1u64 << 53) as f64
    };
    for i in 0..160u64 {
        let state: Vec<f64> = (0..3).map(|d| 4.0 * number(3 * i + d) - 2.0).collect();
        rows.next_states.extend(&state);
        rows.rewards.push(1e-3 * ((2.0 * state[0]).sin() + 0.1 * number(7919 * i)));
        rows.states.extend(state);
        rows.discounts.push(f64::NAN);
        rows.ratios.push(1.0);
        rows.streams.push(0);
        rows.terminated.push(true);
        rows.truncated.push(false);
        rows.starts_chain.push(true);
    }
    let crossing = Cumulant::Event { index: 1, above: 0.0 };
    let asked = vec![
        Head::new("now", Cumulant::State(1), Rate::Discount(0.0)),
        Head::new("event", crossing, Rate::Discount(0.5)),
    ];
    let settings = Settings { discount: 0.0, heads: asked, search_starts: 2, ..Settings::default() };
    let chosen =
        criticd_learner::refit::head_kernel::select(&settings, &rows, None, &|| true, &Allowance::unlimited()).unwrap();
    let relevance = chosen.hyperparameters.kernel.metric.relevance(3);
    assert!(relevance[0] > 10.0 * relevance[2] && relevance[1] > 10.0 * relevance[2], "{relevance:?}");
    // An event that never happens in any row says nothing, and is left out.
    assert_eq!((chosen.heads, chosen.rows), (2, 160));
}

/// A head that asks what the critic learns has the critic's sums, whatever elements have joined on the way.
#[test]
fn new_elements_are_backfilled_as_they_are_for_the_critic() {
    let case = read("discounts_11");
    let asked = vec![heads(&case)[0].clone(), Head { rate: Rate::Discount(0.6), ..heads(&case)[3].clone() }];
    let once = rows(&case);
    let mut rows = once.without_rows();
    (0..3).for_each(|_| rows.extend(&once, 0..once.len()));
    for (forgetting, discount, dictionary_max, piece) in
        [(None, None, 40, 180), (None, None, 9, 7), (Some(25.0), None, 40, 11), (None, Some(0.5), 40, 16)]
    {
        let settings = Settings {
            heads: asked.clone(),
            discount: 0.95,
            forgetting,
            backfill_rows: 30,
            dictionary_max,
            tolerance: 0.3,
            ..settings(&case)
        };
        let like = empty(&case, settings.clone()).hyperparameters();
        let like = Hyperparameters { noise_variance: 5.0, ..like };
        let mut model = Model::new(settings, Inputs::identity(3), &like);
        for start in (0..rows.len()).step_by(piece) {
            if let Some(factor) = discount
                && start == 48
            {
                model.discount(factor);
            }
            model.learn(&rows, start..rows.len().min(start + piece), start as u64);
            if start == 0 {
                model = rmp_serde::from_slice(&rmp_serde::to_vec_named(&model).unwrap()).unwrap();
            }
        }
        let (its, bank) = (model.statistics(), model.heads().unwrap());
        let (group, m) = (&bank.statistics().groups[0], its.features());
        assert!(m > 8 && model.is_consistent());
        let closed = group.closed();
        let told = format!("half-life {forgetting:?}, discount {discount:?}, most {dictionary_max}, pieces of {piece}");
        let near = |what: &str, found: &[f64], expected: &[f64]| {
            assert!(distance(found, expected) < 1e-12, "{told}: {what}");
        };
        near("q", group.energy(), &its.energy);
        near("a", &closed.sum, &its.closed.sum);
        near("p", group.response().col(0), its.response.col(0));
        near("h", closed.response.col(0), its.closed.response.col(0));
        for j in 0..m {
            near("S", &bank.statistics().grams[0].matrix().col(j)[j..], &its.gram.col(j)[j..]);
            near("B", closed.coupling.col(j), its.closed.coupling.col(j));
            near("E", &closed.energy.col(j)[j..], &its.closed.energy.col(j)[j..]);
        }
    }
}

/// A reward that an expression labels anew is learned like one that the rows carry, also while the dictionary grows.
#[test]
fn an_expression_is_a_reward_that_was_computed_before() {
    let case = read("discounts_11");
    let before = rows(&case);
    let text = "reward[1] - 0.5*action[0] + 2*next_state[2] - state[0]/4 + 0.25";
    let labelled = |i: usize| {
        let (state, next) = (before.state(i), before.next_state(i));
        before.reward(i)[1] - 0.5 * before.action(i)[0] + 2.0 * next[2] - state[0] / 4.0 + 0.25
    };
    let rewards = (0..before.len()).flat_map(|i| before.reward(i).iter().copied().chain([labelled(i)])).collect();
    let after = Rows { rewards, rewards_per_row: 5, ..before.clone() };
    let sum = Cumulant::Expression(Expression::parse(text).unwrap());
    let learned = |rows: &Rows, cumulant: &Cumulant| {
        let head = |(k, rate): (usize, Rate)| Head {
            noise_variance: Some(0.3),
            ..Head::new(format!("h{k}"), cumulant.clone(), rate)
        };
        let rates = [Rate::Discount(0.0), Rate::Discount(0.9), Rate::Timescale(2.0)];
        let asked: Vec<Head> = rates.into_iter().enumerate().map(head).collect();
        let settings = Settings { heads: asked, tolerance: 0.2, backfill_rows: 60, ..settings(&case) };
        let like = empty(&case, settings.clone()).hyperparameters();
        let mut model = Model::new(settings, Inputs::identity(3), &like);
        learn(&mut model, rows, 7);
        let states: Vec<f64> = case["query"].as_array().unwrap().iter().flat_map(numbers).collect();
        let found = model.snapshot(true).unwrap().evaluate_heads(&states, &[0, 1, 2], true).unwrap();
        let variance = found.variance.unwrap();
        found.mean.iter().chain(variance.iter()).copied().collect::<Vec<f64>>()
    };
    assert!(distance(&learned(&before, &sum), &learned(&after, &Cumulant::Reward(4))) < 1e-12);
    for (text, words) in [
        ("reward[0] + cost", "there is no cost"),
        ("state", "write state[0]"),
        ("reward * reward", "one column at most"),
        ("1e10*reward", "beyond"),
    ] {
        let message = Expression::parse(text).unwrap_err();
        assert!(message.contains(words), "{text}: {message}");
    }
    let columns = criticd_learner::heads::Columns { states: 3, rewards: 4, actions: 2 };
    let wide = Head::new("wide", Cumulant::Expression(Expression::parse("action[2]").unwrap()), Rate::Discount(0.5));
    assert!(check(std::slice::from_ref(&wide), columns).unwrap_err().contains("cumulant.text"));
    assert!(check_row(&[wide], &before, 0).unwrap_err().contains("action"));
    let read: Cumulant = serde_json::from_value(serde_json::to_value(&sum).unwrap()).unwrap();
    assert_eq!(read, sum);
}

/// Functions and falls are learned like rewards that the rows carry.
#[test]
fn functions_are_rewards_that_were_computed_before() {
    let case = read("discounts_11");
    let before = rows(&case);
    let text = "2*(reward[1] - 1)^2 - abs(state[0])/4 + max(action[0], -action[0]/2, 0.1) - min(state[1], next_state[1]) + 3*(state[2] > 0)";
    let expression = Expression::parse(text).unwrap();
    assert!(expression.has_functions() && !Expression::parse("reward - 2*state[0]").unwrap().has_functions());
    let computed = |i: usize| {
        let (state, next, action) = (before.state(i), before.next_state(i), before.action(i));
        2.0 * (before.reward(i)[1] - 1.0).powi(2) - state[0].abs() / 4.0 + action[0].max(-action[0] / 2.0).max(0.1)
            - state[1].min(next[1])
            + if state[2] > 0.0 { 3.0 } else { 0.0 }
    };
    let fallen = |i: usize| f64::from(u8::from(before.state(i)[1] >= 0.2 && before.next_state(i)[1] < 0.2));
    assert!((0..before.len()).map(fallen).sum::<f64>() > 0.0);
    let more = |i: usize| before.reward(i).iter().copied().chain([computed(i), fallen(i)]).collect::<Vec<f64>>();
    let after = Rows { rewards: (0..before.len()).flat_map(more).collect(), rewards_per_row: 6, ..before.clone() };
    let learned = |rows: &Rows, cumulants: [Cumulant; 2]| {
        let head = |(k, cumulant): (usize, Cumulant)| Head {
            noise_variance: Some(0.3),
            ..Head::new(format!("h{k}"), cumulant, Rate::Discount(0.9))
        };
        let asked: Vec<Head> = cumulants.into_iter().enumerate().map(head).collect();
        let settings = Settings { heads: asked, ..settings(&case) };
        let like = empty(&case, settings.clone()).hyperparameters();
        let mut model = Model::new(settings, Inputs::identity(3), &like);
        learn(&mut model, rows, 7);
        let states: Vec<f64> = case["query"].as_array().unwrap().iter().flat_map(numbers).collect();
        model.snapshot(true).unwrap().evaluate_heads(&states, &[0, 1], false).unwrap().mean.iter().copied().collect()
    };
    let asked = [Cumulant::Expression(expression), Cumulant::EventBelow { index: 1, below: 0.2 }];
    let (found, expected): (Vec<f64>, Vec<f64>) =
        (learned(&before, asked.clone()), learned(&after, [Cumulant::Reward(4), Cumulant::Reward(5)]));
    assert!(distance(&found, &expected) < 1e-12);
    for cumulant in asked {
        let read: Cumulant = serde_json::from_value(serde_json::to_value(&cumulant).unwrap()).unwrap();
        assert_eq!(read, cumulant);
    }
    for (text, words) in [("1e10*abs(reward)", "beyond"), ("abs(1e10)", "beyond"), ("abs(state)", "write state[0]")] {
        let message = Expression::parse(text).unwrap_err();
        assert!(message.contains(words), "{text}: {message}");
    }
    let many = format!("abs({})", vec!["reward"; 1024].join("+"));
    assert!(Expression::parse(&many).unwrap_err().contains("1024 terms, this one has 1025"));
}

/// A continuation that an expression computes is learned like one that a reward column carries, between 0 and 1.
#[test]
fn a_continuation_may_be_an_expression() {
    let case = read("discounts_11");
    let before = rows(&case);
    let share = |i: usize| (0.7 - 0.4 * before.next_state(i)[1] + 0.1 * before.action(i)[0]).clamp(0.0, 1.0);
    let outside = (0..before.len()).filter(|&i| share(i) == 0.0 || share(i) == 1.0).count();
    assert!(outside > 0 && outside < before.len(), "{outside}");
    let rewards = (0..before.len()).flat_map(|i| before.reward(i).iter().copied().chain([share(i)])).collect();
    let after = Rows { rewards, rewards_per_row: 5, ..before.clone() };
    let learned = |rows: &Rows, continuation: &Continuation| {
        let head = |(k, rate): (usize, Rate)| Head {
            noise_variance: Some(0.3),
            continuation: continuation.clone(),
            ..Head::new(format!("h{k}"), Cumulant::Reward(0), rate)
        };
        let asked = [Rate::Discount(0.9), Rate::Timescale(2.0)].into_iter().enumerate().map(head).collect();
        let settings = Settings { heads: asked, ..settings(&case) };
        let like = empty(&case, settings.clone()).hyperparameters();
        let mut model = Model::new(settings, Inputs::identity(3), &like);
        learn(&mut model, rows, 7);
        let states: Vec<f64> = case["query"].as_array().unwrap().iter().flat_map(numbers).collect();
        let found = model.snapshot(true).unwrap().evaluate_heads(&states, &[0, 1], true).unwrap();
        let variance = found.variance.unwrap();
        found.mean.iter().chain(variance.iter()).copied().collect::<Vec<f64>>()
    };
    let text = |text: &str| Continuation::Expression(Expression::parse(text).unwrap());
    let computed = learned(&before, &text("0.7 - 0.4*next_state[1] + 0.1*action[0]"));
    assert!(distance(&computed, &learned(&after, &Continuation::Reward(4))) < 1e-12);
    assert!(distance(&computed, &learned(&before, &Continuation::Constant(0.7))) > 1e-3);
    let columns = criticd_learner::heads::Columns { states: 3, rewards: 4, actions: 2 };
    let of = |continuation| Head { continuation, ..Head::new("h", Cumulant::Reward(0), Rate::Discount(0.5)) };
    assert!(check(&[of(text("state[3]"))], columns).unwrap_err().contains("continuation.text"));
    assert!(check_row(&[of(text("action[2]"))], &before, 0).unwrap_err().contains("action"));
    assert!(of(text("1 - action[0]")).needs_actions() && of(text("reward[2]")).reward_columns().eq([0, 2]));
}

/// Rows of independent states in [-2, 2]^2 with these rewards, each with a little noise.
fn independent(count: u64, rewards: &[&dyn Fn(f64, f64) -> f64]) -> Rows {
    let mut rows = Rows::new(2, rewards.len());
    for i in 0..count {
        let number = |k: u64| criticd_learner::random::uniform(criticd_learner::random::mix(&[7, i, k]));
        let state = [4.0 * number(0) - 2.0, 4.0 * number(1) - 2.0];
        for (k, reward) in rewards.iter().enumerate() {
            rows.rewards.push(reward(state[0], state[1]) + 0.2 * (number(2 + k as u64) - 0.5));
        }
        rows.states.extend(state);
        rows.next_states.extend(state);
        rows.discounts.push(f64::NAN);
        rows.ratios.push(1.0);
        rows.streams.push(0);
        rows.terminated.push(true);
        rows.truncated.push(false);
        rows.starts_chain.push(true);
    }
    rows
}

/// Heads that want other lengthscales get a kernel of their own, and heads that want the same share one.
#[test]
fn heads_are_split_where_two_kernels_pay() {
    let smooth = |phase: f64| move |x: f64, y: f64| (0.7 * x + 0.5 * y + phase).sin();
    let rough = |phase: f64| move |x: f64, y: f64| (5.0 * x + phase).sin() * (4.0 * y - phase).cos();
    let attempt = |rewards: &[&dyn Fn(f64, f64) -> f64]| {
        let rows = independent(250, rewards);
        let head = |k: usize| Head::new(format!("h{k}"), Cumulant::Reward(k), Rate::Discount(0.0));
        let settings = Settings {
            discount: 0.0,
            heads: (1..rewards.len()).map(head).collect(),
            search_starts: 1,
            kernel: KernelKind::Isotropic,
            ..Settings::default()
        };
        let shared = refit::head_kernel::select(&settings, &rows, None, &|| true, &Allowance::unlimited()).unwrap();
        let found = refit::split::split(&settings, &rows, &shared, &|| true, &Allowance::unlimited()).unwrap();
        (shared.hyperparameters.kernel.metric.relevance(2)[0], found)
    };
    let (shared, found) = attempt(&[&smooth(0.0), &rough(0.3), &smooth(1.0), &rough(1.4), &rough(2.0), &smooth(2.5)]);
    let Attempt::Split(split) = found else { panic!("{found:?}") };
    assert_eq!(split.second, [0, 2, 3]);
    assert!(split.gain > WORTH, "{}", split.gain);
    let [first, second] = split.kernels.each_ref().map(|of| of.hyperparameters.kernel.metric.relevance(2)[0]);
    assert!(first < shared && shared < 1.01 * second && first < 0.2 * second, "{first} {shared} {second}");

    let (_, found) = attempt(&[&smooth(0.0), &smooth(0.4), &smooth(1.0), &smooth(1.6), &smooth(2.0), &smooth(2.5)]);
    assert!(matches!(found, Attempt::Together(gain) if gain < WORTH), "{found:?}");
    // One head and the reward: nothing to divide by.
    let (_, found) = attempt(&[&smooth(0.0)]);
    assert!(matches!(found, Attempt::Together(0.0)), "{found:?}");
}
