//! Words to people on standard error, data to standard output; a closed pipe is an ordinary end. On the main thread.

use std::io::{self, IsTerminal as _, Write as _};

use super::Failure;

/// Tells a person what went wrong.
pub(super) fn complain(message: &str) {
    // Nobody is left to tell when standard error is closed.
    let _ = writeln!(io::stderr(), "ringmain: {message}");
}

/// Writes data to standard output.
pub(super) fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::OutputClosed,
        _ => Failure::Failed(format!("cannot write to standard output: {error}")),
    })
}

/// A payload as it is printed: as it is into a pipe or file, with control characters made visible on a terminal, which they
/// could otherwise command.
pub(super) fn payload(bytes: &[u8]) -> Vec<u8> {
    if !io::stdout().is_terminal() {
        return bytes.to_vec();
    }
    let text = String::from_utf8_lossy(bytes);
    let visible: String = text
        .chars()
        .flat_map(|character| match character {
            '\n' | '\t' => vec![character],
            control if control.is_control() => control.escape_default().collect(),
            other => vec![other],
        })
        .collect();
    visible.into_bytes()
}
