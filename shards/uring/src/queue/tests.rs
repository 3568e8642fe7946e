//! What finds no room in the submission queue goes in with a later turn, in order.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::time::Duration;

use io_uring::{opcode, types};

use super::{Queue, Queued};
use crate::tag::{Kind, Tag};

#[test]
fn the_backlog_goes_in_with_the_next_turns() {
    let mut queue = Queue::new(2, 64).unwrap();
    for generation in 0..20 {
        let tag = Tag { kind: Kind::CancelAll, slot: 0, generation };
        queue.backlog.push_back(Queued::One(opcode::Nop::new().build().user_data(tag.to_bits())));
    }
    let mut next = 0;
    while next < 20 {
        queue.enter(Some(Duration::from_secs(10))).unwrap();
        while let Some(completion) = queue.next() {
            assert_eq!(completion.tag.generation, next);
            next += 1;
        }
    }
    assert!(queue.backlog.is_empty());
}

#[test]
fn a_wait_of_any_length_is_understood() {
    let mut queue = Queue::new(2, 64).unwrap();
    for wait in [Some(Duration::MAX), None, Some(Duration::ZERO), Some(Duration::from_nanos(1))] {
        let tag = Tag::of_ring(Kind::CancelAll);
        // SAFETY: an operation that does nothing points at nothing.
        unsafe { queue.push(opcode::Nop::new().build().user_data(tag.to_bits())) };
        queue.enter(wait).unwrap();
        assert!(queue.next().is_some());
        assert!(queue.next().is_none());
    }
}

#[test]
fn linked_operations_are_never_parted() {
    for before in 0..20 {
        let mut queue = Queue::new(4, 64).unwrap();
        let tag = |kind, generation| Tag { kind, slot: 0, generation };
        for generation in 0..before {
            let nothing = opcode::Nop::new().build().user_data(tag(Kind::CancelAll, generation).to_bits());
            // SAFETY: an operation that does nothing points at nothing.
            unsafe { queue.push(nothing) };
        }
        // A descriptor that nobody has, so that the first fails. The second would succeed by itself.
        let first = opcode::Fsync::new(types::Fd(-1)).build().user_data(tag(Kind::File, before).to_bits());
        let second = opcode::Nop::new().build().user_data(tag(Kind::FileSync, before).to_bits());
        // SAFETY: neither points at anything.
        unsafe { queue.push_linked(first, second) };
        let (mut first, mut second) = (None, None);
        while first.is_none() || second.is_none() {
            queue.enter(Some(Duration::from_secs(10))).unwrap();
            while let Some(completion) = queue.next() {
                match completion.tag.kind {
                    Kind::File => first = Some(completion.result),
                    Kind::FileSync => second = Some(completion.result),
                    _ => {}
                }
            }
        }
        assert_eq!((first, second), (Some(-libc::EBADF), Some(-libc::ECANCELED)), "after {before} others");
        assert_eq!((queue.cuts(), queue.in_flight()), (0, 0));
    }
}

#[test]
fn completions_of_files_are_told_first_and_the_others_in_order() {
    let mut queue = Queue::new(64, 128).unwrap();
    for round in 0..3 {
        for generation in 0..30 {
            let kind = if generation % 3 == 2 { Kind::File } else { Kind::Wake };
            let tag = Tag { kind, slot: 0, generation };
            // SAFETY: an operation that does nothing points at nothing.
            unsafe { queue.push(opcode::Nop::new().build().user_data(tag.to_bits())) };
        }
        queue.enter(Some(Duration::from_secs(10))).unwrap();
        let told: Vec<_> = std::iter::from_fn(|| queue.next()).map(|completion| completion.tag.generation).collect();
        let files = (0..30).filter(|generation| generation % 3 == 2);
        let expected: Vec<_> = files.chain((0..30).filter(|generation| generation % 3 != 2)).collect();
        assert_eq!(told, expected, "round {round}");
        assert!(queue.is_drained());
    }
}
