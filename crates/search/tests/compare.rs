//! Tests the claims of `compare` about simulated targets with a known difference.
//!
//! The noise resembles that of real services: log-normal between runs (2 to 5 %), drift of the machine during the runs,
//! and occasional disturbed runs. All random numbers are seeded.

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1, StandardNormal};
use rand_pcg::Pcg64Mcg;
use search::statistics::{
    Better, Comparison, Confidence, Question, Runs, Scale, Verdict, compare, compare_all,
};

/// Simulated comparisons of each kind.
const COMPARISONS: usize = 1_000;
/// Largest share of false claims at a confidence of 95 %.
const MAX_FALSE_CLAIM_RATIO: f64 = 0.05;
/// Largest number of false claims per kind. If the true share is 5 %, the number is larger once in a thousand times.
const MAX_FALSE_CLAIMS_PER_KIND: usize = 72;
const MIN_FOUND: usize = 900;
const SEED: u64 = 1;

/// How A and B were run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    InBlocks,
    Separately,
}

/// Two targets, and the machine on which they run.
struct Bench {
    rng: Pcg64Mcg,
    order: Order,
    runs: usize,
    /// Standard deviation of the logarithm, for each quantity.
    noise: Vec<f64>,
}

impl Bench {
    fn new(seed: u64, order: Order, runs: usize, quantities: usize) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let noise = (0..quantities).map(|_| rng.random_range(0.02..0.05)).collect();
        Self { rng, order, runs, noise }
    }

    /// Runs and compares both targets. B's first quantity is larger by `difference` (0.1 is 10 %).
    fn compare(&mut self, difference: f64) -> Vec<Comparison> {
        let (a, b) = match self.order {
            Order::InBlocks => {
                let drift = self.drift_of_blocks();
                (self.session(&drift), self.session(&drift))
            }
            Order::Separately => {
                // The machine warms up in each of the two sessions.
                let drift: Vec<f64> =
                    (0..self.runs).map(|run| -0.03 * run as f64 / self.runs as f64).collect();
                (self.session(&drift), self.session(&drift))
            }
        };
        let b: Vec<Vec<f64>> = b
            .into_iter()
            .enumerate()
            .map(|(quantity, values)| {
                let factor = if quantity == 0 { 1.0 + difference } else { 1.0 };
                values.into_iter().map(|value| value * factor).collect()
            })
            .collect();
        let questions: Vec<Question> = a
            .iter()
            .zip(&b)
            .map(|(a, b)| Question {
                runs: match self.order {
                    Order::InBlocks => Runs::Blocks { a, b },
                    Order::Separately => Runs::Separate { a, b },
                },
                better: Better::More,
                scale: Scale::Ratio,
            })
            .collect();
        compare_all(&questions, Confidence::default())
            .into_iter()
            .map(|answer| answer.expect("simulated values are positive"))
            .collect()
    }

    /// A random walk of 1 % from block to block, and a trend of up to 5 % over all blocks.
    fn drift_of_blocks(&mut self) -> Vec<f64> {
        let trend = self.rng.random_range(-0.05..0.05) / self.runs as f64;
        let mut level = 0.0;
        (0..self.runs)
            .map(|_| {
                let step: f64 = StandardNormal.sample(&mut self.rng);
                level += trend + 0.01 * step;
                level
            })
            .collect()
    }

    /// One value per run for each quantity. Half of a run's noise is common to all its quantities; one run in 50 is
    /// disturbed and loses 10 to 40 %.
    fn session(&mut self, drift: &[f64]) -> Vec<Vec<f64>> {
        let mut values = vec![Vec::new(); self.noise.len()];
        for drift in drift {
            let common: f64 = StandardNormal.sample(&mut self.rng);
            let disturbed = if self.rng.random_bool(0.02) { self.rng.random_range(0.6..0.9) } else { 1.0 };
            for (quantity, values) in values.iter_mut().enumerate() {
                let own: f64 = StandardNormal.sample(&mut self.rng);
                let noise = self.noise[quantity] * (common + own) / 2.0_f64.sqrt();
                values.push(1_000.0 * (noise + drift).exp() * disturbed);
            }
        }
        values
    }
}

