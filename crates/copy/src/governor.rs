//! How many bytes are on the way at once.
//!
//! Too few starve the path, too many wait for a slow connection at the end. As BBR does (Cardwell et al., ACM Queue 14(5), 2016), the
//! bound of a channel is a multiple of what its path holds: the largest rate of the last round trips times the smallest round trip.
//! Channels share no bound unless one was asked for: in a shared one, what waits for slow connections would leave fast ones nothing.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    time::{Duration, Instant},
};

use tokio::{sync::Notify, time::sleep_until};

/// How much larger than what was delivered the bound is until the rate grows no more: TCP doubles it in each round trip.
const STARTUP_GAIN: f64 = 3.0;
/// What is on the way later, as a multiple of what the path holds: enough to notice that it holds more.
const CRUISE_GAIN: f64 = 1.2;
/// The rate has stopped growing when it is not this much larger after [`STALLED_ROUND_TRIPS`].
const GROWTH: f64 = 1.25;
/// A connection that lost a packet as it started needs some to recover.
const STALLED_ROUND_TRIPS: u32 = 6;
/// The longest pause after which a limited rate catches up: about what a busy machine takes to wake a program.
const MADE_UP: Duration = Duration::from_millis(250);
/// The largest request, and the smallest where its data has more.
const REQUEST_BYTES: [usize; 2] = [32 << 10, 255 << 10];
/// Requests in a second of a limited rate.
const LIMITED_PER_S: usize = 40;
/// What all channels together may have on the way beyond the multiple, as a time at the rate of all.
const SPARE_TIME: Duration = Duration::from_millis(100);
/// The least and the most of it for each.
const SPARE_BYTES: [usize; 2] = [128 << 10, 2_048 << 10];
/// All that may be on the way where nothing else was asked for.
const MAX_BYTES: usize = 512 << 20;
/// Time between two looks.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// Within what a bound moves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// At first: more than TCP sends in its first round trips. What a connection cannot carry would wait for it.
    first_bytes: usize,
    /// The least.
    least_bytes: usize,
    max_bytes: usize,
    /// Rates that are remembered.
    remembered: usize,
}

impl Bounds {
    /// For one channel: more than SSH's window of 2 MiB would only wait in front of it. A channel that has become slow soon has
    /// little on the way, so that a file does not wait for it at the end.
    pub(crate) const CHANNEL: Self =
        Self { first_bytes: 256 << 10, least_bytes: 0, max_bytes: 2_560 << 10, remembered: 8 };

    /// For all channels together: a bound that does not move.
    pub(crate) fn path(asked_bytes: Option<usize>) -> Self {
        let bytes = asked_bytes.unwrap_or(MAX_BYTES);
        Self { first_bytes: bytes, least_bytes: bytes, max_bytes: bytes, remembered: 30 }
    }
}

/// Gives out permits for bytes on the way.
#[derive(Debug)]
pub(crate) struct Governor {
    used: Rc<Used>,
    bound_bytes: Cell<usize>,
    bounds: Bounds,
    limit_bytes_per_s: Option<u64>,
    /// Whether what is read counts, or what is written.
    pub(crate) counts_reads: bool,
    /// When the next bytes may go, under a limit.
    next: Cell<Instant>,
    round_trip: Cell<Duration>,
    delivered_bytes: Cell<u64>,
    last: Cell<(Instant, u64)>,
    rates: RefCell<VecDeque<f64>>,
    /// Channels that share what is on the way.
    pub(crate) channels: Cell<u32>,
    startup: Cell<Option<Startup>>,
}

#[derive(Debug, Clone, Copy)]
struct Startup {
    best_rate: f64,
    since: Instant,
}

/// What is on the way.
#[derive(Debug, Default)]
struct Used {
    bytes: Cell<usize>,
    freed: Notify,
}

