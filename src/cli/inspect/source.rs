//! A file that is read in pieces, so that its size costs no memory; on the main thread.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use bytes::Bytes;

/// Bytes of one read, unless more are asked for.
const WINDOW_BYTES: u64 = 1 << 20;
/// The largest piece that is read whole: a log segment is no larger, and neither is a batch in it.
pub(super) const PIECE_BYTES_MAX: u64 = 64 << 20;

/// A file opened for reading, and the stretch of it that was read last.
#[derive(Debug)]
pub(super) struct Source {
    file: File,
    bytes: u64,
    start: u64,
    window: Bytes,
}

impl Source {
    /// Opens a file that is known to be one: opening a pipe would wait for its writer.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
        }
        Ok(Self { file, bytes: metadata.len(), start: 0, window: Bytes::new() })
    }

    /// Size of the file when it was opened.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes at `position`, fewer where the file ends.
    pub(super) fn get(&mut self, position: u64, bytes: u64) -> io::Result<Bytes> {
        let end = self.bytes.min(position.saturating_add(bytes));
        if let Some(piece) = self.held(position, end) {
            return Ok(piece);
        }
        // The old window goes first, so that the two are never held together.
        self.window = Bytes::new();
        let window_end = self.bytes.min(position.saturating_add(bytes.max(WINDOW_BYTES)));
        self.window = self.read(position, window_end.saturating_sub(position))?;
        self.start = position;
        let length = usize::try_from(end.saturating_sub(position)).unwrap_or(usize::MAX);
        Ok(self.window.slice(..length.min(self.window.len())))
    }

    fn held(&self, position: u64, end: u64) -> Option<Bytes> {
        let from = usize::try_from(position.checked_sub(self.start)?).ok()?;
        let until = usize::try_from(end.checked_sub(self.start)?).ok()?;
        (from <= until && until <= self.window.len()).then(|| self.window.slice(from..until))
    }

    /// Reads without keeping anything; shorter when the file has shrunk.
    pub(super) fn read(&self, position: u64, bytes: u64) -> io::Result<Bytes> {
        let length = usize::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let mut buffer = vec![0; length];
        let mut filled = 0;
        while filled < length {
            match self.file.read_at(&mut buffer[filled..], position + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        buffer.truncate(filled);
        Ok(Bytes::from(buffer))
    }
}
