//! The arguments, as clap reads them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Measures a broker from outside, over HTTP/1.1 and Server-Sent Events.
#[derive(Debug, Parser)]
#[command(
    name = "ringmain-bench",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  ringmain-bench publish --server 127.0.0.1:8080 --connections 64 --duration-s 10
  ringmain-bench fanout --subscribers 500 --outstanding 8 --server-pid \"$(pidof ringmain)\"
  ringmain-bench idle --connections 5000 --server-pid \"$(pidof ringmain)\"

The generator is one thread: pin it with --cpu to another processor than the server's. It exits with 0 when all
went as it should, with 1 when it measured and the server refused or lost something, with 2 when it could not measure."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Publishes raw bodies over keep-alive connections
    Publish(PublishOptions),
    /// Publishes to many subscribers, and checks that each gets each message once and in order
    Fanout(FanoutOptions),
    /// Opens connections that do nothing, and tells what each costs the server in memory
    Idle(IdleOptions),
    /// Creates many topics, and tells what each costs the server in memory
    Topics(TopicsOptions),
    /// Reads a stored topic again, from one or several places at once
    Replay(ReplayOptions),
    /// Starts a server, and tells when it listens and when it is ready
    Start(StartOptions),
    /// Writes single blocks durably, without a server: the floor under a durable publish
    Sync(SyncOptions),
    /// Answers every request with a fixed 202: the bare server to compare with
    Respond(RespondOptions),
    /// Makes a table of medians from lines of --json
    Summary(SummaryOptions),
}

/// What all measurements share.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// Address of the server
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(crate) server: SocketAddr,
    /// Process of the server, to tell what it uses
    #[arg(long, value_name = "PID")]
    pub(crate) server_pid: Option<u32>,
    /// Processor to run on
    #[arg(long, value_name = "NUMBER")]
    pub(crate) cpu: Option<usize>,
    /// Print the result as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Name of this configuration in the result, by which `summary` groups runs
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
}

/// How long a measurement takes.
#[derive(Debug, Args)]
pub(crate) struct Span {
    /// Seconds that count
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(crate) duration_s: Duration,
    /// Seconds before them that do not
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub(crate) warmup_s: Duration,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ringmain-bench publish --connections 64 --payload-bytes 256
  ringmain-bench publish --connections 1 --in-flight 64
  ringmain-bench publish --rate 20000 --duration-s 30 --json

Without --rate each connection sends as soon as an answer makes room (closed loop): good for the highest rate and the
cost of a message. With --rate messages have fixed send times (open loop) and latency counts from these, also for
messages that a stall held back: good for latency.")]
pub(crate) struct PublishOptions {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) span: Span,
    /// Topic to publish to; made if it is missing
    #[arg(long, value_name = "NAME", default_value = "bench")]
    pub(crate) topic: String,
    /// Topics to spread the connections over, named NAME-0 and so on
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) topics: u32,
    /// Keep-alive connections
    #[arg(long, value_name = "COUNT", default_value = "64", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) connections: u32,
    /// Bytes of each body
    #[arg(long, value_name = "BYTES", default_value = "256", value_parser = clap::value_parser!(u32).range(..=16_777_216))]
    pub(crate) payload_bytes: u32,
    /// Requests without an answer on each connection; above 1 they are pipelined
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) in_flight: u32,
    /// Messages per second at fixed send times, instead of a closed loop
    #[arg(long, value_name = "MESSAGES", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) rate: Option<u64>,
    /// End when this many were accepted, those of the warm-up too
    #[arg(long, value_name = "COUNT")]
    pub(crate) messages: Option<u64>,
    /// Where topics that are made keep their messages; as the server is set unless given
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) storage: Option<StorageKind>,
    /// Also tell what the server's metrics say about its log over the whole run
    #[arg(long)]
    pub(crate) log_figures: bool,
}

/// Where a topic keeps its messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum StorageKind {
    /// In memory alone
    Memory,
    /// In the write-ahead log
    Wal,
}

