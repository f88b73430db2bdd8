//! Advisors in the daemon: decisions for a context, learned from their costs; a crash anywhere changes no bit of them.

use crate::support::harness::{Harness, NOW, config};
use criticd::config::Config;
use criticd::daemon::memory::Footprint;
use criticd::learner::suggest::Advisor;
use criticd::sim::throw::{target, throw};
use criticd::sim::{self, Step, pendulum::Pendulum};
use criticd::wire::Op;
use criticd_reference::numbers;
use serde_json::{Value, json};

const THROW: &str = "[[advisor]]\nname = \"throw\"\nlengthscales = [1.4]\ncontext_names = [\"distance [m]\"]\nridge = 1\ncost_floor = 0.01\n\
    outputs = [{ name = \"angle\", mean = 0.8, deviation = 0.2, low = 0, high = 1.4 }, { name = \"speed\", mean = 6, deviation = 1.5 }]\n";

fn suggest(harness: &mut Harness, context: &[f64]) -> Value {
    harness.ask(Op::Suggest { advisor: None, context: context.to_vec() })
}

fn report(harness: &mut Harness, id: u64, cost: f64) -> Value {
    harness.ask(Op::Report { advisor: None, decision_id: id, cost })
}

fn fault(reply: &Value) -> (String, String, String) {
    assert_eq!(reply["ok"], false, "{reply}");
    let of = |key: &str| reply["error"][key].as_str().unwrap_or_default().to_owned();
    (of("code"), of("field"), of("message"))
}

/// Distance of target `number`, and the reply to its suggestion; the cost of the throw.
fn thrown(harness: &mut Harness, number: u64) -> (Value, f64, f64) {
    let distance = target(7, number);
    let reply = suggest(harness, &[distance]);
    let decision = numbers(&reply["decision"]);
    let outcome = throw(distance, [decision[0], decision[1]]);
    (reply, outcome.cost, outcome.miss)
}

#[test]
fn throws_become_better_and_a_crash_between_suggest_and_report_changes_nothing() {
    let mut harness = Harness::new(config(THROW));
    let mut library = Advisor::new(harness.config.advisors[0].clone()).unwrap();
    let mut misses = Vec::new();
    for number in 0..120 {
        let (reply, cost, miss) = thrown(&mut harness, number);
        let expected = library.suggest(&[target(7, number)]).unwrap();
        assert_eq!(
            (&reply["decision_id"], &reply["decision"], &reply["mean"], &reply["deviation"], &reply["learned"]),
            (
                &json!(number),
                &json!(expected.decision),
                &json!(expected.mean),
                &json!(expected.deviation),
                &json!(number)
            ),
            "the daemon says what the library says"
        );
        if number % 20 == 3 {
            harness.checkpoint();
        }
        if number % 7 == 0 {
            let before = harness.state();
            harness.crash();
            assert!(harness.state() == before, "after decision {number}");
        }
        assert_eq!(report(&mut harness, number, cost)["learned"], number + 1);
        library.report(number, cost).unwrap();
        misses.push(miss);
    }
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    assert!(mean(&misses[90..]) < 0.5 * mean(&misses[..30]), "{misses:?}");
    let status = harness.core.status(NOW);
    let said = &status.advisors[0];
    assert_eq!((said.name.as_str(), said.decisions, said.waiting, said.learned), ("throw", 120, 0, 120));
    assert_eq!((said.context_names[0].as_str(), said.output_names[1].as_str()), ("distance [m]", "speed"));
    let allowed = Footprint::of(&harness.config, 1, 1).advisors as u64;
    assert!(said.dictionary_size > 3 && said.bytes <= allowed, "{said:?} {allowed}");
}

