//! Promise: what is damaged in a topic's segments is told as a gap and logged; the rest of the topic, and all other topics, are served.

use crate::broker::Broker;
use crate::deadline::wait_until;
use crate::stored_directory::{Bytes, DataDirectory, Everything};
use std::fs;
use std::path::{Path, PathBuf};

const SEGMENT: &[u8; 8] = b"RMTOPSEG";

const MESSAGE_BYTES: usize = 100_000;

fn payload(topic: &str, number: u64) -> Vec<u8> {
    let mut bytes = format!("{topic} {number} ").into_bytes();
    bytes.resize(MESSAGE_BYTES, b'.');
    bytes
}

/// Two topics, each with several sealed segments, of a broker that was killed; and how many messages each has.
fn written() -> (DataDirectory, u64) {
    let data = DataDirectory::new();
    let broker = start(&data);
    broker.create_logged_topic("a");
    broker.create_logged_topic("b");
    broker.create_logged_topic("small");
    broker.publish_numbers("small", 0..10);
    let mut count = 0;
    wait_until("topic segments are there", || {
        for _ in 0..20 {
            ["a", "b"].iter().for_each(|topic| assert_eq!(broker.publish(topic, &payload(topic, count)), count));
            count += 1;
        }
        segments(&data, "a").len() >= 3 && segments(&data, "b").len() >= 3
    });
    // The checkpoint that names them, or another one: what no checkpoint names is nothing.
    let checkpoints = || -> u64 {
        data.marked(b"RMSLOT\0\0").iter().map(|slot| Bytes::of(slot).unwrap().number(24, 8)).max().unwrap()
    };
    let before = checkpoints();
    wait_until("a checkpoint names them", || checkpoints() > before || checkpoints() > 2);
    drop(broker);
    (data, count)
}

/// Segments of a topic with their base offsets, in order.
fn segments(data: &DataDirectory, topic: &str) -> Vec<(u64, PathBuf)> {
    let mut segments: Vec<_> = data
        .marked(SEGMENT)
        .into_iter()
        .filter_map(|path| {
            let bytes = Bytes::of(&path)?;
            let is_its_own =
                bytes.number(80, 2) == topic.len() as u64 && bytes.text(82, topic.len())? == topic.as_bytes();
            is_its_own.then(|| (bytes.number(24, 8), path))
        })
        .collect();
    segments.sort();
    segments
}

#[track_caller]
fn expect_true(topic: &str, everything: &Everything) {
    for (offset, bytes) in &everything.messages {
        assert!(*bytes == payload(topic, *offset), "{topic} {offset}: {:?}", String::from_utf8_lossy(&bytes[..20]));
    }
}

/// Panics unless everything but the lost offsets is served, and these are told.
#[track_caller]
fn expect_all_but(broker: &Broker, topic: &str, count: u64, may_be_lost: std::ops::Range<u64>) -> u64 {
    let everything = broker.everything(topic, 0);
    expect_true(topic, &everything);
    everything.expect_no_silent_loss(count);
    let offsets = everything.offsets();
    let lost: Vec<_> = (0..count).filter(|offset| offsets.binary_search(offset).is_err()).collect();
    assert!(lost.iter().all(|offset| may_be_lost.contains(offset)), "{may_be_lost:?}: {lost:?}");
    lost.len() as u64
}

/// Positions and offsets of the chunks of a segment, from its chunks' headers.
fn chunks(path: &Path) -> Vec<(u64, std::ops::Range<u64>)> {
    let bytes = Bytes::of(path).unwrap();
    let (mut chunks, mut position) = (Vec::new(), 4096);
    while bytes.text(position + 8, 4).as_deref() == Some(b"RMCH") {
        let (base, count) = (bytes.number(position + 32, 8), bytes.number(position + 40, 4));
        chunks.push((position, base..base + count));
        position += bytes.number(position + 4, 4).next_multiple_of(4096);
    }
    chunks
}

fn index(path: &Path) -> u64 {
    let bytes = Bytes::of(path).unwrap();
    let blocks = (1..bytes.bytes() / 4096).map(|block| block * 4096);
    blocks.rev().find(|position| bytes.text(*position, 8).as_deref() == Some(b"RMTOPIDX")).unwrap()
}

fn start(data: &DataDirectory) -> Broker {
    let setup = data.setup().flag("--shards", 1).flag("--wal-segment-size", 4 << 20);
    setup.flag("--wal-max-segments", 100).start()
}

