//! WebSocket: a subscriber's frames out, and what it says in: acknowledgements, publishes, pings. On its core.

use hashbrown::HashMap;
use ringmain_driver::{Answer, AnswerWhen, Close, Io, Request, SlowReader};
use ringmain_engine::Reply;
use ringmain_model::limit::{
    ACK_OFFSETS_MAX, BODIES_BYTES_PER_CORE, BODY_BYTES_DEFAULT, SILENT_HEARTBEATS_MAX, SOCKET_REQUESTS_MAX,
};
use ringmain_model::{Offset, TopicName};
use ringmain_wire::http::{ResponseBody, ResponseHead, Version, encode_response_head};
use ringmain_wire::json::{publish_of_value, timestamp_text};
use ringmain_wire::ws::{Decoder, Event, Opcode, Role, close_frame, frame, text_frame};
use serde_json::{Value, json};
use smallvec::SmallVec;

use super::HttpFront;
use super::members::{AskedAck, Member};
use super::placing::Placing;
use super::problem::Problem;
use super::publish::message_of_publish;
use super::readings::{Readings, topic_of};
use super::respond::Context;
use super::several::SeveralOpening;
use super::subscribe::{Format, Opening};
use super::upload::BODY_PROGRESS_BYTES;

/// The subprotocol whose clients are told what is not a message.
pub(super) const EXTENDED: &str = "ringmain.v1";

/// A question to the broker that waits for its answer.
#[derive(Debug)]
pub(super) enum Asked {
    Publish {
        topic: TopicName,
        /// When the topic has several.
        partition: Option<u32>,
        reference: Value,
    },
    Ack(Box<AskedAck>),
    /// Part of the acknowledgement that was asked for by that number.
    AckPart(u64),
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
    /// The partition that takes the next message without a key or id, when a topic has so many.
    publish_turn: u32,
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
    /// A subscriber whose subscription stands, or a member whose group does.
    pub(super) fn open(opening: &Opening, extended: bool, front: &HttpFront, io: &mut Io<'_>) -> Self {
        let member = Member::of(opening).map(Box::new);
        // A subscriber may be as slow as it likes: it holds a cursor and not a queue.
        io.limit_write_stall(false);
        let readings = match &member {
            None => Readings::of_one(opening),
            Some(_) => Readings::default(),
        };
        let purpose = Purpose::Subscriber { topic: Some(opening.topic.clone()), member };
        let socket = Self::new(purpose, opening.format, extended, front, io);
        Self { readings, slow: opening.slow, ..socket }
    }

    /// A subscriber of several partitions, whose subscriptions all stand; or of none yet.
    pub(super) fn open_several(opening: &SeveralOpening, extended: bool, front: &HttpFront, io: &mut Io<'_>) -> Self {
        io.limit_write_stall(false);
        io.hold_batches(false);
        let route_topic = opening.topics().next().filter(|_| opening.of_route).map(|(topic, _)| topic.clone());
        let purpose = Purpose::Subscriber { topic: route_topic, member: None };
        let socket = Self::new(purpose, opening.format, extended, front, io);
        let readings = Readings::of(opening.topics());
        let mut socket = Self { readings, slow: opening.slow, ..socket };
        for (number, wanted) in (0..).zip(&opening.parts) {
            if let Some((requested, resumed)) = wanted.gap {
                socket.tell_gap(number, requested, resumed, io);
            }
        }
        socket
    }

    /// A connection that sends back what comes.
    pub(super) fn echo(front: &HttpFront, io: &Io<'_>) -> Self {
        // Suites send up to 16 MiB in a message, whatever the limit on bodies is.
        let message_bytes_max = front.settings.body_bytes_max.max(BODY_BYTES_DEFAULT);
        let decoder = Decoder::new(Role::Server, message_bytes_max);
        Self { decoder, ..Self::new(Purpose::Echo, Format::Raw, false, front, io) }
    }

