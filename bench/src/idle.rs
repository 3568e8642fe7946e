//! Opens connections that do nothing, and tells what each costs the server in memory.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ringmain_uring::{Event, Ring};

use crate::command_line::{IdleOptions, Kind};
use crate::connect::connect;
use crate::failure::Failure;
use crate::process::Process;
use crate::report::{Report, ratio};
use crate::ring::ring_for;
use crate::scan::{EventScanner, ResponseScanner};
use crate::setup::{create_topics, get_request, socket_request, subscribe_request};

/// Connections that are opened before their answers are waited for: fewer than a listener's backlog.
const TOGETHER: usize = 128;

/// How long the server may take for the answers of one such group.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// What reads the first answer of a connection.
enum Reader {
    Subscription(EventScanner),
    Answer(ResponseScanner),
}

struct Connection {
    reader: Reader,
    ready: bool,
}

/// Runs the measurement.
///
/// # Errors
///
/// When the server's process is not named, cannot be looked at, or does not answer.
pub(crate) fn run(options: &IdleOptions) -> Result<Report, Failure> {
    let Some(server_id) = options.place.server_pid else {
        return Err(Failure::said("name the server's process with --server-pid: its memory is what is measured"));
    };
    let process = Process::new(server_id);
    create_topics(options.place.server, std::slice::from_ref(&options.topic), None)?;
    let request = Bytes::from(match options.kind {
        Kind::Sse => subscribe_request(options.place.server, &options.topic),
        Kind::Ws => socket_request(options.place.server, &options.topic),
        Kind::KeepAlive => get_request(options.place.server, "/health", &[]),
    });
    let count = options.connections as usize;
    let mut ring = ring_for(count)?;
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut lost = 0;
    let before = process.resident_bytes()?;
    let mut opened = 0;
    while opened < count {
        let group = TOGETHER.min(count - opened);
        for number in opened..opened + group {
            let socket = ring.adopt(connect(options.place.server, number)?)?;
            if connections.len() <= socket.slot() {
                connections.resize_with(socket.slot() + 1, || None);
            }
            connections[socket.slot()] = Some(Connection::new(options.kind));
            ring.send(socket, &mut VecDeque::from([request.clone()]), usize::MAX);
        }
        opened += group;
        await_answers(&mut ring, &mut connections, group)?;
    }
    let end = Instant::now() + options.settle_s;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        ring.turn(Some(left))?;
        take_events(&mut ring, &mut connections, &mut lost)?;
    }
    let after = process.resident_bytes()?;
    let mut report = Report::new("idle");
    report.count("connections", opened as u64);
    let kind = match options.kind {
        Kind::Sse => "sse",
        Kind::Ws => "ws",
        Kind::KeepAlive => "keep-alive",
    };
    report.word("kind", kind);
    report.count("server_resident_bytes_before", before);
    report.count("server_resident_bytes_after", after);
    report.decimal("server_bytes_per_connection", ratio(after.saturating_sub(before), opened as u64));
    report.fault("connections_lost", lost);
    Ok(report)
}

impl Connection {
    fn new(kind: Kind) -> Connection {
        let reader = match kind {
            Kind::Sse | Kind::Ws => Reader::Subscription(EventScanner::new()),
            Kind::KeepAlive => Reader::Answer(ResponseScanner::default()),
        };
        Connection { reader, ready: false }
    }

    /// Whether these bytes complete the first answer.
    fn receive(&mut self, bytes: &[u8]) -> Result<bool, Failure> {
        let ready = match &mut self.reader {
            Reader::Subscription(events) => {
                events.feed(bytes, |_| {})?;
                events.is_subscribed()
            }
            Reader::Answer(answers) => {
                let mut answered = None;
                answers.feed(bytes, |status| answered = Some(status))?;
                match answered {
                    Some(200..=299) => true,
                    Some(status) => return Err(Failure::said(format!("the server answers {status} to GET /health"))),
                    None => false,
                }
            }
        };
        Ok(ready && !std::mem::replace(&mut self.ready, ready))
    }
}

/// Waits until this many connections have had their first answer.
fn await_answers(ring: &mut Ring, connections: &mut [Option<Connection>], group: usize) -> Result<(), Failure> {
    let deadline = Instant::now() + ANSWER_TIME_MAX;
    let mut missing = group;
    let mut lost = 0;
    while missing > 0 {
        let Some(left) = deadline.checked_duration_since(Instant::now()) else {
            return Err(Failure::said(format!("the server did not answer {missing} of its connections in time")));
        };
        ring.turn(Some(left))?;
        missing = missing.saturating_sub(take_events(ring, connections, &mut lost)?);
        if lost > 0 {
            return Err(Failure::said("the server closed a connection instead of answering"));
        }
    }
    Ok(())
}

/// Gives the number of connections that had their first answer.
fn take_events(ring: &mut Ring, connections: &mut [Option<Connection>], lost: &mut u64) -> Result<usize, Failure> {
    let mut answered = 0;
    while let Some(event) = ring.next_event() {
        match event {
            Event::Received { socket, bytes } => {
                if let Some(connection) = connections[socket.slot()].as_mut() {
                    answered += usize::from(connection.receive(bytes)?);
                }
            }
            Event::ReceiveEnded { socket, .. } | Event::SendFailed { socket, .. } => {
                if connections[socket.slot()].take().is_some() {
                    *lost += 1;
                }
                ring.close(socket);
            }
            Event::Sent { .. }
            | Event::Accepted { .. }
            | Event::AcceptEnded { .. }
            | Event::Closed { .. }
            | Event::Woken
            | Event::File(_) => {}
        }
    }
    Ok(answered)
}
