//! What a ring tells its loop. Lives on the core of its ring.

use std::io;

use crate::accept::ListenerId;
use crate::operation::FileEvent;
use crate::socket::SocketId;

/// One thing that has happened. Borrows the ring, because received bytes stay in its buffer.
#[derive(Debug)]
pub enum Event<'ring> {
    /// A connection came in. Its socket receives already.
    Accepted {
        /// Where it came in.
        listener: ListenerId,
        /// The new socket.
        socket: SocketId,
    },
    /// The listener has stopped accepting, for example because the process has no descriptor left.
    ///
    /// It is not started again by itself, as that would spin: call
    /// [`Ring::resume_accept`](crate::Ring::resume_accept) when there is reason to hope.
    AcceptEnded {
        /// The listener, still open.
        listener: ListenerId,
        /// Why, for example `EMFILE`, `ENFILE` or `ENOMEM`.
        error: io::Error,
    },
    /// Bytes came in.
    Received {
        /// The socket they came from.
        socket: SocketId,
        /// At least one byte. The buffer goes back to the kernel with the next call of
        /// [`Ring::next_event`](crate::Ring::next_event) or [`Ring::turn`](crate::Ring::turn).
        bytes: &'ring [u8],
    },
    /// Nothing more will be received. The socket is still open, and can still send.
    ReceiveEnded {
        /// The socket.
        socket: SocketId,
        /// None at the end of the stream.
        error: Option<io::Error>,
    },
    /// The kernel has taken the whole send; its buffers are released.
    Sent {
        /// The socket, ready for the next send.
        socket: SocketId,
    },
    /// The send failed; its buffers are released. How much was taken before is in
    /// [`Ring::sent_bytes`](crate::Ring::sent_bytes).
    SendFailed {
        /// The socket, still open.
        socket: SocketId,
        /// Why, for example `EPIPE` or `ECONNRESET`.
        error: io::Error,
    },
    /// The descriptor is closed and the slot is free. Comes exactly once for each socket that was
    /// closed or aborted, and nothing comes for that socket after it.
    Closed {
        /// The name of the former socket.
        socket: SocketId,
    },
    /// Somebody called [`Waker::wake`](crate::Waker::wake).
    Woken,
    /// An operation on a file has ended. Within a turn these come before all others.
    File(FileEvent),
}

/// An event before the received bytes are lent out.
pub(crate) enum Outcome {
    Accepted(ListenerId, SocketId),
    AcceptEnded(ListenerId, io::Error),
    Received { socket: SocketId, buffer: u16, length: usize },
    ReceiveEnded(SocketId, Option<io::Error>),
    Sent(SocketId),
    SendFailed(SocketId, io::Error),
    Closed(SocketId),
    Woken,
    File(FileEvent),
}