impl StorageKind {
    /// As the wire names it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            StorageKind::Memory => "memory",
            StorageKind::Wal => "wal",
        }
    }
}

/// When a message of the closed loop makes room for the next one.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Until {
    /// When it is answered and every subscriber has it
    Delivered,
    /// When it is answered; subscribers may fall behind
    Answered,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ringmain-bench fanout --subscribers 500 --outstanding 1
  ringmain-bench fanout --subscribers 1000 --payload-bytes 128 --outstanding 8 --json
  ringmain-bench fanout --subscribers 500 --rate 200

Each payload carries its number and its send time. Latency counts from the start of the publish (with --rate: from the
intended start) to the moment at which the generator has the event.")]
pub(crate) struct FanoutOptions {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) span: Span,
    /// Topic to publish to; made if it is missing
    #[arg(long, value_name = "NAME", default_value = "bench-fanout")]
    pub(crate) topic: String,
    /// Subscribers by Server-Sent Events
    #[arg(long, value_name = "COUNT", default_value = "500", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) subscribers: u32,
    /// How they read
    #[arg(long, value_enum, value_name = "PROTOCOL", default_value = "sse")]
    pub(crate) protocol: Protocol,
    /// Bytes of each body; the first 18 are the number and the send time
    #[arg(long, value_name = "BYTES", default_value = "256", value_parser = clap::value_parser!(u32).range(18..=16_777_216))]
    pub(crate) payload_bytes: u32,
    /// Messages that may be under way at once
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) outstanding: u32,
    /// What ends a message's being under way
    #[arg(long, value_enum, value_name = "WHEN", default_value = "delivered")]
    pub(crate) until: Until,
    /// Messages per second at fixed send times, instead of a closed loop
    #[arg(long, value_name = "MESSAGES", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) rate: Option<u64>,
    /// Where the topic keeps its messages if it is made; as the server is set unless given
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) storage: Option<StorageKind>,
}

/// How a subscriber reads.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Protocol {
    /// By Server-Sent Events
    Sse,
    /// By WebSocket
    Ws,
}

/// What an idle connection is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Kind {
    /// A subscriber by Server-Sent Events
    Sse,
    /// A subscriber by WebSocket
    Ws,
    /// An HTTP connection that has had one answer
    KeepAlive,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ringmain-bench idle --connections 5000 --server-pid \"$(pidof ringmain)\"
  ringmain-bench idle --connections 5000 --kind keep-alive --server-pid \"$(pidof ringmain)\"

Start a fresh server for each run: memory that an earlier run left is used again and hides the cost.")]
pub(crate) struct IdleOptions {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Topic to follow; made if it is missing
    #[arg(long, value_name = "NAME", default_value = "bench-idle")]
    pub(crate) topic: String,
    /// Connections to open
    #[arg(long, value_name = "COUNT", default_value = "5000", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) connections: u32,
    /// What each connection is
    #[arg(long, value_enum, value_name = "KIND", default_value = "sse")]
    pub(crate) kind: Kind,
    /// Seconds between the last answer and the second look at the memory
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(crate) settle_s: Duration,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  ringmain-bench topics --count 100000 --storage wal --server-pid \"$(pidof ringmain)\"

Start a fresh server for each run. All topics are made first; then, with --message-bytes, each gets one message.")]
pub(crate) struct TopicsOptions {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Topics are named NAME-0 and so on
    #[arg(long, value_name = "NAME", default_value = "bench-topics")]
    pub(crate) topic: String,
    /// Topics to make
    #[arg(long, value_name = "COUNT", default_value = "10000", value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub(crate) count: u32,
    /// Where they keep their messages; as the server is set unless given
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) storage: Option<StorageKind>,
    /// Bytes of the one message that each gets; 0 for none
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = clap::value_parser!(u32).range(..=16_777_216))]
    pub(crate) message_bytes: u32,
    /// Keep-alive connections
    #[arg(long, value_name = "COUNT", default_value = "16", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) connections: u32,
    /// Requests without an answer on each connection
    #[arg(long, value_name = "COUNT", default_value = "8", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) in_flight: u32,
    /// Seconds that each of the two parts may take
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds)]
    pub(crate) patience_s: Duration,
}

