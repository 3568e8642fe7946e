//! What the system says about a process: processor time and memory. Formats: proc(5) and the kernel's
//! `Documentation/scheduler/sched-stats.rst`.

use std::path::PathBuf;
use std::{fs, io};

use crate::failure::Failure;

/// The kernel gives times in `/proc/<pid>/stat` in hundredths of a second, whatever its own tick is.
const TICK_NS: u64 = 10_000_000;

/// A process whose use of the machine is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    id: u32,
}

impl Process {
    pub(crate) fn new(id: u32) -> Process {
        Process { id }
    }

    /// This process.
    pub(crate) fn own() -> Process {
        Process { id: std::process::id() }
    }

    /// Processor time that all threads together have used, user and system, in nanoseconds.
    ///
    /// It is the scheduler's own count where the kernel tells it, and hundredths of a second otherwise. The time of a
    /// thread goes with the thread, so it suits servers whose threads stay.
    pub(crate) fn cpu_ns(self) -> Result<u64, Failure> {
        match self.threads_ns() {
            Ok(Some(nanoseconds)) => Ok(nanoseconds),
            Ok(None) | Err(_) => {
                let text = self.read("stat")?;
                let ticks = ticks_of_stat(&text)
                    .ok_or_else(|| Failure::said(format!("/proc/{}/stat has an unknown form", self.id)))?;
                Ok(ticks.saturating_mul(TICK_NS))
            }
        }
    }

    fn threads_ns(self) -> io::Result<Option<u64>> {
        let mut total: Option<u64> = None;
        for entry in fs::read_dir(format!("/proc/{}/task", self.id))? {
            let Ok(text) = fs::read_to_string(entry?.path().join("schedstat")) else {
                // The thread has ended between the listing and the look.
                continue;
            };
            if let Some(nanoseconds) = running_ns_of_schedstat(&text).filter(|nanoseconds| *nanoseconds > 0) {
                total = Some(total.unwrap_or(0) + nanoseconds);
            }
        }
        Ok(total)
    }

    /// Memory in RAM in bytes. `smaps_rollup` counts pages; the sums in `status` are only approximate on kernels
    /// that keep them per processor.
    pub(crate) fn resident_bytes(self) -> Result<u64, Failure> {
        let (text, key) = match self.read("smaps_rollup") {
            Ok(text) => (text, "Rss:"),
            Err(_) => (self.read("status")?, "VmRSS:"),
        };
        let kibibytes = kibibytes_of(&text, key)
            .ok_or_else(|| Failure::said(format!("the system does not tell the memory of process {}", self.id)))?;
        Ok(kibibytes * 1024)
    }

    fn read(self, name: &str) -> Result<String, Failure> {
        let path = PathBuf::from(format!("/proc/{}/{name}", self.id));
        fs::read_to_string(&path).map_err(|source| Failure::io(format!("cannot read {}", path.display()), source))
    }
}

/// User and system time of a line of `/proc/<pid>/stat`, in ticks. The name in it may hold spaces and parentheses.
fn ticks_of_stat(text: &str) -> Option<u64> {
    let (_, after_name) = text.rsplit_once(')')?;
    // The first field after the name is the third of the line; user and system time are fields 14 and 15.
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    user.checked_add(system)
}

/// Time on a processor in nanoseconds: the first number of a `schedstat`.
fn running_ns_of_schedstat(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// The value of a line `key   123 kB`.
fn kibibytes_of(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests;
