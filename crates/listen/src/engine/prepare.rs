//! Converts a complete request to lines and a [`Pending`] entry. Called by the loop or, for large bodies, by the body
//! reader.

use std::sync::Arc;

use sockets::Token;

use super::render::Renderer;
use crate::{
    idempotency::{Claim, EarlierAnswer, Found, RenderInputs},
    incoming::IncomingRequest,
    pending::Pending,
    refusal::Refusal,
    shared::Shared,
};

/// The result of [`prepare`].
#[derive(Debug)]
pub(crate) enum Prepared<'a> {
    /// The lines were appended to the buffer, at the ranges in [`Renderer::runs`]. There are no runs if there is nothing
    /// to store, such as for an empty array.
    Lines(Pending<'a>),
    /// An earlier request with the same idempotency key has already been stored.
    Replay(Arc<EarlierAnswer>),
}

/// Appends the lines of a request to `data`. On a refusal, `data` is unchanged.
#[inline]
pub(super) fn prepare<'a>(
    shared: &'a Shared,
    renderer: &mut Renderer,
    incoming: &mut IncomingRequest<'a>,
    connection: Token,
    now_ns: u64,
    data: &mut Vec<u8>,
) -> Result<Prepared<'a>, Refusal> {
    incoming.finish()?;
    let claim = match &incoming.idempotency_key {
        None => None,
        Some(key) => match shared.idempotency.look_up(&incoming.tag, key, incoming.text(), now_ns) {
            Found::New(claim) => Some(claim),
            Found::Answered(answered) => return Ok(Prepared::Replay(answered)),
            Found::InFlight => return Err(Refusal::InFlight),
            Found::OtherBody => return Err(Refusal::OtherBody),
        },
    };
    let start = data.len();
    // The body's reservation becomes that of the lines.
    let mut reservation = std::mem::replace(&mut incoming.reservation, shared.budget.reservation());
    let earlier = claim.as_ref().and_then(Claim::earlier);
    if let Some(part) = earlier {
        incoming.time = part.inputs.time;
        incoming.extra_members = part.inputs.extra_members.to_string();
    }
    let records = renderer.render(
        &shared.store,
        incoming,
        earlier.map(|part| part.inputs.now),
        &mut reservation,
        data,
    )?;
    // Parts stored by an earlier request are left out. Their level limits the level of the whole request.
    let level = earlier.map_or(incoming.level, |part| part.level.min(incoming.level));
    let stored: Vec<_> = earlier.map_or_else(Vec::new, |part| part.stored.clone());
    renderer.runs.retain(|run| stored.iter().all(|(number, _)| *number != run.number));
    let (stored, receipts): (Vec<_>, Vec<_>) = stored.into_iter().unzip();
    if renderer.runs.is_empty() {
        data.truncate(start);
    }
    let bytes = (data.len() - start) as u64;
    let inputs = claim.as_ref().map(|_| {
        Box::new(RenderInputs {
            now: renderer.time,
            time: incoming.time,
            extra_members: incoming.extra_members.as_str().into(),
        })
    });
    let held_bytes = claim.as_ref().map_or(0, |_| Claim::HELD_BYTES + incoming.extra_members.len() as u64);
    let needed_bytes = bytes + renderer.overhead_bytes() + held_bytes;
    if !reservation.resize(needed_bytes) {
        data.truncate(start);
        return Err(Refusal::over_budget(needed_bytes, reservation.limit()));
    }
    Ok(Prepared::Lines(Pending {
        connection,
        context: std::mem::take(&mut incoming.context),
        level,
        events: records as u64,
        parts_left: 0,
        failure: None,
        earlier: receipts.len(),
        receipts,
        stored,
        inputs,
        reservation,
        claim,
        ended_ns: now_ns,
        is_acknowledged: false,
    }))
}
