//! The kernel: one io_uring per core, sockets, files, wake-ups, processor placement. Each core owns one ring.
//!
//! This is the only crate of the project that knows io_uring and the only one that contains `unsafe`.
//! Nothing of the ring shows in its interface, so another way of asking the kernel can take its place.
//!
//! A loop makes a [`Ring`] on its own thread and then alternates between [`Ring::turn`], which hands
//! everything queued to the kernel in one system call and waits, and [`Ring::next_event`], which tells
//! one by one what has happened.
//!
//! # Why it is safe
//!
//! The kernel works on memory of ours while no Rust code runs. All of that memory belongs to one of
//! four owners, none of which lets go before the kernel has said that it is done:
//!
//! * the receive buffers belong to the ring; the kernel gets one only after nobody can hold a
//!   reference into it, because [`Event`] borrows the ring;
//! * the pieces of a send belong to the slot of its socket until the send completes, and a slot is
//!   freed only when nothing is in flight for it;
//! * the buffer of a write or read, the paths of an open, rename or unlink, and what is told of a file that was
//!   opened belong to the slot of their operation until all of its completions have come, and a file's
//!   descriptor stays open as long;
//! * the counter of the wake-up is shared by the ring and its wakers.
//!
//! Dropping a ring cancels everything and waits for it. If the kernel does not answer in time, the
//! memory is leaked on purpose, because leaking it is safe and freeing it is not.

mod accept;
mod block;
mod buffers;
mod close;
pub mod descriptors;
mod directory;
mod error;
mod event;
mod file;
mod files;
mod gather;
mod kernel;
pub mod listen;
mod lock;
mod measure;
pub mod memory;
mod multishot;
mod open;
mod operation;
mod pool;
pub mod processor;
mod queue;
mod receive;
mod ring;
mod send;
mod slab;
mod socket;
mod storage;
mod tag;
mod waker;

pub use crate::accept::ListenerId;
pub use crate::directory::Directory;
pub use crate::error::Error;
pub use crate::event::Event;
pub use crate::file::{FileAccess, FileFacts, FileId, FileMode};
pub use crate::lock::{LockGuard, LockHeld, lock_exclusive};
pub use crate::measure::{SyncMeasure, measure_sync};
pub use crate::open::OpenedFile;
pub use crate::operation::{FileEvent, FileOutcome, OperationId, Refusal, Refused};
pub use crate::pool::{AlignedBuffer, BUFFER_ALIGNMENT_BYTES, BufferPool};
pub use crate::ring::{Ring, RingConfig};
pub use crate::socket::SocketId;
pub use crate::storage::{SyncChoice, WriteSync};
pub use crate::waker::Waker;
