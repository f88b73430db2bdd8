//! Commands that learn where actions lead: `criticd plan`, `criticd rollout` and `criticd evaluate --by model`.

use crate::support::program::Bench;
use criticd::learner::random::{mix, normal, uniform};
use serde_json::{Value, json};
use std::fmt::Write;

const SMALL: &str = "--model-elements 100 --model-successors 40";

fn next(x: f64, action: f64, noise: f64) -> f64 {
    (x + 0.5 * action + 0.1 * noise).clamp(-3.0, 3.0)
}

/// Somebody walks at random on a line from -3 to 3; `reward` is what is noted for it.
fn walk(bench: &Bench, name: &str, episodes: u64, reward: &dyn Fn(f64, f64) -> f64) {
    let mut table = "walk,x,push,cost,ended,cut,next_x\n".to_owned();
    for episode in 0..episodes {
        let mut x = 6.0 * uniform(mix(&[episode, 0])) - 3.0;
        for step in 0..15u64 {
            let push = 2.0 * uniform(mix(&[episode, step, 1])) - 1.0;
            let to = next(x, push, normal(mix(&[episode, step, 2])));
            writeln!(table, "{episode},{x},{push},{},0,{},{to}", reward(x, push), u8::from(step == 14)).unwrap();
            x = to;
        }
    }
    bench.file(name, &table);
}

fn columns() -> String {
    "--state x --action push --episode walk --terminated ended --truncated cut".to_owned()
}

fn numbers(found: &Value) -> Vec<f64> {
    found.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
}

#[test]
fn a_plan_goes_where_a_reward_that_no_row_has_is() {
    let bench = Bench::new();
    walk(&bench, "log.csv", 60, &|_, _| 0.0);
    bench.file("states.csv", "x\n-2.5\n-0.5\n0.5\n2.5\n");
    let (columns, common) = (columns(), format!("{SMALL} --actions box --discount 0.9"));
    for (goal, signs) in [("x-1.5", [1.0, 1.0, 1.0, -1.0]), ("x+1.5", [1.0, -1.0, -1.0, -1.0])] {
        let found =
            bench.json(&format!("plan log.csv {columns} {common} --reward=-abs({goal})-0.01*push^2 --out q.model"));
        assert_eq!((&found["known"], &found["settled"]), (&Value::Bool(true), &Value::Bool(true)));
        assert!(found["alike"].as_f64().unwrap() > 0.9 && found["unsupported"].as_f64().unwrap() < 0.05, "{found}");
        // From where walks begin it is a few steps to the goal.
        let (value, error) = (found["value"].as_f64().unwrap(), found["error"].as_f64().unwrap());
        assert!((-10.0..-2.0).contains(&value) && error > 0.0 && error < 2.0, "{value} {error}");
        let acts = bench.json("act q.model states.csv");
        let pushed: Vec<f64> = numbers(&acts["actions"]).iter().map(|push| push.signum()).collect();
        assert_eq!(pushed, signs, "{goal}: {acts}");
        assert!(numbers(&acts["std"]).iter().all(|sd| *sd >= 0.0));
    }
    // What is written is a model like any other.
    bench.file("pairs.csv", "x,action\n0,1\n0,-1\n");
    let value = numbers(&bench.json("value q.model pairs.csv")["mean"]);
    assert!(value[1] > value[0], "the last goal is on the left: {value:?}");
    bench.text("plot q.model --out q.svg");
    bench.text("export q.model --onnx --out q.onnx");
    assert!(bench.text("inspect q.model").contains("action"));
}

#[test]
fn an_expression_and_the_column_that_has_its_values_are_planned_for_alike() {
    let bench = Bench::new();
    walk(&bench, "log.csv", 60, &|x, _| -x * x);
    let plan = format!("plan log.csv {} {SMALL} --actions box --discount 0.9 --out q.model --reward=", columns());
    let (known, seen) = (bench.json(&format!("{plan}-x^2")), bench.json(&format!("{plan}cost")));
    assert_eq!((&known["known"], &seen["known"]), (&Value::Bool(true), &Value::Bool(false)));
    let of = |found: &Value| found["value"].as_f64().unwrap();
    assert!((of(&known) - of(&seen)).abs() < 0.05 * of(&known).abs(), "{known} {seen}");
    // The same rows and seed give the same plan.
    assert_eq!(bench.json(&format!("{plan}-x^2"))["value"], known["value"]);
}

