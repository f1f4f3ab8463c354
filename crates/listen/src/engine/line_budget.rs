//! The room that lines take of the budget while they are written.

use crate::{budget::Reservation, refusal::Refusal};

/// What a request takes of the budget besides its lines: what is kept of it until they are stored.
const REQUEST_BYTES: u64 = 256;
/// What each of its segments takes.
pub(super) const SEGMENT_BYTES: u64 = 128;
/// Lines ask the budget for room in steps of so many bytes.
const STEP_BYTES: u64 = 64 * 1024;

/// What a request of so many segments needs of the budget besides its lines.
pub(super) fn overhead_bytes(segments: usize) -> u64 {
    REQUEST_BYTES + SEGMENT_BYTES * segments as u64
}

/// The room that a request has for its lines.
#[derive(Debug)]
pub(super) struct LineBudget<'s, 'b> {
    reservation: &'s mut Reservation<'b>,
    needed_bytes: u64,
    /// Nothing is asked of the budget up to here.
    covered_bytes: u64,
}

impl<'s, 'b> LineBudget<'s, 'b> {
    /// What the share covers is there already.
    pub(super) fn new(reservation: &'s mut Reservation<'b>) -> Self {
        let covered_bytes = reservation.bytes() + STEP_BYTES;
        Self { reservation, needed_bytes: overhead_bytes(1), covered_bytes }
    }

    /// Needs more: takes it of the budget, or says why there is none.
    #[inline]
    pub(super) fn reserve(&mut self, bytes: u64) -> Result<(), Refusal> {
        self.needed_bytes += bytes;
        if self.needed_bytes > self.reservation.limit() {
            return Err(Refusal::ExceedsBudget(self.reservation.limit()));
        }
        if self.needed_bytes > self.covered_bytes {
            if !self.reservation.grow_to(self.needed_bytes) {
                return Err(Refusal::Budget);
            }
            self.covered_bytes = self.needed_bytes + STEP_BYTES;
        }
        Ok(())
    }
}
