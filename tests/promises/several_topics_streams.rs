//! Promise: one event stream brings the messages of several topics, tells of gaps and ends by topic, and its ids hold the place
//! in all of them.

use crate::broker::{Broker, Setup};
use crate::deadline::wait_until;
use crate::events::{End, EventStream};
use crate::metrics::Exposition;
use crate::several_topics::{target, topic_and_offset};
use serde_json::json;
use std::collections::HashMap;

/// Takes that many messages, which must go on by one in each topic; gives where each topic goes on, and the last id.
#[track_caller]
fn take(stream: &mut EventStream, count: u64, next: &mut HashMap<String, u64>) -> String {
    let mut last_id = String::new();
    for _ in 0..count {
        let message = stream.message();
        let (topic, offset) = topic_and_offset(&message.value);
        let next = next.entry(topic.to_owned()).or_insert(offset);
        assert_eq!(offset, *next, "{topic}: a gap or a double");
        *next += 1;
        assert_ne!(message.last_id, last_id, "each event has an id of its own");
        last_id = message.last_id;
    }
    last_id
}

#[test]
fn all_topics_come_and_what_is_published_after_the_head_is_not_missed() {
    let broker = Broker::start();
    broker.create_topics(&["a", "b", "ü/x"]);
    broker.publish("a", b"early");
    for (round, more) in ["", "&format=json"].into_iter().enumerate() {
        let mut stream = broker.subscribe_to_all(&["a", "b", "ü/x"], more, "");
        ["a", "b", "ü/x"].iter().for_each(|topic| broker.wait_for_subscribers(topic, 1));
        ["ü/x", "a", "b"].iter().for_each(|topic| {
            broker.publish(topic, topic.as_bytes());
        });
        let mut seen: Vec<_> = stream
            .messages(3)
            .into_iter()
            .map(|message| {
                assert_eq!(message.value["topic"].as_str().unwrap().as_bytes(), message.payload);
                (message.value["topic"].as_str().unwrap().to_owned(), message.offset)
            })
            .collect();
        seen.sort();
        let round = round as u64;
        assert_eq!(seen, [("a".to_owned(), 1 + round), ("b".to_owned(), round), ("ü/x".to_owned(), round)]);
        drop(stream);
        broker.wait_for_subscribers("a", 0);
    }
    for topic in ["a", "b", "ü/x"] {
        let labels = [("topic", topic), ("protocol", "sse")];
        let delivered = || Exposition::read(&broker).value("streamq_messages_delivered_total", &labels);
        wait_until("what came is counted by topic", || delivered() == Some(2.0));
    }
}

#[test]
fn an_id_brings_back_the_place_in_every_topic() {
    let broker = Broker::start();
    let topics = ["a", "b", "c"];
    broker.create_topics(&topics);
    topics.iter().for_each(|topic| broker.publish_numbers(topic, 0..20));
    let mut next = HashMap::new();
    let mut last_id = String::new();
    // Cut after each few messages; the query says the start, and the id wins.
    for count in [1, 7, 13, 20, 2, 17] {
        let mut stream = broker.subscribe_to_all(&topics, "&from_offset=0", &last_id);
        last_id = take(&mut stream, count, &mut next);
    }
    assert!(next.values().all(|next| *next == 20), "{next:?}");
    // One that is cut before its first message comes back to where it began.
    let mut stream = broker.subscribe_to_all(&topics, "", "");
    stream.read_until("the first id is there", |stream| !stream.last_id.is_empty());
    let last_id = stream.last_id.clone();
    drop(stream);
    topics.iter().for_each(|topic| {
        broker.publish(topic, b"meanwhile");
    });
    let mut stream = broker.subscribe_to_all(&topics, "", &last_id);
    take(&mut stream, 3, &mut next);
    assert!(next.values().all(|next| *next == 21), "{next:?}");
    // The id of several is understood where there is one of them.
    let mut stream = broker.subscribe("b", "", &[("Last-Event-ID", &last_id)]);
    assert_eq!(stream.message().offset, 20);
}

#[test]
fn a_token_and_a_query_may_name_different_topics() {
    let broker = Broker::start();
    broker.create_topics(&["a", "b", "c"]);
    ["a", "b", "c"].iter().for_each(|topic| broker.publish_numbers(topic, 0..5));
    let mut stream = broker.subscribe_to_all(&["a", "b"], "&from_offset=5", "");
    broker.publish("a", b"5");
    let last_id = stream.message().last_id;
    broker.publish("a", b"6");
    // c is not in the token: it starts at the tail, and nothing is said; b is not in the query.
    let mut stream = broker.subscribe_to_all(&["c", "a"], "", &last_id);
    assert_eq!(topic_and_offset(&stream.message().value), ("a", 6));
    broker.publish("c", b"5");
    assert_eq!(topic_and_offset(&stream.message().value), ("c", 5));
    // Or where the query says.
    let mut stream = broker.subscribe_to_all(&["c", "a"], "&from_offset=4", &last_id);
    let mut next = HashMap::from([("a".to_owned(), 6), ("c".to_owned(), 4)]);
    take(&mut stream, 3, &mut next);
    // A token of one topic is as good.
    let last_id = broker.subscribe("a", "?from_offset=2", &[]).message().last_id;
    let mut stream = broker.subscribe_to_all(&["c", "a"], "", &last_id);
    let mut next = HashMap::from([("a".to_owned(), 3)]);
    take(&mut stream, 4, &mut next);
}

