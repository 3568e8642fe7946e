//! A worker's fetch over partitions asks everybody, waits once, and ends with what there is; runs on the test thread.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use ringmain_driver::{GroupAction, TopicPlace};
use ringmain_engine::{Assigned, Assignment, BatchBuilder, GroupStart, Reply};
use ringmain_model::{GroupName, Incarnation, Message, Offset, PartitionRef, Refusal};

use super::{Ask, Begun, Moment, ROUND_MS, ROUND_SPREAD_MS, Step, Wanted, Worker};

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

/// Which partitions are asked, for how many messages, and how long that waits.
fn asked(step: Step) -> Vec<(u32, u32, u64)> {
    let Step::Ask(asks) = step else { panic!("{step:?}") };
    let shown = |Ask { partition, looks, action }| match action {
        GroupAction::Pull { count, wait_ms, .. } if looks == (wait_ms > 0) => (partition, count, wait_ms),
        other => panic!("{other:?}"),
    };
    asks.into_iter().map(shown).collect()
}

fn busy() -> Reply {
    Reply::Refused(Refusal::busy("no room"))
}

/// Has the group begin in all partitions, in the epochs 10, 11 and 12; then the first is asked.
fn begin(worker: &mut Worker) -> Step {
    assert_eq!(asked(worker.begin()), [(0, 0, 0), (1, 0, 0), (2, 0, 0)]);
    assert_eq!(worker.take((1, false), pulled(1, 11, false), at(0)), Step::Wait);
    assert_eq!(worker.take((2, false), pulled(2, 12, false), at(0)), Step::Wait);
    worker.take((0, false), pulled(0, 10, false), at(0))
}

/// One that waits for 1000 ms, after nothing was found: a look is in each partition.
fn waiting() -> Worker {
    let mut worker = worker(0, 1000, None);
    begin(&mut worker);
    worker.take((0, false), pulled(0, 10, false), at(0));
    worker.take((1, false), pulled(1, 11, false), at(0));
    let step = worker.take((2, false), pulled(2, 12, false), at(0));
    assert_eq!(asked(step), [(0, 0, 1000), (1, 0, 1000), (2, 0, 1000)]);
    worker
}

/// When the next round is, which was planned at that time.
fn round_of(worker: &Worker, planned_ms: u64) -> u64 {
    let due_ms = worker.due_ms().unwrap();
    assert!((ROUND_MS..ROUND_MS + u64::from(ROUND_SPREAD_MS)).contains(&(due_ms - planned_ms)), "{due_ms}");
    due_ms
}

fn given(step: &Step) -> (u32, u64, usize) {
    let Step::Give { partition, epoch, assignments } = step else { panic!("{step:?}") };
    (partition.partition, *epoch, assignments.len())
}

#[test]
fn partitions_are_asked_in_turn_until_one_gives() {
    let mut worker = worker(8, 0, None);
    assert_eq!(asked(begin(&mut worker)), [(2, 5, 0)]);
    assert_eq!(asked(worker.take((2, false), pulled(2, 12, false), at(0))), [(0, 5, 0)]);
    assert_eq!(given(&worker.take((0, false), pulled(0, 10, true), at(0))), (0, 10, 1));
    // The next one knows that the group is everywhere.
    let mut next = self::worker(0, 0, worker.into_begun());
    assert_eq!(asked(next.begin()), [(0, 5, 0)]);
    for (number, after) in [(0, 1), (1, 2)] {
        let step = next.take((number, false), pulled(number, 10 + u64::from(number), false), at(0));
        assert_eq!(asked(step), [(after, 5, 0)]);
    }
    assert_eq!(given(&next.take((2, false), pulled(2, 12, false), at(0))), (2, 12, 0), "no time to wait");
    assert!(next.into_begun().is_some());
}

