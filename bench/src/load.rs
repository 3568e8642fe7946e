//! Sends prepared requests over keep-alive connections and counts the answers, on the generator's one thread.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use bytes::Bytes;
use ringmain_uring::{Event, Ring, SocketId};

use crate::clock::Clock;
use crate::connect::connect;
use crate::failure::Failure;
use crate::latency::Latencies;
use crate::meter::{Meter, Stage};
use crate::report::Report;
use crate::ring::{ring_for, sleep};
use crate::scan::ResponseScanner;
use crate::schedule::Pace;

/// The most that goes into one send.
const SEND_BYTES_MAX: usize = 1 << 20;

/// What is sent, and over how many connections.
pub(crate) struct Plan {
    pub(crate) server: SocketAddr,
    pub(crate) connections: usize,
    /// Requests without an answer on each connection.
    pub(crate) in_flight: usize,
    /// Sent in turn, again and again; there is at least one.
    pub(crate) requests: Vec<Bytes>,
    /// The run is over when this many were accepted, those of the warm-up too. What is refused is followed by another
    /// request in its place.
    pub(crate) accepted_max: Option<u64>,
}

/// One keep-alive connection.
struct Connection {
    socket: SocketId,
    /// Requests that wait for the send before them.
    waiting: VecDeque<Bytes>,
    /// For each request without an answer the time from which its latency counts.
    started_ns: VecDeque<u64>,
    answers: ResponseScanner,
    /// Has something to send and is listed in `Load::unsent`.
    listed: bool,
    open: bool,
}

/// The connections and what came over them.
pub(crate) struct Load {
    plan: Plan,
    ring: Ring,
    connections: Vec<Connection>,
    /// The connection in each slot of the ring.
    by_slot: Vec<usize>,
    /// Connections with room for a request, in the order in which they get one.
    ready: VecDeque<usize>,
    unsent: Vec<usize>,
    /// The next of the plan's requests.
    next_request: usize,
    under_way: u64,
    pace: Pace,
    tally: Tally,
}

/// What was answered.
pub(crate) struct Tally {
    /// In the measured part.
    statuses: BTreeMap<u16, u64>,
    latencies: Latencies,
    /// Over the whole run.
    accepted_in_all: u64,
    connections_lost: u64,
    /// Messages whose time had come and that were not sent.
    behind: u64,
}

impl Load {
    /// Opens the connections.
    ///
    /// # Errors
    ///
    /// When the server cannot be reached.
    pub(crate) fn start(plan: Plan) -> Result<Load, Failure> {
        let count = plan.connections;
        let mut load = Load {
            ring: ring_for(count)?,
            connections: Vec::with_capacity(count),
            by_slot: Vec::new(),
            ready: (0..count).collect(),
            unsent: Vec::new(),
            next_request: 0,
            under_way: 0,
            pace: Pace::Closed,
            tally: Tally {
                statuses: BTreeMap::new(),
                latencies: Latencies::new()?,
                accepted_in_all: 0,
                connections_lost: 0,
                behind: 0,
            },
            plan,
        };
        for number in 0..count {
            let socket = load.ring.adopt(connect(load.plan.server, number)?)?;
            let slot = socket.slot();
            load.by_slot.resize(load.by_slot.len().max(slot + 1), usize::MAX);
            load.by_slot[slot] = number;
            load.connections.push(Connection {
                socket,
                waiting: VecDeque::new(),
                started_ns: VecDeque::new(),
                answers: ResponseScanner::default(),
                listed: false,
                open: true,
            });
        }
        Ok(load)
    }

    /// Sends until the meter says that it is over, or until enough was accepted.
    ///
    /// # Errors
    ///
    /// When no connection is left, or when an answer cannot be read.
    pub(crate) fn run(mut self, clock: &Clock, meter: &mut Meter, pace: Pace) -> Result<Tally, Failure> {
        self.pace = pace;
        loop {
            let now_ns = clock.now_ns();
            if self.plan.accepted_max.is_some_and(|most| self.tally.accepted_in_all >= most) {
                meter.end(now_ns)?;
            }
            if meter.advance(now_ns)? == Stage::Over {
                self.tally.behind = self.pace.behind(now_ns);
                return Ok(self.tally);
            }
            self.issue(now_ns);
            let wake_ns = self.wake_ns(meter.next_change_ns());
            self.ring.turn(Some(sleep(now_ns, wake_ns)))?;
            self.take_events(clock, meter.is_measuring())?;
        }
    }

    /// Whether one more may be accepted.
    fn is_wanted(&self) -> bool {
        self.plan.accepted_max.is_none_or(|most| self.tally.accepted_in_all + self.under_way < most)
    }

    /// Hands out what may be sent now, one request to each ready connection in turn, and starts the sends.
    fn issue(&mut self, now_ns: u64) {
        while let Some(&index) = self.ready.front() {
            if !self.connections[index].open {
                self.ready.pop_front();
                continue;
            }
            if !self.is_wanted() {
                break;
            }
            let Some(started_ns) = self.pace.take(now_ns) else { break };
            self.ready.pop_front();
            let connection = &mut self.connections[index];
            connection.started_ns.push_back(started_ns);
            connection.waiting.push_back(self.plan.requests[self.next_request].clone());
            self.next_request = (self.next_request + 1) % self.plan.requests.len();
            self.under_way += 1;
            if connection.started_ns.len() < self.plan.in_flight {
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
                    let before = connection.started_ns.len();
                    connection.receive(bytes, clock.now_ns(), measuring, &mut self.tally)?;
                    let after = connection.started_ns.len();
                    self.under_way -= (before - after) as u64;
                    if before >= self.plan.in_flight && after < self.plan.in_flight {
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
            self.under_way -= connection.started_ns.len() as u64;
            connection.started_ns.clear();
            self.ring.close(socket);
            self.tally.connections_lost += 1;
        }
        if self.connections.iter().any(|connection| connection.open) {
            return Ok(());
        }
        Err(Failure::said("the server has closed every connection"))
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
            tally.accepted_in_all += u64::from(is_success(status));
            if measuring {
                *tally.statuses.entry(status).or_default() += 1;
                tally.latencies.record(now_ns.saturating_sub(started_ns));
            }
        })?;
        if unasked { Err(Failure::said("the server sent an answer to no request")) } else { Ok(()) }
    }
}

impl Tally {
    /// Answers of success in the measured part.
    pub(crate) fn accepted(&self) -> u64 {
        self.statuses.iter().filter(|(status, _)| is_success(**status)).map(|(_, count)| count).sum()
    }

    /// Answers of success over the whole run.
    pub(crate) fn accepted_in_all(&self) -> u64 {
        self.accepted_in_all
    }

    /// Messages whose time had come and that were not sent when the run ended.
    pub(crate) fn behind(&self) -> u64 {
        self.behind
    }

    /// Adds the latencies.
    pub(crate) fn report_latency(&self, report: &mut Report) {
        self.latencies.report("latency", report);
    }

    /// Adds what should not have been.
    pub(crate) fn report_faults(&self, report: &mut Report) {
        for (status, count) in self.statuses.iter().filter(|(status, _)| !is_success(**status)) {
            report.fault(format!("answers_{status}"), *count);
        }
        report.fault("connections_lost", self.connections_lost);
    }
}

fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}
