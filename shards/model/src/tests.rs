//! Names, marks and tokens keep their rules; runs on the test thread.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use proptest::prelude::*;

use crate::limit::TOKEN_POSITIONS_MAX;
use crate::*;

#[test]
fn names_keep_the_rule() {
    assert_eq!(TopicName::new(""), Err(NameError::Empty));
    assert_eq!(TopicName::new(&"x".repeat(256)), Err(NameError::TooLong(256)));
    assert!(TopicName::new(&"x".repeat(255)).is_ok());
    assert_eq!(TopicName::new("a\u{85}b"), Err(NameError::Control));
    assert_eq!(TopicName::new("a\0b"), Err(NameError::Control));
    assert_eq!(TopicName::new(".."), Err(NameError::Dots));
    assert_eq!(TopicName::new("$sys"), Err(NameError::Reserved));
    for good in ["payments", "a/b", "…", "with space", "%2F", "...", "a$"] {
        assert_eq!(TopicName::new(good).unwrap().as_str(), good);
    }
}

#[test]
#[should_panic(expected = "moved back")]
fn a_mark_never_moves_back() {
    let mut mark = HighWaterMark::at(Offset(7));
    mark.advance(Offset(7));
    mark.advance(Offset(6));
}

#[test]
fn every_shard_gets_topics() {
    for shards in [1, 2, 4, 7] {
        let mut seen = vec![0; usize::from(shards)];
        for number in 0..1000 {
            seen[usize::from(ShardId::initial(&format!("topic-{number}"), shards).0)] += 1;
        }
        assert!(seen.iter().all(|count| *count > 500 / usize::from(shards)), "{seen:?}");
    }
}

fn position() -> impl Strategy<Value = Position> {
    (any::<u64>(), any::<u32>(), any::<u64>()).prop_map(|(incarnation, partition, next)| Position {
        partition: PartitionRef { incarnation: Incarnation(incarnation), partition },
        next: Offset(next),
    })
}

proptest! {
    #[test]
    fn tokens_come_back_as_they_went(positions in prop::collection::vec(position(), 1..=TOKEN_POSITIONS_MAX)) {
        let text = ResumeToken::encode(&positions);
        prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));
        prop_assert_eq!(ResumeToken::decode(&text), Ok(ResumeToken::Positions(positions)));
    }

    #[test]
    fn tokens_of_several_topics_come_back_as_they_went(
        marked in prop::collection::vec((position(), any::<u16>()), 1..=TOKEN_POSITIONS_MAX),
    ) {
        let marked = marked.into_iter().map(|(position, mark)| MarkedPosition { position, mark: TopicMark(mark) });
        let marked: Vec<_> = marked.collect();
        let mut text = ResumeToken::START.to_owned();
        marked.iter().for_each(|marked| ResumeToken::write_marked(&mut text, *marked));
        prop_assert_eq!(ResumeToken::decode(&text), Ok(ResumeToken::Several(marked)));
    }

    #[test]
    fn one_position_reads_like_a_list_of_one(position in position()) {
        let mut text = String::new();
        ResumeToken::write_one(&mut text, position);
        prop_assert_eq!(ResumeToken::encode(&[position]), text);
    }

    #[test]
    fn any_text_is_a_token_or_an_error(text in ".*") {
        if let Ok(ResumeToken::Positions(positions)) = ResumeToken::decode(&text) {
            prop_assert!(!positions.is_empty() && positions.len() <= TOKEN_POSITIONS_MAX);
        }
    }
}

#[test]
fn odd_tokens_are_told_apart() {
    assert_eq!(ResumeToken::decode("17"), Ok(ResumeToken::LastSeen(Offset(17))));
    assert_eq!(ResumeToken::decode("99999999999999999999"), Err(TokenError::Damaged));
    assert_eq!(ResumeToken::decode(""), Err(TokenError::Unknown));
    assert_eq!(ResumeToken::decode("2~0000000000000000.0.0"), Err(TokenError::Unknown));
    assert_eq!(ResumeToken::decode("1~+000000000000000.0.0"), Err(TokenError::Damaged));
    assert_eq!(ResumeToken::decode("1~0000000000000000.+1.0"), Err(TokenError::Damaged));
    assert_eq!(ResumeToken::decode("1~0000000000000000.0.0.12345"), Err(TokenError::Damaged));
    assert_eq!(ResumeToken::decode("1~0000000000000000.0.0.1234~0000000000000000.0.0"), Err(TokenError::Damaged));
    let name = TopicName::new("payments").unwrap();
    assert_eq!(TopicMark::of(&name), TopicMark(0x3c1f), "tokens are kept by clients");
    let long = ResumeToken::encode(&vec![
        Position {
            partition: PartitionRef { incarnation: Incarnation(0), partition: 0 },
            next: Offset(0)
        };
        TOKEN_POSITIONS_MAX + 1
    ]);
    assert_eq!(ResumeToken::decode(&long), Err(TokenError::TooLong));
}
