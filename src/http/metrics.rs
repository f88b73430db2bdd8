//! What Prometheus reads.

use super::watcher::Frame;
use crate::daemon::telemetry::{Heartbeat, Stage, Stages, Timings, thread_seconds};
use crate::transport::{Counters, Reason, SocketName};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use tokio::sync::watch;

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

    /// All metrics: in the OpenMetrics format, or in that of Prometheus, which names counters in full.
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
        let status = &frame.status;
        let whole = |path: &str| status.pointer(path).and_then(Value::as_u64);
        let number = |path: &str| status.pointer(path).and_then(Value::as_f64);
        let version = only(status["version"].as_str().map(|version| (version, 1.0)));
        metric("build_info", "The program's version")
            .per("version")
            .gauge(to, version.map(|(_, (version, one))| (version.to_owned(), one)))?;
        metric("uptime", "Time since the daemon started")
            .in_unit(Unit::Seconds)
            .gauge(to, only(number("/uptime_s")))?;
        metric("rows", "Transitions taken in").counter(to, only(whole("/offset")))?;
        metric("duplicates", "Transitions that were known already").counter(to, only(whole("/duplicates")))?;
        let rejected = status["rejected"].as_object().into_iter().flatten();
        metric("rejected", "Messages refused on ingest, by error code")
            .per("code")
            .counter(to, rejected.filter_map(|(code, count)| Some((code.clone(), count.as_u64()?))))?;
        metric("streams", "Streams that the daemon keeps").gauge(to, only(number("/streams")))?;
        metric("window_rows", "Transitions kept for model selection").gauge(to, only(number("/window/rows")))?;
        metric("window", "Memory of the transitions kept")
            .in_unit(Unit::Bytes)
            .gauge(to, only(number("/window/bytes")))?;
        let memory = |keys: &[(&'static str, &'static str)]| {
            let value = |&(label, path): &(&str, &str)| Some((label.to_owned(), number(path)?));
            keys.iter().filter_map(value).collect::<Vec<_>>()
        };
        let units = [("row", "/memory/row_bytes"), ("stream", "/memory/stream_bytes")];
        metric("memory_unit", "Memory of one retained transition, and of one stream")
            .per("unit")
            .in_unit(Unit::Bytes)
            .gauge(to, memory(&units).into_iter())?;
        let limits = [
            ("window", "/memory/window_bytes_max"),
            ("streams", "/memory/streams_bytes_max"),
            ("queues", "/memory/queues_bytes_max"),
        ];
        metric("memory_limit", "Most memory that the settings allow")
            .per("part")
            .in_unit(Unit::Bytes)
            .gauge(to, memory(&limits).into_iter())?;
        let models = || status["memory"]["models"].as_array().into_iter().flatten();
        let of_models = |key: &'static str| {
            models().filter_map(move |model| Some((model["critic"].as_str()?.to_owned(), model[key].as_f64()?)))
        };
        metric("dictionary_element", "Memory of one dictionary element of the largest dictionary")
            .per("critic")
            .in_unit(Unit::Bytes)
            .gauge(to, of_models("element_bytes"))?;
        metric("model_limit", "Memory of the model with the largest dictionary")
            .per("critic")
            .in_unit(Unit::Bytes)
            .gauge(to, of_models("bytes_max"))?;
        let queues = || status["queues"].as_object().into_iter().flatten();
        let of_queues =
            |key: &'static str| queues().filter_map(move |(name, q)| Some((name.clone(), q[key].as_f64()?)));
        metric("queue_length", "What waits in a queue").per("queue").gauge(to, of_queues("waiting"))?;
        metric("queue_capacity", "What may wait in a queue").per("queue").gauge(to, of_queues("max"))?;
        metric("watcher_missed", "Notices that the dashboard missed because it did not keep up")
            .counter(to, only(Some(self.pulse.missed())))?;
        // The name that all programs use for it.
        let resident = Metric { name: "process_resident_memory".into(), ..metric("", "Resident memory of the daemon") };
        resident.in_unit(Unit::Bytes).gauge(to, only(resident_bytes().map(|bytes| bytes as f64)))?;
        self.stages(to)?;
        self.critics(status, to)?;
        self.sockets(to)
    }
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
        metric("thread_cpu", "Processor time of the daemon's threads; criticd-gate and criticd-ingest receive")
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

    fn critics(&self, status: &Value, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let critics = || status["critics"].as_array().into_iter().flatten();
        let name = |critic: &Value| critic["name"].as_str().unwrap_or("").to_owned();
        let gauges = [
            ("dictionary_size", "/dictionary_size", "States in the dictionary"),
            ("dictionary_max", "/dictionary_max", "States that the dictionary may hold"),
            ("generation", "/generation", "Number of the model in use; it rises with every adoption"),
            ("log_evidence_nats", "/log_evidence", "Log evidence of the model on the transitions it holds"),
            (
                "held_out_error",
                "/held_out_error",
                "Error of held-out returns that the model was selected with; 1 is a constant",
            ),
            ("score_nats", "/score", "Prequential log score per transition since the adoption"),
            ("score_recent_nats", "/score_recent", "Prequential log score per transition, recent average"),
            ("lambda", "/lambda", "What the weights are learned with, 0 to 1"),
            ("return_factor", "/returns/factor", "Factor on deviations of returns that verification has found"),
            ("return_pairs", "/returns/pairs", "Verified pairs of prediction and return behind that factor"),
            ("return_coverage", "/returns/coverage", "Share of their returns in the 90 % interval before that factor"),
            ("noise_variance", "/noise/variance", "Noise variance, squared unit of the reward"),
            ("signal_variance", "/kernel/signal_variance", "Signal variance of the kernel, squared unit of the value"),
            ("running_chains", "/running_chains", "Noise chains that are running"),
        ];
        for (metric_name, path, help) in gauges {
            let values = critics().filter_map(|critic| Some((name(critic), critic.pointer(path)?.as_f64()?)));
            metric(metric_name, help).per("critic").gauge(to, values)?;
        }
        let bytes = critics().filter_map(|critic| Some((name(critic), critic["bytes"].as_f64()?)));
        metric("model", "Memory of the model").per("critic").in_unit(Unit::Bytes).gauge(to, bytes)?;
        let flag = |value: bool| f64::from(u8::from(value));
        metric("critic_failed", "1 where a critic has failed and learns no more")
            .per("critic")
            .gauge(to, critics().map(|critic| (name(critic), flag(!critic["failed"].is_null()))))?;
        metric("refit_running", "1 while a model is being selected")
            .per("critic")
            .gauge(to, critics().map(|critic| (name(critic), flag(critic["refit"]["running"] == true))))?;
        let counters = [
            ("learned_rows", "/learned", "Transitions learned"),
            ("drift_alarms", "/drift/alarms", "Changes of the world that were called one"),
            ("novel_when_full", "/counts/novel_when_full", "Novel states that found the dictionary full"),
        ];
        for (metric_name, path, help) in counters {
            let values = critics().filter_map(|critic| Some((name(critic), critic.pointer(path)?.as_u64()?)));
            metric(metric_name, help).per("critic").counter(to, values)?;
        }
        let help = "Model selections that are over, by critic and outcome";
        let mut family = to.encode_descriptor("criticd_refits", help, None, MetricType::Counter)?;
        for critic in critics() {
            for outcome in ["adopted", "rejected", "failed"] {
                let count = critic["refit"][outcome].as_u64().unwrap_or(0);
                let labels = [("critic", name(critic)), ("outcome", outcome.to_owned())];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
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

/// Bytes of this process that are in memory, where the system tells.
pub(super) fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| 1024 * kib)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Metrics of a daemon with this status.
    fn metrics(status: Value) -> Metrics {
        let frame = Frame { status, ..Frame::default() };
        let (_, frame) = watch::channel(Arc::new(frame));
        Metrics::new(Timings::default(), Arc::default(), Arc::default(), frame)
    }

    #[test]
    fn counters_are_named_in_full_in_the_older_format() {
        let status = json!({"version": "1", "offset": 12, "rejected": {"not_finite": 3}, "critics": [
            {"name": "main", "failed": null, "dictionary_size": 7, "log_evidence": -1.5, "held_out_error": 0.25,
             "returns": {"factor": 1.5, "pairs": 50, "coverage": 0.75}, "refit": {"adopted": 2}}
        ]});
        let metrics = metrics(status);
        let text = metrics.text(false);
        for line in [
            "# TYPE criticd_rows_total counter",
            "criticd_rows_total 12",
            "criticd_rejected_total{code=\"not_finite\"} 3",
            "criticd_dictionary_size{critic=\"main\"} 7.0",
            "criticd_log_evidence_nats{critic=\"main\"} -1.5",
            "criticd_held_out_error{critic=\"main\"} 0.25",
            "criticd_return_coverage{critic=\"main\"} 0.75",
            "criticd_refits_total{critic=\"main\",outcome=\"adopted\"} 2",
            "# TYPE criticd_append_seconds histogram",
            "criticd_append_seconds_count 0",
            "criticd_build_info{version=\"1\"} 1.0",
            "# TYPE criticd_stage_seconds_total counter",
            "criticd_stage_seconds_total{stage=\"learn\"} 0.0",
            "criticd_stage_rows_total{stage=\"decode\"} 0",
            "criticd_received_messages_total{socket=\"ingest\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        assert!(!text.contains("# EOF") && !text.contains("# UNIT"));
        // What there is no number for is left out.
        assert!(!text.contains("criticd_score_nats{"));
        let open = metrics.text(true);
        assert!(open.contains("# TYPE criticd_rows counter\n") && open.ends_with("# EOF\n"));
    }

    #[test]
    fn the_process_knows_its_size() {
        assert!(resident_bytes().is_none_or(|bytes| bytes > 1 << 20));
    }
}
