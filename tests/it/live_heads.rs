//! Heads in the daemon: each answers as a critic of its own would, those that come late equal those that were there from the start, and
//! a crash anywhere changes no bit of them.

use crate::support::harness::{Harness, NOW, about_zero, assert_close, config, mean_and_variance};
use criticd::config::Config;
use criticd::daemon::core::{Now, Output, RefitDone};
use criticd::daemon::rebuild::RebuildDone;
use criticd::journal::memory::{Disk, MemoryStorage};
use criticd::learner::heads::Rate;
use criticd::learner::{Settings, refit};
use criticd::sim::{self, Step, walk::Walk};
use criticd::snapshot::{Ask, Snapshot};
use criticd::transition::{Batch, BatchParts};
use criticd::wire::{self, ArrayForm, HeadForm, Op};
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use std::sync::Arc;

const QUICK: &str =
    "warmup_rows = 20\nrefit_first_rows = 0\ndictionary_max = 12\nbackfill_rows = 40\nrefresh_rows = 32\n";

/// Rows of a walk in pieces of 20, with episodes that end and episodes that are cut.
fn walk(seed: u64, rows: usize) -> Vec<Batch> {
    let mut walk = Walk::new(seed, Some(25), 0.1);
    let steps: Vec<Step> = (0..rows).map(|_| walk.step()).collect();
    steps.chunks(20).flat_map(|part| sim::batches("walk", "run", part)).collect()
}

const STATES: [f64; 5] = [0.1, 0.35, 0.5, 0.8, 0.95];

#[test]
fn each_head_says_what_a_critic_of_its_own_says() {
    let critic = |name: &str, discount: f64, heads: &str| {
        format!(
            "[[critic]]\nname = \"{name}\"\ndiscount = {discount:?}\nlambda = 1.0\nselection = \"evidence\"\nvariance = \"model\"\n\
             estimate_scale = false\ndrift_sensitivity = \"off\"\n{QUICK}{heads}"
        )
    };
    // Critics begin with kernels of their own, so that a head is compared with the one whose kernel it shares.
    let discounts = [0.0, 0.5, 0.9];
    let rows = walk(1, 1200);
    for (k, &discount) in discounts.iter().enumerate() {
        let mut own = Harness::new(config(&critic("own", discount, "")));
        own.learn(&rows);
        let own = own.snapshot(0);
        let noise = own.hyperparameters.noise_variance;
        let heads = discounts.map(|of| {
            format!(
                "{{ name = \"h{of}\", cumulant = {{ kind = \"reward\", index = 0 }}, discount = {of:?}, signal = 1.0, \
                 noise_variance = {noise:?} }}"
            )
        });
        let mut shared = Harness::new(config(&critic("host", discount, &format!("heads = [{}]\n", heads.join(", ")))));
        shared.learn(&rows);
        let found = shared.snapshot(0);
        assert_eq!(own.dictionary, found.dictionary, "the comparison is one of equal dictionaries");
        // A head is not tracked, and neither is the base.
        let expected = own.evaluate(&STATES, Ask { base: true, ..Ask::VARIANCE }).unwrap();
        let name = format!("h{}", discounts[k]);
        let found = mean_and_variance(&found, &name, &STATES);
        let (mean, variance) = found.split_at(STATES.len());
        assert_close(&name, mean, expected.mean.as_slice());
        let expected = expected.variance.unwrap();
        if own.tracked.is_some() {
            // Which adds to the variance of V how far base and trackers differ.
            let wider = |(head, own): (&f64, &f64)| *head <= own * (1.0 + 1e-9);
            assert!(variance.iter().zip(&expected).all(wider), "{name}: {variance:?}, {expected:?}");
        } else {
            assert_close(&name, variance, &expected);
        }
    }
}

#[test]
fn a_refit_takes_all_heads_along_with_noise_of_their_own() {
    let heads = "heads = [{ name = \"noisy\", cumulant = { kind = \"reward\", index = 0 }, discount = 0.8 }, \
                 { name = \"exact\", cumulant = { kind = \"state\", index = 0 }, discount = 0.0 }]\n";
    let quick = QUICK.replace("refit_first_rows = 0", "refit_first_rows = 500\nevidence_rows = 150\nsearch_starts = 2");
    // Whether a split pays here is a near tie, which the processor's instructions decide.
    let text = format!("[[critic]]\nname = \"main\"\ndiscount = 0.8\nheads_split = \"never\"\n{quick}{heads}");
    let mut harness = Harness::new(config(&text));
    let rows = walk(7, 800);
    let (first, then) = rows.split_at(rows.len() / 2);
    harness.learn(first);
    let late = json!({"name": "late", "cumulant": {"kind": "constant", "value": 1.0}, "discount": 0.5});
    assert_eq!(harness.change(&[late], &[])["ok"], true);
    // The rebuild is not carried out: the refit alone makes the head.
    harness.tasks.clear();
    harness.learn(then);
    let found = harness.snapshot(0);
    assert!(found.generation > 1, "a refit was adopted");
    let heads = found.heads.as_ref().unwrap();
    let place = |name: &str| heads.position(name).unwrap();
    let noise = |name: &str| heads.noise_variance(place(name));
    assert!(noise("exact") < 0.1 * noise("noisy"), "{} {}", noise("exact"), noise("noisy"));
    // Constants of 1 sum to 2 where episodes go on.
    let says = mean_and_variance(&found, "late", &STATES);
    assert!(says[..5].iter().all(|mean| (mean - 2.0).abs() < 0.7), "{says:?}");
    let state = harness.state();
    harness.crash();
    assert!(harness.state() == state);
}

