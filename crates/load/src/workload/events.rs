//! The numbered events of a workload.

use record::{
    EventFraming, EventPlan, ReceiptPlan,
    receipt::{Numbering, REFERENCE_EVENT, RunId},
};

use super::{
    HttpWorkload, UpTo,
    text::{Mistakes, read_bytes},
};

/// Maximum size of a body of events, in bytes.
const MAX_EVENTS_BODY_BYTES: u64 = 64 << 20;

impl HttpWorkload {
    /// The events, if requests carry any.
    pub(super) fn events(&self, mistakes: &mut Mistakes) -> Option<EventPlan> {
        let Some(text) = &self.events else {
            self.refuse_without_events(mistakes);
            return None;
        };
        if self.body.is_some() {
            mistakes.add("body", "the events are the body: leave out the body or the events");
        }
        if self.pipeline.is_some() {
            let message = "each event waits for the answer to the one before, so that an audit can check their order; leave \
                           out the pipeline";
            mistakes.add("pipeline", message);
        }
        // A new number for each trial, because several trials may be stored in one file.
        let run = RunId(rand::random());
        let template = mistakes.read("events", read_template(text));
        let numbering = match Numbering::new(&template, run) {
            Ok(numbering) => Some(numbering),
            Err(_) if template.is_empty() => None,
            Err(error) => {
                mistakes.add("events", error.to_string());
                None
            }
        };
        let per_request = mistakes.count("events_per_request", &self.events_per_request).unwrap_or(1);
        let event_bytes = numbering.map_or(0, |numbering| numbering.event_bytes() as u64);
        if event_bytes.saturating_mul(per_request) > MAX_EVENTS_BODY_BYTES {
            let message = format!("{per_request} events of {event_bytes} bytes exceed 64 MiB in one request");
            mistakes.add("events_per_request", message);
        }
        let framing = mistakes.typed("as", &self.events_as).unwrap_or(match per_request {
            1 => EventFraming::Json,
            _ => EventFraming::Ndjson,
        });
        if framing == EventFraming::Json && per_request > 1 {
            mistakes.add("as", "json holds one event a request; for several give ndjson or array");
        }
        Some(EventPlan {
            run,
            template,
            per_request: per_request as u32,
            framing,
            retries: mistakes.typed("retries", &self.retries).map_or(0, |UpTo(retries)| retries),
            ack: mistakes.typed("ack", &self.ack),
            idempotency: self.idempotency,
            receipts: self.receipts.as_ref().map(ReceiptPlan::new),
        })
    }

    fn refuse_without_events(&self, mistakes: &mut Mistakes) {
        for (field, given) in [
            ("events_per_request", self.events_per_request.is_some()),
            ("as", self.events_as.is_some()),
            ("retries", self.retries.is_some()),
            ("ack", self.ack.is_some()),
            ("idempotency", self.idempotency),
            ("receipts", self.receipts.is_some()),
        ] {
            if given {
                mistakes.add(field, "it needs numbered events, and there are none: give events too");
            }
        }
    }
}

fn read_template(text: &str) -> Result<String, String> {
    if text == "default" {
        return Ok(REFERENCE_EVENT.to_owned());
    }
    // Variables are not substituted, because the plan, the result and the receipts show the event without masks.
    let bytes = read_bytes(text)?;
    let template = record::input::decode(&bytes).map_err(|why| format!("cannot read {text}: {why}"))?;
    match template.trim() {
        "" => Err("the event is empty; give a JSON object such as {\"a\":1}, @FILE, or default".to_owned()),
        template => Ok(template.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use record::{AckLevel, StatusSet};

    use super::*;
    use crate::MachineLimits;

    const LIMITS: MachineLimits = MachineLimits::EXAMPLE;

    fn text<'a, T: From<&'a str>>(text: &'a str) -> Option<T> {
        Some(text.into())
    }

    fn workload(events: &str) -> HttpWorkload {
        HttpWorkload { url: "127.0.0.1:1".to_owned(), events: text(events), ..HttpWorkload::default() }
    }

    #[test]
    fn events_are_posted_one_by_one_by_default() {
        let plan = workload("default").plan(&LIMITS).unwrap();
        let events = plan.events.unwrap();
        assert_eq!((events.per_request, events.framing, events.retries), (1, EventFraming::Json, 0));
        assert_eq!((plan.request.method.as_str(), plan.expect), ("POST", StatusSet::acknowledged()));
        assert_eq!(events.template, REFERENCE_EVENT);
        let again = workload("default").plan(&LIMITS).unwrap().events.unwrap();
        assert_ne!(again.run, events.run, "each trial has its own number");
    }

    #[test]
    fn a_variable_in_an_event_is_not_substituted() {
        for template in ["{\"home\":\"${HOME}\"}", "{\"open\":\"${\"}"] {
            assert_eq!(workload(template).plan(&LIMITS).unwrap().events.unwrap().template, template);
        }
    }

    #[test]
    fn options_of_events_are_read() {
        let workload = HttpWorkload {
            events_per_request: text("100"),
            events_as: text("array"),
            retries: text("3"),
            ack: text("synced"),
            receipts: text("somewhere"),
            ..workload("{\"a\":1}")
        };
        let events = workload.plan(&LIMITS).unwrap().events.unwrap();
        assert_eq!((events.per_request, events.framing, events.retries), (100, EventFraming::Array, 3));
        assert_eq!(
            (events.ack, events.receipts),
            (Some(AckLevel::Synced), Some(ReceiptPlan::new("somewhere")))
        );
    }

    #[test]
    fn mistakes_name_their_field() {
        let fields = |workload: HttpWorkload| -> Vec<_> {
            workload.plan(&LIMITS).unwrap_err().into_iter().map(|mistake| mistake.field).collect()
        };
        let without = HttpWorkload {
            events: None,
            retries: text("1"),
            ack: text("synced"),
            receipts: text("x"),
            idempotency: true,
            ..workload("")
        };
        assert_eq!(fields(without), ["retries", "ack", "idempotency", "receipts"]);
        let contradicting = HttpWorkload {
            body: text("x"),
            pipeline: text("2"),
            events_per_request: text("2"),
            events_as: text("json"),
            retries: text("1000"),
            ack: text("eternal"),
            ..workload("[]")
        };
        assert_eq!(fields(contradicting), ["body", "pipeline", "events", "as", "retries", "ack"]);
        assert_eq!(fields(workload("@/nowhere/at/all")), ["events"]);
    }
}
