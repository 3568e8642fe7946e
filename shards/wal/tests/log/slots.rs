//! Checkpoint slots: in turn, the newer valid one counts, a failure leaves the other.

use bytes::Bytes;
use ringmain_model::{Offset, ShardId};
use ringmain_wal::{
    BLOCK_BYTES, Checkpoint, Completion, Doubt, Effect, Entry, Failure, FileName, LogMarks, LogPosition, SegmentNumber,
    Sequence, SlotDamage, SlotName, SlotOutput, SlotWriter, Slots, SlotsRefused, choose_slot, decode_slot, encode_slot,
};

use crate::disk::Disk;
use crate::stage::{SHARD, bare_checkpoint, created, partition, progress};

fn checkpoint(next: u64) -> Checkpoint {
    let position = LogPosition {
        segment: SegmentNumber(next),
        position: 2 * BLOCK_BYTES,
        next: Sequence(next),
        previous_checksum: 77,
    };
    let (Entry::TopicCreated(topic), Entry::GroupProgress(group)) = (created(1), progress(1, 5)) else {
        panic!("the stage makes these")
    };
    let marks = LogMarks { partition: partition(1), log_start: Offset(2), log_end: Offset(next) };
    Checkpoint { topics: vec![topic], marks: vec![marks], groups: vec![group], ..bare_checkpoint(position) }
}

fn read(disk: &Disk) -> Result<Slots, SlotsRefused> {
    let file = |name| disk.whole(FileName::Slot(name));
    choose_slot(SHARD, file(SlotName::A).as_ref(), file(SlotName::B).as_ref())
}

fn write(disk: &mut Disk, writer: &mut SlotWriter, checkpoint: &Checkpoint) -> Vec<SlotOutput> {
    let (mut out, mut said) = (Vec::new(), Vec::new());
    assert!(writer.write(checkpoint, &mut out));
    while let Some(output) = out.pop() {
        match output {
            SlotOutput::Do { operation, effect } => writer.completed(operation, &disk.perform(&effect), &mut out),
            output => said.push(output),
        }
    }
    said
}

/// A writer that has confirmed what is on the disk.
fn writer_on(disk: &mut Disk) -> SlotWriter {
    let slots = read(disk).unwrap();
    let mut out = Vec::new();
    let mut writer = SlotWriter::new(SHARD, &slots, &mut out);
    assert!(!writer.is_ready(), "nothing is written before what was read is known to stay");
    while let Some(output) = out.pop() {
        match output {
            SlotOutput::Do { operation, effect } => {
                assert!(matches!(effect, Effect::Sync { .. } | Effect::SyncDirectory));
                writer.completed(operation, &disk.perform(&effect), &mut out);
            }
            output => assert_eq!(output, SlotOutput::Confirmed { release: slots.older }),
        }
    }
    writer
}

/// A disk with checkpoints 1 to `count`.
fn disk_with(count: u64) -> (Disk, SlotWriter) {
    let mut disk = Disk::new(1 << 30);
    let mut writer = writer_on(&mut disk);
    for next in 1..=count {
        let release = (next > 1).then(|| checkpoint(next - 1).position);
        let said = write(&mut disk, &mut writer, &checkpoint(next));
        assert_eq!(said, [SlotOutput::Written { sequence: next, release }], "the log is kept from the older slot on");
    }
    (disk, writer)
}

#[test]
fn slots_are_written_in_turn_and_the_newer_counts() {
    let (disk, _) = disk_with(5);
    let slots = read(&disk).unwrap();
    let (name, content) = slots.newer.unwrap();
    assert_eq!((name, content.sequence, content.checkpoint), (SlotName::A, 5, checkpoint(5)));
    assert_eq!((slots.older, slots.damaged), (Some(checkpoint(4).position), None));
}

#[test]
fn a_new_directory_has_no_checkpoint() {
    let slots = read(&Disk::new(0)).unwrap();
    assert_eq!((slots.newer, slots.older, slots.damaged), (None, None, None));
}

