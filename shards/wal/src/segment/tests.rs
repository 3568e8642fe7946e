//! Segment headers come back as they went, and each flipped bit is seen; runs on the test thread.

use ringmain_model::ShardId;

use crate::header::HeaderDamage;
use crate::position::SegmentNumber;
use crate::segment::SegmentHeader;

const HEADER: SegmentHeader = SegmentHeader {
    number: SegmentNumber(0x0102_0304),
    epoch: 0xfedc_ba98_7654_3210,
    bytes: 64 << 20,
    shard: ShardId(7),
};

#[test]
fn a_header_comes_back_as_it_went() {
    assert_eq!(SegmentHeader::decode(&HEADER.encode()), Ok(HEADER));
}

#[test]
fn each_flipped_bit_and_each_cut_is_seen() {
    let block = HEADER.encode();
    for at in 0..block.len() {
        for bit in 0..8 {
            let mut damaged = block.clone();
            damaged[at] ^= 1 << bit;
            let damage = SegmentHeader::decode(&damaged);
            assert_eq!(damage, Err(HeaderDamage::Damaged), "byte {at} bit {bit}");
        }
        assert_eq!(SegmentHeader::decode(&block[..at]), Err(HeaderDamage::Damaged), "cut at {at}");
    }
}

#[test]
fn a_newer_version_is_told_from_damage() {
    let mut block = HEADER.encode();
    block[12] = 2;
    let checksum = crc32c::crc32c(&block[12..]);
    block[8..12].copy_from_slice(&checksum.to_le_bytes());
    assert_eq!(SegmentHeader::decode(&block), Err(HeaderDamage::Newer(2)));
}
