//! What all responders of the probe share: where requests end, what is answered, how long log writes take.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use memchr::memmem::Finder;

/// Bytes of one log write.
pub const LOG_WRITE_BYTES: usize = 4096;
/// The log is written round and round in this many bytes, so that blocks are used again.
pub const LOG_BYTES: u64 = 16 << 20;
/// Rest between two log writes.
pub const LOG_PAUSE: Duration = Duration::from_micros(200);
/// Bytes that one receive can bring.
pub const RECEIVE_BYTES: usize = 16 << 10;

/// Log writes between two lines of figures.
const LOG_LINE_WRITES: usize = 1000;

/// The answer to each request: of the size of the broker's answer to a publish.
const ANSWER: &[u8] = b"HTTP/1.1 202 Accepted\r\nDate: Fri, 02 Jan 2026 03:04:05 GMT\r\nContent-Type: application/json\r\n\
    Cache-Control: no-store\r\nContent-Length: 103\r\n\r\n\
    {\"status\":\"success\",\"data\":{\"offset\":123456,\"topic\":\"bench\",\"timestamp\":\"2026-01-02T03:04:05.123456Z\"}}";

/// Answers in one piece: more than the shortest requests that fit into one receive.
const ANSWERS_TOGETHER: usize = 1024;

static ANSWERS: LazyLock<Vec<u8>> = LazyLock::new(|| ANSWER.repeat(ANSWERS_TOGETHER));
static HEAD_END: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\r\n\r\n"));

/// `ADDRESS [LOG_FILE]`, the arguments of every responder.
///
/// # Errors
///
/// When the address is missing or is none.
pub fn arguments() -> io::Result<(SocketAddr, Option<PathBuf>)> {
    let mut arguments = std::env::args_os().skip(1);
    let address = arguments.next().and_then(|text| text.to_str()?.parse().ok());
    let address = address.ok_or_else(|| io::Error::other("usage: probe-… ADDRESS [LOG_FILE]"))?;
    Ok((address, arguments.next().map(PathBuf::from)))
}

/// Finds the ends of requests: the head at the first empty line, the body by `Content-Length`.
#[derive(Default)]
pub struct Requests {
    partial: Vec<u8>,
    body_missing: Option<usize>,
}

impl Requests {
    /// Takes received bytes and gives the answers to the requests that they complete.
    pub fn answers(&mut self, bytes: &[u8]) -> &'static [u8] {
        let joined;
        let mut rest = bytes;
        if !self.partial.is_empty() {
            self.partial.extend_from_slice(bytes);
            joined = std::mem::take(&mut self.partial);
            rest = &joined;
        }
        let mut count = 0;
        loop {
            if let Some(missing) = self.body_missing {
                let taken = missing.min(rest.len());
                rest = &rest[taken..];
                if taken < missing {
                    self.body_missing = Some(missing - taken);
                    break;
                }
                self.body_missing = None;
                count += 1;
            }
            let Some(end) = HEAD_END.find(rest) else {
                self.partial.extend_from_slice(rest);
                break;
            };
            self.body_missing = Some(body_bytes(&rest[..end]));
            rest = &rest[end + 4..];
        }
        &ANSWERS[..ANSWER.len() * count.min(ANSWERS_TOGETHER)]
    }
}

fn body_bytes(head: &[u8]) -> usize {
    const NAME: &[u8] = b"content-length:";
    let mut rest = head;
    while !rest.is_empty() {
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        if let Some((name, value)) = rest[..end].split_at_checked(NAME.len())
            && name.eq_ignore_ascii_case(NAME)
        {
            return str::from_utf8(value).ok().and_then(|value| value.trim().parse().ok()).unwrap_or(0);
        }
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    0
}

/// Collects how long log writes took, and prints a line now and then.
#[derive(Default)]
pub struct LogTimes {
    times: Vec<Duration>,
    position: u64,
}

impl LogTimes {
    /// Where the next write goes.
    pub fn position(&mut self) -> u64 {
        let position = self.position;
        self.position = (position + LOG_WRITE_BYTES as u64) % LOG_BYTES;
        position
    }

    /// Notes a write and its sync that began then and have just ended.
    ///
    /// # Errors
    ///
    /// When the line cannot be printed.
    pub fn note(&mut self, began: Instant) -> io::Result<()> {
        self.times.push(began.elapsed());
        if self.times.len() < LOG_LINE_WRITES {
            return Ok(());
        }
        self.times.sort_unstable();
        let at = |share: usize| self.times[(self.times.len() - 1) * share / 100].as_micros();
        let line = format!("log write and sync: p50 {} us, p90 {} us, max {} us\n", at(50), at(90), at(100));
        self.times.clear();
        io::stderr().write_all(line.as_bytes())
    }
}
