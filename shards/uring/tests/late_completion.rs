//! A completion that comes after its connection was closed finds nobody, also when the slot has a new user.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod stage;

use std::collections::{HashSet, VecDeque};
use std::io::{Read, Write};

use bytes::Bytes;

use stage::{Seen, Stage, small};

#[test]
fn a_late_completion_finds_nobody() {
    let mut stage = Stage::new(&small());
    let mut old = Vec::new();
    let mut slots = HashSet::new();
    for round in 0..400_u32 {
        let (mut peer, socket) = stage.pair();
        slots.insert(socket.slot());
        assert!(!old.contains(&socket), "an id came twice");
        // Bytes are on their way when the socket is closed, in some rounds with a send as well.
        peer.write_all(&round.to_ne_bytes()).unwrap();
        if round % 2 == 0 {
            let mut pieces = VecDeque::from([Bytes::from_static(b"never mind")]);
            stage.ring.send(socket, &mut pieces, usize::MAX);
        }
        stage.ring.close(socket);
        stage.ring.close(socket);
        stage.closed(socket);
        old.push(socket);
    }
    assert_eq!(slots.len(), 1, "the slot was used again each time");
    let after_close = stage.seen.iter().any(|seen| !matches!(seen, Seen::Accepted(_)));
    assert!(!after_close, "something came after close: {:?}", stage.seen);

    let (mut peer, socket) = stage.pair();
    assert_eq!(socket.slot(), old[0].slot());
    for stale in &old {
        let mut pieces = VecDeque::from([Bytes::from_static(b"to nobody")]);
        assert_eq!(stage.ring.send(*stale, &mut pieces, usize::MAX), 0);
        assert_eq!(pieces.len(), 1);
        assert_eq!(stage.ring.sent_bytes(*stale), 0);
        assert!(!stage.ring.sending(*stale));
        stage.ring.pause_receive(*stale);
        stage.ring.resume_receive(*stale);
        stage.ring.shutdown_write(*stale);
        stage.ring.abort(*stale);
        stage.ring.close(*stale);
    }
    peer.write_all(b"still here").unwrap();
    assert_eq!(stage.receive(socket, 10), b"still here");
    let mut pieces = VecDeque::from([Bytes::from_static(b"here too")]);
    assert_eq!(stage.ring.send(socket, &mut pieces, usize::MAX), 8);
    stage.sent(socket);
    let mut answer = [0; 8];
    peer.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"here too");
}
