//! The bounds of the broker, each with the reason and what happens there; constants for any core.
//!
//! Each queue, buffer, cache, table and wait of engine, driver and front has its bound here. What a format, a protocol or the
//! kernel sets stands with it, in `wal`, `wire` and `uring`, as do the bounds of programs that are not the broker, in `src/cli`.

/// Bytes of a topic name: what a directory entry holds, should a tool want to show it as one.
pub const TOPIC_NAME_BYTES_MAX: usize = 255;

/// Topics that one shard owns. Answer: 503 busy. A topic costs about 1 KiB, so this is some 130 MiB a shard.
pub const TOPICS_PER_SHARD_MAX: usize = 131_072;

/// Partitions that a core reports in one turn, but for those of the last topic: lists and metrics of many topics are made of many
/// reports, so that nobody waits for them longer than about a millisecond.
pub const REPORTED_PARTITIONS_MAX: u32 = 128;

/// Topics in one answer that lists them: all that there can be, unless the request says fewer.
pub const LISTED_TOPICS_MAX: usize = 1 << 30;

/// Partitions of one topic: a reader of all of them gets a resume token with a position for each. Answer: 400.
pub const PARTITIONS_PER_TOPIC_MAX: u32 = 64;

/// How soon a shard is asked again for its part of a change to a topic of several partitions, in milliseconds.
pub const ORDER_RETRY_MS: u64 = 1_000;

/// Positions in one resume token, so that it fits in a request head together with everything else.
pub const TOKEN_POSITIONS_MAX: usize = 64;

/// Messages kept by a memory topic unless `MAX_MESSAGE_RETENTION` says otherwise (streamq's default).
pub const RETENTION_MESSAGES_DEFAULT: u64 = 1000;

/// Largest retention by count that may be asked for.
pub const RETENTION_MESSAGES_MAX: u64 = 1 << 40;

/// Largest retention by bytes that may be asked for, and the default: the shard's memory is the real bound.
pub const RETENTION_BYTES_MAX: u64 = 1 << 50;

/// The shortest and longest retention by age that may be asked for, in milliseconds: a second and a hundred years.
pub const RETENTION_AGE_MS_MIN: u64 = 1_000;

/// See [`RETENTION_AGE_MS_MIN`].
pub const RETENTION_AGE_MS_MAX: u64 = 100 * 366 * 86_400_000;

/// How soon a dead letter that found no place is tried again, in milliseconds.
pub const DEAD_LETTER_RETRY_MS: u64 = 1_000;

/// The most that `max_deliver` may be.
pub const MAX_DELIVER_MAX: u32 = 1_000_000;

/// Names of messages that one shard remembers so that a repeat is stored once; some 100 bytes each. Answer: the oldest are
/// forgotten.
pub const MESSAGE_IDS_PER_SHARD: usize = 524_288;

/// Messages in one batch publish. Answer: 413.
pub const PUBLISH_BATCH_MESSAGES_MAX: usize = 65_536;

/// Headers of all messages of one batch: empty ones take more room in memory than in a body. Answer: 413.
pub const PUBLISH_BATCH_HEADERS_MAX: usize = 8 * PUBLISH_BATCH_MESSAGES_MAX;

/// Bytes of a message's id. Answer: 400.
pub const MESSAGE_ID_BYTES_MAX: usize = 1024;

/// Bytes of records that the memory topics of one shard may keep. Answer: 507 `storage_full`.
pub const SHARD_MEMORY_BYTES_DEFAULT: u64 = 1 << 30;

/// The least that it may be set to: a few messages of the usual largest size, and of the largest size that is set.
pub const SHARD_MEMORY_BYTES_MIN: u64 = 4 << 20;

/// See [`SHARD_MEMORY_BYTES_MIN`].
pub const SHARD_MEMORY_MESSAGES_MIN: u64 = 4;

/// Bytes beyond the retention cap that a topic with live readers keeps, so that a reader that is a moment late goes on.
pub const LIVE_WINDOW_BYTES_PER_TOPIC: u64 = 8 << 20;

/// Sum of all live windows of a shard; beyond it a topic's window ends at its retention cap.
pub const LIVE_WINDOW_BYTES_PER_SHARD: u64 = 256 << 20;

/// A message's body, key and headers together. Answer: 413.
pub const MESSAGE_BYTES_DEFAULT: usize = 1 << 20;

/// The most that the message limit may be set to: a record's lengths are 32 bits, and a batch must fit in memory twice.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The same where there is a log: one message must fit the largest segment of a log, 64 MiB, with room to spare.
pub const LOGGED_MESSAGE_BYTES_MAX: usize = 32 << 20;

/// Headers of one message. Answer: 400.
pub const MESSAGE_HEADERS_MAX: usize = 64;

