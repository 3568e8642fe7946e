//! What shards ask of each other for topics of several partitions, on its way. On the core of the shard that asks.

use ringmain_engine::{Command, Event, Order, Origin, Reply};
use ringmain_model::{Refusal, ShardId};
use slotmap::Key;

use crate::core::State;
use crate::front::Front;
use crate::lane::{LaneFull, LaneItem};
use crate::route::ORDER_BIT;

slotmap::new_key_type! {
    /// Names an order until its answer has come.
    pub(crate) struct OrderKey;
}

/// An order that waits for its answer. As many as there are shards for each topic that is being made, changed or removed.
#[derive(Debug)]
pub(crate) struct SentOrder {
    /// Which of the core's shards sent it, and by what it knows it.
    shard: usize,
    order: u64,
}

impl<F: Front> State<F> {
    /// Has another shard do its part for the shard at `index`.
    pub(crate) fn send_order(&mut self, index: usize, order: u64, to: ShardId, what: Order) {
        let key = self.orders.insert(SentOrder { shard: index, order });
        let origin = Origin { core: self.settings.own, asker: key.data().as_ffi(), request: ORDER_BIT };
        if let Err(LaneFull) = self.send(to, origin, Command::Order(what)) {
            let refusal =
                Refusal::busy("the core of one of the topic's partitions has as many requests waiting as it may");
            self.local.push_back(LaneItem::Reply { to: origin, reply: Reply::Refused(refusal) });
        }
    }

    /// Tells the shard what came of its order.
    pub(crate) fn take_order_reply(&mut self, key: OrderKey, reply: Reply) {
        let Some(SentOrder { shard, order }) = self.orders.remove(key) else { return };
        let outcome = match reply {
            Reply::Refused(refusal) => Err(refusal),
            _ => Ok(()),
        };
        self.give_shard_at(shard, Event::OrderDone { order, outcome });
    }
}
