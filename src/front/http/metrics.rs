//! Metrics: the cores' reports summed at each scrape into families, encoded by the prometheus crate. On the core of the connection.

mod exposition;
mod storage;
mod totals;

use std::collections::BTreeMap;

use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use ringmain_driver::{CoreCounters, CoreReport, TopicOnCore};
use ringmain_engine::TopicStats;

pub(super) use self::exposition::Exposition;
use self::storage::storage_families;
use self::totals::total_families;
use super::problem::Problem;
use super::respond::{Context, Response};
use super::whole::{WholeGroup, WholeTopic};

/// One scrape in the making. It is made of plain numbers: there is nothing to count into, so nothing is kept between scrapes.
#[derive(Debug)]
pub(super) struct Measuring {
    exposition: Exposition,
    /// Families that were begun, by name, and what is encoded of each.
    families: BTreeMap<String, Vec<u8>>,
    failed: Option<prometheus::Error>,
}

impl Measuring {
    pub(super) fn new(exposition: Exposition) -> Self {
        Self { exposition, families: BTreeMap::new(), failed: None }
    }

    /// Adds the topics of one report of each core.
    pub(super) fn take(&mut self, reports: &[CoreReport]) {
        for family in topic_families(reports) {
            self.add(&family);
        }
    }

    /// Adds what is not of topics.
    pub(super) fn end(&mut self, reports: &[CoreReport]) {
        let version = sample(&[("version", env!("CARGO_PKG_VERSION"))], 1, MetricType::GAUGE);
        let build = family("ringmain_build_info", "The broker's version; always 1.", MetricType::GAUGE, vec![version]);
        let process = ProcessCollector::for_self().collect();
        let own = core_families(reports).into_iter().chain(total_families(reports)).chain(storage_families(reports));
        let families = own.chain([build]).chain(process);
        for family in families {
            self.add(&family);
        }
    }

    fn add(&mut self, family: &MetricFamily) {
        // An encoder has nothing to write of a family without a sample.
        if family.get_metric().is_empty() {
            return;
        }
        let encoded = self.families.entry(family.name().to_owned()).or_default();
        if let Err(error) = self.exposition.append(family, encoded) {
            self.failed = Some(error);
        }
    }

    /// Writes all metrics.
    pub(super) fn write(self, context: &Context, out: &mut Vec<u8>, date: &str) {
        let framed = |encoded: Vec<u8>| Ok([self.exposition.frame(&encoded)?, encoded]);
        let families = self.families.into_values().map(framed).collect::<prometheus::Result<Vec<_>>>();
        let families = match (self.failed, families) {
            (None, Ok(families)) => families,
            (Some(error), _) | (None, Err(error)) => {
                let problem = Problem::new(500, "internal", format!("the metrics cannot be encoded: {error}"));
                return context.write_problem(out, date, &problem);
            }
        };
        let content_type = Some(self.exposition.content_type());
        let response = Response { status: 200, content_type, headers: &[("Vary", "Accept")], body: &[] };
        context.write_pieces(out, date, &response, families.iter().flatten().map(Vec::as_slice));
    }
}

#[allow(clippy::cast_precision_loss, reason = "Prometheus knows no other numbers; counts stay exact to 2^53")]
fn sample(labels: &[(&str, &str)], value: u64, kind: MetricType) -> Metric {
    let labels = labels.iter().map(|(name, value)| {
        let mut label = LabelPair::default();
        label.set_name((*name).to_owned());
        label.set_value((*value).to_owned());
        label
    });
    let mut metric = Metric::from_label(labels.collect());
    if kind == MetricType::COUNTER {
        let mut counter = Counter::default();
        counter.set_value(value as f64);
        metric.set_counter(counter);
    } else {
        let mut gauge = Gauge::default();
        gauge.set_value(value as f64);
        metric.set_gauge(gauge);
    }
    metric
}

fn family(name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}

/// A topic with what all cores know of it.
struct TopicSums<'r> {
    whole: WholeTopic<'r>,
    delivered: [u64; 2],
    subscribers: [u64; 2],
    dropped: u64,
}

/// The topics of all cores by name, each with the sums of what the cores know of it.
fn sum_topics(reports: &[CoreReport]) -> Vec<TopicSums<'_>> {
    let mut sums: Vec<_> = WholeTopic::list(reports)
        .into_iter()
        .map(|whole| {
            let dropped = whole.sum(|part| part.lost);
            TopicSums { whole, delivered: [0; 2], subscribers: [0; 2], dropped }
        })
        .collect();
    for TopicOnCore { name, delivered, dropped, subscribers } in reports.iter().flat_map(|report| &report.on_core) {
        // A topic that came or went between two cores' reports is in the next scrape.
        let Ok(at) = sums.binary_search_by(|sum| sum.name().cmp(name.as_str())) else { continue };
        let sum = &mut sums[at];
        for protocol in 0..2 {
            sum.delivered[protocol] += delivered[protocol];
            sum.subscribers[protocol] += subscribers[protocol];
        }
        sum.dropped += dropped;
    }
    sums
}

const PROTOCOLS: [&str; 2] = ["sse", "ws"];

