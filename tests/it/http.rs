//! The dashboard's server as browsers and Prometheus meet it: raw requests over TCP to a whole daemon.

use crate::support::daemon::{self, ANY_HTTP, Running};
use crate::support::http::{Answer, get, raw};
use crate::support::program::{criticd, patient};
use crate::support::{PATIENCE, until, wait};
use criticd::access::{Allow, Rights};
use criticd::client::Requester;
use criticd::config::{Config, ConfigParts};
use criticd::daemon::Daemon;
use criticd::learner::Settings;
use criticd::sim::batches;
use criticd::sim::pendulum::Pendulum;
use criticd::wire;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Settings of a daemon with a dashboard that refits only when asked to.
fn parts(directory: &Path) -> ConfigParts {
    ConfigParts {
        http: ANY_HTTP.into(),
        state_dim: Some(2),
        state_names: Some(vec!["angle".into(), "speed".into()]),
        critics: vec![Settings {
            name: "main".into(),
            discount: 0.9,
            dictionary_max: 60,
            refit_first_rows: 0,
            refit_score_drop: 0.0,
            evidence_rows: 100,
            search_starts: 2,
            refit_budget_s: 0.3,
            ..Settings::default()
        }],
        ..daemon::parts(directory)
    }
}

/// A daemon that shows a status.
fn start(change: impl FnOnce(&mut ConfigParts)) -> Running {
    let directory = tempfile::tempdir().unwrap();
    let mut parts = parts(directory.path());
    change(&mut parts);
    Running { daemon: shown(parts), directory }
}

/// A daemon with these settings, as soon as it shows a status.
fn shown(parts: ConfigParts) -> Daemon {
    let daemon = daemon::start(parts);
    let address = daemon.http_address().unwrap();
    until("a first status", || get(address, "/api/status").status == 200);
    daemon
}

impl Running {
    fn address(&self) -> SocketAddr {
        self.daemon.http_address().unwrap()
    }

    fn get(&self, path: &str) -> Answer {
        get(self.address(), path)
    }

    /// Push rows of a pendulum and wait until they have been learned.
    fn learn(&self, rows: usize) -> Requester {
        let sender = self.sender();
        let mut pendulum = Pendulum::new(1, 0.3);
        let steps: Vec<_> = (0..rows).map(|_| pendulum.step()).collect();
        for batch in steps.chunks(100).flat_map(|chunk| batches("pendulum", "run", chunk)) {
            sender.send(wire::encode_ingest(&batch)).unwrap();
        }
        sender.close(PATIENCE).unwrap();
        let mut requester = self.requester();
        requester.ask("value", json!({"states": [[0.0, 0.0]], "min_offset": rows}), PATIENCE).unwrap();
        requester
    }
}

/// Between two looks at what rows bring about that are sent meanwhile: it leaves the processor to the others.
const PACE: Duration = Duration::from_millis(20);

/// Server-sent events as they come.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(address: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET /api/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n").unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 200"), "{line}");
        Self(reader)
    }

    fn next(&mut self) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream has ended");
            if let Some(data) = line.strip_prefix("data: ") {
                return serde_json::from_str(data).unwrap();
            }
        }
    }
}

