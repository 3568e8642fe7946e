//! Promise: a batch is stored whole or not at all, at neighbouring offsets, and answered once; a fault in it is told with
//! its place, and nothing of the batch is stored.

use crate::broker::{Broker, Folder, Setup, topic_path};
use crate::chance::{Chance, scaled};
use crate::deadline::{wait_for, wait_until};
use crate::http::{Connection, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const LINES: (&str, &str) = ("Content-Type", "application/x-ndjson");
const PAYLOADS: (&str, &str) = ("Content-Type", "application/vnd.ringmain.batch");
const MESSAGES_MAX: usize = 65_536;

/// A broker with the topic `t`, in memory or logged.
fn brokers() -> Vec<(&'static str, Broker, Folder)> {
    let start = |storage: &'static str| {
        let folder = Folder::new();
        let data = folder.path().join("data");
        let setup = Setup::new().variable("STORAGE_MODE", storage).variable("WAL_DIR", data.display());
        let broker = setup.flag("--retention", 1_000_000).start();
        broker.create_topic("t");
        (storage, broker, folder)
    };
    vec![start("memory"), start("wal")]
}

fn publish(broker: &Broker, query: &str, kind: (&str, &str), body: &[u8]) -> Response {
    broker.request("POST", &format!("/topics/t/publish{query}"), &[kind], body)
}

fn payloads(broker: &Broker) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    loop {
        let page = broker.get(&format!("/topics/t/messages?from_offset={}&limit=10000", payloads.len()));
        let page = page.expect(200).data();
        let messages = page["messages"].as_array().unwrap();
        payloads.extend(messages.iter().map(|message| STANDARD.decode(message["payload"].as_str().unwrap()).unwrap()));
        if messages.is_empty() {
            return payloads;
        }
    }
}

fn framed(payloads: &[&[u8]]) -> Vec<u8> {
    let framed = payloads.iter().flat_map(|payload| [&(payload.len() as u32).to_le_bytes(), *payload].concat());
    framed.collect()
}

#[test]
fn lines_and_payloads_are_stored_in_order_and_answered_once() {
    for (storage, broker, _folder) in brokers() {
        broker.publish("t", b"before");
        let lines = "{\"payload\":\"YQ==\",\"key\":\"k\",\"headers\":{\"h\":\"v\"}}\r\n\n  \n{\"payload\":\"Yg==\"}\n{\"payload\":\"\"}";
        let told = publish(&broker, "", LINES, lines.as_bytes()).expect(202).data();
        assert_eq!(
            (&told["first_offset"], &told["last_offset"], &told["count"], &told["topic"]),
            (&1.into(), &3.into(), &3.into(), &"t".into()),
            "{storage}"
        );
        let all_bytes: Vec<u8> = (0..=255).collect();
        let told = publish(&broker, "?ack=memory", PAYLOADS, &framed(&[&all_bytes, b"", b"\r\n"])).expect(202).data();
        assert_eq!((&told["first_offset"], &told["last_offset"], &told["count"]), (&4.into(), &6.into(), &3.into()));
        let one = publish(&broker, "?ack=durable", LINES, b"{\"payload\":\"YQ==\"}\n").expect(202).data();
        assert_eq!((&one["first_offset"], &one["last_offset"], &one["count"]), (&7.into(), &7.into(), &1.into()));
        let unwatched = publish(&broker, "?ack=none", PAYLOADS, &framed(&[b"x", b"y"])).expect(202).data();
        assert_eq!(unwatched, Value::Null);
        wait_until("the unwatched batch is there", || broker.stats("t")["message_count"] == 10);
        let expected: [&[u8]; 10] = [b"before", b"a", b"b", b"", &all_bytes, b"", b"\r\n", b"a", b"x", b"y"];
        assert_eq!(payloads(&broker), expected, "{storage}");
        let page = broker.get("/topics/t/messages?from_offset=1&limit=3").expect(200).data();
        assert_eq!((&page["messages"][0]["key"], &page["messages"][0]["headers"]["h"]), (&"k".into(), &"v".into()));
        assert_eq!(page["messages"][2]["timestamp"], page["messages"][0]["timestamp"]);
    }
}