/// Rows between independent states of two variables in [-1, 1]. Their rewards are `reward` of the first variable, which the critic
/// learns, and sin(6 x) of the second.
fn two_variables(rows: usize, reward: fn(f64) -> f64) -> Vec<Batch> {
    let mut rng = ChaCha8Rng::seed_from_u64(17);
    let states: Vec<f64> = (0..2 * (rows + 1)).map(|_| rng.random_range(-1.0..1.0)).collect();
    let part = |from: usize| {
        let states = states[2 * from..2 * (from + 101)].to_vec();
        let rewards = states.chunks_exact(2).take(100).flat_map(|x| [reward(x[0]), (6.0 * x[1]).sin()]).collect();
        let (stream, session) = ("two".to_owned(), "run".to_owned());
        let seq = Some(from as u64);
        let parts =
            BatchParts { stream, session, seq, dim: 2, rewards_per_row: 2, states, rewards, ..BatchParts::default() };
        Batch::new(parts).unwrap()
    };
    (0..rows).step_by(100).map(part).collect()
}

/// Mean square of `found` less `expected`, over the variance of these.
fn unexplained(found: &[f64], expected: &[f64]) -> f64 {
    let mean = expected.iter().sum::<f64>() / expected.len() as f64;
    let square = |of: &mut dyn Iterator<Item = f64>| of.map(|v| v * v).sum::<f64>();
    square(&mut found.iter().zip(expected).map(|(a, b)| a - b)) / square(&mut expected.iter().map(|v| v - mean))
}

#[test]
fn a_refit_selects_the_kernel_by_the_heads_too() {
    let heads = "heads = [{ name = \"second\", cumulant = { kind = \"reward\", index = 1 }, discount = 0.0 }]\n";
    let refits =
        "warmup_rows = 32\nrefit_first_rows = 1000\nevidence_rows = 200\nsearch_starts = 2\ndictionary_max = 120\n";
    let states: Vec<f64> =
        (0..400).map(|k| -0.95 + 0.1 * f64::from(if k % 2 == 0 { k / 2 % 20 } else { k / 40 })).collect();
    let second: Vec<f64> = states.chunks_exact(2).map(|x| (6.0 * x[1]).sin()).collect();
    let first: Vec<f64> = states.chunks_exact(2).map(|x| x[0].sin()).collect();
    for (selection, reward) in [("returns", f64::sin as fn(f64) -> f64), ("evidence", f64::sin), ("returns", |_| 0.0)] {
        let text = format!(
            "[[critic]]\nname = \"main\"\ndiscount = 0.5\nrewards = [0]\nselection = \"{selection}\"\nheads_split = \"never\"\n\
             {refits}{heads}"
        );
        let mut harness = Harness::new(config(&text));
        harness.learn(&two_variables(3000, reward));
        let found = harness.snapshot(0);
        let last = &harness.core.status(NOW).critics[0].refit.last;
        assert!(found.generation > 1 && !found.provisional, "{selection}: generation {}, {last:?}", found.generation);
        let says = mean_and_variance(&found, "second", &states);
        let left = unexplained(&says[..second.len()], &second);
        assert!(left < 0.002, "{selection}: {left}");
        let relevance = found.hyperparameters.kernel.metric.relevance(2);
        let values = found.evaluate(&states, Ask::MEAN).unwrap().mean;
        if reward(1.0) == 0.0 {
            assert!(relevance[1] > 10.0 * relevance[0], "the head alone chooses: {relevance:?}");
            assert!(values.iter().all(|v| *v == 0.0), "{values}");
        } else {
            // The states that follow do not depend on this one.
            let left = unexplained(values.as_slice(), &first);
            assert!(left < 0.1, "{selection}: {left} of the value");
        }
        let state = harness.state();
        harness.crash();
        assert!(harness.state() == state, "{selection}");
    }
}

/// Sums of the largest numbers overflow.
#[test]
fn a_head_that_cannot_be_solved_for_takes_no_other_along() {
    let heads = "heads = [{ name = \"huge\", cumulant = { kind = \"constant\", value = 1e308 }, discount = 0.9 }, \
                 { name = \"near\", cumulant = { kind = \"reward\", index = 0 }, discount = 0.5 }]\n";
    let mut harness = Harness::new(config(&format!("[[critic]]\nname = \"main\"\n{QUICK}{heads}")));
    harness.learn(&walk(7, 300));
    let found = harness.snapshot(0);
    let names: Vec<&str> = found.heads.iter().flat_map(|of| &of.heads).map(|head| head.name.as_str()).collect();
    assert_eq!(names, ["near"]);
    assert!(mean_and_variance(&found, "near", &STATES).iter().all(|v| v.is_finite()));
    assert_eq!(harness.core.status(NOW).critics[0].heads.as_ref().unwrap().unsolved, 1);
}

