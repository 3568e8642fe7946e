//! The slot of one connection: what is in flight for it. Lives on the core of its ring.

use std::os::fd::{AsRawFd, OwnedFd};

use io_uring::types;

use crate::gather::Gather;
use crate::multishot::Multishot;
use crate::tag::{Kind, Tag};

/// Names one connection of one ring, and no other one even after its slot is used again.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct SocketId {
    slot: u32,
    generation: u32,
}

impl SocketId {
    pub(crate) fn new((slot, generation): (u32, u32)) -> SocketId {
        SocketId { slot, generation }
    }

    /// A name made by hand, for tables in tests. It names no socket unless a ring gives out the same.
    pub fn from_parts(slot: u32, generation: u32) -> SocketId {
        SocketId { slot, generation }
    }

    /// The place in the ring's table: below `sockets_max`, and used again after the socket has closed.
    pub fn slot(self) -> usize {
        self.slot as usize
    }

    /// How many sockets have had this slot before, modulo 2³².
    pub fn generation(self) -> u32 {
        self.generation
    }

    pub(crate) fn parts(self) -> (u32, u32) {
        (self.slot, self.generation)
    }

    pub(crate) fn of_tag(tag: Tag) -> SocketId {
        SocketId { slot: tag.slot, generation: tag.generation }
    }

    pub(crate) fn tag(self, kind: Kind) -> u64 {
        Tag { kind, slot: self.slot, generation: self.generation }.to_bits()
    }
}

/// Everything that the ring keeps about one connection. Ten thousand idle ones must be cheap.
pub(crate) struct Socket {
    /// None between the end of the last operation and the delivery of `Closed`.
    pub(crate) descriptor: Option<OwnedFd>,
    pub(crate) receive: Multishot,
    /// The end of the stream or an error has been told.
    pub(crate) receive_ended: bool,
    /// In the queue of those that wait for receive buffers.
    pub(crate) starved: bool,
    /// The caller has closed it; it hears nothing more but `Closed`.
    pub(crate) closing: bool,
    /// The caller will send no more; FIN goes out when the send in flight is done.
    pub(crate) write_finished: bool,
    /// The send in flight, with all that the kernel reads for it.
    pub(crate) send: Option<Gather>,
    /// Bytes that the kernel has taken over the life of the socket.
    pub(crate) sent_bytes: u64,
}

const _: () = assert!(size_of::<Option<Socket>>() <= 64, "an idle socket must stay small");

impl Socket {
    pub(crate) fn new(descriptor: OwnedFd) -> Socket {
        Socket {
            descriptor: Some(descriptor),
            receive: Multishot::wanted(),
            receive_ended: false,
            starved: false,
            closing: false,
            write_finished: false,
            send: None,
            sent_bytes: 0,
        }
    }

    /// The descriptor as the kernel's queue wants it; none once it is closed.
    pub(crate) fn target(&self) -> Option<types::Fd> {
        self.descriptor.as_ref().map(|descriptor| types::Fd(descriptor.as_raw_fd()))
    }

    /// Whether a receive should be armed now.
    pub(crate) fn must_receive(&self) -> bool {
        self.receive.must_arm() && !self.receive_ended && !self.starved && !self.closing && self.descriptor.is_some()
    }

    /// Whether the kernel has nothing of this socket any more.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.receive.in_flight() && self.send.is_none()
    }
}
