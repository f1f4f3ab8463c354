//! What a reader of bodies is told.

use jiff::tz::TimeZone;

use crate::Mode;

/// How bodies are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// What becomes of mistakes.
    pub mode: Mode,
    /// The member of a record which is its time.
    pub time_key: Option<String>,
    /// How the value of that member is written.
    pub time_format: TimeFormat,
    /// Whether that member stays in the record.
    pub keep_time_key: bool,
    /// The zone of times that name none.
    pub zone: Zone,
    /// Records of one body, at the most.
    pub max_records: usize,
}

/// How a time inside a record is written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TimeFormat {
    /// A number: seconds since 1970. A string: ISO 8601 as in RFC 3339. Fluentd's mode takes only numbers, as Fluentd
    /// does when it is told no format.
    #[default]
    Auto,
    /// A number, or a string with a number: seconds since 1970.
    Seconds,
    /// A string of this `strftime` format.
    Strftime(String),
}

/// A time zone by what it follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Zone {
    /// That of the machine: `TZ`, else `/etc/localtime`.
    #[default]
    Local,
    /// UTC.
    Utc,
}

impl Rules {
    /// Records of one body at the most, unless told otherwise.
    pub const MAX_RECORDS: usize = 1_000_000;

    /// As Fluentd's `in_http` does without further configuration: the member `time` is taken out of the record and
    /// must be a number.
    pub fn fluentd() -> Rules {
        Rules {
            mode: Mode::Fluentd,
            time_key: Some("time".to_owned()),
            keep_time_key: false,
            ..Rules::default()
        }
    }
}

impl Default for Rules {
    /// Strict, and no member of a record is its time.
    fn default() -> Rules {
        Rules {
            mode: Mode::Strict,
            time_key: None,
            time_format: TimeFormat::Auto,
            keep_time_key: true,
            zone: Zone::Local,
            max_records: Rules::MAX_RECORDS,
        }
    }
}

impl Zone {
    /// The rules of the zone.
    pub fn time_zone(self) -> TimeZone {
        match self {
            Zone::Local => TimeZone::system(),
            Zone::Utc => TimeZone::UTC,
        }
    }
}
