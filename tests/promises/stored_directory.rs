//! A data directory of a broker that logs: started, killed, copied and looked at by tests. Bytes are found by the marks that the format gives them.

use crate::broker::{Broker, Folder, Setup, program};
use crate::deadline::{LIMIT, wait_for};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

pub(crate) const BLOCK: u64 = 4096;

/// A directory that a broker stores in; it goes away with the value.
#[derive(Debug)]
pub(crate) struct DataDirectory {
    /// Removed at the end, with what is in it.
    _folder: Option<Folder>,
    path: PathBuf,
}

impl DataDirectory {
    /// One that does not exist yet, in a folder that does.
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        let path = folder.path().join("data");
        Self { _folder: Some(folder), path }
    }

    /// One at this place, for whose end somebody else cares.
    pub(crate) fn at(path: &Path) -> Self {
        Self { _folder: None, path: path.to_owned() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A copy of all of it. No broker may have it.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self::new();
        let status = Command::new("cp").args(["-a", "--sparse=always"]).arg(&self.path).arg(&copy.path).status();
        assert!(status.unwrap().success(), "the directory is copied");
        copy
    }

    /// What starts a broker here.
    pub(crate) fn setup(&self) -> Setup {
        Setup::new().flag("--storage", "wal").flag("--wal-dir", self.path.display())
    }

    /// A broker of one shard, so that a test knows which log holds what.
    pub(crate) fn start(&self) -> Broker {
        self.setup().flag("--shards", 1).start()
    }

    /// The words of a broker of one shard.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let path = self.path.display().to_string();
        ["--storage", "wal", "--wal-dir", &path, "--shards", "1"].map(str::to_owned).to_vec()
    }

    /// Starts a broker that must refuse to; gives what it said.
    #[track_caller]
    pub(crate) fn expect_refusal(&self) -> String {
        expect_refusal(&serve(&self.arguments(), &[]))
    }

    /// Starts a broker of one shard and kills it as soon as it listens. When it refuses to start, what it said.
    #[track_caller]
    pub(crate) fn try_start(&self) -> Result<(), String> {
        let folder = Folder::new();
        let said = folder.path().join("said");
        let mut command = program(&folder, &[]);
        command.args(["serve", "--port", "0", "--log-format", "json"]).args(self.arguments());
        command.stderr(fs::File::create(&said).unwrap()).stdout(Stdio::null());
        let mut child = Ended(command.spawn().unwrap());
        let said = || fs::read_to_string(&said).unwrap();
        let status = wait_for("the broker listens or ends", || {
            let is_listening = said().contains("\"listening\"");
            child.0.try_wait().unwrap().map(Some).or(is_listening.then_some(None))
        });
        let Some(status) = status else { return Ok(()) };
        let said = said();
        assert!(matches!(status.code(), Some(1 | 2)) && !said.contains("panicked"), "{status}: {said}");
        Err(said)
    }

    /// All files with their sizes and contents, to be compared later.
    pub(crate) fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        self.files().into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
    }

    /// All files, in order.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let (mut files, mut folders) = (Vec::new(), vec![self.path.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        files.sort();
        files
    }

    /// Files that begin with a mark, such as `RMLOGSEG`, `RMSLOT\0\0` or `RMTOPSEG`.
    pub(crate) fn marked(&self, mark: &[u8; 8]) -> Vec<PathBuf> {
        let begins =
            |path: &PathBuf| Bytes::of(path).is_some_and(|bytes| bytes.text(0, 8).as_deref() == Some(&mark[..]));
        self.files().into_iter().filter(begins).collect()
    }

    /// The commit batches of the log, in the order of their numbers.
    pub(crate) fn batches(&self) -> Vec<Batch> {
        let mut batches: Vec<_> = self.marked(b"RMLOGSEG").iter().flat_map(|path| batches_of(path)).collect();
        batches.sort_by_key(|batch| batch.sequence);
        batches
    }
}

/// A commit batch of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) sequence: u64,
    pub(crate) file: PathBuf,
    /// Bytes from the start of the file.
    pub(crate) position: u64,
    /// Bytes of it, filling excluded.
    pub(crate) length: u64,
}

/// Follows the batches of one log segment as far as they belong to it.
fn batches_of(path: &Path) -> Vec<Batch> {
    let bytes = Bytes::of(path).unwrap();
    let (number, epoch) = (bytes.number(16, 8), bytes.number(24, 8));
    let (mut batches, mut position) = (Vec::new(), BLOCK);
    while bytes.text(position + 8, 4).as_deref() == Some(b"RMCB")
        && (bytes.number(position + 24, 8), bytes.number(position + 32, 8)) == (epoch, number)
    {
        let length = bytes.number(position + 4, 4);
        let sequence = bytes.number(position + 16, 8);
        batches.push(Batch { sequence, file: path.to_owned(), position, length });
        position += length.next_multiple_of(BLOCK);
    }
    batches
}

