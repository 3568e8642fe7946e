//! Promise: a publish is answered 202 with the message's offset, dense from 0, and readers get back the bytes, the key
//! and the headers that were sent.

use crate::broker::Broker;
use crate::http::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

const JSON: (&str, &str) = ("Content-Type", "application/json");

fn broker_with_topic() -> Broker {
    let broker = Broker::start();
    broker.create_topic("t");
    broker
}

fn publish_json(broker: &Broker, body: &Value) -> Response {
    broker.request("POST", "/topics/t/publish", &[JSON], body.to_string().as_bytes())
}

fn stored(broker: &Broker) -> Vec<Value> {
    broker.get("/topics/t/messages?from_offset=0&limit=1000").expect(200).data()["messages"].as_array().unwrap().clone()
}

fn payload_of(message: &Value) -> Vec<u8> {
    STANDARD.decode(message["payload"].as_str().unwrap()).unwrap()
}

/// `2026-01-02T03:04:05.123456Z`: RFC 3339 in UTC with microseconds.
fn assert_is_timestamp(value: &Value) {
    let text = value.as_str().unwrap_or_else(|| panic!("{value} is no timestamp"));
    let shape: String = text.chars().map(|letter| if letter.is_ascii_digit() { '9' } else { letter }).collect();
    assert_eq!(shape, "9999-99-99T99:99:99.999999Z", "{text}");
}

#[test]
fn offsets_are_dense_from_zero() {
    let broker = broker_with_topic();
    for expected in 0..20 {
        let body = json!({ "payload": STANDARD.encode(format!("message {expected}")) });
        let answer = publish_json(&broker, &body).expect(202).data();
        assert_eq!(answer["offset"], expected);
        assert_eq!(answer["topic"], "t");
        assert_is_timestamp(&answer["timestamp"]);
    }
    let messages = stored(&broker);
    for (index, message) in messages.iter().enumerate() {
        assert_eq!(message["offset"], index);
        assert_eq!(payload_of(message), format!("message {index}").as_bytes());
    }
}

#[test]
fn a_reader_sees_the_timestamp_that_the_publisher_was_told() {
    let broker = broker_with_topic();
    let told = broker.request("POST", "/topics/t/publish", &[], b"x").expect(202).data();
    assert_eq!(stored(&broker)[0]["timestamp"], told["timestamp"]);
}

#[test]
fn every_message_has_an_id_of_its_own() {
    let broker = broker_with_topic();
    broker.publish_numbers("t", 0..3);
    let first = stored(&broker);
    broker.delete_topic("t");
    broker.create_topic("t");
    broker.publish_numbers("t", 0..3);
    let all: Vec<Value> = first.into_iter().chain(stored(&broker)).collect();
    let mut ids: Vec<&str> = all.iter().map(|message| message["id"].as_str().unwrap()).collect();
    for (index, id) in ids.iter().enumerate() {
        assert!(id.ends_with(&format!("-0-{}", index % 3)), "<incarnation>-<partition>-<offset>: {id}");
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 6, "ids are unique over the lives of a topic");
}

#[test]
fn any_bytes_survive_as_a_raw_body() {
    let broker = broker_with_topic();
    let all_bytes: Vec<u8> = (0..=255).collect();
    let payloads: [&[u8]; 6] = [b"", b"\n", b"\r\n\r\n", &all_bytes, "\u{feff}text".as_bytes(), b"data: id: event:"];
    let kinds = [None, Some("text/plain"), Some("application/octet-stream"), Some("application/xml; charset=utf-8")];
    for payload in payloads {
        for kind in kinds {
            let headers: Vec<(&str, &str)> = kind.map(|kind| ("Content-Type", kind)).into_iter().collect();
            broker.request("POST", "/topics/t/publish", &headers, payload).expect(202);
        }
    }
    let messages = stored(&broker);
    let expected = payloads.iter().flat_map(|payload| std::iter::repeat_n(payload, kinds.len()));
    assert_eq!(messages.len(), payloads.len() * kinds.len());
    for (message, payload) in messages.iter().zip(expected) {
        assert_eq!(payload_of(message), **payload);
    }
    let mut stream = broker.subscribe("t", "?from_offset=0", &[]);
    for message in &messages {
        let streamed = stream.message();
        assert_eq!(streamed.payload, payload_of(message));
        assert_eq!(streamed.value, *message, "a page and a stream tell the same");
    }
}

