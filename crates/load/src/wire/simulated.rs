//! A network and a target on virtual time, for tests: nothing really waits, and every event has an exact time.
//!
//! The methods of [`Wire`] are never inlined and never call each other, so that `scripts/loop-cost.sh` can subtract their
//! cost from the loop's.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    ops::RangeInclusive,
};

use rustix::io::Errno;

use super::{ConnectionError, Event, Received, Result, Route, SlotId, Waited, Wake, Wire};

/// The outcome of a connection attempt. Times are in nanoseconds after its start.
pub enum Attempt {
    /// The connection opens after this time; 0 opens it at once, as over loopback.
    Opens(u64),
    /// The connection opens after this time, and the target resets it at the same time.
    OpensAndResets(u64),
    /// The connection opens after the first time, and the target closes it after the second, counted from there.
    OpensAndCloses(u64, u64),
    /// The kernel refuses the attempt at once.
    FailsAtOnce(Errno),
    /// The attempt fails after this time.
    FailsAfter(u64, Errno),
    /// The attempt gets no response.
    Silence,
}

/// An action of a target on a connection.
#[derive(Debug, Clone)]
pub enum Action {
    /// Sends bytes.
    Send(Vec<u8>),
    /// Closes the connection.
    Close,
    /// Resets the connection.
    Reset,
}

/// A simulated target.
pub trait Target {
    /// The outcome of the trial's n-th connection attempt.
    fn attempt(&mut self, n: u64, slot: SlotId) -> Attempt {
        let _ = (n, slot);
        Attempt::Opens(10_000)
    }

    /// Receives the bytes of a request before [`Self::request`] is called.
    fn receive(&mut self, request: &[u8]) {
        let _ = request;
    }

    /// The actions on the trial's n-th request, which arrived at `now_ns`, each with its time.
    fn request(&mut self, n: u64, now_ns: u64) -> Vec<(u64, Action)>;
}

/// A wire to a simulated target.
pub struct SimulatedWire<T> {
    target: T,
    request_bytes: usize,
    now_ns: u64,
    slots: Vec<Socket>,
    /// Pending events: time, index in `network_events`, slot and incarnation of each.
    agenda: BinaryHeap<Reverse<(u64, u64, SlotId, u64)>>,
    network_events: Vec<Option<NetworkEvent>>,
    attempts: u64,
    requests: u64,
    /// Maximum number of bytes that one send accepts.
    pub window: usize,
    /// Time that each send takes, in nanoseconds.
    pub send_cost_ns: u64,
    /// Time for which opening a connection occupies the loop, in nanoseconds.
    pub connect_cost_ns: u64,
    /// Stops of the loop: earliest time and length of each. A stop takes effect in the next wait, or after the next send.
    pub stops: VecDeque<(u64, u64)>,
    /// Stops take effect after a send, not in a wait.
    pub stops_in_send: bool,
    /// Time between the arrival of an answer's last byte and its becoming readable, in nanoseconds, because an earlier byte was
    /// lost.
    pub hole_ns: u64,
    /// When the last bytes that were read became readable.
    readable_ns: u64,
}

enum NetworkEvent {
    Opened,
    Refused(Errno),
    Action(Action),
}

#[derive(Default)]
struct Socket {
    /// Counts the slot's connections, so that events of an earlier connection are dropped.
    incarnation: u64,
    exists: bool,
    open: bool,
    opened_ns: u64,
    refused: Option<Errno>,
    /// Received bytes, each with its time.
    inbox: VecDeque<(u8, u64)>,
    ended: bool,
    reset: bool,
    outgoing: Vec<u8>,
    generation: Option<u32>,
}

impl<T: Target> SimulatedWire<T> {
    /// A wire to `target`. Each request has `request_bytes` bytes.
    pub fn new(target: T, request_bytes: usize, slots: usize) -> Self {
        Self {
            target,
            request_bytes,
            now_ns: 1_000_000_000,
            slots: (0..slots).map(|_| Socket::default()).collect(),
            agenda: BinaryHeap::new(),
            network_events: Vec::new(),
            attempts: 0,
            requests: 0,
            window: usize::MAX,
            send_cost_ns: 0,
            connect_cost_ns: 0,
            stops: VecDeque::new(),
            stops_in_send: false,
            hole_ns: 0,
            readable_ns: 0,
        }
    }

