//! Listeners: connections come in until they are paused, closed, or the machine has no more. Lives on the core of its ring.
#![allow(unsafe_code, reason = "an accept gives a raw descriptor, and accepts are queued here")]

use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use io_uring::{opcode, types};

use crate::error::Error;
use crate::event::Outcome;
use crate::multishot::Multishot;
use crate::queue::Completion;
use crate::ring::Ring;
use crate::socket::{Socket, SocketId};
use crate::tag::{Kind, Tag};

/// Names one listener of one ring.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ListenerId {
    slot: u32,
    generation: u32,
}

impl ListenerId {
    fn of_tag(tag: Tag) -> ListenerId {
        ListenerId { slot: tag.slot, generation: tag.generation }
    }

    fn tag(self, kind: Kind) -> u64 {
        Tag { kind, slot: self.slot, generation: self.generation }.to_bits()
    }
}

/// The slot of one listener.
pub(crate) struct Listener {
    descriptor: OwnedFd,
    accept: Multishot,
    /// One connection for each call of [`Ring::resume_accept`].
    singly: bool,
    closing: bool,
}

/// Errors that speak of one connection only, or of a call that came at the wrong moment.
fn is_passing(number: i32) -> bool {
    matches!(
        number,
        libc::ECANCELED
            | libc::EINTR
            | libc::EAGAIN
            | libc::ECONNABORTED
            | libc::EPROTO
            | libc::ENOPROTOOPT
            | libc::ENETDOWN
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::EHOSTUNREACH
            | libc::ENONET
    )
}

/// The connection that a completed accept carries.
fn connection(completion: &Completion) -> Option<OwnedFd> {
    if completion.result < 0 {
        return None;
    }
    // SAFETY: the result of a successful accept is a new descriptor that nobody else owns, and each
    // completion is taken once.
    Some(unsafe { OwnedFd::from_raw_fd(completion.result) })
}

/// Closes a connection that was accepted after everybody had lost interest.
pub(crate) fn close_late_connection(completion: &Completion) {
    drop(connection(completion));
}

impl Ring {
    /// Accepts connections from this listener until told otherwise. Clones of it must not make it
    /// non-blocking: the ring would find it empty again and again.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] when the ring has all the listeners that it can have; [`Error::System`] when
    /// the descriptor cannot be prepared.
    pub fn listen(&mut self, listener: TcpListener) -> Result<ListenerId, Error> {
        // The kernel would answer a waiting accept at once if the descriptor were not blocking.
        listener.set_nonblocking(false).map_err(|source| Error::System { what: "fcntl", source })?;
        let listener = Listener {
            descriptor: OwnedFd::from(listener),
            accept: Multishot::wanted(),
            singly: false,
            closing: false,
        };
        match self.listeners.insert(listener) {
            Ok((slot, generation)) => {
                let id = ListenerId { slot, generation };
                self.arm_accept(id);
                Ok(id)
            }
            Err(_) => Err(Error::Full { what: "listeners" }),
        }
    }

    /// From the next time that accepting begins: takes one connection for each call of [`Ring::resume_accept`], or all that
    /// come. One at a time lets a caller with a bound take no more than it has room for.
    pub fn accept_singly(&mut self, id: ListenerId, singly: bool) {
        if let Some(listener) = self.listeners.get_mut(id.slot, id.generation) {
            listener.singly = singly;
        }
    }

    /// Stops accepting. Connections that have come in by then are still told.
    pub fn pause_accept(&mut self, id: ListenerId) {
        if let Some(listener) = self.listeners.get_mut(id.slot, id.generation)
            && listener.accept.pause()
        {
            self.cancel_accept(id);
        }
    }

    /// Accepts again after [`Ring::pause_accept`] or [`Event::AcceptEnded`](crate::Event::AcceptEnded).
    pub fn resume_accept(&mut self, id: ListenerId) {
        if let Some(listener) = self.listeners.get_mut(id.slot, id.generation)
            && !listener.closing
        {
            listener.accept.resume();
            self.arm_accept(id);
        }
    }

    /// Stops accepting and closes the descriptor as soon as the kernel has let go of it. Nothing is
    /// told of this listener from now on; a connection that still comes in is closed.
    pub fn close_listener(&mut self, id: ListenerId) {
        let Some(listener) = self.listeners.get_mut(id.slot, id.generation) else {
            return;
        };
        listener.closing = true;
        if listener.accept.pause() {
            self.cancel_accept(id);
        }
        self.finish_listener(id);
    }

    fn finish_listener(&mut self, id: ListenerId) {
        if let Some(listener) = self.listeners.get_mut(id.slot, id.generation)
            && listener.closing
            && !listener.accept.in_flight()
        {
            self.listeners.remove(id.slot, id.generation);
        }
    }

    /// Arms the accept if it is wanted and not armed.
    fn arm_accept(&mut self, id: ListenerId) {
        let Some(listener) = self.listeners.get_mut(id.slot, id.generation) else {
            return;
        };
        if !listener.accept.must_arm() {
            return;
        }
        listener.accept.armed();
        let descriptor = types::Fd(listener.descriptor.as_raw_fd());
        let entry = if listener.singly {
            opcode::Accept::new(descriptor, std::ptr::null_mut(), std::ptr::null_mut())
                .flags(libc::SOCK_CLOEXEC)
                .build()
        } else {
            opcode::AcceptMulti::new(descriptor).flags(libc::SOCK_CLOEXEC).build()
        };
        let entry = entry.user_data(id.tag(Kind::Accept));
        // SAFETY: the accept carries no pointer but null ones, which ask for no address, and the slot keeps the descriptor open until the
        // accept has completed.
        unsafe { self.queue.push(entry) };
    }

    fn cancel_accept(&mut self, id: ListenerId) {
        self.queue.push_cancel(id.tag(Kind::Accept), id.tag(Kind::AcceptCancel));
    }

    pub(crate) fn complete_accept(&mut self, completion: &Completion) -> Option<Outcome> {
        let id = ListenerId::of_tag(completion.tag);
        let connection = connection(completion);
        let listener = self.listeners.get_mut(id.slot, id.generation)?;
        if !completion.more {
            listener.accept.ended();
        }
        if listener.closing {
            self.finish_listener(id);
            return None;
        }
        let Some(connection) = connection else {
            if is_passing(completion.result.saturating_neg()) {
                self.arm_accept(id);
                return None;
            }
            // The answer does not matter: the operation has just ended.
            let _ = listener.accept.pause();
            return Some(Outcome::AcceptEnded(id, completion.error()));
        };
        if listener.singly {
            // The operation has ended: the next one is the caller's to ask for.
            let _ = listener.accept.pause();
        } else {
            self.arm_accept(id);
        }
        match self.insert_socket(connection) {
            Some(socket) => Some(Outcome::Accepted(id, socket)),
            None => {
                self.refused += 1;
                None
            }
        }
    }

    pub(crate) fn complete_accept_cancel(&mut self, completion: &Completion) -> Option<Outcome> {
        let id = ListenerId::of_tag(completion.tag);
        if let Some(listener) = self.listeners.get_mut(id.slot, id.generation)
            && listener.accept.cancel_missed()
        {
            self.cancel_accept(id);
        }
        None
    }

    /// Gives a connection a slot and starts receiving; without a free slot it is closed.
    pub(crate) fn insert_socket(&mut self, connection: OwnedFd) -> Option<SocketId> {
        let id = SocketId::new(self.sockets.insert(Socket::new(connection)).ok()?);
        self.arm_receive(id);
        Some(id)
    }
}
