//! Promise: a group with `ordered=true` gives each partition to one member at a time, in order: whoever joins, leaves or dies
//! meanwhile, nobody gets a message while another holds an earlier one, and what comes again comes before what is behind it.

use crate::broker::Broker;
use crate::chance::{Chance, scaled};
use crate::deadline::wait_until;
use crate::partitioned::{id_of, key_of_each, place_of};
use crate::websocket::{Heard, LAST, Received, TEXT, WebSocket, frame_bytes};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const PARTITIONS: u32 = 4;
const MEMBERS: usize = 3;

/// What one partition has given so far.
#[derive(Debug, Default)]
struct Given {
    /// The next offset that nobody has got.
    next: u64,
    /// Offsets that were got and not acknowledged, each with the member that has it.
    held: BTreeMap<u64, u64>,
    acknowledged: BTreeSet<u64>,
    /// Members that got something.
    had_by: BTreeSet<u64>,
}

/// What all members together have seen.
#[derive(Debug, Default)]
struct Tally(BTreeMap<u64, Given>);

impl Tally {
    /// A member got a message. What a dead one held may come to another.
    fn got(&mut self, member: u64, (partition, offset): (u64, u64)) {
        let given = self.0.entry(partition).or_default();
        let holder = given.held.values().find(|holder| **holder != member);
        assert!(
            holder.is_none(),
            "{member} got {offset} of partition {partition} while {holder:?} has {:?}",
            given.held
        );
        assert!(offset <= given.next, "{offset} of partition {partition} came before {}", given.next);
        let before = given.held.last_key_value().map(|(offset, _)| *offset);
        assert!(before.is_none_or(|before| before < offset), "{offset} came behind {before:?}");
        given.next = given.next.max(offset + 1);
        assert!(!given.acknowledged.contains(&offset), "{offset} was acknowledged");
        given.held.insert(offset, member);
        given.had_by.insert(member);
    }

    fn acknowledge(&mut self, (partition, offset): (u64, u64)) {
        let given = self.0.entry(partition).or_default();
        given.held.remove(&offset);
        given.acknowledged.insert(offset);
    }

    /// A member is about to die: what it has is nobody's.
    fn forget(&mut self, member: u64) {
        self.0.values_mut().for_each(|given| given.held.retain(|_, holder| *holder != member));
    }

    fn acknowledged(&self) -> u64 {
        self.0.values().map(|given| given.acknowledged.len() as u64).sum()
    }
}

fn member(broker: &Broker, in_flight_max: usize) -> WebSocket {
    let query = format!("?group=g&ordered=true&from_offset=0&max_in_flight={in_flight_max}");
    broker.websocket("t", &query, &[])
}

/// Takes part for a while: reads, acknowledges most, and dies with the rest in hand.
fn live_and_die(broker: &Broker, name: u64, tally: &Mutex<Tally>, chance: &mut Chance) {
    let mut socket = member(broker, 1 + chance.below(60));
    let mut held: Vec<Received> = Vec::new();
    for _ in 0..chance.below(400) {
        match socket.step(Duration::from_millis(10)) {
            Heard::Message(message) => {
                tally.lock().unwrap().got(name, place_of(&message.value));
                held.push(message);
            }
            Heard::Quiet => {}
            other => panic!("{other:?}"),
        }
        // In any order: a message that is acknowledged early holds nothing up.
        while !held.is_empty() && chance.below(4) > 0 {
            let message = held.swap_remove(chance.below(held.len()));
            tally.lock().unwrap().acknowledge(place_of(&message.value));
            socket.say(json!({ "ack": id_of(&message.value) }));
        }
    }
    // Those that are told to the broker are told before it goes.
    socket.say(json!({ "ack": [], "ref": "last" }));
    loop {
        match socket.step(crate::deadline::LIMIT) {
            Heard::Other(_) => break,
            Heard::Message(message) => tally.lock().unwrap().got(name, place_of(&message.value)),
            other => panic!("{other:?}"),
        }
    }
    tally.lock().unwrap().forget(name);
}

#[test]
fn each_partition_is_one_members_at_a_time_and_in_order() {
    let mut chance = Chance::for_test();
    let broker = Broker::start();
    broker.create_roomy("t", PARTITIONS);
    let total = scaled(4000) as u64;
    let tally = Mutex::new(Tally::default());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (broker, tally, is_over) = (&broker, &tally, &is_over);
        for number in 0..MEMBERS as u64 {
            let mut chance = chance.fork();
            scope.spawn(move || {
                for life in 0.. {
                    if is_over.load(Ordering::SeqCst) {
                        break;
                    }
                    live_and_die(broker, life * MEMBERS as u64 + number, tally, &mut chance);
                }
            });
        }
        let mut publisher = chance.fork();
        scope.spawn(move || broker.publish_by_keys("t", "some", total, &mut publisher));
        // A member that panics has poisoned the tally: the test ends with what it said.
        wait_until("all are acknowledged", || tally.lock().map_or(true, |tally| tally.acknowledged() == total));
        is_over.store(true, Ordering::SeqCst);
    });
    let tally = tally.into_inner().unwrap();
    assert_eq!(tally.0.len(), PARTITIONS as usize);
    assert!(tally.0.values().all(|given| given.had_by.len() > 1), "members took turns: {tally:?}");
}

