//! A bounded map that forgets what was used longest ago; its keeper says when. Pure, on the owner's core.

use std::collections::BTreeMap;
use std::hash::Hash;

use hashbrown::HashMap;

#[derive(Debug)]
struct Kept<V> {
    value: V,
    bytes: usize,
    used: u64,
}

/// Values with a size, the oldest of which go when [`Cache::trim`] is called.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    kept: HashMap<K, Kept<V>>,
    by_use: BTreeMap<u64, K>,
    bytes: usize,
    bytes_max: usize,
    uses: u64,
}

impl<K: Copy + Eq + Hash, V> Cache<K, V> {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { kept: HashMap::new(), by_use: BTreeMap::new(), bytes: 0, bytes_max, uses: 0 }
    }

    /// The value, which counts as used now.
    pub(crate) fn get(&mut self, key: &K) -> Option<&V> {
        let kept = self.kept.get_mut(key)?;
        self.uses += 1;
        self.by_use.remove(&kept.used);
        self.by_use.insert(self.uses, *key);
        kept.used = self.uses;
        Some(&kept.value)
    }

    /// Keeps a value at least until the next trim.
    pub(crate) fn insert(&mut self, key: K, value: V, bytes: usize) {
        self.remove(&key);
        self.uses += 1;
        self.by_use.insert(self.uses, key);
        self.kept.insert(key, Kept { value, bytes, used: self.uses });
        self.bytes += bytes;
    }

    pub(crate) fn remove(&mut self, key: &K) {
        if let Some(kept) = self.kept.remove(key) {
            self.by_use.remove(&kept.used);
            self.bytes -= kept.bytes;
        }
    }

    /// Forgets the oldest until the rest is within the bound.
    pub(crate) fn trim(&mut self) {
        while self.bytes > self.bytes_max
            && let Some((_, key)) = self.by_use.first_key_value()
        {
            let key = *key;
            self.remove(&key);
        }
    }

    /// Forgets what `is_kept` does not want.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&K) -> bool) {
        let gone: Vec<_> = self.kept.keys().filter(|key| !is_kept(key)).copied().collect();
        for key in gone {
            self.remove(&key);
        }
    }
}
