//! How a socket comes and goes other than by accept: adopted, shut down, closed, aborted. Lives on the core of its ring.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::Shutdown;
use socket2::SockRef;

use crate::error::Error;
use crate::ring::Ring;
use crate::socket::SocketId;

impl Ring {
    /// Takes over a socket that was connected elsewhere, and starts receiving. Clones of the stream
    /// must not make it non-blocking: the ring would find it empty again and again.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] when `sockets_max` are open; [`Error::System`] when the descriptor cannot be
    /// prepared. The connection is closed then.
    pub fn adopt(&mut self, stream: TcpStream) -> Result<SocketId, Error> {
        // The kernel would answer a waiting receive at once if the descriptor were not blocking.
        stream.set_nonblocking(false).map_err(|source| Error::System { what: "fcntl", source })?;
        self.insert_socket(OwnedFd::from(stream)).ok_or(Error::Full { what: "sockets" })
    }

    /// The address of the other end.
    ///
    /// # Errors
    ///
    /// What the system says; `NotConnected` when the socket is unknown or closed.
    pub fn peer_address(&self, id: SocketId) -> io::Result<SocketAddr> {
        let (slot, generation) = id.parts();
        let descriptor = self
            .sockets
            .get(slot, generation)
            .and_then(|socket| socket.descriptor.as_ref())
            .ok_or(io::ErrorKind::NotConnected)?;
        SockRef::from(descriptor).peer_addr()?.as_socket().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))
    }

    /// Tells the peer that nothing more will be sent, after the send in flight, and goes on
    /// receiving: the first half of a lingering close.
    pub fn shutdown_write(&mut self, id: SocketId) {
        let (slot, generation) = id.parts();
        let Some(socket) = self.sockets.get_mut(slot, generation) else {
            return;
        };
        if socket.closing || socket.write_finished {
            return;
        }
        socket.write_finished = true;
        if socket.send.is_none() {
            self.finish_write(id);
        }
    }

    pub(crate) fn finish_write(&mut self, id: SocketId) {
        let (slot, generation) = id.parts();
        if let Some(socket) = self.sockets.get(slot, generation)
            && let Some(descriptor) = &socket.descriptor
        {
            // A failure means that the connection is gone already, which the receive will tell.
            let _ = rustix::net::shutdown(descriptor, Shutdown::Write);
        }
    }

    /// Closes the socket: stops the receive and a send in flight, waits for both, then closes the
    /// descriptor. [`Event::Closed`](crate::Event::Closed) follows, exactly once; nothing else is
    /// told of the socket. What the kernel has taken before is still sent.
    pub fn close(&mut self, id: SocketId) {
        let (slot, generation) = id.parts();
        let Some(socket) = self.sockets.get_mut(slot, generation) else {
            return;
        };
        if socket.closing {
            return;
        }
        socket.closing = true;
        let receiving = socket.receive.pause();
        let sending = socket.send.is_some();
        if receiving {
            self.cancel_receive(id);
        }
        if sending {
            self.cancel_send(id);
        }
        self.finish_close(id);
    }

    /// Like [`Ring::close`], but the peer gets a reset, and what was not yet sent is thrown away.
    pub fn abort(&mut self, id: SocketId) {
        let (slot, generation) = id.parts();
        if let Some(socket) = self.sockets.get(slot, generation)
            && let Some(descriptor) = &socket.descriptor
        {
            // A failure leaves an ordinary close, which is the next best.
            let _ = SockRef::from(descriptor).set_linger(Some(Duration::ZERO));
        }
        self.close(id);
    }

    /// Closes the descriptor of a closing socket once the kernel has nothing of it any more. The slot
    /// is freed when `Closed` is told, so that nobody hears of its next user before.
    pub(crate) fn finish_close(&mut self, id: SocketId) {
        let (slot, generation) = id.parts();
        if let Some(socket) = self.sockets.get_mut(slot, generation)
            && socket.closing
            && socket.is_quiet()
            && socket.descriptor.take().is_some()
        {
            self.closed.push_back(id);
        }
    }
}
