//! Record batches come back as they went, and every damage is seen; runs on the test thread.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests fail by panicking")]

use bytes::Bytes;
use proptest::prelude::*;
use ringmain_model::{Incarnation, Message, Offset, PartitionRef};

use crate::*;

const PARTITION: PartitionRef = PartitionRef { incarnation: Incarnation(0x0123_4567_89ab_cdef), partition: 3 };

fn message() -> impl Strategy<Value = Message> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from);
    (bytes(), prop::option::of(bytes()), prop::collection::vec((bytes(), bytes()), 0..4))
        .prop_map(|(payload, key, headers)| Message { payload, key, headers, id: None })
}

fn build(base: u64, messages: &[(Message, i64)]) -> RecordBatch {
    let mut builder = BatchBuilder::new(PARTITION, Offset(base), 0);
    for (message, time_us) in messages {
        builder.push(message, *time_us);
    }
    builder.finish().unwrap()
}

fn golden() -> RecordBatch {
    let first = Message::of("hello");
    let second = Message {
        payload: Bytes::from_static(&[0, 255]),
        key: Some(Bytes::from_static(b"k")),
        headers: vec![
            (Bytes::from_static(b"a"), Bytes::from_static(b"1")),
            (Bytes::from_static(b"a"), Bytes::from_static(b"22")),
        ],
        id: None,
    };
    build(41, &[(first, 1_700_000_000_000_000), (second, 1_700_000_000_000_250), (Message::default(), 0)])
}

#[test]
fn the_golden_batch_is_written_and_read_for_ever() {
    let file = Bytes::from_static(include_bytes!("../tests/data/record-batch-v1.bin"));
    assert_eq!(golden().bytes(), &file, "the bytes of version 1 may not change");
    let (batch, length) = RecordBatch::decode(&file).unwrap().unwrap();
    assert_eq!((batch.base(), batch.end(), batch.count(), length), (Offset(41), Offset(44), 3, file.len()));
    assert_eq!((batch.partition(), batch.base_time_us()), (PARTITION, 1_700_000_000_000_000));
    let second = batch.records_from(Offset(42)).next().unwrap();
    assert_eq!((second.offset, second.time_us), (Offset(42), 1_700_000_000_000_250));
    assert_eq!((second.key, second.payload), (Some(&b"k"[..]), &[0_u8, 255][..]));
    assert_eq!(second.headers.collect::<Vec<_>>(), [(&b"a"[..], &b"1"[..]), (&b"a"[..], &b"22"[..])]);
}

#[test]
fn each_flipped_byte_of_the_golden_batch_is_seen() {
    let whole = golden().bytes().to_vec();
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << bit;
            let outcome = RecordBatch::decode(&Bytes::from(damaged));
            assert!(!matches!(outcome, Ok(Some(_))), "byte {at} bit {bit} went unseen");
        }
    }
}

proptest! {
    #[test]
    fn batches_come_back_as_they_went(
        base in 0_u64..1 << 60,
        messages in prop::collection::vec((message(), 0_i64..1 << 50), 1..20),
        from in 0_u64..25,
    ) {
        let batch = build(base, &messages);
        let (decoded, length) = RecordBatch::decode(batch.bytes()).unwrap().unwrap();
        prop_assert_eq!(&decoded, &batch);
        prop_assert_eq!(length, batch.bytes().len());
        let records: Vec<_> = decoded.records_from(Offset(base + from)).collect();
        prop_assert_eq!(records.len(), messages.len().saturating_sub(from as usize));
        for (record, (index, (message, time_us))) in records.iter().zip(messages.iter().enumerate().skip(from as usize)) {
            prop_assert_eq!(record.offset, Offset(base + index as u64));
            let delta = (time_us - messages[0].1).clamp(0, i64::from(u32::MAX));
            prop_assert_eq!(record.time_us, messages[0].1 + delta);
            prop_assert_eq!(record.payload, &message.payload[..]);
            prop_assert_eq!(record.key, message.key.as_deref());
            let headers: Vec<_> = message.headers.iter().map(|(name, value)| (&name[..], &value[..])).collect();
            prop_assert_eq!(record.headers.collect::<Vec<_>>(), headers);
        }
    }

    #[test]
    fn a_part_of_a_batch_is_not_yet_a_batch(messages in prop::collection::vec((message(), 0_i64..1 << 50), 1..5), cut in 0.0..1.0) {
        let whole = build(0, &messages);
        let cut = (whole.bytes().len() as f64 * cut) as usize;
        prop_assert_eq!(RecordBatch::decode(&whole.bytes().slice(..cut)), Ok(None));
    }

    #[test]
    fn any_bytes_are_a_batch_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = RecordBatch::decode(&Bytes::from(bytes));
    }

    #[test]
    fn lengths_under_a_valid_checksum_cannot_break_the_reader(
        messages in prop::collection::vec((message(), 0_i64..1 << 50), 1..5),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let mut bytes = build(0, &messages).bytes().to_vec();
        let at = HEADER_BYTES + at.index(bytes.len() - HEADER_BYTES);
        bytes[at] = value;
        let checksum = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        if let Ok(Some((batch, _))) = RecordBatch::decode(&Bytes::from(bytes)) {
            prop_assert_eq!(batch.records().count(), batch.count() as usize);
        }
    }
}

#[test]
fn a_batch_is_full_at_its_bound_and_an_empty_one_takes_any_message() {
    let mut builder = BatchBuilder::new(PARTITION, Offset(0), 0);
    let large = Message::of(vec![0; 2 << 20]);
    assert_eq!(builder.space_for(&large), BatchSpace::Open);
    builder.push(&large, 0);
    assert_eq!(builder.space_for(&Message::of("x")), BatchSpace::Full);
}

#[test]
fn want_of_descriptors_is_told_with_its_cure_and_not_as_a_bad_disk() {
    for (number, cures) in
        [(24, ["RLIMIT_NOFILE", "ulimit -n", "LimitNOFILE="]), (23, ["fs.file-max", "sysctl", "the system"])]
    {
        let failure = Failure::System(number);
        let told = failure.to_string();
        assert!(cures.iter().all(|cure| told.contains(cure)) && failure.is_want_of_descriptors(), "{told}");
        assert!(!told.contains("disk") && !failure.is_of_the_file());
    }
    assert!(!Failure::NoSpace.is_want_of_descriptors() && !Failure::System(5).is_want_of_descriptors());
    assert_eq!(Failure::System(5).to_string(), "the system answered with error 5");
}
