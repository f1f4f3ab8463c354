//! A lab file: TOML that says which hosts there are, what joins them and what runs on them.
//!
//! All mistakes are found in one go, each with its line and column and with what was expected. What comes
//! out is a [`Plan`] in which nothing is left to be decided.

mod hosts;
mod links;
mod processes;
mod reader;

use std::fmt;

use crate::plan::Plan;
use reader::Reader;

/// What is wrong with a lab file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The file, as it was named.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong, and what was expected.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)
    }
}

/// Reads a lab file's text. `file` is its name for the mistakes.
///
/// # Errors
/// Every mistake, in the order of the file.
pub fn parse(file: &str, text: &str) -> Result<Plan, Vec<Mistake>> {
    let mut reader = Reader::new(file, text);
    let document = reader.document(text);
    if reader.has_mistakes() {
        // What is guessed behind a mistake in TOML itself would only confuse.
        return reader.end(Plan::default());
    }
    let mut table = reader.root(&document);
    let title = table.take("title").and_then(|value| reader.text(value)).unwrap_or_default().to_owned();
    let (hosts, groups) = hosts::read(&mut reader, &mut table);
    let mut plan = Plan { title, hosts, ..Plan::default() };
    plan.links = links::read(&mut reader, &mut table, &plan, &groups);
    hosts::read_routes(&mut reader, &mut plan, &groups);
    plan.processes = processes::read(&mut reader, &mut table, &plan, &groups);
    table.finish(&mut reader);
    reader.end(plan)
}

#[cfg(test)]
mod tests;
