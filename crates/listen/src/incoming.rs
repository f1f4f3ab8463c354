//! A request between the end of its head and the end of its body.

use events::{EventTime, InflateError, Inflater, Kind};
use http1::{Framing, Request};
use segments::Level;

use crate::{
    Limits,
    answer::{AnswerContext, Reply},
    budget::Reservation,
    refusal::Refusal,
};

/// The budget is taken in steps of so many bytes while a body comes: what is announced but never sent takes
/// little of it.
const STEP_BYTES: u64 = 64 * 1024;
/// A compressed body is inflated in pieces of so many bytes, between which the budget is asked. Small, since one
/// byte can hold a thousand of deflate, and tens of thousands of Zstandard.
const INFLATE_BYTES: usize = 64;
/// After so many inflated bytes other connections get their turn.
const TURN_BYTES: usize = 64 * 1024;
/// Also after so many compressed ones: those may hold nothing but beginnings and ends, each with its own price.
const TURN_COMPRESSED_BYTES: usize = 4 * 1024;
/// Buffers that have grown beyond it are not kept for the next request.
const KEPT_BYTES: usize = 256 * 1024;

/// A request between the end of its head and the end of its body. Boxed, and used again.
#[derive(Debug)]
pub(crate) struct IncomingRequest<'a> {
    /// What it has taken of the budget.
    pub reservation: Reservation<'a>,
    /// What it is answered already, before its body is read; then its body is thrown away.
    pub reply: Option<Reply<'static>>,
    pub context: AnswerContext,
    /// The client waits for leave to send the body.
    pub expects_continue: bool,
    pub tag: String,
    pub kind: Kind,
    pub level: Level,
    /// The time that all its events have.
    pub time: Option<EventTime>,
    pub inflater: Option<Inflater>,
    /// The coding of the body, for messages.
    pub coding: &'static str,
    pub idempotency_key: Option<String>,
    /// The query, where it may hold the records.
    pub query: String,
    /// Members that every record gets: each with a comma before it.
    pub extra_members: String,
    /// The body, inflated.
    pub body: Vec<u8>,
    /// Bytes of the body as sent.
    pub received_bytes: u64,
    /// What of a compressed body has come and is not inflated yet, from `compressed_used` on.
    compressed: Vec<u8>,
    compressed_used: usize,
    /// The request has come to its end, and waits for its body to be inflated.
    pub ended: Option<Request>,
}

impl<'a> IncomingRequest<'a> {
    /// One with nothing of a request in it.
    pub(crate) fn new(reservation: Reservation<'a>) -> Self {
        Self {
            reservation,
            reply: None,
            context: AnswerContext::default(),
            expects_continue: false,
            tag: String::new(),
            kind: Kind::Json,
            level: Level::Written,
            time: None,
            inflater: None,
            coding: "",
            idempotency_key: None,
            query: String::new(),
            extra_members: String::new(),
            body: Vec::new(),
            received_bytes: 0,
            compressed: Vec::new(),
            compressed_used: 0,
            ended: None,
        }
    }

    /// Makes it fit for the next request.
    pub(crate) fn clear(&mut self) {
        // Nothing of a share is left that could not be given back.
        self.reservation.resize(0);
        self.reply = None;
        self.context = AnswerContext::default();
        self.expects_continue = false;
        self.tag.clear();
        self.time = None;
        self.inflater = None;
        self.idempotency_key = None;
        self.query.clear();
        self.extra_members.clear();
        self.received_bytes = 0;
        self.compressed.clear();
        self.compressed_used = 0;
        self.ended = None;
        if self.body.capacity() > KEPT_BYTES {
            self.body = Vec::new();
        } else {
            self.body.clear();
        }
    }

    /// Whether a body framed so may come. The inflater, if one is needed, must be there already.
    pub(crate) fn reserve_for_body(
        &mut self,
        framing: Framing,
        limits: &Limits,
        free_bytes: u64,
    ) -> Result<(), Refusal> {
        let (limit, decoder_bytes) = (self.reservation.limit(), self.decoder_bytes());
        // What a body becomes shows while it is inflated; it may be less than a step.
        let room = limit.saturating_sub(decoder_bytes);
        let announced = match framing {
            Framing::Length(bytes) if bytes > limits.body_bytes => {
                return Err(Refusal::TooLarge(limits.body_bytes));
            }
            Framing::Length(bytes) => bytes,
            // It says nothing of its length: what comes is measured by the limit, and a step of the budget is taken
            // for it at once, if there can be one.
            Framing::Chunked => STEP_BYTES.min(limits.body_bytes).min(room),
            Framing::None | Framing::UntilClose => 0,
        };
        if decoder_bytes > limit {
            return Err(Refusal::ExceedsBudget(limit));
        }
        if announced > free_bytes
            || !self.reservation.grow_to(announced.min(STEP_BYTES).min(room) + decoder_bytes)
        {
            return Err(Refusal::Budget);
        }
        Ok(())
    }