#[test]
fn what_a_head_sums_is_planned_for_by_its_name() {
    let bench = Bench::new();
    walk(&bench, "log.csv", 60, &|x, _| -x * x);
    bench.file(
        "heads.toml",
        "[[heads]]\nname = \"calm\"\ncumulant = { kind = \"expression\", text = \"-1*state[0]^2\" }\n\
         [[heads]]\nname = \"far_right\"\ncumulant = { kind = \"event\", index = 0, above = 1.0 }\n\
         [[heads]]\nname = \"twice\"\ncumulant = { kind = \"expression\", text = \"2*reward\" }\n",
    );
    let plan = format!("plan log.csv {} {SMALL} --actions box --discount 0.9 --out q.model", columns());
    let of = |found: &Value| found["value"].as_f64().unwrap();
    bench.file("columns.toml", "reward = \"cost\"\n");
    let named = |head: &str| bench.json(&format!("{plan} --columns columns.toml --heads heads.toml --reward={head}"));
    let known = bench.json(&format!("{plan} --reward=-x^2"));
    let calm = named("calm");
    assert_eq!((of(&calm), &calm["known"], &calm["reward"]), (of(&known), &Value::Bool(true), &json!("calm")));
    let twice = named("twice");
    assert!((of(&twice) - 2.0 * of(&known)).abs() < 0.1 * of(&known).abs() && twice["known"] == false, "{twice}");
    let right = named("far_right");
    assert!(of(&right) > 0.2 && right["known"] == false, "to the right over and over: {right}");
    bench.file("states.csv", "x\n-0.5\n0.8\n2.5\n");
    let pushed: Vec<f64> =
        numbers(&bench.json("act q.model states.csv")["actions"]).iter().map(|p| p.signum()).collect();
    assert_eq!(pushed, [1.0, 1.0, -1.0], "back, to cross it again");
    let (status, said) = bench.failure(&format!("{plan} --reward=other --heads heads.toml"));
    assert!(status != 0 && said.contains("other"), "{said}");
    assert!(bench.failure(&format!("{plan} --heads heads.toml")).1.contains("--reward"));
}

#[test]
fn a_course_is_the_mean_of_what_comes_as_far_as_it_reaches() {
    let bench = Bench::new();
    // x' = 0.8 x + 0.4 + noise goes to 2.
    let mut table = "run,x,reward,terminated,truncated\n".to_owned();
    for run in 0..60u64 {
        let mut x = 6.0 * uniform(mix(&[run, 0])) - 1.0;
        for step in 0..20u64 {
            writeln!(table, "{run},{x},0,0,{}", u8::from(step == 19)).unwrap();
            x = 0.8 * x + 0.4 + 0.1 * normal(mix(&[run, step, 1]));
        }
    }
    bench.file("log.csv", &table);
    bench.file("from.csv", "x\n0\n");
    let rollout = format!("rollout log.csv --state x --episode run --steps 12 {SMALL} --from from.csv");
    let found = bench.json(&format!("{rollout} --show x,(x>1) --out course.svg"));
    let x = &found["variables"][0];
    for (t, mean) in numbers(&x["mean"]).into_iter().enumerate() {
        let truth = 2.0 - 2.0 * 0.8f64.powi(t as i32 + 1);
        assert!((mean - truth).abs() < 0.12, "{t}: {mean} for {truth}");
    }
    // One step misses by the noise; a dozen of them by what it adds up to.
    let (error, within) = (numbers(&x["error"]), numbers(&x["within"]));
    assert!((0.08..0.14).contains(&error[0]) && (0.12..0.24).contains(&error[11]), "{error:?}");
    assert!(within[0] > error[0] && within[0] < 2.5 * error[0], "{within:?}");
    let reach = x["reach"].as_u64().unwrap();
    assert!((2..12).contains(&reach) && x["reach_known"] == true, "{x}");
    assert!(numbers(&found["alive"]).iter().all(|alive| *alive == 1.0));
    let picture = std::fs::read_to_string(bench.path("course.svg")).unwrap();
    assert!(picture.contains("<svg"));
    assert!(bench.text(&rollout).contains("reach of x"));
    let (status, said) = bench.failure(&format!("{rollout} --show y"));
    assert!(status == 2 && said.contains("names no state variable"), "{said}");
}

