//! How many bytes are on the way at once.
//!
//! Too few starve the path, too many fill the queue of its narrowest place until packets are dropped. As BBR does (Cardwell et al.,
//! ACM Queue 14(5), 2016), the bound is a multiple of what the path holds: the largest rate of the last round trips times the
//! smallest round trip.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::sleep_until,
};

/// Bytes of a permit.
const UNIT_BYTES: usize = 1_024;
/// How much faster the bound grows than what was delivered, until the rate grows no more.
const STARTUP_GAIN: f64 = 2.0;
/// What is on the way later, as a multiple of what the path holds: enough to notice that it holds more.
const CRUISE_GAIN: f64 = 1.2;
/// The rate has stopped growing when it is not this much larger after [`STALLED_ROUND_TRIPS`].
const GROWTH: f64 = 1.25;
/// A connection that lost a packet as it started needs some to recover.
const STALLED_ROUND_TRIPS: u32 = 6;
/// The longest pause after which a limited rate catches up: about what a busy machine takes to wake a program.
const MADE_UP: Duration = Duration::from_millis(250);
/// The largest request.
const REQUEST_BYTES: usize = 255 << 10;
/// Time between two looks.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// Within what a bound moves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// At first: TCP finds out by itself how fast it can start, and must not wait for us meanwhile.
    first_bytes: usize,
    /// What is allowed beyond the multiple. Answers take longer than the smallest round trip, and a bound that followed what it
    /// allows would not get larger again.
    spare_bytes: usize,
    max_bytes: usize,
    /// Rates that are remembered.
    remembered: usize,
}

impl Bounds {
    /// For all channels together.
    pub(crate) const PATH: Self =
        Self { first_bytes: 24 << 20, spare_bytes: 8 << 20, max_bytes: 512 << 20, remembered: 30 };
    /// For one channel: more than SSH's window of 2 MiB would only wait in front of it. A channel that has become slow soon has
    /// little on the way, so that a file does not wait for it at the end.
    pub(crate) const CHANNEL: Self =
        Self { first_bytes: 2_560 << 10, spare_bytes: 768 << 10, max_bytes: 2_560 << 10, remembered: 8 };

    /// A bound that does not move.
    pub(crate) fn fixed(bytes: usize) -> Self {
        Self { first_bytes: bytes, spare_bytes: bytes, max_bytes: bytes, remembered: 1 }
    }
}

/// Gives out permits for bytes on the way.
#[derive(Debug)]
pub(crate) struct Governor {
    permits: Arc<Semaphore>,
    bound_bytes: Cell<usize>,
    /// Permits to be taken back as soon as somebody has no use for them.
    owed_units: Rc<Cell<usize>>,
    bounds: Bounds,
    limit_bytes_per_s: Option<u64>,
    /// When the next bytes may go, under a limit.
    next: Cell<Instant>,
    round_trip: Cell<Duration>,
    delivered_bytes: Cell<u64>,
    last: Cell<(Instant, u64)>,
    rates: RefCell<VecDeque<f64>>,
    startup: Cell<Option<Startup>>,
}

#[derive(Debug, Clone, Copy)]
struct Startup {
    best_rate: f64,
    since: Instant,
}

/// Bytes that may be on the way, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    held: Option<OwnedSemaphorePermit>,
    owed_units: Rc<Cell<usize>>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        // Under a bound that has become smaller, what comes back is not given out again.
        if let Some(mut held) = self.held.take() {
            let owed = self.owed_units.get();
            let forgotten = held.num_permits().min(owed);
            self.owed_units.set(owed - forgotten);
            if let Some(forgotten) = held.split(forgotten) {
                forgotten.forget();
            }
        }
    }
}

impl Governor {
    /// One whose bound follows the path. Under a limit, bytes go no faster than that.
    pub(crate) fn new(bounds: Bounds, limit_bytes_per_s: Option<u64>) -> Rc<Self> {
        Rc::new(Self {
            permits: Arc::new(Semaphore::new(bounds.first_bytes / UNIT_BYTES)),
            bound_bytes: Cell::new(bounds.first_bytes),
            owed_units: Rc::default(),
            bounds,
            limit_bytes_per_s,
            next: Cell::new(Instant::now()),
            round_trip: Cell::new(Duration::MAX),
            delivered_bytes: Cell::new(0),
            last: Cell::new((Instant::now(), 0)),
            rates: RefCell::default(),
            startup: Cell::new(Some(Startup { best_rate: 0.0, since: Instant::now() })),
        })
    }

    /// Waits until so many bytes more may be on the way.
    pub(crate) async fn permit(&self, bytes: usize) -> Permit {
        let units = bytes.div_ceil(UNIT_BYTES).min(self.bound_bytes.get() / UNIT_BYTES).max(1);
        let held = Arc::clone(&self.permits).acquire_many_owned(units as u32).await;
        if let Some(limit) = self.limit_bytes_per_s {
            // Whoever comes takes the next place in time. A short pause is made up for, a longer one is not.
            let now = Instant::now();
            let begin = self.next.get().max(now.checked_sub(MADE_UP).unwrap_or(now));
            self.next.set(begin + Duration::from_secs_f64(bytes as f64 / limit.max(1) as f64));
            sleep_until(begin.into()).await;
        }
        let held = Some(held.expect("the semaphore is never closed"));
        Permit { held, owed_units: Rc::clone(&self.owed_units) }
    }

