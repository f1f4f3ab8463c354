//! The output formats, one per file.

pub(crate) mod github;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod junit;
pub(crate) mod openmetrics;
pub(crate) mod terminal;

use std::io;

use crate::{Format, Options, Results};

/// Renders a result as text in memory.
pub fn render(results: &Results, format: Format, options: &Options) -> String {
    let mut text = Vec::new();
    write(results, format, options, &mut text).expect("writing to memory cannot fail");
    String::from_utf8(text).expect("every format is text")
}

/// Writes a result without holding long formats in memory.
///
/// # Errors
/// If writing to `output` fails.
pub fn write(
    results: &Results,
    format: Format,
    options: &Options,
    output: &mut dyn io::Write,
) -> io::Result<()> {
    let text = match format {
        Format::Json => return json::write(results, output),
        Format::Terminal => terminal::render(results, options),
        Format::Html => html::render(results),
        Format::Junit => junit::render(results),
        Format::OpenMetrics => openmetrics::render(results),
        Format::Github => github::render(results),
        Format::GithubAnnotations => github::render_annotations(results),
    };
    output.write_all(text.as_bytes())
}
