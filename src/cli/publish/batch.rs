//! `ringmain publish --batch`: each line of standard input is a message, many go with one request; on the main thread.

use std::io::{self, BufRead as _, BufReader, IsTerminal as _, Read as _, StdinLock, Write as _};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringmain_model::limit::MESSAGE_BYTES_MAX;
use ringmain_wire::batch::encode_batch_payload;
use serde_json::{Map, Value, json};

use crate::cli::Failure;
use crate::cli::client::{Answer, Client, refusal, topic_path};
use crate::cli::output::print;

/// Messages of one request unless the command says otherwise.
pub(super) const BATCH_MESSAGES_DEFAULT: &str = "1000";
/// Bytes of the messages of one request; a message that is larger goes alone.
const BATCH_BYTES: usize = 1 << 20;

/// How long a batch waits before it is sent again to a broker that is busy: half a minute in all.
const BUSY_WAITS: [Duration; 150] = [Duration::from_millis(200); 150];

/// What all messages of the command share.
#[derive(Debug)]
pub(super) struct Shared<'f> {
    pub(super) topic: &'f str,
    pub(super) server: &'f str,
    pub(super) key: Option<&'f str>,
    /// Names as they are published.
    pub(super) headers: Vec<(String, &'f str)>,
    pub(super) messages_max: u64,
    pub(super) json: bool,
}

/// The lines that go with the next request.
#[derive(Debug)]
struct Batch {
    body: Vec<u8>,
    /// Bytes of the lines.
    bytes: usize,
    count: u64,
}

/// What was stored so far.
#[derive(Debug, Default)]
struct Stored {
    messages: u64,
    batches: u64,
    first: Option<u64>,
    last: Option<u64>,
}

/// Publishes all lines, and says how many there were.
pub(super) fn run(shared: &Shared<'_>) -> Result<(), Failure> {
    let mut client = Client::connect(shared.server)?;
    let mut lines = Lines { input: BufReader::new(io::stdin().lock()), count: 0, ahead: None };
    let mut stored = Stored::default();
    let mut progress = Progress { shown: false };
    loop {
        let batch = lines.batch(shared).inspect_err(|_| progress.end());
        let batch = batch.map_err(|failure| told(failure, &stored, None))?;
        if batch.count == 0 {
            break;
        }
        if let Err(failure) = publish(&mut client, shared, &batch, &mut stored) {
            progress.end();
            return Err(failure);
        }
        progress.show(stored.messages);
    }
    progress.end();
    if shared.json {
        let Stored { messages, batches, first, last } = stored;
        let told = json!({ "count": messages, "batches": batches, "first_offset": first, "last_offset": last });
        return print(format!("{told}\n").as_bytes());
    }
    let offsets = match (stored.first, stored.last) {
        (Some(first), Some(last)) => format!(", offsets {first} to {last}"),
        _ => String::new(),
    };
    print(format!("published {} messages in {} batches{offsets}\n", stored.messages, stored.batches).as_bytes())
}

/// Publishes one batch; one that finds the broker busy is sent again, for some time.
fn publish(client: &mut Client, shared: &Shared<'_>, batch: &Batch, stored: &mut Stored) -> Result<(), Failure> {
    let content_type = if shared.is_plain() { "application/vnd.ringmain.batch" } else { "application/x-ndjson" };
    let target = format!("{}/publish", topic_path(shared.topic));
    let unknown = Some(batch.count);
    let mut patience = BUSY_WAITS.into_iter();
    let answer = loop {
        let sent = client.send("POST", &target, &[("Content-Type", content_type)], &batch.body);
        let answer = sent.and_then(|()| answer(client)).map_err(|failure| told(failure, stored, unknown))?;
        match patience.next() {
            // Nothing was stored, and a broker whose disk catches up is no reason to leave off in the middle.
            Some(wait) if is_busy(&answer) => std::thread::sleep(wait),
            _ => break answer,
        }
    };
    if answer.status >= 400 {
        // 503 and 507 promise that nothing was stored, as all refusals below 500 do.
        let is_unknown = answer.status >= 500 && !matches!(answer.status, 503 | 507);
        let failure = refusal(answer.status, &answer.body);
        return Err(told(failure, stored, is_unknown.then_some(batch.count)));
    }
    let data = answer.data().map_err(|failure| told(failure, stored, unknown))?;
    let number = |name: &str| data.get(name).and_then(Value::as_u64);
    stored.messages += batch.count;
    stored.batches += 1;
    stored.first = stored.first.or_else(|| number("first_offset"));
    stored.last = number("last_offset").or(stored.last);
    Ok(())
}

