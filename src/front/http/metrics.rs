//! Metrics: the cores' reports summed into a registry of their own at each scrape, and encoded by the prometheus crate.

use prometheus::process_collector::ProcessCollector;
use prometheus::{Encoder, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder};
use ringmain_driver::{CoreCounters, CoreReport};

use super::HttpFront;
use super::problem::Problem;
use super::respond::{Context, Response};

impl HttpFront {
    /// Writes all metrics in the text format, which every scraper takes.
    pub(super) fn write_metrics(&mut self, context: &Context, out: &mut Vec<u8>, reports: &[CoreReport]) {
        let encoder = TextEncoder::new();
        self.body.clear();
        let encoded = registry(reports).and_then(|registry| encoder.encode(&registry.gather(), &mut self.body));
        if let Err(error) = encoded {
            let problem = Problem::new(500, "internal", format!("the metrics cannot be encoded: {error}"));
            context.write_problem(out, &self.date, &problem);
            return;
        }
        let content_type = "text/plain; version=0.0.4; charset=utf-8";
        let response = Response { status: 200, content_type: Some(content_type), headers: &[], body: &self.body };
        context.write(out, &self.date, &response);
        self.body.shrink_to(super::topics::CREATE_BYTES_MAX);
    }
}

fn registry(reports: &[CoreReport]) -> prometheus::Result<Registry> {
    let registry = Registry::new();
    add_topics(&registry, reports)?;
    add_cores(&registry, reports)?;
    let info = gauge(&registry, "ringmain_build_info", "The broker's version; always 1.", &["version"])?;
    info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
    registry.register(Box::new(ProcessCollector::for_self()))?;
    Ok(registry)
}

/// streamq's metrics, by its names and labels.
fn add_topics(registry: &Registry, reports: &[CoreReport]) -> prometheus::Result<()> {
    let published =
        counter(registry, "streamq_messages_published_total", "Messages successfully published.", &["topic"])?;
    let delivered = counter(
        registry,
        "streamq_messages_delivered_total",
        "Messages written to subscriber connections.",
        &["topic", "protocol"],
    )?;
    let dropped = counter(
        registry,
        "streamq_messages_dropped_total",
        "Messages that slow consumers were made to miss.",
        &["topic"],
    )?;
    let subscribers =
        gauge(registry, "streamq_active_subscribers", "Current live connections.", &["topic", "protocol"])?;
    let retained = gauge(registry, "streamq_topic_message_count", "Retained messages per topic.", &["topic"])?;
    let lag = gauge(
        registry,
        "streamq_consumer_group_lag",
        "Messages a group is behind: high-water mark less committed offset.",
        &["topic", "group"],
    )?;
    for stats in reports.iter().flat_map(|report| &report.topics) {
        let topic = stats.name.as_str();
        published.with_label_values(&[topic]).inc_by(stats.high_water.offset().0);
        retained.with_label_values(&[topic]).set(to_gauge(stats.message_count()));
        dropped.with_label_values(&[topic]).inc_by(stats.lost);
        for group in &stats.groups {
            lag.with_label_values(&[topic, group.name.as_str()]).set(to_gauge(group.lag));
        }
    }
    for on_core in reports.iter().flat_map(|report| &report.on_core) {
        dropped.with_label_values(&[on_core.name.as_str()]).inc_by(on_core.dropped);
        for (at, protocol) in ["sse", "ws"].into_iter().enumerate() {
            let labels = [on_core.name.as_str(), protocol];
            delivered.with_label_values(&labels).inc_by(on_core.delivered[at]);
            subscribers.with_label_values(&labels).add(to_gauge(on_core.subscribers[at]));
        }
    }
    Ok(())
}

type CounterOf = fn(&CoreCounters) -> u64;

fn add_cores(registry: &Registry, reports: &[CoreReport]) -> prometheus::Result<()> {
    let counters: [(&str, &str, CounterOf); 9] = [
        ("ringmain_connections_accepted_total", "Connections accepted.", |core| core.connections_accepted),
        ("ringmain_accept_pauses_total", "Times that accepting paused for want of descriptors or room.", |core| {
            core.accept_pauses
        }),
        ("ringmain_received_bytes_total", "Bytes received from connections.", |core| core.received_bytes),
        ("ringmain_sent_bytes_total", "Bytes that the kernel took for connections.", |core| core.sent_bytes),
        ("ringmain_lane_busy_total", "Requests refused because a lane between cores was full.", |core| core.lane_busy),
        ("ringmain_lane_holes_total", "Batches not pushed to a core because its lane was full.", |core| {
            core.lane_holes
        }),
        ("ringmain_write_stalls_total", "Connections cut because the peer took no bytes.", |core| core.write_stalls),
        ("ringmain_turns_total", "Turns of the loop.", |core| core.turns),
        ("ringmain_completion_overflows_total", "Overflows of the kernel's completion queue.", |core| {
            core.completion_overflows
        }),
    ];
    for (name, help, read) in counters {
        let counter = counter(registry, name, help, &["core"])?;
        for report in reports {
            counter.with_label_values(&[report.core.0.to_string()]).inc_by(read(&report.counters));
        }
    }
    let open = gauge(registry, "ringmain_connections_open", "Connections open now.", &["core"])?;
    for report in reports {
        open.with_label_values(&[report.core.0.to_string()]).set(to_gauge(report.counters.connections_open));
    }
    Ok(())
}

fn to_gauge(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn counter(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntCounterVec> {
    let family = IntCounterVec::new(Opts::new(name, help), labels)?;
    registry.register(Box::new(family.clone()))?;
    Ok(family)
}

fn gauge(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntGaugeVec> {
    let family = IntGaugeVec::new(Opts::new(name, help), labels)?;
    registry.register(Box::new(family.clone()))?;
    Ok(family)
}
