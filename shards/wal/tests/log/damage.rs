//! The last two batches cut at every byte, zeroed from every byte, each byte flipped: the table's outcome, never a panic.

use ringmain_model::Offset;
use ringmain_wal::{BLOCK_BYTES, Checkpoint, Entry, FileName, Finding, LogMarks, LogOpener, OpenOutput, Sequence};

use crate::disk::Disk;
use crate::stage::{Log, Opening, SHARD, bare_checkpoint, created, open, partition, records, segment, written};

const BLOCK: usize = BLOCK_BYTES as usize;
/// The second and the third batch of the log stand in these blocks of its first segment.
const LAST_BUT_ONE: usize = 2 * BLOCK;
const LAST: usize = 3 * BLOCK;

fn length_at(disk: &Disk, at: usize) -> usize {
    let content = disk.whole(segment(1)).unwrap();
    u32::from_le_bytes(content[at + 4..at + 8].try_into().unwrap()) as usize
}

fn is_hole(finding: &Finding) -> bool {
    matches!(finding, Finding::Hole { .. })
}

/// What counts is a prefix of what was written, and what is lost in the middle is told of.
fn check(opening: &Opening, entries: &[(Sequence, Entry)], kept: usize, what: &str) {
    assert_eq!(opening.entries, entries[..kept], "{what}");
    assert!(opening.opened.is_some(), "{what}");
}

#[test]
fn each_flipped_bit_has_its_outcome() {
    let (whole, entries) = written(2);
    for (at, kept, is_middle) in [(LAST_BUT_ONE, 1, true), (LAST, 2, false)] {
        let length = length_at(&whole, at);
        for byte in 0..BLOCK {
            for bit in if byte < length { 0..8 } else { 0..1 } {
                let mut disk = whole.clone();
                disk.damage(segment(1), |content| content[at + byte] ^= 1 << bit);
                let opening = open(&mut disk, None);
                let what = format!("batch at {at}, byte {byte}, bit {bit}");
                if byte >= length {
                    // Filling: nothing that was stored is touched.
                    check(&opening, &entries, 3, &what);
                    assert_eq!(opening.findings, [], "{what}");
                } else {
                    check(&opening, &entries, kept, &what);
                    assert_eq!(opening.findings.iter().any(is_hole), is_middle, "{what}");
                    let is_cut = opening.findings.iter().any(|finding| matches!(finding, Finding::Cut { .. }));
                    assert_eq!(is_cut, !is_middle, "{what}");
                }
            }
        }
    }
}

#[test]
fn each_cut_of_the_file_has_its_outcome() {
    let (whole, entries) = written(2);
    for end in LAST_BUT_ONE..whole.whole(segment(1)).unwrap().len() {
        let mut disk = whole.clone();
        disk.damage(segment(1), |content| content.truncate(end));
        let opening = open(&mut disk, None);
        let kept = 1
            + usize::from(end >= LAST_BUT_ONE + length_at(&whole, LAST_BUT_ONE))
            + usize::from(end >= LAST + length_at(&whole, LAST));
        check(&opening, &entries, kept, &format!("cut at {end}"));
        assert!(matches!(opening.findings[0], Finding::SegmentShort { .. }), "cut at {end}");
        assert!(!opening.findings.iter().any(is_hole), "cut at {end}");
    }
}

#[test]
fn zeros_from_each_byte_have_their_outcome() {
    let (whole, entries) = written(2);
    let size = whole.whole(segment(1)).unwrap().len();
    for from in LAST_BUT_ONE..size {
        let mut disk = whole.clone();
        disk.damage(segment(1), |content| content[from..].fill(0));
        let before = whole.whole(segment(1)).unwrap();
        let is_kept = |at: usize| before[from.max(at)..at + length_at(&whole, at)].iter().all(|byte| *byte == 0);
        let first = from >= LAST_BUT_ONE + length_at(&whole, LAST_BUT_ONE) || is_kept(LAST_BUT_ONE);
        let second = first && (from >= LAST + length_at(&whole, LAST) || is_kept(LAST));
        let opening = open(&mut disk, None);
        check(&opening, &entries, 1 + usize::from(first) + usize::from(second), &format!("zeros from {from}"));
        assert!(!opening.findings.iter().any(is_hole), "zeros from {from}");
    }
    // Zeros over the last batch but one alone are damage in the middle.
    for from in LAST_BUT_ONE..LAST_BUT_ONE + length_at(&whole, LAST_BUT_ONE) - 8 {
        let mut disk = whole.clone();
        disk.damage(segment(1), |content| content[from..LAST].fill(0));
        let opening = open(&mut disk, None);
        check(&opening, &entries, 1, &format!("zeros from {from} to the last batch"));
        assert!(opening.findings.iter().any(is_hole), "zeros from {from} to the last batch");
    }
}

