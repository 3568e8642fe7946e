//! WebSocket: a subscriber's frames out, and what it says in: acknowledgements, publishes, pings. On its core.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use ringmain_driver::{Answer, AnswerWhen, Close, GroupWish, Io, Request, SlowReader};
use ringmain_engine::Reply;
use ringmain_model::limit::{
    ACK_OFFSETS_MAX, BODIES_BYTES_PER_CORE, MEMBER_IN_FLIGHT_MAX, NACK_DELAY_MS_MAX, SEND_QUEUE_BYTES_MAX,
    SOCKET_REQUESTS_MAX,
};
use ringmain_model::{GroupName, Offset, TopicName};
use ringmain_wire::http::{ResponseBody, ResponseHead, Version, encode_response_head};
use ringmain_wire::json::timestamp_text;
use ringmain_wire::ws::{Decoder, Event, Opcode, Role, close_frame, frame, text_frame};
use serde_json::{Value, json};
use smallvec::SmallVec;

use super::HttpFront;
use super::problem::Problem;
use super::publish::message_of_json;
use super::readings::{Readings, topic_of};
use super::respond::Context;
use super::several::SeveralOpening;
use super::subscribe::{Format, Opening, lost_json};
use super::upload::BODY_PROGRESS_BYTES;

/// The subprotocol whose clients are told what is not a message.
pub(super) const EXTENDED: &str = "ringmain.v1";
/// Heartbeats without a sign of life, from a client that gave some before, after which it counts as gone.
const SILENT_HEARTBEATS_MAX: u64 = 4;

/// What the group of a member gave it, and it has not acknowledged.
#[derive(Debug)]
pub(super) struct Member {
    group: GroupName,
    /// The epoch in which each offset was got.
    pub(super) held: BTreeMap<Offset, u64>,
    /// The group's epoch, as far as this connection has heard.
    pub(super) epoch: u64,
}

/// A question of the client that waits for its answer.
#[derive(Debug)]
enum Asked {
    Publish { topic: TopicName, reference: Value },
    Ack { word: Value, reference: Value },
}

/// What the connection is for.
#[derive(Debug)]
enum Purpose {
    /// Messages of topics. `topic` is that of a route of one topic.
    Subscriber { topic: Option<TopicName>, member: Option<Box<Member>> },
    /// Sends back what comes: for conformance suites.
    Echo,
}

/// A WebSocket connection after its handshake.
#[derive(Debug)]
pub(super) struct Socket {
    decoder: Decoder,
    purpose: Purpose,
    pub(super) readings: Readings,
    pub(super) format: Format,
    pub(super) slow: SlowReader,
    /// The client knows [`EXTENDED`].
    pub(super) extended: bool,
    /// A close frame was sent: nothing follows it.
    pub(super) closed: bool,
    asked: HashMap<u64, Asked>,
    next_request: u64,
    /// When something was last sent or heard, monotonic milliseconds.
    pub(super) spoke_ms: u64,
    heard_ms: u64,
    /// The client has answered a ping.
    answers_pings: bool,
    /// Bytes of a half received message, as far as they are counted among the core's bodies; since when it has not grown.
    half_bytes: usize,
    half_since_ms: u64,
    /// Bytes that came since progress was last noted.
    half_fed: usize,
    /// What retention took and the client has not been told, because it takes nothing: messages, and where it goes on.
    lost_untold: Option<(u64, Offset)>,
}

/// Writes the answer that ends HTTP on the connection.
pub(super) fn write_switch(
    context: &Context,
    front: &HttpFront,
    accept: &str,
    protocol: Option<&str>,
    out: &mut Vec<u8>,
) {
    let mut headers: SmallVec<[(&str, &str); 4]> = SmallVec::new();
    headers.push(("Upgrade", "websocket"));
    headers.push(("Connection", "Upgrade"));
    headers.push(("Sec-WebSocket-Accept", accept));
    headers.extend(protocol.map(|protocol| ("Sec-WebSocket-Protocol", protocol)));
    let head = ResponseHead {
        status: 101,
        headers: &headers,
        body: ResponseBody::None,
        close: false,
        version: context.version,
    };
    debug_assert!(context.version == Version::Http11, "the handshake is of HTTP/1.1");
    encode_response_head(out, &front.date, &head);
}

