//! The faces that clients see: protocols over the driver's connections, one front on each core.

pub(crate) mod http;

use std::net::IpAddr;

use ringmain_model::Storage;

use self::http::OriginPolicy;

/// What all fronts of a broker are told.
#[derive(Debug)]
pub(crate) struct FrontSettings {
    /// From the first byte of a request to the end of its head.
    pub(crate) header_timeout_ms: u64,
    /// A body makes progress within that time, or is given up.
    pub(crate) body_timeout_ms: u64,
    /// A connection without a request is closed after that time.
    pub(crate) idle_timeout_ms: u64,
    /// A subscriber hears something at least that often.
    pub(crate) heartbeat_ms: u64,
    /// When subscribers come back after a cut.
    pub(crate) retry_ms: u32,
    /// Bytes of a message: body, key, headers.
    pub(crate) message_bytes_max: usize,
    /// Bytes of a request's body.
    pub(crate) body_bytes_max: usize,
    /// Messages that a memory topic keeps unless it says otherwise.
    pub(crate) retention_messages: u64,
    /// Where a topic keeps its messages unless it says.
    pub(crate) storage: Storage,
    /// There is a data directory, so that topics can be logged.
    pub(crate) has_directory: bool,
    /// `/debug/ws-echo` is there.
    pub(crate) ws_echo: bool,
    /// Which web pages may use the broker.
    pub(crate) origins: OriginPolicy,
}

/// Whether the broker can be reached from this machine alone.
pub(crate) fn is_local_only(address: IpAddr) -> bool {
    address.is_loopback()
}
