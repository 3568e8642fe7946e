//! Promise: half a WebSocket message is given up when it makes no progress, and gives back what it held.

use crate::broker::{Broker, Setup};
use crate::deadline::{LIMIT, wait_until};
use crate::websocket::{CONTINUATION, EXTENDED, Heard, LAST, PING, TEXT, WebSocket, frame_bytes};
use serde_json::json;
use std::time::{Duration, Instant};

const ANNOUNCED: usize = 4 << 20;

/// A timeout that a machine which is busy elsewhere does not reach between two bytes.
const PATIENT_MS: u64 = 4_000;

fn started(body_timeout_ms: u64) -> Broker {
    let setup = Setup::new().flag("--body-timeout-ms", body_timeout_ms).flag("--heartbeat-ms", 600_000);
    let broker = setup.word("--ws-echo").start();
    broker.create_topic("t");
    broker
}

#[test]
fn half_a_message_ends_by_the_body_timeout() {
    let broker = started(PATIENT_MS);
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
    let broker = started(PATIENT_MS);
    let mut socket = WebSocket::open(broker.address(), "/debug/ws-echo", &[]);
    // Longer than the timeout in all, and never as long as that without more of it.
    let part = vec![b'x'; 20_000];
    let begun = Instant::now();
    let mut parts = 0;
    while begun.elapsed() < Duration::from_millis(PATIENT_MS + 1_000) {
        socket.send_frame(if parts == 0 { TEXT } else { CONTINUATION }, &part);
        parts += 1;
        assert_eq!(socket.step(Duration::from_millis(100)), Heard::Quiet, "after {parts} parts");
    }
    socket.send_frame(LAST | CONTINUATION, b"end");
    let whole = socket.frame(Instant::now() + LIMIT).unwrap().unwrap();
    assert_eq!(whole.payload.len(), parts * part.len() + 3);
}

#[test]
fn what_they_held_is_given_back() {
    let broker = started(PATIENT_MS / 4);
    let before = broker.open_files();
    let held = broker.resident_bytes();
    // Each round would keep 40 MB; what the allocator keeps for the next one does not grow with the rounds.
    for _ in 0..5 {
        let part = &frame_bytes(LAST | TEXT, &vec![b' '; ANNOUNCED])[..ANNOUNCED - 10];
        let mut sockets: Vec<_> = (0..10).map(|_| broker.websocket("t", "", &[])).collect();
        // One that the machine has held up for so long is cut in the middle of it, which is as good.
        let are_sent: Vec<bool> = sockets.iter_mut().map(|socket| socket.connection.try_send(part)).collect();
        for (socket, is_sent) in sockets.iter_mut().zip(are_sent) {
            assert!(!is_sent || socket.close_code() == 1008);
        }
        drop(sockets);
        wait_until("their connections are gone", || broker.open_files() <= before);
        let growth = broker.resident_bytes().saturating_sub(held);
        assert!(growth < 36 << 20, "{} MiB are kept of messages that never came", growth >> 20);
    }
}

#[test]
fn one_that_comes_slowly_and_steadily_is_taken() {
    let broker = started(PATIENT_MS);
    let mut socket = broker.websocket("t", "", &[EXTENDED]);
    let word = json!({ "ping": "x".repeat(60) }).to_string();
    let bytes = frame_bytes(LAST | TEXT, word.as_bytes());
    for byte in &bytes {
        socket.connection.send(&[*byte]);
    }
    assert_eq!(socket.other()["pong"], "x".repeat(60));
    // Between messages nobody hurries it, whatever it says in passing.
    let quiet = socket.step(Duration::from_millis(PATIENT_MS + 500));
    assert_eq!(quiet, Heard::Quiet);
    socket.send_frame(LAST | PING, b"alive");
    let pong = socket.frame(Instant::now() + LIMIT).unwrap().unwrap();
    assert_eq!(pong.payload, b"alive");
}
