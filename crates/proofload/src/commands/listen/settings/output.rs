//! What is told, and where.

use tracing::level_filters::LevelFilter;

use super::{Kind, Setting, choice, path};
use crate::commands::listen::draft::LogForm;

const OUTPUT: &str = "Output";

const FORMS: &[&str] = &["text", "json"];
const LEVELS: &[&str] = &["error", "warn", "info"];

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: "report",
        kind: Kind::Text,
        value_name: "FILE",
        heading: OUTPUT,
        help: "Write what was done as JSON at the end (- for standard output)",
        default: "",
        example: "listen.json",
        apply: |draft, values| {
            draft.report = Some(path(values[0])?);
            Ok(())
        },
    },
    Setting {
        key: "log",
        kind: Kind::Choice(FORMS),
        value_name: "text|json",
        heading: OUTPUT,
        help: "How what happens is told on standard error",
        default: "text",
        example: "json",
        apply: |draft, values| {
            draft.log = choice(values[0], FORMS, &[LogForm::Text, LogForm::Json])?;
            Ok(())
        },
    },
    Setting {
        key: "log_level",
        kind: Kind::Choice(LEVELS),
        value_name: "LEVEL",
        heading: OUTPUT,
        help: "What is told: error, warn or info",
        default: "info",
        example: "warn",
        apply: |draft, values| {
            draft.log_level =
                choice(values[0], LEVELS, &[LevelFilter::ERROR, LevelFilter::WARN, LevelFilter::INFO])?;
            Ok(())
        },
    },
    Setting {
        key: "date_header",
        kind: Kind::Flag,
        value_name: "",
        heading: OUTPUT,
        help: "Answers carry a Date",
        default: "",
        example: "true",
        apply: |draft, _| {
            draft.config.date = true;
            Ok(())
        },
    },
];
