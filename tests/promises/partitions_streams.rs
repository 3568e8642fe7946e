//! Promise: an event stream of a topic with several partitions brings all of them, each in its order, tells of gaps by partition,
//! and its ids hold the place in each.

use crate::broker::{Broker, Setup};
use crate::chance::{Chance, scaled};
use crate::deadline::{LIMIT, wait_until};
use crate::events::{End, EventStream, Step, message_of};
use crate::http::Filled;
use crate::partitioned::{Seen, key_of_each, place_of};
use crate::several_topics::target;
use crate::subcommands::run;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

const PUBLISHERS: u64 = 3;

/// Follows over event streams, cut at random, until so many messages have come.
fn follow(broker: &Broker, total: u64, chance: &mut Chance) {
    let (mut seen, mut last_id) = (Seen::default(), String::new());
    while seen.count < total {
        let headers = [("Last-Event-ID", last_id.as_str())];
        let headers = if last_id.is_empty() { &[][..] } else { &headers[..] };
        let mut stream = broker.subscribe("t", "?from_offset=0", headers);
        for _ in 0..chance.below(500) {
            let event = match stream.step(LIMIT) {
                Step::Event(event) => event,
                other => panic!("{other:?} at {:?}", seen.next),
            };
            let message = message_of(&event);
            assert_ne!(message.last_id, last_id, "each event has an id of its own");
            seen.take(&message.value, &message.payload);
            if seen.count == total {
                break;
            }
        }
        // One that was cut before it heard anything comes back with what it had.
        if !stream.last_id.is_empty() {
            last_id.clone_from(&stream.last_id);
        }
    }
    assert_eq!(seen.partitions().len(), 3);
}

#[test]
fn readers_that_are_cut_see_each_message_once_and_in_the_order_of_its_partition() {
    let mut chance = Chance::for_test();
    let broker = Broker::start();
    broker.create_roomy("t", 3);
    let each = scaled(1000) as u64;
    thread::scope(|scope| {
        let broker = &broker;
        for number in 0..PUBLISHERS {
            let mut chance = chance.fork();
            scope.spawn(move || broker.publish_by_keys("t", &format!("publisher-{number}"), each, &mut chance));
        }
        for _ in 0..5 {
            let mut chance = chance.fork();
            scope.spawn(move || follow(broker, each * PUBLISHERS, &mut chance));
        }
    });
}

/// The positions of a token, by partition.
fn positions(token: &str) -> BTreeMap<u64, u64> {
    let positions = token.strip_prefix("1~").unwrap_or_else(|| panic!("{token}"));
    let each = positions.split('~').map(|position| {
        let parts: Vec<_> = position.split('.').collect();
        assert_eq!(parts.len(), 3, "{token}: a life, a partition and an offset");
        (parts[1].parse().unwrap(), parts[2].parse().unwrap())
    });
    each.collect()
}

#[test]
fn an_id_holds_a_position_in_each_partition() {
    let broker = Broker::start();
    broker.create_roomy("t", 3);
    let keys = broker.publish_to_each("t", 3);
    let mut stream = broker.subscribe("t", "", &[]);
    stream.read_until("the first id is there", |stream| !stream.last_id.is_empty());
    assert_eq!(positions(&stream.last_id), BTreeMap::from([(0, 1), (1, 1), (2, 1)]), "where it began");
    let begin = stream.last_id.clone();
    broker.publish_keyed("t", &keys[1], b"x");
    let message = stream.message();
    assert_eq!(place_of(&message.value), (1, 1));
    assert_eq!(positions(&message.last_id), BTreeMap::from([(0, 1), (1, 2), (2, 1)]));
    drop(stream);
    // One that was cut before its first message misses nothing; what comes meanwhile is brought.
    broker.publish_keyed("t", &keys[2], b"x");
    let mut back = broker.subscribe("t", "", &[("Last-Event-ID", &begin)]);
    let mut came = [place_of(&back.message().value), place_of(&back.message().value)];
    came.sort_unstable();
    assert_eq!(came, [(1, 1), (2, 1)]);
    let mut back = broker.subscribe("t", "", &[("Last-Event-ID", &message.last_id)]);
    assert_eq!(place_of(&back.message().value), (2, 1));
    // By query, too.
    let mut back = broker.subscribe("t", &format!("?last_event_id={}", message.last_id), &[]);
    assert_eq!(place_of(&back.message().value), (2, 1));
}

