//! A worker's fetch over partitions asks everybody, waits once, and ends with what there is; runs on the test thread.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use ringmain_driver::{GroupWish, TopicPlace};
use ringmain_engine::{Assigned, Assignment, GroupStart, Reply};
use ringmain_model::{GroupName, Incarnation, Message, Offset, PartitionRef, Refusal};
use ringmain_wal::BatchBuilder;

use super::{Ask, Begun, Moment, Step, Wanted, Worker};

const PLACE: TopicPlace = TopicPlace { incarnation: Incarnation(7), partitions: 3 };

fn at(now_ms: u64) -> Moment {
    Moment { now_ms, is_draining: false }
}

fn worker(first: u32, until_ms: u64, begun: Option<Begun>) -> Worker {
    let wanted = Wanted { start: GroupStart::Tail, count: 5, until_ms };
    Worker::new(PLACE, GroupName::new("g").unwrap(), wanted, first, begun)
}

fn pulled(number: u32, epoch: u64, has_message: bool) -> Reply {
    let partition = PLACE.partition(number);
    let assignments = if has_message { vec![assignment(partition, epoch)] } else { Vec::new() };
    Reply::Pulled { partition, group: GroupName::new("g").unwrap(), epoch, assignments }
}

fn assignment(partition: PartitionRef, epoch: u64) -> Assignment {
    let mut builder = BatchBuilder::new(partition, Offset(0), 0);
    builder.push(&Message::default(), 0);
    Assignment { epoch, batch: builder.finish().unwrap(), records: vec![Assigned { offset: Offset(0), attempt: 1 }] }
}

/// Which partitions are asked, whether they are only looked into, and how long that waits.
fn asked(step: Step) -> (bool, Vec<(u32, bool, u64)>) {
    let Step::Ask { takes_back, asks } = step else { panic!("{step:?}") };
    let shown = |Ask { partition, looks, wish }| match wish {
        GroupWish::Pull { count, wait_ms, .. } if (count == 0) == looks => (partition, looks, wait_ms),
        other => panic!("{other:?}"),
    };
    (takes_back, asks.into_iter().map(shown).collect())
}

/// Has the group begin in all partitions, in the epochs 10, 11 and 12; then the first is asked.
fn begin(worker: &mut Worker) -> Step {
    let looks = asked(worker.begin());
    assert_eq!(looks, (false, vec![(0, true, 0), (1, true, 0), (2, true, 0)]));
    assert_eq!(worker.take((1, true), pulled(1, 11, false), at(0)), Step::Wait);
    assert_eq!(worker.take((2, true), pulled(2, 12, false), at(0)), Step::Wait);
    worker.take((0, true), pulled(0, 10, false), at(0))
}

fn given(step: &Step) -> (u32, u64, usize) {
    let Step::Give { partition, epoch, assignments } = step else { panic!("{step:?}") };
    (partition.partition, *epoch, assignments.len())
}

#[test]
fn partitions_are_asked_in_turn_until_one_gives() {
    let mut worker = worker(8, 0, None);
    assert_eq!(asked(begin(&mut worker)), (false, vec![(2, false, 0)]));
    assert_eq!(asked(worker.take((2, false), pulled(2, 12, false), at(0))), (false, vec![(0, false, 0)]));
    assert_eq!(given(&worker.take((0, false), pulled(0, 10, true), at(0))), (0, 10, 1));
    // The next one knows that the group is everywhere.
    let mut next = self::worker(0, 0, worker.into_begun());
    assert_eq!(asked(next.begin()), (false, vec![(0, false, 0)]));
    for (number, after) in [(0, 1), (1, 2)] {
        let step = next.take((number, false), pulled(number, 10 + u64::from(number), false), at(0));
        assert_eq!(asked(step), (false, vec![(after, false, 0)]));
    }
    assert_eq!(given(&next.take((2, false), pulled(2, 12, false), at(0))), (2, 12, 0), "no time to wait");
    assert!(next.into_begun().is_some());
}

#[test]
fn another_epoch_makes_the_next_fetch_look_everywhere() {
    let mut worker = worker(0, 0, None);
    begin(&mut worker);
    assert_eq!(given(&worker.take((0, false), pulled(0, 99, true), at(0))), (0, 99, 1));
    assert!(worker.into_begun().is_none());
}

