//! Promise: a message with an id is stored once, however often it is published: each repeat gets the first answer, also after
//! the broker was killed; another message under the same id is refused.

use crate::broker::{Broker, Folder, Setup};
use crate::chance::{Chance, scaled};
use crate::deadline::{LIMIT, wait_until};
use crate::http::{Connection, Response};
use crate::metrics::Exposition;
use crate::websocket::Heard;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const JSON: (&str, &str) = ("Content-Type", "application/json");
const LINES: (&str, &str) = ("Content-Type", "application/x-ndjson");

fn logged(folder: &Folder) -> Broker {
    Setup::new().variable("STORAGE_MODE", "wal").variable("WAL_DIR", folder.path().join("data").display()).start()
}

fn raw(broker: &Broker, id: &str, body: &[u8]) -> Response {
    broker.request("POST", "/topics/t/publish", &[("Idempotency-Key", id)], body)
}

fn lines(broker: &Broker, messages: &[Value]) -> Response {
    let body: String = messages.iter().map(|message| format!("{message}\n")).collect();
    broker.request("POST", "/topics/t/publish", &[LINES], body.as_bytes())
}

#[test]
fn a_repeat_is_answered_like_the_first_and_stored_once() {
    let folder = Folder::new();
    for broker in [Broker::start(), logged(&folder)] {
        broker.create_topic("t");
        let first = raw(&broker, "a", b"one").expect(202).data();
        broker.publish("t", b"between");
        for _ in 0..3 {
            assert_eq!(raw(&broker, "a", b"one").expect(202).data(), first);
        }
        // The same message in another form is the same message.
        let body = json!({ "payload": STANDARD.encode("one"), "id": "a" });
        assert_eq!(
            broker.request("POST", "/topics/t/publish", &[JSON], body.to_string().as_bytes()).expect(202).data(),
            first
        );
        let body = json!({ "payload": STANDARD.encode("one") }).to_string();
        let headers = [JSON, ("Idempotency-Key", "a")];
        assert_eq!(broker.request("POST", "/topics/t/publish", &headers, body.as_bytes()).expect(202).data(), first);
        // Ids belong to their topic.
        broker.create_topic("other");
        let answer = broker.request("POST", "/topics/other/publish", &[("Idempotency-Key", "a")], b"another");
        assert_eq!(answer.expect(202).data()["offset"], 0);
        let stats = broker.stats("t");
        assert_eq!((&stats["message_count"], &stats["known_ids"]), (&2.into(), &1.into()));
        assert_eq!(Exposition::read(&broker).value("ringmain_message_ids", &[("topic", "t")]), Some(1.0));
    }
}

#[test]
fn another_message_under_the_same_id_is_refused() {
    let broker = Broker::start();
    broker.create_topic("t");
    let publish = |body: Value| broker.request("POST", "/topics/t/publish", &[JSON], body.to_string().as_bytes());
    publish(json!({ "payload": "YQ==", "key": "k", "headers": { "h": "v" }, "id": "a" })).expect(202);
    let others = [
        json!({ "payload": "Yg==", "key": "k", "headers": { "h": "v" }, "id": "a" }),
        json!({ "payload": "YQ==", "key": "l", "headers": { "h": "v" }, "id": "a" }),
        json!({ "payload": "YQ==", "key": "", "headers": { "h": "v" }, "id": "a" }),
        json!({ "payload": "YQ==", "headers": { "h": "v" }, "id": "a" }),
        json!({ "payload": "YQ==", "key": "k", "headers": { "h": "w" }, "id": "a" }),
        json!({ "payload": "YQ==", "key": "k", "headers": { "hv": "" }, "id": "a" }),
        json!({ "payload": "YQ==", "key": "k", "id": "a" }),
    ];
    for other in others {
        publish(other).expect_error(422, "id_reused");
    }
    lines(&broker, &[json!({ "payload": "Yg==" }), json!({ "payload": "YQ==", "id": "a" })])
        .expect_error(422, "id_reused");
    lines(&broker, &[json!({ "payload": "Yg==", "id": "b" }), json!({ "payload": "YQ==", "id": "b" })])
        .expect_error(422, "id_reused");
    assert_eq!(broker.stats("t")["message_count"], 1);
}

