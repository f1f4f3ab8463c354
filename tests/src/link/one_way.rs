//! One-way delays of datagrams, and the distance of their distribution from the requested one.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{LinkedHosts, PATIENCE_NS, elapsed_ns};

impl LinkedHosts {
    /// One-way delays of single datagrams in nanoseconds, in the order of their arrival. A datagram is sent after each interval.
    ///
    /// # Errors
    /// If a host cannot be entered.
    pub fn one_way_delays(&self, count: u32, interval: Duration) -> Result<Vec<u64>> {
        let (near, far) = (self.socket(0)?, self.socket(1)?);
        near.connect(far.local_addr()?)?;
        far.set_nonblocking(true)?;
        let started = Instant::now();
        let mut delays = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                for index in 0..count {
                    thread::sleep((interval * index).saturating_sub(started.elapsed()));
                    let _ = near.send(&elapsed_ns(started).to_ne_bytes());
                }
            });
            let (mut datagram, mut last_ns) = ([0; 8], 0);
            // Poll the socket, because a sleeping receiver wakes up late, which would count for the link.
            while delays.len() < count as usize && elapsed_ns(started) < last_ns + PATIENCE_NS {
                if let Ok(8) = far.recv(&mut datagram) {
                    last_ns = elapsed_ns(started);
                    delays.push(last_ns - u64::from_ne_bytes(datagram));
                }
            }
        });
        Ok(delays)
    }
}

/// The Kolmogorov-Smirnov distance of these times from the uniform distribution from 0 to `most_ns`, after shifting both to the same
/// median.
pub fn distance_from_uniform(times_ns: &[u64], most_ns: f64) -> f64 {
    let mut sorted = times_ns.to_vec();
    sorted.sort_unstable();
    let Some(&median_ns) = sorted.get(sorted.len() / 2) else { return 1.0 };
    let count = sorted.len() as f64;
    let distances = sorted.iter().enumerate().map(|(rank, &ns)| {
        let expected = ((ns as f64 - median_ns as f64) / most_ns + 0.5).clamp(0.0, 1.0);
        (expected - rank as f64 / count).abs().max((expected - (rank + 1) as f64 / count).abs())
    });
    distances.fold(0.0, f64::max)
}
