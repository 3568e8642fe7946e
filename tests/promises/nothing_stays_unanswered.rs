//! Promise: what was published is seen by who follows although whoever published it reads nothing and nothing else happens.

use crate::broker::Setup;
use crate::websocket::EXTENDED;
use serde_json::json;

const PUBLISHES: usize = 20;
/// The fault needs the publisher on the topic's core and a follower on another: each round is one more throw.
const ROUNDS: usize = 10;

#[test]
fn a_publisher_that_reads_nothing_is_followed_all_the_same() {
    // No heartbeat and no timer pokes a core that has gone to sleep.
    let setup = Setup::new().flag("--cores", 2).flag("--shards", 2);
    let setup =
        ["--heartbeat-ms", "--idle-timeout-ms", "--write-timeout-ms", "--body-timeout-ms", "--header-timeout-ms"]
            .iter()
            .fold(setup, |setup, name| setup.flag(name, 3_600_000));
    let broker = setup.start();
    let mut deaf = Vec::new();
    for round in 0..ROUNDS {
        let topic = format!("t{round}");
        broker.create_topic_of(&topic, 100_000);
        broker.publish_many(&topic, &vec![b'x'; 1_000_000], 9);
        let mut streams: Vec<_> = (0..3).map(|_| broker.subscribe(&topic, "", &[])).collect();
        let mut members: Vec<_> =
            (0..2).map(|number| broker.websocket(&topic, &format!("?group=g{number}"), &[EXTENDED])).collect();
        let mut publisher = broker.connect_narrow();
        let page = broker.request_to("GET", &format!("/topics/{topic}/messages?limit=9&from_offset=0"), b"");
        let mut bytes = page;
        for number in 0..PUBLISHES {
            bytes.extend(broker.request_to("POST", &format!("/topics/{topic}/publish"), number.to_string().as_bytes()));
            bytes.extend(broker.request_to("GET", &format!("/topics/{topic}"), b""));
        }
        publisher.send(&bytes);
        // How far it gets before its answers stop it is its own affair; to publish them all it may have to read.
        publisher.response_to("GET").expect(200);
        for stream in &mut streams {
            let got: Vec<u64> = stream.messages(PUBLISHES).iter().map(|message| message.offset).collect();
            assert_eq!(got, (9..9 + PUBLISHES as u64).collect::<Vec<_>>(), "round {round}");
        }
        for member in &mut members {
            let got = member.offsets(PUBLISHES);
            assert_eq!(got, (9..9 + PUBLISHES as u64).collect::<Vec<_>>(), "round {round}");
            member.say(json!({ "ack": got }));
        }
        deaf.push((publisher, streams, members));
    }
}