/// Bytes that may be on the way, until it is dropped.
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
    /// One whose bound follows the path. Under a limit, bytes go no faster than that.
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

    /// Waits until so many bytes more may be on the way. What is more than may ever be goes alone.
    pub(crate) async fn permit(&self, bytes: usize) -> Permit {
        loop {
            let freed = self.used.freed.notified();
            let used = self.used.bytes.get();
            if used == 0 || used + bytes <= self.bound_bytes.get() {
                self.used.bytes.set(used + bytes);
                // There may be room for the next waiter, too.
                self.used.freed.notify_one();
                break;
            }
            freed.await;
        }
        let permit = Permit { bytes, used: Rc::clone(&self.used) };
        if let Some(limit) = self.limit_bytes_per_s {
            // Each caller gets the next free time slot. A short pause is made up for, a longer one is not.
            let now = Instant::now();
            let begin = self.next.get().max(now.checked_sub(MADE_UP).unwrap_or(now));
            self.next.set(begin + Duration::from_secs_f64(bytes as f64 / limit.max(1) as f64));
            sleep_until(begin.into()).await;
        }
        permit
    }

    /// Of what was permitted, so many bytes do not go.
    pub(crate) fn give_back(&self, bytes: usize) {
        if let Some(limit) = self.limit_bytes_per_s {
            let time = Duration::from_secs_f64(bytes as f64 / limit.max(1) as f64);
            self.next.set(self.next.get().checked_sub(time).unwrap_or_else(Instant::now));
        }
    }

    /// Bytes have arrived that took so long.
    pub(crate) fn arrived(&self, bytes: usize, took: Duration) {
        self.delivered_bytes.set(self.delivered_bytes.get() + bytes as u64);
        self.saw_round_trip(took);
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

    /// The largest rate of the last round trips, in bytes per second.
    pub(crate) fn rate(&self) -> f64 {
        self.rates.borrow().iter().copied().fold(0.0, f64::max)
    }

    /// The bound now, in bytes.
    pub(crate) fn bound_bytes(&self) -> usize {
        self.bound_bytes.get()
    }

    /// Whether as much is on the way as may be, but for less than a tenth or a large request.
    pub(crate) fn is_full(&self) -> bool {
        let free_bytes = self.bound_bytes.get().saturating_sub(self.used.bytes.get());
        free_bytes < (self.bound_bytes.get() / 10).max(self.request_bytes())
    }

    /// Bytes of a request, several of which are to be on the way over each channel. Under a limit, they are what goes in a short
    /// time, so that others see no bursts.
    pub(crate) fn request_bytes(&self) -> usize {
        let fitting = self.bound_bytes.get() / 4 / self.channels.get().max(1) as usize;
        let limited = self.limit_bytes_per_s.map_or(usize::MAX, |limit| limit as usize / LIMITED_PER_S);
        fitting.min(limited).clamp(REQUEST_BYTES[0], REQUEST_BYTES[1])
    }

    /// What each channel may have on the way beyond the multiple of what it delivers. Answers take longer than the smallest round
    /// trip, and a bound that followed what it allows would not get larger again. At a low rate little will do: a slow connection
    /// would carry more for long when all others are done.
    pub(crate) fn spare_bytes(&self) -> usize {
        let all = self.rate() * SPARE_TIME.as_secs_f64();
        ((all / f64::from(self.channels.get().max(1))) as usize).clamp(SPARE_BYTES[0], SPARE_BYTES[1])
    }

    /// Looks at what was delivered, and moves the bound, which is so much larger than the multiple. To be called every [`TICK`].
    pub(crate) fn tick(&self, now: Instant, spare_bytes: usize) {
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
        drop(rates);
        let best = self.rate();
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
        let Bounds { least_bytes, max_bytes, .. } = self.bounds;
        let least = if self.startup.get().is_some() { self.bound_bytes.get() } else { least_bytes };
        self.bound_bytes.set(((gain * held) as usize + spare_bytes).clamp(least, max_bytes));
        self.used.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A channel of this rate in bytes per second, whose round trip is always 200 ms: what is on the way beyond it waits.
    fn bound_after(rate: f64, ticks: u32) -> usize {
        let governor = Governor::new(Bounds::CHANNEL, None, true);
        let begin = Instant::now();
        governor.saw_round_trip(Duration::from_millis(200));
        for tick in 1..=ticks {
            let round_trips = 0.1 / 0.2;
            let bytes = (governor.bound_bytes() as f64 * round_trips).min(rate * 0.1);
            governor.arrived(bytes as usize, Duration::from_millis(250));
            // As much is on the way as may be, all the time.
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
        // Of a bound that became smaller, only what is below it is given out again.
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
        // The bound becomes smaller than what a caller waits for.
        governor.bound_bytes.set(1 << 20);
        drop((first, large));
        tokio::time::timeout(testing::PATIENCE, waits).await.unwrap();
    }
}