/// What the last two batches, both damaged at once, come to: one that was begun proves that the one before had been durable.
fn check_both(opening: &Opening, entries: &[(Sequence, Entry)], is_proved: bool, what: &str) {
    check(opening, entries, 1, what);
    let position = |at: usize| at as u64;
    let (segment, last) = (ringmain_wal::SegmentNumber(1), position(LAST));
    let hole = Finding::Hole { from: Sequence(2), to: Sequence(3), segment, position: position(LAST_BUT_ONE) };
    let is_at_end = |finding: &Finding| matches!(finding, Finding::Cut { position, .. } if *position == last);
    let next = opening.opened.as_ref().unwrap().position.next;
    if is_proved {
        assert_eq!((opening.findings.len(), opening.findings[0]), (2, hole), "{what}");
        assert!(is_at_end(&opening.findings[1]), "{what}: {:?}", opening.findings);
        assert_eq!(next, Sequence(3), "{what}: a number that was given is not given again");
        assert!(opening.opened.as_ref().unwrap().held.contains(&segment), "{what}");
    } else {
        assert!(!opening.findings.iter().any(is_hole), "{what}: {:?}", opening.findings);
        assert_eq!(next, Sequence(2), "{what}");
    }
}

#[test]
fn both_of_the_last_two_damaged_at_once_have_their_outcome() {
    let (whole, entries) = written(2);
    let (one, two) = (length_at(&whole, LAST_BUT_ONE), length_at(&whole, LAST));
    // Numbers by which the last one tells that it is the last one: sequence, epoch, segment, block.
    let tells = 16..44;
    for byte in 0..two {
        for bit in 0..8 {
            for other in [0, 9, 17, 25, 41, 45, 64, 100, one - 1] {
                let mut disk = whole.clone();
                disk.damage(segment(1), |content| {
                    content[LAST + byte] ^= 1 << bit;
                    content[LAST_BUT_ONE + other] ^= 1 << bit;
                });
                let what = format!("bytes {other} and {byte}, bit {bit}");
                check_both(&open(&mut disk, None), &entries, !tells.contains(&byte), &what);
            }
        }
    }
    for from in 0..two {
        for all_of_the_first in [false, true] {
            let mut disk = whole.clone();
            disk.damage(segment(1), |content| {
                content[LAST + from..].fill(0);
                content[LAST_BUT_ONE + if all_of_the_first { 0 } else { 90 }..LAST].fill(0);
            });
            // Of the number of its block only the first byte is none.
            let what = format!("zeros from {from}, and all of the first: {all_of_the_first}");
            let opening = open(&mut disk, None);
            if disk.whole(segment(1)).unwrap()[LAST..] == whole.whole(segment(1)).unwrap()[LAST..] {
                continue;
            }
            check_both(&opening, &entries, from > 40, &what);
        }
    }
}

#[test]
fn what_a_later_batch_proves_is_found_again_until_a_checkpoint_knows_it() {
    let (mut disk, entries) = written(2);
    for at in [LAST_BUT_ONE, LAST] {
        disk.damage(segment(1), |content| content[at + 90] ^= 4);
    }
    let opening = open(&mut disk.clone(), None);
    let mut log = Log::on(disk, 8, None);
    let other = records(1, 0, 1, 50);
    assert_eq!(log.commit(&other), Sequence(3));
    let again = open(&mut log.disk, None);
    let holes = |opening: &Opening| opening.findings.iter().copied().filter(is_hole).collect::<Vec<_>>();
    assert_eq!(holes(&again), holes(&opening));
    assert!(!again.findings.iter().any(|finding| matches!(finding, Finding::Cut { .. })), "the log goes on there");
    assert_eq!(again.entries, [entries[0].clone(), (Sequence(3), other.clone())]);
    // From where the second start began, as its checkpoint says.
    let from = bare_checkpoint(opening.opened.unwrap().position);
    let later = open(&mut log.disk, Some(&from));
    assert_eq!((later.entries, later.findings), (vec![(Sequence(3), other)], vec![]));
}

#[test]
fn a_torn_tail_of_several_starts_proves_nothing() {
    // Each start's first batch is torn, in the segment that it made: all have the same sequence.
    let (mut disk, entries) = written(1);
    disk.damage(segment(1), |content| content[LAST_BUT_ONE + 90] ^= 4);
    for epoch in 8..12 {
        let mut log = Log::on(disk, epoch, None);
        let before = log.disk.list();
        log.commit(&records(1, 0, 1, 50));
        let names: Vec<_> =
            before.iter().map(|(file, _)| *file).filter(|file| matches!(file, FileName::Segment(_))).collect();
        disk = log.disk;
        for file in names {
            disk.damage(file, |content| {
                if file != segment(1) && content[BLOCK + 8..BLOCK + 12] == *b"RMCB" {
                    content[BLOCK + 90] = 0xee;
                }
            });
        }
        let opening = open(&mut disk, None);
        assert_eq!(opening.entries, entries[..1]);
        assert!(!opening.findings.iter().any(is_hole), "{:?}", opening.findings);
    }
}