/// A request's body. Answer: 413.
pub const BODY_BYTES_DEFAULT: usize = 16 << 20;

/// The most that the body limit may be set to.
pub const BODY_BYTES_MAX: usize = 256 << 20;

/// The buffer that a core keeps from one answer to the next; a larger one is given back.
pub const SPARE_BODY_BYTES_MAX: usize = 64 << 10;

/// A body that holds settings, or that nobody wants and that is thrown away so that the connection can go on. Answer: 413, and the
/// connection ends.
pub const UNWANTED_BYTES_MAX: usize = 64 << 10;

/// Bytes of a line of a batch for each byte of a message: four characters of base64 stand for three bytes, and six bytes of JSON, such as
/// `\u0041`, may stand for one character.
pub const LINE_BYTES_PER_BYTE: usize = 8;

/// Bytes of such a line beside them: names of members, white space, and what we do not know. Answer: 413.
pub const LINE_BYTES_BESIDE: usize = 64 << 10;

/// Bodies that one core holds half received. Answer: 503 busy. Sixteen of the largest default bodies.
pub const BODIES_BYTES_PER_CORE: usize = 256 << 20;

/// A request's head, first line and headers. Answer: 431.
pub const HEAD_BYTES_MAX: usize = 16 << 10;

/// Header lines in a request's head. Answer: 431.
pub const HEAD_LINES_MAX: usize = 64;

/// Requests of one connection that wait for their answers. Answer: reading stops until one is answered.
pub const PIPELINE_REQUESTS_MAX: usize = 128;

/// Bytes that a connection may have sent ahead of the request being answered. Answer: reading stops.
pub const PIPELINE_BYTES_MAX: usize = 64 << 10;

/// Open batch of one partition: it closes at the end of the turn, or here, whichever is first.
pub const BATCH_BYTES_MAX: usize = 1 << 20;

/// Records in one batch, so that a reader can index them in little memory.
pub const BATCH_RECORDS_MAX: u32 = 1 << 16;

/// Requests that may be outstanding from one core to another. Answer: 503 busy.
pub const LANE_REQUESTS_DEFAULT: usize = 1024;

/// Requests that may wait long have places of their own, so many times as many: they cost little, and a worker's fetch takes one for each
/// partition. Answer: 503 busy.
pub const LANE_WAITING_FACTOR: usize = 16;

/// Most requests that a lane may be set to.
pub const LANE_REQUESTS_MAX: usize = 65_536;

/// Bundles in one lane's ring: a turn makes one, and a core takes them all in its next turn.
pub const LANE_BUNDLES: usize = 64;

/// Bytes of visible batches that wait for one core. Answer: a marked hole, read later at the reader's pace.
pub const LANE_PUSH_BYTES_MAX: usize = 16 << 20;

/// Batches that wait for one core. Answer: a marked hole.
pub const LANE_PUSHES_MAX: usize = 4096;

/// Bytes of a topic's newest batches that one interested core holds for all its subscribers.
pub const WINDOW_BYTES_MAX: usize = 4 << 20;

/// Bytes of the newest batches of a window whose encodings are kept while some reader has not had them; an encoding is up to
/// half larger than its batch, and there are six kinds.
pub const WINDOW_ENCODED_BYTES_MAX: usize = 512 << 10;

/// Batches in such a window.
pub const WINDOW_BATCHES_MAX: usize = 4096;

/// Bytes of all windows of one core. Answer: the window that grows gives up its oldest batches.
pub const WINDOWS_BYTES_PER_CORE: usize = 256 << 20;

/// Bytes that one read returns (at least one batch): small enough that many readers share a core fairly.
pub const READ_BYTES_MAX: usize = 256 << 10;

/// Messages of one fetched page unless asked otherwise.
pub const FETCH_MESSAGES_DEFAULT: u64 = 100;

/// Messages of one fetched page at most. Answer: 400.
pub const FETCH_MESSAGES_MAX: u64 = 10_000;

/// Bytes of records in one fetched page.
pub const FETCH_BYTES_MAX: usize = 16 << 20;

/// Longest wait that a fetch may ask for. Answer: 400.
pub const FETCH_WAIT_MS_MAX: u64 = 60_000;

/// Topics that one connection reads. Answer: 400.
pub const TOPICS_PER_CONNECTION_MAX: usize = 32;

/// Subscriptions of one connection, one for each partition that it reads. Answer: 400. A resume token holds a position of each, and is
/// sent with each event.
pub const SUBSCRIPTIONS_PER_CONNECTION_MAX: usize = 64;

/// Bytes that wait for a connection before its cursor stops: a subscriber's credit.
pub const SEND_QUEUE_BYTES_MAX: usize = 256 << 10;

