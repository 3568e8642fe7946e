//! Topics over HTTP: create, list, stat; and health. On the core of the connection.

use ringmain_driver::{Io, Request};
use ringmain_engine::TopicStats;
use ringmain_model::limit::{PARTITIONS_PER_TOPIC_MAX, RETENTION_MESSAGES_MAX};
use ringmain_model::{PartitionRef, Retention, Storage, TopicConfig, TopicName, TopicPatch};
use ringmain_wire::json::timestamp_text;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::HttpFront;
use super::problem::Problem;
use super::respond::{Context, write_success};
use super::settings::{Wish, explain, invalid, read_dead_letter, read_retention};
use super::whole::WholeTopic;

#[derive(Deserialize)]
struct CreateBody {
    name: Option<String>,
    storage: Option<String>,
    partitions: Option<u64>,
    retention: Option<Value>,
    dead_letter: Option<Value>,
    ack_wait_ms: Option<u64>,
}

/// Reads the body of `POST /topics`.
pub(super) fn read_create(body: &[u8], front: &HttpFront) -> Result<Request, Problem> {
    let body: CreateBody = object_from_slice(body).map_err(|error| explain(&error, "a topic", r#"{"name":"…"}"#))?;
    let name = TopicName::new(body.name.as_deref().unwrap_or_default())?;
    let storage = match body.storage.as_deref() {
        None => front.settings.storage,
        Some("memory") => Storage::Memory,
        Some("wal") => Storage::Wal,
        Some(other) => return Err(invalid(format!("storage {other:?} is unknown: use `memory` or `wal`"))),
    };
    if storage == Storage::Wal && !front.settings.has_directory {
        return Err(invalid(
            "storage `wal` needs a data directory: start the broker with STORAGE_MODE=wal, or with WAL_DIR, or use `memory`",
        ));
    }
    let wanted = body.partitions.unwrap_or(1);
    let partitions = u32::try_from(wanted).ok().filter(|count| (1..=PARTITIONS_PER_TOPIC_MAX).contains(count));
    let partitions =
        partitions.ok_or_else(|| invalid(format!("partitions is {wanted}: choose 1 to {PARTITIONS_PER_TOPIC_MAX}")))?;
    // What a logged topic keeps is bounded by its segments, unless it asks for less.
    let max_messages = match storage {
        Storage::Memory => front.settings.retention_messages,
        Storage::Wal => RETENTION_MESSAGES_MAX,
    };
    let mut patch =
        TopicPatch { max_messages: Some(max_messages), ack_wait_ms: body.ack_wait_ms, ..TopicPatch::default() };
    if let Some(retention) = &body.retention {
        read_retention(retention, Wish::Create, &mut patch)?;
    }
    if let Some(dead_letter) = &body.dead_letter {
        read_dead_letter(dead_letter, Wish::Create, &name, &mut patch)?;
    }
    let config = patch.apply(&TopicConfig { storage, ..TopicConfig::default() });
    config.check().map_err(invalid)?;
    Ok(Request::Create { name, partitions, config })
}

/// Reads an object; serde would take an array for one, member by member.
pub(super) fn object_from_slice<'b, T: Deserialize<'b>>(body: &'b [u8]) -> serde_json::Result<T> {
    match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'[') => Err(serde::de::Error::custom("an array where an object is wanted")),
        _ => serde_json::from_slice(body),
    }
}

/// How a topic stands, as clients see it.
#[derive(Serialize)]
pub(super) struct StatsBody<'a> {
    name: &'a str,
    message_count: u64,
    subscriber_count: u64,
    /// −1 when nothing was published.
    latest_offset: i64,
    earliest_offset: u64,
    bytes: u64,
    partitions: u32,
    storage: &'a str,
    retention: RetentionStats,
    ack_wait_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter: Option<DeadLetterStats<'a>>,
    known_ids: u64,
    created_at: String,
    groups: u64,
    /// Only when there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    partition_stats: Vec<PartitionStats>,
}

#[derive(Serialize)]
struct PartitionStats {
    partition: u32,
    message_count: u64,
    earliest_offset: u64,
    latest_offset: i64,
    bytes: u64,
}

