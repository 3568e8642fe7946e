//! The two queues between program and kernel. Lives on the core of its ring.
#![allow(unsafe_code, reason = "queued operations carry pointers that the kernel follows")]

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use io_uring::types::{CancelBuilder, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, Submitter, cqueue, opcode, squeue};

use crate::error::Error;
use crate::tag::{Kind, Tag};

/// What the kernel says about one operation.
pub(crate) struct Completion {
    pub(crate) tag: Tag,
    /// Not negative: success; negative: an error number with the sign turned.
    pub(crate) result: i32,
    /// The receive buffer that came with it.
    pub(crate) buffer: Option<u16>,
    /// Whether the same operation will complete again.
    pub(crate) more: bool,
}

impl Completion {
    /// The error number of a failure.
    pub(crate) fn error(&self) -> io::Error {
        io::Error::from_raw_os_error(self.result.saturating_neg())
    }

    /// Whether the result is this error number.
    pub(crate) fn is_error(&self, number: i32) -> bool {
        self.result == -number
    }
}

/// No single wait lasts longer. It keeps the time inside what the kernel's structure can say.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// What goes to the kernel in one piece.
enum Queued {
    One(squeue::Entry),
    /// The second starts only after the first has succeeded in full. The kernel ends a chain at the
    /// end of a submission, so the two must never be parted.
    Linked([squeue::Entry; 2]),
}

impl Queued {
    fn entries(&self) -> &[squeue::Entry] {
        match self {
            Queued::One(entry) => std::slice::from_ref(entry),
            Queued::Linked(entries) => entries,
        }
    }
}

/// Room for the two parts of a linked write.
const ENTRIES_MIN: u32 = 2;

/// Queues operations, enters the kernel, and takes completions.
pub(crate) struct Queue {
    ring: IoUring,
    /// Operations that found no room; they go first. At most a handful for each socket, because a
    /// socket has one operation of each kind in flight, and two for each operation on files.
    backlog: VecDeque<Queued>,
    /// Operations that have not had their last completion, cancels not counted.
    in_flight: usize,
    /// Those among them that are done with files.
    files_in_flight: usize,
    /// Completions of files, taken out of the kernel's queue because they are told first.
    files: VecDeque<Completion>,
    /// Those of sockets that stood before them. None are set aside while no file is in use.
    others: VecDeque<Completion>,
    /// The most completions set aside.
    others_max: usize,
    /// How often the kernel took only a part of what it was given, which may part a linked pair.
    cuts: u64,
    /// How many of the completions seen by the last `enter` have not been taken.
    seen: usize,
    overflows: u64,
    enter_flags: EnterFlags,
}

impl Queue {
    /// Makes a ring for this thread.
    pub(crate) fn new(submission_entries: u32, completion_entries: u32) -> io::Result<Queue> {
        let submission_entries = submission_entries.max(ENTRIES_MIN);
        let completion_entries = completion_entries.max(submission_entries);
        let ring: IoUring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            .setup_submit_all()
            .setup_clamp()
            .setup_cqsize(completion_entries)
            .build(submission_entries)?;
        let mut enter_flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        if ring.params().is_feature_no_iowait() {
            // A sleeping loop is idle and must not look as if it waited for a disk.
            enter_flags |= EnterFlags::NO_IOWAIT;
        }
        Ok(Queue {
            others_max: completion_entries as usize,
            ring,
            backlog: VecDeque::new(),
            in_flight: 0,
            files_in_flight: 0,
            files: VecDeque::new(),
            others: VecDeque::new(),
            cuts: 0,
            seen: 0,
            overflows: 0,
            enter_flags,
        })
    }

