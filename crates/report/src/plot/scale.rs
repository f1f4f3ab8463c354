//! Maps values to positions on an axis and chooses ticks.

/// A mapping of values to positions on an axis, both ends included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scale {
    /// Equal distances for equal differences.
    Linear {
        /// The value at the start.
        low: f64,
        /// The value at the end.
        high: f64,
    },
    /// Equal distances for equal ratios.
    Log {
        /// The value at the start, above 0.
        low: f64,
        /// The value at the end.
        high: f64,
    },
    /// Shares (0 to 1) with 0, 90 %, 99 %, 99.9 % at equal distances.
    Nines {
        /// The number of nines at the end.
        nines: f64,
    },
}

impl Scale {
    /// A linear scale that starts at 0 and includes every value.
    pub(crate) fn from_zero(values: impl IntoIterator<Item = f64>) -> Self {
        let high = values.into_iter().filter(|v| v.is_finite()).fold(0.0, f64::max);
        let high = if high > 0.0 { high } else { 1.0 };
        let step = nice_step(high / 6.0);
        Self::Linear { low: 0.0, high: (high / step - 1e-9).ceil() * step }
    }

    /// A linear scale around the values, for values far from 0.
    pub(crate) fn around(values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = ends(values, |_| true).unwrap_or((0.0, 1.0));
        let span = if high > low { high - low } else { high.abs().max(1.0) };
        Self::Linear { low: low - span * 0.04, high: high + span * 0.04 }
    }

    /// A logarithmic scale that includes every value above 0.
    pub(crate) fn log(values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = ends(values, |v| v > 0.0).unwrap_or((1.0, 10.0));
        let pad = (high / low).powf(0.05).max(1.12);
        Self::Log { low: low / pad, high: high * pad }
    }

    /// The position of a value, 0 to 1; `None` if it is not on the scale.
    pub(crate) fn position(&self, value: f64) -> Option<f64> {
        let position = match *self {
            Self::Linear { low, high } => (value - low) / (high - low),
            Self::Log { low, high } if value > 0.0 => (value / low).ln() / (high / low).ln(),
            Self::Log { .. } => return None,
            Self::Nines { nines } => -(1.0 - value).max(0.0).log10() / nines,
        };
        (position.is_finite() && (-1e-9..=1.0 + 1e-9).contains(&position)).then(|| position.clamp(0.0, 1.0))
    }

    /// About `about` values for ticks.
    pub(crate) fn ticks(&self, about: usize) -> Vec<f64> {
        let about = about.max(2);
        match *self {
            Self::Linear { low, high } => linear_ticks(low, high, about),
            Self::Log { low, high } => log_ticks(low, high, about),
            Self::Nines { nines } => nines_ticks(nines),
        }
    }
}

fn ends(values: impl IntoIterator<Item = f64>, is_included: impl Fn(f64) -> bool) -> Option<(f64, f64)> {
    let values = values.into_iter().filter(|&value| value.is_finite() && is_included(value));
    values.fold(None, |ends, value| match ends {
        None => Some((value, value)),
        Some((low, high)) => Some((low.min(value), high.max(value))),
    })
}

/// The smallest of 1, 2, 2.5, 5 and their decimal multiples that is at least `min`.
fn nice_step(min: f64) -> f64 {
    let power = 10_f64.powf(min.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|step| step * power >= min * (1.0 - 1e-9));
    step.unwrap_or(10.0) * power
}

fn linear_ticks(low: f64, high: f64, about: usize) -> Vec<f64> {
    let step = nice_step((high - low) / about as f64);
    let first = (low / step - 1e-9).ceil();
    let count = ((high / step + 1e-9).floor() - first).max(0.0) as usize;
    (0..=count.min(100)).map(|i| (first + i as f64) * step).collect()
}

fn log_ticks(low: f64, high: f64, about: usize) -> Vec<f64> {
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let in_decades = |digits: &[f64]| -> Vec<f64> {
        let all =
            decades.clone().flat_map(|power| digits.iter().map(move |digit| digit * 10_f64.powi(power)));
        all.filter(|&tick| tick >= low * (1.0 - 1e-9) && tick <= high * (1.0 + 1e-9)).collect()
    };
    for digits in [[1.0, 2.0, 5.0].as_slice(), &[1.0, 3.0], &[1.0]] {
        let ticks = in_decades(digits);
        if (2..=about.max(4) + 2).contains(&ticks.len()) {
            return ticks;
        }
    }
    let decades = in_decades(&[1.0]);
    if decades.len() > 2 {
        let every = decades.len().div_ceil(about.max(1));
        return decades.into_iter().step_by(every).collect();
    }
    linear_ticks(low, high, about)
}

fn nines_ticks(nines: f64) -> Vec<f64> {
    let whole = (1..=nines.floor().max(0.0) as i32).map(|n| 1.0 - 10_f64.powi(-n));
    [0.0, 0.5].into_iter().chain(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(
            Scale::Linear { low: 0.0, high: 40_000.0 }.ticks(4),
            [0.0, 10_000.0, 20_000.0, 30_000.0, 40_000.0]
        );
        assert_eq!(Scale::Log { low: 0.9, high: 120.0 }.ticks(6), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(Scale::Log { low: 110.0, high: 140.0 }.ticks(3), [110.0, 120.0, 130.0, 140.0]);
        assert_eq!(Scale::Nines { nines: 2.5 }.ticks(5), [0.0, 0.5, 0.9, 0.99]);
        assert_eq!(Scale::from_zero([3.0, 17_500.0]), Scale::Linear { low: 0.0, high: 20_000.0 });
    }

    #[test]
    fn values_off_the_scale_have_no_position() {
        assert_eq!(Scale::log([1.0, 10.0]).position(0.0), None);
        assert_eq!(Scale::from_zero([1.0]).position(f64::NAN), None);
        assert_eq!(Scale::Nines { nines: 3.0 }.position(1.0), None);
        assert!((Scale::Nines { nines: 4.0 }.position(0.99).unwrap() - 0.5).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn every_value_has_a_position_on_its_scale(values in prop::collection::vec(1e-9_f64..1e12, 1..20)) {
            for scale in [
                Scale::from_zero(values.iter().copied()),
                Scale::around(values.iter().copied()),
                Scale::log(values.iter().copied()),
            ] {
                for &value in &values {
                    prop_assert!(scale.position(value).is_some(), "{scale:?} {value}");
                }
                let ticks = scale.ticks(5);
                prop_assert!((1..=14).contains(&ticks.len()), "{scale:?} {ticks:?}");
                prop_assert!(ticks.iter().all(|&tick| scale.position(tick).is_some()), "{scale:?} {ticks:?}");
            }
        }
    }
}
