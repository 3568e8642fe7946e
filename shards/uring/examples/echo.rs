//! Sends back whatever it receives, on the address given or on 127.0.0.1:7007; one loop on one core.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;

use bytes::Bytes;
use ringmain_uring::{Event, Ring, RingConfig, SocketId, listen};

/// Above it the peer is not listened to until it has read some.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// The most that goes into one send.
const SEND_BYTES_MAX: usize = 256 << 10;

#[derive(Default)]
struct Connection {
    waiting: VecDeque<Bytes>,
    waiting_bytes: usize,
    ended: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let address: SocketAddr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7007".to_owned()).parse()?;
    let mut ring = Ring::new(&RingConfig::default())?;
    ring.listen(listen::bind(address, 1024)?)?;
    let mut connections: HashMap<SocketId, Connection> = HashMap::new();
    loop {
        ring.turn(None)?;
        while let Some(event) = ring.next_event() {
            let socket = match event {
                Event::Accepted { socket, .. } => {
                    connections.insert(socket, Connection::default());
                    continue;
                }
                Event::AcceptEnded { error, .. } => return Err(error.into()),
                Event::Received { socket, bytes } => {
                    if let Some(connection) = connections.get_mut(&socket) {
                        connection.waiting.push_back(Bytes::copy_from_slice(bytes));
                        connection.waiting_bytes += bytes.len();
                    }
                    socket
                }
                Event::ReceiveEnded { socket, .. } => {
                    if let Some(connection) = connections.get_mut(&socket) {
                        connection.ended = true;
                    }
                    socket
                }
                Event::Sent { socket } => socket,
                Event::SendFailed { socket, error } => {
                    writeln!(std::io::stderr(), "{socket:?}: {error}")?;
                    ring.close(socket);
                    continue;
                }
                Event::Closed { socket } => {
                    connections.remove(&socket);
                    continue;
                }
                Event::Woken | Event::File(_) => continue,
            };
            if let Some(connection) = connections.get_mut(&socket) {
                advance(&mut ring, socket, connection);
            }
        }
    }
}

/// Sends what waits, slows a fast peer down, and closes when all is said.
fn advance(ring: &mut Ring, socket: SocketId, connection: &mut Connection) {
    if !ring.sending(socket) {
        let sent = ring.send(socket, &mut connection.waiting, SEND_BYTES_MAX);
        connection.waiting_bytes -= sent;
    }
    if connection.waiting_bytes > WAITING_BYTES_MAX {
        ring.pause_receive(socket);
    } else {
        ring.resume_receive(socket);
    }
    if connection.ended && !ring.sending(socket) && connection.waiting.is_empty() {
        ring.close(socket);
    }
}
