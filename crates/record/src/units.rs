//! Parsers of values with units (`300ms`, `5KiB`, `100k`), and functions that format values.
//!
//! Every parser must match the whole string, and its error names what it expected.

use std::time::Duration;

/// Why a quantity was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' is not {expected}")]
pub struct UnitError {
    given: String,
    expected: &'static str,
}

impl UnitError {
    /// An error for the text `given`. `expected` describes valid values, with an example.
    pub fn new(given: &str, expected: &'static str) -> Self {
        Self { given: given.to_owned(), expected }
    }
}

const TIME: &str = "a time such as 250us, 300ms, 1.5s, 2m or 1h";
const SIZE: &str = "a size such as 13, 5KiB, 64KiB or 1MB";
const RATE: &str = "a rate per second such as 500, 5k or 1.5M";
const COUNT: &str = "a whole number such as 200, 18_000 or 200k";

/// Parses a time with a unit: `ns`, `us` (or `µs`), `ms`, `s`, `m` (or `min`), `h`. A number without a unit is in
/// seconds, as in wrk and ab. The maximum is 10 years.
pub fn parse_time(text: &str) -> Result<Duration, UnitError> {
    let refuse = || UnitError::new(text, TIME);
    let (number, unit) = split_unit(text).ok_or_else(refuse)?;
    let seconds_per_unit = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        _ => return Err(refuse()),
    };
    let seconds = number * seconds_per_unit;
    if seconds > 10.0 * 365.0 * 86_400.0 {
        return Err(refuse());
    }
    // Rounded, because 0.3 × 10⁹ is not a whole number in binary floating point.
    Ok(Duration::from_nanos((seconds * 1e9).round() as u64))
}

/// Parses a size in bytes, without a unit or with `B`, `kB`/`k`, `MB`/`M`, `GB`/`G` (powers of 1,000) or `KiB`,
/// `MiB`, `GiB` (powers of 1,024).
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let refuse = || UnitError::new(text, SIZE);
    let (number, unit) = split_unit(text).ok_or_else(refuse)?;
    let bytes_per_unit = match unit {
        "" | "B" => 1.0,
        "k" | "kB" | "KB" => 1e3,
        "M" | "MB" => 1e6,
        "G" | "GB" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(refuse()),
    };
    exact_integer(number * bytes_per_unit).ok_or_else(refuse)
}

/// Parses a rate per second, above 0 and at most 10⁹, optionally with `k` or `M` and `/s`.
pub fn parse_rate(text: &str) -> Result<f64, UnitError> {
    let refuse = || UnitError::new(text, RATE);
    let rate = parse_scaled(text.strip_suffix("/s").unwrap_or(text)).ok_or_else(refuse)?;
    if rate > 0.0 && rate <= 1e9 { Ok(rate) } else { Err(refuse()) }
}

/// Parses a whole number, optionally with `_` between digits, and `k` or `M`.
pub fn parse_count(text: &str) -> Result<u64, UnitError> {
    parse_scaled(text).and_then(exact_integer).ok_or_else(|| UnitError::new(text, COUNT))
}

/// Parses a share between 0 and 1: `0.01` or `1%`.
pub fn parse_ratio(text: &str) -> Result<f64, UnitError> {
    let read = match text.strip_suffix('%') {
        // The nearest number to the share: 0.7 × 0.01 is below 7/1000, of which 7 of 1,000 would be more.
        Some(percent) => format!("{}e-2", percent.trim()).parse::<f64>(),
        None => text.trim().parse(),
    };
    read.ok()
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| UnitError::new(text, "a share such as 0.01 or 1%"))
}

/// Parses a list of processors: `1`, `0,2` or `1-3`.
pub fn parse_cpus(text: &str) -> Result<Vec<u32>, UnitError> {
    let refuse = || UnitError::new(text, "a list of processors such as 1 or 0,2-3");
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let low: u32 = low.trim().parse().map_err(|_| refuse())?;
        let high: u32 = high.trim().parse().map_err(|_| refuse())?;
        if low > high || high >= 4_096 {
            return Err(refuse());
        }
        cpus.extend(low..=high);
    }
    Ok(cpus)
}