#[test]
fn another_epoch_makes_the_group_begin_everywhere_before_the_answer() {
    for has_message in [true, false] {
        let mut worker = worker(0, 0, None);
        begin(&mut worker);
        let step = worker.take((0, false), pulled(0, 99, has_message), at(0));
        assert_eq!(asked(step), [(1, 0, 0), (2, 0, 0)]);
        assert_eq!(worker.take((2, false), pulled(2, 98, false), at(0)), Step::Wait);
        let step = worker.take((1, false), pulled(1, 97, false), at(0));
        if has_message {
            assert_eq!(given(&step), (0, 99, 1));
        } else {
            assert_eq!(asked(step), [(1, 5, 0)], "it goes on where it was");
            assert_eq!(given(&worker.take((1, false), pulled(1, 97, true), at(0))), (1, 97, 1));
        }
        let mut next = self::worker(2, 0, worker.into_begun());
        assert_eq!(asked(next.begin()), [(2, 5, 0)]);
        assert_eq!(given(&next.take((2, false), pulled(2, 98, true), at(0))), (2, 98, 1));
    }
}

#[test]
fn messages_are_given_although_the_group_cannot_begin_elsewhere() {
    for refusal in [Refusal::busy("no room"), Refusal::group_not_found("g")] {
        let mut worker = worker(0, 1000, None);
        begin(&mut worker);
        worker.take((0, false), pulled(0, 99, true), at(0));
        let mut step = worker.take((1, false), Reply::Refused(refusal.clone()), at(0));
        if step == Step::Wait {
            step = worker.take((2, false), Reply::Refused(refusal), at(0));
        }
        assert_eq!(given(&step), (0, 99, 1));
        assert!(worker.into_begun().is_none(), "the next fetch has it begin");
    }
}

#[test]
fn a_woken_partition_is_asked_alone_and_looked_into_again() {
    let mut worker = waiting();
    assert_eq!(asked(worker.take((1, true), pulled(1, 11, false), at(50))), [(1, 5, 0)]);
    assert!(worker.has_looks(), "the others stand");
    assert_eq!(asked(worker.take((1, false), pulled(1, 11, false), at(60))), [(1, 0, 940)], "others were faster");
    assert_eq!(asked(worker.take((1, true), pulled(1, 11, false), at(70))), [(1, 5, 0)]);
    // Those answered meanwhile come next, one after another.
    assert_eq!(worker.take((0, true), pulled(0, 10, false), at(71)), Step::Wait);
    assert_eq!(worker.take((2, true), pulled(2, 12, false), at(71)), Step::Wait);
    assert!(!worker.has_looks());
    assert_eq!(asked(worker.take((1, false), pulled(1, 11, false), at(80))), [(1, 0, 920), (2, 5, 0)]);
    assert_eq!(asked(worker.take((2, false), pulled(2, 12, false), at(90))), [(2, 0, 910), (0, 5, 0)]);
    assert_eq!(given(&worker.take((0, false), pulled(0, 10, true), at(91))), (0, 10, 1));
    assert!(worker.has_looks(), "they are taken back");
    assert!(worker.into_begun().is_some());
}

#[test]
fn the_end_of_the_time_waits_for_what_may_bring_messages() {
    let mut worker = waiting();
    assert_eq!(given(&worker.take((2, true), pulled(2, 12, false), at(1000))).2, 0);
    let mut worker = waiting();
    worker.take((2, true), pulled(2, 12, false), at(999));
    assert_eq!(worker.take((0, true), pulled(0, 10, false), at(1000)), Step::Wait);
    let group_is_gone = Reply::Refused(Refusal::group_not_found("g"));
    assert_eq!(worker.take((1, true), group_is_gone.clone(), at(1000)), Step::Wait);
    assert_eq!(given(&worker.take((2, false), pulled(2, 12, true), at(1001))), (2, 12, 1));
    let mut worker = waiting();
    let Reply::Refused(refusal) = group_is_gone.clone() else { return };
    assert_eq!(worker.take((1, true), group_is_gone, at(5)), Step::Refuse(refusal));
}

#[test]
fn another_epoch_while_looks_stand_lets_them_stand() {
    let mut worker = waiting();
    worker.take((0, true), pulled(0, 10, false), at(10));
    assert_eq!(asked(worker.take((0, false), pulled(0, 99, false), at(20))), [(1, 0, 0), (2, 0, 0)]);
    assert_eq!(worker.take((2, true), pulled(2, 12, false), at(21)), Step::Wait, "a look");
    assert_eq!(worker.take((2, false), pulled(2, 98, false), at(22)), Step::Wait);
    let step = worker.take((1, false), pulled(1, 97, false), at(30));
    assert_eq!(asked(step), [(0, 0, 970), (2, 5, 0)]);
    assert_eq!(given(&worker.take((2, false), pulled(2, 98, true), at(40))), (2, 98, 1));
}

