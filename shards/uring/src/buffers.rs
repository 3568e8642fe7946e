//! The receive buffers that the kernel picks from. Lives on the core of its ring.
#![allow(unsafe_code, reason = "the buffers are memory that kernel and program hand to each other")]

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;

use crate::block::Block;

/// The number by which operations name this group of buffers.
pub(crate) const GROUP: u16 = 0;

/// The buffers and the list by which they go back to the kernel.
///
/// Each buffer belongs either to the kernel or, from the completion that names it until
/// [`Buffers::give_back`], to us.
pub(crate) struct Buffers {
    list: Block,
    data: Block,
    count: u16,
    bytes_each: u32,
    /// How many have ever been given, modulo 2¹⁶; the kernel reads a copy of it.
    tail: u16,
}

impl Buffers {
    /// Allocates `count` buffers (a power of two) and hands all of them to the kernel.
    ///
    /// # Errors
    ///
    /// What the kernel answers to the registration.
    pub(crate) fn register(submitter: &Submitter<'_>, count: u16, bytes_each: u32) -> io::Result<Buffers> {
        debug_assert!(count.is_power_of_two(), "checked with the configuration");
        let list = Block::new(usize::from(count) * size_of::<BufRingEntry>())?;
        let data = Block::new(usize::from(count) * bytes_each as usize)?;
        // SAFETY: the list is page-aligned, has room for `count` entries, and stays until
        // `unregister`, or for ever when the ring could not be drained.
        unsafe {
            submitter.register_buf_ring_with_flags(list.start.as_ptr() as u64, count, GROUP, 0)?;
        }
        let mut buffers = Buffers { list, data, count, bytes_each, tail: 0 };
        for buffer in 0..count {
            buffers.give_back(buffer);
        }
        Ok(buffers)
    }

    /// Takes the list away from the kernel. Nothing may be receiving.
    pub(crate) fn unregister(submitter: &Submitter<'_>) {
        // The ring is about to be closed, which has the same effect, so a failure changes nothing.
        let _ = submitter.unregister_buf_ring(GROUP);
    }

    /// Keeps the memory for ever, because receives may still be in flight.
    pub(crate) fn leak(&mut self) {
        self.list.leak();
        self.data.leak();
    }

    /// How many buffers there are.
    pub(crate) fn count(&self) -> u16 {
        self.count
    }

    /// What the kernel wrote into a buffer that belongs to us.
    pub(crate) fn filled(&self, buffer: u16, length: usize) -> &[u8] {
        assert!(buffer < self.count, "the kernel named no buffer of ours");
        let length = length.min(self.bytes_each as usize);
        // SAFETY: the buffer lies inside `data` by the assertion, all of it is initialized because
        // the block was zeroed, and the kernel does not write it until `give_back`, which needs
        // `&mut self` and so cannot happen while this reference lives.
        unsafe { std::slice::from_raw_parts(self.address(buffer), length) }
    }

    /// Hands a buffer to the kernel again.
    pub(crate) fn give_back(&mut self, buffer: u16) {
        assert!(buffer < self.count, "the kernel named no buffer of ours");
        let index = usize::from(self.tail & (self.count - 1));
        let first = self.list.start.as_ptr().cast::<BufRingEntry>();
        let address = self.address(buffer) as u64;
        // SAFETY: `index` is below `count`, so the entry is inside the list. The kernel does not
        // look at it before the tail has moved past it, and no other reference to it exists. The
        // three setters leave alone the field that holds the tail in the first entry.
        unsafe {
            let entry = &mut *first.add(index);
            entry.set_addr(address);
            entry.set_len(self.bytes_each);
            entry.set_bid(buffer);
        }
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: `first` points at a valid entry; the tail inside it is aligned to two bytes, lives
        // as long as the list, and is only written through this atomic.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(first).cast_mut()) };
        // The kernel must see the entry before it sees the new tail.
        tail.store(self.tail, Ordering::Release);
    }

    fn address(&self, buffer: u16) -> *mut u8 {
        let offset = usize::from(buffer) * self.bytes_each as usize;
        // SAFETY: callers have checked `buffer < count`, so the offset is inside `data`.
        unsafe { self.data.start.as_ptr().add(offset) }
    }
}
