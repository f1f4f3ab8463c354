//! What a store is to do.

use std::{path::PathBuf, time::Duration};

use crate::{Error, Template};

/// Settings of a [`Store`](crate::Store).
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the files lie, without their [`suffix`](Self::suffix).
    pub template: Template,
    /// Follows the name and its index: `.log`. No slash, at most 32 bytes, no ending of packed files; may be
    /// empty.
    pub suffix: String,
    /// Lines go on in the file that is there. Otherwise every start begins files of its own: `x_0.log`,
    /// `x_1.log`, as Fluentd does.
    pub append: bool,
    /// A segment that would grow beyond it ends, and the next index is begun. One part is never split.
    pub rotate_bytes: Option<u64>,
    /// A symbolic link that always leads to the newest segment of what its placeholders name.
    pub symlink: Option<Template>,
    /// What happens to segments that have ended.
    pub compress: Compression,
    /// At most so many segments are open; the one unused for longest is closed. At least 1. As many more may
    /// hold a descriptor while they wait for their last sync.
    pub max_open: usize,
    /// Folder of the journal and of the lock. Made when missing.
    pub state: PathBuf,
    /// A group commit waits so long for company, until [`Store::skip_sync_delay`](crate::Store::skip_sync_delay) or the end. Zero: whatever
    /// came while the last one ran is the next.
    pub sync_delay: Duration,
    /// Slices of time in UTC rather than in the machine's own zone.
    pub utc: bool,
    /// A slice of time may still get lines so long after its end before it has ended.
    pub grace: Duration,
    /// A segment without new lines for so long has ended.
    pub idle: Duration,
    /// [`Store::close`](crate::Store::close) waits at most so long for the disk.
    pub close_wait: Duration,
}

impl Config {
    /// Defaults: `.log`, appended, neither rotated nor compressed, 1,000 open files, the journal in the
    /// hidden folder `.proofload` beside the files, no delay, local time, a minute's grace, ended after ten
    /// idle minutes, 30 s to close.
    pub fn new(template: Template) -> Self {
        Self {
            suffix: ".log".into(),
            append: true,
            rotate_bytes: None,
            symlink: None,
            compress: Compression::None,
            max_open: 1000,
            state: template.folder().join(".proofload"),
            sync_delay: Duration::ZERO,
            utc: false,
            grace: Duration::from_secs(60),
            idle: Duration::from_secs(600),
            close_wait: Duration::from_secs(30),
            template,
        }
    }

    /// Whether a store could be opened with it, as far as that can be told without opening it.
    ///
    /// # Errors
    /// [`Error::Config`], with what is wrong.
    pub fn check(&self) -> Result<(), Error> {
        let suffix = &self.suffix;
        if suffix.len() > 32 || suffix.chars().any(|c| c == '/' || c.is_control()) {
            return Err(Error::Config(format!(
                "{suffix:?} cannot end a file's name: at most 32 bytes without a slash, such as .log"
            )));
        }
        if Compression::ends(suffix.as_bytes()) {
            return Err(Error::Config(format!(
                "files that grow are plain text and cannot be called {suffix}: end their path in .log, and let \
                 --compress gzip or zstd pack those that have ended"
            )));
        }
        let unit = self.template.unit();
        let finer = |link: &&Template| link.unit().is_some_and(|fine| unit.is_none_or(|unit| fine < unit));
        match self.symlink.as_ref().filter(finer) {
            Some(link) => Err(Error::Config(format!(
                "the link {link} changes more often than the files {}",
                self.template
            ))),
            None => Ok(()),
        }
    }
}

/// How segments that have ended are packed. Live segments are always plain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// They stay as they are.
    #[default]
    None,
    /// `.gz` is added to the name.
    Gzip,
    /// `.zst` is added to the name.
    Zstd,
}

impl Compression {
    pub(crate) const ALL_SUFFIXES: [&str; 2] = [".gz", ".zst"];

    /// Whether a file of that name is taken for a packed one.
    pub(crate) fn ends(name: &[u8]) -> bool {
        Self::ALL_SUFFIXES.iter().any(|suffix| name.ends_with(suffix.as_bytes()))
    }

    /// What is added to the name of a packed segment.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Gzip => ".gz",
            Self::Zstd => ".zst",
        }
    }
}
