//! What streams tell besides messages, as both protocols write it: gaps, ends, losses, moves. On the connection's core.

use ringmain_driver::Requested;
use ringmain_model::{Offset, TopicName};
use serde_json::Value;

/// Of what a notice tells: a topic where a reader may have several, a partition where the topic has several.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Subject<'t> {
    pub(super) topic: Option<&'t TopicName>,
    pub(super) partition: Option<u32>,
}

impl Subject<'_> {
    /// The members of a JSON object that name it, each followed by a comma.
    fn json(self) -> String {
        let topic = self.topic.map(|topic| format!(r#""topic":{},"#, Value::from(topic.as_str()))).unwrap_or_default();
        let partition = self.partition.map(|partition| format!(r#""partition":{partition},"#)).unwrap_or_default();
        topic + &partition
    }
}

/// The subject of a notice about one of a topic's partitions, where its topic goes without saying.
pub(super) fn in_partition(partition: Option<u32>) -> Subject<'static> {
    Subject { topic: None, partition }
}

/// A gap.
pub(super) fn gap_json(subject: Subject<'_>, requested: Requested, resumed: Offset) -> String {
    let requested = match requested {
        Requested::Offset(offset) => offset.to_string(),
        Requested::Unreadable => "null".to_owned(),
    };
    format!(r#"{{{}"requested":{requested},"resumed":{resumed}}}"#, subject.json())
}

/// The end of a topic, or of all that is read.
pub(super) fn end_json(subject: Subject<'_>, reason: &str) -> String {
    format!(r#"{{{}"reason":"{reason}"}}"#, subject.json())
}

/// Where a group goes on after a seek.
pub(super) fn moved_json(partition: Option<u32>, next: Offset) -> String {
    format!(r#"{{{}"next":{next}}}"#, in_partition(partition).json())
}

/// What retention took of a group.
fn lost_json(partition: Option<u32>, messages: u64, resumed: Offset) -> String {
    format!(r#"{{{}"messages":{messages},"resumed":{resumed}}}"#, in_partition(partition).json())
}

/// What retention took and a member has not been told, because it takes nothing now: a sum for each partition, at most.
#[derive(Debug, Default)]
pub(super) struct Losses(Vec<(Option<u32>, u64, Offset)>);

impl Losses {
    /// More was taken, and the group goes on at `resumed`. The partition is named when there are several.
    pub(super) fn add(&mut self, partition: Option<u32>, messages: u64, resumed: Offset) {
        match self.0.iter_mut().find(|(of, ..)| *of == partition) {
            Some((_, sum, at)) => (*sum, *at) = (*sum + messages, resumed),
            None => self.0.push((partition, messages, resumed)),
        }
    }

    /// All of it as JSON, to be told now.
    pub(super) fn take(&mut self) -> impl Iterator<Item = String> + use<> {
        let all = std::mem::take(&mut self.0).into_iter();
        all.map(|(partition, messages, resumed)| lost_json(partition, messages, resumed))
    }
}
