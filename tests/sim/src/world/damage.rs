//! The end of a run on a disk that lies: files are changed or lost while no process runs, and several starts make the best of it.
//!
//! The promise is weaker than on an honest disk: no panic, no other bytes, nothing at another place; what is not there is told of by
//! the start or lies in a gap that readers see; what damage cannot have touched is served; and what one start kept, later ones keep.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use ringmain_engine::{Command, OpeningReport, PlacementChange, Reply};
use ringmain_model::{Offset, PartitionRef, ShardId};
use ringmain_wal::{Doubt, FileName, Finding, SlotName, decode_slot, encode_slot};

use super::World;
use crate::disk::{Disk, SECTOR_BYTES};
use crate::model::{Check, Standing, key_of, partition_of};
use crate::plain::{NotOpened, Plain};
use crate::sabotage::{Sabotage, last_batch};

/// Starts after damage.
const STARTS: usize = 3;

/// What was done to which shard.
struct Harm {
    node: usize,
    hurt: Vec<FileName>,
    /// The last batch of its log is not whole any more: that looks like a log that ends earlier.
    has_lost_end: bool,
}

/// What damage excuses in a partition.
#[derive(Clone, Copy)]
struct Excuse {
    /// A gap.
    gap: bool,
    /// An end before the one that was seen.
    end: bool,
    /// That nothing can be read.
    absence: bool,
}

/// What one start kept for a person to look at.
#[derive(Default)]
struct Kept {
    files: BTreeSet<(usize, FileName)>,
    orphans: BTreeSet<String>,
}

impl World {
    /// Damages one shard's files, and starts several times.
    pub(super) fn suffer_damage(&mut self) -> Check {
        self.nodes.iter_mut().for_each(|node| node.disk.capacity = 1 << 40);
        let damaged = self.any_node();
        let last = last_batch(&self.nodes[damaged].disk);
        let hurt: Vec<FileName> = (0..1 + self.chance.below(3)).filter_map(|_| self.damage_a_file(damaged)).collect();
        // Whether there was one more, nobody can know.
        let has_lost_end = last_batch(&self.nodes[damaged].disk) != last;
        let harm = Harm { node: damaged, hurt, has_lost_end };
        let mut kept = Kept::default();
        for start in 0..STARTS {
            self.trace.note(format!("-- start {start} after damage"));
            if self.plan.sabotage == Some(Sabotage::DoubtForgotten) && start > 0 {
                self.nodes.iter_mut().for_each(|node| forget_doubt(node.id, &mut node.disk));
            }
            let before: Vec<_> = self.nodes.iter().map(|node| contents(&node.disk)).collect();
            let disks = self.nodes.iter_mut().map(|node| std::mem::replace(&mut node.disk, Disk::new(0))).collect();
            let (sizes, epoch) = (self.sizes, self.chance.number());
            let opened = Plain::open(disks, sizes.shard(), |id| sizes.storage(id, epoch ^ u64::from(id.0)), self.clock);
            let (mut plain, reports) = match opened {
                Ok(opened) => opened,
                Err((NotOpened::Fault(fault), _)) => return Err(fault),
                Err((NotOpened::Refused(sentence), disks)) => {
                    self.trace.note(format!("refused: {sentence}"));
                    self.sums.damage_refused += 1;
                    if start == 0 && contents(&disks[damaged]) != before[damaged] {
                        return Err(format!("refused ({sentence}), and something was changed"));
                    }
                    return if start == 0 { Ok(()) } else { Err(format!("the next start refused: {sentence}")) };
                }
            };
            reports.iter().for_each(|report| self.trace.note(format!("opened: {report:?}")));
            self.check_after_damage(&mut plain, &reports, &harm)?;
            // Time for checkpoints, and for what they let go of.
            for _ in 0..4 {
                plain.pass_ms(120_000);
            }
            kept.check(&plain, &reports)?;
            kept.note(&plain, &reports);
            self.sums.damage_told += u64::from(reports.iter().any(|report| report.is_in_doubt));
            self.sums.damage_kept += kept.files.len() as u64;
            for (node, disk) in self.nodes.iter_mut().zip(plain.disks) {
                node.disk = disk;
                node.disk.end_process();
            }
        }
        Ok(())
    }

