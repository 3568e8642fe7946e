//! What a ring does with memory that the kernel does not give back in time.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::VecDeque;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Ring, RingConfig};

struct Piece(Vec<u8>, #[expect(dead_code, reason = "it is counted, not read")] Arc<()>);

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn dropped_with_a_send_in_flight(leak: bool) -> usize {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut ring = Ring::new(&RingConfig::default()).unwrap();
    let socket = ring.adopt(near).unwrap();
    let alive = Arc::new(());
    let piece = Bytes::from_owner(Piece(vec![1; 64 << 20], Arc::clone(&alive)));
    ring.send(socket, &mut VecDeque::from([piece]), usize::MAX);
    ring.turn(Some(Duration::ZERO)).unwrap();
    assert!(ring.sending(socket));
    if leak {
        ring.leak();
    }
    drop(ring);
    Arc::strong_count(&alive) - 1
}

#[test]
fn what_the_kernel_may_still_read_is_leaked_and_not_freed() {
    assert_eq!(dropped_with_a_send_in_flight(true), 1);
}

#[test]
fn what_the_kernel_has_given_back_is_freed() {
    assert_eq!(dropped_with_a_send_in_flight(false), 0);
}
