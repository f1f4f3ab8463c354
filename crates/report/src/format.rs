//! Which formats there are.

use std::{fmt, io, str::FromStr};

use crate::{
    Results,
    export::{self, Export},
};

/// Renders a result.
pub fn render(results: &Results, format: Format, options: &Options) -> String {
    format.export().render(results, options)
}

/// Writes a result, which may be long.
///
/// # Errors
/// What writing it says.
pub fn write(
    results: &Results,
    format: Format,
    options: &Options,
    output: &mut dyn io::Write,
) -> io::Result<()> {
    format.export().write(results, options, output)
}

/// What the formats may be told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Colours on the terminal. The caller obeys NO_COLOR.
    pub colour: bool,
    /// Columns of the terminal; none where there is none, and lines are as long as they are.
    pub width_columns: Option<u16>,
    /// Where the HTML page lies, for the terminal's last line.
    pub page: Option<String>,
}

/// A form that a result can be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Plain tables.
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
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Terminal,
        Self::Html,
        Self::Json,
        Self::Junit,
        Self::OpenMetrics,
        Self::Github,
        Self::GithubAnnotations,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        self.export().name()
    }

    /// The file of a result folder that it is written to by default; none for what goes to standard output.
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

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no format has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownFormat(String);

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Format::ALL.map(Format::name).join(", ");
        write!(f, "'{}' is no format of a report; there are: {names}", self.0)
    }
}

impl std::error::Error for UnknownFormat {}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| UnknownFormat(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_unknown_ones_named() {
        for format in Format::ALL {
            assert_eq!(format.name().parse(), Ok(format));
        }
        let refused = "pdf".parse::<Format>().unwrap_err().to_string();
        assert!(refused.contains("'pdf'") && refused.contains("openmetrics"), "{refused}");
    }
}
