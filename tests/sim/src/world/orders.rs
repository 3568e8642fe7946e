//! The driver's part in what shards ask of each other: it carries each order there and the answer back, late, or says that it is busy.

use ringmain_engine::{Command, Event, Order, Origin, Reply};
use ringmain_model::{CoreId, Refusal, ShardId};

use super::World;
use crate::model::Check;

/// Who asks on behalf of a shard; members and clients have smaller numbers.
pub(super) const ORDERING: u64 = 1 << 62;

/// An order on its way.
#[derive(Clone, Debug)]
pub(super) enum Errand {
    /// To the shard that is to do its part.
    Leaves { from: usize, order: u64, to: ShardId, what: Order },
    /// Back to the one that asked.
    Returns { from: usize, order: u64, outcome: Result<(), Refusal> },
}

impl World {
    /// Carries one order a step on.
    pub(super) fn carry_order(&mut self) -> Check {
        let at = self.chance.index(self.errands.len());
        match self.errands.swap_remove(at) {
            Errand::Leaves { from, order, .. } if !self.is_calm && self.chance.one_in(12) => {
                self.trace.note(format!("order {order} of {from} finds a full lane"));
                let outcome = Err(Refusal::busy("a lane is full"));
                self.errands.push(Errand::Returns { from, order, outcome });
                Ok(())
            }
            Errand::Leaves { from, order, to, what } => {
                self.trace.note(format!("order {order} of {from} to {}: {what:?}", to.0));
                let request = self.next_request;
                self.next_request += 1;
                self.ordered.insert(request, (from, order));
                let origin = Origin { core: CoreId(0), asker: ORDERING, request };
                self.sums.orders += 1;
                self.give(usize::from(to.0), Event::Asked { origin, command: Command::Order(what) })
            }
            Errand::Returns { from, order, outcome } => {
                self.trace.note(format!("order {order} of {from} came to {outcome:?}"));
                self.give(from, Event::OrderDone { order, outcome })
            }
        }
    }

    /// A shard has done its part, or not.
    pub(super) fn order_replied(&mut self, request: u64, reply: Reply) -> Check {
        let (from, order) = self.ordered.remove(&request).ok_or("an order was answered twice")?;
        let outcome = match reply {
            Reply::Noted => Ok(()),
            Reply::Refused(refusal) => Err(refusal),
            other => return Err(format!("an order was answered {other:?}")),
        };
        self.errands.push(Errand::Returns { from, order, outcome });
        Ok(())
    }
}
