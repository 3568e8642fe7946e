//! What a shard wants done: answers go to the model, files to the disk, placement to the cores.

use ringmain_engine::{Assignment, Effect, MemberNews, Origin, Page, Reply, StorageNews};
use ringmain_model::{GroupName, Offset, Refusal, RefusalKind};

use super::commands::refusal_text;
use super::files::{InFlight, describe};
use super::group_commands::PULLED_MAX;
use super::orders::{Errand, ORDERING};
use super::{Asked, CORES, Got, World};
use crate::model::{Check, Standing, key_of};

fn describe_reply(reply: &Reply) -> String {
    match reply {
        Reply::Page(Page { from, batches, log_start, high_water, .. }) => {
            let ends: Vec<_> = batches.iter().map(|batch| (batch.base().0, batch.end().0)).collect();
            format!("page from {from} {ends:?}, start {}, end {}", log_start.offset(), high_water.offset())
        }
        Reply::Pulled { epoch, assignments, .. } => {
            let given: Vec<_> = assignments.iter().map(describe_given).collect();
            format!("pulled in epoch {epoch} {given:?}")
        }
        Reply::Refused(refusal) => refusal_text(refusal),
        Reply::Listed(listed) => format!("{} topics", listed.len()),
        other => format!("{other:?}"),
    }
}

fn describe_given(assignment: &Assignment) -> Vec<u64> {
    assignment.records.iter().map(|record| record.offset.0).collect()
}

impl World {
    /// Carries out effects in their order.
    pub(super) fn take(&mut self, node: usize, effects: Vec<Effect>) -> Check {
        for effect in effects {
            match effect {
                Effect::DeadLetter { letter, to, message } => self.letter_left(letter, to, message)?,
                Effect::Reply { to, reply } => self.replied(to, reply)?,
                Effect::Order { order, shard, what } => {
                    if usize::from(shard.0) >= self.nodes.len() {
                        return Err(format!("{node} orders something of {shard:?}"));
                    }
                    self.errands.push(Errand::Leaves { from: node, order, to: shard, what });
                }
                Effect::Push { core, batch } => {
                    self.trace.note(format!("push to {} {}..{}", core.0, batch.base(), batch.end()));
                    self.model.see_push(core.0, &batch)?;
                }
                Effect::Assign { to, assignment } => self.assigned(to, &assignment)?,
                Effect::Tell { to, news } => {
                    self.trace.note(format!("tell {}: {news:?}", to.asker));
                    if news == MemberNews::GroupDeleted {
                        self.members.retain(|member| member.origin != to);
                    }
                }
                Effect::Place { change, placement } => {
                    self.trace.note(format!("place {change} of {node}: {placement:?}"));
                    self.nodes[node].placings.extend((0..CORES).map(|_| change));
                }
                Effect::StorageNews(news) => self.told(&news)?,
                Effect::File { operation, effect } => {
                    self.trace.note(format!("do {node}/{}: {}", operation.0, describe(&effect)));
                    let in_flight = &mut self.nodes[node].in_flight;
                    if in_flight.iter().any(|other| other.operation == operation) {
                        return Err(format!("operation {} is used twice", operation.0));
                    }
                    in_flight.push(InFlight { operation, effect, completion: None });
                }
            }
        }
        Ok(())
    }

    /// The operator is told something: for a reason.
    fn told(&mut self, news: &StorageNews) -> Check {
        self.trace.note(format!("news: {news:?}"));
        match news {
            StorageNews::Unreadable { file, from, end, .. } if self.has_failed => {
                self.model.life(key_of(file.partition))?.unreadable.push((from.0, end.0));
                Ok(())
            }
            StorageNews::SegmentGivenUp { .. } if self.has_failed => {
                self.sums.given_up += 1;
                Ok(())
            }
            StorageNews::Poisoned(_) | StorageNews::ReadFailed { .. } if self.has_failed => Ok(()),
            StorageNews::Full(_) | StorageNews::CheckpointFailed(_) if self.has_failed || self.has_been_full => Ok(()),
            // It has none, for the rest of its life.
            StorageNews::IndexDamaged { .. } if self.sums.given_up > 0 => Ok(()),
            StorageNews::Room => Ok(()),
            news => Err(format!("told without a reason: {news:?}")),
        }
    }

    fn assigned(&mut self, to: Origin, assignment: &Assignment) -> Check {
        let given = describe_given(assignment);
        self.trace.note(format!("assign to {} in epoch {} {given:?}", to.asker, assignment.epoch));
        // A member that has left may still be sent what was given to it before.
        let Some(member) = self.members.iter_mut().find(|member| member.origin == to) else {
            return Err(format!("messages for {}, who is no member", to.asker));
        };
        member.got.extend(given.iter().map(|offset| (assignment.epoch, *offset)));
        let group = member.group.clone();
        self.sums.given += given.len() as u64;
        self.model.see_given(&group, assignment, 0)
    }

