//! The reading side of one core: subscriptions, windows, cursors, and the reads that fill what a window lacks.

use ringmain_engine::{Command, Interest, PlacementChange, Reply};
use ringmain_model::limit::{READ_BYTES_MAX, SEND_QUEUE_BYTES_MAX, SUBSCRIPTIONS_PER_CONNECTION_MAX};
use ringmain_model::{HighWaterMark, Offset, PartitionRef, Refusal};
use ringmain_wal::RecordBatch;

use crate::connection::{Carried, ConnectionKey};
use crate::core::State;
use crate::front::{Delivery, Front, Io};
use crate::lane::LaneFull;
use crate::request::{End, Notice, Requested, SlowReader, StartAt, Subscription};
use crate::window::{Cursor, CursorKey, CursorState, Window, WindowKey, WindowState};

impl<F: Front> State<F> {
    pub(crate) fn subscribe(&mut self, key: ConnectionKey, subscription: Subscription) {
        let Subscription { number, name, partition, start, protocol, counts, slow } = subscription;
        let Some(placed) = self.placement.find(&name) else {
            let refusal = Refusal::topic_not_found(name.as_str());
            return self.tell(key, number, Notice::Refused(refusal));
        };
        let count = self.connections.get_mut(key).map_or(0, |connection| connection.link.cursors.len());
        if count >= SUBSCRIPTIONS_PER_CONNECTION_MAX {
            let refusal = Refusal::busy("this connection has as many subscriptions as it may");
            return self.tell(key, number, Notice::Refused(refusal));
        }
        let (shard, partitions) = (placed.shard.of_partition(partition, self.settings.shards), placed.partitions);
        let partition = match placed.partition(partition) {
            Ok(partition) => partition,
            Err(refusal) => return self.tell(key, number, Notice::Refused(refusal)),
        };
        let window_key = *self
            .windows_by_partition
            .entry(partition)
            .or_insert_with(|| self.windows.insert(Window::new(partition, partitions, name, shard)));
        let Some(connection) = self.connections.get_mut(key) else { return };
        let window = &mut self.windows[window_key];
        let cursor = self.cursors.insert(Cursor {
            connection: key,
            number,
            window: window_key,
            place: window.cursors.len(),
            next: Offset::default(),
            state: CursorState::Placing(start),
            gap_owed: None,
            in_reads_list: false,
            has_caught_up: false,
            was_starved: false,
            protocol,
            counts,
            slow,
        });
        window.cursors.push(cursor);
        window.subscribers[protocol.index()] += u32::from(counts);
        connection.link.cursors.push(cursor);
        self.interest_changed(window_key);
        if self.windows[window_key].state == WindowState::Live {
            self.place_cursor(cursor);
        }
    }

    fn tell(&mut self, key: ConnectionKey, subscription: u32, notice: Notice) {
        self.call(key, |front, session, io| front.on_notice(session, subscription, notice, io));
    }

    pub(crate) fn unsubscribe_all(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        for cursor in std::mem::take(&mut connection.link.cursors) {
            self.remove_cursor(cursor);
        }
    }

    /// Ends one of a connection's subscriptions; the others go on.
    pub(crate) fn unsubscribe_number(&mut self, key: ConnectionKey, number: u32) {
        let Some(cursor_key) = self.cursor_of(key, number) else { return };
        let Some(cursor) = self.cursors.get(cursor_key) else { return };
        if let Some(window) = self.windows.get_mut(cursor.window)
            && let Some(connection) = self.connections.get_mut(key)
        {
            // What is on its way will leave, because the connection goes on, and nothing will tell whose it was.
            let messages = u64::from(connection.link.output.disown(number));
            window.delivered[cursor.protocol.index()] += messages;
            self.counters.delivered[cursor.protocol.index()] += messages;
        }
        self.unsubscribe_cursor(cursor_key);
    }

    fn unsubscribe_cursor(&mut self, cursor_key: CursorKey) {
        let Some(cursor) = self.cursors.get(cursor_key) else { return };
        let key = cursor.connection;
        if let Some(connection) = self.connections.get_mut(key) {
            connection.link.cursors.retain(|other| *other != cursor_key);
        }
        self.remove_cursor(cursor_key);
        // Others may have waited until it had read.
        self.go_on(key);
    }