/// A file whose bytes are read, and changed.
#[derive(Debug)]
pub(crate) struct Bytes(fs::File);

impl Bytes {
    pub(crate) fn of(path: &Path) -> Option<Self> {
        fs::OpenOptions::new().read(true).write(true).open(path).ok().map(Self)
    }

    pub(crate) fn text(&self, position: u64, count: usize) -> Option<Vec<u8>> {
        let mut text = vec![0; count];
        self.0.read_exact_at(&mut text, position).ok().map(|()| text)
    }

    /// A little-endian number of that many bytes.
    pub(crate) fn number(&self, position: u64, count: usize) -> u64 {
        let text = self.text(position, count).unwrap();
        text.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    pub(crate) fn write(&self, position: u64, text: &[u8]) {
        self.0.write_all_at(text, position).unwrap();
    }

    /// Turns one bit.
    pub(crate) fn flip(&self, position: u64, bit: u32) {
        let byte = self.text(position, 1).unwrap()[0];
        self.write(position, &[byte ^ 1 << bit]);
    }

    pub(crate) fn zero(&self, positions: std::ops::Range<u64>) {
        self.write(positions.start, &vec![0; (positions.end - positions.start) as usize]);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.metadata().unwrap().len()
    }
}

/// Runs `ringmain serve` with these arguments until it ends by itself, which it must within the limit.
pub(crate) fn serve(arguments: &[String], variables: &[(&str, &str)]) -> Output {
    serve_by(&[], arguments, variables)
}

/// As [`serve`], started by the words of `wrapper`.
pub(crate) fn serve_by(wrapper: &[&str], arguments: &[String], variables: &[(&str, &str)]) -> Output {
    let folder = Folder::new();
    let limit = LIMIT.as_secs().to_string();
    let wrapper = [&["timeout", "--signal=KILL", &limit], wrapper].concat();
    let mut command = program(&folder, &wrapper);
    command.args(["serve", "--port", "0"]).args(arguments).envs(variables.iter().copied()).output().unwrap()
}

/// Panics unless the broker ended with an error in words, without a panic.
#[track_caller]
pub(crate) fn expect_refusal(output: &Output) -> String {
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_told = !told.contains("panicked") && !told.trim().is_empty();
    assert!(matches!(output.status.code(), Some(1 | 2)) && is_told, "{:?}: {told}", output.status);
    told
}

impl Broker {
    /// Creates a topic that is stored on the disk.
    pub(crate) fn create_logged_topic(&self, name: &str) {
        self.create_topic_with(json!({ "storage": "wal" }), name);
    }

    /// All messages of a topic from an offset on, each with its offset, and the gaps that were told on the way.
    pub(crate) fn everything(&self, topic: &str, from: u64) -> Everything {
        let mut everything = Everything::default();
        let mut next = from;
        let until = Instant::now() + LIMIT;
        loop {
            let target = crate::broker::topic_path(topic, &format!("/messages?from_offset={next}&limit=10000"));
            let page = self.get(&target).expect(200).data();
            let messages = page["messages"].as_array().unwrap();
            for message in messages {
                let payload = STANDARD.decode(message["payload"].as_str().unwrap()).unwrap();
                everything.messages.push((message["offset"].as_u64().unwrap(), payload));
            }
            if let Some(gap) = page.get("gap").filter(|gap| !gap.is_null()) {
                everything.gaps.push((gap["requested"].as_u64().unwrap(), gap["resumed"].as_u64().unwrap()));
            }
            let after = page["next_offset"].as_u64().unwrap();
            if after == next && messages.is_empty() {
                return everything;
            }
            assert!(after > next && Instant::now() < until, "reading does not go on: {next}, {after}");
            next = after;
        }
    }
}

/// What a topic holds.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Everything {
    pub(crate) messages: Vec<(u64, Vec<u8>)>,
    /// Requested and resumed.
    pub(crate) gaps: Vec<(u64, u64)>,
}

impl Everything {
    pub(crate) fn offsets(&self) -> Vec<u64> {
        self.messages.iter().map(|(offset, _)| *offset).collect()
    }

    /// Panics when an offset below `end` is neither there nor in a gap that was told, or an offset comes twice or out of order.
    #[track_caller]
    pub(crate) fn expect_no_silent_loss(&self, end: u64) {
        let offsets = self.offsets();
        assert!(offsets.is_sorted_by(|one, next| one < next), "out of order: {offsets:?}");
        let mut next = 0;
        for offset in offsets.into_iter().chain([end]) {
            let is_told =
                |lost: u64| self.gaps.iter().any(|(requested, resumed)| (*requested..*resumed).contains(&lost));
            let silent = (next..offset).find(|lost| !is_told(*lost));
            assert_eq!(silent, None, "an offset is gone without a word; gaps: {:?}", self.gaps);
            next = offset + 1;
        }
    }
}

/// A child that is ended with the value.
#[derive(Debug)]
pub(crate) struct Ended(pub(crate) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
