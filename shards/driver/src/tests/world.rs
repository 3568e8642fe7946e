//! A few cores' states joined by narrow lanes, and a front whose sessions note what they are told; on the test thread.

use bytes::Bytes;
use ringmain_engine::{Assignment, Reply};
use ringmain_model::{CoreId, Message, Offset, Retention, TopicConfig, TopicName};
use ringmain_uring::SocketId;

use crate::clock::Clock;
use crate::connection::ConnectionKey;
use crate::core::{Poisoned, State};
use crate::front::{Action, Delivery, Front, Io};
use crate::lane::{LaneLimits, connect};
use crate::request::{Answer, AnswerWhen, Notice, Protocol, Request, Requested, SlowReader, StartAt, Subscription};
use crate::seat::{Inventory, new_state};
use crate::start::DriverConfig;
use crate::window::WindowLimits;

/// Bytes that each message weighs on its way out: three of them use a connection's credit up.
const WEIGHT: usize = 100 << 10;
static WEIGHTS: [u8; WEIGHT] = [0; WEIGHT];

/// What a session saw.
#[derive(Default, Debug)]
pub(super) struct Seen {
    pub(super) subscribed_at: Option<u64>,
    /// Offsets in the order in which they came.
    pub(super) offsets: Vec<u64>,
    /// Gaps, and how many offsets had come before each.
    pub(super) gaps: Vec<(usize, u64, u64)>,
    pub(super) ended: bool,
    pub(super) refused: u32,
    pub(super) published: Vec<u64>,
    /// What a group gave: epoch and offset.
    pub(super) assigned: Vec<(u64, u64)>,
    /// What a fetch of a group got: offset and attempt.
    pub(super) pulled: Vec<(u64, u32)>,
}

/// Notes everything, and weighs each message.
pub(super) struct Notebook;

impl Front for Notebook {
    type Session = Seen;
    type Encoded = Option<Vec<u64>>;

    fn open(&mut self, _: &mut Io<'_>) -> Seen {
        Seen::default()
    }

