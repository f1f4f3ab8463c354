//! The direction of a copy and the options for carrying files.

use std::rc::Rc;

use files::Folder;

/// Direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
}

/// Options for carrying files.
#[derive(Debug, Clone)]
pub(crate) struct CarryOptions {
    pub(crate) direction: Direction,
    pub(crate) preserve: bool,
    pub(crate) verify: bool,
    pub(crate) sync: bool,
    /// Folder of the journals; none if the copy cannot be resumed.
    pub(crate) journals: Option<Rc<Folder>>,
    /// Distinguishes this run's journals from those of concurrent runs.
    pub(crate) token: String,
    /// The secret that the names of this run's partial files are derived from.
    pub(crate) secret: String,
    /// The secrets of runs of this command that were killed.
    pub(crate) former_secrets: Vec<String>,
    /// The name of the other machine in journals and reports.
    pub(crate) machine: String,
}