impl Socket {
    /// A subscriber whose subscription stands; `epoch` is its group's, if it has one.
    pub(super) fn open(opening: &Opening, extended: bool, epoch: u64, front: &HttpFront, io: &mut Io<'_>) -> Self {
        let member = opening.group.clone().map(|group| Box::new(Member { group, held: BTreeMap::new(), epoch }));
        // A subscriber may be as slow as it likes: it holds a cursor and not a queue.
        io.limit_write_stall(false);
        let readings = match &member {
            None => Readings::of(std::iter::once(&opening.topic)),
            Some(_) => Readings::default(),
        };
        let purpose = Purpose::Subscriber { topic: Some(opening.topic.clone()), member };
        let socket = Self::new(purpose, opening.format, extended, front.settings.body_bytes_max, io);
        Self { readings, slow: opening.slow, ..socket }
    }

    /// A subscriber of several topics, whose subscriptions all stand; or of none yet.
    pub(super) fn open_several(opening: &SeveralOpening, extended: bool, front: &HttpFront, io: &mut Io<'_>) -> Self {
        io.limit_write_stall(false);
        io.hold_batches(false);
        let purpose = Purpose::Subscriber { topic: None, member: None };
        let socket = Self::new(purpose, opening.format, extended, front.settings.body_bytes_max, io);
        let readings = Readings::of(opening.topics.iter().map(|wanted| &wanted.topic));
        let mut socket = Self { readings, slow: opening.slow, ..socket };
        for (number, wanted) in (0..).zip(&opening.topics) {
            if let Some((requested, resumed)) = wanted.gap {
                socket.tell_gap(number, requested, resumed, io);
            }
        }
        socket
    }

    /// A connection that sends back what comes.
    pub(super) fn echo(front: &HttpFront, io: &Io<'_>) -> Self {
        // Suites send up to 16 MiB in a message, whatever the limit on bodies is.
        Self::new(Purpose::Echo, Format::Raw, false, front.settings.body_bytes_max.max(64 << 20), io)
    }

    fn new(purpose: Purpose, format: Format, extended: bool, message_bytes_max: usize, io: &Io<'_>) -> Self {
        let now_ms = io.now().monotonic_ms;
        Self {
            decoder: Decoder::new(Role::Server, message_bytes_max),
            purpose,
            readings: Readings::default(),
            format,
            slow: SlowReader::Lag,
            extended,
            closed: false,
            asked: HashMap::new(),
            // Numbers of requests before the handshake stay below.
            next_request: 1 << 32,
            spoke_ms: now_ms,
            heard_ms: now_ms,
            answers_pings: false,
            half_bytes: 0,
            half_since_ms: now_ms,
            half_fed: 0,
            lost_untold: None,
        }
    }

    pub(super) fn on_bytes(&mut self, front: &mut HttpFront, bytes: &[u8], io: &mut Io<'_>) {
        self.heard_ms = io.now().monotonic_ms;
        let mut events = Vec::new();
        let outcome = self.decoder.feed(bytes, &mut events);
        for event in events {
            if self.closed {
                return;
            }
            self.on_event(front, event, io);
        }
        if let Err(fault) = outcome {
            self.close(fault.code, &fault.message, io);
        }
        self.count_half(front, bytes.len(), io);
        io.want_input(self.asked.len() < SOCKET_REQUESTS_MAX);
    }

    /// Counts what is half received among the bodies of the core, which are bounded together.
    fn count_half(&mut self, front: &mut HttpFront, fed: usize, io: &mut Io<'_>) {
        let held = self.decoder.held_bytes();
        self.half_fed += fed;
        if self.half_bytes == 0 || self.half_fed >= BODY_PROGRESS_BYTES {
            self.half_since_ms = io.now().monotonic_ms;
            self.half_fed = 0;
        }
        front.uploads_bytes = front.uploads_bytes + held - self.half_bytes;
        self.half_bytes = held;
        if held > 0 && front.uploads_bytes > BODIES_BYTES_PER_CORE {
            self.close(1013, "this core holds as many half received messages as it may: try again later", io);
        }
    }

