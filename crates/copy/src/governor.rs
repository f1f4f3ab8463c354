//! Limits the number of bytes in flight.
//!
//! With too few bytes in flight, the path idles; with too many, the copy waits for a slow connection at its end. As in
//! BBR (Cardwell et al., ACM Queue 14(5), 2016), the bound of a channel is a multiple of the capacity of its path: the
//! highest rate of the last round trips times the smallest round trip. Channels share no bound unless the user sets
//! one, because slow connections would use up a shared bound.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    time::{Duration, Instant},
};

use tokio::{sync::Notify, time::sleep_until};

/// The multiple while the rate still grows: TCP doubles the rate in each round trip.
const STARTUP_GAIN: f64 = 3.0;
/// The multiple afterwards: large enough to notice that the path has more capacity than before.
const CRUISE_GAIN: f64 = 1.2;
/// The rate has stopped growing if it grew by less than this factor in [`STALLED_ROUND_TRIPS`].
const GROWTH: f64 = 1.25;
/// Number of round trips without growth. A connection that loses a packet while it starts needs some round trips to
/// recover.
const STALLED_ROUND_TRIPS: u32 = 6;
/// Longest pause that a limited rate makes up for: about the time that a busy machine needs to wake a program.
const MADE_UP: Duration = Duration::from_millis(250);
/// Minimum and maximum size of a request, in bytes. A request with less data is smaller.
const REQUEST_BYTES: [usize; 2] = [32 << 10, 255 << 10];
/// Number of requests per second under a rate limit.
const LIMITED_PER_S: usize = 40;
/// Bytes that all channels together may have in flight beyond the multiple, expressed as a time at their total rate.
const SPARE_TIME: Duration = Duration::from_millis(100);
/// Minimum and maximum of these additional bytes for each channel.
const SPARE_BYTES: [usize; 2] = [128 << 10, 2_048 << 10];
/// Default bound on the bytes in flight over all channels.
const MAX_BYTES: usize = 512 << 20;
/// Time between two adjustments of a bound.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// The range of a bound.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// The first bound: more than TCP sends in its first round trips, but not so much that a slow connection gets a
    /// long queue.
    first_bytes: usize,
    /// The minimum bound.
    least_bytes: usize,
    max_bytes: usize,
    /// Number of past rates that are kept.
    remembered: usize,
}

impl Bounds {
    /// For one channel. Bytes beyond SSH's window of 2 MiB would only wait in front of it. A channel that becomes slow
    /// soon has little in flight, so that a file does not wait for it at the end.
    pub(crate) const CHANNEL: Self =
        Self { first_bytes: 256 << 10, least_bytes: 0, max_bytes: 2_560 << 10, remembered: 8 };

    /// For all channels together: a fixed bound.
    pub(crate) fn path(asked_bytes: Option<usize>) -> Self {
        let bytes = asked_bytes.unwrap_or(MAX_BYTES);
        Self { first_bytes: bytes, least_bytes: bytes, max_bytes: bytes, remembered: 30 }
    }
}

/// Grants permits for bytes in flight.
#[derive(Debug)]
pub(crate) struct Governor {
    used: Rc<Used>,
    bound_bytes: Cell<usize>,
    bounds: Bounds,
    limit_bytes_per_s: Option<u64>,
    /// Whether the bytes of READs count as delivered; otherwise those of WRITEs do.
    pub(crate) counts_reads: bool,
    /// Earliest time for the next bytes under a rate limit.
    next: Cell<Instant>,
    round_trip: Cell<Duration>,
    delivered_bytes: Cell<u64>,
    last: Cell<(Instant, u64)>,
    rates: RefCell<VecDeque<f64>>,
    /// The number of channels that share the bound.
    pub(crate) channels: Cell<u32>,
    startup: Cell<Option<Startup>>,
}

#[derive(Debug, Clone, Copy)]
struct Startup {
    best_rate: f64,
    since: Instant,
}

/// The bytes in flight.
#[derive(Debug, Default)]
struct Used {
    bytes: Cell<usize>,
    freed: Notify,
}

/// Permission to have bytes in flight until the permit is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    bytes: usize,
    used: Rc<Used>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.used.bytes.set(self.used.bytes.get() - self.bytes);
        self.used.freed.notify_one();
    }
}

