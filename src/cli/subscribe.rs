//! `ringmain subscribe`: prints messages as they come, and resumes where it was when the connection is cut; on the main thread.

use std::time::Duration;

use clap::Args;
use ringmain_wire::http::percent_encode_segment;
use ringmain_wire::json::decode_message;
use ringmain_wire::sse::{Decoder, Event};

use super::client::{Client, refusal, topic_path};
use super::output::{complain, payload, print};
use super::{Failure, ServerFlags};

#[derive(Args, Debug)]
pub(super) struct SubscribeFlags {
    /// Topics to read; of several, each message is printed behind its topic and a tab
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// Offset to start at; without it, only new messages. Places a group only when it begins
    #[arg(long, value_name = "OFFSET")]
    pub(super) from: Option<u64>,
    /// Read only that partition of the topic
    #[arg(long, value_name = "NUMBER")]
    partition: Option<u32>,
    /// Share the messages with the other members of that group, and acknowledge what was printed
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// End after that many messages
    #[arg(long, value_name = "MESSAGES")]
    pub(super) count: Option<u64>,
    /// Print each message as one line of JSON instead of its payload
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) server: ServerFlags,
}

/// What is remembered from connection to connection.
struct Reader<'f> {
    flags: &'f SubscribeFlags,
    last_id: Option<String>,
    retry: Duration,
    left: u64,
    /// A connection has worked; from then on a lost one is made again.
    connected: bool,
}

pub(super) fn run(flags: &SubscribeFlags) -> Result<(), Failure> {
    if flags.partition.is_some() && flags.topics.len() > 1 {
        return Err(Failure::Usage("--partition is of one topic: start the command once for each topic".to_owned()));
    }
    if let Some(group) = &flags.group {
        if flags.partition.is_some() {
            let sentence = "a member of a group takes part in all partitions: leave --partition or --group out";
            return Err(Failure::Usage(sentence.to_owned()));
        }
        return match &flags.topics[..] {
            [topic] => super::work::run(flags, topic, group),
            _ => Err(Failure::Usage("--group shares one topic: start the command once for each topic".to_owned())),
        };
    }
    let retry = Duration::from_secs(1);
    let mut reader = Reader { flags, last_id: None, retry, left: flags.count.unwrap_or(u64::MAX), connected: false };
    while reader.left > 0 {
        match reader.follow() {
            Ok(()) => return Ok(()),
            Err(Failure::Lost(message)) if reader.connected => {
                complain(&format!("{message}; coming back in {} ms", reader.retry.as_millis()));
                std::thread::sleep(reader.retry);
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

impl Reader<'_> {
    /// Follows one connection. `Ok` means that there is no more to read.
    fn follow(&mut self) -> Result<(), Failure> {
        let mut client = Client::connect(&self.flags.server.server)?;
        let target = self.target();
        let mut headers = vec![("Accept", "text/event-stream")];
        let last_id = self.last_id.clone();
        headers.extend(last_id.iter().map(|id| ("Last-Event-ID", id.as_str())));
        client.send("GET", &target, &headers, b"")?;
        let (status, mut body) = client.read_head()?;
        if status != 200 {
            let mut text = Vec::new();
            while let Some(part) = client.read_body(&mut body)? {
                text.extend_from_slice(&part);
            }
            return Err(refusal(status, &text));
        }
        self.connected = true;
        client.wait_for_ever()?;
        let (mut decoder, mut events) = (Decoder::default(), Vec::new());
        while let Some(part) = client.read_body(&mut body)? {
            decoder.feed(&part, &mut events).map_err(|error| Failure::Failed(error.to_string()))?;
            self.retry = decoder.retry_ms().map_or(self.retry, Duration::from_millis);
            for event in events.drain(..) {
                self.take(event)?;
                if self.left == 0 {
                    return Ok(());
                }
            }
            // A block without an event may have moved the place to resume, too.
            self.last_id = Some(decoder.last_event_id().to_owned()).filter(|id| !id.is_empty());
        }
        if let [_] = self.flags.topics[..] {
            complain("the topic was deleted");
        }
        Ok(())
    }

    /// What is asked for: a topic by its path, several by their names.
    fn target(&self) -> String {
        let from = self.flags.from.map(|from| format!("from_offset={from}"));
        let partition = self.flags.partition.map(|partition| format!("partition={partition}"));
        let (path, names) = match &self.flags.topics[..] {
            [topic] => (topic_path(topic), Vec::new()),
            topics => {
                let names = topics.iter().map(|topic| format!("topic={}", percent_encode_segment(topic)));
                (String::new(), names.collect())
            }
        };
        let query: Vec<_> = names.into_iter().chain(from).chain(partition).collect();
        format!("{path}/subscribe/sse?{}", query.join("&"))
    }

    fn take(&mut self, event: Event) -> Result<(), Failure> {
        self.last_id = event.id;
        match event.event.as_str() {
            "message" => {
                let mut line = if self.flags.json {
                    event.data.into_bytes()
                } else {
                    let message = decode_message(event.data.as_bytes());
                    let message = message.map_err(|refusal| Failure::Failed(refusal.message))?;
                    let mut line = Vec::new();
                    if self.flags.topics.len() > 1 {
                        line.extend_from_slice(message.topic.as_bytes());
                        line.push(b'\t');
                    }
                    line.extend_from_slice(&payload(&message.payload));
                    line
                };
                line.push(b'\n');
                print(&line)?;
                self.left -= 1;
            }
            "gap" => complain(&format!("some messages were not kept: {}", event.data)),
            "end" if self.flags.topics.len() > 1 => complain(&format!("a topic has ended: {}", event.data)),
            _ => {}
        }
        Ok(())
    }
}