    /// A connection's cursor by its number. It has few, and most have one.
    fn cursor_of(&mut self, key: ConnectionKey, number: u32) -> Option<CursorKey> {
        let cursors = &self.connections.get_mut(key)?.link.cursors;
        cursors.iter().copied().find(|cursor| self.cursors.get(*cursor).is_some_and(|cursor| cursor.number == number))
    }

    /// Takes a cursor out of its window; its connection has forgotten it.
    fn remove_cursor(&mut self, key: CursorKey) {
        let Some(cursor) = self.cursors.remove(key) else { return };
        let Some(window) = self.windows.get_mut(cursor.window) else { return };
        window.cursors.swap_remove(cursor.place);
        window.subscribers[cursor.protocol.index()] -= u32::from(cursor.counts);
        if let Some(moved) = window.cursors.get(cursor.place) {
            self.cursors[*moved].place = cursor.place;
        }
        self.interest_changed(cursor.window);
    }

    fn interest_changed(&mut self, key: WindowKey) {
        if let Some(window) = self.windows.get_mut(key)
            && !std::mem::replace(&mut window.in_interest_list, true)
        {
            self.interest_changes.push(key);
        }
    }

    /// Tells owners how many subscribers this core has, once a turn; ends windows that nobody reads.
    pub(crate) fn tell_interest(&mut self) {
        for key in std::mem::take(&mut self.interest_changes) {
            let Some(window) = self.windows.get_mut(key) else { continue };
            window.in_interest_list = false;
            let wanted = !window.cursors.is_empty();
            let interest = Interest { wanted, subscribers: window.subscribers.iter().sum() };
            if interest == window.told {
                if !wanted {
                    self.drop_window(key);
                }
                continue;
            }
            let (shard, command) = (window.shard, Command::Interest { partition: window.partition, interest });
            let origin = self.window_origin(key);
            if let Err(LaneFull) = self.send(shard, origin, command) {
                // Told in a later turn: the replies that make room wake this core.
                self.interest_changed(key);
                continue;
            }
            self.windows[key].told = interest;
            if !wanted {
                self.drop_window(key);
            }
        }
    }

    fn drop_window(&mut self, key: WindowKey) {
        if let Some(window) = self.windows.remove(key) {
            self.windows_bytes -= window.bytes;
            self.windows_by_partition.remove(&window.partition);
            let incarnation = window.partition.incarnation;
            self.placement.add_counts(&window.topic, incarnation, window.delivered, window.dropped);
        }
    }

    /// The owner has answered this core's interest.
    pub(crate) fn take_interested(&mut self, key: WindowKey, reply: &Reply) {
        let Some(window) = self.windows.get_mut(key) else { return };
        let Reply::Interested { high_water, .. } = *reply else {
            self.end_window(key);
            return;
        };
        if window.state == WindowState::Live {
            self.take_hole_in(key, high_water);
            return;
        }
        window.state = WindowState::Live;
        window.end = high_water.offset();
        self.scratch.clone_from(&self.windows[key].cursors);
        let waiting = std::mem::take(&mut self.scratch);
        for cursor in &waiting {
            self.place_cursor(*cursor);
        }
        self.scratch = waiting;
    }

    /// Gives a new cursor its place in a live window, and says where it differs from what was asked.
    fn place_cursor(&mut self, key: CursorKey) {
        let Some(cursor) = self.cursors.get_mut(key) else { return };
        let CursorState::Placing(start) = cursor.state else { return };
        let Some(window) = self.windows.get(cursor.window) else { return };
        let (partition, end) = (window.partition, window.end);
        let (connection, number) = (cursor.connection, cursor.number);
        // A position of another life means nothing here: the reader starts at the earliest message, and is told.
        let (wanted, foreign) = match start {
            StartAt::Tail => (end, None),
            StartAt::Offset(offset) => (offset, None),
            StartAt::Position(position) if position.partition == partition => (position.next, None),
            StartAt::Position(position) => (Offset(0), Some(Requested::Offset(position.next))),
            StartAt::Lost => (Offset(0), Some(Requested::Unreadable)),
        };
        cursor.next = wanted;
        // Beyond the window's end there may be something: pushes to this core may be behind what another core was answered. The
        // owner knows; a gap is told when its page begins elsewhere.
        let reads_first = wanted != end || foreign.is_some();
        cursor.state = if reads_first { CursorState::WantsRead { first: true } } else { CursorState::Following };
        cursor.gap_owed = foreign;
        let notice = Notice::Subscribed { partition, high_water: HighWaterMark::at(end) };
        self.tell(connection, number, notice);
        self.pump(key);
    }

