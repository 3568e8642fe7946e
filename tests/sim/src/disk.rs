//! A pretend disk: it keeps what was synced, and of the rest whatever chance says, sector by sector.

use std::collections::BTreeMap;

use bytes::Bytes;
use ringmain_wal::{Completion, Effect, Failure, FileName};

use crate::chance::Chance;

/// What the disk writes as a whole or not at all.
pub const SECTOR_BYTES: usize = 512;

#[derive(Clone, Default, Debug)]
struct File {
    /// What the process sees.
    content: Vec<u8>,
    /// What a power loss leaves.
    durable: Vec<u8>,
    /// Written since the last sync: position and bytes.
    unsynced: Vec<(usize, Bytes)>,
    /// A sync failed, and the system has forgotten that what it shows is not what the device has.
    is_forgotten: bool,
}

#[derive(Clone, Copy, Debug)]
enum NameChange {
    Make(FileName, usize),
    Rename(FileName, FileName),
    Remove(FileName),
}

/// The files of one directory. Bytes are durable after a sync of their file, names after a sync of the directory.
#[derive(Clone, Debug)]
pub struct Disk {
    files: Vec<File>,
    names: BTreeMap<FileName, usize>,
    durable_names: BTreeMap<FileName, usize>,
    unsynced_names: Vec<NameChange>,
    /// Bytes that all files together may have; what is there already stays when this sinks below it.
    pub capacity: u64,
}

fn put(into: &mut Vec<u8>, position: usize, bytes: &[u8]) {
    if into.len() < position + bytes.len() {
        into.resize(position + bytes.len(), 0);
    }
    into[position..position + bytes.len()].copy_from_slice(bytes);
}

fn change(names: &mut BTreeMap<FileName, usize>, change: NameChange) {
    match change {
        NameChange::Make(name, file) => {
            names.insert(name, file);
        }
        NameChange::Rename(from, to) => {
            if let Some(file) = names.remove(&from) {
                names.insert(to, file);
            }
        }
        NameChange::Remove(name) => {
            names.remove(&name);
        }
    }
}

impl Disk {
    /// An empty disk.
    #[must_use]
    pub fn new(capacity: u64) -> Self {
        Self {
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            unsynced_names: Vec::new(),
            capacity,
        }
    }

