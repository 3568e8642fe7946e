//! Every file has one name, and only that name is read back.

use proptest::prelude::*;
use ringmain_model::{Incarnation, Offset, PartitionRef, ShardId};
use ringmain_wal::{FileName, SegmentNumber, SlotName, TopicFile};

use crate::storage::names::{folder_text, parse, parse_folder, text_of};

fn any_name() -> impl Strategy<Value = FileName> {
    let topic = (any::<u64>(), any::<u32>(), any::<u64>()).prop_map(|(incarnation, partition, base)| {
        let partition = PartitionRef { incarnation: Incarnation(incarnation), partition };
        FileName::Topic(TopicFile { partition, base: Offset(base) })
    });
    prop_oneof![
        any::<u64>().prop_map(|number| FileName::Segment(SegmentNumber(number))),
        any::<u64>().prop_map(|number| FileName::Preparing(SegmentNumber(number))),
        any::<u64>().prop_map(|number| FileName::Quarantined(SegmentNumber(number))),
        prop_oneof![Just(SlotName::A), Just(SlotName::B)].prop_map(FileName::Slot),
        topic,
    ]
}

proptest! {
    #[test]
    fn a_name_is_read_back_as_it_was_written(name in any_name()) {
        prop_assert_eq!(parse(&text_of(name)), Some(name));
    }

    #[test]
    fn what_is_read_is_what_would_be_written(text in r"(topic-)?[0-9a-fA-F+-]{0,20}(-[0-9a-f]{8}-[0-9a-f]{15,17})?\.(log|preparing|quarantined|segment|lock)") {
        if let Some(name) = parse(&text) {
            prop_assert_eq!(text_of(name), text);
        }
    }
}

#[test]
fn names_are_as_the_format_says() {
    assert_eq!(text_of(FileName::Segment(SegmentNumber(10))), "000000000000000a.log");
    assert_eq!(text_of(FileName::Slot(SlotName::B)), "checkpoint-b");
    let partition = PartitionRef { incarnation: Incarnation(u64::MAX), partition: 3 };
    let topic = FileName::Topic(TopicFile { partition, base: Offset(256) });
    assert_eq!(text_of(topic), "topic-ffffffffffffffff-00000003-0000000000000100.segment");
    let foreign = [
        "",
        "log",
        "1.log",
        "000000000000000A.log",
        "+00000000000000a.log",
        "000000000000000a.log.bak",
        "0000000000000000a.log",
        "checkpoint-c",
        "checkpoint-a.new",
        "topic-ffffffffffffffff-00000003.segment",
        "topic-ffffffffffffffff-00000003-0000000000000100-0.segment",
        "ffffffffffffffff-00000003-0000000000000100.segment",
    ];
    for text in foreign {
        assert_eq!(parse(text), None, "{text}");
    }
}

#[test]
fn a_shard_has_one_folder() {
    for shard in [0, 7, 512, u16::MAX] {
        assert_eq!(parse_folder(&folder_text(ShardId(shard))), Some(ShardId(shard)));
    }
    for text in ["shard-7", "shard-0007", "shard-+07", "shard-", "007", "shard-65536"] {
        assert_eq!(parse_folder(text), None, "{text}");
    }
}
