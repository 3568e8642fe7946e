//! Opens all shards of a data directory side by side, and tells what was found. On the starting thread and those it borrows.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ringmain_engine::{
    Effect, Event, Now, OpenedShard, OpeningOutput, OpeningReport, ShardOpener, ShardSettings, StorageSettings,
    reconcile,
};
use ringmain_model::ShardId;
use ringmain_model::limit::FIRST_OPERATIONS_MAX;
use ringmain_wal::{FileName, Finding, OpenRefused, SlotName, SlotsRefused};

use super::StorageConfig;
use super::blocking::{BlockingFolder, with_cure};
use super::directory::DataDirectory;
use super::names::{parse, parse_folder, text_of};
use crate::start::StartError;

/// By a file of this name in a shard's folder an operator says that the damage was seen which earlier starts found.
const DAMAGE_SEEN: &str = "damage-seen";

/// The shards of a directory, by number, and how long it took.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) shards: Vec<OpenedShard>,
    pub(crate) took: Duration,
}

/// Opens all shards, as many at a time as there are processors.
pub(crate) fn open_shards(
    directory: &DataDirectory,
    settings: ShardSettings,
    config: &StorageConfig,
) -> Result<Opening, StartError> {
    let started = Instant::now();
    warn_of_folders(directory);
    let shards = directory.shards();
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(usize::from(shards));
    let work = || -> Vec<(u16, Result<OpenedShard, StartError>)> {
        let mut opened = Vec::new();
        while let Ok(shard) = u16::try_from(next.fetch_add(1, Ordering::Relaxed)) {
            if shard >= shards {
                break;
            }
            opened.push((shard, open_shard(&directory.folder(ShardId(shard)), ShardId(shard), settings, config)));
        }
        opened
    };
    let mut opened = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut opened = work();
        for other in others {
            match other.join() {
                Ok(part) => opened.extend(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        opened
    });
    opened.sort_by_key(|(shard, _)| *shard);
    let mut shards = opened.into_iter().map(|(_, opened)| opened).collect::<Result<Vec<_>, _>>()?;
    reconcile(&mut shards);
    Ok(Opening { shards, took: started.elapsed() })
}

fn open_shard(
    folder: &Path,
    shard: ShardId,
    settings: ShardSettings,
    config: &StorageConfig,
) -> Result<OpenedShard, StartError> {
    let failed = |error| StartError::ShardUnreadable { path: folder.to_owned(), error: with_cure(error) };
    let refused = |reason: String| StartError::ShardRefused { path: folder.to_owned(), reason };
    let files = list(folder).map_err(failed)?;
    let slots = [read_slot(folder, SlotName::A).map_err(failed)?, read_slot(folder, SlotName::B).map_err(failed)?];
    let epoch = getrandom::u64().map_err(StartError::Random)?;
    let mut storage = StorageSettings {
        topic_segment_bytes: config.topic_segment_bytes,
        topic_segments_max: config.topic_segments_max,
        forgets_damage: folder.join(DAMAGE_SEEN).exists(),
        ..StorageSettings::new(shard, epoch)
    };
    // A message of the largest size, and as much again, has room in each segment.
    let log = &mut storage.log;
    let holds_message = (2 * config.message_bytes_max as u64).next_power_of_two();
    log.segment_bytes_first = log.segment_bytes_first.max(holds_message).min(log.segment_bytes_max);
    let mut opener = ShardOpener::new(shard, settings, storage, &files, &slots)
        .map_err(|reason| refused(slots_refused(reason, folder)))?;
    let mut performer = BlockingFolder::new(folder.to_owned());
    let (mut out, mut doing) = (Vec::new(), VecDeque::new());
    opener.start(&mut out);
    loop {
        for output in out.drain(..) {
            match output {
                OpeningOutput::Do { operation, effect } => doing.push_back((operation, effect)),
                OpeningOutput::Opened(mut opened) => {
                    make_ready(&mut opened, &mut performer);
                    if storage.forgets_damage {
                        forget_damage(folder, &opened.report);
                    }
                    return Ok(*opened);
                }
                OpeningOutput::Refused(reason) => return Err(refused(log_refused(reason, folder))),
            }
        }
        let Some((operation, effect)) = doing.pop_front() else {
            return Err(refused("opening it came to no end, which is our own fault: please report this".to_owned()));
        };
        opener.completed(operation, &performer.perform(&effect), &mut out);
    }
}

/// Why the checkpoints cannot be used, as a sentence that names the files.
fn slots_refused(reason: SlotsRefused, folder: &Path) -> String {
    let [a, b] = [SlotName::A, SlotName::B].map(|slot| path_of(FileName::Slot(slot), folder));
    let what = match reason {
        SlotsRefused::BothDamaged => format!("both checkpoint slots are damaged, {a} and {b}"),
        SlotsRefused::FirstMissing => format!("of the two checkpoint slots {a} is missing and {b} is damaged"),
        SlotsRefused::Slot(..) => return reason.to_string(),
    };
    format!(
        "{what}: nothing was changed; put one back from a copy and start again, and look at them with `ringmain inspect`"
    )
}

/// Why the log cannot be opened, as a sentence that names the files.
fn log_refused(reason: OpenRefused, folder: &Path) -> String {
    let [a, b] = [SlotName::A, SlotName::B].map(|slot| path_of(FileName::Slot(slot), folder));
    match reason {
        OpenRefused::NoCheckpoint => format!(
            "there is no whole checkpoint, neither {a} nor {b}, and the log does not begin with its first batch, so that they were \
             there once: nothing was changed; put one back from a copy, or what the log lacks, and start again, and look with \
             `ringmain inspect`"
        ),
        other => other.to_string(),
    }
}

fn path_of(file: FileName, folder: &Path) -> String {
    folder.join(text_of(file)).display().to_string()
}

/// Takes the operator's word away when it has done its work, so that it does not hold for damage that comes later. While no checkpoint
/// says so, a start after a crash needs it again.
fn forget_damage(folder: &Path, report: &OpeningReport) {
    if report.is_in_doubt {
        tracing::warn!(folder = %folder.display(), "{DAMAGE_SEEN} was there, but this start has found damage of its own: look at what is told of it, then make the file again");
    } else if report.was_in_doubt {
        tracing::info!(folder = %folder.display(), "the damage that earlier starts found is forgotten");
        return;
    }
    let path = folder.join(DAMAGE_SEEN);
    if let Err(error) = fs::remove_file(&path) {
        tracing::warn!(%error, "{} cannot be removed: remove it, or later damage is forgotten, too", path.display());
    }
}

/// Carries out what a shard does first, so that it has room for what is published from the first request on. What is left after
/// a while is left to its core.
fn make_ready(opened: &mut OpenedShard, performer: &mut BlockingFolder) {
    let (mut doing, mut left) = (VecDeque::from(std::mem::take(&mut opened.effects)), Vec::new());
    let mut effects = Vec::new();
    let mut operations = 0;
    while let Some(next) = doing.pop_front() {
        match next {
            Effect::File { operation, effect } if operations < FIRST_OPERATIONS_MAX => {
                operations += 1;
                let completion = performer.perform(&effect);
                // No time has passed for a shard that nobody has asked anything yet.
                opened.shard.handle(Now::default(), Event::FileDone { operation, completion }, &mut effects);
                doing.extend(effects.drain(..));
            }
            other => left.push(other),
        }
    }
    opened.effects = left;
}

/// The files of a shard's folder that are ours, with their sizes. Others are left alone, with a warning each start.
fn list(folder: &Path) -> io::Result<Vec<(FileName, u64)>> {
    let (mut files, mut foreign) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let facts = entry.metadata()?;
        match entry.file_name().to_str().and_then(parse).filter(|_| facts.is_file()) {
            Some(file) => files.push((file, facts.len())),
            None if entry.file_name() == DAMAGE_SEEN => {}
            None => foreign.push(entry.file_name().to_string_lossy().into_owned()),
        }
    }
    if let Some(example) = foreign.first() {
        let count = foreign.len();
        tracing::warn!(folder = %folder.display(), count, example, "files that are none of ours are left alone");
    }
    files.sort_unstable();
    Ok(files)
}