    fn schedule(&mut self, at_ns: u64, slot: SlotId, event: NetworkEvent) {
        let index = self.network_events.len() as u64;
        self.network_events.push(Some(event));
        let incarnation = self.slots[slot as usize].incarnation;
        self.agenda.push(Reverse((at_ns, index, slot, incarnation)));
    }

    /// The time since `at_ns`, as a kernel that counts in milliseconds reports it.
    fn since_ns(&self, at_ns: u64) -> RangeInclusive<u64> {
        let tick_ns = 1_000_000;
        let for_ns = (self.now_ns - at_ns) / tick_ns * tick_ns;
        for_ns.saturating_sub(tick_ns)..=for_ns + 2 * tick_ns
    }

    /// Applies all events that are due.
    fn apply_due(&mut self, events: &mut Vec<Event>) {
        while let Some(&Reverse((at_ns, index, slot, incarnation))) = self.agenda.peek()
            && at_ns <= self.now_ns
        {
            self.agenda.pop();
            let event = self.network_events[index as usize].take();
            let is_current = self.slots[slot as usize].incarnation == incarnation;
            if let (true, Some(event)) = (is_current, event) {
                self.apply(slot, event, at_ns, events);
            }
        }
    }

    /// Stops the loop if a stop is due.
    fn stop_if_due(&mut self) {
        while let Some(&(at_ns, for_ns)) = self.stops.front()
            && at_ns <= self.now_ns
        {
            self.stops.pop_front();
            self.now_ns += for_ns;
        }
    }

    fn apply(&mut self, slot: SlotId, network_event: NetworkEvent, at_ns: u64, events: &mut Vec<Event>) {
        let socket = &mut self.slots[slot as usize];
        let mut event = Event { slot, generation: 0, readable: false, writable: false, closed: false };
        match network_event {
            NetworkEvent::Opened => {
                (socket.open, socket.opened_ns) = (true, at_ns);
                event.writable = true;
            }
            NetworkEvent::Refused(errno) => {
                socket.refused = Some(errno);
                (event.writable, event.closed, event.readable) = (true, true, true);
            }
            NetworkEvent::Action(Action::Send(bytes)) => {
                socket.inbox.extend(bytes.into_iter().map(|byte| (byte, at_ns)));
                event.readable = true;
            }
            NetworkEvent::Action(Action::Close) => {
                socket.ended = true;
                (event.closed, event.readable) = (true, true);
            }
            NetworkEvent::Action(Action::Reset) => {
                socket.reset = true;
                (event.closed, event.readable, event.writable) = (true, true, true);
            }
        }
        if let Some(generation) = socket.generation {
            events.push(Event { generation, ..event });
        }
    }
}

