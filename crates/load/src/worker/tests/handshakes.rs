//! Connections that need a handshake after TCP's, on virtual time.

use std::{
    ops::RangeInclusive,
    sync::{Arc, atomic::AtomicBool, mpsc},
};

use record::{ConnectionPlan, ErrorClass, HttpPlan};
use rustix::io::Errno;

use crate::{
    recorder::Recorder,
    request::RequestBytes,
    share::Share,
    testing,
    wire::{
        Agreed, Event, HandshakeStep, PrefaceStep, Received, Result, Route, SlotId, Waited, Wake, Wire,
        simulated::SimulatedWire,
    },
    worker::{
        Finished, Worker,
        tests::{MS, S, Steady},
    },
    worker_result::WorkerResult,
};

const AGREED: Agreed = Agreed { version: "TLS 1.3", cipher: "a cipher", is_resumed: false };

/// A simulated wire whose connections need a handshake, and optionally a tunnel before it. The peer's part of each arrives a
/// constant time after the start.
struct SecureWire {
    inner: SimulatedWire<Steady>,
    takes_ns: u64,
    /// How long a tunnel takes, if there is one.
    tunnel_ns: Option<u64>,
    /// For each slot: the generation to report, and when the peer's part of its handshake arrives.
    handshakes: Vec<(u32, Option<u64>)>,
    /// Pending parts of handshakes, each with its time.
    coming: Vec<(u64, SlotId)>,
}

impl SecureWire {
    /// Starts the wait for the peer's part; once the part has arrived, returns how long it has been unread.
    fn awaited(&mut self, slot: SlotId, takes_ns: u64) -> Option<u64> {
        let now_ns = self.now_ns();
        let arrives_ns = &mut self.handshakes[slot as usize].1;
        let Some(at_ns) = *arrives_ns else {
            *arrives_ns = Some(now_ns + takes_ns);
            self.coming.push((now_ns + takes_ns, slot));
            return None;
        };
        (at_ns <= now_ns).then(|| {
            *arrives_ns = None;
            now_ns - at_ns
        })
    }
}

impl Wire for SecureWire {
    const HAS_HANDSHAKE: bool = true;

    fn now_ns(&self) -> u64 {
        self.inner.now_ns()
    }

    fn connect(&mut self, slot: SlotId, route: &Route) -> Result<(), Errno> {
        self.inner.connect(slot, route)
    }

    fn watch(&mut self, slot: SlotId, generation: u32, writable: bool) -> Result<(), Errno> {
        self.handshakes[slot as usize].0 = generation;
        self.inner.watch(slot, generation, writable)
    }

    fn connect_result(&mut self, slot: SlotId) -> Result<(), Errno> {
        self.inner.connect_result(slot)
    }

    fn has_preface(&self) -> bool {
        self.tunnel_ns.is_some()
    }

    fn preface(&mut self, slot: SlotId) -> Result<PrefaceStep> {
        let Some(tunnel_ns) = self.tunnel_ns else {
            return Ok(PrefaceStep { is_done: true, unread_ns: Some(0) });
        };
        let unread_ns = self.awaited(slot, tunnel_ns);
        Ok(PrefaceStep { is_done: unread_ns.is_some(), unread_ns: unread_ns.or(Some(0)) })
    }

    fn handshake(&mut self, slot: SlotId) -> Result<HandshakeStep> {
        let unread_ns = self.awaited(slot, self.takes_ns);
        let agreed = unread_ns.map(|_| AGREED);
        Ok(HandshakeStep { agreed, unread_ns: unread_ns.or(Some(0)), may_have_more: false })
    }

    fn send(&mut self, slot: SlotId, bytes: &[u8]) -> Result<usize> {
        self.inner.send(slot, bytes)
    }

    fn receive(&mut self, slot: SlotId, buffer: &mut [u8], discard: bool) -> Result<Received> {
        self.inner.receive(slot, buffer, discard)
    }

    fn readable_for_ns(&self, slot: SlotId) -> Option<RangeInclusive<u64>> {
        self.inner.readable_for_ns(slot)
    }

    fn round_trip_ns(&self, slot: SlotId) -> Option<u64> {
        self.inner.round_trip_ns(slot)
    }

    fn open_for_ns(&self, slot: SlotId) -> Option<RangeInclusive<u64>> {
        self.inner.open_for_ns(slot)
    }

