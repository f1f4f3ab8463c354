//! Collects the mistakes in a command's options, so that all are reported together.

use std::fmt::Display;

/// The mistakes found so far.
#[derive(Debug, Default)]
pub(super) struct Mistakes(Vec<String>);

impl Mistakes {
    /// Parses an option if it is given. If its value is invalid, adds the mistake under `name` and returns `None`.
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

    pub(super) fn add(&mut self, mistake: impl Into<String>) {
        self.0.push(mistake.into());
    }

    /// Returns `value`, or the mistakes if there are any.
    pub(super) fn into_result<T>(self, value: T) -> Result<T, Vec<String>> {
        if self.0.is_empty() { Ok(value) } else { Err(self.0) }
    }
}
