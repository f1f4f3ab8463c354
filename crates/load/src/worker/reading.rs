//! Reading: from bytes in the kernel to answered requests.

use http1::Response;
use record::{ErrorClass, Fault};

use super::{BUFFER_BYTES, Worker};
use crate::{
    absence::MIN_ABSENCE_NS,
    exchange::{Exchange, Judgement},
    failure::{parse_cause, parse_failure, stream_failure},
    recorder::ReceiveTime,
    wire::{ConnectionError, Received, SlotId, Wire},
};

/// Shortest remaining body that is dropped in the kernel instead of being read, in bytes.
const MIN_DISCARD_BYTES: u64 = 8 * 1024;
/// If bodies are dropped, the first read takes only the head and little more.
const HEAD_READ_BYTES: usize = 4 * 1024;

impl<W: Wire, X: Exchange> Worker<W, X> {
    /// Reads the available bytes and ends the answered requests. The next requests begin only afterwards, so that bytes after
    /// the last answer are recognised as unsolicited.
    pub(super) fn read(&mut self, id: SlotId, to_the_end: bool) {
        let mut answered = 0;
        let mut time;
        let mut end = None;
        loop {
            let fresh = !self.slots[id as usize].reader.in_message();
            let room =
                if W::DISCARDS && self.has_long_bodies && fresh { HEAD_READ_BYTES } else { BUFFER_BYTES };
            let received = self.wire.receive(id, &mut self.buffer[..room], false);
            time = self.receive_time(id, received.ok());
            match received {
                Ok(Received { bytes: 0, .. }) => {
                    end = Some(self.peer_closed(id, &mut answered, time));
                    break;
                }
                Ok(Received { bytes, may_have_more, .. }) => {
                    self.recorder.received_bytes(bytes);
                    end = self.parse_received(id, bytes, &mut answered, time);
                    if end.is_some() || self.has_last_answer(id) || (!may_have_more && !to_the_end) {
                        break;
                    }
                }
                Err(ConnectionError::AGAIN) => break,
                Err(ConnectionError::CutOff) => {
                    // The stream ended within an answer, so bytes may be missing, even if the answer ends with the stream.
                    let is_within = self.slots[id as usize].reader.in_message();
                    end = Some(if is_within { ErrorClass::Truncated } else { ErrorClass::ClosedEarly });
                    break;
                }
                Err(error) => {
                    end = Some(stream_failure(error));
                    break;
                }
            }
            if self.discard_body(id, &mut answered, &mut time) == Drained::Yes && !to_the_end {
                break;
            }
            if self.has_last_answer(id) {
                break;
            }
        }
        self.after_reading(id, answered, end, time.read_ns);
    }

    /// The receive time of the bytes that were just read. The kernel reports none for an error or an end of stream.
    #[inline]
    fn receive_time(&mut self, id: SlotId, received: Option<Received>) -> ReceiveTime {
        let read_ns = self.clock();
        let stamp_ns = received.and_then(|received| received.received_ns);
        self.has_receive_stamp = stamp_ns.is_some();
        match stamp_ns {
            Some(ns) if read_ns.saturating_sub(ns) >= MIN_ABSENCE_NS => {
                self.late_receive_time(id, read_ns, read_ns - ns)
            }
            Some(ns) => ReceiveTime { received_ns: ns.min(read_ns), uncertainty_ns: 0, read_ns },
            None => ReceiveTime { received_ns: read_ns, uncertainty_ns: self.unnoticed_ns(read_ns), read_ns },
        }
    }

    /// The receive time of bytes that the kernel received `age_ns` before they were read: either the loop was absent, or
    /// the bytes waited for a retransmission of earlier ones.
    #[cold]
    fn late_receive_time(&mut self, id: SlotId, read_ns: u64, age_ns: u64) -> ReceiveTime {
        let readable_for_ns = self.wire.readable_for_ns(id).unwrap_or(age_ns..=age_ns);
        if *readable_for_ns.start() == 0 {
            let uncertainty_ns = self.unnoticed_ns(read_ns).min(age_ns);
            return ReceiveTime { received_ns: read_ns, uncertainty_ns, read_ns };
        }
        let unread_ns = age_ns.min(*readable_for_ns.end());
        self.record_absence(read_ns, unread_ns);
        ReceiveTime { received_ns: read_ns - unread_ns, uncertainty_ns: 0, read_ns }
    }

