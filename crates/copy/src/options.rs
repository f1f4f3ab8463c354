//! Where the files go, and how they are carried.

use std::rc::Rc;

use files::Folder;

/// Direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
}

/// How the files are carried.
#[derive(Debug, Clone)]
pub(crate) struct CarryOptions {
    pub(crate) direction: Direction,
    pub(crate) preserve: bool,
    pub(crate) verify: bool,
    pub(crate) sync: bool,
    /// Folder of the journals; none if the copy cannot be resumed.
    pub(crate) journals: Option<Rc<Folder>>,
    /// Distinguishes this run's journals from those of other runs at the same time.
    pub(crate) token: String,
    /// The secret from which the names of this run's partial files are derived.
    pub(crate) secret: String,
    /// The secrets of runs of this command that were killed.
    pub(crate) former_secrets: Vec<String>,
    /// The other machine, as journals and reports name it.
    pub(crate) machine: String,
}