    fn close(&mut self, slot: SlotId) {
        self.handshakes[slot as usize].1 = None;
        self.coming.retain(|(_, coming)| *coming != slot);
        self.inner.close(slot);
    }

    fn wait(&mut self, until_ns: Option<u64>, wake: Wake, events: &mut Vec<Event>) -> Waited {
        let next_ns = self.coming.iter().map(|(at_ns, _)| *at_ns).min();
        let until_ns = until_ns.into_iter().chain(next_ns).min();
        let waited = self.inner.wait(until_ns, wake, events);
        let now_ns = self.now_ns();
        for (_, slot) in self.coming.extract_if(.., |(at_ns, _)| *at_ns <= now_ns) {
            let generation = self.handshakes[slot as usize].0;
            events.push(Event { slot, generation, readable: true, writable: false, closed: false });
        }
        waited
    }

    fn waited_ns(&self) -> u64 {
        0
    }

    fn spun_ns(&self) -> u64 {
        0
    }

    fn burn(&mut self, ns: u64) {
        self.inner.burn(ns);
    }
}

/// Two users with five requests each. Each request uses a new connection.
fn plan(connection: ConnectionPlan) -> HttpPlan {
    let plan = HttpPlan { keepalive: false, requests: Some(10), timeout_ns: S, ..testing::closed(2) };
    HttpPlan { connection, ..plan }
}

fn run(takes_ns: u64, stops: &[(u64, u64)]) -> WorkerResult {
    run_plan(plan(ConnectionPlan::default()), takes_ns, None, stops)
}

fn run_plan(plan: HttpPlan, takes_ns: u64, tunnel_ns: Option<u64>, stops: &[(u64, u64)]) -> WorkerResult {
    let plan = Arc::new(plan);
    let (tick_sender, ticks) = mpsc::channel();
    let (_spares, spare) = mpsc::channel();
    let recorder = Recorder::new(0, tick_sender, spare, &plan);
    let length = RequestBytes::new(&plan).length();
    let wire = |slots| {
        let mut inner = SimulatedWire::new(Steady { after_ns: MS }, length, slots);
        inner.stops = stops.iter().copied().collect();
        let handshakes = vec![(0, None); slots];
        Ok::<_, Errno>(SecureWire { inner, takes_ns, tunnel_ns, handshakes, coming: Vec::new() })
    };
    let stop = Arc::new(AtomicBool::new(false));
    let mut worker =
        Worker::<_, crate::exchange::Fixed>::new(plan, Share::WHOLE, None, recorder, stop, wire).unwrap();
    worker.prepare();
    let t0_ns = worker.now_ns() + MS;
    let Finished { mut result, .. } = worker.run(t0_ns);
    for tick in ticks {
        result.http.response_time.observed.merge(&tick.response_time);
    }
    result
}

#[test]
fn a_handshake_has_a_time_of_its_own() {
    let http = run(3 * MS, &[]).http;
    assert_eq!((http.counts.completed, http.counts.handshakes, http.handshake_time.count()), (10, 10, 10));
    let is_about = |ns: u64, truth_ns: u64| ns.abs_diff(truth_ns) <= truth_ns / 500;
    assert!(is_about(http.handshake_time.min_ns(), 3 * MS) && is_about(http.handshake_time.max_ns(), 3 * MS));
    // The response time includes the handshake; the service time and the connect time do not.
    assert!(is_about(http.response_time.observed.max_ns(), 4 * MS + 10_000));
    assert!(is_about(http.service_time.observed.max_ns(), MS));
    assert!(http.connect_time.max_ns() < MS);
    assert_eq!(http.tls_sessions.into_iter().collect::<Vec<_>>(), [("TLS 1.3 a cipher".to_owned(), 10)]);
    assert_eq!(http.away.times, 0);
}

#[test]
fn an_absence_in_a_handshake_is_the_generators_own() {
    // The clock starts at 1 s, the trial at 1,001 ms: the loop stops for 50 ms within the first handshake.
    let result = run(3 * MS, &[(S + 2 * MS, 50 * MS)]);
    let http = result.http;
    assert_eq!((http.counts.completed, http.handshake_time.count()), (10, 10));
    assert!(http.handshake_time.max_ns() < 4 * MS, "{} ns", http.handshake_time.max_ns());
    assert!(http.away.times > 0 && http.away.longest_s > 0.04, "{:?}", http.away);
    let longest = http.response_time.percentile(1.0);
    assert!(longest.most as u64 > 50 * MS && longest.is_wide(), "{longest:?}");
}