#[test]
fn another_policy_leads_elsewhere() {
    let bench = Bench::new();
    walk(&bench, "log.csv", 60, &|x, _| -(x - 2.0).abs());
    bench.file("from.csv", "x\n0\n");
    let (columns, common) = (columns(), format!("{SMALL} --actions box"));
    bench.json(&format!("plan log.csv {columns} {common} --reward cost --discount 0.9 --out q.model"));
    let rollout = format!("rollout log.csv {columns} {common} --steps 8 --from from.csv");
    let found = bench.json(&format!("{rollout} --policy q.model"));
    let mean = numbers(&found["variables"][0]["mean"]);
    assert!((mean[0] - 0.5).abs() < 0.15 && (mean[7] - 2.0).abs() < 0.3, "{mean:?}");
    let refused = bench.failure(&format!("{rollout} --policy push.csv"));
    assert!(refused.1.contains("--from"), "{}", refused.1);
}

#[test]
fn a_model_gives_a_second_opinion_of_a_policy() {
    let bench = Bench::new();
    walk(&bench, "log.csv", 80, &|x, push| -x * x - 0.1 * push * push);
    let policy = |x: f64| (-x).clamp(-1.0, 1.0);
    let rows = std::fs::read_to_string(bench.path("log.csv")).unwrap();
    let x = |row: &str| row.split(',').nth(1).unwrap().parse::<f64>().unwrap();
    let answers: Vec<String> = rows.lines().skip(1).map(|row| policy(x(row)).to_string()).collect();
    bench.file("push.csv", &format!("action\n{}\n", answers.join("\n")));
    let evaluate = format!("evaluate log.csv {} --reward cost --actions box --discount 0.9 {SMALL}", columns());
    let found = bench.json(&format!("{evaluate} --policy push.csv --by model"));
    let estimate = &found["estimates"]["model"];
    let (value, error) = (estimate["value"].as_f64().unwrap(), estimate["error"].as_f64().unwrap());
    // Returns of the policy from where walks began.
    let mut truth = 0.0;
    for start in 0..80u64 {
        let mut at = 6.0 * uniform(mix(&[start, 0])) - 3.0;
        for step in 0..100u64 {
            let push = policy(at);
            truth += 0.9f64.powi(step as i32) * (-at * at - 0.1 * push * push) / 80.0;
            at = next(at, push, normal(mix(&[start, step, 7])));
        }
    }
    assert!((value - truth).abs() < 0.06 * truth.abs(), "{value} for {truth}");
    let interval = numbers(&estimate["interval"]);
    assert!(error > 0.0 && interval[0] < truth && truth < interval[1], "{estimate} for {truth}");
    let model = &found["model"];
    assert!((model["radius"].as_f64().unwrap() - 1.0).abs() < 0.02, "nothing ends: {model}");
    assert!(model["unsupported"].as_f64().unwrap() < 0.05);
    assert!(found["estimates"]["fqe"].is_null(), "it was not asked for");
    let said = bench.text(&format!("{evaluate} --policy push.csv --by model"));
    assert!(said.contains("model"), "{said}");
    let (_, said) = bench.failure(&format!("{evaluate} --by model"));
    assert!(said.contains("--policy"), "{said}");
}

#[test]
fn what_no_row_supports_is_refused() {
    let bench = Bench::new();
    // Rows of the left half alone, and a policy that would go right.
    let mut table = "walk,x,push,cost,ended,cut,next_x\n".to_owned();
    for episode in 0..40u64 {
        let mut x = -3.0 + 2.0 * uniform(mix(&[episode, 0]));
        for step in 0..15u64 {
            let push = -1.0 + 0.3 * uniform(mix(&[episode, step, 1]));
            let to = (x + 0.2 * normal(mix(&[episode, step, 2]))).clamp(-3.0, -1.0);
            writeln!(table, "{episode},{x},{push},-1,0,{},{to}", u8::from(step == 14)).unwrap();
            x = to;
        }
    }
    bench.file("log.csv", &table);
    bench.file("push.csv", &format!("action\n{}", "30\n".repeat(600)));
    let evaluate = format!("evaluate log.csv {} --reward cost --actions box --discount 0.9 {SMALL}", columns());
    let found = bench.json(&format!("{evaluate} --policy push.csv --by model"));
    assert!(found["estimates"]["model"]["interval"].is_null(), "{found}");
    assert!(found["refused"].to_string().contains("where no row was"), "{found}");
    let (status, said) = bench.failure(&format!("plan log.csv {} --actions box --discount 1 --out q.model", columns()));
    assert!(status == 2 && said.contains("below 1"), "{said}");
    let (_, said) = bench.failure(&format!("plan log.csv {} --actions box --reward=y --out q.model", columns()));
    assert!(said.contains('y'), "{said}");
}

