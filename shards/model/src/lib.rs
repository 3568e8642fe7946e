//! Ids, names, offsets, configurations, limits and error kinds.