    pub(crate) fn submitter(&self) -> Submitter<'_> {
        self.ring.submitter()
    }

    pub(crate) fn overflows(&self) -> u64 {
        self.overflows
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Grows whenever the kernel has parted what it was given together.
    pub(crate) fn cuts(&self) -> u64 {
        self.cuts
    }

    /// As if the kernel had parted what it was given.
    #[cfg(test)]
    pub(crate) fn pretend_cut(&mut self) {
        self.cuts += 1;
    }

    /// Queues an operation; the kernel sees it with the next [`Queue::enter`], or earlier when the
    /// queue is full. It is never lost.
    ///
    /// # Safety
    ///
    /// What the operation points at must stay valid, and if the kernel reads it unchanged, until
    /// [`Queue::next`] has given the completion with its tag that has no `more`. Its tag must be one
    /// of [`Tag`].
    pub(crate) unsafe fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: the caller keeps what the entry points at.
        unsafe { self.push_queued(Queued::One(entry)) };
    }

    /// Queues two operations of which the second starts only after the first has succeeded in full;
    /// otherwise it completes as cancelled.
    ///
    /// Only when [`Queue::cuts`] has changed meanwhile may they have run side by side.
    ///
    /// # Safety
    ///
    /// As for [`Queue::push`], for both.
    pub(crate) unsafe fn push_linked(&mut self, first: squeue::Entry, second: squeue::Entry) {
        let entries = [first.flags(squeue::Flags::IO_LINK), second];
        // SAFETY: the caller keeps what the entries point at.
        unsafe { self.push_queued(Queued::Linked(entries)) };
    }

    /// # Safety
    ///
    /// As for [`Queue::push`].
    unsafe fn push_queued(&mut self, queued: Queued) {
        for tag in queued.entries().iter().filter_map(|entry| Tag::from_bits(entry.get_user_data())) {
            self.in_flight += usize::from(tag.kind.holds_memory());
            self.files_in_flight += usize::from(tag.kind.is_file());
        }
        if self.backlog.is_empty() {
            // SAFETY: the caller keeps what the entries point at.
            if unsafe { self.push_now(&queued) } {
                return;
            }
            self.submit();
            // SAFETY: as above.
            if unsafe { self.push_now(&queued) } {
                return;
            }
        }
        self.backlog.push_back(queued);
    }

    /// Queues the cancelling of the operation with the tag `of`. It points at nothing of ours.
    pub(crate) fn push_cancel(&mut self, of: u64, tag: u64) {
        let entry = opcode::AsyncCancel2::new(CancelBuilder::user_data(of))
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(tag);
        // SAFETY: a cancel carries no pointer.
        unsafe { self.push(entry) };
    }

    /// Queues the cancelling of everything.
    pub(crate) fn push_cancel_all(&mut self) {
        let entry = opcode::AsyncCancel2::new(CancelBuilder::any())
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(Tag::of_ring(Kind::CancelAll).to_bits());
        // SAFETY: a cancel carries no pointer.
        unsafe { self.push(entry) };
    }

    /// # Safety
    ///
    /// As for [`Queue::push`].
    unsafe fn push_now(&mut self, queued: &Queued) -> bool {
        // SAFETY: the caller keeps what the entries point at until they have completed.
        unsafe { self.ring.submission().push_multiple(queued.entries()) }.is_ok()
    }

    /// Makes room in the submission queue. A failure leaves it full, and the backlog takes over.
    fn submit(&mut self) {
        let _ = self.call(0, EnterFlags::EXT_ARG, None);
    }

    /// Hands everything to the kernel and waits for at least one completion, or for `wait` to pass.
    ///
    /// # Errors
    ///
    /// [`Error::CompletionsLost`] and [`Error::System`]: the ring cannot be used any more.
    pub(crate) fn enter(&mut self, wait: Option<Duration>) -> Result<(), Error> {
        while let Some(queued) = self.backlog.pop_front() {
            // SAFETY: whoever called `push` keeps what the entries point at.
            if !unsafe { self.push_now(&queued) } {
                self.submit();
                // SAFETY: as above.
                if !unsafe { self.push_now(&queued) } {
                    self.backlog.push_front(queued);
                    break;
                }
            }
        }
        let at_least = match wait {
            // What waits for room must not sleep: it goes in when completions have been taken.
            _ if !self.backlog.is_empty() => 0,
            // There is something to tell already.
            _ if !self.files.is_empty() || !self.others.is_empty() => 0,
            Some(Duration::ZERO) => 0,
            _ => 1,
        };
        let flags = self.enter_flags;
        let result = self.call(at_least, flags, wait.filter(|wait| !wait.is_zero()));
        if self.ring.submission().cq_overflow() {
            // Nothing is lost: the kernel keeps the rest and delivers it with the next `enter`,
            // which does not sleep because of it.
            self.overflows += 1;
        }
        self.seen = self.ring.completion().len();
        self.set_aside();
        match result.map_err(|error| (error.raw_os_error(), error)) {
            Ok(()) => Ok(()),
            // A signal, the end of the wait, or a kernel that wants its completions taken first.
            Err((Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY), _)) => Ok(()),
            Err((Some(libc::EBADR), _)) => Err(Error::CompletionsLost),
            Err((_, source)) => Err(Error::System { what: "io_uring_enter", source }),
        }
    }

    fn call(&mut self, at_least: u32, flags: EnterFlags, wait: Option<Duration>) -> io::Result<()> {
        let queued = u32::try_from(self.ring.submission().len()).unwrap_or(u32::MAX);
        let timespec = wait.map(|wait| Timespec::from(wait.min(WAIT_MAX)));
        let arguments = match &timespec {
            Some(timespec) => SubmitArgs::new().timespec(timespec),
            None => SubmitArgs::new(),
        };
        // SAFETY: the flags contain EXT_ARG, for which the argument is a `SubmitArgs`; it and the
        // time it points at live until the call returns. What the queued operations point at is
        // kept by those who queued them.
        let taken = unsafe { self.ring.submitter().enter(queued, at_least, flags.bits(), Some(&arguments)) }?;
        if taken < queued as usize {
            self.cuts += 1;
        }
        Ok(())
    }

    /// While files are in use, takes all that the kernel has delivered, so that their completions can
    /// be told first. Otherwise nothing is copied.
    fn set_aside(&mut self) {
        if self.files_in_flight == self.files.len() {
            return;
        }
        while self.others.len() < self.others_max {
            match self.take() {
                Some(completion) if completion.tag.kind.is_file() => self.files.push_back(completion),
                Some(completion) => self.others.push_back(completion),
                None => break,
            }
        }
    }

    /// The next of the completions that the last [`Queue::enter`] has seen: those of files first.
    /// Later ones wait for the next `enter`, so that a loop over this function ends.
    pub(crate) fn next(&mut self) -> Option<Completion> {
        if let Some(completion) = self.next_of_file() {
            return Some(completion);
        }
        let completion = self.others.pop_front().or_else(|| self.take())?;
        self.settle(&completion);
        Some(completion)
    }

    /// The next completion of a file among those set aside.
    pub(crate) fn next_of_file(&mut self) -> Option<Completion> {
        let completion = self.files.pop_front()?;
        self.settle(&completion);
        Some(completion)
    }

    /// What the completion says is now known to its owner.
    fn settle(&mut self, completion: &Completion) {
        if !completion.more {
            self.in_flight -= usize::from(completion.tag.kind.holds_memory());
            self.files_in_flight -= usize::from(completion.tag.kind.is_file());
        }
    }

    /// The next completion out of the kernel's queue.
    fn take(&mut self) -> Option<Completion> {
        while self.seen > 0 {
            self.seen -= 1;
            let entry = self.ring.completion().next()?;
            let Some(tag) = Tag::from_bits(entry.user_data()) else {
                debug_assert!(false, "a completion of nobody");
                continue;
            };
            return Some(Completion {
                tag,
                result: entry.result(),
                buffer: cqueue::buffer_select(entry.flags()),
                more: cqueue::more(entry.flags()),
            });
        }
        None
    }

    /// Whether every completion that the kernel has delivered has been taken.
    pub(crate) fn is_drained(&mut self) -> bool {
        let aside = self.files.len() + self.others.len();
        aside == 0 && self.ring.completion().is_empty() && !self.ring.submission().cq_overflow()
    }
}

#[cfg(test)]
mod tests;
