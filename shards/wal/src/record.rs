//! One record inside a batch: its bytes, read in place. Pure, for any core.

use ringmain_model::{Message, MessageId, Offset};

use crate::batch::Damage;

/// Bytes before a record's parts; see `FORMAT.md`.
pub(crate) const RECORD_FIXED_BYTES: usize = 16;
pub(crate) const FLAG_KEY: u8 = 1;
pub(crate) const FLAG_SUBJECT: u8 = 2;
pub(crate) const FLAG_ID: u8 = 4;
/// Bytes of a message's id.
const ID_BYTES: usize = 24;

/// A record as it stands in its batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'b> {
    /// Its offset in the partition.
    pub offset: Offset,
    /// When the broker took it, in microseconds since the Unix epoch.
    pub time_us: i64,
    /// What messages of one kind share.
    pub key: Option<&'b [u8]>,
    /// The subject that it was published to, for records that a stream captured.
    pub subject: Option<&'b [u8]>,
    /// What tells a repeat of it from another message.
    pub id: Option<MessageId>,
    /// Names and values, in order.
    pub headers: RecordHeaders<'b>,
    /// The message's body.
    pub payload: &'b [u8],
}

/// A record's headers, read one by one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeaders<'b> {
    bytes: &'b [u8],
    left: u16,
}

impl RecordHeaders<'_> {
    /// How many are left to read.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.left)
    }

    /// Whether none is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}

impl<'b> Iterator for RecordHeaders<'b> {
    type Item = (&'b [u8], &'b [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let name = take_short(&mut self.bytes)?;
        let value = take_long(&mut self.bytes)?;
        Some((name, value))
    }
}

/// Bytes that `message` takes as a record.
pub(crate) fn encoded_bytes(message: &Message) -> usize {
    let key = message.key.as_ref().map_or(0, |key| 4 + key.len());
    let headers: usize = message.headers.iter().map(|(name, value)| 6 + name.len() + value.len()).sum();
    let id = message.id.map_or(0, |_| ID_BYTES);
    RECORD_FIXED_BYTES + key + id + headers + message.payload.len()
}

/// Appends `message` as a record. The caller has checked that all lengths fit.
pub(crate) fn encode(out: &mut Vec<u8>, message: &Message, offset_delta: u32, time_delta: u32) {
    let length = u32::try_from(encoded_bytes(message)).unwrap_or(u32::MAX);
    let header_count = u16::try_from(message.headers.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&offset_delta.to_le_bytes());
    out.extend_from_slice(&time_delta.to_le_bytes());
    out.extend_from_slice(&header_count.to_le_bytes());
    let key_flag = if message.key.is_some() { FLAG_KEY } else { 0 };
    let id_flag = if message.id.is_some() { FLAG_ID } else { 0 };
    out.extend_from_slice(&[key_flag | id_flag, 0]);
    if let Some(key) = &message.key {
        put_long(out, key);
    }
    if let Some(id) = &message.id {
        out.extend_from_slice(&id.name);
        out.extend_from_slice(&id.content.to_le_bytes());
    }
    for (name, value) in &message.headers {
        out.extend_from_slice(&u16::try_from(name.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(name);
        put_long(out, value);
    }
    out.extend_from_slice(&message.payload);
}

/// The record at the start of `bytes`, and how many bytes it takes.
pub(crate) fn decode(bytes: &[u8], base: Offset, base_time_us: i64) -> Result<(Record<'_>, usize), Damage> {
    let damage = Damage::Record;
    let word = |at: usize| bytes.get(at..at + 4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    let length = usize::try_from(word(0).ok_or(damage)?).map_err(|_| damage)?;
    let offset_delta = word(4).ok_or(damage)?;
    let time_delta = word(8).ok_or(damage)?;
    let fixed = bytes.get(..RECORD_FIXED_BYTES).ok_or(damage)?;
    let header_count = u16::from_le_bytes([fixed[12], fixed[13]]);
    let flags = fixed[14];
    if flags & !(FLAG_KEY | FLAG_SUBJECT | FLAG_ID) != 0 || fixed[15] != 0 {
        return Err(damage);
    }
    let mut rest = bytes.get(RECORD_FIXED_BYTES..length).ok_or(damage)?;
    let key = if flags & FLAG_KEY != 0 { Some(take_long(&mut rest).ok_or(damage)?) } else { None };
    let subject = if flags & FLAG_SUBJECT != 0 { Some(take_short(&mut rest).ok_or(damage)?) } else { None };
    let id = if flags & FLAG_ID != 0 { Some(take_id(&mut rest).ok_or(damage)?) } else { None };
    let headers = RecordHeaders { bytes: rest, left: header_count };
    for _ in 0..header_count {
        take_short(&mut rest).ok_or(damage)?;
        take_long(&mut rest).ok_or(damage)?;
    }
    let record = Record {
        offset: base.plus(u64::from(offset_delta)),
        time_us: base_time_us.saturating_add(i64::from(time_delta)),
        key,
        subject,
        id,
        headers,
        payload: rest,
    };
    Ok((record, length))
}

fn put_long(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn take_id(bytes: &mut &[u8]) -> Option<MessageId> {
    let (name, rest) = bytes.split_first_chunk()?;
    let (content, rest) = rest.split_first_chunk()?;
    *bytes = rest;
    Some(MessageId { name: *name, content: u64::from_le_bytes(*content) })
}

fn take_short<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
    let (length, rest) = bytes.split_at_checked(2)?;
    let (taken, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([length[0], length[1]])))?;
    *bytes = rest;
    Some(taken)
}

fn take_long<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
    let (length, rest) = bytes.split_at_checked(4)?;
    let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]);
    let (taken, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *bytes = rest;
    Some(taken)
}
