//! What a start with other settings would do to the critics of a data directory is said before it does it: by `criticd check-config`,
//! and in the log of the start.

use crate::support::harness::{NOW, config};
use crate::support::program::{Process, any_ports, criticd};
use criticd::config::Config;
use criticd::daemon::core::{Core, Output};
use criticd::daemon::ledger::CheckpointDone;
use criticd::daemon::outlook::Outlook;
use criticd::daemon::recovery::{OnTheWay, RecoverError, recover_watched};
use criticd::journal::checkpoint::{Checkpoints, Directory};
use criticd::journal::store::{SqliteStorage, Storage};
use criticd::sim::{self, Step, walk::Walk};
use criticd::wire;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

const RECORDED: &str = "[[critic]]\nname = \"main\"\ndiscount = 0.9\n[[critic]]\nname = \"near\"\ndiscount = 0.5\n";
const CHANGED: &str = "[[critic]]\nname = \"main\"\ndiscount = 0.8\n[[critic]]\nname = \"far\"\ndiscount = 0.99\n";

/// A directory that has learned 200 rows; the journal of it without the first groups, if `forgets`.
fn recorded(forgets: bool) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let retention = if forgets { "journal_rows_max = 40\nwindow_rows = 32\ncheckpoint_rows = 100\n" } else { "" };
    let config = config(&format!("{retention}{RECORDED}"));
    let checkpoints: Arc<dyn Checkpoints> = Arc::new(Directory::new(&data));
    let storage = Box::new(SqliteStorage::open(&data).unwrap());
    let mut core = Core::open(config, storage, Arc::clone(&checkpoints), NOW, &mut |_, _| {}).unwrap();
    let mut walk = Walk::new(1, Some(40), 0.0);
    for _ in 0..50 {
        let steps: Vec<Step> = (0..4).map(|_| walk.step()).collect();
        sim::batches("robot", "", &steps).iter().for_each(|batch| core.ingest(&wire::encode_ingest(batch), NOW));
        core.step(NOW);
        for output in core.take_outputs().collect::<Vec<_>>() {
            if let Output::Checkpoint(checkpoint) = output {
                let (group, offset, replay_from) = (checkpoint.group, checkpoint.offset, checkpoint.replay_from);
                checkpoints.write(group, &checkpoint.encode()).unwrap();
                let done = CheckpointDone { group, offset, replay_from, result: Ok(1), seconds: 0.0 };
                core.checkpoint_done(&done, NOW);
            }
        }
    }
    core.close(NOW).unwrap();
    place
}

fn check(place: &Path, settings: &str, more: &[&str]) -> (i32, String) {
    let file = place.join("robot.toml");
    std::fs::write(&file, settings).unwrap();
    let mut command = criticd();
    command.arg("check-config").arg(&file).arg("--data-dir").arg(place.join("data")).args(more);
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), said)
}

/// A scan of a long journal can be stopped; behind a fresh checkpoint there is nothing to scan.
#[test]
fn a_start_is_asked_before_the_first_group_whether_to_go_on() {
    let place = recorded(false);
    let data = place.path().join("data");
    let config = Config::from_toml(CHANGED).unwrap();
    let checkpoints = Directory::new(&data);
    let look = || {
        let mut storage = SqliteStorage::open(&data).unwrap();
        let mut asked = Vec::new();
        let found = Outlook::of_watched(&mut storage, &checkpoints, &config, &mut |rows, of| {
            asked.push((rows, of));
            OnTheWay::Stop
        });
        (found, asked)
    };
    let (found, asked) = look();
    assert_eq!(asked, [], "the newest checkpoint has seen everything");
    assert_eq!(found.unwrap().critics.len(), 3);
    for group in checkpoints.list().unwrap() {
        std::fs::remove_file(checkpoints.file(group)).unwrap();
    }
    let (found, asked) = look();
    assert!(matches!(found, Err(RecoverError::Stopped)), "{found:?}");
    assert_eq!(asked, [(0, 200)]);
    // So is the recovery, before it reads the first group.
    let mut storage = SqliteStorage::open(&data).unwrap();
    let mut asked = 0;
    let stopped = recover_watched(&mut storage, &checkpoints, 1000, &mut |rows, of| {
        assert_eq!((rows, of), (0, 200));
        asked += 1;
        OnTheWay::Stop
    });
    assert!(matches!(stopped, Err(RecoverError::Stopped)));
    assert_eq!(asked, 1);
}