    fn new(purpose: Purpose, format: Format, extended: bool, front: &HttpFront, io: &Io<'_>) -> Self {
        let now_ms = io.now().monotonic_ms;
        Self {
            decoder: Decoder::new(Role::Server, front.settings.body_bytes_max),
            purpose,
            readings: Readings::default(),
            format,
            slow: SlowReader::Lag,
            extended,
            closed: false,
            asked: HashMap::new(),
            // Numbers of requests before the handshake stay below.
            next_request: 1 << 32,
            publish_turn: front.opened,
            spoke_ms: now_ms,
            heard_ms: now_ms,
            answers_pings: false,
            half_bytes: 0,
            half_since_ms: now_ms,
            half_fed: 0,
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
        } else if let Some(word) = frame.remove("nack") {
            self.on_nack(&word, frame.get("delay_ms"), io).map(|()| self.confirm("nacked", &word, &reference, io))
        } else if let Some(publish) = frame.remove("publish") {
            self.on_publish(front, publish, &reference, io)
        } else if let Some(messages) = frame.remove("credit") {
            self.on_credit(&messages, io).map(|()| self.confirm("credited", &messages, &reference, io))
        } else if let Some(word) = frame.remove("ping") {
            let mut pong = json!({ "pong": word });
            if !reference.is_null() {
                pong["ref"] = reference.clone();
            }
            self.say(&pong, io);
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

    /// Says to who asked with a reference that its word was taken.
    fn confirm(&mut self, done: &str, word: &Value, reference: &Value, io: &mut Io<'_>) {
        if !reference.is_null() {
            self.say(&json!({ done: word, "ref": reference }), io);
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

    pub(super) fn ask(&mut self, asked: Asked, what: Request, io: &mut Io<'_>) -> u64 {
        let number = self.next_request;
        self.next_request += 1;
        self.asked.insert(number, asked);
        io.ask(number, what);
        number
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
        let named = publish.get("partition").filter(|partition| !partition.is_null()).cloned();
        let named = named.map(|partition| {
            partition
                .as_u64()
                .ok_or_else(|| Problem::parameter("partition is a number: leave it out, or write digits only"))
        });
        let place = io.place_of(&topic);
        let named = super::partition::named(named.transpose()?, place)?;
        if let Some(publish) = publish.as_object_mut() {
            publish.remove("topic");
            publish.remove("partition");
        }
        let message = message_of_publish(publish_of_value(&publish)?, None, front.settings.message_bytes_max)?;
        let placing = Placing { partitions: place.map_or(1, |place| place.partitions), named, is_divided: false };
        let (partition, what) = placing.place(topic.clone(), message, AnswerWhen::Durable, &mut self.publish_turn);
        let partition = placing.has_several().then_some(partition);
        self.ask(Asked::Publish { topic, partition, reference: reference.clone() }, what, io);
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
        let Answer::Reply(reply) = answer else { return };
        match (self.asked.remove(&number), reply) {
            (Some(Asked::Publish { reference, .. }), Reply::Refused(refusal)) => {
                self.complain(&refusal.into(), reference, io);
            }
            (Some(Asked::Publish { topic, partition, reference }), Reply::Published { offset, time_us })
                if !reference.is_null() =>
            {
                let timestamp = timestamp_text(time_us);
                let mut published = json!({ "offset": offset.0, "topic": topic.as_str(), "timestamp": timestamp });
                if let Some(partition) = partition {
                    published["partition"] = partition.into();
                }
                self.say(&json!({ "published": published, "ref": reference }), io);
            }
            (Some(Asked::Ack(whole)), reply) => self.gather_ack(number, whole, reply, io),
            (Some(Asked::AckPart(first)), reply) => {
                if let Some(Asked::Ack(whole)) = self.asked.remove(&first) {
                    self.gather_ack(first, whole, reply, io);
                }
            }
            _ => {}
        }
        io.want_input(self.asked.len() < SOCKET_REQUESTS_MAX);
    }

    /// One of the partitions of an acknowledgement has answered: the client hears of it when all have.
    fn gather_ack(&mut self, number: u64, mut whole: Box<AskedAck>, reply: Reply, io: &mut Io<'_>) {
        whole.left = whole.left.saturating_sub(1);
        match reply {
            Reply::Acknowledged(count) => whole.count += count,
            Reply::Refused(refusal) => {
                whole.refusal.get_or_insert(refusal);
            }
            _ => {}
        }
        if whole.left > 0 {
            self.asked.insert(number, Asked::Ack(whole));
            return;
        }
        let AskedAck { word, reference, count, refusal, .. } = *whole;
        match refusal {
            Some(refusal) => self.complain(&Problem::from(refusal), reference, io),
            None => self.say(&json!({ "acked": word, "count": count, "ref": reference }), io),
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

/// What `7` or `[7,9]` lists.
pub(super) fn offset_list(word: &Value) -> Result<&[Value], Problem> {
    let list = match word {
        Value::Array(list) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    if list.len() > ACK_OFFSETS_MAX {
        return Err(Problem::parameter(format!("at most {ACK_OFFSETS_MAX} offsets at a time")));
    }
    Ok(list)
}

/// The offsets of `7` or `[7,9]`.
pub(super) fn offsets(word: &Value) -> Result<Vec<Offset>, Problem> {
    let offsets: Option<Vec<_>> = offset_list(word)?.iter().map(|offset| offset.as_u64().map(Offset)).collect();
    offsets.ok_or_else(|| Problem::parameter("an offset is a number, several are an array of numbers"))
}
