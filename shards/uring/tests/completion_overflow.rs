//! More completions than the queue holds are counted and delivered late; nothing is lost.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod stage;

use std::io::Write;

use ringmain_uring::RingConfig;

use stage::{Stage, pattern, small};

#[test]
fn an_overflowing_completion_queue_loses_nothing() {
    let mut stage = Stage::new(&RingConfig {
        submission_entries: 4,
        completion_entries: 4,
        buffer_count: 256,
        buffer_bytes: 64,
        ..small()
    });
    let mut peers: Vec<_> = (0..120).map(|_| stage.pair()).collect();
    for round in 0..5 {
        for (seed, (peer, _)) in peers.iter_mut().enumerate() {
            peer.write_all(&pattern(700, seed as u64 + round)).unwrap();
        }
        for (seed, (_, socket)) in peers.iter().enumerate() {
            assert_eq!(stage.receive(*socket, 700), pattern(700, seed as u64 + round), "socket {seed}");
        }
    }
    assert!(stage.ring.overflows() > 0, "the queue never overflowed");
    let sockets: Vec<_> = peers.iter().map(|(_, socket)| *socket).collect();
    for socket in &sockets {
        stage.ring.close(*socket);
    }
    for socket in sockets {
        stage.closed(socket);
    }
    assert_eq!(stage.ring.sockets(), 0);
}
