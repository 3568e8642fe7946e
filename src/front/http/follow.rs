//! A session's subscription: it opens, delivers, tells news, and ends, over SSE, WebSocket or a waiting fetch. On its core.

use ringmain_driver::{Close, Delivery, End, Io, Notice};
use ringmain_engine::Assignment;
use ringmain_model::{Offset, Refusal, TopicName};

use super::HttpFront;
use super::exchange::{Company, Exchange, Waiting};
use super::fetch::Fetch;
use super::problem::Problem;
use super::respond::Context;
use super::session::Session;
use super::several::SeveralOpening;
use super::sse::{EncodedBatch, Stream};
use super::subscribe::{Face, Opening, Standing};
use super::ws::{EXTENDED, Socket, write_switch};

impl Session {
    /// Says up to where the records were taken.
    pub(super) fn on_batch(&mut self, delivery: Delivery<'_, EncodedBatch>, io: &mut Io<'_>) -> Offset {
        if let Some(stream) = self.stream() {
            return stream.deliver(delivery, io);
        }
        let end = delivery.batch.end();
        if let Some(socket) = self.socket() {
            socket.deliver(delivery, io);
        } else {
            self.wake_fetch(io);
        }
        end
    }

    pub(super) fn on_assigned(&mut self, topic: &TopicName, assignment: &Assignment, io: &mut Io<'_>) {
        if let Some(stream) = self.stream() {
            stream.assign(topic, assignment, io);
        } else if let Some(socket) = self.socket() {
            socket.assign(topic, assignment, io);
        }
    }

    pub(super) fn on_notice(&mut self, front: &mut HttpFront, subscription: u32, notice: Notice, io: &mut Io<'_>) {
        if self.stream().is_some() {
            self.tell_stream(subscription, &notice, io);
        } else if let Some(socket) = self.socket() {
            socket.on_notice(subscription, notice, io);
        } else {
            self.on_early_notice(front, subscription, notice, io);
        }
    }

    fn tell_stream(&mut self, subscription: u32, notice: &Notice, io: &mut Io<'_>) {
        let Some(stream) = self.stream() else { return };
        match *notice {
            Notice::Gap { requested, resumed } => stream.tell_gap(subscription, requested, resumed, io),
            Notice::Moved { next, .. } => stream.move_to(subscription, next, io),
            Notice::Lost { messages, resumed } => {
                stream.lose(subscription, messages, resumed, io);
            }
            Notice::Ended(end) => {
                if stream.end(subscription, end_word(end), end == End::TooSlow, io) {
                    self.finish(io);
                }
            }
            // The owner does not know the member any more: its group was deleted.
            Notice::Refused(_) => {
                stream.end(subscription, end_word(End::GroupDeleted), true, io);
                self.finish(io);
            }
            Notice::Subscribed { .. } | Notice::Joined { .. } => {}
        }
    }

    /// News of a subscription whose request has not been answered.
    fn on_early_notice(&mut self, front: &mut HttpFront, subscription: u32, notice: Notice, io: &mut Io<'_>) {
        let Some((number, exchange)) = self.exchanges.oldest() else { return };
        let standing = match &mut exchange.waiting {
            Waiting::SubscribedToSeveral(opening) => opening.note(subscription, notice),
            Waiting::Subscribed(opening) => opening.note(subscription, notice),
            Waiting::Page(fetch) => match notice {
                Notice::Gap { .. } => return self.wake_fetch(io),
                Notice::Subscribed { .. } => return,
                notice => Standing::Failed(ended_problem(notice, fetch)),
            },
            _ => return,
        };
        match standing {
            Standing::Waits => {}
            Standing::All => self.open_stream(front, io),
            Standing::Failed(problem) => {
                // What stands of it already ends.
                io.unsubscribe_all();
                io.leave_group();
                io.hold_batches(false);
                self.write_answer(number, io, |context, out| context.write_problem(out, &front.date, &problem));
                self.resume(front, io);
            }
        }
    }