#[test]
fn elements_are_chosen_by_the_rule_that_is_asked_for() {
    let bench = Bench::new();
    walk(&bench, "log.csv", 60, &|x, _| -x * x);
    let plan = format!("plan log.csv {} --actions box --discount 0.9 --reward=-x^2 --out q.model", columns());
    let few = format!("{plan} --model-successors 40 --model-elements 8");
    let model = |found: &Value, key: &str| found["model"][key].as_f64().unwrap();
    let pivots = bench.json(&few);
    assert_eq!(
        (&pivots["model"]["elements_by"], &pivots["model"]["successors_by"]),
        (&json!("pivots"), &json!("pivots"))
    );
    for by in ["mp", "backfit", "ols"] {
        let found = bench.json(&format!("{few} --model-elements-by {by}"));
        assert_eq!(found["model"]["elements_by"], by);
        assert!(model(&found, "elements") <= 8.0 && found["value"] != pivots["value"], "{by}: {found}");
    }
    let ols = format!("{few} --model-elements-by ols");
    let found = bench.json(&ols);
    assert!(model(&found, "loss") < model(&pivots, "loss"), "{found} {pivots}");
    // Which candidates there are decides, and what the next one must explain how many are taken.
    assert_ne!(bench.json(&format!("{ols} --model-candidates 8"))["value"], found["value"]);
    assert!(model(&bench.json(&format!("{ols} --model-gain 0.01")), "elements") < 8.0);
    // Where pivots suffice they stay.
    let wide = bench.json(&format!("{plan} --model-successors 40 --model-elements-by ols"));
    assert_eq!(
        (&wide["model"]["elements_by"], &wide["value"]),
        (&json!("pivots"), &bench.json(&format!("{plan} --model-successors 40"))["value"])
    );
    assert!(bench.text(&ols).contains("8 states with actions (ols)"));
    // Coarser pivots are fewer, of both.
    let coarse = bench.json(&format!("{plan} --model-tolerance 0.01"));
    let fine = bench.json(&plan);
    for key in ["elements", "successors"] {
        assert!(model(&coarse, key) < model(&fine, key), "{key}: {coarse} {fine}");
    }
}

#[test]
fn a_lossy_set_of_successors_serves_plans_courses_and_opinions() {
    let bench = Bench::new();
    walk(&bench, "log.csv", 60, &|x, _| -x * x);
    bench.file("push.csv", &format!("action\n{}", "0\n".repeat(900)));
    let common = format!("{} --actions box --model-successors-by lossy", columns());
    let plan = format!("plan log.csv {common} --discount 0.9 --reward=-abs(x-1.5) --out q.model");
    let found = bench.json(&plan);
    let of = |found: &Value| found["model"]["successors"].as_u64().unwrap();
    assert_eq!(found["model"]["successors_by"], "lossy");
    let finer = bench.json(&format!("{plan} --model-tolerance 0.02"));
    assert!(of(&finer) > of(&found) && of(&found) > 2, "{finer} {found}");
    // It gives the value that pivots give.
    let pivots = bench.json(&plan.replace("--model-successors-by lossy", ""));
    let value = |found: &Value| found["value"].as_f64().unwrap();
    assert!((value(&found) - value(&pivots)).abs() < 0.05 * value(&pivots).abs(), "{found} {pivots}");
    let opinion = format!("evaluate log.csv {common} --reward cost --discount 0.9 --policy push.csv --by model");
    let found = bench.json(&opinion);
    assert_eq!(found["model"]["of"]["successors_by"], "lossy");
    assert!(found["estimates"]["model"]["value"].as_f64().unwrap() < 0.0, "{found}");
    let course = bench.json(&format!("rollout log.csv {common} --policy push.csv --steps 3"));
    assert_eq!(course["model"]["successors_by"], "lossy");
    // As many as are needed, or none.
    let (status, said) = bench.failure(&format!("{plan} --model-successors 2 --model-tolerance 0.01"));
    assert!(status != 0 && said.contains("--model-successors, --model-tolerance: more than 2 states"), "{said}");
}

