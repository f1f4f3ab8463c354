//! Keys: the segment that a line belongs to.

use std::{
    borrow::Cow,
    ops::Range,
    path::{Path, PathBuf},
};

use jiff::tz::TimeZone;

use crate::{Config, Template, folders::absolute, slice::zoned};

/// The name of a segment without its index and suffix. Keys with equal paths are equal.
#[derive(Debug, Clone)]
pub struct Key {
    pub(crate) path: Box<str>,
    pub(crate) symlink: Option<Box<Path>>,
    slice: Option<Range<i64>>,
}

/// Why an event has no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The event's time is outside the years 0 to 9999.
    #[error("an event's time of {0} s since 1970 is outside the years 0 to 9999")]
    Time(i64),
}

impl Key {
    /// The path below [`Template::folder`], without index and suffix.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The range of event times, in seconds since the epoch, for which the same tag gives the same key; `None` means
    /// all times.
    pub fn slice(&self) -> Option<Range<i64>> {
        self.slice.clone()
    }

    /// The key of a segment in the journal of an earlier process.
    pub(crate) fn from_journal(path: &str, end: Option<i64>) -> Self {
        Self { path: path.into(), symlink: None, slice: end.map(|end| end.saturating_sub(1)..end) }
    }

    /// The first second after the slice.
    pub(crate) fn end(&self) -> Option<i64> {
        self.slice.as_ref().map(|slice| slice.end)
    }

    pub(crate) fn start(&self) -> i64 {
        self.slice.as_ref().map_or(i64::MIN, |slice| slice.start)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for Key {}

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.path.hash(state);
    }
}

#[derive(Debug)]
pub(crate) struct Keys {
    template: Template,
    symlink: Option<Template>,
    zone: TimeZone,
    /// First component of the journal's folder, if that folder is below the folder of the files. No key may begin with
    /// this component.
    reserved: Option<String>,
}

impl Keys {
    pub(crate) fn new(config: &Config) -> Self {
        let state = absolute(&config.state);
        let below = state.strip_prefix(absolute(config.template.folder())).ok();
        let first = below.and_then(|path| path.components().next());
        Self {
            template: config.template.clone(),
            symlink: config.symlink.clone(),
            zone: if config.utc { TimeZone::UTC } else { TimeZone::system() },
            reserved: first.map(|name| name.as_os_str().to_string_lossy().into_owned()),
        }
    }

    pub(crate) fn key<'a>(
        &self,
        tag: &str,
        seconds: i64,
        fields: &dyn Fn(&str) -> Option<Cow<'a, str>>,
    ) -> Result<Key, KeyError> {
        let at = zoned(seconds, &self.zone).ok_or(KeyError::Time(seconds))?;
        let mut path = self.template.resolve(tag, at.datetime(), fields);
        if self.reserved.as_deref().is_some_and(|reserved| path.split('/').next() == Some(reserved)) {
            path.insert(0, '_');
        }
        let symlink = self.symlink.as_ref().map(|link| -> Box<Path> {
            let path: PathBuf = link.folder().join(link.resolve(tag, at.datetime(), fields));
            path.into()
        });
        let slice = self.template.unit().map(|unit| unit.slice(&at));
        Ok(Key { path: path.into(), symlink, slice })
    }
}
