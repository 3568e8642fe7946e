//! A paused listener leaves connections waiting, a closed one refuses them, and neither touches the sockets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod stage;

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use stage::{PATIENCE, Seen, Stage, connect, small};

#[test]
fn a_paused_listener_leaves_connections_waiting() {
    let mut stage = Stage::new(&small());
    let (_early, _) = stage.pair();
    stage.ring.pause_accept(stage.listener);
    stage.ring.pause_accept(stage.listener);
    stage.turn(Duration::from_millis(1));
    let mut waiting = connect(stage.address);
    waiting.write_all(b"patience").unwrap();
    for _ in 0..5 {
        stage.turn(Duration::from_millis(1));
    }
    assert!(stage.seen.is_empty(), "{:?}", stage.seen);
    stage.ring.resume_accept(stage.listener);
    let socket = stage.until("accepted", |seen| match seen {
        Seen::Accepted(socket) => Some(*socket),
        _ => None,
    });
    assert_eq!(stage.receive(socket, 8), b"patience");
}

#[test]
fn changing_ones_mind_between_turns_ends_in_what_was_said_last() {
    let mut stage = Stage::new(&small());
    for _ in 0..50 {
        stage.ring.pause_accept(stage.listener);
        stage.ring.resume_accept(stage.listener);
        let (_peer, socket) = stage.pair();
        stage.ring.pause_accept(stage.listener);
        stage.ring.resume_accept(stage.listener);
        stage.turn(Duration::ZERO);
        stage.ring.close(socket);
        stage.closed(socket);
    }
}

#[test]
fn a_closed_listener_refuses_and_its_connections_live_on() {
    let mut stage = Stage::new(&small());
    let (mut peer, socket) = stage.pair();
    stage.ring.close_listener(stage.listener);
    stage.ring.close_listener(stage.listener);
    stage.ring.resume_accept(stage.listener);
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(stage.address).is_ok() {
        assert!(Instant::now() < deadline, "the listener is still open");
        stage.turn(Duration::from_millis(1));
    }
    assert!(stage.seen.is_empty(), "{:?}", stage.seen);
    peer.write_all(b"alive").unwrap();
    assert_eq!(stage.receive(socket, 5), b"alive");
}