    /// Changes or loses one file of a shard, seldom where nothing is; says which.
    fn damage_a_file(&mut self, node: usize) -> Option<FileName> {
        let files: Vec<_> = self.nodes[node].disk.list().into_iter().filter(|(_, bytes)| *bytes > 0).collect();
        let is_log = |file: &FileName| matches!(file, FileName::Segment(_));
        let wants_log = self.chance.one_in(2);
        let chosen: Vec<_> = files.iter().filter(|(file, _)| is_log(file) == wants_log).collect();
        if chosen.is_empty() {
            return None;
        }
        let (file, _) = *chosen[self.chance.index(chosen.len())];
        let content = self.nodes[node].disk.whole(file)?;
        let used: Vec<usize> = (0..content.len())
            .step_by(SECTOR_BYTES)
            .filter(|at| content[*at..content.len().min(at + SECTOR_BYTES)].iter().any(|byte| *byte != 0))
            .collect();
        let at = if used.is_empty() { 0 } else { used[self.chance.index(used.len())] };
        let inside = at + self.chance.index(SECTOR_BYTES.min(content.len() - at));
        let disk = &mut self.nodes[node].disk;
        let what = match self.chance.below(6) {
            0 | 1 => {
                disk.damage(file, |content| content[inside] ^= 4);
                "a bit flipped"
            }
            2 => {
                disk.damage(file, |content| {
                    let end = content.len().min(at + SECTOR_BYTES);
                    content[at..end].fill(0);
                });
                "a sector zeroed"
            }
            3 => {
                disk.damage(file, |content| content[at..].fill(0));
                "zeroed to the end"
            }
            4 => {
                disk.damage(file, |content| content.truncate(inside));
                "cut"
            }
            _ => {
                disk.lose(file);
                "lost"
            }
        };
        self.sums.damages += 1;
        self.trace.note(format!("damage to {file:?} of {node} at {inside}: {what}"));
        Some(file)
    }

    /// Reads everything that is there and compares it with what there was.
    fn check_after_damage(&mut self, plain: &mut Plain, reports: &[OpeningReport], harm: &Harm) -> Check {
        let mut names = BTreeSet::new();
        let mut found = BTreeSet::new();
        for placement in plain.placements() {
            let PlacementChange::Add { name, incarnation, partitions, .. } = placement else { continue };
            if !names.insert(name.clone()) {
                return Err(format!("two lives of {name} are placed"));
            }
            let life = self.model.life(incarnation.0)?;
            if life.name != name || life.partitions != partitions {
                return Err(format!("{} was found as {name} with {partitions} partitions", life.name));
            }
            found.extend((0..partitions).map(|partition| key_of(PartitionRef { incarnation, partition })));
        }
        let told = &reports[harm.node];
        let is_told =
            !told.findings.is_empty() || !told.missing.is_empty() || !told.lost.is_empty() || told.is_in_doubt;
        let lives: Vec<u64> = self.model.lives.keys().copied().collect();
        for life in lives {
            let (node, is_sure, first_node) = {
                let first = self.model.life(key_of(PartitionRef { partition: 0, ..partition_of(life) }))?.node;
                let one = self.model.life(life)?;
                let is_sure = one.is_wal() && one.creation == Standing::Sure && one.deletion == Standing::Never;
                (one.node, is_sure, first)
            };
            // A file of its own may be what is damaged: readers see a gap.
            let partition = partition_of(life);
            let is_hurt = |file: &FileName| matches!(file, FileName::Topic(topic) if topic.partition == partition);
            let may_lack = is_told || harm.has_lost_end;
            let excuse = Excuse {
                gap: (is_told && node == harm.node) || harm.hurt.iter().any(is_hurt),
                end: may_lack && node == harm.node,
                // Its shard, or the one that decides about the topic, has lost what it knew.
                absence: may_lack && (node == harm.node || first_node == harm.node),
            };
            if found.contains(&life) {
                self.check_partition(plain, life, node, excuse)?;
            } else if is_sure && !excuse.absence {
                return Err(format!("{life:x} is not there, and nothing says why"));
            }
        }
        Ok(())
    }