#[test]
fn ids_that_cannot_be_used_are_refused() {
    let broker = Broker::start();
    broker.create_topic("t");
    let longest = "x".repeat(1024);
    raw(&broker, &longest, b"one").expect(202);
    for id in ["", &format!("{longest}x")] {
        raw(&broker, id, b"one").expect_error(400, "invalid_request");
        let body = json!({ "payload": "", "id": id }).to_string();
        broker.request("POST", "/topics/t/publish", &[JSON], body.as_bytes()).expect_error(400, "invalid_request");
    }
    for kind in ["application/x-ndjson", "application/vnd.ringmain.batch"] {
        let headers = [("Content-Type", kind), ("Idempotency-Key", "a")];
        let answer = broker.request("POST", "/topics/t/publish", &headers, b"{\"payload\":\"\"}");
        let told = answer.expect_error(400, "invalid_request").json();
        assert!(told["message"].as_str().unwrap().contains("each line"), "{told}");
    }
    let headers = [JSON, ("Idempotency-Key", "a")];
    broker
        .request("POST", "/topics/t/publish", &headers, br#"{"payload":"","id":"b"}"#)
        .expect_error(400, "invalid_request");
    let headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")];
    broker.request("POST", "/topics/t/publish", &headers, b"").expect_error(400, "invalid_request");
    assert_eq!(broker.stats("t")["message_count"], 1);
}

#[test]
fn a_batch_stores_what_is_new_in_it() {
    let folder = Folder::new();
    for broker in [Broker::start(), logged(&folder)] {
        broker.create_topic("t");
        let message = |name: &str| json!({ "payload": STANDARD.encode(name), "id": name });
        let first = lines(&broker, &[message("a"), message("b")]).expect(202).data();
        assert_eq!((&first["first_offset"], &first["last_offset"]), (&0.into(), &1.into()));
        assert_eq!(lines(&broker, &[message("a"), message("b")]).expect(202).data(), first);
        let grown = lines(&broker, &[message("b"), message("c"), message("c")]).expect(202).data();
        assert_eq!((&grown["first_offset"], &grown["last_offset"], &grown["count"]), (&1.into(), &2.into(), &3.into()));
        assert_eq!(broker.stats("t")["message_count"], 3);
    }
}

#[test]
fn repeats_at_the_same_time_are_answered_alike() {
    let folder = Folder::new();
    for broker in [Broker::start(), logged(&folder)] {
        broker.create_topic("t");
        let mut connections: Vec<_> = (0..12).map(|_| broker.connect()).collect();
        for round in 0..20 {
            let (id, body) = (format!("id {round}"), format!("body {round}"));
            for connection in &mut connections {
                connection.send_request("POST", "/topics/t/publish", &[("Idempotency-Key", &id)], body.as_bytes());
            }
            for connection in &mut connections {
                let told = connection.response_to("POST").expect(202).data();
                assert_eq!(told["offset"], round);
            }
        }
        assert_eq!(broker.stats("t")["message_count"], 20);
    }
}

#[test]
fn a_socket_publishes_once_too() {
    let broker = Broker::start();
    broker.create_topic("t");
    let mut socket = broker.websocket("t", "?from_offset=0", &[]);
    let publish = json!({ "payload": "YQ==", "id": "a" });
    socket.say(json!({ "publish": publish, "ref": 1 }));
    // The message itself and the answer come in any order.
    let mut first = Value::Null;
    for _ in 0..2 {
        match socket.step(LIMIT) {
            Heard::Message(message) => assert_eq!(message.payload, b"a"),
            Heard::Other(answer) => first = answer,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(first["published"]["offset"], 0);
    socket.say(json!({ "publish": publish, "ref": 1 }));
    assert_eq!(socket.other(), first);
    socket.say(json!({ "publish": { "payload": "Yg==", "id": "a" }, "ref": 2 }));
    assert_eq!(socket.other()["error"]["code"], "id_reused");
    socket.say(json!({ "publish": { "payload": "Yg==", "id": "" }, "ref": 3 }));
    assert_eq!(socket.other()["error"]["status"], 400);
    assert_eq!(raw(&broker, "a", b"a").expect(202).data()["timestamp"], first["published"]["timestamp"]);
    assert_eq!(broker.stats("t")["message_count"], 1);
}

#[test]
fn ids_are_known_when_the_log_has_moved_on() {
    let folder = Folder::new();
    let broker = logged(&folder);
    broker.create_topic("t");
    let checkpoints = || {
        let metrics = broker.get("/metrics").expect(200).text();
        let values = metrics.lines().filter_map(|line| {
            line.strip_prefix("ringmain_wal_checkpoints_total{")?.split(' ').nth(1)?.parse::<f64>().ok()
        });
        values.sum::<f64>()
    };
    let small = raw(&broker, "small", b"small").expect(202).data();
    let (before, body) = (checkpoints(), vec![b'x'; 1_000_000]);
    let mut told = Vec::new();
    // The log is cut behind checkpoints: what they do not say of ids would be forgotten.
    wait_until("two checkpoints were made", || {
        let answer = raw(&broker, &format!("large {}", told.len()), &body);
        if answer.status != 503 {
            told.push(answer.expect(202).data());
        }
        checkpoints() >= before + 2.0
    });
    drop(broker);
    let broker = logged(&folder);
    assert_eq!(raw(&broker, "small", b"small").expect(202).data(), small);
    for (number, told) in told.iter().enumerate() {
        assert_eq!(raw(&broker, &format!("large {number}"), &body).expect(202).data(), *told);
    }
    assert_eq!(broker.stats("t")["latest_offset"], told.len());
    assert_eq!(broker.stats("t")["known_ids"], told.len() + 1);
}

/// What was sent under each id, and the answer if there was one.
type Ledger = Mutex<HashMap<u64, Option<Value>>>;

fn body_of(number: u64) -> Vec<u8> {
    format!("message {number} {}", "x".repeat((number as usize * 7919) % 3000)).into_bytes()
}

/// Publishes one message after another under new ids until the broker goes.
fn publish_until_cut(address: SocketAddr, first: u64, ledger: &Ledger, answered: &AtomicUsize) {
    let mut connection = Connection::open(address);
    for number in (first..).step_by(16) {
        ledger.lock().unwrap().insert(number, None);
        match publish_once(&mut connection, address, number) {
            Some(told) => ledger.lock().unwrap().insert(number, Some(told)),
            None => return,
        };
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// Publishes a message until it is stored; nothing when the broker has gone.
fn publish_once(connection: &mut Connection, address: SocketAddr, number: u64) -> Option<Value> {
    let body = body_of(number);
    let head = format!(
        "POST /topics/t/publish HTTP/1.1\r\nHost: {address}\r\nIdempotency-Key: {number}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    loop {
        if !connection.try_send(&[head.as_bytes(), &body].concat()) {
            return None;
        }
        let answer = connection.try_response_to("POST")?;
        if answer.status != 503 {
            return Some(answer.expect(202).data());
        }
    }
}

/// Publishes all of `numbers` again, some together as lines.
fn publish_again(broker: &Broker, numbers: &[u64], ledger: &Ledger, chance: &mut Chance) {
    let mut rest = numbers;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(1 + chance.below(rest.len().min(5)));
        rest = later;
        if let [number] = now {
            let told = publish_once(&mut broker.connect(), broker.address(), *number).expect("an answer");
            let before = ledger.lock().unwrap().insert(*number, Some(told.clone())).flatten();
            assert!(before.as_ref().is_none_or(|before| *before == told), "{number}: {before:?}, then {told}");
        } else {
            let message =
                |number: &u64| json!({ "payload": STANDARD.encode(body_of(*number)), "id": number.to_string() });
            let messages: Vec<Value> = now.iter().map(message).collect();
            wait_until("the log takes the batch", || lines(broker, &messages).status == 202);
        }
    }
}

#[test]
fn killed_brokers_store_nothing_twice() {
    let folder = Folder::new();
    let mut chance = Chance::for_test();
    let ledger = Ledger::default();
    for round in 0..scaled(6) as u64 {
        let broker = logged(&folder);
        if round == 0 {
            broker.create_topic("t");
        }
        // Everything that was not answered before the kill is tried again, and some of what was.
        let mut again: Vec<u64> = {
            let known = ledger.lock().unwrap();
            known
                .iter()
                .filter(|(number, told)| told.is_none() || *number % 7 == round % 7)
                .map(|(number, _)| *number)
                .collect()
        };
        again.sort_unstable();
        publish_again(&broker, &again, &ledger, &mut chance);
        let (address, answered) = (broker.address(), AtomicUsize::new(0));
        let enough = 1 + chance.below(400);
        thread::scope(|scope| {
            for writer in 0..6 {
                let (ledger, answered) = (&ledger, &answered);
                scope.spawn(move || publish_until_cut(address, round * 1_000_000 + writer, ledger, answered));
            }
            wait_until("some messages were answered", || answered.load(Ordering::Relaxed) >= enough);
            drop(broker);
        });
    }
    let broker = logged(&folder);
    let all: Vec<u64> = ledger.lock().unwrap().keys().copied().collect();
    publish_again(&broker, &all, &ledger, &mut chance);
    let (mut stored, mut next) = (HashMap::new(), 0);
    loop {
        let page = broker.get(&format!("/topics/t/messages?from_offset={next}&limit=10000")).expect(200).data();
        for message in page["messages"].as_array().unwrap() {
            let payload = STANDARD.decode(message["payload"].as_str().unwrap()).unwrap();
            let number: u64 = String::from_utf8(payload).unwrap().split(' ').nth(1).unwrap().parse().unwrap();
            assert!(stored.insert(number, message["offset"].clone()).is_none(), "{number} is stored twice");
        }
        if page["next_offset"].as_u64().unwrap() == next {
            break;
        }
        next = page["next_offset"].as_u64().unwrap();
    }
    for (number, told) in ledger.into_inner().unwrap() {
        let offset = stored.remove(&number).unwrap_or_else(|| panic!("{number} is lost"));
        assert!(told.is_none_or(|told| told["offset"] == offset), "{number} stands at {offset}");
        // And another message is not taken for it.
        if chance.below(20) == 0 {
            raw(&broker, &number.to_string(), b"another").expect_error(422, "id_reused");
        }
    }
    assert!(stored.is_empty());
    assert_eq!(broker.stats("t")["latest_offset"], next - 1);
}
