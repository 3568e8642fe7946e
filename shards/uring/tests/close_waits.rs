//! The descriptor is closed, and the memory of a send released, only after the cancelled operations have completed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod stage;

use std::collections::VecDeque;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stage::{Seen, Stage, Watched, descriptors, pattern, small};

#[test]
fn the_descriptor_is_closed_only_after_cancelled_operations_completed() {
    let mut stage = Stage::new(&small());
    let alive = Arc::new(AtomicUsize::new(0));
    for abort in [false, true] {
        let (mut peer, socket) = stage.pair();
        // More than the buffers of both ends hold, and the peer does not read: the send stays.
        let mut pieces = VecDeque::from([Watched::piece(pattern(64 << 20, 1), &alive)]);
        stage.ring.send(socket, &mut pieces, usize::MAX);
        stage.turn(Duration::ZERO);
        let before = descriptors();
        if abort {
            stage.ring.abort(socket);
        } else {
            stage.ring.close(socket);
        }
        assert_eq!(descriptors(), before, "closed while the kernel had it");
        assert_eq!(alive.load(Ordering::SeqCst), 1, "released while in flight");
        stage.closed(socket);
        assert_eq!(descriptors(), before - 1);
        assert_eq!(alive.load(Ordering::SeqCst), 0);
        let mut rest = Vec::new();
        assert_eq!(peer.read_to_end(&mut rest).is_err(), abort);
        assert!(rest.len() < 64 << 20);
        assert!(!stage.seen.iter().any(|seen| matches!(seen, Seen::Closed(_))), "closed is told once");
        assert_eq!(stage.ring.sockets(), 0);
    }
}