/// The number of false claims and the number of true differences found, each in [`COMPARISONS`] comparisons. The true
/// difference is twice the resolvable difference that an earlier comparison stated.
fn simulate(order: Order, runs: usize, quantities: usize) -> (usize, usize) {
    let claims = |answers: &[Comparison]| {
        answers.iter().any(|answer| matches!(answer.verdict, Verdict::ABetter | Verdict::BBetter))
    };
    let (mut false_claims, mut found) = (0, 0);
    for round in 0..COMPARISONS as u64 {
        let mut bench = Bench::new(SEED + 1_000 * round, order, runs, quantities);
        let equal = bench.compare(0.0);
        false_claims += usize::from(claims(&equal));
        let stated = equal[0].resolvable.expect("there are enough runs, and they differ");
        found += usize::from(bench.compare(2.0 * stated)[0].verdict == Verdict::BBetter);
    }
    (false_claims, found)
}

#[test]
fn false_claims_are_rare_and_resolvable_differences_are_found() {
    let mut all_false_claims = Vec::new();
    for order in [Order::InBlocks, Order::Separately] {
        for (quantities, runs) in [(1, 6), (1, 10), (1, 20), (4, 6), (4, 10), (4, 20)] {
            let (false_claims, found) = simulate(order, runs, quantities);
            let kind = format!("{order:?}, {runs} runs, {quantities} at once");
            println!("{kind}: {false_claims} false claims, {found} differences found, of {COMPARISONS} each");
            assert!(false_claims <= MAX_FALSE_CLAIMS_PER_KIND, "{kind}: {false_claims}");
            assert!(found >= MIN_FOUND, "{kind}: {found}");
            all_false_claims.push(false_claims);
        }
    }
    let share = all_false_claims.iter().sum::<usize>() as f64 / (all_false_claims.len() * COMPARISONS) as f64;
    println!("false claims in all: {:.1} %", share * 100.0);
    assert!(share <= MAX_FALSE_CLAIM_RATIO, "{share}");
}

/// The interval of the effect contains the true ratio with its stated confidence, whatever the noise.
#[test]
fn intervals_cover_the_true_ratio() {
    let normal = |rng: &mut Pcg64Mcg| -> f64 {
        let z: f64 = StandardNormal.sample(rng);
        (100.0 + 4.0 * z).ln()
    };
    let log_normal = |rng: &mut Pcg64Mcg| -> f64 {
        let z: f64 = StandardNormal.sample(rng);
        0.3 * z
    };
    let exponential = |rng: &mut Pcg64Mcg| -> f64 {
        let time: f64 = Exp1.sample(rng);
        time.ln()
    };
    type Noise<'a> = &'a dyn Fn(&mut Pcg64Mcg) -> f64;
    let noises: [(&str, Noise); 3] =
        [("normal", &normal), ("log-normal", &log_normal), ("exponential", &exponential)];
    let ratio = 1.07;
    let mut rng = Pcg64Mcg::seed_from_u64(SEED);
    for (name, noise) in noises {
        for order in [Order::InBlocks, Order::Separately] {
            for runs in [4, 6, 10, 20] {
                let rounds = 2_000;
                let mut covered = 0;
                for _ in 0..rounds {
                    let a: Vec<f64> = (0..runs).map(|_| noise(&mut rng).exp()).collect();
                    let b: Vec<f64> = (0..runs).map(|_| ratio * noise(&mut rng).exp()).collect();
                    let runs = match order {
                        Order::InBlocks => Runs::Blocks { a: &a, b: &b },
                        Order::Separately => Runs::Separate { a: &a, b: &b },
                    };
                    let question = Question { runs, better: Better::More, scale: Scale::Ratio };
                    let answer =
                        compare(question, Confidence::default()).expect("simulated values are positive");
                    covered += usize::from(answer.low <= ratio && ratio <= answer.high);
                }
                let coverage = f64::from(covered as u32) / f64::from(rounds);
                println!("{name}, {order:?}, {runs} runs: {:.1} %", coverage * 100.0);
                assert!(coverage >= 0.94, "{name}, {order:?}, {runs} runs: {coverage}");
            }
        }
    }
}
