//! The memory that files are written from and read into: bounded pools of aligned buffers. Lives on the core of its ring.
#![allow(unsafe_code, reason = "buffers are parts of one block, and the kernel is told where they are")]

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use io_uring::Submitter;

use crate::block::{Block, PAGE_BYTES};
use crate::error::Error;
use crate::ring::Ring;

/// Where each buffer begins: at a multiple of this many bytes. A file whose device wants more is not
/// opened for direct I/O.
pub const BUFFER_ALIGNMENT_BYTES: u32 = 4096;

const _: () = assert!(BUFFER_ALIGNMENT_BYTES as usize == PAGE_BYTES, "a block is aligned like a buffer");

/// The largest buffer: the kernel registers no larger one.
const BUFFER_BYTES_MAX: u32 = 1 << 30;

/// Buffers that one ring registers. Those beyond work as well, a little slower.
const REGISTERED_MAX: u16 = 1024;

/// A bounded number of buffers of one size. Clones share them.
#[derive(Clone)]
pub struct BufferPool {
    memory: Rc<PoolMemory>,
}

pub(crate) struct PoolMemory {
    block: Block,
    bytes_each: u32,
    count: u16,
    /// The buffers that nobody has taken; the last is taken next, because it is warm.
    free: RefCell<Vec<u16>>,
    /// The number of the first buffer in the kernel's table, if it knows them.
    first_registered: Option<u16>,
}

impl BufferPool {
    /// Takes a buffer, or none when all are taken. Its bytes are those that its last user left in it;
    /// zero at first.
    pub fn take(&self) -> Option<AlignedBuffer> {
        let index = self.memory.free.borrow_mut().pop()?;
        Some(AlignedBuffer { pool: Rc::clone(&self.memory), index })
    }

    /// How many buffers can be taken now.
    pub fn available(&self) -> usize {
        self.memory.free.borrow().len()
    }

    /// The size of each buffer in bytes.
    pub fn bytes_each(&self) -> u32 {
        self.memory.bytes_each
    }

    /// Whether the kernel keeps the buffers mapped, which saves it work with each operation. It
    /// refuses beyond RLIMIT_MEMLOCK, which counts all of a user's processes; all works without.
    pub fn registered(&self) -> bool {
        self.memory.first_registered.is_some()
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("BufferPool")
            .field("count", &self.memory.count)
            .field("bytes_each", &self.memory.bytes_each)
            .field("available", &self.available())
            .field("registered", &self.registered())
            .finish()
    }
}

/// Memory that begins at a multiple of [`BUFFER_ALIGNMENT_BYTES`]. Goes back to its pool when dropped.
///
/// An operation owns its buffer from the call that starts it to the event that ends it, so nobody can
/// look at it meanwhile.
pub struct AlignedBuffer {
    pool: Rc<PoolMemory>,
    index: u16,
}

impl AlignedBuffer {
    pub(crate) fn address(&self) -> *mut u8 {
        let offset = usize::from(self.index) * self.pool.bytes_each as usize;
        // SAFETY: `index` is below the pool's count, so the offset is inside its block.
        unsafe { self.pool.block.start.as_ptr().add(offset) }
    }

    /// The size in bytes.
    pub(crate) fn bytes(&self) -> u32 {
        self.pool.bytes_each
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the part belongs to this value alone, since its index is not in the list of free
        // ones; the block was zeroed, so all of it is initialized. The kernel writes it only while an
        // operation owns this value, and the operation makes no reference.
        unsafe { std::slice::from_raw_parts(self.address(), self.pool.bytes_each as usize) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; `&mut self` makes it the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.address(), self.pool.bytes_each as usize) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        self.pool.free.borrow_mut().push(self.index);
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AlignedBuffer").field("index", &self.index).field("bytes", &self.bytes()).finish()
    }
}

/// The kernel's table of buffers of one ring.
pub(crate) struct Registered {
    /// They stay as long as the ring, because the kernel holds their pages.
    pools: Vec<Rc<PoolMemory>>,
    /// Entries in use.
    used: u16,
    /// Whether the empty table has been made.
    made: bool,
}

