//! Each lettered case of recovery has its outcome, and nothing is changed on a disk that is refused.

use ringmain_model::{Offset, ShardId};
use ringmain_wal::{
    BLOCK_BYTES, Completion, Effect, Entry, Failure, Finding, GroupProgress, LogMarks, LogOpener, OpenOutput,
    OpenRefused, Segment, SegmentNumber, Sequence,
};

use crate::disk::Disk;
use crate::stage::{
    Log, SHARD, bare_checkpoint, created, flip, open, partition, progress, records, segment, written, zeros,
};

const BLOCK: usize = BLOCK_BYTES as usize;

fn hole(from: u64, to: u64, number: u64, block: u64) -> Finding {
    let position = block * BLOCK_BYTES;
    Finding::Hole { from: Sequence(from), to: Sequence(to), segment: SegmentNumber(number), position }
}

fn quarantined(life: u64, awaited: u64, found: u64) -> Finding {
    Finding::Quarantined { partition: partition(life), awaited: Some(Offset(awaited)), found: Offset(found) }
}

fn cut(sequence: u64, number: u64, block: u64) -> Finding {
    let position = block * BLOCK_BYTES;
    Finding::Cut { sequence: Sequence(sequence), segment: SegmentNumber(number), position }
}

/// Makes the checksum of the batch or header that was changed right again.
fn reseal(content: &mut [u8], checksum_at: usize, end: usize) {
    let checksum = crc32c::crc32c(&content[checksum_at + 4..end]);
    content[checksum_at..checksum_at + 4].copy_from_slice(&checksum.to_le_bytes());
}

fn batch_end(content: &[u8], at: usize) -> usize {
    at + u32::from_le_bytes(content[at + 4..at + 8].try_into().unwrap()) as usize
}

fn entries_of(life: u64, entries: &[(Sequence, Entry)]) -> Vec<Entry> {
    let all = entries.iter().map(|(_, entry)| entry.clone());
    all.filter(|entry| entry.partition() == Some(partition(life))).collect()
}

#[test]
fn case_a_zeros_end_the_log() {
    let (mut disk, entries) = written(7);
    let opening = open(&mut disk, None);
    assert_eq!((opening.entries, opening.findings), (entries, vec![]));
    assert_eq!(opening.opened.unwrap().position.next, Sequence(9));
    assert!(matches!(opening.effects[..], [Effect::Sync { .. }, Effect::SyncDirectory]), "what was read is synced");
}

#[test]
fn case_a_stale_bytes_of_a_recycled_segment_end_the_log() {
    let mut log = Log::on(Disk::new(1 << 30), 7, None);
    log.commit(&created(1));
    let mut last = (Sequence(0), created(1));
    let mut position = log.writer.durable_position();
    // Long enough that segments are recycled several times, with more in them than they are given now.
    for base in 0..300 {
        position = log.writer.durable_position();
        log.release(&position);
        last.1 = records(1, base, 1, 3000);
        last.0 = log.commit(&last.1);
    }
    let number_max = log.disk.list().len();
    assert!(number_max < 10, "segments are recycled, not heaped up: {number_max}");
    let opening = open(&mut log.disk, Some(&bare_checkpoint(position)));
    assert_eq!((opening.entries, opening.findings), (vec![last], vec![]));
}

#[test]
fn a_whole_batch_counts_only_where_it_chains() {
    // The last batch, whole, with one number changed: sequence, epoch, segment, block.
    for field in [16, 24, 32, 40] {
        let (mut disk, entries) = written(2);
        disk.damage(segment(1), |content| {
            content[3 * BLOCK + field] ^= 1;
            let end = batch_end(content, 3 * BLOCK);
            reseal(content, 3 * BLOCK, end);
        });
        let opening = open(&mut disk, None);
        assert_eq!((&opening.entries[..], opening.findings), (&entries[..2], vec![cut(3, 1, 3)]), "field at {field}");
    }
    // Another previous checksum: it is of this log, and what it followed is not what stands before it.
    let (mut disk, entries) = written(2);
    disk.damage(segment(1), |content| {
        content[3 * BLOCK + 44] ^= 1;
        let end = batch_end(content, 3 * BLOCK);
        reseal(content, 3 * BLOCK, end);
    });
    let opening = open(&mut disk, None);
    assert_eq!((opening.entries, opening.findings), (entries, vec![hole(3, 3, 1, 3)]));
}