    /// Bytes of all files that have a name.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.names.values().map(|file| self.files[*file].content.len() as u64).sum()
    }

    /// Files and their sizes.
    #[must_use]
    pub fn list(&self) -> Vec<(FileName, u64)> {
        self.names.iter().map(|(name, file)| (*name, self.files[*file].content.len() as u64)).collect()
    }

    /// Whether a power loss would leave the file as it is.
    #[must_use]
    pub fn is_durable(&self, name: FileName) -> bool {
        let file = self.names.get(&name).filter(|file| self.durable_names.get(&name) == Some(file));
        file.is_some_and(|file| self.files[*file].content == self.files[*file].durable)
    }

    /// All of a file as the process sees it.
    #[must_use]
    pub fn whole(&self, name: FileName) -> Option<Bytes> {
        self.names.get(&name).map(|file| Bytes::copy_from_slice(&self.files[*file].content))
    }

    /// Changes a file for good, behind everybody's back.
    pub fn damage(&mut self, name: FileName, how: impl Fn(&mut Vec<u8>)) {
        let Some(file) = self.names.get(&name) else { return };
        let file = &mut self.files[*file];
        how(&mut file.content);
        file.durable.clone_from(&file.content);
        file.unsynced.clear();
    }

    /// Takes a file away for good, behind everybody's back.
    pub fn lose(&mut self, name: FileName) {
        self.names.remove(&name);
        self.durable_names.remove(&name);
    }

    fn rename(&mut self, what: NameChange) {
        change(&mut self.names, what);
        self.unsynced_names.push(what);
    }

    /// Performs an effect that nothing disturbs.
    pub fn perform(&mut self, effect: &Effect) -> Completion {
        let missing = Completion::Failed(Failure::System(2));
        match effect {
            Effect::Allocate { file, bytes } => {
                if self.names.contains_key(file) {
                    return Completion::Failed(Failure::System(17));
                }
                if self.used() + bytes > self.capacity {
                    return Completion::Failed(Failure::NoSpace);
                }
                self.files.push(File { content: vec![0; *bytes as usize], ..File::default() });
                self.rename(NameChange::Make(*file, self.files.len() - 1));
                Completion::Done
            }
            Effect::Write { file, position, parts } => self.write(*file, *position, &parts.concat()),
            Effect::Sync { file } => {
                let Some(at) = self.names.get(file) else { return missing };
                let file = &mut self.files[*at];
                file.durable.resize(file.content.len(), 0);
                for (position, bytes) in std::mem::take(&mut file.unsynced) {
                    put(&mut file.durable, position, &bytes);
                }
                Completion::Done
            }
            Effect::SyncDirectory => {
                self.durable_names.clone_from(&self.names);
                self.unsynced_names.clear();
                Completion::Done
            }
            Effect::Rename { from, to } => {
                if !self.names.contains_key(from) || self.names.contains_key(to) {
                    return missing;
                }
                self.rename(NameChange::Rename(*from, *to));
                Completion::Done
            }
            Effect::Unlink { file } => {
                if !self.names.contains_key(file) {
                    return missing;
                }
                self.rename(NameChange::Remove(*file));
                Completion::Done
            }
            Effect::Read { file, position, bytes } => {
                let Some(at) = self.names.get(file) else { return missing };
                let content = &self.files[*at].content;
                let from = content.len().min(*position as usize);
                let end = content.len().min((*position + *bytes) as usize);
                Completion::Read(Bytes::copy_from_slice(&content[from..end]))
            }
        }
    }

    fn write(&mut self, file: FileName, position: u64, bytes: &[u8]) -> Completion {
        let Some(at) = self.names.get(&file) else { return Completion::Failed(Failure::System(2)) };
        let size = self.files[*at].content.len() as u64;
        let grown = (position + bytes.len() as u64).saturating_sub(size);
        if grown > 0 && self.used() + grown > self.capacity {
            return Completion::Failed(Failure::NoSpace);
        }
        put(&mut self.files[*at].content, position as usize, bytes);
        self.files[*at].unsynced.push((position as usize, Bytes::copy_from_slice(bytes)));
        Completion::Written(bytes.len() as u64)
    }

    /// Performs a part of an effect: what a failure or a crash in the middle leaves behind.
    pub fn perform_in_part(&mut self, effect: &Effect, chance: &mut Chance) {
        match effect {
            Effect::Write { file, position, parts } => {
                let bytes = parts.concat();
                for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                    if chance.one_in(2) {
                        self.write(*file, position + (index * SECTOR_BYTES) as u64, sector);
                    }
                }
            }
            // Some of what it should have made durable is, the rest is still on its way.
            Effect::Sync { file } => {
                if let Some(at) = self.names.get(file) {
                    keep_some(&mut self.files[*at], chance);
                }
            }
            _ => {
                if chance.one_in(2) {
                    self.perform(effect);
                }
            }
        }
    }

    /// A sync fails: some of the file is durable, and the system may forget that the rest never was. Then it shows it to this
    /// process, a later sync that succeeds says nothing about it, and the next process does not find it.
    pub fn fail_sync(&mut self, name: FileName, chance: &mut Chance) {
        let Some(at) = self.names.get(&name) else { return };
        let file = &mut self.files[*at];
        keep_some(file, chance);
        if chance.one_in(2) {
            file.unsynced.clear();
            file.is_forgotten = true;
        }
    }

    /// The process is gone, the system goes on.
    pub fn end_process(&mut self) {
        for file in self.files.iter_mut().filter(|file| file.is_forgotten) {
            file.durable.resize(file.content.len(), 0);
            file.content.clone_from(&file.durable);
            for (position, bytes) in &file.unsynced {
                put(&mut file.content, *position, bytes);
            }
            file.is_forgotten = false;
        }
    }

    /// The power goes: un-synced writes are kept sector by sector as chance says, names change or do not.
    pub fn lose_power(&mut self, chance: &mut Chance) {
        for file in &mut self.files {
            keep_some(file, chance);
            if file.durable.len() < file.content.len() && chance.one_in(2) {
                file.durable.resize(file.content.len(), 0);
            }
            file.content.clone_from(&file.durable);
            file.unsynced.clear();
            file.is_forgotten = false;
        }
        for what in std::mem::take(&mut self.unsynced_names) {
            if chance.one_in(2) {
                change(&mut self.durable_names, what);
            }
        }
        self.names.clone_from(&self.durable_names);
        self.forget_nameless();
    }

    /// Gives the memory of files that no name leads to back.
    fn forget_nameless(&mut self) {
        let mut is_named = vec![false; self.files.len()];
        self.names.values().chain(self.durable_names.values()).for_each(|file| is_named[*file] = true);
        for (file, is_named) in self.files.iter_mut().zip(is_named) {
            if !is_named {
                *file = File::default();
            }
        }
    }
}

fn keep_some(file: &mut File, chance: &mut Chance) {
    // Sectors of all writes in any order: of two writes to one sector either may be the one that stays.
    let mut sectors = Vec::new();
    for (position, bytes) in &file.unsynced {
        for (index, from) in (0..bytes.len()).step_by(SECTOR_BYTES).enumerate() {
            let end = bytes.len().min(from + SECTOR_BYTES);
            sectors.push((position + index * SECTOR_BYTES, bytes.slice(from..end)));
        }
    }
    let kept_in_eight = chance.below(9);
    while !sectors.is_empty() {
        let (position, sector) = sectors.swap_remove(chance.index(sectors.len()));
        if chance.below(8) < kept_in_eight {
            put(&mut file.durable, position, &sector);
        }
    }
}
