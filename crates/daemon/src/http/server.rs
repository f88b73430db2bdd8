//! The routes, and the connections that lead to them.

use super::connection_slots::{Places, Spare};
use super::guard::{Guard, Local, protect};
use super::metrics::Metrics;
use super::page;
use super::query_budget::{ModelQuestion, Refusal};
use super::response_budget::{HEAD_BYTES, WaitingAnswers, busy, count};
use super::watcher::{Ask, Frame};
use crate::access::{Access, Right};
use crate::clock::has_http_date;
use crate::monitor::parts_of_read_only;
use crate::telemetry::Heartbeat;
use crate::wire::Status;
use crate::wire::status::{CriticStatus, RebuildStatus};
use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use crossbeam_channel::Sender;
use futures_util::stream::{Stream, StreamExt, unfold};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::Sleep;

/// Time for the one request of a connection that has no place.
const SPARE_HEAD: Duration = Duration::from_secs(2);
/// Open pages that receive frames, at most.
const PAGES: usize = 16;
/// Time for a request to arrive, and between two of them on one connection.
const HEAD: Duration = Duration::from_secs(15);
/// A browser that takes nothing for so long is cut off.
const STALL: Duration = Duration::from_secs(30);
/// A page hears at least that the connection stands.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Fields of a request's head.
const HEAD_FIELDS: usize = 64;
/// Pause when no connection can be accepted, for want of descriptors mostly.
const BREATH: Duration = Duration::from_millis(100);
/// The core is taken for dead when it has said nothing for so long.
const SILENCE: Duration = Duration::from_secs(60);

/// Content types of answers.
const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";

/// What the routes answer from.
pub(super) struct Site {
    pub(super) asks: Sender<Ask>,
    pub(super) frame: watch::Receiver<Arc<Frame>>,
    pub(super) pulse: Arc<Heartbeat>,
    pub(super) metrics: Metrics,
    pub(super) guard: Guard,
    pub(super) access: Access,
}

/// Serve until `over` has lost its sender.
pub(super) async fn serve(
    listener: &std::net::TcpListener,
    access: &Access,
    routers: Routers,
    mut over: watch::Receiver<()>,
) {
    let listener = match listener.try_clone().and_then(TcpListener::from_std) {
        Ok(listener) => listener,
        Err(e) => return log::error!("event=dashboard_failed why={e}"),
    };
    let (places, mut spare) = (Places::default(), Spare::default());
    let accept = async {
        loop {
            match listener.accept().await {
                // Closed at once: an answer needs a request, and requests need the right to query.
                Ok((_, peer)) if !access.rights(Some(peer.ip())).has(Right::Query) => {
                    log::debug!("event=dashboard_unauthorised peer={}", peer.ip());
                }
                Ok((stream, peer)) => {
                    let Ok(local) = stream.local_addr() else { continue };
                    let local = Extension(Local(local));
                    let asked = Arc::new(AtomicBool::new(false));
                    if let Some(place) = places.take(peer.ip()) {
                        let router = routers.all.clone().layer(local);
                        tokio::spawn(connection(
                            Guarded::new(stream, place),
                            router,
                            asked,
                            HEAD,
                            true,
                            SystemTime::now(),
                        ));
                        continue;
                    }
                    spare.make_room();
                    let (router, stream) = (routers.health.clone().layer(local), Guarded::new(stream, ()));
                    let served = tokio::spawn(connection(
                        stream,
                        router,
                        Arc::clone(&asked),
                        SPARE_HEAD,
                        false,
                        SystemTime::now(),
                    ));
                    spare.push(peer.ip(), asked, served.abort_handle());
                    // What has come from it is read before a further one can take its place.
                    tokio::task::yield_now().await;
                }
                Err(e) => {
                    log::debug!("event=dashboard_accept why={e}");
                    tokio::time::sleep(BREATH).await;
                }
            }
        }
    };
    tokio::select! {
        () = accept => {}
        // The runtime that ends with us takes the connections along.
        _ = over.changed() => {}
    }
}

