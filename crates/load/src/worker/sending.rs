//! Sending: from a request assigned to a slot to bytes in the kernel.

use record::ErrorClass;
use rustix::io::Errno;

use super::Worker;
use crate::{
    exchange::Exchange,
    failure::{connect_failure, stream_failure},
    slot::Phase,
    wire::{ConnectionError, SlotId, Wire},
};

impl<W: Wire, X: Exchange> Worker<W, X> {
    /// Sends a slot's unsent requests, or opens its connection first.
    #[inline]
    pub(super) fn send(&mut self, id: SlotId) {
        match self.slots[id as usize].phase {
            Phase::Open => {
                self.transmit(id);
                // A deadline that is already armed belongs to an earlier request or to the connection.
                if self.slots[id as usize].deadline_armed_ns == 0 || self.timeouts.answer_ns < u64::MAX {
                    self.arm_deadline(id);
                }
            }
            Phase::Vacant if self.slots[id as usize].unsent > 0 => {
                let now_ns = self.slots[id as usize].requests.back().map_or(0, |r| r.started_ns);
                self.open(id, now_ns);
            }
            Phase::Vacant | Phase::Connecting | Phase::Preface | Phase::Handshaking | Phase::Retired => {}
        }
    }

    /// Sends as many bytes of the slot's requests as the kernel accepts.
    #[inline]
    pub(super) fn transmit(&mut self, id: SlotId) {
        loop {
            let slot = &self.slots[id as usize];
            let (unsent, begun_bytes) = (slot.unsent as usize, slot.sent_bytes as usize);
            if unsent == 0 {
                return;
            }
            let early = slot.phase == Phase::Connecting;
            // A request that waited for its connection or for buffer space leaves now. Any other request leaves when it is
            // assigned, and that time has just been read.
            let assigned_ns = slot.requests[slot.requests.len() - 1].started_ns;
            let waited = early || slot.awaits_writable || assigned_ns < slot.free_since_ns;
            let now_ns = if waited { self.leaves_late(id) } else { assigned_ns };
            let bytes = self.exchange.bytes(id, unsent, begun_bytes);
            let wanted = bytes.len();
            match self.wire.send(id, bytes) {
                Ok(sent) => {
                    if early {
                        self.established(id, now_ns);
                    }
                    self.recorder.sent_bytes(sent);
                    self.just_sent = Some(id);
                    self.mark_sent(id, sent, now_ns);
                    if sent < wanted {
                        continue;
                    }
                }
                Err(ConnectionError::AGAIN) => {
                    let slot = &mut self.slots[id as usize];
                    if !early && !slot.awaits_writable {
                        slot.awaits_writable = true;
                        let generation = slot.generation;
                        // This fails only without memory; the deadline then ends the request.
                        let _ = self.wire.watch(id, generation, true);
                    }
                    return;
                }
                Err(error) if early => {
                    let now_ns = self.wire.now_ns();
                    return self.connection_lost(id, connect_failure(error), 0, now_ns);
                }
                // The peer may have answered before it closed: reading counts the answer and finds the end as well.
                Err(ConnectionError::Kernel(Errno::PIPE | Errno::CONNRESET) | ConnectionError::Tls(_)) => {
                    return self.read_remaining(id);
                }
                Err(error) => {
                    let now_ns = self.wire.now_ns();
                    return self.connection_lost(id, stream_failure(error), 0, now_ns);
                }
            }
        }
    }

    pub(super) fn mark_sent(&mut self, id: SlotId, bytes: usize, now_ns: u64) {
        let slot = &mut self.slots[id as usize];
        let mut progress = slot.sent_bytes as usize + bytes;
        let mut index = slot.requests.len() - slot.unsent as usize;
        while progress > 0 {
            let request = &mut slot.requests[index];
            if request.sent_ns == 0 {
                request.sent_ns = now_ns;
                self.recorder.sent(request, self.exchange.is_retry(id));
            }
            let length = self.exchange.length(id);
            if progress < length {
                break;
            }
            request.sent_whole_ns = now_ns;
            progress -= length;
            slot.unsent -= 1;
            index += 1;
        }
        slot.sent_bytes = progress as u32;
    }

    /// Reads what the peer sent before it closed, then ends the connection.
    pub(super) fn read_remaining(&mut self, id: SlotId) {
        let before = &self.slots[id as usize];
        let (generation, requests) = (before.generation, before.requests.len());
        self.read(id, true);
        let slot = &self.slots[id as usize];
        // If reading found the end, the user may already have another connection.
        let same = slot.generation == generation && slot.phase == Phase::Open;
        if same && slot.requests.len() == requests {
            let now_ns = self.wire.now_ns();
            self.connection_lost(id, ErrorClass::Reset, 0, now_ns);
        }
    }
}
