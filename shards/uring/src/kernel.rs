//! Finds out why the kernel refuses a ring. Runs on each core when its loop starts.

use std::io;

use crate::error::Error;

/// The oldest kernel that has all that is needed, as major and minor version.
const VERSION_NEEDED: (u32, u32) = (6, 1);

/// What can be known about the machine when a ring is refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Facts {
    /// `kernel.io_uring_disabled`; none on kernels that do not have it (before 6.6).
    pub(crate) disabled: Option<u32>,
    /// As `uname -r` tells it.
    pub(crate) release: String,
    /// RLIMIT_MEMLOCK in bytes; none when there is no limit.
    pub(crate) locked_bytes_max: Option<u64>,
    /// Whether the process runs as root.
    pub(crate) root: bool,
}

impl Facts {
    pub(crate) fn gather() -> Facts {
        Facts {
            disabled: std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled")
                .ok()
                .and_then(|text| text.trim().parse().ok()),
            release: rustix::system::uname().release().to_string_lossy().into_owned(),
            locked_bytes_max: rustix::process::getrlimit(rustix::process::Resource::Memlock).current,
            root: rustix::process::geteuid().is_root(),
        }
    }
}

/// Major and minor version of a release name such as `6.1.0-13-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|letter: char| !letter.is_ascii_digit());
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?.parse().ok()?;
    Some((major, minor))
}

/// Turns the error number of a refused call into a reason with a remedy.
pub(crate) fn explain(error: io::Error, what: &'static str, facts: &Facts) -> Error {
    let old = version(&facts.release).is_some_and(|version| version < VERSION_NEEDED);
    let release = || facts.release.clone();
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => match facts.disabled {
            Some(value) if value >= 2 || (value == 1 && !facts.root) => Error::Disabled { value },
            _ => Error::Forbidden,
        },
        Some(libc::ENOSYS) => Error::Missing { release: release() },
        Some(libc::EINVAL) if old => Error::TooOld { release: release() },
        Some(libc::ENOMEM) => Error::Memory { locked_bytes_max: facts.locked_bytes_max },
        Some(libc::EMFILE | libc::ENFILE) => Error::Descriptors,
        _ => Error::System { what, source: error },
    }
}

#[cfg(test)]
mod tests;