    /// All that a request reads stands: from here on the connection is the stream's.
    fn open_stream(&mut self, front: &mut HttpFront, io: &mut Io<'_>) {
        let Some(Exchange { context, waiting, .. }) = self.exchanges.take_oldest() else { return };
        match waiting {
            Waiting::Subscribed(opening) => self.open_one(front, &context, &opening, io),
            Waiting::SubscribedToSeveral(opening) => self.open_several(front, &context, &opening, io),
            _ => {}
        }
        self.end_if_client_left(io);
        self.resume(front, io);
    }

    /// Asks for one partition, or a group.
    pub(super) fn run_one(&mut self, front: &mut HttpFront, context: Context, opening: Box<Opening>, io: &mut Io<'_>) {
        let outcome = opening.ask(io);
        let number = self.exchanges.push(context, Company::None, Waiting::Subscribed(opening));
        if let Err(problem) = outcome {
            self.write_answer(number, io, |context, out| context.write_problem(out, &front.date, &problem));
        }
    }

    /// Asks for several partitions or topics; a WebSocket that names none is there at once.
    pub(super) fn run_several(
        &mut self,
        front: &mut HttpFront,
        context: Context,
        opening: Box<SeveralOpening>,
        io: &mut Io<'_>,
    ) {
        let is_empty = opening.parts.is_empty();
        let outcome = opening.ask(io);
        let number = self.exchanges.push(context, Company::None, Waiting::SubscribedToSeveral(opening));
        if let Err(problem) = outcome {
            self.write_answer(number, io, |context, out| context.write_problem(out, &front.date, &problem));
        } else if is_empty {
            self.open_stream(front, io);
        }
    }

    fn open_several(&mut self, front: &mut HttpFront, context: &Context, opening: &SeveralOpening, io: &mut Io<'_>) {
        match &opening.face {
            Face::Sse => {
                let stream = Stream::open_several(opening, context, front, io);
                self.take_stream(stream, io);
            }
            Face::WebSocket { accept, protocol } => {
                write_switch(context, front, accept, *protocol, io.output());
                let socket = Socket::open_several(opening, *protocol == Some(EXTENDED), front, io);
                self.take_socket(front, socket, io);
            }
        }
    }

    fn take_stream(&mut self, mut stream: Stream, io: &mut Io<'_>) {
        if self.draining {
            stream.end_shutdown(io);
            io.close(Close::Flush);
        }
        self.become_stream(stream);
    }

    fn take_socket(&mut self, front: &mut HttpFront, mut socket: Socket, io: &mut Io<'_>) {
        if self.draining {
            socket.on_shutdown(io);
        }
        self.become_socket(front, socket, io);
    }

    /// The client may have gone before the head of its stream was there.
    fn end_if_client_left(&self, io: &mut Io<'_>) {
        if self.has_input_ended() {
            io.close(Close::Flush);
        }
    }

    fn open_one(&mut self, front: &mut HttpFront, context: &Context, opening: &Opening, io: &mut Io<'_>) {
        let Some(at) = opening.end() else { return };
        // Before what the client may have said behind its handshake.
        opening.give_credit(io);
        match &opening.face {
            Face::Sse => {
                let stream = Stream::open(opening, at, context, front, io);
                self.take_stream(stream, io);
            }
            Face::WebSocket { accept, protocol } => {
                write_switch(context, front, accept, *protocol, io.output());
                let socket = Socket::open(opening, *protocol == Some(EXTENDED), front, io);
                self.take_socket(front, socket, io);
            }
        }
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

/// What a fetch is told whose topic is not there any more.
fn ended_problem(notice: Notice, fetch: &Fetch) -> Problem {
    match notice {
        Notice::Refused(refusal) => refusal.into(),
        _ => Refusal::topic_not_found(fetch.topic.as_str()).into(),
    }
}