    /// How long bytes without a receive time may have been unread at `at_ns`, in nanoseconds; 0 without an absence.
    pub(super) fn unnoticed_ns(&self, at_ns: u64) -> u64 {
        let was_away = self.absences.counted_until_ns() > self.wait_began_ns;
        if was_away { at_ns.saturating_sub(self.wait_began_ns) } else { 0 }
    }

    /// Feeds the received bytes to the reader. Returns the error that ends the connection, if any.
    #[inline]
    fn parse_received(
        &mut self,
        id: SlotId,
        received: usize,
        answered: &mut u32,
        time: ReceiveTime,
    ) -> Option<ErrorClass> {
        let mut position = 0;
        while position < received {
            let slot = &mut self.slots[id as usize];
            if slot.requests.front().is_none_or(|request| request.sent_ns == 0) {
                return Some(ErrorClass::Unsolicited);
            }
            if !slot.reader.in_message() {
                slot.first_byte_ns = time.received_ns;
            }
            let bytes = &self.buffer[position..received];
            match self.exchange.feed(id, &mut slot.reader, bytes) {
                Ok(fed) => {
                    position += fed.used;
                    if let Some(response) = fed.done {
                        // The receive time is that of the last byte read. Earlier answers may have arrived before it.
                        let is_last = position == received;
                        let uncertainty_ns =
                            if is_last { time.uncertainty_ns } else { self.unnoticed_ns(time.received_ns) };
                        *answered += self.answered(id, &response, ReceiveTime { uncertainty_ns, ..time });
                    } else {
                        self.add_unread_time(id, time);
                    }
                }
                Err(error) => {
                    let class = parse_failure(&error);
                    let bytes = &self.buffer[position..received];
                    self.recorder.caused(class, || parse_cause(&error, bytes));
                    return Some(class);
                }
            }
        }
        None
    }

    /// Whether the connection has received its last answer, so that the loop need not wait for the peer's close.
    fn has_last_answer(&self, id: SlotId) -> bool {
        let slot = &self.slots[id as usize];
        slot.closes && slot.requests.is_empty()
    }

    /// Counts the time for which a part of an answer was unread, because the sender may have waited for buffer space.
    #[inline]
    fn add_unread_time(&mut self, id: SlotId, time: ReceiveTime) {
        if let Some(request) = self.slots[id as usize].requests.front_mut() {
            request.own_service_ns += (time.read_ns - time.received_ns).max(time.uncertainty_ns);
        }
    }

    /// Makes the kernel drop the rest of a body instead of copying it.
    fn discard_body(&mut self, id: SlotId, answered: &mut u32, time: &mut ReceiveTime) -> Drained {
        let left = self.slots[id as usize].reader.discardable();
        if !W::DISCARDS || left < MIN_DISCARD_BYTES || self.exchange.reads_body(id) {
            return Drained::Perhaps;
        }
        let max_bytes = left.min(BUFFER_BYTES as u64) as usize;
        match self.wire.receive(id, &mut self.buffer[..max_bytes], true) {
            // The next read returns the same end or error, and handles it.
            Ok(Received { bytes: 0, .. }) => Drained::Perhaps,
            Ok(received) => {
                let dropped = received.bytes;
                self.recorder.received_bytes(dropped);
                let done = self.slots[id as usize].reader.discarded(dropped as u64);
                *time = self.receive_time(id, Some(received));
                match done {
                    Some(response) => *answered += self.answered(id, &response, *time),
                    None => self.add_unread_time(id, *time),
                }
                let awaits_more = done.is_none() || !self.slots[id as usize].requests.is_empty();
                if awaits_more && received.may_have_more { Drained::Perhaps } else { Drained::Yes }
            }
            Err(ConnectionError::AGAIN) => Drained::Yes,
            Err(_) => Drained::Perhaps,
        }
    }

