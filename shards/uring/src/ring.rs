//! One ring: made, turned, asked for events, and dropped on the one core that owns it.
#![allow(unsafe_code, reason = "the wake-up's read is queued here")]

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::accept::{Listener, close_late_connection};
use crate::buffers::Buffers;
use crate::error::Error;
use crate::event::{Event, Outcome};
use crate::files::Files;
use crate::gather::Gather;
use crate::kernel::{Facts, explain};
use crate::queue::{Completion, Queue};
use crate::slab::Slab;
use crate::socket::{Socket, SocketId};
use crate::tag::{Kind, SLOTS_MAX};
use crate::waker::Waker;

/// The most listeners of one ring: a handful of addresses is usual.
const LISTENERS_MAX: u32 = 1024;

/// How long a dropped ring waits for the kernel before it leaks what is still in flight.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(2);

/// How long one step of that wait lasts, before everything is cancelled once more.
const DRAIN_STEP: Duration = Duration::from_millis(20);

/// Sizes of a ring. All are bounds.
#[derive(Clone, Debug)]
pub struct RingConfig {
    /// Operations that fit into one system call. More are handed over in several. At least 2, and
    /// rounded up to a power of two by the kernel.
    pub submission_entries: u32,
    /// Completions that fit between two turns. More are kept by the kernel, at a cost, and counted
    /// by [`Ring::overflows`]. Rounded up to a power of two; not less than `submission_entries`.
    pub completion_entries: u32,
    /// Receive buffers shared by all sockets: a power of two, at most 32 768.
    pub buffer_count: u16,
    /// Size of each in bytes: the most that one [`Event::Received`] carries.
    pub buffer_bytes: u32,
    /// Sockets open at once, at most 16 777 216. A connection that is accepted beyond it is closed
    /// at once and counted by [`Ring::refused`].
    pub sockets_max: u32,
}

impl Default for RingConfig {
    fn default() -> RingConfig {
        RingConfig {
            submission_entries: 1024,
            completion_entries: 8192,
            buffer_count: 256,
            buffer_bytes: 16 * 1024,
            sockets_max: 65_536,
        }
    }
}

impl RingConfig {
    fn check(&self) -> Result<(), Error> {
        let reason = if self.submission_entries == 0 {
            "submission_entries is 0"
        } else if self.completion_entries < self.submission_entries {
            "completion_entries is less than submission_entries"
        } else if !self.buffer_count.is_power_of_two() {
            "buffer_count is not a power of two"
        } else if self.buffer_bytes == 0 {
            "buffer_bytes is 0"
        } else if self.sockets_max == 0 || self.sockets_max > SLOTS_MAX {
            "sockets_max is not between 1 and 16777216"
        } else {
            return Ok(());
        };
        Err(Error::Config { reason })
    }
}

/// One io_uring with its sockets, listeners, files, buffers and wake-up.
///
/// It belongs to the thread that made it. Do not fork while it exists: the child would share its
/// memory. All calls on a socket or listener that no longer exists do nothing.
pub struct Ring {
    pub(crate) queue: Queue,
    pub(crate) buffers: Buffers,
    pub(crate) sockets: Slab<Socket>,
    pub(crate) listeners: Slab<Listener>,
    pub(crate) files: Files,
    waker: Waker,
    /// Memory of finished sends, for the next ones.
    pub(crate) spare: Vec<Gather>,
    /// Sockets that found no receive buffer, in the order in which they found none.
    pub(crate) starved: VecDeque<SocketId>,
    /// Whether a buffer has gone back since starved sockets were last armed.
    pub(crate) returned: bool,
    /// Sockets whose descriptor is closed, not yet told.
    pub(crate) closed: VecDeque<SocketId>,
    /// The buffer whose bytes the caller has been lent.
    held: Option<u16>,
    pub(crate) refused: u64,
    /// The kernel takes operations of this ring from one thread only.
    thread: PhantomData<*const ()>,
}

impl Ring {
    /// Makes a ring for the calling thread.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for sizes that cannot be; otherwise what the kernel has against it, with
    /// the command that helps.
    pub fn new(config: &RingConfig) -> Result<Ring, Error> {
        config.check()?;
        let queue = Queue::new(config.submission_entries, config.completion_entries)
            .map_err(|error| explain(error, "io_uring_setup", &Facts::gather()))?;
        let waker = Waker::new().map_err(|error| explain(error, "eventfd", &Facts::gather()))?;
        let buffers = Buffers::register(&queue.submitter(), config.buffer_count, config.buffer_bytes)
            .map_err(|error| explain(error, "io_uring_register", &Facts::gather()))?;
        let mut ring = Ring {
            queue,
            buffers,
            sockets: Slab::new(config.sockets_max),
            listeners: Slab::new(LISTENERS_MAX),
            files: Files::new(),
            waker,
            spare: Vec::new(),
            starved: VecDeque::new(),
            returned: false,
            closed: VecDeque::new(),
            held: None,
            refused: 0,
            thread: PhantomData,
        };
        ring.arm_wake();
        Ok(ring)
    }