    pub(crate) fn take_push(&mut self, batch: RecordBatch) {
        let Some(key) = self.windows_by_partition.get(&batch.partition()).copied() else { return };
        let Some(window) = self.windows.get_mut(key).filter(|window| window.state == WindowState::Live) else { return };
        let before = window.bytes;
        window.append(batch, &self.settings.window_limits);
        self.windows_bytes = self.windows_bytes + window.bytes - before;
        while self.windows_bytes > self.settings.window_limits.core_bytes && window.batches.len() > 1 {
            self.windows_bytes -= window.drop_oldest();
        }
        self.has_news(key);
    }

    pub(crate) fn take_hole(&mut self, partition: PartitionRef, high_water: HighWaterMark) {
        if let Some(key) = self.windows_by_partition.get(&partition).copied() {
            self.take_hole_in(key, high_water);
        }
    }

    fn take_hole_in(&mut self, key: WindowKey, high_water: HighWaterMark) {
        let Some(window) = self.windows.get_mut(key).filter(|window| window.state == WindowState::Live) else { return };
        let before = window.bytes;
        window.hole_up_to(high_water.offset());
        self.windows_bytes = self.windows_bytes + window.bytes - before;
        self.has_news(key);
    }

    fn has_news(&mut self, key: WindowKey) {
        if let Some(window) = self.windows.get_mut(key)
            && !std::mem::replace(&mut window.in_news_list, true)
        {
            self.news.push(key);
        }
    }

    /// Offers new batches to the cursors of their windows.
    pub(crate) fn serve_news(&mut self) {
        for key in std::mem::take(&mut self.news) {
            let Some(window) = self.windows.get_mut(key) else { continue };
            window.in_news_list = false;
            let mut cursors = std::mem::take(&mut self.scratch);
            cursors.clone_from(&window.cursors);
            let mut behind = false;
            for cursor in &cursors {
                self.pump(*cursor);
                behind |= self
                    .cursors
                    .get(*cursor)
                    .is_some_and(|at| self.windows.get(key).is_some_and(|window| at.next < window.end));
            }
            if let Some(window) = self.windows.get_mut(key).filter(|_| !behind) {
                window.forget_encodings();
            }
            self.scratch = cursors;
        }
    }

    /// Moves a cursor on as far as its connection's credit and the window allow.
    fn pump(&mut self, key: CursorKey) {
        while self.step(key) {}
    }

