//! One HTTP connection as a state machine: requests in, answers out in their order, or a stream. On the connection's core.

use std::borrow::Cow;

use ringmain_driver::{Close, Io};
use ringmain_model::limit::{
    ACK_BODY_BYTES_MAX, HEAD_BYTES_MAX, HEAD_LINES_MAX, OUTPUT_BYTES_MAX, PIPELINE_BYTES_MAX, PIPELINE_REQUESTS_MAX,
    UNWANTED_BYTES_MAX,
};
use ringmain_wire::http::{
    BodyDecoder, CONTINUE, Framing, HeadLimits, Method, RequestHead, Version, decode_request_head,
};

use super::HttpFront;
use super::exchange::{Exchanges, Task, Waiting};
use super::problem::Problem;
use super::respond::Context;
use super::sse::Stream;
use super::upload::Upload;
use super::ws::Socket;

const HEAD_LIMITS: HeadLimits = HeadLimits { head_bytes_max: HEAD_BYTES_MAX, headers_max: HEAD_LINES_MAX };

/// A request that waits for others.
#[derive(Debug)]
struct Held {
    context: Context,
    task: Task,
    body: Vec<u8>,
}

/// What the next bytes are.
#[derive(Debug)]
enum Phase {
    /// A head, or the start of one.
    Head,
    /// A body.
    Body(Box<Upload>),
    /// Nothing that matters: a stream runs, and its client has nothing to say.
    Stream(Box<Stream>),
    /// Frames of WebSocket.
    Socket(Box<Socket>),
    /// Nothing any more: the last answer has been or will be given.
    Over,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Session {
    phase: Phase,
    /// Bytes that could not be used yet.
    input: Vec<u8>,
    pub(super) exchanges: Exchanges,
    /// A request that may not run beside those before it.
    held: Option<Box<Held>>,
    /// Since when the connection has been idle, or the head at hand incomplete.
    since_ms: u64,
    input_ended: bool,
    /// An answer that cost much was given in this turn: the next request waits for the next one, so that others get theirs.
    rests: bool,
    pub(super) draining: bool,
}

impl Session {
    pub(super) fn open(front: &HttpFront, io: &mut Io<'_>) -> Self {
        let session = Self {
            phase: Phase::Head,
            input: Vec::new(),
            exchanges: Exchanges::default(),
            held: None,
            since_ms: io.now().monotonic_ms,
            input_ended: false,
            rests: false,
            draining: false,
        };
        io.set_deadline(Some(session.since_ms + front.settings.idle_timeout_ms));
        session
    }

    pub(super) fn on_bytes(&mut self, front: &mut HttpFront, bytes: &[u8], io: &mut Io<'_>) {
        match &mut self.phase {
            Phase::Stream(_) | Phase::Over => return,
            Phase::Socket(socket) => {
                socket.on_bytes(front, bytes, io);
                return self.arm(front, io);
            }
            Phase::Head | Phase::Body(_) => {}
        }
        if self.input.is_empty() {
            if matches!(self.phase, Phase::Head) {
                self.since_ms = io.now().monotonic_ms;
            }
            let used = self.consume(front, bytes, io);
            self.keep(&bytes[used..]);
        } else {
            self.input.extend_from_slice(bytes);
            self.consume_input(front, io);
        }
        self.arm(front, io);
    }

    fn keep(&mut self, rest: &[u8]) {
        if !rest.is_empty() && matches!(self.phase, Phase::Head | Phase::Body(_)) {
            self.input.extend_from_slice(rest);
        }
    }

    fn consume_input(&mut self, front: &mut HttpFront, io: &mut Io<'_>) {
        let input = std::mem::take(&mut self.input);
        let used = self.consume(front, &input, io);
        if used == 0 {
            self.input = input;
        } else {
            self.keep(&input[used..]);
            self.since_ms = io.now().monotonic_ms;
        }
    }

    /// Whether the next request must wait for answers.
    fn is_blocked(&self, io: &mut Io<'_>) -> bool {
        if self.rests {
            return true;
        }
        if io.output_bytes() >= OUTPUT_BYTES_MAX {
            // Answers that nobody takes are not added to.
            io.wake_when_drained();
            return true;
        }
        self.exchanges.len() >= PIPELINE_REQUESTS_MAX || self.held.is_some() || self.exchanges.is_exclusive()
    }

