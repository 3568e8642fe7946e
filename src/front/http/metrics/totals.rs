//! Metrics that are sums over all topics: of the same size however many there are. On the core of the connection.

use prometheus::proto::{MetricFamily, MetricType};
use ringmain_driver::CoreReport;
use ringmain_engine::ShardTotals;

use super::{PROTOCOLS, family, sample};

pub(super) fn total_families(reports: &[CoreReport]) -> Vec<MetricFamily> {
    use MetricType::{COUNTER, GAUGE};
    let mut shards: Vec<_> = reports.iter().flat_map(|report| &report.totals).collect();
    shards.sort_unstable_by_key(|(shard, _)| *shard);
    let by_shard = |kind: MetricType, read: fn(&ShardTotals) -> u64| {
        let each = |(shard, totals): &&(_, ShardTotals)| {
            let ringmain_model::ShardId(number) = shard;
            sample(&[("shard", &number.to_string())], read(totals), kind)
        };
        shards.iter().map(each).collect::<Vec<_>>()
    };
    let by_core = |kind: MetricType, read: fn(&CoreReport) -> [u64; 2]| {
        let each = |report: &CoreReport| {
            let core = report.core.0.to_string();
            let pairs = PROTOCOLS.into_iter().zip(read(report));
            pairs.map(|(protocol, value)| sample(&[("core", &core), ("protocol", protocol)], value, kind)).collect()
        };
        reports.iter().flat_map(|report| -> Vec<_> { each(report) }).collect::<Vec<_>>()
    };
    // All cores know the same topics, but for those that come or go just now.
    let topics = reports.iter().map(|report| report.topics_known).max().unwrap_or_default();
    vec![
        family("ringmain_topics", "Topics.", GAUGE, vec![sample(&[], topics, GAUGE)]),
        family(
            "ringmain_messages_published_total",
            "Messages of all topics that became visible since the start.",
            COUNTER,
            by_shard(COUNTER, |totals| totals.published),
        ),
        family(
            "ringmain_messages_delivered_total",
            "Messages of all topics written to subscriber connections.",
            COUNTER,
            by_core(COUNTER, |report| report.counters.delivered),
        ),
        family(
            "ringmain_subscribers",
            "Live connections that follow a topic or are members of a group; each counts once for every topic.",
            GAUGE,
            by_core(GAUGE, |report| report.subscribers),
        ),
        family(
            "ringmain_memory_bytes",
            "Bytes of records that memory keeps because nothing else has them.",
            GAUGE,
            by_shard(GAUGE, |totals| totals.memory_bytes),
        ),
    ]
}
