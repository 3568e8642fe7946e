//! Promise: a log that was damaged at its end is cut there; one that was damaged in the middle loses what the damage touched, tells of it,
//! and serves all the rest. Damage is never a panic and never other bytes.

use crate::broker::Broker;
use crate::chance::{Chance, scaled};
use crate::deadline::wait_until;
use crate::plenty::offsets;
use crate::stored_directory::{Batch, Bytes, DataDirectory, Everything};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;

const TOPICS: [&str; 3] = ["a", "b", "c"];
const MESSAGES: u64 = 12;

fn payload(topic: &str, number: u64) -> Vec<u8> {
    format!("{topic}{number}").repeat(40).into_bytes()
}

/// Topics whose messages came in turn, each in a commit batch of its own, of a broker that was killed.
fn written() -> DataDirectory {
    let data = DataDirectory::new();
    let broker = data.start();
    TOPICS.iter().for_each(|topic| broker.create_logged_topic(topic));
    // The first checkpoints write the first records again. From here on there are none.
    wait_until("both slots are written", || data.marked(b"RMSLOT\0\0").len() == 2);
    for number in 0..MESSAGES {
        TOPICS.iter().for_each(|topic| assert_eq!(broker.publish(topic, &payload(topic, number)), number));
    }
    drop(broker);
    data
}

/// The batch in which a message stands alone.
fn batch_with(batches: &[Batch], topic: &str, number: u64) -> Batch {
    let wanted = payload(topic, number);
    let holds = |batch: &&Batch| {
        let bytes = Bytes::of(&batch.file).unwrap().text(batch.position, batch.length as usize).unwrap();
        bytes.windows(wanted.len()).any(|part| part == wanted)
    };
    batches.iter().rev().find(holds).unwrap().clone()
}

/// Panics when a message has other bytes than were published.
#[track_caller]
fn expect_true(topic: &str, everything: &Everything) {
    for (offset, bytes) in &everything.messages {
        assert_eq!(*bytes, payload(topic, *offset), "{topic} {offset}");
    }
}

/// Panics unless the whole topic is there.
#[track_caller]
fn expect_whole(broker: &Broker, topic: &str, end: u64) {
    let everything = broker.everything(topic, 0);
    expect_true(topic, &everything);
    assert_eq!(everything.offsets(), (0..end).collect::<Vec<_>>(), "{topic}");
}

/// What somebody does to a file.
type Damage = Box<dyn Fn(&Bytes)>;

/// Ways to damage a batch at the end.
fn ends(last: &Batch) -> Vec<(String, Damage)> {
    let (start, end) = (last.position, last.position + last.length);
    let (length, block_end) = (last.length as usize, end.next_multiple_of(4096));
    let mut ends: Vec<(String, Damage)> = Vec::new();
    for from in [start, start + 64, end - 1] {
        ends.push((format!("zeros from {from}"), Box::new(move |bytes| bytes.zero(from..block_end))));
    }
    for place in [start, start + 5, start + 17, start + 45, end - 1] {
        ends.push((format!("a flip at {place}"), Box::new(move |bytes| bytes.flip(place, 3))));
    }
    ends.push(("ones".to_owned(), Box::new(move |bytes| bytes.write(start, &vec![0xff; length]))));
    ends
}

#[test]
fn a_damaged_end_is_cut() {
    let written = written();
    let last = batch_with(&written.batches(), "c", MESSAGES - 1);
    assert_eq!(written.batches().last(), Some(&last));
    for (what, damage) in ends(&last) {
        println!("{what}");
        let data = written.copy();
        let file = data.path().join(last.file.strip_prefix(written.path()).unwrap());
        damage(&Bytes::of(&file).unwrap());
        let broker = data.start();
        expect_whole(&broker, "a", MESSAGES);
        expect_whole(&broker, "b", MESSAGES);
        expect_whole(&broker, "c", MESSAGES - 1);
        // It goes on from there, and the next start finds nothing that is wrong.
        assert_eq!(broker.publish("c", &payload("c", MESSAGES - 1)), MESSAGES - 1);
        assert_eq!(broker.publish("a", &payload("a", MESSAGES)), MESSAGES);
        drop(broker);
        let broker = data.start();
        expect_whole(&broker, "a", MESSAGES + 1);
        expect_whole(&broker, "b", MESSAGES);
        expect_whole(&broker, "c", MESSAGES);
    }
}

