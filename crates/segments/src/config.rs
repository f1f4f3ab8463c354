//! The configuration of a store.

use std::{path::PathBuf, time::Duration};

use crate::{Error, Template, folders::STATE_NAME};

/// Settings of a [`Store`](crate::Store).
#[derive(Debug, Clone)]
pub struct Config {
    /// Path of the files, without their [`suffix`](Self::suffix).
    pub template: Template,
    /// End of every file name, after the index, such as `.log`. May be empty; at most 32 bytes, without a slash, and
    /// not the suffix of a packed file.
    pub suffix: String,
    /// Whether a start appends to existing files. Otherwise each start creates new files, `x_0.log`, `x_1.log`, as
    /// Fluentd does.
    pub append: bool,
    /// Maximum size of a segment. A part that does not fit goes to a segment with the next index. A part is never split.
    pub rotate_bytes: Option<u64>,
    /// Path of symbolic links to the newest segments, one link for each value of its placeholders.
    pub symlink: Option<Template>,
    /// How segments that have ended are packed.
    pub compress: Compression,
    /// Maximum number of open segments, at least 1. The least recently used segment is closed first. The same number of
    /// closed segments may also hold a descriptor while they wait for their last sync.
    pub max_open: usize,
    /// Folder of the journal and of the lock, created if missing.
    pub state: PathBuf,
    /// Maximum delay before a sync to collect parts. With zero, a sync only collects the parts that arrive during the
    /// previous sync. [`Store::skip_sync_delay`](crate::Store::skip_sync_delay) ends the delays.
    pub sync_delay: Duration,
    /// Whether time slices are in UTC instead of the local time zone.
    pub utc: bool,
    /// Time after the end of a time slice during which its segment may still get lines.
    pub grace: Duration,
    /// Time without new lines after which a segment ends.
    pub idle: Duration,
    /// Maximum time that [`Store::close`](crate::Store::close) waits for the disk.
    pub close_wait: Duration,
    /// Maximum time that lines wait until other files are closed, if no descriptor is free for their file.
    #[doc(hidden)]
    pub descriptor_wait: Duration,
}

impl Config {
    /// The defaults: `.log`, append, no rotation, no compression, 1,000 open files, the journal in the folder `.proofload`
    /// beside the files, no sync delay, local time, 1 minute of grace, 10 idle minutes, 30 s to close.
    pub fn new(template: Template) -> Self {
        Self {
            suffix: ".log".into(),
            append: true,
            rotate_bytes: None,
            symlink: None,
            compress: Compression::None,
            max_open: 1000,
            state: template.folder().join(STATE_NAME),
            sync_delay: Duration::ZERO,
            utc: false,
            grace: Duration::from_secs(60),
            idle: Duration::from_secs(600),
            close_wait: Duration::from_secs(30),
            descriptor_wait: Duration::from_secs(5),
            template,
        }
    }

    /// Checks everything that does not require opening a store.
    ///
    /// # Errors
    /// [`Error::Config`] with the mistake.
    pub fn check(&self) -> Result<(), Error> {
        let suffix = &self.suffix;
        if suffix.len() > 32 || suffix.chars().any(|c| c == '/' || c.is_control()) {
            return Err(Error::Config(format!(
                "a file's name cannot end in {suffix:?}: use at most 32 bytes without a slash, such as .log"
            )));
        }
        if Compression::ends(suffix.as_bytes()) {
            return Err(Error::Config(format!(
                "growing files are plain text, so their name cannot end in {suffix}; let it end in .log, and use --compress \
                 gzip or zstd to pack ended files"
            )));
        }
        let unit = self.template.unit();
        let finer = |link: &&Template| link.unit().is_some_and(|fine| unit.is_none_or(|unit| fine < unit));
        match self.symlink.as_ref().filter(finer) {
            Some(link) => Err(Error::Config(format!(
                "the link {link} changes more often than the files {}; use a coarser time in its name",
                self.template
            ))),
            None => Ok(()),
        }
    }
}

/// How ended segments are packed. Growing segments are always plain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// With gzip; the name gets the suffix `.gz`.
    Gzip,
    /// With zstd; the name gets the suffix `.zst`.
    Zstd,
}

impl Compression {
    pub(crate) const ALL_SUFFIXES: [&str; 2] = [".gz", ".zst"];

    /// Whether a name has the suffix of a packed file.
    pub(crate) fn ends(name: &[u8]) -> bool {
        Self::ALL_SUFFIXES.iter().any(|suffix| name.ends_with(suffix.as_bytes()))
    }

    /// The suffix that the name of a packed segment gets.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Gzip => ".gz",
            Self::Zstd => ".zst",
        }
    }
}
