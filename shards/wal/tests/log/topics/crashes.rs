//! Crashes at every effect: what a slot names stays, and what none names is in nobody's way.

use ringmain_wal::{PartitionSegments, RecordBatch, SegmentsOutput, SegmentsWriter};

use super::{BLOCK, batches, job, none_of, read_all, run, store_more};
use crate::chance::Chance;
use crate::disk::Disk;
use crate::stage::SHARD;

const BYTES_MAX: u64 = 6 * BLOCK;

/// Stores more of each list and crashes before the effect with that number, which is then done in part. Gives the new lists if it
/// came to that.
fn store_or_crash(
    disk: &mut Disk,
    lists: &[PartitionSegments],
    more: impl Fn(&PartitionSegments) -> Vec<RecordBatch>,
    crash_at: usize,
    chance: &mut Chance,
) -> Option<Vec<PartitionSegments>> {
    let mut writer = SegmentsWriter::new(SHARD);
    let jobs = lists.iter().map(|list| job(list, more(list), BYTES_MAX)).collect();
    let ran = run(&mut writer, jobs, |number, effect| (number < crash_at).then(|| disk.perform(effect)));
    match ran.said {
        Some(SegmentsOutput::Stored(stored)) => {
            let mut lists = lists.to_vec();
            lists.iter_mut().zip(stored).for_each(|(list, changed)| list.update(changed.segments));
            Some(lists)
        }
        Some(said) => panic!("{said:?}"),
        None => {
            disk.perform_in_part(&ran.effects[crash_at], chance);
            None
        }
    }
}

/// Three checkpoints of two partitions, each of one record.
fn two_partitions() -> (Disk, [PartitionSegments; 2]) {
    let (mut disk, mut named) = (Disk::new(1 << 30), [none_of(1), none_of(2)]);
    for base in 0..3 {
        for (list, life) in named.iter_mut().zip(1..) {
            store_more(&mut disk, list, batches(life, base, 1, 5000), BYTES_MAX);
        }
    }
    (disk, named)
}

fn check(disk: &mut Disk, lists: &[PartitionSegments], later: (u64, usize)) {
    for (list, life) in lists.iter().zip(1..) {
        let expected = [batches(life, 0, 3, 5000), batches(life, 3, later.0, later.1)].concat();
        assert!(list.is_well_formed() && read_all(disk, list) == expected);
    }
}

#[test]
fn a_crash_at_every_effect_loses_nothing_that_is_named() {
    let (whole, named) = two_partitions();
    let first = |list: &PartitionSegments| batches(list.partition.incarnation.0, 3, 8, 5000);
    let later = |list: &PartitionSegments| batches(list.partition.incarnation.0, 3, 4, 9000);
    for crash_at in 0.. {
        let mut is_over = false;
        for seed in 0..12 {
            let mut chance = Chance::of(seed);
            let mut disk = whole.clone();
            let stored = store_or_crash(&mut disk, &named, first, crash_at, &mut chance);
            is_over = stored.is_some();
            if seed % 3 > 0 {
                disk.lose_power(&mut chance);
            }
            if let Some(lists) = stored {
                check(&mut disk, &lists, (8, 5000));
            }
            check(&mut disk, &named, (0, 0));
            // The same again from the old state, with a second crash somewhere, and then with other batches.
            let again = chance.below(20) as usize;
            if store_or_crash(&mut disk, &named, first, again, &mut chance).is_none() {
                disk.lose_power(&mut chance);
            }
            let lists = store_or_crash(&mut disk, &named, later, usize::MAX, &mut chance).unwrap();
            disk.lose_power(&mut chance);
            check(&mut disk, &lists, (4, 9000));
            check(&mut disk, &named, (0, 0));
        }
        if is_over {
            assert!(crash_at > 10, "the run had {crash_at} effects");
            break;
        }
    }
}

/// The lists of the two slots: the newer, and the older if it is valid.
struct Slots {
    newer: (PartitionSegments, Vec<RecordBatch>),
    older: Option<(PartitionSegments, Vec<RecordBatch>)>,
}

#[test]
fn many_lives_with_crashes_and_lost_slots_keep_what_both_slots_name() {
    let (mut crashes, mut falls) = (0, 0);
    for seed in 0..200 {
        let mut chance = Chance::of(seed);
        let mut disk = Disk::new(1 << 30);
        let mut slots = Slots { newer: (none_of(1), Vec::new()), older: None };
        for _ in 0..20 {
            let (list, records) = &slots.newer;
            let base = list.end().map_or(0, |end| end.0);
            let more = batches(1, base, 1 + chance.below(5), chance.below(9000) as usize);
            let crash_at = if chance.one_in(2) { chance.below(12) as usize } else { usize::MAX };
            match store_or_crash(&mut disk, std::slice::from_ref(list), |_| more.clone(), crash_at, &mut chance) {
                Some(mut stored) => {
                    let records = [records.clone(), more].concat();
                    slots.older = Some(std::mem::replace(&mut slots.newer, (stored.remove(0), records)));
                }
                None => {
                    crashes += 1;
                    if !chance.one_in(3) {
                        disk.lose_power(&mut chance);
                    }
                }
            }
            // The newer slot is damaged; the older one and the log stand for it.
            if chance.one_in(5)
                && let Some(older) = slots.older.take()
            {
                falls += 1;
                slots.newer = older;
            }
            for (list, records) in [Some(&slots.newer), slots.older.as_ref()].into_iter().flatten() {
                assert!(read_all(&mut disk, list) == *records, "seed {seed}");
            }
        }
    }
    assert!(crashes > 300 && falls > 200, "{crashes} {falls}");
}
