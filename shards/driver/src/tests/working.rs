//! Members and workers that go take nothing with them, and what they said is not lost in a full lane; on the test thread.

use proptest::prelude::*;
use ringmain_engine::{GroupAction, GroupStart};
use ringmain_model::limit::MEMBER_WORDS_MAX;
use ringmain_model::{GroupName, Offset, ShardId};

use super::world::{World, topic};
use crate::connection::ConnectionKey;
use crate::front::Action;
use crate::membership::MemberWord;
use crate::request::{Join, Protocol, Request};

const CORES: u16 = 3;

fn group() -> GroupName {
    GroupName::new("g").unwrap()
}

fn pull(world: &mut World, core: usize, key: ConnectionKey, wait_ms: u64) {
    let action = GroupAction::Pull { start: GroupStart::Offset(Offset(0)), count: 10, wait_ms };
    world.ask(core, key, Request::Group { topic: topic(0), partition: 0, group: group(), action });
}

fn with_topic(requests: usize) -> (World, ConnectionKey, usize) {
    let mut world = World::new(CORES, requests);
    let control = world.open(0);
    world.create(0, control, topic(0), 1000);
    world.rest(&[]);
    let owner = ShardId::initial(topic(0).as_str(), CORES).core(CORES).index();
    (world, control, owner)
}

#[test]
fn a_worker_that_went_while_it_waited_gets_nothing() {
    let (mut world, control, owner) = with_topic(8);
    let other = (owner + 1) % usize::from(CORES);
    let gone = world.open(other);
    pull(&mut world, other, gone, 60_000);
    world.rest(&[]);
    world.close(other, gone);
    world.rest(&[]);
    world.publish(0, control, topic(0));
    world.rest(&[]);
    let next = world.open(other);
    pull(&mut world, other, next, 0);
    world.rest(&[]);
    assert_eq!(world.seen(other, next).pulled, [(0, 1)], "the first attempt goes to who is there");
}

#[test]
fn what_finds_its_worker_gone_goes_out_again_at_once() {
    let (mut world, control, owner) = with_topic(8);
    let other = (owner + 1) % usize::from(CORES);
    world.publish(0, control, topic(0));
    world.rest(&[]);
    let gone = world.open(other);
    pull(&mut world, other, gone, 60_000);
    // The answer is on its way when the connection ends.
    world.turn(other);
    world.turn(owner);
    world.close(other, gone);
    world.rest(&[]);
    let next = world.open(other);
    pull(&mut world, other, next, 0);
    world.rest(&[]);
    assert_eq!(world.seen(other, next).pulled, [(0, 2)]);
}

#[test]
fn a_member_whose_words_cannot_be_told_is_not_read_from_until_they_are_or_nobody_hears_them() {
    for is_deleted in [false, true] {
        let (mut world, _, owner) = with_topic(2);
        let other = (owner + 1) % usize::from(CORES);
        let member = join(&mut world, other, 1);
        world.rest(&[]);
        let waits = |world: &mut World| world.cores[other].connections.get_mut(member).unwrap().link.words_wait;
        // As many as the lane takes, which the owner does not come to: what the member says has to wait.
        let publisher = world.open(other);
        (0..2).for_each(|_| world.publish(other, publisher, topic(0)));
        for _ in 0..MEMBER_WORDS_MAX {
            assert!(!waits(&mut world));
            world.act(other, member, Action::Say(0, MemberWord::Ack { epoch: 1, offset: Offset(0) }));
        }
        world.turn(other);
        assert!(waits(&mut world), "it said as much as may wait");
        if is_deleted {
            let incarnation = world.cores[other].placement.find(&topic(0)).unwrap().incarnation;
            world.cores[other].end_memberships(incarnation);
        } else {
            world.rest(&[]);
        }
        assert!(!waits(&mut world), "deleted: {is_deleted}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Turn(usize),
    Publish(usize, usize),
    Join(usize, u32),
    TakeOutput(usize),
    /// Acknowledge the oldest that the member has not.
    Ack(usize),
    Close(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let core = || 0..usize::from(CORES);
    prop_oneof![
        10 => core().prop_map(Step::Turn),
        4 => (core(), 1_usize..4).prop_map(|(core, count)| Step::Publish(core, count)),
        2 => (core(), 1_u32..6).prop_map(|(core, credit)| Step::Join(core, credit)),
        4 => (0_usize..6).prop_map(Step::TakeOutput),
        6 => (0_usize..6).prop_map(Step::Ack),
        1 => (0_usize..6).prop_map(Step::Close),
    ]
}

fn join(world: &mut World, core: usize, in_flight_max: u32) -> ConnectionKey {
    let key = world.open(core);
    let start = Some(Offset(0));
    let protocol = Protocol::WebSocket;
    world.act(
        core,
        key,
        Action::Join(Join {
            topic: topic(0),
            partition: 0,
            group: group(),
            start,
            in_flight_max,
            protocol,
            acks_by_sending: false,
            is_ordered: false,
        }),
    );
    key
}

fn ack_oldest(world: &mut World, core: usize, key: ConnectionKey, acked: &mut Vec<u64>) -> bool {
    let seen = world.seen(core, key);
    if seen.assigned.is_empty() {
        return false;
    }
    let (epoch, offset) = seen.assigned.remove(0);
    acked.push(offset);
    world.act(core, key, Action::Say(0, MemberWord::Ack { epoch, offset: Offset(offset) }));
    true
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn every_message_is_acknowledged_in_the_end_and_none_comes_after_that(
        requests in 1_usize..4,
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let (mut world, _, owner) = with_topic(requests);
        let publishers: Vec<_> = (0..usize::from(CORES)).map(|core| world.open(core)).collect();
        let mut members: Vec<(usize, ConnectionKey)> = Vec::new();
        let mut acked = Vec::new();
        for step in steps {
            match step {
                Step::Turn(core) => world.turn(core),
                Step::Publish(core, count) => (0..count).for_each(|_| world.publish(core, publishers[core], topic(0))),
                Step::Join(core, credit) => members.push((core, join(&mut world, core, credit))),
                Step::TakeOutput(at) => {
                    if let Some((core, key)) = members.get(at) {
                        world.take_output(*core, *key);
                    }
                }
                Step::Ack(at) => {
                    if let Some((core, key)) = members.get(at) {
                        ack_oldest(&mut world, *core, *key, &mut acked);
                    }
                }
                Step::Close(at) => {
                    if at < members.len() {
                        let (core, key) = members.swap_remove(at);
                        world.close(core, key);
                    }
                }
            }
        }
        // Joins and publishes that found a full lane were refused: at rest there is room for one more member.
        world.rest(&members);
        let last = join(&mut world, 0, 100);
        members.push((0, last));
        loop {
            world.rest(&members);
            let mut more = false;
            for (core, key) in &members {
                while ack_oldest(&mut world, *core, *key, &mut acked) {
                    more = true;
                }
            }
            if !more {
                break;
            }
        }
        let stored = world.cores[owner].shards[0].end_of(world.cores[0].placement.find(&topic(0)).unwrap().partition(0).unwrap());
        acked.sort_unstable();
        acked.dedup();
        prop_assert_eq!(acked, (0..stored.unwrap().0).collect::<Vec<_>>());
    }
}
