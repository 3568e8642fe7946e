//! A core's memberships in consumer groups: what a connection has done is told to the owner once a turn, and never lost.
//!
//! A membership is to a group what a cursor is to a partition. What it has to tell (acknowledgements, sent messages, that
//! it leaves) waits here while the lane is full: it is bounded, as a connection that said much is not read from until it is told.

use ringmain_engine::{Assignment, Command, GroupStart, MemberNews, Nack, Origin, Progress, Reply};
use ringmain_model::limit::{MEMBER_IN_FLIGHT_MAX, MEMBER_WORDS_MAX};
use ringmain_model::{GroupName, Incarnation, Offset, PartitionRef, Refusal, ShardId, TopicName};
use slotmap::Key;

use crate::connection::{Carried, ConnectionKey};
use crate::core::State;
use crate::front::Front;
use crate::request::{End, Join, Notice, Protocol};
use crate::route::MEMBERSHIP_BIT;

slotmap::new_key_type! {
    /// Names a membership for as long as it is there.
    pub(crate) struct MembershipKey;
}

/// A connection's part in a group.
#[derive(Debug)]
pub(crate) struct Membership {
    connection: ConnectionKey,
    partition: PartitionRef,
    pub(crate) topic: TopicName,
    shard: ShardId,
    group: GroupName,
    pub(crate) protocol: Protocol,
    /// What the owner has not been told.
    progress: Progress,
    /// Messages that the connection took and that the placement table has not been told of.
    pub(crate) delivered: u64,
    /// The connection has gone; the owner must hear it.
    is_leaving: bool,
    is_listed: bool,
    /// The owner has not been asked yet: its lane was full.
    unasked: Option<Box<Command>>,
}

impl Membership {
    /// Whether it is that in the topic's first partition.
    pub(crate) fn is_in_first(&self) -> bool {
        self.partition.partition == 0
    }

    /// The life of its topic.
    pub(crate) fn incarnation(&self) -> Incarnation {
        self.partition.incarnation
    }
}

impl<F: Front> State<F> {
    pub(crate) fn membership_origin(&self, key: MembershipKey) -> Origin {
        Origin { core: self.settings.own, asker: key.data().as_ffi(), request: MEMBERSHIP_BIT }
    }

    pub(crate) fn join(&mut self, connection: ConnectionKey, join: Join) {
        let Join { topic, partition: number, group, start, in_flight_max, protocol, acks_by_sending, is_ordered } =
            join;
        let Some(placed) = self.placement.find(&topic) else {
            let refusal = Refusal::topic_not_found(topic.as_str());
            return self.notice(connection, number, Notice::Refused(refusal));
        };
        let shard = placed.shard.of_partition(number, self.settings.shards);
        let partition = match placed.partition(number) {
            Ok(partition) => partition,
            Err(refusal) => return self.notice(connection, number, Notice::Refused(refusal)),
        };
        let key = self.memberships.insert(Membership {
            connection,
            partition,
            topic,
            shard,
            group: group.clone(),
            protocol,
            progress: Progress::default(),
            delivered: 0,
            is_leaving: false,
            is_listed: false,
            unasked: None,
        });
        let command = Command::Join {
            partition,
            group,
            start: start.map_or(GroupStart::Tail, GroupStart::Offset),
            in_flight_max: in_flight_max.min(MEMBER_IN_FLIGHT_MAX),
            acks_by_sending,
            is_ordered,
            identity: connection.asker(),
        };
        if let Some(connection) = self.connections.get_mut(connection) {
            connection.link.memberships.push(key);
        }
        if self.lane_has_room(shard) {
            // There was room, and nobody else asks in between.
            let _ = self.send(shard, self.membership_origin(key), command);
            return;
        }
        // A connection joins in many partitions at once: it is asked when answers make room, as leaves are told.
        self.counters.lane_busy += 1;
        if let Some(membership) = self.memberships.get_mut(key) {
            membership.unasked = Some(Box::new(command));
            self.list_membership(key);
        }
    }

    /// Asks for a membership that found a full lane; says whether there is no more to ask.
    fn ask_at_last(&mut self, key: MembershipKey) -> bool {
        let Some(membership) = self.memberships.get_mut(key) else { return true };
        let Some(command) = membership.unasked.take() else { return true };
        let shard = membership.shard;
        if membership.is_leaving {
            // It never came.
            self.forget_membership(key);
            return false;
        }
        if self.lane_has_room(shard) {
            let _ = self.send(shard, self.membership_origin(key), *command);
            return true;
        }
        if let Some(membership) = self.memberships.get_mut(key) {
            membership.unasked = Some(command);
        }
        self.list_membership(key);
        false
    }