/// How a subscriber reads what is stored.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum ReplayFormat {
    /// Server-Sent Events with messages as JSON
    Sse,
    /// Server-Sent Events with bare payloads
    SseRaw,
    /// WebSocket with messages as JSON
    Ws,
}

impl ReplayFormat {
    /// As the command line names it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            ReplayFormat::Sse => "sse",
            ReplayFormat::SseRaw => "sse-raw",
            ReplayFormat::Ws => "ws",
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ringmain-bench replay --topic bench --messages 10000000
  ringmain-bench replay --topic bench --messages 10000000 --readers 10 --each 1000000

Readers begin at places that are spread evenly over the messages, the first at the front. Each must get every message
from there on once and in order.")]
pub(crate) struct ReplayOptions {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Topic to read
    #[arg(long, value_name = "NAME", default_value = "bench")]
    pub(crate) topic: String,
    /// Messages that it holds, from offset 0 on
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) messages: u64,
    /// Subscribers
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) readers: u32,
    /// Messages that each reads; to the end unless given
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) each: Option<u64>,
    /// How they read
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "sse-raw")]
    pub(crate) format: ReplayFormat,
    /// Seconds that it may take
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds)]
    pub(crate) patience_s: Duration,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  ringmain-bench start --server 127.0.0.1:8080 -- ringmain serve --storage wal --wal-dir data")]
pub(crate) struct StartOptions {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Seconds that it may take
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) patience_s: Duration,
    /// Leave the server running
    #[arg(long)]
    pub(crate) keep: bool,
    /// The server's program and its arguments
    #[arg(last = true, value_name = "PROGRAM", required = true)]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  ringmain-bench sync --directory data")]
pub(crate) struct SyncOptions {
    /// Directory on the file system to measure
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    pub(crate) directory: PathBuf,
    /// Bytes of each write, a multiple of the file system's block
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = clap::value_parser!(u32).range(512..=1_048_576))]
    pub(crate) bytes: u32,
    /// Seconds of measuring
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub(crate) duration_s: Duration,
    /// Processor to run on
    #[arg(long, value_name = "NUMBER")]
    pub(crate) cpu: Option<usize>,
    /// Print the result as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Name of this configuration in the result, by which `summary` groups runs
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ringmain-bench respond --listen 127.0.0.1:9090 --cpu 0
  ringmain-bench publish --server 127.0.0.1:9090 --cpu 1")]
pub(crate) struct RespondOptions {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9090")]
    pub(crate) listen: SocketAddr,
    /// Processor to run on
    #[arg(long, value_name = "NUMBER")]
    pub(crate) cpu: Option<usize>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  ringmain-bench summary perf/runs/2026-01-02-first/raw.jsonl")]
pub(crate) struct SummaryOptions {
    /// Files with lines of --json
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
}

/// A number of seconds, fractions allowed, up to a day.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "it is not a number of seconds".to_owned())?;
    if !(0.0..=86_400.0).contains(&seconds) {
        return Err("it is not between 0 and 86400 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    //! The arguments hold together.

    use clap::{CommandFactory, Parser};

    use super::Arguments;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn values_that_cannot_be_are_refused() {
        for arguments in [
            &["fanout", "--payload-bytes", "17"][..],
            &["publish", "--connections", "0"],
            &["publish", "--rate", "0"],
            &["publish", "--duration-s", "-1"],
            &["summary"],
        ] {
            let line = std::iter::once("ringmain-bench").chain(arguments.iter().copied());
            assert!(Arguments::try_parse_from(line).is_err(), "{arguments:?}");
        }
    }
}