#[test]
fn case_b_a_torn_tail_is_cut() {
    let (mut disk, mut entries) = written(2);
    flip(&mut disk, segment(1), 3 * BLOCK + 100, 1);
    entries.pop();
    let opening = open(&mut disk, None);
    assert_eq!((opening.entries, opening.findings), (entries, vec![cut(3, 1, 3)]));
    let opened = opening.opened.unwrap();
    assert_eq!(opened.position.next, Sequence(3));
    assert!(opened.held.is_empty() && opened.used.iter().any(|used| used.number == SegmentNumber(1)));
}

#[test]
fn case_b_a_segment_that_holds_nothing_but_a_torn_batch_is_kept_for_a_while() {
    let (mut disk, entries) = written(3);
    flip(&mut disk, segment(2), BLOCK + 100, 1);
    let opening = open(&mut disk, None);
    assert_eq!((&opening.entries[..], opening.findings), (&entries[..3], vec![cut(4, 2, 1)]));
    let opened = opening.opened.unwrap();
    let is_second = |segment: &Segment| segment.number == SegmentNumber(2);
    assert!(opened.used.iter().any(is_second) && !opened.spare.iter().any(is_second));
}

#[test]
fn case_b_a_cut_tail_is_no_damage_for_the_starts_after() {
    let (mut disk, mut entries) = written(2);
    flip(&mut disk, segment(1), 3 * BLOCK + 100, 1);
    entries.pop();
    let mut log = Log::on(disk, 8, None);
    for base in 1..4 {
        let entry = records(1, base, 1, 50);
        entries.push((log.commit(&entry), entry));
    }
    let opening = open(&mut log.disk, None);
    assert_eq!((opening.entries, opening.findings), (entries, vec![]));
}

#[test]
fn case_c_damage_before_a_chaining_batch_is_corruption() {
    let (mut disk, entries) = written(2);
    flip(&mut disk, segment(1), 2 * BLOCK + 100, 1);
    let opening = open(&mut disk, None);
    assert_eq!(opening.entries, entries[..1]);
    assert_eq!(opening.findings, [hole(2, 3, 1, 2), quarantined(1, 0, 1)]);
    assert!(opening.opened.unwrap().held.contains(&SegmentNumber(1)));
}

#[test]
fn case_d_the_chaining_batch_may_stand_in_a_later_segment() {
    let (mut disk, entries) = written(4);
    flip(&mut disk, segment(1), 3 * BLOCK + 20, 1);
    let opening = open(&mut disk, None);
    assert_eq!(opening.entries, entries[..2]);
    assert_eq!(opening.findings, [hole(3, 4, 1, 3), quarantined(1, 1, 2)]);
    assert_eq!(opening.opened.unwrap().held.len(), 2);
}

#[test]
fn case_e_a_missing_segment_is_reported() {
    let (mut disk, entries) = written(8);
    disk.lose(segment(2));
    let opening = open(&mut disk, None);
    assert_eq!(opening.entries, entries[..3]);
    let missing = Finding::SegmentMissing(SegmentNumber(2));
    assert_eq!(opening.findings, [missing, hole(4, 7, 1, 4), quarantined(1, 2, 5)]);
}

#[test]
fn case_e_the_segment_of_the_checkpoint_may_be_the_missing_one() {
    let mut log = Log::on(Disk::new(1 << 30), 7, None);
    log.commit(&created(1));
    let checkpoint = bare_checkpoint(log.writer.durable_position());
    let entries: Vec<_> = (0..8).map(|base| records(1, base, 1, 9)).map(|entry| (log.commit(&entry), entry)).collect();
    log.disk.lose(segment(1));
    let opening = open(&mut log.disk, Some(&checkpoint));
    assert_eq!(opening.findings[0], Finding::SegmentMissing(SegmentNumber(1)));
    assert!(matches!(opening.findings[1], Finding::Hole { from: Sequence(2), to: Sequence(4), .. }));
    assert_eq!(opening.entries.len() + opening.findings.len() - 3, 0, "the topic is quarantined: {entries:?}");
}

