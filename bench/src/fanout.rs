//! One publisher, many subscribers: counts deliveries and proves that each subscriber got each message once and in
//! order, on the generator's one thread.

mod ledger;
mod stamp;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use ringmain_uring::{Event, Ring, SocketId};

use crate::clock::{Clock, nanoseconds};
use crate::command_line::{FanoutOptions, Protocol, Until};
use crate::connect::connect;
use crate::failure::Failure;
use crate::fanout::ledger::Ledger;
use crate::fanout::stamp::{STAMP_BYTES, Stamp};
use crate::latency::Latencies;
use crate::meter::{Meter, Stage};
use crate::report::Report;
use crate::ring::{ring_for, sleep};
use crate::scan::{EventScanner, ResponseScanner};
use crate::schedule::Pace;
use crate::setup::{create_topics, publish_head, socket_request, subscribe_request};

/// Subscriptions that are asked for before their answers are waited for: fewer than a listener's backlog.
const TOGETHER: usize = 128;

/// How long the server may take to accept them, and to deliver what is under way at the end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Messages under way at which an open loop gives up: the server is too slow for the rate.
const UNDER_WAY_MAX: u64 = 1 << 20;

/// The most that goes into one send.
const SEND_BYTES_MAX: usize = 1 << 20;

/// The one connection that publishes.
struct Publisher {
    socket: SocketId,
    head: Vec<u8>,
    waiting: VecDeque<Bytes>,
    answers: ResponseScanner,
    /// For each message without an answer the time from which its latency counts.
    started_ns: VecDeque<u64>,
    answered: u64,
    refused: u64,
}

struct Run<'a> {
    options: &'a FanoutOptions,
    ring: Ring,
    /// The subscriber in each slot of the ring; none for the publisher's.
    subscribers: Vec<Option<(usize, EventScanner)>>,
    subscribed: usize,
    publisher: Publisher,
    run_number: u16,
    ledger: Ledger,
    pace: Pace,
    measuring: bool,
    messages: u64,
    deliveries: u64,
    foreign: u64,
    delivery_latencies: Latencies,
    answer_latencies: Latencies,
}

/// Runs the measurement.
///
/// # Errors
///
/// When the server cannot be reached, ends a connection, or is too slow for an open loop.
pub(crate) fn run(options: &FanoutOptions, clock: &Clock) -> Result<Report, Failure> {
    create_topics(options.place.server, std::slice::from_ref(&options.topic), options.storage)?;
    let mut run = Run::start(options)?;
    run.subscribe_all(clock)?;
    let start_ns = clock.now_ns();
    run.pace = Pace::of(options.rate, start_ns);
    let mut meter = Meter::new(start_ns, options.span.warmup_s, options.span.duration_s, options.place.server_pid);
    let behind = loop {
        let now_ns = clock.now_ns();
        let stage = meter.advance(now_ns)?;
        run.measuring = meter.is_measuring();
        if stage == Stage::Over {
            break run.pace.behind(now_ns);
        }
        run.issue(now_ns)?;
        let due_ns = run.pace.next_due_ns().unwrap_or(u64::MAX);
        run.turn(clock, sleep(now_ns, due_ns.min(meter.next_change_ns())))?;
    };
    run.finish(clock)?;
    Ok(run.report(&meter, behind))
}

