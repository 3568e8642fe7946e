//! The bare server: one ring, one thread, and a fixed answer to every request; what any server here has to do at least.

use std::collections::VecDeque;
use std::time::SystemTime;

use bytes::Bytes;
use ringmain_uring::{Event, Ring, RingConfig, listen};
use ringmain_wire::http::{ResponseBody, ResponseHead, Version, date_text, encode_response_head};

use crate::command_line::RespondOptions;
use crate::failure::Failure;
use crate::scan::RequestScanner;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// Answers that lie in one piece, so that a pipelined batch is one buffer.
const ANSWERS_TOGETHER: usize = 64;

/// The most that goes into one send.
const SEND_BYTES_MAX: usize = 1 << 20;

/// A body like the broker's: an offset of six digits, a short name.
const BODY: &[u8] =
    br#"{"status":"success","data":{"offset":123456,"topic":"bench","timestamp":"2026-01-02T03:04:05.123456Z"}}"#;

#[derive(Default)]
struct Connection {
    requests: RequestScanner,
    waiting: VecDeque<Bytes>,
}

/// The same answer many times, to be sliced.
struct Answers {
    bytes: Bytes,
    answer_bytes: usize,
}

impl Answers {
    fn new() -> Answers {
        let mut answer = Vec::new();
        let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let head = ResponseHead {
            status: 202,
            headers: &[("Content-Type", "application/json"), ("Cache-Control", "no-store")],
            body: ResponseBody::Length(BODY.len() as u64),
            close: false,
            version: Version::Http11,
        };
        encode_response_head(&mut answer, &date_text(seconds), &head);
        answer.extend_from_slice(BODY);
        Answers { answer_bytes: answer.len(), bytes: Bytes::from(answer.repeat(ANSWERS_TOGETHER)) }
    }

    /// Queues this many answers.
    fn queue(&self, count: usize, waiting: &mut VecDeque<Bytes>) {
        let mut left = count;
        while left > 0 {
            let together = left.min(ANSWERS_TOGETHER);
            waiting.push_back(self.bytes.slice(..together * self.answer_bytes));
            left -= together;
        }
    }
}

/// Serves until the process is ended.
///
/// # Errors
///
/// When it cannot listen, or when the ring fails.
pub(crate) fn run(options: &RespondOptions) -> Result<bool, Failure> {
    let mut ring = Ring::new(&RingConfig { buffer_count: 1024, ..RingConfig::default() })?;
    let listener = listen::bind(options.listen, BACKLOG)
        .map_err(|source| Failure::io(format!("cannot listen on {}", options.listen), source))?;
    ring.listen(listener)?;
    let answers = Answers::new();
    let mut connections: Vec<Option<Connection>> = Vec::new();
    loop {
        ring.turn(None)?;
        while let Some(event) = ring.next_event() {
            match event {
                Event::Accepted { socket, .. } => {
                    let slot = socket.slot();
                    if connections.len() <= slot {
                        connections.resize_with(slot + 1, || None);
                    }
                    connections[slot] = Some(Connection::default());
                }
                Event::Received { socket, bytes } => {
                    let Some(connection) = connections[socket.slot()].as_mut() else { continue };
                    match connection.requests.feed(bytes) {
                        Ok(count) => answers.queue(count, &mut connection.waiting),
                        Err(_) => ring.close(socket),
                    }
                    if !connection.waiting.is_empty() && !ring.sending(socket) {
                        ring.send(socket, &mut connection.waiting, SEND_BYTES_MAX);
                    }
                }
                Event::Sent { socket } => {
                    if let Some(connection) = connections[socket.slot()].as_mut()
                        && !connection.waiting.is_empty()
                    {
                        ring.send(socket, &mut connection.waiting, SEND_BYTES_MAX);
                    }
                }
                Event::ReceiveEnded { socket, .. } | Event::SendFailed { socket, .. } => ring.close(socket),
                Event::Closed { socket } => connections[socket.slot()] = None,
                Event::AcceptEnded { error, .. } => return Err(Failure::io("cannot accept", error)),
                Event::Woken | Event::File(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! The bare server's answers are whole.
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

    use std::collections::VecDeque;

    use super::Answers;
    use crate::scan::ResponseScanner;

    #[test]
    fn any_number_of_answers_comes_out_whole() {
        let answers = Answers::new();
        for count in [0, 1, 63, 64, 65, 200] {
            let mut waiting = VecDeque::new();
            answers.queue(count, &mut waiting);
            let mut scanner = ResponseScanner::default();
            let mut seen = 0;
            for piece in &waiting {
                scanner
                    .feed(piece, |status| {
                        assert_eq!(status, 202);
                        seen += 1;
                    })
                    .unwrap();
            }
            assert_eq!(seen, count);
        }
    }
}