/// Noise and scale are chosen and refits go on for all heads but those whose sums overflow or whose noise is infinite beside them.
#[test]
fn tuning_and_refits_go_on_beside_heads_that_cannot_be_solved_for() {
    let sound = "{ name = \"far\", cumulant = { kind = \"reward\", index = 0 }, discount = 0.9 }, \
                 { name = \"place\", cumulant = { kind = \"state\", index = 0 }, discount = 0.9 }";
    let unsound = "{ name = \"huge\", cumulant = { kind = \"constant\", value = 1e308 }, discount = 0.9 }, \
                   { name = \"square\", cumulant = { kind = \"constant\", value = 1e200 }, discount = 0.9 }, \
                   { name = \"blind\", cumulant = { kind = \"reward\", index = 0 }, discount = 0.9, signal = 1e-300, noise_variance = 1e300 }";
    let quick = QUICK.replace("refit_first_rows = 0", "refit_first_rows = 500\nevidence_rows = 150\nsearch_starts = 2");
    let text = |heads: &str| {
        format!("[[critic]]\nname = \"main\"\ndiscount = 0.8\nheads_split = \"never\"\n{quick}heads = [{heads}]\n")
    };
    let rows = walk(7, 800);
    let (first, then) = rows.split_at(20);
    let mut alone = Harness::new(config(&text(sound)));
    let mut beside = Harness::new(config(&text(&format!("{unsound}, {sound}"))));
    alone.learn(first);
    beside.learn(first);
    let (expected, found) = (alone.snapshot(0), beside.snapshot(0));
    for name in ["far", "place"] {
        assert_close(name, &mean_and_variance(&found, name, &STATES), &mean_and_variance(&expected, name, &STATES));
        let noise =
            |snapshot: &Snapshot| snapshot.heads.as_ref().map(|of| of.noise_variance(of.position(name).unwrap()));
        assert!((noise(&found).unwrap() / noise(&expected).unwrap() - 1.0).abs() < 1e-6, "{name}");
    }
    let verified = |harness: &Harness| harness.core.status(NOW).critics[0].heads.as_ref().unwrap().clone();
    assert_eq!(verified(&beside).unsolved, 3);
    beside.learn(then);
    let found = beside.snapshot(0);
    let last = &beside.core.status(NOW).critics[0].refit.last;
    assert!(found.generation > 1, "a refit was adopted: {last:?}");
    let listed = beside.ask(Op::Heads { critic: None, names: None, from: 0 });
    let marked: Vec<&Value> =
        listed["heads"].as_array().unwrap().iter().filter(|head| head["unsolved"] == true).collect();
    let names: Vec<&str> = marked.iter().map(|head| head["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["huge", "square", "blind"]);
    let status = wire::to_json(&wire::encode_status(&beside.core.status(NOW))).unwrap();
    assert!(status["critics"][0]["heads"]["unexplained_max"].as_f64().is_none_or(f64::is_finite), "{status}");
    let state = beside.state();
    beside.crash();
    assert!(beside.state() == state);
}

/// A head of any kind that rows of a walk with one reward can teach.
fn any_head(rng: &mut ChaCha8Rng, name: &str) -> Value {
    let cumulant = match rng.random_range(0..5) {
        0 => json!({"kind": "reward", "index": 0}),
        1 => json!({"kind": "state", "index": 0}),
        2 => json!({"kind": "next_state", "index": 0}),
        3 => json!({"kind": "constant", "value": 1.0}),
        _ => json!({"kind": "event", "index": 0, "above": 0.5}),
    };
    let discount = [0.0, 0.5, 0.8, 0.95][rng.random_range(0..4)];
    let mut head = json!({"name": name, "cumulant": cumulant, "discount": discount});
    if rng.random_range(0..4) == 0 {
        head["continuation"] = json!({"kind": "inside", "index": 0, "low": 0.2, "high": 0.9, "outside": 0.25});
        head["terminal_reward"] = json!(2.0);
    }
    if rng.random_range(0..2) == 0 {
        head["noise_variance"] = json!(0.5);
    }
    head
}

#[test]
fn late_heads_are_as_if_they_had_always_been_there() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let all: Vec<Value> = (0..12)
        .map(|k| {
            let mut head = any_head(&mut rng, &format!("h{k}"));
            head["noise_variance"] = json!(0.5);
            head
        })
        .collect();
    let toml = |heads: &[Value]| {
        let heads: Vec<String> = heads.iter().map(|head| toml::Value::try_from(head).unwrap().to_string()).collect();
        config(&format!("[[critic]]\nname = \"main\"\n{QUICK}heads = [{}]\n", heads.join(", ")))
    };
    let (mut always, mut late) = (Harness::new(toml(&all)), Harness::new(toml(&all[..3])));
    for (k, batches) in walk(2, 1600).chunks(20).enumerate() {
        always.learn(batches);
        late.learn(batches);
        if k == 1 {
            assert_eq!(late.change(&all[3..7], &[])["ok"], true);
            // Rows go on arriving before it is learned; they answer that they learn.
            let learning = late.core.board().learning(0);
            assert_eq!((learning.names.len(), learning.share), (4, 0.0));
        }
        if k == 2 {
            while late.work() {}
            assert_eq!(late.core.board().learning(0).names.len(), 0);
            assert_eq!(late.change(&all[7..], &[])["ok"], true);
        }
    }
    while late.work() {}
    assert_eq!(late.whole, 0, "the heads alone were learned");
    let (always, late) = (always.snapshot(0), late.snapshot(0));
    assert_eq!(late.heads.as_ref().unwrap().heads.len(), all.len());
    for k in 0..all.len() {
        let of = |snapshot: &Snapshot| mean_and_variance(snapshot, &format!("h{k}"), &STATES);
        assert_close(&format!("head {k}"), &of(&late), &of(&always));
    }
}

/// A reward that is labelled anew while rows arrive is learned from all of them.
#[test]
fn a_late_expression_is_the_reward_that_the_rows_would_have_carried() {
    let given = "heads = [{ name = \"carried\", cumulant = { kind = \"reward\", index = 0 }, discount = 0.8, noise_variance = 0.5 }]\n";
    let mut harness = Harness::new(about_zero(&format!("[[critic]]\nname = \"main\"\n{QUICK}{given}")));
    harness.learn(&walk(9, 600));
    let late = |name: &str, text: &str| {
        let cumulant = json!({"kind": "expression", "text": text});
        json!({"name": name, "cumulant": cumulant, "discount": 0.8, "noise_variance": 0.5})
    };
    // The same number, written in another way.
    let add = [late("same", "3*reward - 2*reward[0] + 0.5*state[0] - state[0]/2"), late("other", "state[0] - 1")];
    assert_eq!(harness.change(&add, &[])["ok"], true);
    while harness.work() {}
    let listed = harness.ask(Op::Heads { critic: None, names: Some(vec!["other".into()]), from: 0 });
    assert_eq!(listed["heads"][0]["cumulant"], json!({"kind": "expression", "text": "state[0] - 1"}));
    let found = harness.snapshot(0);
    let (same, carried) = (mean_and_variance(&found, "same", &STATES), mean_and_variance(&found, "carried", &STATES));
    let scale = carried.iter().fold(1f64, |s, v| s.max(v.abs()));
    assert!(same.iter().zip(&carried).all(|(a, b)| (a - b).abs() < 1e-12 * scale), "{same:?} {carried:?}");
    let before = harness.state();
    harness.crash();
    assert!(harness.state() == before);
    let refused = harness.change(&[late("wide", "reward[3]")], &[]);
    assert!(refused["error"]["message"].as_str().unwrap().contains("cumulant.text"), "{refused}");
}

#[test]
fn crashes_among_a_thousand_heads_that_come_and_go_change_no_bit() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut first: Vec<Value> = (0..1000).map(|k| any_head(&mut rng, &format!("c{k}"))).collect();
    first.iter_mut().for_each(|head| drop(head.as_object_mut().unwrap().remove("noise_variance")));
    let heads: Vec<String> = first.iter().map(|head| toml::Value::try_from(head).unwrap().to_string()).collect();
    let text = format!("checkpoint_rows = 300\n[[critic]]\nname = \"main\"\n{QUICK}heads = [{}]\n", heads.join(", "));
    let config = config(&text);
    let mut plain = Harness::new(Arc::clone(&config));
    let (mut added, mut names, mut crashes) = (Vec::new(), 0, 0);
    for batch in walk(3, 900) {
        plain.ingest(&batch);
        match rng.random_range(0..8) {
            0 => {
                let new: Vec<Value> = (0..rng.random_range(1..4))
                    .map(|_| {
                        names += 1;
                        any_head(&mut rng, &format!("a{names}"))
                    })
                    .collect();
                assert_eq!(plain.change(&new, &[])["ok"], true);
                added.extend(new.iter().map(|head| head["name"].as_str().unwrap().to_owned()));
            }
            1 if !added.is_empty() => {
                let gone = added.swap_remove(rng.random_range(0..added.len()));
                assert_eq!(plain.change(&[], &[gone])["ok"], true);
            }
            2 | 3 => {
                plain.work();
            }
            4 => {
                plain.checkpoint();
            }
            _ => {}
        }
        plain.turn();
        if rng.random_range(0..6) == 0 {
            let before = plain.state();
            plain.crash();
            crashes += 1;
            assert!(plain.state() == before, "crash {crashes} at row {}", plain.core.offset());
        }
    }
    assert!(crashes > 3 && added.len() > 3, "{crashes} {}", added.len());
    while plain.work() {}
    plain.crash();
    while plain.work() {}
    let snapshot = plain.snapshot(0);
    let heads = snapshot.heads.as_ref().unwrap();
    assert_eq!(heads.heads.len(), 1000 + added.len());
    assert!(added.iter().all(|name| heads.position(name).is_some()));
    let status = plain.core.status(NOW);
    let said = status.critics[0].heads.as_ref().unwrap();
    assert_eq!((said.count, said.added, said.learning), (heads.heads.len() as u64, added.len() as u64, 0));
}

