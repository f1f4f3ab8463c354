//! From bytes in the kernel to answered requests.

use http1::Response;
use record::{ErrorClass, Fault};
use rustix::io::Errno;

use super::{BUFFER_BYTES, Worker};
use crate::{
    absence::SHORTEST_NS,
    book::Arrival,
    failure::{parse_failure, stream_failure},
    source::Source,
    wire::{Received, SlotId, Wire},
};

/// Answers with at least so much body still to come are dropped in the kernel, unread.
const DISCARD_BYTES: u64 = 8 * 1024;
/// When bodies are that long, the first read takes the head and little more.
const HEAD_READ_BYTES: usize = 4 * 1024;

impl<W: Wire> Worker<W> {
    /// Reads what has come, ends the requests it answers, and only then lets the next ones begin: bytes
    /// beyond the last answer must be seen as such.
    pub(super) fn read(&mut self, id: SlotId, to_the_end: bool) {
        let mut answered = 0;
        let mut arrival;
        let mut end = None;
        loop {
            let fresh = !self.slots[id as usize].reader.in_message();
            let room = if self.long_bodies && fresh { HEAD_READ_BYTES } else { BUFFER_BYTES };
            let received = self.wire.receive(id, &mut self.buffer[..room], false);
            arrival = self.arrival(id, received.ok());
            match received {
                Ok(Received { bytes: 0, .. }) => {
                    end = Some(self.peer_closed(id, &mut answered, arrival));
                    break;
                }
                Ok(Received { bytes, .. }) => {
                    self.book.received_bytes(bytes);
                    end = self.take_in(id, bytes, &mut answered, arrival);
                    // A short read has taken everything there was (epoll(7)), unless the end is to come.
                    if end.is_some() || self.closes_now(id) || (bytes < room && !to_the_end) {
                        break;
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(errno) => {
                    end = Some(stream_failure(errno));
                    break;
                }
            }
            if self.discard_body(id, &mut answered, &mut arrival) == Drained::Yes && !to_the_end {
                break;
            }
            if self.closes_now(id) {
                break;
            }
        }
        self.after_reading(id, answered, end, arrival.read_ns);
    }

    /// When what was just read was there; an error or an end has no stamp.
    #[inline]
    fn arrival(&mut self, id: SlotId, received: Option<Received>) -> Arrival {
        let read_ns = self.clock();
        let arrived_ns = received.and_then(|received| received.arrived_ns);
        self.is_stamped = arrived_ns.is_some();
        match arrived_ns {
            Some(ns) if read_ns.saturating_sub(ns) >= SHORTEST_NS => self.lay_long(id, read_ns, read_ns - ns),
            Some(ns) => Arrival { ns: ns.min(read_ns), earlier_ns: 0, read_ns },
            None => Arrival { ns: read_ns, earlier_ns: self.unseen_ns(read_ns), read_ns },
        }
    }

    /// What was read came so long ago: the loop was away, or the bytes had to wait for others that were lost on the way.
    #[cold]
    fn lay_long(&mut self, id: SlotId, read_ns: u64, came_before_ns: u64) -> Arrival {
        let readable_for_ns = self.wire.readable_for_ns(id).unwrap_or(came_before_ns..=came_before_ns);
        if *readable_for_ns.start() == 0 {
            return Arrival { ns: read_ns, earlier_ns: self.unseen_ns(read_ns).min(came_before_ns), read_ns };
        }
        let lay_ns = came_before_ns.min(*readable_for_ns.end());
        self.was_away(read_ns, lay_ns);
        Arrival { ns: read_ns - lay_ns, earlier_ns: 0, read_ns }
    }

    /// How long something without a stamp of its own may have lain there at `at_ns`: where the loop was not away, none.
    fn unseen_ns(&self, at_ns: u64) -> u64 {
        let was_away = self.absences.counted_ns() > self.polled_ns;
        if was_away { at_ns.saturating_sub(self.polled_ns) } else { 0 }
    }

    /// Feeds what was received to the reader. Gives the failure that ends the connection, if one does.
    #[inline]
    fn take_in(
        &mut self,
        id: SlotId,
        received: usize,
        answered: &mut u32,
        arrival: Arrival,
    ) -> Option<ErrorClass> {
        let mut position = 0;
        while position < received {
            let slot = &mut self.slots[id as usize];
            if slot.requests.front().is_none_or(|request| request.sent_ns == 0) {
                return Some(ErrorClass::Unsolicited);
            }
            if !slot.reader.in_message() {
                slot.first_byte_ns = arrival.ns;
            }
            let bytes = &self.buffer[position..received];
            let fed = match &mut self.events {
                None => slot.reader.feed_known(bytes, self.to_head, &mut self.known),
                Some(events) => slot.reader.feed(bytes, self.to_head, &mut events.ear(id, &self.plan.expect)),
            };
            match fed {
                Ok(fed) => {
                    position += fed.used;
                    if let Some(response) = fed.done {
                        // The stamp is that of the last byte read: an answer before others may have come earlier.
                        let is_last = position == received;
                        let earlier_ns =
                            if is_last { arrival.earlier_ns } else { self.unseen_ns(arrival.ns) };
                        *answered += self.answered(id, &response, Arrival { earlier_ns, ..arrival });
                    } else {
                        self.lay_unread(id, arrival);
                    }
                }
                Err(error) => return Some(parse_failure(&error)),
            }
        }
        None
    }

    /// The connection has brought its last answer: its end need not be waited for.
    fn closes_now(&self, id: SlotId) -> bool {
        let slot = &self.slots[id as usize];
        slot.closes && slot.requests.is_empty()
    }

    /// A part of an answer lay unread, and the rest may have waited for room to be sent.
    #[inline]
    fn lay_unread(&mut self, id: SlotId, arrival: Arrival) {
        if let Some(request) = self.slots[id as usize].requests.front_mut() {
            request.own_service_ns += (arrival.read_ns - arrival.ns).max(arrival.earlier_ns);
        }
    }

    /// Lets the kernel drop the rest of a body that nobody reads.
    fn discard_body(&mut self, id: SlotId, answered: &mut u32, arrival: &mut Arrival) -> Drained {
        let left = self.slots[id as usize].reader.discardable();
        if left < DISCARD_BYTES {
            return Drained::Perhaps;
        }
        let most = left.min(BUFFER_BYTES as u64) as usize;
        match self.wire.receive(id, &mut self.buffer[..most], true) {
            // The next read meets the same end or error, and names it.
            Ok(Received { bytes: 0, .. }) => Drained::Perhaps,
            Ok(received) => {
                let dropped = received.bytes;
                self.book.received_bytes(dropped);
                let done = self.slots[id as usize].reader.discarded(dropped as u64);
                *arrival = self.arrival(id, Some(received));
                match done {
                    Some(response) => *answered += self.answered(id, &response, *arrival),
                    None => self.lay_unread(id, *arrival),
                }
                let awaited = done.is_none() || !self.slots[id as usize].requests.is_empty();
                if awaited && dropped == most { Drained::Perhaps } else { Drained::Yes }
            }
            Err(Errno::AGAIN) => Drained::Yes,
            Err(_) => Drained::Perhaps,
        }
    }

    /// The oldest request of a slot has its answer. Gives how many requests that ended: none if it is to be made
    /// again.
    #[inline]
    fn answered(&mut self, id: SlotId, response: &Response, arrival: Arrival) -> u32 {
        let slot = &mut self.slots[id as usize];
        // take_in saw that there is one, and sent.
        let Some(request) = slot.requests.pop_front() else { return 0 };
        if slot.unsent as usize > slot.requests.len() {
            // Answered before it was wholly sent: the rest of it can no longer be sent on its own.
            slot.unsent = slot.requests.len() as u32;
            slot.reader = http1::ResponseReader::new(http1::Limits::default());
            slot.closes = true;
        }
        slot.last_answer_ns = arrival.ns;
        if !self.has_answers {
            self.has_answers = true;
            self.absences.first_answered(arrival.read_ns, self.under_way());
        }
        let slot = &mut self.slots[id as usize];
        // One that was not full had room before.
        if slot.requests.len() + 1 >= self.plan.pipeline as usize {
            slot.free_since_ns = arrival.ns;
        }
        slot.closes |= !response.keep_alive || !self.plan.keepalive;
        self.long_bodies = response.body_bytes >= 2 * DISCARD_BYTES;
        let expected = self.plan.expect.contains(response.status);
        let first_byte_ns = slot.first_byte_ns;
        if self.events.is_some()
            && self.event_is_made_again(id, &request, response, expected, arrival.read_ns)
        {
            return 0;
        }
        let took_ns = arrival.ns.saturating_sub(request.sent_ns);
        self.usual_ns = self.usual_ns - self.usual_ns / 64 + took_ns / 64;
        self.slots[id as usize].cycles.answered(arrival.ns.saturating_sub(request.intended_ns));
        self.book.answered(&request, response, expected, first_byte_ns, arrival);
        if let Some(Fault::Burn { ns }) = self.plan.fault {
            self.wire.burn(ns);
        }
        1
    }

    /// The peer sent its end. Gives what that means for the requests still on the connection.
    fn peer_closed(&mut self, id: SlotId, answered: &mut u32, arrival: Arrival) -> ErrorClass {
        let slot = &mut self.slots[id as usize];
        match slot.reader.eof() {
            Ok(Some(response)) => {
                *answered += self.answered(id, &response, arrival);
                ErrorClass::ClosedEarly
            }
            Ok(None) => ErrorClass::ClosedEarly,
            Err(_) => ErrorClass::Truncated,
        }
    }

    fn after_reading(&mut self, id: SlotId, answered: u32, end: Option<ErrorClass>, now_ns: u64) {
        let slot = &mut self.slots[id as usize];
        let end = end.or(slot.closes.then_some(ErrorClass::ClosedEarly));
        let Some(class) = end else {
            if answered > 0 {
                self.ended(id, answered, 0, now_ns);
            }
            return;
        };
        let unused = slot.is_unused() && self.sending && matches!(self.source, Source::Open(_));
        // Not made anew before it is needed: a target that takes back what it accepted would be asked for ever.
        slot.reopens &= !unused;
        // An end between two answers is the peer's right (it may close an idle connection), and bytes without a
        // request are no request's failure but the connection's; as is the end of one that was to be held open
        // and never carried anything.
        if class == ErrorClass::Unsolicited && slot.requests.is_empty() {
            self.book.connection_error(class);
        } else if unused {
            self.book.connection_error(ErrorClass::ClosedUnused);
        }
        self.connection_lost(id, class, answered, now_ns);
    }
}

/// Whether a socket has given everything it had.
#[derive(Debug, PartialEq, Eq)]
enum Drained {
    Yes,
    Perhaps,
}
