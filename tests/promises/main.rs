//! The promises of the broker to its users, each kept by the real binary and watched from outside.
//!
//! Every module is one behaviour and opens with the promise. `broker`, `http`, `events`, `websocket`, `reader`, `proxy`,
//! `plenty`, `deadline` and `chance` are what the promises are watched with.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    clippy::needless_pass_by_value,
    reason = "tests fail by panicking and print what failed"
)]

mod broker;
mod chance;
mod data_directory;
mod deadline;
mod events;
mod http;
mod partitioned;
mod partitions;
mod plenty;
mod proxy;
mod reader;
mod several_topics;
mod stored_directory;
mod wal_disks;
mod websocket;

mod acknowledgements_are_counted;
mod arrays_are_no_objects;
mod bad_queries;
mod batches_by_hand;
mod body_limit;
mod chunked_and_expect;
mod command_line;
mod connection_limit;
mod curl;
mod dead_letters;
mod dead_letters_kept;
mod descriptor_limit;
mod dotenv;
mod drain;
mod fetch_pages;
mod frames_with_the_handshake;
mod full_lane;
mod going_down_lingerers;
mod going_down_waits_for_nobody;
mod group_by_http;
mod group_epochs;
mod group_fetch_bytes;
mod group_losses;
mod group_members;
mod group_progress;
mod group_redelivery;
mod groups_by_hand;
mod half_closed;
mod half_of_them_stall;
mod half_received_frames;
mod health;
mod heavy_requests_share;
mod idempotent_publish;
mod idle_cpu;
mod inspect;
mod inspect_directory;
mod killed_workers;
mod late_acknowledgements;
mod live_windows_are_extra;
mod many_acknowledgements;
mod many_members_leave;
mod methods;
mod metrics;
mod metrics_of_groups;
mod names;
mod never_a_5xx;
mod no_gap_no_double;
mod nothing_stays_unanswered;
mod oversized;
mod partitions_fetch;
mod partitions_group_members;
mod partitions_groups;
mod partitions_kept;
mod partitions_ordered;
mod partitions_publish;
mod partitions_sockets;
mod partitions_streams;
mod partitions_topics;
mod partitions_workers;
mod pipelining;
mod preflight_and_origins;
mod preflight_names;
mod publish_batches;
mod publish_json_and_raw;
mod publish_refuses_line_ends;
mod redelivery_policy;
mod replays_are_left_alone;
mod request_smuggling;
mod retention_by_age;
mod retention_by_count;
mod settings_in_a_file;
mod settings_that_cannot_hold;
mod several_topics_by_hand;
mod several_topics_memory;
mod several_topics_no_gap_no_double;
mod several_topics_requests;
mod several_topics_sockets;
mod several_topics_streams;
mod silent_members;
mod slow_modes;
mod slow_readers;
mod slow_senders;
mod sse_ends;
mod sse_follows_live;
mod sse_gap_events;
mod sse_heartbeats_and_retry;
mod sse_resumes;
mod stalled_member_memory;
mod stalled_members;
mod streamed_batches;
mod subcommands;
mod topic_changes;
mod topic_deletion;
mod topics;
mod unread_answers;
mod unwritable_log;
mod waiting_fetches_and_lanes;
mod wal_damage_log;
mod wal_damage_segments;
mod wal_damage_slots;
mod wal_directory;
mod wal_directory_messages;
mod wal_disk_fails;
mod wal_full_disk;
mod wal_groups;
mod wal_kill;
mod wal_kill_load;
mod wal_kill_model;
mod wal_kill_mortals;
mod wal_restart;
mod wal_restart_segments;
mod wal_slow_disk;
mod worker_comes_back;
mod ws_frames;
mod ws_handshake;
mod ws_no_gap_no_double;
