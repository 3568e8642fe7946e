//! What is taken into one send, and what is left after a short one.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::VecDeque;

use bytes::Bytes;

use super::{Gather, PIECES_MAX};

fn left_of(gather: &Gather) -> Vec<u8> {
    let memory = gather.memory();
    let mut left = Vec::new();
    for (index, part) in memory.parts.iter().enumerate().skip(memory.first) {
        let piece = &memory.pieces[index];
        let start = part.iov_base as usize - piece.as_ptr() as usize;
        left.extend_from_slice(&piece[start..start + part.iov_len]);
    }
    assert_eq!(memory.header.msg_iovlen, memory.parts.len() - memory.first);
    left
}

#[test]
fn whole_buffers_up_to_the_limit_and_at_least_one() {
    let mut gather = Gather::new();
    let mut buffers: VecDeque<Bytes> = ["four", "", "two", "three", "more"].into_iter().map(Bytes::from).collect();
    assert_eq!(gather.fill(&mut buffers, 8), 7);
    assert_eq!(left_of(&gather), b"fourtwo");
    assert_eq!(buffers.len(), 2);
    gather.clear();
    assert_eq!(gather.fill(&mut buffers, 0), 5, "one buffer whatever the limit");
    gather.clear();
    assert_eq!(gather.fill(&mut buffers, 100), 4);
    gather.clear();
    assert_eq!(gather.fill(&mut buffers, 100), 0);
}

#[test]
fn the_number_of_pieces_is_bounded() {
    let mut gather = Gather::new();
    let mut buffers: VecDeque<Bytes> = (0..PIECES_MAX + 3).map(|_| Bytes::from_static(b"x")).collect();
    assert_eq!(gather.fill(&mut buffers, usize::MAX), PIECES_MAX);
    assert_eq!(buffers.len(), 3);
}

#[test]
fn every_way_to_cut_a_send_leaves_the_right_rest() {
    let pieces = ["alpha", "b", "gamma", "de"];
    let whole = pieces.concat();
    for first in 0..=whole.len() {
        for second in 0..=(whole.len() - first) {
            let mut gather = Gather::new();
            let mut buffers: VecDeque<Bytes> = pieces.into_iter().map(Bytes::from).collect();
            assert_eq!(gather.fill(&mut buffers, usize::MAX), whole.len());
            assert_eq!(gather.advance(first), first == whole.len());
            assert_eq!(left_of(&gather), &whole.as_bytes()[first..]);
            let done = first + second;
            assert_eq!(gather.advance(second), done == whole.len());
            assert_eq!(left_of(&gather), &whole.as_bytes()[done..]);
        }
    }
}
