//! Reads of visible records, and the interest of cores in new ones. On the core that owns the shard.

use ringmain_model::{CoreId, Offset, PartitionRef};

use crate::command::{Effect, Interest, Page, Reply};
use crate::shard::Shard;
use crate::topics::deleted_meanwhile;

impl Shard {
    pub(crate) fn read(
        &self,
        partition: PartitionRef,
        from: Offset,
        bytes_max: usize,
        records_max: u64,
        following: bool,
    ) -> Reply {
        let Some(topic) = self.living(partition.incarnation) else {
            return Reply::Refused(deleted_meanwhile());
        };
        let high_water = topic.log.high_water();
        let from = from.clamp(topic.log.readable_from(following), high_water.offset());
        let batches = topic.log.read(from, bytes_max, records_max);
        Reply::Page(Page { partition, from, batches, log_start: topic.log.log_start(), high_water })
    }

    pub(crate) fn interest(
        &mut self,
        core: CoreId,
        partition: PartitionRef,
        interest: Interest,
        effects: &mut Vec<Effect>,
    ) -> Reply {
        // What this turn admitted is closed first, so that pushes begin exactly at the high-water mark of the answer.
        self.close_batch(partition, effects);
        let Some(topic) = self.topics.get_mut(&partition.incarnation).filter(|topic| !topic.is_ending) else {
            return Reply::Refused(deleted_meanwhile());
        };
        topic.log.set_interest(core, interest, &mut self.bytes);
        Reply::Interested { partition, high_water: topic.log.high_water() }
    }
}
