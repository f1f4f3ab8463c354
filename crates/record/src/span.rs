//! Figures with an interval that contains the true value.

/// Largest share of the generator in a time that is still shown as a single value, in nanoseconds.
const TOLERANCE_NS: f64 = 200_000.0;
/// The same limit relative to the rest of the time. The larger of the two limits applies.
const TOLERANCE_RATIO: f64 = 0.08;
/// Largest difference between the ends of a rate that is still shown as a single value, relative to the lower end.
const RATE_TOLERANCE_RATIO: f64 = 0.03;
/// If the ratio of its ends is larger than this, an interval says too little to be a result.
const MAX_SPREAD: f64 = 4.0;

/// A figure with a lower and an upper end; the target's own value lies between them. The ends are equal unless a
/// disturbance of the instrument may have changed the figure by more than the tolerance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// The measured value: one of the ends.
    pub value: f64,
    /// The lower end.
    pub least: f64,
    /// The upper end, unless `at_least` is set.
    pub most: f64,
    /// Whether the figure has no upper limit, because times were cut off (censored) or the generator was fully used.
    pub at_least: bool,
}

impl Span {
    /// A figure without uncertainty.
    pub fn exact(value: f64) -> Self {
        Self { value, least: value, most: value, at_least: false }
    }

    /// A time in nanoseconds, from its measured value and that value without the largest possible share of the
    /// generator.
    pub(crate) fn of_time_ns(measured: f64, less_own: f64, at_least: bool) -> Self {
        let own = measured - less_own;
        let is_wide = own > TOLERANCE_NS && own > TOLERANCE_RATIO * less_own;
        let least = if is_wide { less_own } else { measured };
        Self { value: measured, least, most: measured, at_least }
    }

    /// A rate, from its measured value and the rate of a generator without absences.
    pub fn of_rate(measured: f64, without_absences: f64, at_least: bool) -> Self {
        let is_wide = without_absences > (1.0 + RATE_TOLERANCE_RATIO) * measured;
        let most = if is_wide { without_absences } else { measured };
        Self { value: measured, least: measured, most, at_least }
    }

    /// Whether the ends differ.
    pub fn is_wide(&self) -> bool {
        self.least < self.most
    }

    /// Whether the ends differ by more than a factor of four, so that the figure says too little.
    pub fn is_vague(&self) -> bool {
        self.most > MAX_SPREAD * self.least
    }

    /// The figure with `change` applied to its value and ends, for example to convert the unit.
    pub fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self { value: change(self.value), least: change(self.least), most: change(self.most), ..self }
    }

    /// The medians of the values, of the lower ends and of the upper ends: the true median lies between the last two.
    /// It has no upper limit if one of the figures up to the middle has none. `None` without finite values.
    pub fn median(spans: impl IntoIterator<Item = Self>) -> Option<Self> {
        let mut spans: Vec<Self> = spans.into_iter().filter(|span| span.value.is_finite()).collect();
        let (middle, upper) = (spans.len().checked_sub(1)? / 2, spans.len() / 2);
        let mut of = |end: fn(&Self) -> f64| {
            spans.sort_by(|a, b| end(a).total_cmp(&end(b)));
            f64::midpoint(end(&spans[middle]), end(&spans[upper]))
        };
        let (least, most, value) = (of(|span| span.least), of(|span| span.most), of(|span| span.value));
        Some(Self { value, least, most, at_least: spans[..=upper].iter().any(|span| span.at_least) })
    }

    /// The figure in words: `496 µs`, `184–496 µs`, `≥ 184 µs`, and `≤ 496 µs` if the lower end is 0.
    pub fn in_words(&self, show: impl Fn(f64) -> String) -> String {
        match (self.at_least, self.is_wide()) {
            (true, _) => format!("≥ {}", show(self.least)),
            (false, false) => show(self.value),
            (false, true) if self.least == 0.0 => format!("≤ {}", show(self.most)),
            (false, true) => {
                let (least, most) = (show(self.least), show(self.most));
                let unit = most.trim_start_matches(|c: char| c.is_ascii_digit() || ",.−".contains(c));
                // Writes a unit that both ends share only once.
                format!("{}–{most}", least.strip_suffix(unit).unwrap_or(&least))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::units::{show_rate, show_time_ns};

    fn time(us: f64, less_own_us: f64, at_least: bool) -> String {
        Span::of_time_ns(us * 1e3, less_own_us * 1e3, at_least).in_words(|ns| show_time_ns(ns as u64))
    }

    #[test]
    fn a_figure_is_a_value_an_interval_or_a_side() {
        assert_eq!(time(496.0, 184.0, false), "184–496 µs");
        assert_eq!(time(9_300.0, 900.0, false), "900 µs–9.30 ms");
        assert_eq!(time(496.0, 184.0, true), "≥ 184 µs");
        assert_eq!(time(496.0, 496.0, true), "≥ 496 µs");
        assert_eq!(time(496.0, 297.0, false), "496 µs", "0.2 ms are tolerated");
        assert_eq!(time(107_000.0, 100_000.0, false), "107 ms", "so are 8 %");
        let rate = |measured, most, at_least| Span::of_rate(measured, most, at_least).in_words(show_rate);
        assert_eq!(rate(1_000.0, 1_030.0, false), "1,000/s");
        assert_eq!(rate(1_000.0, 1_031.0, false), "1,000–1,031/s");
        assert_eq!(rate(1_000.0, 0.0, false), "1,000/s", "an earlier version did not know it");
        assert_eq!(rate(1_000.0, 1_031.0, true), "≥ 1,000/s");
    }

    #[test]
    fn an_interval_is_vague_beyond_a_factor_of_four() {
        let is_vague =
            |least_ms: f64, most_ms: f64| Span::of_time_ns(most_ms * 1e6, least_ms * 1e6, false).is_vague();
        assert!(!is_vague(1.0, 4.0) && is_vague(1.0, 4.1));
        assert!(!is_vague(0.01, 0.2), "0.2 ms are tolerated");
    }

    #[test]
    fn medians() {
        let of = |value, at_least| Span { at_least, ..Span::exact(value) };
        let median = |spans: &[Span]| Span::median(spans.iter().copied());
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[of(3.0, true), of(1.0, false), of(2.0, false)]), Some(of(2.0, false)));
        assert_eq!(median(&[of(3.0, false), of(1.0, true), of(2.0, false)]), Some(of(2.0, true)));
        assert_eq!(median(&[of(f64::NAN, false), of(1.0, false)]), Some(of(1.0, false)));
    }

    proptest! {
        #[test]
        fn the_median_of_figures_lies_in_the_median_of_their_intervals(
            figures in prop::collection::vec((0.0..1e9_f64, 0.0..1e9_f64, 0.0..=1.0_f64), 1..20),
        ) {
            let spans = figures.iter().map(|(least, wide, _)| Span::of_time_ns(least + wide, *least, false));
            let truths = figures.iter().map(|(least, wide, at)| Span::exact(least + wide * at));
            let (median, truth) = (Span::median(spans).unwrap(), Span::median(truths).unwrap().value);
            // The interval does not include differences within the tolerance.
            let tolerated = TOLERANCE_NS.max(TOLERANCE_RATIO * truth);
            prop_assert!(median.least - tolerated <= truth && truth <= median.most, "{median:?} {truth}");
        }
    }
}
