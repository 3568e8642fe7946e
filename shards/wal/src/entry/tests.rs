//! Entries come back as they went, and any bytes are an entry or an error; runs on the test thread.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests fail by panicking")]

use bytes::Bytes;
use proptest::prelude::*;
use ringmain_model::{
    GroupName, Incarnation, Message, Offset, PartitionRef, Retention, Storage, TopicConfig, TopicName,
};

use crate::BatchBuilder;
use crate::entry::{Entry, EntryDamage, GroupProgress, LogMarks, TopicChanged, TopicCreated, decode, encode};
use crate::topic::tests::partition_segments;

pub(crate) fn partition() -> impl Strategy<Value = PartitionRef> {
    (any::<u64>(), any::<u32>())
        .prop_map(|(life, partition)| PartitionRef { incarnation: Incarnation(life), partition })
}

fn name() -> impl Strategy<Value = String> {
    prop::collection::vec(prop_oneof!["[a-zA-Z0-9_.]", Just("ü".to_owned()), Just("消".to_owned())], 1..60)
        .prop_map(|letters| format!("t{}", letters.concat()))
}

pub(crate) fn topic_name() -> impl Strategy<Value = TopicName> {
    name().prop_map(|name| TopicName::new(&name).unwrap())
}

fn group_name() -> impl Strategy<Value = GroupName> {
    name().prop_map(|name| GroupName::new(&name).unwrap())
}

pub(crate) fn config() -> impl Strategy<Value = TopicConfig> {
    let bounds = any::<(u64, u64, u64)>();
    let optional = (prop::option::of(1..u64::MAX), prop::option::of(1..u32::MAX), prop::option::of(topic_name()));
    (bounds, optional).prop_map(|((max_messages, max_bytes, ack_wait_ms), (max_age_ms, max_deliver, dead_letter))| {
        TopicConfig {
            storage: Storage::Memory,
            retention: Retention { max_messages, max_bytes, max_age_ms },
            ack_wait_ms,
            max_deliver,
            dead_letter,
        }
    })
}

fn group_progress() -> impl Strategy<Value = GroupProgress> {
    let steps = || prop::collection::vec((1_u64..1000, 1_u64..1000), 0..20);
    (partition(), group_name(), any::<u64>(), 0_u64..1 << 50, steps(), steps()).prop_map(
        |(partition, group, epoch, committed, ranges, attempts)| {
            let mut at = committed;
            let acked = ranges.into_iter().map(|(gap, length)| {
                let first = at + gap;
                at = first + length;
                (Offset(first), Offset(at))
            });
            let acked = acked.collect();
            let mut at = committed;
            let attempts = attempts.into_iter().map(|(gap, count)| {
                at += gap;
                (Offset(at), count as u32)
            });
            let attempts = attempts.collect();
            GroupProgress { partition, group, epoch, committed: Offset(committed), acked, attempts }
        },
    )
}

fn records() -> impl Strategy<Value = Entry> {
    let payloads = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 1..10);
    (partition(), 0_u64..1 << 50, payloads).prop_map(|(partition, base, payloads)| {
        let mut builder = BatchBuilder::new(partition, Offset(base), 0);
        for payload in payloads {
            builder.push(&Message::of(payload), 1_700_000_000_000_000);
        }
        Entry::Records(builder.finish().unwrap())
    })
}

pub(crate) fn entry() -> impl Strategy<Value = Entry> {
    let incarnation = || any::<u64>().prop_map(Incarnation);
    prop_oneof![
        records(),
        (incarnation(), topic_name(), any::<i64>(), 1_u32.., config()).prop_map(
            |(incarnation, name, created_us, partitions, config)| Entry::TopicCreated(TopicCreated {
                incarnation,
                name,
                created_us,
                partitions,
                config
            })
        ),
        (incarnation(), topic_name(), 1_u32.., config()).prop_map(|(incarnation, name, partitions, config)| {
            Entry::TopicChanged(TopicChanged { incarnation, name, partitions, config })
        }),
        (incarnation(), topic_name()).prop_map(|(incarnation, name)| Entry::TopicDeleted { incarnation, name }),
        group_progress().prop_map(Entry::GroupProgress),
        (partition(), group_name()).prop_map(|(partition, group)| Entry::GroupDeleted { partition, group }),
        (partition(), 0_u64..1 << 40, 0_u64..1 << 40).prop_map(|(partition, start, count)| {
            Entry::LogMarks(LogMarks { partition, log_start: Offset(start), log_end: Offset(start + count) })
        }),
        partition_segments().prop_map(Entry::PartitionSegments),
    ]
}