#[test]
fn of_one_damaged_slot_each_bit_is_seen_and_the_other_is_used() {
    let (whole, _) = disk_with(5);
    let length = whole.whole(FileName::Slot(SlotName::A)).unwrap();
    let length = u64::from_le_bytes(length[16..24].try_into().unwrap()) as usize;
    for (slot, other) in [(SlotName::A, 4), (SlotName::B, 5)] {
        for at in 0..length {
            for bit in 0..8 {
                let mut disk = whole.clone();
                disk.damage(FileName::Slot(slot), |content| content[at] ^= 1 << bit);
                let slots = read(&disk).unwrap();
                assert_eq!(slots.damaged, Some(slot), "byte {at} bit {bit}");
                let (name, content) = slots.newer.clone().unwrap();
                assert_eq!((name, &content.checkpoint), (slot.other(), &checkpoint(other)));
                assert_eq!(slots.older, None);
            }
        }
        for end in 0..length {
            let mut disk = whole.clone();
            disk.damage(FileName::Slot(slot), |content| content.truncate(end));
            assert_eq!(read(&disk).unwrap().damaged, Some(slot), "cut at {end}");
        }
        let before = whole.whole(FileName::Slot(slot)).unwrap();
        for from in 0..length {
            let mut disk = whole.clone();
            disk.damage(FileName::Slot(slot), |content| content[from..].fill(0));
            // Zeros may have stood there.
            let is_damaged = before[from..length].iter().any(|byte| *byte != 0);
            assert_eq!(read(&disk).unwrap().damaged, is_damaged.then_some(slot), "zeros from {from}");
        }
    }
    // The damaged slot is the one that is written next, and only after that does the log move on.
    let mut disk = whole;
    disk.damage(FileName::Slot(SlotName::A), |content| content[80] ^= 1);
    let mut writer = writer_on(&mut disk);
    let said = write(&mut disk, &mut writer, &checkpoint(9));
    assert_eq!(said, [SlotOutput::Written { sequence: 5, release: Some(checkpoint(4).position) }]);
    assert_eq!(read(&disk).unwrap().newer.unwrap().1.checkpoint, checkpoint(9));
}

#[test]
fn two_damaged_slots_another_shard_or_a_newer_version_are_refused() {
    let (mut disk, _) = disk_with(2);
    let newer = disk.whole(FileName::Slot(SlotName::A)).map(|slot| {
        let mut slot = slot.to_vec();
        slot[12] = 3;
        let length = u64::from_le_bytes(slot[16..24].try_into().unwrap()) as usize;
        let checksum = crc32c::crc32c(&slot[12..length]);
        slot[8..12].copy_from_slice(&checksum.to_le_bytes());
        Bytes::from(slot)
    });
    assert!(matches!(choose_slot(SHARD, newer.as_ref(), None), Err(SlotsRefused::Slot(SlotName::A, _))));
    let whole = disk.whole(FileName::Slot(SlotName::A));
    assert!(matches!(choose_slot(ShardId(8), whole.as_ref(), None), Err(SlotsRefused::Slot(SlotName::A, _))));
    for slot in [SlotName::A, SlotName::B] {
        disk.damage(FileName::Slot(slot), |content| content[70] ^= 1);
    }
    assert_eq!(read(&disk), Err(SlotsRefused::BothDamaged));
}

#[test]
fn a_first_checkpoint_that_was_never_finished_means_that_the_log_is_whole() {
    let (mut disk, _) = disk_with(1);
    disk.damage(FileName::Slot(SlotName::A), |content| content.truncate(100));
    let slots = read(&disk).unwrap();
    assert_eq!((slots.newer, slots.damaged), (None, Some(SlotName::A)));
}

#[test]
fn a_second_slot_that_is_damaged_proves_that_the_first_was_finished() {
    let (mut disk, _) = disk_with(2);
    disk.lose(FileName::Slot(SlotName::A));
    assert!(read(&disk).is_ok(), "the other one is whole");
    disk.damage(FileName::Slot(SlotName::B), |content| content[70] ^= 1);
    assert_eq!(read(&disk), Err(SlotsRefused::FirstMissing));
    disk.damage(FileName::Slot(SlotName::B), Vec::clear);
    assert_eq!(read(&disk), Err(SlotsRefused::FirstMissing));
}

