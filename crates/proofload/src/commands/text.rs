//! Values of options: read one after the other, and all mistakes kept.

use std::fmt::Display;

/// Collects mistakes while options are read.
#[derive(Debug, Default)]
pub(super) struct Mistakes(Vec<String>);

impl Mistakes {
    /// The value of an option that may be missing.
    pub(super) fn optional<T, E: Display>(
        &mut self,
        option: &str,
        text: Option<&str>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        match parse(text?) {
            Ok(value) => Some(value),
            Err(error) => {
                self.add(format!("{option}: {error}"));
                None
            }
        }
    }

    /// One mistake more.
    pub(super) fn add(&mut self, mistake: impl Into<String>) {
        self.0.push(mistake.into());
    }

    /// `value` if there were no mistakes.
    pub(super) fn none_or<T>(self, value: T) -> Result<T, Vec<String>> {
        if self.0.is_empty() { Ok(value) } else { Err(self.0) }
    }
}
