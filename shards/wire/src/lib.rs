//! Bytes to events and back for each protocol, without sockets or clocks; pure, on the core that owns the connection.
//!
//! Nothing here waits, reads or writes. A decoder takes the bytes that have come so far and answers with an event and
//! the number of bytes it used, with "not yet", or with a refusal; an encoder appends to a buffer that the caller owns.
//! Both directions of each protocol stand side by side, so that the server, the load generator and the tests speak
//! through the same code. Topics, groups and rights are not known here: a name is text, a payload is bytes.
//!
//! | module | format | source |
//! |---|---|---|
//! | [`http`] | HTTP/1.0 and 1.1 heads, bodies and targets | RFC 9110, 9112, 3986 |
//! | [`sse`] | Server-Sent Events | WHATWG HTML, section 9.2 |
//! | [`ws`] | WebSocket handshakes and frames | RFC 6455 |
//! | [`json`] | bodies of the HTTP face: a publish, a message | ours; see each function |
//! | [`batch`] | payloads behind their lengths | ours; see the module |

pub mod batch;
pub mod http;
pub mod json;
pub mod sse;
pub mod ws;
