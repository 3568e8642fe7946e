//! Promise: a subscriber's frames are taken whole, in pieces, and with control frames between; what breaks RFC 6455 closes
//! the connection with the code that the RFC names, and nothing else.

use crate::broker::{Broker, Setup};
use crate::deadline::{LIMIT, wait_until};
use crate::websocket::{BINARY, CLOSE, CONTINUATION, Frame, Heard, LAST, PING, PONG, TEXT, WebSocket, frame_bytes};
use serde_json::json;
use std::time::{Duration, Instant};

fn subscriber(broker: &Broker) -> WebSocket {
    broker.websocket("t", "", &[])
}

fn started() -> Broker {
    let broker = Setup::new().flag("--max-body-bytes", 100_000).flag("--max-message-bytes", 1000).start();
    broker.create_topic("t");
    broker
}

fn next_frame(socket: &mut WebSocket) -> Frame {
    socket.frame(Instant::now() + LIMIT).expect("a frame instead of the end").expect("a frame in time")
}

#[test]
fn messages_in_pieces_are_one_and_control_frames_may_come_between() {
    let broker = started();
    let mut socket = subscriber(&broker);
    socket.send_frame(TEXT, b"{\"pi");
    socket.send_frame(LAST | PING, b"between");
    assert_eq!(next_frame(&mut socket), Frame { opcode: PONG, payload: b"between".to_vec() });
    socket.send_frame(CONTINUATION, b"");
    socket.send_frame(LAST | PONG, b"nobody asked");
    socket.send_frame(CONTINUATION, "ng\":\"ü".as_bytes().split_last().unwrap().1);
    // The rest of the letter comes in another frame.
    socket.send_frame(LAST | CONTINUATION, &["ü".as_bytes()[1], b'"', b'}']);
    assert_eq!(socket.other(), json!({ "pong": "ü" }));
    for byte in frame_bytes(LAST | TEXT, br#"{"ping":2}"#) {
        socket.connection.send(&[byte]);
    }
    assert_eq!(socket.other(), json!({ "pong": 2 }));
}

#[test]
fn pings_are_answered_with_their_payload() {
    let broker = started();
    let mut socket = subscriber(&broker);
    for payload in [&b""[..], b"\0\xff", &[b'x'; 125]] {
        socket.send_frame(LAST | PING, payload);
        assert_eq!(next_frame(&mut socket), Frame { opcode: PONG, payload: payload.to_vec() });
    }
}

#[test]
fn what_breaks_the_protocol_closes_with_1002() {
    let broker = started();
    let unmasked = [&[LAST | TEXT, 2][..], b"{}"].concat();
    let not_minimal = [&[LAST | TEXT, 0x80 | 126, 0, 2][..], &[0; 6]].concat();
    let endless = [&[LAST | TEXT, 0x80 | 127][..], &[0xff; 8], &[0; 4]].concat();
    let cases = [
        ("unmasked", unmasked),
        ("a reserved bit", frame_bytes(LAST | 0x40 | TEXT, b"{}")),
        ("an unknown opcode", frame_bytes(LAST | 3, b"")),
        ("an unknown control opcode", frame_bytes(LAST | 11, b"")),
        ("a long ping", frame_bytes(LAST | PING, &[0; 126])),
        ("a ping in pieces", frame_bytes(PING, b"")),
        ("a continuation of nothing", frame_bytes(LAST | CONTINUATION, b"")),
        ("a message inside a message", [frame_bytes(TEXT, b"{"), frame_bytes(LAST | TEXT, b"}")].concat()),
        ("a length not in its shortest form", not_minimal),
        ("a length with its top bit set", endless),
        ("a close payload of one byte", frame_bytes(LAST | CLOSE, &[3])),
        ("a close code that nobody may send", frame_bytes(LAST | CLOSE, &1005_u16.to_be_bytes())),
    ];
    for (what, bytes) in cases {
        let mut socket = subscriber(&broker);
        socket.connection.send(&bytes);
        assert_eq!(socket.close_code(), 1002, "{what}");
    }
    broker.wait_for_subscribers("t", 0);
}

