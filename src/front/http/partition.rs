//! Which partition of a topic a request means, and what it is told that names none or a wrong one. On the core of the connection.

use ringmain_driver::TopicPlace;

use super::problem::Problem;

/// The partition that a request names, if it names one. A topic that this core does not know passes: the answer is that it is not
/// there.
pub(super) fn named(number: Option<u64>, place: Option<TopicPlace>) -> Result<Option<u32>, Problem> {
    let (Some(number), Some(place)) = (number, place) else { return Ok(number.map(|_| 0)) };
    match u32::try_from(number).ok().filter(|number| *number < place.partitions) {
        Some(number) => Ok(Some(number)),
        None => Err(Problem::parameter(format!(
            "there is no partition {number}: the topic has {}, so choose {}",
            place.partitions,
            choice(place.partitions)
        ))),
    }
}

/// The partition that a request names, or the only one. `cure` says how to name one, and perhaps what else to do.
pub(super) fn named_or_only(number: Option<u64>, place: Option<TopicPlace>, cure: &str) -> Result<u32, Problem> {
    match (named(number, place)?, place) {
        (Some(number), _) => Ok(number),
        (None, Some(place)) if place.partitions > 1 => Err(Problem::parameter(format!(
            "the topic has {} partitions, each with offsets of its own: {cure}, from {}",
            place.partitions,
            choice(place.partitions)
        ))),
        (None, _) => Ok(0),
    }
}

fn choice(partitions: u32) -> String {
    match partitions {
        1 => "0".to_owned(),
        count => format!("0 to {}", count - 1),
    }
}
