//! Topics that are deleted and made again while the broker is killed: an answered deletion stays, and another life is another.

use crate::broker::topic_path;
use crate::chance::Chance;
use crate::http::Connection;
use crate::wal_kill_load::{ACK_WAIT_MS, Load, Published, Sender, Sizes};
use crate::wal_kill_model::{GroupModel, Keeps, TopicModel, get};
use serde_json::{Value, json};
use std::collections::HashSet;

/// Whether a topic is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Absent,
    /// Perhaps.
    Nascent,
    Present,
    /// Perhaps.
    Dying,
}

/// A topic that is deleted and made again.
#[derive(Debug)]
pub(crate) struct Mortal {
    pub(crate) presence: Presence,
    pub(crate) topic: TopicModel,
    pub(crate) group: GroupModel,
    /// Incarnations of former lives.
    buried: HashSet<String>,
}

impl Mortal {
    pub(crate) fn new(name: &str, keeps: Keeps) -> Self {
        let (topic, group) = (TopicModel::new(name, keeps), GroupModel::new(name, "workers"));
        Self { presence: Presence::Absent, topic, group, buried: HashSet::new() }
    }

    /// Begins another life, of which nobody knows yet.
    fn bear(&mut self) {
        self.bury();
        self.presence = Presence::Nascent;
    }

    fn bury(&mut self) {
        self.buried.extend(self.topic.incarnation.take());
        self.buried.extend(self.topic.seen.drain(..).map(|told| told.incarnation));
        let name = self.topic.name.clone();
        (self.topic, self.group) = (TopicModel::new(&name, self.topic.keeps), GroupModel::new(&name, "workers"));
    }

    /// Compares it with a broker that was just started.
    pub(crate) fn settle(&mut self, connection: &mut Connection, chance: &mut Chance, whole: bool) {
        let name = &self.topic.name;
        let answer = get(connection, &topic_path(name, ""));
        if answer.status == 404 {
            assert!(self.presence != Presence::Present, "{name} is gone");
            self.presence = Presence::Absent;
            self.bury();
            return;
        }
        let stats = answer.expect(200).data();
        assert!(self.presence != Presence::Absent, "{name} was deleted and is there: {stats}");
        self.presence = Presence::Present;
        self.topic.settle(connection, chance, whole);
        assert!(self.topic.incarnation.as_ref().is_none_or(|known| !self.buried.contains(known)), "a former life");
        self.group.settle(connection, &mut self.topic, chance);
    }
}

impl Load {
    /// Makes a topic, publishes into it, has a group work on it, deletes it, and begins again.
    pub(crate) fn live_and_die(&self, mortal: &mut Mortal, sizes: Sizes, chance: &mut Chance) {
        let mut connection = self.connect();
        self.arrive();
        while self.live(mortal, &mut connection, sizes, chance).is_some() {}
    }

    fn live(&self, mortal: &mut Mortal, connection: &mut Connection, sizes: Sizes, chance: &mut Chance) -> Option<()> {
        if mortal.presence == Presence::Absent {
            mortal.bear();
            let body = json!({ "name": mortal.topic.name, "ack_wait_ms": ACK_WAIT_MS });
            self.ask(connection, "POST", "/topics", &body)?.expect(201);
            mortal.presence = Presence::Present;
        }
        for _ in 0..1 + chance.below(6) {
            let mut published = Published::default();
            let sender = Sender { topic: &mortal.topic.name, number: 0, sizes, promises_nothing: false };
            let count = 1 + chance.below(30);
            let is_there = self.publish_some(connection, &sender, count, chance, &mut published);
            mortal.topic.take(published);
            if !is_there {
                return None;
            }
            let mut seen = Vec::new();
            let worked = self.work_once(connection, &mut mortal.group, 0, chance, &mut seen);
            mortal.topic.seen.extend(seen);
            worked?;
        }
        mortal.presence = Presence::Dying;
        self.ask(connection, "DELETE", &topic_path(&mortal.topic.name, ""), &Value::Null)?.expect(200);
        mortal.presence = Presence::Absent;
        Some(())
    }
}
