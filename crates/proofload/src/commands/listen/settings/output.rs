//! What is told, and where.

use tracing::level_filters::LevelFilter;

use super::{Kind, OptionSpec, choice, path};
use crate::commands::listen::draft::LogForm;

const OUTPUT: &str = "Output";

const FORMS: &[&str] = &["text", "json"];
const LEVELS: &[&str] = &["error", "warn", "info"];

pub(super) const SETTINGS: &[OptionSpec] = settings::option_table! {
    /// Write what was done as JSON at the end (- for standard output)
    "report", Kind::Text, "FILE", OUTPUT, "", "listen.json",
        |draft, values| draft.report = Some(path(values[0])?);
    /// How what happens is told on standard error
    "log", Kind::Choice(FORMS), "text|json", OUTPUT, "text", "json",
        |draft, values| draft.log = choice(values[0], FORMS, &[LogForm::Text, LogForm::Json])?;
    /// What is told: error, warn or info
    "log_level", Kind::Choice(LEVELS), "LEVEL", OUTPUT, "info", "warn",
        |draft, values| draft.log_level =
            choice(values[0], LEVELS, &[LevelFilter::ERROR, LevelFilter::WARN, LevelFilter::INFO])?;
    /// Answers carry a Date
    "date_header", Kind::Flag, "", OUTPUT, "", "true",
        |draft, _| draft.config.date = true;
};