    fn notice(&mut self, connection: ConnectionKey, partition: u32, notice: Notice) {
        self.call(connection, |front, session, io| front.on_notice(session, partition, notice, io));
    }

    /// A connection's membership in one partition. Sessions join in the order of the partitions, so it is looked for there first.
    pub(crate) fn membership_of(&mut self, connection: ConnectionKey, partition: u32) -> Option<MembershipKey> {
        let keys = &self.connections.get_mut(connection)?.link.memberships;
        let is_it = |key: &MembershipKey| {
            self.memberships.get(*key).is_some_and(|membership| membership.partition.partition == partition)
        };
        let at_its_place = keys.get(partition as usize).copied().filter(is_it);
        at_its_place.or_else(|| keys.iter().copied().find(is_it))
    }

    /// The owner has answered a join, or noted what it was told.
    pub(crate) fn take_membership_reply(&mut self, key: MembershipKey, reply: Reply) {
        let Some(membership) = self.memberships.get(key) else { return };
        let (connection, partition, is_leaving) = (membership.connection, membership.partition, membership.is_leaving);
        match reply {
            // Its session does not wait for it any more.
            Reply::Joined { .. } if is_leaving => {}
            Reply::Joined { epoch, high_water } => {
                self.notice(connection, partition.partition, Notice::Joined { partition, epoch, high_water });
            }
            Reply::Refused(refusal) => {
                // The owner does not know this member (any more): there is nothing to leave.
                self.forget_membership(key);
                if !is_leaving {
                    self.notice(connection, partition.partition, Notice::Refused(refusal));
                }
            }
            _ => {}
        }
    }

    pub(crate) fn take_assignment(&mut self, key: MembershipKey, assignment: &Assignment) {
        // A member that left meanwhile: the owner hears it and gives the messages to others.
        let Some(membership) = self.memberships.get(key).filter(|membership| !membership.is_leaving) else { return };
        let (connection, topic) = (membership.connection, membership.topic.clone());
        self.call(connection, |front, session, io| front.on_assigned(session, &topic, assignment, io));
    }

    pub(crate) fn take_news(&mut self, key: MembershipKey, news: MemberNews) {
        let Some(membership) = self.memberships.get(key) else { return };
        let (connection, partition) = (membership.connection, membership.partition.partition);
        let is_leaving = membership.is_leaving;
        let notice = match news {
            MemberNews::Lost { messages, resumed } => Notice::Lost { messages, resumed },
            MemberNews::Moved { epoch, next } => Notice::Moved { epoch, next },
            MemberNews::GroupDeleted => {
                self.forget_membership(key);
                Notice::Ended(End::GroupDeleted)
            }
        };
        if !is_leaving {
            self.notice(connection, partition, notice);
        }
    }

    /// Notes what a connection says of messages that it got of one partition.
    pub(crate) fn note_progress(
        &mut self,
        connection: ConnectionKey,
        partition: u32,
        note: impl FnOnce(&mut Progress),
    ) {
        let Some(key) = self.membership_of(connection, partition) else { return };
        let Some(membership) = self.memberships.get_mut(key) else { return };
        note(&mut membership.progress);
        let words_wait = membership.progress.acks.len() + membership.progress.nacks.len() >= MEMBER_WORDS_MAX;
        self.list_membership(key);
        if let Some(link) = self.connections.get_mut(connection).map(|connection| &mut connection.link) {
            link.words_wait |= words_wait;
        }
    }

    /// The connection's output took messages of the group.
    pub(crate) fn note_sent(&mut self, connection: ConnectionKey, carried: Carried) {
        let Some(key) = self.membership_of(connection, carried.subscription) else { return };
        if let Some(membership) = self.memberships.get_mut(key) {
            membership.progress.sent += carried.messages;
            membership.delivered += u64::from(carried.messages);
            self.counters.delivered[membership.protocol.index()] += u64::from(carried.messages);
            self.list_membership(key);
        }
    }

    fn list_membership(&mut self, key: MembershipKey) {
        if let Some(membership) = self.memberships.get_mut(key)
            && !std::mem::replace(&mut membership.is_listed, true)
        {
            self.memberships_listed.push(key);
        }
    }

    /// A connection ends its part in all partitions: their owners are told when there is room.
    pub(crate) fn leave_group(&mut self, connection: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(connection) else { return };
        for key in std::mem::take(&mut connection.link.memberships) {
            if let Some(membership) = self.memberships.get_mut(key) {
                membership.is_leaving = true;
                self.list_membership(key);
            }
        }
    }

