//! Decides which segments are lost.

use rand::{Rng, RngExt};

use super::spec::Loss;

/// The state of a loss process. Each segment is one step.
#[derive(Debug, Clone)]
pub(super) struct LossProcess {
    loss: Loss,
    /// Number of segments that pass before the next loss. The gaps between independent losses have a geometric
    /// distribution; one random number per loss is cheaper than one per segment.
    gap: u64,
    is_bad: bool,
}

impl LossProcess {
    /// Starts in the good state.
    pub(super) fn new(loss: Loss, rng: &mut impl Rng) -> Self {
        let gap = if let Loss::Random { ratio } = loss { geometric(ratio, rng) } else { 0 };
        Self { loss, gap, is_bad: false }
    }

    /// Passes the next `count` segments if that needs no random number. Otherwise changes nothing and returns false.
    pub(super) fn pass_all(&mut self, count: u64) -> bool {
        match self.loss {
            Loss::None => true,
            Loss::Random { .. } if self.gap >= count => {
                self.gap -= count;
                true
            }
            _ => false,
        }
    }

    /// Passes one segment. Returns whether it is lost.
    pub(super) fn step(&mut self, rng: &mut impl Rng) -> bool {
        match self.loss {
            Loss::None => false,
            Loss::Random { ratio } => {
                if self.gap > 0 {
                    self.gap -= 1;
                    return false;
                }
                self.gap = geometric(ratio, rng);
                true
            }
            Loss::GilbertElliott { good_to_bad, bad_to_good, loss_good, loss_bad } => {
                let turn = if self.is_bad { bad_to_good } else { good_to_bad };
                self.is_bad ^= rng.random::<f64>() < turn;
                let ratio = if self.is_bad { loss_bad } else { loss_good };
                ratio > 0.0 && rng.random::<f64>() < ratio
            }
        }
    }
}

/// Number of failures before the first success, by inversion (L. Devroye, *Non-Uniform Random Variate Generation*,
/// X.2).
fn geometric(ratio: f64, rng: &mut impl Rng) -> u64 {
    if ratio >= 1.0 {
        return 0;
    }
    if ratio <= 0.0 {
        return u64::MAX;
    }
    // The value is in (0, 1], so its logarithm is finite.
    let uniform = 1.0 - rng.random::<f64>();
    (uniform.ln() / (-ratio).ln_1p()) as u64
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    use super::*;

    fn losses(loss: Loss, count: usize) -> Vec<bool> {
        let mut rng = Pcg64Mcg::seed_from_u64(5);
        let mut process = LossProcess::new(loss, &mut rng);
        (0..count).map(|_| process.step(&mut rng)).collect()
    }

    fn share(lost: &[bool]) -> f64 {
        lost.iter().filter(|&&lost| lost).count() as f64 / lost.len() as f64
    }

    #[test]
    fn independent_losses_have_their_share_and_no_memory() {
        let lost = losses(Loss::Random { ratio: 0.05 }, 1_000_000);
        assert!((share(&lost) - 0.05).abs() < 0.001, "{}", share(&lost));
        let pairs = lost.windows(2).filter(|pair| pair[0] && pair[1]).count() as f64 / 1e6;
        assert!((pairs - 0.0025).abs() < 0.0003, "{pairs}");
    }

    #[test]
    fn bursts_have_their_share_and_their_mean_length() {
        let lost = losses(Loss::bursty(0.02, 8.0), 4_000_000);
        assert!((share(&lost) - 0.02).abs() < 0.001, "{}", share(&lost));
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        let mean = share(&lost) * lost.len() as f64 / bursts;
        assert!((mean - 8.0).abs() < 0.3, "{mean}");
    }

    #[test]
    fn the_dispersion_is_that_of_the_formula() {
        let loss = Loss::bursty(0.05, 4.0);
        let lost = losses(loss, 4_000_000);
        let counts: Vec<f64> = lost.chunks(1_000).map(|part| share(part) * 1_000.0).collect();
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        let measured = variance / (1_000.0 * 0.05 * 0.95);
        assert!((measured / loss.dispersion() - 1.0).abs() < 0.1, "{measured} for {}", loss.dispersion());
    }

    #[test]
    fn passing_many_at_once_is_the_same_as_one_by_one() {
        let loss = Loss::Random { ratio: 0.1 };
        let (mut rng, mut other) = (Pcg64Mcg::seed_from_u64(9), Pcg64Mcg::seed_from_u64(9));
        let (mut one, mut many) = (LossProcess::new(loss, &mut rng), LossProcess::new(loss, &mut other));
        for _ in 0..10_000 {
            let single: Vec<bool> = (0..4).map(|_| one.step(&mut rng)).collect();
            let grouped = if many.pass_all(4) {
                vec![false; 4]
            } else {
                (0..4).map(|_| many.step(&mut other)).collect()
            };
            assert_eq!(single, grouped);
        }
    }

    #[test]
    fn everything_and_nothing() {
        assert!(losses(Loss::Random { ratio: 1.0 }, 100).iter().all(|&lost| lost));
        assert!(!losses(Loss::None, 100).iter().any(|&lost| lost));
    }
}