    fn replied(&mut self, to: Origin, reply: Reply) -> Check {
        if to.asker == ORDERING {
            return self.order_replied(to.request, reply);
        }
        if to.asker != 0 {
            return self.member_replied(to, &reply);
        }
        self.trace.note(format!("reply {}: {}", to.request, describe_reply(&reply)));
        let asked = self.asked.remove(&to.request);
        let asked = asked.ok_or_else(|| format!("request {} is answered, and nobody waits for it", to.request))?;
        self.last_is_refused = matches!(reply, Reply::Refused(_));
        match (asked, reply) {
            (asked, Reply::Refused(refusal)) => self.refused(to.request, asked, &refusal),
            (Asked::Create { life }, Reply::Created(stats)) => {
                // The stats are those of the birth, and the news may be late.
                self.model.all_of(life, |life| life.creation = Standing::Sure);
                let of_life = self.model.life(life)?;
                let is_config = of_life.configs.contains(&stats.config);
                let is_right = stats.name == of_life.name && is_config && stats.partitions == of_life.partitions;
                if is_right { Ok(()) } else { Err(format!("another topic was made than was asked for: {stats:?}")) }
            }
            (Asked::Delete { life, .. }, Reply::Deleted) => {
                let life = life.ok_or("a topic that nobody made was deleted")?;
                self.model.all_of(life, |life| life.deletion = Standing::Sure);
                Ok(())
            }
            (asked, reply @ (Reply::Published { .. } | Reply::PublishedAll { .. })) => {
                self.publish_replied(asked, &reply)
            }
            (Asked::Change { life }, Reply::Stats(stats)) => {
                self.sums.changes += 1;
                for life in self.model.siblings(life) {
                    self.model.life(life)?.changed(&stats.config)?;
                }
                self.model.see_stats(&stats, 0)
            }
            (Asked::Read { life, from, visible_end, .. }, Reply::Page(page)) => {
                self.paged(life, from, visible_end, page)
            }
            (Asked::Stat { life, visible_end }, Reply::Stats(stats)) => {
                if key_of(stats.partition) != life {
                    return Err(format!("{life:x} was asked for and {} answered", stats.partition));
                }
                self.model.see_stats(&stats, visible_end)?;
                self.last_stats = Some(*stats);
                Ok(())
            }
            (Asked::List, Reply::Listed(listed)) => listed.iter().try_for_each(|stats| self.model.see_stats(stats, 0)),
            (Asked::Interest { life, core, wanted }, Reply::Interested { high_water, .. }) => {
                self.interested(life, core, wanted.then_some(high_water.offset()))
            }
            (Asked::Groups { .. }, Reply::Groups(_)) | (Asked::Nack, Reply::Acknowledged(_)) => Ok(()),
            (asked, reply) => self.group_replied(to.request, asked, reply),
        }
    }

    fn publish_replied(&mut self, asked: Asked, reply: &Reply) -> Check {
        match (asked, reply) {
            (Asked::Publish { life, id, is_durable, .. }, &Reply::Published { offset, .. }) => {
                if is_durable && self.model.life(life)?.is_wal() {
                    self.sums.durable += 1;
                }
                self.model.published(id, offset, is_durable)
            }
            (Asked::Repeat { at, .. }, &Reply::Published { offset, .. }) => {
                self.sums.repeats += 1;
                if offset.0 == at {
                    Ok(())
                } else {
                    Err(format!("a repeat of what is at {at} was answered to be at {offset}"))
                }
            }
            (
                Asked::PublishAll { first: id, count, is_durable, .. },
                &Reply::PublishedAll { first, last, count: taken, .. },
            ) => {
                self.sums.batches += 1;
                if taken != count || last.since(first) + 1 != count {
                    return Err(format!("{count} messages were published and {first} to {last} answered"));
                }
                (0..count).try_for_each(|nth| self.model.published(id + nth, first.plus(nth), is_durable))
            }
            (Asked::Letter { life, id, letter }, &Reply::Published { offset, .. }) => {
                self.model.published(id, offset, true)?;
                self.letter_replied(life, letter, true)
            }
            (asked, reply) => Err(format!("{asked:?} was answered {}", describe_reply(reply))),
        }
    }