#[test]
fn case_f_a_damaged_segment_header_costs_nothing_while_batches_chain() {
    let (mut disk, entries) = written(8);
    flip(&mut disk, segment(2), 30, 1);
    let opening = open(&mut disk, None);
    assert_eq!((opening.entries, opening.findings), (entries, vec![Finding::SegmentHeaderDamaged(SegmentNumber(2))]));
    assert!(opening.opened.unwrap().held.contains(&SegmentNumber(2)));
}

#[test]
fn case_g_a_newer_segment_batch_or_entry_is_refused() {
    type Change = fn(&mut Vec<u8>);
    let newer: [Change; 3] = [
        |content| {
            content[12] = 2;
            reseal(content, 8, BLOCK);
        },
        |content| {
            content[BLOCK + 12] = 2;
            let end = batch_end(content, BLOCK);
            reseal(content, BLOCK, end);
        },
        |content| {
            content[BLOCK + 64 + 4] = 77;
            let end = batch_end(content, BLOCK);
            reseal(content, BLOCK, end);
        },
    ];
    for change in newer {
        let (mut disk, _) = written(8);
        disk.damage(segment(2), change);
        let opening = open(&mut disk, None);
        assert_eq!(opening.refused, Some(OpenRefused::Newer(SegmentNumber(2))));
        assert_eq!(opening.effects, [], "nothing is changed");
    }
}

#[test]
fn case_h_a_segment_of_another_shard_is_refused() {
    let (mut disk, _) = written(8);
    disk.damage(segment(2), |content| {
        content[40] = 9;
        reseal(content, 8, BLOCK);
    });
    let opening = open(&mut disk, None);
    assert_eq!(opening.refused, Some(OpenRefused::Foreign { segment: SegmentNumber(2), owner: ShardId(9) }));
    assert_eq!(opening.effects, []);
}

#[test]
fn case_i_of_two_claims_to_a_sequence_the_later_start_is_right() {
    let (mut disk, mut entries) = written(2);
    flip(&mut disk, segment(1), 3 * BLOCK + 100, 1);
    entries.pop();
    let mut log = Log::on(disk, 8, None);
    let other = records(1, 1, 1, 50);
    entries.push((log.commit(&other), other));
    // The batch that the second start found torn turns up whole.
    flip(&mut log.disk, segment(1), 3 * BLOCK + 100, 1);
    let opening = open(&mut log.disk, None);
    assert_eq!((opening.entries, opening.findings), (entries, vec![]));
}

#[test]
fn case_j_a_whole_batch_with_malformed_entries_is_a_hole() {
    let (mut disk, entries) = written(2);
    disk.damage(segment(1), |content| {
        content[3 * BLOCK + 64 + 5] = 1;
        let end = batch_end(content, 3 * BLOCK);
        reseal(content, 3 * BLOCK, end);
    });
    let opening = open(&mut disk, None);
    assert_eq!((&opening.entries[..], &opening.findings[..]), (&entries[..2], &[hole(3, 4, 1, 3)][..]));
    assert_eq!(opening.opened.unwrap().position.next, Sequence(4));
}

#[test]
fn case_k_only_what_damage_touched_is_quarantined() {
    let mut log = Log::on(Disk::new(1 << 30), 7, None);
    let script =
        [created(1), created(2), records(1, 0, 1, 9), records(2, 0, 1, 9), records(1, 1, 2, 9), progress(1, 0)];
    for entry in &script {
        log.commit(entry);
    }
    log.commit(&records(2, 1, 1, 9));
    // The third batch of the first segment: the first records of topic 1.
    flip(&mut log.disk, segment(1), 3 * BLOCK + 99, 1);
    let opening = open(&mut log.disk, None);
    assert_eq!(opening.findings, [hole(3, 4, 1, 3), quarantined(1, 0, 1)]);
    assert_eq!(entries_of(1, &opening.entries), [], "its records and its groups' progress are withheld");
    assert_eq!(entries_of(2, &opening.entries), [records(2, 0, 1, 9), records(2, 1, 1, 9)]);
    // Held segments are set aside under another name when a checkpoint releases them.
    let mut log = Log::on(log.disk, 8, None);
    for base in 2..30 {
        log.commit(&records(2, base, 1, 9));
        let position = log.writer.durable_position();
        log.release(&position);
    }
    let aside = log.disk.list().iter().filter(|(file, _)| format!("{file:?}").starts_with("Quarantined")).count();
    assert_eq!((aside, log.writer.held().len()), (2, 0), "the segment of the hole and that of withheld entries");
}

