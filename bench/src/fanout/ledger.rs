//! Who has got what: proves that each subscriber gets each message once and in order; pure.

use std::collections::{BTreeSet, VecDeque};

/// What went wrong. All are 0 when the broker keeps its promise.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Faults {
    /// Deliveries that never came, or that came after a later one.
    pub(crate) missing: u64,
    /// Deliveries of a message that the subscriber had, or that was passed over.
    pub(crate) repeated: u64,
    /// Deliveries whose offset is not the one after the offset before.
    pub(crate) misplaced: u64,
}

/// Where one subscriber stands.
#[derive(Clone, Copy, Debug, Default)]
struct Subscriber {
    next_number: u64,
    /// None before the first delivery: the topic may hold older messages.
    next_offset: Option<u64>,
}

/// Messages of one run by number, and the place of each subscriber in them.
pub(crate) struct Ledger {
    subscribers: Vec<Subscriber>,
    published: u64,
    /// For each message from number `delivered` on: how many subscribers do not have it.
    lacking: VecDeque<usize>,
    delivered: u64,
    /// Messages that the broker refused: nobody waits for them.
    refused: BTreeSet<u64>,
    faults: Faults,
}

impl Ledger {
    pub(crate) fn new(subscribers: usize) -> Ledger {
        Ledger {
            subscribers: vec![Subscriber::default(); subscribers],
            published: 0,
            lacking: VecDeque::new(),
            delivered: 0,
            refused: BTreeSet::new(),
            faults: Faults::default(),
        }
    }

    /// Notes that a message goes out and gives its number.
    pub(crate) fn publish(&mut self) -> u64 {
        self.lacking.push_back(self.subscribers.len());
        self.published += 1;
        self.published - 1
    }

    /// Notes that the broker has refused a message.
    pub(crate) fn refuse(&mut self, number: u64) {
        self.refused.insert(number);
        if let Some(lacking) = self.lacking_mut(number) {
            *lacking = 0;
        }
        self.retire();
    }

    /// Notes a delivery. Every difference from "the next message at the next offset" is a fault; the subscriber then
    /// goes on from what it got.
    pub(crate) fn deliver(&mut self, subscriber: usize, number: u64, offset: u64) {
        let place = self.subscribers[subscriber];
        if number < place.next_number || number >= self.published {
            self.faults.repeated += 1;
            return;
        }
        if number > place.next_number {
            self.pass_over(place.next_number, number);
        }
        if place.next_offset.is_some_and(|next_offset| next_offset != offset) {
            self.faults.misplaced += 1;
        }
        self.subscribers[subscriber] = Subscriber { next_number: number + 1, next_offset: Some(offset + 1) };
        self.have(number);
    }

    /// A subscriber will not get the messages from `from` to before `to` any more.
    fn pass_over(&mut self, from: u64, to: u64) {
        for number in from..to {
            if !self.refused.contains(&number) {
                self.faults.missing += 1;
                self.have(number);
            }
        }
    }

    fn have(&mut self, number: u64) {
        if let Some(lacking) = self.lacking_mut(number) {
            *lacking = lacking.saturating_sub(1);
            if *lacking == 0 {
                self.retire();
            }
        }
    }

    fn lacking_mut(&mut self, number: u64) -> Option<&mut usize> {
        let place = usize::try_from(number.checked_sub(self.delivered)?).ok()?;
        self.lacking.get_mut(place)
    }

    fn retire(&mut self) {
        while self.lacking.front() == Some(&0) {
            self.lacking.pop_front();
            self.delivered += 1;
        }
    }

    pub(crate) fn published(&self) -> u64 {
        self.published
    }

    /// Messages from the first on that every subscriber has.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// What went wrong when nothing more will come: whatever is not delivered by now is missing.
    pub(crate) fn faults_at_end(&self) -> Faults {
        let lacking: usize = self.lacking.iter().sum();
        Faults { missing: self.faults.missing + lacking as u64, ..self.faults }
    }
}
