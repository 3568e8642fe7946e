//! Sending: one gathered send in flight for each socket. Lives on the core of its ring.
#![allow(unsafe_code, reason = "sends are queued here")]

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;

use crate::event::Outcome;
use crate::gather::Gather;
use crate::queue::Completion;
use crate::ring::Ring;
use crate::socket::{Socket, SocketId};
use crate::tag::Kind;

/// How many finished sends keep their memory for the next ones; each has at most about 3 KiB.
const SPARE_MAX: usize = 256;

impl Ring {
    /// Starts one send of whole buffers from the front of `buffers`: at least one, as many as fit into
    /// `bytes_max`, at most 64. Gives the number of bytes taken.
    ///
    /// [`Event::Sent`](crate::Event::Sent) or [`Event::SendFailed`](crate::Event::SendFailed) follows,
    /// unless the socket is closed before. Empty buffers are dropped; nothing is sent and 0 comes
    /// back if there are no others, if the socket is closing, or if its writing has been shut down.
    ///
    /// # Panics
    ///
    /// In builds with debug assertions, when a send is already in flight; otherwise it gives 0.
    pub fn send(&mut self, id: SocketId, buffers: &mut VecDeque<Bytes>, bytes_max: usize) -> usize {
        let (slot, generation) = id.parts();
        let Some(socket) = self.sockets.get_mut(slot, generation) else {
            return 0;
        };
        debug_assert!(socket.send.is_none(), "a send is already in flight");
        if socket.send.is_some() || socket.closing || socket.write_finished {
            return 0;
        }
        let mut gather = self.spare.pop().unwrap_or_else(Gather::new);
        let bytes = gather.fill(buffers, bytes_max);
        if bytes == 0 {
            self.spare.push(gather);
            return 0;
        }
        socket.send = Some(gather);
        self.queue_send(id);
        bytes
    }

    /// Whether a send is in flight.
    pub fn sending(&self, id: SocketId) -> bool {
        self.socket(id).is_some_and(|socket| socket.send.is_some())
    }

    /// Bytes that the kernel has taken over the life of the socket. It grows during a long send, so
    /// a peer that reads slowly can be told from one that does not read. 0 for an unknown socket.
    pub fn sent_bytes(&self, id: SocketId) -> u64 {
        self.socket(id).map_or(0, |socket| socket.sent_bytes)
    }

    fn socket(&self, id: SocketId) -> Option<&Socket> {
        let (slot, generation) = id.parts();
        self.sockets.get(slot, generation)
    }

    /// Queues what is left of the socket's send.
    fn queue_send(&mut self, id: SocketId) {
        let (slot, generation) = id.parts();
        let Some(socket) = self.sockets.get_mut(slot, generation) else {
            return;
        };
        if let (Some(gather), Some(target)) = (&socket.send, socket.target()) {
            let entry = gather.operation(target).user_data(id.tag(Kind::Send));
            // SAFETY: the pieces and lists belong to the gather at an address that stays. The slot
            // keeps it, unchanged, and the descriptor open until the send has completed; a ring that
            // cannot be drained leaks it.
            unsafe { self.queue.push(entry) };
        }
    }

    pub(crate) fn cancel_send(&mut self, id: SocketId) {
        self.queue.push_cancel(id.tag(Kind::Send), id.tag(Kind::SendCancel));
    }

    pub(crate) fn complete_send(&mut self, completion: &Completion) -> Option<Outcome> {
        let id = SocketId::of_tag(completion.tag);
        let (slot, generation) = id.parts();
        let socket = self.sockets.get_mut(slot, generation)?;
        let taken = usize::try_from(completion.result).unwrap_or(0);
        socket.sent_bytes += taken as u64;
        let done = socket.send.as_mut().is_none_or(|send| send.advance(taken));
        if socket.closing {
            self.release_send(id);
            self.finish_close(id);
            return None;
        }
        let again = taken > 0 || matches!(-completion.result, libc::EINTR | libc::EAGAIN);
        if !done && again {
            self.queue_send(id);
            return None;
        }
        let finish = socket.write_finished;
        self.release_send(id);
        if finish {
            self.finish_write(id);
        }
        Some(if done {
            Outcome::Sent(id)
        } else if completion.result == 0 {
            Outcome::SendFailed(id, io::Error::from(io::ErrorKind::WriteZero))
        } else {
            Outcome::SendFailed(id, completion.error())
        })
    }

    pub(crate) fn complete_send_cancel(&mut self, completion: &Completion) -> Option<Outcome> {
        let id = SocketId::of_tag(completion.tag);
        // The completion of a send that has ended comes before that of the cancel which missed it.
        // One that is still in flight is looked for again.
        if self.socket(id).is_some_and(|socket| socket.closing && socket.send.is_some()) {
            self.cancel_send(id);
        }
        None
    }

    /// The kernel has let go of the send: its pieces go, its memory is kept for another one.
    fn release_send(&mut self, id: SocketId) {
        let (slot, generation) = id.parts();
        if let Some(socket) = self.sockets.get_mut(slot, generation)
            && let Some(mut gather) = socket.send.take()
            && self.spare.len() < SPARE_MAX
        {
            gather.clear();
            self.spare.push(gather);
        }
    }
}