#[test]
fn a_log_that_is_shorter_is_told() {
    let written = written();
    let last = batch_with(&written.batches(), "c", MESSAGES - 1);
    for length in [last.position, last.position + 10, last.position + last.length - 1, last.position + 4096] {
        let data = written.copy();
        let file = data.path().join(last.file.strip_prefix(written.path()).unwrap());
        fs::OpenOptions::new().write(true).open(file).unwrap().set_len(length).unwrap();
        let broker = data.start();
        let is_whole = length >= last.position + last.length;
        expect_whole(&broker, "a", MESSAGES);
        expect_whole(&broker, "b", MESSAGES);
        expect_whole(&broker, "c", MESSAGES - u64::from(!is_whole));
        assert!(broker.log().contains("WARN") || broker.log().contains("ERROR"), "nothing was said: {}", broker.log());
        let next = broker.publish("c", b"goes on");
        assert_eq!(next, MESSAGES - u64::from(!is_whole));
    }
}

#[test]
fn a_hole_in_the_middle_is_told_and_touches_no_other_topic() {
    let written = written();
    for (topic, number) in [("a", 0), ("b", MESSAGES / 2), ("c", MESSAGES - 3)] {
        let hole = batch_with(&written.batches(), topic, number);
        let places = [hole.position + 20, hole.position + hole.length - 1];
        for place in places {
            let data = written.copy();
            let file = data.path().join(hole.file.strip_prefix(written.path()).unwrap());
            Bytes::of(&file).unwrap().flip(place, 0);
            println!("{topic} {number} at {place}");
            let broker = data.start();
            let log = broker.log();
            assert!(log.contains("WARN") || log.contains("ERROR"), "nothing was said: {log}");
            for other in TOPICS.iter().filter(|other| **other != topic) {
                expect_whole(&broker, other, MESSAGES);
            }
            let touched = broker.everything(topic, 0);
            expect_true(topic, &touched);
            assert!(touched.offsets().starts_with(&(0..number).collect::<Vec<_>>()), "{touched:?}");
        }
    }
}

#[test]
fn a_topic_with_a_hole_takes_nothing_more_and_may_be_replaced() {
    let written = written();
    let hole = batch_with(&written.batches(), "b", 4);
    let data = written.copy();
    let file = data.path().join(hole.file.strip_prefix(written.path()).unwrap());
    Bytes::of(&file).unwrap().flip(hole.position + 30, 0);
    for round in 0..3 {
        let broker = data.start();
        for topic in ["a", "c"] {
            expect_whole(&broker, topic, MESSAGES + round);
            assert_eq!(broker.publish(topic, &payload(topic, MESSAGES + round)), MESSAGES + round);
        }
        // An offset that was given out before must not have other bytes now.
        let refused = broker.request("POST", "/topics/b/publish", &[], b"x").expect_error(503, "storage_failed");
        assert!(refused.text().contains("damaged"), "{}", refused.text());
        assert_eq!(broker.everything("b", 0).offsets(), [0, 1, 2, 3]);
    }
    let broker = data.start();
    broker.delete_topic("b");
    broker.create_logged_topic("b");
    assert_eq!(broker.publish("b", &payload("b", 0)), 0);
    drop(broker);
    for _ in 0..2 {
        let broker = data.start();
        expect_whole(&broker, "b", 1);
        expect_whole(&broker, "a", MESSAGES + 3);
        expect_whole(&broker, "c", MESSAGES + 3);
    }
}