    /// Tells owners what members have done, once a turn. What a full lane refuses is told in a later one: the replies that
    /// make room wake this core.
    pub(crate) fn tell_progress(&mut self) {
        for key in std::mem::take(&mut self.memberships_listed) {
            if let Some(membership) = self.memberships.get_mut(key) {
                membership.is_listed = false;
                self.tell_progress_of(key);
            }
        }
    }

    /// Tells what a connection's member has done before its next question goes out, so that both take effect in order.
    pub(crate) fn tell_before_asking(&mut self, connection: ConnectionKey) {
        let keys = self.connections.get_mut(connection).map(|connection| connection.link.memberships.clone());
        for key in keys.unwrap_or_default() {
            self.tell_progress_of(key);
        }
    }

    fn tell_progress_of(&mut self, key: MembershipKey) {
        if !self.ask_at_last(key) {
            return;
        }
        let Some(membership) = self.memberships.get_mut(key) else { return };
        let (partition, group) = (membership.partition, membership.group.clone());
        let progress = std::mem::take(&mut membership.progress);
        let (shard, is_leaving) = (membership.shard, membership.is_leaving);
        self.settle_delivered(key);
        let origin = self.membership_origin(key);
        let mut told = progress == Progress::default();
        if !told && self.lane_has_room(shard) {
            let command = Command::Progress { partition, group: group.clone(), progress };
            // There was room, and nobody else asks in between.
            let _ = self.send(shard, origin, command);
            told = true;
            self.words_were_told(key);
        } else if let Some(membership) = self.memberships.get_mut(key) {
            membership.progress = progress;
        }
        if told && is_leaving && self.lane_has_room(shard) {
            let _ = self.send(shard, origin, Command::Leave { partition, group });
            self.forget_membership(key);
        } else if !told || is_leaving {
            self.list_membership(key);
        }
    }

    /// What a membership had to say is told, or nobody hears it any more: its connection is read from again. If another of its memberships still has much to tell, its next word says so.
    fn words_were_told(&mut self, key: MembershipKey) {
        let Some(connection) = self.memberships.get(key).map(|membership| membership.connection) else { return };
        let link = self.connections.get_mut(connection).map(|connection| &mut connection.link);
        if link.is_some_and(|link| std::mem::replace(&mut link.words_wait, false)) {
            self.mark_dirty(connection);
        }
    }

    fn lane_has_room(&self, shard: ShardId) -> bool {
        self.lanes.has_room(shard.core(self.settings.cores))
    }

    fn settle_delivered(&mut self, key: MembershipKey) {
        let Some(membership) = self.memberships.get_mut(key) else { return };
        let delivered = membership.protocol.counts(std::mem::take(&mut membership.delivered));
        let (topic, incarnation) = (membership.topic.clone(), membership.partition.incarnation);
        self.placement.add_counts(&topic, incarnation, delivered, 0);
    }

    /// Takes a membership out without a word to the owner.
    fn forget_membership(&mut self, key: MembershipKey) {
        self.settle_delivered(key);
        self.words_were_told(key);
        let Some(membership) = self.memberships.remove(key) else { return };
        if let Some(connection) = self.connections.get_mut(membership.connection) {
            connection.link.memberships.retain(|other| *other != key);
        }
    }

    /// The topic is gone: its members are told.
    pub(crate) fn end_memberships(&mut self, incarnation: Incarnation) {
        let of_topic =
            self.memberships.iter().filter(|(_, membership)| membership.partition.incarnation == incarnation);
        for key in of_topic.map(|(key, _)| key).collect::<Vec<_>>() {
            // Sessions that are told may leave in other partitions.
            let Some(membership) = self.memberships.get(key) else { continue };
            let (connection, partition) = (membership.connection, membership.partition.partition);
            let is_leaving = membership.is_leaving;
            self.forget_membership(key);
            if !is_leaving {
                self.notice(connection, partition, Notice::Ended(End::TopicDeleted));
            }
        }
    }
}

/// What a session may say of the messages that its group gave it.
#[derive(Debug)]
pub(crate) enum MemberWord {
    Ack { epoch: u64, offset: Offset },
    Nack(Nack),
    InFlightMax(u32),
}

impl MemberWord {
    pub(crate) fn note(self, progress: &mut Progress) {
        match self {
            MemberWord::Ack { epoch, offset } => progress.acks.push((epoch, offset)),
            MemberWord::Nack(nack) => progress.nacks.push(nack),
            MemberWord::InFlightMax(messages) => progress.in_flight_max = Some(messages),
        }
    }
}
