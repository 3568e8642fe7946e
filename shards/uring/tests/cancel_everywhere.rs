//! Whenever a connection is closed, each operation comes to its end, Closed is told once, and nothing leaks.
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
use std::thread;
use std::time::Duration;

use ringmain_uring::{RingConfig, SocketId};

use stage::{Seen, Stage, Watched, descriptors, pattern, small};

/// Writes and reads as fast as it can until the connection is gone.
fn lively(stream: TcpStream) -> [thread::JoinHandle<()>; 2] {
    let mut reading = stream.try_clone().unwrap();
    let mut writing = stream;
    [
        thread::spawn(move || {
            let mut bytes = vec![0; 8192];
            while reading.read(&mut bytes).is_ok_and(|count| count > 0) {}
        }),
        thread::spawn(move || {
            let bytes = pattern(10_000, 7);
            while writing.write_all(&bytes).is_ok() {}
        }),
    ]
}

fn send(stage: &mut Stage, socket: SocketId, alive: &Arc<AtomicUsize>) {
    if stage.ring.sending(socket) {
        return;
    }
    let mut pieces: VecDeque<_> = (0..5).map(|index| Watched::piece(pattern(60_000, index), alive)).collect();
    stage.ring.send(socket, &mut pieces, usize::MAX);
}

fn end(stage: &mut Stage, socket: SocketId, how: usize) {
    match how {
        0 => stage.ring.close(socket),
        1 => stage.ring.abort(socket),
        2 => {
            stage.ring.shutdown_write(socket);
            stage.ring.close(socket);
            stage.ring.abort(socket);
        }
        _ => {
            stage.ring.pause_receive(socket);
            stage.ring.resume_receive(socket);
            stage.ring.close(socket);
            stage.ring.resume_receive(socket);
        }
    }
}

/// Closes after the `steps`-th event and checks that all comes to an end.
fn close_after(stage: &mut Stage, steps: usize, how: usize, alive: &Arc<AtomicUsize>) {
    let before = descriptors();
    let (peer, socket) = stage.pair();
    let peers = lively(peer);
    send(stage, socket, alive);
    let mut left = steps;
    while left > 0 {
        match stage.seen.pop_front() {
            Some(Seen::Sent(_)) => send(stage, socket, alive),
            Some(Seen::Received(_, bytes)) => {
                assert!(!bytes.is_empty());
                match left % 4 {
                    0 => stage.ring.pause_receive(socket),
                    1 => stage.ring.resume_receive(socket),
                    _ => {}
                }
            }
            Some(other) => panic!("unexpected: {other:?}"),
            None => {
                stage.ring.resume_receive(socket);
                stage.turn(Duration::from_millis(50));
                continue;
            }
        }
        left -= 1;
    }
    stage.seen.clear();
    end(stage, socket, how);
    stage.closed(socket);
    assert!(stage.seen.is_empty(), "after close: {:?}", stage.seen);
    for peer in peers {
        peer.join().unwrap();
    }
    assert_eq!(stage.ring.sockets(), 0);
    assert_eq!(alive.load(Ordering::SeqCst), 0, "a piece is still held");
    assert_eq!(descriptors(), before, "a descriptor is still open");
}

#[test]
fn a_connection_can_be_closed_after_each_event() {
    let alive = Arc::new(AtomicUsize::new(0));
    let configs = [
        small(),
        RingConfig { submission_entries: 2, completion_entries: 2, buffer_count: 2, buffer_bytes: 512, ..small() },
    ];
    for config in configs {
        let mut stage = Stage::new(&config);
        for steps in 0..40 {
            for how in 0..4 {
                close_after(&mut stage, steps, how, &alive);
            }
        }
    }
}
