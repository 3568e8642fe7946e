//! What must hold for every input of the decoders in `ringmain-wire`, on any core: run by the fuzz targets beside this
//! file, and over the corpora by a plain test of that crate, which includes this file by its path.

use ringmain_wire::http::{
    BodyDecoder, Framing, HeadLimits, LAST_CHUNK, Method, Refusal, Target, decode_request_head, decode_response_head,
    encode_chunk,
};
use ringmain_wire::json::{Message, MessageOwned, decode_message, decode_publish, encode_message};
use ringmain_wire::sse;
use ringmain_wire::ws;

/// Inputs longer than this are cut: the checks look at many prefixes, and length adds nothing.
const INPUT_BYTES_MAX: usize = 4096;

/// A request head decodes the same however it is split, never reads past its end, and is framed in one way only.
pub fn http_request(data: &[u8]) {
    let data = &data[..data.len().min(INPUT_BYTES_MAX)];
    for limits in [HeadLimits::default(), HeadLimits { head_bytes_max: 200, headers_max: 5 }] {
        let whole = decode_request_head(data, &limits);
        let by_prefix = prefixes(data).find_map(|prefix| decode_request_head(prefix, &limits).transpose());
        assert_eq!(whole.clone().transpose(), by_prefix, "a split head must decode like a whole one");
        if let Ok(Some((head, used))) = whole {
            assert!(used <= data.len());
            let has = |name| head.headers.get(name).is_some();
            assert!(!(has("content-length") && has("transfer-encoding")), "two framings at once");
            match head.framing {
                Framing::None => assert!(!has("content-length") && !has("transfer-encoding")),
                Framing::Length(_) => assert!(has("content-length")),
                Framing::Chunked => assert!(has("transfer-encoding")),
                Framing::UntilClose => panic!("a request cannot end with its connection"),
            }
            target(head.target);
        }
        let whole = decode_response_head(data, &limits, Method::Get).transpose();
        let by_prefix =
            prefixes(data).find_map(|prefix| decode_response_head(prefix, &limits, Method::Get).transpose());
        assert_eq!(whole, by_prefix, "a split head must decode like a whole one");
    }
    target(&String::from_utf8_lossy(data));
}

/// A target that parses has no NUL in it and decodes to the end.
fn target(text: &str) {
    if let Ok(target) = Target::parse(text) {
        assert!(target.segments.iter().all(|segment| !segment.contains('\0')));
        let pairs =
            text.split_once('?').map_or(0, |(_, query)| query.split('&').filter(|pair| !pair.is_empty()).count());
        assert_eq!(target.query().count(), pairs, "no pair may be lost");
    }
}

/// A body decodes the same however it is split, stays within its limit, and what is encoded in chunks comes back.
///
/// The first byte chooses the framing, the second the limit, the third the size of the pieces.
pub fn http_body(data: &[u8]) {
    let [framing, limit, piece, data @ ..] = data else { return };
    let data = &data[..data.len().min(INPUT_BYTES_MAX)];
    let framing = match framing % 4 {
        0 => Framing::Length(u64::from(*framing) * 4),
        1 => Framing::UntilClose,
        _ => Framing::Chunked,
    };
    let body_bytes_max = u64::from(*limit) * 16;
    let pieces = usize::from(*piece) % 64 + 1;
    let whole = decode_body(framing, body_bytes_max, data, data.len().max(1));
    let split = decode_body(framing, body_bytes_max, data, pieces);
    assert_eq!(whole, split, "a split body must decode like a whole one");
    if let Ok((body, used, _)) = whole {
        assert!(used <= data.len());
        assert!(body.len() as u64 <= body_bytes_max);
    }

    let mut encoded = Vec::new();
    data.chunks(pieces).for_each(|chunk| encode_chunk(&mut encoded, chunk));
    encoded.extend_from_slice(LAST_CHUNK);
    let length = encoded.len();
    encoded.extend_from_slice(b"GET / HTTP/1.1\r\n");
    let decoded = decode_body(Framing::Chunked, data.len() as u64, &encoded, pieces);
    assert_eq!(decoded, Ok((data.to_vec(), length, true)), "chunks must come back");
}