#[test]
fn one_partition_is_read_alone() {
    let broker = Broker::start();
    broker.create_roomy("t", 3);
    let keys = broker.publish_to_each("t", 3);
    let mut stream = broker.subscribe("t", "?partition=2&from_offset=0", &[]);
    let message = stream.message();
    assert_eq!(place_of(&message.value), (2, 0));
    assert_eq!(positions(&message.last_id), BTreeMap::from([(2, 1)]));
    keys.iter().for_each(|key| broker.publish_keyed("t", key, b"x"));
    assert_eq!(place_of(&stream.message().value), (2, 1));
    // Its token, and a number.
    for id in [message.last_id.as_str(), "0"] {
        let mut back = broker.subscribe("t", "?partition=2", &[("Last-Event-ID", id)]);
        assert_eq!(place_of(&back.message().value), (2, 1), "{id}");
    }
    // The others start where the query says, for the token says nothing of them.
    let mut all = broker.subscribe("t", "?from_offset=1", &[("Last-Event-ID", &message.last_id)]);
    let mut came: Vec<_> = all.messages(3).iter().map(|message| place_of(&message.value)).collect();
    came.sort_unstable();
    assert_eq!(came, [(0, 1), (1, 1), (2, 1)]);
    // A token of all says where one goes on.
    let token = all.last_id.clone();
    broker.publish_keyed("t", &keys[0], b"y");
    let mut back = broker.subscribe("t", "?partition=0", &[("Last-Event-ID", &token)]);
    assert_eq!(place_of(&back.message().value), (0, 2));
    // Its gaps say which it is.
    let mut beyond = broker.subscribe("t", "?partition=1&from_offset=77", &[]);
    assert_eq!(beyond.control("gap"), json!({ "partition": 1, "requested": 77, "resumed": 2 }));
}

#[test]
fn what_cannot_be_meant_is_refused_with_the_cure() {
    let broker = Broker::start();
    broker.create_roomy("t", 3);
    broker.create_topic("one");
    let wrong = [
        ("/topics/t/subscribe/sse?partition=3", "from 0 to 2"),
        ("/topics/t/subscribe/sse?partition=x", "partition=x"),
        ("/topics/t/subscribe/sse?partition=", "digits"),
        ("/topics/one/subscribe/sse?partition=1", "has one"),
        ("/topics/t/subscribe/sse?partition=1&group=g", "leave partition out"),
        ("/topics/t/subscribe/sse?group=g&ordered=maybe", "ordered"),
        ("/subscribe/sse?topic=t&partition=1", "partition"),
    ];
    for (target, word) in wrong {
        let answer = broker.get(target).expect_error(400, "invalid_request");
        assert!(answer.json()["message"].as_str().unwrap().contains(word), "{target}: {}", answer.text());
    }
    let answer = broker.get("/topics/t/subscribe/sse?last_event_id=7").expect_error(400, "invalid_resume_token");
    assert!(answer.json()["message"].as_str().unwrap().contains("partition="), "{}", answer.text());
    assert_eq!(place_of_first(&broker, "?partition=0&last_event_id=7"), None, "nothing is there");
}

/// The first event's place when a message is there, else nothing: the stream was granted.
fn place_of_first(broker: &Broker, query: &str) -> Option<(u64, u64)> {
    let mut stream = broker.subscribe("t", query, &[]);
    match stream.step(std::time::Duration::from_millis(50)) {
        Step::Event(event) if event.name == "message" => Some(place_of(&event.json())),
        _ => None,
    }
}

/// The gaps and messages that come first, so many of each.
fn gaps_and_places(stream: &mut EventStream, gaps: usize, messages: usize) -> (Vec<String>, Vec<(u64, u64)>) {
    let (mut told, mut places) = (Vec::new(), Vec::new());
    while told.len() < gaps || places.len() < messages {
        let event = stream.event();
        match event.name.as_str() {
            "gap" => told.push(event.json().to_string()),
            "message" => places.push(place_of(&event.json())),
            _ => panic!("{event:?}"),
        }
    }
    told.sort();
    places.sort_unstable();
    (told, places)
}

