//! Formats figures and foreign text for people, the same in every output format.

use jiff::Timestamp;
pub(crate) use record::printable;
use record::{
    QuantitySummary, Span,
    units::{show_bytes, show_count, show_rate, show_time_ns},
};

/// Like [`printable`], but shortened to `max_chars` characters with an ellipsis.
pub(crate) fn clipped(text: &str, max_chars: usize) -> String {
    let shown = printable(text);
    if shown.chars().count() <= max_chars {
        return shown;
    }
    let mut short: String = shown.chars().take(max_chars.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// A time in nanoseconds, as a value, an interval or a lower bound.
pub(crate) fn time(time: Span) -> String {
    time.in_words(|ns| show_time_ns(ns as u64))
}

/// A share as a percentage with two significant digits: `0 %`, `0.0012 %`, `1.3 %`, `100 %`.
pub(crate) fn share(ratio: f64) -> String {
    let percent = ratio * 100.0;
    match percent {
        p if !p.is_finite() => "–".to_owned(),
        0.0 => "0 %".to_owned(),
        // Shares just below 1 are not rounded up to 100 %.
        p if (99.0..100.0).contains(&p) => format!("{} %", trimmed(&format!("{:.2}", p.min(99.99)))),
        p if p >= 10.0 => format!("{} %", trimmed(&format!("{p:.1}"))),
        p => {
            let digits = (1.0 - p.abs().log10().floor()).clamp(0.0, 12.0) as usize;
            format!("{} %", trimmed(&format!("{p:.digits$}")))
        }
    }
}

/// A value in the unit that the quantity's name ends with.
pub fn quantity(name: &str, value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    if value < 0.0 {
        return format!("−{}", quantity(name, -value));
    }
    // A float of this size is no longer an exact whole number, and no unit would make it readable.
    if value >= 1e18 {
        return format!("{value:.3e}");
    }
    match name {
        n if n.ends_with("_bytes_per_s") => format!("{}/s", show_bytes(value.round() as u64)),
        n if n.ends_with("_bit_per_s") => show_bit_rate(value),
        n if n.ends_with("_per_s") => show_rate(value),
        n if n.ends_with("_us") => show_time_ns((value * 1e3).round() as u64),
        n if n.ends_with("_ns") => show_time_ns(value.round() as u64),
        n if n.ends_with("_s") && value >= 1e9 => format!("{} s", number(value)),
        n if n.ends_with("_s") => show_time_ns((value * 1e9).round() as u64),
        n if n.ends_with("_bytes") => show_bytes(value.round() as u64),
        n if n.ends_with("_ratio") => share(value),
        _ => number(value),
    }
}

/// A bit rate in decimal units: `937.2 Mbit/s`.
fn show_bit_rate(bits_per_s: f64) -> String {
    let (scale, unit) = match bits_per_s.abs() {
        1e9.. => (1e9, "Gbit/s"),
        1e6.. => (1e6, "Mbit/s"),
        1e3.. => (1e3, "kbit/s"),
        _ => (1.0, "bit/s"),
    };
    format!("{} {unit}", number(bits_per_s / scale))
}

/// A measured figure, as a value, an interval or a lower bound; a dash if there is none.
pub(crate) fn value(name: &str, measured: Option<Span>) -> String {
    measured.map_or_else(|| "–".to_owned(), |measured| measured.in_words(|value| quantity(name, value)))
}

/// A median and its interval, without the confidence: `12,345/s [12,100, 12,500]`. A common unit is written once.
pub(crate) fn interval(summary: &QuantitySummary, at_least: bool) -> String {
    let show = |value| quantity(&summary.quantity, value);
    let median = Span { at_least, ..summary.span() }.in_words(show);
    if summary.values.len() < 2 {
        return median;
    }
    let unit = show(summary.median);
    let unit = unit.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, ',' | '.' | '−'));
    let (low, high) = (show(summary.low), show(summary.high));
    match (low.strip_suffix(unit), high.strip_suffix(unit)) {
        (Some(low), Some(high)) => format!("{median} [{low}, {high}]"),
        _ => format!("{median} [{low}, {high}]"),
    }
}

/// A confidence (0 to 1) as a percentage with one decimal. Rounds down, so that it never becomes 100 %.
pub(crate) fn confidence(confidence: f64) -> String {
    let percent = (confidence * 1000.0).floor() / 10.0;
    format!("{} %", trimmed(&format!("{percent:.1}")))
}

/// A number without unit: whole numbers with separated thousands, others with four significant digits.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let sign = if value < 0.0 { "−" } else { "" };
    let size = value.abs();
    if size >= 1e18 {
        return format!("{sign}{size:.3e}");
    }
    if size >= 1000.0 || size.fract() == 0.0 {
        return format!("{sign}{}", show_count(size.round() as u64));
    }
    let digits = if size == 0.0 { 0.0 } else { 3.0 - size.log10().floor() };
    let digits = digits.clamp(0.0, 9.0) as usize;
    format!("{sign}{}", trimmed(&format!("{size:.digits$}")))
}

/// The name of a block. The plan counts blocks from 0; the name counts from 1.
pub(crate) fn block(index: usize) -> String {
    format!("block {}", index + 1)
}

/// A count with its noun: `1 trial`, `2 trials`.
pub(crate) fn counted(count: usize, one: &str) -> String {
    format!("{} {one}{}", show_count(count as u64), if count == 1 { "" } else { "s" })
}

