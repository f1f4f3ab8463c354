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

/// Budget is reserved in steps of this many bytes while a body arrives, so that a body that is announced but never sent
/// holds little of it.
const STEP_BYTES: u64 = 64 * 1024;
/// Compressed bytes that are decompressed between two checks of the budget. Few, because one byte can expand to a
/// thousand bytes (deflate) or tens of thousands (Zstandard).
const INFLATE_BYTES: usize = 64;
/// Maximum decompressed bytes per turn, so that other connections need not wait long.
const TURN_BYTES: usize = 64 * 1024;
/// Maximum compressed bytes per turn. Needed besides [`TURN_BYTES`], because stream headers and trailers take time but
/// produce no output.
const TURN_COMPRESSED_BYTES: usize = 4 * 1024;
/// Buffers with a larger capacity, in bytes, are freed instead of being kept for the next request.
const KEPT_BYTES: usize = 256 * 1024;

/// A request between the end of its head and the end of its body. Boxed, because its buffers are reused for later
/// requests.
#[derive(Debug)]
pub(crate) struct IncomingRequest<'a> {
    /// The budget reserved for the request.
    pub reservation: Reservation<'a>,
    /// The answer, if it is determined before the body is read. The body is then discarded.
    pub reply: Option<Reply<'static>>,
    pub context: AnswerContext,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    pub tag: String,
    pub kind: Kind,
    pub level: Level,
    /// The time from the request that applies to all its events.
    pub time: Option<EventTime>,
    pub inflater: Option<Inflater>,
    /// The content encoding of the body, for error messages.
    pub coding: &'static str,
    pub idempotency_key: Option<String>,
    /// The query string, if its parameters may be the records.
    pub query: String,
    /// A JSON object with members that are added to every record.
    pub extra_members: String,
    /// The body after decompression.
    pub body: Vec<u8>,
    /// Bytes of the body received so far, as sent.
    pub received_bytes: u64,
    /// Received bytes of a compressed body. The first `compressed_used` of them are already decompressed.
    compressed: Vec<u8>,
    compressed_used: usize,
    /// The complete request, while the last bytes of its body are still being decompressed.
    pub ended: Option<Request>,
}

impl<'a> IncomingRequest<'a> {
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

    /// Resets the request for reuse. Keeps its buffers.
    pub(crate) fn clear(&mut self) {
        // Returns the bytes to the budget.
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

    /// Reserves budget for a body with this framing. Set `inflater` first if the body is compressed. `free_bytes` is the
    /// free budget.
    pub(crate) fn reserve_for_body(
        &mut self,
        framing: Framing,
        limits: &Limits,
        free_bytes: u64,
    ) -> Result<(), Refusal> {
        let (limit, decoder_bytes) = (self.reservation.limit(), self.decoder_bytes());
        // The decompressed size is not known yet, so at most one step is reserved.
        let room = limit.saturating_sub(decoder_bytes);
        let announced = match framing {
            Framing::Length(bytes) if bytes > limits.body_bytes => {
                return Err(Refusal::TooLarge(limits.body_bytes));
            }
            Framing::Length(bytes) => bytes,
            // The length is not known, so one step is reserved, or less if the whole budget is smaller.
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

    /// Appends received bytes of the body.
    #[inline]
    pub(crate) fn push_body(&mut self, bytes: &[u8], limits: &Limits) -> Result<(), Refusal> {
        self.received_bytes += bytes.len() as u64;
        if self.received_bytes > limits.body_bytes {
            return Err(Refusal::TooLarge(limits.body_bytes));
        }
        if self.inflater.is_some() {
            // Cannot exceed the receive buffer, because nothing more is read until these bytes are decompressed.
            self.compressed.extend_from_slice(bytes);
            return Ok(());
        }
        reserve(&mut self.reservation, (self.body.len() + bytes.len()) as u64)?;
        self.body.extend_from_slice(bytes);
        Ok(())
    }

    /// The text that contains the events, and its content type.
    pub(crate) fn text(&self) -> (Kind, &[u8]) {
        match self.kind {
            // Like Fluentd, takes records from the query if the body is empty. A body of unknown type must not be
            // acknowledged.
            Kind::Other if self.body.is_empty() && !self.query.is_empty() => {
                (Kind::Form, self.query.as_bytes())
            }
            kind => (kind, &self.body),
        }
    }

    /// Completes the body; an error if its compressed stream is incomplete.
    #[inline]
    pub(crate) fn finish(&mut self) -> Result<(), Refusal> {
        // Taking the decompressor also frees its memory.
        match self.inflater.take() {
            None => Ok(()),
            Some(mut inflater) => inflater.finish().map_err(|_| Refusal::Corrupt(self.coding)),
        }
    }

    /// Memory of the decompressor in bytes; 0 without one.
    fn decoder_bytes(&self) -> u64 {
        self.inflater.as_ref().map_or(0, |inflater| inflater.memory_bytes() as u64)
    }

    /// Whether some received bytes are not decompressed yet.
    #[inline]
    pub(crate) fn has_compressed(&self) -> bool {
        self.compressed_used < self.compressed.len()
    }

    /// Decompresses the bytes of one turn.
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

/// Extends the reservation to at least `bytes`, in steps if possible.
#[inline]
fn reserve(reservation: &mut Reservation<'_>, bytes: u64) -> Result<(), Refusal> {
    let stepped = bytes.div_ceil(STEP_BYTES).saturating_mul(STEP_BYTES);
    // Falls back to the exact size if no whole step is free.
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

    /// A gzip-compressed request, and the result of reserving for a body with this framing.
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
        // Other requests hold part of the budget and may release it, so the refusal is temporary.
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
