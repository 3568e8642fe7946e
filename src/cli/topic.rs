//! `ringmain topic`: makes, lists, shows, changes and deletes topics; on the main thread.

mod settings;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use self::settings::SettingsFlags;
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
        #[command(flatten)]
        settings: SettingsFlags,
        /// Where it keeps them: memory or wal; as the broker is set unless given
        #[arg(long, value_name = "MODE")]
        storage: Option<String>,
        /// How many partitions it has, 1 to 64: messages are in order in each, those of one key in the same
        #[arg(long, value_name = "COUNT")]
        partitions: Option<u64>,
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
    /// Change a topic's settings: what is not named stays
    #[command(after_help = "Examples:
  ringmain topic change payments --max-age 7d --max-bytes none
  ringmain topic change payments --dead-letter failed --max-deliver 5")]
    Change {
        /// Its name
        name: String,
        #[command(flatten)]
        settings: SettingsFlags,
        /// Give messages out for ever, and let none go elsewhere
        #[arg(long, conflicts_with_all = ["dead_letter", "max_deliver"])]
        no_dead_letter: bool,
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
        TopicCommand::Create { name, settings, storage, partitions, shared } => {
            let mut body = settings.body();
            body.insert("name".to_owned(), json!(name));
            if let Some(storage) = storage {
                body.insert("storage".to_owned(), json!(storage));
            }
            if let Some(partitions) = partitions {
                body.insert("partitions".to_owned(), json!(partitions));
            }
            let body = Value::Object(body);
            let data = ask(shared, "POST", "/topics", body.to_string().as_bytes())?;
            show(shared, &data, |_| format!("created {name}\n"))
        }
        TopicCommand::Change { name, settings, no_dead_letter, shared } => {
            let mut body = settings.body();
            if *no_dead_letter {
                body.insert("dead_letter".to_owned(), Value::Null);
            }
            if body.is_empty() {
                return Err(Failure::Usage("nothing to change: name a setting, such as --max-messages".to_owned()));
            }
            let data = ask(shared, "PATCH", &topic_path(name), Value::Object(body).to_string().as_bytes())?;
            show(shared, &data, |_| format!("changed {name}\n"))
        }
        TopicCommand::List { shared } => {
            let data = ask(shared, "GET", "/topics", b"")?;
            show(shared, &data, |data| data.as_array().into_iter().flatten().map(line).collect())
        }
        TopicCommand::Show { name, shared } => {
            let data = ask(shared, "GET", &topic_path(name), b"")?;
            show(shared, &data, |data| line(data) + &partition_lines(data))
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
    let partitions = match number("partitions") {
        0 | 1 => String::new(),
        count => format!("\t{count} partitions"),
    };
    format!(
        "{}\t{} messages\toffsets {} to {}\t{} subscribers{partitions}\n",
        stats.get("name").and_then(Value::as_str).unwrap_or_default(),
        number("message_count"),
        number("earliest_offset"),
        number("latest_offset"),
        number("subscriber_count"),
    )
}

/// The partitions of a topic, one on a line, when there are several.
fn partition_lines(stats: &Value) -> String {
    let line = |part: &Value| {
        let number = |name: &str| part.get(name).and_then(Value::as_i64).unwrap_or_default();
        format!(
            "  partition {}\t{} messages\toffsets {} to {}\n",
            number("partition"),
            number("message_count"),
            number("earliest_offset"),
            number("latest_offset"),
        )
    };
    stats.get("partition_stats").and_then(Value::as_array).into_iter().flatten().map(line).collect()
}
