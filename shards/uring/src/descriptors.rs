//! How many descriptors the process may open. Called once by the main thread.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open descriptors to the hard one and gives it; `u64::MAX` stands for none.
///
/// Call it before listeners are armed: the kernel notes the limit when an accept is handed to it.
///
/// # Errors
///
/// What the system says.
pub fn raise_limit() -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    }
    Ok(limit.maximum.unwrap_or(u64::MAX))
}