    /// Gives back what the connection held of the core's.
    pub(super) fn give_back(&self, front: &mut HttpFront) {
        front.uploads_bytes -= self.half_bytes;
    }

    /// When a half received message is given up, monotonic milliseconds.
    pub(super) fn half_until_ms(&self, body_timeout_ms: u64) -> Option<u64> {
        (self.half_bytes > 0).then(|| self.half_since_ms + body_timeout_ms)
    }

    fn on_event(&mut self, front: &HttpFront, event: Event, io: &mut Io<'_>) {
        match (event, &self.purpose) {
            (Event::Ping(payload), _) => frame(io.output(), Opcode::Pong, &payload, None),
            (Event::Pong(_), _) => self.answers_pings = true,
            (Event::Close { code, .. }, _) => {
                self.close(code.unwrap_or(1000), "", io);
            }
            (Event::Text(text), Purpose::Echo) => text_frame(io.output(), text.as_bytes()),
            (Event::Binary(bytes), Purpose::Echo) => frame(io.output(), Opcode::Binary, &bytes, None),
            (Event::Text(text), Purpose::Subscriber { .. }) => self.on_text(front, &text, io),
            (Event::Binary(_), Purpose::Subscriber { .. }) => {
                self.close(1003, "say what you have to say as JSON in text frames", io);
            }
        }
    }

    /// Sends a close frame and ends the connection once it is out; the client's own close frame is read over.
    pub(super) fn close(&mut self, code: u16, reason: &str, io: &mut Io<'_>) {
        if !std::mem::replace(&mut self.closed, true) {
            close_frame(io.output(), code, reason);
            io.unsubscribe_all();
            io.close(if self.decoder.is_closed() { Close::Flush } else { Close::Linger });
        }
    }

    /// The broker goes down. Only clients of ours are told by a close frame: others would take it for the end of the topic, and
    /// come back only to a connection that was cut.
    pub(super) fn on_shutdown(&mut self, io: &mut Io<'_>) {
        if self.extended && !self.closed {
            close_frame(io.output(), 1001, "the broker is going down: come back in a moment");
        }
        self.closed = true;
        io.close(Close::Flush);
    }

    fn on_text(&mut self, front: &HttpFront, text: &str, io: &mut Io<'_>) {
        let Ok(Value::Object(mut frame)) = serde_json::from_str::<Value>(text) else {
            return self.complain(&Problem::parameter("a frame is a JSON object, like {\"ack\":7}"), Value::Null, io);
        };
        let reference = frame.remove("ref").unwrap_or_default();
        let words = ["ack", "nack", "publish", "credit", "ping", "subscribe", "unsubscribe"];
        if words.iter().filter(|word| frame.contains_key(**word)).count() > 1 {
            let problem =
                Problem::parameter(format!("a frame says one thing: send {} each in its own", words.join(", ")));
            return self.complain(&problem, reference, io);
        }
        let outcome = if let Some(word) = frame.remove("ack") {
            self.on_ack(word, &reference, io)
        } else if let Some(offset) = frame.remove("nack") {
            self.on_nack(&offset, frame.get("delay_ms"), io)
        } else if let Some(publish) = frame.remove("publish") {
            self.on_publish(front, publish, &reference, io)
        } else if let Some(messages) = frame.remove("credit") {
            self.on_credit(&messages, io)
        } else if let Some(word) = frame.remove("ping") {
            self.say(&json!({ "pong": word }), io);
            Ok(())
        } else if let Some(word) = frame.remove("subscribe") {
            self.on_subscribe(&word, &reference, io)
        } else if let Some(word) = frame.remove("unsubscribe") {
            self.on_unsubscribe(&word, &reference, io)
        } else {
            Err(Problem::parameter(format!("a frame has one of {}", words.join(", "))))
        };
        if let Err(problem) = outcome {
            self.complain(&problem, reference, io);
        }
    }