#[test]
fn a_configuration_is_compared_with_what_the_directory_holds() {
    for forgets in [false, true] {
        let place = recorded(forgets);
        let mut storage = SqliteStorage::open(&place.path().join("data")).unwrap();
        let bounds = storage.bounds().unwrap().unwrap();
        assert_eq!(bounds.0 > 1, forgets);
        let rows = 200 - storage.headers(bounds.0, 1).unwrap()[0].first_offset;
        drop(storage);
        let (status, text) = check(place.path(), RECORDED, &[]);
        assert!(status == 0 && text.contains("is sound") && !text.contains("changes critics"), "{text}");
        let (status, text) = check(place.path(), CHANGED, &[]);
        assert_eq!(status, 0, "{text}");
        for words in [
            format!(
                "main: the model is set aside, and learned again from {rows} rows of the journal: discount was 0.9, is 0.8"
            ),
            "near: the model is set aside: the critic is no longer in the settings".to_owned(),
            format!("far: is new, and is learned from {rows} rows of the journal"),
        ] {
            assert!(text.contains(&words), "{words}: {text}");
        }
        let (status, text) = check(place.path(), CHANGED, &["--json"]);
        let found: Value = serde_json::from_str(&text).unwrap();
        let expected = json!([
            {"critic": "main", "what": "learned_again", "change": "discount was 0.9, is 0.8"},
            {"critic": "near", "what": "dropped", "change": null},
            {"critic": "far", "what": "new", "change": null},
        ]);
        assert_eq!((status, &found["at_start"]["critics"], &found["at_start"]["rows"]), (0, &expected, &json!(rows)));
        // What the start would refuse is refused here.
        for (wrong, words) in
            [("rewards = [3]\n", "reward 3"), ("state_kinds = [\"real\", \"real\"]\n", "2 state variables")]
        {
            let (status, text) = check(place.path(), &format!("{RECORDED}{wrong}"), &[]);
            assert!(status == 1 && text.contains(words) && text.contains("Nothing has been changed"), "{text}");
        }
        let storage = SqliteStorage::open(&place.path().join("data")).unwrap().bounds().unwrap();
        assert_eq!(storage, Some(bounds), "a look writes nothing");
    }
    // Without a journal there is nothing to compare with.
    let place = tempfile::tempdir().unwrap();
    let (status, text) = check(place.path(), CHANGED, &["--json"]);
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &found["at_start"]), (0, &Value::Null));
}

#[test]
fn the_log_of_a_start_says_it_before_it_happens() {
    let place = recorded(false);
    let data = place.path().join("data");
    let file = place.path().join("robot.toml");
    std::fs::write(&file, CHANGED).unwrap();
    let mut command = criticd();
    command.arg("serve").arg("--config").arg(&file).arg("--data-dir").arg(&data).args(["--http", "off"]);
    command.args(any_ports()).stderr(std::fs::File::create(place.path().join("log")).unwrap());
    Process::start(command, &data).kill();
    let log = std::fs::read_to_string(place.path().join("log")).unwrap();
    let line =
        |words: &str| log.lines().position(|line| line.contains(words)).unwrap_or_else(|| panic!("{words}: {log}"));
    let said = line("event=settings_replace_model critic=main change=\"discount was 0.9, is 0.8\" rows=200");
    assert!(said < line("event=model_set_aside critic=main"), "{log}");
    line("event=settings_replace_model critic=near change=\"the critic is no longer in the settings\"");
}
