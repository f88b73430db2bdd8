//! What Prometheus reads.

use super::watcher::{Frame, Quality};
use crate::telemetry::{Heartbeat, Stage, Stages, Timings, resident_bytes, thread_seconds};
use crate::transport::{Counters, Reason, SocketName};
use crate::wire::status::{
    AdvisorStatus, AlarmStatus, CriticStatus, ModelMemoryStatus, QueueStatus, RefitStatus, ReturnsStatus,
};
use crate::wire::{ErrorCode, Status};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tokio::sync::watch;

/// Error codes with which messages on ingest and appends are refused.
const REFUSED_CODES: [ErrorCode; 14] = [
    ErrorCode::Malformed,
    ErrorCode::UnsupportedVersion,
    ErrorCode::UnknownOp,
    ErrorCode::MissingField,
    ErrorCode::WrongType,
    ErrorCode::WrongShape,
    ErrorCode::WrongDimension,
    ErrorCode::NotFinite,
    ErrorCode::OutOfRange,
    ErrorCode::Conflict,
    ErrorCode::Fenced,
    ErrorCode::TooLarge,
    ErrorCode::TooManyStreams,
    ErrorCode::Unauthorised,
];
/// What the counters of these say.
const REJECTED: &str = "Messages refused on ingest, and appends, by error code";

/// Messages that were refused, by error code: those that were not, too, so that the first refusal is a rise.
fn rejected(counted: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let none = REFUSED_CODES.map(|code| (code.name().to_owned(), 0));
    none.into_iter().chain(counted.clone()).collect()
}

/// The same before anything can be refused, in the format of Prometheus: the series begin with the start, not behind it.
pub(super) fn none_rejected() -> String {
    const NAME: &str = "criticd_rejected_total";
    let lines = rejected(&BTreeMap::new()).into_iter();
    let lines: String = lines.map(|(code, count)| format!("{NAME}{{code=\"{code}\"}} {count}\n")).collect();
    format!("# HELP {NAME} {REJECTED}\n# TYPE {NAME} counter\n{lines}")
}

/// All that is measured.
pub(super) struct Metrics {
    registry: Registry,
}

impl Metrics {
    pub(super) fn new(
        timings: Timings,
        pulse: Arc<Heartbeat>,
        counters: Arc<Counters>,
        frame: watch::Receiver<Arc<Frame>>,
    ) -> Self {
        let mut registry = Registry::default();
        let histograms = [
            ("criticd_append", "Time from an append's arrival until its acknowledgement is sent", timings.append),
            ("criticd_query", "Time from taking a query up until its answer is sent", timings.query),
            ("criticd_adoption_pause", "Pause of learning at an adoption", timings.adoption_pause),
        ];
        for (name, help, histogram) in histograms {
            registry.register_with_unit(name, help, Unit::Seconds, histogram);
        }
        registry.register_collector(Box::new(Scrape { pulse, stages: timings.stages, counters, frame }));
        Self { registry }
    }

    /// All metrics: in the OpenMetrics format, or in the format of Prometheus, which names counters in full.
    pub(super) fn text(&self, open_metrics: bool) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a string takes everything");
        if open_metrics { text } else { classic(&text) }
    }
}

/// The same in the older format: `# TYPE` and `# HELP` carry the suffix `_total` too, units and the end are not marked.
fn classic(open_metrics: &str) -> String {
    let counters: Vec<&str> =
        open_metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut text = String::with_capacity(open_metrics.len());
    for line in open_metrics.lines() {
        let head = ["# HELP ", "# TYPE "].into_iter().find_map(|head| Some((head, line.strip_prefix(head)?)));
        match head.map(|(head, rest)| (head, rest.split_once(' ').unwrap_or((rest, "")))) {
            Some((head, (name, rest))) if counters.contains(&name) => {
                text += &format!("{head}{name}_total {rest}\n");
            }
            None if line.starts_with('#') => {}
            _ => text += &format!("{line}\n"),
        }
    }
    text
}

