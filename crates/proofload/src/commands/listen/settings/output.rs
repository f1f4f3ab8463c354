//! Settings for the report, the log and the Date header.

use tracing::level_filters::LevelFilter;

use super::{Kind, OptionSpec, choice, path};
use crate::commands::logs::LogFormat;

const OUTPUT: &str = "Output";

const LOG_FORMATS: &[&str] = &["text", "json"];
const LEVELS: &[&str] = &["error", "warn", "info"];

pub(super) const SETTINGS: &[OptionSpec] = settings::option_table! {
    /// Write a report as JSON at the end; - is standard output
    "report", Kind::Text, "FILE", OUTPUT, "", "listen.json",
        |builder, values| builder.report = Some(path(values[0])?);
    /// Format of the log on standard error
    "log", Kind::Choice(LOG_FORMATS), "text|json", OUTPUT, "text", "json",
        |builder, values| builder.log = choice(values[0], LOG_FORMATS, &[LogFormat::Text, LogFormat::Json])?;
    /// Lowest level that is logged: error, warn or info
    "log_level", Kind::Choice(LEVELS), "LEVEL", OUTPUT, "info", "warn",
        |builder, values| builder.log_level =
            choice(values[0], LEVELS, &[LevelFilter::ERROR, LevelFilter::WARN, LevelFilter::INFO])?;
    /// Add the header Date to answers
    "date_header", Kind::Flag, "", OUTPUT, "", "true",
        |builder, _| builder.config.date = true;
};
