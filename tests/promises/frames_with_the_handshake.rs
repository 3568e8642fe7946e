//! Promise: frames that come in one packet with the handshake of a WebSocket are heard like any others.

use crate::broker::{Broker, Setup};
use crate::deadline::LIMIT;
use crate::http::request_bytes;
use crate::websocket::{BINARY, CONTINUATION, EXTENDED, Frame, HANDSHAKE, LAST, TEXT, WebSocket, frame_bytes};
use serde_json::json;
use std::time::Instant;

/// Sends a handshake and bytes in one piece, and opens the socket.
fn open_with(broker: &Broker, target: &str, bytes: &[u8]) -> WebSocket {
    let headers = [&HANDSHAKE[..], &[EXTENDED]].concat();
    let mut connection = broker.connect();
    let handshake = request_bytes(&broker.address().to_string(), "GET", target, &headers, b"");
    connection.send(&[&handshake[..], bytes].concat());
    WebSocket::from_connection(connection)
}

fn next(socket: &mut WebSocket) -> Frame {
    socket.frame(Instant::now() + LIMIT).unwrap().expect("no frame came")
}

#[test]
fn an_echo_hears_them() {
    let broker = Setup::new().word("--ws-echo").start();
    let text = frame_bytes(LAST | TEXT, b"hi");
    let mut socket = open_with(&broker, "/debug/ws-echo", &text);
    assert_eq!(next(&mut socket), Frame { opcode: TEXT, payload: b"hi".to_vec() });
    let large = vec![b'y'; 100_000];
    let many = [text.repeat(50), frame_bytes(BINARY, b"a"), frame_bytes(LAST | CONTINUATION, &large)].concat();
    // Cut at any place: the rest comes later.
    for cut in [many.len(), 1, 3, text.len() + 5, 500, many.len() - 1] {
        let mut socket = open_with(&broker, "/debug/ws-echo", &many[..cut]);
        socket.connection.send(&many[cut..]);
        (0..50).for_each(|_| assert_eq!(next(&mut socket).payload, b"hi"));
        let last = next(&mut socket);
        assert!(last.opcode == BINARY && last.payload.len() == large.len() + 1, "cut at {cut}");
    }
}

#[test]
fn a_subscriber_is_heard() {
    let broker = Broker::start();
    broker.create_topic("t");
    let words = [json!({ "ping": 1 }), json!({ "publish": { "payload": "aGk=" }, "ref": 2 })];
    let bytes: Vec<u8> = words.iter().flat_map(|word| frame_bytes(LAST | TEXT, word.to_string().as_bytes())).collect();
    for query in ["", "?group=g", "?format=raw"] {
        let mut socket = open_with(&broker, &format!("/topics/t/subscribe/ws{query}"), &bytes);
        let heard: Vec<_> = (0..3).map(|_| next(&mut socket)).collect();
        let has = |word: &str| heard.iter().any(|frame| String::from_utf8_lossy(&frame.payload).contains(word));
        assert!(has(r#""pong":1"#) && has(r#""published":"#), "{query}: {heard:?}");
    }
}
