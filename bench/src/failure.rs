//! Why a measurement could not be made, in words for whoever started it.

use std::io;

use ringmain_wire::http::Refusal;

/// A measurement that ended without a result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system says.
        source: io::Error,
    },
    /// The ring cannot be made or used.
    #[error(transparent)]
    Ring(#[from] ringmain_uring::Error),
    /// The server sent what is not HTTP/1.1.
    #[error("the server's answer cannot be read: {0}")]
    Answer(#[from] Refusal),
    /// Anything else, in a sentence.
    #[error("{0}")]
    Said(String),
}

impl Failure {
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Failure {
        Failure::Io { what: what.into(), source }
    }

    pub(crate) fn said(text: impl Into<String>) -> Failure {
        Failure::Said(text.into())
    }
}