#[test]
fn a_broker_that_goes_down_answers_at_once() {
    let mut worker = worker(0, 100, None);
    begin(&mut worker);
    worker.take((0, false), pulled(0, 10, false), at(1));
    worker.take((1, false), pulled(1, 11, false), at(1));
    let draining = Moment { now_ms: 2, is_draining: true };
    assert_eq!(worker.on_time(draining), Step::Wait, "the answer comes");
    assert_eq!(given(&worker.take((2, false), pulled(2, 12, false), draining)), (2, 12, 0));
    let mut worker = waiting();
    assert_eq!(worker.on_time(draining), Step::Wait, "looks are being taken back");
    assert_eq!(given(&worker.take((1, true), pulled(1, 11, false), draining)).2, 0);
    let mut worker = waiting();
    (0..3).for_each(|number| assert_eq!(worker.take((number, true), busy(), at(1)), Step::Wait));
    assert_eq!(given(&worker.on_time(draining)).2, 0, "nothing is under way");
}

#[test]
fn a_refusal_is_the_answer_and_nothing_is_remembered_of_a_half_begun_group() {
    let mut worker = worker(0, 100, None);
    worker.begin();
    worker.take((0, false), pulled(0, 10, false), at(0));
    let refusal = Refusal::topic_not_found("t");
    assert_eq!(worker.take((1, false), Reply::Refused(refusal.clone()), at(0)), Step::Refuse(refusal));
    assert!(worker.into_begun().is_none());
}

#[test]
fn a_group_begins_where_it_was_busy_when_another_place_is_free() {
    let mut worker = worker(0, 0, None);
    worker.begin();
    assert_eq!(worker.take((1, false), busy(), at(0)), Step::Wait);
    assert_eq!(worker.take((2, false), busy(), at(0)), Step::Wait);
    assert_eq!(asked(worker.take((0, false), pulled(0, 10, false), at(0))), [(2, 0, 0)]);
    assert_eq!(asked(worker.take((2, false), pulled(2, 12, false), at(0))), [(1, 0, 0)]);
    assert_eq!(asked(worker.take((1, false), pulled(1, 11, false), at(0))), [(0, 5, 0)]);
    assert_eq!(given(&worker.take((0, false), pulled(0, 10, true), at(0))), (0, 10, 1));
    assert!(worker.into_begun().is_some());
}

#[test]
fn a_group_that_can_begin_nowhere_tries_again_while_there_is_time() {
    let mut worker = worker(0, 400, None);
    worker.begin();
    (0..3).for_each(|number| assert_eq!(worker.take((number, false), busy(), at(0)), Step::Wait));
    let due_ms = round_of(&worker, 0);
    assert_eq!(worker.on_time(at(due_ms - 1)), Step::Wait);
    assert_eq!(asked(worker.on_time(at(due_ms))).len(), 1);
    assert_eq!(worker.take((2, false), busy(), at(380)), Step::Wait);
    assert_eq!(worker.due_ms(), Some(400));
    assert!(matches!(worker.on_time(at(400)), Step::Refuse(_)));
    let mut worker = self::worker(0, 0, None);
    worker.begin();
    assert_eq!(worker.take((0, false), busy(), at(0)), Step::Wait);
    assert_eq!(worker.take((1, false), busy(), at(0)), Step::Wait);
    assert!(matches!(worker.take((2, false), busy(), at(0)), Step::Refuse(_)), "no time");
}

#[test]
fn a_busy_broker_is_no_answer_unless_nobody_could_be_asked() {
    for heard in [None, Some(1)] {
        let mut worker = worker(0, 0, None);
        begin(&mut worker);
        let mut step = Step::Wait;
        for number in 0..3 {
            let epoch = 10 + u64::from(number);
            let reply = if heard == Some(number) { pulled(number, epoch, false) } else { busy() };
            step = worker.take((number, false), reply, at(0));
        }
        match heard {
            None => assert!(matches!(step, Step::Refuse(_)), "{step:?}"),
            Some(_) => assert_eq!(given(&step).2, 0),
        }
    }
}

