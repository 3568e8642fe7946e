//! Promise: `ringmain subscribe --group` works on after its connection was cut, and loses nothing.

use crate::broker::Broker;
use crate::deadline::wait_for;
use crate::proxy::Proxy;
use crate::subcommands::{Subscriber, run};
use std::collections::HashSet;

#[test]
fn a_worker_that_is_cut_goes_on() {
    let broker = Broker::start();
    broker.create_topic("t");
    let proxy = Proxy::start(broker.address());
    let mut worker = Subscriber::start(proxy.address(), &["t", "--group", "g", "--from", "0"]);
    let mut seen = HashSet::new();
    for round in 0..3 {
        broker.publish_numbers("t", round * 10..(round + 1) * 10);
        // What was printed and not acknowledged before the cut may come twice.
        while seen.len() < (round as usize + 1) * 10 {
            seen.insert(worker.line());
        }
        broker.wait_for_group("t", "g", "pending", 0);
        wait_for("its connection is cut", || (proxy.cut() > 0).then_some(()));
    }
}

#[test]
fn a_broker_that_was_never_there_is_told_at_once() {
    let broker = Broker::start();
    let outcome = run(&broker, &["subscribe", "nothing", "--group", "g"]).expect(1);
    assert!(outcome.words.contains("topic_not_found"), "{outcome:?}");
}
