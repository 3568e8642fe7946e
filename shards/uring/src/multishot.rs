//! An operation that goes on until it is told to stop, as a state machine. Lives on the core of its ring.

/// Accept and receive share these rules: one operation in flight at most, a cancel only for one that
/// is in flight, and a new one only after the old one has ended.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Multishot {
    wanted: bool,
    in_flight: bool,
    cancelling: bool,
}

impl Multishot {
    /// Switched on, not yet armed.
    pub(crate) fn wanted() -> Multishot {
        Multishot { wanted: true, ..Multishot::default() }
    }

    /// Switches on. Arm when [`Multishot::must_arm`] says so; otherwise the end of the old one decides.
    pub(crate) fn resume(&mut self) {
        self.wanted = true;
    }

    /// Switches off; true when the caller must queue a cancel.
    #[must_use]
    pub(crate) fn pause(&mut self) -> bool {
        self.wanted = false;
        let cancel = self.in_flight && !self.cancelling;
        self.cancelling |= cancel;
        cancel
    }

    /// Whether it is switched on and not in flight.
    pub(crate) fn must_arm(self) -> bool {
        self.wanted && !self.in_flight
    }

    /// The operation has been queued.
    pub(crate) fn armed(&mut self) {
        debug_assert!(!self.in_flight, "two operations of one kind in flight");
        self.in_flight = true;
        self.cancelling = false;
    }

    /// Its last completion has been taken.
    pub(crate) fn ended(&mut self) {
        self.in_flight = false;
        self.cancelling = false;
    }

    /// The cancel did not find the operation; true when the caller must queue another one.
    ///
    /// The completion of an operation that has ended comes before that of the cancel which missed it.
    /// One that is still in flight was therefore between two places of the kernel, and is looked for again.
    #[must_use]
    pub(crate) fn cancel_missed(&mut self) -> bool {
        let again = self.in_flight && self.cancelling && !self.wanted;
        self.cancelling = again;
        again
    }

    /// Whether the kernel still has it.
    pub(crate) fn in_flight(self) -> bool {
        self.in_flight
    }
}

#[cfg(test)]
mod tests {
    use super::Multishot;

    #[test]
    fn resume_while_the_cancel_is_in_flight_arms_after_the_end() {
        let mut receive = Multishot::wanted();
        assert!(receive.must_arm());
        receive.armed();
        assert!(receive.pause());
        assert!(!receive.pause(), "one cancel is enough");
        receive.resume();
        assert!(!receive.must_arm(), "the old one has not ended");
        receive.ended();
        assert!(receive.must_arm());
    }

    #[test]
    fn a_cancel_that_missed_is_repeated_only_while_needed() {
        let mut receive = Multishot::wanted();
        receive.armed();
        assert!(receive.pause());
        assert!(receive.cancel_missed());
        receive.resume();
        assert!(!receive.cancel_missed(), "it is wanted again");
        assert!(receive.pause(), "and can be cancelled again");
        receive.ended();
        assert!(!receive.cancel_missed(), "it is over");
    }

    #[test]
    fn pausing_what_is_not_in_flight_cancels_nothing() {
        let mut accept = Multishot::wanted();
        assert!(!accept.pause());
        assert!(!accept.must_arm());
    }
}
