//! A request that was read whole, as lines and what is to be known until they are stored. Done by the loop, or for large
//! bodies by its helper.

use std::sync::Arc;

use sockets::Token;

use super::render::Renderer;
use crate::{
    flight::Flight,
    idempotency::{Answered, Claim, Found, Given},
    pending::Pending,
    refusal::Refusal,
    shared::Shared,
};

/// What a request has come to.
#[derive(Debug)]
pub(crate) enum Prepared<'a> {
    /// Its lines stand behind those that were in the buffer, where [`Renderer::runs`] says. Without runs there is
    /// nothing to store, such as for an empty array.
    Lines(Pending<'a>),
    /// It was stored before, under the same idempotency key.
    Again(Arc<Answered>),
}

/// Makes lines of a request. On a refusal `data` is as before.
#[inline]
pub(super) fn prepare<'a>(
    shared: &'a Shared,
    renderer: &mut Renderer,
    flight: &mut Flight<'a>,
    connection: Token,
    now_ns: u64,
    data: &mut Vec<u8>,
) -> Result<Prepared<'a>, Refusal> {
    flight.finish()?;
    let claim = match &flight.idempotency_key {
        None => None,
        Some(key) => match shared.idempotency.look_up(&flight.tag, key, flight.text(), now_ns) {
            Found::New(claim) => Some(claim),
            Found::Again(answered) => return Ok(Prepared::Again(answered)),
            Found::InFlight => return Err(Refusal::InFlight),
            Found::OtherBody => return Err(Refusal::OtherBody),
        },
    };
    let start = data.len();
    // What the body had is the lines' now.
    let mut share = std::mem::replace(&mut flight.share, shared.budget.share());
    let earlier = claim.as_ref().and_then(Claim::earlier);
    if let Some(part) = earlier {
        flight.time = part.given.time;
        flight.added = part.given.added.to_string();
    }
    let records =
        renderer.render(&shared.store, flight, earlier.map(|part| part.given.now), &mut share, data)?;
    // What is stored already is not stored again, and all is no safer than that.
    let level = earlier.map_or(flight.level, |part| part.level.min(flight.level));
    let stored: Vec<_> = earlier.map_or_else(Vec::new, |part| part.stored.clone());
    renderer.runs.retain(|run| stored.iter().all(|(number, _)| *number != run.number));
    let (stored, receipts): (Vec<_>, Vec<_>) = stored.into_iter().unzip();
    if renderer.runs.is_empty() {
        data.truncate(start);
    }
    let bytes = (data.len() - start) as u64;
    let given = claim.as_ref().map(|_| {
        Box::new(Given { now: renderer.time, time: flight.time, added: flight.added.as_str().into() })
    });
    let held_bytes = claim.as_ref().map_or(0, |_| Claim::HELD_BYTES + flight.added.len() as u64);
    let needed_bytes = bytes + renderer.overhead_bytes() + held_bytes;
    if !share.settle_at(needed_bytes) {
        data.truncate(start);
        return Err(Refusal::for_want_of(needed_bytes, share.limit()));
    }
    Ok(Prepared::Lines(Pending {
        connection,
        manner: std::mem::take(&mut flight.manner),
        level,
        events: records as u64,
        parts_left: 0,
        failure: None,
        earlier: receipts.len(),
        receipts,
        stored,
        given,
        share,
        claim,
        ended_ns: now_ns,
        is_acknowledged: false,
    }))
}
