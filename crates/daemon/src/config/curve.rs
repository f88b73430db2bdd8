//! The settings of encrypted endpoints, checked together.

use super::{ConfigError, ConfigParts, Lines};

/// Endpoints that speak CURVE, as the settings that name them.
pub(super) fn endpoints(parts: &ConfigParts) -> impl Iterator<Item = (&'static str, &str)> {
    let all = [
        ("curve_ingest", &parts.curve_ingest),
        ("curve_control", &parts.curve_control),
        ("curve_publish", &parts.curve_publish),
    ];
    all.into_iter().filter_map(|(key, endpoint)| Some((key, endpoint.as_deref()?)))
}

/// CURVE endpoints need a secret key and known clients; keys without such endpoints protect nothing.
pub(super) fn check(parts: &ConfigParts, lines: &Lines) -> Result<(), ConfigError> {
    let fault = |key: &str, message: &str| Err(ConfigError::invalid(key, lines.of(key), message));
    let Some((key, _)) = endpoints(parts).next() else {
        if !parts.clients.is_empty() {
            let message = "names keys without an encrypted endpoint: set curve_ingest, curve_control or curve_publish, where they are \
                           needed; the other sockets know no keys";
            return fault("clients", message);
        }
        return Ok(());
    };
    if !cfg!(feature = "curve") {
        return fault(key, "needs a criticd that was built with `--features curve`, which this one was not");
    }
    if parts.curve_secret_key.is_none() {
        return fault(key, "needs curve_secret_key: make one with `criticd keys make`");
    }
    if parts.clients.is_empty() {
        return fault(key, "needs clients: name at least one key that may connect");
    }
    Ok(())
}
