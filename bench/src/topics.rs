//! Creates many topics side by side, and tells what each costs the server in memory.

use bytes::Bytes;

use crate::clock::Clock;
use crate::command_line::TopicsOptions;
use crate::failure::Failure;
use crate::load::{Load, Plan};
use crate::meter::Meter;
use crate::process::Process;
use crate::report::{Report, ratio};
use crate::schedule::Pace;
use crate::setup::{create_request, publish_request, topic_names};

/// Runs the measurement: all topics, then, if asked for, one message to each.
///
/// # Errors
///
/// When the server's process is not named, or the server cannot be reached.
pub(crate) fn run(options: &TopicsOptions, clock: &Clock) -> Result<Report, Failure> {
    let Some(server_id) = options.place.server_pid else {
        return Err(Failure::said("topics needs --server-pid: its memory is what is measured"));
    };
    let process = Process::new(server_id);
    let server = options.place.server;
    let names = topic_names(&options.topic, options.count as usize);
    let count = names.len() as u64;
    let before = process.resident_bytes()?;
    let mut report = Report::new("topics");
    report.count("topics", count);
    report.word("storage", options.storage.map_or("as the server is set", |storage| storage.word()));

    let creations = names.iter().map(|name| Bytes::from(create_request(server, name, options.storage))).collect();
    send_each(options, clock, creations, "creation", "creations", &mut report)?;
    let created = process.resident_bytes()?;
    report.count("server_resident_bytes_before", before);
    report.count("server_resident_bytes_created", created);
    report.decimal("server_bytes_per_topic", ratio(created.saturating_sub(before), count));

    if options.message_bytes > 0 {
        let bytes = options.message_bytes as usize;
        let publishes = names.iter().map(|name| publish_request(server, name, bytes)).collect();
        send_each(options, clock, publishes, "message", "messages", &mut report)?;
        let published = process.resident_bytes()?;
        report.count("server_resident_bytes_published", published);
        report.decimal("server_bytes_per_topic_with_message", ratio(published.saturating_sub(before), count));
    }
    Ok(report)
}

/// Sends each request once.
fn send_each(
    options: &TopicsOptions,
    clock: &Clock,
    requests: Vec<Bytes>,
    singular: &str,
    plural: &str,
    report: &mut Report,
) -> Result<(), Failure> {
    let count = requests.len() as u64;
    let load = Load::start(Plan {
        server: options.place.server,
        connections: options.connections as usize,
        in_flight: options.in_flight as usize,
        requests,
        accepted_max: Some(count),
    })?;
    let start_ns = clock.now_ns();
    let mut meter = Meter::until_ended(start_ns, options.patience_s, options.place.server_pid)?;
    let tally = load.run(clock, &mut meter, Pace::Closed)?;
    report.count(format!("{plural}_missing"), count.saturating_sub(tally.accepted_in_all()));
    meter.report_as(singular, plural, tally.accepted(), report);
    tally.report_faults(report);
    Ok(())
}