/// The content, the bytes used, and whether the body was complete.
fn decode_body(
    framing: Framing,
    body_bytes_max: u64,
    data: &[u8],
    pieces: usize,
) -> Result<(Vec<u8>, usize, bool), Refusal> {
    let mut decoder = BodyDecoder::new(framing, body_bytes_max)?;
    let (mut body, mut used) = (Vec::new(), 0);
    for piece in data.chunks(pieces) {
        let (taken, complete) = decoder.decode(piece, &mut body)?;
        assert_eq!(complete, decoder.complete());
        used += taken;
        if complete {
            break;
        }
        assert_eq!(taken, piece.len(), "an incomplete body uses all there is");
    }
    Ok((body, used, decoder.complete()))
}

/// A publish that decodes agrees with a general JSON reader, and a message survives being written again.
pub fn publish_json(data: &[u8]) {
    if let (Ok(publish), Ok(value)) = (decode_publish(data), serde_json::from_slice::<serde_json::Value>(data)) {
        assert!(value.is_object());
        assert_eq!(publish.key.as_deref(), value.get("key").and_then(|key| key.as_str()));
        assert_eq!(publish.id.as_deref(), value.get("id").and_then(|id| id.as_str()));
        let base64 = value.get("payload").map(|payload| payload.as_str().unwrap_or_default().len());
        assert!(base64.is_some_and(|length| publish.payload.len() <= length), "base64 does not shrink");
    }
    if let Ok(message) = decode_message(data) {
        let once = encode(&message);
        let again = decode_message(&once);
        assert_eq!(again.as_ref().map(encode), Ok(once), "what was written must read and write the same");
    }
}

fn encode(message: &MessageOwned) -> Vec<u8> {
    let headers: Vec<(&str, &[u8])> =
        message.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
    let mut json = Vec::new();
    let borrowed = Message {
        id: &message.id,
        offset: message.offset,
        topic: &message.topic,
        payload: &message.payload,
        timestamp_us: message.timestamp_us,
        partition: message.partition,
        key: message.key.as_deref(),
        headers: &headers,
        attempt: message.attempt,
    };
    encode_message(&mut json, &borrowed);
    assert!(!json.contains(&b'\n') && !json.contains(&b'\r'), "a message is one line");
    json
}

/// An event stream decodes the same however it is split, and text that is encoded comes back with its lines.
pub fn sse_decode(data: &[u8]) {
    let data = &data[..data.len().min(INPUT_BYTES_MAX)];
    for event_bytes_max in [usize::MAX, 24] {
        let whole = decode_events(event_bytes_max, data, data.len().max(1));
        for pieces in [1, 2, 3, 7] {
            let split = decode_events(event_bytes_max, data, pieces);
            assert_eq!(whole, split, "a split stream must decode like a whole one");
        }
    }

    let text = String::from_utf8_lossy(data);
    let mut encoded = Vec::new();
    sse::comment(&mut encoded, &text);
    sse::event(&mut encoded, Some(&text), Some(&text), &text);
    let (events, ..) = decode_events(usize::MAX, &encoded, 5);
    let one_line: String = text.chars().filter(|character| !matches!(character, '\r' | '\n' | '\0')).collect();
    assert_eq!(events.len(), 1, "one event was sent");
    assert_eq!(events[0].data, text.replace("\r\n", "\n").replace('\r', "\n"));
    assert_eq!(events[0].event, if one_line.is_empty() { "message" } else { &one_line });
    assert_eq!(events[0].id.as_deref().unwrap_or_default(), one_line);
    for line_end in [&b"\r\n"[..], b"\r"] {
        let other: Vec<u8> = encoded.split(|&byte| byte == b'\n').collect::<Vec<_>>().join(line_end);
        assert_eq!(decode_events(usize::MAX, &other, 3).0, events, "all line ends are alike");
    }
}

/// The events, the last event id, and whether decoding failed.
fn decode_events(event_bytes_max: usize, data: &[u8], pieces: usize) -> (Vec<sse::Event>, String, bool) {
    let mut decoder = sse::Decoder::new(event_bytes_max);
    let mut events = Vec::new();
    let failed = data.chunks(pieces).any(|piece| decoder.feed(piece, &mut events).is_err());
    (events, decoder.last_event_id().to_owned(), failed)
}

