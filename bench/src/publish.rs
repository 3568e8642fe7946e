//! Publishes raw bodies over keep-alive connections and counts the answers, on the generator's one thread.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use ringmain_uring::{Event, Ring, RingConfig, SocketId};

use crate::clock::Clock;
use crate::command_line::PublishOptions;
use crate::connect::connect;
use crate::failure::Failure;
use crate::latency::Latencies;
use crate::meter::{Meter, Stage};
use crate::report::Report;
use crate::scan::ResponseScanner;
use crate::schedule::Pace;
use crate::setup::{create_topics, publish_head, topic_names};

/// The most that goes into one send.
const SEND_BYTES_MAX: usize = 1 << 20;

/// A loop that must send sooner than this looks instead of sleeping, as a timer of the kernel would be late.
const LOOK_NS: u64 = 100_000;

/// Receive buffers of the generator's ring.
pub(crate) const BUFFER_COUNT: u16 = 1024;

/// One keep-alive connection.
struct Connection {
    socket: SocketId,
    /// The same request each time.
    request: Bytes,
    /// Requests that wait for the send before them.
    waiting: VecDeque<Bytes>,
    /// For each request without an answer the time from which its latency counts.
    started_ns: VecDeque<u64>,
    answers: ResponseScanner,
    /// Has something to send and is listed in `Run::unsent`.
    listed: bool,
    open: bool,
}

struct Run<'a> {
    options: &'a PublishOptions,
    ring: Ring,
    connections: Vec<Connection>,
    /// The connection in each slot of the ring.
    by_slot: Vec<usize>,
    /// Connections with room for a request, in the order in which they get one.
    ready: VecDeque<usize>,
    unsent: Vec<usize>,
    pace: Pace,
    tally: Tally,
}

/// What was answered in the measured part.
struct Tally {
    statuses: BTreeMap<u16, u64>,
    latencies: Latencies,
    connections_lost: u64,
}

/// Runs the measurement.
///
/// # Errors
///
/// When the server cannot be reached, or when no connection is left.
pub(crate) fn run(options: &PublishOptions, clock: &Clock) -> Result<Report, Failure> {
    let names = topic_names(&options.topic, options.topics as usize);
    create_topics(options.place.server, &names)?;
    let mut run = Run::start(options, &names)?;
    let start_ns = clock.now_ns();
    run.pace = Pace::of(options.rate, start_ns);
    let mut meter = Meter::new(start_ns, options.span.warmup_s, options.span.duration_s, options.place.server_pid);
    let behind = loop {
        let now_ns = clock.now_ns();
        if meter.advance(now_ns)? == Stage::Over {
            break run.pace.behind(now_ns);
        }
        run.issue(now_ns);
        let wake_ns = run.wake_ns(meter.next_change_ns());
        run.ring.turn(Some(sleep(now_ns, wake_ns)))?;
        run.take_events(clock, meter.is_measuring())?;
    };
    Ok(run.report(&meter, behind))
}

/// How long a loop may sleep that has to act at `wake_ns`.
pub(crate) fn sleep(now_ns: u64, wake_ns: u64) -> Duration {
    let left_ns = wake_ns.saturating_sub(now_ns);
    if left_ns < LOOK_NS { Duration::ZERO } else { Duration::from_nanos(left_ns - LOOK_NS / 2) }
}

/// A ring for this many connections.
pub(crate) fn ring_for(connections: usize) -> Result<Ring, Failure> {
    let config = RingConfig {
        buffer_count: BUFFER_COUNT,
        completion_entries: 32_768,
        sockets_max: u32::try_from(connections).unwrap_or(u32::MAX).saturating_add(16),
        ..RingConfig::default()
    };
    Ok(Ring::new(&config)?)
}

