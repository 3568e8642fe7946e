//! Promise: half a WebSocket message is given up when it makes no progress, and gives back what it held.

use crate::broker::{Broker, Setup};
use crate::deadline::{LIMIT, wait_until};
use crate::websocket::{CONTINUATION, EXTENDED, Heard, LAST, PING, TEXT, WebSocket, frame_bytes};
use serde_json::json;
use std::time::{Duration, Instant};

const ANNOUNCED: usize = 4 << 20;

fn started() -> Broker {
    let broker = Setup::new().flag("--body-timeout-ms", 300).flag("--heartbeat-ms", 600_000).word("--ws-echo").start();
    broker.create_topic("t");
    broker
}

#[test]
fn half_a_message_ends_by_the_body_timeout() {
    let broker = started();
    let whole = frame_bytes(LAST | TEXT, &vec![b' '; ANNOUNCED]);
    let parts = [
        &whole[..15],
        &whole[..100],
        &whole[..ANNOUNCED / 2],
        &frame_bytes(TEXT, b"begun, and never ended")[..],
        &[frame_bytes(TEXT, b"begun"), frame_bytes(CONTINUATION, b"and on")].concat(),
    ];
    let targets = ["/topics/t/subscribe/ws", "/topics/t/subscribe/ws?group=g", "/debug/ws-echo"];
    let mut sockets: Vec<(usize, WebSocket)> = Vec::new();
    for target in targets {
        for (number, part) in parts.iter().enumerate() {
            let mut socket = WebSocket::open(broker.address(), target, &[EXTENDED]);
            socket.connection.send(part);
            sockets.push((number, socket));
        }
    }
    for (number, socket) in &mut sockets {
        assert_eq!(socket.close_code(), 1008, "part {number}");
    }
}

#[test]
fn one_that_makes_progress_is_not_cut() {
    let broker = started();
    let mut socket = WebSocket::open(broker.address(), "/debug/ws-echo", &[]);
    // Much longer than the timeout in all, and never as long as that without more of it.
    let part = vec![b'x'; 20_000];
    for number in 0..60 {
        socket.send_frame(if number == 0 { TEXT } else { CONTINUATION }, &part);
        assert_eq!(socket.step(Duration::from_millis(20)), Heard::Quiet, "after {number} parts");
    }
    socket.send_frame(LAST | CONTINUATION, b"end");
    let whole = socket.frame(Instant::now() + LIMIT).unwrap().unwrap();
    assert_eq!(whole.payload.len(), 60 * part.len() + 3);
}

#[test]
fn what_they_held_is_given_back() {
    let broker = started();
    let before = broker.open_files();
    let held = broker.resident_bytes();
    // Each round would keep 40 MB; what the allocator keeps for the next one does not grow with the rounds.
    for _ in 0..5 {
        let part = &frame_bytes(LAST | TEXT, &vec![b' '; ANNOUNCED])[..ANNOUNCED - 10];
        let mut sockets: Vec<_> = (0..10).map(|_| broker.websocket("t", "", &[])).collect();
        sockets.iter_mut().for_each(|socket| socket.connection.send(part));
        sockets.iter_mut().for_each(|socket| assert_eq!(socket.close_code(), 1008));
        drop(sockets);
        wait_until("their connections are gone", || broker.open_files() <= before);
        let growth = broker.resident_bytes().saturating_sub(held);
        assert!(growth < 36 << 20, "{} MiB are kept of messages that never came", growth >> 20);
    }
}

#[test]
fn one_that_comes_slowly_and_steadily_is_taken() {
    let broker = started();
    let mut socket = broker.websocket("t", "", &[EXTENDED]);
    let word = json!({ "ping": "x".repeat(60) }).to_string();
    let bytes = frame_bytes(LAST | TEXT, word.as_bytes());
    for byte in &bytes {
        socket.connection.send(&[*byte]);
    }
    assert_eq!(socket.other()["pong"], "x".repeat(60));
    // Between messages nobody hurries it, whatever it says in passing.
    let quiet = socket.step(Duration::from_millis(700));
    assert_eq!(quiet, Heard::Quiet);
    socket.send_frame(LAST | PING, b"alive");
    let pong = socket.frame(Instant::now() + LIMIT).unwrap().unwrap();
    assert_eq!(pong.payload, b"alive");
}
