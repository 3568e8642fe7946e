//! A send that the kernel takes in parts goes on from where it stopped, and its progress can be watched.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod stage;

use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

use bytes::Bytes;
use socket2::SockRef;

use stage::{PATIENCE, Seen, Stage, listener, pattern, small};

#[test]
fn a_short_send_goes_on_from_where_it_stopped() {
    let (listener, _) = listener();
    SockRef::from(&listener).set_send_buffer_size(40_000).unwrap();
    let mut stage = Stage::on(&small(), listener);
    let (mut peer, socket) = stage.pair();

    SockRef::from(&peer).set_recv_buffer_size(90_000).unwrap();
    peer.set_nonblocking(true).unwrap();

    // One piece and many, of sizes that meet the limits of the buffers nowhere.
    for pieces in [1_usize, 2, 64] {
        let parts: Vec<Bytes> = (0..pieces)
            .map(|index| {
                let bytes = (6 << 20) / pieces + index * 13;
                Bytes::from(pattern(bytes, index as u64))
            })
            .collect();
        let whole = parts.concat();
        let before = stage.ring.sent_bytes(socket);
        let mut queue = VecDeque::from(parts);
        let taken = stage.ring.send(socket, &mut queue, usize::MAX);
        assert_eq!(taken, whole.len());
        assert!(queue.is_empty());

        stage.turn(Duration::from_millis(10));
        let first = stage.ring.sent_bytes(socket) - before;
        assert!(first < taken as u64, "the buffers took all of it");
        assert!(stage.ring.sending(socket));

        let mut got = vec![0; whole.len()];
        let mut at = 0;
        let mut grew = 0;
        let mut last = first;
        let deadline = Instant::now() + PATIENCE;
        while at < got.len() {
            assert!(Instant::now() < deadline, "stuck at {at}");
            let end = got.len().min(at + 300_000);
            match peer.read(&mut got[at..end]) {
                Ok(count) => at += count,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            stage.turn(Duration::ZERO);
            let sent = stage.ring.sent_bytes(socket) - before;
            assert!(sent >= last, "progress went back");
            grew += usize::from(sent > last);
            last = sent;
        }
        stage.sent(socket);
        assert!(got == whole, "the bytes differ");
        assert!(grew > 1, "progress was not to be seen");
        assert_eq!(stage.ring.sent_bytes(socket) - before, taken as u64);
        assert!(!stage.ring.sending(socket));
    }
}

#[test]
fn a_send_to_a_peer_that_is_gone_fails_and_the_socket_can_be_closed() {
    let mut stage = Stage::new(&small());
    let (peer, socket) = stage.pair();
    drop(peer);
    let number = loop {
        if !stage.ring.sending(socket) {
            let mut pieces = VecDeque::from([Bytes::from(pattern(1000, 1))]);
            stage.ring.send(socket, &mut pieces, usize::MAX);
        }
        let failed = stage.until("sent or failed", |seen| match seen {
            Seen::Sent(_) => Some(None),
            Seen::SendFailed(_, error) => Some(error.raw_os_error()),
            _ => None,
        });
        if let Some(number) = failed {
            break number;
        }
    };
    assert!(matches!(number, libc::EPIPE | libc::ECONNRESET), "{number}");
    stage.ring.close(socket);
    stage.closed(socket);
}