/// A rate without its unit: `99.99`, `1,994`.
pub(crate) fn rate(rate_per_s: f64) -> String {
    let shown = show_rate(rate_per_s);
    let bare = shown.trim_end_matches("/s");
    // Leave out decimals that are all zero.
    bare.trim_end_matches(".00").trim_end_matches(".0").to_owned()
}

/// A duration with at most one decimal: `10 s`, `2.5 s`; below 0.1 s in smaller units: `20 ms`.
pub(crate) fn seconds(seconds: f64) -> String {
    if seconds < 0.1 {
        return show_time_ns((seconds * 1e9) as u64);
    }
    format!("{} s", trimmed(&format!("{seconds:.1}")))
}

/// The duration of a run: `59 s`, `4 min 5 s`, `2 h 3 min`.
pub(crate) fn elapsed(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..10 => format!("{:.1} s", seconds.max(0.0)),
        10..60 => format!("{whole} s"),
        60..3600 => two_units(whole / 60, "min", whole % 60, "s"),
        _ => two_units(whole / 3600, "h", whole % 3600 / 60, "min"),
    }
}

fn two_units(large: u64, large_unit: &str, small: u64, small_unit: &str) -> String {
    if small == 0 {
        format!("{large} {large_unit}")
    } else {
        format!("{large} {large_unit} {small} {small_unit}")
    }
}

/// A point in time in UTC; `None` if it is out of range.
pub(crate) fn utc(unix_s: f64) -> Option<String> {
    let time = Timestamp::from_second(unix_s as i64).ok()?;
    Some(time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string())
}

/// A command line with shell quoting.
pub(crate) fn shell_line(command: &[String]) -> String {
    let quoted = command.iter().map(|word| match shlex::try_quote(word) {
        Ok(quoted) => printable(&quoted),
        // Quoting fails only for a zero byte, which a command line cannot contain.
        Err(_) => printable(word),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

fn trimmed(decimal: &str) -> &str {
    if decimal.contains('.') { decimal.trim_end_matches('0').trim_end_matches('.') } else { decimal }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shares_keep_two_digits_and_never_round_up_to_100_percent() {
        for (ratio, shown) in [
            (0.0, "0 %"),
            (0.000_012_3, "0.0012 %"),
            (0.0133, "1.3 %"),
            (0.5, "50 %"),
            (0.9996, "99.96 %"),
            (0.999_999, "99.99 %"),
            (0.2298, "23 %"),
            (1.0, "100 %"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(share(ratio), shown);
        }
    }

    #[test]
    fn values_carry_the_unit_of_their_name() {
        assert_eq!(quantity("throughput_per_s", 12_345.0), "12,345/s");
        assert_eq!(quantity("response_p99_us", 1_250.0), "1.25 ms");
        assert_eq!(quantity("received_bytes_per_s", 310_534.0), "303 KiB/s");
        assert_eq!(quantity("error_ratio", 0.01), "1 %");
        assert_eq!(quantity("open_connections", 1_234.0), "1,234");
        assert_eq!(confidence(0.968_75), "96.8 %");
    }

    #[test]
    fn long_names_are_clipped() {
        assert_eq!(clipped("abcdef", 4), "abc…");
    }

    #[test]
    fn numbers_times_and_commands() {
        assert_eq!(
            (number(0.25), number(2.0), number(-1_234.6)),
            ("0.25".into(), "2".into(), "−1,235".into())
        );
        assert_eq!(
            (elapsed(4.25), elapsed(245.0), elapsed(7_400.0)),
            ("4.2 s".into(), "4 min 5 s".into(), "2 h 3 min".into())
        );
        assert_eq!(utc(0.0).as_deref(), Some("1970-01-01 00:00:00 UTC"));
        let command = ["proofload", "run", "it's \"new\".toml"].map(str::to_owned);
        assert_eq!(shlex::split(&shell_line(&command)), Some(command.to_vec()));
    }

    #[test]
    fn an_interval_names_a_common_unit_once() {
        let of = |quantity: &str, median, low, high| {
            let values = vec![low, median, high];
            let quantity = quantity.to_owned();
            let summary = QuantitySummary {
                at_least: false,
                ends: Vec::new(),
                quantity,
                values,
                mean: None,
                median,
                low,
                high,
                confidence: 0.75,
                warnings: Vec::new(),
            };
            interval(&summary, false)
        };
        assert_eq!(of("throughput_per_s", 12_345.0, 12_100.0, 12_500.0), "12,345/s [12,100, 12,500]");
        assert_eq!(of("response_p99_us", 1_100.0, 900.0, 2_000.0), "1.10 ms [900 µs, 2.00 ms]");
        assert_eq!(of("response_p99_us", 4.2e6, 4.1e6, 4.3e6), "4.20 s [4.10, 4.30]");
        assert_eq!(of("response_p99_us", 4.2e6, 4.1e3, 4.3e6), "4.20 s [4.10 ms, 4.30 s]");
    }

    proptest! {
        #[test]
        fn no_figure_panics(value in any::<f64>(), text in any::<String>()) {
            let _ = (share(value), number(value), quantity(&text, value), elapsed(value), utc(value));
            for name in ["a_per_s", "a_us", "a_ns", "a_s", "a_bytes", "a_ratio"] {
                let _ = quantity(name, value);
            }
            prop_assert!(clipped(&text, 9).chars().count() <= 9);
        }
    }
}