    /// Handles the answer to the oldest request of a slot. Returns the number of requests that ended: 0 if the request is
    /// retried.
    #[inline]
    fn answered(&mut self, id: SlotId, response: &Response, time: ReceiveTime) -> u32 {
        let slot = &mut self.slots[id as usize];
        // `parse_received` has checked that a sent request waits for its answer.
        let Some(request) = slot.requests.pop_front() else { return 0 };
        if slot.unsent as usize > slot.requests.len() {
            // The answer came before the request was completely sent; the rest of the request must not be sent as a new one.
            slot.unsent = slot.requests.len() as u32;
            slot.reader = http1::ResponseReader::new(http1::Limits::default());
            slot.closes = true;
        }
        // Without a receive time, the answer may have come during the loop's absence; the user was ready from then on.
        let ready_ns = time.received_ns.saturating_sub(time.uncertainty_ns).max(request.sent_ns);
        (slot.last_answer_ns, slot.ready_ns) = (time.received_ns, ready_ns);
        if !self.has_answers {
            self.has_answers = true;
            self.absences.first_answered(time.read_ns);
        }
        let slot = &mut self.slots[id as usize];
        // A slot that was not full could already have taken a request.
        if slot.requests.len() + 1 >= self.plan.pipeline as usize {
            slot.free_since_ns = ready_ns;
        }
        slot.closes |= !response.keep_alive || !self.plan.keepalive;
        if let Some(lifetime) = &self.lifetime {
            slot.answers += 1;
            if lifetime.has_ended(slot, time.received_ns) {
                // This side closes the connection, so the next connection does not mean that the target closed this one.
                (slot.closes, slot.was_open) = (true, false);
            }
        }
        self.has_long_bodies = response.body_bytes >= 2 * MIN_DISCARD_BYTES;
        let first_byte_ns = slot.first_byte_ns;
        self.recorder.users().served(&request, first_byte_ns, ready_ns);
        let failure = match self.exchange.answered(id, &request, response, time) {
            Judgement::Good => None,
            Judgement::Failed(class) => Some(class),
            Judgement::Retried(due_ns) => {
                self.retry_later(id, &request, due_ns, time.read_ns);
                self.recorder.refused_attempt(response);
                return 0;
            }
        };
        let took_ns = time.received_ns.saturating_sub(request.sent_ns);
        self.mean_service_ns = self.mean_service_ns - self.mean_service_ns / 64 + took_ns / 64;
        self.slots[id as usize].cycles.answered(ready_ns.saturating_sub(request.intended_ns));
        self.recorder.answered(&request, response, failure, first_byte_ns, time);
        if let Some(class) = failure {
            self.note_failures(id, class, 1);
        }
        if let Some(Fault::Burn { ns }) = self.plan.fault {
            self.wire.burn(ns);
        }
        1
    }

    /// Handles the end of the peer's stream. Returns the error class for the requests still on the connection.
    fn peer_closed(&mut self, id: SlotId, answered: &mut u32, time: ReceiveTime) -> ErrorClass {
        let slot = &mut self.slots[id as usize];
        match slot.reader.eof() {
            Ok(Some(response)) => {
                *answered += self.answered(id, &response, time);
                ErrorClass::ClosedEarly
            }
            Ok(None) => ErrorClass::ClosedEarly,
            Err(_) => ErrorClass::Truncated,
        }
    }

    fn after_reading(&mut self, id: SlotId, answered: u32, end: Option<ErrorClass>, now_ns: u64) {
        let slot = &mut self.slots[id as usize];
        // A connection with an announced close has given its last answer, even if a reset ends it.
        let has_closed = slot.closes && matches!(end, None | Some(ErrorClass::Reset));
        let end = if has_closed { Some(ErrorClass::ClosedEarly) } else { end };
        let Some(class) = end else {
            if answered > 0 {
                self.requests_ended(id, answered, 0, now_ns);
            }
            return;
        };
        let unused = slot.is_unused() && self.sending && self.source.is_open();
        // An unused connection is reopened only when a request needs it, or a target that closes at once would cause an
        // endless loop.
        slot.reopens &= !unused;
        // A peer may close an idle connection between two answers. Unsolicited bytes and the end of an unused connection
        // are errors of the connection, not of a request.
        if class == ErrorClass::Unsolicited && slot.requests.is_empty() {
            self.recorder.connection_error(class);
        } else if unused {
            let class = if class.is_tls() { class } else { ErrorClass::ClosedUnused };
            self.recorder.connection_error(class);
        } else if !slot.closes && slot.requests.is_empty() {
            self.recorder.closed_idle();
        }
        self.connection_lost(id, class, answered, now_ns);
    }
}

/// Whether all bytes that had arrived on a socket have been read.
#[derive(Debug, PartialEq, Eq)]
enum Drained {
    Yes,
    Perhaps,
}
