//! Another implementation of RFC 6455 understands what is written here, and the other way round; on any core.

use std::io::{Cursor, Read, Write};

use crate::stream::decode;
use proptest::prelude::*;
use ringmain_wire::ws::{Event, Opcode, Role, close_frame, frame};
use tungstenite::protocol::frame::coding::{Data, OpCode};
use tungstenite::protocol::frame::{CloseFrame, Frame};
use tungstenite::protocol::{Message, Role as OtherRole, WebSocket};

/// A connection in memory: what the other side will read, and what it wrote.
struct Pipe {
    input: Cursor<Vec<u8>>,
    output: Vec<u8>,
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.input.read(buffer)
    }
}

impl Write for Pipe {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        self.output.write(buffer)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn other(role: OtherRole, input: Vec<u8>) -> WebSocket<Pipe> {
    WebSocket::from_raw_socket(Pipe { input: Cursor::new(input), output: Vec::new() }, role, None)
}

fn message() -> impl Strategy<Value = Event> {
    prop_oneof![
        ".{0,80}".prop_map(Event::Text),
        proptest::collection::vec(any::<u8>(), 0..70_000).prop_map(Event::Binary),
        proptest::collection::vec(any::<u8>(), 0..300).prop_map(Event::Binary),
        proptest::collection::vec(any::<u8>(), 0..126).prop_map(Event::Ping),
        proptest::collection::vec(any::<u8>(), 0..126).prop_map(Event::Pong),
    ]
}

fn to_other(event: &Event) -> Message {
    match event.clone() {
        Event::Text(text) => Message::text(text),
        Event::Binary(bytes) => Message::binary(bytes),
        Event::Ping(bytes) => Message::Ping(bytes.into()),
        Event::Pong(bytes) => Message::Pong(bytes.into()),
        Event::Close { code, reason } => {
            Message::Close(code.map(|code| CloseFrame { code: code.into(), reason: reason.into() }))
        }
    }
}

fn write(out: &mut Vec<u8>, event: &Event, mask: Option<[u8; 4]>) {
    match event {
        Event::Text(text) => frame(out, Opcode::Text, text.as_bytes(), mask),
        Event::Binary(bytes) => frame(out, Opcode::Binary, bytes, mask),
        Event::Ping(bytes) => frame(out, Opcode::Ping, bytes, mask),
        Event::Pong(bytes) => frame(out, Opcode::Pong, bytes, mask),
        Event::Close { .. } => panic!("closes are written apart"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_the_other_sends_is_read(messages in proptest::collection::vec(message(), 0..10), size in 1_usize..5000) {
        for (theirs, ours) in [(OtherRole::Client, Role::Server), (OtherRole::Server, Role::Client)] {
            let mut socket = other(theirs, Vec::new());
            for message in &messages {
                socket.send(to_other(message)).unwrap();
            }
            let last = Event::Close { code: Some(4408), reason: "too slow".to_owned() };
            socket.send(to_other(&last)).unwrap();
            let told = decode(ours, 70_000, &socket.get_ref().output, &[size]);
            prop_assert_eq!(told.fault, None);
            prop_assert_eq!(&told.events[..messages.len()], &messages[..]);
            prop_assert_eq!(&told.events[messages.len()..], &[last][..]);
        }
    }

    #[test]
    fn what_is_written_the_other_reads(messages in proptest::collection::vec(message(), 0..10), mask: [u8; 4]) {
        for (theirs, mask) in [(OtherRole::Server, Some(mask)), (OtherRole::Client, None)] {
            let mut stream = Vec::new();
            messages.iter().for_each(|message| write(&mut stream, message, mask));
            if mask.is_none() {
                close_frame(&mut stream, 4404, "topic deleted");
            } else {
                frame(&mut stream, Opcode::Close, b"\x11\x34topic deleted", mask);
            }
            let mut socket = other(theirs, stream);
            for message in &messages {
                prop_assert_eq!(socket.read().unwrap(), to_other(message));
            }
            let last = Event::Close { code: Some(4404), reason: "topic deleted".to_owned() };
            prop_assert_eq!(socket.read().unwrap(), to_other(&last));
        }
    }
}

#[test]
fn fragments_of_the_other_are_joined() {
    let mut socket = other(OtherRole::Client, Vec::new());
    let fragment = |payload: &'static [u8], data: Data, is_final: bool| {
        Message::Frame(Frame::message(payload, OpCode::Data(data), is_final))
    };
    socket.send(fragment(b"a\xe2\x82", Data::Text, false)).unwrap();
    socket.send(Message::Frame(Frame::ping(&b"p"[..]))).unwrap();
    socket.send(fragment(b"\xac", Data::Continue, false)).unwrap();
    socket.send(fragment(b"b", Data::Continue, true)).unwrap();
    let told = decode(Role::Server, 100, &socket.get_ref().output, &[1]);
    assert_eq!(told.events, [Event::Ping(b"p".to_vec()), Event::Text("a\u{20ac}b".to_owned())]);
}