impl<'a> Run<'a> {
    fn start(options: &'a FanoutOptions) -> Result<Run<'a>, Failure> {
        let server = options.place.server;
        let count = options.subscribers as usize;
        let mut ring = ring_for(count + 1)?;
        let socket = ring.adopt(connect(server, 0)?)?;
        Ok(Run {
            options,
            ring,
            subscribers: Vec::new(),
            subscribed: 0,
            publisher: Publisher {
                socket,
                head: publish_head(server, &options.topic, options.payload_bytes as usize),
                waiting: VecDeque::new(),
                answers: ResponseScanner::default(),
                started_ns: VecDeque::new(),
                answered: 0,
                refused: 0,
            },
            // Two runs at once on one topic have different processes.
            run_number: u16::try_from(std::process::id() & 0xffff).unwrap_or(0),
            ledger: Ledger::new(count),
            pace: Pace::Closed,
            measuring: false,
            messages: 0,
            deliveries: 0,
            foreign: 0,
            delivery_latencies: Latencies::new()?,
            answer_latencies: Latencies::new()?,
        })
    }

    /// Opens all subscriptions and waits until the server has accepted each.
    fn subscribe_all(&mut self, clock: &Clock) -> Result<(), Failure> {
        let server = self.options.place.server;
        let request = Bytes::from(match self.options.protocol {
            Protocol::Sse => subscribe_request(server, &self.options.topic),
            Protocol::Ws => socket_request(server, &self.options.topic),
        });
        let count = self.options.subscribers as usize;
        for number in 0..count {
            let socket = self.ring.adopt(connect(server, number + 1)?)?;
            if self.subscribers.len() <= socket.slot() {
                self.subscribers.resize_with(socket.slot() + 1, || None);
            }
            self.subscribers[socket.slot()] = Some((number, EventScanner::new()));
            self.ring.send(socket, &mut VecDeque::from([request.clone()]), SEND_BYTES_MAX);
            if (number + 1) % TOGETHER != 0 && number + 1 != count {
                continue;
            }
            self.run_until(clock, "accept every subscription", |run| run.subscribed > number)?;
        }
        Ok(())
    }

    /// Takes what comes until the condition holds.
    fn run_until(&mut self, clock: &Clock, what: &str, done: impl Fn(&Run<'_>) -> bool) -> Result<(), Failure> {
        let deadline_ns = clock.now_ns().saturating_add(nanoseconds(PATIENCE));
        while !done(self) {
            let now_ns = clock.now_ns();
            if now_ns >= deadline_ns {
                return Err(Failure::said(format!("the server did not {what} within {} s", PATIENCE.as_secs())));
            }
            self.turn(clock, Duration::from_nanos(deadline_ns - now_ns))?;
        }
        Ok(())
    }

    /// Publishes what may be published now.
    fn issue(&mut self, now_ns: u64) -> Result<(), Failure> {
        while self.has_room() {
            let Some(started_ns) = self.pace.take(now_ns) else { break };
            let number = self.ledger.publish();
            let stamp = Stamp { run: self.run_number, number, started_ns };
            self.publisher.push(stamp, self.options.payload_bytes as usize);
        }
        if self.ledger.published() - self.ledger.delivered() > UNDER_WAY_MAX {
            return Err(Failure::said("the server is too slow for this rate: a million messages are under way"));
        }
        self.publisher.send(&mut self.ring);
        Ok(())
    }

    /// Whether another message may be under way. In an open loop the schedule alone decides.
    fn has_room(&self) -> bool {
        if self.options.rate.is_some() {
            return true;
        }
        let done = match self.options.until {
            Until::Delivered => self.ledger.delivered().min(self.publisher.answered),
            Until::Answered => self.publisher.answered,
        };
        self.ledger.published() - done < u64::from(self.options.outstanding)
    }

    fn turn(&mut self, clock: &Clock, wait: Duration) -> Result<(), Failure> {
        self.ring.turn(Some(wait))?;
        while let Some(event) = self.ring.next_event() {
            match event {
                Event::Received { socket, bytes } if socket == self.publisher.socket => {
                    let measured = self.measuring.then_some(&mut self.answer_latencies);
                    self.publisher.receive(bytes, clock.now_ns(), measured, &mut self.ledger)?;
                }
                Event::Received { socket, bytes } => {
                    let now_ns = clock.now_ns();
                    let Some((subscriber, scanner)) =
                        self.subscribers.get_mut(socket.slot()).and_then(|subscriber| subscriber.as_mut())
                    else {
                        continue;
                    };
                    let was_subscribed = scanner.is_subscribed();
                    scanner.feed(bytes, |message| match Stamp::of_base64(message.payload_prefix) {
                        Some(stamp) if stamp.run == self.run_number => {
                            self.ledger.deliver(*subscriber, stamp.number, message.offset);
                            if self.measuring {
                                self.deliveries += 1;
                                self.messages += u64::from(*subscriber == 0);
                                self.delivery_latencies.record(now_ns.saturating_sub(stamp.started_ns));
                            }
                        }
                        _ => self.foreign += 1,
                    })?;
                    self.subscribed += usize::from(!was_subscribed && scanner.is_subscribed());
                }
                Event::Sent { socket } if socket == self.publisher.socket => {}
                Event::ReceiveEnded { error, .. } => {
                    let reason = error.map_or_else(|| "it ended".to_owned(), |error| error.to_string());
                    return Err(Failure::said(format!("the server closed a connection: {reason}")));
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
        self.publisher.send(&mut self.ring);
        Ok(())
    }

    /// Waits for what is under way. What has not come when patience ends is missing, which the report tells.
    fn finish(&mut self, clock: &Clock) -> Result<(), Failure> {
        let deadline_ns = clock.now_ns().saturating_add(nanoseconds(PATIENCE));
        while self.ledger.delivered() < self.ledger.published() || !self.publisher.started_ns.is_empty() {
            let now_ns = clock.now_ns();
            if now_ns >= deadline_ns {
                break;
            }
            self.turn(clock, Duration::from_nanos(deadline_ns - now_ns))?;
        }
        Ok(())
    }

    fn report(&self, meter: &Meter, behind: u64) -> Report {
        let options = self.options;
        let mut report = Report::new("fanout");
        report.count("subscribers", options.subscribers.into());
        report.word("protocol", if options.protocol == Protocol::Sse { "sse" } else { "ws" });
        report.count("payload_bytes", options.payload_bytes.into());
        if options.rate.is_none() {
            report.count("outstanding", options.outstanding.into());
            let until = if options.until == Until::Delivered { "delivered" } else { "answered" };
            report.word("outstanding_until", until);
        }
        report.count("messages", self.messages);
        meter.report("delivery", "deliveries", self.deliveries, &mut report);
        self.delivery_latencies.report("delivery_latency", &mut report);
        self.answer_latencies.report("answer_latency", &mut report);
        report.word("latency_basis", self.pace.latency_basis());
        if let Some(rate) = options.rate {
            report.count("rate_intended_per_s", rate);
            report.count("messages_behind_at_end", behind);
        }
        let faults = self.ledger.faults_at_end();
        report.count("messages_published_in_all", self.ledger.published());
        report.fault("deliveries_missing", faults.missing);
        report.fault("deliveries_repeated", faults.repeated);
        report.fault("deliveries_misplaced", faults.misplaced);
        report.fault("deliveries_foreign", self.foreign);
        let controls = self.subscribers.iter().flatten().map(|(_, scanner)| scanner.controls()).sum();
        report.fault("control_events", controls);
        report.fault("publishes_refused", self.publisher.refused);
        report
    }
}

impl Publisher {
    fn push(&mut self, stamp: Stamp, payload_bytes: usize) {
        let mut request = Vec::with_capacity(self.head.len() + payload_bytes);
        request.extend_from_slice(&self.head);
        request.extend_from_slice(&stamp.to_bytes());
        request.resize(self.head.len() + payload_bytes.max(STAMP_BYTES), b'x');
        self.waiting.push_back(Bytes::from(request));
        self.started_ns.push_back(stamp.started_ns);
    }

    fn send(&mut self, ring: &mut Ring) {
        if !self.waiting.is_empty() && !ring.sending(self.socket) {
            ring.send(self.socket, &mut self.waiting, SEND_BYTES_MAX);
        }
    }

    /// Counts the answers in these bytes; they come in the order of the messages.
    fn receive(
        &mut self,
        bytes: &[u8],
        now_ns: u64,
        mut latencies: Option<&mut Latencies>,
        ledger: &mut Ledger,
    ) -> Result<(), Failure> {
        let Publisher { answers, started_ns, answered, refused, .. } = self;
        let mut unasked = false;
        answers.feed(bytes, |status| {
            let Some(started_ns) = started_ns.pop_front() else {
                unasked = true;
                return;
            };
            if !(200..300).contains(&status) {
                ledger.refuse(*answered);
                *refused += 1;
            }
            *answered += 1;
            if let Some(latencies) = latencies.as_deref_mut() {
                latencies.record(now_ns.saturating_sub(started_ns));
            }
        })?;
        if unasked { Err(Failure::said("the server sent an answer to no request")) } else { Ok(()) }
    }
}