/// The values read at a scrape.
struct Scrape {
    pulse: Arc<Heartbeat>,
    stages: Arc<Stages>,
    counters: Arc<Counters>,
    frame: watch::Receiver<Arc<Frame>>,
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}

/// One metric: what it is called, and its values, each with a label's value if it has a label.
struct Metric<'a> {
    name: String,
    help: &'a str,
    unit: Option<Unit>,
    label: Option<&'a str>,
}

impl Metric<'_> {
    fn write<T: EncodeMetric>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        kind: MetricType,
        values: impl Iterator<Item = (String, T)>,
    ) -> fmt::Result {
        let mut values = values.peekable();
        if values.peek().is_none() {
            return Ok(());
        }
        let mut family = encoder.encode_descriptor(&self.name, self.help, self.unit.as_ref(), kind)?;
        match self.label {
            Some(name) => values.try_for_each(|(label, value)| value.encode(family.encode_family(&[(name, label)])?)),
            None => values.next().map_or(Ok(()), |(_, value)| value.encode(family)),
        }
    }

    fn counter(&self, encoder: &mut DescriptorEncoder<'_>, values: impl Iterator<Item = (String, u64)>) -> fmt::Result {
        let values = values.map(|(label, value)| (label, ConstCounter::new(value)));
        self.write(encoder, MetricType::Counter, values)
    }

    fn seconds(&self, encoder: &mut DescriptorEncoder<'_>, values: impl Iterator<Item = (String, f64)>) -> fmt::Result {
        let values = values.map(|(label, value)| (label, ConstCounter::new(value)));
        self.write(encoder, MetricType::Counter, values)
    }

    fn gauge(&self, encoder: &mut DescriptorEncoder<'_>, values: impl Iterator<Item = (String, f64)>) -> fmt::Result {
        let values = values.map(|(label, value)| (label, ConstGauge::new(value)));
        self.write(encoder, MetricType::Gauge, values)
    }
}

/// A metric of ours.
fn metric<'a>(name: &str, help: &'a str) -> Metric<'a> {
    Metric { name: format!("criticd_{name}"), help, unit: None, label: None }
}

impl<'a> Metric<'a> {
    fn per(self, label: &'a str) -> Self {
        Self { label: Some(label), ..self }
    }

    fn in_unit(self, unit: Unit) -> Self {
        Self { unit: Some(unit), ..self }
    }
}

/// A single value without a label.
fn only<T>(value: Option<T>) -> impl Iterator<Item = (String, T)> {
    value.into_iter().map(|value| (String::new(), value))
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let to = &mut encoder;
        let frame = Arc::clone(&self.frame.borrow());
        if let Some(status) = frame.status.as_deref() {
            whole(status, to)?;
            journal(status, to)?;
            memory(status, to)?;
            queues(status, to)?;
        }
        metric("watcher_missed", "Notices that the dashboard missed because it did not keep up")
            .counter(to, only(Some(self.pulse.missed())))?;
        // The name that all programs use for it.
        let resident = Metric { name: "process_resident_memory".into(), ..metric("", "Resident memory of the daemon") };
        resident.in_unit(Unit::Bytes).gauge(to, only(resident_bytes().map(|bytes| bytes as f64)))?;
        self.stages(to)?;
        if let Some(status) = frame.status.as_deref() {
            critics(&status.critics, status.offset, to)?;
            alarms(&status.critics, to)?;
            quality(&frame.quality, to)?;
            advisors(&status.advisors, to)?;
        }
        self.sockets(to)
    }
}

