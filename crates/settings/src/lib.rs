//! Reads files that users write, and defines tables of options.
//!
//! Files are TOML, read value by value, so that all mistakes are found at once, each with its line, its column and the
//! expected value. Files and command lines share the tables of options.

pub mod network;
pub mod options;
pub mod placeholders;
mod reader;
pub mod schema;
mod suggestion;

use std::fmt;

pub use network::Network;
pub use reader::{Reader, Table, Value, values_of};
pub use suggestion::suggestion;

/// A mistake in a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mistake {
    /// Name of the file, as the user gave it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong, and what was expected.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)
    }
}
