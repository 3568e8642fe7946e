//! What a shard decides: topics, logs, interest.
