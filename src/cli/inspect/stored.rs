//! The topic segments that a checkpoint names: whether what counts in them is there and whole; on the main thread.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use ringmain_model::{Offset, PartitionRef};
use ringmain_wal::{BLOCK_BYTES, Checkpoint, Chunk, TopicSegment, TopicSegmentHeader, decode_chunk, decode_index};

use super::damage::Damage;
use super::file::shown;
use super::name::Named;
use super::source::{PIECE_BYTES_MAX, Source};

/// Damages that are told of one shard's topic segments; a disk that has lost more is told by these.
const TOLD_MAX: usize = 1000;

/// Checks what the checkpoint says of topic segments against the files of its folder. What no checkpoint names does not count, nor
/// what it says of topics that the log behind it deletes.
pub(super) fn check(
    folder: &str,
    checkpoint: &Checkpoint,
    counts: impl Fn(PartitionRef) -> bool,
    files: &[(Named, PathBuf)],
) -> io::Result<Vec<Damage>> {
    let mut found = BTreeMap::new();
    // The header tells whose file it is: names may be what was changed.
    for (_, path) in files.iter().filter(|(named, _)| *named == Named::TopicSegment) {
        let mut source = Source::open(path)?;
        if let Ok(header) = TopicSegmentHeader::decode(&source.get(0, BLOCK_BYTES)?) {
            found.insert((header.partition, header.base), path);
        }
    }
    let mut damages = Vec::new();
    for stored in checkpoint.segments.iter().filter(|stored| counts(stored.partition)) {
        for segment in &stored.segments {
            if damages.len() >= TOLD_MAX {
                return Ok(damages);
            }
            let Some(path) = found.get(&(stored.partition, segment.base)) else {
                let (partition, first) = (name(stored.partition), segment.base);
                let last = Offset(segment.end.0.saturating_sub(1));
                let text = format!(
                    "the topic segment of {partition} with offsets {first} to {last}, which the checkpoint names, is missing or its header \
                     is damaged"
                );
                damages.push(Damage { path: folder.to_owned(), position: None, sequence: None, text });
                continue;
            };
            let told = |position, text| Damage { path: shown(path), position: Some(position), sequence: None, text };
            let wrong = check_file(&mut Source::open(path)?, stored.partition, segment)?;
            damages.extend(wrong.into_iter().map(|(position, text)| told(position, text)));
        }
    }
    Ok(damages)
}

/// What is wrong with a file, and where, as far as the checkpoint says that it counts.
fn check_file(source: &mut Source, partition: PartitionRef, segment: &TopicSegment) -> io::Result<Vec<(u64, String)>> {
    let mut wrong = Vec::new();
    if source.bytes() < segment.bytes_on_disk() {
        let text =
            format!("the file has {} bytes, and {} of it count: it is cut", source.bytes(), segment.bytes_on_disk());
        wrong.push((source.bytes(), text));
    }
    let mut chunks = segment.chunks.clone();
    if segment.is_sealed() {
        let index = source.read(segment.file_bytes, segment.index_read_bytes())?;
        match decode_index(partition, segment, &index) {
            Ok(listed) => chunks = listed,
            Err(damage) => {
                let text = format!("{damage}: a start makes it again from the chunks, which were not checked here");
                wrong.push((segment.file_bytes, text));
            }
        }
    }
    for chunk in chunks {
        let Chunk { base, end, position, .. } = chunk;
        if chunk.read_bytes() > 2 * PIECE_BYTES_MAX {
            wrong.push((position, "a chunk says that it is larger than any message".to_owned()));
            continue;
        }
        if let Err(damage) = decode_chunk(partition, &chunk, &source.get(position, chunk.read_bytes())?) {
            let last = Offset(end.0.saturating_sub(1));
            wrong.push((position, format!("offsets {base} to {last} of {} are lost: {damage}", name(partition))));
        }
    }
    wrong.truncate(TOLD_MAX);
    Ok(wrong)
}

fn name(partition: PartitionRef) -> String {
    format!("topic {} partition {}", partition.incarnation, partition.partition)
}
