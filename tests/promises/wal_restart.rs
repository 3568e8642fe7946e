//! Promise: a broker that was told to end, or was killed, and is started again in the same folder goes on where it was: the
//! same messages with the same ids and times, the same settings, and streams that resume by their token without a gap. What
//! was only in memory is gone, and says so.

use crate::broker::{Broker, Setup, topic_path};
use crate::deadline::wait_until;
use crate::events::End;
use crate::websocket::{EXTENDED, Heard};
use serde_json::{Value, json};

/// How a process ends.
const ENDS: [fn(&mut Broker); 2] = [end_in_order, Broker::end_at_once];

fn end_in_order(broker: &mut Broker) {
    broker.terminate();
    assert_eq!(broker.wait_for_exit().code(), Some(0));
}

impl Broker {
    /// Kills the broker and waits until it is gone.
    pub(crate) fn end_at_once(&mut self) {
        self.kill();
        self.wait_for_exit();
    }
}

fn started(messages: u64) -> Broker {
    let broker = Setup::new().logged().flag("--retry-ms", 100).start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..messages);
    broker
}

fn page(broker: &Broker, topic: &str) -> Value {
    broker.get(&topic_path(topic, "/messages?from_offset=0&limit=10000")).expect(200).data()
}

#[test]
fn messages_and_settings_are_the_same_after_a_start() {
    for end in ENDS {
        let mut broker = started(200);
        let settings = json!({ "retention": { "max_messages": 40 }, "ack_wait_ms": 12_345 });
        broker.create_topic_with(settings, "with settings/ü");
        broker.publish_numbers("with settings/ü", 0..100);
        broker.create_topic("empty");
        broker.create_topic("deleted");
        broker.publish("deleted", b"x");
        broker.delete_topic("deleted");
        let headers = [("X-Key", "customer"), ("X-Header-Trace", "abc")];
        broker.request("POST", "/topics/t/publish", &headers, b"").expect(202);
        broker.request("POST", "/topics/t/publish", &[], &vec![0xff; 1 << 20]).expect(202);
        let topics = ["t", "with settings/ü", "empty"];
        let before: Vec<_> = topics.iter().map(|topic| (page(&broker, topic), broker.stats(topic))).collect();
        assert_eq!((&before[0].1["message_count"], &before[0].1["storage"]), (&json!(202), &json!("wal")));
        for _ in 0..3 {
            end(&mut broker);
            broker.restart();
            let after: Vec<_> = topics.iter().map(|topic| (page(&broker, topic), broker.stats(topic))).collect();
            for (before, after) in before.iter().zip(&after) {
                assert!(before.0 == after.0, "{} became {}", before.0["latest_offset"], after.0["latest_offset"]);
                assert_eq!(before.1, after.1);
            }
            broker.get("/topics/deleted").expect_error(404, "topic_not_found");
        }
        assert_eq!(broker.publish("t", b"next"), 202);
        assert_eq!(broker.publish("empty", b"first"), 0);
    }
}

#[test]
fn a_topic_that_was_made_again_is_another() {
    for end in ENDS {
        let mut broker = started(5);
        let mut stream = broker.subscribe("t", "?from_offset=0", &[]);
        let token = stream.messages(5).pop().unwrap().last_id;
        drop(stream);
        broker.delete_topic("t");
        broker.create_topic("t");
        broker.publish("t", b"of the new one");
        end(&mut broker);
        broker.restart();
        let page = page(&broker, "t");
        assert_eq!((page["messages"].as_array().unwrap().len(), &page["latest_offset"]), (1, &json!(0)));
        // A token of the former life is told so, and all of the new one is read.
        let mut stream = broker.subscribe("t", "", &[("Last-Event-ID", &token)]);
        stream.control("gap");
        assert_eq!(stream.message().payload, b"of the new one");
    }
}

#[test]
fn a_memory_topic_beside_is_gone() {
    for end in ENDS {
        let mut broker = started(3);
        broker.create_topic_with(json!({ "storage": "memory" }), "in memory");
        broker.publish_numbers("in memory", 0..10);
        let mut stream = broker.subscribe("in memory", "?from_offset=0", &[]);
        let token = stream.messages(10).pop().unwrap().last_id;
        end(&mut broker);
        broker.restart();
        broker.get("/topics/in%20memory").expect_error(404, "topic_not_found");
        assert_eq!(broker.stats("t")["message_count"], 3);
        // Its name is free, and the old token is of another life.
        broker.create_topic_with(json!({ "storage": "memory" }), "in memory");
        broker.publish_numbers("in memory", 0..20);
        let mut stream = broker.subscribe("in memory", "", &[("Last-Event-ID", &token)]);
        stream.control("gap");
        assert_eq!(stream.message().offset, 0);
    }
}

