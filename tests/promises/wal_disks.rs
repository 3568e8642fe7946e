//! Small disks of a test's own, to be filled, frozen and broken. They need root, and are gone with the process of the test, which is
//! the only one that sees them ([`in_own_mounts`]).

use crate::broker::Folder;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// How long a disk may be frozen.
pub(crate) const FROZEN_SECONDS_MAX: u64 = 20;

/// Runs a test of this program once more, in a process of its own that has mounts of its own. Whether this is that process.
pub(crate) fn in_own_mounts(test: &str) -> bool {
    const ALONE: &str = "RINGMAIN_TEST_IN_OWN_MOUNTS";
    if std::env::var(ALONE).is_ok_and(|name| name == test) {
        return true;
    }
    assert!(
        rustix::process::geteuid().is_root(),
        "{test} mounts a small disk, which only root can: run it as root, or leave such tests out with --skip wal_disk --skip wal_full --skip wal_slow"
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--include-ignored", "--nocapture"]).env(ALONE, test).stdin(Stdio::null());
    let output = command.output().unwrap_or_else(|error| panic!("unshare of util-linux is needed: {error}"));
    let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{told}");
    assert!(said.contains("1 passed"), "no test is called {test}: {said}");
    false
}

/// Runs a program of the system that must succeed; gives what it said.
#[track_caller]
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{program} is needed: {error}"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {told}");
    String::from_utf8(output.stdout).unwrap()
}

/// What kind of file system a disk has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileSystem {
    /// In memory, written buffered.
    Memory,
    /// ext4 on a loop device over a file in memory, written directly.
    Ext4,
}

/// A mounted disk.
#[derive(Debug)]
pub(crate) struct Disk {
    /// Where it is mounted, and beside it where what it consists of is.
    place: PathBuf,
    ground: PathBuf,
    file_system: FileSystem,
    /// What thaws a frozen disk, should the test not come to it.
    thawing: Option<Child>,
    _folder: Folder,
}

impl Disk {
    pub(crate) fn new(file_system: FileSystem, bytes: u64) -> Self {
        let folder = Folder::new();
        let (place, ground) = (folder.path().join("disk"), folder.path().join("ground"));
        fs::create_dir(&place).unwrap();
        fs::create_dir(&ground).unwrap();
        let (mounted, below) = (place.display().to_string(), ground.display().to_string());
        match file_system {
            FileSystem::Memory => {
                run("mount", &["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs", &mounted]);
            }
            FileSystem::Ext4 => {
                run("mount", &["-t", "tmpfs", "-o", &format!("size={}", bytes + (8 << 20)), "tmpfs", &below]);
                let image = ground.join("image").display().to_string();
                fs::File::create(&image).unwrap().set_len(bytes).unwrap();
                run("mkfs.ext4", &["-q", "-m", "0", "-b", "4096", "-O", "^has_journal", &image]);
                run("mount", &["-o", "loop,discard", &image, &mounted]);
            }
        }
        Self { place, ground, file_system, thawing: None, _folder: folder }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.place
    }

    /// Takes all room that is left; gives the file that has it.
    pub(crate) fn fill(&self) -> PathBuf {
        fill(&self.place)
    }

    /// From now on writes wait, and so does whoever ends a process that writes: for [`FROZEN_SECONDS_MAX`] at most, whatever becomes
    /// of the test, because nothing else could end what waits.
    pub(crate) fn freeze(&mut self) {
        assert_eq!(self.file_system, FileSystem::Ext4);
        let place = self.place.display().to_string();
        let script = format!("sleep {FROZEN_SECONDS_MAX}; exec fsfreeze --unfreeze \"$0\"");
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", &script, &place]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.thawing = Some(command.spawn().unwrap());
        run("fsfreeze", &["--freeze", &place]);
    }

    /// All writes that waited go on.
    pub(crate) fn thaw(&mut self) {
        run("fsfreeze", &["--unfreeze", &self.place.display().to_string()]);
        if let Some(mut thawing) = self.thawing.take() {
            let _ = thawing.kill();
            let _ = thawing.wait();
        }
    }

    /// From now on a write to these ranges of the files fails, as on a thin device that has no more blocks; they read as zeros.
    /// Gives the file whose removal mends the disk.
    pub(crate) fn break_under(&self, ranges: &[(PathBuf, Range<u64>)]) -> PathBuf {
        assert_eq!(self.file_system, FileSystem::Ext4);
        run("sync", &["--file-system", &self.place.display().to_string()]);
        let image = self.ground.join("image").display().to_string();
        for (file, range) in ranges {
            for (offset, length) in on_device(file, range) {
                let place = ["--offset", &offset.to_string(), "--length", &length.to_string()];
                run("fallocate", &[&["--punch-hole"][..], &place, &[&image]].concat());
            }
        }
        fill(&self.ground)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--lazy"]).arg(&self.place).status();
        let _ = Command::new("umount").args(["--lazy", "--quiet"]).arg(&self.ground).stderr(Stdio::null()).status();
    }
}

/// Where a range of a file stands on its device, in bytes, by what the file system says (`filefrag`).
fn on_device(file: &Path, range: &Range<u64>) -> Vec<(u64, u64)> {
    const BLOCK: u64 = 4096;
    let map = run("filefrag", &["-b4096", "-v", &file.display().to_string()]);
    let mut places = Vec::new();
    for line in map.lines() {
        let fields: Vec<&str> = line.split(':').map(str::trim).collect();
        let [number, logical, physical, ..] = fields[..] else { continue };
        if number.parse::<u32>().is_err() {
            continue;
        }
        let ends = |text: &str| {
            let mut ends = text.split("..").map(|number| number.trim().parse::<u64>().unwrap());
            (ends.next().unwrap(), ends.next().unwrap() + 1)
        };
        let ((first, end), (device, _)) = (ends(logical), ends(physical));
        let (from, to) = (first.max(range.start.div_ceil(BLOCK)), end.min(range.end / BLOCK));
        if from < to {
            places.push(((device + from - first) * BLOCK, (to - from) * BLOCK));
        }
    }
    assert!(!places.is_empty(), "{} has nothing in {range:?}: {map}", file.display());
    places
}

fn fill(folder: &Path) -> PathBuf {
    let path = folder.join("ballast");
    let mut file = fs::OpenOptions::new().create(true).append(true).open(&path).unwrap();
    for bytes in [1 << 20, 4096] {
        let zeros = vec![0; bytes];
        loop {
            match file.write_all(&zeros) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    file.sync_all().unwrap();
    path
}