#[test]
fn a_handshake_without_an_end_times_out_in_its_own_class() {
    let http = run(60 * S, &[]).http;
    assert_eq!(http.errors.iter().collect::<Vec<_>>(), [(ErrorClass::TlsTimeout, 10)]);
    assert_eq!((http.counts.connections_opened, http.counts.handshakes), (10, 0));
    assert_eq!(http.response_time.censored.count(), 10);
    // Five times 100 ms, not five times the request timeout of one second.
    let connection = ConnectionPlan { handshake_timeout_ns: Some(100 * MS), ..ConnectionPlan::default() };
    let result = run_plan(plan(connection.clone()), 60 * S, None, &[]);
    assert_eq!(result.http.errors.iter().collect::<Vec<_>>(), [(ErrorClass::TlsTimeout, 10)]);
    assert!(result.elapsed_ns < S, "{} ns", result.elapsed_ns);
    // A tunnel before the handshake is bounded only by the request timeout.
    assert!(run_plan(plan(connection), 99 * MS, Some(500 * MS), &[]).http.errors.is_empty());
}

#[test]
fn a_tunnel_is_no_part_of_the_handshake() {
    let tunnelled = |stops| run_plan(plan(ConnectionPlan::default()), 3 * MS, Some(5 * MS), stops).http;
    let http = tunnelled(&[]);
    assert_eq!((http.counts.completed, http.counts.handshakes, http.handshake_time.count()), (10, 10, 10));
    let is_about = |ns: u64, truth_ns: u64| ns.abs_diff(truth_ns) <= truth_ns / 500;
    assert!(is_about(http.handshake_time.max_ns(), 3 * MS) && http.connect_time.max_ns() < MS);
    assert!(is_about(http.response_time.observed.max_ns(), 9 * MS + 10_000));
    // The loop stops within the first tunnel, so the proxy's answer is unread for a while.
    let http = tunnelled(&[(S + 3 * MS, 50 * MS)]);
    assert_eq!((http.counts.completed, http.handshake_time.count()), (10, 10));
    assert!(http.handshake_time.max_ns() < 4 * MS, "{} ns", http.handshake_time.max_ns());
    assert!(http.response_time.percentile(1.0).is_wide() && http.away.longest_s > 0.04, "{:?}", http.away);
}

#[test]
fn a_tunnel_that_does_not_open_times_out_in_its_own_class() {
    let http = run_plan(plan(ConnectionPlan::default()), MS, Some(60 * S), &[]).http;
    assert_eq!(http.errors.iter().collect::<Vec<_>>(), [(ErrorClass::ProxyTimeout, 10)]);
    assert_eq!((http.counts.connections_opened, http.counts.handshakes), (10, 0));
    // The connections of a pool are made before the start, through tunnels as well.
    let open = HttpPlan { timeout_ns: S, ..testing::open(100.0, 1, 4) };
    let pool = run_plan(open.clone(), 3 * MS, Some(5 * MS), &[]).http;
    assert_eq!((pool.counts.completed, pool.counts.handshakes), (100, 4));
    assert!(pool.response_time.observed.max_ns() < 2 * MS, "{} ns", pool.response_time.observed.max_ns());
    let pool = run_plan(open, MS, Some(60 * S), &[]).http;
    assert!(
        pool.counts.completed == 0 && pool.connection_errors.of(ErrorClass::ProxyTimeout) > 0,
        "{pool:?}"
    );
}

#[test]
fn what_is_opened_too_late_carries_no_request() {
    // The handshake ends when the request times out, and the loop notices both at once.
    for (takes_ns, tunnel_ns, class) in
        [(S - 10_000, None, ErrorClass::TlsTimeout), (MS, Some(S - 10_000), ErrorClass::ProxyTimeout)]
    {
        let http = run_plan(plan(ConnectionPlan::default()), takes_ns, tunnel_ns, &[]).http;
        assert_eq!(http.errors.iter().collect::<Vec<_>>(), [(class, 10)]);
        assert_eq!((http.counts.completed, http.counts.failed), (0, 10));
        assert!(http.service_time.censored.max_ns() < 2 * S, "{} ns", http.service_time.censored.max_ns());
    }
}
