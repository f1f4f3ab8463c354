//! Errors of a copy, of a file or of a connection.

use std::{fmt, io};

use sftp::Code;

use crate::location::shown;

/// Reason why a copy could not begin.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The options or paths contradict each other.
    #[error("{0}")]
    WrongUse(String),
    /// The login to the other machine failed.
    #[error("cannot copy over ssh to {machine}: {why}; {}", next_step(machine, why))]
    Login {
        /// The machine.
        machine: String,
        /// Message of `ssh`.
        why: String,
    },
    /// The copy was interrupted before the first file.
    #[error("interrupted")]
    Interrupted,
    /// Another failure before the first file.
    #[error("{0}")]
    Failed(String),
}

/// Advice for a failed connection.
fn next_step(machine: &str, why: &str) -> String {
    if why.contains("subsystem request failed") {
        "the login worked, but sshd there has no SFTP: set 'Subsystem sftp' in its sshd_config".to_owned()
    } else {
        format!("check that 'ssh {machine}' works")
    }
}

/// Reason why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Error {
    /// The connection was lost; contains the message of `ssh`. Another connection may succeed.
    Lost(String),
    /// The server refused the request.
    Refused(Refusal),
    /// An operation on this machine failed.
    Local(String),
    /// The source has changed since it was listed.
    Changed,
    /// The written data still differs from the source after several attempts.
    Differs {
        /// Offset of the chunk, in bytes.
        offset: u64,
    },
}

/// The result of an operation of this crate.
pub(crate) type Result<T = (), E = Error> = std::result::Result<T, E>;

/// A refusal by the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: Code,
    message: String,
}

impl Refusal {
    pub(crate) fn new(code: Code, message: &[u8]) -> Self {
        let message = String::from_utf8_lossy(message);
        Self { code, message: message.chars().filter(|letter| !letter.is_control()).take(200).collect() }
    }
}

impl Error {
    pub(crate) fn local(what: &str, error: &io::Error) -> Self {
        Self::Local(format!("cannot {what}: {error}"))
    }

    /// The target exists but is neither a regular file nor a folder.
    pub(crate) fn not_regular(target: &[u8]) -> Self {
        Self::Local(format!("{} exists and is not a regular file; choose another name", shown(target)))
    }

    /// The server sent an answer of the wrong kind.
    pub(crate) fn unexpected(what: &str) -> Self {
        Self::Local(format!(
            "the server gave the wrong kind of answer to {what}; read its log, or try another SFTP server"
        ))
    }

    /// Turns a lost connection into the outer error, which ends the operation. Any other error becomes an inner result.
    pub(crate) fn unless_lost<T>(done: Result<T>) -> Result<Result<T>> {
        match done {
            Err(lost @ Self::Lost(_)) => Err(lost),
            answer => Ok(answer),
        }
    }

    pub(crate) fn is(&self, code: Code) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.code == code)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(why) => write!(f, "the connection was lost: {why}"),
            Self::Refused(Refusal { code: Code::Failure, message }) => {
                let words = if message.is_empty() { "failure" } else { message };
                write!(
                    f,
                    "the server says '{words}' and gives no reason; check there whether the file system is full (df, df -i) or \
                     read-only (mount), and read its log"
                )
            }
            Self::Refused(Refusal { code, message }) if message.is_empty() => {
                write!(f, "the server says '{code}'")
            }
            Self::Refused(Refusal { message, .. }) => write!(f, "the server says '{message}'"),
            Self::Local(why) => f.write_str(why),
            Self::Changed => f.write_str("the source changed while it was copied; copy it again"),
            Self::Differs { offset } => write!(
                f,
                "the data written from byte {offset} on differs from the data read; check \
                 the disks and the memory of both machines"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_without_a_reason_may_be_more_than_a_full_disk() {
        let error = Error::Refused(Refusal::new(Code::Failure, b"Failure"));
        let words = error.to_string();
        assert!(words.contains("full (df, df -i)") && words.contains("read-only (mount)"), "{words}");
    }
}