/// Serve a connection that comes at the time `now`; `asked` becomes true with its first request.
async fn connection(
    mut stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    router: Router,
    asked: Arc<AtomicBool>,
    head: Duration,
    keep_alive: bool,
    now: SystemTime,
) {
    // Each answer of hyper has a date, and hyper panics where there is none.
    if !has_http_date(now) {
        drop(tokio::time::timeout(head, refuse_by_clock(&mut stream)).await);
        return;
    }
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request| {
        asked.store(true, Ordering::Relaxed);
        router.call(request)
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .keep_alive(keep_alive)
        .max_headers(HEAD_FIELDS)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(e) = served.await {
        log::debug!("event=dashboard_connection why={e}");
    }
}

/// Read the beginning of a request, and answer that the clock is wrong.
async fn refuse_by_clock(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
    let why = "the clock of this machine says a year before 1970 or after 9999; set it\n";
    let length = why.len();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{why}"
    );
    let _ = stream.read(&mut [0; 4096]).await?;
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

/// What is served.
#[derive(Clone)]
pub(super) struct Routers {
    /// Everything.
    pub(super) all: Router,
    /// What supervisors and Prometheus ask for.
    pub(super) health: Router,
}

/// The routes of `site`.
pub(super) fn routers(site: Site) -> Routers {
    let guard = site.guard.clone();
    let waiting = WaitingAnswers::default();
    let shared = Arc::new(ServerShared { site, pages: Arc::new(Semaphore::new(PAGES)), waiting: waiting.clone() });
    let health =
        Router::new().route("/metrics", get(metrics)).route("/healthz", get(healthz)).route("/readyz", get(readyz));
    // Pages that take nothing do not keep out who asks for metrics.
    let health = health.layer(from_fn_with_state(WaitingAnswers::default(), count));
    let all = Router::new()
        .route("/api/status", get(status))
        .route("/api/history", get(history))
        .route("/api/events", get(events))
        .route("/api/map", drawn(ModelQuestion::Map, BYTES))
        .route("/api/path", drawn(ModelQuestion::Path, JSON))
        .route("/api/errors", drawn(ModelQuestion::Errors, JSON))
        .route("/api/heads", drawn(ModelQuestion::Heads, JSON))
        .route("/api/newest", drawn(ModelQuestion::Newest, JSON))
        .route("/api/relevance", drawn(ModelQuestion::Relevance, JSON))
        .route("/api/plan", drawn(ModelQuestion::Plan, JSON))
        .route("/api/rollout", drawn(ModelQuestion::Course, JSON))
        .layer(from_fn_with_state(waiting, count))
        .merge(health.clone())
        .fallback(|| async { (StatusCode::NOT_FOUND, "there is nothing here; the page is at /\n") });
    let all = page::FILES.iter().fold(all, |all, &(path, kind, text)| {
        let text = page::sent(kind, text);
        all.route(path, get(move || std::future::ready(([(header::CONTENT_TYPE, kind)], text.clone()))))
    });
    let health = health.fallback(|| async { busy("too many connections are open; close some") });
    let finish = |router: Router<Arc<ServerShared>>| {
        router.with_state(Arc::clone(&shared)).layer(from_fn(protect)).layer(Extension(guard.clone()))
    };
    Routers { all: finish(all), health: finish(health) }
}

struct ServerShared {
    site: Site,
    pages: Arc<Semaphore>,
    waiting: WaitingAnswers,
}

type Here = State<Arc<ServerShared>>;

fn in_json(text: String) -> Response {
    ([(header::CONTENT_TYPE, JSON)], text).into_response()
}

async fn status(State(shared): Here) -> Response {
    let frame = Arc::clone(&shared.site.frame.borrow());
    match &frame.status {
        None => busy("the daemon is starting"),
        Some(status) => in_json(status.to_json().to_string()),
    }
}

/// Ask the watcher; none if it has too much to do or has ended.
async fn ask<T>(shared: &ServerShared, question: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Option<T> {
    let (reply, answer) = oneshot::channel();
    shared.site.asks.try_send(question(reply)).ok()?;
    answer.await.ok()
}

/// The critic that a page shows.
#[derive(serde::Deserialize)]
struct HistoryQuery {
    /// Name of the critic; the first if left out.
    critic: Option<String>,
}

async fn history(State(shared): Here, Query(HistoryQuery { critic }): Query<HistoryQuery>) -> Response {
    ask(&shared, |reply| Ask::History(critic, reply)).await.map_or_else(|| busy("too many questions"), in_json)
}

/// Every frame, from the next one on, while the browser keeps up; the newest where it does not.
async fn events(State(shared): Here, Query(HistoryQuery { critic }): Query<HistoryQuery>) -> Response {
    let Ok(permit) = Arc::clone(&shared.pages).try_acquire_owned() else {
        return busy("too many pages are open; close one");
    };
    let frames = follow(shared.site.frame.clone(), permit);
    let (waiting, place) = (shared.waiting.clone(), Arc::new(Mutex::new(None)));
    let next = Arc::clone(&place);
    let events = frames.map(move |frame| {
        let news = frame.news.of(critic.as_deref());
        let mut counted = waiting.begin();
        // Where too much waits a page misses this frame, and asks for the history when the next one comes.
        let has_room = counted.set(news.len());
        *next.lock() = Some(counted);
        Ok::<_, Infallible>(if has_room { Event::default().data(news) } else { Event::default().comment("busy") })
    });
    let response = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response();
    let (parts, body) = response.into_parts();
    // An event becomes bytes as soon as it has come. They count until the page has taken them.
    let bytes = body.into_data_stream().map(move |bytes| match place.lock().take() {
        Some(counted) => bytes.map(|bytes| counted.of(bytes)),
        None => bytes,
    });
    Response::from_parts(parts, Body::from_stream(bytes))
}

/// The frames that come, the newest alone where several came since it was looked at. `permit` is held as long.
fn follow<P>(frames: watch::Receiver<Arc<Frame>>, permit: P) -> impl Stream<Item = Arc<Frame>> {
    unfold((frames, permit), |(mut frames, permit)| async move {
        frames.changed().await.ok()?;
        let frame = Arc::clone(&frames.borrow_and_update());
        Some((frame, (frames, permit)))
    })
}

/// A question as a browser writes it.
type Asked<Q> = Result<Query<Q>, axum::extract::rejection::QueryRejection>;

/// The route of questions about the model; answers are of content type `kind`.
fn drawn<Q: DeserializeOwned + Send + 'static>(
    question: fn(Q) -> ModelQuestion,
    kind: &'static str,
) -> MethodRouter<Arc<ServerShared>> {
    get(move |shared: Here, query: Asked<Q>| draw(shared, query, question, kind))
}

async fn draw<Q>(
    State(shared): Here,
    query: Asked<Q>,
    question: fn(Q) -> ModelQuestion,
    kind: &'static str,
) -> Response {
    let invalid = |why: String| (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response();
    let query = match query {
        Ok(Query(query)) => query,
        Err(e) => return invalid(e.body_text()),
    };
    match ask(&shared, |reply| Ask::Draw(question(query), reply)).await {
        Some(Ok(bytes)) => ([(header::CONTENT_TYPE, kind)], bytes).into_response(),
        Some(Err(Refusal::NotReady)) => (StatusCode::NOT_FOUND, "there is no model yet\n").into_response(),
        Some(Err(Refusal::Invalid(why))) => invalid(why),
        Some(Err(Refusal::Later(words))) => busy(&words),
        Some(Err(Refusal::Busy)) | None => busy("too many questions"),
    }
}

async fn metrics(State(shared): Here, headers: HeaderMap) -> Response {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let open_metrics = accepts.is_some_and(|accepts| accepts.contains("application/openmetrics-text"));
    let kind = if open_metrics {
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    } else {
        "text/plain; version=0.0.4; charset=utf-8"
    };
    ([(header::CONTENT_TYPE, kind)], shared.site.metrics.text(open_metrics)).into_response()
}

/// Whether the daemon is alive: it starts, or its core has spoken lately.
async fn healthz(State(shared): Here) -> Response {
    match shared.site.pulse.silence().filter(|silence| *silence > SILENCE) {
        Some(silence) => busy(&format!("the core has not answered for {} s", silence.as_secs())),
        None => "ok\n".into_response(),
    }
}

/// Whether it takes rows and answers queries: it has started, and does not stop. What is not ready is named, with what to do.
async fn readyz(State(shared): Here) -> Response {
    if shared.site.pulse.stopping() {
        return busy("stopping: it takes no rows any more; start it again");
    }
    match shared.site.pulse.silence() {
        None => busy("starting: ask again in a moment"),
        Some(silence) if silence > SILENCE => {
            let seconds = silence.as_secs();
            busy(&format!(
                "the core has not answered for {seconds} s: see the log, and start the daemon again if that goes on"
            ))
        }
        Some(_) if shared.site.pulse.warming() => {
            busy("learning the table of --warm-start first: live rows are taken when that is done")
        }
        Some(_) => {
            let frame = Arc::clone(&shared.site.frame.borrow());
            match readiness(frame.status.as_deref(), frame.refused) {
                Ok(words) => format!("{words}\n").into_response(),
                Err(why) => busy(&why),
            }
        }
    }
}

/// What this status says of a daemon that runs: ready, although something is amiss, or why it takes no rows. Messages that
/// it has `refused` lately are the fault of their senders: it takes the rows of others.
fn readiness(status: Option<&Status>, refused: u64) -> Result<String, String> {
    let Some(status) = status else { return Ok("ready".to_owned()) };
    if let Some(why) = &status.read_only {
        let (what, remedy) = parts_of_read_only(why);
        return Err(format!("read-only, no row is taken: {what}. {remedy}"));
    }
    let mut words = "ready".to_owned();
    if let Some(why) = status.journal.as_ref().and_then(|journal| journal.checkpoint_failure.as_deref()) {
        words += &format!(", but the last checkpoint could not be written: {why}: look at the disk");
    }
    for CriticStatus { name, failed, rebuild, .. } in &status.critics {
        words += &match (failed, rebuild) {
            (Some(why), _) => format!(", but critic {name:?} has failed: {why}: `criticd rebuild` learns it again"),
            (None, Some(RebuildStatus { failed: Some(why), .. })) => {
                format!(", but critic {name:?} could not be learned again: {why}: `criticd rebuild` tries again")
            }
            (None, Some(RebuildStatus { rows, of, failed: None })) => {
                format!(
                    ", but critic {name:?} is being learned again, {rows} of {of} rows so far: nothing is to be done"
                )
            }
            (None, None) => String::new(),
        };
    }
    if refused > 0 {
        let messages = if refused == 1 { "1 message was".to_owned() } else { format!("{refused} messages were") };
        words += &format!(
            ", but {messages} refused in the last 10 minutes: see `criticd status`, and `criticd quarantine list`"
        );
    }
    Ok(words)
}

/// A connection that is given up when its peer takes no byte for too long.
struct Guarded<P> {
    stream: TcpStream,
    /// Runs while there is something that the peer does not take.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Held as long.
    _place: P,
}

impl<P> Guarded<P> {
    fn new(stream: TcpStream, place: P) -> Self {
        Self { stream, stalled: None, _place: place }
    }

    fn watch<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(STALL)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the browser takes nothing")))
    }
}

impl<P: Unpin> AsyncRead for Guarded<P> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<P: Unpin> AsyncWrite for Guarded<P> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watch(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Instant;

    #[test]
    fn a_daemon_without_checkpoints_is_ready_and_says_why_they_fail() {
        let of = |text: &serde_json::Value| readiness(Some(&Status::from_json(text).unwrap()), 0);
        assert_eq!((readiness(None, 0), of(&json!({"journal": {}}))), (Ok("ready".to_owned()), Ok("ready".to_owned())));
        let failing = json!({"checkpoint_failure": "quota"});
        let words = "ready, but the last checkpoint could not be written: quota: look at the disk".to_owned();
        assert_eq!(of(&json!({"journal": failing})), Ok(words));
        let gone = "journal.sqlite was deleted or replaced while the daemon was running";
        let words = of(&json!({"read_only": gone})).unwrap_err();
        assert!(words.contains("Do not stop or restart it") && !words.contains("disk"), "{words}");
        let words = of(&json!({"journal": failing, "read_only": "full"})).unwrap_err();
        assert!(words.starts_with("read-only, no row is taken: full. Mend the cause"), "{words}");
    }

    #[test]
    fn a_critic_that_is_not_well_is_named_with_what_to_do() {
        let critics = json!([
            {"name": "sound"},
            {"name": "lost", "failed": "a bug", "rebuild": {"rows": 1, "of": 2}},
            {"name": "again", "rebuild": {"rows": 30, "of": 90}},
            {"name": "stuck", "rebuild": {"failed": "no room"}},
        ]);
        let words = readiness(Some(&Status::from_json(&json!({"critics": critics})).unwrap()), 0).unwrap();
        assert!(words.starts_with("ready, but critic \"lost\" has failed: a bug: `criticd rebuild`"), "{words}");
        assert!(words.contains("critic \"again\" is being learned again, 30 of 90 rows"), "{words}");
        assert!(words.contains("critic \"stuck\" could not be learned again: no room: `criticd rebuild`"), "{words}");
        assert!(!words.contains("sound"), "{words}");
    }

    #[test]
    fn a_daemon_that_refuses_messages_is_ready_and_says_so() {
        let words = |refused| readiness(Some(&Status::default()), refused).unwrap();
        assert_eq!(words(0), "ready");
        assert!(words(1).starts_with("ready, but 1 message was refused in the last 10 minutes: "), "{}", words(1));
        assert!(words(12).contains("but 12 messages were refused") && words(12).contains("quarantine list"));
    }

    #[test]
    fn a_clock_without_a_date_is_told() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let answer = async |now| {
                let (ours, mut theirs) = tokio::io::duplex(1 << 12);
                theirs.write_all(b"GET /healthz HTTP/1.1\r\nconnection: close\r\n\r\n").await.unwrap();
                connection(ours, Router::new(), Arc::default(), HEAD, true, now).await;
                let mut answer = String::new();
                theirs.read_to_string(&mut answer).await.unwrap();
                answer
            };
            assert!(answer(SystemTime::now()).await.starts_with("HTTP/1.1 404 "), "there is a date now");
            let answer = answer(SystemTime::UNIX_EPOCH - Duration::from_secs(1)).await;
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 503 ") && body.starts_with("the clock of this machine"), "{answer}");
            assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{answer}");
        });
    }

    #[test]
    fn a_slow_page_loses_what_came_in_between() {
        let (sender, frames) = watch::channel(Arc::new(Frame::default()));
        let mut stream = Box::pin(follow(frames, ()));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for number in [1, 2, 1000] {
                sender.send_replace(Arc::new(Frame { number, ..Frame::default() }));
            }
            assert_eq!(stream.next().await.unwrap().number, 1000);
            sender.send_replace(Arc::new(Frame { number: 1001, ..Frame::default() }));
            assert_eq!(stream.next().await.unwrap().number, 1001);
            drop(sender);
            assert!(stream.next().await.is_none());
        });
    }

    #[test]
    fn a_peer_that_takes_nothing_is_given_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let _silent = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let permits = Arc::new(Semaphore::new(1));
            let mut guarded = Guarded::new(stream, Arc::clone(&permits).try_acquire_owned().unwrap());
            let waited = std::future::poll_fn(|cx| {
                while let Poll::Ready(written) = Pin::new(&mut guarded).poll_write(cx, &[0; 1 << 16]) {
                    written.unwrap();
                }
                Poll::Ready(guarded.stalled.as_ref().map(|sleep| sleep.deadline()))
            });
            let deadline = waited.await.expect("the pipe is full");
            assert!(deadline <= (Instant::now() + STALL).into());
            // As if that time had come.
            guarded.stalled = Some(Box::pin(tokio::time::sleep(Duration::ZERO)));
            let gave_up = std::future::poll_fn(|cx| Pin::new(&mut guarded).poll_write(cx, &[0])).await;
            assert_eq!(gave_up.unwrap_err().kind(), io::ErrorKind::TimedOut);
            drop(guarded);
            assert_eq!(permits.available_permits(), 1);
        });
    }
}