#[test]
fn partitions_that_were_busy_are_asked_in_the_next_round() {
    let mut worker = waiting();
    assert_eq!(worker.take((1, true), busy(), at(0)), Step::Wait);
    let due_ms = round_of(&worker, 0);
    assert_eq!(worker.take((0, true), busy(), at(100)), Step::Wait);
    assert_eq!(worker.due_ms(), Some(due_ms));
    assert_eq!(asked(worker.on_time(at(due_ms))), [(0, 5, 0)]);
    assert_eq!(asked(worker.take((0, false), pulled(0, 10, false), at(400))), [(0, 0, 600), (1, 5, 0)]);
    assert_eq!(worker.due_ms(), None);
    // The question is refused as well.
    assert_eq!(worker.take((1, false), busy(), at(400)), Step::Wait);
    let due_ms = round_of(&worker, 400);
    assert_eq!(asked(worker.on_time(at(due_ms))), [(1, 5, 0)]);
    assert_eq!(given(&worker.take((1, false), pulled(1, 11, true), at(due_ms))), (1, 11, 1));
    // At the end of the time there are no messages.
    let mut worker = waiting();
    (0..3).for_each(|number| assert_eq!(worker.take((number, true), busy(), at(900)), Step::Wait));
    assert_eq!(worker.due_ms(), Some(1000));
    assert_eq!(given(&worker.on_time(at(1000))).2, 0);
}

/// A number that looks like chance, from the last one.
fn next_number(last: &mut u64) -> u64 {
    *last = last.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *last >> 33
}

#[test]
fn no_partition_is_forgotten_and_one_question_is_on_its_way_at_most() {
    for seed in 0..300 {
        let (mut chance, mut now_ms, mut worker) = (seed, 0, worker(0, 20_000, None));
        let mut open: Vec<(u32, bool, u32)> = Vec::new();
        let mut step = worker.begin();
        let mut epochs = [10, 11, 12];
        while !matches!(step, Step::Give { .. } | Step::Refuse(_)) {
            if let Step::Ask(asks) = step {
                for Ask { partition, looks, action } in asks {
                    let GroupAction::Pull { count, .. } = action else { panic!("{action:?}") };
                    assert!(!open.iter().any(|ask| (ask.0, ask.1) == (partition, looks)), "twice at once");
                    open.push((partition, looks, count));
                }
            }
            assert!(open.iter().filter(|ask| ask.2 > 0).count() <= 1, "{open:?}");
            assert!(!open.is_empty() || worker.due_ms().is_some(), "nothing would wake it: {worker:?}");
            let known =
                worker.looks | worker.woken | worker.left_out | if worker.is_asking { 1 << worker.at } else { 0 };
            // At the end of the time only answers are waited for.
            if worker.phase == super::Phase::Wait && now_ms < 20_000 {
                assert_eq!(known, 7, "{worker:?}");
                assert!(worker.left_out == 0 || worker.due_ms().is_some(), "{worker:?}");
            }
            now_ms += next_number(&mut chance) % 50;
            if open.is_empty() || (worker.due_ms() <= Some(now_ms) && worker.due_ms().is_some()) {
                now_ms = now_ms.max(worker.due_ms().unwrap_or(now_ms));
                step = worker.on_time(at(now_ms));
                continue;
            }
            let place = usize::try_from(next_number(&mut chance)).unwrap() % open.len();
            let (number, looks, _) = open.swap_remove(place);
            let epoch = &mut epochs[number as usize];
            *epoch += 10 * u64::from(next_number(&mut chance).is_multiple_of(40));
            let reply = if next_number(&mut chance).is_multiple_of(4) { busy() } else { pulled(number, *epoch, false) };
            step = worker.take((number, looks), reply, at(now_ms));
        }
        assert!(now_ms >= 20_000, "it ended before its time: {step:?}");
    }
}
