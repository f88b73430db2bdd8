//! Who reaches the endpoints of the settings.

use super::document::Lines;
use super::tables::host;
use super::{ConfigError, ConfigParts, curve};
use std::net::IpAddr;

/// What is wrong with endpoints beside each other, and with who reaches them.
pub(super) fn check(parts: &ConfigParts, lines: &Lines, faults: &mut Vec<ConfigError>) {
    let mut fault = |key: &str, message: &str| faults.push(ConfigError::invalid(key, lines.of(key), message));
    let http = if parts.http == "off" { "tcp://127.0.0.1:0".into() } else { format!("tcp://{}", parts.http) };
    let mut endpoints: Vec<(&str, &str)> =
        vec![("ingest", &parts.ingest), ("control", &parts.control), ("publish", &parts.publish), ("http", &http)];
    for (key, _) in endpoints.iter().filter(|(_, endpoint)| !is_local(endpoint)) {
        if !parts.insecure {
            let message = "can be reached from other machines, where nothing is encrypted: use 127.0.0.1, name clients by \
                           their keys with curve_ingest, curve_control and curve_publish, or addresses with allow and \
                           insecure = true";
            fault(key, message);
        } else if parts.allow.is_empty() {
            fault(key, "can be reached from other machines, but allow grants no right to any of them");
        }
    }
    endpoints.extend(curve::endpoints(parts));
    for (i, (key, endpoint)) in endpoints.iter().enumerate() {
        let any_port = endpoint.starts_with("tcp://") && endpoint.ends_with(":0");
        if !any_port && endpoints[..i].iter().any(|(_, other)| other == endpoint) {
            fault(key, "must differ from the other endpoints");
        }
    }
}

/// Whether only this machine reaches the endpoint.
fn is_local(endpoint: &str) -> bool {
    let Ok(Some(host)) = host(endpoint) else { return true };
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