#[test]
fn damage_costs_what_it_touches_and_no_more() {
    let (written, count) = written();
    let second = |data: &DataDirectory| segments(data, "a")[1].clone();
    let (_, path) = second(&written);
    let chunks = chunks(&path);
    assert!(chunks.len() > 2, "{chunks:?}");
    let all = chunks[0].1.start..chunks.last().unwrap().1.end;
    let (position, offsets) = chunks[1].clone();
    let index = index(&path);
    type Damage = Box<dyn Fn(&PathBuf)>;
    let flip = |place: u64| -> Damage { Box::new(move |path| Bytes::of(path).unwrap().flip(place, 2)) };
    let cases: Vec<(&str, Damage, std::ops::Range<u64>, bool)> = vec![
        ("its header, which no start reads", flip(20), 0..0, false),
        ("the header of a chunk", flip(position + 20), offsets.clone(), true),
        ("the content of a chunk", flip(position + 5000), offsets.clone(), true),
        ("the index", flip(index + 70), 0..0, false),
        (
            "the index and a chunk",
            Box::new(move |path| {
                let bytes = Bytes::of(path).unwrap();
                bytes.flip(index + 20, 1);
                bytes.flip(position + 20, 1);
            }),
            offsets.clone(),
            true,
        ),
        ("the index is zeros", Box::new(move |path| Bytes::of(path).unwrap().zero(index..index + 4096)), 0..0, false),
        (
            "the whole file is zeros",
            Box::new(|path| {
                let bytes = Bytes::of(path).unwrap();
                bytes.zero(0..bytes.bytes());
            }),
            all.clone(),
            true,
        ),
        (
            "a shorter file",
            Box::new(move |path| {
                fs::OpenOptions::new().write(true).open(path).unwrap().set_len(position).unwrap();
            }),
            offsets.start..all.end,
            true,
        ),
        ("an empty file", Box::new(|path| fs::write(path, b"").unwrap()), all.clone(), true),
        ("no file", Box::new(|path| fs::remove_file(path).unwrap()), all, true),
    ];
    for (what, damage, may_be_lost, is_lost) in cases {
        println!("{what}");
        let data = written.copy();
        damage(&second(&data).1);
        for round in 0..2 {
            let broker = start(&data);
            let lost = expect_all_but(&broker, "a", count + round, may_be_lost.clone());
            assert_eq!(lost > 0, is_lost, "{what}: {lost} are lost");
            assert_eq!(expect_all_but(&broker, "b", count, 0..0), 0);
            assert_eq!(broker.everything("small", 0).offsets(), (0..10).collect::<Vec<_>>());
            if is_lost {
                wait_until("it is logged", || broker.log().contains("WARN") || broker.log().contains("ERROR"));
            }
            broker.get("/health/ready").expect(200);
            // Readers that follow are told the same as pages.
            let mut connection = broker.connect();
            let body = payload("a", count + round);
            connection.send_request("POST", "/topics/a/publish", &[], &body);
            assert_eq!(connection.response_to("POST").expect(202).data()["offset"], count + round);
        }
    }
}

#[test]
fn followers_are_told_of_the_gap() {
    use crate::reader::{KINDS, Kind, Reader, Told};
    let (written, count) = written();
    let (_, path) = segments(&written, "a")[1].clone();
    let (position, lost) = chunks(&path)[1].clone();
    Bytes::of(&path).unwrap().flip(position + 4100, 0);
    let broker = start(&written);
    for kind in KINDS {
        let mut reader = Reader::open(&broker, "a", "?from_offset=0", kind);
        let (mut next, mut told) = (0, Vec::new());
        while next < count {
            match reader.next() {
                Told::Message { offset, payload: bytes } => {
                    assert!(bytes == payload("a", offset), "{kind:?} {offset}");
                    let silent = (next..offset).find(|offset| !lost.contains(offset));
                    assert_eq!(silent, None, "{kind:?}");
                    next = offset + 1;
                }
                Told::Gap { requested, resumed } => told.push(requested..resumed),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(told, if kind == Kind::Plain { vec![] } else { vec![lost.clone()] }, "{kind:?}");
    }
    // A group goes on beyond it, and counts what nobody will ever take.
    let mut taken = Vec::new();
    wait_until("the group has the rest", || {
        let body = serde_json::json!({ "max": 50, "from_offset": 0 });
        let page = broker.group_post("a", "g", "fetch", body);
        let offsets = crate::plenty::offsets(&page);
        broker.group_post("a", "g", "ack", serde_json::json!({ "offsets": offsets }));
        taken.extend(offsets);
        taken.last() == Some(&(count - 1))
    });
    assert_eq!(taken, (0..count).filter(|offset| !lost.contains(offset)).collect::<Vec<_>>());
    let group = broker.group("a", "g");
    assert!(group["committed_offset"] == count && group["lost"] == lost.end - lost.start, "{group}");
}
