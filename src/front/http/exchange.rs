//! Requests that wait for their answers, in the order in which they came. On the core of the connection.

use std::collections::VecDeque;

use ringmain_model::TopicName;

use super::HttpFront;
use super::dashboard::Showing;
use super::fetch::Fetch;
use super::gather::Gather;
use super::group_requests::{GroupTask, GroupWait};
use super::problem::Problem;
use super::publish::PublishTask;
use super::published::Divided;
use super::respond::{Context, Response};
use super::several::SeveralOpening;
use super::subscribe::Opening;
use super::survey::{ListPage, Scrape, Survey};
use super::worker::Begun;

/// What a request wants done once its body is there.
#[derive(Debug)]
pub(super) enum Task {
    Refuse(Problem),
    Options {
        allow: &'static str,
        /// The headers that the page may send, when it asks.
        preflight: Option<String>,
    },
    Health,
    Ready,
    OpenApi,
    Dashboard(Showing),
    Create,
    Delete(TopicName),
    Change(TopicName),
    Stat(Spread),
    List(ListPage),
    Metrics(Scrape),
    Publish(PublishTask),
    Fetch(Box<Fetch>),
    Subscribe(Box<Opening>),
    SubscribeSeveral(Box<SeveralOpening>),
    /// The value of `Sec-WebSocket-Accept`.
    Echo(String),
    Groups(Spread),
    Group(GroupTask),
}

/// A topic whose partitions are all asked.
#[derive(Debug)]
pub(super) struct Spread {
    pub(super) topic: TopicName,
    /// How many they are; 1 for a topic that is not there, so that somebody says so. It may be made again with others before the
    /// request runs.
    pub(super) partitions: u32,
}

/// Which requests of one connection may run at the same time (RFC 9112, section 9.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Company {
    /// With any others: it changes nothing, and nothing changes it.
    #[default]
    Any,
    /// With other publishes: those of one connection to one topic keep their order on the way.
    Publishes,
    /// With other readers.
    Readers,
    /// With none.
    None,
}

impl Task {
    pub(super) fn company(&self) -> Company {
        match self {
            Task::Refuse(_) | Task::Options { .. } | Task::Health | Task::Ready => Company::Any,
            Task::Publish(publish) => publish.company(),
            // Questions to many partitions come one at a time, so that a pipeline of them does not fill the lanes.
            Task::Stat(spread) | Task::Groups(spread) if spread.partitions > 1 => Company::None,
            Task::Stat(_) | Task::Groups(_) => Company::Readers,
            // Answers that may be large come one at a time.
            Task::List(_) | Task::Metrics(_) | Task::OpenApi | Task::Dashboard(_) => Company::None,
            Task::Fetch(_) | Task::Subscribe(_) | Task::SubscribeSeveral(_) | Task::Echo(_) => Company::None,
            Task::Create | Task::Delete(_) | Task::Change(_) | Task::Group(_) => Company::None,
        }
    }
}

/// What a request waits for. A connection may have many of them: what is large is boxed.
#[derive(Debug)]
pub(super) enum Waiting {
    /// Nothing: its answer stands ready behind others.
    Nothing,
    Created,
    Deleted,
    /// Settings were changed: how all partitions stand now is asked next.
    Changed(TopicName),
    Stats(Box<Gather>),
    /// Reports of all cores, again and again.
    Surveyed(Box<Survey>),
    /// The topic, and whether it has several partitions.
    Published(TopicName, bool),
    Divided(Box<Divided>),
    Page(Box<Fetch>),
    Subscribed(Box<Opening>),
    SubscribedToSeveral(Box<SeveralOpening>),
    Groups(TopicName, Box<Gather>),
    Group(Box<GroupWait>),
}

/// One request and what became of it.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) context: Context,
    pub(super) waiting: Waiting,
    /// Its answer, when earlier requests are still unanswered.
    answer: Vec<u8>,
}

/// A connection's requests, oldest first, numbered without holes.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    queue: VecDeque<Exchange>,
    /// Number of the oldest.
    first: u64,
    /// Whom those that wait go together with.
    company: Company,
    /// Where the next fetch over several partitions begins; drawn before the first.
    pub(super) turn: Option<u32>,
    /// The group that the last one was for.
    pub(super) begun: Option<Box<Begun>>,
}

impl Exchanges {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Adds a request and says which number it has.
    pub(super) fn push(&mut self, context: Context, company: Company, waiting: Waiting) -> u64 {
        if self.queue.is_empty() || self.company == Company::Any {
            self.company = company;
        }
        self.queue.push_back(Exchange { context, waiting, answer: Vec::new() });
        self.first + self.queue.len() as u64 - 1
    }

    /// The request of that number, unless it has been answered and sent.
    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Exchange> {
        self.queue.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Has the connection end after the answer to that request.
    pub(super) fn close_after(&mut self, number: u64) {
        if let Some(exchange) = self.get_mut(number) {
            exchange.context.close = true;
        }
    }

    /// The oldest request and its number.
    pub(super) fn oldest(&mut self) -> Option<(u64, &mut Exchange)> {
        Some((self.first, self.queue.front_mut()?))
    }

    /// Writes the answer to request `number` with `write`: to `out` if it is the oldest, else for later. Then lets all that
    /// stand ready behind it follow. Says whether the connection is to end after what was written.
    pub(super) fn answer(
        &mut self,
        number: u64,
        out: &mut Vec<u8>,
        write: impl FnOnce(&Context, &mut Vec<u8>),
    ) -> bool {
        let is_oldest = number == self.first;
        let Some(exchange) = self.get_mut(number) else { return false };
        exchange.waiting = Waiting::Nothing;
        if !is_oldest {
            write(&exchange.context, &mut exchange.answer);
            return false;
        }
        write(&exchange.context, out);
        let mut close = exchange.context.close;
        self.take_oldest();
        while !close && self.queue.front().is_some_and(|next| !next.answer.is_empty()) {
            if let Some(next) = self.take_oldest() {
                out.extend_from_slice(&next.answer);
                close = next.context.close;
            }
        }
        close
    }

    /// Whether a request may run beside those that wait.
    pub(super) fn admit(&self, company: Company) -> bool {
        let any = company == Company::Any || self.company == Company::Any;
        self.queue.is_empty() || (self.company != Company::None && (any || company == self.company))
    }

    /// Whether nothing may run beside the one that waits.
    pub(super) fn is_exclusive(&self) -> bool {
        !self.queue.is_empty() && self.company == Company::None
    }

    /// Until when the oldest request wants to wait for answers.
    pub(super) fn wait_until_ms(&self) -> Option<u64> {
        match &self.queue.front()?.waiting {
            Waiting::Page(fetch) if fetch.listening => fetch.until_ms,
            Waiting::Group(wait) => wait.due_ms(),
            _ => None,
        }
    }

    /// Takes the oldest out: its answer has been written.
    pub(super) fn take_oldest(&mut self) -> Option<Exchange> {
        let oldest = self.queue.pop_front()?;
        self.first += 1;
        if self.queue.is_empty() && self.queue.capacity() > 4 {
            self.queue = VecDeque::new();
        }
        Some(oldest)
    }
}

impl HttpFront {
    /// Writes an answer whose body was made in the front's own buffer.
    pub(super) fn write_body(&self, context: &Context, out: &mut Vec<u8>, status: u16) {
        let response = Response { status, content_type: Some("application/json"), headers: &[], body: &self.body };
        context.write(out, &self.date, &response);
    }
}