/// What there is one number of.
fn whole(status: &Status, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    metric("build_info", "The program's version")
        .per("version")
        .gauge(to, std::iter::once((status.version.clone(), 1.0)))?;
    metric("uptime", "Time since the daemon started").in_unit(Unit::Seconds).gauge(to, only(Some(status.uptime_s)))?;
    metric("rows", "Transitions taken in").counter(to, only(Some(status.offset)))?;
    metric("duplicates", "Transitions that were known already").counter(to, only(Some(status.duplicates)))?;
    metric("rejected", REJECTED).per("code").counter(to, rejected(&status.rejected).into_iter())?;
    metric("missing_rows", "Transitions left out on ingest, by their sequence numbers")
        .counter(to, only(Some(status.missing_rows)))?;
    metric("skipped_rows", "Transitions that critics left out because they failed on them")
        .counter(to, only(Some(status.skipped_rows)))?;
    metric("streams", "Streams that the daemon keeps").gauge(to, only(Some(status.streams as f64)))?;
    metric("window_rows", "Transitions kept for model selection").gauge(to, only(Some(status.window.rows as f64)))?;
    metric("window", "Memory of the transitions kept")
        .in_unit(Unit::Bytes)
        .gauge(to, only(Some(status.window.bytes as f64)))
}

/// The rows on disk, if there is a journal.
fn journal(status: &Status, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let read_only = f64::from(u8::from(status.read_only.is_some()));
    metric("read_only", "1 while nothing can be stored, and no transition is taken in")
        .gauge(to, only(Some(read_only)))?;
    let Some(journal) = &status.journal else { return Ok(()) };
    metric("journal", "Records that the journal keeps")
        .in_unit(Unit::Bytes)
        .gauge(to, only(Some(journal.bytes as f64)))?;
    metric("journal_rows", "Transitions that the journal keeps").gauge(to, only(Some(journal.rows as f64)))?;
    metric("unerased_rows", "Transitions that were taken back and whose bytes the journal still has")
        .gauge(to, only(Some(journal.unerased_rows as f64)))?;
    metric("durable_rows", "Transitions that survive a power cut").counter(to, only(Some(journal.durable_offset)))?;
    metric("journal_failures", "Commits that failed").counter(to, only(Some(journal.failures)))?;
    metric("journal_commit", "Time that the last commit took")
        .in_unit(Unit::Seconds)
        .gauge(to, only(Some(journal.last_sync_s)))?;
    metric("checkpoint_rows", "Transitions that the newest checkpoint covers")
        .gauge(to, only(journal.checkpoint_offset.map(|offset| offset as f64)))?;
    metric("checkpoint_age", "Time since the newest checkpoint was written")
        .in_unit(Unit::Seconds)
        .gauge(to, only(journal.checkpoint_time.map(|time| (status.time - time).max(0.0))))?;
    metric("checkpoint_failures", "Checkpoints that could not be written")
        .counter(to, only(Some(journal.checkpoint_failures)))
}

/// What the settings allow, once that is known.
fn memory(status: &Status, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let Some(memory) = &status.memory else { return Ok(()) };
    let named = |values: &[(&str, u64)]| -> Vec<(String, f64)> {
        values.iter().map(|&(name, bytes)| (name.to_owned(), bytes as f64)).collect()
    };
    let units = named(&[("row", memory.row_bytes), ("stream", memory.stream_bytes)]);
    metric("memory_unit", "Memory of one retained transition, and of one stream")
        .per("unit")
        .in_unit(Unit::Bytes)
        .gauge(to, units.into_iter())?;
    let limits = named(&[
        ("window", memory.window_bytes_max),
        ("streams", memory.streams_bytes_max),
        ("queues", memory.queues_bytes_max),
        ("rebuild", memory.rebuild_bytes_max),
    ]);
    metric("memory_limit", "Most memory that the settings allow")
        .per("part")
        .in_unit(Unit::Bytes)
        .gauge(to, limits.into_iter())?;
    let of_models = |read: fn(&ModelMemoryStatus) -> u64| {
        memory.models.iter().map(move |model| (model.critic.clone(), read(model) as f64))
    };
    metric("dictionary_element", "Memory of one dictionary element of the largest dictionary")
        .per("critic")
        .in_unit(Unit::Bytes)
        .gauge(to, of_models(|model| model.element_bytes))?;
    metric("model_limit", "Memory of the model with the largest dictionary")
        .per("critic")
        .in_unit(Unit::Bytes)
        .gauge(to, of_models(|model| model.bytes_max))
}

