//! A case, and its expected result.

use std::path::Path;

use anyhow::Result;

/// A changed folder.
pub(crate) struct Case {
    /// The change.
    pub name: &'static str,
    /// Changes a copy of `own`. Beside it are `other` (another study) and `again` (a second run of the same study).
    pub make: fn(&Path, &Path) -> Result<()>,
    /// The expected result.
    pub expected: Expected,
    /// Parts of the message, if the folder is refused.
    pub says: &'static [&'static str],
}

/// The reaction to a folder.
#[derive(Clone, Copy)]
pub(crate) enum Expected {
    /// It is refused and stays unchanged.
    Refused,
    /// It is read correctly and stays unchanged.
    Sound,
    /// It has this many trials, and the study can be resumed.
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
