//! What is stored comes back; files grow, are sealed, and a failure leaves all that was named.

use ringmain_wal::{
    CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, CHUNK_HEADER_BYTES, ChunkScanOutput, Completion, Effect, Failure, FileName,
    PartitionSegments, SegmentsOutput, SegmentsWriter, TOPIC_WRITE_BYTES_MAX, TopicSegment, TopicSegmentHeader,
};

use super::{BLOCK, NOW_US, batches, job, none_of, read_all, run, scan, store, store_more};
use crate::chance::Chance;
use crate::disk::Disk;
use crate::stage::{SHARD, partition};

#[test]
fn many_checkpoints_are_appended_and_sealed_and_come_back() {
    let mut chance = Chance::of(1);
    let mut disk = Disk::new(1 << 30);
    let mut lists = [none_of(1), none_of(2)];
    let mut expected = [Vec::new(), Vec::new()];
    for _ in 0..60 {
        let mut jobs = Vec::new();
        for (list, expected) in lists.iter().zip(&mut expected) {
            let base = list.end().map_or(0, |end| end.0);
            let more = batches(list.partition.incarnation.0, base, chance.below(4), chance.below(6000) as usize);
            expected.extend(more.clone());
            jobs.push(job(list, more, 8 * BLOCK));
        }
        let (stored, effects) = store(&mut disk, jobs);
        check_order(&effects);
        for (list, changed) in lists.iter_mut().zip(stored) {
            list.update(changed.segments);
        }
        // All that is named is durable, and nothing else is needed.
        disk.lose_power(&mut chance);
        for (list, expected) in lists.iter().zip(&expected) {
            assert_eq!(read_all(&mut disk, list), *expected);
            check_files(&disk, list);
        }
    }
    assert!(lists.iter().all(|list| list.segments.len() > 10 && list.is_well_formed()));
}

/// First all writes, then one sync of each file, then one of the directory if a file was made.
fn check_order(effects: &[Effect]) {
    let rank = |effect: &Effect| match effect {
        Effect::Allocate { .. } | Effect::Write { .. } => 0,
        Effect::Sync { .. } => 1,
        Effect::SyncDirectory => 2,
        other => panic!("{other:?}"),
    };
    assert!(effects.is_sorted_by_key(rank), "{effects:?}");
    let has_created = effects.iter().any(|effect| matches!(effect, Effect::Allocate { .. }));
    assert_eq!(effects.iter().filter(|effect| **effect == Effect::SyncDirectory).count(), usize::from(has_created));
    let synced: Vec<_> =
        effects.iter().filter_map(|one| if let Effect::Sync { file } = one { Some(*file) } else { None }).collect();
    for effect in effects {
        let Effect::Write { file, position, .. } = effect else { continue };
        assert_eq!(synced.iter().filter(|one| *one == file).count(), 1, "each file is synced once");
        assert!(position.is_multiple_of(BLOCK) && effect.write_bytes().is_multiple_of(BLOCK));
        assert!(effect.write_bytes() <= TOPIC_WRITE_BYTES_MAX);
    }
}

/// Each file has its header and takes what its entry says.
fn check_files(disk: &Disk, list: &PartitionSegments) {
    for segment in &list.segments {
        let content = disk.whole(segment.file(list.partition)).unwrap();
        assert_eq!(content.len() as u64, segment.bytes_on_disk(), "nothing is set aside beyond what is written");
        let header = TopicSegmentHeader::decode(&content).unwrap();
        assert_eq!((header.partition, header.base), (list.partition, segment.base));
        assert_eq!((header.shard, header.created_us), (SHARD, NOW_US));
        assert_eq!(header.name.as_str(), format!("topic-{}", list.partition.incarnation.0));
        let is_small = segment.file_bytes <= 8 * BLOCK;
        assert!(is_small, "it is sealed before it grows over its limit");
    }
}

