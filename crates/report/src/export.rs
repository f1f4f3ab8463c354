//! The output formats, one per file.

use std::io::{self, Write};

use crate::{Options, Results};

mod github;
mod html;
mod json;
mod junit;
mod openmetrics;
mod terminal;

pub(crate) use github::{Github, GithubAnnotations};
pub(crate) use html::Html;
pub(crate) use json::Json;
pub(crate) use junit::Junit;
pub(crate) use openmetrics::OpenMetrics;
pub(crate) use terminal::Terminal;

/// An output format.
pub(crate) trait Export {
    /// The file in a result folder; `None` for a format that goes to standard output.
    fn file_name(&self) -> Option<&'static str>;

    /// Renders the result as text.
    fn render(&self, results: &Results, options: &Options) -> String;

    /// Writes the same text. Formats with long texts do not hold all of it in memory.
    ///
    /// # Errors
    /// If writing to `output` fails.
    fn write(&self, results: &Results, options: &Options, output: &mut dyn Write) -> io::Result<()> {
        output.write_all(self.render(results, options).as_bytes())
    }
}