#[test]
fn a_plan_on_the_hull_comes_to_rest_and_calls_no_rank_a_value() {
    let bench = Bench::new();
    walk(&bench, "log.csv", 60, &|_, _| 0.0);
    bench.file("states.csv", "x\n-2.5\n-0.5\n0.5\n2.5\n");
    let plan = format!("plan log.csv {} --actions box --reward=-abs(x-1.5) --out q.model", columns());
    let value = |found: &Value| found["value"].as_f64().unwrap();
    let signs = || -> Vec<f64> {
        numbers(&bench.json("act q.model states.csv")["actions"]).iter().map(|push| push.signum()).collect()
    };
    let near = format!("{plan} --discount 0.9");
    let (plain, found) = (bench.json(&near), bench.json(&format!("{near} --project")));
    assert_eq!((&plain["projected"], &found["projected"]), (&Value::Bool(false), &Value::Bool(true)));
    // Another policy, which is worth nearly as much.
    assert!(value(&found) != value(&plain) && (value(&found) / value(&plain) - 1.0).abs() < 0.05, "{found} {plain}");
    assert!(bench.text(&format!("{near} --project")).contains("of this plan by the model that is not projected"));
    // What is written has the plan's values.
    assert!(!bench.text("inspect q.model").contains("no values"));
    let acts = bench.json("act q.model states.csv");
    assert!(numbers(&acts["std"]).iter().all(|deviation| *deviation > 0.0), "{acts}");
    assert_eq!(signs(), [1.0, 1.0, 1.0, -1.0]);
    // Where hardly anything is discounted the sweeps of a coarse model do not come to rest.
    let coarse = format!("{plan} --discount 0.9999 --model-elements 30");
    assert_eq!(bench.json(&coarse)["settled"], false);
    let found = bench.json(&format!("{coarse} --project"));
    assert_eq!(found["settled"], true);
    assert!(value(&found) < -100.0, "{found}");
    assert_eq!(signs(), [1.0, 1.0, 1.0, -1.0]);
    // And where it makes mass of nothing under the plan, it has no value of that.
    let coarse = format!("{plan} --discount 0.99999 --model-elements 12 --project");
    let found = bench.json(&coarse);
    assert_eq!((&found["settled"], &found["value"], &found["error"]), (&Value::Bool(true), &Value::Null, &Value::Null));
    assert!(
        found["warnings"]
            .to_string()
            .contains("the written model ranks actions, and what the plan is worth is not known"),
        "{found}"
    );
    assert!(bench.text(&coarse).contains("none: the projected model has no values"));
    assert!(bench.text("inspect q.model").contains("-abs(x-1.5) (ranks of actions, no values)"));
}

#[test]
fn options_of_a_model_are_refused_where_nothing_would_read_them() {
    let bench = Bench::new();
    walk(&bench, "log.csv", 10, &|x, _| -x * x);
    bench.file("push.csv", &format!("action\n{}", "0\n".repeat(150)));
    let plan = format!("plan log.csv {} --actions box --out q.model", columns());
    let evaluate = format!("evaluate log.csv {} --reward cost --actions box --policy push.csv", columns());
    let far = "tcp://127.0.0.1:1";
    for (arguments, told) in [
        (format!("{plan} --model-candidates 9"), "add --model-elements-by"),
        (format!("{plan} --model-gain 0.1 --model-elements-by pivots"), "--model-gain is of a pursuit"),
        (format!("{plan} --model-elements-by ols --model-candidates 9"), "or lower --model-elements"),
        (format!("{plan} --model-elements-by icd"), "backfit"),
        (format!("{plan} --model-tolerance 0"), "--model-tolerance"),
        (format!("{plan} --model-gain 1"), "below 1"),
        (format!("{evaluate} --model-elements 20"), "add --by model"),
        (format!("{evaluate} --by both --model-gain 0.1"), "--model-gain is of a pursuit"),
        // Values of a projected model are none.
        (format!("{evaluate} --by model --project"), "--project"),
        (format!("rollout log.csv {} --project", columns()), "--project"),
        (format!("plan {far} --out q.model --project"), "--project is for a table"),
        (format!("plan {far} --out q.model --model-elements 20"), "--model-elements is for a table"),
        (format!("rollout {far} --model-successors-by lossy"), "--model-successors-by is for a table"),
    ] {
        let (status, said) = bench.failure(&arguments);
        assert!(status == 2 && said.contains(told), "{arguments}: {said}");
    }
    // A share that none explains.
    let most = format!("{plan} --model-elements 5 --model-elements-by ols --model-gain 0.9999");
    let (_, said) = bench.failure(&format!("{most} --reward=x"));
    assert!(said.contains("--model-gain: no candidate explains more than 0.9999"), "{said}");
}

const ROOMS: [&str; 4] = ["hall", "study", "cellar", "kitchen"];
const MOVES: [&str; 2] = ["stay", "go"];
const READ: &str = "--state room --action move --reward worth --episode walk --terminated ended --truncated cut";

