//! Parses values like Fluentd, except that text that Fluentd would read as 0 is a mistake.

use std::time::Duration;

/// A size in bytes, such as `8m`; `k`, `m`, `g` and `t` stand for powers of 1,024.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size such as 8m");
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let power = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << (10 * power)).ok_or_else(wrong)
}

/// A time such as `10s`, `5m`, `2h`, `1d` or `0.5`.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a time such as 10s");
    let (number, seconds) = match text.strip_suffix(['s', 'm', 'h', 'd']) {
        Some(number) if text.ends_with('m') => (number, 60.0),
        Some(number) if text.ends_with('h') => (number, 3_600.0),
        Some(number) if text.ends_with('d') => (number, 86_400.0),
        Some(number) => (number, 1.0),
        None => (text, 1.0),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())
}

/// True is `true`, `yes` or an empty value; false is `false` or `no`.
pub(super) fn flag(text: &str) -> Result<bool, String> {
    match text {
        "true" | "yes" | "" => Ok(true),
        "false" | "no" => Ok(false),
        _ => Err(format!("'{text}' is neither true nor false")),
    }
}

/// A list, written as `["a", "b"]` or `a, b`.
pub(super) fn list(text: &str) -> Result<Vec<String>, String> {
    if text.starts_with('[') {
        return serde_json::from_str(text).map_err(|error| format!("not a JSON list of strings: {error}"));
    }
    Ok(text.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_fluentd() {
        assert_eq!(size("32m"), Ok(32 << 20));
        assert_eq!(size("1K"), Ok(1024));
        assert_eq!(size("17"), Ok(17));
        assert_eq!(time("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(time("1d"), Ok(Duration::from_secs(86_400)));
        assert_eq!(time("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!((flag("yes"), flag(""), flag("no")), (Ok(true), Ok(true), Ok(false)));
        assert_eq!(list("a, b"), Ok(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(list("[\"a\", \"b,c\"]"), Ok(vec!["a".to_owned(), "b,c".to_owned()]));
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in ["", "m", "8mb", "-1", "1.5m", "99999999999t"] {
            assert!(size(text).is_err(), "{text}");
        }
        for text in ["", "s", "-1s", "10ms", "nan", "1e300d"] {
            assert!(time(text).is_err(), "{text}");
        }
        assert!(flag("on").is_err() && list("[1]").is_err());
    }
}