fn is_busy(answer: &Answer) -> bool {
    let envelope: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    answer.status == 503 && envelope.get("code").is_some_and(|code| code == "busy")
}

fn answer(client: &mut Client) -> Result<Answer, Failure> {
    let (status, mut decoder) = client.read_head()?;
    let mut body = Vec::new();
    while let Some(part) = client.read_body(&mut decoder)? {
        body.extend_from_slice(&part);
    }
    Ok(Answer { status, body })
}

/// A failure with what it means for the lines; `unknown` of them may have been stored or not.
fn told(failure: Failure, stored: &Stored, unknown: Option<u64>) -> Failure {
    let next = stored.messages + 1;
    let consequence = match unknown {
        None => format!("nothing was stored from line {next} on, and every line before it was"),
        Some(count) => {
            let last = stored.messages + count;
            format!(
                "whether lines {next} to {last} were stored is not known; every line before them was, and none after"
            )
        }
    };
    match failure {
        Failure::Failed(message) => Failure::Failed(format!("{message}; {consequence}")),
        Failure::Lost(message) => Failure::Lost(format!("{message}; {consequence}")),
        other => other,
    }
}

impl Shared<'_> {
    /// Whether messages are payloads alone.
    fn is_plain(&self) -> bool {
        self.key.is_none() && self.headers.is_empty()
    }

    fn encode(&self, line: &[u8], body: &mut Vec<u8>) {
        if self.is_plain() {
            return encode_batch_payload(body, line);
        }
        let mut message = Map::new();
        message.insert("payload".to_owned(), json!(STANDARD.encode(line)));
        if let Some(key) = self.key {
            message.insert("key".to_owned(), json!(key));
        }
        let mut headers: Map<String, Value> = Map::new();
        for (name, value) in &self.headers {
            let values = headers.entry(name.clone()).or_insert_with(|| json!([]));
            if let Value::Array(values) = values {
                values.push(json!(value));
            }
        }
        message.insert("headers".to_owned(), Value::Object(headers));
        body.extend_from_slice(Value::Object(message).to_string().as_bytes());
        body.push(b'\n');
    }
}

/// Standard input, line by line.
struct Lines<'i> {
    input: BufReader<StdinLock<'i>>,
    /// Lines read so far.
    count: u64,
    /// A line that did not fit the last batch.
    ahead: Option<Vec<u8>>,
}

impl Lines<'_> {
    /// The next batch; an empty one at the end.
    fn batch(&mut self, shared: &Shared<'_>) -> Result<Batch, Failure> {
        let mut batch = Batch { body: Vec::new(), bytes: 0, count: 0 };
        while batch.count < shared.messages_max {
            let Some(line) = self.next()? else { break };
            if batch.count > 0 && batch.bytes + line.len() > BATCH_BYTES {
                self.ahead = Some(line);
                break;
            }
            shared.encode(&line, &mut batch.body);
            batch.bytes += line.len();
            batch.count += 1;
        }
        Ok(batch)
    }

    /// The next line without its line feed.
    fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        if let Some(line) = self.ahead.take() {
            return Ok(Some(line));
        }
        let mut line = Vec::new();
        // A line without an end must not fill the memory.
        let mut limited = self.input.by_ref().take(MESSAGE_BYTES_MAX as u64 + 2);
        let read = limited.read_until(b'\n', &mut line);
        read.map_err(|error| Failure::Failed(format!("cannot read standard input: {error}")))?;
        if line.is_empty() {
            return Ok(None);
        }
        self.count += 1;
        if line.ends_with(b"\n") {
            line.pop();
        }
        if line.len() > MESSAGE_BYTES_MAX {
            let number = self.count;
            return Err(Failure::Failed(format!("line {number} is longer than {MESSAGE_BYTES_MAX} bytes: divide it")));
        }
        Ok(Some(line))
    }
}

/// A line for a person who waits.
struct Progress {
    shown: bool,
}

impl Progress {
    fn show(&mut self, messages: u64) {
        let mut out = io::stderr().lock();
        if out.is_terminal() {
            // Nobody is left to tell when standard error is closed.
            let _ = write!(out, "\r{messages} messages").and_then(|()| out.flush());
            self.shown = true;
        }
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = writeln!(io::stderr());
        }
    }
}
