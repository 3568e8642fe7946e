//! One question to several partitions of a topic: its answers until all are there. On the core of the connection.

use ringmain_driver::{Io, REQUEST_NUMBERS, Request};
use ringmain_engine::Reply;
use ringmain_model::limit::PARTITIONS_PER_TOPIC_MAX;
use ringmain_model::{Refusal, RefusalKind};

/// A part of a request as the broker knows it: request numbers hold which partition was asked besides the exchange's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    /// The exchange.
    pub(super) number: u64,
    /// The partition that was asked, or 0.
    pub(super) partition: u32,
    /// It only looks whether there is something to fetch.
    pub(super) looks: bool,
}

/// The driver keeps the highest six bits of request numbers for itself. Of the others one marks looks and six are a partition's
/// number, of which a topic has 64 at most; 2^51 exchanges are more than a connection lives to see.
const LOOK_BIT: u64 = 1 << 57;
const PARTITION_SHIFT: u32 = 51;
const PARTITION_MASK: u64 = 63;
const _: () =
    assert!(PARTITIONS_PER_TOPIC_MAX as u64 - 1 <= PARTITION_MASK && (PARTITION_MASK << PARTITION_SHIFT) < LOOK_BIT);
const _: () = assert!(LOOK_BIT < REQUEST_NUMBERS);

impl Part {
    pub(super) fn of_request(request: u64) -> Self {
        // Six bits.
        let partition = u32::try_from((request >> PARTITION_SHIFT) & PARTITION_MASK).unwrap_or(0);
        Self { number: request & ((1 << PARTITION_SHIFT) - 1), partition, looks: request & LOOK_BIT != 0 }
    }

    pub(super) fn request(self) -> u64 {
        let partition = (u64::from(self.partition) & PARTITION_MASK) << PARTITION_SHIFT;
        self.number | partition | if self.looks { LOOK_BIT } else { 0 }
    }
}

/// Partitions to which the way was full, perhaps of the request's own other questions: each answer to one of these makes room for
/// another.
#[derive(Default, Debug)]
pub(super) struct Room {
    busy: Vec<u32>,
    /// Answers that came while no partition was known to be busy.
    left: usize,
}

impl Room {
    /// A partition was busy.
    pub(super) fn want(&mut self, partition: u32) {
        self.busy.push(partition);
    }

    /// A partition has answered.
    pub(super) fn make(&mut self) {
        self.left += 1;
    }

    pub(super) fn is_left(&self) -> bool {
        self.left > 0
    }

    /// The partition that is to be asked again now.
    pub(super) fn next(&mut self) -> Option<u32> {
        let left = self.left.checked_sub(1)?;
        let partition = self.busy.pop()?;
        self.left = left;
        Some(partition)
    }
}

/// The answers of partitions that are asked at the same time.
#[derive(Debug)]
pub(super) struct Gather {
    number: u64,
    /// Questions that were sent and are not answered.
    sent: usize,
    /// What was asked of each partition, when there are several, to be asked again where there was no room.
    questions: Vec<(u32, Request)>,
    room: Room,
    /// Answers that came, by partition, in no order.
    replies: Vec<(u32, Reply)>,
    /// What a partition said that does not know the group.
    missing: Option<Refusal>,
}

/// What an answer leads to.
#[derive(Debug)]
pub(super) enum Gathered {
    /// Others are to come.
    Some(Gather),
    /// The answers of all partitions, in their order; at least one.
    All(Vec<(u32, Reply)>),
    /// What is to be answered, although others may still come.
    Refused(Refusal),
}

impl Gather {
    /// Asks partitions for the exchange of that number.
    pub(super) fn ask(number: u64, questions: Vec<(u32, Request)>, io: &mut Io<'_>) -> Self {
        let sent = questions.len();
        let kept = if sent > 1 { questions.clone() } else { Vec::new() };
        for (partition, question) in questions {
            io.ask(Part { number, partition, looks: false }.request(), question);
        }
        Self { number, sent, questions: kept, room: Room::default(), replies: Vec::new(), missing: None }
    }

    /// Takes an answer. That a partition does not know a group counts only when none does.
    pub(super) fn take(mut self, partition: u32, reply: Reply, io: &mut Io<'_>) -> Gathered {
        self.sent = self.sent.saturating_sub(1);
        match reply {
            Reply::Refused(refusal) if refusal.kind == RefusalKind::Busy && (self.sent > 0 || self.room.is_left()) => {
                self.room.want(partition);
            }
            Reply::Refused(refusal) if refusal.kind == RefusalKind::GroupNotFound => {
                self.room.make();
                self.missing = Some(refusal);
            }
            Reply::Refused(refusal) => return Gathered::Refused(refusal),
            reply => {
                self.room.make();
                self.replies.push((partition, reply));
            }
        }
        if let Some(partition) = self.room.next()
            && let Some((_, question)) = self.questions.iter().find(|(number, _)| *number == partition)
        {
            self.sent += 1;
            io.ask(Part { number: self.number, partition, looks: false }.request(), question.clone());
        }
        if self.sent > 0 {
            return Gathered::Some(self);
        }
        match self.missing {
            Some(refusal) if self.replies.is_empty() => Gathered::Refused(refusal),
            _ => {
                self.replies.sort_unstable_by_key(|(partition, _)| *partition);
                Gathered::All(self.replies)
            }
        }
    }
}
