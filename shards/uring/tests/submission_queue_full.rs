//! More operations than the submission queue holds are handed over in several calls; none is lost.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod stage;

use std::collections::VecDeque;
use std::io::Read;

use bytes::Bytes;
use ringmain_uring::RingConfig;

use stage::{Stage, pattern, small};

#[test]
fn a_full_submission_queue_loses_nothing() {
    let mut stage = Stage::new(&RingConfig { submission_entries: 2, ..small() });
    let mut peers: Vec<_> = (0..150).map(|_| stage.pair()).collect();
    for (seed, (_, socket)) in peers.iter().enumerate() {
        let mut pieces = VecDeque::from([Bytes::from(pattern(300, seed as u64))]);
        assert_eq!(stage.ring.send(*socket, &mut pieces, usize::MAX), 300);
        stage.ring.pause_receive(*socket);
    }
    for (_, socket) in &peers {
        stage.sent(*socket);
        stage.ring.resume_receive(*socket);
    }
    for (seed, (peer, socket)) in peers.iter_mut().enumerate() {
        let mut bytes = vec![0; 300];
        peer.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, pattern(300, seed as u64));
        stage.ring.close(*socket);
    }
    for (_, socket) in &peers {
        stage.closed(*socket);
    }
}
