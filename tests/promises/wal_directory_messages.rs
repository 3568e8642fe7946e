//! Promise: messages of the largest size are stored from the first moment on a fresh directory; the limit may be raised as far as the log can
//! hold a message, and no further.

use crate::deadline::wait_until;
use crate::http::request_bytes;
use crate::stored_directory::{DataDirectory, expect_refusal, serve};
use std::thread;

const MIB: usize = 1 << 20;

fn payload(number: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|place| number.wrapping_add((place / 4096) as u8)).collect()
}

#[test]
fn the_largest_messages_are_taken_right_after_the_first_start() {
    for shards in [1, 2] {
        let data = DataDirectory::new();
        let broker = data.setup().flag("--shards", shards).start();
        for topic in 0..4 {
            let name = format!("t{topic}");
            broker.create_logged_topic(&name);
            let offset = broker.publish(&name, &payload(topic, MIB));
            assert_eq!(offset, 0);
        }
        drop(broker);
        let broker = data.setup().flag("--shards", shards).start();
        for topic in 0..4 {
            let everything = broker.everything(&format!("t{topic}"), 0);
            assert!(everything.messages == [(0, payload(topic, MIB))], "t{topic}");
        }
    }
}

#[test]
fn many_of_the_largest_at_once_are_taken_or_refused_whole() {
    let data = DataDirectory::new();
    let broker = data.start();
    broker.create_logged_topic("t");
    let host = broker.address().to_string();
    let taken: Vec<u64> = thread::scope(|scope| {
        let publishers: Vec<_> = (0..8)
            .map(|number| {
                let (broker, host) = (&broker, &host);
                scope.spawn(move || {
                    let request = request_bytes(host, "POST", "/topics/t/publish", &[], &payload(number, MIB));
                    let mut connection = broker.connect();
                    let mut offset = None;
                    wait_until("it is taken", || {
                        connection.send(&request);
                        let answer = connection.response_to("POST");
                        match answer.status {
                            202 => offset = answer.data()["offset"].as_u64(),
                            _ => drop(answer.expect_error(503, "busy")),
                        }
                        offset.is_some()
                    });
                    offset.unwrap()
                })
            })
            .collect();
        publishers.into_iter().map(|publisher| publisher.join().unwrap()).collect()
    });
    drop(broker);
    let broker = data.start();
    let everything = broker.everything("t", 0);
    assert_eq!(everything.messages.len(), 8);
    for (number, offset) in taken.iter().enumerate() {
        assert!(everything.messages[*offset as usize].1 == payload(number as u8, MIB), "{number}");
    }
}

#[test]
fn the_limit_may_be_raised_as_far_as_the_log_holds_a_message() {
    let data = DataDirectory::new();
    let setup = || {
        let setup = data.setup().flag("--shards", 1).variable("RINGMAIN_MAX_MESSAGE_BYTES", 32 * MIB);
        setup.variable("RINGMAIN_MAX_BODY_BYTES", 64 * MIB)
    };
    let broker = setup().start();
    broker.create_logged_topic("t");
    let bytes = payload(7, 32 * MIB);
    for number in 0..4 {
        let mut offset = None;
        // Segments that hold such messages are made when the first one comes.
        wait_until("it is taken", || {
            let answer = broker.request("POST", "/topics/t/publish", &[], &bytes);
            match answer.status {
                202 => offset = answer.data()["offset"].as_u64(),
                _ => drop(answer.expect_error(503, "busy")),
            }
            offset.is_some()
        });
        assert_eq!(offset, Some(number));
    }
    assert_eq!(broker.publish("t", b"small"), 4);
    drop(broker);
    let broker = setup().start();
    let mut stream = broker.subscribe("t", "?from_offset=0&format=json", &[]);
    for message in stream.messages(4) {
        assert!(message.payload == bytes, "{}", message.offset);
    }
    assert_eq!(stream.message().payload, b"small");
    broker.request("POST", "/topics/t/publish", &[], &payload(1, 32 * MIB + 1)).expect_error(413, "payload_too_large");
}

#[test]
fn a_limit_that_no_log_holds_is_refused() {
    let data = DataDirectory::new();
    for bytes in [32 * MIB + 1, 64 * MIB] {
        let bytes = bytes.to_string();
        let variables = [("RINGMAIN_MAX_MESSAGE_BYTES", bytes.as_str()), ("RINGMAIN_MAX_BODY_BYTES", "268435456")];
        let told = expect_refusal(&serve(&data.arguments(), &variables));
        assert!(told.contains("RINGMAIN_MAX_MESSAGE_BYTES") && told.contains(&bytes), "{told}");
        assert!(!data.path().exists(), "a refused start makes nothing");
    }
}