#[test]
fn gaps_are_told_by_partition() {
    let broker = Broker::start();
    broker.create_roomy("t", 3);
    let keys = broker.publish_to_each("t", 3);
    let gap = |partition: u64, requested: serde_json::Value, resumed: u64| {
        json!({ "partition": partition, "requested": requested, "resumed": resumed }).to_string()
    };
    let mut stream = broker.subscribe("t", "?from_offset=5", &[]);
    let (told, _) = gaps_and_places(&mut stream, 3, 0);
    assert_eq!(told, (0..3).map(|number| gap(number, json!(5), 1)).collect::<Vec<_>>());
    // The place after the gaps is the end of each.
    assert_eq!(positions(&stream.last_id), BTreeMap::from([(0, 1), (1, 1), (2, 1)]));
    // A number does not say of which partition it is: all are read again, and that is told.
    for id in ["0", "nonsense"] {
        let mut stream = broker.subscribe("t", "", &[("Last-Event-ID", id)]);
        let (told, places) = gaps_and_places(&mut stream, 3, 3);
        assert_eq!(told, (0..3).map(|number| gap(number, json!(null), 0)).collect::<Vec<_>>(), "{id}");
        assert_eq!(places, [(0, 0), (1, 0), (2, 0)]);
    }
    // A topic that was made again is read from its earliest message, however many partitions it has then.
    broker.publish_keyed("t", &keys[1], b"x");
    let mut stream = broker.subscribe("t", "?from_offset=0", &[]);
    stream.messages(4);
    let token = stream.last_id.clone();
    broker.delete_topic("t");
    broker.create_roomy("t", 2);
    let mut stream = broker.subscribe("t", "", &[("Last-Event-ID", &token)]);
    let (told, _) = gaps_and_places(&mut stream, 2, 0);
    assert_eq!(told, [gap(0, json!(1), 0), gap(1, json!(2), 0)]);
    broker.delete_topic("t");
    broker.create_roomy("t", 5);
    let mut stream = broker.subscribe("t", "", &[("Last-Event-ID", &token)]);
    let (told, _) = gaps_and_places(&mut stream, 5, 0);
    assert_eq!(told.len(), 5);
    assert!(told.contains(&gap(1, json!(2), 0)) && told.contains(&gap(4, json!(null), 0)), "{told:?}");
    broker.delete_topic("t");
    broker.create_topic("t");
    let mut stream = broker.subscribe("t", "", &[("Last-Event-ID", &token)]);
    assert_eq!(stream.control("gap"), json!({ "requested": 1, "resumed": 0 }), "one partition is not named");
}

#[test]
fn the_end_of_a_topic_is_told_once() {
    let broker = Broker::start();
    for name in ["t", "u"] {
        broker.create_roomy(name, 3);
    }
    let mut all = broker.subscribe("t", "", &[]);
    let mut one = broker.subscribe("t", "?partition=1", &[]);
    let mut both = broker.subscribe_to_all(&["t", "u"], "", "");
    broker.delete_topic("t");
    for stream in [&mut all, &mut one] {
        assert_eq!(stream.control("end"), json!({ "reason": "topic_deleted" }));
        assert!(matches!(stream.step(LIMIT), Step::Ended(End::Whole)));
    }
    assert_eq!(both.control("end"), json!({ "topic": "t", "reason": "topic_deleted" }));
    broker.publish_to_each("u", 3);
    let mut came: Vec<_> = both.messages(3).iter().map(|message| place_of(&message.value)).collect();
    came.sort_unstable();
    assert_eq!(came, [(0, 0), (1, 0), (2, 0)]);
    broker.delete_topic("u");
    assert_eq!(both.control("end"), json!({ "topic": "u", "reason": "topic_deleted" }));
    assert!(matches!(both.step(LIMIT), Step::Ended(End::Whole)));
}

#[test]
fn streams_of_several_topics_read_all_partitions_of_each() {
    let broker = Broker::start();
    broker.create_roomy("a", 3);
    broker.create_topic("b");
    broker.create_roomy("c", 60);
    broker.create_roomy("d", 2);
    let keys = broker.publish_to_each("a", 3);
    broker.publish("b", b"x");
    let mut places = Vec::new();
    let mut last_id = String::new();
    for _ in 0..4 {
        let mut stream = broker.subscribe_to_all(&["a", "b"], "&from_offset=0", &last_id);
        let message = stream.message();
        let partition = message.value.get("partition").map(|partition| partition.as_u64().unwrap());
        places.push((message.value["topic"].as_str().unwrap().to_owned(), partition, message.offset));
        last_id = message.last_id;
    }
    places.sort();
    let of_a = |partition| ("a".to_owned(), Some(partition), 0);
    assert_eq!(places, [of_a(0), of_a(1), of_a(2), ("b".to_owned(), None, 0)]);
    assert_eq!(last_id.split('~').count(), 5, "{last_id}");
    // Each route understands the other's tokens.
    broker.publish_keyed("a", &keys[2], b"x");
    let mut stream = broker.subscribe("a", "", &[("Last-Event-ID", &last_id)]);
    let message = stream.message();
    assert_eq!(place_of(&message.value), (2, 1));
    broker.publish_keyed("a", &keys[0], b"x");
    let mut stream = broker.subscribe_to_all(&["b", "a"], "", &message.last_id);
    assert_eq!(place_of(&stream.message().value), (0, 1));
    // As many partitions as fit in a token, and no more.
    drop(broker.subscribe_to_all(&["c", "a", "b"], "", ""));
    let answer = broker.get(&target("sse", &["c", "a", "d"], "")).expect_error(400, "invalid_request");
    assert!(answer.json()["message"].as_str().unwrap().contains("64"), "{}", answer.text());
}

