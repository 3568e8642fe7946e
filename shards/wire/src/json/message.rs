//! Messages to JSON for subscribers and fetches, straight into the send buffer; pure, on the core of the subscriber.

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;

use super::base64;

/// A message as subscribers see it.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Unique for ever.
    pub id: &'a str,
    /// Position in its partition.
    pub offset: u64,
    /// Name of the topic.
    pub topic: &'a str,
    /// The content, any bytes.
    pub payload: &'a [u8],
    /// When the broker took it, in microseconds since 1970 UTC.
    pub timestamp_us: i64,
    /// The partition, for topics that have more than one.
    pub partition: Option<u32>,
    /// The key, if it has one.
    pub key: Option<&'a [u8]>,
    /// Names and values in the publisher's order; names may repeat.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// How often it has been delivered, for redeliveries.
    pub attempt: Option<u32>,
}

/// Appends a message as one line of JSON:
/// `{"id":…,"offset":…,"topic":…,"payload":"<base64>","timestamp":"2026-01-02T03:04:05.123456Z"}`, followed where they apply by
/// `partition`, `key`, `headers` and `attempt`.
///
/// JSON holds text only, so keys and header values that are not UTF-8 go under other names: a key becomes `key_base64`
/// instead of `key`, and such header values stand in `headers_base64`, an object beside `headers`. In both objects a
/// name with one value has a string, and a name with several has an array of strings in order.
pub fn encode_message(out: &mut Vec<u8>, message: &Message<'_>) {
    out.reserve(message.payload.len().div_ceil(3) * 4 + message.topic.len() + message.id.len() + 128);
    out.extend_from_slice(br#"{"id":"#);
    string(out, message.id);
    out.extend_from_slice(br#","offset":"#);
    number(out, message.offset);
    out.extend_from_slice(br#","topic":"#);
    string(out, message.topic);
    out.extend_from_slice(br#","payload":"#);
    base64_string(out, message.payload);
    out.extend_from_slice(br#","timestamp":""#);
    write_timestamp(out, message.timestamp_us);
    out.push(b'"');
    if let Some(partition) = message.partition {
        out.extend_from_slice(br#","partition":"#);
        number(out, u64::from(partition));
    }
    match message.key.map(|key| (str::from_utf8(key), key)) {
        None => {}
        Some((Ok(text), _)) => {
            out.extend_from_slice(br#","key":"#);
            string(out, text);
        }
        Some((Err(_), bytes)) => {
            out.extend_from_slice(br#","key_base64":"#);
            base64_string(out, bytes);
        }
    }
    if !message.headers.is_empty() {
        headers(out, message.headers);
    }
    if let Some(attempt) = message.attempt {
        out.extend_from_slice(br#","attempt":"#);
        number(out, u64::from(attempt));
    }
    out.push(b'}');
}

/// A time in RFC 3339, UTC, with exactly six digits of fraction, such as `2026-01-02T03:04:05.123456Z`.
#[must_use]
pub fn timestamp_text(timestamp_us: i64) -> String {
    let mut text = String::with_capacity(27);
    print_timestamp(timestamp_us, &mut text);
    text
}

/// The time that a text in RFC 3339 names, in microseconds since 1970 UTC; `None` when it names none.
#[must_use]
pub fn timestamp_us(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_microsecond)
}

/// Appends what [`timestamp_text`] gives.
pub fn write_timestamp(out: &mut Vec<u8>, timestamp_us: i64) {
    print_timestamp(timestamp_us, out);
}

fn print_timestamp(timestamp_us: i64, writer: impl jiff::fmt::Write) {
    const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(6));
    // Times beyond the years -9999 to 9999 cannot be written: the nearest that can stands for them.
    let nearest = if timestamp_us < 0 { Timestamp::MIN } else { Timestamp::MAX };
    let timestamp = Timestamp::from_microsecond(timestamp_us).unwrap_or(nearest);
    let printed = PRINTER.print_timestamp(&timestamp, writer);
    debug_assert!(printed.is_ok(), "writing to memory does not fail");
}

/// Writes `headers` for the values that are text and `headers_base64` for the others, each only if it has members.
fn headers(out: &mut Vec<u8>, headers: &[(&str, &[u8])]) {
    for (member, textual) in [(&br#","headers":"#[..], true), (br#","headers_base64":"#, false)] {
        let belongs = |value: &[u8]| str::from_utf8(value).is_ok() == textual;
        let mut open = false;
        for (at, &(name, value)) in headers.iter().enumerate() {
            let repeats =
                headers[..at].iter().any(|&(earlier, earlier_value)| earlier == name && belongs(earlier_value));
            if repeats || !belongs(value) {
                continue;
            }
            out.extend_from_slice(if open { b"," } else { member });
            if !open {
                out.push(b'{');
            }
            open = true;
            string(out, name);
            out.push(b':');
            let values = headers[at..].iter().filter(|&&(other, value)| other == name && belongs(value));
            header_values(out, values.map(|&(_, value)| value), textual);
        }
        if open {
            out.push(b'}');
        }
    }
}

/// Writes one value as a string, several as an array of strings.
fn header_values<'v>(out: &mut Vec<u8>, values: impl Iterator<Item = &'v [u8]> + Clone, textual: bool) {
    let several = values.clone().nth(1).is_some();
    if several {
        out.push(b'[');
    }
    for (at, value) in values.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        match str::from_utf8(value) {
            Ok(text) if textual => string(out, text),
            _ => base64_string(out, value),
        }
    }
    if several {
        out.push(b']');
    }
}

fn string(out: &mut Vec<u8>, text: &str) {
    let written = serde_json::to_writer(&mut *out, text);
    debug_assert!(written.is_ok(), "writing a string to memory does not fail");
}

fn base64_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    base64::encode(out, bytes);
    out.push(b'"');
}

fn number(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}
