//! When a trial is aborted, to spare a service that already fails.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::{UnitError, parse_ratio, parse_time, show_time_ns};

/// The trial is aborted once more than this share of the requests that ended failed, for this long.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AbortRule {
    /// The share of failed requests, 0 to 1.
    pub errors_ratio: f64,
    /// For how long, in nanoseconds: whole intervals of the time series.
    pub for_ns: u64,
}

impl FromStr for AbortRule {
    type Err = UnitError;

    /// Parses a rule such as `errors > 10% for 5s`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || UnitError::new(text, "a rule such as 'errors > 10% for 5s'");
        let rest = text.trim().strip_prefix("errors").ok_or_else(refuse)?;
        let rest = rest.trim_start().strip_prefix('>').ok_or_else(refuse)?;
        let (ratio, time) = rest.split_once("for").ok_or_else(refuse)?;
        let errors_ratio = parse_ratio(ratio.trim()).map_err(|_| refuse())?;
        let for_ns = parse_time(time.trim()).map_err(|_| refuse())?.as_nanos() as u64;
        if errors_ratio >= 1.0 || for_ns == 0 { Err(refuse()) } else { Ok(Self { errors_ratio, for_ns }) }
    }
}

impl fmt::Display for AbortRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "errors > {} % for {}", self.errors_ratio * 100.0, show_time_ns(self.for_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_are_shown() {
        let rule: AbortRule = "errors > 10% for 5s".parse().unwrap();
        assert_eq!((rule.errors_ratio, rule.for_ns), (0.1, 5_000_000_000));
        assert_eq!(rule.to_string(), "errors > 10 % for 5.00 s");
        assert_eq!("errors>0.5 for 500ms".parse(), Ok(AbortRule { errors_ratio: 0.5, for_ns: 500_000_000 }));
        for bad in [
            "",
            "errors > 10%",
            "errors < 10% for 5s",
            "p99 > 1s for 5s",
            "errors > 100% for 1s",
            "errors > 1% for 0s",
        ] {
            assert!(bad.parse::<AbortRule>().is_err(), "{bad}");
        }
    }
}
