//! Records as frames of a WebSocket: shared by the subscribers of a core, or a member's own. On the core of the connection.

use bytes::Bytes;
use ringmain_driver::{Delivery, Io};
use ringmain_engine::{Assignment, RecordBatch};
use ringmain_model::{Offset, TopicName};
use ringmain_wire::ws::{Opcode, frame, frame_header, text_frame};

use super::fetch::encode_record;
use super::sse::{EncodedBatch, assigned_records};
use super::subscribe::Format;
use super::ws::Socket;

/// Bytes of all frames of one batch, made once on a core: JSON and raw.
#[derive(Debug, Default)]
pub(crate) struct SharedFrames {
    json: Option<(Bytes, u32)>,
    raw: Option<(Bytes, u32)>,
}

impl Socket {
    /// Sends records: shared bytes when the whole batch is wanted, its own otherwise.
    pub(super) fn deliver(&mut self, delivery: Delivery<'_, EncodedBatch>, io: &mut Io<'_>) {
        if self.closed {
            return;
        }
        self.spoke_ms = io.now().monotonic_ms;
        let Delivery { subscription, batch, from, topic, partitions, encoded } = delivery;
        let several = partitions > 1;
        let (bytes, messages) = match encoded.filter(|_| from <= batch.base()) {
            Some(shared) => {
                let place = match self.format {
                    Format::Json => &mut shared.frames.json,
                    Format::Raw => &mut shared.frames.raw,
                };
                place.get_or_insert_with(|| frames(batch, from, several, topic, self.format)).clone()
            }
            None => frames(batch, from, several, topic, self.format),
        };
        io.send(bytes, subscription, messages);
    }

    /// Sends what its group gave.
    pub(super) fn assign(&mut self, topic: &TopicName, assignment: &Assignment, io: &mut Io<'_>) {
        if self.closed {
            return;
        }
        self.spoke_ms = io.now().monotonic_ms;
        let (format, partition) = (self.format, assignment.batch.partition());
        let several = self.member().is_ok_and(|member| member.has_several());
        let (mut out, mut json, mut messages) = (Vec::new(), Vec::new(), 0);
        for (record, attempt) in assigned_records(assignment) {
            match format {
                Format::Json => {
                    json.clear();
                    encode_record(&mut json, partition, several, topic, &record, attempt);
                    text_frame(&mut out, &json);
                }
                Format::Raw => frame(&mut out, Opcode::Binary, record.payload, None),
            }
            messages += 1;
            if let Ok(member) = self.member() {
                member.hold(partition.partition, assignment.epoch, record.offset);
            }
        }
        io.send(Bytes::from(out), partition.partition, messages);
        self.tell_lost(io);
    }
}

fn frames(batch: &RecordBatch, from: Offset, several: bool, topic: &TopicName, format: Format) -> (Bytes, u32) {
    let mut out = Vec::with_capacity(batch.bytes().len() * 3 / 2 + 256);
    let (mut json, mut messages) = (Vec::new(), 0);
    for record in batch.records_from(from) {
        match format {
            Format::Json => {
                json.clear();
                encode_record(&mut json, batch.partition(), several, topic, &record, None);
                frame_header(&mut out, Opcode::Text, json.len());
                out.extend_from_slice(&json);
            }
            Format::Raw => frame(&mut out, Opcode::Binary, record.payload, None),
        }
        messages += 1;
    }
    out.shrink_to_fit();
    (Bytes::from(out), messages)
}
