//! Which partition of its topic a message goes to, and a batch's messages divided among partitions. On the core of the connection.

use ringmain_driver::{AnswerWhen, Request};
use ringmain_model::{Message, PartitionRef, TopicName};
use smallvec::{SmallVec, smallvec};

use super::problem::Problem;

/// What a publish says of partitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Placing {
    /// How many the topic has.
    pub(super) partitions: u32,
    /// The one that the request names.
    pub(super) named: Option<u32>,
    /// A batch may be stored in part: each partition takes its messages, or none of them.
    pub(super) is_divided: bool,
}

/// What is asked of the broker, by partition.
pub(super) type Questions = SmallVec<[(u32, Request); 1]>;

impl Placing {
    /// Whether answers tell partitions.
    pub(super) fn has_several(self) -> bool {
        self.partitions > 1
    }

    /// The partition of a message: the one that the request names, that of its key, or of its id; else any, which is the next in turn.
    fn number_of(self, message: &Message) -> Option<u32> {
        self.named.or_else(|| PartitionRef::number_of(message, self.partitions))
    }

    /// The question that stores one message.
    pub(super) fn place(self, name: TopicName, message: Message, answer: AnswerWhen, turn: &mut u32) -> (u32, Request) {
        let partition = self.number_of(&message).unwrap_or_else(|| self.next(turn));
        (partition, Request::Publish { name, partition, message, answer })
    }

    /// The questions that store a batch: one, unless it may be stored in part. Messages that may go anywhere stay together.
    pub(super) fn place_all(
        self,
        name: &TopicName,
        messages: Vec<Message>,
        answer: AnswerWhen,
        turn: &mut u32,
    ) -> Result<Questions, Problem> {
        let ask = |(partition, messages)| {
            (partition, Request::PublishAll { name: name.clone(), partition, messages, answer })
        };
        if self.partitions == 1 {
            return Ok(smallvec![ask((0, messages))]);
        }
        let mut parts: Vec<(u32, Vec<Message>)> = Vec::new();
        let first = messages.iter().find_map(|message| self.number_of(message));
        let any = first.unwrap_or_else(|| self.next(turn));
        for (at, message) in (1..).zip(messages) {
            let partition = self.number_of(&message).unwrap_or(any);
            let first = parts.first().map(|(first, _)| *first);
            match (parts.iter_mut().find(|(number, _)| *number == partition), first) {
                (Some((_, part)), _) => part.push(message),
                (None, Some(first)) if !self.is_divided => return Err(spans(first, at, partition)),
                (None, _) => parts.push((partition, vec![message])),
            }
        }
        Ok(parts.into_iter().map(ask).collect())
    }

    fn next(self, turn: &mut u32) -> u32 {
        *turn = turn.wrapping_add(1);
        *turn % self.partitions
    }
}

fn spans(first: u32, at: u64, partition: u32) -> Problem {
    let problem = Problem::parameter(format!(
        "the keys of this batch go to several partitions: its first messages to {first}, message {at} to {partition}; divide it by \
         key, or send it with atomic=false: then each partition takes its messages, or none of them"
    ));
    problem.and("nothing of the batch was stored")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn message(key: Option<u32>) -> Message {
        Message { key: key.map(|key| format!("k{key}").into()), ..Message::of("m") }
    }

    fn parts(placing: Placing, keys: &[Option<u32>]) -> Result<Vec<(u32, usize)>, Problem> {
        let messages = keys.iter().map(|key| message(*key)).collect();
        let name = TopicName::new("t").unwrap();
        let questions = placing.place_all(&name, messages, AnswerWhen::Durable, &mut 0)?;
        let count = |request| if let Request::PublishAll { messages, .. } = request { messages.len() } else { 0 };
        Ok(questions.into_iter().map(|(partition, request)| (partition, count(request))).collect())
    }

    #[test]
    fn a_batch_stays_together_unless_it_may_be_divided() {
        let placing = Placing { partitions: 8, named: None, is_divided: false };
        let of = |key: u32| PartitionRef::number_of_key(format!("k{key}").as_bytes(), 8);
        let other = (1..).find(|key| of(*key) != of(0)).unwrap();
        assert_eq!(parts(placing, &[None, Some(0), None, Some(0)]).unwrap(), [(of(0), 4)]);
        assert!(parts(placing, &[Some(0), Some(other)]).unwrap_err().message.contains("atomic=false"));
        let divided = Placing { is_divided: true, ..placing };
        assert_eq!(parts(divided, &[Some(0), Some(other), None]).unwrap(), [(of(0), 2), (of(other), 1)]);
        let named = Placing { named: Some(5), ..placing };
        assert_eq!(parts(named, &[Some(0), Some(other), None]).unwrap(), [(5, 3)]);
    }

    #[test]
    fn messages_that_may_go_anywhere_go_round() {
        let placing = Placing { partitions: 3, named: None, is_divided: false };
        let mut turn = 0;
        let mut next =
            || placing.place_all(&TopicName::new("t").unwrap(), vec![message(None)], AnswerWhen::Durable, &mut turn);
        let numbers: Vec<_> = (0..6).map(|_| next().unwrap()[0].0).collect();
        assert_eq!(numbers, [1, 2, 0, 1, 2, 0]);
    }
}
