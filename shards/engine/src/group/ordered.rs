//! Groups that give a partition's messages to one member at a time, in order. Decisions alone, on the core that owns the topic.
//!
//! While one of a group's members asks for order, each partition has a leader among the members: the same rule over the same members
//! in each partition, so that the partitions spread evenly without a word between their shards. The leader alone gets messages, one
//! after the other; when one comes again, all that were given out after it come again behind it. A new leader gets nothing
//! before what the old one holds is settled.

use ringmain_model::{CoreId, Offset};

use super::{Group, Holder};
use crate::command::Origin;

impl Group {
    /// Whose the partition is, after members have come or gone, or want messages at all or none any more.
    pub(super) fn choose_leader(&mut self) {
        self.leader = None;
        if !self.members.values().any(|member| member.is_ordered) {
            return;
        }
        // One that wants none would stop the partition while others are idle.
        let has_takers = self.members.values().any(|member| member.in_flight_max > 0);
        let may_lead = self.members.values().filter(|member| member.in_flight_max > 0 || !has_takers);
        let mut members: Vec<(CoreId, u64, Origin)> =
            may_lead.map(|member| (member.origin.core, member.identity, member.origin)).collect();
        members.sort_unstable();
        let count = u32::try_from(members.len()).unwrap_or(u32::MAX);
        let turn = usize::try_from(self.number % count.max(1)).unwrap_or(0);
        self.leader = members.get(turn).map(|(.., origin)| *origin);
    }

    /// Whether a message must wait for one that comes before it: what is pending is neither the leader's nor ready.
    pub(super) fn is_held_up(&self) -> bool {
        let Some(leader) = self.leader else { return false };
        let held = self.members.get(&leader).map_or(0, |member| member.held.len());
        self.pending.len() > held + self.ready.len() + self.dying.len()
    }

    /// A message comes again: in a group with order, those after it that a member has come again behind it, and as if for the first
    /// time, because nobody failed at them.
    pub(super) fn rewind_after(&mut self, offset: Offset) {
        if self.leader.is_none() {
            return;
        }
        let is_held = |holder: Holder| matches!(holder, Holder::Member(_));
        let after = self.pending.range(offset.plus(1)..);
        let held: Vec<_> = after.filter(|(_, pending)| is_held(pending.holder)).map(|(offset, _)| *offset).collect();
        for later in held {
            self.let_go(later);
            if let Some(pending) = self.pending.get_mut(&later) {
                self.is_changed |= pending.attempts > 1;
                pending.attempts = pending.attempts.saturating_sub(1);
            }
            self.queue(later);
        }
    }
}
