//! WebSocket frames under libFuzzer; the check itself stands in the library, where a plain test runs it over the corpus.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| ringmain_fuzz::ws_frames(data));
