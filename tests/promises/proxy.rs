//! A small TCP proxy that can cut every connection through it, so that a client's resume is a real one.

use std::io::copy;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A running proxy. Its threads end with the connections; the one that accepts ends with the test program.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    pub(crate) fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let streams = Arc::new(Mutex::new(Vec::new()));
        let known = Arc::clone(&streams);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(target) else { continue };
                let handles = [&client, &server].map(|stream| stream.try_clone().unwrap());
                known.lock().unwrap().extend(handles);
                forward(&client, &server);
                forward(&server, &client);
            }
        });
        Self { address, streams }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts all connections that there are; says how many.
    pub(crate) fn cut(&self) -> usize {
        let streams = std::mem::take(&mut *self.streams.lock().unwrap());
        streams.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        streams.len() / 2
    }
}

fn forward(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    thread::spawn(move || {
        let _ = copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}
