//! Events are written byte for byte as browsers and streamq's clients expect them; on any core.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

use ringmain_wire::sse;

fn bytes(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_message_has_its_id_and_one_data_line() {
    let json = br#"{"id":"00ab-0-7","offset":7,"topic":"payments","payload":"aGVsbG8=","timestamp":"2026-01-02T03:04:05.123456Z"}"#;
    assert_eq!(
        bytes(|out| sse::message(out, "1~00ab.0.8", json)),
        "id: 1~00ab.0.8\ndata: {\"id\":\"00ab-0-7\",\"offset\":7,\"topic\":\"payments\",\"payload\":\"aGVsbG8=\",\
         \"timestamp\":\"2026-01-02T03:04:05.123456Z\"}\n\n"
    );
}

#[test]
fn control_events_have_no_space_after_data() {
    let json = br#"{"requested":1,"resumed":5}"#;
    assert_eq!(
        bytes(|out| sse::control(out, "gap", Some("x"), json)),
        "event: gap\nid: x\ndata:{\"requested\":1,\"resumed\":5}\n\n"
    );
    assert_eq!(bytes(|out| sse::control(out, "end", None, b"{}")), "event: end\ndata:{}\n\n");
}

#[test]
fn text_is_split_into_lines() {
    let table = [
        ("", "data: \n\n"),
        ("a", "data: a\n\n"),
        (" a ", "data:  a \n\n"),
        ("\n", "data: \ndata: \n\n"),
        ("a\n", "data: a\ndata: \n\n"),
        ("a\nb\rc\r\nd", "data: a\ndata: b\ndata: c\ndata: d\n\n"),
        ("a\n\rb", "data: a\ndata: \ndata: b\n\n"),
        ("\u{feff}a", "data: \u{feff}a\n\n"),
    ];
    for (data, expected) in table {
        assert_eq!(bytes(|out| sse::event(out, None, None, data)), expected, "{data:?}");
    }
}

#[test]
fn ids_and_names_cannot_start_a_line() {
    assert_eq!(
        bytes(|out| sse::event(out, Some("1\n\ndata: x\0"), Some("a\rb"), "c")),
        "event: ab\nid: 1data: x\ndata: c\n\n"
    );
    assert_eq!(bytes(|out| sse::message(out, "1\r\n2", b"{}")), "id: 12\ndata: {}\n\n");
}

#[test]
fn comments_checkpoints_and_retry() {
    assert_eq!(bytes(|out| sse::comment(out, "")), ":\n\n");
    assert_eq!(bytes(|out| sse::comment(out, "alive\ndata: x")), ": alive\n: data: x\n\n");
    assert_eq!(bytes(|out| sse::retry(out, 2500)), "retry: 2500\n\n");
    assert_eq!(bytes(|out| sse::checkpoint(out, "9")), "id: 9\n\n");
}
