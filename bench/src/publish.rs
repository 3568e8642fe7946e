//! Publishes raw bodies over keep-alive connections: what a publish costs, and how long it takes.

use bytes::Bytes;

use crate::clock::Clock;
use crate::command_line::PublishOptions;
use crate::failure::Failure;
use crate::load::{Load, Plan};
use crate::log_figures::LogFigures;
use crate::meter::Meter;
use crate::report::Report;
use crate::schedule::Pace;
use crate::setup::{create_topics, publish_request, topic_names};

/// Runs the measurement.
///
/// # Errors
///
/// When the server cannot be reached, or when no connection is left.
pub(crate) fn run(options: &PublishOptions, clock: &Clock) -> Result<Report, Failure> {
    let server = options.place.server;
    let names = topic_names(&options.topic, options.topics as usize);
    create_topics(server, &names, options.storage)?;
    let payload_bytes = options.payload_bytes as usize;
    let requests: Vec<Bytes> = names.iter().map(|name| publish_request(server, name, payload_bytes)).collect();
    let load = Load::start(Plan {
        server,
        connections: options.connections as usize,
        in_flight: options.in_flight as usize,
        requests,
        accepted_max: options.messages,
    })?;
    let log_before = if options.log_figures { Some(LogFigures::look(server)?) } else { None };
    let start_ns = clock.now_ns();
    let mut meter = Meter::new(start_ns, options.span.warmup_s, options.span.duration_s, options.place.server_pid);
    let tally = load.run(clock, &mut meter, Pace::of(options.rate, start_ns))?;
    let run_ns = clock.now_ns().saturating_sub(start_ns);

    let mut report = Report::new("publish");
    report.count("connections", options.connections.into());
    report.count("in_flight_per_connection", options.in_flight.into());
    report.count("payload_bytes", options.payload_bytes.into());
    report.count("topics", options.topics.into());
    meter.report("message", "messages", tally.accepted(), &mut report);
    tally.report_latency(&mut report);
    report.word("latency_basis", Pace::of(options.rate, start_ns).latency_basis());
    if let Some(rate) = options.rate {
        report.count("rate_intended_per_s", rate);
        report.count("messages_behind_at_end", tally.behind());
    }
    if let Some(before) = log_before {
        let messages = tally.accepted_in_all();
        LogFigures::look(server)?.since(&before).report(messages, payload_bytes as u64, run_ns, &mut report);
    }
    tally.report_faults(&mut report);
    Ok(report)
}