#[derive(Serialize)]
struct RetentionStats {
    /// Absent when something else limits it.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_messages: Option<u64>,
    /// Absent when only the memory set aside, or the topic's segments, limit it.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_bytes: Option<u64>,
    /// Absent when age does not limit it.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_age_ms: Option<u64>,
}

#[derive(Serialize)]
struct DeadLetterStats<'a> {
    /// Absent when it goes nowhere and counts as dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<&'a str>,
    /// Absent when a message is given out for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_deliver: Option<u32>,
}

/// Offset of the newest message below an exclusive end; −1 when there is none.
pub(super) fn latest(end: u64) -> i64 {
    i64::try_from(end).unwrap_or(i64::MAX) - 1
}

pub(super) fn stats_body<'s>(whole: &WholeTopic<'s>) -> StatsBody<'s> {
    let stats = whole.first();
    let TopicConfig { retention, max_deliver, .. } = stats.config;
    let topic = stats.config.dead_letter.as_ref().map(TopicName::as_str);
    let has_dead_letters = topic.is_some() || max_deliver.is_some();
    StatsBody {
        name: stats.name.as_str(),
        message_count: whole.sum(TopicStats::message_count),
        subscriber_count: whole.subscribers(),
        latest_offset: latest(whole.end()),
        earliest_offset: whole.earliest(),
        bytes: whole.sum(|part| part.bytes),
        partitions: stats.partitions,
        storage: stats.config.storage.as_str(),
        retention: RetentionStats {
            max_messages: (retention.max_messages != RETENTION_MESSAGES_MAX).then_some(retention.max_messages),
            max_bytes: (retention.max_bytes != Retention::default().max_bytes).then_some(retention.max_bytes),
            max_age_ms: retention.max_age_ms,
        },
        ack_wait_ms: stats.config.ack_wait_ms,
        dead_letter: has_dead_letters.then_some(DeadLetterStats { topic, max_deliver }),
        known_ids: whole.sum(|part| part.known_ids),
        created_at: timestamp_text(stats.created_us),
        groups: whole.group_count() as u64,
        partition_stats: if stats.partitions > 1 { partition_stats(whole) } else { Vec::new() },
    }
}

fn partition_stats(whole: &WholeTopic<'_>) -> Vec<PartitionStats> {
    let of_part = |part: &&TopicStats| PartitionStats {
        partition: part.partition.partition,
        message_count: part.message_count(),
        earliest_offset: part.log_start.offset().0,
        latest_offset: latest(part.high_water.offset().0),
        bytes: part.bytes,
    };
    whole.parts().iter().map(of_part).collect()
}

/// How the partitions of a topic stand that has just been made: all as the first.
pub(super) fn newly_made(first: &TopicStats) -> Vec<TopicStats> {
    let incarnation = first.partition.incarnation;
    let alike = |partition| TopicStats { partition: PartitionRef { incarnation, partition }, ..first.clone() };
    (0..first.partitions).map(alike).collect()
}

impl HttpFront {
    /// Writes a topic, of which all partitions are there in their order.
    pub(super) fn write_stats(&mut self, context: &Context, out: &mut Vec<u8>, status: u16, parts: &[TopicStats]) {
        let Some(whole) = WholeTopic::of(parts) else {
            return debug_assert!(false, "the first partition is asked, too");
        };
        self.body.clear();
        write_success(&mut self.body, &stats_body(&whole));
        self.write_body(context, out, status);
    }

    pub(super) fn write_deleted(&mut self, context: &Context, out: &mut Vec<u8>) {
        #[derive(Serialize)]
        struct Deleted {
            deleted: bool,
        }
        self.body.clear();
        write_success(&mut self.body, &Deleted { deleted: true });
        self.write_body(context, out, 200);
    }

    pub(super) fn write_health(&mut self, context: &Context, out: &mut Vec<u8>, status: &'static str, io: &Io<'_>) {
        #[derive(Serialize)]
        struct Health {
            status: &'static str,
            version: &'static str,
            cores: u16,
            uptime_ms: u64,
        }
        self.body.clear();
        let health =
            Health { status, version: env!("CARGO_PKG_VERSION"), cores: io.cores(), uptime_ms: io.now().monotonic_ms };
        write_success(&mut self.body, &health);
        self.write_body(context, out, 200);
    }
}
