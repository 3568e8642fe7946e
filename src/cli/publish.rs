//! `ringmain publish`: one message from the command line or standard input, or many; on the main thread.

mod batch;

use std::io::Read as _;

use clap::Args;
use ringmain_model::limit::PUBLISH_BATCH_MESSAGES_MAX;

use super::client::{Client, topic_path};
use super::output::print;
use super::{Failure, ServerFlags};

#[derive(Args, Debug)]
pub(super) struct PublishFlags {
    /// Topic to publish to
    topic: String,
    /// The message; without it, standard input is read to its end
    message: Option<String>,
    /// Key of the message
    #[arg(long)]
    key: Option<String>,
    /// Header of the message, may be given several times
    #[arg(long = "header", value_name = "NAME=VALUE")]
    headers: Vec<String>,
    /// Publish each line of standard input as a message, up to so many with one request, which stores all of them or none
    #[arg(
        long,
        value_name = "MESSAGES",
        num_args = 0..=1,
        default_missing_value = batch::BATCH_MESSAGES_DEFAULT,
        conflicts_with = "message",
        value_parser = clap::value_parser!(u64).range(1..=PUBLISH_BATCH_MESSAGES_MAX as u64),
    )]
    batch: Option<u64>,
    /// Print the broker's answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerFlags,
}

pub(super) fn run(flags: &PublishFlags) -> Result<(), Failure> {
    let mut names = Vec::new();
    for header in &flags.headers {
        let Some((name, value)) = header.split_once('=') else {
            return Err(Failure::Usage(format!("--header {header}: write it like name=value")));
        };
        let token = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if !token {
            return Err(Failure::Usage(format!("--header {header}: a name is made of letters, digits, - _ and .")));
        }
        names.push((format!("X-Header-{name}"), value));
    }
    let values = names.iter().map(|(_, value)| *value).chain(flags.key.as_deref());
    if values.clone().any(|value| value.chars().any(char::is_control)) {
        return Err(Failure::Usage(
            "--key and --header take no control characters: publish JSON over HTTP for those".to_owned(),
        ));
    }
    if let Some(messages_max) = flags.batch {
        // In JSON the names are as they would come from headers of HTTP: in lower case.
        let published = flags.headers.iter().filter_map(|header| header.split_once('='));
        return batch::run(&batch::Shared {
            topic: &flags.topic,
            server: &flags.server.server,
            key: flags.key.as_deref(),
            headers: published.map(|(name, value)| (name.to_ascii_lowercase(), value)).collect(),
            messages_max,
            json: flags.json,
        });
    }
    let body = match &flags.message {
        Some(message) => message.clone().into_bytes(),
        None => {
            let mut input = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut input);
            read.map_err(|error| Failure::Failed(format!("cannot read standard input: {error}")))?;
            input
        }
    };
    let mut headers = vec![("Content-Type", "application/octet-stream")];
    headers.extend(names.iter().map(|(name, value)| (name.as_str(), *value)));
    headers.extend(flags.key.iter().map(|key| ("X-Key", key.as_str())));
    let target = format!("{}/publish", topic_path(&flags.topic));
    let answer = Client::connect(&flags.server.server)?.ask("POST", &target, &headers, &body)?;
    let data = answer.data()?;
    if flags.json {
        return print(format!("{data}\n").as_bytes());
    }
    let offset = data.get("offset").and_then(serde_json::Value::as_u64);
    let offset = offset.ok_or_else(|| Failure::Failed("the broker's answer has no offset".to_owned()))?;
    print(format!("{offset}\n").as_bytes())
}
