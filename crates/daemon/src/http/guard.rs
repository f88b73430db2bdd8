//! Who may ask, and what every answer says to the browser.

use axum::extract::{Extension, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Most time that an answer may take to begin.
const ANSWER: Duration = Duration::from_secs(10);

/// Headers of every answer: only our own files run, and other sites may neither read nor frame them.
const HEADERS: [(header::HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

/// The address at which a connection reached us.
#[derive(Clone, Copy)]
pub(super) struct Local(pub(super) SocketAddr);

/// The names under which we answer.
#[derive(Clone)]
pub(super) struct Guard {
    names: Arc<HashSet<String>>,
    bound: IpAddr,
}

impl Guard {
    pub(super) fn new(address: SocketAddr, names: &[String]) -> Self {
        let names = names.iter().map(|name| name.to_ascii_lowercase()).chain(["localhost".to_owned()]);
        Self { names: Arc::new(names.collect()), bound: address.ip() }
    }

    /// Whether `authority`, HOST or HOST:PORT, means us. Names must be known; addresses must be ours: the
    /// listener's, the one at which the connection came in, or loopback. The port does not matter, it may have been forwarded.
    fn knows(&self, authority: &str, local: IpAddr) -> bool {
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !host.ends_with(':') => host,
            _ => authority,
        };
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        match bare.parse::<IpAddr>() {
            Ok(address) => address.is_loopback() || address == self.bound || address == local,
            Err(_) => {
                let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
                let within = |(at, _): (usize, char)| self.names.contains(&format!("*{}", &name[at..]));
                self.names.contains(&name) || name.char_indices().filter(|(_, c)| *c == '.').any(within)
            }
        }
    }

    /// Every name that the request gives must be ours, and it must give one.
    fn admits(&self, uri: &Uri, headers: &HeaderMap, local: IpAddr) -> bool {
        let mut hosts = headers.get_all(header::HOST).iter().map(HeaderValue::to_str);
        let (Some(Ok(host)), None) = (hosts.next(), hosts.next()) else { return false };
        uri.authority().is_none_or(|a| self.knows(a.as_str(), local)) && self.knows(host, local)
    }
}

/// Refuse what is not meant for us, bound the time, set the headers.
pub(super) async fn protect(
    guard: Extension<Guard>,
    Extension(Local(local)): Extension<Local>,
    request: Request,
    next: Next,
) -> Response {
    // Whether the daemon is alive is no secret, and who asks may know it under any name.
    let is_harmless = request.uri().path() == "/healthz";
    let mut response = if is_harmless || guard.admits(request.uri(), request.headers(), local.ip()) {
        match tokio::time::timeout(ANSWER, next.run(request)).await {
            Ok(response) => response,
            Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "this took too long; try again\n").into_response(),
        }
    } else {
        let message = "This host name is not known here. Use localhost or the address itself, or add the name to \
                       http_hosts in the settings.\n";
        (StatusCode::MISDIRECTED_REQUEST, message).into_response()
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_answered() {
        let guard = Guard::new("10.0.0.7:5753".parse().unwrap(), &["Robot.local".to_owned(), "*.svc".to_owned()]);
        let local = "192.168.1.2".parse().unwrap();
        for ours in [
            "localhost",
            "LOCALHOST:5753",
            "127.0.0.1:5753",
            "127.8.8.8",
            "[::1]:5753",
            "10.0.0.7:80",
            "192.168.1.2:5753",
            "robot.local:5753",
            "robot.local.",
            "criticd.lab.svc:5753",
        ] {
            assert!(guard.knows(ours, local), "{ours}");
        }
        for foreign in [
            "",
            "evil.example",
            "svc",
            "criticd.svc.evil.example",
            "localhost.evil.example:5753",
            "10.0.0.8",
            "[::2]:1",
            "127.0.0.1.nip.io",
            ":80",
        ] {
            assert!(!guard.knows(foreign, local), "{foreign}");
        }
    }

    #[test]
    fn a_request_gives_one_name_and_no_other_in_its_target() {
        let guard = Guard::new("127.0.0.1:5753".parse().unwrap(), &[]);
        let local = "127.0.0.1".parse().unwrap();
        let admits = |uri: &str, hosts: &[&str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(header::HOST, HeaderValue::from_str(host).unwrap());
            }
            guard.admits(&uri.parse().unwrap(), &headers, local)
        };
        assert!(admits("/", &["localhost"]) && admits("http://127.0.0.1:1/", &["localhost"]));
        assert!(!admits("/", &[]) && !admits("/", &["localhost", "evil.example"]));
        assert!(!admits("http://evil.example/", &["localhost"]));
    }
}