#[test]
fn gaps_name_their_topic() {
    let broker = Setup::new().flag("--retention", 3).start();
    broker.create_topics(&["a", "b"]);
    broker.publish_numbers("a", 0..10);
    broker.publish_numbers("b", 0..2);
    let mut stream = broker.subscribe_to_all(&["a", "b"], "&from_offset=1", "");
    let (mut gaps, mut offsets, mut last_id) = (Vec::new(), Vec::new(), String::new());
    while offsets.len() < 4 {
        let event = stream.event();
        match event.name.as_str() {
            "message" => {
                let (topic, offset) = (event.json()["topic"].clone(), event.json()["offset"].clone());
                offsets.push(format!("{topic}{offset}"));
                last_id = event.last_id;
            }
            "gap" => gaps.push(event.json()),
            _ => panic!("{event:?}"),
        }
    }
    offsets.sort();
    assert_eq!(offsets, ["\"a\"7", "\"a\"8", "\"a\"9", "\"b\"1"]);
    assert_eq!(gaps, [json!({ "topic": "a", "requested": 1, "resumed": 7 })]);
    // A topic that was made again goes on from its first message.
    broker.delete_topic("b");
    broker.create_topic("b");
    broker.publish("b", b"new");
    let mut stream = broker.subscribe_to_all(&["a", "b"], "", &last_id);
    assert_eq!(stream.control("gap"), json!({ "topic": "b", "requested": 2, "resumed": 0 }));
    assert_eq!(topic_and_offset(&stream.message().value), ("b", 0));
    // A start beyond the end is told at once.
    let mut stream = broker.subscribe_to_all(&["a", "b"], "&from_offset=12", "");
    let mut told = [stream.control("gap"), stream.control("gap")].map(|gap| gap.to_string());
    told.sort();
    let mut expected = [("a", 10), ("b", 1)]
        .map(|(topic, resumed)| json!({ "topic": topic, "requested": 12, "resumed": resumed }).to_string());
    expected.sort();
    assert_eq!(told, expected);
    // What nobody can read is told of each topic.
    let mut stream = broker.subscribe_to_all(&["a", "b"], "", "17");
    let mut gaps = 0;
    for _ in 0..6 {
        let event = stream.event();
        if event.name == "gap" {
            assert!(event.json()["requested"].is_null(), "{event:?}");
            gaps += 1;
        }
    }
    assert_eq!(gaps, 2);
}

#[test]
fn a_deleted_topic_ends_and_the_others_go_on() {
    let broker = Broker::start();
    broker.create_topics(&["a", "b", "c"]);
    let mut stream = broker.subscribe_to_all(&["a", "b", "c"], "", "");
    broker.delete_topic("b");
    assert_eq!(stream.control("end"), json!({ "topic": "b", "reason": "topic_deleted" }));
    broker.publish("c", b"x");
    let message = stream.message();
    assert_eq!(topic_and_offset(&message.value), ("c", 0));
    // One that is made again is not part of the stream, and a client that comes back is told what it missed.
    broker.create_topic("b");
    broker.publish("b", b"again");
    broker.publish("a", b"x");
    assert_eq!(topic_and_offset(&stream.message().value), ("a", 0));
    let mut back = broker.subscribe_to_all(&["a", "b", "c"], "", &stream.last_id);
    assert_eq!(back.control("gap")["topic"], "b");
    assert_eq!(topic_and_offset(&back.message().value), ("b", 0));
    broker.delete_topic("a");
    assert_eq!(stream.control("end")["topic"], "a");
    broker.delete_topic("c");
    assert_eq!(stream.control("end")["topic"], "c");
    assert_eq!(stream.wait_for_end(), End::Whole);
}