    /// Tells of a mistake: to those who asked with a reference, and to clients of ours. Others would take it for a message.
    pub(super) fn complain(&mut self, problem: &Problem, reference: Value, io: &mut Io<'_>) {
        if self.extended || !reference.is_null() {
            let error = json!({ "status": problem.status, "code": problem.code, "message": problem.message });
            let mut frame = json!({ "error": error });
            if !reference.is_null() {
                frame["ref"] = reference;
            }
            self.say(&frame, io);
        }
    }

    pub(super) fn say(&mut self, frame: &Value, io: &mut Io<'_>) {
        if !self.closed {
            self.spoke_ms = io.now().monotonic_ms;
            text_frame(io.output(), frame.to_string().as_bytes());
        }
    }

    pub(super) fn member(&mut self) -> Result<&mut Member, Problem> {
        match &mut self.purpose {
            Purpose::Subscriber { member: Some(member), .. } => Ok(member),
            _ => Err(Problem::parameter("only members of a group acknowledge: subscribe with ?group=")),
        }
    }

    fn on_ack(&mut self, word: Value, reference: &Value, io: &mut Io<'_>) -> Result<(), Problem> {
        let offsets = offsets(&word)?;
        let asked = !reference.is_null();
        let member = self.member()?;
        let epoch = member.epoch;
        let mut current = Vec::new();
        for offset in offsets {
            // What it got over an earlier connection may count as well, what it got before a seek does not: the owner knows.
            match member.held.remove(&offset) {
                Some(got_in) if asked && got_in == epoch => current.push(offset),
                got_in => io.ack(0, got_in.unwrap_or(epoch), offset),
            }
        }
        if asked {
            let (group, wish) = (member.group.clone(), GroupWish::Ack { epoch: Some(epoch), offsets: current });
            if let Some(topic) = self.route_topic() {
                let what = Request::Group { topic: topic.clone(), partition: 0, group, wish };
                self.ask(Asked::Ack { word, reference: reference.clone() }, what, io);
            }
        }
        Ok(())
    }

    fn ask(&mut self, asked: Asked, what: Request, io: &mut Io<'_>) {
        let number = self.next_request;
        self.next_request += 1;
        self.asked.insert(number, asked);
        io.ask(number, what);
    }

    fn on_nack(&mut self, offset: &Value, delay_ms: Option<&Value>, io: &mut Io<'_>) -> Result<(), Problem> {
        let delay_ms = delay_ms.map_or(Some(0), Value::as_u64).filter(|delay_ms| *delay_ms <= NACK_DELAY_MS_MAX);
        let delay_ms = delay_ms
            .ok_or_else(|| Problem::parameter(format!("delay_ms is a number from 0 to {NACK_DELAY_MS_MAX}")))?;
        let offsets = offsets(offset)?;
        let member = self.member()?;
        for offset in offsets {
            if let Some(epoch) = member.held.remove(&offset) {
                io.nack(0, epoch, offset, delay_ms);
            }
        }
        Ok(())
    }

    fn on_credit(&mut self, messages: &Value, io: &mut Io<'_>) -> Result<(), Problem> {
        self.member()?;
        let messages = messages.as_u64().and_then(|messages| u32::try_from(messages).ok());
        match messages.filter(|messages| *messages <= MEMBER_IN_FLIGHT_MAX) {
            Some(messages) => {
                io.hold_at_most(0, messages);
                Ok(())
            }
            None => Err(Problem::parameter(format!("credit is a number from 0 to {MEMBER_IN_FLIGHT_MAX}"))),
        }
    }

    fn on_publish(
        &mut self,
        front: &HttpFront,
        mut publish: Value,
        reference: &Value,
        io: &mut Io<'_>,
    ) -> Result<(), Problem> {
        let names_topic = publish.get("topic").is_some_and(|topic| !topic.is_null());
        let topic = match self.route_topic().filter(|_| !names_topic) {
            Some(topic) => topic.clone(),
            None => topic_of(&publish)?,
        };
        if let Some(publish) = publish.as_object_mut() {
            publish.remove("topic");
        }
        let message = message_of_json(publish.to_string().as_bytes(), front.settings.message_bytes_max)?;
        let what = Request::Publish { name: topic.clone(), partition: 0, message, answer: AnswerWhen::Durable };
        self.ask(Asked::Publish { topic, reference: reference.clone() }, what, io);
        Ok(())
    }

