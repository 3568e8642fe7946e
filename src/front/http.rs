//! HTTP/1.1, SSE and WebSocket on one core: what the core's connections share, and the entrance to their sessions.

mod acks;
mod batch;
mod dashboard;
mod dispatch;
mod exchange;
mod fetch;
mod follow;
mod frames;
mod gather;
mod group_requests;
mod groups;
mod identity;
mod members;
mod metrics;
mod notices;
mod openapi;
mod origin;
mod partition;
mod places;
mod placing;
mod problem;
mod publish;
mod published;
mod query;
mod readings;
mod respond;
mod resume;
mod route;
mod session;
mod settings;
mod several;
mod sse;
mod subscribe;
mod survey;
mod topics;
mod upload;
mod whole;
mod worker;
mod ws;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use ringmain_driver::{Answer, Delivery, Front, Io, Notice};
use ringmain_engine::Assignment;
use ringmain_model::{CoreId, Offset, TopicName};
use ringmain_wire::http::date_text;

pub(crate) use self::origin::OriginPolicy;
use self::session::Session;
use self::sse::EncodedBatch;
use crate::front::FrontSettings;

/// What the sessions of one core share.
#[derive(Debug)]
pub(crate) struct HttpFront {
    pub(super) settings: Arc<FrontSettings>,
    /// The `Date` of this second.
    pub(super) date: String,
    date_second: u64,
    /// Where bodies of answers are made, so that their length is known before their head.
    pub(super) body: Vec<u8>,
    /// Bytes of request bodies that this core holds half received.
    pub(super) uploads_bytes: usize,
    /// Counts connections, to spread what they do at the same time.
    pub(super) opened: u32,
    /// Counts publishes that may go to any partition, so that they go to one after the other.
    pub(super) turn: u32,
}

impl HttpFront {
    pub(crate) fn new(settings: Arc<FrontSettings>, core: CoreId) -> Self {
        // Cores start apart, so that they do not spread their connections alike.
        Self {
            settings,
            date: date_text(0),
            date_second: 0,
            body: Vec::new(),
            uploads_bytes: 0,
            opened: u32::from(core.0) << 16,
            turn: u32::from(core.0),
        }
    }

    fn tick(&mut self, io: &Io<'_>) {
        let second = u64::try_from(io.now().unix_us / 1_000_000).unwrap_or(0);
        if second != self.date_second {
            self.date_second = second;
            self.date = date_text(second);
        }
    }
}

impl Front for HttpFront {
    type Session = Session;
    type Encoded = EncodedBatch;

    fn open(&mut self, io: &mut Io<'_>) -> Session {
        self.opened = self.opened.wrapping_add(1);
        Session::open(self, io)
    }

    fn on_bytes(&mut self, session: &mut Session, bytes: &[u8], io: &mut Io<'_>) {
        self.tick(io);
        session.on_bytes(self, bytes, io);
    }

    fn on_end_of_input(&mut self, session: &mut Session, io: &mut Io<'_>) {
        session.on_end_of_input(self, io);
    }

    fn on_answer(&mut self, session: &mut Session, request: u64, answer: Answer, io: &mut Io<'_>) {
        self.tick(io);
        session.on_answer(self, request, answer, io);
    }

    fn on_notice(&mut self, session: &mut Session, subscription: u32, notice: Notice, io: &mut Io<'_>) {
        self.tick(io);
        session.on_notice(self, subscription, notice, io);
    }

    fn on_batch(&mut self, session: &mut Session, delivery: Delivery<'_, EncodedBatch>, io: &mut Io<'_>) -> Offset {
        session.on_batch(delivery, io)
    }

    fn on_assigned(&mut self, session: &mut Session, topic: &TopicName, assignment: &Assignment, io: &mut Io<'_>) {
        session.on_assigned(topic, assignment, io);
    }

    fn on_drained(&mut self, session: &mut Session, io: &mut Io<'_>) {
        self.tick(io);
        session.resume(self, io);
    }

    fn on_timer(&mut self, session: &mut Session, io: &mut Io<'_>) {
        self.tick(io);
        session.on_timer(self, io);
    }

    fn on_shutdown(&mut self, session: &mut Session, io: &mut Io<'_>) {
        self.tick(io);
        session.on_shutdown(self, io);
    }

    fn on_close(&mut self, session: Session) {
        session.give_back(self);
    }
}