#[test]
fn case_l_a_short_segment_is_reported() {
    let (mut disk, mut entries) = written(2);
    disk.damage(segment(1), |content| content.truncate(3 * BLOCK + 100));
    entries.pop();
    let opening = open(&mut disk, None);
    let short = Finding::SegmentShort { segment: SegmentNumber(1), bytes: 3 * BLOCK_BYTES + 100 };
    assert_eq!((opening.entries, opening.findings), (entries, vec![short, cut(3, 1, 3)]));
}

#[test]
fn case_m_a_disk_that_cannot_be_read_is_refused() {
    let (disk, _) = written(2);
    let mut opener = LogOpener::new(SHARD, None, &disk.list());
    let mut outputs = Vec::new();
    opener.start(&mut outputs);
    let OpenOutput::Do { operation, .. } = outputs.remove(0) else { panic!("it reads first") };
    opener.completed(operation, &Completion::Failed(Failure::System(5)), &mut outputs);
    let failure = Failure::System(5);
    assert_eq!(outputs, [OpenOutput::Refused(OpenRefused::Failed { segment: SegmentNumber(1), failure })]);
}

#[test]
fn a_read_that_is_cut_short_ends_in_a_result() {
    let (disk, _) = written(2);
    for bytes in [0, 1, 63, 64, 4095, 4096, 5000] {
        let mut opener = LogOpener::new(SHARD, None, &disk.list());
        let mut outputs = Vec::new();
        opener.start(&mut outputs);
        while let Some(output) = outputs.pop() {
            if let OpenOutput::Do { operation, effect } = output {
                let completion = match effect {
                    Effect::Read { .. } => Completion::Read(zeros(bytes)),
                    _ => Completion::Done,
                };
                opener.completed(operation, &completion, &mut outputs);
            }
        }
    }
}

#[test]
fn progress_says_where_a_partition_goes_on_behind_a_hole() {
    // Two records are lost, and a group knew of both, or of one, or another start has said where the log ended.
    let knows = |end: u64| {
        let Entry::GroupProgress(progress) = progress(1, end) else { unreachable!() };
        Entry::GroupProgress(GroupProgress { acked: vec![], attempts: vec![], ..progress })
    };
    let marks = LogMarks { partition: partition(1), log_start: Offset(0), log_end: Offset(3) };
    for (proof, goes_on) in [(knows(3), true), (knows(2), false), (Entry::LogMarks(marks), true)] {
        let mut log = Log::on(Disk::new(1 << 30), 7, None);
        for entry in [created(1), records(1, 0, 1, 10)] {
            log.commit(&entry);
        }
        let (first, _) = (log.commit(&records(1, 1, 1, 10)), log.commit(&records(1, 2, 1, 10)));
        let (proven, last) = (log.commit(&proof), log.commit(&records(1, 3, 1, 10)));
        let block = usize::try_from(first.0).unwrap() * BLOCK;
        for at in [block, block + BLOCK] {
            let number = 1 + u64::try_from(at / BLOCK - 1).unwrap() / 3;
            flip(&mut log.disk, segment(number), (at / BLOCK - 1) % 3 * BLOCK + BLOCK + 100, 1);
        }
        let opening = open(&mut log.disk, None);
        assert!(opening.findings.iter().any(|finding| matches!(finding, Finding::Hole { .. })), "{opening:?}");
        assert!(opening.entries.contains(&(proven, proof)));
        assert_eq!(opening.entries.contains(&(last, records(1, 3, 1, 10))), goes_on);
        assert_eq!(opening.findings.contains(&quarantined(1, 2, 3)), !goes_on, "{:?}", opening.findings);
    }
}
