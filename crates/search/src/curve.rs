//! A target whose trials are bad with a probability that rises with the load.

/// Share of trials that are bad or good whatever the load.
const FLUKES: f64 = 0.001;

/// A logistic curve over the logarithm of the load, and how much speaks for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Curve {
    pub(crate) median: f64,
    pub(crate) spread: f64,
    pub(crate) weight: f64,
}

impl Curve {
    /// The chance that a trial is bad, at the logarithm of its load.
    pub(crate) fn bad(&self, load: f64) -> f64 {
        FLUKES + (1.0 - 2.0 * FLUKES) / (1.0 + (-(load - self.median) / self.spread).exp())
    }

    /// The logarithm of the chance that trials went as they did: at the logarithm of each load, whether it was bad.
    pub(crate) fn log_likelihood(&self, trials: impl Iterator<Item = (f64, bool)>) -> f64 {
        trials.fold(0.0, |sum, (load, is_bad)| {
            let bad = self.bad(load);
            sum + if is_bad { bad } else { 1.0 - bad }.ln()
        })
    }
}

/// Makes weights of their logarithms, that of the heaviest curve 1.
pub(crate) fn weigh(curves: &mut [Curve]) {
    let heaviest = curves.iter().map(|curve| curve.weight).fold(f64::NEG_INFINITY, f64::max);
    curves.iter_mut().for_each(|curve| curve.weight = (curve.weight - heaviest).exp());
}