#[test]
fn every_answer_is_closed_to_other_sites() {
    let running = start(|parts| parts.http_hosts = vec!["robot.local".into()]);
    let with_host = |host: &str| {
        raw(running.address(), &format!("GET /api/status HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
    };
    until("a status", || with_host("localhost").status == 200);
    for host in ["127.0.0.1", "[::1]:1", "LOCALHOST:5753", "robot.local:80"] {
        assert_eq!(with_host(host).status, 200, "{host}");
    }
    for host in ["evil.example", "evil.example:5753", "localhost.evil.example", "10.0.0.1", ""] {
        let answer = with_host(host);
        assert_eq!(answer.status, 421, "{host}");
        assert!(!answer.text().contains("offset") && answer.text().contains("http_hosts"), "{}", answer.text());
    }
    let twice = "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert_eq!(raw(running.address(), twice).status, 421);
    assert_eq!(raw(running.address(), "GET / HTTP/1.0\r\n\r\n").status, 421);

    let paths =
        ["/", "/app.js", "/canvas.js", "/style.css", "/icon.svg", "/metrics", "/healthz", "/api/history", "/nothing"];
    for path in paths {
        let answer = running.get(path);
        assert_eq!(answer.status, if path == "/nothing" { 404 } else { 200 }, "{path}");
        let policy = answer.head.lines().find(|line| line.starts_with("content-security-policy: ")).unwrap();
        assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
        assert!(answer.head.contains("x-content-type-options: nosniff\r\n"), "{path}");
        assert!(!answer.head.contains("access-control-"), "{path}");
    }
    assert_eq!(
        raw(running.address(), "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .status,
        405
    );
    // Nothing in the page refers to anything but this daemon.
    for path in ["/", "/app.js", "/canvas.js", "/style.css"] {
        let text = running.get(path).text();
        assert!(!text.contains("https:") && !text.contains("//fonts") && !text.contains("@import"), "{path}");
    }
    assert!(!running.get("/").text().contains("style=\""), "an inline style would be refused by the browser");
    running.daemon.stop();
}

#[test]
fn it_is_ready_when_the_core_has_spoken_and_gone_when_it_stops() {
    let running = start(|_| {});
    assert_eq!(running.get("/healthz").text(), "ok\n");
    until("readiness", || running.get("/readyz").status == 200);
    let file = std::fs::read_to_string(running.directory.path().join("data/endpoints.json")).unwrap();
    let endpoints: Value = serde_json::from_str(&file).unwrap();
    let address = running.address();
    assert_eq!(endpoints["http"], address.to_string());
    let mut events = Events::open(address);
    events.next();
    running.daemon.stop();
    let mut rest = Vec::new();
    // The stream of events ends rather than hangs.
    events.0.read_to_end(&mut rest).ok();
    // A process that another test begins has the listener for a moment.
    until("nobody to listen", || TcpStream::connect(address).is_err());
}

#[test]
fn addresses_that_do_not_work_are_explained() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let try_at = |http: String| Daemon::start(Config::new(ConfigParts { http, ..parts(directory.path()) }).unwrap());
    let error = try_at(taken.local_addr().unwrap().to_string()).err().unwrap().to_string();
    assert!(error.contains("is in use") && error.contains("--http HOST:PORT") && error.contains("off"), "{error}");
    assert!(!directory.path().join("data/endpoints.json").exists());
    let remote = ConfigParts { http: "0.0.0.0:0".into(), ..parts(directory.path()) };
    assert!(Config::new(remote.clone()).unwrap_err().to_string().contains("insecure"));
    let anybody = Allow { addresses: "0.0.0.0/0".parse().unwrap(), rights: Rights::ALL };
    let allowed = ConfigParts { insecure: true, allow: vec![anybody], ..remote };
    daemon::start(allowed).stop();
    let daemon = try_at("off".into()).unwrap();
    assert_eq!(daemon.http_address(), None);
    let file = std::fs::read_to_string(directory.path().join("data/endpoints.json")).unwrap();
    assert!(!file.contains("http"), "{file}");
    daemon.stop();
}

#[test]
fn metrics_count_what_happened() {
    let running = start(|_| {});
    let mut requester = running.learn(700);
    let sender = running.sender();
    sender.send(vec![1, 2, 3]).unwrap();
    sender.close(PATIENCE).unwrap();
    let mut pendulum = Pendulum::new(2, 0.3);
    let steps: Vec<_> = (0..5).map(|_| pendulum.step()).collect();
    let id = requester.post_append(&batches("other", "run", &steps)[0]).unwrap();
    requester.reply(id, PATIENCE).unwrap();
    requester.ask("refit", json!({"wait": true}), PATIENCE).unwrap();
    let text = wait("all rows", || {
        let text = running.get("/metrics").text();
        let all = text.contains("criticd_rows_total 705\n") && text.contains("criticd_rejected_total{");
        let learned = text.contains("criticd_learned_rows_total{critic=\"main\"} 705\n");
        let over = text.lines().filter(|l| l.starts_with("criticd_refits_total") && l.ends_with(" 1")).count() == 1;
        (all && learned && over).then_some(text)
    });
    let sample = |name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name}\n{text}")).parse().unwrap()
    };
    assert_eq!(sample("criticd_rejected_total{code=\"malformed\"}"), 1.0);
    let ready = wait("readiness in spite of a refusal", || {
        let ready = running.get("/readyz");
        ready.text().contains("but 1 message was refused").then_some(ready)
    });
    assert_eq!(ready.status, 200, "{}", ready.text());
    assert_eq!(sample("criticd_streams"), 2.0);
    assert_eq!(sample("criticd_append_seconds_count"), 1.0);
    assert!(sample("criticd_append_seconds_sum") > 0.0);
    assert!(sample("criticd_query_seconds_count") >= 1.0);
    assert!(sample("criticd_query_seconds_bucket{le=\"+Inf\"}") >= 1.0);
    assert_eq!(sample("criticd_learned_rows_total{critic=\"main\"}"), 705.0);
    let size = sample("criticd_dictionary_size{critic=\"main\"}");
    assert!((1.0..=60.0).contains(&size));
    assert_eq!(sample("criticd_queue_capacity{queue=\"ingest\"}"), 1024.0);
    assert!(sample("criticd_received_bytes_total{socket=\"ingest\"}") > 1000.0);
    if cfg!(target_os = "linux") {
        assert!(sample("process_resident_memory_bytes") > 1e6);
    }
    let mut described = std::collections::HashSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert!(described.insert(rest.split(' ').next().unwrap()), "twice: {line}");
        } else if !line.starts_with('#') {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            let name = series.split('{').next().unwrap();
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
            assert!(described.contains(name) || base.is_some_and(|b| described.contains(b)), "{line}");
        }
    }
    let open = raw(
        running.address(),
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: application/openmetrics-text;version=1.0.0\r\n\
         Connection: close\r\n\r\n",
    );
    assert!(open.head.contains("content-type: application/openmetrics-text") && open.text().ends_with("# EOF\n"));
    promtool(&["check", "metrics"], Some(&text));
    running.daemon.stop();
}