#[test]
fn requests_of_one_group_are_answered_in_their_order_among_rows() {
    let mut harness = Harness::new(config(THROW));
    let mut pendulum = Pendulum::new(1, 0.3);
    let steps: Vec<Step> = (0..40).map(|_| pendulum.step()).collect();
    sim::batches("pendulum", "", &steps).iter().for_each(|batch| harness.ingest(batch));
    let of = |distance: f64| Op::Suggest { advisor: Some("throw".into()), context: vec![distance] };
    let replies = harness.ask_at_once([2.0, 3.0, 4.0].map(of).into());
    assert_eq!(replies.iter().map(|reply| &reply["decision_id"]).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(harness.core.offset(), 40);
    // The second report of a decision in one group is refused when the group is applied.
    let replies = harness.ask_at_once(vec![
        Op::Report { advisor: None, decision_id: 1, cost: 0.5 },
        Op::Report { advisor: None, decision_id: 1, cost: 0.5 },
        Op::Suggest { advisor: None, context: vec![3.0] },
    ]);
    assert_eq!(replies[0]["learned"], 1);
    assert_eq!(fault(&replies[1]).1, "decision_id");
    assert_eq!((&replies[2]["decision_id"], &replies[2]["learned"]), (&json!(3), &json!(1)));
    let state = harness.state();
    harness.crash();
    assert!(harness.state() == state);
}

#[test]
fn the_oldest_decision_is_given_up_and_limits_hold() {
    let mut harness =
        Harness::new(config(&format!("{}waiting_max = 3\nseed = 5\n", THROW.replace("high = 1.4", "high = 0.9"))));
    let angles: Vec<f64> = (0..200).map(|_| numbers(&suggest(&mut harness, &[5.0])["decision"])[0]).collect();
    assert!(angles.iter().all(|angle| (0.0..=0.9).contains(angle)) && angles.contains(&0.9), "{angles:?}");
    assert_eq!(harness.core.status(NOW).advisors[0].waiting, 3);
    let (code, field, message) = fault(&report(&mut harness, 196, 1.0));
    assert_eq!((code.as_str(), field.as_str()), ("out_of_range", "decision_id"));
    assert!(message.contains("no decision 196 waits"), "{message}");
    assert_eq!(report(&mut harness, 197, 1.0)["learned"], 1);
}

#[test]
fn what_is_wrong_is_refused_with_the_field() {
    let mut harness = Harness::new(config(THROW));
    let first = suggest(&mut harness, &[3.0]);
    assert_eq!(first["decision_id"], 0);
    let before = harness.state();
    for (op, code, field, words) in [
        (Op::Suggest { advisor: None, context: vec![1.0, 2.0] }, "wrong_dimension", "context", "needs 1"),
        (Op::Suggest { advisor: None, context: vec![f64::NAN] }, "out_of_range", "context", "finite"),
        (Op::Suggest { advisor: Some("kick".into()), context: vec![1.0] }, "out_of_range", "advisor", "there is throw"),
        (Op::Report { advisor: None, decision_id: 9, cost: 1.0 }, "out_of_range", "decision_id", "no decision 9"),
        (Op::Report { advisor: None, decision_id: 0, cost: -1.0 }, "out_of_range", "cost", "at least 0"),
        (Op::Report { advisor: None, decision_id: 0, cost: f64::INFINITY }, "out_of_range", "cost", "finite"),
    ] {
        let found = fault(&harness.ask(op));
        assert_eq!((found.0.as_str(), found.1.as_str(), found.2.contains(words)), (code, field, true), "{found:?}");
    }
    assert!(harness.state() == before, "what is refused is not recorded");
    let mut none = Harness::new(config(""));
    let found = fault(&suggest(&mut none, &[1.0]));
    assert!(found.1 == "advisor" && found.2.contains("the settings have none"), "{found:?}");

    for (text, words) in [
        ("name = \"a b\"", "line 2: `advisor[0].name` must be 1 to 64"),
        (
            "lengthscales = [0.0]\noutputs = [{ mean = 0, deviation = 1 }]",
            "line 2: `advisor[0].lengthscales` must be 1 to 256 numbers",
        ),
        ("lengthscales = [1.0]", "`advisor[0].outputs` must be 1 to 256 numbers, are 0"),
        (
            "lengthscales = [1.0]\noutputs = [{ mean = 0, deviation = 0 }]",
            "line 3: `advisor[0].outputs` must each be right, but [0].deviation",
        ),
        ("lengthscales = [1.0]\noutputs = [{ mean = 0, deviation = 1, low = 1 }]", "[0].low: must be at most the mean"),
        ("lengthscales = [1.0]\noutputs = [{ mean = 0, width = 1 }]", "width"),
        ("lengthscale = [1.0]", "did you mean `lengthscales`"),
        ("lengthscales = [1.0]\noutputs = [{ mean = 0, deviation = 1 }]\nridge = 0", "`advisor[0].ridge` must be from"),
        (
            "lengthscales = [1.0]\noutputs = [{ mean = 0, deviation = 1 }]\ncontext_names = [\"a\", \"b\"]",
            "context_names",
        ),
    ] {
        let error = Config::from_toml(&format!("[[advisor]]\n{text}\n")).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
    }
    let error = Config::from_toml(&format!("{THROW}{THROW}")).unwrap_err().to_string();
    assert!(error.contains("`advisor[1].name` must differ"), "{error}");
    let printed = harness.config.print();
    assert_eq!(Config::from_toml(&printed).unwrap(), *harness.config);
}

#[test]
fn settings_that_change_what_is_learned_begin_an_advisor_again_and_others_do_not() {
    let mut harness = Harness::new(config(THROW));
    for number in 0..5 {
        let (_, cost, _) = thrown(&mut harness, number);
        report(&mut harness, number, cost);
    }
    suggest(&mut harness, &[4.0]);
    let learned = |harness: &Harness| {
        let said = &harness.core.status(NOW).advisors;
        said.iter().map(|said| (said.name.clone(), said.learned, said.waiting)).collect::<Vec<_>>()
    };
    let kick = THROW.replace("throw", "kick");
    harness.restart_with(config(&format!("{kick}{THROW}seed = 9\nwaiting_max = 10\n")));
    assert_eq!(learned(&harness), [("kick".into(), 0, 0), ("throw".into(), 5, 1)]);
    let reply = suggest(&mut harness, &[4.0]);
    assert_eq!(reply["learned"], 0, "the first one is meant where none is named");
    harness.restart_with(config(&THROW.replace("[1.4]", "[1.5]")));
    assert_eq!(learned(&harness), [("throw".into(), 0, 0)]);
    let state = harness.state();
    harness.crash();
    assert!(harness.state() == state);
}