/// Somebody goes from room to room, or stays; being in the kitchen is worth 1. Rooms have names, or these numbers.
fn rooms(bench: &Bench, name: &str, said: [&str; 4], episodes: impl Iterator<Item = u64>) {
    let mut table = "walk,room,move,worth,ended,cut,next_room\n".to_owned();
    for episode in episodes {
        let mut room = (episode % 4) as usize;
        for step in 0..12u64 {
            let go = usize::from(uniform(mix(&[episode, step])) < 0.5);
            let (to, worth) = ((room + go) % 4, u8::from(room == 3));
            writeln!(table, "{episode},{},{},{worth},0,{},{}", said[room], MOVES[go], u8::from(step == 11), said[to])
                .unwrap();
            room = to;
        }
    }
    bench.file(name, &table);
}

/// A kernel and noise, in the file h.json, of inputs of these kinds.
fn hyperparameters(bench: &Bench, kinds: &[&str]) {
    let kernel = json!({
        "kind": "ard", "signal_variance": 2, "bias_variance": 1, "relevance": vec![0.3; kinds.len()], "kinds": kinds,
    });
    bench.file("h.json", &json!({"kernel": kernel, "noise": {"model": "correlated", "variance": 0.05}}).to_string());
}

#[test]
fn rooms_that_a_table_names_are_planned_in_judged_and_scored() {
    let bench = Bench::new();
    rooms(&bench, "log.csv", ROOMS, 0..40);
    bench.file("states.csv", "room\nkitchen\ncellar\nstudy\nhall\n");
    let acts = format!("{SMALL} --actions discrete:2");
    let planned = bench.text(&format!("plan log.csv {READ} {acts} --discount 0.9 --out q.model"));
    assert!(planned.contains("room category"), "{planned}");
    let kinds = bench.json("inspect q.model")["kernel"]["kinds"].clone();
    assert_eq!(kinds, json!(["category", "real", "real"]));
    let words = |said: &str| -> Vec<Vec<String>> {
        said.lines().skip(1).map(|line| line.split_whitespace().take(2).map(str::to_owned).collect()).collect()
    };
    let best = [["kitchen", "stay"], ["cellar", "go"], ["study", "go"], ["hall", "go"]];
    assert_eq!(words(&bench.text("act q.model states.csv")), best);
    let decided = bench.json("act q.model states.csv");
    assert_eq!(decided["action_names"], json!(["stay", "go", "go", "go"]));
    assert!(decided["actions"] == json!([0, 1, 1, 1]) || decided["actions"] == json!([1, 0, 0, 0]), "{decided}");
    // A table whose texts come in another order: the codes are the model's, of which 3 is the kitchen.
    rooms(&bench, "back.csv", ROOMS, (0..40).rev());
    let rollout = format!("rollout back.csv {READ} {SMALL} --steps 6");
    let course = format!("{rollout} --from states.csv --actions discrete:2 --policy q.model");
    let shares = numbers(&bench.json(&format!("{course} --show (abs(room-3)<0.5)"))["variables"][0]["mean"]);
    assert!((shares[0] - 0.5).abs() < 0.05 && (shares[5] - 1.0).abs() < 0.05, "{shares:?}");
    let (status, said) = bench.failure(&format!("{course} --show room"));
    assert!(status == 2 && said.contains("(abs(room-3)<0.5) is the share of kitchen"), "{said}");
    bench.file("other.csv", "room\nkitchn\n");
    let (_, said) = bench.failure(&format!("{rollout} --from other.csv --show state_0-1"));
    assert!(said.contains("column room: \"kitchn\" is none of the categories") && said.contains("kitchen"), "{said}");
    // Who always goes on sees the kitchen every fourth step.
    bench.file("go.csv", &format!("action\n{}", "go\n".repeat(480)));
    let evaluate = format!("evaluate log.csv {READ} {acts} --discount 0.9 --policy go.csv --by both --budget 3");
    let found = bench.json(&evaluate)["estimates"].clone();
    let truth = 0.25 * (0..4).map(|k| 0.9f64.powi(k)).sum::<f64>() / (1.0 - 0.9f64.powi(4));
    for by in ["fqe", "model"] {
        let value = found[by]["value"].as_f64().unwrap();
        assert!((value - truth).abs() < 0.1 * truth, "{by}: {value} for {truth}");
    }
    let (status, said) = bench.failure(&evaluate.replace("discrete:2", "box"));
    assert!(status == 2 && said.contains("say discrete:2") && said.contains("stay"), "{said}");
    // Codes of any order have one evidence, and numbers that are no categories another one.
    rooms(&bench, "codes.csv", ["7", "2", "5", "1"], 0..40);
    let score = |table: &str, kind: &str| {
        hyperparameters(&bench, &[kind]);
        format!("score {table} {READ} --hyperparameters h.json")
    };
    let evidence = |table: &str, kind: &str| bench.json(&score(table, kind))["log_evidence"].as_f64().unwrap();
    let (named, coded) = (evidence("log.csv", "category"), evidence("codes.csv", "category"));
    assert!((named - coded).abs() < 1e-9 * named.abs() && (evidence("codes.csv", "real") - coded).abs() > 1.0);
    let (_, said) = bench.failure(&score("log.csv", "real"));
    assert!(said.contains("h.json: kernel.kinds: room holds texts"), "{said}");
    // A fit of Q keeps the texts of both, and answers by them.
    hyperparameters(&bench, &["category", "real", "real"]);
    let fit = format!("fit log.csv {READ} --inputs state_action --actions discrete:2 --discount 0.9 --out sarsa.model");
    bench.json(&format!("{fit} --hyperparameters h.json --no-optimise"));
    bench.file("pairs.csv", "action,room\ngo,cellar\nstay,hall\n");
    let valued = bench.text("value sarsa.model pairs.csv");
    assert_eq!(words(&valued), [["cellar", "go"], ["hall", "stay"]]);
    assert!(bench.text("inspect sarsa.model").contains("action=stay"));
    bench.file("pairs.csv", "action,room\ngoo,cellar\n");
    let (_, said) = bench.failure("value sarsa.model pairs.csv");
    assert!(said.contains("column action: \"goo\" is none of") && said.contains("did you mean go?"), "{said}");
}

