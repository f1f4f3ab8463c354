//! Rules for reading bodies.

use jiff::tz::TimeZone;

use crate::Mode;

/// How bodies are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// How strictly bodies are read, and how their formats are determined.
    pub mode: Mode,
    /// Name of the member that contains a record's time, if any.
    pub time_key: Option<String>,
    /// Format of the time in the member `time_key`.
    pub time_format: TimeFormat,
    /// Whether the member `time_key` stays in the record.
    pub keep_time_key: bool,
    /// Zone for times that name none.
    pub zone: Zone,
    /// Maximum number of records in a body; more refuse the whole body.
    pub max_records: usize,
}

/// The format of a time in a record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TimeFormat {
    /// A number of seconds since 1970, or an ISO 8601 string as in RFC 3339. Fluentd's modes accept only numbers, like
    /// Fluentd without a configured format.
    #[default]
    Auto,
    /// Seconds since 1970, as a number or a string.
    Seconds,
    /// A string in this `strftime` format.
    Strftime(String),
}

/// The zone of times that name none, and of times in written lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Zone {
    /// The machine's zone: `TZ`, or else `/etc/localtime`.
    #[default]
    Local,
    /// Coordinated universal time.
    Utc,
}

impl Rules {
    /// Default maximum number of records in a body.
    pub(crate) const MAX_RECORDS: usize = 1_000_000;

    /// The rules of Fluentd's `in_http` without further configuration: the member `time` must be a number and is removed
    /// from the record.
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
    /// Strict mode, without a time member.
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
    /// The zone as a [`TimeZone`].
    pub fn time_zone(self) -> TimeZone {
        match self {
            Zone::Local => TimeZone::system(),
            Zone::Utc => TimeZone::UTC,
        }
    }
}