/// Formats a measured time with three significant digits: `92 µs`, `1.25 ms`, `30.0 s`.
pub fn show_time_ns(ns: u64) -> String {
    let ns = ns as f64;
    let (value, unit) = match ns {
        // Each limit is below 1,000, because a value that rounds to 1,000 belongs to the next unit.
        n if n < 999.5 => (n, "ns"),
        n if n < 999.5e3 => (n / 1e3, "µs"),
        n if n < 999.5e6 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// Formats a size: `13 B`, `64.0 KiB`, `1.20 GiB`.
pub fn show_bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{} {}", three_digits(value), units[unit]) }
}

/// Formats a count with separators of thousands: `1,745,910`.
pub fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Formats a rate per second with four digits, or all digits of the integer part: `3.01/s`, `666.7/s`, `3,227/s`, `49,998/s`.
pub fn show_rate(rate_per_s: f64) -> String {
    match rate_per_s {
        rate if rate < 99.995 => format!("{rate:.2}/s"),
        rate if rate < 999.95 => format!("{rate:.1}/s"),
        rate => format!("{}/s", show_count(rate.round() as u64)),
    }
}

/// Formats a number without the rounding errors of binary fractions: 7.000000000000001 is `7`.
pub fn show_number(number: f64) -> String {
    format!("{}", (number * 1e9).round() / 1e9)
}

/// Formats a nominal time: `10 ms`, `1.5 s`. A measured time would be `10.0 ms`.
pub fn show_nominal_time_ns(ns: u64) -> String {
    let (unit_ns, unit) = match ns {
        1_000_000_000.. => (1e9, "s"),
        1_000_000.. => (1e6, "ms"),
        1_000.. => (1e3, "µs"),
        _ => (1.0, "ns"),
    };
    format!("{} {unit}", show_number(ns as f64 / unit_ns))
}

fn three_digits(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

fn split_unit(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '_'))).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((parse_decimal(number)?, unit.trim_start()))
}

fn parse_scaled(text: &str) -> Option<f64> {
    let (number, unit) = split_unit(text)?;
    match unit {
        "" => Some(number),
        "k" | "K" => Some(number * 1e3),
        "M" => Some(number * 1e6),
        _ => None,
    }
}

/// Parses digits with at most one point and optional `_` between digits. Rust's float grammar would also accept `inf`,
/// `1e9` and signs, which are mistakes here.
fn parse_decimal(text: &str) -> Option<f64> {
    let starts_with_digit = text.bytes().next().is_some_and(|b| b.is_ascii_digit());
    if !starts_with_digit {
        return None;
    }
    text.replace('_', "").parse().ok()
}

