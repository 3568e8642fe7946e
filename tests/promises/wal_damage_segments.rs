//! Promise: what is damaged in a topic's segments is told as a gap and logged; the rest of the topic, and all other topics, are served.

use crate::broker::Broker;
use crate::deadline::wait_until;
use crate::stored_directory::{BLOCK, Bytes, DataDirectory, Everything};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

const SEGMENT: &[u8; 8] = b"RMTOPSEG";

const MESSAGE_BYTES: usize = 100_000;

fn payload(topic: &str, number: u64) -> Vec<u8> {
    let mut bytes = format!("{topic} {number} ").into_bytes();
    bytes.resize(MESSAGE_BYTES, b'.');
    bytes
}

/// Topic `b` gets one message for that many in `a`.
const B_PART: u64 = 20;

/// A topic with many sealed segments and two with little, of a broker that was killed; and how many messages the first one has.
fn written() -> (DataDirectory, u64) {
    let data = DataDirectory::new();
    let broker = start(&data);
    broker.create_logged_topic("a");
    broker.create_logged_topic("b");
    broker.create_logged_topic("small");
    broker.publish_numbers("small", 0..10);
    let mut count = 0;
    wait_until("topic segments are there", || {
        for _ in 0..B_PART {
            assert_eq!(broker.publish("a", &payload("a", count)), count);
            count += 1;
        }
        broker.publish("b", &payload("b", count / B_PART - 1));
        segments(&data, "a").len() > DAMAGES.len() + 2 && !segments(&data, "b").is_empty()
    });
    // The checkpoint that names them, or another one: what no checkpoint names is nothing.
    let before = checkpoints(&data);
    wait_until("a checkpoint names them", || checkpoints(&data) > before || checkpoints(&data) > 2);
    drop(broker);
    (data, count)
}

