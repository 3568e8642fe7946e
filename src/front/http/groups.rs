//! Consumer groups over HTTP: how they stand, and what workers without a stream were given. On the core of the connection.

use ringmain_engine::{Assignment, GroupStats};
use ringmain_model::limit::SPARE_BODY_BYTES_MAX;
use ringmain_model::{PartitionRef, TopicName};
use serde::Serialize;

use super::HttpFront;
use super::fetch::encode_record;
use super::respond::{Context, write_success};
use super::sse::assigned_records;
use super::whole::WholeGroup;

#[derive(Serialize)]
struct GroupBody<'a> {
    name: &'a str,
    topic: &'a str,
    committed_offset: u64,
    next_offset: u64,
    lag: u64,
    members: u64,
    pending: u64,
    redelivering: u64,
    lost: u64,
    dead: u64,
    epoch: u64,
    /// Only when the topic has several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    partitions: Vec<GroupInPartition>,
}

#[derive(Serialize)]
struct GroupInPartition {
    partition: u32,
    committed_offset: u64,
    next_offset: u64,
    lag: u64,
    pending: u64,
    epoch: u64,
}

fn group_body<'a>(group: &WholeGroup<'a>, topic: &'a TopicName, partitions: u32) -> GroupBody<'a> {
    let (committed_offset, next_offset, epoch) = group.bounds();
    let in_partition = |(partition, stats): &(u32, &GroupStats)| GroupInPartition {
        partition: *partition,
        committed_offset: stats.committed.0,
        next_offset: stats.next.0,
        lag: stats.lag,
        pending: stats.pending,
        epoch: stats.epoch,
    };
    let parts = if partitions > 1 { group.parts() } else { &[] };
    GroupBody {
        name: group.name().as_str(),
        topic: topic.as_str(),
        committed_offset,
        next_offset,
        lag: group.sum(|part| part.lag),
        members: group.members(),
        pending: group.sum(|part| part.pending),
        redelivering: group.sum(|part| part.redelivering),
        lost: group.sum(|part| part.lost),
        dead: group.sum(|part| part.dead),
        epoch,
        partitions: parts.iter().map(in_partition).collect(),
    }
}

impl HttpFront {
    /// Writes the groups of a topic, from what each partition says of its own.
    pub(super) fn write_groups(
        &mut self,
        context: &Context,
        out: &mut Vec<u8>,
        topic: &TopicName,
        parts: &[(u32, Vec<GroupStats>)],
    ) {
        let each = parts.iter().flat_map(|(number, groups)| groups.iter().map(move |group| (*number, group)));
        // There is an answer of each partition.
        let partitions = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        let list: Vec<_> = WholeGroup::list(each).iter().map(|group| group_body(group, topic, partitions)).collect();
        self.body.clear();
        write_success(&mut self.body, &list);
        self.write_body(context, out, 200);
    }

    /// Writes a group, from what those partitions say that know it, at least one.
    pub(super) fn write_group(
        &mut self,
        context: &Context,
        out: &mut Vec<u8>,
        topic: &TopicName,
        partitions: u32,
        parts: &[(u32, GroupStats)],
    ) {
        let groups = WholeGroup::list(parts.iter().map(|(number, stats)| (*number, stats)));
        let Some(group) = groups.first() else { return debug_assert!(false, "a partition knows the group") };
        self.body.clear();
        write_success(&mut self.body, &group_body(group, topic, partitions));
        self.write_body(context, out, 200);
    }

    pub(super) fn write_acknowledged(&mut self, context: &Context, out: &mut Vec<u8>, acknowledged: u64) {
        #[derive(Serialize)]
        struct Acknowledged {
            acknowledged: u64,
        }
        self.body.clear();
        write_success(&mut self.body, &Acknowledged { acknowledged });
        self.write_body(context, out, 200);
    }

    /// Writes what a worker without a stream was given.
    pub(super) fn write_pulled(
        &mut self,
        context: &Context,
        out: &mut Vec<u8>,
        topic: &TopicName,
        several: bool,
        (partition, epoch): (PartitionRef, u64),
        assignments: &[Assignment],
    ) {
        self.body.clear();
        self.body.extend_from_slice(br#"{"status":"success","data":{"messages":["#);
        let records = assignments.iter().flat_map(assigned_records);
        for (at, (record, attempt)) in records.enumerate() {
            if at > 0 {
                self.body.push(b',');
            }
            encode_record(&mut self.body, partition, several, topic, &record, attempt);
        }
        let number = partition.partition;
        let told = if several { format!(r#","partition":{number}"#) } else { String::new() };
        self.body.extend_from_slice(format!(r#"],"epoch":{epoch}{told}}}}}"#).as_bytes());
        self.write_body(context, out, 200);
        self.body.shrink_to(SPARE_BODY_BYTES_MAX);
    }
}