#[test]
fn the_example_alerts_are_sound() {
    promtool(&["check", "rules", concat!(env!("CARGO_MANIFEST_DIR"), "/examples/alerts.yml")], None);
    // What they and the dashboard for Grafana refer to exists.
    let running = start(|_| {});
    running.learn(600);
    until("a scored model", || running.get("/metrics").text().contains("criticd_score_nats{"));
    let text = running.get("/metrics").text();
    let known = |name: &str| text.lines().any(|line| line.split(['{', ' ']).next() == Some(name));
    for file in ["alerts.yml", "grafana/criticd.json"] {
        let path = format!("{}/examples/{file}", env!("CARGO_MANIFEST_DIR"));
        let wanted = std::fs::read_to_string(path).unwrap();
        let words = wanted.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let mut names: Vec<&str> =
            words.filter(|word| word.starts_with("criticd_") || word.starts_with("process_")).collect();
        names.sort_unstable();
        names.dedup();
        assert!(names.len() > 5, "{file}: {names:?}");
        // Evidence there is only where it selects, held-out errors where returns do. What returns say is there with the first ones,
        // the detector's numbers once it knows the errors, the age of a checkpoint with the first one: the unit test of the metrics has
        // them. A start alone has the rows that it recovers.
        let later = [
            "criticd_recovery_rows",
            "criticd_log_evidence_nats",
            "criticd_held_out_error",
            "criticd_coverage_ratio",
            "criticd_return_error",
            "criticd_return_bias",
            "criticd_drift_level",
            "criticd_drift_threshold",
            "criticd_checkpoint_age_seconds",
        ];
        // Heads and alarms are there where some are declared.
        let declared = |name: &str| name.starts_with("criticd_heads") || name.starts_with("criticd_alarm_");
        for name in names.into_iter().filter(|name| !later.contains(name) && !declared(name)) {
            assert!(known(name), "{file} refers to {name}, which is not there");
        }
    }
    running.daemon.stop();
}