#[test]
fn raw_payloads_and_old_clients_are_served_too() {
    let broker = Broker::start();
    broker.create_topics(&["a", "b"]);
    let mut stream = broker.subscribe_to_all(&["a", "b"], "&format=raw", "");
    broker.publish("a", b"two\nlines");
    assert_eq!(stream.event().data, "two\nlines");
    broker.publish("b", &[0xff]);
    let event = stream.event();
    assert_eq!((event.name.as_str(), event.data.as_str()), ("base64", "/w=="));
    // HTTP/1.0 knows no chunks; a payload beyond what is copied goes out by itself.
    let large = vec![b'x'; 100_000];
    broker.publish("a", &large);
    assert_eq!(stream.event().data.len(), large.len());
    let mut connection = broker.connect();
    let target = target("sse", &["a", "b"], "&from_offset=0");
    connection.send(format!("GET {target} HTTP/1.0\r\n\r\n").as_bytes());
    let mut text = String::new();
    while !text.contains(r#""offset":1,"topic":"a""#) || !text.contains(r#""topic":"b""#) {
        assert_ne!(connection.fill(std::time::Instant::now() + crate::deadline::LIMIT), crate::http::Filled::Ended);
        text = connection.pending_text().chars().take(100).collect::<String>()
            + &String::from_utf8_lossy(&connection.pending);
    }
    assert!(!text.contains("Transfer-Encoding"), "no chunks");
}

#[test]
fn a_full_number_of_topics_is_one_stream() {
    let broker = Setup::new().flag("--heartbeat-ms", 200).start();
    let names: Vec<String> = (0..32).map(|number| format!("topic-{number}")).collect();
    let topics: Vec<&str> = names.iter().map(String::as_str).collect();
    broker.create_topics(&topics);
    let mut stream = broker.subscribe_to_all(&topics, "", "");
    let mut next: HashMap<String, u64> = names.iter().map(|name| (name.clone(), 0)).collect();
    for round in 0..3 {
        topics.iter().for_each(|topic| {
            broker.publish(topic, b"x");
        });
        let last_id = take(&mut stream, 32, &mut next);
        assert!(next.values().all(|next| *next == round + 1), "{next:?}");
        stream = broker.subscribe_to_all(&topics, "", &last_id);
    }
    let before = stream.comments;
    stream.read_until("heartbeats go on", |stream| stream.comments > before + 1);
    topics.iter().for_each(|topic| broker.wait_for_subscribers(topic, 1));
    drop(stream);
    topics.iter().for_each(|topic| broker.wait_for_subscribers(topic, 0));
}

#[test]
fn a_flood_in_one_topic_does_not_starve_another() {
    let broker = Broker::start();
    broker.create_topic_of("flood", 100_000);
    broker.create_topic("drop");
    broker.publish_many("flood", &[b'x'; 10_000], 4000);
    let mut connection = broker.connect_narrow();
    connection.send_request("GET", &target("sse", &["flood", "drop"], "&from_offset=0"), &[], b"");
    let mut stream = EventStream::from_connection(connection);
    stream.messages(10);
    broker.publish("drop", b"x");
    // Of the flood no more comes first than waits in sockets, in the connection's queue, and in a page on its way.
    let mut before = 0;
    while topic_and_offset(&stream.message().value).0 == "flood" {
        before += 1;
    }
    assert!(before < 1500, "{before} messages of the flood came first");
}

#[test]
fn slow_readers_are_treated_as_they_chose() {
    let broker = Broker::start();
    broker.create_topic_of("a", 100_000);
    broker.create_topic_of("b", 100_000);
    let open = |slow: &str| {
        let mut connection = broker.connect_narrow();
        connection.send_request("GET", &target("sse", &["a", "b"], &format!("&slow={slow}")), &[], b"");
        EventStream::from_connection(connection)
    };
    let [mut lagging, mut skipping, mut closed] = ["lag", "skip", "close"].map(open);
    let payload = vec![b'x'; 20_000];
    broker.publish_many("a", &payload, 800);
    broker.publish_many("b", &payload, 800);
    take(&mut lagging, 1600, &mut HashMap::from([("a".to_owned(), 0), ("b".to_owned(), 0)]));
    let mut next = HashMap::from([("a".to_owned(), 0), ("b".to_owned(), 0)]);
    let mut missed = 0;
    while next.values().sum::<u64>() < 1600 {
        let event = skipping.event();
        let topic = event.json()["topic"].as_str().unwrap().to_owned();
        let next = next.get_mut(&topic).unwrap();
        if event.name == "gap" {
            assert_eq!(event.json()["requested"], *next);
            missed += event.json()["resumed"].as_u64().unwrap() - *next;
            *next = event.json()["resumed"].as_u64().unwrap();
        } else {
            assert_eq!(event.json()["offset"], *next, "{topic}");
            *next += 1;
        }
    }
    assert!(missed > 0);
    loop {
        let event = closed.event();
        if event.name == "end" {
            assert_eq!(event.json()["reason"], "too_slow");
            break;
        }
    }
    assert_eq!(closed.wait_for_end(), End::Whole);
    wait_until("only the open ones are counted", || broker.stats("a")["subscriber_count"] == 2);
    let dropped: f64 = ["a", "b"]
        .iter()
        .filter_map(|topic| Exposition::read(&broker).value("streamq_messages_dropped_total", &[("topic", topic)]))
        .sum();
    assert!(dropped as u64 > missed, "what one skipped and what closed the other are counted: {dropped}");
}
