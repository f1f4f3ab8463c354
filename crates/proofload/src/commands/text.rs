//! Values of options: read one after the other, and all mistakes kept.

use std::fmt::Display;

/// Collects mistakes while options are read.
#[derive(Debug, Default)]
pub struct Mistakes(Vec<String>);

impl Mistakes {
    /// The value of an option, or its default and a mistake.
    pub fn read<T: Default, E: Display>(&mut self, option: &str, result: Result<T, E>) -> T {
        result.unwrap_or_else(|error| {
            self.add(format!("{option}: {error}"));
            T::default()
        })
    }

    /// The value of an option that may be missing.
    pub fn optional<T, E: Display>(
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
    pub fn add(&mut self, mistake: impl Into<String>) {
        self.0.push(mistake.into());
    }

    /// `value` if there were no mistakes.
    pub fn none_or<T>(self, value: T) -> Result<T, Vec<String>> {
        if self.0.is_empty() { Ok(value) } else { Err(self.0) }
    }
}

/// Processors: `1`, `0,2` or `1-3`.
pub fn parse_cpus(text: &str) -> Result<Vec<u32>, String> {
    let refuse = || format!("'{text}' is not a list of processors such as 1 or 0,2-3");
    let mut cpus = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let low: u32 = low.parse().map_err(|_| refuse())?;
        let high: u32 = high.parse().map_err(|_| refuse())?;
        if low > high || high >= 4_096 {
            return Err(refuse());
        }
        cpus.extend(low..=high);
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_lists() {
        assert_eq!(parse_cpus("0,2-4"), Ok(vec![0, 2, 3, 4]));
        for bad in ["", "a", "3-1", "1,,2", "99999"] {
            assert!(parse_cpus(bad).is_err(), "{bad}");
        }
    }
}
