//! Reads a stored topic again from one or several places at once, checks that nothing is left out, and watches the
//! server's memory meanwhile, on the generator's one thread.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use ringmain_uring::{Event, Ring, SocketId};

use crate::clock::{Clock, nanoseconds};
use crate::command_line::{ReplayFormat, ReplayOptions};
use crate::connect::connect;
use crate::failure::Failure;
use crate::meter::{Meter, Stage};
use crate::process::Process;
use crate::report::{Report, ratio};
use crate::ring::ring_for;
use crate::scan::EventScanner;
use crate::setup::replay_request;

/// Time between two looks at the server's memory.
const SAMPLE_EVERY: Duration = Duration::from_millis(500);

/// Looks that the report lists; of more it lists every second one, and so on.
const SAMPLES_LISTED_MAX: usize = 64;

/// One subscriber.
struct Reader {
    scanner: EventScanner,
    /// The offset that must come next.
    next: u64,
    /// The offset at which it is done.
    until: u64,
    done_ns: Option<u64>,
}

struct Run {
    ring: Ring,
    /// The reader in each slot of the ring.
    readers: Vec<Option<Reader>>,
    running: usize,
    deliveries: u64,
    misplaced: u64,
    received_bytes: u64,
    samples: Vec<u64>,
}

/// Runs the measurement.
///
/// # Errors
///
/// When the server cannot be reached, or ends a subscription.
pub(crate) fn run(options: &ReplayOptions, clock: &Clock) -> Result<Report, Failure> {
    let process = options.place.server_pid.map(Process::new);
    let mut run = Run::start(options)?;
    let start_ns = clock.now_ns();
    let mut meter = Meter::until_ended(start_ns, options.patience_s, options.place.server_pid)?;
    let mut sample_ns = start_ns;
    loop {
        let now_ns = clock.now_ns();
        if let Some(process) = process
            && now_ns >= sample_ns
        {
            run.samples.push(process.resident_bytes()?);
            sample_ns = now_ns.saturating_add(nanoseconds(SAMPLE_EVERY));
        }
        if run.running == 0 {
            meter.end(now_ns)?;
        }
        if meter.advance(now_ns)? == Stage::Over {
            break;
        }
        run.turn(clock)?;
    }
    if let Some(process) = process {
        run.samples.push(process.resident_bytes()?);
    }
    Ok(run.report(options, &meter, start_ns))
}

impl Run {
    /// Opens all subscriptions.
    fn start(options: &ReplayOptions) -> Result<Run, Failure> {
        let server = options.place.server;
        let count = u64::from(options.readers);
        let mut run = Run {
            ring: ring_for(options.readers as usize)?,
            readers: Vec::new(),
            running: options.readers as usize,
            deliveries: 0,
            misplaced: 0,
            received_bytes: 0,
            samples: Vec::new(),
        };
        for number in 0..options.readers {
            let from = options.messages / count * u64::from(number);
            let until = options.each.map_or(options.messages, |each| options.messages.min(from.saturating_add(each)));
            let socket = run.ring.adopt(connect(server, number as usize)?)?;
            if run.readers.len() <= socket.slot() {
                run.readers.resize_with(socket.slot() + 1, || None);
            }
            let scanner =
                if options.format == ReplayFormat::SseRaw { EventScanner::of_raw() } else { EventScanner::new() };
            run.readers[socket.slot()] = Some(Reader { scanner, next: from, until, done_ns: None });
            let request = Bytes::from(replay_request(server, &options.topic, from, options.format));
            run.ring.send(socket, &mut VecDeque::from([request]), usize::MAX);
        }
        Ok(run)
    }

    fn turn(&mut self, clock: &Clock) -> Result<(), Failure> {
        self.ring.turn(Some(SAMPLE_EVERY))?;
        let mut finished: Vec<SocketId> = Vec::new();
        while let Some(event) = self.ring.next_event() {
            match event {
                Event::Received { socket, bytes } => {
                    let Some(Some(reader)) = self.readers.get_mut(socket.slot()) else { continue };
                    if reader.done_ns.is_some() {
                        continue;
                    }
                    self.received_bytes += bytes.len() as u64;
                    let Reader { scanner, next, until, .. } = reader;
                    let (deliveries, misplaced) = (&mut self.deliveries, &mut self.misplaced);
                    scanner.feed(bytes, |message| {
                        if *next < *until {
                            *deliveries += 1;
                            *misplaced += u64::from(message.offset != *next);
                            *next = message.offset + 1;
                        }
                    })?;
                    if reader.next >= reader.until {
                        reader.done_ns = Some(clock.now_ns());
                        self.running -= 1;
                        finished.push(socket);
                    }
                }
                Event::ReceiveEnded { socket, error } => {
                    let unfinished = |reader: &Reader| reader.done_ns.is_none();
                    if self.readers.get(socket.slot()).and_then(Option::as_ref).is_some_and(unfinished) {
                        let reason = error.map_or_else(|| "it ended".to_owned(), |error| error.to_string());
                        return Err(Failure::said(format!("the server closed a subscription: {reason}")));
                    }
                }
                Event::SendFailed { error, .. } => return Err(Failure::io("cannot send to the server", error)),
                Event::Sent { .. }
                | Event::Accepted { .. }
                | Event::AcceptEnded { .. }
                | Event::Closed { .. }
                | Event::Woken
                | Event::File(_) => {}
            }
        }
        for socket in finished {
            self.ring.close(socket);
        }
        Ok(())
    }

    fn report(&self, options: &ReplayOptions, meter: &Meter, start_ns: u64) -> Report {
        let mut report = Report::new("replay");
        report.count("readers", options.readers.into());
        report.word("format", options.format.word());
        report.count("messages_stored", options.messages);
        meter.report("delivery", "deliveries", self.deliveries, &mut report);
        report.decimal("received_bytes_per_delivery", ratio(self.received_bytes, self.deliveries));
        let done = self.readers.iter().flatten().filter_map(|reader| reader.done_ns);
        let seconds = |at_ns: u64| ratio(at_ns.saturating_sub(start_ns), 1_000_000_000);
        if let (Some(first), Some(last)) = (done.clone().min(), done.max()) {
            report.decimal("first_reader_done_s", seconds(first));
            report.decimal("last_reader_done_s", seconds(last));
        }
        if let (Some(first), Some(most), Some(last)) =
            (self.samples.first(), self.samples.iter().max(), self.samples.last())
        {
            report.count("server_resident_bytes_before", *first);
            report.count("server_resident_bytes_max", *most);
            report.count("server_resident_bytes_after", *last);
            let step = self.samples.len().div_ceil(SAMPLES_LISTED_MAX);
            report.counts("server_resident_bytes_sampled", self.samples.iter().step_by(step).copied());
        }
        let controls = self.readers.iter().flatten().map(|reader| reader.scanner.controls()).sum();
        report.fault("deliveries_misplaced", self.misplaced);
        report.fault("control_events", controls);
        report.fault("readers_unfinished", self.running as u64);
        report
    }
}
