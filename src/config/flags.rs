//! The flags of `ringmain serve` as the command line gives them; on the main thread.

/// What the command line gave for `ringmain serve`: text, unchecked.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ServeFlags {
    /// File of settings in TOML: a line for each flag, like port = 8080 or wal_dir = "data" [environment: RINGMAIN_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<String>,
    /// Address to listen on [environment: RINGMAIN_BIND; default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) bind: Option<String>,
    /// Port to listen on, 0 for a free one [environment: SERVER_PORT; default: 8080]
    #[arg(long, short, value_name = "PORT")]
    pub(crate) port: Option<String>,
    /// Loops, each pinned to a processor [environment: RINGMAIN_CORES; default: one per allowed processor]
    #[arg(long, value_name = "COUNT")]
    pub(crate) cores: Option<String>,
    /// Shards that topics are spread over [environment: RINGMAIN_SHARDS; default: one per core]
    #[arg(long, value_name = "COUNT")]
    pub(crate) shards: Option<String>,
    /// Messages that a memory topic keeps [environment: MAX_MESSAGE_RETENTION; default: 1000]
    #[arg(long, value_name = "MESSAGES")]
    pub(crate) retention: Option<String>,
    /// Bytes of records that memory topics may keep in all [environment: RINGMAIN_MEMORY_BYTES; default: 1 GiB per shard]
    #[arg(long, value_name = "BYTES")]
    pub(crate) memory_bytes: Option<String>,
    /// Bytes of one message [environment: RINGMAIN_MAX_MESSAGE_BYTES; default: 1048576]
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_message_bytes: Option<String>,
    /// Bytes of one request's body [environment: RINGMAIN_MAX_BODY_BYTES; default: 16777216]
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_body_bytes: Option<String>,
    /// Connections in all [environment: RINGMAIN_MAX_CONNECTIONS; default: 65536 per core]
    #[arg(long, value_name = "COUNT")]
    pub(crate) max_connections: Option<String>,
    /// Requests that may wait between two cores [environment: RINGMAIN_LANE_REQUESTS; default: 1024]
    #[arg(long, value_name = "COUNT")]
    pub(crate) lane_requests: Option<String>,
    /// Time for a request's head [environment: RINGMAIN_HEADER_TIMEOUT_MS; default: 10000]
    #[arg(long, value_name = "MS")]
    pub(crate) header_timeout_ms: Option<String>,
    /// Time within which a body makes progress [environment: RINGMAIN_BODY_TIMEOUT_MS; default: 10000]
    #[arg(long, value_name = "MS")]
    pub(crate) body_timeout_ms: Option<String>,
    /// Time that a connection may be idle [environment: RINGMAIN_IDLE_TIMEOUT_MS; default: 75000]
    #[arg(long, value_name = "MS")]
    pub(crate) idle_timeout_ms: Option<String>,
    /// Time that a peer may leave an answer untaken [environment: RINGMAIN_WRITE_TIMEOUT_MS; default: 30000]
    #[arg(long, value_name = "MS")]
    pub(crate) write_timeout_ms: Option<String>,
    /// Time between signs of life to a subscriber [environment: RINGMAIN_HEARTBEAT_MS; default: 15000]
    #[arg(long, value_name = "MS")]
    pub(crate) heartbeat_ms: Option<String>,
    /// Time after which subscribers come back [environment: RINGMAIN_RETRY_MS; default: 2000]
    #[arg(long, value_name = "MS")]
    pub(crate) retry_ms: Option<String>,
    /// Time that going down may take [environment: RINGMAIN_DRAIN_TIMEOUT_MS; default: 10000]
    #[arg(long, value_name = "MS")]
    pub(crate) drain_timeout_ms: Option<String>,
    /// Web origins that may use the broker, or * [environment: RINGMAIN_CORS_ORIGINS; default: loopback]
    #[arg(long, value_name = "ORIGINS")]
    pub(crate) cors_origins: Option<String>,
    /// Offer /debug/ws-echo, which sends back what comes over WebSocket: for conformance suites
    #[arg(long)]
    pub(crate) ws_echo: bool,
    /// Where topics keep their messages unless they say otherwise: memory or wal [environment: STORAGE_MODE; default: memory]
    #[arg(long, value_name = "MODE")]
    pub(crate) storage: Option<String>,
    /// Data directory, opened with --storage wal or when it is given [environment: WAL_DIR; default: ./data]
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) wal_dir: Option<String>,
    /// Bytes of a topic's segment on the disk [environment: WAL_SEGMENT_SIZE; default: 67108864]
    #[arg(long, value_name = "BYTES")]
    pub(crate) wal_segment_size: Option<String>,
    /// Segments that a topic keeps on the disk [environment: WAL_MAX_SEGMENTS; default: 10]
    #[arg(long, value_name = "COUNT")]
    pub(crate) wal_max_segments: Option<String>,
    /// How the log becomes durable: auto (measured at the start), dsync or fdatasync [environment: RINGMAIN_SYNC; default: auto]
    #[arg(long, value_name = "WAY")]
    pub(crate) sync: Option<String>,
    /// Whether files go past the page cache where that is possible: true or false [environment: RINGMAIN_DIRECT_IO; default: true]
    #[arg(long, value_name = "BOOLEAN")]
    pub(crate) direct_io: Option<String>,
    /// debug, info, warn or error [environment: LOG_LEVEL; default: info]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    /// text or json [environment: RINGMAIN_LOG_FORMAT; default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<String>,
}