#[test]
fn text_that_is_no_utf_8_closes_with_1007() {
    let broker = started();
    let cases = [
        ("a whole frame", frame_bytes(LAST | TEXT, b"{\"ping\":\"\xff\"}")),
        ("an unfinished letter", frame_bytes(LAST | TEXT, b"\xc3")),
        (
            "a surrogate over two frames",
            [frame_bytes(TEXT, b"\xed"), frame_bytes(LAST | CONTINUATION, b"\xa0\x80")].concat(),
        ),
        ("at once, in a message that is not whole", frame_bytes(TEXT, b"\xc0\xaf")),
        ("a close reason", frame_bytes(LAST | CLOSE, b"\x03\xe8\xff")),
    ];
    for (what, bytes) in cases {
        let mut socket = subscriber(&broker);
        socket.connection.send(&bytes);
        assert_eq!(socket.close_code(), 1007, "{what}");
    }
}

#[test]
fn what_is_too_big_closes_with_1009_before_it_is_sent() {
    let broker = started();
    // Of a frame, the length alone is enough: none of its bytes is sent.
    let announced = [&[LAST | TEXT, 0x80 | 127][..], &100_001_u64.to_be_bytes(), &[0; 4]].concat();
    let mut socket = subscriber(&broker);
    socket.connection.send(&announced);
    assert_eq!(socket.close_code(), 1009);
    let mut socket = subscriber(&broker);
    socket.send_frame(TEXT, &[b' '; 60_000]);
    socket.connection.send(&frame_bytes(LAST | CONTINUATION, &[b' '; 60_000])[..8]);
    assert_eq!(socket.close_code(), 1009);
    // As much as is allowed is no fault.
    let mut socket = subscriber(&broker);
    socket.send_frame(LAST | TEXT, &[&[b' '; 99_000][..], br#"{"ping":1}"#].concat());
    assert_eq!(socket.other(), json!({ "pong": 1 }));
}

#[test]
fn binary_frames_have_no_meaning_to_a_subscription() {
    let broker = started();
    let mut socket = subscriber(&broker);
    socket.send_frame(LAST | BINARY, b"\0");
    assert_eq!(socket.close_code(), 1003);
}

#[test]
fn a_close_is_answered_once_and_nothing_follows() {
    let broker = started();
    for (payload, code) in
        [(&1000_u16.to_be_bytes()[..], 1000), (&3333_u16.to_be_bytes(), 3333), (b"\x0f\xa0bye", 4000)]
    {
        let mut socket = subscriber(&broker);
        socket.send_frame(LAST | CLOSE, payload);
        assert_eq!(socket.close_code(), code);
    }
    let mut socket = subscriber(&broker);
    socket.send_frame(LAST | CLOSE, b"");
    let frame = next_frame(&mut socket);
    assert!(frame.opcode == CLOSE && (frame.payload.is_empty() || frame.payload[..2] == 1000_u16.to_be_bytes()));
    broker.wait_for_subscribers("t", 0);
}

#[test]
fn what_is_sent_after_a_close_is_not_heard() {
    let broker = started();
    let mut socket = subscriber(&broker);
    let late = json!({ "publish": { "payload": "bGF0ZQ==" }, "ref": 1 }).to_string();
    let bytes =
        [frame_bytes(LAST | CLOSE, &1000_u16.to_be_bytes()), frame_bytes(LAST | TEXT, late.as_bytes())].concat();
    socket.connection.send(&bytes);
    assert_eq!(socket.close_code(), 1000);
    assert_eq!(broker.stats("t")["message_count"], 0);
}

#[test]
fn mistakes_in_what_is_said_are_told_to_those_who_asked() {
    let broker = started();
    let mut own = broker.websocket("t", "", &[crate::websocket::EXTENDED]);
    let mut plain = subscriber(&broker);
    for text in ["", "no JSON", "[]", "7", "{}", r#"{"what":1}"#, r#"{"ack":-1}"#, r#"{"ack":7}"#, r#"{"credit":5}"#] {
        own.send_frame(LAST | TEXT, text.as_bytes());
        let told = own.other();
        assert_eq!(told["error"]["status"], 400, "{text}: {told}");
        assert!(told["error"]["code"].is_string() && told["error"]["message"].is_string(), "{told}");
        plain.send_frame(LAST | TEXT, text.as_bytes());
    }
    plain.expect_nothing_before_pong();
    for wish in [json!({ "ack": 1, "ref": 5 }), json!({ "publish": { "payload": "!" }, "ref": 5 }), json!({ "ref": 5 })]
    {
        plain.say(wish);
        let told = plain.other();
        assert!(told["error"]["status"] == 400 && told["ref"] == 5, "{told}");
    }
    let large = json!({ "payload": "A".repeat(4000) });
    plain.say(json!({ "publish": large, "ref": 6 }));
    let told = plain.other();
    assert!(told["error"]["status"] == 413 && told["error"]["code"] == "payload_too_large", "{told}");
}

#[test]
fn publishing_works_with_and_without_a_reference() {
    let broker = started();
    let mut socket = subscriber(&broker);
    socket.say(json!({ "publish": { "payload": "AP8=" } }));
    assert_eq!(socket.message().payload, [0, 255]);
    socket.say(json!({ "publish": { "payload": "eA==", "key": "k", "headers": { "h": "v" } }, "ref": { "any": [1] } }));
    let heard = [socket.step(LIMIT), socket.step(LIMIT)];
    let published = heard.iter().find_map(|heard| match heard {
        Heard::Other(value) => Some(value.clone()),
        _ => None,
    });
    let published = published.unwrap();
    assert_eq!(published["ref"], json!({ "any": [1] }));
    assert!(published["published"]["offset"] == 1 && published["published"]["topic"] == "t", "{published}");
    let message = heard.iter().find_map(|heard| match heard {
        Heard::Message(message) => Some(message.value.clone()),
        _ => None,
    });
    let message = message.unwrap();
    assert!(message["key"] == "k" && message["headers"]["h"] == "v", "{message}");
    assert_eq!(published["published"]["timestamp"], message["timestamp"]);
}

#[test]
fn many_publishes_at_once_are_answered_in_order() {
    let broker = started();
    let mut socket = subscriber(&broker);
    let bytes: Vec<u8> = (0..1000)
        .flat_map(|number| {
            let wish = json!({ "publish": { "payload": "eA==" }, "ref": number });
            frame_bytes(LAST | TEXT, wish.to_string().as_bytes())
        })
        .collect();
    let mut sender = socket.connection.sender();
    std::thread::scope(|scope| {
        scope.spawn(move || std::io::Write::write_all(&mut sender, &bytes).unwrap());
        let (mut messages, mut answers) = (0, 0);
        while messages < 1000 || answers < 1000 {
            match socket.step(LIMIT) {
                Heard::Message(message) => {
                    assert_eq!(message.offset, messages);
                    messages += 1;
                }
                Heard::Other(value) => {
                    assert!(value["ref"] == answers && value["published"]["offset"] == answers, "{value}");
                    answers += 1;
                }
                other => panic!("{other:?} after {messages} messages and {answers} answers"),
            }
        }
    });
}

#[test]
fn a_raw_subscriber_gets_payloads_in_binary_frames() {
    let broker = started();
    broker.publish("t", b"\0\xff");
    broker.publish("t", b"");
    let mut socket = broker.websocket("t", "?from_offset=0&format=raw", &[]);
    assert_eq!(next_frame(&mut socket), Frame { opcode: BINARY, payload: b"\0\xff".to_vec() });
    assert_eq!(next_frame(&mut socket), Frame { opcode: BINARY, payload: Vec::new() });
}

#[test]
fn one_that_stopped_answering_pings_is_cut() {
    let broker = Setup::new().flag("--heartbeat-ms", 100).start();
    broker.create_topic("t");
    let mut socket = subscriber(&broker);
    socket.send_frame(LAST | PONG, b"");
    // It gave a sign of life once and is silent from now on; one that never gave any is let be.
    let mut never = subscriber(&broker);
    broker.wait_for_subscribers("t", 2);
    let mut pings = 0;
    while let Ok(Some(frame)) = socket.frame(Instant::now() + LIMIT) {
        assert_eq!(frame.opcode, PING);
        pings += 1;
    }
    assert!(pings >= 1, "it was asked before it was cut");
    wait_until("it does not count any more", || broker.stats("t")["subscriber_count"] == 1);
    broker.publish("t", b"x");
    loop {
        match never.frame(Instant::now() + Duration::from_secs(30)) {
            Ok(Some(Frame { opcode: PING, .. })) => {}
            Ok(Some(frame)) => {
                assert_eq!(frame.opcode, TEXT);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
}
