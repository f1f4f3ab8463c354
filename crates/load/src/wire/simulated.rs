//! A network and a target of virtual time, for tests: nothing waits, and every nanosecond is known.
//!
//! The methods of [`Wire`] are never inlined: `scripts/loop-cost.sh` takes what happens in them out of the loop's cost,
//! which is why none of them calls another.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    ops::RangeInclusive,
};

use rustix::io::Errno;

use super::{Event, Received, Route, SlotId, Waited, Wake, Wire};

/// What a connection attempt comes to.
pub enum Attempt {
    /// Made after so long; at once after no time, as over loopback.
    Made(u64),
    /// Made after so long, and reset by the target before anybody could look.
    MadeAndReset(u64),
    /// Made after so long, and closed by the target so long after that.
    MadeAndClosed(u64, u64),
    /// Refused by the kernel at once.
    FailsAtOnce(Errno),
    /// Refused after so long.
    FailsAfter(u64, Errno),
    /// Nothing is ever heard.
    Silence,
}

/// What a target does about a request.
#[derive(Debug, Clone)]
pub enum Deed {
    /// Sends bytes.
    Send(Vec<u8>),
    /// Closes.
    Close,
    /// Resets.
    Reset,
}

/// A target: what it does about connection attempts and requests.
pub trait Target {
    /// The n-th connection attempt of the trial.
    fn attempt(&mut self, n: u64, slot: SlotId) -> Attempt {
        let _ = (n, slot);
        Attempt::Made(10_000)
    }

    /// The bytes of a request, as it arrived.
    fn took(&mut self, request: &[u8]) {
        let _ = request;
    }

    /// The n-th request of the trial, arrived at `now_ns`: what is done, and when.
    fn request(&mut self, n: u64, now_ns: u64) -> Vec<(u64, Deed)>;
}

/// Virtual sockets.
pub struct SimulatedWire<T> {
    target: T,
    request_bytes: usize,
    now_ns: u64,
    slots: Vec<Socket>,
    agenda: BinaryHeap<Reverse<(u64, u64, SlotId, u64)>>,
    deeds: Vec<Option<Happening>>,
    attempts: u64,
    requests: u64,
    /// Most bytes taken by one send.
    pub window: usize,
    /// What sending costs the loop, in nanoseconds.
    pub send_cost_ns: u64,
    /// When the loop is stopped, and for how long: at the next wait, or behind the next bytes sent.
    pub stops: VecDeque<(u64, u64)>,
    /// Stops hit the loop behind a send.
    pub stops_in_send: bool,
    /// The last byte of each answer comes so long before one that it must wait for, in nanoseconds.
    pub hole_ns: u64,
    /// When what was read last could be read.
    readable_ns: u64,
}

enum Happening {
    Made,
    Refused(Errno),
    Deed(Deed),
}

#[derive(Default)]
struct Socket {
    /// Counts connections, so that what was meant for an old one is dropped.
    incarnation: u64,
    open: bool,
    made: bool,
    refused: Option<Errno>,
    /// Bytes, each with the time it came.
    inbox: VecDeque<(u8, u64)>,
    ended: bool,
    reset: bool,
    outgoing: Vec<u8>,
    generation: Option<u32>,
}

impl<T: Target> SimulatedWire<T> {
    /// A wire to `target`, which takes requests of `request_bytes` bytes.
    pub fn new(target: T, request_bytes: usize, slots: usize) -> Self {
        Self {
            target,
            request_bytes,
            now_ns: 1_000_000_000,
            slots: (0..slots).map(|_| Socket::default()).collect(),
            agenda: BinaryHeap::new(),
            deeds: Vec::new(),
            attempts: 0,
            requests: 0,
            window: usize::MAX,
            send_cost_ns: 0,
            stops: VecDeque::new(),
            stops_in_send: false,
            hole_ns: 0,
            readable_ns: 0,
        }
    }

    fn plan(&mut self, at_ns: u64, slot: SlotId, happening: Happening) {
        let index = self.deeds.len() as u64;
        self.deeds.push(Some(happening));
        let incarnation = self.slots[slot as usize].incarnation;
        self.agenda.push(Reverse((at_ns, index, slot, incarnation)));
    }

    /// Lets everything happen that is due by now.
    fn catch_up(&mut self, events: &mut Vec<Event>) {
        while let Some(&Reverse((at_ns, index, slot, incarnation))) = self.agenda.peek()
            && at_ns <= self.now_ns
        {
            self.agenda.pop();
            let happening = self.deeds[index as usize].take();
            let current = self.slots[slot as usize].incarnation == incarnation;
            if let (true, Some(happening)) = (current, happening) {
                self.happen(slot, happening, at_ns, events);
            }
        }
    }

    /// The loop is stopped if that is due.
    fn stop_if_due(&mut self) {
        while let Some(&(at_ns, for_ns)) = self.stops.front()
            && at_ns <= self.now_ns
        {
            self.stops.pop_front();
            self.now_ns += for_ns;
        }
    }

