//! Publishing: from a request's head and body to what is asked of the broker. On the core of the connection.

use std::borrow::Cow;

use bytes::Bytes;
use ringmain_driver::{AnswerWhen, Io};
use ringmain_model::limit::{BATCH_BYTES_MAX, MESSAGE_HEADERS_MAX};
use ringmain_model::{Message, Refusal, RefusalKind, TopicName};
use ringmain_wire::http::{Framing, RequestHead, Target, media_type};
use ringmain_wire::json::{PublishBody, decode_publish};
use smallvec::smallvec;

use super::HttpFront;
use super::batch::Batch;
use super::exchange::Company;
use super::identity::IdName;
use super::partition::named;
use super::placing::{Placing, Questions};
use super::problem::Problem;
use super::query::{number, word};
use crate::front::FrontSettings;

/// How the body holds the message, or messages.
#[derive(Debug)]
enum Form {
    /// `{"payload":"<base64>"}`
    Json,
    /// The body is the payload.
    Raw,
    /// Many of them.
    Batch(Box<Batch>),
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
    /// The body is so large, or may be, that its messages go alone.
    is_large: bool,
    pub(super) placing: Placing,
    /// From the head.
    id: Option<IdName>,
    key: Option<Bytes>,
    headers: Vec<(Bytes, Bytes)>,
}

impl PublishTask {
    /// Reads all but the body.
    pub(super) fn read(
        topic: TopicName,
        head: &RequestHead<'_>,
        target: &Target<'_>,
        settings: &FrontSettings,
        io: &Io<'_>,
    ) -> Result<Self, Problem> {
        let content_type = head.headers.text("content-type").map_or(Cow::Borrowed(""), media_type);
        let form = match &*content_type {
            "application/json" => Form::Json,
            "application/x-ndjson" => Form::Batch(Box::new(Batch::of_lines(settings))),
            "application/vnd.ringmain.batch" => Form::Batch(Box::new(Batch::of_payloads(head.framing, settings))),
            _ => Form::Raw,
        };
        let is_batch = matches!(form, Form::Batch(_));
        let id = id_of_head(head, is_batch)?;
        let words = [("durable", Ack::Stored), ("memory", Ack::Memory), ("none", Ack::None)];
        let ack = word(target, "ack", &words)?.unwrap_or(Ack::Stored);
        // Said before the body is read, so that a client that asks first need not send it.
        let place = io.place_of(&topic).ok_or_else(|| Refusal::topic_not_found(topic.as_str()))?;
        let (mut key, mut headers) = (None, Vec::new());
        if matches!(form, Form::Raw) {
            key = only_one(head, "x-key", "X-Key")?.map(Bytes::copy_from_slice);
            for (name, value) in head.headers.iter() {
                if let Some(name) = strip_prefix(name, "x-header-") {
                    // Header names of HTTP have no case, so they get one spelling, whatever the client's library does.
                    headers.push((Bytes::from(name.to_ascii_lowercase()), Bytes::copy_from_slice(value)));
                }
            }
        }
        let is_small = matches!(head.framing, Framing::Length(length) if length <= BATCH_BYTES_MAX as u64);
        let may_divide = word(target, "atomic", &[("true", false), ("false", true)])?.unwrap_or(false);
        let placing = Placing {
            partitions: place.partitions,
            named: named(number(target, "partition")?, Some(place))?,
            // One message is stored whole in any case.
            is_divided: is_batch && may_divide,
        };
        Ok(Self { topic, ack, form, is_large: is_batch && !is_small, placing, id, key, headers })
    }

    /// Which others of the connection it may run beside. Those whose bodies may be many times larger than a message go one at a
    /// time, so that one connection does not have a pipeline of them on its way.
    pub(super) fn company(&self) -> Company {
        if self.is_large { Company::None } else { Company::Publishes }
    }

    /// Bytes that its body may have.
    pub(super) fn body_bytes_max(&self, front: &HttpFront) -> usize {
        match self.form {
            Form::Json | Form::Batch(_) => front.settings.body_bytes_max,
            Form::Raw => front.settings.message_bytes_max.min(front.settings.body_bytes_max),
        }
    }

    /// Reads what has come of the body and not been let go, while more is on its way; says how many bytes of it need not be kept.
    pub(super) fn take(&mut self, body: &[u8]) -> Result<usize, Problem> {
        match &mut self.form {
            Form::Batch(batch) => batch.take(body),
            Form::Json | Form::Raw => Ok(0),
        }
    }