    fn check_partition(&mut self, plain: &mut Plain, life: u64, node: usize, excuse: Excuse) -> Check {
        let partition = partition_of(life);
        let mut next = Offset(0);
        loop {
            let command =
                Command::Read { partition, from: next, bytes_max: 100_000, records_max: 1000, following: false };
            let page = match plain.ask(node, command)? {
                Reply::Page(page) => page,
                _ if excuse.absence => return Ok(()),
                other => return Err(format!("{life:x} cannot be read: {other:?}")),
            };
            let (start, end) = (page.log_start.offset(), page.high_water.offset());
            let visible_end = self.model.life(life)?.visible_end;
            if end.0 < visible_end && !excuse.end {
                return Err(format!(
                    "{life:x} was visible up to {visible_end} and ends at {end}, and nothing says why"
                ));
            }
            let mut at = next.max(start);
            for batch in &page.batches {
                if batch.base() > at {
                    self.note_gap(life, at, batch.base(), excuse.gap)?;
                }
                at = at.max(batch.end());
                self.model.see(batch)?;
            }
            let after = page.next();
            if page.batches.is_empty() && after.min(end) > at {
                self.note_gap(life, at, after.min(end), excuse.gap)?;
            }
            if after >= end || after <= next && page.batches.is_empty() {
                return if after >= end { Ok(()) } else { Err(format!("reading {life:x} stops at {after} of {end}")) };
            }
            next = after;
        }
    }

    fn note_gap(&mut self, life: u64, from: Offset, end: Offset, may_be: bool) -> Check {
        self.trace.note(format!("a gap of {life:x} from {from} to {end}"));
        self.sums.damage_gaps += 1;
        if may_be { Ok(()) } else { Err(format!("{life:x} lacks {from} to {end}, and no damage touched it")) }
    }
}

impl Kept {
    /// Everything that an earlier start kept is there.
    fn check(&self, plain: &Plain, reports: &[OpeningReport]) -> Check {
        for (node, file) in &self.files {
            if plain.disks[*node].whole(*file).is_none() {
                return Err(format!("{file:?} of {node} was kept because of damage, and is gone"));
            }
        }
        let removed = reports.iter().flat_map(|report| &report.orphans).filter(|(_, is_removed)| *is_removed);
        for (name, _) in removed {
            if self.orphans.contains(name.as_str()) {
                return Err(format!("partitions of {name} were kept because of damage, and are removed"));
            }
        }
        Ok(())
    }

    /// Notes what is there and what nobody serves, if a start found damage.
    fn note(&mut self, plain: &Plain, reports: &[OpeningReport]) {
        let is_damage = |finding: &Finding| !matches!(finding, Finding::Cut { .. });
        if !reports.iter().any(|report| report.findings.iter().any(is_damage)) {
            return;
        }
        let placed: BTreeSet<_> = plain
            .placements()
            .into_iter()
            .map(|placement| match placement {
                PlacementChange::Add { incarnation, .. } | PlacementChange::Remove { incarnation, .. } => incarnation,
            })
            .collect();
        for (node, report) in reports.iter().enumerate() {
            let is_hurt = report.findings.iter().any(is_damage);
            let files = plain.disks[node].list().into_iter().map(|(file, _)| file);
            self.files.extend(files.filter_map(|file| match file {
                FileName::Quarantined(_) => Some((node, file)),
                FileName::Topic(topic) if is_hurt && !placed.contains(&topic.partition.incarnation) => {
                    Some((node, file))
                }
                _ => None,
            }));
            let kept = report.orphans.iter().filter(|(_, is_removed)| !is_removed);
            self.orphans.extend(kept.map(|(name, _)| name.as_str().to_owned()));
        }
    }
}

fn contents(disk: &Disk) -> BTreeMap<FileName, Option<Bytes>> {
    disk.list().into_iter().map(|(file, _)| (file, disk.whole(file))).collect()
}

/// Takes the doubt out of the checkpoints.
fn forget_doubt(shard: ShardId, disk: &mut Disk) {
    for slot in [SlotName::A, SlotName::B].map(FileName::Slot) {
        let Some(mut content) = disk.whole(slot).and_then(|slot| decode_slot(shard, &slot).ok()) else { continue };
        content.checkpoint.doubt = Doubt::No;
        let bytes = encode_slot(shard, content.sequence, &content.checkpoint);
        disk.damage(slot, |content| content[..bytes.len()].copy_from_slice(&bytes));
    }
}
