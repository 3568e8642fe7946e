//! Messages of a batch whose body has not come whole, packed: each takes hardly more room than its bytes. On the connection's core.

use bytes::{Buf as _, BufMut as _, Bytes};
use ringmain_model::{Message, MessageId};

/// Messages one behind the other. Each is its payload, key, headers and id; what has a length stands behind it.
#[derive(Debug, Default)]
pub(super) struct Packed {
    bytes: Vec<u8>,
    count: usize,
}

impl Packed {
    /// Messages in it.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Bytes that it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.capacity()
    }

    pub(super) fn push(&mut self, message: &Message) {
        self.count += 1;
        self.put(&message.payload);
        self.bytes.put_u8(u8::from(message.key.is_some()));
        if let Some(key) = &message.key {
            self.put(key);
        }
        self.bytes.put_u64_le(message.headers.len() as u64);
        for (name, value) in &message.headers {
            self.put(name);
            self.put(value);
        }
        self.bytes.put_u8(u8::from(message.id.is_some()));
        if let Some(id) = &message.id {
            self.bytes.put_slice(&id.name);
            self.bytes.put_u64_le(id.content);
        }
    }

    fn put(&mut self, part: &[u8]) {
        // A message is shorter than 4 GiB.
        self.bytes.put_uint_le(part.len() as u64, size_of::<u32>());
        self.bytes.put_slice(part);
    }

    /// The messages, all in the memory in which they were packed.
    pub(super) fn unpack(self) -> Vec<Message> {
        let mut bytes = Bytes::from(self.bytes);
        (0..self.count).map(|_| unpack_one(&mut bytes)).collect()
    }
}

fn unpack_one(bytes: &mut Bytes) -> Message {
    let payload = take(bytes);
    let key = (bytes.get_u8() == 1).then(|| take(bytes));
    let headers = (0..bytes.get_u64_le()).map(|_| (take(bytes), take(bytes))).collect();
    let id = (bytes.get_u8() == 1).then(|| {
        let mut name = [0; 16];
        bytes.copy_to_slice(&mut name);
        MessageId { name, content: bytes.get_u64_le() }
    });
    Message { payload, key, headers, id }
}

fn take(bytes: &mut Bytes) -> Bytes {
    let length = bytes.get_u32_le();
    bytes.split_to(length as usize)
}
