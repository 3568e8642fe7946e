//! The mask over what a client sends; pure, on the core that owns the connection.

/// Applies a mask to `bytes`, or takes it off again, eight bytes at a time. The first byte meets the key's first one.
pub(super) fn apply(bytes: &mut [u8], key: [u8; 4]) {
    let [a, b, c, d] = key;
    let key_word = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ key_word).to_ne_bytes();
    }
    for (byte, key_byte) in rest.iter_mut().zip(key.iter().cycle()) {
        *byte ^= key_byte;
    }
}

/// The key as it goes on after `count` bytes.
pub(super) fn advanced(mut key: [u8; 4], count: usize) -> [u8; 4] {
    key.rotate_left(count % 4);
    key
}
