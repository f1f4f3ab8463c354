//! Files that users write: TOML read value by value, so that every mistake is found in one go, each with its
//! line and column and with what was expected; and the tables of options, which files and command lines share.

pub mod network;
pub mod options;
pub mod places;
mod reader;
pub mod schema;

use std::fmt;

pub use network::Network;
pub use reader::{Reader, Table, Value, suggestion};

/// What is wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
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
