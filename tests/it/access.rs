//! Who may do what: every right against everything that can be asked for, on every socket, over real connections.

use crate::support::PATIENCE;
use crate::support::daemon::{self, ANY_HTTP, Running};
use crate::support::http::get;
use criticd::access::{Allow, Right, Rights};
use criticd::client::{ClientError, Requester, Sender, Subscriber};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// A daemon whose peers on loopback have these rights.
fn start(rights: &[Right]) -> Running {
    Running::start(|parts| {
        parts.http = ANY_HTTP.into();
        parts.allow = vec![Allow { addresses: "127.0.0.0/8".parse().unwrap(), rights: rights.to_vec().into() }];
    })
}

/// Everything that can be asked for, what it asks with, and the rights of which one is needed.
fn operations() -> Vec<(&'static str, Value, &'static [Right])> {
    let row = json!({"stream": "s", "seq": 0, "state": [0.0], "next_state": [0.5], "reward": 1.0});
    let producer: &[Right] = &[Right::Append, Right::Query];
    vec![
        ("append", row, &[Right::Append]),
        ("value", json!({"states": [[0.0]]}), &[Right::Query]),
        ("snapshot", json!({}), &[Right::Query]),
        ("snapshot", json!({"page": 0}), &[Right::Query]),
        ("status", json!({}), &[Right::Query]),
        ("rows", json!({}), &[Right::Query]),
        ("evaluate", json!({}), &[Right::Query]),
        ("hello", json!({}), producer),
        ("ping", json!({}), producer),
        ("streams", json!({}), producer),
        ("refit", json!({}), &[Right::Administer]),
        ("new_policy", json!({}), &[Right::Append, Right::Administer]),
        ("checkpoint", json!({}), &[Right::Administer]),
        ("rebuild", json!({}), &[Right::Administer]),
        ("remove", json!({"select": [{"stream": "nobody"}]}), &[Right::Administer]),
    ]
}

#[test]
fn each_operation_asks_for_its_right() {
    for byte in 1..=Rights::ALL.to_byte() {
        let rights = Rights::from_byte(byte);
        let running = start(&Vec::from(rights));
        let mut requester = running.requester();
        for (op, fields, needed) in operations() {
            let code = match requester.ask(op, fields, PATIENCE) {
                Ok(_) => "ok".to_owned(),
                Err(ClientError::Refused(refusal)) => {
                    if refusal.code == "unauthorised" {
                        assert!(refusal.message.contains(&rights.to_string()), "{}", refusal.message);
                        assert_eq!(refusal.field.as_deref(), Some("op"));
                    }
                    refusal.code
                }
                Err(other) => panic!("{op}: {other}"),
            };
            // What is allowed may still fail, for want of a model: that is another answer.
            assert_eq!(code != "unauthorised", rights.has_any(needed), "{op} with the right to {rights}: {code}");
            if op == "append" && rights.has(Right::Append) {
                assert_eq!(code, "ok");
            }
        }
        running.daemon.stop();
    }
}

#[test]
fn each_socket_lets_in_whoever_has_use_for_it() {
    for byte in 0..=Rights::ALL.to_byte() {
        let rights = Rights::from_byte(byte);
        let running = start(&Vec::from(rights));
        let ends = &running.daemon.endpoints;
        let pushes = Sender::connect(&ends.ingest.to_string(), PATIENCE).is_ok();
        assert_eq!(pushes, rights.has(Right::Append), "push with the right to {rights}");
        let subscribes = Subscriber::connect(&ends.publish.to_string(), &["status"], PATIENCE).is_ok();
        assert_eq!(subscribes, rights.has(Right::Query), "subscribe with the right to {rights}");
        let asks = Requester::connect(&ends.control.to_string(), PATIENCE).is_ok();
        assert_eq!(asks, rights != Rights::NONE, "connect to control with the right to {rights}");
        let mut browser = TcpStream::connect(running.daemon.http_address().unwrap()).unwrap();
        browser.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = String::new();
        // One that is not let in may be closed before it has asked.
        let _ = browser.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let _ = browser.read_to_string(&mut answer);
        assert_eq!(answer.starts_with("HTTP/1.1 200"), rights.has(Right::Query), "browse with the right to {rights}");
        running.daemon.stop();
    }
}

#[test]
fn what_comes_through_a_unix_socket_may_do_everything() {
    let directory = tempfile::tempdir().unwrap();
    let nobody = Allow { addresses: "0.0.0.0/0".parse().unwrap(), rights: Rights::NONE };
    let end = |name: &str| format!("ipc://{}", directory.path().join(name).display());
    let mut parts = daemon::parts(directory.path());
    (parts.ingest, parts.control, parts.publish) = (end("ingest"), end("control"), end("publish"));
    parts.allow = vec![nobody];
    let daemon = daemon::start(parts);
    let mut requester = Requester::connect(&end("control"), PATIENCE).unwrap();
    assert_eq!(requester.ask("checkpoint", json!({}), PATIENCE).unwrap()["offset"], 0);
    Sender::connect(&end("ingest"), PATIENCE).unwrap();
    Subscriber::connect(&end("publish"), &["status"], PATIENCE).unwrap();
    daemon.stop();
}

#[test]
fn peers_that_are_not_let_in_are_counted() {
    let running = start(&[Right::Query]);
    assert!(Sender::connect(&running.daemon.endpoints.ingest.to_string(), PATIENCE).is_err());
    let metrics = get(running.daemon.http_address().unwrap(), "/metrics").text();
    let line = metrics.lines().find(|line| line.contains("reason=\"unauthorised\"")).unwrap();
    assert!(line.ends_with(" 1"), "{line}");
    running.daemon.stop();
}