#[test]
fn texts_of_actions_have_the_codes_of_the_list_that_has_them() {
    let bench = Bench::new();
    rooms(&bench, "log.csv", ROOMS, 0..40);
    rooms(&bench, "back.csv", ROOMS, (0..40).rev());
    let log = std::fs::read_to_string(bench.path("log.csv")).unwrap();
    bench.file("codes.csv", &log.replace(",stay,", ",0,").replace(",go,", ",1,"));
    let turned = ["kitchen", "cellar", "study", "hall"];
    bench.file("lists.toml", &format!("categories = {:?}", [&turned[..], &MOVES]));
    // A model with texts of the state alone has no list of actions. That of the user counts, and for rooms the model's.
    bench.text(&format!("plan codes.csv {READ} {SMALL} --actions discrete:2 --discount 0.9 --out q.model"));
    bench.file("states.csv", "room\nkitchen\ncellar\nstudy\nhall\n");
    let course = format!(
        "rollout back.csv {READ} {SMALL} --steps 6 --from states.csv --actions discrete:2 --policy q.model --show (abs(room-3)<0.5)"
    );
    let (_, said) = bench.failure(&course);
    assert!(
        said.contains("action holds texts: the model has no codes for them") && said.contains("--columns"),
        "{said}"
    );
    let shares = numbers(&bench.json(&format!("{course} --columns lists.toml"))["variables"][0]["mean"]);
    assert!((shares[0] - 0.5).abs() < 0.05 && (shares[5] - 1.0).abs() < 0.05, "{shares:?}");
    hyperparameters(&bench, &["category"]);
    let fit = |table: &str, more: &str| bench.json(&format!("fit {table} {READ} --out v.model {more}"));
    fit("codes.csv", "--sums --hyperparameters h.json --no-optimise");
    std::fs::rename(bench.path("v.model"), bench.path("sums.model")).unwrap();
    fit("back.csv", "--like sums.model --columns lists.toml");
    // Each action has a name: one that no row takes needs the list.
    let q = format!("fit log.csv {READ} --inputs state_action --actions discrete:3 --discount 0.9 --out q3.model");
    let (status, said) = bench.failure(&q);
    assert!(status == 2 && said.contains("say discrete:2. An action that no row takes needs a name"), "{said}");
    hyperparameters(&bench, &["category", "real", "real", "real"]);
    bench.file("three.toml", &format!("categories = {:?}", [&ROOMS[..], &["stay", "go", "jump"]]));
    bench.text(&format!("{q} --columns three.toml --hyperparameters h.json --no-optimise"));
    assert!(bench.text("inspect q3.model").contains("action=jump"));
    // What a policy does by a name that is none.
    let evaluate = format!("evaluate log.csv {READ} {SMALL} --actions discrete:2 --by model --policy policy.csv");
    bench.file("policy.csv", &format!("action\n{}goo\n", "go\n".repeat(479)));
    let (_, said) = bench.failure(&evaluate);
    assert!(said.contains("policy.csv, line 481, column action: \"goo\" is none of the categories"), "{said}");
    assert!(said.contains("stay") && said.contains("did you mean go?"), "{said}");
    bench.file("policy.csv", &format!("move\n{}", "go\n".repeat(480)));
    let (_, said) = bench.failure(&evaluate);
    assert!(said.contains("column prob_0"), "{said}");
}

