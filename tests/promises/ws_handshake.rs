//! Promise: the WebSocket handshake follows RFC 6455: what is no proper request for one is answered in plain HTTP, with what
//! would be taken; subprotocols are echoed, never invented.

use crate::broker::{Broker, Setup};
use crate::http::{Connection, Response, request_bytes};
use crate::websocket::{EXTENDED, HANDSHAKE, Heard, LAST, TEXT, WebSocket, frame_bytes};
use std::time::Duration;

const TARGET: &str = "/topics/t/subscribe/ws";

/// The headers of a handshake with one replaced, or left out.
fn changed<'a>(name: &'a str, value: Option<&'a str>) -> Vec<(&'a str, &'a str)> {
    let mut headers: Vec<(&str, &str)> = HANDSHAKE.to_vec();
    headers.retain(|(known, _)| *known != name);
    headers.extend(value.map(|value| (name, value)));
    headers
}

/// The answer to a request that is no handshake; the connection must go on with another request after it.
fn refused(broker: &Broker, headers: &[(&str, &str)]) -> Response {
    let mut connection = broker.connect();
    connection.send_request("GET", TARGET, headers, b"");
    let answer = connection.response_to("GET");
    connection.send_request("GET", "/health", &[], b"");
    connection.response_to("GET").expect(200);
    answer
}

#[test]
fn what_asks_for_no_websocket_is_told_to_upgrade() {
    let broker = Broker::start();
    broker.create_topic("t");
    let cases = [
        Vec::new(),
        changed("Upgrade", None),
        changed("Upgrade", Some("h2c")),
        changed("Connection", None),
        changed("Connection", Some("keep-alive")),
        changed("Sec-WebSocket-Version", None),
        changed("Sec-WebSocket-Version", Some("8")),
        changed("Sec-WebSocket-Version", Some("0x0d")),
    ];
    for headers in cases {
        let answer = refused(&broker, &headers).expect(426);
        answer.expect_envelope_of_error();
        assert_eq!(answer.header("sec-websocket-version"), Some("13"), "{headers:?}");
        assert!(answer.lists("upgrade", "websocket") && answer.lists("connection", "upgrade"), "{answer:?}");
    }
}

#[test]
fn a_key_that_is_none_is_a_bad_request() {
    let broker = Broker::start();
    broker.create_topic("t");
    let keys = [None, Some(""), Some("short"), Some("dGhlIHNhbXBsZSBub25jZQ"), Some("dGhlIHNhbXBsZSBub25jZSEh")];
    for key in keys {
        refused(&broker, &changed("Sec-WebSocket-Key", key)).expect_error(400, "invalid_handshake");
    }
    let twice = [&HANDSHAKE[..], &HANDSHAKE[3..]].concat();
    refused(&broker, &twice).expect_error(400, "invalid_handshake");
}

#[test]
fn header_lists_and_names_are_read_in_any_case() {
    let broker = Broker::start();
    broker.create_topic("t");
    for (upgrade, connection) in
        [("WebSocket", "Upgrade"), ("h2c, WEBSOCKET", "upgrade"), ("websocket", "foo,UPGRADE ,bar")]
    {
        let headers = [("UPGRADE", upgrade), ("connection", connection), HANDSHAKE[2], HANDSHAKE[3]];
        let mut raw = broker.connect();
        raw.send_request("GET", TARGET, &headers, b"");
        let mut socket = WebSocket::from_connection(raw);
        socket.expect_nothing_before_pong();
    }
}

