//! The output formats.

use std::io;

use crate::{
    Results,
    export::{self, Export},
};

/// Renders a result.
pub fn render(results: &Results, format: Format, options: &Options) -> String {
    format.export().render(results, options)
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
    format.export().write(results, options, output)
}

/// Options of the formats.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Use colours. The caller honours NO_COLOR.
    pub colour: bool,
    /// Width of the terminal; `None` does not wrap lines.
    pub width_columns: Option<u16>,
    /// Path of the HTML page, which the terminal's last line names.
    pub page: Option<String>,
}

/// An output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Sentences and tables.
    Terminal,
    /// One page that opens offline.
    Html,
    /// One document for other tools.
    Json,
    /// A test case for each goal in each setting.
    Junit,
    /// The OpenMetrics text format.
    OpenMetrics,
    /// Markdown for the summary of a GitHub job step.
    Github,
    /// Lines that GitHub shows as errors and warnings of a job.
    GithubAnnotations,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 7] = [
        Self::Terminal,
        Self::Html,
        Self::Json,
        Self::Junit,
        Self::OpenMetrics,
        Self::Github,
        Self::GithubAnnotations,
    ];

    /// The file in a result folder; `None` for a format that goes to standard output.
    pub fn file_name(self) -> Option<&'static str> {
        self.export().file_name()
    }

    fn export(self) -> &'static dyn Export {
        match self {
            Self::Terminal => &export::Terminal,
            Self::Html => &export::Html,
            Self::Json => &export::Json,
            Self::Junit => &export::Junit,
            Self::OpenMetrics => &export::OpenMetrics,
            Self::Github => &export::Github,
            Self::GithubAnnotations => &export::GithubAnnotations,
        }
    }
}