#[test]
fn doubt_is_told_by_a_flag_of_version_2_and_without_it_version_1_is_written() {
    let mut slot = Vec::new();
    for (doubt, flags) in [(Doubt::Settled, 2), (Doubt::Open, 1)] {
        let doubtful = Checkpoint { doubt, ..checkpoint(3) };
        slot = encode_slot(SHARD, 7, &doubtful);
        assert_eq!((slot[12], slot[34]), (2, flags));
        assert_eq!(decode_slot(SHARD, &Bytes::from(slot.clone())).unwrap().checkpoint, doubtful);
    }
    let plain = encode_slot(SHARD, 7, &checkpoint(3));
    assert_eq!((plain[12], plain[34]), (1, 0));
    // A flag that version 1 does not have, version 2 without one, both, and one that nobody knows.
    for (version, flags) in [(1, 1), (1, 2), (2, 0), (2, 3), (2, 4)] {
        (slot[12], slot[34]) = (version, flags);
        let length = u64::from_le_bytes(slot[16..24].try_into().unwrap()) as usize;
        let checksum = crc32c::crc32c(&slot[12..length]);
        slot[8..12].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(decode_slot(SHARD, &Bytes::from(slot.clone())), Err(SlotDamage::Damaged));
    }
}

#[test]
fn a_large_checkpoint_is_written_in_slices() {
    let mut large = checkpoint(3);
    large.marks = (0..20_000)
        .map(|life| LogMarks { partition: partition(life), log_start: Offset(0), log_end: Offset(life) })
        .collect();
    let mut disk = Disk::new(1 << 30);
    let mut writer = writer_on(&mut disk);
    let (mut out, mut slices) = (Vec::new(), 0);
    writer.write(&large, &mut out);
    assert!(!writer.is_ready() && !writer.write(&large, &mut Vec::new()), "one at a time");
    while let Some(output) = out.pop() {
        if let SlotOutput::Do { operation, effect } = output {
            assert!(effect.write_bytes() <= ringmain_wal::SLOT_SLICE_BYTES as u64);
            slices += usize::from(effect.write_bytes() > 0);
            writer.completed(operation, &disk.perform(&effect), &mut out);
        }
    }
    assert!(slices > 2);
    assert_eq!(read(&disk).unwrap().newer.unwrap().1.checkpoint, large);
}

#[test]
fn a_failure_leaves_the_other_slot_and_a_failed_sync_ends_checkpoints() {
    let (disk, _) = disk_with(3);
    for fails in ["write", "sync"] {
        let mut disk = disk.clone();
        let mut writer = writer_on(&mut disk);
        let (mut out, mut said) = (Vec::new(), Vec::new());
        writer.write(&checkpoint(4), &mut out);
        while let Some(output) = out.pop() {
            let SlotOutput::Do { operation, effect } = output else {
                said.push(output);
                continue;
            };
            let fails_now = match effect {
                Effect::Write { .. } => fails == "write",
                Effect::Sync { .. } => fails == "sync",
                _ => false,
            };
            let completion = if fails_now { Completion::Failed(Failure::NoSpace) } else { disk.perform(&effect) };
            writer.completed(operation, &completion, &mut out);
        }
        if fails == "write" {
            assert_eq!(said, [SlotOutput::Failed(Failure::NoSpace)]);
            let said = write(&mut disk, &mut writer, &checkpoint(4));
            assert!(matches!(said[..], [SlotOutput::Written { sequence: 4, .. }]), "it may be tried again");
        } else {
            assert_eq!(said, [SlotOutput::Poisoned(Failure::NoSpace)]);
            assert!(!writer.is_ready());
        }
    }
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_a_slot_or_an_error(
        at in proptest::prelude::any::<proptest::sample::Index>(),
        value in proptest::prelude::any::<u8>(),
        noise in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300),
    ) {
        let _ = decode_slot(SHARD, &Bytes::from(noise));
        // Content that cannot be, under a right checksum.
        let mut slot = encode_slot(SHARD, 1, &checkpoint(3));
        let length = u64::from_le_bytes(slot[16..24].try_into().unwrap()) as usize;
        slot[24 + at.index(length - 24)] = value;
        let checksum = crc32c::crc32c(&slot[12..length]);
        slot[8..12].copy_from_slice(&checksum.to_le_bytes());
        if let Ok(content) = decode_slot(SHARD, &Bytes::from(slot.clone())) {
            proptest::prop_assert_eq!(encode_slot(SHARD, content.sequence, &content.checkpoint), slot);
        }
    }
}