#[test]
fn a_subprotocol_is_chosen_from_what_was_offered_or_none_is() {
    let broker = Broker::start();
    broker.create_topic("t");
    let offer = |names: &'static str| ("Sec-WebSocket-Protocol", names);
    let cases = [
        (vec![], None),
        (vec![offer("chat, superchat")], None),
        (vec![EXTENDED], Some("ringmain.v1")),
        (vec![offer("chat,ringmain.v1")], Some("ringmain.v1")),
        (vec![offer("chat"), EXTENDED], Some("ringmain.v1")),
    ];
    for (headers, chosen) in cases {
        let socket = broker.websocket("t", "", &headers);
        assert_eq!(socket.head.header("sec-websocket-protocol"), chosen, "{headers:?}");
    }
    let names = broker.websocket("t", "", &[("Sec-WebSocket-Protocol", "RINGMAIN.V1")]);
    assert_eq!(names.head.header("sec-websocket-protocol"), None, "names match exactly");
    let extensions = ("Sec-WebSocket-Extensions", "permessage-deflate; client_max_window_bits");
    broker.websocket("t", "", &[extensions]).expect_nothing_before_pong();
}

#[test]
fn faults_of_the_request_are_told_before_the_upgrade() {
    let broker = Broker::start();
    broker.create_topic("t");
    let ask = |target: &str| broker.request("GET", target, &HANDSHAKE, b"");
    ask("/topics/none/subscribe/ws").expect_error(404, "topic_not_found");
    ask("/topics/none/subscribe/ws?group=g").expect_error(404, "topic_not_found");
    for query in
        ["from_offset=x", "slow=never", "format=xml", "max_in_flight=0", "max_in_flight=65537", "last_event_id=%00"]
    {
        let answer = ask(&format!("{TARGET}?{query}")).expect(400);
        answer.expect_envelope_of_error();
    }
    assert_eq!(broker.stats("t")["subscriber_count"], 0);
    let answer = broker.request("POST", TARGET, &HANDSHAKE, b"").expect(405);
    assert!(answer.lists("allow", "GET"));
    let strangers = [&HANDSHAKE[..], &[("Origin", "https://evil.example")]].concat();
    broker.request("GET", TARGET, &strangers, b"").expect_error(403, "forbidden_origin");
}

#[test]
fn an_http_1_0_request_is_told_to_upgrade() {
    let broker = Broker::start();
    broker.create_topic("t");
    let mut connection = broker.connect();
    let request = request_bytes("localhost", "GET", TARGET, &HANDSHAKE, b"");
    let request = String::from_utf8(request).unwrap().replace("HTTP/1.1", "HTTP/1.0");
    connection.send(request.as_bytes());
    connection.response_to("GET").expect(426);
}

#[test]
fn frames_may_follow_the_handshake_at_once_and_requests_may_precede_it() {
    let broker = Broker::start();
    broker.create_topic("t");
    let mut connection = Connection::open(broker.address());
    let host = broker.address().to_string();
    let mut bytes = request_bytes(&host, "POST", "/topics/t/publish", &[], b"before");
    bytes.extend(request_bytes(&host, "GET", &format!("{TARGET}?from_offset=0"), &HANDSHAKE, b""));
    bytes.extend(frame_bytes(LAST | TEXT, br#"{"ping":1}"#));
    connection.send(&bytes);
    connection.response_to("POST").expect(202);
    let mut socket = WebSocket::from_connection(connection);
    let heard = [socket.step(crate::deadline::LIMIT), socket.step(crate::deadline::LIMIT)];
    assert!(heard.iter().any(|heard| matches!(heard, Heard::Message(message) if message.payload == b"before")));
    assert!(heard.iter().any(|heard| *heard == Heard::Other(serde_json::json!({ "pong": 1 }))));
}

#[test]
fn the_echo_is_there_only_when_it_was_asked_for() {
    let plain = Broker::start();
    plain.request("GET", "/debug/ws-echo", &HANDSHAKE, b"").expect_error(404, "not_found");
    let broker = Setup::new().word("--ws-echo").start();
    let mut socket = WebSocket::open(broker.address(), "/debug/ws-echo", &[EXTENDED]);
    assert_eq!(socket.head.header("sec-websocket-protocol"), None);
    socket.send_frame(LAST | crate::websocket::BINARY, b"\0\xff");
    let frame = socket.frame(std::time::Instant::now() + Duration::from_secs(30)).unwrap().unwrap();
    assert_eq!((frame.opcode, frame.payload.as_slice()), (crate::websocket::BINARY, &b"\0\xff"[..]));
}
