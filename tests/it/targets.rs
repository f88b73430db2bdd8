//! `criticd check-targets`: the same episodes with targets as different programs make them.

use crate::support::program::Bench;
use criticd::learner::random::{mix, normal};

const DISCOUNT: f64 = 0.9;
const OPTIONS: &str = "--state x --reward r --episode episode --terminated over --truncated limit --discount 0.9";

/// Thirty episodes, every third of which is cut by a limit; advantages by GAE (lambda 0.95), where `cut` says what follows a cut: of its
/// own value and that of the next state.
fn episodes(name: &str, desk: &Bench, cut: impl Fn(f64, f64) -> f64) {
    let mut text = "episode,x,next_x,r,over,limit,values,advantages,returns\n".to_owned();
    for episode in 0..30u64 {
        let state = |t: u64| normal(mix(&[episode, t]));
        let value = |t: u64| -5.0 + 0.5 * state(t);
        let (limit, length) = (episode % 3 == 0, 8 + episode % 7);
        let reward = |t: u64| -0.5 + 0.2 * normal(mix(&[7, episode, t]));
        let mut advantage = vec![0.0; length as usize + 1];
        for t in (0..length).rev() {
            let last = t + 1 == length;
            let led = match (last, limit) {
                (false, _) => value(t + 1),
                (true, true) => cut(value(t), value(t + 1)),
                (true, false) => 0.0,
            };
            let delta = reward(t) + DISCOUNT * led - value(t);
            advantage[t as usize] = delta + if last { 0.0 } else { DISCOUNT * 0.95 * advantage[t as usize + 1] };
        }
        for t in 0..length {
            let last = t + 1 == length;
            let (a, v) = (advantage[t as usize], value(t));
            text += &format!(
                "{episode},{},{},{},{},{},{v},{a},{}\n",
                state(t),
                state(t + 1),
                reward(t),
                last && !limit,
                last && limit,
                a + v
            );
        }
    }
    desk.file(name, &text);
}

#[test]
fn targets_of_different_programs_are_told_apart() {
    let desk = Bench::new();
    episodes("right.csv", &desk, |_, next| next);
    episodes("done.csv", &desk, |_, _| 0.0);
    episodes("own.csv", &desk, |own, _| own);
    for targets in ["--advantages advantages --values values", "--returns returns --values values"] {
        let said = desk.text(&format!("check-targets right.csv {OPTIONS} {targets}"));
        assert!(said.contains("lambda 0.95: all ") && said.contains("rows inside episodes follow"), "{said}");
        assert!(said.contains("20 ends; of 20: nothing follows, which is right"), "{said}");
        assert!(
            said.contains("10 ends; of 10: something follows that may be the value of the next state: right"),
            "{said}"
        );
        for (file, words) in [
            ("done.csv", "10 ends; of 10: nothing follows, as if they terminated"),
            ("own.csv", "the value of the row's own state follows, in the place of the next one's"),
        ] {
            let output = desk.run(&format!("check-targets {file} {OPTIONS} {targets}"));
            let (text, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
            assert!(!output.status.success() && text.contains(words), "{text}{error}");
            assert!(text.contains("are off by") && error.contains("targets are wrong, as said above"), "{text}{error}");
        }
    }
    let found = desk.json(&format!("check-targets right.csv {OPTIONS} --returns returns --values values"));
    assert_eq!((found["terminated"]["right"].as_bool(), found["cut"]["right"].as_bool()), (Some(true), Some(true)));
    assert!((found["lambda"].as_f64().unwrap() - 0.95).abs() < 1e-9, "{found}");
    // Without values these are no whole returns.
    let output = desk.run(&format!("check-targets right.csv {OPTIONS} --returns returns"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("do not follow") && text.contains("name the values that they were made with: --values"),
        "{text}"
    );
    let output = desk.run(&format!("check-targets right.csv {OPTIONS} --advantages advantages"));
    assert!(String::from_utf8(output.stderr).unwrap().contains("--values"));
}