#[test]
fn a_fault_names_its_place_and_nothing_is_stored() {
    for (_, broker, _folder) in brokers() {
        let good = r#"{"payload":"YQ=="}"#;
        let lines = [
            (format!("{good}\n\n{{\n{good}\n"), "invalid_json"),
            (format!("{good}\r\n\r\n{{\"payload\":\"-\"}}"), "invalid_base64"),
            (format!("{good}\n{good}\n[]\n"), "invalid_body"),
            (format!("{good}\n{good}\n{good}{good}\n"), "invalid_json"),
            (format!("{good}\n\n{{\"payload\":\"\",\"id\":\"\"}}"), "invalid_request"),
            (format!("{good}\n\n{{\"payload\":\"\",\"headers\":{{\"\":\"v\"}}}}"), "invalid_request"),
        ];
        for (body, code) in lines {
            let told = publish(&broker, "", LINES, body.as_bytes()).expect_error(400, code).json();
            assert!(told["message"].as_str().unwrap().contains("line 3 "), "{told}");
        }
        let mut cut = framed(&[b"one", b"two"]);
        cut.pop();
        for body in [&cut[..], b"\x03\0\0\0one\x01", b"\0\0\0\0\xff\xff\xff\xffabc"] {
            let told = publish(&broker, "", PAYLOADS, body).expect_error(400, "invalid_batch").json();
            assert!(told["message"].as_str().unwrap().contains("message 2 "), "{told}");
        }
        for (kind, body) in [(LINES, "".as_bytes()), (LINES, b"\n \r\n"), (PAYLOADS, b"")] {
            publish(&broker, "", kind, body).expect(400).expect_envelope_of_error();
        }
        broker
            .request("POST", "/topics/nothing/publish", &[LINES], good.as_bytes())
            .expect_error(404, "topic_not_found");
        assert_eq!(broker.stats("t")["message_count"], 0);
    }
}

#[test]
fn what_is_too_large_is_413_and_nothing_is_stored() {
    let broker = Setup::new().flag("--max-message-bytes", 100).flag("--max-body-bytes", 4 << 20).start();
    broker.create_topic("t");
    let large = json!({ "payload": STANDARD.encode([0; 101]) }).to_string();
    let told = publish(&broker, "", LINES, format!("{{\"payload\":\"\"}}\n{large}\n").as_bytes());
    let told = told.expect_error(413, "payload_too_large").json();
    assert!(told["message"].as_str().unwrap().contains("line 2 "), "{told}");
    let told = publish(&broker, "", PAYLOADS, &framed(&[b"", b"", &[0; 101]]));
    let told = told.expect_error(413, "payload_too_large").json();
    assert!(told["message"].as_str().unwrap().contains("message 3 "), "{told}");
    publish(&broker, "", PAYLOADS, &vec![0; 4 * (MESSAGES_MAX + 1)]).expect_error(413, "payload_too_large");
    publish(&broker, "", LINES, &b"{\"payload\":\"\"}\n".repeat(MESSAGES_MAX + 1))
        .expect_error(413, "payload_too_large");
    let headers = format!("{{\"payload\":\"\",\"headers\":{{\"a\":[{}\"\"]}}}}\n", "\"\",".repeat(63));
    publish(&broker, "", LINES, headers.repeat(8 * MESSAGES_MAX / 64 + 1).as_bytes())
        .expect_error(413, "payload_too_large");
    assert_eq!(broker.stats("t")["message_count"], 0);
    // What cannot fit is refused before it comes.
    let mut connection = broker.connect();
    connection.send_request("POST", "/topics/t/publish", &[LINES, ("Content-Length", "5000000")], b"");
    connection.response_to("POST").expect_error(413, "payload_too_large");
}

fn publish_in_chunks(broker: &Broker, body: &[u8]) -> Response {
    let mut connection = broker.connect();
    connection.send_request("POST", "/topics/t/publish", &[PAYLOADS, ("Transfer-Encoding", "chunked")], b"");
    for chunk in body.chunks(70_001) {
        connection.send(format!("{:x}\r\n", chunk.len()).as_bytes());
        connection.send(chunk);
        connection.send(b"\r\n");
    }
    connection.send(b"0\r\n\r\n");
    connection.response_to("POST")
}

#[test]
fn the_largest_batch_is_stored_whole() {
    for (storage, broker, _folder) in brokers() {
        let told = publish(&broker, "", PAYLOADS, &vec![0; 4 * MESSAGES_MAX]).expect(202).data();
        assert_eq!(
            (&told["count"], &told["last_offset"]),
            (&MESSAGES_MAX.into(), &(MESSAGES_MAX - 1).into()),
            "{storage}"
        );
        // And one of many bytes, in chunks; the log may have to make room for it first.
        let body = framed(&vec![&[7; 100_000][..]; 120]);
        let answer = wait_for("there is room for many bytes", || {
            let answer = publish_in_chunks(&broker, &body);
            (answer.status != 503).then_some(answer)
        });
        let told = answer.expect(202).data();
        assert_eq!((&told["first_offset"], &told["count"]), (&MESSAGES_MAX.into(), &120.into()), "{storage}");
        assert_eq!(broker.stats("t")["message_count"], MESSAGES_MAX + 120);
    }
}