impl<T: Target> Wire for SimulatedWire<T> {
    #[inline(never)]
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    #[inline(never)]
    fn connect(&mut self, slot: SlotId, _: &Route) -> Result<(), Errno> {
        let n = self.attempts;
        self.attempts += 1;
        self.now_ns += self.connect_cost_ns;
        let incarnation = self.slots[slot as usize].incarnation;
        self.slots[slot as usize] =
            Socket { incarnation: incarnation + 1, exists: true, ..Socket::default() };
        match self.target.attempt(n, slot) {
            Attempt::Opens(after_ns) => {
                let socket = &mut self.slots[slot as usize];
                (socket.open, socket.opened_ns) = (after_ns == 0, self.now_ns + after_ns);
                self.schedule(self.now_ns + after_ns, slot, NetworkEvent::Opened);
            }
            Attempt::OpensAndResets(after_ns) => {
                self.schedule(self.now_ns + after_ns, slot, NetworkEvent::Opened);
                self.schedule(self.now_ns + after_ns, slot, NetworkEvent::Action(Action::Reset));
            }
            Attempt::OpensAndCloses(after_ns, closed_ns) => {
                self.schedule(self.now_ns + after_ns, slot, NetworkEvent::Opened);
                self.schedule(self.now_ns + after_ns + closed_ns, slot, NetworkEvent::Action(Action::Close));
            }
            Attempt::FailsAfter(after_ns, errno) => {
                self.schedule(self.now_ns + after_ns, slot, NetworkEvent::Refused(errno));
            }
            Attempt::Silence => {}
            Attempt::FailsAtOnce(errno) => {
                self.slots[slot as usize].exists = false;
                return Err(errno);
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn watch(&mut self, slot: SlotId, generation: u32, _: bool) -> Result<(), Errno> {
        self.slots[slot as usize].generation = Some(generation);
        Ok(())
    }

    #[inline(never)]
    fn connect_result(&mut self, slot: SlotId) -> Result<(), Errno> {
        self.slots[slot as usize].refused.map_or(Ok(()), Err)
    }

    #[inline(never)]
    fn send(&mut self, slot: SlotId, bytes: &[u8]) -> Result<usize> {
        let socket = &mut self.slots[slot as usize];
        assert!(socket.exists, "sending on a closed slot");
        if let Some(errno) = socket.refused {
            return Err(errno.into());
        }
        if socket.reset {
            return Err(Errno::PIPE.into());
        }
        if !socket.open {
            return Err(ConnectionError::AGAIN);
        }
        let taken = bytes.len().min(self.window);
        socket.outgoing.extend_from_slice(&bytes[..taken]);
        self.now_ns += self.send_cost_ns;
        let sent_ns = self.now_ns;
        if self.stops_in_send {
            self.stop_if_due();
        }
        while self.slots[slot as usize].outgoing.len() >= self.request_bytes {
            let request: Vec<u8> = self.slots[slot as usize].outgoing.drain(..self.request_bytes).collect();
            self.target.receive(&request);
            let n = self.requests;
            self.requests += 1;
            for (at_ns, action) in self.target.request(n, sent_ns) {
                self.schedule(at_ns.max(sent_ns + 1), slot, NetworkEvent::Action(action));
            }
        }
        Ok(taken)
    }

    #[inline(never)]
    fn receive(&mut self, slot: SlotId, buffer: &mut [u8], _: bool) -> Result<Received> {
        let socket = &mut self.slots[slot as usize];
        assert!(socket.exists, "reading from a closed slot");
        if socket.reset {
            return Err(Errno::CONNRESET.into());
        }
        let n = socket.inbox.len().min(buffer.len());
        let mut received_ns = None;
        for (to, (from, at_ns)) in buffer.iter_mut().zip(socket.inbox.drain(..n)) {
            *to = from;
            self.readable_ns = at_ns;
            received_ns = Some(at_ns.saturating_sub(self.hole_ns));
        }
        if n == 0 && !socket.ended {
            return Err(ConnectionError::AGAIN);
        }
        Ok(Received { bytes: n, may_have_more: n == buffer.len(), received_ns })
    }

    #[inline(never)]
    fn readable_for_ns(&self, _: SlotId) -> Option<RangeInclusive<u64>> {
        (self.hole_ns > 0).then(|| self.since_ns(self.readable_ns))
    }

    #[inline(never)]
    fn open_for_ns(&self, slot: SlotId) -> Option<RangeInclusive<u64>> {
        Some(self.since_ns(self.slots[slot as usize].opened_ns))
    }

    #[inline(never)]
    fn round_trip_ns(&self, _: SlotId) -> Option<u64> {
        None
    }

    #[inline(never)]
    fn close(&mut self, slot: SlotId) {
        let socket = &mut self.slots[slot as usize];
        socket.exists = false;
        socket.incarnation += 1;
    }

    #[inline(never)]
    fn wait(&mut self, until_ns: Option<u64>, wake: Wake, events: &mut Vec<Event>) -> Waited {
        let began_ns = self.now_ns;
        if let Wake::Batched(ns) = wake {
            self.now_ns = until_ns.map_or(began_ns + ns, |until| until.clamp(began_ns, began_ns + ns));
        }
        let until_ns = until_ns.unwrap_or(began_ns + 50_000_000).max(self.now_ns);
        self.apply_due(events);
        if events.is_empty() {
            let next_ns = self.agenda.peek().map_or(u64::MAX, |&Reverse((at_ns, ..))| at_ns);
            self.now_ns = until_ns.min(next_ns);
            self.apply_due(events);
        }
        if !self.stops_in_send {
            self.stop_if_due();
            self.apply_due(events);
        }
        let late_ns = self.now_ns.saturating_sub(until_ns.max(began_ns));
        Waited { began_ns, ended_ns: self.now_ns, late_ns }
    }

    fn waited_ns(&self) -> u64 {
        0
    }

    fn spun_ns(&self) -> u64 {
        0
    }

    #[inline(never)]
    fn burn(&mut self, ns: u64) {
        self.now_ns += ns;
    }
}