impl<'a> Run<'a> {
    fn start(options: &'a PublishOptions, names: &[String]) -> Result<Run<'a>, Failure> {
        let server = options.place.server;
        let payload_bytes = options.payload_bytes as usize;
        let count = options.connections as usize;
        let requests: Vec<Bytes> = names
            .iter()
            .map(|name| {
                let mut request = publish_head(server, name, payload_bytes);
                request.extend((0..payload_bytes).map(|at| b"abcdefghijklmnopqrstuvwxyz"[at % 26]));
                Bytes::from(request)
            })
            .collect();
        let mut run = Run {
            options,
            ring: ring_for(count)?,
            connections: Vec::with_capacity(count),
            by_slot: Vec::new(),
            ready: VecDeque::with_capacity(count),
            unsent: Vec::new(),
            pace: Pace::Closed,
            tally: Tally { statuses: BTreeMap::new(), latencies: Latencies::new()?, connections_lost: 0 },
        };
        for number in 0..count {
            let socket = run.ring.adopt(connect(server, number)?)?;
            let slot = socket.slot();
            run.by_slot.resize(run.by_slot.len().max(slot + 1), usize::MAX);
            run.by_slot[slot] = number;
            run.ready.push_back(number);
            run.connections.push(Connection {
                socket,
                request: requests[number % requests.len()].clone(),
                waiting: VecDeque::new(),
                started_ns: VecDeque::new(),
                answers: ResponseScanner::default(),
                listed: false,
                open: true,
            });
        }
        Ok(run)
    }

    /// Hands out what may be sent now, one request to each ready connection in turn, and starts the sends.
    fn issue(&mut self, now_ns: u64) {
        while let Some(&index) = self.ready.front() {
            let connection = &mut self.connections[index];
            if !connection.open {
                self.ready.pop_front();
                continue;
            }
            let Some(started_ns) = self.pace.take(now_ns) else { break };
            self.ready.pop_front();
            connection.started_ns.push_back(started_ns);
            connection.waiting.push_back(connection.request.clone());
            if connection.started_ns.len() < self.options.in_flight as usize {
                self.ready.push_back(index);
            }
            if !connection.listed {
                connection.listed = true;
                self.unsent.push(index);
            }
        }
        while let Some(index) = self.unsent.pop() {
            let connection = &mut self.connections[index];
            connection.listed = false;
            if connection.open && !self.ring.sending(connection.socket) {
                self.ring.send(connection.socket, &mut connection.waiting, SEND_BYTES_MAX);
            }
        }
    }

    /// When the loop has to act by itself.
    fn wake_ns(&self, stage_change_ns: u64) -> u64 {
        match self.pace.next_due_ns() {
            Some(due_ns) if !self.ready.is_empty() => due_ns.min(stage_change_ns),
            _ => stage_change_ns,
        }
    }

    fn take_events(&mut self, clock: &Clock, measuring: bool) -> Result<(), Failure> {
        while let Some(event) = self.ring.next_event() {
            match event {
                Event::Received { socket, bytes } => {
                    let index = self.by_slot[socket.slot()];
                    let connection = &mut self.connections[index];
                    let was_full = connection.started_ns.len() >= self.options.in_flight as usize;
                    connection.receive(bytes, clock.now_ns(), measuring, &mut self.tally)?;
                    let has_room = connection.started_ns.len() < self.options.in_flight as usize;
                    if was_full && has_room {
                        self.ready.push_back(index);
                    }
                }
                Event::Sent { socket } => {
                    let index = self.by_slot[socket.slot()];
                    let connection = &mut self.connections[index];
                    if !connection.waiting.is_empty() && !connection.listed {
                        connection.listed = true;
                        self.unsent.push(index);
                    }
                }
                Event::ReceiveEnded { socket, .. } | Event::SendFailed { socket, .. } => self.lose(socket)?,
                Event::Accepted { .. }
                | Event::AcceptEnded { .. }
                | Event::Closed { .. }
                | Event::Woken
                | Event::File(_) => {}
            }
        }
        Ok(())
    }

    fn lose(&mut self, socket: SocketId) -> Result<(), Failure> {
        let connection = &mut self.connections[self.by_slot[socket.slot()]];
        if connection.open {
            connection.open = false;
            self.ring.close(socket);
            self.tally.connections_lost += 1;
        }
        if self.connections.iter().any(|connection| connection.open) {
            return Ok(());
        }
        Err(Failure::said("the server has closed every connection"))
    }

    fn report(&self, meter: &Meter, behind: u64) -> Report {
        let options = self.options;
        let mut report = Report::new("publish");
        report.count("connections", options.connections.into());
        report.count("in_flight_per_connection", options.in_flight.into());
        report.count("payload_bytes", options.payload_bytes.into());
        report.count("topics", options.topics.into());
        let accepted = self.tally.statuses.iter().filter(|(status, _)| (200..300).contains(*status));
        meter.report("message", "messages", accepted.map(|(_, count)| count).sum(), &mut report);
        self.tally.latencies.report("latency", &mut report);
        report.word("latency_basis", self.pace.latency_basis());
        if let Some(rate) = options.rate {
            report.count("rate_intended_per_s", rate);
            report.count("messages_behind_at_end", behind);
        }
        for (status, count) in self.tally.statuses.iter().filter(|(status, _)| !(200..300).contains(*status)) {
            report.fault(format!("answers_{status}"), *count);
        }
        report.fault("connections_lost", self.tally.connections_lost);
        report
    }
}

impl Connection {
    /// Counts the answers in these bytes.
    fn receive(&mut self, bytes: &[u8], now_ns: u64, measuring: bool, tally: &mut Tally) -> Result<(), Failure> {
        let started = &mut self.started_ns;
        let mut unasked = false;
        self.answers.feed(bytes, |status| {
            let Some(started_ns) = started.pop_front() else {
                unasked = true;
                return;
            };
            if measuring {
                *tally.statuses.entry(status).or_default() += 1;
                tally.latencies.record(now_ns.saturating_sub(started_ns));
            }
        })?;
        if unasked { Err(Failure::said("the server sent an answer to no request")) } else { Ok(()) }
    }
}