    /// Moves a cursor on by a batch; says whether there may be more.
    fn step(&mut self, key: CursorKey) -> bool {
        let Some(cursor) = self.cursors.get_mut(key) else { return false };
        let connection_key = cursor.connection;
        let Some(connection) = self.connections.get_mut(connection_key) else { return false };
        let Some(window) = self.windows.get_mut(cursor.window).filter(|_| connection.link.is_open()) else {
            return false;
        };
        // It had caught up, it did not take what it was given, and the window has left it behind: that is too slow.
        let is_behind = cursor.state == CursorState::Following && cursor.next < window.start();
        cursor.has_caught_up |= cursor.state == CursorState::Following && !is_behind;
        cursor.was_starved &= cursor.next < window.end;
        let too_slow = is_behind && cursor.has_caught_up && cursor.was_starved;
        if too_slow && cursor.slow == SlowReader::Close {
            window.dropped += window.end.since(cursor.next);
            let number = cursor.number;
            self.unsubscribe_cursor(key);
            self.tell(connection_key, number, Notice::Ended(End::TooSlow));
            return false;
        }
        if connection.link.output.bytes() >= SEND_QUEUE_BYTES_MAX || connection.link.batches_held {
            connection.link.out_of_credit = true;
            cursor.was_starved |= !connection.link.batches_held;
            return false;
        }
        if too_slow && cursor.slow == SlowReader::Skip {
            let (number, resumed, requested) = (cursor.number, window.end, Requested::Offset(cursor.next));
            window.dropped += resumed.since(cursor.next);
            cursor.next = resumed;
            self.tell(connection_key, number, Notice::Gap { requested, resumed });
            return true;
        }
        match cursor.state {
            CursorState::Placing(_) | CursorState::Reading { .. } => return false,
            CursorState::Following if cursor.next < window.start() => {
                cursor.state = CursorState::WantsRead { first: false };
            }
            CursorState::WantsRead { .. } | CursorState::Following => {}
        }
        if let CursorState::WantsRead { .. } = cursor.state {
            if !self.is_reading_another(connection_key, key) {
                self.ask_read(key);
            }
            return false;
        }
        let Some(index) = window.index_of(cursor.next) else { return false };
        let keeps = window.keeps_encodings(index);
        let entry = &mut window.batches[index];
        entry.is_encoded |= keeps;
        let delivery = Delivery {
            subscription: cursor.number,
            batch: &entry.batch,
            from: cursor.next,
            topic: &window.topic,
            partitions: window.partitions,
            encoded: keeps.then_some(&mut entry.encoded),
        };
        let Some(session) = connection.session.as_mut() else { return false };
        let mut io = Io {
            now: self.now,
            cores: self.settings.cores,
            link: &mut connection.link,
            placement: &self.placement,
            poisoned: &self.poisoned,
            actions: &mut self.actions,
        };
        let taken_to = self.front.on_batch(session, delivery, &mut io);
        debug_assert!(taken_to > cursor.next && taken_to <= entry.batch.end(), "a session takes one record at least");
        cursor.next = taken_to;
        self.after_call(connection_key);
        true
    }

    /// Whether another cursor of the connection waits for a page: they read one by one, because each page comes whole, whatever
    /// waits for the connection by then.
    fn is_reading_another(&mut self, connection: ConnectionKey, key: CursorKey) -> bool {
        let Some(connection) = self.connections.get_mut(connection) else { return false };
        let cursors = &connection.link.cursors;
        let is_reading = |other: &CursorKey| {
            let other = self.cursors.get(*other);
            other.is_some_and(|other| matches!(other.state, CursorState::Reading { .. }) || other.in_reads_list)
        };
        cursors.len() > 1 && cursors.iter().any(|other| *other != key && is_reading(other))
    }

    fn ask_read(&mut self, key: CursorKey) {
        let Some(cursor) = self.cursors.get(key) else { return };
        let CursorState::WantsRead { first } = cursor.state else { return };
        let Some(window) = self.windows.get(cursor.window) else { return };
        let command = Command::Read {
            partition: window.partition,
            from: cursor.next,
            bytes_max: READ_BYTES_MAX,
            records_max: u64::MAX,
            following: !first,
        };
        let (shard, origin) = (window.shard, self.cursor_origin(key));
        let sent = self.send(shard, origin, command);
        let Some(cursor) = self.cursors.get_mut(key) else { return };
        if let Ok(()) = sent {
            cursor.state = CursorState::Reading { first };
        } else if !std::mem::replace(&mut cursor.in_reads_list, true) {
            self.reads_wanted.push(key);
        }
    }

    /// Tries reads again that found a full lane. The replies that make room wake this core.
    pub(crate) fn retry_reads(&mut self) {
        for key in std::mem::take(&mut self.reads_wanted) {
            if let Some(cursor) = self.cursors.get_mut(key) {
                cursor.in_reads_list = false;
                self.ask_read(key);
            }
        }
    }