#[test]
fn a_full_number_of_partitions_is_one_stream() {
    let broker = Broker::start();
    broker.create_roomy("t", 64);
    let mut stream = broker.subscribe("t", "", &[]);
    let mut chance = Chance::for_test();
    broker.publish_by_keys("t", "first", 400, &mut chance);
    let mut seen = Seen::default();
    for _ in 0..150 {
        let message = stream.message();
        seen.take(&message.value, &message.payload);
    }
    let mut stream = broker.subscribe("t", "", &[("Last-Event-ID", &stream.last_id)]);
    for _ in 150..400 {
        let message = stream.message();
        seen.take(&message.value, &message.payload);
    }
}

#[test]
fn one_that_sleeps_delays_no_other_and_catches_up_in_all_partitions() {
    let broker = Setup::new().flag("--write-timeout-ms", 300).start();
    broker.create_roomy("t", 3);
    let keys = key_of_each(3);
    let mut asleep = broker.subscribe("t", "?from_offset=0", &[]);
    let mut awake = broker.subscribe("t", "?from_offset=0", &[]);
    let count = 300;
    let take = |stream: &mut EventStream| {
        let mut next = BTreeMap::new();
        for _ in 0..count {
            let (partition, offset) = place_of(&stream.message().value);
            let next = next.entry(partition).or_insert(0);
            assert_eq!(offset, *next, "partition {partition}");
            *next += 1;
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let payload = vec![b'x'; 100_000];
            (0..count).for_each(|number| broker.publish_keyed("t", &keys[number % 3], &payload));
        });
        take(&mut awake);
    });
    take(&mut asleep);
}

#[test]
fn idle_streams_of_many_partitions_hold_little() {
    const STREAMS: usize = 300;
    let broker = Broker::start();
    broker.create_roomy("t", 32);
    // What the first ones bring along is not theirs alone.
    let first = broker.subscribe("t", "", &[]);
    let before = broker.resident_bytes();
    let streams: Vec<_> = (0..STREAMS).map(|_| broker.subscribe("t", "", &[])).collect();
    let each = broker.resident_bytes().saturating_sub(before) / STREAMS as u64;
    // A cursor and a place in each partition.
    assert!(each < 24 << 10, "{each} bytes a stream");
    drop((first, streams));
    wait_until("all have gone", || broker.stats("t")["subscriber_count"] == 0);
}

#[test]
fn an_id_is_good_after_a_kill() {
    let mut broker = Setup::new().logged().start();
    broker.create_roomy("t", 3);
    let mut chance = Chance::for_test();
    broker.publish_by_keys("t", "some", 300, &mut chance);
    let mut seen = Seen::default();
    let mut last_id = String::new();
    for until in [100, 200, 300] {
        let headers = [("Last-Event-ID", last_id.as_str())];
        let headers = if last_id.is_empty() { &[][..] } else { &headers[..] };
        let mut stream = broker.subscribe("t", "?from_offset=0", headers);
        while seen.count < until {
            let message = stream.message();
            seen.take(&message.value, &message.payload);
            last_id = message.last_id;
        }
        broker.kill();
        broker.restart();
    }
    let mut stream = broker.subscribe("t", "", &[("Last-Event-ID", &last_id)]);
    broker.publish_by_keys("t", "more", 50, &mut chance);
    for _ in 0..50 {
        let message = stream.message();
        seen.take(&message.value, &message.payload);
    }
}