fn exact_integer(value: f64) -> Option<u64> {
    // A float holds every whole number up to 2⁵³.
    (value.fract() == 0.0 && value <= 9_007_199_254_740_992.0).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_in_every_unit() {
        for (text, ns) in [
            ("250ns", 250),
            ("90us", 90_000),
            ("90µs", 90_000),
            ("300ms", 300_000_000),
            ("0.3s", 300_000_000),
            ("1.5s", 1_500_000_000),
            ("10", 10_000_000_000),
            ("2m", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("0", 0),
        ] {
            assert_eq!(parse_time(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
    }

    #[test]
    fn errors_name_the_given_and_the_expected_value() {
        let refused = parse_time("5 parsecs").unwrap_err().to_string();
        assert!(refused.contains("5 parsecs") && refused.contains("300ms"), "{refused}");
        for bad in ["", "s", "-1s", "1e3s", "inf", "1..2s", "1 week", "20000000h"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
        for bad in ["", "5Kib", "1.5", "-3", "0x10", "5 apples"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        for bad in ["", "0", "-5", "1e9", "5/min", "2G"] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
        for bad in ["", "1.5", "-1", "ten"] {
            assert!(parse_count(bad).is_err(), "{bad}");
        }
        for bad in ["", "2", "101%", "-1%", "x"] {
            assert!(parse_ratio(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn each_parser_takes_its_largest_value_and_none_above() {
        assert!(parse_time("87600h").is_ok() && parse_time("87600.1h").is_err());
        assert!(parse_rate("1000M").is_ok() && parse_rate("1000.1M").is_err());
        assert!(parse_count("9007199254740992").is_ok() && parse_count("9007199254740994").is_err());
        assert!(parse_ratio("100%").is_ok() && parse_ratio("100.1%").is_err());
        assert!(parse_cpus("4095").is_ok() && parse_cpus("4096").is_err());
    }

    #[test]
    fn sizes_rates_counts_and_shares() {
        assert_eq!(parse_size("13"), Ok(13));
        assert_eq!(parse_size("64KiB"), Ok(65_536));
        for (unit, bytes) in [("B", 1), ("k", 1_000), ("kB", 1_000), ("M", 1_000_000), ("GB", 1_000_000_000)]
        {
            assert_eq!(
                parse_size(&format!("1.5{unit}")).ok(),
                (bytes > 1).then_some(bytes * 3 / 2),
                "{unit}"
            );
        }
        assert_eq!([parse_size("2MiB"), parse_size("3GiB")], [Ok(2 << 20), Ok(3 << 30)]);
        assert_eq!(parse_rate("1.5k"), Ok(1_500.0));
        assert_eq!(parse_rate("50k/s"), Ok(50_000.0));
        assert_eq!(parse_count("200k"), Ok(200_000));
        assert_eq!(parse_count("18_000"), Ok(18_000));
        assert_eq!(parse_ratio("0.1%"), Ok(0.001));
    }

    #[test]
    fn processor_lists() {
        assert_eq!(parse_cpus("0,2-4"), Ok(vec![0, 2, 3, 4]));
        for bad in ["", "a", "3-1", "1,,2", "99999"] {
            assert!(parse_cpus(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn values_have_three_digits_in_the_largest_unit_that_they_fill() {
        for (ns, shown) in [
            (0, "0.00 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (9_994, "9.99 µs"),
            (9_995, "10.0 µs"),
            (92_000, "92.0 µs"),
            (99_949, "99.9 µs"),
            (99_950, "100 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (1_250_000, "1.25 ms"),
            (999_499_999, "999 ms"),
            (999_500_000, "1.00 s"),
            (30_000_000_000, "30.0 s"),
        ] {
            assert_eq!(show_time_ns(ns), shown, "{ns}");
        }
        for (bytes, shown) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1.00 KiB"),
            (65_536, "64.0 KiB"),
            (3 << 19, "1.50 MiB"),
            (1 << 40, "1.00 TiB"),
            (2_000 << 40, "2000 TiB"),
        ] {
            assert_eq!(show_bytes(bytes), shown, "{bytes}");
        }
        for (rate, shown) in [
            (0.01, "0.01/s"),
            (99.99, "99.99/s"),
            (99.996, "100.0/s"),
            (666.67, "666.7/s"),
            (999.94, "999.9/s"),
            (999.96, "1,000/s"),
            (3_226.8, "3,227/s"),
            (997_497.6, "997,498/s"),
        ] {
            assert_eq!(show_rate(rate), shown, "{rate}");
        }
    }

    #[test]
    fn numbers_are_formatted_as_they_were_given() {
        for (ns, shown) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1 µs"),
            (250_000, "250 µs"),
            (1_000_000, "1 ms"),
            (1_500_000, "1.5 ms"),
            (1_000_000_000, "1 s"),
            (1_500_000_000, "1.5 s"),
        ] {
            assert_eq!(show_nominal_time_ns(ns), shown);
        }
        assert_eq!([0, 999, 1_000, 1_745_910].map(show_count), ["0", "999", "1,000", "1,745,910"]);
        assert_eq!([7.000_000_000_000_001, 0.1].map(show_number), ["7", "0.1"]);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,12}") {
            let _ = (parse_time(&text), parse_size(&text), parse_rate(&text), parse_count(&text), parse_ratio(&text));
        }

        #[test]
        fn formatted_counts_can_be_parsed(count in 0u64..1_000_000_000_000) {
            prop_assert_eq!(parse_count(&show_count(count).replace(',', "_")), Ok(count));
        }
    }
}