#[test]
fn the_alert_on_errors_fires_for_the_reward_whose_errors_have_doubled() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("errors.yml");
    // Of two rewards of one critic, whose errors were 1 and 4 for a day, that of the first is 3 from then on.
    let series = |reward: &str, values: &str| {
        format!(
            "      - {{series: 'criticd_return_error{{critic=\"arm\",reward=\"{reward}\"}}', values: '{values}'}}\n"
        )
    };
    let expected = "exp_labels: {critic: arm, reward: energy, severity: warning}";
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/alerts.yml");
    let text = format!(
        "rule_files: [{rules}]\nevaluation_interval: 5m\ntests:\n  - interval: 5m\n    input_series:\n{}{}    alert_rule_test:\n\
         \x20     - {{eval_time: 24h, alertname: CriticdError, exp_alerts: []}}\n\
         \x20     - eval_time: 25h\n        alertname: CriticdError\n        exp_alerts:\n          - {expected}\n\
         \x20           exp_annotations:\n              summary: 'Errors of critic arm, reward energy, are more than twice those of the last day: 3'\n\
         \x20             description: {DESCRIPTION:?}\n",
        series("energy", "1x288 3x24"),
        series("comfort", "4x312"),
    );
    std::fs::write(&path, text).unwrap();
    promtool(&["test", "rules", path.to_str().unwrap()], None);
}

/// Of the alert on errors.
const DESCRIPTION: &str = "Root mean square of return minus prediction. Rewards, the policy or the machine may have changed. The dashboard shows in which states the errors are large.";

/// Run Prometheus' own checker, where it is installed.
fn promtool(arguments: &[&str], input: Option<&str>) {
    let child = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        // The gate tries to install it, and says so where it cannot.
        return eprintln!("NOT CHECKED: promtool is not installed (package prometheus)");
    };
    child.stdin.take().unwrap().write_all(input.unwrap_or("").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {arguments:?}: {said}");
}

#[test]
fn pages_hear_what_happens_and_late_ones_see_the_past() {
    let running = start(|_| {});
    let mut events = Events::open(running.address());
    let first = events.next();
    let mut requester = running.learn(600);
    let mut previous = first["number"].as_u64().unwrap();
    let mut hear = |what: &str, wanted: &dyn Fn(&Value) -> bool| {
        wait(what, || {
            let news = events.next();
            let number = news["number"].as_u64().unwrap();
            assert!(number > previous, "{number} after {previous}");
            previous = number;
            wanted(&news).then_some(news)
        })
    };
    let news = hear("all rows", &|news| news["status"]["offset"] == 600);
    assert_eq!(news["status"]["recent_streams"]["pendulum"]["rows"], 600);
    assert_eq!(news["states"]["median"].as_array().unwrap().len(), 2);
    let outcome = requester.ask("refit", json!({"wait": true}), PATIENCE).unwrap();
    assert_eq!(outcome["outcome"], "adopted", "any fitted model replaces the first guess");
    let changed = |news: &Value| news["marks"].as_array().unwrap().iter().any(|m| m.get("kernel_after").is_some());
    let news = hear("the adoption", &changed);
    let mark = news["marks"].as_array().unwrap().iter().find(|mark| mark["event"] == "adopted").unwrap().clone();
    assert_eq!(mark["generation"], 2);
    assert_ne!(mark["kernel_before"], mark["kernel_after"]);
    assert_eq!(mark["kernel_before"]["scale"].as_array().unwrap().len(), 2);

    let history = running.get("/api/history").json();
    assert!(history["marks"].as_array().unwrap().contains(&mark));
    let columns: Vec<&str> = history["columns"].as_array().unwrap().iter().map(|c| c.as_str().unwrap()).collect();
    assert_eq!(columns.len(), news["point"].as_array().unwrap().len());
    let lengths: Vec<usize> = columns.iter().map(|c| history["history"][*c].as_array().unwrap().len()).collect();
    assert!(lengths.iter().all(|&length| length == lengths[0] && length as u64 == history["number"].as_u64().unwrap()));
    assert!(columns.contains(&"main.log_evidence") && columns.contains(&"main.held_out_error"));
    assert_eq!(history["colours"]["value"].as_str().unwrap().len(), 6 * 256);

    // The same keys as those of the status request.
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let mut status = requester.ask("status", json!({}), PATIENCE).unwrap();
    for envelope in ["v", "id", "ok"] {
        status.as_object_mut().unwrap().remove(envelope);
    }
    let shown = running.get("/api/status").json();
    assert_eq!(keys(&shown), keys(&status));
    assert_eq!(keys(&shown["critics"][0]), keys(&status["critics"][0]));
    running.daemon.stop();
}

