//! Promise: the members of a group share all partitions of its topic: each message goes to one of them, and is acknowledged by its
//! id, over WebSocket and SSE.

use crate::broker::{Broker, Setup};
use crate::chance::{Chance, scaled};
use crate::deadline::{LIMIT, wait_until};
use crate::events::{EventStream, Step, message_of};
use crate::partitioned::{id_of, key_of_each, place_of};
use crate::websocket::{EXTENDED, Heard, WebSocket};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const PARTITIONS: u32 = 4;

fn started() -> (Broker, Vec<String>) {
    let broker = Broker::start();
    broker.create_roomy("t", PARTITIONS);
    let keys = key_of_each(PARTITIONS);
    (broker, keys)
}

/// Places of the next messages, sorted.
#[track_caller]
fn places(socket: &mut WebSocket, count: usize) -> Vec<(u64, u64)> {
    let mut places: Vec<_> = (0..count).map(|_| place_of(&socket.message().value)).collect();
    places.sort_unstable();
    places
}

/// Messages until the ids of so many are there, and those ids by place.
#[track_caller]
fn ids(socket: &mut WebSocket, count: usize) -> BTreeMap<(u64, u64), String> {
    let messages = (0..count).map(|_| socket.message().value);
    messages.map(|message| (place_of(&message), id_of(&message).to_owned())).collect()
}

