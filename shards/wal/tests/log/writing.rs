//! The writer: group commit, bounds, the reserve, a full disk, and poison.

use ringmain_wal::{
    BLOCK_BYTES, Completion, Effect, Failure, FileName, LogOutput, LogWriter, NotAdmitted, OperationId, Sequence,
};

use crate::disk::Disk;
use crate::stage::{Log, SHARD, bare_checkpoint, created, open, progress, records, settings};

/// A writer on a disk whose segments are ready, whose further effects are performed by hand.
fn by_hand() -> (LogWriter, Disk) {
    let log = Log::on(Disk::new(1 << 30), 7, None);
    (log.writer, log.disk)
}

fn log_effects(outputs: &[LogOutput]) -> Vec<(OperationId, Effect)> {
    let is_of_log = |effect: &Effect| {
        matches!(effect, Effect::Write { file: FileName::Segment(_), .. } | Effect::Sync { file: FileName::Segment(_) })
    };
    outputs
        .iter()
        .filter_map(|output| match output {
            LogOutput::Do { operation, effect } if is_of_log(effect) => Some((*operation, effect.clone())),
            _ => None,
        })
        .collect()
}

/// Performs what is not of the log itself: segments being made.
fn make_segments(writer: &mut LogWriter, disk: &mut Disk, out: &mut Vec<LogOutput>) {
    let mut at = 0;
    while at < out.len() {
        let of_log = log_effects(&out[at..=at]);
        if let (LogOutput::Do { operation, effect }, []) = (out[at].clone(), &of_log[..]) {
            out.remove(at);
            writer.completed(operation, &disk.perform(&effect), out);
        } else {
            at += 1;
        }
    }
}

#[test]
fn what_comes_during_a_write_goes_into_the_next_batch() {
    let (mut writer, _) = by_hand();
    let mut out = Vec::new();
    assert_eq!(writer.append(&created(1), &mut out), Ok(Sequence(1)));
    assert_eq!(log_effects(&out), [], "nothing is written before the turn ends");
    writer.turn_ended(&mut out);
    let (write, effect) = log_effects(&out).remove(0);
    for base in 0..5 {
        assert_eq!(writer.append(&records(1, base, 1, 10), &mut out), Ok(Sequence(2)));
        writer.turn_ended(&mut out);
    }
    assert_eq!(log_effects(&out).len(), 1, "one write in flight");
    out.clear();
    writer.completed(write, &Completion::Written(effect.write_bytes()), &mut out);
    let (sync, effect) = log_effects(&out).remove(0);
    assert!(matches!(effect, Effect::Sync { .. }) && !out.contains(&LogOutput::Durable(Sequence(1))));
    out.clear();
    writer.completed(sync, &Completion::Done, &mut out);
    assert_eq!(out, [LogOutput::Durable(Sequence(1))]);
    writer.turn_ended(&mut out);
    assert_eq!(log_effects(&out).len(), 1, "all that came meanwhile is one batch");
}

#[test]
fn a_bounded_number_of_batches_waits_and_then_the_log_is_busy() {
    let (mut writer, mut disk) = by_hand();
    let mut out = Vec::new();
    writer.append(&created(1), &mut out).unwrap();
    writer.turn_ended(&mut out);
    let mut admitted = 0;
    while writer.append(&records(1, admitted, 1, 3000), &mut out).is_ok() {
        make_segments(&mut writer, &mut disk, &mut out);
        admitted += 1;
    }
    assert_eq!(writer.append(&records(1, 0, 1, 3000), &mut out), Err(NotAdmitted::Busy));
    // Two entries fit a batch of 8192 bytes; two batches wait and one is open, in segments of three blocks each.
    assert!((4..=6).contains(&admitted), "{admitted}");
    assert_eq!(log_effects(&out).len(), 1);
}

#[test]
fn reserved_room_is_kept_and_what_does_not_fit_beside_it_waits() {
    let (mut writer, _) = by_hand();
    let mut out = Vec::new();
    assert_eq!(writer.reserve(5000, &mut out), Ok(()));
    assert_eq!(writer.reserve(4000, &mut out), Err(NotAdmitted::BatchFull));
    assert_eq!(writer.append(&records(1, 0, 1, 4000), &mut out), Err(NotAdmitted::BatchFull));
    assert_eq!(writer.append(&created(1), &mut out), Ok(Sequence(1)), "what fits beside it is admitted");
    writer.turn_ended(&mut out);
    assert_eq!(log_effects(&out), [], "nothing is written while something is reserved");
    assert_eq!(writer.append_reserved(&records(1, 0, 1, 4000), 5000), Ok(Sequence(1)));
    writer.turn_ended(&mut out);
    assert_eq!(log_effects(&out).len(), 1);
    assert_eq!(writer.reserve(4000, &mut out), Ok(()));
    assert_eq!(writer.append_reserved(&records(1, 1, 1, 100), 4000), Ok(Sequence(2)));
}

