//! How much memory the process occupies. Called from any thread.

use std::io;

/// Bytes of memory that are resident, from the second field of `/proc/self/statm`, see proc(5).
///
/// # Errors
///
/// What the system says; `InvalidData` when the file does not look as expected.
pub fn resident_bytes() -> io::Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 =
        statm.split_ascii_whitespace().nth(1).and_then(|field| field.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
    Ok(pages.saturating_mul(rustix::param::page_size() as u64))
}