    /// A handle that ends the sleep of this ring from any thread.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Hands everything queued to the kernel in one system call and waits until at least one thing
    /// has happened or `wait` has passed.
    ///
    /// `Some(Duration::ZERO)` only looks; `None` waits without end. It may return early with nothing to
    /// tell. When there is already something to tell, it does not wait.
    ///
    /// # Errors
    ///
    /// [`Error::CompletionsLost`] and [`Error::System`]: the ring cannot be used any more.
    pub fn turn(&mut self, wait: Option<Duration>) -> Result<(), Error> {
        self.give_back_held();
        self.feed_starved();
        let wait = if self.closed.is_empty() && self.starved.is_empty() { wait } else { Some(Duration::ZERO) };
        self.queue.enter(wait)
    }

    /// The next thing that has happened, or none when all that the last [`Ring::turn`] has seen is told.
    ///
    /// What has happened to files is told before all else, because whoever waits for a commit waits
    /// for every byte that is handled before it.
    pub fn next_event(&mut self) -> Option<Event<'_>> {
        self.give_back_held();
        let outcome = loop {
            if let Some(completion) = self.queue.next_of_file() {
                match self.complete(&completion) {
                    Some(outcome) => break outcome,
                    None => continue,
                }
            }
            if let Some(socket) = self.closed.pop_front() {
                let (slot, generation) = socket.parts();
                self.sockets.remove(slot, generation);
                break Outcome::Closed(socket);
            }
            let completion = self.queue.next()?;
            if let Some(outcome) = self.complete(&completion) {
                break outcome;
            }
        };
        Some(match outcome {
            Outcome::Accepted(listener, socket) => Event::Accepted { listener, socket },
            Outcome::AcceptEnded(listener, error) => Event::AcceptEnded { listener, error },
            Outcome::Received { socket, buffer, length } => {
                self.held = Some(buffer);
                Event::Received { socket, bytes: self.buffers.filled(buffer, length) }
            }
            Outcome::ReceiveEnded(socket, error) => Event::ReceiveEnded { socket, error },
            Outcome::Sent(socket) => Event::Sent { socket },
            Outcome::SendFailed(socket, error) => Event::SendFailed { socket, error },
            Outcome::Closed(socket) => Event::Closed { socket },
            Outcome::Woken => Event::Woken,
            Outcome::File(event) => Event::File(event),
        })
    }

    /// How many turns have found more completions than the completion queue holds. Nothing is lost
    /// then, but the kernel allocates memory for each: `completion_entries` should be larger.
    pub fn overflows(&self) -> u64 {
        self.queue.overflows()
    }

    /// How many accepted connections were closed at once because `sockets_max` were open.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// How many sockets are open or closing.
    pub fn sockets(&self) -> usize {
        self.sockets.len()
    }

    fn complete(&mut self, completion: &Completion) -> Option<Outcome> {
        match completion.tag.kind {
            Kind::Wake => {
                self.arm_wake();
                Some(Outcome::Woken)
            }
            Kind::Accept => self.complete_accept(completion),
            Kind::AcceptCancel => self.complete_accept_cancel(completion),
            Kind::Receive => self.complete_receive(completion),
            Kind::ReceiveCancel => self.complete_receive_cancel(completion),
            Kind::Send => self.complete_send(completion),
            Kind::SendCancel => self.complete_send_cancel(completion),
            Kind::CancelAll => None,
            Kind::File | Kind::FileSync => self.complete_file(completion).map(Outcome::File),
        }
    }

    /// Waits for the next wake. A wake that comes in between is kept by the counter.
    fn arm_wake(&mut self) {
        let read = self.waker.read();
        // SAFETY: the read writes into memory shared by all clones of the waker. The ring holds one
        // of them and lets go only after the read has completed, or leaks it.
        unsafe { self.queue.push(read) };
    }

    fn give_back_held(&mut self) {
        if let Some(buffer) = self.held.take() {
            self.give_back(buffer);
        }
    }

    pub(crate) fn give_back(&mut self, buffer: u16) {
        self.buffers.give_back(buffer);
        self.returned = true;
    }

    /// Cancels all that is in flight and waits for it; false when the kernel did not answer in time.
    fn drain(&mut self) -> bool {
        let deadline = Instant::now() + DRAIN_TIME_MAX;
        while self.queue.in_flight() > 0 {
            if Instant::now() >= deadline {
                return false;
            }
            self.queue.push_cancel_all();
            if self.queue.enter(Some(DRAIN_STEP)).is_err() {
                return false;
            }
            while let Some(completion) = self.queue.next() {
                match completion.tag.kind {
                    Kind::Accept => close_late_connection(&completion),
                    // Its memory is free again. A close that waited for this starts now, and is
                    // waited for as well.
                    Kind::File | Kind::FileSync => drop(self.complete_file(&completion)),
                    _ => {}
                }
            }
        }
        true
    }

    /// Gives up for ever all memory that the kernel may still read or write.
    fn leak(&mut self) {
        for socket in self.sockets.values_mut() {
            std::mem::forget(socket.send.take());
        }
        self.files.leak();
        self.buffers.leak();
        std::mem::forget(self.waker.clone());
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.drain() {
            Buffers::unregister(&self.queue.submitter());
            self.files.unregister(&self.queue.submitter());
        } else {
            self.leak();
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Ring")
            .field("sockets", &self.sockets.len())
            .field("files", &self.files.open.len())
            .field("in_flight", &self.queue.in_flight())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
