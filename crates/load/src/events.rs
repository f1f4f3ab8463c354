//! The numbered events of one worker: what was sent of each, how it ended, and when it is sent again.

mod backoff;
mod ledger;

use std::io;

use http1::{ResponseHead, ResponseSink};
use record::{
    AckLevel, ErrorClass, EventOutcome, EventPlan, StatusSet,
    receipt::{AnswerReceipt, ReceiptHeader, SCHEMA, StoredAt},
};

use crate::{
    book::{InFlight, Waiting},
    share::Share,
    wire::SlotId,
};
use backoff::Backoff;
pub(crate) use ledger::{Ledger, ReceiptFile};
use ledger::{Runs, Sample, refuse_used};

/// The events of the clients that a worker's slots are.
#[derive(Debug)]
pub(crate) struct Events {
    per_request: u32,
    retries: u32,
    /// Whether each request has an idempotency key.
    keyed: bool,
    first_client: u32,
    clients: Vec<Client>,
    backoff: Backoff,
    sample: Option<Sample>,
}

/// A slot as the sender of events: it sends the next when the last has ended.
#[derive(Debug, Default)]
struct Client {
    runs: Runs,
    /// Attempts at the current events of which at least one byte left.
    attempts: u8,
    /// How often the current request was made again.
    made: u8,
    /// What the attempts that failed leave behind, the weightiest: refused or, above that, unknown. None if nothing of
    /// them left.
    so_far: Option<EventOutcome>,
    /// What the answer that is being read says.
    heard: Heard,
    waiting: Option<Waiting>,
}

/// What matters to an event in an answer's head.
#[derive(Debug, Clone, Copy, Default)]
struct Heard {
    level: Option<AckLevel>,
    retry_after_s: Option<u32>,
    /// A refusal that says that the events may be stored nevertheless.
    leaves_open: bool,
}

impl Events {
    /// The events of a worker with these slots. `first_slot` is the index of its first among all workers'.
    pub(crate) fn new(plan: &EventPlan, share: Share, first_slot: u64, slots: u64, seed: u64) -> Self {
        Self {
            per_request: plan.per_request,
            retries: plan.retries,
            keyed: plan.idempotency,
            first_client: first_slot as u32,
            clients: (0..slots).map(|_| Client::default()).collect(),
            backoff: Backoff::new(seed.wrapping_add(share.index)),
            sample: plan.receipts.as_ref().map(|receipts| Sample::new(receipts.sampled as usize)),
        }
    }

    /// Client and number of the first event of a slot's current request.
    #[inline]
    pub(crate) fn current(&self, slot: SlotId) -> (u32, u32) {
        (self.first_client + slot, self.clients[slot as usize].runs.events())
    }

    /// Whether a slot's current request was made before.
    #[inline]
    pub(crate) fn is_again(&self, slot: SlotId) -> bool {
        self.clients[slot as usize].made > 0
    }

    /// Listens to the head of an answer for a slot.
    #[inline]
    pub(crate) fn ear<'a>(&'a mut self, slot: SlotId, expect: &'a StatusSet) -> Ear<'a> {
        Ear { events: self, slot, expect }
    }

    /// A slot's current request was answered as expected.
    #[inline]
    pub(crate) fn acknowledged(&mut self, slot: SlotId) {
        let client = &mut self.clients[slot as usize];
        client.attempts = client.attempts.saturating_add(1);
        let outcome = EventOutcome::acknowledged(client.heard.level);
        client.end(outcome, self.per_request);
    }

    /// An attempt at a slot's current request failed, with the status of an answer if one came. Gives when it is to
    /// be made again, or ends its events.
    pub(crate) fn failed(
        &mut self,
        slot: SlotId,
        request: &InFlight,
        class: ErrorClass,
        status: Option<u16>,
        now_ns: u64,
    ) -> Option<u64> {
        let client = &mut self.clients[slot as usize];
        let is_settled = status
            .is_some_and(|status| !backoff::leaves_open(status, self.keyed) && !client.heard.leaves_open);
        let made_before = client.note_failure(request.sent_ns != 0, is_settled);
        let retry = made_before < self.retries && backoff::is_passing(class, status, self.keyed);
        if !retry {
            client.end(client.so_far.unwrap_or(EventOutcome::Unsent), self.per_request);
            return None;
        }
        client.made += 1;
        let due_ns = now_ns + self.backoff.wait_ns(client.made, client.heard.retry_after_s);
        client.heard = Heard::default();
        let (intended_ns, sent) = (request.intended_ns, request.sent_ns != 0);
        let own_ns = request.own_ns + request.own_service_ns;
        client.waiting = Some(Waiting { intended_ns, due_ns, class, sent, own_ns });
        Some(due_ns)
    }

    /// Takes the request that a slot is to make again.
    pub(crate) fn take_waiting(&mut self, slot: SlotId) -> Option<Waiting> {
        self.clients[slot as usize].waiting.take()
    }

