//! Promise: the members of a group, over WebSocket and SSE, on whatever cores, share its messages: each goes to one member at
//! a time, all of them in the end, whoever dies meanwhile, and the committed offset never passes what somebody holds.

use crate::broker::Broker;
use crate::chance::{Chance, scaled};
use crate::deadline::wait_until;
use crate::events::{Step, message_of};
use crate::websocket::{Heard, WebSocket};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const MESSAGES: u64 = 800;

#[test]
fn each_message_goes_to_one_member_when_nobody_dies() {
    let broker = Broker::start();
    broker.create_topic("t");
    let mut sockets: Vec<_> = (0..6).map(|_| broker.websocket("t", "?group=g", &[])).collect();
    let mut streams: Vec<_> = (0..3).map(|_| broker.subscribe("t", "?group=g", &[])).collect();
    let seen = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for socket in &mut sockets {
            let (seen, broker) = (&seen, &broker);
            scope.spawn(move || {
                while broker.group("t", "g")["committed_offset"] != MESSAGES {
                    let Heard::Message(message) = socket.step(Duration::from_millis(50)) else { continue };
                    assert_eq!(
                        (message.attempt, message.value.get("attempt")),
                        (1, None),
                        "a first attempt does not say so"
                    );
                    seen.lock().unwrap().push(message.offset);
                    socket.say(json!({ "ack": message.offset }));
                }
            });
        }
        for stream in &mut streams {
            let (seen, broker) = (&seen, &broker);
            scope.spawn(move || {
                loop {
                    match stream.step(Duration::from_millis(50)) {
                        Step::Event(event) => seen.lock().unwrap().push(message_of(&event).offset),
                        Step::Quiet if broker.group("t", "g")["committed_offset"] == MESSAGES => return,
                        Step::Quiet => {}
                        Step::Ended(end) => panic!("{end:?}"),
                    }
                }
            });
        }
        broker.publish_numbers("t", 0..MESSAGES);
    });
    let mut seen = seen.into_inner().unwrap();
    seen.sort_unstable();
    assert_eq!(seen, (0..MESSAGES).collect::<Vec<_>>());
}

#[test]
fn members_take_turns() {
    let broker = Broker::start();
    broker.create_topic("t");
    let mut members: Vec<_> = (0..4).map(|_| broker.websocket("t", "?group=g", &[])).collect();
    broker.publish_numbers("t", 0..40);
    let mut all = BTreeSet::new();
    for member in &mut members {
        all.extend(member.offsets(10));
        member.expect_nothing_before_pong();
    }
    assert_eq!(all, (0..40).collect());
}

#[test]
fn what_a_dead_member_held_goes_to_the_other_and_was_never_passed() {
    let broker = Broker::start();
    broker.create_topic("t");
    let mut dying = broker.websocket("t", "?group=g", &[]);
    let mut living = broker.websocket("t", "?group=g", &[]);
    broker.publish_numbers("t", 0..20);
    let held = dying.offsets(10);
    let later = living.offsets(10);
    living.acknowledge(&later);
    let stats = broker.group("t", "g");
    assert_eq!(stats["committed_offset"], held[0].min(later[0] + 1), "{stats}");
    assert!(stats["pending"] == 10 && stats["members"] == 2, "{stats}");
    // One more is acknowledged by the one who dies; the rest it holds.
    dying.acknowledge(&held[9..]);
    drop(dying);
    let again: Vec<_> = (0..9).map(|_| living.message()).collect();
    assert_eq!(again.iter().map(|message| message.offset).collect::<Vec<_>>(), held[..9]);
    assert!(again.iter().all(|message| message.attempt == 2), "{again:?}");
    assert_eq!(broker.group("t", "g")["committed_offset"], held[0].min(later[0] + 1));
    for message in again.iter().rev() {
        assert!(broker.group("t", "g")["committed_offset"].as_u64().unwrap() <= message.offset);
        living.acknowledge(&[message.offset]);
    }
    let stats = broker.group("t", "g");
    assert!(stats["committed_offset"] == 20 && stats["lag"] == 0 && stats["pending"] == 0, "{stats}");
    living.expect_nothing_before_pong();
}

#[test]
fn an_acknowledgement_of_the_old_holder_still_counts() {
    let broker = Broker::start();
    broker.create_topic_with(json!({ "ack_wait_ms": 300 }), "t");
    let mut slow = broker.websocket("t", "?group=g", &[]);
    broker.publish("t", b"x");
    assert_eq!(slow.message().attempt, 1);
    // From now on it takes nothing more: the message goes to another once its time is over.
    slow.say(json!({ "credit": 0 }));
    let mut quick = broker.websocket("t", "?group=g", &[]);
    assert!(quick.message().attempt >= 2, "the silent one holds it no longer");
    slow.say(json!({ "ack": 0 }));
    broker.wait_for_group("t", "g", "committed_offset", 1);
}

