//! A target whose probability of a bad trial rises with the load.

/// Probability that a trial is bad however small the load, and that it is good however large the load.
const OUTLIER_PROBABILITY: f64 = 0.001;

/// A logistic curve over the logarithm of the load. Its weight says how well it fits the trials.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Curve {
    pub(crate) median: f64,
    pub(crate) spread: f64,
    pub(crate) weight: f64,
}

impl Curve {
    /// The probability that a trial is bad; `load` is the logarithm of the load.
    pub(crate) fn bad_probability(&self, load: f64) -> f64 {
        OUTLIER_PROBABILITY
            + (1.0 - 2.0 * OUTLIER_PROBABILITY) / (1.0 + (-(load - self.median) / self.spread).exp())
    }

    /// The log-likelihood of trials, each given as the logarithm of its load and whether it was bad.
    pub(crate) fn log_likelihood(&self, trials: impl Iterator<Item = (f64, bool)>) -> f64 {
        trials.fold(0.0, |sum, (load, is_bad)| {
            let bad = self.bad_probability(load);
            sum + if is_bad { bad } else { 1.0 - bad }.ln()
        })
    }
}

/// Turns the logarithms of the weights into weights; the largest becomes 1.
pub(crate) fn normalize_weights(curves: &mut [Curve]) {
    let largest = curves.iter().map(|curve| curve.weight).fold(f64::NEG_INFINITY, f64::max);
    curves.iter_mut().for_each(|curve| curve.weight = (curve.weight - largest).exp());
}