/// The number of the newest checkpoint.
fn checkpoints(data: &DataDirectory) -> u64 {
    data.marked(b"RMSLOT\0\0").iter().map(|slot| Bytes::of(slot).unwrap().number(24, 8)).max().unwrap()
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
fn expect_all_but(broker: &Broker, topic: &str, count: u64, lost: &[Range<u64>]) {
    let everything = broker.everything(topic, 0);
    expect_true(topic, &everything);
    everything.expect_no_silent_loss(count);
    let is_lost = |offset: &u64| lost.iter().any(|range| range.contains(offset));
    assert_eq!(everything.offsets(), (0..count).filter(|offset| !is_lost(offset)).collect::<Vec<_>>());
}

/// Positions and offsets of the chunks of a segment, from its chunks' headers.
fn chunks(path: &Path) -> Vec<(u64, Range<u64>)> {
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
    setup.flag("--wal-max-segments", 1000).start()
}

/// Damages a segment; gives the offsets that it costs.
type Damage = fn(&Path, &[(u64, Range<u64>)]) -> Range<u64>;

/// One for each segment from the second one on.
const DAMAGES: [(&str, Damage); 10] = [
    ("its header, which no start reads", |path, _| {
        Bytes::of(path).unwrap().flip(20, 2);
        0..0
    }),
    ("the header of a chunk", |path, chunks| {
        Bytes::of(path).unwrap().flip(chunks[1].0 + 20, 2);
        chunks[1].1.clone()
    }),
    ("the content of a chunk", |path, chunks| {
        Bytes::of(path).unwrap().flip(chunks[1].0 + 5000, 2);
        chunks[1].1.clone()
    }),
    ("the index", |path, _| {
        Bytes::of(path).unwrap().flip(index(path) + 70, 2);
        0..0
    }),
    ("the index and a chunk", |path, chunks| {
        let bytes = Bytes::of(path).unwrap();
        bytes.flip(index(path) + 20, 1);
        bytes.flip(chunks[1].0 + 20, 1);
        chunks[1].1.clone()
    }),
    ("the index is zeros", |path, _| {
        let index = index(path);
        Bytes::of(path).unwrap().zero(index..index + BLOCK);
        0..0
    }),
    ("the whole file is zeros", |path, chunks| {
        let bytes = Bytes::of(path).unwrap();
        bytes.zero(0..bytes.bytes());
        all(chunks)
    }),
    ("a shorter file", |path, chunks| {
        fs::OpenOptions::new().write(true).open(path).unwrap().set_len(chunks[1].0).unwrap();
        chunks[1].1.start..all(chunks).end
    }),
    ("an empty file", |path, chunks| {
        fs::write(path, b"").unwrap();
        all(chunks)
    }),
    ("no file", |path, chunks| {
        fs::remove_file(path).unwrap();
        all(chunks)
    }),
];

fn all(chunks: &[(u64, Range<u64>)]) -> Range<u64> {
    chunks[0].1.start..chunks[chunks.len() - 1].1.end
}

#[test]
fn damage_costs_what_it_touches_and_no_more() {
    let (data, mut count) = written();
    let segments = segments(&data, "a");
    assert!(segments.len() > DAMAGES.len() + 2, "{}", segments.len());
    let (mut lost, mut names) = (Vec::new(), Vec::new());
    for ((what, damage), (_, path)) in DAMAGES.iter().zip(&segments[1..]) {
        let chunks = chunks(path);
        assert!(chunks.len() > 2, "{chunks:?}");
        let range = damage(path, &chunks);
        println!("{what}: {range:?} of {:?}", all(&chunks));
        if !range.is_empty() {
            names.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
        lost.push(range);
    }
    for _ in 0..2 {
        let broker = start(&data);
        expect_all_but(&broker, "a", count, &lost);
        wait_until("the log names each of them", || {
            let log = broker.log();
            names.iter().all(|name| log.contains(name))
        });
        expect_all_but(&broker, "b", count / B_PART, &[]);
        assert_eq!(broker.everything("small", 0).offsets(), (0..10).collect::<Vec<_>>());
        broker.get("/health/ready").expect(200);
        assert_eq!(broker.publish("a", &payload("a", count)), count, "it goes on");
        count += 1;
    }
}

/// What happens to the file in which a topic was going on; its messages are lost.
type LastFile = fn(&Path);

const LAST_FILES: [(&str, LastFile); 3] = [
    ("no file", |path| fs::remove_file(path).unwrap()),
    ("a folder in its place", |path| {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    }),
    ("an empty file", |path| fs::write(path, b"").unwrap()),
];

#[test]
fn a_topic_without_its_last_file_goes_on_in_a_new_one_and_holds_up_no_checkpoint() {
    let (written, count) = written();
    for (what, damage) in LAST_FILES {
        println!("{what}");
        let (data, mut count) = (written.copy(), count);
        let mut lost = [Vec::new(), Vec::new()];
        for (topic, lost) in ["a", "b"].iter().zip(&mut lost) {
            let (_, path) = segments(&data, topic).pop().unwrap();
            lost.push(all(&chunks(&path)));
            damage(&path);
        }
        for _ in 0..2 {
            let broker = start(&data);
            let before = checkpoints(&data);
            // So much that the log is released, and written over, again and again.
            wait_until("checkpoints go on", || {
                for _ in 0..10 * B_PART {
                    assert_eq!(broker.publish("a", &payload("a", count)), count, "it goes on");
                    count += 1;
                    if count % B_PART == 0 {
                        broker.publish("b", &payload("b", count / B_PART - 1));
                    }
                }
                checkpoints(&data) >= before + 3
            });
            let counts = [count, count / B_PART];
            for ((topic, lost), count) in ["a", "b"].iter().zip(&lost).zip(counts) {
                expect_all_but(&broker, topic, count, lost);
            }
            assert_eq!(broker.everything("small", 0).offsets(), (0..10).collect::<Vec<_>>());
            broker.get("/health/ready").expect(200);
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
