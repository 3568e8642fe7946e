//! Metrics of the shards' storage, by shard; none without a data directory. On the core of the connection.

use prometheus::proto::{MetricFamily, MetricType};
use ringmain_driver::{CoreReport, ShardStorage};
use ringmain_engine::{StorageState, StorageStats};

use super::{family, sample};

type CountOf = fn(&StorageStats) -> u64;

const STATES: [(&str, StorageState); 4] = [
    ("open", StorageState::Open),
    ("busy", StorageState::Busy),
    ("full", StorageState::Full),
    ("poisoned", StorageState::Poisoned),
];

pub(super) fn storage_families(reports: &[CoreReport]) -> Vec<MetricFamily> {
    use MetricType::{COUNTER, GAUGE};
    let mut shards: Vec<_> = reports.iter().flat_map(|report| &report.storage).collect();
    shards.sort_unstable_by_key(|storage| storage.shard);
    let families: [(&str, &str, MetricType, CountOf); 8] = [
        ("ringmain_wal_commits_total", "Commit batches that became durable.", COUNTER, |stats| stats.commits),
        ("ringmain_wal_commit_bytes_total", "Bytes of commit batches.", COUNTER, |stats| stats.commit_bytes),
        ("ringmain_wal_commit_entries_total", "Entries of commit batches.", COUNTER, |stats| stats.commit_entries),
        ("ringmain_wal_checkpoints_total", "Checkpoints finished.", COUNTER, |stats| stats.checkpoints),
        (
            "ringmain_wal_checkpoint_failures_total",
            "Checkpoints that failed and were or will be tried again.",
            COUNTER,
            |stats| stats.checkpoint_failures,
        ),
        ("ringmain_wal_segment_bytes_total", "Bytes written to topic segments.", COUNTER, |stats| stats.segment_bytes),
        ("ringmain_wal_read_bytes_total", "Bytes read from topic segments.", COUNTER, |stats| stats.read_bytes),
        ("ringmain_wal_tail_bytes", "Bytes of records that the log holds and topic segments do not.", GAUGE, |stats| {
            stats.tail_bytes
        }),
    ];
    let mut families: Vec<_> = families
        .into_iter()
        .map(|(name, help, kind, read)| {
            let each = |storage: &&ShardStorage| {
                sample(&[("shard", &storage.shard.0.to_string())], read(&storage.stats), kind)
            };
            family(name, help, kind, shards.iter().map(each).collect())
        })
        .collect();
    let states = shards.iter().flat_map(|storage| {
        let shard = storage.shard.0.to_string();
        STATES.map(|(word, state)| {
            sample(&[("shard", &shard), ("state", word)], u64::from(storage.state == state), GAUGE)
        })
    });
    let help = "Whether a shard's storage is in that state: 1 or 0.";
    families.push(family("ringmain_wal_state", help, GAUGE, states.collect()));
    families
}
