//! What a worker without a stream acknowledges or gives back: offsets of a partition, or ids of messages. On the core of the connection.

use ringmain_driver::TopicPlace;
use ringmain_model::limit::ACK_OFFSETS_MAX;
use ringmain_model::{Incarnation, Offset, TopicName};
use serde::Deserialize;
use serde_json::Value;

use super::group_requests::read;
use super::partition::named_or_only;
use super::problem::Problem;
use super::ws::offsets;

#[derive(Deserialize)]
struct AckBody {
    offset: Option<Value>,
    offsets: Option<Value>,
    id: Option<Value>,
    ids: Option<Value>,
    partition: Option<u64>,
    epoch: Option<u64>,
    delay_ms: Option<u64>,
}

/// What a body names.
#[derive(Debug)]
pub(super) struct Acks {
    /// By partition, each one once; at least one.
    pub(super) offsets: Vec<(u32, Vec<Offset>)>,
    /// The epoch in which all of them were got.
    pub(super) epoch: Option<u64>,
    /// How long what is given back waits, milliseconds; unchecked.
    pub(super) delay_ms: u64,
}

impl Acks {
    /// Reads a body for a topic at `place`; `None` for one that is not there, which is told by its first partition.
    pub(super) fn read(body: &[u8], topic: &TopicName, place: Option<TopicPlace>) -> Result<Self, Problem> {
        let body: AckBody = read(body, r#"{"offsets":[7,9]} or {"ids":["…"]}"#)?;
        let by_partition = match (body.offsets.or(body.offset), body.ids.or(body.id)) {
            (Some(word), None) => {
                let offsets = offsets(&word)?;
                let cure = r#"name the messages by "ids", or say whose offsets these are with "partition""#;
                vec![(named_or_only(body.partition, place, cure)?, offsets)]
            }
            (None, Some(word)) => {
                let ids = ids(&word)?;
                match place {
                    Some(place) => offsets_of(&ids, topic, place)?,
                    None => vec![(0, Vec::new())],
                }
            }
            (None, None) => {
                return Err(Problem::new(400, "invalid_body", r#"the body names no offsets: send {"offsets":[7,9]}"#));
            }
            (Some(_), Some(_)) => {
                return Err(Problem::parameter("the body has offsets and ids: send one of them"));
            }
        };
        if body.epoch.is_some() && by_partition.len() > 1 {
            return Err(Problem::parameter(
                "the ids are of several partitions, and an epoch is of one: send those of each partition apart, or leave epoch out",
            ));
        }
        Ok(Self { offsets: by_partition, epoch: body.epoch, delay_ms: body.delay_ms.unwrap_or(0) })
    }
}

/// The ids of `"a"` or `["a","b"]`.
fn ids(word: &Value) -> Result<Vec<&str>, Problem> {
    let list = match word {
        Value::Array(list) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    if list.len() > ACK_OFFSETS_MAX {
        return Err(Problem::parameter(format!("at most {ACK_OFFSETS_MAX} ids at a time")));
    }
    let ids: Option<Vec<_>> = list.iter().map(Value::as_str).collect();
    ids.ok_or_else(|| Problem::parameter("an id is a text, several are an array of texts"))
}

/// The offsets that ids name, by partition.
fn offsets_of(ids: &[&str], topic: &TopicName, place: TopicPlace) -> Result<Vec<(u32, Vec<Offset>)>, Problem> {
    let mut by_partition = vec![Vec::new(); place.partitions as usize];
    for id in ids {
        let shown = || id.chars().take(80).collect::<String>();
        let (incarnation, partition, offset) = parts_of_id(id).ok_or_else(|| {
            Problem::parameter(format!("{:?} is no id of a message: send ids as they came with the messages", shown()))
        })?;
        if incarnation != place.incarnation {
            return Err(Problem::parameter(format!(
                "the message {:?} is of another topic than {topic}, or of an earlier life of it: nothing is acknowledged; leave it out",
                shown()
            )));
        }
        let of_partition = usize::try_from(partition).ok().and_then(|partition| by_partition.get_mut(partition));
        let of_partition = of_partition.ok_or_else(|| {
            Problem::parameter(format!("{:?} is of no partition: the topic has {}", shown(), place.partitions))
        })?;
        of_partition.push(offset);
    }
    let named = (0..).zip(by_partition).filter(|(_, offsets)| !offsets.is_empty());
    let named: Vec<_> = named.collect();
    Ok(if named.is_empty() { vec![(0, Vec::new())] } else { named })
}

/// The parts of a message's id, `<incarnation>-<partition>-<offset>`.
pub(super) fn parts_of_id(id: &str) -> Option<(Incarnation, u32, Offset)> {
    let (rest, offset) = id.rsplit_once('-')?;
    let (incarnation, partition) = rest.split_once('-')?;
    let is_hexadecimal = incarnation.len() == 16 && incarnation.bytes().all(|byte| byte.is_ascii_hexdigit());
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_hexadecimal || !are_digits(partition) || !are_digits(offset) {
        return None;
    }
    let incarnation = Incarnation(u64::from_str_radix(incarnation, 16).ok()?);
    Some((incarnation, partition.parse().ok()?, Offset(offset.parse().ok()?)))
}