    fn happen(&mut self, slot: SlotId, happening: Happening, at_ns: u64, events: &mut Vec<Event>) {
        let socket = &mut self.slots[slot as usize];
        let mut event = Event { slot, generation: 0, readable: false, writable: false, closed: false };
        match happening {
            Happening::Made => {
                socket.made = true;
                event.writable = true;
            }
            Happening::Refused(errno) => {
                socket.refused = Some(errno);
                (event.writable, event.closed, event.readable) = (true, true, true);
            }
            Happening::Deed(Deed::Send(bytes)) => {
                socket.inbox.extend(bytes.into_iter().map(|byte| (byte, at_ns)));
                event.readable = true;
            }
            Happening::Deed(Deed::Close) => {
                socket.ended = true;
                (event.closed, event.readable) = (true, true);
            }
            Happening::Deed(Deed::Reset) => {
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
        let incarnation = self.slots[slot as usize].incarnation;
        self.slots[slot as usize] = Socket { incarnation: incarnation + 1, open: true, ..Socket::default() };
        match self.target.attempt(n, slot) {
            Attempt::Made(after_ns) => {
                self.slots[slot as usize].made = after_ns == 0;
                self.plan(self.now_ns + after_ns, slot, Happening::Made);
            }
            Attempt::MadeAndReset(after_ns) => {
                self.plan(self.now_ns + after_ns, slot, Happening::Made);
                self.plan(self.now_ns + after_ns, slot, Happening::Deed(Deed::Reset));
            }
            Attempt::MadeAndClosed(after_ns, closed_ns) => {
                self.plan(self.now_ns + after_ns, slot, Happening::Made);
                self.plan(self.now_ns + after_ns + closed_ns, slot, Happening::Deed(Deed::Close));
            }
            Attempt::FailsAfter(after_ns, errno) => {
                self.plan(self.now_ns + after_ns, slot, Happening::Refused(errno));
            }
            Attempt::Silence => {}
            Attempt::FailsAtOnce(errno) => {
                self.slots[slot as usize].open = false;
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
    fn send(&mut self, slot: SlotId, bytes: &[u8]) -> Result<usize, Errno> {
        let socket = &mut self.slots[slot as usize];
        assert!(socket.open, "sending on a closed slot");
        if let Some(errno) = socket.refused {
            return Err(errno);
        }
        if socket.reset {
            return Err(Errno::PIPE);
        }
        if !socket.made {
            return Err(Errno::AGAIN);
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
            self.target.took(&request);
            let n = self.requests;
            self.requests += 1;
            for (at_ns, deed) in self.target.request(n, sent_ns) {
                self.plan(at_ns.max(sent_ns + 1), slot, Happening::Deed(deed));
            }
        }
        Ok(taken)
    }

    #[inline(never)]
    fn receive(&mut self, slot: SlotId, buffer: &mut [u8], _: bool) -> Result<Received, Errno> {
        let socket = &mut self.slots[slot as usize];
        assert!(socket.open, "reading from a closed slot");
        if socket.reset {
            return Err(Errno::CONNRESET);
        }
        let n = socket.inbox.len().min(buffer.len());
        let mut arrived_ns = None;
        for (to, (from, at_ns)) in buffer.iter_mut().zip(socket.inbox.drain(..n)) {
            *to = from;
            self.readable_ns = at_ns;
            arrived_ns = Some(at_ns.saturating_sub(self.hole_ns));
        }
        if n == 0 && !socket.ended { Err(Errno::AGAIN) } else { Ok(Received { bytes: n, arrived_ns }) }
    }

    #[inline(never)]
    fn readable_for_ns(&self, _: SlotId) -> Option<RangeInclusive<u64>> {
        // As a kernel that counts in milliseconds.
        let tick_ns = 1_000_000;
        let for_ns = (self.now_ns - self.readable_ns) / tick_ns * tick_ns;
        (self.hole_ns > 0).then(|| for_ns.saturating_sub(tick_ns)..=for_ns + 2 * tick_ns)
    }

    #[inline(never)]
    fn handshake_ns(&self, _: SlotId) -> Option<u64> {
        None
    }

    #[inline(never)]
    fn close(&mut self, slot: SlotId) {
        let socket = &mut self.slots[slot as usize];
        socket.open = false;
        socket.incarnation += 1;
    }

    #[inline(never)]
    fn wait(&mut self, until_ns: Option<u64>, wake: Wake, events: &mut Vec<Event>) -> Waited {
        let began_ns = self.now_ns;
        if let Wake::Gathering(ns) = wake {
            self.now_ns = until_ns.map_or(began_ns + ns, |until| until.clamp(began_ns, began_ns + ns));
        }
        let until_ns = until_ns.unwrap_or(began_ns + 50_000_000).max(self.now_ns);
        self.catch_up(events);
        if events.is_empty() {
            let next_ns = self.agenda.peek().map_or(u64::MAX, |&Reverse((at_ns, ..))| at_ns);
            self.now_ns = until_ns.min(next_ns);
            self.catch_up(events);
        }
        if !self.stops_in_send {
            self.stop_if_due();
            self.catch_up(events);
        }
        let late_ns = if until_ns > began_ns { self.now_ns.saturating_sub(until_ns) } else { 0 };
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