    /// The topic of a route of one topic.
    pub(super) fn route_topic(&self) -> Option<&TopicName> {
        match &self.purpose {
            Purpose::Subscriber { topic, .. } => topic.as_ref(),
            Purpose::Echo => None,
        }
    }

    pub(super) fn on_answer(&mut self, number: u64, answer: Answer, io: &mut Io<'_>) {
        let Some(asked) = self.asked.remove(&number) else { return };
        io.want_input(self.asked.len() < SOCKET_REQUESTS_MAX);
        let Answer::Reply(reply) = answer else { return };
        match (asked, reply) {
            (Asked::Publish { reference, .. } | Asked::Ack { reference, .. }, Reply::Refused(refusal)) => {
                self.complain(&refusal.into(), reference, io);
            }
            (Asked::Publish { topic, reference }, Reply::Published { offset, time_us }) if !reference.is_null() => {
                let timestamp = timestamp_text(time_us);
                let published = json!({ "offset": offset.0, "topic": topic.as_str(), "timestamp": timestamp });
                self.say(&json!({ "published": published, "ref": reference }), io);
            }
            (Asked::Ack { word, reference }, Reply::Acknowledged(_)) => {
                self.say(&json!({ "acked": word, "ref": reference }), io);
            }
            _ => {}
        }
    }

    /// The group was made to seek: what is held from before does not count any more.
    pub(super) fn move_to(&mut self, epoch: u64, next: Offset, io: &mut Io<'_>) {
        if let Ok(member) = self.member() {
            member.epoch = epoch;
        }
        self.tell("moved", &format!(r#"{{"next":{next}}}"#), io);
    }

    /// Retention took messages of the group: told at once, or with the next sign of life when the client takes nothing now.
    pub(super) fn lose(&mut self, messages: u64, resumed: Offset, io: &mut Io<'_>) {
        if let Ok(member) = self.member() {
            member.held = member.held.split_off(&resumed);
        }
        let before = self.lost_untold.map_or(0, |(sum, _)| sum);
        self.lost_untold = Some((before + messages, resumed));
        self.tell_lost(io);
    }

    pub(super) fn tell_lost(&mut self, io: &mut Io<'_>) {
        if io.output_bytes() < SEND_QUEUE_BYTES_MAX
            && let Some((messages, resumed)) = self.lost_untold.take()
        {
            self.tell("lost", &lost_json(messages, resumed), io);
        }
    }

    /// Tells of something that is not a message: to clients of ours alone.
    pub(super) fn tell(&mut self, name: &str, json: &str, io: &mut Io<'_>) {
        if self.extended && !self.closed {
            text_frame(io.output(), format!(r#"{{"{name}":{json}}}"#).as_bytes());
        }
    }

    /// Asks for a sign of life, and cuts off who gave some before and gives none any more.
    pub(super) fn beat(&mut self, heartbeat_ms: u64, io: &mut Io<'_>) {
        let now_ms = io.now().monotonic_ms;
        self.spoke_ms = now_ms;
        self.tell_lost(io);
        if self.answers_pings && now_ms >= self.heard_ms + SILENT_HEARTBEATS_MAX * heartbeat_ms {
            io.close(Close::Abort);
        } else if io.output_bytes() == 0 && !self.closed {
            frame(io.output(), Opcode::Ping, b"", None);
        }
    }
}

/// The offsets of `7` or `[7,9]`.
pub(super) fn offsets(word: &Value) -> Result<Vec<Offset>, Problem> {
    let list = match word {
        Value::Array(list) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    if list.len() > ACK_OFFSETS_MAX {
        return Err(Problem::parameter(format!("at most {ACK_OFFSETS_MAX} offsets at a time")));
    }
    let offsets: Option<Vec<_>> = list.iter().map(|offset| offset.as_u64().map(Offset)).collect();
    offsets.ok_or_else(|| Problem::parameter("an offset is a number, several are an array of numbers"))
}