    /// A read came back: its batches go to the cursor's connection, whose credit was there when it was asked.
    pub(crate) fn take_page(&mut self, key: CursorKey, reply: Reply) {
        let Some(cursor) = self.cursors.get_mut(key) else { return };
        let Reply::Page(page) = reply else {
            let window = cursor.window;
            return self.end_window(window);
        };
        let first = cursor.state == CursorState::Reading { first: true };
        cursor.state = CursorState::Following;
        let (connection, number, owed) = (cursor.connection, cursor.number, cursor.gap_owed.take());
        let asked = std::mem::replace(&mut cursor.next, page.from);
        let window = cursor.window;
        if owed.is_some() || page.from != asked {
            let requested = owed.unwrap_or(Requested::Offset(asked));
            self.tell(connection, number, Notice::Gap { requested, resumed: page.from });
        }
        if let Some(window) = self.windows.get_mut(window).filter(|_| !first) {
            window.dropped += page.from.since(asked);
        }
        for batch in &page.batches {
            let Some(cursor) = self.cursors.get_mut(key) else { return };
            let from = std::mem::replace(&mut cursor.next, batch.end());
            let Some(window) = self.windows.get(cursor.window) else { return };
            let (topic, partitions) = (window.topic.clone(), window.partitions);
            let mut taken_to = batch.end();
            self.call(connection, |front, session, io| {
                let delivery = Delivery { subscription: number, batch, from, topic: &topic, partitions, encoded: None };
                taken_to = front.on_batch(session, delivery, io);
            });
            if taken_to < batch.end() {
                // It has enough for now: the rest is read again when its output has left.
                let Some(cursor) = self.cursors.get_mut(key) else { return };
                cursor.next = taken_to;
                break;
            }
        }
        let Some(at) = self.connections.get_mut(connection).filter(|at| at.link.cursors.len() > 1) else {
            return self.pump(key);
        };
        // The others come before its next page.
        let own = at.link.cursors.iter().position(|other| *other == key);
        at.link.next_turn = own.and_then(|own| u8::try_from(own + 1).ok()).unwrap_or(0);
        self.go_on(connection);
    }

    /// Output left: cursors that waited for that go on. Several take turns, a batch each, so that none starves the others.
    pub(crate) fn give_credit(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let link = &mut connection.link;
        if !link.out_of_credit || link.batches_held || link.output.bytes() >= SEND_QUEUE_BYTES_MAX {
            return;
        }
        link.out_of_credit = false;
        self.go_on(key);
    }

    fn go_on(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        match connection.link.cursors[..] {
            [] => {}
            [cursor] => self.pump(cursor),
            [..] => self.pump_in_turns(key),
        }
    }

    fn pump_in_turns(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let cursors = connection.link.cursors.clone();
        let (mut at, mut rested) = (usize::from(connection.link.next_turn) % cursors.len(), 0);
        while rested < cursors.len() {
            rested = if self.step(cursors[at]) { 0 } else { rested + 1 };
            let Some(connection) = self.connections.get_mut(key) else { return };
            if connection.link.out_of_credit {
                // The one that found no credit comes first next time.
                connection.link.next_turn = u8::try_from(at).unwrap_or(0);
                return;
            }
            at = (at + 1) % cursors.len();
        }
    }

    /// Counts messages that a connection took.
    pub(crate) fn count_delivered(&mut self, key: ConnectionKey, carried: Carried) {
        if let Some(cursor) = self.cursor_of(key, carried.subscription)
            && let Some(cursor) = self.cursors.get(cursor)
            && let Some(window) = self.windows.get_mut(cursor.window)
        {
            window.delivered[cursor.protocol.index()] += u64::from(carried.messages);
            self.counters.delivered[cursor.protocol.index()] += u64::from(carried.messages);
        }
    }

    /// Applies a placement change; a topic that went takes its subscriptions with it.
    pub(crate) fn place(&mut self, change: PlacementChange) {
        if let PlacementChange::Remove { incarnation, .. } = &change {
            // Whatever the table says: another topic may have taken the name before this one's end was durable.
            let of_topic = self.windows.iter().filter(|(_, window)| window.partition.incarnation == *incarnation);
            for key in of_topic.map(|(key, _)| key).collect::<Vec<_>>() {
                self.end_window(key);
            }
            self.end_memberships(*incarnation);
        }
        self.placement.apply(change);
    }

    /// The topic is gone: every subscriber is told, and nothing of the window stays.
    fn end_window(&mut self, key: WindowKey) {
        let Some(window) = self.windows.get_mut(key) else { return };
        // The owner has forgotten this core together with the topic.
        window.told = Interest::default();
        for cursor in window.cursors.clone() {
            let Some(at) = self.cursors.get(cursor) else { continue };
            let (connection, number) = (at.connection, at.number);
            self.unsubscribe_cursor(cursor);
            self.tell(connection, number, Notice::Ended(End::TopicDeleted));
        }
        self.drop_window(key);
    }
}
