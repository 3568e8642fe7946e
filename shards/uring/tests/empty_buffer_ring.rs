//! When all receive buffers are taken, receiving goes on after they have gone back, and nothing is lost.
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
fn an_empty_buffer_ring_arms_again_after_buffers_went_back() {
    // Two small buffers for thirty sockets that each have far more to say.
    let mut stage = Stage::new(&RingConfig { buffer_count: 2, buffer_bytes: 128, ..small() });
    let mut peers: Vec<_> = (0..30).map(|_| stage.pair()).collect();
    for (seed, (peer, _)) in peers.iter_mut().enumerate() {
        peer.write_all(&pattern(5000, seed as u64)).unwrap();
    }
    for (seed, (_, socket)) in peers.iter().enumerate() {
        assert_eq!(stage.receive(*socket, 5000), pattern(5000, seed as u64), "socket {seed}");
    }
}

#[test]
fn a_socket_without_a_buffer_can_be_paused_resumed_and_closed() {
    let mut stage = Stage::new(&RingConfig { buffer_count: 1, buffer_bytes: 64, ..small() });
    let mut peers: Vec<_> = (0..9).map(|_| stage.pair()).collect();
    for (seed, (peer, _)) in peers.iter_mut().enumerate() {
        peer.write_all(&pattern(1000, seed as u64)).unwrap();
    }
    stage.turn(stage::PATIENCE);
    for (index, (_, socket)) in peers.iter().enumerate() {
        match index % 3 {
            0 => stage.ring.close(*socket),
            1 => stage.ring.pause_receive(*socket),
            _ => {}
        }
    }
    stage.turn(stage::PATIENCE);
    for (index, (_, socket)) in peers.iter().enumerate() {
        stage.ring.resume_receive(*socket);
        if index % 3 == 0 {
            stage.closed(*socket);
        } else {
            let bytes = stage.receive(*socket, 1000);
            assert_eq!(bytes, pattern(1000, index as u64), "socket {index}");
        }
    }
}
