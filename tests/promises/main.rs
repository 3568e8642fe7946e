//! The promises of the broker to its users, each kept by the real binary and watched from outside.
//!
//! Every module is one behaviour and opens with the promise. `broker`, `http`, `events`, `websocket`, `reader`, `proxy`,
//! `deadline` and `chance` are what the promises are watched with.
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
mod deadline;
mod events;
mod http;
mod proxy;
mod reader;
mod websocket;

mod bad_queries;
mod chunked_and_expect;
mod command_line;
mod curl;
mod descriptor_limit;
mod dotenv;
mod drain;
mod fetch_pages;
mod full_lane;
mod group_by_http;
mod group_losses;
mod group_members;
mod group_progress;
mod group_redelivery;
mod groups_by_hand;
mod half_of_them_stall;
mod health;
mod idle_cpu;
mod methods;
mod metrics;
mod metrics_of_groups;
mod names;
mod never_a_5xx;
mod no_gap_no_double;
mod oversized;
mod pipelining;
mod preflight_and_origins;
mod publish_json_and_raw;
mod request_smuggling;
mod retention_by_count;
mod slow_modes;
mod slow_readers;
mod slow_senders;
mod sse_ends;
mod sse_follows_live;
mod sse_gap_events;
mod sse_heartbeats_and_retry;
mod sse_resumes;
mod subcommands;
mod topic_deletion;
mod topics;
mod ws_frames;
mod ws_handshake;
mod ws_no_gap_no_double;
