//! Promise: when the lane to another core is full, a publish is refused at once with 503 and `Retry-After`, and a refused
//! publish is not stored.

use crate::broker::{Setup, topic_path};
use crate::http::{Connection, request_bytes};
use std::collections::HashMap;

const TOPICS: usize = 8;
const CONNECTIONS: usize = 32;
const IN_FLIGHT: usize = 16;

#[test]
fn a_full_lane_refuses_and_stores_nothing() {
    let setup = Setup::new().flag("--lane-requests", 1).flag("--cores", 2).flag("--retention", 10_000_000);
    let broker = setup.start();
    let names: Vec<String> = (0..TOPICS).map(|number| format!("t{number}")).collect();
    names.iter().for_each(|name| broker.create_topic(name));
    let host = broker.address().to_string();
    let mut connections: Vec<Connection> = (0..CONNECTIONS).map(|_| broker.connect()).collect();
    let mut stored: HashMap<&str, u64> = HashMap::new();
    let mut refused = 0;
    for round in 0..50 {
        for (number, connection) in connections.iter_mut().enumerate() {
            let topic = |index: usize| topic_path(&names[(number + index) % TOPICS], "/publish");
            let bytes = (0..IN_FLIGHT).flat_map(|index| request_bytes(&host, "POST", &topic(index), &[], b"x"));
            connection.send(&bytes.collect::<Vec<u8>>());
        }
        for (number, connection) in connections.iter_mut().enumerate() {
            for index in 0..IN_FLIGHT {
                let name = names[(number + index) % TOPICS].as_str();
                let answer = connection.response_to("POST");
                if answer.status == 202 {
                    *stored.entry(name).or_default() += 1;
                    continue;
                }
                let answer = answer.expect_error(503, "busy");
                let wait = answer.header("retry-after").expect("Retry-After");
                assert!(wait.parse::<u64>().is_ok(), "seconds to wait: {wait:?}");
                refused += 1;
            }
        }
        if refused > 0 && round >= 2 {
            break;
        }
    }
    assert!(refused > 0, "a lane of one request was never full");
    for name in &names {
        let stats = broker.stats(name);
        let count = stored.get(name.as_str()).copied().unwrap_or_default();
        assert_eq!(stats["message_count"], count, "{name}: {stats}");
        assert_eq!(stats["latest_offset"], i64::try_from(count).unwrap() - 1, "{name}: offsets without holes");
    }
}
