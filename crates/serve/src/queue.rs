//! The queue of a server with limited capacity, simulated in virtual time without clock, threads or random numbers.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

/// A first-come, first-served queue with several equal servers (G/G/c/K in Kendall's notation).
///
/// With FIFO order, a request's start is known when it arrives, because it takes the server that becomes free first:
/// `start = max(arrival, earliest free)` and `done = start + service`. Starts are in the order of arrival, so a scan
/// from the front counts the requests waiting at any time. Source: Kiefer and Wolfowitz, On the theory of queues with
/// many servers, 1955.
#[derive(Debug, Clone)]
pub struct Queue {
    /// When each server becomes free, in nanoseconds.
    free_ns: BinaryHeap<Reverse<u64>>,
    /// Start times of the waiting requests, ascending.
    starts_ns: VecDeque<u64>,
    /// Maximum number of waiting requests; `None` means unlimited.
    limit: Option<u64>,
    /// Time of the latest arrival, in nanoseconds.
    now_ns: u64,
    peak: u64,
}

/// The result of an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The request is admitted.
    Served {
        /// When the request starts to wait, in nanoseconds: its arrival, or the previous request's arrival if that was
        /// later.
        arrived_ns: u64,
        /// When its service starts, in nanoseconds.
        start_ns: u64,
        /// When its service ends, in nanoseconds.
        done_ns: u64,
    },
    /// The request is refused, because all servers are busy and the queue is full.
    Full,
}

impl Queue {
    /// A queue with `servers` idle servers (at least 1) and at most `limit` waiting requests.
    pub fn new(servers: u32, limit: Option<u64>) -> Self {
        let free_ns = (0..servers.max(1)).map(|_| Reverse(0)).collect();
        Self { free_ns, starts_ns: VecDeque::new(), limit, now_ns: 0, peak: 0 }
    }

    /// Adds a request that arrives at `now_ns`. Calls `service_ns` for its service time if it is admitted.
    ///
    /// Arrivals should be in order of time; an earlier arrival counts as simultaneous with the previous one. Threads
    /// read the clock before they call this, so they may overtake each other by some nanoseconds.
    pub fn arrive(&mut self, now_ns: u64, service_ns: impl FnOnce() -> u64) -> Admission {
        let arrived_ns = self.now_ns.max(now_ns);
        self.now_ns = arrived_ns;
        while self.starts_ns.front().is_some_and(|&start| start <= arrived_ns) {
            self.starts_ns.pop_front();
        }
        let Some(mut earliest) = self.free_ns.peek_mut() else {
            return Admission::Full;
        };
        let waits = earliest.0 > arrived_ns;
        if waits && self.limit.is_some_and(|limit| self.starts_ns.len() as u64 >= limit) {
            return Admission::Full;
        }
        let start_ns = earliest.0.max(arrived_ns);
        let done_ns = start_ns.saturating_add(service_ns());
        *earliest = Reverse(done_ns);
        drop(earliest);
        if waits {
            self.starts_ns.push_back(start_ns);
            self.peak = self.peak.max(self.starts_ns.len() as u64);
        }
        Admission::Served { arrived_ns, start_ns, done_ns }
    }

