//! What a group has acknowledged: everything below the committed offset, and ranges above it. Pure, on the owner's core.

use std::collections::BTreeMap;

use ringmain_model::Offset;

/// Acknowledged offsets. The ranges lie above the committed offset, do not touch each other, and are as many at most as
/// there are messages given out between them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Acked {
    committed: Offset,
    /// First offset of each range and the one after its last.
    ranges: BTreeMap<Offset, Offset>,
}

impl Acked {
    /// Nothing at or above `committed` is acknowledged.
    pub(crate) fn from(committed: Offset) -> Self {
        Self { committed, ranges: BTreeMap::new() }
    }

    /// Acknowledgements as they were stored: ranges above `committed`, in order and apart.
    pub(crate) fn restored(committed: Offset, ranges: &[(Offset, Offset)]) -> Self {
        Self { committed, ranges: ranges.iter().copied().collect() }
    }

    /// First offset of each range above the committed one, and the one after its last, in order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (Offset, Offset)> {
        self.ranges.iter().map(|(first, end)| (*first, *end))
    }

    /// The lowest offset that is not acknowledged.
    pub(crate) fn committed(&self) -> Offset {
        self.committed
    }

    /// Adds one offset; says whether it was new.
    pub(crate) fn add(&mut self, offset: Offset) -> bool {
        if self.contains(offset) {
            return false;
        }
        let mut end = offset.plus(1);
        if let Some(after) = self.ranges.remove(&end) {
            end = after;
        }
        if offset == self.committed {
            self.committed = end;
            return true;
        }
        match self.ranges.range_mut(..offset).next_back() {
            Some((_, before)) if *before == offset => *before = end,
            _ => {
                self.ranges.insert(offset, end);
            }
        }
        true
    }

    /// Whether an offset is acknowledged.
    pub(crate) fn contains(&self, offset: Offset) -> bool {
        offset < self.committed || self.ranges.range(..=offset).next_back().is_some_and(|(_, end)| offset < *end)
    }

    /// Gives up everything below `start`: it is not kept any more. Says how many offsets had not been acknowledged.
    pub(crate) fn lift(&mut self, start: Offset) -> u64 {
        let mut lost = 0;
        while self.committed < start {
            match self.ranges.first_key_value().map(|(first, end)| (*first, *end)) {
                Some((first, end)) if first <= start => {
                    lost += first.since(self.committed);
                    self.committed = end;
                    self.ranges.pop_first();
                }
                _ => {
                    lost += start.since(self.committed);
                    self.committed = start;
                }
            }
        }
        lost
    }
}
