//! One core's loop: it takes completions, asks the engine, performs its effects; one such loop runs on each core.
//!
//! The loops share nothing but lanes ([`lane`]). Each accepts its own connections and gives their bytes to a [`Front`], which
//! speaks a protocol and knows no socket. A command goes to the core that owns the topic; records come back once per
//! interested core into a window that all its subscribers share.

mod clock;
mod connection;
mod core;
mod events;
mod front;
mod lane;
mod letters;
mod membership;
mod orders;
mod perform;
mod placement;
mod reader;
mod report;
mod request;
mod route;
mod seat;
mod start;
mod storage;
mod timers;
mod window;

#[cfg(test)]
mod tests;

pub use front::{Close, Delivery, Front, Io};
pub use report::{CoreCounters, CoreReport, ShardStorage, TopicOnCore};
pub use request::{
    Answer, AnswerWhen, End, GroupAction, Join, Notice, Protocol, Request, Requested, SlowReader, StartAt,
    Subscription, TopicPlace,
};
pub use ringmain_uring::{Error as RingError, descriptors, processor};
pub use route::REQUEST_NUMBERS;
pub use start::{Broker, DriverConfig, StartError, Stopper};
pub use storage::{DirectoryError, StorageConfig, SyncChoice};