fn queues(status: &Status, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let of = |read: fn(QueueStatus) -> u64| {
        status.queues.named().into_iter().map(move |(name, queue)| (name.to_owned(), read(queue) as f64))
    };
    metric("queue_length", "What waits in a queue").per("queue").gauge(to, of(|queue| queue.waiting))?;
    metric("queue_capacity", "What may wait in a queue").per("queue").gauge(to, of(|queue| queue.max))
}

/// A gauge of each critic: name, help, and the number that is read.
type CriticGauge = (&'static str, &'static str, fn(&CriticStatus) -> Option<f64>);

const CRITIC_GAUGES: [CriticGauge; 24] = [
    ("dictionary_size", "States in the dictionary", |c| Some(c.model.as_ref()?.dictionary_size as f64)),
    ("dictionary_max", "States that the dictionary may hold", |c| Some(c.dictionary_max as f64)),
    ("generation", "Number of the model in use; it rises with every adoption", |c| Some(c.generation as f64)),
    ("log_evidence_nats", "Log evidence of the model on the transitions it holds", |c| c.model.as_ref()?.log_evidence),
    ("held_out_error", "Error of held-out returns that the model was selected with; 1 is a constant", |c| {
        c.held_out_error
    }),
    ("score_nats", "Prequential log score per transition since the adoption", |c| c.model.as_ref()?.score),
    ("score_recent_nats", "Prequential log score per transition, recent average", |c| c.model.as_ref()?.score_recent),
    ("lambda", "What the weights are learned with, 0 to 1", |c| c.model.as_ref()?.lambda),
    ("return_factor", "Factor on deviations of returns that verification has found", |c| Some(returns(c)?.factor)),
    ("return_pairs", "Verified pairs of prediction and return behind that factor", |c| Some(returns(c)?.pairs as f64)),
    ("return_coverage", "Share of their returns in the 90 % interval before that factor", |c| {
        returns(c)?.coverage_before_factor
    }),
    ("noise_variance", "Noise variance, squared unit of the reward", |c| Some(c.model.as_ref()?.noise.variance)),
    ("signal_variance", "Signal variance of the kernel, squared unit of the value", |c| {
        Some(c.model.as_ref()?.kernel.signal_variance)
    }),
    ("drift_level", "Evidence that the errors have changed", |c| c.model.as_ref()?.drift.level),
    ("drift_threshold", "Evidence at which a change is called one", |c| c.model.as_ref()?.drift.threshold),
    ("running_chains", "Noise chains that are running", |c| Some(c.model.as_ref()?.running_chains as f64)),
    ("heads", "Heads of the critic", |c| Some(c.heads.as_ref()?.count as f64)),
    ("heads_learning", "Heads that were added and still learn retained rows", |c| {
        Some(c.heads.as_ref()?.learning as f64)
    }),
    ("gate", "How far the mixture of trackers is let in, 0 to 1, of the reward where that is most", |c| {
        let tracking = c.model.as_ref()?.drift.tracking.as_ref()?;
        Some(tracking.widest().map_or(0.0, |(gate, _)| gate))
    }),
    ("heads_unsolved", "Learned heads that the newest snapshot lacks", |c| Some(c.heads.as_ref()?.unsolved as f64)),
    ("heads_verified", "Heads with enough verified returns", |c| Some(c.heads.as_ref()?.verified as f64)),
    ("heads_coverage", "Mean share of verified returns in the 90 % intervals of heads", |c| {
        c.heads.as_ref()?.coverage_before_factor
    }),
    ("heads_coverage_worst", "The same share of the head that is farthest from 90 %", |c| {
        Some(c.heads.as_ref()?.worst.first()?.coverage_before_factor)
    }),
    ("heads_unexplained", "Largest unexplained variance of a verified head, over the variance of its returns", |c| {
        c.heads.as_ref()?.unexplained_max
    }),
];

fn returns(critic: &CriticStatus) -> Option<ReturnsStatus> {
    critic.model.as_ref()?.returns
}

