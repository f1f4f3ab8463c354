//! An axis of a chart: its scale, label and number format.

use super::Scale;

/// An axis of a chart.
pub(crate) struct Axis {
    /// The label, with the unit if the ticks have none.
    pub label: String,
    /// Maps the values to positions on the axis.
    pub scale: Scale,
    /// Formats the value of a tick.
    pub show: fn(f64) -> String,
    /// Names for the values 0, 1, 2 and so on, instead of numbers.
    pub names: Option<Vec<String>>,
}

impl Axis {
    /// An axis with numbers.
    pub(crate) fn new(label: impl Into<String>, scale: Scale, show: fn(f64) -> String) -> Self {
        Self { label: label.into(), scale, show, names: None }
    }

    /// A horizontal axis of trials, from the first number to the last.
    pub(crate) fn of_trials(first: f64, last: f64) -> Self {
        Self::new(
            "trial",
            Scale::Linear { low: first - 0.7, high: last.max(first + 1.0) + 0.7 },
            short_number,
        )
    }

    /// The values of about `about` ticks, with their labels.
    pub(crate) fn ticks(&self, about: usize) -> Vec<(f64, String)> {
        match &self.names {
            Some(names) => names.iter().enumerate().map(|(at, name)| (at as f64, name.clone())).collect(),
            None => self.scale.ticks(about).into_iter().map(|tick| (tick, (self.show)(tick))).collect(),
        }
    }
}

/// A number for a tick: `12k`, `1.5M`.
pub(crate) fn short_number(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, "G"),
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    format!("{}{unit}", four_digits(scaled))
}

/// A time in microseconds for a tick: `250 µs`, `10 ms`, `1.5 s`.
pub(crate) fn short_time_us(us: f64) -> String {
    let (scaled, unit) = match us.abs() {
        v if v >= 0.999_999e6 => (us / 1e6, "s"),
        v if v >= 0.999_999e3 => (us / 1e3, "ms"),
        v if v >= 0.999_999 || v == 0.0 => (us, "µs"),
        _ => (us * 1e3, "ns"),
    };
    format!("{} {unit}", four_digits(scaled))
}

/// A share for a tick: `99.9 %`.
pub(crate) fn short_share(share: f64) -> String {
    let text = format!("{:.6}", share * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Seconds for a tick, without unit.
pub(crate) fn short_seconds(seconds: f64) -> String {
    four_digits(seconds)
}

fn four_digits(value: f64) -> String {
    let digits = if value == 0.0 { 0.0 } else { (3.0 - value.abs().log10().floor()).clamp(0.0, 6.0) };
    let text = format!("{value:.*}", digits as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_short() {
        let numbers = [0.0, 0.5, 500.0, 9_000.0, 10_000.0, 17_500.0, 2_500_000.0];
        assert_eq!(numbers.map(short_number), ["0", "0.5", "500", "9000", "10k", "17.5k", "2.5M"]);
        let times = [0.5, 2.0, 250.0, 1_000.0, 2_500.0, 1e6, 0.0];
        assert_eq!(times.map(short_time_us), ["500 ns", "2 µs", "250 µs", "1 ms", "2.5 ms", "1 s", "0 µs"]);
        assert_eq!([0.0, 0.5, 0.999].map(short_share), ["0 %", "50 %", "99.9 %"]);
    }
}
