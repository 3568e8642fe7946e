//! A connection beyond the number of sockets is closed at once and counted, and room comes back.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking"
)]

mod stage;

use std::io::Read;

use ringmain_uring::{Error, RingConfig};

use stage::{Stage, connect, listener, small};

#[test]
fn a_connection_beyond_the_limit_is_refused() {
    let mut stage = Stage::new(&RingConfig { sockets_max: 2, ..small() });
    let (_first, one) = stage.pair();
    let (_second, _two) = stage.pair();
    let mut third = connect(stage.address);
    while stage.ring.refused() == 0 {
        stage.turn(stage::PATIENCE);
    }
    assert_eq!(third.read(&mut [0; 1]).unwrap(), 0);
    assert_eq!(stage.ring.refused(), 1);
    assert!(stage.seen.is_empty(), "{:?}", stage.seen);

    let (_far, address) = listener();
    let error = stage.ring.adopt(connect(address)).unwrap_err();
    assert!(matches!(error, Error::Full { what: "sockets" }));

    stage.ring.close(one);
    stage.closed(one);
    let (_fourth, four) = stage.pair();
    assert_eq!(four.slot(), one.slot());
    assert_ne!(four.generation(), one.generation());
}