#[test]
fn batches_of_many_connections_never_mix() {
    for (_, broker, _folder) in brokers() {
        let address = broker.address();
        thread::scope(|scope| {
            for writer in 0..4 {
                scope.spawn(move || {
                    let mut connection = Connection::open(address);
                    for batch in 0..10 {
                        let lines: Vec<String> = (0..20).map(|at| format!("{writer} {batch} {at}")).collect();
                        let lines: Vec<&[u8]> = lines.iter().map(String::as_bytes).collect();
                        connection.send_request("POST", "/topics/t/publish", &[PAYLOADS], &framed(&lines));
                        // Two in flight on each connection.
                        if batch > 0 {
                            connection.response_to("POST").expect(202);
                        }
                    }
                    connection.response_to("POST").expect(202);
                });
            }
        });
        let all: Vec<String> = payloads(&broker).into_iter().map(|text| String::from_utf8(text).unwrap()).collect();
        assert_eq!(all.len(), 800);
        for batch in all.chunks(20) {
            let (start, _) = batch[0].rsplit_once(' ').unwrap();
            let expected: Vec<String> = (0..20).map(|at| format!("{start} {at}")).collect();
            assert_eq!(batch, expected);
        }
    }
}

/// Publishes batches until the broker goes; notes each before it is sent and when it was answered.
fn publish_until_cut(
    address: std::net::SocketAddr,
    first: u64,
    sent: &Mutex<HashMap<u64, bool>>,
    answered: &AtomicUsize,
) {
    let mut connection = Connection::open(address);
    for number in (first..).step_by(16) {
        let size = 1 + (number as usize * 7919) % 40_000;
        let body: Vec<Vec<u8>> =
            (0..1 + number % 40).map(|at| format!("{number} {at} {}", "x".repeat(size)).into()).collect();
        let body: Vec<&[u8]> = body.iter().map(Vec::as_slice).collect();
        sent.lock().unwrap().insert(number, false);
        let request = format!(
            "POST {} HTTP/1.1\r\nHost: {address}\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n",
            topic_path("t", "/publish"),
            PAYLOADS.1,
            framed(&body).len()
        );
        if !(connection.try_send(request.as_bytes()) && connection.try_send(&framed(&body))) {
            return;
        }
        let Some(answer) = connection.try_response_to("POST") else { return };
        if answer.status == 202 {
            sent.lock().unwrap().insert(number, true);
            answered.fetch_add(1, Ordering::Relaxed);
        } else {
            assert_eq!(answer.status, 503, "{answer:?}");
            sent.lock().unwrap().remove(&number);
        }
    }
}

#[test]
fn a_killed_broker_leaves_no_part_of_a_batch() {
    let folder = Folder::new();
    let mut chance = Chance::for_test();
    let sent = Mutex::new(HashMap::new());
    for round in 0..scaled(4) as u64 {
        let data = folder.path().join("data");
        let broker = Setup::new().variable("STORAGE_MODE", "wal").variable("WAL_DIR", data.display()).start();
        if round == 0 {
            broker.create_topic("t");
        }
        let (address, answered) = (broker.address(), AtomicUsize::new(0));
        let enough = 1 + chance.below(40);
        thread::scope(|scope| {
            for writer in 0..4 {
                let (sent, answered) = (&sent, &answered);
                scope.spawn(move || publish_until_cut(address, round * 1_000_000 + writer, sent, answered));
            }
            wait_until("some batches were answered", || answered.load(Ordering::Relaxed) >= enough);
            drop(broker);
        });
    }
    let data = folder.path().join("data");
    let broker = Setup::new().variable("STORAGE_MODE", "wal").variable("WAL_DIR", data.display()).start();
    let mut stored: HashMap<u64, u64> = HashMap::new();
    for payload in payloads(&broker) {
        let text = String::from_utf8(payload).unwrap();
        let mut words = text.split(' ');
        let mut number = || words.next().unwrap().parse::<u64>().unwrap();
        let (batch, at) = (number(), number());
        let count = stored.entry(batch).or_default();
        assert_eq!(*count, at, "batch {batch} stands in order, once");
        *count += 1;
    }
    for (batch, was_answered) in sent.into_inner().unwrap() {
        let count = stored.remove(&batch).unwrap_or_default();
        assert!(count == 1 + batch % 40 || (count == 0 && !was_answered), "{count} messages of batch {batch}");
    }
    assert!(stored.is_empty(), "what was refused is stored: {:?}", stored.keys());
}
