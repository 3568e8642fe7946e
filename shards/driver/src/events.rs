//! What the kernel reports, and what it is told at the end of a turn, for the connections of one core.

use std::collections::VecDeque;

use bytes::Bytes;
use ringmain_model::limit::{DRAIN_STALL_MS_MAX, LINGER_BYTES_MAX, LINGER_MS_MAX, OUTPUT_BYTES_MAX, SEND_BYTES_MAX};
use ringmain_uring::{Event, Ring, SocketId};

use crate::connection::ConnectionKey;
use crate::core::{Accepting, State};
use crate::front::{Close, Front};

impl<F: Front> State<F> {
    pub(crate) fn on_event(&mut self, event: Event<'_>) {
        match event {
            Event::Accepted { socket, .. } => self.on_accepted(socket),
            Event::AcceptEnded { error, .. } => {
                if self.accepting == Accepting::On {
                    tracing::warn!(%error, "accepting pauses until a connection ends");
                    self.pause_accept();
                }
            }
            Event::Received { socket, bytes } => self.on_received(ConnectionKey(socket), bytes),
            Event::ReceiveEnded { socket, error } => self.on_receive_ended(ConnectionKey(socket), error.is_some()),
            Event::Sent { socket } => self.on_sent(ConnectionKey(socket)),
            Event::SendFailed { socket, .. } => self.end(ConnectionKey(socket), Close::Flush, true),
            Event::Closed { socket } => self.on_closed(ConnectionKey(socket)),
            Event::Woken | Event::File(_) => {}
        }
    }

    fn on_accepted(&mut self, socket: SocketId) {
        self.counters.connections_accepted += 1;
        if self.accepts_singly && self.accepting == Accepting::On {
            self.accepting = Accepting::Paused { until_ms: self.now.monotonic_ms };
        }
        let key = ConnectionKey(socket);
        self.connections.insert(socket);
        let (now, cores) = (self.now, self.settings.cores);
        let Some(connection) = self.connections.get_mut(key) else { return };
        let mut io = crate::front::Io {
            now,
            cores,
            link: &mut connection.link,
            placement: &self.placement,
            poisoned: &self.poisoned,
            actions: &mut self.actions,
        };
        connection.session = Some(self.front.open(&mut io));
        if self.accepting == Accepting::Over {
            connection.link.closing = Some(Close::Flush);
        }
        self.after_call(key);
    }

    fn on_received(&mut self, key: ConnectionKey, bytes: &[u8]) {
        self.counters.received_bytes += bytes.len() as u64;
        if let Some(connection) = self.connections.get_mut(key)
            && !connection.link.is_open()
        {
            connection.link.lingered_bytes += bytes.len();
            if connection.link.lingered_bytes > LINGER_BYTES_MAX {
                self.end(key, Close::Flush, true);
            }
            return;
        }
        self.call(key, |front, session, io| front.on_bytes(session, bytes, io));
    }

