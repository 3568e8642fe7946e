//! The memory of one gathered send, at an address that stays. Lives on the core of its ring.
#![allow(unsafe_code, reason = "the kernel reads iovecs and pieces through raw pointers")]

use std::collections::VecDeque;
use std::ptr::{self, NonNull};

use bytes::Bytes;
use io_uring::{opcode, squeue, types};

/// The most pieces of one send. More gain little, and the kernel copies the list for each call.
pub(crate) const PIECES_MAX: usize = 64;

/// The most that one call to the kernel can take; more is cut by it anyway.
const CALL_BYTES_MAX: usize = i32::MAX as usize;

/// Owns the pieces of a send together with the lists that describe them to the kernel.
///
/// It is a raw pointer and not a box, because moving a box tells the compiler that nobody else
/// looks at its inside, and the kernel does.
pub(crate) struct Gather {
    memory: NonNull<Memory>,
}

struct Memory {
    pieces: Vec<Bytes>,
    /// For each piece the part that is not yet sent.
    parts: Vec<libc::iovec>,
    /// The first piece that is not wholly sent.
    first: usize,
    header: libc::msghdr,
}

impl Gather {
    /// An empty one, to be filled by [`Gather::fill`].
    pub(crate) fn new() -> Gather {
        let memory = Box::new(Memory {
            pieces: Vec::new(),
            parts: Vec::new(),
            first: 0,
            // SAFETY: all zero is a valid `msghdr`: null pointers with zero lengths.
            header: unsafe { std::mem::zeroed() },
        });
        Gather { memory: NonNull::from(Box::leak(memory)) }
    }

    fn memory(&self) -> &Memory {
        // SAFETY: `memory` comes from `Box::leak` in `new`, is freed only in `drop`, and the kernel
        // only reads it, so a shared reference is allowed at any time.
        unsafe { self.memory.as_ref() }
    }

    fn memory_mut(&mut self) -> &mut Memory {
        // SAFETY: as above; `&mut self` makes this the only reference on our side, and callers
        // change the memory only while no operation on it is in flight.
        unsafe { self.memory.as_mut() }
    }

    /// Takes whole buffers from the front: at least one, at most `bytes_max` bytes beyond the first,
    /// at most [`PIECES_MAX`] of them. Empty ones are thrown away. Gives the number of bytes.
    ///
    /// Must not be called while an operation on this memory is in flight.
    pub(crate) fn fill(&mut self, buffers: &mut VecDeque<Bytes>, bytes_max: usize) -> usize {
        let memory = self.memory_mut();
        debug_assert!(memory.pieces.is_empty(), "the last send is still here");
        let mut bytes = 0_usize;
        while memory.pieces.len() < PIECES_MAX {
            let Some(front) = buffers.front() else { break };
            let total = bytes.saturating_add(front.len());
            if !memory.pieces.is_empty() && total > bytes_max {
                break;
            }
            if let Some(piece) = buffers.pop_front()
                && !piece.is_empty()
            {
                bytes = total;
                memory.parts.push(libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() });
                memory.pieces.push(piece);
            }
        }
        memory.describe();
        bytes
    }

    /// The kernel has taken this many bytes; true when nothing is left.
    ///
    /// Must not be called while an operation on this memory is in flight.
    pub(crate) fn advance(&mut self, bytes: usize) -> bool {
        let memory = self.memory_mut();
        let mut left = bytes;
        while let Some(part) = memory.parts.get_mut(memory.first) {
            if left < part.iov_len {
                // SAFETY: `left` is less than the length of the part, so the result stays inside
                // the piece that the part points into.
                part.iov_base = unsafe { part.iov_base.cast::<u8>().add(left) }.cast();
                part.iov_len -= left;
                left = 0;
                break;
            }
            left -= part.iov_len;
            memory.pieces[memory.first] = Bytes::new();
            memory.first += 1;
        }
        debug_assert_eq!(left, 0, "the kernel took more than it was given");
        memory.describe();
        memory.first == memory.parts.len()
    }

    /// The operation that sends what is left. The caller keeps `self` until it has completed.
    pub(crate) fn operation(&self, target: types::Fd) -> squeue::Entry {
        let memory = self.memory();
        match memory.parts.get(memory.first..) {
            Some([part]) => {
                let length = u32::try_from(part.iov_len.min(CALL_BYTES_MAX)).unwrap_or(u32::MAX);
                opcode::Send::new(target, part.iov_base.cast(), length).flags(libc::MSG_NOSIGNAL).build()
            }
            _ => {
                opcode::SendMsg::new(target, &raw const memory.header).flags(libc::MSG_NOSIGNAL.unsigned_abs()).build()
            }
        }
    }

    /// Lets the pieces go, so that the memory can serve another send.
    ///
    /// Must not be called while an operation on this memory is in flight.
    pub(crate) fn clear(&mut self) {
        let memory = self.memory_mut();
        memory.pieces.clear();
        memory.parts.clear();
        memory.first = 0;
        memory.describe();
    }
}

impl Memory {
    /// Points the header at the parts that are left.
    fn describe(&mut self) {
        let rest = self.parts.get_mut(self.first..).unwrap_or_default();
        self.header.msg_iovlen = rest.len() as _;
        self.header.msg_iov = if rest.is_empty() { ptr::null_mut() } else { rest.as_mut_ptr() };
    }
}

impl Drop for Gather {
    fn drop(&mut self) {
        // SAFETY: the pointer comes from `Box::leak` and nobody else frees it. The ring drops a
        // `Gather` only when no operation on it is in flight, and otherwise forgets it.
        drop(unsafe { Box::from_raw(self.memory.as_ptr()) });
    }
}

#[cfg(test)]
mod tests;
