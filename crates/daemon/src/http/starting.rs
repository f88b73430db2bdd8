//! What is served while the journal is learned again, before there is anything else to show.

use super::guard::{Guard, protect};
use super::metrics::none_rejected;
use super::page;
use super::response_budget::busy;
use super::server::Routers;
use crate::telemetry::StartProgress;
use axum::Router;
use axum::extract::{Extension, State};
use axum::http::{StatusCode, header};
use axum::middleware::from_fn;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use std::sync::Arc;

/// Seconds after which the page looks again.
const LOOK_AGAIN: &str = "2";

type Here = State<Arc<StartProgress>>;

/// The routes of a start.
pub(super) fn routers(progress: Arc<StartProgress>, guard: Guard) -> Routers {
    let health = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics));
    let all = Router::new().route("/", get(progress_page)).route("/api/status", get(status)).merge(health.clone());
    // Only its looks: scripts would request data that the daemon does not have yet.
    let looks = page::FILES.iter().filter(|(path, ..)| path.ends_with(".css") || path.ends_with(".svg"));
    let all = looks.fold(all, |all, &(path, kind, text)| {
        all.route(path, get(move || async move { ([(header::CONTENT_TYPE, kind)], text) }))
    });
    let finish = |router: Router<Arc<StartProgress>>| {
        let router = router.fallback(|state: Here| async { readyz(state).await });
        router.with_state(Arc::clone(&progress)).layer(from_fn(protect)).layer(Extension(guard.clone()))
    };
    Routers { all: finish(all), health: finish(health) }
}

/// What a start is about.
fn words(progress: &StartProgress) -> String {
    match progress.get() {
        (_, 0) => "starting".to_owned(),
        (rows, of) => format!("recovering: {rows} of {of} rows of the journal learned again"),
    }
}

async fn readyz(State(progress): Here) -> Response {
    busy(&format!("{}; clients can connect when that is done: ask again in a moment", words(&progress)))
}

async fn status(State(progress): Here) -> Response {
    let (rows, of) = progress.get();
    let body = json!({"starting": {"rows": rows, "of": of}}).to_string();
    (StatusCode::SERVICE_UNAVAILABLE, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

async fn metrics(State(progress): Here) -> Response {
    let (rows, of) = progress.get();
    let text = format!(
        "# HELP criticd_recovered_rows Transitions of the journal that the start has learned again\n\
         # TYPE criticd_recovered_rows gauge\ncriticd_recovered_rows {rows}\n\
         # HELP criticd_recovery_rows Transitions of the journal that the start learns again\n\
         # TYPE criticd_recovery_rows gauge\ncriticd_recovery_rows {of}\n{}",
        none_rejected()
    );
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

async fn progress_page(State(progress): Here) -> Response {
    let (rows, of) = progress.get();
    let share = if of == 0 { 0.0 } else { rows as f64 / of as f64 };
    let (words, percent) = (words(&progress), (100.0 * share).floor());
    let html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"{LOOK_AGAIN}\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>criticd starts: {percent} %</title>\
         <link rel=\"icon\" type=\"image/svg+xml\" href=\"/icon.svg\"><link rel=\"stylesheet\" href=\"/style.css\"></head><body>\
         <main><section class=\"card empty\"><h2>criticd starts</h2><p>{words}</p>\
         <progress max=\"1\" value=\"{share:.4}\" aria-label=\"Share of the journal\"></progress>\
         <p class=\"hint\">Clients can connect when this is done. This page looks again every {LOOK_AGAIN} seconds.</p>\
         </section></main></body></html>\n"
    );
    Html(html).into_response()
}

#[cfg(test)]
mod tests {
    use super::super::{Listener, Starting};
    use super::*;
    use crate::config::{Config, ConfigParts};
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    #[test]
    fn a_browser_sees_how_far_a_start_is() {
        let config = Config::new(ConfigParts { http: "127.0.0.1:0".into(), ..ConfigParts::default() }).unwrap();
        let listener = Listener::bind(&config).unwrap().unwrap();
        let (address, progress) = (listener.address, Arc::new(StartProgress::default()));
        let _starting = Starting::serve(&config, &listener, Arc::clone(&progress)).unwrap();
        let get = |path: &str| {
            let mut browser = TcpStream::connect(address).unwrap();
            write!(browser, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
            let mut reply = String::new();
            browser.read_to_string(&mut reply).unwrap();
            reply
        };
        assert!(get("/").contains("<title>criticd starts: 0 %</title>"));
        progress.set(30_000, 75_000);
        let page = get("/");
        assert!(page.contains("<title>criticd starts: 40 %</title>") && page.contains("value=\"0.4000\""), "{page}");
        assert!(page.contains("30000 of 75000 rows"), "{page}");
        assert!(get("/style.css").starts_with("HTTP/1.1 200") && get("/app.js").starts_with("HTTP/1.1 503"));
        let metrics = get("/metrics");
        for line in ["criticd_recovery_rows 75000", "criticd_rejected_total{code=\"fenced\"} 0"] {
            assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
        }
        let status = get("/api/status");
        assert!(status.contains("\"rows\":30000") && status.contains("\"of\":75000"), "{status}");
    }
}
