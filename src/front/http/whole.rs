//! Topics and groups as all their partitions together make them, from what each partition says of itself. On any core.

use ringmain_driver::CoreReport;
use ringmain_engine::{GroupStats, TopicStats};
use ringmain_model::GroupName;
use smallvec::SmallVec;

/// A topic: how its partitions stand, by number, the first one among them.
#[derive(Debug)]
pub(super) struct WholeTopic<'s>(SmallVec<[&'s TopicStats; 1]>);

impl<'s> WholeTopic<'s> {
    /// Makes one of its partitions, which are in order. `None` when the first is not among them: then the topic is just coming
    /// or going.
    pub(super) fn of(parts: impl IntoIterator<Item = &'s TopicStats>) -> Option<Self> {
        let parts: SmallVec<[&TopicStats; 1]> = parts.into_iter().collect();
        parts.first().is_some_and(|first| first.partition.partition == 0).then_some(Self(parts))
    }

    /// The topics of all cores, by name.
    pub(super) fn list(reports: &'s [CoreReport]) -> Vec<Self> {
        let mut stats: Vec<_> = reports.iter().flat_map(|report| &report.topics).collect();
        stats.sort_unstable_by(|one, other| (&one.name, one.partition).cmp(&(&other.name, other.partition)));
        let of_one = |one: &&TopicStats, other: &&TopicStats| {
            one.name == other.name && one.partition.incarnation == other.partition.incarnation
        };
        stats.chunk_by(of_one).filter_map(|parts| Self::of(parts.iter().copied())).collect()
    }

    /// What is the same in all partitions stands here.
    pub(super) fn first(&self) -> &'s TopicStats {
        self.0[0]
    }

    pub(super) fn parts(&self) -> &[&'s TopicStats] {
        &self.0
    }

    pub(super) fn sum(&self, read: impl Fn(&TopicStats) -> u64) -> u64 {
        self.0.iter().map(|part| read(part)).sum()
    }

    /// Subscribers. Each counts in one partition, whichever it reads.
    pub(super) fn subscribers(&self) -> u64 {
        self.sum(|part| part.subscribers)
    }

    /// The lowest offset kept in a partition.
    pub(super) fn earliest(&self) -> u64 {
        self.0.iter().map(|part| part.log_start.offset().0).min().unwrap_or_default()
    }

    /// The highest end of a partition.
    pub(super) fn end(&self) -> u64 {
        self.0.iter().map(|part| part.high_water.offset().0).max().unwrap_or_default()
    }

    /// Its groups, by name.
    pub(super) fn groups(&self) -> Vec<WholeGroup<'s>> {
        let of_part = |part: &&'s TopicStats| {
            let number = part.partition.partition;
            part.groups.iter().map(move |group| (number, group))
        };
        WholeGroup::list(self.0.iter().flat_map(of_part))
    }

    pub(super) fn group_count(&self) -> usize {
        if let [only] = self.parts() { only.groups.len() } else { self.groups().len() }
    }
}

/// A group: how it stands in each partition that knows it, by number; at least one does.
#[derive(Debug)]
pub(super) struct WholeGroup<'s>(SmallVec<[(u32, &'s GroupStats); 1]>);

impl<'s> WholeGroup<'s> {
    /// The groups of partitions, by name.
    pub(super) fn list(stats: impl IntoIterator<Item = (u32, &'s GroupStats)>) -> Vec<Self> {
        let mut stats: Vec<_> = stats.into_iter().collect();
        stats.sort_unstable_by(|one, other| (&one.1.name, one.0).cmp(&(&other.1.name, other.0)));
        stats.chunk_by(|one, other| one.1.name == other.1.name).map(|parts| Self(parts.into())).collect()
    }

    pub(super) fn name(&self) -> &'s GroupName {
        &self.0[0].1.name
    }

    pub(super) fn parts(&self) -> &[(u32, &'s GroupStats)] {
        &self.0
    }

    fn each(&self) -> impl Iterator<Item = &'s GroupStats> {
        self.0.iter().map(|(_, part)| *part)
    }

    pub(super) fn sum(&self, read: impl Fn(&GroupStats) -> u64) -> u64 {
        self.each().map(read).sum()
    }

    /// A member joins in every partition, and counts once.
    pub(super) fn members(&self) -> u64 {
        self.each().map(|part| part.members).max().unwrap_or_default()
    }

    /// The lowest committed offset, the highest offset to give out next, and the newest epoch, of any partition.
    pub(super) fn bounds(&self) -> (u64, u64, u64) {
        let committed = self.each().map(|part| part.committed.0).min().unwrap_or_default();
        let next = self.each().map(|part| part.next.0).max().unwrap_or_default();
        (committed, next, self.each().map(|part| part.epoch).max().unwrap_or_default())
    }
}