    /// Takes requests from `bytes`; says how many bytes were used.
    fn consume(&mut self, front: &mut HttpFront, bytes: &[u8], io: &mut Io<'_>) -> usize {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            match &mut self.phase {
                Phase::Stream(_) | Phase::Over => return bytes.len(),
                Phase::Socket(socket) => {
                    // Frames that came together with the handshake.
                    socket.on_bytes(front, rest, io);
                    return bytes.len();
                }
                Phase::Body(_) => {
                    if rest.is_empty() {
                        return used;
                    }
                    used += self.consume_body(front, rest, io);
                }
                Phase::Head => {
                    if rest.is_empty() || self.is_blocked(io) {
                        return used;
                    }
                    match decode_request_head(rest, &HEAD_LIMITS) {
                        Ok(None) => return used,
                        Ok(Some((head, head_bytes))) => {
                            used += head_bytes;
                            used += self.begin(front, &head, &rest[head_bytes..], io);
                        }
                        Err(refusal) => self.refuse_framing(front, refusal.into(), io),
                    }
                }
            }
        }
    }

    /// Begins a request; says how many bytes of its body were used.
    fn begin(&mut self, front: &mut HttpFront, head: &RequestHead<'_>, rest: &[u8], io: &mut Io<'_>) -> usize {
        let mut context = Context {
            version: head.version,
            close: !head.keep_alive || self.draining,
            head_only: head.method == Method::Head,
            origin: None,
        };
        let task = front.plan(head, &mut context, io).unwrap_or_else(Task::Refuse);
        let body_bytes_max = match &task {
            Task::Publish(publish) => publish.body_bytes_max(front),
            Task::Group(_) => ACK_BODY_BYTES_MAX,
            _ => UNWANTED_BYTES_MAX,
        };
        // A client that waits for leave to send hears the refusal instead.
        let unasked = matches!(task, Task::Refuse(_)) && head.expect_continue;
        let decoder = match BodyDecoder::new(head.framing, body_bytes_max as u64) {
            Ok(decoder) if !unasked => decoder,
            outcome => {
                let problem = match (task, outcome) {
                    (Task::Refuse(problem), _) => problem,
                    (_, Err(refusal)) => refusal.into(),
                    (_, Ok(_)) => return 0,
                };
                self.refuse_and_close(front, context, problem, io);
                return 0;
            }
        };
        if decoder.complete() {
            self.start(front, context, task, Cow::Borrowed(&[]), io);
            return 0;
        }
        if let Framing::Length(length) = head.framing
            && let Ok(length) = usize::try_from(length)
            && let Some(body) = rest.get(..length)
        {
            // The whole body is there: it is copied once, to where it stays.
            self.start(front, context, task, Cow::Borrowed(body), io);
            return length;
        }
        self.since_ms = io.now().monotonic_ms;
        self.phase = Phase::Body(Box::new(Upload::begin(context, task, decoder, head.expect_continue)));
        self.pay_continue(io);
        0
    }

    fn pay_continue(&mut self, io: &mut Io<'_>) {
        if let Phase::Body(upload) = &mut self.phase
            && upload.owes_continue
            && self.exchanges.is_empty()
            && self.held.is_none()
        {
            upload.owes_continue = false;
            io.output().extend_from_slice(CONTINUE);
        }
    }

    fn consume_body(&mut self, front: &mut HttpFront, rest: &[u8], io: &mut Io<'_>) -> usize {
        let Phase::Body(upload) = &mut self.phase else { return 0 };
        match upload.take(front, rest) {
            Err(problem) => {
                self.refuse_framing(front, problem, io);
                rest.len()
            }
            Ok((used, true)) => {
                if let Some(upload) = self.take_upload(front) {
                    self.start(front, upload.context, upload.task, Cow::Owned(upload.body), io);
                }
                used
            }
            Ok((used, false)) => used,
        }
    }

    /// Leaves the body phase.
    fn take_upload(&mut self, front: &mut HttpFront) -> Option<Upload> {
        match std::mem::replace(&mut self.phase, Phase::Head) {
            Phase::Body(upload) => {
                upload.give_back(front);
                Some(*upload)
            }
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// Refuses what came and everything after it: where the next request starts is not known.
    fn refuse_framing(&mut self, front: &mut HttpFront, problem: Problem, io: &mut Io<'_>) {
        let (context, problem) = match self.take_upload(front) {
            // What was refused before its body came stays refused for that reason.
            Some(Upload { context, task: Task::Refuse(first), .. }) => (context, first),
            Some(upload) => (upload.context, problem),
            None => (Context { version: Version::Http11, close: true, head_only: false, origin: None }, problem),
        };
        self.refuse_and_close(front, context, problem, io);
    }

    fn refuse_and_close(&mut self, front: &mut HttpFront, mut context: Context, problem: Problem, io: &mut Io<'_>) {
        context.close = true;
        self.phase = Phase::Over;
        self.start(front, context, Task::Refuse(problem), Cow::Borrowed(&[]), io);
    }

    /// Starts a request whose body is there, unless it must wait for its turn.
    fn start(&mut self, front: &mut HttpFront, context: Context, task: Task, body: Cow<'_, [u8]>, io: &mut Io<'_>) {
        if context.close && !matches!(self.phase, Phase::Over) {
            self.phase = Phase::Over;
        }
        if !self.exchanges.admit(task.company()) {
            self.held = Some(Box::new(Held { context, task, body: body.into_owned() }));
            return;
        }
        self.run(front, context, task, body, io);
    }

    /// Lets go on what waited for an answer.
    pub(super) fn resume(&mut self, front: &mut HttpFront, io: &mut Io<'_>) {
        if self.exchanges.is_empty()
            && let Some(held) = self.held.take()
        {
            let Held { context, task, body } = *held;
            self.run(front, context, task, Cow::Owned(body), io);
        }
        self.pay_continue(io);
        if !self.input.is_empty() && matches!(self.phase, Phase::Head) && !self.is_blocked(io) {
            self.consume_input(front, io);
        }
        if self.exchanges.is_empty() && self.input.is_empty() && matches!(self.phase, Phase::Head) {
            self.since_ms = io.now().monotonic_ms;
        }
        self.arm(front, io);
        self.close_if_drained(io);
    }

    /// The last answer was written: the connection ends. A client that may still be sending is read from for a while, so
    /// that it sees the answer; a broker that goes down does not wait for that.
    pub(super) fn finish(&mut self, io: &mut Io<'_>) {
        self.phase = Phase::Over;
        self.input = Vec::new();
        io.close(if self.input_ended || self.draining { Close::Flush } else { Close::Linger });
    }

    pub(super) fn become_stream(&mut self, stream: Stream) {
        self.phase = Phase::Stream(Box::new(stream));
        self.input = Vec::new();
    }

    /// The handshake is done: what follows are frames, and some may be here already.
    pub(super) fn become_socket(&mut self, front: &mut HttpFront, socket: Socket, io: &mut Io<'_>) {
        let mut socket = Box::new(socket);
        let input = std::mem::take(&mut self.input);
        if !input.is_empty() {
            socket.on_bytes(front, &input, io);
        }
        self.phase = Phase::Socket(socket);
    }

    pub(super) fn socket(&mut self) -> Option<&mut Socket> {
        match &mut self.phase {
            Phase::Socket(socket) => Some(socket),
            _ => None,
        }
    }

    pub(super) fn stream(&mut self) -> Option<&mut Stream> {
        match &mut self.phase {
            Phase::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    pub(super) fn on_end_of_input(&mut self, front: &mut HttpFront, io: &mut Io<'_>) {
        self.input_ended = true;
        if matches!(self.phase, Phase::Stream(_) | Phase::Socket(_)) {
            // A reader that has shut its side down has gone: browsers and clients do not read half-closed streams.
            io.close(Close::Flush);
        } else if self.exchanges.oldest().is_some_and(|(_, oldest)| matches!(oldest.waiting, Waiting::Group(_))) {
            // A worker that was killed looks like this, and what it were given now would be held for nothing.
            io.close(Close::Flush);
        } else if self.exchanges.is_empty() && self.held.is_none() {
            // What is incomplete will never be complete.
            io.close(Close::Flush);
        } else {
            self.arm(front, io);
        }
    }

    pub(super) fn on_shutdown(&mut self, front: &mut HttpFront, io: &mut Io<'_>) {
        self.draining = true;
        if let Phase::Stream(stream) = &mut self.phase {
            stream.end_shutdown(io);
            io.close(Close::Flush);
            return;
        }
        if let Phase::Socket(socket) = &mut self.phase {
            return socket.on_shutdown(io);
        }
        self.end_waiting_fetch(front, io);
        self.wake_worker(front, io);
        self.close_if_drained(io);
    }

    /// Lets the rest of the core have its turn before the next request.
    pub(super) fn rest(&mut self) {
        self.rests = !self.input.is_empty();
    }

    pub(super) fn has_input_ended(&self) -> bool {
        self.input_ended
    }

    /// Whether no request is half received or waits for others.
    pub(super) fn has_nothing_in_hand(&self) -> bool {
        self.held.is_none() && !matches!(self.phase, Phase::Body(_))
    }

    /// Ends a connection that has nothing in hand while the broker goes down or the peer sends no more.
    pub(super) fn close_if_drained(&mut self, io: &mut Io<'_>) {
        if !(self.draining || self.input_ended) || matches!(self.phase, Phase::Stream(_) | Phase::Socket(_)) {
            return;
        }
        // What stands in the input now is no whole request, unless answers have to leave first.
        if self.exchanges.is_empty() && self.has_nothing_in_hand() && !self.is_blocked(io) {
            io.close(Close::Flush);
        }
    }

    /// Sets the deadline of whatever the connection is at, and stops reading while too much waits.
    fn arm(&mut self, front: &HttpFront, io: &mut Io<'_>) {
        if !matches!(self.phase, Phase::Socket(_)) {
            let blocked = self.is_blocked(io);
            io.want_input(!blocked || self.input.len() < PIPELINE_BYTES_MAX);
        }
        if self.rests {
            io.set_deadline(Some(io.now().monotonic_ms));
            return;
        }
        let settings = &front.settings;
        let waiting = self.exchanges.wait_until_ms();
        let deadline = match &self.phase {
            Phase::Stream(stream) => Some(stream.spoke_ms + settings.heartbeat_ms),
            Phase::Socket(socket) => {
                let beat = socket.spoke_ms + settings.heartbeat_ms;
                Some(socket.half_until_ms(settings.body_timeout_ms).map_or(beat, |half| half.min(beat)))
            }
            Phase::Body(_) => Some(self.since_ms + settings.body_timeout_ms),
            _ if !self.exchanges.is_empty() => waiting,
            Phase::Head if !self.input.is_empty() => Some(self.since_ms + settings.header_timeout_ms),
            Phase::Head => Some(self.since_ms + settings.idle_timeout_ms),
            Phase::Over => None,
        };
        io.set_deadline(deadline);
    }

    pub(super) fn on_timer(&mut self, front: &mut HttpFront, io: &mut Io<'_>) {
        let now_ms = io.now().monotonic_ms;
        if std::mem::take(&mut self.rests) {
            return self.resume(front, io);
        }
        match &mut self.phase {
            Phase::Stream(stream) => {
                if now_ms >= stream.spoke_ms + front.settings.heartbeat_ms {
                    stream.beat(io);
                }
            }
            Phase::Socket(socket) => {
                if socket.half_until_ms(front.settings.body_timeout_ms).is_some_and(|until_ms| until_ms <= now_ms) {
                    socket.close(1008, "a message came to a stop half way: send it faster, or again", io);
                }
                if now_ms >= socket.spoke_ms + front.settings.heartbeat_ms {
                    socket.beat(front.settings.heartbeat_ms, io);
                }
            }
            Phase::Body(upload) => {
                if upload.has_progressed() {
                    self.since_ms = now_ms;
                } else {
                    let text = format!("the body made no progress for {} ms", front.settings.body_timeout_ms);
                    self.refuse_framing(front, timed_out(&text), io);
                }
            }
            _ if !self.exchanges.is_empty() => {
                self.end_waiting_fetch(front, io);
                self.wake_worker(front, io);
            }
            Phase::Head if self.input.is_empty() => io.close(Close::Flush),
            Phase::Head => {
                let text = format!("the request's head did not end within {} ms", front.settings.header_timeout_ms);
                self.refuse_framing(front, timed_out(&text), io);
            }
            Phase::Over => {}
        }
        self.arm(front, io);
    }

    /// Gives back what the connection held of the core's.
    pub(super) fn give_back(self, front: &mut HttpFront) {
        match self.phase {
            Phase::Body(upload) => upload.give_back(front),
            Phase::Socket(socket) => socket.give_back(front),
            Phase::Head | Phase::Stream(_) | Phase::Over => {}
        }
    }
}

fn timed_out(what: &str) -> Problem {
    Problem::new(408, "request_timeout", format!("{what}: send it faster, or over a new connection"))
}