#[test]
fn a_file_of_hyperparameters_is_told_which_column_holds_texts() {
    let bench = Bench::new();
    rooms(&bench, "log.csv", ROOMS, 0..4);
    let fit = |state: &str| {
        format!("fit log.csv {} --out v.model --hyperparameters h.json --no-optimise", READ.replace("room", state))
    };
    hyperparameters(&bench, &["real"]);
    let (_, said) = bench.failure(&fit("room"));
    assert!(said.contains("h.json: kernel.kinds: room holds texts") && !said.contains("--state-kinds"), "{said}");
    // Of other variables the file says what they are, unless the options do.
    hyperparameters(&bench, &["category", "periodic:1.5"]);
    let both = fit("room,worth --next-state next_room,worth");
    bench.text(&both);
    let (status, said) = bench.failure(&format!("{both} --state-kinds category,real"));
    assert!(status == 2 && said.contains("--state-kinds contradicts h.json"), "{said}");
}

#[test]
fn rows_without_an_action_are_left_out_where_actions_are_learned() {
    let bench = Bench::new();
    rooms(&bench, "log.csv", ROOMS, 0..10);
    let log = std::fs::read_to_string(bench.path("log.csv")).unwrap();
    let mut lines: Vec<String> = log.lines().map(str::to_owned).collect();
    for (line, word) in [(40, "none"), (20, ""), (30, "")] {
        let cells: Vec<&str> = lines[line - 1].split(',').collect();
        lines[line - 1] = [&cells[..2], &[word], &cells[3..]].concat().join(",");
    }
    bench.file("gaps.csv", &(lines.join("\n") + "\n"));
    let fit = |table: &str, inputs: &str| {
        format!("fit {table} {READ} --inputs {inputs} --out v.model --hyperparameters h.json --no-optimise")
    };
    hyperparameters(&bench, &["category"]);
    let states = fit("gaps.csv", "state");
    assert_eq!(bench.json(&states)["transitions"], 120);
    assert_eq!(bench.json(&format!("{states} --missing drop"))["transitions"], 120, "an action is not needed");
    hyperparameters(&bench, &["category", "real", "real"]);
    let q = fit("gaps.csv", "state_action --actions discrete:2");
    let (_, said) = bench.failure(&q);
    assert!(
        said.contains(
            "gaps.csv: 2 rows without an action; the first: line or row 20. --missing drop leaves such rows out"
        ),
        "{said}"
    );
    // A word for what is missing is an action, unless something may be missing; then it is one if it is listed.
    hyperparameters(&bench, &["category", "real", "real", "real"]);
    let three = q.replace("discrete:2", "discrete:3");
    bench.file("lists.toml", &format!("categories = {:?}", [&ROOMS[..], &["stay", "go", "none"]]));
    let told = |arguments: &str| {
        let output = bench.run(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{arguments}: {said}");
        said
    };
    let said = told(&format!("{three} --missing hold --columns lists.toml"));
    assert!(said.contains("gaps.csv: left out: 2 rows without an action; the first: line or row 20"), "{said}");
    hyperparameters(&bench, &["category", "real", "real"]);
    let said = told(&format!("{q} --missing drop"));
    assert!(said.contains("left out: 3 rows without an action; the first: line or row 20"), "{said}");
    let learned = |q: &str| bench.json(q)["transitions"].as_u64().unwrap();
    // As in a table without these rows, in which chains end there.
    assert!(learned(&format!("{q} --missing drop")) < learned(&q.replace("gaps.csv", "log.csv")));
    let said = told(&format!(
        "rollout gaps.csv {READ} {SMALL} --steps 2 --actions discrete:2 --policy v.model --show room-1 --missing drop"
    ));
    assert!(said.contains("left out: 3 rows without an action"), "{said}");
}