/// Bytes that wait for a connection's peer before it is read from no more. One answer may go beyond it.
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// Requests of one WebSocket connection that wait for their answers. Answer: reading stops.
pub const SOCKET_REQUESTS_MAX: usize = 128;

/// Bytes of one gathered send.
pub const SEND_BYTES_MAX: usize = 256 << 10;

/// Data of an event up to so many bytes is copied behind its id: a buffer of its own would cost the kernel more.
pub const COPIED_BYTES_MAX: usize = 4 << 10;

/// Heartbeats without a sign of life, from a client that gave some before, after which it counts as gone.
pub const SILENT_HEARTBEATS_MAX: u64 = 4;

/// Connections of one core. Answer: accepting pauses, clients wait in the backlog.
pub const CONNECTIONS_PER_CORE_DEFAULT: usize = 65_536;

/// Most connections of one core that may be asked for.
pub const CONNECTIONS_PER_CORE_MAX: usize = 1 << 20;

/// Connections that wait for being accepted, per core (the kernel caps it at net.core.somaxconn).
pub const LISTEN_BACKLOG: u32 = 4096;

/// Bytes that are read and thrown away after a final answer, so that the client reads it before the connection ends.
pub const LINGER_BYTES_MAX: usize = 64 << 20;

/// How long a connection lingers after a final answer, in milliseconds.
pub const LINGER_MS_MAX: u64 = 5_000;

/// Bytes of a group's name.
pub const GROUP_NAME_BYTES_MAX: usize = 255;

/// Groups of one topic. Answer: 503 busy.
pub const GROUPS_PER_TOPIC_MAX: usize = 4096;

/// Members of one group. Answer: 503 busy.
pub const GROUP_MEMBERS_MAX: usize = 16_384;

/// Messages of one group that were given out and not acknowledged. Answer: only redeliveries go out.
pub const GROUP_PENDING_MAX: usize = 65_536;

/// Unacknowledged messages of one member, unless it asks otherwise (a reader that never acknowledges stalls there).
pub const MEMBER_IN_FLIGHT_DEFAULT: u32 = 1_000;

/// The most that a member may ask for. Answer: 400.
pub const MEMBER_IN_FLIGHT_MAX: u32 = 65_536;

/// Acknowledgements of a member that wait for a full lane to the topic's core. Its connection is not read from then; what one frame says
/// ([`ACK_OFFSETS_MAX`]) may come on top.
pub const MEMBER_WORDS_MAX: usize = 65_536;

/// Bytes given to a member that its connection has not sent. Answer: the next messages go to others, or wait.
pub const MEMBER_UNSENT_BYTES_MAX: usize = 256 << 10;

/// Former holders of one message whose late acknowledgements still count.
pub const FORMER_HOLDERS_MAX: usize = 16;

/// A start counts the epochs of its groups from its first log segment's number, moved up by so many bits: deleted groups have used
/// epochs that nothing tells of any more. A segment has room for fewer than that, and clients' numbers have 53 bits.
pub const EPOCHS_PER_SEGMENT_BITS: u32 = 20;

/// Fetches of one group that wait for messages. Answer: 503 busy.
pub const GROUP_PULLS_MAX: usize = 4096;

/// Bytes of messages in one fetch of a group: the answer waits in memory for its reader, and is half larger as JSON.
pub const GROUP_FETCH_BYTES_MAX: usize = 1 << 20;

/// How long a member may hold a message without a word, in milliseconds.
pub const ACK_WAIT_MS_DEFAULT: u64 = 30_000;

/// The longest and shortest of such times that may be asked for. Answer: 400.
pub const ACK_WAIT_MS_MAX: u64 = 86_400_000;

/// See [`ACK_WAIT_MS_MAX`].
pub const ACK_WAIT_MS_MIN: u64 = 100;

/// The longest delay of a negative acknowledgement, in milliseconds. Answer: 400.
pub const NACK_DELAY_MS_MAX: u64 = 86_400_000;

/// Offsets in one acknowledgement. Answer: 400.
pub const ACK_OFFSETS_MAX: usize = 65_536;

/// A body that acknowledges: as many offsets as one may name. Answer: 413.
pub const ACK_BODY_BYTES_MAX: usize = 48 * ACK_OFFSETS_MAX;

/// How long a broker that goes down waits for a peer that takes no output, in milliseconds.
pub const DRAIN_STALL_MS_MAX: u64 = 1_000;

/// Publishes of one shard that wait for a log that is busy. Answer: 503 busy.
pub const PARKED_MAX: usize = 4096;

/// Bytes of their messages. Answer: 503 busy.
pub const PARKED_BYTES_MAX: usize = 16 << 20;

