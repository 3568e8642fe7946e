//! Receiving: always on until paused, into buffers that all sockets share. Lives on the core of its ring.
#![allow(unsafe_code, reason = "receives are queued here")]

use io_uring::opcode;

use crate::buffers::GROUP;
use crate::event::Outcome;
use crate::queue::Completion;
use crate::ring::Ring;
use crate::socket::SocketId;
use crate::tag::Kind;

impl Ring {
    /// Stops receiving, so that the peer is slowed down. Bytes that the kernel has already handed
    /// over are still told. Calling it again changes nothing.
    pub fn pause_receive(&mut self, id: SocketId) {
        let (slot, generation) = id.parts();
        if let Some(socket) = self.sockets.get_mut(slot, generation)
            && socket.receive.pause()
        {
            self.cancel_receive(id);
        }
    }

    /// Receives again after [`Ring::pause_receive`], also while the pause has not yet taken effect.
    pub fn resume_receive(&mut self, id: SocketId) {
        let (slot, generation) = id.parts();
        if let Some(socket) = self.sockets.get_mut(slot, generation)
            && !socket.closing
        {
            socket.receive.resume();
            self.arm_receive(id);
        }
    }

    /// Arms the receive if it is wanted and not armed.
    pub(crate) fn arm_receive(&mut self, id: SocketId) {
        let (slot, generation) = id.parts();
        let Some(socket) = self.sockets.get_mut(slot, generation) else {
            return;
        };
        let Some(target) = socket.target().filter(|_| socket.must_receive()) else {
            return;
        };
        socket.receive.armed();
        let entry = opcode::RecvMulti::new(target, GROUP).build().user_data(id.tag(Kind::Receive));
        // SAFETY: the receive writes only into buffers of the group, which stay until the ring has
        // been drained, and the slot keeps the descriptor open until the receive has completed.
        unsafe { self.queue.push(entry) };
    }

    pub(crate) fn cancel_receive(&mut self, id: SocketId) {
        self.queue.push_cancel(id.tag(Kind::Receive), id.tag(Kind::ReceiveCancel));
    }

    pub(crate) fn complete_receive(&mut self, completion: &Completion) -> Option<Outcome> {
        let outcome = self.received(completion);
        // The buffer belongs to us now. If its bytes are not told, it goes straight back.
        if let Some(buffer) = completion.buffer
            && !matches!(outcome, Some(Outcome::Received { .. }))
        {
            self.give_back(buffer);
        }
        outcome
    }

    fn received(&mut self, completion: &Completion) -> Option<Outcome> {
        let id = SocketId::of_tag(completion.tag);
        let (slot, generation) = id.parts();
        let socket = self.sockets.get_mut(slot, generation)?;
        if !completion.more {
            socket.receive.ended();
        }
        if socket.closing {
            self.finish_close(id);
            return None;
        }
        if let Ok(length @ 1..) = usize::try_from(completion.result) {
            let Some(buffer) = completion.buffer else {
                debug_assert!(false, "bytes without a buffer");
                return None;
            };
            self.arm_receive(id);
            return Some(Outcome::Received { socket: id, buffer, length });
        }
        if completion.is_error(libc::ENOBUFS) {
            // Armed again by `turn`, after buffers have gone back.
            if !socket.starved {
                socket.starved = true;
                self.starved.push_back(id);
            }
            return None;
        }
        match completion.result {
            0 => {
                socket.receive_ended = true;
                Some(Outcome::ReceiveEnded(id, None))
            }
            result if matches!(-result, libc::ECANCELED | libc::EINTR | libc::EAGAIN) => {
                self.arm_receive(id);
                None
            }
            _ => {
                socket.receive_ended = true;
                Some(Outcome::ReceiveEnded(id, Some(completion.error())))
            }
        }
    }

    pub(crate) fn complete_receive_cancel(&mut self, completion: &Completion) -> Option<Outcome> {
        let id = SocketId::of_tag(completion.tag);
        let (slot, generation) = id.parts();
        if let Some(socket) = self.sockets.get_mut(slot, generation)
            && socket.receive.cancel_missed()
        {
            self.cancel_receive(id);
        }
        None
    }

    /// Arms sockets that found no buffer, oldest first and no more than there are buffers: those
    /// beyond would find none again.
    ///
    /// Without a buffer gone back since the last time, and with completions waiting that hold the
    /// buffers, nothing is armed: it would fail at once.
    pub(crate) fn feed_starved(&mut self) {
        if self.starved.is_empty() || !(self.returned || self.queue.is_drained()) {
            return;
        }
        self.returned = false;
        for _ in 0..self.buffers.count() {
            let Some(id) = self.starved.pop_front() else {
                return;
            };
            let (slot, generation) = id.parts();
            if let Some(socket) = self.sockets.get_mut(slot, generation) {
                socket.starved = false;
                self.arm_receive(id);
            }
        }
    }
}
