//! A group's member over WebSocket: what it holds in each partition, and what its client says of that. On its core.

use std::collections::BTreeMap;

use ringmain_driver::{GroupAction, Io, Request};
use ringmain_model::limit::{MEMBER_IN_FLIGHT_MAX, NACK_DELAY_MS_MAX, SEND_QUEUE_BYTES_MAX};
use ringmain_model::{GroupName, Incarnation, Offset, Refusal};
use serde_json::Value;
use smallvec::SmallVec;

use super::acks::parts_of_id;
use super::notices::{Losses, moved_json};
use super::problem::Problem;
use super::subscribe::{Opening, hold_at_most};
use super::ws::{Asked, Socket, offset_list};

/// What one partition of the group gave, and is not acknowledged.
#[derive(Debug)]
struct Part {
    /// The epoch in which each offset was got.
    held: BTreeMap<Offset, u64>,
    /// The group's epoch in the partition, as far as this connection has heard.
    epoch: u64,
}

/// What the group of a member gave it, and it has not acknowledged.
#[derive(Debug)]
pub(super) struct Member {
    group: GroupName,
    incarnation: Incarnation,
    /// By the partitions' numbers.
    parts: SmallVec<[Part; 1]>,
    losses: Losses,
}

/// An acknowledgement with a reference, while the partitions concerned have not all answered.
#[derive(Debug)]
pub(super) struct AskedAck {
    pub(super) word: Value,
    pub(super) reference: Value,
    /// Answers that have not come.
    pub(super) left: u32,
    /// Messages that counted.
    pub(super) count: u64,
    /// What a partition has said against it.
    pub(super) refusal: Option<Refusal>,
}

impl Member {
    /// A member whose group stands in all partitions.
    pub(super) fn of(opening: &Opening) -> Option<Self> {
        let parts = opening.epochs().map(|epoch| Part { held: BTreeMap::new(), epoch }).collect();
        let incarnation = opening.end()?.partition.incarnation;
        Some(Self { group: opening.group.clone()?, incarnation, parts, losses: Losses::default() })
    }