/// Metrics of predictions beside the newest returns, of rewards with enough returns.
fn quality(quality: &[Quality], to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let names = [
        ("return_error", "Root mean square of return minus prediction, of the newest returns"),
        ("return_bias", "Mean of return minus prediction, of the newest returns"),
        ("coverage_ratio", "Share of the newest returns in their 90 % interval"),
    ];
    for (k, (name, help)) in names.into_iter().enumerate() {
        if quality.is_empty() {
            continue;
        }
        let name = format!("criticd_{name}");
        let mut family = to.encode_descriptor(&name, help, None, MetricType::Gauge)?;
        for of in quality {
            let labels = [("critic", of.critic.as_str()), ("reward", of.reward.as_str())];
            ConstGauge::new(of.numbers[k]).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn critics(critics: &[CriticStatus], offset: u64, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    for (name, help, read) in CRITIC_GAUGES {
        let values = critics.iter().filter_map(|critic| Some((critic.name.clone(), read(critic)?)));
        metric(name, help).per("critic").gauge(to, values)?;
    }
    let bytes = critics.iter().filter_map(|critic| Some((critic.name.clone(), critic.model.as_ref()?.bytes as f64)));
    metric("model", "Memory of the model").per("critic").in_unit(Unit::Bytes).gauge(to, bytes)?;
    let flags = |read: fn(&CriticStatus) -> bool| {
        critics.iter().map(move |critic| (critic.name.clone(), f64::from(u8::from(read(critic)))))
    };
    metric("critic_failed", "1 where a critic has failed and learns no more")
        .per("critic")
        .gauge(to, flags(|critic| critic.failed.is_some()))?;
    metric("refit_running", "1 while a model is being selected")
        .per("critic")
        .gauge(to, flags(|critic| critic.refit.running))?;
    let waits =
        |c: &&CriticStatus| !c.refit.running && c.failed.is_none() && c.refit.next_at.is_some_and(|at| at <= offset);
    metric("refits_waiting", "Critics whose model selection is due and waits for others")
        .gauge(to, only(Some(critics.iter().filter(waits).count() as f64)))?;
    let counts = |read: fn(&CriticStatus) -> Option<u64>| {
        critics.iter().filter_map(move |critic| Some((critic.name.clone(), read(critic)?)))
    };
    metric("learned_rows", "Transitions learned").per("critic").counter(to, counts(|critic| Some(critic.learned)))?;
    metric("drift_alarms", "Changes of the world that were called one")
        .per("critic")
        .counter(to, counts(|critic| Some(critic.model.as_ref()?.drift.alarms)))?;
    metric("novel_when_full", "Novel states that found the dictionary full")
        .per("critic")
        .counter(to, counts(|critic| Some(critic.counts.novel_when_full)))?;
    let help = "Model selections that are over, by critic and outcome";
    let mut family = to.encode_descriptor("criticd_refits", help, None, MetricType::Counter)?;
    for critic in critics {
        let RefitStatus { adopted, rejected, failed, .. } = critic.refit;
        for (outcome, count) in [("adopted", adopted), ("rejected", rejected), ("failed", failed)] {
            let labels = [("critic", critic.name.clone()), ("outcome", outcome.to_owned())];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// A gauge and a counter of each alarm: name, help, and the number that is read.
type AlarmGauge = (&'static str, &'static str, fn(&AlarmStatus) -> Option<f64>);
type AlarmCounter = (&'static str, &'static str, fn(&AlarmStatus) -> u64);

const ALARM_GAUGES: [AlarmGauge; 3] = [
    ("alarm_on", "Streams whose alarm is on", |alarm| Some(alarm.on as f64)),
    ("alarm_false_ratio", "Share of the followed returns that stayed above at whose row the alarm was on", |alarm| {
        alarm.false_share
    }),
    (
        "alarm_lead_rows",
        "Mean rows from an alarm that was right to the row since which the return was below",
        |alarm| alarm.lead_rows,
    ),
];
const ALARM_COUNTERS: [AlarmCounter; 5] = [
    ("alarms", "Alarms raised", |alarm| alarm.raised),
    ("alarm_hits", "Alarms from whose row on the return fell below", |alarm| alarm.hits),
    ("alarm_mistakes", "Alarms from whose row on the return stayed above", |alarm| alarm.mistaken),
    ("alarm_low_returns", "Followed returns that fell below", |alarm| alarm.fell),
    ("alarm_misses", "Followed returns that fell below without an alarm before", |alarm| alarm.missed),
];

/// Metrics of the alarms about returns, by critic and head; the values of the critic itself have an empty head.
fn alarms(critics: &[CriticStatus], to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let all = || critics.iter().flat_map(|critic| critic.alarms.iter().map(|alarm| (critic.name.clone(), alarm)));
    let labels = |critic, alarm: &AlarmStatus| [("critic", critic), ("head", alarm.head.clone().unwrap_or_default())];
    for (name, help, read) in ALARM_GAUGES {
        let mut known = all().filter_map(|(critic, alarm)| Some((critic, alarm, read(alarm)?))).peekable();
        if known.peek().is_some() {
            let name = format!("criticd_{name}");
            let mut family = to.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            known.try_for_each(|(critic, alarm, value)| {
                ConstGauge::new(value).encode(family.encode_family(&labels(critic, alarm))?)
            })?;
        }
    }
    for (name, help, read) in ALARM_COUNTERS.into_iter().filter(|_| all().next().is_some()) {
        let name = format!("criticd_{name}");
        let mut family = to.encode_descriptor(&name, help, None, MetricType::Counter)?;
        all().try_for_each(|(critic, alarm)| {
            ConstCounter::new(read(alarm)).encode(family.encode_family(&labels(critic, alarm))?)
        })?;
    }
    Ok(())
}

/// Metrics of the advisors.
fn advisors(advisors: &[AdvisorStatus], to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let of = |read: fn(&AdvisorStatus) -> u64| advisors.iter().map(move |of| (of.name.clone(), read(of)));
    metric("advisor_suggestions", "Decisions that an advisor has suggested")
        .per("advisor")
        .counter(to, of(|advisor| advisor.decisions))?;
    metric("advisor_reports", "Costs that an advisor has learned")
        .per("advisor")
        .counter(to, of(|advisor| advisor.learned))?;
    let waiting = of(|advisor| advisor.waiting).map(|(name, waiting)| (name, waiting as f64));
    metric("advisor_open_decisions", "Decisions that wait for their cost").per("advisor").gauge(to, waiting)
}

impl Scrape {
    fn stages(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let stages = || Stage::ALL.iter().copied();
        let name = |stage: Stage| stage.name().to_owned();
        metric("stage", "Time that the core's thread has spent in a stage")
            .per("stage")
            .in_unit(Unit::Seconds)
            .seconds(to, stages().map(|stage| (name(stage), self.stages.seconds(stage))))?;
        metric("stage_rows", "Transitions that have passed a stage of the core's thread")
            .per("stage")
            .counter(to, stages().map(|stage| (name(stage), self.stages.rows(stage))))?;
        metric("received_messages", "Messages and requests that have passed the gate and their socket")
            .per("socket")
            .counter(to, self.received().into_iter())?;
        metric(
            "thread_cpu",
            "Processor time of the daemon's threads; criticd-gate receives and answers, criticd-fan-out publishes",
        )
        .per("thread")
        .in_unit(Unit::Seconds)
        .seconds(to, thread_seconds().into_iter())
    }

    fn received(&self) -> [(String, u64); 2] {
        let counts = [
            (SocketName::Ingest, self.counters.ingest_messages.get()),
            (SocketName::Control, self.counters.requests.get()),
        ];
        counts.map(|(socket, count)| (socket.name().to_owned(), count))
    }

    fn sockets(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let sockets = [SocketName::Ingest, SocketName::Control, SocketName::Publish];
        let of = |read: fn(&crate::transport::SocketCounters) -> u64| {
            sockets.map(|socket| (socket.name().to_owned(), read(self.counters.socket(socket))))
        };
        let gauge = |values: [(String, u64); 3]| values.into_iter().map(|(name, value)| (name, value as f64));
        metric("connections", "Connections to a socket").per("socket").gauge(to, gauge(of(|s| s.connections.get())))?;
        metric("backlog", "What waits for the peers of a socket")
            .per("socket")
            .in_unit(Unit::Bytes)
            .gauge(to, gauge(of(|s| s.backlog_bytes.get())))?;
        let queued = self.counters.queued.named().into_iter();
        metric("queued", "What waits in the daemon's queues at its sockets")
            .per("queue")
            .in_unit(Unit::Bytes)
            .gauge(to, queued.map(|(name, bytes)| (name.to_owned(), bytes as f64)))?;
        metric("accepted_connections", "Connections accepted by a socket")
            .per("socket")
            .counter(to, of(|s| s.accepted.get()).into_iter())?;
        metric("received", "What peers of a socket sent")
            .per("socket")
            .in_unit(Unit::Bytes)
            .counter(to, of(|s| s.bytes_in.get()).into_iter())?;
        metric("sent", "What was sent to peers of a socket")
            .per("socket")
            .in_unit(Unit::Bytes)
            .counter(to, of(|s| s.bytes_out.get()).into_iter())?;
        let cut =
            |reason: &Reason| sockets.iter().map(|socket| self.counters.socket(*socket).cut(*reason)).sum::<u64>();
        metric("disconnected_peers", "Peers that were refused or cut off, by reason")
            .per("reason")
            .counter(to, Reason::ALL.iter().map(|reason| (reason.name().to_owned(), cut(reason))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Metrics of a daemon with this status.
    fn metrics(status: &Value) -> Metrics {
        let status = Some(Arc::new(Status::from_json(status).unwrap()));
        let of = |reward: &str, numbers| Quality { critic: "main".into(), reward: reward.into(), numbers };
        let quality = vec![of("energy", [0.5, -0.25, 0.875]), of("1", [2.0, 0.0, 0.5])];
        let frame = Frame { status, quality, ..Frame::default() };
        let (_, frame) = watch::channel(Arc::new(frame));
        Metrics::new(Timings::default(), Arc::default(), Arc::default(), frame)
    }

    #[test]
    fn counters_are_named_in_full_in_the_older_format() {
        let status = json!({"version": "1", "offset": 12, "rejected": {"not_finite": 3}, "critics": [
            {"name": "main", "failed": null, "dictionary_size": 7, "log_evidence": -1.5, "held_out_error": 0.25,
             "returns": {"factor": 1.5, "pairs": 50, "coverage": 0.75}, "refit": {"adopted": 2, "next_at": 12},
             "heads": {"count": 600, "learning": 2, "unsolved": 3, "verified": 500, "coverage": 0.875, "unexplained_max": 1.25,
                       "worst": [{"name": "grip", "pairs": 40, "coverage": 0.5, "bias": 0.0, "unexplained": 1.25, "factor": 1.0}]},
             "drift": {"level": 3.5, "threshold": 8.0, "alarms": 1},
             "alarms": [{"below": -1.0, "on": 2, "raised": 9, "hits": 6, "mistaken": 3, "fell": 5, "missed": 1, "lead_rows": 12.5},
                        {"head": "grip", "raised": 4, "false_share": 0.25}]},
            {"name": "busy", "refit": {"running": true, "next_at": 3}},
            {"name": "later", "refit": {"next_at": 13}}
        ], "advisors": [{"name": "throw", "decisions": 9, "learned": 7, "waiting": 2}], "read_only": "full", "missing_rows": 5, "time": 1010.0, "journal": {
            "bytes": 77, "unerased_rows": 6, "durable_offset": 11, "last_sync_s": 0.5, "checkpoint_time": 1000.0, "checkpoint_failures": 4
        }});
        let metrics = metrics(&status);
        let text = metrics.text(false);
        for line in [
            "# TYPE criticd_rows_total counter",
            "criticd_rows_total 12",
            "criticd_rejected_total{code=\"not_finite\"} 3",
            "criticd_rejected_total{code=\"wrong_dimension\"} 0",
            "criticd_missing_rows_total 5",
            "criticd_read_only 1.0",
            "criticd_journal_bytes 77.0",
            "criticd_unerased_rows 6.0",
            "criticd_durable_rows_total 11",
            "criticd_journal_commit_seconds 0.5",
            "criticd_checkpoint_age_seconds 10.0",
            "criticd_checkpoint_failures_total 4",
            "criticd_dictionary_size{critic=\"main\"} 7.0",
            "criticd_log_evidence_nats{critic=\"main\"} -1.5",
            "criticd_held_out_error{critic=\"main\"} 0.25",
            "criticd_return_coverage{critic=\"main\"} 0.75",
            "criticd_refits_total{critic=\"main\",outcome=\"adopted\"} 2",
            "criticd_return_error{critic=\"main\",reward=\"energy\"} 0.5",
            "criticd_return_error{critic=\"main\",reward=\"1\"} 2.0",
            "criticd_return_bias{critic=\"main\",reward=\"energy\"} -0.25",
            "criticd_coverage_ratio{critic=\"main\",reward=\"energy\"} 0.875",
            "criticd_heads{critic=\"main\"} 600.0",
            "criticd_heads_learning{critic=\"main\"} 2.0",
            "criticd_heads_unsolved{critic=\"main\"} 3.0",
            "criticd_heads_verified{critic=\"main\"} 500.0",
            "criticd_heads_coverage{critic=\"main\"} 0.875",
            "criticd_heads_coverage_worst{critic=\"main\"} 0.5",
            "criticd_heads_unexplained{critic=\"main\"} 1.25",
            "criticd_advisor_suggestions_total{advisor=\"throw\"} 9",
            "criticd_advisor_reports_total{advisor=\"throw\"} 7",
            "criticd_advisor_open_decisions{advisor=\"throw\"} 2.0",
            "criticd_drift_level{critic=\"main\"} 3.5",
            "criticd_drift_threshold{critic=\"main\"} 8.0",
            "criticd_drift_alarms_total{critic=\"main\"} 1",
            "criticd_alarm_on{critic=\"main\",head=\"\"} 2.0",
            "criticd_alarm_lead_rows{critic=\"main\",head=\"\"} 12.5",
            "criticd_alarm_false_ratio{critic=\"main\",head=\"grip\"} 0.25",
            "criticd_alarms_total{critic=\"main\",head=\"grip\"} 4",
            "criticd_alarm_hits_total{critic=\"main\",head=\"\"} 6",
            "criticd_alarm_mistakes_total{critic=\"main\",head=\"\"} 3",
            "criticd_alarm_low_returns_total{critic=\"main\",head=\"\"} 5",
            "criticd_alarm_misses_total{critic=\"main\",head=\"\"} 1",
            "criticd_refits_waiting 1.0",
            "# TYPE criticd_append_seconds histogram",
            "criticd_append_seconds_count 0",
            "criticd_build_info{version=\"1\"} 1.0",
            "# TYPE criticd_stage_seconds_total counter",
            "criticd_stage_seconds_total{stage=\"learn\"} 0.0",
            "criticd_stage_rows_total{stage=\"decode\"} 0",
            "criticd_received_messages_total{socket=\"ingest\"} 0",
            "criticd_queued_bytes{queue=\"requests\"} 0.0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        assert!(!text.contains("# EOF") && !text.contains("# UNIT"));
        // A start has the same counters.
        let of_rejected = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| line.starts_with("criticd_rejected_total{"));
            lines.map(|line| line.split('}').next().unwrap_or_default().to_owned()).collect()
        };
        assert_eq!(of_rejected(&text), of_rejected(&none_rejected()));
        // What there is no number for is left out.
        assert!(!text.contains("criticd_score_nats{") && !text.contains("criticd_heads{critic=\"busy\"}"));
        let open = metrics.text(true);
        assert!(open.contains("# TYPE criticd_rows counter\n") && open.ends_with("# EOF\n"));
    }
}