/// The places and attempts of the next messages of one partition.
#[track_caller]
fn of_partition(socket: &mut WebSocket, count: usize) -> Vec<(u64, u64)> {
    let messages = (0..count).map(|_| socket.message());
    messages.map(|message| (message.offset, message.attempt)).collect()
}

#[test]
fn after_a_nack_the_later_ones_come_again_behind_it() {
    let broker = Broker::start();
    broker.create_roomy("t", 3);
    let keys = key_of_each(3);
    let mut socket = member(&broker, 30);
    let mut ids = Vec::new();
    for offset in 0..5 {
        broker.publish_keyed("t", &keys[1], b"x");
        let message = socket.message();
        assert_eq!(place_of(&message.value), (1, offset));
        ids.push(id_of(&message.value).to_owned());
    }
    socket.say(json!({ "nack": ids[1] }));
    // Nobody failed at the later ones: they come as if for the first time.
    assert_eq!(of_partition(&mut socket, 4), [(1, 2), (2, 1), (3, 1), (4, 1)]);
    socket.expect_nothing_before_pong();
    // Later, too, and what is new comes behind all of them. The answer shows that the partition has heard it.
    let nack = |socket: &mut WebSocket, id: &str, delay_ms: u64| {
        // In one piece, so that the answer comes before what was delayed, however busy the machine is.
        let words = [json!({ "nack": id, "delay_ms": delay_ms }), json!({ "ack": ids[0], "ref": "heard" })];
        let bytes = words.iter().flat_map(|word| frame_bytes(LAST | TEXT, word.to_string().as_bytes()));
        socket.connection.send(&bytes.collect::<Vec<u8>>());
        assert_eq!(socket.other()["ref"], "heard");
    };
    nack(&mut socket, &ids[2], 200);
    broker.publish_keyed("t", &keys[1], b"y");
    assert_eq!(of_partition(&mut socket, 1), [(2, 2)]);
    assert_eq!(of_partition(&mut socket, 3), [(3, 1), (4, 1), (5, 1)]);
    // Another partition waits for none of that.
    nack(&mut socket, &ids[1], 60_000);
    broker.publish_keyed("t", &keys[1], b"z");
    broker.publish_keyed("t", &keys[2], b"z");
    assert_eq!(place_of(&socket.message().value), (2, 0));
    socket.expect_nothing_before_pong();
}

#[test]
fn partitions_are_spread_over_the_members() {
    let broker = Broker::start();
    broker.create_roomy("t", PARTITIONS);
    let keys = key_of_each(PARTITIONS);
    let mut members = [member(&broker, 100), member(&broker, 100)];
    for _ in 0..5 {
        keys.iter().for_each(|key| broker.publish_keyed("t", key, b"x"));
    }
    let came = members.each_mut().map(|member| {
        let mut came: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for _ in 0..10 {
            let (partition, offset) = place_of(&member.message().value);
            came.entry(partition).or_default().push(offset);
        }
        member.expect_nothing_before_pong();
        came
    });
    assert!(came.iter().all(|came| came.len() == 2), "two partitions each: {came:?}");
    assert!(came.iter().flat_map(|came| came.values()).all(|offsets| *offsets == [0, 1, 2, 3, 4]), "{came:?}");
    // One goes: the other has all, from where the first stood, when that is freed.
    let [gone, mut stays] = members;
    drop(gone);
    let mut again: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for _ in 0..10 {
        let (partition, offset) = place_of(&stays.message().value);
        again.entry(partition).or_default().push(offset);
    }
    assert_eq!(again, came[0]);
}

#[test]
fn a_new_member_waits_for_what_the_old_one_holds() {
    let broker = Broker::start();
    broker.create_topic_with(json!({ "ack_wait_ms": 600_000 }), "t");
    let mut old = member(&broker, 2);
    broker.publish_numbers("t", 0..6);
    assert_eq!(of_partition(&mut old, 2), [(0, 1), (1, 1)]);
    // With one partition one member has all, in order; as many others as may come until another leads.
    let mut others = Vec::new();
    let mut leader = None;
    for _ in 0..4 {
        others.push(member(&broker, 2));
        old.acknowledge(&[]);
        others.iter_mut().for_each(WebSocket::expect_nothing_before_pong);
    }
    // It goes on alone, or hands over when it holds nothing more.
    old.say(json!({ "ack": 0 }));
    old.say(json!({ "ack": 1, "ref": "last" }));
    let mut came = Vec::new();
    wait_until("the next ones come", || {
        if let Heard::Message(message) = old.step(Duration::from_millis(5)) {
            came.push(message.offset);
            leader = None;
        }
        for (number, other) in others.iter_mut().enumerate() {
            if let Heard::Message(message) = other.step(Duration::from_millis(5)) {
                assert!(leader.is_none_or(|leader| leader == number), "one at a time");
                came.push(message.offset);
                leader = Some(number);
            }
        }
        came.len() == 2
    });
    assert_eq!(came, [2, 3]);
}
