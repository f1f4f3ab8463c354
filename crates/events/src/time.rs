//! Times of events and their formats.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::{Timestamp, civil, fmt::strtime};

use crate::{Mode, Rules, TimeFormat, Zone, members};

/// A time in UTC, relative to the start of 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventTime {
    /// Whole seconds since 1970, rounded down.
    pub seconds: i64,
    /// Nanoseconds after `seconds`: 0 to 999,999,999.
    pub nanos: u32,
}

/// Why a text is not a valid time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {found}")]
pub struct TimeError {
    expected: String,
    found: String,
}

const SECONDS: &str = "seconds since 1970, such as 1573552801.5";
const SECONDS_OR_ISO: &str =
    "seconds since 1970, such as 1573552801.5, or ISO 8601, such as 2019-11-12T10:00:01Z";

impl EventTime {
    /// Parses the parameter `time` of a request: seconds since 1970, or ISO 8601. In Fluentd, zero means "now"; see
    /// [`EventTime::is_zero`]. Fluentd's modes read a number at the start of the text like Ruby's `to_f`, and zero if
    /// there is none.
    ///
    /// # Errors
    /// If the text is not a time, or the year is after 9999.
    pub fn of_parameter(text: &str, mode: Mode, zone: Zone) -> Result<EventTime, TimeError> {
        match mode {
            Mode::Strict => decimal(text)
                .or_else(|| iso_8601(text, zone))
                .ok_or_else(|| TimeError::new(SECONDS_OR_ISO, text)),
            Mode::Fluentd | Mode::FluentdJson => {
                let text = text.trim_start();
                let number = leading_number(text);
                if number.is_empty() {
                    return Ok(EventTime { seconds: 0, nanos: 0 });
                }
                decimal(number).ok_or_else(|| TimeError::new(SECONDS, text))
            }
        }
    }

    /// Parses the value of a record's time member. As in Fluentd, null or false means no time (`None`), except in
    /// [`Mode::FluentdJson`].
    pub(crate) fn of_member(json: &str, rules: &Rules) -> Result<Option<EventTime>, TimeError> {
        if matches!(json, "null" | "false") && rules.mode != Mode::FluentdJson {
            return Ok(None);
        }
        let text = json.starts_with('"').then(|| members::unquoted(json));
        let (time, expected) = match (&rules.time_format, text.as_deref()) {
            (TimeFormat::Auto | TimeFormat::Seconds, None) => (decimal(json), SECONDS),
            (TimeFormat::Auto, Some(_)) if rules.mode.is_fluentd() => (None, SECONDS),
            (TimeFormat::Auto, Some(text)) => (iso_8601(text, rules.zone), SECONDS_OR_ISO),
            (TimeFormat::Seconds, Some(text)) => (decimal(text), SECONDS),
            (TimeFormat::Strftime(format), text) => {
                (formatted(format, text.unwrap_or(json), rules.zone), format.as_str())
            }
        };
        time.map(Some).ok_or_else(|| TimeError::new(expected, json))
    }

    /// Whether the time is the start of 1970. Fluentd's clients send it for "now".
    pub fn is_zero(self) -> bool {
        self.seconds == 0 && self.nanos == 0
    }

    /// The time as a [`Timestamp`]; `None` if the year is after 9999.
    pub(crate) fn timestamp(self) -> Option<Timestamp> {
        Timestamp::new(self.seconds, i32::try_from(self.nanos).ok()?).ok()
    }
}

impl From<SystemTime> for EventTime {
    fn from(time: SystemTime) -> EventTime {
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => EventTime {
                seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
                nanos: since.subsec_nanos(),
            },
            Err(before) => {
                let before = i128::try_from(before.duration().as_nanos()).unwrap_or(i128::MAX);
                from_nanos(-before).unwrap_or(EventTime { seconds: i64::MIN, nanos: 0 })
            }
        }
    }
}

impl From<Timestamp> for EventTime {
    fn from(timestamp: Timestamp) -> EventTime {
        from_nanos(timestamp.as_nanosecond()).expect("a timestamp's seconds fit in 64 bits")
    }
}

impl TimeError {
    fn new(expected: &str, found: &str) -> TimeError {
        // The message contains only the start of the value, which may be megabytes long.
        let found: String = found.chars().take(60).collect();
        TimeError { expected: expected.to_owned(), found: found.escape_debug().to_string() }
    }
}

/// Parses a JSON number, which may have a plus sign. Without an exponent, the result is exact to the nanosecond.
fn decimal(text: &str) -> Option<EventTime> {
    let (is_negative, unsigned) = match text.strip_prefix('-') {
        Some(unsigned) => (true, unsigned),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let nanos = if digits(whole) && digits(fraction) && !whole.is_empty() && whole.len() <= 18 {
        let fraction = format!("{:0<9.9}", fraction);
        whole.parse::<i128>().ok()? * 1_000_000_000 + fraction.parse::<i128>().ok()?
    } else if unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        let seconds: f64 = unsigned.parse().ok().filter(|seconds| *seconds < 1e12)?;
        (seconds * 1e9) as i128
    } else {
        return None;
    };
    let time = from_nanos(if is_negative { -nanos } else { nanos })?;
    time.timestamp().map(|_| time)
}

fn from_nanos(nanos: i128) -> Option<EventTime> {
    let seconds = i64::try_from(nanos.div_euclid(1_000_000_000)).ok()?;
    let nanos = u32::try_from(nanos.rem_euclid(1_000_000_000)).ok()?;
    Some(EventTime { seconds, nanos })
}