    fn group_replied(&mut self, request: u64, asked: Asked, reply: Reply) -> Check {
        let run = self.model.run;
        match (asked, reply) {
            (Asked::Pull { life, group }, Reply::Pulled { epoch, assignments, .. }) => {
                for assignment in &assignments {
                    if assignment.epoch != epoch {
                        return Err(format!("a pull of epoch {epoch} got messages of {}", assignment.epoch));
                    }
                    self.sums.given += assignment.records.len() as u64;
                    self.model.see_given(&group, assignment, request)?;
                    let got = describe_given(assignment).into_iter();
                    self.pulled.extend(got.map(|offset| Got { life, group: group.clone(), epoch, offset }));
                }
                let surplus = self.pulled.len().saturating_sub(PULLED_MAX);
                self.pulled.drain(..surplus);
                Ok(())
            }
            (Asked::Ack { life, group, ack }, Reply::Acknowledged(new)) => {
                self.sums.acknowledged += new;
                if new > ack.offsets.len() as u64 {
                    return Err(format!("{new} of {} acknowledgements were new", ack.offsets.len()));
                }
                self.model.life(life)?.group(&group).acked(run, &ack, request, new);
                Ok(())
            }
            (Asked::Seek { life, group }, Reply::Group(stats)) => {
                let of_group = self.model.life(life)?.group(&group);
                of_group.sought(run, request, &stats).map_err(|fault| format!("group {group}: {fault}"))
            }
            (Asked::DeleteGroup { life, group }, Reply::Deleted) => {
                self.model.life(life)?.group(&group).deleted(request);
                Ok(())
            }
            (Asked::StatGroup { group, .. }, Reply::Group(stats)) => {
                if stats.name == group {
                    Ok(())
                } else {
                    Err(format!("{group} was asked for: {stats:?}"))
                }
            }
            (asked, reply) => Err(format!("{asked:?} was answered {}", describe_reply(&reply))),
        }
    }

    fn paged(&mut self, life: u64, from: Offset, visible_end: u64, page: Page) -> Check {
        if key_of(page.partition) != life {
            return Err(format!("a page of {} came for {life:x}", page.partition));
        }
        self.model.see_page(from, visible_end, &page)?;
        self.sums.read += page.batches.iter().map(|batch| u64::from(batch.count())).sum::<u64>();
        self.last_page = Some(page);
        Ok(())
    }

    fn interested(&mut self, life: u64, core: u16, from: Option<Offset>) -> Check {
        let interest = &mut self.model.life(life)?.interest;
        let Some(high_water) = from else {
            interest.remove(&core);
            return Ok(());
        };
        match interest.insert(core, Some(high_water.0)) {
            Some(Some(next)) if next != high_water.0 => {
                Err(format!("core {core} was pushed up to {next} and is told that pushes go on at {high_water}"))
            }
            _ => Ok(()),
        }
    }

