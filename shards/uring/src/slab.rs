//! Numbered slots with generations, so that a stale number finds nobody. Lives on the core of its ring.

/// A bounded table. It grows as it fills and keeps its size.
pub(crate) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    slots_max: u32,
}

struct Entry<T> {
    value: Option<T>,
    generation: u32,
}

impl<T> Slab<T> {
    /// An empty table of at most `slots_max` slots.
    pub(crate) fn new(slots_max: u32) -> Slab<T> {
        Slab { entries: Vec::new(), free: Vec::new(), slots_max }
    }

    /// Puts a value into a free slot; gives slot and generation, or the value back when all are taken.
    pub(crate) fn insert(&mut self, value: T) -> Result<(u32, u32), T> {
        if let Some(slot) = self.free.pop() {
            let entry = &mut self.entries[slot as usize];
            debug_assert!(entry.value.is_none(), "a free slot holds a value");
            entry.value = Some(value);
            return Ok((slot, entry.generation));
        }
        match u32::try_from(self.entries.len()) {
            Ok(slot) if slot < self.slots_max => {
                self.entries.push(Entry { value: Some(value), generation: 0 });
                Ok((slot, 0))
            }
            _ => Err(value),
        }
    }

    /// The value of a slot, if it is still of this generation.
    pub(crate) fn get(&self, slot: u32, generation: u32) -> Option<&T> {
        let entry = self.entries.get(slot as usize)?;
        if entry.generation == generation { entry.value.as_ref() } else { None }
    }

    /// The value of a slot to be changed, if it is still of this generation.
    pub(crate) fn get_mut(&mut self, slot: u32, generation: u32) -> Option<&mut T> {
        let entry = self.entries.get_mut(slot as usize)?;
        if entry.generation == generation { entry.value.as_mut() } else { None }
    }

    /// Frees a slot; from now on its old generation finds nobody.
    pub(crate) fn remove(&mut self, slot: u32, generation: u32) -> Option<T> {
        let entry = self.entries.get_mut(slot as usize)?;
        if entry.generation != generation {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(slot);
        Some(value)
    }

    /// How many slots are taken.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether all slots are taken.
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.slots_max as usize
    }

    /// All values, in no promised order.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().filter_map(|entry| entry.value.as_mut())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::Slab;

    #[test]
    fn a_stale_generation_finds_nobody() {
        let mut slab = Slab::new(4);
        let (slot, first) = slab.insert("first").unwrap();
        assert_eq!(slab.remove(slot, first), Some("first"));
        let (again, second) = slab.insert("second").unwrap();
        assert_eq!(again, slot);
        assert_ne!(first, second);
        assert_eq!(slab.get(slot, first), None);
        assert_eq!(slab.get_mut(slot, first), None);
        assert_eq!(slab.remove(slot, first), None);
        assert_eq!(slab.get(slot, second), Some(&"second"));
    }

    #[test]
    fn a_full_table_gives_the_value_back() {
        let mut slab = Slab::new(2);
        assert!(slab.insert(1).is_ok());
        assert!(slab.insert(2).is_ok());
        assert!(slab.is_full());
        assert_eq!(slab.insert(3), Err(3));
        assert_eq!(slab.len(), 2);
        assert_eq!(slab.remove(0, 0), Some(1));
        assert_eq!(slab.insert(4), Ok((0, 1)));
        assert_eq!(slab.values_mut().count(), 2);
    }
}