fn iso_8601(text: &str, zone: Zone) -> Option<EventTime> {
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Some(timestamp.into());
    }
    in_zone(text.parse().ok()?, zone)
}

fn formatted(format: &str, text: &str, zone: Zone) -> Option<EventTime> {
    let parsed = strtime::parse(format, text).ok()?;
    if let Ok(timestamp) = parsed.to_timestamp() {
        return Some(timestamp.into());
    }
    let date = || parsed.to_date().map(|date| date.at(0, 0, 0, 0));
    in_zone(parsed.to_datetime().or_else(|_| date()).ok()?, zone)
}

fn in_zone(time: civil::DateTime, zone: Zone) -> Option<EventTime> {
    Some(time.to_zoned(zone.time_zone()).ok()?.timestamp().into())
}

/// The part at the start of a text that Ruby's `to_f` reads as a number.
fn leading_number(text: &str) -> &str {
    let bytes = text.as_bytes();
    let digits_from = |at: usize| at + bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    let mut end = digits_from(whole);
    if end == whole {
        return "";
    }
    if bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
        end = digits_from(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let digits = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        if bytes.get(digits).is_some_and(u8::is_ascii_digit) {
            end = digits_from(digits);
        }
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strict(text: &str) -> Option<(i64, u32)> {
        let time = EventTime::of_parameter(text, Mode::Strict, Zone::Utc).ok()?;
        Some((time.seconds, time.nanos))
    }

    #[test]
    fn a_parameter_is_seconds_or_iso_8601() {
        assert_eq!(strict("1573552801"), Some((1_573_552_801, 0)));
        assert_eq!(strict("1573552801.000000001"), Some((1_573_552_801, 1)));
        assert_eq!(strict("1573552801.1234567899"), Some((1_573_552_801, 123_456_789)));
        assert_eq!(strict("-1.5"), Some((-2, 500_000_000)));
        assert_eq!(strict("1.5e3"), Some((1500, 0)));
        assert_eq!(strict("2019-11-12T10:00:01Z"), Some((1_573_552_801, 0)));
        assert_eq!(strict("2019-11-12T19:00:01.5+09:00"), Some((1_573_552_801, 500_000_000)));
        assert_eq!(strict("2019-11-12T10:00:01"), Some((1_573_552_801, 0)));
        assert_eq!(strict("2019-11-12"), Some((1_573_516_800, 0)));
        for no_time in ["", "x", "-", ".", "1x", "1e999", "nan", "inf", "99999999999999999999", "2019-13-01"]
        {
            assert_eq!(strict(no_time), None, "{no_time}");
        }
    }

    #[test]
    fn fluentd_takes_the_number_a_parameter_begins_with() {
        let ruby = |text| EventTime::of_parameter(text, Mode::Fluentd, Zone::Utc).map(|time| time.seconds);
        assert_eq!(ruby("12.5abc"), Ok(12));
        assert_eq!(ruby(" 1e2e"), Ok(100));
        assert_eq!(ruby("2019-11-12T10:00:01Z"), Ok(2019));
        assert_eq!(ruby("soon"), Ok(0));
        assert!(ruby("1e300").is_err());
    }

    #[test]
    fn a_member_is_read_as_the_format_says() {
        let of = |json: &str, mode, format: TimeFormat| {
            let rules = Rules { mode, time_format: format, zone: Zone::Utc, ..Rules::default() };
            EventTime::of_member(json, &rules).map(|time| time.map(|time| time.seconds)).ok()
        };
        let strftime = || TimeFormat::Strftime("%d/%b/%Y:%H:%M:%S %z".to_owned());
        assert_eq!(of("1573552801.5", Mode::Strict, TimeFormat::Auto), Some(Some(1_573_552_801)));
        assert_eq!(of("null", Mode::Strict, TimeFormat::Auto), Some(None));
        assert_eq!(of("\"2019-11-12T10:00:01Z\"", Mode::Strict, TimeFormat::Auto), Some(Some(1_573_552_801)));
        assert_eq!(of("\"2019-11-12T10:00:01Z\"", Mode::Fluentd, TimeFormat::Auto), None);
        assert_eq!(of("\"12\"", Mode::Fluentd, TimeFormat::Seconds), Some(Some(12)));
        assert_eq!(of("\"12\"", Mode::Strict, TimeFormat::Auto), None);
        assert_eq!(of("{}", Mode::Strict, TimeFormat::Auto), None);
        assert_eq!(of("\"12/Nov/2019:19:00:01 +0900\"", Mode::Strict, strftime()), Some(Some(1_573_552_801)));
        let date = TimeFormat::Strftime("%Y-%m-%d".to_owned());
        assert_eq!(of("\"2019-11-12\"", Mode::Strict, date), Some(Some(1_573_516_800)));
        let epoch = TimeFormat::Strftime("%s".to_owned());
        assert_eq!(of("\"12\"", Mode::Strict, epoch.clone()), Some(Some(12)));
        assert_eq!(of("12", Mode::Strict, epoch), Some(Some(12)));
    }

    #[test]
    fn the_clock_of_the_machine_is_a_time() {
        let at = UNIX_EPOCH + std::time::Duration::from_millis(1500);
        assert_eq!(EventTime::from(at), EventTime { seconds: 1, nanos: 500_000_000 });
        let before = UNIX_EPOCH - std::time::Duration::from_millis(1500);
        assert_eq!(EventTime::from(before), EventTime { seconds: -2, nanos: 500_000_000 });
    }
}