    /// Takes more of the body.
    #[inline]
    pub(crate) fn push_body(&mut self, bytes: &[u8], limits: &Limits) -> Result<(), Refusal> {
        self.received_bytes += bytes.len() as u64;
        if self.received_bytes > limits.body_bytes {
            return Err(Refusal::TooLarge(limits.body_bytes));
        }
        if self.inflater.is_some() {
            // No more than the receive buffer holds: nothing is read before it is inflated.
            self.compressed.extend_from_slice(bytes);
            return Ok(());
        }
        reserve(&mut self.reservation, (self.body.len() + bytes.len()) as u64)?;
        self.body.extend_from_slice(bytes);
        Ok(())
    }

    /// What the events are read from, and how.
    pub(crate) fn text(&self) -> (Kind, &[u8]) {
        match self.kind {
            // Fluentd takes records from the query too, where the body holds none. A body that nobody reads is not
            // acknowledged.
            Kind::Other if self.body.is_empty() && !self.query.is_empty() => {
                (Kind::Form, self.query.as_bytes())
            }
            kind => (kind, &self.body),
        }
    }

    /// The body is complete.
    #[inline]
    pub(crate) fn finish(&mut self) -> Result<(), Refusal> {
        // Its memory is free from here on.
        match self.inflater.take() {
            None => Ok(()),
            Some(mut inflater) => inflater.finish().map_err(|_| Refusal::Corrupt(self.coding)),
        }
    }

    /// What undoing the coding takes of memory, besides the body.
    fn decoder_bytes(&self) -> u64 {
        self.inflater.as_ref().map_or(0, |inflater| inflater.memory_bytes() as u64)
    }

    /// More of a compressed body is to be inflated.
    #[inline]
    pub(crate) fn has_compressed(&self) -> bool {
        self.compressed_used < self.compressed.len()
    }

    /// Inflates for a turn.
    pub(crate) fn inflate(&mut self, limits: &Limits) -> Result<(), Refusal> {
        let Some(inflater) = &mut self.inflater else { return Ok(()) };
        let (enough, used_most) =
            (self.body.len() + TURN_BYTES, self.compressed_used + TURN_COMPRESSED_BYTES);
        for piece in self.compressed[self.compressed_used..].chunks(INFLATE_BYTES) {
            if self.body.len() >= enough || self.compressed_used >= used_most {
                return Ok(());
            }
            self.compressed_used += piece.len();
            inflater.feed(piece, &mut self.body).map_err(|error| match error {
                InflateError::TooLarge { .. } => Refusal::InflatesTooLarge(limits.inflated_bytes),
                _ => Refusal::Corrupt(self.coding),
            })?;
            reserve(&mut self.reservation, (self.body.len() + inflater.memory_bytes()) as u64)?;
        }
        self.compressed.clear();
        self.compressed_used = 0;
        Ok(())
    }
}

