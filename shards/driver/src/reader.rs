//! The reading side of one core: subscriptions, windows, cursors, and the reads that fill what a window lacks.

use ringmain_engine::{Command, Interest, PlacementChange, Reply};
use ringmain_model::limit::{READ_BYTES_MAX, SEND_QUEUE_BYTES_MAX};
use ringmain_model::{HighWaterMark, Offset, PartitionRef, Refusal};
use ringmain_wal::RecordBatch;

use crate::connection::ConnectionKey;
use crate::core::State;
use crate::front::{Delivery, End, Front, Io, Notice, Protocol, Requested, SlowReader, StartAt, Subscription};
use crate::lane::LaneFull;
use crate::window::{Cursor, CursorKey, CursorState, Window, WindowKey, WindowState};

impl<F: Front> State<F> {
    pub(crate) fn subscribe(&mut self, key: ConnectionKey, subscription: Subscription) {
        let Subscription { name, start, protocol, slow } = subscription;
        let Some(placed) = self.placement.find(&name) else {
            let refusal = Refusal::topic_not_found(name.as_str());
            self.call(key, |front, session, io| front.on_notice(session, Notice::Refused(refusal), io));
            return;
        };
        let (partition, shard) = (placed.partition(), placed.shard);
        let window_key = *self
            .windows_by_partition
            .entry(partition)
            .or_insert_with(|| self.windows.insert(Window::new(partition, name, shard)));
        let Some(connection) = self.connections.get_mut(key) else { return };
        let window = &mut self.windows[window_key];
        let cursor = self.cursors.insert(Cursor {
            connection: key,
            window: window_key,
            place: window.cursors.len(),
            next: Offset::default(),
            state: CursorState::Placing(start),
            gap_owed: None,
            in_reads_list: false,
            has_caught_up: false,
            was_starved: false,
            protocol,
            slow,
        });
        window.cursors.push(cursor);
        window.subscribers[protocol.index()] += u32::from(protocol != Protocol::Fetch);
        connection.link.cursors.push(cursor);
        self.interest_changed(window_key);
        if self.windows[window_key].state == WindowState::Live {
            self.place_cursor(cursor);
        }
    }

    pub(crate) fn unsubscribe_all(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        for cursor_key in std::mem::take(&mut connection.link.cursors) {
            let Some(cursor) = self.cursors.remove(cursor_key) else { continue };
            let Some(window) = self.windows.get_mut(cursor.window) else { continue };
            window.cursors.swap_remove(cursor.place);
            window.subscribers[cursor.protocol.index()] -= u32::from(cursor.protocol != Protocol::Fetch);
            if let Some(moved) = window.cursors.get(cursor.place) {
                self.cursors[*moved].place = cursor.place;
            }
            self.interest_changed(cursor.window);
        }
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
        let connection = cursor.connection;
        // A position of another life means nothing here: the reader starts at the earliest message, and is told.
        let (wanted, foreign) = match start {
            StartAt::Tail => (end, None),
            StartAt::Offset(offset) => (offset, None),
            StartAt::Position(position) if position.partition == partition => (position.next, None),
            StartAt::Position(position) => (Offset(0), Some(Requested::Offset(position.next))),
            StartAt::Lost => (Offset(0), Some(Requested::Unreadable)),
        };
        cursor.next = wanted.min(end);
        let reads_first = cursor.next < end;
        cursor.state = if reads_first { CursorState::WantsRead { first: true } } else { CursorState::Following };
        let gap = foreign.or((wanted > end).then_some(Requested::Offset(wanted)));
        cursor.gap_owed = gap.filter(|_| reads_first);
        let notice = Notice::Subscribed { partition, high_water: HighWaterMark::at(end) };
        self.call(connection, |front, session, io| front.on_notice(session, notice, io));
        // A gap whose end depends on what is kept is told when the first read says so.
        if let Some(requested) = gap.filter(|_| !reads_first) {
            self.tell_gap(connection, requested, end);
        }
        self.pump(key);
    }