/// Says a word with a reference, and gives the answer; messages before it are passed over.
fn answer_to(socket: &mut WebSocket, mut word: Value) -> Value {
    word["ref"] = json!("asked");
    socket.say(word);
    loop {
        match socket.step(LIMIT) {
            Heard::Other(told) if told["ref"] == "asked" => return told,
            Heard::Message(_) | Heard::Other(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn each_message_goes_to_one_member_when_nobody_dies() {
    let (broker, _) = started();
    let total = 800;
    let mut sockets: Vec<_> = (0..3).map(|_| broker.websocket("t", "?group=g", &[])).collect();
    let mut streams: Vec<_> = (0..2).map(|_| broker.subscribe("t", "?group=g", &[])).collect();
    let seen = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let seen = &seen;
        let is_over = move || seen.lock().unwrap().len() as u64 >= total;
        for socket in &mut sockets {
            scope.spawn(move || {
                while !is_over() {
                    let Heard::Message(message) = socket.step(Duration::from_millis(20)) else { continue };
                    assert_eq!(message.value.get("attempt"), None, "{message:?}");
                    seen.lock().unwrap().push(place_of(&message.value));
                    socket.say(json!({ "ack": id_of(&message.value) }));
                }
            });
        }
        for stream in &mut streams {
            scope.spawn(move || {
                while !is_over() {
                    match stream.step(Duration::from_millis(20)) {
                        Step::Event(event) => seen.lock().unwrap().push(place_of(&message_of(&event).value)),
                        Step::Quiet => {}
                        Step::Ended(end) => panic!("{end:?}"),
                    }
                }
            });
        }
        broker.publish_by_keys("t", "some", total, &mut Chance::for_test());
    });
    // Nothing came twice, and nothing comes again to one who joins now: only what is new.
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len() as u64, total);
    assert_eq!(seen.len() as u64, total);
    sockets.iter_mut().for_each(|socket| drop(answer_to(socket, json!({ "ack": [] }))));
    drop((sockets, streams));
    let mut late = broker.websocket("t", "?group=g", &[]);
    broker.publish_to_each("t", PARTITIONS);
    let (next, end): (BTreeMap<u64, u64>, BTreeMap<u64, u64>) = (
        (0..PARTITIONS).map(|_| place_of(&late.message().value)).collect(),
        seen.iter().fold(BTreeMap::new(), |mut end, (partition, offset)| {
            let at = end.entry(*partition).or_insert(0);
            *at = (*at).max(offset + 1);
            end
        }),
    );
    assert_eq!(next, end, "only what came after the rest");
}

#[test]
fn what_a_killed_member_held_comes_again() {
    let (broker, keys) = started();
    let mut dying = broker.websocket("t", "?group=g", &[]);
    for _ in 0..3 {
        keys.iter().for_each(|key| broker.publish_keyed("t", key, b"x"));
    }
    let held = ids(&mut dying, 12);
    // The first of each partition is dealt with, and one of another word.
    let done: Vec<_> = (0..4).map(|partition| held[&(partition, 0)].clone()).collect();
    assert_eq!(answer_to(&mut dying, json!({ "ack": done }))["acked"], json!(done));
    assert_eq!(answer_to(&mut dying, json!({ "ack": held[&(2, 2)] }))["acked"], held[&(2, 2)]);
    drop(dying);
    let mut living = broker.websocket("t", "?group=g", &[]);
    let again: Vec<_> = (0..7).map(|_| living.message()).collect();
    assert!(again.iter().all(|message| message.attempt == 2), "{again:?}");
    let places: BTreeSet<_> = again.iter().map(|message| place_of(&message.value)).collect();
    assert_eq!(places, BTreeSet::from([(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (3, 1), (3, 2)]));
    living.expect_nothing_before_pong();
}

#[test]
fn messages_are_acknowledged_by_their_ids() {
    let (broker, keys) = started();
    let mut socket = broker.websocket("t", "?group=g", &[]);
    keys.iter().for_each(|key| broker.publish_keyed("t", key, b"x"));
    let held = ids(&mut socket, 4);
    let told = answer_to(&mut socket, json!({ "ack": 0 }));
    let message = told["error"]["message"].as_str().unwrap();
    assert!(message.contains("by its id") && told["error"]["code"] == "invalid_request", "{told}");
    for wrong in [json!("x"), json!(["0-0-0"]), json!(-1), json!({}), json!(format!("{}-1", held[&(0, 0)]))] {
        let told = answer_to(&mut socket, json!({ "ack": wrong }));
        assert_eq!(told["error"]["code"], "invalid_request", "{wrong}");
        let told = answer_to(&mut socket, json!({ "nack": wrong }));
        assert_eq!(told["error"]["code"], "invalid_request", "{wrong}");
    }
    let beyond = held[&(0, 0)].replace("-0-0", "-4-0");
    assert_eq!(answer_to(&mut socket, json!({ "ack": beyond }))["error"]["code"], "invalid_request");
    // Who is not told of mistakes hears nothing of them, and the connection goes on.
    socket.say(json!({ "ack": 0 }));
    socket.expect_nothing_before_pong();
    // One of an earlier life counts for nothing.
    let foreign = format!("00000000000000ff{}", &held[&(1, 0)][16..]);
    assert_eq!(answer_to(&mut socket, json!({ "ack": foreign }))["acked"], json!(foreign));
    // A nack brings it again.
    socket.say(json!({ "nack": held[&(3, 0)] }));
    let again = socket.message();
    assert_eq!((place_of(&again.value), again.attempt), ((3, 0), 2));
    assert_eq!(answer_to(&mut socket, json!({ "ack": held[&(0, 0)] }))["acked"], held[&(0, 0)]);
    let rest: Vec<_> = [(2, 0), (3, 0)].iter().map(|place| held[place].clone()).collect();
    assert_eq!(answer_to(&mut socket, json!({ "ack": rest }))["acked"], json!(rest));
    drop(socket);
    let mut next = broker.websocket("t", "?group=g", &[]);
    let again = next.message();
    assert_eq!((place_of(&again.value), again.attempt), ((1, 0), 2), "the one that nobody acknowledged");
    next.expect_nothing_before_pong();
    // One partition takes ids as well as offsets.
    broker.create_topic("one");
    let mut one = broker.websocket("one", "?group=g", &[]);
    broker.publish_numbers("one", 0..4);
    let ids: Vec<_> = (0..4).map(|_| id_of(&one.message().value).to_owned()).collect();
    assert_eq!(answer_to(&mut one, json!({ "ack": [ids[0], 1] }))["acked"], json!([ids[0], 1]));
    broker.wait_for_group("one", "g", "committed_offset", 2);
    one.say(json!({ "ack": ids[2] }));
    broker.wait_for_group("one", "g", "committed_offset", 3);
    one.say(json!({ "nack": ids[3] }));
    assert_eq!(one.message().attempt, 2);
}

#[test]
fn credit_is_divided_among_the_partitions() {
    let (broker, keys) = started();
    let mut socket = broker.websocket("t", "?group=g&max_in_flight=8", &[]);
    for _ in 0..5 {
        keys.iter().for_each(|key| broker.publish_keyed("t", key, b"x"));
    }
    let held = ids(&mut socket, 8);
    let two_each: Vec<_> = (0..4).flat_map(|partition| [(partition, 0), (partition, 1)]).collect();
    assert_eq!(held.keys().copied().collect::<Vec<_>>(), two_each);
    socket.expect_nothing_before_pong();
    socket.say(json!({ "ack": held[&(1, 0)] }));
    assert_eq!(places(&mut socket, 1), [(1, 2)]);
    socket.say(json!({ "credit": 12 }));
    assert_eq!(places(&mut socket, 4), [(0, 2), (1, 3), (2, 2), (3, 2)]);
    socket.say(json!({ "credit": 0 }));
    socket.say(json!({ "ack": held.values().collect::<Vec<_>>() }));
    assert_eq!(answer_to(&mut socket, json!({ "ack": [] }))["acked"], json!([]));
    socket.expect_nothing_before_pong();
    // Fewer than there are partitions: each may give one all the same.
    let mut other = broker.websocket("t", "?group=other&from_offset=0&max_in_flight=1", &[]);
    assert_eq!(places(&mut other, 4), [(0, 0), (1, 0), (2, 0), (3, 0)]);
    other.expect_nothing_before_pong();
}

#[test]
fn a_group_starts_in_all_partitions_where_its_first_member_says() {
    let (broker, keys) = started();
    for _ in 0..3 {
        keys.iter().for_each(|key| broker.publish_keyed("t", key, b"x"));
    }
    let mut early = broker.websocket("t", "?group=early&from_offset=1", &[]);
    assert_eq!(places(&mut early, 8)[..2], [(0, 1), (0, 2)]);
    let mut late = broker.subscribe("t", "?group=late", &[]);
    keys.iter().for_each(|key| broker.publish_keyed("t", key, b"y"));
    let mut came: Vec<_> = late.messages(4).iter().map(|message| place_of(&message.value)).collect();
    came.sort_unstable();
    assert_eq!(came, [(0, 3), (1, 3), (2, 3), (3, 3)]);
    // What was sent to an SSE member is acknowledged, in each partition.
    drop(late);
    let mut late = broker.subscribe("t", "?group=late", &[]);
    keys.iter().for_each(|key| broker.publish_keyed("t", key, b"z"));
    let mut came: Vec<_> = late.messages(4).iter().map(|message| place_of(&message.value)).collect();
    came.sort_unstable();
    assert_eq!(came, [(0, 4), (1, 4), (2, 4), (3, 4)]);
}

#[test]
fn notices_name_the_partition_and_ends_come_once() {
    let (broker, keys) = started();
    broker.create_topic_with(json!({ "partitions": 2, "retention": { "max_messages": 3 } }), "short");
    let mut own = broker.websocket("t", "?group=g", &[EXTENDED]);
    let mut stream = broker.subscribe("t", "?group=g", &[]);
    keys.iter().for_each(|key| broker.publish_keyed("t", key, b"x"));
    broker.group_post("t", "g", "seek", json!({ "earliest": true }));
    loop {
        match own.step(LIMIT) {
            Heard::Message(_) => {}
            Heard::Other(told) => {
                assert_eq!(told["moved"]["next"], 0, "{told}");
                assert!(told["moved"]["partition"].as_u64().is_some_and(|number| number < 4), "{told}");
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    let moved = loop {
        let event = stream.event();
        if event.name == "moved" {
            break event.json();
        }
    };
    assert!(moved["partition"].as_u64().is_some_and(|number| number < 4), "{moved}");
    // Retention takes what a member holds.
    let key = &key_of_each(2)[1];
    let mut holder = broker.websocket("short", "?group=g&max_in_flight=4", &[EXTENDED]);
    (0..6).for_each(|_| broker.publish_keyed("short", key, b"x"));
    let lost = loop {
        if let Heard::Other(told) = holder.step(LIMIT) {
            break told["lost"].clone();
        }
    };
    assert_eq!(lost["partition"], 1, "{lost}");
    broker.request("DELETE", "/topics/t/groups/g", &[], b"").expect(200);
    assert_eq!(own.close_code(), 4404);
    loop {
        let event = stream.event();
        if event.name == "end" {
            assert_eq!(event.json(), json!({ "reason": "group_deleted" }));
            break;
        }
    }
    assert!(matches!(stream.step(LIMIT), Step::Ended(crate::events::End::Whole)));
    let mut stream = broker.subscribe("short", "?group=other", &[]);
    broker.delete_topic("short");
    assert_eq!(holder.close_code(), 4404);
    assert_eq!(stream.control("end"), json!({ "reason": "topic_deleted" }));
    assert!(matches!(stream.step(LIMIT), Step::Ended(crate::events::End::Whole)));
}

#[test]
fn joins_in_many_partitions_wait_for_room() {
    // So many joins do not fit in the lane to the other core at once.
    let broker = Setup::new().flag("--lane-requests", 4).flag("--cores", 2).variable("RINGMAIN_SHARDS", 2).start();
    broker.create_roomy("t", 40);
    let mut streams: Vec<EventStream> = (0..12).map(|_| broker.subscribe("t", "?group=g", &[])).collect();
    // One that goes while it joins has no part in the group, and holds nothing up.
    for _ in 0..12 {
        broker.connect().send_request("GET", "/topics/t/subscribe/sse?group=g", &[], b"");
    }
    wait_until("those who left are gone", || {
        // While the lane is full this is refused.
        let told = broker.get("/topics/t/groups/g").json();
        told["data"]["members"] == 12
    });
    let keys = key_of_each(40);
    let mut connection = broker.connect();
    for key in keys.iter().cycle().take(400) {
        connection.send_request("POST", "/topics/t/publish", &[("X-Key", key)], b"x");
        connection.response_to("POST").expect(202);
    }
    let mut places = BTreeSet::new();
    wait_until("each message came to somebody", || {
        for stream in &mut streams {
            while let Step::Event(event) = stream.step(Duration::from_millis(5)) {
                if event.name == "message" {
                    assert!(places.insert(place_of(&message_of(&event).value)), "twice");
                }
            }
        }
        places.len() == 400
    });
}

#[test]
fn what_was_acknowledged_and_answered_does_not_come_again_after_a_kill() {
    let mut broker = Setup::new().logged().start();
    broker.create_roomy("t", PARTITIONS);
    let keys = key_of_each(PARTITIONS);
    for _ in 0..4 {
        keys.iter().for_each(|key| broker.publish_keyed("t", key, b"x"));
    }
    let mut socket = broker.websocket("t", "?group=g&from_offset=0", &[]);
    let held = ids(&mut socket, 16);
    let left = [(0, 2), (1, 0), (3, 1), (3, 3)];
    let done: Vec<_> = held.iter().filter(|(place, _)| !left.contains(place)).map(|(_, id)| id.clone()).collect();
    assert_eq!(answer_to(&mut socket, json!({ "ack": done }))["acked"], json!(done));
    broker.kill();
    broker.restart();
    let mut socket = broker.websocket("t", "?group=g&from_offset=0", &[]);
    let again = ids(&mut socket, left.len());
    assert_eq!(again.keys().copied().collect::<Vec<_>>(), left);
    // An id that was got before the kill is as good as one that came again.
    assert_eq!(answer_to(&mut socket, json!({ "ack": held[&left[3]] }))["acked"], held[&left[3]]);
    drop(socket);
    let mut socket = broker.websocket("t", "?group=g", &[]);
    assert_eq!(places(&mut socket, 3), left[..3]);
    socket.expect_nothing_before_pong();
}

/// Takes part for a while: acknowledges most of what comes, gives some back, and dies with the rest in hand.
fn live_and_die(broker: &Broker, done: &Mutex<BTreeSet<(u64, u64)>>, chance: &mut Chance) {
    let query = format!("?group=g&from_offset=0&max_in_flight={}", 1 + chance.below(100));
    let mut socket = broker.websocket("t", &query, &[]);
    let mut held = Vec::new();
    for _ in 0..chance.below(200) {
        match socket.step(Duration::from_millis(20)) {
            Heard::Message(message) => held.push(message.value),
            Heard::Quiet => {}
            other => panic!("{other:?}"),
        }
        let most = held.len().saturating_sub(chance.below(20));
        let some: Vec<_> = held.drain(..most).collect();
        match chance.below(4) {
            _ if some.is_empty() => {}
            0 => some.iter().for_each(|message| socket.say(json!({ "nack": id_of(message), "delay_ms": 5 }))),
            1 => {
                let ids: Vec<_> = some.iter().map(id_of).collect();
                assert_eq!(answer_to_holding(&mut socket, json!({ "ack": ids }), &mut held)["acked"], json!(ids));
                done.lock().unwrap().extend(some.iter().map(place_of));
            }
            _ => {
                some.iter().for_each(|message| socket.say(json!({ "ack": id_of(message) })));
                answer_to_holding(&mut socket, json!({ "ack": [] }), &mut held);
                done.lock().unwrap().extend(some.iter().map(place_of));
            }
        }
    }
}

/// Like [`answer_to`]; messages that come before the answer are held.
fn answer_to_holding(socket: &mut WebSocket, mut word: Value, held: &mut Vec<Value>) -> Value {
    word["ref"] = json!("asked");
    socket.say(word);
    loop {
        match socket.step(LIMIT) {
            Heard::Other(told) => return told,
            Heard::Message(message) => held.push(message.value),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn members_that_come_and_go_lose_nothing() {
    let mut chance = Chance::for_test();
    let broker = Broker::start();
    broker.create_roomy("t", PARTITIONS);
    let total = scaled(1500) as u64;
    let done = Mutex::new(BTreeSet::new());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (broker, done, is_over) = (&broker, &done, &is_over);
        for _ in 0..4 {
            let mut chance = chance.fork();
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    live_and_die(broker, done, &mut chance);
                }
            });
        }
        broker.publish_by_keys("t", "some", total, &mut chance);
        // A member that panics has poisoned the set: the test ends with what it said.
        wait_until("all are acknowledged", || done.lock().map_or(true, |done| done.len() as u64 == total));
        is_over.store(true, Ordering::SeqCst);
    });
    // Nothing of it comes again: the first of each partition is new.
    let mut late = broker.websocket("t", "?group=g", &[]);
    broker.publish_to_each("t", PARTITIONS);
    let done = done.into_inner().unwrap();
    for _ in 0..PARTITIONS {
        let place = place_of(&late.message().value);
        assert!(!done.contains(&place), "{place:?} was acknowledged");
    }
    late.expect_nothing_before_pong();
}
