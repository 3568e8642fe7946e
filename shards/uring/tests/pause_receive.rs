//! Pausing and resuming at any time loses no byte, and a paused socket slows its peer down.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod stage;

use std::io::{ErrorKind, Write};
use std::thread;
use std::time::{Duration, Instant};

use stage::{PATIENCE, Seen, Stage, pattern, small};

#[test]
fn pausing_and_resuming_under_load_loses_nothing() {
    const BYTES: usize = 24 << 20;
    let mut stage = Stage::new(&small());
    let (mut peer, socket) = stage.pair();
    let writing = thread::spawn(move || peer.write_all(&pattern(BYTES, 3)).unwrap());
    let mut all = Vec::with_capacity(BYTES);
    let deadline = Instant::now() + PATIENCE;
    let mut step = 0_usize;
    while all.len() < BYTES {
        assert!(Instant::now() < deadline, "stuck at {}", all.len());
        stage.ring.turn(Some(Duration::from_millis(50))).unwrap();
        while let Some(event) = stage.ring.next_event() {
            match event.into() {
                Seen::Received(from, bytes) => {
                    assert_eq!(from, socket);
                    all.extend(bytes);
                }
                Seen::ReceiveEnded(_, None) => assert_eq!(all.len(), BYTES),
                other => panic!("unexpected: {other:?}"),
            }
            step += 1;
            // All the orders in which a caller can change its mind, between events of one turn.
            match step % 7 {
                0 => stage.ring.pause_receive(socket),
                1 => {
                    stage.ring.pause_receive(socket);
                    stage.ring.resume_receive(socket);
                }
                3 => stage.ring.resume_receive(socket),
                4 => {
                    stage.ring.resume_receive(socket);
                    stage.ring.pause_receive(socket);
                    stage.ring.pause_receive(socket);
                    stage.ring.resume_receive(socket);
                    stage.ring.pause_receive(socket);
                }
                _ => {}
            }
        }
        if step.is_multiple_of(2) {
            stage.ring.resume_receive(socket);
        } else {
            step += 1;
        }
    }
    assert!(all == pattern(BYTES, 3), "the bytes differ");
    writing.join().unwrap();
}

#[test]
fn a_paused_socket_slows_its_peer_down() {
    let mut stage = Stage::new(&small());
    let (mut peer, socket) = stage.pair();
    stage.ring.pause_receive(socket);
    stage.turn(Duration::from_millis(10));
    peer.set_nonblocking(true).unwrap();
    let mut written = Vec::new();
    let bytes = pattern(100_000, 5);
    loop {
        // The ring turns, and would take the bytes if it were not paused.
        stage.turn(Duration::ZERO);
        match peer.write(&bytes) {
            Ok(count) => written.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
        assert!(written.len() < 1 << 30, "the peer is not slowed down");
    }
    assert!(stage.seen.is_empty(), "told while paused: {:?}", stage.seen);
    stage.ring.resume_receive(socket);
    assert!(stage.receive(socket, written.len()) == written);
}

#[test]
fn resuming_while_the_pause_is_under_way_is_not_forgotten() {
    let mut stage = Stage::new(&small());
    let (mut peer, socket) = stage.pair();
    for round in 0..50 {
        stage.ring.pause_receive(socket);
        stage.ring.resume_receive(socket);
        // In some rounds the end of the old receive is seen before the bytes come, in others with them.
        if round % 2 == 0 {
            stage.turn(Duration::from_millis(1));
        }
        peer.write_all(b"heard").unwrap();
        assert_eq!(stage.receive(socket, 5), b"heard");
    }
}
