//! What a ring does with memory that the kernel does not give back in time.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::VecDeque;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Ring, RingConfig};
use crate::event::Event;
use crate::file::{FileAccess, FileId, FileMode};
use crate::operation::FileOutcome;
use crate::pool::BufferPool;
use crate::storage::{SyncChoice, WriteSync};

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

/// A file without a name, a buffer for it, and the ring that has them.
fn with_a_file() -> (Ring, FileId, BufferPool) {
    let mut ring = Ring::new(&RingConfig::default()).unwrap();
    let name = format!("ringmain-ring-{}-{:?}", std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(name);
    let file = ring.open_file(&path, FileMode { access: FileAccess::CreateNew, direct: true }).unwrap();
    std::fs::remove_file(&path).unwrap();
    let pool = ring.buffer_pool(2, 8192).unwrap();
    (ring, file, pool)
}

fn write_block(ring: &mut Ring, file: FileId, pool: &BufferPool) {
    ring.write(file, 0, pool.take().unwrap(), 8192, WriteSync::Data).unwrap();
}

/// Whether the only operation has written all and synced it.
fn is_durable(ring: &mut Ring) -> bool {
    loop {
        ring.turn(Some(Duration::from_secs(30))).unwrap();
        if let Some(Event::File(event)) = ring.next_event() {
            assert_eq!(ring.file_operations(), 0);
            return matches!(
                event.outcome,
                FileOutcome::Written { written_bytes: 8192, synced: true, error: None, .. }
            );
        }
    }
}

#[test]
fn a_buffer_that_the_kernel_may_still_use_is_leaked_and_not_freed() {
    for leak in [true, false] {
        let (mut ring, file, pool) = with_a_file();
        write_block(&mut ring, file, &pool);
        if leak {
            ring.files.leak();
        }
        drop(ring);
        assert_eq!(pool.available(), if leak { 1 } else { 2 });
    }
}

#[test]
fn a_linked_write_that_may_have_been_parted_is_synced_again() {
    let (mut ring, file, pool) = with_a_file();
    ring.set_sync_choice(SyncChoice::WriteThenSync);
    write_block(&mut ring, file, &pool);
    ring.queue.pretend_cut();
    ring.turn(Some(Duration::ZERO)).unwrap();
    assert!(is_durable(&mut ring));
    write_block(&mut ring, file, &pool);
    assert!(is_durable(&mut ring));
}

#[test]
fn a_file_system_that_cannot_write_through_gets_a_linked_sync() {
    const NEVER_KNOWN: i32 = 1 << 30;
    let (mut ring, file, pool) = with_a_file();
    ring.files.write_through_flag = NEVER_KNOWN;
    assert!(!ring.write_through_refused(file));
    write_block(&mut ring, file, &pool);
    assert!(is_durable(&mut ring));
    assert!(ring.write_through_refused(file));
    write_block(&mut ring, file, &pool);
    assert!(is_durable(&mut ring));
}
