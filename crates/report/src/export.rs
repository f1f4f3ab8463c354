//! The formats, one in a file.

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

/// A form that a result can be written in.
pub trait Export {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// The file of a result folder that it is written to by default; none for what goes to standard output.
    fn file_name(&self) -> Option<&'static str>;

    /// The whole text.
    fn render(&self, results: &Results, options: &Options) -> String;

    /// Writes the same, if it can be long without holding all of it in memory.
    ///
    /// # Errors
    /// What writing it says.
    fn write(&self, results: &Results, options: &Options, output: &mut dyn Write) -> io::Result<()> {
        output.write_all(self.render(results, options).as_bytes())
    }
}
