//! Every setting of the listener: its name on the command line and in the settings file, what it takes, what it
//! does, all in one place.
//!
//! A setting is called the same everywhere: `--max-body` on the command line is `max_body` in the file. Both are
//! given to the same reader, so that both mean the same and are refused for the same reasons.

mod addresses;
mod answers;
mod bounds;
mod output;
mod storing;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

pub(super) use ::settings::options::Kind;
use ::settings::options::{count, error_text};
use record::units::{UnitError, parse_size, parse_time};

use super::draft::Draft;

/// One setting.
pub(super) type OptionSpec = ::settings::options::OptionSpec<Draft>;

/// All settings, in the order of the help.
pub(super) fn all() -> impl Iterator<Item = &'static OptionSpec> {
    [addresses::SETTINGS, storing::SETTINGS, answers::SETTINGS, bounds::SETTINGS, output::SETTINGS]
        .into_iter()
        .flatten()
}

fn size(text: &str, least: u64) -> Result<u64, String> {
    match parse_size(text).map_err(error_text)? {
        size if size < least => Err(format!("{text} is too small; at least {least} bytes")),
        size => Ok(size),
    }
}

/// A time that is not zero.
fn time(text: &str) -> Result<Duration, String> {
    match parse_time(text).map_err(error_text)? {
        Duration::ZERO => Err(format!("{text} is no time; give one such as 10s")),
        time => Ok(time),
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        UnitError::new(text, "an address with its port, such as 127.0.0.1:9880 or [::1]:9880").to_string()
    })
}

fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("a path is missing".to_owned()) } else { Ok(PathBuf::from(text)) }
}

/// The value at the place of a word among those known.
fn choice<T: Copy>(text: &str, words: &[&str], values: &[T]) -> Result<T, String> {
    let place = words.iter().position(|word| *word == text);
    let value = place.and_then(|place| values.get(place).copied());
    value.ok_or_else(|| format!("'{text}' is not known here (known: {})", words.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_told_once_and_takes_its_example_and_its_default() {
        let mut keys = std::collections::BTreeSet::new();
        for setting in all() {
            assert!(keys.insert(setting.key), "{} is there twice", setting.key);
            assert!(!setting.help.ends_with('.') && !setting.help.is_empty(), "{}", setting.key);
            let examples: Vec<&str> = setting.example.split_whitespace().collect();
            let result = (setting.apply)(&mut Draft::new(None).unwrap(), &examples);
            assert_eq!(result, Ok(()), "{} {}", setting.key, setting.example);
            if let Kind::Choice(words) = setting.kind {
                assert!(words.contains(&setting.example), "{}", setting.key);
                for word in words {
                    assert_eq!((setting.apply)(&mut Draft::new(None).unwrap(), &[word]), Ok(()), "{word}");
                }
            }
            // Drafts of two runs differ in nothing, so that the text of one tells what it holds.
            let plain = format!("{:?}", Draft::new(None).unwrap());
            if !setting.default.is_empty() {
                let mut draft = Draft::new(None).unwrap();
                assert_eq!((setting.apply)(&mut draft, &[setting.default]), Ok(()), "{}", setting.key);
                // That something was said is kept, even if it changes nothing else.
                draft.listens_as_told = false;
                assert_eq!(format!("{draft:?}"), plain, "{} does not have its default", setting.key);
            }
            let mut draft = Draft::new(None).unwrap();
            (setting.apply)(&mut draft, &examples).unwrap();
            assert_ne!(format!("{draft:?}"), plain, "{} {} changes nothing", setting.key, setting.example);
        }
    }
}