/// What groups did with a topic before its last two messages were lost.
type GroupWork = fn(&Broker, u64);

/// Each proves by itself that the last message was there.
const GROUP_WORK: [(&str, GroupWork); 4] = [
    ("all is acknowledged", |broker, end| {
        let _ = broker.group_post("b", "g", "fetch", json!({ "max": end, "from_offset": 0 }));
        broker.group_post("b", "g", "ack", json!({ "offsets": (0..end).collect::<Vec<_>>() }));
    }),
    ("the last one alone is acknowledged", |broker, end| {
        let _ = broker.group_post("b", "g", "fetch", json!({ "max": end, "from_offset": 0 }));
        broker.group_post("b", "g", "ack", json!({ "offsets": [end - 1] }));
    }),
    ("the last one was given out twice", |broker, end| {
        let _ = broker.group_post("b", "g", "fetch", json!({ "max": end, "from_offset": 0 }));
        broker.group_post("b", "g", "nack", json!({ "offsets": [end - 1], "delay_ms": 0 }));
        assert_eq!(offsets(&broker.group_post("b", "g", "fetch", json!({ "max": 1 }))), [end - 1]);
        broker.group_post("b", "g", "ack", json!({ "offsets": [0] }));
    }),
    ("a group that is deleted began at the end", |broker, _| {
        broker.group_post("b", "gone", "fetch", json!({ "max": 1 }));
        broker.request("DELETE", "/topics/b/groups/gone", &[], b"").expect(200);
    }),
];

fn lose_last_two(data: &DataDirectory, topic: &str) {
    let batches = data.batches();
    for number in [MESSAGES - 2, MESSAGES - 1] {
        let lost = batch_with(&batches, topic, number);
        Bytes::of(&lost.file).unwrap().flip(lost.position + 30, 0);
    }
}

#[test]
fn what_groups_know_of_is_never_given_out_again() {
    let written = written();
    for (what, work) in GROUP_WORK {
        println!("{what}");
        let data = written.copy();
        let broker = data.start();
        work(&broker, MESSAGES);
        broker.publish("a", &payload("a", MESSAGES));
        drop(broker);
        // The last two of the topic are lost, and what came behind them is there.
        lose_last_two(&data, "b");
        for round in 0..3 {
            let broker = data.start();
            let log = broker.log();
            assert!(log.contains("records are lost") && log.contains("\"topic\":\"b\""), "{log}");
            expect_whole(&broker, "a", MESSAGES + 1);
            expect_whole(&broker, "c", MESSAGES);
            let next = MESSAGES + round;
            assert_eq!(broker.publish("b", &payload("b", next)), next, "an offset was given out before");
            let everything = broker.everything("b", 0);
            expect_true("b", &everything);
            everything.expect_no_silent_loss(next + 1);
            assert_eq!(everything.offsets(), (0..MESSAGES - 2).chain(MESSAGES..=next).collect::<Vec<_>>());
            // The group gets what is new, and none that it has acknowledged.
            wait_until("the group has the new one", || {
                let page = broker.group_post("b", "g", "fetch", json!({ "max": 50, "from_offset": 0 }));
                let taken = offsets(&page);
                assert!(!taken.iter().any(|offset| (MESSAGES - 2..MESSAGES).contains(offset)), "{taken:?}");
                broker.group_post("b", "g", "ack", json!({ "offsets": taken }));
                taken.last() == Some(&next)
            });
        }
    }
}

