//! A case, and what is expected of it.

use std::path::Path;

use anyhow::Result;

/// A folder.
pub(crate) struct Case {
    /// What was done.
    pub name: &'static str,
    /// Does it to a copy of `own`, which lies beside `other` (another study) and `again` (the same one, run once more).
    pub make: fn(&Path, &Path) -> Result<()>,
    /// What becomes of it.
    pub expected: Expected,
    /// Parts of the reason, if it is refused.
    pub says: &'static [&'static str],
}

/// What is done with a folder.
#[derive(Clone, Copy)]
pub(crate) enum Expected {
    /// It is refused, and stays as it is.
    Refused,
    /// It is read as what it is, and stays as it is.
    Sound,
    /// It holds so many trials; the study is gone on with.
    Half { trials: usize },
}

pub(super) const fn refused(
    name: &'static str,
    make: fn(&Path, &Path) -> Result<()>,
    says: &'static [&'static str],
) -> Case {
    Case { name, make, expected: Expected::Refused, says }
}

pub(super) const fn read(
    name: &'static str,
    make: fn(&Path, &Path) -> Result<()>,
    expected: Expected,
) -> Case {
    Case { name, make, expected, says: &[] }
}

pub(super) const WRITTEN: &str = "its checksum is wrong";
pub(super) const MISSING: &str = "a line is missing or repeated";
pub(super) const OTHER: &str = "belongs to another study";
