//! Promise: at the limit of open files the broker stops accepting without spinning, serves those that it has, and accepts
//! again as soon as it can.

use crate::broker::Setup;
use crate::deadline::{growth_during, wait_until};
use crate::http::Connection;
use std::time::Duration;

/// Files that the broker may open; its rings, listeners and wake-ups take a part.
const OPEN_FILES: u32 = 80;
/// More connections than that.
const CONNECTIONS: usize = 160;

#[test]
fn accepts_pause_at_the_limit_and_resume() {
    let broker = Setup::new().open_files_max(OPEN_FILES).start();
    let mut served = broker.connect();
    served.send_request("GET", "/health", &[], b"");
    served.response_to("GET").expect(200);

    // The kernel completes these connections even when the broker cannot accept them.
    let crowd: Vec<Connection> = (0..CONNECTIONS).map(|_| broker.connect()).collect();
    let files = || std::fs::read_dir(format!("/proc/{}/fd", broker.process_id())).unwrap().count();
    wait_until("the broker has opened what it may", || files() + 8 >= OPEN_FILES as usize);

    let spent = growth_during(Duration::from_secs(2), || broker.processor_time_ns());
    assert!(spent < 200_000_000, "{} ms of processor time in 2 s at the limit", spent / 1_000_000);
    for _ in 0..3 {
        served.send_request("GET", "/health", &[], b"");
        served.response_to("GET").expect(200);
    }

    let mut late: Vec<Connection> = (0..10).map(|_| broker.connect()).collect();
    late.iter_mut().for_each(|connection| connection.send_request("GET", "/health", &[], b""));
    drop(crowd);
    for connection in &mut late {
        connection.response_to("GET").expect(200);
    }
    broker.get("/health").expect(200);
}
