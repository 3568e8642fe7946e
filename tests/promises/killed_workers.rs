//! Promise: a worker that was killed while its fetch waited gets nothing any more: the next message goes to another at once, not
//! after `ack_wait_ms`.

use crate::broker::{Broker, Setup};
use crate::deadline::wait_until;
use crate::http::Connection;
use crate::plenty::offsets;
use serde_json::json;

fn started() -> Broker {
    let broker = Setup::new().flag("--idle-timeout-ms", 600_000).start();
    broker.create_topic_with(json!({ "ack_wait_ms": 600_000 }), "t");
    broker.group_post("t", "g", "fetch", json!({}));
    broker
}

fn waiting(broker: &Broker) -> Connection {
    let mut connection = broker.connect();
    // The first answer shows that the broker has it all: the second waits.
    let two = [json!({}), json!({ "max": 100, "wait_ms": 60_000 })];
    let bytes = two.map(|wish| broker.json_request_to("/topics/t/groups/g/fetch", &wish)).concat();
    connection.send(&bytes);
    connection.response_to("POST").expect(200);
    connection
}

/// Connections of all cores, the one that asks included.
fn open_connections(broker: &Broker) -> f64 {
    let text = String::from_utf8(broker.get("/metrics").expect(200).body).unwrap();
    let lines = text.lines().filter(|line| line.starts_with("ringmain_connections_open"));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

#[test]
fn the_next_message_goes_to_one_that_lives() {
    let broker = started();
    for round in 0..6 {
        let mut workers: Vec<_> = (0..10).map(|_| waiting(&broker)).collect();
        match round % 3 {
            // The system sends a reset when they are dropped.
            0 => {
                let reset = Some(std::time::Duration::ZERO);
                let set =
                    |worker: &Connection| rustix::net::sockopt::set_socket_linger(worker.sender(), reset).unwrap();
                workers.iter().for_each(set);
            }
            1 => {}
            // A process that was killed looks like one that sends no more.
            _ => {
                workers.iter_mut().for_each(Connection::finish_sending);
                workers.iter_mut().for_each(Connection::expect_closed);
            }
        }
        drop(workers);
        // Descriptors counted before would hold that of the last request, and let one of the workers pass for it.
        wait_until("the broker has noticed", || open_connections(&broker) == 1.0);
        let offset = broker.publish("t", b"x");
        let data = broker.group_post("t", "g", "fetch", json!({ "max": 100, "wait_ms": 20_000 }));
        assert_eq!(offsets(&data), [offset], "round {round}");
        assert!(data["messages"][0].get("attempt").is_none(), "it was given to nobody before: {data}");
        broker.group_post("t", "g", "ack", json!({ "offset": offset }));
    }
}
