//! One file: what it is, told by its first bytes before its name, and all that stands in it; on the main thread.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;

use bytes::Bytes;
use ringmain_wal::{BLOCK_BYTES, COMMIT_HEADER_BYTES, CommitHeader, TopicSegmentHeader};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::damage::{Damage, Damages};
use super::entry::TopicHeaderView;
use super::item::TABLE_HEAD;
use super::name::Named;
use super::records::{self, RecordsWalk};
use super::segment::SegmentWalk;
use super::slot::{self, SlotView};
use super::source::Source;

const SEGMENT_MAGIC: &[u8] = b"RMLOGSEG";
const TOPIC_SEGMENT_MAGIC: &[u8] = b"RMTOPSEG";
const SLOT_MAGIC: &[u8] = b"RMSLOT\0\0";

/// How a file is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// Every entry is told.
    pub(super) is_verbose: bool,
    /// No verdict on its folder follows, so that what looks like a torn end has to be told here.
    pub(super) is_alone: bool,
}

/// What a file turned out to be.
#[derive(Debug)]
enum Content {
    LogSegment(SegmentWalk),
    Slot(Result<SlotView, String>),
    Records(RecordsWalk),
    /// Its header alone: which of its chunks count, and whether they are whole, is known with the checkpoint that names them.
    TopicSegment(Result<TopicHeaderView, String>),
    Unknown,
}

/// A file that was opened, to be printed once: what is in it is read while it is printed.
#[derive(Debug)]
pub(super) struct FileVisit {
    path: String,
    bytes: u64,
    /// An earlier start set it aside, which its folder's verdict passes over.
    is_set_aside: bool,
    manner: Manner,
    content: Content,
}

impl FileVisit {
    pub(super) fn open(path: &Path, manner: Manner) -> io::Result<Self> {
        let shown = shown(path);
        let mut source = Source::open(path)?;
        let (bytes, named) = (source.bytes(), Named::of(path));
        let start = source.get(0, 2 * BLOCK_BYTES)?;
        let content = if start.starts_with(SEGMENT_MAGIC) {
            Content::LogSegment(SegmentWalk::open(source, named, &shown, manner)?)
        } else if start.starts_with(SLOT_MAGIC) || named.is_slot() {
            Content::Slot(slot::view(&slot::read(&mut source)?, manner.is_verbose))
        } else if named.is_segment() || has_batch_behind_header(&start) {
            Content::LogSegment(SegmentWalk::open(source, named, &shown, manner)?)
        } else if named == Named::TopicSegment || start.starts_with(TOPIC_SEGMENT_MAGIC) {
            Content::TopicSegment(topic_header(&start))
        } else if records::may_begin(&start) {
            Content::Records(RecordsWalk::new(source, &shown))
        } else {
            Content::Unknown
        };
        let is_set_aside = !manner.is_alone && named.is_quarantined();
        Ok(Self { path: shown, bytes, is_set_aside, manner, content })
    }

    fn kind(&self) -> &'static str {
        match self.content {
            Content::LogSegment(_) => "log_segment",
            Content::Slot(_) => "checkpoint_slot",
            Content::Records(_) => "record_batches",
            Content::TopicSegment(_) => "topic_segment",
            Content::Unknown => "unknown",
        }
    }

    /// Prints the file for a person.
    pub(super) fn print(self, out: &mut impl io::Write, damages: &mut Damages) -> io::Result<()> {
        let (path, kind, damages_before) = (self.path.clone(), self.kind().replace('_', " "), damages.told().len());
        writeln!(out, "{path}: {kind}, {} bytes", self.bytes)?;
        if self.is_set_aside {
            damages.add(set_aside(&path));
        }
        match self.content {
            Content::LogSegment(mut walk) => {
                match &walk.header {
                    Ok(header) => writeln!(out, "  header      {header}")?,
                    Err(text) => writeln!(out, "  header      DAMAGED: {text}")?,
                }
                writeln!(out, "{TABLE_HEAD}")?;
                walk.by_ref().try_for_each(|item| writeln!(out, "{item}"))?;
                writeln!(out, "  log ends    {}", walk.finish(damages))?;
            }
            Content::Slot(Ok(slot)) => slot.print(out)?,
            Content::Slot(Err(text)) => damages.add(whole_file(&path, text)),
            Content::Records(mut walk) => {
                walk.by_ref().try_for_each(|view| writeln!(out, "  {:>12}  {}", view.position, view.batch))?;
                walk.finish(damages);
            }
            Content::TopicSegment(Ok(header)) => writeln!(out, "  header      {header}")?,
            Content::TopicSegment(Err(text)) if self.manner.is_alone => damages.add(whole_file(&path, text)),
            // One that no checkpoint names may be half made; the verdict tells of one that is named.
            Content::TopicSegment(Err(text)) => writeln!(out, "  header      NOT WHOLE: {text}")?,
            Content::Unknown => damages.add(unknown(&path, self.bytes)),
        }
        for damage in &damages.told()[damages_before..] {
            let place = damage.position.map(|position| format!(" at {position}")).unwrap_or_default();
            writeln!(out, "  DAMAGE{place}: {}", damage.text)?;
        }
        Ok(())
    }

    /// The file as a JSON document of its own.
    pub(super) fn into_document(self, damages: &mut Damages) -> FileDocument<'_> {
        FileDocument { visit: Cell::new(Some(self)), damages: RefCell::new(damages) }
    }
}