#[test]
fn the_media_type_is_read_without_parameters_and_case() {
    let broker = broker_with_topic();
    for kind in
        ["application/json", "Application/JSON", "application/json; charset=utf-8", "application/json;charset=UTF-8"]
    {
        broker.request("POST", "/topics/t/publish", &[("Content-Type", kind)], br#"{"payload":"aGk="}"#).expect(202);
    }
    assert!(stored(&broker).iter().all(|message| payload_of(message) == b"hi"));
}

#[test]
fn key_and_headers_are_delivered() {
    let broker = broker_with_topic();
    let body = json!({ "payload": "aGk=", "key": "customer-7 ü", "headers": { "trace": "abc", "Ünï": "cödé \"x\"" } });
    publish_json(&broker, &body).expect(202);
    let headers = [("X-Key", "customer-8"), ("X-Header-Trace", "def"), ("X-Header-Kind", "a, b")];
    broker.request("POST", "/topics/t/publish", &headers, b"raw").expect(202);
    broker.request("POST", "/topics/t/publish", &[], b"plain").expect(202);

    let messages = stored(&broker);
    assert_eq!(messages[0]["key"], "customer-7 ü");
    assert_eq!(messages[0]["headers"], json!({ "trace": "abc", "Ünï": "cödé \"x\"" }));
    assert_eq!(messages[1]["key"], "customer-8");
    let raw_headers = messages[1]["headers"].as_object().unwrap();
    let find =
        |name: &str| raw_headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    assert_eq!(find("trace"), Some(&json!("def")));
    assert_eq!(find("kind"), Some(&json!("a, b")));
    assert!(messages[2].get("key").is_none() && messages[2].get("headers").is_none(), "{}", messages[2]);

    let mut stream = broker.subscribe("t", "?from_offset=0", &[]);
    messages.iter().for_each(|message| assert_eq!(stream.message().value, *message));
}

#[test]
fn bad_base64_is_refused_and_not_stored() {
    let broker = broker_with_topic();
    for payload in ["a", "aGk", "aG k=", "aGk==", "a-k_", "====", "aGk=aGk="] {
        publish_json(&broker, &json!({ "payload": payload })).expect_error(400, "invalid_base64");
    }
    assert_eq!(broker.stats("t")["message_count"], 0);
}

#[test]
fn bad_json_is_refused_and_not_stored() {
    let broker = broker_with_topic();
    let bad = [
        "",
        "{",
        "null",
        "[]",
        "7",
        "{}",
        r#"{"payload":7}"#,
        r#"{"payload":"aGk="}}"#,
        r#"{"payload":"aGk=","key":7}"#,
        r#"{"payload":"aGk=","headers":[]}"#,
        r#"{"payload":"aGk=","headers":{"a":1}}"#,
        r#"{"payload":"aGk=","key":"\ud800"}"#,
        "{'payload':'aGk='}",
        r#"{"payload":"aGk=",}"#,
    ];
    for body in bad {
        let answer = broker.request("POST", "/topics/t/publish", &[JSON], body.as_bytes());
        answer.expect(400).expect_envelope_of_error();
    }
    broker.request("POST", "/topics/t/publish", &[JSON], b"{\"payload\":\"aGk=\",\"key\":\"\xff\"}").expect(400);
    assert_eq!(broker.stats("t")["message_count"], 0);
}

#[test]
fn unknown_fields_and_escapes_are_accepted() {
    let broker = broker_with_topic();
    let body = r#" { "extra" : [1, {"a": null}], "payload" : "aG\u006b\u003d" , "offset": 99 } "#;
    broker.request("POST", "/topics/t/publish", &[JSON], body.as_bytes()).expect(202);
    publish_json(&broker, &json!({ "payload": "" })).expect(202);
    // The line ends that encoders put into long base64 are passed over, as streamq passed over them.
    publish_json(&broker, &json!({ "payload": "aG\r\nk=\n" })).expect(202);
    let messages = stored(&broker);
    let payloads: Vec<Vec<u8>> = messages.iter().map(payload_of).collect();
    assert_eq!(payloads, [b"hi".to_vec(), Vec::new(), b"hi".to_vec()]);
}

#[test]
fn offsets_stay_dense_when_many_publish_at_once() {
    let broker = broker_with_topic();
    let mut connections: Vec<_> = (0..16).map(|_| broker.connect()).collect();
    let mut offsets = Vec::new();
    for round in 0..20 {
        for connection in &mut connections {
            connection.send_request("POST", "/topics/t/publish", &[], format!("{round}").as_bytes());
        }
        for connection in &mut connections {
            offsets.push(connection.response_to("POST").expect(202).data()["offset"].as_u64().unwrap());
        }
    }
    offsets.sort_unstable();
    assert_eq!(offsets, (0..320).collect::<Vec<u64>>());
}
