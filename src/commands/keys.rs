//! `criticd keys`.

use super::Failure;
use super::output::{columns, print, print_json};
use crate::keys;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Make and list the keys of encrypted connections (CURVE)
///
/// The daemon has a pair of keys, and each client has one. Give public keys to the other side. Secret keys stay in files that
/// only their owner may read; criticd never prints them.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd keys make daemon --dir /etc/criticd\n  criticd keys list --dir /etc/criticd"
)]
pub(crate) struct Keys {
    #[command(subcommand)]
    command: KeysCommand,
}

#[derive(Debug, clap::Subcommand)]
enum KeysCommand {
    Make(Make),
    List(List),
}

/// Make a pair: NAME.key_secret (0600) and NAME.key; existing files are not overwritten
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd keys make daemon --dir /etc/criticd\n  criticd keys make arm\n\npyzmq's zmq.auth.load_certificate and criticd.Keys.load read these files."
)]
struct Make {
    /// Name of the owner: 1 to 64 of A-Z a-z 0-9 _ -
    #[arg(value_name = "NAME", value_parser = name)]
    name: String,
    /// Directory for both files; created for its owner only if it does not exist
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// List the key files of a directory with their public keys
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  criticd keys list --dir /etc/criticd")]
struct List {
    /// The directory
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

fn name(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if (1..=64).contains(&text.len()) && text.bytes().all(plain) {
        return Ok(text.to_owned());
    }
    Err("a name has 1 to 64 of A-Z a-z 0-9 _ -".to_owned())
}

impl Keys {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.command {
            KeysCommand::Make(make) => make.run(),
            KeysCommand::List(list) => list.run(),
        }
    }
}

impl Make {
    fn run(self) -> Result<(), Failure> {
        use std::os::unix::fs::DirBuilderExt as _;
        let Self { name, dir, json } = self;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(|e| Failure::new(format!("cannot make {}: {e}", dir.display())))?;
        let public = keys::make(&dir, &name)?;
        let (secret_file, public_file) = keys::files(&dir, &name);
        let secret_file = secret_file.canonicalize().unwrap_or(secret_file);
        if json {
            return print_json(&json!({
                "name": name,
                "public_key": public,
                "secret_file": secret_file,
                "public_file": public_file,
            }));
        }
        print(&format!(
            "public key   {public}\nin           {}\nsecret key   {} (0600; it stays with its owner)\n\n\
             If these are the daemon's, its settings say:\n\n    curve_secret_key = {:?}\n    curve_control = \
             \"tcp://ADDRESS:PORT\"    # curve_ingest, curve_publish\n\nIf they are a client's, the daemon's settings say:\n\n    \
             [[clients]]\n    name = \"{name}\"\n    key = \"{public}\"\n    rights = [\"append\", \"query\"]    # \
             and \"administer\"\n",
            public_file.display(),
            secret_file.display(),
            secret_file,
        ))
    }
}

impl List {
    fn run(self) -> Result<(), Failure> {
        let entries = std::fs::read_dir(&self.dir);
        let entries = entries.map_err(|e| Failure::usage(format!("cannot read {}: {e}", self.dir.display())))?;
        let mut paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
        let extension = |path: &Path| path.extension().and_then(|extension| extension.to_str()).map(str::to_owned);
        paths.retain(|path| matches!(extension(path).as_deref(), Some("key" | "key_secret")));
        paths.sort();
        let found: Vec<(PathBuf, bool, Result<String, String>)> = paths
            .into_iter()
            .map(|path| {
                let secret = extension(&path).as_deref() == Some("key_secret");
                let key = keys::public_key(&path).map_err(|e| e.to_string());
                let mode = std::fs::metadata(&path).map_or(0, |metadata| metadata.permissions().mode() & 0o777);
                let open = secret && mode & 0o077 != 0;
                (path, secret, if open { Err(format!("others may read it ({mode:04o}): chmod 600")) } else { key })
            })
            .collect();
        if self.json {
            let documents = found.iter().map(|(path, secret, key)| {
                let (key, fault) = (key.as_ref().ok(), key.as_ref().err());
                json!({"file": path, "holds_secret": secret, "public_key": key, "fault": fault})
            });
            return print_json(&json!({"keys": documents.collect::<Vec<Value>>()}));
        }
        if found.is_empty() {
            return print(&format!("There are no keys in {}.\n", self.dir.display()));
        }
        let rows: Vec<Vec<String>> = found
            .into_iter()
            .map(|(path, secret, key)| {
                let kind = if secret { "secret" } else { "public" };
                vec![path.display().to_string(), kind.to_owned(), key.unwrap_or_else(|fault| fault)]
            })
            .collect();
        print(&columns(&["file", "holds", "public key"], &rows))
    }
}
