//! Within a turn, what has happened to files is told before what has happened to sockets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod disk;
mod stage;

use std::collections::VecDeque;
use std::io::Write;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ringmain_uring::WriteSync;

use disk::{NEW, PATIENCE, Scratch};
use stage::{Seen, Stage, small};

#[test]
fn files_come_first_within_a_turn() {
    let scratch = Scratch::new();
    let mut stage = Stage::new(&small());
    let pool = stage.ring.buffer_pool(4, 4096).unwrap();
    let file = stage.ring.open_file(&scratch.file("first"), NEW).unwrap();
    let (mut peer, socket) = stage.pair();
    let deadline = Instant::now() + PATIENCE;
    let (mut mixed, mut received) = (0, 0);
    while mixed < 50 {
        assert!(Instant::now() < deadline, "only {mixed} turns had both");
        // The socket's events are ready before the file's operation has even been queued.
        let mut pieces = VecDeque::from([Bytes::from_static(b"out")]);
        if !stage.ring.sending(socket) {
            stage.ring.send(socket, &mut pieces, usize::MAX);
        }
        peer.write_all(b"in").unwrap();
        if let Some(buffer) = pool.take() {
            stage.ring.write(file, 0, buffer, 4096, WriteSync::Data).unwrap();
        }
        stage.turn(Duration::from_millis(50));
        let files = stage.seen.iter().filter(|seen| matches!(seen, Seen::File(_))).count();
        let ahead = stage.seen.iter().take_while(|seen| matches!(seen, Seen::File(_))).count();
        assert_eq!(files, ahead, "a file was told after a socket: {:?}", stage.seen);
        mixed += usize::from(files > 0 && stage.seen.len() > files);
        for seen in stage.seen.drain(..) {
            if let Seen::Received(_, bytes) = seen {
                received += bytes.len();
            }
        }
    }
    assert!(received > 0);
}

#[test]
fn what_was_set_aside_for_files_is_not_forgotten() {
    let scratch = Scratch::new();
    let mut stage = Stage::new(&small());
    let pool = stage.ring.buffer_pool(1, 4096).unwrap();
    let file = stage.ring.open_file(&scratch.file("aside"), NEW).unwrap();
    let mut peers: Vec<_> = (0..20).map(|_| stage.pair()).collect();
    for round in 0..50_u8 {
        if let Some(buffer) = pool.take() {
            stage.ring.write(file, 0, buffer, 4096, WriteSync::Data).unwrap();
        }
        for (peer, _) in &mut peers {
            peer.write_all(&[round; 8]).unwrap();
        }
        // One event a turn: most completions are left to later turns, which must not sleep over them.
        let (mut bytes, deadline) = (0, Instant::now() + PATIENCE);
        while bytes < 20 * 8 {
            assert!(Instant::now() < deadline, "only {bytes} bytes in round {round}");
            stage.ring.turn(Some(PATIENCE)).unwrap();
            if let Some(Seen::Received(_, part)) = stage.ring.next_event().map(Seen::from) {
                assert!(part.iter().all(|byte| *byte == round));
                bytes += part.len();
            }
        }
    }
}
