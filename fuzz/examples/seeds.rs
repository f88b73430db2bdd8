//! Write the first inputs of the corpora: the golden messages, conversations, and the journal and checkpoints of a short
//! run. What fuzzing finds beyond them is kept beside them.
//!
//! `cargo run -p criticd-fuzz --example seeds`, in the folder of the repository.

use criticd_daemon::config::Config;
use criticd_daemon::daemon::core::{Call, Caller, Core, Now, Output, RefitDone};
use criticd_daemon::daemon::ledger::CheckpointDone;
use criticd_daemon::journal::checkpoint::{Checkpoint, Checkpoints};
use criticd_daemon::journal::memory::{Disk, MemoryCheckpoints, MemoryStorage};
use criticd_daemon::journal::{GroupWriter, SkippedRows};
use criticd_daemon::learner::refit;
use criticd_daemon::transport::Peer;
use criticd_daemon::wire::{self, ArrayForm, Id, Op};
use criticd_sim::{self as sim, Step, walk::Walk};
use parking_lot::Mutex;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

fn put(target: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let folder = Path::new("fuzz/corpus").join(target);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(name), bytes)
}

fn main() -> io::Result<()> {
    for entry in fs::read_dir("proto/vectors")? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "msgpack") {
            let name = path.file_stem().and_then(|name| name.to_str()).expect("names in ASCII");
            put("wire", name, &fs::read(&path)?)?;
        }
    }
    let ard = r#"{"kernel": {"kind": "ard", "signal_variance": 2, "bias_variance": 0.1, "relevance": [1, 0.5]},
                  "noise": {"model": "correlated", "variance": 0.01},
                  "inputs": {"dim": 2, "shift": [0, 1], "scale": [1, 2.5], "names": ["a", "b"]}}"#;
    put("wire", "hyperparameters.json", ard.as_bytes())?;
    let factor = "[noise]\nmodel = \"white\"\nvariance = 1e-3\n[kernel]\nkind = \"factor\"\nsignal_variance = 1\n\
                  bias_variance = 0\nrelevance = [1, 2]\nfactors = [[3, -4]]\n";
    put("wire", "hyperparameters.toml", factor.as_bytes())?;
    conversations()?;
    journals()
}

fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    if body.len() > 255 {
        [&[flags | 2][..], &(body.len() as u64).to_be_bytes(), body].concat()
    } else {
        [&[flags, body.len() as u8][..], body].concat()
    }
}

fn handshake(socket_type: &str, identity: &str) -> Vec<u8> {
    let mut greeting = [0; 64];
    (greeting[0], greeting[9], greeting[10], greeting[11]) = (0xff, 0x7f, 3, 1);
    greeting[12..16].copy_from_slice(b"NULL");
    let mut ready = b"\x05READY".to_vec();
    for (name, value) in [("Socket-Type", socket_type), ("Identity", identity)] {
        ready.push(name.len() as u8);
        ready.extend_from_slice(name.as_bytes());
        ready.extend_from_slice(&(value.len() as u32).to_be_bytes());
        ready.extend_from_slice(value.as_bytes());
    }
    [&greeting[..], &frame(4, &ready)].concat()
}

/// First bytes as `criticd_fuzz::gate` reads them.
fn conversations() -> io::Result<()> {
    let message = |body: &[u8]| [frame(1, b""), frame(0, body)].concat();
    let ping = frame(4, b"\x04PING\x00\x0acontext");
    let seed = |what: u8, piece: u8, parts: &[&[u8]]| [&[what, piece][..], &parts.concat()].concat();
    put("gate", "push", &seed(0, 7, &[&handshake("PUSH", ""), &frame(0, b"a batch"), &frame(0, &[7; 280])]))?;
    let dealer = handshake("DEALER", "me");
    put("gate", "dealer", &seed(1, 64, &[&dealer, &message(b"a request"), &ping, &message(b"another")]))?;
    put("gate", "req", &seed(5, 3, &[&handshake("REQ", ""), &message(b"a request")]))?;
    let topics = [frame(0, b"\x01event."), frame(0, b"\x01status"), frame(0, b"\x00event."), frame(0, b"\x01")];
    put("gate", "sub", &seed(2, 5, &[&handshake("SUB", ""), &topics.concat()]))?;
    let commands = [frame(4, b"\x09SUBSCRIBEstatus"), ping.clone(), frame(4, b"\x06CANCELstatus")];
    put("gate", "sub_commands", &seed(10, 9, &[&commands.concat()]))?;
    put("gate", "sub_narrow", &seed(14, 2, &[&topics.concat()]))?;
    let within = [frame(1, b"a"), ping.clone(), frame(1, b"b"), ping, frame(0, &[1; 290])];
    put("gate", "ping_within", &seed(12, 11, &[&within.concat()]))?;
    put("gate", "parts", &seed(12, 1, &[&frame(1, b"").repeat(4)]))?;
    let huge = [&[2][..], &(1_u64 << 62).to_be_bytes(), b"x"].concat();
    put("gate", "huge", &seed(8, 4, &[&huge]))?;
    put("gate", "huge_ready", &seed(0, 4, &[&handshake("PUSH", "")[..64], &[6], &huge[1..]]))?;
    put(
        "gate",
        "plain",
        &seed(0, 4, &[b"GET / HTTP/1.1\r\nHost: 127.0.0.1:5750\r\nUser-Agent: somebody who is lost\r\n\r\n"]),
    )?;
    Ok(())
}

