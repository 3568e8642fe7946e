//! `ringmain subscribe --group`: fetches messages of a group and acknowledges what it has printed; on the main thread.

use std::time::Duration;

use ringmain_wire::json::decode_message;
use serde_json::{Value, json};

use super::Failure;
use super::client::{Client, group_path};
use super::output::{complain, payload, print};
use super::subscribe::SubscribeFlags;

/// How long one fetch waits; less than the client waits for an answer.
const WAIT_MS: u64 = 20_000;
/// How long it stays away when the connection was lost.
const COME_BACK: Duration = Duration::from_secs(1);
/// Messages of one fetch: few, so that others of the group get their share.
const FETCH_MAX: u64 = 16;

pub(super) fn run(flags: &SubscribeFlags, topic: &str, group: &str) -> Result<(), Failure> {
    let mut left = flags.count.unwrap_or(u64::MAX);
    let mut has_worked = false;
    loop {
        match work(flags, (topic, group), &mut left, &mut has_worked) {
            Err(Failure::Lost(message)) if has_worked => {
                complain(&format!("{message}; coming back in {} ms", COME_BACK.as_millis()));
                std::thread::sleep(COME_BACK);
            }
            ended => return ended,
        }
    }
}

/// Works over one connection until there is no more to do, or it is lost.
fn work(
    flags: &SubscribeFlags,
    (topic, group): (&str, &str),
    left: &mut u64,
    has_worked: &mut bool,
) -> Result<(), Failure> {
    let mut client = Client::connect(&flags.server.server)?;
    let path = group_path(topic, group);
    let headers = [("Content-Type", "application/json")];
    while *left > 0 {
        let mut wish = json!({ "max": (*left).min(FETCH_MAX), "wait_ms": WAIT_MS });
        if let Some(from) = flags.from {
            wish["from_offset"] = json!(from);
        }
        // The broker was there: from here on a lost connection is made again.
        *has_worked = true;
        let answer = client.ask("POST", &format!("{path}/fetch"), &headers, wish.to_string().as_bytes())?;
        let data = answer.data()?;
        let messages = data.get("messages").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut offsets = Vec::new();
        for message in &messages {
            let text = message.to_string();
            let decoded = decode_message(text.as_bytes()).map_err(|refusal| Failure::Failed(refusal.message))?;
            let mut line = if flags.json { text.into_bytes() } else { payload(&decoded.payload) };
            line.push(b'\n');
            print(&line)?;
            offsets.push(decoded.offset);
        }
        if !offsets.is_empty() {
            *left -= offsets.len() as u64;
            // What was printed and not acknowledged comes again, to whoever asks next: at least once.
            let mut done = json!({ "offsets": offsets, "epoch": data.get("epoch") });
            if let Some(partition) = data.get("partition") {
                done["partition"] = partition.clone();
            }
            client.ask("POST", &format!("{path}/ack"), &headers, done.to_string().as_bytes())?;
        }
    }
    Ok(())
}
