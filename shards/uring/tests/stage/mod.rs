//! The stage on which each test plays: a ring that is turned until something is seen, and its peers.
#![allow(dead_code, reason = "no test uses all of it")]

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ringmain_uring::{Event, FileEvent, ListenerId, Ring, RingConfig, SocketId};

/// No condition of any test takes longer, unless it never comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// An event with the bytes copied out of the ring.
#[derive(Debug)]
pub(crate) enum Seen {
    Accepted(SocketId),
    AcceptEnded(ListenerId, io::Error),
    Received(SocketId, Vec<u8>),
    ReceiveEnded(SocketId, Option<io::Error>),
    Sent(SocketId),
    SendFailed(SocketId, io::Error),
    Closed(SocketId),
    Woken,
    File(FileEvent),
}

impl From<Event<'_>> for Seen {
    fn from(event: Event<'_>) -> Seen {
        match event {
            Event::Accepted { socket, .. } => Seen::Accepted(socket),
            Event::AcceptEnded { listener, error } => Seen::AcceptEnded(listener, error),
            Event::Received { socket, bytes } => Seen::Received(socket, bytes.to_vec()),
            Event::ReceiveEnded { socket, error } => Seen::ReceiveEnded(socket, error),
            Event::Sent { socket } => Seen::Sent(socket),
            Event::SendFailed { socket, error } => Seen::SendFailed(socket, error),
            Event::Closed { socket } => Seen::Closed(socket),
            Event::Woken => Seen::Woken,
            Event::File(event) => Seen::File(event),
        }
    }
}

/// A small ring, so that the tests run with many at once.
pub(crate) fn small() -> RingConfig {
    RingConfig {
        submission_entries: 64,
        completion_entries: 256,
        buffer_count: 16,
        buffer_bytes: 4096,
        sockets_max: 1024,
    }
}

/// A listener on a free port and its address.
pub(crate) fn listener() -> (TcpListener, SocketAddr) {
    let listener = ringmain_uring::listen::bind(([127, 0, 0, 1], 0).into(), 1024).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A peer that gives up rather than hang the test.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A ring that listens, and what it has told and nobody has asked for yet.
pub(crate) struct Stage {
    pub(crate) ring: Ring,
    pub(crate) listener: ListenerId,
    pub(crate) address: SocketAddr,
    pub(crate) seen: VecDeque<Seen>,
}

impl Stage {
    pub(crate) fn new(config: &RingConfig) -> Stage {
        let (listener, _) = listener();
        Stage::on(config, listener)
    }

    /// A stage with a listener that was prepared by the test.
    pub(crate) fn on(config: &RingConfig, listener: TcpListener) -> Stage {
        let mut ring = Ring::new(config).unwrap();
        let address = listener.local_addr().unwrap();
        let listener = ring.listen(listener).unwrap();
        Stage { ring, listener, address, seen: VecDeque::new() }
    }

    /// A peer and the ring's end of its connection.
    pub(crate) fn pair(&mut self) -> (TcpStream, SocketId) {
        let peer = connect(self.address);
        let socket = self.until("accepted", |seen| match seen {
            Seen::Accepted(socket) => Some(*socket),
            _ => None,
        });
        (peer, socket)
    }

    /// One turn of at most `wait`, and all that it tells.
    pub(crate) fn turn(&mut self, wait: Duration) {
        self.ring.turn(Some(wait)).unwrap();
        while let Some(event) = self.ring.next_event() {
            self.seen.push_back(event.into());
        }
    }

    /// Turns until an event answers, and takes that event away.
    pub(crate) fn until<T>(&mut self, what: &str, mut find: impl FnMut(&Seen) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            for index in 0..self.seen.len() {
                if let Some(found) = find(&self.seen[index]) {
                    self.seen.remove(index);
                    return found;
                }
            }
            assert!(Instant::now() < deadline, "never: {what}; seen: {:?}", self.seen);
            self.turn(Duration::from_millis(50));
        }
    }

    /// Turns until as many bytes have come from the socket.
    pub(crate) fn receive(&mut self, from: SocketId, bytes: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < bytes {
            all.extend(self.until("bytes", |seen| match seen {
                Seen::Received(socket, bytes) if *socket == from => Some(bytes.clone()),
                _ => None,
            }));
        }
        assert_eq!(all.len(), bytes);
        all
    }

    pub(crate) fn closed(&mut self, which: SocketId) {
        self.until("closed", |seen| matches!(seen, Seen::Closed(socket) if *socket == which).then_some(()));
    }

    pub(crate) fn sent(&mut self, which: SocketId) {
        self.until("sent", |seen| match seen {
            Seen::Sent(socket) => (*socket == which).then_some(()),
            Seen::SendFailed(_, error) => panic!("the send failed: {error}"),
            _ => None,
        });
    }

    pub(crate) fn receive_ended(&mut self, which: SocketId) -> Option<i32> {
        self.until("receive ended", |seen| match seen {
            Seen::ReceiveEnded(socket, error) if *socket == which => {
                Some(error.as_ref().map(|error| error.raw_os_error().unwrap()))
            }
            _ => None,
        })
    }
}

/// Bytes in which each position can be told from its neighbours.
pub(crate) fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

/// How many descriptors the process has open. Only for tests that are alone in their process.
pub(crate) fn descriptors() -> usize {
    // The one that reads the directory counts itself, each time.
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Bytes that tell when they are dropped.
pub(crate) struct Watched {
    bytes: Vec<u8>,
    alive: Arc<AtomicUsize>,
}

impl Watched {
    /// A piece to send; `alive` counts it for as long as somebody holds it.
    pub(crate) fn piece(bytes: Vec<u8>, alive: &Arc<AtomicUsize>) -> Bytes {
        alive.fetch_add(1, Ordering::SeqCst);
        Bytes::from_owner(Watched { bytes, alive: Arc::clone(alive) })
    }
}

impl AsRef<[u8]> for Watched {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Whoever still reads this memory sees at once that it is gone.
        self.bytes.fill(0xdd);
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}
