//! Pseudorandom numbers that are the same in every run.

use std::time::Duration;

/// SplitMix64 (G. L. Steele et al., "Fast Splittable Pseudorandom Number Generators", 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Starts the sequence with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any 64-bit number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.any() % bound
    }

    /// A number from 0 to below 1.
    pub fn ratio(&mut self) -> f64 {
        (self.any() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number from `least` to `most` whose logarithm is uniformly distributed.
    pub fn log_uniform(&mut self, least: f64, most: f64) -> f64 {
        least * (most / least).powf(self.ratio())
    }

    /// A time from `least` to `most`, uniformly distributed.
    pub fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let span_ns = most.saturating_sub(least).as_nanos() as u64;
        least + Duration::from_nanos(self.below(span_ns + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stay_within_their_bounds_and_repeat() {
        let (least, most) = (Duration::from_millis(2), Duration::from_millis(3));
        let draw = || {
            let mut random = Random::new(1);
            (0..100).map(|_| random.between(least, most)).collect::<Vec<_>>()
        };
        assert!(draw().iter().all(|time| (least..=most).contains(time)));
        assert_eq!(draw(), draw());
        let mut random = Random::new(2);
        assert!((0..100).all(|_| (0.0..1.0).contains(&random.ratio())));
        assert!((0..100).all(|_| (0.2..=50.0).contains(&random.log_uniform(0.2, 50.0))));
    }
}