/// streamq's metrics, by its names and labels, and ours of topics.
fn topic_families<'r>(reports: &'r [CoreReport]) -> Vec<MetricFamily> {
    use MetricType::{COUNTER, GAUGE};
    let sums = sum_topics(reports);
    let by_topic = |kind: MetricType, read: fn(&TopicSums<'_>) -> u64| -> Vec<Metric> {
        sums.iter().map(|sum| sample(&[("topic", sum.name())], read(sum), kind)).collect()
    };
    let by_protocol = |kind: MetricType, read: fn(&TopicSums<'_>) -> [u64; 2]| -> Vec<Metric> {
        let each = |sum: &TopicSums<'r>| {
            let name = sum.name();
            let pairs = PROTOCOLS.into_iter().zip(read(sum));
            pairs.map(move |(protocol, value)| sample(&[("protocol", protocol), ("topic", name)], value, kind))
        };
        sums.iter().flat_map(each).collect()
    };
    let groups: Vec<_> =
        sums.iter().flat_map(|sum| sum.whole.groups().into_iter().map(|group| (sum.name(), group))).collect();
    let by_group = |kind: MetricType, read: fn(&WholeGroup<'_>) -> u64| -> Vec<Metric> {
        let told = |(topic, group): &(&str, WholeGroup<'_>)| {
            sample(&[("group", group.name().as_str()), ("topic", topic)], read(group), kind)
        };
        groups.iter().map(told).collect()
    };
    vec![
        family(
            "streamq_messages_published_total",
            "Messages successfully published.",
            COUNTER,
            by_topic(COUNTER, |sum| sum.whole.sum(|part| part.high_water.offset().0)),
        ),
        family(
            "streamq_messages_delivered_total",
            "Messages written to subscriber connections.",
            COUNTER,
            by_protocol(COUNTER, |sum| sum.delivered),
        ),
        family(
            "streamq_messages_dropped_total",
            "Messages that slow consumers were made to miss.",
            COUNTER,
            by_topic(COUNTER, |sum| sum.dropped),
        ),
        family(
            "streamq_active_subscribers",
            "Current live connections.",
            GAUGE,
            by_protocol(GAUGE, |sum| sum.subscribers),
        ),
        family(
            "streamq_consumer_group_lag",
            "Messages a group is behind: high-water mark less committed offset.",
            GAUGE,
            by_group(GAUGE, |group| group.sum(|part| part.lag)),
        ),
        family(
            "ringmain_group_dead_total",
            "Messages that were given out as often as may be: to the dead letters, or nowhere when the topic has none.",
            COUNTER,
            by_group(COUNTER, |group| group.sum(|part| part.dead)),
        ),
        family(
            "streamq_topic_message_count",
            "Retained messages per topic.",
            GAUGE,
            by_topic(GAUGE, |sum| sum.whole.sum(TopicStats::message_count)),
        ),
        family(
            "ringmain_message_ids",
            "Ids of messages that are remembered, so that a repeat is stored once.",
            GAUGE,
            by_topic(GAUGE, |sum| sum.whole.sum(|part| part.known_ids)),
        ),
    ]
}

impl<'r> TopicSums<'r> {
    fn name(&self) -> &'r str {
        self.whole.first().name.as_str()
    }
}

type CounterOf = fn(&CoreCounters) -> u64;

fn core_families(reports: &[CoreReport]) -> Vec<MetricFamily> {
    use MetricType::{COUNTER, GAUGE};
    let families: [(&str, &str, MetricType, CounterOf); 10] = [
        ("ringmain_connections_accepted_total", "Connections accepted.", COUNTER, |core| core.connections_accepted),
        ("ringmain_connections_open", "Connections open now.", GAUGE, |core| core.connections_open),
        (
            "ringmain_accept_pauses_total",
            "Times that accepting paused for want of descriptors or room.",
            COUNTER,
            |core| core.accept_pauses,
        ),
        ("ringmain_received_bytes_total", "Bytes received from connections.", COUNTER, |core| core.received_bytes),
        ("ringmain_sent_bytes_total", "Bytes that the kernel took for connections.", COUNTER, |core| core.sent_bytes),
        ("ringmain_lane_busy_total", "Requests refused because a lane between cores was full.", COUNTER, |core| {
            core.lane_busy
        }),
        ("ringmain_lane_holes_total", "Batches not pushed to a core because its lane was full.", COUNTER, |core| {
            core.lane_holes
        }),
        ("ringmain_write_stalls_total", "Connections cut because the peer took no bytes.", COUNTER, |core| {
            core.write_stalls
        }),
        ("ringmain_turns_total", "Turns of the loop.", COUNTER, |core| core.turns),
        ("ringmain_completion_overflows_total", "Overflows of the kernel's completion queue.", COUNTER, |core| {
            core.completion_overflows
        }),
    ];
    let by_core = families.into_iter().map(|(name, help, kind, read)| {
        let each = |report: &CoreReport| sample(&[("core", &report.core.0.to_string())], read(&report.counters), kind);
        family(name, help, kind, reports.iter().map(each).collect())
    });
    by_core.collect()
}
