//! Server-Sent Events as bytes and back; pure, on the core that owns the connection.
//!
//! The format is that of the WHATWG HTML standard, section 9.2. Three of its rules shape the encoder: CR, LF and CRLF all
//! end a line, so text is split at each of them; exactly one space after the colon is dropped by readers, so data lines
//! have one; and an event counts only once its empty line has come, so each call here writes a whole one.
//!
//! Control events of the broker deviate in one point: they write `data:{…}` without the space. Readers of the standard
//! take both forms alike, while simple clients that look for `data: ` pass over them.

mod decode;

pub use decode::{Decoder, Error, Event};

/// Appends one event. `data` becomes one `data: ` line for each of its lines; a CR or CRLF in it reaches the client as LF.
/// CR, LF and NUL in `id` and `event` are left out, because they would end the field or void it.
pub fn event(out: &mut Vec<u8>, id: Option<&str>, event: Option<&str>, data: &str) {
    if let Some(name) = event {
        field(out, b"event: ", name);
    }
    if let Some(id) = id {
        field(out, b"id: ", id);
    }
    for line in lines(data) {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
    }
    out.push(b'\n');
}

/// Appends a message: its id and one line of JSON. The JSON must be free of line breaks, as all JSON of [`crate::json`] is.
pub fn message(out: &mut Vec<u8>, id: &str, json: &[u8]) {
    debug_assert!(memchr::memchr2(b'\r', b'\n', json).is_none(), "a message is one line");
    out.reserve(json.len() + id.len() + 16);
    field(out, b"id: ", id);
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(json);
    out.extend_from_slice(b"\n\n");
}

/// Appends a control event: `event:`, perhaps `id:`, and one line of JSON without the space before it. The JSON must be
/// free of line breaks.
pub fn control(out: &mut Vec<u8>, event: &str, id: Option<&str>, json: &[u8]) {
    debug_assert!(memchr::memchr2(b'\r', b'\n', json).is_none(), "a control event is one line");
    debug_assert!(json.first() != Some(&b' '), "readers would drop a leading space");
    field(out, b"event: ", event);
    if let Some(id) = id {
        field(out, b"id: ", id);
    }
    out.extend_from_slice(b"data:");
    out.extend_from_slice(json);
    out.extend_from_slice(b"\n\n");
}

/// Appends `id: …` and an empty line: it moves the client's resume position without firing an event.
pub fn checkpoint(out: &mut Vec<u8>, id: &str) {
    field(out, b"id: ", id);
    out.push(b'\n');
}

/// Appends a comment, which clients ignore and proxies take for life. An empty text gives `:` and an empty line.
pub fn comment(out: &mut Vec<u8>, text: &str) {
    for line in lines(text) {
        out.push(b':');
        if !line.is_empty() {
            out.push(b' ');
            out.extend_from_slice(line.as_bytes());
        }
        out.push(b'\n');
    }
    out.push(b'\n');
}

/// Appends the time after which a client that lost its connection comes back.
pub fn retry(out: &mut Vec<u8>, milliseconds: u32) {
    out.extend_from_slice(b"retry: ");
    out.extend_from_slice(itoa::Buffer::new().format(milliseconds).as_bytes());
    out.extend_from_slice(b"\n\n");
}

/// Appends a field that has to stay on one line.
fn field(out: &mut Vec<u8>, name_and_colon: &[u8], value: &str) {
    out.extend_from_slice(name_and_colon);
    match memchr::memchr3(b'\r', b'\n', 0, value.as_bytes()) {
        None => out.extend_from_slice(value.as_bytes()),
        Some(_) => out.extend(value.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n' | 0))),
    }
    out.push(b'\n');
}

/// Lines of a text as the standard sees them: split at CRLF, CR or LF, so that a text has one more line than breaks.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(at) = memchr::memchr2(b'\r', b'\n', text.as_bytes()) else { return rest.take() };
        let (line, after) = text.split_at(at);
        rest = after.strip_prefix("\r\n").or_else(|| after.get(1..));
        Some(line)
    })
}