/// How long such a publish waits, in milliseconds. Answer: 503 busy.
pub const PARKED_MS_MAX: u64 = 5_000;

/// How long the progress of a group may wait for the log when nobody waits for it, in milliseconds. What a crash takes back is
/// given out again.
pub const PROGRESS_LOG_MS: u64 = 50;

/// How soon the log tries again what failed for want of room on the disk, in milliseconds.
pub const LOG_RETRY_MS: u64 = 500;

/// How soon a checkpoint that failed is tried again, in milliseconds.
pub const CHECKPOINT_RETRY_MS: u64 = 1_000;

/// How much of a checkpoint's image is made in one turn: about a thousand partitions or 16 000 known messages, a millisecond or two.
pub const IMAGE_WEIGHT_PER_TURN: usize = 16_384;

/// Bytes of a partition that a checkpoint moves from the log to a topic segment; less is written again at the log's head.
pub const TAIL_BYTES_TO_STORE: u64 = 256 << 10;

/// Bytes of all such tails of one shard. Answer: smaller ones are moved to topic segments, too.
pub const TAILS_BYTES_MAX: u64 = 32 << 20;

/// Record batches that a checkpoint gives to topic segments at a time. Answer: the others follow when these are durable.
pub const STORE_BATCHES_MAX: usize = 16_384;

/// Bytes of tails that one turn writes again, so that a checkpoint does not hold up the log.
pub const TAILS_BYTES_PER_TURN: u64 = 256 << 10;

/// Bytes of topic segments that one shard keeps after reading them.
pub const READ_CACHE_BYTES: usize = 32 << 20;

/// Bytes of their indexes likewise.
pub const READ_INDEXES_BYTES: usize = 4 << 20;

/// Reads of topic segments that one shard has under way. Answer: the others wait.
pub const LOADS_MAX: usize = 16;

/// How soon a group tries again to read what the disk would not give, in milliseconds.
pub const LOAD_RETRY_MS: u64 = 1_000;

/// How long dropped files may wait for the checkpoints that let them go, in milliseconds, when nothing else makes one due.
pub const DROPPED_MS_MAX: u64 = 10_000;

/// Commands of one shard that wait for such reads. Answer: 503 busy.
pub const LOAD_WAITERS_MAX: usize = 65_536;

/// Events that one turn takes from the kernel before it goes on to the lanes.
pub const TURN_EVENTS_MAX: usize = 4096;

/// Bundles that one turn takes from the other cores before it looks at the kernel again.
pub const TURN_BUNDLES_MAX: usize = 256;

/// Rounds that one turn gives to what a core says to itself, and as many to what comes of file effects at once, before it looks at the
/// kernel again.
pub const TURN_ROUNDS_MAX: usize = 8;

/// How soon a bundle that found a lane's ring full is tried again, in milliseconds.
pub const LANE_RETRY_MS: u64 = 1;

/// How soon accepting is tried again after descriptors ran out, unless a connection ends before, in milliseconds.
pub const ACCEPT_RETRY_MS: u64 = 1_000;

/// Operations on files of one core that are in flight at once; others wait. The ring takes 4 096; the rest is for closes, which cannot wait.
pub const FILE_OPERATIONS_MAX: usize = 2048;

/// Slices of one write or read that are in flight at once, so that one long job leaves buffers to others.
pub const SLICES_IN_FLIGHT_MAX: u32 = 4;

/// File operations of one shard that a start waits for before it listens: enough to fill the segments that are made ahead with zeros.
pub const FIRST_OPERATIONS_MAX: usize = 1024;

/// Cores (and shards) of one broker.
pub const CORES_MAX: usize = 256;

const _: () = assert!(MESSAGE_BYTES_DEFAULT <= MESSAGE_BYTES_MAX && BODY_BYTES_DEFAULT <= BODY_BYTES_MAX);
const _: () = assert!(BODY_BYTES_MAX <= BODIES_BYTES_PER_CORE);
const _: () = assert!(HEAD_BYTES_MAX <= PIPELINE_BYTES_MAX);
const _: () = assert!(TOPICS_PER_CONNECTION_MAX <= SUBSCRIPTIONS_PER_CONNECTION_MAX);
const _: () = assert!(PARTITIONS_PER_TOPIC_MAX as usize <= SUBSCRIPTIONS_PER_CONNECTION_MAX);
const _: () = assert!(SUBSCRIPTIONS_PER_CONNECTION_MAX <= TOKEN_POSITIONS_MAX);
const _: () = assert!(WINDOW_BYTES_MAX <= WINDOWS_BYTES_PER_CORE);
const _: () = assert!(LIVE_WINDOW_BYTES_PER_TOPIC <= LIVE_WINDOW_BYTES_PER_SHARD);