    fn member_replied(&mut self, to: Origin, reply: &Reply) -> Check {
        self.trace.note(format!("reply to member {}: {}", to.asker, describe_reply(reply)));
        let run = self.model.run;
        match reply {
            Reply::Joined { epoch, .. } => {
                let Some(member) = self.members.iter().find(|member| member.origin == to) else { return Ok(()) };
                let (life, group) = (member.life, member.group.clone());
                self.model.life(life)?.group(&group).joined(run, *epoch)
            }
            Reply::Refused(refusal) => {
                if refusal.kind == RefusalKind::TopicNotFound || refusal.kind == RefusalKind::GroupNotFound {
                    self.members.retain(|member| member.origin != to);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A refusal has a reason, and nothing of what was refused is there.
    fn refused(&mut self, request: u64, asked: Asked, refusal: &Refusal) -> Check {
        let kind = refusal.kind;
        let life = match &asked {
            Asked::Create { life }
            | Asked::Publish { life, .. }
            | Asked::Repeat { life, .. }
            | Asked::PublishAll { life, .. }
            | Asked::Letter { life, .. }
            | Asked::Change { life }
            | Asked::Read { life, .. }
            | Asked::Stat { life, .. }
            | Asked::Interest { life, .. }
            | Asked::Pull { life, .. }
            | Asked::Ack { life, .. }
            | Asked::Seek { life, .. }
            | Asked::DeleteGroup { life, .. }
            | Asked::StatGroup { life, .. }
            | Asked::Groups { life } => Some(*life),
            Asked::Delete { life, .. } => *life,
            Asked::List | Asked::Nack => None,
        };
        self.check_reason(&asked, life, kind)?;
        let is_unknown = kind == RefusalKind::OutcomeUnknown;
        match asked {
            Asked::Create { life } => {
                let of_life = self.model.life(life)?;
                // Deleted before it was answered: it was made, and whether it is gone is for the answer to the deletion to say.
                let was_made = kind == RefusalKind::TopicNotFound && of_life.deletion != Standing::Never;
                if !is_unknown && !was_made {
                    self.model.all_of(life, |life| life.creation = Standing::Never);
                }
            }
            Asked::Delete { life: Some(life), .. } if !is_unknown => {
                self.model.all_of(life, |life| life.deletion = Standing::Never);
            }
            Asked::PublishAll { life, first, count, .. } => {
                (first..first + count).try_for_each(|id| self.publish_refused(request, life, id, kind))?;
            }
            Asked::Letter { life, id, letter } => {
                self.publish_refused(request, life, id, kind)?;
                self.letter_replied(life, letter, false)?;
            }
            Asked::Change { life } if !is_unknown && kind != RefusalKind::TopicNotFound => {
                self.model.all_of(life, |life| life.changing = None);
            }
            Asked::Publish { life, id, .. } => {
                let counts = [RefusalKind::TopicNotFound, RefusalKind::OutcomeUnknown].contains(&kind);
                (self.sums.refused, self.sums.unknown) =
                    (self.sums.refused + u64::from(!counts), self.sums.unknown + u64::from(is_unknown));
                self.publish_refused(request, life, id, kind)?;
            }
            Asked::Seek { life, group } | Asked::DeleteGroup { life, group } => {
                self.model.life(life)?.group(&group).refused(request, is_unknown);
            }
            Asked::Interest { life, core, .. } => {
                let interest = &mut self.model.life(life)?.interest;
                if interest.get(&core) == Some(&None) {
                    interest.remove(&core);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn publish_refused(&mut self, request: u64, life: u64, id: u64, kind: RefusalKind) -> Check {
        let of_life = self.model.life(life)?;
        let was_deleted_since = of_life.deletion != Standing::Never && of_life.deletion_request > request;
        self.model.publish_refused(id, kind, was_deleted_since)
    }

    fn check_reason(&mut self, asked: &Asked, life: Option<u64>, kind: RefusalKind) -> Check {
        let was_sure = match asked {
            Asked::Publish { was_sure, .. } | Asked::PublishAll { was_sure, .. } | Asked::Delete { was_sure, .. } => {
                *was_sure
            }
            _ => false,
        };
        let is_sure = match life {
            Some(life) => self.model.life(life)?.is_sure(),
            None => false,
        };
        let is_memory = match life {
            Some(life) => !self.model.life(life)?.is_wal(),
            None => false,
        };
        let wrong = match kind {
            // A repeat finds what is there: that takes no room.
            RefusalKind::StorageFailed | RefusalKind::OutcomeUnknown | RefusalKind::StorageFull
                if matches!(asked, Asked::Repeat { .. }) =>
            {
                true
            }
            RefusalKind::TopicNotFound => {
                let is_publish =
                    matches!(asked, Asked::Publish { .. } | Asked::PublishAll { .. } | Asked::Letter { .. });
                let is_delete = matches!(asked, Asked::Delete { .. });
                was_sure && (is_delete || is_sure) || (is_sure && !is_publish && !is_delete)
            }
            RefusalKind::GroupNotFound => matches!(asked, Asked::StatGroup { was_sure: true, .. }) && is_sure,
            RefusalKind::TopicExists => !matches!(asked, Asked::Create { .. }),
            // Another shard of the topic may do its part later.
            RefusalKind::OutcomeUnknown if self.model.has_several(life) && matches!(asked, Asked::Change { .. }) => {
                false
            }
            RefusalKind::StorageFailed | RefusalKind::OutcomeUnknown => is_memory || !self.has_failed,
            RefusalKind::StorageFull => !self.has_failed && !self.has_been_full && self.sizes.memory_max > 1 << 20,
            RefusalKind::Busy => false,
            RefusalKind::PayloadTooLarge => {
                !matches!(asked, Asked::Publish { .. } | Asked::PublishAll { .. } | Asked::Letter { .. })
            }
            RefusalKind::IdReused
            | RefusalKind::InvalidName
            | RefusalKind::InvalidConfig
            | RefusalKind::InvalidRequest
            | RefusalKind::ShuttingDown => true,
        };
        if wrong { Err(format!("{asked:?} was refused without a reason: {}", kind.code())) } else { Ok(()) }
    }

    /// What was asked by a group's worker and can no more be answered is forgotten with the group's topic.
    pub(super) fn group_names(&mut self, life: u64) -> Check<Vec<GroupName>> {
        Ok(self.model.life(life)?.groups.keys().cloned().collect())
    }
}