#[test]
fn the_command_reads_all_partitions_or_one() {
    let broker = Broker::start();
    broker.create_roomy("t", 3);
    let keys = broker.publish_to_each("t", 3);
    let all = run(&broker, &["subscribe", "t", "--from", "0", "--count", "3"]).expect(0);
    let mut lines: Vec<_> = all.out.lines().collect();
    lines.sort_unstable();
    let mut sorted: Vec<_> = keys.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    assert_eq!(lines, sorted);
    let one = run(&broker, &["subscribe", "t", "--from", "0", "--partition", "2", "--count", "1"]).expect(0);
    assert_eq!(one.out.trim_end(), keys[2]);
    let wrong = run(&broker, &["subscribe", "t", "--partition", "3"]);
    assert!(wrong.code != Some(0) && wrong.words.contains("from 0 to 2"), "{wrong:?}");
    for more in [&["u"][..], &["--group", "g"]] {
        let wrong = run(&broker, &[&["subscribe", "t", "--partition", "1"], more].concat()).expect(2);
        assert!(wrong.words.contains("--partition"), "{wrong:?}");
    }
}

/// Asks for a stream until the test is over; each that is granted is told its end.
fn come_and_see(broker: &Broker, target: &str, is_over: &AtomicBool) -> u64 {
    let mut ends = 0;
    while !is_over.load(Ordering::SeqCst) {
        let mut connection = broker.connect();
        connection.send_request("GET", target, &[], b"");
        let head = connection.head(Instant::now() + LIMIT).expect("an answer");
        if head.status != 200 {
            assert_eq!(head.status, 404, "{head:?} {}", connection.pending_text());
            continue;
        }
        while !String::from_utf8_lossy(&connection.pending).contains("event: end") {
            let filled = connection.fill(Instant::now() + LIMIT);
            assert!(filled == Filled::Bytes, "{target}: {filled:?} {}", connection.pending_text());
        }
        ends += 1;
    }
    ends
}

#[test]
fn readers_of_a_topic_that_comes_and_goes_are_never_left_waiting() {
    let broker = Setup::new().flag("--heartbeat-ms", 600_000).start();
    let is_over = AtomicBool::new(false);
    let targets = ["", "?partition=1", "?group=g", "?group=g&ordered=true", "?from_offset=3"];
    thread::scope(|scope| {
        let (broker, is_over) = (&broker, &is_over);
        let readers = targets.map(|query| {
            let target = format!("/topics/t/subscribe/sse{query}");
            scope.spawn(move || come_and_see(broker, &target, is_over))
        });
        for round in 0..scaled(60) as u32 {
            broker.create_roomy("t", 2 + round % 7);
            if round % 3 > 0 {
                wait_until("somebody is there", || broker.stats("t")["subscriber_count"] != 0);
            }
            broker.delete_topic("t");
        }
        is_over.store(true, Ordering::SeqCst);
        let ends = readers.map(|reader| reader.join().unwrap());
        assert!(ends.iter().sum::<u64>() > 0, "some were there: {ends:?}");
    });
}

#[test]
fn one_that_is_too_slow_in_a_partition_is_treated_as_it_chose() {
    let broker = Broker::start();
    broker.create_roomy("t", 3);
    let keys = key_of_each(3);
    let mut streams = ["close", "skip"].map(|slow| {
        let mut connection = broker.connect_narrow();
        connection.send_request("GET", &format!("/topics/t/subscribe/sse?slow={slow}"), &[], b"");
        EventStream::from_connection(connection)
    });
    // 30 MB in one partition: more than sockets, a connection's queue and a window hold together.
    let payload = vec![b'x'; 20_000];
    let count = 1500;
    let mut connection = broker.connect();
    for _ in 0..count {
        connection.send_request("POST", "/topics/t/publish", &[("X-Key", &keys[1])], &payload);
        connection.response_to("POST").expect(202);
    }
    let [closed, skipping] = &mut streams;
    let end = loop {
        let event = closed.event();
        if event.name != "message" {
            break event;
        }
    };
    assert_eq!((end.name.as_str(), end.json()), ("end", json!({ "partition": 1, "reason": "too_slow" })));
    assert_eq!(closed.wait_for_end(), End::Whole);
    let (mut next, mut gaps) = (0, 0);
    while next < count {
        let event = skipping.event();
        if event.name == "gap" {
            gaps += 1;
            let gap = event.json();
            assert!(gap["partition"] == 1 && gap["requested"] == next, "{gap} at {next}");
            next = gap["resumed"].as_u64().unwrap();
            assert_eq!(positions(&event.last_id), BTreeMap::from([(0, 0), (1, next), (2, 0)]));
        } else {
            assert_eq!(place_of(&event.json()), (1, next));
            next += 1;
        }
    }
    assert!(gaps > 0, "it cannot have had all of it");
    broker.publish_keyed("t", &keys[0], b"x");
    assert_eq!(place_of(&skipping.message().value), (0, 0));
}
