//! Promise: a log that cannot be written ends no broker, and keeps none from ending.

use crate::broker::{Folder, program};
use crate::deadline::wait_until;
use crate::http::Connection;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Stdio};

/// A port that was free a moment ago.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Starts a broker at an address, with this for its log, and waits until it serves.
fn start(folder: &Folder, address: SocketAddr, log: Stdio) -> Child {
    let port = address.port().to_string();
    let mut command = program(folder, &[]);
    let command = command.args(["serve", "--port", &port, "--log-level", "debug"]);
    command.stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

/// Has the broker write to its log from a core, and ends it by a signal.
fn serves_and_ends(address: SocketAddr, mut broker: Child) {
    let mut connection = Connection::open(address);
    let json = [("Content-Type", "application/json")];
    for body in
        [&br#"{"name":"t","max_deliver":1,"dead_letter":{"topic":"nowhere","max_deliver":1}}"#[..], br#"{"name":"u"}"#]
    {
        connection.send_request("POST", "/topics", &json, body);
        connection.response_to("POST").expect(201);
    }
    connection.send_request("POST", "/topics/t/publish", &[], b"m");
    connection.response_to("POST").expect(202);
    // A message that was given out once and given back goes to the dead letters, which are nowhere: that is told in the log.
    connection.send_request("POST", "/topics/t/groups/g/fetch", &json, br#"{"max":1,"start":"earliest"}"#);
    connection.response_to("POST").expect(200);
    connection.send_request("POST", "/topics/t/groups/g/nack", &json, br#"{"offsets":[0]}"#);
    connection.response_to("POST").expect(200);
    connection.send_request("GET", "/health", &[], b"");
    connection.response_to("GET").expect(200);
    kill_process(Pid::from_child(&broker), Signal::TERM).unwrap();
    let mut status = None;
    wait_until("the broker has ended", || {
        status = broker.try_wait().unwrap();
        status.is_some()
    });
    assert!(status.unwrap().success(), "{status:?}");
}

fn wait_for_health(address: SocketAddr) {
    wait_until("the broker listens", || std::net::TcpStream::connect(address).is_ok());
}

#[test]
fn a_reader_of_the_log_that_went_away() {
    let (folder, address) = (Folder::new(), free_address());
    let mut broker = start(&folder, address, Stdio::piped());
    let mut log = BufReader::new(broker.stderr.take().unwrap());
    log.read_line(&mut String::new()).unwrap();
    drop(log);
    wait_for_health(address);
    serves_and_ends(address, broker);
}

#[test]
fn a_full_disk_under_the_log() {
    let (folder, address) = (Folder::new(), free_address());
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let broker = start(&folder, address, Stdio::from(full));
    wait_for_health(address);
    serves_and_ends(address, broker);
}
