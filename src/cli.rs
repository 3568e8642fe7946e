//! The command line: what `ringmain` understands, and how each word ends; on the main thread.

mod client;
mod group;
mod inspect;
mod output;
mod publish;
mod serve;
mod subscribe;
mod topic;
mod work;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::ServeFlags;

/// What went wrong, and the exit code that says so.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The words or settings cannot be used: exit code 2.
    Usage(String),
    /// The broker refused, or something failed: exit code 1.
    Failed(String),
    /// The broker cannot be reached, or the connection broke: exit code 1, unless coming back helps.
    Lost(String),
    /// Whoever read the output has gone: not an error.
    OutputClosed,
}

#[derive(Parser)]
#[command(
    name = "ringmain",
    version,
    about = "A message broker with one pinned io_uring loop per core",
    after_help = "Examples:
  ringmain serve                                  start a broker on 127.0.0.1:8080
  ringmain topic create payments                  make a topic
  echo hello | ringmain publish payments          publish what stands on standard input
  ringmain subscribe payments --from 0            print all messages, then follow
  curl -N localhost:8080/topics/payments/subscribe/sse?from_offset=0"
)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a broker
    #[command(after_help = "Examples:
  ringmain serve --port 9000 --retention 100000
  SERVER_PORT=9000 RINGMAIN_LOG_FORMAT=json ringmain serve
A file .env in the working directory may hold the same variables.")]
    Serve(Box<ServeFlags>),
    /// Publish a message, or many
    #[command(after_help = "Examples:
  ringmain publish payments '{\"amount\":100}'
  ringmain publish payments --key gh --header trace=7 < body.bin
  ringmain publish payments --batch < lines.txt   each line a message, 1000 with one request")]
    Publish(publish::PublishFlags),
    /// Print a topic's messages as they come
    #[command(after_help = "Examples:
  ringmain subscribe payments
  ringmain subscribe payments --from 0 --count 10 --json | jq .offset
  ringmain subscribe payments --group billing     share the work, acknowledge what was printed")]
    Subscribe(subscribe::SubscribeFlags),
    /// Make, list, show, change and delete topics
    #[command(after_help = "Examples:
  ringmain topic create payments --max-messages 100000
  ringmain topic change payments --max-age 7d
  ringmain topic list --json")]
    Topic(topic::TopicFlags),
    /// List, show, move and delete consumer groups
    #[command(after_help = "Examples:
  ringmain group list payments
  ringmain group seek payments billing --earliest")]
    Group(group::GroupFlags),
    /// Print and check the files of a data directory, changing nothing
    #[command(after_help = "Examples:
  ringmain inspect data                           all files, and what a start would make of them
  ringmain inspect data/shard-000 --verbose       every entry on a line of its own
  ringmain inspect data/shard-000/checkpoint-a --json
Exit codes: 0 all is well, 1 damage was found, 2 it cannot be read.")]
    Inspect(inspect::InspectFlags),
}

/// Where the broker is.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServerFlags {
    /// Address of the broker
    #[arg(long, value_name = "URL", env = "RINGMAIN_URL", default_value = "http://127.0.0.1:8080")]
    pub(crate) server: String,
}

/// Reads the command line and does what it says.
pub(crate) fn run() -> ExitCode {
    let outcome = match CommandLine::parse().command {
        Command::Serve(flags) => serve::run(&flags),
        Command::Publish(flags) => publish::run(&flags),
        Command::Subscribe(flags) => subscribe::run(&flags),
        Command::Topic(flags) => topic::run(&flags),
        Command::Group(flags) => group::run(&flags),
        Command::Inspect(flags) => inspect::run(&flags),
    };
    match outcome {
        Ok(()) | Err(Failure::OutputClosed) => ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => {
            output::complain(&message);
            ExitCode::from(2)
        }
        Err(Failure::Failed(message) | Failure::Lost(message)) => {
            output::complain(&message);
            ExitCode::FAILURE
        }
    }
}