const SETTINGS: &str = "window_rows = 256\ncheckpoint_rows = 1000000\n[[critic]]\nname = \"main\"\ndiscount = 0.9\n\
    evidence_rows = 40\nstarts = 1\ndictionary_max = 5\nbackfill_rows = 20\nrefresh_rows = 16\nwarmup_rows = 12\n\
    refit_first_rows = 0\n";

/// The groups of a short run, in pieces, as `criticd_fuzz::journal` reads them; and its checkpoints.
fn journals() -> io::Result<()> {
    let disk = Arc::new(Mutex::new(Disk::default()));
    let checkpoints = MemoryCheckpoints::default();
    let config = Arc::new(Config::from_toml(SETTINGS).map_err(io::Error::other)?);
    let at = |seconds: usize| Now { uptime: seconds as f64, unix: 1e9 + seconds as f64 };
    let (storage, kept) = (MemoryStorage::on(Arc::clone(&disk)), Arc::new(checkpoints.clone()));
    let mut core = Core::open(config, Box::new(storage), kept, at(0), &mut |_, _| {}).map_err(io::Error::other)?;
    let mut walk = Walk::new(1, Some(15), 0.0);
    let steps: Vec<Step> = (0..70).map(|_| walk.step()).collect();
    let peer = Peer { connection: 1, delimiter: false };
    let call = |op| Call { caller: Caller { peer, id: Id::nil(), form: ArrayForm::List }, op };
    let mut now = 0;
    let mut turn = |core: &mut Core| {
        now += 1;
        core.step(at(now));
        let outputs: Vec<Output> = core.take_outputs().collect();
        for output in outputs {
            match output {
                Output::Refit { critic, job, .. } => {
                    let result = refit::run(&job, &|| true).map_err(|e| e.to_string());
                    core.refit_done(RefitDone { critic, result, seconds: 0.0 });
                }
                Output::Checkpoint(checkpoint) => {
                    let Checkpoint { group, offset, replay_from, .. } = *checkpoint;
                    let bytes = checkpoint.encode();
                    checkpoints.write(group, &bytes).expect("into memory");
                    let result = Ok(bytes.len() as u64);
                    let done = CheckpointDone { group, offset, replay_from, result, seconds: 0.0 };
                    core.checkpoint_done(&done, at(now));
                    fs::create_dir_all("fuzz/corpus/checkpoint").expect("a folder");
                    put("checkpoint", &format!("body_{group}"), &[&[1], &bytes[35..]].concat()).expect("a file");
                    put("checkpoint", &format!("file_{group}"), &[&[0], &bytes[..]].concat()).expect("a file");
                }
                Output::Reply(_)
                | Output::Publish(_)
                | Output::Event(_)
                | Output::Status(_)
                | Output::Rebuild(_)
                | Output::FollowRebuild(_)
                | Output::Remove(_)
                | Output::WhatIf(..)
                | Output::CatchUp { .. }
                | Output::Garbage(_) => {}
            }
        }
    };
    for (k, steps) in steps.chunks(10).enumerate() {
        let batch = &sim::batches("robot", "run", steps)[0];
        if k == 1 {
            core.ingest(&wire::encode_ingest(batch), at(k));
        } else {
            core.call(call(Op::Append(batch.clone())), at(k));
        }
        (0..2).for_each(|_| turn(&mut core));
        if k % 2 == 0 {
            core.call(call(Op::Checkpoint), at(k));
            (0..2).for_each(|_| turn(&mut core));
        }
        if k == 2 {
            core.call(call(Op::Refit { critic: None, wait: false }), at(k));
            (0..3).for_each(|_| turn(&mut core));
        }
    }
    drop(core);
    let groups = disk.lock().groups.clone();
    let head = |fault: u8, kinds: u32, rows: u64, body: &[u8]| {
        [&[fault, kinds as u8][..], &(rows as u16).to_le_bytes(), &(body.len() as u16).to_le_bytes(), body].concat()
    };
    let stored: Vec<Vec<u8>> = groups.iter().map(|group| head(0, group.kinds, group.rows, &group.body)).collect();
    for count in 1..=stored.len() {
        put("journal", &format!("groups_{count}"), &[&[0, count as u8 / 2][..], &stored[..count].concat()].concat())?;
    }
    put("journal", "marked", &[&[3, 1][..], &stored[..4].concat()].concat())?;
    put("journal", "shortened", &[&[9, 1][..], &stored[..3].concat()].concat())?;
    for fault in 1..=5 {
        let [first, second, third] = [&groups[0], &groups[1], &groups[2]];
        let broken = head(fault, second.kinds, second.rows, &second.body);
        let parts = [head(0, first.kinds, 0, &first.body), broken, head(0, third.kinds, third.rows, &third.body)];
        put("journal", &format!("fault_{fault}"), &[&[0, 0][..], &parts.concat()].concat())?;
    }
    let mut writer = GroupWriter::default();
    let skipped = SkippedRows { critic: "main".into(), from: 3, to: 9, why: "it panicked".into() };
    writer.skipped(&skipped);
    writer.refit_ended("main");
    let group = writer.finish(1, 0, 0, 1e9);
    let skipped = head(0, group.kinds, 0, &group.body);
    put("journal", "skipped", &[&[0, 1][..], &stored[0], &skipped, &stored[1], &stored[2]].concat())?;
    println!("{} groups, {} bytes", groups.len(), stored.concat().len());
    Ok(())
}
