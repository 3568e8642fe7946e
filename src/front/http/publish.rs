//! Publishing: from a request's head and body to a message, and the answer to it. On the core of the connection.

use std::borrow::Cow;

use bytes::Bytes;
use ringmain_driver::{AnswerWhen, Io, Request};
use ringmain_model::limit::MESSAGE_HEADERS_MAX;
use ringmain_model::{Message, Offset, Refusal, RefusalKind, TopicName};
use ringmain_wire::http::{RequestHead, Target, media_type};
use ringmain_wire::json::{decode_publish, timestamp_text};
use serde::Serialize;

use super::HttpFront;
use super::problem::Problem;
use super::query::word;
use super::respond::{Context, write_success};

/// How the body holds the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// `{"payload":"<base64>"}`
    Json,
    /// The body is the payload.
    Raw,
}

/// When a publish is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ack {
    /// When the message is durable; for memory topics that is when it is in memory.
    Stored,
    /// When it is in memory, whatever the topic's storage.
    Memory,
    /// At once.
    None,
}

/// A publish whose body may still be on its way.
#[derive(Debug)]
pub(super) struct PublishTask {
    pub(super) topic: TopicName,
    pub(super) ack: Ack,
    form: Form,
    key: Option<Bytes>,
    headers: Vec<(Bytes, Bytes)>,
}

impl PublishTask {
    /// Reads all but the body.
    pub(super) fn read(
        topic: TopicName,
        head: &RequestHead<'_>,
        target: &Target<'_>,
        io: &Io<'_>,
    ) -> Result<Self, Problem> {
        let content_type = head.headers.text("content-type").map_or(Cow::Borrowed(""), media_type);
        let form = match &*content_type {
            "application/json" => Form::Json,
            "application/x-ndjson" | "application/vnd.ringmain.batch" => {
                let message =
                    format!("batches ({content_type}) are not offered by this version: publish one message a request");
                return Err(Problem::new(415, "unsupported_media_type", message));
            }
            _ => Form::Raw,
        };
        if head.headers.get("idempotency-key").is_some() {
            return Err(no_idempotency());
        }
        let words = [("durable", Ack::Stored), ("memory", Ack::Memory), ("none", Ack::None)];
        let ack = word(target, "ack", &words)?.unwrap_or(Ack::Stored);
        // Said before the body is read, so that a client that asks first need not send it.
        if !io.has_topic(&topic) {
            return Err(Refusal::topic_not_found(topic.as_str()).into());
        }
        let (mut key, mut headers) = (None, Vec::new());
        if form == Form::Raw {
            key = head.headers.get("x-key").map(Bytes::copy_from_slice);
            for (name, value) in head.headers.iter() {
                if let Some(name) = strip_prefix(name, "x-header-") {
                    // Header names of HTTP have no case, so they get one spelling, whatever the client's library does.
                    headers.push((Bytes::from(name.to_ascii_lowercase()), Bytes::copy_from_slice(value)));
                }
            }
        }
        Ok(Self { topic, ack, form, key, headers })
    }

    /// Bytes that its body may have.
    pub(super) fn body_bytes_max(&self, front: &HttpFront) -> usize {
        match self.form {
            Form::Json => front.settings.body_bytes_max,
            Form::Raw => front.settings.message_bytes_max.min(front.settings.body_bytes_max),
        }
    }

    /// Makes the request for the broker.
    pub(super) fn finish(self, body: Cow<'_, [u8]>, front: &HttpFront) -> Result<Request, Problem> {
        let bytes_max = front.settings.message_bytes_max;
        let message = match self.form {
            Form::Raw => Message { payload: to_bytes(body), key: self.key, headers: self.headers, id: None },
            Form::Json => message_of_json(&body, bytes_max)?,
        };
        check(&message, bytes_max)?;
        let answer = match self.ack {
            Ack::Stored => AnswerWhen::Durable,
            // Nobody waits for the answer to what is not watched.
            Ack::Memory | Ack::None => AnswerWhen::Appended,
        };
        Ok(Request::Publish { name: self.topic, message, answer })
    }
}

/// The message of a JSON body.
pub(super) fn message_of_json(body: &[u8], bytes_max: usize) -> Result<Message, Problem> {
    let decoded = decode_publish(body)?;
    if decoded.id.is_some() {
        return Err(no_idempotency());
    }
    let text = |(name, value): (String, String)| (Bytes::from(name), Bytes::from(value));
    let message = Message {
        payload: Bytes::from(decoded.payload),
        key: decoded.key.map(Bytes::from),
        headers: decoded.headers.into_iter().map(text).collect(),
        id: None,
    };
    check(&message, bytes_max)?;
    Ok(message)
}

fn to_bytes(body: Cow<'_, [u8]>) -> Bytes {
    match body {
        Cow::Borrowed(slice) => Bytes::copy_from_slice(slice),
        Cow::Owned(vector) => Bytes::from(vector),
    }
}

fn check(message: &Message, bytes_max: usize) -> Result<(), Problem> {
    if message.headers.len() > MESSAGE_HEADERS_MAX {
        let count = message.headers.len();
        return Err(Problem::parameter(format!(
            "the message has {count} headers: at most {MESSAGE_HEADERS_MAX} are allowed"
        )));
    }
    if message.headers.iter().any(|(name, _)| name.is_empty() || name.len() > usize::from(u16::MAX)) {
        return Err(Problem::parameter(format!("a header's name is empty or longer than {} bytes", u16::MAX)));
    }
    if message.bytes() > bytes_max {
        let text = format!(
            "the message has {} bytes with its key and headers: at most {bytes_max} are allowed; split it, or raise RINGMAIN_MAX_MESSAGE_BYTES",
            message.bytes()
        );
        return Err(Refusal::new(RefusalKind::PayloadTooLarge, text).into());
    }
    Ok(())
}

fn no_idempotency() -> Problem {
    Problem::not_offered(
        "idempotent publishing is not offered by this version: leave the id out, and expect that a retry may store twice",
    )
}

fn strip_prefix<'t>(text: &'t str, prefix: &str) -> Option<&'t str> {
    let (start, rest) = text.split_at_checked(prefix.len())?;
    (start.eq_ignore_ascii_case(prefix) && !rest.is_empty()).then_some(rest)
}

impl HttpFront {
    /// Writes 202 with the message's place.
    pub(super) fn write_published(
        &mut self,
        context: &Context,
        out: &mut Vec<u8>,
        topic: &TopicName,
        offset: Offset,
        time_us: i64,
    ) {
        #[derive(Serialize)]
        struct Published<'a> {
            offset: u64,
            topic: &'a str,
            timestamp: &'a str,
        }
        let timestamp = timestamp_text(time_us);
        self.body.clear();
        let published = Published { offset: offset.0, topic: topic.as_str(), timestamp: &timestamp };
        write_success(&mut self.body, &published);
        self.write_body(context, out, 202);
    }

    /// Writes 202 without data: the publish goes on unwatched.
    pub(super) fn write_unwatched(&mut self, context: &Context, out: &mut Vec<u8>) {
        self.body.clear();
        write_success(&mut self.body, &());
        self.write_body(context, out, 202);
    }
}
