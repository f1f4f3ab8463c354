//! The numbered events of one worker: the attempts, outcome and retries of each.

mod backoff;
mod ledger;

use std::io;

use http1::{ResponseHead, ResponseSink};
use record::{
    AckLevel, ErrorClass, EventOutcome, EventPlan, StatusSet,
    receipt::{AnswerReceipt, ReceiptHeader, SCHEMA, StoredAt},
};

use crate::{
    recorder::{InFlight, PendingRetry},
    share::Share,
    wire::SlotId,
};
use backoff::Backoff;
pub(crate) use ledger::{Ledger, ReceiptFile};
use ledger::{LocationSample, OutcomeRuns, check_folder};
pub use ledger::{create_receipts, sync_folder_of};

/// The events of a worker's slots. Each slot is a client that sends its events in order.
#[derive(Debug)]
pub(crate) struct Events {
    per_request: u32,
    retries: u32,
    /// Whether each request has an idempotency key.
    has_key: bool,
    first_client: u32,
    clients: Vec<Client>,
    backoff: Backoff,
    sample: Option<LocationSample>,
}

/// A slot as the sender of events: it sends the next request when the last has ended.
#[derive(Debug, Default)]
struct Client {
    runs: OutcomeRuns,
    /// Number of attempts at the current events that sent at least one byte.
    attempts: u8,
    /// Retries of the current request.
    retries: u8,
    /// The combined outcome of the failed attempts: `Unknown` takes precedence over `Refused`. `None` if no attempt was sent.
    outcome_so_far: Option<EventOutcome>,
    /// The fields of the answer that is being read.
    answer: AnswerFields,
    pending_retry: Option<PendingRetry>,
}

/// The parts of an answer's head that concern events.
#[derive(Debug, Clone, Copy, Default)]
struct AnswerFields {
    level: Option<AckLevel>,
    retry_after_s: Option<u32>,
    /// The answer is not a success, but the receiver may have stored the events.
    may_be_stored: bool,
}

impl Events {
    /// The events of a worker with these slots. `first_slot`: index of its first slot among those of all workers.
    pub(crate) fn new(plan: &EventPlan, share: Share, first_slot: u64, slots: u64, seed: u64) -> Self {
        Self {
            per_request: plan.per_request,
            retries: plan.retries,
            has_key: plan.idempotency,
            first_client: first_slot as u32,
            clients: (0..slots).map(|_| Client::default()).collect(),
            backoff: Backoff::new(seed.wrapping_add(share.index)),
            sample: plan.receipts.as_ref().map(|receipts| LocationSample::new(receipts.sampled as usize)),
        }
    }

    /// Client and number of the first event of a slot's current request.
    #[inline]
    pub(crate) fn current(&self, slot: SlotId) -> (u32, u32) {
        (self.first_client + slot, self.clients[slot as usize].runs.events())
    }

    /// Whether a slot's current request is a retry.
    #[inline]
    pub(crate) fn is_retry(&self, slot: SlotId) -> bool {
        self.clients[slot as usize].retries > 0
    }

    /// The sink that reads the head of an answer for a slot.
    #[inline]
    pub(crate) fn head_sink<'a>(&'a mut self, slot: SlotId, expect: &'a StatusSet) -> EventHeadSink<'a> {
        EventHeadSink { events: self, slot, expect }
    }

    /// Ends the events of a slot's current request: it was answered with success.
    #[inline]
    pub(crate) fn acknowledged(&mut self, slot: SlotId) {
        let client = &mut self.clients[slot as usize];
        client.attempts = client.attempts.saturating_add(1);
        let outcome = EventOutcome::acknowledged(client.answer.level);
        client.end(outcome, self.per_request);
    }

    /// Records a failed attempt of a slot's current request, with the status of its answer if there was one. Returns the time
    /// of the retry; without a retry, ends the events.
    pub(crate) fn failed(
        &mut self,
        slot: SlotId,
        request: &InFlight,
        class: ErrorClass,
        status: Option<u16>,
        now_ns: u64,
    ) -> Option<u64> {
        let client = &mut self.clients[slot as usize];
        let is_refused = status.is_some_and(|status| {
            !backoff::may_be_stored(status, self.has_key) && !client.answer.may_be_stored
        });
        client.add_failure(request.sent_ns != 0, is_refused);
        let may_retry = u32::from(client.retries) < self.retries;
        if !may_retry || !backoff::is_transient(class, status, self.has_key) {
            client.give_up(self.per_request);
            return None;
        }
        client.retries += 1;
        let due_ns = now_ns + self.backoff.wait_ns(client.retries, client.answer.retry_after_s);
        client.answer = AnswerFields::default();
        let (intended_ns, was_sent) = (request.intended_ns, request.sent_ns != 0);
        let own_ns = request.own_ns + request.own_service_ns;
        client.pending_retry = Some(PendingRetry { intended_ns, due_ns, class, was_sent, own_ns });
        Some(due_ns)
    }