    fn tell_gap(&mut self, connection: ConnectionKey, requested: Requested, resumed: Offset) {
        let notice = Notice::Gap { requested, resumed };
        self.call(connection, |front, session, io| front.on_notice(session, notice, io));
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
        loop {
            let Some(cursor) = self.cursors.get_mut(key) else { return };
            let connection_key = cursor.connection;
            let Some(connection) = self.connections.get_mut(connection_key) else { return };
            if !connection.link.is_open() {
                return;
            }
            let Some(window) = self.windows.get_mut(cursor.window) else { return };
            // It had caught up, it did not take what it was given, and the window has left it behind: that is too slow.
            let is_behind = cursor.state == CursorState::Following && cursor.next < window.start();
            cursor.has_caught_up |= cursor.state == CursorState::Following && !is_behind;
            cursor.was_starved &= cursor.next < window.end;
            let too_slow = is_behind && cursor.has_caught_up && cursor.was_starved;
            if too_slow && cursor.slow == SlowReader::Close {
                let messages = window.end.since(cursor.next);
                window.dropped += messages;
                self.unsubscribe_all(connection_key);
                let ended = Notice::Ended(End::TooSlow);
                return self.call(connection_key, |front, session, io| front.on_notice(session, ended, io));
            }
            if connection.link.output.bytes() >= SEND_QUEUE_BYTES_MAX {
                connection.link.out_of_credit = true;
                cursor.was_starved = true;
                return;
            }
            if too_slow && cursor.slow == SlowReader::Skip {
                let (end, requested) = (window.end, Requested::Offset(cursor.next));
                window.dropped += end.since(cursor.next);
                cursor.next = end;
                self.tell_gap(connection_key, requested, end);
                continue;
            }
            match cursor.state {
                CursorState::Placing(_) | CursorState::Reading { .. } => return,
                CursorState::WantsRead { .. } => return self.ask_read(key),
                CursorState::Following => {}
            }
            if cursor.next < window.start() {
                cursor.state = CursorState::WantsRead { first: false };
                return self.ask_read(key);
            }
            let Some(index) = window.index_of(cursor.next) else { return };
            let keeps = window.keeps_encodings(index);
            let entry = &mut window.batches[index];
            entry.is_encoded |= keeps;
            let from = std::mem::replace(&mut cursor.next, entry.batch.end());
            let delivery = Delivery {
                batch: &entry.batch,
                from,
                topic: &window.topic,
                encoded: keeps.then_some(&mut entry.encoded),
            };
            let Some(session) = connection.session.as_mut() else { return };
            let (now, cores) = (self.now, self.settings.cores);
            let mut io = Io {
                now,
                cores,
                link: &mut connection.link,
                placement: &self.placement,
                poisoned: &self.poisoned,
                actions: &mut self.actions,
            };
            self.front.on_batch(session, delivery, &mut io);
            self.after_call(connection_key);
        }
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
        let (connection, owed) = (cursor.connection, cursor.gap_owed.take());
        let asked = std::mem::replace(&mut cursor.next, page.from);
        let window = cursor.window;
        if owed.is_some() || page.from != asked {
            self.tell_gap(connection, owed.unwrap_or(Requested::Offset(asked)), page.from);
        }
        if let Some(window) = self.windows.get_mut(window).filter(|_| !first) {
            window.dropped += page.from.since(asked);
        }
        for batch in &page.batches {
            let Some(cursor) = self.cursors.get_mut(key) else { return };
            let from = std::mem::replace(&mut cursor.next, batch.end());
            let Some(topic) = self.windows.get(cursor.window).map(|window| window.topic.clone()) else { return };
            self.call(connection, |front, session, io| {
                front.on_batch(session, Delivery { batch, from, topic: &topic, encoded: None }, io);
            });
        }
        self.pump(key);
    }

    /// Output left: cursors that waited for that go on.
    pub(crate) fn give_credit(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.link.out_of_credit && connection.link.output.bytes() < SEND_QUEUE_BYTES_MAX {
            connection.link.out_of_credit = false;
            for cursor in connection.link.cursors.clone() {
                self.pump(cursor);
            }
        }
    }

    /// Counts messages that a connection took.
    pub(crate) fn count_delivered(&mut self, cursor: Option<CursorKey>, messages: u64) {
        if let Some(cursor) = cursor.and_then(|cursor| self.cursors.get(cursor))
            && let Some(window) = self.windows.get_mut(cursor.window)
        {
            window.delivered[cursor.protocol.index()] += messages;
        }
    }

    /// Applies a placement change; a topic that went takes its subscriptions with it.
    pub(crate) fn place(&mut self, change: PlacementChange) {
        if let PlacementChange::Remove { incarnation, .. } = &change {
            let partition = PartitionRef { incarnation: *incarnation, partition: 0 };
            if let Some(key) = self.windows_by_partition.get(&partition).copied() {
                self.end_window(key);
            }
            self.end_memberships(partition);
        }
        self.placement.apply(change);
    }

    /// The topic is gone: every subscriber is told, and nothing of the window stays.
    fn end_window(&mut self, key: WindowKey) {
        let Some(window) = self.windows.get_mut(key) else { return };
        // The owner has forgotten this core together with the topic.
        window.told = Interest::default();
        for cursor in window.cursors.clone() {
            let Some(connection) = self.cursors.get(cursor).map(|cursor| cursor.connection) else { continue };
            self.unsubscribe_all(connection);
            let notice = Notice::Ended(End::TopicDeleted);
            self.call(connection, |front, session, io| front.on_notice(session, notice, io));
        }
        self.drop_window(key);
    }
}
