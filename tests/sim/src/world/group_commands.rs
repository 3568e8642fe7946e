//! What workers of groups ask: pulls, acknowledgements, seeks, deletions, members that come, acknowledge and go.

use ringmain_engine::{Command, Event, GroupAction, GroupStart, Nack, Origin, Progress, SeekTo};
use ringmain_model::{CoreId, GroupName, Offset};

use super::{Asked, Got, Member, World};
use crate::model::{Ack, Check, Verb, partition_of};

const GROUPS: [&str; 2] = ["one", "two"];
const MEMBERS_MAX: usize = 4;
/// Pulled messages that are remembered, those of former processes included: late acknowledgements are wanted.
pub(super) const PULLED_MAX: usize = 100;

impl World {
    pub(super) fn ask_group(&mut self) -> Check {
        let Some(life) = self.any_life() else { return Ok(()) };
        let name = self.chance.pick(&GROUPS);
        let group = GroupName::new(name).map_err(|error| format!("a name of the simulation is bad: {error}"))?;
        match self.chance.below(40) {
            0..11 => {
                let wait_ms = self.chance.pick(&[0, 0, 300, 5_000]);
                let count = self.chance.pick(&[1, 3, 20]);
                self.ask_pull(life, &group, count, wait_ms).map(|_| ())
            }
            11..21 => self.ask_ack(),
            21..23 => self.ask_nack(),
            23 => self.ask_seek(life, &group),
            24 => {
                let request = self.next_request;
                self.model.life(life)?.group(&group).asked(request, Verb::Delete);
                self.ask_of_group(life, &group, GroupAction::Delete, |life, group| Asked::DeleteGroup { life, group })
            }
            25..28 => self.ask_group_stats(life, &group),
            28..31 => self.join(life, group),
            31..33 => self.leave(),
            _ => self.progress(),
        }
    }

    fn ask_of_group(
        &mut self,
        life: u64,
        group: &GroupName,
        action: GroupAction,
        asked: impl Fn(u64, GroupName) -> Asked,
    ) -> Check {
        let command = Command::Group { partition: partition_of(life), group: group.clone(), action };
        self.ask_life(life, command, asked(life, group.clone())).map(|_| ())
    }

    fn ask_group_stats(&mut self, life: u64, group: &GroupName) -> Check {
        if self.chance.one_in(3) {
            let command = Command::Groups { partition: partition_of(life) };
            return self.ask_life(life, command, Asked::Groups { life }).map(|_| ());
        }
        let of_life = self.model.life(life)?;
        let was_sure = of_life.is_sure() && of_life.group(group).is_sure();
        self.ask_of_group(life, group, GroupAction::Stat, |life, group| Asked::StatGroup { life, group, was_sure })
    }

    /// Where a group that begins starts.
    fn start(&mut self, life: u64) -> Check<GroupStart> {
        let end = self.model.life(life)?.visible_end;
        if self.chance.one_in(3) {
            return Ok(GroupStart::Tail);
        }
        let offset = if self.chance.one_in(2) { 0 } else { self.chance.below(end + 2) };
        Ok(GroupStart::Offset(Offset(offset)))
    }

    pub(super) fn ask_pull(&mut self, life: u64, group: &GroupName, count: u32, wait_ms: u64) -> Check<u64> {
        let start = self.start(life)?;
        let request = self.next_request;
        self.model.life(life)?.group(group).begin_asked(request);
        let action = GroupAction::Pull { start, count, wait_ms };
        let command = Command::Group { partition: partition_of(life), group: group.clone(), action };
        let request = self.ask_life(life, command, Asked::Pull { life, group: group.clone() })?;
        // A group that has just begun tells where, before anything was given out.
        if self.chance.one_in(2) {
            self.ask_group_stats(life, group)?;
        }
        Ok(request)
    }

    fn ask_ack(&mut self) -> Check {
        if self.pulled.is_empty() {
            return Ok(());
        }
        let Got { life, group, epoch, .. } = self.pulled[self.chance.index(self.pulled.len())].clone();
        let is_same = |got: &&Got| got.life == life && got.group == group && got.epoch == epoch;
        let mut offsets: Vec<_> = self.pulled.iter().filter(is_same).map(|got| got.offset).collect();
        offsets.sort_unstable();
        offsets.dedup();
        let count = 1 + self.chance.index(offsets.len());
        let from = self.chance.index(offsets.len() - count + 1);
        let offsets = offsets[from..from + count].to_vec();
        self.ask_ack_of(life, &group, Ack::of(epoch, offsets)).map(|_| ())
    }

