//! Reads of visible records, and the interest of cores in new ones. On the core that owns the shard.

use ringmain_model::{CoreId, PartitionRef};

use crate::command::{Command, Effect, Interest, Origin, Page, Reply};
use crate::log::page;
use crate::log::stored::Lookup;
use crate::shard::Shard;
use crate::topics::deleted_meanwhile;

impl Shard {
    /// Answers a [`Command::Read`], now or when what it needs has been read from the disk.
    pub(crate) fn read(&mut self, origin: Origin, read: Command, effects: &mut Vec<Effect>) {
        let Command::Read { partition, from, bytes_max, records_max, following } = read else { return };
        let topic = self.partitions.get(&partition).filter(|topic| !topic.is_ending);
        let Some(topic) = topic else {
            let reply = Reply::Refused(deleted_meanwhile());
            effects.push(Effect::Reply { to: origin, reply });
            return;
        };
        let log = &topic.log;
        let high_water = log.high_water();
        let mut from = from.clamp(log.readable_from(following), high_water.offset());
        while let Some((_, end)) = log.lost_at(from) {
            from = end.min(high_water.offset());
        }
        let loads = self.log.as_mut().map(|log| &mut log.loads).filter(|_| !log.is_in_memory(from));
        let batches = match loads.map(|loads| log.chunk_at(from, loads)) {
            Some(Lookup::Found(batches)) => page(batches.iter(), from, bytes_max, records_max),
            Some(Lookup::Wanted(wanted)) => return self.wait_for_load(wanted, origin, read, effects),
            // Between the segments and memory there is nothing but what is lost, which was passed above.
            Some(Lookup::Lost(..) | Lookup::Nothing) | None => {
                page(log.visible_from(from), from, bytes_max, records_max)
            }
        };
        let page = Page { partition, from, batches, log_start: log.log_start(), high_water };
        effects.push(Effect::Reply { to: origin, reply: Reply::Page(page) });
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
        let Some(topic) = self.partitions.get_mut(&partition).filter(|topic| !topic.is_ending) else {
            return Reply::Refused(deleted_meanwhile());
        };
        topic.log.set_interest(core, interest, &mut self.bytes);
        Reply::Interested { partition, high_water: topic.log.high_water() }
    }
}
