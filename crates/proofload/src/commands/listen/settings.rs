//! The settings of the listener. A table entry holds the name, help, default and parser of one setting.
//!
//! `--max-body` on the command line is `max_body` in the settings file. Both use the same parser.

mod addresses;
mod answers;
mod bounds;
mod output;
mod storing;

use std::{path::PathBuf, time::Duration};

pub(super) use ::settings::options::Kind;
use ::settings::options::{address, choice, count, error_text};
use record::units::{parse_size, parse_time};

use super::config_builder::ConfigBuilder;

/// A setting that is stored in the [`ConfigBuilder`].
pub(super) type OptionSpec = ::settings::options::OptionSpec<ConfigBuilder>;

/// All settings, in the order of the help.
pub(super) fn all() -> impl Iterator<Item = &'static OptionSpec> {
    [addresses::SETTINGS, storing::SETTINGS, answers::SETTINGS, bounds::SETTINGS, output::SETTINGS]
        .into_iter()
        .flatten()
}

fn size(text: &str, min: u64) -> Result<u64, String> {
    match parse_size(text).map_err(error_text)? {
        size if size < min => Err(format!("{text} is too small; give at least {min} bytes")),
        size => Ok(size),
    }
}

/// Parses a time; zero is an error.
fn time(text: &str) -> Result<Duration, String> {
    match parse_time(text).map_err(error_text)? {
        Duration::ZERO => Err(format!("{text} is too short; give a time such as 10s")),
        time => Ok(time),
    }
}

fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("the path is empty".to_owned()) } else { Ok(PathBuf::from(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_and_examples_and_defaults_are_accepted() {
        let mut keys = std::collections::BTreeSet::new();
        for setting in all() {
            assert!(keys.insert(setting.key), "{} is there twice", setting.key);
            assert!(!setting.help.ends_with('.') && !setting.help.is_empty(), "{}", setting.key);
            let examples: Vec<&str> = setting.example.split_whitespace().collect();
            let result = (setting.apply)(&mut ConfigBuilder::new(None).unwrap(), &examples);
            assert_eq!(result, Ok(()), "{} {}", setting.key, setting.example);
            if let Kind::Choice(words) = setting.kind {
                assert!(words.contains(&setting.example), "{}", setting.key);
                for word in words {
                    assert_eq!(
                        (setting.apply)(&mut ConfigBuilder::new(None).unwrap(), &[word]),
                        Ok(()),
                        "{word}"
                    );
                }
            }
            // The `Debug` text contains every field, so equal texts mean equal settings.
            let plain = format!("{:?}", ConfigBuilder::new(None).unwrap());
            if !setting.default.is_empty() {
                let mut builder = ConfigBuilder::new(None).unwrap();
                assert_eq!((setting.apply)(&mut builder, &[setting.default]), Ok(()), "{}", setting.key);
                // Records that the user gave addresses, so it differs even if they equal the default.
                builder.has_explicit_addresses = false;
                assert_eq!(format!("{builder:?}"), plain, "{} does not have its default", setting.key);
            }
            let mut builder = ConfigBuilder::new(None).unwrap();
            (setting.apply)(&mut builder, &examples).unwrap();
            assert_ne!(format!("{builder:?}"), plain, "{} {} changes nothing", setting.key, setting.example);
        }
    }
}