#[test]
fn progress_alone_may_wait_for_company() {
    let (mut writer, _) = by_hand();
    let mut out = Vec::new();
    assert!(!writer.holds_only_progress());
    writer.append(&progress(1, 0), &mut out).unwrap();
    assert!(writer.holds_only_progress() && writer.is_dirty());
    writer.append(&created(1), &mut out).unwrap();
    assert!(!writer.holds_only_progress());
}

#[test]
fn an_entry_larger_than_a_small_segment_waits_for_a_larger_one() {
    let mut log = Log::on(Disk::new(1 << 30), 7, None);
    log.commit(&created(1));
    assert_eq!(log.append(&records(1, 0, 1, 16 * 4096)), Err(NotAdmitted::TooLarge));
    let large = records(1, 0, 1, 12 * 4096);
    let tries = (0..10).take_while(|_| log.append(&large) == Err(NotAdmitted::Busy)).count();
    assert!(tries < 10, "a segment that holds it comes");
    log.end_turn();
    assert_eq!(open(&mut log.disk, None).entries.len(), 2);
}

#[test]
fn segments_that_wait_for_a_checkpoint_are_bounded() {
    let mut log = Log::on(Disk::new(1 << 30), 7, None);
    log.commit(&created(1));
    let mut base = 0;
    while log.append(&records(1, base, 1, 3000)).is_ok() {
        log.end_turn();
        base += 1;
        assert!(base < 1000, "it ends");
    }
    assert_eq!(log.append(&records(1, base, 1, 3000)), Err(NotAdmitted::Busy));
    assert_eq!(log.disk.list().len(), settings(7).segments_max);
    assert!(log.append(&progress(1, 0)).is_ok(), "the reserve admits progress");
    let position = log.writer.durable_position();
    log.release(&position);
    assert!(log.append(&records(1, base, 1, 3000)).is_ok());
}

#[test]
fn a_full_disk_refuses_records_and_goes_on_by_itself() {
    let mut log = Log::on(Disk::new(24 * BLOCK_BYTES), 7, None);
    log.commit(&created(1));
    let mut base = 0;
    let refusal = loop {
        match log.append(&records(1, base, 1, 3000)) {
            Ok(_) => log.end_turn(),
            Err(refusal) => break refusal,
        }
        base += 1;
    };
    assert_eq!(refusal, NotAdmitted::Full);
    assert!(log.said.contains(&LogOutput::Full(Failure::NoSpace)));
    assert!(log.append(&progress(1, 0)).is_ok(), "the reserve admits progress");
    log.end_turn();
    // What is left of the disk may hold another small segment.
    (0..4).for_each(|_| log.try_again());
    let said = log.said.len();
    log.try_again();
    assert_eq!(log.said.len(), said, "said once");
    log.disk.capacity = 1 << 30;
    log.try_again();
    assert!(log.said.contains(&LogOutput::Room));
    log.commit(&records(1, base, 1, 3000));
    let opening = open(&mut log.disk, None);
    assert_eq!((opening.entries.len() as u64, opening.findings), (base + 3, vec![]));
}

