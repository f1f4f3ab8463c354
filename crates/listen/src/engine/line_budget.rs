//! The part of the budget that a request's lines occupy until they are written.

use crate::{budget::Reservation, refusal::Refusal};

/// Bytes counted per request in addition to its lines, for state that is kept until the lines are stored.
const REQUEST_BYTES: u64 = 256;
/// Bytes counted for each segment of a request, in addition to its lines.
pub(super) const SEGMENT_BYTES: u64 = 128;
/// Budget for lines is reserved in steps of this many bytes.
const STEP_BYTES: u64 = 64 * 1024;

/// Bytes counted for a request with this number of segments, in addition to its lines.
pub(super) fn overhead_bytes(segments: usize) -> u64 {
    REQUEST_BYTES + SEGMENT_BYTES * segments as u64
}

/// Reserves budget for the lines of one request as they are rendered.
#[derive(Debug)]
pub(super) struct LineBudget<'s, 'b> {
    reservation: &'s mut Reservation<'b>,
    needed_bytes: u64,
    /// The reservation is extended when `needed_bytes` exceeds this. One step ahead of the reservation, to extend it
    /// rarely.
    covered_bytes: u64,
}

impl<'s, 'b> LineBudget<'s, 'b> {
    /// Starts with the bytes that `reservation` already holds.
    pub(super) fn new(reservation: &'s mut Reservation<'b>) -> Self {
        let covered_bytes = reservation.bytes() + STEP_BYTES;
        Self { reservation, needed_bytes: overhead_bytes(1), covered_bytes }
    }

    /// Counts more bytes and extends the reservation if necessary.
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