    fn partitions(&self) -> u32 {
        u32::try_from(self.parts.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn has_several(&self) -> bool {
        self.parts.len() > 1
    }

    /// The partition that a notice names.
    fn named(&self, partition: u32) -> Option<u32> {
        self.has_several().then_some(partition)
    }

    fn part_mut(&mut self, partition: u32) -> Option<&mut Part> {
        self.parts.get_mut(usize::try_from(partition).ok()?)
    }

    /// The group gave a message.
    pub(super) fn hold(&mut self, partition: u32, epoch: u64, offset: Offset) {
        // What a silent member never acknowledges went to others long ago.
        let held_max = MEMBER_IN_FLIGHT_MAX as usize / self.parts.len().max(1);
        if let Some(part) = self.part_mut(partition) {
            part.epoch = epoch;
            part.held.insert(offset, epoch);
            if part.held.len() > held_max {
                part.held.pop_first();
            }
        }
    }

    /// The messages of a word: `7`, an id as messages bear it, or an array of such. Those of another life of the topic are left out:
    /// they count for nothing.
    fn messages(&self, word: &Value) -> Result<Vec<(u32, Offset)>, Problem> {
        let mut messages = Vec::new();
        for one in offset_list(word)? {
            let (incarnation, partition, offset) = match one {
                Value::String(id) => parts_of_id(id).ok_or_else(|| {
                    Problem::parameter(format!("{one} is not the id of a message: give it as the message has it"))
                })?,
                one => (self.incarnation, 0, offset_of(one)?),
            };
            if one.is_u64() && self.has_several() {
                return Err(Problem::parameter(format!(
                    "the topic has {} partitions, and an offset does not say in which it is: name the message by its id, like {{\"ack\":\"{}-0-{offset}\"}}",
                    self.parts.len(),
                    self.incarnation
                )));
            }
            if partition >= self.partitions() && incarnation == self.incarnation {
                return Err(Problem::parameter(format!("there is no partition {partition} of which {one} could be")));
            }
            if incarnation == self.incarnation {
                messages.push((partition, offset));
            }
        }
        Ok(messages)
    }
}

fn offset_of(one: &Value) -> Result<Offset, Problem> {
    let offset = one.as_u64().map(Offset);
    offset.ok_or_else(|| Problem::parameter("an offset is a number, several are an array of numbers"))
}

impl Socket {
    pub(super) fn on_ack(&mut self, word: Value, reference: &Value, io: &mut Io<'_>) -> Result<(), Problem> {
        let asked = !reference.is_null();
        let member = self.member()?;
        let messages = member.messages(&word)?;
        // What each partition is asked for, of those that have a message in it.
        let mut current: SmallVec<[(u32, u64, Vec<Offset>); 1]> = SmallVec::new();
        for (partition, offset) in messages {
            let Some(part) = member.part_mut(partition) else { continue };
            let epoch = part.epoch;
            // What it got over an earlier connection may count as well, what it got before a seek does not: the owner knows.
            let got_in = part.held.remove(&offset);
            if !asked {
                io.ack(partition, got_in.unwrap_or(epoch), offset);
                continue;
            }
            let at = current.iter().position(|(number, ..)| *number == partition).unwrap_or_else(|| {
                current.push((partition, epoch, Vec::new()));
                current.len() - 1
            });
            if got_in.is_none_or(|got_in| got_in == epoch) {
                current[at].2.push(offset);
            }
        }
        if asked {
            if current.is_empty() {
                // Of nothing that counts: answered all the same, after what was said before.
                current.push((0, member.parts.first().map_or(0, |part| part.epoch), Vec::new()));
            }
            self.ask_ack(word, reference, current, io);
        }
        Ok(())
    }

    fn ask_ack(
        &mut self,
        word: Value,
        reference: &Value,
        current: SmallVec<[(u32, u64, Vec<Offset>); 1]>,
        io: &mut Io<'_>,
    ) {
        let Some(topic) = self.route_topic().cloned() else { return };
        let Ok(group) = self.member().map(|member| member.group.clone()) else { return };
        let left = u32::try_from(current.len()).unwrap_or(u32::MAX);
        let mut first = None;
        let mut whole = Some(AskedAck { word, reference: reference.clone(), left, count: 0, refusal: None });
        for (partition, epoch, offsets) in current {
            let action = GroupAction::Ack { epoch: Some(epoch), offsets, by: None };
            let what = Request::Group { topic: topic.clone(), partition, group: group.clone(), action };
            let asked = match (first, whole.take()) {
                (Some(first), _) => Asked::AckPart(first),
                (None, Some(whole)) => Asked::Ack(Box::new(whole)),
                (None, None) => return,
            };
            let number = self.ask(asked, what, io);
            first.get_or_insert(number);
        }
    }

    pub(super) fn on_nack(&mut self, word: &Value, delay_ms: Option<&Value>, io: &mut Io<'_>) -> Result<(), Problem> {
        let delay_ms = delay_ms.map_or(Some(0), Value::as_u64).filter(|delay_ms| *delay_ms <= NACK_DELAY_MS_MAX);
        let delay_ms = delay_ms
            .ok_or_else(|| Problem::parameter(format!("delay_ms is a number from 0 to {NACK_DELAY_MS_MAX}")))?;
        let member = self.member()?;
        for (partition, offset) in member.messages(word)? {
            if let Some(epoch) = member.part_mut(partition).and_then(|part| part.held.remove(&offset)) {
                io.nack(partition, epoch, offset, delay_ms);
            }
        }
        Ok(())
    }

    pub(super) fn on_credit(&mut self, messages: &Value, io: &mut Io<'_>) -> Result<(), Problem> {
        let partitions = self.member()?.partitions();
        let messages = messages.as_u64().and_then(|messages| u32::try_from(messages).ok());
        match messages.filter(|messages| *messages <= MEMBER_IN_FLIGHT_MAX) {
            Some(messages) => {
                hold_at_most(messages, partitions, io);
                Ok(())
            }
            None => Err(Problem::parameter(format!("credit is a number from 0 to {MEMBER_IN_FLIGHT_MAX}"))),
        }
    }

    /// The group was made to seek: what is held from before does not count any more.
    pub(super) fn move_to(&mut self, partition: u32, epoch: u64, next: Offset, io: &mut Io<'_>) {
        let Ok(member) = self.member() else { return };
        if let Some(part) = member.part_mut(partition) {
            part.epoch = epoch;
        }
        let json = moved_json(member.named(partition), next);
        self.tell("moved", &json, io);
    }

    /// Retention took messages of the group: told at once, or with the next sign of life when the client takes nothing now.
    pub(super) fn lose(&mut self, partition: u32, messages: u64, resumed: Offset, io: &mut Io<'_>) {
        let Ok(member) = self.member() else { return };
        if let Some(part) = member.part_mut(partition) {
            part.held = part.held.split_off(&resumed);
        }
        let named = member.named(partition);
        member.losses.add(named, messages, resumed);
        self.tell_lost(io);
    }

    pub(super) fn tell_lost(&mut self, io: &mut Io<'_>) {
        if io.output_bytes() < SEND_QUEUE_BYTES_MAX
            && let Ok(member) = self.member()
        {
            member.losses.take().for_each(|json| self.tell("lost", &json, io));
        }
    }
}