    fn on_bytes(&mut self, _: &mut Seen, _: &[u8], _: &mut Io<'_>) {}

    fn on_end_of_input(&mut self, _: &mut Seen, _: &mut Io<'_>) {}

    fn on_answer(&mut self, seen: &mut Seen, _: u64, answer: Answer, _: &mut Io<'_>) {
        match answer {
            Answer::Reply(Reply::Published { offset, .. }) => seen.published.push(offset.0),
            Answer::Reply(Reply::Refused(_)) => seen.refused += 1,
            Answer::Reply(Reply::Pulled { assignments, .. }) => {
                let records = assignments.iter().flat_map(|given| &given.records);
                seen.pulled.extend(records.map(|record| (record.offset.0, record.attempt)));
            }
            _ => {}
        }
    }

    fn on_notice(&mut self, seen: &mut Seen, _: u32, notice: Notice, _: &mut Io<'_>) {
        match notice {
            Notice::Subscribed { high_water, .. } => seen.subscribed_at = Some(high_water.offset().0),
            Notice::Gap { requested: Requested::Offset(requested), resumed } => {
                seen.gaps.push((seen.offsets.len(), requested.0, resumed.0));
            }
            Notice::Gap { .. } => panic!("no reader brings an unreadable token"),
            Notice::Ended(_) => seen.ended = true,
            Notice::Joined { .. } | Notice::Moved { .. } | Notice::Lost { .. } => {}
            Notice::Refused(_) => seen.refused += 1,
        }
    }

    fn on_batch(&mut self, seen: &mut Seen, delivery: Delivery<'_, Option<Vec<u64>>>, io: &mut Io<'_>) -> Offset {
        let offsets: Vec<u64> = delivery.batch.records_from(delivery.from).map(|record| record.offset.0).collect();
        if delivery.from <= delivery.batch.base()
            && let Some(encoded) = delivery.encoded
        {
            let shared = encoded.get_or_insert_with(|| offsets.clone());
            assert_eq!(*shared, offsets, "an encoding belongs to its batch");
        }
        for _ in &offsets {
            io.send(Bytes::from_static(&WEIGHTS), 0, 1);
        }
        seen.offsets.extend(offsets);
        delivery.batch.end()
    }

    fn on_assigned(&mut self, seen: &mut Seen, _: &TopicName, assignment: &Assignment, io: &mut Io<'_>) {
        for record in &assignment.records {
            seen.assigned.push((assignment.epoch, record.offset.0));
            io.send(Bytes::from_static(&WEIGHTS), 0, 1);
        }
    }

    fn on_drained(&mut self, _: &mut Seen, _: &mut Io<'_>) {}

    fn on_timer(&mut self, _: &mut Seen, _: &mut Io<'_>) {}

    fn on_shutdown(&mut self, _: &mut Seen, _: &mut Io<'_>) {}

    fn on_close(&mut self, _: Seen) {}
}

/// Cores, and the connections opened on them.
pub(super) struct World {
    pub(super) cores: Vec<State<Notebook>>,
    next_socket: u32,
}

pub(super) fn topic(number: u8) -> TopicName {
    TopicName::new(&format!("topic-{number}")).unwrap()
}

impl World {
    /// `cores` cores with as many shards, and lanes so narrow that they are often full.
    pub(super) fn new(cores: u16, requests: usize) -> Self {
        let config = DriverConfig {
            address: ([127, 0, 0, 1], 0).into(),
            cores,
            shards: cores,
            connections_per_core_max: 1000,
            lane_requests_max: requests,
            shard_memory_bytes_max: 1 << 30,
            write_timeout_ms: 1000,
            drain_timeout_ms: 1000,
            storage: None,
        };
        let limits = LaneLimits { requests, pushes: 2, push_bytes: 1 << 20, bundles: 2 };
        let lanes = connect(cores, limits, &super::beds(cores));
        let clock = Clock::start();
        let states = lanes.into_iter().zip(0..).map(|(lanes, own)| {
            let inventory = Inventory::empty(CoreId(own), &config, &Poisoned::none_of(cores));
            let mut state = new_state(CoreId(own), &config, lanes, Notebook, clock, inventory);
            state.settings.window_limits = WindowLimits { bytes: 4096, batches: 3, core_bytes: 8192 };
            state
        });
        Self { cores: states.collect(), next_socket: 0 }
    }

    pub(super) fn open(&mut self, core: usize) -> ConnectionKey {
        let socket = SocketId::from_parts(self.next_socket, 0);
        self.next_socket += 1;
        let state = &mut self.cores[core];
        state.connections.insert(socket);
        let key = ConnectionKey(socket);
        state.connections.get_mut(key).unwrap().session = Some(Seen::default());
        key
    }

    pub(super) fn act(&mut self, core: usize, key: ConnectionKey, action: Action) {
        let state = &mut self.cores[core];
        state.actions.push(action);
        state.after_call(key);
    }

    pub(super) fn ask(&mut self, core: usize, key: ConnectionKey, what: Request) {
        self.act(core, key, Action::Ask { request: 0, what });
    }

    pub(super) fn create(&mut self, core: usize, key: ConnectionKey, name: TopicName, max_messages: u64) {
        let retention = Retention { max_messages, ..Retention::default() };
        let config = TopicConfig { retention, ..TopicConfig::default() };
        self.ask(core, key, Request::Create { name, partitions: 1, config });
    }

    pub(super) fn publish(&mut self, core: usize, key: ConnectionKey, name: TopicName) {
        self.ask(
            core,
            key,
            Request::Publish { name, partition: 0, message: Message::of("m"), answer: AnswerWhen::Durable },
        );
    }

    pub(super) fn subscribe(&mut self, core: usize, key: ConnectionKey, name: TopicName, from: Option<u64>) {
        let start = from.map_or(StartAt::Tail, |offset| StartAt::Offset(Offset(offset)));
        self.act(
            core,
            key,
            Action::Subscribe(Subscription {
                number: 0,
                name,
                partition: 0,
                start,
                protocol: Protocol::Sse,
                counts: true,
                slow: SlowReader::Lag,
            }),
        );
    }

    pub(super) fn turn(&mut self, core: usize) {
        let state = &mut self.cores[core];
        state.take_lanes();
        state.settle();
        state.lanes.flush();
    }

    /// The peer of a connection takes what is queued.
    pub(super) fn take_output(&mut self, core: usize, key: ConnectionKey) {
        let state = &mut self.cores[core];
        let Some(connection) = state.connections.get_mut(key) else { return };
        connection.link.output.start_send(|queue| queue.drain(..).map(|bytes| bytes.len()).sum());
        state.on_sent(key);
    }

    pub(super) fn close(&mut self, core: usize, key: ConnectionKey) -> Seen {
        let state = &mut self.cores[core];
        state.end_parts(key);
        state.connections.remove(key).unwrap().session.unwrap()
    }

    pub(super) fn seen(&mut self, core: usize, key: ConnectionKey) -> &mut Seen {
        self.cores[core].connections.get_mut(key).unwrap().session.as_mut().unwrap()
    }

    /// Turns all cores until nothing more happens.
    pub(super) fn rest(&mut self, connections: &[(usize, ConnectionKey)]) {
        for _ in 0..500 {
            for core in 0..self.cores.len() {
                self.turn(core);
            }
            for (core, key) in connections {
                self.take_output(*core, *key);
            }
        }
    }
}
