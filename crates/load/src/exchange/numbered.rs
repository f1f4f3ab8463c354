//! Requests that carry numbered events.

use http1::{Error, Fed, Response, ResponseReader};
use record::{ErrorClass, StatusSet};

use super::{Concluded, Exchange, ExchangeContext, Judgement};
use crate::{
    events::Events,
    recorder::{InFlight, PendingRetry, ReceiveTime},
    request::RequestBytes,
    wire::SlotId,
};

/// The events of a worker's slots. Each slot sends its events in order.
#[derive(Debug)]
pub struct Numbered {
    request: RequestBytes,
    events: Events,
    expect: StatusSet,
    is_head_request: bool,
}

impl Exchange for Numbered {
    fn new(context: &ExchangeContext<'_>) -> Self {
        let ExchangeContext { plan, share, first_slot, slots, .. } = *context;
        let events =
            plan.events.as_ref().map(|events| Events::new(events, share, first_slot, slots, plan.seed));
        Self {
            request: RequestBytes::new(plan),
            events: events.expect("only plans with events are numbered"),
            expect: plan.expect.clone(),
            is_head_request: plan.request.method == "HEAD",
        }
    }

    #[inline]
    fn bytes(&mut self, slot: SlotId, unsent: usize, sent: usize) -> &[u8] {
        let (client, number) = self.events.current(slot);
        self.request.write_numbers(client, number);
        self.request.rest(unsent.min(self.request.copies()), sent)
    }

    #[inline]
    fn length(&self, _: SlotId) -> usize {
        self.request.length()
    }

    #[inline]
    fn is_retry(&self, slot: SlotId) -> bool {
        self.events.is_retry(slot)
    }

    #[inline]
    fn feed(
        &mut self,
        slot: SlotId,
        reader: &mut ResponseReader,
        bytes: &[u8],
    ) -> Result<Fed<Response>, Error> {
        reader.feed(bytes, self.is_head_request, &mut self.events.head_sink(slot, &self.expect))
    }

    fn answered(
        &mut self,
        slot: SlotId,
        request: &InFlight,
        response: &Response,
        time: ReceiveTime,
    ) -> Judgement {
        if self.expect.contains(response.status) {
            self.events.acknowledged(slot);
            return Judgement::Good;
        }
        let (class, status) = (ErrorClass::Status, Some(response.status));
        match self.events.failed(slot, request, class, status, time.read_ns) {
            Some(due_ns) => Judgement::Retried(due_ns),
            None => Judgement::Failed(class),
        }
    }

    fn failed(&mut self, slot: SlotId, request: &InFlight, class: ErrorClass, now_ns: u64) -> Option<u64> {
        self.events.failed(slot, request, class, None, now_ns)
    }

    fn take_pending_retry(&mut self, slot: SlotId) -> Option<PendingRetry> {
        self.events.take_pending_retry(slot)
    }

    fn given_up(&mut self, slot: SlotId) {
        self.events.given_up(slot);
    }

    fn trial_ended(&mut self, slot: SlotId, request: &InFlight) {
        self.events.trial_ended(slot, request.sent_ns != 0);
    }

    fn conclude(self) -> Concluded {
        Concluded { ledger: Some(self.events.ledger()), ..Concluded::default() }
    }
}