    /// The trial ends while a slot's request is unanswered, or waits to be made (again).
    pub(crate) fn cut_off(&mut self, slot: SlotId, sent: bool) {
        let client = &mut self.clients[slot as usize];
        client.note_failure(sent, false);
        client.end(client.so_far.unwrap_or(EventOutcome::Unsent), self.per_request);
    }

    /// No further attempt is made at a slot's request: its events have ended as they had come.
    pub(crate) fn given_up(&mut self, slot: SlotId) {
        let client = &mut self.clients[slot as usize];
        client.end(client.so_far.unwrap_or(EventOutcome::Unsent), self.per_request);
    }

    /// All that is known, at the end.
    pub(crate) fn ledger(self) -> Ledger {
        let first_client = self.first_client;
        let clients = self.clients.into_iter().map(|client| client.runs).collect();
        let places = self.sample.map(Sample::into_places).unwrap_or_default();
        Ledger::new(first_client, clients, places)
    }
}

impl Client {
    /// Gives how many attempts were made again before. `is_settled`: an answer says that the events are not stored.
    fn note_failure(&mut self, sent: bool, is_settled: bool) -> u32 {
        self.attempts = self.attempts.saturating_add(u8::from(sent));
        let now = match (sent, is_settled) {
            (false, _) => None,
            (true, true) => Some(EventOutcome::Refused),
            (true, false) => Some(EventOutcome::Unknown),
        };
        self.so_far = self.so_far.max(now);
        u32::from(self.made)
    }

    #[inline]
    fn end(&mut self, outcome: EventOutcome, events: u32) {
        self.runs.push(outcome, self.attempts, events);
        (self.attempts, self.made) = (0, 0);
        (self.so_far, self.heard) = (None, Heard::default());
    }
}

/// Hears what the head of an answer says of events.
#[derive(Debug)]
pub(crate) struct Ear<'a> {
    events: &'a mut Events,
    slot: SlotId,
    expect: &'a StatusSet,
}

impl ResponseSink for Ear<'_> {
    fn head(&mut self, head: &ResponseHead<'_>) {
        let field = |name: &str| head.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        let mut heard = Heard::default();
        if !self.expect.contains(head.status) {
            let text = field("Retry-After").and_then(|field| std::str::from_utf8(field.value).ok());
            heard.leaves_open = field(AnswerReceipt::MAYBE_STORED_HEADER).is_some();
            heard.retry_after_s = text.and_then(|text| text.trim().parse().ok());
        } else if let Some(receipt) = field(AnswerReceipt::HEADER) {
            heard.level = AnswerReceipt::weakest_level(receipt.value);
            self.events.keep_place(self.slot, receipt.value);
        }
        self.events.clients[self.slot as usize].heard = heard;
    }
}

impl Events {
    /// Keeps where the receiver says that the current events are, if they are among the sample.
    fn keep_place(&mut self, slot: SlotId, receipt: &[u8]) {
        let (client, number) = self.current(slot);
        let Some(sample) = &mut self.sample else { return };
        if !sample.takes_next() {
            return;
        }
        // Of events in several files it is not said which is where.
        let [receipt] = &mut AnswerReceipt::parse_all(receipt)[..] else { return };
        let (segment, offset, bytes) = (receipt.segment.take(), receipt.offset, receipt.bytes);
        if let (Some(segment), Some(offset), Some(bytes)) = (segment, offset, bytes) {
            sample.keep(StoredAt { client, number, segment, offset, bytes });
        }
    }
}

/// Makes sure that receipts would not be mixed with those of another run, before anything is begun. Where `share` is
/// not the whole, other processes may have begun their own.
///
/// # Errors
/// When the folder holds any, or cannot be read.
pub(crate) fn refuse_used_receipts(plan: &EventPlan, share: Share) -> io::Result<()> {
    let Some(receipts) = &plan.receipts else { return Ok(()) };
    refuse_used(&receipts.folder, (share.of > 1).then_some(plan.run))
}

/// Opens the file of a worker's receipts and writes what was sent into it, before anything is sent.
///
/// # Errors
/// When it cannot be written, or is there already.
pub(crate) fn open_receipts(
    url: &str,
    plan: &EventPlan,
    share: Share,
    connections: u64,
) -> io::Result<Option<ReceiptFile>> {
    let Some(receipts) = &plan.receipts else { return Ok(None) };
    let clients = share.range_of(connections);
    let header = ReceiptHeader {
        schema: SCHEMA.to_owned(),
        run: plan.run,
        worker: share.index,
        workers: share.of,
        first_client: clients.start as u32,
        clients: (clients.end - clients.start) as u32,
        url: secrets::mask_url(url),
        template: plan.template.clone(),
        event_bytes: plan.numbering().event_bytes() as u64,
        events_per_request: plan.per_request,
        ack: plan.ack,
    };
    ReceiptFile::create(&receipts.file(share.index), &header).map(Some)
}

#[cfg(test)]
mod tests;