/// The head and the content of a file as fields of a JSON object, read while they are written.
fn fields<M: SerializeMap>(visit: FileVisit, map: &mut M, damages: &mut Damages) -> Result<(), M::Error> {
    map.serialize_entry("kind", visit.kind())?;
    map.serialize_entry("path", &visit.path)?;
    map.serialize_entry("bytes", &visit.bytes)?;
    if visit.is_set_aside {
        damages.add(set_aside(&visit.path));
    }
    match visit.content {
        Content::LogSegment(walk) => {
            map.serialize_entry("header", &walk.header.as_ref().ok())?;
            let walk = RefCell::new(walk);
            map.serialize_entry("items", &Streamed(&walk))?;
            map.serialize_entry("log_end", &walk.into_inner().finish(damages))?;
        }
        Content::Slot(Ok(slot)) => map.serialize_entry("slot", &slot)?,
        Content::Slot(Err(text)) => {
            map.serialize_entry("slot", &None::<SlotView>)?;
            damages.add(whole_file(&visit.path, text));
        }
        Content::Records(walk) => {
            let walk = RefCell::new(walk);
            map.serialize_entry("batches", &Streamed(&walk))?;
            walk.into_inner().finish(damages);
        }
        Content::TopicSegment(Ok(header)) => map.serialize_entry("header", &header)?,
        Content::TopicSegment(Err(text)) => {
            map.serialize_entry("header", &None::<TopicHeaderView>)?;
            if visit.manner.is_alone {
                damages.add(whole_file(&visit.path, text));
            }
        }
        Content::Unknown => damages.add(unknown(&visit.path, visit.bytes)),
    }
    Ok(())
}

/// A walk as a JSON list that is never held whole.
struct Streamed<'w, W>(&'w RefCell<W>);

impl<W: Iterator<Item: Serialize>> Serialize for Streamed<'_, W> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&mut *self.0.borrow_mut())
    }
}

/// A file alone: its fields, then all that is wrong.
pub(super) struct FileDocument<'d> {
    visit: Cell<Option<FileVisit>>,
    damages: RefCell<&'d mut Damages>,
}

impl Serialize for FileDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let mut damages = self.damages.borrow_mut();
        if let Some(visit) = self.visit.take() {
            fields(visit, &mut map, &mut damages)?;
        }
        damages.entries(&mut map)?;
        map.end()
    }
}

/// A file among others, whose damages are told at the end of the document around it.
pub(super) struct FileFields<'d, 'o> {
    pub(super) visit: Cell<Option<FileVisit>>,
    pub(super) damages: &'d RefCell<&'o mut Damages>,
}

impl Serialize for FileFields<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(visit) = self.visit.take() {
            fields(visit, &mut map, &mut self.damages.borrow_mut())?;
        }
        map.end()
    }
}

/// A path as it is shown: a terminal would obey control characters in it.
pub(super) fn shown(path: &Path) -> String {
    let text = path.to_string_lossy();
    if text.chars().any(char::is_control) { text.escape_debug().to_string() } else { text.into_owned() }
}

fn topic_header(start: &Bytes) -> Result<TopicHeaderView, String> {
    TopicSegmentHeader::decode(start).map(|header| (&header).into()).map_err(|damage| damage.to_string())
}

fn whole_file(path: &str, text: String) -> Damage {
    Damage { path: path.to_owned(), position: None, sequence: None, text }
}

fn set_aside(path: &str) -> Damage {
    let text = "an earlier start set it aside because of damage: it is kept for you to look at, and never read";
    whole_file(path, text.to_owned())
}

fn unknown(path: &str, bytes: u64) -> Damage {
    let text = match bytes {
        0 => "the file is empty",
        _ => "it is none of Ringmain's files, or its beginning is damaged",
    };
    whole_file(path, text.to_owned())
}

/// Whether a batch stands where a segment's first one would, so that only the header before it is damaged.
fn has_batch_behind_header(start: &Bytes) -> bool {
    let block = usize::try_from(BLOCK_BYTES).unwrap_or(usize::MAX);
    let Some(bytes) = start.get(block..) else { return false };
    bytes.len() >= COMMIT_HEADER_BYTES
        && CommitHeader::read(bytes).is_some_and(|header| header.stands_at(header.segment, BLOCK_BYTES))
}
