//! A session's subscription: it opens, delivers, tells news, and ends, over SSE, WebSocket or a waiting fetch. On its core.

use ringmain_driver::{Close, Delivery, End, Io, Notice};
use ringmain_engine::Assignment;
use ringmain_model::{Position, Refusal, TopicName};

use super::HttpFront;
use super::exchange::Waiting;
use super::problem::Problem;
use super::respond::Context;
use super::session::Session;
use super::sse::{EncodedBatch, Stream};
use super::subscribe::{Face, Opening};
use super::ws::{EXTENDED, Socket, write_switch};

impl Session {
    pub(super) fn on_batch(&mut self, delivery: Delivery<'_, EncodedBatch>, io: &mut Io<'_>) {
        if let Some(stream) = self.stream() {
            stream.deliver(delivery, io);
        } else if let Some(socket) = self.socket() {
            socket.deliver(delivery, io);
        } else {
            self.wake_fetch(io);
        }
    }

    pub(super) fn on_assigned(&mut self, topic: &TopicName, assignment: &Assignment, io: &mut Io<'_>) {
        if let Some(stream) = self.stream() {
            stream.assign(topic, assignment, io);
        } else if let Some(socket) = self.socket() {
            socket.assign(topic, assignment, io);
        }
    }

    pub(super) fn on_notice(&mut self, front: &mut HttpFront, notice: Notice, io: &mut Io<'_>) {
        if self.stream().is_some() {
            self.tell_stream(&notice, io);
        } else if let Some(socket) = self.socket() {
            tell_socket(socket, &notice, io);
        } else {
            self.on_early_notice(front, notice, io);
        }
    }

    fn tell_stream(&mut self, notice: &Notice, io: &mut Io<'_>) {
        let Some(stream) = self.stream() else { return };
        match *notice {
            Notice::Gap { requested, resumed } => stream.tell_gap(requested, resumed, io),
            Notice::Moved { next, .. } => stream.tell("moved", &format!(r#"{{"next":{next}}}"#), io),
            Notice::Lost { messages, resumed } => {
                stream.lose(messages, resumed, io);
            }
            Notice::Ended(end) => {
                stream.end(end_word(end), io);
                self.finish(io);
            }
            // The owner does not know the member any more: its group was deleted.
            Notice::Refused(_) => {
                stream.end(end_word(End::GroupDeleted), io);
                self.finish(io);
            }
            Notice::Subscribed { .. } | Notice::Joined { .. } => {}
        }
    }

    /// News of a subscription whose request has not been answered.
    fn on_early_notice(&mut self, front: &mut HttpFront, notice: Notice, io: &mut Io<'_>) {
        let Some((number, exchange)) = self.exchanges.oldest() else { return };
        match (&exchange.waiting, notice) {
            (
                Waiting::Subscribed(_),
                notice @ (Notice::Subscribed { partition, high_water } | Notice::Joined { partition, high_water, .. }),
            ) => {
                let epoch = if let Notice::Joined { epoch, .. } = notice { epoch } else { 0 };
                let at = Position { partition, next: high_water.offset() };
                if let Some(exchange) = self.exchanges.take_oldest()
                    && let Waiting::Subscribed(opening) = exchange.waiting
                {
                    self.answer_with_stream(front, &exchange.context, &opening, (at, epoch), io);
                }
            }
            (Waiting::Page(_), Notice::Gap { .. }) => self.wake_fetch(io),
            (Waiting::Page(_), Notice::Subscribed { .. }) => {}
            (waiting @ (Waiting::Subscribed(_) | Waiting::Page(_)), notice) => {
                let problem = ended_problem(notice, waiting);
                self.write_answer(number, io, |context, out| context.write_problem(out, &front.date, &problem));
                self.resume(front, io);
            }
            _ => {}
        }
    }

    /// Answers the request for a stream that stands at `at`, in the group's `epoch`: from here on the connection is the stream's.
    fn answer_with_stream(
        &mut self,
        front: &mut HttpFront,
        context: &Context,
        opening: &Opening,
        (at, epoch): (Position, u64),
        io: &mut Io<'_>,
    ) {
        match &opening.face {
            Face::Sse => {
                let mut stream = Stream::open(opening, at, context, front, io);
                if self.draining {
                    stream.end_shutdown(io);
                    io.close(Close::Flush);
                }
                self.become_stream(stream);
            }
            Face::WebSocket { accept, protocol } => {
                write_switch(context, front, accept, *protocol, io.output());
                let mut socket = Socket::open(opening, *protocol == Some(EXTENDED), epoch, front, io);
                if self.draining {
                    socket.on_shutdown(io);
                }
                self.become_socket(front, socket, io);
            }
        }
        if self.has_input_ended() {
            // Its client had gone before the head was there.
            io.close(Close::Flush);
        }
        self.resume(front, io);
    }
}

fn tell_socket(socket: &mut Socket, notice: &Notice, io: &mut Io<'_>) {
    match *notice {
        Notice::Gap { requested, resumed } => socket.tell_gap(requested, resumed, io),
        Notice::Moved { epoch, next } => socket.move_to(epoch, next, io),
        Notice::Lost { messages, resumed } => {
            socket.lose(messages, resumed, io);
        }
        Notice::Ended(End::TopicDeleted) => socket.close(4404, "the topic was deleted", io),
        Notice::Ended(End::GroupDeleted) | Notice::Refused(_) => socket.close(4404, "the group was deleted", io),
        Notice::Ended(End::TooSlow) => socket.close(4408, "too slow: messages came faster than they were read", io),
        Notice::Subscribed { .. } | Notice::Joined { .. } => {}
    }
}

/// The word for an end in `event: end`.
fn end_word(end: End) -> &'static str {
    match end {
        End::TopicDeleted => "topic_deleted",
        End::GroupDeleted => "group_deleted",
        End::TooSlow => "too_slow",
    }
}

/// What a request is told whose topic is not there any more.
fn ended_problem(notice: Notice, waiting: &Waiting) -> Problem {
    let topic = match waiting {
        Waiting::Subscribed(opening) => opening.topic.as_str(),
        Waiting::Page(fetch) => fetch.topic.as_str(),
        _ => "",
    };
    match notice {
        Notice::Refused(refusal) => refusal.into(),
        _ => Refusal::topic_not_found(topic).into(),
    }
}
