//! Errors of the balancer's work with the kernel.

use std::{error, io};

use crate::rights;

/// An error of the balancer's work with the kernel.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user lacks capabilities.
    #[error("this user may not {what}; run as root, or add the missing capabilities: {lacking}")]
    NotPermitted {
        /// The refused operation.
        what: String,
        /// The missing capabilities.
        lacking: String,
    },
    /// The kernel refuses the operation or lacks the feature.
    #[error("cannot {what}: {cause}")]
    Kernel {
        /// The failed operation.
        what: String,
        /// The error of the kernel or the loader, with all causes in one line.
        cause: String,
    },
    /// Another version made the pinned tables.
    #[error(
        "the tables in {path} were made by another version of proofload: {name} has a different layout; \
         stop the balancer with the version that started it, or remove the folder, which breaks its connections"
    )]
    OtherVersion {
        /// The folder of the pins.
        path: std::path::PathBuf,
        /// A table that differs.
        name: &'static str,
    },
    /// The failed operation and the reason.
    #[error("{0}")]
    Refused(String),
    /// A change of this machine that could not be recorded or undone.
    #[error(transparent)]
    Undo(#[from] undo::Error),
    /// A table has no room for more entries.
    #[error("no room for more {what}: a balancer holds at most {most}; start another balancer")]
    TooMany {
        /// The kind of entries.
        what: &'static str,
        /// Maximum number of entries.
        most: usize,
    },
}

impl Error {
    /// Error of an operation, with all causes that the library reports.
    pub(crate) fn new(what: impl Into<String>, error: &(dyn error::Error + 'static)) -> Self {
        let (mut words, mut cause) = (String::new(), Some(error));
        while let Some(error) = cause {
            let system = error.downcast_ref::<io::Error>().map(io::Error::kind);
            let is_refused = system == Some(io::ErrorKind::PermissionDenied);
            let lacking = if is_refused { rights::lacking() } else { Vec::new() };
            if !lacking.is_empty() {
                return Self::NotPermitted { what: what.into(), lacking: lacking.join(", ") };
            }
            // Only the first line is used, because the verifier's log has hundreds of lines.
            append_cause(&mut words, error.to_string().lines().next().unwrap_or_default());
            cause = error.source();
        }
        Self::Kernel { what: what.into(), cause: words }
    }
}

/// The error of any library.
pub(crate) type Cause = Box<dyn error::Error + Send + Sync>;

/// Adds a cause to an error's text. Leaves out the beginning of the cause if the text already ends with it, because
/// some libraries repeat causes.
fn append_cause(words: &mut String, cause: &str) {
    let ends = cause.match_indices(": ").map(|(at, _)| at).chain([cause.len()]);
    let said = ends.filter(|end| words.ends_with(&cause[..*end])).max();
    match said {
        Some(end) => words.push_str(&cause[end..]),
        None if words.is_empty() => words.push_str(cause),
        None => words.extend([": ", cause]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cause_is_said_twice() {
        let mut words = String::new();
        for cause in ["map error", "cannot create `flows`", "cannot create `flows`: too many: open", "open"] {
            append_cause(&mut words, cause);
        }
        assert_eq!(words, "map error: cannot create `flows`: too many: open");
    }

    #[test]
    fn rights_are_named_only_where_they_lack() {
        let refused = io::Error::from(io::ErrorKind::PermissionDenied);
        let of_all = Error::new("do it", &refused);
        let lacks = rights::lacking();
        assert_eq!(
            matches!(of_all, Error::NotPermitted { .. }),
            !lacks.is_empty(),
            "{of_all}, lacking {lacks:?}"
        );
        assert!(lacks.iter().all(|right| of_all.to_string().contains(right)), "{of_all}");
    }
}