/// A stream of frames decodes the same however it is split, holds no more than it may, and what it told survives being
/// written and read again by the other side.
///
/// The first byte chooses the side and the limit, the next four are a mask.
pub fn ws_frames(data: &[u8]) {
    let Some((&[choice, key @ ..], data)) = data.split_first_chunk::<5>() else { return };
    let data = &data[..data.len().min(INPUT_BYTES_MAX)];
    let role = if choice % 2 == 0 { ws::Role::Server } else { ws::Role::Client };
    let mask = (role == ws::Role::Server).then_some(key);
    let message_bytes_max = [16, 300, INPUT_BYTES_MAX][usize::from(choice / 2) % 3];
    let whole = decode_frames(role, message_bytes_max, data, data.len().max(1));
    for pieces in [1, 2, 3, 7] {
        let split = decode_frames(role, message_bytes_max, data, pieces);
        assert_eq!(whole, split, "a split stream must decode like a whole one");
    }
    let (events, fault, closed) = whole;
    assert_eq!(closed, fault.is_some() || matches!(events.last(), Some(ws::Event::Close { .. })));

    let mut encoded = Vec::new();
    for event in &events {
        write_event(&mut encoded, event, mask, message_bytes_max);
    }
    let again = decode_frames(role, message_bytes_max, &encoded, 5);
    assert_eq!(again, (events, None, closed && fault.is_none()), "what was told must come back");
    if let Some(fault) = fault {
        assert!(matches!(fault.code, 1002 | 1007 | 1009));
        let mut encoded = Vec::new();
        ws::close_frame(&mut encoded, fault.code, &fault.message);
        let expected = ws::Event::Close { code: Some(fault.code), reason: fault.message };
        assert_eq!(decode_frames(ws::Role::Client, 0, &encoded, 5), (vec![expected], None, true));
    }

    let mut encoded = Vec::new();
    ws::frame(&mut encoded, ws::Opcode::Binary, data, mask);
    let expected = ws::Event::Binary(data.to_vec());
    assert_eq!(decode_frames(role, data.len(), &encoded, 3), (vec![expected], None, false), "bytes must come back");
}

/// The events, the fault, and whether the connection has ended.
fn decode_frames(
    role: ws::Role,
    message_bytes_max: usize,
    data: &[u8],
    pieces: usize,
) -> (Vec<ws::Event>, Option<ws::Fault>, bool) {
    let mut decoder = ws::Decoder::new(role, message_bytes_max);
    let (mut events, mut fault) = (Vec::new(), None);
    for (index, piece) in data.chunks(pieces).enumerate() {
        if let Err(found) = decoder.feed(piece, &mut events) {
            assert_eq!(fault.replace(found), None, "a fault is told once");
        }
        let came = (index + 1) * pieces;
        assert!(decoder.held_bytes() <= (2 * came).min(message_bytes_max + ws::CONTROL_BYTES_MAX), "too much is held");
        assert!(!decoder.is_closed() || decoder.held_bytes() == 0, "what has ended holds nothing");
    }
    (events, fault, decoder.is_closed())
}

/// Writes an event as one frame.
fn write_event(out: &mut Vec<u8>, event: &ws::Event, mask: Option<[u8; 4]>, message_bytes_max: usize) {
    let (opcode, payload) = match event {
        ws::Event::Text(text) => (ws::Opcode::Text, text.as_bytes()),
        ws::Event::Binary(bytes) => (ws::Opcode::Binary, &bytes[..]),
        ws::Event::Ping(bytes) => (ws::Opcode::Ping, &bytes[..]),
        ws::Event::Pong(bytes) => (ws::Opcode::Pong, &bytes[..]),
        ws::Event::Close { code: None, .. } => (ws::Opcode::Close, &[][..]),
        ws::Event::Close { code: Some(code), reason } => {
            let payload = [&code.to_be_bytes(), reason.as_bytes()].concat();
            return ws::frame(out, ws::Opcode::Close, &payload, mask);
        }
    };
    let is_data = matches!(opcode, ws::Opcode::Text | ws::Opcode::Binary);
    assert!(payload.len() <= if is_data { message_bytes_max } else { ws::CONTROL_BYTES_MAX }, "too much is told");
    ws::frame(out, opcode, payload, mask);
}

/// All prefixes of short inputs, some of long ones, and always the whole.
fn prefixes(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let step = data.len() / 256 + 1;
    (0..data.len()).step_by(step).chain([data.len()]).map(|end| &data[..end])
}