/// What a crowd of members has seen and acknowledged.
#[derive(Default)]
struct Tally {
    /// How often each offset came.
    came: BTreeMap<u64, u64>,
    /// What members said to have dealt with, before they said so to the broker.
    acknowledged: BTreeSet<u64>,
}

/// Lives for a while as a member over WebSocket: reads, acknowledges most, and dies with the rest in hand.
fn live_and_die(broker: &Broker, tally: &Mutex<Tally>, chance: &mut Chance) {
    let in_flight_max = 1 + chance.below(50);
    let mut socket = broker.websocket("t", &format!("?group=g&max_in_flight={in_flight_max}&from_offset=0"), &[]);
    let mut held = Vec::new();
    for _ in 0..chance.below(120) {
        match socket.step(Duration::from_millis(20)) {
            Heard::Message(message) => {
                let mut tally = tally.lock().unwrap();
                let times = tally.came.entry(message.offset).or_default();
                *times += 1;
                assert!(message.attempt >= *times, "attempt {} is the {times}. that came", message.attempt);
                held.push(message.offset);
            }
            Heard::Quiet => {}
            other => panic!("{other:?}"),
        }
        assert!(held.len() <= in_flight_max, "more than {in_flight_max} in flight");
        if !held.is_empty() && chance.below(3) > 0 {
            let offset = held.swap_remove(chance.below(held.len()));
            tally.lock().unwrap().acknowledged.insert(offset);
            socket.say(json!({ "ack": offset }));
        } else if !held.is_empty() && chance.below(8) == 0 {
            let offset = held.swap_remove(chance.below(held.len()));
            socket.say(json!({ "nack": offset, "delay_ms": chance.below(30) }));
        }
    }
}

#[test]
fn members_that_come_and_go_lose_nothing() {
    let mut chance = Chance::for_test();
    let broker = Broker::start();
    broker.create_topic_with(json!({ "retention": { "max_messages": 1_000_000 } }), "t");
    let total = scaled(1500) as u64;
    let tally = Mutex::new(Tally::default());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (broker, tally, is_over) = (&broker, &tally, &is_over);
        for _ in 0..6 {
            let mut chance = chance.fork();
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    live_and_die(broker, tally, &mut chance);
                }
            });
        }
        scope.spawn(move || {
            // The committed offset never passes what nobody has acknowledged, and never goes back.
            let mut last = 0;
            while !is_over.load(Ordering::SeqCst) {
                let committed = broker.get("/topics/t/groups/g");
                if committed.status == 404 {
                    continue;
                }
                let committed = committed.data()["committed_offset"].as_u64().unwrap();
                assert!(committed >= last, "{committed} after {last}");
                last = committed;
                let tally = tally.lock().unwrap();
                let passed = (0..committed).find(|offset| !tally.acknowledged.contains(offset));
                assert!(passed.is_none(), "{passed:?} was passed: {committed} is committed");
            }
        });
        broker.publish_numbers("t", 0..total);
        let all_are_done = || broker.group("t", "g")["committed_offset"] == total;
        wait_until("all are acknowledged", all_are_done);
        is_over.store(true, Ordering::SeqCst);
    });
    let tally = tally.into_inner().unwrap();
    assert_eq!(tally.acknowledged, (0..total).collect());
}

#[test]
fn an_sse_member_that_takes_nothing_leaves_the_rest_to_others() {
    let broker = Broker::start();
    broker.create_topic("t");
    // What a member has been given and its connection has not sent is bounded, so that one that sleeps holds little.
    let asleep = broker.subscribe("t", "?group=g&max_in_flight=65536", &[]);
    let mut awake = broker.websocket("t", "?group=g&max_in_flight=65536", &[]);
    let payload = vec![b'x'; 100_000];
    let mut connection = broker.connect();
    for number in 0..400 {
        connection.send_request("POST", "/topics/t/publish", &[], &payload);
        connection.response_to("POST").expect(202);
        if number % 10 == 0 {
            acknowledge_next(&mut awake);
        }
    }
    // 40 MB would not fit between the broker and the one that sleeps: the other gets the rest, and all of it once that one is gone.
    wait_until("all are given out", || {
        acknowledge_next(&mut awake);
        broker.group("t", "g")["next_offset"] == 400
    });
    drop(asleep);
    wait_until("all are acknowledged", || {
        acknowledge_next(&mut awake);
        broker.group("t", "g")["committed_offset"] == 400
    });
}

fn acknowledge_next(socket: &mut WebSocket) {
    while let Heard::Message(message) = socket.step(Duration::from_millis(5)) {
        socket.say(json!({ "ack": message.offset }));
    }
}