impl Governor {
    /// A governor whose bound follows the path. With a rate limit, bytes are sent no faster than that.
    pub(crate) fn new(bounds: Bounds, limit_bytes_per_s: Option<u64>, counts_reads: bool) -> Rc<Self> {
        Rc::new(Self {
            used: Rc::default(),
            bound_bytes: Cell::new(bounds.first_bytes),
            bounds,
            limit_bytes_per_s,
            counts_reads,
            next: Cell::new(Instant::now()),
            round_trip: Cell::new(Duration::MAX),
            delivered_bytes: Cell::new(0),
            last: Cell::new((Instant::now(), 0)),
            rates: RefCell::default(),
            channels: Cell::new(0),
            startup: Cell::new(Some(Startup { best_rate: 0.0, since: Instant::now() })),
        })
    }

    /// Waits until `bytes` more bytes may be in flight. A request larger than the bound is sent alone.
    pub(crate) async fn permit(&self, bytes: usize) -> Permit {
        loop {
            let freed = self.used.freed.notified();
            let used = self.used.bytes.get();
            if used == 0 || used + bytes <= self.bound_bytes.get() {
                self.used.bytes.set(used + bytes);
                // There may also be room for the next waiter.
                self.used.freed.notify_one();
                break;
            }
            freed.await;
        }
        let permit = Permit { bytes, used: Rc::clone(&self.used) };
        if let Some(limit) = self.limit_bytes_per_s {
            // Each caller gets the next free time slot. A short pause is made up for, but not a longer one.
            let now = Instant::now();
            let begin = self.next.get().max(now.checked_sub(MADE_UP).unwrap_or(now));
            self.next.set(begin + Duration::from_secs_f64(bytes as f64 / limit.max(1) as f64));
            sleep_until(begin.into()).await;
        }
        permit
    }

    /// Returns permitted bytes that will not be sent.
    pub(crate) fn give_back(&self, bytes: usize) {
        if let Some(limit) = self.limit_bytes_per_s {
            let time = Duration::from_secs_f64(bytes as f64 / limit.max(1) as f64);
            self.next.set(self.next.get().checked_sub(time).unwrap_or_else(Instant::now));
        }
    }

    /// Records the arrival of bytes and the duration of their request.
    pub(crate) fn arrived(&self, bytes: usize, took: Duration) {
        self.delivered_bytes.set(self.delivered_bytes.get() + bytes as u64);
        self.saw_round_trip(took);
    }

    /// Records a round trip without data.
    pub(crate) fn saw_round_trip(&self, took: Duration) {
        self.round_trip.set(self.round_trip.get().min(took));
    }

    /// The smallest round trip so far.
    pub(crate) fn round_trip(&self) -> Duration {
        self.round_trip.get()
    }