#[test]
fn a_topic_with_a_gap_moves_to_segments_like_any_other() {
    let written = written();
    let broker = written.start();
    GROUP_WORK[0].1(&broker, MESSAGES);
    drop(broker);
    lose_last_two(&written, "b");
    // Enough that checkpoints release the log in which it all was.
    let (count, large) = (700, vec![b'x'; 200_000]);
    for round in 0..2 {
        let broker = written.start();
        for number in 0..count {
            assert_eq!(broker.publish("b", &large), MESSAGES + round * count + number);
        }
        wait_until("a topic segment is there", || !written.marked(b"RMTOPSEG").is_empty());
    }
    for _ in 0..2 {
        let broker = written.start();
        let everything = broker.everything("b", 0);
        let end = MESSAGES + 2 * count;
        everything.expect_no_silent_loss(end);
        assert_eq!(everything.offsets(), (0..MESSAGES - 2).chain(MESSAGES..end).collect::<Vec<_>>());
        let is_true = |(offset, bytes): &(u64, Vec<u8>)| match *offset {
            offset if offset < MESSAGES => *bytes == payload("b", offset),
            _ => *bytes == large,
        };
        assert!(everything.messages.iter().all(is_true));
        expect_whole(&broker, "a", MESSAGES);
        expect_whole(&broker, "c", MESSAGES);
    }
}

#[test]
fn what_is_published_after_a_hole_outlives_the_log_around_it() {
    let written = written();
    let hole = batch_with(&written.batches(), "b", 4);
    let data = written.copy();
    let file = data.path().join(hole.file.strip_prefix(written.path()).unwrap());
    Bytes::of(&file).unwrap().flip(hole.position + 30, 0);
    // Enough that checkpoints release the log in which the hole is.
    let count = 700;
    for round in 0..2 {
        let broker = data.start();
        broker.create_logged_topic(&format!("large{round}"));
        for _ in 0..count {
            broker.publish(&format!("large{round}"), &[b'x'; 200_000]);
        }
    }
    let broker = data.start();
    assert_eq!(broker.everything("b", 0).offsets(), [0, 1, 2, 3]);
    broker.request("POST", "/topics/b/publish", &[], b"x").expect_error(503, "storage_failed");
    for topic in ["a", "c"] {
        expect_whole(&broker, topic, MESSAGES);
    }
    for round in 0..2 {
        assert_eq!(broker.stats(&format!("large{round}"))["message_count"], count);
    }
    let kept = fs::read_dir(file.parent().unwrap()).unwrap();
    let kept = kept.filter_map(|entry| fs::read(entry.unwrap().path()).ok());
    let wanted = payload("b", 9);
    let is_kept = kept.into_iter().any(|bytes| bytes.windows(wanted.len()).any(|part| part == wanted));
    assert!(is_kept, "bytes of a topic that was set aside are deleted by nobody but a person");
}

#[test]
fn a_flip_anywhere_is_no_panic_and_no_other_bytes() {
    let written = written();
    let mut chance = Chance::for_test();
    let marks: [&[u8; 8]; 2] = [b"RMLOGSEG", b"RMSLOT\0\0"];
    let ends: BTreeMap<_, _> = written.batches().iter().fold(BTreeMap::new(), |mut ends, batch| {
        ends.insert(batch.file.clone(), batch.position + batch.length);
        ends
    });
    for _ in 0..scaled(10) {
        let data = written.copy();
        for _ in 0..=chance.below(3) {
            let mark = chance.pick(&marks);
            let file = chance.pick(&written.marked(mark)).clone();
            let used = ends.get(&file).copied().unwrap_or(4096);
            let place = chance.below(used as usize) as u64;
            let copied = data.path().join(file.strip_prefix(written.path()).unwrap());
            println!("{} at {place}", copied.display());
            Bytes::of(&copied).unwrap().flip(place, chance.below(8) as u32);
        }
        let before = data.contents();
        if data.try_start().is_err() {
            assert!(data.contents() == before, "a start that is refused changes nothing");
            continue;
        }
        let broker = data.start();
        for topic in broker.get("/topics").expect(200).data().as_array().unwrap() {
            let topic = topic["name"].as_str().unwrap();
            expect_true(topic, &broker.everything(topic, 0));
        }
    }
}