impl Registered {
    pub(crate) fn new() -> Registered {
        Registered { pools: Vec::new(), used: 0, made: false }
    }

    /// The number of a buffer in the kernel's table; none when this ring's kernel does not know it.
    pub(crate) fn index(&self, buffer: &AlignedBuffer) -> Option<u16> {
        let first = buffer.pool.first_registered?;
        // A pool of another ring stands in the table of that ring.
        self.pools.iter().any(|pool| Rc::ptr_eq(pool, &buffer.pool)).then_some(first + buffer.index)
    }

    /// Tells the kernel of all buffers of a block or of none, and gives the number of the first.
    ///
    /// Why it refuses does not matter: what is not registered works as well. Half a pool is given back,
    /// because the memory that may be locked is needed for rings too.
    fn register(&mut self, submitter: &Submitter<'_>, block: &Block, count: u16, bytes_each: u32) -> Option<u16> {
        if count > REGISTERED_MAX - self.used {
            return None;
        }
        if !self.made {
            submitter.register_buffers_sparse(u32::from(REGISTERED_MAX)).ok()?;
            self.made = true;
        }
        let first = self.used;
        for index in 0..count {
            let offset = usize::from(index) * bytes_each as usize;
            // SAFETY: `index` is below `count`, for which the block was allocated.
            let start = unsafe { block.start.as_ptr().add(offset) };
            let part = libc::iovec { iov_base: start.cast(), iov_len: bytes_each as usize };
            // SAFETY: the block stays as long as the ring, because `pools` will hold it; if a later
            // part is refused, this one is taken out of the table again.
            if unsafe { submitter.register_buffers_update(u32::from(first + index), &[part], None) }.is_err() {
                for index in 0..index {
                    let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
                    // SAFETY: an empty part points at nothing. If this fails, the kernel keeps pages that
                    // no operation will ever name.
                    let _ = unsafe { submitter.register_buffers_update(u32::from(first + index), &[nothing], None) };
                }
                return None;
            }
        }
        self.used += count;
        Some(first)
    }

    /// Empties the kernel's table. Nothing may be in flight.
    pub(crate) fn unregister(&self, submitter: &Submitter<'_>) {
        if self.made {
            // The ring is about to be closed, which has the same effect, so a failure changes nothing.
            let _ = submitter.unregister_buffers();
        }
    }
}

impl Ring {
    /// Makes a pool of `count` buffers of `bytes_each` bytes, a multiple of [`BUFFER_ALIGNMENT_BYTES`]
    /// and at most 1 GiB.
    ///
    /// It is registered with the kernel if that allows it, see [`BufferPool::registered`], and keeps its
    /// memory until the ring is dropped then: pools are for the whole life of a loop. The first 1024
    /// buffers of a ring can be registered. Locked memory is needed for rings too, so a process makes
    /// all its rings before its pools.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for sizes that cannot be; [`Error::System`] when there is no memory.
    pub fn buffer_pool(&mut self, count: u16, bytes_each: u32) -> Result<BufferPool, Error> {
        if count == 0 {
            return Err(Error::Config { reason: "the pool of file buffers is empty" });
        }
        if bytes_each == 0 || !bytes_each.is_multiple_of(BUFFER_ALIGNMENT_BYTES) || bytes_each > BUFFER_BYTES_MAX {
            return Err(Error::Config { reason: "the size of a file buffer is not a multiple of 4096 up to 1 GiB" });
        }
        let block = Block::new(usize::from(count) * bytes_each as usize)
            .map_err(|source| Error::System { what: "allocating file buffers", source })?;
        let submitter = self.queue.submitter();
        let first_registered = self.files.registered.register(&submitter, &block, count, bytes_each);
        let free = RefCell::new((0..count).rev().collect());
        let memory = Rc::new(PoolMemory { block, bytes_each, count, free, first_registered });
        if first_registered.is_some() {
            self.files.registered.pools.push(Rc::clone(&memory));
        }
        Ok(BufferPool { memory })
    }
}