#[test]
fn much_is_cut_into_chunks_of_about_the_same_size_and_written_in_large_parts() {
    for (count, payload_bytes, chunks) in [(1100, 1000, 2), (3300, 1000, 4), (4, 700_000, 4), (900, 1000, 1)] {
        let (mut disk, mut list) = (Disk::new(1 << 30), none_of(1));
        let all = batches(1, 0, count, payload_bytes);
        let effects = store_more(&mut disk, &mut list, all.clone(), 1 << 30);
        check_order(&effects);
        let made = &list.segments[0].chunks;
        assert_eq!(made.len(), chunks, "{count} batches of {payload_bytes}");
        let sizes = made.iter().map(|chunk| chunk.bytes - CHUNK_HEADER_BYTES);
        assert!(sizes.clone().all(|bytes| (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&bytes)), "{made:?}");
        let writes = effects.iter().filter(|effect| effect.write_bytes() > 0).count();
        assert!(writes <= chunks, "the header goes with the first chunk");
        assert_eq!(read_all(&mut disk, &list), all);
    }
}

#[test]
fn a_batch_larger_than_a_chunk_or_a_segment_has_its_own() {
    let (mut disk, mut list) = (Disk::new(1 << 30), none_of(1));
    let mut all = batches(1, 0, 2, 100);
    all.extend(batches(1, 2, 1, 3_500_000));
    all.extend(batches(1, 3, 2, 100));
    let effects = store_more(&mut disk, &mut list, all.clone(), 1 << 20);
    check_order(&effects);
    assert_eq!(list.segments.iter().map(|segment| segment.base.0).collect::<Vec<_>>(), [0, 2, 3]);
    assert_eq!(read_all(&mut disk, &list), all);
}

#[test]
fn nothing_to_store_is_stored_at_once() {
    let (mut disk, mut list) = (Disk::new(1 << 30), none_of(1));
    store_more(&mut disk, &mut list, batches(1, 0, 1, 100), 1 << 20);
    let (stored, effects) = store(&mut disk, vec![job(&list, Vec::new(), 1 << 20)]);
    assert_eq!((stored, effects), (vec![none_of(1)], vec![]));
    let (stored, effects) = store(&mut disk, Vec::new());
    assert_eq!((stored, effects), (vec![], vec![]));
}

#[test]
fn one_run_at_a_time_and_unknown_results_are_ignored() {
    let mut writer = SegmentsWriter::new(SHARD);
    let mut out = Vec::new();
    assert!(writer.begin(vec![job(&none_of(1), batches(1, 0, 1, 10), 1 << 20)], NOW_US, &mut out));
    assert!(!writer.begin(Vec::new(), NOW_US, &mut out) && out.len() == 1);
    let Some(SegmentsOutput::Do { operation, .. }) = out.pop() else { panic!("it began") };
    writer.completed(ringmain_wal::OperationId(operation.0 + 1), &Completion::Done, &mut out);
    assert!(out.is_empty() && writer.waits_for(operation));
}

#[test]
fn a_full_disk_fails_and_the_same_jobs_go_through_later() {
    let (mut whole, mut first) = (Disk::new(1 << 30), none_of(1));
    store_more(&mut whole, &mut first, batches(1, 0, 3, 5000), 10 * BLOCK);
    let more = batches(1, 3, 9, 5000);
    let room = whole.list().iter().map(|(_, bytes)| bytes).sum::<u64>();
    let mut failures = 0;
    for blocks in 0..40 {
        let (mut disk, mut list) = (whole.clone(), first.clone());
        disk.capacity = room + blocks * BLOCK;
        let mut writer = SegmentsWriter::new(SHARD);
        let ran = run(&mut writer, vec![job(&list, more.clone(), 10 * BLOCK)], |_, effect| Some(disk.perform(effect)));
        if let Some(SegmentsOutput::Failed(failure)) = ran.said {
            failures += 1;
            assert_eq!(failure, Failure::NoSpace);
            assert_eq!(read_all(&mut disk, &list), batches(1, 0, 3, 5000), "what was named is untouched");
            disk.capacity = 1 << 30;
            // More has come meanwhile.
            let later = batches(1, 3, 10, 5000);
            let ran = run(&mut writer, vec![job(&list, later, 10 * BLOCK)], |_, effect| Some(disk.perform(effect)));
            let Some(SegmentsOutput::Stored(mut stored)) = ran.said else { panic!("{:?}", ran.said) };
            list.update(stored.remove(0).segments);
            disk.lose_power(&mut Chance::of(blocks));
            assert_eq!(read_all(&mut disk, &list), batches(1, 0, 13, 5000));
        }
    }
    assert!((5..40).contains(&failures), "{failures}");
}