    /// Bytes have arrived that took so long.
    pub(crate) fn arrived(&self, bytes: usize, took: Duration) {
        self.delivered_bytes.set(self.delivered_bytes.get() + bytes as u64);
        self.round_trip.set(self.round_trip.get().min(took));
    }

    /// A round trip without data was seen.
    pub(crate) fn saw_round_trip(&self, took: Duration) {
        self.round_trip.set(self.round_trip.get().min(took));
    }

    /// The smallest round trip so far.
    pub(crate) fn round_trip(&self) -> Duration {
        self.round_trip.get()
    }

    /// Bytes that have arrived.
    pub(crate) fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes.get()
    }

    /// The bound now, in bytes.
    pub(crate) fn bound_bytes(&self) -> usize {
        self.bound_bytes.get()
    }

    /// Whether as much is on the way as may be, but for less than a tenth or a large request.
    pub(crate) fn is_full(&self) -> bool {
        self.permits.available_permits() * UNIT_BYTES < (self.bound_bytes.get() / 10).max(REQUEST_BYTES)
    }

    /// Looks at what was delivered, and moves the bound. To be called every [`TICK`].
    pub(crate) fn tick(&self, now: Instant) {
        let (then, before) = self.last.get();
        let elapsed = now.duration_since(then);
        let round_trip = self.round_trip.get();
        // A rate over less than a round trip is that of a burst.
        if round_trip == Duration::MAX || elapsed < round_trip.max(TICK / 2) {
            return;
        }
        let delivered = self.delivered_bytes.get();
        self.last.set((now, delivered));
        let rate = (delivered - before) as f64 / elapsed.as_secs_f64();
        let mut rates = self.rates.borrow_mut();
        rates.push_back(rate);
        if rates.len() > self.bounds.remembered {
            rates.pop_front();
        }
        let best = rates.iter().copied().fold(0.0, f64::max);
        if let Some(startup) = self.startup.get() {
            // While channels are few or files are small, the bound is not what holds the rate back.
            if best > startup.best_rate * GROWTH || !self.is_full() {
                self.startup.set(Some(Startup { best_rate: best.max(startup.best_rate), since: now }));
            } else if now.duration_since(startup.since) > STALLED_ROUND_TRIPS * round_trip.max(TICK) {
                self.startup.set(None);
            }
        }
        let gain = if self.startup.get().is_some() { STARTUP_GAIN } else { CRUISE_GAIN };
        let held = best * round_trip.as_secs_f64();
        let Bounds { spare_bytes, max_bytes, .. } = self.bounds;
        let least = if self.startup.get().is_some() { self.bound_bytes.get() } else { spare_bytes };
        self.set(((gain * held) as usize + spare_bytes).clamp(least, max_bytes));
    }

    fn set(&self, bytes: usize) {
        let (before, now) = (self.bound_bytes.get() / UNIT_BYTES, bytes / UNIT_BYTES);
        self.bound_bytes.set(now * UNIT_BYTES);
        let owed = self.owed_units.get();
        if now > before {
            let paid = owed.min(now - before);
            self.owed_units.set(owed - paid);
            self.permits.add_permits(now - before - paid);
        } else {
            let free = self.permits.forget_permits(before - now);
            self.owed_units.set(owed + before - now - free);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path of this rate in bytes per second, whose round trip is always 200 ms: what is on the way beyond it waits.
    fn bound_after(rate: f64, ticks: u32) -> usize {
        let governor = Governor::new(Bounds::PATH, None);
        // All permits are taken all the time.
        let taken = |governor: &Governor| governor.permits.forget_permits(usize::MAX);
        let begin = Instant::now();
        governor.saw_round_trip(Duration::from_millis(200));
        for tick in 1..=ticks {
            let round_trips = 0.1 / 0.2;
            let bytes = (governor.bound_bytes() as f64 * round_trips).min(rate * 0.1);
            governor.arrived(bytes as usize, Duration::from_millis(250));
            taken(&governor);
            governor.tick(begin + tick * TICK);
        }
        governor.bound_bytes()
    }

    #[test]
    fn the_bound_follows_what_the_path_holds() {
        for rate in [20e6, 100e6, 400e6] {
            let holds = rate * 0.2;
            let bound = bound_after(rate, 100) as f64;
            let expected = CRUISE_GAIN * holds + Bounds::PATH.spare_bytes as f64;
            assert!((bound / expected - 1.0).abs() < 0.1, "{bound} of {expected}");
        }
        // Within 2.5 s it holds all that 100 MB/s need.
        assert!(bound_after(100e6, 25) as f64 > 20e6);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn no_more_bytes_are_on_the_way_than_allowed() {
        let governor = Governor::new(Bounds::fixed(4 << 20), None);
        let permits: Vec<_> = (0..16).map(|_| governor.permit(256 << 10)).collect();
        let mut held = Vec::new();
        for permit in permits {
            held.push(permit.await);
        }
        let more = tokio::time::timeout(Duration::from_millis(20), governor.permit(1)).await;
        assert!(more.is_err());
        held.pop();
        held.push(governor.permit(256 << 10).await);
        // Of a bound that became smaller, only what is below it is given out again.
        governor.set(1 << 20);
        held.truncate(4);
        assert!(tokio::time::timeout(Duration::from_millis(20), governor.permit(1)).await.is_err());
        held.pop();
        governor.permit(256 << 10).await;
    }
}
