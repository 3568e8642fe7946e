//! Promise: `slow=close` and `slow=skip` are for those who follow: a replay gets all that is kept, however slowly it reads, and
//! whatever is published meanwhile.

use crate::broker::Broker;
use crate::reader::{KINDS, Reader, Told};

const PAYLOAD: [u8; 4000] = [b'x'; 4000];
/// 12 MB, three times what a core's window holds, and as much again while they read.
const MESSAGES: u64 = 3000;

#[test]
fn a_replay_that_is_outrun_gets_everything() {
    let broker = Broker::start();
    broker.create_topic_of("t", 100_000);
    broker.publish_many("t", &PAYLOAD, MESSAGES as usize);
    let open = |slow: &str| KINDS.map(|kind| Reader::open(&broker, "t", &format!("?from_offset=0&slow={slow}"), kind));
    let mut readers: Vec<_> = ["close", "skip"].into_iter().flat_map(open).collect();
    for reader in &mut readers {
        (0..10).for_each(|offset| assert_eq!(reader.offset(), offset));
    }
    // None of them reads now, and the window moves on three times.
    broker.publish_many("t", &PAYLOAD, MESSAGES as usize);
    for reader in &mut readers {
        (10..MESSAGES).for_each(|offset| assert_eq!(reader.offset(), offset));
    }
    assert_eq!(broker.stats("t")["subscriber_count"], readers.len() as u64);
}

#[test]
fn who_has_caught_up_goes_on_live() {
    let broker = Broker::start();
    broker.create_topic_of("t", 100_000);
    broker.publish_many("t", &PAYLOAD, MESSAGES as usize);
    for slow in ["close", "skip"] {
        let end = broker.stats("t")["latest_offset"].as_u64().unwrap() + 1;
        let query = format!("?from_offset={}&slow={slow}", end - MESSAGES);
        let mut readers = KINDS.map(|kind| Reader::open(&broker, "t", &query, kind));
        for reader in &mut readers {
            (end - MESSAGES..end).for_each(|offset| assert_eq!(reader.offset(), offset));
        }
        broker.publish("t", b"live");
        for reader in &mut readers {
            assert_eq!(reader.next(), Told::Message { offset: end, payload: b"live".to_vec() }, "{slow}");
        }
    }
}
