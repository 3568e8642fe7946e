//! Promise: at its limit of connections the broker rests, serves those that it has, and admits the next as soon as one leaves.

use crate::broker::Setup;
use crate::deadline::growth_during;
use crate::http::Filled;
use crate::plenty::expect_health;
use std::time::{Duration, Instant};

#[test]
fn a_full_broker_rests_and_admits_when_one_leaves() {
    let setup = Setup::new().flag("--cores", 1).flag("--shards", 1).flag("--max-connections", 3);
    let broker = setup.start();
    let mut served: Vec<_> = (0..3).map(|_| broker.connect()).collect();
    expect_health(&mut served);
    // The kernel completes these; the broker does not take them.
    let mut waiting: Vec<_> = (0..3).map(|_| broker.connect()).collect();
    waiting.iter_mut().for_each(|connection| connection.send_request("GET", "/health", &[], b""));
    let span = Duration::from_secs(2);
    let spent = growth_during(span, || broker.processor_time_ns());
    assert!(spent < 200_000_000, "{} ms of processor time in {span:?} at the limit", spent / 1_000_000);
    expect_health(&mut served);
    for mut late in waiting {
        assert_eq!(
            late.fill(Instant::now() + Duration::from_millis(1)),
            Filled::Quiet,
            "it was let in above the limit"
        );
        drop(served.remove(0));
        late.response_to("GET").expect(200);
        served.push(late);
        expect_health(&mut served);
    }
}
