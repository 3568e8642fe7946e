//! A data directory or the folder of one shard: its files in order, and a verdict on each shard; on the main thread.

use std::cell::{Cell, RefCell};
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use ringmain_wal::FileName;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::damage::{Damage, Damages};
use super::file::{FileFields, FileVisit, Manner, shown};
use super::lock::{self, LockView};
use super::name::{self, Named};
use super::verdict::Verdict;

/// Of the description no more is shown: it is a few lines.
const DESCRIPTION_BYTES_MAX: u64 = 64 << 10;

/// The folder of one shard.
#[derive(Debug)]
struct ShardFolder {
    path: PathBuf,
    /// In the order in which they are shown.
    files: Vec<(Named, PathBuf)>,
}

/// A directory whose names were read.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    is_verbose: bool,
    /// What only a data directory has.
    whole: Option<Whole>,
    shards: Vec<ShardFolder>,
}

#[derive(Debug)]
struct Whole {
    description: Option<String>,
    lock: LockView,
    /// Names in it that are not ours.
    unknown: Vec<String>,
    /// Folders that should be there, because there is one with a higher number.
    missing: Vec<String>,
}

impl Directory {
    /// Reads the names of a directory.
    ///
    /// # Errors
    /// A sentence: it cannot be read, or it is neither a data directory nor a shard's folder.
    pub(super) fn list(path: &Path, is_verbose: bool) -> Result<Self, String> {
        let names = entries(path)?;
        let mut numbered: Vec<_> = names.iter().filter_map(|one| name::shard(one).map(|shard| (shard, one))).collect();
        numbered.retain(|(_, folder)| folder.is_dir());
        numbered.sort();
        let is_named = |name: &str| names.iter().any(|one| one.file_name().is_some_and(|own| own == name));
        let is_shard = names.iter().any(|one| Named::of(one) != Named::Unknown);
        if is_shard && numbered.is_empty() {
            let folder = ShardFolder::of(path, names);
            return Ok(Self { path: path.to_owned(), is_verbose, whole: None, shards: vec![folder] });
        }
        if numbered.is_empty() && !(is_named("description") && is_named("lock")) {
            let shown = shown(path);
            return Err(format!(
                "{shown} is neither a data directory nor the folder of a shard: it has none of their files"
            ));
        }
        let last = numbered.last().map_or(0, |(shard, _)| shard.0);
        let is_there = |number: u16| numbered.iter().any(|(shard, _)| shard.0 == number);
        let missing =
            (0..last).filter(|number| !is_there(*number)).map(|number| format!("shard-{number:03}")).collect();
        let is_ours = |one: &Path| {
            name::shard(one).is_some() || one.file_name().is_some_and(|own| own == "description" || own == "lock")
        };
        let whole = Whole {
            description: description(&path.join("description")),
            lock: lock::look(&path.join("lock")),
            unknown: names.iter().filter(|one| !is_ours(one)).map(|one| shown(one)).collect(),
            missing,
        };
        let folders = numbered.into_iter().map(|(_, folder)| Ok(ShardFolder::of(folder, entries(folder)?)));
        let shards = folders.collect::<Result<_, String>>()?;
        Ok(Self { path: path.to_owned(), is_verbose, whole: Some(whole), shards })
    }

    fn missing(&self, damages: &mut Damages) {
        for name in self.whole.iter().flat_map(|whole| &whole.missing) {
            let text = format!("the folder {name} is missing, and with it every topic of that shard");
            damages.add(Damage { path: shown(&self.path), position: None, sequence: None, text });
        }
    }

    /// Prints all for a person.
    pub(super) fn print(self, out: &mut impl io::Write, damages: &mut Damages) -> io::Result<()> {
        self.missing(damages);
        if let Some(whole) = &self.whole {
            writeln!(out, "{}: data directory, shards {}", shown(&self.path), self.shards.len())?;
            whole.print(out)?;
            writeln!(out)?;
        }
        for folder in &self.shards {
            writeln!(out, "{}: folder of a shard, files {}", shown(&folder.path), folder.files.len())?;
            for (named, path) in &folder.files {
                match visit(*named, path, self.is_verbose, damages) {
                    Visit::Read(visit) => visit.print(out, damages)?,
                    Visit::Told(kind, text) => writeln!(out, "{}: {kind}: {text}", shown(path))?,
                }
            }
            let verdict = folder.verdict(self.is_verbose, damages);
            verdict.print(out)?;
            writeln!(out)?;
        }
        Ok(())
    }

    /// All as a JSON document.
    pub(super) fn into_document(self, damages: &mut Damages) -> DirectoryDocument<'_> {
        DirectoryDocument { directory: self, damages: RefCell::new(damages) }
    }
}

impl Whole {
    fn print(&self, out: &mut impl io::Write) -> io::Result<()> {
        match &self.description {
            Some(text) => {
                let mut lines = text.lines();
                writeln!(out, "  description {}", lines.next().unwrap_or_default().escape_debug())?;
                lines.try_for_each(|line| writeln!(out, "              {}", line.escape_debug()))?;
            }
            None => writeln!(out, "  description none that can be read")?,
        }
        match self.lock.held {
            Some(true) => writeln!(out, "  lock        {} is running here: {}", self.lock.holder(), lock::RUNNING)?,
            Some(false) if self.lock.present => {
                writeln!(out, "  lock        not held by any process that can be seen")?;
            }
            Some(false) => writeln!(out, "  lock        no lock file")?,
            None => writeln!(out, "  lock        it is not known whether a broker is running here")?,
        }
        self.missing
            .iter()
            .try_for_each(|name| writeln!(out, "  MISSING     {name}, and with it every topic of that shard"))?;
        self.unknown.iter().try_for_each(|path| writeln!(out, "  not ours    {path}"))
    }
}