    /// Takes a slot's pending retry.
    pub(crate) fn take_pending_retry(&mut self, slot: SlotId) -> Option<PendingRetry> {
        self.clients[slot as usize].pending_retry.take()
    }

    /// Ends the events of a slot's request that is unanswered when the trial ends.
    pub(crate) fn trial_ended(&mut self, slot: SlotId, was_sent: bool) {
        let client = &mut self.clients[slot as usize];
        client.add_failure(was_sent, false);
        client.give_up(self.per_request);
    }

    /// Ends the events of a slot's request without a further attempt.
    pub(crate) fn given_up(&mut self, slot: SlotId) {
        self.clients[slot as usize].give_up(self.per_request);
    }

    /// The outcome of all events.
    pub(crate) fn ledger(self) -> Ledger {
        let first_client = self.first_client;
        let clients = self.clients.into_iter().map(|client| client.runs).collect();
        let locations = self.sample.map(LocationSample::into_locations).unwrap_or_default();
        Ledger::new(first_client, clients, locations)
    }
}

impl Client {
    /// Adds a failed attempt. `is_refused`: an answer shows that the events are not stored.
    fn add_failure(&mut self, was_sent: bool, is_refused: bool) {
        self.attempts = self.attempts.saturating_add(u8::from(was_sent));
        let outcome = match (was_sent, is_refused) {
            (false, _) => None,
            (true, true) => Some(EventOutcome::Refused),
            (true, false) => Some(EventOutcome::Unknown),
        };
        self.outcome_so_far = self.outcome_so_far.max(outcome);
    }

    /// Ends the current events with the outcome of their attempts so far.
    fn give_up(&mut self, events: u32) {
        self.end(self.outcome_so_far.unwrap_or(EventOutcome::Unsent), events);
    }

    #[inline]
    fn end(&mut self, outcome: EventOutcome, events: u32) {
        self.runs.push(outcome, self.attempts, events);
        (self.attempts, self.retries) = (0, 0);
        (self.outcome_so_far, self.answer) = (None, AnswerFields::default());
    }
}

/// Reads the parts of an answer's head that concern events.
#[derive(Debug)]
pub(crate) struct EventHeadSink<'a> {
    events: &'a mut Events,
    slot: SlotId,
    expect: &'a StatusSet,
}

impl ResponseSink for EventHeadSink<'_> {
    fn head(&mut self, head: &ResponseHead<'_>) {
        let field = |name: &str| head.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        let mut answer = AnswerFields::default();
        if !self.expect.contains(head.status) {
            let text = field("Retry-After").and_then(|field| std::str::from_utf8(field.value).ok());
            answer.may_be_stored = field(AnswerReceipt::MAYBE_STORED_HEADER).is_some();
            answer.retry_after_s = text.and_then(|text| text.trim().parse().ok());
        } else if let Some(receipt) = field(AnswerReceipt::HEADER) {
            answer.level = AnswerReceipt::weakest_level(receipt.value);
            self.events.sample_location(self.slot, receipt.value);
        }
        self.events.clients[self.slot as usize].answer = answer;
    }
}

impl Events {
    /// Adds the location that the receiver reports for the current events to the sample, if the sample selects it.
    fn sample_location(&mut self, slot: SlotId, receipt: &[u8]) {
        let (client, number) = self.current(slot);
        let Some(sample) = &mut self.sample else { return };
        if !sample.select_next() {
            return;
        }
        // With several receipts, it is unknown which receipt belongs to which event.
        let [receipt] = &mut AnswerReceipt::parse_all(receipt)[..] else { return };
        let (segment, offset, bytes) = (receipt.segment.take(), receipt.offset, receipt.bytes);
        if let (Some(segment), Some(offset), Some(bytes)) = (segment, offset, bytes) {
            sample.add(StoredAt { client, number, segment, offset, bytes });
        }
    }
}

/// Checks that the folder for receipts has no receipts of another run. If `share` is a part of the plan, other processes of
/// this run may have written some already. A folder of another machine is checked there.
///
/// # Errors
/// When the folder has receipts of another run, or cannot be read.
pub fn check_receipt_folder(plan: &EventPlan, share: Share) -> io::Result<()> {
    let Some(receipts) = plan.receipts.as_ref().filter(|_| !files::is_elsewhere()) else { return Ok(()) };
    check_folder(&receipts.folder, (share.of > 1).then_some(plan.run))
}

/// Creates the file of a worker's receipts and writes its header, before anything is sent. `None` if the plan keeps none.
///
/// # Errors
/// When the file cannot be written, or exists already.
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
