//! Promise: of a hundred subscribers fifty that do not read delay none of the others and cost a bounded amount of memory; when
//! they wake they go on without a hole, as long as the log has what they missed.

use crate::broker::Broker;
use crate::deadline::wait_until;
use crate::reader::{Kind, Reader, Told};
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const STALLED: usize = 50;
const LIVE: usize = 50;
const PAYLOAD_BYTES: usize = 16 << 10;
const ROUNDS: u64 = 20;
const MESSAGES_PER_ROUND: u64 = 50;
const MESSAGES: u64 = ROUNDS * MESSAGES_PER_ROUND;
/// Bytes that the broker may grow by: the log, a window with its encodings on each core, and for each stalled reader what waits
/// for its connection. A queue of what the stalled ones have not read would take fifty times the log.
const GROWTH_BYTES_MAX: u64 = MESSAGES * PAYLOAD_BYTES as u64 * 2 + (100 << 20);

fn resident_bytes(broker: &Broker) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/statm", broker.process_id())).unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

fn kind_of(number: usize) -> Kind {
    [Kind::Sse, Kind::Plain][number % 2]
}

fn expect(reader: &mut Reader, expected: u64) {
    match reader.next() {
        Told::Message { offset, payload } => {
            assert!(offset == expected && payload.len() == PAYLOAD_BYTES, "{offset} instead of {expected}");
        }
        other => panic!("{other:?} instead of {expected}"),
    }
}

#[test]
fn the_others_go_on_and_the_stalled_catch_up() {
    let broker = Broker::start();
    broker.create_topic_with(json!({ "retention": { "max_messages": 100_000 } }), "t");
    let before = resident_bytes(&broker);
    let mut stalled: Vec<_> = (0..STALLED).map(|number| Reader::open(&broker, "t", "", kind_of(number))).collect();
    let live: Vec<_> = (0..LIVE).map(|number| Reader::open(&broker, "t", "", kind_of(number))).collect();
    broker.wait_for_subscribers("t", (STALLED + LIVE) as u64);
    let mut most = 0;
    // All live readers must have a round before the next one is published: one that a stalled reader delays stops the test.
    let rounds_read = AtomicU64::new(0);
    thread::scope(|scope| {
        for mut reader in live {
            let rounds_read = &rounds_read;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    (0..MESSAGES_PER_ROUND).for_each(|number| expect(&mut reader, round * MESSAGES_PER_ROUND + number));
                    rounds_read.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let payload = vec![b'x'; PAYLOAD_BYTES];
        let mut connection = broker.connect();
        for round in 1..=ROUNDS {
            for _ in 0..MESSAGES_PER_ROUND {
                connection.send_request("POST", "/topics/t/publish", &[], &payload);
                connection.response_to("POST").expect(202);
            }
            wait_until("everybody awake has read the round", || {
                most = most.max(resident_bytes(&broker));
                rounds_read.load(Ordering::SeqCst) == round * LIVE as u64
            });
        }
    });
    // Now the stalled ones wake, some at a time, so that they read the log from several places at once.
    for some in stalled.chunks_mut(10) {
        thread::scope(|waking| {
            let awake: Vec<_> = some
                .iter_mut()
                .map(|reader| waking.spawn(move || (0..MESSAGES).for_each(|offset| expect(reader, offset))))
                .collect();
            wait_until("they have caught up", || {
                most = most.max(resident_bytes(&broker));
                awake.iter().all(thread::ScopedJoinHandle::is_finished)
            });
        });
    }
    let grown = most.saturating_sub(before);
    println!("grown by {} MiB at most", grown >> 20);
    assert!(grown < GROWTH_BYTES_MAX, "the broker grew by {} MiB", grown >> 20);
    broker.publish("t", &vec![b'x'; PAYLOAD_BYTES]);
    stalled.iter_mut().for_each(|reader| expect(reader, MESSAGES));
}