#[test]
fn what_is_too_large_for_a_full_disk_is_refused_and_takes_nothing_from_the_small() {
    // With and without the disk being known to be full, and with little room that is too little.
    for (spare, is_known) in [(0, false), (0, true), (3, false), (7, false)] {
        let mut log = Log::on(Disk::new(1 << 30), 7, None);
        log.commit(&created(1));
        log.disk.capacity = log.disk.list().iter().map(|(_, bytes)| bytes).sum::<u64>() + spare * BLOCK_BYTES;
        let mut base = 0;
        while is_known && log.append(&records(1, base, 1, 3000)).is_ok() {
            log.end_turn();
            base += 1;
        }
        assert_eq!(log.said.contains(&LogOutput::Full(Failure::NoSpace)), is_known);
        let segments = log.disk.list();
        let large = records(1, base, 1, 12 * 4096);
        for _ in 0..20 {
            let answers: Vec<_> = (0..2).map_while(|_| log.append(&large).err()).collect();
            let is_told = answers.iter().any(|why| matches!(why, NotAdmitted::Full | NotAdmitted::NoRoomForSize));
            assert!(is_told && !answers.contains(&NotAdmitted::TooLarge), "{answers:?}");
        }
        assert_eq!(log.disk.list(), segments, "nothing was given away");
        // All that is there is still for small entries, and after them the reserve for what settles and frees.
        let before = base;
        while log.append(&records(1, base, 1, 3000)).is_ok() {
            log.end_turn();
            base += 1;
        }
        assert!(base - before >= if is_known { 0 } else { 3 }, "{}", base - before);
        log.commit(&progress(1, 0));
        // With room it goes in.
        log.disk.capacity = 1 << 30;
        log.try_again();
        let large = records(1, base, 1, 12 * 4096);
        let tries = (0..10).take_while(|_| log.append(&large).is_err()).count();
        assert!(tries < 10, "a segment that holds it comes");
        log.end_turn();
        let opening = open(&mut log.disk, None);
        assert_eq!((opening.entries.len() as u64, opening.findings), (base + 3, vec![]));
    }
}

#[test]
fn what_found_no_room_says_nothing_of_smaller_entries() {
    let mut log = Log::on(Disk::new(1 << 30), 7, None);
    log.commit(&created(1));
    log.disk.capacity = log.disk.list().iter().map(|(_, bytes)| bytes).sum::<u64>();
    // Whoever asked has gone before it is known that there is no room.
    assert_eq!(log.append(&records(1, 0, 1, 12 * 4096)), Err(NotAdmitted::Busy));
    log.disk.capacity = 1 << 30;
    let smaller = records(1, 0, 1, 6 * 4096);
    let answers: Vec<_> = (0..10).map_while(|_| log.append(&smaller).err()).collect();
    assert!(!answers.is_empty() && answers.len() < 10, "it needs a segment, and that comes: {answers:?}");
    assert!(answers.iter().all(|why| *why == NotAdmitted::Busy), "{answers:?}");
}

#[test]
fn a_disk_that_is_full_from_the_start_is_no_crash() {
    let mut log = Log::on(Disk::new(0), 7, None);
    assert_eq!(log.append(&created(1)), Err(NotAdmitted::Full));
    log.disk.capacity = 1 << 30;
    log.try_again();
    log.commit(&created(1));
    let opening = open(&mut log.disk, None);
    assert_eq!((opening.entries.len(), opening.findings), (1, vec![]));
}

#[test]
fn a_failed_or_short_write_or_sync_poisons() {
    for case in 0..4 {
        let (mut writer, _) = by_hand();
        let mut out = Vec::new();
        writer.append(&created(1), &mut out).unwrap();
        writer.turn_ended(&mut out);
        let (mut operation, effect) = log_effects(&out).remove(0);
        let mut completion = match case {
            0 => Completion::Failed(Failure::System(5)),
            1 => Completion::Written(512),
            2 => Completion::Failed(Failure::NoSpace),
            _ => Completion::Written(effect.write_bytes()),
        };
        if case == 3 {
            writer.completed(operation, &completion, &mut out);
            operation = log_effects(&out).remove(1).0;
            completion = Completion::Failed(Failure::System(5));
        }
        out.clear();
        writer.completed(operation, &completion, &mut out);
        assert!(matches!(out[..], [LogOutput::Poisoned(_)]), "{case}: no retry, no further effect: {out:?}");
        assert_eq!(writer.append(&created(2), &mut out), Err(NotAdmitted::Poisoned));
        writer.turn_ended(&mut out);
        writer.try_again(&mut out);
        writer.release(&writer.durable_position(), &mut out);
        assert_eq!(out.len(), 1, "nothing is done any more");
    }
}

#[test]
fn a_start_never_writes_to_what_it_found() {
    let mut log = Log::on(Disk::new(1 << 30), 7, None);
    log.commit(&created(1));
    let before = log.disk.list();
    let mut log = Log::on(log.disk, 8, None);
    let entry = records(1, 0, 1, 10);
    assert_eq!(log.commit(&entry), Sequence(2));
    let position = log.writer.durable_position();
    assert!(before.iter().all(|(file, _)| *file != FileName::Segment(position.segment)));
    let opening = open(&mut log.disk, Some(&bare_checkpoint(position)));
    assert_eq!((opening.entries, opening.findings), (vec![], vec![]));
    assert_eq!(settings(8).shard, SHARD);
}
