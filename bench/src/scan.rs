//! Bytes of a connection to what a generator counts: answers, requests, events; pure.

mod events;
mod request;
mod response;

pub(crate) use events::EventScanner;
pub(crate) use request::RequestScanner;
pub(crate) use response::ResponseScanner;

#[cfg(test)]
mod tests;