#[test]
fn each_failing_effect_has_its_outcome() {
    let (mut whole, mut first) = (Disk::new(1 << 30), none_of(1));
    store_more(&mut whole, &mut first, batches(1, 0, 2, 5000), 4 * BLOCK);
    let jobs = || vec![job(&first, batches(1, 2, 3, 5000), 4 * BLOCK), job(&none_of(2), batches(2, 0, 1, 50), BLOCK)];
    for failing in 0.. {
        let (mut disk, mut chance) = (whole.clone(), Chance::of(failing as u64));
        let mut writer = SegmentsWriter::new(SHARD);
        let ran = run(&mut writer, jobs(), |number, effect| {
            if number != failing {
                return Some(disk.perform(effect));
            }
            if !matches!(effect, Effect::Allocate { .. }) {
                disk.perform_in_part(effect, &mut chance);
            }
            Some(Completion::Failed(Failure::System(5)))
        });
        match (ran.effects.get(failing), ran.said.unwrap()) {
            (Some(Effect::Sync { .. } | Effect::SyncDirectory), said) => {
                assert_eq!(said, SegmentsOutput::Poisoned(Failure::System(5)));
                assert!(!writer.is_ready() && !writer.begin(Vec::new(), NOW_US, &mut Vec::new()));
            }
            (Some(Effect::Write { file, .. }), said) if *file == first.segments[0].file(first.partition) => {
                let SegmentsOutput::Stored(stored) = said else { panic!("{said:?}") };
                assert!(ran.given_up.len() == 1 && stored.len() == 1, "the other job is done");
                assert_eq!(read_all(&mut disk, &stored[0]), batches(2, 0, 1, 50));
            }
            (Some(_), said) => {
                assert_eq!(said, SegmentsOutput::Failed(Failure::System(5)));
                let ran = run(&mut writer, jobs(), |_, effect| Some(disk.perform(effect)));
                let Some(SegmentsOutput::Stored(stored)) = ran.said else { panic!("{:?}", ran.said) };
                disk.lose_power(&mut chance);
                let mut list = first.clone();
                list.update(stored[0].segments.clone());
                assert_eq!(read_all(&mut disk, &list), batches(1, 0, 5, 5000));
                assert_eq!(read_all(&mut disk, &stored[1]), batches(2, 0, 1, 50));
            }
            (None, said) => {
                assert!(matches!(said, SegmentsOutput::Stored(_)) && failing == 9, "{failing} effects");
                break;
            }
        }
    }
}