    fn on_receive_ended(&mut self, key: ConnectionKey, failed: bool) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.link.input_ended = true;
        if failed || !connection.link.is_open() {
            let lingering = connection.link.lingering;
            self.end(key, Close::Flush, failed || lingering);
        } else {
            self.call(key, |front, session, io| front.on_end_of_input(session, io));
        }
    }

    pub(crate) fn on_sent(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let link = &mut connection.link;
        self.counters.sent_bytes += link.output.flying() as u64;
        let sent = link.output.sent();
        link.stall_ms = u64::MAX;
        for carried in sent {
            self.count_delivered(key, carried);
            self.note_sent(key, carried);
        }
        self.give_credit(key);
        self.tell_drained(key);
        self.after_call(key);
    }

    fn tell_drained(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.link.wants_drained && connection.link.output.bytes() < OUTPUT_BYTES_MAX / 2 {
            connection.link.wants_drained = false;
            self.call(key, |front, session, io| front.on_drained(session, io));
        }
    }

    /// Puts a connection on its way out. `at_once` gives up what has not been sent.
    fn end(&mut self, key: ConnectionKey, how: Close, at_once: bool) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if at_once {
            connection.link.output.clear();
            connection.link.abandoned = true;
            connection.link.closing = Some(how);
        } else {
            connection.link.closing.get_or_insert(how);
        }
        self.after_call(key);
    }

    fn on_closed(&mut self, key: ConnectionKey) {
        self.leave(key);
        if let Some(mut connection) = self.connections.remove(key) {
            self.timers.forget(&mut connection.link);
        }
        self.room_for_accept();
    }

    /// Ends a connection's subscriptions and its session; the socket may still be finishing.
    pub(crate) fn leave(&mut self, key: ConnectionKey) {
        self.end_parts(key);
        if let Some(session) = self.connections.get_mut(key).and_then(|connection| connection.session.take()) {
            self.front.on_close(session);
        }
    }

    /// Ends what a connection takes part in.
    pub(crate) fn end_parts(&mut self, key: ConnectionKey) {
        self.unsubscribe_all(key);
        self.leave_group(key);
        self.abandon_pulls(key);
    }

    pub(crate) fn fire_timers(&mut self) {
        let now_ms = self.now.monotonic_ms;
        while let Some(slot) = self.timers.take_due(now_ms) {
            let Some(key) = self.connections.key_in_slot(slot) else { continue };
            let Some(connection) = self.connections.get_mut(key) else { continue };
            let link = &mut connection.link;
            link.scheduled_ms = None;
            let due = link.deadline_ms <= now_ms;
            if due {
                link.deadline_ms = u64::MAX;
            }
            if due && link.lingering {
                self.end(key, Close::Flush, true);
            } else if due {
                self.call(key, |front, session, io| front.on_timer(session, io));
            }
            // A wish that moved later, or a stalled write: `flush` looks at both.
            self.after_call(key);
        }
    }

    /// Tells every session that the broker goes down.
    pub(crate) fn shut_sessions_down(&mut self) {
        for key in self.connections.keys() {
            self.call(key, |front, session, io| front.on_shutdown(session, io));
            self.take_back_pulls(key);
            if self.connections.get_mut(key).is_some_and(|connection| connection.link.lingering) {
                // All that it was told is with the kernel: nobody waits for its peer to hang up.
                self.end(key, Close::Flush, true);
            }
            // Those that are ending already hear nothing more, and are looked at all the same.
            self.after_call(key);
        }
    }

    /// Gives the kernel what this turn made: sends, pauses, ends. Says whether something is left to do at once.
    pub(crate) fn flush(&mut self, ring: &mut Ring) -> bool {
        let mut dirty = std::mem::take(&mut self.dirty);
        for key in dirty.drain(..) {
            self.flush_connection(key, ring);
        }
        let again = !self.dirty.is_empty();
        if !again {
            self.dirty = dirty;
        }
        again
    }

    fn flush_connection(&mut self, key: ConnectionKey, ring: &mut Ring) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let link = &mut connection.link;
        link.in_dirty_list = false;
        if link.gone {
            return;
        }
        if link.closing == Some(Close::Abort) || self.flush_output(key, ring) {
            self.cut(key, ring);
            return;
        }
        let Some(connection) = self.connections.get_mut(key) else { return };
        let link = &mut connection.link;
        // A peer that sends and does not take what it is answered is not read from.
        let wanted = link.input_wanted && !link.words_wait && link.output.bytes() < OUTPUT_BYTES_MAX;
        if link.closing.is_none() && wanted != link.input_on && !link.input_ended {
            link.input_on = wanted;
            if link.input_on {
                ring.resume_receive(key.0);
            } else {
                ring.pause_receive(key.0);
            }
        }
        self.flush_ending(key, ring);
        if let Some(connection) = self.connections.get_mut(key).filter(|connection| !connection.link.gone) {
            self.timers.note(&mut connection.link);
        }
    }

    /// Starts a send if there is something to send, and watches its progress; `true` when the peer has stalled.
    fn flush_output(&mut self, key: ConnectionKey, ring: &mut Ring) -> bool {
        let now_ms = self.now.monotonic_ms;
        // Going down waits for no peer that takes nothing.
        let patience_ms = match self.accepting {
            Accepting::Over => self.settings.write_timeout_ms.min(DRAIN_STALL_MS_MAX),
            _ => self.settings.write_timeout_ms,
        };
        let next_look = now_ms + patience_ms;
        let Some(connection) = self.connections.get_mut(key) else { return false };
        let link = &mut connection.link;
        if link.output.waits() && !ring.sending(key.0) {
            link.output.start_send(|queue: &mut VecDeque<Bytes>| ring.send(key.0, queue, SEND_BYTES_MAX));
            link.progress = ring.sent_bytes(key.0);
            link.stall_ms = u64::MAX;
        }
        // A subscriber may be slow for as long as it likes; one that is being closed may not.
        if !ring.sending(key.0) || !(link.stall_limited || link.closing.is_some()) {
            link.stall_ms = u64::MAX;
        } else if link.stall_ms == u64::MAX {
            link.stall_ms = next_look;
        } else if link.stall_ms > next_look {
            // Going down began meanwhile: patience is shorter now.
            link.stall_ms = next_look;
        } else if link.stall_ms <= now_ms {
            let progress = ring.sent_bytes(key.0);
            if progress == link.progress {
                self.counters.write_stalls += 1;
                return true;
            }
            link.progress = progress;
            link.stall_ms = next_look;
        }
        false
    }

    fn cut(&mut self, key: ConnectionKey, ring: &mut Ring) {
        ring.abort(key.0);
        self.leave(key);
        if let Some(connection) = self.connections.get_mut(key) {
            connection.link.gone = true;
        }
    }

    /// Takes the next step of a connection that is ending, once its output is with the kernel.
    fn flush_ending(&mut self, key: ConnectionKey, ring: &mut Ring) {
        let (now_ms, goes_down) = (self.now.monotonic_ms, self.accepting == Accepting::Over);
        let Some(connection) = self.connections.get_mut(key) else { return };
        let link = &mut connection.link;
        let Some(how) = link.closing else { return };
        if link.output.waits() || (ring.sending(key.0) && !link.abandoned) {
            return;
        }
        if how == Close::Linger && !link.input_ended {
            if !link.lingering {
                link.lingering = true;
                // Going down waits no longer for a peer to hang up than for one that takes nothing.
                let patience_ms = if goes_down { LINGER_MS_MAX.min(DRAIN_STALL_MS_MAX) } else { LINGER_MS_MAX };
                link.deadline_ms = now_ms + patience_ms;
                ring.shutdown_write(key.0);
                ring.resume_receive(key.0);
                self.leave(key);
            }
            return;
        }
        link.gone = true;
        ring.close(key.0);
        self.leave(key);
    }
}
