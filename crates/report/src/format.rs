//! The output formats.

/// Options of the formats.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether to use colours. The caller honours NO_COLOR.
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
        match self {
            Self::Terminal | Self::GithubAnnotations => None,
            Self::Html => Some("report.html"),
            Self::Json => Some("report.json"),
            Self::Junit => Some("junit.xml"),
            Self::OpenMetrics => Some("metrics.txt"),
            Self::Github => Some("summary.md"),
        }
    }
}
