//! The image of a shard that a checkpoint writes, made a part in each turn. On the core that owns the shard.
//!
//! The parts are of different moments, all of them after the position from which the log is replayed. That is enough: replay repeats
//! what is in them already. A topic that ends meanwhile is taken out again whole: some of its partitions may not be in it.

use std::collections::BTreeSet;

use ringmain_model::{Incarnation, PartitionRef};
use ringmain_wal::{
    Checkpoint, KnownMessages, LogMarks, LogPosition, PartitionAges, PartitionSegments, Sequence, TopicCreated,
};

use crate::command::{Effect, Now};
use crate::shard::Shard;
use crate::topics::Partition;

/// An image that is being made, or is made and waits for the log.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) checkpoint: Checkpoint,
    /// Partitions that are not in it yet.
    left: std::vec::IntoIter<PartitionRef>,
    /// The topic that it told of last.
    last: Option<Incarnation>,
    /// The commit batch up to which the log must be durable before the slot may be written, once the image is whole.
    pub(crate) covered: Option<Sequence>,
    /// Topics that ended since it was begun: half of one must not be in it.
    gone: BTreeSet<Incarnation>,
    /// The log did not take what the next part needs: it goes on when something else happens.
    is_held_up: bool,
}

impl Image {
    /// Whether the next turn can add to it.
    pub(crate) fn goes_on(&self) -> bool {
        self.covered.is_none() && !self.is_held_up
    }

    /// A topic has ended.
    pub(crate) fn note_gone(&mut self, incarnation: Incarnation) {
        if self.covered.is_none() {
            self.gone.insert(incarnation);
        }
    }

    /// Takes out what was made of topics that have ended since.
    fn forget_gone(&mut self) {
        let gone = std::mem::take(&mut self.gone);
        if gone.is_empty() {
            return;
        }
        let stays = |incarnation: Incarnation| !gone.contains(&incarnation);
        let checkpoint = &mut self.checkpoint;
        checkpoint.topics.retain(|topic| stays(topic.incarnation));
        checkpoint.marks.retain(|marks| stays(marks.partition.incarnation));
        checkpoint.groups.retain(|group| stays(group.partition.incarnation));
        checkpoint.segments.retain(|segments| stays(segments.partition.incarnation));
        checkpoint.known.retain(|known| stays(known.partition.incarnation));
        checkpoint.set_aside.retain(|partition| stays(partition.incarnation));
        checkpoint.ages.retain(|ages| stays(ages.partition.incarnation));
    }
}

/// What a partition counts in the share of a turn.
fn weight(topic: &Partition, ids: usize) -> usize {
    16 * (1 + topic.groups.len()) + ids
}

impl Shard {
    /// Adds the next part to the image, when everything that it leaves out is durable.
    pub(crate) fn take_image(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let Some(log) = &self.log else { return };
        let Some(position) = log.checkpointing.position_for_image(log.durable) else { return };
        // What the image has, the log must have, too: the other slot may be the one that a start finds.
        let has_progress = self.log_all_progress(now, true, effects);
        let mut image = match self.log.as_mut().and_then(|log| log.checkpointing.take_image()) {
            Some(image) => image,
            None if has_progress => self.begin_image(now, position),
            None => return,
        };
        image.is_held_up = !has_progress;
        if has_progress {
            self.add_to_image(&mut image);
        }
        let Some(log) = &mut self.log else { return };
        if has_progress && image.left.len() == 0 {
            image.forget_gone();
            image.covered = Some(log.writer.last_admitted());
        }
        log.checkpointing.put_image(image);
    }

    fn begin_image(&mut self, now: Now, position: LogPosition) -> Image {
        let order: Vec<_> = self.partitions_in_order().into_iter().map(|(partition, _)| partition).collect();
        if let Some(log) = &mut self.log {
            // What is let go of from now on may be in it.
            log.checkpointing.count_image();
        }
        let held = self.log.iter().flat_map(|log| log.writer.held().iter().copied()).collect();
        let (clock, doubt) = (Some(self.clock.anchor(now)), self.doubt);
        let checkpoint = Checkpoint { held, doubt, clock, ..Checkpoint::at(position) };
        Image {
            checkpoint,
            left: order.into_iter(),
            last: None,
            covered: None,
            gone: BTreeSet::new(),
            is_held_up: false,
        }
    }

    /// Adds as many partitions as a turn may.
    fn add_to_image(&self, image: &mut Image) {
        let mut left = self.log.as_ref().map_or(0, |log| log.settings.image_weight_per_turn);
        while left > 0
            && let Some(partition) = image.left.next()
        {
            // One that has gone since is ended by the log.
            let Some(topic) = self.partitions.get(&partition) else { continue };
            if topic.is_logged() && !topic.is_beginning {
                self.add_partition(image, partition, topic);
            }
            left = left.saturating_sub(weight(topic, self.ids.count_of(partition)));
        }
    }

    fn add_partition(&self, image: &mut Image, partition: PartitionRef, topic: &Partition) {
        let checkpoint = &mut image.checkpoint;
        // Of several partitions the first one here speaks for the topic.
        if image.last.replace(partition.incarnation) != Some(partition.incarnation) {
            checkpoint.topics.push(TopicCreated {
                incarnation: partition.incarnation,
                name: topic.name.clone(),
                created_us: topic.created_us,
                partitions: topic.partitions,
                config: topic.config.clone(),
            });
        }
        // What is not durable may get its offsets again.
        let (log_start, log_end) = (topic.log.log_start().offset(), topic.log.high_water().offset());
        checkpoint.marks.push(LogMarks { partition, log_start, log_end });
        checkpoint.ages.extend(topic.log.ages.as_ref().map(|ages| PartitionAges {
            partition,
            end: ages.end,
            newest_ms: ages.newest_ms,
            samples: ages.samples.iter().copied().collect(),
        }));
        checkpoint.set_aside.extend(topic.is_set_aside.then_some(partition));
        let known = self.ids.of(partition, topic.log.high_water().offset());
        if !known.is_empty() {
            checkpoint.known.push(KnownMessages { partition, messages: known });
        }
        if topic.log.segments().len() > 0 {
            let segments = topic.log.segments().cloned().collect();
            checkpoint.segments.push(PartitionSegments { partition, segments });
        }
        let begun = topic.groups.values().filter(|group| group.is_begun());
        checkpoint.groups.extend(begun.map(|group| group.image(partition)));
    }
}
