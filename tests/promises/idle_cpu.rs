//! Promise: a broker with nothing to do, even with readers connected, uses less than one hundredth of a core.

use crate::broker::Broker;
use crate::deadline::growth_during;
use std::time::Duration;

#[test]
fn an_idle_broker_rests() {
    let broker = Broker::start();
    broker.create_topic("t");
    let mut streams: Vec<_> = (0..20).map(|_| broker.subscribe("t", "?from_offset=0", &[])).collect();
    let _idle: Vec<_> = (0..20).map(|_| broker.connect()).collect();
    broker.publish("t", b"the last work");
    streams.iter_mut().for_each(|stream| drop(stream.message()));
    let span = Duration::from_secs(4);
    let spent = growth_during(span, || broker.processor_time_ns());
    let share = spent as f64 / span.as_nanos() as f64;
    assert!(share < 0.01, "{:.2} % of a core while idle", share * 100.0);
}