/// What is made of a file in a shard's folder.
enum Visit {
    Read(FileVisit),
    /// Only its kind and a sentence.
    Told(&'static str, String),
}

fn visit(named: Named, path: &Path, is_verbose: bool, damages: &mut Damages) -> Visit {
    match named {
        Named::Log(FileName::Preparing(_)) => {
            let text = "it was being made when the broker ended, nothing counts in it, and a start removes it";
            return Visit::Told("preparing", text.to_owned());
        }
        Named::Unknown => return Visit::Told("not_ours", "it is not one of Ringmain's files by its name".to_owned()),
        _ => {}
    }
    match FileVisit::open(path, Manner { is_verbose, is_alone: false }) {
        Ok(visit) => Visit::Read(visit),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text = "it was there a moment ago: a broker that runs recycles and removes files";
            Visit::Told("gone", text.to_owned())
        }
        Err(error) => {
            let text = format!("cannot be read: {error}");
            damages.add_unreadable(&shown(path), text.clone());
            Visit::Told("unreadable", text)
        }
    }
}

impl ShardFolder {
    fn of(path: &Path, names: Vec<PathBuf>) -> Self {
        let mut files: Vec<_> = names.into_iter().map(|one| (Named::of(&one), one)).collect();
        // Checkpoints say where to begin, then comes the log in its order.
        files.sort_by(|one, other| (!one.0.is_slot(), one).cmp(&(!other.0.is_slot(), other)));
        Self { path: path.to_owned(), files }
    }

    fn verdict(&self, is_verbose: bool, damages: &mut Damages) -> Verdict {
        let verdict = Verdict::of(&self.path, &self.files, is_verbose);
        verdict.tell(&shown(&self.path), damages);
        verdict
    }
}

fn entries(path: &Path) -> Result<Vec<PathBuf>, String> {
    let unreadable = |error: io::Error| format!("cannot read {}: {error}", shown(path));
    let listed = fs::read_dir(path).map_err(unreadable)?;
    let paths: io::Result<Vec<PathBuf>> = listed.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths = paths.map_err(unreadable)?;
    paths.sort();
    Ok(paths)
}

fn description(path: &Path) -> Option<String> {
    // Opening anything but a file could wait for ever.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(DESCRIPTION_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// A directory and all that is in it.
pub(super) struct DirectoryDocument<'d> {
    directory: Directory,
    damages: RefCell<&'d mut Damages>,
}

impl Serialize for DirectoryDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Directory { path, is_verbose, whole, shards } = &self.directory;
        self.directory.missing(&mut self.damages.borrow_mut());
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", if whole.is_some() { "data_directory" } else { "shard_folder" })?;
        map.serialize_entry("path", &shown(path))?;
        if let Some(whole) = whole {
            map.serialize_entry("description", &whole.description)?;
            map.serialize_entry("lock", &whole.lock)?;
            map.serialize_entry("not_ours", &whole.unknown)?;
            map.serialize_entry("missing", &whole.missing)?;
        }
        let documents =
            shards.iter().map(|folder| ShardDocument { folder, is_verbose: *is_verbose, damages: &self.damages });
        map.serialize_entry("shards", &Vec::from_iter(documents))?;
        self.damages.borrow().entries(&mut map)?;
        map.end()
    }
}

struct ShardDocument<'d, 'o> {
    folder: &'d ShardFolder,
    is_verbose: bool,
    damages: &'d RefCell<&'o mut Damages>,
}

impl Serialize for ShardDocument<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("path", &shown(&self.folder.path))?;
        map.serialize_entry("files", &FilesDocument(self))?;
        map.serialize_entry("verdict", &self.folder.verdict(self.is_verbose, &mut self.damages.borrow_mut()))?;
        map.end()
    }
}

struct FilesDocument<'d, 'o>(&'d ShardDocument<'d, 'o>);

impl Serialize for FilesDocument<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer
            .collect_seq(self.0.folder.files.iter().map(|(named, path)| FileInFolder(self.0, *named, path.as_path())))
    }
}

struct FileInFolder<'d, 'o>(&'d ShardDocument<'d, 'o>, Named, &'d Path);

impl Serialize for FileInFolder<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(shard, named, path) = self;
        let visit = visit(*named, path, shard.is_verbose, &mut shard.damages.borrow_mut());
        match visit {
            Visit::Read(visit) => {
                FileFields { visit: Cell::new(Some(visit)), damages: shard.damages }.serialize(serializer)
            }
            Visit::Told(kind, text) => {
                let mut map = serializer.serialize_map(Some(3))?;
                map.serialize_entry("kind", kind)?;
                map.serialize_entry("path", &shown(path))?;
                map.serialize_entry("text", &text)?;
                map.end()
            }
        }
    }
}
