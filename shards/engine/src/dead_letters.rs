//! What becomes of a message that was given out too often: a copy goes to the topic's dead letters. On the owner's core.

use bytes::Bytes;
use ringmain_model::limit::DEAD_LETTER_RETRY_MS;
use ringmain_model::{Message, MessageId, TopicConfig, TopicName};
use ringmain_wal::RecordBatch;

use crate::command::{Effect, Now};
use crate::group_command::DeadLetter;
use crate::shard::Shard;

/// What a dead letter says of itself beside its own headers.
const HEADERS: [&str; 5] = [
    "ringmain-dead-reason",
    "ringmain-dead-topic",
    "ringmain-dead-group",
    "ringmain-dead-id",
    "ringmain-dead-attempts",
];

/// Has a copy of the message stored in the dead-letter topic, with headers that say where it comes from and why; `None` when the
/// topic has no dead letters.
pub(crate) fn dead_letter(
    topic: &TopicName,
    config: &TopicConfig,
    letter: DeadLetter,
    attempts: u32,
    batch: &RecordBatch,
) -> Option<Effect> {
    let to = config.dead_letter.clone()?;
    let record = batch.records_from(letter.offset).next().filter(|record| record.offset == letter.offset)?;
    let owned = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
    // One that was a dead letter before tells of its last death only: no name is there twice, and letters that go round do not grow.
    let own = record.headers.filter(|(name, _)| !HEADERS.iter().any(|header| header.as_bytes() == *name));
    let mut headers: Vec<_> = own.map(|(name, value)| (owned(name), owned(value))).collect();
    let id = format!("{}-{}", letter.partition, letter.offset);
    let values = [
        "max_deliver".to_owned(),
        topic.as_str().to_owned(),
        letter.group.as_str().to_owned(),
        id,
        attempts.to_string(),
    ];
    headers.extend(HEADERS.iter().map(|name| Bytes::from_static(name.as_bytes())).zip(values.map(Bytes::from)));
    let message =
        Message { payload: owned(record.payload), key: record.key.map(owned), headers, id: Some(id_of(&letter)) };
    Some(Effect::DeadLetter { letter, to, message })
}

/// The same for each try to store the same letter, so that a crash between the two topics stores it once.
fn id_of(letter: &DeadLetter) -> MessageId {
    let mut name = [0; 16];
    name[..8].copy_from_slice(&letter.partition.incarnation.0.to_le_bytes());
    let place = letter.offset.0.to_le_bytes().into_iter().chain(letter.partition.partition.to_le_bytes());
    let rest = place.chain(letter.epoch.to_le_bytes()).chain(letter.group.as_str().bytes());
    // FNV-1a: nobody gains by a collision of letters of one topic's life.
    let hash =
        rest.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    name[8..].copy_from_slice(&hash.to_le_bytes());
    MessageId { name, content: hash }
}

impl Shard {
    /// The dead letters have a message, or do not take it now.
    pub(crate) fn dead_lettered(&mut self, now: Now, letter: &DeadLetter, is_stored: bool) {
        let topic = self.partitions.get_mut(&letter.partition).filter(|topic| !topic.is_ending);
        let Some(group) = topic.and_then(|topic| topic.groups.get_mut(&letter.group)) else { return };
        if is_stored {
            group.dead_is_gone(letter.epoch, letter.offset);
        } else {
            group.dead_stays(letter.epoch, letter.offset, now.monotonic_ms + DEAD_LETTER_RETRY_MS);
        }
        group.list(letter.partition, &mut self.listed_groups);
    }
}
