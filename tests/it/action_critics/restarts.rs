//! Decisions of the real daemon before and after it is killed: the same questions have the same answers to the last bit, and the
//! same numbers, and no number is given twice.

use super::episodes;
use crate::support::program::{Process, any_ports, criticd};
use crate::support::{PATIENCE, wait_or};
use criticd::client::Requester;
use criticd::transition::Batch;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;

/// Critics by name, and whether each has copies of Q to draw from.
const CRITICS: [(&str, bool); 3] = [("best", true), ("boxed", true), ("acting", false)];
const SETTINGS: &str = "http = \"off\"\n\
    [[critic]]\nname = \"best\"\ninputs = \"state_action\"\nactions = [\"left\", \"right\"]\nsuccessor = \"improve\"\ndiscount = 0.9\n\
    dictionary_max = 40\nimprove_rows = 100\n\
    [[critic]]\nname = \"boxed\"\ninputs = \"state_action\"\nactions = { low = [0.0], high = [1.0] }\nsuccessor = \"improve\"\n\
    discount = 0.8\ndictionary_max = 30\nimprove_rows = 100\n\
    [[critic]]\nname = \"acting\"\ninputs = \"state_action\"\nactions = 2\ndiscount = 0.7\ndictionary_max = 20\n";
/// Each way to explore, with its number.
const WAYS: [(&str, Option<(&str, f64)>); 5] = [
    ("greedy", None),
    ("epsilon_greedy", Some(("epsilon", 0.4))),
    ("softmax", Some(("temperature", 0.7))),
    ("ucb", Some(("beta", 1.5))),
    ("thompson", None),
];
const SEEDS: [u64; 2] = [0, 7];
const STATES: [f64; 6] = [0.0, 0.1, 0.35, 0.5, 0.77, 0.95];
const EPISODES: [u64; 6] = [0, 3, 3, 4, 5, 1 << 53];
const STEPS: [u64; 6] = [0, 0, 1, 1, 9, 1 << 40];

/// `criticd serve` on any ports, with a checkpoint now and then.
fn serve(directory: &Path) -> (Process, Requester) {
    let file = directory.with_extension("toml");
    std::fs::write(&file, SETTINGS).unwrap();
    let mut command = criticd();
    command.arg("serve").arg("--config").arg(file).arg("--data-dir").arg(directory).args(any_ports());
    for setting in ["log=warn", "checkpoint_rows=150", "critic.refit_first_rows=100000"] {
        command.args(["--set", setting]);
    }
    let daemon = Process::start(command, directory);
    let requester = daemon.requester();
    (daemon, requester)
}

fn feed(requester: &mut Requester, batches: &[Batch]) {
    for batch in batches {
        let posted = requester.post_append(batch).unwrap();
        requester.reply(posted, PATIENCE).unwrap();
    }
}

/// Wait until `rows` rows are learned, no improvement runs or is due, and the models that answer are the newest.
fn settle(requester: &mut Requester, rows: u64) {
    wait_or(|| {
        let status = requester.status(PATIENCE).unwrap();
        let rests = status.critics.iter().all(|critic| {
            critic.learned == rows && critic.generation > 0 && !critic.refit.running && !critic.refit.due
        });
        let mut answers = rests && status.critics.len() == CRITICS.len();
        for critic in &status.critics {
            let fields = json!({"states": [[0.5]], "critic": critic.name});
            answers = answers
                && requester
                    .ask("act", fields, PATIENCE)
                    .is_ok_and(|reply| reply["generation"] == critic.generation && reply["offset"] == critic.learned);
        }
        if answers { Ok(()) } else { Err(format!("rest: {:?}", status.critics)) }
    });
}

/// SplitMix64 of several numbers, as proto/README.md has it.
fn hash(parts: &[u64]) -> u64 {
    let scramble = |x: u64| {
        let w = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let y = (w ^ (w >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (y ^ (y >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    parts.iter().fold(0, |hash, &part| scramble(hash ^ scramble(part)))
}

/// What each number was given to.
type Numbered = HashMap<u64, String>;

/// Answers to all questions, as text that has each bit of their numbers, and what their decisions are numbered.
fn decisions(requester: &mut Requester, numbered: &mut Numbered) -> Vec<String> {
    let mut out = Vec::new();
    for (critic, has_copies) in CRITICS {
        for (word, number) in WAYS.into_iter().filter(|(word, _)| has_copies || *word != "thompson") {
            for seed in SEEDS {
                let mut fields = json!({
                    "states": STATES.map(|state| [state]), "critic": critic, "exploration": word, "seed": seed,
                    "episodes": EPISODES, "steps": STEPS, "unknown_above": 0.5, "arrays": "list",
                });
                if let Some((key, value)) = number {
                    fields[key] = json!(value);
                }
                let mut reply = requester.ask("act", fields, PATIENCE).unwrap();
                number_all(&reply, (critic, seed), numbered);
                // Those of the request and of the publication.
                reply.as_object_mut().unwrap().retain(|key, _| !["id", "revision"].contains(&key.as_str()));
                out.push(format!("{critic} {word} {seed}: {reply}"));
            }
        }
    }
    out
}

/// Assert that decisions have the numbers that the protocol promises, and none that another one has.
fn number_all(reply: &Value, (critic, seed): (&str, u64), numbered: &mut Numbered) {
    let of = |key: &str| reply[key].as_u64().unwrap();
    let (generation, offset) = (of("generation"), of("offset"));
    let name = hash(&critic.bytes().map(u64::from).collect::<Vec<_>>());
    let ids = reply["decision_id"].as_array().unwrap();
    assert_eq!(ids.len(), STATES.len());
    for (i, id) in ids.iter().enumerate() {
        let state = hash_of_state(&[STATES[i]]);
        let id = id.as_u64().unwrap();
        assert_eq!(id, hash(&[seed, EPISODES[i], STEPS[i], generation, offset, name, state]), "{reply}");
        let decision = format!("{critic} {seed} {} {} {generation} {offset} {}", EPISODES[i], STEPS[i], STATES[i]);
        let known = numbered.entry(id).or_insert_with(|| decision.clone());
        assert_eq!(*known, decision, "two decisions are number {id}");
    }
}

fn hash_of_state(state: &[f64]) -> u64 {
    state.iter().fold(0, |x, number| hash(&[x, number.to_bits()]))
}

#[test]
fn a_daemon_that_is_killed_decides_as_before() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("data");
    let (mut numbered, mut seq, mut given) = (Numbered::new(), 0, 0);
    let (mut daemon, mut requester) = serve(&directory);
    for round in 0..3 {
        let (batches, next_seq) = episodes(12, seq, 20 + round);
        feed(&mut requester, &batches);
        seq = next_seq;
        settle(&mut requester, seq);
        let before = decisions(&mut requester, &mut numbered);
        assert_eq!(before, decisions(&mut requester, &mut numbered), "asked twice");
        assert!(before.iter().any(|answer| answer.contains("\"copies\":8")), "{before:?}");
        // What was decided with other rows has other numbers.
        let all = CRITICS.len() * SEEDS.len() * STATES.len();
        assert_eq!(numbered.len(), given + all, "numbers of round {round}");
        given = numbered.len();
        daemon.kill();
        (daemon, requester) = serve(&directory);
        settle(&mut requester, seq);
        let after = decisions(&mut requester, &mut numbered);
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(before, after, "round {round}");
        }
        assert_eq!((before.len(), numbered.len()), (after.len(), given), "the same decisions have the same numbers");
    }
    daemon.kill();
}