#[test]
fn where_memory_is_the_rule_a_topic_may_ask_for_the_disk() {
    let mut broker = Setup::new().variable("WAL_DIR", "elsewhere").start();
    broker.create_topic("t");
    assert_eq!(broker.stats("t")["storage"], "memory");
    broker.create_topic_with(json!({ "storage": "wal" }), "kept");
    broker.publish_numbers("kept", 0..10);
    broker.end_at_once();
    assert!(broker.folder().join("elsewhere").is_dir());
    broker.restart();
    broker.get("/topics/t").expect_error(404, "topic_not_found");
    assert_eq!(page(&broker, "kept")["latest_offset"], 9);
}

#[test]
fn a_stream_resumes_by_its_token_without_a_gap() {
    for end in ENDS {
        let mut broker = started(10);
        let mut stream = broker.subscribe("t", "?from_offset=0", &[]);
        let mut token = stream.messages(10).pop().unwrap().last_id;
        for round in 1..4 {
            end(&mut broker);
            assert_eq!(stream.wait_for_end(), End::Cut, "no end in order, which some clients take for the last");
            broker.restart();
            let from = round * 10;
            broker.publish_numbers("t", from..from + 5);
            stream = broker.subscribe("t", "?from_offset=3", &[("Last-Event-ID", &token)]);
            broker.publish_numbers("t", from + 5..from + 10);
            for offset in from..from + 10 {
                // A gap would be no message.
                let message = stream.message();
                assert_eq!((message.offset, message.payload), (offset, offset.to_string().into_bytes()));
                token = message.last_id;
            }
        }
        let mut seen_nothing = broker.subscribe("t", "", &[]);
        seen_nothing.read_until("the first block gives an id", |stream| !stream.last_id.is_empty());
        end(&mut broker);
        broker.restart();
        broker.publish("t", b"40");
        let mut stream = broker.subscribe("t", "", &[("Last-Event-ID", &seen_nothing.last_id)]);
        assert_eq!(stream.message().offset, 40);
    }
}

#[test]
fn sockets_end_with_a_word_to_those_who_know_it() {
    let mut broker = started(3);
    let mut own = broker.websocket("t", "?from_offset=0", &[EXTENDED]);
    let mut plain = broker.websocket("t", "?from_offset=0", &[]);
    assert_eq!((own.offsets(3), plain.offsets(3)), (vec![0, 1, 2], vec![0, 1, 2]));
    broker.terminate();
    assert!(matches!(own.step(crate::deadline::LIMIT), Heard::Closed(1001, _)));
    assert_eq!(plain.step(crate::deadline::LIMIT), Heard::Cut);
    broker.restart();
    let mut socket = broker.websocket("t", "?from_offset=2", &[]);
    broker.publish("t", b"3");
    assert_eq!(socket.offsets(2), [2, 3]);
}

#[test]
fn publishes_in_hand_at_the_end_are_answered_and_kept() {
    let mut broker = started(0);
    let mut connections: Vec<_> = (0..8).map(|_| broker.connect()).collect();
    let requests = broker.request_to("POST", "/topics/t/publish", b"in hand").repeat(16);
    connections.iter_mut().for_each(|connection| connection.send(&requests));
    // The first answers show that the broker is at it.
    wait_until("the broker publishes", || broker.stats("t")["message_count"] != 0);
    broker.terminate();
    let mut answered = 0;
    for connection in &mut connections {
        while let Some(answer) = connection.try_response_to("POST") {
            answered += u64::from(answer.status == 202);
        }
    }
    assert!(answered > 0, "what was seen was answered");
    broker.restart();
    let count = broker.stats("t")["message_count"].as_u64().unwrap();
    assert!(count >= answered, "{answered} were answered, {count} are there");
    assert!(
        page(&broker, "t")["messages"].as_array().unwrap().iter().all(|message| message["payload"] == "aW4gaGFuZA==")
    );
}

#[test]
fn a_second_process_is_kept_out() {
    let broker = started(1);
    let folder = crate::broker::Folder::new();
    let mut command = crate::broker::program(&folder, &["timeout", "--signal=KILL", "30"]);
    command.current_dir(broker.folder()).env("STORAGE_MODE", "wal").args(["serve", "--port", "0"]);
    let output = command.output().unwrap();
    assert!(!output.status.success() && output.status.code().is_some(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("data"), "it says which folder: {output:?}");
    assert_eq!(broker.publish("t", b"x"), 1);
}
