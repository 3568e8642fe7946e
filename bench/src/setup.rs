//! What a run needs before it starts: its topics and the bytes of its requests.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use ringmain_wire::http::{encode_request_head, percent_encode_segment};

use crate::command_line::{ReplayFormat, StorageKind};
use crate::connect::connect;
use crate::failure::Failure;
use crate::scan::ResponseScanner;

/// How long the server may take for each answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// A topic exists already.
const CONFLICT: u16 = 409;

/// What asks for a WebSocket. The key is fixed: it proves nothing that is measured here.
const SOCKET_HEADERS: [(&str, &str); 4] = [
    ("Upgrade", "websocket"),
    ("Connection", "Upgrade"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "cmluZ21haW4gYmVuY2ggMQ=="),
];

/// The names of `count` topics: the name itself, or the name with a number.
pub(crate) fn topic_names(name: &str, count: usize) -> Vec<String> {
    if count <= 1 { vec![name.to_owned()] } else { (0..count).map(|number| format!("{name}-{number}")).collect() }
}

/// A request that creates a topic.
pub(crate) fn create_request(server: SocketAddr, name: &str, storage: Option<StorageKind>) -> Vec<u8> {
    let mut topic = serde_json::json!({ "name": name });
    if let Some(storage) = storage {
        topic["storage"] = storage.word().into();
    }
    let body = topic.to_string();
    let mut request = Vec::new();
    let headers = [("Content-Type", "application/json")];
    encode_request_head(&mut request, "POST", "/topics", &server.to_string(), &headers, Some(length(&body)));
    request.extend_from_slice(body.as_bytes());
    request
}

/// Creates topics, in the server's usual storage unless one is given; those that exist are left as they are.
///
/// # Errors
///
/// When the server cannot be reached or refuses one.
pub(crate) fn create_topics(server: SocketAddr, names: &[String], storage: Option<StorageKind>) -> Result<(), Failure> {
    let mut stream = connect(server, 0)?;
    stream
        .set_read_timeout(Some(ANSWER_TIME_MAX))
        .map_err(|source| Failure::io("cannot limit the time of an answer", source))?;
    let mut scanner = ResponseScanner::default();
    for name in names {
        let request = create_request(server, name, storage);
        stream.write_all(&request).map_err(|source| Failure::io("cannot ask for a topic", source))?;
        let mut status = None;
        let mut buffer = [0; 4096];
        while status.is_none() {
            let count =
                stream.read(&mut buffer).map_err(|source| Failure::io("no answer to the making of a topic", source))?;
            if count == 0 {
                return Err(Failure::said("the server closed the connection on which a topic was asked for"));
            }
            scanner.feed(&buffer[..count], |answered| status = Some(answered))?;
        }
        match status {
            Some(200..=299 | CONFLICT) => {}
            other => {
                return Err(Failure::said(format!(
                    "the server answered {} to the making of topic {name:?}",
                    other.unwrap_or(0)
                )));
            }
        }
    }
    Ok(())
}

/// The head of a request that publishes a raw body.
pub(crate) fn publish_head(server: SocketAddr, topic: &str, payload_bytes: usize) -> Vec<u8> {
    let mut head = Vec::new();
    encode_request_head(
        &mut head,
        "POST",
        &format!("/topics/{}/publish", percent_encode_segment(topic)),
        &server.to_string(),
        &[("Content-Type", "application/octet-stream")],
        Some(u64::try_from(payload_bytes).unwrap_or(u64::MAX)),
    );
    head
}

/// A whole request that publishes this many bytes of letters.
pub(crate) fn publish_request(server: SocketAddr, topic: &str, payload_bytes: usize) -> Bytes {
    let mut request = publish_head(server, topic, payload_bytes);
    request.extend((0..payload_bytes).map(|at| b"abcdefghijklmnopqrstuvwxyz"[at % 26]));
    Bytes::from(request)
}

/// A request that follows a topic from its end.
pub(crate) fn subscribe_request(server: SocketAddr, topic: &str) -> Vec<u8> {
    let target = format!("/topics/{}/subscribe/sse", percent_encode_segment(topic));
    get_request(server, &target, &[("Accept", "text/event-stream")])
}

/// A request that follows a topic from its end over WebSocket.
pub(crate) fn socket_request(server: SocketAddr, topic: &str) -> Vec<u8> {
    let target = format!("/topics/{}/subscribe/ws", percent_encode_segment(topic));
    get_request(server, &target, &SOCKET_HEADERS)
}

/// A request that follows a topic from an offset on.
pub(crate) fn replay_request(server: SocketAddr, topic: &str, from: u64, format: ReplayFormat) -> Vec<u8> {
    let topic = percent_encode_segment(topic);
    match format {
        ReplayFormat::Sse | ReplayFormat::SseRaw => {
            let format = if format == ReplayFormat::SseRaw { "&format=raw" } else { "" };
            let target = format!("/topics/{topic}/subscribe/sse?from_offset={from}{format}");
            get_request(server, &target, &[("Accept", "text/event-stream")])
        }
        ReplayFormat::Ws => {
            get_request(server, &format!("/topics/{topic}/subscribe/ws?from_offset={from}"), &SOCKET_HEADERS)
        }
    }
}

/// A request without a body.
pub(crate) fn get_request(server: SocketAddr, target: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut request = Vec::new();
    encode_request_head(&mut request, "GET", target, &server.to_string(), headers, None);
    request
}

fn length(body: &str) -> u64 {
    u64::try_from(body.len()).unwrap_or(u64::MAX)
}
