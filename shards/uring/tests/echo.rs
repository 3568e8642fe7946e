//! A connection is accepted, its bytes come in, an answer goes out, and it is closed from either side.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod stage;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv6Addr, Shutdown};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ringmain_uring::{Ring, listen};

use stage::{PATIENCE, Stage, connect, listener, small};

#[test]
fn what_is_sent_comes_back() {
    let mut stage = Stage::new(&small());
    let (mut peer, socket) = stage.pair();
    for round in 0..100 {
        let question = stage::pattern(1 + round * 37, round as u64);
        peer.write_all(&question).unwrap();
        let bytes = stage.receive(socket, question.len());
        let (left, right) = bytes.split_at(bytes.len() / 2);
        let mut pieces = VecDeque::from([Bytes::copy_from_slice(left), Bytes::copy_from_slice(right)]);
        assert_eq!(stage.ring.send(socket, &mut pieces, usize::MAX), bytes.len());
        stage.sent(socket);
        assert!(!stage.ring.sending(socket));
        let mut answer = vec![0; question.len()];
        peer.read_exact(&mut answer).unwrap();
        assert_eq!(answer, question);
    }
}

#[test]
fn the_end_of_the_stream_is_told_and_the_socket_can_still_send() {
    let mut stage = Stage::new(&small());
    let (mut peer, socket) = stage.pair();
    peer.write_all(b"last words").unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stage.receive(socket, 10), b"last words");
    assert_eq!(stage.receive_ended(socket), None);
    let mut pieces = VecDeque::from([Bytes::from_static(b"farewell")]);
    stage.ring.send(socket, &mut pieces, usize::MAX);
    stage.ring.shutdown_write(socket);
    stage.sent(socket);
    let mut more = VecDeque::from([Bytes::from_static(b"too late")]);
    assert_eq!(stage.ring.send(socket, &mut more, usize::MAX), 0);
    assert_eq!(more.len(), 1);
    let mut all = Vec::new();
    peer.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"farewell");
    stage.ring.close(socket);
    stage.closed(socket);
}

#[test]
fn after_shutdown_write_the_socket_still_receives() {
    let mut stage = Stage::new(&small());
    let (mut peer, socket) = stage.pair();
    stage.ring.shutdown_write(socket);
    assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0);
    peer.write_all(b"late").unwrap();
    assert_eq!(stage.receive(socket, 4), b"late");
}

#[test]
fn abort_resets_the_connection() {
    let mut stage = Stage::new(&small());
    let (mut peer, socket) = stage.pair();
    stage.ring.abort(socket);
    stage.closed(socket);
    let error = peer.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn a_reset_by_the_peer_is_told() {
    let mut stage = Stage::new(&small());
    let (peer, socket) = stage.pair();
    socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
    assert_eq!(stage.receive_ended(socket), Some(libc::ECONNRESET));
    stage.ring.close(socket);
    stage.closed(socket);
}

#[test]
fn a_socket_connected_elsewhere_can_be_adopted() {
    let (far, address) = listener();
    let near = connect(address);
    let (mut peer, _) = far.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    let mut stage = Stage::new(&small());
    let socket = stage.ring.adopt(near).unwrap();
    assert_eq!(stage.ring.peer_address(socket).unwrap(), address);
    peer.write_all(b"hello").unwrap();
    assert_eq!(stage.receive(socket, 5), b"hello");
    stage.ring.close(socket);
    stage.closed(socket);
    assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0);
    assert!(stage.ring.peer_address(socket).is_err());
}

#[test]
fn the_unspecified_ipv6_address_takes_both_families() {
    let Ok(listener) = listen::bind((Ipv6Addr::UNSPECIFIED, 0).into(), 16) else {
        return; // A machine without IPv6.
    };
    let port = listener.local_addr().unwrap().port();
    let mut stage = Stage::new(&small());
    stage.ring.listen(listener).unwrap();
    stage.address = ([127, 0, 0, 1], port).into();
    stage.pair();
    stage.address = (Ipv6Addr::LOCALHOST, port).into();
    stage.pair();
}

#[test]
fn accepted_sockets_have_no_delay() {
    let mut stage = Stage::new(&small());
    let (mut peer, socket) = stage.pair();
    // Two small sends without an answer in between arrive without waiting for each other.
    for _ in 0..2 {
        let mut pieces = VecDeque::from([Bytes::from_static(b"x")]);
        stage.ring.send(socket, &mut pieces, 1);
        stage.sent(socket);
    }
    peer.read_exact(&mut [0; 2]).unwrap();
}

#[test]
fn a_turn_without_events_ends_in_time() {
    let mut ring = Ring::new(&small()).unwrap();
    ring.turn(Some(Duration::ZERO)).unwrap();
    ring.turn(Some(Duration::from_millis(1))).unwrap();
    assert!(ring.next_event().is_none());
}

#[test]
fn looking_without_waiting_is_enough() {
    let mut stage = Stage::new(&small());
    let (mut peer, socket) = stage.pair();
    // The receive must be waiting before the bytes come, or they are found while it is handed over.
    stage.turn(Duration::ZERO);
    peer.write_all(b"look").unwrap();
    let deadline = Instant::now() + PATIENCE;
    while stage.seen.is_empty() {
        assert!(Instant::now() < deadline, "the bytes are never seen");
        stage.turn(Duration::ZERO);
    }
    assert_eq!(stage.receive(socket, 4), b"look");
}