/// A log that has been recycled many times, so that stale batches stand behind its end: the disk, a checkpoint before the last
/// three batches, these, and where they stand.
fn recycled() -> (Disk, Checkpoint, Vec<(Sequence, Entry)>, FileName) {
    let mut log = Log::on(Disk::new(1 << 30), 7, None);
    log.commit(&created(1));
    let mut base = 0;
    while base < 200 || log.writer.durable_position().position != 2 * BLOCK_BYTES {
        log.commit(&records(1, base, 1, 100));
        base += 1;
        let position = log.writer.durable_position();
        log.release(&position);
    }
    let position = log.writer.durable_position();
    let Entry::TopicCreated(topic) = created(1) else { panic!("the stage makes one") };
    let marks = LogMarks { partition: partition(1), log_start: Offset(0), log_end: Offset(base) };
    let checkpoint = Checkpoint { topics: vec![topic], marks: vec![marks], ..bare_checkpoint(position) };
    let last = (base..base + 3).map(|base| records(1, base, 1, 100)).map(|entry| (log.commit(&entry), entry)).collect();
    (log.disk, checkpoint, last, FileName::Segment(position.segment))
}

#[test]
fn each_flipped_byte_before_stale_batches_has_its_outcome() {
    let (whole, checkpoint, entries, file) = recycled();
    let content = whole.whole(file).unwrap();
    assert_eq!(&content[5 * BLOCK + 8..5 * BLOCK + 12], b"RMCB", "a stale batch stands behind");
    for (block, kept, is_middle) in [(3, 1, true), (4, 2, false)] {
        let at = block * BLOCK;
        let length = u32::from_le_bytes(content[at + 4..at + 8].try_into().unwrap()) as usize;
        for byte in 0..length {
            for (how, change) in [("flipped", 0x10_u8), ("zeroed from", 0)] {
                let mut disk = whole.clone();
                disk.damage(file, |content| match change {
                    0 => content[at + byte..at + BLOCK].fill(0),
                    bits => content[at + byte] ^= bits,
                });
                if disk.whole(file).unwrap()[at..at + length] == content[at..at + length] {
                    continue;
                }
                let opening = open(&mut disk, Some(&checkpoint));
                let what = format!("block {block}, {how} byte {byte}: {:?}", opening.findings);
                check(&opening, &entries, kept, &what);
                assert_eq!(opening.findings.iter().any(is_hole), is_middle, "{what}");
            }
        }
    }
}

#[test]
fn damage_after_a_restart_is_told_from_a_cut_tail() {
    // The second start's first batch chains to the last batch of the first start, which is damaged afterwards.
    let (disk, _) = written(1);
    let mut log = Log::on(disk, 8, None);
    log.commit(&records(1, 1, 1, 100));
    log.disk.damage(segment(1), |content| content[LAST_BUT_ONE + 90] ^= 4);
    let opening = open(&mut log.disk, None);
    assert_eq!(opening.entries, [(Sequence(1), created(1))]);
    assert!(opening.findings.iter().any(is_hole));
}

#[test]
fn a_payload_that_pretends_to_be_a_batch_is_none() {
    let (whole, _) = written(2);
    let forged = whole.whole(segment(1)).unwrap().slice(LAST..LAST + BLOCK);
    let mut log = Log::on(Disk::new(1 << 30), 9, None);
    log.commit(&created(1));
    let payload = forged.repeat(2);
    let mut builder = ringmain_wal::BatchBuilder::new(partition(1), Offset(0), 0);
    builder.push(&ringmain_model::Message::of(payload), 0);
    log.commit(&Entry::Records(builder.finish().unwrap()));
    log.disk.damage(segment(1), |content| content[LAST_BUT_ONE + 70] ^= 4);
    let opening = open(&mut log.disk, None);
    assert!(!opening.findings.iter().any(is_hole), "{:?}", opening.findings);
}

proptest::proptest! {
    #[test]
    fn any_bytes_in_a_segment_end_in_a_result(
        noise in proptest::collection::vec((0_usize..6 * BLOCK, proptest::prelude::any::<u8>()), 1..200),
        header_too in proptest::prelude::any::<bool>(),
    ) {
        let (mut disk, entries) = written(8);
        disk.damage(segment(2), |content| {
            for (at, byte) in &noise {
                let at = at % content.len();
                if header_too || at >= BLOCK {
                    content[at] = *byte;
                }
            }
        });
        let opening = open(&mut disk, None);
        proptest::prop_assert!(opening.opened.is_some());
        // Whatever is replayed was written, in that order.
        let mut written = entries.iter();
        for entry in &opening.entries {
            proptest::prop_assert!(written.any(|one| one == entry));
        }
    }
}

#[test]
fn a_whole_read_is_bounded() {
    let (disk, _) = written(2);
    let mut opener = LogOpener::new(SHARD, None, &disk.list());
    let mut outputs = Vec::new();
    opener.start(&mut outputs);
    assert!(matches!(&outputs[..], [OpenOutput::Do { .. }]), "one read at a time");
}
