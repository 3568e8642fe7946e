//! Several cores without a kernel: random publishing, reading, cutting, deleting; each reader sees all, once, in order.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests fail by panicking")]

mod reading;
mod working;
mod world;

use std::sync::Arc;

use ringmain_engine::{Origin, Reply};
use ringmain_model::{CoreId, Refusal, ShardId};

use crate::core::Poisoned;
use crate::lane::{Bed, LaneFull, LaneItem, LaneLimits, Patience, connect};
use crate::report::NameRange;
use crate::seat::Gate;

fn beds(cores: u16) -> Arc<[Bed]> {
    (0..cores).map(|_| Bed::default()).collect()
}

fn ask(origin: Origin) -> LaneItem {
    LaneItem::AskReport { origin, names: NameRange { after: None, until: None } }
}

#[test]
fn looks_that_do_not_pay_become_few_until_they_pay_again() {
    let mut patience = Patience::default();
    let long = patience.looks();
    let vain: u32 = (0..6400)
        .map(|_| {
            patience.learn(false);
            patience.looks()
        })
        .sum();
    assert!(vain / 6400 < long / 20, "{vain} looks of 6400 times in vain");
    patience.learn(true);
    assert_eq!(patience.looks(), long);
}

#[test]
fn a_full_lane_refuses_at_once_and_a_reply_makes_room() {
    let limits = LaneLimits { requests: 2, ..LaneLimits::of(0) };
    let mut lanes = connect(2, limits, &beds(2));
    let origin = Origin { core: CoreId(0), asker: 0, request: 0 };
    for _ in 0..2 {
        assert!(lanes[0].request(CoreId(1), ask(origin)).is_ok());
    }
    assert!(!lanes[0].has_room(CoreId(1)));
    assert_eq!(lanes[0].request(CoreId(1), ask(origin)), Err(LaneFull));
    lanes[0].flush();
    let (from, bundle) = lanes[1].receive().unwrap();
    assert_eq!((from, bundle.len()), (CoreId(0), 2), "one bundle holds a turn's requests");
    lanes[1].say(CoreId(0), LaneItem::Reply { to: origin, reply: Reply::Refused(Refusal::busy("x")) });
    lanes[1].flush();
    assert!(lanes[0].receive().is_some() && lanes[0].has_room(CoreId(1)));
}

#[test]
fn a_ring_that_is_full_keeps_what_is_said_until_there_is_room() {
    let limits = LaneLimits { bundles: 1, ..LaneLimits::of(100) };
    let mut lanes = connect(2, limits, &beds(2));
    let origin = Origin { core: CoreId(0), asker: 0, request: 0 };
    for request in 0..5 {
        let left = lanes[0].request(CoreId(1), ask(Origin { request, ..origin }));
        assert!(left.is_ok());
        assert_eq!(lanes[0].flush(), request > 0);
    }
    assert_eq!(lanes[1].receive().unwrap().1.len(), 1);
    assert!(!lanes[0].flush());
    assert_eq!(lanes[1].receive().unwrap().1.len(), 4, "in order, nothing lost");
}

#[test]
fn shards_that_write_no_more_are_told_by_number() {
    let poisoned = Poisoned::none_of(5);
    assert_eq!(poisoned.shards().count(), 0);
    let other_core = poisoned.clone();
    for shard in [3, 1, 3, 9] {
        poisoned.tell(ShardId(shard));
    }
    assert_eq!(other_core.shards().collect::<Vec<_>>(), [ShardId(1), ShardId(3)]);
}

#[test]
fn no_core_goes_on_before_all_have_their_rings() {
    for gives_up in [false, true] {
        let gate = Arc::new(Gate::new(3));
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let gate = Arc::clone(&gate);
                std::thread::spawn(move || gate.pass())
            })
            .collect();
        if gives_up {
            gate.give_up();
        } else {
            assert!(gate.pass());
        }
        for core in waiting {
            assert_eq!(core.join().unwrap(), !gives_up);
        }
    }
}