    pub(super) fn ask_ack_of(&mut self, life: u64, group: &GroupName, mut ack: Ack) -> Check<u64> {
        let run = self.model.run;
        let of_group = self.model.life(life)?.group(group);
        of_group.ack_asked(run, &mut ack);
        let is_present = of_group.is_quiet() && of_group.current == Some(ack.epoch);
        let names_epoch = !is_present || !self.chance.one_in(4);
        let action = GroupAction::Ack {
            epoch: names_epoch.then_some(ack.epoch),
            offsets: ack.offsets.iter().copied().map(Offset).collect(),
            by: None,
        };
        let command = Command::Group { partition: partition_of(life), group: group.clone(), action };
        self.ask_life(life, command, Asked::Ack { life, group: group.clone(), ack })
    }

    fn ask_nack(&mut self) -> Check {
        if self.pulled.is_empty() {
            return Ok(());
        }
        let Got { life, group, epoch, offset } = self.pulled[self.chance.index(self.pulled.len())].clone();
        let delay_ms = self.chance.pick(&[0, 400]);
        let action = GroupAction::Nack { epoch: Some(epoch), offsets: vec![Offset(offset)], delay_ms };
        self.ask_of_group(life, &group, action, |_, _| Asked::Nack)
    }

    fn ask_seek(&mut self, life: u64, group: &GroupName) -> Check {
        let request = self.next_request;
        let of_life = self.model.life(life)?;
        let end = of_life.visible_end;
        of_life.group(group).asked(request, Verb::Seek);
        let to = match self.chance.below(5) {
            0 => SeekTo::Earliest,
            1 => SeekTo::Latest,
            2 => SeekTo::Time(self.clock.unix_us - self.chance.below(20_000_000) as i64),
            _ => SeekTo::Offset(Offset(self.chance.below(end + 2))),
        };
        self.ask_of_group(life, group, GroupAction::Seek(to), |life, group| Asked::Seek { life, group })
    }

    fn join(&mut self, life: u64, group: GroupName) -> Check {
        if self.members.len() >= MEMBERS_MAX {
            return Ok(());
        }
        let start = self.start(life)?;
        let request = self.next_request;
        self.next_request += 1;
        let acks_by_sending = self.chance.one_in(4);
        let in_flight_max = self.chance.pick(&[1, 4, 100]);
        let is_ordered = self.chance.one_in(4);
        let origin = Origin { core: CoreId(self.any_core()), asker: request, request: 0 };
        self.model.life(life)?.group(&group).begin_asked(request);
        self.trace.note(format!(
            "member {request} joins {group} of {life:x}, sends acknowledge: {acks_by_sending}, ordered: {is_ordered}"
        ));
        self.members.push(Member { origin, life, group: group.clone(), acks_by_sending, got: Vec::new() });
        let command = Command::Join {
            partition: partition_of(life),
            group,
            start,
            in_flight_max,
            acks_by_sending,
            is_ordered,
            identity: origin.asker,
        };
        let node = self.model.life(life)?.node;
        self.give(node, Event::Asked { origin, command })
    }

    fn leave(&mut self) -> Check {
        if self.members.is_empty() {
            return Ok(());
        }
        let at = self.chance.index(self.members.len());
        self.leave_at(at)
    }

    /// A member goes.
    pub(super) fn leave_at(&mut self, at: usize) -> Check {
        let Member { origin, life, group, .. } = self.members.swap_remove(at);
        self.trace.note(format!("member {} leaves", origin.asker));
        let (node, command) = (self.model.life(life)?.node, Command::Leave { partition: partition_of(life), group });
        self.give(node, Event::Asked { origin, command })
    }

    /// A member says what it has sent, acknowledged and given back.
    fn progress(&mut self) -> Check {
        if self.members.is_empty() {
            return Ok(());
        }
        let at = self.chance.index(self.members.len());
        let Member { origin, life, group, acks_by_sending, got } = self.members[at].clone();
        let mut progress = Progress { sent: self.chance.below(6) as u32, ..Progress::default() };
        let mut acked: Vec<(u64, u64)> = Vec::new();
        if !got.is_empty() {
            for _ in 0..self.chance.below(4) {
                acked.push(got[self.chance.index(got.len())]);
            }
            if self.chance.one_in(4) {
                let (epoch, offset) = got[self.chance.index(got.len())];
                progress.nacks = vec![Nack { epoch, offset: Offset(offset), delay_ms: self.chance.pick(&[0, 200]) }];
            }
        }
        progress.acks = acked.iter().map(|(epoch, offset)| (*epoch, Offset(*offset))).collect();
        // What is sent may be acknowledged by that; which of it, the member alone knows.
        let asked = acked.iter().chain(got.iter().filter(|_| acks_by_sending));
        let run = self.model.run;
        let of_group = self.model.life(life)?.group(&group);
        for (epoch, offset) in asked {
            of_group.ack_asked(run, &mut Ack::of(*epoch, vec![*offset]));
        }
        self.trace.note(format!("member {} has {progress:?}", origin.asker));
        let command = Command::Progress { partition: partition_of(life), group, progress };
        let node = self.model.life(life)?.node;
        self.give(node, Event::Asked { origin, command })
    }
}
