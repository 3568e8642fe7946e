//! A ring can be dropped with anything in flight: all is cancelled, nothing is freed too early or kept.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod stage;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringmain_uring::RingConfig;

use stage::{Seen, Stage, Watched, connect, descriptors, pattern, small};

/// Everything at once: idle, flooding, starved, paused, stalled, closing; stopped after `turns`.
fn busy(turns: usize, alive: &Arc<AtomicUsize>) -> (Stage, Vec<TcpStream>) {
    let mut stage = Stage::new(&RingConfig {
        submission_entries: 8,
        completion_entries: 16,
        buffer_count: 4,
        buffer_bytes: 256,
        ..small()
    });
    let mut peers = Vec::new();
    for index in 0..24 {
        let (mut peer, socket) = stage.pair();
        peer.write_all(&pattern(2000 * (index % 3), 1)).unwrap();
        if index % 2 == 0 {
            let mut pieces: VecDeque<_> = (0..3).map(|seed| Watched::piece(vec![seed; 8 << 20], alive)).collect();
            stage.ring.send(socket, &mut pieces, usize::MAX);
        }
        match index % 5 {
            0 => stage.ring.pause_receive(socket),
            1 => stage.ring.close(socket),
            2 => stage.ring.shutdown_write(socket),
            _ => {}
        }
        peers.push(peer);
    }
    // Connections that the listener has not been seen to accept, and a wake.
    peers.extend((0..4).map(|_| connect(stage.address)));
    stage.ring.waker().wake();
    for turn in 0..turns {
        stage.ring.turn(Some(Duration::from_millis(1))).unwrap();
        // Some events are left in the ring, and the last one's buffer is still lent out.
        for _ in 0..turn % 4 {
            if let Some(event) = stage.ring.next_event() {
                drop(Seen::from(event));
            }
        }
    }
    (stage, peers)
}

#[test]
fn dropping_a_ring_with_everything_in_flight_is_safe() {
    let alive = Arc::new(AtomicUsize::new(0));
    let before = descriptors();
    for turns in 0..12 {
        let (stage, peers) = busy(turns, &alive);
        let waker = stage.ring.waker();
        assert!(alive.load(Ordering::SeqCst) > 0);
        drop(stage);
        assert_eq!(alive.load(Ordering::SeqCst), 0, "kept after {turns} turns");
        for mut peer in peers {
            // Whatever was under way, the connection is at its end.
            let _ = peer.read_to_end(&mut Vec::new());
        }
        waker.wake();
        drop(waker);
        assert_eq!(descriptors(), before, "descriptors after {turns} turns");
    }
}
