//! A message's JSON has the members that streamq's clients read, is valid, and comes back as it was; on any core.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

use proptest::prelude::*;
use ringmain_wire::json::{Message, MessageOwned, decode_message, encode_message, timestamp_text, write_timestamp};
use serde_json::{Value, json};

const PLAIN: Message<'_> = Message {
    id: "00ab-0-7",
    offset: 7,
    topic: "payments",
    payload: b"hello",
    timestamp_us: 1_767_323_045_123_456,
    partition: None,
    key: None,
    headers: &[],
    attempt: None,
};

fn encode(message: &Message<'_>) -> String {
    let mut out = b"before".to_vec();
    encode_message(&mut out, message);
    String::from_utf8(out).unwrap().strip_prefix("before").unwrap().to_owned()
}

#[test]
fn the_contract_in_bytes() {
    assert_eq!(
        encode(&PLAIN),
        r#"{"id":"00ab-0-7","offset":7,"topic":"payments","payload":"aGVsbG8=","timestamp":"2026-01-02T03:04:05.123456Z"}"#
    );
    let headers: &[(&str, &[u8])] =
        &[("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"\xff"), ("a", b"\xfe"), ("c", b"\xfd")];
    let full = Message { partition: Some(3), key: Some(b"k\""), headers, attempt: Some(2), ..PLAIN };
    assert_eq!(
        encode(&full).split_once(",\"partition\"").unwrap().1,
        r#":3,"key":"k\"","headers":{"a":["1","3"],"b":"2"},"headers_base64":{"c":["/w==","/Q=="],"a":"/g=="},"attempt":2}"#
    );
}

#[test]
fn bytes_that_are_not_text_are_kept() {
    let message = Message { key: Some(b"\xff\xfe"), headers: &[("x", b"\x80")], ..PLAIN };
    let value: Value = serde_json::from_str(&encode(&message)).unwrap();
    assert_eq!(value.get("key"), None);
    assert_eq!(value.get("headers"), None);
    assert_eq!(value["key_base64"], json!("//4="));
    assert_eq!(value["headers_base64"], json!({"x": "gA=="}));
    let decoded = decode_message(encode(&message).as_bytes()).unwrap();
    assert_eq!(decoded.key.as_deref(), Some(&b"\xff\xfe"[..]));
    assert_eq!(decoded.headers, [("x".to_owned(), vec![0x80])]);
}

#[test]
fn timestamps_have_six_digits_in_utc() {
    let table = [
        (0, "1970-01-01T00:00:00.000000Z"),
        (1, "1970-01-01T00:00:00.000001Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (1_767_323_045_000_000, "2026-01-02T03:04:05.000000Z"),
        (1_767_323_045_120_000, "2026-01-02T03:04:05.120000Z"),
        (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
    ];
    for (microseconds, text) in table {
        assert_eq!(timestamp_text(microseconds), text);
    }
    for extreme in [i64::MIN, i64::MAX] {
        assert!(timestamp_text(extreme).ends_with('Z'), "out of range is clamped");
    }
    let mut out = Vec::new();
    write_timestamp(&mut out, 0);
    assert_eq!(out, b"1970-01-01T00:00:00.000000Z");
}

#[test]
fn messages_of_other_brokers_decode() {
    let json = r#"{"id":"x","offset":0,"topic":"t","payload":null,"timestamp":"2026-01-02T05:04:05.123456789+02:00","more":[{}]}"#;
    let decoded = decode_message(json.as_bytes()).unwrap();
    assert_eq!((decoded.timestamp_us, decoded.payload.len()), (1_767_323_045_123_456, 0));
}

#[test]
fn messages_that_cannot_be_read_are_refused() {
    for json in [
        "",
        "{}",
        "[]",
        r#"{"id":"x","offset":-1,"topic":"t","payload":"","timestamp":"2026-01-02T03:04:05Z"}"#,
        r#"{"id":"x","offset":0,"topic":"t","payload":"?","timestamp":"2026-01-02T03:04:05Z"}"#,
        r#"{"id":"x","offset":0,"topic":"t","payload":"","timestamp":"yesterday"}"#,
        r#"{"id":"x","offset":0,"topic":"t","payload":"","timestamp":"2026-01-02T03:04:05Z","key_base64":"?"}"#,
    ] {
        let refusal = decode_message(json.as_bytes()).expect_err(json);
        assert_eq!((refusal.status, refusal.code), (502, "invalid_message"));
    }
}

prop_compose! {
    fn any_message()(
        (id, offset, topic, payload) in (".{0,12}", any::<u64>(), ".{0,12}", proptest::collection::vec(any::<u8>(), 0..100)),
        timestamp_us in 0_i64..4_000_000_000_000_000,
        partition in any::<Option<u32>>(),
        key in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..6)),
        headers in proptest::collection::btree_map(r#"[ab"\\]{0,3}"#, proptest::collection::vec(any::<u8>(), 0..4), 0..5),
        attempt in any::<Option<u32>>(),
    ) -> MessageOwned {
        // Text first, then bytes, each by name: the order that the two objects keep.
        let (text, binary): (Vec<_>, Vec<_>) = headers.into_iter().partition(|(_, value)| str::from_utf8(value).is_ok());
        let headers = text.into_iter().chain(binary).collect();
        MessageOwned { id, offset, topic, payload, timestamp_us, partition, key, headers, attempt }
    }
}

proptest! {
    #[test]
    fn messages_come_back(message in any_message()) {
        let headers: Vec<(&str, &[u8])> = message.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        let text = encode(&Message {
            id: &message.id,
            offset: message.offset,
            topic: &message.topic,
            payload: &message.payload,
            timestamp_us: message.timestamp_us,
            partition: message.partition,
            key: message.key.as_deref(),
            headers: &headers,
            attempt: message.attempt,
        });
        prop_assert!(!text.contains(['\n', '\r']));
        let value: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&value["topic"], &json!(message.topic));
        prop_assert_eq!(&value["offset"], &json!(message.offset));
        prop_assert_eq!(decode_message(text.as_bytes()), Ok(message));
    }
}