/// Has at least that much of the budget.
#[inline]
fn reserve(reservation: &mut Reservation<'_>, bytes: u64) -> Result<(), Refusal> {
    let stepped = bytes.div_ceil(STEP_BYTES).saturating_mul(STEP_BYTES);
    // The last step may find room only for what is needed.
    if reservation.covers(bytes) || reservation.grow_to(stepped) || reservation.grow_to(bytes) {
        Ok(())
    } else {
        Err(Refusal::over_budget(bytes, reservation.limit()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use events::Encoding;

    use super::*;
    use crate::budget::Budget;

    fn admitted(encoding: Encoding, budget: &Budget) -> IncomingRequest<'_> {
        let limits = Limits::default();
        let mut incoming = IncomingRequest::new(budget.reservation());
        incoming.inflater = Some(Inflater::new(encoding, limits.inflated_bytes as usize));
        incoming.reserve_for_body(Framing::Length(1_000), &limits, budget.free()).unwrap();
        incoming
    }

    #[test]
    fn a_turn_ends_though_nothing_is_inflated() {
        let empty = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()).finish().unwrap();
        let members = empty.repeat((64 << 10) / empty.len());
        let budget = Budget::new(1 << 20);
        let limits = Limits::default();
        let mut incoming = admitted(Encoding::Gzip, &budget);
        incoming.push_body(&members, &limits).unwrap();
        let mut turns = 1;
        incoming.inflate(&limits).unwrap();
        assert!((1..=8 << 10).contains(&incoming.compressed_used), "{}", incoming.compressed_used);
        while incoming.has_compressed() {
            incoming.inflate(&limits).unwrap();
            turns += 1;
        }
        assert!(turns >= 8, "{turns}");
        incoming.finish().unwrap();
    }

    #[test]
    fn a_decoder_is_taken_from_the_budget_and_given_back() {
        let budget = Budget::new(1 << 20);
        let held: Vec<_> = (0..4).map(|_| admitted(Encoding::Gzip, &budget)).collect();
        assert!(budget.used() >= 4 * (64 << 10), "{}", budget.used());
        drop(held);
        let mut incoming = admitted(Encoding::Zstd, &budget);
        assert!(budget.used() >= 256 << 10, "{}", budget.used());
        incoming.clear();
        assert_eq!(budget.used(), 0);
    }

    /// A flight with a decoder of gzip, and what it is told when a body framed so is announced.
    fn announced(budget: &Budget, framing: Framing) -> (IncomingRequest<'_>, Result<(), Refusal>) {
        let mut incoming = IncomingRequest::new(budget.reservation());
        incoming.inflater = Some(Inflater::new(Encoding::Gzip, 1 << 20));
        let told = incoming.reserve_for_body(framing, &Limits::default(), budget.free());
        (incoming, told)
    }

    #[test]
    fn where_there_is_no_room_for_a_decoder_there_never_will_be() {
        let small = Budget::new(10_000);
        for framing in [Framing::Length(100), Framing::Chunked] {
            assert_eq!(announced(&small, framing).1, Err(Refusal::ExceedsBudget(10_000)), "{framing:?}");
        }
        assert_eq!(small.used(), 0);
    }

    #[test]
    fn where_a_decoder_fits_so_does_a_small_body() {
        let decoder_bytes = Inflater::new(Encoding::Gzip, 1).memory_bytes() as u64;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&[b' '; 10_000]).unwrap();
        let compressed = encoder.finish().unwrap();
        let (budget, limits) = (Budget::new(decoder_bytes + 10_000), Limits::default());
        for framing in [Framing::Length(compressed.len() as u64), Framing::Length(10_001), Framing::Chunked] {
            let (mut incoming, told) = announced(&budget, framing);
            assert_eq!(told, Ok(()), "{framing:?}");
            incoming.push_body(&compressed, &limits).unwrap();
            incoming.inflate(&limits).unwrap();
            assert_eq!(incoming.body.len(), 10_000);
        }
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_inflates_beyond_all_that_there_is_never_fits() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&[b' '; 200_000]).unwrap();
        let compressed = encoder.finish().unwrap();
        let limits = Limits::default();
        let unpacked = |budget: &Budget| {
            let mut incoming = admitted(Encoding::Gzip, budget);
            incoming.push_body(&compressed, &limits).unwrap();
            let mut unpacked = Ok(());
            while unpacked.is_ok() && incoming.has_compressed() {
                unpacked = incoming.inflate(&limits);
            }
            unpacked
        };
        assert_eq!(unpacked(&Budget::new(200_000)), Err(Refusal::ExceedsBudget(200_000)));
        // What others have may be free some other time.
        let budget = Budget::new(300_000);
        let mut others = budget.reservation();
        assert!(others.grow_to(100_000));
        assert_eq!(unpacked(&budget), Err(Refusal::Budget));
    }

    #[test]
    fn a_body_counts_beside_its_decoder() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&[b' '; 100_000]).unwrap();
        let compressed = encoder.finish().unwrap();
        let (budget, limits) = (Budget::new(1 << 20), Limits::default());
        let mut incoming = admitted(Encoding::Gzip, &budget);
        incoming.push_body(&compressed, &limits).unwrap();
        while incoming.has_compressed() {
            incoming.inflate(&limits).unwrap();
        }
        assert!(budget.used() >= 100_000 + (64 << 10), "{}", budget.used());
    }
}