    /// Bytes held of what need not be kept.
    pub(super) fn held_bytes(&self) -> usize {
        match &self.form {
            Form::Batch(batch) => batch.held_bytes(),
            Form::Json | Form::Raw => 0,
        }
    }

    /// Makes the requests for the broker, once the body is there whole: `body` is what had to be kept of it.
    pub(super) fn finish(self, body: Cow<'_, [u8]>, front: &mut HttpFront) -> Result<Questions, Problem> {
        let bytes_max = front.settings.message_bytes_max;
        let answer = match self.ack {
            Ack::Stored => AnswerWhen::Durable,
            // Nobody waits for the answer to what is not watched.
            Ack::Memory | Ack::None => AnswerWhen::Appended,
        };
        let name = self.topic;
        let message = match self.form {
            Form::Batch(batch) => {
                return self.placing.place_all(&name, batch.finish(body)?, answer, &mut front.turn);
            }
            Form::Json => message_of_publish(decode_publish(&body)?, self.id, bytes_max)?,
            Form::Raw => {
                let mut message = Message { payload: to_bytes(body), key: self.key, headers: self.headers, id: None };
                check(&message, bytes_max)?;
                if let Some(id) = self.id {
                    id.give(&mut message);
                }
                message
            }
        };
        Ok(smallvec![self.placing.place(name, message, answer, &mut front.turn)])
    }
}

/// The id in the request's head, which a batch does not take: its messages have ids of their own.
fn id_of_head(head: &RequestHead<'_>, is_batch: bool) -> Result<Option<IdName>, Problem> {
    let Some(id) = only_one(head, "idempotency-key", "Idempotency-Key")? else { return Ok(None) };
    if is_batch {
        return Err(Problem::parameter(
            "Idempotency-Key names one message, and this is a batch: give each line of application/x-ndjson an `id` of its own",
        ));
    }
    IdName::new(id).map(Some)
}

/// The value of a header that says one thing; `shown` is how its name is written.
fn only_one<'h>(head: &RequestHead<'h>, name: &str, shown: &str) -> Result<Option<&'h [u8]>, Problem> {
    let mut values = head.headers.iter().filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    let Some(value) = values.next() else { return Ok(None) };
    if values.any(|other| other != value) {
        return Err(Problem::parameter(format!("the request has several {shown} headers: send one")));
    }
    Ok(Some(value))
}

/// The message of a decoded body; its id may come from elsewhere.
pub(super) fn message_of_publish(
    publish: PublishBody,
    id: Option<IdName>,
    bytes_max: usize,
) -> Result<Message, Problem> {
    let own_id = publish.id.map(|id| IdName::new(id.as_bytes())).transpose()?;
    if own_id.is_some() && id.is_some() && own_id != id {
        return Err(Problem::parameter(
            "the body's id is not that of Idempotency-Key: send one of them, or both alike",
        ));
    }
    let text = |(name, value): (String, String)| (Bytes::from(name), Bytes::from(value));
    let mut message = Message {
        payload: Bytes::from(publish.payload),
        key: publish.key.map(Bytes::from),
        headers: publish.headers.into_iter().map(text).collect(),
        id: None,
    };
    check(&message, bytes_max)?;
    if let Some(id) = own_id.or(id) {
        id.give(&mut message);
    }
    Ok(message)
}

pub(super) fn to_bytes(body: Cow<'_, [u8]>) -> Bytes {
    match body {
        Cow::Borrowed(slice) => Bytes::copy_from_slice(slice),
        Cow::Owned(vector) => Bytes::from(vector),
    }
}

/// Whether a message is within the limits.
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
    check_bytes(message.bytes(), bytes_max)
}

/// Whether so many bytes of a message are within the limit.
pub(super) fn check_bytes(bytes: usize, bytes_max: usize) -> Result<(), Problem> {
    if bytes > bytes_max {
        let text = format!(
            "the message has {bytes} bytes with its key and headers: at most {bytes_max} are allowed; split it, or raise RINGMAIN_MAX_MESSAGE_BYTES"
        );
        return Err(Refusal::new(RefusalKind::PayloadTooLarge, text).into());
    }
    Ok(())
}

fn strip_prefix<'t>(text: &'t str, prefix: &str) -> Option<&'t str> {
    let (start, rest) = text.split_at_checked(prefix.len())?;
    (start.eq_ignore_ascii_case(prefix) && !rest.is_empty()).then_some(rest)
}