#[test]
fn one_look_waits_in_each_and_the_first_ends_the_others() {
    let mut worker = worker(0, 100, None);
    begin(&mut worker);
    worker.take((0, false), pulled(0, 10, false), at(1));
    worker.take((1, false), pulled(1, 11, false), at(1));
    let step = worker.take((2, false), pulled(2, 12, false), at(40));
    assert_eq!(asked(step), (false, vec![(0, true, 60), (1, true, 60), (2, true, 60)]));
    let step = worker.take((1, true), pulled(1, 11, false), at(50));
    assert_eq!(asked(step), (true, vec![(1, false, 0)]), "the others are taken back, and this one is asked");
    assert!(worker.has_looks());
    // Somebody else was faster. The notes that looks were taken back, and that one was not there, say nothing.
    assert_eq!(asked(worker.take((1, false), pulled(1, 11, false), at(51))), (false, vec![(2, false, 0)]));
    assert_eq!(worker.take((0, true), pulled(0, 10, false), at(51)), Step::Wait);
    assert_eq!(worker.take((0, true), Reply::Noted, at(51)), Step::Wait);
    assert_eq!(asked(worker.take((2, false), pulled(2, 12, false), at(52))), (false, vec![(0, false, 0)]));
    let step = worker.take((0, false), pulled(0, 10, false), at(60));
    assert_eq!(asked(step), (false, vec![(0, true, 40), (1, true, 40)]), "in the third an earlier look still waits");
    let step = worker.take((2, true), pulled(2, 12, false), at(61));
    assert_eq!(asked(step), (true, vec![(2, false, 0)]));
    let refused = Reply::Refused(Refusal::group_not_found("g"));
    assert_eq!(worker.take((0, true), refused, at(62)), Step::Wait, "it was taken back and not there");
    worker.take((2, false), pulled(2, 12, false), at(63));
    worker.take((0, false), pulled(0, 10, false), at(63));
    let step = worker.take((1, false), pulled(1, 11, false), at(70));
    assert_eq!(asked(step), (false, vec![(0, true, 30), (2, true, 30)]));
    assert_eq!(given(&worker.take((2, true), pulled(2, 12, false), at(100))), (2, 12, 0), "the time is over");
}

#[test]
fn a_broker_that_goes_down_answers_at_once() {
    let mut worker = worker(0, 100, None);
    begin(&mut worker);
    worker.take((0, false), pulled(0, 10, false), at(1));
    worker.take((1, false), pulled(1, 11, false), at(1));
    let draining = Moment { now_ms: 2, is_draining: true };
    assert_eq!(given(&worker.take((2, false), pulled(2, 12, false), draining)), (2, 12, 0));
}

#[test]
fn a_refusal_is_the_answer_and_nothing_is_remembered_of_a_half_begun_group() {
    let mut worker = worker(0, 100, None);
    worker.begin();
    worker.take((0, true), pulled(0, 10, false), at(0));
    let refusal = Refusal::topic_not_found("t");
    assert_eq!(worker.take((1, true), Reply::Refused(refusal.clone()), at(0)), Step::Refuse(refusal));
    assert!(worker.has_looks());
    assert!(worker.into_begun().is_none());
}

#[test]
fn a_group_begins_where_it_was_busy_when_another_place_is_free() {
    let mut worker = worker(0, 0, None);
    worker.begin();
    let busy = || Reply::Refused(Refusal::busy("no room"));
    assert_eq!(worker.take((1, true), busy(), at(0)), Step::Wait);
    assert_eq!(worker.take((2, true), busy(), at(0)), Step::Wait);
    assert_eq!(asked(worker.take((0, true), pulled(0, 10, false), at(0))), (false, vec![(2, true, 0)]));
    assert_eq!(asked(worker.take((2, true), pulled(2, 12, false), at(0))), (false, vec![(1, true, 0)]));
    assert_eq!(asked(worker.take((1, true), pulled(1, 11, false), at(0))), (false, vec![(0, false, 0)]));
    assert_eq!(given(&worker.take((0, false), pulled(0, 10, true), at(0))), (0, 10, 1));
    assert!(worker.into_begun().is_some());
}
