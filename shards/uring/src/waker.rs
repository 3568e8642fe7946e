//! Wakes a loop that sleeps in its ring. The ring's half lives on its core, wakers on any thread.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use io_uring::{opcode, squeue, types};

use crate::tag::{Kind, Tag};

/// Wakes the loop of one ring from any thread.
///
/// A wake is never lost: if the loop is not sleeping, its next sleep ends at once. Several wakes may
/// end in one [`Event::Woken`](crate::Event::Woken).
#[derive(Clone)]
pub struct Waker {
    shared: Arc<Shared>,
}

struct Shared {
    /// In blocking mode, because the kernel would otherwise answer the waiting read at once.
    counter: OwnedFd,
    /// Where the kernel puts what it read. Nobody looks at it; an atomic, as the kernel writes it
    /// while wakers hold references to this structure.
    read: AtomicU64,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        let counter = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        Ok(Waker { shared: Arc::new(Shared { counter, read: AtomicU64::new(0) }) })
    }

    /// Wakes the ring's loop. Costs one system call. After the ring is gone it does nothing.
    pub fn wake(&self) {
        let one = 1_u64.to_ne_bytes();
        // The write can fail only if a signal comes before it, and then it is repeated, or when the
        // counter is at its end, and then the loop has not yet seen an earlier wake.
        while let Err(rustix::io::Errno::INTR) = rustix::io::write(&self.shared.counter, &one) {}
    }

    /// The read that ends with the next wake. Its target lives as long as any clone of this waker.
    pub(crate) fn read(&self) -> squeue::Entry {
        const COUNTER_BYTES: u32 = 8;
        opcode::Read::new(types::Fd(self.descriptor()), self.shared.read.as_ptr().cast::<u8>(), COUNTER_BYTES)
            .build()
            .user_data(Tag::of_ring(Kind::Wake).to_bits())
    }

    fn descriptor(&self) -> RawFd {
        self.shared.counter.as_raw_fd()
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Waker").field(&self.descriptor()).finish()
    }
}
