//! Memory aligned to a page, at an address that stays. Lives on the core of its ring.
#![allow(unsafe_code, reason = "aligned memory is allocated and freed by hand")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::ptr::NonNull;

/// The kernel maps by pages, and direct I/O of no known device wants more of memory.
pub(crate) const PAGE_BYTES: usize = 4096;

/// A block of zeroed memory, aligned to a page.
///
/// It gives out only its address: whoever reads or writes it says why that is allowed.
pub(crate) struct Block {
    pub(crate) start: NonNull<u8>,
    layout: Layout,
    /// Given up for ever, because the kernel may still use it.
    leaked: bool,
}

impl Block {
    /// Allocates at least one byte.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` when the machine has no such block.
    pub(crate) fn new(bytes: usize) -> io::Result<Block> {
        let layout = Layout::from_size_align(bytes.max(1), PAGE_BYTES)
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        // SAFETY: the size of the layout is at least one byte.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => Ok(Block { start, layout, leaked: false }),
            None => Err(io::Error::from(io::ErrorKind::OutOfMemory)),
        }
    }

    /// Keeps the memory for ever.
    pub(crate) fn leak(&mut self) {
        self.leaked = true;
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.leaked {
            return;
        }
        // SAFETY: `start` was allocated with exactly this layout and is freed only here.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}
