//! What finds no room in the submission queue goes in with a later turn, in order.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::time::Duration;

use io_uring::opcode;

use super::Queue;
use crate::tag::{Kind, Tag};

#[test]
fn the_backlog_goes_in_with_the_next_turns() {
    let mut queue = Queue::new(2, 64).unwrap();
    for generation in 0..20 {
        let tag = Tag { kind: Kind::CancelAll, slot: 0, generation };
        queue.backlog.push_back(opcode::Nop::new().build().user_data(tag.to_bits()));
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
