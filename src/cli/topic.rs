//! `ringmain topic`: makes, lists, shows and deletes topics; on the main thread.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::client::{Client, topic_path};
use super::output::print;
use super::{Failure, ServerFlags};

#[derive(Args, Debug)]
pub(super) struct TopicFlags {
    #[command(subcommand)]
    command: TopicCommand,
}

#[derive(Subcommand, Debug)]
enum TopicCommand {
    /// Make a topic
    Create {
        /// Its name
        name: String,
        /// Messages that it keeps
        #[arg(long, value_name = "MESSAGES")]
        max_messages: Option<u64>,
        /// Bytes that it keeps
        #[arg(long, value_name = "BYTES")]
        max_bytes: Option<u64>,
        /// Where it keeps them: memory or wal; as the broker is set unless given
        #[arg(long, value_name = "MODE")]
        storage: Option<String>,
        #[command(flatten)]
        shared: SharedFlags,
    },
    /// List all topics
    List {
        #[command(flatten)]
        shared: SharedFlags,
    },
    /// Show how a topic stands
    Show {
        /// Its name
        name: String,
        #[command(flatten)]
        shared: SharedFlags,
    },
    /// Delete a topic and all its messages
    Delete {
        /// Its name
        name: String,
        #[command(flatten)]
        shared: SharedFlags,
    },
}

#[derive(Args, Debug)]
pub(super) struct SharedFlags {
    /// Print the broker's answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerFlags,
}

pub(super) fn run(flags: &TopicFlags) -> Result<(), Failure> {
    match &flags.command {
        TopicCommand::Create { name, max_messages, max_bytes, storage, shared } => {
            let mut retention = serde_json::Map::new();
            for (field, value) in [("max_messages", max_messages), ("max_bytes", max_bytes)] {
                if let Some(value) = value {
                    retention.insert(field.to_owned(), json!(value));
                }
            }
            let mut body = json!({ "name": name });
            if let Some(storage) = storage {
                body["storage"] = json!(storage);
            }
            if !retention.is_empty() {
                body["retention"] = Value::Object(retention);
            }
            let data = ask(shared, "POST", "/topics", body.to_string().as_bytes())?;
            show(shared, &data, |_| format!("created {name}\n"))
        }
        TopicCommand::List { shared } => {
            let data = ask(shared, "GET", "/topics", b"")?;
            show(shared, &data, |data| data.as_array().into_iter().flatten().map(line).collect())
        }
        TopicCommand::Show { name, shared } => {
            let data = ask(shared, "GET", &topic_path(name), b"")?;
            show(shared, &data, line)
        }
        TopicCommand::Delete { name, shared } => {
            let data = ask(shared, "DELETE", &topic_path(name), b"")?;
            show(shared, &data, |_| format!("deleted {name}\n"))
        }
    }
}

pub(super) fn ask(shared: &SharedFlags, method: &str, target: &str, body: &[u8]) -> Result<Value, Failure> {
    let headers: &[_] = if body.is_empty() { &[] } else { &[("Content-Type", "application/json")] };
    Client::connect(&shared.server.server)?.ask(method, target, headers, body)?.data()
}

pub(super) fn show(shared: &SharedFlags, data: &Value, text: impl FnOnce(&Value) -> String) -> Result<(), Failure> {
    if shared.json {
        return print(format!("{data}\n").as_bytes());
    }
    print(text(data).as_bytes())
}

/// One topic on one line: what a person looks for first.
fn line(stats: &Value) -> String {
    let number = |name: &str| stats.get(name).and_then(Value::as_i64).unwrap_or_default();
    format!(
        "{}\t{} messages\toffsets {} to {}\t{} subscribers\n",
        stats.get("name").and_then(Value::as_str).unwrap_or_default(),
        number("message_count"),
        number("earliest_offset"),
        number("latest_offset"),
        number("subscriber_count"),
    )
}
