//! What is served while the journal is learned again, before there is anything else to show.

use super::guard::{Guard, protect};
use super::server::{Routers, busy};
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
    let all = Router::new().route("/", get(page)).route("/api/status", get(status)).merge(health.clone());
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
    busy(&words(&progress))
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
         # TYPE criticd_recovery_rows gauge\ncriticd_recovery_rows {of}\n"
    );
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

async fn page(State(progress): Here) -> Response {
    let words = words(&progress);
    let html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"{LOOK_AGAIN}\">\
         <title>criticd starts</title><h1>criticd starts</h1><p>{words}</p><p>Clients can connect when this is done.</p>\n"
    );
    Html(html).into_response()
}