#[test]
fn predictions_are_compared_with_what_came() {
    let running = start(|_| {});
    running.learn(200);
    // A model that has been told of what it knows now predicts what comes next.
    until("the rows", || running.get("/api/status").json()["offset"] == 200);
    until("a second look", || running.get("/api/history").json()["number"].as_u64() > Some(2));
    let sender = running.sender();
    let mut pendulum = Pendulum::new(5, 0.3);
    let pairs = wait("pairs", || {
        std::thread::sleep(PACE);
        let steps: Vec<_> = (0..300).map(|_| pendulum.step()).collect();
        for batch in batches("later", &pendulum.step().reward.to_string(), &steps) {
            sender.send(wire::encode_ingest(&batch)).unwrap();
        }
        let calibration = running.get("/api/history").json()["calibration"][0][0].clone();
        (calibration["summary"]["count"].as_u64() >= Some(10)).then_some(calibration)
    });
    for pair in pairs["pairs"].as_array().unwrap() {
        let [predicted, realised, deviation] = [0, 1, 2].map(|k| pair[k].as_f64().unwrap());
        assert!(predicted.is_finite() && realised <= 0.0 && deviation > 0.0, "{pair}");
    }
    sender.close(PATIENCE).unwrap();
    running.daemon.stop();
}

#[test]
fn a_restart_keeps_the_past_and_ignores_a_damaged_one() {
    let directory = tempfile::tempdir().unwrap();
    let run = || {
        let daemon = shown(parts(directory.path()));
        let address = daemon.http_address().unwrap();
        (daemon, address)
    };
    let (daemon, address) = run();
    let (sender, mut requester) = (daemon::sender(&daemon), daemon::requester(&daemon));
    sender.send(vec![1, 2, 3]).unwrap();
    let (mut pendulum, mut sent) = (Pendulum::new(5, 0.3), 0);
    until("pairs", || {
        std::thread::sleep(PACE);
        let steps: Vec<_> = (0..300).map(|_| pendulum.step()).collect();
        for batch in batches("robot", &pendulum.step().reward.to_string(), &steps) {
            sender.send(wire::encode_ingest(&batch)).unwrap();
        }
        sent += steps.len();
        let history = get(address, "/api/history").json();
        history["calibration"][0][0]["summary"]["count"].as_u64() >= Some(30)
    });
    // Rows that are on their way yet bring further pairs, and these push the oldest out.
    until("all rows", || get(address, "/api/status").json()["offset"] == sent);
    let before = get(address, "/api/history").json();
    requester.ask("refit", json!({"wait": true}), PATIENCE).unwrap();
    requester.ask("checkpoint", json!({}), PATIENCE).unwrap();
    sender.close(PATIENCE).unwrap();
    drop(requester);
    daemon.stop();

    let (daemon, address) = run();
    let after = get(address, "/api/history").json();
    let marks = after["marks"].as_array().unwrap();
    let adopted = marks.iter().find(|mark| mark["event"] == "adopted").expect("the adoption, with what was found");
    assert!(adopted["findings"].is_array() && adopted["generation"] == 2, "{adopted}");
    assert!(marks.iter().all(|mark| mark["event"] != "checkpoint"), "{marks:?}");
    let [old, new] = [&before, &after].map(|history| history["calibration"][0][0]["pairs"].as_array().unwrap());
    assert!(new.contains(old.last().unwrap()), "{new:?}");
    let times: Vec<f64> = after["history"]["time"].as_array().unwrap().iter().map(|t| t.as_f64().unwrap()).collect();
    assert_eq!(times[0], before["history"]["time"][0].as_f64().unwrap());
    let rates = after["history"]["rows_per_second"].as_array().unwrap();
    assert_eq!(rates.iter().filter(|rate| rate.is_null()).count(), 1, "a gap between the runs");
    let refused = after["history"]["refused"].as_array().unwrap();
    assert_eq!(refused.last().unwrap().as_f64(), Some(1.0), "those of the run before");
    let number = marks.last().unwrap()["number"].as_u64().unwrap();
    let mut requester = daemon::requester(&daemon);
    requester.ask("refit", json!({"wait": true}), PATIENCE).unwrap();
    until("a new mark", || {
        let marks = get(address, "/api/history").json()["marks"].clone();
        marks.as_array().unwrap().last().unwrap()["number"].as_u64() > Some(number)
    });
    drop(requester);
    daemon.stop();

    let file = directory.path().join("data/history");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let (daemon, address) = run();
    let fresh = get(address, "/api/history").json();
    assert_eq!((&fresh["marks"], &fresh["calibration"][0][0]["summary"]["count"]), (&json!([]), &json!(0)));
    assert!(get(address, "/api/status").json()["critics"][0]["generation"].as_u64() >= Some(2), "the model is there");
    daemon.stop();
    // The file keeps the past of this run instead.
    let (daemon, address) = run();
    assert!(get(address, "/api/history").json()["history"]["time"][0].as_f64() > times.last().copied());
    daemon.stop();
}