fn bytes_of(entry: &Entry) -> Vec<u8> {
    let mut out = Vec::new();
    let shared = encode(entry, &mut out);
    out.extend_from_slice(&shared.unwrap_or_default());
    out
}

proptest! {
    #[test]
    fn entries_come_back_as_they_went(entry in entry(), behind in prop::collection::vec(any::<u8>(), 0..20)) {
        let mut bytes = bytes_of(&entry);
        let length = bytes.len();
        prop_assert_eq!(length, entry.encoded_bytes());
        bytes.extend_from_slice(&behind);
        prop_assert_eq!(decode(&Bytes::from(bytes)), Ok((entry, length)));
    }

    #[test]
    fn a_part_of_an_entry_is_malformed(entry in entry(), cut in any::<prop::sample::Index>()) {
        let bytes = Bytes::from(bytes_of(&entry));
        prop_assert_eq!(decode(&bytes.slice(..cut.index(bytes.len()))), Err(EntryDamage::Malformed));
    }

    #[test]
    fn any_bytes_are_an_entry_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0_u8..10) {
        let mut bytes = bytes;
        if bytes.len() >= 8 {
            let length = u32::try_from(bytes.len()).unwrap();
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            bytes[4..8].copy_from_slice(&[kind, 0, 0, 0]);
        }
        let _ = decode(&Bytes::from(bytes));
    }

    #[test]
    fn a_changed_byte_is_another_entry_or_an_error(entry in entry(), at in any::<prop::sample::Index>(), value in any::<u8>()) {
        let mut bytes = bytes_of(&entry);
        let at = at.index(bytes.len());
        bytes[at] = value;
        if let Ok((decoded, length)) = decode(&Bytes::from(bytes.clone())) {
            prop_assert_eq!(bytes_of(&decoded), &bytes[..length], "what is read is what is there");
        }
    }
}

#[test]
fn what_is_reserved_for_messages_is_what_their_batch_takes() {
    let key = Some(Bytes::from_static(b"key"));
    let headers = vec![(Bytes::from_static(b"name"), Bytes::from_static(b"value"))];
    let messages = [
        Message::default(),
        Message::of("hello"),
        Message { key, headers, payload: Bytes::from_static(b"x"), id: None },
    ];
    let mut builder = BatchBuilder::new(PartitionRef { incarnation: Incarnation(1), partition: 0 }, Offset(7), 0);
    let mut reserved = 0;
    for (index, message) in messages.iter().enumerate() {
        reserved += Entry::bytes_to_reserve(message, index == 0);
        builder.push(message, 0);
    }
    assert_eq!(Entry::Records(builder.finish().unwrap()).encoded_bytes(), reserved);
}

#[test]
fn a_count_that_cannot_fit_sets_no_memory_aside() {
    let progress = GroupProgress {
        partition: PartitionRef { incarnation: Incarnation(1), partition: 0 },
        group: GroupName::new("g").unwrap(),
        epoch: 0,
        committed: Offset(0),
        acked: Vec::new(),
        attempts: Vec::new(),
    };
    let mut bytes = bytes_of(&Entry::GroupProgress(progress));
    bytes[36..40].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(decode(&Bytes::from(bytes)), Err(EntryDamage::Malformed));
}

#[test]
fn ranges_and_attempts_out_of_order_are_malformed() {
    let of = |acked: &[(u64, u64)], attempts: &[u64]| GroupProgress {
        partition: PartitionRef { incarnation: Incarnation(1), partition: 0 },
        group: GroupName::new("g").unwrap(),
        epoch: 0,
        committed: Offset(10),
        acked: acked.iter().map(|(first, end)| (Offset(*first), Offset(*end))).collect(),
        attempts: attempts.iter().map(|offset| (Offset(*offset), 1)).collect(),
    };
    let wrong = [
        of(&[(10, 12)], &[]),
        of(&[(12, 12)], &[]),
        of(&[(12, 14), (14, 15)], &[]),
        of(&[(20, 22), (12, 13)], &[]),
        of(&[], &[9]),
        of(&[], &[12, 12]),
        of(&[], &[13, 12]),
    ];
    for progress in wrong {
        let bytes = bytes_of(&Entry::GroupProgress(progress.clone()));
        assert_eq!(decode(&Bytes::from(bytes)), Err(EntryDamage::Malformed), "{progress:?}");
    }
}
