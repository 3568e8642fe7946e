//! Promise: a subscriber that does not read delays nobody, holds a bounded amount of memory, catches up from the log, while
//! a client that takes no answer to a plain request is let go.

use crate::broker::{Broker, Setup};
use crate::deadline::wait_until;

/// Publishes until the sockets of a reader that does not read must be full.
fn publish_more_than_sockets_hold(broker: &Broker, topic: &str, count: u64) {
    let payload = vec![b'x'; 100_000];
    let mut connection = broker.connect();
    for _ in 0..count {
        connection.send_request("POST", &format!("/topics/{topic}/publish"), &[], &payload);
        connection.response_to("POST").expect(202);
    }
}

#[test]
fn one_that_sleeps_delays_no_other_and_catches_up() {
    // A subscriber holds a cursor and no queue, so that sleeping is no offence, however long.
    let broker = Setup::new().flag("--retention", 100_000).flag("--write-timeout-ms", 300).start();
    broker.create_topic("t");
    let mut asleep = broker.subscribe("t", "?from_offset=0", &[]);
    let mut awake = broker.subscribe("t", "?from_offset=0", &[]);
    let count = 400;
    std::thread::scope(|scope| {
        scope.spawn(|| publish_more_than_sockets_hold(&broker, "t", count));
        for offset in 0..count {
            assert_eq!(awake.message().offset, offset);
        }
    });
    // 53 MB of events wait for the one that slept; it misses none of them.
    for offset in 0..count {
        assert_eq!(asleep.message().offset, offset);
    }
}

#[test]
fn a_client_that_takes_no_answer_is_let_go() {
    let broker = Setup::new().flag("--write-timeout-ms", 400).start();
    let files = || std::fs::read_dir(format!("/proc/{}/fd", broker.process_id())).unwrap().count();
    let before = files();
    broker.create_topic("t");
    publish_more_than_sockets_hold(&broker, "t", 150);
    wait_until("the publisher is gone", || files() <= before);
    let mut stuck: Vec<_> = (0..3).map(|_| broker.connect()).collect();
    for connection in &mut stuck {
        (0..4).for_each(|_| connection.send_request("GET", "/topics/t/messages?from_offset=0&limit=150", &[], b""));
    }
    wait_until("the broker has taken them", || files() >= before + 3);
    wait_until("the stuck clients are let go", || files() <= before);
    broker.get("/health").expect(200);
}

#[test]
fn one_that_falls_behind_what_is_kept_is_told() {
    let broker = Setup::new().flag("--retention", 20).start();
    broker.create_topic("t");
    let mut asleep = broker.subscribe("t", "?from_offset=0", &[]);
    broker.wait_for_subscribers("t", 1);
    let count = 600;
    publish_more_than_sockets_hold(&broker, "t", count);
    let mut expected = 0;
    let mut gaps = 0;
    while expected < count {
        let event = asleep.event();
        if event.name == "gap" {
            let gap = event.json();
            assert_eq!(gap["requested"], expected, "{gap}");
            expected = gap["resumed"].as_u64().unwrap();
            gaps += 1;
            continue;
        }
        assert_eq!(crate::events::message_of(&event).offset, expected, "a hole that was not told");
        expected += 1;
    }
    assert!(gaps >= 1, "80 MB cannot have waited in sockets and a window of 8 MiB");
    let metrics = broker.get("/metrics").expect(200).text();
    let dropped = metrics.lines().find(|line| line.starts_with("streamq_messages_dropped_total{topic=\"t\"}"));
    assert!(dropped.is_some_and(|line| !line.ends_with(" 0")), "dropped messages are counted: {dropped:?}");
}