#[test]
fn heat_maps_say_what_queries_say() {
    let running = start(|_| {});
    let view = "/api/map?critic=main&x=0&y=1&range=-3,3,-8,8&at=0,0";
    assert_eq!(running.get(view).status, 404, "there is no model yet");
    let mut requester = running.learn(500);
    let answer = running.get(view);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let length = u32::from_le_bytes(answer.body[..4].try_into().unwrap()) as usize;
    let head: Value = serde_json::from_slice(&answer.body[4..4 + length]).unwrap();
    let (columns, rows) = (head["columns"].as_u64().unwrap() as usize, head["rows"].as_u64().unwrap() as usize);
    let numbers: Vec<f32> =
        answer.body[4 + length..].chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!(numbers.len(), 2 * columns * rows);
    assert!(!head["dictionary"].as_array().unwrap().is_empty() && head["offset"] == 500);
    let (i, j) = (columns / 3, rows - 1);
    let state = [6.0 * (i as f64 + 0.5) / columns as f64 - 3.0, 16.0 * (j as f64 + 0.5) / rows as f64 - 8.0];
    let value = requester.ask("value", json!({"states": [state], "variance": true}), PATIENCE).unwrap();
    let near = |a: f32, b: f64| assert!((f64::from(a) - b).abs() < 1e-3 * b.abs().max(1.0), "{a} {b}");
    near(numbers[j * columns + i], value["mean"][0].as_f64().unwrap());
    near(numbers[(rows + j) * columns + i], value["variance"][0].as_f64().unwrap().sqrt());

    for (query, word) in [
        ("critic=other&x=0&range=0,1", "critic"),
        ("x=2&range=0,1", "x and y"),
        ("x=0&y=1&range=0,1", "range"),
        ("x=0&range=0,1&at=1", "at"),
        ("x=0&range=0,1&head=1", "head"),
        ("x=zero&range=0,1", "x"),
        ("range=0,1", "x"),
        ("x=0&range=0,1e300", "magnitude"),
    ] {
        let answer = running.get(&format!("/api/map?{query}"));
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.text().contains(word), "{query}: {}", answer.text());
    }
    running.daemon.stop();
}