#[test]
fn a_head_without_discount_has_that_of_its_critic() {
    let list = "heads = [{ name = \"a\", cumulant = { kind = \"reward\", index = 0 } }, \
                { name = \"b\", cumulant = { kind = \"reward\", index = 0 }, timescale = 2.0 }]";
    // Wherever the discount is set.
    for (text, expected) in [
        (format!("[[critic]]\n{list}\ndiscount = 0.75\n"), 0.75),
        (format!("[[critic]]\ndiscount = 0.75\n{list}\n"), 0.75),
        (format!("[[critic]]\n{list}\n"), Settings::default().discount),
    ] {
        let config = Config::from_toml(&text).unwrap();
        let rates: Vec<Rate> = config.critics[0].heads.iter().map(|head| head.rate).collect();
        assert_eq!(rates, [Rate::Discount(expected), Rate::Timescale(2.0)]);
        // Written and read it is the same.
        assert_eq!(Config::from_toml(&config.print()).unwrap().critics[0].heads, config.critics[0].heads);
    }
}

#[test]
fn heads_that_are_wrong_are_refused_with_the_field() {
    let head = |more: &str| {
        let text = format!("state_dim = 2\n[[critic]]\nheads = [{{ name = \"a\", {more} }}]\n");
        Config::from_toml(&text).map(drop).unwrap_err().to_string()
    };
    let reward = "cumulant = { kind = \"reward\", index = 0 }";
    for (more, words) in [
        (
            "cumulant = { kind = \"reward\", indx = 0 }, discount = 0.5".to_owned(),
            vec!["heads[0] (a)", "cumulant", "indx"],
        ),
        (
            "cumulant = { kind = \"state\", index = 2 }, discount = 0.5".to_owned(),
            vec!["heads[0] (a)", "cumulant.index", "2 state variables"],
        ),
        (format!("{reward}, discount = 1.5"), vec!["heads[0] (a)", "discount", "1.5"]),
        (format!("{reward}, timescale = 0.0"), vec!["timescale"]),
        (format!("{reward}, discount = 0.5, timescale = 1.0"), vec!["timescale", "not both"]),
        (
            format!("{reward}, discount = 0.5, continuation = {{ kind = \"constant\", value = 2.0 }}"),
            vec!["continuation.value"],
        ),
        (format!("{reward}, discount = 0.5, noise_variance = -1.0"), vec!["noise_variance"]),
        (format!("{reward}, discount = 0.5, gamma = 1.0"), vec!["gamma"]),
    ] {
        let error = head(&more);
        words.iter().for_each(|word| assert!(error.contains(word), "{word}: {error}"));
    }
    let white = "[[critic]]\nnoise = \"white\"\nheads = [{ name = \"a\", cumulant = { kind = \"constant\", value = 1.0 }, discount = 0.5 }]\n";
    assert!(Config::from_toml(white).unwrap_err().to_string().contains("correlated"));

    let given = "heads = [{ name = \"given\", cumulant = { kind = \"constant\", value = 1.0 }, discount = 0.5 }]\n";
    let mut harness = Harness::new(config(&format!("[[critic]]\nname = \"main\"\n{QUICK}{given}")));
    harness.learn(&walk(4, 100));
    let constant = |name: &str| json!({"name": name, "cumulant": {"kind": "constant", "value": 1.0}});
    let mut refused = |add: Vec<Value>, remove: &[&str]| {
        let remove: Vec<String> = remove.iter().map(|&name| name.to_owned()).collect();
        let reply = harness.change(&add, &remove);
        assert_eq!(reply["ok"], false, "{reply}");
        (reply["error"]["field"].as_str().unwrap().to_owned(), reply["error"]["message"].as_str().unwrap().to_owned())
    };
    let timescale = json!({"name": "t", "cumulant": {"kind": "reward", "index": 0}, "timescale": 1.0});
    let action = json!({"name": "t", "cumulant": {"kind": "action", "index": 1}});
    let column = json!({"name": "t", "cumulant": {"kind": "reward", "index": 1}});
    for (found, field, words) in [
        (refused(vec![constant("given")], &[]), "add", "given already"),
        (refused(vec![constant("x"), constant("x")], &[]), "add", "x already"),
        (refused(vec![timescale], &[]), "add", "no time"),
        (refused(vec![action], &[]), "add", "1 numbers in an action"),
        (refused(vec![column], &[]), "add", "cumulant.index"),
        (refused(vec![], &["nothing"]), "remove", "no head \"nothing\""),
        (refused(vec![], &["given"]), "remove", "configuration"),
    ] {
        assert_eq!((found.0.as_str(), found.1.contains(words)), (field, true), "{found:?}");
    }
    let listed = harness.ask(Op::Heads { critic: None, names: None, from: 0 });
    assert_eq!(listed["heads"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!((&listed["heads"][0]["name"], &listed["heads"][0]["added"]), (&json!("given"), &json!(false)));
}

#[test]
fn rows_that_lack_what_heads_ask_are_refused_with_the_field() {
    let heads = "heads = [{ name = \"soon\", cumulant = { kind = \"reward\", index = 0 }, timescale = 2.0 }]\n";
    let mut harness = Harness::new(config(&format!("[[critic]]\nname = \"main\"\n{QUICK}{heads}")));
    let rows = walk(5, 40);
    let reply = harness.ask(Op::Append(rows[0].clone()));
    assert_eq!(
        (&reply["error"]["code"], &reply["error"]["field"]),
        (&json!("missing_field"), &json!("times")),
        "{reply}"
    );
    let mut offset = 0.0;
    for batch in rows {
        harness.learn(&[timed(batch, &mut offset)]);
    }
    assert!(mean_and_variance(&harness.snapshot(0), "soon", &STATES).iter().all(|v| v.is_finite()));
    let state = harness.state();
    harness.crash();
    assert!(harness.state() == state);
}

/// The same rows a tenth of a second apart.
fn timed(batch: Batch, offset: &mut f64) -> Batch {
    let times = (0..batch.len()).map(|i| 1e9 + *offset + 0.1 * i as f64).collect();
    *offset += 0.1 * batch.len() as f64;
    Batch::new(BatchParts { times: Some(times), ..batch.into_parts() }).unwrap()
}

fn late_head(name: &str) -> Value {
    json!({"name": name, "cumulant": {"kind": "reward", "index": 0}, "discount": 0.5})
}

#[test]
fn a_head_says_from_which_row_on_it_learns() {
    let given = "heads = [{ name = \"given\", cumulant = { kind = \"reward\", index = 0 }, discount = 0.5 }]\n";
    let rows = walk(7, 400);
    let (first, then) = rows.split_at(rows.len() / 2);
    let count = first.iter().map(|batch| batch.len() as u64).sum::<u64>();
    // Of each head its name, its first row, and whether it learns.
    let listed = |harness: &mut Harness| -> Vec<(String, Option<u64>, bool)> {
        let reply = harness.ask(Op::Heads { critic: None, names: None, from: 0 });
        let of = |head: &Value| {
            let name = head["name"].as_str().unwrap().to_owned();
            (name, head["first_row"].as_u64(), !head["learning"].is_null())
        };
        reply["heads"].as_array().unwrap().iter().map(of).collect()
    };
    let head = |name: &str, first_row: Option<u64>, learns: bool| (name.to_owned(), first_row, learns);
    for (on_new_policy, known) in [("restart", true), ("discount", false)] {
        let text = format!("[[critic]]\nname = \"main\"\non_new_policy = \"{on_new_policy}\"\n{QUICK}{given}");
        let mut harness = Harness::new(config(&text));
        harness.learn(first);
        assert_eq!(harness.change(&[late_head("late")], &[])["ok"], true);
        assert_eq!(listed(&mut harness), [head("given", Some(0), false), head("late", Some(0), true)]);
        while harness.work() {}
        assert_eq!(listed(&mut harness), [head("given", Some(0), false), head("late", Some(0), false)]);
        // The model begins again with the next row, or earlier rows count less, and none is the first as they are.
        assert_eq!(harness.ask(Op::NewPolicy { critic: None, policy: None })["ok"], true);
        harness.learn(then);
        let first_row = known.then_some(count);
        let both = [head("given", first_row, false), head("late", first_row, false)];
        assert_eq!(listed(&mut harness), both, "{on_new_policy}");
        if known {
            let found = harness.snapshot(0);
            assert_eq!(found.offset - found.transitions, count);
            assert_eq!(harness.change(&[late_head("later")], &[])["ok"], true);
            assert_eq!(listed(&mut harness)[2], head("later", Some(count), true));
        }
        let before = listed(&mut harness);
        harness.crash();
        assert_eq!(listed(&mut harness), before, "{on_new_policy}");
    }
}

#[test]
fn a_head_that_old_rows_cannot_teach_does_not_hold_up_others() {
    let mut harness = Harness::new(config(&format!("window_rows = 1000\n[[critic]]\nname = \"main\"\n{QUICK}")));
    let mut offset = 0.0;
    harness.learn(&walk(7, 300));
    for batch in walk(8, 8300) {
        harness.learn(&[timed(batch, &mut offset)]);
    }
    let soon = json!({"name": "soon", "cumulant": {"kind": "reward", "index": 0}, "timescale": 2.0});
    let reply = harness.change(&[soon], &[]);
    assert_eq!(reply["ok"], true, "the window has times: {reply}");
    while harness.work() {}
    let failed = harness.core.status(NOW).critics[0].rebuild.clone().and_then(|rebuild| rebuild.failed).unwrap();
    assert!(failed.contains("row 0") && failed.contains("times"), "{failed}");
    for name in ["first", "second"] {
        assert_eq!(harness.change(&[late_head(name)], &[])["ok"], true);
        assert_eq!(harness.tasks.len(), 1, "{name}");
        while harness.work() {}
        assert_eq!(harness.core.board().learning(0).names, ["soon"]);
        assert!(mean_and_variance(&harness.snapshot(0), name, &STATES).iter().all(|v| v.is_finite()));
    }
    let failed = harness.core.status(NOW).critics[0].rebuild.clone().and_then(|rebuild| rebuild.failed);
    assert!(failed.is_none_or(|why| why.contains("soon")));
    // Asked in another way it can be learned.
    assert_eq!(harness.change(&[late_head("soon")], &["soon".to_owned()])["ok"], true);
    while harness.work() {}
    assert!(harness.core.board().learning(0).names.is_empty());
}

#[test]
fn a_rebuild_for_heads_does_not_undo_a_refit() {
    let refits = QUICK.replace("refit_first_rows = 0", "refit_first_rows = 100000\nrefit_budget_s = 5.0");
    let mut harness = Harness::new(config(&format!("[[critic]]\nname = \"main\"\ndiscount = 0.8\n{refits}")));
    let rows = walk(7, 1200);
    let (first, then) = rows.split_at(10);
    harness.learn(first);
    harness.ask(Op::Refit { critic: None, wait: false });
    harness.turn();
    let before = harness.snapshot(0);
    assert!(before.generation > 1, "a kernel was selected");
    harness.learn(then);
    // A second refit begins, then a head comes, and the refit is adopted while its rebuild runs.
    harness.call(Op::Refit { critic: None, wait: false });
    harness.core.step(NOW);
    let refit = harness.core.take_outputs().find_map(|output| match output {
        Output::Refit { critic, job, .. } => Some((critic, job)),
        _ => None,
    });
    let (critic, job) = refit.expect("a refit has begun");
    assert_eq!(harness.change(&[late_head("late")], &[])["ok"], true);
    let result = refit::run(&job, &|| true).map_err(|e| e.to_string());
    harness.core.refit_done(RefitDone { critic, result, seconds: 0.0 });
    harness.turn();
    harness.turn();
    let adopted = harness.snapshot(0);
    assert!(adopted.generation > before.generation, "a refit was adopted");
    assert_ne!(adopted.dictionary, before.dictionary);
    while harness.work() {}
    let found = harness.snapshot(0);
    assert!(found.heads.as_ref().is_some_and(|heads| heads.position("late").is_some()));
    assert_eq!((&found.dictionary, &found.weights), (&adopted.dictionary, &adopted.weights), "the refit stays");
    assert_eq!((found.generation, harness.whole), (adopted.generation, 0));
}

#[test]
fn a_head_is_ready_or_learning_at_any_moment() {
    let mut harness = Harness::new(config(&format!("[[critic]]\nname = \"main\"\n{QUICK}")));
    harness.learn(&walk(7, 400));
    assert_eq!(harness.change(&[late_head("late")], &[])["ok"], true);
    let Some(Output::Rebuild(job)) = harness.tasks.pop_front() else { panic!("a rebuild") };
    let mut storage = MemoryStorage::on(Arc::clone(&harness.disk));
    let result = job.run(&mut storage, &|| true).map(Box::new);
    harness.core.rebuild_done(RebuildDone { critic: "main".to_owned(), result, seconds: 0.0 });
    harness.core.step(NOW);
    harness.core.tick(NOW);
    let board = harness.core.board();
    assert!(board.get(0).unwrap().heads.is_none(), "the snapshot is of before");
    assert_eq!((&board.learning(0).names[..], board.learning(0).share), (&["late".to_owned()][..], 1.0));
    harness.turn();
    assert!(harness.snapshot(0).heads.is_some() && board.learning(0).names.is_empty());
}

#[test]
fn a_rebuild_that_is_not_needed_any_more_does_not_begin() {
    let critic = |name: &str| format!("[[critic]]\nname = \"{name}\"\n{QUICK}");
    let mut harness = Harness::new(config(&format!("{}{}", critic("one"), critic("two"))));
    harness.learn(&walk(7, 400));
    let change = |harness: &mut Harness, critic: &str, add: &[Value], remove: &[&str]| {
        let add = add.iter().map(|head| serde_json::from_value::<HeadForm>(head.clone()).unwrap()).collect();
        let remove = remove.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(
            harness.ask(Op::ChangeHeads { critic: Some(critic.to_owned()), add, remove, labels: None })["ok"],
            true
        );
    };
    let allowed = |harness: &Harness| harness.core.footprint().unwrap().models[1].bytes;
    let before = allowed(&harness);
    change(&mut harness, "one", &[late_head("late")], &[]);
    change(&mut harness, "two", &[late_head("late")], &[]);
    assert!(allowed(&harness) > before, "heads that come at run time take memory");
    change(&mut harness, "two", &[], &["late"]);
    assert_eq!((harness.tasks.len(), allowed(&harness)), (1, before));
    let generation = harness.snapshot(1).generation;
    assert!(harness.work());
    while harness.work() {}
    assert_eq!(harness.snapshot(1).generation, generation);
    let status = harness.core.status(NOW);
    assert!(status.critics[0].heads.is_some() && status.critics[1].rebuild.is_none());
}

#[test]
fn only_the_heads_that_subscribers_ask_for_are_published() {
    let heads = "heads = [{ name = \"near\", cumulant = { kind = \"reward\", index = 0 }, discount = 0.5 }, \
                 { name = \"far\", cumulant = { kind = \"reward\", index = 0 }, discount = 0.9, noise_variance = 0.5 }]\n";
    let mut harness = Harness::new(config(&format!("[[critic]]\nname = \"main\"\n{QUICK}{heads}")));
    let published = |harness: &mut Harness, uptime: f64, asked: &[&str]| -> Vec<(String, Value)> {
        let now = Now { uptime, ..NOW };
        harness.core.heads_are_asked(asked.iter().map(|&topic| topic.to_owned()).collect());
        harness.core.refresh(now, &|| now);
        let of = |output| match output {
            Output::Publish(of) => Some((of.topic, wire::to_json(&of.payload).unwrap())),
            _ => None,
        };
        harness.core.take_outputs().filter_map(of).collect()
    };
    harness.learn(&walk(7, 300));
    let topics = |found: &[(String, Value)]| found.iter().map(|(topic, _)| topic.clone()).collect::<Vec<_>>();
    let rows = walk(8, 60);
    for batch in rows {
        harness.ingest(&batch);
        harness.core.step(NOW);
    }
    let found = published(&mut harness, 10.0, &[]);
    assert_eq!(topics(&found), ["snapshot.main"]);
    let found = published(&mut harness, 10.2, &["head.main.far", "head.main.none", "head.other.far"]);
    assert_eq!(topics(&found), ["weights.main", "head.main.far"]);
    let (critic, far) = (&found[0].1, &found[1].1);
    // Its first publication is whole; the next ones are what the critic's are.
    assert_eq!((&far["type"], &far["head"], &far["critic"]), (&json!("snapshot"), &json!("far"), &json!("main")));
    assert_eq!((&far["revision"], &far["run"]), (&critic["revision"], &critic["run"]));
    assert_eq!((far["discount"].as_f64(), far["noise"]["variance"].as_f64()), (Some(0.9), Some(0.5)));
    let found = published(&mut harness, 10.4, &["head.main.far", "head.main.near"]);
    assert_eq!(topics(&found), ["weights.main", "head.main.far", "head.main.near"]);
    assert_eq!((&found[1].1["type"], &found[2].1["type"]), (&json!("weights"), &json!("snapshot")));
    // It says what the bank says.
    let (board, payload) =
        (harness.snapshot(0), wire::encode_values(&harness.snapshot(0).head_alone(1, true), ArrayForm::Tensor, true));
    let alone = wire::decode_snapshot(&payload).unwrap().evaluate(&STATES, Ask::ALL).unwrap();
    let (of_head, variance) = (mean_and_variance(&board, "far", &STATES), alone.variance.unwrap());
    assert_close("far", &[alone.mean.as_slice(), &variance].concat(), &of_head);
    let returns: Vec<f64> = variance.iter().map(|v| board.heads.as_ref().unwrap().return_variance(1, *v)).collect();
    assert_close("its returns", alone.return_variance.unwrap().as_slice(), &returns);
    let many: Vec<String> = (0..40).map(|k| format!("head.main.{k:02}")).chain(["head.main.near".to_owned()]).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(topics(&published(&mut harness, 12.0, &many)), ["snapshot.main"], "sixteen are looked at");
}

/// A subscriber must not add the weights of another question to what it has.
#[test]
fn a_head_that_has_come_back_as_another_is_published_whole() {
    let mut harness = Harness::new(config(&format!("[[critic]]\nname = \"main\"\n{QUICK}")));
    harness.learn(&walk(7, 300));
    let head = |discount: f64| json!({"name": "far", "cumulant": {"kind": "reward", "index": 0}, "discount": discount});
    assert_eq!(harness.change(&[head(0.9)], &[])["ok"], true);
    while harness.work() {}
    let mut rows = walk(8, 200).into_iter();
    let mut published = |harness: &mut Harness, uptime: f64| -> (Value, Value, Value) {
        harness.ingest(&rows.next().unwrap());
        harness.core.step(NOW);
        harness.core.heads_are_asked(vec!["head.main.far".to_owned()]);
        let now = Now { uptime, ..NOW };
        harness.core.refresh(now, &|| now);
        let of = |output| match output {
            Output::Publish(of) if of.topic == "head.main.far" => Some(wire::to_json(&of.payload).unwrap()),
            _ => None,
        };
        let found: Vec<Value> = harness.core.take_outputs().filter_map(of).collect();
        assert_eq!(found.len(), 1, "at {uptime}");
        (found[0]["type"].clone(), found[0]["discount"].clone(), found[0]["generation"].clone())
    };
    let first = published(&mut harness, 10.0);
    assert_eq!((&first.0, &first.1), (&json!("snapshot"), &json!(0.9)));
    assert_eq!(published(&mut harness, 10.2).0, "weights");
    // Nothing is published meanwhile: the clock of the harness stands before.
    assert_eq!(harness.change(&[head(0.5)], &["far".to_owned()])["ok"], true);
    while harness.work() {}
    let back = published(&mut harness, 10.4);
    assert_eq!((&back.0, &back.1, &back.2), (&json!("snapshot"), &json!(0.5), &first.2));
    assert_eq!(published(&mut harness, 10.6).0, "weights");
}

#[test]
fn a_configuration_with_six_thousand_heads_starts_and_prints_itself() {
    let mut rng = ChaCha8Rng::seed_from_u64(13);
    let heads: Vec<String> =
        (0..6000).map(|k| toml::Value::try_from(any_head(&mut rng, &format!("h{k}"))).unwrap().to_string()).collect();
    let config = config(&format!("[[critic]]\nname = \"main\"\n{QUICK}heads = [{}]\n", heads.join(",\n")));
    assert_eq!(Config::from_toml(&config.print()).unwrap(), *config);
    let mut harness = Harness::new(config);
    harness.learn(&walk(6, 200));
    let found = harness.snapshot(0);
    assert_eq!(found.heads.as_ref().unwrap().heads.len(), 6000);
    let status = wire::to_json(&wire::encode_status(&harness.core.status(NOW))).unwrap();
    assert_eq!(status["critics"][0]["heads"]["count"], 6000);
    // It does not grow with them.
    assert!(!status.to_string().contains("h5999"));
    assert!(wire::encode_values(&found, ArrayForm::Tensor, true).len() < 20_000, "publications carry no heads");
    let allowed = status["memory"]["models"][0]["bytes_max"].as_u64().unwrap();
    let used = status["critics"][0]["heads"]["bytes"].as_u64().unwrap();
    assert!(used < allowed, "{used} bytes of {allowed}");
}

#[test]
fn a_change_that_could_not_be_stored_may_be_sent_again() {
    let mut harness = Harness::new(config(&format!("[[critic]]\n{QUICK}")));
    harness.learn(&walk(3, 200));
    let head = |name: &str| json!({"name": name, "cumulant": {"kind": "constant", "value": 1.0}, "discount": 0.5});
    let (late, other) = (head("late"), head("other"));
    assert_eq!(harness.change(std::slice::from_ref(&other), &[])["ok"], true);
    let refuse_writes = |disk: &Mutex<Disk>| {
        let mut disk = disk.lock();
        disk.failing = Some((disk.operations, u64::MAX - disk.operations));
    };
    let change = |harness: &mut Harness| harness.change(std::slice::from_ref(&late), &["other".to_owned()]);
    refuse_writes(&harness.disk);
    for _ in 0..2 {
        assert_eq!(change(&mut harness)["error"]["code"], "read_only");
    }
    // The group that waited is stored when that is possible again.
    harness.disk.lock().failing = None;
    harness.core.step(Now { uptime: 10.0, ..NOW });
    assert_eq!(harness.core.read_only(), None);
    let answer = change(&mut harness);
    assert_eq!((&answer["ok"], &answer["offset"]), (&json!(true), &json!(200)), "it is in force: {answer}");
    // Said once: this is another request for the same, which is wrong now.
    assert_eq!(change(&mut harness)["error"]["field"], "remove");
    let names = |harness: &mut Harness| {
        let listed = harness.ask(Op::Heads { critic: None, names: None, from: 0 })["heads"].clone();
        listed.as_array().unwrap().iter().map(|head| head["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&mut harness), ["late"]);
    // What has been undone since is not taken for done.
    refuse_writes(&harness.disk);
    assert_eq!(harness.change(std::slice::from_ref(&other), &[])["error"]["code"], "read_only");
    harness.disk.lock().failing = None;
    harness.core.step(Now { uptime: 20.0, ..NOW });
    assert_eq!(harness.change(&[], &["other".to_owned()])["ok"], true);
    assert_eq!(names(&mut harness), ["late"]);
    assert_eq!(harness.change(&[other], &[])["ok"], true);
    assert_eq!(names(&mut harness), ["late", "other"]);
}