    /// Highest number of requests that waited at the same time.
    pub fn peak(&self) -> u64 {
        self.peak
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;
    use record::Distribution;

    fn served(arrived_ns: u64, start_ns: u64, done_ns: u64) -> Admission {
        Admission::Served { arrived_ns, start_ns, done_ns }
    }

    #[test]
    fn one_server_serves_in_order() {
        let mut queue = Queue::new(1, None);
        assert_eq!(queue.arrive(100, || 50), served(100, 100, 150));
        assert_eq!(queue.arrive(110, || 50), served(110, 150, 200));
        assert_eq!(queue.arrive(120, || 10), served(120, 200, 210));
        assert_eq!(queue.peak(), 2);
        assert_eq!(queue.arrive(210, || 1), served(210, 210, 211));
        assert_eq!(queue.peak(), 2);
    }

    #[test]
    fn several_servers_work_side_by_side() {
        let mut queue = Queue::new(3, None);
        for expected_start in [0, 0, 0, 10, 10, 10, 20] {
            assert_eq!(queue.arrive(0, || 10), served(0, expected_start, expected_start + 10));
        }
        assert_eq!(queue.peak(), 4);
        // At 15, three requests are in service and one waits. The new one gets one of the three servers that are free at
        // 20.
        assert_eq!(queue.arrive(15, || 10), served(15, 20, 30));
    }

    #[test]
    fn a_full_queue_refuses_and_draws_no_service_time() {
        let mut queue = Queue::new(1, Some(2));
        queue.arrive(0, || 100);
        queue.arrive(0, || 100);
        queue.arrive(0, || 100);
        assert_eq!(queue.arrive(50, || panic!("not admitted")), Admission::Full);
        // At 100, the first waiting request enters service, which frees a place in the queue.
        assert_eq!(queue.arrive(100, || 100), served(100, 300, 400));
        assert_eq!(queue.arrive(100, || 100), Admission::Full);
        assert_eq!(queue.peak(), 2);
    }

    #[test]
    fn without_places_to_wait_only_a_free_server_admits() {
        let mut queue = Queue::new(2, Some(0));
        assert_eq!(queue.arrive(0, || 10), served(0, 0, 10));
        assert_eq!(queue.arrive(5, || 10), served(5, 5, 15));
        assert_eq!(queue.arrive(9, || 10), Admission::Full);
        assert_eq!(queue.arrive(10, || 10), served(10, 10, 20));
        assert_eq!(queue.peak(), 0);
    }

    #[test]
    fn an_arrival_out_of_order_counts_as_of_the_last() {
        let mut queue = Queue::new(1, None);
        queue.arrive(1_000, || 0);
        assert_eq!(queue.arrive(900, || 7), served(1_000, 1_000, 1_007));
    }

    /// Simulates Poisson arrivals and exponential service. Returns the mean wait in units of the mean service time, and
    /// the share of refused requests.
    fn simulate(servers: u32, limit: Option<u64>, load: f64, arrivals: u32) -> (f64, f64) {
        let service = Distribution::Exponential { mean_ns: 1_000_000 };
        let between = Distribution::Exponential { mean_ns: (1e6 / load / f64::from(servers)) as u64 };
        let mut rng = Pcg64Mcg::seed_from_u64(42);
        let mut queue = Queue::new(servers, limit);
        let (mut now, mut waited, mut admitted) = (0, 0, 0);
        for _ in 0..arrivals {
            now += between.sample_ns(&mut rng);
            let service_ns = service.sample_ns(&mut rng);
            if let Admission::Served { arrived_ns, start_ns, .. } = queue.arrive(now, || service_ns) {
                waited += start_ns - arrived_ns;
                admitted += 1;
            }
        }
        let refused = f64::from(arrivals - admitted) / f64::from(arrivals);
        (waited as f64 / f64::from(admitted) / 1e6, refused)
    }

    #[test]
    fn the_mean_wait_of_m_m_1_is_the_closed_form() {
        // W_q = rho / (1 - rho) in units of the service time.
        for rho in [0.3, 0.5, 0.8] {
            let (wait, _) = simulate(1, None, rho, 2_000_000);
            let formula = rho / (1.0 - rho);
            assert!((wait / formula - 1.0).abs() < 0.03, "rho {rho}: {wait} against {formula}");
        }
    }

    #[test]
    fn the_mean_wait_of_m_m_4_is_erlang_c() {
        let (servers, rho): (u32, f64) = (4, 0.8);
        let offered = f64::from(servers) * rho;
        let term = |k: u32| (1..=k).fold(1.0, |product, i| product * offered / f64::from(i));
        let last = term(servers) / (1.0 - rho);
        let waits = last / ((0..servers).map(term).sum::<f64>() + last);
        let formula = waits / (f64::from(servers) * (1.0 - rho));
        let (wait, _) = simulate(servers, None, rho, 2_000_000);
        assert!((wait / formula - 1.0).abs() < 0.03, "{wait} against {formula}");
    }

    #[test]
    fn the_loss_of_m_m_1_k_is_the_closed_form() {
        // K = 5 in the system: 1 in service, 4 waiting. P = (1 - rho) rho^K / (1 - rho^(K+1)).
        let rho = 0.9_f64;
        let formula = (1.0 - rho) * rho.powi(5) / (1.0 - rho.powi(6));
        let (_, refused) = simulate(1, Some(4), rho, 1_000_000);
        assert!((refused / formula - 1.0).abs() < 0.02, "{refused} against {formula}");
    }
}