    /// Number of bytes that have arrived.
    pub(crate) fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes.get()
    }

    /// The highest rate of the last round trips, in bytes per second.
    pub(crate) fn rate(&self) -> f64 {
        self.rates.borrow().iter().copied().fold(0.0, f64::max)
    }

    /// The current bound, in bytes.
    pub(crate) fn bound_bytes(&self) -> usize {
        self.bound_bytes.get()
    }

    /// Whether the bound is nearly reached: less than a tenth of it, or less than a request, is free.
    pub(crate) fn is_full(&self) -> bool {
        let free_bytes = self.bound_bytes.get().saturating_sub(self.used.bytes.get());
        free_bytes < (self.bound_bytes.get() / 10).max(self.request_bytes())
    }

    /// Size of a request, in bytes: small enough for each channel to have several in flight. Under a rate limit,
    /// sending a request takes only a short time, so that other users of the path see no bursts.
    pub(crate) fn request_bytes(&self) -> usize {
        let fitting = self.bound_bytes.get() / 4 / self.channels.get().max(1) as usize;
        let limited = self.limit_bytes_per_s.map_or(usize::MAX, |limit| limit as usize / LIMITED_PER_S);
        fitting.min(limited).clamp(REQUEST_BYTES[0], REQUEST_BYTES[1])
    }

    /// Bytes that each channel may have in flight beyond the multiple of what it delivers. Answers take longer than the
    /// smallest round trip, so without these bytes the bound could shrink and never grow again. At a low rate there are
    /// few of them, so that a slow connection does not end long after all others.
    pub(crate) fn spare_bytes(&self) -> usize {
        let all = self.rate() * SPARE_TIME.as_secs_f64();
        ((all / f64::from(self.channels.get().max(1))) as usize).clamp(SPARE_BYTES[0], SPARE_BYTES[1])
    }

    /// Sets the bound to the multiple of the delivered bytes plus `spare_bytes`. Must be called every [`TICK`].
    pub(crate) fn tick(&self, now: Instant, spare_bytes: usize) {
        let (then, before) = self.last.get();
        let elapsed = now.duration_since(then);
        let round_trip = self.round_trip.get();
        // Over less than a round trip, the rate would be that of a burst.
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
        drop(rates);
        let best = self.rate();
        if let Some(startup) = self.startup.get() {
            // A bound that is not used up, as with few channels or small files, does not hold the rate back.
            if best > startup.best_rate * GROWTH || !self.is_full() {
                self.startup.set(Some(Startup { best_rate: best.max(startup.best_rate), since: now }));
            } else if now.duration_since(startup.since) > STALLED_ROUND_TRIPS * round_trip.max(TICK) {
                self.startup.set(None);
            }
        }
        let gain = if self.startup.get().is_some() { STARTUP_GAIN } else { CRUISE_GAIN };
        let held = best * round_trip.as_secs_f64();
        let Bounds { least_bytes, max_bytes, .. } = self.bounds;
        let least = if self.startup.get().is_some() { self.bound_bytes.get() } else { least_bytes };
        self.bound_bytes.set(((gain * held) as usize + spare_bytes).clamp(least, max_bytes));
        self.used.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bound of a channel with this rate, in bytes per second. The round trip is always 200 ms: additional bytes in
    /// flight wait in a queue.
    fn bound_after(rate: f64, ticks: u32) -> usize {
        let governor = Governor::new(Bounds::CHANNEL, None, true);
        let begin = Instant::now();
        governor.saw_round_trip(Duration::from_millis(200));
        for tick in 1..=ticks {
            let round_trips = 0.1 / 0.2;
            let bytes = (governor.bound_bytes() as f64 * round_trips).min(rate * 0.1);
            governor.arrived(bytes as usize, Duration::from_millis(250));
            // The bound is used up all the time.
            governor.used.bytes.set(governor.bound_bytes());
            governor.tick(begin + tick * TICK, SPARE_BYTES[0]);
        }
        governor.bound_bytes()
    }

    #[test]
    fn the_bound_follows_what_the_path_holds() {
        for rate in [1e5, 1e6, 4e6] {
            let holds = rate * 0.2;
            let bound = bound_after(rate, 100) as f64;
            let expected = CRUISE_GAIN * holds + SPARE_BYTES[0] as f64;
            assert!((bound / expected - 1.0).abs() < 0.1, "{bound} of {expected}");
        }
        assert_eq!(bound_after(40e6, 100), Bounds::CHANNEL.max_bytes);
    }

    #[test]
    fn channels_of_a_slow_path_have_less_to_spare() {
        for (rate, expected) in [(0.0, 128 << 10), (1e6, 128 << 10), (90e6, 500_000), (1e9, 2_048 << 10)] {
            let path = Governor::new(Bounds::path(None), None, true);
            path.channels.set(18);
            path.rates.borrow_mut().push_back(rate);
            assert_eq!(path.spare_bytes(), expected, "{rate}");
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn no_more_bytes_are_on_the_way_than_allowed() {
        let governor = Governor::new(Bounds::path(Some(4 << 20)), None, true);
        let permits: Vec<_> = (0..16).map(|_| governor.permit(256 << 10)).collect();
        let mut held = Vec::new();
        for permit in permits {
            held.push(permit.await);
        }
        let more = tokio::time::timeout(Duration::from_millis(20), governor.permit(1)).await;
        assert!(more.is_err());
        held.pop();
        held.push(governor.permit(256 << 10).await);
        // After the bound has shrunk, permits are granted only below the new bound.
        governor.bound_bytes.set(1 << 20);
        held.truncate(4);
        assert!(tokio::time::timeout(Duration::from_millis(20), governor.permit(1)).await.is_err());
        held.pop();
        governor.permit(256 << 10).await;
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_is_more_than_may_ever_be_goes_alone() {
        let governor = Governor::new(Bounds::path(Some(4 << 20)), None, true);
        let first = governor.permit(1 << 20).await;
        let large = governor.permit(3 << 20).await;
        let mut waits = Box::pin(governor.permit(2 << 20));
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut waits).await.is_err());
        // The bound shrinks below the request of a waiting caller.
        governor.bound_bytes.set(1 << 20);
        drop((first, large));
        tokio::time::timeout(testing::PATIENCE, waits).await.unwrap();
    }
}
