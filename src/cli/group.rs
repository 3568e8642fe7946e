//! `ringmain group`: lists, shows, moves and deletes consumer groups; on the main thread.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::client::group_path;
use super::topic::{SharedFlags, ask, show};
use super::{Failure, client::topic_path};

#[derive(Args, Debug)]
pub(super) struct GroupFlags {
    #[command(subcommand)]
    command: GroupCommand,
}

#[derive(Subcommand, Debug)]
enum GroupCommand {
    /// List a topic's groups
    List {
        /// The topic
        topic: String,
        #[command(flatten)]
        shared: SharedFlags,
    },
    /// Show how a group stands
    Show {
        /// The topic
        topic: String,
        /// The group
        group: String,
        #[command(flatten)]
        shared: SharedFlags,
    },
    /// Let a group go on elsewhere: acknowledgements of what it had in flight do not count any more
    Seek {
        /// The topic
        topic: String,
        /// The group
        group: String,
        #[command(flatten)]
        target: SeekTarget,
        /// The only partition in which it moves; needed for an offset when there are several
        #[arg(long)]
        partition: Option<u64>,
        #[command(flatten)]
        shared: SharedFlags,
    },
    /// Delete a group; its members are disconnected
    Delete {
        /// The topic
        topic: String,
        /// The group
        group: String,
        #[command(flatten)]
        shared: SharedFlags,
    },
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct SeekTarget {
    /// The next message to deliver
    #[arg(long)]
    offset: Option<u64>,
    /// The first message taken at or after that time, like 2026-01-02T03:04:05Z
    #[arg(long)]
    time: Option<String>,
    /// The earliest message kept
    #[arg(long)]
    earliest: bool,
    /// What is published from now on
    #[arg(long)]
    latest: bool,
}

impl SeekTarget {
    fn body(&self) -> Value {
        match (self.offset, &self.time) {
            (Some(offset), _) => json!({ "offset": offset }),
            (None, Some(time)) => json!({ "time": time }),
            (None, None) if self.earliest => json!({ "earliest": true }),
            (None, None) => json!({ "latest": true }),
        }
    }
}

pub(super) fn run(flags: &GroupFlags) -> Result<(), Failure> {
    match &flags.command {
        GroupCommand::List { topic, shared } => {
            let data = ask(shared, "GET", &format!("{}/groups", topic_path(topic)), b"")?;
            show(shared, &data, |data| data.as_array().into_iter().flatten().map(line).collect())
        }
        GroupCommand::Show { topic, group, shared } => {
            let data = ask(shared, "GET", &group_path(topic, group), b"")?;
            show(shared, &data, |data| line(data) + &partition_lines(data))
        }
        GroupCommand::Seek { topic, group, target, partition, shared } => {
            let path = format!("{}/seek", group_path(topic, group));
            let mut body = target.body();
            if let Some(partition) = partition {
                body["partition"] = json!(partition);
            }
            let data = ask(shared, "POST", &path, body.to_string().as_bytes())?;
            show(shared, &data, |data| line(data) + &partition_lines(data))
        }
        GroupCommand::Delete { topic, group, shared } => {
            let data = ask(shared, "DELETE", &group_path(topic, group), b"")?;
            show(shared, &data, |_| format!("deleted {group}\n"))
        }
    }
}

/// One group on one line. Where it stands in several partitions is no single number.
fn line(stats: &Value) -> String {
    let number = |name: &str| stats.get(name).and_then(Value::as_u64).unwrap_or_default();
    let committed = match stats.get("partitions") {
        None => format!("committed {}", number("committed_offset")),
        Some(parts) => format!("{} partitions", parts.as_array().map_or(0, Vec::len)),
    };
    format!(
        "{}\t{committed}\tlag {}\t{} members\t{} pending\n",
        stats.get("name").and_then(Value::as_str).unwrap_or_default(),
        number("lag"),
        number("members"),
        number("pending"),
    )
}

/// Where a group stands in each partition, one on a line, when there are several.
fn partition_lines(stats: &Value) -> String {
    let line = |part: &Value| {
        let number = |name: &str| part.get(name).and_then(Value::as_u64).unwrap_or_default();
        format!(
            "  partition {}\tcommitted {}\tlag {}\t{} pending\n",
            number("partition"),
            number("committed_offset"),
            number("lag"),
            number("pending"),
        )
    };
    stats.get("partitions").and_then(Value::as_array).into_iter().flatten().map(line).collect()
}
