//! Promise: when a topic is deleted, its subscribers, members and waiting requests of all kinds are told so and let go, nothing
//! hangs, nothing of them is left, and the name can be used anew.

use crate::broker::{Broker, Setup};
use crate::chance::scaled;
use crate::deadline::wait_until;
use crate::http::Connection;
use crate::metrics::Exposition;
use crate::reader::{KINDS, Kind, Reader, Told};
use serde_json::json;

fn end_of(kind: Kind) -> &'static str {
    if kind == Kind::Sse { "topic_deleted" } else { "4404" }
}

/// Reads on until the end, which must be that of a deleted topic.
fn expect_end(reader: &mut Reader, kind: Kind) {
    loop {
        match reader.next() {
            Told::Message { .. } | Told::Gap { .. } => {}
            Told::End(end) => return assert_eq!(end, end_of(kind)),
            other => panic!("{kind:?}: {other:?}"),
        }
    }
}

/// Requests that wait for messages of the topic, which has `end` of them.
fn waiting_requests(broker: &Broker, end: u64) -> Vec<Connection> {
    let page = |wait_ms: u64| {
        broker.request_to("GET", &format!("/topics/t/messages?from_offset={end}&wait_ms={wait_ms}"), b"")
    };
    let fetch =
        |wait_ms: u64| broker.json_request_to("/topics/t/groups/fetching/fetch", &json!({ "wait_ms": wait_ms }));
    let wait = |number: usize| {
        let mut connection = broker.connect();
        // The first answer shows that the broker has both: the second waits.
        let bytes = [0, 60_000].map(|wait_ms| if number < 2 { page(wait_ms) } else { fetch(wait_ms) });
        connection.send(&bytes.concat());
        connection.response_to("either").expect(200);
        connection
    };
    (0..4).map(wait).collect()
}

#[test]
fn everybody_is_told_and_let_go() {
    let broker = Broker::start();
    let before = broker.open_files();
    for life in 0..scaled(3) {
        broker.create_topic("t");
        broker.publish_numbers("t", 0..10);
        let mut readers = Vec::new();
        for kind in KINDS {
            for query in
                ["", "?from_offset=0", "?group=g", "?group=g&from_offset=0", "?group=h", "?slow=skip", "?slow=close"]
            {
                readers.extend((0..2).map(|_| (kind, Reader::open(&broker, "t", query, kind))));
            }
        }
        broker.wait_for_subscribers("t", readers.len() as u64);
        broker.publish_numbers("t", 10..20);
        let waiting = waiting_requests(&broker, 20);
        broker.delete_topic("t");
        for (kind, reader) in &mut readers {
            expect_end(reader, *kind);
        }
        for mut connection in waiting {
            let answer = connection.response_to("either");
            assert!(answer.status == 404, "life {life}: {answer:?}");
            connection.send_request("GET", "/health", &[], b"");
            connection.response_to("GET").expect(200);
        }
        for target in ["/topics/t", "/topics/t/groups", "/topics/t/groups/g", "/topics/t/messages?from_offset=0"] {
            broker.get(target).expect_error(404, "topic_not_found");
        }
        drop(readers);
        wait_until("all descriptors are back", || broker.open_files() <= before);
    }
    let exposition = Exposition::read(&broker);
    for protocol in ["sse", "ws"] {
        let active = exposition.value("streamq_active_subscribers", &[("topic", "t"), ("protocol", protocol)]);
        assert!(active.is_none_or(|count| count == 0.0), "{protocol}: {active:?}");
    }
}

#[test]
fn a_new_topic_of_that_name_knows_nothing_of_the_old() {
    let broker = Broker::start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..10);
    let mut old = broker.websocket("t", "?group=g&from_offset=0", &[]);
    old.offsets(10);
    broker.delete_topic("t");
    broker.create_topic("t");
    // It is too late for the old member to say anything.
    assert_eq!(old.close_code(), 4404);
    let stats = broker.stats("t");
    assert!(stats["message_count"] == 0 && stats["groups"] == 0 && stats["subscriber_count"] == 0, "{stats}");
    broker.publish("t", b"new");
    let mut member = broker.websocket("t", "?group=g&from_offset=0", &[]);
    let message = member.message();
    assert_eq!((message.offset, message.payload.as_slice(), message.attempt), (0, &b"new"[..], 1));
    member.acknowledge(&[0]);
    assert_eq!(broker.group("t", "g")["committed_offset"], 1);
}

#[test]
fn those_who_do_not_read_are_let_go_too() {
    let broker = Setup::new().flag("--write-timeout-ms", 400).start();
    broker.create_topic_with(json!({ "retention": { "max_messages": 10_000 } }), "t");
    let before = broker.open_files();
    let mut readers = Vec::new();
    for kind in KINDS {
        for query in ["", "?group=g&max_in_flight=65536"] {
            readers.push((kind, Reader::open(&broker, "t", query, kind)));
        }
    }
    let payload = vec![b'x'; 100_000];
    let mut connection = broker.connect();
    for _ in 0..150 {
        connection.send_request("POST", "/topics/t/publish", &[], &payload);
        connection.response_to("POST").expect(202);
    }
    drop(connection);
    broker.delete_topic("t");
    wait_until("their connections are gone", || broker.open_files() <= before);
    drop(readers);
}

#[test]
fn deleting_while_everything_is_going_on_hangs_nobody() {
    let broker = Broker::start();
    let before = broker.open_files();
    for _ in 0..scaled(10) {
        broker.create_topic("t");
        std::thread::scope(|scope| {
            for number in 0..6 {
                let broker = &broker;
                scope.spawn(move || {
                    let kind = KINDS[number % 3];
                    let query = ["?from_offset=0", "?group=g&from_offset=0"][number % 2];
                    let mut reader = Reader::open(broker, "t", query, kind);
                    // All it needs is to get to an end.
                    while !matches!(reader.next(), Told::End(_)) {}
                });
            }
            broker.wait_for_subscribers("t", 6);
            for _ in 0..2 {
                let mut connection = broker.connect();
                scope.spawn(move || {
                    loop {
                        connection.send_request("POST", "/topics/t/publish", &[], b"x");
                        let answer = connection.response_to("POST");
                        if answer.status == 404 {
                            return;
                        }
                        answer.expect(202);
                    }
                });
            }
            wait_until("messages flow", || broker.stats("t")["latest_offset"].as_i64() > Some(50));
            broker.delete_topic("t");
        });
    }
    wait_until("all descriptors are back", || broker.open_files() <= before);
}

#[test]
fn members_that_come_and_go_leave_no_descriptors_behind() {
    let broker = Broker::start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..5);
    let before = broker.open_files();
    for _ in 0..scaled(20) {
        for kind in KINDS {
            drop(Reader::open(&broker, "t", "?from_offset=0", kind));
            let mut member = Reader::open(&broker, "t", "?group=g&from_offset=0", kind);
            member.step(std::time::Duration::from_millis(1));
        }
    }
    wait_until("all descriptors are back", || broker.open_files() <= before);
    wait_until("nobody counts any more", || broker.stats("t")["subscriber_count"] == 0);
    broker.wait_for_group("t", "g", "members", 0);
}