fn read_slot(folder: &Path, slot: SlotName) -> io::Result<Option<Bytes>> {
    match fs::read(folder.join(text_of(FileName::Slot(slot)))) {
        Ok(bytes) => Ok(Some(Bytes::from(bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn warn_of_folders(directory: &DataDirectory) {
    let Ok(entries) = fs::read_dir(&directory.path) else { return };
    for entry in entries.flatten() {
        let shard = entry.file_name().to_str().and_then(parse_folder);
        if shard.is_some_and(|shard| shard.0 >= directory.shards()) {
            tracing::warn!(folder = %entry.path().display(), shards = directory.shards(), "the folder of a shard that this directory does not have is left alone");
        }
    }
}

/// Tells a person what each shard recovered.
pub(crate) fn tell(directory: &DataDirectory, opening: &Opening) {
    let mut all = OpeningReport::default();
    for opened in &opening.shards {
        let (id, report) = (opened.shard.id(), &opened.report);
        let folder = directory.folder(id);
        for sentence in report.findings.iter().map(|finding| sentence(finding, &folder)) {
            tracing::warn!(shard = id.0, "{sentence}");
        }
        if let Some(slot) = report.damaged_slot {
            let sentence = damaged_slot(slot, report, &folder);
            tracing::warn!(shard = id.0, "{sentence}");
        }
        tracing::debug!(
            shard = id.0,
            checkpoint = report.checkpoint,
            topics = report.topics,
            records = report.records,
            groups = report.groups,
            entries = report.entries,
            "opened a shard"
        );
        tell_of_losses(id, &folder, report);
        tell_of_doubt(id, &folder, report);
        all.topics += report.topics;
        all.records += report.records;
        all.groups += report.groups;
        all.entries += report.entries;
    }
    tracing::info!(
        directory = %directory.path.display(),
        shards = opening.shards.len(),
        topics = all.topics,
        records = all.records,
        groups = all.groups,
        replayed_entries = all.entries,
        took_ms = u64::try_from(opening.took.as_millis()).unwrap_or(u64::MAX),
        "opened the data directory"
    );
}

/// What is lost, and parts of topics that belong to none.
fn tell_of_losses(id: ShardId, folder: &Path, report: &OpeningReport) {
    for (topic, file, from, end) in &report.missing {
        let path = folder.join(text_of(FileName::Topic(*file)));
        tracing::error!(
            shard = id.0,
            topic = topic.as_str(),
            from = from.0,
            end = end.0,
            "{} is missing: readers are told of a gap; put it back from a copy if there is one and start again",
            path.display()
        );
    }
    for (topic, from, end) in &report.lost {
        tracing::error!(
            shard = id.0,
            topic = topic.as_str(),
            from = from.0,
            end = end.0,
            "records are lost: readers are told of a gap; put the damaged files back from a copy if there is one and start again"
        );
    }
    for (topic, is_removed) in &report.orphans {
        let topic = topic.as_str();
        if *is_removed {
            tracing::info!(shard = id.0, topic, "removed partitions of a topic that was being made or deleted");
        } else {
            tracing::warn!(
                shard = id.0,
                topic,
                "partitions of a topic that its own shard does not know are left out of service, and kept because something is damaged: put the damaged files back from a copy if there is one and start again"
            );
        }
    }
}

fn damaged_slot(slot: SlotName, report: &OpeningReport, folder: &Path) -> String {
    let path = path_of(FileName::Slot(slot), folder);
    match report.checkpoint {
        Some(_) => format!("{path} is damaged: the other checkpoint was used, this one will be written anew"),
        None => format!(
            "{path} is damaged or was never finished, and there is no other checkpoint: the whole log is there and was read from its \
             first batch on, and this one will be written anew"
        ),
    }
}

/// What is kept because nobody knows what was deleted.
fn tell_of_doubt(id: ShardId, folder: &Path, report: &OpeningReport) {
    for topic in &report.outlived {
        tracing::warn!(
            shard = id.0,
            topic = topic.as_str(),
            "two lives of this topic were found: the entry that ended the older one is lost; the newer one serves, the older one is out of service, and its files are kept in {}",
            folder.display()
        );
    }
    if report.is_in_doubt {
        let example = report.kept.first().map(|file| path_of(FileName::Topic(*file), folder));
        tracing::warn!(
            shard = id.0,
            kept = report.kept.len(),
            example,
            "this start or an earlier one found damage, so nothing is removed that no checkpoint names: look at it with `ringmain inspect`, and when nothing of it is wanted any more, make an empty file {} and start again",
            folder.join(DAMAGE_SEEN).display()
        );
    }
}

/// A finding as a sentence that names the file.
pub(super) fn sentence(finding: &Finding, folder: &Path) -> String {
    let log = |number| path_of(FileName::Segment(number), folder);
    match finding {
        Finding::Cut { sequence, segment, position } => format!(
            "the log ends with batch {sequence}, which is not whole: cut at byte {position} of {}; a crash in the middle of a write leaves it so, and then nothing in it was acknowledged as durable; if there was none, the disk has damaged what was",
            log(*segment)
        ),
        Finding::Hole { from, to, segment, position } => format!(
            "the log is damaged: batches {from} up to {to}, that one not included, are lost, from byte {position} of {} on; the rest was read and no byte was deleted: look at it with `ringmain inspect`",
            log(*segment)
        ),
        Finding::SegmentMissing(segment) => {
            format!("{} is missing: put it back from a copy if there is one and start again", log(*segment))
        }
        Finding::SegmentHeaderDamaged(segment) => {
            format!(
                "the header of {} is damaged: its batches were read as far as they go on from those before",
                log(*segment)
            )
        }
        Finding::SegmentShort { segment, bytes } => {
            format!("{} has only {bytes} bytes, fewer than its header says", log(*segment))
        }
        Finding::Quarantined { partition, awaited: Some(awaited), found } => format!(
            "partition {partition} is set aside: its records end at offset {awaited} and go on at {found}; its bytes are kept in {}",
            folder.display()
        ),
        Finding::Quarantined { partition, awaited: None, found } => format!(
            "partition {partition} is set aside: it has records from offset {found} on and nothing tells which topic they are of; its bytes are kept in {}",
            folder.display()
        ),
    }
}