#[test]
fn earlier_models_can_be_compared_with_and_other_things_are_refused_by_name() {
    let running = start(|_| {});
    // All rows at once: there is no model of some of them that could be kept.
    let (mut requester, mut pendulum) = (running.requester(), Pendulum::new(1, 0.3));
    let steps: Vec<_> = (0..400).map(|_| pendulum.step()).collect();
    let id = requester.post_append(&batches("pendulum", "run", &steps)[0]).unwrap();
    requester.reply(id, PATIENCE).unwrap();
    requester.ask("value", json!({"states": [[0.0, 0.0]], "min_offset": 400}), PATIENCE).unwrap();
    let picture = |of: &str| running.get(&format!("/api/map?x=0&y=1&range=-3,3,-8,8&at=0,0{of}"));
    let values = |answer: &Answer| {
        let length = u32::from_le_bytes(answer.body[..4].try_into().unwrap()) as usize;
        let head: Value = serde_json::from_slice(&answer.body[4..4 + length]).unwrap();
        (head["generation"].as_u64(), answer.body[4 + length..4 + length + 4 * 96 * 72].to_vec())
    };
    // The page knows of a generation when a status has come with it.
    let kept = |generation: u64| {
        let found = running.get("/api/history").json()["kept"]["generations"][0].clone();
        found.as_array().unwrap().contains(&json!(generation))
    };
    until("the first generation", || kept(1));
    let first = values(&picture(""));
    requester.ask("refit", json!({"wait": true}), PATIENCE).unwrap();
    until("the second generation", || kept(2));
    until("its picture", || values(&picture("")).0 == Some(2));
    let again = values(&picture("&of=1"));
    assert_eq!(first.0, Some(1));
    assert_eq!(again, first, "the kept model says what it said");
    assert_ne!(values(&picture("&of=2")).1, first.1);

    let refused = |of: &str, words: &str| {
        let answer = picture(of);
        assert_eq!(answer.status, 400);
        assert!(answer.text().contains(words), "{}", answer.text());
    };
    refused("&of=7", "generation 7 is not kept");
    refused("&of=last", "of must be a generation, truth, then:ROWS, plan:DISCOUNT:REWARD, or head:NAME");
    refused("&of=truth", "no simulator in this process knows the truth");
    running.daemon.show_truth(criticd::http::Truth::new(1, [[-3.0, 3.0], [-8.0, 8.0]], vec![1.5]));
    assert!(values(&picture("&of=truth")).1.chunks_exact(4).all(|v| v == 1.5f32.to_le_bytes()));
    assert_eq!(running.get("/api/history").json()["truth"], true);
}

#[test]
fn nobody_keeps_others_out_or_grows_without_bound() {
    let running = start(|_| {});
    // A head that is too long, and one that is none: refused or cut, and others are served.
    let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "a".repeat(20_000));
    let mut stream = TcpStream::connect(running.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(long.as_bytes()).ok();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).ok();
    assert!(!said.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&said));
    let mut garbage = TcpStream::connect(running.address()).unwrap();
    garbage.write_all(&[0xff; 100]).unwrap();
    assert_eq!(running.get("/healthz").status, 200);

    // As many pages as there may be, and one more.
    let mut pages: Vec<Events> = (0..16).map(|_| Events::open(running.address())).collect();
    let refused = running.get("/api/events");
    assert_eq!(refused.status, 503);
    assert!(refused.head.contains("retry-after: "), "{}", refused.head);
    assert_eq!(running.get("/metrics").status, 200);
    pages.pop();
    until("a place for another page", || {
        let mut stream = TcpStream::connect(running.address()).unwrap();
        write!(stream, "GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        &start == b"HTTP/1.1 200"
    });
    drop(pages);

    // Connections that say nothing fill the house; whoever comes then is served as soon as one leaves.
    let mut silent: Vec<TcpStream> = (0..80).map(|_| TcpStream::connect(running.address()).unwrap()).collect();
    let address = running.address();
    let asking = std::thread::spawn(move || get(address, "/healthz").status);
    silent.drain(..40);
    assert_eq!(asking.join().unwrap(), 200);
    running.daemon.stop();
}

#[test]
fn the_status_command_follows_the_daemon_line_by_line() {
    let running = start(|_| {});
    running.learn(400);
    let control = running.daemon.endpoints.control.to_string();
    let watch = |extra: &[&str]| {
        let mut child = criticd()
            .args(patient(&format!("status --watch --interval 0.1 --control {control}")))
            .args(extra)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines: Vec<String> =
            BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok).take(2).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(lines.len(), 2);
        lines
    };
    let lines = watch(&[]);
    assert!(
        lines.iter().all(|line| line.starts_with("400 rows, ") && line.contains("main: generation 1")),
        "{lines:?}"
    );
    for line in watch(&["--json"]) {
        let status: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&status["offset"], &status["recent_streams"]["pendulum"]["rows"]), (&json!(400), &json!(400)));
    }
    let once = criticd().args(patient(&format!("status --control {control}"))).output().unwrap();
    let text = String::from_utf8(once.stdout).unwrap();
    let shown = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in ["rows 400 taken in", "variable", "angle", "pendulum"] {
        assert!(shown.contains(words), "{words}\n{text}");
    }
    running.daemon.stop();
}