#[test]
fn a_file_that_cannot_be_written_to_costs_its_own_job_and_a_new_one_is_begun() {
    // Gone, no place on the disk, not ours, a folder; and what tells of more than one file.
    for code in [2, 5, 13, 21, 24, 30] {
        let (mut disk, mut lists) = (Disk::new(1 << 30), [1, 2, 3].map(none_of));
        for list in &mut lists {
            let life = list.partition.incarnation.0;
            store_more(&mut disk, list, batches(life, 0, 2, 5000), 1 << 20);
        }
        let broken = lists[1].segments[0].file(lists[1].partition);
        let jobs = |lists: &[PartitionSegments; 3]| {
            lists.each_ref().map(|list| job(list, batches(list.partition.incarnation.0, 2, 3, 5000), 1 << 20)).to_vec()
        };
        let mut writer = SegmentsWriter::new(SHARD);
        let mut perform = |_: usize, effect: &Effect| {
            let is_broken = matches!(effect, Effect::Write { file, .. } if *file == broken);
            Some(if is_broken { Completion::Failed(Failure::System(code)) } else { disk.perform(effect) })
        };
        let ran = run(&mut writer, jobs(&lists), &mut perform);
        if matches!(code, 24 | 30) {
            assert_eq!((ran.said, ran.given_up), (Some(SegmentsOutput::Failed(Failure::System(code))), vec![]));
            continue;
        }
        let Some(SegmentsOutput::Stored(stored)) = ran.said else { panic!("{:?}", ran.said) };
        assert_eq!(ran.given_up.iter().map(|file| FileName::Topic(*file)).collect::<Vec<_>>(), [broken]);
        assert_eq!(stored.iter().map(|one| one.partition).collect::<Vec<_>>(), [1, 3].map(partition));
        lists[1].segments[0].give_up();
        let ran = run(&mut writer, jobs(&lists).drain(1..2).collect(), &mut perform);
        let Some(SegmentsOutput::Stored(mut stored)) = ran.said else { panic!("{:?}", ran.said) };
        assert!(lists[1].is_well_formed() && ran.given_up.is_empty());
        assert_eq!(read_all(&mut disk, &stored[0]), batches(2, 2, 3, 5000));
        lists[1].update(stored.remove(0).segments);
        assert!(lists[1].is_well_formed() && lists[1].segments.len() == 2);
        // What is in the file that was given up is found without an index.
        let found = scan(&mut disk, lists[1].partition, &lists[1].segments[0]);
        let ChunkScanOutput::Done { chunks, lost } = found else { panic!("{found:?}") };
        assert!(
            lost.is_empty() && chunks.last().map(|chunk| chunk.end) == lists[1].segments.first().map(|one| one.end)
        );
    }
}

#[test]
fn behind_a_gap_a_new_file_begins() {
    let (mut disk, mut list) = (Disk::new(1 << 30), none_of(1));
    store_more(&mut disk, &mut list, batches(1, 0, 3, 5000), 1 << 20);
    // One gap where the files end, and one in what comes.
    let more = [batches(1, 5, 3, 5000), batches(1, 10, 2, 5000)].concat();
    let expected = [batches(1, 0, 3, 5000), more.clone()].concat();
    store_more(&mut disk, &mut list, more, 1 << 20);
    assert_eq!(list.segments.iter().map(|one| (one.base.0, one.end.0)).collect::<Vec<_>>(), [(0, 3), (5, 8), (10, 12)]);
    assert!(list.has_gap() && list.segments.iter().map(TopicSegment::is_sealed).eq([true, true, false]));
    assert_eq!(read_all(&mut disk, &list), expected);
}

#[test]
fn a_short_write_fails_and_a_file_that_stays_in_the_way_does_too() {
    let jobs = || vec![job(&none_of(1), batches(1, 0, 1, 50), 1 << 20)];
    let mut writer = SegmentsWriter::new(SHARD);
    let ran = run(&mut writer, jobs(), |_, effect| {
        Some(if effect.write_bytes() > 0 { Completion::Written(512) } else { Completion::Done })
    });
    assert_eq!(ran.said, Some(SegmentsOutput::Failed(Failure::Short { written: 512 })));
    let ran = run(&mut writer, jobs(), |_, effect| {
        let is_made = matches!(effect, Effect::Allocate { .. });
        Some(if is_made { Completion::Failed(Failure::System(17)) } else { Completion::Done })
    });
    assert_eq!((ran.effects.len(), ran.said), (3, Some(SegmentsOutput::Failed(Failure::System(17)))));
}
